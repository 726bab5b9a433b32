//! Hash stores as commands need them.
//!
//! A hash store has no keyspaces. A store that a server has written to holds memcached items, under the name `items`;
//! any other one holds plain entries, under the name `default`. So commands take the same names as for ordered stores.
//!
//! A hash store is open in one process at a time, also to read: opening it finishes what a crash has left. Only
//! `inspect` looks at a store that is being served, by its superblock.

mod entries;
mod inspect;
mod repair;
mod verify;
mod walk;

pub(crate) use entries::{delete, get, put};
pub(crate) use inspect::inspect;
pub(crate) use repair::repair;
pub(crate) use verify::verify;
pub(crate) use walk::HashEntries;

use crate::failure::Failure;
use crate::options::Target;
use crate::store::shown_item;
use situ::hash::KEY_BYTES_MAX;
use situ::hash::VALUE_BYTES_MAX;
use situ::hash::{HashOptions, HashStore, HashStoreBuilder};
use situ_server::{ExpiryRule, HashItemWriter, ITEMS_KEYSPACE, holds_entries, is_reserved, stored_hash_rule};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The name under which plain entries go.
const DEFAULT_KEYSPACE: &str = "default";

/// A hash store that is open; [`close`](OpenHash::close) says if anything went wrong at the end.
pub(crate) struct OpenHash {
    pub(crate) store: HashStore,
    pub(crate) directory: PathBuf,
    /// The rule for dead items, if entries are memcached items.
    rule: Option<ExpiryRule>,
}

impl OpenHash {
    /// Opens the store; makes it if `create`. `buckets` is the device, if the command names one.
    ///
    /// # Errors
    /// As [`Failure::hash`].
    pub(crate) fn open(directory: &Path, buckets: Option<&Path>, create: bool) -> Result<OpenHash, Failure> {
        let failed = |error: situ::hash::Error| {
            Failure::hash(format!("cannot open the store in {}", directory.display()), directory, &error)
        };
        let store = builder(buckets, create).open(directory).map_err(failed)?;
        let rule = stored_hash_rule(&store, store.clock().seconds()).map_err(failed)?;
        Ok(OpenHash { store, directory: directory.to_owned(), rule })
    }

    /// An operation on it failed.
    pub(crate) fn failure(&self, what: impl std::fmt::Display, error: &situ::hash::Error) -> Failure {
        Failure::hash(what, &self.directory, error)
    }

    /// Returns true if entries are memcached items.
    pub(crate) fn has_items(&self) -> bool {
        self.rule.is_some()
    }

    /// Returns the name under which its entries go.
    pub(crate) fn contents(&self) -> &'static str {
        if self.has_items() { ITEMS_KEYSPACE } else { DEFAULT_KEYSPACE }
    }

    /// Returns true if the store holds nothing but the program's own entries, such as the position of a load.
    ///
    /// # Errors
    /// The store has failed.
    fn is_empty(&self) -> Result<bool, Failure> {
        Ok(!holds_entries(&self.store).map_err(|error| self.failure("cannot look for entries", &error))?)
    }

    /// The command is for what the store holds.
    ///
    /// # Errors
    /// It names something else.
    pub(crate) fn check_reads(&self, target: &Target, stored: bool) -> Result<(), Failure> {
        target.keyspace(stored)?;
        let asked = target.named_keyspace().or(stored.then_some(ITEMS_KEYSPACE));
        match asked {
            Some(name) if name != self.contents() => Err(Failure::new(
                format!("there is no keyspace {name:?}"),
                format!(
                    "a hash store has no keyspaces, and the entries of this one go by the name {:?}",
                    self.contents()
                ),
            )
            .cure("leave out --keyspace and --stored, or name another store")),
            _ => Ok(()),
        }
    }

    /// The command may write its entries here: items if `stored`, or else plain ones.
    ///
    /// # Errors
    /// The store holds the others.
    pub(crate) fn check_writes(&self, target: &Target, stored: bool) -> Result<(), Failure> {
        let name = target.keyspace_to_write(stored)?;
        if ![DEFAULT_KEYSPACE, ITEMS_KEYSPACE].contains(&name) {
            let why = "a hash store has no keyspaces";
            return Err(Failure::new(format!("there is no keyspace {name:?}"), why).cure("leave out --keyspace"));
        }
        let what = format!("cannot write to the store in {}", self.directory.display());
        match (self.has_items(), stored) {
            (true, false) => {
                Err(Failure::new(what, "it holds memcached items, and a server would take plain values for damage")
                    .cure("write through `situ serve`, choose another store, or say --stored if the values are items"))
            }
            (false, true) if !self.is_empty()? => {
                Err(Failure::new(what, "it holds plain entries, and no memcached items")
                    .cure("choose another store, or leave out --stored"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the writer of memcached items.
    ///
    /// # Errors
    /// A server's records cannot be read.
    pub(crate) fn item_writer(&self) -> Result<HashItemWriter, Failure> {
        HashItemWriter::open(&self.store)
            .map_err(|error| self.failure("cannot continue the cas ids of the memcached items", &error))
    }

    /// Returns a value as it is to be shown; `None` for an item that is dead.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn shown<'a>(&self, value: &'a [u8], stored: bool) -> Result<Option<Cow<'a, [u8]>>, Failure> {
        match &self.rule {
            Some(rule) => shown_item(value, rule, self.store.clock(), stored),
            None => Ok(Some(value.into())),
        }
    }

    /// Closes the store: everything is in its buckets and durable then.
    ///
    /// # Errors
    /// It could not be made durable.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let closed = self.store.close();
        closed.map_err(|error| self.failure("cannot close the store", &error))
    }
}

/// Returns the builder with which every command opens a hash store.
pub(crate) fn builder(buckets: Option<&Path>, create: bool) -> HashStoreBuilder {
    let options = HashOptions { create_if_missing: create, ..HashOptions::default() };
    let builder = HashStoreBuilder::new(options);
    match buckets {
        Some(path) => builder.device(path),
        None => builder,
    }
}

/// A key that an entry of a hash store can have.
///
/// # Errors
/// The text says why it cannot.
pub(crate) fn check_key(key: &[u8]) -> Result<(), String> {
    if is_reserved(key) {
        return Err("keys that begin with 251 zero bytes are for the program's own records in a hash store".to_owned());
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(format!("a key has at most {KEY_BYTES_MAX} bytes in a hash store, and this one has {}", key.len()));
    }
    Ok(())
}

/// A value that an entry of a hash store can have.
///
/// # Errors
/// The text says why it cannot.
pub(crate) fn check_value(value: &[u8]) -> Result<(), String> {
    match value.len() {
        0..=VALUE_BYTES_MAX => Ok(()),
        bytes => Err(format!("a value has at most {VALUE_BYTES_MAX} bytes in a hash store, and this one has {bytes}")),
    }
}
