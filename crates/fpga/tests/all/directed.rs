//! Tasks at the edges of the circuit: empty ways, the longest keys and values, all snapshots, blocks of one entry.

use crate::skipped::skipped;
use crate::tasks::{assert_same, prepare};
use situ_compaction::Task;
use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, sort};
use situ_fpga::{Memory, missing};
use situ_table::{Compression, KeyKind, TableOptions, Trailer};

/// Memories that show different orders of events.
const MEMORIES: [Memory; 3] = [
    Memory::IDEAL,
    Memory { latency: 100, stall_per_1000: 0, seed: 1 },
    Memory { latency: 3, stall_per_1000: 700, seed: 2 },
];

fn plain(block_bytes: usize, restart_interval: usize) -> TableOptions {
    TableOptions {
        block_bytes,
        restart_interval,
        compression: Compression::None,
        filter_bits_per_key: 0,
        ..TableOptions::default()
    }
}

fn put(key: impl Into<Vec<u8>>, sequence: u64, value: Vec<u8>) -> Entry {
    Entry { key: key.into(), trailer: Trailer::new(sequence, KeyKind::Put), value }
}

fn tombstone(key: impl Into<Vec<u8>>, sequence: u64) -> Entry {
    Entry { key: key.into(), trailer: Trailer::new(sequence, KeyKind::Delete), value: Vec::new() }
}

/// Runs the ways over each memory, with and without older data below.
fn check(test: &str, ways: Vec<Vec<Entry>>, options: TableOptions, snapshots: &[u64]) {
    if let Some(why) = missing() {
        skipped(test, why);
        return;
    }
    let host = MemoryHost::new();
    let write = |mut entries: Vec<Entry>| {
        sort(&mut entries);
        host.write(&Contents { entries, tombstones: Vec::new() }, &options).into_iter().collect()
    };
    let inputs = ways.into_iter().map(write).collect();
    let mut rules = plain_rules();
    (rules.output.table, rules.snapshots) = (options.clone(), snapshots.to_vec());
    let (mut device, data) = prepare(&Task { id: 1, keyspace: 0, level: 0, inputs, rules });
    for memory in MEMORIES {
        for below_all in [false, true] {
            device.rules.below_all = below_all;
            assert_same(&device, &data, memory);
        }
    }
}

#[test]
fn no_entries_at_all() {
    check("no_entries_at_all", vec![Vec::new(); 4], plain(4096, 16), &[]);
}

#[test]
fn one_way_of_one_entry() {
    check("one_way_of_one_entry", vec![vec![put("", 1, Vec::new())]], plain(4096, 16), &[]);
}

#[test]
fn the_longest_keys_differ_in_their_last_byte() {
    let key = |last: u8| [vec![b'k'; 63], vec![last]].concat();
    let way =
        |first: u8| (first..=248).step_by(4).map(|last| put(key(last), 1 + u64::from(last), vec![last; 9])).collect();
    check("the_longest_keys_differ_in_their_last_byte", (0..4).map(way).collect(), plain(1000, 16), &[]);
}

#[test]
fn the_longest_values_pass_rings_that_cannot_hold_them() {
    let way = |first: u8| (first..12).step_by(4).map(|i| put([i], 1 + u64::from(i), vec![i; 16_383])).collect();
    check("the_longest_values_pass_rings_that_cannot_hold_them", (0..4).map(way).collect(), plain(4096, 16), &[]);
}

/// Each dropped value is longer than its ring: the reader jumps half a ring at a time.
#[test]
fn the_longest_values_are_dropped() {
    let way = |way: u64| (0..4u8).map(|i| put([i], 10 - way, vec![i; 12_000 + usize::from(i)])).collect();
    check("the_longest_values_are_dropped", (0..4).map(way).collect(), plain(4096, 16), &[]);
}

#[test]
fn eight_snapshots_keep_eight_tombstones_waiting() {
    let mut ways = vec![Vec::new(); 4];
    for (i, key) in ["a", "b", "c"].into_iter().enumerate() {
        for version in 0..9 {
            ways[version % 4].push(tombstone(key, 100 * (i as u64 + 1) + 10 * version as u64 + 5));
        }
    }
    // Below the tombstones of `b` lies a value of the lowest stripe.
    ways[3].push(put("b", 2, vec![7; 20]));
    let snapshots: Vec<u64> = (0..8).map(|i| 220 + 10 * i).collect();
    check("eight_snapshots_keep_eight_tombstones_waiting", ways.clone(), plain(4096, 16), &snapshots);
    check("eight_snapshots_keep_eight_tombstones_waiting", ways, plain(64, 1), &[3, 110, 120, 130, 140, 150, 160, 250]);
}

#[test]
fn the_largest_blocks_have_a_restart_an_entry() {
    let way = |first: u16| {
        let key = |i: u16| i.to_be_bytes();
        (first..4000).step_by(4).map(|i| put(key(i), 1 + u64::from(i), Vec::new())).collect()
    };
    check("the_largest_blocks_have_a_restart_an_entry", (0..4).map(way).collect(), plain(32 << 10, 1), &[]);
}

#[test]
fn blocks_of_one_entry() {
    let way = |first: u8| (first..60).step_by(4).map(|i| put([b'k', i], 1 + u64::from(i), vec![i; 130])).collect();
    check("blocks_of_one_entry", (0..4).map(way).collect(), plain(1, 16), &[]);
}
