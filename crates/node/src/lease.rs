//! The lease of a store: who may change its files.
//!
//! 1. A client asks for the lease. It gets a *token*: a number that is larger than every token given out before.
//! 2. Each change carries the token. The node refuses a change with any other token than the last.
//! 3. The owner renews the lease. Every change that is let through renews it, too.
//! 4. An owner that has not renewed for the lease's *term* keeps the lease until another client asks. Then the node first keeps the
//!    owner's changes out, and waits for those under way. Only then does the successor get its token.
//!
//! **Invariants.** A token is durable before it is given out. Two clients never hold tokens that are let through. After a
//! restart of the node, the owner that is noted has a whole term to renew.
//!
//! While a client has the lease, the node has the volume's own lock. So no process on the node opens the store beside it.
//!
//! **Threads.** Any. One thread at a time hands the lease over; another one that asks meanwhile is refused. No lock is held
//! while the note is written or changes are waited for.
//!
//! **Failure.** A note that cannot be written is an error of the client that asked; nobody has the lease then, and the token is not
//! given out again. A note that is damaged is an error: without it, nobody knows which tokens are too old.
//!
//! Rejected: a lease that ends when its term is over. An owner that a slow network holds up for a while would lose its store,
//! though nobody else wants it.

mod note;

pub(crate) use note::Note;

use crate::error::CallError;
use crate::gate::{Gate, Pass};
use crate::text::utc;
use note::Noted;
use situ_device::{Env, Event, lock};
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

/// What a lease has to know of clients.
pub(crate) trait Clients {
    /// Whether the client with this id has a connection.
    fn is_connected(&self, id: u128) -> bool;
}

/// How long the changes of a former owner may take to end.
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
    /// The volume's own lock, while somebody has the lease.
    lock: Option<Box<dyn Lock>>,
    /// Changes of the newest token pass it.
    gate: Arc<Gate>,
    /// A thread keeps changes out, or writes the note. Nobody else is given the lease meanwhile.
    handing_over: bool,
    /// Somebody waits for the holder's term to end.
    waiting: bool,
}

#[derive(Clone)]
struct Holder {
    owner: Owner,
    since_unix_s: u64,
    renewed: Duration,
}

/// What an asker is told at once.
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
        let lock = holder.as_ref().and_then(|_| volume.lock().ok());
        let holder = holder.filter(|_| lock.is_some());
        let gate = Gate::new(env);
        let state = State { token: noted.token, holder, lock, gate, handing_over: false, waiting: false };
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

    /// Whether anybody has it.
    pub(crate) fn is_held(&self) -> bool {
        lock(&self.state).holder.is_some()
    }

    /// The id of the client that has it.
    pub(crate) fn holder_id(&self) -> Option<u128> {
        lock(&self.state).holder.as_ref().map(|holder| holder.owner.id)
    }

    /// Gives the lease to `owner`. If another one has it, and has lost its connection or is silent, the call waits until that one's
    /// term is over, `patience` at most. The owner itself gets its token again: it did not hear of the first answer.
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
            lock(&self.state).waiting = false;
        }
        outcome
    }

    fn turn(&self, owner: &Owner, deadline: Duration, waits: &mut bool, clients: &dyn Clients) -> Result<Turn> {
        let is_connected = |holder: &Holder| clients.is_connected(holder.owner.id);
        let mut state = lock(&self.state);
        if state.handing_over {
            return Err(self.locked("another client is just being given it".to_owned()));
        }
        let now = self.env.clock.now();
        let Some(holder) = state.holder.clone() else {
            state.handing_over = true;
            return Ok(Turn::Take);
        };
        if holder.owner.id == owner.id {
            return Ok(Turn::Mine(state.token));
        }
        let ends = holder.renewed + self.term;
        if now >= ends {
            state.handing_over = true;
            state.holder = None;
            return Ok(Turn::Take);
        }
        let is_alive = is_connected(&holder) && now.saturating_sub(holder.renewed) <= self.term / 2;
        let may_wait = now < deadline && (*waits || !state.waiting) && !is_alive;
        if !may_wait {
            return Err(self.held_by(&holder));
        }
        (state.waiting, *waits) = (true, true);
        Ok(Turn::Wait(ends.min(deadline).saturating_sub(now).max(Duration::from_millis(1))))
    }

    fn hand_over(&self, owner: &Owner) -> Result<u64> {
        let given = self.give(owner);
        lock(&self.state).handing_over = false;
        self.changed.notify();
        given
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
        // A note that may have reached the disk counts: its token is not given to anybody else.
        let token = {
            let mut state = lock(&self.state);
            state.token += 1;
            state.token
        };
        let since_unix_s = self.env.clock.unix().as_secs();
        self.note.write(&Noted { store: self.store.clone(), token, owner: Some((owner.clone(), since_unix_s)) })?;
        let renewed = self.env.clock.now();
        let mut state = lock(&self.state);
        state.holder = Some(Holder { owner: owner.clone(), since_unix_s, renewed });
        state.gate = Gate::new(&self.env);
        Ok(token)
    }

    /// Lets a change pass, and renews the lease.
    ///
    /// # Errors
    /// [`Fenced`](CallError::Fenced): the token is not that of the owner.
    pub(crate) fn enter(&self, token: u64) -> Result<Pass, CallError> {
        self.renew(token)?;
        self.pass(token)
    }

    /// Lets a change pass that the node makes by itself for the owner, such as the output of a task. It is no sign that the owner is
    /// alive: a task must not keep the lease of an owner that has died.
    ///
    /// # Errors
    /// As [`enter`](Lease::enter).
    pub(crate) fn pass(&self, token: u64) -> Result<Pass, CallError> {
        let gate = {
            let state = lock(&self.state);
            (state.token == token && state.holder.is_some()).then(|| Arc::clone(&state.gate))
        };
        // Between the two looks, the lease may have been handed over. Then the gate is shut, or another token's.
        gate.and_then(|gate| gate.enter())
            .ok_or_else(|| self.lost("another client has been given the lease, or it was given back"))
    }

    /// Says that the owner is alive.
    ///
    /// # Errors
    /// As [`enter`](Lease::enter).
    pub(crate) fn renew(&self, token: u64) -> Result<(), CallError> {
        let now = self.env.clock.now();
        {
            let mut state = lock(&self.state);
            let (newest, handing_over) = (state.token, state.handing_over);
            match state.holder.as_mut() {
                Some(holder) if token == newest => holder.renewed = now,
                Some(holder) => {
                    let (name, since) = (&holder.owner.name, utc(holder.since_unix_s));
                    return Err(self.lost(&format!("{name} has had the lease since {since}")));
                }
                None if handing_over => return Err(self.lost("another client is just being given the lease")),
                None => return Err(self.lost("the lease was given back, or has ended")),
            }
        }
        self.changed.notify();
        Ok(())
    }

    /// Gives the lease back. A token that is not the owner's gives nothing back.
    pub(crate) fn give_back(&self, token: u64) {
        let former = {
            let mut state = lock(&self.state);
            if state.token != token || state.holder.is_none() || state.handing_over {
                return;
            }
            state.holder = None;
            state.handing_over = true;
            Arc::clone(&state.gate)
        };
        // A note that still names the owner makes the next client wait for a term. It is no reason to refuse anything.
        let _ = self.note.write(&Noted { store: self.store.clone(), token, owner: None });
        // A change that does not end keeps the volume's lock until somebody asks for the lease again.
        let is_over = former.shut(&self.env, DRAIN);
        let given_back = if is_over { lock(&self.state).lock.take() } else { None };
        drop(given_back);
        lock(&self.state).handing_over = false;
        self.changed.notify();
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

#[cfg(test)]
mod tests;
