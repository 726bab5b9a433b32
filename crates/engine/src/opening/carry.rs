//! Few records of the log go on in the next log.
//!
//! A store that is opened for one write, again and again, finds one more write in its log each time. A table of each
//! would fill level 0 with tables of one entry, and cost three syncs each time. So replayed records, if they are few,
//! are written into the new log as one record, and stay in memory:
//!
//! 1. [`Carried::of`] takes the newest version of each key, and the range tombstones, in the order of their sequence
//!    numbers. They become one batch.
//! 2. The new manifest, which still needs the old log files, is put in force. Then the batch is appended to the new log
//!    under new sequence numbers, and synced ([`Carried::log`]).
//! 3. It goes into the empty memtables ([`Carried::insert`]). An edit says that the old log files are not needed; they
//!    are removed.
//!
//! **Invariants.** The batch is one record, so a crash leaves all of it in the new log or nothing. Before the edit, the
//! next opening replays the old files and then, if it is whole, the copy. The copy changes nothing: it has for each key
//! the last version of the old files. No reader has a snapshot of a store that is being opened, so no older version is
//! missed.
//!
//! **Bounds.** Each keyspace carries over at most [`CARRIED_BYTES_MAX`], or an eighth of the smallest memtable if that
//! is less. All keyspaces together carry over at most [`CARRIED_BYTES_MAX_TOTAL`]. The rest becomes tables. So a store
//! with few writes is opened about a thousand times before it makes a table. With ten thousand keyspaces of one entry,
//! an opening does not make ten thousand tables.
//!
//! Rejected: to go on in the old log file. Its last page would be written again, which the log does only with pages in
//! memory. And the close of the store has noted that the log ends there.

use crate::base::batch::WriteBatch;
use crate::versions::store::Registry;
use crate::versions::view::MemtableSlot;
use crate::{Error, Result};
use situ_log::{Durability, Log};
use situ_storage::Error as StorageError;
use situ_table::{Cursor, KeyKind, KeyRef, MAX_SEQUENCE};
use std::sync::Arc;

/// The maximum size that a keyspace carries over. To write more again at each opening would cost more than a table does
/// once.
const CARRIED_BYTES_MAX: u64 = 64 << 10;

/// Maximum that all keyspaces together carry over. It is one record, which is in memory twice.
const CARRIED_BYTES_MAX_TOTAL: u64 = 4 << 20;

/// Space in a log file in addition to the record: the file's header, and a header for each page of 4 KiB.
const LOG_ROOM_BYTES: u64 = 256 << 10;

/// The last replayed change of a key or a range of keys.
struct Change {
    sequence: u64,
    keyspace: u32,
    kind: KeyKind,
    key: Vec<u8>,
    /// The end of a range.
    value: Vec<u8>,
}

/// The replayed changes, as one batch.
pub(crate) struct Carried {
    batch: WriteBatch,
    /// The first sequence number that was replayed, or that a record of the replayed log stood for.
    since: u64,
}

impl Carried {
    /// Returns the contents of the keyspaces' memtables; `None` if there is nothing, or too much. `memtable_bytes` is
    /// the size that the smallest memtable of the store may have. `since` and `last` are the first and the last
    /// replayed sequence number.
    pub(crate) fn of<'a>(
        slots: impl Iterator<Item = (u32, &'a Arc<MemtableSlot>)>,
        memtable_bytes: u64,
        since: u64,
        last: u64,
    ) -> Result<Option<Carried>> {
        let bytes_max = CARRIED_BYTES_MAX.min(memtable_bytes / 8);
        let mut changes: Vec<Change> = Vec::new();
        let (mut total, mut holders) = (0, 0);
        for (keyspace, slot) in slots {
            let mut bytes = 0;
            // Overwritten versions take memory, too, and are looked at here.
            if slot.memtable.used_bytes() as u64 > 8 * bytes_max {
                return Ok(None);
            }
            for tombstone in slot.memtable.range_tombstones().iter() {
                let (key, value) = (tombstone.begin.clone(), tombstone.end.clone());
                bytes += (key.len() + value.len()) as u64;
                let sequence = tombstone.sequence;
                changes.push(Change { sequence, keyspace, kind: KeyKind::RangeDelete, key, value });
            }
            let mut cursor = slot.memtable.cursor();
            cursor.first()?;
            let mut before: Option<Vec<u8>> = None;
            while cursor.valid() {
                let KeyRef { user, trailer } = cursor.key();
                if before.as_deref() != Some(user) {
                    let Some(kind @ (KeyKind::Put | KeyKind::Delete)) = trailer.kind() else { return Ok(None) };
                    let (key, value) = (user.to_vec(), cursor.value().to_vec());
                    bytes += (key.len() + value.len()) as u64;
                    before = Some(key.clone());
                    changes.push(Change { sequence: trailer.sequence(), keyspace, kind, key, value });
                }
                if bytes > bytes_max {
                    return Ok(None);
                }
                cursor.next()?;
            }
            total += bytes;
            holders += u64::from(bytes > 0);
            if bytes > bytes_max || total > CARRIED_BYTES_MAX_TOTAL {
                return Ok(None);
            }
        }
        changes.sort_by_key(|change| change.sequence);
        let mut batch = WriteBatch::new();
        for Change { keyspace, kind, key, value, .. } in &changes {
            batch.push(*kind, *keyspace, key, (*kind != KeyKind::Delete).then_some(value))?;
        }
        let fits = batch.bytes() as u64 <= 2 * bytes_max * holders && last + (batch.len() as u64) < MAX_SEQUENCE;
        Ok((!batch.is_empty() && fits).then_some(Carried { batch, since }))
    }

    /// Returns the space that the record needs in a log file.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.batch.bytes() as u64 + LOG_ROOM_BYTES
    }

    /// Returns the number of sequence numbers that the batch takes.
    pub(crate) fn len(&self) -> u64 {
        self.batch.len() as u64
    }

    /// Writes the batch durably into a log to which nothing has been written.
    ///
    /// # Errors
    /// The log's.
    pub(crate) fn log(&self, log: &Log, first_sequence: u64) -> Result<()> {
        let header = self.batch.carried_header(first_sequence, self.since);
        let lsn = log.append(&[&header, self.batch.encoded()]);
        let lsn = lsn.map_err(|error| Error::Storage(StorageError::Invalid(error.to_string())))?;
        Ok(log.commit(lsn, Durability::Synced)?)
    }

    /// Puts the batch into the memtables, as from log file `log_number`. No other thread uses them yet.
    pub(crate) fn insert(&self, registry: &Registry, first_sequence: u64, log_number: u64) {
        for (sequence, operation) in (first_sequence..).zip(self.batch.iter()) {
            let Some(keyspace) = registry.by_id.get(&operation.keyspace) else { continue };
            let slot = Arc::clone(&keyspace.view.load().active);
            slot.reserve((operation.key.len() + operation.value.len()) as u64, log_number);
            slot.insert(&operation, sequence);
        }
    }
}
