//! The pipeline's environment in an LSM store: memtables to apply writes to, and readers that see them.

use crate::base::batch::{Touched, WriteBatch};
use crate::base::health::Health;
use crate::memtable::LARGE_ENTRY_BYTES;
use crate::pipeline::no_room::{Level0, NoRoom, Unsealed};
use crate::pipeline::places::Places;
use crate::pipeline::space::use_of;
use crate::pipeline::{Commit, Memory, Obstacle, Request};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::view::MemtableSlot;
use crate::{Error, Result};
use situ_pipeline::{Batch, Environment, EnvironmentTypes, Note, Refusal};
use situ_storage::Error as StorageError;
use situ_table::{KeyKind, MAX_SEQUENCE};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

/// The approximate bytes that an operation takes in a memtable in addition to its encoding.
const NODE_BYTES: u64 = 32;

impl Batch for WriteBatch {
    fn count(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        WriteBatch::bytes(self)
    }

    fn held_bytes(&self) -> usize {
        WriteBatch::held_bytes(self)
    }

    #[inline]
    fn record<T>(&self, first: u64, takes: impl FnOnce(&[&[u8]]) -> T) -> T {
        takes(&[&self.header(first), self.encoded()])
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::ReadOnly => Error::ReadOnly,
            Refusal::Closed => Error::Closed,
            Refusal::TooManyWaiting { waiting_bytes } => Error::TooManyWaiting { waiting_bytes },
            Refusal::LogFailed(error) => Error::Failed { cause: Box::new(error) },
            Refusal::NoRecord(text) => Error::Invalid(text),
            Refusal::OutOfMemory { bytes } => StorageError::out_of_memory(bytes, "a log record").into(),
            other => Error::Invalid(format!("the write was refused: {other:?}")),
        }
    }
}

impl From<Unsealed> for Obstacle {
    fn from(unsealed: Unsealed) -> Obstacle {
        match unsealed {
            Unsealed::NoRoom(no_room) => Obstacle::NoRoom(no_room),
            Unsealed::Refused(error) => Obstacle::Refused(error),
        }
    }
}

impl EnvironmentTypes for Memory {
    type Batch = WriteBatch;
    type Targets = Touched<Arc<MemtableSlot>>;
    type Places = Places;
    type NoRoom = NoRoom;
    type Error = Error;
}

impl Environment for Memory {
    #[inline]
    fn commit(&self) -> &Mutex<Commit> {
        &self.commit
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.health.is_closing()
    }

    #[inline]
    fn failure(&self) -> Option<Error> {
        self.health.failure()
    }

    fn fail(&self, cause: StorageError) {
        self.health.fail(cause);
    }

    /// Finds room, and seals full memtables. A keyspace that may be dropped after a crash takes no writes.
    fn find_room(&self, commit: &mut Commit, batch: &WriteBatch) -> Result<(), Obstacle> {
        if commit.next_sequence() + batch.len() as u64 > MAX_SEQUENCE {
            return Err(Obstacle::refused(Error::Invalid("the sequence numbers are used up".to_owned())));
        }
        let bytes = batch.bytes() as u64;
        if self.space.takes(bytes, || use_of(&commit.places, batch)) != Some(true) {
            let space_use = use_of(&commit.places, batch);
            return Err(Obstacle::NoRoom(NoRoom::Space { bytes, space_use }));
        }
        self.budget.find_memory(commit, batch)?;
        for id in batch.keyspaces() {
            let keyspace = commit.places.keyspace(id).cloned();
            let keyspace =
                keyspace.ok_or_else(|| Obstacle::refused(Error::KeyspaceDropped { name: format!("number {id}") }))?;
            if let Some(why) = keyspace.doubtful_drop.load_full() {
                return Err(Obstacle::refused(Error::Storage((*why).clone())));
            }
            let slot = Arc::clone(&keyspace.view.load().active);
            if slot.bytes() >= keyspace.options.memtable_bytes && !slot.is_empty() {
                self.switch.seal(commit, &keyspace, Level0::Heeded)?;
            }
            if batch.largest_bytes() >= LARGE_ENTRY_BYTES {
                prepare(&keyspace, batch).map_err(Obstacle::refused)?;
            }
        }
        Ok(())
    }

    fn next_log_file(&self, commit: &mut Commit, batch: &WriteBatch) -> Result<(), Obstacle> {
        Ok(self.switch.leave_full_log_file(commit, batch)?)
    }

    /// Returns the active memtables, in which room is announced.
    fn place(&self, commit: &mut Commit, batch: &WriteBatch) -> Touched<Arc<MemtableSlot>> {
        let bytes = batch.bytes() as u64;
        if commit.places.used(bytes) {
            self.log_files.want_next();
            commit.leave_work();
        }
        if commit.places.take_watch() {
            commit.leave_work();
        }
        if self.space.used(bytes) {
            commit.leave_work();
        }
        let bytes = bytes + NODE_BYTES * batch.len() as u64;
        let mut targets = Touched::default();
        for id in batch.keyspaces() {
            if let Some(keyspace) = commit.places.keyspace(id) {
                let slot = Arc::clone(&keyspace.view.load().active);
                slot.reserve(bytes, commit.places.log_number);
                targets.push(id, slot);
            }
        }
        targets
    }

    /// Puts the operations into the memtables.
    fn apply(&self, batch: &WriteBatch, targets: &Touched<Arc<MemtableSlot>>, first: u64) {
        for (sequence, operation) in (first..).zip(batch.iter()) {
            #[cfg(test)]
            super::tests::taste(operation.key);
            if let Some(slot) = targets.get(operation.keyspace) {
                slot.insert(&operation, sequence);
            }
        }
        // The order is what readers that look for gaps rely on (`versions/gaps.rs`).
        fence(Ordering::SeqCst);
        if targets.iter().any(|(_, slot)| slot.gaps.concern_writers()) {
            cut_gaps(batch, targets);
        }
    }

    fn publish(&self, request: &Request) {
        self.versions.snapshots.advance(request.first(), request.last());
        count_published(&self.health, request);
    }

    fn make_way(&self, no_room: NoRoom) -> Result<bool> {
        self.note_stop(&no_room);
        self.remove_obstacle(no_room)
    }

    fn tell_background(&self) {
        self.above().iter().for_each(|above| above.memory_changed());
        self.work.notify();
    }

    fn note(&self, note: Note) {
        match note {
            Note::HeldBack(duration) => {
                self.health.stats.counters.stall_ns.add(duration.as_nanos() as u64);
                self.health.stats.stall.record(duration);
            }
            Note::Synced { took, now } => self.above().iter().for_each(|above| above.log_was_synced(took, now)),
            Note::BudgetIsOld => self.above().iter().for_each(|above| above.memory_changed()),
            Note::WakerPanicked => self.health.stats.counters.waker_panics.add(1),
            // Further notes of later pipelines are not counted here.
            _ => {}
        }
    }
}

/// Takes the keys that a batch has put out of all gaps.
#[cold]
fn cut_gaps(batch: &WriteBatch, targets: &Touched<Arc<MemtableSlot>>) {
    for operation in batch.iter().filter(|operation| matches!(operation.kind, KeyKind::Put | KeyKind::ValueHandle)) {
        if let Some(slot) = targets.get(operation.keyspace) {
            slot.gaps.put(operation.key);
        }
    }
}

/// Takes memory for the large changes of a batch in one keyspace. When they are in the log it is too late to refuse
/// them.
fn prepare(keyspace: &KeyspaceCore, batch: &WriteBatch) -> Result<()> {
    let in_keyspace = batch.iter().filter(|operation| operation.keyspace == keyspace.id);
    let lengths = in_keyspace.map(|operation| (operation.key.len(), operation.value.len()));
    // The batch keeps its memory while the write is tried.
    match keyspace.view.load().active.memtable.prepare(batch.encoded().as_ptr().addr(), lengths) {
        true => Ok(()),
        false => Err(StorageError::out_of_memory(batch.bytes(), "a memtable").into()),
    }
}

fn count_published(health: &Health, request: &Request) {
    let counters = &health.stats.counters;
    counters.writes.add(1);
    counters.operations_written.add(request.batch().len() as u64);
    counters.bytes_written.add(request.batch().bytes() as u64);
    counters.transactions_committed.add(u64::from(request.has_condition()));
}
