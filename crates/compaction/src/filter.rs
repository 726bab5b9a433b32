//! What an application may say about entries while they are rewritten anyway.

use std::time::Duration;

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It stays as it is.
    Keep,
    /// It is deleted, as by a `delete` at the entry's own sequence number.
    Remove,
    /// It stays with another value.
    Change(Vec<u8>),
}

/// Looks at entries during compaction and may remove or change them: expiry, schema changes.
///
/// A filter sees an entry only if it is the newest version of its key among the task's inputs, no snapshot protects it,
/// no tombstone covers it and its value lies in the table (not in a value log). It may see the same entry in many
/// compactions, or in none for long: it is a way to save space, never the only thing that hides data from readers.
///
/// The decision must depend on the arguments alone: the same task has to give the same bytes wherever it runs. That is
/// why the time is an argument. A panic in a filter fails the task, not the process, where the unit can contain it.
pub trait CompactionFilter: Send + Sync {
    /// For logs and for units that know some filters by name.
    fn name(&self) -> &str;

    /// What becomes of `key`. `now_unix` is the time at which the task was made, since 1970 UTC; `level` is the level
    /// that the output goes to.
    fn decide(&self, now_unix: Duration, level: u32, key: &[u8], value: &[u8]) -> Decision;
}
