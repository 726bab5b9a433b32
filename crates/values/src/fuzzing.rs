//! Segments of arbitrary bytes, for fuzzers (`fuzz/`) and the seeded tests below. Only there with the feature `fuzzing`
//! and in tests.

use crate::Result;
use crate::format::{Extent, FIRST_RECORD, FRAME_BYTES, IndexBuilder, SECTOR_BYTES, SegmentHeader, Trailer};
use crate::format::{HEADER_BYTES, Identity};
use crate::format::{decode_index, end_of, index_at, pages_needed, place};
use crate::handle::Handle;
use crate::open::find_end;
use crate::options::Layout;
use crate::record::{Header, header};
use crate::scan::Scan;
use crate::segment::Phase;
use crate::walk::Walk;
use situ_base::lock;
use situ_storage::{Error, Reader};
use std::sync::Arc;

const IDENTITY: Identity = Identity { segment: 7, salt: 77 };

struct File(Vec<u8>);

impl Reader for File {
    fn path(&self) -> &str {
        "000007.values"
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let range = usize::try_from(offset).ok().and_then(|start| self.0.get(start..start.checked_add(into.len())?));
        match range {
            Some(bytes) => into.copy_from_slice(bytes),
            None => {
                return Err(Error::corruption(self.path(), offset, "file length", into.len(), "the end of the file"));
            }
        }
        Ok(())
    }
}

/// Opens, scans and walks a segment. The lowest bit of the first byte says that checksums are put right first.
///
/// # Panics
/// A decoder does something that it must not do.
pub fn segment(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    if let Ok(handle) = Handle::decode(rest.get(..Handle::ENCODED_BYTES).unwrap_or(rest)) {
        assert!(handle.end() <= u64::from(u32::MAX) && handle.footprint() >= u64::from(handle.bytes));
    }
    let mut bytes = rest.to_vec();
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    if first & 1 == 1 {
        put_right(&mut bytes);
    }
    let file: Arc<dyn Reader> = Arc::new(File(bytes));
    let Ok(segment) = find_end(&*file, IDENTITY.segment) else { return };
    let mut scan = Scan::new(&*file, segment.identity, segment.layout, segment.pages);
    while let Ok(Some(extent)) = scan.next(u64::MAX) {
        assert!(extent.end() <= file.bytes() - SECTOR_BYTES);
    }
    let phase = lock(&segment.state).phase;
    let Ok(mut walk) = Walk::over(Arc::new(segment), Arc::clone(&file)) else { return };
    assert_eq!(phase, Phase::Sealed);
    let mut end = FIRST_RECORD;
    loop {
        match walk.next() {
            Ok(None) => return,
            Ok(Some(record)) => {
                assert!(u64::from(record.handle.offset) >= end, "records overlap");
                end = record.handle.end();
                let value = record.value().map_or(0, <[u8]>::len);
                assert!(HEADER_BYTES + record.key.len() + value <= record.handle.bytes as usize);
            }
            Err(_) => {}
        }
    }
}

/// Puts the checksums of header, trailer, index and records right, as far as they can be found.
fn put_right(bytes: &mut [u8]) {
    let pages = bytes.len() as u64 / SECTOR_BYTES;
    let Some(last) = bytes.len().checked_sub(SECTOR_BYTES as usize) else { return };
    let data_end = u64::from(field(bytes, last + 32));
    let index_bytes = field(bytes, last + 40) as usize;
    if index_bytes < last {
        let at = index_at(pages, index_bytes as u64);
        let index = &bytes[at as usize..at as usize + index_bytes];
        let check = crc32c::crc32c_append(IDENTITY.seed(at), index);
        let extents = decode_index(index, field(bytes, last + 48), data_end).unwrap_or_default();
        bytes[last + 44..last + 48].copy_from_slice(&check.to_le_bytes());
        extents.iter().for_each(|extent| put_record_right(bytes, *extent));
    }
    for (at, magic) in [(0, crate::format::HEADER_MAGIC), (last, crate::format::TRAILER_MAGIC)] {
        let frame = &mut bytes[at..at + FRAME_BYTES];
        frame[..8].copy_from_slice(&magic);
        frame[8..12].copy_from_slice(&crate::format::VERSION.to_le_bytes());
        frame[12] &= 1;
        frame[13..16].fill(0);
        frame[16..24].copy_from_slice(&IDENTITY.segment.to_le_bytes());
        frame[24..32].copy_from_slice(&IDENTITY.salt.to_le_bytes());
        if at == 0 {
            frame[32..40].copy_from_slice(&pages.to_le_bytes());
        }
        let check = crc32c::crc32c(&frame[..FRAME_BYTES - 4]);
        frame[FRAME_BYTES - 4..].copy_from_slice(&check.to_le_bytes());
    }
}

fn field(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn put_record_right(bytes: &mut [u8], extent: Extent) {
    let Some(record) = bytes.get_mut(extent.offset as usize..extent.end() as usize) else { return };
    // A record that was trimmed stays so.
    let Some(found) = Header::decode(record).filter(|found| found.record_bytes() == record.len() as u64) else {
        return;
    };
    let (key, value) = record[HEADER_BYTES..].split_at(found.key_bytes as usize);
    let right = header(IDENTITY, extent.offset.into(), found.tag, key, value);
    record[..HEADER_BYTES].copy_from_slice(&right);
}

/// Real segments: sealed and not, in both layouts, one of them trimmed.
pub fn corpus() -> Vec<Vec<u8>> {
    let mut corpus = Vec::new();
    for layout in [Layout::Packed, Layout::OwnSectors] {
        for (is_sealed, is_trimmed) in [(true, false), (false, false), (true, true)] {
            corpus.push([&[1][..], &real(layout, is_sealed, is_trimmed)].concat());
        }
    }
    corpus
}

fn real(layout: Layout, is_sealed: bool, is_trimmed: bool) -> Vec<u8> {
    let mut bytes = vec![0; FIRST_RECORD as usize];
    let (mut index, mut free, mut sum) = (IndexBuilder::default(), FIRST_RECORD, 0);
    for number in 0..7u64 {
        let (key, value) = (number.to_be_bytes(), vec![number as u8 + 1; 40 + 700 * number as usize]);
        let length = (HEADER_BYTES + key.len() + value.len()) as u64;
        let offset = place(layout, free, length);
        free = end_of(layout, offset, length);
        sum += length.next_multiple_of(crate::format::ALIGN);
        bytes.resize(offset as usize, 0);
        bytes.extend_from_slice(&header(IDENTITY, offset, number, &key, &value));
        bytes.extend_from_slice(&key);
        bytes.extend_from_slice(&value);
        index.push(Extent { offset: offset as u32, bytes: length as u32 });
        if is_trimmed && number % 2 == 0 {
            bytes[offset as usize..].fill(0);
        }
    }
    let data_end = bytes.len() as u64;
    let pages = pages_needed(data_end, index.bytes.len() as u64);
    bytes.resize((pages * SECTOR_BYTES) as usize, 0);
    bytes[..FRAME_BYTES].copy_from_slice(&SegmentHeader { identity: IDENTITY, layout, pages }.encode());
    if is_sealed {
        let at = index_at(pages, index.bytes.len() as u64) as usize;
        bytes[at..at + index.bytes.len()].copy_from_slice(&index.bytes);
        let trailer = Trailer {
            identity: IDENTITY,
            layout,
            data_end,
            index_bytes: index.bytes.len() as u32,
            index_check: crc32c::crc32c_append(IDENTITY.seed(at as u64), &index.bytes),
            records: index.records,
            record_bytes: sum,
        };
        let last = bytes.len() - SECTOR_BYTES as usize;
        bytes[last..last + FRAME_BYTES].copy_from_slice(&trailer.encode());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_sim::Rng;

    #[test]
    fn real_segments_are_read_whole() {
        for (input, records) in corpus().iter().zip([7, 0, 3, 7, 0, 3]) {
            let file: Arc<dyn Reader> = Arc::new(File(input[1..].to_vec()));
            let segment = find_end(&*file, 7).unwrap();
            if lock(&segment.state).phase == Phase::Abandoned {
                assert_eq!(lock(&segment.state).records, 7);
                continue;
            }
            let mut walk = Walk::over(Arc::new(segment), file).unwrap();
            let mut found = 0;
            while walk.next().unwrap().is_some() {
                found += 1;
            }
            assert_eq!(found, records);
            segment_of(input);
        }
    }

    fn segment_of(input: &[u8]) {
        super::segment(input);
    }

    #[test]
    fn mutated_segments_do_no_harm() {
        let corpus = corpus();
        let mut rng = Rng::new(5);
        for _ in 0..2000 {
            let mut input = corpus[rng.index(corpus.len())].clone();
            for _ in 0..rng.below(12) {
                // Most bytes are values: the frames and the index are hit more often than chance would.
                let near_end = rng.chance(0.5);
                let at = rng.index(if near_end { 3 * SECTOR_BYTES as usize } else { input.len() });
                let at = if near_end { input.len() - 1 - at } else { at };
                input[at] = [0, 1, 0xff, rng.below(256) as u8][rng.index(4)];
            }
            input[0] = rng.below(2) as u8;
            input.truncate(input.len() - if rng.chance(0.1) { rng.index(9000) } else { 0 });
            super::segment(&input);
        }
    }
}
