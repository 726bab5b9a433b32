//! Disks that compress: what each 4 KB block costs, and what happens when physical space ends before logical space
//! does.
//!
//! # Algorithm
//!
//! 1. A block costs what LZ4 makes of it, and 4096 bytes at most. A block of zeros costs nothing, nor does a discarded
//!    one, whatever reads see of it afterwards.
//! 2. Whenever the bytes of a file or device change, the blocks that were touched are compressed again
//!    ([`Costs::update`]). Their cost is *in use* from now on, in place of their cost before, and counts as *written*.
//! 3. A write that would take more than [`Compression::physical_total`] stores the whole blocks that fit, and fails at
//!    the first one that does not ([`Costs::fitting`]). Overwriting with what compresses as well, discarding and
//!    removing go on.
//!
//! **Simplified.** A volume charges when bytes are handed to the system. Under a file system, a drive sees them later,
//! and a sync fails: [`Fault::DropDirty`](crate::Fault::DropDirty) shows that. Removing a file frees its blocks at
//! once, as with the mount option `discard`.
//!
//! **Invariants.** `used` is the sum of the blocks' costs. A crash image has the costs of its own contents, except that
//! a discarded block that is as before still costs nothing. `written` never falls.

use situ_device::PAGE_BYTES;
use std::io;
use std::ops::Range;

/// zram stores a block as it is, in a whole page, if its compressed form is longer than this.
const CLIFF_BYTES: usize = 3584;

/// The outcome of a write that finds no physical space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// `ENOSPC`, as of a thin volume that is set to report it, and of a drive with a status of its own.
    #[default]
    NoSpace,
    /// `EIO`, as of zram and of most drives: a disk that is full looks like one that is broken.
    Io,
}

/// The compression of a simulated disk. The default has no limit and no cliff.
///
/// ```
/// use situ_device::Device;
/// use situ_sim::{Compression, FaultPlan, SimDevice, SimExecutor};
///
/// let sim = SimExecutor::new(1);
/// let device = SimDevice::new(&sim.env(), 1 << 20, FaultPlan::none(), 1);
/// device.set_compression(Compression::default().total(1 << 18));
/// let space = device.space();
/// assert_eq!((space.logical_total, space.physical_total, space.physical_used), (1 << 20, Some(1 << 18), Some(0)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compression {
    /// Physical space in bytes; `None`: without limit.
    pub physical_total: Option<u64>,
    /// The outcome of a write that finds no physical space.
    pub when_full: WhenFull,
    /// True for the cliff of zram: a block that compresses to more than 3584 bytes costs 4096.
    pub has_cliff: bool,
}

impl Compression {
    /// Returns the same with `bytes` bytes of physical space.
    pub fn total(self, bytes: u64) -> Compression {
        Compression { physical_total: Some(bytes), ..self }
    }

    /// Returns the same, with writes that end with this when they find no physical space.
    pub fn when_full(self, when_full: WhenFull) -> Compression {
        Compression { when_full, ..self }
    }

    /// Returns the same, with zram's cliff.
    pub fn cliff(self) -> Compression {
        Compression { has_cliff: true, ..self }
    }

    /// Returns the outcome of a write that finds no physical space.
    pub(crate) fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(match self.when_full {
            WhenFull::NoSpace => 28,
            WhenFull::Io => 5,
        })
    }

    /// Returns the physical space that is left after `used` bytes.
    pub(crate) fn left(&self, used: u64) -> u64 {
        self.physical_total.map_or(u64::MAX, |total| total.saturating_sub(used))
    }
}

/// Returns the cost of a block of at most 4 KB.
fn cost_of(block: &[u8], has_cliff: bool) -> u64 {
    if block.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut whole = [0; PAGE_BYTES];
    whole[..block.len()].copy_from_slice(block);
    let bytes = lz4_flex::block::compress(&whole).len();
    let is_stored_as_it_is = bytes >= PAGE_BYTES || has_cliff && bytes > CLIFF_BYTES;
    if is_stored_as_it_is { PAGE_BYTES as u64 } else { bytes as u64 }
}

/// Returns block `number` of `bytes`; the last one may be shorter, and one behind the end is empty.
fn block_of(bytes: &[u8], number: usize) -> &[u8] {
    let start = (number * PAGE_BYTES).min(bytes.len());
    &bytes[start..(start + PAGE_BYTES).min(bytes.len())]
}

/// Returns the blocks that a range of bytes touches.
fn blocks(range: Range<usize>) -> Range<usize> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

/// The costs of the blocks of one file, or of a device.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    has_cliff: bool,
    blocks: Vec<u64>,
    used: u64,
    written: u64,
}

impl Costs {
    /// Returns the costs of bytes that are there already; they do not count as written.
    pub(crate) fn of(contents: &[u8], has_cliff: bool) -> Costs {
        let mut costs = Costs { has_cliff, blocks: Vec::new(), used: 0, written: 0 };
        costs.update(contents, 0..contents.len());
        costs.written = 0;
        costs
    }

    /// Returns the costs of these bytes, which a crash has left where `before` were.
    pub(crate) fn after_crash(&self, before: &[u8], contents: &[u8]) -> Costs {
        let mut costs = Costs::of(contents, self.has_cliff);
        for (number, cost) in costs.blocks.iter_mut().enumerate() {
            let is_as_before = block_of(before, number) == block_of(contents, number);
            if let Some(known) = self.blocks.get(number).filter(|_| is_as_before) {
                *cost = *known;
            }
        }
        costs.used = costs.blocks.iter().sum();
        costs.written = self.written;
        costs
    }

    /// Counts all present bytes as written now.
    pub(crate) fn count_as_written(&mut self) {
        self.written = self.used;
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Notes that these bytes of `contents` have been written.
    pub(crate) fn update(&mut self, contents: &[u8], range: Range<usize>) {
        let count = contents.len().div_ceil(PAGE_BYTES).max(self.blocks.len());
        self.blocks.resize(count, 0);
        for number in blocks(range) {
            let cost = cost_of(block_of(contents, number), self.has_cliff);
            self.used = self.used - self.blocks[number] + cost;
            self.written += cost;
            self.blocks[number] = cost;
        }
    }

    /// Notes that the whole blocks within these bytes have been discarded.
    pub(crate) fn discard(&mut self, range: Range<usize>) {
        let whole = range.start.div_ceil(PAGE_BYTES)..range.end / PAGE_BYTES;
        for cost in self.blocks.get_mut(whole).into_iter().flatten() {
            self.used -= std::mem::take(cost);
        }
    }

    /// Returns the number of `bytes` that can be written at `offset` over `contents` before they would take more than
    /// `left`.
    pub(crate) fn fitting(&self, contents: &[u8], offset: usize, bytes: &[u8], left: u64) -> usize {
        let end = offset + bytes.len();
        let mut taken = 0_i64;
        for number in blocks(offset..end) {
            let start = number * PAGE_BYTES;
            let mut block = block_of(contents, number).to_vec();
            let (from, to) = (offset.max(start), end.min(start + PAGE_BYTES));
            block.resize(block.len().max(to - start), 0);
            block[from - start..to - start].copy_from_slice(&bytes[from - offset..to - offset]);
            let before = self.blocks.get(number).copied().unwrap_or(0);
            taken += cost_of(&block, self.has_cliff) as i64 - before as i64;
            if taken > i64::try_from(left).unwrap_or(i64::MAX) {
                return start.max(offset) - offset;
            }
        }
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn noise(bytes: usize, of: usize, seed: u64) -> Vec<u8> {
        let mut block = vec![0; of];
        Rng::new(seed).fill(&mut block[..bytes]);
        block
    }

    #[test]
    fn a_block_costs_about_what_it_holds_and_zram_has_a_cliff() {
        for (random, least, most) in
            [(0, 0, 0), (416, 416, 480), (2048, 2048, 2100), (3500, 3500, 3560), (4096, 4096, 4096)]
        {
            let cost = cost_of(&noise(random, PAGE_BYTES, 7), false);
            assert!((least..=most).contains(&cost), "{random}: {cost}");
        }
        assert!(cost_of(&noise(3700, PAGE_BYTES, 7), false) < 4096);
        assert_eq!(cost_of(&noise(3700, PAGE_BYTES, 7), true), 4096);
        assert!(cost_of(&noise(3500, PAGE_BYTES, 7), true) < 3600);
    }

    /// The sums against a plain recount, over random writes, discards and crashes.
    #[test]
    fn the_sums_are_those_of_the_blocks() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut contents = vec![0; 8 * PAGE_BYTES];
            let mut costs = Costs::of(&contents, false);
            let mut expected = [0; 8];
            let mut written = 0;
            for _ in 0..60 {
                let start = rng.index(contents.len());
                let end = (start + 1 + rng.index(3 * PAGE_BYTES)).min(contents.len());
                if rng.chance(0.3) {
                    costs.discard(start..end);
                    expected[start.div_ceil(PAGE_BYTES)..(end / PAGE_BYTES).max(start.div_ceil(PAGE_BYTES))].fill(0);
                } else {
                    let len = end - start;
                    contents[start..end].copy_from_slice(&noise(rng.index(len + 1), len, rng.next_u64()));
                    costs.update(&contents, start..end);
                    for number in blocks(start..end) {
                        expected[number] = cost_of(block_of(&contents, number), false);
                        written += expected[number];
                    }
                }
                assert_eq!((costs.used(), costs.written()), (expected.iter().sum::<u64>(), written));
            }
            let same = costs.after_crash(&contents, &contents);
            assert_eq!((same.used(), same.written()), (costs.used(), written));
            let other = vec![1; contents.len()];
            assert_eq!(costs.after_crash(&contents, &other).used(), Costs::of(&other, false).used());
        }
    }

    #[test]
    fn a_write_fits_up_to_the_first_block_for_which_nothing_is_left() {
        let contents = vec![0; 4 * PAGE_BYTES];
        let costs = Costs::of(&contents, false);
        let bytes = noise(3 * PAGE_BYTES, 3 * PAGE_BYTES, 1);
        assert_eq!(costs.fitting(&contents, 0, &bytes, 3 * 4096), 3 * PAGE_BYTES);
        assert_eq!(costs.fitting(&contents, 0, &bytes, 3 * 4096 - 1), 2 * PAGE_BYTES);
        assert_eq!(costs.fitting(&contents, 512, &bytes, 4096), PAGE_BYTES - 512);
        assert_eq!(costs.fitting(&contents, 0, &bytes, 0), 0);
        assert_eq!(costs.fitting(&contents, 0, &vec![0; 3 * PAGE_BYTES], 0), 3 * PAGE_BYTES);
        // In place of what is as long, with nothing left.
        let mut full = contents;
        full[..3 * PAGE_BYTES].copy_from_slice(&noise(3 * PAGE_BYTES, 3 * PAGE_BYTES, 2));
        assert_eq!(Costs::of(&full, false).fitting(&full, 0, &bytes, 0), 3 * PAGE_BYTES);
    }
}
