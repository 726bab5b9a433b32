//! The background work of the store: flushes, compactions, moves between volumes; and the limits of each.
//!
//! `background.rs` says which threads there are. `separate.rs` and `collect.rs` write the value log. `flush.rs` makes
//! tables of memtables, `picker.rs` and `compact.rs` choose compactions and make their tasks, `job.rs` has them under
//! way. `task_host.rs` is what a running merge asks of the store, `placed.rs` what its places ask.

pub(crate) mod background;
pub(crate) mod collect;
pub(crate) mod compact;
pub(crate) mod debts;
pub(crate) mod flush;
pub(crate) mod job;
pub(crate) mod pacer;
pub(crate) mod picker;
pub(crate) mod placed;
pub(crate) mod postpone;
pub(crate) mod relocate;
pub(crate) mod separate;
pub(crate) mod task_host;
pub(crate) mod throttle;

use crate::Error;
use crate::base::health::Health;
use crate::base::options::Options;
use crate::base::places::Places;
use crate::base::store_id::StoreId;
use crate::pipeline::{Above, Memory, Pipeline};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::Versions;
use crate::work::collect::Collections;
use crate::work::debts::DebtWatch;
use crate::work::job::JobUnderWay;
use crate::work::pacer::Pacer;
use crate::work::throttle::CompactionThrottle;
use situ_base::Env;
use situ_compaction::Compactor;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// See the module's documentation.
pub(crate) struct Work {
    pub(crate) id: StoreId,
    pub(crate) env: Env,
    pub(crate) health: Arc<Health>,
    pub(crate) versions: Arc<Versions>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) options: Options,
    /// Something that was written since the store was opened has become a table.
    pub(crate) has_flushed_own: AtomicBool,
    pub(crate) pacer: Pacer,
    /// The number of threads that compactions may use while writers wait for the log.
    pub(crate) throttle: CompactionThrottle,
    /// Held while jobs are picked, never while they run.
    pub(crate) scheduling: Mutex<()>,
    /// Runs tasks.
    pub(crate) compactor: Arc<dyn Compactor>,
    /// Compactions whose tasks are with the compactor, by number.
    pub(crate) jobs: Mutex<BTreeMap<u64, JobUnderWay>>,
    pub(crate) next_task: AtomicU64,
    /// Segments of the value log that are collected.
    pub(crate) collections: Collections,
    /// State of the payment of debts.
    pub(crate) debt_watch: DebtWatch,
    /// Decides where new tables go.
    pub(crate) places: Arc<dyn Places>,
}

impl Work {
    pub(crate) fn new_task_id(&self) -> u64 {
        self.next_task.fetch_add(1, Ordering::Relaxed)
    }
}

impl Above for Work {
    fn memory_changed(&self) {
        self.update_debt();
    }

    fn why_level0_stays(&self, keyspace: &KeyspaceCore) -> Option<Error> {
        Work::why_level0_stays(self, keyspace)
    }

    fn next_flush_goes_to(&self) -> u32 {
        self.places.next_flush_goes_to(0)
    }

    fn log_was_synced(&self, took: Duration, now: Duration) {
        self.throttle.sample(took, now);
    }
}
