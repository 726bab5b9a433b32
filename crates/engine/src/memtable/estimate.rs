//! An estimate of the entries of a memtable in a key range, without a count: the higher levels of the skiplist are
//! samples.
//!
//! Every second node of a level is on the next one. So the nodes of the range are counted on the highest level on which
//! there are [`SAMPLE_NODES`] of them, and each stands for `2^level` entries. A range too small for that is counted on
//! the lowest level, exactly. Logarithmic time.

use super::node::Target;
use super::skiplist::SkipList;

/// The number of nodes in a sample. With this many, the estimate is mostly within an eighth.
const SAMPLE_NODES: usize = 64;

impl SkipList {
    /// Returns the approximate number of entries at or behind `begin` and before `end`.
    pub(super) fn estimate_entries(&self, begin: &Target<'_>, end: &Target<'_>) -> usize {
        let mut before = self.head();
        let mut after = None;
        for level in (0..self.height()).rev() {
            (before, after) = self.walk(begin, before, level, after);
            let mut count = 0;
            let mut next = after;
            while let Some(node) = next.filter(|node| node.is_before(end)) {
                count += 1;
                next = node.next(level);
            }
            if count >= SAMPLE_NODES || level == 0 {
                return count << level;
            }
        }
        0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::memtable::Memtable;
    use situ_table::{KeyKind, Trailer};

    #[test]
    fn small_ranges_are_exact_and_large_ones_nearly() {
        let memtable = Memtable::new(1, 7, 8 << 20, &std::sync::Arc::default());
        let key = |n: u32| n.wrapping_mul(0x9e37_79b1).to_be_bytes();
        let total: u32 = if cfg!(miri) { 300 } else { 50_000 };
        for n in 0..total {
            memtable.insert(&key(n), Trailer::new(u64::from(n) + 1, KeyKind::Put), &[7; 100]);
        }
        let mut keys: Vec<_> = (0..total).map(key).collect();
        keys.sort();
        let whole = memtable.used_bytes() as f64;
        for (from, to) in [(0, 0), (5, 6), (10, 42), (0, 300), (100, 5000), (20_000, 50_000), (0, 49_999)] {
            if to >= keys.len() && to != total as usize {
                continue;
            }
            let end = keys.get(to).map_or(vec![0xff; 5], |key| key.to_vec());
            let found = memtable.approximate_bytes(&keys[from], &end) as f64;
            let expected = whole * (to - from) as f64 / f64::from(total);
            let tolerance = if to - from < 64 { 0.02 } else { 0.4 };
            assert!((found - expected).abs() <= expected * tolerance + 1.0, "{from}..{to}: {found} for {expected}");
        }
        assert_eq!(memtable.approximate_bytes(b"b", b"a"), 0);
        assert_eq!(Memtable::new(2, 7, 1 << 20, &std::sync::Arc::default()).approximate_bytes(b"a", b"b"), 0);
    }
}
