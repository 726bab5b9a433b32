//! The report of a repair: its actions, or those that it would take, and the losses.

use crate::base::damage::Damage;
use situ_compaction::KeySpan;
use situ_storage::FileName;
use std::fmt;

/// The kind of a loss: the reason why keys or values have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossKind {
    /// Entries are gone: a key may be missing, have an older value, or be back although it was deleted.
    Entries,
    /// Range deletions are gone: entries that they had deleted may be back.
    RangeDeletions,
}

/// A range of keys of one keyspace, for which a damaged table may have had newer or further entries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// The keyspace's name.
    pub keyspace: String,
    /// The number of the damaged table.
    pub table: u64,
    /// The kind of the loss.
    pub kind: LossKind,
    /// The first key.
    pub begin: Vec<u8>,
    /// The first key behind; `None`: up to the last key there is.
    pub end: Option<Vec<u8>>,
}

impl LostRange {
    /// Returns true if the loss may concern `key` of the keyspace.
    pub fn contains(&self, key: &[u8]) -> bool {
        &self.begin[..] <= key && self.end.as_deref().is_none_or(|end| key < end)
    }

    pub(super) fn of(keyspace: &str, table: u64, kind: LossKind, span: Option<&KeySpan>) -> LostRange {
        let (begin, end) = span.map_or((Vec::new(), None), |s| (s.begin.clone(), Some(s.end.clone())));
        LostRange { keyspace: keyspace.to_owned(), table, kind, begin, end }
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            LossKind::Entries => "entries",
            LossKind::RangeDeletions => "range deletions",
        };
        let end = self.end.as_ref().map(|end| format!("up to, not including, {}", end.escape_ascii()));
        let end = end.unwrap_or_else(|| "to the last key".to_owned());
        let LostRange { keyspace, table, begin, .. } = self;
        let begin = if begin.is_empty() { "the first key".to_owned() } else { begin.escape_ascii().to_string() };
        write!(f, "{what} of keyspace {keyspace:?}, keys from {begin} {end} (table {table})")
    }
}

/// Writes that were in a damaged log only. Their keys are not known; a write has one sequence number for each of its
/// operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostWrites {
    /// The first sequence number lost; `None`: not known.
    pub first: Option<u64>,
    /// The last sequence number lost; `None`: not known, the end of the log is lost.
    pub last: Option<u64>,
}

impl LostWrites {
    /// Returns true if the write with this sequence number may be lost.
    pub fn contains(&self, sequence: u64) -> bool {
        self.first.is_none_or(|first| first <= sequence) && self.last.is_none_or(|last| sequence <= last)
    }
}

impl fmt::Display for LostWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("writes that were in the log alone, sequence numbers ")?;
        match (self.first, self.last) {
            (Some(first), Some(last)) => write!(f, "{first} to {last}"),
            (Some(first), None) => write!(f, "{first} to the end of the log"),
            (None, Some(last)) => write!(f, "up to {last}"),
            (None, None) => f.write_str("not known"),
        }
    }
}

/// A keyspace whose name is in no manifest and in no table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostName {
    /// The keyspace's number.
    pub id: u32,
    /// The keyspace's present name.
    pub now: String,
}

impl fmt::Display for LostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the old name of keyspace {}. The keyspace is now called {:?}", self.id, self.now)
    }
}

/// The actions of a repair, or with `dry_run` those that it would take, and the losses.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// True if the repair was a dry run; it changed nothing.
    pub dry_run: bool,
    /// True if there was nothing to repair; the repair changed nothing.
    pub was_sound: bool,
    /// True if the manifest was of no use. The repair found tables by listing the files, and they make up one level.
    pub rebuilt: bool,
    /// True if no manifest could be read whole: the store's contents are known from tables and log alone. The repair
    /// does not notice a table or a log file that was missing before, nor a keyspace that had neither.
    pub without_manifest: bool,
    /// The keyspaces of the repaired store.
    pub keyspaces: Vec<String>,
    /// Tables used as they were.
    pub tables_kept: u64,
    /// Damaged tables of which a part was used.
    pub tables_salvaged: u64,
    /// Tables that are missing, or of which nothing could be used.
    pub tables_lost: u64,
    /// Records replayed from the log.
    pub log_records: u64,
    /// The damages that the repair found.
    pub damages: Vec<Damage>,
    /// Keys that may be missing or changed.
    pub lost_ranges: Vec<LostRange>,
    /// Writes that are gone.
    pub lost_writes: Vec<LostWrites>,
    /// Names that are gone. The contents of the keyspaces are there.
    pub lost_names: Vec<LostName>,
    /// Files set aside, with their new names. With `dry_run`, the new names are not known yet and equal the old ones.
    pub set_aside: Vec<(FileName, FileName)>,
    /// Further notes for the store's owner.
    pub notes: Vec<String>,
}

impl RepairReport {
    /// Returns true if every write and every name is still there. If
    /// [`without_manifest`](RepairReport::without_manifest), it is true as far as tables and log say.
    pub fn nothing_lost(&self) -> bool {
        self.lost_ranges.is_empty() && self.lost_writes.is_empty() && self.lost_names.is_empty()
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.was_sound {
            writeln!(f, "the store is sound; nothing was changed")?;
        }
        let would = if self.dry_run { " (nothing was changed: this is what a repair would do)" } else { "" };
        let RepairReport { tables_kept, tables_salvaged, tables_lost, log_records, .. } = self;
        let [tables, records] = [tables_kept, log_records].map(|count| if *count == 1 { "" } else { "s" });
        writeln!(
            f,
            "{tables_kept} table{tables} kept, {tables_salvaged} salvaged in part, {tables_lost} lost, {log_records} log \
             record{records} replayed{would}"
        )?;
        if self.rebuilt {
            writeln!(f, "the manifest was rebuilt from the tables found")?;
        }
        self.damages.iter().try_for_each(|damage| writeln!(f, "damage: {damage}"))?;
        self.lost_ranges.iter().try_for_each(|lost| writeln!(f, "lost: {lost}"))?;
        if !self.lost_ranges.is_empty() {
            writeln!(
                f,
                "Keys of a lost range may be missing, have an older value, or be back although they were deleted."
            )?;
        }
        self.lost_writes.iter().try_for_each(|lost| writeln!(f, "lost: {lost}"))?;
        self.lost_names.iter().try_for_each(|lost| writeln!(f, "lost: {lost}"))?;
        match (self.nothing_lost(), self.without_manifest) {
            (true, false) => writeln!(f, "lost: nothing")?,
            (true, true) => writeln!(f, "lost: nothing that tables and log know of")?,
            (false, _) => {}
        }
        self.set_aside.iter().try_for_each(|(from, to)| writeln!(f, "set aside: {from} as {to}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
