//! The work of a store behind its requests: log, flushes, and compactions with the share of each unit.

use serde::{Deserialize, Serialize};

/// Background work, by the store's own counters: since it was opened, or in a part of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Work {
    /// Bytes of log pages that the store wrote; a page that took several records one by one counts as often.
    pub log_bytes_written: u64,
    /// Bytes of tables that flushes wrote.
    pub flush_bytes_written: u64,
    /// Bytes of tables that compactions read.
    pub compaction_bytes_read: u64,
    /// Bytes of tables that compactions wrote.
    pub compaction_bytes_written: u64,
    /// Compactions done, trivial moves not counted.
    pub compactions: u64,
    /// Tables that went to a deeper level as they were.
    pub trivial_moves: u64,
    /// Time for which writers were slowed down or stopped.
    pub stall_seconds: f64,
    /// The work of each unit, the host's processor first.
    pub units: Vec<UnitWork>,
}

/// The work of one unit for compactions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitWork {
    /// Its name.
    pub name: String,
    /// Attempts that it took.
    pub attempts: u64,
    /// Attempts whose output was right.
    pub succeeded: u64,
    /// Attempts that it refused for want of room.
    pub refused_busy: u64,
    /// Attempts that it refused for another reason.
    pub refused: u64,
    /// Tasks that do not suit it, and went elsewhere untried.
    pub illegal: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were given up because they took too long.
    pub late: u64,
    /// Attempts whose output was not right.
    pub suspicious: u64,
    /// Attempts that another unit made, too, to compare.
    pub checked: u64,
    /// Comparisons that found a difference.
    pub mismatches: u64,
    /// Input bytes of the attempts that succeeded.
    pub input_bytes: u64,
    /// Bytes of their output tables.
    pub output_bytes: u64,
    /// The time of the attempts that succeeded, added up; `input_bytes / busy_seconds` is the unit's compaction
    /// bandwidth.
    pub busy_seconds: f64,
    /// The stages of these attempts, added up.
    pub stages: StagesWork,
    /// The reason of the last final refusal, failure, late attempt or suspicious output since the store was opened.
    pub last_trouble: Option<String>,
}

/// The bytes that a unit has compacted up to a moment, with their time. Between two moments, the growth of the bytes
/// over that of the time is the unit's bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitSample {
    /// Input bytes of the attempts that succeeded.
    pub input_bytes: u64,
    /// The time of these attempts, added up.
    pub busy_seconds: f64,
}

/// The stages of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StagesWork {
    /// Stored blocks, from the volume into memory.
    pub read: StageWork,
    /// Decode, merge, encode.
    pub merge: StageWork,
    /// Appends and syncs.
    pub write: StageWork,
}

/// The times and bytes of one stage. The times of a stage with several threads are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageWork {
    /// The time at work.
    pub busy_seconds: f64,
    /// The time of waits for the stage before it.
    pub starved_seconds: f64,
    /// The time of waits for the stage behind it.
    pub blocked_seconds: f64,
    /// Bytes that went through.
    pub bytes: u64,
}

impl Work {
    /// Returns the work since `before`, of the same store without an opening in between.
    #[must_use]
    pub fn since(&self, before: &Work) -> Work {
        let unit = |unit: &UnitWork| match before.units.iter().find(|earlier| earlier.name == unit.name) {
            Some(earlier) => unit.since(earlier),
            None => unit.clone(),
        };
        Work {
            log_bytes_written: self.log_bytes_written.saturating_sub(before.log_bytes_written),
            flush_bytes_written: self.flush_bytes_written.saturating_sub(before.flush_bytes_written),
            compaction_bytes_read: self.compaction_bytes_read.saturating_sub(before.compaction_bytes_read),
            compaction_bytes_written: self.compaction_bytes_written.saturating_sub(before.compaction_bytes_written),
            compactions: self.compactions.saturating_sub(before.compactions),
            trivial_moves: self.trivial_moves.saturating_sub(before.trivial_moves),
            stall_seconds: (self.stall_seconds - before.stall_seconds).max(0.0),
            units: self.units.iter().map(unit).collect(),
        }
    }

    /// Returns the bytes of tables that were written for each of `user_bytes`: what compaction costs, whatever the log
    /// does.
    #[must_use]
    pub fn table_write_amplification(&self, user_bytes: u64) -> Option<f64> {
        let written = self.flush_bytes_written + self.compaction_bytes_written;
        (user_bytes > 0).then_some(written as f64 / user_bytes as f64)
    }
}

impl UnitWork {
    fn since(&self, before: &UnitWork) -> UnitWork {
        UnitWork {
            name: self.name.clone(),
            attempts: self.attempts.saturating_sub(before.attempts),
            succeeded: self.succeeded.saturating_sub(before.succeeded),
            refused_busy: self.refused_busy.saturating_sub(before.refused_busy),
            refused: self.refused.saturating_sub(before.refused),
            illegal: self.illegal.saturating_sub(before.illegal),
            failed: self.failed.saturating_sub(before.failed),
            late: self.late.saturating_sub(before.late),
            suspicious: self.suspicious.saturating_sub(before.suspicious),
            checked: self.checked.saturating_sub(before.checked),
            mismatches: self.mismatches.saturating_sub(before.mismatches),
            input_bytes: self.input_bytes.saturating_sub(before.input_bytes),
            output_bytes: self.output_bytes.saturating_sub(before.output_bytes),
            busy_seconds: (self.busy_seconds - before.busy_seconds).max(0.0),
            stages: self.stages.since(before.stages),
            last_trouble: self.last_trouble.clone(),
        }
    }
}

impl StagesWork {
    fn since(self, before: StagesWork) -> StagesWork {
        StagesWork {
            read: self.read.since(before.read),
            merge: self.merge.since(before.merge),
            write: self.write.since(before.write),
        }
    }
}

impl StageWork {
    fn since(self, before: StageWork) -> StageWork {
        StageWork {
            busy_seconds: (self.busy_seconds - before.busy_seconds).max(0.0),
            starved_seconds: (self.starved_seconds - before.starved_seconds).max(0.0),
            blocked_seconds: (self.blocked_seconds - before.blocked_seconds).max(0.0),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_part_is_the_difference_unit_by_unit() {
        let unit = |name: &str, input_bytes, busy_seconds| UnitWork {
            name: name.to_owned(),
            input_bytes,
            busy_seconds,
            ..UnitWork::default()
        };
        let work = |flush, compaction, units| Work {
            flush_bytes_written: flush,
            compaction_bytes_written: compaction,
            units,
            ..Work::default()
        };
        let mut before = work(10, 20, vec![unit("cpu", 5, 0.5)]);
        let mut now = work(40, 100, vec![unit("cpu", 25, 1.5), unit("node", 7, 0.25)]);
        before.units[0].stages.merge = StageWork { busy_seconds: 0.25, bytes: 5, ..StageWork::default() };
        now.units[0].stages.merge = StageWork { busy_seconds: 1.25, bytes: 25, ..StageWork::default() };
        let part = now.since(&before);
        assert_eq!(part.units[0].stages.merge, StageWork { busy_seconds: 1.0, bytes: 20, ..StageWork::default() });
        let mut expected = work(30, 80, vec![unit("cpu", 20, 1.0), unit("node", 7, 0.25)]);
        expected.units[0].stages = part.units[0].stages;
        assert_eq!(part, expected);
        assert_eq!(part.table_write_amplification(55), Some(2.0));
        assert_eq!(part.table_write_amplification(0), None);
        // Another store, by mistake: nothing rather than something huge.
        assert_eq!(before.since(&now).flush_bytes_written, 0);
    }
}
