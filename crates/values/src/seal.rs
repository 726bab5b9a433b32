//! The end of a segment: its index and its trailer.
//!
//! 1. The caller has written all records.
//! 2. The index goes to the pages behind them. A sync makes records and index durable.
//! 3. The trailer goes to the last page. A second sync makes it durable. Now the segment is sealed.
//! 4. The pages between index and trailer are given back to the disk where that is possible.
//!
//! **Invariant**: a durable trailer means that all records before it are durable, too. So whoever finds the trailer need not look
//! at the records.

use crate::Result;
use crate::format::{IndexBuilder, SECTOR_BYTES, Trailer, index_at};
use crate::segment::Segment;
use situ_storage::{Buffer, PageFile};

pub(crate) fn seal(file: &dyn PageFile, segment: &Segment, index: &IndexBuilder, ends: Ends) -> Result<(Trailer, u64)> {
    let trailer = Trailer {
        identity: segment.identity,
        layout: segment.layout,
        data_end: ends.data_end,
        index_bytes: index.bytes.len() as u32,
        index_check: crc32c::crc32c_append(segment.identity.seed(index_at(ends.data_end)), &index.bytes),
        records: index.records,
        record_bytes: ends.record_bytes,
    };
    let first = trailer.index_at() / SECTOR_BYTES;
    let pages = index.bytes.len().div_ceil(SECTOR_BYTES as usize);
    let last = segment.pages - 1;
    assert!(first + pages as u64 <= last, "the writer leaves room for the index");
    if pages > 0 {
        file.write(first, &Buffer::copy_of(&index.bytes), pages, false)?;
    }
    file.sync()?;
    file.write(last, &Buffer::copy_of(&trailer.encode()), 1, false)?;
    file.sync()?;
    let free = first + pages as u64..last;
    if !free.is_empty() {
        // Room that is not given back is room lost, and nothing else.
        let _ = file.discard(free.start, free.end - free.start);
    }
    Ok((trailer, (pages as u64 + 1) * SECTOR_BYTES))
}

/// Where the records end, and how much they take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) data_end: u64,
    pub(crate) record_bytes: u64,
}
