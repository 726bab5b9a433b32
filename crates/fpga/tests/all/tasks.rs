//! Random tasks within the unit's limits, and the comparison of answers.

use situ_accel::{Answer, DeviceTask, Prepared, run_model};
use situ_compaction::Task;
use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, sort};
use situ_fpga::{FlatAnswer, Memory, NotRun, Simulated, Variant};
use situ_sim::Rng;
use situ_table::{Compression, KeyKind, TableOptions, Trailer};

/// The shape of a random task's keys.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys {
    /// `user000000001234`: 16 bytes, and a prefix in common.
    Numbers,
    /// Of any length up to 64, of few letters: long prefixes, and keys that are prefixes of others.
    Letters,
    /// Random bytes.
    Bytes,
}

pub(crate) fn key(rng: &mut Rng, keys: Keys, universe: u64) -> Vec<u8> {
    let number = rng.below(universe);
    match keys {
        Keys::Numbers => format!("user{number:012}").into_bytes(),
        Keys::Letters => {
            let mut own = Rng::new(number);
            let length = [0, 3, 7, 8, 9, 16, 20, 56, 63, 64][own.index(10)];
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
    (0..length).map(|_| rng.next_u64() as u8).collect()
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

pub(crate) fn options(rng: &mut Rng, block_bytes: &[usize]) -> TableOptions {
    TableOptions {
        block_bytes: block_bytes[rng.index(block_bytes.len())],
        restart_interval: [1, 2, 16, 16, 100][rng.index(5)],
        compression: Compression::None,
        filter_bits_per_key: 0,
        ..TableOptions::default()
    }
}

/// A random task: versions, tombstones, snapshots, empty runs, blocks of all sizes, parts of the output.
pub(crate) fn random(rng: &mut Rng, entries_max: u64) -> (DeviceTask, Vec<u8>) {
    let host = MemoryHost::new();
    let keys = [Keys::Numbers, Keys::Letters, Keys::Bytes][rng.index(3)];
    let universe = [5, 100, 100_000][rng.index(3)];
    let universe = 1 + rng.below(universe);
    let longest = [0, 8, 100, 1000, 16_383][rng.index(5)];
    let runs = 1 + rng.below(4);
    let (mut sequence, mut inputs) = (0, Vec::new());
    for _ in 0..runs {
        let entries = if rng.below(5) == 0 { 0 } else { rng.below(entries_max / runs + 1) };
        let run = contents(rng, keys, universe, entries, &mut sequence, longest);
        let options = options(rng, &[64, 1000, 4096, 16 << 10]);
        inputs.push(host.write(&run, &options).into_iter().collect());
    }
    inputs.reverse();
    let mut rules = plain_rules();
    rules.output.table = options(rng, &[64, 1000, 4096, 4096, 32 << 10]);
    let mut snapshots: Vec<u64> = (0..rng.below(9)).map(|_| rng.below(sequence + 2)).collect();
    snapshots.sort_unstable();
    snapshots.dedup();
    rules.snapshots = snapshots;
    let (mut device, data) = prepare(&Task { id: 1, keyspace: 0, level: 0, inputs, rules });
    device.rules.below_all = rng.below(3) == 0;
    if rng.below(4) == 0 {
        device.rules.emit_from = rng.below(entries_max);
        device.rules.emit_bytes_max = 1 + rng.below(data.len() as u64 + 1);
    }
    // Blocks at any offset, with anything between them.
    let mut moved = Vec::new();
    for block in device.ways.iter_mut().flatten() {
        moved.extend((0..rng.below(12)).map(|_| 0x5a));
        let at = moved.len() as u64;
        moved.extend_from_slice(&data[block.at as usize..][..block.stored_bytes as usize]);
        block.at = at;
    }
    device.data_bytes = moved.len() as u64;
    device.check().unwrap();
    (device, moved)
}

pub(crate) fn prepare(task: &Task) -> (DeviceTask, Vec<u8>) {
    let mut prepared = Prepared::new(task).unwrap();
    let mut data = vec![0; prepared.data_bytes() as usize];
    prepared.load(&mut data).unwrap();
    (prepared.finish().unwrap(), data)
}

/// A memory that is slow and pauses, or an ideal one.
pub(crate) fn memory(rng: &mut Rng) -> Memory {
    Memory { latency: [1, 10, 100][rng.index(3)], stall_per_1000: [0, 100, 500][rng.index(3)], seed: rng.next_u64() }
}

/// The units of four ways: both widths of the path.
pub(crate) const WIDTHS: [Variant; 2] = [Variant::Plain, Variant::Wide];

/// Runs a task on a unit.
pub(crate) fn run(variant: Variant, task: &DeviceTask, data: &[u8], memory: Memory) -> Result<FlatAnswer, NotRun> {
    Simulated { variant, ..Simulated::new(memory) }.run(&task.encode(), data)
}

/// Fails unless the answers of both widths are the model's, byte for byte. A unit of two ways also runs the tasks that
/// it can.
pub(crate) fn assert_same(task: &DeviceTask, data: &[u8], memory: Memory) {
    for variant in WIDTHS {
        assert_is_the_models(&run(variant, task, data, memory).unwrap(), task, data);
    }
    let two = run(Variant::TwoWays, task, data, memory);
    if task.ways.len() > 2 {
        assert!(matches!(two, Err(NotRun::Unsuited(_))));
    } else {
        assert_is_the_models(&two.unwrap(), task, data);
    }
}

/// Fails unless an answer is the model's, byte for byte. Returns its status.
pub(crate) fn assert_is_the_models(found: &FlatAnswer, task: &DeviceTask, data: &[u8]) -> u32 {
    let wanted = run_model(task, data).unwrap();
    let report = wanted.encode_report();
    if found.report != report || found.data != wanted.data {
        explain(found, &wanted);
    }
    wanted.header.status
}

fn explain(found: &FlatAnswer, wanted: &Answer) -> ! {
    let found = Answer::decode(&found.report, found.data.clone()).unwrap();
    assert_eq!(found.header, wanted.header, "header");
    for (i, (found, wanted)) in found.reports.iter().zip(&wanted.reports).enumerate() {
        assert_eq!(found, wanted, "report {i}");
    }
    assert!(found.hashes == wanted.hashes, "hashes");
    assert!(found.keys == wanted.keys, "keys");
    let at = found.data.iter().zip(&wanted.data).position(|(a, b)| a != b);
    panic!("data differ at byte {at:?}");
}
