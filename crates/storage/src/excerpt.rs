//! Keys and values in messages.

use std::fmt;

/// A key or value in a message: its first 64 bytes, escaped, followed by its length if it is longer. A key has up to 64
/// KiB and a value up to 1 GiB, and an escaped byte takes up to four characters.
///
/// ```
/// use situ_storage::Excerpt;
///
/// assert_eq!(Excerpt(b"ada\n").to_string(), "ada\\n");
/// assert_eq!(Excerpt(&[b'x'; 70_000]).to_string(), format!("{}... (70000 bytes)", "x".repeat(64)));
/// ```
#[derive(Clone, Copy)]
pub struct Excerpt<'a>(pub &'a [u8]);

const SHOWN_MAX: usize = 64;

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_at_checked(SHOWN_MAX) {
            Some((shown, rest)) if !rest.is_empty() => {
                write!(f, "{}... ({} bytes)", shown.escape_ascii(), self.0.len())
            }
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
