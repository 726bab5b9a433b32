//! Reads that need the disk: begun for a command of one connection, delivered to that connection's loop.
//!
//! 1. A command asks the engine for a key. The engine has no answer at once, and takes an [`OnRead`] that
//!    [`Fetches::begin`] made.
//! 2. The command ends with [`Wait::Read`](crate::waiting::Wait::Read), having changed nothing. Its connection is
//!    parked. All other connections of the loop go on.
//! 3. The engine calls the callback, from any thread. The callback leaves the outcome in the loop's [`Mailbox`], and a
//!    message in the inbox if the mailbox was empty.
//! 4. The loop hands each outcome to the [`Reads`] of its connection. When none is missing, the command runs again, and
//!    takes the outcomes instead of asking the engine.
//!
//! An engine can let the loop itself read ([`LoopReader`](crate::LoopReader)). Then the callback is called on the
//! loop's thread, mostly. The steps are the same.
//!
//! A command that changes an item owns the stripe of its key from before the read until its write is answered. So no
//! change comes between the read and the write, and two connections that increment one key lose no increment. A command
//! that only reads holds no stripe while it waits.
//!
//! **Invariants.** Each [`OnRead`] delivers exactly once, also if the engine drops it. A read has a number, which no
//! other read of the loop has. The outcome of a read that no slot waits for is dropped. A command takes outcomes in the
//! order of its keys, and each outcome is of the key that the command asks for.
//!
//! **Bounded.** At most [`READS_MAX`] reads of a server are under way. A command that needs another one waits until a
//! read has ended ([`Wait::ReadSlot`](crate::waiting::Wait::ReadSlot)). A command whose answer is in memory does not
//! wait. A retrieval reads up to [`AHEAD_MAX`] keys at a time. It reads one key at a time while its loop has
//! [`AHEAD_WHILE`] reads or more under way. Outcomes stay in memory for one turn at most: a connection that is parked
//! for a reason of its client drops them. It reads them again later, one key at a time.
//!
//! **Failure.** A failed read is the answer of its command, as if the engine had said so at once. A connection that is
//! closed meanwhile leaves its read to end by itself. When a loop has ended, its mailbox goes with the last read.
//!
//! **Rejected.** A future for each command: a hit would have to go through it. Running later commands of the connection
//! while an earlier one waits: answers would need places, as writes have, and a later command could overtake a change.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use situ_base::lock;

use crate::engine::{EngineError, OnRead};
use crate::waiting::inbox::{Inbox, Message};

/// Reads under way in one server, all loops together. A Situ store lets 4096 wait for its threads.
pub(crate) const READS_MAX: usize = 2048;
/// Keys of one retrieval that are read at the same time.
const AHEAD_MAX: usize = 8;
/// The number of reads under way at which a loop stops to read keys ahead: the disk has enough to do.
const AHEAD_WHILE: usize = 64;

/// The outcome of a read of the engine.
pub(crate) type Fetched<V> = Result<Option<V>, EngineError>;

/// The outcome of one read, on its way to a connection.
pub(crate) struct Arrival<V> {
    pub(crate) connection: u64,
    pub(crate) number: u64,
    pub(crate) fetched: Fetched<V>,
}

/// A mailbox in which threads of the engine leave outcomes for a loop.
struct Mailbox<V> {
    arrivals: Mutex<Vec<Arrival<V>>>,
    inbox: Arc<Inbox>,
}

impl<V> Mailbox<V> {
    fn put(&self, arrival: Arrival<V>) {
        let was_empty = {
            let mut arrivals = lock(&self.arrivals);
            arrivals.push(arrival);
            arrivals.len() == 1
        };
        // The loop takes all at once: one message serves all that come before it looks.
        if was_empty {
            self.inbox.post(Message::Arrived);
        }
    }

    fn take(&self) -> Vec<Arrival<V>> {
        std::mem::take(&mut *lock(&self.arrivals))
    }
}

/// Delivers a read's outcome exactly once, even if the engine drops its callback.
struct Delivery<V> {
    mailbox: Arc<Mailbox<V>>,
    connection: u64,
    number: u64,
    delivered: bool,
}

impl<V> Delivery<V> {
    fn deliver(&mut self, fetched: Fetched<V>) {
        self.delivered = true;
        self.mailbox.put(Arrival { connection: self.connection, number: self.number, fetched });
    }
}

impl<V> Drop for Delivery<V> {
    fn drop(&mut self) {
        if !self.delivered {
            self.deliver(Err(EngineError::new("the engine dropped the read")));
        }
    }
}

/// The reads of one loop that are under way. See the module.
pub(crate) struct Fetches<V> {
    mailbox: Arc<Mailbox<V>>,
    under_way: usize,
    under_way_max: usize,
    /// The number of the last read.
    last_number: u64,
    /// Connections that found too many reads under way, in the order of their asking.
    crowd: VecDeque<u64>,
}

impl<V: Send + 'static> Fetches<V> {
    pub(crate) fn new(inbox: Arc<Inbox>, under_way_max: usize) -> Fetches<V> {
        let mailbox = Arc::new(Mailbox { arrivals: Mutex::default(), inbox });
        Fetches { mailbox, under_way: 0, under_way_max, last_number: 0, crowd: VecDeque::new() }
    }

    /// Begins a read for `connection`. Returns the callback and the read's number; `None` if too many are under way.
    pub(crate) fn begin(&mut self, connection: u64) -> Option<(u64, OnRead<V>)> {
        if self.under_way >= self.under_way_max {
            return None;
        }
        self.under_way += 1;
        self.last_number += 1;
        let number = self.last_number;
        let mut delivery = Delivery { mailbox: Arc::clone(&self.mailbox), connection, number, delivered: false };
        Some((number, Box::new(move |fetched| delivery.deliver(fetched))))
    }

    /// Returns the outcomes that have come.
    pub(crate) fn arrivals(&mut self) -> Vec<Arrival<V>> {
        let arrivals = self.mailbox.take();
        assert!(arrivals.len() <= self.under_way, "{} outcomes of {} reads", arrivals.len(), self.under_way);
        self.under_way -= arrivals.len();
        arrivals
    }

    /// Returns true while a retrieval may read keys behind the one that it waits for.
    pub(crate) fn may_read_ahead(&self) -> bool {
        self.under_way < AHEAD_WHILE.min(self.under_way_max)
    }

    /// Makes `connection` wait until a read has ended.
    pub(crate) fn wait(&mut self, connection: u64) {
        self.crowd.push_back(connection);
    }

    /// Returns true if a connection waits that could begin a read now.
    pub(crate) fn can_admit(&self) -> bool {
        !self.crowd.is_empty() && self.under_way < self.under_way_max
    }

    /// Returns the connections that may try again: as many as could begin a read.
    pub(crate) fn admit(&mut self) -> Vec<u64> {
        let admitted = self.crowd.len().min(self.under_way_max - self.under_way);
        self.crowd.drain(..admitted).collect()
    }
}

/// One key that a command reads.
struct Slot<V> {
    number: u64,
    key: Box<[u8]>,
    /// `None` until the outcome has come.
    fetched: Option<Fetched<V>>,
}

/// The reads of the command that a connection runs, in the order of its keys. Empty for a command that finds everything
/// in memory.
pub(crate) struct Reads<V> {
    slots: VecDeque<Slot<V>>,
    missing: usize,
    /// The command had to drop what it had read, and reads no keys ahead any more.
    one_at_a_time: bool,
}

impl<V> Reads<V> {
    pub(crate) fn new() -> Reads<V> {
        Reads { slots: VecDeque::new(), missing: 0, one_at_a_time: false }
    }

    /// Returns true if the command may read one more key ahead.
    pub(crate) fn may_read_ahead(&self) -> bool {
        !self.one_at_a_time && self.slots.len() < AHEAD_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Keeps the place of the read `number`, of `key`.
    pub(crate) fn expect(&mut self, number: u64, key: &[u8]) {
        self.missing += 1;
        self.slots.push_back(Slot { number, key: key.into(), fetched: None });
    }

    /// Keeps what was found at once for `key`, which lies behind a key that waits.
    pub(crate) fn keep(&mut self, key: &[u8], fetched: Fetched<V>) {
        // No read has the number 0.
        self.slots.push_back(Slot { number: 0, key: key.into(), fetched: Some(fetched) });
    }

    /// The read `number` has ended. True if none is missing any more; false also if no slot waits for this one.
    pub(crate) fn arrive(&mut self, number: u64, fetched: Fetched<V>) -> bool {
        let waits = |slot: &&mut Slot<V>| slot.number == number && slot.fetched.is_none();
        let Some(slot) = self.slots.iter_mut().find(waits) else { return false };
        slot.fetched = Some(fetched);
        self.missing -= 1;
        self.missing == 0
    }

    /// Returns the outcome for `key`, if the command has read it.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Fetched<V>> {
        let slot = self.slots.pop_front()?;
        assert!(*slot.key == *key, "a command asks for {:?} and has read {:?}", key, slot.key);
        assert!(slot.fetched.is_some(), "a command runs while its read of {key:?} is under way");
        if self.slots.is_empty() {
            self.slots = VecDeque::new();
        }
        slot.fetched
    }

    /// Drops what has come; the command asks the engine again.
    pub(crate) fn give_up(&mut self) {
        self.one_at_a_time |= !self.slots.is_empty();
        self.drop_slots();
    }

    /// Ends the reads of a command that has ended.
    pub(crate) fn finish(&mut self) {
        self.one_at_a_time = false;
        self.drop_slots();
    }

    fn drop_slots(&mut self) {
        assert!(self.missing == 0, "a command goes on while {} of its reads are under way", self.missing);
        if !self.slots.is_empty() {
            self.slots = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetches(under_way_max: usize) -> (Arc<Inbox>, Fetches<Vec<u8>>) {
        let inbox = Arc::new(Inbox::new().unwrap());
        (Arc::clone(&inbox), Fetches::new(inbox, under_way_max))
    }

    fn messages(inbox: &Inbox) -> usize {
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        messages.len()
    }

    #[test]
    fn each_read_is_delivered_once_also_if_the_engine_drops_it() {
        let (inbox, mut fetches) = fetches(3);
        let [(one, first), (two, second), (three, third)] =
            [7, 8, 9].map(|connection| fetches.begin(connection).unwrap());
        assert!(fetches.begin(10).is_none(), "three at most");
        std::thread::spawn(move || second(Ok(Some(b"value".to_vec())))).join().unwrap();
        drop(first);
        assert_eq!(messages(&inbox), 1, "one message for all that is in the mailbox");
        let arrivals = fetches.arrivals();
        let told: Vec<_> = arrivals.iter().map(|arrival| (arrival.connection, arrival.number)).collect();
        assert_eq!(told, [(8, two), (7, one)]);
        assert_eq!(arrivals[0].fetched, Ok(Some(b"value".to_vec())));
        assert!(arrivals[1].fetched.as_ref().is_err_and(|error| error.to_string().contains("dropped the read")));
        third(Ok(None));
        assert_eq!((messages(&inbox), fetches.arrivals()[0].number), (1, three));
        assert_eq!(fetches.under_way, 0);
    }

    #[test]
    fn as_many_of_a_crowd_try_again_as_there_is_space_for() {
        let (_inbox, mut fetches) = fetches(2);
        let (one, two) = (fetches.begin(1).unwrap().1, fetches.begin(2).unwrap().1);
        (3..=5).for_each(|connection| fetches.wait(connection));
        assert!(!fetches.can_admit() && fetches.admit().is_empty());
        one(Ok(None));
        fetches.arrivals();
        assert!(fetches.can_admit());
        assert_eq!(fetches.admit(), [3]);
        two(Ok(None));
        fetches.arrivals();
        assert_eq!(fetches.admit(), [4, 5]);
        assert!(!fetches.can_admit());
    }

    #[test]
    fn outcomes_are_taken_in_the_order_of_the_keys() {
        let mut reads = Reads::new();
        reads.expect(5, b"a");
        reads.keep(b"b", Ok(None));
        reads.expect(6, b"c");
        assert!(!reads.arrive(7, Ok(Some("nobody waits for it"))));
        assert!(!reads.arrive(6, Ok(Some("C"))));
        assert!(!reads.arrive(6, Ok(Some("twice"))));
        assert!(reads.arrive(5, Ok(Some("A"))));
        let taken = [b"a", b"b", b"c", b"d"].map(|key| reads.take(key));
        assert_eq!(taken, [Some(Ok(Some("A"))), Some(Ok(None)), Some(Ok(Some("C"))), None]);
    }

    #[test]
    fn a_command_that_dropped_what_it_read_reads_one_key_at_a_time_to_its_end() {
        let mut reads = Reads::<&str>::new();
        reads.give_up();
        assert!(reads.may_read_ahead(), "nothing was dropped");
        (0..AHEAD_MAX).for_each(|_| reads.keep(b"a", Ok(None)));
        assert!(!reads.may_read_ahead());
        reads.give_up();
        assert!(reads.is_empty() && !reads.may_read_ahead());
        reads.finish();
        assert!(reads.may_read_ahead());
    }
}
