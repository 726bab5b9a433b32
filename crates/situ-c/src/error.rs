//! Results of calls, and errors.

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use store::Error;

/// The result of a call: SITU_OK, another answer (positive), or the kind of an error (negative).
pub type situ_status = i32;

/// Done.
pub const SITU_OK: situ_status = 0;
/// There is no such key, or no further entry.
pub const SITU_MISS: situ_status = 1;

/// An argument, an option or the order of calls is wrong.
pub const SITU_ERROR_INVALID: situ_status = -1;
/// The store is closed.
pub const SITU_ERROR_CLOSED: situ_status = -2;
/// The store is open read-only.
pub const SITU_ERROR_READ_ONLY: situ_status = -3;
/// The store has no keyspace of this name.
pub const SITU_ERROR_NO_SUCH_KEYSPACE: situ_status = -4;
/// The keyspace was dropped.
pub const SITU_ERROR_KEYSPACE_DROPPED: situ_status = -5;
/// Another writer changed a key of the transaction. Run the transaction again.
pub const SITU_ERROR_CONFLICT: situ_status = -6;
/// Another transaction kept a key locked for too long.
pub const SITU_ERROR_LOCK_TIMEOUT: situ_status = -7;
/// Transactions wait for each other. Roll this one back, and run it again.
pub const SITU_ERROR_DEADLOCK: situ_status = -8;
/// The transaction takes more memory than its options allow.
pub const SITU_ERROR_TRANSACTION_TOO_LARGE: situ_status = -9;
/// All transactions together hold as many locks as they may.
pub const SITU_ERROR_TOO_MANY_LOCKS: situ_status = -10;
/// Too many bytes wait in asynchronous writes.
pub const SITU_ERROR_TOO_MANY_WAITING: situ_status = -11;
/// A disk is full. Writes succeed again when there is room.
pub const SITU_ERROR_NO_SPACE: situ_status = -12;
/// Bytes on a disk are damaged.
pub const SITU_ERROR_CORRUPTION: situ_status = -13;
/// The process lacks a right to a file or a device.
pub const SITU_ERROR_PERMISSION: situ_status = -14;
/// A read that was limited to memory needs a disk.
pub const SITU_ERROR_NOT_IN_MEMORY: situ_status = -15;
/// A disk has failed, or another process has the store open.
pub const SITU_ERROR_IO: situ_status = -16;
/// The store takes no writes after an earlier failure. Close it, remove the cause, and open it again.
pub const SITU_ERROR_FAILED: situ_status = -17;
/// Compactions fail, and level 0 is full.
pub const SITU_ERROR_LEVEL0_FULL: situ_status = -18;
/// The store is missing and may not be created, or exists and must not.
pub const SITU_ERROR_EXISTENCE: situ_status = -19;
/// A disk of the store is missing or another one's.
pub const SITU_ERROR_DISKS: situ_status = -20;
/// A reader lost the race against the process that writes. Try again.
pub const SITU_ERROR_CHANGED: situ_status = -21;
/// The library has a fault. Its message is on standard error.
pub const SITU_ERROR_INTERNAL: situ_status = -22;

/// An error with its text. The caller frees it.
pub struct situ_error(CString);

/// Returns the text of an error, in English. It names the cause and the cure, and lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_error_text(error: *const situ_error) -> *const c_char {
    // SAFETY: the caller gives NULL or an error of this library.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.0.as_ptr())
}

/// Frees an error, or does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn situ_error_free(error: *mut situ_error) {
    // SAFETY: as before, and the caller uses it no more.
    unsafe { free(error) };
}

/// Returns 1 if a transaction that ended with this status may succeed when it runs again from its beginning.
#[unsafe(no_mangle)]
pub extern "C" fn situ_is_retryable(status: situ_status) -> c_int {
    c_int::from(matches!(status, SITU_ERROR_CONFLICT | SITU_ERROR_LOCK_TIMEOUT | SITU_ERROR_DEADLOCK))
}

/// The reason for which a function returns a negative number.
pub(crate) struct Failure {
    status: situ_status,
    text: String,
}

pub(crate) fn wrong(text: impl Into<String>) -> Failure {
    Failure { status: SITU_ERROR_INVALID, text: text.into() }
}

/// Returns the failure of a call that panicked.
pub(crate) fn panicked() -> Failure {
    let text = "the store has a fault; its message is on standard error".to_owned();
    Failure { status: SITU_ERROR_INTERNAL, text }
}

/// Returns the failure for a thread that cannot be had.
pub(crate) fn no_thread(error: &std::io::Error) -> Failure {
    Failure { status: SITU_ERROR_INTERNAL, text: format!("no thread for asynchronous calls: {error}") }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { status: status_of(&error), text: error.to_string() }
    }
}

fn status_of(error: &Error) -> situ_status {
    match error {
        Error::Invalid(_) => SITU_ERROR_INVALID,
        Error::Closed => SITU_ERROR_CLOSED,
        Error::ReadOnly => SITU_ERROR_READ_ONLY,
        Error::NoSuchKeyspace { .. } => SITU_ERROR_NO_SUCH_KEYSPACE,
        Error::KeyspaceDropped { .. } => SITU_ERROR_KEYSPACE_DROPPED,
        Error::Conflict { .. } => SITU_ERROR_CONFLICT,
        Error::LockTimeout { .. } => SITU_ERROR_LOCK_TIMEOUT,
        Error::Deadlock { .. } => SITU_ERROR_DEADLOCK,
        Error::TransactionTooLarge { .. } => SITU_ERROR_TRANSACTION_TOO_LARGE,
        Error::TooManyLocks { .. } => SITU_ERROR_TOO_MANY_LOCKS,
        Error::TooManyWaiting { .. } => SITU_ERROR_TOO_MANY_WAITING,
        Error::Existence(_) => SITU_ERROR_EXISTENCE,
        Error::Disks(_) => SITU_ERROR_DISKS,
        Error::Changed { .. } => SITU_ERROR_CHANGED,
        // The store stays failed, whatever the disk said then.
        Error::Failed { .. } => SITU_ERROR_FAILED,
        error if error.is_corruption() => SITU_ERROR_CORRUPTION,
        error if error.is_not_in_memory() => SITU_ERROR_NOT_IN_MEMORY,
        error if error.is_permission_denied() => SITU_ERROR_PERMISSION,
        error if error.is_no_space() => SITU_ERROR_NO_SPACE,
        Error::Level0Full { .. } => SITU_ERROR_LEVEL0_FULL,
        _ => SITU_ERROR_IO,
    }
}

impl Failure {
    /// Returns the status, and an error that C owns.
    pub(crate) fn into_c(self) -> (situ_status, *mut situ_error) {
        let text: Vec<u8> = self.text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
        (self.status, boxed(situ_error(CString::new(text).unwrap_or_default())))
    }
}

/// Runs the body of a function, and gives the caller the error if there is a place for it.
pub(crate) unsafe fn guard(
    error: *mut *mut situ_error,
    body: impl FnOnce() -> Result<situ_status, Failure>,
) -> situ_status {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err(panicked()));
    let failure = match result {
        Ok(status) => {
            if !error.is_null() {
                // SAFETY: the caller gives a place for an error, or NULL.
                unsafe { error.write(ptr::null_mut()) };
            }
            return status;
        }
        Err(failure) => failure,
    };
    if error.is_null() {
        return failure.status;
    }
    let (status, made) = failure.into_c();
    // SAFETY: as before.
    unsafe { error.write(made) };
    status
}

/// Gives a value to C.
pub(crate) fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes back what `boxed` gave away. A panic of a destructor ends here.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller has it from `boxed`, and uses it no more.
            drop(unsafe { Box::from_raw(handle) });
        }));
    }
}
