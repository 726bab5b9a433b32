//! The maker of tiers: from the choices of a caller to the disks of a store.

use crate::membership::{Access, Given, clear_fast_disk, given, given_home, join, lock_home};
use crate::path_text::line_of;
use crate::placement::TierRules;
use situ_base::Env;
use situ_engine::Result;
use situ_engine::places::{Found, HomeName, HomeVolume, Locks, MakePlaces, Purpose};
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
    pub fn of(places: &Arc<dyn MakePlaces>) -> Tiers {
        let any: &dyn Any = &**places;
        any.downcast_ref::<Tiers>().cloned().unwrap_or_default()
    }

    /// Names the fast disk: a directory of a file system on it, or a device or preallocated file that `situ disk
    /// format` has prepared.
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

    /// Sets two bandwidths of the fast disk, in bytes a second. Between them the levels that go to the disk stay as
    /// they are. Below the first, a deeper level is added if there is room. Above the second, the deepest one is taken
    /// away. Default: both come from the measured bandwidth of the disk.
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

    /// Returns the level that [`pinned_level`](Tiers::pinned_level) has set.
    #[doc(hidden)]
    pub fn pinned(&self) -> Option<usize> {
        self.rules.pinned_level
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
        let TierRules { bytes_per_s, pinned_level } = self.rules;
        let between = bytes_per_s.map_or_else(String::new, |(low, high)| format!(", {low} to {high} bytes/s"));
        let pinned = pinned_level.map_or_else(String::new, |level| format!(", pinned below level {level}"));
        format!("tiers{between}{pinned}")
    }

    fn find(&self, home: &HomeVolume, env: &Env, purpose: Purpose) -> Result<Found> {
        let given = self.given(home, env, purpose)?;
        let access = self.access(purpose);
        let joined = join(&given, env, access)?;
        Ok(joined.into_found(given, self.rules, access.gives_up_fast_disk()))
    }

    fn clear(&self, home: &HomeVolume, env: &Env) -> Result<Locks> {
        let locks = lock_home(&*home.volume)?;
        let place = match &home.named {
            HomeName::Directory(directory) => fs::canonicalize(directory).ok().as_deref().map(line_of),
            HomeName::Location | HomeName::Volume => Some(line_of(Path::new(&home.volume.location()))),
        };
        clear_fast_disk(&*home.volume, env, place.as_deref())?;
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
pub(crate) fn disks_of(store: &situ_engine::Store) -> &Arc<crate::set::Disks> {
    let volumes: &dyn Any = &**store.volumes();
    volumes.downcast_ref::<crate::membership::TierVolumes>().unwrap().disks().unwrap()
}
