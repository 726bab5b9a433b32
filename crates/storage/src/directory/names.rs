//! The write lock of a directory, and the file names that its writer relies on.
//!
//! Any file can be removed, replaced or renamed while a store is open. `flock` belongs to an inode, so a writer locks
//! the inodes that make up the store:
//!
//! 1. the directory;
//! 2. the files without which there is no store ([`is_relied_on`]): CURRENT, manifests, logs, a superblock, MEMBER;
//! 3. LOCK, which earlier versions of the program lock.
//!
//! A store may rely on one more file or device, which has a lock of its own ([`Names::rely_on`]).
//!
//! A second writer needs all of these locks. So it is refused while one of the files exists, under any name and in any
//! directory. LOCK comes last, so a refused writer leaves no file behind. A new file of these kinds is locked before
//! anything refers to it. The volume releases the lock before it removes the file.
//!
//! **Lost names.** If such a name leads to another file or to none, the next opening would not find new writes. The
//! volume then refuses all changes ([`Names::check`]). The names are checked
//! * at each sync of a written-once file that is relied on, and so at each edit of a manifest;
//! * at a durable write to a page file that has no name left, which one `fstat` per write detects;
//! * at any write to a page file, if the last check is older than [`CHECK_EVERY`]; also to one on another disk of the
//!   store ([`check_names_if_due`](crate::Volume::check_names_if_due));
//! * when a caller asks the volume for its failure, for example when a store is closed.
//!
//! Files are opened relative to the directory's descriptor, so the directory itself may be renamed.
//!
//! **Threads.** Any. The list of files is locked during a check. The volume takes a name off the list, changes it, and
//! then adds the new name. So a check never sees one of the volume's own changes half done.

use super::shown;
use crate::{Error, FileName, Lock, Result};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{ClockId, clock_gettime};
use situ_base::lock;
use situ_device::Flocked;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// A write to a page file checks the names if the last check is older than this.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Returns the milliseconds since the system started, from a clock that ticks each few of them. A finer clock takes a
/// hundredth of a small put.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Returns true for a file without which the directory is not this store.
pub(super) fn is_relied_on(name: FileName) -> bool {
    matches!(
        name,
        FileName::Current | FileName::Manifest(_) | FileName::Log(_) | FileName::Superblock | FileName::Member
    )
}

/// The names of one directory; see the [module](self).
#[derive(Debug)]
pub(super) struct Names {
    /// The volume's path.
    path: PathBuf,
    directory: Arc<File>,
    /// `None` while this volume has no write lock.
    held: Mutex<Option<Held>>,
    /// The reason why the directory could not be locked.
    unlocked: OnceLock<String>,
    /// Time of the next check; see [`now_ms`].
    next_check_ms: AtomicU64,
    other: OnceLock<Other>,
}

/// A file or device that the store relies on, and that is no file of the volume.
#[derive(Debug)]
struct Other {
    /// Its path, from the directory.
    path: PathBuf,
    /// The file that the path led to.
    stat: Stat,
}

/// The locks of a writer.
#[derive(Debug)]
struct Held {
    /// The first lost name that a check found, as an error.
    lost: Option<Error>,
    files: BTreeMap<FileName, Flocked>,
    /// Released after the files: LOCK, then the directory, if its file system locks directories.
    _lock: Flocked,
    _directory: Option<Flocked>,
}

impl Names {
    pub(super) fn new(path: PathBuf, directory: Arc<File>) -> Arc<Names> {
        Arc::new(Names {
            path,
            directory,
            held: Mutex::default(),
            unlocked: OnceLock::new(),
            next_check_ms: AtomicU64::new(0),
            other: OnceLock::new(),
        })
    }

    /// Adds the file or device at `path`, from the directory, to the names that are checked.
    ///
    /// # Errors
    /// There is none, or the system refuses.
    pub(super) fn rely_on(&self, path: PathBuf) -> Result<()> {
        let stat = statat(&self.directory, path.as_path(), AtFlags::empty());
        let stat = stat.map_err(|e| Error::io("open", self.path.join(&path).display(), e.into()))?;
        assert!(self.other.set(Other { path, stat }).is_ok(), "a store relies on one more file at most");
        Ok(())
    }

    /// Takes the write lock.
    ///
    /// # Errors
    /// [`Locked`](Error::Locked); or the system refuses.
    pub(super) fn take_lock(self: &Arc<Self>) -> Result<Box<dyn Lock>> {
        let directory = self.lock_directory()?;
        let mut files = BTreeMap::new();
        for name in self.found()? {
            match self.lock_file(name) {
                Ok(file) => drop(files.insert(name, file)),
                // Another process removed the file between the two calls.
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let path = self.path.join(FileName::Lock.to_string());
        let file = self.open(FileName::Lock, OFlags::WRONLY | OFlags::CREATE);
        let file = file.map_err(|e| Error::io("create", path.display(), e.into()))?;
        let lock_file = self.locked(file, || path.clone())?;
        *lock(&self.held) = Some(Held { lost: None, files, _lock: lock_file, _directory: directory });
        Ok(Box::new(DirectoryLock(Arc::clone(self))))
    }

    /// Returns the reason why the directory itself is not locked, if it could not be.
    pub(super) fn unlocked(&self) -> Option<String> {
        let told = |why| format!("{}: the file system does not lock directories ({why})", self.path.display());
        self.unlocked.get().map(told)
    }

    /// Locks the directory. If its file system does not lock directories, notes the reason and returns `None`.
    fn lock_directory(&self) -> Result<Option<Flocked>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| openat(&self.directory, ".", flags, Mode::empty()));
        let opened = opened.map_err(|e| Error::io("open", self.path.display(), e.into()))?;
        match self.locked(opened.into(), || self.path.clone()) {
            Ok(held) => Ok(Some(held)),
            Err(error @ Error::Locked { .. }) => Err(error),
            Err(error) => {
                _ = self.unlocked.set(error.to_string());
                Ok(None)
            }
        }
    }

    /// Lists the files in the directory that a writer relies on.
    fn found(&self) -> Result<Vec<FileName>> {
        let fail = |e: Errno| Error::io("list", self.path.display(), e.into());
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.directory).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_str().ok().and_then(|text| text.parse().ok());
            found.extend(name.filter(|name| is_relied_on(*name)));
        }
        Ok(found)
    }

    fn open(&self, name: FileName, flags: OFlags) -> Result<File, Errno> {
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
        Ok(retry_on_intr(|| openat(&self.directory, name.to_string(), flags, mode))?.into())
    }

    fn lock_file(&self, name: FileName) -> Result<Flocked> {
        let path = || self.path.join(name.to_string());
        // Some network file systems lock only files that are open for writing.
        let file = match self.open(name, OFlags::RDWR) {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => self.open(name, OFlags::RDONLY),
            opened => opened,
        };
        self.locked(file.map_err(|e| Error::io("open", path().display(), e.into()))?, path)
    }

    /// Locks an open file. `flock`, unlike `fcntl` locks, also keeps out a second opener in this process.
    fn locked(&self, file: File, path: impl FnOnce() -> PathBuf) -> Result<Flocked> {
        match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Flocked::new(file)),
            Err(Errno::WOULDBLOCK) => {
                let why = Flocked::is_held_here(&file).then(|| {
                    let directory = self.path.display();
                    format!("this process has the store in {directory} open already; use that one, or close it first")
                });
                Err(Error::Locked { path: shown(&path()), why })
            }
            Err(e) => Err(Error::io("lock", path().display(), e.into())),
        }
    }

    /// Locks a file that was just created and adds its name, if a writer relies on files of this kind.
    ///
    /// # Errors
    /// Another process has locked it, or the system refuses.
    pub(super) fn made(&self, name: FileName) -> Result<()> {
        if !is_relied_on(name) || lock(&self.held).is_none() {
            return Ok(());
        }
        let file = self.lock_file(name)?;
        if let Some(held) = &mut *lock(&self.held) {
            held.files.insert(name, file);
        }
        Ok(())
    }

    /// Takes a name off the list, because the volume is about to remove or replace it. The result keeps the file locked
    /// until then.
    pub(super) fn let_go(&self, name: FileName) -> Option<Flocked> {
        if !is_relied_on(name) {
            return None;
        }
        lock(&self.held).as_mut()?.files.remove(&name)
    }

    /// Checks that the names that a writer relies on still lead to its files.
    ///
    /// # Errors
    /// A name does not, or did not at an earlier check.
    pub(super) fn check(&self) -> Result<()> {
        let mut held = lock(&self.held);
        let Some(held) = &mut *held else { return Ok(()) };
        if held.lost.is_none() {
            held.lost = self.find_lost(&held.files);
        }
        held.lost.clone().map_or(Ok(()), Err)
    }

    /// Returns true while this volume has the write lock.
    pub(super) fn is_writer(&self) -> bool {
        lock(&self.held).is_some()
    }

    /// Like [`check`](Names::check), if the last check was a while ago.
    pub(super) fn check_if_due(&self) -> Result<()> {
        let now = now_ms();
        let due = self.next_check_ms.load(Ordering::Relaxed);
        if now < due {
            return Ok(());
        }
        let next = now.saturating_add(CHECK_EVERY.as_millis() as u64);
        match self.next_check_ms.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => self.check(),
            // Another thread checks.
            Err(_) => Ok(()),
        }
    }

    fn find_lost(&self, files: &BTreeMap<FileName, Flocked>) -> Option<Error> {
        if fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0) {
            return Some(self.is_lost("the directory was removed"));
        }
        let lost = files.iter().find(|(name, file)| self.is_another(**name, file)).map(|(name, _)| name.to_string());
        let other = || self.other.get().filter(|other| self.leads_elsewhere(other));
        let lost = lost.or_else(|| Some(other()?.path.display().to_string()))?;
        Some(self.is_lost(&format!("{lost} was removed, renamed or replaced")))
    }

    /// Returns true if the path leads to another file or device than at first, or if the file is gone. The node of a
    /// device may be missing for a moment; an opening without it fails.
    fn leads_elsewhere(&self, other: &Other) -> bool {
        match statat(&self.directory, other.path.as_path(), AtFlags::empty()) {
            Ok(found) => identity(&found) != identity(&other.stat),
            Err(error) => !is_device(&other.stat) && matches!(error, Errno::NOENT | Errno::NOTDIR),
        }
    }

    /// Returns true if the name leads to another file than `held`, or to none. False if the system cannot tell.
    fn is_another(&self, name: FileName, held: &Flocked) -> bool {
        match statat(&self.directory, name.to_string(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => fstat(held.file()).is_ok_and(|mine| identity(&mine) != identity(&found)),
            Err(error) => matches!(error, Errno::NOENT | Errno::NOTDIR),
        }
    }

    fn is_lost(&self, what: &str) -> Error {
        let text = format!(
            "{what} by another program while the store was open, so later writes would be lost; close the store, then \
             put its files back or restore a copy before opening it"
        );
        Error::Io { op: "write", path: shown(&self.path), source: Arc::new(io::Error::other(text)) }
    }
}

/// Returns an identity that does not depend on the path: a file's, or a device's, whichever node leads to it.
fn identity(stat: &Stat) -> (u64, u64) {
    if is_device(stat) { (stat.st_rdev, 0) } else { (stat.st_dev, stat.st_ino) }
}

fn is_device(stat: &Stat) -> bool {
    matches!(FileType::from_raw_mode(stat.st_mode), FileType::BlockDevice | FileType::CharacterDevice)
}

/// Returns true if an open file has no name left.
pub(super) fn is_nameless(file: &File) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

/// The write lock; dropping it releases the lock.
struct DirectoryLock(Arc<Names>);

impl Lock for DirectoryLock {}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        let held = lock(&self.0.held).take();
        drop(held);
    }
}
