//! From a device's number down to the one drive that holds its bytes, by the kernel's descriptions under `/sys`.
//!
//! A device between path and drive may be passed or not, by its effect on the bytes. Partitions, loop devices, logical
//! volumes, multipath devices and arrays hand bytes on as they are. An encrypted device hands on bytes that no drive
//! can compress. A device of the device mapper that does not say what it is may do either, and ends the way down.

use crate::{Compresses, Nature};
use rustix::fs::{FileType, major, minor, stat};
use std::fs;
use std::path::{Path, PathBuf};

/// Devices on top of each other; beyond this, something is wrong with the descriptions.
const DEVICES_MAX: usize = 16;

/// The PCI vendors of ScaleFlux drives.
const SCALEFLUX_VENDORS: [&str; 2] = ["0xcc53", "0x1dfd"];
/// The PCI device whose health log has another number.
const SCALEFLUX_QUINCE: &str = "0x0020";

/// A ScaleFlux drive may expose one to four times its physical capacity.
const SCALEFLUX_PERCENT_MAX: u32 = 400;

/// A drive that was found, before any question to it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) nature: Nature,
    pub(super) drive: Kind,
}

/// The interface through which the drive is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Other,
    /// Its directory under `/sys`.
    Zram(PathBuf),
    Vdo {
        directory: PathBuf,
        number: Option<u64>,
    },
    ScaleFlux(ScaleFlux),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScaleFlux {
    /// The kernel's name of the controller, as under `/dev`.
    pub(super) name: String,
    /// The number of its health log is the newer drives'.
    pub(super) is_quince: bool,
}

/// Returns the nature of a file system that has no block device of its own.
pub(super) fn file_system(magic: u64) -> Nature {
    let own = |kind: &str| {
        let why = format!("{kind} compresses by its own rules, and does not tell what a block costs");
        Nature::unknown(kind, why)
    };
    match magic & 0xffff_ffff {
        0x0102_1994 => Nature::of(Compresses::No, "tmpfs"),
        0x8584_58f6 => Nature::of(Compresses::No, "ramfs"),
        0x9123_683e => own("btrfs"),
        0x2fc1_2fc1 => own("ZFS"),
        0xca45_1a4e => own("bcachefs"),
        0x6969 => Nature::unknown("NFS", "the drive is another machine's"),
        0x794c_7630 => Nature::unknown("overlay file system", "it does not tell on which drive its files lie"),
        other => Nature::unknown("file system", format!("a file system of kind {other:#x} has no drive of its own")),
    }
}

/// Returns the drive below the device of this number; `sys` is where the kernel's descriptions are.
pub(super) fn find(sys: &Path, number: u64) -> Found {
    let mut way = Way { sys, devices: Vec::new(), is_shared: false };
    let mut found = way.numbered(number);
    found.nature.devices = way.devices;
    found.nature.is_shared |= way.is_shared;
    found
}

/// The way down, as far as it was gone.
struct Way<'a> {
    sys: &'a Path,
    devices: Vec<String>,
    is_shared: bool,
}

fn known(compresses: Compresses, kind: &str, drive: Kind) -> Found {
    Found { nature: Nature::of(compresses, kind), drive }
}

fn unknown(kind: &str, why: impl Into<String>) -> Found {
    Found { nature: Nature::unknown(kind, why), drive: Kind::Other }
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn name_of(directory: &Path) -> String {
    directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Way<'_> {
    fn numbered(&mut self, number: u64) -> Found {
        let (major, minor) = (major(number), minor(number));
        match self.sys.join(format!("dev/block/{major}:{minor}")).canonicalize() {
            Ok(directory) => self.at(&directory),
            Err(error) => {
                unknown("unknown", format!("the system does not describe block device {major}:{minor}: {error}"))
            }
        }
    }

    /// Finds the drive that the device with this description is, or the drive below it.
    fn at(&mut self, directory: &Path) -> Found {
        if self.devices.len() >= DEVICES_MAX {
            return unknown("unknown", format!("more than {DEVICES_MAX} devices lie on top of each other"));
        }
        let name = name_of(directory);
        self.devices.push(name.clone());
        if directory.join("partition").exists() {
            self.is_shared = true;
            return match directory.parent() {
                Some(disk) => self.at(disk),
                None => unknown("partition", "its disk is not described"),
            };
        }
        match () {
            () if name.starts_with("zram") => known(Compresses::Yes, "zram", Kind::Zram(directory.to_owned())),
            () if name.starts_with("ram") => known(Compresses::No, "memory disk", Kind::Other),
            () if directory.join("loop").is_dir() => self.below_loop(directory),
            () if directory.join("dm").is_dir() => self.device_mapper(directory),
            () if directory.join("md").is_dir() => self.below(directory, "md array"),
            () if name.starts_with("nvme") => nvme(directory),
            () => plain(directory, &name),
        }
    }

    /// Finds the drive on which the file of a loop device lies.
    fn below_loop(&mut self, directory: &Path) -> Found {
        let Some(file) = text(&directory.join("loop/backing_file")) else {
            return unknown("loop device", "the system does not name its file");
        };
        match stat(&file) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice => self.numbered(stat.st_rdev),
            Ok(stat) if major(stat.st_dev) != 0 => {
                self.is_shared = true;
                self.numbered(stat.st_dev)
            }
            Ok(_) => unknown("loop device", format!("the file system of {file} has no drive of its own")),
            Err(error) => unknown("loop device", format!("{file}: {error}")),
        }
    }

    fn device_mapper(&mut self, directory: &Path) -> Found {
        let uuid = text(&directory.join("dm/uuid")).unwrap_or_default();
        let is_pool = uuid.starts_with("LVM-") && uuid.ends_with("-vpool");
        if uuid.starts_with("VDO-") || is_pool || directory.join("vdo").is_dir() {
            let (number, directory) = (number_of(directory), directory.to_owned());
            return known(Compresses::Yes, "dm-vdo", Kind::Vdo { directory, number });
        }
        if uuid.starts_with("CRYPT-") {
            return known(Compresses::No, "encrypted device", Kind::Other);
        }
        let passes = ["LVM-", "mpath-", "part"].iter().any(|prefix| uuid.starts_with(prefix));
        if passes {
            self.is_shared |= !uuid.starts_with("mpath-");
            return self.below(directory, "device mapper");
        }
        unknown("device mapper", "it does not say what it does with the bytes between it and the drive")
    }

    /// Returns the one drive below everything that this device consists of.
    fn below(&mut self, directory: &Path, kind: &str) -> Found {
        let slaves = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
        let mut slaves: Vec<PathBuf> = slaves.filter_map(|slave| slave.path().canonicalize().ok()).collect();
        slaves.sort();
        let mut ways = slaves.iter().map(|slave| {
            let mut way = Way { sys: self.sys, devices: self.devices.clone(), is_shared: self.is_shared };
            let found = way.at(slave);
            (found, way)
        });
        let Some((found, way)) = ways.next() else {
            return unknown(kind, "the system does not say what it consists of");
        };
        let bottom = way.devices.last().cloned();
        if ways.any(|(_, other)| other.devices.last() != bottom.as_ref()) {
            return unknown(kind, "it lies on several drives");
        }
        (self.devices, self.is_shared) = (way.devices, way.is_shared);
        found
    }
}

/// Returns the number by which the device mapper knows a device.
fn number_of(directory: &Path) -> Option<u64> {
    let text = text(&directory.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Finds the nature of an NVMe drive. Compression is known only of vendors that report it by commands of their own.
fn nvme(directory: &Path) -> Found {
    let of_namespace = directory.join("device");
    let model = text(&of_namespace.join("model"));
    let controller = controllers(&of_namespace).into_iter().find_map(|controller| {
        let vendor = text(&controller.join("device/vendor"))?;
        let is_quince = text(&controller.join("device/device")).is_some_and(|device| device == SCALEFLUX_QUINCE);
        let name = name_of(&controller);
        SCALEFLUX_VENDORS.contains(&vendor.as_str()).then_some(ScaleFlux { name, is_quince })
    });
    match controller {
        Some(controller) => {
            let nature = Nature {
                exposes_percent_max: Some(SCALEFLUX_PERCENT_MAX),
                ..Nature::unknown("ScaleFlux", "the drive was not asked")
            };
            Found { nature, drive: Kind::ScaleFlux(controller) }
        }
        None => silent(&with_model("NVMe drive", model)),
    }
}

/// Returns the descriptions of the controllers of a namespace: one, or several below a subsystem.
fn controllers(of_namespace: &Path) -> Vec<PathBuf> {
    let own = of_namespace.canonicalize().ok().filter(|controller| controller.join("device/vendor").exists());
    if let Some(own) = own {
        return vec![own];
    }
    let entries = fs::read_dir(of_namespace).into_iter().flatten().flatten();
    let is_controller = |path: &PathBuf| {
        let name = name_of(path);
        let number = name.strip_prefix("nvme").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| entry.path().canonicalize().ok()).collect();
    found.retain(is_controller);
    found.sort();
    found
}

fn plain(directory: &Path, name: &str) -> Found {
    let model = text(&directory.join("device/model"));
    silent(&with_model(if name.starts_with("vd") { "virtio disk" } else { "disk" }, model))
}

fn with_model(kind: &str, model: Option<String>) -> String {
    model.map_or_else(|| kind.to_owned(), |model| format!("{kind} ({model})"))
}

fn silent(kind: &str) -> Found {
    unknown(kind, "nothing in its interface says whether it compresses")
}
