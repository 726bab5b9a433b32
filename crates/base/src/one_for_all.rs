//! Work that one thread does for all callers that wait for it, such as a flush of a device.
//!
//! 1. A caller wants a run that begins after its call: what it has written before is covered by that run.
//! 2. If no run is under way, the caller does the work itself. Otherwise it waits for the end of the run, and looks
//!    again.
//! 3. A run that succeeds answers all that came before it began. A run that fails answers its own caller only; the next
//!    caller that waits tries for itself.
//!
//! **Invariants.** One run at a time. A run has a number; a caller returns when a run of a number above those that had
//! begun at its call has succeeded.
//!
//! **Failure.** A run that panics has ended, and has not succeeded.

#![allow(unexpected_cfgs, reason = "cfg(loom) is set by hand to explore the model")]

use crate::Event;
#[cfg(loom)]
use loom::sync::Mutex;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::Mutex;

#[derive(Debug, Default)]
struct Runs {
    /// The number of runs that have begun.
    begun: u64,
    /// The number of the last run that has succeeded.
    succeeded: u64,
    is_running: bool,
}

/// See the [module's](self) steps: one thread runs, the others wait.
///
/// # Example
/// ```
/// let ended = situ_base::Env::system().executor.event();
/// let syncs = situ_base::OneForAll::new(ended);
/// syncs.run(|| std::fs::File::open("/dev/null")?.sync_all().or(Ok::<(), std::io::Error>(())))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct OneForAll {
    runs: Mutex<Runs>,
    ended: Arc<dyn Event>,
}

impl OneForAll {
    /// Creates the state with no run under way. `ended` is notified at the end of each run, and may have other uses.
    pub fn new(ended: Arc<dyn Event>) -> OneForAll {
        OneForAll { runs: Mutex::new(Runs::default()), ended }
    }

    /// Returns when a run that began after this call has succeeded, on this thread or on another one. All callers give
    /// work that does the same.
    ///
    /// # Errors
    /// A run on this thread has failed.
    pub fn run<E>(&self, mut work: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        let wanted = self.lock(|runs| runs.begun + 1);
        loop {
            let seen = self.ended.generation();
            let number = self.lock(|runs| match runs.succeeded >= wanted {
                true => Some(0),
                false if runs.is_running => None,
                false => {
                    runs.is_running = true;
                    runs.begun += 1;
                    Some(runs.begun)
                }
            });
            match number {
                Some(0) => return Ok(()),
                None => {
                    self.ended.wait(seen, None);
                }
                Some(number) => {
                    let mut run = Run { all: self, number, has_succeeded: false };
                    work()?;
                    run.has_succeeded = true;
                }
            }
        }
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Runs) -> T) -> T {
        #[cfg(not(loom))]
        return look(&mut crate::sync::lock(&self.runs));
        #[cfg(loom)]
        return look(&mut self.runs.lock().unwrap());
    }
}

/// A run under way; ends when this is dropped.
struct Run<'a> {
    all: &'a OneForAll,
    number: u64,
    has_succeeded: bool,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.all.lock(|runs| {
            assert!(runs.is_running && runs.begun == self.number, "two runs at a time");
            runs.is_running = false;
            if self.has_succeeded {
                runs.succeeded = self.number;
            }
        });
        self.all.ended.notify();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Env;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn all() -> OneForAll {
        OneForAll::new(Env::system().executor.event())
    }

    #[test]
    fn a_failure_is_its_callers_alone_and_the_next_call_tries_again() {
        let all = all();
        assert_eq!(all.run(|| Err("the disk")), Err("the disk"));
        assert_eq!(all.run(|| Ok::<(), &str>(())), Ok(()));
        let panics = || all.run(|| -> Result<(), &str> { panic!("in a run") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(all.run(|| Ok::<(), &str>(())), Ok(()));
    }

    /// A run that was under way at the call does not count: it may have begun before what the caller wrote.
    #[test]
    fn every_call_is_covered_by_a_run_that_began_after_it() {
        const CALLS: u64 = 2000;
        let (all, written, durable, runs) = (all(), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..CALLS {
                        let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                        let work = || {
                            runs.fetch_add(1, Ordering::SeqCst);
                            durable.fetch_max(written.load(Ordering::SeqCst), Ordering::SeqCst);
                            Ok::<(), ()>(())
                        };
                        all.run(work).unwrap();
                        assert!(durable.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(runs.load(Ordering::SeqCst) <= 4 * CALLS);
    }
}

/// Every interleaving of two and three callers: `make loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Condvar;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    struct LoomEvent {
        generation: Mutex<u64>,
        notified: Condvar,
    }

    impl Event for LoomEvent {
        fn generation(&self) -> u64 {
            *self.generation.lock().unwrap()
        }

        fn wait(&self, seen: u64, _: Option<Duration>) -> bool {
            let mut generation = self.generation.lock().unwrap();
            while *generation == seen {
                generation = self.notified.wait(generation).unwrap();
            }
            true
        }

        fn notify(&self) {
            *self.generation.lock().unwrap() += 1;
            self.notified.notify_all();
        }
    }

    fn explore(callers: usize, fails_first: bool) {
        loom::model(move || {
            let event = LoomEvent { generation: Mutex::new(0), notified: Condvar::new() };
            let all = loom::sync::Arc::new((
                OneForAll::new(Arc::new(event)),
                AtomicUsize::new(0),
                AtomicUsize::new(0),
                AtomicUsize::new(0),
            ));
            let call = move |all: loom::sync::Arc<(OneForAll, AtomicUsize, AtomicUsize, AtomicUsize)>,
                             caller: usize| {
                let (one_for_all, written, durable, runs) = &*all;
                let mine = 1 << caller;
                written.fetch_or(mine, Ordering::SeqCst);
                let outcome = one_for_all.run(|| {
                    let is_first = runs.fetch_add(1, Ordering::SeqCst) == 0;
                    if is_first && fails_first {
                        return Err(());
                    }
                    durable.fetch_or(written.load(Ordering::SeqCst), Ordering::SeqCst);
                    Ok(())
                });
                assert!(outcome.is_err() || durable.load(Ordering::SeqCst) & mine != 0, "a call was not covered");
                outcome.is_err()
            };
            let others: Vec<_> = (1..callers)
                .map(|caller| {
                    let all = loom::sync::Arc::clone(&all);
                    loom::thread::spawn(move || call(all, caller))
                })
                .collect();
            let mut failures = usize::from(call(all, 0));
            failures += others.into_iter().map(|other| usize::from(other.join().unwrap())).sum::<usize>();
            assert_eq!(failures, usize::from(fails_first), "one call is told of the failure");
        });
    }

    #[test]
    fn every_call_of_two_is_covered() {
        explore(2, false);
    }

    #[test]
    fn a_failure_is_told_to_one_of_two() {
        explore(2, true);
    }

    #[test]
    fn every_call_of_three_is_covered() {
        explore(3, false);
    }
}
