//! The lengths of the values of a table: the number of entries of each class of lengths.
//!
//! Class 0 is the empty value. Class `c` has the lengths from `2^(c-1)` to `2^c - 1`. So each power of two is a border
//! between two classes, and the share of values from a power of two on is exact. A table costs nine bytes for each
//! class that occurs. The scheduler of compactions gets that share without reading data. Counting takes six of the 774
//! instructions in which an entry of 116 bytes is built (callgrind,
//! `cargo bench -p situ-table -- build none`).

use crate::format::MAX_VALUE_BYTES;

/// One class for each length of a length in bits, and the empty value.
pub const VALUE_LENGTH_CLASSES: usize = 32;
/// Bytes of one class in a file: the class, and how many entries it has.
const CLASS_BYTES: usize = 9;

const _: () = assert!(class_of(MAX_VALUE_BYTES) == VALUE_LENGTH_CLASSES - 1);

/// The histogram of the lengths of values. Empty in tables of older programs, and in tables without entries.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ValueLengths {
    entries: [u64; VALUE_LENGTH_CLASSES],
}

/// Returns the number of bits of the length.
#[inline]
const fn class_of(bytes: usize) -> usize {
    (usize::BITS - bytes.leading_zeros()) as usize
}

/// Returns the smallest length of a class.
const fn class_begin(class: usize) -> u64 {
    if class == 0 { 0 } else { 1 << (class - 1) }
}

impl ValueLengths {
    /// Counts one entry.
    #[inline]
    pub fn add(&mut self, value_bytes: usize) {
        self.entries[class_of(value_bytes).min(VALUE_LENGTH_CLASSES - 1)] += 1;
    }

    /// Counts entries by the classes of their values, the class of empty values first. Classes that do not exist have
    /// none.
    pub fn add_classes(&mut self, entries: &[u16]) {
        self.entries.iter_mut().zip(entries).for_each(|(sum, entries)| *sum += u64::from(*entries));
    }

    /// Returns all entries that were counted.
    pub fn entries(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entries| sum.saturating_add(*entries))
    }

    /// Returns true if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|entries| *entries == 0)
    }

    /// Returns the number of entries with values of at least `bytes` bytes. Exact where `bytes` is 0 or a power of two.
    /// Between two such lengths, the values of a class count as spread evenly over its lengths.
    pub fn at_least(&self, bytes: u64) -> f64 {
        let class = usize::try_from(bytes).map_or(usize::MAX, class_of);
        let Some(entries) = self.entries.get(class) else { return 0.0 };
        let (begin, end) = (class_begin(class), class_begin(class + 1));
        let share = (end - bytes) as f64 / (end - begin) as f64;
        let above: u64 = self.entries[class + 1..].iter().fold(0, |sum, entries| sum.saturating_add(*entries));
        *entries as f64 * share + above as f64
    }

    /// Returns the number of classes that occur.
    pub(crate) fn classes(&self) -> usize {
        self.entries.iter().filter(|entries| **entries > 0).count()
    }

    /// Returns the bytes of the histogram in a file, without its name.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.classes() * CLASS_BYTES
    }

    /// Encodes each class that occurs, ascending: the class (u8), its entries (u64).
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        for (class, entries) in self.entries.iter().enumerate().filter(|(_, entries)| **entries > 0) {
            bytes.push(class as u8);
            bytes.extend_from_slice(&entries.to_le_bytes());
        }
        bytes
    }

    /// Decodes the bytes of [`to_bytes`](ValueLengths::to_bytes); `None` for anything else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ValueLengths> {
        let (classes, rest) = bytes.as_chunks::<CLASS_BYTES>();
        let mut lengths = ValueLengths::default();
        let mut next = 0;
        for [class, entries @ ..] in classes {
            let (class, entries) = (usize::from(*class), u64::from_le_bytes(*entries));
            if class < next || entries == 0 {
                return None;
            }
            *lengths.entries.get_mut(class)? = entries;
            next = class + 1;
        }
        (rest.is_empty() && next > 0).then_some(lengths)
    }
}

/// Output such as `1 empty, 3 from 16`, which damage reports show.
impl std::fmt::Debug for ValueLengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let occur = self.entries.iter().enumerate().filter(|(_, entries)| **entries > 0);
        let class = |(class, entries)| match class {
            0 => format!("{entries} empty"),
            _ => format!("{entries} from {}", class_begin(class)),
        };
        let classes: Vec<String> = occur.map(class).collect();
        write!(f, "ValueLengths({})", classes.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lengths: &[usize]) -> ValueLengths {
        let mut counted = ValueLengths::default();
        lengths.iter().for_each(|length| counted.add(*length));
        counted
    }

    #[test]
    fn the_share_from_a_power_of_two_on_is_exact() {
        let lengths = [0, 1, 2, 3, 100, 16_383, 16_384, 16_385, 32_767, 32_768, 65_536, MAX_VALUE_BYTES];
        let counted = counted(&lengths);
        assert_eq!(counted.entries(), lengths.len() as u64);
        for border in std::iter::once(0).chain((0..=30).map(|bit| 1 << bit)) {
            let expected = lengths.iter().filter(|length| **length >= border).count();
            assert_eq!(counted.at_least(border as u64), expected as f64, "from {border}");
        }
        assert_eq!(counted.at_least(1 << 31), 0.0);
        assert_eq!(counted.at_least(u64::MAX), 0.0);
    }

    #[test]
    fn between_two_powers_a_class_is_spread_evenly() {
        let counted = counted(&[40_000; 8]);
        assert_eq!(counted.at_least(32_768), 8.0);
        assert_eq!(counted.at_least(49_152), 4.0);
        assert_eq!(counted.at_least(65_536), 0.0);
    }

    #[test]
    fn bytes_come_back_and_others_are_refused() {
        let lengths = counted(&[0, 5, 5, 70_000, MAX_VALUE_BYTES]);
        let bytes = lengths.to_bytes();
        assert_eq!(bytes.len(), lengths.encoded_bytes());
        assert_eq!(ValueLengths::from_bytes(&bytes), Some(lengths.clone()));
        assert_eq!(format!("{lengths:?}"), "ValueLengths(1 empty, 2 from 4, 1 from 65536, 1 from 1073741824)");
        let (first, second) = (&bytes[..9], &bytes[9..18]);
        let zero = [3, 0, 0, 0, 0, 0, 0, 0, 0];
        let beyond = [32, 1, 0, 0, 0, 0, 0, 0, 0];
        let broken = [&[], &bytes[..8], &[second, first].concat(), &[first, first].concat(), &zero[..], &beyond[..]];
        for bytes in broken {
            assert_eq!(ValueLengths::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
