//! Functions over a whole store that is not open, wherever its files lie.

use crate::maker::Tiers;
use situ_base::Env;
use situ_engine::places::{HomeVolume, MakePlaces, Purpose};
use situ_engine::{
    RepairOptions, RepairReport, Result, Store, VerifyProgress, VerifyReport, repair_store, verify_store,
};
use situ_storage::{DirectoryVolume, Volume};
use std::path::Path;
use std::sync::Arc;

fn directory(path: impl AsRef<Path>) -> Result<HomeVolume> {
    Ok(HomeVolume::directory(DirectoryVolume::open(path.as_ref())?))
}

/// Returns all files of the store in a directory as one volume, wherever they lie, for tools that look at them one by
/// one. Locks and writes nothing.
///
/// # Errors
/// The directory, or the store's fast disk, is not there.
pub fn files_of(home: impl AsRef<Path>) -> Result<Arc<dyn Volume>> {
    files_in(&directory(home)?)
}

/// As [`files_of`], of the store whose home is `home`, which is no directory here.
///
/// # Errors
/// The store's fast disk is not there; the home cannot be read.
pub fn files_of_home(home: &Arc<dyn Volume>) -> Result<Arc<dyn Volume>> {
    files_in(&HomeVolume::elsewhere(home))
}

fn files_in(home: &HomeVolume) -> Result<Arc<dyn Volume>> {
    Ok(Arc::clone(Tiers::new().find(home, &Env::system(), Purpose::Read)?.volumes.volume()))
}

/// Removes the store in `home` as [`Store::destroy`] does, and its files on the store's fast disk, which has to be
/// where it was last.
///
/// # Errors
/// As [`Store::destroy`]; the fast disk is not there.
pub fn destroy(home: impl AsRef<Path>) -> Result<()> {
    Store::destroy_with(&directory(home)?, &Tiers::new())
}

/// As [`destroy`], of the store whose home is a volume elsewhere.
///
/// # Errors
/// As [`destroy`].
pub fn destroy_home(home: &Arc<dyn Volume>) -> Result<()> {
    Store::destroy_with(&HomeVolume::elsewhere(home), &Tiers::new())
}

/// Verifies the store in a directory; see [`verify`](situ_engine::verify()).
///
/// # Errors
/// As [`verify`](situ_engine::verify()); the directory cannot be opened; the fast disk is missing, or not the store's.
pub fn verify_directory(home: impl AsRef<Path>, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
    verify_store(&directory(home)?, &Tiers::new(), &Env::system(), progress)
}

/// As [`verify_directory`], of the store whose home is `home`, which is no directory here.
///
/// # Errors
/// As [`verify_directory`].
pub fn verify_home(home: &Arc<dyn Volume>, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
    verify_store(&HomeVolume::elsewhere(home), &Tiers::new(), &Env::system(), progress)
}

/// As [`verify_directory`], of a store on a capacity disk and a fast one.
///
/// # Errors
/// As [`verify_directory`].
pub fn verify_volumes(
    capacity: &Arc<dyn Volume>,
    fast: Option<&Arc<dyn Volume>>,
    env: &Env,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport> {
    let tiers = fast.cloned().into_iter().fold(Tiers::new(), Tiers::fast_volume);
    verify_store(&HomeVolume::given(Arc::clone(capacity)), &tiers, env, progress)
}

/// Returns the options with tiers, if they have other places.
fn tiered(mut options: RepairOptions) -> RepairOptions {
    options.options.places = Arc::new(Tiers::of(&options.options.places));
    options
}

/// Repairs the store in a directory; see [`repair`](situ_engine::repair()).
///
/// # Errors
/// As [`repair`](situ_engine::repair()); the directory or the fast disk cannot be opened; the fast disk is missing and
/// was not [given up](crate::TieredRepair::without_fast_disk), or not the store's.
pub fn repair_directory(home: impl AsRef<Path>, options: RepairOptions) -> Result<RepairReport> {
    repair_store(&directory(home)?, &Env::system(), tiered(options))
}

/// As [`repair_directory`], of the store whose home is `home`, which is no directory here.
///
/// # Errors
/// As [`repair_directory`].
pub fn repair_home(home: &Arc<dyn Volume>, options: RepairOptions) -> Result<RepairReport> {
    repair_store(&HomeVolume::elsewhere(home), &Env::system(), tiered(options))
}

/// As [`repair_directory`], of a store on a capacity disk and a fast one.
///
/// # Errors
/// As [`repair_directory`].
pub fn repair_volumes(
    capacity: &Arc<dyn Volume>,
    fast: Option<&Arc<dyn Volume>>,
    env: &Env,
    options: RepairOptions,
) -> Result<RepairReport> {
    let mut options = options;
    let tiers = fast.cloned().into_iter().fold(Tiers::of(&options.options.places), Tiers::fast_volume);
    options.options.places = Arc::new(tiers);
    repair_store(&HomeVolume::given(Arc::clone(capacity)), env, options)
}
