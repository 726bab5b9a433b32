//! Opening stores as commands need them.
//!
//! Commands that only read open the store read-only, which takes no lock: they work beside a running server, on the state
//! of the moment they begin.

use crate::failure::{Exit, Failure};
use crate::text::now_unix_s;
use situ::{Durability, Error, Keyspace, Options, ReadOptions, Store};
use situ_server::{ExpiryRule, ItemView, stored_rule};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::options::{Range, Target};
use crate::text::Encoding;

/// Opens the store to read.
///
/// # Errors
/// As [`Failure::store`].
pub(crate) fn open_to_read(directory: &Path) -> Result<Store, Failure> {
    Store::open_read_only(directory, Options::default())
        .map_err(|error| Failure::store(format!("cannot open the store in {}", directory.display()), directory, &error))
}

/// A store open for writing; [`close`](Writable::close) says if anything went wrong at the end.
pub(crate) struct Writable {
    pub(crate) store: Store,
    directory: PathBuf,
}

impl Writable {
    /// Opens the store; makes it if `create`.
    ///
    /// # Errors
    /// As [`Failure::store`].
    pub(crate) fn open(directory: &Path, create: bool) -> Result<Writable, Failure> {
        let mut options = Options::default();
        options.create_if_missing = create;
        let store = Store::open(directory, options).map_err(|error| {
            Failure::store(format!("cannot open the store in {}", directory.display()), directory, &error)
        })?;
        Ok(Writable { store, directory: directory.to_owned() })
    }

    /// The keyspace; makes it if `create`.
    ///
    /// # Errors
    /// There is none of that name, or it cannot be made.
    pub(crate) fn keyspace(&self, name: &str, create: bool) -> Result<Keyspace, Failure> {
        match self.store.keyspace(name) {
            Err(Error::NoSuchKeyspace { .. }) if create => {
                let made = self.store.create_keyspace(name, Default::default());
                made.map_err(|error| self.failure(format!("cannot make the keyspace {name:?}"), &error))
            }
            _ => keyspace(&self.store, name),
        }
    }

    /// An operation on it failed.
    pub(crate) fn failure(&self, what: impl std::fmt::Display, error: &Error) -> Failure {
        Failure::store(what, &self.directory, error)
    }

    /// Refuses to write plain values where a server expects items.
    ///
    /// # Errors
    /// The keyspace holds memcached items.
    pub(crate) fn refuse_items(&self, keyspace: &Keyspace) -> Result<(), Failure> {
        let rule = stored_rule(&self.store, 0).map_err(|error| self.failure("cannot look at the store", &error))?;
        if rule.is_none() || keyspace.name() != self.store.default_keyspace().name() {
            return Ok(());
        }
        let why = "this keyspace holds memcached items, and a server would take plain values for damage";
        Err(Failure::new("cannot write", why)
            .cure("write through a server, choose another --keyspace, or say --stored if the values are items"))
    }

    /// Closes the store: everything is durable then.
    ///
    /// # Errors
    /// It could not be made durable.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let closed = self.store.close();
        closed.map_err(|error| self.failure("cannot close the store", &error))
    }
}

/// A keyspace that must exist.
///
/// # Errors
/// It does not; the text names those that do.
pub(crate) fn keyspace(store: &Store, name: &str) -> Result<Keyspace, Failure> {
    store.keyspace(name).map_err(|error| match error {
        Error::NoSuchKeyspace { .. } => Failure::new(format!("there is no keyspace {name:?}"), "it was never made")
            .cure(format!("the store has: {}", store.keyspace_names().join(", "))),
        error => Failure::new(format!("cannot use the keyspace {name:?}"), error),
    })
}

/// When a write returns.
pub(crate) fn durability(sync: bool) -> Durability {
    if sync { Durability::Synced } else { Durability::Buffered }
}

/// A keyspace to read, and how its values are to be shown.
pub(crate) struct Readable {
    pub(crate) keyspace: Keyspace,
    pub(crate) directory: PathBuf,
    rule: Option<ExpiryRule>,
    /// Closes when it is dropped.
    _store: Store,
}

impl Readable {
    /// Opens `target`. Unless `stored`, memcached items are shown as their clients see them.
    ///
    /// # Errors
    /// As [`open_to_read`] and [`keyspace`].
    pub(crate) fn open(target: &Target, stored: bool) -> Result<Readable, Failure> {
        let store = open_to_read(&target.data)?;
        let keyspace = keyspace(&store, &target.keyspace)?;
        let rule = match stored || keyspace.name() != store.default_keyspace().name() {
            true => None,
            false => stored_rule(&store, now_unix_s())
                .map_err(|error| Failure::store("cannot read the server's records", &target.data, &error))?,
        };
        Ok(Readable { keyspace, directory: target.data.clone(), rule, _store: store })
    }

    /// Whether values are memcached items.
    pub(crate) fn has_items(&self) -> bool {
        self.rule.is_some()
    }

    /// A value as it is to be shown; `None` for an item that is dead.
    pub(crate) fn shown<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        match &self.rule {
            Some(rule) if rule.is_dead(value) => None,
            Some(_) => Some(ItemView::of(value).map_or(value, |item| item.data)),
            None => Some(value),
        }
    }

    /// Calls `each` with every entry of `range` in order until it returns false or the range ends.
    ///
    /// # Errors
    /// The store cannot be read, or `each` fails.
    pub(crate) fn walk(
        &self,
        range: &Range,
        encoding: Encoding,
        reverse: bool,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let mut options = ReadOptions::default();
        if let Some(prefix) = &range.prefix {
            options = options.prefix(&given(prefix, encoding, "--prefix")?);
        }
        options.bypass_cache = true;
        if let Some(from) = &range.from {
            options.lower_bound = Some(given(from, encoding, "--from")?);
        }
        if let Some(to) = &range.to {
            options.upper_bound = Some(given(to, encoding, "--to")?);
        }
        let limit = range.limit.unwrap_or(u64::MAX);
        let failed = |error: Error| Failure::store("cannot read the store", &self.directory, &error);
        let mut iterator = self.keyspace.iter(options).map_err(failed)?;
        if reverse { iterator.seek_to_last() } else { iterator.seek_to_first() }.map_err(failed)?;
        let mut seen = 0;
        while seen < limit {
            let (Some(key), Some(value)) = (iterator.key(), iterator.value()) else { break };
            if let Some(value) = self.shown(value) {
                each(key, value)?;
                seen += 1;
            }
            if reverse { iterator.prev() } else { iterator.next() }.map_err(failed)?;
        }
        Ok(seen)
    }
}

/// A key or value from the command line.
///
/// # Errors
/// It is not encoded as the options say.
pub(crate) fn given(text: &OsStr, encoding: Encoding, what: &str) -> Result<Vec<u8>, Failure> {
    encoding.decode(text.as_bytes()).map_err(|why| {
        Failure::usage(format!("cannot read {what} {:?}: {why}", text.to_string_lossy())).ending(Exit::Usage)
    })
}
