//! Futures of asynchronous writes, and of the moment at which callers may ask for more. They belong to no runtime: each
//! keeps the waker that it is polled with, and the thread that finishes the write wakes it.

use crate::commit::{Request, Write};
use crate::environment::Environment;
use crate::pipeline::Pipeline;
use crate::waiting_room::Admission;
use situ_log::Durability;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// An asynchronous write. It takes place whether this is kept or dropped.
///
/// Its waker is called on a thread that serves the pipeline, and must not wait for a write. A panic in it is caught
/// ([`Note::WakerPanicked`](crate::Note::WakerPanicked)).
#[must_use = "the write takes place, but only the future tells whether it did"]
pub struct WriteFuture<E: Environment> {
    admission: Admission<E>,
}

impl<E: Environment> WriteFuture<E> {
    /// Begins a write, or lets it wait to begin.
    ///
    /// # Errors
    /// It was refused at once.
    pub fn begin(pipeline: &Pipeline<E>, write: Write<E>, durability: Durability) -> Result<WriteFuture<E>, E::Error> {
        if write.is_empty() {
            return pipeline.check_writable().map(|()| WriteFuture { admission: Admission::Empty });
        }
        pipeline.admit_async(write, durability).map(WriteFuture::of)
    }

    /// Returns the future of a write that was begun elsewhere.
    pub fn of(admission: Admission<E>) -> WriteFuture<E> {
        WriteFuture { admission }
    }

    /// Returns the state of the write, for another future.
    pub fn into_admission(self) -> Admission<E> {
        self.admission
    }

    /// Returns the request of the write, if the write has begun.
    pub fn request(&self) -> Option<&Arc<Request<E>>> {
        match &self.admission {
            Admission::Empty => None,
            Admission::Begun(request) => Some(request),
            Admission::Waits(verdict) => verdict.get()?.as_ref().ok(),
        }
    }

    fn outcome(&self) -> Option<Result<(), E::Error>> {
        match &self.admission {
            Admission::Empty => Some(Ok(())),
            Admission::Begun(request) => request.outcome(),
            Admission::Waits(verdict) => match verdict.get()? {
                Ok(request) => request.outcome(),
                Err(error) => Some(Err(error.clone())),
            },
        }
    }

    fn wake_with(&self, waker: &Waker) {
        match &self.admission {
            Admission::Empty => {}
            Admission::Begun(request) => request.wake_with(waker),
            Admission::Waits(verdict) => match verdict.get() {
                Some(Ok(request)) => request.wake_with(waker),
                Some(Err(_)) => {}
                None => verdict.wake_with(waker),
            },
        }
    }

    /// Returns true if the outcome is there.
    pub fn is_done(&self) -> bool {
        self.outcome().is_some()
    }

    /// Returns true if the write has begun. Returns false while the write waits for room, and if it was refused.
    pub fn has_begun(&self) -> bool {
        match &self.admission {
            Admission::Empty | Admission::Begun(_) => true,
            Admission::Waits(verdict) => matches!(verdict.get(), Some(Ok(_))),
        }
    }
}

impl<E: Environment> Future for WriteFuture<E> {
    type Output = Result<(), E::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if let Some(outcome) = self.outcome() {
                return Poll::Ready(outcome);
            }
            let had_begun = self.has_begun();
            self.wake_with(context.waker());
            // It may have come, or only begun, while the waker was being left.
            if self.has_begun() == had_begun && self.outcome().is_none() {
                return Poll::Pending;
            }
        }
    }
}

impl<E: Environment> fmt::Debug for WriteFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteFuture(begun: {}, done: {})", self.has_begun(), self.is_done())
    }
}

/// Ready when the pipeline is not [busy](Pipeline::is_busy), or takes no more writes.
#[must_use = "a future does nothing unless it is awaited"]
pub struct ReadyFuture<E: Environment> {
    pipeline: Arc<Pipeline<E>>,
    /// Under which its waker lies, once it has left one.
    number: Option<u64>,
}

impl<E: Environment> ReadyFuture<E> {
    /// Waits for nothing until it is polled.
    pub fn of(pipeline: &Arc<Pipeline<E>>) -> ReadyFuture<E> {
        ReadyFuture { pipeline: Arc::clone(pipeline), number: None }
    }

    fn is_over(&self) -> bool {
        let environment = &self.pipeline.environment;
        !self.pipeline.is_busy() || environment.is_closing() || environment.failure().is_some()
    }
}

impl<E: Environment> Future for ReadyFuture<E> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let this = &mut *self;
        this.pipeline.outstanding.wake_with(&mut this.number, context.waker());
        // It may be over since, and the thread that ended it may not have seen the waker.
        if self.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<E: Environment> Drop for ReadyFuture<E> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.pipeline.outstanding.forget(number);
        }
    }
}

impl<E: Environment> fmt::Debug for ReadyFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadyFuture({})", if self.is_over() { "ready" } else { "busy" })
    }
}
