use super::*;

fn tombstone(sequence: u64) -> RangeTombstone {
    RangeTombstone { begin: sequence.to_be_bytes().to_vec(), end: b"\xff".to_vec(), sequence }
}

#[test]
fn a_snapshot_never_changes_and_is_shared_until_the_next_insert() {
    let tombstones = RangeTombstones::new();
    tombstones.insert(tombstone(1), &Share::default());
    let one = tombstones.all();
    assert!(Arc::ptr_eq(&one, &tombstones.all()));
    tombstones.insert(tombstone(2), &Share::default());
    assert!(one.iter().map(Arc::as_ref).eq(&[tombstone(1)]));
    assert!(tombstones.all().iter().map(Arc::as_ref).eq(&[tombstone(1), tombstone(2)]));
}

#[test]
fn an_insert_that_returned_is_in_every_later_snapshot() {
    let count = if cfg!(miri) { 10 } else { 500 };
    let tombstones = RangeTombstones::new();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let tombstones = &tombstones;
            scope.spawn(move || {
                for number in 0..count {
                    let mine = tombstone(number * 3 + thread);
                    tombstones.insert(mine.clone(), &Share::default());
                    assert!(tombstones.all().iter().any(|found| **found == mine));
                }
            });
        }
    });
    assert_eq!(tombstones.all().len() as u64, count * 3);
}
