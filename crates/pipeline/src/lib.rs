//! Situ: the staged write path, between a log and whatever applies writes.
//!
//! A write goes through admission, prologue, log, epilogue and publish (`stages.rs` says how). The pipeline gives out
//! sequence numbers, puts records into the log, and makes writes visible in order. It does not know what a write
//! changes. For that it has an [`Environment`]: an LSM engine applies writes to memtables, a test to a map.
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
//! * [`SpaceWatch`] watches the space of disks: a store refuses puts before a disk is full, or a drive that compresses
//!   fails a write (`space.rs`).
//! * [`Condition`] is what a transaction's write has to find unchanged.
//!
//! **Promises.** Sequence numbers become visible in order, without a hole. A write is visible when its call returns. A
//! write that fails, and every write behind it, is never visible.
//!
//! **Locks.** The lock of the waiting room is taken before the commit lock. Neither is held across anything that blocks
//! or notifies.
//!
//! **How it is tested.** `tests/` drives the pipeline with a map for an environment and no store. The simulator runs
//! writers of all kinds over it, and cuts the power.
//!
//! # The smallest environment
//!
//! A sum, with its additions in a log: there is always room, the log has one file, and a write is applied as it is
//! published.
//!
//! ```
//! use situ_base::{Env, lock};
//! use situ_log::{Durability, Log, LogOptions};
//! use situ_pipeline::{
//!     Batch, Commit, Environment, EnvironmentTypes, Limits, NoLogFile, Obstacle, Pipeline, Refusal, Request, Write,
//! };
//! use std::sync::atomic::{AtomicI64, Ordering};
//! use std::sync::{Arc, Mutex, OnceLock};
//!
//! #[derive(Default)]
//! struct Add(i64);
//!
//! impl Batch for Add {
//!     fn count(&self) -> usize { 1 }
//!     fn bytes(&self) -> usize { 8 }
//!     fn held_bytes(&self) -> usize { 0 }
//!     fn record<T>(&self, first: u64, takes: impl FnOnce(&[&[u8]]) -> T) -> T {
//!         takes(&[&first.to_le_bytes(), &self.0.to_le_bytes()])
//!     }
//! }
//!
//! struct Sum { commit: Mutex<Commit<Sum>>, failure: OnceLock<String>, visible: AtomicI64 }
//!
//! #[derive(Debug, Clone)]
//! struct Stop(String);
//!
//! impl From<Refusal> for Stop {
//!     fn from(refusal: Refusal) -> Stop { Stop(format!("{refusal:?}")) }
//! }
//!
//! impl EnvironmentTypes for Sum {
//!     type Batch = Add;
//!     type Targets = ();
//!     type Places = ();
//!     type NoRoom = NoLogFile;
//!     type Error = Stop;
//! }
//!
//! impl Environment for Sum {
//!     fn commit(&self) -> &Mutex<Commit<Sum>> { &self.commit }
//!     fn is_closing(&self) -> bool { false }
//!     fn failure(&self) -> Option<Stop> { self.failure.get().cloned().map(Stop) }
//!     fn fail(&self, cause: situ_storage::Error) { _ = self.failure.set(cause.to_string()) }
//!     fn find_room(&self, _: &mut Commit<Sum>, _: &Add) -> Result<(), Obstacle<Sum>> { Ok(()) }
//!     fn next_log_file(&self, _: &mut Commit<Sum>, _: &Add) -> Result<(), Obstacle<Sum>> {
//!         Err(Obstacle::refused(Stop("the log is full".to_owned())))
//!     }
//!     fn place(&self, _: &mut Commit<Sum>, _: &Add) {}
//!     fn apply(&self, _: &Add, _: &(), _first: u64) {}
//!     fn publish(&self, request: &Request<Sum>) { self.visible.fetch_add(request.batch().0, Ordering::Release); }
//!     fn make_way(&self, _: NoLogFile) -> Result<bool, Stop> { Err(Stop("the record is too long".to_owned())) }
//!     fn tell_background(&self) {}
//! }
//!
//! let env = Env::system();
//! let volume = Arc::new(situ_sim::SimVolume::new(&env, situ_sim::FaultPlan::none(), 1));
//! let log = Log::create(volume, env.clone(), LogOptions::default(), 1).unwrap();
//! let commit = Mutex::new(Commit::new(0, ()));
//! let sum = Arc::new(Sum { commit, failure: OnceLock::new(), visible: AtomicI64::new(0) });
//! let limits = Limits { loggers: 1, outstanding: 100 };
//! let pipeline = Pipeline::new(&env, Arc::clone(&sum), Some(log), env.executor.event(), limits);
//! assert_eq!(pipeline.write(Write::new(Add(5), None), Durability::Synced).unwrap(), 1);
//! assert_eq!(pipeline.write(Write::new(Add(-2), None), Durability::Buffered).unwrap(), 2);
//! assert_eq!(sum.visible.load(Ordering::Acquire), 3);
//! assert_eq!(lock(&sum.commit).last_sequence(), 2);
//! ```

#![forbid(unsafe_code)]

mod admission;
mod budget;
mod commit;
mod depth;
mod environment;
mod future;
mod group_commit;
mod loggers;
mod outstanding;
mod parts;
mod pipeline;
mod space;
mod stages;
mod threads;
mod waiting_room;

pub use budget::Budget;
pub use commit::Commit;
pub use commit::{Checks, Condition, Unchecked};
pub use commit::{Obstacle, Request, Write};
pub use environment::Environment;
pub use future::{ReadyFuture, WriteFuture};
pub use loggers::LOGGERS_MAX;
pub use outstanding::UnderWay;
pub use parts::NoLogFile;
pub use parts::{Batch, EnvironmentTypes, Note, Refusal};
pub use pipeline::{Limits, Pipeline};
pub use space::{
    LogFileLength, Needs, Promise, SpaceChange, SpaceKind, SpaceLevel, SpaceProperties, SpaceShortage, SpaceUse,
    SpaceWatch, WatchedDisk,
};
pub use waiting_room::{Admission, AdmissionOutcome, WAITING_BYTES_MAX};

#[cfg(test)]
mod tests;
