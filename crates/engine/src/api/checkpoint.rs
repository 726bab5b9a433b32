//! Checkpoints: a copy of a store that opens as a store of its own, made while the store takes writes.
//!
//! 1. The memtables are flushed, so that little of the log is needed.
//! 2. The thread takes the right to change versions. Under the commit lock, the log goes on in a new file. So the files
//!    before it have all writes up to one sequence number, and nothing else. Writers wait for this step alone.
//! 3. The state that the manifest would have now is noted. The versions of all keyspaces hold tables and values, and a
//!    [hold](LogFiles::hold) holds the log. The right is given back.
//! 4. The log files that the state needs are copied, then the hold ends. Tables get a second name in the checkpoint's
//!    directory, or are copied where the file system cannot do that. Segments of the value log are copied: the store
//!    erases values in them later. A target that has a copy of a sealed segment already may keep that one.
//! 5. A manifest with the state is put in force. Until then the directory holds no store.
//!
//! So the checkpoint is what a crash between steps 2 and 3 would have left, on one volume: an opening replays the log.
//!
//! **Invariants.** The checkpoint has every write that was acknowledged before the call, and all others up to one
//! sequence number. No file of the checkpoint changes with the store: log files are used again, and segments are
//! trimmed, so both are copied.
//!
//! **Failure.** The files in the target are removed again, as far as the system lets it. Its directory stays.
//!
//! **Threads.** The caller's, as a guest of the store: a store that closes waits until the present piece is copied.
//!
//! Rejected: to write memtables as tables into the target. Records of the log are the same in fewer steps, and opening
//! reads them anyway.

use crate::api::store::{Store, remove_files};
use crate::base::places::HOME;
use crate::base::sync::lock;
use crate::opening::open::IDENTITY;
use crate::pipeline::log_files::LogHold;
use crate::pipeline::no_room::{Level0, Unsealed};
use crate::versions::edit::Edit;
use crate::versions::manifest::Manifest;
use crate::versions::version::Version;
use crate::{Error, Result};
use situ_device::{Buffer, PAGE_BYTES};
use situ_storage::{DirectoryVolume, Error as StorageError, FileName, Reader, Volume, names_in};
use situ_values::Phase;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The account of a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// The last sequence number whose write the checkpoint has.
    pub last_sequence: u64,
    /// Tables that the checkpoint shares with the store: both have a name for the same file.
    pub shared_tables: u64,
    /// Tables that were copied.
    pub copied_tables: u64,
    /// Bytes of tables, segments of the value log and log files that were copied.
    pub copied_bytes: u64,
}

/// The state of a store at one moment, and what keeps its files.
struct Moment {
    edit: Edit,
    manifest_number: u64,
    /// The log file that begins behind the moment.
    log_number: u64,
    /// Those of all keyspaces: they keep tables, segments, and the values in them.
    versions: Vec<Arc<Version>>,
}

impl Store {
    /// Makes a checkpoint in a directory: a copy of the store at one moment, which opens as a store of its own. The
    /// directory must not exist, or be empty. The store goes on taking writes, which wait for one change of the log
    /// file.
    ///
    /// Tables get hard links where the directory lies on the file system of the store's tables, and then take no room
    /// until the store replaces its own. What lies elsewhere is copied, as are the value log and the log. The copy has
    /// one volume, whatever the store has.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = situ::Store::open(directory.path().join("store"))?;
    /// store.put("k", "then")?;
    /// store.checkpoint(directory.path().join("checkpoint"))?;
    /// store.put("k", "now")?;
    ///
    /// let checkpoint = situ::Store::open(directory.path().join("checkpoint"))?;
    /// assert_eq!(checkpoint.get("k")?.as_deref(), Some(&b"then"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The directory holds files; the store takes no writes; a flush fails; a file cannot be read, linked or written.
    pub fn checkpoint(&self, directory: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.check_writable()?;
        let directory = directory.as_ref();
        let target: Arc<dyn Volume> = Arc::new(DirectoryVolume::create_private(directory)?);
        if let Some(stranger) = names_in(directory)?.into_iter().find(|name| name.parse::<FileName>().is_err()) {
            return Err(Error::Existence(format!(
                "{} holds other files ({stranger}), and a checkpoint needs an empty place; name a new directory, or an empty one",
                directory.display()
            )));
        }
        self.checkpoint_into(&target)
    }

    /// As [`checkpoint`](Store::checkpoint), into an empty volume.
    ///
    /// # Errors
    /// As [`checkpoint`](Store::checkpoint); the store has a value log, and the volume has no file system.
    pub fn checkpoint_into(&self, target: &Arc<dyn Volume>) -> Result<CheckpointReport> {
        // A store that closes waits for this, as it gives its files to the next owner.
        let _guest = self.core().health.enter()?;
        self.check_writable()?;
        let _lock = target.lock()?;
        if target.list()?.iter().any(|file| file.name != FileName::Lock) {
            let text = format!("{} holds a store's files, and a checkpoint needs an empty place", target.location());
            return Err(Error::Existence(text));
        }
        self.make_checkpoint(target).inspect_err(|_| drop(remove_files(&**target)))
    }

    fn make_checkpoint(&self, target: &Arc<dyn Volume>) -> Result<CheckpointReport> {
        let core = self.core();
        for keyspace in core.versions.keyspaces() {
            match core.work.flushes.flush(&keyspace, Level0::Heeded) {
                Err(Error::KeyspaceDropped { .. }) => {}
                flushed => flushed?,
            }
        }
        let (moment, hold) = self.moment()?;
        self.copy_moment(&moment, hold, target)
    }

    /// Steps 2 and 3.
    fn moment(&self) -> Result<(Moment, LogHold)> {
        let (memory, versions) = (&self.core().memory, &self.core().versions);
        loop {
            let seen = memory.progress.generation();
            if !memory.log_files.prepare(0)? {
                memory.progress.wait(seen, None);
                continue;
            }
            let _editor = versions.edit()?;
            let mut commit = lock(&memory.commit);
            match memory.log_files.rotate(&mut commit.places) {
                Ok(()) => {}
                // A writer has taken the file that was ready.
                Err(Unsealed::NoRoom(_)) => continue,
                Err(Unsealed::Refused(error)) => return Err(*error),
            }
            let (log_number, last_sequence) = (commit.places.log_number, commit.last_sequence());
            let log_numbers = versions.log_numbers(log_number);
            drop(commit);
            let hold = memory.log_files.hold();
            let manifest_number = versions.new_number();
            let mut edit = versions.snapshot_edit();
            edit.last_sequence = Some(last_sequence);
            edit.log_numbers = log_numbers;
            edit.several_volumes = false;
            edit.changes_kept = None;
            edit.added.iter_mut().for_each(|(_, added)| added.meta.volume = HOME);
            let versions = versions.keyspaces().iter().map(|k| Arc::clone(&k.view.load().version)).collect();
            return Ok((Moment { edit, manifest_number, log_number, versions }, hold));
        }
    }

    /// Steps 4 and 5.
    fn copy_moment(&self, moment: &Moment, hold: LogHold, target: &Arc<dyn Volume>) -> Result<CheckpointReport> {
        let core = self.core();
        let source = &*core.versions.volume;
        if target.geometry().is_some() && moment.versions.iter().any(|version| !version.segments.files().is_empty()) {
            let text = format!("a value log needs a file system, and {} is a disk without one", target.location());
            return Err(Error::Invalid(text));
        }
        let last_sequence = moment.edit.last_sequence.unwrap_or(0);
        let mut report = CheckpointReport { last_sequence, ..CheckpointReport::default() };
        target.replace(FileName::Identity, IDENTITY.as_bytes())?;

        // The marks at the ends of files are written, too. So no page of the files before the moment changes any more.
        let written = core.memory.writable()?.write_out();
        written.inspect_err(|error| core.health.fail(error.clone()))?;
        let oldest = moment.edit.log_numbers.iter().map(|(_, number)| *number).min().unwrap_or(moment.log_number);
        let is_needed = |name: &FileName| matches!(name, FileName::Log(n) if (oldest..moment.log_number).contains(n));
        for file in source.list()?.iter().filter(|file| is_needed(&file.name)) {
            report.copied_bytes += self.copy_pages(&**target, file.name)?;
        }
        drop(hold);
        // The log that an opening looks for behind these, without a record.
        target.create_pages(FileName::Log(moment.log_number), situ_log::FILE_BYTES_MIN)?;

        for (_, file) in moment.versions.iter().flat_map(|version| version.files()) {
            let name = FileName::Table(file.meta.number);
            if self.link(&**target, name)? {
                report.shared_tables += 1;
            } else {
                report.copied_bytes += self.copy(&**target, name)?;
                report.copied_tables += 1;
            }
        }
        for segment in moment.versions.iter().flat_map(|version| version.segments.files()) {
            let name = FileName::Values(segment.number);
            if !(self.is_sealed(segment.number)? && self.link(&**target, name)?) {
                report.copied_bytes += self.copy_pages(&**target, name)?;
            }
        }
        target.sync_names()?;
        let mut manifest = Manifest::create(target, moment.manifest_number, &moment.edit)?;
        manifest.take_copy_failure().map_or(Ok(report), |error| Err(error.into()))
    }

    /// Returns true if nothing is appended to the segment any more.
    fn is_sealed(&self, segment: u64) -> Result<bool> {
        let found = self.core().versions.source.values.log()?.segment(segment);
        Ok(found.is_some_and(|segment| segment.phase == Phase::Sealed))
    }

    /// Offers a file to the target. Returns true if the target has it now.
    fn link(&self, to: &dyn Volume, name: FileName) -> Result<bool> {
        self.pace(0)?;
        let file = self.core().versions.volume.open(name)?;
        let linked = to.link(name, &Paced { store: self, file: &*file });
        // The cause of the error, if the copy is to end.
        self.pace(0)?;
        Ok(linked?)
    }

    /// Copies a written-once file durably. Returns its length.
    fn copy(&self, to: &dyn Volume, name: FileName) -> Result<u64> {
        let reader = self.core().versions.volume.open(name)?;
        let mut writer = to.create(name, reader.bytes())?;
        let mut piece = vec![0; COPY_BYTES];
        for at in (0..reader.bytes()).step_by(COPY_BYTES) {
            let bytes = (reader.bytes() - at).min(COPY_BYTES as u64) as usize;
            self.pace(bytes)?;
            reader.read_at(at, &mut piece[..bytes])?;
            writer.append(&piece[..bytes])?;
        }
        writer.finish()?;
        Ok(reader.bytes())
    }

    /// Copies a page file durably, but for pages of zeros. Returns its length.
    fn copy_pages(&self, to: &dyn Volume, name: FileName) -> Result<u64> {
        let source = self.core().versions.volume.open_pages(name)?;
        let target = to.create_pages(name, source.pages() * PAGE_BYTES as u64)?;
        let mut piece = Buffer::new(COPY_BYTES);
        for first in (0..source.pages()).step_by(COPY_BYTES / PAGE_BYTES) {
            let pages = (source.pages() - first).min((COPY_BYTES / PAGE_BYTES) as u64) as usize;
            self.pace(pages * PAGE_BYTES)?;
            source.read_at(first * PAGE_BYTES as u64, &mut piece[..pages * PAGE_BYTES])?;
            if piece[..pages * PAGE_BYTES].iter().any(|byte| *byte != 0) {
                target.write(first, &piece, pages, false)?;
            }
        }
        target.sync()?;
        Ok(source.pages() * PAGE_BYTES as u64)
    }

    /// Keeps a copy within the pace of compactions, and ends it when the store closes or the caller is
    /// [over](Store::ended_by).
    fn pace(&self, bytes: usize) -> Result<()> {
        self.check_wanted()?;
        self.core().work.budgets.pacer.pace(bytes as u64);
        Ok(())
    }
}

/// A file that a target may read to compare it, at the pace of a copy. Reads fail when the copy is to end.
struct Paced<'a> {
    store: &'a Store,
    file: &'a dyn Reader,
}

impl Reader for Paced<'_> {
    fn path(&self) -> &str {
        self.file.path()
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn file(&self) -> Option<&File> {
        self.file.file()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> situ_storage::Result<()> {
        self.store.pace(into.len()).map_err(|error| StorageError::Invalid(error.to_string()))?;
        self.file.read_at(offset, into)
    }
}
