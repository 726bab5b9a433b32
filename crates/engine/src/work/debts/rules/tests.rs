//! Tests of each debt alone, then of all together: the payment that is due, and the time of the next check.

use super::*;

fn idle() -> Debts {
    Debts { idle_for: IDLE_AFTER, log: Some(LogDebt { current: 9, ..LogDebt::default() }), ..Debts::default() }
}

fn memtable(keyspace: u32, first_log: u64) -> MemtableDebt {
    MemtableDebt { keyspace, bytes: 100, first_log: Some(first_log), ..MemtableDebt::default() }
}

#[test]
fn each_debt_has_its_payment_and_the_log_does_not_wait() {
    let over = LogDebt { is_over: true, oldest_kept: 7, current: 9, ..LogDebt::default() };
    let three = vec![memtable(1, 3), memtable(2, 6), memtable(3, 7), MemtableDebt::default()];
    let busy = Debts { log: Some(over.clone()), memtables: three.clone(), ..Debts::default() };
    assert_eq!(due(&busy), Some(Payment::SealForLog(vec![1, 2])), "a busy store");
    let resting = Debts { rests: true, ..busy.clone() };
    assert_eq!(due(&resting), Some(Payment::SealForLog(vec![1, 2])), "after a failure");
    let current = LogDebt { oldest_kept: 20, ..over };
    let held_by_current = Debts { log: Some(current), memtables: vec![memtable(1, 9)], ..Debts::default() };
    assert_eq!(due(&held_by_current), None, "the file that takes records cannot go");

    let frees = MemtableDebt { frees_space: true, ..memtable(4, 9) };
    let empty = MemtableDebt { frees_space: true, first_log: None, ..memtable(5, 9) };
    let has_tombstones = Debts { memtables: vec![memtable(1, 9), frees.clone(), empty], ..idle() };
    assert_eq!(due(&has_tombstones), Some(Payment::Seal(vec![4])));
    let recent = MemtableDebt { sealed_ago: Some(SEAL_EVERY / 3), ..frees };
    let sealed_before = Debts { memtables: vec![recent], ..idle() };
    assert_eq!((due(&sealed_before), next_look_in(&sealed_before)), (None, Some(SEAL_EVERY / 3 * 2)));

    let tables = Debts { tables: TableDebt::Due, open_segments_are_dead: true, ..idle() };
    assert_eq!(due(&tables), Some(Payment::Compact));
    assert_eq!(due(&Debts { open_segments_are_dead: true, ..idle() }), Some(Payment::EndSegments));

    let held = LogDebt { current: 9, held_bytes: LOG_BYTES_AT_REST + 500, file_bytes: 1 << 30, ..LogDebt::default() };
    let holders = Debts { log: Some(held.clone()), memtables: vec![memtable(1, 3), memtable(2, 9)], ..idle() };
    assert_eq!(due(&holders), Some(Payment::Seal(vec![1])), "memtables hold 200 bytes");
    let flushed = Debts { log: Some(held), memtables: vec![MemtableDebt::default()], ..idle() };
    assert_eq!(due(&flushed), Some(Payment::ShortenLog));
}

#[test]
fn nothing_but_the_log_is_paid_in_a_busy_store_or_during_a_rest() {
    let frees = MemtableDebt { frees_space: true, ..memtable(4, 9) };
    let all = Debts { memtables: vec![frees], tables: TableDebt::Due, open_segments_are_dead: true, ..idle() };
    assert!(due(&all).is_some());
    let busy = Debts { idle_for: IDLE_AFTER / 5, ..all.clone() };
    assert_eq!((due(&busy), next_look_in(&busy)), (None, Some(IDLE_AFTER / 5 * 4)));
    let resting = Debts { rests: true, ..all };
    assert_eq!((due(&resting), next_look_in(&resting)), (None, Some(LOOK_AGAIN)));
}

#[test]
fn a_store_that_owes_nothing_is_not_looked_at() {
    assert_eq!((due(&idle()), next_look_in(&idle())), (None, None));
    let puts = Debts { memtables: vec![memtable(1, 9)], ..idle() };
    assert_eq!((due(&puts), next_look_in(&puts)), (None, None));
    let undeleted = Debts { has_undeleted: true, ..idle() };
    assert_eq!((due(&undeleted), next_look_in(&undeleted)), (None, Some(LOOK_AGAIN)));
    let later = Debts { tables: TableDebt::DueIn(LOOK_AGAIN), ..idle() };
    assert_eq!((due(&later), next_look_in(&later)), (None, Some(LOOK_AGAIN)));
}
