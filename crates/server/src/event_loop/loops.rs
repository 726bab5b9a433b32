//! The state that all event loops of a server share.

use crate::waiting::inbox::Inbox;
use situ_base::{StoreClock, lock};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The limits that event loops obey.
pub(crate) struct LoopLimits {
    pub(crate) connections_max: usize,
    pub(crate) idle_timeout: Option<Duration>,
}

/// See the module.
pub(crate) struct Loops {
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) limits: LoopLimits,
    pub(crate) open: AtomicUsize,
    pub(crate) stop_at: Arc<Mutex<Option<Instant>>>,
}

impl Loops {
    /// Counts a new connection; false if there are too many.
    pub(crate) fn try_open_connection(&self) -> bool {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let allowed = before < self.limits.connections_max;
        if !allowed {
            self.connection_closed();
        }
        allowed
    }

    /// Open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection that has ended.
    pub(crate) fn connection_closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if the server has to stop now, whatever is not done.
    pub(crate) fn stop_deadline_passed(&self) -> bool {
        let deadline = *lock(&self.stop_at);
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
