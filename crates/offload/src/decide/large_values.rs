//! The share of large values among the entries of a task, from what its tables tell of themselves. No data is read.
//!
//! 1. A table with a histogram of value lengths (`value-lengths` in `docs/formats/table.md`) gives its share.
//! 2. The share of a table of an older program is estimated by its mean value and its longest one.
//! 3. Each table counts by its entries in the task's range: its entries, times the part of its bytes that lies there.
//!
//! **Failure.** A table that cannot be opened is left out, and counted. The run meets the same error.

use situ_compaction::{TableInput, Task};
use situ_table::Properties;

/// The known facts about the large values of a task.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LargeValues {
    /// The share of large values among the entries, 0 to 1; `None` if no table tells anything.
    pub share: Option<f64>,
    /// The number of tables that the share is from.
    pub tables: usize,
    /// Those of them that are of older programs, so that their share is an estimate.
    pub estimated: usize,
    /// Tables that could not be opened.
    pub unknown: usize,
}

impl LargeValues {
    /// Asks the tables of a task. Opens those that are not open.
    pub fn of(task: &Task, large_value_bytes: u64) -> LargeValues {
        let mut found = LargeValues::default();
        let (mut large, mut entries) = (0.0, 0.0);
        for input in task.tables() {
            let Ok(table) = input.open() else {
                found.unknown += 1;
                continue;
            };
            let properties = table.properties();
            let weight = entries_in_range(input, properties);
            found.tables += 1;
            found.estimated += usize::from(properties.value_lengths.is_empty() && properties.entries > 0);
            large += weight * share_of(properties, large_value_bytes);
            entries += weight;
        }
        found.share = (entries > 0.0).then(|| (large / entries).clamp(0.0, 1.0));
        found
    }

    /// Describes in words where the share is from.
    pub fn note(&self) -> String {
        let mut note = format!("of {} tables", self.tables);
        if self.estimated > 0 {
            note += &format!(", estimated for {}", self.estimated);
        }
        if self.unknown > 0 {
            note += &format!(", {} could not be opened", self.unknown);
        }
        note
    }
}

/// About how many entries of a table lie in the task's range.
fn entries_in_range(input: &TableInput, properties: &Properties) -> f64 {
    let part = if input.bytes == 0 { 1.0 } else { input.bytes_in_range as f64 / input.bytes as f64 };
    properties.entries as f64 * part.min(1.0)
}

/// The share of large values among the entries of a table.
fn share_of(properties: &Properties, large_value_bytes: u64) -> f64 {
    let large = large_value_bytes.max(1);
    if properties.longest_value_bytes.is_some_and(|longest| u64::from(longest) < large) {
        return 0.0;
    }
    match properties.value_lengths.entries() {
        0 => estimate(properties, large as f64),
        entries => properties.value_lengths.at_least(large) / entries as f64,
    }
}

/// The middle between the largest and the smallest share that the sum of all lengths and the longest one allow.
///
/// With a mean of m, at most m / L of all values are L bytes long. With a longest value of M, the mean is at most
/// L - 1 + share * (M - L + 1). Values of one length have both bounds at 0 or at 1.
fn estimate(properties: &Properties, large: f64) -> f64 {
    let values = properties.entries.saturating_sub(properties.deletions);
    let longest = properties.longest_value_bytes.map(f64::from);
    if values == 0 {
        return 0.0;
    }
    let mean = properties.raw_value_bytes as f64 / values as f64;
    let most = (mean / large).min(1.0);
    let least = longest.map_or(0.0, |longest| ((mean - (large - 1.0)) / (longest - (large - 1.0))).clamp(0.0, 1.0));
    // Without a longest value there is no lower bound: the mean decides.
    let share = if longest.is_none() && mean >= large { 1.0 } else { f64::midpoint(least, most) };
    share * values as f64 / properties.entries as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_compaction::KeySpan;
    use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, task};
    use situ_table::KeyKind;
    use std::sync::Arc;

    const LARGE: u64 = 32 << 10;

    fn told(entries: u64, deletions: u64, raw_value_bytes: u64, longest: Option<u32>) -> Properties {
        Properties { entries, deletions, raw_value_bytes, longest_value_bytes: longest, ..Properties::default() }
    }

    #[test]
    fn a_table_of_one_length_is_estimated_exactly() {
        let of = |count: u64, bytes: u32| share_of(&told(count, 0, count * u64::from(bytes), Some(bytes)), LARGE);
        assert_eq!((of(1000, 100), of(1000, 32_767), of(1000, 32_768), of(9, 65_536)), (0.0, 0.0, 1.0, 1.0));
        // Tombstones are entries, and have no value.
        assert_eq!(share_of(&told(100, 50, 50 * 65_536, Some(65_536)), LARGE), 0.5);
        assert_eq!(share_of(&told(100, 100, 0, Some(0)), LARGE), 0.0);
    }

    #[test]
    fn a_table_that_tells_no_longest_value_goes_by_its_mean() {
        assert_eq!(share_of(&told(10, 0, 10 * LARGE, None), LARGE), 1.0);
        assert_eq!(share_of(&told(10, 0, 10 * LARGE / 2, None), LARGE), 0.25);
        assert_eq!(share_of(&told(0, 0, 0, None), LARGE), 0.0);
    }

    #[test]
    fn a_mixed_table_is_estimated_between_its_bounds() {
        // 30% of 64 KiB, 70% of 100 bytes.
        let mixed = told(1000, 0, 300 * 65_536 + 700 * 100, Some(65_536));
        let share = share_of(&mixed, LARGE);
        assert!((0.2..0.45).contains(&share), "{share}");
    }

    fn contents(count: usize, large: usize) -> Contents {
        let value = |at: usize| "v".repeat(if at < large { 40_000 } else { 10 });
        let entry = |at: usize| Entry::new(&format!("key{at:04}"), 5, KeyKind::Put, &value(at));
        Contents { entries: (0..count).map(entry).collect(), tombstones: Vec::new() }
    }

    #[test]
    fn tables_count_by_their_entries_in_range() {
        let host = MemoryHost::new();
        let whole = task(&host, &[contents(30, 30), contents(10, 0)], plain_rules());
        let found = LargeValues::of(&whole, LARGE);
        assert_eq!(found, LargeValues { share: Some(0.75), tables: 4, estimated: 0, unknown: 0 });
        assert_eq!(found.note(), "of 4 tables");
        // Only a third of the first run lies in the range.
        let mut part = whole;
        part.inputs[0].iter_mut().for_each(|input| input.bytes_in_range = input.bytes / 3);
        let share = LargeValues::of(&part, LARGE).share.unwrap();
        assert!((share - 0.5).abs() < 0.01, "{share}");
        let empty = LargeValues::of(&task(&host, &[], plain_rules()), LARGE);
        assert_eq!(empty.share, None);
    }

    struct Gone;

    impl situ_compaction::InputTable for Gone {
        fn open(self: Arc<Self>) -> situ_storage::Result<Arc<situ_table::Table>> {
            Err(situ_storage::Error::Invalid("gone".to_owned()))
        }
    }

    #[test]
    fn a_table_that_cannot_be_opened_is_left_out_and_told() {
        let host = MemoryHost::new();
        let mut task = task(&host, &[contents(4, 1)], plain_rules());
        let span = KeySpan { begin: b"a".to_vec(), end: b"b".to_vec() };
        let gone = TableInput { table: Arc::new(Gone), span, ..task.inputs[0][0].clone() };
        task.inputs.push(vec![gone]);
        let found = LargeValues::of(&task, LARGE);
        assert_eq!((found.share, found.unknown), (Some(0.25), 1));
        assert_eq!(found.note(), "of 2 tables, 1 could not be opened");
    }
}
