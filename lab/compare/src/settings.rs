//! Settings that mean the same to every store. The adapter of a store documents the settings that the store lacks.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use situ_bench::HashSettings;

/// Compression of data blocks, on all levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    /// Blocks as they are.
    #[default]
    None,
    /// LZ4.
    Lz4,
}

/// Equal settings for all stores. Direct I/O is off: not all of them have it. The exception is a raw fast disk of
/// Situ's, which has no page cache and brings a cache of its own, of 64 MiB.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub(crate) struct StoreSettings {
    /// Size at which a memtable is written to a table.
    #[arg(long, default_value_t = 64 << 20)]
    pub(crate) memtable_bytes: u64,

    /// Memtables in memory, the one that takes writes included. Fjall has no such bound.
    #[arg(long, default_value_t = 4)]
    pub(crate) memtables_max: u32,

    /// Block cache. Situ counts indexes and filters of open tables in; RocksDB and Fjall hold them beside it.
    #[arg(long, default_value_t = 64 << 20)]
    pub(crate) cache_bytes: u64,

    /// Data blocks before compression.
    #[arg(long, default_value_t = 4096)]
    pub(crate) block_bytes: u32,

    /// Bloom filter, on all levels.
    #[arg(long, default_value_t = 10)]
    pub(crate) bloom_bits_per_key: u32,

    /// Compression, on all levels.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) compression: Compression,

    /// Threads for compactions; one more flushes.
    #[arg(long, default_value_t = 2)]
    pub(crate) background_threads: u32,

    /// A fast disk for Situ, as `situ disk format` prepares it, or a directory on it: log and upper levels go there.
    #[arg(long, requires = "fast_files")]
    pub(crate) fast_disk: Option<PathBuf>,

    /// A directory on a file system of the *same* fast disk, for RocksDB: its log goes there (`wal_dir`), and its
    /// tables as far as they fit (`db_paths`).
    #[arg(long, requires = "fast_disk")]
    pub(crate) fast_files: Option<PathBuf>,

    /// How much of the fast disk RocksDB's tables may fill.
    #[arg(long, default_value_t = 1 << 30)]
    pub(crate) fast_table_bytes: u64,

    /// Situ-pinned: tables of levels below this one go to the fast disk, whatever the load is. 1 is level 0 alone.
    #[arg(long, default_value_t = 1)]
    pub(crate) pinned_level: usize,

    /// Situ-blocking: threads, in place of --threads and --outstanding.
    #[arg(long, default_value_t = 40)]
    pub(crate) blocking_threads: u32,

    /// Makes RocksDB count what it does: its own write amplification is then in the results. Off, because it counts
    /// inside every operation.
    #[arg(long)]
    pub(crate) rocksdb_statistics: bool,

    /// RocksDB reads and writes tables past the page cache.
    #[arg(long)]
    pub(crate) rocksdb_direct: bool,

    /// RocksDB keeps indexes and filters in the block cache, in partitions: its memory is bounded then.
    #[arg(long)]
    pub(crate) rocksdb_bounded: bool,

    /// RocksDB's BlobDB: values of this length and longer lie in blob files, which are collected as it does by default.
    #[arg(long)]
    pub(crate) rocksdb_blob_min_bytes: Option<u64>,

    /// Situ's value log: values of this length and longer lie there.
    #[arg(long)]
    pub(crate) value_log_min_bytes: Option<u64>,

    /// Situ's value log: what it may take, in percent of its live values, before segments are collected.
    #[arg(long, default_value_t = 125)]
    pub(crate) value_inflation_percent_max: u32,

    /// The hash store's own settings.
    #[command(flatten)]
    pub(crate) hash: HashSettings,
}

impl Default for StoreSettings {
    /// Returns the settings of an empty command line: the defaults are stated once, on the fields.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Empty {
            #[command(flatten)]
            settings: StoreSettings,
        }
        <Empty as clap::Parser>::parse_from(["compare"]).settings
    }
}
