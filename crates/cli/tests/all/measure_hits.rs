//! Hit ratios of a cache in memory beside memcached: the same requests, the same memory.
//!
//! Ignored by default: it takes minutes. A client asks for a key, and stores its value if it was missing. The first half of the requests fills the cache, and the second half is
//! counted.
//!
//! ```sh
//! cargo test --release -p situ-cli --test all measure_hits:: -- --ignored --nocapture
//! ```
//!
//! `SITU_MEASURE_MEMORY_MIB` is the memory of each server (64), `SITU_MEASURE_REQUESTS` how many there are (4,000,000), `SITU_MEASURE_DIR` where the result goes.

use crate::measure::{Measured, circumstances, free_port, resident_bytes, save, start};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;

const KEYS: u64 = 1_000_000;
/// Requests that are sent together.
const BATCH: usize = 100;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What is asked for, request by request: a key, and the length of its value.
#[derive(Debug, Clone, Copy)]
enum Workload {
    Zipfian(f64),
    /// Zipfian of 1.0; now and then 50,000 keys in a row that are asked for once.
    Scans,
    /// Zipfian of 1.0; 10,000 ranks get other keys after each 200,000 requests.
    Changing,
    /// Zipfian of 1.0; lengths from 100 to 20,000 bytes of a Pareto distribution.
    Pareto,
}

const WORKLOADS: [Workload; 7] = [
    Workload::Zipfian(0.8),
    Workload::Zipfian(0.9),
    Workload::Zipfian(1.0),
    Workload::Zipfian(1.1),
    Workload::Scans,
    Workload::Changing,
    Workload::Pareto,
];

fn rank(unit: f64, skew: f64) -> u64 {
    let keys = KEYS as f64;
    let rank = match skew {
        1.0 => keys.powf(unit),
        skew => ((keys.powf(1.0 - skew) - 1.0) * unit + 1.0).powf(1.0 / (1.0 - skew)),
    };
    (rank as u64).clamp(1, KEYS) - 1
}

impl Workload {
    fn request(self, random: &mut Random, number: u64) -> (u64, usize) {
        let unit = random.unit();
        match self {
            Workload::Zipfian(skew) => (rank(unit, skew), 300),
            Workload::Scans if number % 200_000 >= 150_000 => (KEYS * 10 + number, 300),
            Workload::Scans => (rank(unit, 1.0), 300),
            Workload::Changing => (rank(unit, 1.0) + number / 200_000 * 10_000, 300),
            Workload::Pareto => {
                let key = rank(unit, 1.0);
                let spread = Random(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).unit().max(1e-9);
                (key, (100.0 * spread.powf(-1.0 / 1.2)).min(20_000.0) as usize)
            }
        }
    }

    /// The share of the second half's requests that hit.
    fn hit_ratio(self, server: &Measured, requests: u64) -> f64 {
        let mut connection = BufReader::new(TcpStream::connect(server.address).unwrap());
        connection.get_mut().write_all(b"flush_all\r\n").unwrap();
        let mut line = String::new();
        connection.read_line(&mut line).unwrap();
        let mut random = Random(0x1234_5678_9abc_def1);
        let (mut hits, mut counted) = (0u64, 0u64);
        for start in (0..requests).step_by(BATCH) {
            let batch: Vec<_> = (start..start + BATCH as u64).map(|number| self.request(&mut random, number)).collect();
            let asked: String =
                batch.iter().map(|(key, _)| format!("mg {self:.0?}{key:010}\r\n").replace(['(', ')'], "")).collect();
            connection.get_mut().write_all(asked.as_bytes()).unwrap();
            let mut text = Vec::new();
            for (key, length) in &batch {
                line.clear();
                connection.read_line(&mut line).unwrap();
                let is_hit = line == "HD\r\n";
                if !is_hit {
                    let name = format!("{self:.0?}{key:010}").replace(['(', ')'], "");
                    text.extend_from_slice(format!("ms {name} {length} q\r\n").as_bytes());
                    text.resize(text.len() + length, b'v');
                    text.extend_from_slice(b"\r\n");
                }
                if start >= requests / 2 {
                    hits += u64::from(is_hit);
                    counted += 1;
                }
            }
            text.extend_from_slice(b"mn\r\n");
            connection.get_mut().write_all(&text).unwrap();
            line.clear();
            connection.read_line(&mut line).unwrap();
            assert_eq!(line, "MN\r\n");
        }
        hits as f64 / counted as f64
    }
}

/// A server whose process takes so much memory.
fn serve(name: &'static str, memory_mib: u64) -> Measured {
    let port = free_port();
    let mut command = Command::new(if name == "situ" { env!("CARGO_BIN_EXE_situ") } else { "memcached" });
    if name == "situ" {
        let listen = format!("127.0.0.1:{port}");
        command.args(["serve", "--engine", "cache", "--no-http", "--threads", "1", "--listen", &listen]);
        command.args(["--memory", &format!("{memory_mib}M")]);
    } else {
        // Its process takes 7 MiB more than its items.
        let items_mib = memory_mib - 7;
        command.args(["-u", "root", "-t", "1", "-m", &items_mib.to_string(), "-p", &port.to_string()]);
    }
    start(name, port, &mut command)
}

/// How many items a full server has, and what its process takes for each beside key and value.
#[test]
#[ignore = "takes minutes, and wants memcached"]
fn memory_of_an_item_beside_memcached() {
    let memory_mib = 256;
    let mut results: Vec<Value> = Vec::new();
    for value_bytes in [10, 100, 300, 1000, 5000] {
        for name in ["situ", "memcached"] {
            let server = serve(name, memory_mib);
            let mut connection = BufReader::new(TcpStream::connect(server.address).unwrap());
            let value = "v".repeat(value_bytes);
            let mut line = String::new();
            let count = 2 * (memory_mib << 20) / (16 + value_bytes as u64);
            for start in (0..count).step_by(1000) {
                let sets = (start..start + 1000).map(|key| format!("ms {key:016} {value_bytes} q\r\n{value}\r\n"));
                let text = sets.collect::<String>() + "mn\r\n";
                connection.get_mut().write_all(text.as_bytes()).unwrap();
                line.clear();
                connection.read_line(&mut line).unwrap();
                assert_eq!(line, "MN\r\n");
            }
            connection.get_mut().write_all(b"stats\r\n").unwrap();
            let mut items = 0;
            while line != "END\r\n" {
                line.clear();
                connection.read_line(&mut line).unwrap();
                items = line.strip_prefix("STAT curr_items ").map_or(items, |text| text.trim_end().parse().unwrap());
            }
            let resident = resident_bytes(server.process.id());
            let beside = resident as f64 / f64::from(items) - (16 + value_bytes) as f64;
            let result = json!({
                "server": name, "value_bytes": value_bytes, "items": items, "resident_kib": resident >> 10, "beside_bytes": beside,
            });
            println!("{result}");
            results.push(result);
        }
    }
    save("items.json", &json!({"circumstances": circumstances(), "memory_mib": memory_mib, "results": results}));
}

#[test]
#[ignore = "takes minutes, and wants memcached"]
fn hit_ratios_beside_memcached() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (memory_mib, requests) = (number("SITU_MEASURE_MEMORY_MIB", 64), number("SITU_MEASURE_REQUESTS", 4_000_000));
    let mut results: Vec<Value> = Vec::new();
    for workload in WORKLOADS {
        let run = |name: &'static str| {
            let server = serve(name, memory_mib);
            (workload.hit_ratio(&server, requests), resident_bytes(server.process.id()) >> 10)
        };
        let ((mine, my_kib), (theirs, their_kib)) = (run("situ"), run("memcached"));
        let result = json!({
            "workload": format!("{workload:?}"), "situ": mine, "memcached": theirs, "situ_kib": my_kib, "memcached_kib": their_kib,
        });
        println!("{result}");
        results.push(result);
    }
    let result = json!({
        "circumstances": circumstances(), "memory_mib": memory_mib, "keys": KEYS, "requests": requests, "results": results,
    });
    save("hits.json", &result);
}
