//! The tests of volumes through their public interfaces: one program, so that one is linked. A module is a subject.

#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

mod reads; // reads that are submitted and complete later
mod volumes; // what every kind of volume does
