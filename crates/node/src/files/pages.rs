//! A page file of a session, which fails for good when a sync fails.
//!
//! A system that could not write pages may forget them, and answers the next sync with success. The client's second
//! copy of a request, sent because the first answer was lost, must not hear of that success.
//!
//! **Invariants.** After a sync or a durable write has failed, each further write or sync fails with the same error.
//! Reads go on. A client that opens the file under another number starts without that error.
//! **Threads.** Any. No lock is held while the volume works.

use situ_base::lock;
use situ_device::Buffer;
use situ_storage::{Error, PageFile, Result};
use std::sync::{Arc, Mutex};

/// See the module's page.
pub(super) struct Pages {
    file: Arc<dyn PageFile>,
    failed: Mutex<Option<Error>>,
}

impl Pages {
    pub(super) fn new(file: Arc<dyn PageFile>) -> Pages {
        Pages { file, failed: Mutex::default() }
    }

    pub(super) fn path(&self) -> &str {
        self.file.path()
    }

    pub(super) fn pages(&self) -> u64 {
        self.file.pages()
    }

    pub(super) fn writes_wait(&self) -> bool {
        self.file.writes_wait()
    }

    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, into)
    }

    /// As [`PageFile::write`]. One that need not be durable may be tried again: it brings all its bytes once more.
    pub(super) fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        self.check()?;
        let written = self.file.write(first, buffer, count, durable);
        if durable { self.latch(written) } else { written }
    }

    /// As [`PageFile::sync`].
    pub(super) fn sync(&self) -> Result<()> {
        self.check()?;
        self.latch(self.file.sync())
    }

    fn check(&self) -> Result<()> {
        lock(&self.failed).clone().map_or(Ok(()), Err)
    }

    fn latch(&self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            lock(&self.failed).get_or_insert_with(|| error.clone());
        }
        outcome
    }
}
