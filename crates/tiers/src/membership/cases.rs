//! The actions of an opening: one small function for each case.
//!
//! **Order.** The capacity disk is locked before anything is read. The fast disk is locked when the case is known, and
//! before the two become one volume. Nothing is written here: [`Joined::settle`] writes, when the store is known to
//! open.

use super::classify::{Addition, Case, Known, classify_addition, classify_unmarked};
use super::facts::{Disk, Facts};
use super::joined::{Joined, Pending};
use super::volumes::{Access, FastDisk, Given};
use super::{copies, missing, refusals, witness};
use crate::members::{Fast, Home, Id, Member, still_names};
use crate::set::{Disks, FAST, NewDisk, Role};
use situ_base::Env;
use situ_engine::places::Locks;
use situ_engine::{Error, Result};
use situ_storage::{Corruption, FileName, Result as StorageResult, Volume};
use std::sync::Arc;

/// An opening whose capacity disk is locked, and the facts that were read.
pub(super) struct Opening<'a> {
    pub(super) given: &'a Given,
    pub(super) env: &'a Env,
    pub(super) access: Access,
    pub(super) locks: Locks,
    pub(super) facts: Facts<'a>,
}

/// A disk that is the store's, and the losses that were found in the two files that say so.
struct Taken {
    home: Home,
    /// The contents to write to MEMBER, if it was lost.
    member: Option<Member>,
    damages: Vec<Corruption>,
}

/// Returns a fact that the case was chosen by.
fn fact<T>(found: Option<T>) -> T {
    found.expect("the case was chosen because this was found")
}

/// Returns a file on a fast disk that no interrupted addition or drain has left, if there is one.
fn files_of_a_store(fast: &dyn Volume) -> Result<Option<FileName>> {
    let own = [FileName::Lock, FileName::Member, FileName::REPLACEMENT];
    Ok(fast.list()?.into_iter().map(|file| file.name).find(|name| !own.contains(name)))
}

impl Opening<'_> {
    pub(super) fn carry_out(self, case: Case) -> Result<Joined> {
        match case {
            Case::Alone => Ok(self.alone()),
            Case::AloneIfComplete => self.alone_if_complete(),
            Case::GiveUp => Ok(self.give_up()),
            Case::Take => self.take(),
            Case::TakeWithoutMember => self.take_without_member(),
            Case::TakeWithoutDisks => self.take_without_disks(),
            Case::TakeWithoutEither => self.take_without_either(),
            Case::LookOnDisk => self.look_on_disk(),
            Case::Add => self.add(),
            Case::DisksUnread => Err(fact(self.facts.home.error()).into()),
            Case::MemberUnread => Err(fact(self.disk().member.error()).into()),
            Case::GivenAndGivenUp => Err(self.given_and_given_up()),
            Case::PlaceUnknown => Err(refusals::place_unknown(fact(self.facts.home.damage()))),
            Case::Missing => Err(missing::named(self.given, self.env, self.home())),
            Case::NoMemberFile => Err(refusals::no_member_file(self.at(), self.home(), &self.at_home())),
            Case::AnotherDisk => Err(self.another_disk()),
            Case::AnotherStore => Err(self.another_store()),
            Case::NoDisksFile => Err(refusals::no_disks_file(self.member().store, self.at(), &self.at_home())),
            Case::NotTheStores => self.refuse_once_both_are_seen(refusals::not_the_stores),
            Case::NothingOnIt => self.refuse_once_both_are_seen(refusals::nothing_on_it),
        }
    }

    // The facts that the cases were chosen by.

    fn disk(&self) -> &Disk<'_> {
        fact(self.facts.disk.as_ref())
    }

    fn at(&self) -> &str {
        &self.disk().fast.at
    }

    fn at_home(&self) -> String {
        self.given.capacity.location()
    }

    fn place(&self) -> Option<&str> {
        self.given.place.as_deref()
    }

    fn home(&self) -> &Home {
        fact(self.facts.home.contents())
    }

    fn member(&self) -> Member {
        *fact(self.disk().member.contents())
    }

    // Without a fast disk.

    fn alone(self) -> Joined {
        Joined::alone(&self.given.capacity, self.locks)
    }

    fn alone_if_complete(self) -> Result<Joined> {
        missing::look_for_unnamed(self.given, self.env)?;
        Ok(self.alone())
    }

    fn give_up(self) -> Joined {
        let damage = self.facts.home.damage().cloned();
        let home = damage.as_ref().map(|_| Home::fresh()).or_else(|| self.facts.home.contents().cloned());
        let gives_up_log = home.as_ref().is_some_and(|home| home.used_disk().is_some());
        let given_up = home.map(|home| Home { fast: Fast::None, at: None, ..home });
        Joined { given_up, gives_up_log, damages: Vec::from_iter(damage), ..self.alone() }
    }

    // With a fast disk that is the store's.

    fn take(self) -> Result<Joined> {
        let home = self.home().clone();
        self.take_as(Taken { home, member: None, damages: Vec::new() })
    }

    /// Takes the disk with the contents of MEMBER from DISKS.
    fn take_without_member(self) -> Result<Joined> {
        let home = self.home().clone();
        let member = Member { store: home.store, disk: fact(home.used_disk()) };
        let damages = vec![self.member_damage()];
        self.take_as(Taken { home, member: Some(member), damages })
    }

    fn take_without_disks(self) -> Result<Joined> {
        let home = Home::of_member(self.member());
        let damages = vec![self.disks_damage()];
        self.take_as(Taken { home, member: None, damages })
    }

    fn take_without_either(self) -> Result<Joined> {
        let member = Member::fresh();
        let damages = vec![self.member_damage(), self.disks_damage()];
        self.take_as(Taken { home: Home::of_member(member), member: Some(member), damages })
    }

    /// Returns the damage of MEMBER: its contents, or that there is none.
    fn member_damage(&self) -> Corruption {
        self.disk().member.damage().cloned().unwrap_or_else(|| missing::member_file(self.at()))
    }

    /// Returns the damage of DISKS: its contents, or that there is none.
    fn disks_damage(&self) -> Corruption {
        self.facts.home.damage().cloned().unwrap_or_else(|| missing::disks_file(self.given))
    }

    fn take_as(mut self, taken: Taken) -> Result<Joined> {
        if self.access.writes() {
            copies::refuse(self.place(), &taken.home, self.at())?;
        }
        self.lock_fast_disk()?;
        let disks = self.unite();
        self.look_for_proof(&taken, &disks)?;
        let disks = disks?;
        disks.set_home(taken.home.clone());
        let pending = self.pending(&taken);
        Ok(self.on_both(disks, pending, taken.damages))
    }

    /// Looks for a second proof that the disk is the store's, as a lost file took one of the two. The rest of that file
    /// may still have the disk's id. Otherwise the manifest has to know the files on the disk.
    fn look_for_proof(&self, taken: &Taken, disks: &StorageResult<Arc<Disks>>) -> Result<()> {
        let (Some(damage), Some(id)) = (taken.damages.last(), taken.home.used_disk()) else { return Ok(()) };
        let fast = &self.disk().fast.volume;
        let (on, lost) = match taken.member {
            Some(_) => (fast, FileName::Member),
            None => (&self.given.capacity, FileName::Disks),
        };
        if still_names(&**on, lost, id) {
            return Ok(());
        }
        let disks = disks.as_ref().map_err(ToString::to_string);
        let had_disks_file = self.facts.known != Known::Nothing;
        disks
            .and_then(|disks| witness::manifest_knows(disks, self.given, self.env, had_disks_file))
            .map_err(|why| refusals::unproven(self.at(), &self.at_home(), damage, &why))
    }

    /// Returns the contents to write to DISKS, if they differ from the present ones: the places of the disks now, and
    /// the lost parts.
    fn pending(&self, taken: &Taken) -> Option<Pending> {
        let (at, home) = (self.at(), &taken.home);
        let place = self.place().map(str::to_owned).or_else(|| home.place.clone());
        let has_moved = home.at.as_deref() != Some(at) || home.place != place;
        let home = Home { at: Some(at.to_owned()), place, ..home.clone() };
        (has_moved || !taken.damages.is_empty()).then_some(Pending::Write(home, taken.member))
    }

    /// Looks on the disk, since neither DISKS nor MEMBER names a store.
    fn look_on_disk(self) -> Result<Joined> {
        let has_files = files_of_a_store(&*self.disk().fast.volume)?.is_some();
        let case = classify_unmarked(self.facts.known, has_files);
        self.carry_out(case)
    }

    // With a fast disk that becomes the store's.

    fn add(mut self) -> Result<Joined> {
        self.lock_fast_disk()?;
        let said = self.disk().member.contents().copied();
        if let Some(member) = said {
            copies::refuse_addition(self.place(), self.facts.home.contents(), member, self.at())?;
        }
        // Before the two count as one: files of one name on both would look like damage.
        self.refuse_files(said)?;
        let disks = self.unite()?;
        let store = self.facts.home.contents().map_or_else(Id::random, |home| home.store);
        // Nothing of the store lies on a disk that is being added: a leftover of an addition, or of a drain.
        let disk = said.map_or_else(Id::random, |member| member.disk);
        let (member, at, place) = (Member { store, disk }, self.at().to_owned(), self.given.place.clone());
        Ok(self.on_both(disks, Some(Pending::Add { member, at, place }), Vec::new()))
    }

    fn refuse_files(&self, said: Option<Member>) -> Result<()> {
        let file = files_of_a_store(&*self.disk().fast.volume)?;
        match classify_addition(said.is_some(), file.is_some()) {
            Addition::Empty => Ok(()),
            Addition::FilesOfThisStore => {
                Err(refusals::files_of_this_store(self.at(), &self.at_home(), fact(said), fact(file)))
            }
            Addition::FilesOfSomeStore => Err(refusals::files_of_some_store(self.at(), &self.at_home(), fact(file))),
        }
    }

    // Steps that several cases share.

    fn lock_fast_disk(&mut self) -> Result<()> {
        if self.access.writes() {
            let fast = &fact(self.facts.disk.as_ref()).fast.volume;
            self.locks.take(&**fast)?;
        }
        Ok(())
    }

    fn unite(&self) -> StorageResult<Arc<Disks>> {
        let FastDisk { volume, cache_bytes, .. } = self.disk().fast;
        let fast = NewDisk { number: FAST, role: Role::Fast, volume: Arc::clone(volume), cache_bytes: *cache_bytes };
        Disks::new(Arc::clone(&self.given.capacity), vec![fast], self.env)
    }

    fn on_both(self, disks: Arc<Disks>, pending: Option<Pending>, damages: Vec<Corruption>) -> Joined {
        let volume = Arc::clone(&disks) as Arc<dyn Volume>;
        Joined { volume, disks: Some(disks), locks: self.locks, pending, given_up: None, gives_up_log: false, damages }
    }

    // Refusals.

    fn given_and_given_up(&self) -> Error {
        refusals::given_and_given_up(&fact(self.given.fast.as_ref()).at)
    }

    fn another_disk(&self) -> Error {
        let home = self.home();
        refusals::another_disk(self.at(), fact(home.used_disk()), home, &self.at_home())
    }

    fn another_store(&self) -> Error {
        refusals::another_store(self.member().store, self.at(), self.home(), &self.at_home())
    }

    /// Reports another process that uses the disk, and damage that both disks show together, first.
    fn refuse_once_both_are_seen(mut self, why: fn(&str, &str) -> Error) -> Result<Joined> {
        self.lock_fast_disk()?;
        self.unite()?;
        Err(why(self.at(), &self.at_home()))
    }
}
