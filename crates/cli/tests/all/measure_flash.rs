//! A cache on flash beside memcached's extstore, measured: the same file system, the same memory, the same load.
//!
//! Ignored by default: it wants a quiet machine with two cores, a release build, memcached and minutes. As root, both servers run in a control group
//! whose memory includes the page cache: extstore reads through it.
//!
//! ```sh
//! cargo test --release -p situ-cli --test all measure_flash:: -- --ignored --nocapture --test-threads 1
//! ```
//!
//! | variable | what | default |
//! |---|---|---|
//! | `SITU_MEASURE_FLASH` | directory of the files that stand in for flash | cargo's directory for temporary files |
//! | `SITU_MEASURE_MEMORY_MIB` | memory of each server | 256 |
//! | `SITU_MEASURE_FLASH_MIB` | size of each file | 4096 |
//! | `SITU_MEASURE_ITEMS_LOG2` | items, as a power of two | 21 |
//! | `SITU_MEASURE_VALUE_BYTES` | length of a value | 1000 |
//! | `SITU_MEASURE_CONNECTIONS` | connections, several numbers with commas | 16,64,256 |
//! | `SITU_MEASURE_SECONDS`, `SITU_MEASURE_DIR` | as for [`measure`](super::measure) | |
//! | `SITU_MEASURE_ONLY` | one of the servers, `situ` or `extstore` | both |
//! | `SITU_MEASURE_SITU`, `SITU_MEASURE_EXTSTORE` | more options of a server | |

use crate::measure::{Measured, circumstances, cpu_seconds, free_port, resident_bytes, save, start};
use rustix::event::epoll;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const GROUP: &str = "/sys/fs/cgroup/memory/situ-measure";

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

struct Load {
    keys: usize,
    value_bytes: usize,
    seconds: u64,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Popularity {
    Uniform,
    /// The key with rank r is asked for in proportion to 1/r.
    Zipfian,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn key(&mut self, popularity: Popularity, keys: usize) -> usize {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = match popularity {
            Popularity::Uniform => (keys as f64 * unit) as usize,
            Popularity::Zipfian => (keys as f64).powf(unit) as usize - 1,
        };
        // Popular keys are neither the first nor the last ones that were stored.
        rank.min(keys - 1).wrapping_mul(0x9e37_79b1) % keys
    }
}

fn value(key: usize, bytes: usize) -> Vec<u8> {
    format!("{key:016}").into_bytes().into_iter().cycle().take(bytes).collect()
}

impl Load {
    /// Stores all keys, and again those that have gone, until nearly all are there. extstore needs a while until it has memory for the headers of its
    /// items.
    fn fill(&self, server: &Measured) {
        let mut missing: Vec<usize> = (0..self.keys).collect();
        for round in 0..8 {
            println!("{} stores {} items in round {round}", server.name, missing.len());
            self.store(server, &missing);
            std::thread::sleep(Duration::from_secs(2));
            missing = self.missing(server);
            if missing.len() * 100 < self.keys {
                return;
            }
        }
    }

    fn missing(&self, server: &Measured) -> Vec<usize> {
        let mut connection = BufReader::new(TcpStream::connect(server.address).unwrap());
        let mut missing = Vec::new();
        for start in (0..self.keys).step_by(256) {
            let asked: String = (start..start + 256).map(|key| format!("mg key{key:08}\r\n")).collect();
            connection.get_mut().write_all(asked.as_bytes()).unwrap();
            for key in start..start + 256 {
                let mut line = String::new();
                connection.read_line(&mut line).unwrap();
                if line == "EN\r\n" {
                    missing.push(key);
                }
            }
        }
        missing
    }

    /// Stores keys. Waits for the answers, so that a server can keep up.
    fn store(&self, server: &Measured, keys: &[usize]) {
        let mut connection = BufReader::new(TcpStream::connect(server.address).unwrap());
        let begin = Instant::now();
        for (chunk, keys) in keys.chunks(256).enumerate() {
            let mut text = Vec::new();
            for key in keys {
                text.extend_from_slice(format!("ms key{key:08} {} q\r\n", self.value_bytes).as_bytes());
                text.extend_from_slice(&value(*key, self.value_bytes));
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"mn\r\n");
            connection.get_mut().write_all(&text).unwrap();
            let mut line = String::new();
            connection.read_line(&mut line).unwrap();
            assert_eq!(line, "MN\r\n");
            // 200 MB a second: extstore drops what it cannot write in time.
            let due = Duration::from_secs_f64((chunk * 256 * self.value_bytes) as f64 / 200e6);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
    }

    /// Asks for keys on so many connections, one request at a time on each.
    fn run(&self, server: &Measured, connections: usize, popularity: Popularity) -> Value {
        let mut random = Random(0x1234_5678_9abc_def1);
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut clients: Vec<_> = (0..connections)
            .map(|at| {
                let stream = TcpStream::connect(server.address).unwrap();
                stream.set_nodelay(true).unwrap();
                epoll::add(&poll, &stream, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN).unwrap();
                (stream, 0, Instant::now(), Vec::new())
            })
            .collect();
        let before = cpu_seconds(&format!("/proc/{}/stat", server.process.id()));
        let begin = Instant::now();
        let time = Duration::from_secs(self.seconds);
        for (stream, key, asked, _) in &mut clients {
            (*key, *asked) = (random.key(popularity, self.keys), Instant::now());
            stream.write_all(format!("mg key{key:08} v\r\n").as_bytes()).unwrap();
        }
        let (mut latencies, mut misses, mut left) = (Vec::new(), 0u64, connections);
        let mut events = Vec::with_capacity(connections);
        let mut part = vec![0; 1 << 20];
        while left > 0 {
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            for event in events.drain(..) {
                let (stream, key, asked, answer) = &mut clients[event.data.u64() as usize];
                let count = stream.read(&mut part).unwrap();
                assert!(count > 0, "{} has hung up", server.name);
                answer.extend_from_slice(&part[..count]);
                let header = format!("VA {}\r\n", self.value_bytes);
                if answer == b"EN\r\n" {
                    misses += 1;
                } else if answer.len() == header.len() + self.value_bytes + 2 {
                    let found = &answer[header.len()..];
                    assert!(answer.starts_with(header.as_bytes()), "{}", answer[..20].escape_ascii());
                    assert!(
                        found[..self.value_bytes] == value(*key, self.value_bytes),
                        "wrong bytes of key {key} from {}",
                        server.name
                    );
                } else {
                    continue;
                }
                answer.clear();
                latencies.push(asked.elapsed().as_nanos() as u64);
                if begin.elapsed() < time {
                    (*key, *asked) = (random.key(popularity, self.keys), Instant::now());
                    stream.write_all(format!("mg key{key:08} v\r\n").as_bytes()).unwrap();
                } else {
                    left -= 1;
                }
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let after = cpu_seconds(&format!("/proc/{}/stat", server.process.id()));
        latencies.sort_unstable();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1e3;
        let measured = json!({
            "server": server.name,
            "popularity": format!("{popularity:?}"),
            "connections": connections,
            "gets_per_s": (latencies.len() as f64 / seconds).round(),
            "hits_per_s": ((latencies.len() as u64 - misses) as f64 / seconds).round(),
            "hit_ratio": 1.0 - misses as f64 / latencies.len() as f64,
            "p50_us": at(0.5),
            "p99_us": at(0.99),
            "p999_us": at(0.999),
            "server_cpu_us_a_get": (after.iter().sum::<f64>() - before.iter().sum::<f64>()) * 1e6 / latencies.len() as f64,
        });
        println!("{measured}");
        measured
    }
}

/// Some lines of `stats`.
fn stats(server: &Measured) -> BTreeMap<String, u64> {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(b"stats\r\nquit\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let wanted = |name: &str| {
        name.starts_with("extstore") || name.ends_with("_extstore") || ["evictions", "curr_items"].contains(&name)
    };
    let line = |line: &str| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        wanted(name).then(|| Some((name.to_owned(), value.parse().ok()?))).flatten()
    };
    text.lines().filter_map(line).collect()
}

/// A program whose memory, the page cache included, is limited if the system lets us.
fn limited(program: &str, bytes: usize) -> (Command, bool) {
    let is_limited = fs::create_dir_all(GROUP).is_ok()
        && fs::write(format!("{GROUP}/memory.limit_in_bytes"), bytes.to_string()).is_ok();
    let mut command = Command::new("sh");
    let enters = if is_limited { format!("echo $$ > {GROUP}/cgroup.procs; ") } else { String::new() };
    command.args(["-c", &format!("{enters}exec \"$0\" \"$@\""), program]);
    (command, is_limited)
}

#[test]
#[ignore = "measures; wants a quiet machine with two cores, a release build and memcached"]
fn reads_of_flash_beside_extstore() {
    let directory = std::env::var_os("SITU_MEASURE_FLASH").map_or(env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let memory_mib = number("SITU_MEASURE_MEMORY_MIB", 256);
    let flash_mib = number("SITU_MEASURE_FLASH_MIB", 4096);
    let load = Load {
        keys: 1 << number("SITU_MEASURE_ITEMS_LOG2", 21),
        value_bytes: number("SITU_MEASURE_VALUE_BYTES", 1000),
        seconds: number("SITU_MEASURE_SECONDS", 10) as u64,
    };
    let connections = std::env::var("SITU_MEASURE_CONNECTIONS").unwrap_or("16,64,256".to_owned());
    let connections: Vec<usize> = connections.split(',').map(|text| text.parse().unwrap()).collect();
    let only = std::env::var("SITU_MEASURE_ONLY").unwrap_or_default();
    let mut results = Vec::new();
    let mut is_limited = false;
    for name in ["situ", "extstore"] {
        if !only.is_empty() && only != name {
            continue;
        }
        let path = directory.join(format!("flash-{name}"));
        remove(&path);
        let port = free_port();
        let program = if name == "situ" { env!("CARGO_BIN_EXE_situ") } else { "memcached" };
        // Connections and the program take a little more than what is configured.
        let (mut command, limited) = limited(program, (memory_mib << 20) + (32 << 20));
        is_limited = limited;
        if name == "situ" {
            command.args(["serve", "--engine", "cache", "--no-http", "--threads", "1"]);
            command.args(["--listen", &format!("127.0.0.1:{port}"), "--memory", &format!("{memory_mib}M")]);
            command.arg("--flash").arg(&path).args(["--flash-size", &format!("{flash_mib}M")]);
        } else {
            // The hash table and the items' headers are part of the limit.
            let items_mib = memory_mib - 32;
            command.args([
                "-u",
                "root",
                "-t",
                "1",
                "-c",
                "2000",
                "-m",
                &items_mib.to_string(),
                "-p",
                &port.to_string(),
            ]);
            command.args(["-o", &format!("ext_path={}:{flash_mib}M", path.display())]);
        }
        let more = std::env::var(format!("SITU_MEASURE_{}", name.to_uppercase())).unwrap_or_default();
        command.args(more.split_whitespace());
        let server = start(name, port, &mut command);
        load.fill(&server);
        std::thread::sleep(Duration::from_secs(3));
        let loaded = stats(&server);
        println!("{name} loaded: {loaded:?}");
        for popularity in [Popularity::Uniform, Popularity::Zipfian] {
            for connections in &connections {
                results.push(load.run(&server, *connections, popularity));
            }
        }
        let after = stats(&server);
        println!("{name}: {} KiB resident; {after:?}", resident_bytes(server.process.id()) >> 10);
        results.push(json!({
            "server": name, "resident_kib": resident_bytes(server.process.id()) >> 10, "loaded": loaded, "after": after, "more_options": more,
        }));
        drop(server);
        remove(&path);
    }
    let result = json!({
        "circumstances": circumstances(),
        "memory_mib": memory_mib,
        "flash_mib": flash_mib,
        "items": load.keys,
        "value_bytes": load.value_bytes,
        "page_cache_is_limited": is_limited,
        "results": results,
    });
    save("flash.json", &result);
}

fn remove(path: &Path) {
    for end in ["", ".journal-0", ".journal-1", ".index", ".records"] {
        _ = fs::remove_file(format!("{}{end}", path.display()));
    }
}
