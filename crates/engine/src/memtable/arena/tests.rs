use super::*;

/// Fills pieces with their own number, and checks at the end that none was overwritten by another.
fn fill(arena: &Arena, sizes: impl Iterator<Item = usize>, mark: u8) -> (Vec<(NonNull<u8>, usize)>, usize) {
    let mut pieces = Vec::new();
    let mut sum = 0;
    for bytes in sizes {
        let piece = arena.allocate(bytes);
        assert!(piece.addr().get().is_multiple_of(ALIGNMENT));
        // SAFETY: the piece has that many bytes and is ours.
        unsafe { piece.write_bytes(mark, bytes) };
        pieces.push((piece, bytes));
        sum += bytes.next_multiple_of(ALIGNMENT);
    }
    (pieces, sum)
}

fn check(pieces: &[(NonNull<u8>, usize)], mark: u8) {
    for (piece, bytes) in pieces {
        // SAFETY: the piece was written whole and the arena is alive.
        let contents = unsafe { std::slice::from_raw_parts(piece.as_ptr(), *bytes) };
        assert!(contents.iter().all(|byte| *byte == mark));
    }
}

#[test]
fn pieces_of_many_threads_do_not_overlap_and_are_counted_exactly() {
    let (threads, count) = if cfg!(miri) { (3, 40) } else { (4, 4000) };
    let arena = Arena::new(Share::default());
    let used: usize = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let arena = &arena;
                scope.spawn(move || {
                    // Mostly small, sometimes around the size that gets a chunk of its own.
                    let size =
                        |number: usize| if number % 37 == 5 { 3000 + number * 13 % 6000 } else { number * 31 % 400 };
                    let (pieces, sum) = fill(arena, (0..count).map(size), thread as u8 + 1);
                    check(&pieces, thread as u8 + 1);
                    sum
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("no thread panicked")).sum()
    });
    assert_eq!(arena.used_bytes(), used);
    assert!(arena.share().bytes() as usize >= used);
}

#[test]
fn an_idle_arena_is_small_and_a_full_one_wastes_little() {
    let arena = Arena::new(Share::default());
    assert_eq!(arena.share().bytes() as usize, CHUNK_BYTES_FIRST);
    let count = if cfg!(miri) { 300 } else { 100_000 };
    fill(&arena, (0..count).map(|number| 100 + number % 100), 1);
    assert!(arena.share().bytes() as usize - arena.used_bytes() <= arena.used_bytes() / 8 + CHUNK_BYTES_MAX);
}

/// Once a write is in the log, an allocation of its large pieces can no longer be refused.
#[test]
fn large_pieces_come_from_memory_that_was_taken_ahead() {
    let arena = Arena::new(Share::default());
    let allocated = || arena.share().bytes() as usize;
    assert!(!arena.prepare(1, usize::MAX / 4));
    assert_eq!(allocated(), CHUNK_BYTES_FIRST);
    assert!(arena.prepare(1, 3 * LARGE_BYTES) && arena.prepare(1, 3 * LARGE_BYTES) && arena.prepare(2, LARGE_BYTES));
    let prepared = CHUNK_BYTES_FIRST + 4 * LARGE_BYTES + 2 * CHUNK_ALIGNMENT;
    assert_eq!(allocated(), prepared);
    let (pieces, _) = fill(&arena, [LARGE_BYTES, 16, LARGE_BYTES, LARGE_BYTES, LARGE_BYTES].into_iter(), 7);
    check(&pieces, 7);
    assert_eq!(allocated(), prepared);
    fill(&arena, std::iter::once(LARGE_BYTES), 8);
    check(&pieces, 7);
    assert_eq!(allocated(), prepared + LARGE_BYTES + CHUNK_ALIGNMENT);
}

/// What a log holds goes into memtables: a refusal must come before.
#[test]
fn small_pieces_come_from_memory_that_was_taken_ahead() {
    let arena = Arena::new(Share::default());
    let allocated = || arena.share().bytes() as usize;
    assert!(!arena.ensure(usize::MAX / 4));
    assert_eq!(allocated(), CHUNK_BYTES_FIRST);
    let mut pieces = Vec::new();
    for round in 0..if cfg!(miri) { 20 } else { 2000 } {
        let bytes = 100 + round * 37 % 3000;
        assert!(arena.ensure(bytes));
        let ensured = allocated();
        pieces.extend(fill(&arena, std::iter::once(bytes), 9).0);
        assert!(bytes > CHUNK_BYTES_FIRST / 4 || allocated() == ensured, "{bytes}");
    }
    check(&pieces, 9);
    assert!(allocated() <= arena.used_bytes() * 9 / 8 + CHUNK_BYTES_MAX);
}

#[test]
fn a_large_piece_gets_a_chunk_of_its_own_and_wastes_none() {
    let arena = Arena::new(Share::default());
    let (small, _) = fill(&arena, std::iter::once(16), 1);
    let large_bytes = if cfg!(miri) { 20_000 } else { 3 << 20 };
    let (large, _) = fill(&arena, std::iter::once(large_bytes), 2);
    assert_eq!(arena.share().bytes() as usize, CHUNK_BYTES_FIRST + large_bytes + CHUNK_ALIGNMENT);
    let (next, _) = fill(&arena, std::iter::once(16), 3);
    assert_eq!(next[0].0.addr().get() - small[0].0.addr().get(), 16);
    check(&small, 1);
    check(&large, 2);
    check(&next, 3);
}
