//! What one client may cost the others: a hundred that pipeline without reading, and then leave. Latencies are measured, so
//! nothing runs beside these tests.

use super::own_process::in_own_process;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::memory::MemoryEngine;
use situ_server::{Server, ServerOptions};

const CLIENTS: usize = 100;

fn one_loop() -> ServerOptions {
    ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..ServerOptions::default() }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, command: &[u8], answer: &[u8]) -> Duration {
    let begun = Instant::now();
    stream.write_all(command).unwrap();
    let mut got = vec![0; answer.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == answer, "{}", got.escape_ascii());
    begun.elapsed()
}

/// The latencies of another connection, its longest last, while a hundred clients have sent `flood`, read nothing, and left.
fn latencies_beside(server: &Server, flood: &[u8]) -> Vec<Duration> {
    let mut other = connect(server);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(server)).collect();
    for client in &mut clients {
        client.set_nonblocking(true).unwrap();
        // As much as the system takes.
        let _ = client.write(flood);
    }
    drop(clients);
    let mut times: Vec<Duration> = (0..51).map(|_| ask(&mut other, b"mn\r\n", b"MN\r\n")).collect();
    times.sort();
    times
}

/// A connection ran all that one read had brought before the others had their turn. With a hundred such clients another
/// connection waited for 411 ms.
#[test]
fn clients_that_pipeline_and_leave_do_not_hold_up_the_others() {
    in_own_process(|| {
        let server = Server::start(&one_loop(), MemoryEngine::start(None)).unwrap();
        let mut stream = connect(&server);
        ask(&mut stream, format!("set v 0 0 10000\r\n{}\r\n", "v".repeat(10_000)).as_bytes(), b"STORED\r\n");
        let keys = format!("get{}\r\n", " k".repeat(30_000));
        for (what, flood) in [
            ("misses", b"get k\r\n".repeat(40_000)),
            ("hits", b"get v\r\n".repeat(40_000)),
            ("one retrieval of many keys", keys.into_bytes()),
            ("surveys", b"stats\r\n".repeat(10_000)),
        ] {
            // Three attempts: a processor that others use as well takes its time now and then, though not always.
            let attempts = (0..3).map(|_| latencies_beside(&server, &flood));
            let longest = attempts.map(|times| times[times.len() - 1]).min().unwrap();
            println!("{what}: longest {longest:?}");
            // A turn has 8192 commands for all of them, about 4 ms.
            assert!(longest < Duration::from_millis(200), "{what}: {longest:?}");
        }
        server.stop(Duration::from_secs(20));
    });
}

/// What was read is run before a server stops, also of a connection whose share of a turn was used up just then. One that
/// had been parked used to be closed as soon as its answers were sent.
#[test]
fn stopping_runs_what_was_read_over_many_turns() {
    in_own_process(|| {
        const COMMANDS: usize = 3000;
        let server = Server::start(&one_loop(), MemoryEngine::start(None)).unwrap();
        let mut streams: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
        for stream in &mut streams {
            // Few enough bytes for one read.
            stream.write_all(&b"get k\r\n".repeat(COMMANDS)).unwrap();
        }
        for stream in &streams {
            stream.peek(&mut [0]).unwrap();
        }
        server.stop(Duration::from_secs(60));
        for stream in &mut streams {
            let mut answers = Vec::new();
            stream.read_to_end(&mut answers).unwrap();
            assert_eq!(answers.len(), 5 * COMMANDS);
        }
    });
}

/// A client that takes its answers late gets all of them, in order, however often it had to give way.
#[test]
fn deep_pipelines_are_answered_in_order() {
    in_own_process(|| {
        const COMMANDS: usize = 20_000;
        let server = Server::start(&one_loop(), MemoryEngine::start(None)).unwrap();
        let mut streams: Vec<TcpStream> = (0..8).map(|_| connect(&server)).collect();
        std::thread::scope(|scope| {
            for (client, stream) in streams.iter_mut().enumerate() {
                scope.spawn(move || {
                    let mut sender = stream.try_clone().unwrap();
                    let sending = std::thread::spawn(move || {
                        let set = format!("set n{client} 0 0 1\r\n0\r\n");
                        sender.write_all(set.as_bytes()).unwrap();
                        let mut commands = Vec::new();
                        for number in 0..COMMANDS {
                            commands.extend_from_slice(
                                format!("incr n{client} 1\r\nmg no{number} k O{number}\r\n").as_bytes(),
                            );
                        }
                        commands.extend_from_slice(
                            format!("gets{}\r\nmn\r\n", format!(" n{client}").repeat(3000)).as_bytes(),
                        );
                        sender.write_all(&commands).unwrap();
                    });
                    std::thread::sleep(Duration::from_millis(100));
                    let mut all = Vec::new();
                    let mut piece = [0; 1 << 16];
                    while !all.ends_with(b"MN\r\n") {
                        let bytes = stream.read(&mut piece).unwrap();
                        assert_ne!(bytes, 0);
                        all.extend_from_slice(&piece[..bytes]);
                    }
                    sending.join().unwrap();
                    let text = String::from_utf8(all).unwrap();
                    let mut lines = text.lines();
                    assert_eq!(lines.next(), Some("STORED"));
                    for number in 0..COMMANDS {
                        assert_eq!(lines.next(), Some((number + 1).to_string().as_str()));
                        assert_eq!(lines.next(), Some(format!("EN kno{number} O{number}").as_str()));
                    }
                    let values = lines.clone().filter(|line| line.starts_with("VALUE ")).count();
                    assert_eq!((values, lines.count()), (3000, 6002));
                });
            }
        });
        server.stop(Duration::from_secs(20));
    });
}
