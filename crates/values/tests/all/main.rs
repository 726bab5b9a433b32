//! Tests of the value log as owners use it.

mod basics;
mod crashes;
mod faults;
mod model;
mod races;
