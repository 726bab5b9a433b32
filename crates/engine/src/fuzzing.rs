//! Promise 6 under arbitrary bytes: one function for each decoder, for fuzzers (`fuzz/`) and for the seeded tests beside
//! this module. Only there with the feature `fuzzing` and in tests.
//!
//! Each function takes any bytes, decodes them every way there is, and panics if a decoder panics, does not end, or
//! contradicts itself. Checksums would keep a fuzzer out of nearly everything; so the lowest bit of the first byte asks
//! for them to be put right first.

use crate::base::batch::Record;
use crate::opening::state::StoreState;
use crate::versions::edit::Edit;
use crate::versions::manifest;
use crate::versions::version::TableSource;
use situ_base::Env;
use situ_compaction::{
    CompactionFilter, Decision, Encoder, FilterContext, FrozenFilter, Grandparent, InputTable, KeySpan, Measure,
    MergeRules, OutputRules, OutputTable, ReadTail, RunMode, TableInput, TablePlace, Task, TaskOutput, TaskStats,
    decode_measures, encode_measures,
};
use situ_device::PAGE_BYTES;
use situ_log::{RecordPosition, RecoveryMode, inspect, recover};
use situ_offload::{
    Decider, DecisionRecord, DecisionRules, LargeValues, Limits, ModeRule, Surroundings, decode_output, decode_task,
    encode_output, encode_task,
};
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use situ_storage::{FileName, Reader, Volume};
use situ_table::format::{BLOCK_TRAILER_BYTES, FOOTER_BYTES, HEADER_BYTES};
use situ_table::range_del::{FragmentedTombstones, RangeTombstone, TombstoneIndex};
use situ_table::{BlockCache, KeyRef, MAX_SEQUENCE, ReadOptions, Salvaged, Table, Trailer, hash_key, salvage};
use std::sync::Arc;

/// A malformed index may point to the same block many times; a walk is long enough after so many entries.
const WALK_ENTRIES_MAX: usize = 20_000;
const LOG_FILES_MAX: usize = 4;

/// A name and the function that takes any bytes.
pub type Target = (&'static str, fn(&[u8]));

/// The functions of this module.
pub const TARGETS: [Target; 8] = [
    ("log", log),
    ("table", table),
    ("manifest", manifest_file),
    ("edit", edit),
    ("record", record),
    ("range_tombstones", range_tombstones),
    ("task", task),
    ("metrics", metrics),
];

fn volume() -> SimVolume {
    SimVolume::new(&Env::system(), FaultPlan::none(), 0)
}

fn put_checksum(bytes: &mut [u8], over: std::ops::Range<usize>, at: usize) {
    let Some(covered) = bytes.get(over) else { return };
    let checksum = crc32c::crc32c(covered).to_le_bytes();
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&checksum);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
}

/// Puts the checksums of a log page right (`docs/formats/log.md`).
fn seal_page(page: &mut [u8]) {
    let used = |page: &[u8], at| u32_at(page, at) & 0xffff;
    let (all, durable) = (used(page, 20), used(page, 28));
    put_checksum(page, 48..48 + durable, 32);
    put_checksum(page, 48..48 + all, 36);
    put_checksum(page, 0..44, 44);
}

/// Puts the checksums of a table's header, footer and the blocks that the footer names right (`docs/formats/table.md`).
fn seal_table(bytes: &mut [u8]) {
    put_checksum(bytes, 0..12, 12);
    let Some(footer) = bytes.len().checked_sub(FOOTER_BYTES) else { return };
    for handle in (0..4).map(|n| footer + 12 * n) {
        let (offset, length) = (u32_at(bytes, handle), u32_at(bytes, handle + 8));
        let end = offset.saturating_add(length).saturating_add(BLOCK_TRAILER_BYTES);
        if u32_at(bytes, handle + 4) == 0 && end <= footer {
            put_checksum(bytes, offset..end - 4, end - 4);
        }
    }
    put_checksum(bytes, footer..footer + 68, footer + 68);
}

/// One to four log files. The first byte says how many and whether to seal them; the pages are dealt out evenly.
pub fn log(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    let count = 1 + usize::from(control >> 1) % LOG_FILES_MAX;
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
    if control & 1 == 1 {
        bytes.chunks_mut(PAGE_BYTES).for_each(seal_page);
    }
    let simulated = volume();
    let share = (bytes.len() / PAGE_BYTES).div_ceil(count).max(1) * PAGE_BYTES;
    let mut numbers = Vec::new();
    for (number, contents) in (5..).zip(bytes.chunks(share)) {
        simulated.set_contents(FileName::Log(number), contents);
        numbers.push(number);
    }
    let volume: Arc<dyn Volume> = Arc::new(simulated);
    for number in &numbers {
        inspect(&*volume, *number).expect("the file exists").for_each(drop);
    }
    let read = |mode| {
        let mut records: Vec<(RecordPosition, Vec<u8>)> = Vec::new();
        let report = recover(&volume, &numbers, mode, &mut |position, body| {
            records.push((position, body.to_vec()));
            Ok(())
        });
        (report, records)
    };
    let (strict, found) = read(RecoveryMode::Strict);
    let (repaired, salvaged) = read(RecoveryMode::Repair);
    if let Ok(report) = &strict {
        assert!(repaired.is_ok_and(|r| r.lost.is_empty()), "repair finds damage where a strict recovery finds none");
        assert_eq!(found, salvaged, "repair of a sound log gives other records");
        assert_eq!(report.records, found.len() as u64);
    }
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "records out of order");
    found.iter().chain(&salvaged).for_each(|(_, body)| record(body));
}

/// The file of one table.
pub fn table(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if control & 1 == 1 {
        seal_table(&mut bytes);
    }
    let volume = volume();
    volume.set_contents(FileName::Table(1), &bytes);
    let reader = volume.open(FileName::Table(1)).expect("the file exists");
    let salvaged = salvaged(&*reader);
    let table = match Table::open(reader, 1, BlockCache::new(1 << 16)) {
        Ok(table) => table,
        Err(error) => {
            assert!(!salvaged.damages.is_empty(), "a table that cannot be opened is called sound: {error}");
            return;
        }
    };
    let sound = table.verify(&mut |_| {}).is_ok();
    if sound {
        assert!(salvaged.damages.is_empty() && salvaged.lost.is_empty(), "damages in a sound table: {salvaged:?}");
        assert_eq!(table.properties().entries, salvaged.entries);
        let tombstones = salvaged.range_tombstones.iter().flatten();
        assert!(tombstones.eq(table.range_tombstones().iter().map(Arc::as_ref)));
    }
    // Without the checksums of data blocks, what is in them is arbitrary too.
    for verify_checksums in [true, false] {
        let options = ReadOptions { fill_cache: false, verify_checksums, ..ReadOptions::default() };
        let mut cursor = table.cursor(options);
        let mut forward = Vec::new();
        let mut whole = cursor.first().is_ok();
        while whole && cursor.valid() && forward.len() < WALK_ENTRIES_MAX {
            forward.push((cursor.key().user.to_vec(), cursor.key().trailer, cursor.value().to_vec()));
            whole = cursor.next().is_ok();
        }
        if sound {
            assert!(whole, "a table that verifies cannot be read");
            assert_eq!(table.properties().entries, forward.len() as u64);
        }
        let mut backward = 0;
        let mut whole = cursor.last().is_ok();
        while whole && cursor.valid() && backward < WALK_ENTRIES_MAX {
            if sound {
                let (key, trailer, value) = &forward[forward.len() - 1 - backward];
                assert_eq!((cursor.key(), cursor.value()), (KeyRef::new(key, *trailer), &value[..]));
            }
            backward += 1;
            whole = cursor.prev().is_ok();
        }
        assert!(!sound || backward == forward.len());
        for (key, trailer, value) in forward.iter().step_by(1 + forward.len() / 64) {
            let found = table.get(key, trailer.sequence(), hash_key(key), &options);
            if sound {
                let found = found.expect("a sound table").expect("the entry was just seen");
                assert_eq!((found.trailer, &found.value[..]), (*trailer, &value[..]));
            }
            let _ = cursor.seek(KeyRef::new(key, *trailer));
            let _ = cursor.seek_before(KeyRef::new(key, Trailer::NEWEST));
            let _ = table.approximate_offset(key);
        }
    }
    let mut sequential = table.sequential_cursor(1 << 16);
    let mut going = sequential.first().is_ok();
    for _ in 0..WALK_ENTRIES_MAX {
        if !going || !sequential.valid() {
            break;
        }
        going = sequential.next().is_ok();
    }
    table.block_boundaries().take(WALK_ENTRIES_MAX).for_each(drop);
    assert!(table.tombstone_index().len() <= table.range_tombstones().len());
}

/// What can be got out of the table; checks that keys ascend.
fn salvaged(reader: &dyn Reader) -> Salvaged {
    let mut last: Option<Vec<u8>> = None;
    let result = salvage(reader, &mut |key, _| {
        assert!(last.as_deref().and_then(KeyRef::decode).is_none_or(|last| last < key), "salvaged keys out of order");
        last = Some(key.to_vec());
        Ok(())
    });
    result.expect("only the receiver fails, and it does not")
}

/// The file of a manifest. With the lowest bit of the first byte set, what follows are the payloads of frames, each behind
/// its length in two bytes. The other bits say where the copy differs, in 128ths of the file.
pub fn manifest_file(data: &[u8]) {
    let Some((control, bytes)) = data.split_first() else { return };
    let bytes = if control & 1 == 1 { framed(bytes) } else { bytes.to_vec() };
    let readable = {
        let volume = volume();
        volume.set_contents(FileName::Manifest(1), &bytes);
        manifest::readable_edits(&volume, 1).expect("a volume without faults")
    };
    let Ok((edits, end)) = manifest::decode("the manifest", &bytes) else { return };
    assert!(readable.starts_with(&edits), "a whole edit is not found when damaged ones are skipped");
    assert!(end <= bytes.len());
    let source = Arc::new(TableSource::plain(Arc::new(volume()), BlockCache::new(0), &Env::system(), 100));
    if let Ok(state) = StoreState::replay(edits.clone(), &source) {
        state.keyspaces.values().for_each(|k| k.version.check().expect("a version that was checked"));
    }
    let volume = volume();
    volume.set_contents(FileName::Manifest(1), &bytes);
    let _ = manifest::read(&volume, 1);
    let mut copy = bytes.clone();
    if let Some(byte) = copy.get_mut(bytes.len() * usize::from(control >> 1) / 128) {
        *byte ^= 1;
    }
    for (manifest, copy) in [(&bytes, &copy), (&copy, &bytes)] {
        volume.set_contents(FileName::Manifest(1), manifest);
        volume.set_contents(FileName::ManifestCopy(1), copy);
        if let Ok(found) = manifest::read(&volume, 1) {
            assert!(found.edits.starts_with(&edits), "an edit that one of two files has whole is not found");
        }
    }
    volume.remove(FileName::ManifestCopy(1)).expect("a volume without faults");
    volume.set_contents(FileName::Current, &bytes);
    let _ = manifest::current(&volume);
}

fn framed(mut payloads: &[u8]) -> Vec<u8> {
    let mut file = manifest::MAGIC.to_vec();
    file.extend_from_slice(&manifest::FORMAT_VERSION.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    put_checksum(&mut file, 0..12, 12);
    while let Some((length, rest)) = payloads.split_first_chunk::<2>() {
        let (payload, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        let start = file.len();
        file.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        file.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        file.extend_from_slice(&[0; 4]);
        put_checksum(&mut file, start..start + 8, start + 8);
        file.extend_from_slice(payload);
        payloads = rest;
    }
    file
}

/// One version edit.
pub fn edit(data: &[u8]) {
    if let Ok(edit) = Edit::decode(data) {
        assert_eq!(Edit::decode(&edit.encode()).as_ref(), Ok(&edit), "an edit differs after encoding");
    }
}

/// One record of the log: a write batch.
pub fn record(data: &[u8]) {
    if let Ok(record) = Record::decode(data) {
        assert!(record.since <= record.first && record.first <= MAX_SEQUENCE);
        assert!(record.operations().all(|operation| !operation.key.is_empty()));
    }
}

/// Range tombstones indexed and cut into fragments, against the definition. Each takes six bytes: begin, end, sequence number.
pub fn range_tombstones(data: &[u8]) {
    let key = |bytes: &[u8]| bytes.iter().copied().take_while(|byte| *byte != 0).collect::<Vec<u8>>();
    let all: Vec<RangeTombstone> = data
        .chunks_exact(6)
        .take(256)
        .map(|b| RangeTombstone {
            begin: key(&b[..2]),
            end: key(&b[2..4]),
            sequence: u64::from(b[4]) | u64::from(b[5]) << 8,
        })
        .collect();
    let snapshots = [0, 100];
    let fragments = FragmentedTombstones::new(&all, &snapshots);
    let again = FragmentedTombstones::new(&fragments.to_list(), &snapshots);
    let index: TombstoneIndex = all.iter().cloned().map(Arc::new).collect();
    for probe in all.iter().flat_map(|t| [&t.begin, &t.end]).take(64) {
        for snapshot in [0, 100, MAX_SEQUENCE] {
            let covers = |t: &&RangeTombstone| t.begin <= *probe && *probe < t.end && t.sequence <= snapshot;
            let expected = all.iter().filter(covers).map(|t| t.sequence).max();
            assert_eq!(fragments.covering(probe, snapshot), expected, "{probe:?} at {snapshot}");
            assert_eq!(again.covering(probe, snapshot), expected);
            assert_eq!(index.covering(probe, snapshot).map(|t| t.sequence), expected);
        }
        let clipped = fragments.clip(Some(probe), None);
        assert_eq!(clipped.covering(probe, MAX_SEQUENCE), fragments.covering(probe, MAX_SEQUENCE));
    }
}

/// Decodes a compaction task or its output, as the wire carries them. The first byte asks for a right checksum.
///
/// # Panics
/// The decoder does, or what was decoded is encoded to other bytes.
pub fn task(bytes: &[u8]) {
    let Some((control, rest)) = bytes.split_first() else { return };
    let mut bytes = rest.to_vec();
    if let Some(end) = bytes.len().checked_sub(4).filter(|_| control & 1 == 1) {
        put_checksum(&mut bytes, 0..end, end);
    }
    if let Ok(task) = decode_task(&bytes, &NoTables) {
        assert!(encode_task(&task) == bytes, "a task differs after encoding");
        // The receiver checks the task before it opens a table.
        let _ = (Limits::unlimited().admit(&task), format!("{task:?}"), task.input_bytes());
    }
    if let Ok(output) = decode_output(&bytes) {
        let _ = decode_output(&encode_output(&output)).expect("an output that was decoded");
    }
}

/// A metric message, a mode rule, or a decision. The first byte asks for a right checksum, and for a right size of the message.
///
/// # Panics
/// The decoder does, or what was decoded is encoded to other bytes.
pub fn metrics(bytes: &[u8]) {
    let Some((control, rest)) = bytes.split_first() else { return };
    let seals = control & 1 == 1;
    let mut framed = rest.to_vec();
    if let Some(end) = framed.len().checked_sub(4).filter(|_| seals) {
        put_checksum(&mut framed, 0..end, end);
    }
    if let Ok(rule) = ModeRule::from_bytes(&framed) {
        assert!(rule.to_bytes() == framed, "a mode rule differs after encoding");
    }
    if let Ok(decision) = DecisionRecord::from_bytes(&framed) {
        assert!(decision.to_bytes() == framed, "a decision differs after encoding");
        let _ = decision.to_string();
    }
    let mut message = rest.to_vec();
    if let Some(end) = message.len().checked_sub(4).filter(|end| seals && *end >= 4) {
        let size = (message.len() as u32).to_le_bytes();
        message[..4].copy_from_slice(&size);
        put_checksum(&mut message, 0..end, end);
    }
    if let Ok(measures) = decode_measures(&message) {
        let again = decode_measures(&encode_measures(&measures));
        assert_eq!(again.expect("measures that were decoded"), measures);
    }
}

/// A message with a measure of each form, a rule of each kind, and a decision.
fn sample_metrics() -> Vec<Vec<u8>> {
    let tail = |samples| ReadTail { samples, ..ReadTail::default() };
    let measures = [
        Measure::Processors(0.5),
        Measure::MemoryFree(1 << 30),
        Measure::ReadsWithPipelines(tail(300)),
        Measure::ReadsWithoutPipelines(tail(400)),
        Measure::Named("queue".to_owned(), 2.0),
    ];
    let message = encode_measures(&measures);
    let (decider, now) = (Decider::new(None), std::time::Duration::from_secs(1));
    decider.collect(&message, now).expect("a message");
    let rules = DecisionRules {
        further_weights: vec![("queue".to_owned(), 0.1)],
        read_p99_factor_max: Some(1.1),
        ..DecisionRules::copro_plus(1 << 15)
    };
    let decision = decider.decide_by(&rules, 7, &LargeValues::default(), now).to_bytes();
    let rules = [ModeRule::Fixed(RunMode::PIPELINED), ModeRule::Decided(rules)].map(|rule| rule.to_bytes());
    [message, decision].into_iter().chain(rules).collect()
}

/// Where a task finds no table, and one filter.
struct NoTables;

impl InputTable for NoTables {
    fn open(self: Arc<Self>) -> situ_storage::Result<Arc<Table>> {
        Err(situ_storage::Error::Invalid("there are no tables here".to_owned()))
    }
}

impl CompactionFilter for NoTables {
    fn name(&self) -> &str {
        "fuzz"
    }

    fn decide(&self, _: &FilterContext<'_>, _: &[u8], _: &[u8]) -> Decision {
        Decision::Keep
    }
}

impl Surroundings for NoTables {
    fn table(&self, _: TablePlace) -> Arc<dyn InputTable> {
        Arc::new(NoTables)
    }

    fn filter(&self, name: &str) -> Option<Arc<dyn CompactionFilter>> {
        (name == NoTables.name()).then(|| Arc::new(NoTables) as Arc<dyn CompactionFilter>)
    }
}

/// Tasks over the tables of a store, and what they gave.
fn sample_tasks(volume: &SimVolume) -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for file in volume.list().expect("a sound volume") {
        let FileName::Table(number) = file.name else { continue };
        let table = volume.open(file.name).and_then(|reader| Table::open(reader, number, BlockCache::new(0)));
        let table = table.expect("a sound table");
        let properties = table.properties().clone();
        let ends = (properties.smallest_key(), properties.largest_key());
        let (Some(first), Some(last)) = ends else { continue };
        let span = KeySpan::including(first.user, last.user);
        inputs.push(vec![TableInput::of(table, number, span)]);
    }
    let span = || KeySpan { begin: b"key 0001".to_vec(), end: b"key 0100".to_vec() };
    let filter = FrozenFilter { code: Arc::new(NoTables), parameters: b"parameters".as_slice().into() };
    let rules = MergeRules {
        range: situ_compaction::KeyRange { lower: Some(b"key 0002".to_vec()), upper: None },
        snapshots: vec![3, 40],
        below: vec![vec![span()]],
        grandparents: vec![Grandparent { span: span(), bytes: 7 }],
        output_level: 2,
        output: OutputRules {
            table: Default::default(),
            encoder: Encoder::default(),
            target_file_bytes: 1 << 20,
            max_grandparent_bytes: 1 << 20,
            created_unix_s: 7,
        },
        filter: Some(filter),
        now_unix: std::time::Duration::from_millis(1500),
    };
    let task = Task { id: 1, keyspace: 0, level: 1, inputs, rules };
    let properties = task.tables().next().and_then(|input| input.open().ok()).map(|table| table.properties().clone());
    let summary = situ_table::TableSummary { bytes: 1, properties: properties.unwrap_or_default() };
    let table = OutputTable { volume: 0, number: 9, summary, span: span() };
    let output = TaskOutput {
        tables: vec![table],
        stats: TaskStats::default(),
        dropped_values: Vec::new(),
        dropped_places: Vec::new(),
    };
    vec![encode_task(&task), encode_output(&output)]
}

/// Inputs that the real encoders have made, for the target of this name: where a fuzzer begins. The store that makes them
/// lives in the simulator, so that they are the same in each run, byte for byte, and a seeded mutation of them replays.
///
/// # Panics
/// There is no such target.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let executor = SimExecutor::new(1);
    executor.run(|| simulated_corpus(&executor.env(), target))
}

fn simulated_corpus(env: &Env, target: &str) -> Vec<Vec<u8>> {
    let volume = SimVolume::new(env, FaultPlan::none(), 0);
    let store = sample_store(&volume, env);
    let files = |wanted: fn(FileName) -> bool| -> Vec<Vec<u8>> {
        let names = volume.list().expect("a sound volume").into_iter().map(|f| f.name);
        names.filter(|name| wanted(*name)).filter_map(|name| volume.contents(name)).collect()
    };
    let with_control = |control: u8, bytes: &[u8]| [&[control], bytes].concat();
    let edits = || -> Vec<Vec<u8>> {
        let manifests = files(|name| matches!(name, FileName::Manifest(_)));
        let decoded = manifests.iter().filter_map(|m| manifest::decode("sample", m).ok());
        decoded.flat_map(|(edits, _)| edits).map(|edit| edit.encode()).collect()
    };
    let found = match target {
        "log" => {
            let trim = |mut log: Vec<u8>| {
                log.truncate(8 * PAGE_BYTES);
                log
            };
            let logs: Vec<Vec<u8>> = files(|name| matches!(name, FileName::Log(_))).into_iter().map(trim).collect();
            let mut inputs: Vec<Vec<u8>> = logs.iter().map(|log| with_control(1, log)).collect();
            inputs.push(with_control(2 * (logs.len().max(1) as u8 - 1), &logs.concat()));
            inputs
        }
        "table" => {
            let tables = files(|name| matches!(name, FileName::Table(_)));
            tables.iter().flat_map(|table| [with_control(0, table), with_control(1, table)]).collect()
        }
        "manifest" => {
            let mut inputs: Vec<Vec<u8>> =
                files(|name| matches!(name, FileName::Manifest(_))).iter().map(|m| with_control(0, m)).collect();
            let payloads: Vec<Vec<u8>> =
                edits().iter().map(|edit| [&(edit.len() as u16).to_le_bytes()[..], edit].concat()).collect();
            inputs.push(with_control(1, &payloads.concat()));
            inputs
        }
        "edit" => edits(),
        "record" => sample_records(&volume),
        "range_tombstones" => {
            vec![b"a\0c\0\x05\0b\0d\0\x03\0aabb\x09\x01".to_vec(), b"a\0b\0\x01\0b\0c\0\x01\0".to_vec()]
        }
        "task" => {
            sample_tasks(&volume).iter().flat_map(|bytes| [with_control(0, bytes), with_control(1, bytes)]).collect()
        }
        "metrics" => {
            sample_metrics().iter().flat_map(|bytes| [with_control(0, bytes), with_control(1, bytes)]).collect()
        }
        other => panic!("there is no target {other:?}"),
    };
    drop(store);
    found
}

/// A store with a few of everything: several tables, log files, keyspaces, compressions, tombstones.
fn sample_store(volume: &SimVolume, env: &Env) -> crate::Store {
    let mut options = crate::Options::default();
    options.keyspace.memtable_bytes = 8 << 10;
    options.keyspace.block_bytes = 256;
    options.keyspace.compression = vec![crate::Compression::None, crate::Compression::Lz4];
    options.compaction_threads = 1;
    let builder = crate::StoreBuilder::new(options).env(env.clone());
    let store = builder.open_volume(Arc::new(volume.clone())).expect("a sound volume");
    let fill = || -> crate::Result<()> {
        let other = store.create_keyspace("other", crate::KeyspaceOptions::default())?;
        for n in 0..200u32 {
            store.put(format!("key {n:04}").as_bytes(), vec![n as u8; n as usize])?;
            other.put(n.to_be_bytes(), b"value")?;
        }
        store.delete(b"key 0007")?;
        store.delete_range(b"key 0010", b"key 0020")?;
        store.flush()?;
        store.default_keyspace().compact(None, None)?;
        for n in 0..50u32 {
            store.delete_range(n.to_be_bytes(), (n + 3).to_be_bytes())?;
            other.put(n.to_be_bytes(), [1; 300])?;
        }
        store.sync()
    };
    fill().expect("a sound volume");
    store
}

fn sample_records(volume: &SimVolume) -> Vec<Vec<u8>> {
    let mut numbers = Vec::new();
    for file in volume.list().expect("a sound volume") {
        if let FileName::Log(number) = file.name {
            numbers.push(number);
        }
    }
    let mut records = Vec::new();
    let shared: Arc<dyn Volume> = Arc::new(volume.clone());
    let _ = recover(&shared, &numbers, RecoveryMode::Repair, &mut |_, body| {
        records.push(body.to_vec());
        Ok(())
    });
    records
}

const _: () = assert!(HEADER_BYTES == 16, "seal_table knows where the header's checksum is");

#[cfg(test)]
mod tests;
