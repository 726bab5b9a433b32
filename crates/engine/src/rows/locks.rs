//! Row locks: the transactions that may write a key, those that wait for it, and the time that they wait.
//!
//! A *row* is a key of a keyspace. Rows that are locked or waited for lie in a table that is sharded by the key's hash;
//! a row that no transaction wants takes no memory.
//!
//! **Order.** First come, first served. A transaction that finds a row locked against it, or others waiting, waits at
//! the back, so that a stream of readers does not starve a writer. Only an upgrade (shared to exclusive) goes before
//! all that hold nothing: they could not go on before it anyway.
//!
//! **Waiting** ends by one *verdict*, given under the shard's lock by the event that takes the waiter out of the row's
//! queue: a release that grants, a timeout, a cancelled future, the store's closing, a deadlock found when it came, or
//! the lack of a thread that would end it.
//!
//! **Deadlocks** are looked for when a transaction is about to wait (`deadlock.rs`).
//!
//! **Bounded.** Locks, held and waited for, are counted over all transactions.
//!
//! **Threads.** The wait-for graph's lock is taken before that of a shard, and one shard at a time. No waiter is
//! notified under either of them.

use crate::base::sync::{lock, wake};
use crate::{Error, Result};
use situ_base::Event;
use situ_table::hash_key;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

/// The mode of a lock on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Others may lock the key shared, too; no transaction may write it.
    Shared,
    /// No other transaction may lock the key.
    Exclusive,
}

/// A transaction, as the locks know it.
pub(crate) type Owner = u64;

/// The number of shards: enough that threads on different keys seldom meet.
const SHARDS: usize = 64;

/// A key of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) keyspace: u32,
    pub(crate) key: Arc<[u8]>,
}

/// One transaction that waits for another one to give back, or to be done with waiting for, a row.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) owner: Owner,
    pub(crate) row: Row,
    pub(crate) waits_for: Owner,
}

/// The end of a wait.
#[derive(Debug, Clone)]
pub(crate) enum LockOutcome {
    Granted,
    /// The time was over, or the waiter has given up.
    GivenUp,
    /// No thread would have ended the wait in time, for this reason.
    Failed(Error),
    /// The store closes.
    Closed,
}

/// A waiter for a row.
pub(crate) struct Waiter {
    pub(crate) owner: Owner,
    pub(crate) mode: LockMode,
    pub(crate) row: Row,
    /// True if it holds the row already, shared.
    upgrade: bool,
    state: Mutex<WaiterState>,
    /// The event that its thread sleeps on, if a thread waits.
    event: Option<Arc<dyn Event>>,
}

#[derive(Default)]
struct WaiterState {
    verdict: Option<LockOutcome>,
    /// The owner that was in the way when the waiter gave up.
    waited_for: Owner,
    waker: Option<Waker>,
}

impl Waiter {
    pub(crate) fn verdict(&self) -> Option<LockOutcome> {
        lock(&self.state).verdict.clone()
    }

    /// Returns the verdict if there is one already. Otherwise keeps the waker for the verdict.
    pub(crate) fn verdict_or_wake(&self, waker: &Waker) -> Option<LockOutcome> {
        let mut state = lock(&self.state);
        if state.verdict.is_none() {
            state.waker = Some(waker.clone());
        }
        state.verdict.clone()
    }

    /// Returns the owner that was in the way when the waiter gave up.
    pub(crate) fn waited_for(&self) -> Owner {
        lock(&self.state).waited_for
    }

    fn decide(&self, verdict: LockOutcome) {
        lock(&self.state).verdict.get_or_insert(verdict);
    }

    /// Notifies the waiter. The caller holds no lock.
    fn tell(&self) {
        if let Some(event) = &self.event {
            event.notify();
        }
        let waker = lock(&self.state).waker.take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

/// The holders of a row.
enum Holders {
    Nobody,
    Exclusive(Owner),
    Shared(Vec<Owner>),
}

impl Holders {
    fn admit(&self, owner: Owner, mode: LockMode) -> bool {
        match self {
            Holders::Nobody => true,
            Holders::Exclusive(holder) => *holder == owner,
            Holders::Shared(holders) => mode == LockMode::Shared || holders.iter().all(|holder| *holder == owner),
        }
    }

    fn add(&mut self, owner: Owner, mode: LockMode) {
        match (&mut *self, mode) {
            (_, LockMode::Exclusive) => *self = Holders::Exclusive(owner),
            (Holders::Shared(holders), LockMode::Shared) => holders.push(owner),
            (_, LockMode::Shared) => *self = Holders::Shared(vec![owner]),
        }
    }

    fn remove(&mut self, owner: Owner) {
        match self {
            Holders::Exclusive(holder) if *holder == owner => *self = Holders::Nobody,
            Holders::Shared(holders) => {
                holders.retain(|holder| *holder != owner);
                if holders.is_empty() {
                    *self = Holders::Nobody;
                }
            }
            _ => {}
        }
    }

    fn list(&self) -> &[Owner] {
        match self {
            Holders::Nobody => &[],
            Holders::Exclusive(holder) => std::slice::from_ref(holder),
            Holders::Shared(holders) => holders,
        }
    }
}

struct LockedRow {
    holders: Holders,
    waiters: VecDeque<Arc<Waiter>>,
}

impl LockedRow {
    /// Gives the row to the waiters at the front of the queue that can have it. The caller notifies them.
    fn grant(&mut self, granted: &mut Vec<Arc<Waiter>>) {
        while let Some(front) = self.waiters.front() {
            if !self.holders.admit(front.owner, front.mode) {
                return;
            }
            self.holders.add(front.owner, front.mode);
            front.decide(LockOutcome::Granted);
            granted.extend(self.waiters.pop_front());
        }
    }

    /// Returns the owners that a waiter waits for, except those that the returned ones wait for as well. These are the
    /// nearest ones before it in the queue that are in its way, up to an exclusive one, and behind those the holders.
    fn in_the_way_of(&self, waiter: &Waiter) -> Vec<Owner> {
        let mut owners = Vec::new();
        let Some(place) = self.waiters.iter().position(|other| std::ptr::eq(&**other, waiter)) else { return owners };
        for other in self.waiters.iter().take(place).rev() {
            if waiter.mode == LockMode::Exclusive || other.mode == LockMode::Exclusive {
                owners.push(other.owner);
            }
            if other.mode == LockMode::Exclusive {
                return owners;
            }
        }
        if !self.holders.admit(waiter.owner, waiter.mode) {
            owners.extend(self.holders.list().iter().filter(|holder| **holder != waiter.owner));
        }
        owners
    }

    fn is_unwanted(&self) -> bool {
        matches!(self.holders, Holders::Nobody) && self.waiters.is_empty()
    }
}

type Shard = HashMap<Row, LockedRow>;

/// The outcome of a request for a lock.
pub(crate) enum Acquired {
    Held,
    Queued(Arc<Waiter>),
    /// This owner has the row, and waiting was not allowed.
    Taken(Owner),
    /// Waiting would close this circle.
    Deadlock(Vec<Edge>),
}

/// See the [module](self).
pub(crate) struct LockTable {
    shards: [Mutex<Shard>; SHARDS],
    /// The waiting owners; see `deadlock.rs`.
    pub(crate) waiting: Mutex<HashMap<Owner, Arc<Waiter>>>,
    /// The number of locks held and waited for.
    count: AtomicU64,
    count_max: u64,
    closed: AtomicBool,
}

impl LockTable {
    pub(crate) fn new(count_max: u64) -> LockTable {
        LockTable {
            shards: std::array::from_fn(|_| Mutex::default()),
            waiting: Mutex::default(),
            count: AtomicU64::new(0),
            count_max,
            closed: AtomicBool::new(false),
        }
    }

    /// Returns the number of locks that are held or waited for.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn shard(&self, row: &Row) -> MutexGuard<'_, Shard> {
        let hash = hash_key(&row.key) ^ u64::from(row.keyspace).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }

    fn reserve(&self) -> Result<()> {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before >= self.count_max {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyLocks { locks: before, locks_max: self.count_max });
        }
        Ok(())
    }

    /// Asks for a row. `holds` says that the owner has it shared and asks for more. An owner that has to wait gets a
    /// place in the queue, if it `may_wait`. A thread will sleep on `event`.
    pub(crate) fn acquire(
        &self,
        row: &Row,
        owner: Owner,
        mode: LockMode,
        holds: bool,
        may_wait: bool,
        event: Option<Arc<dyn Event>>,
    ) -> Result<Acquired> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if !holds {
            self.reserve()?;
        }
        let taken_by = {
            let mut shard = self.shard(row);
            match self.try_now(&mut shard, row, owner, mode, holds) {
                true => return Ok(Acquired::Held),
                false => shard[row].holders.list().iter().find(|holder| **holder != owner).copied().unwrap_or(owner),
            }
        };
        let outcome = match may_wait {
            true => self.enqueue(row, owner, mode, holds, event),
            false => Ok(Acquired::Taken(taken_by)),
        };
        // A waiter that gives up its place in the queue, as after a deadlock, has given back this count, too.
        if !holds && matches!(outcome, Ok(Acquired::Taken(_)) | Err(_)) {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    fn try_now(&self, shard: &mut Shard, row: &Row, owner: Owner, mode: LockMode, holds: bool) -> bool {
        match shard.entry(row.clone()) {
            Entry::Vacant(vacant) => {
                let mut holders = Holders::Nobody;
                holders.add(owner, mode);
                vacant.insert(LockedRow { holders, waiters: VecDeque::new() });
                true
            }
            Entry::Occupied(mut occupied) => {
                let locked = occupied.get_mut();
                let now = (holds || locked.waiters.is_empty()) && locked.holders.admit(owner, mode);
                if now {
                    locked.holders.add(owner, mode);
                }
                now
            }
        }
    }

    fn enqueue(
        &self,
        row: &Row,
        owner: Owner,
        mode: LockMode,
        upgrade: bool,
        event: Option<Arc<dyn Event>>,
    ) -> Result<Acquired> {
        let waiter = Arc::new(Waiter { owner, mode, row: row.clone(), upgrade, state: Mutex::default(), event });
        // Held until the search is over: of several that close a circle together, the last one finds it.
        let mut waiting = lock(&self.waiting);
        {
            let mut shard = self.shard(row);
            // Looked at under the shard's lock: closing comes to each shard after it has set the flag.
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            if self.try_now(&mut shard, row, owner, mode, upgrade) {
                return Ok(Acquired::Held);
            }
            let locked = shard.get_mut(row).expect("somebody has the row");
            let place = match upgrade {
                true => locked.waiters.iter().take_while(|other| other.upgrade).count(),
                false => locked.waiters.len(),
            };
            locked.waiters.insert(place, Arc::clone(&waiter));
        }
        waiting.insert(owner, Arc::clone(&waiter));
        let Some(circle) = self.find_circle(&waiting, &waiter) else { return Ok(Acquired::Queued(waiter)) };
        waiting.remove(&owner);
        drop(waiting);
        // The lock may have been granted during the search: then the circle is gone.
        match self.give_up(&waiter) {
            true => Ok(Acquired::Deadlock(circle)),
            false => Ok(Acquired::Queued(waiter)),
        }
    }

    /// Ends a wait that is not decided yet. Returns true if this call ended it.
    pub(crate) fn give_up(&self, waiter: &Waiter) -> bool {
        self.end_wait(waiter, LockOutcome::GivenUp)
    }

    /// As [`give_up`](LockTable::give_up), for a reason that the waiter's transaction gets.
    pub(crate) fn fail(&self, waiter: &Waiter, error: Error) -> bool {
        self.end_wait(waiter, LockOutcome::Failed(error))
    }

    fn end_wait(&self, waiter: &Waiter, verdict: LockOutcome) -> bool {
        let mut granted = Vec::new();
        {
            let mut shard = self.shard(&waiter.row);
            let Some(locked) = shard.get_mut(&waiter.row) else { return false };
            let Some(place) = locked.waiters.iter().position(|other| std::ptr::eq(&**other, waiter)) else {
                return false;
            };
            if let Some(first) = locked.in_the_way_of(waiter).first() {
                lock(&waiter.state).waited_for = *first;
            }
            waiter.decide(verdict);
            locked.waiters.remove(place);
            // Those behind it may have waited for it only.
            locked.grant(&mut granted);
        }
        if !waiter.upgrade {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        granted.iter().for_each(|other| other.tell());
        waiter.tell();
        true
    }

    /// Removes a wait that is over from the graph.
    pub(crate) fn forget_wait(&self, waiter: &Arc<Waiter>) {
        let mut waiting = lock(&self.waiting);
        if waiting.get(&waiter.owner).is_some_and(|other| Arc::ptr_eq(other, waiter)) {
            waiting.remove(&waiter.owner);
        }
    }

    /// Gives a row back.
    pub(crate) fn release(&self, row: &Row, owner: Owner) {
        let mut granted = Vec::new();
        {
            let mut shard = self.shard(row);
            if let Some(locked) = shard.get_mut(row) {
                locked.holders.remove(owner);
                locked.grant(&mut granted);
                if locked.is_unwanted() {
                    shard.remove(row);
                    // A burst of locks leaves no memory behind.
                    if shard.is_empty() && shard.capacity() > 1024 {
                        shard.shrink_to_fit();
                    }
                }
            }
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        granted.iter().for_each(|waiter| waiter.tell());
    }

    /// Returns the owners that a waiter waits for; see [`LockedRow::in_the_way_of`].
    pub(crate) fn in_the_way_of(&self, waiter: &Waiter) -> Vec<Owner> {
        self.shard(&waiter.row).get(&waiter.row).map_or_else(Vec::new, |locked| locked.in_the_way_of(waiter))
    }

    /// Closes the table: all waits end, and no transaction gets a lock.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for shard in &self.shards {
            let mut left = Vec::new();
            for locked in lock(shard).values_mut() {
                left.extend(locked.waiters.drain(..));
            }
            for waiter in &left {
                waiter.decide(LockOutcome::Closed);
                if !waiter.upgrade {
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
                waiter.tell();
            }
        }
    }
}
