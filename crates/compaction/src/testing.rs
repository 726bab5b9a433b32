//! Random stores and what reading them must give, for the tests of this crate.
#![allow(missing_docs, clippy::new_without_default, reason = "for tests")]

use crate::merge::Source;
use crate::span::{KeyRange, KeySpan};
use crate::task::{Encoder, MergeRules, OutputRules, TableInput, TablePlace, Task, TaskHost, TaskOutput};
pub use situ_sim::Rng;
use situ_storage::{Error, Reader, Result, Writer};
use situ_table::range_del::RangeTombstone;
use situ_table::{
    BlockCache, Compression, KeyKind, KeyRef, MAX_SEQUENCE, SequenceNumber, Table, TableOptions, TableWriter, Trailer,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs `body` with many seeds; a failure prints its seed.
pub fn with_seeds(count: u64, mut body: impl FnMut(&mut Rng)) {
    situ_sim::for_each_seed(0, count, |seed| body(&mut Rng::new(seed)));
}

pub fn one_in(rng: &mut Rng, n: u64) -> bool {
    rng.below(n) == 0
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub trailer: Trailer,
    pub value: Vec<u8>,
}

impl Entry {
    pub fn new(key: &str, sequence: SequenceNumber, kind: KeyKind, value: &str) -> Entry {
        Entry { key: key.into(), trailer: Trailer::new(sequence, kind), value: value.into() }
    }

    pub fn key_ref(&self) -> KeyRef<'_> {
        KeyRef::new(&self.key, self.trailer)
    }
}

pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| a.key_ref().cmp(&b.key_ref()));
}

/// A sorted list as a source.
pub struct VecSource {
    pub entries: Vec<Entry>,
    pub at: usize,
}

impl VecSource {
    pub fn new(entries: Vec<Entry>) -> VecSource {
        VecSource { entries, at: 0 }
    }
}

impl Source for VecSource {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }

    fn key(&self) -> KeyRef<'_> {
        self.entries[self.at].key_ref()
    }

    fn value(&self) -> &[u8] {
        &self.entries[self.at].value
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn file(&self) -> String {
        "list".to_owned()
    }
}

/// Entries and range tombstones, wherever they lie.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    pub entries: Vec<Entry>,
    pub tombstones: Vec<RangeTombstone>,
}

impl Contents {
    /// What a reader at `snapshot` sees of `key`, by looking at everything.
    pub fn read(&self, key: &[u8], snapshot: SequenceNumber) -> Option<&[u8]> {
        let versions = self.entries.iter().filter(|e| e.key == key && e.trailer.sequence() <= snapshot);
        let newest = versions.max_by_key(|e| e.trailer)?;
        let covers =
            |t: &&RangeTombstone| t.begin.as_slice() <= key && key < t.end.as_slice() && t.sequence <= snapshot;
        let deleted = self.tombstones.iter().filter(covers).any(|t| t.sequence > newest.trailer.sequence());
        (!deleted && newest.trailer.kind() != Some(KeyKind::Delete)).then_some(newest.value.as_slice())
    }

    pub fn with(&self, other: &Contents) -> Contents {
        Contents {
            entries: [self.entries.as_slice(), &other.entries].concat(),
            tombstones: [self.tombstones.as_slice(), &other.tombstones].concat(),
        }
    }

    /// The smallest span of all that is in it.
    pub fn span(&self) -> Option<KeySpan> {
        let points = self.entries.iter().map(|e| KeySpan::including(&e.key, &e.key));
        let ranges = self.tombstones.iter().map(|t| KeySpan { begin: t.begin.clone(), end: t.end.clone() });
        points.chain(ranges).reduce(KeySpan::union)
    }
}

/// The inputs of a compaction, newest run first, what lies below them, and who looks on.
#[derive(Debug, Clone)]
pub struct World {
    pub runs: Vec<Contents>,
    pub below: Contents,
    pub below_spans: Vec<Vec<KeySpan>>,
    pub snapshots: Vec<SequenceNumber>,
    pub keys: Vec<Vec<u8>>,
}

pub fn key(index: u64) -> Vec<u8> {
    // Lengths differ and some keys are prefixes of others; the first bytes are shared.
    let mut key = format!("key{:02}", index / 3).into_bytes();
    key.extend(std::iter::repeat_n(0u8, (index % 3) as usize));
    key
}

impl World {
    /// Writes happen in order, each to the newest place; now and then what has been written so far becomes a run, so
    /// that newer runs hold newer versions. The oldest part may lie below.
    pub fn random(rng: &mut Rng) -> World {
        let universe = 1 + rng.below(30);
        let writes = rng.below(150);
        let runs = 1 + rng.below(5) as usize;
        let below_writes = if one_in(rng, 3) { 0 } else { rng.below(20) };
        let deletes = 1 + rng.below(6);
        let range_deletes = [0, 3, 10, 40][rng.below(4) as usize];
        let mut parts: Vec<Contents> = vec![Contents::default(); runs + 1];
        let mut sequence = 0;
        for write in 0..below_writes + writes {
            // Some numbers belong to other keyspaces.
            sequence += 1 + rng.below(3);
            let part =
                if write < below_writes { 0 } else { 1 + ((write - below_writes) * runs as u64 / writes) as usize };
            if range_deletes > 0 && one_in(rng, range_deletes) {
                let (a, b) = (rng.below(universe + 1), rng.below(universe + 1));
                let (begin, end) = (key(a.min(b)), key(a.max(b) + 1));
                parts[part].tombstones.push(RangeTombstone { begin, end, sequence });
                continue;
            }
            let (kind, value) = match rng.below(6 * deletes) {
                n if n < deletes * 2 => (KeyKind::Delete, String::new()),
                n if n < deletes * 3 => (KeyKind::ValueHandle, format!("handle{sequence}")),
                _ => (KeyKind::Put, format!("v{sequence}")),
            };
            let trailer = Trailer::new(sequence, kind);
            parts[part].entries.push(Entry { key: key(rng.below(universe)), trailer, value: value.into() });
        }
        for part in &mut parts {
            sort(&mut part.entries);
        }
        let mut snapshots: BTreeSet<SequenceNumber> = BTreeSet::new();
        for _ in 0..rng.below(5) {
            snapshots.insert(rng.below(sequence + 2));
        }
        let mut parts = parts.into_iter();
        let below = parts.next().unwrap_or_default();
        // One file below, or one for each entry and tombstone group: spans with holes.
        let mut below_spans: Vec<Vec<KeySpan>> = vec![Vec::new()];
        if one_in(rng, 2) || !below.tombstones.is_empty() {
            below_spans[0].extend(below.span());
        } else {
            below_spans[0].extend(below.entries.iter().map(|e| KeySpan::including(&e.key, &e.key)));
            below_spans[0].dedup();
        }
        if below_spans[0].is_empty() {
            below_spans.clear();
        }
        let mut runs: Vec<Contents> = parts.collect();
        runs.reverse();
        World {
            runs,
            below,
            below_spans,
            snapshots: snapshots.into_iter().collect(),
            keys: (0..universe).map(key).collect(),
        }
    }

    pub fn inputs(&self) -> Contents {
        self.runs.iter().fold(Contents::default(), |all, run| all.with(run))
    }

    /// Panics unless every snapshot, and the present, reads the same from `before` and `after`.
    pub fn assert_same_reads(&self, before: &Contents, after: &Contents) {
        for key in &self.keys {
            for snapshot in self.snapshots.iter().copied().chain([MAX_SEQUENCE]) {
                assert_eq!(
                    after.read(key, snapshot),
                    before.read(key, snapshot),
                    "key {} at {snapshot}, snapshots {:?}\nbefore {before:#?}\nafter {after:#?}",
                    key.escape_ascii(),
                    self.snapshots,
                );
            }
        }
    }
}

pub type Bytes = Arc<Vec<u8>>;

/// Files in memory, as a volume and the host of runs.
pub struct MemoryHost {
    files: Arc<Mutex<BTreeMap<u64, Bytes>>>,
    next: AtomicU64,
    cache: Arc<BlockCache>,
    pub paced_bytes: AtomicU64,
    pub cancel: AtomicBool,
    /// Creating the file of this number fails.
    pub fails_at: AtomicU64,
}

struct MemoryWriter {
    files: Arc<Mutex<BTreeMap<u64, Bytes>>>,
    number: u64,
    bytes: Vec<u8>,
}

impl Writer for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.files.lock().unwrap().insert(self.number, Arc::new(self.bytes));
        Ok(())
    }
}

struct MemoryReader {
    path: String,
    bytes: Bytes,
}

impl Reader for MemoryReader {
    fn path(&self) -> &str {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let found = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)?.get(..into.len()));
        let found = found.ok_or_else(|| Error::corruption(&self.path, offset, "file length", into.len(), "the end"))?;
        into.copy_from_slice(found);
        Ok(())
    }
}

impl TaskHost for MemoryHost {
    fn reserve(&self, _level: u32) -> Result<TablePlace> {
        Ok(TablePlace { volume: 0, number: self.next.fetch_add(1, Ordering::Relaxed) })
    }

    fn create(&self, _level: u32, place: TablePlace) -> Result<(TablePlace, Box<dyn Writer>)> {
        let number = place.number;
        if number == self.fails_at.load(Ordering::Relaxed) {
            return Err(Error::NoSpace { op: "create", path: format!("{number:06}.table") });
        }
        Ok((place, Box::new(MemoryWriter { files: Arc::clone(&self.files), number, bytes: Vec::new() })))
    }

    fn open(&self, place: TablePlace) -> Result<Arc<dyn Reader>> {
        let (path, bytes) = (format!("{:06}.table", place.number), self.bytes(place.number));
        Ok(Arc::new(MemoryReader { path, bytes }))
    }

    fn pace(&self, bytes: u64) {
        self.paced_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

impl MemoryHost {
    pub fn new() -> MemoryHost {
        MemoryHost {
            files: Arc::default(),
            next: AtomicU64::new(1),
            cache: BlockCache::new(1 << 20),
            paced_bytes: AtomicU64::new(0),
            cancel: AtomicBool::new(false),
            fails_at: AtomicU64::new(u64::MAX),
        }
    }

    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    pub fn bytes(&self, number: u64) -> Bytes {
        Arc::clone(&self.files.lock().unwrap()[&number])
    }

    /// All files, by their numbers.
    pub fn files(&self) -> BTreeMap<u64, Bytes> {
        self.files.lock().unwrap().clone()
    }

    pub fn put_bytes(&self, number: u64, bytes: Vec<u8>) {
        self.files.lock().unwrap().insert(number, Arc::new(bytes));
    }

    pub fn open(&self, number: u64) -> Arc<Table> {
        let reader = MemoryReader { path: format!("{number:06}.table"), bytes: self.bytes(number) };
        Table::open(Arc::new(reader), number, Arc::clone(&self.cache)).unwrap()
    }

    pub fn input(&self, number: u64, span: KeySpan) -> TableInput {
        TableInput::of(self.open(number), number, span)
    }

    /// Writes contents as a table; `None` if there are none.
    pub fn write(&self, contents: &Contents, options: &TableOptions) -> Option<TableInput> {
        let span = contents.span()?;
        let (TablePlace { number, .. }, file) = self.new_table(0).unwrap();
        let mut writer = TableWriter::new(file, options, 7).unwrap();
        for entry in &contents.entries {
            writer.add(entry.key_ref(), &entry.value).unwrap();
        }
        for t in &contents.tombstones {
            writer.add_range_tombstone(&t.begin, t.sequence, &t.end).unwrap();
        }
        writer.finish().unwrap();
        Some(self.input(number, span))
    }

    /// All that is in the output's tables.
    pub fn contents(&self, output: &TaskOutput) -> Contents {
        let mut all = Contents::default();
        for table in &output.tables {
            let table = self.open(table.number);
            let mut cursor = table.sequential_cursor(0);
            cursor.first().unwrap();
            while cursor.valid() {
                let key = cursor.key();
                let value = cursor.value().to_vec();
                all.entries.push(Entry { key: key.user.to_vec(), trailer: key.trailer, value });
                cursor.next().unwrap();
            }
            all.tombstones.extend(table.range_tombstones().iter().map(|t| RangeTombstone::clone(t)));
        }
        all
    }
}

/// Small blocks, so that small tables have many.
pub fn small_blocks() -> TableOptions {
    TableOptions { block_bytes: 64, index_block_bytes: 128, compression: Compression::None, ..TableOptions::default() }
}

pub fn plain_rules() -> MergeRules {
    MergeRules {
        range: KeyRange::all(),
        snapshots: Vec::new(),
        below: Vec::new(),
        grandparents: Vec::new(),
        output_level: 3,
        output: OutputRules {
            table: small_blocks(),
            target_file_bytes: u64::MAX,
            max_grandparent_bytes: u64::MAX,
            created_unix_s: 7,
            encoder: Encoder::default(),
        },
        filter: None,
        now_unix: Duration::from_secs(1000),
    }
}

/// A task over these runs, each being one table or, where it can be parted between keys, two.
pub fn task(host: &MemoryHost, runs: &[Contents], rules: MergeRules) -> Task {
    let inputs = runs.iter().map(|run| {
        let middle = run.entries.get(run.entries.len() / 2).map(|entry| entry.key.clone());
        let parts = match middle.filter(|_| run.tombstones.is_empty()) {
            Some(middle) => {
                let (low, high) = run.entries.iter().cloned().partition(|entry| entry.key < middle);
                vec![low, high].into_iter().map(|entries| Contents { entries, tombstones: Vec::new() }).collect()
            }
            None => vec![run.clone()],
        };
        parts.iter().filter_map(|part| host.write(part, &small_blocks())).collect()
    });
    Task { id: 1, keyspace: 0, level: 2, inputs: inputs.collect(), rules }
}

/// A run of `count` keys `00000..`, each with a value of 20 bytes.
pub fn numbered(count: u64, step: usize, sequence: SequenceNumber) -> Contents {
    let entry = |i: u64| Entry::new(&format!("{i:05}"), sequence, KeyKind::Put, &format!("{i:020}"));
    Contents { entries: (0..count).step_by(step).map(entry).collect(), tombstones: Vec::new() }
}

/// Plays the cases of `testdata/<directory>/*.txt`: what stands above `----` is the question, what stands below is the
/// answer. Cases end with an empty line; a paragraph without `----` is a remark. With `SITU_BLESS=1` in the environment
/// the answers are written anew; read the difference before you keep it.
pub fn golden(directory: &str, answer: impl Fn(&str) -> String) {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(directory);
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let case = |case: &str| match case.split_once("----") {
            Some((question, _)) => format!("{question}----\n{}", answer(question.trim_end())),
            None => format!("{case}\n"),
        };
        let answered = text.trim_end().split("\n\n").map(case).collect::<Vec<String>>().join("\n");
        if std::env::var_os("SITU_BLESS").is_some() {
            std::fs::write(&path, &answered).unwrap();
            continue;
        }
        assert!(answered == text, "{} differs; SITU_BLESS=1 writes it anew:\n{answered}", path.display());
    }
}
