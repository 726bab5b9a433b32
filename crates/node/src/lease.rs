//! The lease of a store: the right to change its files.
//!
//! 1. A client asks for the lease. It gets a *token*: a number that is larger than every token given out before.
//! 2. Each change carries the token. The node refuses a change with any other token than the last.
//! 3. The owner renews the lease. Every change that is let through from the owner's own session renews it, too. A
//!    change of a helper, which writes a task's output under the owner's token, does not: it is no sign that the owner
//!    is alive.
//! 4. An owner that has not renewed for the lease's *term* keeps the lease until another client asks. Then the node
//!    first keeps the owner's changes out, and waits for those under way. Only then does the successor get its token.
//!
//! **Invariants.** A token is durable before it is given out. Two clients never hold tokens that are let through. After
//! a restart of the node, the owner that is noted has a whole term to renew.
//!
//! While a client has the lease, the node has the volume's own lock. So no other process on the node opens the store
//! meanwhile.
//!
//! **Threads.** Any. One thread at a time hands the lease over, or gives it back. A client that asks meanwhile is
//! refused if another one is given the lease. It waits if the lease is given back, or is given to that client itself:
//! its request was sent again. One client waits at a time. No lock is held while the note is written or changes are
//! waited for.
//!
//! **Failure.** A note that cannot be written is an error of the client that asked; no client has the lease then, and
//! the token is not given out again. A note that is damaged is an error: without it, the node does not know which
//! tokens are too old.
//!
//! Rejected: a lease that ends when its term is over. An owner that a slow network holds up for a while would lose its
//! store, though no other client wants it.

mod note;

pub(crate) use note::Note;

use crate::error::CallError;
use crate::gate::{Gate, Pass};
use note::Noted;
use situ_base::{Env, Event, lock, utc};
use situ_storage::{Error, Lock, Result, Volume};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A client, for as long as it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The id of the client's session.
    pub(crate) id: u128,
    /// For people.
    pub(crate) name: String,
}

/// The facts about clients that a lease needs.
pub(crate) trait Clients {
    /// Returns true if the client with this id has a connection.
    fn is_connected(&self, id: u128) -> bool;
}

/// The maximum time for the changes of a former owner to end.
const DRAIN: Duration = Duration::from_secs(30);

/// The lease of one store.
pub(crate) struct Lease {
    env: Env,
    store: String,
    term: Duration,
    note: Note,
    volume: Arc<dyn Volume>,
    state: Mutex<State>,
    changed: Arc<dyn Event>,
}

struct State {
    /// The largest one that may have been given out.
    token: u64,
    holder: Option<Holder>,
    /// The volume's own lock, while a client has the lease.
    lock: Option<Box<dyn Lock>>,
    /// Changes of the newest token pass it.
    gate: Arc<Gate>,
    /// A thread keeps changes out, or writes the note. No other client gets the lease meanwhile.
    change: Option<Change>,
    /// Why the owner that was noted did not get the lease again when the node was started.
    refused: Option<String>,
    /// The client that waits for the holder's term to end, or for a change to be over.
    waiting: Option<Waiter>,
}

/// A change of the lease that a thread makes.
enum Change {
    /// The client of this name has given it back.
    GivenBack(String),
    GivenTo(Owner),
}

/// A client that waits, with each copy of its request.
struct Waiter {
    id: u128,
    copies: usize,
}

/// A [`Change`] is under way until this is dropped.
struct Changing<'a>(&'a Lease);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).change = None;
        self.0.changed.notify();
    }
}

impl Change {
    /// Why a client is not given the lease now, and whether it may wait.
    fn to(&self, owner: &Owner) -> (String, bool) {
        match self {
            Change::GivenTo(other) if other.id != owner.id => {
                (format!("{} is just being given it; close that one, or open read-only", other.name), false)
            }
            Change::GivenTo(_) => ("an earlier request of this client waits for the node's disk".to_owned(), true),
            Change::GivenBack(name) => (
                format!(
                    "{name} is just closing it, and the node's disk has not finished what that one had begun; try again later"
                ),
                true,
            ),
        }
    }
}

impl State {
    /// Asserts that the owner has the volume's lock, and that the lease is not given back while it has an owner.
    fn check(&self) {
        let has_owner = self.holder.is_some();
        assert!(!has_owner || self.lock.is_some(), "a client has lease {} without the volume's lock", self.token);
        let is_given_back = matches!(self.change, Some(Change::GivenBack(_)));
        assert!(!has_owner || !is_given_back, "a client has lease {}, which was given back", self.token);
    }

    /// Has a client wait, `until` at most; `None` if another one waits, or it is too late.
    fn wait(&mut self, owner: &Owner, waits: &mut bool, until: Duration, now: Duration) -> Option<Turn> {
        if now >= until {
            return None;
        }
        match &mut self.waiting {
            _ if *waits => {}
            Some(other) if other.id != owner.id => return None,
            Some(same) => same.copies += 1,
            None => self.waiting = Some(Waiter { id: owner.id, copies: 1 }),
        }
        *waits = true;
        Some(Turn::Wait((until - now).max(Duration::from_millis(1))))
    }

    /// A copy of a request that waited does so no more.
    fn end_wait(&mut self) {
        assert!(self.waiting.is_some(), "a request that waits is counted");
        self.waiting = self.waiting.take().filter(|waiter| waiter.copies > 1);
        if let Some(waiter) = &mut self.waiting {
            waiter.copies -= 1;
        }
    }
}

#[derive(Clone)]
struct Holder {
    owner: Owner,
    since_unix_s: u64,
    renewed: Duration,
}

/// The immediate answer to an asker.
enum Turn {
    Mine(u64),
    /// It is this one's to take, when changes of the former owner have ended.
    Take,
    Wait(Duration),
}

impl Lease {
    /// The lease as the note says.
    ///
    /// # Errors
    /// The note cannot be read, or is damaged.
    pub(crate) fn open(env: &Env, store: &str, term: Duration, note: Note, volume: &Arc<dyn Volume>) -> Result<Lease> {
        let noted = note.read(store)?;
        let renewed = env.clock.now();
        let holder = noted.owner.map(|(owner, since_unix_s)| Holder { owner, since_unix_s, renewed });
        // A process on the node that has the store by now has taken it from the owner.
        let (holder, lock, refused) = match holder.map(|holder| (volume.lock(), holder)) {
            Some((Ok(lock), holder)) => (Some(holder), Some(lock), None),
            Some((Err(why), holder)) => (None, None, Some(not_again(&holder, &why))),
            None => (None, None, None),
        };
        let gate = Gate::new(env);
        let state = State { token: noted.token, holder, lock, gate, change: None, refused, waiting: None };
        state.check();
        Ok(Lease {
            env: env.clone(),
            store: store.to_owned(),
            term,
            note,
            volume: Arc::clone(volume),
            state: Mutex::new(state),
            changed: env.executor.event(),
        })
    }

    /// After how long without a sign an owner may lose the lease.
    pub(crate) fn term(&self) -> Duration {
        self.term
    }

    /// The id of the client that has it, unless that one has been silent for `linger` and for a term. Of a lease that
    /// changes hands, too.
    pub(crate) fn awaits(&self, linger: Duration) -> Option<u128> {
        let now = self.env.clock.now();
        let state = lock(&self.state);
        match (&state.change, &state.holder) {
            (Some(Change::GivenTo(owner)), _) => Some(owner.id),
            (_, Some(holder)) if now.saturating_sub(holder.renewed) < linger.max(self.term) => Some(holder.owner.id),
            _ => None,
        }
    }

    /// The id of the client that has it.
    pub(crate) fn holder_id(&self) -> Option<u128> {
        lock(&self.state).holder.as_ref().map(|holder| holder.owner.id)
    }

    /// Gives the lease to `owner`. If another one has it, and has lost its connection or is silent, the call waits
    /// until that one's term is over, `patience` at most. So does a call while the lease is given back. The owner
    /// itself gets its token again: it did not hear of the first answer.
    ///
    /// # Errors
    /// [`Locked`](Error::Locked): another client has it, or a process on the node; the note cannot be written.
    pub(crate) fn take(&self, owner: &Owner, patience: Duration, clients: &dyn Clients) -> Result<u64> {
        let deadline = self.env.clock.now() + patience;
        let mut waits = false;
        let outcome = loop {
            let seen = self.changed.generation();
            match self.turn(owner, deadline, &mut waits, clients) {
                Ok(Turn::Mine(token)) => break Ok(token),
                Ok(Turn::Take) => break self.hand_over(owner),
                Ok(Turn::Wait(left)) => {
                    self.changed.wait(seen, Some(left));
                }
                Err(error) => break Err(error),
            }
        };
        if waits {
            lock(&self.state).end_wait();
        }
        outcome
    }

    fn turn(&self, owner: &Owner, deadline: Duration, waits: &mut bool, clients: &dyn Clients) -> Result<Turn> {
        let is_connected = |holder: &Holder| clients.is_connected(holder.owner.id);
        let mut state = lock(&self.state);
        state.check();
        let now = self.env.clock.now();
        if let Some(change) = &state.change {
            let (why, may_wait) = change.to(owner);
            let wait = if may_wait { state.wait(owner, waits, deadline, now) } else { None };
            return wait.ok_or_else(|| self.locked(why));
        }
        let Some(holder) = state.holder.clone() else {
            state.change = Some(Change::GivenTo(owner.clone()));
            return Ok(Turn::Take);
        };
        if holder.owner.id == owner.id {
            return Ok(Turn::Mine(state.token));
        }
        let ends = holder.renewed + self.term;
        if now >= ends {
            state.change = Some(Change::GivenTo(owner.clone()));
            state.holder = None;
            return Ok(Turn::Take);
        }
        let is_alive = is_connected(&holder) && now.saturating_sub(holder.renewed) <= self.term / 2;
        let wait = if is_alive { None } else { state.wait(owner, waits, ends.min(deadline), now) };
        wait.ok_or_else(|| self.held_by(&holder))
    }

    fn hand_over(&self, owner: &Owner) -> Result<u64> {
        let _changing = Changing(self);
        self.give(owner)
    }

    fn give(&self, owner: &Owner) -> Result<u64> {
        let former = Arc::clone(&lock(&self.state).gate);
        if !former.shut(&self.env, DRAIN) {
            return Err(self.locked(
                "the node's disk does not finish what the former owner had begun; look after that disk, then try again"
                    .to_owned(),
            ));
        }
        // Taken when the former owner's changes are over. It stays taken from owner to owner.
        if lock(&self.state).lock.is_none() {
            let taken = self.volume.lock()?;
            lock(&self.state).lock = Some(taken);
        }
        // A note that may have reached the disk counts: its token is not given to any other client.
        let token = {
            let mut state = lock(&self.state);
            state.token += 1;
            state.token
        };
        let since_unix_s = self.env.clock.unix().as_secs();
        self.note.write(&Noted { store: self.store.clone(), token, owner: Some((owner.clone(), since_unix_s)) })?;
        let renewed = self.env.clock.now();
        let mut state = lock(&self.state);
        assert_eq!(state.token, token, "another token was given out meanwhile");
        let is_given = matches!(&state.change, Some(Change::GivenTo(to)) if to.id == owner.id);
        assert!(is_given && state.holder.is_none(), "two clients are given lease {token}");
        assert!(Arc::ptr_eq(&state.gate, &former) && former.is_empty(), "a change passes that is older than {token}");
        state.holder = Some(Holder { owner: owner.clone(), since_unix_s, renewed });
        state.refused = None;
        state.gate = Gate::new(&self.env);
        state.check();
        Ok(token)
    }

    /// Lets a change of a client pass. It renews the lease if the client is the owner.
    ///
    /// # Errors
    /// [`Fenced`](CallError::Fenced): the token is not that of the owner.
    pub(crate) fn enter(&self, token: u64, client: u128) -> Result<Pass, CallError> {
        match self.holder_id() {
            Some(holder) if holder != client => {}
            _ => self.renew(token, client)?,
        }
        self.pass(token)
    }

    /// Lets a change pass that a helper makes for the owner, such as the output of a task. It is no sign that the owner
    /// is alive: a task must not keep the lease of an owner that has died.
    ///
    /// # Errors
    /// As [`enter`](Lease::enter).
    pub(crate) fn pass(&self, token: u64) -> Result<Pass, CallError> {
        let gate = {
            let state = lock(&self.state);
            self.check(&state, token)?;
            Arc::clone(&state.gate)
        };
        // Between the two looks, the lease may have been handed over. Then the gate is shut, or another token's.
        gate.enter().ok_or_else(|| self.lost("another client has been given the lease, or it was given back"))
    }

    /// Says that the owner is alive.
    ///
    /// # Errors
    /// As [`enter`](Lease::enter); the client is not the owner.
    pub(crate) fn renew(&self, token: u64, client: u128) -> Result<(), CallError> {
        let now = self.env.clock.now();
        {
            let mut state = lock(&self.state);
            self.check(&state, token)?;
            match state.holder.as_mut() {
                Some(holder) if holder.owner.id == client => holder.renewed = now,
                Some(holder) => return Err(self.lost(&had_by(holder))),
                None => {}
            }
        }
        self.changed.notify();
        Ok(())
    }

    /// Checks that the token is that of the owner.
    fn check(&self, state: &State, token: u64) -> Result<(), CallError> {
        let how = match (&state.holder, &state.change) {
            (Some(_), _) if state.token == token => return Ok(()),
            (Some(holder), _) => had_by(holder),
            (None, Some(Change::GivenTo(other))) => format!("{} is just being given the lease", other.name),
            (None, _) => state.refused.clone().unwrap_or_else(|| "the lease was given back, or has ended".to_owned()),
        };
        Err(self.lost(&how))
    }

    /// Gives the lease back. A token that is not the owner's gives nothing back.
    pub(crate) fn give_back(&self, token: u64) {
        let former = {
            let mut state = lock(&self.state);
            if state.token != token || state.change.is_some() {
                return;
            }
            let Some(holder) = state.holder.take() else { return };
            state.change = Some(Change::GivenBack(holder.owner.name));
            state.check();
            Arc::clone(&state.gate)
        };
        let _changing = Changing(self);
        // A note that still names the owner makes the next client wait for a term. It is no reason to refuse anything.
        let _ = self.note.write(&Noted { store: self.store.clone(), token, owner: None });
        // A change that does not end keeps the volume's lock until a client asks for the lease again.
        let is_over = former.shut(&self.env, DRAIN);
        let given_back = if is_over { lock(&self.state).lock.take() } else { None };
        drop(given_back);
    }

    /// Gives the lease back if the client with this id has it.
    pub(crate) fn give_back_of(&self, id: u128) {
        let token = {
            let state = lock(&self.state);
            state.holder.as_ref().is_some_and(|holder| holder.owner.id == id).then_some(state.token)
        };
        if let Some(token) = token {
            self.give_back(token);
        }
    }

    fn held_by(&self, holder: &Holder) -> Error {
        let Holder { owner, since_unix_s, .. } = holder;
        let since = utc(*since_unix_s);
        self.locked(format!("{} has had it open since {since}; close that one, or open read-only", owner.name))
    }

    fn locked(&self, why: String) -> Error {
        let why = format!("the store {:?} on the node is open for writing: {why}", self.store);
        Error::Locked { path: self.store.clone(), why: Some(why) }
    }

    fn lost(&self, how: &str) -> CallError {
        CallError::Fenced(format!(
            "this process may not change the store {:?} on the node any more: {how}. Close the store here, and open it again if \
             it is to be used here",
            self.store
        ))
    }
}

/// Returns the reason for the noted owner, if the volume's lock was not to be had when the node was started.
fn not_again(holder: &Holder, why: &Error) -> String {
    let name = &holder.owner.name;
    format!("when the node was started, it could not keep the store for {name}: {why}")
}

fn had_by(holder: &Holder) -> String {
    format!("{} has had the lease since {}", holder.owner.name, utc(holder.since_unix_s))
}

#[cfg(test)]
mod tests;
