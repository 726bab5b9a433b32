//! The names of a store's files. Numbers are never used twice within a store.

use std::fmt;
use std::str::FromStr;

/// The beginning of the name of an unfinished restore's file.
const RESTORE: &str = "RESTORE-";

/// A file of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FileName {
    /// `000012.log`: a write-ahead log file.
    Log(u64),
    /// `000012.spare`: a used log file kept to be written over.
    Spare(u64),
    /// `000034.table`: an immutable sorted file of entries.
    Table(u64),
    /// `MANIFEST-000005`: version edits.
    Manifest(u64),
    /// `MANIFEST-000005.copy`: the same bytes again (`docs/formats/manifest.md`).
    ManifestCopy(u64),
    /// `CURRENT`: names the manifest in force.
    Current,
    /// `LOCK`: held by the process that writes.
    Lock,
    /// `IDENTITY`: what made this directory a store, in words for people.
    Identity,
    /// `000056.tmp`: unfinished, removed at open.
    Temporary(u64),
    /// `LINEAGE`: the backups from which the store descends (`docs/formats/backup.md`).
    Lineage,
    /// `DISKS`: at home, on the capacity disk: which fast disk the store has (`docs/formats/members.md`).
    Disks,
    /// `MEMBER`: on a fast disk: whose it is.
    Member,
    /// `SUPERBLOCK`: the state of a hash store (`docs/formats/hash.md`).
    Superblock,
    /// `CLOCK`: the record of a hash store's clock.
    Clock,
    /// `IMAGES`: a hash store's images of buckets that are being written.
    Images,
    /// `000012.damaged`: what a repair could not use whole, set aside for people. No store reads or removes it.
    Damaged(u64),
    /// `000078.values`: a segment of a value log (`docs/formats/values.md`).
    Values(u64),
    /// `RESTORE-` and 32 hexadecimal digits: an unfinished restore, and the mark of its backup
    /// (`docs/formats/backup.md`).
    Restore(u128),
}

impl FileName {
    /// The name of a small file's replacement until it takes the file's name. One at a time: no store gives the number
    /// 0 to anything else.
    pub const REPLACEMENT: FileName = FileName::Temporary(0);

    /// Returns the number in the name, if it has one.
    pub fn number(self) -> Option<u64> {
        match self {
            FileName::Log(n)
            | FileName::Spare(n)
            | FileName::Table(n)
            | FileName::Manifest(n)
            | FileName::ManifestCopy(n)
            | FileName::Temporary(n)
            | FileName::Damaged(n)
            | FileName::Values(n) => Some(n),
            FileName::Current
            | FileName::Lock
            | FileName::Identity
            | FileName::Lineage
            | FileName::Disks
            | FileName::Member
            | FileName::Superblock
            | FileName::Clock
            | FileName::Images
            | FileName::Restore(_) => None,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileName::Log(n) => write!(f, "{n:06}.log"),
            FileName::Spare(n) => write!(f, "{n:06}.spare"),
            FileName::Table(n) => write!(f, "{n:06}.table"),
            FileName::Manifest(n) => write!(f, "MANIFEST-{n:06}"),
            FileName::ManifestCopy(n) => write!(f, "MANIFEST-{n:06}.copy"),
            FileName::Current => f.write_str("CURRENT"),
            FileName::Lock => f.write_str("LOCK"),
            FileName::Identity => f.write_str("IDENTITY"),
            FileName::Lineage => f.write_str("LINEAGE"),
            FileName::Disks => f.write_str("DISKS"),
            FileName::Member => f.write_str("MEMBER"),
            FileName::Superblock => f.write_str("SUPERBLOCK"),
            FileName::Clock => f.write_str("CLOCK"),
            FileName::Images => f.write_str("IMAGES"),
            FileName::Temporary(n) => write!(f, "{n:06}.tmp"),
            FileName::Damaged(n) => write!(f, "{n:06}.damaged"),
            FileName::Values(n) => write!(f, "{n:06}.values"),
            FileName::Restore(mark) => write!(f, "{RESTORE}{mark:032x}"),
        }
    }
}

/// The text is not the name of a store's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAFileName;

impl FromStr for FileName {
    type Err = NotAFileName;

    fn from_str(text: &str) -> Result<FileName, NotAFileName> {
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true if digits.len() >= 6 => digits.parse::<u64>().map_err(|_| NotAFileName),
            _ => Err(NotAFileName),
        };
        let name = match text {
            "CURRENT" => FileName::Current,
            "LOCK" => FileName::Lock,
            "IDENTITY" => FileName::Identity,
            "LINEAGE" => FileName::Lineage,
            "DISKS" => FileName::Disks,
            "MEMBER" => FileName::Member,
            "SUPERBLOCK" => FileName::Superblock,
            "CLOCK" => FileName::Clock,
            "IMAGES" => FileName::Images,
            _ if text.starts_with(RESTORE) => {
                let mark = u128::from_str_radix(&text[RESTORE.len()..], 16);
                FileName::Restore(mark.map_err(|_| NotAFileName)?)
            }
            _ => match text.strip_prefix("MANIFEST-") {
                Some(rest) => match rest.strip_suffix(".copy") {
                    Some(digits) => FileName::ManifestCopy(number(digits)?),
                    None => FileName::Manifest(number(rest)?),
                },
                None => match text.split_once('.') {
                    Some((digits, "log")) => FileName::Log(number(digits)?),
                    Some((digits, "spare")) => FileName::Spare(number(digits)?),
                    Some((digits, "table")) => FileName::Table(number(digits)?),
                    Some((digits, "tmp")) => FileName::Temporary(number(digits)?),
                    Some((digits, "damaged")) => FileName::Damaged(number(digits)?),
                    Some((digits, "values")) => FileName::Values(number(digits)?),
                    _ => return Err(NotAFileName),
                },
            },
        };
        // One spelling per name: "0000001.log" is a stranger's file, not ours.
        if name.to_string() == text { Ok(name) } else { Err(NotAFileName) }
    }
}

/// One entry of a volume's listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMeta {
    /// Its name.
    pub name: FileName,
    /// Its length in bytes.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_printing_and_parsing() {
        for name in [
            FileName::Log(1),
            FileName::Spare(999_999),
            FileName::Table(12_345_678),
            FileName::Manifest(5),
            FileName::ManifestCopy(5),
            FileName::Current,
            FileName::Lock,
            FileName::Identity,
            FileName::Lineage,
            FileName::Disks,
            FileName::Member,
            FileName::Superblock,
            FileName::Clock,
            FileName::Images,
            FileName::Temporary(0),
            FileName::Damaged(34),
            FileName::Values(56),
            FileName::Restore(0xab),
        ] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    #[test]
    fn strangers_are_not_taken_for_ours() {
        for text in [
            "",
            "1.log",
            "0000001.log",
            "000001.LOG",
            "+00001.log",
            "MANIFEST-",
            "MANIFEST-5.copy",
            "MANIFEST-000005.copy.copy",
            "000005.copy",
            "000001.log.bak",
            "99999999999999999999999.log",
            "RESTORE-ab",
            "RESTORE-000000000000000000000000000000AB",
        ] {
            assert_eq!(text.parse::<FileName>(), Err(NotAFileName), "{text}");
        }
    }
}
