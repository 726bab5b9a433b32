//! A check that a file system discards deleted bytes on its drive, by its mount options.
//!
//! ext4 and XFS tell it only if they are mounted with `discard`. Otherwise the drive keeps the bytes of deleted files,
//! and of holes that were punched, until an administrator runs `fstrim` or the blocks are written again. On a drive
//! that compresses, that is physical space.
//!
//! Other file systems are not judged.

use rustix::fs::{major, minor};

/// File systems that tell the drive only if they are mounted with `discard`.
const ON_REQUEST: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];

/// Returns true if the mounted file system on the device with this number keeps discards to itself. False if that is
/// unknown.
pub(super) fn keep_discards(number: u64) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    said_by(&mounts, number)
}

/// Parses `mounts`, a text like `/proc/self/mountinfo`:
/// `36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/root rw,discard`.
fn said_by(mounts: &str, number: u64) -> bool {
    let device = format!("{}:{}", major(number), minor(number));
    let of_device = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(&device));
    // All mounts of a file system have its options.
    of_device.filter_map(|line| line.split_once(" - ")).next().is_some_and(|(_, file_system)| {
        let mut words = file_system.split(' ');
        let (kind, options) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        ON_REQUEST.contains(&kind) && !options.split(',').any(|option| option == "discard")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    const MOUNTS: &str = "\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid,nodev - proc proc rw
40 22 252:0 / /mnt/zram rw,relatime shared:30 master:2 - ext4 /dev/zram0 rw,discard
41 22 252:1 / /mnt/my\\040disk rw - xfs /dev/zram1 rw,attr2,inode64,noquota
42 22 252:2 / /mnt/xfs rw,discard - xfs /dev/zram2 rw,attr2,discard,noquota
43 22 252:3 / /mnt/f2fs rw - f2fs /dev/zram3 rw,background_gc=on
44 22 252:4 / /mnt/no rw,discard - ext4 /dev/zram4 rw,nodiscard
45 22 252:40 / /mnt/cut
";

    #[test]
    fn the_options_of_the_file_system_say_whether_discards_reach_the_drive() {
        let keeps = |major, minor| said_by(MOUNTS, makedev(major, minor));
        assert!(keeps(259, 2) && keeps(252, 1) && keeps(252, 4));
        assert!(!keeps(252, 0) && !keeps(252, 2));
        assert!(!keeps(252, 3), "it discards unless it is told otherwise");
        assert!(!keeps(252, 40) && !keeps(8, 0) && !said_by("", 0), "nobody knows");
    }
}
