//! The drive under a path, its compression, and its figures of physical space.
//!
//! # Algorithm
//!
//! 1. The path's device number leads to the drive's description under `/sys/dev/block` (`drive/find.rs`). Partitions,
//!    loop devices, logical volumes and arrays are followed down to the one drive that holds everything.
//! 2. The description says what the drive is: zram, dm-vdo, a ScaleFlux drive, or one that says nothing of compression.
//! 3. [`Drive::counts`] asks the drive for its figures at each call: zram by a file of `/sys`, dm-vdo by its
//!    statistics, a ScaleFlux drive by log pages of NVMe.
//!
//! **Invariants.** No figure is guessed. A figure that the drive does not report is `None`. A drive that says nothing
//! of compression is [`Unknown`](Compresses::Unknown): nothing outside of an ordinary drive shows what it does with its
//! bytes.
//! **Whose figures.** Those of the whole drive, with everything that others keep on it. So `total - used` is the space
//! that all of them have left, and `used` is the caller's own only where the caller has the drive for itself.
//! **Threads.** A `Drive` can be asked by many threads at once. It holds no lock.
//! **Failure.** A question that the system or the drive refuses gives `None`. [`Nature::why`] says what was refused at
//! first.
//! **Rejected.** To take an ordinary drive's word-for-word silence for "does not compress": arrays and virtual disks
//! compress behind the same interface. Nor are the sums of btrfs or ZFS taken: they do not tell what one more block
//! would cost.

mod find;
mod mounts;
mod scaleflux;
mod vdo;
mod zram;

use crate::{Compresses, Nature, Space};
use find::Found;
use rustix::fs::{FileType, fstat, fstatfs, stat, statfs};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The figures of a drive for all that lies on it, in bytes; `None` where the drive does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Addressable bytes that hold something.
    pub logical_used: Option<u64>,
    /// See [`Space::physical_total`].
    pub physical_total: Option<u64>,
    /// See [`Space::physical_used`].
    pub physical_used: Option<u64>,
    /// See [`Space::physical_written`].
    pub physical_written: Option<u64>,
}

/// A drive, found under a path.
#[derive(Debug)]
pub struct Drive {
    nature: Nature,
    gauge: Gauge,
}

/// The way to ask a drive for its figures.
#[derive(Debug)]
enum Gauge {
    /// A drive without figures.
    Silent,
    /// A zram device, by its directory under `/sys`.
    Zram(PathBuf),
    Vdo(vdo::Volume),
    ScaleFlux(scaleflux::Controller),
}

impl Drive {
    /// Returns the drive under `path`: a block device, an NVMe drive's generic character device, a directory, or any
    /// other file.
    ///
    /// # Errors
    /// The system does not let the path be looked at.
    pub fn under(path: &Path) -> io::Result<Drive> {
        if crate::is_pci_name(path) {
            return Ok(Drive::unknown("the driver in user space does not ask drives about compression"));
        }
        let block = crate::nvme::block_path(path).filter(|block| block.exists());
        let path = block.as_deref().unwrap_or(path);
        let stat = stat(path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Ok(Drive::numbered(stat.st_rdev)),
            _ => Ok(Drive::below(stat.st_dev, || Ok(statfs(path)?.f_type as u64))),
        }
    }

    /// Returns the drive under an open file or directory, or the drive that it is.
    ///
    /// # Errors
    /// The system does not tell of the file.
    pub fn of(file: &File) -> io::Result<Drive> {
        let stat = fstat(file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Ok(Drive::numbered(stat.st_rdev)),
            _ => Ok(Drive::below(stat.st_dev, || Ok(fstatfs(file)?.f_type as u64))),
        }
    }

    /// Returns a drive of which nothing is known.
    pub fn unknown(why: impl Into<String>) -> Drive {
        Drive { nature: Nature::unknown("unknown", why), gauge: Gauge::Silent }
    }

    fn numbered(number: u64) -> Drive {
        Drive::from(find::find(Path::new("/sys"), number))
    }

    fn below(number: u64, file_system: impl FnOnce() -> io::Result<u64>) -> Drive {
        // A file system without a block device of its own has a number without a driver.
        if rustix::fs::major(number) != 0 {
            let mut drive = Drive::numbered(number);
            drive.nature.keeps_discards = mounts::keep_discards(number);
            return drive;
        }
        let nature = match file_system() {
            Ok(magic) => find::file_system(magic),
            Err(error) => Nature::unknown("unknown", format!("the system does not name the file system: {error}")),
        };
        Drive { nature, gauge: Gauge::Silent }
    }

    /// Returns the kind of the drive, and its compression.
    pub fn nature(&self) -> &Nature {
        &self.nature
    }

    /// Returns the current figures.
    pub fn counts(&self) -> Counts {
        match &self.gauge {
            Gauge::Silent => Counts::default(),
            Gauge::Zram(directory) => zram::counts(directory),
            Gauge::Vdo(volume) => volume.counts(),
            Gauge::ScaleFlux(controller) => controller.counts(),
        }
    }

    /// Returns `space` with the physical bytes that the drive counts.
    pub fn add_to(&self, space: Space) -> Space {
        let Counts { physical_total, physical_used, physical_written, .. } = self.counts();
        Space { physical_total, physical_used, physical_written, ..space }
    }

    /// Returns the trouble that the drive itself reports, as text for people.
    pub fn trouble(&self) -> Option<String> {
        match &self.gauge {
            Gauge::Zram(directory) => zram::trouble(directory),
            Gauge::ScaleFlux(controller) => controller.trouble(),
            Gauge::Silent | Gauge::Vdo(_) => None,
        }
    }
}

impl From<Found> for Drive {
    fn from(found: Found) -> Drive {
        let Found { mut nature, drive } = found;
        let gauge = match drive {
            find::Kind::Other => Gauge::Silent,
            find::Kind::Zram(directory) => Gauge::Zram(directory),
            find::Kind::Vdo { directory, number } => Gauge::Vdo(vdo::Volume::new(directory, number)),
            find::Kind::ScaleFlux(controller) => match scaleflux::Controller::open(&controller) {
                Ok(controller) => {
                    nature.compresses = Compresses::Yes;
                    Gauge::ScaleFlux(controller)
                }
                Err(error) => {
                    nature.why = Some(format!("/dev/{} does not answer: {error}", controller.name));
                    Gauge::Silent
                }
            },
        };
        Drive { nature, gauge }
    }
}

#[cfg(test)]
mod tests;
