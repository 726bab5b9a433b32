//! Work on a whole store: `compact`, `flush`, `checkpoint`, `verify`, `repair`.

use crate::DONE;
use crate::failure::{Exit, Failure, Outcome};
use crate::hash;
use crate::options::{CheckpointOptions, CompactOptions, FlushOptions, RepairOptions, VerifyOptions};
use crate::output::Output;
use crate::store::Writable;
use crate::text;
use serde::Serialize;
use situ::{Damage, LossKind, RepairReport, VerifyProgress, VerifyReport};
use situ_storage::{Lock, Volume};
use situ_tiers::TieredRepair;
use std::path::Path;
use std::time::Instant;

#[derive(Serialize)]
struct Compacted {
    keyspace: String,
    bytes_before: u64,
    bytes_after: u64,
    tables: usize,
    seconds: f64,
}

pub(crate) fn compact(options: &CompactOptions, out: &mut Output) -> Outcome {
    let home = options.directory.home();
    if home.is_hash() {
        let why = "has no tables to compact: the room of what was deleted is free at once";
        return Err(Failure::not_for_hash("compact", home.path(), why));
    }
    let writable = Writable::open(&home, false, out)?;
    for name in writable.names(options.keyspace.as_deref()) {
        let keyspace = writable.keyspace(&name, false)?;
        let started = Instant::now();
        let bytes_before = keyspace.properties().table_bytes;
        keyspace
            .flush()
            .and_then(|()| keyspace.compact(None, None))
            .map_err(|error| writable.failure(format!("cannot compact the keyspace {name:?}"), &error))?;
        let after = keyspace.properties();
        let done = Compacted {
            keyspace: name,
            bytes_before,
            bytes_after: after.table_bytes,
            tables: after.tables,
            seconds: started.elapsed().as_secs_f64(),
        };
        if out.is_json() {
            out.object(&done)?;
        } else {
            out.line(format!(
                "{}: {} before, {} after, in {}, {:.1} s",
                text::on_one_line(&done.keyspace),
                text::bytes(done.bytes_before),
                text::bytes(done.bytes_after),
                text::plural(done.tables as u64, "table"),
                done.seconds
            ))?;
        }
    }
    writable.close()?;
    DONE
}

#[derive(Serialize)]
struct Flushed {
    keyspace: String,
    memtable_bytes_before: u64,
    tables: usize,
    seconds: f64,
}

pub(crate) fn flush(options: &FlushOptions, out: &mut Output) -> Outcome {
    let home = options.directory.home();
    if home.is_hash() {
        let why = "writes its log into buckets when it is closed";
        return Err(Failure::not_for_hash("flush", home.path(), why));
    }
    let writable = Writable::open(&home, false, out)?;
    for name in writable.names(options.keyspace.as_deref()) {
        let keyspace = writable.keyspace(&name, false)?;
        let started = Instant::now();
        let memtable_bytes_before = keyspace.properties().memtable_bytes;
        keyspace.flush().map_err(|error| writable.failure(format!("cannot flush the keyspace {name:?}"), &error))?;
        let tables = keyspace.properties().tables;
        let done = Flushed { keyspace: name, memtable_bytes_before, tables, seconds: started.elapsed().as_secs_f64() };
        if out.is_json() {
            out.object(&done)?;
        } else {
            out.line(format!(
                "{}: memtables of {} before, {} now, {:.1} s",
                text::on_one_line(&done.keyspace),
                text::bytes(done.memtable_bytes_before),
                text::plural(done.tables as u64, "table"),
                done.seconds
            ))?;
        }
    }
    writable.close()?;
    DONE
}

#[derive(Serialize)]
struct Copied {
    directory: String,
    last_sequence: u64,
    shared_tables: u64,
    copied_tables: u64,
    copied_bytes: u64,
    seconds: f64,
}

pub(crate) fn checkpoint(options: &CheckpointOptions, out: &mut Output) -> Outcome {
    let home = options.directory.home();
    if home.is_hash() {
        let why = "has no checkpoints: `situ dump` writes its items to a file";
        return Err(Failure::not_for_hash("copy", home.path(), why));
    }
    let writable = Writable::open(&home, false, out)?;
    let started = Instant::now();
    let report = writable.store.checkpoint(&options.output);
    let report = report.map_err(|error| writable.failure("cannot make a checkpoint", &error))?;
    let done = Copied {
        directory: options.output.display().to_string(),
        last_sequence: report.last_sequence,
        shared_tables: report.shared_tables,
        copied_tables: report.copied_tables,
        copied_bytes: report.copied_bytes,
        seconds: started.elapsed().as_secs_f64(),
    };
    if out.is_json() {
        out.object(&done)?;
    } else {
        out.line(format!(
            "{}: {} shared with the store, {} copied, {} of files copied in all, in {:.1} s",
            text::on_one_line(&done.directory),
            text::plural(done.shared_tables, "table"),
            done.copied_tables,
            text::bytes(done.copied_bytes),
            done.seconds
        ))?;
    }
    writable.close()?;
    DONE
}

/// The rate at which a store is verified while it is served.
const SERVED_BYTES_PER_S: u64 = 64 << 20;

/// Damages shown in words; `--json` has all that the report keeps.
const DAMAGES_SHOWN: usize = 50;

#[derive(Serialize)]
struct Verified {
    sound: bool,
    files: u64,
    bytes: u64,
    entries: u64,
    damages: Vec<Damaged>,
    damages_left_out: u64,
    warnings: Vec<String>,
    orphans: Vec<String>,
    seconds: f64,
}

#[derive(Serialize)]
struct Damaged {
    file: String,
    offset: u64,
    what: String,
    expected: String,
    found: String,
}

impl From<Damage> for Damaged {
    fn from(damage: Damage) -> Damaged {
        let Damage { file, offset, what, expected, found } = damage;
        Damaged { file, offset, what, expected, found }
    }
}

impl From<VerifyReport> for Verified {
    fn from(report: VerifyReport) -> Verified {
        Verified {
            sound: report.is_sound(),
            files: report.files,
            bytes: report.bytes,
            entries: report.entries,
            damages: report.damages.into_iter().map(Damaged::from).collect(),
            damages_left_out: report.damages_left_out,
            warnings: report.warnings,
            orphans: report.orphans.iter().map(ToString::to_string).collect(),
            seconds: report.duration.as_secs_f64(),
        }
    }
}

pub(crate) fn verify(options: &VerifyOptions, out: &mut Output) -> Outcome {
    let home = options.directory.home();
    if home.is_hash() {
        options.directory.check_for_hash()?;
        return hash::verify(home.path(), out);
    }
    let failed = |error: situ::Error| Failure::store("cannot verify the store", home.path(), &error);
    let bar = out.bar(Some(0), 0, "{bar:30} {percent:>3} %  {bytes_per_sec}, {eta} to go  {msg}");
    let mut progress = |progress: VerifyProgress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes_done);
        bar.set_message(progress.at);
    };
    let report = match out.served() {
        Some(store) => store.verify(SERVED_BYTES_PER_S, &mut progress),
        None => {
            let volume = home.volume().map_err(failed)?;
            let _lock = keep_writers_out(&*volume).map_err(|error| failed(error.into()))?;
            home.verify(&volume, &mut progress)
        }
    };
    bar.finish_and_clear();
    let verified = Verified::from(report.map_err(failed)?);
    if out.is_json() {
        out.object(&verified)?;
    } else {
        tell(&verified, home.path(), out)?;
    }
    Ok(if verified.sound { Exit::Done } else { Exit::Damage })
}

/// Locks the store: a store that is written to shows damages that are none. Returns `None` for a disk that cannot be
/// written, because it has no writers. Returns `None` where there is no store, because a lock would leave its file.
fn keep_writers_out(volume: &dyn Volume) -> situ_storage::Result<Option<Box<dyn Lock>>> {
    if volume.list()?.is_empty() {
        return Ok(None);
    }
    match volume.lock() {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ situ_storage::Error::Locked { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

fn tell(verified: &Verified, directory: &Path, out: &mut Output) -> Result<(), Failure> {
    tell_damages(&verified.damages, verified.damages_left_out, out)?;
    let damages = verified.damages.len() as u64 + verified.damages_left_out;
    for warning in &verified.warnings {
        out.line(format!("! {warning}"))?;
    }
    for orphan in &verified.orphans {
        out.line(format!("! {orphan}: the store does not need this file; the next opening for writing removes it"))?;
    }
    out.line(format!(
        "{} with {} and {} read in {:.1} s: {}",
        text::plural(verified.files, "file"),
        text::bytes(verified.bytes),
        text::plural_of(verified.entries, "entry", "entries"),
        verified.seconds,
        match damages {
            0 => "all is sound".to_owned(),
            damages => text::plural(damages, "damage"),
        }
    ))?;
    if damages > 0 {
        let shown = directory.display();
        out.line(format!("`situ repair --dry-run {shown}` says what can be saved, `situ repair {shown}` saves it."))?;
    }
    Ok(())
}

fn tell_damages(damages: &[Damaged], left_out: u64, out: &mut Output) -> Result<(), Failure> {
    for damage in damages.iter().take(DAMAGES_SHOWN) {
        let Damaged { file, offset, what, expected, found } = damage;
        out.line(format!("✗ {file}, byte {offset}, {what}: expected {expected}, found {found}"))?;
    }
    let listed = damages.len().saturating_sub(DAMAGES_SHOWN) as u64;
    match (listed, left_out) {
        (0, 0) => Ok(()),
        (listed, 0) => out.line(format!("… {listed} more; --json lists them")),
        (listed, left_out) => out.line(format!("… {} more; --json lists {listed} of them", listed + left_out)),
    }
}

#[derive(Serialize)]
struct Repaired {
    dry_run: bool,
    was_sound: bool,
    nothing_lost: bool,
    rebuilt: bool,
    keyspaces: Vec<String>,
    tables_kept: u64,
    tables_salvaged: u64,
    tables_lost: u64,
    log_records: u64,
    damages: Vec<Damaged>,
    lost_ranges: Vec<LostKeys>,
    lost_writes: Vec<LostSequences>,
    lost_names: Vec<LostName>,
    without_manifest: bool,
    set_aside: Vec<SetAside>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct LostKeys {
    keyspace: String,
    table: u64,
    what: &'static str,
    /// Escaped like `scan` shows keys.
    begin: String,
    /// The first key behind; null: up to the last key there is.
    end: Option<String>,
}

#[derive(Serialize)]
struct LostSequences {
    first: Option<u64>,
    last: Option<u64>,
}

/// A keyspace whose name no file has any more.
#[derive(Serialize)]
struct LostName {
    keyspace_id: u32,
    now: String,
}

#[derive(Serialize)]
struct SetAside {
    was: String,
    is: String,
}

impl From<RepairReport> for Repaired {
    fn from(report: RepairReport) -> Repaired {
        let lost_keys = report.lost_ranges.iter().map(|lost| LostKeys {
            keyspace: lost.keyspace.clone(),
            table: lost.table,
            what: match lost.kind {
                LossKind::RangeDeletions => "range deletions",
                _ => "entries",
            },
            begin: text::escape(&lost.begin),
            end: lost.end.as_deref().map(text::escape),
        });
        let lost_writes = report.lost_writes.iter().map(|lost| LostSequences { first: lost.first, last: lost.last });
        let lost_names = report.lost_names.iter().map(|lost| LostName { keyspace_id: lost.id, now: lost.now.clone() });
        let set_aside = report.set_aside.iter().map(|(was, is)| SetAside { was: was.to_string(), is: is.to_string() });
        Repaired {
            dry_run: report.dry_run,
            was_sound: report.was_sound,
            nothing_lost: report.nothing_lost(),
            rebuilt: report.rebuilt,
            tables_kept: report.tables_kept,
            tables_salvaged: report.tables_salvaged,
            tables_lost: report.tables_lost,
            log_records: report.log_records,
            lost_ranges: lost_keys.collect(),
            lost_writes: lost_writes.collect(),
            lost_names: lost_names.collect(),
            without_manifest: report.without_manifest,
            set_aside: set_aside.collect(),
            keyspaces: report.keyspaces,
            damages: report.damages.into_iter().map(Damaged::from).collect(),
            notes: report.notes,
        }
    }
}

pub(crate) fn repair(options: &RepairOptions, out: &mut Output) -> Outcome {
    let home = options.directory.home();
    if home.is_hash() {
        return crate::hash::repair(home.path(), options, out);
    }
    let dry_run = options.dry_run;
    let how = situ::RepairOptions::default().dry_run(dry_run).without_fast_disk(options.without_fast_disk);
    let how = options.fast_disk.iter().fold(how, TieredRepair::fast_disk);
    let failed = |error: situ::Error| Failure::store("cannot repair the store", home.path(), &error);
    // A repair locks the store itself. A dry run needs a lock too: it would take a running server's writes for losses.
    let _lock = match dry_run && home.path().is_dir() {
        true => keep_writers_out(&*home.volume().map_err(failed)?).map_err(|error| failed(error.into()))?,
        false => None,
    };
    let report = home.repair(how).map_err(failed)?;
    let repaired = Repaired::from(report);
    if out.is_json() {
        out.object(&repaired)?;
    } else {
        tell_repair(&repaired, out)?;
    }
    // Lost entries were lost before: a repair that ran did its work. A dry run says that there is work.
    Ok(if repaired.dry_run && !repaired.was_sound { Exit::Damage } else { Exit::Done })
}

fn tell_repair(repaired: &Repaired, out: &mut Output) -> Result<(), Failure> {
    if repaired.was_sound {
        return out.line("The store is sound: there is nothing to repair.");
    }
    tell_damages(&repaired.damages, 0, out)?;
    let counted = |count, one| {
        let would = match (repaired.dry_run, count) {
            (true, _) => "would be",
            (false, 1) => "was",
            (false, _) => "were",
        };
        format!("{} {would}", text::plural(count, one))
    };
    out.line(format!(
        "{} kept, {} salvaged in part, {} lost; {} replayed from the log",
        counted(repaired.tables_kept, "table"),
        repaired.tables_salvaged,
        repaired.tables_lost,
        counted(repaired.log_records, "record")
    ))?;
    if repaired.rebuilt {
        let rebuilds = if repaired.dry_run { "would rebuild" } else { "rebuilt" };
        out.line(format!(
            "The manifest cannot be used. The repair {rebuilds} the store from the tables that it found."
        ))?;
    }
    for LostKeys { keyspace, table, what, begin, end } in &repaired.lost_ranges {
        let end = end.as_deref().map(|end| format!("up to, not including, {}", text::clip(end, 30)));
        let end = end.unwrap_or_else(|| "to the last key".to_owned());
        let begin = if begin.is_empty() { "the first key".to_owned() } else { text::clip(begin, 30) };
        out.line(format!("lost: {what} of keyspace {keyspace:?}, keys from {begin} {end} (table {table})"))?;
    }
    if !repaired.lost_ranges.is_empty() {
        out.line("Keys of a lost range may be missing, have an older value, or be back although they were deleted.")?;
    }
    for LostSequences { first, last } in &repaired.lost_writes {
        let numbers = match (first, last) {
            (Some(first), Some(last)) => format!("{first} to {last}"),
            (Some(first), None) => format!("{first} to the end of the log"),
            (None, Some(last)) => format!("up to {last}"),
            (None, None) => "not known".to_owned(),
        };
        out.line(format!("lost: writes that were in the log alone, sequence numbers {numbers}"))?;
    }
    for LostName { keyspace_id, now } in &repaired.lost_names {
        out.line(format!("lost: the old name of keyspace {keyspace_id}. The keyspace is now called {now:?}"))?;
    }
    for SetAside { was, is } in &repaired.set_aside {
        match repaired.dry_run {
            true => out.line(format!("{was} would be set aside"))?,
            false => out.line(format!("{was} was set aside as {is}"))?,
        }
    }
    for note in &repaired.notes {
        out.line(format!("! {note}"))?;
    }
    let unknown = repaired.nothing_lost && repaired.without_manifest;
    out.line(match (repaired.dry_run, repaired.nothing_lost) {
        (true, true) if unknown => "Nothing was changed. In the tables and the log, a repair would lose nothing. Without a manifest, other losses cannot be seen.",
        (false, true) if unknown => "Repaired. In the tables and the log, nothing is lost. Without a manifest, other losses cannot be seen.",
        (true, true) => "Nothing was changed. A repair would lose nothing.",
        (true, false) => "Nothing was changed. A repair would lose what is listed, and save the rest.",
        (false, true) => "Repaired. Nothing is lost.",
        (false, false) => "Repaired. What is listed as lost is lost; everything else is there.",
    })
}
