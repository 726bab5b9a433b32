//! Buckets that are written together, with what their overflow needs, in the order that survives a crash.
//!
//! 0. Entries that snapshots need of the buckets are saved (`snapshots.rs`).
//! 1. New entries of the overflow are made durable.
//! 2. Images of the buckets are made durable, if the device can tear or lose a write.
//! 3. The buckets are written.
//! 4. Entries that leave the overflow are deleted there.
//!
//! **Invariants.** An entry is in its bucket or in the overflow at any time, perhaps in both; then the one in the
//! bucket counts. So a crash between any two steps loses no entry. A bucket gets a mark only when nothing dead is left
//! in its range of the overflow: the dead entries go in step 1.
//! **Failure.** An error in the middle leaves what a crash at this place would leave. The caller fails the store. If
//! the error is want of space, all steps may be done again (`shortage.rs`).

use crate::disk::images::{Room, pages_for};
use crate::disk::overflow::{OverflowChanges, Stored};
use crate::format::address::{State, hash_of};
use crate::format::bucket::{Bucket, BucketWriter, Header, Stamp, Tally};
use crate::format::entry::Entry;
use crate::format::rebuild::{Before, Contents};
use crate::live::core::{Core, Sums};
use crate::live::snapshots::Saves;
use crate::writing::shortage::Patience;
use crate::{Error, Result};
use situ_device::Buffer;
use situ_engine::Durability;
use situ_storage::Error as StorageError;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Rewrites {
    /// The contents of these buckets that snapshots have to keep; saved before anything else.
    pub(crate) saves: Saves,
    images: Vec<(u64, Buffer)>,
    additions: OverflowChanges,
    removals: OverflowChanges,
    sums: Sums,
    /// The part of it in buckets that a check under way has passed.
    behind: Sums,
    /// The buckets that step 3 could not write; none if it has not begun.
    unwritten: Option<Vec<(u64, Buffer)>>,
}

/// The parameters of the new contents of a bucket.
pub(crate) struct Place {
    pub(crate) bucket: u64,
    pub(crate) sequence: u64,
    pub(crate) epoch: u32,
    /// The contents of the bucket when the epoch began; none: those that it has now.
    pub(crate) before: Option<Tally>,
    /// The part of the totals that the bucket has so far.
    pub(crate) counted: Tally,
}

impl Rewrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Returns the number of buckets that are written.
    pub(crate) fn len(&self) -> usize {
        self.images.len()
    }

    /// Returns the buckets that are written, for callers that write them in other steps.
    pub(crate) fn take_images(&mut self) -> Vec<(u64, Buffer)> {
        std::mem::take(&mut self.images)
    }

    /// Subtracts `tally` of a bucket that goes from the totals.
    pub(crate) fn uncount(&mut self, core: &Core, bucket: u64, tally: &Tally) {
        self.count(core, bucket, &Tally::default(), tally);
    }

    /// Notes that a bucket holds `now` instead of `before`.
    pub(crate) fn count(&mut self, core: &Core, bucket: u64, now: &Tally, before: &Tally) {
        let mut change = Sums::default();
        change.plus(now);
        change.minus(before);
        self.sums.add(&change);
        if core.check.has_passed(bucket) {
            self.behind.add(&change);
        }
    }

    /// Takes the buckets that step 3 of a failed batch could not write; none if step 3 had not begun.
    pub(crate) fn take_unwritten(&mut self) -> Option<Vec<(u64, Buffer)>> {
        self.unwritten.take()
    }

    /// Adds the changes of these buckets to the totals.
    pub(crate) fn add_to_totals(&self, core: &Core) {
        core.add_to_totals(&self.sums);
        core.check.changed(&self.behind);
    }

    /// Adds a bucket with its new contents. `dead` lies in its range of the overflow and counts for nothing.
    pub(crate) fn add(&mut self, core: &Core, place: &Place, contents: &Contents<'_>, dead: &Stored) -> Result<Header> {
        let hash = |key: &[u8]| hash_of(key, core.seed);
        if contents.overflow_entries > 0 {
            for stored in dead {
                let (hash, entry) = core.overflow.decode(stored)?;
                self.additions.delete(hash, entry.key)?;
            }
        }
        for entry in &contents.overflow_puts {
            self.additions.put(hash(entry.key), entry)?;
        }
        for key in &contents.overflow_deletes {
            self.removals.delete(hash(key), key)?;
        }
        let mut block = core.io.buffer();
        let header = write_block(core, place, contents, &mut block);
        self.count(core, place.bucket, &header.now, &place.counted);
        self.images.push((place.bucket, block));
        Ok(header)
    }

    /// Does step 0, for snapshots.
    pub(crate) fn save(&mut self, core: &Core) -> Result<()> {
        core.overflow.save(std::mem::take(&mut self.saves))
    }

    /// Does step 1.
    pub(crate) fn add_to_overflow(&mut self, core: &Core) -> Result<()> {
        // Also what only deletes dead entries: the bucket gets a mark, under which they would count again.
        core.overflow.write(std::mem::take(&mut self.additions), Durability::Synced)
    }

    /// Does steps 2 and 3, in the room for images that the caller has reserved.
    pub(crate) fn write_buckets(&mut self, core: &Core, room: Room<'_>, patience: Patience) -> Result<()> {
        if let Some(images) = core.images.as_ref().filter(|_| !self.images.is_empty()) {
            let placed = images.place(&self.images);
            core.patiently(patience, || images.write(&placed))?;
        }
        drop(room);
        let mut left = self.take_images();
        self.unwritten = Some(Vec::new());
        core.patiently(patience, || {
            let written = core.io.write_many(std::mem::take(&mut left));
            written.map_err(|failure| {
                if patience == Patience::UntilSpace {
                    // Readers get what is to be there, not what the failure has left.
                    failure.unwritten.iter().for_each(|(bucket, block)| core.io.shadow(*bucket, block));
                    left = failure.unwritten;
                } else {
                    self.unwritten = Some(failure.unwritten);
                }
                failure.error
            })
        })
    }

    /// Does step 4.
    pub(crate) fn remove_from_overflow(&mut self, core: &Core, patience: Patience) -> Result<()> {
        let removals = std::mem::take(&mut self.removals);
        if patience == Patience::None {
            return core.overflow.write(removals, Durability::Buffered);
        }
        core.patiently(patience, || core.overflow.write(removals.clone(), Durability::Buffered))
    }

    /// Does all steps. Patience begins with step 3.
    pub(crate) fn commit(&mut self, core: &Core, room: Room<'_>, patience: Patience) -> Result<()> {
        assert!(pages_for(self.len()) <= room.pages() || core.images.is_none(), "room for images is reserved");
        self.save(core)?;
        self.add_to_overflow(core)?;
        self.write_buckets(core, room, patience)?;
        self.remove_from_overflow(core, patience)?;
        self.add_to_totals(core);
        Ok(())
    }
}

fn write_block(core: &Core, place: &Place, contents: &Contents<'_>, block: &mut [u8]) -> Header {
    let Place { bucket, sequence, epoch, before, .. } = *place;
    let mut writer = BucketWriter::new(block);
    for entry in &contents.inline {
        assert!(writer.push(entry), "what is chosen for a bucket fits into it");
    }
    let now = Tally {
        entries: contents.inline.len() as u16,
        bytes: writer.used_bytes() as u16,
        overflow_entries: contents.overflow_entries,
        overflow_bytes: contents.overflow_bytes,
    };
    let stamp = Stamp {
        sequence,
        epoch,
        before: before.unwrap_or(now),
        overflow_entries: contents.overflow_entries,
        overflow_bytes: contents.overflow_bytes,
    };
    let header = writer.finish(&core.codec, bucket, &stamp);
    assert_eq!(header.now, now, "a bucket says what was chosen for it");
    header
}

/// Decodes what was read of the overflow.
pub(crate) fn decode_all<'a>(core: &Core, stored: &'a Stored) -> Result<Vec<(u64, Entry<'a>)>> {
    stored.iter().map(|pair| core.overflow.decode(pair)).collect()
}

/// Returns the entries of a bucket and of its overflow, if both hold no others.
///
/// # Errors
/// An entry belongs to another bucket.
pub(crate) fn own_entries<'a>(
    core: &Core,
    number: u64,
    state: &State,
    bucket: &Bucket<'a>,
    overflow: &[(u64, Entry<'a>)],
) -> Result<Before<'a>> {
    let mut inline = Vec::with_capacity(usize::from(bucket.header().now.entries));
    inline.extend(bucket.entries());
    for entry in &inline {
        let home = state.bucket_of(hash_of(entry.key, core.seed));
        if home != number {
            let expected = format!("entries of bucket {number} at {state}");
            let found = format!("an entry of bucket {home}");
            let offset = crate::format::space::bucket_offset(number);
            return Err(StorageError::corruption(&core.io.path, offset, "bucket", expected, found).into());
        }
    }
    let overflow = overflow.iter().map(|(_, entry)| *entry).collect();
    Ok(Before { inline, overflow, is_untidy: false })
}

/// Returns the entries of a bucket and of its overflow; entries of other buckets are left out.
pub(crate) fn entries_of<'a>(
    core: &Core,
    number: u64,
    state: &State,
    bucket: &Bucket<'a>,
    overflow: &[(u64, Entry<'a>)],
) -> Before<'a> {
    let is_own = |hash: u64| state.bucket_of(hash) == number;
    let inline: Vec<Entry<'a>> = bucket.entries().filter(|entry| is_own(hash_of(entry.key, core.seed))).collect();
    let overflow: Vec<Entry<'a>> = overflow.iter().filter(|(hash, _)| is_own(*hash)).map(|(_, entry)| *entry).collect();
    let now = &bucket.header().now;
    let is_untidy = inline.len() != usize::from(now.entries) || overflow.len() != now.overflow_entries as usize;
    Before { inline, overflow, is_untidy }
}

impl Core {
    /// Returns the overflow of a bucket that has a mark; nothing for others.
    pub(crate) fn marked_overflow(&self, number: u64, state: &State, header: &Header) -> Result<Stored> {
        if header.now.overflow_entries == 0 {
            return Ok(Stored::new());
        }
        self.overflow.of_bucket(number, state)
    }

    /// Returns the dead entries in the overflow of a bucket that has no mark, if the bucket gets one now.
    pub(crate) fn dead_overflow(
        &self,
        number: u64,
        state: &State,
        header: &Header,
        contents: &Contents<'_>,
    ) -> Result<Stored> {
        if header.now.overflow_entries > 0 || contents.overflow_entries == 0 {
            return Ok(Stored::new());
        }
        self.overflow.of_bucket(number, state)
    }

    /// Takes room for the images of `buckets` buckets. With the gate closed, or before workers run.
    pub(crate) fn reserve_images(&self, buckets: usize) -> Result<Room<'_>> {
        let Some(images) = &self.images else { return Ok(Room::none()) };
        let room = images.reserve(pages_for(buckets));
        room.ok_or_else(|| Error::Invalid(format!("a bug: no room for the images of {buckets} buckets")))
    }
}
