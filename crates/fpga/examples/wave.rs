//! The waveform of a small task, in characters: what comes in, who wins, what goes out.
//!
//! `cargo run -p situ-fpga --features simulated --example wave` prints what `fpga/README.md` shows.

use situ_accel::Prepared;
use situ_compaction::Task;
use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, sort};
use situ_fpga::{Cycle, Memory, NotRun, Simulated};
use situ_table::{Compression, KeyKind, TableOptions, Trailer};

/// Four ways of seven entries: every key is in two ways, so half of the entries are dropped.
fn ways() -> Vec<Vec<Entry>> {
    let entry = |way: u64, i: u64| Entry {
        key: format!("user{:012}", (way % 2) * 7 + i).into_bytes(),
        trailer: Trailer::new(100 - 10 * way + i, KeyKind::Put),
        value: vec![b'v'; 24],
    };
    (0..4).map(|way| (0..7).map(|i| entry(way, i)).collect()).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = MemoryHost::new();
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 0, ..TableOptions::default() };
    let mut inputs = Vec::new();
    for mut entries in ways() {
        sort(&mut entries);
        inputs.push(host.write(&Contents { entries, tombstones: Vec::new() }, &options).into_iter().collect());
    }
    let mut rules = plain_rules();
    rules.output.table = options;
    let mut prepared = Prepared::new(&Task { id: 1, keyspace: 0, level: 0, inputs, rules })?;
    let mut data = vec![0; prepared.data_bytes() as usize];
    prepared.load(&mut data)?;
    let task = prepared.finish()?;
    let unit = Simulated { memory: Memory { latency: 10, ..Memory::IDEAL }, trace_cycles: 400 };
    match unit.run(&task.encode(), &data) {
        Err(NotRun::Missing(why)) => eprintln!("SKIPPED: the waveform: {why}"),
        found => print(&found?.trace),
    }
    Ok(())
}

/// Cycles of a character.
const SCALE: usize = 3;

fn print(trace: &[Cycle]) {
    let lane = |name: &str, mark: &dyn Fn(usize) -> Option<char>| {
        let character = |from: usize| (from..trace.len().min(from + SCALE)).find_map(mark).unwrap_or('.');
        println!("{name:<17}{}", (0..trace.len()).step_by(SCALE).map(character).collect::<String>());
    };
    let lit = |set: bool| set.then_some('#');
    println!("{} cycles, {SCALE} a character", trace.len());
    lane("every 30", &|i| (i % 30 == 0).then_some('|'));
    lane("memory in", &|i| lit(trace[i].fetched != 0));
    for way in 0..4 {
        lane(&format!("way {way} half full"), &|i| lit(trace[i].key_half_full >> way & 1 != 0));
    }
    lane("winner", &|i| (trace[i].pop != 0).then(|| char::from(b'0' + trace[i].pop.trailing_zeros() as u8)));
    lane("entry kept", &|i| (i > 0 && trace[i].kept > trace[i - 1].kept).then_some('k'));
    lane("memory out", &|i| lit(trace[i].written != 0));
}
