//! The copy that `follow` keeps: a store, and its position in the source's changes.
//!
//! The keyspace [`FOLLOWED`] holds the position, and the keyspaces of the source by their numbers. The position is
//! written in the batch that it stands for, so a crash leaves neither without the other.
//!
//! A keyspace of the source that was dropped, and perhaps made again under its name, has lost its number. The copy then
//! drops its keyspace of that name. It does so before it notes the new numbers, so a crash in between repeats the drop.
//!
//! **Failure.** A line that does not follow the copy's position is refused, as is a line of another history. A line
//! that the copy has already is passed over.

use super::lines::{ChangeLine, Keyspaces, Told, What};
use crate::failure::Failure;
use crate::options::FOLLOWED;
use crate::store::Writable;
use situ::{ChangePosition, Error, Keyspace, WriteBatch};
use std::collections::HashMap;

/// The key of the position.
const POSITION: &str = "position";
/// The key of the source's keyspaces.
const KEYSPACES: &str = "keyspaces";

/// See the module.
pub(super) struct Copy<'a> {
    writable: &'a Writable,
    notes: Keyspace,
    position: ChangePosition,
    /// The keyspaces of the source at the position.
    known: Keyspaces,
    /// Those of the copy, by their numbers in the source.
    open: HashMap<u32, Keyspace>,
}

impl<'a> Copy<'a> {
    /// Reads the position of a copy. `last` is the sequence number of one that begins to follow.
    ///
    /// # Errors
    /// The copy has no position, and is not empty; `last` is not its last sequence number; the store's.
    pub(super) fn open(writable: &'a Writable, last: Option<u64>) -> Result<Copy<'a>, Failure> {
        let store = &writable.store;
        let what = "cannot follow with this copy";
        let failed = |error: Error| writable.failure(what, &error);
        let found = match store.existing_keyspace(FOLLOWED) {
            Err(Error::NoSuchKeyspace { .. }) => None,
            notes => {
                let notes = notes.map_err(failed)?;
                notes.get(POSITION).map_err(failed)?.map(|position| (notes, position))
            }
        };
        let damaged = |why: String| Failure::new(what, format!("its note of the position cannot be read: {why}"));
        // A checkpoint of a copy has the copy's notes.
        let has_notes = found.is_some();
        if let Some((notes, text)) = found.filter(|_| last.is_none()) {
            let position = String::from_utf8_lossy(&text).parse().map_err(damaged)?;
            let known = notes.get(KEYSPACES).map_err(failed)?;
            let known = known.map_or(Ok(Keyspaces::new()), |json| serde_json::from_slice(&json));
            let known = known.map_err(|error| damaged(error.to_string()))?;
            return Ok(Copy { writable, notes, position, known, open: HashMap::new() });
        }
        let own = store.properties().last_sequence;
        let position = match last {
            Some(last) if last == own => ChangePosition::of_copy(last),
            Some(last) => {
                let why = format!("its last sequence number is {own}, and not {last}");
                return Err(Failure::new(what, why).cure("make the copy again, by a checkpoint or a restore"));
            }
            None if own == 0 => ChangePosition::BEGINNING,
            None => {
                return Err(Failure::new(what, "it holds entries, and was not made by `situ follow`")
                    .cure("name an empty directory, or give --from for a fresh checkpoint"));
            }
        };
        // A checkpoint has the numbers of its source.
        let known = match own {
            0 => Keyspaces::new(),
            _ => {
                let feed = store.changes(position).map_err(failed)?;
                let named = feed.keyspaces().into_iter().map(|(id, name)| (id, name.to_string()));
                named.filter(|(_, name)| name != FOLLOWED).collect()
            }
        };
        if has_notes {
            store.drop_keyspace(FOLLOWED).map_err(failed)?;
        }
        let notes = writable.keyspace(FOLLOWED, true)?;
        let copy = Copy { writable, notes, position, known, open: HashMap::new() };
        let mut batch = WriteBatch::new();
        let noted = copy.note_keyspaces(&mut batch).and_then(|()| copy.note(&mut batch, position));
        noted.and_then(|()| store.write(batch).map(drop)).map_err(failed)?;
        Ok(copy)
    }

    pub(super) fn position(&self) -> ChangePosition {
        self.position
    }

    /// Applies a line. `what` names it.
    ///
    /// # Errors
    /// The line is malformed, or does not follow the position; the store's.
    pub(super) fn apply(&mut self, line: Told<'_>, what: &dyn Fn() -> String) -> Result<(), Failure> {
        let malformed = |why: String| Failure::new(what(), why);
        let batch = match line {
            Told::Keyspaces(keyspaces) => return self.take_keyspaces(keyspaces),
            Told::Batch(batch) => batch,
        };
        let (since, position) = (batch.since, batch.position);
        let is_other = |at: ChangePosition| {
            let both = at.checksum.zip(self.position.checksum);
            at.sequence == self.position.sequence && both.is_some_and(|(its, ours)| its != ours)
        };
        if is_other(since) || is_other(position) {
            let why = format!("its changes are of another history: the copy is at position {}", self.position);
            return Err(malformed(why).cure("a store that was restored or repaired needs a new copy"));
        }
        if position.sequence <= self.position.sequence {
            return Ok(());
        }
        if since.sequence != self.position.sequence {
            let why = format!("it begins behind position {since}, and the copy is at position {}", self.position);
            return Err(malformed(why).cure("give `situ changes` the position of the copy with --since"));
        }
        let mut write = WriteBatch::new();
        for change in &batch.changes {
            // Others are dropped by now, or are the notes of a source that is itself a copy.
            if self.known.contains_key(&change.keyspace_id) {
                self.put(change, &mut write, &malformed)?;
            }
        }
        let failed = |error: Error| self.writable.failure("cannot write into the copy", &error);
        self.note(&mut write, position).map_err(failed)?;
        self.writable.store.write(write).map_err(failed)?;
        self.position = position;
        Ok(())
    }

    /// Adds a change to a batch.
    fn put(
        &mut self,
        change: &ChangeLine<'_>,
        batch: &mut WriteBatch,
        malformed: &dyn Fn(String) -> Failure,
    ) -> Result<(), Failure> {
        let keyspace = self.keyspace(change.keyspace_id, &change.keyspace)?;
        let key = change.key().map_err(malformed)?;
        let added = match change.what {
            What::Put => batch.put_in(&keyspace, key, change.value().map_err(malformed)?),
            What::Delete => batch.delete_in(&keyspace, key),
            What::DeleteRange => batch.delete_range_in(&keyspace, key, change.end().map_err(malformed)?),
        };
        added.map_err(|error| self.writable.failure("cannot write into the copy", &error))
    }

    /// Returns the copy's keyspace for one of the source.
    fn keyspace(&mut self, id: u32, name: &str) -> Result<Keyspace, Failure> {
        if let Some(keyspace) = self.open.get(&id) {
            return Ok(keyspace.clone());
        }
        let keyspace = self.writable.keyspace(name, true)?;
        self.open.insert(id, keyspace.clone());
        Ok(keyspace)
    }

    /// Makes the copy's keyspaces those of the source.
    fn take_keyspaces(&mut self, mut keyspaces: Keyspaces) -> Result<(), Failure> {
        keyspaces.retain(|_, name| name != FOLLOWED);
        let store = &self.writable.store;
        let gone = self.known.iter().filter(|(id, name)| keyspaces.get(id) != Some(name));
        for (id, name) in gone {
            self.open.remove(id);
            match store.drop_keyspace(name) {
                Ok(()) | Err(Error::NoSuchKeyspace { .. }) => {}
                Err(error) => return Err(self.writable.failure(format!("cannot drop the keyspace {name:?}"), &error)),
            }
        }
        if self.known == keyspaces {
            return Ok(());
        }
        self.known = keyspaces;
        let mut batch = WriteBatch::new();
        let noted = self.note_keyspaces(&mut batch).and_then(|()| store.write(batch).map(drop));
        noted.map_err(|error| self.writable.failure("cannot write into the copy", &error))?;
        // A keyspace may be empty.
        for (id, name) in self.known.clone() {
            self.keyspace(id, &name)?;
        }
        Ok(())
    }

    fn note(&self, batch: &mut WriteBatch, position: ChangePosition) -> Result<(), Error> {
        batch.put_in(&self.notes, POSITION, position.to_string())
    }

    fn note_keyspaces(&self, batch: &mut WriteBatch) -> Result<(), Error> {
        let json = serde_json::to_vec(&self.known).unwrap_or_default();
        batch.put_in(&self.notes, KEYSPACES, json)
    }
}
