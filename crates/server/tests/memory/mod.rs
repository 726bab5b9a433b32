//! An engine in memory for tests and examples: it can answer writes late, let them wait, and fail on demand.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, mpsc};
use std::time::Duration;

use situ_server::{Admission, Change, Done, Engine, EngineError, Health, Metric, MetricKind, OnTaken, WriteBatch};

const SHARDS: usize = 64;

/// A value shared with the map.
pub(crate) struct Shared(Arc<[u8]>);

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

type Shard = RwLock<HashMap<Vec<u8>, Arc<[u8]>>>;
type Late = (WriteBatch, Done);
type Waiting = (WriteBatch, OnTaken, Done);

/// See the module.
pub(crate) struct MemoryEngine {
    shards: Arc<[Shard]>,
    hasher: RandomState,
    meta: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    late: Option<mpsc::Sender<Late>>,
    /// Writes that wait, while they do.
    held_back: Mutex<Option<Vec<Waiting>>>,
    /// Writes fail while this is set.
    pub(crate) failing: AtomicBool,
    /// Reads fail while this is set.
    pub(crate) failing_reads: AtomicBool,
    /// Batches written so far.
    pub(crate) writes: AtomicU64,
    /// The largest of them.
    pub(crate) batch_bytes_max: AtomicU64,
}

impl MemoryEngine {
    /// Answers writes before `write` returns, or from another thread, each `delay` after the one before.
    pub(crate) fn start(delay: Option<Duration>) -> Arc<MemoryEngine> {
        let mut engine = MemoryEngine {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            meta: Mutex::default(),
            late: None,
            held_back: Mutex::default(),
            failing: AtomicBool::new(false),
            failing_reads: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            batch_bytes_max: AtomicU64::new(0),
        };
        if let Some(delay) = delay {
            let (sender, receiver) = mpsc::channel::<Late>();
            let (shards, hasher) = (Arc::clone(&engine.shards), engine.hasher.clone());
            std::thread::spawn(move || {
                while let Ok((batch, done)) = receiver.recv() {
                    std::thread::sleep(delay);
                    apply(&shards, &hasher, &batch);
                    done(Ok(()));
                }
            });
            engine.late = Some(sender);
        }
        Arc::new(engine)
    }

    /// From now on writes wait until they are let go.
    #[allow(dead_code, reason = "not every test holds writes back")]
    pub(crate) fn hold_back(&self) {
        self.held_back.lock().unwrap().get_or_insert_default();
    }

    /// Writes that wait.
    #[allow(dead_code, reason = "not every test holds writes back")]
    pub(crate) fn waiting(&self) -> usize {
        self.held_back.lock().unwrap().as_ref().map_or(0, Vec::len)
    }

    /// Takes what waits, and what comes from now on, but leaves it to the caller to say so.
    #[allow(dead_code, reason = "not every test holds writes back")]
    pub(crate) fn let_go_in_silence(&self) -> Vec<OnTaken> {
        let held_back = self.held_back.lock().unwrap().take().unwrap_or_default();
        let let_go = held_back.into_iter().map(|(batch, on_taken, done)| {
            self.finish(batch, done);
            on_taken
        });
        let_go.collect()
    }

    /// Takes what waits, and what comes from now on.
    #[allow(dead_code, reason = "not every test holds writes back")]
    pub(crate) fn let_go(&self) {
        for (batch, on_taken, done) in self.held_back.lock().unwrap().take().unwrap_or_default() {
            on_taken();
            self.finish(batch, done);
        }
    }

    fn finish(&self, batch: WriteBatch, done: Done) {
        match &self.late {
            Some(late) => late.send((batch, done)).unwrap(),
            None => {
                apply(&self.shards, &self.hasher, &batch);
                done(Ok(()));
            }
        }
    }
}

fn shard<'a>(shards: &'a [Shard], hasher: &RandomState, key: &[u8]) -> &'a Shard {
    &shards[hasher.hash_one(key) as usize % SHARDS]
}

fn apply(shards: &[Shard], hasher: &RandomState, batch: &WriteBatch) {
    for change in batch.changes() {
        match change {
            Change::Put { key, value } => {
                shard(shards, hasher, key).write().unwrap().insert(key.to_vec(), Arc::from(value));
            }
            Change::Delete { key } => {
                shard(shards, hasher, key).write().unwrap().remove(key);
            }
        }
    }
}

impl Engine for MemoryEngine {
    type Value = Shared;

    fn get(&self, key: &[u8]) -> Result<Option<Shared>, EngineError> {
        if self.failing_reads.load(Ordering::SeqCst) {
            return Err(EngineError::new("the disk cannot be read"));
        }
        Ok(shard(&self.shards, &self.hasher, key).read().unwrap().get(key).map(|value| Shared(Arc::clone(value))))
    }

    fn write(&self, batch: WriteBatch, on_taken: &OnTaken, done: Done) -> Admission {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.batch_bytes_max.fetch_max(batch.byte_len() as u64, Ordering::SeqCst);
        if self.failing.load(Ordering::SeqCst) {
            done(Err(EngineError::new("the disk is full")));
            return Admission::Taken;
        }
        if let Some(held_back) = &mut *self.held_back.lock().unwrap() {
            held_back.push((batch, OnTaken::clone(on_taken), done));
            return Admission::Waiting;
        }
        self.finish(batch, done);
        Admission::Taken
    }

    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.meta.lock().unwrap().get(key).cloned())
    }

    fn put_meta(&self, key: &[u8], value: &[u8], done: Done) {
        if self.failing.load(Ordering::SeqCst) {
            return done(Err(EngineError::new("the disk is full")));
        }
        self.meta.lock().unwrap().insert(key.to_vec(), value.to_vec());
        done(Ok(()));
    }

    fn approximate_items(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().unwrap().len() as u64).sum()
    }

    fn disk_bytes(&self) -> u64 {
        0
    }

    fn write_stalled(&self) -> bool {
        false
    }

    fn health(&self) -> Health {
        match self.failing.load(Ordering::SeqCst) {
            true => Health::Degraded("the disk is full".to_owned()),
            false => Health::Ready,
        }
    }

    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>)) {
        out(Metric {
            name: "memory_engine_batches_total",
            help: "Batches written.",
            kind: MetricKind::Counter,
            labels: &[("kind", "a \"quoted\" one")],
            value: self.writes.load(Ordering::SeqCst) as f64,
        });
    }
}
