//! Reading the records of a log that is being written.
//!
//! The reader keeps its place: file, page, and the payload bytes of that page that were read. A page that is not full
//! may be written again with more records, so the reader looks at it again. It goes on to the next page when that page
//! says how much the final image of this one holds (`previous_used`).
//!
//! The reader judges each page by itself. The caller knows the log's end and its sequence numbers, and decides what a
//! missing record means: not written yet, or gone with a released file.
//!
//! **Failure**: a page that is being written, is damaged, or belongs to a later life of the file ends the reading for
//! now. Nothing is handed out whose checksums do not match.

use crate::page::{PageState, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, classify, payload, record_header};
use situ_base::bytes::u32_at;
use situ_device::PAGE_BYTES;
use situ_storage::memory::{require, resize};
use situ_storage::{Error, FileName, PageFile, Result, Volume};
use std::fmt::Debug;
use std::sync::Arc;

/// The number of pages in one read.
const READ_PAGES: u64 = 32;

/// A reader of one log file, from its first record on, while other threads may write the file.
pub struct FileFollower {
    file: Arc<dyn PageFile>,
    number: u64,
    page: u64,
    /// Payload bytes of the page that were read.
    read: usize,
    /// The bytes that were read, from a record's beginning on.
    pending: Vec<u8>,
    /// The bytes at the front of `pending` that were handed out.
    taken: usize,
    /// Pages from `piece_first` on, as they were when they were read.
    piece: Vec<u8>,
    piece_first: u64,
    ended: bool,
}

impl FileFollower {
    /// Opens log file `number`.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), or the system refuses.
    pub fn open(volume: &dyn Volume, number: u64) -> Result<FileFollower> {
        let file = volume.open_pages(FileName::Log(number))?;
        let (pending, piece) = (Vec::new(), Vec::new());
        Ok(FileFollower { file, number, page: 0, read: 0, pending, taken: 0, piece, piece_first: 0, ended: false })
    }

    /// Returns the number of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if the file's last page was read: the log goes on in another file, if at all.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns true if the file begins a log, or if a log that ends file `ended` goes on in this one. False if the
    /// first page is not written or is damaged. To be asked before the first record is read.
    ///
    /// # Errors
    /// The system refuses to read.
    pub fn follows(&mut self, ended: Option<u64>) -> Result<bool> {
        self.read_piece()?;
        let state = self.state(0);
        let Some(header) = state.as_ref().and_then(PageState::header) else { return Ok(false) };
        let previous = header.file_number.checked_sub(u64::from(header.previous_distance));
        Ok(header.begins() || (ended.is_some() && previous == ended))
    }

    /// Returns the checksum and the body of the next record; `None` if the file holds no further one for now.
    ///
    /// # Errors
    /// A record breaks the format; the system refuses to read, or has no memory for the record.
    pub fn next_record(&mut self) -> Result<Option<(u32, &[u8])>> {
        loop {
            if self.taken > 0 {
                self.pending.drain(..self.taken);
                self.taken = 0;
            }
            if let Some(end) = self.record_end()? {
                self.taken = end;
                return Ok(Some((u32_at(&self.pending, 4), &self.pending[RECORD_HEADER_BYTES..end])));
            }
            if self.ended || !self.read_more()? {
                return Ok(None);
            }
        }
    }

    /// Returns the end of the first record among the pending bytes, if all of it is there.
    fn record_end(&self) -> Result<Option<usize>> {
        let Some((header, rest)) = self.pending.split_first_chunk::<RECORD_HEADER_BYTES>() else { return Ok(None) };
        let length = u32_at(header, 0);
        let broken = |what: &str, expected: &dyn Debug, found: &dyn Debug| {
            let at = self.page * PAGE_BYTES as u64;
            Error::corruption(self.file.path(), at, what, format!("{expected:02x?}"), format!("{found:02x?}"))
        };
        if length as usize > RECORD_BYTES_MAX {
            return Err(broken("length of a record", &RECORD_BYTES_MAX, &length));
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        let expected = record_header(length, &[body]);
        if expected != *header {
            return Err(broken("header of a record", &expected, header));
        }
        Ok(Some(RECORD_HEADER_BYTES + body.len()))
    }

    /// Takes the bytes that are new in this page, or goes on to the next page. Returns false if there is nothing new.
    fn read_more(&mut self) -> Result<bool> {
        let is_old = self.state(self.page).is_some();
        if is_old && self.take_of_piece()? {
            return Ok(true);
        }
        if self.ended {
            return Ok(false);
        }
        self.read_piece()?;
        self.take_of_piece()
    }

    fn take_of_piece(&mut self) -> Result<bool> {
        let Some(PageState::Good(header)) = self.state(self.page) else { return Ok(false) };
        let used = usize::from(header.used);
        if used > self.read {
            let (pages, _) = self.piece.as_chunks::<PAGE_BYTES>();
            let bytes = &payload(&pages[(self.page - self.piece_first) as usize])[self.read..used];
            require(bytes.len(), self.file.path())?;
            self.pending.extend_from_slice(bytes);
            self.read = used;
            return Ok(true);
        }
        self.ended = header.ended();
        let is_final = |next: PageState| next.header().is_some_and(|next| usize::from(next.previous_used) == self.read);
        if self.ended || !self.state(self.page + 1).is_some_and(is_final) {
            return Ok(false);
        }
        self.page += 1;
        self.read = 0;
        Ok(true)
    }

    /// Reads the present page and some behind it.
    fn read_piece(&mut self) -> Result<()> {
        let pages = READ_PAGES.min(self.file.pages().saturating_sub(self.page));
        resize(&mut self.piece, pages as usize * PAGE_BYTES, self.file.path())?;
        self.piece_first = self.page;
        let read = self.file.read_at(self.page * PAGE_BYTES as u64, &mut self.piece);
        read.inspect_err(|_| self.piece.clear())
    }

    /// Returns the state of a page when the piece was read; `None` if it is not in the piece.
    fn state(&self, page: u64) -> Option<PageState> {
        let (pages, _) = self.piece.as_chunks::<PAGE_BYTES>();
        let bytes = pages.get(usize::try_from(page.checked_sub(self.piece_first)?).ok()?)?;
        Some(classify(bytes, self.number, page as u32))
    }
}
