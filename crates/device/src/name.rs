//! Names of namespaces behind the driver: `pci:0000:01:00.0/1`, the controller's address on PCI and the namespace.

use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "pci:";

/// Returns true if the path names a namespace that the driver in user space reaches, as `pci:0000:01:00.0/1`. The file
/// system knows no such name.
///
/// ```
/// use situ_device::is_pci_name;
///
/// assert!(is_pci_name("pci:0000:01:00.0/1".as_ref()));
/// assert!(!is_pci_name("/dev/nvme0n1".as_ref()));
/// ```
pub fn is_pci_name(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(PREFIX))
}

/// Returns the path as it is named from any directory. The name of a device behind the driver stays as it is.
///
/// # Errors
/// As for [`std::path::absolute`].
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    if is_pci_name(path) { Ok(path.to_owned()) } else { std::path::absolute(path) }
}

/// Takes a name apart: address and namespace.
pub(crate) fn parts(path: &Path) -> Option<(&str, u32)> {
    let (address, namespace) = path.to_str()?.strip_prefix(PREFIX)?.split_once('/')?;
    let is_hex = |text: &str, digits: usize| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (domain, rest) = address.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let is_address = is_hex(domain, 4) && is_hex(bus, 2) && is_hex(device, 2) && is_hex(function, 1);
    let namespace = namespace.parse().ok().filter(|namespace| *namespace > 0)?;
    is_address.then_some((address, namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_address_and_a_namespace() {
        let of = |text: &'static str| parts(Path::new(text));
        assert_eq!(of("pci:0000:01:00.0/1"), Some(("0000:01:00.0", 1)));
        assert_eq!(of("pci:10ab:Ff:1f.7/4294967294"), Some(("10ab:Ff:1f.7", 4_294_967_294)));
        let wrong = [
            "pci:0000:01:00.0",
            "pci:0000:01:00.0/",
            "pci:0000:01:00.0/0",
            "pci:0000:01:00.0/n1",
            "pci:0000:01:00/1",
            "pci:01:00.0/1",
            "pci:0000:01:00.00/1",
            "pci:0000:0g:00.0/1",
            "pci:../../etc/1",
            "/dev/pci:0000:01:00.0/1",
        ];
        for text in wrong {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
