//! Orders of events that threads rarely produce.

use super::*;
use crate::shadow::Nowhere;

fn state() -> LogState {
    LogState::new(&LogOptions::default(), 1, Arc::new(Nowhere { pages: 64, writes_wait: false })).unwrap()
}

fn append(state: &mut LogState, length: usize) -> u64 {
    state.append([0; RECORD_HEADER_BYTES], &[&vec![1; length]], length).unwrap().0
}

fn fly(state: &mut LogState, target: u64, durability: Durability) -> LogFlight {
    match state.plan(target, durability, &mut false) {
        LogPlan::Write(flight) => flight,
        _ => panic!("there is something to write"),
    }
}

fn waits(state: &mut LogState, target: u64, durability: Durability) -> bool {
    let mut wants_sync = false;
    let waits = matches!(state.plan(target, durability, &mut wants_sync), LogPlan::Wait(..));
    state.stop_wanting(wants_sync);
    waits
}

#[test]
fn nothing_is_acknowledged_past_a_hole() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let mut state = state();
        let a = append(&mut state, 100);
        let first = fly(&mut state, a, durability);
        let b = append(&mut state, 100);
        let second = fly(&mut state, b, durability);
        state.landed(second, Ok(()));
        assert_eq!((state.written, state.durable), (0, 0));
        assert!(waits(&mut state, b, durability));
        state.landed(first, Ok(()));
        assert_eq!(state.written, b);
        assert_eq!(state.durable, if durability == Durability::Synced { b } else { 0 });
    }
}

#[test]
fn a_gap_is_durable_only_when_the_rewrite_that_takes_it_over_has_landed() {
    let mut state = state();
    let a = append(&mut state, 100);
    let buffered = fly(&mut state, a, Durability::Buffered);
    state.landed(buffered, Ok(()));
    let b = append(&mut state, 100);
    let rewrite = fly(&mut state, b, Durability::Synced);
    assert!(rewrite.durable && rewrite.chunk.rewrite);
    assert_eq!((state.written, state.durable), (a, 0));
    // Another flight lands meanwhile, and the watermarks are looked at.
    let c = append(&mut state, 100);
    let other = fly(&mut state, c, Durability::Synced);
    state.landed(other, Ok(()));
    assert_eq!((state.written, state.durable), (a, 0));
    assert!(waits(&mut state, a, Durability::Synced), "the page is on its way to the disk only");
    state.landed(rewrite, Ok(()));
    assert_eq!((state.written, state.durable), (c, c));
}

#[test]
fn a_sync_waits_for_the_rewrite_in_flight() {
    let mut state = state();
    let a = append(&mut state, 5000);
    let buffered = fly(&mut state, a, Durability::Buffered);
    state.landed(buffered, Ok(()));
    let b = append(&mut state, 100);
    let rewrite = fly(&mut state, b, Durability::Buffered);
    assert!(rewrite.chunk.rewrite);
    assert!(waits(&mut state, a, Durability::Synced));
    state.landed(rewrite, Ok(()));
    assert!(matches!(state.plan(a, Durability::Synced, &mut false), LogPlan::Sync(_)));
    // The page that the sync covers is closed.
    let c = append(&mut state, 100);
    assert_eq!((b / PAYLOAD_BYTES as u64 + 1) * PAYLOAD_BYTES as u64 + 108, c);
    assert!(waits(&mut state, a, Durability::Synced), "the sync is under way");
    state.synced(Ok(()));
    assert_eq!(state.durable, b);
}

#[test]
fn a_wanted_sync_keeps_pages_from_being_opened_again() {
    let mut state = state();
    let a = append(&mut state, 5000);
    let first = fly(&mut state, a, Durability::Buffered);
    let mut wants_sync = false;
    assert!(matches!(state.plan(a, Durability::Synced, &mut wants_sync), LogPlan::Wait(Durability::Buffered, _)));
    state.landed(first, Ok(()));
    let b = append(&mut state, 100);
    assert_eq!(b % PAYLOAD_BYTES as u64, 108, "a fresh page: otherwise rewrites could keep the sync waiting for ever");
    assert!(matches!(state.plan(a, Durability::Synced, &mut wants_sync), LogPlan::Sync(_)));
    state.synced(Ok(()));
    state.stop_wanting(wants_sync);
    let second = fly(&mut state, b, Durability::Buffered);
    state.landed(second, Ok(()));
    assert_eq!(append(&mut state, 100), b + 108, "nobody wants a sync any more");
}

#[test]
fn synced_writers_form_groups() {
    let mut state = state();
    let a = append(&mut state, 10);
    let first = fly(&mut state, a, Durability::Synced);
    // As many wait as fly: a second one starts. Then two fly, and one more is not enough.
    let b = append(&mut state, 10);
    let second = fly(&mut state, b, Durability::Synced);
    let c = append(&mut state, 10);
    assert!(waits(&mut state, c, Durability::Synced));
    // One lands: one is enough again.
    state.landed(first, Ok(()));
    let third = fly(&mut state, c, Durability::Synced);
    state.landed(third, Ok(()));
    state.landed(second, Ok(()));
    assert_eq!(state.durable, c);
}
