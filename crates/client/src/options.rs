//! The options of a client, and the addresses of servers.

use crate::error::Error;
use crate::ring::DEFAULT_PORT;
#[cfg(feature = "tls")]
use rustls::RootCertStore;
#[cfg(feature = "tls")]
use rustls::pki_types::pem::PemObject;
#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options of a client. Start from [`Options::new`] and change what you need.
///
/// ```
/// use situ_client::Options;
/// use std::time::Duration;
///
/// let mut options = Options::new(["cache-a", "cache-b:11212", "/run/situ.sock"]);
/// options.timeout = Duration::from_millis(200);
/// options.failover = true;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The servers: `host`, `host:port`, `[IPv6]:port`, or the path of a Unix socket as `/path` or `unix:/path`. The
    /// port is 11211 if it is left out. A key belongs to the same server as with libmemcached, if both have the same
    /// list with the same names.
    pub servers: Vec<String>,
    /// The time that a call has. Default: one second. [`Client::with_timeout`](crate::Client::with_timeout) changes it
    /// for some calls.
    pub timeout: Duration,
    /// A switch for caches. With true, the keys of a server that is down go to the next one until it is back. After its
    /// return, it may have values that other clients have replaced meanwhile: give such items an expiry time. With
    /// false, calls for its keys fail. Default: false.
    pub failover: bool,
    /// The maximum number of connections to each server. A blocking call has one for itself; further calls wait for one
    /// until their deadline. Default: 16.
    pub connections_max: usize,
    /// The maximum number of asynchronous calls that wait for each server. Default: 4096.
    pub queue_calls_max: usize,
    /// The maximum number of bytes of asynchronous calls that wait for each server. Default: 64 MiB. A single call may
    /// have more.
    pub queue_bytes_max: usize,
    /// The user and password for servers that have users. Without TLS, they travel unencrypted. Default: none.
    pub login: Option<Login>,
    /// TLS of the connections, all of which must be over TCP. Needs the feature `tls`. Default: none.
    pub tls: Option<Tls>,
    /// The choice between a socket and memory. Default: [`TransportChoice::Auto`].
    pub transport: TransportChoice,
}

/// The rule by which a client chooses the transport of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Over a Unix socket: shared memory if the server offers it, and the socket otherwise. Over TCP: RDMA if both
    /// sides have a device for it at the addresses of the connection, and the socket otherwise. After a refusal or
    /// a failure of RDMA, connections to this server use TCP for a minute. RDMA needs the feature `verbs`.
    #[default]
    Auto,
    /// The socket.
    Socket,
    /// Shared memory. Connections fail if the server does not offer it, and addresses must be paths of Unix sockets.
    SharedMemory,
    /// RDMA. Connections fail if one side has none, and addresses must be those of TCP. Needs the feature `verbs`.
    Rdma,
}

/// The transport that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportKind {
    /// A TCP socket.
    Tcp,
    /// A Unix socket.
    UnixSocket,
    /// Memory that the client and the server map.
    SharedMemory,
    /// Memory that a network card writes into, on the other machine.
    Rdma,
    /// TLS over a TCP socket.
    Tls,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportKind::Tcp => "TCP",
            TransportKind::UnixSocket => "Unix socket",
            TransportKind::SharedMemory => "shared memory",
            TransportKind::Rdma => "RDMA",
            TransportKind::Tls => "TLS",
        })
    }
}

impl Options {
    /// Returns the default options for these servers.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Options {
        Options {
            servers: servers.into_iter().map(Into::into).collect(),
            timeout: Duration::from_secs(1),
            failover: false,
            connections_max: 16,
            queue_calls_max: 4096,
            queue_bytes_max: 64 << 20,
            login: None,
            tls: None,
            transport: TransportChoice::default(),
        }
    }

    /// Checks the options and returns the addresses of the servers.
    pub(crate) fn check(&self) -> Result<Vec<Address>, Error> {
        let refuse = |text: &str| Err(Error::Option(text.to_owned()));
        if self.servers.is_empty() {
            return refuse("there is no server: give at least one address");
        }
        if self.timeout.is_zero() {
            return refuse("timeout is zero: no call could succeed");
        }
        if self.connections_max == 0 || self.queue_calls_max == 0 || self.queue_bytes_max == 0 {
            return refuse("connections_max, queue_calls_max and queue_bytes_max must be at least 1");
        }
        let is_bad = |text: &str| text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control());
        if self.login.as_ref().is_some_and(|login| is_bad(&login.user) || is_bad(&login.password)) {
            return refuse("the user and the password must have no spaces and must not be empty");
        }
        let addresses: Vec<Address> = self.servers.iter().map(|text| Address::parse(text)).collect::<Result<_, _>>()?;
        let find = |wants_tcp: bool| {
            addresses.iter().find(|address| matches!(address, Address::Tcp { .. }) == wants_tcp).map(Address::name)
        };
        if self.tls.is_some() {
            if let Some(name) = find(false) {
                return refuse(&format!("TLS is for servers over TCP, and not for {name}"));
            }
            if !matches!(self.transport, TransportChoice::Auto | TransportChoice::Socket) {
                return refuse("TLS takes the socket: memory would not be encrypted");
            }
        }
        match (self.transport, find(true), find(false)) {
            (TransportChoice::SharedMemory, Some(name), _) => {
                refuse(&format!("shared memory needs the path of the server's Unix socket, and not {name}"))
            }
            (TransportChoice::Rdma, _, Some(name)) => {
                refuse(&format!("RDMA needs the host and port of the server, and not {name}"))
            }
            (TransportChoice::Rdma, ..) if cfg!(not(feature = "verbs")) => {
                refuse("RDMA needs the feature verbs of the client, which is built without it")
            }
            _ => Ok(addresses),
        }
    }
}

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The certificates by which a client knows its servers over TLS, and its own. Made by `Tls::read`, with the feature
/// `tls`.
#[derive(Clone)]
pub struct Tls {
    #[cfg(feature = "tls")]
    config: Arc<rustls::ClientConfig>,
    #[cfg(not(feature = "tls"))]
    pub(crate) never: std::convert::Infallible,
}

#[cfg(feature = "tls")]
impl Tls {
    /// Reads the certificates of authorities, one of which must have signed a server's certificate, and the client's
    /// own certificate and key, if servers ask for one. All files are PEM.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else.
    pub fn read(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<Tls, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|error| unusable(authorities, error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unusable(authorities, error))?.with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
                let config = builder.with_client_auth_cert(certificates(certificate)?, private);
                config.map_err(|error| unusable(certificate, error))?
            }
        };
        Ok(Tls { config: Arc::new(config) })
    }

    pub(crate) fn config(&self) -> &Arc<rustls::ClientConfig> {
        &self.config
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

#[cfg(feature = "tls")]
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, error))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|error| unusable(path, error))?;
    match certificates.is_empty() {
        true => Err(unusable(path, "it holds no certificate in PEM")),
        false => Ok(certificates),
    }
}

#[cfg(feature = "tls")]
fn unusable(path: &Path, why: impl fmt::Display) -> Error {
    Error::Option(format!("{} cannot be used for TLS: {why}", path.display()))
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    fn parse(text: &str) -> Result<Address, Error> {
        let bad = || Error::Option(format!("{text:?} is no address of a server: write host:port or /path/of/socket"));
        let path = text.strip_prefix("unix:");
        if let Some(path) = path.or(Some(text)).filter(|path| path.starts_with('/')) {
            return Ok(Address::Unix(path.into()));
        }
        if path.is_some() {
            return Err(bad());
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or_else(bad)?;
                (host, behind.strip_prefix(':').or(Some(behind).filter(|rest| rest.is_empty())).ok_or_else(bad)?)
            }
            None if text.matches(':').count() > 1 => (text, ""),
            None => text.split_once(':').unwrap_or((text, "")),
        };
        if host.is_empty() || host.contains(char::is_whitespace) || (text.ends_with(':') && !text.ends_with("::")) {
            return Err(bad());
        }
        let port = if port.is_empty() { DEFAULT_PORT } else { port.parse().map_err(|_| bad())? };
        Ok(Address::Tcp { host: host.to_owned(), port })
    }

    /// Returns the host and port that give the server its points on the ring.
    pub(crate) fn on_ring(&self) -> (&str, u16) {
        match self {
            Address::Tcp { host, port } => (host, *port),
            // `parse` made the path of a string.
            Address::Unix(path) => (path.to_str().unwrap_or_default(), 0),
        }
    }

    pub(crate) fn name(&self) -> Arc<str> {
        match self {
            Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}").into(),
            Address::Tcp { host, port } => format!("{host}:{port}").into(),
            Address::Unix(path) => path.to_string_lossy().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, name) in [
            ("localhost", "localhost:11211"),
            ("10.0.0.1:5", "10.0.0.1:5"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:11211"),
            ("::1", "[::1]:11211"),
            ("fe80::", "[fe80::]:11211"),
            ("/run/situ.sock", "/run/situ.sock"),
            ("unix:/run/situ.sock", "/run/situ.sock"),
        ] {
            assert_eq!(&*Address::parse(text).unwrap().name(), name, "{text}");
        }
        for text in ["", ":11211", "host:", "host:x", "host:70000", "[::1", "[::1]7", "a b", "unix:", "unix:situ.sock"]
        {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shared_memory_needs_a_unix_socket() {
        let mut options = Options::new(["/run/situ.sock", "localhost"]);
        options.check().unwrap();
        options.transport = TransportChoice::SharedMemory;
        let refusal = options.check().unwrap_err().to_string();
        assert!(refusal.contains("localhost:11211"), "{refusal}");
        options.servers.pop();
        options.check().unwrap();
    }

    #[test]
    fn rdma_needs_tcp_and_the_feature() {
        let mut options = Options::new(["localhost", "/run/situ.sock"]);
        options.transport = TransportChoice::Rdma;
        let refusal = options.check().unwrap_err().to_string();
        assert!(refusal.contains("/run/situ.sock"), "{refusal}");
        options.servers.pop();
        let refusal = options.check().err().map(|error| error.to_string());
        assert_eq!(refusal.is_none(), cfg!(feature = "verbs"));
        assert!(refusal.as_ref().is_none_or(|refusal| refusal.contains("verbs")), "{refusal:?}");
    }

    #[test]
    fn a_password_is_not_shown() {
        let mut options = Options::new(["a"]);
        options.login = Some(Login { user: "eve".into(), password: "hunter2".into() });
        let shown = format!("{options:?}");
        assert!(shown.contains("eve") && !shown.contains("hunter2"));
        options.check().unwrap();
    }
}
