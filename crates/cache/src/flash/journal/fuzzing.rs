//! Fuzz target for the journal's files; see [`crate::fuzzing`].

use super::format::*;
use super::*;
use crate::flash::fuzzing::empty_log;
use crate::flash::tier::resume;
use crate::index::Index;
use situ_base::bytes::{u32_at, u64_at};

const ID: Id = [3; 16];
const MEMORY_BYTES: usize = 8 << 20;
const INDEX: u8 = 2;
const RECORDS: u8 = 4;

fn seal_end(bytes: &mut [u8]) {
    if let Some(end) = bytes.len().checked_sub(4) {
        let (summed, sum) = bytes.split_at_mut(end);
        sum.copy_from_slice(&crc32c::crc32c(summed).to_le_bytes());
    }
}

fn seal_notes(bytes: &mut [u8]) {
    let Some((header, notes)) = bytes.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    let sum = crc32c::crc32c(&header[..72]);
    header[72..76].copy_from_slice(&sum.to_le_bytes());
    for bytes in notes.chunks_exact_mut(NOTE_BYTES) {
        bytes.copy_from_slice(&note(&ID, u64_at(bytes, 0), u32_at(bytes, 8)));
    }
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(&[0; 4]);
    seal_end(&mut bytes);
    bytes
}

/// Decodes a journal, an index file, or a records file. Bits of the first byte: 1 corrects the checksums first, 2 means
/// an index, 4 records.
///
/// # Panics
/// A decoder panics or contradicts itself.
pub fn journal(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    let (mut bytes, is_sealed) = (bytes.to_vec(), control & 1 != 0);
    match control & (INDEX | RECORDS) {
        0 => {
            if is_sealed {
                seal_notes(&mut bytes);
            }
            notes(&bytes);
        }
        INDEX => {
            if is_sealed {
                seal_end(&mut bytes);
            }
            index(&bytes);
        }
        _ => {
            if is_sealed {
                seal_end(&mut bytes);
            }
            records(&bytes);
        }
    }
}

fn notes(bytes: &[u8]) {
    let (mut dead, mut again) = (Dead::of(ID), Vec::new());
    let read = decode_notes(bytes, &ID, |sequence, offset| {
        dead.note(sequence, offset);
        again.extend_from_slice(&note(&ID, sequence, offset));
    });
    let Some((header, ends)) = read else { return };
    let whole = [&header.encode(&ID)[..], &again].concat();
    assert!(whole == bytes[..ends as usize], "what was read is written as it was");
    assert!(bytes.len() - whole.len() < NOTE_BYTES, "only a piece of a note is left over");
    // The journal cannot be read again, so every item counts as dead unless no note exists.
    assert!(!dead.has(dead.newest, u32::MAX) || dead.newest > 0);
}

fn index(bytes: &[u8]) {
    let Some(found) = decode_index(bytes, bytes.len() as u64, &ID) else { return };
    let mut again = Vec::new();
    let slots = |each: &mut dyn FnMut([u32; 4])| found.slots.iter().for_each(|slot| each(*slot));
    encode_index(&mut again, &ID, found.starts, &found, slots).expect("memory takes all");
    assert!(sealed(again) == bytes, "what was read is written as it was");
    let index = Index::new(MEMORY_BYTES, 5);
    if resume(&empty_log(), &index, &found, MEMORY_BYTES) {
        assert!(index.len() <= found.slots.len() && index.bytes() <= MEMORY_BYTES);
    }
}

fn records(bytes: &[u8]) {
    let Some(found) = decode_records(bytes, bytes.len() as u64, &ID) else { return };
    let mut again = Vec::new();
    encode_records(&mut again, &ID, &found).expect("memory takes all");
    assert!(sealed(again) == bytes, "what was read is written as it was");
}

/// Encoded journals, indexes and records.
pub(crate) fn corpus() -> Vec<Vec<u8>> {
    let header = Header { boot: [9; 16], generation: 1, begun_at: 3, starts: 2 };
    let notes = [note(&ID, 7, 56), note(&ID, 9, 0), note(&ID, 9, 1 << 19), note(&ID, 12, 60)].concat();
    let journal = [&header.encode(&ID)[..], &notes, &[1; 9]].concat();
    let log = empty_log();
    let shard_bits = Index::new(MEMORY_BYTES, 5).shard_bits();
    let (_, mut spots) = log.spots();
    (spots[1], spots[2]) = ([9, 4], [10, 70]);
    let snapshot = Snapshot { starts: 2, next_sequence: 11, shard_bits, spots, slots: Vec::new() };
    let index = |slots: u32| {
        let mut bytes = Vec::new();
        let slots = |each: &mut dyn FnMut([u32; 4])| {
            (0..slots).for_each(|n| each([n % 4, 0x1234_5678, 0x0009_0000 | n << 8, 0x0703_0000 | n]));
        };
        encode_index(&mut bytes, &ID, 2, &snapshot, slots).expect("memory takes all");
        sealed(bytes)
    };
    let owners = [(b"limit".to_vec(), b"100".to_vec()), (b"flush".to_vec(), Vec::new())];
    let mut records = Vec::new();
    let found = Records { generation: 1, starts: 2, owners: owners.into() };
    encode_records(&mut records, &ID, &found).expect("memory takes all");
    let records = sealed(records);
    let with = |control: u8, bytes: &[u8]| [&[control], bytes].concat();
    vec![
        with(1, &journal),
        with(0, &journal),
        with(1 | INDEX, &index(3)),
        with(1 | INDEX, &index(40)),
        with(INDEX, &index(3)),
        with(1 | RECORDS, &records),
        with(RECORDS, &records),
    ]
}
