//! The background work of the store: flushes, compactions, collections, moves between volumes; and the limits of each.
//!
//! [`Work`] owns them. Each is a struct with its own fields, and knows only those below it:
//!
//! | file | purpose |
//! |---|---|
//! | `background.rs` | the threads that do all of it |
//! | `compact.rs` | [`Compactions`]: a job's way from the picker to an installed version; `divide.rs` makes its tasks |
//! | `flush.rs` | [`Flushes`]: tables of memtables |
//! | `collect.rs` | [`Collections`] of the value log |
//! | `relocate.rs` | [`Relocations`]: tables copied to another volume |
//! | `debts.rs` | [`DebtWatch`]: what an idle store pays |
//! | `budgets.rs` | [`Budgets`]: what the debt leaves to writers and compactions; `pacer.rs`, `throttle.rs` |
//! | `schedule.rs` | [`Schedule`]: claimed tables, resting jobs; `picker.rs` chooses among the others |
//! | `task_host.rs` | what a running merge asks of the store; `separate.rs` puts values into the value log |
//! | `placed.rs` | what the places of files ask of the store |

pub(crate) mod background;
pub(crate) mod budgets;
pub(crate) mod collect;
pub(crate) mod compact;
pub(crate) mod debts;
pub(crate) mod divide;
pub(crate) mod flush;
pub(crate) mod job;
pub(crate) mod pacer;
pub(crate) mod picker;
pub(crate) mod placed;
pub(crate) mod relocate;
pub(crate) mod schedule;
pub(crate) mod separate;
pub(crate) mod task_host;
pub(crate) mod throttle;
pub(crate) mod turn;

use crate::base::options::Options;
use crate::base::places::Places;
use crate::base::store_id::StoreId;
use crate::base::sync::lock;
use crate::pipeline::no_room::Level0;
use crate::pipeline::{Above, Memory, Pipeline};
use crate::versions::keyspace::KeyspaceCore;
use crate::work::budgets::Budgets;
use crate::work::collect::Collections;
use crate::work::compact::Compactions;
use crate::work::debts::DebtWatch;
use crate::work::divide::Divider;
use crate::work::flush::Flushes;
use crate::work::pacer::{IdleMark, Pacer};
use crate::work::relocate::Relocations;
use crate::work::schedule::Schedule;
use crate::work::task_host::Hosts;
use crate::work::throttle::CompactionThrottle;
use crate::{Error, Result};
use situ_compaction::CompactorParts;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Closing waits no longer for level 0. What a compaction has done by then is lost; the next opening begins it again.
const LEVEL0_WAIT_MAX: Duration = Duration::from_secs(10);

/// See the module's documentation.
pub(crate) struct Work {
    pub(crate) id: StoreId,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pipeline: Arc<Pipeline>,
    /// Decides where new tables go.
    pub(crate) places: Arc<dyn Places>,
    pub(crate) compaction_threads: usize,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) flushes: Flushes,
    pub(crate) compactions: Compactions,
    pub(crate) collections: Collections,
    pub(crate) relocations: Relocations,
    pub(crate) debts: Arc<DebtWatch>,
    pub(crate) budgets: Budgets,
}

impl Work {
    pub(crate) fn new(
        id: StoreId,
        options: &Options,
        memory: &Arc<Memory>,
        pipeline: &Arc<Pipeline>,
        places: Arc<dyn Places>,
    ) -> Arc<Work> {
        let Memory { env, health, versions, .. } = &**memory;
        let (clock, threads, log_bytes_max) = (&env.clock, options.compaction_threads, options.log_bytes_max);
        let idle = IdleMark::new(&versions.snapshots);
        let pacer = Pacer::new(clock, health, &idle, options.compaction_bytes_per_s_max);
        let throttle = Arc::new(CompactionThrottle::default());
        let schedule = Schedule::new(clock, versions, threads);
        let debts = DebtWatch::new(memory, &schedule, &idle, log_bytes_max);
        let hosts = Arc::new(Hosts {
            versions: Arc::clone(versions),
            log: memory.log().cloned(),
            places: Arc::clone(&places),
            space: Arc::clone(&memory.space),
            pacer: Arc::clone(&pacer),
        });
        let compactor =
            options.compactor.make(CompactorParts { env: env.clone(), event: Arc::clone(&memory.work), threads });
        health.stats.read_tails.watch(compactor.pipelines());
        let divider = Divider {
            clock: Arc::clone(clock),
            snapshots: Arc::clone(&versions.snapshots),
            compactor,
            throttle: Arc::clone(&throttle),
            threads_max: threads,
            next_number: AtomicU64::new(1),
        };
        Arc::new(Work {
            id,
            compaction_threads: threads,
            flushes: Flushes::new(&hosts, memory, pipeline),
            compactions: Compactions::new(&hosts, memory, &schedule, &debts, divider),
            collections: Collections::new(memory, pipeline, &pacer),
            relocations: Relocations::new(memory, &schedule, &pacer),
            budgets: Budgets {
                memory: Arc::clone(memory),
                pipeline: Arc::clone(pipeline),
                log_bytes_max,
                pacer,
                throttle,
            },
            memory: Arc::clone(memory),
            pipeline: Arc::clone(pipeline),
            places,
            schedule,
            debts,
        })
    }

    /// Returns the failure of background work that has not succeeded since.
    pub(crate) fn trouble(&self) -> Option<Error> {
        let failing = {
            let troubles = lock(&self.memory.queue.troubles);
            let compaction = || troubles.compaction.error.clone();
            troubles.flush.error.clone().or_else(compaction).or_else(|| troubles.collection.error.clone())
        };
        failing.or_else(|| self.schedule.postponed_error())
    }

    /// Returns true if a manual compaction holds others back.
    pub(crate) fn compactions_are_paused(&self) -> bool {
        let keyspaces = self.memory.versions.keyspaces();
        keyspaces.iter().any(|keyspace| keyspace.compactions_paused.load(Ordering::Acquire) > 0)
    }

    /// Compacts all of a key range to the deepest level.
    pub(crate) fn compact_range(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        let _guest = self.memory.health.enter()?;
        // Level 0 is about to be emptied: that it is full must not keep it from being.
        self.flushes.flush(keyspace, Level0::Ignored)?;
        self.compactions.compact_range(keyspace, begin, end)?;
        // The caller of a compaction wants room back.
        self.memory.versions.delete_obsolete();
        self.memory.trim_log()
    }

    /// Waits until there is nothing to flush, compact, trim or collect, and no debt is due (`debts.rs`). Replaced files
    /// are deleted by then, unless a reader holds them.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let Memory { progress, work, versions, .. } = &*self.memory;
        loop {
            let seen = progress.generation();
            self.memory.writable()?;
            if !self.has_work() {
                versions.delete_obsolete();
            }
            if !self.has_work() && !versions.source.is_deleting() {
                return self.schedule.postponed_error().map_or(Ok(()), Err);
            }
            if let Some(error) = self.trouble() {
                return Err(error);
            }
            work.notify();
            progress.wait(seen, Some(Duration::from_millis(100)));
        }
    }

    /// Returns true if the background has something to do, or is at it.
    fn has_work(&self) -> bool {
        self.collections.has_work() || self.schedule.has_flushes_or_compactions() || self.debts.owes_now()
    }

    /// Waits for a compaction of level 0 that is due because opening has made a table of what the log held. It waits at
    /// most for one in each keyspace, and at most for [`LEVEL0_WAIT_MAX`]. To be called before closing.
    ///
    /// The store takes writes meanwhile. Once a memtable of them has been flushed, the wait ends. A store that flushes
    /// is open for long enough to compact level 0 while it is open.
    pub(crate) fn wait_for_level0(&self) {
        let Memory { env, progress, work, .. } = &*self.memory;
        let until = env.clock.now() + LEVEL0_WAIT_MAX;
        loop {
            let seen = progress.generation();
            let left = until.saturating_sub(env.clock.now());
            let is_over = left.is_zero() || self.flushes.has_flushed_own();
            let is_stopped = is_over || self.memory.writable().is_err() || self.trouble().is_some();
            if is_stopped || !self.schedule.owes_level0() {
                return;
            }
            work.notify();
            progress.wait(seen, Some(left.min(Duration::from_millis(100))));
        }
    }
}

impl Above for Work {
    fn memory_changed(&self) {
        self.budgets.update();
    }

    fn why_level0_stays(&self, keyspace: &KeyspaceCore) -> Option<Error> {
        let trouble = lock(&self.memory.queue.troubles).compaction.clone();
        self.schedule.why_level0_stays(keyspace, trouble)
    }

    fn next_flush_goes_to(&self) -> u32 {
        self.places.next_flush_goes_to(0)
    }

    fn log_was_synced(&self, took: Duration, now: Duration) {
        self.budgets.throttle.sample(took, now);
    }
}
