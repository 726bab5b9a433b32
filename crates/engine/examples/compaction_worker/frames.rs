//! Messages on the two pipes between a store and its worker.
//!
//! A frame is a kind (1 byte), the number of an attempt (8), a length (4) and so many bytes; numbers are little-endian.
//!
//! | kind | from | bytes | meaning |
//! |---|---|---|---|
//! | 1 | store | a task, `docs/formats/task.md` | run it |
//! | 2 | store | volume (4), file number (8); none if there is no place any more | the place that was asked for |
//! | 3 | store | none | nobody waits for the attempt |
//! | 4 | worker | level (4) | a place for an output table is needed |
//! | 5 | worker | bytes (8) | so much more was written |
//! | 6 | worker | an output, `docs/formats/task.md` | the attempt has succeeded |
//! | 7 | worker | a text | the attempt has failed |

use std::io::{Read, Result, Write};

pub(crate) const TASK: u8 = 1;
pub(crate) const PLACE: u8 = 2;
pub(crate) const CANCEL: u8 = 3;
pub(crate) const RESERVE: u8 = 4;
pub(crate) const WRITTEN: u8 = 5;
pub(crate) const DONE: u8 = 6;
pub(crate) const FAILED: u8 = 7;

/// A frame may not be longer; a task has a few hundred bytes for each table that it reads or lies over.
const FRAME_BYTES_MAX: u32 = 64 << 20;

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) attempt: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    pub(crate) fn new(kind: u8, attempt: u64, bytes: impl Into<Vec<u8>>) -> Frame {
        Frame { kind, attempt, bytes: bytes.into() }
    }

    pub(crate) fn write(&self, pipe: &mut impl Write) -> Result<()> {
        let mut frame = vec![self.kind];
        frame.extend_from_slice(&self.attempt.to_le_bytes());
        frame.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        frame.extend_from_slice(&self.bytes);
        pipe.write_all(&frame)?;
        pipe.flush()
    }

    /// The next frame; an error at the end of the pipe.
    pub(crate) fn read(pipe: &mut impl Read) -> Result<Frame> {
        let mut header = [0; 13];
        pipe.read_exact(&mut header)?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let attempt = u64::from(number(1)) | u64::from(number(5)) << 32;
        let length = number(9);
        if length > FRAME_BYTES_MAX {
            return Err(std::io::Error::other(format!("a frame of {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        pipe.read_exact(&mut bytes)?;
        Ok(Frame { kind: header[0], attempt, bytes })
    }
}
