//! How fast a table is written and read, in memory: one million entries, 16-byte keys, 100-byte values.
//!
//! `cargo bench -p situ-table`; arguments choose measurements by parts of their names: `-- get lz4`. Each line is the best of
//! five rounds.

use situ_storage::{Error, Reader, Result, Writer};
use situ_table::{
    BlockCache, Compression, KeyKind, KeyRef, MAX_SEQUENCE, ReadOptions, Table, TableOptions, TableWriter, Trailer,
    hash_key,
};
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const ENTRIES: u64 = 1_000_000;
const VALUE_BYTES: usize = 100;

/// A file in memory, with room for all of it from the start.
struct Sink(Vec<u8>, Arc<Mutex<Vec<u8>>>);

impl Writer for Sink {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.0.len() as u64
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        *self.1.lock().unwrap() = self.0;
        Ok(())
    }
}

struct Memory(Vec<u8>);

impl Reader for Memory {
    fn path(&self) -> &str {
        "memory"
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let from = self.0.get(offset as usize..).and_then(|bytes| bytes.get(..into.len()));
        into.copy_from_slice(from.ok_or_else(|| Error::Invalid("behind the end".to_owned()))?);
        Ok(())
    }
}

fn key(i: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let mut rest = i;
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

/// Half of it repeats, as db_bench's values do.
fn value(i: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'v'; VALUE_BYTES];
    let mut state = i;
    for piece in value[..VALUE_BYTES / 2].chunks_mut(8) {
        let bytes = random(&mut state).to_le_bytes();
        piece.copy_from_slice(&bytes[..piece.len()]);
    }
    value
}

fn arguments() -> impl Iterator<Item = String> {
    // Cargo adds `--bench`.
    std::env::args().skip(1).filter(|argument| !argument.starts_with('-'))
}

fn measure(name: &str, count: u64, mut run: impl FnMut()) {
    if !arguments().all(|part| name.contains(&part)) {
        return;
    }
    let best = (0..5).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    let best = best.min().unwrap_or_default();
    let each = best.as_secs_f64() / count as f64;
    println!("{name:<40} {:8.1} ns {:8.2} M/s", each * 1e9, 1e-6 / each);
}

/// Writes a table into `memory`, so that a second round does not measure page faults.
fn build(options: &TableOptions, entries: &[([u8; 16], [u8; VALUE_BYTES])], mut memory: Vec<u8>) -> Vec<u8> {
    memory.clear();
    let out = Arc::new(Mutex::new(Vec::new()));
    let sink = Sink(memory, Arc::clone(&out));
    let mut writer = TableWriter::new(Box::new(sink), options, 0).unwrap();
    for (key, value) in entries {
        writer.add(KeyRef::new(key, Trailer::new(7, KeyKind::Put)), value).unwrap();
    }
    writer.finish().unwrap();
    std::mem::take(&mut *out.lock().unwrap())
}

fn main() {
    let entries: Vec<_> = (0..ENTRIES).map(|i| (key(i * 3), value(i))).collect();
    for (name, compression) in
        [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd { level: 1 })]
    {
        let options = TableOptions { compression, ..TableOptions::default() };
        if arguments().any(|part| ["none", "lz4", "zstd"].contains(&&*part) && part != name) {
            continue;
        }
        let mut memory = Vec::with_capacity(140 * entries.len());
        measure(&format!("build {name}"), ENTRIES, || memory = build(&options, &entries, std::mem::take(&mut memory)));
        let file: Arc<dyn Reader> = Arc::new(Memory(build(&options, &entries, memory)));
        let cache = BlockCache::new(1 << 30);
        let open = |id, cache: &Arc<BlockCache>| Table::open(Arc::clone(&file), id, Arc::clone(cache)).unwrap();
        let table = open(1, &cache);
        let scan = |mut cursor: situ_table::TableCursor, forward: bool| {
            if forward {
                cursor.first().unwrap()
            } else {
                cursor.last().unwrap()
            }
            let (mut count, mut bytes) = (0, 0);
            while cursor.valid() {
                count += 1;
                bytes += cursor.key().user.len() + cursor.value().len();
                if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
            }
            assert_eq!((count, black_box(bytes)), (ENTRIES, ENTRIES as usize * (16 + VALUE_BYTES)));
        };
        measure(&format!("scan {name}, sequential"), ENTRIES, || scan(table.sequential_cursor(256 << 10), true));
        let cold = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        measure(&format!("scan {name}, not cached"), ENTRIES, || scan(table.cursor(cold), true));
        scan(table.cursor(ReadOptions::default()), true);
        measure(&format!("scan {name}, cached"), ENTRIES, || scan(table.cursor(ReadOptions::default()), true));
        measure(&format!("scan {name}, cached, backward"), ENTRIES, || scan(table.cursor(cold), false));

        let gets = 1_000_000;
        let mut state = 1;
        let mut get = |table: &Table, among: u64, offset: u64, expected: bool| {
            for _ in 0..gets {
                let key = key(random(&mut state) % among * 3 + offset);
                let found = table.get(&key, MAX_SEQUENCE, hash_key(&key), &ReadOptions::default()).unwrap();
                assert!(!expected || found.is_some());
                black_box(&found);
            }
        };
        measure(&format!("get {name}, cached, 10k hot keys"), gets, || get(&table, 10_000, 0, true));
        measure(&format!("get {name}, cached, all keys"), gets, || get(&table, ENTRIES, 0, true));
        measure(&format!("get {name}, absent"), gets, || get(&table, ENTRIES, 1, false));
        let uncached = open(2, &BlockCache::new(0));
        let gets = gets / 5;
        let mut state = 1;
        measure(&format!("get {name}, not cached"), gets, || {
            for _ in 0..gets {
                let key = key(random(&mut state) % ENTRIES * 3);
                black_box(uncached.get(&key, MAX_SEQUENCE, hash_key(&key), &cold).unwrap());
            }
        });
        let mut cursor = table.cursor(ReadOptions::default());
        let mut state = 1;
        measure(&format!("seek {name}, cached, all keys"), gets, || {
            for _ in 0..gets {
                let key = key(random(&mut state) % ENTRIES * 3 + 1);
                cursor.seek(KeyRef::new(&key, Trailer::seek(MAX_SEQUENCE))).unwrap();
                black_box(cursor.valid());
            }
        });
    }

    let cache = BlockCache::new(64 << 20);
    let file: Arc<dyn Reader> = Arc::new(Memory(build(&TableOptions::default(), &entries[..100_000], Vec::new())));
    let table = Table::open(file, 1, Arc::clone(&cache)).unwrap();
    let mut offsets: Vec<_> = table.block_boundaries().map(|b| b.unwrap().offset).collect();
    offsets.pop();
    let mut cursor = table.cursor(ReadOptions::default());
    cursor.first().unwrap();
    while cursor.valid() {
        cursor.next().unwrap();
    }
    let rounds = 1_000_000 / offsets.len() as u64;
    measure("cache hit", rounds * offsets.len() as u64, || {
        for _ in 0..rounds {
            for offset in &offsets {
                assert!(black_box(cache.get(1, *offset)).is_some());
            }
        }
    });
}
