//! Cycles an entry, for keys and values of several lengths: four runs of random keys, ideal and slow memory.
//!
//! `cargo run --release -p situ-fpga --features simulated --example cycles [entries]` prints a table of tab-separated
//! values.

use situ_accel::{Prepared, run_model};
use situ_compaction::Task;
use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, sort};
use situ_fpga::{Memory, NotRun, Simulated};
use situ_sim::Rng;
use situ_table::{Compression, KeyKind, TableOptions, Trailer};

/// Keys and values of these lengths, the ones of the issue first.
const SHAPES: [(usize, usize); 10] =
    [(16, 8), (8, 32), (16, 100), (16, 1000), (8, 8), (32, 8), (64, 8), (32, 100), (64, 100), (16, 4000)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let entries = std::env::args().nth(1).map_or(Ok(8000), |text| text.parse::<u64>())?;
    println!("key\tvalue\tlatency\tentries\tcycles\tcycles an entry\tbytes of keys and values a cycle");
    for (key_bytes, value_bytes) in SHAPES {
        let (task, data) = make(key_bytes, value_bytes, entries)?;
        let wanted = run_model(&task, &data)?;
        for latency in [1, 100] {
            let unit = Simulated::new(Memory { latency, ..Memory::IDEAL });
            let found = match unit.run(&task.encode(), &data) {
                Err(NotRun::Missing(why)) => {
                    eprintln!("SKIPPED: cycles: {why}");
                    return Ok(());
                }
                other => other?,
            };
            assert!(found.report == wanted.encode_report() && found.data == wanted.data, "not the model's answer");
            let (cycles, count) = (found.cycles as f64, wanted.header.entries_in as f64);
            let bytes = count * (key_bytes + value_bytes) as f64;
            let (each, rate) = (cycles / count, bytes / cycles);
            println!("{key_bytes}\t{value_bytes}\t{latency}\t{count}\t{cycles}\t{each:.2}\t{rate:.2}");
        }
    }
    Ok(())
}

/// A key of decimal digits behind `user`, or of digits alone where it is short.
fn key(number: u64, bytes: usize) -> Vec<u8> {
    let digits = bytes.saturating_sub(4).max(bytes.min(8)).min(bytes);
    let text = format!("{number:0digits$}");
    let mut key = b"user"[..bytes - digits].to_vec();
    key.extend_from_slice(&text.as_bytes()[text.len() - digits..]);
    key
}

fn make(
    key_bytes: usize,
    value_bytes: usize,
    entries: u64,
) -> Result<(situ_accel::DeviceTask, Vec<u8>), Box<dyn std::error::Error>> {
    let (host, mut rng) = (MemoryHost::new(), Rng::new(7));
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 0, ..TableOptions::default() };
    let entries = if value_bytes >= 1000 { entries / 8 } else { entries };
    let mut lists: Vec<Vec<Entry>> = vec![Vec::new(); 4];
    for i in 0..entries {
        let value = (0..value_bytes).map(|_| rng.next_u64() as u8).collect();
        let key = key(rng.below(100_000_000), key_bytes);
        lists[rng.index(4)].push(Entry { key, trailer: Trailer::new(i + 1, KeyKind::Put), value });
    }
    let mut inputs = Vec::new();
    for mut list in lists {
        sort(&mut list);
        inputs.push(host.write(&Contents { entries: list, tombstones: Vec::new() }, &options).into_iter().collect());
    }
    let mut rules = plain_rules();
    rules.output.table = options;
    let mut prepared = Prepared::new(&Task { id: 1, keyspace: 0, level: 0, inputs, rules })?;
    let mut data = vec![0; prepared.data_bytes() as usize];
    prepared.load(&mut data)?;
    Ok((prepared.finish()?, data))
}
