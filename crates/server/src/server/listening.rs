//! The sockets that a server listens on.

use crate::event_loop::Listener;
use crate::server::options::{ServerOptions, StartError};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Connections that may wait to be taken, as in memcached.
pub(crate) const BACKLOG: i32 = 1024;

fn listen_error(address: impl fmt::Display) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::Listen { address: address.to_string(), source }
}

/// Listens on an address of TCP.
pub(crate) fn listen_tcp(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address).map_err(listen_error(address))?;
    listener.set_nonblocking(true).map_err(listen_error(address))?;
    // Again, for a longer queue than the library asks for: crowds reconnect all at once after a restart.
    rustix::net::listen(&listener, BACKLOG).map_err(|error| listen_error(address)(error.into()))?;
    Ok(listener)
}

/// The sockets of a server.
#[derive(Default)]
pub(crate) struct Listening {
    pub(crate) listeners: Vec<Listener>,
    /// The addresses of TCP.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) warnings: Vec<String>,
}

impl Listening {
    fn add(&mut self, address: SocketAddr) -> Result<(), StartError> {
        // An address that is named twice is served once.
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

/// Returns true if this machine has no such address, or nothing of its kind.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

/// Listens on all addresses and sockets of the options.
pub(crate) fn listen(options: &ServerOptions) -> Result<Listening, StartError> {
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
