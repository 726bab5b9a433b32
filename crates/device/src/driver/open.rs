//! The opening of a namespace by its name.

use super::controller::NvmeController;
use super::drive::NvmeDrive;
use super::vfio::VfioFunction;
use crate::name::parts;
use situ_base::{Env, lock};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

/// Opens the namespace with this name. Controllers that this process drives already are shared.
pub(crate) fn open(path: &Path) -> io::Result<NvmeDrive> {
    static CONTROLLERS: Mutex<BTreeMap<String, Weak<NvmeController>>> = Mutex::new(BTreeMap::new());
    let Some((address, namespace)) = parts(path) else {
        let why =
            format!("{}: a drive is named as in pci:0000:01:00.0/1, with its address and namespace", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let address = address.to_ascii_lowercase();
    let mut controllers = lock(&CONTROLLERS);
    let controller = match controllers.get(&address).and_then(Weak::upgrade) {
        Some(controller) => controller,
        None => {
            let controller = NvmeController::start(Arc::new(VfioFunction::open(&address, Env::system())?))?;
            controllers.insert(address, Arc::downgrade(&controller));
            controller
        }
    };
    drop(controllers);
    NvmeDrive::open(controller, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_refused_with_a_right_one() {
        let error = open(Path::new("pci:1/2")).unwrap_err();
        let is_invalid = error.kind() == io::ErrorKind::InvalidInput;
        assert!(is_invalid && error.to_string().contains("pci:0000:01:00.0/1"), "{error}");
    }
}
