//! Connections in memory between a server and its clients: shared memory on one machine, remote memory between two.
//!
//! A connection is a pair of rings, one for each direction. In shared memory both processes map them, and a Unix socket
//! carries the greeting and the wake-ups. `docs/formats/shared-memory.md` has the format.
//!
//! * [`Link`]: one side of a connection of either kind.
//! * [`Rings`]: one side of a connection, as bytes in and bytes out. It makes no system calls.
//! * [`offer`] and [`answer`]: the server's half of the greeting.
//! * [`take_bells`]: takes wake-ups off the socket.
//! * [`ClientEnd`]: a client's connection, with its socket.
//!
//! The feature `verbs` adds the module `verbs`: connections in remote memory, by RDMA. Shared memory needs no feature.
//!
//! **Trust.** A side never follows a count of the other side without a check, and copies bytes out before it uses
//! them. So a client can break its own connection only. The memory's length is sealed.
//! **Threads.** Each side belongs to one thread at a time.
//! **Cost.** A byte is copied twice, as with a socket, but by the processes themselves. Without sleepers there is no
//! system call.

mod bells;
mod client;
mod greeting;
mod link;
mod memory;
mod rings;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use bells::{Bells, take_bells};
pub use client::{ClientEnd, Refused};
pub use greeting::{ANSWER_BYTES_MAX, Greeting, REQUEST_WORD, VERSION, answer, offer, ring_bytes_for};
pub use link::{Link, RdmaDevices};
pub use rings::{Breach, RING_BYTES_MAX, RING_BYTES_MIN, Rings, Spin, Turns};
