//! A crash at every change: what was synced and is alive is there, whatever was being appended, trimmed, collected or removed.

use crate::model::{Map, key_bytes, value};
use situ_base::Env;
use situ_sim::{CrashPoints, FaultPlan, Rng, SimVolume, crash_everywhere, for_each_seed};
use situ_values::{Handle, KnownSegment, Layout, Options, Trim, ValueLog, numbers_from};
use std::collections::BTreeMap;
use std::sync::Arc;

const LONGEST: u64 = 3000;

fn options(layout: Layout) -> Options {
    Options {
        segment_bytes: 24 << 10,
        trim: Trim::Full,
        zero_at_percent: 101,
        zero_above_percent: 100,
        collect_above_percent: 130,
        // Trimming keeps the physical inflation down; this makes segments with live records victims.
        logical_above_percent: 150,
        layout,
        ..Options::default()
    }
}

/// What the owner had made durable when the machine crashed.
struct Told {
    live: BTreeMap<u64, (u64, Handle)>,
    known: Vec<KnownSegment>,
}

/// Works until the first error. The owner's own state counts as durable at each of its changes.
fn work(env: &Env, volume: &SimVolume, options: Options, seed: u64) -> Told {
    let volume = Arc::new(volume.clone());
    let Ok(log) = ValueLog::open(volume, env, options, numbers_from(1), &[]) else {
        return Told { live: BTreeMap::new(), known: Vec::new() };
    };
    let mut map = Map::new(log, LONGEST);
    let mut rng = Rng::new(seed);
    let mut steps = || -> situ_storage::Result<()> {
        for step in 0..30 {
            let batch: BTreeMap<u64, u64> = (0..=rng.below(6)).map(|_| (rng.below(16), step)).collect();
            map.put(&batch.into_iter().collect::<Vec<_>>())?;
            if rng.chance(0.5) {
                while map.log.tidy()? {}
            }
            map.collect()?;
        }
        Ok(())
    };
    let ended = steps();
    let done = map.log.counters();
    let has_done_all = done.discarded_bytes > 0 && done.zeroed_sector_bytes > 0 && done.collected_bytes > 0;
    assert!(ended.is_err() || has_done_all, "the work is too little: {done:?}");
    Told { known: map.known(), live: std::mem::take(&mut map.live) }
}

fn check(env: &Env, volume: SimVolume, options: Options, told: &Told) {
    let log = ValueLog::open(Arc::new(volume.clone()), env, options.clone(), numbers_from(1000), &told.known).unwrap();
    assert!(log.damaged().is_empty(), "{:?}", log.damaged());
    let everything = |log: &ValueLog| {
        for (key, (version, handle)) in &told.live {
            let found = log.read(handle, &key_bytes(*key)).unwrap_or_else(|e| panic!("key {key}: {e}"));
            assert_eq!(*found, *value(*key, *version, LONGEST), "key {key}");
        }
    };
    everything(&log);
    // Each live record is also found by a walk, so collection would move it.
    let mut alive: Vec<Handle> = told.live.values().map(|(_, handle)| *handle).collect();
    for number in told.known.iter().map(|known| known.number) {
        let mut walk = log.walk(number).unwrap();
        while let Some(record) = walk.next().unwrap() {
            if let Some(at) = alive.iter().position(|handle| *handle == record.handle) {
                assert!(record.value().is_ok());
                alive.swap_remove(at);
            }
        }
    }
    assert!(alive.is_empty(), "not found by a walk: {alive:?}");
    // It works as before, and a second opening finds the same.
    let mut writer = log.writer();
    let handle = writer.append(0, b"new", b"value").unwrap();
    writer.sync().unwrap();
    assert_eq!(*log.read(&handle, b"new").unwrap(), *b"value");
    drop((writer, log));
    let again = ValueLog::open(Arc::new(volume), env, options, numbers_from(2000), &told.known).unwrap();
    assert!(again.damaged().is_empty());
    everything(&again);
}

#[test]
fn a_crash_at_any_change_loses_nothing_that_was_synced() {
    for_each_seed(1, 2, |seed| {
        for layout in [Layout::Packed, Layout::OwnSectors] {
            let points = CrashPoints { points_max: 60, images_per_point: 3, ..CrashPoints::default() };
            let images = crash_everywhere(
                seed,
                &points,
                |env, volume| work(env, volume, options(layout), seed),
                |env, volume, told| check(env, volume, options(layout), told),
            );
            assert!(images > 200);
        }
    });
}

/// A sector that a crash tears inside: what was alive in it before the write and after it is whole.
#[test]
fn no_live_byte_is_lost_in_a_torn_sector() {
    for_each_seed(11, 2, |seed| {
        let faults = FaultPlan::none().tear_sectors();
        let points = CrashPoints { points_max: 60, images_per_point: 3, faults };
        crash_everywhere(
            seed,
            &points,
            |env, volume| work(env, volume, options(Layout::Packed), seed),
            |env, volume, told| {
                let log =
                    ValueLog::open(Arc::new(volume), env, options(Layout::Packed), numbers_from(1000), &told.known);
                let log = log.unwrap();
                for (key, (version, handle)) in &told.live {
                    let found = log.read(handle, &key_bytes(*key)).unwrap_or_else(|e| panic!("key {key}: {e}"));
                    assert_eq!(*found, *value(*key, *version, LONGEST), "key {key}");
                }
            },
        );
    });
}
