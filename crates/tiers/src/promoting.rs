//! The tables that a round of promotion has chosen.

use situ_engine::places::PlacedTable;
use std::collections::VecDeque;
use std::time::Duration;

/// A table to copy.
pub(crate) struct Wanted {
    pub(crate) table: PlacedTable,
    pub(crate) disk: u32,
}

/// The tables to copy, and the time of their choice.
pub(crate) struct Promoting {
    pub(crate) looked_at: Duration,
    pub(crate) wanted: VecDeque<Wanted>,
    /// A thread is at it.
    pub(crate) runs: bool,
}

impl Promoting {
    /// Starts with nothing chosen. Reads count from `now` on.
    pub(crate) fn new(now: Duration) -> Promoting {
        Promoting { looked_at: now, wanted: VecDeque::new(), runs: false }
    }
}
