//! Promises 1, 3 and 4 on a directory and a fast disk without a file system: the device crashes at each of its changes, and
//! the directory loses what was not durable in it at some later moment.

mod common;

use common::prefix::{Told, check, workload};
use common::small_options;
use situ_device::Env;
use situ_engine::{Error, Store, StoreBuilder};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, Operation, Rng, Rule, SimDevice, SimExecutor, SimVolume, crash_device_everywhere,
    for_each_seed,
};
use situ_storage::{FormatOptions, RawOptions, RawVolume};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGE: u64 = 4096;

fn open(env: &Env, home: &SimVolume, device: &SimDevice, seed: u64) -> Result<Store, Error> {
    let fast = RawVolume::open(Arc::new(device.clone()), env.clone(), RawOptions { cache_bytes: 1 << 20 })?;
    let builder = StoreBuilder::new(small_options(&mut Rng::new(seed))).env(env.clone());
    builder.open_volumes(Arc::new(home.clone()), Some(Arc::new(fast)))
}

fn formatted(env: &Env, plan: FaultPlan, pages: u64, log_pages: u64) -> SimDevice {
    let sim = SimExecutor::new(1);
    let device = SimDevice::new(&sim.env(), pages * PAGE, FaultPlan::none(), 1);
    let (log_bytes, journal_half_bytes) = (Some(log_pages * PAGE), Some(8 * PAGE));
    let options = FormatOptions { log_bytes, journal_half_bytes, ..FormatOptions::default() };
    sim.run(|| RawVolume::format(Arc::new(device.clone()), sim.env(), &options)).unwrap();
    let device = device.on(env);
    device.set_faults(plan);
    device
}

/// A life of a store, and its home as that left it.
fn live(env: &Env, device: &SimDevice, seed: u64) -> (Told, SimVolume) {
    let home = SimVolume::new(env, FaultPlan::none(), seed);
    let told = workload(&|seed| open(env, &home, device, seed), seed, 60);
    (told, home)
}

fn check_image(env: &Env, device: &SimDevice, (told, home): &(Told, SimVolume), seed: u64) {
    let found = RawVolume::check(Arc::new(device.clone()), env.clone()).unwrap();
    assert!(found.problems.is_empty(), "{found:?}");
    let home = home.crash(seed).on(env);
    check(&|seed| open(env, &home, device, seed), told, told.synced, seed);
}

#[test]
fn promise_1_3_4_a_raw_disk_that_loses_power_leaves_a_whole_prefix_with_all_that_was_synced() {
    let mut all = 0;
    for_each_seed(1, 8, |seed| {
        let images = crash_device_everywhere(
            seed,
            &CrashPoints { points_max: 50, images_per_point: 2, faults: FaultPlan::none() },
            |env, plan| formatted(env, plan, 1200, 400),
            |env, device| live(env, device, seed),
            |env, device, told| check_image(env, &device, told, seed),
        );
        all += images;
    });
    assert!(all > 100, "only {all} images");
}

/// The raw disk has so little room that log files and tables of all levels spill.
#[test]
fn promise_1_3_4_a_power_failure_while_the_raw_disk_is_full() {
    for_each_seed(100, 6, |seed| {
        let mut rng = Rng::new(seed);
        let (log_pages, top_pages) = (10 + rng.below(80), 10 + rng.below(80));
        crash_device_everywhere(
            seed,
            &CrashPoints { points_max: 40, images_per_point: 2, faults: FaultPlan::none() },
            |env, plan| formatted(env, plan, 50 + log_pages + top_pages, log_pages),
            |env, device| live(env, device, seed),
            |env, device, told| check_image(env, &device, told, seed),
        );
    });
}

#[test]
fn promise_1_3_7_a_raw_disk_that_fails_takes_nothing_that_was_synced() {
    for_each_seed(200, 40, |seed| {
        let mut rng = Rng::new(seed);
        let fault = if rng.chance(0.5) { Fault::Io } else { Fault::NotFound };
        let nth = rng.below(500);
        let rule = if rng.chance(0.5) { Rule::new(fault).from(nth) } else { Rule::new(fault).nth(nth) };
        let sim = SimExecutor::new(seed);
        let device = formatted(&sim.env(), FaultPlan::none().with(rule), 1200, 400);
        let told = sim.run(|| live(&sim.env(), &device, seed));
        let sim = SimExecutor::new(seed + 1);
        let after = device.crash(rng.next_u64()).on(&sim.env());
        sim.run(|| check_image(&sim.env(), &after, &told, seed));
    });
}

/// A raw disk whose metadata cannot be written any more still lists its files and reads them, and removes none: a drain in
/// the middle of which that happened went on for ever.
#[test]
fn a_raw_disk_that_takes_no_changes_ends_a_drain_with_its_error() {
    let mut ends = [0, 0];
    for_each_seed(1, 40, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let device = formatted(&env, FaultPlan::none(), 1200, if seed % 2 == 0 { 400 } else { 1 });
        let ended = sim.run(|| {
            let home = SimVolume::new(&env, FaultPlan::none(), seed);
            let store = open(&env, &home, &device, seed).unwrap();
            for round in 0..3u8 {
                (0..150u64).for_each(|key| store.put(&key.to_be_bytes(), &[round; 50]).unwrap());
                store.flush().unwrap();
            }
            let fault = Rule::new(Fault::Io).on(&[Operation::WritePages]).within(PAGE..17 * PAGE).from(seed % 8);
            device.set_faults(FaultPlan::none().with(fault));
            let (ended, draining) = (Arc::new(Mutex::new(None)), store.clone());
            let result = Arc::clone(&ended);
            let drain = move || *result.lock().unwrap() = Some(draining.drain_fast_disk().is_ok());
            let job = env.executor.spawn("drain", Box::new(drain)).unwrap();
            env.clock.sleep(Duration::from_secs(3600));
            let ended = ended.lock().unwrap().expect("an hour later the drain goes on");
            job.join().unwrap();
            assert_eq!(store.get(&7u64.to_be_bytes()).unwrap().as_deref(), Some(&[2; 50][..]));
            ended
        });
        ends[usize::from(ended)] += 1;
    });
    assert!(ends[0] > 5, "{ends:?}");
}
