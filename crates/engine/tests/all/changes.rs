//! Change feeds: a copy that is kept by one equals the store, whatever happens to either.

use crate::common::*;
use situ_base::Env;
use situ_engine::{
    ChangeBatch, ChangeFeed, ChangeKind, ChangePosition, Durability, Error, Options, Store, StoreBuilder, WriteBatch,
};
use situ_sim::{CrashPoints, FaultPlan, Rng, SimExecutor, SimVolume, crash_everywhere, for_each_seed};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The contents of keyspaces, by name.
type Copied = BTreeMap<String, Model>;

/// Small files, and all of them kept.
fn options(seed: u64) -> Options {
    let mut options = small_options(&mut Rng::new(seed));
    options.log_bytes_max = options.log_bytes_max.max(64 << 20);
    options.changes_kept_bytes = Some(32 << 20);
    options
}

fn open(env: &Env, volume: &SimVolume, seed: u64) -> Result<Store, Error> {
    StoreBuilder::new(options(seed)).env(env.clone()).open_volume(Arc::new(volume.clone()))
}

fn apply(batch: &ChangeBatch, copied: &mut Copied) {
    for change in &batch.changes {
        let model = copied.entry(change.name.to_string()).or_default();
        match &change.kind {
            ChangeKind::Put(value) => drop(model.insert(change.key.clone(), value.clone())),
            ChangeKind::Delete => drop(model.remove(&change.key)),
            ChangeKind::DeleteRange(end) => model.retain(|key, _| *key < change.key || key >= end),
            other => panic!("{other:?}"),
        }
    }
}

fn catch_up(feed: &mut ChangeFeed, copied: &mut Copied) {
    while let Some(batch) = feed.next_batch().unwrap() {
        assert_eq!(feed.position(), batch.position);
        apply(&batch, copied);
    }
}

fn check_equal(store: &Store, copied: &Copied, what: &str) {
    for name in ["default", "other"] {
        let Ok(keyspace) = store.existing_keyspace(name) else { continue };
        let found = contents(&keyspace, None);
        let copied = copied.get(name).cloned().unwrap_or_default();
        let differing = |(key, value): &(&Vec<u8>, &Vec<u8>)| copied.get(*key) != Some(value);
        let first = found.iter().find(differing).map(|(key, _)| key.escape_ascii());
        assert!(copied == found, "{what}: {name} differs ({} of {}, {first:?})", copied.len(), found.len());
    }
}

/// The feed is begun again at its position at each opening, and in between. The store is flushed, compacted, closed and
/// opened with other options.
#[test]
fn a_copy_kept_by_a_feed_equals_the_store() {
    for_each_seed(900, 12, |seed| {
        let sim = SimExecutor::new(seed);
        sim.run(|| {
            let env = sim.env();
            let volume = SimVolume::new(&env, FaultPlan::none(), seed);
            let mut rng = Rng::new(seed);
            let (mut copied, mut position) = (Copied::new(), ChangePosition::BEGINNING);
            for opening in 0..5 {
                let store = open(&env, &volume, rng.next_u64()).unwrap();
                let keyspaces = [store.default_keyspace().clone(), store.keyspace("other").unwrap()];
                let mut feed = store.changes(position).unwrap();
                catch_up(&mut feed, &mut copied);
                check_equal(&store, &copied, &format!("after opening {opening}"));
                for step in 0..60 {
                    let mut batch = WriteBatch::new();
                    for _ in 0..1 + rng.below(4) {
                        let (keyspace, key) = (&keyspaces[rng.index(2)], key(&mut rng, 40));
                        match rng.below(8) {
                            0 => batch.delete_in(keyspace, &key).unwrap(),
                            1 => batch.delete_range_in(keyspace, &key, key_number(rng.below(40))).unwrap(),
                            _ => batch.put_in(keyspace, &key, value(&mut rng)).unwrap(),
                        }
                    }
                    let durability = if rng.chance(0.1) { Durability::Synced } else { Durability::Buffered };
                    store.write_with(batch, durability).unwrap();
                    match rng.below(20) {
                        0 => store.flush().unwrap(),
                        1 => keyspaces[0].compact(None, None).unwrap(),
                        2 => feed = store.changes(feed.position()).unwrap(),
                        _ => {}
                    }
                    if rng.chance(0.3) {
                        catch_up(&mut feed, &mut copied);
                        check_equal(&store, &copied, &format!("step {step} of opening {opening}"));
                    }
                }
                position = feed.position();
                drop(feed);
                store.close().unwrap();
            }
        });
    });
}

/// What a feed has handed out survives a power failure, so the feed goes on from its position, or says that it cannot.
#[test]
fn promise_1_no_crash_leaves_a_copy_ahead_of_its_store() {
    for_each_seed(920, 8, |seed| {
        let points = CrashPoints { points_max: 40, images_per_point: 3, faults: FaultPlan::none() };
        crash_everywhere(
            seed,
            &points,
            |env, volume| {
                let mut kept = (Copied::new(), ChangePosition::BEGINNING);
                let Ok(store) = open(env, volume, seed) else { return kept };
                let Ok(other) = store.keyspace("other") else { return kept };
                let Ok(mut feed) = store.changes(kept.1) else { return kept };
                let mut rng = Rng::new(seed);
                for _ in 0..40 {
                    let mut batch = WriteBatch::new();
                    batch.put(key(&mut rng, 20), value(&mut rng)).unwrap();
                    batch.put_in(&other, key(&mut rng, 20), value(&mut rng)).unwrap();
                    if store.write(batch).is_err() || rng.chance(0.1) && store.flush().is_err() {
                        break;
                    }
                    while rng.chance(0.5)
                        && let Ok(Some(batch)) = feed.next_batch()
                    {
                        apply(&batch, &mut kept.0);
                        kept.1 = batch.position;
                    }
                }
                kept
            },
            |env, volume, kept| {
                let store = open(env, &volume, seed + 1).unwrap();
                // A copy of this state goes on with the next change, whatever the crash has left in the log.
                let last = store.properties().last_sequence;
                let mut fresh = store.changes(ChangePosition::of_copy(last)).unwrap();
                store.put("next", "change").unwrap();
                let next = fresh.next_batch().unwrap().unwrap();
                assert_eq!((next.first, next.changes.len(), &next.changes[0].key[..]), (last + 1, 1, &b"next"[..]));
                let mut copied = kept.0.clone();
                match store.changes(kept.1) {
                    Ok(mut feed) => {
                        store.put("after", "the crash").unwrap();
                        let outcome = loop {
                            match feed.next_batch() {
                                Ok(Some(batch)) => apply(&batch, &mut copied),
                                other => break other,
                            }
                        };
                        match outcome {
                            Ok(_) => check_equal(&store, &copied, &format!("after the crash, since {:?}", kept.1)),
                            Err(error) => assert!(matches!(error, Error::ChangesGone { .. }), "{error}"),
                        }
                    }
                    Err(error) => assert!(matches!(error, Error::ChangesGone { .. }), "{error}"),
                }
            },
        );
    });
}

#[test]
fn a_feed_beside_writers_misses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default().changes_kept_bytes(64 << 20);
    options.keyspace.memtable_bytes = 256 << 10;
    let store = StoreBuilder::new(options).open(directory.path()).unwrap();
    let done = AtomicBool::new(false);
    let mut feed = store.changes(ChangePosition::BEGINNING).unwrap();
    let mut copied = Copied::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..4000u32 {
                        let key = format!("{writer}/{}", number % 500);
                        store.put(key, vec![number as u8; (number % 300) as usize]).unwrap();
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            loop {
                let was_done = done.load(Ordering::Acquire);
                catch_up(&mut feed, &mut copied);
                if was_done {
                    return;
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    check_equal(&store, &copied, "at the end");
    assert_eq!(feed.position().sequence, 12_000);
}

#[test]
fn a_position_that_the_log_does_not_have_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let is_gone = |result: Result<_, Error>| matches!(result.map(drop), Err(Error::ChangesGone { .. }));
    let (store, other) =
        (Store::open(directory.path().join("1")).unwrap(), Store::open(directory.path().join("2")).unwrap());
    for number in 0..10 {
        store.put(format!("{number}"), "here").unwrap();
        other.put(format!("{number}"), "there").unwrap();
    }
    let mut feed = store.changes(ChangePosition::BEGINNING).unwrap();
    (0..5).for_each(|_| drop(feed.next_batch().unwrap().unwrap()));
    let position = feed.position();
    assert_eq!(position.to_string().parse(), Ok(position));
    // Of another store; ahead; inside.
    assert!(is_gone(other.changes(position)));
    assert!(is_gone(store.changes(ChangePosition::of_copy(11))));
    let ahead = ChangePosition { sequence: 11, ..position };
    assert!(is_gone(store.changes(ahead)));
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.put("b", "2").unwrap();
    store.write(batch).unwrap();
    assert!(is_gone(store.changes(ChangePosition::of_copy(11))));
    assert_eq!(store.changes(ChangePosition::of_copy(10)).unwrap().next_batch().unwrap().unwrap().first, 11);
    assert!(store.changes(ChangePosition::of_copy(12)).unwrap().next_batch().unwrap().is_none());
    // Without kept files, a flush releases records that no feed has read.
    for number in 0..4 {
        store.put("later", format!("{number}")).unwrap();
        store.flush().unwrap();
    }
    assert!(is_gone(store.changes(position)));
    // One that is open finds a gap behind what it has read.
    let gone = (0..20).find_map(|_| feed.next_batch().err());
    assert!(matches!(gone, Some(Error::ChangesGone { .. })), "{gone:?}");
}

#[test]
fn kept_files_stay_within_their_limit_and_go_when_the_limit_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let open = |kept: Option<u64>| {
        let mut options = Options::default();
        options.changes_kept_bytes = kept;
        options.keyspace.memtable_bytes = 64 << 10;
        StoreBuilder::new(options).open(directory.path()).unwrap()
    };
    let log_bytes = || {
        let files = std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
        let logs = files.filter(|file| file.file_name().to_str().unwrap().ends_with(".log"));
        logs.map(|file| file.metadata().unwrap().len()).sum::<u64>()
    };
    let store = open(Some(1 << 20));
    let mut feed = store.changes(ChangePosition::BEGINNING).unwrap();
    for number in 0..400u32 {
        store.put(number.to_be_bytes(), vec![1; 10 << 10]).unwrap();
        if number % 10 == 0 {
            store.flush().unwrap();
            // A reader that is not far behind finds everything.
            while feed.next_batch().unwrap().is_some() {}
        }
    }
    let position = feed.position();
    assert!((512 << 10..4 << 20).contains(&log_bytes()), "{} bytes of log", log_bytes());
    drop(feed);
    store.close().unwrap();
    // The store remembers the limit.
    let store = open(None);
    assert_eq!(store.changes(position).unwrap().next_batch().unwrap().unwrap().first, position.sequence + 1);
    store.close().unwrap();
    let store = open(Some(0));
    store.put("k", "v").unwrap();
    store.flush().unwrap();
    store.put("k", "v").unwrap();
    store.flush().unwrap();
    assert!(log_bytes() < 512 << 10, "{} bytes of log", log_bytes());
    assert!(matches!(store.changes(position).map(drop), Err(Error::ChangesGone { .. })));
}

#[test]
fn moved_values_are_no_changes_and_dropped_keyspaces_have_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = Options::default().changes_kept_bytes(64 << 20).value_segment_bytes(64 << 10);
    options.keyspace.value_log_min_bytes = Some(1 << 10);
    options.keyspace.memtable_bytes = 64 << 10;
    let store = StoreBuilder::new(options).open(directory.path()).unwrap();
    let gone = store.keyspace("gone").unwrap();
    let mut feed = store.changes(ChangePosition::BEGINNING).unwrap();
    let mut copied = Copied::new();
    for round in 0..6u8 {
        for number in 0..60u32 {
            if round == 0 || number % 3 == 0 {
                store.put(number.to_be_bytes(), vec![round; 4 << 10]).unwrap();
            }
            gone.put(number.to_be_bytes(), "value").unwrap();
        }
        store.flush().unwrap();
        store.default_keyspace().compact(None, None).unwrap();
    }
    store.drop_keyspace("gone").unwrap();
    catch_up(&mut feed, &mut copied);
    check_equal(&store, &copied, "with a value log");
    assert_eq!(copied.keys().collect::<Vec<_>>(), ["default"]);
    assert_eq!(feed.keyspaces().len(), 1);
}
