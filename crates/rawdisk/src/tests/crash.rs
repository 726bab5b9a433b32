//! Power failures and kills at every change of the device.

use super::model::{Held, Told, check, lengthen, step};
use super::*;
use situ_sim::{CrashPoints, Rng, crash_device_everywhere};
use std::time::Duration;

const DEVICE_PAGES: u64 = 300;

/// A disk that was formatted before the machine was switched on.
fn formatted(env: &Env, plan: FaultPlan, seed: u64) -> SimDevice {
    let sim = SimExecutor::new(1);
    let device = SimDevice::new(&sim.env(), DEVICE_PAGES * PAGE, FaultPlan::none(), seed);
    sim.run(|| format(&sim.env(), &device, &small()));
    let device = device.crash(1).on(env);
    device.set_faults(plan);
    device
}

fn work(env: &Env, device: &SimDevice, seed: u64, threads: u64, steps: usize, long: bool) -> Vec<Told> {
    let Ok(volume) = open(env, device) else { return (0..threads).map(Told::new).collect() };
    let volume = Arc::new(volume);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let jobs: Vec<_> = (0..threads)
        .map(|thread| {
            let (volume, told) = (Arc::clone(&volume), Arc::clone(&told));
            let run = move || {
                let mut mine = Told::new(thread);
                let (mut rng, mut held) = (Rng::new(seed ^ thread << 32), Held::new());
                let lengthened = if long { lengthen(&volume, &mut rng, &mut mine) } else { Ok(()) };
                for _ in 0..if lengthened.is_ok() { steps } else { 0 } {
                    if step(&volume, &mut rng, &mut mine, &mut held).is_err() {
                        break;
                    }
                }
                told.lock().unwrap().push(mine);
            };
            env.executor.spawn("worker", Box::new(run)).unwrap()
        })
        .collect();
    jobs.into_iter().for_each(|job| job.join().unwrap());
    if volume.sync_names().is_ok() {
        check_room(&volume);
    }

    std::mem::take(&mut *told.lock().unwrap())
}

/// What a crash left is one of the states that it may leave, all of its metadata is sound, and it can be worked with.
fn check_image(env: &Env, device: &SimDevice, told: &[Told]) {
    let problems = RawVolume::check(device.reached(), env.clone()).unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
    let volume = open(env, device).unwrap();
    told.iter().for_each(|told| check(&volume, told));
    check_room(&volume);
    // A second life: what is found now stays, whatever a second crash takes.
    let names: Vec<FileName> = volume.list().unwrap().into_iter().map(|meta| meta.name).collect();
    let contents: Vec<Vec<u8>> = names.iter().map(|name| read(&volume, *name).unwrap()).collect();
    let new = FileName::Manifest(7);
    match write(&volume, new, &pattern(7, 9000)) {
        Ok(()) => {}
        Err(Error::NoSpace { .. }) => return,
        Err(error) => panic!("{error}"),
    }
    let after = open(env, &device.crash(3)).unwrap();
    assert!(read(&after, new).unwrap() == pattern(7, 9000));
    for (name, contents) in names.iter().zip(&contents) {
        // Pages that were not durable may have changed back.
        assert!(
            matches!(name, FileName::Log(_) | FileName::Spare(_))
                || read(&after, *name).is_ok_and(|now| now.len() == contents.len())
        );
    }
}

#[test]
fn promises_hold_at_every_crash_point() {
    for_each_seed(1, 10, |seed| {
        let latency = Duration::ZERO..Duration::from_micros(200);
        let faults = if seed % 2 == 0 { FaultPlan::none().latency(latency) } else { FaultPlan::none() };
        let options = CrashPoints { points_max: 120, images_per_point: 3, faults };
        let (threads, steps) = if seed % 3 == 0 { (3, 20) } else { (1, 60) };
        let images = crash_device_everywhere(
            seed,
            &options,
            |env, plan| formatted(env, plan, seed),
            |env, device| work(env, device, seed, threads, steps, false),
            |env, device, told| check_image(env, &device, told),
        );
        assert!(images > 100);
    });
}

/// With checkpoints whose bodies lie among the tables.
#[test]
fn promises_hold_at_every_crash_point_with_a_long_catalogue() {
    for_each_seed(100, 8, |seed| {
        let options = CrashPoints { points_max: 120, images_per_point: 3, faults: FaultPlan::none() };
        crash_device_everywhere(
            seed,
            &options,
            |env, plan| formatted(env, plan, seed),
            |env, device| work(env, device, seed, 1 + seed % 2, 60, true),
            |env, device, told| check_image(env, &device, told),
        );
    });
}

#[test]
fn promises_hold_when_an_operation_fails() {
    for_each_seed(500, 60, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let nth = 5 + seed % 67;
        let rule = match seed % 4 {
            0 => Rule::new(Fault::Io).on(&[Operation::WritePages]).nth(nth),
            1 => Rule::new(Fault::DropDirty).on(&[Operation::Sync]).nth(nth / 3),
            2 => Rule::new(Fault::Io).on(&[Operation::WritePages]).within(PAGE..9 * PAGE).nth(nth / 3),
            _ => Rule::new(Fault::Io).nth(nth),
        };
        let device = formatted(&env, FaultPlan::none().with(rule), seed);
        let told = sim.run(|| work(&env, &device, seed, 1 + seed % 3, 40, seed % 5 == 0));
        device.set_faults(FaultPlan::none());
        for image in 0..4 {
            let sim = SimExecutor::new(seed);
            let after = device.crash(seed ^ image).on(&sim.env());
            sim.run(|| check_image(&sim.env(), &after, &told));
        }
    });
}

/// Formatting at every crash point: the device is a sound empty disk, or none, and never the old one in part.
#[test]
fn a_format_that_is_interrupted_leaves_no_disk_or_the_new_one() {
    let other = FormatOptions { id: Some([9; 16]), force: true, ..small() };
    let images = crash_device_everywhere(
        3,
        &CrashPoints { points_max: 100, images_per_point: 6, faults: FaultPlan::none() },
        |env, plan| {
            let device = formatted(env, plan, 3);
            let sim = SimExecutor::new(2);
            let old = device.on(&sim.env());
            sim.run(|| write(&open(&sim.env(), &old).unwrap(), FileName::Table(1), b"old").unwrap());
            old.on(env)
        },
        |env, device| RawVolume::format(device.reached(), env.clone(), &other).is_ok(),
        |env, device, is_formatted| match open(env, &device) {
            Ok(volume) => {
                let report = volume.report();
                let is_new = report.id == DiskId([9; 16]);
                assert!(is_new || !is_formatted, "the format was acknowledged and the old disk is there");
                if is_new {
                    assert!(volume.list().unwrap().is_empty());
                    assert_eq!(report.generation, 2);
                } else {
                    assert_eq!(read(&volume, FileName::Table(1)).unwrap(), b"old");
                }
            }
            Err(error) => {
                assert!(!is_formatted, "{error}");
                assert!(error.to_string().contains("is not a Situ disk"), "{error}");
                RawVolume::format(device.reached(), env.clone(), &other).unwrap();
                assert!(open(env, &device).unwrap().list().unwrap().is_empty());
            }
        },
    );
    assert!(images > 20);
}

/// Of two flushes at a time one failed, and the device dropped what the other was to make durable; that one succeeded,
/// and its caller was told so before anybody knew of the failure.
#[test]
fn a_flush_that_fails_is_known_before_another_succeeds() {
    for_each_seed(0, 300, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let device = formatted(&env, FaultPlan::none(), seed);
        let told = sim.run(|| {
            let volume = Arc::new(open(&env, &device).unwrap());
            device.set_faults(FaultPlan::none().with(Rule::new(Fault::DropDirty).on(&[Operation::Sync]).nth(seed % 4)));
            let jobs: Vec<_> = (0..3)
                .map(|thread| {
                    let (volume, told) = (Arc::clone(&volume), Arc::new(std::sync::Mutex::new(0)));
                    let durable = Arc::clone(&told);
                    let work = move || {
                        for number in 1..=3 {
                            if write(&volume, FileName::Table(10 * thread + number), &pattern(number, 9000)).is_err() {
                                break;
                            }
                            *durable.lock().unwrap() = number;
                        }
                    };
                    (env.executor.spawn("writer", Box::new(work)).unwrap(), thread, told)
                })
                .collect();
            jobs.into_iter()
                .map(|(job, thread, told)| {
                    job.join().unwrap();
                    (thread, *told.lock().unwrap())
                })
                .collect::<Vec<_>>()
        });
        let sim = SimExecutor::new(seed);
        let after = device.crash(seed).on(&sim.env());
        sim.run(|| {
            let volume = open(&sim.env(), &after).unwrap();
            for (thread, durable) in told {
                for number in 1..=durable {
                    assert!(read(&volume, FileName::Table(10 * thread + number)).unwrap() == pattern(number, 9000));
                }
            }
        });
    });
}
