//! A smoke test of speed next to memcached, in the same process and minute. Ignored by default: it needs a quiet
//! machine and a release build to say anything.
//!
//! ```sh
//! cargo test --release -p situ-server --test throughput -- --ignored --nocapture
//! ```

mod memory;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use situ_server::{Server, ServerOptions};

const CONNECTIONS: usize = 50;
const DEPTH: usize = 16;
const KEYS: usize = 1000;
const TIME: Duration = Duration::from_millis(1500);

/// Commands per second with all connections sending `DEPTH` at a time from one thread.
fn measure(address: SocketAddr, command: impl Fn(usize) -> String, answer_bytes: usize) -> f64 {
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        })
        .collect();
    let batches: Vec<Vec<u8>> = (0..64)
        .map(|batch| (0..DEPTH).flat_map(|index| command((batch * DEPTH + index) % KEYS).into_bytes()).collect())
        .collect();
    let mut answer = vec![0; answer_bytes * DEPTH];
    let mut commands = 0;
    let begin = Instant::now();
    for round in 0.. {
        for stream in &mut streams {
            stream.write_all(&batches[round % batches.len()]).unwrap();
        }
        for stream in &mut streams {
            stream.read_exact(&mut answer).unwrap();
            commands += DEPTH;
        }
        if begin.elapsed() > TIME {
            break;
        }
    }
    commands as f64 / begin.elapsed().as_secs_f64()
}

/// User and system time of the server's event loops so far, in seconds.
fn loop_seconds() -> [f64; 2] {
    let mut total = [0.0; 2];
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        if let Some((name, rest)) = stat.rsplit_once(") ")
            && name.contains("(situ-loop")
        {
            for (sum, field) in total.iter_mut().zip([11, 12]) {
                *sum += rest.split(' ').nth(field).unwrap().parse::<f64>().unwrap() / 100.0;
            }
        }
    }
    total
}

fn both(address: SocketAddr) -> [f64; 2] {
    let value = "v".repeat(100);
    let set = |index: usize| format!("set key{index:06} 0 0 100\r\n{value}\r\n");
    let get = |index: usize| format!("get key{index:06}\r\n");
    let sets = measure(address, set, "STORED\r\n".len());
    let before = loop_seconds();
    let gets = measure(address, get, "VALUE key000000 0 100\r\n\r\nEND\r\n".len() + 100);
    let after = loop_seconds();
    let each = |index: usize| (after[index] - before[index]) / (gets * TIME.as_secs_f64()) * 1e9;
    if after != before {
        println!("situ-server: {:.0} ns user and {:.0} ns system time of its loops for each get", each(0), each(1));
    }
    [sets, gets]
}

#[test]
#[ignore = "measures; wants a quiet machine and a release build"]
fn throughput_is_at_least_60_percent_of_memcacheds() {
    let options =
        ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..ServerOptions::default() };
    let server = Server::start(&options, memory::MemoryEngine::start(None)).unwrap();
    let mine = both(server.addresses()[0]);
    println!("situ-server: {:.0} sets/s, {:.0} gets/s", mine[0], mine[1]);
    let port = 21_000 + std::process::id() % 10_000;
    let mut command = Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-U", "0", "-t", "2", "-p", &port.to_string()]).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let Ok(mut child) = command.spawn() else {
        eprintln!("SKIPPED the comparison: no memcached on this machine");
        return;
    };
    std::thread::sleep(Duration::from_millis(500));
    let theirs = both(SocketAddr::from(([127, 0, 0, 1], port as u16)));
    child.kill().unwrap();
    child.wait().unwrap();
    println!("memcached:   {:.0} sets/s, {:.0} gets/s", theirs[0], theirs[1]);
    assert!(mine[1] >= 0.6 * theirs[1] && mine[0] >= 0.6 * theirs[0], "{mine:?} against {theirs:?}");
}
