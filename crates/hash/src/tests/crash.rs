//! A crash at any change of any disk.

use super::model::{Nature, Shape, Told, check, device, draw, open, small};
use crate::Durability;
use situ_sim::{CrashPoints, Rng, crash_volumes_and_device_everywhere};

const LOCATIONS: [&str; 2] = ["home", "overflow"];

/// Writes at random, and crashes at many places.
fn crash_writes(seed: u64, nature: Nature, shape: Shape, steps: usize, options: &CrashPoints) -> u64 {
    crash_volumes_and_device_everywhere(
        seed,
        options,
        LOCATIONS,
        |env, plan| device(env, nature, plan, seed),
        |env, volumes, device| {
            let mut told = Told::default();
            let mut rng = Rng::new(seed);
            let Ok(store) = open(env, volumes, device, &small()) else { return told };
            for _ in 0..steps {
                let durability = if rng.chance(0.1) { Durability::Synced } else { Durability::Buffered };
                if !told.write(&store, draw(&mut rng, &shape), durability) {
                    break;
                }
                if rng.chance(0.03) && store.checkpoint().is_err() {
                    break;
                }
            }
            if rng.chance(0.5) {
                _ = store.close();
            }
            told
        },
        |env, volumes, device, told| {
            let store = open(env, &volumes, &device, &small()).unwrap_or_else(|error| panic!("reopened: {error}"));
            let prefix = check(&store, told, &shape);
            // And it is what the next process finds, too.
            store.put("after", "wards").unwrap();
            store.close().unwrap();
            let store = open(env, &volumes, &device, &small()).unwrap();
            assert_eq!(store.get("after").unwrap().as_deref(), Some(&b"wards"[..]));
            store.delete("after").unwrap();
            let whole = Told { steps: told.steps[..prefix].to_vec(), acknowledged: prefix, durable: prefix };
            check(&store, &whole, &shape);
        },
    )
}

fn few() -> CrashPoints {
    CrashPoints { points_max: 24, images_per_point: 2, ..CrashPoints::default() }
}

#[test]
fn a_crash_keeps_a_prefix_of_writes_on_a_safe_device() {
    situ_sim::for_each_seed(1, 2, |seed| {
        let shape = Shape { keys: 50, value_bytes_max: 900, deletes_of_ten: 3 };
        assert!(crash_writes(seed, Nature::Safe, shape, 80, &few()) > 0);
    });
}

#[test]
fn a_crash_keeps_a_prefix_of_writes_on_a_device_that_loses_and_tears() {
    situ_sim::for_each_seed(1, 2, |seed| {
        let shape = Shape { keys: 50, value_bytes_max: 900, deletes_of_ten: 3 };
        assert!(crash_writes(seed, Nature::Volatile, shape, 80, &few()) > 0);
    });
}
