//! A loom model of a reader that finds a gap and a writer that puts a key into it; see `make loom`.
//!
//! The memtable is a flag: it has the key or not. Accesses to the flag are unordered, so only the fences keep the
//! reader from missing the put.

use super::*;
use loom::sync::atomic::{AtomicBool as Flag, AtomicU64 as Visible};
use loom::thread;

struct Store {
    gaps: Arc<Gaps>,
    /// True once the memtable has the key `m`.
    entry: Flag,
    visible: Visible,
}

impl Store {
    fn new() -> Arc<Store> {
        Arc::new(Store { gaps: Gaps::new(), entry: Flag::new(false), visible: Visible::new(1) })
    }

    /// Does the steps of the pipeline for a put.
    fn put(&self) {
        self.entry.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.gaps.concern_writers() {
            self.gaps.put(b"m");
        }
        self.visible.store(2, Ordering::Release);
    }

    /// Does the steps of a cursor that comes from the front.
    fn find(&self) {
        if let Some(watching) = self.gaps.watch(b"a".to_vec(), None, Side::Front, 1, || true) {
            let reached = self.entry.load(Ordering::Relaxed).then(|| b"m".to_vec());
            watching.publish(reached, 1);
        }
    }

    fn check(&self) {
        if self.visible.load(Ordering::Acquire) == 2 {
            assert!(self.gaps.past(b"m", 2).is_none(), "a reader would pass over a key that is there");
        }
    }
}

#[test]
fn a_put_is_found_by_the_reader_or_finds_the_watch() {
    loom::model(|| {
        let store = Store::new();
        let other = Arc::clone(&store);
        let writer = thread::spawn(move || other.put());
        store.find();
        store.check();
        writer.join().unwrap();
        store.check();
    });
}

#[test]
fn a_put_cuts_a_gap_while_another_reader_extends_it() {
    loom::model(|| {
        let store = Store::new();
        store.find();
        let other = Arc::clone(&store);
        let writer = thread::spawn(move || other.put());
        store.find();
        store.check();
        writer.join().unwrap();
        store.check();
    });
}

#[test]
fn a_reader_that_sees_a_put_does_not_see_the_gap() {
    loom::model(|| {
        let store = Store::new();
        store.find();
        let other = Arc::clone(&store);
        let reader = thread::spawn(move || other.check());
        store.put();
        reader.join().unwrap();
        store.check();
    });
}
