//! The interface of a benchmark to a key-value store.
//!
//! An adapter implements [`Store`] for one store and [`StoreFactory`] for the settings it is opened with. The workloads
//! speak to nothing else, so every store is driven by the same loop, with the same keys, values and clock.
//!
//! **Threads.** A store is shared by all load threads; every method may be called from any of them at once.
//!
//! **Failure.** A method returns the store's own error as a [`StoreFailure`]; the run ends there and the error names
//! the workload. A benchmark that goes on after a failed write would measure nothing.
//!
//! *Rejected:* a trait with associated iterator and batch types. Every adapter's lifetimes would leak into the driver;
//! a callback per entry costs one indirect call, about 1 ns, next to the hundreds that an entry costs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::work::{UnitSample, Work};

/// An error of the store under test, in its own words.
pub type StoreFailure = Box<dyn std::error::Error + Send + Sync>;

/// A callback for each entry's key and value: a break ends the scan.
pub type EachEntry<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One change in a batch. Borrowed: the store copies what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Set a key to a value.
    Put(&'a [u8], &'a [u8]),
    /// Remove a key.
    Delete(&'a [u8]),
}

/// A store under test. See the module's header for what callers may rely on.
pub trait Store: Send + Sync {
    /// Returns the store's name and version, as it should appear in a result.
    fn name(&self) -> String;

    /// Sets `key` to `value`. With `sync` it returns only when the write survives a power cut.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), StoreFailure>;

    /// Puts the value of `key` into `value` (cleared first) and says whether there is one. The bytes are copied,
    /// because a caller of a real store wants to own them.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreFailure>;

    /// Removes `key`; no error when it is absent.
    fn delete(&self, key: &[u8], sync: bool) -> Result<(), StoreFailure>;

    /// Applies all changes or none.
    fn batch(&self, changes: &[Change<'_>], sync: bool) -> Result<(), StoreFailure>;

    /// Calls `each` for up to `limit` entries with keys at or after `start`, ascending, until it breaks; returns how
    /// many calls there were.
    fn scan(&self, start: &[u8], limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure>;

    /// Scans like [`scan`](Self::scan), descending from the last key at or before `start`; `None` starts at the very
    /// last.
    fn scan_reverse(&self, start: Option<&[u8]>, limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure>;

    /// Writes what is in memory to tables and returns when that is done.
    fn flush(&self) -> Result<(), StoreFailure>;

    /// Compacts the whole key range and returns when that is done.
    fn compact_all(&self) -> Result<(), StoreFailure>;

    /// Returns when no background work is running or due: the moment at which debt has been paid.
    fn wait_idle(&self) -> Result<(), StoreFailure>;

    /// Returns the counters of the store. Cheap enough to be called once per workload.
    fn stats(&self) -> Result<StoreStats, StoreFailure>;

    /// Returns the compacted bytes of each unit since the store was opened; nothing where the store has no units. It is
    /// called ten times a second.
    fn units(&self) -> Vec<UnitSample> {
        Vec::new()
    }

    /// Makes calls that wait in the store return soon, with an error: the run was asked to end. The store need not
    /// answer any more. Without this, the run ends when they return by themselves.
    fn interrupt(&self) {}

    /// Returns the store's asynchronous side, where it has one.
    fn asynchronous(&self) -> Option<&dyn AsyncStore> {
        None
    }
}

/// Submission of single operations whose results arrive later: what `--outstanding` needs.
pub trait AsyncStore: Send + Sync {
    /// Submits a put. Key and value are copied or written before the call returns. `completions` gets `token` exactly
    /// once, from any thread, possibly before this call returns. A refusal is an error and is not reported there.
    fn submit_put(
        &self,
        key: &[u8],
        value: &[u8],
        sync: bool,
        token: u64,
        completions: &Arc<dyn Completions>,
    ) -> Result<(), StoreFailure>;

    /// Submits a get, under the same rules.
    fn submit_get(&self, key: &[u8], token: u64, completions: &Arc<dyn Completions>) -> Result<(), StoreFailure>;
}

/// A receiver of the outcomes of an [`AsyncStore`].
pub trait Completions: Send + Sync {
    /// Reports that the operation submitted as `token` is done. `outcome` is the value's length for a get that found
    /// one, and `None` otherwise.
    fn complete(&self, token: u64, outcome: Result<Option<usize>, StoreFailure>);
}

/// Counters that a store keeps about itself. A store leaves `None` where it does not know; zero means zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreStats {
    /// Key and value bytes that callers have written since the store was opened.
    pub user_bytes_written: Option<u64>,
    /// Bytes the store has written to its volumes since it was opened: log, flushes and compactions.
    pub disk_bytes_written: Option<u64>,
    /// Bytes the store has read from its volumes since it was opened.
    pub disk_bytes_read: Option<u64>,
    /// Bytes its files hold now. Where absent, the size of the directory is used.
    pub disk_bytes: Option<u64>,
    /// Its own estimate of the memory it holds: memtables, caches, indexes, filters.
    pub memory_bytes: Option<u64>,
    /// Its work behind the requests since it was opened.
    pub work: Option<Work>,
    /// Anything else worth keeping with the result, by the store's own names.
    pub detail: BTreeMap<String, f64>,
}

/// One setting of a store: a number, a switch, a name, or nothing.
pub type Setting = serde_json::Value;

/// The settings of a store by name. Names are in snake_case and end in their unit; numbers are numbers.
pub type Settings = BTreeMap<String, Setting>;

/// Opens stores of one kind with one set of settings.
pub trait StoreFactory: Send + Sync {
    /// Returns a short name for tables and charts, such as `situ` or `rocksdb`.
    fn name(&self) -> String;

    /// Returns every setting that the stores are opened with, to be kept with the result.
    fn settings(&self) -> Settings;

    /// Returns true if the stores are in a server, which is another process with files of its own. A run then never
    /// makes or removes a store, and the directories in the calls mean nothing.
    fn is_served(&self) -> bool {
        false
    }

    /// Opens the store in `directory`, which exists. It is empty for a fresh store; otherwise it holds what an earlier
    /// store of this factory left there.
    fn open(&self, directory: &Path) -> Result<Arc<dyn Store>, StoreFailure>;

    /// Removes the store in `directory`, which is not open, with whatever of it lies elsewhere; the directory may stay.
    fn remove(&self, directory: &Path) -> Result<(), StoreFailure> {
        Ok(std::fs::remove_dir_all(directory)?)
    }
}
