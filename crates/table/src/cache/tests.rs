use super::*;
use crate::testing::Random;
use std::collections::HashSet;

/// A block of about `bytes` that `mark` tells apart.
fn block(bytes: usize, mark: u64) -> Arc<Block> {
    let mut builder = crate::block::BlockBuilder::new(1);
    builder.add(crate::KeyRef::new(b"k", crate::Trailer(1)), 0, &vec![0; bytes]).unwrap();
    Arc::new(Block::new(builder.finish().to_vec(), mark).unwrap())
}

fn check_books(cache: &BlockCache) {
    let stats = cache.stats();
    let mut charged = 0;
    for shard in &cache.shards {
        let (sum, booked) = shard.lock().unwrap().recount();
        assert_eq!(sum, booked);
        charged += sum;
    }
    assert_eq!(stats.block_bytes, charged);
    let held = stats.block_bytes + stats.spare_bytes;
    assert!(held == 0 || held + stats.pinned_bytes <= stats.capacity_bytes, "{stats:?}");
    assert_eq!(cache.used_bytes(), held + stats.pinned_bytes);
}

#[test]
fn charges_add_up_and_never_exceed_the_capacity() {
    let mut random = Random::seeded(1);
    for capacity in [0, 10_000, 700 << 10, 3 << 20] {
        let cache = BlockCache::new(capacity);
        let mut pins = Vec::new();
        for step in 0..6000 {
            let (table, offset) = (random.below(3) as u64, random.below(400) as u64);
            match random.below(200) {
                0 => cache.set_capacity_bytes((random.below(5) as u64 * capacity) / 4),
                1 => pins.push(cache.pin(random.next() % (capacity + 1))),
                2..=4 => drop(pins.pop()),
                5..=20 => {
                    let is_there = cache.get(table, offset).is_some();
                    assert_eq!(cache.remove(table, offset), is_there);
                    assert!(cache.get(table, offset).is_none());
                }
                21..=110 => {
                    let length = if random.below(100) == 0 { 100_000 } else { random.below(9000) };
                    cache.insert(table, offset, block(length, table << 32 | offset));
                }
                _ => {
                    if let Some(block) = cache.get(table, offset) {
                        assert_eq!(block.file_offset(), table << 32 | offset);
                    }
                }
            }
            if step % 50 == 0 {
                check_books(&cache);
            }
        }
        let stats = cache.stats();
        drop(pins);
        assert_eq!(cache.stats().pinned_bytes, 0);
        cache.set_capacity_bytes(0);
        assert_eq!(cache.used_bytes(), 0);
        assert_eq!(stats.insertions - cache.stats().evictions, 0);
    }
}

#[test]
fn a_scan_does_not_wash_out_what_is_used_again() {
    let cache = BlockCache::new(1 << 20);
    for _ in 0..3 {
        for i in 0..100 {
            if cache.get(1, i).is_none() {
                cache.insert(1, i, block(4000, i));
            }
        }
    }
    for i in 0..10_000 {
        cache.insert(2, i, block(4000, i));
    }
    let kept = (0..100).filter(|i| cache.get(1, *i).is_some()).count();
    assert!(kept >= 95, "{kept} of 100 are left");
}

#[test]
fn the_first_of_two_equal_insertions_wins() {
    let cache = BlockCache::new(1 << 20);
    let first = cache.insert(1, 7, block(10, 7));
    let second = cache.insert(1, 7, block(10, 7));
    assert!(Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&first, &cache.get(1, 7).unwrap()));
    assert!(cache.get(2, 7).is_none() && cache.get(1, 8).is_none());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.insertions), (1, 2, 1));
}

#[test]
fn threads_find_only_what_was_put_in() {
    let cache = BlockCache::new(2 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = Random(thread);
                let mut pin = None;
                for step in 0..20_000 {
                    let offset = random.below(2000) as u64;
                    match cache.get(thread % 2, offset) {
                        Some(found) => assert_eq!(found.file_offset(), offset),
                        None => drop(cache.insert(thread % 2, offset, block(random.below(4000), offset))),
                    }
                    if step % 1000 == 0 {
                        pin = Some(cache.pin(random.next() % (1 << 20)));
                    }
                }
                drop(pin);
            });
        }
    });
    check_books(&cache);
    assert!(cache.stats().hits > 1000);
}

/// Once, a slot that was removed could be given to another block while the queue still named it.
#[test]
fn what_is_removed_leaves_room_and_no_trace() {
    let cache = BlockCache::new(1 << 20);
    for round in 0..50 {
        for i in 0..60 {
            cache.insert(round, i, block(4000, i));
            cache.get(round, i);
        }
        check_books(&cache);
        assert!((0..60).all(|i| cache.remove(round, i)) && !cache.remove(round, 0));
        assert_eq!((cache.stats().blocks, cache.stats().block_bytes), (0, 0));
        check_books(&cache);
    }
    assert_eq!(cache.stats().evictions, 50 * 60);
}

#[test]
fn a_block_that_was_in_use_stays_when_others_wash_through() {
    let cache = BlockCache::new(1 << 20);
    for i in 0..50 {
        cache.insert_warm(1, i, block(4000, i), (2 * (i % 2)) as u8);
    }
    for i in 0..10_000 {
        cache.insert(2, i, block(4000, i));
    }
    assert!((0..50).all(|i| (cache.warmth(1, i) > 0) == (i % 2 == 1)));
}

#[test]
fn memory_of_blocks_that_go_is_used_again() {
    let cache = BlockCache::new(8 << 20);
    let put = |table: u64, i: u64| {
        let mut memory = cache.buffer(table, i, 4000);
        let address = memory.as_ptr().addr();
        assert_eq!(memory.len(), 4000);
        memory.clear();
        memory.extend_from_slice(block(3900, i).bytes());
        cache.insert(table, i, Arc::new(Block::new(memory, i).unwrap()));
        address
    };
    let first: HashSet<usize> = (0..100).map(|i| put(1, i)).collect();
    check_books(&cache);
    assert_eq!(cache.stats().spare_bytes, 0);
    (0..100).for_each(|i| assert!(cache.remove(1, i)));
    check_books(&cache);
    assert!(cache.stats().spare_bytes >= 100 * 4000);
    let again: HashSet<usize> = (0..100).map(|i| put(2, i)).collect();
    assert!(first.intersection(&again).count() >= 90, "another shard has its own");
    // Full: what goes makes room for what comes, and next to nothing lies idle.
    for i in 0..5000 {
        put(3, i);
    }
    check_books(&cache);
    let stats = cache.stats();
    assert!(stats.spare_bytes <= stats.capacity_bytes / 16, "{stats:?}");
    // A block that somebody reads keeps its memory.
    put(4, 7);
    let held = cache.get(4, 7).unwrap();
    assert!(cache.remove(4, 7));
    for i in 0..200 {
        put(5, i);
    }
    assert_eq!(held.file_offset(), 7);
    cache.set_capacity_bytes(0);
    assert_eq!(cache.used_bytes(), 0);
}
