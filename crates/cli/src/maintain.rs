//! Work on a whole store: `compact`, `verify`.

use crate::DONE;
use crate::failure::{Exit, Failure, Outcome};
use crate::options::{CompactOptions, VerifyOptions};
use crate::output::Output;
use crate::store::Writable;
use crate::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use situ::VerifyReport;
use situ::device::Env;
use situ::storage::{self, DirectoryVolume, Lock, Volume};
use std::path::Path;
use std::sync::Arc;
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
    let writable = Writable::open(&options.directory.path(), false)?;
    let names = match &options.keyspace {
        Some(name) => vec![name.clone()],
        None => writable.store.keyspace_names(),
    };
    for name in names {
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
                done.keyspace,
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

/// Damages shown in words; `--json` has all.
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

impl From<VerifyReport> for Verified {
    fn from(report: VerifyReport) -> Verified {
        Verified {
            sound: report.is_sound(),
            files: report.files,
            bytes: report.bytes,
            entries: report.entries,
            damages: report
                .damages
                .into_iter()
                .map(|damage| Damaged {
                    file: damage.file,
                    offset: damage.offset,
                    what: damage.what,
                    expected: damage.expected,
                    found: damage.found,
                })
                .collect(),
            damages_left_out: report.damages_left_out,
            warnings: report.warnings,
            orphans: report.orphans.iter().map(ToString::to_string).collect(),
            seconds: report.duration.as_secs_f64(),
        }
    }
}

pub(crate) fn verify(options: &VerifyOptions, out: &mut Output) -> Outcome {
    let directory = options.directory.path();
    let failed = |error: situ::Error| Failure::store("cannot verify the store", &directory, &error);
    let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(&directory).map_err(|error| failed(error.into()))?);
    let _lock = keep_writers_out(&*volume).map_err(|error| failed(error.into()))?;
    let bar = progress_bar();
    let report = situ::verify(&volume, &Env::system(), &mut |progress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes_done);
        bar.set_message(progress.at);
    });
    bar.finish_and_clear();
    let verified = Verified::from(report.map_err(failed)?);
    if out.is_json() {
        out.object(&verified)?;
    } else {
        tell(&verified, &directory, out)?;
    }
    Ok(if verified.sound { Exit::Done } else { Exit::Damage })
}

/// A store that is written to shows damages that are none. On a disk that cannot be written, nobody writes.
fn keep_writers_out(volume: &dyn Volume) -> storage::Result<Option<Box<dyn Lock>>> {
    match volume.lock() {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ storage::Error::Locked { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

fn tell(verified: &Verified, directory: &Path, out: &mut Output) -> Result<(), Failure> {
    for damage in verified.damages.iter().take(DAMAGES_SHOWN) {
        let Damaged { file, offset, what, expected, found } = damage;
        out.line(format!("✗ {file}, byte {offset}, {what}: expected {expected}, found {found}"))?;
    }
    let damages = verified.damages.len() as u64 + verified.damages_left_out;
    if damages > DAMAGES_SHOWN as u64 {
        out.line(format!("… {} more; --json has them", damages - DAMAGES_SHOWN as u64))?;
    }
    for warning in &verified.warnings {
        out.line(format!("! {warning}"))?;
    }
    for orphan in &verified.orphans {
        out.line(format!("! {orphan} belongs to nothing; the next open removes it"))?;
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

/// Progress on stderr, if that is a terminal.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {bytes_per_sec}, {eta} to go  {msg}");
    // The template is a constant and good.
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
