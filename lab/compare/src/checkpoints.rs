//! `compare checkpoints`: how long writers stop while a store makes a checkpoint of many files.
//!
//! 1. A fresh store of small tables is filled and comes to rest. The tables of both stores have the same target size.
//! 2. One thread puts at a fixed pace. Its puts are timed, without the pauses between them.
//! 3. Checkpoints are made, with a pause of the same length behind each. The longest put that overlaps a checkpoint is
//!    the *stop*; the longest put of the pause behind it is what the machine does to puts anyway.
//!
//! The stores take turns, each in this process. Both flush their memtables before they make a checkpoint, which is
//! RocksDB's default.
//!
//! **Failure.** A checkpoint that does not open, or lacks a record of the fill, ends the measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, DBCompressionType, FlushOptions, WaitForCompactOptions, WriteOptions};
use serde::Serialize;
use situ::{Compression, Durability, Options, Store, StoreBuilder};
use situ_bench::{Machine, parse_count, table};

use crate::Outcome;

/// First argument that asks for this.
pub(crate) const NAME: &str = "checkpoints";

/// Measures how long writers stop for a checkpoint.
#[derive(Parser)]
#[command(name = "compare checkpoints", version)]
pub(crate) struct Arguments {
    /// Directory for the results; a new one.
    #[arg(long)]
    output: PathBuf,

    /// Directory to make the stores in.
    #[arg(long)]
    directory: PathBuf,

    /// Runs of each store.
    #[arg(long, default_value_t = 3)]
    repeat: u32,

    /// Checkpoints in a run.
    #[arg(long, default_value_t = 10)]
    checkpoints: u32,

    /// Records of the store.
    #[arg(long, default_value = "1m", value_parser = parse_count)]
    keys: u64,

    /// Size of a value.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,

    /// Target size of a table.
    #[arg(long, default_value_t = 100 << 10)]
    table_bytes: u64,

    /// Puts a second while checkpoints are made.
    #[arg(long, default_value_t = 10_000)]
    pace: u32,

    /// Each of these puts is durable before it is acknowledged.
    #[arg(long)]
    sync: bool,
}

/// Memtables of both stores. Small, so that a flush is a small part of a checkpoint.
const MEMTABLE_BYTES: usize = 4 << 20;
/// The longest pause of the machine between checkpoints.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// The operations that are measured.
trait Subject: Send + Sync {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Outcome<()>;
    fn come_to_rest(&self) -> Outcome<()>;
    fn tables(&self) -> Outcome<u64>;
    fn checkpoint(&self, directory: &Path) -> Outcome<()>;
    /// Opens a checkpoint and looks for a record.
    fn has(&self, directory: &Path, key: &[u8]) -> Outcome<bool>;
}

impl Subject for Store {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Outcome<()> {
        let durability = if sync { Durability::Synced } else { Durability::Buffered };
        Ok(self.put_with(key, value, durability)?)
    }

    fn come_to_rest(&self) -> Outcome<()> {
        self.flush()?;
        Ok(self.wait_idle()?)
    }

    fn tables(&self) -> Outcome<u64> {
        Ok(self.keyspace("default")?.properties().tables as u64)
    }

    fn checkpoint(&self, directory: &Path) -> Outcome<()> {
        Store::checkpoint(self, directory)?;
        Ok(())
    }

    fn has(&self, directory: &Path, key: &[u8]) -> Outcome<bool> {
        let store = Store::open(directory)?;
        let has = store.get(key)?.is_some();
        // A dropped store may still work on its files, which are about to be removed.
        store.close()?;
        Ok(has)
    }
}

impl Subject for DB {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Outcome<()> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        Ok(self.put_opt(key, value, &options)?)
    }

    fn come_to_rest(&self) -> Outcome<()> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.flush_opt(&options)?;
        Ok(self.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn tables(&self) -> Outcome<u64> {
        Ok(self.live_files()?.len() as u64)
    }

    fn checkpoint(&self, directory: &Path) -> Outcome<()> {
        Ok(Checkpoint::new(self)?.create_checkpoint(directory)?)
    }

    fn has(&self, directory: &Path, key: &[u8]) -> Outcome<bool> {
        Ok(DB::open_default(directory)?.get(key)?.is_some())
    }
}

fn open(name: &str, command: &Arguments, directory: &Path) -> Outcome<Box<dyn Subject>> {
    if name == "situ" {
        let mut options = Options::default();
        options.keyspace.memtable_bytes = MEMTABLE_BYTES as u64;
        options.keyspace.table_bytes = command.table_bytes;
        options.keyspace.compression = vec![Compression::None];
        return Ok(Box::new(StoreBuilder::new(options).open(directory)?));
    }
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_target_file_size_base(command.table_bytes);
    options.set_compression_type(DBCompressionType::None);
    options.set_max_background_jobs(3);
    Ok(Box::new(DB::open(&options, directory)?))
}

/// One run of one store, as it is kept. Times in milliseconds.
#[derive(Serialize)]
struct Run {
    store: &'static str,
    repetition: u32,
    date: String,
    machine: Machine,
    tables: u64,
    pace: u32,
    sync: bool,
    /// The whole call.
    call_ms: Vec<f64>,
    /// The longest put that overlaps the call.
    stop_ms: Vec<f64>,
    /// The longest put of a pause of the same length.
    pause_ms: Vec<f64>,
}

/// Begin and length of each put.
type Puts = Vec<(Instant, Duration)>;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B1_85EB_CA87).to_be_bytes());
    key
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(next).collect()
}

/// Puts records again at the pace of the command, until `stop`.
fn put_paced(store: &dyn Subject, command: &Arguments, stop: &AtomicBool) -> Outcome<Puts> {
    let step = Duration::from_secs(1) / command.pace;
    let (mut puts, mut due) = (Puts::new(), Instant::now());
    for number in (0..command.keys).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (key, value) = (key(number), value(number + 1, command.value_bytes));
        let began = Instant::now();
        store.put(&key, &value, command.sync)?;
        puts.push((began, began.elapsed()));
        due += step;
        let now = Instant::now();
        // No debt of puts: what a stop has cost is not made up for.
        due = due.max(now);
        thread::sleep(due - now);
    }
    Ok(puts)
}

/// The longest put that overlaps a span.
fn longest(puts: &Puts, from: Instant, to: Instant) -> f64 {
    let overlaps = |(began, took): &&(Instant, Duration)| *began < to && *began + *took > from;
    puts.iter().filter(overlaps).map(|(_, took)| took.as_secs_f64() * 1e3).fold(0.0, f64::max)
}

fn measure(store: &'static str, command: &Arguments, repetition: u32) -> Outcome<Run> {
    let home = command.directory.join(format!("{store}-{repetition}"));
    let subject = open(store, command, &home)?;
    for number in 0..command.keys {
        subject.put(&key(number), &value(number, command.value_bytes), false)?;
    }
    subject.come_to_rest()?;
    let tables = subject.tables()?;
    let (stop, opened) = (AtomicBool::new(false), subject);
    let subject = &*opened;
    let (puts, spans) = thread::scope(|scope| -> Outcome<_> {
        let writer = scope.spawn(|| put_paced(subject, command, &stop));
        let spans = (0..command.checkpoints).map(|number| -> Outcome<_> {
            let copy = command.directory.join(format!("{store}-{repetition}-copy-{number}"));
            let began = Instant::now();
            subject.checkpoint(&copy)?;
            let took = began.elapsed();
            let ended = Instant::now();
            thread::sleep(took.max(PAUSE_MIN));
            let pause_ended = Instant::now();
            if !subject.has(&copy, &key(command.keys - 1))? {
                return Err(format!("{store}: {} lacks a record", copy.display()).into());
            }
            fs::remove_dir_all(&copy)?;
            Ok((began, ended, pause_ended))
        });
        let spans = spans.collect::<Outcome<Vec<_>>>();
        stop.store(true, Ordering::Relaxed);
        let puts = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((puts, spans?))
    })?;
    // A store at work would write into the directory that is about to go.
    subject.come_to_rest()?;
    drop(opened);
    fs::remove_dir_all(&home)?;
    Ok(Run {
        store,
        repetition,
        date: situ_bench::date_now(),
        machine: Machine::describe(&command.directory),
        tables,
        pace: command.pace,
        sync: command.sync,
        call_ms: spans.iter().map(|(began, ended, _)| (*ended - *began).as_secs_f64() * 1e3).collect(),
        stop_ms: spans.iter().map(|(began, ended, _)| longest(&puts, *began, *ended)).collect(),
        pause_ms: spans.iter().map(|(_, ended, pause_ended)| longest(&puts, *ended, *pause_ended)).collect(),
    })
}

/// Median and maximum.
fn shape(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).map_or(0.0, |ms| ms * 1e6);
    format!("{}, {}", table::time(at(sorted.len() / 2)), table::time(at(sorted.len().saturating_sub(1))))
}

pub(crate) fn run(command: &Arguments) -> Outcome<()> {
    if command.repeat == 0 || command.checkpoints == 0 || command.keys == 0 || command.pace == 0 {
        return Err("nothing to run: repeat, checkpoints, keys and pace must not be zero".into());
    }
    fs::create_dir(&command.output).map_err(|error| format!("{}: {error}", command.output.display()))?;
    fs::create_dir_all(&command.directory)?;
    println!("median, maximum");
    println!("{:<8} {:>7} {:>20} {:>20} {:>20}", "store", "tables", "checkpoint", "longest put", "put in a pause");
    for repetition in 1..=command.repeat {
        let stores = if repetition % 2 == 1 { ["rocksdb", "situ"] } else { ["situ", "rocksdb"] };
        for store in stores {
            let run = measure(store, command, repetition)?;
            let text = serde_json::to_string_pretty(&run)? + "\n";
            fs::write(command.output.join(format!("{store}-{repetition}.json")), text)?;
            let [call, stop, pause] = [&run.call_ms, &run.stop_ms, &run.pause_ms].map(|values| shape(values));
            println!("{store:<8} {:>7} {call:>20} {stop:>20} {pause:>20}", run.tables);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_counts_for_each_span_that_it_overlaps() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let puts = vec![(at(0), Duration::from_millis(2)), (at(10), Duration::from_millis(5))];
        assert_eq!(longest(&puts, at(1), at(3)), 2.0);
        assert_eq!(longest(&puts, at(3), at(9)), 0.0);
        assert_eq!(longest(&puts, at(14), at(20)), 5.0);
        assert_eq!(longest(&puts, at(0), at(20)), 5.0);
    }
}
