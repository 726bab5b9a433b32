//! The case of an opening: a pure function of the known facts, the given disk, and the mode of the opening.
//!
//! 1. [`classify`] names the [`Case`] from the facts that `facts.rs` has read. `cases.rs` has one function for each
//!    case.
//! 2. Two cases need another look at the disk. [`classify_unmarked`] and [`classify_addition`] decide the case after
//!    that look.
//!
//! `testdata/membership/cases.txt` lists every combination and its case.
//!
//! **Invariant.** A disk becomes part of the store in three ways only:
//! - Both files name it (`Take`).
//! - A repair finds one or both of them lost, and there is proof (`TakeWithout...`, `witness.rs`).
//! - A writer adds a disk, and the disk is empty (`Add`).
//!
//! **Rejected.** Cases that carry the facts that were read. The table would then need homes and members, and no line of
//! it would be short.

use super::volumes::Access;

/// The contents of DISKS on the capacity disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// There is no DISKS.
    Nothing,
    /// DISKS is there, and its contents are not those of a store.
    Damaged,
    /// The capacity disk does not give DISKS: a right is missing, or the device fails.
    Unreadable,
    /// The store has no fast disk.
    NoFastDisk,
    /// A fast disk is being added. Nothing of the store lies on it.
    Adding,
    /// The store has a fast disk.
    Used,
}

/// The contents of MEMBER on a given disk, compared with DISKS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// There is no MEMBER.
    Nothing,
    /// MEMBER is there, and its contents are not those of a store.
    Damaged,
    /// The disk does not give MEMBER.
    Unreadable,
    /// The disk that DISKS says the store uses.
    ThisDisk,
    /// A disk of the store that DISKS names, but not the one that the store uses.
    ThisStore,
    /// A disk of a store that DISKS does not name.
    AnotherStore,
}

/// The fast disk that the caller gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// None.
    Nothing,
    /// One that DISKS remembered before the lock was taken. DISKS does not name it any more.
    Drained,
    /// One that DISKS remembers.
    Remembered(Says),
    /// One that the caller names.
    Named(Says),
    /// One that the caller names, although a repair is to go on without one. The repair ignores it.
    NotWanted,
}

/// The action of an opening. The first ten go on; the others refuse, and change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// The store has one disk.
    Alone,
    /// The store has one disk as far as DISKS says. A repair looks whether a table is missing that may be on another
    /// one.
    AloneIfComplete,
    /// A repair goes on without the fast disk.
    GiveUp,
    /// DISKS and MEMBER name the disk.
    Take,
    /// DISKS names a disk, and MEMBER is lost.
    TakeWithoutMember,
    /// MEMBER names a store, and DISKS is lost.
    TakeWithoutDisks,
    /// Both files are lost, and there are files of a store.
    TakeWithoutEither,
    /// Both files are lost. The files on the disk decide ([`classify_unmarked`]).
    LookOnDisk,
    /// The disk becomes the store's, if nothing is on it ([`classify_addition`]).
    Add,
    /// DISKS cannot be read: its own error.
    DisksUnread,
    /// MEMBER cannot be read: its own error.
    MemberUnread,
    /// A disk was given to a repair that is to go on without one.
    GivenAndGivenUp,
    /// DISKS is damaged, and the caller of a repair did not name the disk's place.
    PlaceUnknown,
    /// The store needs a fast disk, and none was given.
    Missing,
    /// The disk says nothing, and DISKS names one.
    NoMemberFile,
    /// The disk says that it is the store's, and DISKS names another one.
    AnotherDisk,
    /// The disk is another store's.
    AnotherStore,
    /// The disk is of a store, and there is no DISKS.
    NoDisksFile,
    /// The disk is not the store's, which has none.
    NotTheStores,
    /// DISKS is damaged, and nothing of a store is on the disk.
    NothingOnIt,
}

/// See the module's page.
pub(super) fn classify(known: Known, offer: Offer, access: Access) -> Case {
    match offer {
        _ if access.gives_up_fast_disk() => giving_up(known, offer),
        Offer::NotWanted => giving_up(known, offer),
        Offer::Nothing | Offer::Drained => without(known, access.repairs()),
        Offer::Remembered(says) | Offer::Named(says) if access.repairs() => repaired_with(known, says),
        Offer::Remembered(says) | Offer::Named(says) => opened_with(known, says, access.writes()),
    }
}

/// Classifies a repair that goes on without the fast disk.
fn giving_up(known: Known, offer: Offer) -> Case {
    match (known, offer) {
        (Known::Unreadable, _) => Case::DisksUnread,
        (_, Offer::Nothing) => Case::GiveUp,
        _ => Case::GivenAndGivenUp,
    }
}

/// Classifies an opening that gets no fast disk.
fn without(known: Known, repairs: bool) -> Case {
    match known {
        Known::Damaged if repairs => Case::PlaceUnknown,
        Known::Damaged | Known::Unreadable => Case::DisksUnread,
        Known::Used => Case::Missing,
        Known::Nothing | Known::NoFastDisk | Known::Adding if repairs => Case::AloneIfComplete,
        Known::Nothing | Known::NoFastDisk | Known::Adding => Case::Alone,
    }
}

/// Classifies a reader or a writer with a fast disk. Neither goes on while a file that names the disk's store cannot be
/// read.
fn opened_with(known: Known, says: Says, writes: bool) -> Case {
    match (known, says) {
        (_, Says::Damaged | Says::Unreadable) => Case::MemberUnread,
        (Known::Damaged | Known::Unreadable, _) => Case::DisksUnread,
        (Known::Nothing, Says::AnotherStore) => Case::NoDisksFile,
        (_, Says::AnotherStore) => Case::AnotherStore,
        (Known::Used, Says::ThisDisk) => Case::Take,
        (Known::Used, Says::ThisStore) => Case::AnotherDisk,
        (Known::Used, Says::Nothing) => Case::NoMemberFile,
        _ if writes => Case::Add,
        _ => Case::NotTheStores,
    }
}

/// Classifies a repair with a fast disk. The repair takes the disk with one of the two files if there is proof.
fn repaired_with(known: Known, says: Says) -> Case {
    match (known, says) {
        (_, Says::Unreadable) => Case::MemberUnread,
        (Known::Used, Says::Nothing | Says::Damaged) => Case::TakeWithoutMember,
        (Known::Used, Says::ThisDisk) => Case::Take,
        (Known::Used, Says::ThisStore) => Case::AnotherDisk,
        (Known::NoFastDisk | Known::Adding, Says::Damaged) => Case::MemberUnread,
        (Known::Used | Known::NoFastDisk | Known::Adding, Says::AnotherStore) => Case::AnotherStore,
        (Known::NoFastDisk | Known::Adding, Says::Nothing | Says::ThisDisk | Says::ThisStore) => Case::NotTheStores,
        (Known::Nothing | Known::Damaged | Known::Unreadable, Says::Nothing) => Case::LookOnDisk,
        (Known::Unreadable, _) => Case::DisksUnread,
        (Known::Nothing | Known::Damaged, Says::Damaged) => Case::TakeWithoutEither,
        (Known::Nothing | Known::Damaged, _) => Case::TakeWithoutDisks,
    }
}

/// Classifies the disk for [`Case::LookOnDisk`]. `has_files`: the disk has files of a store.
pub(super) fn classify_unmarked(known: Known, has_files: bool) -> Case {
    match (known, has_files) {
        (Known::Unreadable, _) => Case::DisksUnread,
        (_, true) => Case::TakeWithoutEither,
        (Known::Damaged, false) => Case::NothingOnIt,
        (_, false) => Case::NotTheStores,
    }
}

/// The outcome of [`Case::Add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Addition {
    /// The disk has no files but those that an interrupted addition or drain has left.
    Empty,
    /// The disk has files of the store. They may be all that is left of a user's data, and stay.
    FilesOfThisStore,
    /// The disk has files of a store, and does not name the store.
    FilesOfSomeStore,
}

/// Classifies a disk that is to be added. `is_marked`: MEMBER names the store. `has_files`: the disk has files of a
/// store.
pub(super) fn classify_addition(is_marked: bool, has_files: bool) -> Addition {
    match (has_files, is_marked) {
        (false, _) => Addition::Empty,
        (true, true) => Addition::FilesOfThisStore,
        (true, false) => Addition::FilesOfSomeStore,
    }
}

#[cfg(test)]
pub(super) mod tests;
