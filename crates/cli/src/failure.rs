//! The errors of the program: each says what failed, why, and what to do next.

use crate::message::Message;
use crate::text::DecodeError;
use situ_server::StopSignal;
use situ_storage as storage;
use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

/// The outcome of the program. The numbers are its exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done = 0,
    /// It could not.
    Failed = 1,
    /// It was asked something that makes no sense.
    Usage = 2,
    /// `get` found no such key.
    NotFound = 3,
    /// The store is damaged.
    Damage = 4,
    /// SIGINT ended it: 128 and the number of the signal, as a shell has it.
    Interrupted = 130,
    /// SIGTERM ended it.
    Terminated = 143,
}

impl Exit {
    /// Returns the outcome of an exit code.
    pub(crate) fn of(code: u8) -> Exit {
        let all = [Exit::Done, Exit::Usage, Exit::NotFound, Exit::Damage, Exit::Interrupted, Exit::Terminated];
        all.into_iter().find(|exit| *exit as u8 == code).unwrap_or(Exit::Failed)
    }
}

/// The outcome of a command.
pub(crate) type Outcome = Result<Exit, Failure>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Failure {
    /// `None` for a reader of stdout that went away: a message would have no reader.
    why: Option<String>,
    what: Option<String>,
    cure: Option<String>,
    exit: Exit,
    /// The directory of the store that another process has open.
    held: Option<PathBuf>,
}

impl Failure {
    /// "`what`: `why`", without more advice than `why` has.
    pub(crate) fn new(what: impl Display, why: impl Display) -> Failure {
        Failure { what: Some(what.to_string()), why: Some(why.to_string()), cure: None, exit: Exit::Failed, held: None }
    }

    /// "`what`: `why`", of a command that only the server can run which has the store in `directory` open.
    pub(crate) fn of_server(what: impl Display, why: impl Display, directory: &Path) -> Failure {
        Failure { held: Some(directory.to_owned()), ..Failure::new(what, why) }
    }

    /// Adds what to do next.
    pub(crate) fn cure(mut self, cure: impl Display) -> Failure {
        self.cure = Some(match self.cure {
            Some(before) => format!("{before}; {cure}"),
            None => cure.to_string(),
        });
        self
    }

    /// Ends with another code.
    pub(crate) fn ending(mut self, exit: Exit) -> Failure {
        self.exit = exit;
        self
    }

    /// The arguments make no sense together.
    pub(crate) fn usage(why: impl Display) -> Failure {
        Failure { what: None, why: Some(why.to_string()), cure: None, exit: Exit::Usage, held: None }
    }

    /// The command line cannot be read. In words, clap says so itself.
    pub(crate) fn command_line(error: &clap::Error) -> Failure {
        let text = error.render().to_string();
        let mut paragraphs = text.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        let why = paragraphs.next().unwrap_or_default();
        let cure: Vec<String> = paragraphs.filter(|text| !text.is_empty()).collect();
        Failure::usage(why.strip_prefix("error: ").unwrap_or(&why)).cure(cure.join("; "))
    }

    /// A signal ended the command.
    pub(crate) fn interrupted(signal: StopSignal) -> Failure {
        let (why, exit) = match signal {
            StopSignal::Interrupt => ("interrupted by SIGINT", Exit::Interrupted),
            StopSignal::Terminate => ("ended by SIGTERM", Exit::Terminated),
        };
        Failure { what: None, why: Some(why.to_owned()), cure: None, exit, held: None }
    }

    /// A write to stdout failed.
    pub(crate) fn stdout(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure { what: None, why: None, cure: None, exit: Exit::Done, held: None },
            _ => Failure::new("cannot write to standard output", error),
        }
    }

    /// No server has the store in `directory` open, unless one answers ([`held`](Failure::held)).
    pub(crate) fn not_served(what: impl Display, directory: &Path) -> Failure {
        let failure = Failure::new(what, "no server has the store open");
        Failure { held: Some(directory.to_owned()), ..failure }
    }

    /// An operation on the store in `directory` failed.
    pub(crate) fn store(what: impl Display, directory: &Path, error: &situ::Error) -> Failure {
        let shown = directory.display();
        match error {
            situ::Error::Storage(storage::Error::Locked { why: Some(why), .. }) => {
                Failure::new(what, why)
                    .cure("stop the process that uses it (perhaps a `situ serve`), then run the command again")
            }
            situ::Error::Storage(storage::Error::Locked { .. }) => {
                let failure = Failure::new(what, "another process has the store open for writing")
                    .cure("stop that process (perhaps a `situ serve`), then try again. get, scan, dump and inspect work while it runs");
                Failure { held: Some(directory.to_owned()), ..failure }
            }
            error if error.is_permission_denied() && directory.starts_with("node://") => Failure::new(what, error).cure(
                "name the secret of the node with --node-secret-file, and who signs its certificate with --node-ca; give neither if \
                 the node was started without",
            ),
            error if error.is_permission_denied() => {
                Failure::new(what, error).cure("run the command as the user who owns the store, or give your user permission to read and write its files")
            }
            error if error.is_corruption() => Failure::new(what, error)
                .cure(format!("run `situ verify {shown}` to see everything that is damaged, then `situ repair {shown}`"))
                .ending(Exit::Damage),
            situ::Error::Storage(storage::Error::NotFound { .. }) if directory.is_dir() => Failure::new(what, error)
                .cure(format!(
                    "if a server runs on the store, it may just have removed the file: run the command again; otherwise run \
                     `situ verify {shown}` to see everything that is missing"
                )),
            situ::Error::Storage(storage::Error::NotFound { .. }) => {
                Failure::new(what, error).cure(no_store(directory))
            }
            situ::Error::Existence(text) if text.contains("damaged") => Failure::new(what, error).ending(Exit::Damage),
            situ::Error::Existence(_) => Failure::new(what, error).cure(no_store(directory)),
            error => Failure::new(what, error),
        }
    }

    /// An operation on the hash store in `directory` failed.
    pub(crate) fn hash(what: impl Display, directory: &Path, error: &situ::hash::Error) -> Failure {
        match error {
            situ::hash::Error::Storage(storage::Error::Locked { .. }) => {
                Failure::new(what, "another process has the store open, and a hash store has one process at a time")
                    .cure("stop that process (perhaps a `situ serve`), then try again. inspect works while it runs")
            }
            // The text has the cure: no command can help.
            error @ situ::hash::Error::Superblock(_) => Failure::new(what, error).ending(Exit::Damage),
            error if error.is_corruption() => Failure::new(what, error)
                .cure({
                    let shown = directory.display();
                    format!("run `situ verify {shown}` to see everything that is damaged, then `situ repair {shown}`")
                })
                .ending(Exit::Damage),
            situ::hash::Error::Storage(storage::Error::NotFound { .. }) | situ::hash::Error::Existence(_) => {
                Failure::new(what, error)
            }
            situ::hash::Error::Storage(error) => Failure::store(what, directory, &error.clone().into()),
            error => Failure::new(what, error),
        }
    }

    /// Hash stores cannot do this.
    pub(crate) fn not_for_hash(command: &str, directory: &Path, why: &str) -> Failure {
        let what = format!("cannot {command} the store in {}", directory.display());
        Failure::new(what, format!("it is a hash store, and {why}"))
    }

    /// Returns the message for stderr, if there is one.
    pub(crate) fn message(&self) -> Option<Message<'_>> {
        let why = self.why.as_deref()?;
        Some(Message::Error { what: self.what.as_deref(), why, cure: self.cure.as_deref(), exit_code: self.exit as u8 })
    }

    /// Returns true if the failure is not reported, because the reader of stdout went away.
    pub(crate) fn is_silent(&self) -> bool {
        self.why.is_none()
    }

    /// Returns the directory of the store that another process has open, or has to have, if that is the failure.
    /// Nothing was done then.
    pub(crate) fn held(&self) -> Option<&Path> {
        self.held.as_deref()
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

fn no_store(directory: &Path) -> String {
    let shown = directory.display();
    format!(
        "name another directory, or make a store there with `situ serve {shown}` or `situ put --data {shown} KEY VALUE`"
    )
}

impl DecodeError {
    /// Returns the failure of a command that was given `what`.
    pub(crate) fn failure(&self, what: impl fmt::Display) -> Failure {
        match self {
            DecodeError::Malformed(why) => Failure::usage(format!("cannot read {what}: {why}")),
            DecodeError::NoMemory(_) => Failure::new(format!("cannot read {what}"), self),
        }
    }
}
