//! Operations that take longer than the limit: each is kept with the parts of the store that took the time. Simulated
//! time, so the parts are known.

use situ_base::Env;
use situ_engine::{
    Durability, Listener, Options, ScanOptions, SlowKind, SlowOperation, Store, StoreBuilder, StoreEvent,
    TransactionOptions,
};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume, wait};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_millis(10);
const DELAY: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Told(Mutex<Vec<SlowOperation>>);

impl Listener for Told {
    fn event(&self, event: &StoreEvent) {
        if let StoreEvent::Slow(slow) = event {
            self.0.lock().unwrap().push(slow.clone());
        }
    }
}

struct World {
    env: Env,
    volume: SimVolume,
    store: Store,
    told: Arc<Told>,
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

impl World {
    /// Runs `test` over a store with 2,000 keys in one table, of which nothing is in the cache.
    fn run(limit: Option<Duration>, test: impl FnOnce(&World) + Send) {
        let executor = SimExecutor::new(1);
        executor.clone().run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), 1);
            let told = Arc::new(Told::default());
            let open = || {
                let mut options = Options::default();
                options.keyspace.memtable_bytes = 1 << 20;
                options.slow_operation = limit;
                options.listener = Some(Arc::clone(&told) as _);
                StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap()
            };
            let store = open();
            (0..2000).for_each(|n| store.put(key(n), [n as u8; 100]).unwrap());
            store.flush().unwrap();
            store.close().unwrap();
            drop(store);
            let world = World { env: env.clone(), volume: volume.clone(), store: open(), told };
            test(&world);
            world.store.close().unwrap();
        });
    }

    fn delay(&self, kind: FileKind, operations: &[Operation]) {
        let rule = Rule::new(Fault::Delay(DELAY)).on(operations).files(&[kind]);
        self.volume.set_faults(FaultPlan::none().with(rule));
    }

    /// Runs `operation`, which is slow once. Returns what the store has kept of it.
    fn slow(&self, operation: impl FnOnce()) -> SlowOperation {
        let before = self.store.slow_operations().len();
        operation();
        let slow = self.store.slow_operations();
        assert_eq!(slow.len(), before + 1, "{slow:#?}");
        assert_eq!(*self.told.0.lock().unwrap(), slow, "the listener gets each");
        assert_eq!(self.store.statistics().slow_operations, slow.len() as u64);
        let last = slow.last().unwrap().clone();
        assert_eq!(last.took, last.parts.iter().map(|part| part.time).sum(), "{last}");
        last
    }

    fn not_slow(&self, operation: impl FnOnce()) {
        let before = self.store.slow_operations();
        operation();
        assert_eq!(self.store.slow_operations(), before);
    }
}

/// Returns the parts that took milliseconds, as in `2 block_read 40 ms`. A simulated operation takes a fraction of a
/// microsecond more than its delay.
fn parts(slow: &SlowOperation) -> Vec<String> {
    let parts = slow.parts.iter().filter(|part| part.time >= Duration::from_millis(1));
    parts.map(|part| format!("{} {} {} ms", part.count, part.name, part.time.as_millis())).collect()
}

#[test]
fn a_read_that_waits_for_the_disk_is_slow_and_a_cached_one_is_not() {
    World::run(Some(LIMIT), |world| {
        let World { store, env, .. } = world;
        world.delay(FileKind::Table, &[Operation::Read]);
        let first = world.slow(|| assert!(store.get(key(3)).unwrap().is_some()));
        assert_eq!((first.kind, &first.key[..], first.key_bytes), (SlowKind::Get, &key(3)[..], 4));
        assert_eq!((&first.keyspace[..], first.bytes), ("default", 100));
        assert_eq!(parts(&first), ["1 block_read 20 ms", "1 table_open 20 ms"]);

        let get = world.slow(|| assert!(store.get(key(500)).unwrap().is_some()));
        assert_eq!(parts(&get), ["1 block_read 20 ms"]);
        // Of the sample or not: none of them waits for the disk.
        world.not_slow(|| (0..32).for_each(|_| assert!(store.get(key(500)).unwrap().is_some())));

        let contains = world.slow(|| assert!(store.contains(key(700)).unwrap()));
        assert_eq!((contains.kind, parts(&contains)), (SlowKind::Get, vec!["1 block_read 20 ms".to_owned()]));
        let later = world.slow(|| assert!(wait(env, store.get_async(key(900))).unwrap().is_some()));
        assert_eq!((later.kind, &later.key[..], later.bytes), (SlowKind::Get, &key(900)[..], 100));
        assert!(parts(&later).contains(&"1 block_read 20 ms".to_owned()), "{later}");

        let keys = [key(1100), key(1300)];
        let several = world.slow(|| assert_eq!(store.multi_get(&keys).unwrap().len(), 2));
        assert_eq!((several.kind, &several.key[..], several.bytes), (SlowKind::MultiGet, &key(1100)[..], 200));
        assert_eq!(parts(&several), ["2 block_read 40 ms"]);

        let mut cursor = store.cursor().unwrap();
        let seek = world.slow(|| cursor.seek(&key(1500)).unwrap());
        assert_eq!((seek.kind, &seek.key[..], seek.bytes), (SlowKind::Move, &key(1500)[..], 100));
        assert_eq!(parts(&seek), ["1 block_read 20 ms"]);
        drop(cursor);
        let page = ScanOptions::default().entries_max(50);
        let page = world.slow(|| assert_eq!(wait(env, store.scan_async(&page)).unwrap().len(), 50));
        assert_eq!((page.kind, &page.key[..], page.bytes), (SlowKind::ScanPage, &key(0)[..], 50 * 104));
    });
}

#[test]
fn a_write_that_waits_for_the_log_is_slow_and_so_is_one_that_waits_for_a_lock() {
    World::run(Some(LIMIT), |world| {
        let World { store, env, .. } = world;
        world.not_slow(|| store.put_with(b"quick", b"", Durability::Synced).unwrap());
        world.delay(FileKind::Log, &[Operation::WritePages]);
        let put = world.slow(|| store.put_with(b"blocking", [7; 50], Durability::Synced).unwrap());
        assert_eq!((put.kind, &put.key[..], &put.keyspace[..]), (SlowKind::Write, &b"blocking"[..], "default"));
        assert!(put.parts[0].name == "log" && put.parts[0].time >= DELAY, "{put}");
        assert!((58..80).contains(&put.bytes), "{put}");
        let later = world.slow(|| wait(env, store.put_with_async(b"later", [7; 50], Durability::Synced)).unwrap());
        assert_eq!((later.kind, &later.key[..]), (SlowKind::Write, &b"later"[..]));
        assert!(later.parts[0].name == "log" && later.parts[0].time >= DELAY, "{later}");

        let options = TransactionOptions::default().durability(Durability::Synced);
        let mut first = store.begin_with(&options).unwrap();
        first.put(b"row", b"1").unwrap();
        let commit = world.slow(|| assert!(first.commit().unwrap() > 0));
        assert_eq!((commit.kind, &commit.key[..]), (SlowKind::Commit, &b"row"[..]));

        world.volume.set_faults(FaultPlan::none());
        let pessimistic = TransactionOptions::default().read_committed();
        let mut holder = store.begin_with(&pessimistic).unwrap();
        holder.put(b"row", b"2").unwrap();
        let clock = Arc::clone(&env.clock);
        let holds = move || {
            clock.sleep(DELAY);
            drop(holder);
        };
        let thread = env.executor.spawn("holder", Box::new(holds)).unwrap();
        let mut waiter = store.begin_with(&pessimistic).unwrap();
        let lock = world.slow(|| waiter.put(b"row", b"3").unwrap());
        thread.join().unwrap();
        assert_eq!(
            (lock.kind, &lock.key[..], parts(&lock)),
            (SlowKind::Lock, &b"row"[..], vec!["1 lock 20 ms".to_owned()])
        );
    });
}

#[test]
fn a_write_that_waits_for_a_flush_is_slow() {
    World::run(Some(LIMIT), |world| {
        world.delay(FileKind::Table, &[Operation::Append, Operation::Sync]);
        for n in 0.. {
            world.store.put(key(n), [1; 4000]).unwrap();
            if let Some(slow) = world.store.slow_operations().first() {
                assert_eq!((slow.kind, &slow.key[..]), (SlowKind::Write, &key(n)[..]));
                assert!(slow.parts.iter().any(|part| part.name == "room" && part.time >= LIMIT), "{slow}");
                return;
            }
            assert!(n < 10_000, "no write had to wait");
        }
    });
}

#[test]
fn without_a_limit_nothing_is_slow() {
    World::run(None, |world| {
        world.delay(FileKind::Table, &[Operation::Read]);
        (0..100).for_each(|n| assert!(world.store.get(key(n * 20)).unwrap().is_some()));
        assert_eq!((world.store.slow_operations(), world.store.statistics().slow_operations), (vec![], 0));
    });
}
