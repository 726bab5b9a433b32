//! Ends of calls that no C program can bring about.

use super::*;
use crate::error::{SITU_ERROR_INTERNAL, situ_error_free};
use std::future::poll_fn;
use std::sync::mpsc::Receiver;
use std::time::Duration;

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

/// Calls that begin in the completions of others, and the last of their statuses.
struct Chain {
    left: usize,
    end: Sender<situ_status>,
}

unsafe extern "C" fn begin_next(context: *mut c_void, status: situ_status, _: *mut situ_value, _: *mut situ_error) {
    // SAFETY: the test gives a chain, which each call hands to the next one.
    let mut chain = unsafe { Box::from_raw(context.cast::<Chain>()) };
    if chain.left == 0 {
        chain.end.send(status).unwrap();
    } else {
        chain.left -= 1;
        start(Completion { done: Some(begin_next), context: Box::into_raw(chain).cast() }, || {
            Ok(std::future::ready(Ok(Answer::Done)))
        });
    }
}

/// The calls lay on the stack of one thread, all of them, and it overflowed.
#[test]
fn a_chain_of_calls_does_not_fill_the_stack() {
    let (end, statuses) = channel();
    let context = Box::into_raw(Box::new(Chain { left: 200_000, end })).cast();
    // SAFETY: a context as the function takes it.
    unsafe { begin_next(context, SITU_OK, ptr::null_mut(), ptr::null_mut()) };
    assert_eq!(statuses.recv(), Ok(SITU_OK));
}

/// Returns a future that the library's thread completes.
fn later() -> impl Future<Output = Result<Answer, Failure>> {
    let mut is_second = false;
    poll_fn(move |context| {
        if is_second {
            return Poll::Ready(Ok(Answer::Done));
        }
        is_second = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// A child had the queue of its parent without the thread, so the calls of its own stores did not end.
#[test]
fn a_forked_process_completes_its_calls() {
    assert_eq!(begin(later()).recv(), Ok(SITU_OK));
    // SAFETY: the child uses nothing that another thread of this process might hold. It leaves without a destructor.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let end = begin(later()).recv_timeout(Duration::from_secs(20));
        // SAFETY: as before.
        unsafe { libc::_exit(i32::from(end != Ok(SITU_OK))) };
    }
    let mut status = -1;
    // SAFETY: the child is this thread's own, and the status has a place.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
