//! The target of a path: a regular file or a block device, with the disk beneath and that disk's own description.
//!
//! 1. The path is opened, bypassing the page cache where the file system allows it.
//! 2. The disk is found by its number: a block device's own, or the one that a file's file system names. The kernel
//!    describes it under `/sys/dev/block/MAJOR:MINOR`; a partition's description is one directory higher, its disk's.
//! 3. Unknown properties are assumed to be as bad as disks get: a volatile cache, sectors of 512 bytes.
//!
//! **When a file needs no flush.** A disk without a volatile cache is not enough. A file system may keep the place of
//! the bytes in memory. Only a file that is written in place can do without. It is opened for direct I/O, on a file
//! system that overwrites (the ext family). Every block was allocated and written once before, because holes and
//! unwritten extents change the file system's metadata when they are written. So the opening of such a file syncs it
//! and asks for its extents (`extents.rs`). A request for direct I/O is not enough either. ext4 takes the flag and
//! still goes through its page cache where it cannot do without, as for data that it journals (`chattr +j`,
//! `data=journal`). So the file must say that its I/O is direct (`statx`, since Linux 6.1). Every other file is said to
//! have a volatile cache, and so is a block device that is used through the page cache.
//!
//! **A file that is cut while it is open.** A write behind its new end makes it longer again, with holes in place of
//! its bytes. All would look well until a reader misses them. So the file's length is checked before each write, which
//! costs a fraction of a microsecond. Once it was too short, nothing is written to the file any more
//! ([`Target::check_whole`]). Reads behind its end are errors. A block device refuses both by itself.

use crate::drive::{Counts, Drive};
use crate::extents::is_settled;
use crate::flock;
use crate::{Buffer, DeviceLock, Geometry, PAGE_BYTES, Space};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, OFlags, SeekFrom, Stat, Statx, StatxFlags, fallocate, fcntl_getfl, fstat,
    fstatfs, fstatvfs, major, minor, seek, stat, statx,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest transfer through the kernel's block layer, which cuts it into commands as the disk wants them. Longer
/// ones gain nothing on any disk and hold up the operations behind them.
const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// The magic number of ext2, ext3 and ext4.
pub(crate) const EXT_MAGIC: u64 = 0xef53;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    RegularFile,
    BlockDevice,
}

impl Kind {
    fn of(stat: &Stat, path: &Path) -> io::Result<Kind> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Kind::RegularFile),
            FileType::BlockDevice => Ok(Kind::BlockDevice),
            other => {
                let why = format!("{} is a {other:?}; give a block device or a regular file", path.display());
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }
}

/// An open file or block device and what is known about it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// The size when it was opened, in whole pages and blocks.
    pub(crate) bytes: u64,
    pub(crate) geometry: Geometry,
    pub(crate) direct: bool,
    /// True if the file was found shorter than `bytes`; `None` for a target that cannot become shorter unnoticed.
    was_cut: Option<Arc<AtomicBool>>,
    disk: Option<Disk>,
    pub(crate) drive: Arc<Drive>,
}

impl Target {
    pub(crate) fn open(path: &Path, read_only: bool) -> io::Result<Target> {
        // Before it is opened: opening a pipe waits for a process at its other end.
        Kind::of(&stat(path)?, path)?;
        let direct = OFlags::DIRECT.bits() as i32;
        let open = |flags| OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path);
        let file = match open(direct) {
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::OPNOTSUPP)) => open(0)?,
            other => other?,
        };
        Target::new(file, path)
    }

    /// Returns a target over a pipe, a socket, or any other file that a test wants to behave as a device of `bytes`.
    #[cfg(test)]
    pub(crate) fn fake(file: File, bytes: u64) -> Target {
        let geometry = file_geometry(None, false, true);
        let (path, kind) = (PathBuf::from("fake"), Kind::RegularFile);
        let (file, drive) = (Arc::new(file), Arc::new(Drive::unknown("it is no device")));
        Target { file, path, kind, bytes, geometry, direct: false, was_cut: None, disk: None, drive }
    }

    fn new(file: File, path: &Path) -> io::Result<Target> {
        let stat = fstat(&file)?;
        let kind = Kind::of(&stat, path)?;
        let disk = Disk::find(if kind == Kind::RegularFile { stat.st_dev } else { stat.st_rdev });
        let direct = fcntl_getfl(&file)?.contains(OFlags::DIRECT);
        let end = seek(&file, SeekFrom::End(0))?;
        let geometry = match kind {
            Kind::BlockDevice => block_geometry(disk.as_ref(), rustix::fs::ioctl_blksszget(&file)?, direct),
            Kind::RegularFile => {
                let in_place = direct && fstatfs(&file)?.f_type as u64 == EXT_MAGIC && bypasses_cache(&file)?;
                let settled = in_place && is_settled(&file, end)?;
                file_geometry(disk.as_ref(), settled, (stat.st_blocks as u64).saturating_mul(512) >= end)
            }
        };
        let unit = u64::from(geometry.block_bytes).max(PAGE_BYTES as u64);
        let bytes = end - end % unit;
        let was_cut = (kind == Kind::RegularFile).then(Arc::default);
        let drive = Arc::new(Drive::of(&file)?);
        Ok(Target { file: Arc::new(file), path: path.to_owned(), kind, bytes, geometry, direct, was_cut, disk, drive })
    }

    /// # Errors
    /// The file is shorter than when it was opened, or was at an earlier call. The bytes behind its end are lost, even
    /// if the file is made longer again.
    pub(crate) fn check_whole(&self) -> io::Result<()> {
        let Some(was_cut) = &self.was_cut else { return Ok(()) };
        let length = fstat(&*self.file)?.st_size as u64;
        if length < self.bytes {
            was_cut.store(true, Ordering::Release);
        }
        if !was_cut.load(Ordering::Acquire) {
            return Ok(());
        }
        let why = format!(
            "{} was cut while it was in use: it had {} bytes when it was opened, and has {length} now. Nothing more is \
             written to it",
            self.path.display(),
            self.bytes
        );
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }

    /// Takes the right to write to the file or the block device.
    ///
    /// # Errors
    /// `WouldBlock` if another opener has it; `InvalidInput` if the path has become another file.
    pub(crate) fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        flock::lock_path(&self.path, self.kind == Kind::BlockDevice, Some(&self.file))
    }

    /// See [`Device::reserve`](crate::Device::reserve).
    pub(crate) fn reserve(&self) -> io::Result<()> {
        if self.kind == Kind::BlockDevice {
            return Ok(());
        }
        let missing = self.bytes.saturating_sub((fstat(&*self.file)?.st_blocks as u64).saturating_mul(512));
        let room = fstatvfs(&*self.file)?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        // Asked for before: of a reservation that fails, what it has taken by then is not given back. A file system
        // that does not tell its size has no blocks at all.
        if room.f_blocks > 0 && free < missing {
            let why = format!(
                "{} has {} bytes, {missing} of which its file system has not given it yet; there are {free} left, so make \
                 room there, or the file shorter",
                self.path.display(),
                self.bytes
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        match fallocate(&*self.file, FallocateFlags::empty(), 0, self.bytes) {
            // There is room, and the file system cannot reserve it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    pub(crate) fn describe(&self, backend: &str) -> String {
        let kind = match self.kind {
            Kind::RegularFile => "regular file",
            Kind::BlockDevice => "block device",
        };
        let cache = if self.direct { "direct" } else { "through the page cache" };
        format!("{} ({kind}, {backend}, {cache})", self.path.display())
    }

    /// Returns the part of a transfer that moved `count` bytes that may be taken as done. The caller asks for the rest.
    /// Direct I/O cannot begin again within a block. It is 0 if only a part of a block was moved.
    pub(crate) fn whole_units(&self, count: usize) -> usize {
        if self.direct { count - count % self.geometry.block_bytes as usize } else { count }
    }

    pub(crate) fn check_discard(&self) -> io::Result<()> {
        if self.geometry.discard_bytes == 0 {
            let why = format!("{} cannot give back room", self.path.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(())
    }

    /// Returns true if the kernel can begin an operation without waiting. Where it cannot (devices that do their work
    /// on the caller's thread, such as zram), it gives each operation of a ring to a thread of its own.
    pub(crate) fn can_begin_without_waiting(&self) -> bool {
        let mut buffer = Buffer::new(self.geometry.block_bytes as usize);
        let read = preadv2(&*self.file, &mut [IoSliceMut::new(&mut buffer)], 0, ReadWriteFlags::NOWAIT);
        matches!(read, Ok(_) | Err(Errno::AGAIN))
    }

    /// Returns true if the disk can be polled for completions: a block device with queues for it.
    pub(crate) fn can_poll(&self) -> bool {
        let disk = self.disk.as_ref().filter(|_| self.kind == Kind::BlockDevice && self.direct);
        disk.and_then(|disk| disk.number::<u32>("io_poll")).is_some_and(|can| can != 0)
    }

    pub(crate) fn space(&self) -> Space {
        let counts = self.drive.counts();
        let (logical_total, logical_used) = match self.kind {
            Kind::RegularFile => self.length_and_held().unwrap_or((self.bytes, self.bytes)),
            // The figures are those of the whole drive, so they say nothing about a part of it.
            Kind::BlockDevice if self.drive.nature().is_shared => (self.bytes, self.bytes),
            Kind::BlockDevice => (self.bytes, counts.logical_used.map_or(self.bytes, |used| used.min(self.bytes))),
        };
        let Counts { physical_total, physical_used, physical_written, .. } = counts;
        Space { logical_total, logical_used, physical_total, physical_used, physical_written }
    }

    /// Returns, for a file, the bytes that are left as it was opened, and the bytes that its file system has given it.
    fn length_and_held(&self) -> Option<(u64, u64)> {
        let stat = fstat(&*self.file).ok()?;
        let total = (stat.st_size as u64).min(self.bytes);
        Some((total, (stat.st_blocks as u64).saturating_mul(512).min(total)))
    }
}

/// Returns true if the file system does direct I/O for this file, and not only takes the flag.
fn bypasses_cache(file: &File) -> io::Result<bool> {
    match statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(answer) => Ok(says_direct(&answer)),
        // A kernel without the call.
        Err(Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if the answer says that I/O is direct. A kernel or a file system that does not say leaves the bit out;
/// one that goes through the page cache says 0.
fn says_direct(answer: &Statx) -> bool {
    StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN) && answer.stx_dio_offset_align > 0
}

/// Returns the geometry that `disk` reports; `logical` is the size of its sectors.
fn block_geometry(disk: Option<&Disk>, logical: u32, direct: bool) -> Geometry {
    let discard = disk.filter(|disk| disk.number::<u64>("discard_max_bytes").is_some_and(|most| most > 0));
    let granularity = discard.and_then(|disk| disk.number::<u32>("discard_granularity")).unwrap_or(0);
    Geometry {
        block_bytes: logical,
        atomic_write_bytes: logical,
        max_transfer_bytes: MAX_TRANSFER_BYTES,
        volatile_write_cache: !direct || disk.is_none_or(Disk::has_volatile_cache),
        discard_bytes: if discard.is_some() { granularity.max(logical) } else { 0 },
        // The kernel has stopped to promise it for any device.
        discard_zeroes: false,
    }
}

/// Returns the geometry of a file on `disk`. Its owner may have `reserved` all of its room: then it is never given
/// back.
fn file_geometry(disk: Option<&Disk>, settled: bool, reserved: bool) -> Geometry {
    let sector = disk.and_then(|disk| disk.number::<u32>("logical_block_size")).unwrap_or(512);
    Geometry {
        block_bytes: PAGE_BYTES as u32,
        atomic_write_bytes: sector.min(PAGE_BYTES as u32),
        max_transfer_bytes: MAX_TRANSFER_BYTES,
        volatile_write_cache: !settled || disk.is_none_or(Disk::has_volatile_cache),
        discard_bytes: if reserved { 0 } else { PAGE_BYTES as u32 },
        discard_zeroes: !reserved,
    }
}

/// A disk's directory under `/sys`.
#[derive(Debug, Clone)]
struct Disk {
    directory: PathBuf,
}

impl Disk {
    /// Finds the disk. Returns `None` for a file system without a disk of its own (in memory, over a network, over
    /// several disks).
    fn find(number: u64) -> Option<Disk> {
        let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        Disk::at(&std::fs::canonicalize(link).ok()?)
    }

    fn at(directory: &Path) -> Option<Disk> {
        let directory = if directory.join("partition").exists() { directory.parent()? } else { directory };
        directory.join("queue").is_dir().then(|| Disk { directory: directory.to_owned() })
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.directory.join("queue").join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    fn has_volatile_cache(&self) -> bool {
        self.text("write_cache").is_none_or(|mode| mode != "write through")
    }
}

#[cfg(test)]
mod tests;
