//! Ends of calls that no C program can bring about.

use super::*;
use crate::error::{SITU_ERROR_INTERNAL, situ_error_free};
use std::future::poll_fn;
use std::sync::mpsc::Receiver;

unsafe extern "C" fn note(context: *mut c_void, status: situ_status, _: *mut situ_value, error: *mut situ_error) {
    // SAFETY: `begin` gives a sender, once for each call.
    let statuses = unsafe { Box::from_raw(context.cast::<Sender<situ_status>>()) };
    statuses.send(status).unwrap();
    // SAFETY: the function owns the error.
    unsafe { situ_error_free(error) };
}

/// Begins a call, and returns the statuses that it ends with.
fn begin(future: impl Future<Output = Result<Answer, Failure>> + Send + 'static) -> Receiver<situ_status> {
    let (sender, statuses) = channel();
    let context = Box::into_raw(Box::new(sender)).cast();
    start(Completion { done: Some(note), context }, || Ok(future));
    statuses
}

/// The panic crossed the border to C on the caller's thread. On the library's thread, the function was not called.
#[test]
fn a_call_that_panics_ends() {
    let statuses = begin(poll_fn(|_| panic!("a fault of the store, for a test")));
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [SITU_ERROR_INTERNAL]);
    let mut is_second = false;
    let statuses = begin(poll_fn(move |context| {
        assert!(!is_second, "a fault of the store, for a test");
        is_second = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [SITU_ERROR_INTERNAL]);
}

/// The function was not called, and its context was lost.
#[test]
fn a_call_that_is_forgotten_ends() {
    let statuses = begin(poll_fn(|_| Poll::Pending));
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [SITU_ERROR_INTERNAL]);
}
