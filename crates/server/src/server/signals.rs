//! The signals that a server obeys, and the one that it outlives.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A signal that ended [`Server::wait_for_signal`](crate::Server::wait_for_signal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT, as from a terminal.
    Interrupt,
    /// SIGTERM, as from a supervisor.
    Terminate,
}

/// The signals that a server obeys, caught from the moment this is made: none of them has its deadly default any more.
#[derive(Debug)]
pub struct CaughtSignals(Signals);

impl CaughtSignals {
    /// Catches SIGHUP, SIGINT and SIGTERM.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch() -> io::Result<CaughtSignals> {
        Signals::new([SIGHUP, SIGINT, SIGTERM]).map(CaughtSignals)
    }

    /// Blocks until SIGINT or SIGTERM. Each SIGHUP calls `on_hangup` (to reopen a log file, say) and goes on.
    pub fn wait(&mut self, mut on_hangup: impl FnMut()) -> StopSignal {
        loop {
            for signal in self.0.wait() {
                match signal {
                    SIGINT => return StopSignal::Interrupt,
                    SIGTERM => return StopSignal::Terminate,
                    _ => on_hangup(),
                }
            }
        }
    }
}

/// Makes a write an error if it would pass the process's limit for the length of a file (`ulimit -f`). By default, its
/// signal ends the process.
///
/// # Errors
/// The system refuses.
pub fn outlive_file_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}
