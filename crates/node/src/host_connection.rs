//! The newest connection of a host that has tasks here: files and tasks of the host outlive a connection, and wait for
//! the next one.

use crate::peer::Peer;
use situ_base::{Env, Event, lock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The newest connection of a host, which tasks wait for.
pub(crate) struct HostConnection {
    env: Env,
    linger: Duration,
    /// The last number of a file that tasks have open with the host.
    last_handle: AtomicU64,
    state: Mutex<Connected>,
    /// Notified when the host comes, goes, answers, or gives something up.
    pub(crate) changed: Arc<dyn Event>,
}

struct Connected {
    peer: Option<Peer>,
    away_since: Option<Duration>,
    is_over: bool,
}

impl HostConnection {
    pub(crate) fn new(env: &Env, linger: Duration) -> HostConnection {
        let state = Connected { peer: None, away_since: Some(env.clock.now()), is_over: false };
        HostConnection {
            env: env.clone(),
            linger,
            last_handle: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: env.executor.event(),
        }
    }

    /// The connection that there is now.
    pub(crate) fn peer(&self) -> Option<Peer> {
        lock(&self.state).peer.clone().filter(|peer| peer.lost().is_none())
    }

    /// A number that no file of the session had before.
    pub(crate) fn new_handle(&self) -> u64 {
        self.last_handle.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn attach(&self, peer: &Peer) {
        let mut state = lock(&self.state);
        (state.peer, state.away_since) = (Some(peer.clone()), None);
        drop(state);
        self.changed.notify();
    }

    pub(crate) fn detach(&self, peer: &Peer) {
        let mut state = lock(&self.state);
        if state.peer.as_ref().is_some_and(|newest| newest.is(peer)) {
            (state.peer, state.away_since) = (None, Some(self.env.clock.now()));
        }
        drop(state);
        self.changed.notify();
    }

    pub(crate) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify();
    }

    /// Returns true if the host has been away for too long.
    pub(crate) fn is_over(&self) -> bool {
        let now = self.env.clock.now();
        let state = lock(&self.state);
        state.is_over || state.away_since.is_some_and(|since| now.saturating_sub(since) >= self.linger)
    }

    /// Waits for a change behind `seen`. The wait is short enough not to miss the host's end.
    pub(crate) fn wait(&self, seen: u64) {
        self.changed.wait(seen, Some(self.linger.min(Duration::from_secs(1))));
    }
}
