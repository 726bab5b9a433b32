//! Collection: what is alive in a segment moves to another one, and the segment goes.
//!
//! 1. [`ValueLog::collect`] walks over the segment. For each record it asks the owner whether the record is alive.
//! 2. Live records are appended by the writer that the caller gives. After a bounded number of them, the writer is
//!    synced.
//! 3. The owner gets the old and the new handle of each record. The owner puts the new handle in the place of the old
//!    one if the key still has the old one, durably.
//! 4. At the end the segment is *collected*: no victim any more. The caller [removes](ValueLog::remove) it when no
//!    snapshot and no reader has an old handle.
//!
//! **Invariants**: the owner gets a new handle only when its record is durable. A segment is collected only if each of
//! its records was handed out, was trimmed, or is known to be dead.
//!
//! **Failure**: an error ends the collection, and the segment stays as it was. Records that have moved before are dead
//! in it, as the owner will report. A crash is the same. Copies that the owner did not get count as dead. The owner
//! itself reports which of the others it did not take. A live record that is damaged is such an error: the segment with
//! the only copy is no victim any more, and the log reports the damage.
//!
//! **Rejected**: removing the segment here. Only the owner knows its snapshots.

use crate::Result;
use crate::counters::add;
use crate::handle::Handle;
use crate::log::ValueLog;
use crate::segment::Phase;
use crate::walk::{Walk, Walked};
use crate::writer::ValueWriter;
use situ_base::lock;
use situ_storage::Error;

/// The bytes of moved records after which the writer is synced and the owner gets the new handles.
const BATCH_BYTES: u64 = 4 << 20;
/// The number of moved records after which the same happens.
const BATCH_RECORDS: usize = 1024;

/// A record that collection has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// The tag that its writer gave with it.
    pub tag: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// Its old handle.
    pub from: Handle,
    /// Its new handle. The record is durable there.
    pub to: Handle,
}

/// The result of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Footprints of the records that were moved.
    pub moved_bytes: u64,
    /// The number of records that were moved.
    pub moved: u64,
    /// The number of records that the owner called dead.
    pub dead: u64,
}

/// The questions that a collection asks the owner of a log.
pub trait Owner {
    /// Returns true if this record can still be read: the key has this very handle, now or in a snapshot that is to be
    /// served from the copy.
    ///
    /// # Errors
    /// The owner cannot tell. The collection ends.
    fn is_live(&mut self, record: &Walked<'_>) -> Result<bool>;

    /// Reports records that have moved. The owner replaces the old handles that it still has by the new ones.
    ///
    /// # Errors
    /// The owner could not. The collection ends. The owner tells which of these copies are dead.
    fn moved(&mut self, moved: &[Moved]) -> Result<()>;
}

impl ValueLog {
    /// Moves what is alive in a sealed segment. `writer` is the caller's, made by
    /// [`collecting_writer`](ValueLog::collecting_writer): several collections may fill one segment.
    ///
    /// # Errors
    /// I/O, damage of a live record or of one that cannot be recognised, or an error of the owner. The segment stays as
    /// it was.
    pub fn collect(&self, number: u64, writer: &mut ValueWriter, owner: &mut dyn Owner) -> Result<Collected> {
        let mut walk = self.walk(number)?;
        self.check_complete(number)?;
        let collected = self.move_live(&mut walk, writer, owner);
        add(&self.meters.collection_read, walk.read_bytes());
        match &collected {
            Ok(_) => self.retire(number),
            // The owner and the writer may have met damage elsewhere.
            Err(Error::Corruption(damage)) if damage.file == walk.path() => self.miss(number, &collected),
            Err(_) => {}
        }
        collected
    }

    fn move_live(&self, walk: &mut Walk, writer: &mut ValueWriter, owner: &mut dyn Owner) -> Result<Collected> {
        let mut batch = Batch::default();
        let collected = self.move_through(&mut batch, walk, writer, owner);
        if collected.is_err() {
            self.disown(&batch.moved, writer);
        }
        collected
    }

    /// Counts copies as dead that the owner never got.
    fn disown(&self, moved: &[Moved], writer: &mut ValueWriter) {
        // If this fails, what is not durable is cut, and is no record then.
        let _ = writer.sync_moved();
        for to in moved.iter().map(|moved| &moved.to) {
            let Some(segment) = self.find(to.segment) else { continue };
            let mut state = lock(&segment.state);
            if to.end() <= state.data_end {
                state.dead_bytes += to.footprint();
            }
        }
    }

    fn move_through(
        &self,
        batch: &mut Batch,
        walk: &mut Walk,
        writer: &mut ValueWriter,
        owner: &mut dyn Owner,
    ) -> Result<Collected> {
        let mut collected = Collected::default();
        while let Some(record) = walk.next()? {
            if !owner.is_live(&record)? {
                collected.dead += 1;
                continue;
            }
            let to = writer.append(record.tag, record.key, record.value()?)?;
            collected.moved += 1;
            collected.moved_bytes += to.footprint();
            batch.push(Moved { tag: record.tag, key: record.key.to_vec(), from: record.handle, to });
            if batch.is_full() {
                batch.hand_over(writer, owner)?;
            }
        }
        batch.hand_over(writer, owner)?;
        Ok(collected)
    }

    /// Says that nothing in a sealed segment is alive, as far as new readers go: it is no victim any more, and counts
    /// no more. The owner removes it when the last old reader has gone. For segments that need no walk.
    pub fn retire(&self, number: u64) {
        if let Some(segment) = self.find(number) {
            let mut state = lock(&segment.state);
            if state.phase == Phase::Sealed {
                state.phase = Phase::Collected;
            }
        }
    }

    /// Keeps a segment whose collection would lose a record.
    fn miss(&self, number: u64, collected: &Result<Collected>) {
        if let (Some(segment), Err(error)) = (self.find(number), collected) {
            lock(&segment.state).miss(error.clone());
        }
    }

    fn check_complete(&self, number: u64) -> Result<()> {
        let Some(segment) = self.find(number) else { return Ok(()) };
        let state = lock(&segment.state);
        match &state.damage {
            Some(error) if state.is_incomplete => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

#[derive(Default)]
struct Batch {
    moved: Vec<Moved>,
    bytes: u64,
}

impl Batch {
    fn push(&mut self, moved: Moved) {
        self.bytes += moved.to.footprint() + moved.key.len() as u64;
        self.moved.push(moved);
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.moved.len() >= BATCH_RECORDS
    }

    fn hand_over(&mut self, writer: &mut ValueWriter, owner: &mut dyn Owner) -> Result<()> {
        if self.moved.is_empty() {
            return Ok(());
        }
        writer.sync_moved()?;
        let told = std::mem::take(self);
        owner.moved(&told.moved)
    }
}
