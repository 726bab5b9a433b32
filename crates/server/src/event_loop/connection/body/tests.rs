use super::*;
use crate::CacheEngine;
use crate::memory::MemoryEngine;
use situ::cache::Options;

/// Lets all of `value` come in pieces, and returns the body.
fn filled(value: &[u8], engine: &impl Engine) -> Body {
    let mut body = Body::begin(b"set a", value.len(), &value[..10], engine);
    while !body.is_whole() {
        let come = body.arrived;
        let room = body.room(engine).expect("there is memory");
        let bytes = room.len().min(100_000);
        room[..bytes].copy_from_slice(&value[come..come + bytes]);
        body.came(bytes);
    }
    body
}

#[test]
fn a_block_of_any_length_comes_whole() {
    let engine = MemoryEngine::start(None);
    for bytes in [20_000, 70_000, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 5_000_001] {
        let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let mut body = filled(&value, engine.as_ref());
        assert!(body.bytes() == value, "{bytes} bytes");
        assert!(body.room(engine.as_ref()).is_none(), "nothing is read that is behind the block");
    }
}

/// Each value of more than 128 KiB had fresh memory, which the system maps and zeroes page by page.
#[test]
fn the_memory_of_a_block_is_that_of_an_earlier_one() {
    let engine = MemoryEngine::start(None);
    let value = vec![1; 777_777];
    let address = || filled(&value, engine.as_ref()).bytes().as_ptr();
    // Other tests may take the same memory.
    assert!((0..100).any(|_| address() == address()));
}

#[test]
fn the_memory_of_a_block_is_counted_and_refused_beyond_the_limit() {
    let engine = CacheEngine::new(&Options::of_memory(64 << 20)).unwrap();
    let begin = || Body::begin(b"set a", 1 << 20, &[0; 10], &engine);
    let bodies: Vec<Body> = (0..64).map(|_| begin()).collect();
    assert!(bodies.iter().all(|body| body.refused.is_none()), "a quarter of the memory has room for a read of each");
    assert_eq!(begin().refused, Some((1 << 20) - 10));
    drop(bodies);
    let mut long = Body::begin(b"set a", 60 << 20, &[0; 10], &engine);
    let mut other = begin();
    while long.refused.is_none() {
        let room = long.room(&engine).map(|room| room.len());
        long.came(room.unwrap_or(0));
    }
    assert!(long.arrived > 4 << 20 && long.refused == Some((60 << 20) - long.arrived), "{}", long.arrived);
    assert!(other.room(&engine).is_some() && long.bytes().is_empty());
    assert!(begin().refused.is_none(), "the refused block has left its memory");
}
