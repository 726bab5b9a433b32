//! A node: a machine that owns storage and computes on it.
//!
//! * The protocol (`docs/formats/node-protocol.md`), its client and its daemon.
//! * The client is a [`Volume`](situ_storage::Volume) whose files lie on the node, and a [`Unit`](situ_compaction::Unit) that
//!   compacts them there.
//!
//! ```text
//!   NodeVolume ── NodeClient ── Peer ═══ connection ═══ Peer ── Handler: files, tasks ── Volume
//! ```
//!
//! A drive's firmware can hold this crate: nothing in it knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod error;
mod executor;
pub mod fields;
mod files;
pub mod frame;
mod gate;
mod host_files;
mod lease;
pub mod message;
mod peer;
mod pool;
mod task_files;
mod text;
mod unit;

pub use error::{CallError, IO_KINDS, code};
pub use executor::{Executor, ExecutorOptions, HostTasks};
pub use frame::Side;
pub use message::{Call, Class, Message, Operation};
pub use peer::{Connection, Handler, Peer, PeerOptions, Reply, Stream, Traffic};
pub use task_files::{SharedDirectory, TaskFiles};
pub use text::utc;
pub use unit::{NodeLink, NodeUnit, NodeUnitOptions};
