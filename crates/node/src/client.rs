//! The host's end of a node: one connection that is kept alive, a session that outlives it, and the right to write.
//!
//! 1. [`NodeClient::connect`] draws a session, connects and greets. The *keeper*, a thread, takes over.
//! 2. When the connection is lost, the keeper connects again, with growing pauses. On the new connection it first says
//!    which files stay open, then renews the lease. Only then do others use the connection.
//! 3. A request that was under way when the connection was lost is sent again on the next one, until the caller's
//!    patience is over: [`NodeOptions::read_patience`] or [`NodeOptions::write_patience`]. Every request can be sent
//!    twice; the table of `docs/formats/node-protocol.md` says why.
//! 4. While there is a lease, the keeper renews it three times in its time.
//!
//! **Invariants.** A request that changes something carries the token of the lease that was in force when it was first
//! sent. Of a lease that another host has by now, the client says so in [`fenced`](NodeClient::fenced), for good.
//!
//! **Threads.** The keeper; a thread for submitted reads that have to be tried again; two of the connection. All end on
//! drop.
//!
//! **Failure.** The node is slow: a request waits for its patience, if heartbeats come. The node is gone: requests wait
//! for a new connection, for their patience. The daemon was restarted: open files are opened again by name, writers are
//! lost. The machine was restarted: in addition, the host writes the pages again that were not synced
//! (`volume/buffered.rs`). An error names the node, and says since when it does not answer.

mod keeper;
mod retry;
mod watch;

pub(crate) use retry::Attempt;
pub use watch::{NodeState, OnState};

use crate::address::NodeAddress;
use crate::error::CallError;
use crate::greeting::{Introduction, NoRequests};
use crate::message::{Goodbye, Lock, Unlock, Welcome};
use crate::peer::{Connection, Handler, Peer, PeerOptions, Traffic};
use crate::secret::{Secret, random};
use crate::transport::TlsRoots;
use retry::Again;
use situ_base::{Env, Event, JobHandle, lock};
use situ_storage::{Error, Result};
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The settings of a host's client of a node.
#[derive(Clone)]
pub struct NodeOptions {
    /// The secret, if the node has one.
    pub secret: Option<Secret>,
    /// For TLS: the certificates that the host believes.
    pub tls: Option<TlsRoots>,
    /// The time for which a read waits for a node that does not answer. 5 s.
    pub read_patience: Duration,
    /// The time for which a change waits for a node that does not answer. 30 s.
    pub write_patience: Duration,
    /// The maximum time to connect and to greet. 5 s.
    pub connect_timeout: Duration,
    /// The first pause before the host connects again; pauses double up to `reconnect_max`. 50 ms.
    pub reconnect_min: Duration,
    /// The longest pause. 2 s.
    pub reconnect_max: Duration,
    /// The size of the pieces that a writer sends: an urgent request may have to wait for one piece. 128 KiB.
    pub append_bytes: usize,
    /// The maximum number of bytes that a writer has under way. 4 MiB.
    pub append_bytes_in_flight: usize,
    /// A node that cannot be reached at first is no error: the client goes on trying. No.
    pub may_be_lost: bool,
    /// The listener that gets the news when the node is lost, and when it is back. None.
    pub on_state: Option<OnState>,
    /// The settings of the connection.
    pub peer: PeerOptions,
    /// Threads and time.
    pub env: Env,
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            secret: None,
            tls: None,
            read_patience: Duration::from_secs(5),
            write_patience: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(2),
            append_bytes: 128 << 10,
            append_bytes_in_flight: 4 << 20,
            may_be_lost: false,
            on_state: None,
            peer: PeerOptions::default(),
            env: Env::system(),
        }
    }
}

impl fmt::Debug for NodeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeOptions { read_patience, write_patience, .. } = self;
        write!(f, "NodeOptions(reads {read_patience:?}, writes {write_patience:?})")
    }
}

/// The maximum time that the last words of a client take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A node, as a host sees it. Dropped, it ends the session: the node closes what it has open.
pub struct NodeClient {
    shared: Arc<Shared>,
    threads: Vec<Box<dyn JobHandle>>,
}

pub(crate) struct Shared {
    pub(crate) address: NodeAddress,
    pub(crate) options: NodeOptions,
    introduction: Introduction,
    traffic: Arc<Traffic>,
    handler: Arc<dyn Handler>,
    state: Mutex<State>,
    /// The state is another one.
    changed: Arc<dyn Event>,
    again: Again,
    last_handle: AtomicU64,
}

struct State {
    connection: Option<Arc<Connection>>,
    /// Counts connections.
    epoch: u64,
    welcome: Option<Welcome>,
    /// Since when there is no connection, and why.
    lost: Option<(Duration, String)>,
    /// The listener has got the news that the node is lost, and has yet to hear that it is back.
    is_loss_told: bool,
    is_closed: bool,
    /// The time until which callers wait for a lost node.
    hurry_until: Option<Duration>,
    lease: Option<Held>,
    fenced: Option<String>,
    /// The shortest that the longest payload has been on any connection.
    payload_bytes_max: usize,
    /// Numbers of open files and page files.
    handles: HashSet<u64>,
}

/// A lease that this client has.
#[derive(Clone, Copy)]
struct Held {
    token: u64,
    ttl: Duration,
    /// The time at which the keeper renews it.
    renew_at: Duration,
}

impl NodeClient {
    /// Connects to a node that asks nothing of its host.
    ///
    /// # Errors
    /// As [`connect_with`](NodeClient::connect_with).
    pub fn connect(address: NodeAddress, options: NodeOptions) -> Result<NodeClient> {
        NodeClient::connect_with(address, options, Arc::new(NoRequests))
    }

    /// Connects to a node. `handler` takes what the node asks of its host. An address that answers nothing is tried
    /// until [`NodeOptions::read_patience`] is over.
    ///
    /// # Errors
    /// The address does not answer, or the node refuses: version, secret, store.
    pub fn connect_with(address: NodeAddress, options: NodeOptions, handler: Arc<dyn Handler>) -> Result<NodeClient> {
        let introduction = Introduction {
            store: address.store.clone(),
            session: random()?,
            from: format!("situ {}, process {}", env!("CARGO_PKG_VERSION"), std::process::id()),
            secret: options.secret.clone(),
            payload_bytes_max: options.peer.payload_bytes_max,
        };
        let state = State {
            connection: None,
            epoch: 0,
            welcome: None,
            lost: Some((options.env.clock.now(), "no connection was made yet".to_owned())),
            is_loss_told: false,
            is_closed: false,
            hurry_until: None,
            lease: None,
            fenced: None,
            payload_bytes_max: options.peer.payload_bytes_max as usize,
            handles: HashSet::new(),
        };
        let executor = Arc::clone(&options.env.executor);
        let shared = Arc::new(Shared {
            address,
            introduction,
            traffic: Arc::new(Traffic::default()),
            handler,
            state: Mutex::new(state),
            changed: executor.event(),
            again: Again::new(executor.event()),
            last_handle: AtomicU64::new(0),
            options,
        });
        shared.connect_first().map_err(|error| error.into_storage("open", &shared.address.to_string()))?;
        let mut client = NodeClient { shared: Arc::clone(&shared), threads: Vec::new() };
        let refused = |e| Error::io("start thread", "node-keeper", e);
        let (keeping, again) = (Arc::clone(&shared), shared);
        client.threads.push(executor.spawn("node-keeper", Box::new(move || keeper::run(&keeping))).map_err(refused)?);
        client.threads.push(executor.spawn("node-again", Box::new(move || retry::run(&again))).map_err(refused)?);
        Ok(client)
    }

    /// Returns the node's address.
    pub fn address(&self) -> &NodeAddress {
        &self.shared.address
    }

    /// Returns the counts of bytes that crossed the wire, of all connections so far.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.shared.traffic
    }

    /// Returns the node's welcome on the last connection.
    pub fn welcome(&self) -> Option<Welcome> {
        lock(&self.shared.state).welcome.clone()
    }

    /// Returns the connection as it is, if there is one; for requests that are not to be sent again by themselves.
    pub fn peer(&self) -> Option<Peer> {
        self.shared.alive().map(|attempt| attempt.peer)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// There is none within `patience`.
    pub fn wait_for_peer(&self, patience: Duration) -> Result<Peer, CallError> {
        let deadline = self.shared.now() + patience;
        self.shared.connected(deadline).map(|attempt| attempt.peer)
    }

    /// Returns the time since when there is no connection, and the reason; `None` while there is one.
    pub fn lost(&self) -> Option<(Duration, String)> {
        self.shared.lost()
    }

    /// Returns the reason why this host must not write any more: another one has the lease.
    pub fn fenced(&self) -> Option<String> {
        lock(&self.shared.state).fenced.clone()
    }

    /// Returns the token of the lease; 0 without one.
    pub fn token(&self) -> u64 {
        self.shared.token()
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> u64 {
        lock(&self.shared.state).epoch
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for NodeClient {
    fn drop(&mut self) {
        let connection = {
            let mut state = lock(&self.shared.state);
            state.is_closed = true;
            state.connection.take()
        };
        if let Some(connection) = &connection {
            // The node ends the session by itself if this does not arrive.
            let _ = connection.peer().ask(&Goodbye {}, GOODBYE_TIMEOUT);
        }
        drop(connection);
        self.shared.changed.notify();
        self.shared.again.close();
        for thread in &self.threads {
            // A panic there has been printed; this end is over anyway.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeClient({})", self.shared.address)
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Duration {
        self.options.env.clock.now()
    }

    /// The node, for messages.
    pub(crate) fn node(&self) -> String {
        format!("node {}", self.address.place)
    }

    pub(crate) fn token(&self) -> u64 {
        lock(&self.state).lease.map_or(0, |lease| lease.token)
    }

    /// Returns the maximum payload of a request, on this connection and on those before.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        lock(&self.state).payload_bytes_max
    }

    /// A number for an open file or a writer: each once in a session.
    pub(crate) fn new_handle(&self) -> u64 {
        self.last_handle.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The file stays open when a new connection is made.
    pub(crate) fn keep_open(&self, handle: u64) {
        lock(&self.state).handles.insert(handle);
    }

    pub(crate) fn let_go(&self, handle: u64) {
        lock(&self.state).handles.remove(&handle);
    }

    pub(crate) fn lost(&self) -> Option<(Duration, String)> {
        let state = lock(&self.state);
        let lost = match &state.connection {
            Some(connection) => connection.peer().lost().map(|error| (connection.peer().silent_for(), error.words())),
            None => None,
        };
        let earlier = state.lost.clone().map(|(since, why)| (self.now().saturating_sub(since), why));
        lost.or(earlier)
    }

    /// Takes the right to write.
    pub(crate) fn take_lease(&self) -> Result<u64, CallError> {
        let patience = self.options.write_patience;
        let lease = self.retry(patience, |attempt| attempt.ask(&Lock { volume: 0 }))?;
        let ttl = Duration::from_millis(lease.ttl_ms.into());
        let mut state = lock(&self.state);
        state.lease = Some(Held { token: lease.token, ttl, renew_at: self.now() + ttl / 3 });
        state.fenced = None;
        drop(state);
        self.changed.notify();
        Ok(lease.token)
    }

    /// Gives it back.
    pub(crate) fn give_lease_back(&self, token: u64) {
        let mut state = lock(&self.state);
        if state.lease.is_some_and(|lease| lease.token == token) {
            state.lease = None;
        }
        drop(state);
        if let Some(attempt) = self.alive() {
            // If it does not arrive, the lease ends by itself.
            let _ = attempt.peer.ask(&Unlock { token }, GOODBYE_TIMEOUT);
        }
    }
}

#[cfg(test)]
mod tests;
