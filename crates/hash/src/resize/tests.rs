//! When buckets are split and merged.

use super::{Resize, resize_for};
use crate::format::address::State;
use crate::format::bucket::USABLE_BYTES;
use std::ops::RangeInclusive;

const GROUP: RangeInclusive<u64> = 4..=64;
const MANY: u64 = 1 << 20;

fn full_buckets(count: u64) -> u64 {
    count * USABLE_BYTES as u64
}

/// The count of buckets when nothing is to be done any more.
fn settle(mut state: State, filled_bytes: u64, buckets_max: u64) -> (u64, u64) {
    let mut steps = 0;
    while let Some(resize) = resize_for(&state, filled_bytes, 40, GROUP, buckets_max) {
        state = match resize {
            Resize::Split(step) => step.more,
            Resize::Merge(step) => step.fewer,
        };
        steps += 1;
        assert!(steps < 10_000, "splits and merges come to an end");
    }
    (state.buckets(), steps)
}

#[test]
fn a_store_grows_until_its_load_is_what_it_should_be_and_stays_so() {
    let (buckets, _) = settle(State::new(4), full_buckets(400), MANY);
    assert!((1000..1000 + 64).contains(&buckets), "{buckets}");
}

#[test]
fn a_store_shrinks_when_less_than_half_of_its_load_is_left() {
    let (grown, _) = settle(State::new(4), full_buckets(400), MANY);
    let state = crate::live::core::state_of(4, grown);
    assert_eq!(settle(state, full_buckets(220), MANY), (grown, 0), "more than half");
    let (shrunk, _) = settle(state, full_buckets(100), MANY);
    assert!((500..=520).contains(&shrunk), "{shrunk}");
    assert_eq!(settle(state, 0, MANY).0, 16, "never below the base");
}

#[test]
fn a_device_without_room_for_more_buckets_ends_the_growth() {
    assert_eq!(settle(State::new(4), full_buckets(400), 100).0, 100);
}
