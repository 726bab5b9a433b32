//! Standard error: what is not the answer, but has to be known.
//!
//! In words, a message is a line that begins with `situ:`. With `--json` it is an object on a line of its own, so that
//! standard output holds nothing but answers and a program can read both:
//!
//! ```text
//! {"event":"error","what":"cannot open the store in a","why":"...","cure":"...","exit_code":1}
//! {"event":"warning","text":"..."}
//! {"event":"bad_line","file":"people.csv","line":3,"why":"..."}
//! {"event":"log","time":"2026-11-20T17:05:00Z","text":"..."}
//! ```
//!
//! An error is the last message; `what` and `cure` are absent where there is nothing to say. `serve` writes its log in
//! this form unless it goes to a file, which holds text.

use crate::text::on_one_line;
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// See the module.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Message<'a> {
    /// The command failed.
    Error {
        #[serde(skip_serializing_if = "Option::is_none")]
        what: Option<&'a str>,
        why: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cure: Option<&'a str>,
        exit_code: u8,
    },
    /// It goes on, though not as one might expect.
    Warning { text: &'a str },
    /// A line of a file cannot be loaded.
    BadLine { file: &'a str, line: u64, why: &'a str },
    /// A line of the log of `serve`.
    Log { time: &'a str, text: &'a str },
}

impl Message<'_> {
    /// Returns it as a line, without the end.
    pub(crate) fn text(&self, json: bool) -> String {
        match serde_json::to_string(self) {
            Ok(object) if json => object,
            _ => on_one_line(&format!("situ: {self}")),
        }
    }

    /// Writes it to standard error.
    pub(crate) fn tell(&self, json: bool) {
        // A message that cannot be written is dropped: its failure would be a message, too.
        let _ = writeln!(std::io::stderr(), "{}", self.text(json));
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Error { what, why, cure, .. } => {
                if let Some(what) = what {
                    write!(f, "{what}: ")?;
                }
                f.write_str(why)?;
                cure.map_or(Ok(()), |cure| write!(f, "; {cure}"))
            }
            Message::Warning { text } => f.write_str(text),
            Message::Log { time, text } => write!(f, "{time} {text}"),
            Message::BadLine { file, line, why } => write!(f, "{file}, line {line}: {why}"),
        }
    }
}
