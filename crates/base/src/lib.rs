//! The lowest room of Situ: time, threads and blocking as values, and one of each mechanism that several crates use.
//!
//! * [`Clock`], [`Executor`] and [`Event`]: time, background threads and blocking. The caller hands them in, and they
//!   are never globals. So a simulator can own them and replay a run from one seed.
//! * [`StoreClock`]: the clock by which entries expire.
//! * [`Workers`], [`Turns`] and [`OneForAll`]: work for a few threads, work that one thread does for all, and results
//!   that all share.
//! * [`lock`], [`wake`] and [`panic_text`]: locks and wakers after a panic.
//! * [`bytes`] and [`buckets`]: numbers out of bytes and into bytes, and numbers that are counted.
//! * [`random()`] and [`utc`]: random bytes, and moments as text.
//! * [`s3_fifo`]: the policy of caches.
//! * [`spent`]: the time of an operation, by the parts of the store that took it.
//!
//! # Rules for everything built on top
//!
//! 1. No lock is held across anything that may block: an [`Event::wait`], a wait for a device, a file operation.
//!    A simulator that runs one thread at a time turns a broken rule into a deadlock that it reports.
//! 2. A thread blocks only on an [`Event`], so that the simulator sees every wait.

#![forbid(unsafe_code)]

pub mod buckets;
pub mod bytes;
mod env;
mod one_for_all;
mod random;
pub mod s3_fifo;
pub mod spent;
mod store_clock;
mod sync;
mod turns;
mod utc;
mod workers;

pub use env::{Clock, Env, Event, Executor, JobHandle, SystemClock, ThreadExecutor};
pub use one_for_all::OneForAll;
pub use random::random;
pub use store_clock::{ClockKeeper, ClockRecord, StoreClock, Tell};
pub use sync::{lock, panic_text, wake};
pub use turns::Turns;
pub use utc::utc;
pub use workers::{Job, Queue, Workers};
