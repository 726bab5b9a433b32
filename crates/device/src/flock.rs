//! The right to write to a file or a block device.
//!
//! There are two locks, because they keep different users away. The kernel takes the exclusive open of a block device
//! also for a mounted file system, for swap and for the members of a RAID. Other openers of a file take `flock`. A disk
//! that has two names by a loop device is kept by either of them (`flock/loops.rs`). Both belong to a descriptor of the
//! lock's own, so that dropping it gives them back, and the end of the process too. It is opened by the path again, and
//! has to be the same file as when the device was opened. The right to write to a replacement is no right to write to
//! the device.

mod loops;

use crate::DeviceLock;
use rustix::fs::{FileType, FlockOperation, OFlags, Stat, flock, fstat};
use rustix::io::Errno;
use situ_base::lock;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The longest wait for another holder of a block device's `flock`. Device managers take it for moments while they look
/// at a device that was just closed.
const PASSING_HOLDER: Duration = Duration::from_millis(500);

/// The files of which this process holds the `flock` now, each as often as it does. So a refused process can find out
/// if it is the holder itself.
static HELD: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn held() -> MutexGuard<'static, Vec<(u64, u64)>> {
    // Nothing can panic while it is locked.
    lock(&HELD)
}

/// A file of which this process has taken the `flock`; given back on drop.
///
/// Closing is not enough: a process that is being started has copies of all descriptors for a moment. A child that was
/// forked has them for good, and closes its own: what it unlocked would be unlocked for its parent, too. So only the
/// process that took it gives it back.
#[derive(Debug)]
pub struct Flocked {
    file: File,
    holder: u32,
    /// The identity of the file, as [`HELD`] has it; `None` if the system does not say.
    held: Option<(u64, u64)>,
}

impl Flocked {
    /// Takes `file`, of which this process has just taken the `flock`, a share or all of it.
    pub fn new(file: File) -> Flocked {
        let which = identity(&file).ok();
        held().extend(which);
        Flocked { file, holder: std::process::id(), held: which }
    }

    /// Returns the locked file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns true if this process itself holds the `flock` of `file`, by whatever name it was opened. A child that
    /// was forked also answers for its parent.
    pub fn is_held_here(file: &File) -> bool {
        identity(file).is_ok_and(|which| held().contains(&which))
    }
}

impl Drop for Flocked {
    fn drop(&mut self) {
        if let Some(which) = self.held {
            let mut held = held();
            let at = held.iter().position(|other| *other == which);
            at.map(|at| held.swap_remove(at));
        }
        if std::process::id() == self.holder {
            // A lock that cannot be unlocked goes with the last descriptor.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

#[derive(Debug)]
struct FileLock {
    _held: Flocked,
    /// The file below a loop device, of which others have a share at most.
    _below: Option<Flocked>,
}

impl DeviceLock for FileLock {}

/// Takes the lock of the path, if it is still the path of `opened`. `None` for a device that has another node for it.
pub(crate) fn lock_path(path: &Path, is_block_device: bool, opened: Option<&File>) -> io::Result<Box<dyn DeviceLock>> {
    Ok(Box::new(take(path, is_block_device, opened)?))
}

fn take(path: &Path, is_block_device: bool, opened: Option<&File>) -> io::Result<FileLock> {
    let shown = path.display();
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::WouldBlock, why));
    let exclusive = if is_block_device { OFlags::EXCL.bits() as i32 } else { 0 };
    let file = match OpenOptions::new().read(true).custom_flags(exclusive).open(path) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) => {
            return refused(format!(
                "{shown} is in use: it is mounted, part of another device, or opened by another store"
            ));
        }
        other => other?,
    };
    if let Some(opened) = opened
        && identity(&file)? != identity(opened)?
    {
        let why = format!("{shown} is another file or device than when it was opened; open it again");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if let Some(name) = loops::over(&file)? {
        return refused(format!(
            "{shown} lies below the loop device /dev/{name}, which may be in use; name that one, or detach it first \
             (`losetup --detach /dev/{name}`)"
        ));
    }
    let patience = if is_block_device { PASSING_HOLDER } else { Duration::ZERO };
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if begin.elapsed() < patience => std::thread::sleep(Duration::from_millis(10)),
            Err(Errno::WOULDBLOCK) if Flocked::is_held_here(&file) => {
                return refused(format!("this process has {shown} open already; use what is open, or close it first"));
            }
            Err(Errno::WOULDBLOCK) => {
                return refused(format!("{shown} is locked by another process or opener; close it there"));
            }
            Err(Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
    }
    let below = if is_block_device { loops::share_below(&file) } else { Ok(None) };
    match below {
        Ok(below) => Ok(FileLock { _held: Flocked::new(file), _below: below.map(Flocked::new) }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => refused(format!("{shown} is in use: {error}")),
        Err(error) => Err(error),
    }
}

/// Returns an identity that does not depend on the path: a device's number, whichever node was opened, and a file's
/// inode number.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    Ok(identity_of(&fstat(file)?))
}

fn identity_of(stat: &Stat) -> (u64, u64) {
    let is_device = matches!(FileType::from_raw_mode(stat.st_mode), FileType::BlockDevice | FileType::CharacterDevice);
    if is_device { (stat.st_rdev, 0) } else { (stat.st_dev, stat.st_ino) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    /// While another thread starts a process, the lock that was given back was still held.
    #[test]
    fn a_lock_that_is_given_back_is_free_although_a_new_process_has_a_copy_of_its_descriptor() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = take(file.path(), false, None).unwrap();
        let copy = lock._held.file.try_clone().unwrap();
        assert!(take(file.path(), false, None).is_err());
        drop(lock);
        take(file.path(), false, None).unwrap();
        drop(copy);
    }

    #[test]
    fn a_process_that_stands_in_its_own_way_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("disk"), directory.path().join("link"));
        std::fs::write(&path, [1; 8192]).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let refusal = |path: &Path| take(path, false, None).unwrap_err().to_string();
        let ours = take(&path, false, None).unwrap();
        for path in [&path, &link] {
            assert!(refusal(path).contains("this process has"), "{}", refusal(path));
        }
        drop(ours);
        // As another process has it.
        let theirs = File::open(&link).unwrap();
        flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(refusal(&path).contains("another process"), "{}", refusal(&path));
    }

    #[test]
    fn a_forked_child_does_not_give_its_parents_lock_away() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut child = take(file.path(), false, None).unwrap();
        let parent = Flocked::new(child._held.file.try_clone().unwrap());
        child._held.holder += 1;
        drop(child);
        assert!(take(file.path(), false, None).is_err());
        drop(parent);
        take(file.path(), false, None).unwrap();
    }

    #[test]
    fn the_lock_of_a_file_that_has_taken_the_place_of_the_device_is_not_given() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("disk"), directory.path().join("other"));
        for path in [&path, &other] {
            std::fs::write(path, [1; 8192]).unwrap();
        }
        let target = Target::open(&path, false).unwrap();
        target.lock().unwrap();
        std::fs::rename(&other, &path).unwrap();
        let error = target.lock().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("open it again"), "{error}");
        // By another name of the same file it is.
        std::fs::hard_link(&path, &other).unwrap();
        let target = Target::open(&other, false).unwrap();
        std::fs::rename(&path, directory.path().join("third")).unwrap();
        target.lock().unwrap();
    }
}
