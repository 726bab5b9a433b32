//! The LSM engine's side of the staged write path: memtables, log files, and what holds writers back.
//!
//! The crate `situ-pipeline` carries a write through its stages. What it needs of an LSM store is [`Memory`]: the
//! memtables that writes go into, and the log files that hold the same writes.
//!
//! * `environment.rs` implements the crate's trait for it.
//! * [`MemtableSwitch`] exchanges memtables, [`MemtableBudget`] keeps all of them together within their limit.
//!   [`FlushQueue`] is the queue of those that are sealed; `seal.rs` has those sealed that no writer has filled.
//! * [`LogFiles`] says which file the log goes on in, `log_area.rs` how much of a raw disk it may fill, `log_end.rs`
//!   which files are needed.
//! * `space.rs` refuses puts before a disk is full, and writes before a drive that compresses has no physical space
//!   left.
//! * `way.rs` makes way for writes that find no room, `stall.rs` says how much writers are slowed.
//!
//! **Threads.** What lies under the commit lock is [`Places`](places::Places). Memory knows the rooms above it only as
//! [`Above`].

pub(crate) mod check;
mod environment;
pub(crate) mod flush_queue;
pub(crate) mod future;
pub(crate) mod log_area;
mod log_end;
pub(crate) mod log_files;
pub(crate) mod no_room;
pub(crate) mod places;
mod seal;
pub(crate) mod space;
pub(crate) mod stall;
pub(crate) mod switch;
pub(crate) mod total;
pub(crate) mod troubles;
pub(crate) mod way;
pub(crate) mod write;

use crate::base::health::Health;
use crate::base::places::HOME;
use crate::pipeline::flush_queue::FlushQueue;
use crate::pipeline::log_files::LogFiles;
use crate::pipeline::space::SpaceWatch;
use crate::pipeline::stall::{Debt, Stall};
use crate::pipeline::switch::MemtableSwitch;
use crate::pipeline::total::MemtableBudget;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::Versions;
use crate::{Error, Result};
use situ_base::{Env, Event};
use situ_log::Log;
use situ_pipeline::Budget;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// The pipeline of a store.
pub(crate) type Pipeline = situ_pipeline::Pipeline<Memory>;
/// The state that the commit lock of a store protects.
pub(crate) type Commit = situ_pipeline::Commit<Memory>;
/// The reason why a write of a store cannot begin at once.
pub(crate) type Obstacle = situ_pipeline::Obstacle<Memory>;
/// A write on its way through the stages.
pub(crate) type Request = situ_pipeline::Request<Memory>;

/// The interface through which memory asks and notifies the rooms above it.
pub(crate) trait Above: Send + Sync {
    /// Notes that a memtable was sealed, or the budget of slowed writers is old: the debt is to be measured and set.
    fn memory_changed(&self);

    /// Returns the error that keeps level 0 of a keyspace from shrinking; `None` if it can shrink.
    fn why_level0_stays(&self, keyspace: &KeyspaceCore) -> Option<Error>;

    /// Returns the disk to which the next flush goes.
    fn next_flush_goes_to(&self) -> u32;

    /// Notes that a sync of the log has taken `took`, until `now`.
    fn log_was_synced(&self, took: Duration, now: Duration);
}

/// The destinations of writes: memtables, and log files. See the module's documentation.
pub(crate) struct Memory {
    pub(crate) env: Env,
    pub(crate) health: Arc<Health>,
    pub(crate) versions: Arc<Versions>,
    pub(crate) above: OnceLock<Weak<dyn Above>>,
    pub(crate) log_files: Arc<LogFiles>,
    pub(crate) switch: Arc<MemtableSwitch>,
    pub(crate) budget: MemtableBudget,
    pub(crate) queue: Arc<FlushQueue>,
    pub(crate) commit: Mutex<Commit>,
    /// Notified when there may be something to flush, to compact or to delete. Also by the last holder of a table,
    /// which may hold a lock.
    pub(crate) work: Arc<dyn Event>,
    /// Notified when memtables have been flushed or compactions installed, and when the waiting room has a new first
    /// write.
    pub(crate) progress: Arc<dyn Event>,
    pub(crate) stall: Stall,
    pub(crate) space: Arc<SpaceWatch>,
}

impl Memory {
    /// Says what is above; once.
    pub(crate) fn stand_below(&self, above: Weak<dyn Above>) {
        let is_first = self.above.set(above).is_ok();
        assert!(is_first, "a memory is part of one store");
    }

    /// Returns the log, if writes are taken at all.
    #[inline]
    pub(crate) fn writable(&self) -> Result<&Arc<Log>> {
        self.log_files.writable()
    }

    /// Returns the log; `None` if the store is open read-only.
    pub(crate) fn log(&self) -> Option<&Arc<Log>> {
        self.log_files.log.as_ref()
    }

    /// Sets the budget of writers for the present debt.
    pub(crate) fn set_debt(&self, budget: &Budget, debt: &Debt) {
        let next = || self.above().map_or(HOME, |above| above.next_flush_goes_to());
        let slowed = self.stall.set_debt(self.env.clock.now(), &next, budget, debt);
        slowed.into_iter().for_each(|slowed| self.health.tell(|| slowed));
    }

    /// Returns the rooms above, while the store lives.
    pub(crate) fn above(&self) -> Option<Arc<dyn Above>> {
        self.above.get().and_then(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests;
