//! A node as a unit: tasks run there, next to their tables.
//!
//! ```text
//!   scheduler ─submit─> held ──> courier thread ══ RunTask ══> node
//!        ^                │                                      │
//!        └──poll── finished <── reader thread <══ TaskDone ══════┤
//!                  TaskHost <── callback threads <══ Reserve, Pace, files ═╛
//! ```
//! 1. [`submit`](Unit::submit) encodes a task and puts it among those that are held. It never waits.
//! 2. The *courier*, a thread, speaks with the node. On each new connection it first says where the store's volumes
//!    lie, and asks what became of the tasks. Then it sends tasks, cancels attempts, and asks how busy the node is.
//! 3. Answers come on the connection's reader thread. What the node asks of a task's host is done by threads of this
//!    unit ([`callbacks`]).
//!
//! **Lost connections.** What became of a task is not known then. On the next connection, a task that the node still
//! has is asked for again: the answer is that of the attempt that has run, or runs. A task that the node does not know
//! is reported as failed. If no connection comes within [`NodeUnitOptions::patience`], all are reported as failed. The
//! scheduler has the processor do them again.
//!
//! **Invariants.** A held attempt is reported once, or cancelled. The node hears of each attempt that it may have and
//! that has no waiter. Places are given to held attempts only, on volumes that the node reaches.
//!
//! **Bounds.** Tasks: what the node takes. Callbacks that wait: [`callbacks::QUEUE_MAX`]; further ones get the answer
//! that there are too many.
//!
//! **Threads.** The courier begins with [`NodeUnit::link`] and ends with [`close`](Unit::close). It sleeps while there
//! is nothing to do. Callback threads begin when they are needed. No lock is held while a host or the connection is
//! spoken to.
//!
//! **Failure.** A busy node is asked again, for the patience. A node that cannot reach a volume suits no task; the
//! reason is in the offer.

mod callbacks;

use crate::address::NodeAddress;
use crate::client::{NodeClient, NodeOptions};
use crate::error::CallError;
use crate::fields::Bytes;
use crate::message::{
    Call, CancelTask, GetLoad, LoadAnswer, Message, Operation, PlaceVolumes, PollTasks, RunTask, TaskDone,
    TellMeasures, VolumePlace,
};
use crate::peer::{Handler, Peer};
use crate::volume::NodeVolume;
use callbacks::Callbacks;
use situ_base::{Env, Event, JobHandle, lock};
use situ_compaction::{Encoder, PipelineRun, Pipelines, RunMode, TablePlace, Task, TaskError, TaskOutput};
use situ_offload::{
    Assignment, DecisionRecord, DecisionReport, Finished, KnownFilters, Limits, Load, ModeRule, Offer, Ran, Refused,
    Unit, decode_output, encode_task,
};
use situ_storage::{Error, Result as StorageResult, Volume};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The connection to a node. The owner of the link keeps it alive.
pub trait NodeLink: Send + Sync {
    /// Returns the current connection, greeted.
    fn peer(&self) -> Option<Peer>;

    /// Returns the token of the lease of the store whose files the tasks write; 0 without one.
    fn token(&self) -> u64;
}

/// The settings of a unit on a node.
#[derive(Clone)]
pub struct NodeUnitOptions {
    /// For logs.
    pub name: String,
    /// The places of the store's volumes, as far as the node reaches them.
    pub volumes: Vec<(u32, VolumePlace)>,
    /// The time for which tasks wait for a node that is away or busy. 10 s.
    pub patience: Duration,
}

impl NodeUnitOptions {
    /// Makes the options of a unit next to these volumes.
    pub fn new(name: impl Into<String>, volumes: Vec<(u32, VolumePlace)>) -> NodeUnitOptions {
        NodeUnitOptions { name: name.into(), volumes, patience: Duration::from_secs(10) }
    }
}

/// See the module.
pub struct NodeUnit {
    shared: Arc<Shared>,
    courier: Mutex<Option<Box<dyn JobHandle>>>,
}

pub(crate) struct Shared {
    env: Env,
    options: NodeUnitOptions,
    state: Mutex<State>,
    /// There is something for the courier.
    work: Arc<dyn Event>,
    callbacks: Callbacks,
    /// Held attempts that may run pipelined.
    pipelines: Pipelines,
}

#[derive(Default)]
struct State {
    link: Option<Arc<dyn NodeLink>>,
    /// Volumes that the node reads over the connection.
    served: Vec<(u32, Arc<dyn Volume>)>,
    /// Levels whose tables go to a volume that the node does not reach, and when that was seen.
    levels_elsewhere: BTreeMap<u32, (u32, Duration)>,
    /// The connection that was introduced last.
    peer: Option<Peer>,
    /// Counts connections.
    epoch: u64,
    /// Since when there is no connection.
    away_since: Option<Duration>,
    held: BTreeMap<u64, Held>,
    finished: Vec<Finished>,
    /// Attempts that the node is to forget.
    forgets: BTreeSet<u64>,
    load: Option<KnownLoad>,
    is_load_wanted: bool,
    is_load_asked: bool,
    /// The host's measures, to be sent to the node.
    measures: Option<Vec<u8>>,
    /// The counts of the node's decisions, for tasks of this unit.
    decisions: DecisionReport,
    /// Why the node suits no task.
    trouble: Option<String>,
    is_closed: bool,
}

struct KnownLoad {
    answer: LoadAnswer,
    at: Duration,
    /// Tasks that the node had of others.
    others: usize,
}

/// A task that was given to the unit.
struct Held {
    assignment: Assignment,
    /// The task as bytes.
    task: Vec<u8>,
    stage: Stage,
    began: Duration,
    /// Counts it while it is held, if it may run pipelined.
    _pipeline: Option<PipelineRun>,
}

impl Held {
    fn inputs(&self) -> impl Iterator<Item = TablePlace> {
        self.assignment.task.tables().map(|input| TablePlace { volume: input.volume, number: input.number })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// To be sent, not before this.
    New { not_before: Duration },
    /// On its way, or on the node, over the connection of this number.
    Sent { epoch: u64 },
    /// It was sent over a connection that is lost.
    Unknown,
}

/// The time for which the known load of a node is good.
const LOAD_AGE_MAX: Duration = Duration::from_secs(1);
/// A busy node is asked again after this.
const BUSY_AGAIN: Duration = Duration::from_millis(100);
/// A link without a connection is looked at again after this, while tasks wait.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// And after this, while the scheduler asks for offers.
const LOOK_FOR_OFFERS: Duration = Duration::from_secs(1);
/// Tables of a level that went to a volume that the node does not reach are thought to go there for this long.
const ELSEWHERE: Duration = Duration::from_secs(30);
/// Short questions have to be answered within this.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The maximum number of bytes of a request, apart from the task.
const REQUEST_BYTES: usize = 1024;

impl NodeUnit {
    /// Makes a unit without a connection: it takes no task before [`link`](NodeUnit::link).
    pub fn new(env: &Env, options: NodeUnitOptions) -> NodeUnit {
        let (work, callbacks) = (env.executor.event(), Callbacks::new(env));
        let (state, pipelines) = (Mutex::default(), Pipelines::default());
        let shared = Shared { env: env.clone(), options, state, work, callbacks, pipelines };
        NodeUnit { shared: Arc::new(shared), courier: Mutex::default() }
    }

    /// Returns the handler of the connection, which takes the node's requests. It outlives the unit, and answers that
    /// there is no task then.
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::new(UnitHandler(Arc::downgrade(&self.shared)))
    }

    /// Says how the node is reached, and gives the volumes that lie with the host: the node reads them over the
    /// connection. The unit lets go of the link when it is closed.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn link(&self, link: Arc<dyn NodeLink>, served: Vec<(u32, Arc<dyn Volume>)>) -> std::io::Result<()> {
        {
            let mut state = lock(&self.shared.state);
            state.served = served;
            state.link = Some(link);
            state.away_since = Some(self.shared.env.clock.now());
            state.is_load_wanted = true;
        }
        let mut courier = lock(&self.courier);
        if courier.is_none() {
            let shared = Arc::clone(&self.shared);
            *courier = Some(self.shared.env.executor.spawn("node-unit", Box::new(move || shared.carry()))?);
        }
        drop(courier);
        self.shared.work.notify();
        Ok(())
    }
}

impl Drop for NodeUnit {
    fn drop(&mut self) {
        self.close();
    }
}

/// The handler of a unit's connection.
struct UnitHandler(Weak<Shared>);

impl Handler for UnitHandler {
    fn request(&self, _peer: &Peer, operation: u16, payload: Vec<u8>, reply: crate::peer::Reply) {
        match self.0.upgrade() {
            Some(shared) => callbacks::request(&shared, operation, payload, reply),
            None => reply.fail(&CallError::Unknown("the host has no tasks any more".to_owned())),
        }
    }

    fn lost(&self, _peer: &Peer, _why: &CallError) {
        if let Some(shared) = self.0.upgrade() {
            shared.work.notify();
        }
    }
}

/// The courier's next step.
enum Step {
    Introduce(Peer),
    Forget(Peer, u64),
    Run(Peer, u64, u64, RunTask),
    AskLoad(Peer),
    Tell(Peer, Vec<u8>),
    Wait(Option<Duration>),
    End,
}

impl Shared {
    /// The courier's thread.
    fn carry(self: &Arc<Self>) {
        loop {
            let seen = self.work.generation();
            match self.next_step() {
                Step::Introduce(peer) => self.introduce(&peer),
                Step::Forget(peer, attempt) => {
                    // What the node does not hear now, it hears on the next connection.
                    let request = CancelTask { attempt }.encode();
                    peer.call_later(CancelTask::OPERATION as u16, request, Some(ANSWERS_WITHIN), drop);
                }
                Step::Run(peer, epoch, attempt, request) => self.send(&peer, epoch, attempt, &request),
                Step::AskLoad(peer) => self.ask_load(&peer),
                Step::Tell(peer, message) => {
                    // Measures that do not arrive are missing in decisions; the next ones come soon.
                    let message = TellMeasures { message: Bytes(message) }.encode();
                    let _ = peer.notify(Operation::TellMeasures, message, ANSWERS_WITHIN);
                }
                Step::Wait(timeout) => {
                    self.work.wait(seen, timeout);
                }
                Step::End => return,
            }
        }
    }

    fn next_step(&self) -> Step {
        let now = self.env.clock.now();
        let link = lock(&self.state).link.clone();
        let peer = link.as_ref().and_then(|link| link.peer()).filter(|peer| peer.lost().is_none());
        let token = link.as_ref().map_or(0, |link| link.token());
        let mut state = lock(&self.state);
        let Some(peer) = peer else {
            state.note_away(now);
            if state.is_closed {
                return Step::End;
            }
            let failed = state.take_impatient(now, self.options.patience);
            let (has_tasks, is_wanted) = (!state.held.is_empty(), state.is_load_wanted);
            drop(state);
            self.fail(failed, "it cannot be reached");
            return Step::Wait(if has_tasks { Some(LOOK_AGAIN) } else { is_wanted.then_some(LOOK_FOR_OFFERS) });
        };
        if !state.peer.as_ref().is_some_and(|known| known.is(&peer)) && !state.is_closed {
            state.note_away(now);
            return Step::Introduce(peer);
        }
        if let Some(attempt) = state.forgets.pop_first() {
            return Step::Forget(peer, attempt);
        }
        if state.is_closed {
            return Step::End;
        }
        if let Some((attempt, request)) = state.take_due(now, token) {
            return Step::Run(peer, state.epoch, attempt, request);
        }
        if state.is_load_wanted && !state.is_load_asked {
            (state.is_load_wanted, state.is_load_asked) = (false, true);
            return Step::AskLoad(peer);
        }
        // Measures matter to tasks only, and a unit without tasks keeps quiet.
        if !state.held.is_empty()
            && let Some(message) = state.measures.take()
        {
            return Step::Tell(peer, message);
        }
        Step::Wait(state.next_due(now))
    }

    /// Says where the volumes lie, and settles what became of the tasks.
    fn introduce(&self, peer: &Peer) {
        let placed = peer.ask(&PlaceVolumes { volumes: self.options.volumes.clone() }, ANSWERS_WITHIN);
        let polled = placed.and_then(|_| peer.ask(&PollTasks {}, ANSWERS_WITHIN));
        let mut lost = Vec::new();
        {
            let mut state = lock(&self.state);
            match polled {
                Ok(tasks) => {
                    let on_node: BTreeSet<u64> = tasks.tasks.iter().map(|(attempt, _)| *attempt).collect();
                    state.settle_unknown(&on_node, &mut lost);
                    (state.trouble, state.away_since) = (None, None);
                }
                // The next look finds the next connection.
                Err(error) if error.is_lost() => return,
                Err(error) => state.trouble = Some(error.to_string()),
            }
            state.peer = Some(peer.clone());
            state.epoch += 1;
            (state.is_load_wanted, state.is_load_asked) = (true, false);
        }
        self.fail(lost, "it does not know the task any more");
    }

    /// Sends a task. The answer comes on the connection's thread.
    fn send(self: &Arc<Self>, peer: &Peer, epoch: u64, attempt: u64, request: &RunTask) {
        let shared = Arc::clone(self);
        peer.call_later(RunTask::OPERATION as u16, request.encode(), None, move |answer| {
            shared.answered(epoch, attempt, answer);
        });
    }

    fn ask_load(self: &Arc<Self>, peer: &Peer) {
        let shared = Arc::clone(self);
        peer.call_later(GetLoad::OPERATION as u16, GetLoad {}.encode(), Some(ANSWERS_WITHIN), move |answer| {
            let answer = answer.and_then(|answer| Ok(LoadAnswer::decode(&answer)?));
            let at = shared.env.clock.now();
            let mut state = lock(&shared.state);
            state.is_load_asked = false;
            if let Ok(answer) = answer {
                let own = state.held.values().filter(|held| matches!(held.stage, Stage::Sent { .. })).count();
                let others = (answer.tasks as usize).saturating_sub(own);
                state.load = Some(KnownLoad { answer, at, others });
            }
        });
    }

    fn answered(&self, epoch: u64, attempt: u64, answer: Result<Vec<u8>, CallError>) {
        let now = self.env.clock.now();
        let is_current = |held: &Held| held.stage == Stage::Sent { epoch };
        match answer {
            Ok(answer) => match TaskDone::decode(&answer) {
                Ok(done) => self.done(attempt, done),
                Err(error) => self.end(attempt, Err(self.fault(error.to_string())), Duration::ZERO, Ran::default()),
            },
            Err(error) if error.is_lost() => {
                // Over a newer connection, it was asked for again already.
                if let Some(held) = lock(&self.state).held.get_mut(&attempt).filter(|held| is_current(held)) {
                    held.stage = Stage::Unknown;
                }
                self.work.notify();
            }
            Err(CallError::Busy(_)) if self.put_off(attempt, now) => {}
            Err(error) => self.end(attempt, Err(self.fault(error.to_string())), Duration::ZERO, Ran::default()),
        }
    }

    /// A busy node is asked again, unless it has been busy for too long.
    fn put_off(&self, attempt: u64, now: Duration) -> bool {
        let mut state = lock(&self.state);
        state.is_load_wanted = true;
        let Some(held) = state.held.get_mut(&attempt) else { return true };
        if now.saturating_sub(held.began) >= self.options.patience {
            return false;
        }
        held.stage = Stage::New { not_before: now + BUSY_AGAIN };
        drop(state);
        self.work.notify();
        true
    }

    fn done(&self, attempt: u64, done: TaskDone) {
        let TaskDone { outcome, elapsed, mut ran, decision: Bytes(decision) } = done;
        // A record that cannot be read is missing in reports, and the output is right all the same.
        ran.decision = DecisionRecord::from_bytes(&decision).ok().map(Arc::new);
        if let Some(record) = &ran.decision {
            lock(&self.state).count(record);
        }
        let output = outcome.into_result(&self.options.name).and_then(|bytes| Ok(decode_output(&bytes)?));
        self.end(attempt, output, elapsed, ran);
    }

    fn fault(&self, reason: String) -> TaskError {
        TaskError::Unit { unit: self.options.name.clone(), reason }
    }

    /// Tells an attempt, if it is held. The node may forget it.
    fn end(&self, attempt: u64, result: Result<TaskOutput, TaskError>, elapsed: Duration, ran: Ran) {
        let held = {
            let mut state = lock(&self.state);
            state.forgets.insert(attempt);
            state.is_load_wanted = true;
            let held = state.held.remove(&attempt);
            if held.is_some() {
                state.finished.push(Finished { attempt, result, elapsed, ran });
            }
            held
        };
        if let Some(held) = held {
            self.forget(attempt);
            held.assignment.done.notify();
        }
        self.work.notify();
    }

    /// Tells attempts as failed.
    fn fail(&self, attempts: Vec<u64>, why: &str) {
        for attempt in attempts {
            self.end(attempt, Err(self.fault(why.to_owned())), Duration::ZERO, Ran::default());
        }
    }

    /// An attempt that is held.
    fn assignment(&self, attempt: u64) -> Option<Assignment> {
        lock(&self.state).held.get(&attempt).map(|held| held.assignment.clone())
    }

    fn limits(&self, state: &State) -> Limits {
        let filters = state.load.as_ref().map(|load| load.answer.filters.clone()).unwrap_or_default();
        let volumes = self.options.volumes.iter().map(|(number, _)| *number).collect();
        Limits { filters: KnownFilters::Named(filters), volumes: Some(volumes), ..Limits::unlimited() }
    }
}

impl State {
    fn note_away(&mut self, now: Duration) {
        self.peer = None;
        self.away_since.get_or_insert(now);
    }

    /// Attempts that have waited for too long for a connection.
    fn take_impatient(&self, now: Duration, patience: Duration) -> Vec<u64> {
        let since = self.away_since.unwrap_or(now);
        let is_over = |held: &&Held| now.saturating_sub(since.max(held.began)) >= patience;
        self.held.values().filter(is_over).map(|held| held.assignment.attempt).collect()
    }

    /// Sorts held attempts by what the node has. An attempt that the node does not know is lost. An attempt on the node
    /// that is not held here is to be forgotten there. The rest is asked for again.
    fn settle_unknown(&mut self, on_node: &BTreeSet<u64>, lost: &mut Vec<u64>) {
        for (attempt, held) in &mut self.held {
            match held.stage {
                Stage::New { .. } => {}
                _ if on_node.contains(attempt) => held.stage = Stage::New { not_before: Duration::ZERO },
                _ => lost.push(*attempt),
            }
        }
        self.forgets = on_node.iter().copied().filter(|attempt| !self.held.contains_key(attempt)).collect();
    }

    /// A task that is to be sent now.
    fn take_due(&mut self, now: Duration, token: u64) -> Option<(u64, RunTask)> {
        let is_due = |held: &&mut Held| matches!(held.stage, Stage::New { not_before } if not_before <= now);
        let held = self.held.values_mut().find(is_due)?;
        held.stage = Stage::Sent { epoch: self.epoch };
        let Assignment { attempt, mode, .. } = &held.assignment;
        let request = RunTask { attempt: *attempt, token, mode: mode.clone(), task: Bytes(held.task.clone()) };
        Some((*attempt, request))
    }

    /// Returns the time until there is something to do even without a notification.
    fn next_due(&self, now: Duration) -> Option<Duration> {
        let new = self.held.values().filter_map(|held| match held.stage {
            Stage::New { not_before } => Some(not_before.saturating_sub(now)),
            _ => None,
        });
        new.min()
    }

    /// Checks that the tables of the task's output went to volumes that the node reaches, as far as was seen.
    fn admit_level(&mut self, task: &Task, now: Duration) -> Result<(), String> {
        self.levels_elsewhere.retain(|_, (_, seen)| now.saturating_sub(*seen) < ELSEWHERE);
        let level = task.rules.output_level;
        match self.levels_elsewhere.get(&level) {
            Some((volume, _)) => {
                Err(format!("tables of level {level} go to volume {volume}, which the node does not reach"))
            }
            None => Ok(()),
        }
    }

    fn count(&mut self, record: &Arc<DecisionRecord>) {
        let report = &mut self.decisions;
        report.made += 1;
        match record.mode.is_pipelined() {
            true => report.pipelined += 1,
            false => report.linear += 1,
        }
        report.changed += u64::from(record.is_changed);
        report.held_back += u64::from(record.held.is_some());
        report.last = Some(Arc::clone(record));
    }

    /// The inputs of all tasks that are held.
    fn inputs(&self) -> HashSet<TablePlace> {
        self.held.values().flat_map(Held::inputs).collect()
    }

    /// Returns true if a task that is held reads the table.
    fn is_input(&self, place: TablePlace) -> bool {
        self.held.values().flat_map(Held::inputs).any(|input| input == place)
    }

    fn tasks(&self) -> usize {
        self.held.len() + self.finished.len()
    }

    fn load(&self) -> Load {
        let known = self.load.as_ref().filter(|_| self.peer.is_some() && !self.is_closed && self.trouble.is_none());
        let Some(KnownLoad { answer, others, .. }) = known else {
            // No room: what it holds is all that it takes.
            return Load { tasks: self.tasks(), tasks_max: 0, ..Load::default() };
        };
        let bytes_of = self.held.values().map(|held| held.assignment.task.input_bytes());
        let own_bytes = bytes_of.fold(0, u64::saturating_add);
        Load {
            tasks: self.tasks() + others,
            tasks_max: answer.tasks_max as usize,
            // The node's sum contains what it had of this unit.
            input_bytes: answer.input_bytes.max(own_bytes),
            bytes_per_s: answer.bytes_per_s,
            resources: answer.resources,
        }
    }
}

/// The mode that an attempt may run in which takes the most.
fn most_of(rule: &ModeRule) -> RunMode {
    match rule {
        ModeRule::Fixed(mode) => *mode,
        ModeRule::Decided(rules) => RunMode::Pipelined { merge_threads: rules.merge_threads },
    }
}

impl Unit for NodeUnit {
    fn name(&self) -> &str {
        &self.shared.options.name
    }

    fn encoder(&self) -> Encoder {
        let state = lock(&self.shared.state);
        state.load.as_ref().map_or_else(Encoder::default, |load| Encoder::named(load.answer.encoder.clone()))
    }

    fn offer(&self, task: &Task) -> Offer {
        let now = self.shared.env.clock.now();
        let (offer, is_old) = {
            let mut state = lock(&self.shared.state);
            let is_old = state.load.as_ref().is_none_or(|load| now.saturating_sub(load.at) >= LOAD_AGE_MAX);
            state.is_load_wanted |= is_old;
            let trouble = match (&state.trouble, &state.peer) {
                (Some(trouble), _) => Err(trouble.clone()),
                // Not "busy": the node may never come back, and the scheduler waits for a busy unit.
                (None, None) => Err(format!("{} cannot be reached", self.shared.options.name)),
                (None, Some(_)) => Ok(()),
            };
            let suits = trouble.and_then(|()| state.admit_level(task, now));
            let offer = match suits.and_then(|()| self.shared.limits(&state).admit(task)) {
                Ok(()) => state.load().offer(task.input_bytes()),
                Err(reason) => Offer::Unsuited(reason),
            };
            (offer, is_old)
        };
        if is_old {
            // The answer is for the next offer.
            self.shared.work.notify();
        }
        offer
    }

    fn load(&self) -> Load {
        lock(&self.shared.state).load()
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        if assignment.host.value_handles().is_some() {
            return Err(Refused::Unsuited("a node does not read the value log".to_owned()));
        }
        let task = encode_task(&assignment.task);
        {
            let mut state = lock(&self.shared.state);
            if state.is_closed {
                return Err(Refused::Gone("the unit is closed".to_owned()));
            }
            let most = state.peer.as_ref().map_or(usize::MAX, Peer::payload_bytes_max);
            if task.len() + REQUEST_BYTES > most {
                let bytes = task.len();
                return Err(Refused::Unsuited(format!("a task of {bytes} bytes, and messages have at most {most}")));
            }
            let Load { tasks, tasks_max, .. } = state.load();
            if tasks >= tasks_max {
                return Err(Refused::Busy);
            }
            let stage = Stage::New { not_before: Duration::ZERO };
            let began = self.shared.env.clock.now();
            let attempt = assignment.attempt;
            let _pipeline = self.shared.pipelines.begin(most_of(&assignment.mode));
            state.held.insert(attempt, Held { assignment, task, stage, began, _pipeline });
        }
        self.shared.work.notify();
        Ok(())
    }

    fn cancel(&self, attempt: u64) {
        let cancelled = {
            let mut state = lock(&self.shared.state);
            let cancelled = state.held.remove(&attempt);
            if cancelled.is_some() {
                state.forgets.insert(attempt);
            }
            cancelled
        };
        if cancelled.is_some() {
            self.shared.forget(attempt);
            self.shared.work.notify();
        }
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut lock(&self.shared.state).finished);
    }

    fn measured(&self, message: &[u8]) {
        lock(&self.shared.state).measures = Some(message.to_vec());
    }

    fn decisions(&self) -> Option<DecisionReport> {
        Some(lock(&self.shared.state).decisions.clone())
    }

    /// The node says how an attempt ran when it has ended. Until then, one that may run pipelined counts as one that
    /// does.
    fn pipelines(&self) -> Option<Pipelines> {
        Some(self.shared.pipelines.clone())
    }

    fn close(&self) {
        let held = {
            let mut state = lock(&self.shared.state);
            state.is_closed = true;
            let held = std::mem::take(&mut state.held);
            state.forgets.extend(held.keys());
            held
        };
        held.keys().for_each(|attempt| self.shared.forget(*attempt));
        drop(held);
        self.shared.work.notify();
        let courier = lock(&self.courier).take();
        if let Some(courier) = courier {
            let _ = courier.join();
        }
        self.shared.callbacks.close();
        let (link, served) = {
            let mut state = lock(&self.shared.state);
            (state.link.take(), std::mem::take(&mut state.served))
        };
        drop((link, served));
    }
}

/// A client whose tasks run on its node.
impl NodeLink for NodeClient {
    fn peer(&self) -> Option<Peer> {
        NodeClient::peer(self)
    }

    fn token(&self) -> u64 {
        NodeClient::token(self)
    }
}

// Units by address.
impl NodeUnit {
    /// Opens the files of a store on a node, with a unit next to them: its tasks read and write nothing over the
    /// network.
    ///
    /// # Errors
    /// As [`NodeClient::connect`] and [`NodeVolume::open`].
    pub fn beside(address: NodeAddress, options: NodeOptions) -> StorageResult<(Arc<NodeVolume>, Arc<NodeUnit>)> {
        let unit = NodeUnitOptions::new(address.place.to_string(), vec![(HOME, VolumePlace::Here)]);
        let unit = Arc::new(NodeUnit::new(&options.env, unit));
        let client = Arc::new(NodeClient::connect_with(address, options, unit.handler())?);
        let volume = Arc::new(NodeVolume::open(Arc::clone(&client))?);
        unit.reach(client, Vec::new())?;
        Ok((volume, unit))
    }

    /// Makes a unit on a node that has no files of the store. It takes tasks after [`connect`](NodeUnit::connect), and
    /// then [`help`](NodeUnit::help) or [`help_for`](NodeUnit::help_for).
    pub fn elsewhere(env: &Env, address: &NodeAddress, home: VolumePlace) -> NodeUnit {
        NodeUnit::new(env, NodeUnitOptions::new(address.place.to_string(), vec![(HOME, home)]))
    }

    /// Connects to such a node. That needs no store: a caller that opens a store finds out before whether the node
    /// refuses.
    ///
    /// # Errors
    /// As [`NodeClient::connect`].
    pub fn connect(&self, address: NodeAddress, options: NodeOptions) -> StorageResult<Arc<NodeClient>> {
        let address = NodeAddress { store: String::new(), ..address };
        Ok(Arc::new(NodeClient::connect_with(address, options, self.handler())?))
    }

    /// Takes tasks of a store whose home is `home`. That is what the node reads and writes over the connection, if the
    /// home lies there. The client lives until the unit is closed.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn help(&self, client: Arc<NodeClient>, home: Arc<dyn Volume>) -> StorageResult<()> {
        self.reach(client, vec![(HOME, home)])
    }

    /// Takes tasks of a store whose home lies on another node: `owner` has the lease there.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn help_for(&self, client: Arc<NodeClient>, owner: Arc<NodeClient>) -> StorageResult<()> {
        let link = Arc::new(ForOwner { client, owner });
        self.link(link, Vec::new()).map_err(|error| Error::io("start thread", "node-unit", error))
    }

    fn reach(&self, client: Arc<NodeClient>, served: Vec<(u32, Arc<dyn Volume>)>) -> StorageResult<()> {
        self.link(client, served).map_err(|error| Error::io("start thread", "node-unit", error))
    }
}

/// A node that computes for the owner of a lease on another node.
struct ForOwner {
    client: Arc<NodeClient>,
    owner: Arc<NodeClient>,
}

impl NodeLink for ForOwner {
    fn peer(&self) -> Option<Peer> {
        self.client.peer()
    }

    fn token(&self) -> u64 {
        self.owner.token()
    }
}

/// The number of a store's home among its volumes.
const HOME: u32 = 0;

#[cfg(test)]
mod tests;
