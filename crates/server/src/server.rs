//! Starting and stopping a server.

use situ::base::{StoreClock, lock};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::admin::access::AccessTable;
use crate::admin::dump::Dumps;
use crate::admin::http::{self, Pages};
use crate::admin::metrics::Counters;
use crate::admin::notices::Notices;
use crate::admin::prefixes::Prefixes;
use crate::admin::stats::StatsSource;
use crate::admin::watch::Watchers;
use crate::commands::batcher::Batcher;
use crate::commands::execute::{Executor, Limits, Moment};
use crate::commands::read_side::ReadSide;
use crate::commands::turn::{Quotas, Share};
use crate::engine::cache::{CacheExtras, EvictedItem, OnTrouble};
use crate::engine::durable::Durable;
use crate::engine::item::ExpiryRule;
use crate::engine::{Engine, EngineError, MAX_VALUE_BYTES_LIMIT};
use crate::event_loop::loops::{LoopLimits, Loops};
use crate::event_loop::{EventLoop, Listener};
use crate::process::descriptors;
use crate::protocol::auth::Users;
use crate::protocol::interests;
use crate::waiting::fetch::{Fetches, READS_MAX};
use crate::waiting::inbox::{Inbox, Message};
use crate::waiting::room::Room;
use crate::waiting::stripe::Stripes;

const _: () =
    assert!(MAX_VALUE_BYTES_LIMIT + crate::commands::batcher::BATCH_BYTES_MAX + (512 << 10) <= situ::BATCH_BYTES_MAX);

/// Connections that may wait to be taken, as in memcached.
const BACKLOG: i32 = 1024;

/// How a server is set up. Start from [`ServerOptions::default`] and change what you need.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// TCP addresses to serve. Port 0 takes a free port; see [`Server::addresses`]. Default: 127.0.0.1:11211.
    pub listen: Vec<SocketAddr>,
    /// Names to serve, as `host:port`: every address of the name, as in memcached. One that this machine does not have is
    /// passed over with a warning if another one can be served. Default: none.
    pub listen_names: Vec<String>,
    /// A Unix socket to serve, if any. A socket file that nobody listens on any more is replaced.
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of the Unix socket. Default: 0o700, only the same user, as in memcached.
    pub unix_socket_mode: u32,
    /// Where `/metrics` and `/healthz` are served over HTTP, if anywhere. Default: nowhere.
    pub http: Option<SocketAddr>,
    /// Event loops, each a thread. 0 takes one per core. Default: 0.
    pub threads: usize,
    /// Connections at a time; one more is told so and closed. An idle one costs under 1 KB here. Held to what the
    /// process's limit of open files leaves when a quarter is set aside for the engine: see
    /// [`Server::connections_max`]. Default: 10 240.
    pub max_connections: usize,
    /// Connections on which no byte has moved either way for this many seconds are closed, unless the engine owes them
    /// an answer; 0 never. Default: 0.
    pub idle_timeout_seconds: u64,
    /// Largest data block stored. Default: 1 MiB, as in memcached. At most [`MAX_VALUE_BYTES_LIMIT`].
    pub max_value_bytes: usize,
    /// Unsent answers of one connection, those that wait for a write included, above which nothing more is read from
    /// it. Default: 256 KiB. A single value may be larger. With more than 256 connections each has less: all together
    /// share 64 MiB, and none has less than 16 KiB.
    pub max_output_bytes: usize,
    /// Commands of one connection whose writes may be under way at once. Default: 1024.
    pub max_outstanding_writes: usize,
    /// File of those who may use the server, as memcached's `-Y`: a line `user:password` for each, 64 at most. A client
    /// sends `set <any key> 0 0 <length>` with the data `user password` first. Read once, at the start. Default: none,
    /// everybody may.
    pub auth_file: Option<PathBuf>,
    /// `flush_all` is refused, as with memcached's `-F`. Default: false.
    pub disable_flush_all: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 11211))],
            listen_names: Vec::new(),
            unix_socket: None,
            unix_socket_mode: 0o700,
            http: None,
            threads: 0,
            max_connections: 10_240,
            idle_timeout_seconds: 0,
            max_value_bytes: 1 << 20,
            max_output_bytes: 256 << 10,
            max_outstanding_writes: 1024,
            auth_file: None,
            disable_flush_all: false,
        }
    }
}

impl ServerOptions {
    /// Finds out what [`Server::start`] would refuse without an engine and without a socket, the file of users included.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn check(&self) -> Result<(), StartError> {
        check(self)?;
        self.users().map(drop)
    }

    fn users(&self) -> Result<Option<(Users, Option<String>)>, StartError> {
        self.auth_file.as_deref().map(Users::read).transpose().map_err(StartError::Option)
    }
}

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An option has no meaning; what to change.
    Option(String),
    /// An address cannot be listened on.
    Listen {
        /// The address or path.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// Threads, descriptors or memory are short.
    System(io::Error),
    /// The engine could not give or keep the server's own records.
    Engine(EngineError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Option(text) => f.write_str(text),
            StartError::Listen { address, source } => {
                write!(f, "cannot listen on {address}: {source}")?;
                match source.kind() {
                    io::ErrorKind::AddrInUse => f.write_str(
                        "; another process serves it (`ss -ltnp` shows which): stop that one or choose another address",
                    ),
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; ports below 1024 and some directories need rights that this user does not have")
                    }
                    io::ErrorKind::AddrNotAvailable => f.write_str("; this machine has no such address"),
                    _ => Ok(()),
                }
            }
            StartError::System(error) => write!(f, "the system refused a resource that the server needs: {error}"),
            StartError::Engine(error) => write!(f, "the engine could not be prepared for serving: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A signal that ended [`Server::wait_for_signal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT, as from a terminal.
    Interrupt,
    /// SIGTERM, as from a supervisor.
    Terminate,
}

/// The signals that a server obeys, caught from the moment this is made: none of them has its deadly default any more.
#[derive(Debug)]
pub struct CaughtSignals(Signals);

impl CaughtSignals {
    /// Catches SIGHUP, SIGINT and SIGTERM.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch() -> io::Result<CaughtSignals> {
        Signals::new([SIGHUP, SIGINT, SIGTERM]).map(CaughtSignals)
    }

    /// Blocks until SIGINT or SIGTERM. Each SIGHUP calls `on_hangup` (to reopen a log file, say) and goes on.
    pub fn wait(&mut self, mut on_hangup: impl FnMut()) -> StopSignal {
        loop {
            for signal in self.0.wait() {
                match signal {
                    SIGINT => return StopSignal::Interrupt,
                    SIGTERM => return StopSignal::Terminate,
                    _ => on_hangup(),
                }
            }
        }
    }
}

/// From now on a write that would make a file longer than the process may (`ulimit -f`) is an error, and does not end
/// the process: the signal for it has a deadly default.
///
/// # Errors
/// The system refuses.
pub fn outlive_file_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// A running server. Dropping it stops it with a deadline of one second.
pub struct Server {
    inboxes: Vec<Arc<Inbox>>,
    threads: Vec<JoinHandle<()>>,
    /// Readable from the moment of stopping on.
    http_stop: Arc<OwnedFd>,
    stop_at: Arc<Mutex<Option<Instant>>>,
    addresses: Vec<SocketAddr>,
    connections_max: usize,
    warnings: Vec<String>,
    notices: Arc<Notices>,
    http_address: Option<SocketAddr>,
    unix_socket: Option<PathBuf>,
    dumps: Arc<Dumps>,
    clock: Arc<StoreClock>,
    rule: Box<dyn Fn(u64) -> ExpiryRule + Send + Sync>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).field("http", &self.http_address).finish()
    }
}

impl Server {
    /// Starts serving `engine`; returns when all addresses accept connections.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub fn start<E: Engine>(options: &ServerOptions, engine: Arc<E>) -> Result<Server, StartError> {
        check(options)?;
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let users = options.users()?;
        let open_files_max = descriptors::raise_limit();
        let connections_max = descriptors::connections_max(open_files_max, options.max_connections, threads)
            .map_err(StartError::Option)?;
        let Listening { listeners, addresses, warnings: mut warned } = listen(options)?;
        warned.extend(warnings(options, connections_max, open_files_max, &users, &addresses));
        let http = match options.http {
            Some(address) => Some(listen_tcp(address)?),
            None => None,
        };
        let durable = Arc::new(Durable::open(Arc::clone(&engine)).map_err(StartError::Engine)?);
        let refused = durable.unreserved();
        warned.extend(refused.map(|error| format!("clients can read and delete, and store nothing yet: {error}")));
        let mut inboxes = Vec::new();
        for _ in 0..threads {
            inboxes.push(Arc::new(Inbox::new().map_err(StartError::System)?));
        }
        let counters: Vec<Arc<Counters>> = (0..threads).map(|_| Arc::default()).collect();
        let clock = Arc::clone(engine.clock());
        let started_seconds = clock.seconds();
        let watchers = Arc::new(Watchers::default());
        let (told, now) = (Arc::clone(&watchers), Arc::clone(&clock));
        if let Some(cache) = engine.cache() {
            cache.on_evicted(Box::new(move |item| {
                if told.want(interests::EVICTIONS) {
                    let EvictedItem { key, expires, value_bytes, was_read } = item;
                    let ttl = (expires != 0).then(|| expires.saturating_sub(now.seconds()));
                    told.evicted(key, was_read, ttl, value_bytes);
                }
            }));
        }
        let stats = Arc::new(StatsSource {
            counters: counters.clone(),
            started_seconds,
            connections_max,
            settings: settings(options, connections_max, threads, &addresses),
            baseline: Mutex::default(),
            prefixes: Prefixes::default(),
            watchers: Arc::clone(&watchers),
            verbosity: AtomicU32::new(0),
            reserved_descriptors: descriptors::reserve(open_files_max, threads),
        });
        let stop_at = Arc::new(Mutex::new(None));
        let started = Instant::now();
        let notices = Arc::new(Notices::default());
        let loops = Arc::new(Loops {
            inboxes: inboxes.clone(),
            clock: Arc::clone(&clock),
            limits: LoopLimits {
                connections_max,
                idle_timeout: (options.idle_timeout_seconds > 0)
                    .then(|| Duration::from_secs(options.idle_timeout_seconds)),
            },
            open: AtomicUsize::new(0),
            stop_at: Arc::clone(&stop_at),
        });
        let http_stop = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| StartError::System(error.into()))?;
        let mut server = Server {
            inboxes: inboxes.clone(),
            threads: Vec::new(),
            http_stop: Arc::new(http_stop),
            stop_at,
            addresses,
            connections_max,
            warnings: warned,
            notices: Arc::clone(&notices),
            http_address: http.as_ref().and_then(|listener| listener.local_addr().ok()),
            unix_socket: options.unix_socket.clone(),
            dumps: Arc::default(),
            clock,
            rule: {
                let durable = Arc::clone(&durable);
                Box::new(move |now_seconds| durable.rule(now_seconds))
            },
        };
        let stripes = Arc::new(Stripes::new(inboxes.clone()));
        let room = Arc::new(Room::default());
        let access = Arc::new(AccessTable::new(started_seconds));
        let users = users.map(|(users, _)| Arc::new(users));
        let mut listeners = Some(listeners);
        for (loop_index, (inbox, counters)) in inboxes.into_iter().zip(counters).enumerate() {
            let fetches = Fetches::new(Arc::clone(&inbox), (READS_MAX / threads).max(1));
            let batcher = Batcher::new(Arc::clone(&stripes), Arc::clone(&inbox), Arc::clone(&room));
            let executor = Executor {
                engine: Arc::clone(&engine),
                durable: Arc::clone(&durable),
                stripes: Arc::clone(&stripes),
                access: Arc::clone(&access),
                counters,
                stats: Arc::clone(&stats),
                dumps: Arc::clone(&server.dumps),
                inbox,
                loop_index,
                limits: Limits {
                    value_bytes_max: options.max_value_bytes,
                    output_bytes_option: options.max_output_bytes,
                    outstanding_answers_max: options.max_outstanding_writes,
                    flush_allowed: !options.disable_flush_all,
                },
                users: users.clone(),
                notices: Arc::clone(&notices),
                moment: Moment {
                    now: Instant::now(),
                    rule: durable.rule(started_seconds),
                    unix_ahead: loops.clock.difference_seconds(),
                },
                quotas: Quotas::new(Share::of(0, 0, options.max_output_bytes)),
                batcher,
                read_side: ReadSide { fetches, reader: engine.cache().and_then(CacheExtras::loop_reader) },
            };
            let event_loop = EventLoop::new(Arc::clone(&loops), executor, listeners.take().unwrap_or_default())
                .map_err(StartError::System)?;
            server.spawn(format!("situ-loop-{loop_index}"), move || event_loop.run())?;
        }
        if let Some(listener) = http {
            let pages = Pages { engine, durable, counters: stats.counters.clone(), started };
            let stop = Arc::clone(&server.http_stop);
            server.spawn("situ-http".to_owned(), move || http::run(&listener, &pages, &stop))?;
        }
        Ok(server)
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let thread = std::thread::Builder::new().name(name).spawn(body).map_err(StartError::System)?;
        self.threads.push(thread);
        Ok(())
    }

    /// The TCP addresses served, with the ports that were taken where 0 was asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of `/metrics` and `/healthz`.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// How many connections are served at a time: [`ServerOptions::max_connections`], or fewer where the process's
    /// limit of open files is small.
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// What is not as the options asked, and what to do about it; to be shown to whoever started the server.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// From now on `tell` gets lines for the server's log: of clients that are hung up on, once a minute for each kind. Only the first call
    /// counts.
    pub fn tell(&self, tell: OnTrouble) {
        self.notices.begin(tell);
    }

    /// Which stored items are dead now, for a compaction filter. Cheap; ask again for each compaction.
    pub fn expiry_rule(&self) -> ExpiryRule {
        (self.rule)(self.clock.seconds())
    }

    /// Blocks until SIGINT or SIGTERM; call [`Server::stop`] then. Each SIGHUP calls `on_hangup` (to reopen a log
    /// file, say) and goes on.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub fn wait_for_signal(&self, on_hangup: impl FnMut()) -> io::Result<StopSignal> {
        Ok(CaughtSignals::catch()?.wait(on_hangup))
    }

    /// Stops: no new connections, commands that were read are finished and answered, then everything is closed.
    /// What is not done after `deadline` is cut off. A drive that does not answer can take half a minute more.
    pub fn stop(mut self, deadline: Duration) {
        self.shut_down(deadline);
    }

    fn shut_down(&mut self, deadline: Duration) {
        *lock(&self.stop_at) = Some(Instant::now() + deadline);
        // Fails only if it is full, and then it is readable.
        let _ = rustix::io::write(&*self.http_stop, &1u64.to_ne_bytes());
        for inbox in &self.inboxes {
            inbox.post(Message::Stop);
        }
        for thread in self.threads.drain(..) {
            // A loop that panicked has told its story on stderr; the others are still to be joined.
            let _ = thread.join();
        }
        self.dumps.join();
        if let Some(path) = self.unix_socket.take() {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.shut_down(Duration::from_secs(1));
        }
    }
}

fn check(options: &ServerOptions) -> Result<(), StartError> {
    let refuse = |text: String| Err(StartError::Option(text));
    if options.listen.is_empty() && options.listen_names.is_empty() && options.unix_socket.is_none() {
        return refuse("there is nothing to listen on: give an address or a Unix socket".to_owned());
    }
    if options.max_value_bytes == 0 || options.max_value_bytes > MAX_VALUE_BYTES_LIMIT {
        return refuse(format!(
            "max_value_bytes is {}: it must be between 1 and {MAX_VALUE_BYTES_LIMIT}",
            options.max_value_bytes
        ));
    }
    if options.max_connections == 0 || options.max_output_bytes == 0 || options.max_outstanding_writes == 0 {
        return refuse("max_connections, max_output_bytes and max_outstanding_writes must be at least 1".to_owned());
    }
    if options.threads > 1024 {
        return refuse(format!("threads is {}: at most 1024 event loops are supported", options.threads));
    }
    Ok(())
}

fn listen_error(address: impl fmt::Display) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::Listen { address: address.to_string(), source }
}

fn listen_tcp(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address).map_err(listen_error(address))?;
    listener.set_nonblocking(true).map_err(listen_error(address))?;
    // Again, for a longer queue than the library asks for: crowds reconnect all at once after a restart.
    rustix::net::listen(&listener, BACKLOG).map_err(|error| listen_error(address)(error.into()))?;
    Ok(listener)
}

/// What is listened on.
#[derive(Default)]
struct Listening {
    listeners: Vec<Listener>,
    /// Those of TCP.
    addresses: Vec<SocketAddr>,
    warnings: Vec<String>,
}

impl Listening {
    fn add(&mut self, address: SocketAddr) -> Result<(), StartError> {
        // Who names an address twice means it once.
        if self.addresses.contains(&address) {
            return Ok(());
        }
        let listener = listen_tcp(address)?;
        self.addresses.push(listener.local_addr().map_err(listen_error(address))?);
        self.listeners.push(Listener { socket: listener.into(), local: false });
        Ok(())
    }

    /// Listens on every address of `name` that this machine has.
    fn add_name(&mut self, name: &str) -> Result<(), StartError> {
        let mut missing = Vec::new();
        let mut any = false;
        for address in name.to_socket_addrs().map_err(listen_error(name))? {
            match self.add(address) {
                Ok(()) => any = true,
                Err(StartError::Listen { source, .. }) if is_absent(&source) => missing.push((address, source)),
                Err(error) => return Err(error),
            }
        }
        match missing.pop() {
            Some((address, source)) if !any => Err(listen_error(address)(source)),
            last => {
                let all = missing.into_iter().chain(last);
                let warn = |(address, source)| format!("{name}: not listening on {address}: {source}");
                self.warnings.extend(all.map(warn));
                Ok(())
            }
        }
    }
}

/// True if this machine has no such address, or nothing of its kind.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn listen(options: &ServerOptions) -> Result<Listening, StartError> {
    let mut listening = Listening::default();
    for address in &options.listen {
        listening.add(*address)?;
    }
    for name in &options.listen_names {
        listening.add_name(name)?;
    }
    if let Some(path) = &options.unix_socket {
        let listener = listen_unix(path, options.unix_socket_mode).map_err(listen_error(path.display()))?;
        listening.listeners.push(Listener { socket: listener.into(), local: true });
    }
    Ok(listening)
}

fn listen_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    if std::fs::symlink_metadata(path).is_ok_and(|file| !file.file_type().is_socket()) {
        let text = "the path exists and is not a socket; remove it, or choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // A socket file survives a crash of its server. One that still answers belongs to another process.
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn warnings(
    options: &ServerOptions,
    connections_max: usize,
    open_files_max: u64,
    users: &Option<(Users, Option<String>)>,
    addresses: &[SocketAddr],
) -> Vec<String> {
    let mut warnings: Vec<String> = users.iter().filter_map(|(_, warning)| warning.clone()).collect();
    let open: Vec<_> = addresses.iter().filter(|address| !address.ip().to_canonical().is_loopback()).collect();
    if users.is_none() && !open.is_empty() {
        let open: Vec<String> = open.iter().map(ToString::to_string).collect();
        warnings.push(format!(
            "whoever can reach {} can read, change and flush all items, without a password: listen on 127.0.0.1, keep \
             strangers out with a firewall, or name users (--auth-file)",
            open.join(" and ")
        ));
    }
    if connections_max < options.max_connections {
        warnings.push(format!(
            "at most {connections_max} connections instead of {}: the limit of open files is {open_files_max}; raise it \
             (`ulimit -n`, or LimitNOFILE of a systemd unit) or ask for fewer connections",
            options.max_connections
        ));
    }
    warnings
}

fn settings(
    options: &ServerOptions,
    connections_max: usize,
    threads: usize,
    addresses: &[SocketAddr],
) -> Vec<(&'static str, String)> {
    let first = addresses.first();
    vec![
        ("maxconns", connections_max.to_string()),
        ("tcpport", first.map_or(0, SocketAddr::port).to_string()),
        ("udpport", "0".to_owned()),
        ("inter", first.map_or_else(|| "NULL".to_owned(), |address| address.ip().to_string())),
        (
            "domain_socket",
            options.unix_socket.as_ref().map_or_else(|| "NULL".to_owned(), |path| path.display().to_string()),
        ),
        ("umask", format!("{:o}", options.unix_socket_mode)),
        ("num_threads", threads.to_string()),
        ("cas_enabled", "yes".to_owned()),
        ("binding_protocol", "ascii".to_owned()),
        ("tcp_backlog", BACKLOG.to_string()),
        ("stat_key_prefix", ":".to_owned()),
        ("auth_enabled_sasl", "no".to_owned()),
        ("auth_enabled_ascii", options.auth_file.as_ref().map_or("no".into(), |path| path.display().to_string())),
        ("dump_enabled", "yes".to_owned()),
        ("ssl_enabled", "no".to_owned()),
        ("item_size_max", options.max_value_bytes.to_string()),
        ("maxconns_fast", "yes".to_owned()),
        ("flush_enabled", if options.disable_flush_all { "no" } else { "yes" }.to_owned()),
        ("shutdown_command", "no".to_owned()),
        ("idle_timeout", options.idle_timeout_seconds.to_string()),
        ("output_bytes_max", options.max_output_bytes.to_string()),
        ("outstanding_writes_max", options.max_outstanding_writes.to_string()),
    ]
}

#[cfg(test)]
mod tests;
