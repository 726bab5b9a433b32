//! All commands over the engines of Situ's server.

use crate::vocabulary::{all_commands, options};
use situ::hash::{HashOptions, HashStoreBuilder};
use situ::{Durability, Options};
#[cfg(feature = "tls")]
use situ_client::Tls;
use situ_client::{Client, Login, TransportChoice, TransportKind};
use situ_server::{CacheEngine, Engine, HashEngine, Server, ServerOptions, StoreEngine};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const VALUE_BYTES_MAX: usize = 1 << 20;

/// Runs all commands over each transport.
fn run_over<E: Engine>(engine: Arc<E>, directory: &Path) {
    let socket = directory.join("socket");
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        unix_socket: Some(socket.clone()),
        threads: 2,
        max_value_bytes: VALUE_BYTES_MAX,
        ..ServerOptions::default()
    };
    let server = Server::start(&options, engine).unwrap();
    all_commands(&server.addresses()[0].to_string(), (TransportChoice::Auto, TransportKind::Tcp), VALUE_BYTES_MAX);
    all_commands(socket.to_str().unwrap(), (TransportChoice::Socket, TransportKind::UnixSocket), VALUE_BYTES_MAX);
    all_commands(socket.to_str().unwrap(), (TransportChoice::Auto, TransportKind::SharedMemory), VALUE_BYTES_MAX);
    server.stop(Duration::from_secs(10));
}

pub(crate) fn cache() -> Arc<CacheEngine> {
    Arc::new(CacheEngine::new(&situ::cache::Options::of_memory(64 << 20)).unwrap())
}

#[test]
fn a_cache_answers_all_commands() {
    let directory = tempfile::tempdir().unwrap();
    run_over(cache(), directory.path());
}

#[cfg(feature = "verbs")]
#[test]
fn a_cache_answers_all_commands_over_rdma() {
    let directory = tempfile::tempdir().unwrap();
    let Some(address) = crate::wire::address(TransportKind::Rdma, directory.path()) else { return };
    let listen = vec![address.parse().unwrap()];
    let options = ServerOptions {
        listen,
        threads: 2,
        max_value_bytes: VALUE_BYTES_MAX,
        rdma: situ_server::RdmaDevices::Any,
        // The address of an RDMA device is no loopback.
        allow_anonymous: true,
        ..ServerOptions::default()
    };
    let server = Server::start(&options, cache()).unwrap();
    all_commands(&address, (TransportChoice::Rdma, TransportKind::Rdma), VALUE_BYTES_MAX);
    all_commands(&address, (TransportChoice::Socket, TransportKind::Tcp), VALUE_BYTES_MAX);
    let client = Client::open(&crate::vocabulary::options(&address)).unwrap();
    client.set("key", vec![7; VALUE_BYTES_MAX], ()).unwrap();
    assert!(client.get("key").unwrap().unwrap().value == vec![7; VALUE_BYTES_MAX]);
    assert_eq!(client.transports()[0].1, Some(TransportKind::Rdma), "the default");
    server.stop(Duration::from_secs(10));
}

#[test]
fn a_store_answers_all_commands() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.durability = Durability::Buffered;
    let engine = Arc::new(StoreEngine::open(directory.path(), options).unwrap());
    run_over(Arc::clone(&engine), directory.path());
    engine.close().unwrap();
}

#[test]
fn a_hash_store_answers_all_commands() {
    let directory = tempfile::tempdir().unwrap();
    let options = HashOptions { base_bits: 4, bucket_space_bytes: 64 << 20, partitions: 2, ..HashOptions::default() };
    let home = directory.path().join("store");
    std::fs::create_dir(&home).unwrap();
    let engine = HashEngine::open(&home, HashStoreBuilder::new(options), Durability::Buffered).unwrap();
    let engine = Arc::new(engine);
    run_over(Arc::clone(&engine), directory.path());
    engine.store().close().unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn a_cache_answers_all_commands_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
        directory.path().join(name)
    };
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        [file(name, &made.cert.pem()), file(&format!("{name}.key"), &made.signing_key.serialize_pem())]
    };
    let [[certificate, key], [own, own_key], [other, _]] = ["127.0.0.1", "client", "other"].map(made);
    let tls = situ_server::TlsFiles { certificate: certificate.clone(), key, client_ca: Some(own.clone()) };
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let server_options = ServerOptions {
        listen,
        threads: 2,
        max_value_bytes: VALUE_BYTES_MAX,
        tls: Some(tls),
        ..ServerOptions::default()
    };
    let server = Server::start(&server_options, cache()).unwrap();
    let address = server.addresses()[0].to_string();
    let mut options = options(&address);
    options.tls = Some(Tls::read(&certificate, Some((&own, &own_key))).unwrap());
    crate::vocabulary::all_commands_by(&options, TransportKind::Tls, VALUE_BYTES_MAX);
    let client = Client::open(&options).unwrap();
    client.set("key", vec![7; VALUE_BYTES_MAX], ()).unwrap();
    assert!(client.get("key").unwrap().unwrap().value == vec![7; VALUE_BYTES_MAX]);
    // A server that another authority has signed, a client without a certificate, and one without TLS.
    let refused = |tls: Option<Tls>| {
        let mut options = options.clone();
        options.tls = tls;
        options.timeout = Duration::from_secs(5);
        Client::open(&options).unwrap().get("key").unwrap_err().to_string()
    };
    let why = refused(Some(Tls::read(&other, None).unwrap()));
    assert!(why.contains("invalid peer certificate"), "{why}");
    let why = refused(Some(Tls::read(&certificate, None).unwrap()));
    assert!(why.contains("CertificateRequired"), "{why}");
    refused(None);
    server.stop(Duration::from_secs(10));
    let refused = Tls::read(&own_key, None).unwrap_err().to_string();
    assert!(refused.contains("holds no certificate"), "{refused}");
    let mut local = crate::vocabulary::options("/run/situ.sock");
    local.tls = options.tls.clone();
    assert!(Client::open(&local).unwrap_err().to_string().contains("TLS is for servers over TCP"));
    options.transport = TransportChoice::Rdma;
    assert!(Client::open(&options).unwrap_err().to_string().contains("TLS takes the socket"));
}

#[test]
fn users_log_in() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    std::fs::write(&file, "ada:lovelace\n").unwrap();
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let server_options = ServerOptions {
        listen,
        auth_file: Some(file),
        rdma: situ_server::RdmaDevices::Any,
        ..ServerOptions::default()
    };
    let server = Server::start(&server_options, cache()).unwrap();
    let mut options = options(&server.addresses()[0].to_string());
    assert!(Client::open(&options).unwrap().get("key").is_err());
    options.login = Some(Login { user: "ada".to_owned(), password: "lovelace".to_owned() });
    assert_eq!(Client::open(&options).unwrap().get("key").unwrap(), None);
    server.stop(Duration::from_secs(10));
}
