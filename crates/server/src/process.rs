//! The limits of the process that serves: file descriptors and memory.

pub(crate) mod descriptors;
pub(crate) mod pressure;
