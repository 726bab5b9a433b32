//! Who runs what, and what happens when that goes wrong.
//!
//! 1. The tasks of a job wait. Each goes to the unit that would be done with it first, among those that can take it and
//!    have room: `(bytes it holds + the task's) / bytes a second`.
//! 2. Whatever finishes is checked ([`check_output`]).
//! 3. An attempt that fails, gives a wrong answer, or is late is given up: its host answers "cancelled" from then on,
//!    so that it can neither go on nor create files. The task waits again, for the *reference unit* only. A unit that
//!    let us down rests for a while, twice as long each time.
//! 4. The reference unit is never late and is believed: if a task fails there, the job fails. It is checked all the
//!    same.
//!
//! **Invariants**: at most two attempts of a task, the second on the reference unit; an output is accepted from the
//! attempt that is current, so never two for a task; numbers in it were handed out to that attempt.
//! **Threads**: each job is driven by the thread that called [`Scheduler::run`]. Any of them may collect another one's
//! results from a unit; they go through the inbox, and an event says so. No lock is held while a unit is spoken to.
//! **Failure**: a lost unit costs speed, not data: tasks return when they are late.
//!
//! Rejected: a scheduler thread. It would wake up for each result only to wake up the thread that waits for the job.

use crate::check::check_output;
use crate::dropped::ValueHandles;
use crate::error::{Result, TaskError};
use crate::task::{Task, TaskHost, TaskOutput};
use crate::unit::{Assignment, Finished, Load, Refused, Unit};
use situ_device::lock;
use situ_device::{Env, Event};
use situ_storage::{Error, Writer};
use situ_table::Warming;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long to wait for units that let us down.
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

/// Speed assumed of a unit that has not finished anything yet.
const UNKNOWN_BYTES_PER_S: u64 = 100 << 20;
/// When nothing that is running could wake us, units are asked again after this long.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What went differently from what was hoped, since the scheduler was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerStats {
    /// Attempts that a unit took.
    pub attempts: u64,
    /// Refusals other than for want of room.
    pub refused: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were given up because they took too long.
    pub late: u64,
    /// Attempts whose output was not right.
    pub suspicious: u64,
}

/// Gives tasks to units, checks what comes back, and has the reference unit do again what went wrong elsewhere.
pub struct Scheduler {
    env: Env,
    /// The first one is the reference unit.
    units: Vec<Arc<dyn Unit>>,
    patience: Patience,
    event: Arc<dyn Event>,
    next_attempt: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// For each current attempt of any job: what came of it.
    inbox: BTreeMap<u64, Option<Finished>>,
    health: Vec<Health>,
    stats: SchedulerStats,
}

#[derive(Debug, Clone, Copy, Default)]
struct Health {
    failures: u32,
    rests_until: Duration,
}

/// The reference unit's place in the list.
const REFERENCE: usize = 0;

enum Stage {
    Waiting { reference_only: bool },
    Running { attempt: u64, unit: usize, late_at: Option<Duration>, host: Arc<AttemptHost> },
    Done(TaskOutput),
}

struct Place {
    task: Arc<Task>,
    stage: Stage,
}

/// A host that can be taken away from one attempt.
struct AttemptHost {
    inner: Arc<dyn TaskHost>,
    given_up: AtomicBool,
    numbers: Mutex<Vec<u64>>,
}

impl TaskHost for AttemptHost {
    fn new_table(&self, level: u32) -> situ_storage::Result<(u64, Box<dyn Writer>)> {
        if self.given_up.load(Ordering::Acquire) {
            return Err(Error::Invalid("the task was given to another unit".to_owned()));
        }
        let (number, writer) = self.inner.new_table(level)?;
        lock(&self.numbers).push(number);
        Ok((number, writer))
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

    fn cancelled(&self) -> bool {
        self.given_up.load(Ordering::Acquire) || self.inner.cancelled()
    }
}

impl Scheduler {
    /// `reference` runs what no other unit can or should; `others` are tried when they are faster.
    pub fn new(env: Env, reference: Arc<dyn Unit>, others: Vec<Arc<dyn Unit>>, patience: Patience) -> Scheduler {
        let event = env.executor.event();
        let units: Vec<Arc<dyn Unit>> = std::iter::once(reference).chain(others).collect();
        let state = State { health: vec![Health::default(); units.len()], ..State::default() };
        Scheduler { env, units, patience, event, next_attempt: AtomicU64::new(1), state: Mutex::new(state) }
    }

    /// What went wrong so far.
    pub fn stats(&self) -> SchedulerStats {
        lock(&self.state).stats
    }

    /// Runs all tasks of a job, side by side as far as units allow, and returns their outputs in the tasks' order.
    /// Blocks until the last one is done. Numbers that the host handed out and that are in no output are the caller's
    /// to remove.
    ///
    /// # Errors
    /// The first failure of the reference unit; other tasks of the job are then given up.
    pub fn run(&self, tasks: Vec<Task>, host: &Arc<dyn TaskHost>) -> Result<Vec<TaskOutput>> {
        let stage = || Stage::Waiting { reference_only: false };
        let mut places: Vec<Place> =
            tasks.into_iter().map(|task| Place { task: Arc::new(task), stage: stage() }).collect();
        let mut failure = None;
        loop {
            let seen = self.event.generation();
            self.collect();
            let now = self.env.clock.now();
            for place in &mut places {
                if let Err(error) = self.look_at(place, now) {
                    failure.get_or_insert(error);
                }
            }
            if failure.is_some() {
                self.give_up_all(&mut places);
            } else {
                for place in &mut places {
                    if let Err(error) = self.assign(place, host, now) {
                        failure.get_or_insert(error);
                    }
                }
                if failure.is_some() {
                    self.give_up_all(&mut places);
                }
            }
            let running = places.iter().filter(|place| matches!(place.stage, Stage::Running { .. })).count();
            let waiting = places.iter().any(|place| matches!(place.stage, Stage::Waiting { .. }));
            match failure {
                Some(error) if running == 0 => return Err(error),
                None if running == 0 && !waiting => break,
                _ => {}
            }
            self.event.wait(seen, self.next_look(&places, now, waiting && failure.is_none()));
        }
        Ok(places
            .into_iter()
            .filter_map(|place| if let Stage::Done(output) = place.stage { Some(output) } else { None })
            .collect())
    }

    /// Waits until all units have let go of the hosts of their tasks; they take no more. A task that has finished may hold
    /// its host a little longer than its job runs.
    pub fn close(&self) {
        self.units.iter().for_each(|unit| unit.close());
    }

    /// When to look again even if nobody notifies.
    fn next_look(&self, places: &[Place], now: Duration, waiting: bool) -> Option<Duration> {
        let late = places.iter().filter_map(|place| match &place.stage {
            Stage::Running { late_at, .. } => *late_at,
            _ => None,
        });
        let late = late.min().map(|at| at.saturating_sub(now));
        // A task that waits for room is woken by whatever frees it, in this job or another, unless a unit refused for
        // reasons of its own.
        if waiting { Some(late.map_or(ASK_AGAIN, |late| late.min(ASK_AGAIN))) } else { late }
    }

    /// Takes what has finished from all units to the inbox.
    fn collect(&self) {
        let mut finished = Vec::new();
        for unit in &self.units {
            unit.poll(&mut finished);
        }
        if finished.is_empty() {
            return;
        }
        {
            let mut state = lock(&self.state);
            for finished in finished {
                // One that nobody waits for any more was given up.
                if let Some(place) = state.inbox.get_mut(&finished.attempt) {
                    *place = Some(finished);
                }
            }
        }
        // Jobs that were notified by the unit before the inbox was filled have looked in vain.
        self.event.notify();
    }

    /// Moves one task on if its attempt has ended or is late.
    fn look_at(&self, place: &mut Place, now: Duration) -> Result<()> {
        let Stage::Running { attempt, unit, late_at, host } = &place.stage else { return Ok(()) };
        let (attempt, unit) = (*attempt, *unit);
        let mut state = lock(&self.state);
        let finished = match state.inbox.get_mut(&attempt).map(Option::take) {
            Some(Some(finished)) => finished,
            _ if late_at.is_some_and(|late_at| now >= late_at) => {
                state.inbox.remove(&attempt);
                state.stats.late += 1;
                self.let_down(&mut state, unit, now);
                host.given_up.store(true, Ordering::Release);
                place.stage = Stage::Waiting { reference_only: true };
                return Ok(());
            }
            _ => return Ok(()),
        };
        state.inbox.remove(&attempt);
        drop(state);

        let checked = finished.result.and_then(|output| {
            let numbers = lock(&host.numbers).clone();
            match check_output(&place.task, &numbers, &output) {
                Ok(()) => Ok(output),
                Err(reason) => Err(TaskError::Unit { unit: self.units[unit].name().to_owned(), reason }),
            }
        });
        // Files of a failed attempt must not grow behind our back.
        host.given_up.store(true, Ordering::Release);
        let mut state = lock(&self.state);
        match checked {
            Ok(output) => {
                state.health[unit].failures = 0;
                place.stage = Stage::Done(output);
                Ok(())
            }
            // Being stopped is nobody's fault.
            Err(TaskError::Cancelled) => {
                place.stage = Stage::Waiting { reference_only: true };
                Err(TaskError::Cancelled)
            }
            Err(error) => {
                match error {
                    TaskError::Unit { .. } => state.stats.suspicious += 1,
                    _ => state.stats.failed += 1,
                }
                self.let_down(&mut state, unit, now);
                place.stage = Stage::Waiting { reference_only: true };
                if unit == REFERENCE { Err(error) } else { Ok(()) }
            }
        }
    }

    fn let_down(&self, state: &mut State, unit: usize, now: Duration) {
        let health = &mut state.health[unit];
        let rest = self.patience.rest_min.saturating_mul(1 << health.failures.min(16)).min(self.patience.rest_max);
        health.failures = health.failures.saturating_add(1);
        health.rests_until = now.saturating_add(rest);
    }

    /// Gives a waiting task to a unit, if one has room. Fails if the reference unit will never take it.
    fn assign(&self, place: &mut Place, host: &Arc<dyn TaskHost>, now: Duration) -> Result<()> {
        let Stage::Waiting { reference_only } = place.stage else { return Ok(()) };
        let health = lock(&self.state).health.clone();
        let mut candidates: Vec<Candidate> = Vec::with_capacity(self.units.len());
        for (index, unit) in self.units.iter().enumerate() {
            let (limits, load) = (unit.limits(), unit.load());
            let rests = health[index].rests_until > now && health[index].failures > 0;
            let able = index == REFERENCE || (!reference_only && !rests && limits.admit(&place.task).is_ok());
            candidates.push(Candidate { able, tasks_max: limits.tasks, load });
        }
        let task_bytes = place.task.input_bytes();
        while let Some(chosen) = choose(&candidates, task_bytes) {
            let attempt = self.next_attempt.fetch_add(1, Ordering::Relaxed);
            let attempt_host = Arc::new(AttemptHost {
                inner: Arc::clone(host),
                given_up: AtomicBool::new(false),
                numbers: Mutex::default(),
            });
            lock(&self.state).inbox.insert(attempt, None);
            let assignment = Assignment {
                attempt,
                task: Arc::clone(&place.task),
                host: Arc::clone(&attempt_host) as Arc<dyn TaskHost>,
                done: Arc::clone(&self.event),
            };
            match self.units[chosen].submit(assignment) {
                Ok(()) => {
                    lock(&self.state).stats.attempts += 1;
                    let late_at = (chosen != REFERENCE).then(|| now + self.patience.for_task(&place.task));
                    place.stage = Stage::Running { attempt, unit: chosen, late_at, host: attempt_host };
                    return Ok(());
                }
                Err(refused) => {
                    let mut state = lock(&self.state);
                    state.inbox.remove(&attempt);
                    if refused != Refused::Busy {
                        state.stats.refused += 1;
                    }
                    if matches!(refused, Refused::Gone(_)) {
                        self.let_down(&mut state, chosen, now);
                    }
                    candidates[chosen].able = false;
                    if let (REFERENCE, Refused::Gone(reason) | Refused::Unsuited(reason)) = (chosen, refused) {
                        return Err(TaskError::Unit { unit: self.units[chosen].name().to_owned(), reason });
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives up what waits, and what runs anywhere but on the reference unit, which ends soon of itself.
    fn give_up_all(&self, places: &mut [Place]) {
        for place in places {
            match &place.stage {
                Stage::Running { unit: REFERENCE, host, .. } => host.given_up.store(true, Ordering::Release),
                Stage::Running { attempt, host, .. } => {
                    host.given_up.store(true, Ordering::Release);
                    lock(&self.state).inbox.remove(attempt);
                    place.stage = Stage::Waiting { reference_only: true };
                }
                _ => {}
            }
        }
    }
}

/// What the choice of a unit depends on.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    able: bool,
    tasks_max: usize,
    load: Load,
}

/// The unit that would be done first; the earlier one in the list if several would.
fn choose(candidates: &[Candidate], task_bytes: u64) -> Option<usize> {
    let expected_s = |load: &Load| {
        let speed = if load.bytes_per_s == 0 { UNKNOWN_BYTES_PER_S } else { load.bytes_per_s };
        load.input_bytes.saturating_add(task_bytes) as f64 / speed as f64
    };
    let able = candidates.iter().enumerate().filter(|(_, c)| c.able && c.load.tasks < c.tasks_max);
    able.min_by(|(_, a), (_, b)| expected_s(&a.load).total_cmp(&expected_s(&b.load))).map(|(index, _)| index)
}

#[cfg(test)]
mod tests;
