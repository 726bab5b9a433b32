//! A workload whose every state is known, and the check that a store is found in one of them.

use super::{Model, contents, key, small_options, value};
use situ_base::Env;
use situ_engine::{Durability, Error, Keyspace, Store, WriteBatch, WriteFuture};
use situ_sim::{Rng, wait};
use situ_tiers::TieredStore;
use std::collections::VecDeque;

const KEYS: u64 = 60;
/// Asynchronous writes that may be under way at a time.
const UNDER_WAY_MAX: usize = 6;

/// What one run was told: after how many operations the store must, and may, be found.
pub struct Told {
    /// `states[n]`: both keyspaces after n operations.
    pub states: Vec<[Model; 2]>,
    pub acknowledged: usize,
    pub synced: usize,
}

/// Opens the store of a run, with options drawn from the seed.
pub type Opener<'a> = &'a dyn Fn(u64) -> Result<Store, Error>;

impl Told {
    fn acknowledge(&mut self, number: usize, durability: Durability) {
        self.acknowledged = self.acknowledged.max(number);
        if durability == Durability::Synced {
            self.synced = self.synced.max(number);
        }
    }
}

/// Asynchronous writes whose outcome nobody has asked for yet, oldest first, each with its number.
#[derive(Default)]
struct UnderWay {
    writes: VecDeque<(usize, Durability, WriteFuture)>,
    /// One of them has failed.
    failed: bool,
}

impl UnderWay {
    /// Waits for the oldest. Behind one that fails none is acknowledged: what follows it in `states` has its changes.
    fn wait_for_oldest(&mut self, env: &Env, told: &mut Told) -> Result<(), Error> {
        let Some((number, durability, write)) = self.writes.pop_front() else { return Ok(()) };
        let outcome = wait(env, write);
        assert!(outcome.is_err() || !self.failed, "operation {number} is acknowledged behind one that has failed");
        self.failed |= outcome.is_err();
        outcome.map(|()| told.acknowledge(number, durability))
    }

    fn wait_for_all(&mut self, env: &Env, told: &mut Told) -> Result<(), Error> {
        (0..self.writes.len()).try_for_each(|_| self.wait_for_oldest(env, told))
    }

    /// Notes those that are done. They are so in the order of the calls.
    fn note_done(&mut self, env: &Env, told: &mut Told) -> Result<(), Error> {
        while self.writes.front().is_some_and(|(.., write)| write.is_done()) {
            self.wait_for_oldest(env, told)?;
        }
        Ok(())
    }
}

/// Random operations on two keyspaces, blocking ones and asynchronous ones with others under way, with flushes, compactions,
/// syncs and reopenings, until something fails.
pub fn workload(env: &Env, open: Opener<'_>, seed: u64, steps: usize) -> Told {
    let mut rng = Rng::new(seed ^ 0xc0ffee);
    let mut told = Told { states: vec![[Model::new(), Model::new()]], acknowledged: 0, synced: 0 };
    let mut under_way = UnderWay::default();
    let _ = run(env, open, seed, steps, &mut rng, &mut told, &mut under_way);
    // Each has an outcome, also if the store has failed.
    while !under_way.writes.is_empty() {
        let _ = under_way.wait_for_oldest(env, &mut told);
    }
    told
}

fn run(
    env: &Env,
    open: Opener<'_>,
    seed: u64,
    steps: usize,
    rng: &mut Rng,
    told: &mut Told,
    under_way: &mut UnderWay,
) -> Result<(), Error> {
    let mut store = open(seed)?;
    store.create_keyspace("other", small_options(rng).keyspace)?;
    let asynchronous = [0.2, 0.6, 0.9][rng.index(3)];
    for _ in 0..steps {
        match rng.below(100) {
            0..3 => store.flush()?,
            3..4 => store.default_keyspace().compact(None, None)?,
            4..5 => {
                store.close()?;
                under_way.wait_for_all(env, told)?;
                told.synced = told.acknowledged;
                store = open(rng.next_u64())?;
            }
            5..7 => {
                under_way.note_done(env, told)?;
                let acknowledged = told.acknowledged;
                store.sync()?;
                told.synced = told.synced.max(acknowledged);
            }
            7..8 => match store.drain_fast_disk() {
                // There is none, or none any more.
                Err(Error::Invalid(_)) => {}
                drained => drained?,
            },
            _ => {}
        }
        let keyspaces = [store.default_keyspace().clone(), store.existing_keyspace("other")?];
        let mut after = told.states[told.states.len() - 1].clone();
        let (batch, one) = operation(rng, &keyspaces, &mut after)?;
        // From here on the operation may be found, whatever the answer will be.
        told.states.push(after);
        let number = told.states.len() - 1;
        let durability = if rng.chance(0.25) { Durability::Synced } else { Durability::Buffered };
        let is_empty = batch.is_empty();
        if rng.chance(asynchronous) {
            let write = match one {
                Some(one) => one.write_async(&keyspaces, durability),
                None => store.write_with_async(batch, durability),
            };
            // An empty one waits for none before it.
            if !is_empty {
                under_way.writes.push_back((number, durability, write));
            }
            if rng.chance(0.3) {
                under_way.note_done(env, told)?;
            }
            if under_way.writes.len() > UNDER_WAY_MAX {
                under_way.wait_for_oldest(env, told)?;
            }
        } else {
            store.write_with(batch, durability)?;
            if !is_empty {
                told.acknowledge(number, durability);
            }
        }
    }
    store.close()?;
    under_way.wait_for_all(env, told)?;
    told.synced = told.acknowledged;
    Ok(())
}

/// An operation that has a call of its own.
enum One {
    Put { which: usize, key: Vec<u8>, value: Vec<u8> },
    Delete { which: usize, key: Vec<u8> },
    DeleteRange { which: usize, begin: Vec<u8>, end: Vec<u8> },
}

impl One {
    fn add_to(&self, batch: &mut WriteBatch, keyspaces: &[Keyspace; 2]) -> Result<(), Error> {
        match self {
            One::Put { which, key, value } => batch.put_in(&keyspaces[*which], key, value),
            One::Delete { which, key } => batch.delete_in(&keyspaces[*which], key),
            One::DeleteRange { which, begin, end } => batch.delete_range_in(&keyspaces[*which], begin, end),
        }
    }

    fn apply_to(&self, models: &mut [Model; 2]) {
        match self {
            One::Put { which, key, value } => drop(models[*which].insert(key.clone(), value.clone())),
            One::Delete { which, key } => drop(models[*which].remove(key)),
            One::DeleteRange { which, begin, end } => models[*which].retain(|key, _| key < begin || key >= end),
        }
    }

    fn write_async(&self, keyspaces: &[Keyspace; 2], durability: Durability) -> WriteFuture {
        match self {
            One::Put { which, key, value } => keyspaces[*which].put_with_async(key, value, durability),
            One::Delete { which, key } => keyspaces[*which].delete_with_async(key, durability),
            One::DeleteRange { which, begin, end } => keyspaces[*which].delete_range_with_async(begin, end, durability),
        }
    }
}

/// The next operation, which is one step whole, as a batch; and as what it is alone, if it is not more.
fn operation(
    rng: &mut Rng,
    keyspaces: &[Keyspace; 2],
    after: &mut [Model; 2],
) -> Result<(WriteBatch, Option<One>), Error> {
    let mut batch = WriteBatch::new();
    let count = 1 + rng.below(4);
    let mut last = None;
    for _ in 0..count {
        let which = rng.index(2);
        let begin = key(rng, KEYS);
        let one = match rng.below(10) {
            0..7 => One::Put { which, key: begin, value: value(rng) },
            7..9 => One::Delete { which, key: begin },
            _ => One::DeleteRange { which, begin, end: key(rng, KEYS) },
        };
        one.add_to(&mut batch, keyspaces)?;
        one.apply_to(after);
        last = Some(one);
    }
    Ok((batch, last.filter(|_| count == 1)))
}

/// Opens what a crash left and finds it equal to the state after some number of operations, at least `least`.
pub fn check(open: Opener<'_>, told: &Told, least: usize, seed: u64) {
    let store = open(seed).unwrap_or_else(|e| panic!("the store does not open after the crash: {e}"));
    let found = ["default", "other"].map(|name| match store.existing_keyspace(name) {
        Ok(keyspace) => contents(&keyspace, None),
        // Creating it was not acknowledged.
        Err(_) => Model::new(),
    });
    let matching: Vec<usize> = (0..told.states.len()).filter(|n| told.states[*n] == found).collect();
    assert!(
        matching.iter().any(|n| *n >= least),
        "found the state after {matching:?} operations; synced {}, acknowledged {}, tried {}",
        told.synced,
        told.acknowledged,
        told.states.len() - 1
    );
    // And it goes on from there.
    store.put(b"after", b"the crash").unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    let store = open(seed).unwrap();
    assert_eq!(store.get(b"after").unwrap().as_deref(), Some(&b"the crash"[..]));
    store.close().unwrap();
}
