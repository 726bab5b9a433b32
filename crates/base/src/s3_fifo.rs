//! The policy of a cache: S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak, "FIFO queues are all you need for cache eviction",
//! SOSP 2023).
//!
//! Two first-in-first-out queues, and a list of what was thrown out lately:
//!
//! ```text
//! new ─────> small queue ──not asked for again──> out, its key into the ghost list
//!                 └──asked for again──┐                     │
//! new, with a ghost ──────────────> main queue <────────────┘ if it comes back
//!                                     └──> out; round again as often as it was asked for, three times at most
//! ```
//!
//! 1. A new value enters the small queue. If no caller asks for it before it reaches the front, it leaves, and only its
//!    key stays behind, in the *ghost list*. So a scan washes through the small queue.
//! 2. A value that was asked for again moves to the main queue. So does a new value whose key is in the ghost list.
//! 3. A value at the front of the main queue goes round again as often as it was asked for since.
//!
//! The caller has the lock, the limit in bytes and the length of the ghost list. It makes room before it inserts. A
//! value lies in the map itself: a lookup waits for memory twice at most.
//!
//! **Invariants**: [`bytes`](S3Fifo::bytes) is the sum of the weights. The queues have a key for each value, and
//! *stale* keys of values that were removed; a stale key is passed over at the front. There are never more stale keys
//! than values, or than 64.
//! **Threads**: the caller's lock. **Failure**: none.
//!
//! Rejected: LRU, whose hits relink a list and whose contents a scan replaces. CLOCK is as cheap, but keeps values that
//! are used once as long as the others.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash};

/// More hits than this do not earn more rounds.
const HITS_MAX: u8 = 3;
/// The number of stale keys up to which a cleanup is not worthwhile.
const STALE_MIN: usize = 64;

/// A value in the cache.
#[derive(Debug)]
pub struct Held<V> {
    /// The value.
    pub value: V,
    /// The charge, in bytes.
    weight: u32,
    /// The hits since it entered its queue or last came to the front.
    hits: u8,
    /// True if it is in the main queue.
    is_main: bool,
}

impl<V> Held<V> {
    /// Notes that a caller has asked for the value.
    #[inline]
    pub fn hit(&mut self) {
        self.hits = (self.hits + 1).min(HITS_MAX);
    }

    /// Returns the charge, in bytes.
    pub fn weight(&self) -> u32 {
        self.weight
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct S3Fifo<K, V, S = RandomState> {
    held: HashMap<K, Held<V>, S>,
    small: VecDeque<K>,
    main: VecDeque<K>,
    small_bytes: u64,
    main_bytes: u64,
    /// Keys that left the small queue, oldest first. Those that came back are not in the set any more.
    ghosts: VecDeque<K>,
    ghost_set: HashSet<K, S>,
}

impl<K, V, S: Default> Default for S3Fifo<K, V, S> {
    fn default() -> Self {
        S3Fifo {
            held: HashMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghosts: VecDeque::new(),
            ghost_set: HashSet::default(),
        }
    }
}

impl<K: Copy + Eq + Hash, V, S: BuildHasher> S3Fifo<K, V, S> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns true if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the sum of all weights.
    pub fn bytes(&self) -> u64 {
        self.small_bytes + self.main_bytes
    }

    /// Returns the value, if it is here. This does not count as a [hit](Held::hit).
    #[inline]
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.held.get(key).map(|held| &held.value)
    }

    /// Returns the value, if it is here. The caller decides if this is a [hit](Held::hit).
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut Held<V>> {
        self.held.get_mut(key)
    }

    /// Returns all values, in any order.
    pub fn values(&self) -> impl Iterator<Item = &Held<V>> {
        self.held.values()
    }

    /// Takes a key from the ghost list. Returns true if it was there. A value that comes back belongs into the main
    /// queue.
    pub fn recall(&mut self, key: &K) -> bool {
        self.ghost_set.remove(key)
    }

    /// Inserts a value that is not in the cache yet. Callers have already asked for the value `hits` times.
    ///
    /// # Panics
    /// A value with this key is here.
    pub fn insert(&mut self, key: K, value: V, weight: u32, hits: u8, is_main: bool) {
        let before = self.held.insert(key, Held { value, weight, hits: hits.min(HITS_MAX), is_main });
        assert!(before.is_none(), "a value is put in once");
        if is_main {
            self.main.push_back(key);
            self.main_bytes += u64::from(weight);
        } else {
            self.small.push_back(key);
            self.small_bytes += u64::from(weight);
        }
    }

    /// Takes a value out. Its key stays in its queue until it comes to the front, or until most keys are stale.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let Held { value, weight, is_main, .. } = self.held.remove(key)?;
        *(if is_main { &mut self.main_bytes } else { &mut self.small_bytes }) -= u64::from(weight);
        self.sweep();
        Some(value)
    }

    /// Takes stale keys out of the queues once they are the most. A key that was put in again has two places until
    /// then: it keeps the one nearer to the front.
    fn sweep(&mut self) {
        let stale = self.small.len() + self.main.len() - self.held.len();
        if stale <= STALE_MIN.max(self.held.len()) {
            return;
        }
        let S3Fifo { held, small, main, .. } = self;
        let mut seen = HashSet::with_capacity(held.len());
        small.retain(|key| held.get(key).is_some_and(|held| !held.is_main) && seen.insert(*key));
        main.retain(|key| held.get(key).is_some_and(|held| held.is_main) && seen.insert(*key));
    }

    /// Throws one value out: out of the small queue if that has more than `small_bytes_max`, otherwise out of the main
    /// queue. On the way values change queues and go round. `None` if no value is here.
    pub fn evict(&mut self, small_bytes_max: u64) -> Option<V> {
        loop {
            let is_small = self.small_bytes > small_bytes_max || self.main.is_empty();
            let key = if is_small { self.small.pop_front()? } else { self.main.pop_front()? };
            let Some(held) = self.held.get_mut(&key).filter(|held| held.is_main != is_small) else { continue };
            let weight = u64::from(held.weight);
            match (is_small, held.hits) {
                (true, 0) => {
                    self.small_bytes -= weight;
                    if self.ghost_set.insert(key) {
                        self.ghosts.push_back(key);
                    }
                }
                (false, 0) => self.main_bytes -= weight,
                (true, _) => {
                    (held.hits, held.is_main) = (0, true);
                    self.small_bytes -= weight;
                    self.main_bytes += weight;
                    self.main.push_back(key);
                    continue;
                }
                (false, _) => {
                    held.hits -= 1;
                    self.main.push_back(key);
                    continue;
                }
            }
            let gone = self.held.remove(&key).map(|held| held.value);
            self.sweep();
            return gone;
        }
    }

    /// Forgets the oldest ghosts, so that at most `ghosts_max` are left.
    pub fn limit_ghosts(&mut self, ghosts_max: usize) {
        while self.ghosts.len() > ghosts_max {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.ghost_set.remove(&oldest);
            }
        }
    }

    /// Recounts everything.
    ///
    /// # Panics
    /// The books are wrong.
    pub fn check(&self) {
        let sum = |is_main: bool| -> u64 {
            self.held.values().filter(|held| held.is_main == is_main).map(|held| u64::from(held.weight)).sum()
        };
        assert_eq!((self.small_bytes, self.main_bytes), (sum(false), sum(true)));
        let stale = (self.small.len() + self.main.len()).checked_sub(self.held.len());
        assert!(stale.is_some_and(|stale| stale <= STALE_MIN.max(self.held.len())), "{stale:?} stale keys");
        assert!(self.ghost_set.len() <= self.ghosts.len());
    }
}

#[cfg(test)]
mod tests;
