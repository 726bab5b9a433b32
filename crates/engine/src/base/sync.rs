//! Locks and wakers that survive somebody else's panic.

pub(crate) use situ_device::lock;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes whoever waits for a future, with no lock held. False if the waker panicked: the program's bug must not end a
/// thread of the store.
pub(crate) fn wake(waker: Waker) -> bool {
    catch_unwind(AssertUnwindSafe(|| waker.wake())).is_ok()
}

/// What a panic says of itself.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
