//! Readers beside trimming: real threads on a real directory, and the simulator's schedules.

use crate::model::{key_bytes, value};
use situ_base::Env;
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{DirectoryVolume, ReadQueue, Volume};
use situ_values::{Handle, Layout, Options, Trim, ValueLog, numbers_from};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LONGEST: u64 = 2500;

fn options(layout: Layout) -> Options {
    Options {
        segment_bytes: 256 << 10,
        trim: Trim::Full,
        zero_at_percent: 101,
        zero_above_percent: 100,
        layout,
        ..Options::default()
    }
}

/// Fills a log; the owner knows each record by its number.
fn filled(volume: Arc<dyn Volume>, env: &Env, layout: Layout, count: u64) -> (Arc<ValueLog>, Vec<Handle>) {
    let log = ValueLog::open(volume, env, options(layout), numbers_from(1), &[]).unwrap();
    let mut writer = log.writer();
    let append = |number| writer.append(number, &key_bytes(number), &value(number, 0, LONGEST)).unwrap();
    let handles = (0..count).map(append).collect();
    writer.finish().unwrap();
    (log, handles)
}

fn assert_reads(log: &ValueLog, handles: &[Handle], number: u64) {
    let found = log.read(&handles[number as usize], &key_bytes(number));
    let found = found.unwrap_or_else(|error| panic!("record {number}: {error}"));
    assert_eq!(*found, *value(number, 0, LONGEST), "record {number}");
}

/// Every fourth record lives; its sectors are written again and again while threads read it.
#[test]
fn threads_that_read_beside_trimming_see_nothing_but_values() {
    for layout in [Layout::Packed, Layout::OwnSectors] {
        let directory = tempfile::tempdir().unwrap();
        let volume = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
        let count = 2000;
        let (log, handles) = filled(volume, &Env::system(), layout, count);
        let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (log, handles, done, reads) = (&log, &handles, &done, &reads);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    while !done.load(Ordering::Relaxed) {
                        assert_reads(log, handles, rng.below(count / 4) * 4);
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut rng = Rng::new(9);
            let mut dying: Vec<u64> = (0..count).filter(|number| number % 4 != 0).collect();
            rng.shuffle(&mut dying);
            for batch in dying.chunks(60) {
                for number in batch {
                    let handle = handles[*number as usize];
                    log.died(handle.segment, &[handle]).unwrap();
                }
                while log.tidy().unwrap() {}
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(reads.load(Ordering::Relaxed) > 0);
        let trimmed = log.inflation();
        assert!(trimmed.trimmed_bytes > trimmed.dead_bytes / 2, "{trimmed:?}");
        (0..count / 4).for_each(|number| assert_reads(&log, &handles, number * 4));
    }
}

/// In the simulator, reads in flight meet each step of a write of their sector.
#[test]
fn reads_in_flight_meet_trimming_in_every_order() {
    for_each_seed(1, 12, |seed| {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        sim.run(|| {
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let count = 80;
            let (log, handles) = filled(Arc::new(volume), &env, Layout::Packed, count);
            let tidier = Arc::clone(&log);
            let dying: Vec<Handle> = handles.iter().enumerate().filter(|(n, _)| n % 3 != 0).map(|(_, h)| *h).collect();
            let job = move || {
                for batch in dying.chunks(5) {
                    batch.iter().for_each(|handle| tidier.died(handle.segment, &[*handle]).unwrap());
                    while tidier.tidy().unwrap() {}
                }
            };
            let tidying = env.executor.spawn("tidy", Box::new(job)).unwrap();
            let mut queue = ReadQueue::new(env.executor.event(), 8);
            let (mut next, mut done) = (0, Vec::new());
            while next < count || queue.in_flight() > 0 {
                while next < count && log.submit(&mut queue, next, &handles[next as usize]).unwrap() {
                    next += 3;
                }
                queue.wait(&mut done);
                for read in done.drain(..) {
                    let number = read.tag;
                    let found = log.finish_read(&handles[number as usize], &key_bytes(number), read).unwrap();
                    assert_eq!(*found, *value(number, 0, LONGEST));
                }
            }
            tidying.join().unwrap();
            assert!(log.counters().zeroed_sector_bytes > 0);
        });
    });
}

/// Two threads tidy, one writes, one collects: the sums stay exact.
#[test]
fn many_threads_share_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
    let log = ValueLog::open(volume, &Env::system(), options(Layout::Packed), numbers_from(1), &[]).unwrap();
    let done = AtomicBool::new(false);
    let live: u64 = std::thread::scope(|scope| {
        for _ in 0..2 {
            let (log, done) = (&log, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    log.tidy().unwrap();
                    std::thread::yield_now();
                }
            });
        }
        let writers: Vec<_> = (0..2u64)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let (mut rng, mut writer, mut live) = (Rng::new(thread), log.writer(), Vec::new());
                    for number in 0..1500 {
                        let handle = writer.append(0, b"k", &value(number, thread, LONGEST)).unwrap();
                        live.push((number, handle));
                        if number % 50 == 49 {
                            writer.sync().unwrap();
                            for _ in 0..35 {
                                let (_, dead) = live.swap_remove(rng.index(live.len()));
                                log.died(dead.segment, &[dead]).unwrap();
                            }
                        }
                    }
                    writer.finish().unwrap();
                    for (number, handle) in &live {
                        assert_eq!(*log.read(handle, b"k").unwrap(), *value(*number, thread, LONGEST));
                    }
                    live.iter().map(|(_, handle)| handle.footprint()).sum::<u64>()
                })
            })
            .collect();
        let sums = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        sums
    });
    assert_eq!(log.inflation().live_bytes, live);
}
