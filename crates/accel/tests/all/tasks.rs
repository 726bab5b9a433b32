//! Random tasks of compactions, over tables in memory.

use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, sort};
use situ_compaction::{KeyRange, KeySpan, Task};
use situ_sim::Rng;
use situ_table::{Compression, KeyKind, TableOptions, Trailer};

/// The shape of a random task's keys.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// `user000000001234`: 16 bytes, and a prefix in common.
    Numbers,
    /// Of any length up to the limit, of few letters, so that prefixes are long and some keys are prefixes of others.
    Letters,
    /// Random bytes.
    Bytes,
}

fn key(rng: &mut Rng, keys: Keys, universe: u64) -> Vec<u8> {
    let number = rng.below(universe);
    match keys {
        Keys::Numbers => format!("user{number:012}").into_bytes(),
        Keys::Letters => {
            let mut own = Rng::new(number);
            let length = [0, 3, 8, 9, 20, 64, 127, 128][own.index(8)];
            let same = own.below(length + 1);
            (0..length).map(|i| if i < same { b'a' } else { [0, b'a', b'b'][own.index(3)] }).collect()
        }
        Keys::Bytes => {
            let mut own = Rng::new(number);
            let length = 1 + own.below(40);
            (0..length).map(|_| own.next_u64() as u8).collect()
        }
    }
}

fn value(rng: &mut Rng, longest: u64) -> Vec<u8> {
    let length = if rng.below(8) == 0 { rng.below(longest + 1) } else { rng.below(longest.min(200) + 1) };
    let random = rng.below(length + 1);
    (0..length).map(|i| if i < random { rng.next_u64() as u8 } else { b'v' }).collect()
}

fn contents(rng: &mut Rng, keys: Keys, universe: u64, entries: u64, sequence: &mut u64, longest: u64) -> Contents {
    let mut list = Vec::new();
    for _ in 0..entries {
        *sequence += 1 + rng.below(3);
        let kind = [KeyKind::Put, KeyKind::Put, KeyKind::Put, KeyKind::Delete, KeyKind::ValueHandle][rng.index(5)];
        let value = if kind == KeyKind::Delete { Vec::new() } else { value(rng, longest) };
        list.push(Entry { key: key(rng, keys, universe), trailer: Trailer::new(*sequence, kind), value });
    }
    sort(&mut list);
    Contents { entries: list, tombstones: Vec::new() }
}

fn options(rng: &mut Rng, block_bytes: &[usize]) -> TableOptions {
    TableOptions {
        block_bytes: block_bytes[rng.index(block_bytes.len())],
        restart_interval: [1, 2, 16, 16, 100][rng.index(5)],
        compression: [Compression::None, Compression::Lz4][rng.index(2)],
        filter_bits_per_key: [0, 10][rng.index(2)],
        ..TableOptions::default()
    }
}

/// A random task: many versions, tombstones, snapshots, empty runs, both compressions, ranges, spans of older data.
pub(crate) fn random(rng: &mut Rng, host: &MemoryHost, entries_max: u64) -> Task {
    let keys = [Keys::Numbers, Keys::Letters, Keys::Bytes][rng.index(3)];
    let universe = [5, 100, 100_000][rng.index(3)];
    let universe = 1 + rng.below(universe);
    let longest = [0, 8, 100, 1000, 16_383][rng.index(5)];
    let runs = 1 + rng.below(6);
    let (mut sequence, mut inputs) = (0, Vec::new());
    for _ in 0..runs {
        let entries = if rng.below(5) == 0 { 0 } else { rng.below(entries_max / runs + 1) };
        let run = contents(rng, keys, universe, entries, &mut sequence, longest);
        let options = options(rng, &[64, 1000, 4096, 16 << 10]);
        // One table or two, parted between keys.
        let middle = run.entries.get(run.entries.len() / 2).map(|entry| entry.key.clone());
        let parts: Vec<Contents> = match middle.filter(|_| rng.below(2) == 0) {
            Some(middle) => {
                let (low, high) = run.entries.into_iter().partition(|entry| entry.key < middle);
                vec![low, high].into_iter().map(|entries| Contents { entries, tombstones: Vec::new() }).collect()
            }
            None => vec![run],
        };
        inputs.push(parts.iter().filter_map(|part| host.write(part, &options)).collect());
    }
    inputs.reverse();
    let mut rules = plain_rules();
    rules.output.table = options(rng, &[64, 1000, 4096, 4096, 32 << 10]);
    let mut snapshots: Vec<u64> = (0..rng.below(9)).map(|_| rng.below(sequence + 2)).collect();
    snapshots.sort_unstable();
    snapshots.dedup();
    rules.snapshots = snapshots;
    let bound = |rng: &mut Rng| (rng.below(3) == 0).then(|| key(rng, keys, universe));
    rules.range = match (bound(rng), bound(rng)) {
        (Some(a), Some(b)) if a >= b => KeyRange { lower: Some(b), upper: Some(a) },
        (lower, upper) => KeyRange { lower, upper },
    };
    rules.below = match rng.below(3) {
        0 => Vec::new(),
        1 => vec![vec![KeySpan { begin: Vec::new(), end: vec![0xff; 130] }]],
        _ => (0..1 + rng.below(2)).map(|_| spans(rng, keys, universe)).collect(),
    };
    Task { id: 1, keyspace: 0, level: 0, inputs, rules }
}

fn spans(rng: &mut Rng, keys: Keys, universe: u64) -> Vec<KeySpan> {
    let mut ends: Vec<Vec<u8>> = (0..2 * rng.below(6)).map(|_| key(rng, keys, universe)).collect();
    ends.sort();
    ends.dedup();
    ends.chunks_exact(2).map(|pair| KeySpan::including(&pair[0], &pair[1])).collect::<Vec<_>>().into_iter().fold(
        Vec::new(),
        |mut spans, span| {
            if spans.last().is_none_or(|last: &KeySpan| last.end <= span.begin) {
                spans.push(span);
            }
            spans
        },
    )
}
