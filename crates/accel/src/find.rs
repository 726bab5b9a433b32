//! The devices that are there at run time. None of them is needed to build, to test or to run.

use crate::device::{OpenDevice, OpenModel};
use std::sync::Arc;

/// A kind of device that this program knows.
pub struct FoundDevice {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// Computes elsewhere than on the processor: it is worth being chosen unasked.
    pub is_hardware: bool,
    /// The device, or the reason why it cannot be used here.
    pub device: Result<Arc<dyn OpenDevice>, String>,
}

/// Looks for devices. Opens none of them.
pub fn find_devices() -> Vec<FoundDevice> {
    let model: Arc<dyn OpenDevice> = Arc::new(OpenModel::default());
    vec![
        FoundDevice { name: "cuda:0", is_hardware: true, device: cuda() },
        FoundDevice { name: "model", is_hardware: false, device: Ok(model) },
    ]
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
