//! The right to write to a file or a block device.
//!
//! Two locks, because they keep different people away: the exclusive open of a block device, which the kernel also takes
//! for a mounted file system, for swap and for the members of a RAID, and `flock`, which other openers of a file take.
//! Both belong to a descriptor of the lock's own, so that dropping it gives them back, and the end of the process too.

use crate::DeviceLock;
use crate::target::{Kind, Target};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another holder of a block device's `flock` is waited for: device managers take it for moments while they
/// look at a device that somebody has just closed.
const PASSING_HOLDER: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct FileLock {
    _file: File,
}

impl DeviceLock for FileLock {}

pub(crate) fn lock(target: &Target) -> io::Result<Box<dyn DeviceLock>> {
    lock_path(&target.path, target.kind == Kind::BlockDevice)
}

pub(crate) fn lock_path(path: &Path, is_block_device: bool) -> io::Result<Box<dyn DeviceLock>> {
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
    let patience = if is_block_device { PASSING_HOLDER } else { Duration::ZERO };
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Box::new(FileLock { _file: file })),
            Err(Errno::WOULDBLOCK) if begin.elapsed() < patience => std::thread::sleep(Duration::from_millis(10)),
            Err(Errno::WOULDBLOCK) => {
                return refused(format!("{shown} is locked by another process or opener; close it there"));
            }
            Err(Errno::INTR) => {}
            Err(other) => return Err(other.into()),
        }
    }
}
