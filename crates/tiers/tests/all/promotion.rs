//! Data that is read often and seldom written finds its way to the fast disk: the share of reads that it answers, before
//! and after, counted.

use crate::common::fast;
use situ_engine::{Options, Store};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume};
use situ_storage::Volume;
use situ_tiers::{PlacementProperties, TieredBuilder, TieredStore};
use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 20_000;

fn options() -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.table_bytes = 32 << 10;
    options.keyspace.level_base_bytes = 256 << 10;
    options.compaction_threads = 1;
    // Nothing is read from memory.
    options.cache_bytes = 64 << 10;
    options
}

fn key(n: u64) -> Vec<u8> {
    format!("key {n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut value = vec![0; 100];
    Rng::new(n).fill(&mut value);
    value
}

/// A store of some 2.4 MB whose tables lie at home, and a fast disk with `room` that was added to it afterwards.
fn with_everything_at_home(executor: &SimExecutor, room: u64) -> Store {
    let env = executor.env();
    let home: Arc<dyn Volume> = Arc::new(SimVolume::named(&env, "home", FaultPlan::none(), 1));
    let builder = || fast::tiered(options()).env(env.clone());
    let store = builder().open_volume(Arc::clone(&home)).unwrap();
    (0..KEYS).for_each(|n| store.put(key(n), value(n)).unwrap());
    store.default_keyspace().compact(None, None).unwrap();
    store.close().unwrap();
    let fast = SimVolume::named(&env, "fast", FaultPlan::none().capacity(room), 2);
    builder().open_volumes(home, Some(Arc::new(fast))).unwrap()
}

/// Reads for some time, a thousand a second; returns the share of disk reads that the fast disk answered.
fn read(executor: &SimExecutor, store: &Store, seconds: u64, mut next: impl FnMut() -> u64) -> f64 {
    let before = placement(store);
    for _ in 0..seconds * 100 {
        for _ in 0..10 {
            let n = next();
            assert_eq!(store.get(key(n)).unwrap().as_deref(), Some(&value(n)[..]));
        }
        executor.env().clock.sleep(Duration::from_millis(10));
    }
    let after = placement(store);
    let (fast, capacity) = (after.fast_reads - before.fast_reads, after.capacity_reads - before.capacity_reads);
    assert!(fast + capacity > seconds * 100, "{fast} and {capacity} reads reached the disks");
    fast as f64 / (fast + capacity) as f64
}

fn placement(store: &Store) -> PlacementProperties {
    store.placement().unwrap()
}

#[test]
fn what_is_read_often_is_soon_read_from_the_fast_disk() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let store = with_everything_at_home(&executor, 3 << 19);
        let mut rng = Rng::new(1);
        // Nineteen of twenty reads go to a twelfth of the keys.
        let mut hot_from = 6000;
        let mut skewed =
            |hot_from: u64| if rng.chance(0.95) { hot_from + rng.below(KEYS / 12) } else { rng.below(KEYS) };
        let first = read(&executor, &store, 5, || skewed(hot_from));
        assert_eq!(first, 0.0, "all tables lie at home");
        read(&executor, &store, 50, || skewed(hot_from));
        let then = read(&executor, &store, 5, || skewed(hot_from));
        assert!(then > 0.9, "the fast disk answers {then:.2} of the reads");
        let found = placement(&store);
        assert!(found.tables_promoted > 0 && found.fast_table_bytes < 800 << 10, "{found:?}");
        // Another range becomes hot, and what was is not any more.
        hot_from = 15_000;
        read(&executor, &store, 150, || skewed(hot_from));
        let again = read(&executor, &store, 5, || skewed(hot_from));
        assert!(again > 0.9, "the fast disk answers {again:.2} of the reads");
        store.check().unwrap();
        // A compaction of what is hot leaves it on the fast disk.
        let promoted = placement(&store).tables_promoted;
        let hot = hot_from..hot_from + KEYS / 12;
        hot.clone().step_by(10).for_each(|n| store.put(key(n), value(n)).unwrap());
        store.default_keyspace().compact(Some(&key(hot.start)), Some(&key(hot.end))).unwrap();
        let compacted = read(&executor, &store, 5, || skewed(hot_from));
        assert!(compacted > 0.8, "the fast disk answers {compacted:.2} of the reads");
        // And of everything: it is soon there again.
        store.default_keyspace().compact(None, None).unwrap();
        read(&executor, &store, 30, || skewed(hot_from));
        let last = read(&executor, &store, 5, || skewed(hot_from));
        assert!(last > 0.9, "the fast disk answers {last:.2} of the reads");
        println!(
            "answered by the fast disk: {first:.2} {then:.2} {again:.2} {compacted:.2} {last:.2}; {promoted} promoted"
        );
        store.close().unwrap();
    });
}

/// Reads that are spread evenly over a store larger than the fast disk: it fills up, and then tables do not change places.
#[test]
fn even_reads_fill_the_fast_disk_and_move_nothing_to_and_fro() {
    let executor = SimExecutor::new(2);
    executor.run(|| {
        let store = with_everything_at_home(&executor, 1 << 20);
        let mut rng = Rng::new(2);
        read(&executor, &store, 120, || rng.below(KEYS));
        let settled = placement(&store);
        let share = read(&executor, &store, 120, || rng.below(KEYS));
        let after = placement(&store);
        assert!(share > 0.2, "the fast disk answers {share:.2} of the reads");
        assert!(after.tables_promoted - settled.tables_promoted <= 2, "{settled:?} {after:?}");
        assert!(after.fast_space.logical_used <= 1 << 20);
        store.close().unwrap();
    });
}

/// What is hardly read stays where it is.
#[test]
fn tables_that_are_hardly_read_are_not_copied() {
    let executor = SimExecutor::new(3);
    executor.run(|| {
        let store = with_everything_at_home(&executor, 4 << 20);
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            let n = rng.below(KEYS);
            store.get(key(n)).unwrap().unwrap();
            executor.env().clock.sleep(Duration::from_secs(20));
        }
        assert_eq!(placement(&store).tables_promoted, 0);
        store.close().unwrap();
    });
}
