//! That the checker finds what it is for: one history for each anomaly, and good ones beside them that look alike.

use super::history::{Anomaly, DELETED, Key, Level, Recorded, Step, Tick, Version, check};

fn read(key: Key, found: Version, from: Tick) -> Step {
    Step::Read { key, found, for_update: false, from }
}

fn for_update(key: Key, found: Version, from: Tick) -> Step {
    Step::Read { key, found, for_update: true, from }
}

fn write(key: Key, version: Version) -> Step {
    Step::Write { key, version }
}

/// From `begun` to `ended`; `committed` is 0 for one that was rolled back.
fn transaction(level: Level, begun: Tick, ended: Tick, committed: u64, steps: &[Step]) -> Recorded {
    let committed = (committed > 0).then_some(committed);
    Recorded { level, steps: steps.to_vec(), begun, ended, committed }
}

const RC: Level = Level::ReadCommitted;

fn found(history: &[Recorded]) -> Option<Anomaly> {
    check(history).err().map(|violation| violation.anomaly)
}

const X: Key = 1;
const Y: Key = 2;

#[test]
fn a_serial_history_is_sound() {
    let history = [
        transaction(RC, 1, 2, 10, &[write(X, 100), write(Y, 101)]),
        transaction(Level::Snapshot(11), 3, 5, 20, &[read(X, 100, 4), write(X, 102), read(X, 102, 4)]),
        transaction(RC, 6, 9, 21, &[read(X, 102, 7), read(Y, 101, 8), write(Y, 103)]),
    ];
    assert_eq!(found(&history), None);
}

#[test]
fn what_nobody_wrote() {
    assert_eq!(found(&[transaction(RC, 1, 2, 10, &[read(X, 7, 1)])]), Some(Anomaly::UnknownRead));
}

#[test]
fn dirty_read_of_an_aborted_write() {
    let aborted = transaction(RC, 1, 5, 0, &[write(X, 100)]);
    assert_eq!(found(&[aborted.clone(), transaction(RC, 2, 4, 10, &[read(X, 100, 3)])]), Some(Anomaly::AbortedRead));
    // Even if the reader is rolled back, too: it had acted on it.
    assert_eq!(found(&[aborted, transaction(RC, 2, 4, 0, &[read(X, 100, 3)])]), Some(Anomaly::AbortedRead));
}

#[test]
fn intermediate_read() {
    let reader = transaction(RC, 2, 4, 11, &[read(X, 100, 3)]);
    let writer = |steps: &[Step]| transaction(RC, 1, 5, 10, steps);
    assert_eq!(found(&[writer(&[write(X, 100), write(X, 101)]), reader.clone()]), Some(Anomaly::IntermediateRead));
    let taken_back = [Step::Savepoint, write(X, 100), Step::RollbackToSavepoint, write(X, 101)];
    assert_eq!(found(&[writer(&taken_back), reader.clone()]), Some(Anomaly::IntermediateRead));
    let kept = [write(X, 99), Step::Savepoint, write(X, 100), Step::PopSavepoint];
    assert_eq!(found(&[writer(&kept), reader]), None);
}

#[test]
fn own_writes() {
    let missed = transaction(RC, 1, 2, 10, &[write(X, 100), read(X, 0, 1)]);
    assert_eq!(found(&[missed]), Some(Anomaly::OwnWriteMissed));
    let taken_back = [write(X, 100), Step::Savepoint, write(X, 101), Step::RollbackToSavepoint, read(X, 101, 1)];
    assert_eq!(found(&[transaction(RC, 1, 2, 10, &taken_back)]), Some(Anomaly::OwnWriteMissed));
    let right = [write(X, 100), Step::Savepoint, write(X, 101), Step::RollbackToSavepoint, read(X, 100, 1)];
    assert_eq!(found(&[transaction(RC, 1, 2, 10, &right)]), None);
}

#[test]
fn stale_read() {
    let writer = transaction(RC, 1, 2, 10, &[write(X, 100)]);
    let reader = |level, begun, from| transaction(level, begun, 9, 11, &[read(X, 0, from)]);
    assert_eq!(found(&[writer.clone(), reader(RC, 3, 4)]), Some(Anomaly::StaleRead));
    assert_eq!(found(&[writer.clone(), reader(RC, 1, 4)]), Some(Anomaly::StaleRead));
    assert_eq!(found(&[writer.clone(), reader(RC, 1, 1)]), None);
    // A snapshot may be older than the read, but not than the transaction.
    assert_eq!(found(&[writer.clone(), reader(Level::Snapshot(1), 3, 4)]), Some(Anomaly::StaleRead));
    assert_eq!(found(&[writer, reader(Level::Snapshot(1), 1, 4)]), None);
}

/// G0: the versions of two keys are in opposite orders. A history has one order of commits, so that it shows as one
/// that is against the order in time.
#[test]
fn dirty_write() {
    let history =
        [transaction(RC, 1, 2, 20, &[write(X, 100)]), transaction(RC, 3, 4, 10, &[write(X, 101), write(Y, 102)])];
    assert_eq!(found(&history), Some(Anomaly::OrderCircle));
}

/// G1c: each has read what the other one wrote.
#[test]
fn circular_information_flow() {
    let history = [
        transaction(RC, 1, 8, 10, &[write(X, 100), read(Y, 101, 3)]),
        transaction(RC, 2, 9, 11, &[write(Y, 101), read(X, 100, 4)]),
    ];
    assert_eq!(found(&history), Some(Anomaly::OrderCircle));
}

fn lost_update(level: Level, read: fn(Key, Version, Tick) -> Step) -> [Recorded; 2] {
    [
        transaction(level, 1, 8, 10, &[read(X, 0, 3), write(X, 100)]),
        transaction(level, 2, 9, 11, &[read(X, 0, 4), write(X, 101)]),
    ]
}

#[test]
fn lost_update_is_allowed_under_read_committed_only() {
    assert_eq!(found(&lost_update(RC, read)), None);
    assert_eq!(found(&lost_update(Level::Snapshot(1), read)), Some(Anomaly::SnapshotCircle));
    assert_eq!(found(&lost_update(RC, for_update)), Some(Anomaly::OrderCircle));
    assert_eq!(found(&lost_update(Level::Snapshot(1), for_update)), Some(Anomaly::OrderCircle));
}

#[test]
fn a_blind_overwrite_under_a_snapshot() {
    let history = |level| {
        [transaction(RC, 1, 8, 10, &[write(X, 100)]), transaction(level, 2, 9, 11, &[read(Y, 0, 3), write(X, 101)])]
    };
    assert_eq!(found(&history(RC)), None);
    assert_eq!(found(&history(Level::Snapshot(1))), Some(Anomaly::LostRace));
    assert_eq!(found(&history(Level::Snapshot(10))), None);
}

/// One key as it was before a transaction, another one as that left it.
fn read_skew(level: Level) -> [Recorded; 2] {
    [
        transaction(RC, 2, 5, 10, &[write(X, 100), write(Y, 101)]),
        transaction(level, 1, 8, 11, &[read(X, 0, 1), read(Y, 101, 6)]),
    ]
}

#[test]
fn read_skew_is_allowed_under_read_committed_only() {
    assert_eq!(found(&read_skew(RC)), None);
    assert_eq!(found(&read_skew(Level::Snapshot(1))), Some(Anomaly::SnapshotCircle));
}

/// Two transactions that did not meet, seen by two readers in opposite orders (long fork): not snapshot isolation.
#[test]
fn long_fork() {
    let history = [
        transaction(RC, 1, 20, 10, &[write(X, 100)]),
        transaction(RC, 1, 20, 11, &[write(Y, 101)]),
        transaction(Level::Snapshot(9), 2, 9, 12, &[read(X, 100, 3), read(Y, 0, 3)]),
        transaction(Level::Snapshot(9), 2, 9, 13, &[read(X, 0, 3), read(Y, 101, 3)]),
    ];
    assert_eq!(found(&history), Some(Anomaly::SnapshotCircle));
}

fn write_skew(level: Level, read: fn(Key, Version, Tick) -> Step) -> [Recorded; 2] {
    [
        transaction(level, 1, 8, 10, &[read(X, 0, 3), write(Y, 100)]),
        transaction(level, 2, 9, 11, &[read(Y, 0, 4), write(X, 101)]),
    ]
}

#[test]
fn write_skew_is_allowed_unless_what_is_read_is_read_for_update() {
    assert_eq!(found(&write_skew(RC, read)), None);
    assert_eq!(found(&write_skew(Level::Snapshot(1), read)), None);
    assert_eq!(found(&write_skew(RC, for_update)), Some(Anomaly::OrderCircle));
    assert_eq!(found(&write_skew(Level::Snapshot(1), for_update)), Some(Anomaly::OrderCircle));
}

/// Nothing was there, then something, then nothing again.
#[test]
fn deletions() {
    let deletes = [
        transaction(RC, 1, 2, 10, &[write(X, 100)]),
        transaction(RC, 3, 4, 11, &[write(X, 101 | DELETED), read(X, 0, 3)]),
    ];
    let with = |more: Recorded| [&deletes[..], &[more]].concat();
    // Who read something and finds it deleted.
    let lost = |level, step: Step| with(transaction(level, 1, 9, 12, &[step, write(X, 102)]));
    assert_eq!(found(&lost(Level::Snapshot(10), for_update(X, 100, 2))), Some(Anomaly::OrderCircle));
    assert_eq!(found(&lost(Level::Snapshot(10), read(X, 100, 2))), Some(Anomaly::SnapshotCircle));
    assert_eq!(found(&lost(RC, for_update(X, 100, 2))), Some(Anomaly::OrderCircle));
    assert_eq!(found(&lost(RC, read(X, 100, 2))), None);
    // Who found nothing, and finds nothing again.
    assert_eq!(found(&lost(Level::Snapshot(9), for_update(X, 0, 2))), None);
    assert_eq!(found(&lost(RC, for_update(X, 0, 2))), None);
    assert_eq!(found(&with(transaction(RC, 5, 9, 12, &[read(X, 100, 6)]))), Some(Anomaly::StaleRead));
    // Who found nothing, and finds something.
    let created = |level, step: Step| {
        [deletes[0].clone(), transaction(level, 1, 9, 12, &[step, write(X, 102)]), deletes[1].clone()]
    };
    let mut late = created(Level::Snapshot(9), for_update(X, 0, 1));
    late[2].committed = Some(13);
    assert_eq!(found(&late), Some(Anomaly::OrderCircle));
    // Who overwrites the deletion of what was not there at its snapshot, is not behind the deletion's transaction in
    // all.
    let overtaken = |before: Version| {
        let deletion = transaction(RC, 2, 8, 10, &[write(X, 103 | DELETED), write(Y, 104)]);
        let writer = transaction(Level::Snapshot(9), 1, 9, 11, &[read(Y, 0, 1), write(X, 105)]);
        [transaction(RC, 0, 9, 5, &[write(X, before)]), deletion, writer]
    };
    assert_eq!(found(&overtaken(102 | DELETED)), None);
    assert_eq!(found(&overtaken(102)), Some(Anomaly::SnapshotCircle));
    let missed = transaction(RC, 1, 2, 10, &[write(X, 100), write(X, 101 | DELETED), read(X, 100, 1)]);
    assert_eq!(found(&[missed]), Some(Anomaly::OwnWriteMissed));
}

/// What was read for update and given up by going back to a savepoint, is not protected any more.
#[test]
fn a_read_for_update_that_was_taken_back() {
    let steps = [Step::Savepoint, for_update(X, 0, 2), Step::RollbackToSavepoint, write(X, 101)];
    let history = [transaction(RC, 1, 4, 10, &[write(X, 100)]), transaction(RC, 1, 5, 11, &steps)];
    assert_eq!(found(&history), None);
}
