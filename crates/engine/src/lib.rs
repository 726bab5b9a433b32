//! Situ: the LSM engine.

pub mod memtable;
