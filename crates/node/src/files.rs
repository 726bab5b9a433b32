//! A volume, served: each operation of `situ_storage::Volume` as a method that may be called twice.
//!
//! ```text
//!   connection ── Attached ──> Session ── handles, writers ──> Volume
//!        │  gate of the connection            │
//!        └── changes also pass the lease ─────┘
//! ```
//! 1. A client has a *session*, for as long as it lives. [`Files::attach`] ties a connection to it. A client that lost
//!    its connection attaches another one, and finds its open files and its unfinished writers.
//! 2. The client numbers what it opens. So a request that is sent again, because its answer was lost, means the same
//!    file.
//! 3. Each change passes two gates: that of its connection, and that of the lease's token. [`Files::attach`] closes the
//!    gates of all former connections and waits for the changes inside. So no older copy of a request is carried out
//!    after a newer one.
//!
//! **Writers.** An append says where it begins. Bytes that the file has already are passed over, and a gap is an error.
//! Finishing twice is finishing once. A writer that has failed answers with its error until the client forgets it. So
//! does a page file whose sync has failed (`files/pages.rs`). After a restart of the node, a client goes on with
//! [`Attached::resume`]: what it had synced is copied to a new file, which takes the name.
//!
//! **Images.** A session keeps the pages that it wrote last, a few of them. Of a page that is written again, the client
//! then sends what changed ([`Attached::patch_pages`]). What is written is always a whole page, and its checksum is the
//! client's.
//!
//! **Invariants.** A session has at most as many handles and writers as [`Limits`] says. A writer is used by one thread
//! at a time. While a change of any former connection is under way, no newer connection of the session is attached, and
//! the session stays.
//! **Threads.** Any. No lock is held while the volume works.
//! **Failure.** The volume's errors are passed on as they are. A session that no connection is attached to for
//! [`Limits::linger`] is swept: its handles are closed, and its unfinished files stay for the owner of the store to
//! remove. A session that has nothing open is swept at once. The owner of the lease finds the lease again in either
//! case.
//!
//! Rejected: to wait for the last connection's changes only. A change that hangs outlasts the wait of the next
//! connection, and the one after that finds a former connection without changes.

mod images;
mod listing;
mod open_files;
mod pages;
mod session;
mod writer;

use crate::gate::Gate;
use crate::lease::{Clients, Lease, Owner};
use session::Session;
use situ_base::{Env, Event, lock};
use situ_storage::{Error, FileName, Result, Volume};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use open_files::OpenFiles;
pub(crate) use session::{Attached, OpenedFile, OpenedPages};

/// The maximum time for the changes of lost connections to end.
const DRAIN: Duration = Duration::from_secs(30);

/// The limits of what a store may have open on a node.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Sessions of one store.
    pub(crate) sessions: usize,
    /// Open files of one session.
    pub(crate) handles: usize,
    /// Unfinished files of one session, and finished ones that the client has not forgotten.
    pub(crate) writers: usize,
    /// Open and unfinished files of all sessions of all stores: one count for the node.
    pub(crate) open: Arc<OpenFiles>,
    /// The time for which a session without a connection is kept.
    pub(crate) linger: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let open = OpenFiles::new(usize::MAX);
        Limits { sessions: 256, handles: 1 << 16, writers: 1024, open, linger: Duration::from_secs(300) }
    }
}

/// The files of one store.
pub(crate) struct Files {
    pub(crate) volume: Arc<dyn Volume>,
    lease: Lease,
    env: Env,
    limits: Limits,
    sessions: Mutex<HashMap<u128, Arc<Session>>>,
    /// [`FileName::REPLACEMENT`] is in use.
    replacing: AtomicBool,
    replaced: Arc<dyn Event>,
}

/// The right to use [`FileName::REPLACEMENT`], until it is dropped.
struct Replacing<'a>(&'a Files);

impl Files {
    pub(crate) fn new(env: &Env, volume: Arc<dyn Volume>, lease: Lease, limits: Limits) -> Arc<Files> {
        Arc::new(Files {
            volume,
            lease,
            env: env.clone(),
            limits,
            sessions: Mutex::default(),
            replacing: AtomicBool::new(false),
            replaced: env.executor.event(),
        })
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Ties a connection to the client's session, which it begins if there is none; whether there was one. The
    /// session's former connections are cut off first.
    ///
    /// # Errors
    /// There are too many sessions, or a change of a former connection does not end.
    pub(crate) fn attach(self: &Arc<Files>, client: &Owner) -> Result<(Attached, bool)> {
        self.sweep();
        let gate = Gate::new(&self.env);
        let (session, former, is_known) = self.session(client, &gate)?;
        // Dropped before it is returned, it leaves the session without a connection.
        let attached = Attached { files: Arc::clone(self), session, gate, client: client.clone() };
        let deadline = self.env.clock.now() + DRAIN;
        let left = || deadline.saturating_sub(self.env.clock.now());
        if !former.iter().all(|gate| gate.shut(&self.env, left())) {
            return Err(Error::Invalid(format!(
                "{} does not finish what an earlier connection had begun; try again later",
                self.volume.location()
            )));
        }
        Ok((attached, is_known))
    }

    /// The client's session with this gate as the newest one, the former gates that have a change inside, and whether
    /// there was a session. One step, so that no session is swept in between.
    fn session(&self, client: &Owner, gate: &Arc<Gate>) -> Result<(Arc<Session>, Vec<Arc<Gate>>, bool)> {
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(&client.id) {
            return Ok((Arc::clone(session), session.set_gate(gate), true));
        }
        if sessions.len() >= self.limits.sessions {
            let most = self.limits.sessions;
            return Err(Error::Invalid(format!("the store has {most} clients on this node, and no more are taken")));
        }
        let session = Arc::new(Session::new(&self.env));
        sessions.insert(client.id, Arc::clone(&session));
        let former = session.set_gate(gate);
        Ok((session, former, false))
    }

    /// Ends sessions whose client has no connection, no change under way, and either nothing open or been away for too
    /// long; how many. The owner of the lease is waited for as long as the lease awaits it.
    pub(crate) fn sweep(&self) -> usize {
        let now = self.env.clock.now();
        let awaited = self.lease.awaits(self.limits.linger);
        let mut swept = Vec::new();
        lock(&self.sessions).retain(|id, session| {
            let may_come_back = |away| away < self.limits.linger && !session.has_nothing();
            let is_here = session.away_for(now).is_none_or(may_come_back);
            let stays = is_here || awaited == Some(*id) || session.is_changing();
            if !stays {
                swept.push(Arc::clone(session));
            }
            stays
        });
        // Dropped without the lock: closing a file may wait for the disk.
        swept.len()
    }

    /// Returns the number of clients that have a session.
    pub(crate) fn clients(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Returns true if it has no client, and its lease awaits no owner. Opened again, it knows the owner of the lease
    /// from the note.
    pub(crate) fn is_unused(&self) -> bool {
        self.clients() == 0 && self.lease.awaits(self.limits.linger).is_none()
    }

    fn use_replacement(&self) -> Replacing<'_> {
        loop {
            let seen = self.replaced.generation();
            if !self.replacing.swap(true, Ordering::AcqRel) {
                return Replacing(self);
            }
            self.replaced.wait(seen, None);
        }
    }

    /// Copies the first `bytes` of a file to a new one that takes its name, and gives the writer of that one.
    fn copy_front(&self, name: FileName, bytes: u64) -> Result<Box<dyn situ_storage::Writer>> {
        let volume = &self.volume;
        let old = match volume.open(name) {
            // Its name was not synced either.
            Err(Error::NotFound { .. }) if bytes == 0 => return volume.create(name, bytes),
            opened => opened?,
        };
        if old.bytes() < bytes {
            let found = format!("the end of the file at {}", old.bytes());
            return Err(Error::corruption(
                old.path(),
                old.bytes(),
                "file length",
                format!("{bytes} synced bytes"),
                found,
            ));
        }
        let mut front = vec![0; COPY_BYTES.min(bytes as usize)];
        let _replacing = self.use_replacement();
        match volume.remove(FileName::REPLACEMENT) {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut new = volume.create(FileName::REPLACEMENT, bytes)?;
        let copied = (|| {
            while new.written() < bytes {
                let piece = &mut front[..COPY_BYTES.min((bytes - new.written()) as usize)];
                old.read_at(new.written(), piece)?;
                new.append(piece)?;
            }
            new.sync()?;
            assert_eq!(new.written(), bytes, "{name} would lose bytes that its client has synced");
            volume.rename(FileName::REPLACEMENT, name)?;
            volume.sync_names()
        })();
        copied.map(|()| new)
    }
}

/// A file is copied in pieces of this size.
const COPY_BYTES: usize = 1 << 20;

impl Clients for Files {
    fn is_connected(&self, id: u128) -> bool {
        lock(&self.sessions).get(&id).is_some_and(|session| session.is_attached())
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.replacing.store(false, Ordering::Release);
        self.0.replaced.notify();
    }
}

#[cfg(test)]
mod tests;
