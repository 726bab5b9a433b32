//! Connections in shared memory between a server and its clients on one machine.
//!
//! A connection is a pair of rings, one for each direction, in memory that both processes map. A Unix socket carries
//! the greeting and the wake-ups. `docs/formats/shared-memory.md` has the format.
//!
//! * [`Rings`]: one side of a connection, as bytes in and bytes out. It makes no system calls.
//! * [`offer`] and [`answer`]: the server's half of the greeting.
//! * [`take_bells`]: takes wake-ups off the socket.
//! * [`ClientEnd`]: a client's connection, with its socket.
//!
//! **Trust.** A side never follows a count of the other side without a check, and copies bytes out before it uses
//! them. So a client can break its own connection only. The memory's length is sealed.
//! **Threads.** Each side belongs to one thread at a time.
//! **Cost.** A byte is copied twice, as with a socket, but by the processes themselves. Without sleepers there is no
//! system call.

mod bells;
mod client;
mod greeting;
mod memory;
mod rings;

pub use bells::{Bells, take_bells};
pub use client::{ClientEnd, Refused};
pub use greeting::{ANSWER_BYTES_MAX, Greeting, REQUEST_WORD, VERSION, answer, offer, ring_bytes_for};
pub use rings::{Breach, RING_BYTES_MAX, RING_BYTES_MIN, Rings, Spin};
