//! Writing records as JSON lines, CSV and TSV, so that [`records`](super::records) reads the same bytes back.

use crate::options::Format;
use crate::text::{EXPIRES_MS, Encoding, JsonEntry};
use std::io::{self, Write};

/// Takes the records of one file.
pub(crate) struct Sink<'a> {
    encoding: Encoding,
    /// Rows have a column with the expiry.
    has_expiry: bool,
    to: To<'a>,
}

enum To<'a> {
    Json(&'a mut dyn Write),
    Csv(Box<csv::Writer<&'a mut dyn Write>>),
}

impl<'a> Sink<'a> {
    /// Begins a file; CSV and TSV have a header, which names the encoding. With `has_expiry`, they have a column for
    /// it.
    pub(crate) fn new(
        format: Format,
        encoding: Encoding,
        has_expiry: bool,
        to: &'a mut dyn Write,
    ) -> io::Result<Sink<'a>> {
        let delimiter = match format {
            Format::Jsonl => return Ok(Sink { encoding, has_expiry, to: To::Json(to) }),
            Format::Csv => b',',
            Format::Tsv => b'\t',
        };
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).buffer_capacity(64 << 10).from_writer(to);
        let name = |name: &str| format!("{name}{}", encoding.suffix());
        let expiry = has_expiry.then(|| EXPIRES_MS.to_owned());
        writer.write_record([name("key"), name("value")].into_iter().chain(expiry)).map_err(io_error)?;
        Ok(Sink { encoding, has_expiry, to: To::Csv(Box::new(writer)) })
    }

    pub(crate) fn write(&mut self, key: &[u8], value: &[u8], expires_ms: Option<u64>) -> io::Result<()> {
        let encoding = self.encoding;
        match &mut self.to {
            To::Json(to) => {
                serde_json::to_writer(&mut **to, &JsonEntry { key, value: Some(value), encoding, expires_ms })?;
                to.write_all(b"\n")
            }
            To::Csv(writer) => {
                let text = || expires_ms.map_or_else(Vec::new, |expires_ms| expires_ms.to_string().into_bytes());
                let expiry = self.has_expiry.then(text);
                let fields = [encoding.encode(key), encoding.encode(value)];
                writer.write_record(fields.into_iter().chain(expiry)).map_err(io_error)
            }
        }
    }

    /// Hands everything over.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self.to {
            To::Json(to) => to.flush(),
            To::Csv(mut writer) => writer.flush(),
        }
    }
}

/// Returns the system's error in a CSV error, so that a broken pipe is still known as one.
pub(super) fn io_error(error: csv::Error) -> io::Error {
    if !error.is_io_error() {
        return io::Error::other(error);
    }
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other("the entry cannot be written as CSV"),
    }
}
