//! Consecutive pages on their way to a log file, in one buffer.
//!
//! A chunk is filled under the log's lock, with the parts of headers that depend on the order of records. The thread
//! that writes it *seals* it outside of the lock, with checksums and the durable positions known at that moment.
//!
//! **Invariants**
//! * All pages but the last are full.
//! * Page 0 may be one that was written before (`rewrite`). Its image then only grows, and no other write to it is in
//!   flight.

use crate::page::{HEADER_BYTES, Header, NO_RECORD, PAYLOAD_BYTES, at, flag};
use situ_base::bytes::u16_at;
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::PageFile;
use std::sync::Arc;

/// Pages of an ordinary chunk: the longest ordinary write.
pub(crate) const CHUNK_PAGES: usize = 64;
/// Pages of the chunks that a long record is cut into.
const LONG_CHUNK_PAGES: usize = 1024;

/// A log file that pages can go to.
pub(crate) struct LogFile {
    pub(crate) number: u64,
    pub(crate) pages: Arc<dyn PageFile>,
    /// The number of its pages, the one reserved for an end mark included.
    pub(crate) page_count: u32,
    /// Position of its first payload byte.
    pub(crate) base: u64,
    /// Its number minus that of the file before; 0 in the first file.
    pub(crate) distance: u32,
}

impl LogFile {
    /// Returns the position of the first payload byte of a page.
    pub(crate) fn position(&self, page: u32) -> u64 {
        self.base + u64::from(page) * PAYLOAD_BYTES as u64
    }
}

/// The part of a page that lies on the disk in some image, and the checksum of that much payload.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Image {
    pub(crate) used: usize,
    pub(crate) checksum: u32,
}

pub(crate) struct Chunk {
    pub(crate) file: Arc<LogFile>,
    buffer: Buffer,
    pub(crate) first_page: u32,
    /// Pages begun in the buffer, at least 1.
    pub(crate) pages: usize,
    /// Payload bytes used in the last page.
    pub(crate) tail_used: usize,
    /// Records that begin in it and were not written.
    pub(crate) records: usize,
    /// True if it holds anything that was not written.
    pub(crate) dirty: bool,
    /// True if page 0 was written before.
    pub(crate) rewrite: bool,
    /// The image of page 0 written last.
    written: Image,
    /// The image of page 0 that is durable, as far as this page's own writes tell.
    durable: Image,
    /// `ended` or `closed`, for the last page.
    mark: u8,
}

#[cfg(test)]
thread_local! {
    /// The number of buffers for which the calling thread still has memory.
    pub(crate) static BUFFERS_LEFT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

impl Chunk {
    /// Creates a chunk that begins with an empty page.
    pub(crate) fn new(file: Arc<LogFile>, buffer: Buffer, first_page: u32, previous_used: usize) -> Chunk {
        let mut chunk = Chunk {
            file,
            buffer,
            first_page,
            pages: 0,
            tail_used: PAYLOAD_BYTES,
            records: 0,
            dirty: true,
            rewrite: false,
            written: Image::default(),
            durable: Image::default(),
            mark: 0,
        };
        chunk.begin_page(previous_used);
        chunk
    }

    /// Returns a buffer of the ordinary size.
    pub(crate) fn ordinary_buffer() -> Buffer {
        Buffer::new(CHUNK_PAGES * PAGE_BYTES)
    }

    /// Returns a buffer for a part of a record of which `bytes` are left, or `None` if memory runs out.
    pub(crate) fn try_new_buffer(bytes: usize) -> Option<Buffer> {
        #[cfg(test)]
        BUFFERS_LEFT.set(BUFFERS_LEFT.get().checked_sub(1)?);
        let pages = (bytes / PAYLOAD_BYTES + 2).clamp(CHUNK_PAGES, LONG_CHUNK_PAGES);
        Buffer::try_new(pages * PAGE_BYTES)
    }

    /// Returns the buffer, if it is of the ordinary size.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        (self.buffer.len() == CHUNK_PAGES * PAGE_BYTES).then_some(self.buffer)
    }

    /// Returns the payload bytes that fit behind what is used.
    pub(crate) fn room_bytes(&self) -> usize {
        (self.buffer.len() / PAGE_BYTES - self.pages) * PAYLOAD_BYTES + PAYLOAD_BYTES - self.tail_used
    }

    /// Returns true if the buffer has room for one more page.
    pub(crate) fn has_page(&self) -> bool {
        (self.pages + 1) * PAGE_BYTES <= self.buffer.len()
    }

    /// Begins the next page. The last one must be full.
    pub(crate) fn begin_page(&mut self, previous_used: usize) {
        debug_assert!(self.tail_used == PAYLOAD_BYTES && self.has_page());
        let page = &mut self.buffer[self.pages * PAGE_BYTES..][..PAGE_BYTES];
        page.fill(0);
        page[at::FIRST_RECORD..][..2].copy_from_slice(&NO_RECORD.to_le_bytes());
        page[at::PREVIOUS_USED..][..2].copy_from_slice(&(previous_used as u16).to_le_bytes());
        self.pages += 1;
        self.tail_used = 0;
    }

    fn tail(&mut self) -> &mut [u8] {
        &mut self.buffer[(self.pages - 1) * PAGE_BYTES..][..PAGE_BYTES]
    }

    /// Notes that a record starts at the end of what is used.
    pub(crate) fn begin_record(&mut self) {
        self.records += 1;
        let used = self.tail_used as u16;
        let field = &mut self.tail()[at::FIRST_RECORD..][..2];
        if *field == NO_RECORD.to_le_bytes() {
            field.copy_from_slice(&used.to_le_bytes());
        }
    }

    /// Copies as much of `bytes` as fits in the last page; returns how much.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> usize {
        let used = self.tail_used;
        let count = bytes.len().min(PAYLOAD_BYTES - used);
        self.tail()[HEADER_BYTES + used..][..count].copy_from_slice(&bytes[..count]);
        self.tail_used += count;
        self.dirty = true;
        count
    }

    /// Makes the last page the last one of its file: `flag::ENDED` or `flag::CLOSED`.
    pub(crate) fn end(&mut self, mark: u8) {
        self.mark = mark;
        self.dirty = true;
    }

    /// Returns true if records can still go into the last page.
    pub(crate) fn is_open(&self) -> bool {
        self.mark == 0 && self.tail_used < PAYLOAD_BYTES
    }

    /// Returns the position of page 0's payload.
    pub(crate) fn start_position(&self) -> u64 {
        self.file.position(self.first_page)
    }

    /// Returns the position behind the last record, or behind the last page if it is the file's last.
    pub(crate) fn end_position(&self) -> u64 {
        let used = if self.mark == 0 { self.tail_used } else { PAYLOAD_BYTES };
        self.file.position(self.first_page) + ((self.pages - 1) * PAYLOAD_BYTES + used) as u64
    }

    /// Returns the number of the page behind the last.
    pub(crate) fn next_page(&self) -> u32 {
        self.first_page + self.pages as u32
    }

    /// Completes the headers; everything before position `durable` is durable.
    pub(crate) fn seal(&mut self, durable: u64) {
        assert!(durable <= self.end_position(), "durable to {durable}, written to {}", self.end_position());
        assert!(self.durable.used <= self.written.used, "what is durable of a page was written");
        let file = &self.file;
        let durable_pages = (durable.saturating_sub(file.base) / PAYLOAD_BYTES as u64) as u32;
        let mut flags = 0;
        if file.distance == 0 {
            flags |= flag::BEGINS;
        } else if durable >= file.base {
            flags |= flag::PREVIOUS_DURABLE;
        }
        for index in 0..self.pages {
            let last = index + 1 == self.pages;
            let used = if last { self.tail_used } else { PAYLOAD_BYTES };
            let page_number = self.first_page + index as u32;
            let page = &mut self.buffer[index * PAGE_BYTES..][..PAGE_BYTES];
            // Only the bytes added since the last image are gone over.
            let (before, durable) = if index == 0 { (self.written, self.durable) } else { Default::default() };
            let payload = &page[HEADER_BYTES..];
            let checksum = crc32c::crc32c_append(before.checksum, &payload[before.used..used]);
            let first_record = u16_at(page, at::FIRST_RECORD);
            let header = Header {
                flags: if last { flags | self.mark } else { flags },
                first_record: (first_record != NO_RECORD).then_some(first_record),
                file_number: file.number,
                page_number,
                used: used as u16,
                previous_used: u16_at(page, at::PREVIOUS_USED),
                // A rewritten page is not durable in its final image, whatever was known of the older one.
                durable_pages: durable_pages.min(page_number),
                durable_used: durable.used as u16,
                durable_checksum: durable.checksum,
                payload_checksum: checksum,
                previous_distance: file.distance,
            };
            header.encode(page);
            if last {
                self.written = Image { used, checksum };
                if index > 0 {
                    self.durable = Image::default();
                }
            }
        }
    }

    /// Writes all pages.
    pub(crate) fn write(&self, durable: bool) -> situ_storage::Result<()> {
        self.check();
        self.file.pages.write(u64::from(self.first_page), &self.buffer, self.pages, durable)
    }

    /// Returns the bytes of all pages.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.check();
        &self.buffer[..self.pages * PAGE_BYTES]
    }

    fn check(&self) {
        let (pages, end) = (self.file.page_count, self.next_page());
        assert!(end <= pages, "{pages} pages, written to {end}");
    }

    /// Keeps, after a write, only the last page, to be written again with more records.
    pub(crate) fn reopen(mut self, durable: bool, ordinary: impl FnOnce() -> Buffer) -> Chunk {
        let last = (self.pages - 1) * PAGE_BYTES;
        if self.buffer.len() != CHUNK_PAGES * PAGE_BYTES {
            let mut buffer = ordinary();
            buffer[..PAGE_BYTES].copy_from_slice(&self.buffer[last..][..PAGE_BYTES]);
            self.buffer = buffer;
        } else if last > 0 {
            self.buffer.copy_within(last..last + PAGE_BYTES, 0);
        }
        self.first_page += self.pages as u32 - 1;
        self.pages = 1;
        self.records = 0;
        self.dirty = false;
        self.rewrite = true;
        if durable {
            self.durable = self.written;
        }
        self
    }
}
