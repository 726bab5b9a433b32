//! A fast disk for a store, a guest: which disks belong together, which tables go there, and how it is taken away.
//!
//! [`Tiers`] finds the disks of a store that opens (`membership.rs`). The store asks
//! [`Volumes`](crate::base::places::Volumes) and [`Places`](crate::base::places::Places), and knows no more of it. `placement.rs`
//! decides where a table goes, by the rules in `rules.rs`; `promotion.rs` moves tables that are read often; `drain.rs`
//! takes the disk away.

pub(crate) mod drain;
pub(crate) mod membership;
pub(crate) mod placement;
pub(crate) mod promotion;
pub(crate) mod promotion_rules;
pub(crate) mod rules;

use crate::Result;
use crate::base::places::{Found, HomeName, HomeVolume, MakePlaces, Purpose};
use crate::tiers::membership::{Access, Given, clear_fast_disk, given, given_home, join, lock_home};
use crate::tiers::placement::TierRules;
use situ_base::Env;
use situ_disks::Locks;
use situ_disks::path_text::line_of;
use situ_storage::Volume;
use std::any::Any;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Finds the disks of a store: its home, and the fast disk that the caller names or that the store remembers.
///
/// A store without a fast disk lies on its home alone.
#[derive(Clone, Default)]
pub struct Tiers {
    fast: Option<Named>,
    gives_up: bool,
    rules: TierRules,
}

/// A fast disk that a caller names.
#[derive(Clone)]
enum Named {
    Path(PathBuf),
    Volume(Arc<dyn Volume>),
}

impl Tiers {
    /// Returns the maker that takes the fast disk which the store remembers, if it has one.
    pub fn new() -> Tiers {
        Tiers::default()
    }

    /// Returns these places if they are tiers, and else tiers without any choice.
    pub(crate) fn of(places: &Arc<dyn MakePlaces>) -> Tiers {
        let any: &dyn Any = &**places;
        any.downcast_ref::<Tiers>().cloned().unwrap_or_default()
    }

    /// Names the fast disk: a directory of a file system on it, or a device or preallocated file that `situ disk format`
    /// has prepared.
    #[must_use]
    pub fn fast_disk(mut self, path: impl Into<PathBuf>) -> Tiers {
        self.fast = Some(Named::Path(path.into()));
        self
    }

    /// Names the fast disk, as a volume that the caller has opened.
    #[must_use]
    pub fn fast_volume(mut self, volume: Arc<dyn Volume>) -> Tiers {
        self.fast = Some(Named::Volume(volume));
        self
    }

    /// Gives up the fast disk, in a repair.
    #[must_use]
    pub fn giving_up_fast_disk(mut self, gives_up: bool) -> Tiers {
        self.gives_up = gives_up;
        self
    }

    /// Sets two bandwidths of the fast disk, in bytes a second. Between them the levels that go to the disk stay as they
    /// are. Below the first, a deeper level is added if there is room. Above the second, the deepest one is taken away.
    /// Default: both come from the measured bandwidth of the disk.
    #[must_use]
    pub fn bytes_per_s(mut self, low: u64, high: u64) -> Tiers {
        self.rules.bytes_per_s = Some((low, high));
        self
    }

    /// Sends new tables of levels below this one, and no others, to the fast disk as far as there is room, whatever the
    /// load is. Frequent reads do not move a table there.
    #[doc(hidden)]
    #[must_use]
    pub fn pinned_level(mut self, level: Option<usize>) -> Tiers {
        self.rules.pinned_level = level;
        self
    }

    fn access(&self, purpose: Purpose) -> Access {
        let without_fast_disk = self.gives_up;
        match purpose {
            Purpose::Read => Access::Read,
            Purpose::Write { .. } => Access::Write,
            Purpose::Repair => Access::Repair { without_fast_disk },
            Purpose::Survey => Access::Survey { without_fast_disk },
        }
    }

    /// Returns the disks that the caller names, or the store remembers.
    fn given(&self, home: &HomeVolume, env: &Env, purpose: Purpose) -> Result<Given> {
        let (access, create) = (self.access(purpose), purpose == Purpose::Write { create: true });
        let path = match &self.fast {
            Some(Named::Volume(volume)) => {
                return Ok(Given::volumes(Arc::clone(&home.volume), Some(Arc::clone(volume).into())));
            }
            Some(Named::Path(path)) => Some(path.as_path()),
            None => None,
        };
        match &home.named {
            HomeName::Directory(directory) => given(&home.volume, directory, path, env, create, access),
            HomeName::Volume if path.is_none() => Ok(Given::alone(Arc::clone(&home.volume))),
            HomeName::Volume | HomeName::Location => given_home(&home.volume, path, env, create, access),
        }
    }
}

impl MakePlaces for Tiers {
    fn name(&self) -> String {
        "tiers".to_owned()
    }

    fn find(&self, home: &HomeVolume, env: &Env, purpose: Purpose) -> Result<Found> {
        let given = self.given(home, env, purpose)?;
        let joined = join(&given, env, self.access(purpose))?;
        Ok(joined.into_found(given, self.rules))
    }

    fn clear(&self, home: &HomeVolume) -> Result<Locks> {
        let locks = lock_home(&*home.volume)?;
        let place = match &home.named {
            HomeName::Directory(directory) => fs::canonicalize(directory).ok().as_deref().map(line_of),
            HomeName::Location | HomeName::Volume => Some(line_of(Path::new(&home.volume.location()))),
        };
        clear_fast_disk(&*home.volume, place.as_deref())?;
        Ok(locks)
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fast = self.fast.as_ref().map(|fast| match fast {
            Named::Path(path) => path.display().to_string(),
            Named::Volume(volume) => volume.location(),
        });
        f.debug_struct("Tiers").field("fast", &fast).field("gives_up", &self.gives_up).finish_non_exhaustive()
    }
}

/// Returns the disks of an open store, for tests of what they do.
#[cfg(test)]
pub(crate) fn disks_of(store: &crate::Store) -> &Arc<situ_disks::Disks> {
    let volumes: &dyn Any = &*store.core().versions.source.volumes;
    volumes.downcast_ref::<membership::TierVolumes>().unwrap().disks().unwrap()
}
