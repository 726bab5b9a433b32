//! Certificates of tests.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use situ_server::TlsFiles;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An authority that signs certificates of servers and of clients.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, both in PEM.
pub(crate) struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn sign(&self, name: &str) -> Signed {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        Signed { certificate: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Writes a certificate for a server, and the authority of its clients.
    pub(crate) fn files(&self, directory: &Path, clients: Option<&Authority>) -> TlsFiles {
        let Signed { certificate, key } = self.sign("localhost");
        let [certificate_file, key_file, ca] =
            ["server.pem", "server.key", "clients.pem"].map(|name| directory.join(name));
        fs::write(&certificate_file, certificate).unwrap();
        fs::write(&key_file, key).unwrap();
        fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).unwrap();
        let client_ca = clients.map(|clients| fs::write(&ca, clients.pem()).unwrap()).map(|()| ca);
        TlsFiles { certificate: certificate_file, key: key_file, client_ca }
    }

    /// Returns what a client needs that believes this authority, and shows a certificate.
    pub(crate) fn client(&self, shows: Option<&Signed>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        Arc::new(match shows {
            None => builder.with_no_client_auth(),
            Some(Signed { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}

/// A connection of a client over TLS.
pub(crate) type Secured<S = TcpStream> = StreamOwned<ClientConnection, S>;

pub(crate) fn over<S: Read + Write>(config: &Arc<ClientConfig>, stream: S) -> Secured<S> {
    let name = "localhost".try_into().unwrap();
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), stream)
}

pub(crate) fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> Secured {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    over(config, stream)
}
