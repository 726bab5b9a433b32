//! The advice in words, one line a paragraph.

use crate::advice::{Advice, Forecast, Keep, Note, Recommendation};
use crate::statement::{identifier, qualified};
use crate::table::{Index, Table};

/// Columns of names are cut here.
const NAMES_MAX: usize = 12;

impl Table {
    /// Describes the table and its counts, in two to four lines.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = vec![self.first_line()];
        if !self.indexes.is_empty() {
            let indexes: Vec<String> = self.indexes.iter().map(describe_index).collect();
            lines.push(format!("indexes   {}", listed(&indexes)));
        }
        if self.counts.updated > 0 {
            lines.push(self.updates_line());
            lines.push(self.free_line());
        }
        lines
    }

    fn first_line(&self) -> String {
        let rows = self.rows.map_or("rows that were never counted".to_owned(), |rows| format!("{} rows", round(rows)));
        let (heap, indexes) = (mb(self.heap_bytes as f64), mb(self.index_bytes as f64));
        let toast = match self.toast_bytes {
            // An empty place for them has an index of a page.
            0..50_000 => String::new(),
            bytes => format!(", {} of values out of line", mb(bytes as f64)),
        };
        format!("{}: {rows} in {heap}, {indexes} of indexes{toast}; fill factor {}", qualified(self), self.fillfactor)
    }

    fn updates_line(&self) -> String {
        let counts = &self.counts;
        let hot = percent(counts.hot_updated as f64 / counts.updated as f64);
        let moved = match counts.new_page_updated {
            Some(moved) => format!("; {} left their page", round(moved as f64)),
            None => String::new(),
        };
        let (updated, inserted) = (round(counts.updated as f64), round(counts.inserted as f64));
        let deleted = round(counts.deleted as f64);
        format!("counted   {updated} updates, {hot} of them HOT{moved}; {inserted} inserts, {deleted} deletes")
    }

    fn free_line(&self) -> String {
        let free: Vec<String> = self.free_columns().into_iter().map(identifier).collect();
        match free.is_empty() {
            true => "HOT       no update can be: every column is in an index".to_owned(),
            false => format!("HOT       updates can be that change only {}", listed(&free)),
        }
    }
}

impl Advice {
    /// Describes the advice, its cost and gain, and its notes: one line each.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = match &self.recommendation {
            Recommendation::Set(forecast) => forecast.describe(),
            Recommendation::Keep(keep) => vec![format!("advice    keep the fill factor: {}", keep.because())],
        };
        lines.extend(self.notes.iter().map(|note| format!("note      {}", note.text())));
        lines
    }
}

impl Forecast {
    fn describe(&self) -> Vec<String> {
        vec![
            format!(
                "advice    fill factor {}: {} a page, and room for {} beside them",
                self.fillfactor,
                counted(self.rows_per_page, "row"),
                counted(f64::from(self.spare_per_page), "new version"),
            ),
            format!(
                "gain      {} of updates HOT instead of {}; {:.0} index entries fewer for 100 updates",
                percent(self.hot_share),
                percent(self.hot_share_now),
                self.entries_spared,
            ),
            format!("cost      {}", self.cost_words()),
        ]
    }

    fn cost_words(&self) -> String {
        format!(
            "{} logical ({:+.0}% of the table with its indexes), {} physical (about {:+.0}%)",
            signed_mb(self.cost.logical),
            self.logical_percent,
            signed_mb(self.cost.physical),
            self.physical_percent,
        )
    }
}

impl Keep {
    /// Returns the reason, without a full stop.
    pub fn because(&self) -> String {
        match self {
            Keep::Partitioned => "the table is made of partitions and holds no rows; each partition has a fill factor of its own".into(),
            Keep::Empty => "the table is empty".into(),
            Keep::NotAnalyzed => "the table was never analysed, or was empty then; run ANALYZE, then ask again".into(),
            Keep::NothingCounted => {
                "the server has counted no change of the table; ask again after a day of ordinary work".into()
            }
            Keep::FewUpdates => "pages get less than one update each, so room would stay empty".into(),
            Keep::NoIndex => "the table has no index that an update writes to, so an update that leaves its page costs little".into(),
            Keep::AllColumnsIndexed => "every column is in an index, so no change of a row can be HOT".into(),
            Keep::AlreadyHot => "updates find room in their pages already".into(),
            Keep::RowFillsPage => "a row takes more than half of a page, so no fill factor makes room for a second version".into(),
            Keep::RoomIsThere => {
                "pages have much room, and updates leave them all the same: they change columns of indexes, or old snapshots keep \
                 dead versions"
                    .into()
            }
            Keep::CostsMore(None) => "no fill factor brings as much as it costs".into(),
            Keep::CostsMore(Some(other)) => format!(
                "no fill factor brings as much as it costs on this drive; on a drive that compresses {} would pay ({} of updates HOT \
                 instead of {})",
                other.fillfactor,
                percent(other.hot_share),
                percent(other.hot_share_now),
            ),
        }
    }
}

impl Note {
    /// Returns the note, without a full stop.
    pub fn text(self) -> String {
        match self {
            Note::UpperBound => {
                "the gain is an upper bound: before version 16, a server does not count which updates changed indexed columns".into()
            }
            Note::IfItCompresses(other) => format!(
                "nobody knows whether the drive compresses; if it does, {} pays more: {}",
                other.fillfactor,
                other.cost_words()
            ),
            Note::PagesMakeRoom => {
                "rows are updated all over the table, and few are inserted: each page sends some rows away and then has the room for \
                 good, so the gain ends by itself, and a rewrite for its sake alone does not pay"
                    .into()
            }
            Note::Bloated(times) => {
                format!("the table has {times:.1} times the pages that its rows need; a rewrite gives these back, too")
            }
            Note::RoomUnused => "the fill factor leaves room in each page for updates that do not come".into(),
            Note::WidthGuessed => {
                "the width of rows is a guess from the table's size: columns lack statistics, or the user may not read them".into()
            }
        }
    }
}

fn describe_index(index: &Index) -> String {
    let columns: Vec<String> = index.columns.iter().map(|column| identifier(column)).collect();
    let kind = if index.summarizes { " summarizing" } else { "" };
    format!("{}{kind} ({})", identifier(&index.name), columns.join(", "))
}

fn listed(names: &[String]) -> String {
    match names.get(NAMES_MAX..) {
        Some(rest @ [_, ..]) => format!("{} and {} more", names[..NAMES_MAX].join(", "), rest.len()),
        _ => names.join(", "),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

fn signed_mb(bytes: f64) -> String {
    format!("{:+.1} MB", bytes / 1e6)
}

fn mb(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

fn counted(number: f64, one: &str) -> String {
    let plural = if number == 1.0 { "" } else { "s" };
    format!("{number:.0} {one}{plural}")
}

/// With a comma between thousands.
fn round(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
