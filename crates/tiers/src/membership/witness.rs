//! The proof that a fast disk is the store's if one of the two files that say so, DISKS and MEMBER, cannot be read.
//!
//! The contents of the other file are no proof. A path that is spelled wrong leads to the disk of another store. The
//! MEMBER of that disk is as sound as the one of this store's disk. Its tables would hide those of the same numbers at
//! home, and its log would be replayed and removed. So a repair takes a disk in two cases only. The damaged file still
//! has the disk's id (`members::still_names`). Or the manifest in force knows the files there:
//!
//! 1. Every file that the manifest needs is on the disk or at home, in its length.
//! 2. The manifest names tables on the disk, and one that can be opened is as the manifest describes it. The second in
//!    which it was made is part of that. If the manifest names none there, none is there, and the log goes on where the
//!    manifest ends.
//! 3. If DISKS is not there at all, the home alone lacks a file. A home that has all it needs may never have had a fast
//!    disk.
//!
//! If CURRENT or the manifest is damaged as well, the youngest readable manifest counts. It may know less than the
//! store had at last, or of more. So a table on the disk that this manifest describes decides.
//!
//! **Limits.** Two stores without a table on their fast disks are not told apart if their logs have equal numbers and
//! equal counts of writes. Two stores with a table of the same number, entries, length and second are not told apart
//! either.

use super::joined::TierVolumes;
use super::volumes::Given;
use crate::set::{Disks, FAST};
use situ_base::Env;
use situ_engine::places::KnownStore;
use situ_storage::{FileName, Volume};
use std::sync::Arc;

/// Looks for the files that the manifest knows; the error describes in words why they are not enough. `was_named`:
/// DISKS is there, however damaged.
pub(super) fn manifest_knows(disks: &Arc<Disks>, given: &Given, env: &Env, was_named: bool) -> Result<(), String> {
    let text = |error: situ_storage::Error| error.to_string();
    let home: &dyn Volume = &disks.capacity().volume;
    let volume = Arc::clone(disks) as Arc<dyn Volume>;
    let known = KnownStore::readable(&TierVolumes::to_look_at(disks, given), env)?;
    if !was_named && known.needed(&home.list().map_err(text)?).missing.is_empty() {
        return Err(
            "the store is complete without this disk: the home has all that the store needs, and no file DISKS"
                .to_owned(),
        );
    }
    let files = volume.list().map_err(text)?;
    let needed = known.needed(&files);
    if known.is_whole()
        && let Some(missing) = needed.missing.first()
    {
        let (name, expected, found) = (missing.name, &missing.expected, &missing.found);
        return Err(format!(
            "the store needs {name} ({expected}), but neither the fast disk nor the home has it as expected: found {found}"
        ));
    }
    let mut on_disk = needed.tables.iter().filter(|table| table.volume == FAST).peekable();
    if on_disk.peek().is_some() {
        let described = on_disk.any(|table| known.describes(table.number));
        let none = || "none of the tables on the fast disk is one that the manifest describes".to_owned();
        return described.then_some(()).ok_or_else(none);
    }
    if !known.is_whole() {
        return Err("what can be read of the manifest names no table on the fast disk".to_owned());
    }
    let is_table = |name: &FileName| matches!(name, FileName::Table(_));
    if let Some(name) = files.iter().map(|file| file.name).filter(is_table).find(|name| disks.disk_of(*name) == FAST) {
        return Err(format!("the manifest names no table on the fast disk, and {name} is there"));
    }
    if !needed.logs.iter().any(|number| disks.disk_of(FileName::Log(*number)) == FAST) {
        return Err("nothing that the store needs is on the fast disk".to_owned());
    }
    known.check_log(&volume, &needed.logs)
}
