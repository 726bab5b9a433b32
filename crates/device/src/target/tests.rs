//! Geometry against descriptions of disks as the kernel gives them, written to a directory.

use super::*;
use crate::skipped::skipped;
use rustix::fs::{CWD, IFlags, Mode, ioctl_getflags, ioctl_setflags, mknodat};

fn disk(queue: &[(&str, &str)]) -> (tempfile::TempDir, Disk) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("queue")).unwrap();
    for (name, value) in queue {
        std::fs::write(directory.path().join("queue").join(name), format!("{value}\n")).unwrap();
    }
    let disk = Disk::at(directory.path()).unwrap();
    (directory, disk)
}

#[test]
fn a_disk_without_a_volatile_cache_is_believed() {
    let (_directory, disk) =
        disk(&[("write_cache", "write through"), ("discard_max_bytes", "1073741824"), ("discard_granularity", "4096")]);
    let geometry = block_geometry(Some(&disk), 512, true);
    assert!(!geometry.volatile_write_cache);
    assert_eq!((geometry.block_bytes, geometry.atomic_write_bytes, geometry.discard_bytes), (512, 512, 4096));
    assert!(!geometry.discard_zeroes);
    assert!(block_geometry(Some(&disk), 512, false).volatile_write_cache, "through the page cache");
}

#[test]
fn a_disk_that_cannot_discard_has_no_unit_for_it() {
    let (_directory, disk) = disk(&[("discard_max_bytes", "0"), ("discard_granularity", "512")]);
    assert_eq!(block_geometry(Some(&disk), 512, true).discard_bytes, 0);
}

#[test]
fn what_is_not_known_is_assumed_to_be_bad() {
    let (_directory, silent) = disk(&[]);
    for disk in [None, Some(&silent)] {
        let geometry = block_geometry(disk, 512, true);
        assert!(geometry.volatile_write_cache);
        assert_eq!(geometry.discard_bytes, 0);
        assert!(file_geometry(disk, true, true).volatile_write_cache);
    }
}

#[test]
fn a_partition_has_the_properties_of_its_disk() {
    let (directory, _) = disk(&[("write_cache", "write through")]);
    let partition = directory.path().join("part1");
    std::fs::create_dir(&partition).unwrap();
    std::fs::write(partition.join("partition"), "1\n").unwrap();
    assert!(!Disk::at(&partition).unwrap().has_volatile_cache());
}

#[test]
fn a_file_needs_no_flush_only_where_it_is_written_in_place() {
    let (_directory, disk) = disk(&[("write_cache", "write through"), ("logical_block_size", "4096")]);
    assert!(!file_geometry(Some(&disk), true, true).volatile_write_cache);
    assert!(file_geometry(Some(&disk), false, true).volatile_write_cache);
    assert_eq!(file_geometry(Some(&disk), true, true).atomic_write_bytes, 4096);
}

#[test]
fn a_file_bypasses_the_cache_only_if_it_says_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut answer = statx(file.as_file(), c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).unwrap();
    (answer.stx_mask, answer.stx_dio_offset_align) = (StatxFlags::DIOALIGN.bits(), 512);
    assert!(says_direct(&answer));
    answer.stx_dio_offset_align = 0;
    assert!(!says_direct(&answer), "a file whose data is journalled");
    (answer.stx_mask, answer.stx_dio_offset_align) = (0, 512);
    assert!(!says_direct(&answer), "a kernel that does not know the question");
}

/// Such a file opens for direct I/O, and its extents are what they are of any other; but ext4 writes it through the
/// page cache, where a durable write that was not followed by a flush stayed.
#[test]
fn a_file_whose_data_is_journalled_does_not_bypass_the_cache() {
    let file = tempfile::NamedTempFile::new().unwrap();
    if fstatfs(file.as_file()).unwrap().f_type as u64 != EXT_MAGIC {
        return skipped(format_args!("{} is not on a file system of the ext family", file.path().display()));
    }
    let bypasses = || bypasses_cache(&Target::open(file.path(), false).unwrap().file).unwrap();
    if !bypasses() {
        return skipped("here no file says that it does");
    }
    let flags = ioctl_getflags(file.as_file()).unwrap();
    if let Err(error) = ioctl_setflags(file.as_file(), flags | IFlags::JOURNALING) {
        return skipped(format_args!("its data cannot be journalled: {error}"));
    }
    std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
    assert!(is_settled(file.as_file(), 1 << 20).unwrap(), "so far it looks like any other file");
    assert!(!bypasses());
    assert!(Target::open(file.path(), false).unwrap().geometry.volatile_write_cache);
}

#[test]
fn the_room_of_a_file_whose_owner_reserved_it_stays_reserved() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    assert_eq!(Target::open(file.path(), false).unwrap().geometry.discard_bytes, 4096);
    std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
    file.as_file().sync_all().unwrap();
    assert_eq!(Target::open(file.path(), false).unwrap().geometry.discard_bytes, 0);
}

#[test]
fn what_is_neither_file_nor_block_device_is_refused_with_the_cure() {
    let error = Target::open(Path::new("/dev/null"), true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("give a block device or a regular file"), "{error}");
}

/// Looking at a pipe as a disk waited for whoever might write to it, without end.
#[test]
fn a_pipe_is_refused_before_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for read_only in [true, false] {
        let (told, tells) = std::sync::mpsc::channel();
        let path = pipe.clone();
        // A thread that still waits for the pipe ends with the process.
        std::thread::spawn(move || told.send(Target::open(&path, read_only).map(drop)));
        let answer = tells.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
        assert!(answer.unwrap_err().to_string().contains("give a block device or a regular file"));
    }
}
