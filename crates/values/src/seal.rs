//! The end of a segment: its index and its trailer.
//!
//! 1. The caller has written all records.
//! 2. The index goes to the pages before the last one. A sync makes records and index durable.
//! 3. The trailer goes to the last page. A second sync makes it durable. Now the segment is sealed.
//! 4. The pages between records and index are given back to the disk where that is possible.
//!
//! **Invariant**: a durable trailer means that all records before it are durable, too. So a reader that finds the
//! trailer need not look at the records.

use crate::Result;
use crate::format::{IndexBuilder, SECTOR_BYTES, Trailer, index_at};
use crate::segment::Segment;
use situ_storage::{Buffer, PageFile};

/// The end of the records, and the bytes that they take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) data_end: u64,
    pub(crate) record_bytes: u64,
    /// The bytes behind the records are not needed.
    pub(crate) rest_is_free: bool,
}

/// Writes index and trailer. Returns the trailer, and how many bytes of pages were written.
pub(crate) fn seal(file: &dyn PageFile, segment: &Segment, index: &IndexBuilder, ends: Ends) -> Result<(Trailer, u64)> {
    let index_bytes = index.bytes.len() as u64;
    let at = index_at(segment.pages, index_bytes);
    assert!(ends.data_end <= at, "the writer leaves room for the index");
    let trailer = Trailer {
        identity: segment.identity,
        layout: segment.layout,
        data_end: ends.data_end,
        index_bytes: index_bytes as u32,
        index_check: crc32c::crc32c_append(segment.identity.seed(at), &index.bytes),
        records: index.records,
        record_bytes: ends.record_bytes,
    };
    let (first, last) = (at / SECTOR_BYTES, segment.pages - 1);
    if first < last {
        file.write(first, &Buffer::copy_of(&index.bytes), (last - first) as usize, false)?;
    }
    file.sync()?;
    file.write(last, &Buffer::copy_of(&trailer.encode()), 1, false)?;
    file.sync()?;
    let free = ends.data_end.div_ceil(SECTOR_BYTES)..first;
    if ends.rest_is_free && !free.is_empty() {
        // Room that is not given back is room lost, and nothing else.
        let _ = file.discard(free.start, free.end - free.start);
    }
    Ok((trailer, (last - first + 1) * SECTOR_BYTES))
}
