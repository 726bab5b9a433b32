//! Making a damaged hash store usable again, and saying what is lost.
//!
//! 1. The overflow is repaired as any ordered store is.
//! 2. The store is opened. Damaged records of the log are left out, and what follows them is applied.
//! 3. Before anything is applied, every bucket is read. A damaged one becomes empty, and keeps what it has in the
//!    overflow. The contents of its block are set aside in the home. A bucket whose count of entries in the overflow is
//!    wrong gets the right one.
//! 4. The totals are recounted.
//! 5. When the store is open, all values in the value log are read. An entry whose value is damaged is deleted
//!    (`verify.rs`).
//!
//! **Invariants.** After a repair the store opens, and a check finds it sound. Nothing that is sound is lost. An older
//! version of a lost entry may be back if the overflow had one.
//! **Limits.** The keys that were in a lost bucket are unknown. A bucket space that is newer than its home is left as
//! it is, and a superblock without a sound slot cannot be repaired.
//! **Failure.** A repair that was stopped is to be repeated.
//! **Cost.** All buckets are read three times, and all large values once.

use crate::disk::io::BUCKETS_MAX;
use crate::format::address::State;
use crate::format::bucket::{Stamp, Tally};
use crate::format::entry::{Entry, overflow_bytes};
use crate::format::superblock::Totals;
use crate::live::core::{Core, Sums};
use crate::live::rewrite::decode_all;
use crate::{Error, Result};
use situ_device::Buffer;
use situ_storage::{Error as StorageError, FileName, Volume};

/// Things of one kind that a report names; more are counted.
const NAMED_MAX: usize = 64;

/// Blocks of damaged buckets that are set aside; what more there is is lost.
const SET_ASIDE_MAX: usize = 4096;

/// The damage that a repair has found, and the losses.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct HashRepair {
    /// Buckets that were read.
    pub buckets: u64,
    /// Buckets that were damaged. All of their entries are lost, but for those in the overflow.
    pub lost_bucket_count: u64,
    /// The first of these.
    pub lost_buckets: Vec<u64>,
    /// The number of lost entries: the count of the superblock and the log, less the entries that are there. It is
    /// exact if the log is sound.
    pub lost_entries: u64,
    /// Keys whose value in the value log was damaged: they are deleted.
    pub lost_keys: Vec<Vec<u8>>,
    /// Damaged records of the log. The writes in them are lost.
    pub lost_log_records: u64,
    /// The file in the home that has the blocks of the damaged buckets, one behind the other.
    pub set_aside: Option<String>,
    /// The report of the repair of the overflow, if it was damaged.
    pub overflow: Option<Box<situ_engine::RepairReport>>,
    /// The first damages, in words.
    pub damages: Vec<String>,
}

impl HashRepair {
    /// Returns true if nothing was damaged.
    pub fn was_sound(&self) -> bool {
        self.damages.is_empty() && self.overflow.is_none()
    }

    /// Returns true if nothing is lost.
    pub fn nothing_lost(&self) -> bool {
        let overflow_lost = self.overflow.as_ref().is_some_and(|report| !report.nothing_lost());
        self.lost_bucket_count == 0
            && self.lost_entries == 0
            && self.lost_keys.is_empty()
            && self.lost_log_records == 0
            && !overflow_lost
    }

    pub(crate) fn damage(&mut self, damage: impl std::fmt::Display) {
        if self.damages.len() < NAMED_MAX {
            self.damages.push(damage.to_string());
        }
    }

    /// Notes that a damaged record of the log was left out.
    pub(crate) fn lose_log_record(&mut self, damage: impl std::fmt::Display) {
        self.lost_log_records += 1;
        self.damage(damage);
    }

    fn lose_bucket(&mut self, number: u64, damage: &Error) {
        self.lost_bucket_count += 1;
        if self.lost_buckets.len() < NAMED_MAX {
            self.lost_buckets.push(number);
        }
        self.damage(damage);
    }
}

/// Returns true if a block cannot be had, or is not what was written.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Storage(StorageError::Corruption(_) | StorageError::Io { .. }))
}

/// The block of a damaged bucket, or zeros if it cannot be read.
struct Lost {
    number: u64,
    block: Option<Buffer>,
}

impl Core {
    /// Does step 3. Workers do not run yet.
    pub(crate) fn mend_buckets(&self, home: &dyn Volume, report: &mut HashRepair) -> Result<()> {
        let state = self.state();
        let mut lost: Vec<Lost> = Vec::new();
        let mut mended = Vec::new();
        self.each_block(&state, &mut |number, block| {
            report.buckets += 1;
            let opened = block.as_ref().map_err(Error::clone).and_then(|block| self.codec.open(number, block));
            let bucket = match opened {
                Ok(bucket) => bucket,
                Err(error) if is_damage(&error) => {
                    report.lose_bucket(number, &error);
                    lost.push(Lost { number, block: block.ok().filter(|_| lost.len() < SET_ASIDE_MAX) });
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let header = *bucket.header();
            if header.now.overflow_entries == 0 {
                return Ok(());
            }
            let held = self.overflow_tally(number, &state, |key| bucket.find(key).is_some())?;
            if held.overflow_entries != header.now.overflow_entries || held.overflow_bytes != header.now.overflow_bytes
            {
                let (marked, found) = (header.now.overflow_entries, held.overflow_entries);
                report.damage(format_args!("bucket {number} says {marked} entries of it overflow, and {found} do"));
                let place = Mended { number, sequence: header.sequence, epoch: header.epoch, held };
                mended.push(place.block(self, bucket.entries()));
            }
            Ok(())
        })?;
        self.set_aside(home, &lost, report)?;
        for Lost { number, .. } in &lost {
            let held = self.overflow_tally(*number, &state, |_| false)?;
            let (sequence, epoch) = (self.superblock.current().sequence, self.epoch());
            mended.push(Mended { number: *number, sequence, epoch, held }.block(self, std::iter::empty()));
        }
        if mended.is_empty() {
            return Ok(());
        }
        self.io.write_many(mended)?;
        self.io.flush()
    }

    /// Does step 4. Returns the former totals. Workers do not run yet, and all buckets are sound.
    pub(crate) fn count_anew(&self) -> Result<Totals> {
        let before = self.totals();
        let mut sums = Sums::default();
        self.each_block(&self.state(), &mut |number, block| {
            sums.plus(&self.codec.open(number, &block?)?.header().now);
            Ok(())
        })?;
        self.set_totals(sums);
        Ok(before)
    }

    /// Hands out the block of each bucket. One that cannot be read keeps no other one from being read.
    fn each_block(&self, state: &State, takes: &mut dyn FnMut(u64, Result<Buffer>) -> Result<()>) -> Result<()> {
        let mut next = 0;
        while next < state.buckets() {
            let numbers: Vec<u64> = (next..state.buckets()).take(BUCKETS_MAX).collect();
            next += numbers.len() as u64;
            match self.io.read_many(&numbers) {
                Ok(blocks) => numbers.iter().zip(blocks).try_for_each(|(number, block)| takes(*number, Ok(block)))?,
                Err(_) => {
                    for number in numbers {
                        let alone = self.io.read_many(&[number]).map(|mut blocks| blocks.remove(0));
                        takes(number, alone)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the sums of a bucket's overflow, apart from entries that the bucket has itself.
    fn overflow_tally(&self, number: u64, state: &State, is_inline: impl Fn(&[u8]) -> bool) -> Result<Tally> {
        let stored = self.overflow.of_bucket(number, state)?;
        let mut tally = Tally::default();
        for (_, entry) in decode_all(self, &stored)?.iter().filter(|(_, entry)| !is_inline(entry.key)) {
            tally.overflow_entries += 1;
            tally.overflow_bytes += overflow_bytes(entry) as u32;
        }
        Ok(tally)
    }

    /// Puts the blocks of damaged buckets into a file of the home.
    fn set_aside(&self, home: &dyn Volume, lost: &[Lost], report: &mut HashRepair) -> Result<()> {
        let blocks: Vec<&Buffer> = lost.iter().filter_map(|lost| lost.block.as_ref()).collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let numbers = home.list()?.into_iter().filter_map(|file| file.name.number());
        let name = FileName::Damaged(numbers.max().unwrap_or(0) + 1);
        let bytes: Vec<u8> = blocks.into_iter().flat_map(|block| block.iter().copied()).collect();
        home.replace(name, &bytes)?;
        report.set_aside = Some(format!("{}/{name}", home.location()));
        Ok(())
    }
}

/// A bucket as a repair writes it.
struct Mended {
    number: u64,
    sequence: u64,
    epoch: u32,
    /// The sums of its overflow.
    held: Tally,
}

impl Mended {
    fn block<'e>(&self, core: &Core, entries: impl Iterator<Item = Entry<'e>>) -> (u64, Buffer) {
        let mut block = core.io.buffer();
        let Tally { overflow_entries, overflow_bytes, .. } = self.held;
        let (sequence, epoch, before) = (self.sequence, self.epoch, Tally::default());
        let stamp = Stamp { sequence, epoch, before, overflow_entries, overflow_bytes };
        core.codec.encode(self.number, &stamp, entries, &mut block);
        (self.number, block)
    }
}
