use super::*;
use crate::key::MAX_SEQUENCE;
use proptest::prelude::*;

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn tombstone(begin: u64, end: u64, sequence: u64) -> RangeTombstone {
    RangeTombstone { begin: key(begin), end: key(end), sequence }
}

fn index(list: &[RangeTombstone]) -> TombstoneIndex {
    list.iter().cloned().map(Arc::new).collect()
}

fn check_invariants(index: &TombstoneIndex) {
    assert!(index.tail.len() < LEAF_TOMBSTONES);
    assert!(index.runs.is_sorted_by(|a, b| a.height >= b.height));
    assert_eq!(index.iter().count(), index.len());
    let mut waiting: Vec<&Run> = index.runs.iter().map(Arc::as_ref).collect();
    while let Some(run) = waiting.pop() {
        assert_eq!(run.leaves.len(), FANOUT.pow(run.height));
        assert!(run.steps.is_sorted_by(|a, b| run.key(*a) < run.key(*b) && a.tombstone != b.tombstone));
        assert!(run.steps.len() <= 2 * LEAF_TOMBSTONES * run.leaves.len());
        assert_eq!(run.steps.last().map(|step| step.tombstone), Some(NONE));
        waiting.extend(run.children.iter().map(Arc::as_ref));
    }
}

/// Sequence numbers rise, but for what concurrent writers do to their order.
fn any_list() -> impl Strategy<Value = Vec<RangeTombstone>> {
    let one = (0u64..40, 0u64..40, 0u64..6);
    prop::collection::vec(one, 0..700).prop_map(|all| {
        let numbered = all.into_iter().enumerate();
        numbered.map(|(at, (begin, end, late))| tombstone(begin, end, (at as u64 + 6) / 3 - late.min(2))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_index_answers_as_the_list_does(list in any_list(), snapshots in prop::collection::vec(0u64..260, 4)) {
        let index = index(&list);
        check_invariants(&index);
        for snapshot in snapshots.into_iter().chain([MAX_SEQUENCE]) {
            for probe in 0..41 {
                let probe = key(probe);
                let covers = |t: &&RangeTombstone| t.begin <= probe && probe < t.end && t.sequence <= snapshot;
                let expected = list.iter().filter(covers).map(|t| t.sequence).max();
                let found = index.covering(&probe, snapshot);
                prop_assert_eq!(found.map(|t| t.sequence), expected);
                prop_assert!(found.is_none_or(|t| covers(&t)));
            }
        }
    }

    /// No order is promised, only served better.
    #[test]
    fn any_order_gives_the_same_answers(
        list in any_list().prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())), snapshot in 0u64..260,
    ) {
        let (ordered, shuffled) = (index(&list.0), index(&list.1));
        for probe in 0..41 {
            let answer = |index: &TombstoneIndex| index.covering(&key(probe), snapshot).map(|t| t.sequence);
            prop_assert_eq!(answer(&ordered), answer(&shuffled));
        }
    }
}

/// A queue that is trimmed with `delete_range("q/", "q/<i>")`, once with the trims growing and once with them
/// shrinking.
#[test]
fn tombstones_in_each_other_take_linear_memory() {
    const COUNT: u64 = 50_000;
    let rising: Vec<_> = (1..=COUNT).map(|i| tombstone(0, i, i)).collect();
    let falling: Vec<_> = (1..=COUNT).map(|i| tombstone(0, COUNT + 1 - i, i)).collect();
    let (rising, falling) = (index(&rising), index(&falling));
    check_invariants(&rising);
    check_invariants(&falling);
    assert!(rising.index_bytes() as u64 <= 24 * COUNT, "{}", rising.index_bytes());
    assert!(falling.index_bytes() as u64 <= 100 * COUNT, "{}", falling.index_bytes());
    let found = |index: &TombstoneIndex, probe, snapshot| index.covering(&key(probe), snapshot).map(|t| t.sequence);
    for probe in (0..COUNT).step_by(997) {
        assert_eq!(found(&rising, probe, MAX_SEQUENCE), Some(COUNT));
        assert_eq!(found(&rising, probe, 777), Some(777).filter(|_| probe < 777));
        assert_eq!(found(&falling, probe, MAX_SEQUENCE), Some(COUNT - probe));
        assert_eq!(found(&falling, probe, 777), Some((COUNT - probe).min(777)));
    }
    assert_eq!(found(&rising, COUNT, MAX_SEQUENCE), None);
}

#[test]
fn copies_share_what_is_indexed() {
    let mut index = index(&(1..=1000).map(|i| tombstone(i, i + 5, i)).collect::<Vec<_>>());
    let copy = index.clone();
    index.push(Arc::new(tombstone(0, 9999, 1001)));
    assert_eq!((copy.len(), index.len()), (1000, 1001));
    assert_eq!(copy.covering(&key(500), MAX_SEQUENCE).map(|t| t.sequence), Some(500));
    assert_eq!(index.covering(&key(500), MAX_SEQUENCE).map(|t| t.sequence), Some(1001));
    assert!(copy.runs.iter().zip(&index.runs).all(|(a, b)| Arc::ptr_eq(a, b)));
}
