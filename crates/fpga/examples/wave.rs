//! The waveform of a small task, in characters: what comes in, who wins, what goes out. Then the lanes of a chip.
//!
//! `cargo run -p situ-fpga --features simulated --example wave` prints what `fpga/README.md` shows.

use situ_accel::{DeviceTask, Prepared};
use situ_compaction::Task;
use situ_compaction::testing::{Contents, Entry, MemoryHost, plain_rules, sort};
use situ_fpga::{Chip, Cycle, Memory, NotRun, Simulated, registers};
use situ_table::{Compression, KeyKind, TableOptions, Trailer};

/// Four ways of some entries: every key is in two ways, so half of the entries are dropped.
fn ways(each: u64) -> Vec<Vec<Entry>> {
    let entry = |way: u64, i: u64| Entry {
        key: format!("user{:012}", (way % 2) * each + i).into_bytes(),
        trailer: Trailer::new(10 * each * (4 - way) + i, KeyKind::Put),
        value: vec![b'v'; 24],
    };
    (0..4).map(|way| (0..each).map(|i| entry(way, i)).collect()).collect()
}

fn task(each: u64) -> Result<(DeviceTask, Vec<u8>), Box<dyn std::error::Error>> {
    let host = MemoryHost::new();
    let options = TableOptions { compression: Compression::None, filter_bits_per_key: 0, ..TableOptions::default() };
    let mut inputs = Vec::new();
    for mut entries in ways(each) {
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (task, data) = task(7)?;
    let unit = Simulated { trace_cycles: 400, ..Simulated::new(Memory { latency: 10, ..Memory::IDEAL }) };
    match unit.run(&task.encode(), &data) {
        Err(NotRun::Missing(why)) => eprintln!("SKIPPED: the waveform: {why}"),
        found => {
            print(&found?.trace);
            println!();
            lanes()?;
        }
    }
    Ok(())
}

/// A host that submits seven tasks, the fourth in lock-step, and takes no answer until none comes any more.
fn lanes() -> Result<(), Box<dyn std::error::Error>> {
    let (task, data) = task(50)?;
    let mut chip = Chip::new(Memory { latency: 10, ..Memory::IDEAL })?;
    chip.submit(&task.encode(), &data, false)?;
    let alone = chip.wait()?.outcome?.cycles;
    let (mut looks, mut submitted, mut cycles) = (Vec::new(), 0, Vec::new());
    while cycles.len() < 7 {
        let mut submits = ' ';
        if submitted < 7 && chip.submit(&task.encode(), &data, submitted == 3).is_ok() {
            submitted += 1;
            submits = 's';
        } else {
            // Accesses of three cycles each, as many as a submission has.
            for _ in 0..49 {
                chip.read(registers::ID)?;
            }
        }
        let mut takes = '.';
        if looks.len() >= 55 && chip.read(registers::STATUS)? >> 4 & 7 != 0 {
            let answer = chip.wait()?;
            cycles.push((answer.tag - 1, answer.outcome?.cycles));
            takes = 't';
        }
        looks.push((chip.read(registers::STATUS)?, submits, takes));
    }
    println!("a chip of three lanes, some 150 cycles a character");
    let row = |name: &str, mark: &dyn Fn(u32) -> char| {
        println!("{name:<18}{}", looks.iter().map(|look| mark(look.0)).collect::<String>());
    };
    let digit = |number: u32| char::from_digit(number, 10).unwrap_or('?');
    println!("{:<18}{}", "host submits", looks.iter().map(|look| look.1).collect::<String>().replace(' ', "."));
    row("tasks that wait", &|status| digit(4 - (status & 7)));
    for lane in 0..3 {
        row(&format!("lane {lane} has a task"), &|status| if status >> (8 + lane) & 1 != 0 { '#' } else { '.' });
    }
    row("lock-step", &|status| if status >> 16 & 1 != 0 { '#' } else { '.' });
    row("answers that wait", &|status| digit(status >> 4 & 7));
    println!("{:<18}{}", "host takes", looks.iter().map(|look| look.2).collect::<String>());
    println!("input of a task: {} B; cycles alone: {alone}; of each task in turn: {cycles:?}", data.len());
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
