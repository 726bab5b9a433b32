//! How a test says that it does not run here; the tests within the crate say it so, too.

use std::fmt::Display;
use std::io::Write;

/// Says that the running test, or a part of it, is skipped, and why. Straight to standard error: what a test prints by
/// `eprintln!` is kept from sight if it passes. `make test` lists these lines at its end.
pub(crate) fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {}\n", thread.name().unwrap_or("a test"), why.to_string().trim_end());
    // In one piece, beside other threads; where nobody listens, nobody is told.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
