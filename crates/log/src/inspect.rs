//! Walking over the pages of one log file, whatever they hold.

use crate::page::{Damage, Header, PageState, classify, header_of};
use situ_device::PAGE_BYTES;
use situ_storage::{FileName, PageFile, Result, Volume, memory};
use std::sync::Arc;

/// The number of pages in one read.
const READ_PAGES: usize = 256;

/// One page of a log file and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its index in the file.
    pub number: u32,
    /// The state of the page, judged by itself.
    pub state: PageState,
}

/// The pages of a log file, in order. Reads 1 MiB at a time. After an error it goes on behind the piece that failed.
pub struct Pages {
    file: Arc<dyn PageFile>,
    number: u64,
    next: u64,
    count: u64,
    piece: Vec<u8>,
    piece_first: u64,
}

/// Lists the pages of log file `number` with their states, for people and for tools.
///
/// # Errors
/// The file cannot be opened. Each item may be an error of reading.
pub fn inspect(volume: &dyn Volume, number: u64) -> Result<Pages> {
    Ok(Pages::new(volume.open_pages(FileName::Log(number))?, number))
}

impl Pages {
    pub(crate) fn new(file: Arc<dyn PageFile>, number: u64) -> Pages {
        let count = file.pages().min(u64::from(u32::MAX));
        Pages { file, number, next: 0, count, piece: Vec::new(), piece_first: 0 }
    }

    /// Returns the next page with its bytes.
    pub(crate) fn read_next(&mut self) -> Option<Result<(Page, &[u8; PAGE_BYTES])>> {
        let file = self.number;
        Some(self.next_bytes()?.map(|(number, bytes)| (Page { number, state: classify(bytes, file, number) }, bytes)))
    }

    /// Returns the next page's number and the contents of its header, without a look at the payload.
    #[allow(clippy::type_complexity, reason = "what an iterator of results of results is")]
    pub(crate) fn read_next_header(&mut self) -> Option<Result<(u32, std::result::Result<Option<Header>, Damage>)>> {
        let file = self.number;
        Some(self.next_bytes()?.map(|(number, bytes)| (number, header_of(bytes, file, number))))
    }

    fn next_bytes(&mut self) -> Option<Result<(u32, &[u8; PAGE_BYTES])>> {
        if self.next >= self.count {
            return None;
        }
        let held = self.piece_first + (self.piece.len() / PAGE_BYTES) as u64;
        if self.next >= held {
            let pages = (self.count - self.next).min(READ_PAGES as u64);
            self.piece_first = self.next;
            let resized = memory::resize(&mut self.piece, pages as usize * PAGE_BYTES, self.file.path());
            let read = resized.and_then(|()| self.file.read_at(self.next * PAGE_BYTES as u64, &mut self.piece));
            if let Err(error) = read {
                self.piece.clear();
                self.next += pages;
                self.piece_first = self.next;
                return Some(Err(error));
            }
        }
        let index = (self.next - self.piece_first) as usize;
        let (pages, _) = self.piece.as_chunks::<PAGE_BYTES>();
        assert!(index < pages.len(), "page {} is not among the {} from {}", self.next, pages.len(), self.piece_first);
        let bytes = pages.get(index)?;
        let number = self.next as u32;
        self.next += 1;
        Some(Ok((number, bytes)))
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.read_next().map(|result| result.map(|(page, _)| page))
    }
}
