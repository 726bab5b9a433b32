//! Placement at work on simulated disks with latencies; and the recorder of traces for `testdata/placement`.

use crate::common::fast;
use situ_engine::{Listener, Options, Store, StoreEvent};
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use situ_storage::Volume;
use situ_tiers::{FAST, PlacementDecision, PlacementProperties, TieredBuilder, TieredStore, Tiers};
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
struct Heard {
    changes: Mutex<Vec<(usize, usize)>>,
    /// The levels of tables for which there was no room on the fast disk.
    spilled: Mutex<Vec<usize>>,
}

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        match event {
            StoreEvent::PlacementChanged { before, after, .. } => self.changes.lock().unwrap().push((*before, *after)),
            StoreEvent::TableSpilled { level, .. } => self.spilled.lock().unwrap().push(*level),
            _ => {}
        }
    }
}

fn latency(us: u64) -> FaultPlan {
    FaultPlan::none().latency(Duration::from_micros(us)..Duration::from_micros(us + us / 4 + 1))
}

struct World {
    executor: SimExecutor,
    home: SimVolume,
    fast: SimVolume,
    heard: Arc<Heard>,
}

/// Room on the fast disk.
const ROOM: u64 = 1 << 20;
/// Enough to keep the capacity disk measurably at work beside a fast disk for which all of them wait now and then.
const READERS: u64 = 16;

impl World {
    fn new(fast: FaultPlan) -> World {
        let executor = SimExecutor::new(1);
        let home = SimVolume::named(&executor.env(), "home", latency(100), 1);
        let fast = SimVolume::named(&executor.env(), "fast", fast, 1);
        World { executor, home, fast, heard: Arc::default() }
    }

    fn open(&self) -> Store {
        self.open_with(None)
    }

    fn open_with(&self, pinned_level: Option<usize>) -> Store {
        self.open_caching(Options::default().cache_bytes, pinned_level)
    }

    fn open_caching(&self, cache_bytes: u64, pinned_level: Option<usize>) -> Store {
        let mut options = Options::default();
        options.cache_bytes = cache_bytes;
        options.keyspace.memtable_bytes = 64 << 10;
        options.keyspace.table_bytes = 32 << 10;
        options.keyspace.level_base_bytes = 128 << 10;
        options.compaction_threads = 1;
        options.places = Arc::new(Tiers::new().pinned_level(pinned_level));
        options.listener = Some(Arc::clone(&self.heard) as Arc<dyn Listener>);
        let builder = fast::tiered(options).env(self.executor.env());
        let fast: Arc<dyn Volume> = Arc::new(self.fast.clone());
        builder.open_volumes(Arc::new(self.home.clone()), Some(fast)).unwrap()
    }

    /// Writes for some seconds of the simulated clock.
    fn write(&self, store: &Store, seconds: u64) {
        let clock = self.executor.env().clock;
        let end = clock.now() + Duration::from_secs(seconds);
        let mut n = clock.now().as_nanos() as u64;
        while clock.now() < end {
            for _ in 0..200 {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                store.put((n % 50_000).to_be_bytes(), [n as u8; 100]).unwrap();
            }
            clock.sleep(Duration::from_millis(5));
        }
    }

    /// The same, while many threads read all over the store.
    fn write_beside_reads(&self, store: &Store, seconds: u64) {
        let ends = Arc::new(AtomicBool::new(false));
        let begin = |reader: u64| {
            let (store, ends, env) = (store.clone(), Arc::clone(&ends), self.executor.env());
            let read = move || {
                let mut n = reader;
                while !ends.load(Ordering::SeqCst) {
                    n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    store.get(((n >> 33) % 50_000).to_be_bytes()).unwrap();
                    env.clock.sleep(Duration::from_millis(1));
                }
            };
            self.executor.env().executor.spawn("reader", Box::new(read)).unwrap()
        };
        let readers: Vec<_> = (0..READERS).map(begin).collect();
        self.write(store, seconds);
        ends.store(true, Ordering::SeqCst);
        readers.iter().for_each(|reader| reader.join().unwrap());
    }
}

fn placement(store: &Store) -> PlacementProperties {
    store.placement().unwrap()
}

/// The store outgrows the fast disk: its deepest level goes home before that is full, and the decision is told, kept, and
/// found again.
#[test]
fn the_deepest_level_goes_home_when_the_store_outgrows_the_fast_disk() {
    let world = World::new(latency(20).capacity(ROOM));
    world.executor.run(|| {
        let store = world.open();
        world.write(&store, 2);
        assert_eq!(placement(&store).pointer, 7, "a small store is all on the fast disk");
        world.write(&store, 40);
        let decisions = placement(&store).decisions;
        assert_eq!((placement(&store).pointer, decisions.len()), (6, 1), "{decisions:?}");
        assert!(decisions[0].reason.contains("fill"), "{decisions:?}");
        assert_eq!(*world.heard.changes.lock().unwrap(), [(7, 6)]);
        let made = placement(&store).decisions_made.map(|(rule, count)| (rule.name(), count));
        assert_eq!(made, [("failure", 0), ("room", 1), ("bandwidth", 0), ("spare", 0)]);
        let tables = store.default_keyspace().tables();
        assert!(tables.iter().any(|table| table.level == 6 && table.volume != FAST), "new ones of level 6 lie at home");
        assert!(tables.iter().all(|table| table.level == 6 || (table.volume == FAST)), "the upper levels have room");
        store.check().unwrap();
        store.close().unwrap();
        let store = world.open();
        assert_eq!((placement(&store).pointer, placement(&store).decisions), (6, decisions));
        assert!(placement(&store).decisions_made.iter().all(|(_, count)| *count == 0), "none since it was opened");
        store.close().unwrap();
    });
}

/// Tables of deeper levels filled the fast disk, and the flushes behind them, for which writers wait, went to the slow one.
#[test]
fn deeper_levels_leave_room_for_the_next_flushes() {
    let world = World::new(latency(20).capacity(ROOM));
    world.executor.run(|| {
        let store = world.open_with(Some(7));
        let mut n = 1u64;
        for round in 0..80u8 {
            for _ in 0..400 {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                store.put((n >> 33).to_be_bytes(), [n as u8; 100]).unwrap();
            }
            store.flush().unwrap();
            store.wait_idle().unwrap();
            let tables = store.default_keyspace().tables();
            assert!(tables.iter().all(|table| table.level > 0 || (table.volume == FAST)), "round {round}");
        }
        let spilled = world.heard.spilled.lock().unwrap().clone();
        assert!(spilled.len() > 10 && !spilled.contains(&0), "{spilled:?}");
        store.close().unwrap();
    });
}

/// The same with the pointer pinned: no decision is made, and the levels lie where it says.
#[test]
fn a_pinned_pointer_stays() {
    let world = World::new(latency(20).capacity(ROOM));
    world.executor.run(|| {
        let store = world.open_with(Some(1));
        world.write(&store, 42);
        let placement = placement(&store);
        assert_eq!((placement.pointer, placement.decisions.len(), placement.tables_promoted), (1, 0, 0));
        let tables = store.default_keyspace().tables();
        assert!(tables.iter().all(|table| (table.level == 0) == (table.volume == FAST)), "level 0 only");
        assert!(store.properties().options.iter().any(|(name, value)| *name == "places" && value.contains("level 1")));
        store.close().unwrap();
    });
}

/// A fast disk a thousand times slower than it was, and two hundred times slower than the capacity disk, on which a part of
/// the store is read: writers wait for it, and nothing fails. The next level leaves it for what the disks move, while there is
/// room for it.
#[test]
fn promise_7_a_fast_disk_that_has_become_slow_slows_the_store_and_fails_nothing() {
    let world = World::new(latency(20).capacity(ROOM));
    world.executor.run(|| {
        // What is read comes from the disks.
        let store = world.open_caching(64 << 10, None);
        world.write(&store, 20);
        let sound = placement(&store);
        assert_eq!((sound.pointer, sound.decisions.len()), (6, 1), "{:?}", sound.decisions);
        world.fast.set_faults(latency(20_000).capacity(ROOM));
        world.write_beside_reads(&store, 20);
        let slow = placement(&store);
        assert_eq!(slow.decisions.len(), 2, "{:?}", slow.decisions);
        let PlacementDecision { before, after, reason, .. } = &slow.decisions[1];
        assert_eq!((*before, *after, slow.pointer), (6, 5, 5), "{reason}");
        assert!(
            reason.starts_with("the fast disk moves ") && reason.contains(" in a busy second, the capacity disk "),
            "{reason}"
        );
        assert_eq!(*world.heard.changes.lock().unwrap(), [(7, 6), (6, 5)]);
        let is_at_home =
            || store.default_keyspace().tables().iter().any(|table| table.level == 5 && table.volume != FAST);
        let rounds = (0..20).take_while(|_| !is_at_home()).inspect(|_| world.write_beside_reads(&store, 2)).count();
        assert!(is_at_home(), "after {rounds} rounds no new table of level 5 lies at home");
        // What is read often was copied to the very disk that was just found to be too slow.
        assert_eq!(slow.tables_promoted, sound.tables_promoted);
        world.fast.set_faults(latency(20).capacity(ROOM));
        world.write(&store, 5);
        let properties = store.properties();
        assert!(properties.failure.is_none() && properties.background_failure.is_none(), "{properties:?}");
        assert_eq!(store.statistics().job_failures, 0);
        store.check().unwrap();
        store.close().unwrap();
    });
}

/// What went through both disks, and what lay where, as a line of a trace for `testdata/placement`.
struct Recorder {
    last: Option<PlacementProperties>,
    trace: String,
}

/// A size with a unit, as traces have it, a little rounded.
fn size(bytes: u64) -> String {
    if bytes < 10 << 10 { bytes.to_string() } else { format!("{}K", bytes >> 10) }
}

impl Recorder {
    fn begin(store: &Store, what: &str) -> Recorder {
        let total = store.placement().unwrap().fast_space.logical_total;
        let mut recorder = Recorder { last: None, trace: format!("case: {what}\ndisk: total={}\n", size(total)) };
        recorder.sample(store);
        recorder
    }

    /// To be called once a second.
    fn sample(&mut self, store: &Store) {
        let now = store.placement().unwrap();
        let Some(last) = self.last.replace(now.clone()) else { return };
        let load = |read: u64, written: u64, busy: Duration| {
            format!("{}/{}/{:.0}%", size(read), size(written), (busy.as_secs_f64() * 100.0).min(100.0))
        };
        let fast = load(
            now.fast_bytes_read - last.fast_bytes_read,
            now.fast_bytes_written - last.fast_bytes_written,
            now.fast_busy - last.fast_busy,
        );
        let capacity = load(
            now.capacity_bytes_read - last.capacity_bytes_read,
            now.capacity_bytes_written - last.capacity_bytes_written,
            now.capacity_busy - last.capacity_busy,
        );
        let free = now.fast_space.logical_total - now.fast_space.logical_used;
        write!(self.trace, "1x fast={fast} capacity={capacity} free={}", size(free)).unwrap();
        let mut levels = [(0, 0); situ_engine::LEVELS];
        for table in store.default_keyspace().tables() {
            levels[table.level].0 += table.bytes;
            levels[table.level].1 += if table.volume == FAST { table.bytes } else { 0 };
        }
        for (level, (all, on_fast)) in levels.iter().enumerate() {
            write!(self.trace, " L{level}={}/{}", size(*all), size(*on_fast)).unwrap();
        }
        self.trace.push('\n');
    }
}

/// When the pointer moves, tables stay where they are until a compaction replaces them: a level may lie on the fast disk above which
/// one lies at home, and reads are right.
#[test]
fn nothing_is_migrated_and_levels_may_lie_upside_down() {
    let world = World::new(latency(20));
    let tables = |store: &Store| {
        let tables = store.default_keyspace().tables();
        tables.iter().map(|table| (table.number, table.level, (table.volume == FAST))).collect::<Vec<_>>()
    };
    let bytes_of = |volume: &SimVolume| volume.list().unwrap().iter().map(|file| file.bytes).sum::<u64>();
    world.executor.run(|| {
        let store = world.open_with(Some(7));
        world.write(&store, 5);
        store.default_keyspace().compact(None, None).unwrap();
        store.wait_idle().unwrap();
        let before = tables(&store);
        assert!(before.len() > 10 && before.iter().all(|(_, _, on_fast)| *on_fast), "{before:?}");
        store.close().unwrap();
        // Level 0 alone goes to the fast disk from now on.
        let store = world.open_with(Some(1));
        world.executor.env().clock.sleep(Duration::from_secs(60));
        assert_eq!(tables(&store), before, "something was moved without a compaction");
        let (all_on_fast, _) = (bytes_of(&world.fast), bytes_of(&world.home));
        // New keys before the others, merged into a level between.
        for n in (0..3000u32).chain(0..3000) {
            store.put([&[0, 0, 0, 0, 0][..], &n.to_be_bytes()].concat(), [7; 100]).unwrap();
        }
        store.flush().unwrap();
        store.wait_idle().unwrap();
        let after = tables(&store);
        let deepest = before.iter().map(|(_, level, _)| *level).max().unwrap();
        let at_home: Vec<_> = after.iter().filter(|(_, level, on_fast)| !on_fast && *level < deepest).collect();
        let stayed = after.iter().filter(|table| before.contains(table)).count();
        assert!(!at_home.is_empty() && stayed * 10 >= before.len() * 9, "{stayed} of {}: {after:?}", before.len());
        assert!(bytes_of(&world.fast) * 10 >= all_on_fast * 9);
        for n in 0..3000u32 {
            let found = store.get([&[0, 0, 0, 0, 0][..], &n.to_be_bytes()].concat()).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 100][..]), "key {n}");
        }
        store.close().unwrap();
    });
}

/// Records traces for the golden files, on simulated disks and on the machine's: the home under `SITU_RECORD_HOME`, the fast
/// disk under `SITU_RECORD_FAST`. The answers are then written by `SITU_BLESS=1` and the test of the golden files.
#[test]
#[ignore = "writes testdata/placement/recorded-*.txt"]
fn record() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/placement");
    let world = World::new(latency(20).capacity(ROOM));
    let trace = world.executor.run(|| {
        let store = world.open();
        let mut recorder = Recorder::begin(&store, "recorded: simulated disks, the store outgrows the fast one");
        for _ in 0..60 {
            world.write(&store, 1);
            recorder.sample(&store);
        }
        store.close().unwrap();
        recorder.trace
    });
    std::fs::write(directory.join("recorded-growing.txt"), trace + "----\n").unwrap();
    let (Some(home), Some(fast)) = (std::env::var_os("SITU_RECORD_HOME"), std::env::var_os("SITU_RECORD_FAST")) else {
        return;
    };
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 4 << 20;
    options.keyspace.level_base_bytes = 16 << 20;
    options.keyspace.table_bytes = 4 << 20;
    let store = fast::tiered(options).fast_disk(fast).open(&home).unwrap();
    let mut recorder =
        Recorder::begin(&store, "recorded: a memory disk and a virtual disk, random writes at full speed");
    let mut n = 1u64;
    let began = std::time::Instant::now();
    for second in 1..=60 {
        while began.elapsed() < Duration::from_secs(second) {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            store.put(n.to_be_bytes(), n.to_be_bytes().repeat(64)).unwrap();
        }
        recorder.sample(&store);
    }
    store.close().unwrap();
    situ_tiers::destroy(&home).unwrap();
    std::fs::write(directory.join("recorded-machine.txt"), recorder.trace + "----\n").unwrap();
}
