//! The comparison of a keyspace with its column family.
//!
//! Both are read from beginning to end, side by side, and each is counted and hashed by itself: the lengths, the key
//! and the value of each entry, in order. In a keyspace that may hold other entries, too, those count as *others*, and
//! are neither counted nor hashed as entries of the import.

use super::plan::Task;
use super::source::Source;
use crate::failure::Failure;
use crate::store::Writable;
use crate::text::shorten;
use indicatif::ProgressBar;
use serde::{Serialize, Serializer};
use situ::{Cursor, ReadOptions};
use std::cmp::Ordering;
use xxhash_rust::xxh3::Xxh3Default;

/// Columns of a key in a report.
const SHOWN_COLUMNS: usize = 64;

/// Entries of one side.
#[derive(Default, Serialize)]
pub(super) struct Side {
    pub(super) entries: u64,
    /// Of keys and values.
    pub(super) bytes: u64,
    #[serde(rename = "xxh3", serialize_with = "digits")]
    hash: Xxh3Default,
}

impl Side {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let mut lengths = [0; 16];
        lengths[..8].copy_from_slice(&(key.len() as u64).to_le_bytes());
        lengths[8..].copy_from_slice(&(value.len() as u64).to_le_bytes());
        self.hash.update(&lengths);
        self.hash.update(key);
        self.hash.update(value);
    }

    /// Returns the hash, as people compare it.
    pub(super) fn checksum(&self) -> String {
        format!("{:016x}", self.hash.digest())
    }

    fn is_same(&self, other: &Side) -> bool {
        (self.entries, self.bytes, self.hash.digest()) == (other.entries, other.bytes, other.hash.digest())
    }
}

fn digits<S: Serializer>(hash: &Xxh3Default, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{:016x}", hash.digest()))
}

/// The result of a comparison.
#[derive(Serialize)]
pub(super) struct Comparison {
    pub(super) column_family: String,
    pub(super) keyspace: String,
    pub(super) database: Side,
    pub(super) store: Side,
    /// Entries of the keyspace that are not the database's.
    pub(super) others: u64,
    pub(super) same: bool,
    /// The first difference of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference: Option<String>,
}

/// Compares what a task has done with what it should have.
///
/// # Errors
/// One of the two cannot be read.
pub(super) fn compare(
    source: &Source,
    writable: &Writable,
    task: &Task,
    bar: &ProgressBar,
) -> Result<Comparison, Failure> {
    let failed = |error: situ::Error| writable.failure(format!("cannot read the keyspace {:?}", task.name), &error);
    let mut comparison = Comparison {
        column_family: task.family.clone(),
        keyspace: task.name.clone(),
        database: Side::default(),
        store: Side::default(),
        others: 0,
        same: false,
        difference: None,
    };
    let options = ReadOptions::default().bypass_cache(true);
    let mut iterator = task.keyspace.cursor_with(&options).map_err(failed)?;
    iterator.seek_to_first().map_err(failed)?;
    source.read(&task.family, None, |chunk| {
        for (key, value) in chunk.entries() {
            comparison.database.add(key, value);
            comparison.meet(&mut iterator, key, value, task.mark.merged).map_err(failed)?;
        }
        bar.inc(chunk.len());
        Ok(())
    })?;
    while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
        comparison.other(key, value, task.mark.merged);
        iterator.next().map_err(failed)?;
    }
    comparison.same = comparison.difference.is_none() && comparison.database.is_same(&comparison.store);
    Ok(comparison)
}

impl Comparison {
    /// Takes from the store what comes before the database's entry, and that entry.
    fn meet(&mut self, iterator: &mut Cursor, key: &[u8], value: &[u8], merged: bool) -> situ::Result<()> {
        while let (Some(found), Some(stored)) = (iterator.key(), iterator.value()) {
            match found.cmp(key) {
                Ordering::Less => self.other(found, stored, merged),
                Ordering::Equal => {
                    if stored != value {
                        self.differs(|| format!("the value of key {} is another one", shorten(key, SHOWN_COLUMNS)));
                    }
                    self.store.add(found, stored);
                    return iterator.next();
                }
                Ordering::Greater => break,
            }
            iterator.next()?;
        }
        self.differs(|| format!("key {} is not in the store", shorten(key, SHOWN_COLUMNS)));
        Ok(())
    }

    /// An entry that only the store has.
    fn other(&mut self, key: &[u8], value: &[u8], merged: bool) {
        if merged {
            self.others += 1;
        } else {
            self.differs(|| format!("key {} is only in the store", shorten(key, SHOWN_COLUMNS)));
            self.store.add(key, value);
        }
    }

    fn differs(&mut self, how: impl FnOnce() -> String) {
        self.difference.get_or_insert_with(how);
    }
}
