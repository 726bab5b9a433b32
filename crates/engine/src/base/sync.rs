//! Locks and wakers that survive a panic in other code.

pub(crate) use situ_base::{lock, panic_text, wake};

/// Calls a function when it is dropped, also by a panic.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
