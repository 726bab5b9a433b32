//! The volume that a store lies on, once its disks are found and locked.

use super::missing;
use super::volumes::Given;
use crate::members::{Home, Member, add};
use crate::placement::{Placement, TierRules};
use crate::set::{Disks, FAST, Role};
use situ_engine::Result;
use situ_engine::places::Locks;
use situ_engine::places::{Found, HOME, NeededFiles, PlacedStore, Places, Plain, Reserved, Volumes};
use situ_storage::{Corruption, FileMeta, FileName, Result as StorageResult, Space, Volume, Writer};
use std::sync::Arc;

/// The volume that a store lies on.
pub(crate) struct Joined {
    pub(crate) volume: Arc<dyn Volume>,
    /// The disks, if there are two.
    pub(crate) disks: Option<Arc<Disks>>,
    pub(crate) locks: Locks,
    /// The contents that DISKS gets before anything else is written, if they differ from the present ones.
    pub(super) pending: Option<Pending>,
    /// The contents that DISKS gets if a fast disk was there and is given up.
    pub(crate) given_up: Option<Home>,
    /// True if the home names a fast disk which is given up: the log may have gone on there.
    pub(crate) gives_up_log: bool,
    /// The damages of DISKS and MEMBER whose contents came from elsewhere.
    pub(crate) damages: Vec<Corruption>,
}

/// The contents to write to DISKS, and perhaps to MEMBER.
pub(super) enum Pending {
    /// The disk becomes the store's.
    Add { member: Member, at: String, place: Option<String> },
    /// The disk is the store's. MEMBER is written only where it was lost.
    Write(Home, Option<Member>),
}

impl Joined {
    pub(super) fn alone(volume: &Arc<dyn Volume>, locks: Locks) -> Joined {
        Joined {
            volume: Arc::clone(volume),
            disks: None,
            locks,
            pending: None,
            given_up: None,
            gives_up_log: false,
            damages: Vec::new(),
        }
    }

    /// Notes that there is no fast disk any more, when the manifest needs none.
    pub(crate) fn give_up(&self) -> Result<()> {
        self.given_up.as_ref().map_or(Ok(()), |home| Ok(home.write(&*self.volume)?))
    }

    /// Makes both disks know of each other, durably.
    pub(crate) fn settle(&self) -> Result<()> {
        let Some(disks) = &self.disks else { return Ok(()) };
        self.tie(disks)?;
        disks.all_names_are_known();
        Ok(())
    }

    fn tie(&self, disks: &Disks) -> Result<()> {
        disks.remove_twins()?;
        match &self.pending {
            None => Ok(()),
            Some(Pending::Write(home, member)) => write(disks, home, *member),
            Some(Pending::Add { member, at, place }) => give(disks, *member, at, place.clone()),
        }
    }
}

fn write(disks: &Disks, home: &Home, member: Option<Member>) -> Result<()> {
    if let Some(member) = member {
        member.write(&disks.numbered(FAST)?.volume)?;
    }
    home.write(&disks.capacity().volume)?;
    disks.set_home(home.clone());
    Ok(())
}

/// Makes the disk the store's.
fn give(disks: &Disks, member: Member, at: &str, place: Option<String>) -> Result<()> {
    // A small file half written; there is nothing else (`Addition::Empty`).
    let fast = disks.numbered(FAST)?;
    for file in fast.list()? {
        disks.remove(file.name)?;
    }
    disks.set_home(add(&disks.capacity().volume, &fast.volume, member, at, place)?);
    Ok(())
}

/// The volumes of a store, as the store uses them: the capacity disk, and perhaps a fast disk.
pub(crate) struct TierVolumes {
    joined: Joined,
    given: Given,
    rules: TierRules,
}

impl Joined {
    /// Returns the volumes for a store that opens.
    pub(crate) fn into_found(mut self, given: Given, rules: TierRules, gives_up_files: bool) -> Found {
        let given_up = "the fast disk is given up: what was on it and nowhere else is lost";
        Found {
            locks: std::mem::take(&mut self.locks),
            damages: std::mem::take(&mut self.damages),
            notes: self.given_up.iter().map(|_| given_up.to_owned()).collect(),
            gives_up_files,
            gives_up_log: self.gives_up_log,
            volumes: Arc::new(TierVolumes { joined: self, given, rules }),
        }
    }
}

impl TierVolumes {
    /// Returns the volumes on these disks, to look at files through them.
    pub(super) fn to_look_at(disks: &Arc<Disks>, given: &Given) -> Arc<dyn Volumes> {
        let volume = Arc::clone(disks) as Arc<dyn Volume>;
        let joined = Joined { disks: Some(Arc::clone(disks)), ..Joined::alone(&volume, Locks::default()) };
        Arc::new(TierVolumes { joined, given: given.clone(), rules: TierRules::default() })
    }

    /// Returns the disks, if there are two.
    pub(crate) fn disks(&self) -> Option<&Arc<Disks>> {
        self.joined.disks.as_ref()
    }
}

/// A store with one disk answers as [`Plain`] does: its volume is the disk itself.
impl Volumes for TierVolumes {
    fn volume(&self) -> &Arc<dyn Volume> {
        &self.joined.volume
    }

    fn are_several(&self) -> bool {
        self.disks().is_some()
    }

    fn numbers(&self) -> Vec<u32> {
        let fast = self.disks().and_then(|disks| disks.with_role(Role::Fast)).map(|disk| disk.number());
        std::iter::once(HOME).chain(fast).collect()
    }

    fn numbered(&self, number: u32) -> Option<&dyn Volume> {
        let Some(disks) = self.disks() else { return (number == HOME).then_some(&*self.joined.volume) };
        let disk = disks.numbered(number).ok().filter(|disk| !disk.is_left())?;
        Some(&disk.volume)
    }

    fn volume_of(&self, file: FileName) -> u32 {
        self.disks().map_or(HOME, |disks| disks.disk_of(file))
    }

    fn begin_table(&self, volume: u32, number: u64, bytes_max: u64) -> StorageResult<Option<Box<dyn Writer>>> {
        match self.disks() {
            Some(disks) => disks.create_table(volume, number, bytes_max),
            None => self.joined.volume.create(FileName::Table(number), bytes_max).map(Some),
        }
    }

    fn reserve_table(&self, volume: u32, number: u64) -> Option<Reserved> {
        Some(Box::new(self.disks()?.reserve_table(volume, number)?))
    }

    fn adopt_table(&self, volume: u32, number: u64) {
        self.disks().into_iter().for_each(|disks| disks.adopt(volume, number));
    }

    fn log_area(&self) -> Option<Space> {
        self.disks()?.log_room()
    }

    fn space_for_log_file(&self) -> u64 {
        self.disks().map_or(u64::MAX, |disks| disks.space_for_log_file())
    }

    fn settle(&self) -> Result<()> {
        self.joined.settle()
    }

    fn give_up(&self) -> Result<()> {
        self.joined.give_up()
    }

    fn explain_missing(&self, needed: &NeededFiles, files: &[FileMeta]) -> Result<()> {
        if self.disks().is_some() { Ok(()) } else { missing::refuse_unnamed(&self.given, needed, files) }
    }

    fn places(&self, store: Arc<dyn PlacedStore>) -> Arc<dyn Places> {
        let placement = self.disks().and_then(|disks| Placement::new(Arc::clone(&store), disks, self.rules));
        match placement {
            Some(placement) => Arc::new(placement),
            None => Plain::on(&self.joined.volume).places(store),
        }
    }
}
