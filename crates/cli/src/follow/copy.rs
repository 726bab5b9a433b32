//! The copy that `follow` keeps: a store, and its position in the source's changes.
//!
//! The keyspace [`FOLLOWED`] holds the position, and the keyspaces of the source by their numbers. The position is
//! written in the batch that it stands for, so a crash leaves neither without the other.
//!
//! A line with keyspaces tells those of the source when it was printed, which is behind the line's position. A copy
//! that is at this position obeys the line at once. A copy that is further obeys it before the next batch that it
//! applies. So an archive may be read again.
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

/// The sequence number at which a copy begins to follow.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begins {
    /// The last one of a checkpoint that was made just now.
    Made(u64),
    /// One that the caller names.
    At(u64),
}

/// See the module.
pub(super) struct Copy<'a> {
    writable: &'a Writable,
    notes: Keyspace,
    position: ChangePosition,
    /// The keyspaces of the source at the position.
    known: Keyspaces,
    /// Keyspaces that hold from the next batch on.
    told: Option<Keyspaces>,
    /// Those of the copy, by their numbers in the source.
    open: HashMap<u32, Keyspace>,
}

impl<'a> Copy<'a> {
    /// Reads the position of a copy, or notes the one at which it begins.
    ///
    /// # Errors
    /// The copy has no position, and is not empty; it has other changes behind the one that the caller names; the
    /// store's.
    pub(super) fn open(writable: &'a Writable, begins: Option<Begins>) -> Result<Copy<'a>, Failure> {
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
        if let Some((notes, text)) = found.filter(|_| begins.is_none()) {
            let position = String::from_utf8_lossy(&text).parse().map_err(damaged)?;
            let known = notes.get(KEYSPACES).map_err(failed)?;
            let known = known.map_or(Ok(Keyspaces::new()), |json| serde_json::from_slice(&json));
            let known = known.map_err(|error| damaged(error.to_string()))?;
            return Ok(Copy { writable, notes, position, known, told: None, open: HashMap::new() });
        }
        let own = store.properties().last_sequence;
        let position = match begins {
            Some(Begins::Made(last)) => ChangePosition::of_copy(last),
            Some(Begins::At(last)) => {
                let position = ChangePosition::of_copy(last);
                // An opening repeats changes of the log under later numbers, and the feed passes over them.
                let has_others = match store.changes(position) {
                    Ok(mut feed) => feed.next_batch().map_err(failed)?.is_some(),
                    Err(Error::ChangesGone { .. }) => true,
                    Err(error) => return Err(failed(error)),
                };
                if has_others {
                    let why = format!("it is not known to end with number {last}: its last sequence number is {own}");
                    let cure = "leave out --from if it follows already; otherwise make the copy again, and give --from in the first call";
                    return Err(Failure::new(what, why).cure(cure));
                }
                position
            }
            None if own == 0 => ChangePosition::BEGINNING,
            None => {
                return Err(Failure::new(what, "it holds entries, and no position of a source").cure(
                    "a call that was interrupted while it filled a directory leaves this: remove the directory, and call again; a fresh \
                     checkpoint takes --from",
                ));
            }
        };
        // A checkpoint has the numbers of its source.
        let known = match own {
            0 => Keyspaces::new(),
            _ => {
                let feed = store.changes(ChangePosition::of_copy(own)).map_err(failed)?;
                let named = feed.keyspaces().into_iter().map(|(id, name)| (id, name.to_string()));
                named.filter(|(_, name)| name != FOLLOWED).collect()
            }
        };
        if has_notes {
            store.drop_keyspace(FOLLOWED).map_err(failed)?;
        }
        let notes = writable.keyspace(FOLLOWED, true)?;
        let copy = Copy { writable, notes, position, known, told: None, open: HashMap::new() };
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
        let (since, position) = match &line {
            Told::Keyspaces(since, _) => (*since, *since),
            Told::Batch(batch) => (batch.since, batch.position),
        };
        for at in [since, position] {
            let both = at.checksum.zip(self.position.checksum);
            if at.sequence == self.position.sequence && both.is_some_and(|(its, ours)| its != ours) {
                let why = format!("its changes are of another history: the copy is at position {}", self.position);
                return Err(malformed(why).cure("a store that was restored or repaired needs a new copy"));
            }
        }
        if since.sequence == self.position.sequence && self.position.checksum.is_none() && since.checksum.is_some() {
            self.learn(since)?;
        }
        let batch = match line {
            Told::Keyspaces(_, keyspaces) if since.sequence == self.position.sequence => {
                self.told = None;
                return self.take_keyspaces(keyspaces);
            }
            Told::Keyspaces(_, keyspaces) if since.sequence < self.position.sequence => {
                self.told = Some(keyspaces);
                return Ok(());
            }
            Told::Keyspaces(..) => return Err(self.gap(since, &malformed)),
            Told::Batch(batch) => batch,
        };
        if position.sequence <= self.position.sequence {
            return Ok(());
        }
        if since.sequence != self.position.sequence {
            return Err(self.gap(since, &malformed));
        }
        if let Some(keyspaces) = self.told.take() {
            self.take_keyspaces(keyspaces)?;
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

    /// Returns the failure of a line that begins behind the copy's position.
    fn gap(&self, since: ChangePosition, malformed: &dyn Fn(String) -> Failure) -> Failure {
        let why = format!("it begins behind position {since}, and the copy is at position {}", self.position);
        malformed(why).cure("give `situ changes` the position of the copy with --since")
    }

    /// Notes the checksum of the position.
    fn learn(&mut self, position: ChangePosition) -> Result<(), Failure> {
        let mut batch = WriteBatch::new();
        let noted = self.note(&mut batch, position).and_then(|()| self.writable.store.write(batch).map(drop));
        noted.map_err(|error| self.writable.failure("cannot write into the copy", &error))?;
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
        if self.known != keyspaces {
            self.known = keyspaces;
            let mut batch = WriteBatch::new();
            let noted = self.note_keyspaces(&mut batch).and_then(|()| store.write(batch).map(drop));
            noted.map_err(|error| self.writable.failure("cannot write into the copy", &error))?;
        }
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
