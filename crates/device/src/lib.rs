//! The lowest room of Situ: what a store is given from outside.
//!
//! * [`Clock`], [`Executor`] and [`Event`]: time, background threads and blocking. They are values handed in, never
//!   globals, so that a simulator can own them and replay a run from one seed.
//! * [`Device`] and [`Queue`]: blocks in and out through polled queue pairs, with [`Buffer`]s that are aligned for
//!   direct I/O and that the queue owns until it gives them back with a [`Completion`]. [`open`](open()) takes a file, a
//!   block device or an NVMe namespace, by plain calls, by `io_uring` or by commands passed through to the drive.
//! * [`Drive`]: which drive lies under a path, whether it compresses, and what it counts of its physical space.
//! * [`memory`]: fallible allocation, for lengths that come from data.
//! * [`FileReads`]: reads of any open files, many in flight. [`Watch`]: a wait for completions that another thread can end.
//!
//! # Rules for everything built on top
//!
//! 1. No lock is held across anything that may block: a [`Queue::wait`], an [`Event::wait`], a file operation.
//!    A simulator that runs one thread at a time turns a broken rule into a deadlock that it reports.
//! 2. Blocking is done by [`Event`] only, so that the simulator sees every wait.

mod block;
mod blocking;
mod buffer;
mod drive;
#[cfg(test)]
mod durability;
mod env;
mod extents;
mod file;
mod ioctl;
mod lock;
pub mod memory;
mod nvme;
mod one_for_all;
mod open;
mod requests;
#[cfg(test)]
#[path = "../tests/common/skipped.rs"]
mod skipped;
mod spin;
mod store_clock;
mod sync;
mod target;
mod turns;
mod uring;
mod watch;

pub use block::{Completion, Device, DeviceLock, Geometry, Op, Queue, Space, Ticket};
pub use buffer::{Buffer, PAGE_BYTES};
pub use drive::{Compresses, Counts, Drive, Nature};
pub use env::{Clock, Env, Event, Executor, JobHandle, SystemClock, ThreadExecutor};
pub use file::FileDevice;
pub use lock::Flocked;
pub use one_for_all::OneForAll;
pub use open::{Backend, OpenOptions, open};
pub use requests::{Next, Requests};
pub use store_clock::{ClockKeeper, ClockRecord, StoreClock, Tell};
pub use sync::{lock, panic_text, wake};
pub use turns::Turns;
pub use uring::{FileRead, FileReads};
pub use watch::Watch;
