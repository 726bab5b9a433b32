//! Debts: dead entries and files that a store frees although nothing is full.

use crate::common::*;
use crate::value_log::{assert_sound, in_simulator, key, long_value, open, options as with_value_log};
use situ_engine::{CompactionFilter, DeadBefore, Decision, FilterContext, Keyspace, Lifetime, Options, Store};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, for_each_seed};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time within which an idle store pays all of its debts.
const MINUTE: Duration = Duration::from_secs(60);

fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.level_base_bytes = 32 << 10;
    options.keyspace.table_bytes = 16 << 10;
    options.compaction_threads = 1;
    options
}

/// Lets a minute pass without writes.
fn rest(executor: &SimExecutor, store: &Store) {
    executor.env().clock.sleep(MINUTE);
    store.wait_idle().unwrap();
}

fn log_bytes(store: &Store) -> u64 {
    store.properties().log_bytes
}

/// Returns the numbers of entries and of range deletions in tables, and of tombstones among the entries.
fn in_tables(keyspace: &Keyspace) -> (u64, u64, u64) {
    let tables = keyspace.tables();
    let sum = |of: fn(&situ_engine::TableProperties) -> u64| tables.iter().map(of).sum();
    (sum(|table| table.entries), sum(|table| table.deletions), sum(|table| table.range_deletions))
}

fn fill(keyspace: &Keyspace, keys: u64) {
    (0..keys).for_each(|n| keyspace.put(key(n), long_value(n, 0)).unwrap());
}

/// Fifty keyspaces of one entry held back the log of a busy one. The flusher sealed one of them only when it had nothing else to do, and
/// that was never. Each seal began a log file of the ordinary length. With a limit of 1 GiB, the log reached 4.4 GB.
#[test]
fn the_log_keeps_its_limit_beside_many_idle_keyspaces() {
    in_simulator(1, |executor, volume| {
        let mut options = options();
        options.log_bytes_max = 1 << 20;
        let limit = options.log_bytes_max;
        let store = open(executor, volume, options);
        let idle: Vec<_> = (0..50).map(|n| store.keyspace(&format!("idle {n}")).unwrap()).collect();
        let busy = store.keyspace("busy").unwrap();
        idle.iter().for_each(|keyspace| keyspace.put(b"key", b"value").unwrap());
        let mut most = 0;
        for n in 0..8000 {
            busy.put(key(n), long_value(n, 0)).unwrap();
            most = most.max(log_bytes(&store));
        }
        // Files being written: those of four memtables, the next file, and a spare.
        let written = 6 * (66 << 10);
        assert!(most <= limit + written, "{most} bytes of log with a limit of {limit}");
        store.wait_idle().unwrap();
        assert!(log_bytes(&store) <= limit, "{} bytes of log", log_bytes(&store));
        for keyspace in &idle {
            assert_eq!(keyspace.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        }
        store.close().unwrap();
    });
}

/// A limit below the size of one memtable was exceeded as well, because log files were as long as memtables.
#[test]
fn a_limit_below_a_memtable_is_kept() {
    in_simulator(1, |executor, volume| {
        let mut options = options();
        options.keyspace.memtable_bytes = 4 << 20;
        options.log_bytes_max = 512 << 10;
        let limit = options.log_bytes_max;
        let store = open(executor, volume, options);
        let mut most = 0;
        for n in 0..4000 {
            store.put(key(n), long_value(n, 0)).unwrap();
            most = most.max(log_bytes(&store));
        }
        assert!(most <= 2 * limit, "{most} bytes of log with a limit of {limit}");
        store.close().unwrap();
    });
}

/// Idle memtables with one entry each held back all log files after the first one for good, while the log was below its limit.
#[test]
fn an_idle_store_gives_its_log_back() {
    in_simulator(1, |executor, volume| {
        let mut options = options();
        options.keyspace.memtable_bytes = 8 << 20;
        let store = open(executor, volume, options);
        store.keyspace("idle").unwrap().put(b"key", b"value").unwrap();
        for round in 0..2 {
            (0..8000).for_each(|n| store.put(key(n), long_value(n, round)).unwrap());
            store.default_keyspace().flush().unwrap();
        }
        assert!(log_bytes(&store) > 16 << 20, "{} bytes of log", log_bytes(&store));
        rest(executor, &store);
        assert!(log_bytes(&store) <= 8 << 20, "{} bytes of log", log_bytes(&store));
        store.close().unwrap();
    });
}

/// After 120,000 values of 16 KiB were deleted and flushed, 2 GB stayed until level 0 got a fourth table.
#[test]
fn values_that_were_deleted_leave_the_disk_of_an_idle_store() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, with_value_log());
        let keyspace = store.default_keyspace();
        fill(keyspace, 300);
        keyspace.flush().unwrap();
        (0..300).for_each(|n| keyspace.delete(key(n)).unwrap());
        keyspace.flush().unwrap();
        store.wait_idle().unwrap();
        rest(executor, &store);
        let properties = keyspace.properties();
        assert_eq!((properties.value_segments, properties.tables), (0, 0), "{properties:?}");
        store.close().unwrap();
    });
}

/// The same without a flush: the deletions are in a memtable that is far from full.
#[test]
fn values_that_were_deleted_or_overwritten_in_memory_leave_the_disk() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, with_value_log());
        let keyspace = store.default_keyspace();
        fill(keyspace, 100);
        keyspace.flush().unwrap();
        keyspace.flush().unwrap();
        (0..50).for_each(|n| keyspace.delete(key(n)).unwrap());
        (50..100).for_each(|n| keyspace.put(key(n), b"short").unwrap());
        rest(executor, &store);
        let properties = keyspace.properties();
        assert_eq!((properties.value_segments, properties.approximate_keys), (0, 50), "{properties:?}");
        store.close().unwrap();
    });
}

/// Three million puts and deletes left their tombstones in fewer than four tables of level 0. Each `first()` stepped over all of them.
#[test]
fn tombstones_and_range_deletions_leave_an_idle_store() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options());
        let keyspace = store.default_keyspace();
        fill(keyspace, 500);
        keyspace.compact(None, None).unwrap();
        (0..200).for_each(|n| keyspace.delete(key(n)).unwrap());
        keyspace.delete_range(key(200), key(300)).unwrap();
        keyspace.flush().unwrap();
        let before = in_tables(keyspace);
        assert!(before.1 > 0 && before.2 > 0, "{before:?}");
        rest(executor, &store);
        assert_eq!(in_tables(keyspace), (200, 0, 0));
        // The same from memory.
        (300..400).for_each(|n| keyspace.delete(key(n)).unwrap());
        rest(executor, &store);
        assert_eq!(in_tables(keyspace), (100, 0, 0));
        store.close().unwrap();
    });
}

#[test]
fn a_snapshot_keeps_tombstones_without_a_loop_and_its_end_lets_them_go() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options());
        let keyspace = store.default_keyspace();
        fill(keyspace, 300);
        keyspace.compact(None, None).unwrap();
        let snapshot = store.snapshot().unwrap();
        (0..100).for_each(|n| keyspace.delete(key(n)).unwrap());
        rest(executor, &store);
        let jobs = |store: &Store| store.statistics().compactions;
        let before = jobs(&store);
        (0..10).for_each(|_| rest(executor, &store));
        assert!(jobs(&store) <= before + 1, "{} compactions after {before}", jobs(&store));
        assert_eq!(contents(keyspace, Some(&snapshot)).len(), 300);
        drop(snapshot);
        rest(executor, &store);
        assert_eq!(in_tables(keyspace), (200, 0, 0));
        store.close().unwrap();
    });
}

/// A store without debts does no work, however long it is idle.
#[test]
fn a_store_that_owes_nothing_does_nothing() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options());
        let keyspace = store.default_keyspace();
        (0..2000).for_each(|n| keyspace.put(key(n), b"value").unwrap());
        rest(executor, &store);
        let before = store.statistics();
        (0..10).for_each(|_| rest(executor, &store));
        let after = store.statistics();
        assert_eq!((after.flushes, after.compactions), (before.flushes, before.compactions));
        store.close().unwrap();
    });
}

/// If a writer pauses again and again, its tombstones are not flushed and compacted one by one.
#[test]
fn a_writer_that_pauses_often_pays_at_a_bounded_rate() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options());
        let keyspace = store.default_keyspace();
        fill(keyspace, 500);
        let before = store.statistics();
        for n in 0..60 {
            keyspace.delete(key(n)).unwrap();
            executor.env().clock.sleep(Duration::from_secs(6));
        }
        let after = store.statistics();
        // Six minutes.
        assert!(after.flushes - before.flushes <= 14, "{} flushes", after.flushes - before.flushes);
        store.close().unwrap();
    });
}

/// A file that could not be deleted stayed until the next deletion of a file, which never comes in an idle store.
#[test]
fn files_that_could_not_be_deleted_are_tried_again() {
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options());
        let keyspace = store.default_keyspace();
        fill(keyspace, 300);
        let refuses = Rule::new(Fault::Io).on(&[Operation::Remove]).files(&[FileKind::Table]);
        volume.set_faults(FaultPlan::none().with(refuses));
        keyspace.compact(None, None).unwrap();
        assert!(store.properties().debts.undeleted_files > 0);
        volume.set_faults(FaultPlan::none());
        rest(executor, &store);
        assert_eq!(store.properties().debts.undeleted_files, 0);
        store.close().unwrap();
        assert_sound(executor, volume);
    });
}

/// A filter that removes entries at the time in their value, and those whose second number is below a mark.
#[derive(Default)]
struct Expiring {
    mark: AtomicU64,
}

fn numbers(value: &[u8]) -> (u64, u64) {
    let number = |at: usize| value[at..at + 8].try_into().map(u64::from_le_bytes).unwrap();
    (number(0), number(8))
}

impl CompactionFilter for Expiring {
    fn name(&self) -> &str {
        "expiring"
    }

    fn freeze(&self, now_unix: Duration) -> Vec<u8> {
        [now_unix.as_secs(), self.mark.load(Ordering::Relaxed)].map(u64::to_le_bytes).concat()
    }

    fn value_prefix_bytes(&self) -> Option<usize> {
        Some(16)
    }

    fn lifetime(&self, value: &[u8]) -> Option<Lifetime> {
        let (expires, stamp) = numbers(value);
        Some(Lifetime { expires_unix_s: (expires > 0).then_some(expires), stamp: Some(stamp) })
    }

    fn dead_before(&self, now_unix: Duration) -> Option<DeadBefore> {
        Some(DeadBefore { unix_s: now_unix.as_secs(), stamp: self.mark.load(Ordering::Relaxed) })
    }

    fn decide(&self, context: &FilterContext<'_>, _key: &[u8], value: &[u8]) -> Decision {
        let ((now, mark), (expires, stamp)) = (numbers(context.parameters), numbers(value));
        if (expires > 0 && expires <= now) || stamp < mark { Decision::Remove } else { Decision::Keep }
    }
}

/// `flush_all` left a segment of 64 MiB with 16 dead values. The flusher gave the segment up when the collector, which seals it, slept.
#[test]
fn a_segment_that_was_open_leaves_an_idle_store_whoever_sleeps() {
    for seed in 0..40 {
        let filter = Arc::new(Expiring::default());
        let mut options = with_value_log();
        options.keyspace.compaction_filter = Some(Arc::clone(&filter) as _);
        in_simulator(seed, |executor, volume| {
            let store = open(executor, volume, options.clone());
            let keyspace = store.default_keyspace();
            for n in 0..3u64 {
                let mut value = vec![0; 2000];
                value[8..16].copy_from_slice(&(n + 1).to_le_bytes());
                keyspace.put(key(n), value).unwrap();
            }
            keyspace.flush().unwrap();
            assert_eq!(keyspace.properties().value_segments, 1);
            filter.mark.store(u64::MAX, Ordering::Relaxed);
            rest(executor, &store);
            rest(executor, &store);
            assert_eq!(keyspace.properties().value_segments, 0, "seed {seed}: {:?}", keyspace.properties());
            store.close().unwrap();
        });
    }
}

/// After a mark that makes everything dead, no segment stays, whatever flushes and compactions do at that moment.
#[test]
fn everything_that_a_mark_makes_dead_leaves_an_idle_store() {
    for_each_seed(0, 60, |seed| {
        let filter = Arc::new(Expiring::default());
        let mut options = with_value_log();
        options.keyspace.compaction_filter = Some(Arc::clone(&filter) as _);
        in_simulator(seed, |executor, volume| {
            let mut rng = Rng::new(seed);
            let store = open(executor, volume, options.clone());
            let keyspace = store.default_keyspace();
            let clock = &executor.env().clock;
            let values = 1 + rng.below(300);
            for n in 0..values {
                let mut value = vec![0; 300 + rng.index(3000)];
                value[8..16].copy_from_slice(&(n + 1).to_le_bytes());
                keyspace.put(key(n), value).unwrap();
                if rng.chance(0.05) {
                    clock.sleep(Duration::from_millis(rng.below(8000)));
                }
                if rng.chance(0.01) {
                    keyspace.flush().unwrap();
                }
            }
            clock.sleep(Duration::from_millis(rng.below(30) * rng.below(1000)));
            filter.mark.store(u64::MAX, Ordering::Relaxed);
            rest(executor, &store);
            rest(executor, &store);
            let properties = keyspace.properties();
            assert_eq!(in_tables(keyspace).0, 0, "{values} values, {properties:?}");
            assert_eq!(properties.value_segments, 0, "{values} values, {properties:?}");
            store.close().unwrap();
        });
    });
}

/// Expired items stayed for good in deep levels, and in level 0 with fewer than four tables.
fn expired_entries_leave(mut options: Options, value_bytes: usize) {
    let filter = Arc::new(Expiring::default());
    options.keyspace.compaction_filter = Some(Arc::clone(&filter) as _);
    in_simulator(1, |executor, volume| {
        let store = open(executor, volume, options.clone());
        let keyspace = store.default_keyspace();
        let now = || executor.env().clock.unix().as_secs();
        let put = |range: std::ops::Range<u64>, expires: u64| {
            for n in range {
                let mut value = long_value(n, 0);
                value.resize(value_bytes, 7);
                value[..8].copy_from_slice(&expires.to_le_bytes());
                value[8..16].copy_from_slice(&(n + 1).to_le_bytes());
                keyspace.put(key(n), value).unwrap();
            }
        };
        // In deep levels, in level 0, and in memory.
        put(0..200, now() + 600);
        put(200..400, 0);
        keyspace.compact(None, None).unwrap();
        put(400..500, now() + 600);
        keyspace.flush().unwrap();
        put(500..520, now() + 600);
        rest(executor, &store);
        assert_eq!(in_tables(keyspace), (520, 0, 0), "nothing has expired");
        let jobs = store.statistics().compactions;
        (0..8).for_each(|_| rest(executor, &store));
        assert_eq!(store.statistics().compactions, jobs, "nothing is rewritten before it expires");
        (0..3).for_each(|_| rest(executor, &store));
        assert_eq!(in_tables(keyspace), (200, 0, 0));
        assert_eq!(store.properties().debts.removable_entries, 0);
        // All entries below the mark, whenever they expire.
        filter.mark.store(300, Ordering::Relaxed);
        rest(executor, &store);
        // The store does not learn of the mark by itself.
        put(600..601, 0);
        rest(executor, &store);
        assert_eq!(in_tables(keyspace).0, 102);
        filter.mark.store(u64::MAX, Ordering::Relaxed);
        put(600..601, 0);
        (0..2).for_each(|_| rest(executor, &store));
        assert_eq!(in_tables(keyspace), (0, 0, 0));
        assert_eq!(keyspace.properties().value_segments, 0);
        store.close().unwrap();
    });
}

#[test]
fn expired_entries_leave_an_idle_store() {
    expired_entries_leave(options(), 300);
}

#[test]
fn expired_values_leave_the_value_log_of_an_idle_store() {
    expired_entries_leave(with_value_log(), 2000);
}
