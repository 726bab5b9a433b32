//! Promises 7 and 8 for compactions that cannot succeed: each rests longer from failure to failure, the others go on, and
//! level 0 stays within its bound.

use situ_base::{Clock, Env};
use situ_engine::{Durability, Error, Listener, Options, Store, StoreBuilder, StoreEvent};
use situ_sim::{Fault, FaultPlan, FileKind, Operation, Rule, SimExecutor, SimVolume, for_each_seed};
use situ_storage::FileName;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const LEVEL0_TABLES_MAX: usize = 10;
/// Inside the first data block.
const ROTTEN: (u64, u8) = (100, 3);

struct Heard {
    clock: Arc<dyn Clock>,
    /// When a compaction was postponed, and for how long.
    postponed: Mutex<Vec<(Duration, Duration)>>,
}

impl Listener for Heard {
    fn event(&self, event: &StoreEvent) {
        if let StoreEvent::CompactionPostponed { keyspace, rest, error, tables, .. } = event {
            assert!(keyspace == "default" && error.is_corruption() && !tables.is_empty(), "{event:?}");
            self.postponed.lock().unwrap().push((self.clock.now(), *rest));
        }
    }
}

fn open(env: &Env, volume: &SimVolume, level0_tables: usize, heard: Option<Arc<Heard>>) -> Store {
    let mut options = Options::default();
    options.compaction_threads = 1;
    options.keyspace.memtable_bytes = 8 << 10;
    options.keyspace.table_bytes = 1 << 10;
    options.keyspace.level0_tables = level0_tables;
    options.keyspace.level0_tables_max = LEVEL0_TABLES_MAX;
    options.listener = heard.map(|heard| heard as Arc<_>);
    let builder = StoreBuilder::new(options.clone()).keyspace("other", options.keyspace).env(env.clone());
    builder.open_volume(Arc::new(volume.clone())).unwrap()
}

/// Two keyspaces with a few tables in level 0; one table of `default` has rotted. Returns its number.
fn build(env: &Env, volume: &SimVolume) -> u64 {
    let store = open(env, volume, 100, None);
    let other = store.create_keyspace("other", Options::default().keyspace).unwrap();
    for round in 0..4u8 {
        for keyspace in [store.default_keyspace(), &other] {
            for n in 0..20u8 {
                keyspace.put([n, round], [round; 100]).unwrap();
            }
            keyspace.flush().unwrap();
        }
    }
    let number = store.default_keyspace().tables()[2].number;
    store.close().unwrap();
    assert!(volume.rot(FileName::Table(number), ROTTEN.0, ROTTEN.1));
    number
}

/// Such a compaction used to be tried again for ever, and with one thread it kept all others from running.
#[test]
fn promise_7_8_a_table_that_cannot_be_read_stops_nothing_but_its_own_compaction() {
    for_each_seed(0, 2, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let rotten = build(&env, &volume);
            let heard = Arc::new(Heard { clock: Arc::clone(&env.clock), postponed: Mutex::default() });
            let store = open(&env, &volume, 2, Some(Arc::clone(&heard)));
            let default = store.default_keyspace();
            env.clock.sleep(Duration::from_secs(3600));
            {
                let postponed = heard.postponed.lock().unwrap();
                let rests: Vec<u64> = postponed.iter().map(|(_, rest)| rest.as_secs()).collect();
                assert_eq!(rests[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
                for pair in postponed.windows(2) {
                    let ((first, rest), (next, _)) = (pair[0], pair[1]);
                    assert!(next >= first + rest, "tried again after {:?} instead of {rest:?}", next - first);
                }
                assert!((19..=22).contains(&postponed.len()), "{} tries in an hour", postponed.len());
                assert_eq!(store.statistics().compactions_postponed, postponed.len() as u64);
            }
            assert_eq!(default.properties().compactions_postponed, 1);
            let failure = store.properties().background_failure.unwrap();
            assert!(failure.to_string().contains(&FileName::Table(rotten).to_string()), "{failure}");
            assert!(store.wait_idle().unwrap_err().is_corruption());
            assert_eq!(
                store.existing_keyspace("other").unwrap().properties().levels[0].tables,
                0,
                "the other keyspace waits"
            );

            // Level 0 fills up and writers are told why, when nothing of it can be compacted any more.
            let put = |n: u32| {
                store.put(n.to_be_bytes(), [n as u8; 1000]).or_else(|_| {
                    env.clock.sleep(Duration::from_secs(1));
                    store.put(n.to_be_bytes(), [n as u8; 1000])
                })
            };
            let refused = (0..10_000).find_map(|n| put(n).err()).expect("level 0 grows without end");
            assert!(matches!(&refused, Error::Level0Full { tables, .. } if *tables <= LEVEL0_TABLES_MAX), "{refused}");
            assert!(refused.is_corruption());
            assert!(matches!(store.flush(), Err(Error::Level0Full { .. })));
            let mut future = pin!(store.put_with_async(b"k", [0; 1000], Durability::Buffered));
            env.clock.sleep(Duration::from_secs(1));
            let outcome = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(outcome, Poll::Ready(Err(Error::Level0Full { .. }))), "{outcome:?}");
            assert!(default.properties().levels[0].tables <= LEVEL0_TABLES_MAX);
            store.existing_keyspace("other").unwrap().put(b"k", b"the other keyspace takes writes").unwrap();

            // Mended, a manual compaction does not wait for the rest to end.
            assert!(volume.rot(FileName::Table(rotten), ROTTEN.0, ROTTEN.1));
            default.compact(None, None).unwrap();
            assert_eq!(default.properties().compactions_postponed, 0);
            assert!(store.properties().background_failure.is_none());
            store.put(b"k", b"v").unwrap();
            store.wait_idle().unwrap();
            store.close().unwrap();
        });
    });
}

/// Writers used to add tables to level 0 for as long as compactions were slower.
#[test]
fn promise_8_writers_wait_for_compactions_when_level_0_is_full() {
    for_each_seed(0, 2, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &volume, 2, None);
            let slow =
                Rule::new(Fault::Delay(Duration::from_secs(30))).on(&[Operation::Read]).files(&[FileKind::Table]);
            volume.set_faults(FaultPlan::none().with(slow));
            for n in 0..600u32 {
                // Scattered, so that tables overlap and cannot be moved.
                let key = n.wrapping_mul(2_654_435_761).to_be_bytes();
                store.put(key, [n as u8; 1000]).unwrap();
                let tables = store.default_keyspace().properties().levels[0].tables;
                assert!(tables <= LEVEL0_TABLES_MAX, "{tables} tables in level 0");
            }
            volume.set_faults(FaultPlan::none());
            store.close().unwrap();
        });
    });
}
