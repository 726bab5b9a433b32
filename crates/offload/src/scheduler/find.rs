//! Are the files of a unit elsewhere where it says, and what it says?
//!
//! 1. A thread of its own asks the host about each table of an answer: [`TaskHost::find`].
//! 2. What was found waits for the next turn of the scheduler, and the thread notifies the scheduler's event.
//!
//! **Threads.** [`SEARCHES_MAX`] at most, one for each answer that is looked at, from the executor. It ends early once
//! the host of the job answers "cancelled". Other answers wait for it.
//!
//! Rejected: to ask in the turn. The host reads the files, and a node that has just gone would hold up all tasks of all
//! units.

use crate::ran::Ran;
use situ_base::{Env, Event, JobHandle, lock};
use situ_compaction::{TaskError, TaskHost, TaskOutput};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The maximum number of answers that are looked at, at a time. A look at a table takes two round trips to a node.
pub(crate) const SEARCHES_MAX: usize = 2;

/// All tables are there, or what is wrong, in words.
pub(crate) type Found = Result<(), String>;

/// The answer of an attempt elsewhere, while its files are looked at.
pub(crate) struct Answer {
    pub(crate) output: TaskOutput,
    pub(crate) elapsed: Duration,
    pub(crate) ran: Ran,
    /// The time at which it came.
    pub(crate) ended: Duration,
    /// `None` while there is no thread for it.
    pub(crate) search: Option<Search>,
}

/// A look at the files of one answer.
pub(crate) struct Search {
    found: Arc<Mutex<Option<Found>>>,
    handle: Box<dyn JobHandle>,
    under_way: Arc<AtomicUsize>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Search {
    /// Begins to look; `None` if there is no thread for it now. `under_way` counts those that look, and is changed by
    /// one thread at a time.
    pub(crate) fn begin(
        under_way: &Arc<AtomicUsize>,
        (env, event): (&Env, &Arc<dyn Event>),
        host: Arc<dyn TaskHost>,
        output: &TaskOutput,
    ) -> Option<Search> {
        if under_way.load(Ordering::Relaxed) >= SEARCHES_MAX {
            return None;
        }
        let found = Arc::new(Mutex::new(None));
        let (slot, event, tables) = (Arc::clone(&found), Arc::clone(event), output.tables.clone());
        let work = move || {
            let look = || {
                tables.iter().try_for_each(|table| match host.cancelled() {
                    true => Err("the job was given up".to_owned()),
                    false => host.find(table),
                })
            };
            let outcome = catch_unwind(AssertUnwindSafe(look));
            drop(host);
            let panicked = |_| Err(TaskError::Panicked("a look at a unit's files".to_owned()).to_string());
            *lock(&slot) = Some(outcome.unwrap_or_else(panicked));
            event.notify();
        };
        let handle = env.executor.spawn("find", Box::new(work)).ok()?;
        under_way.fetch_add(1, Ordering::Relaxed);
        Some(Search { found, handle, under_way: Arc::clone(under_way) })
    }

    /// Returns the result of the search, once it is known. The thread has let go of the host by then.
    pub(crate) fn outcome(&self) -> Option<Found> {
        let found = lock(&self.found).take()?;
        // The thread does nothing any more but return.
        let _ = self.handle.join();
        Some(found)
    }
}
