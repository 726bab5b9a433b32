//! Traces: the requests that a server got, with their times, in one file. `docs/formats/trace.md` has the format.
//!
//! 1. A server encodes each request as a record ([`Records`]), and a [`Writer`] puts records into frames.
//! 2. [`Trace::read`] checks a whole file. [`Trace::requests`] returns its requests by their times.
//!
//! **Keys** are private, so a trace mostly has [hashes](Keys::Hashed) of them. The hash is keyed with random bytes that
//! are in no file. [`Trace::replayed_key`] makes a key of such a hash: equal keys stay equal, and lengths stay.
//!
//! **Failure.** Damage, and a file without its end, are errors that say where.
//!
//! Rejected: lines of text. They take three times the space, and a benchmark that replays a million requests a second
//! would mostly parse.

#![forbid(unsafe_code)]

mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod read;
mod write;

pub use error::{Error, Result};
pub use format::{END_FRAME_BYTES, KEY_BYTES_MAX, Keys, Operation, Outcome, Request, TRACE_BYTES_MAX};
pub use read::Trace;
pub use write::{Records, Writer};

#[cfg(test)]
mod tests;
