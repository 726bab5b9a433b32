//! The first step of opening: from the volumes that were given to the one that the store lies on, locked.
//!
//! 1. The paths that a caller names become volumes (`membership/find.rs`).
//! 2. A writer and a repair lock the capacity disk ([`lock_capacity_disk`]). A reader takes no lock. This lock is given
//!    back last (`crate::Locks`).
//! 3. DISKS is read, and MEMBER on a fast disk that is given and wanted (`membership/facts.rs`).
//! 4. A pure function names the case (`membership/classify.rs`). Each case has a function (`membership/cases.rs`):
//!    - The store has one disk, or a repair goes on without the other one.
//!    - The disk is the store's. A writer locks it, and both disks become one volume (`crate::Disks`). A repair
//!      that finds DISKS or MEMBER lost wants more proof than the other one (`membership/witness.rs`).
//!    - The disk is to become the store's. It has to be empty.
//!    - Opening refuses, and names the cure (`membership/refusals.rs`).
//! 5. [`Joined::settle`] writes, when the store is known to open and before anything is put on the fast disk. A new
//!    fast disk is made the store's. The place of a known one is noted if it has moved.
//!
//! **Failure.** A fast disk that is needed and missing is an error that lists the files on it. This takes a look at the
//! manifest, also where DISKS is gone (`membership/missing.rs`). A disk that is where it was and cannot be used is
//! another error. It never counts as missing: the cure for a loss would cause one. The copy of a home does not get the
//! disk of the home that was copied (`membership/copies.rs`).

use crate::members::Member;
use cases::Opening;
use classify::classify;
use facts::Facts;
use situ_base::Env;
use situ_engine::Result;
use situ_engine::places::Locks;
use situ_storage::{FileName, Volume};

pub(crate) use clear::clear_fast_disk;
pub(crate) use find::{given, given_home};
pub(crate) use joined::Joined;
#[cfg(test)]
pub(crate) use joined::TierVolumes;
pub(crate) use volumes::{Access, Given};

/// See the module's page.
pub(crate) fn join(given: &Given, env: &Env, access: Access) -> Result<Joined> {
    let locks = lock_capacity_disk(given, access)?;
    let facts = Facts::read(given, access);
    let case = classify(facts.known, facts.offer, access);
    Opening { given, env, access, locks, facts }.carry_out(case)
}

fn lock_capacity_disk(given: &Given, access: Access) -> Result<Locks> {
    if access.writes() {
        return lock_home(&*given.capacity);
    }
    refuse_fast_disk_as_home(&*given.capacity)?;
    Ok(Locks::default())
}

/// Locks a home, which is not another store's fast disk.
pub(crate) fn lock_home(home: &dyn Volume) -> Result<Locks> {
    refuse_fast_disk_as_home(home)?;
    let mut locks = Locks::default();
    locks.take(home)?;
    // Under the lock, no other process can make the directory a fast disk.
    refuse_fast_disk_as_home(home)?;
    Ok(locks)
}

/// Refuses the fast disk of a store as a home. A store made there would take the names of the files of the store whose
/// fast disk it is.
///
/// # Errors
/// A directory that is to be a store's home says that it is the fast disk of a store.
fn refuse_fast_disk_as_home(home: &dyn Volume) -> Result<()> {
    if !home.list()?.iter().any(|file| file.name == FileName::Member) {
        return Ok(());
    }
    let at_home = home.location();
    let whose = match Member::read(home) {
        Ok(Some(member)) => format!("the store {}", member.store),
        _ => "a store".to_owned(),
    };
    let has = |name| home.list().map(|files| files.iter().any(|file| file.name == name));
    let has_home_files = has(FileName::Current)? || has(FileName::Disks)?;
    Err(refusals::fast_disk_as_home(&at_home, &whose, has_home_files))
}

mod cases;
mod classify;
mod clear;
mod copies;
mod facts;
mod find;
mod joined;
mod missing;
mod refusals;
mod volumes;
mod witness;

#[cfg(test)]
mod tests;
