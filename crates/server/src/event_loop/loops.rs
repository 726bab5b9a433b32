//! The state that all event loops of a server share.

use crate::process::descriptors::Places;
use crate::waiting::inbox::Inbox;
use situ_base::{StoreClock, lock};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// See the module.
pub(crate) struct Loops {
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    pub(crate) clock: Arc<StoreClock>,
    /// The places of open connections.
    pub(crate) places: Arc<Places>,
    pub(crate) stop_at: Arc<Mutex<Option<Instant>>>,
}

impl Loops {
    /// Returns true if the server has to stop now, whatever is not done.
    pub(crate) fn stop_deadline_passed(&self) -> bool {
        let deadline = *lock(&self.stop_at);
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
