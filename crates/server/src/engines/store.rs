//! The durable engine: a Situ store behind the [`Engine`] trait.
//!
//! Items lie in [`ITEMS_KEYSPACE`], as [`item`](crate::engine::item) encodes them; the server's own records in
//! [`META_KEYSPACE`]. Both go through the store's one log, so a crash keeps a prefix of them together. All other
//! keyspaces, `default` among them, are left to other users of the store.
//!
//! A write becomes a future of the store. A *buffered* one is mostly ready at once, so that it is done when
//! [`Engine::write`] returns. Otherwise (it is synced, the log is on a raw disk, it waits its turn) the thread of the
//! store that continues it polls it once more and calls the server's callbacks: no thread waits for a write, neither
//! for the disk nor for the store's back-pressure.
//!
//! A read is answered at once from memtables, cached blocks, the page cache and quick raw disks. Otherwise it becomes a
//! future of the store, and the thread of the store that reads calls the server's callback.
//!
//! **Expiry.** Readers skip dead items by themselves. The [`ItemFilter`](crate::engines::filter) lets compactions drop
//! them from disk.
//!
//! **Failure.** A store that takes no writes answers with its reason, which travels to the client; `/healthz` repeats
//! it.

mod units;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use situ::offload::Offload;
use situ::{
    AtOnce, Damage, DebtProperties, Durability, Error, Keyspace, LatencySummary, Options, ReadOptions, SpaceProperties,
    Store, StoreBuilder, StoreProperties, Value,
};
use situ_base::{ClockKeeper, ClockRecord, StoreClock};
use situ_tiers::{PlacementProperties, TieredBuilder, TieredStore};

use crate::engine::cache::NoCache;
use crate::engine::compactions::{Compactions, gather};
use crate::engine::durable::{CLOCK_KEY, FLUSH_KEY, LIMIT_KEY};
use crate::engine::slow::SlowFigures;
use crate::engine::{
    Admission, Beside, Change, Done, Engine, EngineError, Get, Health, Metric, MetricKind, OnRead, OnTaken, Pairs,
    Survey, WriteBatch,
};
use crate::engines::completion::Completion;
use crate::engines::filter::ItemFilter;
use crate::engines::keyspaces::{ITEMS_KEYSPACE, META_KEYSPACE, meta_options};
use crate::engines::offline::stored_record;
use crate::process::descriptors;

/// A [`Store`] that serves memcached. See the module.
pub struct StoreEngine {
    store: Store,
    items: Keyspace,
    meta: Keyspace,
    durability: Durability,
    filter: Arc<ItemFilter>,
    clock: Arc<StoreClock>,
    keeper: ClockKeeper,
    opened: SystemTime,
    beside: Option<Arc<dyn Beside>>,
}

impl fmt::Debug for StoreEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreEngine").field("store", &self.store).field("durability", &self.durability).finish()
    }
}

impl StoreEngine {
    /// Opens or creates the store in `directory`. Items are as durable as `options.durability` says. Raises the
    /// process's soft limit of open files to the hard one: a store keeps its tables open.
    ///
    /// # Errors
    /// As [`StoreBuilder::open`]; or [`ITEMS_KEYSPACE`] holds entries without the record of their cas ids, so that ids
    /// would be given out twice and a flush would not reach them.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> situ::Result<StoreEngine> {
        StoreEngine::open_on(directory, None, options)
    }

    /// Opens an engine like [`open`](StoreEngine::open), with a [fast disk](situ_tiers::TieredBuilder::fast_disk).
    ///
    /// # Errors
    /// As [`open`](StoreEngine::open).
    pub fn open_on(
        directory: impl AsRef<Path>,
        fast_disk: Option<&Path>,
        options: Options,
    ) -> situ::Result<StoreEngine> {
        StoreEngine::open_by(options, |builder| match fast_disk {
            Some(path) => builder.fast_disk(path).open(directory),
            None => builder.open(directory),
        })
    }

    /// Opens an engine like [`open`](StoreEngine::open), with the store that `open` makes of a builder: on any volume.
    ///
    /// The builder has an [`Offload`] as its compactor, whose figures `/metrics` and the live page show. `open` may
    /// set another one.
    ///
    /// # Errors
    /// As [`open`](StoreEngine::open).
    pub fn open_by(
        options: Options,
        open: impl FnOnce(StoreBuilder) -> situ::Result<Store>,
    ) -> situ::Result<StoreEngine> {
        descriptors::raise_limit();
        let filter = Arc::new(ItemFilter::default());
        let durability = options.durability;
        let mut items = options.keyspace.clone();
        items.compaction_filter = Some(Arc::clone(&filter) as _);
        // Its scheduler has the figures that metrics and the picture of compactions show.
        let builder = StoreBuilder::new(options).with_tiers().compactor(Offload::new());
        let builder = builder.keyspace(ITEMS_KEYSPACE, items.clone()).keyspace(META_KEYSPACE, meta_options());
        let store = open(builder)?;
        let items = store.keyspace_with(ITEMS_KEYSPACE, items)?;
        let meta = store.keyspace_with(META_KEYSPACE, meta_options())?;
        if !meta.contains(LIMIT_KEY)? && !is_empty(&items)? {
            return Err(Error::Invalid(format!(
                "the keyspace {ITEMS_KEYSPACE:?} holds entries, but not the record of the cas ids that a server gave \
                 them; serve another directory, into which `situ load --stored` brings what `situ dump --stored` \
                 writes here"
            )));
        }
        // Not before it is known that the items are a server's.
        let clock = Arc::new(StoreClock::resume(Arc::clone(&store.env().clock), stored_record(&meta)?));
        filter.begin(&clock, meta.get(FLUSH_KEY)?.as_deref());
        let keeper = keep_clock(&store, &meta, &clock)?;
        let opened = SystemTime::now();
        Ok(StoreEngine { store, items, meta, durability, filter, clock, keeper, opened, beside: None })
    }

    /// Adds a dependency of the store to `/metrics` and `/healthz`.
    pub fn with_beside(mut self, beside: Arc<dyn Beside>) -> StoreEngine {
        self.beside = Some(beside);
        self
    }

    /// Returns the store underneath.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Closes the store. Everything is durable then, including the clock's last record.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub fn close(&self) -> situ::Result<()> {
        self.keeper.stop();
        self.store.close()
    }

    fn submit(
        &self,
        batch: situ::WriteBatch,
        durability: Durability,
        on_taken: Option<&OnTaken>,
        done: Done,
    ) -> Admission {
        Completion::follow(self.store.write_with_async(batch, durability), on_taken, done)
    }

    fn gather(&self, batch: &WriteBatch) -> situ::Result<situ::WriteBatch> {
        let mut gathered = situ::WriteBatch::new();
        for change in batch.changes() {
            match change {
                Change::Put { key, value } => gathered.put_in(&self.items, key, value)?,
                Change::Delete { key } => gathered.delete_in(&self.items, key)?,
            }
        }
        Ok(gathered)
    }
}

/// Starts the keeper of the clock's record, which is stored with the server's own records.
fn keep_clock(store: &Store, meta: &Keyspace, clock: &Arc<StoreClock>) -> situ::Result<ClockKeeper> {
    let (kept, meta) = (store.clone(), meta.clone());
    let keep = move |record: &ClockRecord| {
        let mut batch = situ::WriteBatch::new();
        batch.put_in(&meta, CLOCK_KEY, record.encode()).is_ok() && kept.write_with(batch, Durability::Synced).is_ok()
    };
    ClockKeeper::start(store.env(), clock, keep)
        .map_err(|error| Error::Invalid(format!("cannot start a thread for the store's clock: {error}")))
}

fn is_empty(keyspace: &Keyspace) -> situ::Result<bool> {
    let mut entries = keyspace.cursor()?;
    entries.seek_to_first()?;
    Ok(entries.key().is_none())
}

/// Returns the text of `/healthz` for a store in which damage was met.
fn damage_found(first: &Damage, files: usize) -> String {
    let others = match files {
        1 => String::new(),
        2 => "; damage was found in one more file".to_owned(),
        files => format!("; damage was found in {} more files", files - 1),
    };
    format!(
        "{first}{others}. Reads of damaged data fail (SERVER_ERROR); all other requests work. Stop the server and run `situ repair`, or restore a \
         backup."
    )
}

impl Engine for StoreEngine {
    type Value = Value;
    type Cache = NoCache;

    fn get(&self, key: &[u8], later: &mut dyn FnMut() -> Option<OnRead<Value>>) -> Result<Get<Value>, EngineError> {
        let options = ReadOptions::default();
        let read = match self.items.get_at_once(key, &options).map_err(EngineError::new)? {
            AtOnce::Known(Some(value)) => return Ok(Get::Hit(value)),
            AtOnce::Known(None) => return Ok(Get::Miss),
            AtOnce::OnDisk(read) => read,
        };
        if let Some(on_read) = later() {
            Completion::follow(read.begin(), None, on_read);
        }
        Ok(Get::Later)
    }

    fn write(&self, batch: WriteBatch, on_taken: &OnTaken, done: Done) -> Admission {
        let gathered = match self.gather(&batch) {
            Ok(gathered) => gathered,
            Err(error) => {
                done(Err(EngineError::new(error)));
                return Admission::Taken;
            }
        };
        drop(batch);
        if gathered.is_empty() {
            done(Ok(()));
            return Admission::Taken;
        }
        self.submit(gathered, self.durability, Some(on_taken), done)
    }

    fn survey(&self) -> Result<Option<Box<dyn Survey>>, EngineError> {
        let items = self.items.iter().map_err(EngineError::new)?;
        Ok(Some(Box::new(Pairs(items.map(|pair| pair.map_err(EngineError::new))))))
    }

    fn clock(&self) -> &Arc<StoreClock> {
        &self.clock
    }

    fn get_meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.meta.get(key).map_err(EngineError::new)?.map(|value| value.to_vec()))
    }

    fn put_meta(&self, key: &[u8], value: &[u8], done: Done) {
        let mut batch = situ::WriteBatch::new();
        if let Err(error) = batch.put_in(&self.meta, key, value) {
            return done(Err(EngineError::new(error)));
        }
        let (filter, record) = (Arc::clone(&self.filter), (key == FLUSH_KEY).then(|| value.to_vec()));
        let done: Done = Box::new(move |outcome| {
            if outcome.is_ok() {
                filter.raise(record.as_deref());
            }
            done(outcome);
        });
        self.submit(batch, Durability::Synced, None, done);
    }

    fn approximate_items(&self) -> u64 {
        self.items.properties().approximate_keys
    }

    fn disk_bytes(&self) -> u64 {
        let properties = self.store.properties();
        properties.table_bytes + properties.log_bytes
    }

    fn write_stalled(&self) -> bool {
        let properties = self.store.properties();
        properties.write_limit_bytes_per_s.is_some() || properties.writes_waiting > 0
    }

    fn health(&self) -> Health {
        let properties = self.store.properties();
        let damage = properties.damaged_files.first();
        // The cause of all others comes first, but for what does not pass with it.
        let trouble = self.beside.as_ref().and_then(|beside| beside.trouble());
        let trouble = trouble
            .or_else(|| properties.watched_space.as_ref().and_then(SpaceProperties::shortage).map(ToString::to_string));
        match (properties.failure, damage, trouble, properties.background_failure) {
            (Some(error), ..) => Health::Degraded(error.to_string()),
            (None, Some(damage), ..) => Health::Degraded(damage_found(damage, properties.damaged_files.len())),
            (None, None, Some(trouble), _) => Health::Degraded(trouble),
            (None, None, None, Some(error)) => Health::Degraded(error.to_string()),
            (None, None, None, None) => Health::Ready,
        }
    }

    fn slow_operations(&self) -> Option<Vec<SlowFigures>> {
        Some(self.store.slow_operations().iter().map(SlowFigures::from).collect())
    }

    fn metrics(&self, out: &mut dyn FnMut(Metric<'_>)) {
        use MetricKind::{Counter, Gauge};
        let statistics = self.store.statistics();
        for (name, value, help) in statistics.counters() {
            let help = help.trim();
            // Prometheus wants base units.
            let (name, help, value) = match name.strip_suffix("_ns") {
                Some(stem) => {
                    (format!("situ_store_{stem}_seconds_total"), format!("{help} In seconds."), value as f64 / 1e9)
                }
                None => (format!("situ_store_{name}_total"), help.to_owned(), value as f64),
            };
            out(Metric { name: &name, help: &help, kind: Counter, labels: &[], value });
        }
        let latencies = [
            ("write", statistics.write_latency),
            ("read", statistics.read_latency),
            ("flush", statistics.flush_latency),
            ("compaction", statistics.compaction_latency),
            ("stall", statistics.stall_latency),
        ];
        latency_metrics(&latencies, out);
        let properties = self.store.properties();
        let gauges = [
            ("memtable_bytes", "Bytes of memory of memtables.", properties.memtable_bytes as f64),
            (
                "memtable_limit_bytes",
                "Bytes that all memtables may take together.",
                properties.memtable_bytes_max as f64,
            ),
            (
                "memtable_held_bytes",
                "Bytes of flushed memtables that readers still hold. They are not in situ_store_memtable_bytes.",
                properties.memtable_held_bytes as f64,
            ),
            (
                "cache_bytes",
                "Bytes of the block cache, with the indexes, filters and range tombstones of open tables.",
                properties.cache_bytes as f64,
            ),
            (
                "cache_pinned_bytes",
                "Bytes of situ_store_cache_bytes that open tables pin. Bounded by how many may be open, not by the cache's limit.",
                properties.cache_pinned_bytes as f64,
            ),
            ("cache_limit_bytes", "Bytes that the block cache may use.", properties.cache_bytes_max as f64),
            ("table_bytes", "Bytes of tables on disk.", properties.table_bytes as f64),
            ("log_bytes", "Bytes of log files on disk.", properties.log_bytes as f64),
            ("last_sequence", "The newest visible sequence number.", properties.last_sequence as f64),
            ("snapshots", "Live snapshots.", properties.snapshots as f64),
            (
                "write_limit_bytes_per_second",
                "Write rate limit in bytes per second; 0 if there is no limit.",
                properties.write_limit_bytes_per_s.unwrap_or(0) as f64,
            ),
            (
                "damaged_files",
                "Files in which damage was found since the store was opened.",
                properties.damaged_files.len() as f64,
            ),
            (
                "value_segments_set_aside",
                "Segments of the value log that are not collected until the store is reopened, because of damage.",
                properties.value_log.map_or(0, |log| log.segments_set_aside) as f64,
            ),
            (
                "mended_damages",
                "Damages of one copy of the manifest that were repaired from the other copy when the store was opened.",
                properties.mended.len() as f64,
            ),
            ("failed", "1 if the store takes no writes.", f64::from(u8::from(properties.failure.is_some()))),
            (
                "background_failing",
                "1 while a background job fails and is tried again.",
                f64::from(u8::from(properties.background_failure.is_some())),
            ),
        ];
        for (name, help, value) in gauges {
            out(Metric { name: &format!("situ_store_{name}"), help, kind: Gauge, labels: &[], value });
        }
        let counters = [
            ("cache_hits", "Blocks found in the cache.", properties.cache_hits),
            ("cache_misses", "Blocks that had to be read.", properties.cache_misses),
            ("log_pages_written", "Pages of 4 KiB written to the log.", properties.log_pages_written),
            ("log_syncs", "Durable writes and syncs of the log.", properties.log_syncs),
        ];
        for (name, help, value) in counters {
            let name = format!("situ_store_{name}_total");
            out(Metric { name: &name, help, kind: Counter, labels: &[], value: value as f64 });
        }
        space_metrics(&properties, out);
        debt_metrics(&properties.debts, out);
        let placement = self.store.placement();
        placement.iter().for_each(|placement| placement_metrics(placement, out));
        self.level_metrics(placement.is_some(), out);
        units::metrics(&self.store, out);
        if let Some(beside) = &self.beside {
            beside.metrics(out);
        }
    }

    fn compactions(&self, since: u64) -> Option<Compactions> {
        Some(gather(&self.store, self.opened, since))
    }
}

/// Reports dead entries that still take space, and files that stay for them.
fn debt_metrics(debts: &DebtProperties, out: &mut dyn FnMut(Metric<'_>)) {
    let gauges = [
        ("log_limit_bytes", "Bytes that log files may take.", debts.log_bytes_max),
        ("log_held_bytes", "Bytes of the log that the contents of memtables still need.", debts.log_held_bytes),
        ("tombstones", "Tombstones of single keys in memtables and tables.", debts.tombstones),
        ("range_deletions", "Tombstones of ranges in memtables and tables.", debts.range_deletions),
        ("removable_entries", "Expired or flushed items in tables, estimated.", debts.removable_entries),
        ("value_dead_bytes", "Bytes of dead values in the value log.", debts.value_dead_bytes),
        ("undeleted_files", "Obsolete files that are not deleted yet.", debts.undeleted_files as u64),
    ];
    for (name, help, value) in gauges {
        let name = format!("situ_store_debt_{name}");
        out(Metric { name: &name, help, kind: MetricKind::Gauge, labels: &[], value: value as f64 });
    }
}

/// Reports logical space, and physical space of a drive that compresses and says so. An unknown quantity has no figure;
/// level and reserve are known after the first write.
fn space_metrics(properties: &StoreProperties, out: &mut dyn FnMut(Metric<'_>)) {
    use MetricKind::{Counter, Gauge};
    let StoreProperties { space, watched_space, .. } = properties;
    let level = watched_space.as_ref().map(|watched| watched.level.number());
    let gauges = [
        (
            "logical_used_bytes",
            "Used bytes of the capacity disk, as its file system counts them.",
            Some(space.logical_used),
        ),
        ("logical_total_bytes", "Size of the capacity disk in bytes.", Some(space.logical_total)),
        ("physical_used_bytes", "Physical bytes that the drive below the capacity disk holds.", space.physical_used),
        ("physical_total_bytes", "Physical bytes of the drive below the capacity disk.", space.physical_total),
        (
            "space_reserve_bytes",
            "With fewer bytes left on the disk that has the least space, puts are refused.",
            watched_space.as_ref().map(|watched| watched.reserve_bytes),
        ),
        (
            "space_level",
            "Space: 0 if there is enough, 1 if it is low, 2 if puts are refused, 3 if all writes are.",
            level,
        ),
    ];
    for (name, help, value) in gauges {
        let Some(value) = value else { continue };
        out(Metric { name: &format!("situ_store_{name}"), help, kind: Gauge, labels: &[], value: value as f64 });
    }
    if let Some(written) = space.physical_written {
        let help = "Physical bytes that the drive below the capacity disk has written since its own counter began.";
        let name = "situ_store_physical_written_bytes_total";
        out(Metric { name, help, kind: Counter, labels: &[], value: written as f64 });
    }
}

/// Reports the use of the disks of a store with two.
fn placement_metrics(placement: &PlacementProperties, out: &mut dyn FnMut(Metric<'_>)) {
    use MetricKind::{Counter, Gauge};
    let last_change_s = placement.decisions.last().map_or(0, |decision| decision.unix_s);
    let gauges = [
        ("placement_level", "New tables of levels below this one go to the fast disk.", placement.pointer as u64),
        ("fast_disk_table_bytes", "Bytes of tables on the fast disk.", placement.fast_table_bytes),
        ("fast_disk_used_bytes", "Used bytes of the fast disk.", placement.fast_space.logical_used),
        ("fast_disk_total_bytes", "Size of the fast disk in bytes.", placement.fast_space.logical_total),
        (
            "fast_disk_cache_max_bytes",
            "Bytes that the cache of a raw fast disk may use.",
            placement.fast_cache_bytes_max,
        ),
        ("fast_disk_draining", "1 while the fast disk is being drained.", u64::from(placement.is_draining)),
        ("fast_disk_troubles", "Number of faults of the fast disk.", placement.fast_troubles.len() as u64),
        (
            "placement_decision_timestamp_seconds",
            "Time of the last change of the placement, in Unix seconds; 0 if there was none.",
            last_change_s,
        ),
    ];
    let counters = [
        ("tables_spilled", "Tables that did not fit on the fast disk.", placement.tables_spilled),
        ("log_files_spilled", "Log files that did not fit on the fast disk.", placement.log_files_spilled),
        ("tables_promoted", "Tables copied to the fast disk because they are read often.", placement.tables_promoted),
        (
            "tables_demoted",
            "Tables copied back to the capacity disk because they are rarely read now.",
            placement.tables_demoted,
        ),
        ("fast_disk_write_failures", "Tables that the fast disk failed to write.", placement.fast_write_failures),
    ];
    for (name, help, value) in gauges {
        out(Metric { name: &format!("situ_store_{name}"), help, kind: Gauge, labels: &[], value: value as f64 });
    }
    for (name, help, value) in counters {
        let name = format!("situ_store_{name}_total");
        out(Metric { name: &name, help, kind: Counter, labels: &[], value: value as f64 });
    }
    decision_metrics(placement, out);
    let mut by_disk = |name: &str, help: &str, fast: f64, capacity: f64| {
        for (disk, value) in [("fast", fast), ("capacity", capacity)] {
            out(Metric { name, help, kind: Counter, labels: &[("disk", disk)], value });
        }
    };
    let (fast, capacity) = (placement.fast_bytes_read, placement.capacity_bytes_read);
    by_disk("situ_store_disk_read_bytes_total", "Bytes read from a disk.", fast as f64, capacity as f64);
    let (fast, capacity) = (placement.fast_bytes_written, placement.capacity_bytes_written);
    by_disk("situ_store_disk_written_bytes_total", "Bytes written to a disk.", fast as f64, capacity as f64);
    let (fast, capacity) = (placement.fast_busy.as_secs_f64(), placement.capacity_busy.as_secs_f64());
    by_disk("situ_store_disk_busy_seconds_total", "Seconds for which a disk was busy.", fast, capacity);
    let (fast, capacity) = (placement.fast_reads as f64, placement.capacity_reads as f64);
    let help = "Reads of tables that did not find their block in the cache.";
    by_disk("situ_store_disk_reads_total", help, fast, capacity);
}

/// Reports the number of times that each rule has moved placement, and the last decision, also from before the store
/// was opened.
fn decision_metrics(placement: &PlacementProperties, out: &mut dyn FnMut(Metric<'_>)) {
    for (rule, count) in placement.decisions_made {
        let direction = if rule.adds_levels() { "more_levels" } else { "fewer_levels" };
        out(Metric {
            name: "situ_store_placement_decisions_total",
            help: "Decisions of placement since the store was opened.",
            kind: MetricKind::Counter,
            labels: &[("direction", direction), ("rule", rule.name())],
            value: count as f64,
        });
    }
    if let Some(last) = placement.decisions.last() {
        let levels = [last.before, last.after].map(|level| level.to_string());
        out(Metric {
            name: "situ_store_placement_decision_info",
            help: "The last decision of placement: levels below `before` went to the fast disk, those below `after` do.",
            kind: MetricKind::Gauge,
            labels: &[("before", &levels[0]), ("after", &levels[1]), ("reason", &last.reason)],
            value: 1.0,
        });
    }
}

fn latency_metrics(latencies: &[(&str, LatencySummary)], out: &mut dyn FnMut(Metric<'_>)) {
    const NAME: &str = "situ_store_latency_seconds";
    let help = "Latency in seconds since the store was opened; writes and reads are sampled.";
    for (operation, latency) in latencies.iter().filter(|(_, latency)| latency.count > 0) {
        let quantiles = [
            ("0.5", latency.p50_ns),
            ("0.9", latency.p90_ns),
            ("0.99", latency.p99_ns),
            ("0.999", latency.p999_ns),
            ("1", latency.max_ns),
        ];
        for (quantile, ns) in quantiles {
            let labels: &[(&str, &str)] = &[("operation", operation), ("quantile", quantile)];
            out(Metric { name: NAME, help, kind: MetricKind::Gauge, labels, value: ns as f64 / 1e9 });
        }
    }
}

impl StoreEngine {
    fn level_metrics(&self, has_fast_disk: bool, out: &mut dyn FnMut(Metric<'_>)) {
        // A keyspace that is dropped between the two calls is simply not shown.
        let names = self.store.keyspace_names();
        let keyspaces: Vec<_> =
            names.iter().filter_map(|name| Some(self.store.existing_keyspace(name).ok()?.properties())).collect();
        let mut each_level = |name: &str, help: &str, value: fn(&situ::LevelProperties) -> f64| {
            for keyspace in &keyspaces {
                for (level, properties) in keyspace.levels.iter().enumerate() {
                    let labels: &[(&str, &str)] = &[("keyspace", &keyspace.name), ("level", &level.to_string())];
                    out(Metric { name, help, kind: MetricKind::Gauge, labels, value: value(properties) });
                }
            }
        };
        each_level("situ_keyspace_level_tables", "Tables in a level.", |level| level.tables as f64);
        each_level("situ_keyspace_level_bytes", "Bytes of tables in a level.", |level| level.bytes as f64);
        if has_fast_disk {
            let help = "Bytes of tables in a level that lie on the fast disk.";
            each_level("situ_keyspace_level_fast_disk_bytes", help, |level| level.away_bytes as f64);
        }
        let mut each_keyspace = |name: &str, help: &str, value: fn(&situ::KeyspaceProperties) -> f64| {
            for keyspace in &keyspaces {
                let labels: &[(&str, &str)] = &[("keyspace", &keyspace.name)];
                out(Metric { name, help, kind: MetricKind::Gauge, labels, value: value(keyspace) });
            }
        };
        each_keyspace("situ_keyspace_keys", "Keys, approximately.", |keyspace| keyspace.approximate_keys as f64);
        each_keyspace("situ_keyspace_memtable_bytes", "Bytes of memory of memtables.", |keyspace| {
            keyspace.memtable_bytes as f64
        });
        each_keyspace("situ_keyspace_memtables", "Memtables, the active one included.", |keyspace| {
            keyspace.memtables as f64
        });
        each_keyspace("situ_keyspace_memtables_max", "Maximum number of memtables at present.", |keyspace| {
            keyspace.memtables_max as f64
        });
        each_keyspace("situ_keyspace_compactions_running", "Running compactions.", |keyspace| {
            keyspace.compactions_running as f64
        });
    }
}

#[cfg(test)]
mod tests;
