//! Threads that wait for the disk on a quarter of the processors, and all others on the rest (`--pin`).
//!
//! A thread that waits for a fast disk looks again and again. Apart from threads that serve clients, it takes no time
//! from them, and none of them delays it when an answer comes. These threads are loggers, and threads that poll for
//! reads. They share their processors: on a machine with four, it is one.
//!
//! A thread that is not started here inherits the processors of the thread that starts it.

use crate::failure::Failure;
use rustix::io::Result as SystemResult;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use situ_base::{Env, Event, Executor, JobHandle, ThreadExecutor};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// With fewer processors, one of its own for the disk would be too much.
const PROCESSORS_MIN: usize = 4;
/// The names of threads that wait for the disk.
const WAITING: [&str; 3] = ["situ-log", "hash-log", "situ-reads"];

/// Returns an environment whose threads are pinned, and keeps this thread off the processors for the disk.
///
/// # Errors
/// The process may use too few processors, or the system refuses.
pub(super) fn pinned() -> Result<Env, Failure> {
    let refused = |error: rustix::io::Errno| Failure::new("--pin: the system refuses", io::Error::from(error));
    let allowed = sched_getaffinity(None).map_err(refused)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
    if processors.len() < PROCESSORS_MIN {
        let count = processors.len();
        let text = format!("--pin needs {PROCESSORS_MIN} processors, and this process may use {count}");
        return Err(Failure::usage(text));
    }
    // Before a thread that may use one processor only asks how many there are.
    situ_device::fix_spinning_limit();
    let executor = Pinned::of(&processors);
    set(&executor.others).map_err(refused)?;
    Ok(Env { executor: Arc::new(executor), ..Env::system() })
}

fn set(processors: &[usize]) -> SystemResult<()> {
    let mut all = CpuSet::new();
    processors.iter().for_each(|number| all.set(*number));
    sched_setaffinity(None, &all)
}

/// Starts threads on their processors.
struct Pinned {
    /// For threads that wait for the disk, in turns.
    for_disk: Vec<usize>,
    others: Vec<usize>,
    next: AtomicUsize,
}

impl Pinned {
    fn of(processors: &[usize]) -> Pinned {
        let (others, for_disk) = processors.split_at(processors.len() - processors.len() / PROCESSORS_MIN);
        Pinned { for_disk: for_disk.to_vec(), others: others.to_vec(), next: AtomicUsize::new(0) }
    }

    /// Returns the processors of a thread of this name.
    fn processors(&self, name: &str) -> Vec<usize> {
        if !WAITING.contains(&name) || self.for_disk.is_empty() {
            return self.others.clone();
        }
        vec![self.for_disk[self.next.fetch_add(1, Ordering::Relaxed) % self.for_disk.len()]]
    }
}

impl Executor for Pinned {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
        let processors = self.processors(name);
        let pinned = move || {
            // A processor may have been taken from the process since: then the thread runs where it may.
            let _ = set(&processors);
            job();
        };
        ThreadExecutor.spawn(name, Box::new(pinned))
    }

    fn event(&self) -> Arc<dyn Event> {
        ThreadExecutor.event()
    }

    fn yield_once(&self) {
        ThreadExecutor.yield_once();
    }

    fn is_machine(&self) -> bool {
        ThreadExecutor.is_machine()
    }

    fn cores(&self) -> usize {
        ThreadExecutor.cores()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_quarter_of_the_processors_is_for_the_disk() {
        for (count, for_disk) in [(4, 1), (7, 1), (8, 2), (64, 16)] {
            let pinned = Pinned::of(&(10..10 + count).collect::<Vec<_>>());
            assert_eq!((pinned.for_disk.len(), pinned.others.len()), (for_disk, count - for_disk));
            assert_eq!(pinned.processors("situ-flush"), (10..10 + count - for_disk).collect::<Vec<_>>());
            let loggers: Vec<_> = (0..for_disk + 1).map(|_| pinned.processors("situ-log")).collect();
            assert_eq!(loggers[0], [10 + count - for_disk]);
            assert_eq!(loggers[for_disk], loggers[0], "in turns");
        }
    }

    #[test]
    fn a_thread_runs_on_its_processors() {
        let allowed = sched_getaffinity(None).unwrap();
        let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
        let (first, last) = (processors[0], processors[processors.len() - 1]);
        let pinned = Pinned { for_disk: vec![last], others: vec![first], next: AtomicUsize::new(0) };
        for (name, processor) in [("situ-log", last), ("situ-reads", last), ("situ-compact", first)] {
            let (tell, told) = mpsc::channel();
            let job =
                pinned.spawn(name, Box::new(move || tell.send(sched_getaffinity(None).unwrap()).unwrap())).unwrap();
            job.join().unwrap();
            let at = told.recv().unwrap();
            assert!(at.count() == 1 && at.is_set(processor), "{name}");
        }
    }
}
