//! The reasons why a controller is not moved to another driver.

use super::{Address, Neighbour, Process, Use, VFIO_DRIVER};
use std::error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The result of an operation on a controller.
pub type Result<T> = std::result::Result<T, Error>;

/// See the module. The text says why; [`cure`](Error::cure) says what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device at the address is no NVMe controller, or there is none.
    NotController {
        /// The address that was given.
        address: Address,
        /// The file that says so.
        why: String,
    },
    /// The machine has no IOMMU for the device.
    NoIommu {
        /// The controller's.
        address: Address,
    },
    /// Drivers of the kernel have other devices of the IOMMU group, so VFIO does not give out the group.
    SharedGroup {
        /// The controller's.
        address: Address,
        /// The number of the group.
        group: u32,
        /// The devices that are in the way.
        others: Vec<Neighbour>,
    },
    /// A driver has the device of which it is not known what it uses it for.
    OtherDriver {
        /// The controller's.
        address: Address,
        /// The driver's name.
        driver: String,
    },
    /// Namespaces are in use.
    Held {
        /// The controller's.
        address: Address,
        /// All uses that were found.
        uses: Vec<Use>,
    },
    /// A process has the IOMMU group through VFIO.
    GroupInUse {
        /// The controller's.
        address: Address,
        /// The file of the group.
        file: PathBuf,
        /// The processes that have it open, as far as `/proc` tells.
        processes: Vec<Process>,
    },
    /// A module of the kernel is not to be had.
    Module {
        /// Its name.
        module: &'static str,
        /// The reason.
        why: String,
    },
    /// After all steps, another driver has the device than the one that was meant to.
    NotTaken {
        /// The controller's.
        address: Address,
        /// The driver that was to take it.
        wanted: &'static str,
        /// The reason.
        why: String,
        /// The driver that has the device now.
        driver: Option<String>,
    },
    /// A file of the kernel could not be read or written.
    Io {
        /// The operation, such as `read`.
        operation: String,
        /// The file.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
}

impl Error {
    pub(super) fn io(operation: impl Into<String>, file: &Path, error: io::Error) -> Error {
        Error::Io { operation: operation.into(), file: file.to_owned(), error }
    }

    /// Returns what to do next, where that is known.
    pub fn cure(&self) -> Option<String> {
        Some(match self {
            Error::NotController { .. } => "`situ disk show` lists the NVMe controllers of this machine".to_owned(),
            Error::NoIommu { .. } => "switch the IOMMU on in the firmware (VT-d, AMD-Vi), and on Intel also by \
                                      `intel_iommu=on` on the kernel's command line; then restart the machine"
                .to_owned(),
            Error::SharedGroup { .. } => format!(
                "put the drive into another slot, or bind the other devices to {VFIO_DRIVER}, too, if nothing needs them"
            ),
            Error::OtherDriver { address, driver } => format!(
                "if nothing uses the drive through {driver}, run `echo {address} > /sys/bus/pci/drivers/{driver}/unbind` \
                 and `situ disk unbind {address}`; then try again"
            ),
            Error::Held { .. } => "unmount it, or stop what uses it; then try again".to_owned(),
            Error::GroupInUse { .. } => "stop that process; then try again".to_owned(),
            Error::Module { module, .. } => {
                format!("install the modules of the running kernel, or load {module} by hand")
            }
            Error::NotTaken { address, driver: None, .. } => {
                format!("`modprobe nvme`, then `situ disk unbind {address}`, gives the drive to the kernel")
            }
            Error::NotTaken { .. } => return None,
            Error::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "run the command as root".to_owned()
            }
            Error::Io { .. } => return None,
        })
    }
}

/// Joins texts with commas.
fn list(items: &[impl fmt::Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotController { address, why } => write!(f, "{address} is not an NVMe controller: {why}"),
            Error::NoIommu { address } => write!(
                f,
                "{address} is in no IOMMU group (/sys/bus/pci/devices/{address}/iommu_group): without an IOMMU, the \
                 drive could write to all memory"
            ),
            Error::SharedGroup { group, others, .. } => {
                write!(f, "IOMMU group {group} has other devices that drivers of the kernel use: {}", list(others))
            }
            Error::OtherDriver { address, driver } => {
                write!(f, "the driver {driver} has {address}; Situ takes a drive only from nvme, whose uses it can see")
            }
            Error::Held { address, uses } => write!(f, "{address} is in use: {}", list(uses)),
            Error::GroupInUse { file, processes, .. } if processes.is_empty() => {
                write!(f, "a process has {} open", file.display())
            }
            Error::GroupInUse { file, processes, .. } => {
                write!(f, "{} is open in {}", file.display(), list(processes))
            }
            Error::Module { module, why } => write!(f, "the kernel's module {module} cannot be loaded: {why}"),
            Error::NotTaken { address, wanted, why, driver } => {
                let has = match driver {
                    Some(driver) => format!("the driver {driver} has it now"),
                    None => "no driver has it now".to_owned(),
                };
                write!(f, "{wanted} did not take {address}: {why}; {has}")
            }
            Error::Io { operation, file, error } => write!(f, "cannot {operation} {}: {error}", file.display()),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
