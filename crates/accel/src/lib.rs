//! Compactions on accelerators: a task as lists of blocks, the model of every device, and a GPU that answers to the
//! bit.
//!
//! ```text
//! Task ──Prepared──> DeviceTask + blocks ──device──> Answer: blocks as stored, a report of each
//!                                          model ──> the same bytes
//! ```
//!
//! * [`abi`] has the structs that cross to a device; `docs/formats/accelerator.md` describes them.
//! * [`Prepared`] finds the blocks of a compaction task and refuses what no device can do.
//! * [`run_model`] is the oracle: straightforward, and equal to the reference merge block by block.
//! * `Cuda`, behind the feature `cuda`, runs tasks on a GPU of NVIDIA.
//! * `OpenClDevice`, behind the feature `opencl`, runs tasks by the same kernels on any device with an OpenCL driver.
//!
//! File cuts, index, filter, properties and sync stay on the host. A host that ends a file at kept entry `n` asks for
//! the blocks from `n` on by [`emit_from`](DeviceRules::emit_from).

#![cfg_attr(not(any(feature = "cuda", feature = "opencl")), forbid(unsafe_code))]
#![cfg_attr(any(feature = "cuda", feature = "opencl"), deny(unsafe_code))]

pub mod abi;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;

mod answer;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod find;
mod flat;
mod layout;
mod model;
#[cfg(feature = "opencl")]
mod opencl;
mod passes;
mod prepare;
mod run;
mod steps;
mod task;
mod unit;

pub use answer::Answer;
#[cfg(feature = "cuda")]
pub use cuda::{Cuda, CudaError, Lane, LaneAnswer, OpenCuda, StepTime};
pub use device::{Device, DeviceAnswer, DeviceError, DeviceLimits, ModelDevice, OpenDevice, OpenModel};
pub use find::{FoundDevice, automatic_device, find_devices};
pub use layout::{Counters, Layout, Params};
pub use model::run_model;
#[cfg(feature = "opencl")]
pub use opencl::OpenClDevice;
pub use passes::{Passes, RunShape};
pub use prepare::{NotPrepared, Prepared};
pub use run::run_on_device;
#[doc(hidden)]
pub use steps::emulated_steps;
pub use steps::{Step, kernel_source, steps};
pub use task::{DeviceRules, DeviceTask, Malformed};
pub use unit::{DeviceLanes, DeviceUnit};
