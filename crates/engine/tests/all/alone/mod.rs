//! Tests that nothing may run beside: each has a process of its own, and `make test` runs them one after another when all
//! others are done.

#[path = "../../../../device/tests/common/own_process.rs"]
mod own_process;

mod dead_tables; // promise 8: what replaced tables held is given back; looks at all descriptors
mod idle; // promise 9: an idle store uses no processor; looks at all threads
mod idle_keyspaces; // promise 8: an idle keyspace takes next to no memory; measures peak memory
mod no_memory; // promise 8: running out of memory for a value is an error; limits the memory of its process
mod range_trims; // trims of a queue take linear memory and time; looks at the peak of memory
