//! A disk without a file system as a [`Volume`].
//!
//! ```text
//!   Volume ──> shared.rs    names, rooms, what is emitted and what is durable
//!                 │ journal.rs   catalogue.rs   frame.rs   layout.rs      bytes on the disk (docs/formats/disk.md)
//!                 │ room.rs      who has which pages
//!   Writer ──> writer.rs    1 MiB pieces, several in flight ─┐
//!   Reader ──> reader.rs    64 KiB units ── cache.rs         ├─> transfer.rs ──> device queues
//!   PageFile > pages.rs     straight to their place ─────────┘
//!   Reader::submit ──> reads.rs    one thread ───────────────────> a device queue
//! ```
//!
//! The device is divided into a *log area* for page files and *TopFS* for files written once. Names and extents are
//! kept in memory and made durable by a journal of metadata, whose writes concurrent callers share.
//!
//! * A page file is a run of pages: writing one is one write of the device, durable if asked, and nothing else.
//! * A file written once gets a run of `bound` bytes when it is begun, writes past all other files, and gives back what
//!   it did not need. If there is no run of that length it gets several; only when all free pages together are too few
//!   is there no space.
//! * A removed file's pages are given away when the removal is durable and the last handle has gone. [`Volume::tidy`]
//!   discards them on the device, a part at a time, and not at all if a file needs them first. A device may take a
//!   tenth of a second for some hundred MiB, and a caller that makes a file or syncs names does not wait for that.
//!   Pages that are not discarded when the volume is dropped count as discarded when it is opened again, until they
//!   have been used once more.
//!
//! **Invariants.** A page belongs to one file, to a checkpoint, or to neither. The bytes that a durable record names
//! are durable.
//! **Threads.** One lock for names, rooms and what is emitted; never held across anything that waits for the device.
//! **Failure.** An I/O error of a file concerns that file alone. After a failure of the journal, or of a flush, it is
//! unknown what is durable. The volume then takes no change any more until it is opened again, and goes on reading. A
//! device that has become shorter takes no writes (`Device::space`), and [`Volume::troubles`] says so.
//!
//! Rejected: writing metadata in place (a torn write loses old and new), and a B-tree of extents on the disk (a store
//! has some thousand files: all of it fits into memory and a checkpoint).

#![forbid(unsafe_code)]

mod beside;
mod cache;
mod catalogue;
mod file;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod journal;
mod layout;
mod log_queue;
mod pages;
mod prepare;
mod reader;
mod reads;
mod report;
mod room;
mod shared;
mod signature;
mod transfer;
mod writer;

pub use cache::CacheUse;
pub use layout::DiskId;
pub use prepare::{FormatOptions, RawCheck};
pub use report::{AreaUse, RawReport};
pub use signature::Signature;

use cache::Cache;
use catalogue::INLINE_BYTES_MAX;
use file::File;
use layout::PAGE;
use pages::RawPageFile;
use reader::RawReader;
use reads::{FileReader, RawRead};
use room::{Extent, Room};
use shared::{Shared, State};
use situ_base::Env;
use situ_device::{Device, DeviceLock, Geometry, Nature, PAGE_BYTES, Space};
use situ_storage::serve::ReadService;
use situ_storage::{Error, FileMeta, FileName, Lock, PageFile, Reader, Result, Volume, Writer};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use transfer::Transfers;
use writer::RawWriter;

/// Options for opening a [`RawVolume`]. The default is right for a store.
#[derive(Debug, Clone)]
pub struct RawOptions {
    /// Bytes of memory for the cache of files written once, in addition to the store's own cache of blocks. It keeps
    /// what was just written for the merge that reads it next. 0: none. Default: 64 MiB. Each file that is being
    /// written takes up to 6 MiB more, for pieces that are filled or in flight.
    pub cache_bytes: u64,
}

impl Default for RawOptions {
    fn default() -> RawOptions {
        RawOptions { cache_bytes: 64 << 20 }
    }
}

/// A store's files on a device of its own.
pub struct RawVolume {
    shared: Arc<Shared>,
    /// Reads that were submitted.
    reads: Arc<ReadService<RawRead>>,
}

impl fmt::Debug for RawVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawVolume({})", self.shared.transfers.location)
    }
}

fn lock_device(device: &dyn Device) -> Result<Box<dyn DeviceLock>> {
    let location = device.describe();
    device.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { path: location, why: Some(error.to_string()) },
        _ => Error::io("lock", location, error),
    })
}

impl RawVolume {
    /// Makes a Situ disk of a device, and takes its lock meanwhile. Everything on the device is lost. A file gets all
    /// of its room.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): the device is too small, it has data at its front or its end and
    /// [`force`](FormatOptions::force) was not given, or the file system has less room than the file is long;
    /// [`Locked`](Error::Locked): it is in use; or the system refuses.
    pub fn format(device: Arc<dyn Device>, env: Env, options: &FormatOptions) -> Result<()> {
        let _lock = lock_device(&*device)?;
        prepare::format(&Transfers::new(device, env)?, options).map(drop)
    }

    /// Reads the metadata of a Situ disk. Nothing is written. A caller that is going to change the volume takes its
    /// [`lock`](Volume::lock) first. A caller that only reads needs no lock while another process writes: files that
    /// have gone meanwhile, open ones too, are [`NotFound`](Error::NotFound).
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): it is no Situ disk, or one of a later version, or the device has been cut;
    /// [`Corruption`](Error::Corruption); or the system refuses.
    pub fn open(device: Arc<dyn Device>, env: Env, options: RawOptions) -> Result<RawVolume> {
        let transfers = Transfers::new(device, env)?;
        let cache = Arc::new(Cache::new(options.cache_bytes));
        let state = State::new(prepare::load(&transfers)?, &transfers, &cache, 0)?;
        Ok(RawVolume { shared: Arc::new(Shared::new(transfers, cache, state)), reads: Arc::default() })
    }

    /// Reads and verifies all metadata of a disk, and changes nothing.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): it never was a Situ disk, for all that can be seen; or the system refuses. Damage
    /// is no error: it is what the result tells.
    pub fn check(device: Arc<dyn Device>, env: Env) -> Result<RawCheck> {
        prepare::check(&Transfers::new(device, env)?)
    }

    fn sized(&self, name: FileName, bytes: u64, in_log: bool, op: &'static str) -> Result<(Arc<File>, Vec<Extent>)> {
        let shared = &self.shared;
        shared.reserve_checkpoint()?;
        let file = shared.begin(op, name, in_log)?;
        let pages = bytes.div_ceil(PAGE);
        if pages == 0 {
            return Ok((file, Vec::new()));
        }
        let Some(extents) = shared.allocate(&file.room, pages) else {
            shared.abandon(&file);
            return Err(Error::NoSpace { op, path: shared.path(name) });
        };
        file.meta().extents.clone_from(&extents);
        Ok((file, extents))
    }

    /// Makes the pages of a new page file zeros, those of them that may be something else. Durably.
    fn wipe(&self, name: FileName, extents: &[Extent]) -> Result<()> {
        let (log, touched) = {
            let state = self.shared.lock();
            (state.layout.log, state.catalogue.log_touched)
        };
        let touched_end = log.first + touched;
        let places = extents.iter().map(|extent| {
            let end = (extent.first + extent.pages).min(touched_end);
            Extent { first: extent.first, pages: end.saturating_sub(extent.first) }
        });
        let touched: Vec<Extent> = places.filter(|place| place.pages > 0).collect();
        for place in &touched {
            self.shared.transfers.zero(*place).map_err(|error| self.shared.fail("zero", name, error))?;
        }
        if touched.is_empty() { Ok(()) } else { self.shared.flush() }
    }

    fn open_file(&self, name: FileName) -> Result<(Arc<File>, bool)> {
        let file = self.shared.find(name)?;
        let log = self.shared.lock().layout.log;
        let is_log = file.meta().extents.first().is_some_and(|extent| log.contains(extent));
        Ok((file, is_log))
    }
}

impl Volume for RawVolume {
    fn location(&self) -> String {
        self.shared.transfers.location.clone()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        let (file, extents) = self.sized(name, bound, false, "create")?;
        Ok(Box::new(RawWriter::new(Arc::clone(&self.shared), file, name, extents)))
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        let (file, is_log) = self.open_file(name)?;
        let reader = RawReader::new(Arc::clone(&self.shared), file, name, is_log);
        Ok(Arc::new(FileReader::new(reader, &self.reads)))
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let shared = &self.shared;
        let bytes = bytes.next_multiple_of(PAGE_BYTES as u64);
        let (file, extents) = self.sized(name, bytes, true, "reserve room for")?;
        let make = || {
            self.wipe(name, &extents)?;
            if let Some(number) = shared.publish(&file, bytes)? {
                shared.commit(number)?;
            }
            file.meta().is_growing = false;
            RawPageFile::new(Arc::clone(shared), Arc::clone(&file), name, true)
        };
        match make() {
            Ok(pages) => Ok(Arc::new(pages)),
            Err(error) => {
                if !file.meta().is_published {
                    shared.abandon(&file);
                }
                Err(error)
            }
        }
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let (file, is_log) = self.open_file(name)?;
        Ok(Arc::new(RawPageFile::new(Arc::clone(&self.shared), file, name, is_log)?))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        let shared = &self.shared;
        shared.reserve_checkpoint()?;
        shared.check_alive()?;
        let file = shared.anonymous(&mut shared.lock(), false);
        if contents.len() <= INLINE_BYTES_MAX {
            file.meta().inline = Some(contents.into());
        } else {
            let pages = (contents.len() as u64).div_ceil(PAGE);
            let no_space = || Error::NoSpace { op: "replace", path: shared.path(name) };
            let extents = shared.allocate(&file.room, pages).ok_or_else(no_space)?;
            file.meta().extents.clone_from(&extents);
            let mut padded = contents.to_vec();
            padded.resize((pages * PAGE) as usize, 0);
            let written = shared.transfers.write_pages(&extents, &padded);
            written.map_err(|error| shared.fail("replace", name, error))?;
            shared.flush()?;
        }
        let number = shared.put(name, &file, contents.len() as u64)?;
        shared.commit(number)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.shared.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        self.shared.remove(name)
    }

    fn sync_names(&self) -> Result<()> {
        self.shared.check_alive()?;
        let emitted = self.shared.lock().journal.emitted;
        self.shared.commit(emitted)
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        if self.shared.is_guest() {
            self.shared.refresh()?;
        }
        let state = self.shared.lock();
        Ok(state.names.iter().map(|(name, file)| FileMeta { name: *name, bytes: file.meta().length }).collect())
    }

    fn space(&self) -> Space {
        let Space { physical_total, physical_used, physical_written, .. } = self.shared.transfers.device.space();
        let space = space_of(&Arc::clone(&self.shared.lock().top));
        Space { physical_total, physical_used, physical_written, ..space }
    }

    fn nature(&self) -> Nature {
        self.shared.transfers.device.nature()
    }

    fn log_room(&self) -> Option<Space> {
        Some(space_of(&Arc::clone(&self.shared.lock().log)))
    }

    fn geometry(&self) -> Option<Geometry> {
        Some(self.shared.transfers.device.geometry())
    }

    fn troubles(&self) -> Vec<String> {
        self.list_troubles()
    }

    fn failure(&self) -> Option<Error> {
        self.shared.lock().journal.failed.clone()
    }

    fn tidy(&self) -> bool {
        self.shared.discard()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        let lock = lock_device(&*self.shared.transfers.device)?;
        self.shared.catch_up()?;
        self.shared.lock().given_back = None;
        self.shared.locks.fetch_add(1, Ordering::AcqRel);
        Ok(Box::new(RawLock { shared: Arc::clone(&self.shared), _lock: lock }))
    }
}

fn space_of(room: &Room) -> Space {
    let total = room.area.pages * PAGE;
    Space { logical_total: total, logical_used: total - room.account().free_pages * PAGE, ..Space::default() }
}

struct RawLock {
    shared: Arc<Shared>,
    _lock: Box<dyn DeviceLock>,
}

impl Lock for RawLock {}

impl Drop for RawLock {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut state = shared.lock();
        state.is_mine = false;
        let location = &shared.transfers.location;
        let why = format!("the lock of {location} was given back; take it again before anything is changed");
        state.given_back = Some(Error::Invalid(why));
        drop(state);
        shared.locks.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
