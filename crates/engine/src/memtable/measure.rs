//! Measurements, run by hand:
//! `cargo test --release -p situ-engine memtable::measure -- --ignored --nocapture --test-threads 1`.
//!
//! 64 MB of keys of 16 bytes and values of 100. Each line is nanoseconds per operation; the time on a processor is the
//! first thread's.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use situ_table::{Cursor, KeyKind, Trailer, hash_key};

use super::Memtable;

const ENTRIES: u64 = 450_000;

/// Distributes the bits of a number over a whole word, without collisions.
fn scatter(number: u64) -> u64 {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn binary_key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&scatter(number).to_be_bytes());
    key
}

/// The key of `db_bench`: sixteen decimal digits, of which the first eight hardly ever differ.
fn decimal_key(number: u64) -> [u8; 16] {
    let digits = format!("{number:016}");
    digits.as_bytes().try_into().expect("sixteen digits")
}

/// Wall time and the thread's own time: on a machine that others use too they differ.
struct Started {
    wall: Instant,
    thread_ns: u64,
}

impl Started {
    fn now() -> Started {
        Started { wall: Instant::now(), thread_ns: Started::thread_ns() }
    }

    /// Nanoseconds that this thread has spent on a processor.
    fn thread_ns() -> u64 {
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        statistics.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
    }
}

fn report(what: &str, operations: u64, start: Started) {
    let wall = start.wall.elapsed().as_nanos() as f64 / operations as f64;
    let thread = (Started::thread_ns() - start.thread_ns) as f64 / operations as f64;
    println!("{what:<36} {wall:>8.0} ns, on a processor {thread:>8.0} ns");
}

fn measure(name: &str, key: impl Fn(u64) -> [u8; 16]) {
    let mut keys: Vec<[u8; 16]> = (0..ENTRIES).map(key).collect();
    keys.sort_unstable();
    let mut order: Vec<u32> = (0..ENTRIES as u32).collect();
    order.sort_by_key(|number| scatter(u64::from(*number) ^ 0x5eed));
    let mut other_order = order.clone();
    other_order.sort_by_key(|number| scatter(u64::from(*number) ^ 0xface));
    let value = [7; 100];

    let memtable = Memtable::new(1, 1, 64 << 20, &Arc::default());
    let start = Started::now();
    for (sequence, number) in (1..).zip(0..ENTRIES as usize) {
        memtable.insert(&keys[number], Trailer::new(sequence, KeyKind::Put), &value);
    }
    report(&format!("{name}: sequential insert"), ENTRIES, start);

    let memtable = Memtable::new(1, 1, 64 << 20, &Arc::default());
    let start = Started::now();
    for (sequence, number) in (1..).zip(&order) {
        memtable.insert(&keys[*number as usize], Trailer::new(sequence, KeyKind::Put), &value);
    }
    report(&format!("{name}: random insert"), ENTRIES, start);

    let start = Started::now();
    for number in &other_order {
        let key = &keys[*number as usize];
        black_box(memtable.get(key, hash_key(key), ENTRIES)).expect("every key was inserted");
    }
    report(&format!("{name}: random get"), ENTRIES, start);

    for (what, backward) in [("scan", false), ("scan backward", true)] {
        let mut cursor = memtable.cursor();
        let start = Started::now();
        let mut bytes = 0;
        let _ = if backward { cursor.last() } else { cursor.first() };
        while cursor.valid() {
            bytes += cursor.key().user.len() + cursor.value().first().map_or(0, |byte| usize::from(*byte));
            let _ = if backward { cursor.prev() } else { cursor.next() };
        }
        black_box(bytes);
        report(&format!("{name}: {what}"), ENTRIES, start);
    }
    let (used, allocated) = (memtable.used_bytes(), memtable.allocated_bytes());
    println!("{name}: {used} bytes used, {allocated} allocated, {} per entry", used as u64 / ENTRIES);
    let start = Started::now();
    drop(memtable);
    report(&format!("{name}: drop, per entry"), ENTRIES, start);

    let threads = 2;
    let memtable = Memtable::new(1, 1, 64 << 20, &Arc::default());
    let start = Started::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (memtable, keys, order, value) = (Arc::clone(&memtable), &keys, &order, &value);
            scope.spawn(move || {
                for index in (thread..order.len()).step_by(threads) {
                    let trailer = Trailer::new(index as u64 + 1, KeyKind::Put);
                    memtable.insert(&keys[order[index] as usize], trailer, value);
                }
            });
        }
    });
    report(&format!("{name}: random insert, {threads} threads"), ENTRIES, start);
}

/// Measures the cost of one miss on this machine: the next place is known only when the last one has been read. A
/// search cannot be faster than the misses that follow from one another on its way.
#[test]
#[ignore = "a measurement"]
fn a_dependent_miss() {
    const LINES: u64 = 1 << 20;
    let mut next = vec![[0u64; 8]; LINES as usize];
    let mut order: Vec<u64> = (0..LINES).collect();
    order.sort_by_key(|number| scatter(*number));
    for (here, there) in order.iter().zip(order.iter().cycle().skip(1)) {
        next[*here as usize][0] = *there;
    }
    let start = Started::now();
    let mut place = 0;
    for _ in 0..LINES {
        place = next[place as usize][0];
    }
    black_box(place);
    report("a dependent miss in 64 MB", LINES, start);
}

/// Measures the time of a general-purpose concurrent skiplist for the same.
#[test]
#[ignore = "a measurement"]
fn crossbeam_skiplist() {
    let mut numbers: Vec<u64> = (0..ENTRIES).collect();
    numbers.sort_by_key(|number| scatter(*number ^ 0x5eed));
    let map = crossbeam_skiplist::SkipMap::new();
    let start = Started::now();
    for number in &numbers {
        map.insert(decimal_key(*number), [7u8; 100]);
    }
    report("crossbeam-skiplist: random insert", ENTRIES, start);
    numbers.sort_by_key(|number| scatter(*number ^ 0xface));
    let start = Started::now();
    for number in &numbers {
        black_box(map.get(&decimal_key(*number))).expect("every key was inserted");
    }
    report("crossbeam-skiplist: random get", ENTRIES, start);
}

#[test]
#[ignore = "a measurement"]
fn binary_keys() {
    measure("binary", |number| binary_key(scatter(number)));
}

#[test]
#[ignore = "a measurement"]
fn decimal_keys() {
    measure("decimal", decimal_key);
}
