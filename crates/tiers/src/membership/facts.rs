//! The files that are read before an opening is classified: DISKS, and MEMBER on a fast disk that is given and wanted.
//!
//! A repair that gives up the fast disk does not read MEMBER, and a disk that was drained meanwhile is not read either.

use super::classify::{Known, Offer, Says};
use super::volumes::{Access, FastDisk, Given};
use crate::members::{Fast, Home, Member};
use situ_storage::{Corruption, Error as StorageError, Result};

/// A small file, DISKS or MEMBER, as it was read.
pub(super) enum Found<T> {
    Nothing,
    Damaged(Corruption),
    Unreadable(StorageError),
    Contents(T),
}

impl<T> Found<T> {
    fn of(read: Result<Option<T>>) -> Found<T> {
        match read {
            Ok(None) => Found::Nothing,
            Ok(Some(contents)) => Found::Contents(contents),
            Err(StorageError::Corruption(damage)) => Found::Damaged(*damage),
            Err(error) => Found::Unreadable(error),
        }
    }

    pub(super) fn contents(&self) -> Option<&T> {
        if let Found::Contents(contents) = self { Some(contents) } else { None }
    }

    pub(super) fn damage(&self) -> Option<&Corruption> {
        if let Found::Damaged(damage) = self { Some(damage) } else { None }
    }

    /// Returns the reason why the contents are not known, if the file is there.
    pub(super) fn error(&self) -> Option<StorageError> {
        match self {
            Found::Nothing | Found::Contents(_) => None,
            Found::Damaged(damage) => Some(StorageError::Corruption(damage.clone().into())),
            Found::Unreadable(error) => Some(error.clone()),
        }
    }
}

/// A fast disk whose MEMBER was read.
pub(super) struct Disk<'a> {
    pub(super) fast: &'a FastDisk,
    pub(super) member: Found<Member>,
}

/// The facts that were read.
pub(super) struct Facts<'a> {
    pub(super) home: Found<Home>,
    pub(super) disk: Option<Disk<'a>>,
    pub(super) known: Known,
    pub(super) offer: Offer,
}

impl<'a> Facts<'a> {
    pub(super) fn read(given: &'a Given, access: Access) -> Facts<'a> {
        let home = Found::of(Home::read(&*given.capacity));
        let (disk, offer) = offered(given, &home, access);
        Facts { known: known(&home), home, disk, offer }
    }
}

fn offered<'a>(given: &'a Given, home: &Found<Home>, access: Access) -> (Option<Disk<'a>>, Offer) {
    let Some(fast) = &given.fast else { return (None, Offer::Nothing) };
    if access.gives_up_fast_disk() {
        return (None, Offer::NotWanted);
    }
    // A DISKS that cannot be read takes nothing back.
    if home.error().is_none() && fast.was_drained(home.contents()) {
        return (None, Offer::Drained);
    }
    let member = Found::of(Member::read(&*fast.volume));
    let says = says(&member, home.contents());
    let offer = if fast.remembered.is_some() { Offer::Remembered(says) } else { Offer::Named(says) };
    (Some(Disk { fast, member }), offer)
}

fn known(home: &Found<Home>) -> Known {
    match home {
        Found::Nothing => Known::Nothing,
        Found::Damaged(_) => Known::Damaged,
        Found::Unreadable(_) => Known::Unreadable,
        Found::Contents(home) => match home.fast {
            Fast::None => Known::NoFastDisk,
            Fast::Adding(_) => Known::Adding,
            Fast::Used(_) => Known::Used,
        },
    }
}

fn says(member: &Found<Member>, home: Option<&Home>) -> Says {
    match member {
        Found::Nothing => Says::Nothing,
        Found::Damaged(_) => Says::Damaged,
        Found::Unreadable(_) => Says::Unreadable,
        Found::Contents(member) => match home {
            Some(home) if home.store == member.store && home.fast == Fast::Used(member.disk) => Says::ThisDisk,
            Some(home) if home.store == member.store => Says::ThisStore,
            _ => Says::AnotherStore,
        },
    }
}
