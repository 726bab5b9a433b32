//! Block devices, and what lies below them.
//!
//! * [`Device`] and [`Queue`]: blocks in and out through polled queue pairs. [`Buffer`]s are aligned for direct I/O.
//!   The queue owns them until it gives them back with a [`Completion`]. [`open`](open()) takes a file, a block device
//!   or an NVMe namespace, by plain calls, by `io_uring` or by commands passed through to the drive.
//! * [`Drive`]: the drive under a path. It says whether it compresses, and what it counts of its physical space.
//! * [`pci`]: NVMe controllers on PCI, bound to the kernel's driver or to VFIO.
//! * [`memory`]: fallible allocation, for lengths that come from data.
//! * [`FileReads`]: reads of any open files, many in flight. [`Watch`]: a wait for completions that another thread can
//!   end.
//!
//! A [`Queue::wait`] blocks, so no lock is held across it (see the rules of `situ_base`).

mod block;
mod blocking;
mod buffer;
mod drive;
mod driver;
#[cfg(test)]
mod durability;
mod extents;
mod file;
mod flock;
mod in_flight;
mod ioctl;
pub mod memory;
mod name;
mod nature;
mod nvme;
mod nvme_device;
mod open;
pub mod pci;
#[cfg(test)]
#[path = "../tests/common/skipped.rs"]
mod skipped;
mod spin;
mod target;
mod uring;
mod waiter;
mod watch;

pub use block::{Completion, Device, DeviceLock, Geometry, Op, Queue, Space, Ticket};
pub use buffer::{Buffer, PAGE_BYTES};
pub use drive::{Counts, Drive};
pub use driver::{Dma, Function, NvmeController, NvmeDrive, QueueStatistics, VfioFunction};
pub use file::FileDevice;
pub use flock::Flocked;
pub use name::{absolute, is_pci_name};
pub use nature::{Compresses, Nature};
pub use open::{Backend, OpenOptions, open};
pub use spin::fix_spinning_limit;
pub use uring::{FileRead, FileReads};
pub use waiter::Waiter;
pub use watch::Watch;
