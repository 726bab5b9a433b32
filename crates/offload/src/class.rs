//! Classes of tasks: tasks of one class run about as fast as each other on one unit.
//!
//! A speed that was measured with one class says little of another one: level 0 has many runs, large values cost no
//! comparisons, and a compressor works or does not. There are twelve classes, so that each of them is measured soon.

use situ_compaction::{Run, Task};
use situ_table::Compression;
use std::fmt;

/// An entry of this many stored bytes has a value of medium size.
const MEDIUM_ENTRY_BYTES: u64 = 1 << 10;
/// An entry of this many stored bytes has a large value.
const LARGE_ENTRY_BYTES: u64 = 16 << 10;

/// The size of the values of a task, by the mean of the stored bytes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ValueSize {
    /// An entry takes less than 1 KiB.
    #[default]
    Small,
    /// An entry takes 1 KiB to 16 KiB.
    Medium,
    /// An entry takes 16 KiB or more.
    Large,
}

/// The common traits of tasks that run about as fast as each other on one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskClass {
    /// The upper level is level 0.
    pub from_level0: bool,
    /// The size of the values.
    pub values: ValueSize,
    /// The output is compressed.
    pub compressed: bool,
}

impl TaskClass {
    /// Returns the class of tasks of `level` over these tables. Nothing is read: the tables' lengths and counts decide.
    pub fn of(level: u32, inputs: &[Run], compression: Compression) -> TaskClass {
        let tables = || inputs.iter().flatten();
        let bytes = tables().map(|table| table.bytes).fold(0, u64::saturating_add);
        let entries = tables().map(|table| table.entries).fold(0, u64::saturating_add);
        let values = match bytes / entries.max(1) {
            0..MEDIUM_ENTRY_BYTES => ValueSize::Small,
            MEDIUM_ENTRY_BYTES..LARGE_ENTRY_BYTES => ValueSize::Medium,
            _ => ValueSize::Large,
        };
        TaskClass { from_level0: level == 0, values, compressed: compression != Compression::None }
    }

    /// Returns the class of a task.
    pub fn of_task(task: &Task) -> TaskClass {
        TaskClass::of(task.level, &task.inputs, task.rules.output.table.compression)
    }
}

/// For instance `level 0, small values, compressed`.
impl fmt::Display for TaskClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.from_level0 { "level 0" } else { "deeper levels" };
        let values = match self.values {
            ValueSize::Small => "small",
            ValueSize::Medium => "medium",
            ValueSize::Large => "large",
        };
        let compressed = if self.compressed { "compressed" } else { "not compressed" };
        write!(f, "{level}, {values} values, {compressed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, task};
    use situ_table::KeyKind;

    #[test]
    fn the_class_follows_the_mean_entry_and_the_level() {
        let host = MemoryHost::new();
        for (value_bytes, values) in [(10, ValueSize::Small), (2000, ValueSize::Medium), (20_000, ValueSize::Large)] {
            let value = "v".repeat(value_bytes);
            let entries = (0..20).map(|i| Entry::new(&format!("{i:03}"), 5, KeyKind::Put, &value)).collect();
            let mut task = task(&host, &[Contents { entries, tombstones: Vec::new() }], plain_rules());
            let class = TaskClass::of_task(&task);
            assert_eq!(class, TaskClass { from_level0: false, values, compressed: false }, "{value_bytes}");
            task.level = 0;
            task.rules.output.table.compression = Compression::Lz4;
            let class = TaskClass::of_task(&task);
            assert_eq!(class, TaskClass { from_level0: true, values, compressed: true }, "{value_bytes}");
        }
        assert_eq!(TaskClass::of(1, &[], Compression::None).to_string(), "deeper levels, small values, not compressed");
    }
}
