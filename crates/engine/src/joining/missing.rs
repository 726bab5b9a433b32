//! A fast disk that is needed and was not given: what lies on it, and how to go on without a loss.
//!
//! As a rule DISKS at home says that there is one. If DISKS is gone, the manifest says it as long as it names tables there that
//! are not at home. And where the first log file that it needs is not at home, the log may be on a fast disk that nobody knows of
//! any more. Then neither an opening nor a repair goes on before it was told where the disk is, or that
//! there is none: a repair that is told nothing would give up what lies there.
//!
//! **Limits.** Who names volumes and not a directory has named all that there are, and is asked about tables only. A store
//! that has no table on the fast disk, and whose log began at home and goes on there, finds a log that ends too early, and says so as
//! of a store with one disk.

use super::{Given, Joined};
use crate::disks::FAST;
use crate::members::{Home, last_seen};
use crate::open::{State, needed_logs};
use crate::version::TableSource;
use crate::{Error, Result, manifest};
use situ_device::Env;
use situ_storage::{Corruption, Error as StorageError, FileMeta, FileName, Volume};
use situ_table::BlockCache;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a store does not open without its fast disk.
pub(super) fn named(given: &Given, env: &Env, home: &Home) -> Error {
    let lies = match what_lies_on_it(given, env) {
        Ok(text) => text,
        Err(error) => format!("What lies on it is not known: {error}."),
    };
    Error::Disks(format!(
        "the store in {} has a fast disk, which was not given or is not there.{} {lies} Open the store with that disk, by \
         its name if it has moved; if it is lost, repair the store without it (`situ repair --without-fast-disk`), which \
         goes on with what the capacity disk holds and says what is gone",
        given.capacity.location(),
        last_seen(home)
    ))
}

/// What the manifest in force at home says; `None` if there is none.
fn in_force(given: &Given, env: &Env) -> Result<Option<State>> {
    let volume = &given.capacity;
    let Some(number) = manifest::current(&**volume)? else { return Ok(None) };
    let source = Arc::new(TableSource::new(Arc::clone(volume), BlockCache::new(0), env, 16));
    State::replay(manifest::read(&**volume, number)?.edits, &source).map_err(Error::Invalid).map(Some)
}

/// What the manifest says to be on the fast disk, in a sentence or two.
fn what_lies_on_it(given: &Given, env: &Env) -> Result<String> {
    let Some(state) = in_force(given, env)? else { return Ok("Nothing but an empty log lies on it.".to_owned()) };
    let mut levels: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    for (level, file) in state.keyspaces.values().flat_map(|k| k.version.files()) {
        if file.meta.volume == FAST {
            let (tables, bytes) = levels.entry(level).or_default();
            (*tables, *bytes) = (*tables + 1, *bytes + file.meta.bytes);
        }
    }
    let tables: Vec<String> =
        levels.iter().map(|(level, (tables, bytes))| format!("{tables} of level {level} with {bytes} bytes")).collect();
    let first = state.keyspaces.values().map(|k| k.log_number).min().filter(|number| *number > 0);
    let logs = needed_logs(&state, given.capacity.list()?.iter().map(|file| file.name));
    let log = match first {
        Some(first) if !logs.contains(&first) => "the log, with every write that is in no table yet,",
        _ => "no part of the log that is needed",
    };
    let tables = if tables.is_empty() { "no tables".to_owned() } else { format!("tables: {}", tables.join(", ")) };
    Ok(format!("On it are {log} and {tables}."))
}

/// What is damaged if a fast disk says that it is the store's, and the home has no DISKS.
pub(super) fn disks_file(given: &Given) -> Error {
    let damage = no_such_file(&given.capacity.location(), FileName::Disks, "a file that names the store's fast disk");
    StorageError::Corruption(damage.into()).into()
}

/// What is damaged if a fast disk does not say whose it is.
pub(super) fn member_file(at: &str) -> Corruption {
    no_such_file(at, FileName::Member, "a file that says whose disk this is")
}

fn no_such_file(place: &str, name: FileName, expected: &str) -> Corruption {
    let (file, found) = (format!("{place}/{name}"), "no such file".to_owned());
    Corruption { file, offset: 0, what: "file".to_owned(), expected: expected.to_owned(), found }
}

/// Whether the store needs a file that is not at home.
pub(super) fn home_lacks_a_file(home: &dyn Volume, state: &State) -> situ_storage::Result<bool> {
    Ok(!state.missing_files(&home.list()?).is_empty())
}

/// # Errors
/// As [`refuse_unnamed`]. Where no manifest can be read, nothing is known, and it is the repair that tells of that.
pub(super) fn look_for_unnamed(given: &Given, env: &Env) -> Result<()> {
    match in_force(given, env) {
        Ok(Some(state)) => refuse_unnamed(given, &state, &given.capacity.list()?),
        Ok(None) | Err(_) => Ok(()),
    }
}

impl Joined {
    /// # Errors
    /// As [`refuse_unnamed`], of a store that has one disk as far as it was found.
    pub(crate) fn refuse_unnamed(&self, given: &Given, state: &State, files: &[FileMeta]) -> Result<()> {
        if self.disks.is_none() { refuse_unnamed(given, state, files) } else { Ok(()) }
    }
}

/// `files` are all that the home has.
///
/// # Errors
/// The home has no DISKS, and not all that `state` needs: what is missing is, or may be, on a fast disk.
fn refuse_unnamed(given: &Given, state: &State, files: &[FileMeta]) -> Result<()> {
    if Home::read(&*given.capacity)?.is_some() {
        return Ok(());
    }
    let missing = state.missing_files(files);
    let gone = |is: fn(&FileName) -> bool| {
        missing.iter().find(|missing| missing.on_fast_disk && missing.is_gone() && is(&missing.name))
    };
    let home = given.capacity.location();
    let is_log = |name: &FileName| matches!(name, FileName::Log(_));
    let (what, if_not) = if let Some(table) = gone(|name| matches!(name, FileName::Table(_))) {
        let what = format!(
            "the store in {home} has a fast disk, on which the manifest has {} for one, and the file DISKS, which says where that \
             disk is, is not at home any more",
            table.name
        );
        (what, "the disk is lost for good")
    } else if let Some(log) = gone(is_log).filter(|_| given.place.is_some()) {
        let what = format!(
            "the store in {home} needs {}, which is not at home. If the store has a fast disk, that log file may be there, and \
             the file DISKS, which says where that disk is, is not at home any more",
            log.name
        );
        (what, "the store has no fast disk, or it is lost for good,")
    } else {
        return Ok(());
    };
    Err(Error::Disks(format!(
        "{what}. Nothing was changed. Name the disk to a repair, `situ repair --fast-disk PATH {home}`: it writes DISKS again, and \
         nothing is lost. Only if {if_not} repair without it (`situ repair --without-fast-disk {home}`; with `--dry-run` that \
         says what would be lost)"
    )))
}
