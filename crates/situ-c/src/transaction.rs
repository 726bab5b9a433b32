//! Transactions.

use crate::arguments::{bytes, durability, give, handle, handle_mut};
use crate::cursor::{Walk, situ_cursor};
use crate::error::{Failure, SITU_MISS, SITU_OK, boxed, free, guard, situ_error, situ_status, wrong};
use crate::keyspace::situ_keyspace;
use crate::read::{read_options, situ_read};
use crate::store::{on as on_store, situ_store};
use crate::value::{empty, situ_value};
use std::ffi::{c_int, c_void};
use std::ptr;
use store::{Isolation, Keyspace, LockMode, Store, Transaction, TransactionKind, TransactionOptions};

/// Reads and writes that take effect together, or not at all. One thread at a time uses a transaction.
pub struct situ_transaction(pub(crate) Option<Transaction>);

/// The kind of a transaction: it locks the keys that it writes or reads for update.
pub const SITU_PESSIMISTIC: c_int = 0;
/// The kind of a transaction: it takes no locks, and its commit returns SITU_ERROR_CONFLICT if another writer was
/// there.
pub const SITU_OPTIMISTIC: c_int = 1;

/// All reads of the transaction see one moment.
pub const SITU_ISOLATION_SNAPSHOT: c_int = 0;
/// Each read of the transaction sees what is committed when it begins.
pub const SITU_ISOLATION_READ_COMMITTED: c_int = 1;

/// The mode of a lock: no other transaction may lock the key.
pub const SITU_EXCLUSIVE: c_int = 0;
/// The mode of a lock: others may lock the key shared, too. No transaction may write it.
pub const SITU_SHARED: c_int = 1;

/// Options of a transaction. Set what you need and leave the rest 0. NULL stands for options that are all 0.
#[repr(C)]
pub struct situ_transaction_options {
    /// SITU_PESSIMISTIC or SITU_OPTIMISTIC.
    pub kind: c_int,
    /// SITU_ISOLATION_SNAPSHOT or SITU_ISOLATION_READ_COMMITTED.
    pub isolation: c_int,
    /// The longest wait for a lock, in milliseconds; 0 for 1,000, and a negative number for no wait.
    pub lock_timeout_ms: i64,
    /// The maximum memory of the transaction, in bytes; 0 for 64 MiB.
    pub bytes_max: u64,
    /// The durability of the commit: SITU_AS_STORE, SITU_BUFFERED or SITU_SYNCED.
    pub durability: c_int,
}

unsafe fn options_of(options: *const situ_transaction_options) -> Result<TransactionOptions, Failure> {
    let mut made = TransactionOptions::default();
    // SAFETY: the caller gives NULL or options.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(made) };
    made.kind = match options.kind {
        SITU_PESSIMISTIC => TransactionKind::Pessimistic,
        SITU_OPTIMISTIC => TransactionKind::Optimistic,
        _ => return Err(wrong("the kind is neither SITU_PESSIMISTIC nor SITU_OPTIMISTIC")),
    };
    made.isolation = match options.isolation {
        SITU_ISOLATION_SNAPSHOT => Isolation::Snapshot,
        SITU_ISOLATION_READ_COMMITTED => Isolation::ReadCommitted,
        _ => return Err(wrong("the isolation is none of SITU_ISOLATION_...")),
    };
    match options.lock_timeout_ms {
        0 => {}
        wait => made.lock_timeout_ms = u64::try_from(wait).unwrap_or(0),
    }
    if options.bytes_max > 0 {
        made.bytes_max = options.bytes_max;
    }
    made.durability = durability(options.durability)?;
    Ok(made)
}

/// Begins a transaction. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_store_begin(
    store: *const situ_store,
    options: *const situ_transaction_options,
    transaction: *mut *mut situ_transaction,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { give(transaction, ptr::null_mut(), "transaction") };
    let begin = |store: &Store| {
        emptied?;
        // SAFETY: as the header says.
        let begun = store.begin_with(&unsafe { options_of(options)? })?;
        // SAFETY: as the header says.
        unsafe { give(transaction, boxed(situ_transaction(Some(begun))), "transaction") }
    };
    // SAFETY: as the header says.
    unsafe { on_store(store, error, begin) }
}

/// Commits a transaction. sequence becomes the sequence number of its last write, or may be NULL. The transaction has
/// then ended, after an error, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_commit(
    transaction: *mut situ_transaction,
    sequence: *mut u64,
    error: *mut *mut situ_error,
) -> situ_status {
    let commit = || {
        // SAFETY: as the header says.
        let number = unsafe { ended(transaction)? }.commit()?;
        if !sequence.is_null() {
            // SAFETY: as the header says.
            unsafe { give(sequence, number, "sequence number")? };
        }
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, commit) }
}

/// Frees a transaction, or does nothing for NULL. One that was not committed is rolled back: none of its writes takes
/// effect, and its locks are free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_free(transaction: *mut situ_transaction) {
    // SAFETY: as the header says.
    unsafe { free(transaction) };
}

/// Returns the value of a key as the transaction sees it, its own writes included, or SITU_MISS. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_get(
    transaction: *mut situ_transaction,
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    value: *mut situ_value,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { empty(value, "value") };
    let get = |transaction: &mut Transaction, keyspace: &Keyspace| {
        emptied?;
        // SAFETY: as the header says.
        let found = transaction.get_in(keyspace, unsafe { bytes(key, key_bytes)? })?;
        // SAFETY: as the header says.
        unsafe { give_found(value, found) }
    };
    // SAFETY: as the header says.
    unsafe { on(transaction, keyspace, error, get) }
}

/// Returns the value of a key, or SITU_MISS, and makes sure that no other writer changes the key before the commit. A
/// pessimistic transaction locks the key, in the mode SITU_EXCLUSIVE or SITU_SHARED. The caller frees the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_get_for_update(
    transaction: *mut situ_transaction,
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    mode: c_int,
    value: *mut situ_value,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { empty(value, "value") };
    let get = |transaction: &mut Transaction, keyspace: &Keyspace| {
        emptied?;
        // SAFETY: as the header says.
        let key = unsafe { bytes(key, key_bytes)? };
        let found = transaction.get_for_update_in(keyspace, key, mode_of(mode)?)?;
        // SAFETY: as the header says.
        unsafe { give_found(value, found) }
    };
    // SAFETY: as the header says.
    unsafe { on(transaction, keyspace, error, get) }
}

/// Does what situ_transaction_get_for_update does, and reads no value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_lock(
    transaction: *mut situ_transaction,
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    mode: c_int,
    error: *mut *mut situ_error,
) -> situ_status {
    let lock = |transaction: &mut Transaction, keyspace: &Keyspace| {
        // SAFETY: as the header says.
        transaction.lock_in(keyspace, unsafe { bytes(key, key_bytes)? }, mode_of(mode)?)?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(transaction, keyspace, error, lock) }
}

/// Sets the value of a key when the transaction commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_put(
    transaction: *mut situ_transaction,
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let put = |transaction: &mut Transaction, keyspace: &Keyspace| {
        // SAFETY: as the header says.
        let (key, value) = unsafe { (bytes(key, key_bytes)?, bytes(value, value_bytes)?) };
        transaction.put_in(keyspace, key, value)?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(transaction, keyspace, error, put) }
}

/// Deletes a key when the transaction commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_delete(
    transaction: *mut situ_transaction,
    keyspace: *const situ_keyspace,
    key: *const c_void,
    key_bytes: usize,
    error: *mut *mut situ_error,
) -> situ_status {
    let delete = |transaction: &mut Transaction, keyspace: &Keyspace| {
        // SAFETY: as the header says.
        transaction.delete_in(keyspace, unsafe { bytes(key, key_bytes)? })?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(transaction, keyspace, error, delete) }
}

/// Opens a cursor that sees what the transaction sees, with its writes until now. The caller frees it. Of the options,
/// the bounds and bypass_cache count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_cursor(
    transaction: *mut situ_transaction,
    keyspace: *const situ_keyspace,
    read: *const situ_read,
    cursor: *mut *mut situ_cursor,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    let emptied = unsafe { give(cursor, ptr::null_mut(), "cursor") };
    let open = |transaction: &mut Transaction, keyspace: &Keyspace| {
        emptied?;
        // SAFETY: as the header says.
        let options = unsafe { read_options(read)? }.unwrap_or_default();
        let opened = transaction.cursor_in_with(keyspace, &options)?;
        // SAFETY: as the header says.
        unsafe { give(cursor, boxed(situ_cursor(Walk::Own(Box::new(opened)))), "cursor")? };
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { on(transaction, keyspace, error, open) }
}

/// Sets a savepoint. Savepoints lie in each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_set_savepoint(
    transaction: *mut situ_transaction,
    error: *mut *mut situ_error,
) -> situ_status {
    let set = |transaction: &mut Transaction| {
        transaction.set_savepoint();
        Ok(())
    };
    // SAFETY: as the header says.
    unsafe { on_own(transaction, error, set) }
}

/// Takes back all writes since the last savepoint, and removes the savepoint. Locks stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_rollback_to_savepoint(
    transaction: *mut situ_transaction,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { on_own(transaction, error, |transaction| Ok(transaction.rollback_to_savepoint()?)) }
}

/// Removes the last savepoint, and keeps the writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_transaction_pop_savepoint(
    transaction: *mut situ_transaction,
    error: *mut *mut situ_error,
) -> situ_status {
    // SAFETY: as the header says.
    unsafe { on_own(transaction, error, |transaction| Ok(transaction.pop_savepoint()?)) }
}

fn mode_of(mode: c_int) -> Result<LockMode, Failure> {
    match mode {
        SITU_EXCLUSIVE => Ok(LockMode::Exclusive),
        SITU_SHARED => Ok(LockMode::Shared),
        _ => Err(wrong("the mode is neither SITU_EXCLUSIVE nor SITU_SHARED")),
    }
}

unsafe fn give_found(place: *mut situ_value, found: Option<store::Value>) -> Result<situ_status, Failure> {
    let Some(found) = found else { return Ok(SITU_MISS) };
    // SAFETY: as the header says.
    unsafe { give(place, found.into(), "value")? };
    Ok(SITU_OK)
}

/// Takes a transaction out of its handle, to end it.
pub(crate) unsafe fn ended(transaction: *mut situ_transaction) -> Result<Transaction, Failure> {
    // SAFETY: as the header says.
    unsafe { handle_mut(transaction, "transaction")? }.0.take().ok_or_else(has_ended)
}

fn has_ended() -> Failure {
    wrong("the transaction has ended")
}

unsafe fn on_own(
    transaction: *mut situ_transaction,
    error: *mut *mut situ_error,
    body: impl FnOnce(&mut Transaction) -> Result<(), Failure>,
) -> situ_status {
    let body = || {
        // SAFETY: as the header says.
        body(unsafe { handle_mut(transaction, "transaction")? }.0.as_mut().ok_or_else(has_ended)?)?;
        Ok(SITU_OK)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, body) }
}

unsafe fn on(
    transaction: *mut situ_transaction,
    keyspace: *const situ_keyspace,
    error: *mut *mut situ_error,
    body: impl FnOnce(&mut Transaction, &Keyspace) -> Result<situ_status, Failure>,
) -> situ_status {
    let body = || {
        // SAFETY: as the header says.
        let (transaction, keyspace) =
            unsafe { (handle_mut(transaction, "transaction")?, handle(keyspace, "keyspace")?) };
        body(transaction.0.as_mut().ok_or_else(has_ended)?, &keyspace.0)
    };
    // SAFETY: as the header says.
    unsafe { guard(error, body) }
}
