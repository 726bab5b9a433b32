//! The record of a decision with its inputs, and the counts of all decisions of a decider.

use situ_compaction::{ReadTail, RunMode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// One addend of f: a measure times its weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// `processors`, `memory`, `large-values`, or the name of a further measure.
    pub name: String,
    /// The weight in the rules.
    pub weight: f64,
    /// The measure; `None` if it is missing, and then it counts as 0.
    pub value: Option<f64>,
    /// The source of the measure, or the reason why it is missing.
    pub note: String,
}

impl Term {
    /// Returns the term's addend of f.
    pub fn addend(&self) -> f64 {
        self.value.map_or(0.0, |value| self.weight * value)
    }
}

/// Why the mode is not the one that f alone would give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Held {
    /// f is below the threshold, and not far enough below it for pipelines to come back.
    Hysteresis,
    /// The mode has changed too short a while ago.
    Dwell,
    /// Foreground reads suffer from pipelines, or did of late.
    Reads,
}

/// The known facts about foreground reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadInputs {
    /// The most that the p99 with pipelines may be, as a multiple of the p99 without.
    pub factor_max: f64,
    /// While pipelined compactions ran; `None` if that is not known.
    pub with_pipelines: Option<ReadTail>,
    /// While none ran; `None` if that is not known.
    pub without_pipelines: Option<ReadTail>,
}

/// A decision with all that it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRecord {
    /// Counts the decisions of one decider, from 1.
    pub number: u64,
    /// When, by the clock of the decider's side.
    pub at: Duration,
    /// The task that the decision is for.
    pub task: u64,
    /// The addends of f.
    pub terms: Vec<Term>,
    /// Their sum.
    pub f: f64,
    /// Pipelines go off at this f.
    pub threshold: f64,
    /// Pipelines come back this far below the threshold.
    pub hysteresis: f64,
    /// The minimum time for which a mode stays.
    pub dwell_min: Duration,
    /// Foreground reads; `None` if the rules do not look at them.
    pub reads: Option<ReadInputs>,
    /// The mode that came out.
    pub mode: RunMode,
    /// The mode is another one than that of the decision before. The first decision follows a pipelined mode.
    pub is_changed: bool,
    /// The reason why the mode did not follow f; `None` if it did.
    pub held: Option<Held>,
    /// The reason in words.
    pub why: String,
}

/// As one line for logs: `pipelined: f 0.420 is below 0.700 [processors 0.400 x 0.5, memory missing (not measured) x
/// 0.2]`.
impl fmt::Display for DecisionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.mode.is_pipelined() { "pipelined" } else { "linear" };
        let terms: Vec<String> = self.terms.iter().map(ToString::to_string).collect();
        write!(f, "{mode}: {} [{}]", self.why, terms.join(", "))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{} {value:.3} ({}) x {}", self.name, self.note, self.weight),
            None => write!(f, "{} missing ({}) x {}", self.name, self.note, self.weight),
        }
    }
}

/// The counts of all decisions of one decider.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DecisionReport {
    /// Decisions.
    pub made: u64,
    /// Those that gave a pipelined run.
    pub pipelined: u64,
    /// Those that gave a linear run.
    pub linear: u64,
    /// Those whose mode was not that of the decision before.
    pub changed: u64,
    /// Those whose mode did not follow f, for whatever reason.
    pub held_back: u64,
    /// Times that pipelines were turned off because foreground reads suffered.
    pub off_for_reads: u64,
    /// Runs that are pipelined now, also by a fixed mode.
    pub pipelines_running: usize,
    /// The last decision.
    pub last: Option<Arc<DecisionRecord>>,
}
