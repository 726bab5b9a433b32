//! What a program is told of compaction units, beside their records: loads, decisions, and the clock of the records.

use super::Store;
use situ_compaction::{DecisionReport, Load};
use std::time::Duration;

impl Store {
    /// How busy each compaction unit is, in the order of [`compaction_units`](Store::compaction_units).
    pub fn compaction_loads(&self) -> Vec<Load> {
        self.core().work.scheduler.loads()
    }

    /// What the decisions between linear and pipelined runs came to, by the unit's name, of those units that decide. The last decision of
    /// each has all of its inputs.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::Store;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = Store::open(directory.path())?;
    /// for (unit, decisions) in store.compaction_decisions() {
    ///     println!("{unit}: {} pipelined, {} linear", decisions.pipelined, decisions.linear);
    ///     if let Some(last) = decisions.last {
    ///         println!("  the last one: {last}");
    ///     }
    /// }
    /// store.close()
    /// # }
    /// ```
    pub fn compaction_decisions(&self) -> Vec<(String, DecisionReport)> {
        self.core().work.scheduler.decisions()
    }

    /// What the store's clock shows: records of compaction tasks tell times by it. It never goes back, and begins anywhere.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::Store;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = Store::open(directory.path())?;
    /// for value in ["first", "second"] {
    ///     store.put("key", value)?;
    ///     store.flush()?;
    /// }
    /// store.compact(None, None)?;
    /// let mut next = 0;
    /// for task in store.compaction_tasks(next) {
    ///     let ago = store.clock().saturating_sub(task.began);
    ///     println!("{ago:.1?} ago: level {} into {} on {}: {}", task.level, task.output_level, task.unit_name, task.outcome);
    ///     next = task.sequence.map_or(next, |sequence| sequence + 1);
    /// }
    /// assert!(next > 0 && store.compaction_tasks(next).is_empty());
    /// store.close()
    /// # }
    /// ```
    pub fn clock(&self) -> Duration {
        self.core().env.clock.now()
    }

    /// The name of the keyspace that records of compaction tasks call by this number; `None` if it was dropped.
    pub fn keyspace_name_of(&self, number: u32) -> Option<String> {
        let keyspaces = self.core().versions.keyspaces();
        keyspaces.iter().find(|keyspace| keyspace.id == number).map(|keyspace| keyspace.name.to_string())
    }
}
