//! A home that is a copy of another home.
//!
//! Who copies the home of a store on two disks has two homes that name one fast disk by the same ids. If the copy were opened for
//! writing, it would replay the log there and remove it, and remove the tables that it does not know; the other home would
//! not open any more. So DISKS has the place of the home, and one that is in another place does not get the disk for writing as
//! long as a home is there that has it.
//!
//! **Limits.** Where nothing is any more, or nothing that can be seen from here, the home has moved. Reading is not refused.

use crate::members::{Fast, Home};
use crate::{Error, Result};
use situ_storage::DirectoryVolume;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Whether two paths lead to one directory.
fn is_one(a: &str, b: &str) -> bool {
    let identity = |path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    a == b || identity(a).is_some_and(|a| Some(a) == identity(b))
}

/// # Errors
/// `place` has a copy of a home that has the fast disk in `at`. `known` is what the copy's DISKS says.
pub(super) fn refuse(place: Option<&str>, known: &Home, at: &str) -> Result<()> {
    let (Some(place), Some(was), Fast::Used(_)) = (place, &known.place, known.fast) else { return Ok(()) };
    if is_one(place, was) {
        return Ok(());
    }
    let other = DirectoryVolume::open(was).map_err(Error::from).and_then(|volume| Home::read(&volume));
    let Ok(Some(other)) = other else { return Ok(()) };
    if (other.store, other.fast, other.at.as_deref()) != (known.store, known.fast, Some(at)) {
        return Ok(());
    }
    Err(Error::Disks(format!(
        "the store in {place} is a copy of the one in {was}, which has its fast disk at {at}. What is written through one of them \
         takes the log and the tables there away from the other; nothing was changed. To use the copy beside the other store, \
         copy the fast disk as well and name that copy (`--fast-disk PATH`). To go on with the copy in the other's place, \
         rename the directory {was} first. A copy that is not wanted is removed as a directory. Before the next copy, drain the \
         fast disk: a home alone can be copied when the store is closed"
    )))
}
