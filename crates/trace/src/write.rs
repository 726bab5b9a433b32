//! Writing a trace.

use crate::format::{FIELDS_BYTES, FRAME_BYTES_MAX, HEADER_BYTES, Keys, MAGIC, Request, VERSION, frame_checksum};
use std::io::{self, Write};
use std::time::Duration;

/// Encoded records on their way to a [`Writer`].
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    /// The ends of the frames that the records make, but for the last, and how many records each has.
    frames: Vec<(usize, u32)>,
    /// The records behind the last of these ends.
    open: u32,
}

impl Records {
    /// Adds a request. Its key has the form of the trace that the records go to.
    pub fn push(&mut self, request: &Request<'_>) {
        let begun = self.frames.last().map_or(0, |frame| frame.0);
        if self.bytes.len() - begun + FIELDS_BYTES + request.key.len() > FRAME_BYTES_MAX {
            self.end_frame();
        }
        request.encode(&mut self.bytes);
        self.open += 1;
    }

    fn end_frame(&mut self) {
        if self.open > 0 {
            self.frames.push((self.bytes.len(), std::mem::take(&mut self.open)));
        }
    }

    /// Returns the bytes of the records.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A writer of a trace.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    records: u64,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a trace. `began_unix_us` is the time of its beginning, in microseconds since 1970.
    ///
    /// # Errors
    /// The error of `out`, as for all writes.
    pub fn begin(mut out: W, keys: Keys, began_unix_us: u64) -> io::Result<Writer<W>> {
        let keys = match keys {
            Keys::Hashed => 0u32,
            Keys::Plain => 1,
        };
        let mut header =
            [&MAGIC[..], &VERSION.to_le_bytes(), &keys.to_le_bytes(), &began_unix_us.to_le_bytes()].concat();
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        debug_assert_eq!(header.len(), HEADER_BYTES);
        out.write_all(&header)?;
        Ok(Writer { out, records: 0, bytes: header.len() as u64 })
    }

    /// Writes records.
    ///
    /// # Errors
    /// As [`begin`](Writer::begin).
    pub fn write(&mut self, mut records: Records) -> io::Result<()> {
        records.end_frame();
        let mut begin = 0;
        for (end, count) in records.frames {
            self.frame(&records.bytes[begin..end], count)?;
            self.records += u64::from(count);
            begin = end;
        }
        Ok(())
    }

    /// Returns the bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of records written.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Ends the trace. `lost` is the number of requests for which there was no room.
    ///
    /// # Errors
    /// As [`begin`](Writer::begin).
    pub fn end(mut self, lost: u64, duration: Duration) -> io::Result<W> {
        let fields = [self.records, lost, duration.as_micros() as u64];
        self.frame(&fields.map(u64::to_le_bytes).concat(), 0)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn frame(&mut self, contents: &[u8], records: u32) -> io::Result<()> {
        let head = [(contents.len() as u32).to_le_bytes(), records.to_le_bytes()].concat();
        let checksum = frame_checksum(&head, contents).to_le_bytes();
        self.out.write_all(&[&head[..], &checksum].concat())?;
        self.out.write_all(contents)?;
        self.bytes += (head.len() + checksum.len() + contents.len()) as u64;
        Ok(())
    }
}
