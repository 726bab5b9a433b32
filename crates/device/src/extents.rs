//! A check that a file's bytes have their final place, as its file system says.
//!
//! A search for holes (`SEEK_HOLE`) is not enough. It takes for data the pages in the page cache over blocks that are
//! yet to be allocated or were never written. The later write of those blocks changes the file system's metadata. So
//! the file is made durable first, and then its extents are read (`FIEMAP`) with their states.

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;
use std::io;

/// `FS_IOC_FIEMAP` of `linux/fs.h`. Its number has the length of `struct fiemap` without the extents behind it.
const FS_IOC_FIEMAP: Opcode = opcode::read_write::<[u64; 4]>(b'f', 11);
/// Extents that one call returns.
const EXTENTS: usize = 64;

/// The last of the file.
const LAST: u32 = 0x1;
/// One of several that a file system without extents has put together.
const MERGED: u32 = 0x1000;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    bytes: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_2: [u32; 3],
}

/// `struct fiemap` and room for extents.
#[repr(C)]
struct Map {
    start: u64,
    bytes: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Map>() == 32 + 56 * EXTENTS);

/// Returns true if all bytes up to `end` have their blocks, and were written there. Writing them again then leaves the
/// file system's metadata as it is. Earlier unsynced writes are synced.
pub(crate) fn is_settled(file: &File, end: u64) -> io::Result<bool> {
    file.sync_all()?;
    is_mapped(file, end)
}

/// Returns true if extents that are written and nothing else cover the bytes up to `end`.
pub(crate) fn is_mapped(file: &File, end: u64) -> io::Result<bool> {
    let mut at = 0;
    while at < end {
        let (bytes, room) = (end - at, EXTENTS as u32);
        let extents = [Extent::default(); EXTENTS];
        let mut map = Map { start: at, bytes, flags: 0, mapped: 0, room, reserved: 0, extents };
        // SAFETY: the value is laid out as the kernel has it, header and as many extents as it says there is room for.
        match unsafe { ioctl(file, Updater::<FS_IOC_FIEMAP, Map>::new(&mut map)) } {
            Ok(()) => {}
            // A file system that does not say.
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => return Ok(false),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if map.mapped == 0 {
            return Ok(false);
        }
        for extent in map.extents.iter().take(map.mapped as usize) {
            let next = extent.logical.saturating_add(extent.bytes);
            // Any other flag: not allocated, not written, in the metadata, shared with another file, or unknown.
            if extent.flags & !(LAST | MERGED) != 0 || extent.logical > at || next <= at {
                return Ok(false);
            }
            at = next;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;
    use rustix::fs::{FallocateFlags, fallocate, fstatfs};
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    const END: u64 = 256 << 10;

    /// On a file system that tells what its extents are.
    fn file() -> Option<tempfile::NamedTempFile> {
        let file = tempfile::NamedTempFile::new().unwrap();
        if fstatfs(file.as_file()).unwrap().f_type as u64 == crate::target::EXT_MAGIC {
            return Some(file);
        }
        skipped(format_args!("{} is not on a file system of the ext family", file.path().display()));
        None
    }

    #[test]
    fn what_was_written_and_not_synced_is_synced_before_it_counts() {
        let Some(mut file) = file() else { return };
        file.write_all(&vec![1; END as usize]).unwrap();
        if is_mapped(file.as_file(), END).unwrap() {
            return skipped("the file system allocates at once");
        }
        assert!(is_settled(file.as_file(), END).unwrap());
        assert!(is_mapped(file.as_file(), END).unwrap());
        assert!(!is_settled(file.as_file(), END + (1 << 20)).unwrap());
    }

    #[test]
    fn holes_and_unwritten_extents_do_not_count_though_they_were_read() {
        let Some(mut file) = file() else { return };
        file.write_all(&vec![1; END as usize]).unwrap();
        file.as_file().set_len(2 * END).unwrap();
        let whole = |file: &File| {
            // A copy or a look at it: its pages are in the cache from now on.
            file.read_exact_at(&mut vec![0; 2 * END as usize], 0).unwrap();
            is_settled(file, 2 * END).unwrap()
        };
        assert!(!whole(file.as_file()));
        fallocate(file.as_file(), FallocateFlags::empty(), END, END).unwrap();
        assert!(!whole(file.as_file()));
        file.write_all(&vec![1; END as usize]).unwrap();
        assert!(whole(file.as_file()));
    }

    #[test]
    fn a_file_in_more_pieces_than_one_call_returns_is_seen_whole() {
        let Some(file) = file() else { return };
        // Every second block, then those between: hardly ever side by side on the disk.
        let blocks = 4 * EXTENTS as u64;
        for odd in [0, 1] {
            for block in (odd..blocks).step_by(2) {
                file.as_file().write_all_at(&[1; 4096], block * 4096).unwrap();
            }
            assert_eq!(is_settled(file.as_file(), blocks * 4096).unwrap(), odd == 1);
        }
    }

    #[test]
    fn an_empty_file_is_settled() {
        assert!(is_settled(tempfile::NamedTempFile::new().unwrap().as_file(), 0).unwrap());
    }
}
