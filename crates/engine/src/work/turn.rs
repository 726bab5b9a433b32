//! The result of a thread's turn.

/// The result of a turn of a duty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There was nothing to do, and nothing is under way.
    Idle,
    /// There was nothing to do, but work that was begun before goes on elsewhere.
    Waits,
    /// Work was begun that goes on elsewhere.
    Begun,
    /// Work was done.
    Done,
}

impl Turn {
    pub(crate) fn of(has_worked: bool) -> Turn {
        if has_worked { Turn::Done } else { Turn::Idle }
    }
}
