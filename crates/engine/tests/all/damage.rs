//! Promise 6 for whole stores: whatever rots, is cut off or is missing, it is found and named, and nobody reads wrong
//! data.

use crate::common::*;
use situ_base::Env;
use situ_engine::{
    Durability, Error, Options, RepairOptions, RepairReport, Store, StoreBuilder, VerifyReport, WriteBatch, repair,
    repair_directory, verify, verify_directory,
};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, Operation, Rng, Rule, SimExecutor, SimVolume, crash_everywhere, for_each_seed,
};
use situ_storage::{FileName, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const KEYS: u64 = 150;
const NAMES: [&str; 3] = ["default", "second", "third"];

type Models = BTreeMap<&'static str, Model>;

/// A store that has been closed, and what is in it.
struct Built {
    volume: SimVolume,
    models: Models,
    /// When each key was changed last: the sequence number.
    changed: BTreeMap<(&'static str, Vec<u8>), u64>,
}

/// Without a value log: damage in one is a matter of the module `value_log`.
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

fn check(env: &Env, volume: &SimVolume) -> VerifyReport {
    let volume: Arc<dyn Volume> = Arc::new(volume.clone());
    verify(&volume, env, &mut |_| {}).unwrap()
}

/// A store with three keyspaces, several levels, range tombstones, and something that is only in the log.
fn build(env: &Env, seed: u64) -> Built {
    let mut rng = Rng::new(seed ^ 0x5a17);
    let volume = SimVolume::new(env, FaultPlan::none(), seed);
    let store = StoreBuilder::new(options(seed)).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
    let mut models: Models = NAMES.iter().map(|name| (*name, Model::new())).collect();
    for name in &NAMES[1..] {
        store.create_keyspace(name, options(seed).keyspace).unwrap();
    }
    let mut changed = BTreeMap::new();
    for step in 0..900 {
        let name = NAMES[rng.index(3)];
        let keyspace = store.existing_keyspace(name).unwrap();
        let model = models.get_mut(name).unwrap();
        let (one, other) = (key(&mut rng, KEYS), key(&mut rng, KEYS));
        let durability = if rng.chance(0.02) { Durability::Synced } else { Durability::Buffered };
        match rng.below(100) {
            0..2 => {
                keyspace.delete_range(&one, &other).unwrap();
                model.retain(|key, _| key < &one || key >= &other);
                let at = store.properties().last_sequence;
                let inside = (0..KEYS).map(key_number).filter(|key| &one <= key && key < &other);
                changed.extend(inside.map(|key| ((name, key), at)));
            }
            2..15 => {
                keyspace.delete_with(&one, durability).unwrap();
                model.remove(&one);
                changed.insert((name, one), store.properties().last_sequence);
            }
            15..25 => {
                let mut batch = WriteBatch::new();
                for name in NAMES {
                    batch.put_in(&store.existing_keyspace(name).unwrap(), &other, &one).unwrap();
                    models.get_mut(name).unwrap().insert(other.clone(), one.clone());
                }
                store.write_with(batch, durability).unwrap();
                let first = store.properties().last_sequence - 2;
                changed.extend((first..).zip(NAMES).map(|(at, name)| ((name, other.clone()), at)));
            }
            _ => {
                let value = value(&mut rng);
                keyspace.put_with(&one, &value, durability).unwrap();
                model.insert(one.clone(), value);
                changed.insert((name, one), store.properties().last_sequence);
            }
        }
        if step == 400 {
            store.existing_keyspace("second").unwrap().compact(None, None).unwrap();
        }
    }
    store.wait_idle().unwrap();
    store.close().unwrap();
    Built { volume, models, changed }
}

/// Whatever can be read of a keyspace is right; errors are allowed. False if there was one.
fn reads_right(store: &Store, name: &str, model: &Model, what: &str) -> bool {
    let keyspace = match store.existing_keyspace(name) {
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
    let Ok(mut iterator) = keyspace.cursor() else { return false };
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
        FileName::Table(_) | FileName::Current | FileName::Identity => damaged,
        FileName::Manifest(_) => damaged || warned,
        // One that ends early, between two edits, was given up, or a crash came before it.
        FileName::ManifestCopy(_) => damaged || warned || what.contains("cut") || what.contains("missing"),
        // Pages that were never written, or belong to an earlier life of the file, hold nothing.
        _ => true,
    };
    assert!(found, "{what}: not found: {report}");
    let right = opens_and_reads_right(env, &volume.crash_keep_all(), models, seed, what);
    assert!(right || !report.is_sound(), "{what}: reading fails, and verify knows of nothing: {report}");
}

/// One of the two copies of a manifest.
fn is_manifest(name: FileName) -> bool {
    matches!(name, FileName::Manifest(_) | FileName::ManifestCopy(_))
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
            let Built { volume, models, .. } = build(&env, seed);
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
            let Built { volume, models, .. } = build(&env, seed);
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
            let Built { volume, models, .. } = build(&env, seed);
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

/// No crash damages the header of the first page of a log file in use. Once, such a store opened without the log's
/// records, even those of one keyspace whose later writes were in a table of another.
#[test]
fn promise_6_a_log_file_without_its_first_header_is_damage() {
    for flushed in [false, true] {
        let executor = SimExecutor::new(1);
        executor.run(|| {
            let env = executor.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), 1);
            let store = StoreBuilder::new(options(1)).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
            let other = store.create_keyspace("other", options(1).keyspace).unwrap();
            store.put_with(b"key", b"value", Durability::Synced).unwrap();
            other.put_with(b"later", b"value", Durability::Synced).unwrap();
            if flushed {
                other.flush().unwrap();
            }
            let of_log = |(name, _): &(FileName, u64)| matches!(name, FileName::Log(_));
            let name = files(&volume).into_iter().find(of_log).unwrap().0;
            let copy = volume.crash_keep_all();
            drop(store);
            let mut contents = copy.contents(name).unwrap();
            contents[5] ^= 1;
            copy.set_contents(name, &contents);
            let error = open(&env, &copy, 1).map(drop).unwrap_err();
            assert!(error.is_corruption() && error.to_string().contains(&name.to_string()), "{error}");
            assert!(!check(&env, &copy).is_sound());
            let volume: Arc<dyn Volume> = Arc::new(copy.clone());
            let report = repair(&volume, &env, RepairOptions::default()).unwrap();
            assert!(!report.lost_writes.is_empty(), "{report}");
            open(&env, &copy, 1).unwrap().close().unwrap();
        });
    }
}

/// A lying disk, or a restore of the wrong file: each table is sound in itself, and one is not what the manifest says.
#[test]
fn promise_6_a_table_in_the_place_of_another_is_found_and_its_contents_are_not_believed() {
    for_each_seed(250, 10, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let built = build(&env, seed);
            let mut rng = Rng::new(seed);
            let tables: Vec<FileName> = files(&built.volume)
                .into_iter()
                .map(|(name, _)| name)
                .filter(|n| matches!(n, FileName::Table(_)))
                .collect();
            for _ in 0..6 {
                let (from, to) = (tables[rng.index(tables.len())], tables[rng.index(tables.len())]);
                if from == to {
                    continue;
                }
                let copy = built.volume.crash_keep_all();
                copy.set_contents(to, &built.volume.contents(from).unwrap());
                let what = format!("{from} in the place of {to}");
                judge(&env, &copy, &built.models, seed, to, &what);
                let report = check_repair(&env, &copy, &built, seed, &what);
                assert!(!report.lost_ranges.is_empty(), "{what}: {report}");
            }
        });
    });
}

fn image(volume: &SimVolume) -> BTreeMap<FileName, Vec<u8>> {
    let names = files(volume).into_iter().map(|(name, _)| name).filter(|name| *name != FileName::Lock);
    names.map(|name| (name, volume.contents(name).unwrap())).collect()
}

/// Whatever is not as it was before is in one of the reports.
fn check_losses(store: &Store, built: &Built, reports: &[&RepairReport], what: &str) {
    for (name, model) in &built.models {
        // Without a manifest the names are lost, and numbers remain.
        let named = store.existing_keyspace(name).is_ok();
        let now = if named { (*name).to_owned() } else { numbered(name) };
        let found = match store.existing_keyspace(&now) {
            Ok(keyspace) => contents(&keyspace, None),
            Err(_) => Model::new(),
        };
        for n in 0..KEYS {
            let key = key_number(n);
            let changed = built.changed.get(&(*name, key.clone())).copied().unwrap_or(0);
            let excused = reports.iter().any(|report| {
                report.lost_ranges.iter().any(|l| l.keyspace == now && l.contains(&key))
                    || report.lost_writes.iter().any(|l| l.contains(changed))
            });
            assert!(
                found.get(&key) == model.get(&key) || excused,
                "{what}: {name}, key {} is lost in silence (sequence {changed})\n{reports:#?}",
                key.escape_ascii()
            );
        }
    }
}

/// Repairs a damaged store and checks what holds of every repair.
fn check_repair(env: &Env, volume: &SimVolume, built: &Built, seed: u64, what: &str) -> RepairReport {
    let shared: Arc<dyn Volume> = Arc::new(volume.clone());
    let options = |dry_run| RepairOptions { dry_run, options: options(seed) };
    let before = image(volume);
    let foretold = repair(&shared, env, options(true)).unwrap_or_else(|e| panic!("{what}: dry run: {e}"));
    assert!(image(volume) == before, "{what}: the dry run changed something");
    let report = repair(&shared, env, options(false)).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(foretold.damages, report.damages, "{what}");
    assert_eq!((&foretold.lost_ranges, &foretold.lost_writes), (&report.lost_ranges, &report.lost_writes), "{what}");
    assert_eq!(foretold.keyspaces, report.keyspaces, "{what}");
    for (name, to) in &report.set_aside {
        assert_eq!(Some(&volume.contents(*to).unwrap()), before.get(name), "{what}: {name} was not kept");
    }

    let verified = check(env, volume);
    assert!(verified.is_sound(), "{what}: {verified}\nafter {report}");
    let again = repair(&shared, env, options(false)).unwrap();
    assert!(again.was_sound, "{what}: not repaired at once: {again}");

    let store = open(env, volume, seed).unwrap_or_else(|error| panic!("{what}: {error}\nafter {report}"));
    for idle in [false, true] {
        if idle {
            store.put(b"new", b"life").unwrap();
            store.flush().unwrap();
            store.default_keyspace().compact(None, None).unwrap();
            store.delete(b"new").unwrap();
        }
        check_losses(&store, built, &[&report], what);
    }
    store.close().unwrap();
    assert!(check(env, volume).is_sound(), "{what}: later");
    report
}

fn numbered(name: &'static str) -> String {
    let id = NAMES.iter().position(|other| *other == name).unwrap();
    if id == 0 { name.to_owned() } else { format!("keyspace-{id}") }
}

#[test]
fn promise_6_a_repaired_store_opens_and_lacks_only_what_the_report_says() {
    for_each_seed(300, 6, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let built = build(&env, seed);
            let mut rng = Rng::new(seed);
            for (name, bytes) in files(&built.volume) {
                for turn in 0..5 {
                    let copy = built.volume.crash_keep_all();
                    let what = match turn {
                        0 => {
                            copy.remove(name).unwrap();
                            format!("{name} is missing")
                        }
                        1 => {
                            let mut contents = copy.contents(name).unwrap();
                            contents.truncate(rng.below(bytes.max(1)) as usize);
                            copy.set_contents(name, &contents);
                            format!("{name} cut to {}", contents.len())
                        }
                        _ => {
                            let end = if rng.chance(0.5) { bytes.max(1) } else { bytes.clamp(1, 9000) };
                            let at = rng.below(end);
                            copy.rot(name, at, rng.below(8) as u8);
                            format!("{name}, rot at {at}")
                        }
                    };
                    let report = check_repair(&env, &copy, &built, seed, &what);
                    assert_eq!(report.keyspaces, NAMES, "{what}");
                    if is_manifest(name) {
                        assert!(report.nothing_lost() && !report.rebuilt, "{what}: {report}");
                    }
                }
            }
        });
    });
}

#[test]
fn without_current_or_manifest_or_log_the_rest_is_whole() {
    for_each_seed(400, 6, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let built = build(&env, seed);
            let kind = |kind: fn(FileName) -> bool| {
                let copy = built.volume.crash_keep_all();
                files(&copy).iter().filter(|(name, _)| kind(*name)).for_each(|(name, _)| copy.remove(*name).unwrap());
                copy
            };
            let copy = kind(|name| name == FileName::Current);
            let report = check_repair(&env, &copy, &built, seed, "no CURRENT");
            assert!(report.nothing_lost() && !report.rebuilt && report.keyspaces == NAMES, "{report}");

            let copy = kind(|name| matches!(name, FileName::Manifest(_)));
            let report = check_repair(&env, &copy, &built, seed, "no manifest, but its copy");
            assert!(report.nothing_lost() && !report.rebuilt && report.keyspaces == NAMES, "{report}");

            let copy = kind(|name| name == FileName::Current || is_manifest(name));
            let report = check_repair(&env, &copy, &built, seed, "no CURRENT, no manifest");
            assert!(report.nothing_lost() && report.rebuilt, "{report}");

            let copy = kind(|name| matches!(name, FileName::Log(_)));
            let report = check_repair(&env, &copy, &built, seed, "no log");
            assert!(report.lost_ranges.is_empty() && !report.lost_writes.is_empty() && !report.rebuilt, "{report}");
        });
    });
}

/// A table that no manifest names, as a killed compaction leaves one, had a repair throw the manifest away, and with it the knowledge
/// of what was missing: nothing was said to be lost.
#[test]
fn missing_files_beside_files_that_belong_to_nothing_are_told_as_lost() {
    for_each_seed(450, 8, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let built = build(&env, seed);
            let number = |(name, _): &(FileName, u64)| name.number().unwrap_or(0);
            let highest = files(&built.volume).iter().map(number).max().unwrap();
            let tables: Vec<FileName> = files(&built.volume)
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| matches!(name, FileName::Table(_)))
                .collect();
            for missing in &tables {
                for stranger in [0, tables.len() / 2] {
                    let copy = built.volume.crash_keep_all();
                    copy.set_contents(FileName::Table(highest + 1), &copy.contents(tables[stranger]).unwrap());
                    copy.remove(*missing).unwrap();
                    let what = format!("{missing} is missing, and {} is there again", tables[stranger]);
                    let report = check_repair(&env, &copy, &built, seed, &what);
                    assert!(!report.lost_ranges.is_empty(), "{what}: {report}");
                    assert_eq!(report.keyspaces, NAMES, "{what}");
                }
            }
        });
    });
}

#[test]
fn several_damages_at_once_are_repaired_truthfully() {
    for_each_seed(500, 12, |seed| {
        let executor = SimExecutor::new(seed);
        executor.run(|| {
            let env = executor.env();
            let built = build(&env, seed);
            let mut rng = Rng::new(seed);
            for turn in 0..8 {
                let copy = built.volume.crash_keep_all();
                let mut what = format!("turn {turn}");
                let all = files(&copy);
                for _ in 0..1 + rng.below(5) {
                    let (name, bytes) = all[rng.index(all.len())];
                    if is_manifest(name) || matches!(name, FileName::Current | FileName::Lock) {
                        continue;
                    }
                    let at = rng.below(bytes.max(1));
                    copy.rot(name, at, rng.below(8) as u8);
                    what.push_str(&format!(", {name} at {at}"));
                }
                check_repair(&env, &copy, &built, seed, &what);
            }
        });
    });
}

/// A repair that a power failure stops anywhere can be made again, and loses no more than it would have alone. What it had written
/// is not found as tables that the manifest has lost, nor as keyspaces that never were.
#[test]
fn a_crash_in_a_repair_costs_nothing() {
    for_each_seed(600, 6, |seed| {
        let executor = SimExecutor::new(seed);
        let (damaged, built, foretold) = executor.run(|| {
            let env = executor.env();
            let built = build(&env, seed);
            let mut rng = Rng::new(seed);
            let copy = built.volume.crash_keep_all();
            let all = files(&copy);
            let choice: Vec<_> =
                all.iter().copied().filter(|(name, _)| !matches!(name, FileName::ManifestCopy(_))).collect();
            for _ in 0..3 {
                let (name, bytes) = choice[rng.index(choice.len())];
                if matches!(name, FileName::Table(_) | FileName::Log(_)) {
                    copy.rot(name, rng.below(bytes.max(1)), 1);
                }
            }
            // One table does not say what it is, or is not there.
            let tables = all.iter().filter(|(name, _)| matches!(name, FileName::Table(_)));
            let (name, bytes) = *tables.max_by_key(|(_, bytes)| *bytes).unwrap();
            if seed % 2 == 0 {
                (1..bytes.min(1500)).for_each(|back| _ = copy.rot(name, bytes - back, 1));
            } else {
                copy.remove(name).unwrap();
            }
            // Every other time, all is to be rebuilt from the tables.
            let lost = |name| name == FileName::Current || (seed % 2 == 0 && is_manifest(name));
            all.iter().filter(|(name, _)| lost(*name)).for_each(|(name, _)| copy.remove(*name).unwrap());
            let options = RepairOptions { dry_run: true, options: options(seed) };
            let foretold = repair(&(Arc::new(copy.clone()) as Arc<dyn Volume>), &env, options).unwrap();
            (image(&copy), built, foretold)
        });
        let fix = |env: &Env, volume: &SimVolume| {
            let options = RepairOptions { dry_run: false, options: options(seed) };
            repair(&(Arc::new(volume.clone()) as Arc<dyn Volume>), env, options)
        };
        let points = CrashPoints { points_max: 30, images_per_point: 2, ..CrashPoints::default() };
        let differ = AtomicU64::new(0);
        let images = crash_everywhere(
            seed,
            &points,
            |env, volume| {
                damaged.iter().for_each(|(name, bytes)| volume.set_contents(*name, bytes));
                fix(env, volume).is_ok()
            },
            |env, volume, finished| {
                let report = fix(env, &volume).unwrap();
                assert!(report.was_sound || !finished, "{report}");
                if report.rebuilt {
                    let is_as_foretold = foretold.rebuilt && report.keyspaces == foretold.keyspaces;
                    differ.fetch_add(u64::from(!is_as_foretold), Ordering::Relaxed);
                }
                assert!(check(env, &volume).is_sound(), "{report}");
                let store = open(env, &volume, seed).unwrap();
                check_losses(&store, &built, &[&foretold, &report], "after a crash");
                store.close().unwrap();
            },
        );
        // Tables that a log is replayed into have their own names at once, the others shortly before the new manifest.
        let differ = differ.into_inner();
        assert!(images > 20 && differ <= images / 4, "{differ} of {images} differ");
    });
}

#[test]
fn a_store_in_a_directory_is_verified_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let missing = repair_directory(path, RepairOptions::default());
    assert!(matches!(missing, Err(Error::Existence(_))), "{missing:?}");

    let store = Store::open(path).unwrap();
    for n in 0..2000u32 {
        store.put(n.to_be_bytes(), [n as u8; 100]).unwrap();
    }
    store.flush().unwrap();
    store.put(b"only in the log", b"kept").unwrap();
    let locked = repair_directory(path, RepairOptions::default());
    let locked = locked.unwrap_err().to_string();
    assert!(locked.contains("this process has the store") && locked.contains("open already"), "{locked}");
    store.close().unwrap();
    assert!(verify_directory(path, &mut |_| {}).unwrap().is_sound());

    let table = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let table = table.filter(|path| path.extension().is_some_and(|e| e == "table")).max().unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let mut steps = 0;
    let found = verify_directory(path, &mut |_| steps += 1).unwrap();
    assert_eq!(found.damages.len(), 1, "{found}");
    assert!(found.damages[0].file == table.display().to_string() && steps > 0, "{found}");

    let report = repair_directory(path, RepairOptions::default()).unwrap();
    assert!(report.lost_ranges.len() == 1 && report.lost_writes.is_empty(), "{report}");
    assert!(table.with_extension("damaged").exists());
    assert!(verify_directory(path, &mut |_| {}).unwrap().is_sound());
    let store = Store::open(path).unwrap();
    assert_eq!(store.get(b"only in the log").unwrap().as_deref(), Some(&b"kept"[..]));
    let kept = (0..2000u32).filter(|n| store.get(n.to_be_bytes()).unwrap().is_some()).count();
    let reported = (0..2000u32).filter(|n| report.lost_ranges[0].contains(&n.to_be_bytes())).count();
    assert!(kept < 2000 && kept + reported >= 2000 && reported < 100, "{kept} kept, {reported} reported lost");
    store.close().unwrap();
}

/// Both used to lock the directory before they looked, and left a file named LOCK in it.
#[test]
fn where_there_is_no_store_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing = false;
    assert!(matches!(Store::open_with(directory.path(), options), Err(Error::Existence(_))));
    assert!(matches!(repair_directory(directory.path(), RepairOptions::default()), Err(Error::Existence(_))));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A repair that failed left all that it had written, and the next one, and each one after that, found no room.
#[test]
fn a_repair_that_failed_can_be_made_again_in_the_same_room() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let mut options = options(1);
        options.keyspace.memtable_bytes = 64 << 10;
        options.keyspace.table_bytes = 64 << 10;
        let store = StoreBuilder::new(options.clone()).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
        let mut rng = Rng::new(3);
        for key in 0..4000u64 {
            let mut value = vec![0; 100];
            rng.fill(&mut value);
            store.put(key.to_be_bytes(), &value).unwrap();
        }
        store.close().unwrap();
        // All is to be rebuilt from the tables.
        let lost = |name: &FileName| *name == FileName::Current || is_manifest(*name);
        files(&volume).into_iter().filter(|(name, _)| lost(name)).for_each(|(name, _)| volume.remove(name).unwrap());
        let bytes = |is: fn(&FileName) -> bool| -> u64 {
            files(&volume).iter().filter(|(name, _)| is(name)).map(|(_, bytes)| bytes).sum()
        };
        let (tables, all) = (bytes(|name| matches!(name, FileName::Table(_))), bytes(|_| true));
        let room = FaultPlan::none().capacity(all + tables * 3 / 2 + (200 << 10));
        let fix = || {
            let options = RepairOptions { options: options.clone(), ..RepairOptions::default() };
            repair(&(Arc::new(volume.clone()) as Arc<dyn Volume>), &env, options)
        };
        // Stopped in the middle, and failed at its last step, where the new log begins.
        volume.set_contents(FileName::Temporary(9_000_000), &vec![1; tables as usize]);
        for _ in 0..3 {
            let fails = Rule::new(Fault::Io).on(&[Operation::CreatePages]);
            volume.set_faults(room.clone().with(fails));
            fix().unwrap_err();
            assert_eq!(bytes(|name| matches!(name, FileName::Temporary(_))), 0);
        }
        volume.set_faults(room);
        let report = fix().unwrap();
        assert!(report.rebuilt && report.lost_ranges.is_empty(), "{report}");
    });
}
