//! Connections never take the descriptors that the store needs. The server runs in a process of its own, as the limit of
//! open files belongs to the process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use situ::Options;
use situ_server::{Server, ServerOptions, StoreEngine};

const PATIENCE: Duration = Duration::from_secs(30);
const REFUSED: &str = "ERROR Too many open connections\r\n";

/// What the other process runs. Each line on its stdin makes it open files until no more can be had.
#[test]
#[ignore = "started by the other tests, in a process of its own"]
fn served() {
    let Ok(directory) = std::env::var("SITU_TEST_DIRECTORY") else { return };
    let directory = Path::new(&directory);
    let limit = |name: &str| Some(std::env::var(name).unwrap().parse().unwrap());
    setrlimit(Resource::Nofile, Rlimit { current: limit("SITU_TEST_SOFT"), maximum: limit("SITU_TEST_HARD") }).unwrap();
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 1 << 20;
    let engine = Arc::new(StoreEngine::open(directory.join("store"), options).unwrap());
    let options =
        ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..ServerOptions::default() };
    let server = Server::start(&options, engine).unwrap();
    let told = format!("{} {}\n{}\n", server.addresses()[0], server.connections_max(), server.warnings().join("\n"));
    std::fs::write(directory.join("new"), told).unwrap();
    std::fs::rename(directory.join("new"), directory.join("started")).unwrap();
    let mut files = Vec::new();
    for _ in std::io::stdin().lines() {
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
        std::fs::rename(directory.join("started"), directory.join("filled")).unwrap();
    }
}

struct Served {
    child: Child,
    directory: tempfile::TempDir,
    address: String,
    connections_max: usize,
    warnings: String,
}

impl Served {
    fn start(soft: usize, hard: usize) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "descriptors::served", "--ignored", "--nocapture"])
            .env("SITU_TEST_DIRECTORY", directory.path())
            .env("SITU_TEST_SOFT", soft.to_string())
            .env("SITU_TEST_HARD", hard.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut served =
            Served { child, directory, address: String::new(), connections_max: 0, warnings: String::new() };
        served.wait_for("started");
        let told = std::fs::read_to_string(served.directory.path().join("started")).unwrap();
        let (first, warnings) = told.split_once('\n').unwrap();
        let (address, connections_max) = first.split_once(' ').unwrap();
        served.address = address.to_owned();
        served.connections_max = connections_max.parse().unwrap();
        served.warnings = warnings.to_owned();
        served
    }

    fn wait_for(&self, file: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.directory.path().join(file).exists() {
            assert!(Instant::now() < deadline, "the server does not get to {file:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    }

    /// The answer to `mn` on a new connection, which is kept.
    fn knock(&self, kept: &mut Vec<BufReader<TcpStream>>) -> String {
        let mut client = self.connect();
        // A refused connection may be closed by now.
        let _ = client.get_mut().write_all(b"mn\r\n");
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        kept.push(client);
        line
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Enough for many memtables, log files and tables.
fn store_much(client: &mut BufReader<TcpStream>) {
    let value = vec![b'v'; 500_000];
    for key in 0..60 {
        client.get_mut().write_all(format!("set key{key} 0 0 {}\r\n", value.len()).as_bytes()).unwrap();
        client.get_mut().write_all(&value).unwrap();
        client.get_mut().write_all(b"\r\n").unwrap();
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        assert_eq!(line, "STORED\r\n", "key{key}");
    }
    let mut all = Vec::new();
    client.get_mut().write_all(b"get key0 key59\r\nquit\r\n").unwrap();
    client.read_to_end(&mut all).unwrap();
    assert!(all.len() > 1_000_000);
}

/// With a soft limit of 128, 200 idle connections made a store fail to open its next log file.
#[test]
fn the_soft_limit_is_raised_for_idle_connections_and_the_store_still_writes() {
    let served = Served::start(128, 4096);
    let mut writer = served.connect();
    let mut idle = Vec::new();
    for _ in 0..200 {
        assert_eq!(served.knock(&mut idle), "MN\r\n");
    }
    store_much(&mut writer);
}

#[test]
fn connections_stop_where_the_stores_descriptors_begin() {
    let served = Served::start(200, 200);
    assert!(served.connections_max < 200 && served.warnings.contains("ulimit -n"), "{}", served.warnings);
    let mut writer = served.connect();
    let mut idle = Vec::new();
    for _ in 1..served.connections_max {
        assert_eq!(served.knock(&mut idle), "MN\r\n");
    }
    for _ in 0..100 {
        assert_eq!(served.knock(&mut idle), REFUSED);
    }
    store_much(&mut writer);
}

#[test]
fn without_any_descriptor_left_connections_are_still_told() {
    let mut served = Served::start(128, 128);
    served.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    served.wait_for("filled");
    let mut kept = Vec::new();
    for _ in 0..20 {
        assert_eq!(served.knock(&mut kept), REFUSED);
    }
}
