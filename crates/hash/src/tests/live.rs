//! A store that runs.

use super::model::{Nature, Shape, apply, batch_of, check_sound, contents, device, draw, open, small};
use crate::{Durability, Error, HashOptions, HashStore};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume};
use std::collections::BTreeMap;

#[test]
fn a_store_in_a_directory_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = HashOptions { bucket_space_bytes: 1 << 26, ..HashOptions::default() };
    let store = HashStore::open(directory.path(), options.clone()).unwrap();
    for number in 0..200_u32 {
        store.put(number.to_le_bytes(), vec![number as u8; 300]).unwrap();
    }
    store.delete(7_u32.to_le_bytes()).unwrap();
    store.put_with("synced", "yes", Durability::Synced, None).unwrap();
    assert_eq!(store.count().unwrap(), 200);
    store.close().unwrap();
    assert!(matches!(store.get("synced"), Err(Error::Closed)));
    let store = HashStore::open(directory.path(), options).unwrap();
    assert_eq!(store.get("synced").unwrap().unwrap(), b"yes");
    assert_eq!(store.get(7_u32.to_le_bytes()).unwrap(), None);
    assert_eq!(store.get(9_u32.to_le_bytes()).unwrap().unwrap(), vec![9; 300]);
    assert_eq!(store.count().unwrap(), 200);
    check_sound(&store);
}

#[test]
fn random_writes_read_like_a_map() {
    for nature in [Nature::Safe, Nature::Volatile] {
        situ_sim::for_each_seed(100, 4, |seed| {
            let sim = SimExecutor::new(seed);
            let env = sim.env();
            let volumes =
                [SimVolume::new(&env, FaultPlan::none(), seed), SimVolume::new(&env, FaultPlan::none(), seed)];
            let device = device(&env, nature, FaultPlan::none(), seed);
            let shape = Shape { keys: 60, value_bytes_max: 900, deletes_of_ten: 3 };
            sim.run(|| {
                let mut rng = Rng::new(seed);
                let mut map = BTreeMap::new();
                for _ in 0..3 {
                    let store = open(&env, &volumes, &device, &small()).unwrap();
                    assert_eq!(contents(&store, &shape), map);
                    for _ in 0..120 {
                        let step = draw(&mut rng, &shape);
                        store.write(batch_of(&step), Durability::Buffered).unwrap();
                        apply(&mut map, &step);
                        let (key, _) = &step[0];
                        assert_eq!(store.get(key).unwrap(), map.get(key).cloned());
                    }
                    assert_eq!(contents(&store, &shape), map);
                    assert_eq!(store.count().unwrap(), map.len() as u64);
                    check_sound(&store);
                    assert_eq!(contents(&store, &shape), map);
                    store.close().unwrap();
                }
            });
        });
    }
}
