//! Tests that nothing may run beside: each has a process of its own, and `make test` runs them one after another when all
//! others are done.

#[path = "../../../../device/tests/common/own_process.rs"]
mod own_process;

mod cold_reads; // what reads from a slow disk cost the others; measures latencies
mod fairness; // what one client may cost the others; measures latencies
mod memory_use; // memory that clients can make the server use; looks at the memory of the process
mod no_memory; // lengths that clients make up, with little memory; limits the memory of the process
mod signals; // SIGHUP and SIGTERM; they belong to all of the process
