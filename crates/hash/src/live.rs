//! The open store: reads, and the threads that bring writes into buckets.

pub(crate) mod collect;
pub(crate) mod core;
pub(crate) mod gate;
pub(crate) mod keeper;
pub(crate) mod read;
pub(crate) mod read_queue;
pub(crate) mod readers;
pub(crate) mod retry;
pub(crate) mod rewrite;
pub(crate) mod snapshots;
pub(crate) mod worker;
