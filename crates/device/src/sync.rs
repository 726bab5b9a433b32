//! Locks, and what a panic of their holder means.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a thread has panicked with it.
///
/// This is right where the data is whole between any two statements that change it: a list, a counter, a map. Where a panic can
/// leave the data half changed, and others would act on it, the lock must stay poisoned: the state of the log is such data,
/// and its holders use `expect`.
///
/// # Example
/// ```
/// let numbers = std::sync::Mutex::new(vec![1]);
/// situ_device::lock(&numbers).push(2);
/// assert_eq!(*situ_device::lock(&numbers), [1, 2]);
/// ```
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_had_after_its_holder_has_panicked() {
        let mutex = Mutex::new(1);
        let panics = || {
            let mut guard = mutex.lock().unwrap();
            *guard = 2;
            panic!("with the lock");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
