//! The answers of a server, read from pieces of any size.
//!
//! An [`Answer`] is fed with the bytes that have come. It takes whole lines, and the bytes of values in pieces. What it
//! has not taken is offered again together with the bytes that follow. The bytes of a long value need not be offered:
//! [`gap`](Answer::gap) is the place where they belong, so that they are copied once.
//!
//! **Failure.** Bytes that do not belong to the command are a [`Garbled`]: the connection has lost its step, and must
//! be closed. A value of a key that was not asked for is such a case. An error answer of the server is a whole answer.
//! If it may have left a value to be read as a command, [`loses_step`](Answer::loses_step) is true.

use crate::item::{CasId, Item, VALUE_BYTES_MAX};

/// A longer line is no answer.
pub(crate) const LINE_BYTES_MAX: usize = 8 << 10;

/// Memory for a value grows in steps of this size or more as the bytes come: a length alone is not trusted.
const VALUE_STEP_BYTES: usize = 4 << 20;

/// More statistics are no answer.
const STATISTICS_MAX: usize = 1 << 16;

/// The bytes of an excerpt in an error.
const EXCERPT_BYTES: usize = 80;

/// The kinds of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One line of these.
    Words(&'static [Word]),
    /// The new number, or `NOT_FOUND`.
    Number,
    /// The line `VERSION`.
    Version,
    /// Values of some keys of the command, in its order.
    Values,
    /// Lines `STAT`, or one of `OK` and `RESET`.
    Statistics,
}

/// The lines without parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Stored,
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Touched,
    Ok,
}

impl Word {
    fn text(self) -> &'static [u8] {
        match self {
            Word::Stored => b"STORED",
            Word::NotStored => b"NOT_STORED",
            Word::Exists => b"EXISTS",
            Word::NotFound => b"NOT_FOUND",
            Word::Deleted => b"DELETED",
            Word::Touched => b"TOUCHED",
            Word::Ok => b"OK",
        }
    }
}

/// A value that the server has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The position of its key among the keys of the command.
    pub(crate) position: usize,
    pub(crate) item: Item,
    pub(crate) cas: Option<CasId>,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    Word(Word),
    Number(u64),
    Version(String),
    Values(Vec<Found>),
    Statistics(Vec<(String, String)>),
    /// An error of the server, with its line.
    Refused(String),
}

/// Bytes that are no answer to the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Garbled(pub(crate) String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Line,
    /// In a value: the bytes that are there, and the length.
    Value {
        filled: usize,
        length: usize,
    },
    /// At the end of line behind a value.
    ValueEnd,
    Done,
}

/// An answer that is being received.
#[derive(Debug)]
pub(crate) struct Answer {
    kind: Kind,
    state: State,
    first_key_at: usize,
    /// Where the keys not yet answered begin in the command, and how many were before.
    keys_at: usize,
    position: usize,
    found: Vec<Found>,
    statistics: Vec<(String, String)>,
    given: Option<Given>,
    /// Memory for the next value.
    room: Vec<u8>,
}

impl Answer {
    /// Expects an answer of this kind. The keys of the command begin at `keys_at`.
    pub(crate) fn new(kind: Kind, keys_at: usize) -> Answer {
        Answer {
            kind,
            state: State::Line,
            first_key_at: keys_at,
            keys_at,
            position: 0,
            found: Vec::new(),
            statistics: Vec::new(),
            given: None,
            room: Vec::new(),
        }
    }

    /// Forgets what has come, so that the command can be sent again.
    pub(crate) fn restart(&mut self) {
        *self = Answer { room: self.take_room(), ..Answer::new(self.kind, self.first_key_at) };
    }

    /// Gives memory for the first value.
    pub(crate) fn set_room(&mut self, room: Vec<u8>) {
        self.room = room;
    }

    /// Takes back the memory that no value has needed.
    pub(crate) fn take_room(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.room)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns the answer, once, if it is complete.
    pub(crate) fn take_given(&mut self) -> Option<Given> {
        self.given.take()
    }

    /// Returns true if the connection cannot be used after this answer: a command with a value (`has_value`) was
    /// refused, and the server may read the value as commands.
    pub(crate) fn loses_step(&self, has_value: bool) -> bool {
        let is_server_error = |line: &str| line.starts_with("SERVER_ERROR");
        has_value && matches!(&self.given, Some(Given::Refused(line)) if !is_server_error(line))
    }

    /// Takes a part of `bytes`, in answer to the line `command`, and returns its length. 0 asks for more bytes.
    pub(crate) fn take(&mut self, command: &[u8], bytes: &[u8]) -> Result<usize, Garbled> {
        match self.state {
            State::Done => Ok(0),
            State::Line => self.take_line(command, bytes),
            State::Value { .. } => {
                let Some(gap) = self.gap()? else { return Ok(0) };
                let length = gap.len().min(bytes.len());
                gap[..length].copy_from_slice(&bytes[..length]);
                self.fill(length);
                Ok(length)
            }
            State::ValueEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.state = State::Line;
                    Ok(2)
                }
                [] | [b'\r'] => Ok(0),
                _ => Err(garbled("a value does not end where it should", bytes)),
            },
        }
    }

    /// Returns the place of the next bytes of a value. They may be read into it directly; then call
    /// [`fill`](Answer::fill).
    pub(crate) fn gap(&mut self) -> Result<Option<&mut [u8]>, Garbled> {
        let State::Value { filled, length } = self.state else { return Ok(None) };
        let Some(Found { item, .. }) = self.found.last_mut() else { return Ok(None) };
        let value = &mut item.value;
        if value.len() == filled && filled < length {
            let wanted = length.min(filled.saturating_mul(2).max(VALUE_STEP_BYTES));
            if value.try_reserve_exact(wanted - filled).is_err() {
                return Err(Garbled(format!("there is no memory for a value of {length} bytes")));
            }
            value.resize(wanted, 0);
        }
        Ok(Some(&mut value[filled..]))
    }

    /// Counts `count` bytes that were read into the gap.
    pub(crate) fn fill(&mut self, count: usize) {
        if let State::Value { filled, length } = self.state {
            let filled = filled + count;
            assert!(filled <= length, "a value is no longer than its gap");
            self.state = if filled == length { State::ValueEnd } else { State::Value { filled, length } };
        }
    }

    fn take_line(&mut self, command: &[u8], bytes: &[u8]) -> Result<usize, Garbled> {
        let searched = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        let Some(end) = searched.iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() {
                ..LINE_BYTES_MAX => Ok(0),
                _ => Err(garbled("a line has no end", bytes)),
            };
        };
        let Some(line) = bytes[..end].strip_suffix(b"\r") else {
            return Err(garbled("a line ends without a carriage return", bytes));
        };
        self.understand(command, line)?;
        Ok(end + 1)
    }

    fn understand(&mut self, command: &[u8], line: &[u8]) -> Result<(), Garbled> {
        let is_error = |word: &[u8]| matches!(word, b"ERROR" | b"ERROR:" | b"CLIENT_ERROR" | b"SERVER_ERROR");
        if line.split(|byte| *byte == b' ').next().is_some_and(is_error) {
            self.end(Given::Refused(text(line)));
            return Ok(());
        }
        match self.kind {
            Kind::Words(words) => match words.iter().find(|word| word.text() == line) {
                Some(word) => self.end(Given::Word(*word)),
                None => return Err(garbled("the line is no answer to the command", line)),
            },
            Kind::Number if line == b"NOT_FOUND" => self.end(Given::Word(Word::NotFound)),
            // memcached pads the number of a `decr` in the item, not in the answer; others do there, too.
            Kind::Number => self.end(Given::Number(number(line.trim_ascii_end(), line)?)),
            Kind::Version => match line.strip_prefix(b"VERSION ") {
                Some(version) => self.end(Given::Version(text(version))),
                None => return Err(garbled("the line is no version", line)),
            },
            Kind::Values if line == b"END" => {
                let found = std::mem::take(&mut self.found);
                self.end(Given::Values(found));
            }
            Kind::Values => self.begin_value(command, line)?,
            Kind::Statistics if matches!(line, b"END" | b"OK" | b"RESET") => {
                let statistics = std::mem::take(&mut self.statistics);
                self.end(Given::Statistics(statistics));
            }
            Kind::Statistics => match line.strip_prefix(b"STAT ") {
                Some(_) if self.statistics.len() == STATISTICS_MAX => {
                    return Err(garbled("there is no end of statistics", line));
                }
                Some(rest) => {
                    let space = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
                    let value = rest.get(space + 1..).unwrap_or_default();
                    self.statistics.push((text(&rest[..space]), text(value)));
                }
                None => return Err(garbled("the line is no statistic", line)),
            },
        }
        Ok(())
    }

    fn end(&mut self, given: Given) {
        self.given = Some(given);
        self.state = State::Done;
    }

    /// Understands `VALUE <key> <flags> <bytes> [<cas id>]`.
    fn begin_value(&mut self, command: &[u8], line: &[u8]) -> Result<(), Garbled> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(b"VALUE"), Some(key), Some(flags), Some(length)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(garbled("the line is no answer to a retrieval", line));
        };
        let cas = words.next().map(|word| number(word, line).map(CasId)).transpose()?;
        let flags = u32::try_from(number(flags, line)?);
        let length = usize::try_from(number(length, line)?).ok().filter(|length| *length <= VALUE_BYTES_MAX);
        let (Ok(flags), Some(length), None) = (flags, length, words.next()) else {
            return Err(garbled("a number in the line is too large", line));
        };
        let Some(position) = self.find_key(command, key) else {
            return Err(garbled("the command has no such key", line));
        };
        let mut value = std::mem::take(&mut self.room);
        value.clear();
        self.found.push(Found { position, item: Item { value, flags }, cas });
        self.state = if length == 0 { State::ValueEnd } else { State::Value { filled: 0, length } };
        Ok(())
    }

    /// Returns the position of `key` among the keys not answered yet. Servers answer in the order of the command.
    fn find_key(&mut self, command: &[u8], key: &[u8]) -> Option<usize> {
        loop {
            let rest = command.get(self.keys_at..)?;
            let length = rest.iter().position(|byte| matches!(byte, b' ' | b'\r'))?;
            let position = self.position;
            self.keys_at += length + 1;
            self.position += 1;
            if &rest[..length] == key {
                return Some(position);
            }
        }
    }
}

/// Returns a fault with the beginning of the bytes that show it.
pub(crate) fn garbled(fault: &str, bytes: &[u8]) -> Garbled {
    let excerpt = &bytes[..bytes.len().min(EXCERPT_BYTES)];
    Garbled(format!("{fault}: \"{}\"", excerpt.escape_ascii()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(word: &[u8], line: &[u8]) -> Result<u64, Garbled> {
    let digits = word.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(word).ok()).flatten();
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| garbled("the line should have a number", line))
}

#[cfg(test)]
mod tests;
