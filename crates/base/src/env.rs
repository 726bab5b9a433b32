//! Time and background execution as values.
//!
//! [`Env`] is the bundle that a store is opened with. The real one is [`Env::system`]; the simulator hands in its own,
//! where one thread runs at a time and a seed decides which.

use crate::sync::lock;
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time since some fixed origin. It never goes back. For measuring and for timeouts.
    fn now(&self) -> Duration;

    /// Returns the wall-clock time since 1970-01-01 UTC. It may jump either way: never measure with it.
    fn unix(&self) -> Duration;

    /// Returns the time since the machine booted, including sleep. It never goes back within a [boot](Clock::boot).
    fn uptime(&self) -> Duration {
        self.now()
    }

    /// Returns the id of this boot of the machine; `None` if the system has none.
    fn boot(&self) -> Option<[u8; 16]> {
        None
    }

    /// Blocks the calling thread for about `duration`.
    fn sleep(&self, duration: Duration);
}

/// A broadcast that cannot be missed: an event count.
///
/// A waiter reads [`generation`](Event::generation), *then* looks at the condition it waits for, then calls
/// [`wait`](Event::wait) with what it read. A [`notify`](Event::notify) that came in between makes `wait` return at
/// once. So no lock has to be held around the condition, and none may be.
pub trait Event: Send + Sync {
    /// Returns the number of notifications so far.
    fn generation(&self) -> u64;

    /// Blocks until the generation differs from `seen` or `timeout` has passed; true if it differs.
    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool;

    /// Advances the generation and wakes all waiters. Costs one atomic add when no thread waits.
    fn notify(&self);
}

/// A started background job; lets its owner wait for the end.
pub trait JobHandle: Send + Sync {
    /// Blocks until the job has returned. An `Err` carries the message of a panic.
    fn join(&self) -> Result<(), String>;
}

/// A source of background threads and events.
pub trait Executor: Send + Sync {
    /// Starts `job` on a thread of its own called `name`.
    ///
    /// # Errors
    /// The operating system refused another thread.
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>>;

    /// Returns a new event on which threads of this executor can wait.
    fn event(&self) -> Arc<dyn Event>;

    /// Lets other threads run now if this executor runs one at a time; otherwise does nothing.
    ///
    /// Simulated volumes call it around each operation; code between two such points is atomic in the simulator.
    fn yield_point(&self) {}

    /// Lets threads that are ready run before the calling one goes on. A hint: returns at once if there are none.
    fn yield_once(&self) {
        self.yield_point();
    }

    /// Returns true if its threads are threads of the machine. A store may then ask the machine about its processors. A
    /// simulator returns false, because each run of a seed is to be the same.
    fn is_machine(&self) -> bool {
        false
    }

    /// Returns the number of threads that can run at a time.
    fn cores(&self) -> usize {
        1
    }
}

/// Time and execution for one store.
#[derive(Clone)]
pub struct Env {
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The source of background threads and events.
    pub executor: Arc<dyn Executor>,
}

impl Env {
    /// Returns the environment of the real machine: its clock and its threads.
    pub fn system() -> Env {
        Env { clock: Arc::new(SystemClock::default()), executor: Arc::new(ThreadExecutor) }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { origin: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn unix(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn uptime(&self) -> Duration {
        let uptime = clock_gettime(ClockId::Boottime);
        Duration::new(uptime.tv_sec.unsigned_abs(), uptime.tv_nsec.unsigned_abs() as u32)
    }

    fn boot(&self) -> Option<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        Some(u128::from_str_radix(&digits, 16).ok()?.to_le_bytes())
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// One operating-system thread per job.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadExecutor;

impl Executor for ThreadExecutor {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(job)?;
        Ok(Box::new(ThreadJob(Mutex::new(Some(handle)))))
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(ThreadEvent::default())
    }

    fn yield_once(&self) {
        std::thread::yield_now();
    }

    fn is_machine(&self) -> bool {
        true
    }

    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

struct ThreadJob(Mutex<Option<std::thread::JoinHandle<()>>>);

impl JobHandle for ThreadJob {
    fn join(&self) -> Result<(), String> {
        let handle = lock(&self.0).take();
        match handle.map(std::thread::JoinHandle::join) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(payload)) => Err(payload
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a background job panicked".to_owned())),
        }
    }
}

/// [`Event`] over a condition variable; the mutex is touched only when a thread sleeps.
#[derive(Default)]
struct ThreadEvent {
    generation: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Event for ThreadEvent {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn wait(&self, seen: u64, timeout: Option<Duration>) -> bool {
        // The sleeper announces itself before it looks at the generation, and the notifier changes the generation
        // before it looks for sleepers. So the second of them sees the first.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = lock(&self.lock);
        let deadline = timeout.map(|t| Instant::now() + t);
        let mut changed = self.generation() != seen;
        while !changed {
            guard = match deadline {
                None => self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.wake.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            changed = self.generation() != seen;
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        changed
    }

    fn notify(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Taking the lock orders this notification after the sleeper's last look at the generation.
            drop(lock(&self.lock));
            self.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_before_the_wait_is_not_missed() {
        let event = ThreadExecutor.event();
        let seen = event.generation();
        event.notify();
        assert!(event.wait(seen, Some(Duration::from_secs(10))));
    }

    #[test]
    fn a_wait_times_out() {
        let event = ThreadExecutor.event();
        assert!(!event.wait(event.generation(), Some(Duration::from_millis(1))));
    }

    #[test]
    fn a_sleeper_is_woken() {
        let event = ThreadExecutor.event();
        let seen = event.generation();
        let other = Arc::clone(&event);
        let job = ThreadExecutor.spawn("waker", Box::new(move || other.notify())).unwrap();
        assert!(event.wait(seen, None));
        job.join().unwrap();
    }

    #[test]
    fn join_reports_a_panic() {
        let job = ThreadExecutor.spawn("doomed", Box::new(|| panic!("on purpose"))).unwrap();
        assert_eq!(job.join(), Err("on purpose".to_owned()));
        assert_eq!(job.join(), Ok(()));
    }
}
