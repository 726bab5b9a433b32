//! The thread that keeps the connection and the lease.

use super::{Held, NodeState, Shared};
use crate::error::CallError;
use crate::greeting::greet;
use crate::message::{Keep, Renew, Welcome};
use crate::peer::{Connection, Handler, Peer, Reply};
use crate::{Side, transport};
use situ_base::{Event, lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs until the client is closed.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut pause = shared.options.reconnect_min;
    loop {
        let seen = shared.changed.generation();
        if lock(&shared.state).is_closed {
            return;
        }
        let wait = match shared.alive() {
            Some(attempt) => shared.renew(&attempt.peer),
            None => match shared.connect_again() {
                Ok(()) => {
                    pause = shared.options.reconnect_min;
                    Some(Duration::ZERO)
                }
                Err(()) => {
                    let waited = pause;
                    pause = (pause * 2).min(shared.options.reconnect_max);
                    Some(waited)
                }
            },
        };
        if wait != Some(Duration::ZERO) {
            shared.changed.wait(seen, wait);
        }
    }
}

/// Takes the node's requests for the client's handler, and wakes the keeper when the connection is lost.
struct Inbox {
    handler: Arc<dyn Handler>,
    changed: Arc<dyn Event>,
    /// The node has proven itself: until then it may ask for nothing.
    is_greeted: AtomicBool,
}

impl Handler for Inbox {
    fn request(&self, peer: &Peer, operation: u16, payload: Vec<u8>, reply: Reply) {
        if !self.is_greeted.load(Ordering::Acquire) {
            return reply.fail(&CallError::Refused("the node has to prove itself first".to_owned()));
        }
        self.handler.request(peer, operation, payload, reply);
    }

    fn lost(&self, peer: &Peer, why: &CallError) {
        self.changed.notify();
        self.handler.lost(peer, why);
    }
}

/// Returns true if the error may end with the next connection.
fn may_end(error: &CallError) -> bool {
    error.is_lost() || matches!(error, CallError::Busy(_))
}

impl Shared {
    /// The first connection. What the node refuses is final. An address that does not answer, or is busy, is tried for
    /// the patience of a read. A node that may be lost is left to the keeper instead.
    pub(super) fn connect_first(&self) -> Result<(), CallError> {
        let deadline = self.now() + self.options.read_patience;
        let mut pause = self.options.reconnect_min;
        loop {
            match self.establish() {
                Ok((connection, welcome)) => {
                    self.install(connection, welcome);
                    return Ok(());
                }
                Err(error) if error.is_lost() && self.options.may_be_lost => {
                    self.note_lost(Duration::ZERO, &error.words());
                    return Ok(());
                }
                Err(error) if !may_end(&error) || self.now() + pause >= deadline => return Err(error),
                Err(_) => self.options.env.clock.sleep(pause),
            }
            pause = (pause * 2).min(self.options.reconnect_max);
        }
    }

    fn connect_again(&self) -> Result<(), ()> {
        self.bury();
        let connected = self.establish().and_then(|(connection, welcome)| {
            self.resume(&connection, &welcome)?;
            Ok((connection, welcome))
        });
        match connected {
            Ok((connection, welcome)) => {
                self.install(connection, welcome);
                Ok(())
            }
            Err(error) => {
                if let Some((_, why)) = &mut lock(&self.state).lost {
                    *why = error.words();
                }
                Err(())
            }
        }
    }

    /// A connection, and what the node said of itself.
    fn establish(&self) -> Result<(Connection, Welcome), CallError> {
        let options = &self.options;
        let stream = transport::connect(&self.address.place, options.tls.as_ref(), options.connect_timeout)?;
        let inbox = Arc::new(Inbox {
            handler: Arc::clone(&self.handler),
            changed: Arc::clone(&self.changed),
            is_greeted: AtomicBool::new(false),
        });
        let (handler, traffic) = (Arc::clone(&inbox), Arc::clone(&self.traffic));
        let (env, peer) = (&options.env, options.peer.clone());
        let connection = Connection::begin(env, Side::Host, stream, peer, handler, traffic)?;
        let welcome = greet(connection.peer(), &self.introduction, options.connect_timeout)?;
        inbox.is_greeted.store(true, Ordering::Release);
        Ok((connection, welcome))
    }

    /// Puts the session in order on a new connection, before others use it.
    fn resume(&self, connection: &Connection, welcome: &Welcome) -> Result<(), CallError> {
        let (handles, lease) = {
            let state = lock(&self.state);
            (state.handles.iter().copied().collect::<Vec<_>>(), state.lease)
        };
        let timeout = self.options.connect_timeout;
        if welcome.session_known {
            connection.peer().ask(&Keep { handles }, timeout)?;
        }
        if let Some(Held { token, .. }) = lease {
            self.renewed(connection.peer().ask(&Renew { token }, timeout).map(drop))?;
        }
        Ok(())
    }

    fn install(&self, connection: Connection, welcome: Welcome) {
        let mut state = lock(&self.state);
        if state.is_closed {
            return;
        }
        state.payload_bytes_max = state.payload_bytes_max.min(connection.peer().payload_bytes_max());
        state.connection = Some(Arc::new(connection));
        state.welcome = Some(welcome);
        state.epoch += 1;
        let lost = state.lost.take();
        let is_loss_told = std::mem::take(&mut state.is_loss_told);
        drop(state);
        self.changed.notify();
        if let Some((since, _)) = lost.filter(|_| is_loss_told) {
            self.tell(&NodeState::Back { after: self.now().saturating_sub(since) });
        }
    }

    /// Lets go of a lost connection, and notes since when there is none.
    fn bury(&self) {
        let Some(connection) = lock(&self.state).connection.take() else { return };
        let why = connection.peer().lost().map_or_else(String::new, |error| error.words());
        self.note_lost(connection.peer().silent_for(), &why);
        // Its threads are joined here, with no lock held.
        drop(connection);
    }

    fn note_lost(&self, silent_for: Duration, why: &str) {
        let since = self.now().saturating_sub(silent_for);
        {
            let mut state = lock(&self.state);
            state.lost = Some((since, why.to_owned()));
            state.is_loss_told = true;
        }
        self.tell(&NodeState::Lost { silent_for, why: why.to_owned() });
    }

    /// Renews the lease if it is time. How long nothing is to be done; `None` for as long as nothing happens.
    fn renew(&self, peer: &Peer) -> Option<Duration> {
        let Held { token, ttl, renew_at } = lock(&self.state).lease?;
        let left = renew_at.saturating_sub(self.now());
        if !left.is_zero() {
            return Some(left);
        }
        // A request that is lost shows in the connection; the next turn connects again.
        let _ = self.renewed(peer.ask(&Renew { token }, ttl).map(drop));
        if let Some(lease) = lock(&self.state).lease.as_mut().filter(|lease| lease.token == token) {
            lease.renew_at = self.now() + ttl / 3;
        }
        Some(ttl / 3)
    }

    /// A lease that another host has is no reason to give the connection up: files can be read.
    fn renewed(&self, answer: Result<(), CallError>) -> Result<(), CallError> {
        match answer {
            Err(error @ CallError::Fenced(_)) => {
                self.note_fenced(&error);
                Ok(())
            }
            other => other,
        }
    }
}
