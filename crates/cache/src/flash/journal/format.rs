//! The format of the [journal's](super) files: an encoder and a decoder for each.
//!
//! ```text
//! journal                                   note
//! offset  bytes  field                      offset  bytes  field
//!      0      8  "SITUCJRN"                      0      8  sequence number of the segment
//!      8      4  version, 1                      8      4  offset of the record; 0: all of the segment
//!     12      4  zeros                          12      4  crc32c of the cache's id and all before
//!     16     16  the cache's id
//!     32     16  the machine's boot
//!     48      8  generation: this journal is journal-(generation modulo 2)
//!     56      8  the next segment's sequence number when the journal was created
//!     64      8  starts of the cache when it was last written to
//!     72      4  crc32c of all before
//!     76      4  zeros
//! ```
//!
//! The other two files hold these fields in order, then a crc32c of all preceding bytes:
//!
//! * *Index*: "SITUCIDX"; the cache's id; starts of the cache; the next segment's sequence number; log2 of the shard
//!   count; the number of spots; sequence number and base of each spot; shard and packed slot of each item, 16 bytes.
//! * *Records*: "SITUCREC"; the cache's id; the newest journal's generation; starts of the cache; the number of
//!   records; for each record two lengths, the key and the value.
//!
//! **Damage.** A partial note at the end of a journal ends it. Anything else that no encoder writes is damage, and a
//! decoder returns `None`.

use crate::flash::format::COUNTS_END;
use crate::slot::{ALIGN, OFFSETS_END};
use situ_base::bytes::{u32_at, u64_at};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

const JOURNAL_MAGIC: [u8; 8] = *b"SITUCJRN";
const INDEX_MAGIC: [u8; 8] = *b"SITUCIDX";
const RECORDS_MAGIC: [u8; 8] = *b"SITUCREC";
const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 80;
pub(super) const NOTE_BYTES: usize = 16;
/// Bytes of the index file before its spots: magic, id, starts, next sequence number, shard bits, number of spots.
const INDEX_HEADER_BYTES: u64 = 8 + 16 + 8 + 8 + 4 + 4;

pub(super) type Id = [u8; 16];

/// The contents of the records file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Records {
    /// The generation of the newest journal. If that journal is missing, notes are lost.
    pub(super) generation: u64,
    /// The number of starts of the cache. The newest journal, and the index of a clean stop, have the number of the
    /// last start.
    pub(super) starts: u64,
    pub(super) owners: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The index at a clean stop. Only the index interprets its spots and slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Snapshot {
    pub(crate) starts: u64,
    pub(crate) next_sequence: u64,
    pub(crate) shard_bits: u32,
    /// Sequence number and base of the segment in each spot.
    pub(crate) spots: Vec<[u64; 2]>,
    /// Shard, and packed slot.
    pub(crate) slots: Vec<[u32; 4]>,
}

/// The header of a journal.
pub(super) struct Header {
    pub(super) boot: [u8; 16],
    pub(super) generation: u64,
    pub(super) begun_at: u64,
    pub(super) starts: u64,
}

impl Header {
    pub(super) fn encode(&self, id: &Id) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&JOURNAL_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(id);
        bytes[32..48].copy_from_slice(&self.boot);
        bytes[48..56].copy_from_slice(&self.generation.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.begun_at.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.starts.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..72]);
        bytes[72..76].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], id: &Id) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let is_ours = bytes[..8] == JOURNAL_MAGIC
            && bytes[8..12] == VERSION.to_le_bytes()
            && bytes[12..16] == [0; 4]
            && bytes[76..] == [0; 4]
            && bytes[16..32] == id[..]
            && bytes[72..76] == crc32c::crc32c(&bytes[..72]).to_le_bytes();
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[32..48]);
        let [generation, begun_at, starts] = [48, 56, 64].map(|at| u64_at(bytes, at));
        let header = Header { boot, generation, begun_at, starts };
        (is_ours && [header.generation, header.begun_at, header.starts].iter().all(|count| *count < COUNTS_END))
            .then_some(header)
    }
}

/// Encodes a note.
pub(super) fn note(id: &Id, sequence: u64, offset: u32) -> [u8; NOTE_BYTES] {
    let mut bytes = [0; NOTE_BYTES];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..12].copy_from_slice(&offset.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(id), &bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A reader or writer that keeps the crc32c of the bytes it has passed on.
pub(super) struct Summed<T> {
    pub(super) inner: T,
    pub(super) sum: u32,
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Summed<T> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).ok()?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes);
        Some(bytes)
    }

    fn take_bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = situ_device::memory::zeroed(count)?;
        self.inner.read_exact(&mut bytes).ok()?;
        self.sum = crc32c::crc32c_append(self.sum, &bytes);
        Some(bytes)
    }

    /// Returns true if the checksum of all preceding bytes follows, and nothing after it.
    fn ends_well(&mut self) -> bool {
        let sum = self.sum;
        self.take() == Some(sum.to_le_bytes()) && self.take::<1>().is_none()
    }
}

/// Encodes the records file, without its checksum.
pub(super) fn encode_records(out: &mut impl Write, id: &Id, records: &Records) -> io::Result<()> {
    out.write_all(&RECORDS_MAGIC)?;
    out.write_all(id)?;
    out.write_all(&records.generation.to_le_bytes())?;
    out.write_all(&records.starts.to_le_bytes())?;
    out.write_all(&(records.owners.len() as u32).to_le_bytes())?;
    for (key, value) in &records.owners {
        out.write_all(&(key.len() as u32).to_le_bytes())?;
        out.write_all(&(value.len() as u32).to_le_bytes())?;
        out.write_all(key)?;
        out.write_all(value)?;
    }
    Ok(())
}

/// Encodes the index file, without its checksum. `slots` calls its argument with each slot.
pub(super) fn encode_index(
    out: &mut impl Write,
    id: &Id,
    starts: u64,
    index: &Snapshot,
    slots: impl FnOnce(&mut dyn FnMut([u32; 4])),
) -> io::Result<()> {
    out.write_all(&INDEX_MAGIC)?;
    out.write_all(id)?;
    out.write_all(&starts.to_le_bytes())?;
    out.write_all(&index.next_sequence.to_le_bytes())?;
    out.write_all(&index.shard_bits.to_le_bytes())?;
    out.write_all(&(index.spots.len() as u32).to_le_bytes())?;
    for number in index.spots.iter().flatten() {
        out.write_all(&number.to_le_bytes())?;
    }
    let mut written = Ok(());
    slots(&mut |slot| {
        for number in slot {
            if written.is_ok() {
                written = out.write_all(&number.to_le_bytes());
            }
        }
    });
    written
}

/// Decodes an index file of `bytes` bytes. Returns `None` if it is damaged or belongs to another cache.
pub(super) fn decode_index(from: impl Read, bytes: u64, id: &Id) -> Option<Snapshot> {
    let mut found = Summed { inner: from, sum: 0 };
    if found.take()? != INDEX_MAGIC || found.take()? != *id {
        return None;
    }
    let starts = u64::from_le_bytes(found.take()?);
    let next_sequence = u64::from_le_bytes(found.take()?);
    let shard_bits = u32::from_le_bytes(found.take()?);
    let spots = u32::from_le_bytes(found.take()?);
    // Slots fill the rest of the file up to the checksum.
    let slots = bytes.checked_sub(INDEX_HEADER_BYTES + u64::from(spots) * 16 + 4)? / 16;
    let mut index = Snapshot { starts, next_sequence, shard_bits, ..Snapshot::default() };
    for _ in 0..spots {
        index.spots.push([u64::from_le_bytes(found.take()?), u64::from_le_bytes(found.take()?)]);
    }
    for _ in 0..slots {
        let bytes: [u8; 16] = found.take()?;
        index.slots.push([0, 4, 8, 12].map(|at| u32_at(&bytes, at)));
    }
    found.ends_well().then_some(index)
}

/// Calls `each` with every note of a journal. Returns the journal's header and the offset at which its notes end;
/// `None` if it is damaged.
///
/// A process that dies leaves a note whole or cut short, never with wrong bytes. The kernel copies a write within one
/// page as a whole. So only a partial note at the end is an unfinished write.
pub(super) fn decode_notes(mut from: impl Read, id: &Id, mut each: impl FnMut(u64, u32)) -> Option<(Header, u64)> {
    let mut bytes = [0; HEADER_BYTES];
    from.read_exact(&mut bytes).ok()?;
    let header = Header::decode(&bytes, id)?;
    let mut ends = HEADER_BYTES as u64;
    let mut bytes = [0; NOTE_BYTES];
    while from.read_exact(&mut bytes).is_ok() {
        let (sequence, offset) = (u64_at(&bytes, 0), u32_at(&bytes, 8));
        let is_place = (offset as usize) < OFFSETS_END && (offset as usize).is_multiple_of(ALIGN);
        if bytes != note(id, sequence, offset) || sequence >= COUNTS_END || !is_place {
            return None;
        }
        each(sequence, offset);
        ends += NOTE_BYTES as u64;
    }
    Some((header, ends))
}

/// Decodes a records file of at most `bytes_max` bytes. Returns `None` if it is damaged or belongs to another cache.
pub(super) fn decode_records(from: impl Read, bytes_max: u64, id: &Id) -> Option<Records> {
    let mut found = Summed { inner: from, sum: 0 };
    if found.take()? != RECORDS_MAGIC || found.take()? != *id {
        return None;
    }
    let (generation, starts) = (u64::from_le_bytes(found.take()?), u64::from_le_bytes(found.take()?));
    let mut records = Records { generation, starts, owners: BTreeMap::new() };
    for _ in 0..u32::from_le_bytes(found.take()?) {
        let (key, value) = (u32::from_le_bytes(found.take()?), u32::from_le_bytes(found.take()?));
        if u64::from(key) + u64::from(value) > bytes_max {
            return None;
        }
        let key = found.take_bytes(key as usize)?;
        // The encoder writes keys in ascending order.
        if records.owners.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return None;
        }
        records.owners.insert(key, found.take_bytes(value as usize)?);
    }
    (found.ends_well() && records.generation < COUNTS_END && records.starts < COUNTS_END).then_some(records)
}
