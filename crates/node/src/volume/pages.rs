//! A page file on the node.
//!
//! Short writes travel as what changed ([`PatchPages`]): of a page that was written before, since the image that the
//! node has, and of other pages, since zeros. The client keeps the images of the pages that it wrote last. It tries a
//! patch again as any other request. A node that does not have the image answers so, as after a restart, and gets the
//! whole page.
//!
//! What is not synced is kept besides, for a machine that is restarted (`buffered.rs`).
//!
//! **Invariants.** An image is kept only of a write that was answered. While the page is written, it is not kept.
//! **Threads.** Any; no page is written by two at once.

use super::buffered::{Buffered, FIELDS_BYTES};
use super::open::OpenFile;
use crate::changes;
use crate::client::NodeClient;
use crate::error::CallError;
use crate::fields::Rest;
use crate::message::{PatchPages, ReadPages, WritePages};
use situ_base::lock;
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::{Error, PageFile, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Images that are kept of a page file: one page is written again, and others may be in flight.
const IMAGES_MAX: usize = 4;

pub(super) struct NodePageFile {
    client: Arc<NodeClient>,
    file: Arc<OpenFile>,
    buffered: Arc<Buffered>,
    /// Pages that were written last, each with its number.
    images: Mutex<VecDeque<(u64, Vec<u8>)>>,
}

impl NodePageFile {
    pub(super) fn new(client: Arc<NodeClient>, file: Arc<OpenFile>, buffered: &Arc<Buffered>) -> NodePageFile {
        NodePageFile { client, file, buffered: Arc::clone(buffered), images: Mutex::default() }
    }

    /// Writes pages that fit into one request.
    fn write_some(&self, first: u64, pages: &[u8], durable: bool) -> Result<()> {
        let count = pages.len() / PAGE_BYTES;
        let mut image = self.take_image(first, count);
        let kept = self.buffered.keep(&self.file, first, pages, durable);
        let done = kept.and_then(|()| self.send(first, pages, image.as_deref(), durable));
        done.map_err(|error| error.about("write", &self.file.path))?;
        self.buffered.answered(self.file.handle, first, count, durable);
        let last = &pages[pages.len() - PAGE_BYTES..];
        let mut kept = image.take().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(last);
        self.put_image(first + count as u64 - 1, kept);
        Ok(())
    }

    /// Sends pages until they are answered, as what changed if that is less.
    fn send(&self, first: u64, pages: &[u8], image: Option<&[u8]>, durable: bool) -> Result<(), CallError> {
        let (token, handle) = (self.client.token(), self.file.handle);
        let mut patch = patch_of((token, handle), first, (image, pages), durable);
        let mut whole = None;
        let shared = &self.file.shared;
        shared.retry(shared.options.write_patience, |attempt| {
            self.buffered.ready(attempt, token)?;
            if let Some(asked) = &patch {
                match attempt.ask(asked) {
                    Err(CallError::Unknown(_)) => patch = None,
                    answer => return answer.map(drop),
                }
            }
            let write = whole.get_or_insert_with(|| {
                let data = Rest(pages.to_vec());
                WritePages { token, handle, first, durable, data }
            });
            self.file.ask(attempt, write).map(drop)
        })
    }

    /// The image of the first page; of none of these is one kept any more.
    fn take_image(&self, first: u64, count: usize) -> Option<Vec<u8>> {
        let mut images = lock(&self.images);
        let at = images.iter().position(|(page, _)| *page == first);
        let image = at.and_then(|at| images.remove(at));
        images.retain(|(page, _)| !(first..first + count as u64).contains(page));
        image.map(|(_, bytes)| bytes)
    }

    fn put_image(&self, page: u64, bytes: Vec<u8>) {
        let mut images = lock(&self.images);
        if images.len() >= IMAGES_MAX {
            images.pop_front();
        }
        images.push_back((page, bytes));
    }
}

/// Returns the patch to send instead of pages: what changed in the first one since its image, and what is not zero in
/// the others. Returns `None` if that is not less.
fn patch_of(
    (token, handle): (u64, u64),
    first: u64,
    (image, new): (Option<&[u8]>, &[u8]),
    durable: bool,
) -> Option<PatchPages> {
    let pages = u8::try_from(new.len() / PAGE_BYTES)
        .ok()
        .filter(|pages| (1..=changes::PAGES_MAX).contains(&(*pages).into()))?;
    let first = u32::try_from(first).ok()?;
    let pieces = changes::find(image, new);
    if pieces.len() >= new.len() {
        return None;
    }
    let (on_image, check) = (image.is_some(), crc32c::crc32c(new));
    Some(PatchPages { token, handle, first, pages, durable, on_image, check, pieces: Rest(pieces) })
}

impl PageFile for NodePageFile {
    fn path(&self) -> &str {
        &self.file.path
    }

    fn pages(&self) -> u64 {
        self.file.bytes / PAGE_BYTES as u64
    }

    /// A write waits for the node's answer, whatever the node keeps pages in.
    fn writes_wait(&self) -> bool {
        true
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        let bytes = &buffer[..count * PAGE_BYTES];
        assert!(first + count as u64 <= self.pages(), "pages {first}+{count} of {} in {}", self.pages(), self.path());
        let most = self.file.shared.payload_bytes_max() - FIELDS_BYTES;
        let pages_max = (most / PAGE_BYTES).max(1);
        for (index, pages) in bytes.chunks(pages_max * PAGE_BYTES).enumerate() {
            self.buffered.wait_for_room(self.client.token())?;
            self.write_some(first + (index * pages_max) as u64, pages, durable)?;
            self.buffered.begin_sync(self.client.token());
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.buffered.sync(&self.file, self.client.token())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.file.bytes) {
            let found = format!("the end of the file at {}", self.file.bytes);
            let expected = format!("{} bytes", into.len());
            return Err(Error::corruption(self.path(), offset, "file length", expected, found));
        }
        let shared = &self.file.shared;
        let deadline = shared.now() + shared.options.read_patience;
        let mut done = 0;
        while done < into.len() {
            let read = shared.retry_until(deadline, |attempt| {
                let bytes = (into.len() - done).min(attempt.peer.payload_bytes_max());
                let read = ReadPages { handle: self.file.handle, offset: offset + done as u64, bytes: bytes as u32 };
                self.file.read(attempt, &read, bytes)
            });
            let read = read.map_err(|error| error.about("read", self.path()))?;
            into[done..done + read.len()].copy_from_slice(&read);
            done += read.len();
        }
        Ok(())
    }
}

impl Drop for NodePageFile {
    fn drop(&mut self) {
        self.buffered.closed(self.file.handle);
    }
}
