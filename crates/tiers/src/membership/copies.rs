//! A home that is a copy of another home.
//!
//! A user who copies the home of a store on two disks has two homes that name one fast disk by the same ids. Suppose
//! that the copy were opened for writing. It would replay the log on the disk and remove it, with all tables that it
//! does not know. Then the other home would not open any more. So DISKS has the place of the home. A home in another
//! place does not get the disk for writing while a home is there that has it.
//!
//! A home that was copied while it had no fast disk has the ids of the store, too. The other home may have been given a
//! disk since. That disk is no left-over of the copy, and is not added to it.
//!
//! **Limits.** If nothing is at the old place any more, or nothing that can be seen from here, the home has moved.
//! Reading is not refused.

use crate::members::{Fast, Home, Member};
use crate::path_text::{is_one, path_of};
use situ_engine::{Error, Result};
use situ_storage::DirectoryVolume;

/// Returns the home at the place that `known` names as its own, if that is another one than `place`.
fn other_home<'a>(place: Option<&str>, known: &'a Home) -> Option<(&'a str, Home)> {
    let (place, was) = (place?, known.place.as_deref()?);
    if is_one(place, was) {
        return None;
    }
    let other = DirectoryVolume::open(path_of(was)).and_then(|volume| Home::read(&volume));
    Some((was, other.ok()??))
}

/// # Errors
/// `place` has a copy of a home that has the fast disk in `at`. `known` is the contents of the copy's DISKS.
pub(super) fn refuse(place: Option<&str>, known: &Home, at: &str) -> Result<()> {
    let (Some(place), Fast::Used(_)) = (place, known.fast) else { return Ok(()) };
    let Some((was, other)) = other_home(Some(place), known) else { return Ok(()) };
    let has_it = other.at.is_some_and(|other| is_one(&other, at));
    if (other.store, other.fast) != (known.store, known.fast) || !has_it {
        return Ok(());
    }
    Err(Error::Disks(format!(
        "the store in {place} is a copy of the one in {was}. Both would use the fast disk at {at}, and a write through one \
         would destroy data of the other. Nothing was changed. To use both stores, copy the fast disk and open {place} with the \
         new disk (`--fast-disk PATH`). To let {place} replace {was}, rename the directory {was} first. If you do not need the \
         copy, delete the directory {place}. Next time, drain the fast disk, close the store, and then copy the directory"
    )))
}

/// # Errors
/// The disk in `at`, which has `member`, is to be added to the store in `place`. It belongs to the home of which this
/// one is a copy.
pub(super) fn refuse_addition(place: Option<&str>, known: Option<&Home>, member: Member, at: &str) -> Result<()> {
    let Some((was, other)) = known.and_then(|known| other_home(place, known)) else { return Ok(()) };
    if (other.store, other.fast) != (member.store, Fast::Used(member.disk)) {
        return Ok(());
    }
    let place = place.unwrap_or_default();
    Err(Error::Disks(format!(
        "{at} is the fast disk of the store in {was}, and that store needs it. The store in {place} is an older copy of it \
         (both have the id {}). Nothing was changed. Give {place} another disk. To free {at}, run `situ disk drain {was}`, which \
         moves all its files to {was}",
        member.store
    )))
}
