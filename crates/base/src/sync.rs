//! Locks and wakers after a panic of another thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Locks a mutex, also after a thread has panicked with it.
///
/// This is right where the data is whole between any two statements that change it: a list, a counter, a map. Where a
/// panic can leave the data half changed, and others would act on it, the lock must stay poisoned. The state of the log
/// is such data, and its holders use `expect`.
///
/// # Example
/// ```
/// let numbers = std::sync::Mutex::new(vec![1]);
/// situ_base::lock(&numbers).push(2);
/// assert_eq!(*situ_base::lock(&numbers), [1, 2]);
/// ```
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the task that waits for a future; the caller must hold no lock. Returns false if the waker panicked: the
/// program's bug must not end a thread of the store.
pub fn wake(waker: Waker) -> bool {
    catch_unwind(AssertUnwindSafe(|| waker.wake())).is_ok()
}

/// Returns the message of a panic; empty if it has none.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
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

    struct Panics;

    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("in a waker");
        }
    }

    #[test]
    fn a_waker_that_panics_is_told_of() {
        assert!(wake(Waker::noop().clone()));
        assert!(!wake(Waker::from(std::sync::Arc::new(Panics))));
    }

    #[test]
    fn a_panic_says_what_it_was_given() {
        let text = |panics: fn()| panic_text(&*catch_unwind(panics).unwrap_err());
        assert_eq!(text(|| panic!("a text")), "a text");
        assert_eq!(text(|| panic!("number {}", 1)), "number 1");
        assert_eq!(text(|| std::panic::panic_any(1)), "");
    }
}
