//! The next contents of one bucket: what lies in it, what lies in its overflow, and how the overflow changes.
//!
//! Pure: the caller has read the bucket and, if it is marked, its overflow, and applies what comes out.
//!
//! 1. Entries of the bucket come first, then those of the overflow. If a key is in both, the one in the bucket counts.
//!    The one in the overflow is what a crash has left of an entry that went back.
//! 2. Changes are applied in the order of their sequence numbers. Entries that have expired go.
//! 3. Entries take their places in this order, as long as they fit: those of the bucket, those of the overflow, new
//!    ones. So entries of the overflow return as soon as there is space, and an entry of a bucket is rarely pushed out.
//!
//! **Invariants.** Applying the same changes twice gives the same keys with the same values. Each key has one place.
//! **Rejected.** Choosing what to keep by use: the store does not count reads of entries, and less than one in a
//! hundred overflows.

use crate::format::bucket::USABLE_BYTES;
use crate::format::entry::{Entry, overflow_bytes};

/// Room for entries that changes bring, so that the usual bucket needs no more.
const NEW_ENTRIES: usize = 4;

/// A change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Put(Entry<'a>),
    Delete(&'a [u8]),
}

impl<'a> Change<'a> {
    pub(crate) fn key(&self) -> &'a [u8] {
        match self {
            Change::Put(entry) => entry.key,
            Change::Delete(key) => key,
        }
    }
}

/// The origin of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Bucket,
    Overflow,
    New,
}

struct Slot<'a> {
    entry: Entry<'a>,
    origin: Origin,
    is_changed: bool,
}

/// The next contents of a bucket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents<'a> {
    /// Entries in the bucket.
    pub(crate) inline: Vec<Entry<'a>>,
    /// Entries in the overflow, and their bytes.
    pub(crate) overflow_entries: u32,
    pub(crate) overflow_bytes: u32,
    /// Entries in the overflow, as before.
    pub(crate) overflow_kept: Vec<Entry<'a>>,
    /// Entries that the overflow has to get before the bucket is written.
    pub(crate) overflow_puts: Vec<Entry<'a>>,
    /// Keys that go out of the overflow when the bucket is written.
    pub(crate) overflow_deletes: Vec<&'a [u8]>,
    /// True if the bucket is to be written.
    pub(crate) is_changed: bool,
}

impl<'a> Contents<'a> {
    /// Returns all entries, in the bucket and in the overflow.
    pub(crate) fn all(&self) -> impl Iterator<Item = Entry<'a>> {
        self.inline.iter().chain(&self.overflow_kept).chain(&self.overflow_puts).copied()
    }
}

/// The entries of a bucket and of its overflow, without entries of other buckets and without dead ones.
#[derive(Clone)]
pub(crate) struct Before<'a> {
    pub(crate) inline: Vec<Entry<'a>>,
    pub(crate) overflow: Vec<Entry<'a>>,
    /// Entries of other buckets were left out, or the mark does not say what the overflow holds.
    pub(crate) is_untidy: bool,
}

/// See the module's documentation.
pub(crate) fn rebuild<'a>(before: Before<'a>, changes: impl Iterator<Item = Change<'a>>, now_ms: u64) -> Contents<'a> {
    let mut contents = Contents { is_changed: before.is_untidy, ..Contents::default() };
    let mut in_overflow: Vec<&'a [u8]> = Vec::with_capacity(before.overflow.len());
    let slot = |entry, origin| Slot { entry, origin, is_changed: false };
    let mut slots: Vec<Slot<'a>> = Vec::with_capacity(before.inline.len() + before.overflow.len() + NEW_ENTRIES);
    slots.extend(before.inline.into_iter().map(|entry| slot(entry, Origin::Bucket)));
    for entry in before.overflow {
        in_overflow.push(entry.key);
        if slots.iter().all(|other| other.entry.key != entry.key) {
            slots.push(slot(entry, Origin::Overflow));
        }
    }
    for change in changes {
        contents.is_changed |= apply(&mut slots, &change);
    }
    let alive = slots.len();
    slots.retain(|slot| !slot.entry.is_expired(now_ms));
    contents.is_changed |= slots.len() < alive;
    place(slots, &in_overflow, &mut contents);
    contents
}

/// Applies one change. True if something is different.
fn apply<'a>(slots: &mut Vec<Slot<'a>>, change: &Change<'a>) -> bool {
    let at = slots.iter().position(|slot| slot.entry.key == change.key());
    match (change, at) {
        (Change::Put(entry), Some(at)) => {
            slots[at].entry = *entry;
            slots[at].is_changed = true;
        }
        (Change::Put(entry), None) => slots.push(Slot { entry: *entry, origin: Origin::New, is_changed: true }),
        (Change::Delete(_), Some(at)) => drop(slots.remove(at)),
        (Change::Delete(_), None) => return false,
    }
    true
}

/// Gives each entry its place.
fn place<'a>(slots: Vec<Slot<'a>>, in_overflow: &[&'a [u8]], contents: &mut Contents<'a>) {
    let mut room = USABLE_BYTES;
    let mut stays: Vec<&[u8]> = Vec::new();
    contents.inline.reserve_exact(slots.len());
    for Slot { entry, origin, is_changed } in slots {
        if entry.encoded_bytes() <= room {
            room -= entry.encoded_bytes();
            contents.is_changed |= origin != Origin::Bucket;
            contents.inline.push(entry);
            continue;
        }
        contents.overflow_entries += 1;
        contents.overflow_bytes += overflow_bytes(&entry) as u32;
        contents.is_changed |= origin == Origin::Bucket;
        stays.push(entry.key);
        if origin != Origin::Overflow || is_changed {
            contents.overflow_puts.push(entry);
        } else {
            contents.overflow_kept.push(entry);
        }
    }
    contents.overflow_deletes.extend(in_overflow.iter().filter(|key| !stays.contains(key)));
}

#[cfg(test)]
mod tests;
