//! The devices that are there at run time. None of them is needed to build, to test or to run.

use crate::device::{OpenDevice, OpenModel};
use std::sync::Arc;

/// A device that this program knows.
pub struct FoundDevice {
    /// The name by which it is chosen.
    pub name: String,
    /// The driver's name for it, where it tells one device from another.
    pub driver_name: Option<String>,
    /// Computes elsewhere than on the processor.
    pub is_hardware: bool,
    /// Used unasked, if it is there: see [`automatic_device`].
    pub is_automatic: bool,
    /// The device, or the reason why it cannot be used here.
    pub device: Result<Arc<dyn OpenDevice>, String>,
}

impl FoundDevice {
    fn new(name: &str, is_hardware: bool, device: Result<Arc<dyn OpenDevice>, String>) -> FoundDevice {
        FoundDevice { name: name.to_owned(), driver_name: None, is_hardware, is_automatic: false, device }
    }
}

/// Returns the device that is used unasked, if there is one: a GPU, by CUDA. OpenCL devices are used by name alone. No
/// GPU has shown its speed by OpenCL yet, and drivers of OpenCL take time to load and install signal handlers.
pub fn automatic_device() -> Option<Arc<dyn OpenDevice>> {
    cuda().ok()
}

/// Looks for devices. Opens none of them, and loads the drivers of all.
pub fn find_devices() -> Vec<FoundDevice> {
    let model: Arc<dyn OpenDevice> = Arc::new(OpenModel::default());
    let mut found = vec![FoundDevice { is_automatic: true, ..FoundDevice::new("cuda:0", true, cuda()) }];
    found.extend(opencl());
    found.push(FoundDevice::new("model", false, Ok(model)));
    found
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Arc<dyn OpenDevice>, String> {
    let device = crate::cuda::OpenCuda::find().map_err(|error| error.to_string())?;
    Ok(Arc::new(device))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Arc<dyn OpenDevice>, String> {
    Err("this program was built without the feature `cuda`".to_owned())
}

/// Returns all devices of OpenCL, or the reason why there is none.
#[cfg(feature = "opencl")]
fn opencl() -> Vec<FoundDevice> {
    match crate::opencl::OpenClDevice::find_all() {
        Ok(devices) => devices.into_iter().map(of_opencl).collect(),
        Err(error) => vec![FoundDevice::new("opencl:0", true, Err(error.to_string()))],
    }
}

#[cfg(feature = "opencl")]
fn of_opencl(device: crate::opencl::OpenClDevice) -> FoundDevice {
    let (name, is_hardware) = (device.name().to_owned(), !device.is_processor());
    let driver_name = Some(device.driver_name().to_owned());
    let device = match device.check() {
        Ok(()) => Ok(Arc::new(device) as Arc<dyn OpenDevice>),
        Err(error) => Err(error.to_string()),
    };
    FoundDevice { driver_name, ..FoundDevice::new(&name, is_hardware, device) }
}

#[cfg(not(feature = "opencl"))]
fn opencl() -> Vec<FoundDevice> {
    let why = "this program was built without the feature `opencl`";
    vec![FoundDevice::new("opencl:0", true, Err(why.to_owned()))]
}
