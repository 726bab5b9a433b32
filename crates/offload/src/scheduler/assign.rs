//! Which unit gets which task: the half of a turn that gives.
//!
//! 1. The most urgent job comes first: level 0, then by score, then in the order in which the jobs were submitted.
//! 2. Units are asked what they offer for a task. Not asked are units that rest, that have failed at this task, and
//!    that the task does not suit. So a task beyond a unit's limits is reported once, and goes elsewhere untried.
//! 3. [`narrow`] says which of the offers count. A unit that has to prove itself goes first, and then the unit that the
//!    task is meant for. A task waits for such a unit while the unit has no room; with the automatic split, for a
//!    while. A task of level 0 waits for a while with every split: writers wait for it, and the unit may be busy with
//!    the tasks of other stores.
//! 4. Of the offers that count, the one that would be done first wins.

use crate::class::TaskClass;
use crate::mode::ModeRule;
use crate::policy::Split;
use crate::ran::Ran;
use crate::record::{TaskOutcome, TaskRecord};
use crate::scheduler::queue::{Attempt, Check, Job, QueuedTask, Side, TaskState};
use crate::scheduler::service::Standing;
use crate::scheduler::{REFERENCE, Scheduler};
use crate::unit::{Assignment, Offer, Refused, Unit};
use situ_base::lock;
use situ_compaction::{AttemptHost, Priority, Result, Task, TaskError, TaskHost};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Numbers of attempts are given once in a process: a unit that two stores were given by mistake does not exchange
/// their results.
static NEXT_ATTEMPT: AtomicU64 = AtomicU64::new(1);

/// A unit's answer for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was not asked, or the task does not suit it.
    No,
    /// It has no room now.
    Busy,
    /// It would be done in this time.
    DoneIn(Duration),
    /// The same, of a unit that is out of service.
    ProvesItselfIn(Duration),
}

/// The offers that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Narrowed {
    /// By unit.
    pub(crate) offers: Vec<Option<Duration>>,
    /// The reference unit runs the task, too.
    pub(crate) is_checked: bool,
}

/// A task's wishes for its unit, for [`narrow`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) meant_for: Option<usize>,
    pub(crate) to_check: bool,
    /// It does not wait for a unit that is busy.
    pub(crate) is_impatient: bool,
}

/// Which of the answers count for a task.
pub(crate) fn narrow(answers: &[Answer], wishes: Wishes) -> Narrowed {
    let only = |counts: &dyn Fn(usize, Answer) -> bool| -> Vec<Option<Duration>> {
        let offer = |(at, answer): (usize, &Answer)| match *answer {
            Answer::DoneIn(time) | Answer::ProvesItselfIn(time) if counts(at, *answer) => Some(time),
            _ => None,
        };
        answers.iter().enumerate().map(offer).collect()
    };
    let none = Narrowed { offers: vec![None; answers.len()], is_checked: false };
    let any_other = |wanted: fn(&Answer) -> bool| answers.iter().skip(1).any(wanted);
    if any_other(|answer| matches!(answer, Answer::ProvesItselfIn(_))) {
        let offers = only(&|_, answer| matches!(answer, Answer::ProvesItselfIn(_)));
        return Narrowed { offers, is_checked: true };
    }
    if wishes.to_check && any_other(|answer| matches!(answer, Answer::DoneIn(_))) {
        return Narrowed { offers: only(&|at, _| at != REFERENCE), is_checked: true };
    }
    if wishes.to_check && !wishes.is_impatient && any_other(|answer| matches!(answer, Answer::Busy)) {
        return none;
    }
    let meant_for = wishes.meant_for.and_then(|unit| Some((unit, *answers.get(unit)?)));
    match meant_for {
        Some((unit, Answer::DoneIn(_))) => Narrowed { offers: only(&|at, _| at == unit), is_checked: false },
        Some((_, Answer::Busy)) if !wishes.is_impatient => none,
        _ => Narrowed { offers: only(&|_, answer| matches!(answer, Answer::DoneIn(_))), is_checked: false },
    }
}

/// The unit that would be done first; the earlier one in the list if several would.
pub(crate) fn choose(offers: &[Option<Duration>]) -> Option<usize> {
    let able = offers.iter().enumerate().filter_map(|(at, offer)| Some((at, (*offer)?)));
    able.min_by_key(|(_, time)| *time).map(|(at, _)| at)
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

/// The facts about its job that an attempt needs.
struct OfJob {
    job: u64,
    host: Arc<dyn TaskHost>,
    priority: Priority,
    class: TaskClass,
    now: Duration,
}

impl Scheduler {
    /// Gives tasks of a job to units, as far as they have room and the job may. False if no unit has room for any task.
    pub(crate) fn assign_job(&self, job: &mut Job, now: Duration) -> bool {
        let of = OfJob { job: job.number, host: Arc::clone(&job.host), priority: job.priority, class: job.class, now };
        let mut running = job.tasks_running();
        let mut has_room = true;
        for task in &mut job.tasks {
            if job.failure.is_some() || !has_room {
                break;
            }
            // One that is checked may have begun on one of its units.
            let is_begun = task.runs();
            if !task.waits() || running >= job.abreast && !is_begun {
                continue;
            }
            match self.assign(task, &of) {
                Ok(is_taken) => {
                    running += usize::from(is_taken && !is_begun);
                    has_room = is_taken || self.any_has_room();
                }
                Err(error) => job.failure = Some(error),
            }
        }
        if job.failure.is_some() {
            job.tasks.iter_mut().for_each(|task| self.give_up(task, now));
        }
        has_room
    }

    fn any_has_room(&self) -> bool {
        self.units.iter().map(|unit| unit.load()).any(|load| load.tasks < load.tasks_max)
    }

    /// Returns the answer of each unit for a task.
    fn ask(&self, task: &mut QueuedTask, of: &OfJob) -> Vec<Answer> {
        let mut standings: Vec<Standing> = lock(&self.queue).units.iter().map(|unit| unit.standing(of.now)).collect();
        // There is none that would do its tasks.
        standings[REFERENCE] = Standing::InService;
        let reference_only = task.tried.len() >= self.patience.tries_elsewhere_max.max(1) as usize;
        let ask = |(at, unit): (usize, &Arc<dyn Unit>)| {
            let is_out = standings[at] == Standing::Rests || task.tried.contains(&at) || task.unsuited.contains(&at);
            if at != REFERENCE && (reference_only || is_out || !self.uses_others(task)) {
                return Answer::No;
            }
            let offer = unit.offer(&task.task);
            lock(&self.queue).units[at].is_unsuited = matches!(offer, Offer::Unsuited(_));
            match offer {
                Offer::DoneIn(time) if standings[at] == Standing::MayProveItself => Answer::ProvesItselfIn(time),
                Offer::DoneIn(time) => Answer::DoneIn(time),
                // No task waits for a unit that is out of service.
                Offer::Busy if standings[at] == Standing::InService => Answer::Busy,
                Offer::Busy => Answer::No,
                Offer::Unsuited(reason) => {
                    self.find_unsuited(task, at, &reason, of);
                    Answer::No
                }
            }
        };
        self.units.iter().enumerate().map(ask).collect()
    }

    /// Returns true if units elsewhere may get a task: a policy may leave all to the host but what is checked.
    fn uses_others(&self, task: &QueuedTask) -> bool {
        self.policy.split.uses_others() || task.to_check
    }

    /// Notes and records, once, that a task does not suit a unit.
    fn find_unsuited(&self, task: &mut QueuedTask, unit: usize, reason: &str, of: &OfJob) {
        if !task.unsuited.contains(&unit) {
            task.unsuited.push(unit);
            self.note_unsuited(unit, reason);
            self.keep_record(task, unit, TaskOutcome::Illegal(Arc::from(reason)), of);
        }
    }

    /// Gives a waiting task to a unit, if one has room. Fails if the reference unit will never take it.
    fn assign(&self, task: &mut QueuedTask, of: &OfJob) -> Result<bool> {
        if matches!(task.state, TaskState::Checked(_)) {
            return self.assign_reference(task, of);
        }
        let mut answers = self.ask(task, of);
        let has_waited = of.now.saturating_sub(task.waits_since) >= self.patience.busy_max;
        // A split that is fixed stays so: what its unit cannot do at all, others do, and what it will do later waits.
        let holds_writers = of.priority.is_level0 && task.meant_for != Some(REFERENCE);
        let is_impatient = has_waited && (self.policy.split == Split::Automatic || holds_writers);
        let wishes = Wishes { meant_for: task.meant_for, to_check: task.to_check, is_impatient };
        loop {
            let Narrowed { offers, is_checked } = narrow(&answers, wishes);
            let Some(chosen) = choose(&offers) else { return Ok(false) };
            match self.give(task, chosen, is_checked, of) {
                Ok(attempt) if is_checked => {
                    self.begin_check(task, attempt, matches!(answers[chosen], Answer::ProvesItselfIn(_)));
                    // If the reference unit has no room now, it gets the task in a later turn.
                    self.assign_reference(task, of)?;
                    return Ok(true);
                }
                Ok(attempt) => {
                    task.state = TaskState::Running(attempt);
                    return Ok(true);
                }
                Err(refused) => {
                    self.take_refusal(task, chosen, &refused, of)?;
                    let is_busy = refused == Refused::Busy && matches!(answers[chosen], Answer::DoneIn(_));
                    answers[chosen] = if is_busy { Answer::Busy } else { Answer::No };
                }
            }
        }
    }

    fn begin_check(&self, task: &mut QueuedTask, attempt: Attempt, is_proof: bool) {
        if is_proof {
            self.set_proves_itself(attempt.unit, true);
        }
        task.was_checked = true;
        let (other, reference) = (Side::Running(attempt), Side::Waiting);
        task.state = TaskState::Checked(Box::new(Check { other, reference, is_proof, comparison: None }));
    }

    /// Gives the reference unit a task that another unit has already.
    fn assign_reference(&self, task: &mut QueuedTask, of: &OfJob) -> Result<bool> {
        if !matches!(self.units[REFERENCE].offer(&task.task), Offer::DoneIn(_)) {
            return Ok(false);
        }
        match self.give(task, REFERENCE, true, of) {
            Ok(attempt) => {
                if let TaskState::Checked(check) = &mut task.state {
                    check.reference = Side::Running(attempt);
                }
                Ok(true)
            }
            Err(refused) => self.take_refusal(task, REFERENCE, &refused, of).map(|()| false),
        }
    }

    /// Gives a task to a unit.
    fn give(&self, task: &QueuedTask, unit: usize, is_checked: bool, of: &OfJob) -> Result<Attempt, Refused> {
        let host = AttemptHost::of(&of.host);
        let number = NEXT_ATTEMPT.fetch_add(1, Ordering::Relaxed);
        let assignment = Assignment {
            attempt: number,
            task: for_encoder(&task.task, &*self.units[unit]),
            host: Arc::clone(&host) as Arc<dyn TaskHost>,
            mode: self.mode_of(unit),
            done: Arc::clone(&self.event),
        };
        // First: the unit may have done the task when `submit` returns, and no thread may look before the record is
        // there.
        let record = self.record(task, unit, of);
        lock(&self.records).begin(TaskRecord { attempt: number, is_checked, ..record });
        let taken = self.units[unit].submit(assignment);
        if let Err(refused) = taken {
            lock(&self.records).forget(number);
            return Err(refused);
        }
        lock(&self.queue).units[unit].report.attempts += 1;
        let late_at = (unit != REFERENCE).then(|| of.now.saturating_add(self.patience.for_task(&task.task)));
        Ok(Attempt { number, unit, began: of.now, late_at, host, answer: None })
    }

    /// Returns the rule by which a unit is to choose the mode of a run.
    fn mode_of(&self, unit: usize) -> ModeRule {
        if unit == REFERENCE { self.policy.host.clone() } else { self.policy.elsewhere.clone() }
    }

    /// Counts a refusal. The reference unit must not refuse for good.
    fn take_refusal(&self, task: &mut QueuedTask, unit: usize, refused: &Refused, of: &OfJob) -> Result<()> {
        match refused {
            Refused::Unsuited(reason) => self.find_unsuited(task, unit, reason, of),
            Refused::Gone(reason) => {
                self.note_gone(unit, reason, of.now);
                self.keep_record(task, unit, TaskOutcome::Refused(Arc::from(reason.as_str())), of);
            }
            Refused::Busy => self.note_busy(unit),
        }
        match refused {
            Refused::Gone(reason) | Refused::Unsuited(reason) if unit == REFERENCE => {
                Err(TaskError::Unit { unit: self.units[unit].name().to_owned(), reason: reason.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The record of a task that a unit did not take.
    fn keep_record(&self, task: &QueuedTask, unit: usize, outcome: TaskOutcome, of: &OfJob) {
        let record = TaskRecord { ended: Some(of.now), outcome, ..self.record(task, unit, of) };
        lock(&self.records).keep(record);
    }

    fn record(&self, QueuedTask { task, .. }: &QueuedTask, unit: usize, of: &OfJob) -> TaskRecord {
        TaskRecord {
            sequence: None,
            job: of.job,
            task: task.id,
            keyspace: task.keyspace,
            level: task.level,
            output_level: task.rules.output_level,
            priority: of.priority,
            class: of.class,
            unit,
            unit_name: Arc::clone(&self.names[unit]),
            attempt: 0,
            is_checked: false,
            began: of.now,
            ended: None,
            elapsed: Duration::ZERO,
            ran: Ran::default(),
            input_bytes: task.input_bytes(),
            output_bytes: 0,
            outcome: TaskOutcome::Running,
        }
    }
}
