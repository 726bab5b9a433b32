//! Marks at the front of a device, by which its contents are recognised.

use super::layout::MAGIC;
use std::fmt;

/// Contents of a device that are well known. The text is a name for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signature {
    /// A Situ disk, sound or not.
    SituDisk,
    /// A file system, a partition table or the like.
    Other(&'static str),
}

impl Signature {
    /// The bytes at the front of a device that have all marks.
    pub const FRONT_BYTES: usize = 0x2_1004;

    /// Returns the contents of a device that begins with these bytes, if they are recognised.
    pub fn of(front: &[u8]) -> Option<Signature> {
        use Signature::{Other, SituDisk};
        let known: [(usize, &[u8], Signature); 13] = [
            (0, &MAGIC, SituDisk),
            (1080, &[0x53, 0xef], Other("an ext2, ext3 or ext4 file system")),
            (0, b"XFSB", Other("an XFS file system")),
            (0x1_0040, b"_BHRfS_M", Other("a Btrfs file system")),
            (1024, &[0x10, 0x20, 0xf5, 0xf2], Other("an F2FS file system")),
            (3, b"NTFS    ", Other("an NTFS file system")),
            (4086, b"SWAPSPACE2", Other("swap space")),
            (0, b"LUKS\xba\xbe", Other("an encrypted (LUKS) volume")),
            (512, b"LABELONE", Other("an LVM volume")),
            (4096, &[0xfc, 0x4e, 0x2b, 0xa9], Other("a member of a RAID")),
            (512, b"EFI PART", Other("a GPT partition table")),
            (0x2_1000, &[0x0c, 0xb1, 0xba, 0], Other("a ZFS pool")),
            // Last: many of the others have it, too.
            (510, &[0x55, 0xaa], Other("a boot sector or a partition table")),
        ];
        let is_there = |at: usize, magic: &[u8]| front.get(at..at + magic.len()) == Some(magic);
        known.into_iter().find(|(at, magic, _)| is_there(*at, magic)).map(|(.., signature)| signature)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signature::SituDisk => "a Situ disk",
            Signature::Other(name) => name,
        })
    }
}
