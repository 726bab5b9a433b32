//! TLS 1.3 over a socket, in both directions at once.
//!
//! The state of TLS is behind a lock that is held for computing only, never for a socket. The reader thread reads the
//! socket, then takes the lock to decrypt. The writer thread takes the lock to encrypt, then writes the socket. Only
//! the writer thread writes: what TLS itself wants to send (a new key, say) goes out with its next frame, a heartbeat
//! at the latest. So a reader never waits for a writer, and two ends cannot wait for each other.

use super::{Socket, stream};
use crate::error::CallError;
use crate::peer::Stream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use situ_base::lock;
use situ_storage::{Error, Result};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Bytes of the socket that are read at once.
const RAW_BYTES: usize = 64 << 10;
/// The number of bytes that are encrypted at once. It bounds the time for which the lock is held.
const PLAIN_BYTES: usize = 32 << 10;
/// The label of the value that binds a proof to a TLS connection.
const BINDING_LABEL: &[u8] = b"EXPORTER-situ-node";

/// The certificates that a host believes: one of them must have signed a node's certificate.
#[derive(Clone)]
pub struct TlsRoots {
    config: Arc<ClientConfig>,
}

/// The certificate and key by which a node shows its identity.
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

impl TlsRoots {
    /// Reads the certificates in a PEM file. This is the node's own, if it is self-signed.
    ///
    /// # Errors
    /// The file cannot be read, or holds no certificate.
    pub fn read(path: &Path) -> Result<TlsRoots> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|e| unusable(path, e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| unusable(path, e))?;
        Ok(TlsRoots { config: Arc::new(builder.with_root_certificates(roots).with_no_client_auth()) })
    }
}

impl ServerTls {
    /// Reads a certificate (with those that signed it, its own first) and its key, in PEM files.
    ///
    /// # Errors
    /// The files cannot be read, or do not fit each other.
    pub fn read(certificate: &Path, key: &Path) -> Result<ServerTls> {
        let chain = certificates(certificate)?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|e| unusable(key, e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| unusable(certificate, e))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, private);
        Ok(ServerTls { config: Arc::new(config.map_err(|e| unusable(certificate, e))?) })
    }
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsRoots")
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| unusable(path, e))?;
    let certificates = read.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| unusable(path, e))?;
    match certificates.is_empty() {
        true => Err(unusable(path, "it holds no certificate in PEM")),
        false => Ok(certificates),
    }
}

fn unusable(path: &Path, why: impl fmt::Display) -> Error {
    Error::Invalid(format!("{} cannot be used for TLS: {why}", path.display()))
}

pub(super) fn connect(
    socket: Socket,
    host: &str,
    roots: &TlsRoots,
    name: &str,
    deadline: Instant,
) -> Result<Stream, CallError> {
    let server = ServerName::try_from(host.to_owned()).map_err(|e| refused(name, e))?;
    let connection = ClientConnection::new(Arc::clone(&roots.config), server).map_err(|e| refused(name, e))?;
    open(socket, connection.into(), name, deadline)
}

pub(super) fn accept(socket: Socket, tls: &ServerTls, name: &str, deadline: Instant) -> Result<Stream, CallError> {
    let connection = ServerConnection::new(Arc::clone(&tls.config)).map_err(|e| refused(name, e))?;
    open(socket, connection.into(), name, deadline)
}

/// A socket until a deadline, however few bytes the other end sends at once.
struct Hurried<'a> {
    socket: &'a mut Socket,
    deadline: Instant,
}

impl Hurried<'_> {
    fn hurry(&mut self) -> io::Result<&mut Socket> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(1) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_timeouts(Some(left), Some(left))?;
        Ok(self.socket)
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.hurry()?.read(into)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hurry()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error of a failed handshake. What TLS itself finds wrong is final. Everything else may be another one
/// with the next connection: the other end may just have been stopped.
fn failed(name: &str, e: &io::Error) -> CallError {
    match e.kind() {
        io::ErrorKind::InvalidData => refused(name, e),
        _ => {
            let why = format!("it did not agree on TLS: {}; perhaps the node uses none", super::reason(e));
            CallError::Lost { node: name.to_owned(), why }
        }
    }
}

fn open(mut socket: Socket, mut connection: Connection, name: &str, deadline: Instant) -> Result<Stream, CallError> {
    while connection.is_handshaking() {
        let mut hurried = Hurried { socket: &mut socket, deadline };
        connection.complete_io(&mut hurried).map_err(|e| failed(name, &e))?;
    }
    let exported = match &connection {
        Connection::Client(client) => client.export_keying_material([0; 32], BINDING_LABEL, None),
        Connection::Server(server) => server.export_keying_material([0; 32], BINDING_LABEL, None),
    };
    let binding = exported.map_err(|e| refused(name, e))?.to_vec();
    let lost = |e: io::Error| CallError::Lost { node: name.to_owned(), why: e.to_string() };
    let tls = Arc::new(Mutex::new(connection));
    let reader = TlsReader {
        tls: Arc::clone(&tls),
        socket: socket.try_clone().map_err(lost)?,
        raw: vec![0; RAW_BYTES],
        taken: 0,
        filled: 0,
    };
    let writer = TlsWriter { tls, socket: socket.try_clone().map_err(lost)?, raw: Vec::new() };
    stream(socket, name.to_owned(), Box::new(reader), Box::new(writer), binding).map_err(lost)
}

fn refused(name: &str, why: impl fmt::Display) -> CallError {
    CallError::Refused(format!("TLS with {name} failed: {why}"))
}

struct TlsReader {
    tls: Arc<Mutex<Connection>>,
    socket: Socket,
    raw: Vec<u8>,
    /// Of the raw bytes, what TLS has taken and what the socket has given.
    taken: usize,
    filled: usize,
}

impl TlsReader {
    /// Plain bytes that are there, if any; then raw bytes are needed.
    fn decrypt(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut tls = lock(&self.tls);
        loop {
            match tls.reader().read(into) {
                Ok(count) => return Ok(Some(count)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            if self.taken == self.filled {
                return Ok(None);
            }
            let mut rest = &self.raw[self.taken..self.filled];
            self.taken += tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }
}

impl Read for TlsReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(count) = self.decrypt(into)? {
                return Ok(count);
            }
            (self.taken, self.filled) = (0, self.socket.read(&mut self.raw)?);
            if self.filled == 0 {
                return Ok(0);
            }
        }
    }
}

struct TlsWriter {
    tls: Arc<Mutex<Connection>>,
    socket: Socket,
    raw: Vec<u8>,
}

impl Write for TlsWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.raw.clear();
        let count = {
            let mut tls = lock(&self.tls);
            let count = tls.writer().write(&bytes[..bytes.len().min(PLAIN_BYTES)])?;
            while tls.wants_write() {
                tls.write_tls(&mut self.raw)?;
            }
            count
        };
        self.socket.write_all(&self.raw)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
