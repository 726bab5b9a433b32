//! A store that cannot be opened, file by file: what each says of itself, or why it cannot be read.

use super::{log, table};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ_storage::{Error, FileName, Volume};
use std::path::Path;

#[derive(Serialize)]
struct Report {
    location: String,
    sound: bool,
    /// The reason why the store cannot be opened.
    why: String,
    files: Vec<FileReport>,
}

#[derive(Serialize)]
struct FileReport {
    name: String,
    bytes: u64,
    readable: bool,
    /// The contents of the file, or its fault.
    note: String,
}

pub(super) fn show(volume: &dyn Volume, directory: &Path, error: &situ::Error, out: &mut Output) -> Outcome {
    let listed = volume.list();
    let mut listed = listed.map_err(|error| Failure::store("cannot look into the store", directory, &error.into()))?;
    listed.sort_by_key(|file| file.name);
    let files = listed.iter().map(|file| look_at(volume, file.name, file.bytes)).collect::<Result<_, Error>>();
    let files = files.map_err(|error| Failure::store("cannot look into the store", directory, &error.into()))?;
    let report = Report { location: volume.location(), sound: false, why: error.to_string(), files };
    if out.is_json() {
        out.object(&report)?;
    } else {
        draw(&report, directory, out)?;
    }
    Ok(Exit::Damage)
}

/// # Errors
/// There is no memory to read the file, which may be sound.
fn look_at(volume: &dyn Volume, name: FileName, bytes: u64) -> Result<FileReport, Error> {
    let (readable, note) = match name {
        FileName::Table(number) => match table::open(volume, number) {
            Ok(table) => {
                let properties = table.properties();
                let keys = [properties.smallest_key(), properties.largest_key()];
                let [first, last] = keys.map(|key| key.map_or(String::new(), |key| text::shorten(key.user, 16)));
                let entries = text::plural_of(properties.entries, "entry", "entries");
                (true, format!("{entries} of keyspace number {}, {first}…{last}", properties.keyspace_id))
            }
            Err(error @ Error::OutOfMemory { .. }) => return Err(error),
            Err(error) => (false, error.to_string()),
        },
        FileName::Log(number) => match log::gather(volume, number) {
            Ok(report) => (!report.damaged, report.describe()),
            Err(error @ Error::OutOfMemory { .. }) => return Err(error),
            Err(error) => (false, error.to_string()),
        },
        FileName::Values(_) => (true, "large values; tables have handles for them".to_owned()),
        FileName::Manifest(_) => (true, "lists the tables of each keyspace".to_owned()),
        FileName::ManifestCopy(_) => (true, "a second copy of the manifest".to_owned()),
        FileName::Current => (true, "names the manifest in force".to_owned()),
        FileName::Lock => (true, "the process that writes holds it".to_owned()),
        FileName::Identity => (true, "says that this is a store".to_owned()),
        FileName::Disks => (true, "names the store's fast disk".to_owned()),
        FileName::Member => (true, "says whose fast disk this is".to_owned()),
        FileName::Spare(_) => (true, "a log file kept for later".to_owned()),
        FileName::Temporary(_) => (true, "unfinished; removed at the next open".to_owned()),
        FileName::Damaged(_) => (true, "set aside by a repair; nothing reads it".to_owned()),
        _ => (true, String::new()),
    };
    Ok(FileReport { name: name.to_string(), bytes, readable, note })
}

fn draw(report: &Report, directory: &Path, out: &mut Output) -> Result<(), Failure> {
    out.line(format!("Store in {}", report.location))?;
    out.line(format!("It cannot be opened: {}", report.why))?;
    out.line("")?;
    for file in &report.files {
        let mark = if file.readable { ' ' } else { '✗' };
        out.line(format!("{mark} {:<16} {:>9}  {}", file.name, text::bytes(file.bytes), file.note))?;
    }
    out.line("")?;
    let shown = directory.display();
    out.line(format!("`situ verify {shown}` finds everything that is damaged, `situ repair {shown}` saves the rest."))
}
