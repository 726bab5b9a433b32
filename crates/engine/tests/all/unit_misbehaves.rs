//! A unit that does what a unit should not: refuses, forgets, answers late, twice, wrongly and for others, while the store is written
//! to, compacted by hand, loses keyspaces, and is closed and opened again.

use crate::common::fast;
use situ_compaction::{Task, TaskError, TaskOutput, run};
use situ_engine::{Error, Listener, Options, Store, StoreEvent};
use situ_offload::{
    Assignment, Finished, Load, Offer, Offload, Patience, Policy, Ran, Refused, Scheduler, Split, Unit,
};
use situ_sim::Rng;
use situ_tiers::{TieredBuilder, verify_directory};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Holds tasks until its thread gets to them.
#[derive(Default)]
struct Unruly {
    state: Mutex<State>,
    answers: AtomicU64,
}

#[derive(Default)]
struct State {
    held: Vec<Assignment>,
    said: Vec<Finished>,
    rng: Option<Rng>,
    is_closed: bool,
    /// The thread runs a task.
    is_busy: bool,
}

impl State {
    fn chance(&mut self, share: f64) -> bool {
        self.rng.get_or_insert_with(|| Rng::new(1)).chance(share)
    }
}

impl Unruly {
    /// One step of the unit's thread.
    fn step(&self) {
        let assignment = {
            let mut state = self.state.lock().unwrap();
            if state.is_closed || state.held.is_empty() {
                return;
            }
            let (count, rng) = (state.held.len() as u64, state.rng.get_or_insert_with(|| Rng::new(1)));
            let at = rng.below(count) as usize;
            state.is_busy = true;
            state.held.swap_remove(at)
        };
        let attempt = assignment.attempt;
        let result = run(&assignment.task, &*assignment.host);
        let mut state = self.state.lock().unwrap();
        let answer = |result| Finished { attempt, result, elapsed: Duration::MAX, ran: Ran::default() };
        if state.chance(0.1) {
            state.said.push(answer(Err(TaskError::Panicked("a wrong answer".to_owned()))));
        } else if state.chance(0.05) {
            state.said.push(answer(Err(TaskError::Cancelled)));
        } else if state.chance(0.05) {
            let nothing = TaskOutput {
                tables: Vec::new(),
                stats: Default::default(),
                dropped_values: Vec::new(),
                dropped_places: Vec::new(),
            };
            state.said.push(answer(Ok(nothing)));
        } else if state.chance(0.05) {
            (0..attempt).for_each(|attempt| {
                let result = Err(TaskError::Panicked("not its own".to_owned()));
                state.said.push(Finished { attempt, result, elapsed: Duration::ZERO, ran: Ran::default() });
            });
            state.said.push(answer(result));
        } else {
            let twice = state.chance(0.2);
            let again = result.clone();
            state.said.push(answer(result));
            state.said.extend(twice.then(|| answer(again)));
        }
        state.is_busy = false;
        drop(state);
        self.answers.fetch_add(1, Ordering::Relaxed);
        assignment.done.notify();
    }
}

impl Unit for Unruly {
    fn name(&self) -> &str {
        "unruly"
    }

    fn offer(&self, _task: &Task) -> Offer {
        let mut state = self.state.lock().unwrap();
        if state.chance(0.05) { Offer::Unsuited("not today".to_owned()) } else { Offer::DoneIn(Duration::ZERO) }
    }

    fn load(&self) -> Load {
        let state = self.state.lock().unwrap();
        Load {
            tasks: state.held.len() + state.said.len(),
            tasks_max: 5,
            input_bytes: 0,
            bytes_per_s: 0,
            resources: None,
        }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        let mut state = self.state.lock().unwrap();
        if state.is_closed {
            return Err(Refused::Gone("closed".to_owned()));
        }
        if state.chance(0.1) {
            return Err(Refused::Busy);
        }
        if state.chance(0.01) {
            return Err(Refused::Gone("for a moment".to_owned()));
        }
        state.held.push(assignment);
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.state.lock().unwrap().said);
    }

    fn close(&self) {
        self.state.lock().unwrap().is_closed = true;
        while self.state.lock().unwrap().is_busy {
            std::thread::sleep(Duration::from_millis(1));
        }
        let held = std::mem::take(&mut self.state.lock().unwrap().held);
        drop(held);
    }
}

/// Calls the store from where it is told.
#[derive(Default)]
struct CallsBack {
    store: OnceLock<Store>,
    told: AtomicU64,
}

struct Told(Arc<CallsBack>);

impl Listener for Told {
    fn event(&self, _event: &StoreEvent) {
        if let Some(store) = self.0.store.get() {
            let _ = store.get(b"key 00001");
            let _ = Scheduler::of(store.compactor()).unwrap().reports();
            self.0.told.fetch_add(1, Ordering::Relaxed);
        }
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn change(store: &Store, keyspace: &str, model: &mut Model, rng: &mut Rng) {
    let keyspace = store.keyspace(keyspace).unwrap();
    for _ in 0..300 {
        let key = format!("key {:05}", rng.below(4000)).into_bytes();
        if rng.chance(0.01) {
            let end = format!("key {:05}", rng.below(4000)).into_bytes();
            let (begin, end) = (key.clone().min(end.clone()), key.max(end));
            keyspace.delete_range(&begin, &end).unwrap();
            model.retain(|key, _| *key < begin || *key >= end);
        } else if rng.chance(0.1) {
            keyspace.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![rng.below(256) as u8; 50 + rng.below(200) as usize];
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn assert_holds(store: &Store, keyspace: &str, model: &Model) {
    let keyspace = store.keyspace(keyspace).unwrap();
    let found: Model = keyspace
        .iter()
        .unwrap()
        .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert_eq!(found.len(), model.len());
    assert!(found == *model, "the store and the model differ");
}

/// The answers of the unit in each round, at least.
const ANSWERS_MIN: u64 = 6;

fn live(directory: &Path, with_fast: bool, patience: Patience, seed: u64, length: Duration) -> u64 {
    let (home, disk) = (directory.join("home"), directory.join("fast"));
    let (mut a, mut b, mut rng) = (Model::new(), Model::new(), Rng::new(seed));
    let mut answers = 0;
    for round in 0..4 {
        let unit = Arc::new(Unruly::default());
        unit.state.lock().unwrap().rng = Some(Rng::new(seed * 100 + round));
        let told = Arc::new(CallsBack::default());
        let mut options: Options = fast::small();
        // The unit is to get all that it can, as often as it fails: the default policy would soon leave it alone.
        let policy = Policy { split: Split::Static { elsewhere_percent: 100 }, ..Policy::default() };
        let offload = Offload::new().policy(policy).patience(patience).unit(Arc::clone(&unit) as Arc<dyn Unit>);
        options.keyspace = options.keyspace.memtable_bytes(64 << 10).level0_tables(2);
        options.keyspace = options.keyspace.level_base_bytes(256 << 10).table_bytes(64 << 10);
        options.listener = Some(Arc::new(Told(Arc::clone(&told))));
        let builder = fast::tiered(options).compactor(offload);
        let builder = if with_fast { builder.fast_disk(&disk) } else { builder };
        let store = builder.open(&home).unwrap();
        assert!(told.store.set(store.clone()).is_ok());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        unit.step();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            scope.spawn(|| {
                let mut rng = Rng::new(seed ^ round);
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(rng.below(30)));
                    let name = ["default", "b", "c"][rng.below(3) as usize];
                    match store.keyspace(name).and_then(|keyspace| keyspace.compact(None, None)) {
                        Ok(()) | Err(Error::KeyspaceDropped { .. } | Error::Closed) => {}
                        Err(error) => panic!("{name}: {error:?}"),
                    }
                }
            });
            let begun = Instant::now();
            // On a busy machine the unit's answers take their time.
            while begun.elapsed() < length || unit.answers.load(Ordering::Relaxed) < ANSWERS_MIN {
                assert!(begun.elapsed() < Duration::from_secs(60), "the unit gives no answers");
                change(&store, "default", &mut a, &mut rng);
                change(&store, "b", &mut b, &mut rng);
                change(&store, "c", &mut Model::new(), &mut rng);
                if rng.chance(0.3) {
                    store.drop_keyspace("c").unwrap();
                }
            }
            // In half of the rounds, closing meets threads that are at work.
            if rng.chance(0.5) {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_holds(&store, "default", &a);
            assert_holds(&store, "b", &b);
            let closing = Instant::now();
            store.close().unwrap();
            assert!(closing.elapsed() < Duration::from_secs(20), "closing took {:?}", closing.elapsed());
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(told.told.load(Ordering::Relaxed) > 0);
        answers += unit.answers.load(Ordering::Relaxed);
        if !with_fast {
            let report = verify_directory(&home, &mut |_| {}).unwrap();
            assert!(report.is_sound(), "{report:?}");
        }
    }
    answers
}

#[test]
fn an_unruly_unit_costs_speed_and_nothing_else() {
    // One that is never out of service, and one that proves itself again and again.
    let restless = Patience { rest_min: Duration::from_millis(5), failures_max: u32::MAX, ..Patience::default() };
    let strict = Patience { failures_max: 1, ..restless };
    for (with_fast, patience, seed) in [(false, restless, 1), (true, restless, 2), (false, strict, 3)] {
        let directory = tempfile::tempdir().unwrap();
        let answers = live(directory.path(), with_fast, patience, seed, Duration::from_millis(400));
        assert!(answers >= 4 * ANSWERS_MIN, "{answers}");
    }
}
