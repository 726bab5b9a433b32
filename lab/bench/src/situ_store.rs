//! Situ as a store under test.
//!
//! Opened with any [`situ::Options`]; [`SituSettings`] are those of them that comparisons set alike on every store.
//! The data lies in the keyspace `default`. The store does not say how many bytes it wrote to disk: it hands a log page
//! to the system with each record that goes into it, and of buffered ones the system writes the last state only. What
//! reaches the disk is the harness's own figure; the parts are in the work and the details.
//!
//! The asynchronous side polls the store's futures itself: a [`Flight`] is its own waker, so that the thread which
//! finishes the work also reports it, and no executor stands between.

use situ_base::lock;
use situ_device::PAGE_BYTES;
use situ_tiers::TieredBuilder;
use situ_tiers::Tiers;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use situ::offload::{Offload, Scheduler, UnitReport};
use situ::{Cursor, Durability, Options, WriteBatch};
use situ_compaction::{Stage, Stages};

use crate::process::directory_bytes;
use crate::store::{
    AsyncStore, Change, Completions, EachEntry, Setting, Settings, Store, StoreFactory, StoreFailure, StoreStats,
};
use crate::work::{StageWork, StagesWork, UnitSample, UnitWork, Work};
use model_unit::ModelUnit;
use situ_settings::{CompactionSettings, parse_bytes, parse_bytes_within};

mod model_unit;

/// Compression of data blocks, on all levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum BlockCompression {
    /// Blocks as they are.
    #[default]
    None,
    /// LZ4: fast, about half the size on text.
    Lz4,
    /// Zstandard, level 3: smaller, several times slower to write.
    Zstd,
}

/// The settings of a store under test that its rivals have too.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct SituSettings {
    /// Size at which a memtable is written to a table, 4K to 64G
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        value_parser = |text: &str| parse_bytes_within(text, 4 << 10, 64 << 30),
        help_heading = SETTINGS
    )]
    pub memtable_bytes: u64,

    /// Memtables in memory, 2 to 64. The one that takes writes is one of them
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "4",
        value_parser = |text: &str| number_within(text, 2, 64).map(|number| number as usize),
        help_heading = SETTINGS
    )]
    pub memtables_max: usize,

    /// Size of the block cache. With 0 the store keeps no block in memory
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_bytes, help_heading = SETTINGS)]
    pub cache_bytes: u64,

    /// Size of a data block before compression, 256 bytes to 16M
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "4K",
        value_parser = |text: &str| parse_bytes_within(text, 256, 16 << 20).map(|bytes| bytes as u32),
        help_heading = SETTINGS
    )]
    pub block_bytes: u32,

    /// Size at which a table is ended, 1K to 64G
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        value_parser = |text: &str| parse_bytes_within(text, 1 << 10, 64 << 30),
        help_heading = SETTINGS
    )]
    pub table_bytes: u64,

    /// Target size of the first level below level 0, 4K to 1T
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256M",
        value_parser = |text: &str| parse_bytes_within(text, 4 << 10, 1 << 40),
        help_heading = SETTINGS
    )]
    pub level_base_bytes: u64,

    /// Bits of the Bloom filter for each key, 0 to 100. With 0 there is no filter
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "10",
        value_parser = |text: &str| number_within(text, 0, 100),
        help_heading = SETTINGS
    )]
    pub bloom_bits_per_key: u32,

    /// Values of this size and larger ones lie in the value log, 1 byte to 1G [default: all values lie in tables]
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = |text: &str| parse_bytes_within(text, 1, 1 << 30),
        help_heading = SETTINGS
    )]
    pub value_log_min_bytes: Option<u64>,

    /// What the value log may take, in percent of its live values, before segments are collected, 101 to 1000
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = Options::default().value_inflation_percent_max,
        value_parser = |text: &str| number_within(text, 101, 1000),
        help_heading = SETTINGS
    )]
    pub value_inflation_percent_max: u32,

    /// Compression of data blocks, on all levels
    #[arg(long, value_enum, value_name = "NAME", default_value_t, help_heading = SETTINGS)]
    pub compression: BlockCompression,

    /// Threads for compactions, 1 to 64
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "2",
        value_parser = |text: &str| number_within(text, 1, 64),
        help_heading = SETTINGS
    )]
    pub background_threads: u32,

    /// The settings of compaction.
    #[command(flatten)]
    #[serde(flatten)]
    pub compaction: CompactionSettings,

    /// Fast disk for the log and the upper levels, beside --directory: a Situ disk (`situ disk format`), or a directory
    /// of another file system. It must hold no other store
    #[arg(long, value_name = "PATH", help_heading = SETTINGS)]
    pub fast_disk: Option<PathBuf>,

    /// Takes away the parallel log: one write in flight, one logger. To measure what it is worth.
    #[arg(long, hide = true)]
    pub serial_log: bool,

    /// Adds a unit that stands for another machine: it merges this number of entries a second, and computes on a core
    /// of this one. A model, for experiments.
    #[arg(long, hide = true, value_name = "ENTRIES_PER_S", value_parser = clap::value_parser!(u64).range(1..))]
    pub model_unit: Option<u64>,

    /// The core on which that unit computes.
    #[arg(long, hide = true, value_name = "NUMBER", requires = "model_unit")]
    pub model_unit_core: Option<usize>,

    /// Takes away placement: tables of levels below this one go to the fast disk, and nothing is moved or copied for
    /// the load. To measure what it is worth.
    #[arg(long, hide = true)]
    pub pinned_level: Option<usize>,
}

/// The heading under which `--help` shows the settings.
const SETTINGS: &str = "Settings of the store";

/// Reads a number that lies within bounds: the store would take another one for it, and the result would not say so.
fn number_within(text: &str, min: u32, max: u32) -> Result<u32, String> {
    let number: u32 = text.parse().map_err(|_| format!("this option takes a number from {min} to {max}"))?;
    match (min..=max).contains(&number) {
        true => Ok(number),
        false => Err(format!("this option takes {min} to {max}")),
    }
}

impl Default for SituSettings {
    /// Returns the options of an empty command line.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Empty {
            #[command(flatten)]
            settings: SituSettings,
        }
        <Empty as clap::Parser>::parse_from(["bench"]).settings
    }
}

/// Returns what each unit of the store's compactor has done.
fn unit_reports(store: &situ::Store) -> Vec<UnitReport> {
    Scheduler::of(store.compactor()).map_or_else(Vec::new, Scheduler::reports)
}

impl SituSettings {
    /// Returns what makes the compactor of the store, without further units.
    ///
    /// # Errors
    /// As [`CompactionSettings::policy`].
    pub fn offload(&self) -> crate::error::Result<Offload> {
        let offload = self.compaction.offload()?;
        let Some(entries_per_s) = self.model_unit else { return Ok(offload) };
        let core = self.model_unit_core;
        Ok(offload.unit_of_each_store(move |env| Arc::new(ModelUnit::new(env, entries_per_s, core))))
    }

    /// Returns the store's options with these settings, and its defaults for all else.
    ///
    /// # Errors
    /// As [`CompactionSettings::policy`].
    pub fn options(&self) -> crate::error::Result<Options> {
        let mut options = Options::default();
        options.cache_bytes = self.cache_bytes;
        options.ablation = situ_engine::Ablation { serial_log: self.serial_log };
        options.places = Arc::new(Tiers::new().pinned_level(self.pinned_level));
        options.compactor = Arc::new(self.offload()?);
        options.compaction_threads = self.background_threads.max(1) as usize;
        options.keyspace.memtable_bytes = self.memtable_bytes;
        options.keyspace.memtables_max = self.memtables_max;
        options.keyspace.block_bytes = self.block_bytes as usize;
        options.keyspace.table_bytes = self.table_bytes;
        options.keyspace.level_base_bytes = self.level_base_bytes;
        options.keyspace.filter_bits_per_key = self.bloom_bits_per_key;
        options.keyspace.value_log_min_bytes = self.value_log_min_bytes;
        options.value_inflation_percent_max = self.value_inflation_percent_max;
        options.keyspace.compression = vec![match self.compression {
            BlockCompression::None => situ::Compression::None,
            BlockCompression::Lz4 => situ::Compression::Lz4,
            BlockCompression::Zstd => situ::Compression::Zstd { level: 3 },
        }];
        Ok(options)
    }
}

/// Returns the compression of each level from the first, as in `none, lz4`; the last one holds for all deeper levels.
fn compression_name(levels: &[situ::Compression]) -> String {
    let names: Vec<String> = levels.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Opens [`SituStore`]s with one set of options.
pub struct SituFactory {
    options: Options,
    fast_disk: Option<PathBuf>,
    home: Option<Arc<dyn StoreHome>>,
}

/// The place of stores, with the machines that help to compact them, if any.
pub trait StoreHome: Send + Sync {
    /// Opens the store of this directory, or the one elsewhere that stands for it.
    ///
    /// # Errors
    /// The store cannot be opened, or another machine does not answer.
    fn open(&self, builder: situ::StoreBuilder, directory: &Path) -> situ::Result<OpenedStore>;

    /// Removes that store, which is not open.
    ///
    /// # Errors
    /// A file cannot be removed, or another machine does not answer.
    fn remove(&self, directory: &Path) -> situ::Result<()>;
}

/// Counters of a home by name, such as bytes on the wire. They begin when it is opened, and go with the store's own
/// details.
pub type Figures = Arc<dyn Fn() -> Vec<(String, u64)> + Send + Sync>;

/// A store that a [`StoreHome`] has opened.
pub struct OpenedStore {
    /// The store.
    pub store: situ::Store,
    /// The counters of its home, in addition to those of the store.
    pub figures: Figures,
}

impl std::fmt::Debug for SituFactory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SituFactory({:?}, fast disk {:?})", self.options, self.fast_disk)
    }
}

impl SituFactory {
    /// Creates a factory that opens every store with `options`. Each call says itself whether its write is synced.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, fast_disk: None, home: None }
    }

    /// Stores span their directory and this fast disk, if there is one.
    #[must_use]
    pub fn with_fast_disk(mut self, fast_disk: Option<PathBuf>) -> Self {
        self.fast_disk = fast_disk;
        self
    }

    /// Stores lie where this home says, or are compacted by whom it says.
    #[must_use]
    pub fn with_home(mut self, home: Option<Arc<dyn StoreHome>>) -> Self {
        self.home = home;
        self
    }
}

impl StoreFactory for SituFactory {
    fn name(&self) -> String {
        "situ".to_owned()
    }

    fn settings(&self) -> Settings {
        let (options, keyspace) = (&self.options, &self.options.keyspace);
        let rows: [(&str, Setting); 19] = [
            ("cache_bytes", options.cache_bytes.into()),
            ("log_bytes_max", options.log_bytes_max.into()),
            ("compaction", options.compactor.name().into()),
            ("compaction_threads", options.compaction_threads.into()),
            ("compaction_bytes_per_s_max", options.compaction_bytes_per_s_max.into()),
            ("memtable_bytes", keyspace.memtable_bytes.into()),
            ("memtables_max", keyspace.memtables_max.into()),
            ("compression", compression_name(&keyspace.compression).into()),
            ("block_bytes", keyspace.block_bytes.into()),
            ("filter_bits_per_key", keyspace.filter_bits_per_key.into()),
            ("level0_tables", keyspace.level0_tables.into()),
            ("level_base_bytes", keyspace.level_base_bytes.into()),
            ("level_multiplier", keyspace.level_multiplier.into()),
            ("table_bytes", keyspace.table_bytes.into()),
            ("value_log_min_bytes", keyspace.value_log_min_bytes.into()),
            ("value_inflation_percent_max", options.value_inflation_percent_max.into()),
            ("serial_log", options.ablation.serial_log.into()),
            ("pinned_level", Tiers::of(&options.places).pinned().into()),
            ("fast_disk", self.fast_disk.as_ref().map(|path| path.display().to_string()).into()),
        ];
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn Store>, StoreFailure> {
        let mut builder = situ::StoreBuilder::new(self.options.clone()).with_tiers();
        if let Some(path) = &self.fast_disk {
            builder = builder.fast_disk(path);
        }
        let Some(home) = &self.home else {
            let store = SituStore::new(builder.open(directory)?);
            return Ok(Arc::new(SituStore { directory: Some(directory.to_owned()), ..store }));
        };
        let OpenedStore { store, figures } = home.open(builder, directory)?;
        Ok(Arc::new(SituStore { store, figures: Some(figures), directory: None }))
    }

    fn remove(&self, directory: &Path) -> Result<(), StoreFailure> {
        match &self.home {
            Some(home) => Ok(home.remove(directory)?),
            None => Ok(situ_tiers::destroy(directory)?),
        }
    }
}

/// An open Situ store under test.
pub struct SituStore {
    store: situ::Store,
    figures: Option<Figures>,
    /// The directory of the files, if a file system of this machine has them: it knows of holes.
    directory: Option<PathBuf>,
}

impl std::fmt::Debug for SituStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SituStore({:?})", self.store)
    }
}

impl SituStore {
    /// Drives `store`, however it was opened. It is closed with the last handle.
    #[must_use]
    pub fn new(store: situ::Store) -> Self {
        Self { store, figures: None, directory: None }
    }
}

impl From<UnitReport> for UnitWork {
    fn from(report: UnitReport) -> UnitWork {
        UnitWork {
            name: report.name,
            attempts: report.attempts,
            succeeded: report.succeeded,
            refused_busy: report.refused_busy,
            refused: report.refused,
            illegal: report.illegal,
            failed: report.failed,
            late: report.late,
            suspicious: report.suspicious,
            checked: report.checked,
            mismatches: report.mismatches,
            input_bytes: report.input_bytes,
            output_bytes: report.output_bytes,
            busy_seconds: report.busy.as_secs_f64(),
            stages: report.stages.into(),
            last_trouble: report.last_trouble,
        }
    }
}

impl From<Stages> for StagesWork {
    fn from(stages: Stages) -> StagesWork {
        StagesWork { read: stages.read.into(), merge: stages.merge.into(), write: stages.write.into() }
    }
}

impl From<Stage> for StageWork {
    fn from(stage: Stage) -> StageWork {
        StageWork {
            busy_seconds: stage.busy.as_secs_f64(),
            starved_seconds: stage.starved.as_secs_f64(),
            blocked_seconds: stage.blocked.as_secs_f64(),
            bytes: stage.bytes,
        }
    }
}

fn durability(sync: bool) -> Durability {
    if sync { Durability::Synced } else { Durability::Buffered }
}

/// Walks with `step` from where the cursor stands.
fn walk(
    mut cursor: Cursor,
    limit: u64,
    each: &mut EachEntry<'_>,
    step: fn(&mut Cursor) -> situ::Result<()>,
) -> Result<u64, StoreFailure> {
    let mut count = 0;
    while count < limit {
        let (Some(key), Some(value)) = (cursor.key(), cursor.value()) else { break };
        count += 1;
        if each(key, value).is_break() {
            break;
        }
        // The last entry is not stepped over: a step may read a block that the caller did not ask for.
        if count < limit {
            step(&mut cursor)?;
        }
    }
    Ok(count)
}

impl Store for SituStore {
    fn name(&self) -> String {
        concat!("situ ", env!("CARGO_PKG_VERSION")).to_owned()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), StoreFailure> {
        Ok(self.store.default_keyspace().put_with(key, value, durability(sync))?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreFailure> {
        value.clear();
        let Some(found) = self.store.get(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<(), StoreFailure> {
        Ok(self.store.default_keyspace().delete_with(key, durability(sync))?)
    }

    fn batch(&self, changes: &[Change<'_>], sync: bool) -> Result<(), StoreFailure> {
        let keyspace = self.store.default_keyspace();
        let mut batch = WriteBatch::new();
        for change in changes {
            match *change {
                Change::Put(key, value) => batch.put_in(keyspace, key, value)?,
                Change::Delete(key) => batch.delete_in(keyspace, key)?,
            }
        }
        Ok(self.store.write_with(batch, durability(sync))?)
    }

    fn scan(&self, start: &[u8], limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        let mut cursor = self.store.cursor()?;
        cursor.seek(start)?;
        walk(cursor, limit, each, Cursor::next)
    }

    fn scan_reverse(&self, start: Option<&[u8]>, limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        let mut cursor = self.store.cursor()?;
        match start {
            Some(start) => cursor.seek_for_prev(start)?,
            None => cursor.seek_to_last()?,
        }
        walk(cursor, limit, each, Cursor::prev)
    }

    fn flush(&self) -> Result<(), StoreFailure> {
        Ok(self.store.flush()?)
    }

    fn compact_all(&self) -> Result<(), StoreFailure> {
        self.store.flush()?;
        self.store.default_keyspace().compact(None, None)?;
        self.wait_idle()
    }

    fn wait_idle(&self) -> Result<(), StoreFailure> {
        Ok(self.store.wait_idle()?)
    }

    fn units(&self) -> Vec<UnitSample> {
        let sample = |unit: UnitWork| UnitSample { input_bytes: unit.input_bytes, busy_seconds: unit.busy_seconds };
        unit_reports(&self.store).into_iter().map(|report| sample(report.into())).collect()
    }

    fn stats(&self) -> Result<StoreStats, StoreFailure> {
        let (statistics, properties) = (self.store.statistics(), self.store.properties());
        let mut detail: BTreeMap<String, f64> =
            statistics.counters().into_iter().map(|(name, count, _)| (name.to_owned(), count as f64)).collect();
        for (name, figure) in [
            ("memtable_bytes", properties.memtable_bytes),
            ("block_cache_bytes", properties.cache_bytes),
            ("cache_hits", properties.cache_hits),
            ("cache_misses", properties.cache_misses),
            ("table_bytes", properties.table_bytes),
            ("log_bytes", properties.log_bytes),
            ("log_pages_written", properties.log_pages_written),
            ("log_syncs", properties.log_syncs),
        ] {
            detail.insert(name.to_owned(), figure as f64);
        }
        let units = unit_reports(&self.store).into_iter().map(UnitWork::from).collect();
        let work = Work {
            log_bytes_written: properties.log_pages_written * PAGE_BYTES as u64,
            flush_bytes_written: statistics.flush_bytes_written,
            compaction_bytes_read: statistics.compaction_bytes_read,
            compaction_bytes_written: statistics.compaction_bytes_written,
            compactions: statistics.compactions,
            trivial_moves: statistics.trivial_moves,
            stall_seconds: statistics.stall_ns as f64 / 1e9,
            units,
        };
        for (name, count) in self.figures.iter().flat_map(|figures| figures()) {
            detail.insert(name, count as f64);
        }
        let disks = self.store.disk_use()?;
        detail.insert("fast_disk_file_bytes".to_owned(), disks.elsewhere_bytes as f64);
        Ok(StoreStats {
            disk_bytes: Some(match &self.directory {
                Some(directory) => directory_bytes(directory) + disks.elsewhere_bytes,
                None => disks.bytes(),
            }),
            memory_bytes: Some(properties.memtable_bytes + properties.cache_bytes),
            work: Some(work),
            detail,
            ..StoreStats::default()
        })
    }

    fn interrupt(&self) {
        // The durability of the last writes is of no interest: the store is removed.
        let _ = self.store.close();
    }

    fn asynchronous(&self) -> Option<&dyn AsyncStore> {
        Some(self)
    }
}

impl AsyncStore for SituStore {
    fn submit_put(
        &self,
        key: &[u8],
        value: &[u8],
        sync: bool,
        token: u64,
        completions: &Arc<dyn Completions>,
    ) -> Result<(), StoreFailure> {
        let future = self.store.put_with_async(key, value, durability(sync));
        Flight::begin(future, token, completions, |()| None);
        Ok(())
    }

    fn submit_get(&self, key: &[u8], token: u64, completions: &Arc<dyn Completions>) -> Result<(), StoreFailure> {
        let future = self.store.get_async(key);
        Flight::begin(future, token, completions, |found| found.map(|value| value.len()));
        Ok(())
    }
}

/// A future that reports to [`Completions`] when it is ready. The thread that wakes it polls it.
///
/// **Threads.** The submitter polls once; each wake polls again, on the waking thread. The lock orders them: the first
/// that finds the outcome takes the future out, and later wakes find nothing to do.
struct Flight<F, T> {
    future: Mutex<Option<F>>,
    token: u64,
    completions: Arc<dyn Completions>,
    outcome: fn(T) -> Option<usize>,
}

impl<F, T> Flight<F, T>
where
    F: Future<Output = situ::Result<T>> + Unpin + Send + 'static,
    T: 'static,
{
    fn begin(future: F, token: u64, completions: &Arc<dyn Completions>, outcome: fn(T) -> Option<usize>) {
        let future = Mutex::new(Some(future));
        Arc::new(Flight { future, token, completions: Arc::clone(completions), outcome }).poll();
    }

    fn poll(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let ready = {
            let mut slot = lock(&self.future);
            let Some(future) = slot.as_mut() else { return };
            match Pin::new(future).poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => return,
                Poll::Ready(ready) => {
                    *slot = None;
                    ready
                }
            }
        };
        self.completions.complete(self.token, ready.map(self.outcome).map_err(StoreFailure::from));
    }
}

impl<F, T> Wake for Flight<F, T>
where
    F: Future<Output = situ::Result<T>> + Unpin + Send + 'static,
    T: 'static,
{
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

#[cfg(test)]
mod tests;
