//! An open store: its parts, wired together.
//!
//! **Locks, in the order in which they may be taken together.** The lock of the waiting writes (`situ-pipeline`),
//! `commit` (sequence numbers, the queue of requests, and [`Places`]), the registry's (`versions/store.rs`). None is
//! held across anything that blocks. The right to change versions is no lock (`versions/editor.rs`).

use crate::base::health::Health;
use crate::base::options::Options;
use crate::base::places::PlacedStore;
use crate::base::slow::SlowOperations;
use crate::base::store_id::StoreId;
use crate::pipeline::flush_queue::FlushQueue;
use crate::pipeline::log_files::LogFiles;
use crate::pipeline::places::Places;
use crate::pipeline::space;
use crate::pipeline::stall::Stall;
use crate::pipeline::switch::MemtableSwitch;
use crate::pipeline::total::MemtableBudget;
use crate::pipeline::{Above, Commit, Memory, Pipeline};
use crate::read::future::Readers;
use crate::rows::Transactions;
use crate::versions::manifest::Manifest;
use crate::versions::snapshot::Snapshots;
use crate::versions::store::{Registry, Versions};
use crate::versions::version::TableSource;
use crate::work::Work;
use crate::work::placed::Placed;
use situ_base::Env;
use situ_log::Log;
use situ_pipeline::{LOGGERS_MAX, Limits};
use situ_storage::Volume;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::sync::{OnceLock, Weak};

/// An open store.
pub(crate) struct Core {
    pub(crate) id: StoreId,
    pub(crate) health: Arc<Health>,
    pub(crate) env: Env,
    pub(crate) versions: Arc<Versions>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) work: Arc<Work>,
    pub(crate) options: Options,
    pub(crate) readers: Readers,
    pub(crate) transactions: Arc<Transactions>,
}

/// The parts that an opening of a store has put together.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) options: Options,
    pub(crate) source: Arc<TableSource>,
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) registry: Registry,
    pub(crate) next_file: u64,
    pub(crate) last_sequence: u64,
    pub(crate) log_number: u64,
    pub(crate) lossy_repair: Option<u64>,
    pub(crate) had_several_volumes: bool,
    /// True if tables begin under temporary names.
    pub(crate) names_tables_later: bool,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Arc<Core> {
        let Parts { env, volume, options, source, log, manifest, registry, .. } = parts;
        let Parts { next_file, last_sequence, log_number, .. } = parts;
        let Parts { lossy_repair, had_several_volumes, names_tables_later, .. } = parts;
        let changes_kept = options.changes_kept_bytes.unwrap_or(0);
        let event = || env.executor.event();
        let id = StoreId::new();
        let (work, progress, editor_returned) = (event(), event(), event());
        let listener = options.listener.clone();
        let slow = SlowOperations::new(options.slow_operation, &env.clock);
        let health =
            Health::new(listener, slow, Arc::clone(&volume), Arc::clone(&source.damaged), Arc::clone(&progress));
        source.obsolete.ring(Arc::clone(&work));
        source.values.ring(Arc::clone(&work));
        let destinations = Places::new(log_number, registry.by_id.values());
        let meter = Arc::clone(&registry.meter);
        let versions = Arc::new(Versions {
            health: Arc::clone(&health),
            is_writable: log.is_some(),
            volume,
            source,
            registry: Mutex::new(registry),
            next_file: AtomicU64::new(next_file),
            snapshots: Snapshots::new(last_sequence),
            manifest: Mutex::new(manifest),
            editor_returned: Arc::clone(&editor_returned),
            mended: Mutex::default(),
            lossy_repair,
            had_several_volumes,
            changes_kept,
            unnamed: names_tables_later.then(Mutex::default),
            doubtful: Mutex::default(),
        });
        let numbers = Arc::downgrade(&versions);
        versions.source.values.number_by(Arc::new(move || {
            // A writer of values holds a handle to the store.
            numbers.upgrade().map_or(0, |versions| versions.new_number())
        }));
        let placed = Placed::new(&env, &versions, &work, &progress);
        let places = versions.source.volumes.places(Arc::clone(&placed) as Arc<dyn PlacedStore>);
        let space = space::watch(Arc::clone(&env.clock), &versions, log.is_some());
        let queue = FlushQueue::new(&versions, &progress);
        let kept = changes_kept.min(options.log_bytes_max / 2);
        let log_files = LogFiles::new(&versions, &space, &queue, log.clone(), log_number, kept);
        let switch = Arc::new(MemtableSwitch { log_files: Arc::clone(&log_files) });
        let memory = Arc::new(Memory {
            env: env.clone(),
            health: Arc::clone(&health),
            versions: Arc::clone(&versions),
            above: OnceLock::new(),
            log_files,
            budget: MemtableBudget { meter, switch: Arc::clone(&switch) },
            switch,
            queue,
            commit: Mutex::new(Commit::new(last_sequence, destinations)),
            work: Arc::clone(&work),
            progress: Arc::clone(&progress),
            stall: Stall::default(),
            space,
        });
        let limits = Limits {
            loggers: if options.ablation.serial_log { 1 } else { LOGGERS_MAX },
            outstanding: options.requests_outstanding_max,
        };
        let pipeline = Arc::new(Pipeline::new(&env, Arc::clone(&memory), log, Arc::clone(&progress), limits));
        let events = [work, progress, editor_returned];
        health.wakes(vec![Box::new(pipeline.bell()), Box::new(move || events.iter().for_each(|event| event.notify()))]);
        let work = Work::new(id, &options, &memory, &pipeline, places);
        placed.belongs_to(&work);
        let above: Weak<dyn Above> = Arc::downgrade(&(Arc::clone(&work) as Arc<dyn Above>));
        memory.stand_below(above);
        memory.space.look_now();
        let transactions = Arc::new(Transactions::new(id, &env, options.transaction_locks_max));
        let readers = Readers::new(id, &env);
        Arc::new(Core { id, health, versions, memory, pipeline, work, readers, transactions, env, options })
    }
}
