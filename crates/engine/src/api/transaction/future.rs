//! Futures of transactions. They belong to no runtime, as those in `future.rs`.

use super::Transaction;
use super::held::Pending;
use crate::api::keyspace::Keyspace;
use crate::base::value::Value;
use crate::pipeline::Memory;
use crate::pipeline::future::WriteFuture;
use crate::read::future::ReadFuture;
use crate::{Error, Result};
use situ_pipeline::Admission;
use situ_table::SequenceNumber;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A commit on its way; see [`Transaction::commit_async`].
#[must_use = "the commit takes place, but only the future tells whether it did"]
pub struct CommitFuture {
    stage: Stage,
}

enum Stage {
    /// Tables are being read.
    Checking(ReadFuture<CommitState>),
    Writing(WriteFuture),
    Done(SequenceNumber),
    Refused(Error),
}

/// The state of a commit after its check.
#[derive(Clone)]
pub(super) enum CommitState {
    Writing(Admission<Memory>),
    /// There was nothing to write.
    Done(SequenceNumber),
}

impl CommitFuture {
    pub(super) fn checking(checking: ReadFuture<CommitState>) -> CommitFuture {
        CommitFuture { stage: Stage::Checking(checking) }
    }

    pub(super) fn writing(writing: WriteFuture) -> CommitFuture {
        CommitFuture { stage: Stage::Writing(writing) }
    }

    pub(super) fn done(number: SequenceNumber) -> CommitFuture {
        CommitFuture { stage: Stage::Done(number) }
    }

    pub(super) fn refused(error: Error) -> CommitFuture {
        CommitFuture { stage: Stage::Refused(error) }
    }
}

impl Future for CommitFuture {
    type Output = Result<SequenceNumber>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.stage {
                Stage::Checking(checking) => {
                    self.stage = match ready!(Pin::new(checking).poll(context))? {
                        CommitState::Writing(admission) => Stage::Writing(WriteFuture::of(admission)),
                        CommitState::Done(number) => Stage::Done(number),
                    };
                }
                Stage::Writing(writing) => {
                    let outcome = ready!(Pin::new(&mut *writing).poll(context));
                    let Some(request) = writing.request() else { return Poll::Ready(outcome.map(|()| 0)) };
                    // The thread that publishes the request releases it, too, perhaps a moment later.
                    request.release();
                    return Poll::Ready(outcome.map(|()| request.last()));
                }
                Stage::Done(number) => return Poll::Ready(Ok(*number)),
                Stage::Refused(error) => return Poll::Ready(Err(error.clone())),
            }
        }
    }
}

impl fmt::Debug for CommitFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stage {
            Stage::Checking(_) => f.write_str("CommitFuture(checking)"),
            Stage::Writing(writing) => write!(f, "CommitFuture({writing:?})"),
            Stage::Done(number) => write!(f, "CommitFuture(done: {number})"),
            Stage::Refused(error) => write!(f, "CommitFuture(refused: {error})"),
        }
    }
}

/// A wait for a lock; see [`Transaction::lock_async`].
#[must_use = "without being awaited the key may not be locked"]
pub struct LockFuture<'t> {
    transaction: &'t mut Transaction,
    /// None if nothing is left to wait for. An error if the lock was refused at once.
    pending: Result<Option<Pending>>,
}

impl<'t> LockFuture<'t> {
    pub(super) fn new(transaction: &'t mut Transaction, pending: Result<Option<Pending>>) -> LockFuture<'t> {
        LockFuture { transaction, pending }
    }
}

impl Future for LockFuture<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let pending = match &mut self.pending {
            Ok(Some(pending)) => pending,
            Ok(None) => return Poll::Ready(Ok(())),
            Err(error) => return Poll::Ready(Err(error.clone())),
        };
        let outcome = ready!(pending.poll(context));
        let (row, mode, held) = (pending.wanted.row.clone(), pending.wanted.mode, pending.wanted.holds);
        self.pending = Ok(None);
        let outcome = outcome.and_then(|()| self.transaction.protected(row, mode, held, false));
        Poll::Ready(self.transaction.noted(outcome))
    }
}

impl fmt::Debug for LockFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockFuture(waits: {})", matches!(self.pending, Ok(Some(_))))
    }
}

/// A read for update; see [`Transaction::get_for_update_async`].
#[must_use = "a future does nothing for you unless it is awaited"]
pub struct ForUpdateFuture<'t> {
    lock: LockFuture<'t>,
    keyspace: Keyspace,
    key: Vec<u8>,
    /// Once the key is locked.
    read: Option<ReadFuture>,
}

impl<'t> ForUpdateFuture<'t> {
    pub(super) fn new(lock: LockFuture<'t>, keyspace: Keyspace, key: Vec<u8>) -> ForUpdateFuture<'t> {
        ForUpdateFuture { lock, keyspace, key, read: None }
    }
}

impl Future for ForUpdateFuture<'_> {
    type Output = Result<Option<Value>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let read = match &mut this.read {
            Some(read) => read,
            None => {
                ready!(Pin::new(&mut this.lock).poll(context))?;
                this.read.insert(this.lock.transaction.get_in_async(&this.keyspace, &this.key))
            }
        };
        Pin::new(read).poll(context)
    }
}

impl fmt::Debug for ForUpdateFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForUpdateFuture({:?}, reads: {})", self.lock, self.read.is_some())
    }
}
