use super::*;
use proptest::prelude::*;

fn states() -> impl Strategy<Value = State> {
    (0u8..=12, 0u8..=36, any::<u64>()).prop_map(|(base_bits, level, split)| {
        let bits = u32::from(base_bits + level);
        let split = if bits == BUCKET_BITS_MAX { 0 } else { split % (1 << bits) };
        State::from_parts(base_bits, level, split).unwrap()
    })
}

#[test]
fn a_state_whose_parts_do_not_fit_is_refused() {
    assert_eq!(State::from_parts(4, 0, 16), None);
    assert!(State::from_parts(4, 0, 15).is_some());
    assert!(State::from_parts(40, 8, 0).is_some());
    assert_eq!(State::from_parts(40, 8, 1), None, "the round after the last one");
    assert_eq!(State::from_parts(40, 9, 0), None);
    assert_eq!(State::from_parts(255, 255, 0), None);
    assert_eq!(State::new(48).grow(1), None);
}

#[test]
fn one_bucket_has_all_overflow_keys() {
    let range = overflow_range(0, &State::new(0));
    assert_eq!(range, OverflowRange { begin: [0; 8], end: None });
    assert!(range.contains(&overflow_key(u64::MAX, b"key")));
}

#[test]
fn growing_one_by_one_and_shrinking_go_the_same_way() {
    let mut way = vec![State::new(1)];
    while way.len() < 64 {
        let last = way[way.len() - 1];
        let step = last.grow(1).unwrap();
        assert_eq!(step.high(), last.buckets()..last.buckets() + 1, "new buckets are behind the others");
        assert_eq!(step.more.buckets(), last.buckets() + 1);
        way.push(step.more);
    }
    for pair in way.windows(2).rev() {
        assert_eq!(pair[1].shrink(1), pair[0].grow(1));
    }
    assert_eq!(way[0].shrink(1), None);
}

#[test]
fn a_step_ends_with_its_round() {
    let state = State::from_parts(3, 0, 6).unwrap();
    let step = state.grow(64).unwrap();
    assert_eq!((step.low.clone(), step.more), (6..8, State::from_parts(3, 1, 0).unwrap()));
    assert_eq!(step.pairs().collect::<Vec<_>>(), [(6, 14), (7, 15)]);
    assert_eq!(step.more.shrink(64).unwrap().low, 0..8);
    assert!(step.touches(6) && step.touches(15) && !step.touches(5) && !step.touches(8));
}

proptest! {
    #[test]
    fn each_key_lies_in_the_overflow_range_of_its_bucket_alone(state in states(), hash: u64, other: u64, key: Vec<u8>) {
        let bucket = state.bucket_of(hash);
        prop_assert!(bucket < state.buckets());
        let bytes = overflow_key(hash, &key);
        prop_assert!(overflow_range(bucket, &state).contains(&bytes));
        prop_assert_eq!(split_overflow_key(&bytes), Some((hash, &key[..])));
        // Any other bucket: one at random, the neighbours, and the other half.
        let round = state.round();
        for other in [other, bucket.wrapping_add(1), bucket.wrapping_sub(1), bucket ^ round, bucket ^ (round >> 1)] {
            let other = other % state.buckets();
            let is_in = overflow_range(other, &state).contains(&bytes);
            prop_assert_eq!(is_in, other == bucket, "bucket {} of {}", other, state);
        }
    }

    #[test]
    fn a_step_moves_only_what_belongs_to_its_new_buckets(state in states(), hash: u64, most in 1u64..100) {
        let Some(step) = state.grow(most) else { return Ok(()) };
        prop_assert_eq!(step.fewer, state);
        prop_assert_eq!(step.more.buckets(), state.buckets() + (step.low.end - step.low.start));
        let (before, after) = (state.bucket_of(hash), step.more.bucket_of(hash));
        if before == after {
            prop_assert!(!step.high().contains(&after));
        } else {
            prop_assert!(step.low.contains(&before));
            prop_assert_eq!(after, before + step.distance);
        }
        // The overflow range of a bucket is that of its two halves.
        let low = step.low.start;
        let (whole, half) = (overflow_range(low, &state), overflow_range(low, &step.more));
        let other = overflow_range(low + step.distance, &step.more);
        prop_assert_eq!((whole.begin, whole.end), (half.begin, other.end));
        prop_assert_eq!(half.end, Some(other.begin));
    }
}

#[test]
fn all_ranges_of_a_small_state_cover_every_key_once() {
    for (level, split) in [(0, 0), (0, 3), (1, 0), (1, 5), (2, 1)] {
        let state = State::from_parts(2, level, split).unwrap();
        let mut ranges: Vec<_> = (0..state.buckets()).map(|bucket| overflow_range(bucket, &state)).collect();
        ranges.sort_by_key(|range| range.begin);
        assert_eq!(ranges[0].begin, [0; 8]);
        for pair in ranges.windows(2) {
            assert_eq!(pair[0].end, Some(pair[1].begin));
        }
        assert_eq!(ranges[ranges.len() - 1].end, None);
    }
}

#[test]
fn the_examples_of_the_format_page_are_what_the_code_gives() {
    let rows = crate::check::format_page::rows("Examples");
    assert_eq!(rows.len(), 8);
    for row in rows {
        let number = |at: usize| row[at].parse::<u64>().expect("a number");
        let state = State::from_parts(number(1) as u8, number(2) as u8, number(3)).expect("it can be");
        let bucket = state.bucket_of(number(0));
        assert_eq!(bucket, number(4), "{row:?}");
        let range = overflow_range(bucket, &state);
        let hex = |bytes: [u8; 8]| format!("{:016x}", u64::from_be_bytes(bytes));
        assert_eq!((hex(range.begin), range.end.map_or("the end".to_owned(), hex)), (row[5].clone(), row[6].clone()));
    }
    let text = format!("The hash of `k` with the seed 11 is {:#018x}.", hash_of(b"k", 11));
    assert!(crate::check::format_page::PAGE.contains(&text), "{text}");
}
