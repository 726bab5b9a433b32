//! Follows a future of a store and tells the server how far it is: no thread waits for it.
//!
//! 1. The future is polled once. If it is ready, the server gets the outcome before [`Completion::follow`] returns.
//! 2. Otherwise the completion is the future's waker. Whichever thread of the store gets on with the work polls it once
//!    more.
//! 3. When the store takes a write that it made wait, `on_taken` is called. When the outcome is there, `done` is.
//!
//! **Threads.** Any. The callbacks are called without the lock: they belong to the server and may do anything.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use situ::hash::HashWrite;
use situ::{ReadFuture, WriteFuture};
use situ_base::lock;

use crate::engine::{Admission, EngineError, OnTaken};

/// A future of a store for a piece of work that the server gave to it.
pub(crate) trait Work: Future + Unpin + Send + 'static {
    /// Returns true once the store has taken the work. False while it waits for room.
    fn is_taken(&self) -> bool;
}

impl Work for WriteFuture {
    fn is_taken(&self) -> bool {
        self.has_begun()
    }
}

impl Work for HashWrite {
    fn is_taken(&self) -> bool {
        self.has_begun()
    }
}

impl Work for ReadFuture {
    fn is_taken(&self) -> bool {
        true
    }
}

/// Called with the outcome.
type Outcome<T> = Box<dyn FnOnce(Result<T, EngineError>) + Send>;

/// See the module.
pub(crate) struct Completion<F, T> {
    following: Mutex<Option<Following<F, T>>>,
}

struct Following<F, T> {
    future: F,
    /// Whom to tell that the store has taken the work, if it made it wait.
    on_taken: Option<OnTaken>,
    done: Outcome<T>,
}

impl<F, T, E> Completion<F, T>
where
    F: Work + Future<Output = Result<T, E>>,
    T: Send + 'static,
    E: Display,
{
    /// Follows the future to its outcome, and calls `done` with it. If the store lets the work wait, `on_taken` is
    /// called before.
    pub(crate) fn follow(mut future: F, on_taken: Option<&OnTaken>, done: Outcome<T>) -> Admission {
        // A future that is ready at once needs no waker.
        if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            done(outcome.map_err(EngineError::new));
            return Admission::Taken;
        }
        let on_taken = on_taken.filter(|_| !future.is_taken()).cloned();
        let admission = if on_taken.is_some() { Admission::Waiting } else { Admission::Taken };
        Arc::new(Completion { following: Mutex::new(Some(Following { future, on_taken, done })) }).poll();
        admission
    }

    fn poll(self: Arc<Self>) {
        let (on_taken, finished) = {
            let mut following = lock(&self.following);
            let Some(Following { future, on_taken, .. }) = following.as_mut() else { return };
            let waker = Waker::from(Arc::clone(&self));
            match Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => (on_taken.take(), following.take().map(|following| (outcome, following.done))),
                Poll::Pending if future.is_taken() => (on_taken.take(), None),
                Poll::Pending => (None, None),
            }
        };
        if let Some(on_taken) = on_taken {
            on_taken();
        }
        if let Some((outcome, done)) = finished {
            done(outcome.map_err(EngineError::new));
        }
    }
}

impl<F, T, E> Wake for Completion<F, T>
where
    F: Work + Future<Output = Result<T, E>>,
    T: Send + 'static,
    E: Display,
{
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}
