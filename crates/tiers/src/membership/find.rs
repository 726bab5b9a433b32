//! From paths to the volumes that a caller means.
//!
//! 1. The capacity disk is the directory that the caller opens ([`given`]), or a volume elsewhere: on a node
//!    ([`given_home`]).
//! 2. The fast disk is the one that the caller names, or else the one that DISKS remembers.
//! 3. A path may name a directory, a device or a file that was prepared as a Situ disk ([`fast_disk`]).
//!
//! Nothing is locked here. `classify.rs` decides if the disk is the right one.

use super::refusals::{named_unusable, unusable};
use super::volumes::{Access, FastDisk, Given};
use crate::members::{Fast, Home, Member};
use crate::path_text::{line_of, path_of};
use situ_base::Env;
use situ_device::{OpenOptions, is_pci_name};
use situ_engine::{Error, Result};
use situ_rawdisk::{RawOptions, RawVolume};
use situ_storage::{DirectoryVolume, Error as StorageError, Volume};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Returns the fast disk at a path: a directory of a fast file system, or a device or file that was prepared as a Situ
/// disk. With `create`, makes a directory if nothing is there and a directory may be.
pub(crate) fn fast_disk(path: &Path, env: &Env, create: bool, read_only: bool) -> Result<FastDisk> {
    let failed = |op, error| Error::from(StorageError::io(op, path.display(), error));
    let raw = match fs::metadata(path) {
        _ if is_pci_name(path) => true,
        Ok(meta) => !meta.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            may_be_made(path, create)?;
            DirectoryVolume::create(path)?;
            false
        }
        Err(error) => return Err(failed("open", error)),
    };
    // The home remembers the whole path by the name that the caller gave. A link to a device still leads there when the
    // system has given the device another name.
    let whole = situ_device::absolute(path).map_err(|error| failed("open", error))?;
    let at = line_of(&whole);
    let options = RawOptions::default();
    let cache_bytes = if raw { options.cache_bytes } else { 0 };
    let volume: Arc<dyn Volume> = if raw {
        let how = OpenOptions { read_only, ..OpenOptions::default() };
        let device = situ_device::open(&whole, how).map_err(|error| failed("open", error))?;
        Arc::new(RawVolume::open(device, env.clone(), options)?)
    } else {
        Arc::new(DirectoryVolume::open(whole)?)
    };
    Ok(FastDisk { volume, at, cache_bytes, remembered: None })
}

/// Checks that a new directory may become a fast disk. It has to be next to something that is there. A name that is
/// spelled wrong, or a file system that is not mounted, would give the log a place where no later opening looks for it.
/// It may not be among the devices, as a directory made there lies in memory.
fn may_be_made(path: &Path, create: bool) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::Disks(format!(
            "there is nothing at {}{why}; a fast disk is a device or file that `situ disk format` has prepared, or a \
             directory",
            path.display()
        )))
    };
    if !create {
        return refuse("");
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    match fs::canonicalize(parent) {
        Ok(parent) if parent.starts_with("/dev") => {
            refuse(", and a directory made there would be lost when the machine stops")
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse(&format!(", and {} is not there either (is it mounted?)", parent.display()))
        }
        Err(error) => Err(StorageError::io("open", parent.display(), error).into()),
    }
}

/// Returns the volumes of the store in a directory. Without a fast disk by name, the one that the store remembers is
/// taken, if there is anything where it was last.
pub(crate) fn given(
    volume: &Arc<dyn Volume>,
    directory: &Path,
    fast: Option<&Path>,
    env: &Env,
    create: bool,
    access: Access,
) -> Result<Given> {
    let home = fs::canonicalize(directory).ok();
    if let (Some(home), Some(path)) = (&home, fast)
        && fs::canonicalize(path).is_ok_and(|path| path == *home)
    {
        let text = format!("{} is the home of the store; its fast disk has to be another place", path.display());
        return Err(Error::Disks(text));
    }
    with_fast_disk(Arc::clone(volume), home.as_deref().map(line_of), fast, env, create, access)
}

/// As [`given`], of a store whose home is no directory here. Its place is the location that the volume reports.
pub(crate) fn given_home(
    home: &Arc<dyn Volume>,
    fast: Option<&Path>,
    env: &Env,
    create: bool,
    access: Access,
) -> Result<Given> {
    let place = line_of(Path::new(&home.location()));
    with_fast_disk(Arc::clone(home), Some(place), fast, env, create, access)
}

fn with_fast_disk(
    capacity: Arc<dyn Volume>,
    place: Option<String>,
    fast: Option<&Path>,
    env: &Env,
    create: bool,
    access: Access,
) -> Result<Given> {
    let Some(path) = fast else {
        let fast = remembered(&*capacity, env, access)?;
        return Ok(Given { capacity, fast, place });
    };
    let fast = fast_disk(path, env, create, !access.writes()).map_err(|error| {
        // The device there may be the store's own disk, of which the beginning is gone.
        let known = Home::read(&*capacity).ok().flatten().filter(|known| matches!(known.fast, Fast::Used(_)));
        match known.filter(|_| is_pci_name(path) || fs::metadata(path).is_ok()) {
            Some(known) => named_unusable(&capacity.location(), path, error, &known, access),
            None => error,
        }
    })?;
    Ok(Given { capacity, fast: Some(fast), place })
}

/// Returns the fast disk where it was last; `None` if the store needs none, or nothing is there any more. `classify.rs`
/// decides if it is the right one.
///
/// # Errors
/// Something is there and cannot be used: a right is missing, the device fails, its metadata is damaged.
pub(super) fn remembered(home: &dyn Volume, env: &Env, access: Access) -> Result<Option<FastDisk>> {
    if access.gives_up_fast_disk() {
        return Ok(None);
    }
    let Home { store, fast, at: Some(at), .. } = (match Home::read(home) {
        Ok(Some(known)) => known,
        // `join` reads it again, and decides the next step.
        Ok(None) | Err(StorageError::Corruption(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    }) else {
        return Ok(None);
    };
    let path = &*path_of(&at);
    let noted = |disk, found| FastDisk { remembered: Some(disk), ..found };
    match fast {
        Fast::None => Ok(None),
        Fast::Adding(_) if access != Access::Write => Ok(None),
        // Nothing of the store lies there: whatever is wrong with it, the store opens without.
        Fast::Adding(disk) => {
            let found = fast_disk(path, env, false, false).ok().filter(|found| {
                let member = Member::read(&*found.volume);
                matches!(member, Ok(Some(member)) if member == Member { store, disk })
            });
            Ok(found.map(|found| noted(disk, found)))
        }
        Fast::Used(disk) => match fs::metadata(path) {
            // The file system does not know if such a drive is there.
            Err(error) if !is_pci_name(path) && error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => fast_disk(path, env, false, !access.writes())
                .map(|found| Some(noted(disk, found)))
                .map_err(|error| unusable(&home.location(), &at, error, access)),
        },
    }
}
