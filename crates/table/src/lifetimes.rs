//! A histogram of the times at which a table's entries die. It tells when a rewrite of the table is worth its cost.
//!
//! An entry may die at a time, or together with all entries whose *stamp* is below a mark. A stamp is any number that
//! grows from entry to entry. A table counts its entries by their time to live when the table is written. A class spans
//! an eighth of a power of two seconds, and records its latest death. A class that is only partly dead counts as alive;
//! all other counts are exact.
//!
//! **The clock** of an expiry is the clock by which the keyspace's filter decides. It counts seconds since 1970, and
//! may differ from the wall clock: memcached items expire by the store's own clock
//! (`crates/base/src/store_clock.rs`). Callers pass the time of that clock. If it is far from the wall clock, classes
//! are wide, and a table is rewritten later.

use std::collections::BTreeMap;

/// Classes for each power of two.
const PARTS: u64 = 8;
/// Encoded size of the stamps: their number, the lowest, the highest.
const STAMPS_BYTES: usize = 24;
/// Encoded size of a class: the class, its entries, its latest death.
const CLASS_BYTES: usize = 18;

/// Encoded size of the property's name, and of the lengths of name and value.
const NAME_BYTES: usize = 14;

/// The lifetime of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// The second of the filter's clock from which the entry is dead; `None` if it does not expire.
    pub expires_unix_s: Option<u64>,
    /// The entry's stamp. It is dead once the mark is above it.
    pub stamp: Option<u64>,
}

/// The bounds below which entries are dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadBefore {
    /// Entries that have expired by this second of the filter's clock are dead.
    pub unix_s: u64,
    /// Entries with smaller stamps are dead.
    pub stamp: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Class {
    entries: u64,
    last_unix_s: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stamps {
    entries: u64,
    lowest: u64,
    highest: u64,
}

/// The lifetimes of a table's entries. Empty in tables of older programs, and if no filter knows lifetimes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lifetimes {
    classes: BTreeMap<u16, Class>,
    stamps: Stamps,
}

/// Returns the class of entries that live for `seconds`.
fn class_of(seconds: u64) -> u16 {
    let power = u64::from((seconds / PARTS).checked_ilog2().map_or(0, |power| power + 1));
    let part = if power == 0 { seconds } else { (seconds >> (power - 1)) - PARTS };
    (power * PARTS + part) as u16
}

impl Lifetimes {
    /// Counts an entry of a table that is written at `created_unix_s`.
    pub fn add(&mut self, created_unix_s: u64, lifetime: &Lifetime) {
        if let Some(expires) = lifetime.expires_unix_s {
            let class = self.classes.entry(class_of(expires.saturating_sub(created_unix_s))).or_default();
            class.entries += 1;
            class.last_unix_s = class.last_unix_s.max(expires);
        }
        if let Some(stamp) = lifetime.stamp {
            let Stamps { entries, lowest, highest } = &mut self.stamps;
            *lowest = if *entries == 0 { stamp } else { stamp.min(*lowest) };
            *highest = stamp.max(*highest);
            *entries += 1;
        }
    }

    /// Returns true if no entry was counted.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty() && self.stamps.entries == 0
    }

    /// Estimates the number of dead entries. Only the lowest and highest stamps are known; the others are assumed to be
    /// spread evenly.
    pub fn dead(&self, before: &DeadBefore) -> f64 {
        let is_dead = |class: &&Class| class.last_unix_s <= before.unix_s;
        let by_time: u64 = self.classes.values().filter(is_dead).map(|class| class.entries).sum();
        let Stamps { entries, lowest, highest } = self.stamps;
        let by_stamp = match () {
            () if entries == 0 || before.stamp <= lowest => 0.0,
            () if before.stamp > highest => 1.0,
            () => (before.stamp - lowest) as f64 / ((highest - lowest) as f64 + 1.0),
        };
        (by_time as f64).max(by_stamp * entries as f64)
    }

    /// Returns the next second at which more entries are dead than at `unix_s`; `None` if no other entry expires.
    pub fn next_death(&self, unix_s: u64) -> Option<u64> {
        self.classes.values().map(|class| class.last_unix_s).filter(|last| *last > unix_s).min()
    }

    /// Returns the encoded size of the histogram.
    pub(crate) fn encoded_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { NAME_BYTES + STAMPS_BYTES + self.classes.len() * CLASS_BYTES }
    }

    /// Encodes the stamps (three u64), then each class that occurs, ascending: the class (u16), its entries (u64), its
    /// latest death (u64).
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.is_empty() {
            return bytes;
        }
        let Stamps { entries, lowest, highest } = self.stamps;
        [entries, lowest, highest].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        for (class, Class { entries, last_unix_s }) in &self.classes {
            bytes.extend_from_slice(&class.to_le_bytes());
            bytes.extend_from_slice(&entries.to_le_bytes());
            bytes.extend_from_slice(&last_unix_s.to_le_bytes());
        }
        bytes
    }

    /// Decodes the result of [`to_bytes`](Lifetimes::to_bytes); `None` for anything else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Lifetimes> {
        let (stamps, classes) = bytes.split_at_checked(STAMPS_BYTES)?;
        let (&[entries, lowest, highest], []) = stamps.as_chunks::<8>() else { return None };
        let [entries, lowest, highest] = [entries, lowest, highest].map(u64::from_le_bytes);
        let mut lifetimes = Lifetimes { stamps: Stamps { entries, lowest, highest }, ..Lifetimes::default() };
        let (classes, rest) = classes.as_chunks::<CLASS_BYTES>();
        for class in classes {
            let (number, sums) = class.split_first_chunk::<2>()?;
            let (&[entries, last_unix_s], []) = sums.as_chunks::<8>() else { return None };
            let number = u16::from_le_bytes(*number);
            let [entries, last_unix_s] = [entries, last_unix_s].map(u64::from_le_bytes);
            let ascends = lifetimes.classes.last_key_value().is_none_or(|(before, _)| *before < number);
            if !ascends || entries == 0 {
                return None;
            }
            lifetimes.classes.insert(number, Class { entries, last_unix_s });
        }
        let is_sound = lowest <= highest && (entries > 0 || highest == 0);
        (rest.is_empty() && is_sound && !lifetimes.is_empty()).then_some(lifetimes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(expires: u64, stamp: u64) -> Lifetime {
        Lifetime { expires_unix_s: (expires > 0).then_some(expires), stamp: (stamp > 0).then_some(stamp) }
    }

    #[test]
    fn classes_are_an_eighth_of_their_seconds_wide_and_ascend() {
        let mut before = 0;
        for seconds in (0..5000).chain((1..60).flat_map(|bit| [(1 << bit) - 1, 1 << bit])).chain([u64::MAX]) {
            let class = class_of(seconds);
            assert!(class >= before || seconds < 5000, "{seconds}");
            before = class;
            let width = (seconds / PARTS).max(1);
            assert!(class_of(seconds.saturating_add(width + 1)) > class || seconds > u64::MAX - width - 1, "{seconds}");
        }
    }

    #[test]
    fn the_dead_are_never_more_than_there_are() {
        let mut lifetimes = Lifetimes::default();
        (1..=1000).for_each(|n| lifetimes.add(5000, &of(4990 + n, 100 + n)));
        lifetimes.add(5000, &of(0, 0));
        let dead = |unix_s, stamp| lifetimes.dead(&DeadBefore { unix_s, stamp });
        assert_eq!((dead(4990, 0), dead(5990, 0), dead(u64::MAX, 0)), (0.0, 1000.0, 1000.0));
        for second in 4991..5990 {
            let really = (second - 4990) as f64;
            assert!(
                dead(second, 0) <= really && dead(second, 0) >= really * 0.8 - 11.0,
                "{second}: {}",
                dead(second, 0)
            );
        }
        assert_eq!((dead(0, 101), dead(0, 601), dead(0, 1101)), (0.0, 500.0, 1000.0));
        // Stepping from one next death to the next finds all of them.
        let (mut at, mut looks) = (0, 0);
        while let Some(next) = lifetimes.next_death(at) {
            (at, looks) = (next, looks + 1);
        }
        assert_eq!((at, looks < 100), (5990, true));
    }

    #[test]
    fn bytes_come_back_and_others_are_refused() {
        let mut lifetimes = Lifetimes::default();
        [(110, 3), (200, 9), (0, 5), (110, 0)].iter().for_each(|(at, stamp)| lifetimes.add(100, &of(*at, *stamp)));
        let bytes = lifetimes.to_bytes();
        assert_eq!(NAME_BYTES + bytes.len(), lifetimes.encoded_bytes());
        assert_eq!(Lifetimes::from_bytes(&bytes), Some(lifetimes));
        let (stamps, classes) = bytes.split_at(STAMPS_BYTES);
        let (first, second) = classes.split_at(CLASS_BYTES);
        let no_stamps = [0; STAMPS_BYTES];
        let turned = [&[0; 8][..], &[9, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 0, 0, 0, 0], first].concat();
        let broken = [
            &[][..],
            &bytes[..30],
            &[stamps, second, first].concat(),
            &[stamps, first, first].concat(),
            &no_stamps,
            &turned,
        ];
        for bytes in broken {
            assert_eq!(Lifetimes::from_bytes(bytes), None, "{bytes:?}");
        }
        assert!(Lifetimes::from_bytes(&[&no_stamps[..], first].concat()).is_some());
    }
}
