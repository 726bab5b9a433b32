//! Work that one thread does for all callers that ask for it, and that no caller waits for.
//!
//! 1. A caller asks. If no turn is under way, the caller takes turns itself. Otherwise it leaves at once.
//! 2. The thread that takes turns takes another one if a caller has asked since its last turn began.
//!
//! **Invariants.** One turn at a time. After each call, a turn begins that has not begun before the call.
//!
//! **Failure.** A turn that panics ends the turns of its thread. The next call begins them again.
//!
//! Rejected: two atomic numbers without a lock. The thread that ends and the caller that asks would have to order a
//! store before a load, each of its own. A lock says so plainly, and costs nothing compared with a turn.

#![allow(unexpected_cfgs, reason = "cfg(loom) is set by hand to explore the model")]

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;

#[derive(Debug, Default)]
struct Asked {
    is_turning: bool,
    /// True if a caller has asked since the last turn began.
    again: bool,
}

/// See the [module's](self) steps: one thread takes turns, the others leave.
///
/// # Example
/// ```
/// let (turns, queue) = (situ_base::Turns::new(), std::sync::Mutex::new(vec![1, 2, 3]));
/// turns.take(|| queue.lock().unwrap().clear());
/// assert!(queue.lock().unwrap().is_empty());
/// ```
pub struct Turns {
    asked: Mutex<Asked>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::new()
    }
}

impl Turns {
    /// Creates turns, with no turn under way.
    pub fn new() -> Turns {
        Turns { asked: Mutex::new(Asked::default()) }
    }

    /// Makes a turn begin after this call did: on this thread, or on the one that takes turns now.
    pub fn take(&self, mut turn: impl FnMut()) {
        let is_mine = self.lock(|asked| {
            asked.again = true;
            !std::mem::replace(&mut asked.is_turning, true)
        });
        if !is_mine {
            return;
        }
        let turning = Turning(self);
        while self.goes_on() {
            turn();
        }
        // The last look has ended the turns.
        std::mem::forget(turning);
    }

    /// Returns true if a turn is under way.
    pub fn is_turning(&self) -> bool {
        self.lock(|asked| asked.is_turning)
    }

    /// Begins the next turn if a caller has asked; otherwise ends the turns.
    fn goes_on(&self) -> bool {
        self.lock(|asked| {
            let again = std::mem::take(&mut asked.again);
            asked.is_turning = again;
            again
        })
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Asked) -> T) -> T {
        #[cfg(not(loom))]
        return look(&mut crate::sync::lock(&self.asked));
        #[cfg(loom)]
        return look(&mut self.asked.lock().unwrap());
    }
}

/// The turns of one thread; ends them when a turn panics.
struct Turning<'a>(&'a Turns);

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.0.lock(|asked| asked.is_turning = false);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn every_call_is_followed_by_a_turn_and_turns_never_overlap() {
        const CALLS: u64 = 20_000;
        let (turns, asked, seen, inside) = (Turns::new(), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..CALLS {
                        asked.fetch_add(1, Ordering::SeqCst);
                        turns.take(|| {
                            assert!(!inside.swap(true, Ordering::SeqCst), "two turns at a time");
                            seen.store(asked.load(Ordering::SeqCst), Ordering::SeqCst);
                            inside.store(false, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert_eq!((seen.into_inner(), turns.is_turning()), (4 * CALLS, false));
    }

    #[test]
    fn a_turn_that_panics_does_not_end_them_for_ever() {
        let turns = Turns::new();
        let panics = || turns.take(|| panic!("in a turn"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        let mut count = 0;
        turns.take(|| count += 1);
        assert_eq!((count, turns.is_turning()), (1, false));
    }
}

/// Every interleaving of two and three callers: `make loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    fn explore(callers: usize) {
        loom::model(move || {
            let all = Arc::new((Turns::new(), AtomicUsize::new(0), AtomicUsize::new(0)));
            let call = |all: &(Turns, AtomicUsize, AtomicUsize)| {
                let (turns, asked, seen) = all;
                asked.fetch_add(1, Ordering::SeqCst);
                turns.take(|| seen.store(asked.load(Ordering::SeqCst), Ordering::SeqCst));
            };
            let others: Vec<_> = (1..callers)
                .map(|_| {
                    let all = Arc::clone(&all);
                    loom::thread::spawn(move || call(&all))
                })
                .collect();
            call(&all);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(all.2.load(Ordering::SeqCst), callers, "a call was followed by no turn");
        });
    }

    #[test]
    fn every_call_of_two_is_followed_by_a_turn() {
        explore(2);
    }

    #[test]
    fn every_call_of_three_is_followed_by_a_turn() {
        explore(3);
    }
}
