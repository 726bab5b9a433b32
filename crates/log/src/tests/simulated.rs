//! Threads under a seeded scheduler on a volume that also loses names, fails and delays. A lock held across a volume
//! call, or a waiter that nobody wakes, is a deadlock that the simulator reports.

use super::*;
use situ_sim::{
    CrashPoints, Fault, FaultPlan, Operation, Rule, SimExecutor, SimVolume, crash_everywhere, for_each_seed,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Told {
    appended: Vec<Vec<u8>>,
    pub(super) durable: usize,
    /// Files below this one are not needed; they hold this many records.
    pub(super) oldest_needed: u64,
    released: usize,
    /// Records before the current file.
    begun: usize,
    /// The most writes that one thread had in flight.
    pub(super) flights: usize,
}

const THREADS: u64 = 4;

/// Threads append in one order, commit, rotate and release until done or until the disk refuses. One more thread keeps
/// writes in flight, where the disk has a queue for them.
pub(super) fn work(env: &Env, volume: Arc<dyn Volume>, seed: u64, each: usize) -> Told {
    let told = Arc::new(Mutex::new(Told::default()));
    let options = LogOptions { file_bytes: 6 * PAGE_BYTES as u64, in_flight_max: 3, ..LogOptions::default() };
    let Ok(log) = Log::create(volume, env.clone(), options, 1) else { return Told::default() };
    let jobs = (0..THREADS).map(|thread| {
        let (log, told) = (Arc::clone(&log), Arc::clone(&told));
        let work = move || _ = write(&log, &told, &mut Rng(seed ^ thread << 32), each);
        env.executor.spawn("writer", Box::new(work)).unwrap()
    });
    let jobs: Vec<_> = jobs.collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let flier = {
        let (log, told, env, is_over) = (Arc::clone(&log), Arc::clone(&told), env.clone(), Arc::clone(&is_over));
        env.clone().executor.spawn("flier", Box::new(move || fly(&log, &told, &env, seed, &is_over))).unwrap()
    };
    for job in jobs {
        job.join().unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    flier.join().unwrap();
    if Rng(seed).chance(50) && log.close().is_ok() {
        let mut told = told.lock().unwrap();
        told.durable = told.appended.len();
    }
    drop(log);
    Arc::into_inner(told).unwrap().into_inner().unwrap()
}

fn write(log: &Log, told: &Mutex<Told>, rng: &mut Rng, each: usize) -> Result<()> {
    for _ in 0..each {
        let (lsn, count) = append_shared(log, told, rng)?;
        if rng.chance(40) {
            // Left to other threads.
        } else if rng.chance(50) {
            log.commit(lsn, Durability::Synced)?;
            let mut told = told.lock().unwrap();
            told.durable = told.durable.max(count);
        } else if rng.chance(60) {
            log.commit(lsn, Durability::Buffered)?;
        } else if rng.chance(20) {
            // Everything before the current file goes, as after a flush.
            let oldest_needed = {
                let mut told = told.lock().unwrap();
                told.oldest_needed = log.file();
                told.released = told.begun;
                told.oldest_needed
            };
            log.release(oldest_needed)?;
        } else {
            log.advance(Durability::Synced)?;
        }
    }
    Ok(())
}

/// Begins writes and lands them until it is over. Those in flight then land when `flights` is dropped.
fn fly(log: &Arc<Log>, told: &Mutex<Told>, env: &Env, seed: u64, is_over: &AtomicBool) {
    let mut rng = Rng(seed ^ 0xf11e);
    let mut flights = log.flights();
    while !is_over.load(Ordering::Relaxed) {
        let durability = if rng.chance(70) { Durability::Synced } else { Durability::Buffered };
        flights.begin(|| durability, |_, _| ());
        {
            let most = &mut told.lock().unwrap().flights;
            *most = flights.count().max(*most);
        }
        match flights.count() {
            0 => env.clock.sleep(Duration::from_micros(30)),
            1 | 2 if rng.chance(90) => env.executor.yield_point(),
            _ => drop(flights.wait(&|| false)),
        }
    }
}

fn append_shared(log: &Log, told: &Mutex<Told>, rng: &mut Rng) -> Result<(Lsn, usize)> {
    loop {
        let next = {
            let mut told = told.lock().unwrap();
            let record = record(told.appended.len(), rng);
            match log.append(&[&record]) {
                Ok(lsn) => {
                    told.appended.push(record);
                    return Ok((lsn, told.appended.len()));
                }
                Err(AppendError::FileFull) => log.file() + 1,
                Err(error) => return Err(Error::Invalid(error.to_string())),
            }
        };
        match log.prepare_next(next, 4 * PAYLOAD_BYTES as u64) {
            // Another thread rotated meanwhile.
            Err(Error::Invalid(_)) => continue,
            Ok(false) => return Err(Error::Invalid("another thread could not make the file".to_owned())),
            Ok(true) => {}
            Err(error) => return Err(error),
        }
        let mut told = told.lock().unwrap();
        if log.file() < next {
            match log.rotate() {
                Ok(_) => told.begun = told.appended.len(),
                Err(AppendError::NotPrepared) => {}
                Err(error) => return Err(Error::Invalid(error.to_string())),
            }
        }
    }
}

pub(super) fn recovered(volume: &Arc<dyn Volume>, oldest_needed: u64) -> Vec<Vec<u8>> {
    let number = |name| match name {
        FileName::Log(number) if number >= oldest_needed => Some(number),
        _ => None,
    };
    let files: Vec<u64> = volume.list().unwrap().into_iter().filter_map(|meta| number(meta.name)).collect();
    bodies(read_files(volume, &files, RecoveryMode::Strict).unwrap().1)
}

/// What a crash left is what was promised, and a prefix of what was appended.
pub(super) fn check_found(volume: &Arc<dyn Volume>, told: &Told) -> Vec<Vec<u8>> {
    let found = recovered(volume, told.oldest_needed);
    let end = told.released + found.len();
    assert!(end >= told.durable, "{} promised, found up to {end}", told.durable);
    assert!(found[..] == told.appended[told.released..end], "what was found up to {end} is not what was appended");
    found
}

fn check(volume: SimVolume, told: &Told) {
    let dynamic = |volume: SimVolume| Arc::new(volume) as Arc<dyn Volume>;
    let found = check_found(&dynamic(volume.clone()), told);
    // What recovery found must be durable by then: the next log builds on it.
    let again = recovered(&dynamic(volume.crash(9)), told.oldest_needed);
    assert!(again == found, "a second crash took back what was recovered");
}

#[test]
fn promises_hold_at_every_crash_point_of_a_simulated_run() {
    for_each_seed(100, 6, |seed| {
        let latency = Duration::ZERO..Duration::from_micros(300);
        let faults = if seed % 2 == 0 { FaultPlan::none().latency(latency) } else { FaultPlan::none() };
        let options = CrashPoints { points_max: 40, images_per_point: 3, faults };
        crash_everywhere(
            seed,
            &options,
            |env, volume| work(env, Arc::new(volume.clone()), seed, 10),
            |_, volume, told| check(volume, told),
        );
    });
}

#[test]
fn promises_hold_on_a_failing_disk() {
    for_each_seed(200, 40, |seed| {
        let sim = SimExecutor::new(seed);
        let nth = 5 + seed % 37;
        let rule = match seed % 3 {
            0 => Rule::new(Fault::Io).on(&[Operation::WritePages]),
            1 => Rule::new(Fault::DropDirty).on(&[Operation::Sync]),
            _ => Rule::new(Fault::Io),
        };
        let volume = SimVolume::new(&sim.env(), FaultPlan::none().with(rule.nth(nth)), seed);
        let told = sim.run(|| work(&sim.env(), Arc::new(volume.clone()), seed, 10));
        volume.set_faults(FaultPlan::none());
        for image in 0..5 {
            check(volume.crash(seed ^ image), &told);
        }
    });
}

#[test]
fn the_same_seed_does_the_same() {
    let hash = |seed| {
        let sim = SimExecutor::new(seed);
        let volume = SimVolume::new(&sim.env(), FaultPlan::none(), seed);
        sim.run(|| work(&sim.env(), Arc::new(volume.clone()), seed, 8));
        volume.trace().hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// The spare stayed on the list under a name that it no longer had: every later file was to be made of it, and could
/// not.
#[test]
fn a_spare_whose_way_back_fails_too_is_released_as_the_log_file_it_became() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let log = Log::create(Arc::new(volume.clone()), env.clone(), small(), 1).unwrap();
        log.prepare_next(2, 0).unwrap();
        log.rotate().unwrap();
        let lsn = log.append(&[b"x"]).unwrap();
        log.commit(lsn, Durability::Synced).unwrap();
        log.release(2).unwrap();
        let names = || volume.list().unwrap().into_iter().map(|file| file.name).collect::<Vec<_>>();
        assert_eq!(names(), [FileName::Log(2), FileName::Spare(1)]);

        let broken = FaultPlan::none()
            .with(Rule::new(Fault::Io).on(&[Operation::Open]))
            .with(Rule::new(Fault::Io).on(&[Operation::Rename]).nth(1));
        volume.set_faults(broken);
        log.prepare_next(3, 0).unwrap_err();
        volume.set_faults(FaultPlan::none());
        assert_eq!(names(), [FileName::Log(2), FileName::Log(3)]);
        // Another number works, and nothing is left over.
        assert!(!log.prepare_next(3, 0).unwrap());
        assert!(log.prepare_next(4, 0).unwrap());
        log.rotate().unwrap();
        let lsn = log.append(&[b"y"]).unwrap();
        log.commit(lsn, Durability::Synced).unwrap();
        log.release(4).unwrap();
        let logs = names().into_iter().filter(|name| matches!(name, FileName::Log(_)));
        assert_eq!(logs.collect::<Vec<_>>(), [FileName::Log(4)]);
        log.close().unwrap();
    });
}
