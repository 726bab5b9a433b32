//! The state changes of a connection, for programs that watch over a store.

use super::{NodeClient, Shared};
use crate::address::NodeAddress;
use crate::error::CallError;
use situ_base::lock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The state of the connection to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// There is no connection any more. The client tries to make another one.
    Lost {
        /// The time since the last byte came.
        silent_for: Duration,
        /// The reason of the loss.
        why: String,
    },
    /// There is a connection again.
    Back {
        /// The time without a connection.
        after: Duration,
    },
    /// Another host has the right to write by now.
    Fenced {
        /// The node's words.
        why: String,
    },
}

/// Gets the changes of the connection to a node. It runs on a thread of the client, and does not wait.
pub type OnState = Arc<dyn Fn(&NodeAddress, &NodeState) + Send + Sync>;

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeState::Lost { silent_for, why } if *silent_for < Duration::from_secs(1) => write!(f, "is lost: {why}"),
            NodeState::Lost { silent_for, why } => {
                write!(f, "is lost: {why}; the last byte came {:.1} s ago", silent_for.as_secs_f64())
            }
            NodeState::Back { after } => write!(f, "is back after {:.1} s", after.as_secs_f64()),
            NodeState::Fenced { why } => write!(f, "takes no changes of this process any more: {why}"),
        }
    }
}

impl NodeClient {
    /// Limits the waits for a lost node to `patience` from now on: the caller is about to close the store. While the
    /// node answers, nothing changes.
    pub fn hurry(&self, patience: Duration) {
        let until = self.shared.now() + patience;
        let mut state = lock(&self.shared.state);
        state.hurry_until = Some(state.hurry_until.map_or(until, |earlier| earlier.min(until)));
        drop(state);
        self.shared.changed.notify();
    }
}

impl Shared {
    pub(super) fn tell(&self, state: &NodeState) {
        if let Some(on_state) = &self.options.on_state {
            on_state(&self.address, state);
        }
    }

    /// Remembers that another host has the lease.
    pub(crate) fn note_fenced(&self, error: &CallError) {
        let CallError::Fenced(why) = error else { return };
        let is_first = {
            let mut state = lock(&self.state);
            let is_first = state.fenced.is_none();
            state.fenced.get_or_insert_with(|| why.clone());
            is_first
        };
        if is_first {
            self.tell(&NodeState::Fenced { why: why.clone() });
        }
    }
}
