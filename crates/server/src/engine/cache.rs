//! The extras of an engine that is a cache: it shows items where they lie, makes changes at once, and evicts.
//!
//! An event loop asks [`Engine::cache`](crate::Engine::cache) for the extras on each get and set. An engine names the
//! type of its extras, so the compiler knows it: there is no dynamic call, and for [`NoCache`] no code.

use crate::engine::batch::ChangeInParts;
use crate::engine::error::EngineError;
use crate::engine::item::Header;
use crate::engine::read::OnRead;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of a cache: what it holds, and what it has evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheState {
    /// The limit of memory, in bytes.
    pub memory_bytes_max: u64,
    /// Memory in use, in bytes.
    pub memory_bytes: u64,
    /// Items evicted to make room.
    pub evicted: u64,
    /// Items that went because they had expired.
    pub reclaimed: u64,
    /// The tier on flash; `None` without flash.
    pub flash: Option<FlashState>,
}

/// The state of a cache's tier on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlashState {
    /// False after the device has failed.
    pub works: bool,
    /// Bytes that items may take.
    pub bytes_max: u64,
    /// Bytes that items take.
    pub bytes: u64,
    /// Items that came from memory.
    pub demoted: u64,
    /// Bytes of these items.
    pub demoted_bytes: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Reads that found their item.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Items that went back to memory.
    pub promoted: u64,
    /// Items that were written again when their room was needed.
    pub reinserted: u64,
    /// Items evicted to make room.
    pub evicted: u64,
    /// Operations of the device that failed.
    pub errors: u64,
}

/// An item that an engine has dropped to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictedItem<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// Expiration time, Unix seconds; 0 means never.
    pub expires: u64,
    /// Length of the data.
    pub value_bytes: usize,
    /// True if it was read lately.
    pub was_read: bool,
}

/// A callback for each item that an engine drops to make room. It is quick and does not call the engine.
pub type OnEvicted = Box<dyn Fn(EvictedItem<'_>) + Send + Sync>;

/// Memory that counts towards a bound of the engine's until this is dropped.
#[derive(Debug, Default)]
pub struct Reserved {
    /// The sum that it is a part of.
    sum: Option<Arc<AtomicU64>>,
    bytes: u64,
}

impl Reserved {
    /// Adds `bytes` to `sum`. Returns false, and adds nothing, if the sum would exceed `bytes_max` and others have a
    /// part in it.
    pub(crate) fn grow(&mut self, sum: &Arc<AtomicU64>, bytes: u64, bytes_max: u64) -> bool {
        let before = sum.fetch_add(bytes, Ordering::Relaxed);
        if before > self.bytes && before + bytes > bytes_max {
            sum.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        self.sum.get_or_insert_with(|| Arc::clone(sum));
        true
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(sum) = &self.sum {
            sum.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A callback for faults of the flash, each a sentence.
pub type OnTrouble = Box<dyn Fn(&str) + Send + Sync>;

/// An item that an engine shows where it lies.
#[derive(Debug, Clone, Copy)]
pub struct ShownItem<'a> {
    pub(crate) header: Header,
    pub(crate) data: &'a [u8],
}

/// The outcome of [`CacheExtras::show`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<V> {
    /// The item was shown.
    Item,
    /// The item is long, and was not shown: its value.
    Value(V),
    /// The key does not exist.
    Miss,
    /// The engine cannot show it now: [`Engine::get`](crate::Engine::get) is to be asked.
    Ask,
}

/// Reads of an engine that one event loop gets on with itself.
pub trait LoopReader<V>: Send {
    /// Begins a read of `key`, which sees every write that was done before this call. `done` is called while the reader
    /// [advances](LoopReader::advance), or from another thread.
    fn begin(&mut self, key: &[u8], done: OnRead<V>);

    /// Hands to the disk what has begun, and tells what has ended. True if there is more to do at once. Waits for
    /// nothing.
    fn advance(&mut self) -> bool;

    /// Returns true while a read has begun here and its callback was not called. The loop then advances every 100 ms,
    /// whatever the descriptor says.
    fn is_busy(&self) -> bool;

    /// Becomes readable when there may be something to tell. The loop watches its edges.
    fn descriptor(&self) -> BorrowedFd<'_>;
}

/// The abilities of an engine that is a cache.
///
/// **Threads.** Called from every event loop at once. No method waits.
pub trait CacheExtras<V>: Send + Sync + 'static {
    /// Shows the item of `key` where it lies in memory. `show` is quick and does not call the engine. `copies` says
    /// that `show` copies the data: then a long item comes back as a value, and is not shown. A copy of a short item
    /// costs as much as finding it.
    ///
    /// # Errors
    /// As [`Engine::get`](crate::Engine::get).
    fn show(&self, key: &[u8], copies: bool, show: impl FnOnce(ShownItem<'_>)) -> Result<Shown<V>, EngineError>;

    /// Makes a reader for the thread of one event loop, which then reads from the disk itself. The server calls this
    /// once for each loop. A loop asks its reader for what [`Engine::get`](crate::Engine::get) has no answer for.
    /// `None`: the engine reads by other threads.
    fn loop_reader(&self) -> Option<Box<dyn LoopReader<V>>>;

    /// Applies one change and returns. The value is the concatenation of the parts. Every later get sees the change.
    ///
    /// # Errors
    /// The engine refuses the change; its reason goes to the client.
    fn write_at_once(&self, change: ChangeInParts<'_>) -> Result<(), EngineError>;

    /// Removes the item of `key` without reading it. Returns true if there was one, dead ones included.
    fn delete_unread(&self, key: &[u8]) -> bool;

    /// Counts `bytes` more of a value that arrives towards the engine's limit of memory. Returns false if there is no
    /// room for them; then the server refuses the value.
    fn reserve(&self, reserved: &mut Reserved, bytes: usize) -> bool;

    /// Sets the callback for items that go to make room. The server calls this once.
    fn on_evicted(&self, tell: OnEvicted);

    /// Returns what the cache holds, and what it has evicted.
    fn state(&self) -> CacheState;
}

/// The extras of an engine that is no cache. There is no value of this type.
#[derive(Debug)]
pub enum NoCache {}

impl<V> CacheExtras<V> for NoCache {
    fn show(&self, _: &[u8], _: bool, _: impl FnOnce(ShownItem<'_>)) -> Result<Shown<V>, EngineError> {
        match *self {}
    }

    fn loop_reader(&self) -> Option<Box<dyn LoopReader<V>>> {
        match *self {}
    }

    fn write_at_once(&self, _: ChangeInParts<'_>) -> Result<(), EngineError> {
        match *self {}
    }

    fn delete_unread(&self, _: &[u8]) -> bool {
        match *self {}
    }

    fn reserve(&self, _: &mut Reserved, _: usize) -> bool {
        match *self {}
    }

    fn on_evicted(&self, _: OnEvicted) {
        match *self {}
    }

    fn state(&self) -> CacheState {
        match *self {}
    }
}
