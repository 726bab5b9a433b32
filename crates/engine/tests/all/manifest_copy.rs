//! Promise 6 for the manifest: its copy, and the names in the tables, make good what rots in it.
//!
//! Once, one flipped byte took the names of all keyspaces, and a repair said that nothing was lost, or that writes were that were
//! all there, and wrote every table anew.

use crate::common::*;
use situ_base::Env;
use situ_engine::{
    Durability, Error, Listener, Options, RepairOptions, RepairReport, Store, StoreBuilder, StoreEvent, VerifyReport,
    repair, verify,
};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use situ_storage::{FileName, Volume};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The first three have tables, the last one is in the log only.
const NAMES: [&str; 4] = ["default", "orders", "users of the shop", "only in the log"];

type Models = BTreeMap<&'static str, Model>;

#[derive(Default)]
struct Ears(Mutex<Vec<String>>);

impl Listener for Ears {
    fn event(&self, event: &StoreEvent) {
        if matches!(event, StoreEvent::ManifestMended { .. }) {
            self.0.lock().unwrap().push(event.to_string());
        }
    }
}

/// Without a value log: how a repair finds its segments is a matter of the module `value_log`.
fn options(seed: u64) -> Options {
    let mut options = small_options(&mut Rng::new(seed));
    options.keyspace.value_log_min_bytes = None;
    options
}

fn open(env: &Env, volume: &SimVolume, seed: u64) -> Result<Store, Error> {
    let mut options = options(seed);
    options.create_if_missing = false;
    StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

/// A store with several manifests' worth of edits, closed in order or as a kill leaves it.
fn build(env: &Env, seed: u64, closes: bool) -> (SimVolume, Models) {
    let mut rng = Rng::new(seed ^ 0x3a9f);
    let volume = SimVolume::new(env, FaultPlan::none(), seed);
    let store = StoreBuilder::new(options(seed)).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
    let mut models: Models = NAMES.iter().map(|name| (*name, Model::new())).collect();
    for name in &NAMES[1..] {
        store.create_keyspace(name, options(seed).keyspace).unwrap();
    }
    for round in 0..3 {
        for _ in 0..150 {
            let name = NAMES[rng.index(3)];
            let (key, value) = (key(&mut rng, 200), value(&mut rng));
            store.existing_keyspace(name).unwrap().put_with(&key, &value, Durability::Buffered).unwrap();
            models.get_mut(name).unwrap().insert(key, value);
        }
        store.flush().unwrap();
        if round == 1 {
            store.existing_keyspace("orders").unwrap().compact(None, None).unwrap();
        }
    }
    for n in 0..3 {
        store.existing_keyspace(NAMES[3]).unwrap().put_with(key_number(n), b"in the log", Durability::Synced).unwrap();
        models.get_mut(NAMES[3]).unwrap().insert(key_number(n), b"in the log".to_vec());
    }
    store.wait_idle().unwrap();
    if closes {
        store.close().unwrap();
        return (volume, models);
    }
    let killed = volume.crash_keep_all();
    store.close().unwrap();
    (killed, models)
}

fn files(volume: &SimVolume, is: fn(&FileName) -> bool) -> Vec<FileName> {
    volume.list().unwrap().iter().map(|file| file.name).filter(is).collect()
}

fn manifest_of(volume: &SimVolume) -> u64 {
    let text = volume.contents(FileName::Current).unwrap();
    let name = String::from_utf8(text).unwrap();
    match name.split(' ').next().unwrap().parse() {
        Ok(FileName::Manifest(number)) => number,
        other => panic!("{name}: {other:?}"),
    }
}

fn tables(volume: &SimVolume) -> BTreeMap<FileName, Vec<u8>> {
    let names = files(volume, |name| matches!(name, FileName::Table(_)));
    names.into_iter().map(|name| (name, volume.contents(name).unwrap())).collect()
}

/// The tables that the store is made of. A kill may have left others, which the next opening removes and a repair sets aside.
fn own_tables(env: &Env, volume: &SimVolume) -> BTreeMap<FileName, Vec<u8>> {
    let orphans = check(env, volume).orphans;
    tables(volume).into_iter().filter(|(name, _)| !orphans.contains(name)).collect()
}

fn check(env: &Env, volume: &SimVolume) -> VerifyReport {
    verify(&(Arc::new(volume.clone()) as Arc<dyn Volume>), env, &mut |_| {}).unwrap()
}

fn fix(env: &Env, volume: &SimVolume, seed: u64, dry_run: bool) -> RepairReport {
    let how = RepairOptions { dry_run, options: options(seed) };
    repair(&(Arc::new(volume.clone()) as Arc<dyn Volume>), env, how).unwrap()
}

fn expect_all(store: &Store, models: &Models, what: &str) {
    let mut names = store.keyspace_names();
    let mut expected: Vec<&str> = NAMES.to_vec();
    names.sort();
    expected.sort_unstable();
    assert_eq!(names, expected, "{what}");
    for (name, model) in models {
        assert_eq!(&contents(&store.existing_keyspace(name).unwrap(), None), model, "{what}: {name}");
    }
}

/// Every table is there as it was.
fn expect_tables(volume: &SimVolume, before: &BTreeMap<FileName, Vec<u8>>, what: &str) {
    for (name, bytes) in before {
        assert!(volume.contents(*name).as_ref() == Some(bytes), "{what}: {name} is not what it was");
    }
}

#[test]
fn promise_6_a_flipped_byte_in_the_manifest_costs_nothing_and_is_told() {
    for_each_seed(0, 4, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let (volume, models) = build(&env, seed, seed % 2 == 0);
            let before = own_tables(&env, &volume);
            let orphans = check(&env, &volume).orphans;
            let number = manifest_of(&volume);
            assert!(before.len() >= 4 && check(&env, &volume).is_sound(), "{}", check(&env, &volume));
            for name in [FileName::Manifest(number), FileName::ManifestCopy(number)] {
                let bytes = volume.contents(name).unwrap().len() as u64;
                for at in (0..bytes).step_by(if seed < 2 { 19 } else { 53 }).chain([bytes - 1]) {
                    let what = format!("{name}, byte {at}");
                    let copy = volume.crash_keep_all();
                    assert!(copy.rot(name, at, (at % 8) as u8));
                    let found = check(&env, &copy);
                    let told = |texts: &[String]| texts.iter().any(|text| text.contains(&name.to_string()));
                    let damages: Vec<String> = found.damages.iter().map(ToString::to_string).collect();
                    assert!(told(&damages) || told(&found.warnings), "{what}: {found}");
                    assert!(!told(&damages) || damages[0].contains("nothing is lost"), "{what}: {found}");

                    let opened = copy.crash_keep_all();
                    let ears = Arc::new(Ears::default());
                    let mut options = options(seed);
                    options.listener = Some(Arc::clone(&ears) as Arc<dyn Listener>);
                    let store =
                        StoreBuilder::new(options).env(env.clone()).open_volume(Arc::new(opened.clone())).unwrap();
                    expect_all(&store, &models, &what);
                    assert_eq!(
                        ears.0.lock().unwrap().len(),
                        damages.len(),
                        "{what}: an opening tells what verify does"
                    );
                    assert_eq!(store.properties().mended.len(), damages.len(), "{what}");
                    store.close().unwrap();
                    assert!(check(&env, &opened).is_sound(), "{what}: an opening mends both files");

                    let foretold = fix(&env, &copy, seed, true);
                    let report = fix(&env, &copy, seed, false);
                    assert_eq!(foretold.damages, report.damages, "{what}");
                    assert_eq!(report.was_sound, damages.is_empty(), "{what}: {report}");
                    assert!(report.nothing_lost() && !report.rebuilt && !report.without_manifest, "{what}: {report}");
                    assert!(report.set_aside.iter().all(|(name, _)| orphans.contains(name)), "{what}: {report}");
                    assert!(report.notes.is_empty(), "{what}: {report}");
                    if !report.was_sound {
                        assert!(report.to_string().contains("lost: nothing\n"), "{what}: {report}");
                        assert_eq!(report.tables_kept, before.len() as u64, "{what}: {report}");
                    }
                    expect_tables(&copy, &before, &what);
                    assert!(check(&env, &copy).is_sound(), "{what}");
                    let store = open(&env, &copy, seed).unwrap();
                    assert_eq!(store.properties().lossy_repair_unix_ms, None, "{what}");
                    expect_all(&store, &models, &what);
                    store.close().unwrap();
                }
            }
        });
    });
}

/// The manifest is gone with its sector, or somebody removed it.
#[test]
fn a_manifest_that_is_missing_is_taken_from_its_copy_by_a_repair() {
    for_each_seed(50, 4, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let (volume, models) = build(&env, seed, seed % 2 == 0);
            let before = own_tables(&env, &volume);
            let number = manifest_of(&volume);
            for (manifest, current) in [(true, false), (true, true), (false, true)] {
                let what = format!("manifest gone: {manifest}, CURRENT gone: {current}");
                let copy = volume.crash_keep_all();
                if manifest {
                    copy.remove(FileName::Manifest(number)).unwrap();
                }
                if current {
                    copy.remove(FileName::Current).unwrap();
                }
                assert!(open(&env, &copy, seed).is_err(), "{what}");
                let report = fix(&env, &copy, seed, false);
                assert!(report.nothing_lost() && !report.rebuilt, "{what}: {report}");
                expect_tables(&copy, &before, &what);
                assert!(check(&env, &copy).is_sound(), "{what}");
                let store = open(&env, &copy, seed).unwrap();
                expect_all(&store, &models, &what);
                store.close().unwrap();
            }
        });
    });
}

/// A store of an older program has no copy; the next opening makes one.
#[test]
fn a_store_without_a_copy_opens_and_gets_one() {
    let executor = SimExecutor::new(7);
    executor.run(|| {
        let env = executor.env();
        let (volume, models) = build(&env, 7, true);
        volume.remove(FileName::ManifestCopy(manifest_of(&volume))).unwrap();
        let report = check(&env, &volume);
        assert!(report.is_sound() && report.warnings.is_empty(), "{report}");
        let store = open(&env, &volume, 7).unwrap();
        expect_all(&store, &models, "opened");
        assert!(store.properties().mended.is_empty());
        let number = manifest_of(&volume);
        assert_eq!(volume.contents(FileName::ManifestCopy(number)), volume.contents(FileName::Manifest(number)));
        store.close().unwrap();
        assert_eq!(volume.contents(FileName::ManifestCopy(number)), volume.contents(FileName::Manifest(number)));
        let is_manifest = |name: &FileName| matches!(name, FileName::Manifest(_) | FileName::ManifestCopy(_));
        assert_eq!(files(&volume, is_manifest).len(), 2, "what belongs to older manifests is removed");
    });
}

/// With both files damaged at the same place, tables say which keyspaces they are of, and those that overlap no other one stay.
#[test]
fn without_any_manifest_names_come_from_tables_and_tables_that_overlap_nothing_stay() {
    for_each_seed(100, 12, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let (volume, models) = build(&env, seed, seed % 2 == 0);
            let compacts = seed % 3 == 0;
            if compacts {
                // All is in tables without overlaps, but for the keyspace in the log.
                let store = open(&env, &volume, seed).unwrap();
                for name in &NAMES[..3] {
                    store.existing_keyspace(name).unwrap().compact(None, None).unwrap();
                }
                store.wait_idle().unwrap();
                store.close().unwrap();
            }
            let before = tables(&volume);
            let both = [FileName::Manifest(manifest_of(&volume)), FileName::ManifestCopy(manifest_of(&volume))];
            for name in both {
                if seed % 4 < 2 {
                    assert!(volume.rot(name, 30, 1));
                } else {
                    volume.remove(name).unwrap();
                }
            }
            let logged = files(&volume, |name| matches!(name, FileName::Table(_))).len();
            let has_table = |id: u32| {
                before.keys().any(|name| {
                    let reader = volume.open(*name).unwrap();
                    let table = situ_table::Table::open(reader, 1, situ_table::BlockCache::new(0)).unwrap();
                    table.properties().keyspace_id == id
                })
            };
            let names_in_tables = (1..4).filter(|id| has_table(*id)).count();
            let foretold = fix(&env, &volume, seed, true);
            let report = fix(&env, &volume, seed, false);
            assert_eq!((&foretold.lost_names, &foretold.keyspaces), (&report.lost_names, &report.keyspaces));
            let what = format!("{logged} tables\n{report}");
            assert!(report.rebuilt && report.without_manifest, "{what}");
            assert!(report.lost_ranges.is_empty() && report.lost_writes.is_empty(), "losses that are none: {what}");
            // Rot in the first edit leaves those behind it readable.
            let lost = 3 - names_in_tables;
            assert!(report.lost_names.len() <= lost, "{what}");
            assert!(report.lost_names.len() == lost || seed % 4 < 2, "{what}");
            assert_eq!(report.nothing_lost(), report.lost_names.is_empty(), "{what}");
            assert!(!report.to_string().contains("lost: nothing\n"), "{what}");
            if compacts {
                expect_tables(&volume, &before, &what);
                assert!(!report.set_aside.iter().any(|(name, _)| matches!(name, FileName::Table(_))), "{what}");
            }
            let verified = check(&env, &volume);
            assert!(verified.is_sound(), "{verified}\nafter {what}");
            assert!(fix(&env, &volume, seed, false).was_sound, "{what}");
            let store = open(&env, &volume, seed).unwrap();
            assert!(store.properties().lossy_repair_unix_ms.is_some(), "nobody knows what was lost");
            for (id, name) in NAMES.iter().enumerate() {
                let lost = report.lost_names.iter().find(|lost| lost.id == id as u32);
                let now = lost.map_or(*name, |lost| &lost.now);
                let keyspace =
                    store.existing_keyspace(now).unwrap_or_else(|error| panic!("{name} as {now}: {error}\n{what}"));
                assert_eq!(&contents(&keyspace, None), &models[name], "{name}\n{what}");
            }
            store.close().unwrap();
        });
    });
}

/// The mark of a repair that lost something stays in the manifest, and another such repair changes it.
#[test]
fn a_repair_that_lost_something_is_remembered() {
    let executor = SimExecutor::new(3);
    executor.run(|| {
        let env = executor.env();
        let (volume, _) = build(&env, 3, true);
        let mut before = None;
        for _ in 0..2 {
            let table = files(&volume, |name| matches!(name, FileName::Table(_)))[0];
            assert!(volume.rot(table, 30, 1));
            let report = fix(&env, &volume, 3, false);
            assert!(!report.lost_ranges.is_empty(), "{report}");
            for _ in 0..2 {
                let store = open(&env, &volume, 3).unwrap();
                let now = store.properties().lossy_repair_unix_ms;
                assert!(now.is_some() && now != before);
                store.close().unwrap();
            }
            before = open(&env, &volume, 3).unwrap().properties().lossy_repair_unix_ms;
            // What is sound is left alone, and so is the mark.
            assert!(fix(&env, &volume, 3, false).was_sound);
        }
    });
}
