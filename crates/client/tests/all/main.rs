//! The tests of `situ_client` through its public interface: one program, so that one is linked. A module is a subject.

#[path = "../../../server/tests/all/memcached/mod.rs"]
#[allow(dead_code, reason = "these tests need no version and no exchange of bytes")]
mod memcached;
#[path = "../../../device/tests/common/skipped.rs"]
mod skipped;

mod asynchronous; // futures, bounds of queues, deadlines
mod cluster; // several servers: where keys go, back-off, failover
mod engines; // all commands over the engines of Situ's server
mod flaky; // servers that hang up, stall, or say what is no answer
mod killed; // servers and clients that are killed in the middle of commands
mod stock; // all commands over memcached
mod vocabulary; // the commands, for both
mod wire; // the server's side of the transports
