//! `inspect`: what a store consists of.
//!
//! ```text
//! inspect            the whole: keyspaces, levels, tables, logs      tree.rs
//! inspect --table N  one table: its properties and blocks            table.rs
//! inspect --log N    one log file: its pages                         log.rs
//! ```
//!
//! A store that cannot be opened is shown file by file, each with what it says of itself or why it cannot be read.

mod files;
mod log;
mod table;
mod tree;

use crate::failure::{Failure, Outcome};
use crate::options::InspectOptions;
use crate::output::Output;
use situ::storage::{DirectoryVolume, Volume};
use situ::{Options, Store};
use std::sync::Arc;

/// Columns of what is drawn.
const COLUMNS: usize = 100;

pub(crate) fn inspect(options: &InspectOptions, out: &mut Output) -> Outcome {
    let directory = options.directory.path();
    let failed = |error: situ::Error| Failure::store("cannot look into the store", &directory, &error);
    let volume = || situ::files_of(&directory).map_err(failed);
    if let Some(number) = options.table {
        return table::show(&*volume()?, &directory, number, out);
    }
    if let Some(number) = options.log {
        return log::show(&*volume()?, &directory, number, out);
    }
    match Store::open_read_only(&directory, Options::default()) {
        Ok(store) => tree::show(&store, &*volume()?, &directory, options.all, out),
        Err(error) if directory.join("IDENTITY").exists() || directory.join("CURRENT").exists() => {
            // What is at home, if the fast disk is what is missing.
            let at_home = || DirectoryVolume::open(&directory).map(|volume| Arc::new(volume) as Arc<dyn Volume>);
            let volume = volume().or_else(|_| at_home().map_err(|error| failed(error.into())))?;
            files::show(&*volume, &directory, &error, out)
        }
        Err(error) => Err(Failure::store("cannot look into the store", &directory, &error)),
    }
}
