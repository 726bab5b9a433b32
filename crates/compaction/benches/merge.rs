//! How fast one core compacts: the whole of [`run`], tables in, tables out, on files in memory where there is
//! `/dev/shm`.
//!
//! `cargo bench -p situ-compaction [-- ROUNDS]`. Keys of 16 bytes, values of 100, no compression.

use situ_compaction::{
    CompactionFilter, Decision, Encoder, FilterContext, FrozenFilter, KeyRange, KeySpan, MergeRules, OutputRules,
    TableInput, TablePlace, Task, TaskHost, run,
};
use situ_storage::{DirectoryVolume, FileName, Result, Volume, Writer};
use situ_table::{BlockCache, Compression, KeyKind, KeyRef, Table, TableOptions, TableWriter, Trailer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ENTRIES: u64 = 1_000_000;

struct Host {
    volume: DirectoryVolume,
    next: AtomicU64,
}

impl TaskHost for Host {
    fn reserve(&self, _level: u32) -> Result<TablePlace> {
        Ok(TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) })
    }

    fn create(&self, _level: u32, place: TablePlace) -> Result<(TablePlace, Box<dyn Writer>)> {
        Ok((place, self.volume.create(FileName::Table(place.number), 0)?))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

fn options() -> TableOptions {
    TableOptions { compression: Compression::None, ..TableOptions::default() }
}

fn key(i: u64) -> String {
    format!("user{i:012}")
}

/// A table of every `step`th key, from `first` on. Larger sequences for smaller `first`.
fn table(host: &Host, cache: &Arc<BlockCache>, first: u64, step: u64) -> Result<TableInput> {
    let (TablePlace { number, .. }, file) = host.new_table(0)?;
    let mut writer = TableWriter::new(file, &options(), 0)?;
    let mut value = [0u8; 100];
    for i in (first..ENTRIES).step_by(step as usize) {
        value[..8].copy_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        writer.add(KeyRef::new(key(i).as_bytes(), Trailer::new(1000 - first, KeyKind::Put)), &value)?;
    }
    writer.finish()?;
    let table = Table::open(host.volume.open(FileName::Table(number))?, number, Arc::clone(cache))?;
    let last = (ENTRIES - 1 - first) / step * step + first;
    let span = KeySpan::including(key(first).as_bytes(), key(last).as_bytes());
    Ok(TableInput::of(table, number, span))
}

/// Decides by the value alone, or by two integers that it reads out of its parameters for each entry.
struct Threshold {
    reads_parameters: bool,
}

impl CompactionFilter for Threshold {
    fn name(&self) -> &str {
        "threshold"
    }

    fn freeze(&self, _now_unix: Duration) -> Vec<u8> {
        [[1].as_slice(), &7u64.to_le_bytes(), &9u64.to_le_bytes()].concat()
    }

    fn decide(&self, context: &FilterContext<'_>, _key: &[u8], value: &[u8]) -> Decision {
        let Some(first) = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { return Decision::Keep };
        let dead = if self.reads_parameters {
            let Some((&[1], words)) = context.parameters.split_first_chunk() else { return Decision::Keep };
            let (&[low, high], &[]) = words.as_chunks::<8>() else { return Decision::Keep };
            first < u64::from_le_bytes(low) || first == u64::from_le_bytes(high)
        } else {
            first < 7 || first == 9
        };
        if dead { Decision::Remove } else { Decision::Keep }
    }
}

fn measure(name: &str, host: &Host, inputs: Vec<TableInput>, filter: Option<FrozenFilter>, rounds: u32) -> Result<()> {
    let rules = MergeRules {
        range: KeyRange::all(),
        snapshots: Vec::new(),
        below: Vec::new(),
        grandparents: Vec::new(),
        output_level: 1,
        output: OutputRules {
            table: options(),
            target_file_bytes: 64 << 20,
            max_grandparent_bytes: u64::MAX,
            created_unix_s: 0,
            encoder: Encoder::default(),
        },
        filter,
        now_unix: Duration::ZERO,
    };
    let inputs = inputs.into_iter().map(|input| vec![input]).collect();
    let task = Task { id: 1, keyspace: 0, level: 0, inputs, rules };
    for _ in 0..rounds {
        let began = Instant::now();
        let output = run(&task, host).map_err(|e| situ_storage::Error::Invalid(e.to_string()))?;
        let seconds = began.elapsed().as_secs_f64();
        let stats = output.stats;
        println!(
            "{name}: {} entries in, {} out, {:.2} M entries/s in, {:.0} MB/s in, {:.0} MB/s out",
            stats.entries_in,
            stats.entries_out,
            stats.entries_in as f64 / seconds / 1e6,
            stats.bytes_read as f64 / seconds / 1e6,
            stats.bytes_written as f64 / seconds / 1e6,
        );
        for table in output.tables {
            host.volume.remove(FileName::Table(table.number))?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(3);
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::tempdir_in(&place).map_err(|e| situ_storage::Error::io("create", place.display(), e))?;
    let host = Host { volume: DirectoryVolume::open(directory.path())?, next: AtomicU64::new(1) };
    let cache = BlockCache::new(8 << 20);
    let interleaved = (0..4).map(|first| table(&host, &cache, first, 4)).collect::<Result<Vec<_>>>()?;
    measure("4 inputs, all keys differ", &host, interleaved, None, rounds)?;
    let overlapping = (0..4).map(|first| table(&host, &cache, first * 4, 4)).collect::<Result<Vec<_>>>()?;
    measure("4 inputs, versions of the same keys", &host, overlapping, None, rounds)?;
    let one = || Ok::<_, situ_storage::Error>(vec![table(&host, &cache, 0, 1)?]);
    measure("1 input", &host, one()?, None, rounds)?;
    for (name, reads_parameters) in [("a filter", false), ("a filter that reads its parameters", true)] {
        let code: Arc<dyn CompactionFilter> = Arc::new(Threshold { reads_parameters });
        let frozen = FrozenFilter::freeze(&code, Duration::ZERO)
            .map_err(|error| situ_storage::Error::Invalid(error.to_string()))?;
        measure(&format!("1 input, {name}"), &host, one()?, Some(frozen), rounds)?;
    }
    Ok(())
}
