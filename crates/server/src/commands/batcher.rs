//! The batch of changes that a loop gathers in a turn, and its way into the engine.
//!
//! **Back-pressure.** A batch is handed over when there is [room](crate::waiting::room) for it with those of other
//! loops. The engine may let it wait. Then the next batch gathers, and is not handed over before the first is taken
//! ([`Wait::Admission`](crate::waiting::Wait::Admission)). A connection with a change in the waiting batch runs nothing
//! more. When the gathered batch is full, too, no change is accepted. So what waits is bounded, and commands that only
//! read never wait.

use crate::engine::{Admission, Engine, EngineError, OnTaken, WriteBatch};
use crate::waiting::StripeIndex;
use crate::waiting::inbox::{Inbox, Message};
use crate::waiting::room::Room;
use crate::waiting::stripe::Stripes;
use std::sync::Arc;

/// A batch that has grown to this is submitted before the turn ends.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;
const BATCH_CHANGES_MAX: usize = 1024;

/// See the module.
pub(crate) struct Batcher {
    stripes: Arc<Stripes>,
    inbox: Arc<Inbox>,
    room: Arc<Room>,
    /// The changes that gather. Each has an owner: see [`Batcher::own`].
    pub(crate) batch: WriteBatch,
    /// The connection of each change, and the stripe that it holds.
    owners: Vec<(u64, StripeIndex)>,
    /// The number of the batch that gathers.
    batch_number: u64,
    /// The next number for a batch, or for another write that is answered like one.
    next_number: u64,
    /// The batch that the engine has not taken yet. Until it has, no other is handed over.
    waiting: Option<u64>,
    /// The size of that batch.
    waiting_bytes: u64,
    /// True while there is no room for the gathered batch with those of other loops.
    outside: bool,
    /// Connections that continue when the gathered batch may go.
    held: Vec<u64>,
}

impl Batcher {
    pub(crate) fn new(stripes: Arc<Stripes>, inbox: Arc<Inbox>, room: Arc<Room>) -> Batcher {
        Batcher {
            stripes,
            inbox,
            room,
            batch: WriteBatch::default(),
            owners: Vec::new(),
            batch_number: 0,
            next_number: 1,
            waiting: None,
            waiting_bytes: 0,
            outside: false,
            held: Vec::new(),
        }
    }

    /// Makes `connection` the owner of the change that was appended last, which holds `stripe`. Returns the number of
    /// the batch.
    #[inline]
    pub(crate) fn own(&mut self, connection: u64, stripe: StripeIndex) -> u64 {
        self.owners.push((connection, stripe));
        debug_assert_eq!(self.owners.len(), self.batch.len(), "a change has no owner");
        self.batch_number
    }

    /// Returns a number for a write that is answered like a batch.
    pub(crate) fn take_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Hands the gathered batch to the engine, unless another one waits there or there is no room.
    pub(crate) fn submit(&mut self, engine: &impl Engine) {
        if self.batch.is_empty() || self.is_held_back() {
            return;
        }
        let bytes = self.batch.byte_len() as u64;
        if !self.room.enter(bytes, &self.inbox) {
            self.outside = true;
            return;
        }
        let mut completion = Completion {
            stripes: Arc::clone(&self.stripes),
            inbox: Arc::clone(&self.inbox),
            batch: self.batch_number,
            owners: std::mem::take(&mut self.owners),
        };
        let next = self.take_number();
        let number = std::mem::replace(&mut self.batch_number, next);
        let batch = std::mem::take(&mut self.batch);
        let inbox = Arc::clone(&self.inbox);
        let on_taken: OnTaken = Arc::new(move || inbox.post(Message::Taken { batch: number }));
        let admission = engine.write(batch, &on_taken, Box::new(move |result| completion.finish(result)));
        match admission {
            Admission::Taken => self.room.leave(bytes),
            Admission::Waiting => (self.waiting, self.waiting_bytes) = (Some(number), bytes),
        }
    }

    /// Notes that the engine has taken `batch`. Returns false if it is not the one that waits: a batch may be said to
    /// be taken twice, by its [`OnTaken`] and by its answer, which come from different threads and in any order.
    pub(crate) fn taken(&mut self, batch: u64) -> bool {
        let waited = self.waiting == Some(batch);
        if waited {
            self.waiting = None;
            self.room.leave(self.waiting_bytes);
        }
        waited
    }

    /// Notes that there may be room again.
    pub(crate) fn may_enter(&mut self) {
        self.outside = false;
    }

    /// Enters a connection that waits until the engine takes the batch.
    pub(crate) fn hold(&mut self, connection: u64) {
        self.held.push(connection);
    }

    /// Takes the connections that wait until the engine takes the batch.
    pub(crate) fn take_held(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.held)
    }

    /// Returns true if a connection whose last change is in `last_batch` may run nothing: the engine has not taken that
    /// batch.
    #[inline]
    pub(crate) fn holds_back(&self, last_batch: Option<u64>) -> bool {
        self.waiting.is_some() && last_batch == self.waiting
    }

    /// Returns true if the gathered batch is full and cannot be handed over.
    #[inline]
    pub(crate) fn takes_no_change(&self) -> bool {
        self.is_held_back() && self.is_full()
    }

    /// Returns true if the gathered batch has grown enough to be submitted before the turn ends.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.batch.byte_len() >= BATCH_BYTES_MAX || self.batch.len() >= BATCH_CHANGES_MAX
    }

    /// Returns true if no batch can be handed over now.
    #[inline]
    fn is_held_back(&self) -> bool {
        self.waiting.is_some() || self.outside
    }
}

/// Reports a batch's fate exactly once, even if the engine drops its callback.
struct Completion {
    stripes: Arc<Stripes>,
    inbox: Arc<Inbox>,
    batch: u64,
    owners: Vec<(u64, StripeIndex)>,
}

impl Completion {
    fn finish(&mut self, result: Result<(), EngineError>) {
        let mut connections = Vec::with_capacity(self.owners.len());
        for (connection, stripe) in self.owners.drain(..) {
            self.stripes.release(stripe);
            if connections.last() != Some(&connection) {
                connections.push(connection);
            }
        }
        self.inbox.post(Message::Completed { batch: self.batch, connections, result });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.owners.is_empty() {
            self.finish(Err(EngineError::new("the engine dropped the write")));
        }
    }
}
