//! Loop devices: a write under one name is a write under another, too.
//!
//! A file, or a block device, may have loop devices over it, which the kernel lists with what is below them. A lock on
//! what is below is refused as long as there is one: it may be mounted, or a store may have it open. A lock on a loop
//! device shares the `flock` of what is below, of which the other has to have all. Partitions of one loop device share
//! it with each other. So the second opener is refused, whichever of the names it uses.

use super::{identity, identity_of};
use rustix::fs::{FlockOperation, flock, fstat, major, minor, stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns the name of a loop device over `file`, if there is one.
pub(super) fn over(file: &File) -> io::Result<Option<String>> {
    let below = identity(file)?;
    // Without /sys there is nothing to ask.
    let Ok(devices) = fs::read_dir("/sys/block") else { return Ok(None) };
    let is_over = |device: &fs::DirEntry| {
        let backing = backing_file(&device.path())?;
        // Only looked at: opening what is no file or block device may have effects.
        Some(identity_of(&stat(&backing).ok()?) == below)
    };
    let found = devices.flatten().find(|device| is_over(device) == Some(true));
    Ok(found.map(|device| device.file_name().to_string_lossy().into_owned()))
}

/// Takes the share of the file below the block device `device`, if that is a loop device or a partition of one. The
/// caller keeps it as long as the device's lock.
///
/// # Errors
/// `WouldBlock`: another holder has what is below. A file that cannot be opened, as it has no name any more or belongs
/// to another user, is left alone.
pub(super) fn share_below(device: &File) -> io::Result<Option<File>> {
    let number = fstat(device)?.st_rdev;
    let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let Ok(directory) = fs::canonicalize(link) else { return Ok(None) };
    let is_partition = directory.join("partition").exists();
    let disk = if is_partition { directory.parent().unwrap_or(&directory) } else { &directory };
    let Some(path) = backing_file(disk) else { return Ok(None) };
    let kind = fs::metadata(&path).map(|metadata| metadata.file_type());
    if !kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device()) {
        return Ok(None);
    }
    let Ok(below) = File::open(&path) else { return Ok(None) };
    match flock(&below, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(below)),
        Err(Errno::WOULDBLOCK) => {
            let why = format!("{}, which lies below it, is locked by another process or opener", path.display());
            Err(io::Error::new(io::ErrorKind::WouldBlock, why))
        }
        Err(other) => Err(other.into()),
    }
}

/// Returns the file below the disk that the kernel describes in `directory`, if it is a loop device in use.
fn backing_file(directory: &Path) -> Option<PathBuf> {
    let mut text = fs::read(directory.join("loop/backing_file")).ok()?;
    text.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(text).into())
}
