//! Larson's partial expansions, for the sizing model only.
//!
//! A full expansion doubles the buckets in two partial ones. Buckets `i` and `i + groups` form a group.
//!
//! 1. The first partial expansion gives each group in turn a third bucket, `i + 2 * groups`. A third of each bucket
//!    moves there.
//! 2. The second gives each group a fourth bucket, `i + 3 * groups`. A quarter of each bucket moves there.
//! 3. Then there are twice as many groups of two, and all of it begins again.
//!
//! A bucket that waits for its turn is 3/2 or 4/3 times as full as one that had its turn. With linear hashing it is
//! twice as full. The price: a step reads two or three buckets and writes three or four, to make one.

/// The number of buckets, and the mapping of hashes to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialState {
    /// Groups of two before the first expansion.
    pub base_groups: u64,
    /// The number of times that the count of buckets has doubled.
    pub level: u32,
    /// Buckets that a group has got in this full expansion, where it had its turn: 3 or 4.
    pub growing_to: u64,
    /// The first group that had no turn in this partial expansion.
    pub next: u64,
}

impl PartialState {
    /// Makes a state of `base_groups` groups of two buckets.
    pub fn new(base_groups: u64) -> PartialState {
        PartialState { base_groups, level: 0, growing_to: 3, next: 0 }
    }

    /// Returns the number of groups in this full expansion.
    pub fn groups(&self) -> u64 {
        self.base_groups << self.level
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> u64 {
        (self.growing_to - 1) * self.groups() + self.next
    }

    /// Gives the next group its bucket. Returns the buckets that give entries, and the new one.
    pub fn grow(&mut self) -> (Vec<u64>, u64) {
        let groups = self.groups();
        let gives = (0..self.growing_to - 1).map(|member| self.next + member * groups).collect();
        let new = self.next + (self.growing_to - 1) * groups;
        self.next += 1;
        if self.next == groups {
            self.next = 0;
            match self.growing_to {
                3 => self.growing_to = 4,
                _ => (self.growing_to, self.level) = (3, self.level + 1),
            }
        }
        (gives, new)
    }

    /// Returns the bucket of a hash: all expansions since the beginning, one after another.
    pub fn bucket_of(&self, hash: u64) -> u64 {
        let mut bucket = hash % (2 * self.base_groups);
        for level in 0..=self.level {
            let groups = self.base_groups << level;
            for size in [3, 4] {
                let is_past = level < self.level || size < self.growing_to;
                let had_turn = is_past || (size == self.growing_to && bucket % groups < self.next);
                if had_turn && draw(hash, level, size).is_multiple_of(size) {
                    bucket = bucket % groups + (size - 1) * groups;
                }
            }
        }
        bucket
    }
}

/// Returns a number that looks random: another one for each hash, level and size.
fn draw(hash: u64, level: u32, size: u64) -> u64 {
    let mut mixed = hash ^ (u64::from(level) * 4 + size).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 32)
}
