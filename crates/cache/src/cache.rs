//! The cache as its users see it.

use crate::counters::Counters;
use crate::item::{Hit, KEY_BYTES_MAX, Meta, NewItem, VALUE_BYTES_MAX};
use crate::memory::Memory;
use crate::options::Options;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cache. Handles are cheap to clone; the cache ends with the last one.
///
/// ```
/// use situ_cache::{Cache, Meta, Options};
///
/// let cache = Cache::new(&Options::of_memory(16 << 20));
/// let now = 1_700_000_000;
/// cache.put(b"ada", &Meta::default(), [b"1815", b""], now)?;
/// let length = cache.get(b"ada", now, |hit| hit.item.value.len());
/// assert_eq!(length, Some(4));
/// # Ok::<(), situ_cache::Refused>(())
/// ```
#[derive(Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Memory,
    counters: Counters,
    next_lane: AtomicU64,
    number: u64,
}

/// What a cache holds, and what it has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Properties {
    /// Items in it, expired ones included that are still to go.
    pub items: u64,
    /// Memory that it takes, all included.
    pub memory_bytes: u64,
    /// Memory of its index.
    pub index_bytes: u64,
    /// Items that went to make room.
    pub evicted: u64,
    /// Items that went because they had expired.
    pub reclaimed: u64,
    /// Items that stayed when their segment went.
    pub moved: u64,
    /// Stored keys that had gone lately.
    pub ghost_hits: u64,
}

/// Why an item is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The key has no bytes, or more than 250.
    Key,
    /// The item is longer than a quarter of the memory, or the value than 1 GiB.
    TooLong,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Key => "a key has 1 to 250 bytes",
            Refused::TooLong => "the item is longer than a quarter of the cache's memory, or than 1 GiB",
        })
    }
}

impl std::error::Error for Refused {}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(options: &Options) -> Cache {
        Cache::with_seed(options, RandomState::new().hash_one("index"))
    }

    /// As [`new`](Cache::new), with a seed for the hashes of keys: for tests that are to repeat themselves.
    #[must_use]
    pub fn with_seed(options: &Options, seed: u64) -> Cache {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Cache {
            shared: Arc::new(Shared {
                memory: Memory::new(options, seed),
                counters: Counters::default(),
                next_lane: AtomicU64::new(0),
                number: NEXT.fetch_add(1, Ordering::Relaxed),
            }),
        }
    }

    /// Stores an item in the place of the one that its key has. The value is the concatenation of two parts. `now` is the
    /// time, Unix seconds.
    ///
    /// # Errors
    /// The key or the value has a length that the cache does not take. The key's older item goes in that case, too: it is out of date.
    pub fn put(&self, key: &[u8], meta: &Meta, parts: [&[u8]; 2], now: u64) -> Result<(), Refused> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Refused::Key);
        }
        let item = NewItem { meta: *meta, key, parts };
        let memory = &self.shared.memory;
        if item.value_bytes() > VALUE_BYTES_MAX || !memory.put(self.lane(), &item, now, &self.shared.counters) {
            self.delete(key);
            return Err(Refused::TooLong);
        }
        Ok(())
    }

    /// Shows the item of `key` to `read`, if it is there and has not expired. `read` must be quick and must not call the cache: it holds
    /// up others that want keys nearby.
    pub fn get<T>(&self, key: &[u8], now: u64, read: impl FnOnce(Hit<'_>) -> T) -> Option<T> {
        self.shared.memory.get(key, now, read)
    }

    /// Removes the item of `key`. True if there was one.
    pub fn delete(&self, key: &[u8]) -> bool {
        self.shared.memory.delete(key)
    }

    /// Memory that the cache's owner takes out of the same limit, in bytes: for connections, say. The cache then takes less.
    pub fn set_beside(&self, bytes: usize) {
        self.shared.memory.set_beside(bytes);
    }

    /// Does what puts need not wait for: expired segments go, and memory beyond the limit is given back. To be called about once a second.
    pub fn tidy(&self, now: u64) {
        self.shared.memory.tidy(now, &self.shared.counters);
    }

    /// What it holds, and what it has done. Costs a few loads.
    #[must_use]
    pub fn properties(&self) -> Properties {
        let Shared { memory, counters, .. } = &*self.shared;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Properties {
            items: memory.index.len() as u64,
            memory_bytes: memory.bytes() as u64,
            index_bytes: memory.index.bytes() as u64,
            evicted: load(&counters.evicted),
            reclaimed: load(&counters.reclaimed),
            moved: load(&counters.moved),
            ghost_hits: load(&counters.ghost_hits),
        }
    }

    /// The lane of this thread.
    fn lane(&self) -> usize {
        thread_local! {
            static LANE: std::cell::Cell<(u64, usize)> = const { std::cell::Cell::new((u64::MAX, 0)) };
        }
        let (number, lane) = LANE.get();
        if number == self.shared.number {
            return lane;
        }
        let lane = self.shared.next_lane.fetch_add(1, Ordering::Relaxed) as usize;
        LANE.set((self.shared.number, lane));
        lane
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("properties", &self.properties()).finish_non_exhaustive()
    }
}
