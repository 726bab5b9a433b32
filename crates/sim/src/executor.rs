//! The seeded scheduler: many operating-system threads, one of which runs.
//!
//! # Algorithm
//!
//! 1. Every simulated thread is a real one, but only the thread that holds the *baton* (`State::running`) executes. The
//!    others sleep, each on its own condition variable.
//! 2. At a *yield point* (each volume operation, each wait and notification of an event, spawn, join, sleep) the holder
//!    names its need to go on: nothing, an event, a time, the end of a thread. The generator, seeded once, picks one of
//!    the threads that need nothing, and the baton goes there.
//! 3. When no thread can go on, simulated time advances to the nearest timeout. When there is none, that is a deadlock:
//!    [`SimExecutor::run`] panics with a list of the threads and what each waits for. While others work, time leaps to
//!    the nearest timeout every 10,000 steps. So periodic threads get their turn, and a loop that polls the clock ends.
//! 4. [`SimExecutor::kill`] is process death: every other thread unwinds from the yield point where it stands. Volume
//!    operations that its destructors try fail without effect, because a dead process runs no destructors.
//!
//! **Invariants.** At most one thread of a world is between two yield points. The choice depends on the seed and on
//! what the threads did before, never on real time: same seed, same run, which [`Trace::hash`](crate::Trace::hash)
//! shows. No thread outlives the `run` it was started in.
//!
//! **Threads.** Code between two yield points is atomic in the simulation, so plain atomics and short mutexes need no
//! simulated twin. A mutex held across a yield point may be wanted by the next thread, which then blocks with the
//! baton in its hand. Nothing can be proved about such a thread but that it is late. After 20 s of real time without a
//! yield point, the process is aborted with a list of the threads.
//!
//! **Failure.** The `join` of a spawned thread returns its panic. If no thread joins it, `run` reports the panic.
//!
//! Rejected: coroutines instead of threads (every blocking call of the engine would have to be `async`), and
//! intercepting every atomic as loom does (the state space of a whole store is too large; loom checks single
//! structures).

use crate::Trace;
use situ_base::{Event, Executor, JobHandle, spent};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use world::{JobOutcome, Status, enter, panic_message};

pub(crate) use world::{World, current_thread, is_dying};

mod note;
mod world;

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
    /// Creates a machine on which nothing runs yet. All its choices follow from `seed`.
    pub fn new(seed: u64) -> SimExecutor {
        SimExecutor { world: Arc::new(World::new(seed)) }
    }

    /// Returns the seed, to be printed wherever a test fails.
    pub fn seed(&self) -> u64 {
        self.world.seed
    }

    /// Returns the operations of all simulated volumes that this machine's threads used; its hash also covers each
    /// choice of the scheduler.
    pub fn trace(&self) -> Trace {
        self.world.trace.clone()
    }

    /// Returns the number of yield points that threads have passed.
    pub fn steps(&self) -> u64 {
        self.world.lock().steps
    }

    /// Sets the real time without a yield point after which the process is aborted (default 20 s).
    pub fn set_watchdog(&self, limit: Duration) {
        self.world.lock().watchdog = limit;
    }

    /// Sets whether [`Event::notify`] is a yield point (default: yes). Switch it off for code that notifies while it
    /// holds a lock. That is legal, but the woken thread then cannot be tried before the notifier has gone on.
    pub fn set_switch_at_notify(&self, switch: bool) {
        self.world.lock().switch_at_notify = switch;
    }

    /// Runs `main` as a simulated thread, with all threads that it spawns, and returns when all have ended. Threads
    /// that are left when `main` returns are killed. Can be called again: time and chance go on.
    ///
    /// # Panics
    /// With the seed and the last operations: when `main` panicked, when a thread that was not joined panicked, or at a
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
        let clock = Arc::new(self.clock());
        let outcome = std::thread::scope(|scope| {
            let main = move || {
                spent::use_clock(clock);
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
            // Every thread catches its job's panic; there is nothing left to report here.
            let _ = handle.join();
        }
        let unseen = panicked.iter().find_map(|job| job.unobserved_panic());
        let message = match (failure, outcome) {
            // Often a thread waits for ever because the thread to wake it has panicked.
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
    /// Returns when all have ended. Their memory is lost; volumes keep the bytes that were handed to them.
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
        let (world, clock) = (Arc::clone(&self.world), Arc::new(self.clock()));
        let body = move || {
            spent::use_clock(clock);
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
            // No other thread runs: only time can pass.
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
