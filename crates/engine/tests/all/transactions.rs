//! Transactions, one claim at a time: what they see, what they refuse, what they leave behind.

use crate::common;
use crate::common::*;
use situ_engine::{
    Error, Isolation, Keyspace, LockMode, Options, ReadOptions, Store, StoreBuilder, Transaction, TransactionCursor,
    TransactionKind, TransactionOptions, WriteBatch,
};
use situ_sim::{FaultPlan, Rng, SimExecutor, SimVolume, for_each_seed};
use std::sync::Arc;

const KINDS: [TransactionKind; 2] = [TransactionKind::Pessimistic, TransactionKind::Optimistic];
const ISOLATIONS: [Isolation; 2] = [Isolation::ReadCommitted, Isolation::Snapshot];

fn options(kind: TransactionKind, isolation: Isolation) -> TransactionOptions {
    let mut options = TransactionOptions::default().lock_timeout_ms(0);
    options.kind = kind;
    options.isolation = isolation;
    options
}

/// Each kind with each isolation.
fn all_options() -> impl Iterator<Item = TransactionOptions> {
    KINDS.into_iter().flat_map(|kind| ISOLATIONS.into_iter().map(move |isolation| options(kind, isolation)))
}

fn with_store(test: impl Fn(&Store, &TransactionOptions)) {
    for options in all_options() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        test(&store, &options);
        let properties = store.properties();
        assert_eq!((properties.transactions, properties.locks), (0, 0), "{options:?}: something is left behind");
        assert_eq!(properties.snapshots, 0, "{options:?}");
        store.close().unwrap();
    }
}

fn begin(store: &Store, options: &TransactionOptions) -> Transaction {
    store.begin_with(options).unwrap()
}

fn read(keyspace: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    keyspace.get(key).unwrap().map(|value| value.to_vec())
}

fn read_in(transaction: &Transaction, keyspace: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    transaction.get_in(keyspace, key).unwrap().map(|value| value.to_vec())
}

fn is_conflict<T: std::fmt::Debug>(outcome: &Result<T, Error>, on: &[u8]) -> bool {
    matches!(outcome, Err(Error::Conflict { key, .. }) if **key == *on)
}

#[test]
fn a_commit_is_seen_whole_across_keyspaces_and_a_rollback_not_at_all() {
    with_store(|store, options| {
        let (first, second) = (store.default_keyspace(), store.create_keyspace("second", Default::default()).unwrap());
        first.put(b"gone", b"before").unwrap();
        let mut transaction = begin(store, options);
        transaction.put_in(first, b"key", b"one").unwrap();
        transaction.put_in(&second, b"key", b"two").unwrap();
        transaction.delete_in(first, b"gone").unwrap();
        assert_eq!(read_in(&transaction, first, b"key"), Some(b"one".to_vec()));
        assert_eq!(read_in(&transaction, &second, b"key"), Some(b"two".to_vec()));
        assert_eq!(read_in(&transaction, first, b"gone"), None);
        assert_eq!((read(first, b"key"), read(&second, b"key")), (None, None));
        assert_eq!(store.properties().transactions, 1);
        let before = store.snapshot().unwrap();
        let number = transaction.commit().unwrap();
        assert!(before.sequence() < number && number <= store.snapshot().unwrap().sequence());
        assert_eq!((read(first, b"key"), read(&second, b"key")), (Some(b"one".to_vec()), Some(b"two".to_vec())));
        assert_eq!(read(first, b"gone"), None);

        for explicitly in [true, false] {
            let mut transaction = begin(store, options);
            transaction.put_in(first, b"key", b"three").unwrap();
            transaction.get_for_update_in(&second, b"key", LockMode::Exclusive).unwrap();
            if explicitly {
                transaction.rollback()
            } else {
                drop(transaction)
            }
            assert_eq!(read(first, b"key"), Some(b"one".to_vec()));
        }
        assert_eq!(store.statistics().transactions_committed, 1);
    });
}

#[test]
fn reads_see_the_snapshot_or_what_is_committed() {
    with_store(|store, options| {
        let keyspace = store.default_keyspace();
        keyspace.put(b"key", b"old").unwrap();
        let transaction = begin(store, options);
        // The snapshot is that of the first operation, not of the beginning.
        keyspace.put(b"key", b"before the first read").unwrap();
        assert_eq!(read_in(&transaction, keyspace, b"key"), Some(b"before the first read".to_vec()));
        keyspace.put(b"key", b"new").unwrap();
        let expected = match options.isolation {
            Isolation::Snapshot => &b"before the first read"[..],
            Isolation::ReadCommitted => b"new",
        };
        assert_eq!(read_in(&transaction, keyspace, b"key").as_deref(), Some(expected));
        let mut iterator = transaction.cursor_in(keyspace).unwrap();
        iterator.seek_to_first().unwrap();
        assert_eq!(iterator.value(), Some(expected));
        assert_eq!(transaction.snapshot().is_some(), options.isolation == Isolation::Snapshot);
        drop(iterator);
        transaction.commit().unwrap();
    });
}

/// Writes outside of transactions take no locks: the check at commit is what finds them.
#[test]
fn a_plain_write_to_a_key_that_a_transaction_relies_on_is_a_conflict() {
    type Rely = fn(&mut Transaction, &Keyspace);
    type Change = fn(&Keyspace);
    let relies: [Rely; 4] = [
        |transaction, keyspace| drop(transaction.get_for_update_in(keyspace, b"key", LockMode::Exclusive).unwrap()),
        |transaction, keyspace| drop(transaction.get_for_update_in(keyspace, b"key", LockMode::Shared).unwrap()),
        |transaction, keyspace| transaction.put_in(keyspace, b"key", b"mine").unwrap(),
        |transaction, keyspace| transaction.delete_in(keyspace, b"key").unwrap(),
    ];
    let changes: [Change; 5] = [
        |keyspace| keyspace.put(b"key", b"theirs").unwrap(),
        |keyspace| keyspace.delete(b"key").unwrap(),
        |keyspace| keyspace.delete_range(b"a", b"z").unwrap(),
        |keyspace| {
            keyspace.put(b"key", b"theirs").unwrap();
            keyspace.flush().unwrap();
            keyspace.compact(None, None).unwrap();
        },
        |keyspace| {
            keyspace.delete(b"key").unwrap();
            keyspace.flush().unwrap();
            keyspace.compact(None, None).unwrap();
        },
    ];
    with_store(|store, options| {
        let keyspace = store.default_keyspace();
        for rely in relies {
            for change in changes {
                keyspace.put(b"key", b"before").unwrap();
                let mut transaction = begin(store, options);
                transaction.put_in(keyspace, b"other", b"value").unwrap();
                rely(&mut transaction, keyspace);
                change(keyspace);
                let theirs = read(keyspace, b"key");
                assert!(is_conflict(&transaction.commit(), b"key"));
                assert_eq!((read(keyspace, b"key"), read(keyspace, b"other")), (theirs, None));
                // Beside it, nothing is a conflict.
                let mut transaction = begin(store, options);
                rely(&mut transaction, keyspace);
                keyspace.put(b"kex", b"").unwrap();
                keyspace.put(b"key\0", b"").unwrap();
                keyspace.delete_range(b"a", b"key").unwrap();
                keyspace.delete_range(b"key\0", b"z").unwrap();
                transaction.commit().unwrap();
            }
        }
        assert!(store.statistics().transaction_conflicts > 0);
    });
}

/// The version that a read-committed transaction read may be newer than every snapshot but its own; a compaction that
/// dropped it together with the tombstone over it would leave nothing to find.
#[test]
fn compaction_keeps_what_shows_a_change() {
    with_store(|store, options| {
        let keyspace = store.default_keyspace();
        let mut transaction = begin(store, options);
        for n in 0..300u32 {
            let key = n.to_be_bytes();
            if options.isolation == Isolation::ReadCommitted {
                keyspace.put(key, b"before").unwrap();
                assert!(transaction.get_for_update_in(keyspace, key, LockMode::Shared).unwrap().is_some());
            } else {
                assert!(transaction.get_for_update_in(keyspace, key, LockMode::Shared).unwrap().is_none());
            }
        }
        // One for some of the rows is enough.
        assert!(store.properties().snapshots <= 64 + 300 / 2 + 1, "{}", store.properties().snapshots);
        let changed = 250u32.to_be_bytes();
        keyspace.put(changed, b"after").unwrap();
        if options.isolation == Isolation::ReadCommitted {
            keyspace.delete(changed).unwrap();
        }
        keyspace.flush().unwrap();
        keyspace.compact(None, None).unwrap();
        transaction.put_in(keyspace, b"result", b"").unwrap();
        assert!(is_conflict(&transaction.commit(), &changed));
    });
}

#[test]
fn of_two_that_write_the_same_key_the_first_to_commit_wins() {
    with_store(|store, options| {
        let keyspace = store.default_keyspace();
        let (mut first, mut second) = (begin(store, options), begin(store, options));
        read_in(&second, keyspace, b"another");
        first.put_in(keyspace, b"key", b"first").unwrap();
        let second = match options.kind {
            TransactionKind::Pessimistic => {
                let refused = second.put_in(keyspace, b"key", b"second").unwrap_err();
                assert!(
                    matches!(&refused, Error::LockTimeout { wait, waited_ms: 0 } if wait.waits_for == first.number())
                );
                assert!(refused.is_retryable());
                first.commit().unwrap();
                second.put_in(keyspace, b"key", b"second").map(|()| second)
            }
            TransactionKind::Optimistic => {
                second.put_in(keyspace, b"key", b"second").unwrap();
                first.commit().unwrap();
                Ok(second)
            }
        };
        let outcome = second.and_then(Transaction::commit);
        // Under read committed there is nothing that the second one relied on before it had the lock.
        let succeeds = (options.kind, options.isolation) == (TransactionKind::Pessimistic, Isolation::ReadCommitted);
        let last = if succeeds { &b"second"[..] } else { b"first" };
        assert!(if succeeds { outcome.is_ok() } else { is_conflict(&outcome, b"key") }, "{options:?}: {outcome:?}");
        assert_eq!(read(keyspace, b"key").as_deref(), Some(last));
    });
}

/// The snapshot is taken behind the first lock: who waited for it sees what the other one has done.
#[test]
fn a_transaction_that_begins_by_locking_does_not_fail_for_having_waited() {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let store =
            StoreBuilder::new(Options::default()).env(env.clone()).open_volume(Arc::new(volume.clone())).unwrap();
        let jobs: Vec<_> = (0..10)
            .map(|_| {
                let store = store.clone();
                let job = move || {
                    for _ in 0..10 {
                        let mut transaction = store.begin().unwrap();
                        let keyspace = store.default_keyspace();
                        let seen = transaction.get_for_update_in(keyspace, b"n", LockMode::Exclusive).unwrap();
                        let n = seen.map_or(0, |bytes| u32::from_le_bytes(bytes[..].try_into().unwrap()));
                        transaction.put_in(keyspace, b"n", (n + 1).to_le_bytes()).unwrap();
                        transaction.commit().unwrap();
                    }
                };
                env.executor.spawn("counter", Box::new(job)).unwrap()
            })
            .collect();
        jobs.iter().for_each(|job| job.join().unwrap());
        assert_eq!(read(store.default_keyspace(), b"n"), Some(100u32.to_le_bytes().to_vec()));
        assert_eq!(store.statistics().transaction_conflicts, 0);
        assert!(store.statistics().lock_waits > 0);
        store.close().unwrap();
    });
}

#[test]
fn write_skew_is_refused_if_what_is_read_is_read_for_update() {
    for (kind, for_update) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let keyspace = store.default_keyspace();
        let options = options(kind, Isolation::Snapshot);
        let (mut first, mut second) = (begin(&store, &options), begin(&store, &options));
        let look = |transaction: &mut Transaction, key: &[u8]| match for_update {
            true => transaction.get_for_update_in(keyspace, key, LockMode::Shared),
            false => transaction.get_in(keyspace, key),
        };
        assert!(look(&mut first, b"on duty: ada").unwrap().is_none());
        assert!(look(&mut second, b"on duty: grace").unwrap().is_none());
        let writes = first
            .put_in(keyspace, b"on duty: grace", b"no")
            .and_then(|()| second.put_in(keyspace, b"on duty: ada", b"no"))
            .and_then(|()| first.commit())
            .and_then(|_| second.commit());
        assert_eq!(writes.is_ok(), !for_update, "{kind:?}: {writes:?}");
        store.close().unwrap();
    }
}

#[test]
fn savepoints_lie_one_behind_the_other_and_give_back_writes_and_locks() {
    with_store(|store, options| {
        let keyspace = store.default_keyspace();
        keyspace.put(b"b", b"stored").unwrap();
        let mut transaction = begin(store, options);
        assert!(matches!(transaction.rollback_to_savepoint(), Err(Error::Invalid(_))));
        assert!(matches!(transaction.pop_savepoint(), Err(Error::Invalid(_))));
        transaction.put_in(keyspace, b"a", b"1").unwrap();
        let bytes = transaction.bytes();
        transaction.set_savepoint();
        transaction.put_in(keyspace, b"a", b"2").unwrap();
        transaction.put_in(keyspace, b"b", b"2").unwrap();
        transaction.set_savepoint();
        transaction.delete_in(keyspace, b"a").unwrap();
        transaction.delete_in(keyspace, b"b").unwrap();
        transaction.put_in(keyspace, b"c", b"3").unwrap();
        let state = |transaction: &Transaction| [b"a", b"b", b"c"].map(|key| read_in(transaction, keyspace, key));
        assert_eq!(state(&transaction), [None, None, Some(b"3".to_vec())]);
        transaction.rollback_to_savepoint().unwrap();
        assert_eq!(state(&transaction), [Some(b"2".to_vec()), Some(b"2".to_vec()), None]);
        // What was locked since the savepoint is anybody's again.
        let mut other = begin(store, options);
        other.put_in(keyspace, b"c", b"theirs").unwrap();
        other.commit().unwrap();
        transaction.rollback_to_savepoint().unwrap();
        assert_eq!(read_in(&transaction, keyspace, b"a"), Some(b"1".to_vec()));
        assert_eq!(read_in(&transaction, keyspace, b"b"), Some(b"stored".to_vec()));
        assert_eq!(transaction.bytes(), bytes);
        assert!(matches!(transaction.rollback_to_savepoint(), Err(Error::Invalid(_))));
        keyspace.put(b"b", b"changed").unwrap();
        transaction.set_savepoint();
        transaction.put_in(keyspace, b"d", b"4").unwrap();
        transaction.pop_savepoint().unwrap();
        transaction.commit().unwrap();
        let after = [b"a", b"b", b"c", b"d"].map(|key| read(keyspace, key));
        let expected = [b"1".to_vec(), b"changed".to_vec(), b"theirs".to_vec(), b"4".to_vec()];
        assert_eq!(after, expected.map(Some));
    });
}

#[test]
fn memory_and_locks_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let mut store_options = Options::default();
    store_options.transaction_locks_max = 100;
    let store = Store::open_with(directory.path(), store_options).unwrap();
    let keyspace = store.default_keyspace();
    for options in all_options() {
        let mut transaction = store.begin_with(&options.clone().bytes_max(20_000)).unwrap();
        let outcome = (0..1000u32).try_for_each(|n| transaction.put_in(keyspace, n.to_be_bytes(), [7; 500]));
        assert!(matches!(outcome, Err(Error::TransactionTooLarge { bytes_max: 20_000, .. })), "{outcome:?}");
        assert!(transaction.bytes() <= 20_000 && transaction.bytes() > 15_000);
        // Reads count, too, and so does what savepoints have to remember.
        let mut reader = store.begin_with(&options.clone().bytes_max(10_000)).unwrap();
        let read = |n: u32| reader.get_for_update_in(keyspace, [&[1][..], &n.to_be_bytes()].concat(), LockMode::Shared);
        let outcome = (0..1000).map(read).find_map(Result::err);
        assert!(matches!(outcome, Some(Error::TransactionTooLarge { .. })), "{outcome:?}");
        drop(reader);
        let mut rewriter = store.begin_with(&options.clone().bytes_max(10_000)).unwrap();
        rewriter.set_savepoint();
        let outcome = (0..1000).map(|_| rewriter.put_in(keyspace, b"again", [1; 100])).find_map(Result::err);
        assert!(matches!(outcome, Some(Error::TransactionTooLarge { .. })), "{outcome:?}");
        rewriter.rollback_to_savepoint().unwrap();
        let mut same = (0..1000).map(|_| rewriter.put_in(keyspace, b"again", [1; 100]));
        assert!(same.all(|put| put.is_ok()), "a key that is written again takes no more memory");
        drop(rewriter);
        // What was within bounds can be committed.
        transaction.commit().unwrap();
    }
    let mut holder = begin(&store, &options(TransactionKind::Pessimistic, Isolation::ReadCommitted));
    let outcome = (0..200u32).try_for_each(|n| holder.put_in(keyspace, n.to_be_bytes(), b"value"));
    assert!(matches!(outcome, Err(Error::TooManyLocks { locks: 100, locks_max: 100 })), "{outcome:?}");
    assert_eq!(store.properties().locks, 100);
    let mut optimist = begin(&store, &options(TransactionKind::Optimistic, Isolation::ReadCommitted));
    (0..200u32).for_each(|n| optimist.put_in(keyspace, [9, n as u8], b"value").unwrap());
    optimist.commit().unwrap();
    holder.commit().unwrap();
    assert_eq!(store.properties().locks, 0);
    store.close().unwrap();
}

#[test]
fn arguments_and_states_that_cannot_be_are_refused_with_a_reason() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(directory.path()).unwrap();
    let other = Store::open(elsewhere.path()).unwrap();
    let keyspace = store.default_keyspace();
    let dropped = store.create_keyspace("dropped", Default::default()).unwrap();
    let mut transaction = store.begin().unwrap();
    assert!(matches!(transaction.put_in(keyspace, b"", b""), Err(Error::Invalid(_))));
    assert!(matches!(transaction.put_in(other.default_keyspace(), b"key", b""), Err(Error::Invalid(_))));
    assert!(matches!(transaction.get_in(other.default_keyspace(), b"key"), Err(Error::Invalid(_))));
    transaction.put_in(&dropped, b"key", b"value").unwrap();
    store.drop_keyspace("dropped").unwrap();
    assert!(matches!(transaction.put_in(&dropped, b"key", b"value"), Err(Error::KeyspaceDropped { .. })));
    transaction.put_in(keyspace, b"key", b"value").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::KeyspaceDropped { .. })));
    assert_eq!(read(keyspace, b"key"), None);
    assert_eq!((store.properties().transactions, store.properties().locks), (0, 0));
    other.close().unwrap();
    store.close().unwrap();
    let read_only = Store::open_read_only(directory.path()).unwrap();
    assert!(matches!(read_only.begin(), Err(Error::ReadOnly)));
}

#[test]
fn a_transaction_that_outlives_the_store_is_refused_and_leaves_nothing() {
    for options in all_options() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let keyspace = store.default_keyspace().clone();
        let (mut first, mut second) = (begin(&store, &options), begin(&store, &options));
        first.put_in(&keyspace, b"first", b"value").unwrap();
        second.put_in(&keyspace, b"second", b"value").unwrap();
        let mut iterator = first.cursor_in(&keyspace).unwrap();
        let env = store.env().clone();
        store.close().unwrap();
        drop(store);
        assert!(matches!(first.get_in(&keyspace, b"first"), Err(Error::Closed)));
        assert!(matches!(first.put_in(&keyspace, b"first", b"again"), Err(Error::Closed)));
        iterator.seek_to_first().unwrap();
        assert_eq!(iterator.key(), Some(&b"first"[..]));
        assert!(matches!(first.commit(), Err(Error::Closed)));
        assert!(matches!(situ_sim::wait(&env, second.commit_async()), Err(Error::Closed)));
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(contents(store.default_keyspace(), None), Model::new());
        store.close().unwrap();
    }
}

/// What a read-only transaction read for update was unchanged at one moment, or its commit says that it was not.
#[test]
fn a_transaction_without_writes_checks_what_it_read_for_update() {
    with_store(|store, options| {
        let keyspace = store.default_keyspace();
        for change in [false, true] {
            let mut transaction = begin(store, options);
            transaction.get_for_update_in(keyspace, b"key", LockMode::Shared).unwrap();
            if change {
                keyspace.put(b"key", b"value").unwrap();
            }
            assert!(transaction.is_empty());
            assert_eq!(is_conflict(&transaction.commit(), b"key"), change);
        }
    });
}

/// The transaction's iterators against a model: own writes over the store's, both ways, with bounds and prefixes, over
/// memtables and tables.
#[test]
fn iterators_show_the_stores_entries_with_the_transactions_own_over_them() {
    for_each_seed(0, 60, |seed| {
        let mut rng = Rng::new(seed);
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_with(directory.path(), small_options(&mut rng)).unwrap();
        let keyspace = store.default_keyspace();
        let mut model = Model::new();
        const KEYS: u64 = 80;
        for _ in 0..rng.below(300) {
            let (key, value) = (key(&mut rng, KEYS), value(&mut rng));
            if rng.chance(0.1) {
                let end = common::key(&mut rng, KEYS);
                keyspace.delete_range(&key, &end).unwrap();
                model.retain(|other, _| *other < key || *other >= end);
            } else {
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        let kind = KINDS[rng.index(2)];
        let mut transaction = begin(&store, &options(kind, Isolation::Snapshot));
        transaction.snapshot().unwrap();
        // Nobody sees what comes later.
        let mut later = WriteBatch::new();
        later.put_in(keyspace, b"behind all the others", b"later").unwrap();
        store.write(later).unwrap();
        let mut states: Vec<(Model, bool)> = Vec::new();
        for round in 0..6 {
            for _ in 0..rng.below(25) {
                let key = key(&mut rng, KEYS);
                if rng.chance(0.4) {
                    transaction.delete_in(keyspace, &key).unwrap();
                    model.remove(&key);
                } else {
                    let value = value(&mut rng);
                    transaction.put_in(keyspace, &key, &value).unwrap();
                    model.insert(key, value);
                }
            }
            if rng.chance(0.3) {
                transaction.set_savepoint();
                states.push((model.clone(), true));
            } else if rng.chance(0.3) && !states.is_empty() {
                transaction.rollback_to_savepoint().unwrap();
                model = states.pop().unwrap().0;
            }
            if rng.chance(0.2) {
                keyspace.flush().unwrap();
            }
            for walk in 0..6 {
                wander_in(&mut rng, &transaction, keyspace, &model, KEYS, &format!("round {round}, walk {walk}"));
            }
        }
        // An iterator stays as it was opened.
        let mut iterator = transaction.cursor_in(keyspace).unwrap();
        for n in 0..KEYS {
            transaction.delete_in(keyspace, key_number(n)).unwrap();
        }
        let mut found = Model::new();
        iterator.seek_to_first().unwrap();
        while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
            found.insert(key.to_vec(), value.to_vec());
            iterator.next().unwrap();
        }
        assert_eq!(found, model);
        drop(iterator);
        let mut empty = transaction.cursor_in(keyspace).unwrap();
        empty.seek_to_last().unwrap();
        assert!(!empty.valid());
        drop((empty, transaction));
        store.close().unwrap();
    });
}

fn wander_in(rng: &mut Rng, transaction: &Transaction, keyspace: &Keyspace, model: &Model, keys: u64, what: &str) {
    let mut options = ReadOptions::default();
    if rng.chance(0.3) {
        options.lower_bound = Some(key(rng, keys));
    }
    if rng.chance(0.3) {
        options.upper_bound = Some(key(rng, keys));
    }
    if rng.chance(0.15) {
        options = options.prefix(b"a rather");
    }
    let inside = |key: &[u8]| {
        options.lower_bound.as_ref().is_none_or(|lower| &lower[..] <= key)
            && options.upper_bound.as_ref().is_none_or(|upper| key < &upper[..])
    };
    let entries: Vec<(&Vec<u8>, &Vec<u8>)> = model.iter().filter(|(key, _)| inside(key)).collect();
    let mut iterator: TransactionCursor = transaction.cursor_in_with(keyspace, &options).unwrap();
    let mut at: Option<usize> = None;
    for step in 0..25 {
        let target = key(rng, keys);
        let behind = entries.partition_point(|(key, _)| **key < target);
        match rng.below(9) {
            0 => {
                iterator.seek_to_first().unwrap();
                at = Some(0);
            }
            1 => {
                iterator.seek_to_last().unwrap();
                at = entries.len().checked_sub(1);
            }
            2 => {
                iterator.seek(&target).unwrap();
                at = Some(behind);
            }
            3 => {
                iterator.seek_for_prev(&target).unwrap();
                let exact = entries.get(behind).is_some_and(|(key, _)| **key == target);
                at = if exact { Some(behind) } else { behind.checked_sub(1) };
            }
            4..7 => {
                iterator.next().unwrap();
                at = at.map(|at| at + 1);
            }
            _ => {
                iterator.prev().unwrap();
                at = at.and_then(|at| at.checked_sub(1));
            }
        }
        at = at.filter(|at| *at < entries.len());
        let expected = at.map(|at| (&entries[at].0[..], &entries[at].1[..]));
        assert_eq!(iterator.key().zip(iterator.value()), expected, "{what}, step {step}, {options:?}");
    }
    for (key, value) in model {
        assert_eq!(read_in(transaction, keyspace, key).as_ref(), Some(value), "{what}");
    }
}
