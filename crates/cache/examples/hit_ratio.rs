//! How many requests a cache answers, by workload and size of memory, beside two simulations.
//!
//! ```sh
//! cargo run --release -p situ-cache --example hit_ratio            # a table for each workload
//! cargo run --release -p situ-cache --example hit_ratio -- quick   # a tenth of the requests
//! ```
//!
//! Each request asks for a key. If the cache does not have it, the item is stored, as a client of a cache does.
//!
//! * `lru`: the least recently used item goes. Items cost what memcached 1.6 takes: key, value, 56 bytes and the slab's rounding (growth 1.25).
//!   memcached itself keeps segmented lists by slab class, and so comes near to this.
//! * `s3-fifo`: S3-FIFO item by item (10% small queue, ghosts for as many items as the main queue has, moved at the second read). Items cost key, value and
//!   30 bytes, so memory is the same as for the cache.
//! * `situ`: the cache itself.

#[path = "shared/zipf.rs"]
mod zipf;

use situ_cache::{Cache, Meta, Options};
use std::collections::{HashMap, HashSet, VecDeque};

use zipf::Zipf;

const NOW: u64 = 1_700_000_000;
const KEYS: u64 = 1_000_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Zipf,
    /// A fifth of the requests walk over keys that are asked for once.
    Scans,
    /// Every hundred thousand requests, the ranks of a tenth of the keys move.
    Shifting,
}

struct Workload {
    name: String,
    kind: Kind,
    skew: f64,
    has_pareto_sizes: bool,
}

impl Workload {
    fn requests(&self, count: usize) -> Vec<u64> {
        let zipf = Zipf::new(KEYS, self.skew);
        let mut random = Random(7);
        let mut scanned = KEYS * 10;
        (0..count)
            .map(|number| match self.kind {
                Kind::Scans if number % 5000 < 1000 => {
                    scanned += 1;
                    scanned
                }
                Kind::Shifting => {
                    let shift = number as u64 / 100_000 * (KEYS / 10);
                    let rank = zipf.rank(random.unit());
                    // Keys of odd ranks stay popular.
                    if rank.is_multiple_of(2) { (rank + shift) % KEYS + KEYS } else { rank }
                }
                _ => zipf.rank(random.unit()),
            })
            .collect()
    }

    /// Length of a key's value.
    fn length(&self, key: u64) -> usize {
        if !self.has_pareto_sizes {
            return 200;
        }
        // Facebook's ETC: generalised Pareto, scale 214, shape 0.35.
        let unit = Random(key).unit();
        ((214.476 * ((1.0 - unit).powf(-0.348_238) - 1.0) / 0.348_238) as usize).clamp(1, 100_000)
    }
}

const KEY_BYTES: usize = 16;

/// By when an item was last asked for.
fn lru(requests: &[u64], memory: usize, workload: &Workload) -> f64 {
    let cost = |key: u64| {
        let bytes = (KEY_BYTES + workload.length(key) + 56) as f64;
        // The bound of the slab class: 96 * 1.25^n.
        (96.0 * 1.25f64.powf((bytes / 96.0).log(1.25).ceil().max(0.0))) as usize
    };
    let mut last = HashMap::new();
    let mut queue = VecDeque::new();
    let (mut used, mut hits) = (0, 0);
    for (number, key) in requests.iter().enumerate() {
        match last.insert(*key, number) {
            Some(_) => hits += 1,
            None => used += cost(*key),
        }
        queue.push_back((*key, number));
        while used > memory {
            let Some((key, number)) = queue.pop_front() else { break };
            if last.get(&key) == Some(&number) {
                last.remove(&key);
                used -= cost(key);
            }
        }
    }
    hits as f64 / requests.len() as f64
}

fn s3_fifo(requests: &[u64], memory: usize, workload: &Workload) -> f64 {
    let cost = |key: u64| KEY_BYTES + workload.length(key) + 30;
    let mut reads: HashMap<u64, u8> = HashMap::new();
    let (mut small, mut main, mut ghosts) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    let mut is_ghost = HashSet::new();
    let (mut small_bytes, mut main_bytes, mut hits) = (0, 0, 0);
    for key in requests {
        if let Some(reads) = reads.get_mut(key) {
            hits += 1;
            *reads = (*reads + 1).min(3);
            continue;
        }
        while small_bytes + main_bytes + cost(*key) > memory {
            if small_bytes * 10 > memory || main.is_empty() {
                let Some(oldest) = small.pop_front() else { break };
                small_bytes -= cost(oldest);
                if reads[&oldest] > 1 {
                    reads.insert(oldest, 0);
                    main.push_back(oldest);
                    main_bytes += cost(oldest);
                } else {
                    reads.remove(&oldest);
                    ghosts.push_back(oldest);
                    is_ghost.insert(oldest);
                    while ghosts.len() > main.len().max(100) {
                        ghosts.pop_front().iter().for_each(|ghost| _ = is_ghost.remove(ghost));
                    }
                }
            } else if let Some(oldest) = main.pop_front() {
                match reads.get_mut(&oldest) {
                    Some(reads) if *reads > 0 => {
                        *reads -= 1;
                        main.push_back(oldest);
                    }
                    _ => {
                        reads.remove(&oldest);
                        main_bytes -= cost(oldest);
                    }
                }
            }
        }
        reads.insert(*key, 0);
        if is_ghost.remove(key) {
            main.push_back(*key);
            main_bytes += cost(*key);
        } else {
            small.push_back(*key);
            small_bytes += cost(*key);
        }
    }
    hits as f64 / requests.len() as f64
}

fn situ(requests: &[u64], options: &Options, workload: &Workload) -> f64 {
    let cache = Cache::with_seed(options, 1);
    let bytes = vec![7; 100_000];
    let mut hits = 0;
    for key in requests {
        let name = format!("{key:016}");
        if cache.get(name.as_bytes(), NOW, |_| ()).hit().is_some() {
            hits += 1;
        } else {
            cache.put(name.as_bytes(), &Meta::default(), [&bytes[..workload.length(*key)], b""], NOW).unwrap();
        }
    }
    hits as f64 / requests.len() as f64
}

fn main() {
    let is_quick = std::env::args().nth(1).is_some_and(|argument| argument == "quick");
    let count = if is_quick { 2_000_000 } else { 20_000_000 };
    let workload =
        |name: &str, kind, skew, has_pareto_sizes| Workload { name: name.to_owned(), kind, skew, has_pareto_sizes };
    let mut workloads: Vec<_> =
        [0.8, 0.9, 1.0, 1.1].iter().map(|skew| workload(&format!("zipf {skew}"), Kind::Zipf, *skew, false)).collect();
    workloads.push(workload("zipf 0.9, scans", Kind::Scans, 0.9, false));
    workloads.push(workload("zipf 0.9, shifting", Kind::Shifting, 0.9, false));
    workloads.push(workload("zipf 0.9, Pareto sizes", Kind::Zipf, 0.9, true));
    println!("| workload | memory, MiB | lru | s3-fifo | situ | situ, moved at 2 |");
    println!("|---|---:|---:|---:|---:|---:|");
    for workload in &workloads {
        let requests = workload.requests(count);
        for mib in [8, 32, 96] {
            let memory = mib << 20;
            let mut options = Options::of_memory(memory);
            options.lanes = 1;
            let mut late = options.clone();
            late.move_at = 2;
            println!(
                "| {} | {mib} | {:.4} | {:.4} | {:.4} | {:.4} |",
                workload.name,
                lru(&requests, memory, workload),
                s3_fifo(&requests, memory, workload),
                situ(&requests, &options, workload),
                situ(&requests, &late, workload),
            );
        }
    }
}
