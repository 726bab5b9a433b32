//! Tests of the value log as owners use it.

/// Lets a test refuse and measure allocations.
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;

mod basics;
mod crashes;
mod faults;
mod model;
mod races;
