//! Waiting for a future in the simulated world, or in any other.

use situ_base::{Env, Event};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// The time after which a future that no thread wakes counts as forgotten.
const WAKES_WITHIN: Duration = Duration::from_secs(600);

struct Signal(Arc<dyn Event>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// Polls a future to its end, and only when it was woken.
///
/// # Panics
/// No thread wakes it for ten minutes.
pub fn wait<F: Future>(env: &Env, future: F) -> F::Output {
    let event = env.executor.event();
    let waker = Waker::from(Arc::new(Signal(Arc::clone(&event))));
    let mut future = pin!(future);
    loop {
        let seen = event.generation();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(event.wait(seen, Some(WAKES_WITHIN)), "nobody woke the future");
    }
}
