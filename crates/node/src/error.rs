//! Why a call got no answer, as a value that travels.
//!
//! An error of the other end's volume arrives as the [`situ_storage::Error`] that it was there. What only the protocol
//! knows (a file that is not open, a lease that is another's) has a variant of its own: the client acts on it.

use crate::fields::{Field, Fields};
use situ_storage::{Corruption, Error, Result};
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Why a call got no answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CallError {
    /// The other end did what was asked, and that failed.
    Storage(Error),
    /// The other end does not know the writer, the open file or the task: it has restarted, or the session has ended.
    Unknown(String),
    /// Another host has the right to write by now.
    Fenced(String),
    /// The other end does not know the operation.
    Unsupported(String),
    /// Not now: too much is under way.
    Busy(String),
    /// The greeting failed: version, secret, store.
    Refused(String),
    /// No answer came in time. What was asked may be done or not.
    TimedOut {
        /// The node that did not answer.
        node: String,
        /// The time for which the caller waited.
        after: Duration,
    },
    /// The connection is lost. What was asked may be done or not.
    Lost {
        /// The node at the other end.
        node: String,
        /// The reason of the loss.
        why: String,
    },
}

/// Codes of errors in a payload.
pub mod code {
    /// [`Error::Io`](situ_storage::Error::Io).
    pub const IO: u8 = 1;
    /// [`Error::NoSpace`](situ_storage::Error::NoSpace).
    pub const NO_SPACE: u8 = 2;
    /// [`Error::Corruption`](situ_storage::Error::Corruption).
    pub const CORRUPTION: u8 = 3;
    /// [`Error::Locked`](situ_storage::Error::Locked).
    pub const LOCKED: u8 = 4;
    /// [`Error::NotFound`](situ_storage::Error::NotFound).
    pub const NOT_FOUND: u8 = 5;
    /// [`Error::NotInMemory`](situ_storage::Error::NotInMemory).
    pub const NOT_IN_MEMORY: u8 = 6;
    /// [`Error::Invalid`](situ_storage::Error::Invalid).
    pub const INVALID: u8 = 7;
    /// [`CallError::Unknown`](super::CallError::Unknown).
    pub const UNKNOWN: u8 = 32;
    /// [`CallError::Fenced`](super::CallError::Fenced).
    pub const FENCED: u8 = 33;
    /// [`CallError::Unsupported`](super::CallError::Unsupported).
    pub const UNSUPPORTED: u8 = 34;
    /// [`CallError::Busy`](super::CallError::Busy).
    pub const BUSY: u8 = 35;
    /// [`CallError::Refused`](super::CallError::Refused).
    pub const REFUSED: u8 = 36;
}

/// The kinds of I/O errors that travel, with their codes. Others travel as `Other`, with their words.
pub const IO_KINDS: [(u8, ErrorKind); 16] = [
    (0, ErrorKind::Other),
    (1, ErrorKind::NotFound),
    (2, ErrorKind::PermissionDenied),
    (3, ErrorKind::AlreadyExists),
    (4, ErrorKind::InvalidInput),
    (5, ErrorKind::InvalidData),
    (6, ErrorKind::TimedOut),
    (7, ErrorKind::Interrupted),
    (8, ErrorKind::Unsupported),
    (9, ErrorKind::UnexpectedEof),
    (10, ErrorKind::OutOfMemory),
    (11, ErrorKind::ReadOnlyFilesystem),
    (12, ErrorKind::ConnectionAborted),
    (13, ErrorKind::WriteZero),
    (14, ErrorKind::IsADirectory),
    (15, ErrorKind::NotADirectory),
];

/// The verbs of operations, which an [`Error`] holds as `&'static str`.
const VERBS: [&str; 22] = [
    "append",
    "close",
    "complete",
    "create",
    "flush",
    "list",
    "lock",
    "open",
    "open a queue of",
    "open for direct I/O",
    "read",
    "remove",
    "rename",
    "replace",
    "reserve",
    "reserve room for",
    "reserve room for the catalogue of",
    "start thread",
    "sync",
    "write",
    "write the catalogue of",
    "write the metadata journal of",
];

impl CallError {
    /// Returns true if the same request may be answered on a new connection.
    pub fn is_lost(&self) -> bool {
        matches!(self, CallError::Lost { .. } | CallError::TimedOut { .. })
    }

    /// Returns the description of the error, without the node's name where that is known anyway.
    pub fn words(&self) -> String {
        match self {
            CallError::Lost { why, .. } => why.clone(),
            other => other.to_string(),
        }
    }

    /// Converts it to an error of a file that the caller knows by `path`, not by the path that it has at the other end.
    pub fn about(self, op: &'static str, path: &str) -> Error {
        let path = path.to_owned();
        match self {
            CallError::Storage(Error::Io { op, source, .. }) => Error::Io { op, path, source },
            CallError::Storage(Error::NoSpace { op, .. }) => Error::NoSpace { op, path },
            CallError::Storage(Error::NotFound { .. }) => Error::NotFound { path },
            CallError::Storage(Error::Corruption(rot)) => {
                Error::Corruption(Box::new(Corruption { file: path, ..*rot }))
            }
            other => other.into_storage(op, &path),
        }
    }

    /// Converts it to an error of what was tried with a file.
    pub fn into_storage(self, op: &'static str, path: &str) -> Error {
        let kind = match &self {
            CallError::Storage(_) => return self.into(),
            CallError::Fenced(why) => return Error::Locked { path: path.to_owned(), why: Some(why.clone()) },
            CallError::TimedOut { .. } => ErrorKind::TimedOut,
            CallError::Refused(_) => ErrorKind::PermissionDenied,
            CallError::Unsupported(_) => ErrorKind::Unsupported,
            CallError::Unknown(_) | CallError::Busy(_) | CallError::Lost { .. } => ErrorKind::ConnectionAborted,
        };
        Error::io(op, path, io::Error::new(kind, self.to_string()))
    }

    /// Returns the payload of an answer that is an error.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut words = |code: u8, text: &String| {
            code.put(&mut out);
            text.put(&mut out);
        };
        match self {
            CallError::Storage(error) => put_storage(error, &mut out),
            CallError::Unknown(text) => words(code::UNKNOWN, text),
            CallError::Fenced(text) => words(code::FENCED, text),
            CallError::Unsupported(text) => words(code::UNSUPPORTED, text),
            CallError::Busy(text) => words(code::BUSY, text),
            CallError::Refused(text) => words(code::REFUSED, text),
            // The caller of the caller: to this one, it is an operation that failed.
            CallError::TimedOut { .. } | CallError::Lost { .. } => {
                put_storage(&Error::from(self.clone()), &mut out);
            }
        }
        out
    }

    /// Decodes the error in the payload of an answer. Bytes that are none are an error, too: the one that says so.
    pub fn decode(payload: &[u8]) -> CallError {
        decode(payload).unwrap_or_else(CallError::Storage)
    }
}

fn decode(payload: &[u8]) -> Result<CallError> {
    let mut fields = Fields::of("an error", payload);
    let code = u8::take(&mut fields, "code")?;
    let error = match code {
        code::UNKNOWN => CallError::Unknown(Field::take(&mut fields, "text")?),
        code::FENCED => CallError::Fenced(Field::take(&mut fields, "text")?),
        code::UNSUPPORTED => CallError::Unsupported(Field::take(&mut fields, "text")?),
        code::BUSY => CallError::Busy(Field::take(&mut fields, "text")?),
        code::REFUSED => CallError::Refused(Field::take(&mut fields, "text")?),
        code => CallError::Storage(take_storage(code, &mut fields)?),
    };
    fields.end()?;
    Ok(error)
}

fn put_storage(error: &Error, out: &mut Vec<u8>) {
    let mut texts = |code: u8, texts: &[&String]| {
        code.put(out);
        texts.iter().for_each(|text| text.put(out));
    };
    match error {
        Error::Io { op, path, source } => {
            texts(code::IO, &[&(*op).to_owned(), path, &source.to_string()]);
            kind_code(source.kind()).put(out);
        }
        Error::NoSpace { op, path } => texts(code::NO_SPACE, &[&(*op).to_owned(), path]),
        Error::Corruption(rot) => {
            let Corruption { file, offset, what, expected, found } = &**rot;
            texts(code::CORRUPTION, &[file, what, expected, found]);
            offset.put(out);
        }
        Error::Locked { path, why } => {
            texts(code::LOCKED, &[path]);
            why.put(out);
        }
        Error::NotFound { path } => texts(code::NOT_FOUND, &[path]),
        Error::NotInMemory => texts(code::NOT_IN_MEMORY, &[]),
        Error::Invalid(text) => texts(code::INVALID, &[text]),
        // A variant that this protocol does not know yet travels by its words.
        other => texts(code::INVALID, &[&other.to_string()]),
    }
}

fn take_storage(code: u8, fields: &mut Fields<'_>) -> Result<Error> {
    let mut text = |name: &str| String::take(fields, name);
    Ok(match code {
        code::IO => {
            let (op, path, why) = (text("operation")?, text("file")?, text("reason")?);
            let kind = kind_of(u8::take(fields, "kind")?);
            let (op, why) = known_verb(&op, why);
            // Not by `Error::io`: the sender has told a full disk and a missing file apart already.
            Error::Io { op, path, source: std::sync::Arc::new(io::Error::new(kind, why)) }
        }
        code::NO_SPACE => Error::NoSpace { op: known_verb(&text("operation")?, String::new()).0, path: text("file")? },
        code::CORRUPTION => {
            let (file, what) = (text("file")?, text("structure")?);
            let (expected, found) = (text("expectation")?, text("finding")?);
            let offset = u64::take(fields, "offset")?;
            Error::Corruption(Box::new(Corruption { file, offset, what, expected, found }))
        }
        code::LOCKED => Error::Locked { path: text("file")?, why: Field::take(fields, "reason")? },
        code::NOT_FOUND => Error::NotFound { path: text("file")? },
        code::NOT_IN_MEMORY => Error::NotInMemory,
        code::INVALID => Error::Invalid(text("text")?),
        other => return Err(Error::corruption("a node's message", 0, "code of an error", "a known one", other)),
    })
}

/// A verb that this program does not know goes into the reason.
fn known_verb(op: &str, why: String) -> (&'static str, String) {
    match VERBS.iter().find(|verb| **verb == op) {
        Some(verb) => (verb, why),
        None => ("use", format!("{op}: {why}")),
    }
}

fn kind_code(kind: ErrorKind) -> u8 {
    IO_KINDS.iter().find(|(_, known)| *known == kind).map_or(0, |(code, _)| *code)
}

fn kind_of(code: u8) -> ErrorKind {
    IO_KINDS.iter().find(|(known, _)| *known == code).map_or(ErrorKind::Other, |(_, kind)| *kind)
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        CallError::Storage(error)
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Error {
        match error {
            CallError::Storage(error) => error,
            other => other.into_storage("ask", "a node"),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Storage(error) => error.fmt(f),
            CallError::Unknown(text)
            | CallError::Fenced(text)
            | CallError::Unsupported(text)
            | CallError::Busy(text)
            | CallError::Refused(text) => f.write_str(text),
            CallError::TimedOut { node, after } => {
                write!(f, "{node} has not answered for {:.1} s", after.as_secs_f64())
            }
            CallError::Lost { node, why } => write!(f, "the connection to {node} is lost: {why}"),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CallError::Storage(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
