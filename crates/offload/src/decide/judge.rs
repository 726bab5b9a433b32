//! The decision itself: from f, what reads say, and how it stood before, to a mode. Nothing here asks for the time or
//! the machine.
//!
//! 1. Reads come first. If their p99 with pipelines exceeds the allowed multiple of their p99 without, the mode is
//!    linear at once, and stays so for a *back-off*. Each back-off is twice as long as the one before. A trial after
//!    which reads do not suffer ends this.
//! 2. Otherwise f decides. At the threshold pipelines go off; below `threshold - hysteresis` they come back.
//! 3. A change by f waits until the mode has stood for the dwell time. The first decision need not wait.
//!
//! **Reads suffer** if the lower bound of the p99 with pipelines exceeds the multiple of the upper bound of the p99
//! without. So few samples need a large difference. Below [`READ_SAMPLES_MIN`] samples on either side there is no
//! verdict.
//!
//! Rejected: to compare the two percentiles themselves. With 1000 samples of a usual distribution, a p99 is off by 7%
//! on average. A factor of 1.1 would turn pipelines off by chance.

use crate::decide::record::{Held, ReadInputs};
use crate::mode::DecisionRules;
use situ_compaction::ReadTail;
use std::time::Duration;

/// Fewer samples of reads than this, with pipelines or without, give no verdict.
pub(crate) const READ_SAMPLES_MIN: u64 = 200;
/// The first back-off is at least this long. It is longer than what is measured with pipelines reaches back, so a trial
/// begins without samples of the last one.
pub(crate) const READ_BACKOFF_MIN: Duration = Duration::from_secs(20);
/// No back-off is longer than this.
const READ_BACKOFF_MAX: Duration = Duration::from_secs(600);

/// The state of a decider between two decisions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Standing {
    is_pipelined: bool,
    /// The time of the last change of the mode.
    changed_at: Option<Duration>,
    /// Pipelines stay off until then, for the sake of reads.
    reads_until: Option<Duration>,
    /// The number of back-offs that followed each other.
    backoffs: u32,
}

/// Pipelined, as the paper's decision component begins.
impl Default for Standing {
    fn default() -> Standing {
        Standing { is_pipelined: true, changed_at: None, reads_until: None, backoffs: 0 }
    }
}

/// The outcome of a judgement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) is_pipelined: bool,
    pub(crate) is_changed: bool,
    pub(crate) held: Option<Held>,
    /// A back-off began.
    pub(crate) begins_backoff: bool,
    pub(crate) why: String,
}

/// The verdict of the measures of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Fine,
    Suffer,
}

fn verdict(reads: &ReadInputs) -> Verdict {
    let enough = |tail: &Option<ReadTail>| tail.filter(|tail| tail.samples >= READ_SAMPLES_MIN);
    let (Some(with), Some(without)) = (enough(&reads.with_pipelines), enough(&reads.without_pipelines)) else {
        return Verdict::Unknown;
    };
    let most = without.p99_high.as_secs_f64() * reads.factor_max;
    if with.p99_low.as_secs_f64() > most { Verdict::Suffer } else { Verdict::Fine }
}

impl Standing {
    /// The next mode. Changes how it stands.
    pub(crate) fn judge(
        &mut self,
        rules: &DecisionRules,
        f: f64,
        reads: Option<&ReadInputs>,
        now: Duration,
    ) -> Judgement {
        let before = self.is_pipelined;
        let by_reads = reads.and_then(|reads| self.judge_reads(rules, reads, f, now));
        let (is_pipelined, held, begins_backoff, why) = match by_reads {
            Some((begins, why)) => (false, Some(Held::Reads), begins, why),
            None => {
                let (is_pipelined, held, why) = self.judge_f(rules, f, now);
                (is_pipelined, held, false, why)
            }
        };
        let is_changed = is_pipelined != before;
        if is_changed {
            (self.is_pipelined, self.changed_at) = (is_pipelined, Some(now));
        }
        Judgement { is_pipelined, is_changed, held, begins_backoff, why }
    }

    /// Judges whether reads keep pipelines off. If they do, returns the reason, and true if that begins now.
    fn judge_reads(
        &mut self,
        rules: &DecisionRules,
        reads: &ReadInputs,
        f: f64,
        now: Duration,
    ) -> Option<(bool, String)> {
        if let Some(left) = self.reads_until.and_then(|until| until.checked_sub(now)).filter(|left| !left.is_zero()) {
            return Some((false, format!("reads suffered from pipelines: they stay off for {} more", seconds(left))));
        }
        self.reads_until = None;
        match verdict(reads) {
            Verdict::Fine if self.is_pipelined => self.backoffs = 0,
            Verdict::Suffer if self.is_pipelined || f < rules.threshold => {
                let backoff = rules.dwell_min.max(READ_BACKOFF_MIN).saturating_mul(1 << self.backoffs.min(10));
                let backoff = backoff.min(READ_BACKOFF_MAX.max(rules.dwell_min));
                self.backoffs += 1;
                self.reads_until = Some(now.saturating_add(backoff));
                return Some((true, suffering(reads, backoff)));
            }
            _ => {}
        }
        None
    }

    fn judge_f(&self, rules: &DecisionRules, f: f64, now: Duration) -> (bool, Option<Held>, String) {
        let DecisionRules { threshold, hysteresis, dwell_min, .. } = rules;
        let comes_back = threshold - hysteresis;
        let wanted = f < if self.is_pipelined { *threshold } else { comes_back };
        let stood = self.changed_at.map(|at| now.saturating_sub(at));
        let left = stood.and_then(|stood| dwell_min.checked_sub(stood)).filter(|left| !left.is_zero());
        match left {
            Some(left) if wanted != self.is_pipelined => {
                let why = if wanted {
                    format!("f {f:.3} is below {comes_back:.3}, but the mode stands for {} more", seconds(left))
                } else {
                    format!("f {f:.3} reaches {threshold:.3}, but the mode stands for {} more", seconds(left))
                };
                (self.is_pipelined, Some(Held::Dwell), why)
            }
            _ if wanted => (
                true,
                None,
                format!("f {f:.3} is below {:.3}", if self.is_pipelined { *threshold } else { comes_back }),
            ),
            _ if f < *threshold => {
                let why = format!("f {f:.3} is below {threshold:.3}, but not below {comes_back:.3}");
                (false, Some(Held::Hysteresis), why)
            }
            _ => (false, None, format!("f {f:.3} reaches {threshold:.3}")),
        }
    }
}

fn suffering(reads: &ReadInputs, backoff: Duration) -> String {
    let p99 = |tail: Option<ReadTail>| tail.unwrap_or_default().p99;
    let (with, without) = (p99(reads.with_pipelines), p99(reads.without_pipelines));
    format!(
        "reads have a p99 of {with:?} with pipelines and {without:?} without, more than {} times as much: pipelines are off \
         for {}",
        reads.factor_max,
        seconds(backoff)
    )
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
