//! The simulator against small logs: those with a classic bug must fail for some seed, the right ones for none.

use situ_base::Env;
use situ_device::PAGE_BYTES;
use situ_sim::{CrashPoints, SimVolume, crash_everywhere};
use situ_storage::{Buffer, FileName, PageFile, Result, Volume};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const LOG: FileName = FileName::Log(1);
/// Longer than a sector, so that a record can be torn.
const RECORD_BYTES: usize = 700;

/// `number`, filler made from it, and a checksum.
fn record(number: u64) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(RECORD_BYTES - 8, number as u8 + 1);
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// How many records, from the front, a log holds; stops at the first bad one. `checked` is false in the buggy reader.
fn recover(volume: &SimVolume, checked: bool) -> u64 {
    let Some(contents) = volume.contents(LOG) else { return 0 };
    let good = |(number, bytes): &(usize, &[u8])| !checked || *bytes == record(*number as u64);
    let records = contents.chunks_exact(RECORD_BYTES).enumerate();
    records.take_while(good).inspect(|(n, bytes)| assert_eq!(*bytes, record(*n as u64), "record {n} is wrong")).count()
        as u64
}

/// Whether the simulator finds fault with a log in one of `seeds` worlds.
fn is_broken<T: Send + Sync>(
    seeds: u64,
    workload: impl Fn(&Env, &SimVolume) -> T + Sync,
    check: impl Fn(&Env, SimVolume, &T) + Sync,
) -> bool {
    let options = CrashPoints { images_per_point: 4, ..CrashPoints::default() };
    (0..seeds)
        .any(|seed| catch_unwind(AssertUnwindSafe(|| crash_everywhere(seed, &options, &workload, &check))).is_err())
}

/// Appends ten records and returns how many are acknowledged as durable.
fn append(volume: &SimVolume, sync_every: u64, acknowledge_early: bool) -> u64 {
    let mut acknowledged = 0;
    let mut run = || -> Result<()> {
        let mut writer = volume.create(LOG, 0)?;
        for number in 0..10 {
            writer.append(&record(number))?;
            writer.flush()?;
            let synced = (number + 1) % sync_every == 0;
            if synced {
                writer.sync()?;
            }
            if synced || acknowledge_early {
                acknowledged = number + 1;
            }
        }
        Ok(())
    };
    // The error is the crash: what counts is what was acknowledged before it.
    let _ = run();
    acknowledged
}

fn keeps_acknowledged(_env: &Env, volume: SimVolume, acknowledged: &u64) {
    let found = recover(&volume, true);
    assert!(found >= *acknowledged, "{acknowledged} records were acknowledged, {found} are there");
}

#[test]
fn a_log_that_syncs_before_it_acknowledges_is_right() {
    assert!(!is_broken(20, |_, volume| append(volume, 1, false), keeps_acknowledged));
    assert!(!is_broken(20, |_, volume| append(volume, 3, false), keeps_acknowledged));
}

#[test]
fn a_log_that_acknowledges_before_it_syncs_is_caught() {
    assert!(is_broken(3, |_, volume| append(volume, 3, true), keeps_acknowledged));
}

#[test]
fn a_reader_that_does_not_check_is_caught() {
    let trusting = |_: &Env, volume: SimVolume, _: &u64| drop(recover(&volume, false).to_string());
    assert!(is_broken(3, |_, volume| append(volume, 3, false), trusting));
}

/// Writes a log under a temporary name, then gives it the right one.
fn rename_in_place(volume: &SimVolume, sync_names: bool) -> u64 {
    let run = || -> Result<()> {
        let temporary = FileName::Temporary(1);
        let mut writer = volume.create(temporary, 0)?;
        writer.append(&record(0))?;
        writer.finish()?;
        volume.rename(temporary, LOG)?;
        if sync_names { volume.sync_names() } else { Ok(()) }
    };
    u64::from(run().is_ok())
}

#[test]
fn a_rename_without_a_directory_sync_is_caught() {
    assert!(!is_broken(20, |_, volume| rename_in_place(volume, true), keeps_acknowledged));
    assert!(is_broken(5, |_, volume| rename_in_place(volume, false), keeps_acknowledged));
}

/// Pages written by several threads at once; who acknowledges past a hole loses data.
struct PageLog {
    file: Arc<dyn PageFile>,
    next: AtomicU64,
    /// Durable pages behind the watermark, and the watermark; None after a failure.
    durable: Mutex<Option<(BTreeSet<u64>, u64)>>,
    acknowledged: Mutex<Vec<u64>>,
}

impl PageLog {
    fn append(&self, env: &Env, event: &dyn situ_base::Event, wait_for_hole: bool) -> Option<()> {
        let page = self.next.fetch_add(1, Ordering::SeqCst);
        let mut buffer = Buffer::new(PAGE_BYTES);
        buffer[..RECORD_BYTES].copy_from_slice(&record(page));
        let written = self.file.write(page, &buffer, 1, true);
        {
            let mut guard = self.durable.lock().unwrap();
            if written.is_err() {
                *guard = None;
            }
            if let Some((behind, watermark)) = guard.as_mut() {
                behind.insert(page);
                while behind.remove(watermark) {
                    *watermark += 1;
                }
            }
        }
        event.notify();
        loop {
            let seen = event.generation();
            let watermark = self.durable.lock().unwrap().as_ref()?.1;
            if watermark > page || !wait_for_hole {
                self.acknowledged.lock().unwrap().push(page);
                env.executor.yield_point();
                return Some(());
            }
            event.wait(seen, None);
        }
    }
}

fn append_in_parallel(env: &Env, volume: &SimVolume, wait_for_hole: bool) -> Vec<u64> {
    let Ok(file) = volume.create_pages(LOG, 12 * PAGE_BYTES as u64) else { return Vec::new() };
    let (durable, acknowledged) = (Mutex::new(Some((BTreeSet::new(), 0))), Mutex::default());
    let log = Arc::new(PageLog { file, next: AtomicU64::new(0), durable, acknowledged });
    let event = env.executor.event();
    let jobs: Vec<_> = (0..3)
        .map(|number| {
            let (env, log, event) = (env.clone(), Arc::clone(&log), Arc::clone(&event));
            let executor = Arc::clone(&env.executor);
            let job = move || {
                // Ends early at the crash.
                let _ = (0..4).try_for_each(|_| log.append(&env, &*event, wait_for_hole));
            };
            executor.spawn(&format!("writer {number}"), Box::new(job)).unwrap()
        })
        .collect();
    jobs.iter().for_each(|job| job.join().unwrap());
    log.acknowledged.lock().unwrap().clone()
}

fn has_no_hole(volume: &SimVolume, acknowledged: &[u64]) {
    let contents = volume.contents(LOG).unwrap_or_default();
    let good = |(number, page): &(usize, &[u8])| page[..RECORD_BYTES] == record(*number as u64);
    let found = contents.chunks_exact(PAGE_BYTES).enumerate().take_while(good).count() as u64;
    let last = acknowledged.iter().max();
    assert!(last.is_none_or(|page| *page < found), "page {last:?} was acknowledged, the log ends at {found}");
}

#[test]
fn a_log_that_acknowledges_past_a_hole_is_caught() {
    let check = |_: &Env, volume: SimVolume, acknowledged: &Vec<u64>| has_no_hole(&volume, acknowledged);
    assert!(!is_broken(20, |env, volume| append_in_parallel(env, volume, true), check));
    assert!(is_broken(10, |env, volume| append_in_parallel(env, volume, false), check));
}
