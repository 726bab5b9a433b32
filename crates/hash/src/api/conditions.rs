//! Writes with conditions: compare-and-set of one key, and batches that are written only if keys have certain values.
//!
//! 1. Under the commit lock, note what is visible. From then on the pipeline keeps the writes that are published.
//! 2. Without a lock, read the keys. If a value is not the expected one, nothing is written.
//! 3. In the prologue, under the commit lock, look at the writes behind what was visible then. If one of them changes a
//!    key of the condition, begin again with step 1. Otherwise the values are still those that were read, and the batch
//!    takes its place in the order.
//!
//! **Invariants.** Between the values that were compared and the batch no other write changes the keys.
//! **Threads.** Any. Callers that collide try again; one of them gets through each time.
//! **Rejected:** a lock for each key. A writer without a condition would have to take it, too.

use crate::api::store::HashStore;
use crate::format::address::hash_of;
use crate::live::core::Core;
use crate::writing::batch::HashBatch;
use crate::writing::writes::{Commit, Obstacle, Write, Writes};
use crate::{Error, Result};
use situ_base::lock;
use situ_log::Durability;
use situ_pipeline::Environment;
use std::sync::Arc;

/// A key and the value that a condition expects of it. A key without a value has to be absent.
pub type Expected<'a> = (&'a [u8], Option<&'a [u8]>);

/// Nothing has changed these keys since.
struct Unchanged {
    keys: Vec<(u64, Box<[u8]>)>,
    since: u64,
}

impl Unchanged {
    fn is_touched_by(&self, write: &Write) -> bool {
        let touches = |index| {
            let hash = write.0.hash(index);
            self.keys.iter().any(|(other, key)| *other == hash && **key == *write.0.change(index).key())
        };
        (0..write.0.len()).any(touches)
    }
}

impl situ_pipeline::Condition<Writes> for Unchanged {
    fn bytes(&self) -> u64 {
        self.keys.iter().map(|(_, key)| key.len() as u64 + size_of::<(u64, Box<[u8]>)>() as u64).sum()
    }

    fn check_rest(self: Arc<Self>, commit: &mut Commit) -> Result<(), Obstacle> {
        let is_known = commit.checks.forgotten_to() <= self.since;
        if is_known && !commit.requests_behind(self.since).any(|request| self.is_touched_by(request.batch())) {
            return Ok(());
        }
        Err(Obstacle::refused(Error::Conflict))
    }

    fn begun(&self, _: &mut Commit) {}

    fn release(&self) {}
}

/// The pipeline keeps published writes until this is dropped.
struct Check<'a> {
    writes: &'a Writes,
    since: u64,
}

impl<'a> Check<'a> {
    fn begin(writes: &'a Writes) -> Check<'a> {
        let mut commit = lock(writes.commit());
        let since = writes.visible();
        commit.checks.begin(since);
        Check { writes, since }
    }
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        // Freed without the lock.
        let kept = lock(self.writes.commit()).checks.end();
        drop(kept);
    }
}

impl HashStore {
    /// Stores `value` under `key`, or removes the key if there is no value, if the key has the value `expected` now;
    /// none: if it does not exist. False if it has another value; then nothing is written.
    ///
    /// # Errors
    /// As [`put`](HashStore::put) and [`get`](HashStore::get).
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        value: Option<&[u8]>,
        durability: Durability,
    ) -> Result<bool> {
        let mut batch = HashBatch::new();
        match value {
            Some(value) => batch.put(&key, value)?,
            None => batch.delete(&key)?,
        }
        self.write_if(&[(key.as_ref(), expected)], batch, durability)
    }

    /// Writes a batch if all keys have the expected values. False if one has another; then nothing is written.
    ///
    /// # Errors
    /// As [`put`](HashStore::put) and [`get`](HashStore::get).
    pub fn write_if(&self, expected: &[Expected<'_>], batch: HashBatch, durability: Durability) -> Result<bool> {
        let core = &self.inner.core;
        core.check_open()?;
        let write = core.ready(batch)?;
        loop {
            match core.try_write_if(expected, &write, durability) {
                Err(Error::Conflict) => {}
                outcome => return outcome,
            }
        }
    }
}

/// A batch that is written if nothing has changed its keys since they were read.
pub(crate) struct Checked {
    pub(crate) write: Write,
    pub(crate) keys: Vec<(u64, Box<[u8]>)>,
}

impl Core {
    /// Writes what `read` makes of the keys that it reads. Returns how many changes that were.
    ///
    /// # Errors
    /// [`Error::Conflict`]: another write has changed a key meanwhile, and is visible by now. Nothing was written.
    pub(crate) fn checked(&self, read: impl FnOnce() -> Result<Checked>, durability: Durability) -> Result<u64> {
        let check = Check::begin(&self.writes);
        let Checked { write, keys } = read()?;
        let changes = write.0.len() as u64;
        if changes == 0 {
            return Ok(0);
        }
        let condition = Arc::new(Unchanged { keys, since: check.since });
        let outcome = self.pipeline.write(situ_pipeline::Write::new(write, Some(condition)), durability);
        if matches!(outcome, Err(Error::Conflict)) {
            // The other write is on its way: to read again before it is visible would find the same.
            self.pipeline.wait_published(|| self.writes.visible() > check.since)?;
        }
        outcome.map(|_| changes)
    }

    fn try_write_if(&self, expected: &[Expected<'_>], write: &Write, durability: Durability) -> Result<bool> {
        let mut is_expected = true;
        self.checked(
            || {
                for (key, value) in expected {
                    is_expected &= self.get(key)?.as_deref() == *value;
                    if !is_expected {
                        return Ok(Checked { write: Write::default(), keys: Vec::new() });
                    }
                }
                let keys = expected.iter().map(|(key, _)| (hash_of(key, self.seed), (*key).into())).collect();
                Ok(Checked { write: write.clone(), keys })
            },
            durability,
        )?;
        Ok(is_expected)
    }
}
