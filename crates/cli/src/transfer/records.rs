//! Reading records from JSON lines, CSV and TSV, with positions to go on from.
//!
//! A record that cannot be read is a value with a reason, not an error: the reader stands behind it and goes on. Where
//! a reader stands is a byte offset, at which a new reader can begin.
//!
//! CSV and TSV are RFC 4180 with any bytes inside fields. A first row `key,value` is a header; `key_hex`, `key_base64`
//! and the same for `value` say how all rows are encoded. Without a header, the columns are key and value as they are.
//! A record may say when its entry expires: in a field `expires_ms`, or in a third column of this name, which may be empty.
//! A quote that is still open where the input ends makes its record a bad one: the rest of the value is missing.

use crate::options::Format;
use crate::text::{EXPIRES_MS, Encoding};
use csv::ByteRecord;
use serde::Deserialize;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// A JSON line, or a CSV record, may be this long: the longest value in hexadecimal, with room.
const RECORD_BYTES_MAX: u64 = (2 << 30) + (1 << 20);

/// Some programs begin text files with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// What a reader reads from; only files can be positioned.
pub(crate) enum Input {
    File(std::fs::File),
    Stdin(io::Stdin),
    /// Bytes in memory, so many at a time, as a pipe would give them.
    #[cfg(any(test, feature = "fuzzing"))]
    Pieces(io::Cursor<Vec<u8>>, usize),
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::File(file) => file.read(into),
            Input::Stdin(stdin) => stdin.lock().read(into),
            #[cfg(any(test, feature = "fuzzing"))]
            Input::Pieces(bytes, at_most) => bytes.take(*at_most as u64).read(into),
        }
    }
}

/// What a CSV parser is in the middle of.
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

/// Passes the input to the CSV parser and keeps track of what the parser does not tell: it takes a quote that is never
/// closed for one that is closed at the end, and a record to begin with the rest of the line end before it.
///
/// The parser would skip a byte order mark wherever it begins, also in the middle of a file, but only one in the first
/// piece that it gets. So the mark is taken away here, and that piece is a single byte.
pub(crate) struct Quotes {
    input: Input,
    /// What was read in search of a byte order mark, and is none.
    front: Vec<u8>,
    delimiter: u8,
    within: Within,
    begun: bool,
    ended: bool,
    /// Bytes that were passed on.
    passed: u64,
    /// So many of them lie before the record at hand.
    before_record: u64,
    record_bytes_max: u64,
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

    /// True if the input has ended in a field whose quote was not closed.
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
        // The parser would gather all the rest of a file behind a quote that is never closed.
        if self.within != Within::Lines && self.passed - self.before_record > self.record_bytes_max {
            let line = self.lines.back().copied().unwrap_or(self.line);
            return Err(too_long(line, "is a quote there never closed?"));
        }
        Ok(read)
    }
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
    /// When the entry expires, in milliseconds since 1970; none: never.
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

/// What the columns of a file with a header are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    /// Of key and value.
    encodings: [Encoding; 2],
    /// There is a third one, with the expiry.
    has_expiry: bool,
}

impl Columns {
    /// Of a file without a header.
    const PLAIN: Columns = Columns { encodings: [Encoding::Text; 2], has_expiry: false };
}

/// Reads records of one format.
pub(crate) enum Records {
    Json { input: BufReader<Input>, place: Place, line: Vec<u8> },
    Csv { reader: Box<csv::Reader<Quotes>>, base: Place, columns: Columns, record: ByteRecord },
}

impl Records {
    /// Begins at `start`. `input` is positioned there already, if it is not the beginning.
    pub(crate) fn new(mut input: Input, format: Format, start: Place) -> io::Result<Records> {
        let delimiter = match format {
            Format::Jsonl => {
                seek(&mut input, start)?;
                return Ok(Records::Json {
                    input: BufReader::with_capacity(256 << 10, input),
                    place: start,
                    line: Vec::new(),
                });
            }
            Format::Csv => b',',
            Format::Tsv => b'\t',
        };
        let builder = |quotes| {
            let mut builder = csv::ReaderBuilder::new();
            builder.has_headers(false).flexible(true).delimiter(delimiter).buffer_capacity(256 << 10);
            Box::new(builder.from_reader(quotes))
        };
        let mut quotes = Quotes::new(input, delimiter, Place::START.line);
        let base = Place { offset: quotes.skip_mark()?, ..Place::START };
        let mut reader = builder(quotes);
        let mut record = ByteRecord::new();
        let mut columns = Columns::PLAIN;
        let more = reader.read_byte_record(&mut record).map_err(io::Error::other)?;
        let header = match reader.get_ref().left_open() {
            true => None,
            false => header(&record),
        };
        if let Some(found) = header {
            columns = found;
        }
        if start.offset > 0 {
            // The header has been read for what it says; the rest begins elsewhere.
            let mut input = reader.into_inner().input;
            seek(&mut input, start)?;
            return Ok(Records::Csv {
                reader: builder(Quotes::new(input, delimiter, start.line)),
                base: start,
                columns,
                record: ByteRecord::new(),
            });
        }
        if header.is_some() {
            reader.get_mut().lines.pop_front();
        }
        if header.is_some() || !more {
            record.clear();
        }
        Ok(Records::Csv { reader, base, columns, record })
    }

    /// The next record; `None` at the end.
    pub(crate) fn read(&mut self) -> io::Result<Option<Numbered>> {
        match self {
            Records::Json { input, place, line } => loop {
                line.clear();
                let read = input.by_ref().take(RECORD_BYTES_MAX).read_until(b'\n', line)?;
                if read == 0 {
                    return Ok(None);
                }
                if read as u64 == RECORD_BYTES_MAX && line.last() != Some(&b'\n') {
                    return Err(too_long(place.line, "does it hold one object alone?"));
                }
                let number = place.line;
                place.offset += read as u64;
                place.line += 1;
                let text = match number {
                    1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
                    _ => line,
                };
                let text = text.trim_ascii();
                if !text.is_empty() {
                    return Ok(Some(Numbered::new(number, from_json(text))));
                }
            },
            Records::Csv { reader, columns, record, .. } => {
                // The first row has been read already if it was no header.
                if record.is_empty() && !reader.read_byte_record(record).map_err(io::Error::other)? {
                    return Ok(None);
                }
                let line = reader.get_mut().lines.pop_front();
                let line = line.ok_or_else(|| io::Error::other("the parser found a record where none begins"))?;
                // The parser learns of the end of the input with the last record only.
                let found =
                    match reader.get_ref().left_open() {
                        true => Err("a quote is opened here and never closed: the file was cut, or a quote is missing"
                            .to_owned()),
                        false => from_row(record, columns),
                    };
                record.clear();
                Ok(Some(Numbered::new(line, found)))
            }
        }
    }

    /// Whether records have begun that were not given yet: at the end, a sign that lines were counted wrongly.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn promises_more(&self) -> bool {
        matches!(self, Records::Csv { reader, .. } if !reader.get_ref().lines.is_empty())
    }

    /// Where the next record begins.
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

fn too_long(line: u64, hint: &str) -> io::Error {
    io::Error::other(format!("the record that begins in line {line} has more than 2 GiB: {hint}"))
}

fn seek(input: &mut Input, start: Place) -> io::Result<()> {
    match input {
        Input::File(file) if start.offset > 0 => file.seek(SeekFrom::Start(start.offset)).map(drop),
        #[cfg(any(test, feature = "fuzzing"))]
        Input::Pieces(bytes, _) => bytes.seek(SeekFrom::Start(start.offset)).map(drop),
        _ => Ok(()),
    }
}

/// A JSON object's fields. Anything else is refused: a value in a field that nobody reads would be lost in silence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRecord {
    key: Option<String>,
    key_base64: Option<String>,
    key_hex: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
    value_hex: Option<String>,
    expires_ms: Option<u64>,
}

fn from_json(line: &[u8]) -> Result<(Record, Option<u64>), String> {
    // An array would be taken for the fields in their order.
    if line.first() != Some(&b'{') {
        return Err(r#"not a record: expected an object such as {"key":"ada","value":"1815"}"#.to_owned());
    }
    let record: JsonRecord = serde_json::from_slice(line).map_err(|error| {
        // The line's number is ours; the parser only ever sees line 1.
        format!("not a record: {}", error.to_string().replace(" at line 1 column ", ", column "))
    })?;
    let key = one_of("key", record.key, record.key_base64, record.key_hex)?;
    let value = one_of("value", record.value, record.value_base64, record.value_hex)?;
    Ok(((key, value), record.expires_ms))
}

fn one_of(name: &str, text: Option<String>, base64: Option<String>, hex: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64, hex) {
        (Some(text), None, None) => Ok(text.into_bytes()),
        (None, Some(text), None) => {
            Encoding::Base64.decode(text.as_bytes()).map_err(|why| format!("{name}_base64: {why}"))
        }
        (None, None, Some(text)) => Encoding::Hex.decode(text.as_bytes()).map_err(|why| format!("{name}_hex: {why}")),
        (None, None, None) => Err(format!("no {name}: expected one of {name}, {name}_base64 and {name}_hex")),
        _ => Err(format!("more than one of {name}, {name}_base64 and {name}_hex")),
    }
}

/// What a header says of the columns; `None` if the row is no header.
fn header(row: &ByteRecord) -> Option<Columns> {
    let column = |at: usize, name: &str| {
        let suffix = row.get(at)?.strip_prefix(name.as_bytes())?;
        [Encoding::Text, Encoding::Hex, Encoding::Base64].into_iter().find(|e| e.suffix().as_bytes() == suffix)
    };
    let has_expiry = row.get(2) == Some(EXPIRES_MS.as_bytes());
    if row.len() != 2 + usize::from(has_expiry) {
        return None;
    }
    Some(Columns { encodings: [column(0, "key")?, column(1, "value")?], has_expiry })
}

fn from_row(row: &ByteRecord, columns: &Columns) -> Result<(Record, Option<u64>), String> {
    let Columns { encodings, has_expiry } = *columns;
    match (has_expiry, row.len()) {
        (false, 2) | (true, 3) => {}
        (false, found) => return Err(format!("expected 2 columns, key and value, found {found}")),
        (true, found) => return Err(format!("expected 3 columns, key, value and {EXPIRES_MS}, found {found}")),
    }
    let expires_ms = match row.get(2).filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(milliseconds(text)?),
    };
    let field = |at: usize, name: &str| {
        encodings[at].decode(row.get(at).unwrap_or_default()).map_err(|why| format!("{name}: {why}"))
    };
    Ok(((field(0, "key")?, field(1, "value")?), expires_ms))
}

fn milliseconds(text: &[u8]) -> Result<u64, String> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        format!("{EXPIRES_MS}: expected milliseconds since 1970, found {:?}", text.escape_ascii().to_string())
    })
}

#[cfg(test)]
mod tests;
