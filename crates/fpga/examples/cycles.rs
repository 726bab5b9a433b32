//! Cycles an entry, for keys and values of several lengths: runs of random keys.
//!
//! `cargo run --release -p situ-fpga --features simulated --example cycles [entries]` prints three tables of
//! tab-separated values: cycles with ideal and slow memory, a unit of two ways compared with one of four, and a path of
//! sixteen bytes compared with one of eight.

use situ_accel::{DeviceTask, Prepared, run_model};
use situ_compaction::Task;
use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, sort};
use situ_fpga::{Cycle, FlatAnswer, Memory, Simulated, Variant, missing};
use situ_sim::Rng;
use situ_table::{Compression, KeyKind, TableOptions, Trailer};

/// Keys and values of these lengths, the ones of the issue first.
const SHAPES: [(usize, usize); 10] =
    [(16, 8), (8, 32), (16, 100), (16, 1000), (8, 8), (32, 8), (64, 8), (32, 100), (64, 100), (16, 4000)];

/// More than any of these tasks takes.
const TRACE_CYCLES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let entries = std::env::args().nth(1).map_or(Ok(8000), |text| text.parse::<u64>())?;
    if let Some(why) = missing() {
        eprintln!("SKIPPED: cycles: {why}");
        return Ok(());
    }
    println!("key\tvalue\tlatency\tentries\tcycles\tcycles an entry\tbytes of keys and values a cycle");
    for (key_bytes, value_bytes) in SHAPES {
        let lists = lists(key_bytes, value_bytes, entries, 4);
        for latency in [1, 100] {
            let unit = Simulated::new(Memory { latency, ..Memory::IDEAL });
            let (cycles, count) = (run(unit, &lists)?.cycles as f64, count(&lists) as f64);
            let bytes = count * (key_bytes + value_bytes) as f64;
            let (each, rate) = (cycles / count, bytes / cycles);
            println!("{key_bytes}\t{value_bytes}\t{latency}\t{count}\t{cycles}\t{each:.2}\t{rate:.2}");
        }
    }
    println!("\nkey\tvalue\truns\tcycles an entry, four ways\ttwo ways\tdecoders wait, four ways\ttwo ways");
    for (key_bytes, value_bytes) in SHAPES {
        for runs in [2, 4] {
            ablation(key_bytes, value_bytes, &lists(key_bytes, value_bytes, entries, runs))?;
        }
    }
    println!(
        "\nkey\tvalue\tpath\tport reads\tport writes\tdecoders wait\tcycles an entry\tlatency 100\ttwo runs\tone run"
    );
    for (key_bytes, value_bytes) in SHAPES {
        for variant in [Variant::Plain, Variant::Wide] {
            widths(key_bytes, value_bytes, entries, variant)?;
        }
    }
    Ok(())
}

/// Cycles of a merge of two or four runs. A unit of two ways merges four runs in three tasks, and each entry twice.
fn ablation(key_bytes: usize, value_bytes: usize, lists: &[Vec<Entry>]) -> Result<(), Box<dyn std::error::Error>> {
    let four = Simulated { trace_cycles: TRACE_CYCLES, ..Simulated::new(Memory::IDEAL) };
    let two = Simulated { variant: Variant::TwoWays, ..four };
    let mut in_two = Vec::new();
    if lists.len() > 2 {
        let halves: Vec<Vec<Entry>> = lists.chunks(2).map(<[_]>::concat).collect();
        for pair in lists.chunks(2) {
            in_two.push(run(two, pair)?);
        }
        in_two.push(run(two, &halves)?);
    } else {
        in_two.push(run(two, lists)?);
    }
    let in_four = run(four, lists)?;
    let count = count(lists) as f64;
    let cycles: u64 = in_two.iter().map(|answer| answer.cycles).sum();
    println!(
        "{key_bytes}\t{value_bytes}\t{}\t{:.2}\t{:.2}\t{}%\t{}%",
        lists.len(),
        in_four.cycles as f64 / count,
        cycles as f64 / count,
        waits(&[in_four.trace], lists.len()),
        waits(&in_two.into_iter().map(|answer| answer.trace).collect::<Vec<_>>(), 2),
    );
    Ok(())
}

/// Returns the share of cycles, in percent, in which a decoder begins no entry because its keys or values wait.
fn waits(traces: &[Vec<Cycle>], ways: usize) -> u64 {
    let (mut waits, mut all) = (0, 0);
    for cycle in traces.iter().flatten() {
        waits += u64::from((cycle.key_half_full | cycle.value_half_full).count_ones());
        all += ways as u64;
    }
    100 * waits / all
}

/// The shares of cycles in which the port moves a word and the decoders are ahead, and cycles an entry: of four runs,
/// with a slow memory, of two runs and of one.
fn widths(key: usize, value: usize, entries: u64, variant: Variant) -> Result<(), Box<dyn std::error::Error>> {
    let unit = Simulated { trace_cycles: TRACE_CYCLES, variant, ..Simulated::new(Memory::IDEAL) };
    let four = lists(key, value, entries, 4);
    let answer = run(unit, &four)?;
    let share = |words: fn(&Cycle) -> u8| {
        100 * answer.trace.iter().map(|cycle| u64::from(words(cycle))).sum::<u64>() / answer.trace.len() as u64
    };
    let each = |cycles: u64| cycles as f64 / count(&four) as f64;
    println!(
        "{key}\t{value}\t{}\t{}%\t{}%\t{}%\t{:.2}\t{:.2}\t{:.2}\t{:.2}",
        variant.path_bytes(),
        share(|cycle| cycle.fetched),
        share(|cycle| cycle.written),
        waits(std::slice::from_ref(&answer.trace), 4),
        each(answer.cycles),
        each(run(Simulated { memory: Memory { latency: 100, ..Memory::IDEAL }, ..unit }, &four)?.cycles),
        each(run(unit, &lists(key, value, entries, 2))?.cycles),
        each(run(unit, &lists(key, value, entries, 1))?.cycles),
    );
    Ok(())
}

fn count(lists: &[Vec<Entry>]) -> usize {
    lists.iter().map(Vec::len).sum()
}

/// Merges runs on a unit, and compares the answer with the model's.
fn run(unit: Simulated, lists: &[Vec<Entry>]) -> Result<FlatAnswer, Box<dyn std::error::Error>> {
    let (task, data) = make(lists)?;
    let wanted = run_model(&task, &data)?;
    let found = unit.run(&task.encode(), &data)?;
    assert!(found.report == wanted.encode_report() && found.data == wanted.data, "not the model's answer");
    Ok(found)
}

/// A key of decimal digits behind `user`, or of digits alone where it is short.
fn key(number: u64, bytes: usize) -> Vec<u8> {
    let digits = bytes.saturating_sub(4).max(bytes.min(8)).min(bytes);
    let text = format!("{number:0digits$}");
    let mut key = b"user"[..bytes - digits].to_vec();
    key.extend_from_slice(&text.as_bytes()[text.len() - digits..]);
    key
}

/// Runs of random keys and values, without an order.
fn lists(key_bytes: usize, value_bytes: usize, entries: u64, runs: usize) -> Vec<Vec<Entry>> {
    let mut rng = Rng::new(7);
    let entries = if value_bytes >= 500 { entries / 8 } else { entries };
    let mut lists: Vec<Vec<Entry>> = vec![Vec::new(); runs];
    for i in 0..entries {
        let value = (0..value_bytes).map(|_| rng.next_u64() as u8).collect();
        let key = key(rng.below(100_000_000), key_bytes);
        lists[rng.index(runs)].push(Entry { key, trailer: Trailer::new(i + 1, KeyKind::Put), value });
    }
    lists
}

/// Makes the task that merges some runs.
fn make(lists: &[Vec<Entry>]) -> Result<(DeviceTask, Vec<u8>), Box<dyn std::error::Error>> {
    let host = MemoryHost::new();
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 0, ..TableOptions::default() };
    let mut inputs = Vec::new();
    for list in lists {
        let mut entries = list.clone();
        sort(&mut entries);
        inputs.push(host.write(&Contents { entries, tombstones: Vec::new() }, &options).into_iter().collect());
    }
    let mut rules = plain_rules();
    rules.output.table = options;
    let mut prepared = Prepared::new(&Task { id: 1, keyspace: 0, level: 0, inputs, rules })?;
    let mut data = vec![0; prepared.data_bytes() as usize];
    prepared.load(&mut data)?;
    Ok((prepared.finish()?, data))
}
