//! Servers and clients that are killed in the middle of commands, as processes of their own: this program again.

use crate::engines::cache;
use crate::flaky::over_each_transport;
use crate::vocabulary::options;
use crate::wire::address;
use situ_client::{Client, Options, TransportChoice, TransportKind};
use situ_server::{Server, ServerOptions};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: u64 = 20;
/// Clients that are killed, and those of them that run at the same time.
const CLIENTS: usize = 100;
const AT_A_TIME: usize = 10;
/// More than the memory of a connection and what an allocator keeps, and much less than the rings of all clients.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

over_each_transport! {
    a_killed_server_costs_no_more_than_its_calls_and_is_found_again,
}

/// A process that is killed with this. It may say more than is read: after a minute, it says that it runs for long.
struct Process(Child, #[expect(dead_code, reason = "the pipe stays open")] BufReader<ChildStdout>);

impl Process {
    /// Runs one of the tests that are bodies of processes.
    fn start(body: &str, address: &str, seed: u64) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", body, "--ignored", "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("SITU_TEST_ADDRESS", address).env("SITU_TEST_SEED", seed.to_string());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        assert!(said.by_ref().lines().any(|line| line.unwrap() == "ready"), "{body} does not start");
        Process(child, said)
    }

    /// Returns the numbers of descriptors and of mapped connections, and the resident bytes.
    fn usage(&self) -> (usize, usize, u64) {
        let file = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap();
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count();
        let connections = file("maps").lines().filter(|line| line.contains("memfd:situ-connection")).count();
        let status = file("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        (descriptors, connections, kilobytes << 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the server's process of other tests"]
fn server() {
    let Ok(address) = std::env::var("SITU_TEST_ADDRESS") else { return };
    let mut server = ServerOptions {
        listen: Vec::new(),
        threads: 2,
        rdma: situ_server::RdmaDevices::Any,
        // The address of an RDMA device is no loopback.
        allow_anonymous: true,
        ..ServerOptions::default()
    };
    match address.parse() {
        Ok(address) => server.listen.push(address),
        Err(_) => server.unix_socket = Some(address.into()),
    }
    let _server = Server::start(&server, cache()).unwrap();
    println!("ready");
    // It ends with the test at the latest.
    let _ = std::io::stdin().read(&mut [0]);
}

/// The value says of which key it is, so a wrong byte shows.
fn value(key: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (key * 31 + at % 251) as u8).collect()
}

fn check(key: u64, found: &[u8]) {
    assert!(found == value(key, found.len()), "a wrong byte in {} bytes of key {key}", found.len());
}

/// Numbers that differ from seed to seed.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// Values from some bytes to more than a ring.
fn any_length(random: &mut u64) -> usize {
    let bits = next(random) % 20;
    (next(random) % (2 << bits)) as usize
}

#[test]
#[ignore = "a client's process of another test"]
fn client() {
    let Ok(address) = std::env::var("SITU_TEST_ADDRESS") else { return };
    let client = Client::open(&options(&address)).unwrap();
    let mut random = std::env::var("SITU_TEST_SEED").unwrap().parse().unwrap();
    for round in 0.. {
        let key = next(&mut random) % KEYS;
        client.set(format!("key{key}"), value(key, any_length(&mut random)), ()).unwrap();
        if round == 0 {
            println!("ready");
        }
    }
}

#[test]
fn a_hundred_clients_killed_in_the_middle_of_sets_leave_no_wrong_byte_and_no_memory() {
    killed_clients(TransportKind::SharedMemory, TransportChoice::SharedMemory);
}

#[cfg(feature = "verbs")]
#[test]
fn a_hundred_clients_killed_over_rdma_leave_no_wrong_byte_and_no_memory() {
    if crate::wire::rdma_address().is_some() {
        killed_clients(TransportKind::Rdma, TransportChoice::Rdma);
    }
}

fn killed_clients(transport: TransportKind, choice: TransportChoice) {
    let directory = tempfile::tempdir().unwrap();
    let socket = address(transport, directory.path()).unwrap();
    let server = Process::start("killed::server", &socket, 0);
    let mut options = options(&socket);
    options.transport = choice;
    let reader = Client::open(&options).unwrap();
    // The cache has all the memory that it may have.
    for key in 0..200 {
        reader.set(format!("key{key}"), value(key, 500_000), ()).unwrap();
    }
    let before = server.usage();
    assert_eq!(before.1, 1, "the reader's connection");
    let started = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let seed = started.fetch_add(1, Ordering::SeqCst) as u64;
                    if seed >= CLIENTS as u64 {
                        return;
                    }
                    let mut random = seed;
                    let client = Process::start("killed::client", &socket, seed);
                    let key = next(&mut random) % KEYS;
                    // The cache may have evicted it.
                    reader.get(format!("key{key}")).unwrap().into_iter().for_each(|item| check(key, &item.value));
                    std::thread::sleep(Duration::from_micros(next(&mut random) % 30_000));
                    drop(client);
                }
            });
        }
    });
    let until = Instant::now() + PATIENCE;
    // Connections of the reader's threads stay.
    let kept = loop {
        let (_, statistics) = reader.stats("").unwrap().remove(0);
        let statistics = statistics.unwrap();
        let value = |name| statistics.iter().find(|(found, _)| found == name).unwrap().1.parse::<usize>().unwrap();
        let (_, connections, _) = server.usage();
        if value("curr_connections") <= AT_A_TIME && connections == value("curr_connections") {
            break connections;
        }
        assert!(Instant::now() < until, "{connections} connections are mapped");
        std::thread::sleep(Duration::from_millis(20));
    };
    let after = server.usage();
    // A socket, and for RDMA a channel of events.
    let each = if transport == TransportKind::Rdma { 2 } else { 1 };
    assert_eq!(after.0 - before.0, each * (kept - before.1), "descriptors: {before:?}, {after:?}");
    assert!(after.2 < before.2 + GROWTH_BYTES_MAX, "resident bytes: {before:?}, {after:?}");
    let names: Vec<String> = (0..KEYS).map(|key| format!("key{key}")).collect();
    let items = reader.get_many(&names).unwrap();
    assert!(items.iter().any(Option::is_some));
    (0..).zip(items).for_each(|(key, item)| item.into_iter().for_each(|item| check(key, &item.value)));
}

fn a_killed_server_costs_no_more_than_its_calls_and_is_found_again(transport: TransportKind) {
    let directory = tempfile::tempdir().unwrap();
    let address = address(transport, directory.path()).expect("the tests over a transport run where it is");
    let mut options: Options = options(&address);
    if transport == TransportKind::UnixSocket {
        options.transport = TransportChoice::Socket;
    }
    let client = Client::open(&options).unwrap();
    let mut server = Process::start("killed::server", &address, 0);
    let (is_over, done, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let wait_for = |counter: &AtomicUsize, more: usize| {
        let (least, until) = (counter.load(Ordering::SeqCst) + more, Instant::now() + PATIENCE);
        while counter.load(Ordering::SeqCst) < least {
            assert!(Instant::now() < until, "calls neither end nor fail");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (client, is_over, done, failed) = (&client, &is_over, &done, &failed);
            scope.spawn(move || {
                let mut random = thread;
                while !is_over.load(Ordering::SeqCst) {
                    let key = next(&mut random) % KEYS;
                    let name = format!("key{key}");
                    let set = client.set(&name, value(key, any_length(&mut random)), ());
                    match set.and_then(|()| client.get(&name)) {
                        Ok(found) => {
                            found.into_iter().for_each(|item| check(key, &item.value));
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(error) => {
                            assert!(error.is_unreachable(), "{error}");
                            failed.fetch_add(1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                }
            });
        }
        for _ in 0..3 {
            wait_for(&done, 100);
            drop(server);
            wait_for(&failed, 20);
            server = Process::start("killed::server", &address, 0);
        }
        wait_for(&done, 100);
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(client.transports()[0].1, Some(transport));
}
