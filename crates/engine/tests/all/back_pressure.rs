//! Promise 8 under more writes than the store can digest: writers are slowed smoothly, nobody waits long, memory stays
//! within its bound and level 0 does not grow without end.

use situ_engine::{Durability, Listener, Options, Store, StoreBuilder, StoreEvent};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rng, Rule, SimExecutor, SimVolume, for_each_seed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MEMTABLE_BYTES: u64 = 256 << 10;
const MEMTABLES_MAX: usize = 4;
const VALUE_BYTES: usize = 1000;
/// Memory comes in chunks that grow with the memtable, up to 1 MiB; the last one of each may be only begun.
const MEMORY_MAX: u64 = MEMTABLES_MAX as u64 * 2 * MEMTABLE_BYTES;

#[derive(Default)]
struct Heard {
    slowed: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        match event {
            StoreEvent::Slowed { bytes_per_s, .. } if *bytes_per_s > 0 => {
                self.slowed.fetch_add(1, Ordering::Relaxed);
            }
            StoreEvent::JobFailed { error, .. } | StoreEvent::Failed { error } => {
                self.failures.lock().unwrap().push(error.to_string());
            }
            _ => {}
        }
    }
}

fn options(heard: &Arc<Heard>) -> Options {
    let mut options = Options::default();
    options.keyspace.memtable_bytes = MEMTABLE_BYTES;
    options.keyspace.memtables_max = MEMTABLES_MAX;
    options.keyspace.level_base_bytes = 1 << 20;
    options.keyspace.table_bytes = 512 << 10;
    options.cache_bytes = 1 << 20;
    options.compaction_threads = 1;
    options.listener = Some(Arc::clone(heard) as Arc<_>);
    options
}

/// What a run of writers met.
struct Met {
    longest: Duration,
    memory_max: u64,
    level0_max: usize,
    slowed: u64,
}

/// `writers` threads write as fast as they are let, `writes` each.
fn overload(seed: u64, plan: FaultPlan, writers: u64, writes: u64) -> Met {
    let executor = SimExecutor::new(seed);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), seed);
        let heard = Arc::new(Heard::default());
        let builder = StoreBuilder::new(options(&heard)).env(env.clone());
        let store = builder.open_volume(Arc::new(volume.clone())).unwrap();
        volume.set_faults(plan);
        let longest = Arc::new(AtomicU64::new(0));
        let (memory_max, level0_max) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let jobs: Vec<_> = (0..writers)
            .map(|writer| {
                let (store, longest, env) = (store.clone(), Arc::clone(&longest), env.clone());
                let (memory_max, level0_max) = (Arc::clone(&memory_max), Arc::clone(&level0_max));
                let job = move || {
                    let mut rng = Rng::new(seed + writer);
                    for n in 0..writes {
                        let mut value = vec![0; VALUE_BYTES];
                        rng.fill(&mut value);
                        let before = env.clock.now();
                        store.put(rng.next_u64().to_be_bytes(), &value).unwrap();
                        let waited = (env.clock.now() - before).as_nanos() as u64;
                        longest.fetch_max(waited, Ordering::Relaxed);
                        if n % 16 == 0 {
                            memory_max.fetch_max(store.properties().memtable_bytes, Ordering::Relaxed);
                            let level0 = store.default_keyspace().properties().levels[0].tables as u64;
                            level0_max.fetch_max(level0, Ordering::Relaxed);
                        }
                    }
                };
                env.executor.spawn("writer", Box::new(job)).unwrap()
            })
            .collect();
        jobs.iter().for_each(|job| job.join().unwrap());
        volume.set_faults(FaultPlan::none());
        store.wait_idle().unwrap();
        assert_eq!(store.properties().write_limit_bytes_per_s, None, "the limit outlives the debt");
        store.close().unwrap();
        assert_eq!(*heard.failures.lock().unwrap(), Vec::<String>::new());
        Met {
            longest: Duration::from_nanos(longest.load(Ordering::Relaxed)),
            memory_max: memory_max.load(Ordering::Relaxed),
            level0_max: level0_max.load(Ordering::Relaxed) as usize,
            slowed: heard.slowed.load(Ordering::Relaxed),
        }
    })
}

fn check_memory(met: &Met) {
    assert!(met.memory_max <= MEMORY_MAX, "memtables took {} of {MEMORY_MAX} bytes", met.memory_max);
}

#[test]
fn promise_8_slow_compactions_slow_writers_smoothly() {
    for_each_seed(0, 4, |seed| {
        // Only compactions read tables: flushes stay fast and level 0 grows.
        let slow_reads = Rule::new(Fault::Delay(Duration::from_millis(3))).on(&[Operation::Read]);
        let plan = FaultPlan::none()
            .latency(Duration::from_micros(20)..Duration::from_micros(60))
            .with(slow_reads.files(&[FileKind::Table]));
        let met = overload(seed, plan, 2, 6000);
        assert!(met.slowed > 0, "the debt never grew so far that writers were slowed");
        assert!(met.longest <= Duration::from_millis(100), "one write waited {:?}", met.longest);
        assert!(met.level0_max <= 60, "{} tables in level 0", met.level0_max);
        check_memory(&met);
    });
}

#[test]
fn promise_8_slow_flushes_slow_writers_and_bound_memory() {
    for_each_seed(10, 4, |seed| {
        // A disk of about 10 MB/s: a memtable takes 25 ms.
        let slow =
            Rule::new(Fault::Delay(Duration::from_millis(20))).on(&[Operation::Append]).files(&[FileKind::Table]);
        let plan = FaultPlan::none().latency(Duration::from_micros(20)..Duration::from_micros(60)).with(slow);
        let met = overload(seed, plan, 3, 3000);
        assert!(met.slowed > 0, "the debt never grew so far that writers were slowed");
        assert!(met.longest <= Duration::from_millis(100), "one write waited {:?}", met.longest);
        check_memory(&met);
    });
}

/// The same with real threads and a real disk, as far as it can be seen from outside.
#[test]
fn promise_8_memory_stays_within_what_is_configured() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(&Arc::new(Heard::default()));
    options.cache_bytes = 2 << 20;
    let bound = MEMORY_MAX + options.cache_bytes;
    let store = Store::open_with(directory.path(), options).unwrap();
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (store, most) = (&store, &most);
            scope.spawn(move || {
                let mut rng = Rng::new(writer);
                let mut value = vec![0; VALUE_BYTES];
                for n in 0..8000 {
                    rng.fill(&mut value);
                    let key = rng.below(1 << 20).to_be_bytes();
                    let durability = if n % 500 == 0 { Durability::Synced } else { Durability::Buffered };
                    store.default_keyspace().put_with(key, &value, durability).unwrap();
                    if n % 8 == 0 {
                        store.get(rng.below(1 << 20).to_be_bytes()).unwrap();
                        let properties = store.properties();
                        most.fetch_max(properties.memtable_bytes + properties.cache_bytes, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let most = most.load(Ordering::Relaxed);
    assert!(most <= bound, "memtables and cache took {most} of {bound} bytes");
    assert!(most > bound / 4, "only {most} bytes: the load was no test");
    store.close().unwrap();
}
