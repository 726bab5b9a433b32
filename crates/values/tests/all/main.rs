//! Tests of the value log as owners use it.

mod basics;
mod crashes;
mod model;
