//! Opening read-only while another process writes.

mod common;

use common::*;
use situ_engine::{Store, StoreBuilder};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn open(executor: &SimExecutor, volume: &SimVolume, seed: u64, read_only: bool) -> situ_engine::Result<Store> {
    let builder = StoreBuilder::new(small_options(&mut Rng::new(seed))).env(executor.env());
    let builder = if read_only { builder.read_only() } else { builder };
    builder.open_volume(Arc::new(volume.clone()))
}

/// A reader once took a manifest from before a flush with the log files from after it, and missed what was flushed.
#[test]
fn a_reader_beside_a_writer_sees_a_prefix() {
    for_each_seed(0, 30, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let volume = SimVolume::new(&executor.env(), FaultPlan::none(), seed);
            drop(open(&executor, &volume, seed, false).unwrap());
            let done = Arc::new(AtomicBool::new(false));
            let writer = {
                let (executor, volume, done) = (executor.clone(), volume.clone(), Arc::clone(&done));
                move || {
                    for round in 0..3u32 {
                        let store = open(&executor, &volume, seed, false).unwrap();
                        for n in round * 100..(round + 1) * 100 {
                            store.put(&n.to_be_bytes(), &[n as u8; 150]).unwrap();
                        }
                        store.close().unwrap();
                    }
                    done.store(true, Ordering::Release);
                }
            };
            let job = executor.env().executor.spawn("writer", Box::new(writer)).unwrap();
            let (mut seen, mut refused, mut opened, mut failed) = (0, 0, 0, 0);
            while !done.load(Ordering::Acquire) {
                let Ok(store) = open(&executor, &volume, seed, true) else {
                    refused += 1;
                    continue;
                };
                opened += 1;
                // It has opened its tables, so that the writer cannot take them away.
                executor.env().clock.sleep(Duration::from_micros(300));
                let mut iterator = store.iter(Default::default()).unwrap();
                let mut count = 0u32;
                let mut moved = iterator.seek_to_first();
                while moved.is_ok() && iterator.valid() {
                    assert_eq!(iterator.key(), Some(&count.to_be_bytes()[..]), "a hole");
                    count += 1;
                    moved = iterator.next();
                }
                if moved.is_ok() {
                    assert!(count >= seen, "{count} entries where there were {seen}");
                    seen = count;
                } else {
                    failed += 1;
                }
            }
            job.join().unwrap();
            assert!(opened > refused, "{opened} opened, {refused} refused");
            assert!(failed * 20 <= opened, "{failed} of {opened} could not be read");
        });
    });
}
