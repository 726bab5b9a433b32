//! A node: a machine that owns storage and computes on it.
//!
//! * The protocol (`docs/formats/node-protocol.md`), its client and its daemon.
//! * The client is a [`Volume`](situ_storage::Volume) whose files lie on the node, and a [`Unit`](situ_offload::Unit)
//!   that compacts them there.
//!
//! ```text
//!   NodeVolume ── NodeClient ── Peer ═══ connection ═══ Peer ── Handler: files, tasks ── Volume
//! ```
//!
//! A drive's firmware can hold this crate: nothing in it knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod address;
mod changes;
mod client;
mod daemon;
mod error;
mod executor;
pub mod fields;
mod files;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
pub mod greeting;
mod host_connection;
mod host_files;
mod lease;
pub mod message;
mod peer;
mod secret;
mod task_files;
#[cfg(test)]
mod testing;
mod transport;
mod unit;
mod volume;

pub use address::{DEFAULT_PORT, DEFAULT_STORE, NodeAddress, Place, check_store_name};
pub use client::{NodeClient, NodeOptions, NodeState, OnState};
pub use daemon::{Caller, ChangePass, Daemon, DaemonOptions, Service, Storage, TaskService};
pub use error::{CallError, IO_KINDS, code};
pub use executor::{Executor, ExecutorOptions, HostTasks};
pub use frame::Side;
pub use message::{Call, Class, Message, Operation};
pub use peer::{Connection, Handler, Peer, PeerOptions, Reply, Stream, Traffic};
pub use secret::{Prover, SECRET_BYTES_MIN, Secret, Transcript, random};
pub use situ_base::utc;
pub use task_files::{GivenUp, SharedDirectory, TaskFiles};
pub use transport::{Accepted, Listener, ServerTls, TlsRoots, connect};
pub use unit::{NodeLink, NodeUnit, NodeUnitOptions};
pub use volume::NodeVolume;

/// Lets a test refuse and measure allocations.
#[cfg(test)]
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;
