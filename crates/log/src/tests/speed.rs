//! Measurements, not claims: `cargo test -p situ-log --release speed -- --ignored --nocapture`. They use the Situ disk
//! named by `SITU_LOG_DISK` (with a log area of 300 MiB or more; all files on it are removed), the directory named by
//! `SITU_LOG_DIRECTORY`, or a temporary one.

use super::*;
use crate::files::Files;
use crate::shadow::Nowhere;
use situ_rawdisk::{RawOptions, RawVolume};
use std::time::{Duration, Instant};

fn volume() -> (Option<tempfile::TempDir>, Arc<dyn Volume>) {
    if let Some(path) = std::env::var_os("SITU_LOG_DISK") {
        let device = situ_device::open(path.as_ref(), situ_device::OpenOptions::default()).unwrap();
        let volume = RawVolume::open(device, Env::system(), RawOptions::default()).unwrap();
        for file in volume.list().unwrap() {
            volume.remove(file.name).unwrap();
        }
        volume.sync_names().unwrap();
        return (None, Arc::new(volume));
    }
    let directory = match std::env::var_os("SITU_LOG_DIRECTORY") {
        Some(path) => tempfile::tempdir_in(path).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let volume = DirectoryVolume::open(directory.path()).unwrap();
    (Some(directory), Arc::new(volume))
}

/// Records of 130 bytes from `threads` threads for a second: records and pages per second.
fn run(threads: usize, durability: Durability, in_flight_max: usize) {
    let (_directory, volume) = volume();
    let options = LogOptions { file_bytes: 256 << 20, in_flight_max, ..LogOptions::default() };
    let log = Log::create(volume, Env::system(), options, 1).unwrap();
    let started = Instant::now();
    let records: u64 = std::thread::scope(|scope| {
        let work = || {
            let mut count = 0;
            while started.elapsed() < Duration::from_secs(1) {
                for _ in 0..8 {
                    let Ok(lsn) = log.append(&[&[1; 30], &[2; 100]]) else { return count };
                    log.commit(lsn, durability).unwrap();
                    count += 1;
                }
            }
            count
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum()
    });
    let seconds = started.elapsed().as_secs_f64();
    let metrics = log.metrics();
    println!(
        "{threads:2} threads {durability:?} {in_flight_max} in flight: {:8.0} records/s, {:6.2} us each, {:8.0} writes/s, \
         {:.1} records a write, {:.2} pages a write, peak {}",
        records as f64 / seconds,
        seconds * 1e6 * threads as f64 / records as f64,
        metrics.writes as f64 / seconds,
        records as f64 / metrics.writes as f64,
        metrics.pages_written as f64 / metrics.writes as f64,
        metrics.in_flight_peak,
    );
}

/// What one page costs without a log.
fn bare(durable: bool) {
    let (_directory, volume) = volume();
    let file = volume.create_pages(FileName::Log(1), 64 << 20).unwrap();
    let buffer = situ_device::Buffer::new(PAGE_BYTES);
    let (started, mut count) = (Instant::now(), 0u64);
    while started.elapsed() < Duration::from_secs(1) {
        for _ in 0..16 {
            file.write(count / 29 % file.pages(), &buffer, 1, durable).unwrap();
            count += 1;
        }
    }
    println!("one page, durable {durable}: {:.2} us", started.elapsed().as_secs_f64() * 1e6 / count as f64);
}

#[test]
#[ignore = "measures the machine"]
fn buffered() {
    bare(false);
    for threads in [1, 2, 4, 16] {
        for in_flight_max in [1, 8] {
            run(threads, Durability::Buffered, in_flight_max);
        }
    }
}

#[test]
#[ignore = "measures the machine"]
fn synced() {
    bare(true);
    for threads in [1, 4, 16] {
        for in_flight_max in [1, 2, 4, 8] {
            run(threads, Durability::Synced, in_flight_max);
        }
    }
}

#[test]
#[ignore = "measures the machine"]
fn the_log_without_a_disk() {
    // Straight to the state machine's file: what append and commit cost by themselves. The best of many short rounds,
    // because the machine is shared.
    for durability in [Durability::Buffered, Durability::Synced] {
        let env = Env::system();
        let files = Files::open(Shadow::default().volume(), 0, 0, env.executor.event()).unwrap();
        let log =
            Log::over(files, env, &LogOptions::default(), 1, Arc::new(Nowhere { pages: 1 << 30, writes_wait: false }))
                .unwrap();
        let best = (0..200).map(|_| {
            let started = Instant::now();
            for _ in 0..5000 {
                let lsn = log.append(&[&[1; 30], &[2; 100]]).unwrap();
                log.commit(lsn, durability).unwrap();
            }
            started.elapsed().as_nanos() / 5000
        });
        println!("{durability:?}: {} ns for append and commit", best.min().unwrap());
    }
}

#[test]
#[ignore = "measures the machine"]
fn appending_alone() {
    let (_directory, volume) = volume();
    let options = LogOptions { buffer_bytes_max: 256 << 20, file_bytes: 256 << 20, ..LogOptions::default() };
    let log = Log::create(volume, Env::system(), options, 1).unwrap();
    for round in 0..3 {
        let started = Instant::now();
        for _ in 0..200_000 {
            log.append(&[&[1; 30], &[2; 100]]).unwrap();
        }
        println!("round {round}: {:.0} ns an append", started.elapsed().as_secs_f64() * 1e9 / 200_000.0);
        while log.advance(Durability::Buffered).unwrap() {}
    }
}
