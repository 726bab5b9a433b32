//! Threads for requests that wait for a disk.
//!
//! Each connection has a *lane*: its requests wait there in the order in which they came. The pool takes from the lanes
//! in turn. Three quarters of the threads are for all lanes, and the last quarter is for lanes of which nothing runs.
//! So a client with many requests on several connections, or one that takes its answers slowly, leaves threads for the
//! others.
//!
//! A short job may run on the thread that brings it ([`LaneHandle::run_here`]), if the lane has no other: handing it
//! over takes longer.
//!
//! One thread wakes for a job, and not all that sleep. A thread that ends a job takes the next one itself.
//!
//! Requests about one writer run one after another, in their order ([`Strands`]).
//!
//! **Invariants.** A job runs once, or is dropped when the pool ends. **Failure.** A job that panics ends no thread;
//! what it was to answer is dropped, which answers it with an error.

use situ_base::{Env, Event, Job, JobHandle, lock};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A job on the thread that brings it has taken long if it took this long.
const SLOW: Duration = Duration::from_millis(10);
/// The time after a slow job for which jobs go to the pool.
const SLOW_PAUSE: Duration = Duration::from_millis(200);

/// See the module's page.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
}

struct Shared {
    env: Env,
    /// Threads that all lanes may have. The others are for lanes of which no job runs.
    shared_threads: usize,
    state: Mutex<State>,
    /// For each thread: there is a job to run, or the pool ends.
    wake: Vec<Arc<dyn Event>>,
    /// A job has ended.
    done: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<u64, Lane>,
    /// Lanes of which a job may begin, each once.
    turns: VecDeque<u64>,
    next_lane: u64,
    waiting: usize,
    running: usize,
    /// Threads that have a job. Jobs also run on threads that bring them.
    busy: usize,
    /// Threads that sleep; the one that was busy last is the last.
    asleep: Vec<usize>,
    has_ended: bool,
}

#[derive(Default)]
struct Lane {
    jobs: VecDeque<Job>,
    running: usize,
    has_turn: bool,
}

/// A connection's place in the pool. Dropped, jobs that wait there still run.
#[derive(Clone)]
pub(crate) struct LaneHandle {
    shared: Arc<Shared>,
    number: u64,
    /// Until when, in nanoseconds of the clock, no job runs on the thread that brings it.
    slow_until_ns: Arc<AtomicU64>,
}

impl Pool {
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(env: &Env, threads: usize) -> io::Result<Pool> {
        let shared = Arc::new(Shared {
            env: env.clone(),
            shared_threads: (threads - threads / 4).max(1),
            state: Mutex::default(),
            wake: (0..threads.max(1)).map(|_| env.executor.event()).collect(),
            done: env.executor.event(),
        });
        let pool = Pool { shared, threads: Mutex::default() };
        for thread in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            lock(&pool.threads).push(env.executor.spawn("node-work", Box::new(move || shared.run(thread)))?);
        }
        Ok(pool)
    }

    /// A lane for a new connection.
    pub(crate) fn lane(&self) -> LaneHandle {
        let mut state = lock(&self.shared.state);
        state.next_lane += 1;
        LaneHandle { shared: Arc::clone(&self.shared), number: state.next_lane, slow_until_ns: Arc::default() }
    }

    /// Jobs that wait, and jobs that run.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = lock(&self.shared.state);
        (state.waiting, state.running)
    }

    /// Waits until no job waits or runs; false if that takes longer than `patience`.
    pub(crate) fn drain(&self, patience: Duration) -> bool {
        let clock = &self.shared.env.clock;
        let deadline = clock.now() + patience;
        loop {
            let seen = self.shared.done.generation();
            let left = deadline.saturating_sub(clock.now());
            match self.load() {
                (0, 0) => return true,
                _ if left.is_zero() => return false,
                _ => self.shared.done.wait(seen, Some(left)),
            };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Pool {
    /// Ends the pool: what waits is dropped. With `join`, what runs is waited for; not to be called on a thread of the
    /// pool then.
    pub(crate) fn end(&self, join: bool) {
        let dropped = {
            let mut state = lock(&self.shared.state);
            state.has_ended = true;
            (std::mem::take(&mut state.lanes), state.turns.clear())
        };
        drop(dropped);
        self.shared.wake.iter().for_each(|wake| wake.notify());
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads.iter().filter(|_| join) {
            // A panic of a job is caught where it happens.
            let _ = thread.join();
        }
    }
}

impl LaneHandle {
    /// Has a job run. After the end of the pool it is dropped.
    pub(crate) fn submit(&self, job: Job) {
        let (refused, thread) = {
            let mut state = lock(&self.shared.state);
            match state.has_ended {
                true => (Some(job), None),
                false => {
                    state.lanes.entry(self.number).or_default().jobs.push_back(job);
                    state.waiting += 1;
                    state.give_turn(self.number);
                    (None, state.asleep.pop())
                }
            }
        };
        drop(refused);
        self.shared.wake(thread);
    }
}

impl LaneHandle {
    /// Runs a short job on this thread, if no other one of the lane waits or runs, and none has taken long lately. If
    /// not, the job is given back.
    pub(crate) fn run_here<J: FnOnce()>(&self, job: J) -> Result<(), J> {
        let now = || self.shared.env.clock.now();
        let began = now();
        let is_slow = began < Duration::from_nanos(self.slow_until_ns.load(Ordering::Relaxed));
        if is_slow || !lock(&self.shared.state).begin_alone(self.number) {
            return Err(job);
        }
        let _ = catch_unwind(AssertUnwindSafe(job));
        let thread = {
            let mut state = lock(&self.shared.state);
            state.end(self.number);
            // This thread does not take the job that may begin now.
            if state.turns.is_empty() { None } else { state.asleep.pop() }
        };
        self.shared.done.notify();
        self.shared.wake(thread);
        let ended = now();
        if ended.saturating_sub(began) >= SLOW {
            let until = u64::try_from((ended + SLOW_PAUSE).as_nanos()).unwrap_or(u64::MAX);
            self.slow_until_ns.store(until, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl State {
    /// Counts a job of a lane that has no other one; false if it has.
    fn begin_alone(&mut self, number: u64) -> bool {
        let is_alone = !self.has_ended && !self.lanes.contains_key(&number);
        if is_alone {
            self.lanes.insert(number, Lane { running: 1, ..Lane::default() });
            self.running += 1;
        }
        is_alone
    }

    fn give_turn(&mut self, number: u64) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.jobs.is_empty() && lane.running == 0 {
            self.lanes.remove(&number);
        } else if !lane.jobs.is_empty() && !lane.has_turn {
            lane.has_turn = true;
            self.turns.push_back(number);
        }
    }

    /// The place of the first lane in turn whose job may begin.
    fn next_turn(&self, shared_threads: usize) -> Option<usize> {
        let may_begin =
            |number: &u64| self.busy < shared_threads || self.lanes.get(number).is_none_or(|lane| lane.running == 0);
        self.turns.iter().position(may_begin)
    }

    /// A job for a thread that has none: of the next lane, or of the next one that has nothing running.
    fn begin(&mut self, shared_threads: usize) -> Option<(u64, Job)> {
        let at = self.next_turn(shared_threads)?;
        let number = self.turns.remove(at)?;
        let lane = self.lanes.get_mut(&number)?;
        lane.has_turn = false;
        let job = lane.jobs.pop_front()?;
        lane.running += 1;
        self.waiting -= 1;
        self.running += 1;
        self.busy += 1;
        self.give_turn(number);
        Some((number, job))
    }

    fn end(&mut self, number: u64) {
        self.running -= 1;
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.running -= 1;
        }
        self.give_turn(number);
    }
}

impl Shared {
    fn run(&self, thread: usize) {
        let wake = &self.wake[thread];
        loop {
            let seen = wake.generation();
            let (begun, next) = {
                let mut state = lock(&self.state);
                if state.has_ended {
                    return;
                }
                let begun = state.begin(self.shared_threads);
                state.asleep.retain(|asleep| *asleep != thread);
                if begun.is_none() {
                    state.asleep.push(thread);
                }
                // A job of another lane may be left that no thread could begin before: the lane's last one has just
                // ended.
                let has_next = begun.is_some() && state.next_turn(self.shared_threads).is_some();
                (begun, if has_next { state.asleep.pop() } else { None })
            };
            self.wake(next);
            let Some((number, job)) = begun else {
                wake.wait(seen, None);
                continue;
            };
            let _ = catch_unwind(AssertUnwindSafe(job));
            {
                let mut state = lock(&self.state);
                state.busy -= 1;
                state.end(number);
            }
            self.done.notify();
        }
    }

    fn wake(&self, thread: Option<usize>) {
        thread.into_iter().for_each(|thread| self.wake[thread].notify());
    }
}

/// Jobs that run one after another, by what they are about.
#[derive(Default)]
pub(crate) struct Strands {
    waiting: Mutex<HashMap<u64, VecDeque<Job>>>,
}

impl Strands {
    /// Has a job run after all earlier ones with the same `about`.
    pub(crate) fn submit(self: &Arc<Strands>, lane: &LaneHandle, about: u64, job: Job) {
        let is_first = {
            let mut waiting = lock(&self.waiting);
            let is_first = !waiting.contains_key(&about);
            waiting.entry(about).or_default().push_back(job);
            is_first
        };
        if is_first {
            let strands = Arc::clone(self);
            lane.submit(Box::new(move || strands.run(about)));
        }
    }

    fn run(&self, about: u64) {
        loop {
            let job = {
                let mut waiting = lock(&self.waiting);
                match waiting.get_mut(&about).and_then(VecDeque::pop_front) {
                    Some(job) => job,
                    None => {
                        waiting.remove(&about);
                        return;
                    }
                }
            };
            // The next ones run also after a panic.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_lane_whose_jobs_hang_leaves_threads_for_others() {
        let env = Env::system();
        let pool = Pool::start(&env, 4).unwrap();
        let (slow, quick) = (pool.lane(), pool.lane());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..10 {
            let held = Arc::clone(&held);
            slow.submit(Box::new(move || {
                let _ = held.lock().unwrap().recv();
            }));
        }
        let (done, seen) = std::sync::mpsc::channel();
        for n in 0..5 {
            let done = done.clone();
            quick.submit(Box::new(move || done.send(n).unwrap()));
        }
        let mut all: Vec<i32> = (0..5).map(|_| seen.recv_timeout(Duration::from_secs(60)).unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        assert!(!pool.drain(Duration::from_millis(5)));
        drop(release);
        assert!(pool.drain(Duration::from_secs(60)));
    }

    /// Two connections of one client once had all threads between them.
    #[test]
    fn many_lanes_whose_jobs_hang_leave_threads_for_others_and_use_all_but_those() {
        let env = Env::system();
        let pool = Pool::start(&env, 8).unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let slow = [pool.lane(), pool.lane()];
        for n in 0..40 {
            let held = Arc::clone(&held);
            slow[n / 20].submit(Box::new(move || {
                let _ = held.lock().unwrap().recv();
            }));
        }
        let deadline = env.clock.now() + Duration::from_secs(60);
        while pool.load().1 < 6 {
            assert!(env.clock.now() < deadline, "{:?}", pool.load());
            std::thread::yield_now();
        }
        let quick = pool.lane();
        let (done, seen) = std::sync::mpsc::channel();
        for n in 0..5 {
            let done = done.clone();
            quick.submit(Box::new(move || done.send(n).unwrap()));
        }
        for n in 0..5 {
            assert_eq!(seen.recv_timeout(Duration::from_secs(60)).unwrap(), n);
        }
        assert!((6..=7).contains(&pool.load().1), "{:?}", pool.load());
        drop(release);
        assert!(pool.drain(Duration::from_secs(60)));
    }

    #[test]
    fn jobs_about_one_thing_run_in_their_order_also_after_a_panic() {
        let env = Env::system();
        let pool = Pool::start(&env, 4).unwrap();
        let (lane, strands) = (pool.lane(), Arc::new(Strands::default()));
        let order = Arc::new(Mutex::new(vec![Vec::new(), Vec::new()]));
        let inside = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        for n in 0..200_usize {
            let (order, inside) = (Arc::clone(&order), Arc::clone(&inside));
            let about = n % 2;
            let job = move || {
                assert_eq!(inside[about].fetch_add(1, Ordering::SeqCst), 0);
                order.lock().unwrap()[about].push(n);
                std::thread::yield_now();
                inside[about].fetch_sub(1, Ordering::SeqCst);
                if n == 50 {
                    panic!("on purpose");
                }
            };
            strands.submit(&lane, about as u64, Box::new(job));
        }
        assert!(pool.drain(Duration::from_secs(60)));
        let order = order.lock().unwrap();
        assert!(order.iter().all(|about| about.len() == 100 && about.is_sorted()), "{order:?}");
    }

    #[test]
    fn a_short_job_runs_here_while_the_lane_has_no_other_and_none_has_taken_long() {
        let env = Env::system();
        let pool = Pool::start(&env, 2).unwrap();
        let lane = pool.lane();
        let mut here = None;
        assert!(lane.run_here(|| here = Some(std::thread::current().id())).is_ok());
        assert_eq!(here, Some(std::thread::current().id()));
        let (release, held) = std::sync::mpsc::channel::<()>();
        lane.submit(Box::new(move || assert!(held.recv().is_err())));
        assert!(lane.run_here(|| panic!("another one has not ended")).is_err());
        assert!(pool.lane().run_here(|| panic!("on purpose")).is_ok(), "another lane's do not matter");
        drop(release);
        assert!(pool.drain(Duration::from_secs(60)));
        assert!(lane.run_here(|| std::thread::sleep(SLOW)).is_ok());
        assert!(lane.run_here(|| panic!("the last one has taken long")).is_err());
        assert!(pool.drain(Duration::from_secs(60)), "jobs that ran here have ended");
        pool.end(true);
        assert!(pool.lane().run_here(|| panic!("the pool has ended")).is_err());
    }

    #[test]
    fn a_pool_that_ends_runs_nothing_more() {
        let env = Env::system();
        let pool = Pool::start(&env, 1).unwrap();
        let lane = pool.lane();
        pool.end(true);
        let ran = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&ran);
        lane.submit(Box::new(move || {
            noted.fetch_add(1, Ordering::SeqCst);
        }));
        assert_eq!((ran.load(Ordering::SeqCst), Arc::strong_count(&ran)), (0, 1));
    }
}
