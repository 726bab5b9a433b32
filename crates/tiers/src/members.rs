//! The record of the disks that belong together: the files DISKS and MEMBER (`docs/formats/members.md`).
//!
//! [`Home`] is DISKS, what the capacity disk says. [`Member`] is MEMBER, what a fast disk says of itself. The engine
//! compares the two with the disks that its caller has given, when it opens a store.
//!
//! **Limit.** The format of DISKS knows one fast disk. A store with more disks needs a new one; [`Disks`](crate::Disks)
//! does not.
//!
//! **Invariant.** While anything of the store lies on a fast disk, DISKS says `used` and names that disk's id.

use crate::decision::PlacementDecision;
use crate::path_text::LINE_ENDS;
use situ_storage::{Error, FileName, Result, Volume};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

/// 128 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(u128);

impl Id {
    /// Returns a fresh id: the keys of the standard library's hash maps are the system's randomness.
    pub(crate) fn random() -> Id {
        let half = || u128::from(RandomState::new().build_hasher().finish());
        Id(half() << 64 | half())
    }

    fn parse(text: &str) -> Option<Id> {
        let id = Id(u128::from_str_radix(text, 16).ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The state of the fast disk according to DISKS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fast {
    /// The store has none.
    None,
    /// The disk with this id is being added. Nothing of the store lies on it.
    Adding(Id),
    /// The store has the disk with this id.
    Used(Id),
}

/// The file DISKS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    /// The store's id.
    pub(crate) store: Id,
    /// Its fast disk.
    pub(crate) fast: Fast,
    /// The location of the fast disk when the store was opened last.
    pub(crate) at: Option<String>,
    /// The location of the capacity disk when the store was opened last, if it is a directory.
    pub(crate) place: Option<String>,
    /// The last decisions of placement, oldest first.
    pub(crate) decisions: Vec<PlacementDecision>,
}

/// The file MEMBER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// The id of the store whose disk this is.
    pub(crate) store: Id,
    /// The disk's own id.
    pub(crate) disk: Id,
}

const HOME_LINE: &str = "situ disks 1";
const MEMBER_LINE: &str = "situ member 1";
/// Longer files are not ours. Two paths are in one, of up to 4 KiB each, or three times that where they are escaped.
const BYTES_MAX: u64 = 64 << 10;

fn with_checksum(mut text: String) -> String {
    text += &format!("checksum {:08x}\n", crc32c::crc32c(text.as_bytes()));
    text
}

/// Places are lines (`path_text.rs`), but for those of volumes that a program has named itself.
fn one_line(place: &str) -> String {
    place.replace(LINE_ENDS, " ")
}

/// Returns the lines before a checksum that is right.
fn checked(text: &str) -> Option<impl Iterator<Item = &str>> {
    let at = text.trim_end_matches('\n').rfind('\n')? + 1;
    (with_checksum(text[..at].to_owned()) == text).then(|| text[..at].lines())
}

impl Home {
    fn encode(&self) -> String {
        let mut text = format!("{HOME_LINE}\nstore {}\n", self.store);
        text += &match self.fast {
            Fast::None => "fast none\n".to_owned(),
            Fast::Adding(id) => format!("fast adding {id}\n"),
            Fast::Used(id) => format!("fast used {id}\n"),
        };
        if let Some(at) = &self.at {
            text += &format!("at {}\n", one_line(at));
        }
        if let Some(place) = &self.place {
            text += &format!("home {}\n", one_line(place));
        }
        for decision in &self.decisions {
            text += &format!("placed {decision}\n");
        }
        with_checksum(text)
    }

    fn decode(text: &str) -> Option<Home> {
        let mut lines = checked(text)?;
        (lines.next()? == HOME_LINE).then_some(())?;
        let store = Id::parse(lines.next()?.strip_prefix("store ")?)?;
        let fast = match lines.next()?.strip_prefix("fast ")?.split_once(' ') {
            None => Fast::None,
            Some(("adding", id)) => Fast::Adding(Id::parse(id)?),
            Some(("used", id)) => Fast::Used(Id::parse(id)?),
            Some(_) => return None,
        };
        let (mut at, mut place, mut decisions) = (None, None, Vec::new());
        for line in lines {
            match line.split_once(' ')? {
                ("at", text) if at.is_none() => at = Some(text.to_owned()),
                ("home", text) if place.is_none() => place = Some(text.to_owned()),
                ("placed", decision) => decisions.push(PlacementDecision::parse(decision)?),
                _ => return None,
            }
        }
        // In another order it is not what was written.
        let home = Home { store, fast, at, place, decisions };
        (home.encode() == text).then_some(home)
    }

    /// Returns the DISKS of a store that has no fast disk and never had an id.
    pub(crate) fn fresh() -> Home {
        Home { store: Id::random(), fast: Fast::None, at: None, place: None, decisions: Vec::new() }
    }

    /// Returns the contents of DISKS to restore where `member` is right and DISKS is lost.
    pub(crate) fn of_member(Member { store, disk }: Member) -> Home {
        Home { store, fast: Fast::Used(disk), ..Home::fresh() }
    }

    /// Returns the disk that the store uses, if it has a fast disk.
    pub(crate) fn used_disk(&self) -> Option<Id> {
        if let Fast::Used(disk) = self.fast { Some(disk) } else { None }
    }

    /// Reads DISKS on the capacity disk; `None` if the store never had a fast disk.
    ///
    /// # Errors
    /// The volume's; or DISKS is damaged.
    pub(crate) fn read(volume: &dyn Volume) -> Result<Option<Home>> {
        read(volume, FileName::Disks, Home::decode, "the store's fast disk and a checksum")
    }

    /// Writes DISKS on the capacity disk.
    ///
    /// # Errors
    /// After an error either contents may stand, the old or these.
    pub(crate) fn write(&self, volume: &dyn Volume) -> Result<()> {
        volume.replace(FileName::Disks, self.encode().as_bytes())
    }
}

impl Member {
    /// Returns the MEMBER of a disk that has lost its own, as has the store.
    pub(crate) fn fresh() -> Member {
        Member { store: Id::random(), disk: Id::random() }
    }

    fn encode(&self) -> String {
        with_checksum(format!("{MEMBER_LINE}\nstore {}\ndisk {}\n", self.store, self.disk))
    }

    fn decode(text: &str) -> Option<Member> {
        let mut lines = checked(text)?;
        (lines.next()? == MEMBER_LINE).then_some(())?;
        let store = Id::parse(lines.next()?.strip_prefix("store ")?)?;
        let disk = Id::parse(lines.next()?.strip_prefix("disk ")?)?;
        let member = Member { store, disk };
        (member.encode() == text).then_some(member)
    }

    /// Reads MEMBER of a disk; `None` if the disk belongs to no store.
    ///
    /// # Errors
    /// The volume's; or MEMBER is damaged.
    pub(crate) fn read(volume: &dyn Volume) -> Result<Option<Member>> {
        read(volume, FileName::Member, Member::decode, "whose disk this is and a checksum")
    }

    /// Writes MEMBER.
    ///
    /// # Errors
    /// After an error either contents may stand, the old or these.
    pub(crate) fn write(&self, volume: &dyn Volume) -> Result<()> {
        volume.replace(FileName::Member, self.encode().as_bytes())
    }
}

/// Returns true if the rest of a damaged file, DISKS or MEMBER, still has a disk's id. Of a file that the volume does
/// not give, nothing is left. An id is random: no other disk has it.
pub(crate) fn still_names(volume: &dyn Volume, name: FileName, disk: Id) -> bool {
    let left = || -> Result<Vec<u8>> {
        let reader = volume.open(name)?;
        let mut bytes = vec![0; reader.bytes().min(BYTES_MAX) as usize];
        reader.read_at(0, &mut bytes)?;
        Ok(bytes)
    };
    left().is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&disk.to_string()))
}

fn read<T>(
    volume: &dyn Volume,
    name: FileName,
    decode: impl Fn(&str) -> Option<T>,
    expected: &str,
) -> Result<Option<T>> {
    let reader = match volume.open(name) {
        Ok(reader) => reader,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; reader.bytes().min(BYTES_MAX) as usize];
    reader.read_at(0, &mut bytes)?;
    let whole = reader.bytes() <= BYTES_MAX;
    let found = std::str::from_utf8(&bytes).ok().filter(|_| whole).and_then(decode);
    found.map(Some).ok_or_else(|| {
        let found = bytes[..bytes.len().min(120)].escape_ascii();
        Error::corruption(reader.path(), 0, "contents", expected, format!("\"{found}\""))
    })
}

/// Checks, for fuzzers, that a decoded file is written as it was. With `checksum`, the text gets one that is right.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub(crate) fn decode_any(text: String, checksum: bool) {
    let text = if checksum { with_checksum(text) } else { text };
    let home = Home::decode(&text).map(|home| home.encode());
    let member = Member::decode(&text).map(|member| member.encode());
    assert!(home.is_none() || member.is_none(), "it cannot be both");
    assert!(home.or(member).is_none_or(|again| again == text));
}

/// Returns files as they are written, for fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub(crate) fn samples() -> Vec<String> {
    let (store, disk) = (Id(1 << 100 | 7), Id(u128::MAX));
    let decisions =
        ["1795000000 7 6 why", "1795000010 6 7 because"].iter().filter_map(|text| PlacementDecision::parse(text));
    let (at, place) = (Some("/mnt/fast".to_owned()), Some("/var/lib/store".to_owned()));
    let used = Home { store, fast: Fast::Used(disk), at, place, decisions: decisions.collect() };
    let none = Home { fast: Fast::None, at: None, place: None, decisions: Vec::new(), ..used.clone() };
    let adding = Home { fast: Fast::Adding(disk), ..used.clone() };
    vec![used.encode(), none.encode(), adding.encode(), Member { store, disk }.encode()]
}

/// Makes the disk the store's. A crash in between leaves a store that opens with it and without.
///
/// # Errors
/// DISKS or MEMBER could not be written.
pub(crate) fn add(
    capacity: &dyn Volume,
    fast: &dyn Volume,
    Member { store, disk }: Member,
    at: &str,
    place: Option<String>,
) -> Result<Home> {
    let at = Some(at.to_owned());
    let adding = Home { store, fast: Fast::Adding(disk), at, place, decisions: Vec::new() };
    adding.write(capacity)?;
    Member { store, disk }.write(fast)?;
    let used = Home { fast: Fast::Used(disk), ..adding };
    used.write(capacity)?;
    Ok(used)
}

#[cfg(test)]
mod tests;
