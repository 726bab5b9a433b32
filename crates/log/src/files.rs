//! The log's files on the volume: the next one made ready, old ones recycled or removed.
//!
//! A file that is not needed any more is renamed to a spare. A spare is renamed to the next log file, which saves a new
//! one and filling it with zeros. A spare is of about the ordinary length. A shorter one would never be taken, and one
//! that was made for a huge record would keep its room for ever. The pages of its earlier life carry another file
//! number and read as not written.
//!
//! **Threads**: the list has its own lock, never held across a volume call. A thread takes the file that it works on
//! out of the list, so two threads never touch the same file. One thread prepares at a time; others wait for it.
//! **Failure**: nothing here touches what was appended. An error is returned, the list is as before, and the call can
//! be tried again. A full disk while a file is prepared is such an error. Without `sync_names`, a crash may undo a
//! renaming to a spare or a removal. The file then shows up as a log file that is not needed, and is released again at
//! the next open.

use crate::options::FILE_BYTES_MIN;
use crate::page::{PAYLOAD_BYTES, RECORD_HEADER_BYTES};
use situ_base::Event;
use situ_device::PAGE_BYTES;
use situ_storage::{Error, FileName, PageFile, Result, Volume};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A log file that takes no more records.
#[derive(Debug, Clone, Copy)]
struct OldFile {
    bytes: u64,
    /// The position of its end in the stream; 0 if it was there before this log was opened.
    end: u64,
}

#[derive(Debug, Clone, Copy)]
struct Spare {
    number: u64,
    bytes: u64,
}

#[derive(Default)]
struct List {
    old: BTreeMap<u64, OldFile>,
    spares: Vec<Spare>,
    /// Spares that are on their way into the list.
    spares_coming: usize,
    preparing: bool,
}

/// Returns true if a file is long enough to be written over where files have `file_bytes`, and not much longer.
fn is_ordinary(bytes: u64, file_bytes: u64) -> bool {
    (file_bytes..=file_bytes.saturating_mul(2).max(4 * PAGE_BYTES as u64)).contains(&bytes)
}

/// Makes a file of `bytes`, of half of that if the disk has no room for it, and so on down to `least`.
fn shorter_if_full<T>(bytes: u64, least: u64, make: impl Fn(u64) -> Result<T>) -> Result<T> {
    let mut bytes = bytes;
    loop {
        match make(bytes) {
            Err(error) if error.is_no_space() && bytes > least => {
                bytes = (bytes / 2).next_multiple_of(PAGE_BYTES as u64).max(least);
            }
            result => return result,
        }
    }
}

/// Returns the bytes of the shortest file that has room for a record of `record_bytes`.
pub(crate) fn shortest_for(record_bytes: u64) -> u64 {
    let record = record_bytes.saturating_add(RECORD_HEADER_BYTES as u64);
    // The last page is for the end mark.
    let pages = record.div_ceil(PAYLOAD_BYTES as u64).saturating_add(1);
    pages.saturating_mul(PAGE_BYTES as u64).max(FILE_BYTES_MIN)
}

pub(crate) struct Files {
    volume: Arc<dyn Volume>,
    file_bytes: u64,
    spare_files_max: usize,
    list: Mutex<List>,
    prepared: Arc<dyn Event>,
    /// A file could not be made, and a crash may bring it back until the names are made durable.
    has_failed: AtomicBool,
}

impl Files {
    /// Takes stock of a volume.
    pub(crate) fn open(
        volume: Arc<dyn Volume>,
        file_bytes: u64,
        spare_files_max: usize,
        prepared: Arc<dyn Event>,
    ) -> Result<Files> {
        let mut list = List::default();
        for meta in volume.list()? {
            match meta.name {
                FileName::Log(number) => drop(list.old.insert(number, OldFile { bytes: meta.bytes, end: 0 })),
                FileName::Spare(number)
                    if is_ordinary(meta.bytes, file_bytes) && list.spares.len() < spare_files_max =>
                {
                    list.spares.push(Spare { number, bytes: meta.bytes });
                }
                FileName::Spare(_) => volume.remove(meta.name)?,
                _ => {}
            }
        }
        let has_failed = AtomicBool::new(false);
        Ok(Files { volume, file_bytes, spare_files_max, list: Mutex::new(list), prepared, has_failed })
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("a thread panicked over the list of log files")
    }

    /// Returns the bytes of a file that is made for a record of `record_bytes`, and has room for others.
    pub(crate) fn bytes_for(&self, record_bytes: u64) -> u64 {
        shortest_for(record_bytes).max(self.file_bytes.next_multiple_of(PAGE_BYTES as u64))
    }

    /// Returns true if `pages` is long enough for a record of `record_bytes`.
    pub(crate) fn fits(&self, pages: &dyn PageFile, record_bytes: u64) -> bool {
        pages.pages() >= self.bytes_for(record_bytes) / PAGE_BYTES as u64
    }

    /// Becomes the only thread that prepares; `f` runs as such.
    pub(crate) fn preparing<R>(&self, f: impl FnOnce() -> R) -> R {
        loop {
            let seen = self.prepared.generation();
            if !std::mem::replace(&mut self.list().preparing, true) {
                break;
            }
            self.prepared.wait(seen, None);
        }
        let result = f();
        self.list().preparing = false;
        self.prepared.notify();
        result
    }

    /// Makes log file `number`, from a spare if one is long enough. The name is durable on return.
    pub(crate) fn make(&self, number: u64, record_bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.make_of(number, self.bytes_for(record_bytes))
    }

    /// Makes the first log file: of `bytes`, unless a spare or a shorter setting says otherwise; shorter if the disk
    /// has no room for that.
    pub(crate) fn make_first(&self, number: u64, bytes: u64) -> Result<Arc<dyn PageFile>> {
        shorter_if_full(self.short_bytes(bytes), FILE_BYTES_MIN, |bytes| self.make_of(number, bytes))
    }

    /// Returns the length of a file that is to have about `bytes`, and is not longer than others.
    pub(crate) fn short_bytes(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(PAGE_BYTES as u64).max(4 * PAGE_BYTES as u64).min(self.bytes_for(0))
    }

    /// Makes a log file of `bytes`, whatever spares there are; shorter, down to `least`, if the disk has no room for
    /// that.
    pub(crate) fn make_new(&self, number: u64, bytes: u64, least: u64) -> Result<Arc<dyn PageFile>> {
        self.making(|| shorter_if_full(bytes, least, |bytes| self.create(number, bytes)))
    }

    /// Makes a file. The file begins when it is certain that no file comes back that could not be made. After a crash,
    /// such a file would be empty, and between two others look like one that was cut.
    fn making(&self, make: impl FnOnce() -> Result<Arc<dyn PageFile>>) -> Result<Arc<dyn PageFile>> {
        if self.has_failed.load(Ordering::Relaxed) {
            self.volume.sync_names()?;
        }
        let made = make();
        self.has_failed.store(made.is_err(), Ordering::Relaxed);
        made
    }

    fn create(&self, number: u64, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.volume.create_pages(FileName::Log(number), bytes)
    }

    fn make_of(&self, number: u64, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.making(|| {
            // An earlier try may have left a file of this name.
            self.release_unused(number)?;
            while let Some(spare) = self.take_spare(bytes) {
                if let Some(pages) = self.recycle(spare, number)? {
                    return Ok(pages);
                }
            }
            self.create(number, bytes)
        })
    }

    /// Returns the bytes of files that take no more records and are not released.
    pub(crate) fn old_bytes(&self) -> u64 {
        self.list().old.values().map(|file| file.bytes).sum()
    }

    /// Returns the oldest file to keep if old files may take `bytes` together; `None` if none may stay.
    pub(crate) fn oldest_within(&self, bytes: u64) -> Option<u64> {
        let list = self.list();
        let sums = list.old.iter().rev().scan(0u64, |sum, (number, file)| {
            *sum = sum.saturating_add(file.bytes);
            Some((*number, *sum))
        });
        sums.take_while(|(_, sum)| *sum <= bytes).last().map(|(number, _)| number)
    }

    /// Returns true if there is a spare of at least `bytes` whose number `counts`, or one on its way that may be.
    pub(crate) fn has_spare(&self, bytes: u64, counts: impl Fn(u64) -> bool) -> bool {
        let list = self.list();
        list.spares_coming > 0 || list.spares.iter().any(|spare| spare.bytes >= bytes && counts(spare.number))
    }

    /// Returns a spare of at least `bytes`, which is not on the list any more.
    fn take_spare(&self, bytes: u64) -> Option<Spare> {
        let mut list = self.list();
        let index = list.spares.iter().position(|spare| spare.bytes >= bytes)?;
        Some(list.spares.swap_remove(index))
    }

    /// Makes log file `number` of a spare; `None` if the spare is not there. If it fails the file is listed under the
    /// name that it has then.
    fn recycle(&self, spare: Spare, number: u64) -> Result<Option<Arc<dyn PageFile>>> {
        let (name, log) = (FileName::Spare(spare.number), FileName::Log(number));
        match self.volume.rename(name, log) {
            Ok(()) => {}
            // Another thread removed it.
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => {
                self.list().spares.push(spare);
                return Err(error);
            }
        }
        let opened = self.volume.sync_names().and_then(|()| self.volume.open_pages(log));
        if opened.is_err() {
            let renamed = self.volume.rename(log, name);
            let mut list = self.list();
            match renamed {
                Ok(()) => list.spares.push(spare),
                Err(Error::NotFound { .. }) => {}
                // A log file without users, for the next release.
                Err(_) => drop(list.old.insert(number, OldFile { bytes: spare.bytes, end: 0 })),
            }
        }
        opened.map(Some)
    }

    /// Notes a file that takes no more records, and ends at `end`.
    pub(crate) fn add_old(&self, number: u64, pages: u64, end: u64) {
        let listed = self.list().old.insert(number, OldFile { bytes: pages * PAGE_BYTES as u64, end });
        // Otherwise it could have been recycled while the log wrote to it.
        assert!(listed.is_none(), "log file {number} was listed as old while it was in use: {listed:?}");
    }

    /// Recycles or removes the files with numbers below `oldest_needed` that are wholly before `written`. All are
    /// tried; the first error is returned.
    pub(crate) fn release(&self, oldest_needed: u64, written: u64) -> Result<()> {
        let mut result = Ok(());
        let mut from = 0;
        while let Some((number, file, keep)) = self.next_release(from, oldest_needed, written) {
            from = number.saturating_add(1);
            result = result.and(self.release_one(number, file, keep));
        }
        result
    }

    fn next_release(&self, from: u64, oldest_needed: u64, written: u64) -> Option<(u64, OldFile, bool)> {
        let mut list = self.list();
        if from >= oldest_needed {
            return None;
        }
        let (number, file) = list.old.range(from..oldest_needed).find(|(_, file)| file.end <= written)?;
        let (number, file) = (*number, *file);
        list.old.remove(&number);
        // A spare of its name may be there, if the file was made from a later one.
        let is_listed = list.spares.iter().any(|spare| spare.number == number);
        let has_room = list.spares.len() + list.spares_coming < self.spare_files_max;
        let keep = has_room && !is_listed && is_ordinary(file.bytes, self.file_bytes);
        list.spares_coming += usize::from(keep);
        Some((number, file, keep))
    }

    fn release_one(&self, number: u64, file: OldFile, keep: bool) -> Result<()> {
        let result = if keep {
            self.volume.rename(FileName::Log(number), FileName::Spare(number))
        } else {
            self.volume.remove(FileName::Log(number))
        };
        let mut list = self.list();
        list.spares_coming -= usize::from(keep);
        match result {
            Ok(()) if keep => list.spares.push(Spare { number, bytes: file.bytes }),
            // Another thread removed it, which is the requested result.
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => {
                list.old.insert(number, file);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Like `release`, for the one file `number`, which was prepared and not used.
    pub(crate) fn release_unused(&self, number: u64) -> Result<()> {
        match self.next_release(number, number.saturating_add(1), 0) {
            Some((number, file, keep)) => self.release_one(number, file, keep),
            None => Ok(()),
        }
    }

    /// Removes all spares.
    pub(crate) fn drop_spares(&self) -> Result<()> {
        loop {
            let Some(spare) = self.list().spares.pop() else { return Ok(()) };
            match self.volume.remove(FileName::Spare(spare.number)) {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => {
                    self.list().spares.push(spare);
                    return Err(error);
                }
            }
        }
    }

    /// Returns the bytes of old files and spares.
    pub(crate) fn bytes(&self) -> u64 {
        let list = self.list();
        list.old.values().map(|file| file.bytes).chain(list.spares.iter().map(|spare| spare.bytes)).sum()
    }
}
