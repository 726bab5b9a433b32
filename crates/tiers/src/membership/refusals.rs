//! The errors of a refused opening, in words: the finding, the assurance that nothing was changed, and the cure.
//!
//! These functions look at nothing; the cases (`cases.rs`) have looked.

use super::volumes::Access;
use crate::members::{Fast, Home, Id, Member};
use situ_engine::Error;
use situ_storage::{Corruption, FileName};
use std::path::Path;

/// Returns the error if the caller names a disk, and goes on without one.
pub(super) fn given_and_given_up(at: &str) -> Error {
    Error::Invalid(format!("a repair without the fast disk was asked for, and {at} was given as one"))
}

/// Returns the error if DISKS is damaged, and the caller of a repair did not name the disk's place.
pub(super) fn place_unknown(damage: &Corruption) -> Error {
    Error::Disks(format!(
        "{damage}; so it is not known where the store's fast disk is. To keep everything, run `situ repair --fast-disk \
         PATH` (`RepairOptions::fast_disk`), and nothing is lost. Only if the store has no fast disk, or the disk is lost \
         for good, run `situ repair --without-fast-disk`. With `--dry-run` the command only shows what would be lost"
    ))
}

/// Returns the error if MEMBER names `other`, and DISKS in `at_home` names `home`, another store.
pub(super) fn another_store(other: Id, at: &str, home: &Home, at_home: &str) -> Error {
    let own = match home.fast {
        Fast::Used(_) => has_another(home, at_home),
        _ => " Give this store a disk of its own".to_owned(),
    };
    let ours = home.store;
    of_others(&format!(
        "{at} is the fast disk of another store, {other}, and not of the one in {at_home}, which is {ours}.{own}"
    ))
}

/// Returns the error if MEMBER names `other`, and there is no DISKS in `at_home`.
pub(super) fn no_disks_file(other: Id, at: &str, at_home: &str) -> Error {
    of_others(&format!(
        "{at} is the fast disk of the store {other}, and there is no file DISKS in {at_home} that says that it is the one \
         there. If it is, that file was lost: `situ repair --fast-disk {at} {at_home}` finds out, writes it again and \
         loses nothing. If not, it is the disk of another store; give this one a disk of its own"
    ))
}

/// Returns the error if the disk is, or may be, another store's, as `whose` says.
fn of_others(whose: &str) -> Error {
    Error::Disks(format!(
        "{whose}. Nothing was changed. Only when that store is gone for good and nobody wants what is on the disk any more, \
         empty it: remove its files, or format it with `--force`"
    ))
}

/// Returns the error if DISKS names a disk, and there is no MEMBER on the one in `at`.
pub(super) fn no_member_file(at: &str, home: &Home, at_home: &str) -> Error {
    Error::Disks(format!(
        "{at} is not the fast disk of the store in {at_home}: it has no file MEMBER. Is it mounted?{} If it is the \
         disk and only that file is gone, `situ repair` finds out and writes it again; if the disk is lost, repair the store \
         without it; to go over to another one, drain the old one first",
        last_seen(home)
    ))
}

/// Returns the error if the disk in `at` is the store's, and DISKS names the disk `used`.
pub(super) fn another_disk(at: &str, used: Id, home: &Home, at_home: &str) -> Error {
    Error::Disks(format!(
        "{at} was a fast disk of the store in {at_home} once, but the store has another one now ({used}), and can \
         have one at a time.{}",
        has_another(home, at_home)
    ))
}

/// Returns the error if the store has no fast disk, and the caller does not add one.
pub(super) fn not_the_stores(at: &str, at_home: &str) -> Error {
    Error::Disks(format!("{at} is not the fast disk of the store in {at_home}, which has none"))
}

/// Returns the error if DISKS is damaged, and there is neither MEMBER nor a store's file on the disk in `at`.
pub(super) fn nothing_on_it(at: &str, at_home: &str) -> Error {
    Error::Disks(format!(
        "{at} is not the fast disk of the store in {at_home}: there is no store's file on it. Name the disk that the store \
         has. Only if the store has no fast disk, or the disk is lost for good, run `situ repair --without-fast-disk \
         {at_home}`. With `--dry-run` the command only shows what would be lost"
    ))
}

/// Returns the error if `damage` took one proof that the disk in `at` is the store's, and there is no other. `why` has
/// the reason.
pub(super) fn unproven(at: &str, at_home: &str, damage: &Corruption, why: &str) -> Error {
    Error::Disks(format!(
        "{damage}; and nothing else says that {at} is the fast disk of the store in {at_home}: {why}. It may be the disk of \
         another store, whose data would be taken for this one's. Nothing was changed. Give the store its own disk. If this is \
         the one, copy its files with numbers into the home (MEMBER stays), where they are found as well; then, or if the disk is lost for \
         good, repair the store without it (`situ repair --without-fast-disk`; with `--dry-run` that says what would be lost)"
    ))
}

/// Returns the error if a disk that would be added has the file `name` of the store.
pub(super) fn files_of_this_store(at: &str, at_home: &str, member: Member, name: FileName) -> Error {
    Error::Disks(format!(
        "{at} is the fast disk of the store {} and has files of it ({name} for one). The home in {at_home} is of that store, too, and \
         has no fast disk. Nothing was changed. If there is another home of the store, as after a copy, the disk belongs to that \
         one, which does not open without it: give this one a disk of its own. If the store was repaired without this disk, what is \
         on it is known to nobody any more. Only if you are sure of that, and nobody wants it, empty the disk (remove its files, or \
         format it with `--force`) and add it again; what is wanted of it is copied into the home, where it is found as well",
        member.store
    ))
}

/// Returns the error if a disk that would be added has the file `name` of a store, and no MEMBER.
pub(super) fn files_of_some_store(at: &str, at_home: &str, name: FileName) -> Error {
    Error::Disks(format!(
        "{at} holds files of a store ({name} for one), does not say of which, and cannot become the fast disk of the one in \
         {at_home}; give an empty place. If it is the fast disk of that store, and both files that said so are gone, \
         `situ repair --fast-disk {at} {at_home}` finds out, and loses nothing"
    ))
}

/// Returns the error if `whose` store has its fast disk in `at_home`, which was opened as a home. `has_home_files`:
/// CURRENT or DISKS is there, too.
pub(super) fn fast_disk_as_home(at_home: &str, whose: &str, has_home_files: bool) -> Error {
    let cure = if has_home_files {
        "It has files that only a home has, too (CURRENT, DISKS): if it is the home of a store, into which the files of its fast disk \
         were copied, MEMBER alone does not belong here. Remove that file, and no other"
    } else {
        "Name the directory that has that store's DISKS and CURRENT. Only if that store is gone for good, or does not have this disk any \
         more, is what lies here a left-over"
    };
    Error::Disks(format!(
        "{at_home} is the fast disk of {whose}, as the file MEMBER there says, and not the home of one. Nothing was changed. {cure}"
    ))
}

/// Returns the error if a store that is to be destroyed has a fast disk, which is not there.
pub(super) fn not_there_to_clear(known: &Home, at_home: &str) -> Error {
    Error::Disks(format!(
        "the fast disk of the store in {at_home} is not there.{} Put it there again, or, if it is lost, repair the store \
         without it first (`situ repair --without-fast-disk`)",
        last_seen(known)
    ))
}

/// Returns the error of a store that has a fast disk and does not open with the one that was named.
pub(super) fn named_unusable(home: &str, path: &Path, error: Error, known: &Home, access: Access) -> Error {
    if error.is_corruption() && !access.repairs() {
        return error;
    }
    Error::Disks(format!(
        "what is at {} cannot be used as the fast disk of the store in {home}: {error}. If it is the disk that the store has, do not format \
         it: it may have the newest writes (`situ disk check` reads the metadata of a Situ disk).{}",
        path.display(),
        last_seen(known)
    ))
}

/// Returns the error of a store that does not open with a fast disk that is there.
pub(super) fn unusable(home: &str, at: &str, error: Error, access: Access) -> Error {
    if error.is_corruption() && !access.repairs() {
        return error;
    }
    let lost = if access.repairs() {
        " Only if the disk is lost for good, run `situ repair --without-fast-disk`. With `--dry-run` the command only shows \
         what would be lost."
    } else {
        ""
    };
    Error::Disks(format!(
        "the fast disk of the store in {home} was at {at} when the store was opened last, and what is there cannot be used: \
         {error}. Do not format it: it may have the newest writes. Remove the cause (a missing right, a device that fails, \
         another device under this name; `situ disk check` reads the metadata of a Situ disk), or name the disk's place if \
         it has moved (`--fast-disk PATH`).{lost}"
    ))
}

/// Returns the cure if a disk is not the one that the store has, as sentences with a space before them.
fn has_another(home: &Home, at_home: &str) -> String {
    format!(
        "{} Its own disk has another name now, or is lost: if it is there, name it (`situ disk add {at_home} PATH`, which notes \
         where it is); only if it is lost for good, repair the store without it (`situ repair --without-fast-disk {at_home}`; with \
         `--dry-run` that says what would be lost)",
        last_seen(home)
    )
}

/// Returns the last place of the disk, as a sentence with a space before it.
pub(super) fn last_seen(home: &Home) -> String {
    home.at.as_ref().map_or(String::new(), |at| format!(" It was at {at} when the store was opened last."))
}
