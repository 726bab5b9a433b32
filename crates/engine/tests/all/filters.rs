//! Compaction filters that decide by something that changes while compactions run.

use situ_engine::{
    CompactionFilter, Compression, Decision, FilterContext, Listener, Options, StoreBuilder, StoreEvent,
};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A filter that is told something new with each entry that it looks at.
#[derive(Default)]
struct Restless(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// What the filter would decide by if it were asked now.
    live: u64,
    frozen: Vec<[u8; 8]>,
    /// Parameters of decisions, with the number of jobs that were frozen by then.
    decided: BTreeSet<(usize, Vec<u8>)>,
    decisions: u64,
}

impl CompactionFilter for Restless {
    fn name(&self) -> &str {
        "restless"
    }

    fn freeze(&self, _now_unix: Duration) -> Vec<u8> {
        let mut seen = self.0.lock().unwrap();
        let bytes = seen.live.to_le_bytes();
        seen.frozen.push(bytes);
        bytes.to_vec()
    }

    fn decide(&self, context: &FilterContext<'_>, _key: &[u8], _value: &[u8]) -> Decision {
        let mut seen = self.0.lock().unwrap();
        seen.live += 1;
        seen.decisions += 1;
        let job = seen.frozen.len();
        seen.decided.insert((job, context.parameters.to_vec()));
        Decision::Keep
    }
}

/// Compactions that are no moves, and how many of them wrote to two levels: these had several tasks.
#[derive(Default)]
struct Jobs {
    begun: usize,
    levels: BTreeSet<usize>,
    in_several_tasks: usize,
}

struct Ear(Mutex<Jobs>);

impl Listener for Ear {
    fn event(&self, event: &StoreEvent) {
        let mut jobs = self.0.lock().unwrap();
        match event {
            StoreEvent::CompactionBegun { .. } => jobs.levels.clear(),
            StoreEvent::TableCreated { level, .. } if *level > 0 => {
                jobs.levels.insert(*level);
            }
            StoreEvent::Compacted { bytes_read, .. } => {
                jobs.begun += usize::from(*bytes_read > 0);
                jobs.in_several_tasks += usize::from(jobs.levels.len() > 1);
            }
            _ => {}
        }
    }
}

/// The server's filter once asked a clock and two atomics at each entry.
#[test]
fn promise_5_what_a_filter_decides_by_is_frozen_once_for_all_tasks_of_a_job() {
    for_each_seed(0, 3, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let (filter, ear) = (Arc::new(Restless::default()), Arc::new(Ear(Mutex::default())));
            let mut options = Options::default();
            // One job at a time.
            options.compaction_threads = 1;
            options.keyspace.memtable_bytes = 16 << 10;
            options.keyspace.level_base_bytes = 64 << 10;
            options.keyspace.table_bytes = 16 << 10;
            options.keyspace.compression = vec![Compression::None];
            options.keyspace.compaction_filter = Some(Arc::clone(&filter) as Arc<_>);
            options.listener = Some(Arc::clone(&ear) as Arc<_>);
            let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume)).unwrap();
            let mut rng = Rng::new(seed);
            for n in 0..4000u32 {
                let key = (rng.below(5000) as u32).wrapping_mul(2_654_435_761).to_be_bytes();
                store.put(key, [n as u8; 100]).unwrap();
                if n % 100 == 0 {
                    store.wait_idle().unwrap();
                }
            }
            store.wait_idle().unwrap();
            store.close().unwrap();
            let (seen, jobs) = (filter.0.lock().unwrap(), ear.0.lock().unwrap());
            assert!(seen.decisions > 1000 && jobs.in_several_tasks > 0, "{} in {}", jobs.in_several_tasks, jobs.begun);
            assert_eq!(seen.frozen.len(), jobs.begun, "once for each job that merges");
            for (job, parameters) in &seen.decided {
                assert_eq!(seen.frozen[job - 1][..], parameters[..], "job {job} of {}", jobs.begun);
            }
            assert!(seen.frozen.iter().collect::<BTreeSet<_>>().len() > 1, "the live state goes on between jobs");
        });
    });
}

/// As a panic in a decision does, one while a job is made fails the job; the store goes on.
#[test]
fn a_filter_that_panics_while_a_job_is_made_fails_the_job_alone() {
    struct Panics;

    impl CompactionFilter for Panics {
        fn name(&self) -> &str {
            "panics"
        }

        fn freeze(&self, _now_unix: Duration) -> Vec<u8> {
            panic!("on purpose")
        }

        fn decide(&self, _context: &FilterContext<'_>, _key: &[u8], _value: &[u8]) -> Decision {
            Decision::Keep
        }
    }

    let executor = SimExecutor::new(7);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 7);
        let mut options = Options::default();
        options.keyspace.compaction_filter = Some(Arc::new(Panics));
        let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume)).unwrap();
        store.put(b"key", b"value").unwrap();
        let error = store.default_keyspace().compact(None, None).unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
        assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        store.put(b"key", b"new").unwrap();
        store.close().unwrap();
    });
}
