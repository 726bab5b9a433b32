//! Limits on the work of one connection before the others have their turn, and on the output that waits for its client.
//!
//! A client can send in one packet what keeps a processor busy for milliseconds, and a hundred clients can do so at
//! once. So a connection stops when its share of a turn is used up. The rest of its commands stay in its input and the
//! connection goes to the end of the queue:
//!
//! * *Commands.* [`COMMANDS`] for all connections of a loop in a turn, so that one connection alone runs a deep
//!   pipeline in one go; never fewer than [`COMMANDS_MIN`] each, which is memcached's `-R 20`. Each further key of a
//!   retrieval counts. A pipeline that is cut in two costs a read and a send more, a quarter of its time with 50
//!   commands: so a hundred connections may run 80 each.
//! * *Bytes written.* [`WRITING_BYTES`] for all: a command of a few bytes can rewrite an item of a megabyte. With an
//!   engine that makes changes at once, what commands have copied in the turn counts, read or written.
//! * *Answers.* [`TURN_OUTPUT_BYTES`] for all. A connection runs nothing while the system takes no more of its answers,
//!   so what waits in the server is what a turn brought. It is bounded by the option, too, and by [`OUTPUT_BYTES`]
//!   shared by all open connections.
//!
//! A command that runs again after a [read](crate::waiting::fetch) counts again.
//!
//! **Bounded.** For its unsent answers a connection holds at most twice its share and the values of one command; all
//! connections of a server together hold 2 * [`OUTPUT_BYTES`], or 2 * [`OUTPUT_BYTES_MIN`] each where that is more. Of
//! what the client has sent, it holds one read (64 KiB) and the command that is arriving.

use std::cell::Cell;

/// Commands of all connections of a loop in a turn: about 4 ms.
const COMMANDS: usize = 8192;
/// The least for one connection.
const COMMANDS_MIN: usize = 20;
/// Commands and keys that one connection may run in a turn. A longer turn would gain nothing: it costs a system call or
/// two.
const COMMANDS_MAX: usize = 1024;
/// Bytes of writes of all connections of a loop in a turn.
const WRITING_BYTES: usize = 16 << 20;
const WRITING_BYTES_MIN: usize = 256 << 10;
/// Writes of one connection that may be under way, in bytes; a single one may be larger. As buffered writes are
/// answered at the end of a turn, this bounds what one connection makes its loop write in a turn, too.
const WRITING_BYTES_MAX: usize = 4 << 20;
/// Answers of all connections of a loop in a turn.
const TURN_OUTPUT_BYTES: usize = 4 << 20;
const TURN_OUTPUT_BYTES_MIN: usize = 32 << 10;
/// Unsent answers of all connections of a server.
const OUTPUT_BYTES: usize = 64 << 20;
/// The least for one connection.
const OUTPUT_BYTES_MIN: usize = 16 << 10;
/// The number of commands that one command for the state of the whole server counts as.
pub(crate) const SURVEY_COMMANDS: usize = 64;

/// The share of a turn that each connection may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Commands, and keys of retrievals.
    pub(crate) commands: usize,
    /// Writes under way.
    pub(crate) writing_bytes_max: usize,
    /// Unsent answers.
    pub(crate) output_bytes_max: usize,
}

impl Share {
    /// Returns the share where `ready` connections of a loop have something to run and `open` ones are connected to the
    /// server; `output_bytes_option` is what the option allows.
    pub(crate) fn of(ready: usize, open: usize, output_bytes_option: usize) -> Share {
        let (ready, open) = (ready.max(1), open.max(1));
        Share {
            commands: (COMMANDS / ready).clamp(COMMANDS_MIN, COMMANDS_MAX),
            writing_bytes_max: (WRITING_BYTES / ready).clamp(WRITING_BYTES_MIN, WRITING_BYTES_MAX),
            output_bytes_max: output_bytes_option
                .min((TURN_OUTPUT_BYTES / ready).max(TURN_OUTPUT_BYTES_MIN))
                .min((OUTPUT_BYTES / open).max(OUTPUT_BYTES_MIN)),
        }
    }
}

/// The part of a turn that the connection which is served now has left.
pub(crate) struct Quotas {
    /// The share of each connection in this turn.
    pub(crate) share: Share,
    pub(crate) commands_left: usize,
    /// Bytes of values that its commands have copied.
    copied_bytes: Cell<usize>,
}

impl Quotas {
    pub(crate) fn new(share: Share) -> Quotas {
        Quotas { share, commands_left: 0, copied_bytes: Cell::default() }
    }

    /// Gives a connection that is to be served its whole share.
    pub(crate) fn begin(&mut self) {
        self.commands_left = self.share.commands;
        self.copied_bytes.set(0);
    }

    /// Takes commands, or keys of a retrieval, from the share.
    #[inline]
    pub(crate) fn use_commands(&mut self, count: usize) {
        self.commands_left = self.commands_left.saturating_sub(count);
    }

    /// Notes that a command has copied bytes of values.
    #[inline]
    pub(crate) fn copied(&self, bytes: usize) {
        self.copied_bytes.set(self.copied_bytes.get().saturating_add(bytes));
    }

    /// Returns true if others have their turn before the next command.
    #[inline]
    pub(crate) fn are_used_up(&self) -> bool {
        self.commands_left == 0 || self.copied_bytes.get() >= self.share.writing_bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_shrink_with_the_crowd_and_never_vanish() {
        let alone = Share::of(0, 0, 256 << 10);
        assert_eq!(alone, Share { commands: 1024, writing_bytes_max: 4 << 20, output_bytes_max: 256 << 10 });
        let some = Share::of(64, 1024, 256 << 10);
        assert_eq!(some, Share { commands: 128, writing_bytes_max: 256 << 10, output_bytes_max: 64 << 10 });
        assert_eq!(Share::of(100, 100, 256 << 10).output_bytes_max, 41_943);
        let crowd = Share::of(10_000, 10_000, 256 << 10);
        assert_eq!(crowd, Share { commands: 20, writing_bytes_max: 256 << 10, output_bytes_max: 16 << 10 });
        assert_eq!(Share::of(1, 1, 10).output_bytes_max, 10);
    }
}
