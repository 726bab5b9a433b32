//! Situ: the staged write path, between a log and whatever applies writes.
//!
//! A write goes through admission, prologue, log, epilogue and publish (`stages.rs` says how). The pipeline gives out sequence
//! numbers, puts records into the log, and makes writes visible in order. It does not know what a write changes. For that it has
//! an [`Environment`]: an LSM engine applies writes to memtables, a test to a map.
//!
//! ```text
//!  write ──> admission ──> 1 prologue ──> 2 log ──> 3 epilogue ──> 4 publish ──> the caller, or its future
//!               │             │ find_room   │          │ apply        │ publish
//!               │ make_way    │ place       │          v              v
//!               └─────────────┴─────────────┼───── Environment ───────┘
//!                                           v
//!                                          Log
//! ```
//!
//! * [`Pipeline::write`] carries a blocking write through all stages; [`WriteFuture`] is an asynchronous one.
//! * `admission.rs` says when a write may begin, and where it waits until then.
//! * `threads.rs` has the bodies of the threads that asynchronous writes need. Their owner starts them.
//! * [`Condition`] is what a transaction's write has to find unchanged.
//!
//! **Promises.** Sequence numbers become visible in order, without a hole. A write is visible when its call returns. A write that
//! fails, and every write behind it, is never visible.
//!
//! **Locks.** The lock of the waiting room is taken before the commit lock. Neither is held across anything that blocks or
//! notifies.
//!
//! **How it is tested.** `tests/` drives the pipeline with a map for an environment and no store. The simulator runs writers of all
//! kinds over it, and cuts the power.

#![forbid(unsafe_code)]

mod admission;
mod budget;
mod environment;
mod future;
mod group_commit;
mod loggers;
mod outstanding;
mod pipeline;
mod stages;
mod threads;
mod waiting_room;

pub use budget::Budget;
pub use environment::commit::Commit;
pub use environment::conditions::{Checks, Condition, Unchecked};
pub use environment::request::{NoLogFile, Obstacle, Request, Write};
pub use environment::{Batch, Environment, Note, Refusal};
pub use future::{ReadyFuture, WriteFuture};
pub use loggers::LOGGERS_MAX;
pub use outstanding::UnderWay;
pub use pipeline::{Limits, Pipeline};
pub use waiting_room::{Admission, AdmissionOutcome, WAITING_BYTES_MAX};

#[cfg(test)]
mod tests;
