//! `inspect`: what a store consists of.
//!
//! ```text
//! inspect            the whole: keyspaces, levels, tables, logs      tree.rs
//! inspect --table N  one table: its properties and blocks            table.rs
//! inspect --log N    one log file: its pages                         log.rs
//! inspect --http A   compactions of a store that is being served     units.rs
//! inspect --units    accelerators that are there                     accelerators.rs
//! ```
//!
//! A store that cannot be opened is shown file by file, each with what it says of itself or why it cannot be read.
//!
//! Lines are cut only at the edge of a terminal.
//!
//! Another process may write to the store meanwhile: what cannot be read is damaged only if another look finds the
//! same.

mod accelerators;
mod files;
mod log;
mod table;
mod tree;
mod units;

use crate::failure::{Failure, Outcome};
use crate::options::InspectOptions;
use crate::output::Output;
use crate::store::Home;
use situ_storage::{self as storage, FileMeta, FileName};

/// Width of the drawing on a terminal, in columns. Other outputs are not cut.
const COLUMNS: usize = 100;
/// So often something is looked at that changes meanwhile.
const LOOKS_MAX: usize = 20;

/// Returns true if there is a store, which may be damaged.
fn has_a_store(home: &Home) -> bool {
    let is_mark = |file: &FileMeta| matches!(file.name, FileName::Identity | FileName::Current);
    home.volume().is_ok_and(|volume| volume.list().is_ok_and(|files| files.iter().any(is_mark)))
}

pub(crate) fn inspect(options: &InspectOptions, out: &mut Output) -> Outcome {
    if let Some(address) = options.http {
        return units::show(address, options.seconds, options.all, out);
    }
    if options.units {
        return accelerators::show(out);
    }
    let home = options.directory.home();
    let directory = home.path();
    if home.is_hash() && options.log.is_none() {
        return crate::hash::inspect(options, directory, out);
    }
    let failed = |error: situ::Error| Failure::store("cannot look into the store", directory, &error);
    let volume = || home.files().map_err(failed);
    if let Some(number) = options.table {
        return table::show(&*volume()?, directory, number, out);
    }
    if let Some(number) = options.log {
        return log::show(&*volume()?, directory, number, out);
    }
    let mut seen = tree::Seen::default();
    for left in (0..LOOKS_MAX).rev() {
        match home.open_read_only() {
            Ok(store) => {
                if let Some(report) = tree::look(&store, &*volume()?, directory, &mut seen, left == 0)? {
                    return tree::show(&report, directory, options.all, out);
                }
            }
            Err(error @ situ::Error::Changed { .. }) => return Err(failed(error)),
            Err(error) if error.is_permission_denied() => return Err(failed(error)),
            Err(error @ situ::Error::Storage(storage::Error::OutOfMemory { .. })) => return Err(failed(error)),
            Err(error) if has_a_store(&home) => {
                // The files at home, if only the fast disk is missing.
                let volume = volume().or_else(|_| home.volume().map_err(failed))?;
                return files::show(&*volume, directory, &error, out);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed(situ::Error::Changed { location: directory.display().to_string() }))
}
