//! The slow operations of an engine, as the live page and `situ top` show them. The HTTP port has no users, so keys are
//! left out; the server's log has them.

use serde::{Deserialize, Serialize};

/// An operation of the engine that took long. See [`SlowOperation`](situ::SlowOperation).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowFigures {
    /// Milliseconds of Unix time at its end.
    pub unix_ms: u64,
    /// Its kind, as in `get`.
    pub kind: String,
    /// The keyspace's name.
    pub keyspace: String,
    /// The length of the key.
    pub key_bytes: usize,
    /// Bytes of the values that were read, or of the changes that were written.
    pub bytes: u64,
    /// Microseconds that it took.
    pub took_us: u64,
    /// The parts of this time, the rest last.
    pub parts: Vec<SlowPartFigures>,
}

/// A part of the time of a slow operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowPartFigures {
    /// Its name, as in `block_read`.
    pub name: String,
    /// The number of times that it took place.
    pub count: u32,
    /// Microseconds of all of them together.
    pub us: u64,
}

impl From<&situ::SlowOperation> for SlowFigures {
    fn from(slow: &situ::SlowOperation) -> SlowFigures {
        let parts = slow.parts.iter();
        SlowFigures {
            unix_ms: slow.ended_unix.as_millis() as u64,
            kind: slow.kind.name().to_owned(),
            keyspace: slow.keyspace.clone(),
            key_bytes: slow.key_bytes,
            bytes: slow.bytes,
            took_us: slow.took.as_micros() as u64,
            parts: parts
                .map(|part| SlowPartFigures {
                    name: part.name.to_owned(),
                    count: part.count,
                    us: part.time.as_micros() as u64,
                })
                .collect(),
        }
    }
}
