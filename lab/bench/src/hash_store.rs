//! The hash store as a store under test.
//!
//! It has no order of keys, so workloads that scan fail with its reason. *Flush*, *compact* and *wait* are a
//! checkpoint: all writes are in their buckets, and the log is given up.
//!
//! Without a device, the buckets lie in a sparse file in the store's directory. A device belongs to one store at a
//! time; removing the store clears the device's mark, so the next run can take the device.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::{Deserialize, Serialize};
use situ::hash::{Durability, HashBatch, HashOptions, HashStore, HashStoreBuilder};
use situ_device::{Buffer, Op};
use situ_hash::bucket::BUCKET_BYTES;
use situ_hash::superblock::Totals;

use crate::store::{Change, EachEntry, Setting, Settings, Store, StoreFactory, StoreFailure, StoreStats};
use situ_settings::parse_bytes;

/// The heading under which `--help` shows the settings.
const SETTINGS: &str = "Settings of the hash store";

/// The settings of a hash store under test.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
#[serde(default)]
pub struct HashSettings {
    /// Device for the buckets. Without one, they lie in a sparse file in the store's directory
    #[arg(long, value_name = "PATH", help_heading = SETTINGS)]
    pub buckets: Option<PathBuf>,

    /// Partitions, each with a thread that applies writes to buckets
    #[arg(long, value_name = "NUMBER", default_value_t = HashOptions::default().partitions, help_heading = SETTINGS)]
    pub partitions: usize,

    /// Memory of writes that are logged and not yet in their buckets
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_bytes, help_heading = SETTINGS)]
    pub pending_bytes: u64,

    /// Memory of one memtable of the overflow store; its cache has as much
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = parse_bytes, help_heading = SETTINGS)]
    pub overflow_memory_bytes: u64,

    /// Average load of buckets at which the store grows, in percent of their bytes
    #[arg(long, value_name = "PERCENT", default_value_t = HashOptions::default().load_percent, help_heading = SETTINGS)]
    pub load_percent: u32,

    /// log2 of the buckets that the store begins with
    #[arg(long, value_name = "BITS", default_value_t = HashOptions::default().base_bits, help_heading = SETTINGS)]
    pub base_bits: u8,
}

impl Default for HashSettings {
    /// Returns the options of an empty command line.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Empty {
            #[command(flatten)]
            settings: HashSettings,
        }
        <Empty as clap::Parser>::parse_from(["bench"]).settings
    }
}

impl HashSettings {
    fn options(&self) -> HashOptions {
        HashOptions {
            partitions: self.partitions,
            pending_bytes_max: self.pending_bytes,
            overflow_memory_bytes: self.overflow_memory_bytes,
            load_percent: self.load_percent,
            base_bits: self.base_bits,
            ..HashOptions::default()
        }
    }
}

/// Opens [`HashStore`]s with one set of settings.
#[derive(Debug, Clone)]
pub struct HashFactory {
    settings: HashSettings,
}

impl HashFactory {
    /// Creates a factory that opens every store with `settings`.
    #[must_use]
    pub fn new(settings: HashSettings) -> Self {
        Self { settings }
    }
}

impl StoreFactory for HashFactory {
    fn name(&self) -> String {
        "situ-hash".to_owned()
    }

    fn settings(&self) -> Settings {
        let options = self.settings.options();
        let rows: [(&str, Setting); 9] = [
            ("buckets", self.settings.buckets.as_ref().map(|path| path.display().to_string()).into()),
            ("partitions", (options.partitions as u64).into()),
            ("pending_bytes_max", options.pending_bytes_max.into()),
            ("load_percent", options.load_percent.into()),
            ("base_bits", u32::from(options.base_bits).into()),
            ("inline_value_bytes_max", (options.inline_value_bytes_max as u64).into()),
            ("log_bytes_max", options.log_bytes_max.into()),
            ("overflow_memory_bytes", options.overflow_memory_bytes.into()),
            ("image_bytes_max", options.image_bytes_max.into()),
        ];
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn Store>, StoreFailure> {
        let mut builder = HashStoreBuilder::new(self.settings.options());
        if let Some(device) = &self.settings.buckets {
            builder = builder.device(device);
        }
        Ok(Arc::new(HashUnderTest { store: builder.open(directory)? }))
    }

    fn remove(&self, directory: &Path) -> Result<(), StoreFailure> {
        if let Some(path) = &self.settings.buckets {
            clear(path)?;
        }
        Ok(fs::remove_dir_all(directory)?)
    }
}

/// Gives all of a device back, so that it says of no store that it is its own.
fn clear(path: &Path) -> io::Result<()> {
    let device = situ_device::open(path, situ_device::OpenOptions::default())?;
    let (bytes, geometry) = (device.space().logical_total, device.geometry());
    let mut queue = device.queue(1)?;
    let mut run = |op, buffer| -> io::Result<()> {
        queue.submit(op, buffer).map_err(|(_, error)| error)?;
        let mut done = Vec::new();
        while queue.wait(&mut done, std::time::Duration::from_secs(1)) == 0 {}
        done.remove(0).result
    };
    let unit = u64::from(geometry.discard_bytes);
    if let Some(units) = bytes.checked_div(unit) {
        run(Op::Discard { offset: 0, bytes: units * unit }, Buffer::new(1))?;
    }
    let block = u64::from(geometry.block_bytes).max(1);
    run(Op::Zero { offset: 0, bytes: (64 << 10) / block * block }, Buffer::new(1))
}

/// An open hash store.
struct HashUnderTest {
    store: HashStore,
}

fn durability(sync: bool) -> Durability {
    if sync { Durability::Synced } else { Durability::Buffered }
}

fn no_order() -> StoreFailure {
    "a hash store has no order of keys: choose workloads that do not scan".into()
}

impl Store for HashUnderTest {
    fn name(&self) -> String {
        concat!("situ-hash ", env!("CARGO_PKG_VERSION")).to_owned()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), StoreFailure> {
        Ok(self.store.put_with(key, value, durability(sync), None)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreFailure> {
        value.clear();
        let Some(found) = self.store.get(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<(), StoreFailure> {
        let mut batch = HashBatch::new();
        batch.delete(key)?;
        Ok(self.store.write_with(batch, durability(sync))?)
    }

    fn batch(&self, changes: &[Change<'_>], sync: bool) -> Result<(), StoreFailure> {
        let mut batch = HashBatch::new();
        for change in changes {
            match *change {
                Change::Put(key, value) => batch.put(key, value)?,
                Change::Delete(key) => batch.delete(key)?,
            }
        }
        Ok(self.store.write_with(batch, durability(sync))?)
    }

    fn scan(&self, _: &[u8], _: u64, _: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        Err(no_order())
    }

    fn scan_reverse(&self, _: Option<&[u8]>, _: u64, _: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        Err(no_order())
    }

    fn flush(&self) -> Result<(), StoreFailure> {
        Ok(self.store.checkpoint()?)
    }

    fn compact_all(&self) -> Result<(), StoreFailure> {
        self.flush()
    }

    fn wait_idle(&self) -> Result<(), StoreFailure> {
        self.flush()
    }

    fn stats(&self) -> Result<StoreStats, StoreFailure> {
        let properties = self.store.properties();
        let Totals { entries, bytes, overflow_entries, .. } = properties.totals;
        let logical = properties.state.buckets() * BUCKET_BYTES as u64;
        let mut detail = BTreeMap::from(
            [
                ("bucket_space_bytes", logical),
                ("buckets", properties.state.buckets()),
                ("bucket_entries", entries),
                ("bucket_entry_bytes", bytes),
                ("overflow_entries", overflow_entries),
                ("overflow_disk_bytes", properties.overflow_disk_bytes),
                ("log_bytes", properties.log_bytes),
                ("bucket_reads", properties.bucket_reads),
                ("bucket_writes", properties.bucket_writes),
                ("overflow_reads", properties.overflow_reads),
                ("splits", properties.splits),
                ("merges", properties.merges),
                ("checkpoints", properties.checkpoints),
                ("superblock_writes", properties.superblock_writes),
                ("writes_images", u64::from(properties.writes_images)),
            ]
            .map(|(name, value)| (name.to_owned(), value as f64)),
        );
        detail.insert("load".to_owned(), properties.load);
        detail.insert("overflow_share".to_owned(), properties.overflow_share);
        let buckets = properties.space.physical_used.unwrap_or(logical);
        Ok(StoreStats {
            disk_bytes: Some(buckets + properties.overflow_disk_bytes + properties.log_bytes),
            memory_bytes: Some(properties.pending_bytes),
            detail,
            ..StoreStats::default()
        })
    }

    fn interrupt(&self) {
        // The durability of the last writes is of no interest: the store is removed.
        let _ = self.store.close();
    }
}
