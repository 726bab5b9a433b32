use super::*;
use crate::RunMode;
use crate::run::{Sizes, run, run_sized};
use crate::task::{OutputRules, TablePlace, Task};
use crate::testing::{Contents, Entry, MemoryHost, numbered, plain_rules, task};
use situ_table::range_del::RangeTombstone;
use situ_table::{Compression, KeyKind, MAX_SEQUENCE, ReadOptions, TableOptions, Warming, hash_key};

fn spans(task: &Task, host: &MemoryHost) -> Vec<String> {
    run(task, host).unwrap().tables.iter().map(|table| format!("{:?}", table.span).replace("\\x00", "+")).collect()
}

fn rules(target_file_bytes: u64, max_grandparent_bytes: u64) -> MergeRules {
    let plain = plain_rules();
    let output = OutputRules { target_file_bytes, max_grandparent_bytes, ..plain.output.clone() };
    MergeRules { output, ..plain }
}

fn grandparents(list: &[(&str, &str, u64)]) -> Vec<Grandparent> {
    list.iter()
        .map(|(begin, end, bytes)| Grandparent {
            span: KeySpan { begin: (*begin).into(), end: (*end).into() },
            bytes: *bytes,
        })
        .collect()
}

#[test]
fn versions_of_a_key_never_part() {
    let host = MemoryHost::new();
    let mut rules = rules(1, u64::MAX);
    rules.snapshots = (0..100).collect();
    let versions = |key: &str| (0..50).rev().map(|s| Entry::new(key, s, KeyKind::Put, "v")).collect::<Vec<_>>();
    let run = Contents { entries: [versions("a"), versions("b")].concat(), tombstones: Vec::new() };
    assert_eq!(spans(&task(&host, &[run], rules), &host), ["a..a+", "b..b+"]);
}

#[test]
fn files_are_about_as_large_as_asked() {
    let host = MemoryHost::new();
    let task = task(&host, &[numbered(20_000, 1, 9)], rules(50_000, u64::MAX));
    let tables = run(&task, &host).unwrap().tables;
    let (last, full) = tables.split_last().unwrap();
    assert!(full.len() > 5 && last.summary.bytes < 55_000);
    assert!(full.iter().all(|table| table.summary.bytes.abs_diff(50_000) < 2_500));
}

/// Entries whose values are random in so many of each hundred bytes, and otherwise zeros.
struct Generated<F> {
    random_percent: F,
    at: u64,
    end: u64,
    rng: crate::testing::Rng,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<F: Fn(u64) -> usize> Generated<F> {
    fn new(end: u64, random_percent: F) -> Generated<F> {
        let rng = crate::testing::Rng::new(1);
        let mut source = Generated { random_percent, at: 0, end, rng, key: Vec::new(), value: Vec::new() };
        source.fill();
        source
    }

    fn fill(&mut self) {
        self.key = format!("{:010}", self.at).into_bytes();
        let random = (self.random_percent)(self.at);
        self.value = (0..400).map(|at| if at < 4 * random { self.rng.below(256) as u8 } else { 0 }).collect();
    }
}

impl<F: Fn(u64) -> usize> crate::Source for Generated<F> {
    fn valid(&self) -> bool {
        self.at < self.end
    }

    fn key(&self) -> KeyRef<'_> {
        KeyRef::new(&self.key, situ_table::Trailer::new(1, KeyKind::Put))
    }

    fn value(&self) -> &[u8] {
        &self.value
    }

    fn next(&mut self) -> situ_storage::Result<()> {
        self.at += 1;
        self.fill();
        Ok(())
    }

    fn file(&self) -> String {
        "generated".to_owned()
    }
}

/// The sizes of the files that are not the last, in percent of the target, and stored bytes for each hundred plain
/// ones.
fn sizes(compression: Compression, plain_bytes: u64, random_percent: impl Fn(u64) -> usize) -> (Vec<u64>, u64) {
    const TARGET: u64 = 512 << 10;
    let mut rules = rules(TARGET, u64::MAX);
    rules.output.table = TableOptions { compression, ..TableOptions::default() };
    let host = MemoryHost::new();
    let source = Generated::new(plain_bytes / 420, random_percent);
    let output = crate::merge_sources(vec![source], &[] as &[RangeTombstone], 0, &rules, &host).unwrap();
    let properties = output.tables.iter().map(|table| &table.summary.properties);
    let (stored, plain) = properties.fold((0, 0), |(stored, plain), properties| {
        (stored + properties.data_bytes, plain + properties.raw_key_bytes + properties.raw_value_bytes)
    });
    let (_, full) = output.tables.split_last().unwrap();
    assert!(full.len() > 4, "{} files", full.len());
    (full.iter().map(|table| table.summary.bytes * 100 / TARGET).collect(), stored * 100 / plain)
}

#[test]
fn files_are_about_as_large_as_asked_however_well_they_compress() {
    for compression in [Compression::Lz4, Compression::Zstd { level: 1 }] {
        let mut ratios = Vec::new();
        for random_percent in [4, 20, 40, 60, 80, 100] {
            let (sizes, ratio) =
                sizes(compression, (4 << 20) * 100 / (6 + random_percent), |_| random_percent as usize);
            println!("{compression}, {ratio} stored bytes of 100: files of {sizes:?} percent of the target");
            assert!(sizes.iter().all(|percent| (75..125).contains(percent)), "{ratio}: {sizes:?}");
            ratios.push(ratio);
        }
        assert!(ratios[0] <= 10 && ratios[5] >= 98, "{ratios:?}");
    }
}

#[test]
fn files_are_about_as_large_as_asked_where_compression_changes() {
    // Of 30,000 entries, stretches of 3,000 compress to a tenth, and then not at all.
    let stretches = |at: u64| if (at / 3000).is_multiple_of(2) { 5 } else { 100 };
    let (sizes, _) = sizes(Compression::Lz4, 420 * 30_000, stretches);
    println!("files of {sizes:?} percent of the target");
    assert!(sizes.iter().all(|percent| (75..125).contains(percent)), "{sizes:?}");
}

#[test]
fn a_file_is_closed_before_it_overlaps_too_many_grandparents() {
    let host = MemoryHost::new();
    let mut rules = rules(u64::MAX, 250);
    rules.grandparents = grandparents(&[
        ("0000", "00010", 100),
        ("00010", "00020", 100),
        ("00030", "00040", 100),
        ("0005", "0007", 900),
    ]);
    // The first two fit. With 00030 there would be three. Before the last one a cut, though it alone is too much.
    assert_eq!(
        spans(&task(&host, &[numbered(80, 5, 9)], rules), &host),
        ["00000..00025+", "00030..00045+", "00050..00065+", "00070..00075+"]
    );
}

#[test]
fn a_file_that_is_large_enough_ends_with_a_grandparent() {
    let host = MemoryHost::new();
    let plain = task(&host, &[numbered(2000, 1, 9)], rules(50_000, u64::MAX));
    let target = run(&plain, &host).unwrap().stats.bytes_written;
    let mut bordered = rules(target, u64::MAX);
    // The first border comes too early, the second at 60 % of the target.
    bordered.grandparents = grandparents(&[("0", "00300", 1), ("00300", "01200", 1), ("01200", "9", 1)]);
    assert_eq!(spans(&task(&host, &[numbered(2000, 1, 9)], bordered), &host), ["00000..01199+", "01200..01999+"]);
}

fn tombstone(begin: &str, end: &str, sequence: u64) -> RangeTombstone {
    RangeTombstone { begin: begin.into(), end: end.into(), sequence }
}

#[test]
fn tombstones_are_clipped_to_the_files_they_lie_in() {
    let host = MemoryHost::new();
    let mut rules = rules(1, u64::MAX);
    rules.below = vec![vec![KeySpan { begin: b"a".to_vec(), end: b"z".to_vec() }]];
    let entries = ["b", "d", "f"].map(|key| Entry::new(key, 9, KeyKind::Put, "v")).to_vec();
    let tombstones = vec![tombstone("a", "e", 5), tombstone("g", "h", 6), tombstone("x", "y", 6)];
    let task = task(&host, &[Contents { entries, tombstones }], rules);
    let output = run(&task, &host).unwrap();
    assert_eq!(spans(&task, &host), ["a..d", "d..e", "f..f+", "g..h", "x..y"]);
    let contents = host.contents(&output);
    let pieces: Vec<String> =
        contents.tombstones.iter().map(|t| format!("{}..{}", t.begin.escape_ascii(), t.end.escape_ascii())).collect();
    assert_eq!(pieces, ["a..d", "d..e", "g..h", "x..y"]);
    assert_eq!(contents.read(b"c", MAX_SEQUENCE), None);
}

#[test]
fn tombstones_alone_make_files_of_bounded_size() {
    let host = MemoryHost::new();
    let mut rules = rules(20_000, u64::MAX);
    rules.below = vec![vec![KeySpan { begin: b"0".to_vec(), end: b"9".to_vec() }]];
    let one = |i: u64| tombstone(&format!("{i:05}"), &format!("{i:05}x"), 1 + i % 7);
    let contents = Contents { entries: Vec::new(), tombstones: (0..5000).map(one).collect() };
    let output = run(&task(&host, std::slice::from_ref(&contents), rules), &host).unwrap();
    assert!(output.tables.len() > 3);
    assert!(output.tables.windows(2).all(|pair| pair[0].span.end <= pair[1].span.begin));
    assert_eq!(host.contents(&output).tombstones, contents.tombstones);
}

#[test]
fn nothing_left_makes_no_file() {
    let host = MemoryHost::new();
    let contents = Contents {
        entries: vec![Entry::new("b", 3, KeyKind::Put, "v"), Entry::new("c", 3, KeyKind::Delete, "")],
        tombstones: vec![tombstone("a", "c", 5)],
    };
    let output = run(&task(&host, &[contents], rules(1, 1)), &host).unwrap();
    assert_eq!(output.tables, []);
    assert_eq!((output.stats.dropped_range_deleted, output.stats.dropped_tombstones), (1, 1));
}

/// A host whose readers have a cache.
struct WarmHost {
    files: std::sync::Arc<MemoryHost>,
    warming: std::sync::Arc<Warming>,
}

impl TaskHost for WarmHost {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.files.reserve(level)
    }

    fn create(
        &self,
        level: u32,
        place: TablePlace,
    ) -> situ_storage::Result<(TablePlace, Box<dyn situ_storage::Writer>)> {
        self.files.create(level, place)
    }

    fn warming(&self) -> Option<std::sync::Arc<Warming>> {
        Some(std::sync::Arc::clone(&self.warming))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// Reads these keys of the tables, and says how many blocks were not in the cache.
fn misses(host: &MemoryHost, tables: &[u64], keys: std::ops::Range<u64>) -> u64 {
    let before = host.cache().stats().misses;
    for table in tables {
        let table = host.open(*table);
        for key in keys.clone() {
            let key = format!("{key:05}");
            table.get(key.as_bytes(), MAX_SEQUENCE, hash_key(key.as_bytes()), &ReadOptions::default()).unwrap();
        }
    }
    host.cache().stats().misses - before
}

#[test]
fn warm_blocks_of_inputs_make_warm_blocks_of_outputs_in_every_mode() {
    for mode in [RunMode::Linear, RunMode::PIPELINED, RunMode::Pipelined { merge_threads: 2 }] {
        warm_blocks_stay_warm(mode);
    }
}

fn warm_blocks_stay_warm(mode: RunMode) {
    let host = std::sync::Arc::new(MemoryHost::new());
    let options = TableOptions { compression: Compression::None, block_bytes: 1000, ..TableOptions::default() };
    // Every other key lies in the one run, every other in the other; only one of them is read.
    let parted = |odd: usize| {
        let mut contents = numbered(30_000, 1, 9);
        contents.entries = contents.entries.into_iter().skip(odd).step_by(2).collect();
        vec![host.write(&contents, &options).unwrap()]
    };
    let inputs = vec![parted(0), parted(1)];
    let mut task = Task { inputs, ..task(&host, &[], rules(300_000, u64::MAX)) };
    task.rules.output.table = options.clone();
    assert!(misses(&host, &[task.inputs[0][0].number], 9000..11_000) > 30);
    let warming = std::sync::Arc::new(Warming::new(std::sync::Arc::clone(host.cache())));
    let warm_host: std::sync::Arc<dyn TaskHost> =
        std::sync::Arc::new(WarmHost { files: std::sync::Arc::clone(&host), warming });
    let sizes = Sizes { sub_range_bytes: 100_000, ..Sizes::default() };
    let (output, ran) = run_sized(&std::sync::Arc::new(task), &warm_host, mode, &situ_base::Env::system(), &sizes);
    assert_eq!(ran.mode, mode);
    let output = output.unwrap();
    let tables: Vec<u64> = output.tables.iter().map(|table| table.number).collect();
    assert!(tables.len() > 2);
    let warm = misses(&host, &tables, 9100..10_900);
    let (below, above) = (misses(&host, &tables, 7000..8800), misses(&host, &tables, 11_200..13_000));
    // Index blocks are in no cache; so are blocks that only a filter's error leads to.
    assert!(warm <= 8 && below > 50 && above > 50, "{warm} misses between {below} and {above}");
}
