//! Waits of one thread for a queue, each of which a completion ends, or a call of another thread.
//!
//! 1. The thread spins as long as that pays ([`crate::spin`]), and looks for both.
//! 2. Then it sleeps by the queue's [`Watch`]. A thread that calls makes its condition true first, and wakes the watch
//!    after that.
//!
//! The watch may have been woken for what the spinning thread has found already. So the thread sleeps again until there
//! is something new.

use crate::spin::{Spinner, spin_unless};
use crate::{Completion, Queue, Watch};
use situ_base::Env;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep: a queue has to be looked at now and then, for what takes too long.
const SLICE: Duration = Duration::from_millis(100);

/// The waits of the thread that uses a queue.
pub struct Waiter {
    env: Env,
    watch: Arc<dyn Watch>,
    spinner: Spinner,
}

impl Waiter {
    /// Returns the waits for `queue`, which has nothing in flight; `None` if no thread could end them.
    ///
    /// # Errors
    /// As [`Queue::watch`].
    pub fn new(env: &Env, queue: &mut dyn Queue) -> io::Result<Option<Waiter>> {
        Ok(queue.watch()?.map(|watch| Waiter { env: env.clone(), watch, spinner: Spinner::new() }))
    }

    /// Returns the watch that ends a sleep.
    pub fn watch(&self) -> &Arc<dyn Watch> {
        &self.watch
    }

    /// Collects finished operations into `done`, and returns how many. Without any, waits for the first, for
    /// `is_called`, or a while. There must be something in flight.
    pub fn wait(&mut self, queue: &mut dyn Queue, done: &mut Vec<Completion>, is_called: &dyn Fn() -> bool) -> usize {
        let found = queue.poll(done);
        if found > 0 || is_called() {
            return found;
        }
        let began = self.env.clock.now();
        if self.env.executor.is_machine() {
            let found = spin_unless(&mut self.spinner, SLICE, || queue.poll(done), is_called);
            if found > 0 {
                return found;
            }
        }
        loop {
            let waited = self.env.clock.now().saturating_sub(began);
            if is_called() || waited >= SLICE {
                return 0;
            }
            self.watch.wait(Some(SLICE - waited));
            let found = queue.poll(done);
            if found > 0 {
                self.spinner.slept(self.env.clock.now().saturating_sub(began));
                return found;
            }
        }
    }
}
