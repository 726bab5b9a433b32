use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::*;

use crate::memory::MemoryEngine;

#[test]
fn ids_are_unique_over_threads_blocks_and_restarts() {
    let engine = MemoryEngine::start(None);
    let seen = Mutex::new(HashSet::new());
    for _ in 0..2 {
        let durable = Durable::open(Arc::clone(&engine)).unwrap();
        // As if most of the block had been given out.
        durable.next.fetch_add(BLOCK - 1000, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let ids: Vec<u64> = (0..1000).map(|_| durable.next_cas().unwrap()).collect();
                    assert!(ids.is_sorted());
                    let mut seen = seen.lock().unwrap();
                    for id in ids {
                        assert!(seen.insert(id), "{id} was given out twice");
                    }
                });
            }
        });
    }
}

#[test]
fn ids_end_with_the_block_while_nothing_can_be_reserved_and_go_on_afterwards() {
    let engine = MemoryEngine::start(None);
    let durable = Durable::open(Arc::clone(&engine)).unwrap();
    engine.failing.store(true, Ordering::SeqCst);
    durable.next.fetch_add(BLOCK - 10, Ordering::Relaxed);
    let given = (0..100).filter_map(|_| durable.next_cas().ok()).max().unwrap();
    assert!(durable.next_cas().is_err());
    // A due flush meanwhile must not put the barrier where ids go on after a restart.
    durable.due.store(5, Ordering::Relaxed);
    let barrier = durable.rule(10).barrier_cas;
    assert!(given < barrier);
    engine.failing.store(false, Ordering::SeqCst);
    let reopened = Durable::open(Arc::clone(&engine)).unwrap();
    let next = reopened.next_cas().unwrap();
    assert!(next > given && next >= barrier, "{next} after {given}, barrier {barrier}");
    // Whoever waited it out goes on, too; the first attempt may be the one that reserves.
    let _ = durable.next_cas();
    assert!(durable.next_cas().unwrap() > given);
}

#[test]
fn damaged_records_are_named() {
    let engine = MemoryEngine::start(None);
    engine.put_meta(LIMIT_KEY, b"short", Box::new(|result| result.unwrap()));
    let error = Durable::open(engine).err().unwrap().to_string();
    assert!(error.contains("cas-limit") && error.contains("expected 8 bytes, found 5"), "{error}");
}
