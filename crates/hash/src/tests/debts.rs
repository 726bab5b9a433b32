//! Debts: what a store owes although nothing is full, and how it is paid.

use super::model::{Nature, check_sound, device_of, small};
use crate::{Durability, HashBatch, HashOptions, HashStore, HashStoreBuilder, StoreId};
use situ_base::Env;
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor, SimVolume};
use std::sync::Arc;
use std::time::Duration;

/// A store at rest has paid all that it owes by then.
const MINUTE: Duration = Duration::from_secs(60);

struct World {
    env: Env,
    volumes: [SimVolume; 2],
    device: SimDevice,
    options: HashOptions,
}

impl World {
    fn run(nature: Nature, options: HashOptions, test: impl FnOnce(&World) + Send) {
        let sim = SimExecutor::new(1);
        let env = sim.env();
        let volumes = [0, 1].map(|_| SimVolume::new(&env, FaultPlan::none(), 1));
        let device = device_of(&env, nature, 4096, FaultPlan::none(), 1);
        let world = World { env, volumes, device, options };
        sim.run(|| test(&world));
    }

    fn open(&self) -> HashStore {
        let builder = HashStoreBuilder::new(self.options.clone()).env(self.env.clone()).identity(StoreId([7; 16]), 11);
        let [home, overflow] = self.volumes.clone().map(Arc::new);
        builder.open_volumes(home, overflow, Arc::new(self.device.clone())).unwrap()
    }

    fn rest(&self) {
        self.env.clock.sleep(MINUTE);
    }

    /// Returns a time of the wall clock, the given number of seconds from now.
    fn in_seconds(&self, seconds: u64) -> Option<u64> {
        Some((self.env.clock.unix() + Duration::from_secs(seconds)).as_millis() as u64)
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    Rng::new(number).fill(&mut value);
    value
}

fn entries(store: &HashStore) -> u64 {
    let totals = store.properties().totals;
    totals.entries + totals.overflow_entries
}

fn fill(store: &HashStore, keys: std::ops::Range<u64>, bytes: usize, expires_ms: Option<u64>) {
    keys.for_each(|n| store.put_with(key(n), value(n, bytes), Durability::Buffered, expires_ms).unwrap());
}

/// An expired entry stayed until a write happened to meet its bucket: in a store that is only read, or written to
/// elsewhere, for good.
fn expired_entries_leave(nature: Nature, bytes: usize) {
    World::run(nature, small(), |world| {
        let store = world.open();
        fill(&store, 0..300, bytes, world.in_seconds(100));
        fill(&store, 300..340, bytes, None);
        fill(&store, 340..400, bytes, world.in_seconds(1000));
        world.rest();
        assert_eq!(entries(&store), 400, "nothing has expired");
        // Expired after 100 s, and a look comes within half a minute.
        world.rest();
        world.rest();
        assert_eq!(entries(&store), 100);
        let properties = store.properties();
        assert!(properties.value_dying_bytes + properties.value_garbage_bytes <= properties.value_live_bytes / 4);
        assert_eq!(properties.dead_entries, 0);
        check_sound(&store);
        // The entries that are left to expire are known although nothing is written any more.
        (0..17).for_each(|_| world.rest());
        assert_eq!(entries(&store), 40);
        store.close().unwrap();
        // A restart forgets what is known.
        let store = world.open();
        fill(&store, 340..400, bytes, world.in_seconds(30));
        store.close().unwrap();
        world.rest();
        let store = world.open();
        world.rest();
        assert_eq!(entries(&store), 40);
        for n in 300..340 {
            assert_eq!(store.get(key(n)).unwrap(), Some(value(n, bytes)));
        }
        check_sound(&store);
        store.close().unwrap();
    });
}

#[test]
fn expired_entries_leave_an_idle_store() {
    expired_entries_leave(Nature::Safe, 300);
    expired_entries_leave(Nature::Volatile, 300);
}

#[test]
fn expired_entries_with_large_values_leave_an_idle_store() {
    expired_entries_leave(Nature::Safe, 2000);
}

/// A purge that was broken off left expired entries for good. The samples of later looks were buckets that the purge had
/// done.
#[test]
fn expired_entries_leave_after_a_purge_that_was_broken_off() {
    // More buckets than the entries need, so their number stays a power of two.
    World::run(Nature::Safe, HashOptions { base_bits: 9, ..small() }, |world| {
        let store = world.open();
        fill(&store, 0..300, 300, world.in_seconds(100));
        store.checkpoint().unwrap();
        assert_eq!(entries(&store), 300);
        while entries(&store) > 280 {
            world.env.clock.sleep(Duration::from_millis(1));
        }
        store.close().unwrap();
        let left = world.open();
        assert!((100..300).contains(&entries(&left)), "{} entries", entries(&left));
        world.rest();
        world.rest();
        assert_eq!(entries(&left), 0);
        check_sound(&left);
        left.close().unwrap();
    });
}

/// A writer that never pauses, and never comes near, does not keep expired entries alive.
#[test]
fn expired_entries_leave_while_a_writer_goes_on_elsewhere() {
    World::run(Nature::Safe, small(), |world| {
        let store = world.open();
        fill(&store, 0..300, 300, world.in_seconds(10));
        for n in 0..200 {
            store.put("busy", value(n, 300)).unwrap();
            world.env.clock.sleep(Duration::from_millis(500));
        }
        assert!(entries(&store) <= 1 + 300 / 8, "{} entries", entries(&store));
        store.close().unwrap();
    });
}

/// An entry that is written again while its expired predecessor is purged stays.
#[test]
fn what_is_written_meanwhile_stays() {
    World::run(Nature::Safe, small(), |world| {
        let store = world.open();
        for round in 0..6 {
            fill(&store, 0..200, 300, world.in_seconds(20));
            world.env.clock.sleep(Duration::from_secs(33 + round));
            let writer = {
                let store = store.clone();
                let body = move || (0..200).for_each(|n| store.put(key(n), value(n + 1, 200)).unwrap());
                world.env.executor.spawn("writer", Box::new(body)).unwrap()
            };
            let asked = {
                let first = value(3, 300);
                move |_: &[u8], found: &[u8]| found == first
            };
            store.remove_dead(Arc::new(asked), HashBatch::new());
            writer.join().unwrap();
            world.rest();
            for n in 0..200 {
                assert_eq!(store.get(key(n)).unwrap(), Some(value(n + 1, 200)), "{n}");
            }
            assert_eq!(entries(&store), 200);
        }
        check_sound(&store);
        store.close().unwrap();
    });
}

#[test]
fn what_a_program_calls_dead_is_removed_and_what_follows_is_written() {
    for bytes in [300, 2000] {
        World::run(Nature::Volatile, small(), |world| {
            let store = world.open();
            fill(&store, 0..300, bytes, None);
            let mut then = HashBatch::new();
            then.put("done", "yes").unwrap();
            let is_dead = |key: &[u8], value: &[u8]| key < &b"key-00200"[..] && value.len() > 100;
            store.remove_dead(Arc::new(is_dead), then);
            world.rest();
            assert_eq!(store.get("done").unwrap().as_deref(), Some(&b"yes"[..]));
            assert_eq!(entries(&store), 101);
            for n in 0..300 {
                assert_eq!(store.get(key(n)).unwrap(), (n >= 200).then(|| value(n, bytes)), "{n}");
            }
            let properties = store.properties();
            let dead = properties.value_dying_bytes + properties.value_garbage_bytes;
            assert!(dead <= properties.value_live_bytes / 2, "{properties:?}");
            check_sound(&store);
            store.close().unwrap();
        });
    }
}

/// Buckets are merged while a purge is on its way. Those that moved behind it were left out: 192 of 20,000 flushed
/// items stayed.
#[test]
fn a_purge_leaves_out_no_bucket_that_is_split_or_merged_meanwhile() {
    World::run(Nature::Safe, small(), |world| {
        let store = world.open();
        let (mut others, mut merges, mut splits) = (0, 0, 0);
        for round in 0..6 {
            fill(&store, 0..3000, 100, None);
            let before = store.properties();
            let mut then = HashBatch::new();
            then.put("done", [round]).unwrap();
            store.remove_dead(Arc::new(|key: &[u8], _: &[u8]| key.starts_with(b"key")), then);
            // In every other round, more is written than removed.
            for n in 0..1500 * u64::from(round % 2) {
                store.put(format!("other {round} {n}"), value(n, 400)).unwrap();
                world.env.clock.sleep(Duration::from_micros(200));
                others += 1;
            }
            world.rest();
            assert_eq!(store.get("done").unwrap(), Some(vec![round]));
            assert_eq!(entries(&store), 1 + others, "round {round}");
            let after = store.properties();
            merges += after.merges - before.merges;
            splits += after.splits - before.splits;
        }
        assert!(merges > 100 && splits > 100, "{merges} and {splits}");
        check_sound(&store);
        store.close().unwrap();
    });
}

/// 328 MB of deleted values stayed: a checkpoint waited for a segment's worth of dead ones, and the open segment for
/// more values.
#[test]
fn deleted_values_and_older_log_files_leave_an_idle_store() {
    let options = HashOptions { value_segment_bytes: 1 << 20, log_bytes_max: 1 << 20, ..small() };
    World::run(Nature::Safe, options, |world| {
        let store = world.open();
        fill(&store, 0..300, 2000, None);
        (0..300).for_each(|n| store.delete(key(n)).unwrap());
        world.rest();
        let properties = store.properties();
        assert_eq!((properties.value_live_bytes, properties.value_garbage_bytes), (0, 0), "{properties:?}");
        assert_eq!(properties.value_dying_bytes, 0);
        let files = situ_storage::Volume::list(&world.volumes[0]).unwrap();
        let of_values = files.iter().filter(|file| matches!(file.name, situ_storage::FileName::Values(_)));
        assert_eq!(of_values.count(), 0, "{files:?}");
        assert!(properties.log_bytes <= 64 << 10, "{} bytes of log", properties.log_bytes);
        let is_log = |name| matches!(name, situ_storage::FileName::Log(_) | situ_storage::FileName::Spare(_));
        let logs = files.iter().filter(|file| is_log(file.name)).count();
        assert!(logs <= 2, "{files:?}");
        check_sound(&store);
        store.close().unwrap();
    });
}

/// Entries that were saved for a snapshot stayed until the next checkpoint.
#[test]
fn what_was_saved_for_a_snapshot_goes_with_it() {
    World::run(Nature::Safe, small(), |world| {
        let store = world.open();
        fill(&store, 0..200, 2000, None);
        let snapshot = store.snapshot().unwrap();
        (0..200).for_each(|n| store.delete(key(n)).unwrap());
        world.rest();
        assert!(store.properties().value_dying_bytes > 0);
        assert_eq!(snapshot.scan().count(), 200);
        drop(snapshot);
        world.rest();
        let properties = store.properties();
        assert_eq!((properties.value_live_bytes, properties.value_dying_bytes), (0, 0), "{properties:?}");
        assert!(!store.inner.core.snapshots.is_stale());
        store.close().unwrap();
    });
}

/// A store that owes nothing is left alone, however long it is idle.
#[test]
fn a_store_that_owes_nothing_does_nothing() {
    World::run(Nature::Safe, small(), |world| {
        let store = world.open();
        fill(&store, 0..200, 300, None);
        fill(&store, 200..220, 2000, None);
        world.rest();
        let did = |store: &HashStore| {
            let properties = store.properties();
            (properties.bucket_reads, properties.bucket_writes, properties.checkpoints, properties.superblock_writes)
        };
        let before = did(&store);
        (0..10).for_each(|_| world.rest());
        assert_eq!(did(&store), before);
        store.close().unwrap();
    });
}
