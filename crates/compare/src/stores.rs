//! The stores that can be compared. One more is one more file with a factory, and a line in each place here.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use situ_bench::{MemoryFactory, StoreFactory};

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
}

impl fmt::Display for StoreKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Situ => "situ",
            Self::Rocksdb => "rocksdb",
            Self::Fjall => "fjall",
            Self::Memory => "memory",
        })
    }
}

impl StoreKind {
    pub(crate) fn factory(self, settings: &StoreSettings) -> Box<dyn StoreFactory> {
        match self {
            Self::Situ => Box::new(situ_store::factory(settings)),
            Self::Rocksdb => Box::new(RocksdbFactory::new(settings.clone())),
            Self::Fjall => Box::new(FjallFactory::new(settings.clone())),
            Self::Memory => Box::new(MemoryFactory::default()),
        }
    }
}

#[cfg(test)]
mod tests;
