//! Compactions of level 0 of which a part goes through the base level into the one below it.

use crate::common::{Model, compare};
use situ_engine::{Listener, Options, StoreBuilder, StoreEvent};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use std::sync::{Arc, Mutex};

/// Bytes written by compactions, by the levels that they are from and that their tables are in.
#[derive(Default)]
struct Heard {
    /// The compaction that runs; there is one thread.
    from: usize,
    written: [[u64; 7]; 7],
}

struct Ear(Mutex<Heard>);

impl Listener for Ear {
    fn event(&self, event: &StoreEvent) {
        let mut heard = self.0.lock().unwrap();
        match event {
            StoreEvent::CompactionBegun { from_level, .. } => heard.from = *from_level,
            StoreEvent::TableCreated { level, bytes, .. } if *level > 0 => {
                let from = heard.from;
                heard.written[from][*level] += bytes;
            }
            _ => {}
        }
    }
}

/// What level 0 brought used to be written into the base level as a whole, read again at once because that exceeded its
/// target, and written into the level below: of all that compactions wrote here, more than a quarter.
#[test]
fn what_level_0_brings_goes_through_the_base_level() {
    for_each_seed(0, 5, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let ear = Arc::new(Ear(Mutex::default()));
            let mut options = Options::default();
            options.compaction_threads = 1;
            options.keyspace.memtable_bytes = 16 << 10;
            options.keyspace.level_base_bytes = 64 << 10;
            options.keyspace.table_bytes = 16 << 10;
            options.keyspace.compression = vec![situ_engine::Compression::None];
            options.listener = Some(Arc::clone(&ear) as Arc<_>);
            let store = StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume)).unwrap();
            let keyspace = store.default_keyspace();
            let (mut rng, mut model) = (Rng::new(seed), Model::new());
            let mut snapshot = None;
            for n in 0..6000u32 {
                let key = (rng.below(5000) as u32).wrapping_mul(2_654_435_761).to_be_bytes();
                if n % 1500 == 700 {
                    let end = key[0].saturating_add(2).to_be_bytes();
                    keyspace.delete_range(key, end).unwrap();
                    model.retain(|other, _| !(&key[..]..&end[..]).contains(&&other[..]));
                } else if rng.chance(0.1) {
                    keyspace.delete(key).unwrap();
                    model.remove(&key[..]);
                } else {
                    let value = vec![n as u8; 100];
                    keyspace.put(key, &value).unwrap();
                    model.insert(key.to_vec(), value);
                }
                if n == 3000 {
                    snapshot = Some((store.snapshot().unwrap(), model.clone()));
                }
                // What a slower writer would see: compactions keep up.
                if n % 100 == 0 {
                    store.wait_idle().unwrap();
                }
            }
            compare(keyspace, &model, None, "now");
            let (snapshot, before) = snapshot.unwrap();
            compare(keyspace, &before, Some(&snapshot), "before");
            {
                let written = ear.0.lock().unwrap().written;
                let base = (1..7).find(|level| written[0][*level] > 0).unwrap();
                let (through, after) = (written[0][base + 1], written[base][base + 1]);
                assert!(base < 6 && through > 4 * after, "base level {base}: {written:?}");
            }
            keyspace.compact(None, None).unwrap();
            compare(keyspace, &model, None, "compacted");
            store.close().unwrap();
        });
    });
}
