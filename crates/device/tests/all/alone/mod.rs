//! Tests that nothing may run beside: each has a process of its own, and `make test` runs them one after another when all
//! others are done.

#[path = "../../common/own_process.rs"]
mod own_process;

mod idle; // promise 9: a queue without work uses no processor; looks at the processor time of the process
mod memory; // buffers that are given up go back to the system; looks at the memory of the process
mod refused; // a system that gives no rings; limits the descriptors of the process
