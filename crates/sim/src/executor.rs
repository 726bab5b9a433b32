//! The seeded scheduler: many operating-system threads, one of which runs.
//!
//! # Algorithm
//!
//! 1. Every simulated thread is a real one, but only the thread that holds the *baton* (`State::running`) executes;
//!    the others sleep, each on its own condition variable.
//! 2. At a *yield point* (each volume operation, each wait and notification of an event, spawn, join, sleep) the
//!    holder says what it needs to go on: nothing, an event, a time, the end of a thread. The generator, seeded
//!    once, picks one of those who need nothing, and the baton goes there.
//! 3. When nobody can go on, simulated time advances to the nearest timeout. When there is none, that is a deadlock:
//!    [`SimExecutor::run`] panics with a list of who waits for what. While others work, time leaps to the nearest
//!    timeout every 10,000 steps, so that periodic threads get their turn and a loop that polls the clock ends.
//! 4. [`SimExecutor::kill`] is process death: every other thread unwinds from the yield point where it stands. Volume
//!    operations that its destructors try fail without effect, because a dead process runs no destructors.
//!
//! **Invariants.** At most one thread of a world is between two yield points. The choice depends on the seed and on
//! what the threads did before, never on real time: same seed, same run, which [`Trace::hash`](crate::Trace::hash)
//! shows. No thread outlives the `run` it was started in.
//!
//! **Threads.** Code between two yield points is atomic in the simulation, so plain atomics and short mutexes need no
//! simulated twin. A mutex held across a yield point may be wanted by the next thread, which then blocks with the
//! baton in its hand. Nothing can be proved about such a thread but that it is late: after 20 s of real time without
//! a yield point the process is aborted with a list of the threads.
//!
//! **Failure.** A panic in a spawned thread is told by its `join`, or, if nobody joins it, by `run`.
//!
//! Rejected: coroutines instead of threads (every blocking call of the engine would have to be `async`), and
//! intercepting every atomic as loom does (the state space of a whole store is too large; loom checks single structures).

use crate::{Rng, SimClock, Trace};
use situ_device::{Env, Event, Executor, JobHandle};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a step from one yield point to the next costs in simulated time, so that polling loops see time pass.
const STEP: Duration = Duration::from_nanos(100);
/// After so many steps without one, time leaps to the nearest timeout.
const LEAP_STEPS: u64 = 10_000;
/// Real time without a yield point after which a lock must be in the way.
const WATCHDOG: Duration = Duration::from_secs(20);
/// A killed thread whose destructors wait this often would do so for ever.
const DYING_WAITS_MAX: u32 = 10_000;

/// A simulated machine's threads and time. Clones are the same machine.
///
/// ```
/// let sim = situ_sim::SimExecutor::new(42);
/// let env = sim.env();
/// let slept = sim.run(|| {
///     env.clock.sleep(std::time::Duration::from_secs(3600));
///     env.clock.now()
/// });
/// assert!(slept.as_secs() >= 3600);
/// ```
#[derive(Clone)]
pub struct SimExecutor {
    pub(crate) world: Arc<World>,
}

impl SimExecutor {
    /// A machine on which nothing runs yet. All its choices follow from `seed`.
    pub fn new(seed: u64) -> SimExecutor {
        let mut rng = Rng::new(seed);
        // Some seeds switch at nearly every chance, some rarely: different bugs need different rhythms.
        let stay = [0.0, 0.5, 0.9][rng.index(3)];
        let state = State {
            rng,
            stay,
            now: Duration::ZERO,
            unix_offset: UNIX_START,
            threads: BTreeMap::new(),
            running: None,
            active: false,
            next_thread: 0,
            next_event: 0,
            steps: 0,
            last_leap: 0,
            failure: None,
            panicked: Vec::new(),
            handles: Vec::new(),
            watchdog: WATCHDOG,
            switch_at_notify: true,
        };
        let world = World { seed, state: Mutex::new(state), finished: Condvar::new(), trace: Trace::default() };
        SimExecutor { world: Arc::new(world) }
    }

    /// The seed, to be printed wherever a test fails.
    pub fn seed(&self) -> u64 {
        self.world.seed
    }

    /// Clock and executor of this machine, to open a store with.
    pub fn env(&self) -> Env {
        Env { clock: Arc::new(self.clock()), executor: Arc::new(self.clone()) }
    }

    /// This machine's time.
    pub fn clock(&self) -> SimClock {
        SimClock { world: Arc::clone(&self.world) }
    }

    /// The operations of all simulated volumes that this machine's threads used; its hash also covers each choice of
    /// the scheduler.
    pub fn trace(&self) -> Trace {
        self.world.trace.clone()
    }

    /// How often a thread has passed a yield point.
    pub fn steps(&self) -> u64 {
        self.world.lock().steps
    }

    /// After how much real time without a yield point the process is aborted (default 20 s).
    pub fn set_watchdog(&self, limit: Duration) {
        self.world.lock().watchdog = limit;
    }

    /// Whether [`Event::notify`] is a yield point (default: yes). Switch it off for code that notifies while it holds
    /// a lock: legal, but then the woken thread cannot be tried before the notifier has gone on.
    pub fn set_switch_at_notify(&self, switch: bool) {
        self.world.lock().switch_at_notify = switch;
    }

    /// Runs `main` as a simulated thread, with all threads that it spawns, and returns when all have ended. Threads
    /// that are left when `main` returns are killed. Can be called again: time and chance go on.
    ///
    /// # Panics
    /// With the seed and the last operations: when `main` panicked, when a thread that nobody joined panicked, or at a
    /// deadlock. When another `run` of this machine is in progress.
    pub fn run<T: Send>(&self, main: impl FnOnce() -> T + Send) -> T {
        let world = &self.world;
        let id = {
            let mut state = world.lock();
            assert!(!state.active, "a simulated machine runs one main thread at a time");
            state.active = true;
            let (id, _) = state.add_thread("main");
            state.thread_mut(id).status = Status::Running;
            state.running = Some(id);
            id
        };
        let outcome = std::thread::scope(|scope| {
            let main = move || {
                enter(world, id);
                let outcome = catch_unwind(AssertUnwindSafe(main));
                world.kill_others(id);
                world.end(id);
                outcome
            };
            let handle = std::thread::Builder::new()
                .name("main (simulated)".to_owned())
                .spawn_scoped(scope, main)
                .expect("the operating system starts one thread");
            world.watch();
            handle.join()
        });
        let (failure, panicked, handles) = {
            let mut state = world.lock();
            state.active = false;
            (state.failure.take(), std::mem::take(&mut state.panicked), std::mem::take(&mut state.handles))
        };
        for handle in handles {
            // Every thread catches its job's panic; there is nothing left to be told here.
            let _ = handle.join();
        }
        let unseen = panicked.iter().find_map(|job| job.unobserved_panic());
        let message = match (failure, outcome) {
            // Often somebody waits for ever because the thread to wake it has panicked.
            (Some(failure), _) => unseen.map_or(failure.clone(), |unseen| format!("{unseen}\n{failure}")),
            (None, Err(payload) | Ok(Err(payload))) => format!("main panicked: {}", panic_message(&*payload)),
            (None, Ok(Ok(value))) => match unseen {
                None => return value,
                Some(unseen) => unseen,
            },
        };
        panic!("{message}\nsimulation with seed {}; {}", world.seed, world.trace);
    }

    /// Process death for all simulated threads but the calling one: they end at the yield point where they stand.
    /// Returns when all have ended. What they had in memory is lost; volumes keep what was handed to them.
    ///
    /// # Panics
    /// When the caller is not a simulated thread of this machine.
    pub fn kill(&self) {
        let me = self.world.me().expect("kill() is called by a simulated thread, inside run()");
        self.world.kill_others(me);
        self.world.leave_if_doomed(me);
    }
}

impl fmt::Debug for SimExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimExecutor(seed {})", self.world.seed)
    }
}

impl Executor for SimExecutor {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
        let Some(me) = self.world.me() else {
            return Err(io::Error::other(format!("cannot start {name}: simulated threads start inside run()")));
        };
        let mut state = self.world.lock();
        if state.thread(me).doomed {
            return Err(io::Error::other(format!("cannot start {name}: the simulated process was killed")));
        }
        // A detached thread's stack is freed when its handle goes.
        state.handles.retain(|handle| !handle.is_finished());
        let (id, outcome) = state.add_thread(name);
        let world = Arc::clone(&self.world);
        let body = move || {
            enter(&world, id);
            world.await_baton(id);
            let result = catch_unwind(AssertUnwindSafe(|| {
                world.leave_if_doomed(id);
                job();
            }));
            world.finish(id, result);
        };
        match std::thread::Builder::new().name(name.to_owned()).spawn(body) {
            Ok(handle) => state.handles.push(handle),
            Err(error) => {
                state.threads.remove(&id);
                return Err(error);
            }
        }
        drop(state);
        self.yield_point();
        Ok(Box::new(SimJob { world: Arc::clone(&self.world), id, outcome }))
    }

    fn event(&self) -> Arc<dyn Event> {
        let mut state = self.world.lock();
        state.next_event += 1;
        Arc::new(SimEvent { world: Arc::clone(&self.world), id: state.next_event, generation: AtomicU64::new(0) })
    }

    fn yield_point(&self) {
        if let Some(me) = self.world.me() {
            self.world.pause(me, Status::Ready);
        }
    }
}

/// 2026-01-01 in nanoseconds since 1970: simulated machines are born then.
const UNIX_START: i128 = 1_767_225_600_000_000_000;

/// What all threads of one machine share.
pub(crate) struct World {
    seed: u64,
    state: Mutex<State>,
    /// Told when the last thread ends.
    finished: Condvar,
    pub(crate) trace: Trace,
}

pub(crate) struct State {
    rng: Rng,
    stay: f64,
    pub(crate) now: Duration,
    /// What to add to `now` to get wall-clock nanoseconds.
    pub(crate) unix_offset: i128,
    threads: BTreeMap<u64, Thread>,
    running: Option<u64>,
    active: bool,
    next_thread: u64,
    next_event: u64,
    steps: u64,
    /// The step at which time last leapt.
    last_leap: u64,
    failure: Option<String>,
    panicked: Vec<Arc<JobOutcome>>,
    handles: Vec<std::thread::JoinHandle<()>>,
    watchdog: Duration,
    switch_at_notify: bool,
}

struct Thread {
    name: Arc<str>,
    status: Status,
    wake: Arc<Condvar>,
    doomed: bool,
    dying_waits: u32,
    outcome: Arc<JobOutcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Needs nothing but the baton.
    Ready,
    /// Has it.
    Running,
    Waiting {
        event: u64,
        until: Option<Duration>,
    },
    Sleeping {
        until: Duration,
    },
    Joining {
        thread: u64,
    },
    /// In `kill`, until the doomed threads have ended.
    Draining,
}

impl Status {
    fn deadline(self) -> Option<Duration> {
        match self {
            Status::Waiting { until, .. } => until,
            Status::Sleeping { until } => Some(until),
            _ => None,
        }
    }
}

/// How a spawned thread ended, for whoever joins it.
struct JobOutcome {
    name: Arc<str>,
    /// Taken by the first join.
    error: Mutex<Option<String>>,
}

impl JobOutcome {
    fn error(&self) -> MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unobserved_panic(&self) -> Option<String> {
        self.error().as_ref().map(|message| format!("thread {} panicked and nobody joined it: {message}", self.name))
    }
}

/// The payload with which a killed thread unwinds.
struct Killed;

fn panic_message(payload: &(dyn Any + Send)) -> String {
    if payload.is::<Killed>() {
        return "the simulated process was killed".to_owned();
    }
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

thread_local! {
    static CURRENT: RefCell<Option<(Arc<World>, u64)>> = const { RefCell::new(None) };
}

fn enter(world: &Arc<World>, id: u64) {
    CURRENT.set(Some((Arc::clone(world), id)));
}

/// Whether the calling thread belongs to a killed process: what it does has no effect any more.
pub(crate) fn is_dying() -> bool {
    CURRENT.with_borrow(|current| {
        current.as_ref().is_some_and(|(world, id)| world.lock().threads.get(id).is_some_and(|thread| thread.doomed))
    })
}

/// The calling simulated thread's name and its world's trace; None for a thread outside all simulations.
pub(crate) fn current_thread() -> Option<(Arc<str>, Trace)> {
    CURRENT.with_borrow(|current| {
        let (world, id) = current.as_ref()?;
        Some((Arc::clone(&world.lock().threads.get(id)?.name), world.trace.clone()))
    })
}

impl State {
    fn thread(&self, id: u64) -> &Thread {
        self.threads.get(&id).expect("a running thread is registered")
    }

    fn thread_mut(&mut self, id: u64) -> &mut Thread {
        self.threads.get_mut(&id).expect("a running thread is registered")
    }

    fn add_thread(&mut self, name: &str) -> (u64, Arc<JobOutcome>) {
        let id = self.next_thread;
        self.next_thread += 1;
        let name: Arc<str> = name.into();
        let outcome = Arc::new(JobOutcome { name: Arc::clone(&name), error: Mutex::new(None) });
        let thread = Thread {
            name,
            status: Status::Ready,
            wake: Arc::new(Condvar::new()),
            doomed: false,
            dying_waits: 0,
            outcome: Arc::clone(&outcome),
        };
        self.threads.insert(id, thread);
        (id, outcome)
    }

    /// Chooses who runs next. There is at least one thread.
    fn pick(&mut self, me: u64, seed: u64) -> u64 {
        loop {
            let now = self.now;
            let mut ready = 0;
            let mut nearest: Option<Duration> = None;
            for thread in self.threads.values_mut() {
                if let Some(deadline) = thread.status.deadline() {
                    if deadline <= now {
                        thread.status = Status::Ready;
                    } else {
                        nearest = Some(nearest.map_or(deadline, |n| n.min(deadline)));
                    }
                }
                ready += u64::from(thread.status == Status::Ready);
            }
            let leap = nearest.filter(|_| ready == 0 || self.steps - self.last_leap >= LEAP_STEPS);
            if let Some(deadline) = leap {
                self.now = deadline;
                self.last_leap = self.steps;
            } else if ready == 0 {
                self.declare_deadlock(seed);
            } else {
                let may_stay = self.threads.get(&me).is_some_and(|thread| thread.status == Status::Ready);
                if may_stay && (ready == 1 || self.rng.chance(self.stay)) {
                    return me;
                }
                let chosen = self.rng.below(ready) as usize;
                let mut candidates = self.threads.iter().filter(|(_, thread)| thread.status == Status::Ready);
                return *candidates.nth(chosen).expect("fewer were drawn than are ready").0;
            }
        }
    }

    /// Everybody ends: there is nothing that could still wake anyone.
    fn declare_deadlock(&mut self, seed: u64) {
        if self.failure.is_none() {
            self.failure = Some(format!("deadlock in the simulation with seed {seed}:\n{}", self.dump()));
        }
        for thread in self.threads.values_mut() {
            thread.doomed = true;
            thread.status = Status::Ready;
        }
    }

    fn dump(&self) -> String {
        let mut text = String::new();
        let name = |id: &u64| self.threads.get(id).map_or("an ended thread", |thread| &thread.name);
        for thread in self.threads.values() {
            let what = match thread.status {
                Status::Ready => "could run".to_owned(),
                Status::Running => "runs".to_owned(),
                Status::Waiting { event, until: None } => format!("waits for event {event}, without a timeout"),
                Status::Waiting { event, until: Some(at) } => format!("waits for event {event} until {at:?}"),
                Status::Sleeping { until } => format!("sleeps until {until:?}"),
                Status::Joining { thread } => format!("joins {}", name(&thread)),
                Status::Draining => "waits for killed threads to end".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {}: {what}", thread.name);
        }
        text
    }
}

impl World {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread's number, if it is one of this world's.
    pub(crate) fn me(&self) -> Option<u64> {
        CURRENT.with_borrow(|current| match current {
            Some((world, id)) if std::ptr::eq(Arc::as_ptr(world), self) => Some(*id),
            _ => None,
        })
    }

    /// Sleeps on the simulated clock, or, outside `run`, moves it.
    pub(crate) fn sleep(&self, duration: Duration) {
        let mut state = self.lock();
        let until = state.now.saturating_add(duration);
        match self.me() {
            None => state.now = until,
            Some(me) => {
                drop(state);
                self.pause(me, Status::Sleeping { until });
            }
        }
    }

    /// A yield point that may unwind: passes the baton on and comes back when `status` allows it.
    fn pause(&self, me: u64, status: Status) {
        self.leave_if_doomed(me);
        let mut state = self.lock();
        let status = if state.thread(me).doomed { self.dying_wait(&mut state, me) } else { status };
        drop(self.switch(state, me, status));
        self.leave_if_doomed(me);
    }

    /// A destructor of a killed thread wants to wait: it is let through, but not for ever.
    fn dying_wait(&self, state: &mut State, me: u64) -> Status {
        let thread = state.thread_mut(me);
        thread.dying_waits += 1;
        if thread.dying_waits > DYING_WAITS_MAX {
            let name = Arc::clone(&thread.name);
            self.abort(state, &format!("a destructor of the killed thread {name} waits for ever"));
        }
        Status::Ready
    }

    fn switch<'a>(&'a self, mut state: MutexGuard<'a, State>, me: u64, status: Status) -> MutexGuard<'a, State> {
        state.steps += 1;
        state.now += STEP;
        state.thread_mut(me).status = status;
        let next = state.pick(me, self.seed);
        self.trace.fold(next);
        state.running = Some(next);
        if next != me {
            state.thread(next).wake.notify_one();
            state = self.sleep_until_chosen(state, me);
        }
        state.thread_mut(me).status = Status::Running;
        state
    }

    fn sleep_until_chosen<'a>(&'a self, mut state: MutexGuard<'a, State>, me: u64) -> MutexGuard<'a, State> {
        let wake = Arc::clone(&state.thread(me).wake);
        while state.running != Some(me) {
            state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn await_baton(&self, me: u64) {
        let mut state = self.sleep_until_chosen(self.lock(), me);
        state.thread_mut(me).status = Status::Running;
    }

    fn leave_if_doomed(&self, me: u64) {
        // A second unwinding inside the first would abort the process.
        if !std::thread::panicking() && self.lock().thread(me).doomed {
            resume_unwind(Box::new(Killed));
        }
    }

    fn kill_others(&self, me: u64) {
        let mut state = self.lock();
        for (id, thread) in &mut state.threads {
            if *id != me {
                thread.doomed = true;
                thread.status = Status::Ready;
            }
        }
        while state.threads.len() > 1 {
            state = self.switch(state, me, Status::Draining);
        }
    }

    /// A spawned thread's last step.
    fn finish(&self, id: u64, result: std::thread::Result<()>) {
        if let Err(payload) = result {
            let mut state = self.lock();
            let outcome = Arc::clone(&state.thread(id).outcome);
            *outcome.error() = Some(panic_message(&*payload));
            if !payload.is::<Killed>() {
                state.panicked.push(outcome);
            }
        }
        self.end(id);
    }

    fn end(&self, id: u64) {
        // Destructors of thread-locals run after this; they are outside the simulation.
        CURRENT.set(None);
        let mut state = self.lock();
        state.steps += 1;
        state.threads.remove(&id);
        let alone = state.threads.len() == 1;
        for thread in state.threads.values_mut() {
            match thread.status {
                Status::Joining { thread: joined } if joined == id => thread.status = Status::Ready,
                Status::Draining if alone => thread.status = Status::Ready,
                _ => {}
            }
        }
        if state.threads.is_empty() {
            state.running = None;
            self.finished.notify_all();
            return;
        }
        let next = state.pick(id, self.seed);
        self.trace.fold(next);
        state.running = Some(next);
        state.thread(next).wake.notify_one();
    }

    /// Waits until all threads have ended, and aborts the process when no yield point is passed for too long.
    fn watch(&self) {
        let mut state = self.lock();
        let mut steps = state.steps;
        let mut since = Instant::now();
        while !state.threads.is_empty() {
            let limit = state.watchdog;
            state = self.finished.wait_timeout(state, limit / 4).unwrap_or_else(PoisonError::into_inner).0;
            if state.steps != steps {
                steps = state.steps;
                since = Instant::now();
            } else if since.elapsed() >= limit && !state.threads.is_empty() {
                let why = format!(
                    "no yield point for {limit:?}: the running thread waits for a lock that another one \
                     holds across a yield point, or it spins"
                );
                self.abort(&state, &why);
            }
        }
    }

    fn abort(&self, state: &State, why: &str) -> ! {
        // Straight to the descriptor: what the test harness has captured is lost in an abort.
        let report = format!("simulation with seed {}: {why}\n{}{}", self.seed, state.dump(), self.trace);
        let _ = io::stderr().write_all(report.as_bytes());
        std::process::abort();
    }
}

struct SimJob {
    world: Arc<World>,
    id: u64,
    outcome: Arc<JobOutcome>,
}

impl JobHandle for SimJob {
    fn join(&self) -> Result<(), String> {
        if let Some(me) = self.world.me() {
            self.world.pause(me, Status::Ready);
            while self.world.lock().threads.contains_key(&self.id) {
                if self.world.lock().thread(me).doomed {
                    // A destructor of a killed thread: the other one is on its way out as well.
                    return Err("the simulated process was killed".to_owned());
                }
                self.world.pause(me, Status::Joining { thread: self.id });
            }
        }
        match self.outcome.error().take() {
            None => Ok(()),
            Some(message) => Err(message),
        }
    }
}

struct SimEvent {
    world: Arc<World>,
    id: u64,
    generation: AtomicU64,
}

impl Event for SimEvent {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        let Some(me) = self.world.me() else {
            // Nobody else runs: only time can pass.
            let changed = self.generation() != seen;
            match timeout {
                _ if changed => {}
                Some(timeout) => self.world.sleep(timeout),
                None => panic!("a thread outside SimExecutor::run() waits for an event that nobody can notify"),
            }
            return changed;
        };
        let status = if self.generation() != seen {
            Status::Ready
        } else {
            let now = self.world.lock().now;
            Status::Waiting { event: self.id, until: timeout.and_then(|timeout| now.checked_add(timeout)) }
        };
        self.world.pause(me, status);
        self.generation() != seen
    }

    fn notify(&self) {
        let mut state = self.world.lock();
        self.generation.fetch_add(1, Ordering::SeqCst);
        for thread in state.threads.values_mut() {
            if matches!(thread.status, Status::Waiting { event, .. } if event == self.id) {
                thread.status = Status::Ready;
            }
        }
        // No unwinding here: a killed thread may stand in a destructor that notifies under a lock.
        if let Some(me) = self.world.me()
            && state.switch_at_notify
            && !state.thread(me).doomed
        {
            drop(self.world.switch(state, me, Status::Ready));
        }
    }
}

#[cfg(test)]
mod tests;
