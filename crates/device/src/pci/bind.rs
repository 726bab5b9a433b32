//! Moving a controller from one driver to the other.

use super::namespace::open_in;
use super::{Controller, Error, Kernel, NVME_DRIVER, Result, Use, UseKind, VFIO_DRIVER, link_name, read};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// A controller that can be bound to `vfio-pci`. Its namespaces are open exclusively until this is dropped.
#[derive(Debug)]
pub struct Claimed<'a> {
    controller: &'a Controller,
    kernel: &'a dyn Kernel,
    disks: Vec<(String, File)>,
}

/// The outcome of [`Controller::unbind`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unbound {
    /// The kernel's driver of this name has the device again.
    Now(String),
    /// The driver had the device already, and nothing was left of a bind.
    Before(String),
}

impl Controller {
    /// Takes the controller for a bind: checks that VFIO can give it to a process, and opens all namespaces
    /// exclusively.
    ///
    /// # Errors
    /// The reason for which it is never bound, such as a mounted namespace.
    pub fn claim<'a>(&'a self, kernel: &'a dyn Kernel) -> Result<Claimed<'a>> {
        if let Some(refusal) = self.refusals()?.into_iter().next() {
            return Err(refusal);
        }
        let mut disks = Vec::new();
        for namespace in self.namespaces()? {
            let name = namespace.name;
            let file = kernel.claim(&namespace.path).map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => Error::Held {
                    address: self.address,
                    uses: vec![Use { block: name.clone(), kind: UseKind::Claimed }],
                },
                _ => Error::io("open", &namespace.path, error),
            })?;
            disks.push((name, file));
        }
        Ok(Claimed { controller: self, kernel, disks })
    }

    /// Gives the device back to the kernel's own driver, after a bind that is complete, was interrupted, or failed.
    ///
    /// # Errors
    /// A process has the device, the kernel refuses a step, or no driver of the kernel takes the device.
    pub fn unbind(&self, kernel: &dyn Kernel) -> Result<Unbound> {
        if let Some(driver) = self.driver_now()?
            && driver != VFIO_DRIVER
            && !self.is_overridden()?
        {
            return Ok(Unbound::Before(driver));
        }
        let group = self.take_group(kernel)?;
        self.give_back(kernel, group).map(Unbound::Now)
    }

    /// Opens the group, which no other process can open then. `None` if no group has to be opened.
    fn take_group(&self, kernel: &dyn Kernel) -> Result<Option<File>> {
        let (Some(name), Some(file)) = (self.group_name(), self.group_file()) else { return Ok(None) };
        if self.driver_now()?.as_deref() != Some(VFIO_DRIVER) {
            return Ok(None);
        }
        match kernel.claim(&file) {
            Ok(group) => Ok(Some(group)),
            // Without the file, no process can have opened it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let open = open_in(&self.root, &[format!("/dev/vfio/{name}")])?;
                let processes = open.into_iter().map(|(_, process)| process).collect();
                Err(Error::GroupInUse { address: self.address, file, processes })
            }
            Err(error) => Err(Error::io("open", &file, error)),
        }
    }

    /// Takes back every step of a bind, and returns the driver that has the device then.
    fn give_back(&self, kernel: &dyn Kernel, group: Option<File>) -> Result<String> {
        if self.is_overridden()? {
            self.override_driver(kernel, "\n")?;
        }
        if self.driver_now()?.as_deref() == Some(VFIO_DRIVER) {
            self.take_from(kernel, VFIO_DRIVER)?;
        }
        // The kernel must find the group free when its own driver takes the device.
        drop(group);
        if self.driver_now()?.is_none() {
            if !self.driver_directory(NVME_DRIVER).exists() {
                let loaded = kernel.load(NVME_DRIVER);
                loaded.map_err(|error| Error::Module { module: NVME_DRIVER, why: error.to_string() })?;
            }
            self.probe(kernel)?;
        }
        match self.driver_now()? {
            Some(driver) if driver != VFIO_DRIVER => Ok(driver),
            driver => Err(Error::NotTaken {
                address: self.address,
                wanted: NVME_DRIVER,
                why: match driver {
                    Some(_) => {
                        "the kernel gives vfio-pci all drives of its kind (new_id, or the option ids)".to_owned()
                    }
                    None => "the kernel's log (`dmesg`) has the reason".to_owned(),
                },
                driver,
            }),
        }
    }

    /// Returns true if the device's next driver is `vfio-pci`.
    fn is_overridden(&self) -> Result<bool> {
        Ok(read(&self.directory.join("driver_override"))?.as_deref() == Some(VFIO_DRIVER))
    }

    /// Returns the driver that has the device at this moment.
    fn driver_now(&self) -> Result<Option<String>> {
        link_name(&self.directory.join("driver"))
    }

    fn override_driver(&self, kernel: &dyn Kernel, driver: &str) -> Result<()> {
        write(kernel, self.directory.join("driver_override"), driver)
    }

    fn take_from(&self, kernel: &dyn Kernel, driver: &str) -> Result<()> {
        write(kernel, self.driver_directory(driver).join("unbind"), &self.address.to_string())
    }

    fn probe(&self, kernel: &dyn Kernel) -> Result<()> {
        write(kernel, self.root.join("sys/bus/pci/drivers_probe"), &self.address.to_string())
    }
}

fn write(kernel: &dyn Kernel, file: PathBuf, text: &str) -> Result<()> {
    kernel.write(&file, text).map_err(|error| Error::io(format!("write {text:?} to"), &file, error))
}

impl Claimed<'_> {
    /// Returns the names of the block devices, and the files, for a look at what they hold.
    pub fn disks(&self) -> &[(String, File)] {
        &self.disks
    }

    /// Binds the device to `vfio-pci`. One that is bound already is left as it is.
    ///
    /// # Errors
    /// The kernel refuses a step. The steps before it were taken back, or the error says which driver has the device.
    pub fn bind(self) -> Result<()> {
        let Claimed { controller, kernel, disks } = self;
        if controller.driver_now()?.as_deref() == Some(VFIO_DRIVER) {
            return Ok(());
        }
        if !controller.driver_directory(VFIO_DRIVER).exists() {
            let loaded = kernel.load(VFIO_DRIVER);
            loaded.map_err(|error| Error::Module { module: VFIO_DRIVER, why: error.to_string() })?;
        }
        controller.override_driver(kernel, VFIO_DRIVER)?;
        let taken = match controller.driver_now() {
            Ok(Some(driver)) => controller.take_from(kernel, &driver),
            other => other.map(drop),
        };
        drop(disks);
        let probed = taken.and_then(|()| controller.probe(kernel)).and_then(|()| controller.driver_now());
        let why = match probed {
            Ok(driver) if driver.as_deref() == Some(VFIO_DRIVER) => return Ok(()),
            Ok(_) => "the kernel's log (`dmesg`) has the reason".to_owned(),
            Err(error) => error.to_string(),
        };
        let given_back = controller.give_back(kernel, None);
        let why = match given_back {
            Ok(_) => why,
            Err(error) => format!("{why}; the drive was not given back: {error}"),
        };
        let driver = controller.driver_now()?;
        Err(Error::NotTaken { address: controller.address, wanted: VFIO_DRIVER, why, driver })
    }
}
