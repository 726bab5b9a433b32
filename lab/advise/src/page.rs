//! The number of rows of a page, from the rules of PostgreSQL's heap.
//!
//! ```text
//! usable   = block − 24                                   the page's header (storage/bufpage.h)
//! row      = align8(align8(23 + bitmap of nulls) + data)  the row's header (access/htup_details.h); columns at their alignment
//! slot     = row + 4                                      and its line pointer (storage/itemid.h)
//! reserve  = block × (100 − fill factor) / 100            RelationGetTargetPageFreeSpace (utils/rel.h)
//! rows     = max(1, ⌊(usable − reserve) / slot⌋)          the check of RelationGetBufferForTuple (access/heap/hio.c)
//! spare    = ⌊(usable − rows × slot) / slot⌋              new versions that fit beside the rows
//! ```
//! The rules are the same from PostgreSQL 10 to 18. Widths are means, so counts of rows are means, too. Where a column
//! has no statistics, the row's length is that of the table's bytes for each row; a table that is half empty then seems
//! to have rows twice as long.

use crate::table::{Column, Table};

const PAGE_HEADER: f64 = 24.0;
const ROW_HEADER: u32 = 23;
const LINE_POINTER: f64 = 4.0;
/// A value of variable length up to this many bytes has a header of one byte, and no alignment.
const SHORT_VALUE_MAX: f64 = 127.0;

/// The pages of one table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Page {
    block: f64,
    slot: f64,
}

impl Page {
    /// Returns the pages of `table`; `None` if neither its columns nor its rows have been analysed, or if it has no
    /// rows.
    pub fn of(table: &Table) -> Option<Page> {
        let block = f64::from(table.block_bytes);
        let slot = match row_bytes(&table.columns) {
            Some(row) => row + LINE_POINTER,
            None => slot_by_density(table)?,
        };
        Some(Page { block, slot: slot.min(block - PAGE_HEADER) })
    }

    /// Returns the bytes of a mean row in the page, its header and line pointer included.
    pub fn slot_bytes(self) -> f64 {
        self.slot
    }

    /// Returns the number of rows that a page gets at this fill factor.
    pub fn rows(self, fillfactor: u32) -> f64 {
        let reserve = (self.block * f64::from(100 - fillfactor) / 100.0).floor();
        ((self.usable() - reserve) / self.slot).floor().max(1.0)
    }

    /// Returns the number of new versions of rows that fit into such a page.
    pub fn spare(self, fillfactor: u32) -> u32 {
        ((self.usable() - self.rows(fillfactor) * self.slot) / self.slot).floor() as u32
    }

    /// Returns the number of pages that `rows` rows take at this fill factor.
    pub fn pages(self, rows: f64, fillfactor: u32) -> f64 {
        (rows / self.rows(fillfactor)).ceil()
    }

    fn usable(self) -> f64 {
        self.block - PAGE_HEADER
    }
}

/// Returns the length of a mean row, if all columns have statistics.
fn row_bytes(columns: &[Column]) -> Option<f64> {
    let has_nulls = columns.iter().any(|column| column.null_share > 0.0);
    let bitmap = if has_nulls { (columns.len() as u32).div_ceil(8) } else { 0 };
    let header = f64::from((ROW_HEADER + bitmap).next_multiple_of(8));
    let data = columns.iter().try_fold(0.0, |at, column| Some(end_of(column, at, column.width?)));
    (!columns.is_empty()).then_some(())?;
    Some(align(header + data?, 8))
}

/// Returns the end of a column of this mean width that begins behind `at`.
fn end_of(column: &Column, at: f64, width: f64) -> f64 {
    let width = column.fixed_bytes.map_or(width, f64::from);
    let aligned = column.fixed_bytes.is_some() || width > SHORT_VALUE_MAX;
    let begin = if aligned { align(at, column.alignment.bytes()) } else { at };
    // Rows without the value are shorter by this length.
    at + (begin - at + width) * (1.0 - column.null_share)
}

fn align(at: f64, to: u32) -> f64 {
    let to = f64::from(to);
    (at / to).ceil() * to
}

/// Returns the bytes that a row takes in the table as it is, without the part that the fill factor leaves free.
fn slot_by_density(table: &Table) -> Option<f64> {
    let rows = table.rows.filter(|rows| *rows > 0.0)?;
    let filled = table.heap_bytes as f64 * f64::from(table.fillfactor) / 100.0;
    Some((filled / rows).max(f64::from(ROW_HEADER) + LINE_POINTER))
}
