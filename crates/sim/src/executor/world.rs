//! A simulated machine's inside: its threads, its time, and the choice of the next thread.
//!
//! All of it is one [`State`] behind one mutex. A thread that gives the baton away sleeps on a condition variable of
//! its own until it is chosen again. The algorithm is that of the [executor](super).

use crate::{Rng, Trace};
use situ_base::lock;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The simulated time of a step from one yield point to the next, so that polling loops see time pass.
const STEP: Duration = Duration::from_nanos(100);
/// The number of steps without a leap, after which time leaps to the nearest timeout.
pub(super) const LEAP_STEPS: u64 = 10_000;
/// Real time without a yield point after which a lock must be in the way.
const WATCHDOG: Duration = Duration::from_secs(20);
/// A killed thread whose destructors wait this often would do so for ever.
const DYING_WAITS_MAX: u32 = 10_000;
/// 2026-01-01 in nanoseconds since 1970: simulated machines are born then.
const UNIX_START: i128 = 1_767_225_600_000_000_000;

/// The state that all threads of one machine share.
pub(crate) struct World {
    pub(super) seed: u64,
    state: Mutex<State>,
    /// Notified when the last thread ends.
    finished: Condvar,
    pub(crate) trace: Trace,
}

pub(crate) struct State {
    rng: Rng,
    stay: f64,
    pub(crate) now: Duration,
    /// The difference between wall-clock nanoseconds and `now`.
    pub(crate) unix_offset: i128,
    pub(super) threads: BTreeMap<u64, Thread>,
    pub(super) running: Option<u64>,
    pub(super) active: bool,
    next_thread: u64,
    pub(super) next_event: u64,
    pub(super) steps: u64,
    /// The step at which time last leapt.
    last_leap: u64,
    pub(super) failure: Option<String>,
    pub(super) panicked: Vec<Arc<JobOutcome>>,
    pub(super) handles: Vec<std::thread::JoinHandle<()>>,
    pub(super) watchdog: Duration,
    pub(super) switch_at_notify: bool,
}

pub(super) struct Thread {
    name: Arc<str>,
    pub(super) status: Status,
    wake: Arc<Condvar>,
    pub(super) doomed: bool,
    dying_waits: u32,
    outcome: Arc<JobOutcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Needs nothing but the baton.
    Ready,
    /// The thread has the baton.
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
    /// The thread is in `kill`, until the doomed threads have ended.
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

/// The end of a spawned thread, for the thread that joins it.
pub(super) struct JobOutcome {
    name: Arc<str>,
    /// Taken by the first join.
    error: Mutex<Option<String>>,
}

impl JobOutcome {
    pub(super) fn error(&self) -> MutexGuard<'_, Option<String>> {
        lock(&self.error)
    }

    pub(super) fn unobserved_panic(&self) -> Option<String> {
        self.error().as_ref().map(|message| format!("thread {} panicked and nobody joined it: {message}", self.name))
    }
}

/// The payload with which a killed thread unwinds.
pub(super) struct Killed;

pub(super) fn panic_message(payload: &(dyn Any + Send)) -> String {
    if payload.is::<Killed>() {
        return "the simulated process was killed".to_owned();
    }
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

thread_local! {
    static CURRENT: RefCell<Option<(Arc<World>, u64)>> = const { RefCell::new(None) };
}

pub(super) fn enter(world: &Arc<World>, id: u64) {
    CURRENT.set(Some((Arc::clone(world), id)));
}

/// Returns true if the calling thread belongs to a killed process: what it does has no effect any more.
pub(crate) fn is_dying() -> bool {
    CURRENT.with_borrow(|current| {
        current.as_ref().is_some_and(|(world, id)| world.lock().threads.get(id).is_some_and(|thread| thread.doomed))
    })
}

/// Returns the calling simulated thread's name and its world's trace; `None` for a thread outside all simulations.
pub(crate) fn current_thread() -> Option<(Arc<str>, Trace)> {
    CURRENT.with_borrow(|current| {
        let (world, id) = current.as_ref()?;
        Some((Arc::clone(&world.lock().threads.get(id)?.name), world.trace.clone()))
    })
}

impl State {
    pub(super) fn thread(&self, id: u64) -> &Thread {
        self.threads.get(&id).expect("a running thread is registered")
    }

    pub(super) fn thread_mut(&mut self, id: u64) -> &mut Thread {
        self.threads.get_mut(&id).expect("a running thread is registered")
    }

    pub(super) fn add_thread(&mut self, name: &str) -> (u64, Arc<JobOutcome>) {
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

    /// Chooses the thread that runs next. There is at least one thread.
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

    /// Ends all threads: nothing could still wake any of them.
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
    /// Creates a machine on which nothing runs yet.
    pub(super) fn new(seed: u64) -> World {
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
        World { seed, state: Mutex::new(state), finished: Condvar::new(), trace: Trace::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the calling thread's number, if it is one of this world's.
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

    /// Runs a yield point that may unwind: passes the baton on and comes back when `status` allows it.
    pub(super) fn pause(&self, me: u64, status: Status) {
        self.leave_if_doomed(me);
        let mut state = self.lock();
        let status = if state.thread(me).doomed { self.dying_wait(&mut state, me) } else { status };
        drop(self.switch(state, me, status));
        self.leave_if_doomed(me);
    }

    /// Lets a destructor of a killed thread wait, but not for ever.
    fn dying_wait(&self, state: &mut State, me: u64) -> Status {
        let thread = state.thread_mut(me);
        thread.dying_waits += 1;
        if thread.dying_waits > DYING_WAITS_MAX {
            let name = Arc::clone(&thread.name);
            self.abort(state, &format!("a destructor of the killed thread {name} waits for ever"));
        }
        Status::Ready
    }

    pub(super) fn switch<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        me: u64,
        status: Status,
    ) -> MutexGuard<'a, State> {
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

    pub(super) fn await_baton(&self, me: u64) {
        let mut state = self.sleep_until_chosen(self.lock(), me);
        state.thread_mut(me).status = Status::Running;
    }

    pub(super) fn leave_if_doomed(&self, me: u64) {
        // A second unwinding inside the first would abort the process.
        if !std::thread::panicking() && self.lock().thread(me).doomed {
            resume_unwind(Box::new(Killed));
        }
    }

    pub(super) fn kill_others(&self, me: u64) {
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

    /// Runs a spawned thread's last step.
    pub(super) fn finish(&self, id: u64, result: std::thread::Result<()>) {
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

    pub(super) fn end(&self, id: u64) {
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
    pub(super) fn watch(&self) {
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
