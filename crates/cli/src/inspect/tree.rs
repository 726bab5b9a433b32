//! A whole store as a tree: keyspaces, levels, tables, segments of the value log.
//!
//! Each table has a bar that shows which part of its keyspace's keys it holds, so that overlaps and gaps are seen at a
//! glance. Keys are placed by their first eight bytes behind what all have in common.

use super::{COLUMNS, table};
use crate::DONE;
use crate::failure::{Exit, Failure, Outcome};
use crate::geometry::DeviceReport;
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ::{KeyspaceOptions, SegmentProperties, Store, TableProperties};
use situ_server::{ExpiryRule, ITEMS_KEYSPACE, stored_clock, stored_rule};
use situ_storage::{FileMeta, FileName, Volume};
use situ_table::{DeadBefore, Lifetimes};
use situ_tiers::FAST;
use situ_tiers::PlacementProperties;
use situ_tiers::TieredStore;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Tables shown of each level, and segments of each value log, by default.
const TABLES_SHOWN: usize = 8;
/// Columns of the bar of keys.
const KEY_BAR: usize = 24;
/// Columns of the bar of sizes.
const SIZE_BAR: usize = 30;

#[derive(Serialize)]
pub(super) struct StoreReport {
    location: String,
    sound: bool,
    last_sequence: u64,
    table_bytes: u64,
    log_bytes: u64,
    log_files: Vec<File>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fast_disk: Option<FastDisk>,
    keyspaces: Vec<KeyspaceReport>,
}

/// The store's use of its fast disk.
#[derive(Serialize)]
struct FastDisk {
    /// The place of the disk, and the backend that reaches it if it has no file system.
    location: String,
    /// Of a device without a file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<DeviceReport>,
    table_bytes: u64,
    used_bytes: u64,
    total_bytes: u64,
    decisions: Vec<Decision>,
}

/// A decision on the levels whose new tables go to the fast disk from then on.
#[derive(Serialize)]
struct Decision {
    unix_s: u64,
    before: usize,
    after: usize,
    reason: String,
}

impl From<PlacementProperties> for FastDisk {
    fn from(placement: PlacementProperties) -> FastDisk {
        let decisions = placement.decisions.into_iter().map(|decision| Decision {
            unix_s: decision.unix_s,
            before: decision.before,
            after: decision.after,
            reason: decision.reason,
        });
        FastDisk {
            location: placement.fast_location,
            geometry: placement.fast_geometry.map(DeviceReport::from),
            table_bytes: placement.fast_table_bytes,
            used_bytes: placement.fast_space.logical_used,
            total_bytes: placement.fast_space.logical_total,
            decisions: decisions.collect(),
        }
    }
}

#[derive(Serialize)]
struct File {
    name: String,
    bytes: u64,
}

#[derive(Serialize)]
struct KeyspaceReport {
    name: String,
    approximate_keys: u64,
    /// Entries that the log holds and no table.
    log_entries: u64,
    table_bytes: u64,
    debts: Debts,
    /// Memtables that a writer with default options may have at a time.
    memtables_max: usize,
    /// The log area of the fast disk has no room for the log of more.
    #[serde(skip)]
    log_area_is_small: bool,
    levels: Vec<LevelReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_log: Option<ValueLogReport>,
}

/// The value log of a keyspace. Sizes of values include their keys and headers.
#[derive(Serialize)]
struct ValueLogReport {
    live_bytes: u64,
    /// Bytes of values to which no table has a handle. On a compressing drive, they may take no space.
    dead_bytes: u64,
    /// Total length of the segment files.
    file_bytes: u64,
    segments: Vec<SegmentReport>,
}

#[derive(Serialize)]
struct SegmentReport {
    number: u64,
    file_bytes: u64,
    values: u64,
    live_bytes: u64,
    dead_bytes: u64,
    /// The reason why its values cannot be read, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

impl ValueLogReport {
    /// Makes a report of a keyspace's segments; `None` if there are none. `files` has the lengths of the existing
    /// files.
    fn of(segments: Vec<SegmentProperties>, files: &HashMap<u64, u64>) -> Option<ValueLogReport> {
        let of = |segment: &SegmentProperties| SegmentReport {
            number: segment.number,
            file_bytes: files.get(&segment.number).copied().unwrap_or(0),
            values: segment.values,
            live_bytes: segment.bytes.saturating_sub(segment.dead_bytes),
            dead_bytes: segment.dead_bytes,
            damage: (!files.contains_key(&segment.number)).then(|| "the file is missing".to_owned()),
        };
        let segments: Vec<SegmentReport> = segments.iter().map(of).collect();
        let sum = |bytes: fn(&SegmentReport) -> u64| segments.iter().map(bytes).sum();
        let [live_bytes, dead_bytes, file_bytes] =
            [sum(|segment| segment.live_bytes), sum(|segment| segment.dead_bytes), sum(|segment| segment.file_bytes)];
        (!segments.is_empty()).then_some(ValueLogReport { live_bytes, dead_bytes, file_bytes, segments })
    }
}

/// Dead entries that still take space.
#[derive(Serialize)]
struct Debts {
    tombstones: u64,
    range_deletions: u64,
    /// Estimated number of expired and flushed entries, from the counts in tables.
    expired_entries: u64,
    /// Bytes of values in the value log, dead ones included.
    value_bytes: u64,
    value_dead_bytes: u64,
}

impl Debts {
    /// Describes them in words; `None` if there are none.
    fn line(&self) -> Option<String> {
        let Debts { tombstones, range_deletions, expired_entries, value_bytes, value_dead_bytes } = self;
        let values = format!("{} of {} of values", text::bytes(*value_dead_bytes), text::bytes(*value_bytes));
        let parts = [
            (*tombstones, text::plural(*tombstones, "tombstone")),
            (*range_deletions, text::plural(*range_deletions, "range deletion")),
            (*expired_entries, text::plural_of(*expired_entries, "expired entry", "expired entries")),
            (*value_dead_bytes, values),
        ];
        let owed: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, part)| part).collect();
        (!owed.is_empty()).then(|| format!("dead: {}", owed.join(", ")))
    }
}

#[derive(Serialize)]
struct LevelReport {
    level: usize,
    bytes: u64,
    tables: Vec<TableReport>,
}

#[derive(Serialize)]
struct TableReport {
    number: u64,
    bytes: u64,
    entries: u64,
    deletions: u64,
    range_deletions: u64,
    raw_bytes: u64,
    /// True if the table lies on the fast one of two disks.
    on_fast_disk: bool,
    smallest_sequence: u64,
    largest_sequence: u64,
    created_unix_s: u64,
    /// Keys from here, escaped like `scan` shows them.
    begin: String,
    /// Keys below this.
    end: String,
    /// The reason why the table cannot be opened, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    #[serde(skip)]
    span: (Vec<u8>, Vec<u8>),
}

impl From<TableProperties> for TableReport {
    fn from(table: TableProperties) -> TableReport {
        TableReport {
            number: table.number,
            bytes: table.bytes,
            entries: table.entries,
            deletions: table.deletions,
            range_deletions: table.range_deletions,
            raw_bytes: table.raw_bytes,
            on_fast_disk: table.volume == FAST,
            smallest_sequence: table.smallest_sequence,
            largest_sequence: table.largest_sequence,
            created_unix_s: table.created_unix_s,
            begin: text::escape(&table.begin),
            end: text::escape(&table.end),
            damage: None,
            span: (table.begin, table.end),
        }
    }
}

/// The results of earlier looks at the store's tables, which never change. While another process writes, a table may be
/// removed after the store was opened and before the table is. The next look, at a newer state, does not ask for that
/// table any more. So a table that two looks in a row cannot open is damaged, or missing. The same holds for a missing
/// segment. No two files share a number.
#[derive(Default)]
pub(super) struct Seen {
    sound: HashMap<u64, Lifetimes>,
    unreadable: HashSet<u64>,
}

impl Seen {
    /// Returns the reason why a table cannot be opened, if it cannot.
    ///
    /// # Errors
    /// The caller has no right to read it: it may be sound.
    fn damage(&mut self, volume: &dyn Volume, number: u64) -> situ::Result<Option<String>> {
        if self.sound.contains_key(&number) {
            return Ok(None);
        }
        match table::open(volume, number) {
            Ok(table) => {
                self.sound.insert(number, table.properties().lifetimes.clone());
                Ok(None)
            }
            Err(error) if error.is_permission_denied() => Err(error.into()),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// Estimates the number of dead entries of a table.
    fn dead_entries(&self, number: u64, before: &DeadBefore) -> u64 {
        self.sound.get(&number).map_or(0, |lifetimes| lifetimes.dead(before) as u64)
    }

    /// Returns true if all tables and segments that could not be opened are damaged for certain. The `last` look takes
    /// the doubtful ones out of the report, if there are others.
    fn settles(&mut self, report: &mut StoreReport, last: bool) -> bool {
        let tables = report.keyspaces.iter().flat_map(|keyspace| &keyspace.levels).flat_map(|level| &level.tables);
        let tables = tables.filter(|table| table.damage.is_some()).map(|table| table.number);
        let segments = report.keyspaces.iter().flat_map(|keyspace| &keyspace.value_log).flat_map(|log| &log.segments);
        let segments = segments.filter(|segment| segment.damage.is_some()).map(|segment| segment.number);
        let unreadable: HashSet<u64> = tables.chain(segments).collect();
        let before = std::mem::replace(&mut self.unreadable, unreadable);
        if self.unreadable.is_subset(&before) {
            return true;
        }
        if !last || self.unreadable.is_disjoint(&before) {
            return false;
        }
        for level in report.keyspaces.iter_mut().flat_map(|keyspace| &mut keyspace.levels) {
            level.tables.retain(|table| table.damage.is_none() || before.contains(&table.number));
        }
        for log in report.keyspaces.iter_mut().flat_map(|keyspace| &mut keyspace.value_log) {
            log.segments.retain(|segment| segment.damage.is_none() || before.contains(&segment.number));
        }
        true
    }
}

/// Looks at the whole store; `None` if tables have gone meanwhile, so that it has to be looked at again.
///
/// # Errors
/// The files cannot be listed.
pub(super) fn look(
    store: &Store,
    volume: &dyn Volume,
    directory: &Path,
    seen: &mut Seen,
    last: bool,
) -> Result<Option<StoreReport>, Failure> {
    let mut report = gather(store, volume, directory, seen)?;
    Ok(seen.settles(&mut report, last).then_some(report))
}

pub(super) fn show(report: &StoreReport, directory: &Path, all: bool, out: &mut Output) -> Outcome {
    if out.is_json() {
        out.object(report)?;
    } else {
        draw(report, all, out)?;
    }
    if report.sound {
        return DONE;
    }
    let shown = directory.display();
    let advice =
        format!("`situ verify {shown}` finds everything that is damaged, `situ repair {shown}` saves the rest");
    Err(Failure::new("the store is damaged", "some of its files cannot be opened").cure(advice).ending(Exit::Damage))
}

fn gather(store: &Store, volume: &dyn Volume, directory: &Path, seen: &mut Seen) -> Result<StoreReport, Failure> {
    let failed = |error: situ::Error| Failure::store("cannot look into the store", directory, &error);
    let files = volume.list().map_err(|error| failed(error.into()))?;
    let mut log_files: Vec<File> = files
        .iter()
        .filter(|file| matches!(file.name, FileName::Log(_) | FileName::Spare(_)))
        .map(|file| File { name: file.name.to_string(), bytes: file.bytes })
        .collect();
    log_files.sort_by(|a, b| a.name.cmp(&b.name));
    let segment_file = |file: &FileMeta| match file.name {
        FileName::Values(number) => Some((number, file.bytes)),
        _ => None,
    };
    let segment_files: HashMap<u64, u64> = files.iter().filter_map(segment_file).collect();
    let by_wall_clock = DeadBefore { unix_s: text::now_unix_s(), stamp: 0 };
    let items_dead_before = dead_items(store).unwrap_or(by_wall_clock);
    let (mut keyspaces, mut sound) = (Vec::new(), true);
    for name in store.keyspace_names() {
        let keyspace = store.existing_keyspace(&name).map_err(failed)?;
        let before = if name == ITEMS_KEYSPACE { items_dead_before } else { by_wall_clock };
        let properties = keyspace.properties();
        let mut debts = Debts {
            tombstones: 0,
            range_deletions: 0,
            expired_entries: 0,
            value_bytes: properties.value_bytes,
            value_dead_bytes: properties.value_dead_bytes,
        };
        let mut levels: Vec<LevelReport> = properties
            .levels
            .iter()
            .enumerate()
            .map(|(level, found)| LevelReport { level, bytes: found.bytes, tables: Vec::new() })
            .collect();
        for table in keyspace.tables() {
            if let Some(level) = levels.get_mut(table.level) {
                let mut table = TableReport::from(table);
                table.damage = seen.damage(volume, table.number).map_err(failed)?;
                sound &= table.damage.is_none();
                debts.tombstones += table.deletions;
                debts.range_deletions += table.range_deletions;
                debts.expired_entries += seen.dead_entries(table.number, &before);
                level.tables.push(table);
            }
        }
        let value_log = ValueLogReport::of(keyspace.segments(), &segment_files);
        sound &= value_log.iter().flat_map(|log| &log.segments).all(|segment| segment.damage.is_none());
        keyspaces.push(KeyspaceReport {
            name,
            approximate_keys: properties.approximate_keys,
            log_entries: properties.memtable_entries,
            table_bytes: properties.table_bytes,
            debts,
            memtables_max: properties.memtables_max,
            log_area_is_small: properties.memtables_max < KeyspaceOptions::default().memtables_max,
            levels,
            value_log,
        });
    }
    let properties = store.properties();
    Ok(StoreReport {
        location: properties.location,
        sound,
        last_sequence: properties.last_sequence,
        table_bytes: properties.table_bytes,
        log_bytes: log_files.iter().map(|file| file.bytes).sum(),
        log_files,
        fast_disk: store.placement().map(FastDisk::from),
        keyspaces,
    })
}

/// Returns the dead among a server's items, by the store's own clock and the flush barrier. `None` if no server wrote
/// the store, or its records cannot be read: that is for others to report.
fn dead_items(store: &Store) -> Option<DeadBefore> {
    let clock = stored_clock(store).ok()?;
    let ExpiryRule { now_seconds, barrier_cas } = stored_rule(store, clock.seconds()).ok()??;
    Some(DeadBefore { unix_s: now_seconds, stamp: barrier_cas })
}

fn draw(report: &StoreReport, all: bool, out: &mut Output) -> Result<(), Failure> {
    let tables = report.keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.tables.len() as u64).sum();
    out.line(format!("Store in {}", report.location))?;
    out.line(format!(
        "{}, {} in {}, {} in {}, last write {}",
        text::plural(report.keyspaces.len() as u64, "keyspace"),
        text::bytes(report.table_bytes),
        text::plural(tables, "table"),
        text::bytes(report.log_bytes),
        text::plural(report.log_files.len() as u64, "log file"),
        report.last_sequence
    ))?;
    if let Some(disk) = &report.fast_disk {
        draw_fast_disk(disk, all, out)?;
    }
    for keyspace in &report.keyspaces {
        draw_keyspace(keyspace, all, out)?;
    }
    Ok(())
}

/// Decisions of placement shown unless all are asked for.
const DECISIONS_SHOWN: usize = 3;

fn draw_fast_disk(disk: &FastDisk, all: bool, out: &mut Output) -> Result<(), Failure> {
    let line = |text: String, out: &mut Output| out.line(text::clip(&text, out.room(COLUMNS)));
    let head = format!(
        "Fast disk {}: {} in tables (marked ▲), {} of {} used",
        disk.location,
        text::bytes(disk.table_bytes),
        text::bytes(disk.used_bytes),
        text::bytes(disk.total_bytes)
    );
    line(head, out)?;
    for (name, text) in disk.geometry.iter().flat_map(DeviceReport::lines) {
        line(format!("  {name:<8} {text}"), out)?;
    }
    let shown = if all { disk.decisions.len() } else { DECISIONS_SHOWN };
    for decision in disk.decisions.iter().rev().take(shown) {
        let Decision { unix_s, before, after, reason } = decision;
        let age = text::age(text::now_unix_s().saturating_sub(*unix_s));
        line(format!("  {age:>7}  levels below {after} (before, below {before}): {reason}"), out)?;
    }
    if disk.decisions.len() > shown {
        out.line(format!("  … {} decisions before; --all shows them", disk.decisions.len() - shown))?;
    }
    Ok(())
}

fn draw_keyspace(keyspace: &KeyspaceReport, all: bool, out: &mut Output) -> Result<(), Failure> {
    out.line("")?;
    out.line(format!(
        "{}   about {}, {} in tables, {} in the log only",
        text::shorten(keyspace.name.as_bytes(), out.room(40)),
        text::plural(keyspace.approximate_keys, "key"),
        text::bytes(keyspace.table_bytes),
        text::plural_of(keyspace.log_entries, "entry", "entries")
    ))?;
    if let Some(dead) = keyspace.debts.line() {
        out.line(format!("│  {dead}"))?;
    }
    if keyspace.log_area_is_small {
        out.line(format!(
            "│  with default options, the log area of the fast disk has room for the log of {}",
            text::plural(keyspace.memtables_max as u64, "memtable")
        ))?;
    }
    let levels: Vec<&LevelReport> = keyspace.levels.iter().filter(|level| !level.tables.is_empty()).collect();
    if levels.is_empty() && keyspace.value_log.is_none() {
        return out.line("└─ no tables yet");
    }
    let largest = levels.iter().map(|level| level.bytes).max().unwrap_or(1);
    let spans = || levels.iter().flat_map(|level| &level.tables).map(|table| &table.span);
    let scale = Scale::over(spans());
    let prefix = scale.hidden_prefix(spans());
    if let Some(prefix) = prefix {
        out.line(format!("│  all keys begin with {}", text::shorten(prefix, out.room(COLUMNS - 24))))?;
    }
    let hidden = prefix.map_or(0, <[u8]>::len);
    for (at, level) in levels.iter().enumerate() {
        let is_last = at + 1 == levels.len() && keyspace.value_log.is_none();
        let (branch, stem) = if is_last { ("└─", "   ") } else { ("├─", "│  ") };
        out.line(format!(
            "{branch} level {}  {:>10}  {:>12}  {}",
            level.level,
            text::bytes(level.bytes),
            text::plural(level.tables.len() as u64, "table"),
            size_bar(level.bytes, largest)
        ))?;
        let shown = if all { level.tables.len() } else { TABLES_SHOWN };
        for table in level.tables.iter().take(shown) {
            out.line(draw_table(table, &scale, hidden, stem, out.room(COLUMNS)))?;
            if let Some(damage) = &table.damage {
                out.line(format!("{stem}        ✗ {damage}"))?;
            }
        }
        if level.tables.len() > shown {
            out.line(format!("{stem} … {} more; --all shows them", level.tables.len() - shown))?;
        }
    }
    keyspace.value_log.as_ref().map_or(Ok(()), |log| draw_value_log(log, all, out))
}

fn draw_value_log(log: &ValueLogReport, all: bool, out: &mut Output) -> Result<(), Failure> {
    out.line(format!(
        "└─ value log {:>9}  {:>12}  values: {} live, {} dead",
        text::bytes(log.file_bytes),
        text::plural(log.segments.len() as u64, "segment"),
        text::bytes(log.live_bytes),
        text::bytes(log.dead_bytes)
    ))?;
    let shown = if all { log.segments.len() } else { TABLES_SHOWN };
    for segment in log.segments.iter().take(shown) {
        out.line(format!(
            "    {:06} {:>9} {:>17}  {} live, {} dead",
            segment.number,
            text::bytes(segment.file_bytes),
            text::plural(segment.values, "value"),
            text::bytes(segment.live_bytes),
            text::bytes(segment.dead_bytes)
        ))?;
        if let Some(damage) = &segment.damage {
            out.line(format!("           ✗ {damage}"))?;
        }
    }
    if log.segments.len() > shown {
        out.line(format!("    … {} more; --all shows them", log.segments.len() - shown))?;
    }
    Ok(())
}

fn draw_table(table: &TableReport, scale: &Scale, hidden: usize, stem: &str, columns: usize) -> String {
    let age = text::age(text::now_unix_s().saturating_sub(table.created_unix_s));
    let fixed = format!(
        "{stem}{}{:06} {:>9} {:>17} {age:>7}  {}  ",
        if table.on_fast_disk { '▲' } else { ' ' },
        table.number,
        text::bytes(table.bytes),
        text::plural_of(table.entries, "entry", "entries"),
        scale.bar(&table.span)
    );
    let room = columns.saturating_sub(fixed.chars().count() + 1);
    let (begin, end) = (&table.span.0[hidden..], &table.span.1[hidden..]);
    // The end is the first key behind: of a table with one key, the key and a zero.
    match end.strip_suffix(&[0]) == Some(begin) {
        true => format!("{fixed}{}", text::shorten(begin, room)),
        false => format!("{fixed}{}…{}", text::shorten(begin, room / 2), text::shorten(end, room / 2)),
    }
}

fn size_bar(bytes: u64, largest: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (bytes as f64 / largest.max(1) as f64 * (SIZE_BAR * 8) as f64).round().max(1.0) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// The scale of keys between the first and the last of a keyspace.
struct Scale {
    common: usize,
    first: u64,
    last: u64,
}

impl Scale {
    fn over<'a>(spans: impl Iterator<Item = &'a (Vec<u8>, Vec<u8>)>) -> Scale {
        let mut bounds: Option<(&[u8], &[u8])> = None;
        for (begin, end) in spans {
            let (first, last) = bounds.unwrap_or((begin, end));
            bounds = Some((first.min(begin), last.max(end)));
        }
        let (first, last) = bounds.unwrap_or_default();
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        Scale { common, first: number(first, common), last: number(last, common) }
    }

    /// Returns the common prefix of all keys, if it is long enough to be in the way and leaves something of every key.
    fn hidden_prefix<'a>(&self, mut spans: impl Iterator<Item = &'a (Vec<u8>, Vec<u8>)> + Clone) -> Option<&'a [u8]> {
        let hides_all = spans.clone().any(|(begin, end)| begin.len().min(end.len()) <= self.common);
        let first = spans.next()?;
        (self.common >= 6 && !hides_all).then(|| &first.0[..self.common])
    }

    fn column(&self, key: &[u8]) -> f64 {
        let at = number(key, self.common).saturating_sub(self.first) as f64;
        at / self.last.saturating_sub(self.first).max(1) as f64 * KEY_BAR as f64
    }

    fn bar(&self, (begin, end): &(Vec<u8>, Vec<u8>)) -> String {
        let from = (self.column(begin).floor() as usize).min(KEY_BAR - 1);
        let to = (self.column(end).ceil() as usize).clamp(from + 1, KEY_BAR);
        format!("{}{}{}", "·".repeat(from), "━".repeat(to - from), "·".repeat(KEY_BAR - to))
    }
}

/// Returns the eight bytes of `key` behind its first `skip`, as a number in key order.
fn number(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(key.iter().skip(skip)) {
        *to = *from;
    }
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod looks;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cut_at_the_edge_of_a_terminal_only() {
        let span = (vec![b'a'; 300], vec![b'b'; 300]);
        let table = TableReport {
            number: 7,
            bytes: 1 << 20,
            entries: 5,
            deletions: 0,
            range_deletions: 0,
            raw_bytes: 5,
            on_fast_disk: false,
            smallest_sequence: 1,
            largest_sequence: 5,
            created_unix_s: text::now_unix_s(),
            begin: String::new(),
            end: String::new(),
            damage: None,
            span: span.clone(),
        };
        let drawn = |columns| draw_table(&table, &Scale::over([&span].into_iter()), 0, "   ", columns);
        assert!((90..=COLUMNS).contains(&drawn(COLUMNS).chars().count()), "{}", drawn(COLUMNS));
        let whole = drawn(usize::MAX);
        assert!(whole.contains(&"a".repeat(300)) && whole.ends_with(&"b".repeat(300)), "{whole}");
    }

    #[test]
    fn bars_show_where_keys_lie() {
        let span = |begin: &str, end: &str| (begin.as_bytes().to_vec(), end.as_bytes().to_vec());
        let spans = [span("user0", "user5"), span("user5", "user:")];
        let scale = Scale::over(spans.iter());
        assert_eq!(scale.bar(&spans[0]), "━".repeat(12) + &"·".repeat(12));
        assert_eq!(scale.bar(&spans[1]), "·".repeat(12) + &"━".repeat(12));
        // One key alone still has a mark.
        let alone = [span("a", "a\0")];
        assert_eq!(Scale::over(alone.iter()).bar(&alone[0]).matches('━').count(), 1);
        assert!(scale.bar(&span("user9", "user9\0")).contains('━'));
    }

    #[test]
    fn sizes_fill_the_bar_in_proportion() {
        assert_eq!(size_bar(100, 100).chars().count(), SIZE_BAR);
        assert_eq!(size_bar(50, 100).chars().count(), SIZE_BAR / 2);
        assert_eq!(size_bar(0, 100), "▏");
        assert_eq!(size_bar(0, 0), "▏");
    }
}
