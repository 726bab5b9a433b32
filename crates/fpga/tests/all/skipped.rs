//! The reasons of skipped tests, printed where `make test` collects them.

use std::io::Write;

/// Says that a test was left out, past the capture of the test's output.
pub(crate) fn skipped(test: &str, why: &str) {
    // Without an output there is nowhere to say it.
    let _ = writeln!(std::io::stderr(), "SKIPPED: situ-fpga {test}: {why}");
}
