//! The cache as its users see it.

use crate::core::Core;
use crate::flash::Record;
use crate::flash::journal::Journal;
use crate::flash::tier::{FlashTier, Start};
use crate::index::Index;
use crate::item::{Hit, KEY_BYTES_MAX, Meta, NewItem, OnEvicted, VALUE_BYTES_MAX};
use crate::memory::{Lookup, Memory, OwnerMemory};
use crate::options::Options;
use crate::reader::FlashReader;
use crate::reads::OnItem;
use crate::survey::Survey;
use situ_base::{Env, random};
use situ_device::Device;
use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A cache. Handles are cheap to clone; the cache ends with the last one.
///
/// ```
/// # mod situ { pub use situ_cache as cache; }
/// use situ::cache::{Cache, Meta, Options};
///
/// let cache = Cache::new(&Options::of_memory(16 << 20));
/// let now = 1_700_000_000;
/// cache.put(b"ada", &Meta::default(), [b"1815", b""], now)?;
/// let length = cache.get(b"ada", now, |hit| hit.item.value.len());
/// assert_eq!(length.hit(), Some(4));
/// # Ok::<(), situ::cache::Refused>(())
/// ```
#[derive(Clone)]
pub struct Cache {
    owner: Arc<Owner>,
}

/// Ends the threads with the last handle.
struct Owner {
    core: Arc<Core>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.core.end_threads();
    }
}

/// The device of the tier on flash, and what the tier needs to run on it.
pub struct Flash {
    /// The device, 9 MiB or more. It is empty, or holds a cache.
    pub device: Arc<dyn Device>,
    /// Clocks and threads.
    pub env: Env,
    /// The beginning of the names of a few small files. With these files a restart finds the items again. Without them
    /// each start begins with an empty flash.
    pub files: Option<PathBuf>,
}

/// The contents of a cache, and counts of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Properties {
    /// Items in it, expired ones included that are still to go.
    pub items: u64,
    /// Memory that it takes, all included.
    pub memory_bytes: u64,
    /// Memory of its index.
    pub index_bytes: u64,
    /// Items evicted to make room.
    pub evicted: u64,
    /// Items that went because they had expired.
    pub reclaimed: u64,
    /// Items that stayed when their segment went.
    pub moved: u64,
    /// Stored keys that were evicted recently.
    pub ghost_hits: u64,
    /// The tier on flash, if there is one.
    pub flash: Option<FlashProperties>,
}

/// The contents of the tier on flash, and counts of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FlashProperties {
    /// True while the tier is in service; false after its device has failed.
    pub works: bool,
    /// True if items come back after the death of the process.
    pub outlives: bool,
    /// Bytes of the device that items may take.
    pub capacity_bytes: u64,
    /// Items that came from memory.
    pub demoted: u64,
    /// Bytes of these items, as they lie on flash.
    pub demoted_bytes: u64,
    /// Items that the rules of admission kept out.
    pub not_admitted: u64,
    /// Items that did not come because the device was behind.
    pub behind: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Reads that found their item.
    pub hits: u64,
    /// Reads that found another key's item, or a damaged one.
    pub misses: u64,
    /// Items that went back to memory.
    pub promoted: u64,
    /// Items rewritten when their segment was evicted.
    pub reinserted: u64,
    /// Bytes of these items.
    pub reinserted_bytes: u64,
    /// Items that went with their segment.
    pub evicted: u64,
    /// Operations of the device that failed.
    pub errors: u64,
}

/// The reason why an item is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The key has no bytes, or more than 250.
    Key,
    /// The item is longer than a quarter of the memory, or the value than 1 GiB.
    TooLong,
    /// The system has no memory for the item, or the cache no segment.
    NoMemory,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Key => "a key has 1 to 250 bytes",
            Refused::TooLong => "the item is longer than a quarter of the cache's memory, or than 1 GiB",
            Refused::NoMemory => "out of memory storing object",
        })
    }
}

impl std::error::Error for Refused {}

impl Cache {
    /// Makes an empty cache in memory.
    #[must_use]
    pub fn new(options: &Options) -> Cache {
        Cache::with_seed(options, RandomState::new().hash_one("index"))
    }

    /// Makes a cache as [`new`](Cache::new) does, with a seed for the hashes of keys: for repeatable tests.
    #[must_use]
    pub fn with_seed(options: &Options, seed: u64) -> Cache {
        let index = Index::new(options.memory_bytes, seed);
        Cache::of(Core::new(Memory::new(options, index, None), Env::system()))
    }

    /// Opens a cache in memory and on flash. It keeps the items of an earlier cache after a clean [stop](Cache::stop),
    /// and after the death of the process if the machine has not rebooted. `now` returns the time by which items
    /// expire, in seconds. It can look up [records](Cache::record) of the earlier cache.
    ///
    /// After the death of a process, the cache reads all of the flash.
    ///
    /// # Errors
    /// The device holds other data, is in use, is too small, or fails. The files cannot be written. A thread cannot be
    /// started.
    pub fn with_flash(
        options: &Options,
        flash: Flash,
        now: impl FnOnce(&dyn Fn(&[u8]) -> Option<Vec<u8>>) -> u64,
    ) -> io::Result<(Cache, Start)> {
        let Flash { device, env, files } = flash;
        let fresh = (random()?, u64::from_le_bytes(random()?));
        let flusher = env.executor.event();
        let (tier, index, start) =
            FlashTier::open(device, files.as_deref(), options.flash, flusher, fresh, options.memory_bytes, now)?;
        let cache = Cache::of(Core::new(Memory::new(options, index, Some(tier)), env));
        cache.owner.core.start()?;
        Ok((cache, start))
    }

    fn of(core: Core) -> Cache {
        Cache { owner: Arc::new(Owner { core: Arc::new(core) }) }
    }

    /// Returns the tier on flash.
    #[cfg(test)]
    pub(crate) fn flash(&self) -> Option<&FlashTier> {
        self.core().memory.flash.as_ref()
    }

    fn core(&self) -> &Arc<Core> {
        &self.owner.core
    }

    /// Returns a walk over all items.
    ///
    /// ```
    /// # mod situ { pub use situ_cache as cache; }
    /// # use situ::cache::{Cache, Meta, Options};
    /// let cache = Cache::new(&Options::default());
    /// cache.put(b"ada", &Meta::default(), [b"1815", b""], 0)?;
    /// let mut survey = cache.survey();
    /// let mut bytes = 0;
    /// while survey.next(0, |item| bytes += item.key.len() + item.value_bytes) {}
    /// assert_eq!(bytes, 7);
    /// # Ok::<(), situ::cache::Refused>(())
    /// ```
    #[must_use]
    pub fn survey(&self) -> Survey {
        Survey::new(Arc::clone(self.core()))
    }

    /// Registers `tell`, which gets each item that goes to make room. Two kinds of items go unreported, as their keys
    /// are not known. They are those of a segment on flash that cannot be read, and those that are given up as the
    /// index is full. Only the first call counts.
    pub fn on_evicted(&self, tell: OnEvicted) {
        // The second one is dropped, as is said.
        _ = self.core().memory.on_evicted.set(tell);
    }

    /// Stores an item in the place of the one that its key has. The value is the concatenation of two parts. `now` is
    /// the time, Unix seconds.
    ///
    /// # Errors
    /// The key or the value has a length that the cache does not take, or there is no memory for the item. The key's
    /// older item goes in that case, too: it is out of date.
    pub fn put(&self, key: &[u8], meta: &Meta, parts: [&[u8]; 2], now: u64) -> Result<(), Refused> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Refused::Key);
        }
        let item = NewItem { meta: *meta, key, parts };
        let Core { memory, counters, .. } = &**self.core();
        let is_short_enough = item.value_bytes() <= VALUE_BYTES_MAX;
        if is_short_enough && memory.put(self.core().lane(), &item, now, counters) {
            return Ok(());
        }
        self.delete(key);
        // The reason is looked for after a refusal only, so a put that succeeds does not pay for it.
        let is_taken = is_short_enough && !memory.is_too_long(&item);
        Err(if is_taken { Refused::NoMemory } else { Refused::TooLong })
    }

    /// Shows the item of `key` to `read`, if it is in memory and has not expired. `read` must be quick and must not
    /// call the cache: it holds up others that want keys nearby. Waits for no device: an item on flash is to be
    /// [fetched](Cache::get_later).
    pub fn get<T>(&self, key: &[u8], now: u64, read: impl FnOnce(Hit<'_>) -> T) -> Lookup<T> {
        self.core().memory.get(key, now, read).into()
    }

    /// Finds the item of `key` in memory or on flash, and tells `done` from this thread or another. The answer is at
    /// least as new as the call. An item that cannot be read counts as absent.
    pub fn get_later(&self, key: &[u8], now: u64, done: OnItem) {
        self.core().get_later(key, now, done);
    }

    /// Returns a reader of flash for a thread that advances its reads itself. `None` without flash, and where a read of
    /// the device is a call that waits.
    ///
    /// # Errors
    /// The device gives no queue.
    pub fn flash_reader(&self) -> io::Result<Option<FlashReader>> {
        FlashReader::new(self.core(), Arc::clone(&self.owner) as Arc<dyn Any + Send + Sync>)
    }

    /// Returns the item of `key` in memory or on flash. Waits for the device.
    #[must_use]
    pub fn fetch(&self, key: &[u8], now: u64) -> Option<Record> {
        self.core().fetch(key, now)
    }

    /// Removes the item of `key`. True if there was one. Reads nothing: an item on flash is known by the hash of its
    /// key alone. Two keys have the same hash in one of 2^50 cases; then the item of the other key goes, too.
    pub fn delete(&self, key: &[u8]) -> bool {
        self.core().memory.delete(key)
    }

    /// Returns a record of the owner's that outlives the process as items on flash do.
    #[must_use]
    pub fn record(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.core().memory.flash.as_ref()?.journal()?.record(key)
    }

    /// Stores a record of the owner's. False if there is no place for it that outlives the process.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn put_record(&self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        let journal = self.core().memory.flash.as_ref().and_then(FlashTier::journal);
        journal.map_or(Ok(false), |journal| journal.put_record(key, value).map(|()| true))
    }

    /// Moves all items in memory to flash, if there is a tier: to measure or to test reads of flash. Waits for the
    /// device.
    pub fn spill(&self, now: u64) {
        let core = self.core();
        if let Some(flash) = &core.memory.flash {
            flash.set_now(now);
            core.memory.demote_all(flash, now, &core.counters, || {
                flash.wake();
                core.env.executor.yield_once();
            });
        }
    }

    /// Stops a cache on flash, so that the next start finds all items again: those in memory are written to flash. It
    /// is the last call, when no thread changes the cache any more, and no [`FlashReader`] is busy. Does nothing
    /// without flash, or without its files.
    ///
    /// # Errors
    /// The device or the file system fails. The next start then finds fewer items, or none.
    pub fn stop(&self, now: u64) -> io::Result<()> {
        let core = self.core();
        core.end_threads();
        let Some(flash) = core.memory.flash.as_ref().filter(|flash| flash.journal().is_some()) else { return Ok(()) };
        flash.set_now(now);
        core.memory
            .demote_all(flash, now, &core.counters, || _ = flash.flush(&core.memory.index, &core.counters, None));
        flash.stop(&core.memory.index, &core.counters)
    }

    /// Returns the account of memory that the cache's owner takes out of the same limit. The cache then takes less.
    #[must_use]
    pub fn beside(&self) -> OwnerMemory {
        self.core().memory.beside()
    }

    /// Gives memory back that is beyond the limit, or beyond what its [owner](Cache::beside) leaves. Costs a few loads
    /// if there is none.
    pub fn shrink(&self, now: u64) {
        self.core().memory.shrink(now, &self.core().counters);
    }

    /// Does the work that puts need not wait for: expired segments go, and memory beyond the limit is given back. The
    /// owner calls it about once a second.
    pub fn tidy(&self, now: u64) {
        self.core().memory.tidy(now, &self.core().counters);
    }

    /// Returns the number of bytes of the device that items take now; 0 without flash. Looks at 16 bytes of memory for
    /// each MiB of the device.
    #[must_use]
    pub fn flash_used_bytes(&self) -> u64 {
        self.core().memory.flash.as_ref().map_or(0, |flash| flash.log.used_bytes())
    }

    /// Returns the contents of the cache and counts of its work. Costs a few loads.
    #[must_use]
    pub fn properties(&self) -> Properties {
        let Core { memory, counters, .. } = &**self.core();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let flash = memory.flash.as_ref().map(|flash| FlashProperties {
            works: flash.works(),
            outlives: flash.works() && flash.journal().is_some_and(Journal::works),
            capacity_bytes: flash.log.capacity_bytes(),
            demoted: load(&counters.demoted),
            demoted_bytes: load(&counters.demoted_bytes),
            not_admitted: load(&counters.not_admitted),
            behind: load(&counters.behind),
            written_bytes: load(&flash.log.written_bytes),
            hits: load(&counters.flash_hits),
            misses: load(&counters.flash_misses),
            promoted: load(&counters.promoted),
            reinserted: load(&counters.reinserted),
            reinserted_bytes: load(&counters.reinserted_bytes),
            evicted: load(&counters.flash_evicted),
            errors: load(&counters.flash_errors),
        });
        Properties {
            items: memory.index.items() as u64,
            memory_bytes: memory.bytes() as u64,
            index_bytes: memory.index.bytes() as u64,
            evicted: load(&counters.evicted),
            reclaimed: load(&counters.reclaimed),
            moved: load(&counters.moved),
            ghost_hits: load(&counters.ghost_hits),
            flash,
        }
    }
}

impl fmt::Debug for Flash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flash")
            .field("device", &self.device.describe())
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("properties", &self.properties()).finish_non_exhaustive()
    }
}
