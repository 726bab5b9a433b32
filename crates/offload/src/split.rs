//! Which share of a job goes to which unit: pure decisions, over what was measured.
//!
//! 1. A policy's [`Split`] says how a job is divided: not at all, by fixed shares, by measured speed, by free
//!    resources, or by what has proved best.
//! 2. A job too small for two parts is not divided: the unit that would be done first gets it. Fixed shares hold over
//!    many jobs. A unit may get less than its share of one job, because the job was too small or its blocks too large.
//!    Then the unit is owed the rest of the next ones.
//! 3. A unit whose part would be too small gets none.
//! 4. Each job that has landed tells how fast each of its units was ([`Splitter::note`]). The speed of a unit is the
//!    bytes of all its tasks of the job, over the time from the first one's beginning to the last one's end. So it
//!    holds what tasks side by side cost each other, and the way to the unit and back. Speeds are smoothed, for each
//!    class of tasks.
//!
//! # Automatic
//! A class of tasks has three *arms*: all on the host, all elsewhere, and divided by speed. The time that a byte takes
//! is measured for each of them, over whole jobs. The arm that takes the least time is used. So no job is divided if
//! one side alone was measured to be faster, whatever the two share: a disk, a network, the host's memory.
//!
//! * While the host's processors are in use, clients wait for what the host compacts. So the time of an arm counts as
//!   longer, by [`HOST_COST`] times two factors: the host's share in the arm, and the part of a processor that is not
//!   free there. That favours neither an arm that takes more than twice the time of the quickest one, nor a division
//!   that is slower than one side alone.
//! * An arm that was never measured is used once, unless the speed of its units says that it takes more than twice as
//!   long.
//! * An arm may have had bad luck when it was measured, or its units were slower then. Their speed may promise more
//!   than the best arm has. Such an arm is looked at again after [`LOOK_AGAIN_JOBS`] jobs. Each time that it is not the
//!   best, it rests twice as long.
//! * Otherwise, and when it was not used for [`MEASURE_AGAIN_JOBS`] jobs, an arm is measured out of a budget:
//!   [`EXPLORE_SHARE`] of the time of all jobs. What the arm is expected to take longer than the best one is paid from
//!   it, and so is what it took longer than expected. So looking elsewhere costs at most that share, the first look,
//!   and the looks that were promising.
//!
//! **Invariants**: shares are in the units' order, none is negative, and they sum up to one. A unit that cannot be used
//! has none.
//! **Threads**: none; the scheduler has it under a lock.
//!
//! Rejected: choosing at random how often to look elsewhere. A test could not say what comes next, and a slow unit
//! would cost without bound.

use crate::class::TaskClass;
use crate::mode::Resources;
use crate::policy::Split;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// The weight of the latest job in a smoothed measure.
const SMOOTHING: f64 = 0.25;
/// A measure that is this many times the one before, or this fraction of it, is odd. Two odd ones after each other are
/// no matter of chance.
const CHANGED: f64 = 2.0;
/// The weight of the second odd measure, and of a measure of what was not measured for long.
const CHANGED_SMOOTHING: f64 = 0.7;
/// The cost of a byte on the host, in addition to its time, while the host has no processor free, in times of that
/// time.
const HOST_COST: f64 = 2.5;
/// An arm whose units promise this many times the speed of the best arm is looked at again.
const PROMISING: f64 = 1.1;
/// The number of jobs of its class after which it is looked at, at first.
const LOOK_AGAIN_JOBS: u64 = 8;
/// The number of jobs after which it is looked at, at last.
const LOOK_AGAIN_JOBS_MAX: u64 = 1024;
/// An arm that was not used for this many jobs of its class may be measured again.
const MEASURE_AGAIN_JOBS: u64 = 32;
/// An arm that was chosen and has not given a measure is chosen again after this many jobs: its job has failed.
const NO_ANSWER_JOBS: u64 = 8;
/// An arm that is expected to take more than this many times as long as the best one is looked at only out of the
/// budget.
const MUCH_SLOWER: f64 = 2.0;
/// The share of all time that looking at other arms may cost.
const EXPLORE_SHARE: f64 = 0.01;
/// A measure over fewer bytes has less weight.
const FULL_WEIGHT_BYTES: f64 = (1 << 20) as f64;
/// The host, in the list of units.
const HOST: usize = 0;

/// The way in which the automatic split divides a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arm {
    /// By the speed of each unit.
    ByTime,
    /// All of it on the other units.
    Elsewhere,
    /// All of it on the host's processor.
    Host,
}

impl Arm {
    const ALL: [Arm; 3] = [Arm::ByTime, Arm::Elsewhere, Arm::Host];
}

/// The part of one unit in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SideMeasure {
    pub(crate) unit: usize,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
}

/// The measure of a job that has landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobMeasure {
    pub(crate) class: TaskClass,
    pub(crate) arm: Option<Arm>,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) sides: Vec<SideMeasure>,
}

/// A unit, as far as a split looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UnitView {
    /// It takes tasks now.
    pub(crate) is_usable: bool,
    /// Its speed as it says itself; 0 if it does not.
    pub(crate) bytes_per_s: u64,
    pub(crate) resources: Option<Resources>,
}

/// A job that is to be divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToSplit<'a> {
    pub(crate) split: Split,
    pub(crate) class: TaskClass,
    pub(crate) bytes: u64,
    /// A unit gets no less.
    pub(crate) part_bytes_min: u64,
    /// The host first.
    pub(crate) units: &'a [UnitView],
}

/// The division of a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shares {
    /// Not at all: whichever unit would be done first gets it.
    Anywhere,
    /// By unit.
    Of(Vec<f64>),
    /// By unit, as an arm says.
    ByArm(Arm, Vec<f64>),
}

/// A smoothed measure. Measures are smoothed by their factors: a unit that is ten times as slow is noticed as soon as
/// one that is ten times as fast. The second field says whether the last measure was odd, and how.
#[derive(Debug, Clone, Copy, Default)]
struct Smoothed(Option<f64>, Option<Ordering>);

impl Smoothed {
    /// Takes a measure over `bytes` bytes. A few bytes say little: most of their time is the way to the unit and back.
    fn note(&mut self, measure: f64, bytes: u64) {
        let odd = self.0.and_then(|before| odd(measure / before));
        let weight = if odd.is_some() && odd == self.1 { CHANGED_SMOOTHING } else { SMOOTHING };
        self.smooth(measure, bytes, weight);
        self.1 = odd;
    }

    fn smooth(&mut self, measure: f64, bytes: u64, weight: f64) {
        let share = (bytes as f64 / FULL_WEIGHT_BYTES).min(1.0);
        let smoothed = |before: f64| before * (measure / before).powf(share * weight);
        self.0 = Some(self.0.map_or(measure, smoothed));
    }
}

/// Returns the direction in which a measure is odd that is `change` times the one before.
fn odd(change: f64) -> Option<Ordering> {
    match change {
        change if change >= CHANGED => Some(Ordering::Greater),
        change if change <= 1.0 / CHANGED => Some(Ordering::Less),
        _ => None,
    }
}

/// The measures so far, by which jobs are divided.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// Bytes a second.
    speeds: BTreeMap<(usize, TaskClass), Smoothed>,
    arms: BTreeMap<TaskClass, Arms>,
    /// By unit, the bytes that fixed shares owe it; less than zero if it has got more than its share.
    owed: Vec<f64>,
}

/// The three ways to divide jobs of one class.
#[derive(Debug, Clone, Default)]
struct Arms {
    states: [ArmState; 3],
    /// Jobs for which an arm was chosen.
    jobs: u64,
    /// The time that looking at other arms may still cost, in seconds.
    budget_s: f64,
    /// The share of its own time by which an arm's time counts longer, for each arm. It follows from the load of the
    /// host's processors when an arm was last chosen.
    extra: [f64; 3],
}

#[derive(Debug, Clone, Copy, Default)]
struct ArmState {
    seconds_a_byte: Smoothed,
    /// The job for which it was last chosen.
    chosen_at: Option<u64>,
    /// The number of jobs that had been chosen for when it last gave a measure.
    told_at: u64,
    /// The number of looks in a row in which it was not the best arm.
    looks: u32,
}

impl ArmState {
    /// After how many jobs it is looked at again, if it promises much.
    fn look_after(&self) -> u64 {
        (LOOK_AGAIN_JOBS << self.looks.min(16)).min(LOOK_AGAIN_JOBS_MAX)
    }
}

/// Returns the shares that are left when units with a small part get none; `None` if nothing is left.
fn without_small(shares: &[f64], bytes: u64, part_bytes_min: u64) -> Option<Vec<f64>> {
    let mut shares = normal(shares)?;
    loop {
        let given = shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
        if given.clone().count() <= 1 {
            return Some(shares);
        }
        let (at, least) = given.min_by(|a, b| a.1.total_cmp(b.1))?;
        if least * bytes as f64 >= part_bytes_min as f64 {
            return Some(shares);
        }
        shares[at] = 0.0;
        shares = normal(&shares)?;
    }
}

/// The shares of one; `None` if there are none.
fn normal(shares: &[f64]) -> Option<Vec<f64>> {
    let sum: f64 = shares.iter().sum();
    (sum > 0.0 && sum.is_finite()).then(|| shares.iter().map(|share| share / sum).collect())
}

fn only(count: usize, unit: usize) -> Vec<f64> {
    (0..count).map(|at| if at == unit { 1.0 } else { 0.0 }).collect()
}

fn parts(shares: &[f64]) -> usize {
    shares.iter().filter(|share| **share > 0.0).count()
}

impl Splitter {
    /// Decides the division of a job.
    pub(crate) fn divide(&mut self, job: &ToSplit<'_>) -> Shares {
        if !job.split.uses_others() {
            return Shares::Of(only(job.units.len(), HOST));
        }
        if job.units.iter().skip(1).all(|unit| !unit.is_usable) {
            return Shares::Anywhere;
        }
        let is_too_small = job.bytes < job.part_bytes_min.saturating_mul(2);
        match job.split {
            Split::Static { elsewhere_percent } => self.by_fixed_shares(job, elsewhere_percent, is_too_small),
            _ if is_too_small => Shares::Anywhere,
            Split::ByTime => of(without_small(&self.speeds(job), job.bytes, job.part_bytes_min)),
            Split::ByResources => of(without_small(&by_resources(job.units), job.bytes, job.part_bytes_min)),
            Split::Automatic => self.automatic(job),
            Split::HostOnly => unreachable!("answered above"),
        }
    }

    /// Takes the measure of a job.
    pub(crate) fn note(&mut self, measure: &JobMeasure) {
        for side in measure.sides.iter().filter(|side| side.bytes > 0) {
            let speed = side.bytes as f64 / side.elapsed.as_secs_f64().max(1e-6);
            self.speeds.entry((side.unit, measure.class)).or_default().note(speed, side.bytes);
        }
        if let Some(arm) = measure.arm.filter(|_| measure.bytes > 0) {
            self.arms.entry(measure.class).or_default().note(arm, measure.bytes, measure.elapsed);
        }
    }

    /// The speed of each unit that can be used: as measured with this class, with any class, as it says itself, or as
    /// that of the others.
    fn speeds(&self, job: &ToSplit<'_>) -> Vec<f64> {
        let known: Vec<Option<f64>> = (0..job.units.len()).map(|unit| self.speed(unit, job)).collect();
        let some: Vec<f64> = known.iter().flatten().copied().collect();
        let mean = if some.is_empty() { 1.0 } else { some.iter().sum::<f64>() / some.len() as f64 };
        let speed = |(unit, known): (usize, Option<f64>)| match job.units[unit].is_usable {
            true => known.unwrap_or(mean).max(1.0),
            false => 0.0,
        };
        known.into_iter().enumerate().map(speed).collect()
    }

    fn speed(&self, unit: usize, job: &ToSplit<'_>) -> Option<f64> {
        let of_class = self.speeds.get(&(unit, job.class)).and_then(|speed| speed.0);
        let of_unit = || {
            let all: Vec<f64> =
                self.speeds.iter().filter(|((of, _), _)| *of == unit).filter_map(|(_, s)| s.0).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        let claimed = job.units[unit].bytes_per_s;
        of_class.or_else(of_unit).or((claimed > 0).then_some(claimed as f64))
    }

    /// The host has its share, and the other units have the rest by their speed.
    fn fixed_shares(&self, job: &ToSplit<'_>, elsewhere_percent: u8) -> Vec<f64> {
        let elsewhere = f64::from(elsewhere_percent.min(100)) / 100.0;
        let speeds = self.speeds(job);
        let all: f64 = speeds.iter().skip(1).sum();
        let share = |(unit, speed): (usize, &f64)| match unit {
            HOST => 1.0 - elsewhere,
            _ => elsewhere * speed / all,
        };
        speeds.iter().enumerate().map(share).collect()
    }

    /// Divides a job by fixed shares. Each unit gets the bytes that it is owed of this job and of those before it.
    fn by_fixed_shares(&mut self, job: &ToSplit<'_>, elsewhere_percent: u8, is_too_small: bool) -> Shares {
        let shares = self.fixed_shares(job, elsewhere_percent);
        self.owed.resize(shares.len(), 0.0);
        let due = |(share, owed): (&f64, &f64)| match *share > 0.0 {
            true => (share * job.bytes as f64 + owed).max(0.0),
            false => 0.0,
        };
        let due: Vec<f64> = shares.iter().zip(&self.owed).map(due).collect();
        let divided = without_small(&due, job.bytes, job.part_bytes_min).filter(|left| parts(left) > 1);
        if let Some(divided) = divided.filter(|_| !is_too_small) {
            return Shares::Of(divided);
        }
        let wanting = (0..shares.len()).filter(|unit| shares[*unit] > 0.0);
        // The later one of two that are owed the same: units elsewhere begin.
        let most = wanting.max_by(|a, b| due[*a].total_cmp(&due[*b]));
        most.map_or(Shares::Anywhere, |unit| Shares::Of(only(shares.len(), unit)))
    }

    /// A job was cut, and each unit is given these bytes: about what it was to have, as the blocks allow.
    pub(crate) fn note_given(&mut self, job: &ToSplit<'_>, given: &[f64]) {
        let Split::Static { elsewhere_percent } = job.split else { return };
        let shares = self.fixed_shares(job, elsewhere_percent);
        let all: f64 = given.iter().sum();
        for ((owed, share), given) in self.owed.iter_mut().zip(shares).zip(given) {
            *owed += share * all - given;
        }
    }

    fn automatic(&mut self, job: &ToSplit<'_>) -> Shares {
        let speeds = self.speeds(job);
        let mut others = speeds.clone();
        others[HOST] = 0.0;
        let small = |speeds: &[f64]| without_small(speeds, job.bytes, job.part_bytes_min);
        let (Some(by_time), Some(elsewhere)) = (small(&speeds), small(&others)) else { return Shares::Anywhere };
        let can_split = by_time[HOST] > 0.0 && parts(&by_time) > 1;
        let arms = self.arms.entry(job.class).or_default();
        let sum = |units: &[f64]| units.iter().sum::<f64>();
        // Without measures there is nothing to expect.
        let is_measured = speeds
            .iter()
            .enumerate()
            .all(|(unit, speed)| *speed == 0.0 || self.speeds.contains_key(&(unit, job.class)));
        let expected = is_measured.then(|| [sum(&speeds), sum(&others), speeds[HOST]].map(|speed| 1.0 / speed));
        let host_share = [by_time[HOST], 0.0, 1.0];
        arms.extra = host_share.map(|share| HOST_COST * share * in_use(job.units[HOST].resources));
        let arm = arms.choose(job.bytes, can_split, expected);
        let shares = match arm {
            Arm::ByTime => by_time,
            Arm::Elsewhere => elsewhere,
            Arm::Host => only(speeds.len(), HOST),
        };
        Shares::ByArm(arm, shares)
    }
}

/// The part of one processor that is not free: a run on the host takes about one.
fn in_use(resources: Option<Resources>) -> f64 {
    resources.map_or(0.0, |free| 1.0 - f64::from(free.processors_free_milli.min(1000)) / 1000.0)
}

fn of(shares: Option<Vec<f64>>) -> Shares {
    shares.map_or(Shares::Anywhere, Shares::Of)
}

/// The share of each unit is that of its scarcest resource among all that is free. A resource that no unit reports does
/// not count. A unit that does not report one counts as the others are on average.
fn by_resources(units: &[UnitView]) -> Vec<f64> {
    let kinds: [fn(&Resources) -> f64; 3] = [
        |free| f64::from(free.processors_free_milli),
        |free| free.memory_free_bytes as f64,
        |free| free.bandwidth_free_bytes_per_s as f64,
    ];
    let usable = |unit: &UnitView| unit.is_usable;
    let mut scarcest = vec![f64::INFINITY; units.len()];
    for (kind, amount) in kinds.iter().enumerate() {
        // A bandwidth of 0 is one that is not known.
        let known =
            |unit: &UnitView| unit.resources.map(|free| amount(&free)).filter(|amount| kind < 2 || *amount > 0.0);
        let amounts: Vec<f64> = units.iter().filter(|unit| usable(unit)).filter_map(known).collect();
        let mean = amounts.iter().sum::<f64>() / amounts.len().max(1) as f64;
        if mean <= 0.0 {
            continue;
        }
        for (share, unit) in scarcest.iter_mut().zip(units) {
            *share = share.min(known(unit).unwrap_or(mean) / mean);
        }
    }
    let share = |(unit, share): (&UnitView, f64)| match usable(unit) {
        false => 0.0,
        // Nothing is known of any: all alike.
        true if share.is_infinite() => 1.0,
        true => share,
    };
    let shares: Vec<f64> = units.iter().zip(scarcest).map(share).collect();
    // Nothing is free anywhere: all alike, too.
    if parts(&shares) == 0 { units.iter().map(|unit| f64::from(u8::from(usable(unit)))).collect() } else { shares }
}

impl Arms {
    /// The arm for a job. `expected` is how many seconds a byte would take with each of them, by the speed of the
    /// units.
    fn choose(&mut self, bytes: u64, can_split: bool, expected: Option<[f64; 3]>) -> Arm {
        self.jobs += 1;
        let arm = self.best_for(bytes as f64, can_split, expected);
        self.states[arm as usize].chosen_at = Some(self.jobs);
        arm
    }

    fn best_for(&mut self, bytes: f64, can_split: bool, expected: Option<[f64; 3]>) -> Arm {
        let arms = || Arm::ALL.into_iter().filter(|arm| can_split || *arm != Arm::ByTime);
        let measured = |arm: Arm| Some((arm, self.counted(arm)? * bytes));
        let best = arms().filter_map(measured).min_by(|a, b| a.1.total_cmp(&b.1));
        let expects =
            |arm: Arm| expected.map(|expected| expected[arm as usize] * (1.0 + self.extra[arm as usize]) * bytes);
        let is_worth_a_look = |arm: Arm| match (expects(arm), best) {
            (Some(expected), Some((_, least))) => expected <= least * MUCH_SLOWER,
            _ => true,
        };
        let new = arms().filter(|arm| !self.is_measured(*arm) && !self.was_chosen(*arm, NO_ANSWER_JOBS));
        // The one that is expected to be the fastest; the first one if nothing is expected.
        let by_cost = |a: &Arm, b: &Arm| expects(*a).unwrap_or(0.0).total_cmp(&expects(*b).unwrap_or(0.0));
        if let Some(arm) = new.filter(|arm| is_worth_a_look(*arm)).min_by(by_cost) {
            return arm;
        }
        // All are being measured: the first one of them.
        let Some((best, least)) = best else { return if can_split { Arm::ByTime } else { Arm::Elsewhere } };
        let others = || arms().filter(|arm| *arm != best);
        let promises = |arm: &Arm| expects(*arm).is_some_and(|expected| expected * PROMISING < least);
        let looked_at = |arm: &Arm| {
            let state = &self.states[*arm as usize];
            self.was_chosen(*arm, state.look_after()) || self.jobs - state.told_at < state.look_after()
        };
        if let Some(arm) = others().filter(promises).filter(|arm| !looked_at(arm)).min_by(by_cost) {
            return arm;
        }
        let old = others().filter(|arm| !self.was_chosen(*arm, MEASURE_AGAIN_JOBS));
        let cost = |arm: Arm| Some((arm, measured(arm).map(|(_, cost)| cost).or_else(|| expects(arm))? - least));
        match old.filter_map(cost).min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((arm, more)) if more <= self.budget_s => {
                self.budget_s -= more.max(0.0);
                arm
            }
            _ => best,
        }
    }

    /// Returns the seconds that a byte counts as. Slow compactions hold writers up. So an arm that is much slower than
    /// the quickest one counts as if the host did all of it. A division that is slower than one side alone counts so,
    /// too.
    fn counted(&self, arm: Arm) -> Option<f64> {
        let took = |arm: Arm| self.states[arm as usize].seconds_a_byte.0;
        let quickest = Arm::ALL.into_iter().filter_map(took).fold(f64::INFINITY, f64::min);
        let own = took(arm)?;
        let is_slow = own > quickest * if arm == Arm::ByTime { 1.0 } else { MUCH_SLOWER };
        let extra = self.extra[if is_slow { Arm::Host } else { arm } as usize];
        Some(own * (1.0 + extra))
    }

    fn is_measured(&self, arm: Arm) -> bool {
        self.states[arm as usize].seconds_a_byte.0.is_some()
    }

    fn was_chosen(&self, arm: Arm, within_jobs: u64) -> bool {
        self.states[arm as usize].chosen_at.is_some_and(|at| self.jobs - at < within_jobs)
    }

    /// A job of an arm has landed.
    fn note(&mut self, arm: Arm, bytes: u64, elapsed: Duration) {
        let took = elapsed.as_secs_f64().max(1e-6);
        let state = &mut self.states[arm as usize];
        let expected = state.seconds_a_byte.0.map_or(took, |before| before * bytes as f64);
        match self.jobs.saturating_sub(state.told_at) < LOOK_AGAIN_JOBS {
            true => state.seconds_a_byte.note(took / bytes as f64, bytes),
            false => state.seconds_a_byte.smooth(took / bytes as f64, bytes, CHANGED_SMOOTHING),
        }
        state.told_at = self.jobs;
        self.budget_s += EXPLORE_SHARE * took;
        let least = Arm::ALL.into_iter().filter_map(|arm| self.counted(arm)).fold(f64::INFINITY, f64::min);
        let is_best = self.counted(arm).is_none_or(|now| now <= least);
        let state = &mut self.states[arm as usize];
        state.looks = if is_best { 0 } else { state.looks.saturating_add(1) };
        // An arm that is not the best one was looked at: what that took longer than expected is paid, too.
        if !is_best {
            self.budget_s -= (took - expected).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests;
