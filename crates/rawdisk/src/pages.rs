//! A page file in the log area.

use super::file::File;
use super::layout::PAGE;
use super::reader::{check_range, read_extents};
use super::room::Extent;
use super::shared::Shared;
use super::transfer::places;
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::{Error, FileName, PageFile, PageQueue, Result};
use std::io;
use std::sync::Arc;

mod queue;

use queue::RawPageQueue;

#[derive(Clone)]
pub(super) struct RawPageFile {
    shared: Arc<Shared>,
    /// Keeps the pages.
    file: Arc<File>,
    name: FileName,
    path: Arc<str>,
    extents: Arc<[Extent]>,
    pages: u64,
    is_log: bool,
}

impl RawPageFile {
    /// # Errors
    /// The file's bytes are in the catalogue.
    pub(super) fn new(shared: Arc<Shared>, file: Arc<File>, name: FileName, is_log: bool) -> Result<RawPageFile> {
        let path: Arc<str> = shared.path(name).into();
        let (extents, pages) = {
            let meta = file.meta();
            if meta.inline.is_some() {
                return Err(Error::Invalid(format!("{path} is a small file, without pages; read it as a whole")));
            }
            (meta.extents.clone().into(), meta.length / PAGE)
        };
        Ok(RawPageFile { shared, file, name, path, extents, pages, is_log })
    }

    /// # Errors
    /// The pages cannot be written, or the volume takes no changes.
    fn check_write(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let count = (bytes.len() / PAGE_BYTES) as u64;
        assert!(first + count <= self.pages, "pages {first}+{count} of {} in {}", self.pages, self.path);
        if !self.is_log {
            let path = &self.path;
            return Err(Error::Invalid(format!("{path} is a file written once; its pages cannot be written again")));
        }
        self.shared.check_alive()
    }

    /// Returns the error of a write.
    fn fail(&self, error: io::Error) -> Error {
        self.shared.fail("write", self.name, error)
    }
}

impl PageFile for RawPageFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn pages(&self) -> u64 {
        self.pages
    }

    fn writes_wait(&self) -> bool {
        true
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        let bytes = &buffer[..count * PAGE_BYTES];
        self.check_write(first, bytes)?;
        let places = places(&self.extents, first, count as u64);
        self.shared.transfers.write_log(&places, bytes, durable).map_err(|error| self.fail(error))
    }

    fn sync(&self) -> Result<()> {
        self.shared.flush()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        check_range(&self.path, self.pages * PAGE, offset, into.len())?;
        read_extents(&self.shared, (&self.file, self.name), &self.extents, offset, into)
    }

    fn queue(&self) -> Option<Box<dyn PageQueue>> {
        let lent = self.shared.transfers.log_queue()?;
        Some(Box::new(RawPageQueue::new(self.clone(), lent)))
    }
}
