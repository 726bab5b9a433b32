//! Immutable sorted tables.

pub mod cursor;
pub mod key;
pub mod range_del;

pub use cursor::Cursor;
pub use key::{KeyKind, KeyRef, MAX_SEQUENCE, SequenceNumber, Trailer};
