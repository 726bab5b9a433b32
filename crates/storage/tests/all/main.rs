//! The tests of `situ_storage` through its public interface: one program, so that one is linked. A module is a subject.

#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

mod reads; // reads that are submitted and complete later
mod volumes; // what every kind of volume does
