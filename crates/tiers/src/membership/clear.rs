//! Clearing the fast disk of a store that is being destroyed.

use super::copies;
use super::find::remembered;
use super::refusals;
use super::volumes::{Access, FastDisk};
use crate::members::{Fast, Home, Member};
use crate::path_text::path_of;
use situ_base::Env;
use situ_engine::Result;
use situ_storage::{FileName, Volume};
use std::fs;

/// Removes everything from the fast disk of a store that is being destroyed, and whose home is in `place`.
pub(crate) fn clear_fast_disk(home: &dyn Volume, env: &Env, place: Option<&str>) -> Result<()> {
    let Some(known) = Home::read(home)? else { return Ok(()) };
    let Some(FastDisk { volume: fast, at, .. }) = own_fast_disk(home, env, &known)? else { return Ok(()) };
    copies::refuse(place, &known, &at)?;
    let lock = fast.lock()?;
    remove_all(&*fast)?;
    while fast.tidy() {}
    drop(lock);
    // The directory may hold files of others, too, and then it stays.
    let _ = fs::remove_dir(path_of(&at));
    Ok(())
}

/// # Errors
/// The store has a fast disk, and the disk is not there.
fn own_fast_disk(home: &dyn Volume, env: &Env, known: &Home) -> Result<Option<FastDisk>> {
    if known.fast == Fast::None {
        return Ok(None);
    }
    let Some(fast) = remembered(home, env, Access::Write)? else {
        return if known.used_disk().is_some() {
            Err(refusals::not_there_to_clear(known, &home.location()))
        } else {
            Ok(None)
        };
    };
    let Some(disk) = known.used_disk() else { return Ok(Some(fast)) };
    let is_ours = match Member::read(&*fast.volume)? {
        Some(member) => member == Member { store: known.store, disk },
        // A call that was interrupted has left nothing, not even MEMBER.
        None => fast.volume.list()?.iter().all(|file| file.name == FileName::Lock),
    };
    if is_ours { Ok(Some(fast)) } else { Err(refusals::not_there_to_clear(known, &home.location())) }
}

fn remove_all(fast: &dyn Volume) -> Result<()> {
    let mut files = fast.list()?;
    files.sort_by_key(|file| match file.name {
        FileName::Lock => 2,
        // Names the store of the other files, as long as there are any.
        FileName::Member => 1,
        _ => 0,
    });
    for file in files {
        if file.name == FileName::Member {
            fast.sync_names()?;
        }
        fast.remove(file.name)?;
    }
    // The next store would refuse a disk that names another store.
    Ok(fast.sync_names()?)
}
