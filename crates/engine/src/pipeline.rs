//! The staged write path: admission, prologue, log, epilogue, publish; and what holds writers back.
//!
//! `admission.rs` says when a write may begin, `commit.rs` how it goes through the stages, `log_files.rs` which file the log goes on in,
//! `stall.rs` how writers are slowed. The pipeline knows the rooms above it only as [`Above`].

pub(crate) mod admission;
pub(crate) mod commit;
pub(crate) mod conditions;
pub(crate) mod future;
pub(crate) mod group_commit;
pub(crate) mod log_area;
pub(crate) mod log_files;
pub(crate) mod loggers;
pub(crate) mod outstanding;
pub(crate) mod stall;
pub(crate) mod troubles;

use crate::Error;
use crate::base::health::Health;
use crate::pipeline::admission::WaitingRoom;
use crate::pipeline::commit::Commit;
use crate::pipeline::group_commit::GroupCommit;
use crate::pipeline::loggers::Loggers;
use crate::pipeline::outstanding::Outstanding;
use crate::pipeline::stall::Stall;
use crate::pipeline::troubles::Troubles;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::Versions;
use situ_device::{Env, Event};
use situ_log::Log;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// What the pipeline asks of the rooms above it, and tells them.
pub(crate) trait Above: Send + Sync {
    /// A memtable was sealed, or the budget of slowed writers is old: the debt is to be measured and set.
    fn memory_changed(&self);

    /// Why level 0 of a keyspace cannot shrink; `None` if it can.
    fn why_level0_stays(&self, keyspace: &KeyspaceCore) -> Option<Error>;

    /// The disk to which the next flush goes.
    fn next_flush_goes_to(&self) -> u32;

    /// A sync of the log has taken `took`, until `now`.
    fn log_was_synced(&self, took: Duration, now: Duration);
}

/// See the module's documentation.
pub(crate) struct Pipeline {
    pub(crate) env: Env,
    pub(crate) health: Arc<Health>,
    pub(crate) versions: Arc<Versions>,
    pub(crate) above: OnceLock<Weak<dyn Above>>,
    /// None if the store is open read-only.
    pub(crate) log: Option<Arc<Log>>,
    /// The log file that this opening began with: what came from those before was replayed.
    pub(crate) first_log: u64,
    pub(crate) commit: Mutex<Commit>,
    /// Notified when the visible sequence number has advanced and somebody waits for it.
    pub(crate) published: Arc<dyn Event>,
    /// Notified when there may be something to flush, to compact or to delete. Also by the last holder of a table, which may hold a
    /// lock.
    pub(crate) work: Arc<dyn Event>,
    /// Notified when memtables have been flushed or compactions installed, and when the waiting room has a new first write.
    pub(crate) progress: Arc<dyn Event>,
    /// Asynchronous writes for the loggers.
    pub(crate) loggers: Arc<Loggers>,
    pub(crate) stall: Stall,
    /// Asynchronous writes that may not begin yet.
    pub(crate) waiting_room: WaitingRoom,
    /// Asynchronous requests under way.
    pub(crate) outstanding: Arc<Outstanding>,
    /// Synced writers that wait for the log.
    pub(crate) group_commit: GroupCommit,
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

impl Pipeline {
    /// Says what is above; once.
    pub(crate) fn stand_below(&self, above: Weak<dyn Above>) {
        let is_first = self.above.set(above).is_ok();
        assert!(is_first, "a pipeline is part of one store");
    }

    /// The rooms above, while the store lives.
    pub(crate) fn above(&self) -> Option<Arc<dyn Above>> {
        self.above.get().and_then(Weak::upgrade)
    }
}
