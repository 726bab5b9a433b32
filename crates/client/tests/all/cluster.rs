//! Several servers: where keys go, back-off, reconnection, failover.

use crate::engines::cache;
use crate::flaky::{Flaky, over_each_transport};
use crate::stock::memcached;
use crate::wire::{address, listen};
use situ_client::{AsyncClient, Client, Error, Options, Outcome, TransportChoice, TransportKind};
use situ_server::{Server, ServerOptions};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

over_each_transport! {
    keys_lie_on_the_server_that_the_ring_names,
    without_failover_the_keys_of_a_lost_server_have_errors_and_all_others_are_served,
    with_failover_the_keys_of_a_lost_server_go_to_the_next_one,
    failover_does_not_repeat_what_may_have_been_done,
    a_server_that_is_down_costs_no_time_and_is_found_again,
}

const PATIENCE: Duration = Duration::from_secs(20);

/// A server of its own; it ends with this.
struct TestServer {
    address: String,
    transport: TransportKind,
    _running: Box<dyn Any>,
    /// The place of a Unix socket.
    _directory: TempDir,
}

fn options<'a>(servers: impl IntoIterator<Item = &'a TestServer>, failover: bool) -> Options {
    let servers: Vec<&TestServer> = servers.into_iter().collect();
    let mut options = Options::new(servers.iter().map(|server| server.address.clone()));
    options.timeout = PATIENCE;
    options.failover = failover;
    options.transport = match servers.first().map(|server| server.transport) {
        Some(TransportKind::SharedMemory) => TransportChoice::SharedMemory,
        Some(TransportKind::Rdma) => TransportChoice::Rdma,
        _ => TransportChoice::Socket,
    };
    options
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("key:{n}")).collect()
}

/// Starts three servers, or says that the test is skipped: memcached for TCP, Situ for the others.
fn three(transport: TransportKind) -> Option<Vec<TestServer>> {
    let start = |_| {
        let directory = tempfile::tempdir().unwrap();
        if transport == TransportKind::Tcp {
            let server = memcached(&[])?;
            let address = server.address.to_string();
            return Some(TestServer { address, transport, _running: Box::new(server), _directory: directory });
        }
        let address = address(transport, directory.path())?;
        let mut options = ServerOptions {
            listen: Vec::new(),
            threads: 1,
            rdma: situ_server::RdmaDevices::Any,
            // The address of an RDMA device is no loopback.
            allow_anonymous: true,
            ..ServerOptions::default()
        };
        match address.parse() {
            Ok(address) => options.listen.push(address),
            Err(_) => options.unix_socket = Some(address.clone().into()),
        }
        if transport == TransportKind::UnixSocket {
            options.shared_ring_bytes_max = 0;
        }
        let server = Server::start(&options, cache()).unwrap();
        Some(TestServer { address, transport, _running: Box::new(server), _directory: directory })
    };
    (0..3).map(start).collect()
}

fn keys_lie_on_the_server_that_the_ring_names(transport: TransportKind) {
    let Some(servers) = three(transport) else { return };
    let client = Client::open(&options(&servers, false)).unwrap();
    let futures = AsyncClient::open(&options(&servers, false)).unwrap();
    let keys = keys(300);
    for (n, key) in keys.iter().enumerate() {
        match n % 2 {
            0 => client.set(key, key, ()).unwrap(),
            _ => futures.set(key, key.clone(), ()).wait().unwrap(),
        }
    }
    let mut held = 0;
    for server in &servers {
        let alone = Client::open(&options([server], false)).unwrap();
        let mine: Vec<_> = keys.iter().filter(|key| *client.server_of(key) == *server.address).collect();
        assert!(mine.len() > 30, "{} keys", mine.len());
        held += mine.len();
        assert!(alone.get_many(&mine).unwrap().iter().all(Option::is_some));
        let others: Vec<_> = keys.iter().filter(|key| !mine.contains(key)).collect();
        assert!(alone.get_many(&others).unwrap().iter().all(Option::is_none));
    }
    assert_eq!(held, 300);
    for items in [client.get_many(&keys).unwrap(), futures.get_many(&keys).wait().unwrap()] {
        for (key, item) in keys.iter().zip(items) {
            assert_eq!(item.unwrap().value, key.as_bytes());
        }
    }
    assert_eq!(client.version().len(), 3);
    client.flush_all(Duration::ZERO).unwrap();
    assert!(client.get_many(&keys).unwrap().iter().all(Option::is_none));
}

fn without_failover_the_keys_of_a_lost_server_have_errors_and_all_others_are_served(transport: TransportKind) {
    let Some(mut servers) = three(transport) else { return };
    let client = Client::open(&options(&servers, false)).unwrap();
    let futures = AsyncClient::open(&options(&servers, false)).unwrap();
    let lost = servers.remove(1).address.clone();
    for key in keys(100) {
        let (blocking, future) = (client.get(&key), futures.get(&key).wait());
        if *client.server_of(&key) == *lost {
            for error in [blocking.unwrap_err(), future.unwrap_err()] {
                assert!(error.is_unreachable(), "{error}");
                assert!(error.to_string().contains(&lost), "{error}");
            }
        } else {
            assert_eq!((blocking.unwrap(), future.unwrap()), (None, None));
        }
    }
    assert!(client.get_many(&keys(100)).unwrap_err().is_unreachable());
    assert!(futures.get_many(&keys(100)).wait().unwrap_err().is_unreachable());
}

fn with_failover_the_keys_of_a_lost_server_go_to_the_next_one(transport: TransportKind) {
    let Some(mut servers) = three(transport) else { return };
    let client = Client::open(&options(&servers, true)).unwrap();
    let futures = AsyncClient::open(&options(&servers, true)).unwrap();
    let keys = keys(100);
    client.set("warm", "up", ()).unwrap();
    drop(servers.remove(1));
    for (n, key) in keys.iter().enumerate() {
        match n % 2 {
            0 => client.set(key, key, ()).unwrap(),
            _ => futures.set(key, key.clone(), ()).wait().unwrap(),
        }
    }
    for items in [client.get_many(&keys).unwrap(), futures.get_many(&keys).wait().unwrap()] {
        assert!(items.iter().zip(&keys).all(|(item, key)| item.as_ref().is_some_and(|i| i.value == key.as_bytes())));
    }
    // The two that are left have all keys, as if there never had been a third.
    let two = Client::open(&options(&servers, false)).unwrap();
    assert!(two.get_many(&keys).unwrap().iter().all(Option::is_some));
    drop(servers);
    assert!(client.get("key:1").unwrap_err().is_unreachable());
    assert!(futures.get("key:1").wait().unwrap_err().is_unreachable());
    assert!(client.get_many(&keys).unwrap_err().is_unreachable());
}

/// A call whose command was sent does not go to another server: it could be run twice.
fn failover_does_not_repeat_what_may_have_been_done(transport: TransportKind) {
    let hang_up = || Flaky::start(transport, |_, guest| drop(guest.line()));
    let (one, two) = (hang_up(), hang_up());
    let mut options = Options::new([one.address.clone(), two.address.clone()]);
    options.timeout = PATIENCE;
    options.failover = true;
    let client = Client::open(&options).unwrap();
    assert_eq!(client.increment("key", 1).unwrap_err().outcome(), Outcome::Unknown);
}

fn a_server_that_is_down_costs_no_time_and_is_found_again(transport: TransportKind) {
    let directory = tempfile::tempdir().unwrap();
    let address = address(transport, directory.path()).expect("the tests over a transport run where it is");
    let mut options = Options::new([address.clone()]);
    options.timeout = PATIENCE;
    let client = Client::open(&options).unwrap();
    let futures = AsyncClient::open(&options).unwrap();
    let first = client.set("key", "value", ()).unwrap_err();
    assert!(matches!(first, Error::Broken { outcome: Outcome::NotDone, .. }), "{first}");
    let begun = Instant::now();
    let mut down = 0;
    while begun.elapsed() < Duration::from_millis(600) {
        for error in [client.get("key").unwrap_err(), futures.get("key").wait().unwrap_err()] {
            assert!(error.is_unreachable(), "{error}");
            down += usize::from(matches!(error, Error::Down { .. }));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(down > 20, "most calls fail without an attempt: {down}");
    listen(&address, transport, Arc::default(), |_, guest| {
        while !guest.line().is_empty() {
            guest.say("END\r\n");
        }
    });
    let begun = Instant::now();
    while client.get("key").is_err() || futures.get("key").wait().is_err() {
        assert!(begun.elapsed() < PATIENCE, "the server is never found again");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Healthy again: no call fails.
    for _ in 0..20 {
        assert_eq!(client.get("key").unwrap(), None);
        assert_eq!(futures.get("key").wait().unwrap(), None);
    }
}
