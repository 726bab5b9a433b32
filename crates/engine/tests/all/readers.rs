//! Opening read-only while another process writes.

use crate::common::*;
use situ_base::Env;
use situ_engine::{Error, Result, Store, StoreBuilder};
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{Error as StorageError, Volume};
use situ_tiers::TieredBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The store's disks, each opener with handles of its own.
#[derive(Clone)]
struct Disks {
    home: SimVolume,
    raw: Option<SimDevice>,
}

impl Disks {
    fn open(&self, env: &Env, seed: u64, read_only: bool) -> Result<Store> {
        let builder = StoreBuilder::new(small_options(&mut Rng::new(seed))).env(env.clone());
        let builder = if read_only { builder.read_only() } else { builder };
        let fast = match &self.raw {
            Some(device) => {
                let options = RawOptions { cache_bytes: 1 << 20 };
                Some(Arc::new(RawVolume::open(Arc::new(device.clone()), env.clone(), options)?) as Arc<dyn Volume>)
            }
            None => None,
        };
        builder.open_volumes(Arc::new(self.home.clone()), fast)
    }
}

/// What became of the readers.
#[derive(Debug, Default)]
struct Readers {
    opened: u32,
    refused: u32,
    /// Opened, and ended by an error.
    failed: u32,
    /// What none of them may see. Told when the writer has ended: it cannot be stopped half-way.
    wrong: Vec<String>,
}

/// Readers come and go while a writer does; each sees a prefix of what was written, or an error that is none of damage.
fn readers_beside_a_writer(env: &Env, disks: &Disks, seed: u64) -> Readers {
    drop(disks.open(env, seed, false).unwrap());
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (env, disks, done) = (env.clone(), disks.clone(), Arc::clone(&done));
        move || {
            for round in 0..3u32 {
                let store = disks.open(&env, seed, false).unwrap();
                for n in round * 100..(round + 1) * 100 {
                    store.put(n.to_be_bytes(), [n as u8; 150]).unwrap();
                }
                store.close().unwrap();
            }
            done.store(true, Ordering::Release);
        }
    };
    let job = env.executor.spawn("writer", Box::new(writer)).unwrap();
    let (mut seen, mut readers) = (0, Readers::default());
    while !done.load(Ordering::Acquire) {
        let store = match disks.open(env, seed, true) {
            Ok(store) => store,
            Err(error) => {
                if is_damage(&error) && disks.raw.is_some() {
                    readers.wrong.push(error.to_string());
                }
                readers.refused += 1;
                continue;
            }
        };
        readers.opened += 1;
        // Where it has opened its tables, the writer cannot take them away.
        env.clock.sleep(Duration::from_micros(300));
        match entries(&store) {
            Ok(Ok(count)) if count >= seen => seen = count,
            Ok(Ok(count)) => readers.wrong.push(format!("{count} entries where there were {seen}")),
            Ok(Err(hole)) => readers.wrong.push(hole),
            Err(error) => {
                if is_damage(&error) {
                    readers.wrong.push(error.to_string());
                }
                readers.failed += 1;
            }
        }
    }
    job.join().unwrap();
    assert!(readers.wrong.is_empty(), "{readers:#?}");
    readers
}

/// How many there are, without a hole; or what is there in place of one.
fn entries(store: &Store) -> Result<std::result::Result<u32, String>> {
    let mut iterator = store.cursor()?;
    let mut count = 0u32;
    iterator.seek_to_first()?;
    while let Some(key) = iterator.key() {
        if key != count.to_be_bytes() {
            return Ok(Err(format!("{key:?} where number {count} should be")));
        }
        count += 1;
        iterator.next()?;
    }
    Ok(Ok(count))
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Storage(StorageError::Corruption(_)))
}

/// A reader once took a manifest from before a flush with the log files from after it, and missed what was flushed.
#[test]
fn a_reader_beside_a_writer_sees_a_prefix() {
    for_each_seed(0, 30, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let disks = Disks { home: SimVolume::new(&env, FaultPlan::none(), seed), raw: None };
            let found = readers_beside_a_writer(&env, &disks, seed);
            assert!(found.opened > found.refused, "{found:?}");
            assert!(found.failed * 20 <= found.opened, "{found:?}");
        });
    });
}

/// A reader once kept the catalogue of a raw disk as it had been when it began: what the manifest named by then was not
/// there, however often it tried again; and pages of tables that had gone were read as damage.
#[test]
fn a_reader_beside_a_writer_with_a_raw_disk_sees_a_prefix_and_no_damage() {
    for_each_seed(50, 30, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let device = SimDevice::new(&env, 1200 << 12, FaultPlan::none(), seed);
            let options = FormatOptions { log_bytes: Some(400 << 12), ..FormatOptions::default() };
            RawVolume::format(Arc::new(device.clone()), env.clone(), &options).unwrap();
            let disks = Disks { home: SimVolume::new(&env, FaultPlan::none(), seed), raw: Some(device) };
            let found = readers_beside_a_writer(&env, &disks, seed);
            assert!(found.opened > found.refused, "{found:?}");
        });
    });
}
