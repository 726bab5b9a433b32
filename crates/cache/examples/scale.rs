//! How many hits and stores threads of one process do: one thread, then two, and so on, each on a processor of its own.
//!
//! ```sh
//! cargo run --release -p situ-cache --example scale
//! ```
//!
//! 100,000 items of 100 bytes in memory, uniform keys. Without a network: what the cache itself lets threads do beside each other. In the rows `caches of their
//! own`, the threads share nothing: more than that the machine does not give.

use situ_cache::{Cache, Meta, Options};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const KEYS: u64 = 100_000;
const TIME: Duration = Duration::from_secs(2);

/// The name of a key. It needs no memory of the heap, whose lines threads would share.
fn name(key: u64) -> [u8; 16] {
    let mut name = [b'k'; 16];
    name[8..].copy_from_slice(&key.to_be_bytes());
    name
}

/// Operations a second of so many threads; `stores_of_ten` of ten are stores.
fn run(caches: &[Cache], threads: usize, stores_of_ten: u64) -> f64 {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let (barrier, cache) = (&barrier, &caches[thread as usize % caches.len()]);
                scope.spawn(move || {
                    let mut state = thread + 1;
                    let (mut done, mut bytes) = (0u64, 0);
                    barrier.wait();
                    let begun = Instant::now();
                    while begun.elapsed() < TIME {
                        for _ in 0..1000 {
                            state =
                                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                            let key = name((state >> 33) % KEYS);
                            if (state >> 20) % 10 < stores_of_ten {
                                cache.put(&key, &Meta::default(), [&[7; 100], b""], 0).expect("a short item");
                            } else {
                                bytes += cache.get(&key, 0, |hit| hit.item.value.len()).hit().unwrap_or(0);
                            }
                        }
                        done += 1000;
                    }
                    assert!(stores_of_ten == 10 || bytes > 0);
                    done as f64 / begun.elapsed().as_secs_f64()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker")).sum()
    })
}

fn main() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let caches: Vec<Cache> = (0..processors.min(8)).map(|_| Cache::new(&Options::of_memory(256 << 20))).collect();
    for cache in &caches {
        for key in 0..KEYS {
            cache.put(&name(key), &Meta::default(), [&[7; 100], b""], 0).expect("a short item");
        }
    }
    println!("| operations | threads | a second, five runs | of one thread, median |");
    println!("|---|---:|---|---:|");
    for (name, stores) in [("gets", 0), ("nine gets, one store", 1), ("stores", 10)] {
        let mut one = 0.0;
        for (whose, caches) in [("one cache", &caches[..1]), ("caches of their own", &caches[..])] {
            for threads in 1..=caches.len().max(processors.min(8)) {
                let mut rates: Vec<f64> = (0..5).map(|_| run(caches, threads, stores)).collect();
                rates.sort_by(f64::total_cmp);
                let median = rates[rates.len() / 2];
                if one == 0.0 {
                    one = median;
                }
                let all: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
                println!("| {name}, {whose} | {threads} | {} | {:.2} |", all.join(" "), median / one);
            }
        }
    }
}
