//! The pipeline's interface to the store around it, as one small trait.
//!
//! A write meets its environment in this order:
//!
//! 1. Before the prologue: [`is_closing`](Environment::is_closing) and [`failure`](Environment::failure).
//! 2. Prologue, under the commit lock: [`find_room`](Environment::find_room); the pipeline appends the record;
//!    [`place`](Environment::place). If the log file is full, [`next_log_file`](Environment::next_log_file) comes
//!    before a second append.
//! 3. If there was no room, with no lock held: [`make_way`](Environment::make_way), and then step 2 again.
//! 4. Epilogue, with no lock held: [`apply`](Environment::apply).
//! 5. Publish, under the commit lock: [`publish`](Environment::publish).
//!
//! **Invariants.** The environment sees batches in sequence order in `place` and in `publish`, in any order in `apply`.
//! Each batch that was placed is applied once at most. None is published that was not applied.
//!
//! **Threads.** Any thread calls anything. What is called under the commit lock must neither block nor notify.
//!
//! **Rejected:** a trait object (each write would pay for four dynamic calls). A lock of the environment's own in
//! addition to the commit lock (each write would take two locks). Pebble's `commitEnv` has function pointers `apply`
//! and `write` and leaves the rest to its caller. Here the environment also says what is in the way of a write, as
//! asynchronous writes must not wait in it.

use crate::commit::{Commit, Obstacle, Request};
use crate::parts::{EnvironmentTypes, Note};
use situ_storage::Error as StorageError;
use std::sync::Mutex;

#[cfg(doc)]
use crate::parts::NoLogFile;

/// The interface through which a pipeline uses the store around it. The module's documentation says in which order a
/// write meets its methods.
pub trait Environment: EnvironmentTypes {
    /// Returns the commit lock. It lies in the environment, which changes its places under this lock outside of writes,
    /// too.
    fn commit(&self) -> &Mutex<Commit<Self>>;

    /// Returns true if calls are refused because the store closes. Once true, it stays true. Called under any lock.
    fn is_closing(&self) -> bool;

    /// Returns the reason why the store takes no more writes, if it has failed. Once there, it stays the same. Called
    /// under any lock.
    fn failure(&self) -> Option<Self::Error>;

    /// Fails the store, because the log has failed or a thread has panicked: no more writes are to be taken.
    /// [`failure`](Environment::failure) must say so on return. Threads that wait are to be woken
    /// ([`Pipeline::bell`](crate::Pipeline::bell)). Called with no lock held.
    fn fail(&self, cause: StorageError);

    /// Makes sure that there is room for `batch` as far as that needs no waiting. Called under the commit lock, before
    /// the record goes into the log.
    ///
    /// # Errors
    /// There is none, or there never will be; the batch leaves no trace then.
    fn find_room(&self, commit: &mut Commit<Self>, batch: &Self::Batch) -> Result<(), Obstacle<Self>>;

    /// Lets the log go on in its next file, because the present one has no room for `batch`. Called under the commit
    /// lock.
    ///
    /// # Errors
    /// No file is ready ([`NoLogFile`]), or the log has failed.
    fn next_log_file(&self, commit: &mut Commit<Self>, batch: &Self::Batch) -> Result<(), Obstacle<Self>>;

    /// Says where the changes of `batch` go, whose record is in the log. Called under the commit lock. It cannot fail:
    /// the record cannot be taken back.
    fn place(&self, commit: &mut Commit<Self>, batch: &Self::Batch) -> Self::Targets;

    /// Makes the changes, which have the sequence numbers from `first` on. No reader sees them yet. Called with no lock
    /// held, by several threads at a time for different batches. A panic fails the store.
    fn apply(&self, batch: &Self::Batch, targets: &Self::Targets, first: u64);

    /// Lets readers see a request, which has been applied. Called under the commit lock, in the order of sequence
    /// numbers, without a hole.
    fn publish(&self, request: &Request<Self>);

    /// Does what can be done about want of room. Returns true if the write may be tried again now, false if it is to
    /// wait for the next notification of the event `progress`. May block. Called with no lock held.
    ///
    /// # Errors
    /// The write will not begin.
    fn make_way(&self, no_room: Self::NoRoom) -> Result<bool, Self::Error>;

    /// Notifies the background that a prologue has left work for it ([`Commit::leave_work`]). Called with no lock held.
    fn tell_background(&self);

    /// Receives a further note of the pipeline. Called with no lock held.
    #[inline]
    fn note(&self, _note: Note) {}
}
