use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// A model: the pages of each run.
#[test]
fn a_page_has_one_owner_whatever_comes_and_goes() {
    let mut arena = Arena::new().unwrap();
    let mut runs: BTreeMap<usize, usize> = BTreeMap::new();
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    };
    for round in 0..20_000 {
        if draw(100) < if round % 4000 < 2000 { 60 } else { 40 } {
            let pages = [1, 1, 1, 2, 3, 16, 17, 64, LENGTH_MAX / PAGE_BYTES][draw(9)];
            let start = arena.take(pages).unwrap();
            let first = (start.as_ptr() as usize - arena.start.as_ptr() as usize) / PAGE_BYTES;
            assert_eq!(first / CHUNK_PAGES, (first + pages - 1) / CHUNK_PAGES, "a run lies in one chunk");
            let before = runs.range(..first + pages).next_back();
            assert!(before.is_none_or(|(other, length)| other + length <= first), "{first} {pages} {before:?}");
            runs.insert(first, pages);
        } else if let Some((first, pages)) = runs.iter().nth(draw(runs.len().max(1))).map(|(a, b)| (*a, *b)) {
            runs.remove(&first);
            arena.give_back(first, pages);
        }
    }
    for (first, pages) in runs {
        arena.give_back(first, pages);
    }
    let kept: usize = arena.kept.iter().enumerate().map(|(pages, runs)| pages * runs.len()).sum();
    let free: usize = arena.chunks.iter().map(|chunk| chunk.free_pages).sum();
    assert_eq!(kept + free, arena.chunks.len() * CHUNK_PAGES);
}

#[test]
fn memory_that_came_back_is_used_before_the_arena_grows() {
    for (before, after) in [(1, 1), (1, 64), (64, 1), (256, 3), (3, LENGTH_MAX / PAGE_BYTES)] {
        let mut arena = Arena::new().unwrap();
        for pages in [before, after].repeat(20) {
            let taken: Vec<_> = (0..CHUNK_PAGES / pages).map(|_| arena.take(pages).unwrap()).collect();
            // Kept runs may stand in the way of longer ones, once.
            assert!(arena.chunks.len() <= 2, "{before} pages, then {after}: {}", arena.chunks.len());
            for start in taken {
                arena.give_back((start.as_ptr() as usize - arena.start.as_ptr() as usize) / PAGE_BYTES, pages);
            }
        }
    }
}

/// The next chunk would replace it.
#[test]
fn no_mapping_of_another_thread_comes_to_lie_in_the_arena_while_it_grows() {
    // The kernel wants more room than their length for mappings of a huge page and more.
    const BYTES: usize = CHUNK_BYTES / 2;
    let mut arena = Arena::new().unwrap();
    let start = arena.start.as_ptr() as usize;
    let map = || {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::empty(), flags) }.unwrap() as usize
    };
    // SAFETY: it is a mapping of `map`, and has no user.
    let unmap = |at: usize| unsafe { munmap(at as *mut _, BYTES) }.unwrap();
    // The kernel takes the highest place that is free. So all above the arena are filled first.
    let above: Vec<usize> = std::iter::repeat_with(map).take_while(|at| *at > start).collect();
    let is_over = AtomicBool::new(false);
    let inside = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let at = map();
                if at.wrapping_sub(start) < ARENA_BYTES {
                    return true;
                }
                unmap(at);
            }
            false
        });
        (0..2000).for_each(|_| _ = arena.grow().unwrap());
        is_over.store(true, Ordering::Relaxed);
        other.join().unwrap()
    });
    above.into_iter().for_each(unmap);
    assert!(!inside);
}
