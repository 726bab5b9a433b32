//! A workload whose every state is known, and the check that a store is found in one of them.

use super::{Model, contents, key, small_options, value};
use situ_engine::{Durability, Error, Store, WriteBatch};
use situ_sim::Rng;

const KEYS: u64 = 60;

/// What one run was told: after how many operations the store must, and may, be found.
pub struct Told {
    /// `states[n]`: both keyspaces after n operations.
    pub states: Vec<[Model; 2]>,
    pub acknowledged: usize,
    pub synced: usize,
}

/// Opens the store of a run, with options drawn from the seed.
pub type Opener<'a> = &'a dyn Fn(u64) -> Result<Store, Error>;

/// Random operations on two keyspaces, with flushes, compactions, syncs and reopenings, until something fails.
pub fn workload(open: Opener<'_>, seed: u64, steps: usize) -> Told {
    let mut rng = Rng::new(seed ^ 0xc0ffee);
    let mut told = Told { states: vec![[Model::new(), Model::new()]], acknowledged: 0, synced: 0 };
    let _ = run(open, seed, steps, &mut rng, &mut told);
    told
}

fn run(open: Opener<'_>, seed: u64, steps: usize, rng: &mut Rng, told: &mut Told) -> Result<(), Error> {
    let mut store = open(seed)?;
    store.create_keyspace("other", small_options(rng).keyspace)?;
    for _ in 0..steps {
        match rng.below(100) {
            0..3 => store.flush()?,
            3..4 => store.default_keyspace().compact(None, None)?,
            4..5 => {
                store.close()?;
                told.synced = told.acknowledged;
                store = open(rng.next_u64())?;
            }
            5..7 => {
                store.sync()?;
                told.synced = told.acknowledged;
            }
            7..8 => match store.drain_fast_disk() {
                // There is none, or none any more.
                Err(Error::Invalid(_)) => {}
                drained => drained?,
            },
            _ => {}
        }
        let keyspaces = [store.default_keyspace().clone(), store.keyspace("other")?];
        let mut after = told.states[told.acknowledged].clone();
        let mut batch = WriteBatch::new();
        for _ in 0..1 + rng.below(4) {
            let which = rng.index(2);
            let one = key(rng, KEYS);
            match rng.below(10) {
                0..7 => {
                    let value = value(rng);
                    batch.put(&keyspaces[which], &one, &value)?;
                    after[which].insert(one, value);
                }
                7..9 => {
                    batch.delete(&keyspaces[which], &one)?;
                    after[which].remove(&one);
                }
                _ => {
                    let end = key(rng, KEYS);
                    batch.delete_range(&keyspaces[which], &one, &end)?;
                    after[which].retain(|key, _| key < &one || key >= &end);
                }
            }
        }
        // From here on the operation may be found, whatever the answer will be.
        told.states.push(after);
        let durability = if rng.chance(0.2) { Durability::Synced } else { Durability::Buffered };
        if batch.is_empty() {
            told.acknowledged += 1;
            continue;
        }
        store.write_with(batch, durability)?;
        told.acknowledged += 1;
        if durability == Durability::Synced {
            told.synced = told.acknowledged;
        }
    }
    store.close()?;
    told.synced = told.acknowledged;
    Ok(())
}

/// Opens what a crash left and finds it equal to the state after some number of operations, at least `least`.
pub fn check(open: Opener<'_>, told: &Told, least: usize, seed: u64) {
    let store = open(seed).unwrap_or_else(|e| panic!("the store does not open after the crash: {e}"));
    let found = ["default", "other"].map(|name| match store.keyspace(name) {
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
