//! The daemon: listens, lets clients in, and has services answer them.
//!
//! ```text
//!   listener ──> greeting thread ──> Connection ── Doorkeeper ──> Client ── table of services ──> FileService, others
//!   (one thread)  (TLS, one each)    (two threads)  (secret)   │                                    │ pool of threads
//!                                                   entry thread (one each)                         v
//!   janitor: ends greetings that take long, drops lost connections                              Files ── Volume
//!   sweeper: sessions whose clients are gone, stores without users
//! ```
//! 1. A listener's thread accepts. A connection has a place among the greetings until its client has proven itself
//!    (`daemon/greetings.rs`). One that has not after [`GREETING`] is hung up on.
//! 2. A thread of the connection's own agrees on TLS. Then its reader thread greets ([`Doorkeeper`]).
//! 3. A thread of its own lets a client in that has proven itself: that opens the store, and waits for changes of the
//!    client's former connection. The client is attached to its session. A further client than
//!    [`DaemonOptions::connections_max`] gets the answer to try again. Then its requests go to the services by their
//!    operation.
//! 4. [`Daemon::stop`] takes no new connections and requests, lets what is running end, and then hangs up. Clients ask
//!    again for what was not answered. Leases stay noted: their owners go on when the node is back.
//!
//! **Bounds.** Connections, stores, sessions, open files, threads, bytes of requests (the peer's credit) and of answers
//! (a thread that answers waits for room). A connection that is silent is ended by its peer.
//!
//! **Failure.** A disk that does not answer holds up every caller that asks for it, the threads that let clients of its
//! stores in, and the sweeper. Greetings, the janitor and other stores go on. A session has one entry thread at a time,
//! however often its client connects. A listener that cannot accept, because too many files are open, tries again after
//! a moment. A service that panics leaves its request unanswered, which answers it with an error.

mod file_service;
mod greetings;
mod home;
mod metrics;
mod pool;
mod service;
mod stores;
mod task_service;

pub use service::{Caller, ChangePass, Service};
pub use stores::Storage;
pub use task_service::TaskService;

use crate::address::Place;
use crate::error::CallError;
use crate::fields::Bytes;
use crate::files::{Limits, OpenFiles};
use crate::frame::Side;
use crate::greeting::{Door, Doorkeeper, Entry};
use crate::lease::Owner;
use crate::message::{Done, GetHealth, GetMetrics, Health, Hello, Metrics, Operation, Welcome};
use crate::peer::{Connection, Handler, Peer, PeerOptions, Reply, Traffic};
use crate::secret::{Secret, random};
use crate::transport::{Accepted, Listener, ServerTls};
use file_service::FileService;
use greetings::Greetings;
use pool::{Pool, Strands};
use rustix::process::{Resource, getrlimit};
use service::{answer, finish};
use situ_base::{Clock, Env, Event, JobHandle, SystemClock, lock};
use situ_storage::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stores::Stores;

/// The maximum time for a client to prove itself.
const GREETING: Duration = Duration::from_secs(10);
/// The maximum interval between two looks of the janitor. It also looks several times in the term of a lease.
const JANITOR: Duration = Duration::from_secs(1);
/// A request that keeps the reader thread of its connection for this long keeps it from hearing the client.
const HELD_UP: Duration = Duration::from_millis(50);
/// The minimum interval between two renewals of a lease by frames that come from its owner.
const HEARD: Duration = Duration::from_millis(30);
/// A listener that cannot accept tries again after this.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// The time that a daemon which is dropped waits for its requests.
const DROP_PATIENCE: Duration = Duration::from_secs(10);
/// A lease cannot have a shorter term: an owner renews it several times in a term.
const TERM_MIN: Duration = Duration::from_millis(300);

/// The settings of a node.
pub struct DaemonOptions {
    /// The storage for its files; `None` of a node that only computes.
    pub storage: Option<Storage>,
    /// The addresses that it listens on.
    pub listen: Vec<Place>,
    /// The secret that clients have to prove. Without one, the node listens on this machine only.
    pub secret: Option<Secret>,
    /// The node's certificate, by which it shows its identity and encrypts. Default: none.
    pub tls: Option<ServerTls>,
    /// Stores that it keeps. Default: 1024.
    pub stores_max: usize,
    /// Connections at once whose clients were let in. Default: 256.
    pub connections_max: usize,
    /// Threads that wait for the disk. Default: 32.
    pub threads: usize,
    /// After how long without a sign the owner of a store may lose it to another client. Default: 10 s.
    pub lease_term: Duration,
    /// The time for which open files are kept for a client without a connection. Default: 5 min.
    pub session_linger: Duration,
    /// The settings of connections.
    pub peer: PeerOptions,
    /// The services of the node, in addition to files.
    pub services: Vec<Arc<dyn Service>>,
    /// The program and its version, for clients' logs.
    pub from: String,
}

impl Default for DaemonOptions {
    fn default() -> DaemonOptions {
        DaemonOptions {
            storage: None,
            listen: Vec::new(),
            secret: None,
            tls: None,
            stores_max: 1024,
            connections_max: 256,
            threads: 32,
            lease_term: Duration::from_secs(10),
            session_linger: Limits::default().linger,
            peer: PeerOptions::default(),
            services: Vec::new(),
            from: format!("situ-node {}", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// A running node.
pub struct Daemon {
    shared: Arc<Shared>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    threads: Mutex<Vec<Box<dyn JobHandle>>>,
}

struct Shared {
    env: Env,
    stores: Option<Stores>,
    secret: Option<Secret>,
    tls: Option<Arc<ServerTls>>,
    connections_max: usize,
    lease_term: Duration,
    session_linger: Duration,
    peer: PeerOptions,
    from: String,
    /// Drawn when the daemon starts.
    daemon: [u8; 16],
    /// Drawn when the machine starts.
    machine: [u8; 16],
    started: Duration,
    traffic: Arc<Traffic>,
    pool: Pool,
    services: HashMap<Operation, Arc<dyn Service>>,
    all_services: Vec<Arc<dyn Service>>,
    stopping: AtomicBool,
    /// Requests that came while the node stops. Their clients ask again on another connection, when the node is back.
    parked: Mutex<Vec<Reply>>,
    /// Connections whose clients have not proven themselves.
    greetings: Greetings,
    /// Connections whose clients have proven themselves.
    connections: AtomicUsize,
    /// Connections that were accepted, and whose threads have not ended.
    accepted: AtomicUsize,
    /// Clients that are just being let in: store and session.
    entering: Mutex<HashSet<Entering>>,
    /// Threads that let clients in.
    entries: AtomicUsize,
    open: Mutex<HashMap<u64, Made>>,
    /// The janitor has something to do.
    work: Arc<dyn Event>,
}

/// A connection that was made.
struct Made {
    connection: Connection,
    keeper: Arc<Doorkeeper>,
    door: Arc<NodeDoor>,
}

/// The store and the session of a client.
type Entering = (String, [u8; 16]);

impl Daemon {
    /// Starts a node.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): it has no secret and shall listen for other machines, or something else makes no
    /// sense; an address or the directory cannot be used.
    pub fn start(env: &Env, options: DaemonOptions) -> Result<Daemon> {
        check(&options)?;
        let listen = options.listen.clone();
        let shared = Arc::new(Shared::new(env, options)?);
        let listeners = listen.iter().map(|place| Listener::bind(place).map(Arc::new)).collect::<Result<Vec<_>>>()?;
        let daemon = Daemon { shared, listeners: Mutex::new(listeners), threads: Mutex::default() };
        for listener in daemon.listeners() {
            let shared = Arc::clone(&daemon.shared);
            daemon.spawn("node-listen", Box::new(move || shared.listen(&listener)))?;
        }
        let shared = Arc::clone(&daemon.shared);
        daemon.spawn("node-janitor", Box::new(move || shared.clean()))?;
        let shared = Arc::clone(&daemon.shared);
        daemon.spawn("node-sweeper", Box::new(move || shared.sweep()))?;
        Ok(daemon)
    }

    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> Result<()> {
        let spawned = self.shared.env.executor.spawn(name, job);
        lock(&self.threads).push(spawned.map_err(|error| Error::io("start thread", name, error))?);
        Ok(())
    }

    fn listeners(&self) -> Vec<Arc<Listener>> {
        lock(&self.listeners).clone()
    }

    /// Returns the addresses that it listens on, with the ports that the system has chosen.
    pub fn places(&self) -> Vec<Place> {
        self.listeners().iter().filter_map(|listener| listener.place().ok()).collect()
    }

    /// Returns the counts of bytes and requests of all connections.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.shared.traffic
    }

    /// Ends the node: lets what is running end, for `patience` at most. True if everything that clients had asked for
    /// was answered.
    pub fn stop(&self, patience: Duration) -> bool {
        let shared = &self.shared;
        if shared.stopping.swap(true, Ordering::SeqCst) {
            return true;
        }
        self.listeners().iter().for_each(|listener| listener.wake());
        let is_over = shared.pool.drain(patience);
        shared.work.notify();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            let _ = thread.join();
        }
        lock(&self.listeners).clear();
        // A thread that a disk holds back is left alone: it ends with its request.
        shared.pool.end(is_over);
        let open = std::mem::take(&mut *lock(&shared.open));
        drop(open);
        shared.await_entries(patience);
        // Their connections are gone: no caller gets an answer.
        let parked = std::mem::take(&mut *lock(&shared.parked));
        drop(parked);
        shared.stores.iter().for_each(Stores::close);
        is_over
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop(DROP_PATIENCE);
    }
}

fn check(options: &DaemonOptions) -> Result<()> {
    let refuse = |why: String| Err(Error::Invalid(why));
    if options.listen.is_empty() {
        return refuse("a node listens somewhere: name an address or a socket file".to_owned());
    }
    if options.lease_term < TERM_MIN {
        return refuse(format!("a lease has a term of {} ms at least", TERM_MIN.as_millis()));
    }
    match options.listen.iter().find(|place| !place.is_local()) {
        Some(place) if options.secret.is_none() => refuse(format!(
            "without a secret, a node listens on this machine only, and {place} can be reached by others. Give a file that holds a \
             secret (--secret-file FILE), or listen on 127.0.0.1 or on a socket file"
        )),
        _ => Ok(()),
    }
}

/// Returns the machine's own number of this start. If the system does not give it, returns a number that no other start
/// has.
fn machine() -> Result<[u8; 16]> {
    // The bytes of the number as it is written, first to last.
    let reversed = |mut boot: [u8; 16]| {
        boot.reverse();
        Ok(boot)
    };
    SystemClock::default().boot().map_or_else(random, reversed)
}

/// Files that clients may have open: three quarters of what the system lets the process have. The rest is for
/// connections, locks, notes and tasks.
fn files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit / 4 * 3).unwrap_or(usize::MAX))
}

impl Shared {
    fn new(env: &Env, options: DaemonOptions) -> Result<Shared> {
        let limits = Limits { open: OpenFiles::new(files_max()), linger: options.session_linger, ..Limits::default() };
        let (term, linger) = (options.lease_term, options.session_linger);
        let stores_max = options.stores_max;
        let stores = options.storage.map(|storage| Stores::new(env, storage, stores_max, term, limits)).transpose()?;
        let mut all_services = options.services;
        all_services.push(Arc::new(FileService));
        let mut services = HashMap::new();
        for service in &all_services {
            for operation in service.operations() {
                // The first one has it: a service may do better what another one does, too.
                services.entry(*operation).or_insert_with(|| Arc::clone(service));
            }
        }
        let pool = Pool::start(env, options.threads).map_err(|error| Error::io("start thread", "node-work", error))?;
        Ok(Shared {
            env: env.clone(),
            stores,
            secret: options.secret,
            tls: options.tls.map(Arc::new),
            connections_max: options.connections_max,
            lease_term: term,
            session_linger: linger,
            peer: options.peer,
            from: options.from,
            daemon: random()?,
            machine: machine()?,
            started: env.clock.now(),
            traffic: Arc::new(Traffic::default()),
            pool,
            services,
            all_services,
            stopping: AtomicBool::new(false),
            parked: Mutex::default(),
            greetings: Greetings::default(),
            connections: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            entering: Mutex::default(),
            entries: AtomicUsize::new(0),
            open: Mutex::default(),
            work: env.executor.event(),
        })
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn listen(self: &Arc<Shared>, listener: &Listener) {
        while !self.is_stopping() {
            match listener.accept() {
                Ok(accepted) if !self.is_stopping() => self.admit(accepted),
                Ok(_) => {}
                Err(_) => self.env.clock.sleep(ACCEPT_AGAIN),
            }
        }
    }

    fn admit(self: &Arc<Shared>, accepted: Accepted) {
        let most = self.connections_max + 2 * greetings::MOST;
        let Ok(hang_up) = accepted.hang_up() else { return };
        if self.accepted.fetch_add(1, Ordering::SeqCst) >= most {
            // Connections end faster than the janitor looks: it looks at once.
            self.accepted.fetch_sub(1, Ordering::SeqCst);
            return self.work.notify();
        }
        let number = self.greetings.begin(self.env.clock.now(), hang_up);
        let shared = Arc::clone(self);
        let begun = self.env.executor.spawn("node-greet", Box::new(move || shared.begin(accepted, number)));
        if begun.is_err() {
            self.greetings.end(number);
            self.accepted.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn begin(self: &Arc<Shared>, accepted: Accepted, number: u64) {
        let door = Arc::new(NodeDoor { shared: Arc::clone(self), greeting: number, seat: Mutex::new(Seat::Free) });
        let keeper = Arc::new(Doorkeeper::new(Arc::clone(&door) as Arc<dyn Door>));
        let begun = accepted.open(self.tls.as_ref(), GREETING).and_then(|stream| {
            let (handler, traffic) = (Arc::clone(&keeper), Arc::clone(&self.traffic));
            Connection::begin(&self.env, Side::Device, stream, self.peer.clone(), handler, traffic)
        });
        match begun {
            Ok(connection) => self.keep(Made { connection, keeper, door }),
            Err(_) => door.leave(),
        }
    }

    fn keep(&self, open: Made) {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let late = {
            let mut all = lock(&self.open);
            match self.is_stopping() {
                true => Some(open),
                false => all.insert(NEXT.fetch_add(1, Ordering::Relaxed), open),
            }
        };
        drop(late);
        self.work.notify();
    }

    /// The janitor's thread. It waits for no disk.
    fn clean(&self) {
        while !self.is_stopping() {
            let seen = self.work.generation();
            self.greetings.end_before(self.env.clock.now().saturating_sub(GREETING));
            self.drop_ended();
            self.renew_held_up();
            self.work.wait(seen, Some(JANITOR.min(self.lease_term / 4)));
        }
    }

    /// A change that the disk holds up on the reader thread of its connection is a sign of its client, whose heartbeats
    /// stay unread meanwhile. The lease could not be handed over before the change ends anyway.
    fn renew_held_up(&self) {
        let held_up = |open: &&Made| open.connection.peer().held_up_for() >= HELD_UP;
        let is_alive = |open: &&Made| open.connection.peer().lost().is_none();
        let of = |open: &Made| (Arc::clone(&open.keeper), open.connection.peer().clone());
        let all: Vec<_> = lock(&self.open).values().filter(held_up).filter(is_alive).map(of).collect();
        all.iter().for_each(|(keeper, peer)| keeper.heard(peer));
    }

    /// Waits for the threads that let clients in. One that a disk holds back is left alone.
    fn await_entries(&self, patience: Duration) {
        let deadline = self.env.clock.now() + patience;
        loop {
            let seen = self.work.generation();
            let left = deadline.saturating_sub(self.env.clock.now());
            if self.entries.load(Ordering::SeqCst) == 0 || left.is_zero() {
                return;
            }
            self.work.wait(seen, Some(left));
        }
    }

    /// The sweeper's thread. Closing files may wait for a disk.
    fn sweep(&self) {
        while !self.is_stopping() {
            let seen = self.work.generation();
            if let Some(stores) = &self.stores {
                stores.sweep();
            }
            self.all_services.iter().for_each(|service| service.tick());
            self.work.wait(seen, Some(JANITOR));
        }
    }

    /// Drops connections whose threads have ended. One whose thread waits for something keeps its place.
    fn drop_ended(&self) {
        let ended: Vec<(u64, Made)> = lock(&self.open).extract_if(|_, open| open.connection.has_ended()).collect();
        ended.iter().for_each(|(_, open)| open.door.leave());
    }

    fn metrics(&self) -> Metrics {
        let (waiting, running) = self.pool.load();
        let (stores, clients) = self.stores.as_ref().map(Stores::count).unwrap_or_default();
        let uptime = self.env.clock.now().saturating_sub(self.started);
        let message = metrics::message(&[
            (metrics::Figure::RequestsWaiting, waiting as u64),
            (metrics::Figure::RequestsRunning, running as u64),
            (metrics::Figure::Connections, (self.connections.load(Ordering::SeqCst) + self.greetings.count()) as u64),
            (metrics::Figure::Stores, stores as u64),
            (metrics::Figure::Clients, clients as u64),
            (metrics::Figure::UptimeMs, u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX)),
        ]);
        Metrics { message: Bytes(message) }
    }

    fn health(&self) -> Health {
        let mut troubles = self.stores.as_ref().map(Stores::troubles).unwrap_or_default();
        let (waiting, running) = self.pool.load();
        if waiting > 0 && running > 0 && self.is_stopping() {
            troubles.push(format!("the node is stopping, and {waiting} requests wait"));
        }
        Health { ok: !self.is_stopping(), troubles, uptime: self.env.clock.now().saturating_sub(self.started) }
    }
}

/// Lets the client of one connection in.
struct NodeDoor {
    shared: Arc<Shared>,
    /// The connection's number among the greetings.
    greeting: u64,
    seat: Mutex<Seat>,
}

/// A connection's part of the node's bounds.
enum Seat {
    Free,
    /// It counts as one of the connections.
    Taken,
    /// The connection is over.
    Left,
}

/// A client is just being let in, until this is dropped.
struct Entrance<'a>(&'a Shared, Entering);

impl Drop for Entrance<'_> {
    fn drop(&mut self) {
        lock(&self.0.entering).remove(&self.1);
    }
}

impl NodeDoor {
    /// The client has proven itself: its connection counts among those that are let in.
    fn sit_down(&self) -> Result<(), CallError> {
        let (shared, most) = (&self.shared, self.shared.connections_max);
        let mut seat = lock(&self.seat);
        if !shared.greetings.end(self.greeting) || !matches!(*seat, Seat::Free) {
            return Err(CallError::Busy("the connection is over".to_owned()));
        }
        if shared.connections.fetch_add(1, Ordering::SeqCst) >= most {
            shared.connections.fetch_sub(1, Ordering::SeqCst);
            return Err(CallError::Busy(format!("the node has {most} connections, and takes no more")));
        }
        *seat = Seat::Taken;
        Ok(())
    }

    /// The connection is over, and so are its threads.
    fn leave(&self) {
        self.shared.greetings.end(self.greeting);
        self.shared.accepted.fetch_sub(1, Ordering::SeqCst);
        if matches!(std::mem::replace(&mut *lock(&self.seat), Seat::Left), Seat::Taken) {
            self.shared.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Door for NodeDoor {
    fn secret(&self) -> Option<&Secret> {
        self.shared.secret.as_ref()
    }

    fn payload_bytes_max(&self) -> u32 {
        self.shared.peer.payload_bytes_max
    }

    /// On a thread of its own. A session has one such thread: a client that connects again while its store's disk does
    /// not answer would leave one for each connection.
    fn begin_entry(&self, hello: &Hello, entry: Entry) {
        let shared = Arc::clone(&self.shared);
        let entering = (hello.store.clone(), hello.session);
        let begins = {
            let mut all = lock(&shared.entering);
            all.len() < shared.connections_max && all.insert(entering.clone())
        };
        if !begins {
            return;
        }
        shared.entries.fetch_add(1, Ordering::SeqCst);
        let counted = Arc::clone(&shared);
        let job = Box::new(move || {
            // A panic has dropped the reply, which answers it.
            let _ = catch_unwind(AssertUnwindSafe(entry));
            counted.entries.fetch_sub(1, Ordering::SeqCst);
            counted.work.notify();
        });
        if shared.env.executor.spawn("node-enter", job).is_err() {
            shared.entries.fetch_sub(1, Ordering::SeqCst);
            lock(&shared.entering).remove(&entering);
        }
    }

    fn enter(&self, peer: &Peer, hello: &Hello) -> Result<(Welcome, Arc<dyn Handler>), CallError> {
        let shared = &self.shared;
        // Ends before the client hears of it: the client may connect again at once.
        let _entrance = Entrance(shared, (hello.store.clone(), hello.session));
        self.sit_down()?;
        if shared.is_stopping() {
            peer.hang_up("the node is stopping");
            return Err(CallError::Busy("the node is stopping".to_owned()));
        }
        let session = u128::from_be_bytes(hello.session);
        let name = format!("{} ({})", hello.from, peer.name());
        let (files, session_known) = match (&shared.stores, hello.store.is_empty()) {
            (_, true) => (None, false),
            (None, false) => return Err(CallError::Refused("this node computes, and keeps no files".to_owned())),
            (Some(stores), false) => {
                let owner = Owner { id: session, name: hello.from.clone() };
                let (files, known) = stores.find(&hello.store)?.attach(&owner)?;
                (Some(files), known)
            }
        };
        let location = files.as_ref().map_or_else(String::new, |files| files.volume().location());
        let welcome = Welcome {
            proof: [0; 32],
            daemon: shared.daemon,
            machine: shared.machine,
            session_known,
            stores: shared.stores.is_some(),
            session_ms: u32::try_from(shared.session_linger.as_millis()).unwrap_or(u32::MAX),
            location,
            from: shared.from.clone(),
        };
        let caller = Arc::new(Caller {
            peer: peer.clone(),
            session,
            name,
            store: hello.store.clone(),
            files,
            lane: shared.pool.lane(),
            strands: Arc::new(Strands::default()),
            token: AtomicU64::new(0),
        });
        let caller = Mutex::new(Some(caller));
        Ok((welcome, Arc::new(Client { shared: Arc::clone(shared), caller, renewed_ns: AtomicU64::new(0) })))
    }
}

/// A client that was let in: its requests go to services.
struct Client {
    shared: Arc<Shared>,
    /// Gone when the connection is lost: the caller has the connection, and the connection has this.
    caller: Mutex<Option<Arc<Caller>>>,
    /// The time at which a frame has renewed the client's lease, in nanoseconds of the clock.
    renewed_ns: AtomicU64,
}

impl Handler for Client {
    fn request(&self, _: &Peer, operation: u16, payload: Vec<u8>, reply: Reply) {
        let shared = &self.shared;
        let Some(caller) = lock(&self.caller).clone() else { return };
        let Some(operation) = Operation::of(operation) else {
            return reply.fail(&CallError::Unsupported(format!("this node does not know operation {operation:#x}")));
        };
        match (operation, shared.services.get(&operation)) {
            (Operation::Heartbeat, _) => reply.tell(&Done {}),
            (Operation::GetMetrics, None) => finish(reply, answer(&payload, |_: GetMetrics| Ok(shared.metrics()))),
            (Operation::GetHealth, None) => finish(reply, answer(&payload, |_: GetHealth| Ok(shared.health()))),
            _ if shared.is_stopping() => lock(&shared.parked).push(reply),
            (Operation::Goodbye, _) => goodbye(&caller, reply),
            (_, Some(service)) => service.request(&caller, operation, payload, reply),
            (_, None) => {
                let name = operation.name();
                reply.fail(&CallError::Unsupported(format!("{name} is not what this node does")));
            }
        }
    }

    /// Whatever comes says that the owner of a lease is alive. A `Renew` has to wait for credit, and heartbeats do not.
    fn heard(&self, _: &Peer) {
        let now = self.shared.env.clock.now();
        if now.saturating_sub(Duration::from_nanos(self.renewed_ns.load(Ordering::Relaxed))) < HEARD {
            return;
        }
        self.renewed_ns.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Some(caller) = lock(&self.caller).clone() {
            caller.renew();
        }
    }

    fn lost(&self, _: &Peer, _: &CallError) {
        let Some(caller) = lock(&self.caller).take() else { return };
        for service in &self.shared.all_services {
            service.gone(&caller);
        }
        self.shared.work.notify();
    }
}

/// The session ends.
fn goodbye(caller: &Arc<Caller>, reply: Reply) {
    let ended = Arc::clone(caller);
    caller.later(move || {
        if let Ok(files) = ended.files() {
            files.end();
        }
        reply.tell(&Done {});
    });
}

#[cfg(test)]
mod tests;
