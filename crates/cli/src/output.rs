//! The caller of a command: standard output for what was asked for, and messages.
//!
//! A command runs in the program that was called, or in the server that has the store open
//! ([`administrator`](crate::administrator)). Then its output goes to the client, it finds the [store](Output::served)
//! open, and it neither catches signals nor draws progress bars.

use crate::failure::Failure;
use crate::interrupt;
use crate::message::Message;
use crate::progress;
use indicatif::ProgressBar;
use serde::Serialize;
use situ::Store;
use situ_server::{AdminAnswer, Tracer};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Arc;

/// The output of a command, in words or in JSON. Errors of writing end the command; a broken pipe ends it in silence.
pub(crate) struct Output {
    stdout: BufWriter<Box<dyn Write>>,
    json: bool,
    terminal: bool,
    served: Option<Served>,
}

/// The store that a server has open, and the way to the client.
struct Served {
    store: Store,
    tracer: Arc<Tracer>,
    answer: Arc<AdminAnswer>,
}

/// Standard output of a client.
struct ClientStdout(Arc<AdminAnswer>);

impl Write for ClientStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stdout(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let stdout = BufWriter::with_capacity(BUFFER_BYTES, Box::new(stdout.lock()) as Box<dyn Write>);
        Output { stdout, json, terminal, served: None }
    }

    /// Returns an output that goes to `stdout`.
    #[cfg(test)]
    pub(crate) fn to(stdout: impl Write + 'static, json: bool) -> Output {
        let stdout = BufWriter::with_capacity(BUFFER_BYTES, Box::new(stdout) as Box<dyn Write>);
        Output { stdout, json, terminal: false, served: None }
    }

    /// Returns the output of a command that works on the open `store` of a server, for a client. The long operations of
    /// the command end with the client.
    pub(crate) fn of_served(json: bool, store: &Store, tracer: Arc<Tracer>, answer: Arc<AdminAnswer>) -> Output {
        let stdout = Box::new(ClientStdout(Arc::clone(&answer))) as Box<dyn Write>;
        let stdout = BufWriter::with_capacity(BUFFER_BYTES, stdout);
        let client = Arc::clone(&answer);
        let store = store.ended_by(move || client.is_gone());
        Output { stdout, json, terminal: false, served: Some(Served { store, tracer, answer }) }
    }

    /// Returns the store that the server has open; `None` if the command runs in the program that was called.
    pub(crate) fn served(&self) -> Option<&Store> {
        self.served.as_ref().map(|served| &served.store)
    }

    /// Returns the recorder of the server's requests; `None` if the command runs in the program that was called.
    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.served.as_ref().map(|served| &*served.tracer)
    }

    /// Returns true if machines read it.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns true if a person reads it on a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the columns available for a text: `at_most` on a terminal, and no limit in a pipe or a file.
    pub(crate) fn room(&self, at_most: usize) -> usize {
        if self.terminal { at_most } else { usize::MAX }
    }

    /// Prints a message to stderr.
    pub(crate) fn tell(&self, message: &Message<'_>) {
        match &self.served {
            // A client that has gone shows at the next write to stdout.
            Some(served) => _ = served.answer.stderr(format!("{}\n", message.text(self.json)).as_bytes()),
            None => message.tell(self.json),
        }
    }

    /// Prints a warning to stderr.
    pub(crate) fn warn(&self, text: &str) {
        self.tell(&Message::Warning { text });
    }

    /// Ends a command whose client has gone: for commands that write nothing for a long time.
    ///
    /// # Errors
    /// As for a broken pipe.
    pub(crate) fn check_client(&self) -> Result<(), Failure> {
        match &self.served {
            Some(served) if served.answer.is_gone() => Err(Failure::stdout(&io::ErrorKind::BrokenPipe.into())),
            _ => Ok(()),
        }
    }

    /// Returns a progress bar; see [`progress::bar`].
    pub(crate) fn bar(&self, length: Option<u64>, done: u64, template: &str) -> ProgressBar {
        match self.served {
            Some(_) => ProgressBar::hidden(),
            None => progress::bar(length, done, template),
        }
    }

    /// Makes a signal run `clean_up` and end the program; see [`interrupt::on_interrupt`]. The signals of a server are
    /// its own: a command there ends with its client.
    ///
    /// # Errors
    /// As [`interrupt::on_interrupt`].
    pub(crate) fn on_interrupt(&self, cure: String, clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match self.served {
            Some(_) => Ok(()),
            None => interrupt::on_interrupt(self.json, cure, clean_up),
        }
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stdout.write_all(bytes).map_err(|error| Failure::stdout(&error))
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")?;
        // A terminal shows each line at once; a pipe gets the lines in large pieces, which is faster.
        if self.terminal { self.finish() } else { Ok(()) }
    }

    /// One JSON object on a line of its own.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.stdout, value).map_err(|error| Failure::stdout(&error.into()))?;
        self.bytes(b"\n")
    }

    /// Hands everything over.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.stdout.flush().map_err(|error| Failure::stdout(&error))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stdout.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}
