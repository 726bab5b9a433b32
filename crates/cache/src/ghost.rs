//! Ghosts: keys that have lately gone from the small queue, in two bytes each.
//!
//! A key that comes back while its ghost is there was evicted too early. It goes to the main queue at once (S3-FIFO,
//! Yang et al., SOSP'23).
//!
//! A ghost is a tag of 11 bits and a time of 5 bits. Time goes on by one for each sixteenth of the capacity that has
//! been added. A ghost is there for sixteen such steps, so the table works as a queue of that capacity. A hash names a
//! line of 32 ghosts; a new one takes the place of the oldest.
//!
//! **Errors.** A key that has no ghost finds one in at most 32 of 2048 cases, fewer as ghosts are old. It then goes to
//! the main queue, and leaves it again unless it is read. A crowded line forgets ghosts early.
//!
//! **Threads.** Any. Lines are locked for a moment, a mutex for many of them.

use crate::index::KeyHash;
use situ_base::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const LINE: usize = 32;
const TIME_BITS: u32 = 5;
/// The lifetime of a ghost, in steps of time.
const LIFE: u16 = 16;
const SHARDS: usize = 64;

/// The table of ghosts: see the module.
pub(crate) struct Ghosts {
    /// Lines of ghosts, spread over shards. 0 is none.
    shards: Box<[Mutex<Vec<u16>>]>,
    lines: u64,
    added: AtomicU64,
    step: u64,
}

impl Ghosts {
    /// Makes a table of about `capacity` ghosts.
    pub(crate) fn new(capacity: usize) -> Ghosts {
        let lines = capacity.div_ceil(LINE).next_multiple_of(SHARDS).max(SHARDS);
        let in_shard = lines / SHARDS * LINE;
        Ghosts {
            shards: (0..SHARDS).map(|_| Mutex::new(vec![0; in_shard])).collect(),
            lines: lines as u64,
            added: AtomicU64::new(0),
            step: ((lines * LINE) as u64 / u64::from(LIFE)).max(1),
        }
    }

    /// Returns the memory that they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lines as usize * LINE * size_of::<u16>()
    }

    /// Notes that the key of this hash has gone.
    pub(crate) fn add(&self, hash: KeyHash) {
        let time = (self.added.fetch_add(1, Ordering::Relaxed) / self.step) as u16 & TIME_MASK;
        self.with_line(hash, |line, tag| {
            let age = |ghost: u16| if ghost == 0 { u16::MAX } else { age_of(ghost, time) };
            let same = line.iter().position(|ghost| *ghost != 0 && ghost >> TIME_BITS == tag);
            let oldest = || (0..line.len()).max_by_key(|at| age(line[*at]));
            if let Some(at) = same.or_else(oldest) {
                line[at] = tag << TIME_BITS | time;
            }
        });
    }

    /// Returns true if the key of this hash has lately gone. Its ghost goes, too.
    pub(crate) fn take(&self, hash: KeyHash) -> bool {
        let time = (self.added.load(Ordering::Relaxed) / self.step) as u16 & TIME_MASK;
        self.with_line(hash, |line, tag| {
            let found = line.iter_mut().find(|ghost| **ghost != 0 && **ghost >> TIME_BITS == tag);
            found.is_some_and(|ghost| age_of(std::mem::take(ghost), time) <= LIFE)
        })
    }

    fn with_line<T>(&self, hash: KeyHash, with: impl FnOnce(&mut [u16], u16) -> T) -> T {
        let all = hash.mixed();
        let line = ((u128::from(all) * u128::from(self.lines)) >> 64) as usize;
        // No tag is 0: a ghost of tag and time 0 would be none.
        let tag = (all as u16 >> TIME_BITS).max(1);
        let mut shard = lock(&self.shards[line % SHARDS]);
        let start = line / SHARDS * LINE;
        with(&mut shard[start..start + LINE], tag)
    }
}

const TIME_MASK: u16 = (1 << TIME_BITS) - 1;

fn age_of(ghost: u16, time: u16) -> u16 {
    time.wrapping_sub(ghost) & TIME_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Index;

    #[test]
    fn a_ghost_is_there_for_about_the_capacity_and_once() {
        let index = Index::new(1 << 16, 1);
        let hash = |number: u32| index.hash(&number.to_le_bytes());
        let ghosts = Ghosts::new(64_000);
        (0..200_000).for_each(|number| ghosts.add(hash(number)));
        let found = |range: std::ops::Range<u32>| {
            let count = range.len();
            range.filter(|number| ghosts.take(hash(*number))).count() as f64 / count as f64
        };
        let young = found(170_000..200_000);
        assert!(young > 0.95, "{young} of the young ones");
        let gone = found(0..100_000);
        assert!(gone < 0.05, "{gone} of those that have gone");
        let again = found(170_000..200_000);
        assert!(again < 0.05, "{again} were there twice");
        assert!(ghosts.bytes() <= 2 * 64_000 + 4096);
    }

    #[test]
    fn a_key_that_has_not_gone_has_no_ghost() {
        let index = Index::new(1 << 16, 1);
        let ghosts = Ghosts::new(64_000);
        (0..200_000u32).for_each(|number| ghosts.add(index.hash(&number.to_le_bytes())));
        let wrong = (1_000_000..1_100_000u32).filter(|number| ghosts.take(index.hash(&number.to_le_bytes()))).count();
        assert!(wrong < 2000, "{wrong} of 100000");
    }
}
