//! The future of an asynchronous write. It belongs to no runtime: it keeps the waker that it is polled with, and the thread of the store
//! that finishes the write wakes it.

use crate::Result;
use crate::base::options::Durability;
use crate::pipeline::Pipeline;
use crate::pipeline::admission::Admission;
use crate::pipeline::commit::{Request, Write};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// An asynchronous write; see [`Keyspace::put_async`](crate::Keyspace::put_async) for what it promises.
///
/// Its waker is called on a thread of the store and must not wait for the store. A panic in it is caught and counted
/// ([`Statistics::waker_panics`](crate::Statistics)).
#[must_use = "the write takes place, but only the future tells whether it did"]
pub struct WriteFuture {
    admission: Admission,
}

impl WriteFuture {
    pub(crate) fn begin(
        pipeline: &Arc<Pipeline>,
        write: impl Into<Write>,
        durability: Durability,
    ) -> Result<WriteFuture> {
        let write = write.into();
        if write.batch.is_empty() {
            return pipeline.writable().map(|_| WriteFuture { admission: Admission::Empty });
        }
        pipeline.admit_async(write, durability).map(WriteFuture::of)
    }

    pub(crate) fn of(admission: Admission) -> WriteFuture {
        WriteFuture { admission }
    }

    pub(crate) fn into_admission(self) -> Admission {
        self.admission
    }

    /// What has become of it in the write path, if it has come so far.
    pub(crate) fn request(&self) -> Option<&Arc<Request>> {
        match &self.admission {
            Admission::Empty => None,
            Admission::Begun(request) => Some(request),
            Admission::Waits(verdict) => verdict.get()?.as_ref().ok(),
        }
    }

    fn outcome(&self) -> Option<Result<()>> {
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

    /// Whether the outcome is there.
    pub fn is_done(&self) -> bool {
        self.outcome().is_some()
    }

    /// Whether the store has taken the write. False while it waits for the store to have room, and if it was refused.
    pub fn has_begun(&self) -> bool {
        match &self.admission {
            Admission::Empty | Admission::Begun(_) => true,
            Admission::Waits(verdict) => matches!(verdict.get(), Some(Ok(_))),
        }
    }
}

impl Future for WriteFuture {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
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

impl fmt::Debug for WriteFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteFuture(begun: {}, done: {})", self.has_begun(), self.is_done())
    }
}
