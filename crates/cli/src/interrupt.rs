//! SIGINT and SIGTERM, for commands that would leave something behind or can be gone on with.
//!
//! [`on_interrupt`]: a thread waits for the signals, cleans up, says what is left, and ends the program. The exit code
//! is the one that a shell gives to a program that a signal ended. The command itself looks for nothing: it may be
//! waiting for a pipe without a writer.
//!
//! `Interrupts`, for `bench`: the first signal asks the command to end, which then cleans up by itself; the second one
//! ends the program at once.
//!
//! A terminal that is closed (SIGHUP) does not end such a command.

use crate::failure::Failure;
use situ_server::CaughtSignals;
#[cfg(feature = "bench")]
use situ_server::StopSignal;
use std::io::{self, IsTerminal, Write};
#[cfg(feature = "bench")]
use std::sync::{Arc, OnceLock};

/// From now on a signal runs `clean_up` and ends the program; `cure` says what is left and what to do next.
///
/// # Errors
/// The system refuses to catch signals, or a thread.
pub(crate) fn on_interrupt(json: bool, cure: String, clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = CaughtSignals::catch()?;
    let wait = move || {
        let signal = signals.wait(|| {});
        clean_up();
        let failure = Failure::interrupted(signal).cure(cure);
        if !json && io::stderr().is_terminal() {
            // The message takes the place of the progress bar.
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
        if let Some(message) = failure.message() {
            message.tell(json);
        }
        std::process::exit(failure.exit() as i32);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

/// See the module.
#[cfg(feature = "bench")]
pub(crate) struct Interrupts(Arc<OnceLock<StopSignal>>);

#[cfg(feature = "bench")]
impl Interrupts {
    /// From now on the first signal runs `end` on a thread of its own, and the second one ends the program in silence.
    ///
    /// # Errors
    /// As [`on_interrupt`].
    pub(crate) fn until_the_second(end: impl FnOnce() + Send + 'static) -> io::Result<Interrupts> {
        let mut signals = CaughtSignals::catch()?;
        let first = Arc::new(OnceLock::new());
        let seen = Arc::clone(&first);
        let wait = move || {
            // Only this thread sets it.
            let _ = seen.set(signals.wait(|| {}));
            let ending = std::thread::Builder::new().name("ending".to_owned()).spawn(end);
            let signal = signals.wait(|| {});
            drop(ending);
            std::process::exit(Failure::interrupted(signal).exit() as i32);
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
        Ok(Interrupts(first))
    }

    /// Returns the first signal, if one has come.
    pub(crate) fn first(&self) -> Option<StopSignal> {
        self.0.get().copied()
    }
}
