//! A host on a node: where its volumes lie, and its attempts.

use super::host::{HostVolumes, RemoteHost, Tables};
use crate::error::CallError;
use crate::host_connection::HostConnection;
use crate::message::{Message, TaskDone, TaskOutcome, TaskState, Tasks};
use crate::peer::{Peer, Reply};
use crate::task_files::TaskFiles;
use situ_base::{Env, lock};
use situ_offload::Decider;
use situ_storage::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) struct Session {
    connection: Arc<HostConnection>,
    /// Knows the rules and the reads of this host only.
    pub(super) decider: Decider,
    volumes: Arc<HostVolumes>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    own: Option<Arc<dyn TaskFiles>>,
    attempts: BTreeMap<u64, Attempt>,
    is_closed: bool,
}

struct Attempt {
    stage: Stage,
    host: Arc<RemoteHost>,
    /// The newest request that waits for the answer.
    reply: Option<Reply>,
}

enum Stage {
    Waiting,
    Running,
    Ended {
        answer: Vec<u8>,
        /// Tables that the answer names, until the answer is handed out: they are the host's then.
        tables: Option<Tables>,
    },
}

/// The state of an attempt that is asked for.
pub(super) enum Found {
    /// It is known; with the answer, if it has ended.
    Known(Option<(Reply, Vec<u8>)>),
    /// It was not known, and is entered now.
    Entered(Arc<RemoteHost>),
    /// The session is over.
    Gone(Reply),
}

/// The answer to an attempt whose turn has come: it is still wanted, or not.
pub(super) enum Begun {
    Yes,
    Cancelled,
}

impl Session {
    pub(super) fn new(env: &Env, linger: Duration, decider: Decider) -> Session {
        let connection = Arc::new(HostConnection::new(env, linger));
        Session { connection, decider, volumes: Arc::default(), state: Mutex::default() }
    }

    pub(super) fn connection(&self) -> Arc<HostConnection> {
        Arc::clone(&self.connection)
    }

    pub(super) fn is_over(&self) -> bool {
        self.connection.is_over()
    }

    pub(super) fn attach(&self, peer: &Peer, own: Option<Arc<dyn TaskFiles>>) {
        lock(&self.state).own = own;
        self.connection.attach(peer);
    }

    pub(super) fn detach(&self, peer: &Peer) {
        self.connection.detach(peer);
    }

    pub(super) fn own(&self) -> Option<Arc<dyn TaskFiles>> {
        lock(&self.state).own.clone()
    }

    pub(super) fn place(&self, volumes: BTreeMap<u32, Arc<dyn TaskFiles>>) {
        self.volumes.replace(volumes);
    }

    /// Returns the files of a volume of the host.
    pub(super) fn files(&self, volume: u32) -> Result<Arc<dyn TaskFiles>> {
        self.volumes.files(volume)
    }

    /// Finds an attempt, which is answered by `reply` from now on, or enters it.
    pub(super) fn find_or_enter(&self, attempt: u64, token: u64, reply: Reply) -> Found {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Found::Gone(reply);
        }
        let before;
        let found = match state.attempts.get_mut(&attempt) {
            Some(Attempt { stage: Stage::Ended { answer, tables }, .. }) => {
                *tables = None;
                return Found::Known(Some((reply, answer.clone())));
            }
            Some(known) => {
                before = known.reply.replace(reply);
                Found::Known(None)
            }
            None => {
                before = None;
                let host = Arc::new(RemoteHost::new(&self.connection, &self.volumes, attempt, token));
                let entered = Attempt { stage: Stage::Waiting, host: Arc::clone(&host), reply: Some(reply) };
                state.attempts.insert(attempt, entered);
                Found::Entered(host)
            }
        };
        drop(state);
        // It answers when it is dropped: on a connection that is lost, as a rule.
        drop(before);
        found
    }

    /// An attempt that was entered is not taken.
    pub(super) fn refuse(&self, attempt: u64, why: &CallError) {
        let refused = lock(&self.state).attempts.remove(&attempt);
        if let Some(reply) = refused.and_then(|attempt| attempt.reply) {
            reply.fail(why);
        }
    }

    /// An attempt that has never run is answered.
    pub(super) fn answer(&self, attempt: u64, done: &TaskDone) {
        let answered = lock(&self.state).attempts.remove(&attempt);
        if let Some(reply) = answered.and_then(|attempt| attempt.reply) {
            reply.tell(done);
        }
    }

    pub(super) fn begin(&self, attempt: u64) -> Begun {
        let mut state = lock(&self.state);
        match state.attempts.get_mut(&attempt) {
            Some(attempt) if !self.connection.is_over() => {
                attempt.stage = Stage::Running;
                Begun::Yes
            }
            _ => Begun::Cancelled,
        }
    }

    /// Ends an attempt that has run. Returns its tables if they are unwanted by now.
    pub(super) fn end_task(
        &self,
        attempt: u64,
        done: &TaskDone,
        host: &Arc<RemoteHost>,
        ended_max: usize,
    ) -> Option<Tables> {
        let answer = done.encode();
        let is_output = matches!(done.outcome, TaskOutcome::Output(_));
        let tables = host.tables();
        let mut state = lock(&self.state);
        let Some(ended) = state.attempts.get_mut(&attempt).filter(|ended| Arc::ptr_eq(&ended.host, host)) else {
            // It was cancelled when it had all but ended.
            return is_output.then_some(tables);
        };
        // The reply may be the last owner of its connection, and so of this session: it is dropped without the lock.
        let reply = ended.reply.take();
        let is_heard = reply.as_ref().is_some_and(|reply| reply.peer().lost().is_none());
        let tables = (is_output && !is_heard).then_some(tables);
        ended.stage = Stage::Ended { answer: answer.clone(), tables };
        let forgotten = state.forget_old(ended_max);
        drop(state);
        if let Some(reply) = reply {
            reply.answer(answer);
        }
        forgotten
    }

    /// Cancels an attempt. Returns its tables if no host can have heard of them.
    pub(super) fn cancel(&self, attempt: u64) -> Option<Tables> {
        let cancelled = lock(&self.state).attempts.remove(&attempt)?;
        cancelled.host.give_up();
        self.connection.changed.notify();
        match cancelled.stage {
            Stage::Ended { tables, .. } => tables,
            // A run that is under way removes them itself.
            Stage::Waiting | Stage::Running => None,
        }
    }

    /// Takes no more tasks; those that there are.
    pub(super) fn close(&self) -> Vec<u64> {
        self.connection.end();
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.attempts.keys().copied().collect()
    }

    pub(super) fn tasks(&self) -> Tasks {
        let state = lock(&self.state);
        let tasks = state.attempts.iter().map(|(attempt, entry)| {
            let state = match entry.stage {
                Stage::Waiting => TaskState::Waiting,
                Stage::Running => TaskState::Running,
                Stage::Ended { .. } => TaskState::Ended,
            };
            (*attempt, state)
        });
        Tasks { tasks: tasks.collect() }
    }
}

impl State {
    /// Forgets the oldest ended attempt if there are more than `ended_max`. Returns its tables if no host can have
    /// heard of them.
    fn forget_old(&mut self, ended_max: usize) -> Option<Tables> {
        let is_ended = |attempt: &Attempt| matches!(attempt.stage, Stage::Ended { .. });
        if self.attempts.values().filter(|attempt| is_ended(attempt)).count() <= ended_max {
            return None;
        }
        let oldest = self.attempts.iter().find(|(_, attempt)| is_ended(attempt)).map(|(number, _)| *number)?;
        match self.attempts.remove(&oldest)?.stage {
            Stage::Ended { tables, .. } => tables,
            Stage::Waiting | Stage::Running => None,
        }
    }
}
