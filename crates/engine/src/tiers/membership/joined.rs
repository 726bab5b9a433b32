//! The volume that a store lies on, once its disks are found and locked.

use crate::Result;
use crate::base::options::Options;
use crate::places::{Plain, Volumes};
use crate::tiers::placement::TierRules;
use crate::tiers::volumes::TwoDisks;
use crate::versions::version::TableSource;
use situ_base::Env;
use situ_disks::members::{Home, Member, add};
use situ_disks::{Disks, FAST, Locks};
use situ_storage::{Corruption, Volume};
use situ_table::BlockCache;
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

    /// Returns the source of tables.
    pub(crate) fn source(&self, options: &Options, env: &Env) -> Arc<TableSource> {
        let rules =
            TierRules { bytes_per_s: options.fast_disk_bytes_per_s, pinned_level: options.ablation.pinned_level };
        let volumes = match &self.disks {
            Some(disks) => Arc::new(TwoDisks::new(disks, rules)) as Arc<dyn Volumes>,
            None => Plain::on(&self.volume),
        };
        Arc::new(TableSource::new(&volumes, BlockCache::new(options.cache_bytes), env, options.open_tables_max))
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
