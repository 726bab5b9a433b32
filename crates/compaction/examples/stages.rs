//! How much a pipelined run gains: the same task linear and pipelined, on files in memory behind a slow link.
//!
//! ```sh
//! cargo run --release -p situ-compaction --example stages -- [ROUNDS] [VALUE_BYTES ...]
//! ```
//!
//! 1. Two runs of tables of 2 MB are merged, 64 MiB each: keys of 16 bytes, values that compress to a half.
//! 2. Each read and each append takes as long as the link needs for the bytes. Reads that are submitted add their
//!    latency once, not one after the other.
//! 3. All modes run in turn. For each mode, the run with the median time is printed, with its stages.
//!
//! The most that a pipeline can gain is the sum of the linear run's stages over the longest one. The last column says
//! how much of that is gained.

use situ_base::{Env, lock};
use situ_compaction::{
    Encoder, KeyRange, KeySpan, MergeRules, OutputRules, RunMode, RunReport, Stage, TableInput, TablePlace, Task,
    TaskHost, run_with,
};
use situ_storage::{DirectoryVolume, Error, FileName, ReadRequest, Reader, Result, Volume, Writer};
use situ_table::{BlockCache, Compression, KeyKind, KeyRef, Table, TableOptions, TableWriter, Trailer};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const RUN_BYTES: u64 = 64 << 20;
const TABLE_BYTES: u64 = 2 << 20;
/// A writer hands bytes to the link in steps of this size.
const APPEND_BYTES: u64 = 256 << 10;
const MODES: [RunMode; 3] = [RunMode::Linear, RunMode::PIPELINED, RunMode::Pipelined { merge_threads: 2 }];

/// One direction of a link, or a disk: transfers one after the other, each answered later by the latency.
struct Link {
    bytes_per_s: f64,
    latency: Duration,
    free_at: Mutex<Instant>,
}

impl Link {
    fn new(bytes_per_s: f64, latency: Duration) -> Link {
        Link { bytes_per_s, latency, free_at: Mutex::new(Instant::now()) }
    }

    /// When a transfer that is asked for now is answered.
    fn answer_at(&self, bytes: u64) -> Instant {
        let mut free_at = lock(&self.free_at);
        let took = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        *free_at = (*free_at).max(Instant::now()) + took;
        *free_at + self.latency
    }

    fn transfer(&self, bytes: u64) {
        wait_until(self.answer_at(bytes));
    }
}

fn wait_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// What lies between the merge and its files.
#[derive(Clone)]
struct Links {
    read: Arc<Link>,
    write: Arc<Link>,
}

struct SlowReader {
    inner: Arc<dyn Reader>,
    links: Links,
}

impl Reader for SlowReader {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, into)?;
        self.links.read.transfer(into.len() as u64);
        Ok(())
    }

    fn submit(&self, request: ReadRequest) {
        let (inner, at) = (Arc::clone(&self.inner), self.links.read.answer_at(request.buffer.len() as u64));
        std::thread::spawn(move || {
            request.run(|offset, into| {
                let result = inner.read_at(offset, into);
                wait_until(at);
                result
            });
        });
    }
}

struct SlowWriter {
    inner: Box<dyn Writer>,
    links: Links,
    waiting_bytes: u64,
}

impl SlowWriter {
    fn pass_on(&mut self) {
        self.links.write.transfer(std::mem::take(&mut self.waiting_bytes));
    }
}

impl Writer for SlowWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.append(bytes)?;
        self.waiting_bytes += bytes.len() as u64;
        if self.waiting_bytes >= APPEND_BYTES {
            self.pass_on();
        }
        Ok(())
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> Result<()> {
        self.pass_on();
        self.inner.sync()
    }

    fn flush(&mut self) -> Result<()> {
        self.pass_on();
        self.inner.flush()
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.pass_on();
        self.inner.finish()
    }
}

struct Host {
    volume: DirectoryVolume,
    next: AtomicU64,
    /// None while inputs are made.
    links: Mutex<Option<Links>>,
}

impl TaskHost for Host {
    fn reserve(&self, _level: u32) -> Result<TablePlace> {
        Ok(TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) })
    }

    fn create(&self, _level: u32, place: TablePlace) -> Result<(TablePlace, Box<dyn Writer>)> {
        let inner = self.volume.create(FileName::Table(place.number), 0)?;
        Ok(match lock(&self.links).clone() {
            None => (place, inner),
            Some(links) => (place, Box::new(SlowWriter { inner, links, waiting_bytes: 0 })),
        })
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

fn options(compression: Compression) -> TableOptions {
    TableOptions { compression, ..TableOptions::default() }
}

/// Fills every other eight bytes of a value with a number that looks random.
fn fill(value: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for bytes in value.chunks_exact_mut(16) {
        state ^= state >> 29;
        state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes[..8].copy_from_slice(&state.to_le_bytes());
    }
}

/// A run of tables with every other key: numbers of files, and what they span.
fn make_run(host: &Host, first: u64, value_bytes: usize, options: &TableOptions) -> Result<Vec<(u64, KeySpan)>> {
    let entries = RUN_BYTES / (16 + value_bytes as u64);
    let key = |i: u64| format!("user{i:012}");
    let mut value = vec![0; value_bytes];
    let (mut tables, mut at) = (Vec::new(), 0);
    while at < entries {
        let (TablePlace { number, .. }, file) = host.new_table(0)?;
        let mut writer = TableWriter::new(file, options, 0)?;
        let begin = key(2 * at + first);
        let mut last = begin.clone();
        while at < entries && writer.estimated_bytes() < TABLE_BYTES {
            last = key(2 * at + first);
            fill(&mut value, at);
            writer.add(KeyRef::new(last.as_bytes(), Trailer::new(9 - first, KeyKind::Put)), &value)?;
            at += 1;
        }
        writer.finish()?;
        tables.push((number, KeySpan::including(begin.as_bytes(), last.as_bytes())));
    }
    Ok(tables)
}

fn open(host: &Host, links: &Links, tables: &[(u64, KeySpan)], cache: &Arc<BlockCache>) -> Result<Vec<TableInput>> {
    let one = |(number, span): &(u64, KeySpan)| {
        let inner = host.volume.open(FileName::Table(*number))?;
        let reader = Arc::new(SlowReader { inner, links: links.clone() });
        Ok(TableInput::of(Table::open(reader, *number, Arc::clone(cache))?, *number, span.clone()))
    };
    tables.iter().map(one).collect()
}

fn task(inputs: Vec<Vec<TableInput>>, table: TableOptions) -> Task {
    let rules = MergeRules {
        range: KeyRange::all(),
        snapshots: Vec::new(),
        below: Vec::new(),
        grandparents: Vec::new(),
        output_level: 1,
        output: OutputRules {
            table,
            target_file_bytes: TABLE_BYTES,
            max_grandparent_bytes: u64::MAX,
            created_unix_s: 0,
            encoder: Encoder::default(),
        },
        filter: None,
        now_unix: Duration::ZERO,
    };
    Task { id: 1, keyspace: 0, level: 0, inputs, rules }
}

/// Runs the task once, and removes what it made.
fn once(task: &Arc<Task>, host: &Arc<Host>, mode: RunMode) -> Result<(Duration, RunReport)> {
    let dyn_host = Arc::clone(host) as Arc<dyn TaskHost>;
    let began = Instant::now();
    let (output, ran) = run_with(task, &dyn_host, mode, &Env::system());
    let took = began.elapsed();
    for table in output.map_err(|error| Error::Invalid(error.to_string()))?.tables {
        host.volume.remove(FileName::Table(table.number))?;
    }
    Ok((took, ran))
}

fn show(stage: &Stage) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!("{:5.0} {:5.0} {:5.0}", ms(stage.busy), ms(stage.starved), ms(stage.blocked))
}

/// Runs the task in all modes, in turn, and prints the median of each.
fn measure(task: &Arc<Task>, host: &Arc<Host>, rounds: usize) -> Result<()> {
    let mut runs: Vec<Vec<(Duration, RunReport)>> = vec![Vec::new(); MODES.len()];
    for _ in 0..rounds {
        for (mode, of_mode) in MODES.iter().zip(&mut runs) {
            of_mode.push(once(task, host, *mode)?);
        }
    }
    // The best of all runs, as processors are shared with others.
    let merge_ns = |runs: &Vec<(Duration, RunReport)>| {
        let of = |(_, ran): &(Duration, RunReport)| {
            ran.stages.merge.busy.as_nanos() as f64 / ran.stages.merge.bytes.max(1) as f64
        };
        runs.iter().map(of).fold(f64::INFINITY, f64::min)
    };
    let merges: Vec<f64> = runs.iter().map(merge_ns).collect();
    let medians: Vec<(Duration, RunReport)> = runs
        .iter_mut()
        .map(|runs| {
            runs.sort_by_key(|(took, _)| *took);
            runs[runs.len() / 2]
        })
        .collect();
    let linear = medians[0].1.stages;
    let busy = [linear.read.busy, linear.merge.busy, linear.write.busy].map(|time| time.as_secs_f64());
    let bound = busy.iter().sum::<f64>() / busy.iter().copied().fold(0.0, f64::max);
    println!(
        "      mode      ms   read: busy starved blocked   merge: busy ...   write: busy ...   merge, best   gain, of {bound:.2}"
    );
    for ((took, ran), merge_ns) in medians.iter().zip(merges) {
        let name = match ran.mode {
            RunMode::Linear => "linear".to_owned(),
            RunMode::Pipelined { merge_threads } => format!("pipe {merge_threads}"),
        };
        let gain = medians[0].0.as_secs_f64() / took.as_secs_f64();
        let stages = &ran.stages;
        println!(
            "{name:>10} {:7.0}   {}   {}   {}   {merge_ns:.2} ns/byte  {gain:.2} ({:.0}%)",
            took.as_secs_f64() * 1e3,
            show(&stages.read),
            show(&stages.merge),
            show(&stages.write),
            gain / bound * 100.0
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let rounds = numbers.next().unwrap_or(3).max(1);
    let mut values: Vec<usize> = numbers.collect();
    if values.is_empty() {
        values = vec![100, 4096];
    }
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    for value_bytes in values {
        for compression in [Compression::None, Compression::Lz4] {
            let directory = tempfile::tempdir_in(&place).map_err(|e| Error::io("create", place.display(), e))?;
            let volume = DirectoryVolume::open(directory.path())?;
            let host = Arc::new(Host { volume, next: AtomicU64::new(1), links: Mutex::new(None) });
            let options = options(compression);
            let runs = [make_run(&host, 0, value_bytes, &options)?, make_run(&host, 1, value_bytes, &options)?];
            for (name, bytes_per_s, latency_us) in
                [("memory", 1e12, 0), ("500 MB/s", 5e8, 100), ("10 Gbit/s", 1.25e9, 200), ("1 Gbit/s", 1.25e8, 200)]
            {
                let link = || Arc::new(Link::new(bytes_per_s, Duration::from_micros(latency_us)));
                let links = Links { read: link(), write: link() };
                let cache = BlockCache::new(8 << 20);
                let inputs = runs.iter().map(|run| open(&host, &links, run, &cache)).collect::<Result<Vec<_>>>()?;
                *lock(&host.links) = Some(links);
                println!("values of {value_bytes} bytes, {compression}, {name}");
                measure(&Arc::new(task(inputs, options.clone())), &host, rounds)?;
            }
        }
    }
    Ok(())
}
