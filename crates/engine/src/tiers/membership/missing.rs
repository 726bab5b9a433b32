//! A fast disk that is needed and was not given: its files, and the ways to go on without a loss.
//!
//! DISKS at home says whether there is a fast disk. Three more signs count:
//! * DISKS is gone, and the manifest names tables on a fast disk that are not at home. If manifests are damaged, or it
//!   is unknown which one is in force, the readable part of the youngest counts.
//! * DISKS knows of no fast disk, and the manifest in force does. Then DISKS is not believed.
//! * DISKS is gone, and so is the first log file that the store needs. The log may be on a fast disk, unless the
//!   manifest says that the store never had one.
//!
//! Then neither an opening nor a repair goes on before its caller names the place of the disk, or confirms that there
//! is none. A repair that goes on without an answer would give up the files there.
//!
//! **Limits.** A caller that names volumes and not a directory has named all that there are, and is asked about tables
//! only. A store may have no table on the fast disk, and a log that began at home and goes on there. Opening then finds
//! a log that ends too early, and says so as of a store with one disk.

use super::joined::Joined;
use super::refusals::last_seen;
use super::volumes::Given;
use crate::opening::open::{StoreState, needed_logs};
use crate::versions::manifest;
use crate::versions::version::TableSource;
use crate::{Error, Result};
use situ_base::Env;
use situ_disks::FAST;
use situ_disks::members::{Fast, Home};
use situ_storage::{Corruption, FileMeta, FileName, Volume};
use situ_table::BlockCache;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the error of a store that does not open without its fast disk.
pub(super) fn named(given: &Given, env: &Env, home: &Home) -> Error {
    let lies = match what_lies_on_it(given, env) {
        Ok(text) => text,
        Err(error) => format!("Situ could not find out what the fast disk holds: {error}."),
    };
    Error::Disks(format!(
        "the store in {} needs its fast disk, but the disk was not given or not found.{} {lies} If the disk has moved, open \
         the store with its new path (`--fast-disk PATH`). If the disk is lost, run `situ repair --without-fast-disk`. The \
         repair keeps what the capacity disk holds and lists what is lost",
        given.capacity.location(),
        last_seen(home)
    ))
}

/// Returns the state in the manifest in force at home; `None` if there is none.
fn in_force(given: &Given, env: &Env) -> Result<Option<StoreState>> {
    let volume = &given.capacity;
    let Some(number) = manifest::current(&**volume)? else { return Ok(None) };
    let source = Arc::new(TableSource::plain(Arc::clone(volume), BlockCache::new(0), env, 16));
    StoreState::replay(manifest::read_damaged(&**volume, number)?.edits, &source).map_err(Error::Invalid).map(Some)
}

/// Describes the files that the manifest has on the fast disk, in a sentence or two.
fn what_lies_on_it(given: &Given, env: &Env) -> Result<String> {
    let Some(state) = in_force(given, env)? else { return Ok("The fast disk holds only an empty log.".to_owned()) };
    let mut levels: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    for (level, file) in state.keyspaces.values().flat_map(|k| k.version.files()) {
        if file.meta.volume == FAST {
            let (tables, bytes) = levels.entry(level).or_default();
            (*tables, *bytes) = (*tables + 1, *bytes + file.meta.bytes);
        }
    }
    let tables: Vec<String> = levels
        .iter()
        .map(|(level, (tables, bytes))| {
            let plural = if *tables == 1 { "" } else { "s" };
            format!("{tables} table{plural} of level {level} ({bytes} bytes)")
        })
        .collect();
    let first = state.keyspaces.values().map(|k| k.log_number).min().filter(|number| *number > 0);
    let logs = needed_logs(&state, given.capacity.list()?.iter().map(|file| file.name));
    let log = match first {
        Some(first) if !logs.contains(&first) => "the log (the writes that are not in a table yet)",
        _ => "no log file that the store needs",
    };
    let tables = if tables.is_empty() { "no tables".to_owned() } else { tables.join(", ") };
    Ok(format!("The fast disk holds {log} and {tables}."))
}

/// Returns the damage if a fast disk says that it is the store's, and the home has no DISKS.
pub(super) fn disks_file(given: &Given) -> Corruption {
    no_such_file(&given.capacity.location(), FileName::Disks, "a file that names the store's fast disk")
}

/// Returns the damage if a fast disk does not name its store.
pub(super) fn member_file(at: &str) -> Corruption {
    no_such_file(at, FileName::Member, "a file that says whose disk this is")
}

fn no_such_file(place: &str, name: FileName, expected: &str) -> Corruption {
    let (file, found) = (format!("{place}/{name}"), "no such file".to_owned());
    Corruption { file, offset: 0, what: "file".to_owned(), expected: expected.to_owned(), found }
}

/// Returns true if the store needs a file that is not at home.
pub(super) fn home_lacks_a_file(home: &dyn Volume, state: &StoreState) -> situ_storage::Result<bool> {
    Ok(!state.missing_files(&home.list()?).is_empty())
}

/// # Errors
/// As [`refuse_unnamed`]. The readable parts of damaged manifests count.
pub(super) fn look_for_unnamed(given: &Given, env: &Env) -> Result<()> {
    let files = given.capacity.list()?;
    match in_force(given, env) {
        Ok(Some(state)) => refuse_unnamed(given, &state, &files),
        Ok(None) | Err(_) if Home::read(&*given.capacity)?.is_none() => {
            match remembered_on_fast(&*given.capacity, &files) {
                Some(name) => Err(refusal(given, Lost::Table(name), None)),
                None => Ok(()),
            }
        }
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Returns a table that is not at home, and that the youngest readable manifest has on a fast disk.
fn remembered_on_fast(home: &dyn Volume, files: &[FileMeta]) -> Option<FileName> {
    let mut on_fast = BTreeSet::new();
    for edit in manifest::readable_of_youngest(home, files) {
        for (_, removed) in &edit.removed {
            on_fast.remove(&removed.number);
        }
        let added = edit.added.iter().map(|(_, added)| &added.meta).filter(|meta| meta.volume == FAST);
        on_fast.extend(added.map(|meta| meta.number));
    }
    let is_at_home = |number: &u64| files.iter().any(|file| file.name == FileName::Table(*number));
    on_fast.into_iter().find(|number| !is_at_home(number)).map(FileName::Table)
}

impl Joined {
    /// # Errors
    /// As [`refuse_unnamed`], of a store that has one disk as far as it was found.
    pub(crate) fn refuse_unnamed(&self, given: &Given, state: &StoreState, files: &[FileMeta]) -> Result<()> {
        if self.disks.is_none() { refuse_unnamed(given, state, files) } else { Ok(()) }
    }
}

/// The missing file that shows that a store has a fast disk, or may have one.
enum Lost {
    Table(FileName),
    Log(FileName),
}

/// Refuses an opening without a fast disk that the store needs. `files` are all that the home has.
///
/// # Errors
/// The home has no DISKS, or one that knows no fast disk, and not all that `state` needs. The missing file is, or may
/// be, on a fast disk.
fn refuse_unnamed(given: &Given, state: &StoreState, files: &[FileMeta]) -> Result<()> {
    let known = Home::read(&*given.capacity)?;
    if known.as_ref().is_some_and(|home| home.fast != Fast::None) {
        return Ok(());
    }
    let missing = state.missing_files(files);
    let gone = |is: fn(&FileName) -> bool| {
        missing.iter().find(|missing| missing.on_fast_disk && missing.is_gone() && is(&missing.name))
    };
    let lost = if let Some(table) = gone(|name| matches!(name, FileName::Table(_))) {
        Lost::Table(table.name)
    } else if let Some(log) =
        gone(|name| matches!(name, FileName::Log(_))).filter(|_| given.place.is_some() && known.is_none())
        && may_have_fast_disk(&*given.capacity, state, files)?
    {
        Lost::Log(log.name)
    } else {
        return Ok(());
    };
    Err(refusal(given, lost, known.as_ref()))
}

/// Returns true if the manifest leaves it open that the store has a fast disk. A manifest with a copy comes from a
/// program that would have noted the disk in it.
fn may_have_fast_disk(home: &dyn Volume, state: &StoreState, files: &[FileMeta]) -> Result<bool> {
    let Some(number) = manifest::current(home)? else { return Ok(true) };
    let notes_disks = files.iter().any(|file| file.name == FileName::ManifestCopy(number));
    Ok(state.fast_disk || !notes_disks)
}

fn refusal(given: &Given, lost: Lost, known: Option<&Home>) -> Error {
    let home = given.capacity.location();
    let disks = match known {
        None => "The file DISKS, which says where that disk is, is missing in the home.",
        Some(_) => {
            "The file DISKS says that the store has no fast disk. DISKS is an old version, or a failed drain wrote it. Rename \
             DISKS before you do anything else."
        }
    };
    let (what, if_not) = match lost {
        Lost::Table(table) => {
            let what = format!(
                "the store in {home} needs a fast disk: the manifest says that {table}, among others, lies on it. {disks}"
            );
            (what, "the disk is lost for good")
        }
        Lost::Log(log) => {
            let what = format!(
                "the store in {home} needs {log}, which is missing in the home. If the store has a fast disk, that log file may \
                 be there. {disks}"
            );
            (what, "the store has no fast disk, or the disk is lost for good")
        }
    };
    Error::Disks(format!(
        "{what} Nothing was changed. To keep everything, run `situ repair --fast-disk PATH {home}`: the repair writes DISKS \
         again, and nothing is lost. Only if {if_not}, run `situ repair --without-fast-disk {home}`. With `--dry-run` the \
         command only shows what would be lost"
    ))
}
