//! Futures of transactions. They belong to no runtime, as those in `future.rs`.

use super::Transaction;
use super::held::Pending;
use crate::api::keyspace::Keyspace;
use crate::base::batch::check_key;
use crate::base::value::Value;
use crate::pipeline::Memory;
use crate::pipeline::future::WriteFuture;
use crate::read::future::ReadFuture;
use crate::rows::locks::LockMode;
use crate::{Error, Result};
use situ_pipeline::Admission;
use situ_table::SequenceNumber;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

impl Transaction {
    /// Works like [`get_for_update`](Transaction::get_for_update), without blocking. A future that is dropped early
    /// gives up its place in the queue for the lock. A conflict that shows only in tables is reported at commit.
    ///
    /// # Errors
    /// All come from the future, as [`get_for_update`](Transaction::get_for_update) has them.
    pub fn get_for_update_async(&mut self, key: impl AsRef<[u8]>, mode: LockMode) -> ForUpdateFuture<'_> {
        let default = self.default.clone();
        self.get_for_update_in_async(&default, key, mode)
    }

    /// Works like [`get_for_update_in`](Transaction::get_for_update_in), without blocking; see
    /// [`get_for_update_async`](Transaction::get_for_update_async).
    pub fn get_for_update_in_async(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        mode: LockMode,
    ) -> ForUpdateFuture<'_> {
        let key = key.as_ref();
        let lock = self.lock_in_async(keyspace, key, mode);
        ForUpdateFuture::new(lock, keyspace.clone(), key.to_vec())
    }

    /// Works like [`lock`](Transaction::lock), without blocking. Afterwards a [`put`](Transaction::put) or
    /// [`delete`](Transaction::delete) of the key does not wait either, if it was locked [`LockMode::Exclusive`].
    ///
    /// # Errors
    /// As [`get_for_update_async`](Transaction::get_for_update_async).
    pub fn lock_async(&mut self, key: impl AsRef<[u8]>, mode: LockMode) -> LockFuture<'_> {
        let default = self.default.clone();
        self.lock_in_async(&default, key, mode)
    }

    /// Works like [`lock_in`](Transaction::lock_in), without blocking; see [`lock_async`](Transaction::lock_async).
    pub fn lock_in_async(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, mode: LockMode) -> LockFuture<'_> {
        let outcome = self.lock_row_async(keyspace, key.as_ref(), mode);
        let pending = self.noted(outcome);
        LockFuture::new(self, pending)
    }

    fn lock_row_async(&mut self, keyspace: &Keyspace, key: &[u8], mode: LockMode) -> Result<Option<Pending>> {
        self.check_keyspace(keyspace)?;
        check_key(key)?;
        match self.wanted(keyspace, &key.into(), mode)? {
            Some(wanted) if self.is_pessimistic() => wanted.acquire_async(&self.core).map(Some),
            Some(wanted) => self.protected(wanted.row, mode, wanted.holds, false).map(|()| None),
            None => Ok(None),
        }
    }

    /// Works like [`commit`](Transaction::commit), without blocking; see [`Keyspace::put_async`] for when it begins.
    /// The commit takes place, or is refused, whether the future is polled or dropped. Its locks are given back then.
    /// All errors come from the future.
    pub fn commit_async(self) -> CommitFuture {
        self.begin_commit().unwrap_or_else(CommitFuture::refused)
    }

    fn begin_commit(self) -> Result<CommitFuture> {
        let core = Arc::clone(&self.core);
        let (commit, durability) = self.into_commit()?;
        let is_checked = commit.check_published(false)?;
        if is_checked && commit.batch.is_empty() {
            return Ok(CommitFuture::done(commit.nothing_to_write(&core)));
        }
        if is_checked {
            let writing = WriteFuture::begin_write(&core.pipeline, commit.into_write(), durability);
            return writing.map(CommitFuture::writing);
        }
        // Tables have to be read first, on a thread of the store.
        let there = Arc::clone(&core);
        let admission = core.readers.submit(move || {
            commit.check_published(true)?;
            if commit.batch.is_empty() {
                return Ok(CommitState::Done(commit.nothing_to_write(&there)));
            }
            WriteFuture::begin_write(&there.pipeline, commit.into_write(), durability)?
                .into_admission()
                .map(CommitState::Writing)
        })?;
        Ok(CommitFuture::checking(admission))
    }
}

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
pub(crate) enum CommitState {
    Writing(Admission<Memory>),
    /// There was nothing to write.
    Done(SequenceNumber),
}

impl CommitFuture {
    pub(crate) fn checking(checking: ReadFuture<CommitState>) -> CommitFuture {
        CommitFuture { stage: Stage::Checking(checking) }
    }

    pub(crate) fn writing(writing: WriteFuture) -> CommitFuture {
        CommitFuture { stage: Stage::Writing(writing) }
    }

    pub(crate) fn done(number: SequenceNumber) -> CommitFuture {
        CommitFuture { stage: Stage::Done(number) }
    }

    pub(crate) fn refused(error: Error) -> CommitFuture {
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
    pub(crate) fn new(transaction: &'t mut Transaction, pending: Result<Option<Pending>>) -> LockFuture<'t> {
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
    pub(crate) fn new(lock: LockFuture<'t>, keyspace: Keyspace, key: Vec<u8>) -> ForUpdateFuture<'t> {
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
