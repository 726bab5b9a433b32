//! TLS 1.3 of clients, over a socket that does not block.
//!
//! rustls has the protocol, this module the order of its steps:
//!
//! 1. A read gives the plain bytes that are there. Without any, it reads the socket, at most a record at a time. What
//!    TLS has to answer (its part of the handshake, an alert) is sent at once, as far as the socket takes it.
//! 2. A send first writes the records that wait. It encrypts more only when none waits: [`WAITING_BYTES_MAX`] at most.
//!    So a client that takes no answers costs that much here, and the rest waits as plain bytes, as without TLS.
//!
//! **Failure.** An error of TLS ends the connection after the commands that came before it. [`Tls::failure`] has
//! the reason for the log. A client that ends its connection without saying so in TLS has ended it all the same: a
//! command is run only when it has arrived whole.
//!
//! **Rejected.** Resumption: a session of an earlier certificate would go on, and a client that closes with a ticket
//! unread resets its connection, which can lose its last commands.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

/// Encrypted bytes of a connection that wait for the socket, about: a record. Many connections may wait at once.
const WAITING_BYTES_MAX: usize = 16 << 10;
/// Reads of the socket for one read of plain bytes. A record takes five of them at most.
const READS_MAX: usize = 16;
/// The first byte of a connection of TLS.
const HANDSHAKE: u8 = 0x16;

/// The files for TLS, all of them PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and those that signed it.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// The certificates of which one must have signed that of a client. `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The server's certificate and key, and what it asks of clients.
pub(crate) struct TlsConfig {
    config: Arc<ServerConfig>,
    /// All certificates in the files: two configurations with the same ones are the same.
    certificates: [Vec<CertificateDer<'static>>; 2],
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConfig")
    }
}

impl PartialEq for TlsConfig {
    fn eq(&self, other: &TlsConfig) -> bool {
        self.certificates == other.certificates
    }
}

impl TlsConfig {
    /// Reads the files; also what is worth a warning about them.
    ///
    /// # Errors
    /// Why they cannot be used; in words.
    pub(crate) fn read(files: &TlsFiles) -> Result<(TlsConfig, Option<String>), String> {
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, error))?;
        let clients = files.client_ca.as_deref().map(certificates).transpose()?.unwrap_or_default();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unusable(&files.certificate, error))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in &clients {
                    roots.add(certificate.clone()).map_err(|error| unusable(path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| unusable(path, error))?)
            }
        };
        let config = builder.with_single_cert(chain.clone(), key);
        let mut config = config.map_err(|error| unusable(&files.certificate, error))?;
        config.send_tls13_tickets = 0;
        let mode = files.key.metadata().map_err(|error| unusable(&files.key, error))?.permissions().mode();
        let shown = files.key.display();
        let warning = (mode & 0o004 != 0)
            .then(|| format!("every user of this machine can read the key of TLS in {shown}: `chmod o= {shown}`"));
        Ok((TlsConfig { config: Arc::new(config), certificates: [chain, clients] }, warning))
    }

    /// Returns true if clients need a certificate.
    pub(crate) fn asks_clients(&self) -> bool {
        let [_, clients] = &self.certificates;
        !clients.is_empty()
    }

    /// Begins TLS with a client.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn begin(&self) -> Result<Tls, rustls::Error> {
        let mut connection = ServerConnection::new(Arc::clone(&self.config))?;
        connection.set_buffer_limit(Some(WAITING_BYTES_MAX));
        Ok(Tls { connection, first: None, failure: None, is_broken: false })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, error))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|error| unusable(path, error))?;
    match certificates.is_empty() {
        true => Err(unusable(path, "it holds no certificate in PEM")),
        false => Ok(certificates),
    }
}

fn unusable(path: &Path, why: impl fmt::Display) -> String {
    format!("{} cannot be used for TLS: {why}", path.display())
}

/// TLS of one connection. See the module.
pub(crate) struct Tls {
    connection: ServerConnection,
    /// The first byte that came.
    first: Option<u8>,
    /// The reason why nothing more is read.
    failure: Option<String>,
    /// The socket takes nothing more.
    is_broken: bool,
}

/// The socket below, which does not block.
struct Socket<'a>(BorrowedFd<'a>, &'a mut Option<u8>);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = rustix::io::read(self.0, &mut *into)?;
        if self.1.is_none() && bytes > 0 {
            *self.1 = into.first().copied();
        }
        Ok(bytes)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(sendmsg(self.0, slices, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error of a socket as the event loop knows it.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::PROTO)
}

impl Tls {
    /// Reads plain bytes: `fill` takes them from the reader. 0 is the end.
    ///
    /// # Errors
    /// As `read` on a socket that does not block; `PROTO` after an error of TLS.
    pub(crate) fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        mut fill: impl FnMut(&mut rustls::Reader<'_>) -> io::Result<usize>,
    ) -> rustix::io::Result<usize> {
        for _ in 0..READS_MAX {
            match fill(&mut self.connection.reader()) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The end without a word in TLS.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(errno(&error)),
            }
            if self.failure.is_some() {
                return Err(Errno::PROTO);
            }
            let read = self.connection.read_tls(&mut Socket(socket, &mut self.first));
            read.map_err(|error| errno(&error))?;
            if self.first.is_some_and(|first| first != HANDSHAKE) {
                self.failure =
                    Some("it speaks no TLS, and this address takes nothing else; turn TLS on in it".to_owned());
                return Err(Errno::PROTO);
            }
            self.failure = self.connection.process_new_packets().err().map(|error| error.to_string());
            match self.flush(socket) {
                // The loop goes on with it when the socket takes more.
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        // There is more: the next turn goes on.
        Err(Errno::INTR)
    }

    /// Encrypts and sends plain bytes. Returns how many were taken; of those, encrypted ones may still wait.
    ///
    /// # Errors
    /// As `sendmsg` on a socket that does not block.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        self.flush(socket)?;
        let taken = self.connection.writer().write_vectored(slices).map_err(|error| errno(&error))?;
        match self.flush(socket) {
            Ok(()) | Err(Errno::AGAIN) => Ok(taken),
            Err(error) => Err(error),
        }
    }

    /// Sends the encrypted bytes that wait.
    ///
    /// # Errors
    /// As `sendmsg` on a socket that does not block.
    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(socket, &mut self.first)).map_err(|error| errno(&error)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Errno::AGAIN),
                Err(error) => {
                    self.is_broken = true;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns true if no encrypted byte waits that can still be sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_broken || !self.connection.wants_write()
    }

    /// Returns true while client and server do not know each other's keys.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns the error of TLS that ended the connection, in words.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Says in TLS that nothing more comes, as far as the socket takes it.
    pub(crate) fn end(&mut self, socket: BorrowedFd<'_>) {
        if self.is_handshaking() {
            return;
        }
        self.connection.send_close_notify();
        // The client may be gone already.
        _ = self.flush(socket);
    }
}
