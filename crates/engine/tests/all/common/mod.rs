//! What the engine's tests share: small stores, a model, random operations.
#![allow(unreachable_pub, reason = "modules of one program share it")]

pub mod fast;
pub mod prefix;
pub mod raw;
pub mod watched;

use situ_engine::{Compression, Cursor, Error, Keyspace, KeyspaceOptions, Options, ReadOptions, Snapshot, WriteFuture};
use situ_sim::Rng;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Key and value of everything in a keyspace.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options that make a few thousand operations flush and compact through several levels.
pub fn small_options(rng: &mut Rng) -> Options {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.memtable_bytes = 4 << (10 + rng.below(3));
    keyspace.memtables_max = 2 + rng.index(3);
    keyspace.block_bytes = 64 << rng.below(6);
    keyspace.filter_bits_per_key = if rng.chance(0.8) { 10 } else { 0 };
    keyspace.level0_tables = 1 + rng.index(4);
    keyspace.level_base_bytes = 8 << 10;
    keyspace.level_multiplier = 2 + rng.below(4);
    keyspace.table_bytes = 2 << (10 + rng.below(3));
    keyspace.compression = match rng.below(3) {
        0 => vec![Compression::None],
        1 => vec![Compression::Lz4],
        _ => vec![Compression::None, Compression::Lz4, Compression::Zstd { level: 1 }],
    };
    let mut options = Options::default();
    options.cache_bytes = 1 << (10 + rng.below(10));
    options.compaction_threads = 1 + rng.index(2);
    options.log_bytes_max = 128 << 10;
    options.keyspace = keyspace;
    draw_value_log(&mut options, rng);
    options
}

/// Some stores have a value log. What else is drawn does not depend on that.
fn draw_value_log(options: &mut Options, rng: &Rng) {
    let mut apart = rng.clone();
    apart.next_u64();
    if apart.chance(0.06) {
        options.keyspace.value_log_min_bytes = Some(apart.below(100));
    }
    // Also where it is off: an opening before may have had it on, and then there is something to collect. Each image of a crash has all of
    // a segment.
    options.value_segment_bytes = 16 << (10 + apart.below(3));
}

pub fn key(rng: &mut Rng, keys: u64) -> Vec<u8> {
    key_number(rng.below(keys))
}

/// The key with this number. Long common prefixes now and then, and keys that are prefixes of others.
pub fn key_number(n: u64) -> Vec<u8> {
    match n % 4 {
        0 => format!("k{n}").into_bytes(),
        1 => format!("a rather long common prefix of many keys/{n:04}").into_bytes(),
        2 => vec![b'x'; 1 + n as usize % 40],
        _ => n.to_be_bytes().to_vec(),
    }
}

pub fn value(rng: &mut Rng) -> Vec<u8> {
    let bytes = match rng.below(20) {
        0 => rng.index(3000),
        1 => 0,
        _ => rng.index(60),
    };
    let mut value = vec![rng.next_u64() as u8; bytes];
    let half = bytes / 2;
    rng.fill(&mut value[..half]);
    value
}

/// Returns the error of a write that the store has refused, if it has done so by now.
pub fn taken(mut write: WriteFuture) -> Result<WriteFuture, Error> {
    if write.has_begun() || !write.is_done() {
        return Ok(write);
    }
    match Pin::new(&mut write).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => Err(error),
        _ => Ok(write),
    }
}

/// Returns the options of a read as of a snapshot, or of now.
pub fn as_of(snapshot: Option<&Snapshot>) -> ReadOptions {
    snapshot.map_or_else(ReadOptions::default, |snapshot| ReadOptions::default().at(snapshot))
}

/// Reads a whole keyspace forward.
pub fn contents(keyspace: &Keyspace, snapshot: Option<&Snapshot>) -> Model {
    let options = as_of(snapshot);
    let mut iterator = keyspace.cursor_with(&options).unwrap();
    let mut found = Model::new();
    iterator.seek_to_first().unwrap();
    while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
        found.insert(key.to_vec(), value.to_vec());
        iterator.next().unwrap();
    }
    found
}

/// Compares everything that can be read of a keyspace with the model: point reads, a walk each way.
pub fn compare(keyspace: &Keyspace, model: &Model, snapshot: Option<&Snapshot>, what: &str) {
    assert_eq!(contents(keyspace, snapshot), *model, "{what}: forward");
    let options = as_of(snapshot);
    let mut iterator = keyspace.cursor_with(&options).unwrap();
    iterator.seek_to_last().unwrap();
    for (key, value) in model.iter().rev() {
        assert_eq!(iterator.key(), Some(&key[..]), "{what}: backward");
        assert_eq!(iterator.value(), Some(&value[..]), "{what}: backward, key {}", key.escape_ascii());
        iterator.prev().unwrap();
    }
    assert!(!iterator.valid(), "{what}: backward, {iterator:?} is left over");
    for (key, value) in model {
        assert_eq!(
            keyspace.get_with(key, &options).unwrap().as_deref(),
            Some(&value[..]),
            "{what}: get {}",
            key.escape_ascii()
        );
    }
}

/// Moves an iterator and a position in the model at random, side by side.
pub fn wander(rng: &mut Rng, keyspace: &Keyspace, model: &Model, snapshot: Option<&Snapshot>, keys: u64, what: &str) {
    let mut options = as_of(snapshot);
    let (lower, upper) = (key(rng, keys), key(rng, keys));
    if rng.chance(0.3) {
        options.lower_bound = Some(lower.clone());
    }
    if rng.chance(0.3) {
        options.upper_bound = Some(upper);
    }
    if rng.chance(0.1) {
        options = options.prefix(b"a rather");
    }
    let inside = |key: &[u8]| {
        options.lower_bound.as_ref().is_none_or(|lower| &lower[..] <= key)
            && options.upper_bound.as_ref().is_none_or(|upper| key < &upper[..])
    };
    let entries: Vec<(&Vec<u8>, &Vec<u8>)> = model.iter().filter(|(key, _)| inside(key)).collect();
    let mut at: Option<usize> = None;
    let mut iterator = keyspace.cursor_with(&options).unwrap();
    for step in 0..30 {
        let target = key(rng, keys);
        let behind = entries.partition_point(|(key, _)| **key < target);
        match rng.below(8) {
            0 => {
                iterator.seek_to_first().unwrap();
                at = Some(0);
            }
            1 => {
                iterator.seek_to_last().unwrap();
                at = entries.len().checked_sub(1);
            }
            2 => {
                iterator.seek(&target).unwrap();
                at = Some(behind);
            }
            3 => {
                iterator.seek_for_prev(&target).unwrap();
                let exact = entries.get(behind).is_some_and(|(key, _)| **key == target);
                at = if exact { Some(behind) } else { behind.checked_sub(1) };
            }
            4 | 5 => {
                iterator.next().unwrap();
                at = at.map(|at| at + 1);
            }
            _ => {
                iterator.prev().unwrap();
                at = at.and_then(|at| at.checked_sub(1));
            }
        }
        at = at.filter(|at| *at < entries.len());
        check_at(&iterator, at.map(|at| entries[at]), &format!("{what}, step {step}, {options:?}"));
    }
}

fn check_at(iterator: &Cursor, expected: Option<(&Vec<u8>, &Vec<u8>)>, what: &str) {
    let expected = expected.map(|(key, value)| (&key[..], &value[..]));
    assert_eq!(iterator.key().zip(iterator.value()), expected, "{what}");
}
