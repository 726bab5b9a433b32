//! The tests of `situ_engine` through its public interface: one program, so that one is linked. A module is a subject.

/// Lets a test refuse allocations to one thread.
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;

mod alone;
#[path = "../../../device/tests/common/mod.rs"]
#[allow(dead_code, reason = "not all of them are used here")]
mod block_devices;
#[allow(dead_code, reason = "the tests of situ-tiers share it")]
mod common;

mod admission; // asynchronous writes to a store that cannot take them now
mod async_reads; // asynchronous reads and scans
mod async_writes; // every future of a write is woken
mod back_pressure; // promise 8: more writes than the store can digest
mod behaviour; // the public interface beside plain reads and writes
mod busy_writer; // opening read-only beside a writer that gives files up
mod cache_bounds; // what the cache holds beside blocks
mod changes; // change feeds
mod checkpoints; // copies of a store at one moment
mod closing; // stores that close or fail while much is under way
mod crash; // promises 1 to 4: a crash at every change of a disk
mod damage; // promise 6: rot is found and named, and nobody reads wrong data
mod damage_met; // damage that an open store meets
mod dead_entries; // only the first reader steps over a run of dead entries
mod debts; // dead entries and files that a store frees although nothing is full
mod faults; // promise 7: failure is a value
mod filters; // compaction filters that change their mind
mod full_disk; // promise 7: a disk that the store has filled
mod full_disk_writers; // writers together on a disk with just enough room
mod iterators; // iterators against `BTreeMap::range`
mod keyspaces; // promise 4: creating and dropping keyspaces
mod kill; // promise 1 on a real disk: a process that is killed
mod little_memory; // values of many lengths, and threads that get no memory for them
mod loggers; // one to three loggers carry asynchronous writes
mod looked_at; // tables of units elsewhere are read once
mod manifest_copy; // promise 6: the copy of the manifest
mod metamorphic; // one stream of operations over many configurations
mod model; // the engine against a `BTreeMap`
mod one_writer; // one writer, even if files are removed or renamed
mod open_tables; // the bound on open tables
mod opened_for_one_write; // stores that are opened for one write, again and again
mod opening; // what a store has in memory when it is opened
mod physical_space; // promise 7: drives that compress and run out of physical space
mod postponed; // promises 7 and 8: compactions that cannot succeed
mod random_faults; // promises 1, 3, 6, 7: seeded faults
mod readers; // opening read-only while another process writes
mod reads_told; // units hear how long reads take
mod reopened_random_faults; // promises 1, 4, 7: many short lives of one store, each with faults of its own
mod slow_operations; // operations that take long, and the parts of the store that took the time
mod spandb_holes; // the known holes of SpanDB
mod threads; // promises 2 and 3 with real threads
mod throttle; // compactions use one thread while writers wait for the log
mod through; // compactions that go through the base level
mod told_losses; // what a repair says of what is lost
mod total_memory; // promise 8: one limit for all memtables
mod transact; // `Store::transact`: what is run again, and that it ends
mod transaction_crash; // promise 3: transactions and crashes
mod transaction_locks; // locks of transactions, in simulated time
mod transaction_threads; // transactions with real threads
mod transactions; // transactions, one claim at a time
mod unit_elsewhere; // compactions in another process, which is killed, and on units that hold many tasks
mod unit_misbehaves; // a unit that refuses, forgets and lies
mod value_log; // where large values go, and how their space comes back
mod values_ahead; // cursors read values before they are asked for them
mod verify_open; // a store is verified while it is in use

use block_devices::skipped;
