//! A PCI function in the hands of this process: its group, in a container of its own.

use super::super::Dma;
use super::abi;
use crate::PAGE_BYTES;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The class of PCI functions that are NVMe controllers with the usual interface for I/O.
const NVME_CLASS: &str = "0x010802";
const DRIVER: &str = "vfio-pci";

/// Returns an error of a kind with a text.
fn refused<T>(kind: ErrorKind, why: String) -> io::Result<T> {
    Err(io::Error::new(kind, why))
}

/// Returns an error of the system, with the step that failed before it.
pub(super) fn failed(step: impl std::fmt::Display) -> impl FnOnce(Errno) -> io::Error {
    move |error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{step}: {error}"))
    }
}

/// Returns true for an address such as `0000:01:00.0`.
fn is_address(text: &str) -> bool {
    let hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    let fields = || {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (slot, function) = rest.split_once('.')?;
        let is_function = matches!(function.as_bytes(), [b'0'..=b'7']);
        Some(hex(domain, domain.len().clamp(4, 8)) && hex(bus, 2) && hex(slot, 2) && is_function)
    };
    fields().unwrap_or(false)
}

/// Returns the last name of the path that a link leads to.
fn target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

/// Finds the group of a function that is an NVMe controller and bound to the driver of VFIO. `system` is `/sys`.
fn find(system: &Path, address: &str) -> io::Result<String> {
    if !is_address(address) {
        return refused(ErrorKind::InvalidInput, "it is no address on PCI such as 0000:01:00.0".into());
    }
    let folder = system.join("bus/pci/devices").join(address);
    let class = match fs::read_to_string(folder.join("class")) {
        Ok(class) => class,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return refused(ErrorKind::NotFound, "there is no PCI function with this address (lspci -D)".into());
        }
        Err(error) => return Err(error),
    };
    if class.trim() != NVME_CLASS {
        let why = format!("it is no NVMe controller: its class is {}, and not {NVME_CLASS}", class.trim());
        return refused(ErrorKind::InvalidInput, why);
    }
    let driver = target(&folder.join("driver"));
    if driver.as_deref() != Some(DRIVER) {
        let bound = driver.map_or("bound to no driver".into(), |driver| format!("bound to the driver {driver}"));
        let why = format!("it is {bound}, and not to {DRIVER}: run `situ disk bind {address}`");
        return refused(ErrorKind::ResourceBusy, why);
    }
    let why = "it has no IOMMU: switch the IOMMU on in the firmware and in the kernel (Intel: intel_iommu=on)";
    target(&folder.join("iommu_group")).map_or_else(|| refused(ErrorKind::Unsupported, why.into()), Ok)
}

/// Returns the functions of a group that keep it from being used, with their drivers.
fn others(system: &Path, group: &str) -> String {
    let functions = fs::read_dir(system.join("kernel/iommu_groups").join(group).join("devices"));
    let mut others: Vec<String> = functions
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|function| {
            let driver = target(&function.path().join("driver")).filter(|driver| driver != DRIVER)?;
            Some(format!("{} ({driver})", function.file_name().display()))
        })
        .collect();
    others.sort();
    others.join(", ")
}

/// Opens a node of VFIO, and says what to do if that fails.
fn open_node(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|error| {
        let cure = match error.kind() {
            ErrorKind::NotFound => ": load the module with `modprobe vfio-pci`",
            ErrorKind::ResourceBusy => ": a process holds the drive, or another one of its IOMMU group",
            ErrorKind::PermissionDenied => {
                ": this user may not open it; run as root, or give the user the node (chown)"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {error}{cure}", path.display()))
    })
}

/// A function of PCI that this process holds. No other process can open it meanwhile.
///
/// Dropping it closes the function first. The kernel then resets it and ends all mappings.
#[derive(Debug)]
pub(super) struct Held {
    /// The function: its regions and interrupts.
    pub(super) function: Arc<File>,
    container: File,
    _group: File,
    /// The addresses for mappings.
    pub(super) addresses: Range<u64>,
    /// The number of mappings that can be made.
    mappings: Option<u32>,
}

impl Held {
    /// Takes the function with this address.
    pub(super) fn take(address: &str) -> io::Result<Held> {
        let system = Path::new("/sys");
        let number = find(system, address)?;
        let nodes = PathBuf::from("/dev/vfio");
        let container = open_node(&nodes.join("vfio"))?;
        let version = abi::api_version(&container).map_err(failed("/dev/vfio/vfio"))?;
        if version != abi::API_VERSION || !abi::has_iommu(&container).map_err(failed("/dev/vfio/vfio"))? {
            let why =
                format!("the kernel's VFIO (version {version}) has no IOMMU of type 1: modprobe vfio_iommu_type1");
            return refused(ErrorKind::Unsupported, why);
        }
        let group = open_node(&nodes.join(&number))?;
        if !abi::is_viable(&group).map_err(failed("the group's status"))? {
            let why = format!(
                "its IOMMU group {number} has functions with other drivers: {}; unbind them, or use another slot",
                others(system, &number)
            );
            return refused(ErrorKind::ResourceBusy, why);
        }
        abi::set_container(&group, &container).map_err(failed("joining the group and its container"))?;
        abi::set_iommu(&container).map_err(|error| match error {
            Errno::PERM => {
                let why = "the machine cannot keep a drive's interrupts apart (interrupt remapping is off): \
                           switch it on in the firmware";
                io::Error::new(ErrorKind::PermissionDenied, why)
            }
            error => failed("attaching the IOMMU")(error),
        })?;
        let iommu = abi::iommu(&container).map_err(failed("asking the IOMMU"))?;
        let Some(addresses) = widest(&iommu.ranges).filter(|_| iommu.maps_pages) else {
            let why = "the kernel names no addresses for mappings of 4 KiB: Linux 5.4 or later is needed".into();
            return refused(ErrorKind::Unsupported, why);
        };
        let name = CString::new(address).expect("an address has no zero byte");
        let function = abi::open_function(&group, &name).map_err(failed("opening the function"))?;
        Ok(Held { function: function.into(), container, _group: group, addresses, mappings: iommu.mappings })
    }

    /// Lets the function reach memory.
    ///
    /// # Safety
    /// As for [`Function::map`](super::super::Function::map).
    pub(super) unsafe fn map(&self, address: u64, memory: Dma) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { abi::map(&self.container, address, memory) }.map_err(|error| {
            let cure = match error {
                Errno::NOMEM => {
                    let limit = getrlimit(Resource::Memlock).current;
                    let limit = limit.map_or("has no limit".into(), |bytes| format!("is limited to {bytes} bytes"));
                    format!(": locked memory {limit} (ulimit -l; systemd: LimitMEMLOCK=infinity)")
                }
                Errno::NOSPC => {
                    let most = self.mappings.map_or("no more".into(), |most| format!("no more than {most}"));
                    format!(": {most} mappings (the option dma_entry_limit of the module vfio_iommu_type1)")
                }
                Errno::EXIST => ": the address is in use".into(),
                _ => String::new(),
            };
            let error = io::Error::from(error);
            let step = format!("mapping {} bytes at {address:#x} for the drive", memory.bytes());
            io::Error::new(error.kind(), format!("{step}: {error}{cure}"))
        })
    }

    /// Ends a mapping; false if the kernel did not end all of it.
    #[must_use]
    pub(super) fn unmap(&self, address: u64, bytes: u64) -> bool {
        abi::unmap(&self.container, address, bytes).is_ok_and(|ended| ended == bytes)
    }

    /// Ends all mappings.
    pub(super) fn unmap_all(&self) {
        let Range { start, end } = self.addresses;
        // If this fails, closing the container does it.
        let _ = abi::unmap(&self.container, start, end - start);
    }
}

/// Returns the largest range of addresses, in whole pages. Below 4 GiB machines have holes and special addresses, so
/// a range above is preferred. Address 0 is left out: to some drives it means that there is none.
fn widest(ranges: &[(u64, u64)]) -> Option<Range<u64>> {
    const PAGE: u64 = PAGE_BYTES as u64;
    let above = |floor: u64| {
        let ranges = ranges.iter().filter_map(|&(first, last)| {
            let end = last.saturating_add(1);
            Some(first.max(floor).checked_next_multiple_of(PAGE)?..end - end % PAGE)
        });
        ranges.filter(|range| !range.is_empty()).max_by_key(|range| range.end - range.start)
    };
    above(1 << 32).or_else(|| above(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_address_has_its_four_fields_and_nothing_else() {
        for text in ["0000:01:00.0", "0000:ff:1f.7", "10000:01:00.0", "ABCD:0a:0B.1"] {
            assert!(is_address(text), "{text}");
        }
        let wrong = ["", "01:00.0", "000:01:00.0", "0000:01:00.8", "0000:01:00.0/", "0000:1:00.0", "0000:01:00.00"];
        for text in wrong.into_iter().chain(["../:01:00.0", "0000:01:00", "0000:01:0g.0", "0000:é:00.0", "0:0:0:0.0"])
        {
            assert!(!is_address(text), "{text}");
        }
    }

    #[test]
    fn the_widest_range_is_used_above_4_gib_if_there_is_one() {
        let intel = [(0, 0xfedf_ffff), (0xfef0_0000, 0x7f_ffff_ffff)];
        assert_eq!(widest(&intel), Some(1 << 32..1 << 39));
        assert_eq!(widest(&[(0, u64::MAX)]), Some(1 << 32..u64::MAX - 0xfff));
        assert_eq!(widest(&[(0, 0x7fff_ffff), (0x9000_0000, 0x9fff_ffff)]), Some(0x1000..0x8000_0000));
        assert_eq!(widest(&[(0, 0x1_0000_0fff)]), Some(1 << 32..(1 << 32) + 0x1000));
        assert_eq!(widest(&[(0, 0xfff)]), None);
        assert_eq!(widest(&[(u64::MAX - 1, u64::MAX)]), None);
        assert_eq!(widest(&[]), None);
    }

    /// A function in a file system like `/sys`.
    struct System(tempfile::TempDir);

    impl System {
        const ADDRESS: &str = "0000:01:00.0";

        fn new(class: &str, driver: Option<&str>, group: Option<&str>) -> System {
            let system = System(tempfile::tempdir().unwrap());
            let folder = system.0.path().join("bus/pci/devices").join(System::ADDRESS);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("class"), format!("{class}\n")).unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../../../bus/pci/drivers/{driver}"), folder.join("driver")).unwrap();
            }
            if let Some(group) = group {
                symlink(format!("../../../kernel/iommu_groups/{group}"), folder.join("iommu_group")).unwrap();
            }
            system
        }

        fn find(&self) -> Result<String, (ErrorKind, String)> {
            find(self.0.path(), System::ADDRESS).map_err(|error| (error.kind(), error.to_string()))
        }
    }

    #[test]
    fn an_error_says_what_is_missing() {
        let found = System::new(NVME_CLASS, Some(DRIVER), Some("7"));
        assert_eq!(found.find(), Ok("7".into()));
        let says = |system: System, kind: ErrorKind, words: &[&str]| {
            let (found, text) = system.find().unwrap_err();
            assert!(found == kind && words.iter().all(|word| text.contains(word)), "{found:?}: {text}");
        };
        says(System::new("0x020000", Some(DRIVER), Some("7")), ErrorKind::InvalidInput, &["no NVMe", "0x020000"]);
        let bind = "situ disk bind 0000:01:00.0";
        says(System::new(NVME_CLASS, Some("nvme"), Some("7")), ErrorKind::ResourceBusy, &["driver nvme", bind]);
        says(System::new(NVME_CLASS, None, Some("7")), ErrorKind::ResourceBusy, &["no driver", bind]);
        says(System::new(NVME_CLASS, Some(DRIVER), None), ErrorKind::Unsupported, &["no IOMMU", "firmware"]);
        let missing = find(found.0.path(), "0000:02:00.0").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert_eq!(find(found.0.path(), "../..").unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn the_others_of_a_group_are_named() {
        let system = tempfile::tempdir().unwrap();
        let devices = system.path().join("kernel/iommu_groups/3/devices");
        for (address, driver) in
            [("0000:00:02.0", Some("e1000")), ("0000:00:01.0", Some(DRIVER)), ("0000:00:03.0", None)]
        {
            fs::create_dir_all(devices.join(address)).unwrap();
            if let Some(driver) = driver {
                symlink(format!("/drivers/{driver}"), devices.join(address).join("driver")).unwrap();
            }
        }
        assert_eq!(others(system.path(), "3"), "0000:00:02.0 (e1000)");
        assert_eq!(others(system.path(), "4"), "");
    }
}
