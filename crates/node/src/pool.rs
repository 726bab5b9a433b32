//! A few threads for what may wait, with a bounded queue.
//!
//! **Threads.** A thread begins when a job finds none free, up to the bound, and stays until the pool is closed. Any thread may submit.
//! No lock is held while a job runs. **Failure.** A full queue, or a closed pool, gives the job back. A job that panics ends nothing else.
//! If the system refuses a first thread, the job is given back, too.

use situ_base::{Env, Event, JobHandle, lock};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// See the module.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
}

struct Shared {
    env: Env,
    name: &'static str,
    threads_max: usize,
    queue_max: usize,
    state: Mutex<State>,
    work: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    is_closed: bool,
}

impl Pool {
    pub(crate) fn new(env: &Env, name: &'static str, threads_max: usize, queue_max: usize) -> Pool {
        let (state, work) = (Mutex::default(), env.executor.event());
        let shared = Shared { env: env.clone(), name, threads_max: threads_max.max(1), queue_max, state, work };
        Pool { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Takes a job, or gives it back.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let begins = {
            let mut state = lock(&self.shared.state);
            if state.is_closed || state.jobs.len() >= self.shared.queue_max {
                return Err(job);
            }
            let begins = state.idle <= state.jobs.len() && state.threads < self.shared.threads_max;
            state.jobs.push_back(job);
            state.threads += usize::from(begins);
            begins
        };
        if begins {
            return self.begin();
        }
        self.shared.work.notify();
        Ok(())
    }

    fn begin(&self) -> Result<(), Job> {
        let shared = Arc::clone(&self.shared);
        match self.shared.env.executor.spawn(self.shared.name, Box::new(move || shared.work())) {
            Ok(thread) => lock(&self.threads).push(thread),
            Err(_) => {
                let mut state = lock(&self.shared.state);
                state.threads -= 1;
                // Without any thread, nobody would ever run it. The job may be another one by now: then that one waits no longer.
                if state.threads == 0 {
                    return state.jobs.pop_back().map_or(Ok(()), Err);
                }
            }
        }
        Ok(())
    }

    /// Takes no more jobs, runs those that wait, and returns when all threads have ended.
    pub(crate) fn close(&self) {
        lock(&self.shared.state).is_closed = true;
        self.shared.work.notify();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // Panics of jobs are caught where they happen.
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Waits for a job; `None` when the pool is closed and none waits.
    fn next(&self) -> Option<Job> {
        loop {
            let seen = self.work.generation();
            {
                let mut state = lock(&self.state);
                if let Some(job) = state.jobs.pop_front() {
                    return Some(job);
                }
                if state.is_closed {
                    return None;
                }
                state.idle += 1;
            }
            self.work.wait(seen, None);
            lock(&self.state).idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn jobs_run_on_few_threads_and_what_does_not_fit_comes_back() {
        let env = Env::system();
        let pool = Pool::new(&env, "test", 2, 2);
        let (gate, done) = (env.executor.event(), Arc::new(AtomicUsize::new(0)));
        let (seen, begun) = (gate.generation(), Arc::new(AtomicUsize::new(0)));
        let job = || {
            let (gate, done, begun) = (Arc::clone(&gate), Arc::clone(&done), Arc::clone(&begun));
            Box::new(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                gate.wait(seen, None);
                done.fetch_add(1, Ordering::SeqCst);
            }) as Job
        };
        for running in 1..=2 {
            assert!(pool.submit(job()).is_ok());
            while begun.load(Ordering::SeqCst) < running {
                std::thread::yield_now();
            }
        }
        assert!(pool.submit(job()).is_ok() && pool.submit(job()).is_ok());
        assert!(pool.submit(job()).is_err(), "the queue is full");
        assert_eq!(begun.load(Ordering::SeqCst), 2, "two threads at most");
        gate.notify();
        pool.close();
        assert_eq!(done.load(Ordering::SeqCst), 4, "what was taken is run");
        assert!(pool.submit(job()).is_err(), "the pool is closed");
    }
}
