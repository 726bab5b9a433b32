//! Integration tests of the crate, in one program.

mod emulated;
#[cfg(feature = "cuda")]
mod gpu;
mod model_equals_merge;
mod page;
mod tasks;
