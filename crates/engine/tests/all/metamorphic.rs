//! One stream of operations over many configurations: whatever the block size, the shape of levels, compression, filter,
//! cache, threads or moments of reopening, every question has the same answer.

use crate::common::fast::small;
use crate::common::*;
use situ_engine::{Compression, Durability, KeyspaceOptions, Options, ReadOptions, Snapshot, Store, StoreBuilder};
use situ_engine::{Result, WriteBatch};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use situ_storage::Volume;
use situ_tiers::{TieredBuilder, TieredStore};
use std::fmt::Write;
use std::sync::Arc;

const KEYS: u64 = 150;
const STEPS: usize = 1200;

/// One step of the stream. What is drawn here is the same for all configurations.
enum Step {
    Write(Vec<Change>, Durability),
    Get(Vec<u8>),
    /// Bounds, where to begin, and how to go on from there: true is forward.
    Walk(Option<Vec<u8>>, Option<Vec<u8>>, Vec<u8>, Vec<bool>),
    TakeSnapshot,
    ReadSnapshot,
    Flush,
    Compact(Vec<u8>, Vec<u8>),
    /// A moment at which some configurations reopen the store.
    Pause,
}

enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

fn stream(rng: &mut Rng) -> Vec<Step> {
    let one = |rng: &mut Rng| key(rng, KEYS);
    (0..STEPS)
        .map(|_| match rng.below(100) {
            0..60 => {
                let changes = (0..1 + rng.below(5)).map(|_| match rng.below(20) {
                    0..13 => Change::Put(one(rng), value(rng)),
                    13..19 => Change::Delete(one(rng)),
                    _ => Change::DeleteRange(one(rng), one(rng)),
                });
                let changes = changes.collect();
                Step::Write(changes, if rng.chance(0.1) { Durability::Synced } else { Durability::Buffered })
            }
            60..75 => Step::Get(one(rng)),
            75..88 => {
                let lower = rng.chance(0.3).then(|| one(rng));
                let upper = rng.chance(0.3).then(|| one(rng));
                Step::Walk(lower, upper, one(rng), (0..20).map(|_| rng.chance(0.6)).collect())
            }
            88..91 => Step::TakeSnapshot,
            91..94 => Step::ReadSnapshot,
            94..96 => Step::Flush,
            96..97 => Step::Compact(one(rng), one(rng)),
            _ => Step::Pause,
        })
        .collect()
}

/// One way to run a store.
struct Configuration {
    what: String,
    options: Options,
    /// Reopens at every so many pauses; 0 for never.
    reopens: u64,
    fast_disk: FastDisk,
}

#[derive(Clone, Copy, PartialEq)]
enum FastDisk {
    None,
    Large,
    /// With room for so many bytes.
    Small(u64),
    /// There from the first reopening on, and drained at every second one.
    ComesAndGoes,
}

fn configurations(rng: &mut Rng) -> Vec<Configuration> {
    type Change = fn(&mut Options);
    let changes: [(&str, Change); 17] = [
        ("all in memory", |o| o.keyspace.memtable_bytes = 64 << 20),
        ("tiny memtables", |o| o.keyspace.memtable_bytes = 4 << 10),
        ("two memtables", |o| o.keyspace.memtables_max = 2),
        ("tiny blocks", |o| o.keyspace.block_bytes = 1),
        ("large blocks", |o| o.keyspace.block_bytes = 1 << 20),
        ("no compression", |o| o.keyspace.compression = vec![Compression::None]),
        ("zstd", |o| o.keyspace.compression = vec![Compression::Lz4, Compression::Zstd { level: 3 }]),
        ("no filter", |o| o.keyspace.filter_bits_per_key = 0),
        ("a poor filter", |o| o.keyspace.filter_bits_per_key = 1),
        ("a rich filter", |o| o.keyspace.filter_bits_per_key = 30),
        ("no cache", |o| o.cache_bytes = 0),
        ("level 0 at once", |o| o.keyspace.level0_tables = 1),
        ("level 0 grows", |o| o.keyspace.level0_tables = 30),
        ("many small levels", |o| {
            o.keyspace.level_base_bytes = 4 << 10;
            o.keyspace.level_multiplier = 2;
        }),
        ("tiny tables", |o| o.keyspace.table_bytes = 1 << 10),
        ("four threads", |o| o.compaction_threads = 4),
        ("short log", |o| o.log_bytes_max = 1),
    ];
    let mut all =
        vec![Configuration { what: "plain".to_owned(), options: small(), reopens: 0, fast_disk: FastDisk::None }];
    for (what, change) in changes {
        let mut options = small();
        change(&mut options);
        all.push(Configuration { what: what.to_owned(), options, reopens: 0, fast_disk: FastDisk::None });
    }
    let often =
        |what: &str, fast_disk| Configuration { what: what.to_owned(), options: small(), reopens: 1, fast_disk };
    all.push(often("often reopened", FastDisk::None));
    all.push(often("a fast disk", FastDisk::Large));
    all.push(often("a fast disk that is always full", FastDisk::Small(150 << 10)));
    all.push(often("a fast disk that comes and goes", FastDisk::ComesAndGoes));
    for n in 0..3 {
        let what = format!("mixture {n}");
        let (options, reopens) = (small_options(rng), rng.below(4));
        all.push(Configuration { what, options, reopens, fast_disk: FastDisk::Large });
    }
    all
}

/// Runs the stream; all answers, as text, one for each step that asks.
fn run(seed: u64, stream: &[Step], configuration: &Configuration) -> Vec<String> {
    let executor = SimExecutor::new(seed);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), seed);
        let fast = SimVolume::named(&env, "fast", FaultPlan::none(), seed);
        if let FastDisk::Small(room) = configuration.fast_disk {
            fast.set_faults(FaultPlan::none().capacity(room));
        }
        let open = |with_fast: bool| {
            let builder = StoreBuilder::new(configuration.options.clone()).env(env.clone());
            let fast = with_fast.then(|| Arc::new(fast.clone()) as Arc<dyn Volume>);
            builder.open_volumes(Arc::new(volume.clone()), fast).unwrap()
        };
        let mut with_fast = matches!(configuration.fast_disk, FastDisk::Large | FastDisk::Small(_));
        let mut store = open(with_fast);
        let (mut answers, mut pauses) = (Vec::new(), 0);
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for (at, step) in stream.iter().enumerate() {
            if matches!(step, Step::Pause) {
                pauses += 1;
                // Snapshots end with the store: all configurations let go of them.
                snapshots.clear();
                if configuration.reopens > 0 && pauses % configuration.reopens == 0 {
                    if configuration.fast_disk == FastDisk::ComesAndGoes {
                        if with_fast {
                            store.drain_fast_disk().unwrap();
                        }
                        with_fast = !with_fast;
                    }
                    store.close().unwrap();
                    store = open(with_fast);
                }
                continue;
            }
            answer(&store, step, &mut snapshots, &mut answers).unwrap_or_else(|e| panic!("step {at}: {e}"));
        }
        answers.push(walk_all(&store, &ReadOptions::default()).unwrap());
        store.close().unwrap();
        answers
    })
}

fn answer(store: &Store, step: &Step, snapshots: &mut Vec<Snapshot>, answers: &mut Vec<String>) -> Result<()> {
    let keyspace = store.default_keyspace();
    match step {
        Step::Write(changes, durability) => {
            let mut batch = WriteBatch::new();
            for change in changes {
                match change {
                    Change::Put(key, value) => batch.put_in(keyspace, key, value)?,
                    Change::Delete(key) => batch.delete_in(keyspace, key)?,
                    Change::DeleteRange(begin, end) => batch.delete_range_in(keyspace, begin, end)?,
                }
            }
            store.write_with(batch, *durability)?;
        }
        Step::Get(key) => answers.push(format!("{:?}", keyspace.get(key)?.as_deref())),
        Step::Walk(lower, upper, start, directions) => {
            let mut options = ReadOptions::default();
            options.lower_bound.clone_from(lower);
            options.upper_bound.clone_from(upper);
            let mut iterator = keyspace.cursor_with(&options)?;
            let mut text = String::new();
            iterator.seek(start)?;
            for forward in directions {
                writeln!(text, "{:?}", iterator.key().zip(iterator.value())).unwrap();
                if *forward { iterator.next()? } else { iterator.prev()? }
            }
            answers.push(text);
        }
        Step::TakeSnapshot => snapshots.push(store.snapshot()?),
        Step::ReadSnapshot => {
            if let Some(snapshot) = snapshots.pop() {
                answers.push(walk_all(store, &ReadOptions::default().at(&snapshot))?);
            }
        }
        Step::Flush => store.flush()?,
        Step::Compact(begin, end) => keyspace.compact(Some(begin), Some(end))?,
        Step::Pause => {}
    }
    Ok(())
}

/// All entries forward, and the same backward.
fn walk_all(store: &Store, options: &ReadOptions) -> Result<String> {
    let mut iterator = store.cursor_with(options)?;
    let (mut text, mut keys) = (String::new(), Vec::new());
    iterator.seek_to_first()?;
    while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
        writeln!(text, "{} {}", key.escape_ascii(), value.escape_ascii()).unwrap();
        keys.push(key.to_vec());
        iterator.next()?;
    }
    iterator.seek_to_last()?;
    while let Some(key) = iterator.key() {
        assert_eq!(keys.pop().as_deref(), Some(key), "backward differs from forward");
        iterator.prev()?;
    }
    assert!(keys.is_empty(), "backward ends early");
    Ok(text)
}

#[test]
fn equal_answers_in_all_configurations() {
    for_each_seed(0, 3, |seed| {
        let mut rng = Rng::new(seed);
        let stream = stream(&mut rng);
        let configurations = configurations(&mut rng);
        let expected = run(seed, &stream, &configurations[0]);
        assert!(expected.len() > STEPS / 5, "the stream asks too little");
        for (n, other) in configurations.iter().enumerate().skip(1) {
            let found = run(seed + 1000 * n as u64, &stream, other);
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{}: answer {at}", other.what);
            }
            assert_eq!(found.len(), expected.len(), "{}", other.what);
        }
    });
}

/// Options may differ from one opening to the next: tables say how they were made.
#[test]
fn a_store_can_be_opened_with_any_options_again() {
    for_each_seed(100, 6, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let mut rng = Rng::new(seed);
            let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
            let mut model = Model::new();
            for round in 0..6 {
                let mut options = small_options(&mut rng);
                if rng.chance(0.3) {
                    options.keyspace = KeyspaceOptions::default();
                }
                let builder = StoreBuilder::new(options).env(executor.env());
                let store = builder.open_volume(Arc::new(volume.clone())).unwrap();
                compare(store.default_keyspace(), &model, None, &format!("round {round}"));
                for _ in 0..200 {
                    let (key, value) = (key(&mut rng, KEYS), value(&mut rng));
                    store.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
                if rng.chance(0.5) {
                    store.wait_idle().unwrap();
                }
                store.close().unwrap();
            }
        });
    });
}
