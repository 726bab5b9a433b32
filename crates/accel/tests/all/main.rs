//! Integration tests of the crate, in one program.

mod emulated;
mod model_equals_merge;
mod tasks;
