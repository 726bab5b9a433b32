//! A driver for NVMe drives in user space: polled queues, no system call and no copy for a transfer.
//!
//! ```text
//!   NvmeDrive ─────── one namespace as a Device              driver/drive.rs
//!   DriveQueue ────── operations in flight of one thread     driver/queue.rs
//!   NvmeController ── admin commands, queue pairs, resets    driver/controller.rs
//!   Pair ──────────── rings and doorbells                    driver/pair.rs
//!   DmaSpace ──────── memory that the controller reaches     driver/space.rs
//!   Function ──────── registers, mappings, interrupts        driver/function.rs
//! ```
//!
//! A [`Function`] is the hardware behind VFIO (`driver/vfio.rs`), or a controller in software. The layouts of commands,
//! registers and rings are those of the NVM Express base specification, revision 1.4.

mod controller;
mod drive;
mod function;
mod open;
mod pair;
mod queue;
mod registers;
mod space;
mod statistics;
mod vfio;

pub use controller::NvmeController;
pub use drive::NvmeDrive;
pub use function::{Dma, Function};
pub(crate) use open::open;
pub use statistics::QueueStatistics;
pub use vfio::VfioFunction;
