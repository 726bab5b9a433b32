//! The application's decisions over entries while they are rewritten anyway.
//!
//! A filter often decides by something that changes while the program runs: a clock, a date before which all is dead. A
//! task has to give the same bytes whenever and wherever it runs (promise 5 of `docs/architecture.md`). So the filter
//! *freezes* what it decides by into plain bytes, its parameters, once, when the tasks of a job are made. The
//! parameters travel in the task; the unit that runs the task gives them back to the filter with each entry.
//!
//! ```text
//! job ──freeze──> parameters ──in every task of the job──> decide(context with the parameters, key, value)
//! ```
//!
//! A unit in another process finds the filter by its name and interprets the same bytes.
//!
//! Rejected: a second object that the filter makes of the parameters once for each task. `benches/merge.rs` compares a
//! filter that reads two integers out of its parameters for each entry with one that has them at hand. It shows no
//! difference. And one trait is easier to implement than two. Large parameters should have a form that needs no
//! parsing.

use crate::error::{Result, TaskError};
use situ_table::{DeadBefore, Lifetime};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The fate of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It stays as it is.
    Keep,
    /// It is deleted, as by a `delete` at the entry's own sequence number.
    Remove,
    /// It stays with another value.
    Change(Vec<u8>),
}

/// The facts that a filter may decide by, apart from the entry. They are the same for all entries of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterContext<'a> {
    /// The time at which the task was made, since 1970 UTC.
    pub now_unix: Duration,
    /// The level that the output goes to.
    pub level: u32,
    /// The bytes that [`CompactionFilter::freeze`] returned when the task was made.
    pub parameters: &'a [u8],
}

impl<'a> FilterContext<'a> {
    /// Makes a context, for units and for tests of filters.
    pub fn new(now_unix: Duration, level: u32, parameters: &'a [u8]) -> FilterContext<'a> {
        FilterContext { now_unix, level, parameters }
    }
}

/// Looks at entries during compaction and may remove or change them: expiry, schema changes.
///
/// A filter sees an entry only if it is the newest version of its key among the task's inputs. No snapshot may protect
/// the entry, and no tombstone may cover it. A filter may see the same entry in many compactions, or in none for long.
/// It is a way to save space, never the only thing that hides data from readers.
///
/// A value in a value log is not read for a filter. A filter that needs a few bytes at the beginning of a value gives
/// their number ([`value_prefix_bytes`](CompactionFilter::value_prefix_bytes)): the table then keeps these bytes next
/// to the value's handle. The values of a keyspace with any other filter stay in tables. A collection of the value log
/// may write an entry again that a filter removes or changes at the same moment. Then readers see the entry as it was,
/// until the next compaction shows it to the filter.
///
/// The same task has to give the same bytes whenever and wherever it runs. So [`decide`](CompactionFilter::decide) must
/// depend on its arguments alone. A filter may decide by something that changes: a clock, a counter, a setting. Such a
/// filter gives it as bytes in [`freeze`](CompactionFilter::freeze), and finds these bytes in the context of each
/// decision.
///
/// A panic in a filter fails the task, not the process, where the unit can contain it.
pub trait CompactionFilter: Send + Sync {
    /// Returns the filter's name, for logs, and for units that know some filters by name.
    fn name(&self) -> &str;

    /// Returns the filter's parameters at this moment. Every program that knows the filter's name can interpret these
    /// bytes, in another process too. `now_unix` is the wall-clock time since 1970 UTC that the context will show.
    ///
    /// The engine asks once for each compaction job; all tasks of the job get these bytes, and so does a task that is
    /// run again. They should be short: every task has a copy. The default is no bytes, for a filter that decides by
    /// the entry, the time and the level alone.
    fn freeze(&self, now_unix: Duration) -> Vec<u8> {
        let _ = now_unix;
        Vec::new()
    }

    /// Returns the number of bytes at the beginning of a value that the filter decides by, if it does not need all of
    /// it. Of a value in a value log, the filter gets these bytes and no others. The default needs all of every value.
    fn value_prefix_bytes(&self) -> Option<usize> {
        None
    }

    /// Returns the lifetime of an entry, if its value has one. `value` is the same as for
    /// [`decide`](CompactionFilter::decide), and the result must depend on it alone. Tables count the lifetimes of
    /// their entries, so an idle store finds tables with removable entries without reading them. The default returns
    /// `None`. Entries then go only when levels are full.
    fn lifetime(&self, value: &[u8]) -> Option<Lifetime> {
        let _ = value;
        None
    }

    /// Returns the bounds below which entries are dead now: those that [`decide`](CompactionFilter::decide) would
    /// remove with the parameters that [`freeze`](CompactionFilter::freeze) returns now. An idle store calls this to
    /// find tables to rewrite. The default is `None`.
    fn dead_before(&self, now_unix: Duration) -> Option<DeadBefore> {
        let _ = now_unix;
        None
    }

    /// Decides the fate of `key`. The answer must depend on the three arguments alone: not on what the filter has
    /// learned since the task was made, and on no clock. `value` is the value, or its [first
    /// bytes](CompactionFilter::value_prefix_bytes).
    fn decide(&self, context: &FilterContext<'_>, key: &[u8], value: &[u8]) -> Decision;
}

/// A filter as it is part of a task: the code, which has a name, and the parameters that it decides by.
#[derive(Clone)]
pub struct FrozenFilter {
    /// The code, and its name.
    pub code: Arc<dyn CompactionFilter>,
    /// The bytes that the filter decides by.
    pub parameters: Arc<[u8]>,
}

impl FrozenFilter {
    /// Freezes a filter with what it decides by now.
    ///
    /// # Errors
    /// [`TaskError::Panicked`]: the filter panicked.
    pub fn freeze(code: &Arc<dyn CompactionFilter>, now_unix: Duration) -> Result<FrozenFilter> {
        let parameters = catch_unwind(AssertUnwindSafe(|| code.freeze(now_unix)))
            .map_err(|payload| TaskError::of_panic(&*payload))?;
        Ok(FrozenFilter { code: Arc::clone(code), parameters: parameters.into() })
    }

    /// Returns the bounds below which a filter removes entries now, if it has any.
    ///
    /// # Errors
    /// [`TaskError::Panicked`]: the filter panicked.
    pub fn dead_before(code: &Arc<dyn CompactionFilter>, now_unix: Duration) -> Result<Option<DeadBefore>> {
        catch_unwind(AssertUnwindSafe(|| code.dead_before(now_unix))).map_err(|payload| TaskError::of_panic(&*payload))
    }
}

impl fmt::Debug for FrozenFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes of parameters)", self.code.name(), self.parameters.len())
    }
}
