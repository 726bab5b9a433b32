//! Weighs what a fill factor brings against what it costs.
//!
//! # Rule
//! A fill factor is worth
//! `index entries that it spares for a hundred updates − percent of physical space that it costs`. The advice is the
//! multiple of 5 from 50 to 95 with the greatest worth, and the greater one of two that are equal. It has to be worth
//! at least [`WORTH_MIN`] more than the present one. So a table with four indexes gets more room than one with a single
//! index, and a drive that compresses gets more room than one that does not. The percent is of the table with its
//! indexes and out-of-line values. No advice more than doubles the pages: drives expose a few times their physical
//! bytes only, and caches hold whole pages.
//!
//! Some tables are not weighed, for a reason that [`Keep`] names: for example, a table without updates.

use crate::hot::Pressure;
use crate::page::Page;
use crate::space::{Cost, cost};
use crate::table::{Kind, Table};
use situ_device::Compresses;

/// The advice for one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The recommended action.
    pub recommendation: Recommendation,
    /// Facts that a reader needs in addition.
    pub notes: Vec<Note>,
}

/// The recommended action for a table's fill factor.
#[derive(Debug, Clone, PartialEq)]
pub enum Recommendation {
    /// Set this one.
    Set(Forecast),
    /// Leave the present one.
    Keep(Keep),
}

/// The expected effect of a fill factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The fill factor.
    pub fillfactor: u32,
    /// Rows that a page gets.
    pub rows_per_page: f64,
    /// New versions that fit next to these rows.
    pub spare_per_page: u32,
    /// HOT updates among all, 0 to 1, as counted.
    pub hot_share_now: f64,
    /// HOT updates among all, 0 to 1, as expected for pages that follow the fill factor.
    pub hot_share: f64,
    /// Index entries that a hundred updates do not write any more.
    pub entries_spared: f64,
    /// The bytes more than those of a table that is rewritten with the present fill factor.
    pub cost: Cost,
    /// The logical cost in percent of the table with its indexes and out-of-line values.
    pub logical_percent: f64,
    /// The physical cost in percent of what these take on the drive; see [`COMPRESSION_TAKEN`].
    pub physical_percent: f64,
}

/// The reason why the present fill factor stays.
#[derive(Debug, Clone, PartialEq)]
pub enum Keep {
    /// The table is made of partitions.
    Partitioned,
    /// The table holds no rows.
    Empty,
    /// The table was never analysed, or was empty when it was.
    NotAnalyzed,
    /// The server has counted nothing.
    NothingCounted,
    /// Pages get less than one update each.
    FewUpdates,
    /// The table has no index that an update could leave alone.
    NoIndex,
    /// Every column is in an index, so no update that changes anything is HOT.
    AllColumnsIndexed,
    /// At least 98 of a hundred updates are HOT, or found room in their page.
    AlreadyHot,
    /// A row takes more than half of a page.
    RowFillsPage,
    /// Updates leave their pages although there is room.
    RoomIsThere,
    /// Every fill factor costs more than it brings. On a drive that compresses, the one given would pay.
    CostsMore(Option<Forecast>),
}

/// A fact that a reader needs in addition to the advice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Note {
    /// The server does not count why updates left their pages. The gain is an upper bound.
    UpperBound,
    /// On a drive that compresses, this fill factor would pay.
    IfItCompresses(Forecast),
    /// Rows are updated at random, and few come: pages lose a few rows each, and then have the room for good.
    PagesMakeRoom,
    /// The table has this many times the pages that its rows need.
    Bloated(f64),
    /// The fill factor is below 100, and there are few updates.
    RoomUnused,
    /// The width of rows is that of the table's bytes for each row: columns lack statistics, or the user may not read
    /// them.
    WidthGuessed,
}

/// The minimum of points that an advice is worth more than the present fill factor.
pub const WORTH_MIN: f64 = 1.0;

/// The number of bytes that a drive that compresses is taken to keep in one: 740 GB became 178 in the study that this
/// follows. A drive does not report its bytes for one table. Where data compress less, the percentage is smaller than
/// the one given.
pub const COMPRESSION_TAKEN: f64 = 4.0;

const CANDIDATES: [u32; 10] = [95, 90, 85, 80, 75, 70, 65, 60, 55, 50];
/// Twice, and what rounding adds where a page holds few rows.
const PAGES_TIMES_MAX: f64 = 2.2;
/// The share of updates without room below which they are no reason.
const WANTING_MIN: f64 = 0.02;
const UPDATES_PER_PAGE_MIN: f64 = 1.0;
/// Pages with this many times the room that their rows need are a reason to speak of bloat.
const BLOAT: f64 = 2.0;

/// Returns the advice for `table` on a drive.
pub fn advise(table: &Table, drive: Compresses) -> Advice {
    match Weighing::of(table) {
        Ok(weighing) => weighing.advice(drive),
        Err(keep) => {
            let unused = keep == Keep::FewUpdates && table.fillfactor < 100;
            let notes = unused.then_some(Note::RoomUnused).into_iter().collect();
            Advice { recommendation: Recommendation::Keep(keep), notes }
        }
    }
}

/// Computes the effect in `table` of a fill factor that the caller chooses.
///
/// # Errors
/// The reason why there is no forecast, or why no fill factor would bring anything.
pub fn forecast(table: &Table, fillfactor: u32, drive: Compresses) -> Result<Forecast, Keep> {
    Weighing::of(table).map(|weighing| weighing.forecast(fillfactor, drive))
}

/// A table for which a fill factor may bring something.
struct Weighing<'a> {
    table: &'a Table,
    rows: f64,
    page: Page,
    pressure: Pressure,
}

impl<'a> Weighing<'a> {
    fn of(table: &'a Table) -> Result<Weighing<'a>, Keep> {
        let page = holds_rows(table)?;
        let rows = table.rows.ok_or(Keep::NotAnalyzed)?;
        let pressure = pressure_on(table, page)?;
        can_be_hot(table)?;
        if table.counts.want_room() as f64 <= WANTING_MIN * table.counts.updated as f64 {
            return Err(Keep::AlreadyHot);
        }
        if page.rows(50) + f64::from(page.spare(50)) < 2.0 {
            return Err(Keep::RowFillsPage);
        }
        Ok(Weighing { table, rows, page, pressure })
    }

    fn advice(&self, drive: Compresses) -> Advice {
        let compressing = self.best(Compresses::Yes);
        let Some(forecast) = self.best(drive) else {
            let keep = if self.room_is_there() { Keep::RoomIsThere } else { Keep::CostsMore(compressing) };
            return Advice { recommendation: Recommendation::Keep(keep), notes: Vec::new() };
        };
        let mut notes = self.notes();
        if drive == Compresses::Unknown {
            let differs = compressing.filter(|other| other.fillfactor != forecast.fillfactor);
            notes.extend(differs.map(Note::IfItCompresses));
        }
        Advice { recommendation: Recommendation::Set(forecast), notes }
    }

    fn notes(&self) -> Vec<Note> {
        let guessed = self.table.columns.iter().any(|column| column.width.is_none());
        let notes = [
            self.table.counts.new_page_updated.is_none().then_some(Note::UpperBound),
            (!self.pressure.young).then_some(Note::PagesMakeRoom),
            self.bloat().map(Note::Bloated),
            guessed.then_some(Note::WidthGuessed),
        ];
        notes.into_iter().flatten().collect()
    }

    /// Returns the fill factor that is worth most, if one is worth it.
    fn best(&self, drive: Compresses) -> Option<Forecast> {
        let pages = |fillfactor| self.page.pages(self.rows, fillfactor);
        let pages_max = PAGES_TIMES_MAX * pages(self.table.fillfactor);
        let below = CANDIDATES
            .iter()
            .filter(|candidate| **candidate < self.table.fillfactor && pages(**candidate) <= pages_max);
        let mut best: Option<Forecast> = None;
        for forecast in below.map(|candidate| self.forecast(*candidate, drive)) {
            if worth(&forecast) > best.as_ref().map_or(WORTH_MIN, worth) {
                best = Some(forecast);
            }
        }
        best
    }

    fn forecast(&self, fillfactor: u32, drive: Compresses) -> Forecast {
        let (table, page) = (self.table, self.page);
        let (rows, spare) = (page.rows(fillfactor), page.spare(fillfactor));
        let updated = table.counts.updated as f64;
        let wanted = table.counts.want_room() as f64 / updated;
        let gain = (wanted - self.pressure.wanting(rows, spare)).max(0.0);
        let cost = cost(page, table.block_bytes, self.rows, table.fillfactor, fillfactor, drive);
        let all = (table.heap_bytes + table.index_bytes + table.toast_bytes).max(1) as f64;
        let on_drive = if drive == Compresses::Yes { all / COMPRESSION_TAKEN } else { all };
        let hot_share_now = table.counts.hot_updated as f64 / updated;
        Forecast {
            fillfactor,
            rows_per_page: rows,
            spare_per_page: spare,
            hot_share_now,
            hot_share: hot_share_now + gain,
            entries_spared: 100.0 * gain * table.indexes_to_spare() as f64,
            cost,
            logical_percent: 100.0 * cost.logical / all,
            physical_percent: 100.0 * cost.physical / on_drive,
        }
    }

    /// Pages had room for half of what their rows would take twice, and many updates left them all the same.
    fn room_is_there(&self) -> bool {
        f64::from(self.page.spare(self.table.fillfactor)) >= self.page.rows(self.table.fillfactor) / 2.0
    }

    fn bloat(&self) -> Option<f64> {
        let times = self.table.pages() as f64 / self.page.pages(self.rows, self.table.fillfactor).max(1.0);
        (times >= BLOAT && self.table.pages() >= 100).then_some(times)
    }
}

fn worth(forecast: &Forecast) -> f64 {
    forecast.entries_spared - forecast.physical_percent
}

fn holds_rows(table: &Table) -> Result<Page, Keep> {
    if table.kind == Kind::Partitioned {
        return Err(Keep::Partitioned);
    }
    if table.heap_bytes == 0 {
        return Err(Keep::Empty);
    }
    if table.rows == Some(0.0) {
        return Err(Keep::NotAnalyzed);
    }
    Page::of(table).ok_or(Keep::NotAnalyzed)
}

fn pressure_on(table: &Table, page: Page) -> Result<Pressure, Keep> {
    let counts = &table.counts;
    if counts.inserted + counts.updated + counts.deleted == 0 {
        return Err(Keep::NothingCounted);
    }
    let (rows, spare) = (page.rows(table.fillfactor), page.spare(table.fillfactor));
    let pressure = Pressure::solve(counts, table.pages() as f64, spare, rows);
    if pressure.updates < UPDATES_PER_PAGE_MIN { Err(Keep::FewUpdates) } else { Ok(pressure) }
}

fn can_be_hot(table: &Table) -> Result<(), Keep> {
    if table.indexes_to_spare() == 0 {
        return Err(Keep::NoIndex);
    }
    let free = table.columns.is_empty() || !table.free_columns().is_empty();
    free.then_some(()).ok_or(Keep::AllColumnsIndexed)
}
