//! Integration tests of the crate, in one program.

mod damage;
mod equals_model;
mod skipped;
mod tasks;
