//! The simulated world: everything a store is given from outside, under the control of one seed.
//!
//! * [`SimExecutor`]: threads that run one at a time, in an order that the seed decides; deadlocks are found, threads
//!   can be killed. [`SimClock`]: time that leaps over waiting and jumps on request.
//! * [`SimVolume`]: files in memory with the exact promises of `situ_storage` and not one more, under a [`FaultPlan`];
//!   [`SimVolume::crash`] gives a disk as a power failure would leave it.
//! * [`SimDevice`]: blocks in memory with the exact promises of `situ_device::Device`, under the same plans and
//!   crashes.
//! * [`NvmeModel`]: an NVMe controller over such devices, for a driver, under an [`NvmePlan`]. [`TimedDevice`]: blocks
//!   in memory that take time and no processor.
//! * [`Compression`]: a volume or device that compresses, counts physical bytes, and may run out of them.
//! * [`crash_everywhere`], [`crash_device_everywhere`] and others for several disks: a workload, crashed at each of its
//!   I/Os. [`for_each_seed`]: many seeds, and how to replay.
//! * [`SimMemory`]: an allocator that refuses and measures allocations of one thread.
//! * [`Rng`], [`Trace`]: chance and record. [`wait`]: a future's outcome.
//!
//! # A crash test
//!
//! ```
//! use situ_sim::{CrashPoints, crash_everywhere};
//! use situ_storage::{FileName, Volume};
//!
//! let name = FileName::Temporary(1);
//! let images = crash_everywhere(
//!     7,
//!     &CrashPoints::default(),
//!     |_env, volume| volume.replace(name, b"promised").is_ok(),
//!     |_env, volume, acknowledged| {
//!         let found = volume.contents(name);
//!         assert!(!acknowledged || found.as_deref() == Some(b"promised"));
//!     },
//! );
//! assert!(images > 0);
//! ```
//!
//! # Rules for code under simulation
//!
//! Blocking, time, threads and files come from the `Env` and the `Volume` that were handed in; no lock is held across
//! any of them. The simulator does not see code that breaks the first rule. It sees code that breaks the second one
//! within seconds.

// Only the allocator and the memory of the controller have unsafe code.
#![deny(unsafe_code)]

mod clock;
mod compression;
mod crash;
mod damage;
mod device;
mod disk;
mod executor;
mod explore;
mod fate;
mod fault;
mod memory;
mod nvme;
mod rng;
mod timed;
mod trace;
mod volume;
mod waiting;

pub use clock::{SetClock, SimClock};
pub use compression::{Compression, WhenFull};
pub use device::SimDevice;
pub use executor::SimExecutor;
pub use explore::{
    CrashPoints, FROM_VARIABLE, ROUNDS_VARIABLE, SEED_VARIABLE, crash_device_everywhere, crash_everywhere,
    crash_machine_everywhere, crash_volume_and_device_everywhere, crash_volumes_and_device_everywhere, for_each_seed,
};
pub use fate::Power;
pub use fault::{Fault, FaultPlan, FileKind, Operation, Rule, When};
pub use memory::SimMemory;
pub use nvme::{DmaFault, NotReady, NvmeCommand, NvmeConfig, NvmeCounts, NvmeFault, NvmeModel, NvmePlan, NvmeRule};
pub use rng::Rng;
pub use timed::TimedDevice;
pub use trace::Trace;
pub use volume::SimVolume;
pub use waiting::wait;
