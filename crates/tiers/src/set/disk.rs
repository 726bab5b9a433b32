//! One disk of a set: its number, its role, and the known files on it.
//!
//! **Invariants.** A disk that is not the capacity disk has all names of the store's files there in `names`. These are
//! the names at opening, and all changes through the set since. It has no name that lies on another disk. MEMBER, LOCK
//! and the files that belong on the capacity disk are not in it. A reader may be open while a writer is, and the
//! reader's `names` are as of its last listing. A listing of a writer adds no names. It may have the name of a log file
//! that could not be made there. That file is about to begin on the capacity disk.
//!
//! **Threads.** Everything from any thread. The lock of `files` is never held across a call to the volume.

use crate::meter::{Meter, Metered};
use situ_base::{Env, OneForAll, lock};
use situ_storage::{Error, FileMeta, FileName, PageFile, Result, Space, Volume, Writer};
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The volume number of the capacity disk, as in the manifest.
pub const CAPACITY: u32 = situ_engine::places::HOME;
/// The volume number of the fast disk, as in the manifest.
pub const FAST: u32 = 1;

/// The role of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Role {
    /// The manifest lies there, and all that lies nowhere else.
    Capacity,
    /// Log files begin there, and the tables that are to be read fast.
    Fast,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Capacity => "capacity disk",
            Role::Fast => "fast disk",
        })
    }
}

impl Role {
    /// Errors name the disk. The store takes no writes after some of them, and people have to know which disk to look
    /// at.
    pub(super) fn told(self, error: Error) -> Error {
        match error {
            Error::Io { op, path, source } if self != Role::Capacity => {
                Error::Io { op, path: format!("{path} (on the {self})"), source }
            }
            other => other,
        }
    }
}

/// A disk that is to be one of a set, in addition to the capacity disk.
pub(crate) struct NewDisk {
    /// The number of the disk in the manifest. No other disk of the set has it.
    pub(crate) number: u32,
    /// The role of the disk.
    pub(crate) role: Role,
    /// The volume with the contents of the disk.
    pub(crate) volume: Arc<dyn Volume>,
    /// Bytes of memory that the volume's own cache may take.
    pub(crate) cache_bytes: u64,
}

/// A disk of a set.
pub(crate) struct Disk {
    pub(super) number: u32,
    pub(super) role: Role,
    /// The volume with the contents of the disk. Operations through it are counted ([`Disk::meter`]).
    pub(crate) volume: Metered,
    /// Bytes of memory that the volume's own cache may take.
    pub(crate) cache_bytes: u64,
    /// The number of changes of names.
    changes: AtomicU64,
    /// The number of durable changes of names.
    durable: AtomicU64,
    syncs: OneForAll,
    files: Mutex<Files>,
    /// The store has let go of the disk: what becomes of it is nothing to the store.
    is_left: AtomicBool,
}

/// The known files of a disk.
#[derive(Default)]
struct Files {
    names: HashSet<FileName>,
    /// The disk takes no new files: it is being drained.
    closed: bool,
    /// All changes come through the set, or the names are not used: a listing adds no names.
    all_mine: bool,
    /// New files that have a name in the set and are not listed yet.
    beginning: usize,
    /// Log files without contents that are on another disk as well: they are passed over.
    twins: Vec<FileName>,
}

/// A new file on its way to a disk, which is not empty as long as there is one.
pub(super) struct Beginning<'a>(&'a Disk);

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.0.files().beginning -= 1;
    }
}

/// The place of a table that another creator makes on a disk, such as a unit in another process. While this lives, the
/// disk is not empty, even before the file is there.
pub(crate) struct Reserved(Arc<Disk>);

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.files().beginning -= 1;
    }
}

/// Returns true for a file that a store puts only on the capacity disk.
pub(super) fn belongs_on_capacity_disk(name: FileName) -> bool {
    matches!(
        name,
        FileName::Current | FileName::Manifest(_) | FileName::ManifestCopy(_) | FileName::Identity | FileName::Disks
    )
}

/// Returns true for a file that belongs to the disk itself, and is no file of the store.
fn is_the_disks_own(name: FileName) -> bool {
    matches!(name, FileName::Member | FileName::Lock)
}

impl Disk {
    pub(super) fn new(NewDisk { number, role, volume, cache_bytes }: NewDisk, env: &Env) -> Disk {
        Disk {
            number,
            role,
            volume: Metered::new(volume, Meter::new(env)),
            cache_bytes,
            // What the process before has renamed or removed may not be durable.
            changes: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            syncs: OneForAll::new(env.executor.event()),
            // What lies on the capacity disk is what lies nowhere else.
            files: Mutex::new(Files { all_mine: role == Role::Capacity, ..Files::default() }),
            is_left: AtomicBool::new(false),
        }
    }

    /// Returns the number of the disk in the manifest.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the meter of the disk's use.
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.volume.meter
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }

    // Names, and when they are durable.

    pub(super) fn renamed(&self, result: Result<()>) -> Result<()> {
        // An error leaves it open whether the name has changed.
        self.changes.fetch_add(1, Ordering::AcqRel);
        result
    }

    pub(super) fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.renamed(self.volume.rename(from, to)).map_err(|error| self.role.told(error))
    }

    pub(super) fn remove(&self, name: FileName) -> Result<()> {
        self.renamed(self.volume.remove(name))
    }

    pub(super) fn create_log(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let made = self.volume.create_pages(name, bytes);
        if made.is_err() {
            // A crash may bring it back.
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        made.map_err(|error| self.role.told(error))
    }

    /// Makes the changes of names before this call durable. One thread at a time asks the disk.
    pub(super) fn sync_names(&self) -> Result<()> {
        let wanted = self.changes.load(Ordering::Acquire);
        let is_durable = || self.durable.load(Ordering::Acquire) >= wanted;
        if self.is_left() || is_durable() {
            return Ok(());
        }
        let synced = self.syncs.run(|| {
            // A sync that another thread had begun before may have covered it.
            if is_durable() {
                return Ok(());
            }
            let covered = self.changes.load(Ordering::Acquire);
            self.volume.sync_names()?;
            self.durable.fetch_max(covered, Ordering::AcqRel);
            Ok(())
        });
        synced.map_err(|error| self.role.told(error))
    }

    // Which files are on it.

    pub(super) fn has(&self, name: FileName) -> bool {
        self.files().names.contains(&name)
    }

    pub(super) fn note(&self, name: FileName) {
        self.files().names.insert(name);
    }

    pub(super) fn forget(&self, name: FileName) {
        self.files().names.remove(&name);
    }

    /// Returns the files of the store on this disk.
    ///
    /// # Errors
    /// The volume's.
    pub(crate) fn list(&self) -> Result<Vec<FileMeta>> {
        let mut listed = self.volume.list()?;
        let twins = self.files().twins.clone();
        listed.retain(|file| !is_the_disks_own(file.name) && !twins.contains(&file.name));
        let mut files = self.files();
        if !files.all_mine {
            // Names are only added: what was begun since the listing is not in it. One that was removed since stays in
            // the set and does no harm, as it does not come again.
            files.names.extend(listed.iter().map(|file| file.name).filter(|name| !belongs_on_capacity_disk(*name)));
        }
        drop(files);
        Ok(listed)
    }

    /// Returns true if no file of the store is on this disk, or on its way there.
    ///
    /// # Errors
    /// The volume's.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        // In this order: what begins is listed before it has begun.
        Ok(self.files().beginning == 0 && self.list()?.is_empty())
    }

    // What begins there.

    /// Notes that a file of this name begins on this disk; `None` if the disk takes none. One step under the lock: a
    /// disk that was found closed and empty stays so.
    pub(super) fn begins(&self, name: FileName) -> Option<Beginning<'_>> {
        let mut files = self.files();
        if files.closed {
            return None;
        }
        files.names.insert(name);
        files.beginning += 1;
        Some(Beginning(self))
    }

    /// As [`begins`](Disk::begins), for a file that another creator makes.
    pub(super) fn reserve(self: &Arc<Self>, name: FileName) -> Option<Reserved> {
        let mut files = self.files();
        if files.closed {
            return None;
        }
        files.names.insert(name);
        files.beginning += 1;
        Some(Reserved(Arc::clone(self)))
    }

    /// Begins a table; `None` if the disk is closed.
    pub(super) fn create_table(&self, name: FileName, bound: u64) -> Result<Option<Box<dyn Writer>>> {
        let Some(_beginning) = self.begins(name) else { return Ok(None) };
        // After an error it stays in the set: something of it may be there, for its creator to remove.
        self.volume.create(name, bound).map(Some)
    }

    /// Removes what is there of a log file that could not be made.
    pub(super) fn take_back(&self, name: FileName) -> Result<()> {
        match self.remove(name) {
            Ok(()) | Err(Error::NotFound { .. }) => {
                self.forget(name);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Closes the disk to new files, or opens it again. On a closed disk no new file begins, and no spare is used
    /// again. Files that have begun go on.
    pub(crate) fn close(&self, closed: bool) {
        self.files().closed = closed;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.files().closed
    }

    /// Returns the area that the log has to itself on this disk, if the disk has one and takes files.
    pub(super) fn log_area(&self) -> Option<Space> {
        self.volume.log_room().filter(|_| !self.is_closed())
    }

    /// Returns true if a try is worth it: a failure costs a sync.
    pub(super) fn has_space_for_log(&self, bytes: u64) -> bool {
        self.volume.log_room().is_some() || bytes <= self.free_bytes()
    }

    /// Returns the space for files of any kind.
    pub(super) fn free_bytes(&self) -> u64 {
        let space = self.volume.space();
        space.logical_total.saturating_sub(space.logical_used)
    }

    // Leaving.

    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Returns true if the store has released the disk.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    // Strangers (`strangers.rs`) and twins (`twins.rs`).

    pub(super) fn all_names_are_known(&self) {
        self.files().all_mine = true;
    }

    pub(super) fn note_twin(&self, name: FileName) {
        self.files().twins.push(name);
    }

    pub(super) fn take_twins(&self) -> Vec<FileName> {
        std::mem::take(&mut self.files().twins)
    }
}
