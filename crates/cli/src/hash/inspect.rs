//! `inspect` of a hash store: what its superblock and its files say.
//!
//! It opens nothing for writing and takes no lock, so it works next to a running server. The counts are those of the
//! last checkpoint, or of the last split; writes since then are in the log.

use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::options::InspectOptions;
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ::Store;
use situ_device::Space;
use situ_hash::bucket::{BUCKET_BYTES, USABLE_BYTES};
use situ_hash::superblock::Newest;
use situ_hash::superblock_of;
use situ_storage::{DirectoryVolume, FileName, Volume};
use std::path::{Path, PathBuf};

/// So often the superblock is looked at that looks damaged.
const LOOKS_MAX: usize = 3;

#[derive(Serialize)]
struct HashStoreReport {
    engine: &'static str,
    directory: String,
    store: String,
    /// True if it was closed. False while it is open.
    closed: bool,
    buckets: u64,
    /// The device or the file with the buckets.
    bucket_space: String,
    bucket_space_bytes: Option<u64>,
    used_bytes: u64,
    physical_used_bytes: Option<u64>,
    physical_total_bytes: Option<u64>,
    entries: u64,
    overflow_entries: u64,
    load: f64,
    overflow_share: f64,
    log_files: usize,
    log_bytes: u64,
    overflow_bytes: u64,
    /// Length of the segments of the value log.
    value_file_bytes: u64,
    debts: Debts,
    /// Writes up to this one are in their buckets for certain.
    sequence: u64,
    epoch: u32,
    damages: Vec<String>,
}

/// Dead data that still takes space, as of the last checkpoint. `None` if the overflow store cannot be read now.
#[derive(Default, Serialize)]
struct Debts {
    /// Bytes of dead values in the value log that were not trimmed.
    value_dead_bytes: Option<u64>,
    /// Tombstones in the tables of the overflow store.
    overflow_tombstones: Option<u64>,
}

impl Debts {
    /// Reads the overflow store, even while another process writes to it.
    fn of(overflow: &Path) -> Debts {
        let Ok(store) = Store::open_read_only(overflow) else { return Debts::default() };
        let debts = store.properties().debts;
        Debts {
            value_dead_bytes: dead_values(&store).ok(),
            overflow_tombstones: Some(debts.tombstones + debts.range_deletions),
        }
    }
}

/// Sums the keyspace `segments` (`docs/formats/hash.md`).
fn dead_values(store: &Store) -> situ::Result<u64> {
    let list = match store.existing_keyspace("segments") {
        Err(situ::Error::NoSuchKeyspace { .. }) => return Ok(0),
        list => list?,
    };
    let mut dead = 0;
    for pair in list.iter()? {
        let (_, sums) = pair?;
        let (sums, _) = sums.as_chunks::<8>();
        if let [_, died, trimmed] = *sums {
            dead += u64::from_le_bytes(died).saturating_sub(u64::from_le_bytes(trimmed));
        }
    }
    Ok(dead)
}

pub(crate) fn inspect(options: &InspectOptions, directory: &Path, out: &mut Output) -> Outcome {
    if options.table.is_some() {
        return Err(Failure::not_for_hash("show a table of", directory, "has none"));
    }
    let report = look(directory).map_err(|error| Failure::hash("cannot look into the store", directory, &error))?;
    if out.is_json() {
        out.object(&report)?;
    } else {
        draw(&report, out)?;
    }
    DONE
}

fn look(directory: &Path) -> situ::hash::Result<HashStoreReport> {
    let home = DirectoryVolume::open(directory)?;
    let newest = read_superblock(&home)?;
    let files = home.list()?;
    let logs = files.iter().filter(|file| matches!(file.name, FileName::Log(_) | FileName::Spare(_)));
    let (log_files, log_bytes) = logs.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.bytes));
    let segments = files.iter().filter(|file| matches!(file.name, FileName::Values(_)));
    let overflow = DirectoryVolume::open(directory.join("overflow")).and_then(|volume| volume.list());
    let superblock = newest.superblock;
    let path = superblock.device.as_ref().map_or_else(|| directory.join("buckets"), PathBuf::from);
    let space = space_of(&path);
    let totals = superblock.totals;
    let (buckets, entries) = (superblock.state.buckets(), totals.entries + totals.overflow_entries);
    Ok(HashStoreReport {
        engine: "hash",
        directory: directory.display().to_string(),
        store: superblock.store.to_string(),
        closed: superblock.is_clean,
        buckets,
        bucket_space: path.display().to_string(),
        bucket_space_bytes: space.map(|space| space.logical_total),
        used_bytes: buckets * BUCKET_BYTES as u64,
        physical_used_bytes: space.and_then(|space| space.physical_used),
        physical_total_bytes: space.and_then(|space| space.physical_total),
        entries,
        overflow_entries: totals.overflow_entries,
        load: (totals.bytes + totals.overflow_bytes) as f64 / (buckets as f64 * USABLE_BYTES as f64),
        overflow_share: totals.overflow_entries as f64 / entries.max(1) as f64,
        log_files,
        log_bytes,
        overflow_bytes: overflow.unwrap_or_default().iter().map(|file| file.bytes).sum(),
        value_file_bytes: segments.map(|file| file.bytes).sum(),
        debts: Debts::of(&directory.join("overflow")),
        sequence: superblock.sequence,
        epoch: superblock.epoch,
        damages: newest.damage.iter().map(ToString::to_string).collect(),
    })
}

/// Returns the superblock. A server may be writing one slot of it: what looks damaged is read again.
fn read_superblock(home: &DirectoryVolume) -> situ::hash::Result<Newest> {
    let mut newest = superblock_of(home)?;
    for _ in 1..LOOKS_MAX {
        if newest.damage.is_some() {
            newest = superblock_of(home)?;
        }
    }
    Ok(newest)
}

/// Returns the room of the device of the buckets; none if it cannot be opened to read.
fn space_of(path: &Path) -> Option<Space> {
    let options = situ_device::OpenOptions { read_only: true, ..Default::default() };
    situ_device::open(path, options).ok().map(|device| device.space())
}

fn draw(report: &HashStoreReport, out: &mut Output) -> Result<(), Failure> {
    let mut row = |name: &str, value: String| out.line(format!("  {name:<12} {value}"));
    let known = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), text::bytes);
    row(
        "store",
        format!(
            "{} in {}, a hash store, {}",
            report.store,
            report.directory,
            if report.closed { "closed" } else { "open, or left without a close" }
        ),
    )?;
    let space = match report.bucket_space_bytes {
        Some(bytes) => {
            format!("{} on {} with {}", text::bytes(report.used_bytes), report.bucket_space, text::bytes(bytes))
        }
        None => format!("{} on {}, which cannot be read now", text::bytes(report.used_bytes), report.bucket_space),
    };
    row("buckets", format!("{}, {space}", text::count(report.buckets)))?;
    row(
        "physical",
        format!(
            "{} used of {} (the whole drive)",
            known(report.physical_used_bytes),
            known(report.physical_total_bytes)
        ),
    )?;
    let share = 100.0 * report.overflow_share;
    row("entries", format!("{}, {share:.2} % of them in the overflow", text::count(report.entries)))?;
    row("load", format!("{:.1} % of the buckets' bytes", 100.0 * report.load))?;
    row(
        "log",
        format!(
            "{}, {}; writes up to {} are in their buckets",
            text::plural(report.log_files as u64, "file"),
            text::bytes(report.log_bytes),
            report.sequence
        ),
    )?;
    let tombstones = report.debts.overflow_tombstones.filter(|count| *count > 0);
    let tombstones = tombstones.map_or(String::new(), |count| format!(", {}", text::plural(count, "tombstone")));
    row("overflow", format!("{}{tombstones}", text::bytes(report.overflow_bytes)))?;
    if report.value_file_bytes > 0 {
        let dead = known(report.debts.value_dead_bytes);
        row("value log", format!("{}, {dead} of them dead", text::bytes(report.value_file_bytes)))?;
    }
    report.damages.iter().try_for_each(|damage| {
        out.line(format!("! {damage}; the other copy is sound, and the next opening writes both"))
    })
}
