//! Transactions: reads and writes that take effect together or not at all, isolated from those of others.
//!
//! A transaction keeps its writes to itself (`writes.rs`), reads them back merged with the store (`cursor.rs`), and
//! becomes one batch when it commits. After a crash the batch is whole or absent, as every batch. The isolation rests
//! on three things:
//!
//! 1. **Rows.** A transaction *tracks* each row that it writes or reads for update: the row, and a sequence number
//!    `since`. The row's present version is at or below `since`. This is the number of the transaction's snapshot, or
//!    the newest visible one when the row was tracked.
//! 2. **Locks.** A pessimistic transaction locks a row before it tracks it (`locks.rs`, `held.rs`; `deadlock.rs` finds
//!    circles, `alarm.rs` ends waits of futures). It gives back its locks when the commit is visible, so the next
//!    holder of a lock sees the commit.
//! 3. **The check.** The commit goes through only if no tracked row has changed above its `since` (`check.rs`). An
//!    optimistic transaction needs nothing else. For a pessimistic one the check catches writes without locks: those
//!    outside of transactions, and those of optimistic ones. Under a snapshot the check runs at once when a row is
//!    locked, and again at the end.
//!
//! So both kinds and plain writes may be used at the same time, and none breaks the isolation of another one.
//!
//! **Snapshot isolation** then follows: all reads are at one sequence number. If two transactions write one row, the
//! second's `since` is below the first's version, so that its check fails. The snapshot is taken at the first
//! operation, after the lock if the operation takes one. So a transaction that begins by locking its rows never fails
//! because it waited.
//!
//! **Memory**: the memory of each transaction is bounded by its options, that of locks by the store's.
//!
//! **Threads.** A transaction belongs to one thread at a time. Locks: see `locks.rs`, whose own come before no others.
//!
//! **Rejected.** *Plain writes that lock rows* (RocksDB's TransactionDB): every asynchronous write would need a queue
//! for locks before the one for admission, and a store without transactions would pay for it. *Range locks* for a
//! `delete_range` inside a transaction: the check above can find that others have changed a known row, not that others
//! have added one to a range. So there is no range deletion, rather than one that is only nearly right.

pub(crate) mod cursor;
pub(crate) mod future;
mod held;
pub(crate) mod iter;
mod options;
mod retry;
mod tracked;
mod writes;

pub use self::options::{Isolation, TransactionKind, TransactionOptions};
use crate::rows::Transactions;
use crate::rows::locks::LockMode;

use self::held::{HeldLocks, Wanted};
use self::tracked::Tracked;
use self::writes::OwnWrites;
use crate::api::keyspace::Keyspace;
use crate::api::snapshot::Snapshot;
use crate::base::batch::{WriteBatch, check_key, check_value};
use crate::base::options::Durability;
use crate::base::value::{Key, Value};
use crate::core::Core;
use crate::pipeline::Memory;
use crate::pipeline::check::{Commitment, changed};
use crate::pipeline::write::write_numbered;
use crate::read::future::ReadFuture;
use crate::read::options::ReadOptions;
use crate::rows::locks::Row;
use crate::{Error, Result};
use situ_base::Event;
use situ_pipeline::{Condition, Write};
use situ_table::SequenceNumber;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Counts a transaction while it lives.
struct Live(Arc<Transactions>);

impl Live {
    fn new(transactions: &Arc<Transactions>) -> Live {
        transactions.live_count.fetch_add(1, Ordering::Relaxed);
        Live(Arc::clone(transactions))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A point that a transaction may go back to.
struct Savepoint {
    writes: writes::Mark,
    rows: usize,
    locks: usize,
    /// See [`Transaction::is_in_the_way`].
    is_in_the_way: bool,
}

/// Reads and writes that take effect together at [`commit`](Transaction::commit), or not at all.
/// [`Store::begin`](crate::Store::begin) begins a transaction. A transaction that is dropped without a commit leaves no
/// trace.
///
/// Methods work on the keyspace `default`; those that end in `_in` work on the keyspace that they name.
///
/// A transaction sees its own writes; others see them only after the commit. Its [options](TransactionOptions) select
/// the writes of others that it sees, and the effect of a conflict. [`Store::transact`](crate::Store::transact) runs a
/// transaction again after a conflict. There is no range deletion inside a transaction: delete the keys that an
/// iterator gives, or use [`Keyspace::delete_range`] outside of transactions. A transaction that relies on a key in the
/// range finds that as a conflict.
///
/// ```
/// # use situ_engine as situ;
/// use situ::{LockMode, Store};
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = Store::open(directory.path())?;
/// let journal = store.keyspace("journal")?;
/// store.put("ada", "10")?;
///
/// let mut transaction = store.begin()?;
/// assert_eq!(transaction.get_for_update("ada", LockMode::Exclusive)?.unwrap(), "10");
/// transaction.put("ada", "7")?;
/// transaction.put_in(&journal, "1", "ada paid 3")?;
/// assert_eq!(store.get("ada")?.unwrap(), "10");
/// transaction.commit()?;
/// assert_eq!(store.get("ada")?.unwrap(), "7");
/// # store.close()
/// # }
/// ```
pub struct Transaction {
    core: Arc<Core>,
    default: Keyspace,
    number: u64,
    options: TransactionOptions,
    /// The snapshot of all reads, under snapshot isolation; taken at the first operation.
    moment: OnceLock<Snapshot>,
    writes: OwnWrites,
    tracked: Tracked,
    locks: HeldLocks,
    /// The keyspaces that the transaction has written to or read for update in, by id.
    keyspaces: BTreeMap<u32, Keyspace>,
    savepoints: Vec<Savepoint>,
    /// The event that its thread sleeps on when it waits for a lock.
    event: OnceLock<Arc<dyn Event>>,
    /// True if an operation failed in a way that a run from the beginning may not, and no rollback has undone the
    /// operation.
    is_in_the_way: AtomicBool,
    _live: Live,
}

impl Transaction {
    pub(crate) fn begin(default: &Keyspace, options: &TransactionOptions) -> Result<Transaction> {
        let core = &default.core;
        core.memory.writable()?;
        let transactions = &core.transactions;
        let number = transactions.next_number.fetch_add(1, Ordering::Relaxed);
        Ok(Transaction {
            core: Arc::clone(core),
            default: default.clone(),
            number,
            options: options.clone().bounded(),
            moment: OnceLock::new(),
            writes: OwnWrites::default(),
            tracked: Tracked::default(),
            locks: HeldLocks::new(transactions, number),
            keyspaces: BTreeMap::new(),
            savepoints: Vec::new(),
            event: OnceLock::new(),
            is_in_the_way: AtomicBool::new(false),
            _live: Live::new(transactions),
        })
    }

    /// Returns the transaction's number among those of this opening of the store. Errors name transactions by their
    /// numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the snapshot that the transaction reads under [`Isolation::Snapshot`]. It has the state at the first
    /// operation, or that of now if this is the first. `None` under [`Isolation::ReadCommitted`].
    pub fn snapshot(&self) -> Option<&Snapshot> {
        (self.options.isolation == Isolation::Snapshot)
            .then(|| self.moment.get_or_init(|| Snapshot::take(&self.default)))
    }

    /// Returns true if there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the memory that counts towards [`TransactionOptions::bytes_max`].
    pub fn bytes(&self) -> u64 {
        self.writes.bytes() + self.tracked.bytes()
    }

    fn check_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        if !Arc::ptr_eq(&keyspace.core, &self.core) {
            return Err(Error::Invalid(
                "the keyspace is of another store, or of this one before it was opened again; use keyspaces that the \
                 transaction's store gives"
                    .to_owned(),
            ));
        }
        keyspace.check()
    }

    fn check_room(&self, more: u64) -> Result<()> {
        let (bytes, bytes_max) = (self.bytes() + more, self.options.bytes_max);
        if bytes > bytes_max { Err(Error::TransactionTooLarge { bytes, bytes_max }) } else { Ok(()) }
    }

    fn read_options(&self) -> ReadOptions {
        self.snapshot().map_or_else(ReadOptions::default, |snapshot| ReadOptions::default().at(snapshot))
    }

    /// Notes if an operation failed because of a conflict with another transaction or write.
    fn noted<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(Error::is_retryable) {
            self.is_in_the_way.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Returns the value of `key` in the keyspace `default`: the transaction's own, or the one that its isolation lets
    /// it see.
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.read(&self.default, key.as_ref())
    }

    /// Returns the value of `key` in `keyspace`, as [`get`](Transaction::get).
    ///
    /// # Errors
    /// As [`get`](Transaction::get); [`Error::Invalid`] if the keyspace is another store's.
    pub fn get_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.read(keyspace, key.as_ref())
    }

    fn read(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Value>> {
        self.noted(self.check_keyspace(keyspace))?;
        self.noted(match self.writes.get(keyspace.id(), key) {
            Some(own) => Ok(own),
            None => keyspace.get_with(key, &self.read_options()),
        })
    }

    /// Returns true if `key` exists in the keyspace `default`, for this transaction.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns true if `key` exists in `keyspace`, for this transaction.
    ///
    /// # Errors
    /// As [`get_in`](Transaction::get_in).
    pub fn contains_in(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get_in(keyspace, key)?.is_some())
    }

    /// Works like [`get`](Transaction::get), without blocking; see [`Keyspace::get_async`]. All errors come from the
    /// future.
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture {
        self.get_in_async(&self.default, key)
    }

    /// Works like [`get_in`](Transaction::get_in), without blocking; see [`Keyspace::get_async`].
    pub fn get_in_async(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> ReadFuture {
        let key = key.as_ref();
        if let Err(error) = self.noted(self.check_keyspace(keyspace)) {
            return ReadFuture::ready(Err(error));
        }
        match self.writes.get(keyspace.id(), key) {
            Some(own) => ReadFuture::ready(Ok(own)),
            None => keyspace.get_with_async(key, &self.read_options()),
        }
    }

    /// Returns the value of `key` in the keyspace `default`, which no other writer may change until the commit. In
    /// [shared](LockMode::Shared) mode this transaction may not change it either while others have it shared. A
    /// pessimistic transaction waits for the lock; an optimistic one finds a change by another writer at commit.
    ///
    /// # Errors
    /// As [`get`](Transaction::get); [`Error::LockTimeout`] and [`Error::Deadlock`]; [`Error::Conflict`] if the key has
    /// been changed since the transaction's snapshot; [`Error::TransactionTooLarge`] and [`Error::TooManyLocks`].
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>, mode: LockMode) -> Result<Option<Value>> {
        let default = self.default.clone();
        self.get_for_update_in(&default, key, mode)
    }

    /// Returns the value of `key` in `keyspace`, as [`get_for_update`](Transaction::get_for_update).
    ///
    /// # Errors
    /// As there; [`Error::Invalid`] if the keyspace is another store's.
    pub fn get_for_update_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        mode: LockMode,
    ) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.lock_in(keyspace, key, mode)?;
        self.read(keyspace, key)
    }

    /// Does the same as [`get_for_update`](Transaction::get_for_update), but does not read the value.
    ///
    /// # Errors
    /// As there.
    pub fn lock(&mut self, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        let default = self.default.clone();
        self.lock_in(&default, key, mode)
    }

    /// Does the same as [`get_for_update_in`](Transaction::get_for_update_in), but does not read the value.
    ///
    /// # Errors
    /// As there.
    pub fn lock_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        let outcome = self.lock_row(keyspace, key.as_ref(), mode);
        self.noted(outcome)
    }

    fn lock_row(&mut self, keyspace: &Keyspace, key: &[u8], mode: LockMode) -> Result<()> {
        self.check_keyspace(keyspace)?;
        check_key(key)?;
        self.protect(keyspace, &key.into(), mode)
    }

    /// Sets `key` to `value` in the keyspace `default`. A pessimistic transaction waits for the key's lock; in
    /// asynchronous code, take that with [`lock_async`](Transaction::lock_async) before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key or value out of bounds; as [`get_for_update`](Transaction::get_for_update).
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let default = self.default.clone();
        self.put_in(&default, key, value)
    }

    /// Sets `key` to `value` in `keyspace`, as [`put`](Transaction::put).
    ///
    /// # Errors
    /// As [`put`](Transaction::put); [`Error::Invalid`] if the keyspace is another store's.
    pub fn put_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let outcome = self.change(keyspace, key.as_ref(), Some(value.as_ref()));
        self.noted(outcome)
    }

    /// Removes `key` from the keyspace `default`; no error if it does not exist. Waits as [`put`](Transaction::put)
    /// does.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let default = self.default.clone();
        self.delete_in(&default, key)
    }

    /// Removes `key` from `keyspace`, as [`delete`](Transaction::delete).
    ///
    /// # Errors
    /// As [`put_in`](Transaction::put_in).
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        let outcome = self.change(keyspace, key.as_ref(), None);
        self.noted(outcome)
    }

    fn change(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        value.map_or(Ok(()), check_value)?;
        self.check_keyspace(keyspace)?;
        check_key(key)?;
        self.check_room(writes::bytes_of(key.len(), value.map_or(0, <[u8]>::len)))?;
        let key: Arc<[u8]> = key.into();
        self.protect(keyspace, &key, LockMode::Exclusive)?;
        self.writes.change(keyspace.id(), key, value.map(Arc::from), !self.savepoints.is_empty());
        Ok(())
    }

    fn is_pessimistic(&self) -> bool {
        self.options.kind == TransactionKind::Pessimistic
    }

    /// Returns the request that the transaction has to make before it may rely on a row; none if it relies on the row
    /// already.
    fn wanted(&self, keyspace: &Keyspace, key: &Arc<[u8]>, mode: LockMode) -> Result<Option<Wanted>> {
        let tracked = self.tracked.mode(keyspace.id(), key);
        match tracked {
            Some(has) if has >= mode || !self.is_pessimistic() => return Ok(None),
            Some(_) => {}
            None => self.check_room(tracked::bytes_of(key.len()))?,
        }
        Ok(Some(Wanted {
            row: Row { keyspace: keyspace.id(), key: Arc::clone(key) },
            owner: self.number,
            mode,
            holds: tracked.is_some(),
            timeout_ms: self.options.lock_timeout_ms,
        }))
    }

    /// Protects a row: the commit goes through only if no other writer changes the row from now on, or from the
    /// snapshot on.
    fn protect(&mut self, keyspace: &Keyspace, key: &Arc<[u8]>, mode: LockMode) -> Result<()> {
        let Some(wanted) = self.wanted(keyspace, key, mode)? else { return Ok(()) };
        if self.is_pessimistic() {
            let event = self.event.get_or_init(|| self.core.env.executor.event());
            wanted.acquire(&self.core, event)?;
        }
        self.protected(wanted.row, mode, wanted.holds, true)
    }

    /// Tracks a row that is locked, if it has to be. From now on the transaction checks the row and gives it back.
    fn protected(&mut self, row: Row, mode: LockMode, held: bool, read_tables: bool) -> Result<()> {
        if held {
            self.tracked.set_mode(&row, mode);
            return Ok(());
        }
        if self.is_pessimistic() {
            self.locks.add(row.clone());
        }
        let tracked = self.track(&row, mode, read_tables);
        if tracked.is_err() && self.is_pessimistic() {
            self.locks.release_behind(self.locks.len() - 1);
        }
        tracked
    }

    fn track(&mut self, row: &Row, mode: LockMode, read_tables: bool) -> Result<()> {
        let keyspace = match self.keyspaces.get(&row.keyspace) {
            Some(keyspace) => keyspace.clone(),
            None => self.keyspace(row.keyspace)?,
        };
        let since = match self.snapshot().map(Snapshot::sequence) {
            Some(since) => {
                let visible = self.core.versions.snapshots.visible();
                let view = keyspace.inner.view.load();
                if self.is_pessimistic()
                    && since < visible
                    && changed(&view, &row.key, since, visible, read_tables)? == Some(true)
                {
                    return Err(self.conflict(row));
                }
                since
            }
            None => match self.tracked.present(&self.core, &self.keyspaces)? {
                Ok(since) => since,
                Err(changed) => return Err(self.conflict(&changed)),
            },
        };
        self.keyspaces.entry(row.keyspace).or_insert(keyspace);
        self.tracked.add(row.clone(), mode, since, !self.savepoints.is_empty());
        Ok(())
    }

    fn keyspace(&self, id: u32) -> Result<Keyspace> {
        let found = crate::base::sync::lock(&self.core.versions.registry).by_id.get(&id).cloned();
        let inner = found.ok_or_else(|| Error::KeyspaceDropped { name: format!("number {id}") })?;
        Ok(Keyspace { core: Arc::clone(&self.core), inner })
    }

    fn conflict(&self, row: &Row) -> Error {
        self.core.health.stats.counters.transaction_conflicts.add(1);
        Error::Conflict { keyspace: self.core.versions.keyspace_name(row.keyspace), key: Key::copied(&row.key) }
    }

    /// Sets a savepoint at this point. Any number of savepoints lie one behind the other.
    pub fn set_savepoint(&mut self) {
        self.savepoints.push(Savepoint {
            writes: self.writes.mark(),
            rows: self.tracked.recent(),
            locks: self.locks.len(),
            is_in_the_way: self.is_in_the_way.load(Ordering::Relaxed),
        });
    }

    /// Takes back everything since the last savepoint, and the savepoint itself. This includes writes, and locks of
    /// keys that were locked or read for update since; others may change these keys now. A lock that was made exclusive
    /// since stays exclusive. [`Store::transact`](crate::Store::transact) forgets failures since the savepoint, too,
    /// and does not run again for them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no savepoint.
    pub fn rollback_to_savepoint(&mut self) -> Result<()> {
        let savepoint = self.savepoints.pop().ok_or_else(no_savepoint)?;
        self.is_in_the_way.store(savepoint.is_in_the_way, Ordering::Relaxed);
        self.writes.take_back(&savepoint.writes);
        self.tracked.take_back(savepoint.rows);
        self.locks.release_behind(savepoint.locks);
        self.forget_past();
        Ok(())
    }

    /// Forgets the last savepoint, and keeps the operations since.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no savepoint.
    pub fn pop_savepoint(&mut self) -> Result<()> {
        self.savepoints.pop().ok_or_else(no_savepoint)?;
        self.forget_past();
        Ok(())
    }

    /// Drops the record of earlier values if there is no savepoint to roll back to.
    fn forget_past(&mut self) {
        if self.savepoints.is_empty() {
            self.writes.forget_past();
            self.tracked.forget_past();
        }
    }

    /// Ends the transaction without a trace, as a drop does.
    pub fn rollback(self) {}

    /// Makes the transaction's writes visible to all, together, and durable as its options say. Returns the sequence
    /// number from which on snapshots see the writes. Without writes, returns a number at which every key that the
    /// transaction had locked or read for update was unchanged.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another writer has changed a key that the transaction wrote or read for update; as
    /// [`Store::write`](crate::Store::write). The transaction has left no trace then, unless the store has
    /// [failed](Error::Failed). A commit that failed together with the store may be there, whole, when the store is
    /// opened again.
    pub fn commit(self) -> Result<SequenceNumber> {
        let core = Arc::clone(&self.core);
        let (commit, durability) = self.into_commit()?;
        commit.check_published(true)?;
        if commit.batch.is_empty() {
            return Ok(commit.nothing_to_write(&core));
        }
        write_numbered(&core.pipeline, commit.into_write(), durability)
    }

    /// Returns the batch, and the conditions that have to hold when it begins.
    fn into_commit(self) -> Result<(PreparedCommit, Durability)> {
        self.core.memory.writable()?;
        let durability = self.options.durability.unwrap_or(self.core.options.durability);
        let (rows, mut snapshots) = self.tracked.into_rows();
        snapshots.extend(self.moment.into_inner().map(Snapshot::into_point));
        let mut batch = WriteBatch::new();
        self.writes.encode(&self.keyspaces, &mut batch)?;
        let commitment = (!rows.is_empty()).then(|| {
            let keyspaces = self.keyspaces.into_values().map(|keyspace| keyspace.inner).collect();
            Commitment::new(&self.core.memory, rows, keyspaces, Box::new(self.locks), snapshots)
        });
        Ok((PreparedCommit { batch, commitment }, durability))
    }
}

/// The batch of a transaction that ends, and the conditions that have to hold when it begins.
struct PreparedCommit {
    batch: WriteBatch,
    /// None if the transaction relies on nothing.
    commitment: Option<Arc<Commitment>>,
}

impl PreparedCommit {
    /// See [`Commitment::check_published`].
    fn check_published(&self, read_tables: bool) -> Result<bool> {
        self.commitment.as_ref().map_or(Ok(true), |commitment| commitment.check_published(read_tables))
    }

    /// Returns the outcome of a commit of reads only, after its check.
    fn nothing_to_write(&self, core: &Core) -> SequenceNumber {
        core.health.stats.counters.transactions_committed.add(1);
        let checked_to = self.commitment.as_ref().map(|commitment| commitment.checked_to());
        checked_to.unwrap_or_else(|| core.versions.snapshots.visible())
    }

    fn into_write(self) -> Write<Memory> {
        let condition = self.commitment.map(|commitment| commitment as Arc<dyn Condition<Memory>>);
        Write::new(self.batch, condition)
    }
}

fn no_savepoint() -> Error {
    Error::Invalid("the transaction has no savepoint; set one before".to_owned())
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transaction { number, options, .. } = self;
        write!(f, "Transaction({number}, {:?}, {:?}, {} bytes)", options.kind, options.isolation, self.bytes())
    }
}

#[cfg(test)]
mod tests;
