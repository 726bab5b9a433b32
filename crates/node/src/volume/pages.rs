//! A page file on the node.

use super::check_machine;
use super::open::OpenFile;
use super::reader::fit;
use crate::client::NodeClient;
use crate::error::CallError;
use crate::fields::Rest;
use crate::message::{ReadPages, SyncPages, WritePages};
use situ_device::{Buffer, PAGE_BYTES, lock};
use situ_storage::{Error, PageFile, Result};
use std::sync::{Arc, Mutex};

/// Bytes of a write that are not pages: the fields before them, and then some.
const FIELDS_BYTES: usize = 64;

pub(super) struct NodePageFile {
    client: Arc<NodeClient>,
    file: Arc<OpenFile>,
    writes_wait: bool,
    /// The machine's start when pages were written that are not synced yet: the earliest.
    unsynced: Mutex<Option<[u8; 16]>>,
}

impl NodePageFile {
    pub(super) fn new(client: Arc<NodeClient>, file: Arc<OpenFile>, writes_wait: bool) -> NodePageFile {
        NodePageFile { client, file, writes_wait, unsynced: Mutex::default() }
    }

    fn change<T>(
        &self,
        op: &'static str,
        request: impl FnMut(&crate::client::Attempt) -> Result<T, CallError>,
    ) -> Result<T> {
        let shared = &self.file.shared;
        let done = shared.retry(shared.options.write_patience, request);
        done.map_err(|error| error.about(op, &self.file.path))
    }
}

impl PageFile for NodePageFile {
    fn path(&self) -> &str {
        &self.file.path
    }

    fn pages(&self) -> u64 {
        self.file.bytes / PAGE_BYTES as u64
    }

    fn writes_wait(&self) -> bool {
        self.writes_wait
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        let bytes = &buffer[..count * PAGE_BYTES];
        assert!(first + count as u64 <= self.pages(), "pages {first}+{count} of {} in {}", self.pages(), self.path());
        let (token, handle) = (self.client.token(), self.file.handle);
        let most = self.file.shared.payload_bytes_max() - FIELDS_BYTES;
        let pages_max = (most / PAGE_BYTES).max(1);
        for (index, pages) in bytes.chunks(pages_max * PAGE_BYTES).enumerate() {
            let first = first + (index * pages_max) as u64;
            let write = WritePages { token, handle, first, durable, data: Rest(pages.to_vec()) };
            let machine = self.change("write", |attempt| {
                // Should it be lost on its way, it is not known on which machine it was done: on the earlier one.
                if !durable {
                    lock(&self.unsynced).get_or_insert(attempt.machine);
                }
                self.file.ask(attempt, &write).map(|_| attempt.machine)
            })?;
            if !durable {
                lock(&self.unsynced).get_or_insert(machine);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let (token, handle) = (self.client.token(), self.file.handle);
        let unsynced = lock(&self.unsynced).take();
        let done = self.change("sync", |attempt| {
            check_machine(unsynced, attempt, &self.file.path)?;
            self.file.ask(attempt, &SyncPages { token, handle })
        });
        if done.is_err() {
            // The earliest machine counts, also against writes that came meanwhile.
            let mut now = lock(&self.unsynced);
            *now = unsynced.or(*now);
        }
        done.map(drop)
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
                let answer = self.file.ask(attempt, &read)?.data.0;
                fit(&answer, bytes)?;
                Ok(answer)
            });
            let read = read.map_err(|error| error.about("read", self.path()))?;
            into[done..done + read.len()].copy_from_slice(&read);
            done += read.len();
        }
        Ok(())
    }
}
