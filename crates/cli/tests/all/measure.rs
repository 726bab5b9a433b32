//! What `situ serve` promises beside memcached, measured: throughput on one core, and the price of idle connections.
//!
//! Ignored by default: they want a quiet machine with two cores, a release build, and minutes.
//!
//! ```sh
//! cargo test --release -p situ-cli --test all measure:: -- --ignored --nocapture --test-threads 1
//! ```
//!
//! `SITU_MEASURE_ENGINE=cache` measures the cache instead of the store. `SITU_MEASURE_DEPTH` is how many requests are under way on each connection (16).
//! `SITU_MEASURE_SECONDS` is how long each measurement of throughput takes (10), `SITU_MEASURE_DIR` where the results go
//! as JSON (cargo's directory for temporary files); the paths are printed.

use crate::common::Serving;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CONNECTIONS: usize = 50;
const KEYS: usize = 1000;
const VALUE_BYTES: usize = 100;
const ROUNDS: usize = 5;
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const IDLE_CONNECTIONS: usize = 10_000;
/// What a connection that does one set and one get reads.
const USED: &[u8] = b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n";
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that is measured. Killed on drop.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) process: Child,
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server with all of its threads on [`SERVER_CORE`], and waits until it answers.
pub(crate) fn start(name: &'static str, port: u16, command: &mut Command) -> Measured {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
    let measured = Measured { name, address: SocketAddr::from(([127, 0, 0, 1], port)), process };
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(measured.address).is_err() {
        assert!(Instant::now() < deadline, "{name} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    measured
}

fn pinned(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &SERVER_CORE.to_string()]).arg(program);
    command
}

/// How a value is asked for, or stored. memcached sends the answer to each classic command by itself, and those to several meta commands together.
const COMMANDS: [&str; 4] = ["get", "mg", "set", "ms"];

/// Requests under way on each connection.
fn depth() -> usize {
    std::env::var("SITU_MEASURE_DEPTH").map_or(16, |depth| depth.parse().unwrap())
}

fn request(command: &str, key: usize, value: &str) -> (String, String) {
    match command {
        "set" => (format!("set key{key:06} 0 0 {VALUE_BYTES}\r\n{value}\r\n"), "STORED\r\n".to_owned()),
        "ms" => (format!("ms key{key:06} {VALUE_BYTES}\r\n{value}\r\n"), "HD\r\n".to_owned()),
        "get" => {
            let answer = format!("VALUE key{key:06} 0 {VALUE_BYTES}\r\n{value}\r\nEND\r\n");
            (format!("get key{key:06}\r\n"), answer)
        }
        _ => (format!("mg key{key:06} v\r\n"), format!("VA {VALUE_BYTES}\r\n{value}\r\n")),
    }
}

/// The client: one thread that keeps [`depth`] requests under way on each of its connections.
struct Client {
    streams: Vec<TcpStream>,
    /// For each of [`COMMANDS`], what is sent in one go, and its answer.
    batches: [Vec<(Vec<u8>, Vec<u8>)>; 4],
}

impl Client {
    /// Connects, and stores the keys.
    fn connect(address: SocketAddr) -> Client {
        let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(address)).collect();
        let value = |key: usize| format!("{key:06}").repeat(VALUE_BYTES)[..VALUE_BYTES].to_owned();
        for key in 0..KEYS {
            let set = format!("set key{key:06} 0 0 {VALUE_BYTES}\r\n{}\r\n", value(key));
            exchange(&mut streams[0], set.as_bytes(), b"STORED\r\n");
        }
        let depth = depth();
        let batches = COMMANDS.map(|command| {
            let batch = |batch: usize| {
                let keys = batch * depth..(batch + 1) * depth;
                let (asked, answers): (String, String) = keys.map(|key| request(command, key, &value(key))).unzip();
                (asked.into_bytes(), answers.into_bytes())
            };
            (0..KEYS / depth).map(batch).collect()
        });
        Client { batches, streams }
    }

    /// Gets for so long; the number of gets that were answered, every byte of which is checked.
    fn run(&mut self, command: usize, time: Duration) -> u64 {
        let batches = &self.batches[command];
        let answered = depth() as u64;
        let mut gets = 0;
        let mut answer = vec![0; batches[0].1.len()];
        assert!(batches.iter().all(|(_, expected)| expected.len() == answer.len()));
        let mut sent = vec![0; CONNECTIONS];
        for (connection, stream) in self.streams.iter_mut().enumerate() {
            sent[connection] = connection % batches.len();
            stream.write_all(&batches[sent[connection]].0).unwrap();
        }
        let begin = Instant::now();
        loop {
            let last = begin.elapsed() >= time;
            for (connection, stream) in self.streams.iter_mut().enumerate() {
                stream.read_exact(&mut answer).unwrap();
                assert!(answer == batches[sent[connection]].1, "a wrong answer");
                gets += answered;
                if !last {
                    sent[connection] = (sent[connection] + 1) % batches.len();
                    stream.write_all(&batches[sent[connection]].0).unwrap();
                }
            }
            if last {
                return gets;
            }
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, asked: &[u8], expected: &[u8]) {
    stream.write_all(asked).unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == expected, "got {} for {}", answer.escape_ascii(), asked.escape_ascii());
}

/// User and system time in seconds, from a `stat` file under `/proc`.
pub(crate) fn cpu_seconds(stat: &str) -> [f64; 2] {
    let stat = fs::read_to_string(stat).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    [11, 12].map(|field| fields[field].parse::<f64>().unwrap() / ticks)
}

fn measure(server: &Measured, client: &mut Client, command: usize, round: usize, time: Duration) -> (f64, Value) {
    let (process, thread) = (format!("/proc/{}/stat", server.process.id()), "/proc/thread-self/stat");
    let (before, client_before, begin) = (cpu_seconds(&process), cpu_seconds(thread), Instant::now());
    let gets = client.run(command, time);
    let seconds = begin.elapsed().as_secs_f64();
    let (after, client_after) = (cpu_seconds(&process), cpu_seconds(thread));
    let gets_per_s = gets as f64 / seconds;
    let measured = json!({
        "server": server.name,
        "command": COMMANDS[command],
        "round": round,
        "gets": gets,
        "seconds": seconds,
        "gets_per_s": gets_per_s,
        "server_user_s": after[0] - before[0],
        "server_system_s": after[1] - before[1],
        "client_cpu_s": client_after.iter().sum::<f64>() - client_before.iter().sum::<f64>(),
    });
    println!("{measured}");
    (gets_per_s, measured)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Where and when.
pub(crate) fn circumstances() -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "unix_s": SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs(),
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "cores": std::thread::available_parallelism().unwrap().get(),
        "kernel": kernel.trim(),
        "release_build": !cfg!(debug_assertions),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

pub(crate) fn save(name: &str, result: &Value) {
    let directory = std::env::var_os("SITU_MEASURE_DIR").map_or(env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let path = directory.join(name);
    fs::write(&path, serde_json::to_string_pretty(result).unwrap() + "\n").unwrap();
    println!("wrote {}", path.display());
}

#[test]
#[ignore = "measures; wants a quiet machine with two cores and a release build"]
fn gets_of_hot_values_reach_60_percent_of_memcacheds_on_the_same_core() {
    if Command::new("memcached").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no memcached on this machine");
        return;
    }
    let seconds = std::env::var("SITU_MEASURE_SECONDS").map_or(10.0, |seconds| seconds.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    let directory = tempfile::tempdir().unwrap();
    let mut core = CpuSet::new();
    core.set(CLIENT_CORE);
    sched_setaffinity(None, &core).expect("two cores");

    let ports = [free_port(), free_port()];
    let mut situ = pinned(env!("CARGO_BIN_EXE_situ"));
    situ.args(["serve", "--no-http", "--threads", "1", "--listen", &format!("127.0.0.1:{}", ports[0])]);
    if let Ok(engine) = std::env::var("SITU_MEASURE_ENGINE") {
        situ.args(["--engine", &engine]);
    }
    let situ = start("situ", ports[0], situ.current_dir(directory.path()));
    let mut memcached = pinned("memcached");
    memcached.args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-p", &ports[1].to_string()]);
    if rustix::process::geteuid().is_root() {
        memcached.args(["-u", "root"]);
    }
    let memcached = start("memcached", ports[1], &mut memcached);

    let servers = [&situ, &memcached];
    let mut clients = servers.map(|server| Client::connect(server.address));
    for client in &mut clients {
        client.run(0, time.min(Duration::from_secs(1)));
    }
    let (mut measurements, mut summaries) = (Vec::new(), Vec::new());
    for (command, name) in COMMANDS.into_iter().enumerate() {
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            // Whoever goes first in one round goes second in the next.
            for turn in 0..2 {
                let which = (round + turn) % 2;
                let (rate, measured) = measure(servers[which], &mut clients[which], command, round, time);
                rates[which].push(rate);
                measurements.push(measured);
            }
        }
        let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(mine, theirs)| mine / theirs).collect();
        let ratio = median(ratios.clone());
        println!("{name}: situ serves {:.0} % of what memcached serves, median of {ROUNDS} rounds", 100.0 * ratio);
        let [mine, theirs] = rates.map(median);
        summaries.push(json!({
            "command": name, "situ_gets_per_s": mine, "memcached_gets_per_s": theirs, "ratios": ratios, "ratio": ratio,
        }));
    }
    let version = Command::new("memcached").arg("--version").output().unwrap().stdout;
    save(
        "serve-gets.json",
        &json!({
            "circumstances": circumstances(),
            "memcached": String::from_utf8_lossy(&version).trim(),
            "settings": {
                "connections": CONNECTIONS, "depth": depth(), "keys": KEYS, "value_bytes": VALUE_BYTES,
                "server_threads": 1, "server_core": SERVER_CORE, "client_core": CLIENT_CORE,
                "durability": "buffered",
            },
            "measurements": measurements,
            "summaries": summaries,
        }),
    );
    // The store's own promise, which is about gets.
    for summary in &summaries[..2] {
        assert!(summary["ratio"].as_f64().unwrap() >= 0.6, "{summary}");
    }
}

/// Resident bytes of a process.
pub(crate) fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
#[ignore = "measures; wants 10,000 connections"]
fn ten_thousand_idle_connections_cost_less_than_100_mb() {
    let limit = getrlimit(Resource::Nofile);
    let directory = tempfile::tempdir().unwrap();
    // The server gets the limits that this process was given; what the client needs is its own affair.
    let serving = Serving::start(directory.path(), &[]);
    let wanted = IDLE_CONNECTIONS as u64 + 1000;
    if limit.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
            .expect("open files enough for 10,000 connections: ulimit -Hn");
    }
    let process = serving.child.id();
    let use_it = |stream: &mut TcpStream| exchange(stream, b"set k 0 0 1\r\nx\r\nget k\r\n", USED);
    // What the first connections make the server allocate once is not the price of ten thousand.
    use_it(&mut connect(serving.address));
    let before = resident_bytes(process);
    let mut streams: Vec<TcpStream> = (0..IDLE_CONNECTIONS).map(|_| connect(serving.address)).collect();
    exchange(streams.last_mut().unwrap(), b"mn\r\n", b"MN\r\n");
    let connected = resident_bytes(process);
    streams.iter_mut().for_each(use_it);
    let used = resident_bytes(process);
    let result = json!({
        "circumstances": circumstances(),
        "connections": IDLE_CONNECTIONS,
        "resident_bytes_before": before,
        "resident_bytes_connected": connected,
        "resident_bytes_after_one_set_and_get_on_each": used,
        "bytes_for_each": (used.saturating_sub(before)) as f64 / IDLE_CONNECTIONS as f64,
    });
    println!("{result}");
    save("serve-idle.json", &result);
    assert!(used.saturating_sub(before) < 100_000_000);
    drop(streams);
}
