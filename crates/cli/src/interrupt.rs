//! SIGINT and SIGTERM, for commands that would leave something behind or can be gone on with.
//!
//! A thread waits for the signals, cleans up, says what is left, and ends the program with the code that a shell gives to
//! a program that a signal ended. The command itself looks for nothing: it may be waiting for a pipe that nobody writes.
//!
//! A terminal that is closed (SIGHUP) does not end such a command.

use crate::message::Message;
use situ_server::{CaughtSignals, StopSignal};
use std::io;

/// From now on a signal runs `clean_up` and ends the program; `cure` says what is left and what to do next.
///
/// # Errors
/// The system refuses to catch signals, or a thread.
pub(crate) fn on_interrupt(json: bool, cure: String, clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = CaughtSignals::catch()?;
    let wait = move || {
        let signal = signals.wait(|| {});
        clean_up();
        let (why, exit_code) = match signal {
            StopSignal::Interrupt => ("interrupted by SIGINT", 130),
            StopSignal::Terminate => ("ended by SIGTERM", 143),
        };
        Message::Error { what: None, why, cure: Some(&cure), exit_code }.tell(json);
        std::process::exit(exit_code.into());
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}
