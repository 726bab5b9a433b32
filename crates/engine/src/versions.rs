//! The parts of a keyspace at one moment: tables by level under memtables, the manifest that says so, edits.

pub(crate) mod edit;
pub(crate) mod editor;
pub(crate) mod gaps;
pub(crate) mod heat;
pub(crate) mod keyspace;
pub(crate) mod manifest;
pub(crate) mod obsolete;
pub(crate) mod open_tables;
pub(crate) mod running;
pub(crate) mod segments;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod version;
pub(crate) mod view;
