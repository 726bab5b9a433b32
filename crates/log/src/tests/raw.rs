//! The log on a device without a file system: the runs of [`simulated`](super::simulated), crashed at each change of
//! the device. A page torn, a page lost in the middle of several in flight, stale pages of the file that had the group
//! before, metadata torn: all of it happens here.

use super::simulated::{Told, check_found, recovered, work};
use super::*;
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, Operation, Rule, SimDevice, SimExecutor, crash_device_everywhere, for_each_seed,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PAGE: u64 = PAGE_BYTES as u64;

fn open(env: &Env, device: &SimDevice) -> Result<Arc<dyn Volume>> {
    let volume = RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes: 0 })?;
    Ok(Arc::new(volume))
}

/// A formatted disk with a log area for some ten files, and a journal that is full after a few changes.
fn formatted(env: &Env, plan: FaultPlan, seed: u64) -> SimDevice {
    let sim = SimExecutor::new(1);
    let device = SimDevice::new(&sim.env(), 256 * PAGE, FaultPlan::none(), seed);
    let (log_bytes, journal_half_bytes) = (Some(80 * PAGE), Some(4 * PAGE));
    let options = FormatOptions { log_bytes, journal_half_bytes, ..FormatOptions::default() };
    sim.run(|| RawVolume::format(device.reached(), sim.env(), &options)).unwrap();
    let device = device.crash(1).on(env);
    device.set_faults(plan);
    device
}

fn live(env: &Env, device: &SimDevice, seed: u64) -> Told {
    open(env, device).map(|volume| work(env, volume, seed, 10)).unwrap_or_default()
}

fn check(env: &Env, device: &SimDevice, told: &Told) {
    let found = check_found(&open(env, device).unwrap(), told);
    // What recovery found must be durable by then: the next log builds on it.
    let again = recovered(&open(env, &device.crash(9)).unwrap(), told.oldest_needed);
    assert!(again == found, "a second crash took back what was recovered");
}

#[test]
fn promises_hold_at_every_crash_point_on_a_raw_disk() {
    let (flights, seeds, checked) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    for_each_seed(300, 6, |seed| {
        let latency = Duration::ZERO..Duration::from_micros(300);
        let faults = if seed % 2 == 0 { FaultPlan::none().latency(latency) } else { FaultPlan::none() };
        let images = crash_device_everywhere(
            seed,
            &CrashPoints { points_max: 60, images_per_point: 3, faults },
            |env, plan| formatted(env, plan, seed),
            |env, device| {
                let told = live(env, device, seed);
                flights.fetch_max(told.flights, Ordering::Relaxed);
                told
            },
            |env, device, told| check(env, &device, told),
        );
        seeds.fetch_add(1, Ordering::Relaxed);
        checked.fetch_add(images as usize, Ordering::Relaxed);
    });
    // One run may be short.
    let seeds = seeds.into_inner();
    assert!(seeds == 1 || checked.into_inner() > 100 * seeds);
    // Over the driver alone, a write has mostly landed when the next pages wait.
    let is_driven = std::env::var("SITU_SIM_NVME").is_ok_and(|which| which == "all");
    assert!(is_driven || flights.into_inner() > 1, "no thread had two writes in flight");
}

#[test]
fn promises_hold_on_a_failing_raw_disk() {
    for_each_seed(400, 40, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let nth = 5 + seed % 37;
        let rule = match seed % 3 {
            0 => Rule::new(Fault::Io).on(&[Operation::WritePages]).nth(nth),
            1 => Rule::new(Fault::DropDirty).on(&[Operation::Sync, Operation::WritePages]).nth(nth / 2),
            _ => Rule::new(Fault::Io).nth(nth),
        };
        // With latency, other writes are in flight when one fails.
        let latency = Duration::ZERO..Duration::from_micros(if seed % 2 == 0 { 300 } else { 1 });
        let device = formatted(&env, FaultPlan::none().with(rule).latency(latency), seed);
        let told = sim.run(|| live(&env, &device, seed));
        device.set_faults(FaultPlan::none());
        for image in 0..5 {
            let sim = SimExecutor::new(seed);
            let after = device.crash(seed ^ image).on(&sim.env());
            sim.run(|| check(&sim.env(), &after, &told));
        }
    });
}

/// A store that was destroyed leaves its pages; the next one begins with the same file numbers. Were its first log
/// given the pages of the old one as they are, recovery would read records of the dead store.
#[test]
fn a_second_store_on_the_disk_reads_nothing_of_the_first() {
    for_each_seed(500, 10, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let device = formatted(&env, FaultPlan::none(), seed);
        sim.run(|| {
            let first = work(&env, open(&env, &device).unwrap(), seed, 10);
            assert!(first.durable > 0);
            let volume = open(&env, &device).unwrap();
            for file in volume.list().unwrap() {
                volume.remove(file.name).unwrap();
            }
            volume.sync_names().unwrap();
            let second = work(&env, volume, seed ^ 77, 3);
            for image in 0..10 {
                check(&env, &device.crash(image), &second);
            }
        });
    });
}
