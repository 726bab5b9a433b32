//! Every interleaving of a few threads on the memtable, explored by loom. Run by
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release -p situ-engine --lib memtable::model`.
//!
//! Loom also lets loads return stale values where the memory orderings allow it, and the [`Witness`](super::sync) in
//! each node reports a read of a node that was not published to the reader.

use loom::sync::Arc;
use loom::thread;
use situ_table::{KeyRef, Trailer};

use super::arena::{Arena, CHUNK_BYTES_FIRST};
use super::meter::Share;
use super::node::Target;
use super::skiplist::SkipList;

fn key(user: &[u8]) -> KeyRef<'_> {
    KeyRef::new(user, Trailer(1))
}

/// The keys on a level, from the head.
fn keys(list: &SkipList, level: usize) -> Vec<Vec<u8>> {
    std::iter::successors(list.head().next(level), |node| node.next(level))
        .map(|node| node.key().user.to_vec())
        .collect()
}

fn contains(list: &SkipList, user: &[u8]) -> bool {
    list.first_at_or_behind(&Target::new(key(user))).is_some_and(|node| node.key() == key(user))
}

#[test]
fn two_inserts_into_one_gap_both_arrive_in_order() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(Share::default()));
        let other = Arc::clone(&list);
        let thread = thread::spawn(move || other.insert(key(b"b"), b"2", 2));
        list.insert(key(b"a"), b"1", 2);
        thread.join().unwrap();
        for level in 0..2 {
            assert_eq!(keys(&list, level), [b"a", b"b"]);
        }
    });
}

#[test]
fn three_inserts_into_one_gap_all_arrive_in_order() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(Share::default()));
        let threads = [b"b", b"c"].map(|user| {
            let list = Arc::clone(&list);
            thread::spawn(move || list.insert(key(user), b"2", 1))
        });
        list.insert(key(b"a"), b"1", 1);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(keys(&list, 0), [b"a", b"b", b"c"]);
    });
}

/// The finger passes from one insert to the next, and with it nodes that the next one did not insert.
#[test]
fn the_finger_passes_between_threads() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(Share::default()));
        let other = Arc::clone(&list);
        let thread = thread::spawn(move || {
            other.insert(key(b"a"), b"1", 1);
            other.insert(key(b"c"), b"3", 2);
        });
        list.insert(key(b"b"), b"2", 2);
        thread.join().unwrap();
        assert_eq!(keys(&list, 0), [b"a", b"b", b"c"]);
        assert_eq!(keys(&list, 1), [b"b", b"c"]);
    });
}

/// The reader is the spawned thread for a reason: loom explores other orders of two accesses only if the later one is
/// the load, or if no load of the writer's own lies between them.
#[test]
fn a_reader_sees_whole_entries_and_never_loses_one() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(Share::default()));
        list.insert(key(b"b"), b"2", 1);
        let other = Arc::clone(&list);
        let reader = thread::spawn(move || {
            let first = keys(&other, 0);
            assert!(first.is_sorted() && first.contains(&b"b".to_vec()) && contains(&other, b"b"));
            let second = keys(&other, 0);
            assert!(first.iter().all(|user| second.contains(user)));
            // Inserted one after the other, so a reader that sees the second sees the first.
            assert!(!contains(&other, b"c") || contains(&other, b"a"));
        });
        list.insert(key(b"a"), b"1", 2);
        assert!(contains(&list, b"a"));
        list.insert(key(b"c"), b"3", 1);
        reader.join().unwrap();
        assert_eq!(keys(&list, 0).len(), 3);
    });
}

#[test]
fn the_arena_gives_no_byte_twice_across_chunks() {
    loom::model(|| {
        let arena = Arc::new(Arena::new(Share::default()));
        // Three of these fill the first chunk, and the fourth needs another.
        let bytes = CHUNK_BYTES_FIRST / 4;
        arena.allocate(bytes);
        arena.allocate(bytes);
        let other = Arc::clone(&arena);
        let thread = thread::spawn(move || [other.allocate(bytes).addr().get(), other.allocate(bytes).addr().get()]);
        let mine = [arena.allocate(bytes).addr().get()];
        let mut places = [thread.join().unwrap().as_slice(), &mine].concat();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0] + bytes <= pair[1]));
        assert_eq!(arena.used_bytes(), 5 * bytes);
        assert_eq!(arena.share().bytes() as usize, 3 * CHUNK_BYTES_FIRST);
    });
}
