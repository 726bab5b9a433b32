//! The services of a node for its clients, as a table.
//!
//! A service names the operations that it answers. The daemon gives it each such request, with the [`Caller`]: the
//! connection, the client at its other end, and that client's files. A new group of operations is a new service, and
//! changes nothing else.

use super::pool::{LaneHandle, Strands};
use crate::error::CallError;
use crate::files::Attached;
use crate::gate::Pass;
use crate::message::{Call, Message, Operation};
use crate::peer::{Peer, Reply};
use situ_base::Job;
use situ_storage::Volume;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A group of operations.
pub trait Service: Send + Sync {
    /// Returns the operations that it answers.
    fn operations(&self) -> &'static [Operation];

    /// Takes a request. Called on the connection's reader thread: it does not wait. What takes time goes to
    /// [`Caller::later`], with the reply.
    fn request(&self, caller: &Arc<Caller>, operation: Operation, payload: Vec<u8>, reply: Reply);

    /// Takes note that the connection of a caller is lost. The client may come back with another one, in the same
    /// session.
    fn gone(&self, caller: &Arc<Caller>) {
        let _ = caller;
    }

    /// Sees to what ends with time. Called every second or so, by a thread that has more to do: it does not wait.
    fn tick(&self) {}
}

/// A client, as one connection knows it.
pub struct Caller {
    pub(super) peer: Peer,
    pub(super) session: u128,
    pub(super) name: String,
    pub(super) store: String,
    pub(super) files: Option<Attached>,
    pub(super) lane: LaneHandle,
    pub(super) strands: Arc<Strands>,
    /// Of the lease that this connection has taken or renewed; 0 if there is none.
    pub(super) token: AtomicU64,
}

/// The right to change files on the node, until it is dropped. The next owner of the lease waits for that.
pub struct ChangePass {
    _passes: (Pass, Pass),
}

impl Caller {
    /// Returns the connection's end here: the node can ask its client, too.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the number of the client's session, which is the same over all its connections.
    pub fn session(&self) -> u128 {
        self.session
    }

    /// Returns the client's name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the store that the client uses; empty of one that has tasks only.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Returns the files of the client's store on this node. A service that changes them here holds a [`ChangePass`]
    /// meanwhile.
    ///
    /// # Errors
    /// The client has no store here.
    pub fn volume(&self) -> Result<&Arc<dyn Volume>, CallError> {
        Ok(self.files()?.volume())
    }

    /// Lets a change in, if the token is that of the owner of the lease.
    ///
    /// # Errors
    /// [`Fenced`](CallError::Fenced); or the client has reconnected.
    pub fn change(&self, token: u64) -> Result<ChangePass, CallError> {
        Ok(ChangePass { _passes: self.files()?.enter(token)? })
    }

    /// Has a job run on a thread that may wait. It is dropped if the node stops.
    pub fn later(&self, job: impl FnOnce() + Send + 'static) {
        self.lane.submit(Box::new(job));
    }

    /// As [`later`](Caller::later), after all earlier jobs `about` the same.
    pub(super) fn later_in_turn(&self, about: u64, job: Job) {
        self.strands.submit(&self.lane, about, job);
    }

    /// Renews the lease that this connection has taken or renewed before, if the client still has it.
    pub(super) fn renew(&self) {
        let token = self.token.load(Ordering::Relaxed);
        if token != 0 && self.files().is_ok_and(|files| files.renew(token).is_err()) {
            // Another client has the lease, or it was given back. A newer token may have been taken meanwhile.
            let _ = self.token.compare_exchange(token, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(super) fn files(&self) -> Result<&Attached, CallError> {
        self.files.as_ref().ok_or_else(|| CallError::Unsupported("this node keeps no files for this client".to_owned()))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({}, store {:?})", self.name, self.store)
    }
}

/// Answers a request that is a `C` with what `work` makes of it.
pub(super) fn answer<C: Call>(
    payload: &[u8],
    work: impl FnOnce(C) -> Result<C::Answer, CallError>,
) -> Result<Vec<u8>, CallError> {
    Ok(work(C::decode(payload)?)?.encode())
}

/// Sends what came of a request.
pub(super) fn finish(reply: Reply, answer: Result<Vec<u8>, CallError>) {
    match answer {
        Ok(payload) => reply.answer(payload),
        Err(error) => reply.fail(&error),
    }
}
