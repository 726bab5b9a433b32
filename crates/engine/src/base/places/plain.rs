//! The places of a store on one volume.
//!
//! A store that was opened with further volumes names them in the file DISKS of its home, and each of them has a file
//! MEMBER. This page reads as much of both as keeps a store from being opened in part: the third line of DISKS ends
//! with `none` if there is no further volume any more (`docs/formats/members.md`).

use crate::base::places::{Found, HomeVolume, Locks, MakePlaces, NeededFiles, PlacedStore, Places, Purpose, Volumes};
use crate::{Error, Result};
use situ_base::Env;
use situ_storage::{FileMeta, FileName, Volume};
use std::sync::Arc;

/// The maximum length of a DISKS that names no further volume.
const DISKS_BYTES_MAX: u64 = 64 << 10;

/// Puts every file of a store on its home.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Plain {
    /// Returns the volumes of a store that lies on `volume` alone.
    pub fn on(volume: &Arc<dyn Volume>) -> Arc<dyn Volumes> {
        Arc::new(OneVolume(Arc::clone(volume)))
    }
}

fn refuse(home: &dyn Volume, why: &str) -> Result<()> {
    Err(Error::Disks(format!(
        "{}: {why}. Nothing was changed. Open it with what knows the volumes of such a store: `situ_tiers::Tiers`, as all \
         commands of the program `situ` do",
        home.location()
    )))
}

/// # Errors
/// There are, or may be, further volumes.
fn check_lies_alone(home: &dyn Volume) -> Result<()> {
    let has = |files: &[FileMeta], name| files.iter().any(|file| file.name == name);
    let files = home.list()?;
    if has(&files, FileName::Member) {
        return refuse(home, "this is a further volume of a store, as the file MEMBER says, and not the home of one");
    }
    if has(&files, FileName::Disks) && !names_no_volume(home)? {
        return refuse(home, "the store has a further volume, as the file DISKS says");
    }
    Ok(())
}

fn names_no_volume(home: &dyn Volume) -> Result<bool> {
    let reader = home.open(FileName::Disks)?;
    let mut bytes = vec![0; reader.bytes().min(DISKS_BYTES_MAX) as usize];
    reader.read_at(0, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().nth(2).is_some_and(|line| line.ends_with(" none")))
}

impl MakePlaces for Plain {
    fn name(&self) -> String {
        "one volume".to_owned()
    }

    fn find(&self, home: &HomeVolume, _env: &Env, purpose: Purpose) -> Result<Found> {
        let mut locks = Locks::default();
        check_lies_alone(&*home.volume)?;
        if matches!(purpose, Purpose::Write { .. } | Purpose::Repair) {
            locks.take(&*home.volume)?;
            // Under the lock, no other process can add a volume.
            check_lies_alone(&*home.volume)?;
        }
        let volumes = Plain::on(&home.volume);
        let (damages, notes) = (Vec::new(), Vec::new());
        Ok(Found { volumes, locks, damages, notes, gives_up_files: false, gives_up_log: false })
    }

    fn clear(&self, home: &HomeVolume, env: &Env) -> Result<Locks> {
        Ok(self.find(home, env, Purpose::Repair)?.locks)
    }
}

/// One volume, on which everything lies.
struct OneVolume(Arc<dyn Volume>);

impl Volumes for OneVolume {
    fn volume(&self) -> &Arc<dyn Volume> {
        &self.0
    }

    fn explain_missing(&self, needed: &NeededFiles, _files: &[FileMeta]) -> Result<()> {
        let mut missing = needed.missing.iter().filter(|missing| missing.may_be_elsewhere && missing.is_gone);
        match missing.next() {
            Some(missing) if needed.notes_further_volumes => {
                let why =
                    format!("{} is missing, and the store had a further volume, as the manifest says", missing.name);
                refuse(&*self.0, &why)
            }
            _ => Ok(()),
        }
    }

    fn places(&self, _store: Arc<dyn PlacedStore>) -> Arc<dyn Places> {
        Arc::new(AllAtHome)
    }
}

/// Everything goes home.
struct AllAtHome;

impl Places for AllAtHome {}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_storage::DirectoryVolume;

    fn home_with(name: &str, contents: &str) -> (tempfile::TempDir, HomeVolume) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(name), contents).unwrap();
        let home = HomeVolume::directory(DirectoryVolume::open(directory.path()).unwrap());
        (directory, home)
    }

    #[test]
    fn a_store_on_several_volumes_is_not_opened_in_part() {
        let purposes = [Purpose::Read, Purpose::Write { create: true }, Purpose::Repair, Purpose::Survey];
        let open = |home: &HomeVolume, purpose| Plain.find(home, &Env::system(), purpose).map(drop);
        for text in ["", "rot", "situ disks 1\nstore 07\nfast used 08\nat /mnt\n", "a none\nb none\nfast adding 8\n"] {
            let (_directory, home) = home_with("DISKS", text);
            for purpose in purposes {
                let refused = open(&home, purpose).unwrap_err().to_string();
                assert!(refused.contains("further volume") && refused.contains("Tiers"), "{text:?}: {refused}");
            }
        }
        let (_directory, home) = home_with("MEMBER", "");
        assert!(purposes.into_iter().all(|purpose| open(&home, purpose).is_err()));
        // One that has let go of its further volumes is a store on one volume.
        let (_directory, home) = home_with("DISKS", "situ disks 1\nstore 07\nfast none\nchecksum 00\n");
        purposes.into_iter().for_each(|purpose| open(&home, purpose).unwrap());
    }
}
