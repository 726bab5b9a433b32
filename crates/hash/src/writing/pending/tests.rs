//! Pending changes.

use super::{Pending, PendingChange};
use crate::format::address::State;
use crate::format::rebuild::Change;
use crate::writing::batch::{Changes, HashBatch};
use situ_base::Env;
use std::sync::Arc;

fn changes(keys: &[&str]) -> Arc<Changes> {
    let mut batch = HashBatch::new();
    keys.iter().for_each(|key| batch.put(key, format!("value of {key}")).unwrap());
    Arc::new(batch.into_changes(1, 100).unwrap())
}

fn insert(pending: &Pending, first: u64, keys: &[&str]) {
    let changes = changes(keys);
    pending.reserve(&changes);
    (0..keys.len()).for_each(|index| pending.insert(PendingChange::new(first + index as u64, &changes, index)));
}

fn hash(key: &str) -> u64 {
    crate::format::address::hash_of(key.as_bytes(), 1)
}

#[test]
fn a_reader_finds_the_newest_change_that_is_visible() {
    let pending = Pending::new(&Env::system(), 4, 1 << 20, 0);
    let mut batch = HashBatch::new();
    batch.delete("a").unwrap();
    let deletion = Arc::new(batch.into_changes(1, 100).unwrap());
    // The later write is applied first.
    pending.reserve(&deletion);
    pending.insert(PendingChange::new(5, &deletion, 0));
    insert(&pending, 3, &["a", "b"]);
    let find = |visible| pending.find(hash("a"), b"a", visible);
    assert!(find(2).is_none());
    assert!(matches!(find(4).unwrap().change(), Change::Put(_)));
    assert_eq!(find(5).unwrap().change(), Change::Delete(b"a"));
    assert!(pending.find(hash("c"), b"c", 9).is_none());
}

#[test]
fn a_worker_takes_whole_buckets_up_to_its_limit_and_room_comes_back() {
    let pending = Pending::new(&Env::system(), 1, 1 << 20, 0);
    let names: Vec<String> = (0..200).map(|number| format!("key-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    insert(&pending, 1, &names);
    insert(&pending, 1001, &names[..50]);
    let state = State::new(4);
    let (mut from, mut seen, mut buckets) = (Some(0), 0, Vec::new());
    while let Some(at) = from {
        let (taken, next) = pending.take(0, at, 1000, 3, &state);
        assert!(taken.len() <= 3);
        for bucket in &taken {
            assert!(bucket.changes.iter().all(|change| state.bucket_of(change.hash()) == bucket.bucket));
            assert!(bucket.last_sequence() <= 1000);
            seen += bucket.changes.len();
            buckets.push(bucket.bucket);
        }
        pending.remove(0, &taken);
        from = next;
    }
    assert_eq!(seen, 200);
    buckets.sort_unstable();
    assert!(buckets.is_sorted_by(|a, b| a < b), "each bucket once");
    assert!(pending.bytes() > 0);
    let (rest, _) = pending.take(0, 0, u64::MAX, usize::MAX, &state);
    assert_eq!(rest.iter().map(|bucket| bucket.changes.len()).sum::<usize>(), 50);
    pending.remove(0, &rest);
    assert_eq!(pending.bytes(), 0);
}

#[test]
fn one_write_is_always_let_in() {
    let pending = Pending::new(&Env::system(), 2, 100, 0);
    assert!(pending.has_room(1 << 30));
    insert(&pending, 1, &["a"]);
    assert!(!pending.has_room(1));
}

#[test]
fn partitions_are_worked_on_when_they_have_enough_or_somebody_waits() {
    let pending = Pending::new(&Env::system(), 1, 1000, 0);
    insert(&pending, 1, &["a"]);
    assert!(!pending.is_due(0));
    pending.want(1);
    assert!(pending.is_due(0));
    pending.set_drained(0, 1);
    assert!(!pending.is_due(0) && pending.drained() == 1);
    insert(&pending, 2, &["b", "c", "d", "e"]);
    assert!(pending.is_due(0));
}
