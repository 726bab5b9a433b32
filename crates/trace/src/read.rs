//! Reading a trace.

use crate::error::{Error, Result};
use crate::format::{
    END_BYTES, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, HEADER_BYTES, Keys, MAGIC, Request, TRACE_BYTES_MAX, VERSION,
    frame_checksum, u32_at, u64_at,
};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// A whole trace, in memory.
pub struct Trace {
    keys: Keys,
    began_unix_us: u64,
    bytes: Vec<u8>,
    /// The offsets of the records, by their times.
    records: Vec<u32>,
    lost: u64,
    duration: Duration,
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no whole trace.
    pub fn open(path: &Path) -> Result<Trace> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        if bytes > TRACE_BYTES_MAX {
            return Err(Error::TooLong { bytes });
        }
        let mut contents = Vec::new();
        file.take(TRACE_BYTES_MAX).read_to_end(&mut contents)?;
        Trace::read(contents)
    }

    /// Reads the contents of a file.
    ///
    /// # Errors
    /// They are no whole trace.
    pub fn read(bytes: Vec<u8>) -> Result<Trace> {
        if bytes.len() as u64 > TRACE_BYTES_MAX {
            return Err(Error::TooLong { bytes: bytes.len() as u64 });
        }
        let (keys, began_unix_us) = header(&bytes)?;
        let mut trace = Trace { keys, began_unix_us, bytes, records: Vec::new(), lost: 0, duration: Duration::ZERO };
        let mut offset = HEADER_BYTES;
        loop {
            let (contents, records) = trace.frame(offset)?;
            let end = contents.end;
            if records == 0 {
                trace.take_end(offset, contents.start, end)?;
                break;
            }
            trace.take_records(contents, records)?;
            offset = end;
        }
        let bytes = &trace.bytes;
        trace.records.sort_by_key(|offset| u64_at(bytes, *offset as usize));
        Ok(trace)
    }

    /// Returns the contents of the frame at `offset`, and the number of its records.
    fn frame(&self, offset: usize) -> Result<(std::ops::Range<usize>, u32)> {
        let cut = || Error::Cut { offset: offset as u64 };
        let damaged = |what| Error::Damaged { offset: offset as u64, what };
        let head = self.bytes.get(offset..offset + FRAME_HEAD_BYTES).ok_or_else(cut)?;
        let length = u32_at(head, 0) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(damaged("a frame is too long"));
        }
        let begin = offset + FRAME_HEAD_BYTES;
        let contents = self.bytes.get(begin..begin + length).ok_or_else(cut)?;
        if frame_checksum(&head[..8], contents) != u32_at(head, 8) {
            return Err(damaged("the checksum of a frame is wrong"));
        }
        Ok((begin..begin + length, u32_at(head, 4)))
    }

    fn take_records(&mut self, contents: std::ops::Range<usize>, records: u32) -> Result<()> {
        let mut offset = contents.start;
        for _ in 0..records {
            let record = self.bytes.get(offset..contents.end).unwrap_or_default();
            let decoded = Request::decode(record, self.keys);
            let (_, length) = decoded.map_err(|what| Error::Damaged { offset: offset as u64, what })?;
            self.records.push(offset as u32);
            offset += length;
        }
        match offset == contents.end {
            true => Ok(()),
            false => Err(Error::Damaged { offset: offset as u64, what: "a frame has more than its records" }),
        }
    }

    fn take_end(&mut self, offset: usize, begin: usize, end: usize) -> Result<()> {
        let damaged = |what| Err(Error::Damaged { offset: offset as u64, what });
        if end - begin != END_BYTES {
            return damaged("the end has another length");
        }
        if self.bytes.len() != end {
            return damaged("there is something behind the end");
        }
        let contents = &self.bytes[begin..end];
        if u64_at(contents, 0) != self.records.len() as u64 {
            return damaged("the end counts other records");
        }
        self.lost = u64_at(contents, 8);
        self.duration = Duration::from_micros(u64_at(contents, 16));
        Ok(())
    }

    /// Returns the form of the keys.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    /// Returns the time of the beginning, in microseconds since 1970.
    pub fn began_unix_us(&self) -> u64 {
        self.began_unix_us
    }

    /// Returns the number of requests that the server had no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the time from the beginning of the recording to its end.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns true if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the requests by the times of their beginnings.
    pub fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        (0..self.len()).filter_map(|at| self.request(at))
    }

    /// Returns the request with this number, counted by the times of their beginnings; `None` behind the last.
    pub fn request(&self, number: usize) -> Option<Request<'_>> {
        let offset = *self.records.get(number)? as usize;
        // It was decoded when the trace was read.
        Request::decode(self.bytes.get(offset..)?, self.keys).ok().map(|(request, _)| request)
    }

    /// Puts the key with which a benchmark replays a request into `key`. Equal keys of clients get equal keys, of the
    /// same length, or of 11 bytes if that is shorter. They have letters, digits, `-` and `_` only, unless the trace
    /// has keys as they are.
    pub fn replayed_key(&self, request: &Request<'_>, key: &mut Vec<u8>) {
        const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
        const DIGITS_OF_HASH: usize = 11;
        key.clear();
        match self.keys {
            Keys::Plain => key.extend_from_slice(request.key),
            Keys::Hashed => {
                let hash = u64_at(request.key, 0);
                let digit = |at: usize| DIGITS[(hash >> (6 * at)) as usize % 64];
                key.extend((0..DIGITS_OF_HASH).map(digit));
                key.resize(usize::from(request.key_bytes).max(DIGITS_OF_HASH), b'-');
            }
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} requests in {:?})", self.len(), self.duration)
    }
}

fn header(bytes: &[u8]) -> Result<(Keys, u64)> {
    if !bytes.starts_with(&MAGIC) {
        return Err(Error::NoTrace);
    }
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Err(Error::Cut { offset: 0 }) };
    let version = u32_at(header, 8);
    if version != VERSION {
        return Err(Error::Version(version));
    }
    let damaged = |what| Error::Damaged { offset: 0, what };
    if crc32c::crc32c(&header[..HEADER_BYTES - 4]) != u32_at(header, HEADER_BYTES - 4) {
        return Err(damaged("the checksum of the header is wrong"));
    }
    let keys = match u32_at(header, 12) {
        0 => Keys::Hashed,
        1 => Keys::Plain,
        _ => return Err(damaged("the form of the keys is unknown")),
    };
    Ok((keys, u64_at(header, 16)))
}
