//! A cache that is full, under a load that wants memory: does the process stay within its limit?
//!
//! Ignored by default: it takes minutes. 10,000 connections at once: most of them ask now and then, 500 send pipelines of sets, 400 ask for more than they read,
//! and 100 send values that are too long.
//!
//! ```sh
//! cargo test --release -p situ-cli --test all measure_load:: -- --ignored --nocapture
//! ```
//!
//! `SITU_MEASURE_SECONDS` is how long it takes (600), `SITU_MEASURE_MEMORY_MIB` the limit (256), `SITU_MEASURE_FLASH` the directory of the flash (cargo's directory for
//! temporary files), `SITU_MEASURE_DIR` where the result goes.

use crate::common::Serving;
use crate::measure::{circumstances, resident_bytes, save};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PIPELINES: usize = 500;
const SLOW: usize = 400;
const OVERSIZE: usize = 100;
const OTHERS: usize = 10_000 - PIPELINES - SLOW - OVERSIZE;
const LONG_VALUE: usize = 100_000;

struct Load {
    address: SocketAddr,
    stop: AtomicBool,
    answers: [AtomicU64; 4],
}

impl Load {
    fn connect(&self, count: usize) -> Vec<BufReader<TcpStream>> {
        let connect = |_| {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            BufReader::with_capacity(4096, stream)
        };
        (0..count).map(connect).collect()
    }

    fn until_stopped(&self, kind: usize, mut round: impl FnMut(u64) -> u64) {
        for number in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.answers[kind].fetch_add(round(number), Ordering::Relaxed);
        }
    }

    /// Sends sets without answers, and one command that is answered.
    fn pipelines(&self) {
        let mut connections = self.connect(PIPELINES);
        self.until_stopped(0, |round| {
            for (at, connection) in connections.iter_mut().enumerate() {
                let mut text = String::new();
                for item in 0..32 {
                    let length = [50, 500, 3000, 20_000][item % 4];
                    text += &format!("ms p{}-{at}-{item} {length} q\r\n{}\r\n", round % 50, "p".repeat(length));
                }
                connection.get_mut().write_all((text + "mn\r\n").as_bytes()).unwrap();
            }
            for connection in &mut connections {
                let mut line = String::new();
                connection.read_line(&mut line).unwrap();
                assert_eq!(line, "MN\r\n");
            }
            (PIPELINES * 32) as u64
        });
    }

    /// Asks for more than it reads: each reads a little, ten times a second.
    fn slow_readers(&self) {
        let mut connections = self.connect(SLOW);
        let value = "v".repeat(LONG_VALUE);
        let mut line = String::new();
        connections[0].get_mut().write_all(format!("set long 0 0 {LONG_VALUE}\r\n{value}\r\n").as_bytes()).unwrap();
        connections[0].read_line(&mut line).unwrap();
        assert_eq!(line, "STORED\r\n");
        self.until_stopped(1, |round| {
            for connection in &mut connections {
                let stream = connection.get_mut();
                stream.set_nonblocking(true).unwrap();
                if round % 100 == 0 {
                    // What the server does not take now is not sent.
                    _ = stream.write(&b"get long\r\n".repeat(40));
                }
                match stream.read(&mut [0; 4096]) {
                    Ok(count) => assert!(count > 0, "the server has hung up"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            std::thread::sleep(Duration::from_millis(100));
            SLOW as u64
        });
    }

    fn oversize(&self) {
        let mut connections = self.connect(OVERSIZE);
        let text = format!("set large 0 0 2000000\r\n{}\r\n", "l".repeat(2_000_000));
        self.until_stopped(2, |_| {
            for connection in &mut connections {
                connection.get_mut().write_all(text.as_bytes()).unwrap();
                let mut line = String::new();
                connection.read_line(&mut line).unwrap();
                assert_eq!(line, "SERVER_ERROR object too large for cache\r\n");
            }
            std::thread::sleep(Duration::from_millis(200));
            OVERSIZE as u64
        });
    }

    fn others(&self) {
        let mut connections = self.connect(OTHERS);
        self.until_stopped(3, |round| {
            for (at, connection) in connections.iter_mut().enumerate() {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = (round * 7 + at as u64 * 13) % 200_000;
                let text = format!("ms o{key} 300\r\n{}\r\nmg o{key} s\r\n", "o".repeat(300));
                connection.get_mut().write_all(text.as_bytes()).unwrap();
                for _ in 0..2 {
                    let mut line = String::new();
                    connection.read_line(&mut line).unwrap();
                    assert!(line.starts_with("HD") || line == "EN\r\n", "{line}");
                }
            }
            OTHERS as u64 * 2
        });
    }
}

/// What the server says of its memory.
fn cache_metrics(serving: &Serving) -> Vec<String> {
    let mut stream = TcpStream::connect(serving.http).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let wanted = |line: &&str| line.starts_with("situ_cache_") && line.contains("_bytes ");
    page.lines().filter(wanted).map(str::to_owned).collect()
}

#[test]
#[ignore = "takes ten minutes"]
fn a_full_cache_stays_within_its_memory_under_ten_thousand_connections() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seconds, memory_mib) = (number("SITU_MEASURE_SECONDS", 600), number("SITU_MEASURE_MEMORY_MIB", 256));
    let directory = std::env::var_os("SITU_MEASURE_FLASH").map_or(env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    let flash = directory.join("flash-load");
    let _ = std::fs::remove_file(&flash);
    let memory = format!("{memory_mib}M");
    let flash_path = flash.to_str().unwrap();
    let serving = Serving::start(
        &directory,
        &["--engine", "cache", "--memory", &memory, "--flash", flash_path, "--flash-size", "2G"],
    );
    let load = Load { address: serving.address, stop: AtomicBool::new(false), answers: Default::default() };
    let process = serving.child.id();
    let mut samples = Vec::new();
    let (mut worst, mut worst_at) = (0, json!(null));
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| load.pipelines()),
            scope.spawn(|| load.slow_readers()),
            scope.spawn(|| load.oversize()),
            scope.spawn(|| load.others()),
        ];
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(seconds) && threads.iter().all(|thread| !thread.is_finished()) {
            let bytes = resident_bytes(process);
            if bytes > worst.max(memory_mib << 20) {
                (worst, worst_at) =
                    (bytes, json!({"second": begin.elapsed().as_secs_f64(), "metrics": cache_metrics(&serving)}));
                println!("{} KiB: {worst_at}", bytes >> 10);
            }
            samples.push(bytes);
            std::thread::sleep(Duration::from_millis(50));
        }
        load.stop.store(true, Ordering::Relaxed);
    });
    let most = samples.iter().max().unwrap() >> 10;
    let last = samples.last().unwrap() >> 10;
    let over = samples.iter().filter(|bytes| **bytes > memory_mib << 20).count();
    let stats = serving.ask("stats\r\nquit\r\n");
    let wanted = ["evictions", "curr_items", "curr_connections", "extstore_bytes_written", "extstore_works"];
    let wanted = |line: &&str| wanted.iter().any(|name| line.starts_with(&format!("STAT {name} ")));
    let stats: Vec<&str> = stats.lines().filter(wanted).collect();
    let result = json!({
        "circumstances": circumstances(),
        "seconds": seconds,
        "limit_kib": memory_mib << 10,
        "most_kib": most,
        "last_kib": last,
        "samples": samples.len(),
        "samples_above_the_limit": over,
        "worst": worst_at,
        "answers": load.answers.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>(),
        "stats": stats,
    });
    println!("{result}");
    save("load.json", &result);
    drop(serving);
    for end in ["", ".journal-0", ".journal-1", ".index", ".records"] {
        _ = std::fs::remove_file(format!("{flash_path}{end}"));
    }
    assert!(most <= (memory_mib + 8) << 10, "{most} KiB of {memory_mib} MiB");
}
