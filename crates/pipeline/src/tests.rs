//! The pipeline alone: a real log on a simulated volume, and a map for a store.

pub(crate) mod shelves;
mod simulated;
mod stages;
