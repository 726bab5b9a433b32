//! The one way to walk over sorted entries.

use crate::key::KeyRef;
use situ_storage::Result;

/// A position in a sorted sequence of entries: a memtable, a block, a table, a level, or a merge of those.
///
/// A new cursor stands nowhere ([`valid`](Cursor::valid) is false). A movement that fails leaves it standing nowhere
/// and returns the error; the error is returned once, and the cursor may be positioned again.
pub trait Cursor: Send {
    /// Returns true if it stands on an entry.
    fn valid(&self) -> bool;

    /// Returns the entry's key. The cursor must stand on an entry.
    fn key(&self) -> KeyRef<'_>;

    /// Returns the entry's value. The cursor must stand on an entry.
    fn value(&self) -> &[u8];

    /// Moves to the first entry.
    ///
    /// # Errors
    /// Reading a block failed.
    fn first(&mut self) -> Result<()>;

    /// Moves to the last entry.
    ///
    /// # Errors
    /// Reading a block failed.
    fn last(&mut self) -> Result<()>;

    /// Moves to the first entry at or behind `target`.
    ///
    /// # Errors
    /// Reading a block failed.
    fn seek(&mut self, target: KeyRef<'_>) -> Result<()>;

    /// Moves to the last entry at or before `target`.
    ///
    /// # Errors
    /// Reading a block failed.
    fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()>;

    /// Moves one entry forward. The cursor must stand on an entry.
    ///
    /// # Errors
    /// Reading a block failed.
    fn next(&mut self) -> Result<()>;

    /// Moves one entry backward. The cursor must stand on an entry.
    ///
    /// # Errors
    /// Reading a block failed.
    fn prev(&mut self) -> Result<()>;
}
