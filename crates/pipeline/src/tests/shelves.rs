//! An environment without a store: shelves of bins in memory.
//!
//! 1. A batch puts numbered things on shelves. Each shelf has one open bin, and a few closed ones that wait to be
//!    carried away.
//! 2. When the open bin is full, the prologue closes it, and the log goes on in another file.
//! 3. The carrier takes closed bins away, oldest first, once all that was meant for them is inside.
//!
//! **Invariants**, which each call asserts: what is published follows what was published before, and has been applied.
//! Nothing goes into a bin behind its last sequence number. A bin that is carried away is complete. Each thing is
//! applied once.

use crate::{
    Batch, Commit, Environment, EnvironmentTypes, LOGGERS_MAX, Limits, NoLogFile, Note, Obstacle, Pipeline, Refusal,
    Request,
};
use situ_base::{Env, Event, JobHandle, lock};
use situ_device::PAGE_BYTES;
use situ_log::{AppendError, Log, LogOptions};
use situ_storage::{Error as StorageError, Volume};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How many shelves there are.
pub(crate) const SHELVES: u8 = 3;
/// A bin with so many things is full.
const BIN_THINGS: usize = 12;
/// Closed bins of a shelf that may wait.
const CLOSED_MAX: usize = 2;
/// Applying this panics.
pub(crate) const POISON: u64 = u64::MAX;

/// Things for shelves.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Things(pub(crate) Vec<(u8, u64)>);

impl Things {
    pub(crate) fn one(thing: u64) -> Things {
        Things(vec![(0, thing)])
    }

    /// Reads a record back: the first sequence number, and the things.
    pub(crate) fn decode(record: &[u8]) -> (u64, Things) {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let things = record[8..].chunks_exact(9).map(|thing| (thing[0], number(&thing[1..]))).collect();
        (number(&record[..8]), Things(things))
    }
}

impl Batch for Things {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> usize {
        self.0.len() * 9
    }

    fn held_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u8, u64)>()
    }

    fn record<T>(&self, first: u64, takes: impl FnOnce(&[&[u8]]) -> T) -> T {
        let mut bytes = Vec::new();
        self.0.iter().for_each(|(shelf, thing)| {
            bytes.push(*shelf);
            bytes.extend(thing.to_le_bytes());
        });
        takes(&[&first.to_le_bytes(), &bytes])
    }
}

/// Why a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    ReadOnly,
    Closed,
    TooManyWaiting,
    Failed(String),
    /// Another write has put something of the same name.
    Taken(u64),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        match refusal {
            Refusal::ReadOnly => Stop::ReadOnly,
            Refusal::Closed => Stop::Closed,
            Refusal::TooManyWaiting { .. } => Stop::TooManyWaiting,
            Refusal::LogFailed(error) => Stop::Failed(error.to_string()),
            Refusal::NoRecord(text) => Stop::Failed(text),
            Refusal::OutOfMemory { bytes } => Stop::Failed(format!("no memory for {bytes} bytes")),
        }
    }
}

/// Why there is no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The closed bins of this shelf wait for the carrier.
    Bins(u8),
    LogFile(NoLogFile),
}

impl From<NoLogFile> for NoRoom {
    fn from(no_file: NoLogFile) -> NoRoom {
        NoRoom::LogFile(no_file)
    }
}

/// What takes the things of a shelf.
#[derive(Default)]
pub(crate) struct Bin {
    /// By sequence number.
    things: Mutex<BTreeMap<u64, u64>>,
    /// How many things are meant for it; under the commit lock.
    meant: AtomicUsize,
    /// The last sequence number that was given out when it was closed; 0 while it is open.
    last: AtomicU64,
}

#[derive(Default)]
struct Shelf {
    open: Arc<Bin>,
    /// Oldest first.
    closed: Vec<Arc<Bin>>,
}

/// What the environment keeps under the commit lock.
#[derive(Default)]
pub(crate) struct Places {
    shelves: [Shelf; SHELVES as usize],
}

/// See the module's documentation.
pub(crate) struct Shelves {
    pub(crate) env: Env,
    pub(crate) log: Arc<Log>,
    commit: Mutex<Commit<Shelves>>,
    progress: Arc<dyn Event>,
    /// The carrier sleeps on it.
    work: Arc<dyn Event>,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    closing: AtomicBool,
    failure: OnceLock<StorageError>,
    visible: AtomicU64,
    /// The number of the next log file.
    next_log: AtomicU64,
    /// What was carried away, by sequence number.
    carried: Mutex<BTreeMap<u64, u64>>,
    /// What the pipeline has asked for, one word a call; only if it is looked at.
    trace: Option<Mutex<Vec<String>>>,
    /// The carrier does nothing.
    pub(crate) is_idle: AtomicBool,
    pub(crate) held_back: Mutex<Duration>,
    pub(crate) budgets_asked: AtomicUsize,
    pub(crate) wakers_panicked: AtomicUsize,
    pub(crate) syncs: AtomicUsize,
}

impl Shelves {
    fn trace(&self, word: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            lock(trace).push(word());
        }
    }

    /// What the pipeline has asked for since the last call.
    pub(crate) fn take_trace(&self) -> String {
        self.trace.as_ref().map(|trace| std::mem::take(&mut *lock(trace)).join(" ")).unwrap_or_default()
    }

    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// The thing with this sequence number, if it was applied. Only what is visible may be relied on.
    pub(crate) fn find(&self, sequence: u64) -> Option<u64> {
        let bins: Vec<Arc<Bin>> = {
            let commit = lock(&self.commit);
            let shelves = commit.places.shelves.iter();
            shelves.flat_map(|shelf| shelf.closed.iter().chain([&shelf.open]).cloned()).collect()
        };
        let in_bins = bins.iter().find_map(|found| lock(&found.things).get(&sequence).copied());
        // Asked last: the carrier may have come in between.
        in_bins.or_else(|| lock(&self.carried).get(&sequence).copied())
    }

    /// All that is visible, in the order of sequence numbers.
    ///
    /// # Panics
    /// There is a hole.
    pub(crate) fn all_visible(&self) -> Vec<u64> {
        let found = |sequence| self.find(sequence).unwrap_or_else(|| panic!("{sequence} is visible, and nowhere"));
        (1..=self.visible()).map(found).collect()
    }

    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake_all();
    }

    /// The carrier works again.
    pub(crate) fn carry_on(&self) {
        self.is_idle.store(false, Ordering::Release);
        self.work.notify();
    }

    fn wake_all(&self) {
        self.bell.get().iter().for_each(|bell| bell());
        self.progress.notify();
        self.work.notify();
    }

    fn rotate(&self) -> Result<(), Obstacle<Shelves>> {
        match self.log.rotate() {
            Ok(number) => {
                self.next_log.fetch_max(number + 1, Ordering::AcqRel);
                Ok(())
            }
            Err(AppendError::Failed(error)) => Err(Obstacle::refused(Refusal::LogFailed(error))),
            Err(_) => Err(Obstacle::NoRoom(NoLogFile { bytes: 0, file: self.log.file() }.into())),
        }
    }

    /// Another log file than `file`, with room for `bytes`.
    fn make_log_file(&self, NoLogFile { bytes, file }: NoLogFile) -> Result<bool, Stop> {
        loop {
            if self.log.file() != file {
                return Ok(true);
            }
            let number = self.next_log.load(Ordering::Acquire);
            let made = self.log.prepare_next(number, bytes);
            match made {
                Ok(true) => return Ok(true),
                // It was given up, or another thread has rotated to it: under another number, then.
                Ok(false) => _ = self.next_log.fetch_max(number + 1, Ordering::AcqRel),
                Err(_) if self.log.file() >= number => {}
                Err(error) => return Err(Stop::Failed(error.to_string())),
            }
        }
    }

    /// Closes the open bin of a shelf, also if it is not full.
    pub(crate) fn close_bin(&self, shelf: u8) -> bool {
        let closed = {
            let mut commit = lock(&self.commit);
            self.close_locked(&mut commit, shelf).is_ok()
        };
        self.work.notify();
        closed
    }

    fn close_locked(&self, commit: &mut Commit<Shelves>, shelf: u8) -> Result<(), Obstacle<Shelves>> {
        if commit.places.shelves[usize::from(shelf)].closed.len() >= CLOSED_MAX {
            return Err(Obstacle::NoRoom(NoRoom::Bins(shelf)));
        }
        self.rotate()?;
        let last = commit.last_sequence();
        let Shelf { open, closed } = &mut commit.places.shelves[usize::from(shelf)];
        let full = std::mem::take(open);
        full.last.store(last, Ordering::Release);
        closed.push(full);
        commit.leave_work();
        Ok(())
    }

    /// Takes the oldest closed bin of a shelf away. False if there is none; `None` if the store has failed.
    fn carry_one(&self, pipeline: &Pipeline<Shelves>, shelf: usize) -> Option<bool> {
        let Some(full) = lock(&self.commit).places.shelves[shelf].closed.first().cloned() else { return Some(false) };
        let last = full.last.load(Ordering::Acquire);
        pipeline.wait_published(|| self.visible() >= last).ok()?;
        let things = lock(&full.things).clone();
        assert_eq!(things.len(), full.meant.load(Ordering::Relaxed), "a bin is carried away that is not complete");
        lock(&self.carried).extend(things);
        lock(&self.commit).places.shelves[shelf].closed.remove(0);
        self.progress.notify();
        Some(true)
    }

    /// The carrier's thread.
    fn carry(&self, pipeline: &Pipeline<Shelves>) {
        loop {
            let seen = self.work.generation();
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            let is_idle = self.is_idle.load(Ordering::Acquire);
            let carried = (0..usize::from(SHELVES)).filter(|shelf| {
                !is_idle && self.failure.get().is_none() && self.carry_one(pipeline, *shelf).unwrap_or(false)
            });
            if carried.count() == 0 {
                self.work.wait(seen, None);
            }
        }
    }
}

impl EnvironmentTypes for Shelves {
    type Batch = Things;
    type Targets = Vec<(u8, Arc<Bin>)>;
    type Places = Places;
    type NoRoom = NoRoom;
    type Error = Stop;
}

impl Environment for Shelves {
    fn commit(&self) -> &Mutex<Commit<Shelves>> {
        &self.commit
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn failure(&self) -> Option<Stop> {
        self.failure.get().map(|cause| Stop::Failed(cause.to_string()))
    }

    fn fail(&self, cause: StorageError) {
        let _ = self.failure.set(cause);
        self.wake_all();
    }

    fn find_room(&self, commit: &mut Commit<Shelves>, batch: &Things) -> Result<(), Obstacle<Shelves>> {
        self.trace(|| "find_room".to_owned());
        for (shelf, _) in &batch.0 {
            if commit.places.shelves[usize::from(*shelf)].open.meant.load(Ordering::Relaxed) >= BIN_THINGS {
                self.close_locked(commit, *shelf)?;
            }
        }
        Ok(())
    }

    fn next_log_file(&self, _: &mut Commit<Shelves>, _: &Things) -> Result<(), Obstacle<Shelves>> {
        self.trace(|| "next_log_file".to_owned());
        self.rotate()
    }

    fn place(&self, commit: &mut Commit<Shelves>, batch: &Things) -> Vec<(u8, Arc<Bin>)> {
        self.trace(|| format!("place({})", commit.next_sequence()));
        let mut targets: Vec<(u8, Arc<Bin>)> = Vec::new();
        for (shelf, _) in &batch.0 {
            let open = &commit.places.shelves[usize::from(*shelf)].open;
            open.meant.fetch_add(1, Ordering::Relaxed);
            if targets.iter().all(|(other, _)| other != shelf) {
                targets.push((*shelf, Arc::clone(open)));
            }
        }
        targets
    }

    fn apply(&self, batch: &Things, targets: &Vec<(u8, Arc<Bin>)>, first: u64) {
        self.trace(|| format!("apply({first})"));
        for (sequence, (shelf, thing)) in (first..).zip(&batch.0) {
            assert!(*thing != POISON, "tasted poison");
            // Others may come in between any two things.
            self.env.executor.yield_point();
            let (_, target) = targets.iter().find(|(other, _)| other == shelf).expect("a target for each shelf");
            let last = target.last.load(Ordering::Acquire);
            assert!(last == 0 || sequence <= last, "{sequence} goes into a bin that was closed at {last}");
            let before = lock(&target.things).insert(sequence, *thing);
            assert_eq!(before, None, "{sequence} was applied twice");
        }
    }

    fn publish(&self, request: &Request<Shelves>) {
        self.trace(|| format!("publish({})", request.first()));
        let (first, last) = (request.first(), request.last());
        let before = self.visible.swap(last, Ordering::AcqRel);
        assert_eq!(first, before + 1, "published out of order");
        assert_eq!(last - first + 1, request.batch().count() as u64);
    }

    fn make_way(&self, no_room: NoRoom) -> Result<bool, Stop> {
        self.trace(|| match &no_room {
            NoRoom::Bins(shelf) => format!("make_way(bins of {shelf})"),
            NoRoom::LogFile(_) => "make_way(log file)".to_owned(),
        });
        match no_room {
            NoRoom::LogFile(no_file) => self.make_log_file(no_file),
            NoRoom::Bins(_) => {
                self.work.notify();
                Ok(false)
            }
        }
    }

    fn tell_background(&self) {
        self.trace(|| "tell_background".to_owned());
        self.work.notify();
    }

    fn note(&self, note: Note) {
        match note {
            Note::HeldBack(duration) => *lock(&self.held_back) += duration,
            Note::Synced { .. } => _ = self.syncs.fetch_add(1, Ordering::Relaxed),
            Note::BudgetIsOld => _ = self.budgets_asked.fetch_add(1, Ordering::Relaxed),
            Note::WakerPanicked => _ = self.wakers_panicked.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// How a pipeline over shelves is made.
pub(crate) struct Plan {
    pub(crate) log_pages: usize,
    pub(crate) buffer_bytes_max: usize,
    pub(crate) outstanding: usize,
    pub(crate) traces: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { log_pages: 8, buffer_bytes_max: 1 << 20, outstanding: 1 << 20, traces: false }
    }
}

/// A pipeline over shelves, and the threads that serve it.
pub(crate) struct World {
    pub(crate) env: Env,
    pub(crate) pipeline: Arc<Pipeline<Shelves>>,
    pub(crate) shelves: Arc<Shelves>,
    threads: Vec<Box<dyn JobHandle>>,
}

impl World {
    /// Without threads.
    ///
    /// # Errors
    /// The volume refuses.
    pub(crate) fn new(env: &Env, volume: Arc<dyn Volume>, plan: &Plan) -> Result<World, StorageError> {
        let options = LogOptions {
            file_bytes: (plan.log_pages * PAGE_BYTES) as u64,
            first_file_bytes: (plan.log_pages * PAGE_BYTES) as u64,
            buffer_bytes_max: plan.buffer_bytes_max,
            in_flight_max: 3,
            ..LogOptions::default()
        };
        let log = Log::create(volume, env.clone(), options, 1)?;
        let progress = env.executor.event();
        let shelves = Arc::new(Shelves {
            env: env.clone(),
            log: Arc::clone(&log),
            commit: Mutex::new(Commit::new(0, Places::default())),
            progress: Arc::clone(&progress),
            work: env.executor.event(),
            bell: OnceLock::new(),
            closing: AtomicBool::new(false),
            failure: OnceLock::new(),
            visible: AtomicU64::new(0),
            next_log: AtomicU64::new(2),
            carried: Mutex::default(),
            trace: plan.traces.then(Mutex::default),
            is_idle: AtomicBool::new(false),
            held_back: Mutex::default(),
            budgets_asked: AtomicUsize::new(0),
            wakers_panicked: AtomicUsize::new(0),
            syncs: AtomicUsize::new(0),
        });
        let limits = Limits { loggers: LOGGERS_MAX, outstanding: plan.outstanding };
        let pipeline = Arc::new(Pipeline::new(env, Arc::clone(&shelves), Some(log), progress, limits));
        assert!(shelves.bell.set(Box::new(pipeline.bell())).is_ok());
        Ok(World { env: env.clone(), pipeline, shelves, threads: Vec::new() })
    }

    /// With loggers, the admission thread and the carrier.
    pub(crate) fn with_threads(env: &Env, volume: Arc<dyn Volume>, plan: &Plan) -> Result<World, StorageError> {
        let mut world = World::new(env, volume, plan)?;
        world.start_threads();
        Ok(world)
    }

    pub(crate) fn start_threads(&mut self) {
        for number in 0..LOGGERS_MAX {
            self.spawn("log", move |pipeline| pipeline.carry_writes(number));
        }
        self.spawn("admit", |pipeline| pipeline.admit_writes());
        let shelves = Arc::clone(&self.shelves);
        self.spawn("carry", move |pipeline| shelves.carry(pipeline));
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce(&Pipeline<Shelves>) + Send + 'static) {
        let pipeline = Arc::clone(&self.pipeline);
        self.threads.push(self.env.executor.spawn(name, Box::new(move || body(&pipeline))).unwrap());
    }

    /// Ends the threads; the log stays open.
    pub(crate) fn close(&mut self) {
        self.shelves.begin_closing();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}
