//! Promise 6 for whole stores: whatever rots, is cut off or is missing, it is found and named, and nobody reads wrong
//! data.

mod common;

use common::*;
use situ_device::Env;
use situ_engine::{Durability, Error, Options, ReadOptions, Store, StoreBuilder, VerifyReport, WriteBatch, verify};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{FileName, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;

const KEYS: u64 = 150;
const NAMES: [&str; 3] = ["default", "second", "third"];

type Models = BTreeMap<&'static str, Model>;

fn options(seed: u64) -> Options {
    small_options(&mut Rng::new(seed))
}

fn open(env: &Env, volume: &SimVolume, seed: u64) -> Result<Store, Error> {
    let mut options = options(seed);
    options.create_if_missing = false;
    StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

fn check(env: &Env, volume: &SimVolume) -> VerifyReport {
    let volume: Arc<dyn Volume> = Arc::new(volume.clone());
    verify(&volume, env, &mut |_| {}).unwrap()
}

/// A store with three keyspaces, several levels, range tombstones, and something that is only in the log.
fn build(env: &Env, seed: u64) -> (SimVolume, Models) {
    let mut rng = Rng::new(seed ^ 0x5a17);
    let volume = SimVolume::new(env, FaultPlan::none(), seed);
    let store = StoreBuilder::new(options(seed)).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
    let mut models: Models = NAMES.iter().map(|name| (*name, Model::new())).collect();
    for name in &NAMES[1..] {
        store.create_keyspace(name, options(seed).keyspace).unwrap();
    }
    for step in 0..900 {
        let name = NAMES[rng.index(3)];
        let keyspace = store.keyspace(name).unwrap();
        let model = models.get_mut(name).unwrap();
        let (one, other) = (key(&mut rng, KEYS), key(&mut rng, KEYS));
        let durability = if rng.chance(0.02) { Durability::Synced } else { Durability::Buffered };
        match rng.below(100) {
            0..2 => {
                keyspace.delete_range(&one, &other).unwrap();
                model.retain(|key, _| key < &one || key >= &other);
            }
            2..15 => {
                keyspace.delete_with(&one, durability).unwrap();
                model.remove(&one);
            }
            15..25 => {
                let mut batch = WriteBatch::new();
                for name in NAMES {
                    batch.put(&store.keyspace(name).unwrap(), &other, &one).unwrap();
                    models.get_mut(name).unwrap().insert(other.clone(), one.clone());
                }
                store.write_with(batch, durability).unwrap();
            }
            _ => {
                let value = value(&mut rng);
                keyspace.put_with(&one, &value, durability).unwrap();
                model.insert(one, value);
            }
        }
        if step == 400 {
            store.keyspace("second").unwrap().compact(None, None).unwrap();
        }
    }
    store.wait_idle().unwrap();
    store.close().unwrap();
    (volume, models)
}

/// Whatever can be read of a keyspace is right; errors are allowed. False if there was one.
fn reads_right(store: &Store, name: &str, model: &Model, what: &str) -> bool {
    let keyspace = match store.keyspace(name) {
        Ok(keyspace) => keyspace,
        Err(error) => panic!("{what}: keyspace {name} is gone: {error}"),
    };
    let mut whole = true;
    for n in 0..KEYS {
        let key = key_number(n);
        match keyspace.get(&key) {
            Ok(found) => assert_eq!(found.as_deref(), model.get(&key).map(|v| &v[..]), "{what}: {name}, get {n}"),
            Err(_) => whole = false,
        }
    }
    let Ok(mut iterator) = keyspace.iter(ReadOptions::default()) else { return false };
    let mut expected = model.iter();
    let mut moved = iterator.seek_to_first();
    loop {
        if moved.is_err() {
            return false;
        }
        let found = iterator.key().zip(iterator.value());
        assert_eq!(found, expected.next().map(|(k, v)| (&k[..], &v[..])), "{what}: {name}, iterating");
        if found.is_none() {
            return whole;
        }
        moved = iterator.next();
    }
}

/// Opens and reads all; true if nothing failed.
fn opens_and_reads_right(env: &Env, volume: &SimVolume, models: &Models, seed: u64, what: &str) -> bool {
    let Ok(store) = open(env, volume, seed) else { return false };
    let whole = models.iter().all(|(name, model)| reads_right(&store, name, model, what));
    // Compactions may have met the damage, which is no reason to panic either.
    let _ = store.close();
    whole
}

/// Whether the damages, and whether the warnings, name the file. What is missing in a log shows in the file behind it.
fn names(report: &VerifyReport, name: FileName) -> (bool, bool) {
    let in_words = format!("log file {}", name.number().unwrap_or(0));
    let name = name.to_string();
    let named = |text: &str| text.contains(&name) || text.contains(&in_words);
    (report.damages.iter().any(|d| named(&d.to_string())), report.warnings.iter().any(|w| named(w)))
}

/// What a flipped bit must cause: `found` by verify, or nothing at all.
fn judge(env: &Env, volume: &SimVolume, models: &Models, seed: u64, name: FileName, what: &str) {
    let report = check(env, volume);
    let (damaged, warned) = names(&report, name);
    let found = match name {
        FileName::Table(_) | FileName::Current => damaged,
        FileName::Identity => warned,
        // Cut between two edits, a manifest looks whole; what its lost edits did does not fit it then.
        FileName::Manifest(_) => damaged || warned || what.contains("cut"),
        // Pages that were never written, or belong to an earlier life of the file, hold nothing.
        _ => true,
    };
    assert!(found, "{what}: not found: {report}");
    let right = opens_and_reads_right(env, &volume.crash_keep_all(), models, seed, what);
    assert!(right || !report.is_sound(), "{what}: reading fails, and verify knows of nothing: {report}");
}

fn files(volume: &SimVolume) -> Vec<(FileName, u64)> {
    volume.list().unwrap().iter().map(|f| (f.name, f.bytes)).collect()
}

#[test]
fn a_sound_store_is_found_sound() {
    for_each_seed(0, 8, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let (volume, models) = build(&env, seed);
            let report = check(&env, &volume);
            assert!(report.is_sound() && report.warnings.is_empty(), "{report}");
            // Log files that were released last may be left over; tables never are.
            assert!(report.orphans.iter().all(|name| matches!(name, FileName::Log(_))), "{report}");
            assert!(report.files > 5 && report.entries > 50, "{report}");
            assert!(opens_and_reads_right(&env, &volume, &models, seed, "sound"));
        });
    });
}

#[test]
fn promise_6_rot_anywhere_is_found_and_named_and_gives_no_wrong_data() {
    for_each_seed(100, 6, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let (volume, models) = build(&env, seed);
            let mut rng = Rng::new(seed);
            for (name, bytes) in files(&volume) {
                let tries = if matches!(name, FileName::Log(_)) { 16 } else { 8 };
                for _ in 0..tries.min(bytes) {
                    // Most of a log file is empty; its beginning is not.
                    let end = if rng.chance(0.5) { bytes } else { bytes.min(9000) };
                    let (at, bit) = (rng.below(end), rng.below(8) as u8);
                    let copy = volume.crash_keep_all();
                    assert!(copy.rot(name, at, bit));
                    judge(&env, &copy, &models, seed, name, &format!("{name}, byte {at}, bit {bit}"));
                }
            }
        });
    });
}

#[test]
fn promise_6_files_cut_short_or_missing_are_found_and_give_no_wrong_data() {
    for_each_seed(200, 10, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let (volume, models) = build(&env, seed);
            let mut rng = Rng::new(seed);
            for (name, bytes) in files(&volume) {
                let copy = volume.crash_keep_all();
                copy.remove(name).unwrap();
                judge(&env, &copy, &models, seed, name, &format!("{name} is missing"));
                for _ in 0..3 {
                    let mut contents = volume.contents(name).unwrap();
                    contents.truncate(rng.below(bytes.max(1)) as usize);
                    let copy = volume.crash_keep_all();
                    copy.set_contents(name, &contents);
                    judge(&env, &copy, &models, seed, name, &format!("{name} cut to {} bytes", contents.len()));
                }
            }
        });
    });
}
