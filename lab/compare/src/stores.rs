//! The stores that can be compared. One more is one more file with a factory, and a line in each place here.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use situ_bench::{BenchOptions, HashFactory, MemoryFactory, StoreFactory};

use crate::fjall_store::FjallFactory;
use crate::rocksdb_store::RocksdbFactory;
use crate::settings::StoreSettings;
use crate::situ_store;

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    /// Situ.
    Situ,
    /// RocksDB, through its C interface.
    Rocksdb,
    /// Fjall.
    Fjall,
    /// An ordered map in memory: the harness's own cost.
    Memory,
    /// Situ without the parallel log: one write in flight, one logger.
    #[serde(rename = "situ-serial-log")]
    SituSerialLog,
    /// Situ without the raw device: the fast disk is a directory, on the file system that RocksDB has there.
    #[serde(rename = "situ-file-system")]
    SituFileSystem,
    /// Situ without asynchronous requests: threads that wait for each of theirs.
    #[serde(rename = "situ-blocking")]
    SituBlocking,
    /// Situ without placement that follows the load.
    #[serde(rename = "situ-pinned")]
    SituPinned,
    /// Situ's hash store.
    #[serde(rename = "situ-hash")]
    SituHash,
}

impl fmt::Display for StoreKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Situ => "situ",
            Self::Rocksdb => "rocksdb",
            Self::Fjall => "fjall",
            Self::Memory => "memory",
            Self::SituSerialLog => "situ-serial-log",
            Self::SituFileSystem => "situ-file-system",
            Self::SituBlocking => "situ-blocking",
            Self::SituPinned => "situ-pinned",
            Self::SituHash => "situ-hash",
        })
    }
}

impl StoreKind {
    /// Returns the options of a run for this store.
    pub(crate) fn options(self, options: &BenchOptions, settings: &StoreSettings) -> BenchOptions {
        let mut options = options.clone();
        if self == Self::SituBlocking {
            (options.threads, options.outstanding) = (settings.blocking_threads, 1);
        }
        options
    }

    /// Returns the reason why it cannot be run with these settings, if there is one.
    pub(crate) fn refuses(self, settings: &StoreSettings) -> Option<&'static str> {
        match self {
            Self::Fjall if settings.fast_disk.is_some() => {
                Some("it cannot use a fast disk beside another: name the other stores with --stores")
            }
            Self::SituFileSystem | Self::SituPinned if settings.fast_disk.is_none() => {
                Some("it is about a fast disk: give --fast-disk and --fast-files")
            }
            _ => None,
        }
    }

    pub(crate) fn factory(self, settings: &StoreSettings) -> Box<dyn StoreFactory> {
        match self {
            Self::Situ | Self::SituBlocking => Box::new(situ_store::factory(settings, |_| ())),
            Self::SituSerialLog => Box::new(situ_store::factory(settings, |situ| situ.serial_log = true)),
            Self::SituFileSystem => {
                Box::new(situ_store::factory(settings, |situ| situ.fast_disk.clone_from(&settings.fast_files)))
            }
            Self::SituPinned => {
                Box::new(situ_store::factory(settings, |situ| situ.pinned_level = Some(settings.pinned_level)))
            }
            Self::SituHash => Box::new(HashFactory::new(settings.hash.clone())),
            Self::Rocksdb => Box::new(RocksdbFactory::new(settings.clone())),
            Self::Fjall => Box::new(FjallFactory::new(settings.clone())),
            Self::Memory => Box::new(MemoryFactory::default()),
        }
    }
}

#[cfg(test)]
mod tests;
