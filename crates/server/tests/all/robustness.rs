//! What clients do that servers die of: floods, gigantic and truncated commands, noise, and hanging up.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

#[test]
fn increments_of_many_connections_all_count_when_writes_complete_late() {
    const CLIENTS: usize = 8;
    const EACH: usize = 100;
    let server = Server::start(&local(), MemoryEngine::start(Some(Duration::from_micros(50)))).unwrap();
    ask(&mut connect(&server), b"set n 0 0 1\r\n0\r\n", b"STORED\r\n");
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut stream = connect(server);
                // A pipeline: answers must come in order though each increment waits for the one before.
                let other = format!("o{client}");
                let commands = format!("incr n 1\r\nset {other} 0 0 1\r\nx\r\nget {other}\r\n").repeat(EACH);
                stream.write_all(commands.as_bytes()).unwrap();
                let rest = format!("STORED\r\nVALUE {other} 0 1\r\nx\r\nEND\r\n");
                let mut last = 0u64;
                for _ in 0..EACH {
                    let mut line = Vec::new();
                    while line.last() != Some(&b'\n') {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        line.push(byte[0]);
                    }
                    let value = std::str::from_utf8(&line).unwrap().trim_end().parse().unwrap();
                    assert!(value > last, "{value} after {last}");
                    last = value;
                    expect(&mut stream, rest.as_bytes());
                }
            });
        }
    });
    ask(&mut connect(&server), b"get n\r\n", b"VALUE n 0 3\r\n800\r\nEND\r\n");
}

#[test]
fn clients_that_vanish_in_the_middle_leave_nothing_behind() {
    let engine = MemoryEngine::start(Some(Duration::from_millis(1)));
    let server = Server::start(&local(), Arc::clone(&engine)).unwrap();
    for round in 0..200 {
        let mut stream = connect(&server);
        let commands: &[u8] = match round % 5 {
            0 => b"set a 0 0 100\r\nshort",
            1 => b"incr a 1\r\nincr a 1\r\nappend a 0 0 1\r\nx\r\n",
            2 => b"set b 0 0 1000000\r\nxxx",
            3 => b"get a b c",
            _ => b"set a 0 0 1\r\n1\r\nset a 0 0 1\r\n2\r\nset a 0 0 1\r\n3\r\nget a\r\n",
        };
        stream.write_all(commands).unwrap();
        if round % 2 == 0 {
            // Closed with unread input, which resets the connection.
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
    // All stripes are free again and all connections gone.
    let mut stream = connect(&server);
    for key in ["a", "b", "c"] {
        ask(
            &mut stream,
            format!("set {key} 0 0 1\r\nx\r\nappend {key} 0 0 1\r\ny\r\n").as_bytes(),
            b"STORED\r\nSTORED\r\n",
        );
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        stream.write_all(b"stats conns\r\n").unwrap();
        let mut text = vec![0; 4096];
        let length = stream.read(&mut text).unwrap();
        if text[..length].starts_with(b"STAT curr_connections 1\r\n") {
            break;
        }
        assert!(Instant::now() < deadline, "{}", text[..length].escape_ascii());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The end of a Unix socket's peer comes as a hang-up together with the last input. It used to close the connection
/// before that input was read, so that 199 of 200 writes of clients that asked for no answer were lost.
#[test]
fn what_a_client_sent_before_it_hung_up_is_run() {
    const CLIENTS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("situ.sock");
    let options = ServerOptions { unix_socket: Some(path.clone()), ..local() };
    // Late answers park pipelines on the key that they write.
    for delay in [None, Some(Duration::from_micros(200))] {
        let engine = MemoryEngine::start(delay);
        let server = Server::start(&options, Arc::clone(&engine)).unwrap();
        let mut expected = Vec::new();
        for client in 0..CLIENTS {
            let (unix, tcp) = (format!("unix{client}"), format!("tcp{client}"));
            let set = |key: &str| format!("set {key} 0 0 1 noreply\r\nx\r\n");
            UnixStream::connect(&path).unwrap().write_all(set(&unix).as_bytes()).unwrap();
            connect(&server).write_all(set(&tcp).as_bytes()).unwrap();
            expected.extend([(unix, 1), (tcp, 1)]);
        }
        // Nobody takes the answers of these, there is more than one read of them, and each waits for the one before.
        for client in 0..10 {
            let key = format!("pipeline{client}");
            let mut commands = format!("set {key} 0 0 0\r\n\r\n");
            commands.push_str(&format!("append {key} 0 0 1\r\nx\r\nmg {key} v\r\n").repeat(50));
            commands.push_str(&format!("get {}\r\n", "k ".repeat(30_000)));
            commands.push_str(&format!("append {key} 0 0 1\r\nx\r\n").repeat(50));
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(commands.as_bytes()).unwrap();
            expected.push((key, 100));
        }
        let deadline = Instant::now() + PATIENCE;
        for (key, length) in expected {
            let stored = || engine.value(key.as_bytes()).map(|value| value.len() - situ_server::HEADER_BYTES);
            while stored() != Some(length) {
                assert!(Instant::now() < deadline, "{key} has {:?} bytes of {length}", stored());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let mut stream = connect(&server);
        while !{
            stream.write_all(b"stats conns\r\n").unwrap();
            let mut text = vec![0; 4096];
            let length = stream.read(&mut text).unwrap();
            text[..length].starts_with(b"STAT curr_connections 1\r\n")
        } {
            assert!(Instant::now() < deadline, "connections stay open");
            std::thread::sleep(Duration::from_millis(10));
        }
        server.stop(PATIENCE);
    }
}

#[test]
fn values_up_to_the_limit_are_kept_and_larger_ones_are_swallowed() {
    let options = ServerOptions { max_value_bytes: 30 << 20, ..local() };
    let engine = MemoryEngine::start(None);
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    let mut stream = connect(&server);
    for length in [0usize, 1, 16_383, 16_384, 16_385, 65_536, 1 << 20, 30 << 20] {
        let value: Vec<u8> = (0..length).map(|index| (index * 31 % 251) as u8).collect();
        let mut command = format!("set key 0 0 {length}\r\n").into_bytes();
        command.extend_from_slice(&value);
        command.extend_from_slice(b"\r\nget key\r\n");
        // Two pieces, so that the block is never whole at first.
        let (first, second) = command.split_at(command.len() / 2);
        stream.write_all(first).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        stream.write_all(second).unwrap();
        expect(&mut stream, format!("STORED\r\nVALUE key 0 {length}\r\n").as_bytes());
        expect(&mut stream, &value);
        expect(&mut stream, b"\r\nEND\r\n");
    }
    let too_long = (30 << 20) + 1;
    let mut command = format!("set key 0 0 {too_long}\r\n").into_bytes();
    command.resize(command.len() + too_long, b'\n');
    command.extend_from_slice(b"\r\nmn\r\n");
    ask(&mut stream, &command, b"SERVER_ERROR object too large for cache\r\nMN\r\n");
    // As in memcached, the older value is gone rather than taken for the new one.
    ask(&mut stream, b"get key\r\n", b"END\r\n");
    // Appending past the limit is refused, too.
    let mut command = format!("set key 0 0 {}\r\n", 30 << 20).into_bytes();
    command.resize(command.len() + (30 << 20), b'x');
    command.extend_from_slice(b"\r\nappend key 0 0 1\r\ny\r\n");
    ask(&mut stream, &command, b"STORED\r\nNOT_STORED\r\n");
}

#[test]
fn lines_without_end_and_random_bytes_are_survived() {
    let server = Server::start(&local(), MemoryEngine::start(None)).unwrap();
    let mut stream = connect(&server);
    stream.write_all(&[b'x'; 5000]).unwrap();
    let mut end = Vec::new();
    // The close may come as a reset, as there is unread input.
    let _ = stream.read_to_end(&mut end);
    assert!(end.is_empty(), "{}", end.escape_ascii());
    // A retrieval may be long.
    let mut stream = connect(&server);
    let command = format!("get{}\r\n", " key".repeat(50_000));
    ask(&mut stream, command.as_bytes(), b"END\r\n");
    let mut state = 7u64;
    for _ in 0..100 {
        let mut stream = connect(&server);
        let noise: Vec<u8> = (0..3000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let byte = (state >> 33) as u8;
                if byte < 60 { b"\r\n \0getsmx0129"[byte as usize % 13] } else { byte }
            })
            .collect();
        let _ = stream.write_all(&noise);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    ask(&mut connect(&server), b"mn\r\n", b"MN\r\n");
}

#[test]
fn limits_of_connections_and_idleness_are_enforced() {
    let options = ServerOptions { max_connections: 2, idle_timeout_seconds: 1, ..local() };
    let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
    let (mut one, mut two) = (connect(&server), connect(&server));
    ask(&mut one, b"mn\r\n", b"MN\r\n");
    ask(&mut two, b"mn\r\n", b"MN\r\n");
    let mut refused = Vec::new();
    connect(&server).read_to_end(&mut refused).unwrap();
    assert_eq!(refused, b"ERROR Too many open connections\r\n");
    let mut end = Vec::new();
    one.read_to_end(&mut end).unwrap();
    assert!(end.is_empty(), "an idle connection is closed without a word");
    two.read_to_end(&mut end).unwrap();
    ask(&mut connect(&server), b"mn\r\n", b"MN\r\n");
}

/// Only commands used to count as activity: a value that took longer than the limit to arrive or to be read was cut off.
#[test]
fn a_transfer_that_moves_is_not_idle() {
    const LENGTH: usize = 24 << 20;
    const PIECES: usize = 40;
    let options = ServerOptions { idle_timeout_seconds: 2, max_value_bytes: LENGTH, ..local() };
    let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
    let value: Vec<u8> = (0..LENGTH).map(|index| (index * 31 % 251) as u8).collect();
    let (mut stream, mut idle) = (connect(&server), connect(&server));
    ask(&mut idle, b"mn\r\n", b"MN\r\n");
    stream.write_all(format!("set big 0 0 {LENGTH}\r\n").as_bytes()).unwrap();
    for piece in value.chunks(LENGTH.div_ceil(PIECES)) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(75));
    }
    ask(&mut stream, b"\r\nget big\r\n", format!("STORED\r\nVALUE big 0 {LENGTH}\r\n").as_bytes());
    for piece in value.chunks(LENGTH.div_ceil(PIECES)) {
        expect(&mut stream, piece);
        std::thread::sleep(Duration::from_millis(75));
    }
    expect(&mut stream, b"\r\nEND\r\n");
    // The other one was closed meanwhile.
    let mut end = Vec::new();
    idle.read_to_end(&mut end).unwrap();
    assert!(end.is_empty());
}

#[test]
fn stopping_finishes_what_was_read_and_answers_it() {
    let engine = MemoryEngine::start(Some(Duration::from_millis(100)));
    let server = Server::start(&local(), Arc::clone(&engine)).unwrap();
    let mut stream = connect(&server);
    stream.write_all(b"set a 0 0 1\r\nx\r\nappend a 0 0 1\r\ny\r\nget a\r\n").unwrap();
    while engine.writes.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.stop(PATIENCE);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "STORED\r\nSTORED\r\nVALUE a 0 2\r\nxy\r\nEND\r\n");
    assert!(engine.value(b"a").is_some());
}

#[test]
fn stopping_does_not_wait_for_an_engine_that_never_answers() {
    let engine = MemoryEngine::start(Some(Duration::from_secs(3600)));
    let server = Server::start(&local(), engine).unwrap();
    let mut stream = connect(&server);
    stream.write_all(b"set a 0 0 1\r\nx\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    server.stop(Duration::from_millis(200));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_unix_socket_serves_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("situ.sock");
    // What a crash leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let options = ServerOptions { listen: Vec::new(), unix_socket: Some(path.clone()), ..ServerOptions::default() };
    let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    ask(
        &mut UnixStream::connect(&path).unwrap(),
        b"set a 0 0 1\r\nx\r\nget a\r\n",
        b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
    let taken = Server::start(&options, MemoryEngine::start(None)).unwrap_err().to_string();
    assert!(taken.contains("another process"), "{taken}");
    server.stop(PATIENCE);
    assert!(!path.exists());
}
