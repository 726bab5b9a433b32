//! The search for a port of an RDMA device with an IP address, as the system's files show it.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The folder with one folder for each device.
const DEVICES: &str = "/sys/class/infiniband";

/// A port of a device, and the place of an IP address in the port's table of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) device: String,
    pub(super) number: u8,
    pub(super) gid_index: u8,
}

/// Returns the names of the RDMA devices.
pub fn devices() -> Vec<String> {
    let mut names: Vec<String> = folders(Path::new(DEVICES)).into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

/// Returns the address of RoCE version 2 that is an IP address.
pub(super) fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

impl Port {
    /// Returns the port with this address, of this device alone if one is named.
    pub(super) fn find(address: IpAddr, device: Option<&str>) -> Option<Port> {
        find_in(Path::new(DEVICES), address, device)
    }
}

fn find_in(devices: &Path, address: IpAddr, wanted: Option<&str>) -> Option<Port> {
    let gid =
        gid_of(address).chunks(2).map(|part| format!("{:02x}{:02x}", part[0], part[1])).collect::<Vec<_>>().join(":");
    for (device, folder) in folders(devices) {
        if wanted.is_some_and(|wanted| wanted != device) {
            continue;
        }
        for (number, port) in folders(&folder.join("ports")) {
            for (index, _) in folders(&port.join("gids")) {
                let read = |file: PathBuf| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
                let is_address = read(port.join("gids").join(&index)) == gid;
                // Reading the type of an unused place is an error.
                if is_address && read(port.join("gid_attrs/types").join(&index)) == "RoCE v2" {
                    let (number, gid_index) = (number.parse().ok()?, index.parse().ok()?);
                    return Some(Port { device, number, gid_index });
                }
            }
        }
    }
    None
}

/// Returns the names and paths in a folder, none if there is no such folder.
fn folders(path: &Path) -> Vec<(String, PathBuf)> {
    let entries: io::Result<Vec<_>> = fs::read_dir(path).and_then(Iterator::collect);
    let entries = entries.unwrap_or_default();
    entries.into_iter().map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_its_address_of_roce_version_2() {
        let folder = tempfile::tempdir().unwrap();
        for (device, index, gid, kind) in [
            ("mlx5_0", 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
            ("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:0a63:0001", "IB/RoCE v1"),
            ("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a63:0001", "RoCE v2"),
            ("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a63:0002", "RoCE v2"),
        ] {
            let port = folder.path().join(device).join("ports/1");
            for (place, text) in [("gids", gid), ("gid_attrs/types", kind)] {
                fs::create_dir_all(port.join(place)).unwrap();
                fs::write(port.join(place).join(index.to_string()), format!("{text}\n")).unwrap();
            }
        }
        let find = |address: &str, device| find_in(folder.path(), address.parse().unwrap(), device);
        let port = |device: &str, gid_index| Some(Port { device: device.to_owned(), number: 1, gid_index });
        assert_eq!(find("10.99.0.1", None), port("mlx5_0", 3));
        assert_eq!(find("10.99.0.2", None), port("rxe0", 1));
        assert_eq!(find("fe80::1", None), port("mlx5_0", 0));
        assert_eq!(find("10.99.0.2", Some("mlx5_0")), None);
        assert_eq!(find("10.99.0.3", None), None);
        assert_eq!(find_in(&folder.path().join("none"), "10.99.0.1".parse().unwrap(), None), None);
    }
}
