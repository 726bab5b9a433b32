//! Point reads: memtables, then tables, newest first.
//!
//! A source that is newer holds newer entries for every key, so the first point entry found decides, unless a range
//! tombstone of the same or a newer source covers it. As soon as a tombstone covers the key and the source it came from
//! has no newer entry, nothing older can be alive, and the search ends.
//!
//! The entry may be a handle of the value log. Then the search has ended, and the value is read there.

use crate::base::value::Value;
use crate::versions::version::TableFile;
use crate::versions::view::View;
use crate::{Error, Result};
use situ_storage::{Error as StorageError, Excerpt};
use situ_table::range_del::TombstoneIndex;
use situ_table::{KeyKind, ReadOptions as TableReadOptions, Trailer, hash_key};
use std::sync::Arc;

/// A search for one key as of one sequence number.
pub(crate) struct Lookup<'a> {
    pub(crate) key: &'a [u8],
    hash: u64,
    pub(crate) sequence: u64,
    pub(crate) options: TableReadOptions,
    /// The newest range tombstone met so far that covers the key.
    cover: u64,
}

/// The answer of a source about the key.
enum Answer {
    Value(Value),
    /// The value lies in the value log.
    Pointer(Found),
    Gone,
    NotHere,
}

/// The newest entry of a key, as it stands in a memtable or a table.
pub(crate) struct Found {
    /// The pointer that stands there for the value.
    pub(crate) pointer: Value,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(key: &'a [u8], sequence: u64, options: TableReadOptions) -> Lookup<'a> {
        Lookup { key, hash: hash_key(key), sequence, options, cover: 0 }
    }

    pub(crate) fn run(&mut self, view: &View) -> Result<Option<Value>> {
        let found = match self.search(view) {
            Ok(Answer::Value(value)) => return Ok(Some(value)),
            Ok(Answer::Gone | Answer::NotHere) => return Ok(None),
            Ok(Answer::Pointer(found)) => view.version.segments.read(self.key, &found.pointer, self.options.reach),
            Err(error) => Err(error),
        };
        found.map(Some).inspect_err(|error| view.version.note_damage(error))
    }

    /// Returns true if the key exists. Does not read a value in the value log.
    pub(crate) fn exists(&mut self, view: &View) -> Result<bool> {
        let found = self.search(view).inspect_err(|error| view.version.note_damage(error))?;
        Ok(matches!(found, Answer::Value(_) | Answer::Pointer(_)))
    }

    /// Returns the pointer to the key's value, if the value lies in the value log.
    pub(crate) fn pointer(&mut self, view: &View) -> Result<Option<Found>> {
        match self.search(view).inspect_err(|error| view.version.note_damage(error))? {
            Answer::Pointer(found) => Ok(Some(found)),
            _ => Ok(None),
        }
    }

    fn search(&mut self, view: &View) -> Result<Answer> {
        match self.memory(view)? {
            Answer::NotHere => self.tables(view),
            answer => Ok(answer),
        }
    }

    fn memory(&mut self, view: &View) -> Result<Answer> {
        for slot in view.slots() {
            if slot.memtable.has_range_tombstones() {
                self.cover(&slot.memtable.range_tombstones());
            }
            if let Some((trailer, value)) = slot.memtable.get(self.key, self.hash, self.sequence) {
                return self.judge(trailer, || Ok(Value::copied(value)?));
            }
            if self.cover > 0 {
                return Ok(Answer::Gone);
            }
        }
        Ok(Answer::NotHere)
    }

    fn tables(&mut self, view: &View) -> Result<Answer> {
        let version = &view.version;
        if version.levels.iter().all(|level| level.files.is_empty()) {
            return Ok(Answer::NotHere);
        }
        for file in version.levels[0].files.iter().filter(|f| f.meta.span.contains(self.key)) {
            match self.table(file)? {
                Answer::NotHere => {}
                answer => return Ok(answer),
            }
        }
        for level in version.levels.iter().skip(1) {
            if let Some(file) = level.find(self.key) {
                match self.table(file)? {
                    Answer::NotHere => {}
                    answer => return Ok(answer),
                }
            }
        }
        Ok(Answer::NotHere)
    }

    fn table(&mut self, file: &Arc<TableFile>) -> Result<Answer> {
        let table = file.table_for(&self.options)?;
        if file.meta.range_deletions > 0 {
            self.cover(table.tombstone_index());
        }
        if let Some(entry) = table.get(self.key, self.sequence, self.hash, &self.options)? {
            return self.judge(entry.trailer, || Ok(Value::in_block(entry.value)));
        }
        Ok(if self.cover > 0 { Answer::Gone } else { Answer::NotHere })
    }

    fn cover(&mut self, tombstones: &TombstoneIndex) {
        if let Some(tombstone) = tombstones.covering(self.key, self.sequence) {
            self.cover = self.cover.max(tombstone.sequence);
        }
    }

    fn judge(&self, trailer: Trailer, value: impl FnOnce() -> Result<Value>) -> Result<Answer> {
        if trailer.sequence() < self.cover {
            return Ok(Answer::Gone);
        }
        match trailer.kind() {
            Some(KeyKind::Put) => Ok(Answer::Value(value()?)),
            Some(KeyKind::Delete) => Ok(Answer::Gone),
            Some(KeyKind::ValueHandle) => Ok(Answer::Pointer(Found { pointer: value()? })),
            kind => Err(unexpected_kind(self.key, kind)),
        }
    }
}

/// Returns the error for an entry of a kind that this store never writes as a point entry.
pub(crate) fn unexpected_kind(key: &[u8], kind: Option<KeyKind>) -> Error {
    let what = format!("entry of key {}", Excerpt(key));
    Error::Storage(StorageError::corruption(
        "the store",
        0,
        what,
        "a put, a delete or a value handle",
        format!("{kind:?}"),
    ))
}
