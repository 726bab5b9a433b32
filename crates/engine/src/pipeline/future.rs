//! Futures of a store's asynchronous writes. They belong to no runtime. Each keeps the waker that it is polled with,
//! and the thread of the store that finishes the write wakes it.

use crate::base::batch::WriteBatch;
use crate::base::options::Durability;
use crate::pipeline::write::{self, WatchedWrite};
use crate::pipeline::{Memory, Pipeline, Request};
use crate::{Error, Result};
use situ_pipeline::{Admission, Write};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// An asynchronous write; see [`Keyspace::put_async`](crate::Keyspace::put_async) for what it promises.
///
/// Its waker is called on a thread of the store and must not wait for the store. A panic in it is caught and counted
/// ([`Statistics::waker_panics`](crate::Statistics)).
#[must_use = "the write takes place, but only the future tells whether it did"]
pub struct WriteFuture {
    state: State,
    watched: Option<Box<WatchedWrite>>,
}

enum State {
    Begun(situ_pipeline::WriteFuture<Memory>),
    /// The store did not take the write.
    Refused(Error),
}

impl WriteFuture {
    /// Begins a batch without conditions. Without a batch, returns a future of the error.
    pub(crate) fn begin(pipeline: &Pipeline, batch: Result<WriteBatch>, durability: Durability) -> WriteFuture {
        let begun = batch.and_then(|batch| WriteFuture::begin_write(pipeline, Write::new(batch, None), durability));
        begun.unwrap_or_else(|error| WriteFuture { state: State::Refused(error), watched: None })
    }

    pub(crate) fn begin_write(
        pipeline: &Pipeline,
        write: Write<Memory>,
        durability: Durability,
    ) -> Result<WriteFuture> {
        let (stages, watched) = write::begin(pipeline, write, durability)?;
        Ok(WriteFuture { state: State::Begun(stages), watched })
    }

    pub(crate) fn of(admission: Admission<Memory>) -> WriteFuture {
        WriteFuture { state: State::Begun(situ_pipeline::WriteFuture::of(admission)), watched: None }
    }

    pub(crate) fn into_admission(self) -> Result<Admission<Memory>> {
        match self.state {
            State::Begun(stages) => Ok(stages.into_admission()),
            State::Refused(error) => Err(error),
        }
    }

    fn stages(&self) -> Option<&situ_pipeline::WriteFuture<Memory>> {
        match &self.state {
            State::Begun(stages) => Some(stages),
            State::Refused(_) => None,
        }
    }

    /// Returns the request of the write, if the write has begun.
    pub(crate) fn request(&self) -> Option<&Arc<Request>> {
        self.stages()?.request()
    }

    /// Returns true if the outcome is there.
    pub fn is_done(&self) -> bool {
        self.stages().is_none_or(|stages| stages.is_done())
    }

    /// Returns true if the store has taken the write. Returns false while the write waits for room in the store, and if
    /// it was refused.
    pub fn has_begun(&self) -> bool {
        self.stages().is_some_and(|stages| stages.has_begun())
    }
}

impl Future for WriteFuture {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = match &mut self.state {
            State::Begun(stages) => ready!(Pin::new(stages).poll(context)),
            State::Refused(error) => Err(error.clone()),
        };
        if let Some(watched) = self.watched.take() {
            watched.end();
        }
        Poll::Ready(outcome)
    }
}

impl fmt::Debug for WriteFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Begun(stages) => stages.fmt(f),
            State::Refused(error) => write!(f, "WriteFuture(refused: {error})"),
        }
    }
}

/// See [`Store::ready`](crate::Store::ready).
#[must_use = "a future does nothing unless it is awaited"]
pub struct ReadyFuture {
    stages: situ_pipeline::ReadyFuture<Memory>,
}

impl ReadyFuture {
    pub(crate) fn of(pipeline: &Arc<Pipeline>) -> ReadyFuture {
        ReadyFuture { stages: situ_pipeline::ReadyFuture::of(pipeline) }
    }
}

impl Future for ReadyFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.stages).poll(context)
    }
}

impl fmt::Debug for ReadyFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stages.fmt(f)
    }
}
