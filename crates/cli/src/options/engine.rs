//! Options about engines: which one a store has, and where a hash store has its buckets.

use super::Directory;
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// The kind of store in a directory, by the names of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// No store.
    None,
    /// An ordered store, perhaps damaged.
    Ordered,
    /// A hash store.
    Hash,
}

/// The engine of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// Ordered tables: keys in order, and keyspaces
    Lsm,
    /// Hash buckets on a drive that compresses: one map without an order, and no index in memory
    Hash,
    /// A cache in memory and, with --flash, on a drive: as memcached, it evicts items when there is no room. Only for
    /// `serve`
    Cache,
}

impl EngineName {
    fn kind(self) -> Result<StoreKind, Failure> {
        match self {
            EngineName::Lsm => Ok(StoreKind::Ordered),
            EngineName::Hash => Ok(StoreKind::Hash),
            EngineName::Cache => Err(only_served()),
        }
    }
}

/// The cache is no store: no other command than `serve` can use it.
pub(crate) fn only_served() -> Failure {
    Failure::usage(
        "a cache keeps nothing in a directory: only `situ serve` takes --engine cache; say --engine lsm or --engine hash",
    )
}

/// Which engine a new store gets.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct EngineChoice {
    /// Engine of a new store. A store that exists keeps its engine [default: lsm]
    #[arg(long, value_enum, value_name = "NAME", help_heading = HEADING)]
    pub(crate) engine: Option<EngineName>,
    /// Device for the buckets of a hash store: a block device, or a file. The store remembers it
    /// [default: a sparse file in the directory]
    #[arg(long, value_name = "DEVICE", help_heading = HEADING)]
    pub(crate) buckets: Option<PathBuf>,
}

const HEADING: &str = "Engine";

impl EngineChoice {
    /// Returns true if the store in `directory`, which is of the kind `found`, is a hash store or becomes one.
    ///
    /// # Errors
    /// The store has another engine than was asked for.
    pub(crate) fn is_hash(&self, directory: &Path, found: StoreKind) -> Result<bool, Failure> {
        let wanted = self.engine.map(EngineName::kind).transpose()?;
        let kind = match (wanted, found) {
            (None, StoreKind::None) => StoreKind::Ordered,
            (None, found) => found,
            (Some(wanted), StoreKind::None) => wanted,
            (Some(wanted), found) if wanted == found => found,
            (Some(_), found) => return Err(other_engine(directory, found)),
        };
        if kind == StoreKind::Ordered && self.buckets.is_some() {
            let why = "--buckets is for hash stores; say --engine hash to make one, or leave out --buckets";
            return Err(Failure::usage(why));
        }
        Ok(kind == StoreKind::Hash)
    }
}

fn other_engine(directory: &Path, found: StoreKind) -> Failure {
    let (is, engine) = match found {
        StoreKind::Hash => ("a hash store", "hash"),
        _ => ("an ordered store", "lsm"),
    };
    Failure::new(
        format!("cannot open the store in {}", directory.display()),
        format!("it is {is}; nothing was changed"),
    )
    .cure(format!("leave out --engine or say --engine {engine}, or name another directory"))
}

/// Refuses the options of which the first is true: a hash store does not have them.
pub(crate) fn refuse_for_hash(given: &[(bool, &str)]) -> Result<(), Failure> {
    refuse_for("hash stores", given)
}

pub(super) fn refuse_for(whom: &str, given: &[(bool, &str)]) -> Result<(), Failure> {
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, name)) => {
            Err(Failure::usage(format!("{name} is not for {whom}; leave it out, or use an ordered store")))
        }
        None => Ok(()),
    }
}

impl Directory {
    /// Returns true if a directory was named, or a node's secret and the like.
    pub(crate) fn is_given(&self) -> bool {
        self.directory.is_some() || self.data.is_some() || self.check_for_hash().is_err()
    }

    /// Nodes, which keep no hash stores.
    ///
    /// # Errors
    /// One was given.
    pub(crate) fn check_for_hash(&self) -> Result<(), Failure> {
        self.node.check_for_hash()
    }
}
