//! The tests of `situ_server` through its public interface: one program, so that one is linked. A module is a subject.

/// Lets a test refuse allocations to one thread.
#[global_allocator]
static MEMORY: situ_sim::SimMemory = situ_sim::SimMemory;

mod alone;
mod certificates;
mod line_client;
mod memcached;
#[path = "../memory/mod.rs"]
mod memory;
#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

mod administration; // commands over HTTP, with a token
mod back_pressure; // an engine that takes no more writes
mod cache; // the same over a cache
mod cold_reads; // reads that need the disk
mod compactions; // the picture of compactions over HTTP
mod damage; // damage on disk that a server meets
mod descriptors; // connections never take the descriptors of the store
mod differential; // the same bytes to a real memcached
mod durable; // what was acknowledged is there after a restart
mod expired_items; // expired items leave the disk of an idle store
mod guards; // who is not let in, and what is not allowed
mod hash; // the same over a hash store
mod http; // the HTTP port itself: the live page and its figures, and requests for headers alone
mod item_count; // how many items there are, by every engine
mod listing; // dumps of all items, and watchers
mod meta_flags; // flags of later meta commands
mod metrics; // the page of metrics as Prometheus reads it
#[cfg(feature = "verbs")]
mod remote_memory; // requests for connections over RDMA
mod rights; // what users may do, and users that change
mod robustness; // floods, noise, truncated commands, hanging up
mod shared_memory; // connections in shared memory
mod stock_clients; // twemproxy and the tools of libmemcached, over two servers
mod tls; // clients over TLS
mod trace; // traces of requests
mod wrong_clock; // a wall clock that is wrong, and later set right
