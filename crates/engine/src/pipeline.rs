//! The LSM engine's side of the staged write path: memtables, log files, and what holds writers back.
//!
//! The crate `situ-pipeline` carries a write through its stages. What it needs of an LSM store is [`Memory`]: the
//! memtables that writes go into, and the log files that hold the same writes.
//!
//! * `environment.rs` implements the crate's trait for it.
//! * `seal.rs` exchanges memtables, `total.rs` keeps all of them together within their limit. `log_files.rs` says which
//!   file the log goes on in, `log_area.rs` how much of a raw disk it may fill.
//! * `space.rs` refuses puts before a disk is full, and writes before a drive that compresses has no physical space
//!   left.
//! * `way.rs` makes way for writes that find no room, `stall.rs` says how much writers are slowed.
//!
//! **Invariants.** A sealed memtable gets no new targets. It is complete when the visible number has reached the last
//! one handed out before the seal.
//!
//! **Threads.** What lies under the commit lock is [`Places`](places::Places). Memory knows the rooms above it only as
//! [`Above`].

pub(crate) mod check;
mod environment;
pub(crate) mod future;
pub(crate) mod log_area;
pub(crate) mod log_files;
pub(crate) mod places;
pub(crate) mod seal;
pub(crate) mod space;
pub(crate) mod stall;
pub(crate) mod total;
pub(crate) mod troubles;
pub(crate) mod way;
pub(crate) mod write;

use crate::base::health::Health;
use crate::base::sync::lock;
use crate::memtable::Meter;
use crate::pipeline::space::SpaceWatch;
use crate::pipeline::stall::Stall;
use crate::pipeline::troubles::Troubles;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::Versions;
use crate::{Error, Result};
use situ_base::{Env, Event};
use situ_log::Log;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
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
    /// The memory of all memtables, and its limit.
    pub(crate) meter: Arc<Meter>,
    /// None if the store is open read-only.
    pub(crate) log: Option<Arc<Log>>,
    /// The log file that this opening began with: what came from those before was replayed.
    pub(crate) first_log: u64,
    pub(crate) commit: Mutex<Commit>,
    /// Notified when there may be something to flush, to compact or to delete. Also by the last holder of a table,
    /// which may hold a lock.
    pub(crate) work: Arc<dyn Event>,
    /// Notified when memtables have been flushed or compactions installed, and when the waiting room has a new first
    /// write.
    pub(crate) progress: Arc<dyn Event>,
    pub(crate) stall: Stall,
    pub(crate) space: Arc<SpaceWatch>,
    /// The number that the next log file has or will have; 0 if none was chosen.
    pub(crate) prepared_log: AtomicU64,
    /// The flusher is to make the next log file ready.
    pub(crate) log_wanted: AtomicBool,
    /// Flushes whose memtables are gone, or about to go, and that have not given back their log files yet.
    pub(crate) flushes_releasing: AtomicUsize,
    /// Writers wait for room in the log's area.
    pub(crate) log_area_stops: AtomicBool,
    /// The failures of background jobs that are being tried again.
    pub(crate) troubles: Mutex<Troubles>,
}

impl Memory {
    /// Says what is above; once.
    pub(crate) fn stand_below(&self, above: Weak<dyn Above>) {
        let is_first = self.above.set(above).is_ok();
        assert!(is_first, "a memory is part of one store");
    }

    /// Returns the error that keeps memtables from being flushed, if there is one.
    pub(crate) fn check_flushes(&self) -> Result<()> {
        let troubles = lock(&self.troubles);
        troubles.flush.error.clone().filter(|_| !troubles.only_log_fails).map_or(Ok(()), Err)
    }

    /// Returns the rooms above, while the store lives.
    pub(crate) fn above(&self) -> Option<Arc<dyn Above>> {
        self.above.get().and_then(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests;
