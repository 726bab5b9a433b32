//! Runs the tasks of hosts, on the node's side.
//!
//! ```text
//!   RunTask ─> Session: attempts of one host ─> queue ─> a thread ─> run ─> TaskDone
//!                 │  connection, newest                    │
//!                 └──────── Reserve, Pace <── RemoteHost ──┘ ──> TaskFiles
//! ```
//! 1. A host attaches its connection to its *session*. A host that lost its connection attaches the next one, and finds
//!    its tasks.
//! 2. A task is decoded as it comes, and waits in one queue for all hosts. At most [`ExecutorOptions::threads`] run. A
//!    full queue is [`CallError::Busy`].
//! 3. While a task runs, it asks its host for places and for leave to go on, over whichever connection the session has
//!    ([`host`]). Outputs are made where the place lies ([`TaskFiles`]).
//! 4. The answer is kept until the host says that it has it ([`CancelTask`]), for the session's time at most. So a
//!    connection that is lost loses no result.
//!
//! **Invariants.** An attempt of a session runs once, however often it is asked for. A table that an answer has named
//! is never removed here; one that no answer can name any more is ([`crate::task_files`]). What is kept is bounded:
//! running and waiting tasks by the options, ended ones by [`ExecutorOptions::ended_max`] for each session.
//!
//! **Threads.** A running task has one of the environment's executor, which starts when it is needed and ends with the
//! executor. Requests come on the reader threads of connections, and do not wait there. Unwanted tables are removed by
//! one more thread, as the disk or another node may take its time. Sessions end when the program calls
//! [`Executor::sweep`], as the daemon's janitor does. Locks: a session's before the queue's, and none while a reply is
//! sent.
//!
//! **Failure.** A task that fails or panics is an answer. An attempt whose request panics before it is queued is
//! refused. A host that stays away for [`ExecutorOptions::linger`] has no tasks any more: they are cancelled. A task
//! whose token is overtaken fails at its next write.
//!
//! Rejected: a thread for each session. Ten hosts would then share a machine with one core as if it had ten.

mod host;
mod session;

use crate::address::{NodeAddress, Place};
use crate::client::NodeOptions;
use crate::error::CallError;
use crate::fields::Bytes;
use crate::host_files::HostFiles;
use crate::message::{CancelTask, Done, GetLoad, LoadAnswer, Message, Operation, PlaceVolumes, PollTasks, RunTask};
use crate::message::{TaskDone, TaskOutcome, TellMeasures, VolumePlace};
use crate::peer::{Peer, Reply};
use crate::task_files::{GivenUp, OtherNode, SharedDirectory, TaskFiles};
use host::{RemoteHost, Tables};
use session::{Begun, Found, Session};
use situ_base::{Env, Job, Queue, Workers, lock};
use situ_compaction::{
    CompactionFilter, Encoder, InputTable, RunReport, TablePlace, Task, TaskError, TaskHost, TaskOutput, run_with,
};
use situ_offload::{
    Decider, DecisionReport, MachineSampler, ModeRule, Ran, Sampler, Surroundings, TaskRunner, decode_task,
    encode_output,
};
use situ_storage::{Error, Result};
use situ_table::{BlockCache, Table};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The resources and settings that a node gives to tasks.
#[derive(Clone)]
pub struct ExecutorOptions {
    /// Tasks that run at a time. The default is a thread for each processor.
    pub threads: usize,
    /// Tasks that wait for a thread. As many as run.
    pub waiting_max: usize,
    /// The time for which a host's tasks go on without a connection of that host. 60 s.
    pub linger: Duration,
    /// Answers that are kept for a host. 64.
    pub ended_max: usize,
    /// The compaction filters that tasks may name. None.
    pub filters: Vec<Arc<dyn CompactionFilter>>,
    /// Nodes that hosts may name as those that have their files. None.
    pub nodes: Vec<Place>,
    /// The settings of the clients that reach these.
    pub node_options: NodeOptions,
    /// Directories that hosts may name as shared, and what lies in them. None.
    pub shared: Vec<PathBuf>,
    /// Runs the tasks that it admits in place of the processor. None.
    pub accelerator: Option<Arc<dyn TaskRunner>>,
}

impl ExecutorOptions {
    /// Returns the defaults on this machine.
    pub fn new(env: &Env) -> ExecutorOptions {
        let threads = env.executor.cores().max(1);
        ExecutorOptions {
            threads,
            waiting_max: threads,
            linger: Duration::from_secs(60),
            ended_max: 64,
            filters: Vec::new(),
            nodes: Vec::new(),
            node_options: NodeOptions { env: env.clone(), ..NodeOptions::default() },
            shared: Vec::new(),
            accelerator: None,
        }
    }

    /// Returns how many tasks run and wait at most.
    fn tasks_max(&self) -> usize {
        self.threads.max(1) + self.waiting_max
    }
}

/// Runs tasks; see the module.
pub struct Executor {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    env: Env,
    options: ExecutorOptions,
    /// Inputs are read once: the cache holds no block.
    cache: Arc<BlockCache>,
    /// The decider of the node, which has one processor and one disk. Each session has a decider of its own, which
    /// shares the machine's measures with this one.
    decider: Decider,
    /// For work that takes its time and has no waiter.
    later: Workers<Job>,
    tasks: Workers<Waiting>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: HashMap<u128, Arc<Session>>,
    /// Tasks that run and wait.
    held: usize,
    /// Input bytes of what runs and waits. Each task has as many as a u64 holds, at most.
    input_bytes: u128,
    /// Input bytes of tasks that succeeded, and how long these took, of late.
    measured_bytes: u64,
    measured: Duration,
    is_closed: bool,
}

/// The maximum number of removals that wait. Each removes the tables of a whole task.
const LATER_MAX: usize = 4096;
/// Speed is measured over about this many bytes; what is older fades.
const MEASURED_BYTES: u64 = 1 << 30;

/// A task in the queue.
struct Waiting {
    session: Arc<Session>,
    attempt: u64,
    mode: ModeRule,
    task: Arc<Task>,
    host: Arc<RemoteHost>,
    held: Held,
}

/// The place of a task that runs or waits.
struct Held {
    shared: Arc<Shared>,
    input_bytes: u128,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.held -= 1;
        state.input_bytes -= self.input_bytes;
    }
}

/// A host's tasks, as one connection of the host uses them. Dropped, the connection is lost.
pub struct HostTasks {
    shared: Arc<Shared>,
    session: Arc<Session>,
    peer: Peer,
}

impl Executor {
    /// Makes an executor that has no task yet.
    pub fn new(env: &Env, options: ExecutorOptions) -> Executor {
        let sampler = env.executor.is_machine().then(|| Box::new(MachineSampler::default()) as Box<dyn Sampler>);
        let (env, cache, decider) = (env.clone(), BlockCache::new(0), Decider::new(sampler));
        let later = Workers::new(&env, "node-remove", 1, LATER_MAX);
        let tasks = Workers::new(&env, "node-task", options.threads, options.tasks_max());
        Executor { shared: Arc::new(Shared { env, options, cache, decider, later, tasks, state: Mutex::default() }) }
    }

    /// Attaches a connection to the session of a host. `own` are the files of the host's store on this node, if there
    /// are any.
    pub fn attach(&self, session: u128, own: Option<Arc<dyn TaskFiles>>, peer: &Peer) -> HostTasks {
        let session = {
            let mut state = lock(&self.shared.state);
            let Shared { env, options, decider, .. } = &*self.shared;
            let new = || Arc::new(Session::new(env, options.linger, decider.beside()));
            Arc::clone(state.sessions.entry(session).or_insert_with(new))
        };
        session.attach(peer, own);
        HostTasks { shared: Arc::clone(&self.shared), session, peer: peer.clone() }
    }

    /// Ends the sessions of hosts that have been away for too long, and returns their number. Does not wait for their
    /// tables to be removed. The owner of an executor calls it every now and then.
    pub fn sweep(&self) -> usize {
        let mut over = Vec::new();
        lock(&self.shared.state).sessions.retain(|_, session| {
            let is_over = session.is_over();
            if is_over {
                over.push(Arc::clone(session));
            }
            !is_over
        });
        let count = over.len();
        for session in over {
            self.shared.end(&session);
            // A session may have a connection to another node, which takes a moment to end.
            self.shared.later(Box::new(move || drop(session)));
        }
        count
    }

    /// Returns the counts of its decisions.
    pub fn decisions(&self) -> DecisionReport {
        self.shared.decider.report()
    }

    /// Returns its load.
    pub fn load(&self) -> LoadAnswer {
        self.shared.load()
    }

    #[cfg(test)]
    pub(crate) fn sessions(&self) -> usize {
        lock(&self.shared.state).sessions.len()
    }

    /// Cancels all tasks, and returns when none runs any more, and their tables are removed.
    pub fn close(&self) {
        let sessions: Vec<_> = {
            let mut state = lock(&self.shared.state);
            state.is_closed = true;
            state.sessions.drain().map(|(_, session)| session).collect()
        };
        sessions.iter().for_each(|session| self.shared.end(session));
        self.shared.tasks.close();
        self.shared.later.close();
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.close();
    }
}

impl HostTasks {
    /// Returns true if [`request`](HostTasks::request) takes requests of this kind.
    pub fn takes(operation: Operation) -> bool {
        use Operation as O;
        matches!(operation, O::RunTask | O::CancelTask | O::PollTasks | O::GetLoad | O::PlaceVolumes | O::TellMeasures)
    }

    /// Takes a request of the host. Does not wait, but for a directory or a node that [`PlaceVolumes`] names.
    pub fn request(&self, operation: Operation, payload: &[u8], reply: Reply) {
        match operation {
            Operation::RunTask => self.run(payload, reply),
            Operation::CancelTask => reply.finish(self.cancel(payload)),
            Operation::PollTasks => {
                reply.finish(PollTasks::decode(payload).map(|_| self.session.tasks()).map_err(CallError::from));
            }
            Operation::GetLoad => {
                reply.finish(GetLoad::decode(payload).map(|_| self.shared.load()).map_err(CallError::from));
            }
            Operation::PlaceVolumes => reply.finish(self.place(payload)),
            Operation::TellMeasures => reply.finish(self.measure(payload)),
            other => reply.fail(&CallError::Unsupported(format!("{} is no request about tasks", other.name()))),
        }
    }

    /// Cancels the tasks of a host that has said goodbye.
    pub fn end(&self) {
        lock(&self.shared.state).sessions.retain(|_, session| !Arc::ptr_eq(session, &self.session));
        self.shared.end(&self.session);
    }

    fn run(&self, payload: &[u8], reply: Reply) {
        let request = match RunTask::decode(payload) {
            Ok(request) => request,
            Err(error) => return reply.fail(&error.into()),
        };
        let attempt = request.attempt;
        let host = match self.session.find_or_enter(attempt, request.token, reply) {
            Found::Known(None) => return,
            Found::Known(Some((reply, answer))) => return reply.answer(answer),
            Found::Gone(reply) => return reply.fail(&gone()),
            Found::Entered(host) => host,
        };
        let _entered = Entered { session: &self.session, attempt };
        let surroundings = Around { shared: &self.shared, session: &self.session, given_up: host.given_up() };
        let queued = match decode_task(&request.task.0, &surroundings) {
            Ok(task) => {
                host.expect(&task);
                let (session, mode, task) = (Arc::clone(&self.session), request.mode, Arc::new(task));
                let held = self.shared.hold(&task);
                held.map(|held| self.shared.enqueue(Waiting { session, attempt, mode, task, host, held }))
            }
            Err(error) => {
                self.session.answer(attempt, &done(Err(error.into()), Duration::ZERO, Ran::default()));
                Ok(())
            }
        };
        if let Err(error) = queued {
            self.session.refuse(attempt, &error);
        }
    }

    fn cancel(&self, payload: &[u8]) -> Result<Done, CallError> {
        let CancelTask { attempt } = CancelTask::decode(payload)?;
        self.shared.cancel(&self.session, attempt);
        Ok(Done {})
    }

    fn measure(&self, payload: &[u8]) -> Result<Done, CallError> {
        let TellMeasures { message } = TellMeasures::decode(payload)?;
        self.session.decider.collect_of_host(&message.0, self.shared.env.clock.now())?;
        Ok(Done {})
    }

    fn place(&self, payload: &[u8]) -> Result<Done, CallError> {
        let PlaceVolumes { volumes } = PlaceVolumes::decode(payload)?;
        let mut placed: BTreeMap<u32, Arc<dyn TaskFiles>> = BTreeMap::new();
        for (number, place) in volumes {
            placed.insert(number, self.files_at(number, place)?);
        }
        self.session.place(placed);
        Ok(Done {})
    }

    fn files_at(&self, number: u32, place: VolumePlace) -> Result<Arc<dyn TaskFiles>, CallError> {
        match place {
            VolumePlace::Here => self.session.own().ok_or_else(|| {
                CallError::Storage(Error::Invalid(format!(
                    "volume {number} cannot lie on this node: it has no files of this store"
                )))
            }),
            VolumePlace::SharedDirectory(path) => Ok(Arc::new(self.shared_directory(Path::new(&path))?)),
            VolumePlace::Host => Ok(Arc::new(HostFiles::new(self.session.connection(), number))),
            VolumePlace::OtherNode(address) => Ok(Arc::new(self.other_node(&address)?)),
        }
    }

    /// Another node that the host names, if this node was started with it.
    fn other_node(&self, address: &str) -> Result<OtherNode, CallError> {
        let address: NodeAddress = address.parse()?;
        let options = &self.shared.options;
        if !options.nodes.contains(&address.place) {
            return Err(CallError::Refused(format!("this node was not started with the node {}", address.place)));
        }
        Ok(OtherNode::connect(address, options.node_options.clone())?)
    }

    /// A directory that the host names, if the node was started with it or with one above it.
    fn shared_directory(&self, path: &Path) -> Result<SharedDirectory, CallError> {
        let refused =
            || CallError::Refused(format!("this node was not started with the shared directory {}", path.display()));
        let whole = |path: &Path| path.canonicalize().map_err(|_| refused());
        let found = whole(path)?;
        let may_use = self.shared.options.shared.iter().any(|shared| whole(shared).is_ok_and(|s| found.starts_with(s)));
        if !may_use {
            return Err(refused());
        }
        Ok(SharedDirectory::open(&found)?)
    }
}

impl Drop for HostTasks {
    fn drop(&mut self) {
        self.session.detach(&self.peer);
    }
}

/// An attempt that was entered and may not be queued yet. If that panics, the attempt is refused: it would wait for
/// ever.
struct Entered<'a> {
    session: &'a Session,
    attempt: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = Error::Invalid("the node's reading of the task panicked".to_owned());
            self.session.refuse(self.attempt, &why.into());
        }
    }
}

fn gone() -> CallError {
    CallError::Refused("the session has ended on the node; connect again".to_owned())
}

impl Shared {
    /// Takes a place for a task.
    fn hold(self: &Arc<Self>, task: &Task) -> Result<Held, CallError> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(CallError::Busy("the node is being closed".to_owned()));
        }
        let held = state.held;
        if held >= self.options.tasks_max() {
            return Err(CallError::Busy(format!("the node has {held} tasks, and takes no more")));
        }
        let input_bytes = u128::from(task.input_bytes());
        state.held += 1;
        state.input_bytes += input_bytes;
        Ok(Held { shared: Arc::clone(self), input_bytes })
    }

    fn enqueue(self: &Arc<Self>, waiting: Waiting) {
        let body = || {
            let shared = Arc::clone(self);
            move |queue: &Queue<Waiting>| queue.serve(|waiting| shared.run_one(waiting))
        };
        for refused in self.tasks.submit(waiting, body).err().into_iter().flatten() {
            let why = CallError::Busy("the system gives the node no thread for tasks".to_owned());
            refused.session.refuse(refused.attempt, &why);
        }
    }

    fn run_one(&self, waiting: Waiting) {
        let Waiting { session, attempt, mode, task, host, held: _held } = waiting;
        if !matches!(session.begin(attempt), Begun::Yes) {
            return;
        }
        let began = self.env.clock.now();
        let (result, ran) = self.run_task(&session.decider, &task, &host, &mode);
        let result = if host.is_given_up() { Err(TaskError::Cancelled) } else { result };
        host.finish();
        if result.is_err() {
            host.remove_tables();
        }
        let elapsed = self.env.clock.now().saturating_sub(began);
        if let Ok(output) = &result {
            self.note_speed(output, elapsed);
        }
        let done = done(result, elapsed, ran);
        if let Some(unwanted) = session.end_task(attempt, &done, &host, self.options.ended_max) {
            unwanted.remove();
        }
    }

    /// Runs a task in the mode that its rule gives, or that is decided by the rule.
    fn run_task(
        &self,
        decider: &Decider,
        task: &Arc<Task>,
        host: &Arc<RemoteHost>,
        rule: &ModeRule,
    ) -> (Result<TaskOutput, TaskError>, Ran) {
        let mut decision = None;
        let run = || {
            let accelerator = self.options.accelerator.as_ref();
            if let Some(accelerator) = accelerator.filter(|runner| runner.admit(task, &**host).is_ok()) {
                return accelerator.run(task, &**host);
            }
            let mode = match rule {
                ModeRule::Fixed(mode) => *mode,
                ModeRule::Decided(rules) => {
                    let record = decider.decide(rules, task, self.env.clock.now());
                    decision.insert(record).mode
                }
            };
            let _counted = self.decider.pipelines().begin(mode);
            run_with(task, &(Arc::clone(host) as Arc<dyn TaskHost>), mode, &self.env)
        };
        let (result, ran) = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
            (Err(TaskError::Panicked("the node's decision about the mode".to_owned())), RunReport::default())
        });
        // So that the next decision finds a measure over a short time.
        self.decider.sample(self.env.clock.now());
        (result, Ran::decided(ran, decision))
    }

    fn note_speed(&self, output: &TaskOutput, elapsed: Duration) {
        let mut state = lock(&self.state);
        state.measured_bytes = state.measured_bytes.saturating_add(output.stats.bytes_read);
        state.measured += elapsed;
        if state.measured_bytes > MEASURED_BYTES {
            state.measured_bytes /= 2;
            state.measured /= 2;
        }
    }

    fn load(&self) -> LoadAnswer {
        let threads = self.options.threads.max(1);
        let filters = self.options.filters.iter().map(|filter| filter.name().to_owned()).collect();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let now = self.env.clock.now();
        self.decider.sample(now);
        let resources = self.decider.resources(now);
        let state = lock(&self.state);
        let nanos = state.measured.as_nanos().max(1);
        // Over all threads: each task was measured alone.
        let bytes_per_s = u128::from(state.measured_bytes) * 1_000_000_000 * threads as u128 / nanos;
        LoadAnswer {
            tasks: count(state.held),
            tasks_max: if state.is_closed { 0 } else { count(self.options.tasks_max()) },
            input_bytes: u64::try_from(state.input_bytes).unwrap_or(u64::MAX),
            bytes_per_s: u64::try_from(bytes_per_s).unwrap_or(u64::MAX),
            resources,
            filters,
            encoder: Encoder::default().name().to_owned(),
        }
    }

    /// Removes tables that no host can install. The caller does not wait.
    fn remove(&self, unwanted: Tables) {
        self.later(Box::new(move || unwanted.remove()));
    }

    fn later(&self, job: Job) {
        // If the queue is full, the job is left undone: the host clears places that are in no output when it opens its
        // store.
        drop(self.later.run(job));
    }

    /// Cancels an attempt whose host does not wait any more.
    fn cancel(&self, session: &Arc<Session>, attempt: u64) {
        if let Some(unwanted) = session.cancel(attempt) {
            self.remove(unwanted);
        }
        let is_it = |waiting: &Waiting| waiting.attempt == attempt && Arc::ptr_eq(&waiting.session, session);
        drop(self.tasks.remove(is_it));
    }

    /// Cancels all attempts of a session.
    fn end(&self, session: &Arc<Session>) {
        session.close().into_iter().for_each(|attempt| self.cancel(session, attempt));
    }
}

/// Returns the outcome of a task, as the host gets it.
fn done(result: Result<TaskOutput, TaskError>, elapsed: Duration, ran: Ran) -> TaskDone {
    let outcome = match result {
        Ok(output) => TaskOutcome::Output(encode_output(&output)),
        Err(error) => TaskOutcome::failed(&error),
    };
    let decision = Bytes(ran.decision.as_ref().map(|record| record.to_bytes()).unwrap_or_default());
    TaskDone { outcome, elapsed, ran: Ran { decision: None, ..ran }, decision }
}

/// The surroundings of a task on this node.
struct Around<'a> {
    shared: &'a Shared,
    session: &'a Session,
    given_up: &'a GivenUp,
}

impl Surroundings for Around<'_> {
    fn table(&self, place: TablePlace) -> Arc<dyn InputTable> {
        let files = self.session.files(place.volume);
        let (cache, given_up) = (Arc::clone(&self.shared.cache), self.given_up.clone());
        Arc::new(Input { files, place, cache, given_up, open: Mutex::default() })
    }

    fn filter(&self, name: &str) -> Option<Arc<dyn CompactionFilter>> {
        self.shared.options.filters.iter().find(|filter| filter.name() == name).cloned()
    }
}

/// A table that is opened when a run gets there.
struct Input {
    files: Result<Arc<dyn TaskFiles>>,
    place: TablePlace,
    cache: Arc<BlockCache>,
    given_up: GivenUp,
    /// While a run uses it: a run opens each table more than once.
    open: Mutex<Weak<Table>>,
}

impl InputTable for Input {
    fn open(self: Arc<Self>) -> Result<Arc<Table>> {
        if let Some(table) = lock(&self.open).upgrade() {
            return Ok(table);
        }
        let files = self.files.as_ref().map_err(Clone::clone)?;
        let reader = files.open(self.place.number, &self.given_up)?;
        let table = Table::open(reader, self.place.number, Arc::clone(&self.cache))?;
        *lock(&self.open) = Arc::downgrade(&table);
        Ok(table)
    }
}
