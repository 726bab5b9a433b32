//! NVMe controllers on PCI, and the drivers that have them.
//!
//! The kernel's driver `nvme` makes block devices of a controller's namespaces. With the driver `vfio-pci`, the
//! controller belongs to one process in user space, behind the IOMMU. This module reads `/sys`, and moves a controller
//! from one driver to the other. It touches no register.
//!
//! ```text
//!   Controllers ── list, find ──> Controller ── claim ──> Claimed ── bind ──> vfio-pci
//!                                     └──────── unbind ─────────────────────> the kernel's own driver
//! ```
//!
//! # Algorithm
//!
//! 1. [`Controller::claim`] refuses a controller that cannot be used by VFIO, and one with a namespace in use. Then it
//!    opens all namespaces exclusively: from now on, nothing can be mounted from them.
//! 2. [`Claimed::bind`] loads `vfio-pci`, names it in the device's `driver_override`, takes the device from its driver,
//!    and has the kernel probe it. If another driver or none has it then, the device is given back.
//! 3. [`Controller::unbind`] takes these steps back, from any of them. It opens the VFIO group first. The kernel gives
//!    a group to one process at a time, so a group in use is refused.
//!
//! **Invariants.** No namespace in use is taken from the kernel. A device without an IOMMU group is never bound: VFIO's
//! mode without IOMMU would let the drive write to all memory.
//! **Failure.** Every change is one write to a file of `/sys`. A process that dies between two of them leaves a state
//! that [`Controller::unbind`] takes back. All of them are gone after a restart of the machine.
//! **Rejected.** `new_id` of `vfio-pci`: it takes all drives of a model.

mod bind;
mod error;
mod kernel;
mod namespace;
#[cfg(test)]
mod tests;

pub use bind::{Claimed, Unbound};
pub use error::{Error, Result};
pub use kernel::{Kernel, Linux};
pub use namespace::{Namespace, Process, Use, UseKind};

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The driver through which a process in user space has a device.
pub const VFIO_DRIVER: &str = "vfio-pci";
/// The kernel's own driver of NVMe controllers.
pub const NVME_DRIVER: &str = "nvme";
/// The class of an NVMe controller.
const NVME_CLASS: &str = "0x010802";
/// The beginning of the classes of bridges between PCI buses.
const BRIDGE_CLASS: &str = "0x0604";
/// A driver that does nothing with a device.
const STUB_DRIVER: &str = "pci-stub";
/// The name of a group that VFIO made up for a device without an IOMMU.
const NO_IOMMU: &str = "vfio-noiommu";

/// The address of a device on PCI: domain, bus, device and function, as in `0000:01:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for Address {
    type Err = String;

    /// Parses an address with its domain, or one of domain 0 without.
    fn from_str(text: &str) -> std::result::Result<Address, String> {
        let hex = |digits: &str, max: u32| {
            let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u32::from_str_radix(digits, 16).ok().filter(|number| is_hex && *number <= max)
        };
        let parsed = || {
            let (front, function) = text.rsplit_once('.')?;
            let (front, device) = front.rsplit_once(':')?;
            let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
            Some(Address {
                domain: hex(domain, u32::MAX)?,
                bus: hex(bus, 0xff)? as u8,
                device: hex(device, 0x1f)? as u8,
                function: hex(function, 7)? as u8,
            })
        };
        parsed().ok_or_else(|| format!("{text:?} is not an address on PCI, such as 0000:01:00.0"))
    }
}

/// The NVMe controllers of a machine.
#[derive(Debug, Clone)]
pub struct Controllers {
    root: PathBuf,
}

impl Default for Controllers {
    fn default() -> Controllers {
        Controllers::under("/")
    }
}

impl Controllers {
    /// Returns the controllers of the machine whose `/sys`, `/proc`, `/dev` and `/lib` are below `root`.
    pub fn under(root: impl Into<PathBuf>) -> Controllers {
        Controllers { root: root.into() }
    }

    /// Returns all NVMe controllers, in the order of their addresses. A machine without PCI has none.
    ///
    /// # Errors
    /// The kernel's descriptions cannot be read.
    pub fn list(&self) -> Result<Vec<Controller>> {
        let devices = self.root.join("sys/bus/pci/devices");
        let entries = match fs::read_dir(&devices) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| Error::io("read", &devices, error))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| Error::io("read", &devices, error))?;
            let address: Option<Address> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(address) = address
                && read(&entry.path().join("class"))?.as_deref() == Some(NVME_CLASS)
            {
                found.push(Controller::read(&self.root, address)?);
            }
        }
        found.sort_by_key(|controller| controller.address);
        Ok(found)
    }

    /// Returns the controller at an address.
    ///
    /// # Errors
    /// There is none, or the kernel's descriptions cannot be read.
    pub fn find(&self, address: Address) -> Result<Controller> {
        let directory = self.root.join(format!("sys/bus/pci/devices/{address}"));
        if !directory.exists() {
            let why = format!("{} does not exist", directory.display());
            return Err(Error::NotController { address, why });
        }
        let class = read(&directory.join("class"))?.unwrap_or_default();
        if class != NVME_CLASS {
            let why = format!("{} has {class}, and not {NVME_CLASS}", directory.join("class").display());
            return Err(Error::NotController { address, why });
        }
        Controller::read(&self.root, address)
    }
}

/// An NVMe controller, as the kernel described it at one moment.
#[derive(Debug, Clone)]
pub struct Controller {
    root: PathBuf,
    address: Address,
    directory: PathBuf,
    driver: Option<String>,
    group: Option<u32>,
    is_without_iommu: bool,
    model: Option<String>,
    serial: Option<String>,
}

/// Another device of a controller's IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The name that the kernel has for it: the address of a device on PCI.
    pub name: String,
    /// The driver that has it.
    pub driver: Option<String>,
    /// Its driver does nothing that VFIO would have to fear.
    pub is_harmless: bool,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.driver.as_deref().unwrap_or("no driver"))
    }
}

impl Controller {
    fn read(root: &Path, address: Address) -> Result<Controller> {
        let directory = root.join(format!("sys/bus/pci/devices/{address}"));
        let link = link_name(&directory.join("iommu_group"))?;
        let number = link.and_then(|name| name.parse::<u32>().ok());
        let of_group = |number: u32| root.join(format!("sys/kernel/iommu_groups/{number}"));
        let is_described = number.is_some_and(|number| of_group(number).exists());
        let name = number.map(|number| read(&of_group(number).join("name"))).transpose()?.flatten();
        let is_without_iommu = !is_described || name.as_deref() == Some(NO_IOMMU);
        let mut controller = Controller {
            root: root.to_owned(),
            address,
            driver: link_name(&directory.join("driver"))?,
            group: number,
            is_without_iommu,
            model: None,
            serial: None,
            directory,
        };
        if let Some(described) = controller.nvme_directory()? {
            controller.model = read(&described.join("model"))?;
            controller.serial = read(&described.join("serial"))?;
        }
        Ok(controller)
    }

    /// Returns the address on PCI.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Returns the device's folder of `/sys`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the name of the driver that has the device.
    pub fn driver(&self) -> Option<&str> {
        self.driver.as_deref()
    }

    /// Returns true if a process in user space can take the device.
    pub fn is_bound(&self) -> bool {
        self.driver() == Some(VFIO_DRIVER)
    }

    /// Returns the number of the device's IOMMU group; `None` without an IOMMU.
    pub fn group(&self) -> Option<u32> {
        self.group.filter(|_| !self.is_without_iommu)
    }

    /// Returns the model; `None` unless the driver `nvme` has the device.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the serial number; `None` unless the driver `nvme` has the device.
    pub fn serial(&self) -> Option<&str> {
        self.serial.as_deref()
    }

    /// Returns the file that a process opens to take the group; `None` if the device is in no group.
    pub fn group_file(&self) -> Option<PathBuf> {
        self.group_name().map(|name| self.root.join("dev/vfio").join(name))
    }

    /// Returns the name of the group's file.
    fn group_name(&self) -> Option<String> {
        let prefix = if self.is_without_iommu { "noiommu-" } else { "" };
        self.group.map(|number| format!("{prefix}{number}"))
    }

    /// Returns the other devices of the IOMMU group, in the order of their names.
    ///
    /// # Errors
    /// The kernel's descriptions cannot be read.
    pub fn neighbours(&self) -> Result<Vec<Neighbour>> {
        let Some(number) = self.group() else { return Ok(Vec::new()) };
        let devices = self.root.join(format!("sys/kernel/iommu_groups/{number}/devices"));
        let mut found = Vec::new();
        for name in names_in(&devices)?.into_iter().filter(|name| *name != self.address.to_string()) {
            let directory = devices.join(&name);
            let driver = link_name(&directory.join("driver"))?;
            let is_bridge = read(&directory.join("class"))?.is_some_and(|class| class.starts_with(BRIDGE_CLASS));
            let is_harmless = is_bridge || matches!(driver.as_deref(), None | Some(VFIO_DRIVER | STUB_DRIVER));
            found.push(Neighbour { name, driver, is_harmless });
        }
        Ok(found)
    }

    /// Returns the namespaces; none unless the driver `nvme` has the device.
    ///
    /// # Errors
    /// The kernel's descriptions cannot be read.
    pub fn namespaces(&self) -> Result<Vec<Namespace>> {
        let Some(described) = self.nvme_directory()? else { return Ok(Vec::new()) };
        namespace::of_controller(&self.root, &described)
    }

    /// Returns all reasons why the controller cannot be bound to `vfio-pci` as things are now. One that is bound has
    /// reasons why it cannot be used.
    ///
    /// # Errors
    /// The kernel's descriptions cannot be read.
    pub fn obstacles(&self) -> Result<Vec<Error>> {
        let mut found = self.refusals()?;
        if let Some(why) = self.missing_module(VFIO_DRIVER)? {
            found.push(Error::Module { module: VFIO_DRIVER, why });
        }
        Ok(found)
    }

    /// Returns the reasons for which a controller is never bound.
    fn refusals(&self) -> Result<Vec<Error>> {
        let address = self.address;
        let mut found = Vec::new();
        match self.group() {
            None => found.push(Error::NoIommu { address }),
            Some(group) => {
                let others: Vec<Neighbour> =
                    self.neighbours()?.into_iter().filter(|neighbour| !neighbour.is_harmless).collect();
                if !others.is_empty() {
                    found.push(Error::SharedGroup { address, group, others });
                }
            }
        }
        if let Some(driver) = self.driver()
            && ![NVME_DRIVER, VFIO_DRIVER].contains(&driver)
        {
            found.push(Error::OtherDriver { address, driver: driver.to_owned() });
        }
        let uses: Vec<Use> = self.namespaces()?.into_iter().flat_map(|namespace| namespace.uses).collect();
        if !uses.is_empty() {
            found.push(Error::Held { address, uses });
        }
        Ok(found)
    }

    /// Returns the reason why a module is neither loaded nor to be loaded, by the lists of the kernel's modules.
    fn missing_module(&self, module: &str) -> Result<Option<String>> {
        if self.driver_directory(module).exists() {
            return Ok(None);
        }
        let release = read(&self.root.join("proc/sys/kernel/osrelease"))?.unwrap_or_default();
        let modules = self.root.join("lib/modules").join(release);
        let file = format!("/{module}.ko");
        for list in ["modules.dep", "modules.builtin"] {
            let listed = read(&modules.join(list))?.unwrap_or_default();
            // The module is the first path of a line; the others are those that it needs.
            let mut paths = listed.lines().filter_map(|line| line.split([':', ' ']).next());
            if paths.any(|path| path.contains(&file)) {
                return Ok(None);
            }
        }
        Ok(Some(format!("it is not loaded, and {} does not list it", modules.join("modules.dep").display())))
    }

    fn driver_directory(&self, driver: &str) -> PathBuf {
        self.root.join("sys/bus/pci/drivers").join(driver)
    }

    /// Returns the folder in which the driver `nvme` describes the controller.
    fn nvme_directory(&self) -> Result<Option<PathBuf>> {
        let directory = self.directory.join("nvme");
        if self.driver() != Some(NVME_DRIVER) || !directory.exists() {
            return Ok(None);
        }
        Ok(names_in(&directory)?.first().map(|name| directory.join(name)))
    }
}

/// Returns what a file of the kernel says, without white space around it; `None` if there is no such file.
fn read(file: &Path) -> Result<Option<String>> {
    // The names of mount points, and what a drive says of itself, may be any bytes.
    match fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", file, error)),
    }
}

/// Returns the last name of a link's target; `None` if there is no such link.
fn link_name(link: &Path) -> Result<Option<String>> {
    match fs::read_link(link) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", link, error)),
    }
}

/// Returns the names in a folder, sorted; none if there is no such folder.
fn names_in(directory: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|error| Error::io("read", directory, error))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("read", directory, error))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
