//! A node: a machine that owns storage and computes on it.
//!
//! * The protocol (`docs/formats/node-protocol.md`), its client and its daemon.
//! * The client is a [`Volume`](situ_storage::Volume) whose files lie on the node, and a [`Unit`](situ_compaction::Unit) that
//!   compacts them there.
//!
//! A drive's firmware can hold this crate: nothing in it knows of versions, logs or memtables.
#![forbid(unsafe_code)]

mod files;
mod gate;
mod lease;
mod text;

pub use text::utc;
