//! The tests of `situ_device` through its public interface: one program, so that one is linked. A module is a subject.

mod alone;
#[path = "../common/mod.rs"]
mod common;

mod backends; // what every backend must do
mod drives; // drives that compress
mod faults; // devices that fail, shrink and vanish
mod flushes; // flushes, counted where the kernel counts them
mod two_names; // a disk that has two names
