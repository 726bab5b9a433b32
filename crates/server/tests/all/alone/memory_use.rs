//! Memory that clients can make the server use: crowds of idle connections, floods without reading, announcements.
//!
//! In a process of its own, as it looks at the memory of all of it.

use super::own_process::in_own_process;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::memory::MemoryEngine;
use situ_server::{Server, ServerOptions};

const PATIENCE: Duration = Duration::from_secs(20);

fn local() -> ServerOptions {
    ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..ServerOptions::default() }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads exactly what is expected.
fn expect(stream: &mut impl Read, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == expected, "got {} for {}", got.escape_ascii(), expected.escape_ascii());
}

fn ask(stream: &mut (impl Read + Write), command: &[u8], answer: &[u8]) {
    stream.write_all(command).unwrap();
    expect(stream, answer);
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn memory_is_bounded_by_what_clients_cannot_change() {
    in_own_process(|| {
        a_hundred_clients_that_pipeline_without_reading_take_little_each();
        ten_thousand_idle_connections_cost_less_than_10_kb_each();
        a_client_that_does_not_read_is_not_read_either();
        touching_retrievals_without_reading_are_bounded_too();
        an_announced_gigabyte_costs_nothing_until_it_comes();
    });
}

fn ten_thousand_idle_connections_cost_less_than_10_kb_each() {
    const CONNECTIONS: usize = 9_000;
    // Both ends are in this process.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = CONNECTIONS.min((limit as usize).saturating_sub(1000) / 2);
    if count < CONNECTIONS {
        eprintln!("REDUCED to {count} connections: the limit of open files is {limit}");
    }
    let server = Server::start(&local(), MemoryEngine::start(None)).unwrap();
    let before = resident_bytes();
    let mut streams: Vec<TcpStream> = (0..count).map(|_| connect(&server)).collect();
    let value = vec![b'x'; 20_000];
    for (index, stream) in streams.iter_mut().enumerate() {
        // Each has worked once, some with buffers larger than they may keep.
        if index % 16 == 0 {
            stream.write_all(b"set a 0 0 20000\r\n").unwrap();
            stream.write_all(&value).unwrap();
            ask(stream, b"\r\n", b"STORED\r\n");
        }
        ask(stream, b"get b\r\n", b"END\r\n");
    }
    let per_connection = resident_bytes().saturating_sub(before) / count.max(1);
    println!("{per_connection} bytes for each of {count} connections");
    assert!(per_connection < 10_000, "{per_connection} bytes for each of {count} idle connections");
}

fn a_client_that_does_not_read_is_not_read_either() {
    let engine = MemoryEngine::start(None);
    let server = Server::start(&local(), engine).unwrap();
    let mut stream = connect(&server);
    let value = vec![b'v'; 500_000];
    stream.write_all(b"set big 0 0 500000\r\n").unwrap();
    stream.write_all(&value).unwrap();
    ask(&mut stream, b"\r\n", b"STORED\r\n");
    let before = resident_bytes();
    // Each command asks for 2 MB; all together for 40 GB.
    let command = b"get big big big big\r\n";
    let flood: Vec<u8> = command.repeat(20_000);
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let deadline = Instant::now() + Duration::from_millis(700);
    while sent < flood.len() && Instant::now() < deadline {
        match stream.write(&flood[sent..]) {
            Ok(bytes) => sent += bytes,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "the server holds {grown} bytes for a client that does not read");
    // Others are served meanwhile.
    ask(&mut connect(&server), b"get nothing\r\n", b"END\r\n");
    // And when it reads, everything comes, in order.
    stream.set_nonblocking(false).unwrap();
    let mut answer = Vec::new();
    for _ in 0..4 {
        answer.extend_from_slice(b"VALUE big 0 500000\r\n");
        answer.extend_from_slice(&value);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"END\r\n");
    for _ in 0..(sent / command.len()).min(40) {
        expect(&mut stream, &answer);
    }
}

/// They took 2 MB each, for answers that nobody read.
fn a_hundred_clients_that_pipeline_without_reading_take_little_each() {
    const CLIENTS: usize = 100;
    let server = Server::start(&ServerOptions { threads: 1, ..local() }, MemoryEngine::start(None)).unwrap();
    let mut stream = connect(&server);
    stream.write_all(format!("set big 0 0 10000\r\n{}\r\n", "v".repeat(10_000)).as_bytes()).unwrap();
    expect(&mut stream, b"STORED\r\n");
    let before = resident_bytes();
    let flood = b"get big\r\n".repeat(100_000);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
    let mut most = 0;
    for _ in 0..50 {
        for client in &mut clients {
            client.set_nonblocking(true).unwrap();
            let _ = client.write(&flood);
        }
        std::thread::sleep(Duration::from_millis(10));
        most = most.max(resident_bytes().saturating_sub(before));
    }
    println!("{} bytes for each of {CLIENTS} connections", most / CLIENTS);
    assert!(most < CLIENTS * (640 << 10), "the server holds {most} bytes for {CLIENTS} clients that do not read");
    ask(&mut stream, b"mn\r\n", b"MN\r\n");
}

/// Answers that waited for their write did not count as output, and held copies: 5,600 bytes of `mg T v` took 900 MB
/// and kept the loop from its other clients for 2 s.
fn touching_retrievals_without_reading_are_bounded_too() {
    const KEYS: usize = 1000;
    let server = Server::start(&ServerOptions { threads: 1, ..local() }, MemoryEngine::start(None)).unwrap();
    let mut stream = connect(&server);
    let value = vec![b'v'; 1_000_000];
    stream.write_all(b"set big 0 0 1000000\r\n").unwrap();
    stream.write_all(&value).unwrap();
    ask(&mut stream, b"\r\n", b"STORED\r\n");
    let value = vec![b'v'; 200_000];
    for key in 0..KEYS {
        stream.write_all(format!("set key{key} 0 0 200000\r\n").as_bytes()).unwrap();
        stream.write_all(&value).unwrap();
        ask(&mut stream, b"\r\n", b"STORED\r\n");
    }
    let keys: String = (0..KEYS).map(|key| format!(" key{key}")).collect();
    let floods = [
        ("mg big T1000 v\r\nmg big T1001 v\r\n".repeat(200), 128),
        (format!("gat 1000{keys}\r\n"), 128),
        // Nothing to send, much to write: bounded in time only.
        ("mg big T1000\r\nmg big T1001\r\n".repeat(2000), 128),
    ];
    for (flood, megabytes) in floods {
        let before = resident_bytes();
        let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(&server)).collect();
        for stream in &mut streams {
            stream.write_all(flood.as_bytes()).unwrap();
        }
        let name = &flood[..20];
        let mut longest = Duration::ZERO;
        let deadline = Instant::now() + Duration::from_millis(700);
        let mut other = connect(&server);
        while Instant::now() < deadline {
            let begin = Instant::now();
            ask(&mut other, b"get nothing\r\n", b"END\r\n");
            longest = longest.max(begin.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < megabytes << 20, "the server holds {grown} bytes for {name:?}");
        assert!(longest < Duration::from_millis(300), "others waited {longest:?} for {name:?}");
        println!("{name:?}: {grown} bytes, others waited {longest:?}");
    }
    // What was held back comes when the client reads.
    stream.write_all(b"mg big T1000 v\r\nmg big T1001 v\r\n".repeat(20).as_slice()).unwrap();
    let answer = [&b"VA 1000000\r\n"[..], &vec![b'v'; 1_000_000], b"\r\n"].concat();
    for _ in 0..40 {
        expect(&mut stream, &answer);
    }
    stream.write_all(format!("gats 2000{keys}\r\n").as_bytes()).unwrap();
    for key in 0..KEYS {
        expect(&mut stream, format!("VALUE key{key} 0 200000 ").as_bytes());
        let mut byte = [0];
        while byte != *b"\n" {
            stream.read_exact(&mut byte).unwrap();
        }
        expect(&mut stream, &value);
        expect(&mut stream, b"\r\n");
    }
    expect(&mut stream, b"END\r\n");
}

fn an_announced_gigabyte_costs_nothing_until_it_comes() {
    let options = ServerOptions { max_value_bytes: situ_server::MAX_VALUE_BYTES_LIMIT, ..local() };
    let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
    let before = resident_bytes();
    let mut streams: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    for stream in &mut streams {
        stream.write_all(b"set key 0 0 1073000000\r\nonly this").unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes for announcements");
}
