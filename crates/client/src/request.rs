//! Commands as bytes, each with the answer that it expects.

use crate::answer::{Answer, Kind, Word};
use crate::error::Error;
use crate::item::{Attributes, CasId};
use std::borrow::Cow;
use std::io::Write;
use std::time::SystemTime;

/// A line of several keys is no longer than this: memcached takes lines of 2 KiB from any client.
pub(crate) const KEYS_LINE_BYTES_MAX: usize = 2000;

/// A command, and its answer as far as it has come.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The line with its end.
    pub(crate) line: Vec<u8>,
    /// The value that follows, without its end of line.
    pub(crate) value: Option<Cow<'a, [u8]>>,
    pub(crate) answer: Answer,
    /// True if running the command twice does no harm.
    pub(crate) only_reads: bool,
}

/// The storage commands that take a value and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas(CasId),
}

impl Mode {
    fn name(self) -> &'static [u8] {
        match self {
            Mode::Set => b"set",
            Mode::Add => b"add",
            Mode::Replace => b"replace",
            Mode::Append => b"append",
            Mode::Prepend => b"prepend",
            Mode::Cas(_) => b"cas",
        }
    }

    fn words(self) -> &'static [Word] {
        match self {
            Mode::Set => &[Word::Stored],
            Mode::Cas(_) => &[Word::Stored, Word::Exists, Word::NotFound],
            // memcached answers NOT_STORED to a store into an item that another one has just changed.
            _ => &[Word::Stored, Word::NotStored],
        }
    }
}

impl Request<'_> {
    /// Returns the bytes of the command, the end of line of its value included.
    pub(crate) fn bytes(&self) -> usize {
        self.line.len() + self.value.as_ref().map_or(0, |value| value.len() + 2)
    }
}

fn changing(line: Vec<u8>, kind: Kind) -> Request<'static> {
    Request { line, value: None, answer: Answer::new(kind, 0), only_reads: false }
}

fn push_number(line: &mut Vec<u8>, number: impl std::fmt::Display) {
    // Writing to memory does not fail.
    let _ = write!(line, " {number}");
}

fn line_of(name: &[u8], key: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(name.len() + key.len() + 64);
    line.extend_from_slice(name);
    line.push(b' ');
    line.extend_from_slice(key);
    line
}

fn ended(mut line: Vec<u8>) -> Vec<u8> {
    line.extend_from_slice(b"\r\n");
    line
}

pub(crate) fn store<'a>(mode: Mode, key: &[u8], value: Cow<'a, [u8]>, attributes: Attributes) -> Request<'a> {
    let mut line = line_of(mode.name(), key);
    push_number(&mut line, attributes.flags);
    push_number(&mut line, attributes.expiry.number(SystemTime::now()));
    push_number(&mut line, value.len());
    if let Mode::Cas(CasId(cas)) = mode {
        push_number(&mut line, cas);
    }
    let answer = Answer::new(Kind::Words(mode.words()), 0);
    Request { line: ended(line), value: Some(value), answer, only_reads: false }
}

/// `get` or, with `with_cas`, `gets`.
pub(crate) fn get<'k>(keys: impl IntoIterator<Item = &'k [u8]>, with_cas: bool) -> Request<'static> {
    let mut line = if with_cas { b"gets".to_vec() } else { b"get".to_vec() };
    let keys_at = line.len() + 1;
    for key in keys {
        line.push(b' ');
        line.extend_from_slice(key);
    }
    Request { line: ended(line), value: None, answer: Answer::new(Kind::Values, keys_at), only_reads: true }
}

/// `gat`: a retrieval that also sets the expiry time.
pub(crate) fn get_and_touch(key: &[u8], expires: i32) -> Request<'static> {
    let mut line = b"gat".to_vec();
    push_number(&mut line, expires);
    let keys_at = line.len() + 1;
    line.push(b' ');
    line.extend_from_slice(key);
    Request { line: ended(line), value: None, answer: Answer::new(Kind::Values, keys_at), only_reads: false }
}

pub(crate) fn touch(key: &[u8], expires: i32) -> Request<'static> {
    let mut line = line_of(b"touch", key);
    push_number(&mut line, expires);
    changing(ended(line), Kind::Words(&[Word::Touched, Word::NotFound]))
}

pub(crate) fn delete(key: &[u8]) -> Request<'static> {
    changing(ended(line_of(b"delete", key)), Kind::Words(&[Word::Deleted, Word::NotFound]))
}

/// `incr` or `decr`.
pub(crate) fn count(key: &[u8], delta: u64, increment: bool) -> Request<'static> {
    let mut line = line_of(if increment { b"incr" } else { b"decr" }, key);
    push_number(&mut line, delta);
    changing(ended(line), Kind::Number)
}

/// `flush_all` at once, or at a time as the protocol has it.
pub(crate) fn flush_all(delay: i32) -> Request<'static> {
    let line = match delay {
        0 => b"flush_all\r\n".to_vec(),
        delay => format!("flush_all {delay}\r\n").into_bytes(),
    };
    changing(line, Kind::Words(&[Word::Ok]))
}

/// Refuses a topic that would end its line.
pub(crate) fn check_topic(topic: &str) -> Result<(), Error> {
    match topic.contains(char::is_control) {
        true => Err(Error::Option("the topic of statistics has a control character".to_owned())),
        false => Ok(()),
    }
}

/// `stats`, with a topic unless it is empty.
pub(crate) fn statistics(topic: &[u8]) -> Request<'static> {
    let line = if topic.is_empty() { b"stats".to_vec() } else { line_of(b"stats", topic) };
    // `stats reset` changes counters.
    let only_reads = topic != b"reset";
    Request { line: ended(line), value: None, answer: Answer::new(Kind::Statistics, 0), only_reads }
}

pub(crate) fn version() -> Request<'static> {
    let answer = Answer::new(Kind::Version, 0);
    Request { line: b"version\r\n".to_vec(), value: None, answer, only_reads: true }
}

/// Deals keys out to lines of a bounded length, and returns the first key of each line.
pub(crate) fn lines_of_keys<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut length = KEYS_LINE_BYTES_MAX;
    for (n, key) in keys.into_iter().enumerate() {
        length += key.len() + 1;
        if length > KEYS_LINE_BYTES_MAX {
            starts.push(n);
            length = key.len() + 1;
        }
    }
    starts
}
