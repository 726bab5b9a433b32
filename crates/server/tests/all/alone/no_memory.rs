//! Lengths that clients make up, and too little memory, do not end the process: the command is refused, and the server continues.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use situ_server::{Server, ServerOptions};

use super::own_process::in_own_process;
use crate::memory::MemoryEngine;

/// What the server may allocate. An announced length, taken at its word, is more.
const LIMIT_BYTES: u64 = 128 << 20;

/// Limits the process to `more` bytes of additional address space.
fn limit(more: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let now = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    setrlimit(Resource::As, Rlimit { current: Some(now + more), ..getrlimit(Resource::As) }).unwrap();
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn expect(stream: &mut TcpStream, expected: &str) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
}

#[test]
fn a_length_or_a_value_without_memory_for_it_is_refused_and_the_server_goes_on() {
    in_own_process(|| {
        let options = ServerOptions {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            threads: 1,
            max_value_bytes: situ_server::MAX_VALUE_BYTES_LIMIT,
            ..ServerOptions::default()
        };
        let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
        let mut stream = connect(&server);
        stream.write_all(b"set small 0 0 1\r\n1\r\n").unwrap();
        expect(&mut stream, "STORED\r\n");
        limit(LIMIT_BYTES);

        for length in ["4294967295", "2147483647", "-1", "-2147483648", "18446744073709551615"] {
            for line in [format!("set k 0 0 {length}\r\n"), format!("ms k {length}\r\n")] {
                stream.write_all(line.as_bytes()).unwrap();
                expect(&mut stream, "CLIENT_ERROR bad command line format\r\n");
            }
        }
        stream.write_all(format!("set {} 0 0 1\r\n", "k".repeat(251)).as_bytes()).unwrap();
        expect(&mut stream, "CLIENT_ERROR bad command line format\r\n");

        // The largest lengths that a command may announce: too large for an item, and just not.
        let mut other = connect(&server);
        other.write_all(b"set k 0 0 2147483645\r\n").unwrap();
        expect(&mut other, "SERVER_ERROR object too large for cache\r\n");
        let mut other = connect(&server);
        other.write_all(format!("set k 0 0 {}\r\nonly this", situ_server::MAX_VALUE_BYTES_LIMIT).as_bytes()).unwrap();
        // A key without an end.
        let mut other = connect(&server);
        other.write_all(&[&b"set "[..], &[b'k'; 100_000]].concat()).unwrap_or_default();
        assert!(matches!(other.read(&mut [0; 64]), Ok(0) | Err(_)), "the server hangs up");

        // A value that really comes.
        let (block, blocks) = (vec![b'x'; 1 << 20], (3 * LIMIT_BYTES as usize) >> 20);
        stream.write_all(format!("set large 0 0 {}\r\n", blocks << 20).as_bytes()).unwrap();
        (0..blocks).for_each(|_| stream.write_all(&block).unwrap());
        stream.write_all(b"\r\nget small\r\nget large\r\n").unwrap();
        expect(&mut stream, "SERVER_ERROR out of memory storing object\r\nVALUE small 0 1\r\n1\r\nEND\r\nEND\r\n");
    });
}
