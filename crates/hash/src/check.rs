//! The check of a whole store, and the model of how full its buckets get.

#[cfg(test)]
pub(crate) mod format_page;
pub mod model;
pub(crate) mod verify;
