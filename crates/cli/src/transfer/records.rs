//! Reading records from JSON lines, CSV and TSV, with positions to go on from.
//!
//! A record that cannot be read is a value with a reason, not an error: the reader stands behind it and goes on. Where
//! a reader stands is a byte offset, at which a new reader can begin.
//!
//! CSV and TSV follow RFC 4180, with any bytes inside fields. The first row is a header, whose names decide which
//! columns are key and value ([`columns`]). With `--no-header`, the first row is an entry, and the two columns are key
//! and value. A quote that is still open where the input ends makes its record a bad one: the rest of the value is
//! missing.
//!
//! A record may have an expiration time in a field or column `expires_ms`, which may be empty.

mod columns;
mod json;

use super::packed::Input;
use super::sink::io_error;
use crate::options::{Format, Layout};
use crate::text::{self, Encoding};
use columns::Columns;
use csv::ByteRecord;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

/// A JSON line, or a CSV record, may be this long: the longest value in hexadecimal, with room.
const RECORD_BYTES_MAX: u64 = (2 << 30) + (1 << 20);

const BUFFER_BYTES: usize = 256 << 10;

/// Shorter records find memory without a check.
const CHECKED_BYTES: usize = 1 << 20;

/// Some programs begin text files with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// The names that a dump gives to a field or column.
struct Own {
    kind: &'static str,
    names: [(&'static str, Encoding); 3],
}

const KEY: Own =
    Own { kind: "key", names: [("key", Encoding::Text), ("key_base64", Encoding::Base64), ("key_hex", Encoding::Hex)] };
const VALUE: Own = Own {
    kind: "value",
    names: [("value", Encoding::Text), ("value_base64", Encoding::Base64), ("value_hex", Encoding::Hex)],
};

impl Own {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.iter().map(|(name, _)| *name)
    }

    fn has(&self, name: &str) -> bool {
        self.names().any(|own| own == name)
    }

    /// Returns the encoding that a field name indicates. Other names than ours indicate none.
    fn encoding(&self, name: &str) -> Encoding {
        self.names.iter().find(|(own, _)| *own == name).map_or(Encoding::Text, |(_, encoding)| *encoding)
    }

    /// `key, key_base64 and key_hex`.
    fn alternatives(&self, word: &str) -> String {
        let [first, second, last] = self.names.map(|(name, _)| name);
        format!("{first}, {second} {word} {last}")
    }
}

fn decode(encoding: Encoding, text: &[u8], name: &str) -> Result<Vec<u8>, String> {
    encoding.decode(text).map_err(|why| format!("{name}: {why}"))
}

/// # Errors
/// More than one of these has the name.
fn one_name(found: usize, what: &str, name: &str) -> Result<(), String> {
    match found {
        0 | 1 => Ok(()),
        _ => Err(format!("more than one of the {what} is called {name:?}")),
    }
}

/// The state of a CSV parser within its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Nothing: a record begins with the next byte that ends no line.
    Lines,
    /// A record: a field begins here.
    Start,
    Field,
    /// A field in quotes.
    Quoted,
    /// The same, behind a quote: it is the last one, or the first of two.
    Quote,
}

/// Passes the input to the CSV parser and keeps track of two facts that the parser hides. The parser takes a quote that
/// is never closed for one that is closed at the end. It lets a record begin with the rest of the line end before it.
///
/// The parser would skip a byte order mark wherever it begins, also in the middle of a file, but only one in the first
/// piece that it gets. So the mark is taken away here, and that piece is a single byte.
pub(crate) struct Quotes {
    input: Input,
    /// The bytes that were read in search of a byte order mark, and are none.
    front: Vec<u8>,
    delimiter: u8,
    within: Within,
    begun: bool,
    ended: bool,
    /// Bytes that were passed on.
    passed: u64,
    /// The number of these bytes before the record at hand.
    before_record: u64,
    record_bytes_max: u64,
    /// The record at hand may have this length before memory is checked again.
    checked_bytes: u64,
    /// The number of the line at hand.
    line: u64,
    /// The numbers of the first lines of records, from the next one that the parser gives.
    lines: VecDeque<u64>,
}

impl Quotes {
    /// Begins at a line of this number.
    fn new(input: Input, delimiter: u8, line: u64) -> Quotes {
        Quotes {
            input,
            front: Vec::new(),
            delimiter,
            within: Within::Lines,
            begun: false,
            ended: false,
            passed: 0,
            before_record: 0,
            record_bytes_max: RECORD_BYTES_MAX,
            checked_bytes: CHECKED_BYTES as u64,
            line,
            lines: VecDeque::new(),
        }
    }

    /// Takes a byte order mark away; how many bytes that were.
    fn skip_mark(&mut self) -> io::Result<u64> {
        self.input.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut self.front)?;
        if self.front != BYTE_ORDER_MARK {
            return Ok(0);
        }
        self.front.clear();
        Ok(BYTE_ORDER_MARK.len() as u64)
    }

    /// Returns true if the input has ended in a field whose quote was not closed.
    fn left_open(&self) -> bool {
        self.ended && self.within == Within::Quoted
    }
}

impl Read for Quotes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = if self.begun { into.len() } else { into.len().min(1) };
        let into = into.get_mut(..room).unwrap_or_default();
        let read = match self.front.is_empty() {
            true => self.input.read(into)?,
            false => self.front.as_slice().read(into)?,
        };
        self.front.drain(..read.min(self.front.len()));
        let bytes = into.get(..read).unwrap_or_default();
        self.ended |= bytes.is_empty() && !into.is_empty();
        self.begun |= !bytes.is_empty();
        for (at, byte) in bytes.iter().enumerate() {
            if self.within == Within::Lines && !matches!(byte, b'\n' | b'\r') {
                self.within = Within::Start;
                self.before_record = self.passed + at as u64;
                self.checked_bytes = CHECKED_BYTES as u64;
                self.lines.push_back(self.line);
            }
            self.line += u64::from(*byte == b'\n');
            self.within = match (self.within, byte) {
                (Within::Start | Within::Quote, b'"') => Within::Quoted,
                (Within::Quoted, b'"') => Within::Quote,
                (Within::Quoted, _) => Within::Quoted,
                (_, b'\n' | b'\r') => Within::Lines,
                (_, byte) if *byte == self.delimiter => Within::Start,
                _ => Within::Field,
            };
        }
        self.passed += read as u64;
        if self.within == Within::Lines {
            return Ok(read);
        }
        let (record_bytes, line) = (self.passed - self.before_record, self.lines.back().copied().unwrap_or(self.line));
        // The parser would gather all the rest of a file behind a quote that is never closed.
        if record_bytes > self.record_bytes_max {
            return Err(too_long(line, "is a quote there never closed?"));
        }
        if record_bytes > self.checked_bytes {
            // The parser doubles its buffer while the record doubles its length.
            require_memory(4 * record_bytes as usize, line)?;
            self.checked_bytes = 2 * record_bytes;
        }
        Ok(read)
    }
}

/// Checks that the system has `bytes` of memory for the record that begins in `line`. The parsers end the process if an
/// allocation fails.
fn require_memory(bytes: usize, line: u64) -> io::Result<()> {
    #[cfg(test)]
    if bytes > tests::MEMORY_BYTES.get() {
        return Err(no_memory(bytes, line));
    }
    if bytes < CHECKED_BYTES || Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    Err(no_memory(bytes, line))
}

fn no_memory(bytes: usize, line: u64) -> io::Error {
    let what = format!("the record that begins in line {line} needs {bytes} bytes of memory, and the system has less");
    io::Error::new(io::ErrorKind::OutOfMemory, what)
}

/// A place between two records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Bytes before it.
    pub(crate) offset: u64,
    /// The number of the line in which it lies, the first being 1. Behind a CSV record that ends in `\r\n` it lies
    /// between the two.
    pub(crate) line: u64,
}

impl Place {
    pub(crate) const START: Place = Place { offset: 0, line: 1 };
}

/// One record, or why it is none, with the number of its first line.
pub(crate) struct Numbered {
    pub(crate) line: u64,
    pub(crate) record: Result<Record, String>,
    /// The expiry of the entry, in milliseconds since 1970; none: never.
    pub(crate) expires_ms: Option<u64>,
}

impl Numbered {
    fn new(line: u64, read: Result<(Record, Option<u64>), String>) -> Numbered {
        let (record, expires_ms) = match read {
            Ok((record, expires_ms)) => (Ok(record), expires_ms),
            Err(why) => (Err(why), None),
        };
        Numbered { line, record, expires_ms }
    }
}

/// A reason why no record of a file can be read.
pub(crate) enum Unreadable {
    Input(io::Error),
    /// The first row of a CSV or TSV file does not name the columns of key and value. Has its line number.
    Header {
        line: u64,
        why: String,
        shown: String,
    },
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Unreadable {
        Unreadable::Input(error)
    }
}

/// Maximum width of a header in an error message, in columns.
const HEADER_COLUMNS: usize = 200;

/// Reads records of one format.
pub(crate) enum Records {
    Json { input: BufReader<Input>, layout: Layout, place: Place, line: Vec<u8> },
    Csv { reader: Box<csv::Reader<Quotes>>, base: Place, columns: Columns, record: ByteRecord },
}

impl Records {
    /// Opens a reader at the first record. Reads the header of CSV and TSV.
    pub(crate) fn new(input: Input, format: Format, layout: &Layout) -> Result<Records, Unreadable> {
        let delimiter = match format {
            Format::Jsonl => {
                let input = BufReader::with_capacity(BUFFER_BYTES, input);
                return Ok(Records::Json { input, layout: layout.clone(), place: Place::START, line: Vec::new() });
            }
            Format::Csv => b',',
            Format::Tsv => b'\t',
        };
        let mut quotes = Quotes::new(input, delimiter, Place::START.line);
        let base = Place { offset: quotes.skip_mark()?, ..Place::START };
        let mut reader = parser(quotes);
        let columns = if layout.no_header { Columns::plain() } else { header(&mut reader, layout, delimiter)? };
        Ok(Records::Csv { reader, base, columns, record: ByteRecord::new() })
    }

    /// Restarts at the place of an earlier reader of the same file.
    ///
    /// # Errors
    /// The input is not a file, or it cannot be read.
    pub(crate) fn restart_at(self, start: Place) -> io::Result<Records> {
        Ok(match self {
            Records::Json { input, layout, line, .. } => {
                let input = input.into_inner().restart_at(start.offset)?;
                Records::Json { input: BufReader::with_capacity(BUFFER_BYTES, input), layout, place: start, line }
            }
            Records::Csv { reader, columns, record, .. } => {
                let Quotes { input, delimiter, .. } = reader.into_inner();
                let quotes = Quotes::new(input.restart_at(start.offset)?, delimiter, start.line);
                Records::Csv { reader: parser(quotes), base: start, columns, record }
            }
        })
    }

    /// Returns the next record; `None` at the end.
    pub(crate) fn read(&mut self) -> io::Result<Option<Numbered>> {
        match self {
            Records::Json { input, layout, place, line } => loop {
                let number = place.line;
                read_line(input, line, number)?;
                if line.is_empty() {
                    return Ok(None);
                }
                place.offset += line.len() as u64;
                place.line += 1;
                let text = match number {
                    1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
                    _ => line,
                };
                let text = text.trim_ascii();
                if !text.is_empty() {
                    require_memory(2 * text.len(), number)?;
                    return Ok(Some(Numbered::new(number, json::read(text, layout))));
                }
            },
            Records::Csv { reader, columns, record, .. } => {
                if !reader.read_byte_record(record).map_err(io_error)? {
                    return Ok(None);
                }
                let line = reader.get_mut().lines.pop_front();
                let line = line.ok_or_else(|| io::Error::other("the parser found a record where none begins"))?;
                require_memory(2 * record.as_slice().len(), line)?;
                // The parser learns of the end of the input with the last record only.
                let found = match reader.get_ref().left_open() {
                    true => Err(LEFT_OPEN.to_owned()),
                    false => columns.read(record),
                };
                Ok(Some(Numbered::new(line, found)))
            }
        }
    }

    /// Returns true if records have begun that were not returned yet: at the end, a sign that lines were counted
    /// wrongly.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn promises_more(&self) -> bool {
        matches!(self, Records::Csv { reader, .. } if !reader.get_ref().lines.is_empty())
    }

    /// Returns the place at which the next record begins.
    pub(crate) fn place(&self) -> Place {
        match self {
            Records::Json { place, .. } => *place,
            Records::Csv { reader, base, .. } => {
                let position = reader.position();
                Place { offset: base.offset + position.byte(), line: base.line + position.line() - 1 }
            }
        }
    }
}

/// Reads one line, with its end, into `line`. Leaves `line` empty at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>, number: u64) -> io::Result<()> {
    line.clear();
    loop {
        let more = line.len().max(CHECKED_BYTES);
        line.try_reserve(more).map_err(|_| no_memory(line.len() + more, number))?;
        let read = input.by_ref().take(more as u64).read_until(b'\n', line)?;
        if read < more || line.last() == Some(&b'\n') {
            return Ok(());
        }
        if line.len() as u64 > RECORD_BYTES_MAX {
            return Err(too_long(number, "does it hold one object alone?"));
        }
    }
}

fn too_long(line: u64, hint: &str) -> io::Error {
    io::Error::other(format!("the record that begins in line {line} has more than 2 GiB: {hint}"))
}

const LEFT_OPEN: &str = "a quote is opened here and never closed: the file was cut, or a quote is missing";

fn parser(quotes: Quotes) -> Box<csv::Reader<Quotes>> {
    let mut builder = csv::ReaderBuilder::new();
    builder.has_headers(false).flexible(true).delimiter(quotes.delimiter).buffer_capacity(BUFFER_BYTES);
    Box::new(builder.from_reader(quotes))
}

/// Reads the header. An empty file needs none.
fn header(reader: &mut csv::Reader<Quotes>, layout: &Layout, delimiter: u8) -> Result<Columns, Unreadable> {
    let mut row = ByteRecord::new();
    if !reader.read_byte_record(&mut row).map_err(io_error)? {
        return Ok(Columns::plain());
    }
    let line = reader.get_mut().lines.pop_front().unwrap_or(Place::START.line);
    let columns = match reader.get_ref().left_open() {
        true => Err(LEFT_OPEN.to_owned()),
        false => Columns::of_header(&row, layout),
    };
    columns.map_err(|why| {
        let shown = row.iter().collect::<Vec<_>>().join(&delimiter);
        Unreadable::Header { line, why, shown: text::shorten(&shown, HEADER_COLUMNS) }
    })
}

#[cfg(test)]
mod tests;
