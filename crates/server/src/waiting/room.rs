//! A limit on the bytes queued from all event loops to the engine.
//!
//! One loop has one batch at the engine at most, but there are many loops, and a batch may be a single value of any
//! size. An engine bounds what waits in it and refuses what is beyond, which would be an error for a client that did
//! nothing wrong. So a loop enters the room with a batch before it gives it, and leaves when the engine has taken it; a
//! loop that finds no room keeps its batch, and gets a message when another loop has left.

use situ_base::lock;
use std::sync::{Arc, Mutex};

use crate::waiting::inbox::{Inbox, Message};

/// Half of what a Situ store lets wait. One batch is let in whatever its size.
const BYTES_MAX: u64 = 32 << 20;

#[derive(Default)]
struct State {
    bytes: u64,
    /// Loops that found no room.
    outside: Vec<Arc<Inbox>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Room {
    state: Mutex<State>,
}

impl Room {
    /// Returns true if a batch of `bytes` may be given now. If not, the loop of `inbox` gets a message when it should
    /// ask again.
    pub(crate) fn enter(&self, bytes: u64, inbox: &Arc<Inbox>) -> bool {
        let mut state = lock(&self.state);
        let fits = state.bytes == 0 || state.bytes + bytes <= BYTES_MAX;
        if fits {
            state.bytes += bytes;
        } else {
            state.outside.push(Arc::clone(inbox));
        }
        fits
    }

    /// Leaves the room after the engine has taken a batch of `bytes`.
    pub(crate) fn leave(&self, bytes: u64) {
        let outside = {
            let mut state = lock(&self.state);
            state.bytes -= bytes;
            std::mem::take(&mut state.outside)
        };
        for inbox in outside {
            inbox.post(Message::Room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_found_no_room_is_told_when_somebody_leaves() {
        let inbox = Arc::new(Inbox::new().unwrap());
        let room = Room::default();
        let news = || {
            let mut messages = Vec::new();
            inbox.take(&mut messages);
            messages.len()
        };
        assert!(room.enter(2 * BYTES_MAX, &inbox), "one of any size");
        assert!(!room.enter(1, &inbox));
        room.leave(2 * BYTES_MAX);
        assert_eq!(news(), 1);
        assert!(room.enter(BYTES_MAX / 2, &inbox) && room.enter(BYTES_MAX / 2, &inbox));
        room.leave(BYTES_MAX / 2);
        assert_eq!(news(), 0, "nobody has asked");
        assert!(!room.enter(BYTES_MAX, &inbox));
    }
}
