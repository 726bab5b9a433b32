use super::*;
use proptest::prelude::*;

fn tombstone(begin: &str, end: &str, sequence: SequenceNumber) -> RangeTombstone {
    RangeTombstone { begin: begin.into(), end: end.into(), sequence }
}

fn shown(fragments: &FragmentedTombstones) -> String {
    let one = |f: Fragment<'_>| format!("{}-{} {:?}", f.begin.escape_ascii(), f.end.escape_ascii(), f.sequences);
    fragments.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_example_of_the_module_page() {
    let list = [tombstone("a", "f", 5), tombstone("c", "e", 9), tombstone("c", "g", 2)];
    let fragments = FragmentedTombstones::new(&list, &[7]);
    assert_eq!(shown(&fragments), "a-c [5], c-e [9, 5], e-f [5], f-g [2]");
    assert_eq!(fragments.covering(b"d", 7), Some(5));
    assert_eq!(fragments.covering(b"d", 9), Some(9));
    assert_eq!(fragments.covering(b"f", 9), Some(2));
    assert_eq!(fragments.covering(b"g", 9), None);
    assert_eq!(fragments.covering(b"a", 4), None);
    assert_eq!(shown(&fragments.clip(Some(b"d"), Some(b"ee"))), "d-e [9, 5], e-ee [5]");
    assert_eq!(shown(&fragments.retain(|_, s| s == 5)), "a-f [5]");
}

#[test]
fn a_tombstone_cut_at_a_table_boundary_heals() {
    let fragments = FragmentedTombstones::new(&[tombstone("a", "c", 5), tombstone("c", "f", 5)], &[]);
    assert_eq!(shown(&fragments), "a-f [5]");
    let twice =
        FragmentedTombstones::new(&[tombstone("a", "c", 5), tombstone("b", "f", 5), tombstone("a", "c", 5)], &[]);
    assert_eq!(shown(&twice), "a-f [5]");
}

#[test]
fn tombstones_that_cover_nothing_are_left_out() {
    let fragments = FragmentedTombstones::new(&[tombstone("b", "b", 5), tombstone("c", "a", 6)], &[]);
    assert!(fragments.is_empty());
    assert_eq!(fragments.covering(b"b", MAX), None);
}

const MAX: SequenceNumber = crate::key::MAX_SEQUENCE;

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    // A small alphabet and short keys, so that boundaries meet; the empty key and prefixes of each other included.
    prop::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', 0xff]), 0..4)
}

fn any_list() -> impl Strategy<Value = Vec<RangeTombstone>> {
    let one = (any_key(), any_key(), 1u64..12);
    prop::collection::vec(one.prop_map(|(begin, end, sequence)| RangeTombstone { begin, end, sequence }), 0..12)
}

fn brute(list: &[RangeTombstone], key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
    let covers = |t: &&RangeTombstone| t.begin.as_slice() <= key && key < t.end.as_slice() && t.sequence <= snapshot;
    list.iter().filter(covers).map(|t| t.sequence).max()
}

fn check_invariants(fragments: &FragmentedTombstones) {
    let all: Vec<Fragment<'_>> = fragments.iter().collect();
    assert_eq!(all.len(), fragments.len());
    assert_eq!(all.iter().map(|f| f.sequences.len()).sum::<usize>(), fragments.sequence_count());
    for fragment in &all {
        assert!(fragment.begin < fragment.end);
        assert!(!fragment.sequences.is_empty() && fragment.sequences.is_sorted_by(|a, b| a > b));
    }
    for pair in all.windows(2) {
        assert!(pair[0].end <= pair[1].begin);
        assert!(pair[0].end < pair[1].begin || pair[0].sequences != pair[1].sequences, "neighbours are not joined");
    }
}

/// Every sequence number of [`any_list`] is in a stripe of its own.
const ALL: [SequenceNumber; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

/// A trimmed queue: each tombstone lies in the next one. Fragments that keep every sequence would be n²/2.
#[test]
fn tombstones_in_each_other_take_one_sequence_a_snapshot() {
    const COUNT: u64 = 20_000;
    let key = |i: u64| i.to_be_bytes().to_vec();
    let rising: Vec<_> = (1..=COUNT).map(|i| RangeTombstone { begin: vec![], end: key(i), sequence: i }).collect();
    let fragments = FragmentedTombstones::new(&rising, &[]);
    assert_eq!((fragments.len(), fragments.sequence_count()), (1, 1));
    let fragments = FragmentedTombstones::new(&rising, &[100, 7000]);
    assert_eq!((fragments.len(), fragments.sequence_count()), (3, 6));
    let falling: Vec<_> =
        (1..=COUNT).map(|i| RangeTombstone { begin: vec![], end: key(COUNT - i), sequence: i }).collect();
    let fragments = FragmentedTombstones::new(&falling, &[100]);
    assert!(fragments.len() as u64 <= COUNT && fragments.sequence_count() as u64 <= 2 * COUNT);
    assert_eq!(fragments.covering(&key(5), 100), Some(100));
    assert_eq!(fragments.covering(&key(5), MAX), Some(COUNT - 6));
}

proptest! {
    #[test]
    fn fragments_for_some_snapshots_answer_these_as_the_list_does(
        list in any_list(), mut snapshots in prop::collection::vec(0u64..13, 0..4), key in any_key(),
    ) {
        snapshots.sort_unstable();
        let fragments = FragmentedTombstones::new(&list, &snapshots);
        check_invariants(&fragments);
        for snapshot in snapshots.iter().copied().chain([MAX]) {
            prop_assert_eq!(fragments.covering(&key, snapshot), brute(&list, &key, snapshot));
        }
        for fragment in fragments.iter() {
            let stripe = |sequence: &u64| snapshots.partition_point(|snapshot| snapshot < sequence);
            prop_assert!(fragment.sequences.is_sorted_by(|a, b| stripe(a) > stripe(b)));
        }
    }

    #[test]
    fn fragments_answer_as_the_list_does(list in any_list(), key in any_key(), snapshot in 0u64..13) {
        let fragments = FragmentedTombstones::new(&list, &ALL);
        check_invariants(&fragments);
        prop_assert_eq!(fragments.covering(&key, snapshot), brute(&list, &key, snapshot));
        for boundary in list.iter().flat_map(|t| [&t.begin, &t.end]) {
            prop_assert_eq!(fragments.covering(boundary, snapshot), brute(&list, boundary, snapshot));
        }
        // Every sequence is kept where each has a snapshot.
        let mut covering: Vec<u64> =
            list.iter().filter(|t| t.begin <= key && key < t.end).map(|t| t.sequence).collect();
        covering.sort_unstable_by(|a, b| b.cmp(a));
        covering.dedup();
        prop_assert_eq!(fragments.fragment_at(&key).map_or(vec![], |f| f.sequences.to_vec()), covering);
    }

    #[test]
    fn fragmenting_fragments_changes_nothing(list in any_list()) {
        let fragments = FragmentedTombstones::new(&list, &ALL);
        prop_assert_eq!(&FragmentedTombstones::new(&fragments.to_list(), &ALL), &fragments);
        prop_assert_eq!(&fragments.clip(None, None), &fragments);
        prop_assert_eq!(&fragments.retain(|_, _| true), &fragments);
    }

    #[test]
    fn clipped_fragments_answer_inside_and_are_silent_outside(
        list in any_list(), lower in prop::option::of(any_key()), upper in prop::option::of(any_key()), key in any_key(),
    ) {
        let clipped = FragmentedTombstones::new(&list, &ALL).clip(lower.as_deref(), upper.as_deref());
        check_invariants(&clipped);
        let inside = lower.as_ref().is_none_or(|l| *l <= key) && upper.as_ref().is_none_or(|u| key < *u);
        prop_assert_eq!(clipped.covering(&key, MAX), brute(&list, &key, MAX).filter(|_| inside));
    }

    #[test]
    fn retaining_drops_exactly_what_it_is_told_to(list in any_list(), key in any_key(), parity in 0u64..2) {
        let kept = FragmentedTombstones::new(&list, &ALL).retain(|_, sequence| sequence % 2 == parity);
        check_invariants(&kept);
        let remaining: Vec<_> = list.into_iter().filter(|t| t.sequence % 2 == parity).collect();
        prop_assert_eq!(kept.covering(&key, MAX), brute(&remaining, &key, MAX));
    }
}
