//! Starting and stopping a server.

mod listening;
mod options;
mod parts;
mod signals;

pub use options::{ServerOptions, StartError};
pub use signals::{CaughtSignals, StopSignal, outlive_file_limit};

use crate::admin::door::Door;
use crate::admin::dump::Dumps;
use crate::admin::http::{self, Pages};
use crate::admin::notices::Notices;
use crate::admin::socket::AdminSocket;
use crate::admin::stats::StatsSource;
use crate::engine::Engine;
use crate::engine::cache::OnTrouble;
use crate::engine::durable::Durable;
use crate::engine::item::ExpiryRule;
use crate::event_loop::{EventLoop, Listener};
use crate::process::descriptors::Places;
use crate::server::listening::{Listening, listen, listen_tcp};
use crate::server::options::{check, refuse_anonymous};
use crate::server::parts::{Capacity, Parts, settings, warnings};
use crate::waiting::greeting;
use crate::waiting::inbox::{Inbox, Message};
use rustix::event::EventfdFlags;
use situ_base::{StoreClock, lock};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running server. Dropping it stops it with a deadline of one second.
pub struct Server {
    inboxes: Vec<Arc<Inbox>>,
    threads: Vec<JoinHandle<()>>,
    /// A descriptor that is readable from the moment of stopping on.
    http_stop: Arc<OwnedFd>,
    stop_at: Arc<Mutex<Option<Instant>>>,
    addresses: Vec<SocketAddr>,
    places: Arc<Places>,
    capacity: Option<Capacity>,
    stats: Arc<StatsSource>,
    /// The options in force, with those that [`Server::reload`] has changed.
    options: Mutex<ServerOptions>,
    door: Arc<Door>,
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
        let (policy, mut warned) = options.policy()?;
        refuse_anonymous(options, &policy, &options.listen)?;
        let capacity = Capacity::of(options)?;
        let Listening { listeners, addresses, warnings: of_names } = listen(options)?;
        // Names lead to more addresses.
        refuse_anonymous(options, &policy, &addresses)?;
        warned.extend(of_names);
        warned.extend(warnings(options, &capacity, &policy, &addresses));
        let http = options.http.map(listen_tcp).transpose()?;
        let durable = Arc::new(Durable::open(Arc::clone(&engine)).map_err(StartError::Engine)?);
        let refused = durable.unreserved();
        warned.extend(refused.map(|error| format!("clients can read and delete, and store nothing yet: {error}")));
        let mut parts = Parts::new(options, &capacity, &addresses, (Arc::clone(&engine), durable), policy)?;
        let mut server = Server::without_threads(&parts)?;
        server.addresses = addresses;
        server.capacity = Some(capacity);
        *lock(&server.options) = options.clone();
        server.warnings = warned;
        server.unix_socket = options.unix_socket.clone();
        server.start_loops(&parts, listeners)?;
        if let Some(errands) = parts.errands.take() {
            // It ends after the loops.
            server.spawn("situ-rdma".to_owned(), move || greeting::run(errands))?;
        }
        if let Some(listener) = http {
            server.start_http(listener, engine, &parts)?;
        }
        Ok(server)
    }

    /// Makes a server that serves nothing yet.
    fn without_threads<E: Engine>(parts: &Parts<E>) -> Result<Server, StartError> {
        let http_stop = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| StartError::System(error.into()))?;
        let durable = Arc::clone(&parts.durable);
        Ok(Server {
            inboxes: parts.loops.inboxes.clone(),
            threads: Vec::new(),
            http_stop: Arc::new(http_stop),
            stop_at: Arc::clone(&parts.loops.stop_at),
            addresses: Vec::new(),
            places: Arc::clone(&parts.loops.places),
            capacity: None,
            stats: Arc::clone(&parts.stats),
            options: Mutex::default(),
            door: Arc::new(Door::new(Arc::clone(&parts.policy), Arc::clone(&parts.notices))),
            warnings: Vec::new(),
            notices: Arc::clone(&parts.notices),
            http_address: None,
            unix_socket: None,
            dumps: Arc::clone(&parts.dumps),
            clock: Arc::clone(&parts.loops.clock),
            rule: Box::new(move |now_seconds| durable.rule(now_seconds)),
        })
    }

    /// Starts the event loops. The first one has the listeners.
    fn start_loops<E: Engine>(&mut self, parts: &Parts<E>, listeners: Vec<Listener>) -> Result<(), StartError> {
        let mut listeners = Some(listeners);
        for loop_index in 0..self.inboxes.len() {
            let executor = parts.executor(loop_index);
            let event_loop = EventLoop::new(Arc::clone(&parts.loops), executor, listeners.take().unwrap_or_default())
                .map_err(StartError::System)?;
            self.spawn(format!("situ-loop-{loop_index}"), move || event_loop.run())?;
        }
        Ok(())
    }

    /// Starts the thread that serves pages over HTTP.
    fn start_http<E: Engine>(
        &mut self,
        listener: TcpListener,
        engine: Arc<E>,
        parts: &Parts<E>,
    ) -> Result<(), StartError> {
        self.http_address = listener.local_addr().ok();
        let durable = Arc::clone(&parts.durable);
        let door = Arc::clone(&self.door);
        let pages = Pages { engine, durable, counters: parts.stats.counters.clone(), started: parts.started, door };
        let stop = Arc::clone(&self.http_stop);
        self.spawn("situ-http".to_owned(), move || http::run(&listener, &pages, &stop))
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let thread = std::thread::Builder::new().name(name).spawn(body).map_err(StartError::System)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Returns the TCP addresses served, with the ports that were taken where 0 was asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address of `/metrics` and `/healthz`.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the maximum number of connections at a time: [`ServerOptions::max_connections`], or fewer where the
    /// process's limit of open files is small.
    pub fn connections_max(&self) -> usize {
        self.places.max()
    }

    /// Lets the bearers of the token of [`ServerOptions::admin_token_file`] run the commands of `socket` over HTTP.
    /// Only the first call counts.
    pub fn administer(&self, socket: &AdminSocket) {
        self.door.open(socket.commands());
    }

    /// Takes from `options` what can change while the server runs: users and rights, TLS, the token, the idle timeout
    /// and the number of connections. The files are read again. All else stays as it was at the start. Connections of
    /// users that are gone, or have another password or other rights, are closed. Open connections keep their
    /// certificates. Returns a line for each change.
    ///
    /// # Errors
    /// As [`Server::start`]. Then nothing has changed.
    pub fn reload(&self, options: &ServerOptions) -> Result<Vec<String>, StartError> {
        let mut kept = lock(&self.options);
        let options = kept.reloaded(options);
        check(&options)?;
        let (policy, warned) = options.policy()?;
        refuse_anonymous(&options, &policy, &self.addresses)?;
        let connections_max = match &self.capacity {
            Some(capacity) => capacity.connections_max(&options)?,
            None => self.places.max(),
        };
        let mut lines = self.door.policy().changes(&policy);
        if connections_max != self.places.max() {
            self.places.set_max(connections_max);
            lines.push(format!("at most {connections_max} connections are open at a time"));
        }
        if let Some(capacity) = &self.capacity {
            *lock(&self.stats.settings) =
                settings(&options, &Capacity { connections_max, ..*capacity }, &self.addresses);
        }
        let policy = Arc::new(policy);
        self.door.obey(Arc::clone(&policy));
        self.inboxes.iter().for_each(|inbox| inbox.post(Message::Policy(Arc::clone(&policy))));
        *kept = options;
        lines.extend(warned.into_iter().map(|warning| format!("warning: {warning}")));
        Ok(lines)
    }

    /// Returns the deviations from the options, each with its cure. The caller shows them to the operator.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Makes `tell` get the lines for the server's log: of clients that are hung up on, once a minute for each kind.
    /// Only the first call counts.
    pub fn tell(&self, tell: OnTrouble) {
        self.notices.begin(tell);
    }

    /// Returns the rule for items that are dead now, for a compaction filter. Cheap; call it for each compaction.
    pub fn expiry_rule(&self) -> ExpiryRule {
        (self.rule)(self.clock.seconds())
    }

    /// Blocks until SIGINT or SIGTERM. The caller then calls [`Server::stop`]. Each SIGHUP calls `on_hangup` (to reopen
    /// a log file, say), and the wait goes on.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub fn wait_for_signal(&self, on_hangup: impl FnMut()) -> io::Result<StopSignal> {
        Ok(CaughtSignals::catch()?.wait(on_hangup))
    }

    /// Stops the server: it takes no new connections, finishes and answers the commands that were read, and then closes
    /// everything. Work that is not done after `deadline` is cut off. A drive that does not answer can take half a
    /// minute more.
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
            // A loop that panicked has printed its message to stderr; the others are still to be joined.
            let _ = thread.join();
        }
        self.dumps.join();
        if let Some(path) = self.unix_socket.take() {
            // The socket file may be gone already.
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

#[cfg(test)]
mod tests;
