//! Which unit runs which task, and what happens when that goes wrong.
//!
//! 1. A job is submitted as its tasks. It holds no thread: its tasks lie in one queue until a unit has room.
//! 2. A *turn* collects what the units have finished, checks it ([`check_output`]), and gives tasks that wait to units. Of the units
//!    that take a task, the one that says that it would be done first gets it.
//! 3. An attempt that fails, gives a wrong answer, or is late is given up: its host answers "cancelled" from then on, so that the
//!    attempt can neither go on nor create files. The task waits again, for the *reference unit* only. The unit that failed rests
//!    for a while, twice as long each time.
//! 4. The reference unit is never late and is believed: if a task fails there, its job fails. The output is checked all the same.
//! 5. A job whose last task has landed, or that has failed and runs nowhere any more, is finished: [`Scheduler::take_finished`]
//!    gives it to one caller.
//!
//! **Invariants**: at most two attempts of a task, the second on the reference unit. An output is accepted from the attempt that is
//! current, so never two for a task. Places in it were handed out to that attempt.
//! **Threads**: any thread may submit, take a turn and take finished jobs. One turn runs at a time; a thread that comes during a turn
//! leaves at once, and the turn is repeated for it. Threads sleep on the event that the scheduler was made with: units, and jobs that
//! finish, notify it. No lock is held while a unit is spoken to.
//! **Failure**: a unit that panics is not spoken to again (`guarded.rs`). A unit that is lost costs speed, not data: its tasks return
//! when they are late. A unit may go on with an attempt that
//! was given up; what it writes then lies in places that no table of the store will ever have.
//!
//! Rejected: a scheduler thread. It would wake up for each result only to wake up the thread that installs the job.

mod measures;

use crate::check::check_output;
use crate::dropped::ValueHandles;
use crate::error::{Result, TaskError};
use crate::guarded::Guarded;
use crate::mode::ModeRule;
use crate::task::{OutputTable, TablePlace, Task, TaskHost, TaskOutput};
use crate::unit::{Assignment, Finished, Offer, Refused, Unit};
use situ_device::lock;
use situ_device::{Env, Event, Turns};
use situ_storage::{Error, Writer};
use situ_table::Warming;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long to wait for units that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A task may take this long however small it is. Default 30 s.
    pub least: Duration,
    /// And as long as its input takes at this speed. Default 4 MiB/s.
    pub bytes_per_s_min: u64,
    /// How long a unit rests after its first failure. Default 1 s.
    pub rest_min: Duration,
    /// How long a unit rests at most. Default 60 s.
    pub rest_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            least: Duration::from_secs(30),
            bytes_per_s_min: 4 << 20,
            rest_min: Duration::from_secs(1),
            rest_max: Duration::from_secs(60),
        }
    }
}

impl Patience {
    fn for_task(&self, task: &Task) -> Duration {
        self.least + Duration::from_secs(task.input_bytes() / self.bytes_per_s_min.max(1))
    }
}

/// When nothing that is running could wake us, units are asked again after this long.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Numbers of attempts are given once in a process: a unit that two stores were given by mistake does not exchange their results.
static NEXT_ATTEMPT: AtomicU64 = AtomicU64::new(1);

/// What one unit did since the scheduler was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitReport {
    /// The unit's name.
    pub name: String,
    /// Attempts that the unit took.
    pub attempts: u64,
    /// Attempts whose output was right.
    pub succeeded: u64,
    /// Refusals other than for want of room.
    pub refused: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were given up because they took too long.
    pub late: u64,
    /// Attempts whose output was not right.
    pub suspicious: u64,
    /// Input bytes of the attempts that succeeded.
    pub input_bytes: u64,
    /// How long these attempts took together, as the unit measured.
    pub busy: Duration,
    /// Why the unit last refused a task for good, failed, was late or was suspicious.
    pub last_trouble: Option<String>,
}

/// A job whose last task has landed, or that has failed.
#[derive(Debug)]
pub struct FinishedJob {
    /// The number that it was submitted by.
    pub job: u64,
    /// The outputs in the tasks' order, or the first failure.
    pub result: Result<Vec<TaskOutput>>,
}

/// Gives tasks to units, checks what comes back, and has the reference unit do again what went wrong elsewhere.
pub struct Scheduler {
    env: Env,
    /// The first one is the reference unit.
    units: Vec<Arc<dyn Unit>>,
    patience: Patience,
    /// Notified when a turn may find something to do, and when a job has finished.
    event: Arc<dyn Event>,
    turns: Turns,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// In the order in which they were submitted. A turn takes them out while it runs.
    jobs: Vec<Job>,
    finished: VecDeque<FinishedJob>,
    units: Vec<UnitState>,
    /// Tasks of all jobs that wait for a unit, as far as is known.
    tasks_waiting: usize,
    /// When a turn is due even if nobody notifies, by the clock.
    next_look: Option<Duration>,
}

#[derive(Debug, Clone, Default)]
struct UnitState {
    failures: u32,
    rests_until: Duration,
    /// It did not suit the last task that it was asked about.
    is_unsuited: bool,
    report: UnitReport,
}

impl UnitState {
    fn rests(&self, now: Duration) -> bool {
        self.failures > 0 && self.rests_until > now
    }
}

/// The reference unit's place in the list.
const REFERENCE: usize = 0;

/// How far a task is.
enum TaskState {
    Waiting { reference_only: bool },
    Running(Attempt),
    Done(TaskOutput),
}

struct Attempt {
    number: u64,
    unit: usize,
    late_at: Option<Duration>,
    host: Arc<AttemptHost>,
}

struct QueuedTask {
    task: Arc<Task>,
    state: TaskState,
}

impl QueuedTask {
    fn waits(&self) -> bool {
        matches!(self.state, TaskState::Waiting { .. })
    }

    fn runs(&self) -> bool {
        matches!(self.state, TaskState::Running(_))
    }
}

struct Job {
    number: u64,
    host: Arc<dyn TaskHost>,
    tasks: Vec<QueuedTask>,
    /// At most so many of its tasks run at a time.
    abreast: usize,
    failure: Option<TaskError>,
}

impl Job {
    fn tasks_running(&self) -> usize {
        self.tasks.iter().filter(|task| task.runs()).count()
    }

    fn tasks_waiting(&self) -> usize {
        if self.failure.is_some() { 0 } else { self.tasks.iter().filter(|task| task.waits()).count() }
    }

    fn has_ended(&self) -> bool {
        self.tasks_running() == 0 && self.tasks_waiting() == 0
    }

    fn finish(self) -> FinishedJob {
        let Job { number: job, tasks, failure, .. } = self;
        let output = |task: QueuedTask| if let TaskState::Done(output) = task.state { Some(output) } else { None };
        FinishedJob { job, result: failure.map_or_else(|| Ok(tasks.into_iter().filter_map(output).collect()), Err) }
    }
}

/// A host that can be taken away from one attempt.
struct AttemptHost {
    inner: Arc<dyn TaskHost>,
    given_up: AtomicBool,
    places: Mutex<Vec<TablePlace>>,
}

impl AttemptHost {
    fn of(inner: &Arc<dyn TaskHost>) -> Arc<AttemptHost> {
        let (given_up, places) = (AtomicBool::new(false), Mutex::default());
        Arc::new(AttemptHost { inner: Arc::clone(inner), given_up, places })
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    fn check(&self) -> situ_storage::Result<()> {
        match self.given_up.load(Ordering::Acquire) {
            true => Err(Error::Invalid("the task was given to another unit".to_owned())),
            false => Ok(()),
        }
    }
}

impl TaskHost for AttemptHost {
    fn reserve(&self, level: u32) -> situ_storage::Result<TablePlace> {
        self.check()?;
        let place = self.inner.reserve(level)?;
        lock(&self.places).push(place);
        Ok(place)
    }

    fn create(&self, level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        self.check()?;
        let (created, writer) = self.inner.create(level, place)?;
        let mut places = lock(&self.places);
        places.retain(|reserved| *reserved != place);
        places.push(created);
        Ok((created, writer))
    }

    fn warming(&self) -> Option<Arc<Warming>> {
        self.inner.warming()
    }

    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        self.inner.value_handles()
    }

    fn pace(&self, bytes: u64) {
        self.inner.pace(bytes);
    }

    fn find(&self, table: &OutputTable) -> Result<(), String> {
        self.inner.find(table)
    }

    fn cancelled(&self) -> bool {
        self.given_up.load(Ordering::Acquire) || self.inner.cancelled()
    }
}

/// Gives up a task after a panic: no unit is spoken to.
fn let_go(task: &QueuedTask) {
    if let TaskState::Running(attempt) = &task.state {
        attempt.host.give_up();
    }
}

/// The jobs that a turn has in its hands. A panic in the turn ends them: nobody waits for a job that is nowhere.
struct InHand<'a> {
    scheduler: &'a Scheduler,
    jobs: Vec<Job>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let failed = std::mem::take(&mut self.jobs).into_iter().map(|mut job| {
            job.tasks.iter().for_each(let_go);
            job.failure = Some(TaskError::Panicked("a turn of the scheduler".to_owned()));
            job.finish()
        });
        let failed: Vec<FinishedJob> = failed.collect();
        lock(&self.scheduler.queue).finished.extend(failed);
        self.scheduler.event.notify();
    }
}

impl Scheduler {
    /// `reference` runs what no other unit can or should; `others` are tried when they are faster. `event` is notified when a turn
    /// may find something to do, and when a job has finished.
    pub fn new(
        env: Env,
        event: Arc<dyn Event>,
        reference: Arc<dyn Unit>,
        others: Vec<Arc<dyn Unit>>,
        patience: Patience,
    ) -> Scheduler {
        let guarded = |unit| Arc::new(Guarded::new(unit, Arc::clone(&event))) as Arc<dyn Unit>;
        let units: Vec<Arc<dyn Unit>> = std::iter::once(reference).chain(others.into_iter().map(guarded)).collect();
        let report = |unit: &Arc<dyn Unit>| UnitReport { name: unit.name().to_owned(), ..UnitReport::default() };
        let states = units.iter().map(|unit| UnitState { report: report(unit), ..UnitState::default() }).collect();
        Scheduler {
            env,
            units,
            patience,
            event,
            turns: Turns::new(),
            queue: Mutex::new(Queue { units: states, ..Queue::default() }),
        }
    }

    /// What each unit did so far, the reference unit first.
    pub fn reports(&self) -> Vec<UnitReport> {
        lock(&self.queue).units.iter().map(|unit| unit.report.clone()).collect()
    }

    /// Puts the tasks of a job into the queue, of which at most `abreast` are to run at a time. The caller takes a
    /// [`turn`](Scheduler::turn) next. `job` is a number that no other job in the queue has; the job comes back under it in
    /// [`take_finished`](Scheduler::take_finished). Places that `host` handed out and that are in no output are the caller's to clear.
    pub fn submit(&self, job: u64, tasks: Vec<Task>, host: Arc<dyn TaskHost>, abreast: usize) {
        let queued = |task| QueuedTask { task: Arc::new(task), state: TaskState::Waiting { reference_only: false } };
        let tasks: Vec<QueuedTask> = tasks.into_iter().map(queued).collect();
        let mut queue = lock(&self.queue);
        queue.tasks_waiting += tasks.len();
        queue.jobs.push(Job { number: job, host, tasks, abreast: abreast.max(1), failure: None });
    }

    /// Moves every job on as far as it can be moved now. Returns at once if another thread is at it: that thread does it again.
    pub fn turn(&self) {
        self.turns.take(|| self.take_turn());
    }

    /// A job that has finished, to one caller.
    pub fn take_finished(&self) -> Option<FinishedJob> {
        lock(&self.queue).finished.pop_front()
    }

    /// A certain job, if it has finished and nobody has taken it.
    pub fn take_finished_job(&self, job: u64) -> Option<FinishedJob> {
        let mut queue = lock(&self.queue);
        let at = queue.finished.iter().position(|finished| finished.job == job)?;
        queue.finished.remove(at)
    }

    /// Whether there is no job in the queue, nor one that has finished and was not taken.
    pub fn is_empty(&self) -> bool {
        let queue = lock(&self.queue);
        // During a turn, the turn has the jobs.
        !self.turns.is_turning() && queue.jobs.is_empty() && queue.finished.is_empty()
    }

    /// How many tasks more the units would take now, beyond those that wait. Units that rest, or did not suit the last task that
    /// they were asked about, do not count.
    pub fn room(&self) -> usize {
        let loads = self.units_in_use().map(|(_, unit)| unit.load());
        let room = loads.map(|load| load.tasks_max.saturating_sub(load.tasks)).fold(0, usize::saturating_add);
        room.saturating_sub(lock(&self.queue).tasks_waiting)
    }

    /// How many tasks the units besides the reference unit hold at most, all together; as [`room`](Scheduler::room) counts them.
    pub fn tasks_max_elsewhere(&self) -> usize {
        let others = self.units_in_use().filter(|(at, _)| *at != REFERENCE);
        others.map(|(_, unit)| unit.load().tasks_max).fold(0, usize::saturating_add)
    }

    fn units_in_use(&self) -> impl Iterator<Item = (usize, &Arc<dyn Unit>)> {
        let now = self.env.clock.now();
        let in_use: Vec<bool> =
            lock(&self.queue).units.iter().map(|unit| !unit.rests(now) && !unit.is_unsuited).collect();
        self.units.iter().enumerate().filter(move |(at, _)| *at == REFERENCE || in_use[*at])
    }

    /// How long until a turn is due even if nobody notifies the event; `None` if none is.
    pub fn next_look_in(&self) -> Option<Duration> {
        let next = lock(&self.queue).next_look?;
        Some(next.saturating_sub(self.env.clock.now()))
    }

    /// Runs all tasks of one job on a scheduler that has no other, and returns their outputs in the tasks' order. Blocks until the
    /// last one is done.
    ///
    /// # Errors
    /// The first failure of the reference unit; other tasks of the job are then given up.
    pub fn run(&self, tasks: Vec<Task>, host: &Arc<dyn TaskHost>) -> Result<Vec<TaskOutput>> {
        let abreast = tasks.len();
        self.submit(0, tasks, Arc::clone(host), abreast);
        loop {
            let seen = self.event.generation();
            self.turn();
            if let Some(finished) = self.take_finished() {
                return finished.result;
            }
            self.event.wait(seen, self.next_look_in());
        }
    }

    /// Waits until all units have let go of the hosts of their tasks; they take no more. A task that has finished may hold
    /// its host a little longer than its job is in the queue.
    pub fn close(&self) {
        self.units.iter().for_each(|unit| unit.close());
    }

    fn take_turn(&self) {
        let mut finished = self.collect();
        let jobs = {
            let mut queue = lock(&self.queue);
            // Threads that sleep meanwhile are woken when the turn knows more.
            queue.next_look = None;
            std::mem::take(&mut queue.jobs)
        };
        let mut in_hand = InHand { scheduler: self, jobs };
        let now = self.env.clock.now();
        for job in &mut in_hand.jobs {
            self.settle_job(job, &mut finished, now);
        }
        // What is left was given up before it finished.
        drop(finished);
        for job in &mut in_hand.jobs {
            // Where no unit has room for any task, the jobs behind need not ask.
            if !self.assign_job(job, now) {
                break;
            }
        }
        self.put_back(std::mem::take(&mut in_hand.jobs), now);
    }

    /// What all units have finished, by attempt.
    fn collect(&self) -> BTreeMap<u64, Finished> {
        let mut finished = Vec::new();
        self.units.iter().for_each(|unit| unit.poll(&mut finished));
        finished.into_iter().map(|finished| (finished.attempt, finished)).collect()
    }

    /// Ends the turn: jobs that have ended are finished, the others go back into the queue before those that came meanwhile.
    fn put_back(&self, jobs: Vec<Job>, now: Duration) {
        let (ended, jobs): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::has_ended);
        let waits = jobs.iter().any(|job| job.tasks_waiting() > 0);
        let any_ended = !ended.is_empty();
        {
            let mut queue = lock(&self.queue);
            queue.finished.extend(ended.into_iter().map(Job::finish));
            let came = std::mem::replace(&mut queue.jobs, jobs);
            queue.jobs.extend(came);
            queue.tasks_waiting = queue.jobs.iter().map(Job::tasks_waiting).sum();
            let attempts = queue.jobs.iter().flat_map(|job| &job.tasks).filter_map(|task| match &task.state {
                TaskState::Running(attempt) => attempt.late_at,
                _ => None,
            });
            let late = attempts.min();
            // A task that waits for room is woken by whatever frees it, unless a unit refused for reasons of its own.
            let ask_again = waits.then(|| now.saturating_add(ASK_AGAIN));
            queue.next_look = late.into_iter().chain(ask_again).min();
        }
        if any_ended {
            self.event.notify();
        }
    }

    /// Looks at all that runs of a job.
    fn settle_job(&self, job: &mut Job, finished: &mut BTreeMap<u64, Finished>, now: Duration) {
        let is_called_off = job.host.cancelled();
        for task in &mut job.tasks {
            if let Err(error) = self.settle(task, finished, now) {
                job.failure.get_or_insert(error);
            }
            if is_called_off && !matches!(task.state, TaskState::Done(_)) {
                job.failure.get_or_insert(TaskError::Cancelled);
            }
        }
        if job.failure.is_some() {
            job.tasks.iter_mut().for_each(|task| self.give_up(task));
        }
    }

    /// Moves one task on if its attempt has ended or is late.
    fn settle(&self, task: &mut QueuedTask, finished: &mut BTreeMap<u64, Finished>, now: Duration) -> Result<()> {
        let TaskState::Running(attempt) = &task.state else { return Ok(()) };
        let Some(ended) = finished.remove(&attempt.number) else {
            if attempt.late_at.is_some_and(|late_at| now >= late_at) {
                self.give_up_late(attempt, now);
                task.state = TaskState::Waiting { reference_only: true };
            }
            return Ok(());
        };
        let unit = attempt.unit;
        let elapsed = ended.elapsed;
        let checked = self.check(&task.task, attempt, ended.result);
        // Files of a failed attempt must not grow behind our back.
        attempt.host.give_up();
        match checked {
            Ok(output) => {
                self.note_success(unit, &task.task, elapsed);
                task.state = TaskState::Done(output);
                Ok(())
            }
            Err(error) => {
                task.state = TaskState::Waiting { reference_only: true };
                self.note_failure(unit, &error, now);
                // Being stopped is nobody's fault, and stops the job.
                if unit == REFERENCE || matches!(error, TaskError::Cancelled) { Err(error) } else { Ok(()) }
            }
        }
    }

    /// Whether the answer of an attempt is one to what was asked.
    fn check(&self, task: &Task, attempt: &Attempt, result: Result<TaskOutput>) -> Result<TaskOutput> {
        let fault = |reason| Err(TaskError::Unit { unit: self.units[attempt.unit].name().to_owned(), reason });
        let output = match result {
            Ok(output) => output,
            Err(TaskError::Cancelled) if !attempt.host.cancelled() => {
                return fault("it calls the task cancelled, and nobody has cancelled it".to_owned());
            }
            Err(error) => return Err(error),
        };
        let places = lock(&attempt.host.places).clone();
        let found = |table: &OutputTable| attempt.host.inner.find(table);
        let is_from_elsewhere = attempt.unit != REFERENCE;
        let checked = check_output(task, &places, &output).and_then(|()| match is_from_elsewhere {
            true => output.tables.iter().try_for_each(found),
            false => Ok(()),
        });
        checked.map_or_else(fault, |()| Ok(output))
    }

    fn give_up_late(&self, attempt: &Attempt, now: Duration) {
        attempt.host.give_up();
        self.units[attempt.unit].cancel(attempt.number);
        let unit = &mut lock(&self.queue).units[attempt.unit];
        unit.report.late += 1;
        self.rest(unit, now, "an attempt took too long".to_owned());
    }

    fn note_success(&self, unit: usize, task: &Task, elapsed: Duration) {
        let unit = &mut lock(&self.queue).units[unit];
        unit.failures = 0;
        unit.report.succeeded += 1;
        unit.report.input_bytes += task.input_bytes();
        // The unit says how long.
        unit.report.busy = unit.report.busy.saturating_add(elapsed);
    }

    fn note_failure(&self, unit: usize, error: &TaskError, now: Duration) {
        let unit = &mut lock(&self.queue).units[unit];
        match error {
            TaskError::Cancelled => return,
            TaskError::Unit { .. } => unit.report.suspicious += 1,
            _ => unit.report.failed += 1,
        }
        self.rest(unit, now, error.to_string());
    }

    fn rest(&self, unit: &mut UnitState, now: Duration, trouble: String) {
        let rest = self.patience.rest_min.saturating_mul(1 << unit.failures.min(16)).min(self.patience.rest_max);
        unit.failures = unit.failures.saturating_add(1);
        unit.rests_until = now.saturating_add(rest);
        unit.report.last_trouble = Some(trouble);
    }

    /// Gives up a task of a job that has failed. One that runs on the reference unit ends soon by itself, and is waited for.
    fn give_up(&self, task: &mut QueuedTask) {
        let TaskState::Running(attempt) = &task.state else { return };
        attempt.host.give_up();
        if attempt.unit != REFERENCE {
            self.units[attempt.unit].cancel(attempt.number);
            task.state = TaskState::Waiting { reference_only: true };
        }
    }

    /// Gives tasks of a job to units, as far as they have room and the job may. False if no unit has room for any task.
    fn assign_job(&self, job: &mut Job, now: Duration) -> bool {
        let mut running = job.tasks_running();
        let mut has_room = true;
        for task in &mut job.tasks {
            if job.failure.is_some() || running >= job.abreast || !has_room {
                break;
            }
            if !task.waits() {
                continue;
            }
            match self.assign(task, &job.host, now) {
                Ok(is_taken) => {
                    running += usize::from(is_taken);
                    has_room = is_taken || self.any_has_room();
                }
                Err(error) => job.failure = Some(error),
            }
        }
        if job.failure.is_some() {
            job.tasks.iter_mut().for_each(|task| self.give_up(task));
        }
        has_room
    }

    fn any_has_room(&self) -> bool {
        self.units.iter().map(|unit| unit.load()).any(|load| load.tasks < load.tasks_max)
    }

    /// What each unit offers for a task; `None` from those that do not take it.
    fn offers(&self, task: &QueuedTask, now: Duration) -> Vec<Option<Duration>> {
        let only = matches!(task.state, TaskState::Waiting { reference_only: true });
        let rests: Vec<bool> = lock(&self.queue).units.iter().map(|unit| unit.rests(now)).collect();
        let offer = |(at, unit): (usize, &Arc<dyn Unit>)| {
            if at != REFERENCE && (only || rests[at]) {
                return None;
            }
            let offer = unit.offer(&task.task);
            let state = &mut lock(&self.queue).units[at];
            state.is_unsuited = matches!(offer, Offer::Unsuited(_));
            match offer {
                Offer::DoneIn(time) => Some(time),
                Offer::Busy => None,
                Offer::Unsuited(reason) => {
                    state.report.last_trouble = Some(reason);
                    None
                }
            }
        };
        self.units.iter().enumerate().map(offer).collect()
    }

    /// Gives a waiting task to a unit, if one has room. Fails if the reference unit will never take it.
    fn assign(&self, task: &mut QueuedTask, host: &Arc<dyn TaskHost>, now: Duration) -> Result<bool> {
        let mut offers = self.offers(task, now);
        while let Some(chosen) = choose(&offers) {
            let attempt_host = AttemptHost::of(host);
            let number = NEXT_ATTEMPT.fetch_add(1, Ordering::Relaxed);
            let assignment = Assignment {
                attempt: number,
                task: for_encoder(&task.task, &*self.units[chosen]),
                host: Arc::clone(&attempt_host) as Arc<dyn TaskHost>,
                mode: ModeRule::default(),
                done: Arc::clone(&self.event),
            };
            match self.units[chosen].submit(assignment) {
                Ok(()) => {
                    lock(&self.queue).units[chosen].report.attempts += 1;
                    let late_at = (chosen != REFERENCE).then(|| now + self.patience.for_task(&task.task));
                    task.state = TaskState::Running(Attempt { number, unit: chosen, late_at, host: attempt_host });
                    return Ok(true);
                }
                Err(refused) => {
                    offers[chosen] = None;
                    self.note_refusal(chosen, &refused, now);
                    if let (REFERENCE, Refused::Gone(reason) | Refused::Unsuited(reason)) = (chosen, refused) {
                        return Err(TaskError::Unit { unit: self.units[chosen].name().to_owned(), reason });
                    }
                }
            }
        }
        Ok(false)
    }

    fn note_refusal(&self, unit: usize, refused: &Refused, now: Duration) {
        let unit = &mut lock(&self.queue).units[unit];
        match refused {
            Refused::Busy => {}
            Refused::Unsuited(reason) => {
                unit.report.refused += 1;
                unit.report.last_trouble = Some(reason.clone());
            }
            Refused::Gone(reason) => {
                unit.report.refused += 1;
                self.rest(unit, now, reason.clone());
            }
        }
    }
}

/// The task as a unit gets it: with the unit's encoder named.
fn for_encoder(task: &Arc<Task>, unit: &dyn Unit) -> Arc<Task> {
    let encoder = unit.encoder();
    if task.rules.output.encoder == encoder {
        return Arc::clone(task);
    }
    let mut named = (**task).clone();
    named.rules.output.encoder = encoder;
    Arc::new(named)
}

/// The unit that would be done first; the earlier one in the list if several would.
fn choose(offers: &[Option<Duration>]) -> Option<usize> {
    let able = offers.iter().enumerate().filter_map(|(at, offer)| Some((at, (*offer)?)));
    able.min_by_key(|(_, time)| *time).map(|(at, _)| at)
}

#[cfg(test)]
mod tests;
