//! The search for a port of an RDMA device with an IP address, as the system's files show it.
//!
//! A port has hundreds of places for addresses, and a file for each. So the place that was found is kept, and only
//! checked the next time: addresses come and go.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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

/// An address, and the device that alone is asked for it, if one is.
type Question = (IpAddr, Option<String>);

impl Port {
    /// Returns the port with this address, of this device alone if one is named.
    pub(super) fn find(address: IpAddr, device: Option<&str>) -> Option<Port> {
        static FOUND: Mutex<Option<HashMap<Question, Port>>> = Mutex::new(None);
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        find_again(found.get_or_insert_default(), Path::new(DEVICES), (address, device.map(str::to_owned)))
    }

    /// Returns true if the place still has this address.
    fn has(&self, devices: &Path, address: IpAddr) -> bool {
        let parts = gid_of(address);
        let gid: Vec<String> = parts.chunks(2).map(|part| format!("{:02x}{:02x}", part[0], part[1])).collect();
        let port = devices.join(&self.device).join("ports").join(self.number.to_string());
        let index = self.gid_index.to_string();
        let read = |file: PathBuf| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
        // Reading the type of an unused place is an error.
        read(port.join("gids").join(&index)) == gid.join(":")
            && read(port.join("gid_attrs/types").join(&index)) == "RoCE v2"
    }
}

/// As [`find_in`], with what was found before.
fn find_again(found: &mut HashMap<Question, Port>, devices: &Path, question: Question) -> Option<Port> {
    if let Some(port) = found.get(&question).filter(|port| port.has(devices, question.0)) {
        return Some(port.clone());
    }
    // Places of addresses that are gone.
    found.retain(|(address, _), port| port.has(devices, *address));
    let port = find_in(devices, question.0, question.1.as_deref())?;
    found.insert(question, port.clone());
    Some(port)
}

fn find_in(devices: &Path, address: IpAddr, wanted: Option<&str>) -> Option<Port> {
    for (device, folder) in folders(devices) {
        if wanted.is_some_and(|wanted| wanted != device) {
            continue;
        }
        for (number, port) in folders(&folder.join("ports")) {
            for (index, _) in folders(&port.join("gids")) {
                let (Ok(number), Ok(gid_index)) = (number.parse(), index.parse()) else { continue };
                let port = Port { device: device.clone(), number, gid_index };
                if port.has(devices, address) {
                    return Some(port);
                }
            }
        }
    }
    None
}

/// Returns the names and paths in a folder, none if there is no such folder.
fn folders(path: &Path) -> Vec<(String, PathBuf)> {
    #[cfg(test)]
    tests::LISTED.set(tests::LISTED.get() + 1);
    let entries: io::Result<Vec<_>> = fs::read_dir(path).and_then(Iterator::collect);
    let entries = entries.unwrap_or_default();
    entries.into_iter().map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// Folders that were listed.
        pub(super) static LISTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    /// Puts an address into a place of the table of a port.
    fn put(devices: &Path, device: &str, index: u8, gid: &str, kind: &str) {
        let port = devices.join(device).join("ports/1");
        for (place, text) in [("gids", gid), ("gid_attrs/types", kind)] {
            fs::create_dir_all(port.join(place)).unwrap();
            fs::write(port.join(place).join(index.to_string()), format!("{text}\n")).unwrap();
        }
    }

    /// Each connection read the files of all places until the address was found.
    #[test]
    fn a_place_that_was_found_is_checked_and_not_searched_for() {
        let folder = tempfile::tempdir().unwrap();
        let address = |last: u8| format!("0000:0000:0000:0000:0000:ffff:0a63:00{last:02x}");
        put(folder.path(), "rxe0", 7, &address(1), "RoCE v2");
        let mut found = HashMap::new();
        let mut find = |last: u8| {
            let question = ([10, 99, 0, last].into(), None);
            find_again(&mut found, folder.path(), question).map(|port| (port.device, port.gid_index))
        };
        let first = Some(("rxe0".to_owned(), 7));
        assert_eq!((find(1), LISTED.replace(0)), (first.clone(), 3), "devices, ports, places");
        assert_eq!((find(1), LISTED.get()), (first.clone(), 0));
        // The address moves to another place, and another one comes to the old place.
        put(folder.path(), "rxe0", 7, &address(2), "RoCE v2");
        assert_eq!((find(1), find(2)), (None, first.clone()));
        put(folder.path(), "rxe0", 3, &address(1), "RoCE v2");
        assert_eq!((find(1), find(2)), (Some(("rxe0".to_owned(), 3)), first));
        assert_eq!(found.len(), 2, "nothing is kept of addresses that are gone");
    }

    #[test]
    fn a_port_is_found_by_its_address_of_roce_version_2() {
        let folder = tempfile::tempdir().unwrap();
        for (device, index, gid, kind) in [
            ("mlx5_0", 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
            ("mlx5_0", 2, "0000:0000:0000:0000:0000:ffff:0a63:0001", "IB/RoCE v1"),
            ("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a63:0001", "RoCE v2"),
            ("rxe0", 1, "0000:0000:0000:0000:0000:ffff:0a63:0002", "RoCE v2"),
        ] {
            put(folder.path(), device, index, gid, kind);
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
