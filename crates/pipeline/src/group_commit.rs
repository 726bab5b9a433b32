//! Synced writers that come together share a write of the log.
//!
//! Many writers on few processors take turns of milliseconds. Each finds the log idle, as the others do not run, and
//! writes a page for its own record. It is the same page again and again, with one record more each time. Group commit
//! never comes about where the disk is faster than a switch of threads. So a writer that has put its record into the
//! log's buffer, and knows of more writers than the processors can run, yields the processor once. The others put
//! theirs in. The writer that comes back first writes for all, and a writer that comes back later finds it done.
//!
//! 1. Synced writers that wait are counted while they are [inside](Inside).
//! 2. With more than [`WRITERS_A_CORE`] for each processor, a writer [yields](GroupCommit::yield_once) before it
//!    writes.
//! 3. A processor may have other things to do. A writer that got it back after more than [`LATE`] yielded to a
//!    computation, which keeps it for milliseconds. While that happens on one processor of several, the others make up
//!    for it; where it happens on all, writers get next to nothing. So there is a credit. A writer that comes back in
//!    time earns 1, one that comes back late costs [`LATE_COST`]. When the credit is used up, no writer yields for
//!    [`REST`] times as long as the last one took. On a machine that is busy with other things that is one part in
//!    `REST` of the time.
//!
//! **Invariant.** It only decides who runs next: a record's way, its order and its durability do not depend on it.
//! **Threads.** Atomics; writers that come back late at the same moment may overwrite each other's rest and credit.
//! **Rejected:** to sleep until a leader has written: two switches and a wake-up cost what a write costs. To give way
//! with few writers: they wait longer and gain nothing, as a disk that is waited for gathers them anyway.

use situ_base::Env;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The number of writers for each processor up to which no writer yields.
const WRITERS_A_CORE: usize = 2;
/// A round of 100 writers takes less.
const LATE: Duration = Duration::from_micros(500);
/// The credit that a late writer costs. One processor of two that computes makes a few writers late for each hundred
/// that are in time; both, most of them.
const LATE_COST: i64 = 8;
/// Enough for some tens of milliseconds in which all are late.
const CREDIT_MAX: i64 = 4096;
/// The factor by which the time without yielding is longer than the time that was lost.
const REST: u32 = 32;

/// The number of writers that are about to make a write durable, and the credit that decides if yielding pays.
#[derive(Debug)]
// Each writer changes it: in cache lines of its own.
#[repr(align(128))]
pub(crate) struct GroupCommit {
    writers_max: usize,
    inside: AtomicUsize,
    credit: AtomicI64,
    rest_until_ns: AtomicU64,
}

/// A synced writer, until this is dropped.
pub(crate) struct Inside<'a> {
    group_commit: &'a GroupCommit,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.group_commit.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl GroupCommit {
    pub(crate) fn new(cores: usize) -> GroupCommit {
        GroupCommit {
            writers_max: cores * WRITERS_A_CORE,
            inside: AtomicUsize::new(0),
            credit: AtomicI64::new(0),
            rest_until_ns: AtomicU64::new(0),
        }
    }

    /// Counts a writer that comes in.
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.inside.fetch_add(1, Ordering::Relaxed);
        Inside { group_commit: self }
    }

    /// Yields to other writers if their number makes it pay. Returns true if it did.
    pub(crate) fn yield_once(&self, env: &Env) -> bool {
        if self.inside.load(Ordering::Relaxed) <= self.writers_max {
            return false;
        }
        let began = env.clock.now();
        if (began.as_nanos() as u64) < self.rest_until_ns.load(Ordering::Relaxed) {
            return false;
        }
        env.executor.yield_once();
        let now = env.clock.now();
        let took = now.saturating_sub(began);
        if took <= LATE {
            if self.credit.load(Ordering::Relaxed) < CREDIT_MAX {
                self.credit.fetch_add(1, Ordering::Relaxed);
            }
        } else if self.credit.fetch_sub(LATE_COST, Ordering::Relaxed) < LATE_COST {
            self.credit.store(0, Ordering::Relaxed);
            let rest_until = now.saturating_add(took.saturating_mul(REST));
            self.rest_until_ns.store(rest_until.as_nanos() as u64, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_base::{Clock, Event, Executor, JobHandle};
    use std::io;
    use std::sync::Arc;

    /// A machine with one thread: time passes only while it gives way.
    #[derive(Default)]
    struct Machine {
        now_us: AtomicU64,
        /// The time for which others keep the processor.
        busy_us: AtomicU64,
        gave_way: AtomicUsize,
    }

    impl Clock for Machine {
        fn now(&self) -> Duration {
            Duration::from_micros(self.now_us.load(Ordering::Relaxed))
        }

        fn unix(&self) -> Duration {
            self.now()
        }

        fn sleep(&self, _: Duration) {}
    }

    impl Executor for Machine {
        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn event(&self) -> Arc<dyn Event> {
            Env::system().executor.event()
        }

        fn yield_once(&self) {
            self.gave_way.fetch_add(1, Ordering::Relaxed);
            self.now_us.fetch_add(self.busy_us.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn machine(busy_us: u64) -> (Arc<Machine>, Env) {
        let machine = Arc::new(Machine { busy_us: AtomicU64::new(busy_us), ..Machine::default() });
        (Arc::clone(&machine), Env { clock: Arc::clone(&machine) as _, executor: machine as _ })
    }

    #[test]
    fn few_writers_do_not_give_way() {
        let (machine, env) = machine(50);
        let group_commit = GroupCommit::new(2);
        let mut inside: Vec<_> = (0..4).map(|_| group_commit.enter()).collect();
        assert!(!group_commit.yield_once(&env));
        inside.push(group_commit.enter());
        assert!(group_commit.yield_once(&env));
        inside.clear();
        assert!(!group_commit.yield_once(&env));
        assert_eq!(machine.gave_way.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_busy_machine_costs_little() {
        let (machine, env) = machine(3000);
        let group_commit = GroupCommit::new(1);
        let _inside: Vec<_> = (0..16).map(|_| group_commit.enter()).collect();
        // A write takes 10 us; ten seconds of them.
        while machine.now() < Duration::from_secs(10) {
            group_commit.yield_once(&env);
            machine.now_us.fetch_add(10, Ordering::Relaxed);
        }
        let lost_us = machine.gave_way.load(Ordering::Relaxed) as u64 * 3000;
        assert!((200_000..=320_000).contains(&lost_us), "{lost_us} us of 10 s");
    }

    #[test]
    fn one_busy_processor_of_several_does_not_end_it() {
        let (machine, env) = machine(50);
        let group_commit = GroupCommit::new(1);
        let _inside: Vec<_> = (0..16).map(|_| group_commit.enter()).collect();
        (0..200).for_each(|_| assert!(group_commit.yield_once(&env)));
        // Eight that wait for the same processor come back late, every few milliseconds.
        for _ in 0..1000 {
            machine.busy_us.store(3000, Ordering::Relaxed);
            (0..8).for_each(|_| assert!(group_commit.yield_once(&env)));
            machine.busy_us.store(50, Ordering::Relaxed);
            (0..300).for_each(|_| assert!(group_commit.yield_once(&env)));
        }
        machine.busy_us.store(3000, Ordering::Relaxed);
        let late = (0..1000).take_while(|_| group_commit.yield_once(&env)).count();
        assert!(late <= (CREDIT_MAX / LATE_COST) as usize + 1, "{late} gave way to others");
    }

    #[test]
    fn after_a_rest_they_gather_again() {
        let (machine, env) = machine(3000);
        let group_commit = GroupCommit::new(1);
        let _inside: Vec<_> = (0..16).map(|_| group_commit.enter()).collect();
        assert!(group_commit.yield_once(&env));
        machine.busy_us.store(50, Ordering::Relaxed);
        assert!(!group_commit.yield_once(&env));
        machine.now_us.fetch_add(3000 * u64::from(REST), Ordering::Relaxed);
        assert!((0..1000).all(|_| group_commit.yield_once(&env)));
    }
}
