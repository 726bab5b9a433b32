//! Integration tests of the crate, in one program.

mod chip;
mod damage;
mod directed;
mod equals_model;
mod skipped;
mod store;
mod tasks;
