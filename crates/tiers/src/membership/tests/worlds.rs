//! Real disks for every combination that `classify` knows: what is read is the combination, and opening ends as its
//! case says.

use crate::members::{Fast, Home, Id, Member};
use crate::membership::classify::tests::combinations;
use crate::membership::classify::{Case, Known, Offer, Says, classify, classify_unmarked};
use crate::membership::facts::Facts;
use crate::membership::join;
use crate::membership::joined::{Joined, Pending};
use crate::membership::volumes::{Access, FastDisk, Given};
use situ_base::Env;
use situ_engine::Error;
use situ_storage::{DirectoryVolume, FileName, Volume};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A capacity disk and a fast disk.
struct World {
    root: TempDir,
    store: Id,
    disk: Id,
}

impl World {
    fn new(known: Known, says: Says) -> World {
        let world = World { root: tempfile::tempdir().unwrap(), store: Id::random(), disk: Id::random() };
        for place in [world.capacity(), world.fast()] {
            fs::create_dir(place).unwrap();
        }
        world.write_disks(known);
        world.write_member(says);
        world
    }

    fn capacity(&self) -> PathBuf {
        self.root.path().join("capacity")
    }

    fn fast(&self) -> PathBuf {
        self.root.path().join("fast")
    }

    fn write_disks(&self, known: Known) {
        let write = |fast| {
            let home = Home { store: self.store, fast, ..Home::fresh() };
            home.write(&volume(&self.capacity())).unwrap();
        };
        match known {
            Known::Nothing => {}
            Known::Damaged => fs::write(self.capacity().join("DISKS"), "rotten").unwrap(),
            // It opens, and its bytes are not given.
            Known::Unreadable => fs::create_dir(self.capacity().join("DISKS")).unwrap(),
            Known::NoFastDisk => write(Fast::None),
            Known::Adding => write(Fast::Adding(self.disk)),
            Known::Used => write(Fast::Used(self.disk)),
        }
    }

    fn write_member(&self, says: Says) {
        let write = |store, disk| Member { store, disk }.write(&volume(&self.fast())).unwrap();
        match says {
            Says::Nothing => {}
            Says::Damaged => fs::write(self.fast().join("MEMBER"), "rotten").unwrap(),
            Says::Unreadable => fs::create_dir(self.fast().join("MEMBER")).unwrap(),
            Says::ThisDisk => write(self.store, self.disk),
            Says::ThisStore => write(self.store, Id::random()),
            Says::AnotherStore => write(Id::random(), Id::random()),
        }
    }

    fn put_table(&self) {
        let mut writer = volume(&self.fast()).create(FileName::Table(7), 6).unwrap();
        writer.append(b"a file").unwrap();
        writer.finish().unwrap();
    }

    fn given(&self, offer: Offer) -> Given {
        let fast = |remembered| FastDisk { remembered, ..FastDisk::from(shared(&self.fast())) };
        let fast = match offer {
            Offer::Nothing => None,
            Offer::Drained => Some(fast(Some(Id::random()))),
            Offer::Remembered(_) => Some(fast(Some(self.disk))),
            Offer::Named(_) | Offer::NotWanted => Some(fast(None)),
        };
        Given::volumes(shared(&self.capacity()), fast)
    }

    /// All small files but LOCK, with their contents.
    fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = [self.capacity(), self.fast()].into_iter().flat_map(|place| fs::read_dir(place).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file() && !path.ends_with("LOCK"));
        let mut contents: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        contents.sort();
        contents
    }
}

fn volume(path: &Path) -> DirectoryVolume {
    DirectoryVolume::open(path).unwrap()
}

fn shared(path: &Path) -> std::sync::Arc<dyn Volume> {
    std::sync::Arc::new(volume(path))
}

fn says_of(offer: Offer) -> Says {
    match offer {
        Offer::Remembered(says) | Offer::Named(says) => says,
        Offer::Nothing | Offer::Drained | Offer::NotWanted => Says::Nothing,
    }
}

/// What a case refuses with, if it does. There is no manifest, which would give proof.
fn refusal(case: Case) -> Option<&'static str> {
    match case {
        Case::Alone | Case::AloneIfComplete | Case::GiveUp | Case::Take | Case::Add => None,
        Case::TakeWithoutMember | Case::TakeWithoutDisks | Case::TakeWithoutEither => {
            Some("and nothing else says that")
        }
        Case::LookOnDisk => panic!("what is on the disk decides"),
        Case::DisksUnread => Some("/capacity/DISKS"),
        Case::MemberUnread => Some("/fast/MEMBER"),
        Case::GivenAndGivenUp => Some("was given as one"),
        Case::PlaceUnknown => Some("it is not known where the store's fast disk is"),
        Case::Missing => Some("needs its fast disk"),
        Case::NoMemberFile => Some("Is it mounted?"),
        Case::AnotherDisk => Some("another one now"),
        Case::AnotherStore => Some("is the fast disk of another store"),
        Case::NoDisksFile => Some("there is no file DISKS in"),
        Case::NotTheStores => Some("which has none"),
        Case::NothingOnIt => Some("there is no store's file on it"),
    }
}

fn assert_joined(case: Case, joined: &Joined, what: &str) {
    let has_two = joined.disks.is_some();
    assert_eq!(has_two, matches!(case, Case::Take | Case::Add), "{what}");
    assert_eq!(matches!(joined.pending, Some(Pending::Add { .. })), case == Case::Add, "{what}");
    assert!(joined.given_up.is_none() || case == Case::GiveUp, "{what}");
}

#[test]
fn every_combination_is_read_from_real_disks_and_ends_as_its_case_says() {
    for (access, known, offer) in combinations() {
        let what = format!("{access:?}, {known:?}, {offer:?}");
        let world = World::new(known, says_of(offer));
        let (given, before) = (world.given(offer), world.contents());
        let facts = Facts::read(&given, access);
        assert_eq!((facts.known, facts.offer), (known, offer), "{what}");
        let case = match classify(known, offer, access) {
            Case::LookOnDisk => classify_unmarked(known, false),
            case => case,
        };
        match (join(&given, &Env::system(), access), refusal(case)) {
            (Ok(joined), None) => assert_joined(case, &joined, &what),
            (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{what} is {case:?}: {error}"),
            (Ok(_), Some(_)) => panic!("{what} is {case:?}, and opening went on"),
            (Err(error), None) => panic!("{what} is {case:?}, and opening refused: {error}"),
        }
        assert_eq!(world.contents(), before, "{what}: something was written");
    }
}

fn refused(world: &World, offer: Offer, access: Access) -> String {
    match join(&world.given(offer), &Env::system(), access) {
        Err(Error::Disks(text)) => text,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it went on"),
    }
}

#[test]
fn files_on_a_disk_are_never_taken_for_an_empty_one() {
    for known in [Known::Nothing, Known::NoFastDisk, Known::Adding] {
        let world = World::new(known, Says::Nothing);
        world.put_table();
        let text = refused(&world, Offer::Named(Says::Nothing), Access::Write);
        assert!(text.contains("does not say of which"), "{text}");
    }
    for known in [Known::NoFastDisk, Known::Adding] {
        let world = World::new(known, Says::ThisStore);
        world.put_table();
        let text = refused(&world, Offer::Named(Says::ThisStore), Access::Write);
        assert!(text.contains("has files of it"), "{text}");
    }
    for known in [Known::Nothing, Known::Damaged] {
        let world = World::new(known, Says::Nothing);
        world.put_table();
        let text = refused(&world, Offer::Named(Says::Nothing), Access::Repair { without_fast_disk: false });
        assert!(text.contains("and nothing else says that"), "{text}");
    }
}

#[test]
fn disks_that_do_not_belong_together_are_refused_and_the_reason_is_said() {
    let refused = |known, says| refused(&World::new(known, says), Offer::Named(says), Access::Write);
    assert!(refused(Known::Used, Says::AnotherStore).contains("another store"));
    assert!(refused(Known::Nothing, Says::AnotherStore).contains("another store"));
    assert!(refused(Known::Used, Says::Nothing).contains("Is it mounted?"));
    assert!(refused(Known::Used, Says::ThisStore).contains("another one now"));
    let world = World::new(Known::Used, Says::ThisDisk);
    let joined = join(&world.given(Offer::Named(Says::ThisDisk)), &Env::system(), Access::Write).unwrap();
    assert!(matches!(&joined.pending, Some(Pending::Write(home, None)) if home.store == world.store));
    assert!(refused_without(&world).contains("needs its fast disk"));
}

/// The lock of the first opening is given back by then.
fn refused_without(world: &World) -> String {
    refused(world, Offer::Nothing, Access::Read)
}

#[test]
fn a_disk_is_added_to_a_store_that_has_none_and_an_addition_goes_on_where_it_stopped() {
    let open = |world: &World, offer| join(&world.given(offer), &Env::system(), Access::Write).unwrap();
    let added = |world: &World, says| match open(world, Offer::Named(says)).pending {
        Some(Pending::Add { member, .. }) => member,
        _ => panic!("{says:?}: nothing is added"),
    };
    let new = World::new(Known::Nothing, Says::Nothing);
    assert!(open(&new, Offer::Nothing).disks.is_none());
    added(&new, Says::Nothing);
    for known in [Known::NoFastDisk, Known::Adding] {
        let world = World::new(known, Says::ThisStore);
        let said = Member::read(&volume(&world.fast())).unwrap().unwrap();
        assert_eq!(added(&world, Says::ThisStore), said, "{known:?}");
        let world = World::new(known, Says::Nothing);
        assert_eq!(added(&world, Says::Nothing).store, world.store, "{known:?}");
        assert!(open(&world, Offer::Nothing).disks.is_none());
    }
}
