//! One table: its properties and its blocks.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ_storage::{Error, FileName, Volume};
use situ_table::{BlockCache, Table};
use std::path::Path;

#[derive(Serialize)]
struct Report {
    file: String,
    bytes: u64,
    keyspace_id: u32,
    writer: String,
    created_unix_s: u64,
    compression: &'static str,
    entries: u64,
    deletions: u64,
    range_deletions: u64,
    smallest_key: Option<String>,
    largest_key: Option<String>,
    smallest_sequence: u64,
    largest_sequence: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    data_bytes: u64,
    index_bytes: u64,
    filter_bytes: u64,
    data_blocks: u64,
    index_blocks: u64,
    /// Stored sizes of data blocks.
    block_bytes_min: u64,
    block_bytes_max: u64,
}

/// Opens a table on its own, without the store.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(super) fn open(volume: &dyn Volume, number: u64) -> Result<std::sync::Arc<Table>, Error> {
    // Big enough for one table's index and filter; no block is read twice here.
    Table::open(volume.open(FileName::Table(number))?, number, BlockCache::new(8 << 20))
}

pub(super) fn show(volume: &dyn Volume, directory: &Path, number: u64, out: &mut Output) -> Outcome {
    let report = gather(volume, number).map_err(|error| match error {
        Error::NotFound { .. } => Failure::new(format!("cannot show table {number}"), "there is no such table")
            .cure("`situ inspect --all` lists the tables there are"),
        error => Failure::store(format!("cannot show table {number}"), directory, &error.into()),
    })?;
    if out.is_json() {
        out.object(&report)?;
    } else {
        draw(&report, out)?;
    }
    DONE
}

fn gather(volume: &dyn Volume, number: u64) -> Result<Report, Error> {
    let table = open(volume, number)?;
    let properties = table.properties();
    let mut before: Option<u64> = None;
    let (mut smallest, mut largest) = (u64::MAX, 0);
    for boundary in table.block_boundaries() {
        let boundary = boundary?;
        // The first boundary has only the file's header before its block.
        let bytes = boundary.offset - before.unwrap_or(0);
        before = Some(boundary.offset);
        smallest = smallest.min(bytes);
        largest = largest.max(bytes);
    }
    let key = |key: Option<situ_table::KeyRef<'_>>| key.map(|key| text::escape(key.user));
    Ok(Report {
        file: table.path().to_owned(),
        bytes: table.bytes(),
        keyspace_id: properties.keyspace_id,
        writer: properties.writer_version.clone(),
        created_unix_s: properties.created_unix_s,
        compression: compression(properties.compression),
        entries: properties.entries,
        deletions: properties.deletions,
        range_deletions: properties.range_deletions,
        smallest_key: key(properties.smallest_key()),
        largest_key: key(properties.largest_key()),
        smallest_sequence: properties.smallest_sequence,
        largest_sequence: properties.largest_sequence,
        raw_key_bytes: properties.raw_key_bytes,
        raw_value_bytes: properties.raw_value_bytes,
        data_bytes: properties.data_bytes,
        index_bytes: properties.index_bytes,
        filter_bytes: properties.filter_bytes,
        data_blocks: properties.data_blocks,
        index_blocks: properties.index_blocks,
        block_bytes_min: smallest.min(largest),
        block_bytes_max: largest,
    })
}

fn compression(code: u8) -> &'static str {
    match code {
        situ_table::format::COMPRESSION_NONE => "none",
        situ_table::format::COMPRESSION_LZ4 => "lz4",
        situ_table::format::COMPRESSION_ZSTD => "zstd",
        _ => "unknown",
    }
}

fn draw(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let raw = report.raw_key_bytes + report.raw_value_bytes;
    let ratio = report.data_bytes as f64 / raw.max(1) as f64;
    let age = text::age(text::now_unix_s().saturating_sub(report.created_unix_s));
    let room = out.room(80);
    let key = |key: &Option<String>| key.as_ref().map_or("none".to_owned(), |key| text::clip(key, room));
    let rows = [
        ("size", text::bytes(report.bytes)),
        ("written", format!("{}, {age} ago, by {}", text::utc(report.created_unix_s), report.writer)),
        ("keyspace", format!("number {}", report.keyspace_id)),
        (
            "entries",
            format!(
                "{}, of them {}; {}",
                text::count(report.entries),
                text::plural(report.deletions, "deletion"),
                text::plural(report.range_deletions, "range deletion")
            ),
        ),
        ("first key", key(&report.smallest_key)),
        ("last key", key(&report.largest_key)),
        ("sequence", format!("{} to {}", report.smallest_sequence, report.largest_sequence)),
        (
            "data",
            format!(
                "{} of keys and {} of values in {} ({}, {:.0} %)",
                text::bytes(report.raw_key_bytes),
                text::bytes(report.raw_value_bytes),
                text::bytes(report.data_bytes),
                report.compression,
                100.0 * ratio
            ),
        ),
        (
            "blocks",
            format!(
                "{}, {} to {}",
                text::plural(report.data_blocks, "data block"),
                text::bytes(report.block_bytes_min),
                text::bytes(report.block_bytes_max)
            ),
        ),
        ("index", format!("{} in {}", text::bytes(report.index_bytes), text::plural(report.index_blocks + 1, "block"))),
        (
            "filter",
            format!(
                "{}, {:.1} bits a key",
                text::bytes(report.filter_bytes),
                8.0 * report.filter_bytes as f64 / report.entries.max(1) as f64
            ),
        ),
    ];
    out.line(format!("Table {}", report.file))?;
    for (name, value) in rows {
        out.line(format!("  {name:<10} {value}"))?;
    }
    Ok(())
}
