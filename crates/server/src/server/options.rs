//! The options of a server, and the reasons for which it does not start.

use crate::admin::door::read_token;
use crate::admin::trace::Tracer;
use crate::engine::{EngineError, MAX_VALUE_BYTES_LIMIT};
use crate::protocol::auth::Users;
use crate::protocol::policy::Policy;
use crate::protocol::tls::{TlsConfig, TlsFiles};
use situ_transport::RdmaDevices;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options of a server. Start from [`ServerOptions::default`] and change what you need.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// TCP addresses to serve. Port 0 takes a free port; see [`Server::addresses`](crate::Server::addresses). Default:
    /// 127.0.0.1:11211.
    pub listen: Vec<SocketAddr>,
    /// Names to serve, as `host:port`: every address of the name, as in memcached. An address that this machine does
    /// not have is skipped with a warning if another one can be served. Default: none.
    pub listen_names: Vec<String>,
    /// A Unix socket to serve, if any. A socket file without a listener is replaced.
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of the Unix socket. Default: 0o700, only the same user, as in memcached.
    pub unix_socket_mode: u32,
    /// The largest ring of a connection in shared memory, in bytes. A client of the Unix socket asks for two of them
    /// with `shm` (`docs/formats/shared-memory.md`). A power of two from 4 KiB to 4 MiB, or less is used; 0 refuses
    /// shared memory. Default: 1 MiB.
    pub shared_ring_bytes_max: u64,
    /// The RDMA devices over which clients of TCP sockets may move their connections into remote memory, with `rdma`
    /// (`docs/formats/remote-memory.md`). Their rings are no larger than `shared_ring_bytes_max`. Needs the feature
    /// `verbs`; without it, there are none. Default: none.
    pub rdma: RdmaDevices,
    /// The memory of all connections in remote memory, in bytes. It is locked: the system can neither swap it out nor
    /// take it back. A client beyond the bound is refused, and goes on over its socket. Default: `None`, an eighth of
    /// the memory of the machine, or of the process's control group.
    pub rdma_bytes_max: Option<u64>,
    /// The address that serves `/metrics` and `/healthz` over HTTP, if any. Default: none.
    pub http: Option<SocketAddr>,
    /// Event loops, each a thread. 0 takes one per core. Default: 0.
    pub threads: usize,
    /// The maximum number of connections at a time; one more gets an error and is closed. An idle one costs under 1 KB
    /// here. The limit of open files of the process, less a quarter for the engine, bounds the number: see
    /// [`Server::connections_max`](crate::Server::connections_max). Default: 10 240.
    pub max_connections: usize,
    /// The number of seconds after which a connection without traffic either way is closed, unless the engine owes it
    /// an answer; 0 means never. Default: 0.
    pub idle_timeout_seconds: u64,
    /// Largest data block stored. Default: 1 MiB, as in memcached. At most [`MAX_VALUE_BYTES_LIMIT`].
    pub max_value_bytes: usize,
    /// The bytes of unsent answers of one connection above which nothing more is read from it. Answers that wait for a
    /// write count. Default: 256 KiB. A single value may be larger. With more than 256 connections each one has less:
    /// all connections share 64 MiB, and none has less than 16 KiB.
    pub max_output_bytes: usize,
    /// Commands of one connection whose writes may be under way at once. Default: 1024.
    pub max_outstanding_writes: usize,
    /// The file of the server's users, as memcached's `-Y`: a line `user:password` for each, 64 at most. A client sends
    /// `set <any key> 0 0 <length>` with the data `user password` first. The server reads the file at the start, and in
    /// [`Server::reload`](crate::Server::reload). Default: none, all clients may use the server.
    pub auth_file: Option<PathBuf>,
    /// The file of the users' rights: a line `user:rights` for each user of `auth_file`. Rights are `r` to read, `w` to
    /// write, `a` to run commands over HTTP, or several of them. Default: none, all users read and write.
    pub rights_file: Option<PathBuf>,
    /// The files for TLS 1.3 of clients over TCP, which must speak it then. The Unix socket stays plain. Default: none.
    pub tls: Option<TlsFiles>,
    /// A switch that lets a server without users and without certificates of clients listen on addresses that other
    /// machines can reach. Default: false.
    pub allow_anonymous: bool,
    /// The file with the token that lets its bearer run commands over HTTP (`docs/formats/admin.md`), once
    /// [`Server::administer`](crate::Server::administer) has been called. Only its owner and its group may open the
    /// file, and `http` must be an address of this machine alone. Default: none, and no commands over HTTP.
    pub admin_token_file: Option<PathBuf>,
    /// A switch that refuses `flush_all`, as memcached's `-F`. Default: false.
    pub disable_flush_all: bool,
    /// The recorder of the server's requests. The caller keeps a clone, and records a trace with it
    /// ([`Tracer::record`]). Default: a new one.
    pub tracer: Arc<Tracer>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 11211))],
            listen_names: Vec::new(),
            unix_socket: None,
            unix_socket_mode: 0o700,
            shared_ring_bytes_max: 1 << 20,
            rdma: RdmaDevices::default(),
            rdma_bytes_max: None,
            http: None,
            threads: 0,
            max_connections: 10_240,
            idle_timeout_seconds: 0,
            max_value_bytes: 1 << 20,
            max_output_bytes: 256 << 10,
            max_outstanding_writes: 1024,
            auth_file: None,
            rights_file: None,
            tls: None,
            allow_anonymous: false,
            admin_token_file: None,
            disable_flush_all: false,
            tracer: Arc::default(),
        }
    }
}

impl ServerOptions {
    /// Checks for errors of [`Server::start`](crate::Server::start) that need neither an engine nor a socket. The files
    /// of users, of TLS and of the token are checked, too.
    ///
    /// # Errors
    /// As [`Server::start`](crate::Server::start).
    pub fn check(&self) -> Result<(), StartError> {
        check(self)?;
        let (policy, _) = self.policy()?;
        refuse_anonymous(self, &policy, &self.listen)
    }

    /// Reads the files that the options name, with warnings about them.
    ///
    /// # Errors
    /// As [`Users::read`], [`TlsConfig::read`] and [`read_token`].
    pub(crate) fn policy(&self) -> Result<(Policy, Vec<String>), StartError> {
        let read = || {
            let users = self.auth_file.as_deref().map(|path| Users::read(path, self.rights_file.as_deref()));
            let (users, warned) = users.transpose()?.unzip();
            let (tls, warned_too) = self.tls.as_ref().map(TlsConfig::read).transpose()?.unzip();
            let idle_timeout = Duration::from_secs(self.idle_timeout_seconds);
            let policy = Policy {
                users,
                tls,
                idle_timeout: (!idle_timeout.is_zero()).then_some(idle_timeout),
                admin_token: self.admin_token_file.as_deref().map(read_token).transpose()?,
            };
            Ok((policy, [warned, warned_too].into_iter().flatten().flatten().collect()))
        };
        read().map_err(StartError::Option)
    }

    /// Returns these options with what `other` changes of a server that runs.
    pub(crate) fn reloaded(&self, other: &ServerOptions) -> ServerOptions {
        ServerOptions {
            auth_file: other.auth_file.clone(),
            rights_file: other.rights_file.clone(),
            tls: other.tls.clone(),
            allow_anonymous: other.allow_anonymous,
            admin_token_file: other.admin_token_file.clone(),
            idle_timeout_seconds: other.idle_timeout_seconds,
            max_connections: other.max_connections,
            ..self.clone()
        }
    }
}

/// The reason why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An option without meaning, with the cure.
    Option(String),
    /// An address that cannot be listened on.
    Listen {
        /// The address or path.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A shortage of threads, descriptors or memory.
    System(io::Error),
    /// A failure of the engine to give or keep the server's own records.
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

/// Refuses options that have no meaning.
pub(crate) fn check(options: &ServerOptions) -> Result<(), StartError> {
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
    if let RdmaDevices::Named(name) = &options.rdma {
        #[cfg(feature = "verbs")]
        let checked = situ_transport::verbs::check(name);
        #[cfg(not(feature = "verbs"))]
        let checked = Err::<(), _>("this program is built without the feature verbs");
        checked.or_else(|reason| refuse(format!("the RDMA device {name} cannot be used: {reason}")))?;
    }
    if options.tls.is_some() && options.rdma != RdmaDevices::Off {
        return refuse("a connection over RDMA is not encrypted: leave out --rdma, or --tls-cert".to_owned());
    }
    if options.rights_file.is_some() && options.auth_file.is_none() {
        return refuse("a file of rights needs the file of users: add --auth-file".to_owned());
    }
    if options.admin_token_file.is_some() {
        match options.http {
            Some(http) if http.ip().to_canonical().is_loopback() => {}
            Some(http) => {
                return refuse(format!(
                    "the token and the commands would travel unencrypted to {http}: let --http listen on 127.0.0.1, and reach \
                     it from another machine by `ssh -L`"
                ));
            }
            None => return refuse("commands over HTTP need the HTTP port: leave out --no-http".to_owned()),
        }
    }
    if options.threads > 1024 {
        return refuse(format!("threads is {}: at most 1024 event loops are supported", options.threads));
    }
    Ok(())
}

/// Names the addresses that other machines can reach; empty if there are none.
pub(crate) fn beyond_machine(addresses: &[SocketAddr]) -> String {
    let open = addresses.iter().filter(|address| !address.ip().to_canonical().is_loopback());
    open.map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// Names the addresses at which any client of another machine is served.
pub(crate) fn open_to_all(policy: &Policy, addresses: &[SocketAddr]) -> Option<String> {
    let open = beyond_machine(addresses);
    let asks_clients = policy.users.is_some() || policy.tls.as_ref().is_some_and(TlsConfig::asks_clients);
    let text = || format!("any client that reaches {open} can read, change and flush all items, without a password");
    (!asks_clients && !open.is_empty()).then(text)
}

/// Refuses to serve any client of another machine, unless the options say so.
///
/// # Errors
/// The text has the cures.
pub(crate) fn refuse_anonymous(
    options: &ServerOptions,
    policy: &Policy,
    addresses: &[SocketAddr],
) -> Result<(), StartError> {
    match open_to_all(policy, addresses).filter(|_| !options.allow_anonymous) {
        None => Ok(()),
        Some(open) => Err(StartError::Option(format!(
            "{open}: name users (--auth-file), ask clients for certificates (--tls-client-ca), listen on 127.0.0.1, or \
             say --allow-anonymous if the network keeps strangers out"
        ))),
    }
}
