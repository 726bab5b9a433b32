//! An engine in memory for tests and examples: it can answer writes late, let them wait, read some keys from a slow disk,
//! and fail on demand.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock, mpsc};
use std::time::Duration;

use situ_base::StoreClock;
use situ_server::{
    Admission, Change, Done, Engine, EngineError, Get, Health, Metric, MetricKind, NoCache, OnRead, OnTaken, WriteBatch,
};
use situ_sim::SetClock;

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

/// Ends one read.
type Read = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    reads: VecDeque<Read>,
    held: bool,
    ended: bool,
}

/// A disk that serves one read after another. A read returns what was there when it began.
struct Disk {
    is_cold: fn(&[u8]) -> bool,
    /// How long a read takes. With `None` it ends before the call that began it.
    delay: Option<Duration>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Disk {
    fn submit(&self, read: Read) {
        let mut queue = self.queue.lock().unwrap();
        if self.delay.is_none() && !queue.held {
            drop(queue);
            return read();
        }
        queue.reads.push_back(read);
        self.changed.notify_all();
    }

    /// Serves reads until the engine is gone.
    fn run(&self) {
        loop {
            let queue = self.queue.lock().unwrap();
            let waits = |queue: &mut Queue| !queue.ended && (queue.held || queue.reads.is_empty());
            let mut queue = self.changed.wait_while(queue, waits).unwrap();
            if queue.ended {
                return;
            }
            let read = queue.reads.pop_front();
            drop(queue);
            std::thread::sleep(self.delay.unwrap_or_default());
            read.into_iter().for_each(|read| read());
        }
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        change(&mut self.queue.lock().unwrap());
        self.changed.notify_all();
    }
}

/// See the module.
pub(crate) struct MemoryEngine {
    shards: Arc<[Shard]>,
    hasher: RandomState,
    meta: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    late: Option<mpsc::Sender<Late>>,
    disk: Option<Arc<Disk>>,
    /// Writes that wait, while they do.
    held_back: Mutex<Option<Vec<Waiting>>>,
    /// Writes fail while this is set.
    pub(crate) failing: AtomicBool,
    /// Reads fail while this is set.
    pub(crate) failing_reads: AtomicBool,
    /// The machine's clock, from which the engine's clock takes its time.
    #[allow(dead_code, reason = "not every test sets the clock")]
    pub(crate) time: Arc<SetClock>,
    clock: Arc<StoreClock>,
    /// Batches written so far.
    pub(crate) writes: AtomicU64,
    /// The largest of them.
    pub(crate) batch_bytes_max: AtomicU64,
}

impl MemoryEngine {
    /// Answers writes before `write` returns, or from another thread, each `delay` after the one before.
    pub(crate) fn start(delay: Option<Duration>) -> Arc<MemoryEngine> {
        Arc::new(MemoryEngine::new(delay))
    }

    /// As [`start`](MemoryEngine::start), but keys that are cold are on a disk, at every read of them. A read takes
    /// `read_delay`; with `None` it ends before the call that began it.
    #[allow(dead_code, reason = "not every test has a disk")]
    pub(crate) fn start_on_disk(
        delay: Option<Duration>,
        read_delay: Option<Duration>,
        is_cold: fn(&[u8]) -> bool,
    ) -> Arc<MemoryEngine> {
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let disk = Arc::new(Disk { is_cold, delay: read_delay, queue, changed });
        let mut engine = MemoryEngine::new(delay);
        engine.disk = Some(Arc::clone(&disk));
        std::thread::spawn(move || disk.run());
        Arc::new(engine)
    }

    fn new(delay: Option<Duration>) -> MemoryEngine {
        let time = Arc::new(SetClock::default());
        let mut engine = MemoryEngine {
            clock: Arc::new(StoreClock::resume(Arc::clone(&time) as _, None)),
            time,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            meta: Mutex::default(),
            late: None,
            disk: None,
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
        engine
    }

    /// From now on reads from the disk wait until they are let go.
    #[allow(dead_code, reason = "not every test has a disk")]
    pub(crate) fn hold_reads(&self) {
        self.disk.as_ref().unwrap().change(|queue| queue.held = true);
    }

    /// Reads from the disk that wait.
    #[allow(dead_code, reason = "not every test has a disk")]
    pub(crate) fn reads_waiting(&self) -> usize {
        self.disk.as_ref().unwrap().queue.lock().unwrap().reads.len()
    }

    /// Serves reads from the disk again.
    #[allow(dead_code, reason = "not every test has a disk")]
    pub(crate) fn let_reads_go(&self) {
        self.disk.as_ref().unwrap().change(|queue| queue.held = false);
    }

    /// Drops the reads that wait, without a word to whoever asked.
    #[allow(dead_code, reason = "not every test has a disk")]
    pub(crate) fn forget_reads(&self) {
        let mut forgotten = VecDeque::new();
        self.disk.as_ref().unwrap().change(|queue| forgotten = std::mem::take(&mut queue.reads));
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

    /// The value of `key`, wherever it is.
    pub(crate) fn value(&self, key: &[u8]) -> Option<Shared> {
        shard(&self.shards, &self.hasher, key).read().unwrap().get(key).map(|value| Shared(Arc::clone(value)))
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

impl Drop for MemoryEngine {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.change(|queue| queue.ended = true);
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
    type Cache = NoCache;

    fn get(&self, key: &[u8], later: &mut dyn FnMut() -> Option<OnRead<Shared>>) -> Result<Get<Shared>, EngineError> {
        let found = match self.failing_reads.load(Ordering::SeqCst) {
            true => Err(EngineError::new("the disk cannot be read")),
            false => Ok(self.value(key)),
        };
        match &self.disk {
            Some(disk) if (disk.is_cold)(key) => {
                if let Some(on_read) = later() {
                    disk.submit(Box::new(move || on_read(found)));
                }
                Ok(Get::Later)
            }
            _ => found.map(|found| found.map_or(Get::Miss, Get::Hit)),
        }
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

    fn clock(&self) -> &Arc<StoreClock> {
        &self.clock
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
