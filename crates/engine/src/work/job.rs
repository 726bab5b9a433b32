//! A compaction between its beginning and its end.

use crate::base::sync::lock;
use crate::versions::editor::DeadValues;
use crate::work::schedule::Claimed;
use crate::work::task_host::Host;
use crate::work::throttle::CompactionTurn;
use crate::{Error, Result};
use situ_compaction::{OutputTable, TaskOutput, TaskStats};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The outcome of a job, for the caller of a manual compaction.
pub(crate) type Outcome = Mutex<Option<Result<()>>>;

/// The originator of a job.
pub(crate) struct Begun {
    /// The store's own jobs have a turn.
    pub(crate) turn: Option<CompactionTurn>,
    /// The outcome for the caller that waits for the job, which gets its failure. Without it, a failure of the job's
    /// own is no error of the thread.
    pub(crate) outcome: Option<Arc<Outcome>>,
}

/// A job that a panic has ended has an outcome, too.
impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(outcome) = &self.outcome {
            lock(outcome).get_or_insert(Err(Error::Closed));
        }
    }
}

/// A job whose tasks are with the compactor, or are about to be.
pub(crate) struct JobUnderWay {
    pub(crate) number: u64,
    pub(crate) claimed: Claimed,
    pub(crate) host: Arc<Host>,
    /// The level of each task's output.
    pub(crate) levels: Vec<usize>,
    pub(crate) started: Duration,
    /// It was begun once more after a disk refused.
    pub(crate) has_spilled: bool,
    pub(crate) begun: Begun,
}

/// The results of a job's tasks, in the order of the keys.
#[derive(Default)]
pub(crate) struct Merged {
    pub(crate) tables: Vec<OutputTable>,
    /// The level of each table.
    levels: Vec<usize>,
    pub(crate) stats: TaskStats,
    /// The dropped values of the value log.
    pub(crate) dead: DeadValues,
}

impl Merged {
    pub(crate) fn new(levels: &[usize], outputs: Vec<TaskOutput>) -> Merged {
        assert_eq!(levels.len(), outputs.len(), "each task of a job gives one output");
        let mut merged = Merged::default();
        for (level, output) in levels.iter().zip(outputs) {
            merged.levels.extend(output.tables.iter().map(|_| *level));
            merged.tables.extend(output.tables);
            merged.stats.add(&output.stats);
            merged.dead.sums.extend(output.dropped_values);
            merged.dead.places.extend(output.dropped_places);
        }
        merged
    }

    pub(crate) fn by_level(&self) -> impl Iterator<Item = (usize, &OutputTable)> {
        self.levels.iter().copied().zip(&self.tables)
    }
}
