//! Standard output: what was asked for, and nothing else.

use crate::failure::Failure;
use crate::message::Message;
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output, in words or in JSON. Errors of writing end the program; a broken pipe ends it in silence.
pub(crate) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
    json: bool,
    terminal: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output { stdout: BufWriter::with_capacity(64 << 10, stdout.lock()), json, terminal }
    }

    /// Returns true if machines read it.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns the columns available for a text: `at_most` on a terminal, and no limit in a pipe or a file.
    pub(crate) fn room(&self, at_most: usize) -> usize {
        if self.terminal { at_most } else { usize::MAX }
    }

    /// Prints a warning to stderr.
    pub(crate) fn warn(&self, text: &str) {
        Message::Warning { text }.tell(self.json);
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
