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

use super::refusals::last_seen;
use super::volumes::Given;
use crate::members::{Fast, Home};
use crate::set::FAST;
use situ_base::Env;
use situ_engine::places::NeededFiles;
use situ_engine::places::{KnownStore, manifest_has_copy, tables_of_youngest_manifest};
use situ_engine::{Error, Result};
use situ_storage::{Corruption, FileMeta, FileName, Volume};
use std::collections::BTreeMap;

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

/// Describes the files that the manifest has on the fast disk, in a sentence or two.
fn what_lies_on_it(given: &Given, env: &Env) -> Result<String> {
    let Some(known) = KnownStore::in_force(&given.capacity, env)? else {
        return Ok("The fast disk holds only an empty log.".to_owned());
    };
    let needed = known.needed(&given.capacity.list()?);
    let mut levels: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    for table in needed.tables.iter().filter(|table| table.volume == FAST) {
        let (tables, bytes) = levels.entry(table.level).or_default();
        (*tables, *bytes) = (*tables + 1, *bytes + table.bytes);
    }
    let tables: Vec<String> = levels
        .iter()
        .map(|(level, (tables, bytes))| {
            let plural = if *tables == 1 { "" } else { "s" };
            format!("{tables} table{plural} of level {level} ({bytes} bytes)")
        })
        .collect();
    let log = match needed.first_log {
        Some(first) if !needed.logs.contains(&first) => "the log (the writes that are not in a table yet)",
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

/// # Errors
/// As [`refuse_unnamed`]. The readable parts of damaged manifests count.
pub(super) fn look_for_unnamed(given: &Given, env: &Env) -> Result<()> {
    let files = given.capacity.list()?;
    match KnownStore::in_force(&given.capacity, env) {
        Ok(Some(known)) => refuse_unnamed(given, &known.needed(&files), &files),
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
    let on_fast = tables_of_youngest_manifest(home, files).into_iter().filter(|(_, volume)| *volume == FAST);
    let is_at_home = |number: &u64| files.iter().any(|file| file.name == FileName::Table(*number));
    on_fast.map(|(number, _)| number).find(|number| !is_at_home(number)).map(FileName::Table)
}

/// The missing file that shows that a store has a fast disk, or may have one.
enum Lost {
    Table(FileName),
    Log(FileName),
}

/// Refuses an opening without a fast disk that the store needs. `files` are all that the home has.
///
/// # Errors
/// The home has no DISKS, or one that knows no fast disk, and a needed file is missing. That file is, or may be, on a
/// fast disk.
pub(super) fn refuse_unnamed(given: &Given, needed: &NeededFiles, files: &[FileMeta]) -> Result<()> {
    let known = Home::read(&*given.capacity)?;
    if known.as_ref().is_some_and(|home| home.fast != Fast::None) {
        return Ok(());
    }
    let gone = |is: fn(&FileName) -> bool| {
        needed.missing.iter().find(|missing| missing.may_be_elsewhere && missing.is_gone && is(&missing.name))
    };
    let lost = if let Some(table) = gone(|name| matches!(name, FileName::Table(_))) {
        Lost::Table(table.name)
    } else if let Some(log) =
        gone(|name| matches!(name, FileName::Log(_))).filter(|_| given.place.is_some() && known.is_none())
        && may_have_fast_disk(&*given.capacity, needed, files)?
    {
        Lost::Log(log.name)
    } else {
        return Ok(());
    };
    Err(refusal(given, lost, known.as_ref()))
}

/// Returns true if the manifest leaves it open that the store has a fast disk. A manifest with a copy comes from a
/// program that would have noted the disk in it.
fn may_have_fast_disk(home: &dyn Volume, needed: &NeededFiles, files: &[FileMeta]) -> Result<bool> {
    Ok(match manifest_has_copy(home, files)? {
        Some(has_copy) => needed.notes_further_volumes || !has_copy,
        None => true,
    })
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
