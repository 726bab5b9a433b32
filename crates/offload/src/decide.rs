//! The decision component: whether a task runs linear or pipelined. Each side has its own, and none depends on
//! another's.
//!
//! ```text
//! sampler of the machine ─┐
//! the engine's reads ─────┼─ metric messages ─> collector ─┐
//! anything else ──────────┘                                ├─> f against the threshold ─> mode, record
//! tables of the task ─── share of large values ────────────┘
//! ```
//!
//! 1. The *collector* keeps the last value of each measure. It is fed with metric messages ([`encode_measures`]), as
//!    CoPro has it.
//! 2. A decision is asked for with the rules and the task. The decider asks its sampler for news of the machine first,
//!    and the task's tables for the share of large values (`large_values.rs`).
//! 3. f is the sum of each measure times its weight (CoPro, formula 1). A missing measure counts as 0, and the record
//!    says so.
//! 4. f, what reads say, and how it stood before give the mode (`judge.rs`).
//! 5. The record of the decision goes with the task's result, and the counters count it.
//!
//! The state of the decider restarts when the rules differ from those of the decision before: pipelined, without a
//! dwell time. The measures stay.
//!
//! A node decides for several hosts. Each host has a decider of its own ([`beside`](Decider::beside)): the machine's
//! measures and the counts are shared. Rules, standing and the host's own measures are not shared. Rejected: one
//! decider for all. Hosts with different rules would restart the decider's state at each turn, and one host's reads
//! would decide for another's tasks.
//!
//! **Invariants**: the same rules, measures, tasks and times give the same modes. A measure is used for
//! [`MEASURE_AGE_MAX`] at most, one of reads for [`READ_AGE_MAX`]; so a source that has died does not decide.
//! **Threads**: any may collect and decide. The lock is held for moving values and for sums; the tables of a task are
//! opened before.
//! **Failure**: a message that is not one changes nothing. A sampler that finds nothing leaves its measures missing.

mod calibrate;
mod judge;
mod large_values;
mod machine;
mod record;

pub use calibrate::{Calibrated, Cost, SharePoint, Side, ValuePoint, calibrate, growth_ratio, rules_of};
pub use large_values::LargeValues;
pub use machine::{MachineSampler, Sampler};
pub use record::{DecisionRecord, DecisionReport, Held, ReadInputs, Term};

use crate::mode::{DecisionRules, Resources};
use judge::Standing;
use situ_base::lock;
use situ_compaction::{Measure, Pipelines, ReadTail, RunMode, Task, decode_measures, encode_measures};
use situ_storage::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A measure is not used when it is older than this.
pub const MEASURE_AGE_MAX: Duration = Duration::from_secs(60);
/// A measure of reads is not used when it is older than this.
pub const READ_AGE_MAX: Duration = Duration::from_secs(10);
/// The collector keeps this many further measures; it drops those of more names.
const NAMED_MAX: usize = 64;

/// Decides for each task how it runs. See the [module](self).
pub struct Decider {
    machine: Arc<Machine>,
    state: Mutex<State>,
}

/// The state that all deciders of a machine share. Its locks are taken after a decider's own.
#[derive(Default)]
struct Machine {
    sampler: Option<Box<dyn Sampler>>,
    pipelines: Pipelines,
    measured: Mutex<Measured>,
    report: Mutex<DecisionReport>,
}

#[derive(Default)]
struct State {
    collected: Collected,
    /// The rules under which the standing came about.
    rules: Option<DecisionRules>,
    standing: Standing,
}

/// The last value of each measure of the machine, and when it came.
#[derive(Clone, Copy, Default)]
struct Measured {
    processors: Option<(f64, Duration)>,
    memory: Option<(f64, Duration)>,
    processors_free: Option<(u32, Duration)>,
    memory_free: Option<(u64, Duration)>,
    bandwidth_free: Option<(u64, Duration)>,
}

/// The last value of each other measure, and when it came.
#[derive(Default)]
struct Collected {
    /// For tasks whose tables tell nothing.
    large_values: Option<(f64, Duration)>,
    with_pipelines: Option<(ReadTail, Duration)>,
    without_pipelines: Option<(ReadTail, Duration)>,
    named: BTreeMap<String, (f64, Duration)>,
}

impl Decider {
    /// Makes a decider that asks `sampler` for news of the machine. Without one, these measures are missing unless
    /// messages have them.
    pub fn new(sampler: Option<Box<dyn Sampler>>) -> Decider {
        Decider { machine: Arc::new(Machine { sampler, ..Machine::default() }), state: Mutex::default() }
    }

    /// Makes a decider for another host on the same machine. It shares the machine's measures, the count of pipelined
    /// runs, and the report. It knows nothing yet of this one's rules, standing and other measures.
    pub fn beside(&self) -> Decider {
        Decider { machine: Arc::clone(&self.machine), state: Mutex::default() }
    }

    /// Takes the measures of a metric message, which came at `now`.
    ///
    /// # Errors
    /// The bytes are not a message; nothing is taken.
    pub fn collect(&self, message: &[u8], now: Duration) -> Result<()> {
        let measures = decode_measures(message)?;
        let mut state = lock(&self.state);
        let mut measured = lock(&self.machine.measured);
        let others = measures.into_iter().filter_map(|measure| measured.take(measure, now));
        others.for_each(|measure| state.collected.take(measure, now));
        Ok(())
    }

    /// Collects, as [`collect`](Decider::collect) does, a message from another machine, which cannot measure this one.
    ///
    /// # Errors
    /// Also: the message has a measure of a machine.
    pub fn collect_of_host(&self, message: &[u8], now: Duration) -> Result<()> {
        match decode_measures(message)?.iter().find(|measure| measure.is_of_machine()) {
            Some(measure) => Err(Error::Invalid(format!("{measure:?} is of another machine"))),
            None => self.collect(message, now),
        }
    }

    /// Asks the sampler for news of the machine. Does not block.
    pub fn sample(&self, now: Duration) {
        let measures = self.machine.sampler.as_ref().map_or(Vec::new(), |sampler| sampler.sample(now));
        if !measures.is_empty() {
            let taken = self.collect(&encode_measures(&measures), now);
            assert!(taken.is_ok(), "what was encoded is a message");
        }
    }

    /// Decides how a task is run. Opens the task's tables if they are not open.
    pub fn decide(&self, rules: &DecisionRules, task: &Task, now: Duration) -> Arc<DecisionRecord> {
        self.sample(now);
        let large_values = LargeValues::of(task, rules.large_value_bytes);
        self.decide_by(rules, task.id, &large_values, now)
    }

    /// Decides, as [`decide`](Decider::decide) does, for a task of which only its number and its share of large values
    /// are known.
    pub fn decide_by(
        &self,
        rules: &DecisionRules,
        task: u64,
        large_values: &LargeValues,
        now: Duration,
    ) -> Arc<DecisionRecord> {
        let mut state = lock(&self.state);
        if state.rules.as_ref() != Some(rules) {
            (state.rules, state.standing) = (Some(rules.clone()), Standing::default());
        }
        let measured = *lock(&self.machine.measured);
        let terms = state.collected.terms(&measured, rules, large_values, now);
        let f = terms.iter().map(Term::addend).sum();
        let reads = rules.read_p99_factor_max.map(|factor_max| state.collected.reads(factor_max, now));
        let judged = state.standing.judge(rules, f, reads.as_ref(), now);
        let merge_threads = rules.merge_threads.max(1);
        let mut report = lock(&self.machine.report);
        let record = Arc::new(DecisionRecord {
            number: report.made + 1,
            at: now,
            task,
            terms,
            f,
            threshold: rules.threshold,
            hysteresis: rules.hysteresis,
            dwell_min: rules.dwell_min,
            reads,
            mode: if judged.is_pipelined { RunMode::Pipelined { merge_threads } } else { RunMode::Linear },
            is_changed: judged.is_changed,
            held: judged.held,
            why: judged.why,
        });
        count(&mut report, &record, judged.begins_backoff);
        record
    }

    /// Returns the counts of all decisions of the machine.
    pub fn report(&self) -> DecisionReport {
        DecisionReport { pipelines_running: self.pipelines().running(), ..lock(&self.machine.report).clone() }
    }

    /// Counts the pipelined runs of the decider's side, also those by a fixed mode.
    pub fn pipelines(&self) -> &Pipelines {
        &self.machine.pipelines
    }

    /// Returns the free resources of the machine, as far as they were measured of late; `None` if none was measured.
    pub fn resources(&self, now: Duration) -> Option<Resources> {
        let measured = *lock(&self.machine.measured);
        let (processors, memory) = (recent(&measured.processors_free, now), recent(&measured.memory_free, now));
        if processors.is_none() && memory.is_none() {
            return None;
        }
        Some(Resources {
            processors_free_milli: processors.unwrap_or(0),
            memory_free_bytes: memory.unwrap_or(0),
            bandwidth_free_bytes_per_s: recent(&measured.bandwidth_free, now).unwrap_or(0),
        })
    }
}

fn count(report: &mut DecisionReport, record: &Arc<DecisionRecord>, begins_backoff: bool) {
    report.made += 1;
    match record.mode {
        RunMode::Linear => report.linear += 1,
        RunMode::Pipelined { .. } => report.pipelined += 1,
    }
    report.changed += u64::from(record.is_changed);
    report.held_back += u64::from(record.held.is_some());
    report.off_for_reads += u64::from(begins_backoff);
    report.last = Some(Arc::clone(record));
}

/// A value that came not too long ago.
fn recent<T: Copy>(value: &Option<(T, Duration)>, now: Duration) -> Option<T> {
    let (value, at) = (*value)?;
    (now.saturating_sub(at) <= MEASURE_AGE_MAX).then_some(value)
}

impl Measured {
    /// Takes a measure of the machine; any other comes back.
    fn take(&mut self, measure: Measure, now: Duration) -> Option<Measure> {
        match measure {
            Measure::Processors(share) => self.processors = Some((share, now)),
            Measure::Memory(share) => self.memory = Some((share, now)),
            Measure::ProcessorsFree(milli) => self.processors_free = Some((milli, now)),
            Measure::MemoryFree(bytes) => self.memory_free = Some((bytes, now)),
            Measure::BandwidthFree(bytes_per_s) => self.bandwidth_free = Some((bytes_per_s, now)),
            other => return Some(other),
        }
        None
    }
}

impl Collected {
    fn take(&mut self, measure: Measure, now: Duration) {
        assert!(!measure.is_of_machine(), "{measure:?} is the machine's");
        match measure {
            Measure::LargeValues(share) => self.large_values = Some((share, now)),
            Measure::ReadsWithPipelines(tail) => self.with_pipelines = Some((tail, now)),
            Measure::ReadsWithoutPipelines(tail) => self.without_pipelines = Some((tail, now)),
            Measure::Named(name, value) if self.named.len() < NAMED_MAX || self.named.contains_key(&name) => {
                self.named.insert(name, (value, now));
            }
            // A name too many.
            _ => {}
        }
    }

    /// The addends of f: the three of the paper, then further ones in the rules' order.
    fn terms(
        &self,
        measured: &Measured,
        rules: &DecisionRules,
        large_values: &LargeValues,
        now: Duration,
    ) -> Vec<Term> {
        let mut terms = vec![
            term("processors", rules.cpu_weight, measured.processors, now),
            term("memory", rules.memory_weight, measured.memory, now),
            match large_values.share {
                Some(share) => Term {
                    name: "large-values".to_owned(),
                    weight: rules.large_value_weight,
                    value: Some(share),
                    note: large_values.note(),
                },
                None => term("large-values", rules.large_value_weight, self.large_values, now),
            },
        ];
        let further = rules.further_weights.iter();
        terms.extend(further.map(|(name, weight)| term(name, *weight, self.named.get(name).copied(), now)));
        terms
    }

    fn reads(&self, factor_max: f64, now: Duration) -> ReadInputs {
        let recent = |value: Option<(ReadTail, Duration)>| {
            value.filter(|(_, at)| now.saturating_sub(*at) <= READ_AGE_MAX).map(|(tail, _)| tail)
        };
        ReadInputs {
            factor_max,
            with_pipelines: recent(self.with_pipelines),
            without_pipelines: recent(self.without_pipelines),
        }
    }
}

fn term(name: &str, weight: f64, measured: Option<(f64, Duration)>, now: Duration) -> Term {
    let value = recent(&measured, now);
    let note = match measured.map(|(_, at)| now.saturating_sub(at)) {
        None => "not measured".to_owned(),
        Some(age) if value.is_none() => format!("last measured {:.1} s ago", age.as_secs_f64()),
        Some(age) => format!("{:.1} s old", age.as_secs_f64()),
    };
    Term { name: name.to_owned(), weight, value, note }
}

#[cfg(test)]
mod tests;
