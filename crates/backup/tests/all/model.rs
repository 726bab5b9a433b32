//! Random changes, backups, prunes and restores: each backup equals the model of its moment.

use crate::common::*;
use situ_backup::Backups;
use situ_engine::Store;
use situ_sim::{Rng, for_each_seed};
use situ_tiers::TieredBuilder;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn change(store: &Store, rng: &mut Rng, models: &mut [Entries; 2]) {
    let which = rng.below(2) as usize;
    let keyspace = store.keyspace(["default", OTHER][which]).unwrap();
    let (n, model) = (rng.below(400), &mut models[which]);
    match rng.below(20) {
        0 => {
            let (begin, end) = (key(n), key(n + 20));
            keyspace.delete_range(&begin, &end).unwrap();
            model.retain(|key, _| *key < begin || *key >= end);
        }
        1..=4 => {
            keyspace.delete(key(n)).unwrap();
            model.remove(&key(n));
        }
        _ => {
            let value = value(n, rng.below(256) as u8);
            keyspace.put(key(n), &value).unwrap();
            model.insert(key(n), value);
        }
    }
}

#[test]
fn each_backup_equals_the_store_at_its_moment() {
    for_each_seed(1, 8, |seed| {
        let mut rng = Rng::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let value_log = seed % 2 == 0;
        let backups = Backups::open_or_make(at("backups")).unwrap();
        let mut home = at("store 0");
        let mut store = open(&home, value_log);
        let mut models = [Entries::new(), Entries::new()];
        let mut made: BTreeMap<u64, [Entries; 2]> = BTreeMap::new();
        for round in 0..12 {
            for _ in 0..rng.below(400) {
                change(&store, &mut rng, &mut models);
            }
            match rng.below(6) {
                0 => store.default_keyspace().compact(None, None).unwrap(),
                1 => {
                    store.close().unwrap();
                    store = open(&home, value_log);
                }
                2 if !made.is_empty() => {
                    // The store goes back to an earlier backup, and on from there.
                    store.close().unwrap();
                    let ids: Vec<u64> = made.keys().copied().collect();
                    let id = ids[rng.below(ids.len() as u64) as usize];
                    home = at(&format!("store {}", round + 1));
                    backups.restore(Some(id), &home, &mut |_| {}).unwrap();
                    store = open(&home, value_log);
                    models = made[&id].clone();
                    assert_eq!(contents(&store), models);
                }
                3 => {
                    let keep = 1 + rng.below(4) as usize;
                    let report = backups.prune(keep).unwrap();
                    report.removed.iter().for_each(|id| assert!(made.remove(id).is_some()));
                    assert_eq!(report.kept, made.keys().copied().collect::<Vec<_>>());
                }
                _ => {}
            }
            let report = backups.create(&store).unwrap();
            assert!(report.not_noted.is_none() && made.insert(report.id, models.clone()).is_none());
        }
        assert_sound(&backups);
        for (id, models) in &made {
            assert_eq!(restored(&backups, Some(*id)), *models, "backup {id}");
        }
        assert_eq!(&restored(&backups, None), made.values().next_back().unwrap());
        store.close().unwrap();
    });
}

/// The promises of a checkpoint, for backups: all writes before the call, and a prefix of the others.
#[test]
fn promise_2_3_a_backup_has_all_writes_before_it_and_a_prefix_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("store"), true);
    let backups = Backups::open_or_make(directory.path().join("backups")).unwrap();
    let (written, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (store, written, ends) = (store.clone(), Arc::clone(&written), Arc::clone(&ends));
        std::thread::spawn(move || {
            for n in 0.. {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                store.put(key(n), value(n, n as u8)).unwrap();
                written.store(n + 1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        })
    };
    for round in 1..5 {
        while written.load(Ordering::SeqCst) < 100 * round {
            std::thread::yield_now();
        }
        let before = written.load(Ordering::SeqCst);
        backups.create(&store).unwrap();
        let [entries, _] = restored(&backups, None);
        assert!(entries.len() as u64 >= before, "{} of {before}", entries.len());
        for (n, (found, stored)) in (0..).zip(&entries) {
            assert!(*found == key(n) && *stored == value(n, n as u8), "{found:?} where {n} should be");
        }
    }
    ends.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    store.close().unwrap();
}

#[test]
fn a_store_with_a_fast_disk_is_restored_to_one_disk() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("fast")).unwrap();
    let open = || {
        let builder = situ_engine::StoreBuilder::new(options(true));
        builder.fast_disk(at("fast")).open(at("home")).unwrap()
    };
    let store = open();
    write(&store, 0..600, 1);
    let backups = Backups::open_or_make(at("backups")).unwrap();
    backups.create(&store).unwrap();
    store.flush().unwrap();
    assert!(!files(&at("fast"), &[".table"]).is_empty(), "the fast disk has tables");
    let expected = contents(&store);
    store.close().unwrap();
    let store = open();
    let report = backups.create(&store).unwrap();
    assert!(report.base == Some(1) && report.kept_files > 3, "{report:?}");
    assert_eq!(restored(&backups, Some(1)), expected);
    assert_eq!(restored(&backups, Some(2)), expected);
    store.close().unwrap();
}
