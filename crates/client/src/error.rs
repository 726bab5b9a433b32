//! The errors of calls, and what each says about the server's state.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The effect of a failed call on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The call has changed nothing: it only reads, the server refused it, or no byte of it was sent.
    NotDone,
    /// The server may or may not have run the command: it was sent, at least in part, and no answer came.
    Unknown,
}

/// The reason for which a call failed. A miss is no error.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A key that memcached's text protocol cannot carry.
    Key {
        /// The fault, as the end of a sentence that begins with "the key".
        fault: &'static str,
    },
    /// An option or an address without meaning, with the cure.
    Option(String),
    /// An error answer of the server.
    Refused {
        /// The server.
        server: Arc<str>,
        /// The server's line, for example `SERVER_ERROR out of memory storing object`.
        answer: String,
    },
    /// A connection that could not be made, or broke before the answer was complete.
    Broken {
        /// The server.
        server: Arc<str>,
        /// The error of the system.
        source: Arc<io::Error>,
        /// The effect on the server.
        outcome: Outcome,
    },
    /// A deadline that passed before the answer was complete.
    Late {
        /// The server.
        server: Arc<str>,
        /// The time that the call had.
        timeout: Duration,
        /// The effect on the server.
        outcome: Outcome,
    },
    /// An answer that does not belong to the command. The client has closed the connection.
    Garbled {
        /// The server.
        server: Arc<str>,
        /// The fault, and an excerpt of the answer.
        fault: String,
        /// The effect on the server.
        outcome: Outcome,
    },
    /// A server to which no connection could be made lately. The client asks it again after a while.
    Down {
        /// The server.
        server: Arc<str>,
        /// The time until the client tries again.
        retry_after: Duration,
        /// The last failure.
        reason: Arc<str>,
    },
    /// A queue of asynchronous calls without room for one more.
    QueueFull {
        /// The server.
        server: Arc<str>,
        /// The calls in the queue.
        calls: usize,
    },
    /// A shortage of threads.
    System(Arc<io::Error>),
}

impl Error {
    /// Returns the effect of the failed call on the server.
    ///
    /// ```
    /// use situ_client::{Client, Options, Outcome};
    ///
    /// // Port 1 has no server.
    /// let client = Client::open(&Options::new(["127.0.0.1:1"])).unwrap();
    /// let error = client.set("key", "value", ()).unwrap_err();
    /// assert_eq!(error.outcome(), Outcome::NotDone);
    /// ```
    pub fn outcome(&self) -> Outcome {
        match self {
            Error::Broken { outcome, .. } | Error::Late { outcome, .. } | Error::Garbled { outcome, .. } => *outcome,
            _ => Outcome::NotDone,
        }
    }

    /// Returns the same error with another effect, if it has one.
    pub(crate) fn with_outcome(mut self, effect: Outcome) -> Error {
        if let Error::Broken { outcome, .. } | Error::Late { outcome, .. } | Error::Garbled { outcome, .. } = &mut self
        {
            *outcome = effect;
        }
        self
    }

    /// Returns true if the call failed because its server could not be reached. Another call may reach it later.
    ///
    /// ```
    /// # use situ_client::{Client, Options};
    /// let client = Client::open(&Options::new(["127.0.0.1:1"])).unwrap();
    /// assert!(client.get("key").unwrap_err().is_unreachable());
    /// assert!(!client.get("a key").unwrap_err().is_unreachable());
    /// ```
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Down { .. } | Error::Broken { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Key { fault } => write!(f, "the key {fault}"),
            Error::Option(text) => f.write_str(text),
            Error::Refused { server, answer } => write!(f, "{server} refused the command: {answer}"),
            Error::Broken { server, source, .. } => write!(f, "no connection to {server}: {source}"),
            Error::Late { server, timeout, .. } => write!(f, "no answer of {server} within {timeout:?}"),
            Error::Garbled { server, fault, .. } => write!(f, "{server} sent no memcached answer: {fault}"),
            Error::Down { server, retry_after, reason } => {
                write!(f, "{server} is down; the next attempt is in {retry_after:?}. The last failure: {reason}")
            }
            Error::QueueFull { server, calls } => {
                write!(f, "the queue of {server} is full: {calls} calls wait; await some of them first")
            }
            Error::System(source) => write!(f, "the system has no thread for the client: {source}"),
        }?;
        match self.outcome() {
            Outcome::Unknown => f.write_str("; the server may have run the command"),
            Outcome::NotDone => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Broken { source, .. } | Error::System(source) => Some(source),
            _ => None,
        }
    }
}
