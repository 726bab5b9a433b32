//! While writers wait much longer for the log than they do when the store is calm, compactions use one thread.

use situ_base::Env;
use situ_engine::{Compression, Durability, Keyspace, Listener, Options, Store, StoreBuilder, StoreEvent};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume, for_each_seed};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEYSPACES: usize = 4;
/// A sync of the log when the store is calm.
const CALM: Duration = Duration::from_micros(100);
/// And when it is not.
const DISTURBED: Duration = Duration::from_millis(2);

/// Compactions at work, the most there were at a time, and how many there have been.
#[derive(Default)]
struct Jobs(Mutex<(usize, usize, usize)>);

impl Jobs {
    fn take(&self) -> (usize, usize) {
        let mut jobs = self.0.lock().unwrap();
        let (at_work, most, all) = *jobs;
        *jobs = (at_work, at_work, 0);
        (most, all)
    }
}

impl Listener for Jobs {
    fn event(&self, event: &StoreEvent) {
        let mut jobs = self.0.lock().unwrap();
        match event {
            StoreEvent::CompactionBegun { .. } => {
                jobs.0 += 1;
                jobs.1 = jobs.1.max(jobs.0);
                jobs.2 += 1;
            }
            StoreEvent::Compacted { .. } => jobs.0 -= 1,
            _ => {}
        }
    }
}

/// A disk whose tables take their time, and whose log takes `sync`.
fn disk(sync: Duration) -> FaultPlan {
    let tables = Rule::new(Fault::Delay(Duration::from_millis(1))).on(&[Operation::Append, Operation::Read]);
    let log = Rule::new(Fault::Delay(sync)).on(&[Operation::Sync, Operation::WritePages]);
    FaultPlan::none().with(tables.files(&[FileKind::Table])).with(log.files(&[FileKind::Log]))
}

/// Somebody who writes to the log, and waits for it, all the time.
struct Writer {
    written: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    job: Box<dyn situ_base::JobHandle>,
}

impl Writer {
    fn begin(env: &Env, keyspace: &Keyspace) -> Writer {
        let (written, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (keyspace, count, end) = (keyspace.clone(), Arc::clone(&written), Arc::clone(&ends));
        let body = move || {
            while !end.load(Ordering::SeqCst) {
                keyspace.put_with(b"key", b"value", Durability::Synced).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        };
        Writer { written, ends, job: env.executor.spawn("writer", Box::new(body)).unwrap() }
    }

    /// Waits until it has written so many times more.
    fn wait_for(&self, env: &Env, writes: u64) {
        let until = self.written.load(Ordering::SeqCst) + writes;
        while self.written.load(Ordering::SeqCst) < until {
            env.clock.sleep(Duration::from_millis(1));
        }
    }

    fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        self.job.join().unwrap();
    }
}

/// As many tables in level 0 of each keyspace as let it be compacted, all at about the same time. Returns when that is done.
fn compactions(env: &Env, store: &Store, keyspaces: &[Keyspace]) {
    for round in 0..2u64 {
        for keyspace in keyspaces {
            (0..100u64).for_each(|n| keyspace.put((n * 2 + round).to_be_bytes(), [7; 200]).unwrap());
        }
        let flushes: Vec<_> = keyspaces
            .iter()
            .map(|keyspace| {
                let keyspace = keyspace.clone();
                env.executor.spawn("flush", Box::new(move || keyspace.flush().unwrap())).unwrap()
            })
            .collect();
        flushes.iter().for_each(|flush| flush.join().unwrap());
    }
    store.wait_idle().unwrap();
}

/// Level 0 of four keyspaces is to be compacted, and four threads may. They do when the log is calm; as long as it takes
/// twenty times as long for its writers, one job follows the other; and when it is calm again, they all do.
#[test]
fn compactions_are_held_back_while_writers_wait_for_the_log() {
    for_each_seed(1, 4, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let volume = SimVolume::new(&env, disk(CALM), seed);
            let jobs = Arc::new(Jobs::default());
            let mut options = Options::default();
            options.compaction_threads = KEYSPACES;
            options.keyspace.level0_tables = 2;
            options.keyspace.block_bytes = 1 << 10;
            options.keyspace.compression = vec![Compression::None];
            options.listener = Some(Arc::clone(&jobs) as Arc<dyn Listener>);
            let of_keyspaces = options.keyspace.clone();
            let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
            let create = |n| store.create_keyspace(&format!("keyspace {n}"), of_keyspaces.clone()).unwrap();
            let keyspaces: Vec<Keyspace> = (0..KEYSPACES).map(create).collect();
            let writer = Writer::begin(&env, store.default_keyspace());
            for sync in [CALM, DISTURBED, CALM] {
                volume.set_faults(disk(sync));
                // Calm is what the log mostly takes; disturbed it is soon.
                writer.wait_for(&env, if sync == CALM { 500 } else { 50 });
                jobs.take();
                compactions(&env, &store, &keyspaces);
                let (together, all) = jobs.take();
                assert!(all >= KEYSPACES, "{all} compactions");
                if sync == CALM {
                    assert!(together > 1, "{together} at a time, and the log is calm");
                } else {
                    assert_eq!(together, 1, "beside a log that takes {sync:?}");
                }
            }
            writer.end();
            store.close().unwrap();
        });
    });
}

/// A job long enough to be cut in two has the threads of two; beside a disturbed log it has one, and takes as long as that.
#[test]
fn a_long_compaction_is_not_cut_while_writers_wait_for_the_log() {
    const VALUE_BYTES: usize = 64 << 10;
    /// Two tasks of 16 MiB or more.
    const VALUES: u64 = 40 * 16;
    let sim = SimExecutor::new(1);
    let env = sim.env();
    sim.run(|| {
        let volume = SimVolume::new(&env, disk(CALM), 1);
        let mut options = Options::default();
        options.compaction_threads = 2;
        options.keyspace.compression = vec![Compression::None];
        let of_keyspaces = options.keyspace.clone();
        let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
        let writer = Writer::begin(&env, store.default_keyspace());
        let took: Vec<Duration> = [CALM, DISTURBED]
            .into_iter()
            .map(|sync| {
                let keyspace = store.create_keyspace(&format!("{sync:?}"), of_keyspaces.clone()).unwrap();
                for half in 0..2 {
                    let keys = (0..VALUES).filter(|n| n % 2 == half);
                    keys.for_each(|n| keyspace.put(n.to_be_bytes(), [n as u8; VALUE_BYTES]).unwrap());
                    keyspace.flush().unwrap();
                }
                volume.set_faults(disk(sync));
                writer.wait_for(&env, if sync == CALM { 500 } else { 50 });
                let begun = env.clock.now();
                keyspace.compact(None, None).unwrap();
                env.clock.now() - begun
            })
            .collect();
        writer.end();
        store.close().unwrap();
        assert!(took[1] > took[0] * 3 / 2, "{:?} when calm, {:?} when not", took[0], took[1]);
    });
}
