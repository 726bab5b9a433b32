//! The library as its first user meets it: one program of tests, so that one is linked. A module is a subject.

#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

mod first_program; // what somebody types first compiles and works
mod readme; // what the README shows is what works
