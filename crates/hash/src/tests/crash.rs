//! A crash at any change of any disk.

use super::model::{BUCKETS_MAX, Done, Nature, Shape, Told, check, device_of, draw, open, small};
use crate::Durability;
use situ_base::Env;
use situ_sim::{CrashPoints, FaultPlan, Rng, SimDevice, SimExecutor, SimVolume, crash_volumes_and_device_everywhere};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const LOCATIONS: [&str; 2] = ["home", "overflow"];

/// The steps of a run.
#[derive(Clone, Copy)]
struct Plan {
    nature: Nature,
    /// First the store fills, then it empties.
    phases: [Shape; 2],
    steps_each: usize,
    /// The first opening after the crash crashes, too.
    crashes_again: bool,
    /// Buckets that have room on the device.
    buckets_max: u64,
}

fn fill(env: &Env, volumes: &[SimVolume; 2], device: &SimDevice, plan: &Plan, seed: u64) -> Told {
    let mut told = Told::default();
    let mut rng = Rng::new(seed);
    let Ok(store) = open(env, volumes, device, &small()) else { return told };
    'all: for shape in plan.phases {
        for _ in 0..plan.steps_each {
            let durability = if rng.chance(0.1) { Durability::Synced } else { Durability::Buffered };
            if !told.write(&store, draw(&mut rng, &shape), durability) {
                break 'all;
            }
            if rng.chance(0.03) && store.checkpoint().is_err() {
                break 'all;
            }
        }
    }
    told.note(&store);
    if rng.chance(0.5) {
        _ = store.close();
    }
    told
}

/// The disks as another crash leaves them that comes while the store is opened.
fn crash_while_opening(
    env: &Env,
    volumes: [SimVolume; 2],
    device: SimDevice,
    seed: u64,
) -> ([SimVolume; 2], SimDevice) {
    let mut rng = Rng::new(seed);
    volumes.iter().for_each(|volume| volume.share_power(&device));
    match rng.below(3) {
        0 => device.crash_at(device.changes() + rng.below(12)),
        1 => volumes[0].crash_at(volumes[0].changes() + rng.below(20)),
        _ => volumes[1].crash_at(volumes[1].changes() + rng.below(40)),
    }
    drop(open(env, &volumes, &device, &small()));
    let after = [volumes[0].crash(rng.next_u64()), volumes[1].crash(rng.next_u64())];
    (after, device.crash(rng.next_u64()))
}

/// Writes at random, and crashes at many places. Returns what all undisturbed runs have done.
fn crash_writes(seed: u64, plan: &Plan, points: &CrashPoints) -> Done {
    let done = Mutex::new(Done::default());
    crash_volumes_and_device_everywhere(
        seed,
        points,
        LOCATIONS,
        |env, faults| device_of(env, plan.nature, plan.buckets_max, faults, seed),
        |env, volumes, device| {
            let told = fill(env, volumes, device, plan, seed);
            done.lock().unwrap().add(&told.done);
            told
        },
        |env, volumes, device, told| {
            let shape = plan.phases[0];
            let (volumes, device) = match plan.crashes_again {
                true => crash_while_opening(env, volumes, device, seed),
                false => (volumes, device),
            };
            let store = open(env, &volumes, &device, &small()).unwrap_or_else(|error| panic!("reopened: {error}"));
            let prefix = check(&store, told, &shape);
            // And it is what the next process finds, too.
            store.put("after", "wards").unwrap();
            store.close().unwrap();
            let store = open(env, &volumes, &device, &small()).unwrap();
            assert_eq!(store.get("after").unwrap().as_deref(), Some(&b"wards"[..]));
            store.delete("after").unwrap();
            let mut told = told.cut_to(prefix);
            check(&store, &told, &shape);
            // And what a crash has left does no harm later.
            let mut rng = Rng::new(seed + 1);
            for _ in 0..plan.steps_each / 2 {
                assert!(told.write(&store, draw(&mut rng, &shape), Durability::Buffered));
            }
            told.durable = told.acknowledged;
            check(&store, &told, &shape);
        },
    );
    done.into_inner().unwrap()
}

fn points(points_max: u64) -> CrashPoints {
    CrashPoints { points_max, images_per_point: 2, ..CrashPoints::default() }
}

const FULL: Shape = Shape { keys: 60, value_bytes_max: 900, deletes_of_ten: 3 };
const FILLS: Shape = Shape { keys: 60, value_bytes_max: 900, deletes_of_ten: 1 };
const EMPTIES: Shape = Shape { keys: 60, value_bytes_max: 300, deletes_of_ten: 9 };

#[test]
fn a_crash_keeps_a_prefix_of_writes() {
    for nature in [Nature::Safe, Nature::Volatile] {
        let mut done = Done::default();
        situ_sim::for_each_seed(1, 2, |seed| {
            let plan =
                Plan { nature, phases: [FULL; 2], steps_each: 40, crashes_again: false, buckets_max: BUCKETS_MAX };
            done.add(&crash_writes(seed, &plan, &points(20)));
        });
        assert!(done.overflowed > 0 && done.splits > 0 && done.checkpoints > 0, "{nature:?}: {done:?}");
    }
}

#[test]
fn a_crash_in_the_middle_of_growing_and_shrinking_keeps_a_prefix_of_writes() {
    for nature in [Nature::Safe, Nature::Volatile] {
        let mut done = Done::default();
        situ_sim::for_each_seed(10, 2, |seed| {
            let plan = Plan {
                nature,
                phases: [FILLS, EMPTIES],
                steps_each: 100,
                crashes_again: false,
                buckets_max: BUCKETS_MAX,
            };
            done.add(&crash_writes(seed, &plan, &points(20)));
        });
        assert!(done.overflowed > 0 && done.splits > 0 && done.merges > 0, "{nature:?}: {done:?}");
    }
}

#[test]
fn a_crash_while_a_store_recovers_keeps_a_prefix_of_writes() {
    for nature in [Nature::Safe, Nature::Volatile] {
        situ_sim::for_each_seed(20, 2, |seed| {
            let plan = Plan {
                nature,
                phases: [FILLS, EMPTIES],
                steps_each: 60,
                crashes_again: true,
                buckets_max: BUCKETS_MAX,
            };
            crash_writes(seed, &plan, &points(16));
        });
    }
}

#[test]
fn a_crash_keeps_a_prefix_of_writes_where_buckets_overflow() {
    for nature in [Nature::Safe, Nature::Volatile] {
        let mut done = Done::default();
        situ_sim::for_each_seed(30, 3, |seed| {
            let plan = Plan { nature, phases: [FILLS, FULL], steps_each: 60, crashes_again: false, buckets_max: 5 };
            done.add(&crash_writes(seed, &plan, &points(16)));
        });
        assert!(done.overflowed > 100 && done.checkpoints > 0, "{nature:?}: {done:?}");
    }
}

/// A checkpoint gives the log up. So the buckets and the overflow have all of it, deletions from the overflow included.
#[test]
fn all_that_was_written_before_a_checkpoint_survives_it() {
    for nature in [Nature::Safe, Nature::Volatile] {
        situ_sim::for_each_seed(40, 3, |seed| {
            let sim = SimExecutor::new(seed);
            let env = sim.env();
            let volumes = LOCATIONS.map(|location| SimVolume::named(&env, location, FaultPlan::none(), seed));
            let device = device_of(&env, nature, 5, FaultPlan::none(), seed);
            let many = Shape { keys: 90, value_bytes_max: 900, deletes_of_ten: 0 };
            let deletes = Shape { deletes_of_ten: 10, ..many };
            sim.run(|| {
                let mut rng = Rng::new(seed);
                let mut told = Told::default();
                let store = open(&env, &volumes, &device, &small()).unwrap();
                for (round, shape) in [many, deletes, deletes, deletes].into_iter().enumerate() {
                    for _ in 0..if round == 0 { 120 } else { 5 } {
                        assert!(told.write(&store, draw(&mut rng, &shape), Durability::Buffered));
                    }
                    store.checkpoint().unwrap();
                    told.durable = told.acknowledged;
                    assert!(store.properties().totals.overflow_entries > 0);
                    for image in 0..4 {
                        let after = volumes.each_ref().map(|volume| volume.crash(image));
                        let store = open(&env, &after, &device.crash(image), &small()).unwrap();
                        check(&store, &told, &many);
                    }
                }
            });
        });
    }
}

#[test]
fn a_crash_keeps_a_prefix_of_writes_with_large_values() {
    const LARGE: Shape = Shape { keys: 30, value_bytes_max: 3000, deletes_of_ten: 2 };
    for nature in [Nature::Safe, Nature::Volatile] {
        let mut done = Done::default();
        situ_sim::for_each_seed(50, 2, |seed| {
            let buckets_max = BUCKETS_MAX;
            let plan = Plan { nature, phases: [LARGE; 2], steps_each: 60, crashes_again: seed % 2 == 1, buckets_max };
            done.add(&crash_writes(seed, &plan, &points(20)));
        });
        assert!(done.collections > 0, "{nature:?}: {done:?}");
    }
}

/// After the death of the process, the store knows which bytes of the value log are alive. What a batch or a collection
/// under way has appended, and no bucket has, counts as alive, too. So the count is mostly exact where all was applied,
/// and never too small.
#[test]
fn the_death_of_the_process_forgets_no_garbage() {
    const LARGE: Shape = Shape { keys: 12, value_bytes_max: 3000, deletes_of_ten: 2 };
    let (exact, all) = (AtomicU64::new(0), AtomicU64::new(0));
    for nature in [Nature::Safe, Nature::Volatile] {
        situ_sim::for_each_seed(60, 8, |seed| {
            let sim = SimExecutor::new(seed);
            let env = sim.env();
            let volumes = LOCATIONS.map(|location| SimVolume::named(&env, location, FaultPlan::none(), seed));
            let device = device_of(&env, nature, BUCKETS_MAX, FaultPlan::none(), seed);
            sim.run(|| {
                let mut rng = Rng::new(seed);
                let mut told = Told::default();
                let store = open(&env, &volumes, &device, &small()).unwrap();
                for _ in 0..3 {
                    for _ in 0..rng.below(40) + 5 {
                        assert!(told.write(&store, draw(&mut rng, &LARGE), Durability::Buffered));
                        if rng.chance(0.05) {
                            store.checkpoint().unwrap();
                        }
                    }
                    let is_idle = rng.chance(0.7);
                    if is_idle {
                        // All is applied, and mostly the keeper has nothing to do.
                        store.checkpoint().unwrap();
                        (0..6).for_each(|_| {
                            assert!(told.write(&store, draw(&mut rng, &LARGE), Durability::Buffered));
                        });
                        store.count().unwrap();
                    }
                    let after = volumes.each_ref().map(|volume| volume.on(&env));
                    let store = open(&env, &after, &device.on(&env), &small()).unwrap();
                    told.durable = told.acknowledged;
                    check(&store, &told, &LARGE);
                    // A collected segment is gone at the next checkpoint.
                    for _ in 0..3 {
                        store.checkpoint().unwrap();
                        while store.inner.core.keeper.collects.load(Ordering::Acquire) {
                            env.clock.sleep(std::time::Duration::from_millis(1));
                        }
                    }
                    let (counted, found) = (store.properties().value_live_bytes, store.verify().unwrap().value_bytes);
                    assert!(counted >= found, "{counted} bytes are counted, and {found} are alive");
                    // A segment whose sums are in doubt has eight bytes that may be alive, until a walk shows that it
                    // has none.
                    let in_doubt = store.inner.core.large.log.segments().iter().filter(|s| s.sums_are_doubtful).count();
                    let is_exact = counted - found <= 8 * in_doubt as u64;
                    all.fetch_add(u64::from(is_idle), Ordering::Relaxed);
                    exact.fetch_add(u64::from(is_idle && is_exact), Ordering::Relaxed);
                }
            });
        });
    }
    let (exact, all) = (exact.into_inner(), all.into_inner());
    assert!(exact * 4 >= all * 3, "{exact} of {all} counts are exact");
}
