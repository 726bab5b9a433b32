//! `backup`: incremental backups.

use crate::DONE;
use crate::failure::{Exit, Failure, Outcome};
use crate::options::{
    BackupCommand, BackupCreateOptions, BackupListOptions, BackupPruneOptions, BackupRestoreOptions,
    BackupVerifyOptions,
};
use crate::output::Output;
use crate::progress;
use crate::store::Writable;
use crate::text;
use indicatif::ProgressBar;
use serde::Serialize;
use situ::Store;
use situ::backup::{Backup, Backups, Depth, Progress};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub(crate) fn backup(command: &BackupCommand, out: &mut Output) -> Outcome {
    match command {
        BackupCommand::Create(options) => create(options, out),
        BackupCommand::List(options) => list(options, out),
        BackupCommand::Verify(options) => verify(options, out),
        BackupCommand::Restore(options) => restore(options, out),
        BackupCommand::Prune(options) => prune(options, out),
    }
}

/// An operation on a directory of backups failed. The texts of its errors have the cures.
fn failed(what: &str, backups: &Path, error: &situ::Error) -> Failure {
    let failure = Failure::new(what, error);
    match error.is_corruption() {
        true => {
            let shown = backups.display();
            let cure = format!(
                "run `situ backup verify {shown}` to see everything that is damaged, and which backups are whole"
            );
            failure.cure(cure).ending(Exit::Damage)
        }
        false => failure,
    }
}

fn open(what: &str, directory: &Path) -> Result<Backups, Failure> {
    Backups::open(directory).map_err(|error| failed(what, directory, &error))
}

#[derive(Serialize)]
struct Created {
    directory: String,
    id: u64,
    last_sequence: u64,
    files: u64,
    bytes: u64,
    kept_files: u64,
    added_files: u64,
    added_bytes: u64,
    base: Option<u64>,
    seconds: f64,
}

fn create(options: &BackupCreateOptions, out: &mut Output) -> Outcome {
    let home = options.directory.home();
    if home.is_hash() {
        let why = "has no backups: `situ dump` writes its items to a file";
        return Err(Failure::not_for_hash("back up", home.path(), why));
    }
    let writable = Writable::open(&home, false, out)?;
    create_of(&writable.store, home.path(), &options.output, out)?;
    writable.close()?;
    DONE
}

/// Makes a backup of an open store, whose home is `home`.
pub(crate) fn create_of(store: &Store, home: &Path, directory: &Path, out: &mut Output) -> Result<(), Failure> {
    let what = "cannot make a backup";
    let started = Instant::now();
    let backups = Backups::open_or_make(directory).map_err(|error| failed(what, directory, &error))?;
    let bar = out.bar(None, 0, "{spinner} {bytes} copied, {bytes_per_sec}");
    let on_bytes = bar.clone();
    let report = backups.create_with(store, Arc::new(move |bytes| on_bytes.inc(bytes)));
    bar.finish_and_clear();
    let report = report.map_err(|error| match error.is_corruption() {
        // A backup reads the store, and of earlier backups what it can compare.
        true => Failure::store(what, home, &error),
        false => Failure::new(what, error),
    })?;
    if let Some(error) = report.not_noted {
        out.warn(&format!("the backup is whole, but the store could not note it, so the next one reads more: {error}"));
    }
    let created = Created {
        directory: directory.display().to_string(),
        id: report.id,
        last_sequence: report.last_sequence,
        files: report.files,
        bytes: report.bytes,
        kept_files: report.kept_files,
        added_files: report.added_files,
        added_bytes: report.added_bytes,
        base: report.base,
        seconds: started.elapsed().as_secs_f64(),
    };
    if out.is_json() {
        return out.object(&created);
    }
    out.line(format!(
        "{}: backup {} with {} and {}: {} new with {}, {} known from earlier backups, in {:.1} s",
        text::on_one_line(&created.directory),
        created.id,
        text::plural(created.files, "file"),
        text::bytes(created.bytes),
        created.added_files,
        text::bytes(created.added_bytes),
        created.kept_files,
        created.seconds
    ))
}

/// A backup, as `list` shows it. A damaged one has nothing but its number and the cause.
#[derive(Serialize)]
struct Listed<'a> {
    id: u64,
    time: String,
    last_sequence: u64,
    files: u64,
    bytes: u64,
    added_bytes: u64,
    program: &'a str,
}

#[derive(Serialize)]
struct ListedDamage {
    id: u64,
    damage: String,
}

fn list(options: &BackupListOptions, out: &mut Output) -> Outcome {
    let what = "cannot list the backups";
    let listing = open(what, &options.backups)?.list().map_err(|error| failed(what, &options.backups, &error))?;
    for backup in &listing.backups {
        let Backup { id, unix_ms, last_sequence, files, bytes, added_bytes, program, .. } = backup;
        let (id, last_sequence, files) = (*id, *last_sequence, *files);
        let (bytes, added_bytes, time) = (*bytes, *added_bytes, text::utc(unix_ms / 1000));
        if out.is_json() {
            out.object(&Listed { id, time, last_sequence, files, bytes, added_bytes, program })?;
        } else {
            out.line(format!(
                "{id:>6}  {time}  {}, {}, {} new, by {}",
                text::plural(files, "file"),
                text::bytes(bytes),
                text::bytes(added_bytes),
                text::on_one_line(program)
            ))?;
        }
    }
    for (id, error) in &listing.damaged {
        if out.is_json() {
            out.object(&ListedDamage { id: *id, damage: error.to_string() })?;
        } else {
            out.line(format!("✗ {id:>4}  {error}"))?;
        }
    }
    if listing.backups.is_empty() && listing.damaged.is_empty() && !out.is_json() {
        out.line("There are no backups.")?;
    }
    Ok(if listing.damaged.is_empty() { Exit::Done } else { Exit::Damage })
}

#[derive(Serialize)]
struct Verified {
    sound: bool,
    backups: Vec<u64>,
    files: u64,
    bytes: u64,
    damages: Vec<Damaged>,
    seconds: f64,
}

#[derive(Serialize)]
struct Damaged {
    file: String,
    what: String,
    backups: Vec<u64>,
}

fn verify(options: &BackupVerifyOptions, out: &mut Output) -> Outcome {
    let what = "cannot verify the backups";
    let started = Instant::now();
    let depth = if options.quick { Depth::Names } else { Depth::Contents };
    let bar = reading_bar();
    let report = open(what, &options.backups)?.verify(options.id, depth, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = report.map_err(|error| failed(what, &options.backups, &error))?;
    let damaged = |damage: &situ::backup::BackupDamage| Damaged {
        file: damage.file.display().to_string(),
        what: damage.what.clone(),
        backups: damage.backups.clone(),
    };
    let verified = Verified {
        sound: report.damages.is_empty(),
        backups: report.backups,
        files: report.files,
        bytes: report.bytes,
        damages: report.damages.iter().map(damaged).collect(),
        seconds: started.elapsed().as_secs_f64(),
    };
    let exit = if verified.sound { Exit::Done } else { Exit::Damage };
    if out.is_json() {
        out.object(&verified)?;
        return Ok(exit);
    }
    for damage in &report.damages {
        out.line(format!("✗ {damage}"))?;
    }
    out.line(format!(
        "{} with {} and {} {} in {:.1} s: {}",
        text::plural(verified.backups.len() as u64, "backup"),
        text::plural(verified.files, "file"),
        text::bytes(verified.bytes),
        if options.quick { "looked for" } else { "read" },
        verified.seconds,
        match report.damages.len() {
            0 if options.quick => "names and lengths are right".to_owned(),
            0 => "all is sound".to_owned(),
            damages => text::plural(damages as u64, "damage"),
        }
    ))?;
    if !verified.sound {
        out.line("A damaged backup cannot be restored. Remove the damaged files, then make a new backup: it copies what the store still has. A segment that the store has trimmed since stays damaged.")?;
    }
    Ok(exit)
}

fn reading_bar() -> ProgressBar {
    progress::bar(Some(0), 0, "{bar:30} {percent:>3} %  {bytes_per_sec}, {eta} to go")
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.bytes_total);
    bar.set_position(progress.bytes_done);
}

#[derive(Serialize)]
struct Restored {
    directory: String,
    id: u64,
    last_sequence: u64,
    files: u64,
    bytes: u64,
    kept_files: u64,
    seconds: f64,
}

fn restore(options: &BackupRestoreOptions, out: &mut Output) -> Outcome {
    let what = "cannot restore the backup";
    let started = Instant::now();
    let bar = reading_bar();
    let report =
        open(what, &options.backups)?.restore(options.id, &options.output, &mut |progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = report.map_err(|error| failed(what, &options.backups, &error))?;
    let restored = Restored {
        directory: options.output.display().to_string(),
        id: report.id,
        last_sequence: report.last_sequence,
        files: report.files,
        bytes: report.bytes,
        kept_files: report.kept_files,
        seconds: started.elapsed().as_secs_f64(),
    };
    if out.is_json() {
        out.object(&restored)?;
    } else {
        let kept = match restored.kept_files {
            0 => String::new(),
            kept => format!(", {kept} of them copied earlier"),
        };
        out.line(format!(
            "{}: a store of backup {}, {} with {}{kept}, in {:.1} s",
            text::on_one_line(&restored.directory),
            restored.id,
            text::plural(restored.files, "file"),
            text::bytes(restored.bytes),
            restored.seconds
        ))?;
    }
    DONE
}

#[derive(Serialize)]
struct Pruned {
    removed: Vec<u64>,
    kept: Vec<u64>,
    removed_files: u64,
    freed_bytes: u64,
}

fn prune(options: &BackupPruneOptions, out: &mut Output) -> Outcome {
    let what = "cannot remove backups";
    let backups = open(what, &options.backups)?;
    let report = match options.keep {
        Some(keep) => backups.prune(keep),
        None => backups.remove(&options.ids),
    };
    let report = report.map_err(|error| failed(what, &options.backups, &error))?;
    let pruned = Pruned {
        removed: report.removed,
        kept: report.kept,
        removed_files: report.removed_files,
        freed_bytes: report.freed_bytes,
    };
    if out.is_json() {
        out.object(&pruned)?;
    } else {
        out.line(format!(
            "{} and {} removed, {} free again; {} left",
            text::plural(pruned.removed.len() as u64, "backup"),
            text::plural(pruned.removed_files, "file"),
            text::bytes(pruned.freed_bytes),
            text::plural(pruned.kept.len() as u64, "backup"),
        ))?;
    }
    DONE
}
