//! The cache engine: a [`Cache`] behind the [`Engine`] trait.
//!
//! A write is done when [`Engine::write`] returns. A read is a hit or a miss at once, or it waits for the flash. The
//! event loop reads short items itself, where the device is read by io_uring; threads of the cache read all others.
//! Without flash nothing outlives the process, the server's own records included.
//!
//! **Memory.** The limit is one of the whole process. The engine measures the memory that the process uses apart from
//! the cache: for connections, say. The cache takes as much less, down to half of the limit. The engine looks four
//! times a second, and whenever `LOOK_BYTES` (`cache/memory.rs`) more were stored. Memory that was in use apart from
//! the cache is kept free for a while: it may be needed again. Long values that are on their way are counted one by
//! one, and the cache makes room for each at once: hundreds of them can come between two looks.
//!
//! **Expiry.** The cache drops expired items by a clock that the same thread reads. The server reads this clock in each
//! turn, so a client never sees an expired item. The record of the clock is stored with the server's own records.
//! **Flushes.** An item older than the flush barrier is dead to readers at once. Its room is free when the cache needs
//! it.

mod memory;
mod reader;
mod records;
mod value;

pub use memory::FOLLOWS_BYTES_MIN;
pub use value::CacheValue;

use crate::engine::cache::{
    CacheExtras, CacheState, EvictedItem, FlashState, LoopReader, OnEvicted, OnTrouble, Reserved, Shown, ShownItem,
};
use crate::engine::durable::CLOCK_KEY;
use crate::engine::{
    Admission, COPY_BYTES_MAX, ChangeInParts, Done, Engine, EngineError, Get, Health, Metric, MetricKind, OnRead,
    OnTaken, Survey, SurveyedItem, WriteBatch,
};
use memory::{NewRecord, OpenCache};
use reader::{CacheReader, teller};
use records::{Recorder, no_thread};
use situ::cache::{Cache, Evicted, Flash, FlashProperties, KEY_BYTES_MAX, Lookup, Options, Properties, Start};
use situ_base::{ClockKeeper, ClockRecord, Env, StoreClock, lock};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use value::{header_of, make};

/// A [`Cache`] that serves memcached. See the module.
pub struct CacheEngine {
    shared: Arc<OpenCache>,
    tidier: Mutex<Option<JoinHandle<()>>>,
    keeper: ClockKeeper,
    /// `None` without flash, and after the stop.
    recorder: Mutex<Option<Recorder>>,
}

impl fmt::Debug for CacheEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheEngine").field("cache", &self.shared.cache).finish_non_exhaustive()
    }
}

impl CacheEngine {
    /// Creates an empty cache, and a thread that keeps it tidy. Raises the process's soft limit of open files to the
    /// hard one.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn new(options: &Options) -> Result<CacheEngine, EngineError> {
        let env = Env::system();
        let clock = StoreClock::resume(Arc::clone(&env.clock), None);
        CacheEngine::of(Cache::new(options), options, &env, clock, Box::new(|_| ()))
    }

    /// Creates a cache in memory and on flash, with the items that an earlier one has left there, and a thread that
    /// keeps it tidy. Raises the process's soft limit of open files to the hard one.
    ///
    /// # Errors
    /// The device holds something else than a cache, is in use, too small, or fails. The system starts no thread.
    pub fn with_flash(options: &Options, flash: Flash, tell: OnTrouble) -> Result<(CacheEngine, Start), EngineError> {
        let env = flash.env.clone();
        let mut clock = None;
        let now = |record: &dyn Fn(&[u8]) -> Option<Vec<u8>>| {
            let record = record(CLOCK_KEY).as_deref().and_then(ClockRecord::decode);
            clock.insert(StoreClock::resume(Arc::clone(&env.clock), record)).seconds()
        };
        let (cache, start) = Cache::with_flash(options, flash, now).map_err(EngineError::new)?;
        let clock = clock.unwrap_or_else(|| StoreClock::resume(Arc::clone(&env.clock), None));
        Ok((CacheEngine::of(cache, options, &env, clock, tell)?, start))
    }

    /// Stops the cache, so that the next start finds all items: those in memory are written to flash. To be called when
    /// the server has stopped. Does nothing without flash, or without files next to it.
    ///
    /// # Errors
    /// The device or the file system fails. The next start then finds fewer items, or none.
    pub fn stop(&self) -> Result<(), EngineError> {
        self.end_threads();
        self.shared.cache.stop(self.shared.clock.seconds()).map_err(EngineError::new)
    }

    /// Makes the limit follow the memory that the machine, or the control group, has left: between
    /// [`FOLLOWS_BYTES_MIN`] and the memory in the options. A tenth of the machine's memory is left to others.
    pub fn follow_pressure(&self) {
        self.shared.follows.store(true, Ordering::Relaxed);
        self.shared.look_at_memory(0);
    }

    /// Moves all items in memory to flash, if there is a tier: to measure or to test reads of flash. Waits for the
    /// device.
    pub fn spill(&self) {
        self.shared.cache.spill(self.shared.clock.seconds());
    }

    fn end_threads(&self) {
        let recorder = lock(&self.recorder).take();
        recorder.into_iter().for_each(Recorder::end);
        self.keeper.stop();
        *lock(&self.shared.is_over) = true;
        self.shared.over.notify_all();
        // A panic of the thread has been shown already.
        _ = lock(&self.tidier).take().map(JoinHandle::join);
    }

    /// Returns the contents and counters of the cache.
    pub fn properties(&self) -> Properties {
        self.shared.cache.properties()
    }

    fn of(
        cache: Cache,
        options: &Options,
        env: &Env,
        clock: StoreClock,
        tell: OnTrouble,
    ) -> Result<CacheEngine, EngineError> {
        crate::raise_limit();
        let shared = Arc::new(OpenCache::new(cache, options, clock, tell));
        shared.look_at_memory(0);
        let recorder = if shared.cache.properties().flash.is_some() { Some(Recorder::start(&shared)?) } else { None };
        let kept = Arc::clone(&shared);
        // Without flash, no item survives the process, so no record is needed.
        let keep = move |record: &ClockRecord| kept.cache.put_record(CLOCK_KEY, &record.encode()).is_ok();
        let keeper = ClockKeeper::start(env, &shared.clock, keep).map_err(no_thread)?;
        let tidied = Arc::clone(&shared);
        let tidier = std::thread::Builder::new().name("cache-tidy".to_owned()).spawn(move || tidied.keep_tidy());
        let tidier = Mutex::new(Some(tidier.map_err(no_thread)?));
        Ok(CacheEngine { shared, tidier, keeper, recorder: Mutex::new(recorder) })
    }

    /// Returns the longest value that a cache with this memory takes for any key, in bytes.
    pub fn value_bytes_max(memory_bytes: usize) -> usize {
        // The cache takes an item of a quarter of what items may have. Connections can have half of the memory, and the
        // index of short items a third of the rest.
        (memory_bytes / 16).saturating_sub(KEY_BYTES_MAX + 64)
    }
}

impl Drop for CacheEngine {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// Name, help and value.
type Figure = (&'static str, &'static str, u64);

/// Gauges and counters of the tier on flash.
fn flash_metrics(flash: FlashProperties, used_bytes: u64) -> ([Figure; 4], [Figure; 12]) {
    let gauges = [
        ("flash_works", "1 if the flash is in service; 0 after its device has failed.", u64::from(flash.works)),
        ("flash_outlives", "1 if the items on flash survive the process.", u64::from(flash.outlives)),
        ("flash_bytes", "Bytes of the device that items take.", used_bytes),
        ("flash_max_bytes", "Bytes of the device that items may take.", flash.capacity_bytes),
    ];
    let counters = [
        ("flash_demoted", "Items moved from memory to flash.", flash.demoted),
        ("flash_demoted_bytes", "Bytes of items moved from memory to flash.", flash.demoted_bytes),
        ("flash_not_admitted", "Items that the rules of admission kept from flash.", flash.not_admitted),
        ("flash_behind", "Items that did not go to flash because the device was behind.", flash.behind),
        ("flash_written_bytes", "Bytes written to the device.", flash.written_bytes),
        ("flash_hits", "Reads of flash that found their item.", flash.hits),
        ("flash_misses", "Reads of flash that found another key's item, or a damaged one.", flash.misses),
        ("flash_promoted", "Items moved from flash back to memory.", flash.promoted),
        ("flash_reinserted", "Items rewritten when their segment was evicted.", flash.reinserted),
        ("flash_reinserted_bytes", "Bytes of items rewritten.", flash.reinserted_bytes),
        ("flash_evicted", "Items evicted with their segment on flash.", flash.evicted),
        ("flash_errors", "Operations of the device that failed.", flash.errors),
    ];
    (gauges, counters)
}

/// A survey of the cache as the server knows it.
struct CacheSurvey(situ::cache::Survey);

impl Survey for CacheSurvey {
    fn next(&mut self, now_seconds: u64, each: &mut dyn FnMut(SurveyedItem<'_>)) -> Result<bool, EngineError> {
        Ok(self.0.next(now_seconds, |item| {
            let header = header_of(&item.meta);
            each(SurveyedItem { key: item.key, header, value_bytes: item.value_bytes });
        }))
    }
}

impl Engine for CacheEngine {
    type Value = CacheValue;
    type Cache = CacheEngine;

    fn get(
        &self,
        key: &[u8],
        later: &mut dyn FnMut() -> Option<OnRead<CacheValue>>,
    ) -> Result<Get<CacheValue>, EngineError> {
        let OpenCache { cache, allowance, .. } = &*self.shared;
        let now = self.shared.now();
        Ok(match cache.get(key, now, |hit| make(&hit.item, hit.whole, allowance)) {
            Lookup::Hit(value) => {
                let value = value?;
                if value.is_long() {
                    cache.shrink(now);
                }
                Get::Hit(value)
            }
            Lookup::Miss => Get::Miss,
            Lookup::OnFlash => {
                if let Some(done) = later() {
                    cache.get_later(key, now, teller(allowance, done));
                }
                Get::Later
            }
        })
    }

    fn write(&self, batch: WriteBatch, _: &OnTaken, done: Done) -> Admission {
        let mut outcome = Ok(());
        for change in batch.changes() {
            // A change that is refused keeps no other from being made.
            outcome = outcome.and(self.shared.apply(&change));
        }
        done(outcome);
        Admission::Taken
    }

    fn survey(&self) -> Result<Option<Box<dyn Survey>>, EngineError> {
        Ok(Some(Box::new(CacheSurvey(self.shared.cache.survey()))))
    }

    fn clock(&self) -> &Arc<StoreClock> {
        &self.shared.clock
    }

    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(record) = self.shared.cache.record(key) {
            return Ok(Some(record));
        }
        Ok(lock(&self.shared.records).get(key).cloned())
    }

    fn put_meta(&self, key: &[u8], value: &[u8], done: Done) {
        let record = NewRecord { key: key.to_vec(), value: value.to_vec(), done };
        let sent = match &*lock(&self.recorder) {
            Some(recorder) => recorder.records.send(record).map_err(|refused| refused.0),
            None => Err(record),
        };
        if let Err(record) = sent {
            self.shared.put_record(record);
        }
    }

    fn approximate_items(&self) -> u64 {
        self.shared.cache.properties().items
    }

    fn disk_bytes(&self) -> u64 {
        self.shared.cache.flash_used_bytes()
    }

    fn write_stalled(&self) -> bool {
        false
    }

    fn health(&self) -> Health {
        Health::Ready
    }

    #[inline]
    fn cache(&self) -> Option<&CacheEngine> {
        Some(self)
    }

    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>)) {
        let properties = self.shared.cache.properties();
        let allowance = &self.shared.allowance;
        let beside = allowance.beside_bytes();
        let gauges = [
            ("memory_max_bytes", "The limit of the process's memory.", allowance.limit_bytes()),
            ("memory_bytes", "Memory of the cache, its index included.", properties.memory_bytes),
            ("index_bytes", "Memory of the cache's index.", properties.index_bytes),
            ("held_bytes", "Bytes of long values waiting to be sent.", allowance.held_bytes()),
            ("arriving_bytes", "Bytes of long values being received.", allowance.arriving_bytes()),
            ("beside_bytes", "Bytes of the process's memory outside the cache, by which the cache is smaller.", beside),
            ("items", "Items in the cache, expired ones included.", properties.items),
            (
                "flash_loops",
                "Event loops that read flash themselves; 0 where threads of the cache read.",
                self.shared.flash_loops.load(Ordering::Relaxed),
            ),
        ];
        let counters = [
            ("evicted", "Items evicted to make room.", properties.evicted),
            ("reclaimed", "Items that went because they had expired.", properties.reclaimed),
            ("moved", "Items that stayed when their segment went.", properties.moved),
            ("ghost_hits", "Stored keys that were evicted recently.", properties.ghost_hits),
        ];
        let flash = properties.flash.map(|flash| flash_metrics(flash, self.shared.cache.flash_used_bytes()));
        let flash_gauges = flash.iter().flat_map(|(gauges, _)| *gauges);
        let flash_counters = flash.iter().flat_map(|(_, counters)| *counters);
        let gauges = gauges.into_iter().chain(flash_gauges);
        let counters = counters.into_iter().chain(flash_counters);
        let gauges = gauges.map(|(name, help, value)| (format!("situ_cache_{name}"), help, value, MetricKind::Gauge));
        let counters =
            counters.map(|(name, help, value)| (format!("situ_cache_{name}_total"), help, value, MetricKind::Counter));
        for (name, help, value, kind) in gauges.chain(counters) {
            out(Metric { name: &name, help, kind, labels: &[], value: value as f64 });
        }
    }
}

impl CacheExtras<CacheValue> for CacheEngine {
    fn show(
        &self,
        key: &[u8],
        copies: bool,
        show: impl FnOnce(ShownItem<'_>),
    ) -> Result<Shown<CacheValue>, EngineError> {
        let OpenCache { cache, allowance, .. } = &*self.shared;
        let now = self.shared.now();
        let shown = cache.get(key, now, |hit| {
            if !copies || hit.item.value.len() < COPY_BYTES_MAX {
                show(ShownItem { header: header_of(&hit.item.meta), data: hit.item.value });
                return Ok(None);
            }
            make(&hit.item, hit.whole, allowance).map(Some)
        });
        match shown {
            Lookup::Hit(Ok(None)) => Ok(Shown::Item),
            Lookup::Hit(Ok(Some(value))) => {
                cache.shrink(now);
                Ok(Shown::Value(value))
            }
            Lookup::Hit(Err(error)) => Err(error),
            Lookup::Miss => Ok(Shown::Miss),
            Lookup::OnFlash => Ok(Shown::Ask),
        }
    }

    fn loop_reader(&self) -> Option<Box<dyn LoopReader<CacheValue>>> {
        // Without one, threads of the cache read.
        let reader = self.shared.cache.flash_reader().ok().flatten().filter(|reader| reader.descriptor().is_some())?;
        self.shared.flash_loops.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(CacheReader { reader, shared: Arc::clone(&self.shared) }))
    }

    fn write_at_once(&self, change: ChangeInParts<'_>) -> Result<(), EngineError> {
        match change {
            ChangeInParts::Put { key, parts: [header, first, second] } => self.shared.put(key, header, [first, second]),
            ChangeInParts::Delete { key } => {
                self.shared.cache.delete(key);
                Ok(())
            }
        }
    }

    fn delete_unread(&self, key: &[u8]) -> bool {
        self.shared.cache.delete(key)
    }

    fn reserve(&self, reserved: &mut Reserved, bytes: usize) -> bool {
        let has_room = self.shared.allowance.arrive(reserved, bytes);
        if has_room {
            self.shared.cache.shrink(self.shared.now());
        }
        has_room
    }

    fn on_evicted(&self, tell: OnEvicted) {
        self.shared.cache.on_evicted(Box::new(move |evicted| {
            let Evicted { key, meta, value_bytes, was_read, .. } = evicted;
            tell(EvictedItem { key, expires: meta.expires, value_bytes, was_read });
        }));
    }

    fn state(&self) -> CacheState {
        let Properties { memory_bytes, evicted, reclaimed, flash, .. } = self.shared.cache.properties();
        let flash = flash.map(|flash| FlashState {
            works: flash.works,
            bytes_max: flash.capacity_bytes,
            bytes: self.shared.cache.flash_used_bytes(),
            demoted: flash.demoted,
            demoted_bytes: flash.demoted_bytes,
            written_bytes: flash.written_bytes,
            hits: flash.hits,
            misses: flash.misses,
            promoted: flash.promoted,
            reinserted: flash.reinserted,
            evicted: flash.evicted,
            errors: flash.errors,
        });
        let memory_bytes_max = self.shared.allowance.limit_bytes();
        CacheState { memory_bytes_max, memory_bytes, evicted, reclaimed, flash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::StoredValue;
    use crate::engine::item::Header;

    /// A value of more than 128 KB was copied out of the cache's buffer before it was sent.
    #[test]
    fn a_long_value_is_sent_from_where_the_cache_holds_it_and_counted_until_then() {
        const BYTES: usize = 300_000;
        let engine = CacheEngine::new(&Options::of_memory(64 << 20)).unwrap();
        let allowance = &engine.shared.allowance;
        let header = Header { state: 0, flags: 7, expires: 0, id: 1, given_cas: Some(9) };
        let put = |byte: u8| {
            let change = ChangeInParts::Put { key: b"long", parts: [&header.encode(), &[byte; BYTES], b""] };
            engine.write_at_once(change).unwrap();
        };
        let get = || match engine.get(b"long", &mut || None) {
            Ok(Get::Hit(value)) => Ok(value),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        };
        put(b'a');
        let (first, second) = (get().unwrap(), get().unwrap());
        let data = |value: &CacheValue| value.data(Header::decode(value.head()).unwrap().byte_len()).as_ptr_range();
        assert_eq!(data(&first), data(&second), "both share the cache's buffer");
        assert_eq!(Header::decode(first.head()), Some(header));
        // A reader that is slow keeps the bytes of an item that is replaced, and then deleted.
        put(b'b');
        engine.delete_unread(b"long");
        let bytes = first.data(header.byte_len());
        assert!(bytes.len() == BYTES && bytes.iter().all(|byte| *byte == b'a'));
        assert!(allowance.held_bytes() >= 2 * BYTES as u64, "{}", allowance.held_bytes());
        drop((first, second));
        assert_eq!(allowance.held_bytes(), 0);
        put(b'c');
        let (mut held, mut refusal) = (Vec::new(), None);
        while refusal.is_none() && held.len() < 1000 {
            get().map(|value| held.push(value)).unwrap_or_else(|error| refusal = Some(error));
        }
        assert_eq!(refusal.as_deref(), Some("out of memory writing get response"));
        assert!((40..60).contains(&held.len()), "a quarter of the memory has {} values", held.len());
    }

    #[test]
    fn a_cache_that_follows_gives_memory_back() {
        let engine = CacheEngine::new(&Options::of_memory(256 << 20)).unwrap();
        let header = Header { state: 0, flags: 0, expires: 0, id: 1, given_cas: None }.encode();
        for number in 0..40_000u64 {
            let change = ChangeInParts::Put { key: &number.to_le_bytes(), parts: [&header, &[1; 4000], b""] };
            engine.write_at_once(change).unwrap();
        }
        assert!(engine.properties().memory_bytes > 120 << 20);
        // Simulates a machine short of memory. The thread that measures the process would undo it.
        engine.end_threads();
        let shared = &engine.shared;
        shared.cache.beside().set(192 << 20);
        shared.cache.tidy(shared.now());
        let left = engine.properties();
        assert!(left.memory_bytes <= 66 << 20 && left.items > 1000, "{left:?}");
    }
}
