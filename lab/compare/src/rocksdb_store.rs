//! RocksDB as a store under test.
//!
//! Set: what [`StoreSettings`] names, and what Situ does by default and RocksDB only when asked:
//! * as many threads: of `max_background_jobs`, RocksDB takes a quarter, at least one, for flushes, so one more than
//!   Situ's compaction threads; `max_subcompactions` as many as those threads;
//! * log files that are used again (`recycle_log_file_num`), which spares a synced write the change of the file's size;
//! * the cache that its `db_bench` uses, HyperClockCache, which takes no lock.
//!
//! With a fast disk, its log goes there (`wal_dir`), and tables go there by level as far as they fit (`db_paths`).
//! RocksDB then turns dynamic level sizes off by itself, whatever the option says.
//!
//! Everything else is RocksDB's default of this version: leveled compaction with dynamic level sizes, index
//! and filters outside the block cache (which favours its reads over its memory), WAL on. Gets use pinned slices, which
//! spare one of the two copies of the C interface. It is built for the processor at hand (`.cargo/config.toml`):
//! without that, its checksums are computed in software.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, DBPath, DBRawIterator, FlushOptions, Options,
    WaitForCompactOptions, WriteBatch, WriteOptions, properties,
};
use situ_bench::{
    Change, EachEntry, Setting, Settings, Store, StoreFactory, StoreFailure, StoreStats, directory_bytes,
};

use crate::settings::{Compression, StoreSettings};

/// Version of the crate; it brings its own RocksDB.
const VERSION: &str = "rocksdb 11.8.1 (crate 0.25.0)";

/// The parts of a store on a fast disk.
const LOG: &str = "rocksdb-log";
const TABLES: &str = "rocksdb-tables";

/// As many log files as memtables, about, are waiting to be used again.
const LOG_FILES_RECYCLED: usize = 4;
/// Buffer of each file that a flush or a compaction reads or writes, where RocksDB's memory is bounded.
const BOUNDED_BUFFER_BYTES: usize = 256 << 10;

pub(crate) struct RocksdbFactory {
    settings: StoreSettings,
}

impl RocksdbFactory {
    pub(crate) fn new(settings: StoreSettings) -> Self {
        Self { settings }
    }

    /// Returns the places of tables, in order, with the bytes of each that they may fill.
    fn places(&self, directory: &Path) -> Result<Vec<DBPath>, StoreFailure> {
        let Some(fast) = &self.settings.fast_files else { return Ok(Vec::new()) };
        Ok(vec![DBPath::new(fast.join(TABLES), self.settings.fast_table_bytes)?, DBPath::new(directory, u64::MAX)?])
    }

    /// Returns the parts of a store that lie on the fast disk.
    fn fast_parts(&self) -> Vec<PathBuf> {
        self.settings.fast_files.iter().flat_map(|fast| [fast.join(LOG), fast.join(TABLES)]).collect()
    }

    fn options(&self) -> Options {
        let settings = &self.settings;
        let mut table = BlockBasedOptions::default();
        table.set_block_size(settings.block_bytes as usize);
        // An estimated charge of 0: its own choice.
        table.set_block_cache(&Cache::new_hyper_clock_cache(settings.cache_bytes as usize, 0));
        table.set_bloom_filter(f64::from(settings.bloom_bits_per_key), false);
        if settings.rocksdb_bounded {
            table.set_cache_index_and_filter_blocks(true);
            table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
            table.set_partition_filters(true);
            table.set_pin_top_level_index_and_filter(true);
            table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        }
        let mut options = Options::default();
        if settings.rocksdb_bounded {
            options.set_compaction_readahead_size(BOUNDED_BUFFER_BYTES);
            options.set_writable_file_max_buffer_size(BOUNDED_BUFFER_BYTES as u64);
        }
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(settings.memtable_bytes as usize);
        options.set_max_write_buffer_number(i32::try_from(settings.memtables_max).unwrap_or(i32::MAX));
        options.set_max_background_jobs(i32::try_from(settings.background_threads + 1).unwrap_or(i32::MAX));
        options.set_max_subcompactions(settings.background_threads);
        options.set_recycle_log_file_num(LOG_FILES_RECYCLED);
        options.set_compression_type(match settings.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
        });
        options.set_use_direct_reads(settings.rocksdb_direct);
        options.set_use_direct_io_for_flush_and_compaction(settings.rocksdb_direct);
        if let Some(bytes) = settings.rocksdb_blob_min_bytes {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(bytes);
            options.set_enable_blob_gc(true);
        }
        if settings.rocksdb_statistics {
            options.enable_statistics();
            options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        }
        options
    }
}

impl StoreFactory for RocksdbFactory {
    fn name(&self) -> String {
        "rocksdb".to_owned()
    }

    fn settings(&self) -> Settings {
        let settings = &self.settings;
        let compression = match settings.compression {
            Compression::None => "kNoCompression",
            Compression::Lz4 => "kLZ4Compression",
        };
        let fast_files = settings.fast_files.as_ref().map_or("none".to_owned(), |fast| fast.display().to_string());
        let rows: [(&str, Setting); 19] = [
            ("write_buffer_size", settings.memtable_bytes.into()),
            ("max_write_buffer_number", settings.memtables_max.into()),
            ("block_cache", format!("HyperClockCache of {}", settings.cache_bytes).into()),
            ("block_size", settings.block_bytes.into()),
            ("filter_policy", format!("bloomfilter:{}:false", settings.bloom_bits_per_key).into()),
            ("compression", format!("{compression}, all levels").into()),
            ("max_background_jobs", (settings.background_threads + 1).into()),
            ("max_subcompactions", settings.background_threads.into()),
            ("recycle_log_file_num", LOG_FILES_RECYCLED.into()),
            ("use_direct_reads", settings.rocksdb_direct.into()),
            ("use_direct_io_for_flush_and_compaction", settings.rocksdb_direct.into()),
            (
                "indexes and filters",
                if settings.rocksdb_bounded { "in the block cache, partitioned" } else { "beside it" }.into(),
            ),
            (
                "compaction_readahead_size and writable_file_max_buffer_size",
                settings.rocksdb_bounded.then_some(BOUNDED_BUFFER_BYTES as u64).into(),
            ),
            ("min_blob_size", settings.rocksdb_blob_min_bytes.into()),
            ("statistics", if settings.rocksdb_statistics { "counters" } else { "off" }.into()),
            ("wal_dir and first of db_paths", fast_files.into()),
            ("db_paths: target size of the first", settings.fast_table_bytes.into()),
            (
                "level_compaction_dynamic_level_bytes",
                match settings.fast_files {
                    Some(_) => "turned off by RocksDB, as there are two db_paths".into(),
                    None => true.into(),
                },
            ),
            ("everything else", "default".into()),
        ];
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn open(&self, directory: &Path) -> Result<Arc<dyn Store>, StoreFailure> {
        let mut options = self.options();
        if let Some(fast) = &self.settings.fast_files {
            options.set_wal_dir(fast.join(LOG));
            options.set_db_paths(&self.places(directory)?);
        }
        let db = DB::open(&options, directory)?;
        check_build(&fs::read_to_string(directory.join("LOG"))?)?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let statistics = self.settings.rocksdb_statistics;
        let fast_parts = self.fast_parts();
        let directory = directory.to_owned();
        Ok(Arc::new(RocksdbStore {
            db,
            options,
            directory,
            fast_parts,
            statistics,
            synced,
            buffered: WriteOptions::default(),
        }))
    }

    fn remove(&self, directory: &Path) -> Result<(), StoreFailure> {
        for part in self.fast_parts().iter().filter(|part| part.exists()) {
            fs::remove_dir_all(part)?;
        }
        Ok(fs::remove_dir_all(directory)?)
    }
}

/// A RocksDB that was built without the processor's checksum instructions is not what is to be measured.
fn check_build(log: &str) -> Result<(), StoreFailure> {
    match log.lines().find(|line| line.contains("Fast CRC32 supported:")) {
        Some(line) if !line.contains("Not supported") => Ok(()),
        Some(_) => Err("this RocksDB computes CRC32C in software; build it as .cargo/config.toml says".into()),
        None => Err("this RocksDB's LOG does not say whether it has fast checksums".into()),
    }
}

struct RocksdbStore {
    db: DB,
    options: Options,
    directory: PathBuf,
    fast_parts: Vec<PathBuf>,
    statistics: bool,
    synced: WriteOptions,
    buffered: WriteOptions,
}

impl RocksdbStore {
    fn write_options(&self, sync: bool) -> &WriteOptions {
        if sync { &self.synced } else { &self.buffered }
    }

    fn property(&self, name: &properties::PropName) -> Result<u64, StoreFailure> {
        Ok(self.db.property_int_value(name)?.unwrap_or(0))
    }
}

/// Walks with `step` from where the iterator stands. The iterator's own status tells an error from the end.
fn walk<'a>(
    mut iterator: DBRawIterator<'a>,
    limit: u64,
    each: &mut EachEntry<'_>,
    step: fn(&mut DBRawIterator<'a>),
) -> Result<u64, StoreFailure> {
    let mut count = 0;
    while count < limit {
        let Some((key, value)) = iterator.item() else { break };
        count += 1;
        if each(key, value).is_break() {
            break;
        }
        // The last entry is not stepped over: a step may read a block that the caller did not ask for.
        if count < limit {
            step(&mut iterator);
        }
    }
    iterator.status()?;
    Ok(count)
}

impl Store for RocksdbStore {
    fn name(&self) -> String {
        VERSION.to_owned()
    }

    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<(), StoreFailure> {
        Ok(self.db.put_opt(key, value, self.write_options(sync))?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreFailure> {
        value.clear();
        let Some(found) = self.db.get_pinned(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<(), StoreFailure> {
        Ok(self.db.delete_opt(key, self.write_options(sync))?)
    }

    fn batch(&self, changes: &[Change<'_>], sync: bool) -> Result<(), StoreFailure> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match *change {
                Change::Put(key, value) => batch.put(key, value),
                Change::Delete(key) => batch.delete(key),
            }
        }
        Ok(self.db.write_opt(batch, self.write_options(sync))?)
    }

    fn scan(&self, start: &[u8], limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek(start);
        walk(iterator, limit, each, DBRawIterator::next)
    }

    fn scan_reverse(&self, start: Option<&[u8]>, limit: u64, each: &mut EachEntry<'_>) -> Result<u64, StoreFailure> {
        let mut iterator = self.db.raw_iterator();
        match start {
            Some(start) => iterator.seek_for_prev(start),
            None => iterator.seek_to_last(),
        }
        walk(iterator, limit, each, DBRawIterator::prev)
    }

    fn flush(&self) -> Result<(), StoreFailure> {
        let mut options = FlushOptions::default();
        options.set_wait(true);
        Ok(self.db.flush_opt(&options)?)
    }

    fn compact_all(&self) -> Result<(), StoreFailure> {
        self.flush()?;
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        self.wait_idle()
    }

    fn wait_idle(&self) -> Result<(), StoreFailure> {
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn stats(&self) -> Result<StoreStats, StoreFailure> {
        let memtables = self.property(properties::CUR_SIZE_ALL_MEM_TABLES)?;
        let readers = self.property(properties::ESTIMATE_TABLE_READERS_MEM)?;
        let cache = self.property(properties::BLOCK_CACHE_USAGE)?;
        let mut stats = StoreStats {
            memory_bytes: Some(memtables + readers + cache),
            disk_bytes: Some(
                self.fast_parts.iter().chain([&self.directory]).map(|part| directory_bytes(part)).sum::<u64>(),
            ),
            detail: BTreeMap::from([
                ("memtable_bytes".to_owned(), memtables as f64),
                ("table_reader_bytes".to_owned(), readers as f64),
                ("block_cache_bytes".to_owned(), cache as f64),
                ("table_bytes".to_owned(), self.property(properties::TOTAL_SST_FILES_SIZE)? as f64),
            ]),
            ..StoreStats::default()
        };
        if self.statistics {
            let ticker = |ticker| self.options.get_ticker_count(ticker);
            let written = [Ticker::WalFileBytes, Ticker::FlushWriteBytes, Ticker::CompactWriteBytes];
            stats.disk_bytes_written = Some(written.map(ticker).iter().sum());
            stats.user_bytes_written = Some(ticker(Ticker::BytesWritten));
            for (name, counter) in [
                ("wal_bytes", Ticker::WalFileBytes),
                ("flush_bytes", Ticker::FlushWriteBytes),
                ("compaction_bytes_read", Ticker::CompactReadBytes),
                ("compaction_bytes_written", Ticker::CompactWriteBytes),
                ("stall_us", Ticker::StallMicros),
            ] {
                stats.detail.insert(name.to_owned(), ticker(counter) as f64);
            }
        }
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_fast_checksums_is_refused() {
        let line = |answer: &str| format!("Options:\n2026/11/21-11:00:00 1 Fast CRC32 supported: {answer}\nDMutex\n");
        assert!(check_build(&line("Supported on x86")).is_ok());
        assert!(check_build(&line("Not supported on x86")).unwrap_err().to_string().contains("software"));
        assert!(check_build("").is_err());
    }
}
