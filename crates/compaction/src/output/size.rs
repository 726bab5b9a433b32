//! The size of the open table, as far as a cut may know.
//!
//! 1. A block that leaves the builder is *pending*: only its plain length is known, its length without compression.
//! 2. When as many plain bytes follow the block as the *lag* has, its stored length is *due*: it is counted now.
//! 3. Pending blocks are counted by the compression of the blocks that were counted last.
//!
//! ```text
//! blocks of the task   | counted: stored lengths |  pending: plain lengths x recent compression  |
//!                                                 └────────────── lag: T / 8 ───────────────────┘
//! ```
//!
//! The lag is an eighth of the target size T. So up to T / 8 plain bytes may be on their way through encoders while the
//! merge goes on. An estimate that knew each stored length at once would stop the merge at each block.
//!
//! **Invariants**: which lengths are counted depends on plain lengths alone, never on which thread was faster. So the
//! same task has the same cuts. Without compression the estimate is exact. With compression the estimate is wrong by at
//! most the lag times the change of the ratio within the lag: T / 8 at most. The first T / 8 plain bytes of a task
//! count in full.
//!
//! What the rule gives with T of 512 KiB (tests `files_are_about_as_large_as_asked_...`):
//!
//! | blocks | files, in percent of T |
//! |---|---|
//! | 100 bytes compress to 20 or more | 96 to 99 |
//! | 100 bytes compress to 6 or 8 | 90 to 93, as the index counts uncompressed |
//! | stretches that compress to a tenth, and stretches that do not compress | 91 to 106 |
//!
//! Rejected: plain bytes times a ratio that the task fixes. A unit with another encoder would make the same cuts. But
//! levels may differ in their compression, options change, and within one task values of one kind follow values of
//! another. Take a task with a ratio of 0.5 whose halves have 0.1 and 0.9: its files would have a fifth of T, or 1.8 T.
//! So a unit with another encoder gives the same blocks, and cuts them by its own lengths.

use std::collections::VecDeque;

/// The lag is one in this many bytes of the target size.
const LAG_PART: u64 = 8;
/// The lag is no longer than this. So blocks of a table without a target size are counted, too.
const LAG_BYTES_MAX: u64 = 8 << 20;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LaggedSize {
    lag_bytes: u64,
    /// Plain lengths of pending blocks, oldest first.
    pending: VecDeque<u64>,
    pending_bytes: u64,
    /// The number of the oldest ones that lie in tables before the open one, and their plain bytes.
    earlier: usize,
    earlier_bytes: u64,
    /// Stored bytes of the open table's blocks that are counted.
    counted_bytes: u64,
    /// Plain and stored bytes of blocks that were counted of late, in whichever table.
    recent_plain: u64,
    recent_stored: u64,
    blocks_bytes: u64,
}

impl LaggedSize {
    pub(super) fn new(target_bytes: u64) -> LaggedSize {
        LaggedSize {
            lag_bytes: (target_bytes / LAG_PART).min(LAG_BYTES_MAX),
            pending: VecDeque::new(),
            pending_bytes: 0,
            earlier: 0,
            earlier_bytes: 0,
            counted_bytes: 0,
            recent_plain: 0,
            recent_stored: 0,
            blocks_bytes: 0,
        }
    }

    /// Returns the bytes that the open table's blocks take in the file, about.
    #[inline]
    pub(super) fn blocks_bytes(&self) -> u64 {
        self.blocks_bytes
    }

    /// All blocks so far lie in tables before the one that is open from now on.
    pub(super) fn begin_table(&mut self) {
        (self.earlier, self.earlier_bytes) = (self.pending.len(), self.pending_bytes);
        self.counted_bytes = 0;
        self.estimate();
    }

    /// The open table has another block.
    pub(super) fn add(&mut self, plain_bytes: u64) {
        self.pending.push_back(plain_bytes);
        self.pending_bytes += plain_bytes;
        self.estimate();
    }

    /// Returns true if the next estimate needs the stored length of the oldest pending block.
    pub(super) fn is_due(&self) -> bool {
        self.pending.front().is_some_and(|oldest| self.pending_bytes - oldest >= self.lag_bytes)
    }

    /// Counts the oldest pending block, which has this length in the file.
    pub(super) fn count(&mut self, stored_bytes: u64) {
        let Some(plain_bytes) = self.pending.pop_front() else { return };
        self.pending_bytes -= plain_bytes;
        if self.earlier > 0 {
            self.earlier -= 1;
            self.earlier_bytes -= plain_bytes;
        } else {
            self.counted_bytes += stored_bytes;
        }
        self.recent_plain += plain_bytes;
        self.recent_stored += stored_bytes;
        if self.recent_plain > self.lag_bytes {
            self.recent_plain /= 2;
            self.recent_stored /= 2;
        }
        self.estimate();
    }

    fn estimate(&mut self) {
        let are_pending = self.earlier <= self.pending.len() && self.earlier_bytes <= self.pending_bytes;
        debug_assert!(are_pending, "blocks of earlier tables are among the pending: {self:?}");
        let pending = self.pending_bytes - self.earlier_bytes;
        let expected = match self.recent_plain {
            0 => pending,
            plain => (u128::from(pending) * u128::from(self.recent_stored) / u128::from(plain)) as u64,
        };
        self.blocks_bytes = self.counted_bytes + expected;
    }
}

#[cfg(test)]
mod tests {
    use super::LaggedSize;

    fn settled(size: &mut LaggedSize, plain: u64, stored: u64) -> u64 {
        size.add(plain);
        let mut counted = 0;
        while size.is_due() {
            size.count(stored);
            counted += 1;
        }
        counted
    }

    #[test]
    fn lengths_are_counted_a_lag_late_and_the_rest_by_the_last_ratio() {
        let mut size = LaggedSize::new(8000);
        for _ in 0..10 {
            assert_eq!(settled(&mut size, 100, 25), 0);
        }
        assert_eq!(size.blocks_bytes(), 1000, "nothing is known yet");
        assert_eq!(settled(&mut size, 100, 25), 1);
        assert_eq!(size.blocks_bytes(), 25 + 1000 / 4);
        // A new table: what is pending belongs to the one before, and tells the ratio only.
        size.begin_table();
        assert_eq!(size.blocks_bytes(), 0);
        for block in 1..=10 {
            assert_eq!(settled(&mut size, 100, 25), 1);
            assert!(size.blocks_bytes().abs_diff(block * 25) <= 2, "rounding only");
        }
        // The ratio changes: until the change is a lag old, the old ratio counts.
        assert_eq!(settled(&mut size, 1000, 25), 10);
        assert!(size.blocks_bytes().abs_diff(10 * 25 + 250) <= 2);
    }

    #[test]
    fn without_compression_the_estimate_is_exact() {
        let mut size = LaggedSize::new(10_000);
        let mut sum = 0;
        for block in 0..5000 {
            let plain = 50 + block * 37 % 91;
            size.add(plain);
            sum += plain;
            while size.is_due() {
                let oldest = size.pending[0];
                size.count(oldest);
            }
            assert_eq!(size.blocks_bytes(), sum);
            if sum > 10_000 {
                size.begin_table();
                sum = 0;
            }
        }
    }

    #[test]
    fn a_target_of_nothing_waits_for_each_block() {
        let mut size = LaggedSize::new(1);
        assert_eq!(settled(&mut size, 100, 30), 1);
        assert_eq!(size.blocks_bytes(), 30);
    }
}
