//! Metrics of compaction units: what each did, how its stages went, and how it decides.
//!
//! A unit is named by the label `unit`. A number behind the name distinguishes two units with one name: a scrape with
//! one series twice would be refused whole.

use crate::engine::{Metric, MetricKind};
use situ::Store;
use situ::offload::{DecisionReport, Load, Scheduler, UnitReport};
use situ_compaction::Stage;
use std::collections::HashSet;
use std::time::Duration;

/// Takes samples.
type Out<'a> = &'a mut dyn FnMut(Metric<'_>);

/// Reports all metrics of the units of a store.
pub(super) fn metrics(store: &Store, out: Out<'_>) {
    let Some(scheduler) = Scheduler::of(store.compactor()) else { return };
    let (reports, loads, decided) = (scheduler.reports(), scheduler.loads(), scheduler.decisions());
    let names = distinct(reports.iter().map(|report| report.name.as_str()));
    let units: Vec<(&str, &UnitReport)> = names.iter().map(String::as_str).zip(&reports).collect();
    unit_metrics(&units, out);
    stage_metrics(&units, out);
    load_metrics(&names, &loads, out);
    let names = distinct(decided.iter().map(|(name, _)| name.as_str()));
    let decided: Vec<(&str, &DecisionReport)> =
        names.iter().map(String::as_str).zip(decided.iter().map(|(_, report)| report)).collect();
    decision_metrics(&decided, out);
    input_metrics(&decided, out);
}

/// Returns the names, with `#2` and so on behind those that were there before.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut distinct = |name: &str| {
        let mut shown = name.to_owned();
        for number in 2.. {
            if seen.insert(shown.clone()) {
                break;
            }
            shown = format!("{name}#{number}");
        }
        shown
    };
    names.map(&mut distinct).collect()
}

fn unit_metrics(units: &[(&str, &UnitReport)], out: Out<'_>) {
    type Outcome = (&'static str, fn(&UnitReport) -> u64);
    const OUTCOMES: [Outcome; 8] = [
        ("succeeded", |unit| unit.succeeded),
        ("refused", |unit| unit.refused),
        ("refused_busy", |unit| unit.refused_busy),
        ("illegal", |unit| unit.illegal),
        ("failed", |unit| unit.failed),
        ("late", |unit| unit.late),
        ("suspicious", |unit| unit.suspicious),
        ("mismatch", |unit| unit.mismatches),
    ];
    for (unit, report) in units {
        for (outcome, value) in OUTCOMES {
            out(Metric {
                name: "situ_compaction_unit_tasks_total",
                help: "What came of compaction tasks that were given to a unit: those that it refused or that are beyond it (illegal) went elsewhere.",
                kind: MetricKind::Counter,
                labels: &[("unit", unit), ("outcome", outcome)],
                value: value(report) as f64,
            });
        }
    }
    type Counted = (&'static str, &'static str, fn(&UnitReport) -> f64);
    const COUNTERS: [Counted; 5] = [
        ("attempts", "Compaction tasks that a unit started.", |unit| unit.attempts as f64),
        ("checked", "Attempts whose files were compared with those of the processor.", |unit| unit.checked as f64),
        ("input_bytes", "Input bytes of a unit's successful attempts.", |unit| unit.input_bytes as f64),
        ("output_bytes", "Bytes of output tables of a unit's successful attempts.", |unit| unit.output_bytes as f64),
        ("busy_seconds", "Total seconds of a unit's successful attempts.", |unit| unit.busy.as_secs_f64()),
    ];
    for (name, help, value) in COUNTERS {
        let name = format!("situ_compaction_unit_{name}_total");
        each(units, &name, help, MetricKind::Counter, value, out);
    }
    let (name, help) =
        ("situ_compaction_unit_out_of_service", "1 while a unit keeps failing and gets only checked tasks.");
    each(units, name, help, MetricKind::Gauge, |unit| f64::from(u8::from(unit.out_of_service.is_some())), out);
}

/// Reports one sample for each unit.
fn each<R>(units: &[(&str, &R)], name: &str, help: &str, kind: MetricKind, value: fn(&R) -> f64, out: Out<'_>) {
    for (unit, report) in units {
        out(Metric { name, help, kind, labels: &[("unit", unit)], value: value(report) });
    }
}

fn stage_metrics(units: &[(&str, &UnitReport)], out: Out<'_>) {
    fn stages(unit: &UnitReport) -> [(&'static str, &Stage); 3] {
        [("read", &unit.stages.read), ("merge", &unit.stages.merge), ("write", &unit.stages.write)]
    }
    type State = (&'static str, fn(&Stage) -> Duration);
    const STATES: [State; 3] =
        [("busy", |stage| stage.busy), ("starved", |stage| stage.starved), ("blocked", |stage| stage.blocked)];
    for (unit, report) in units {
        for (stage_name, stage) in stages(report) {
            for (state, time) in STATES {
                out(Metric {
                    name: "situ_compaction_unit_stage_seconds_total",
                    help: "Seconds that a stage of a unit's attempts worked (busy), waited for the stage before it (starved) or for the one behind it (blocked).",
                    kind: MetricKind::Counter,
                    labels: &[("unit", unit), ("stage", stage_name), ("state", state)],
                    value: time(stage).as_secs_f64(),
                });
            }
        }
    }
    for (unit, report) in units {
        for (stage_name, stage) in stages(report) {
            out(Metric {
                name: "situ_compaction_unit_stage_bytes_total",
                help: "Bytes that went through a stage: stored bytes for read and write, uncompressed bytes for merge.",
                kind: MetricKind::Counter,
                labels: &[("unit", unit), ("stage", stage_name)],
                value: stage.bytes as f64,
            });
        }
    }
}

fn load_metrics(names: &[String], loads: &[Load], out: Out<'_>) {
    let units: Vec<(&str, &Load)> = names.iter().map(String::as_str).zip(loads).collect();
    let (name, help) = ("situ_compaction_unit_tasks", "Compaction tasks that a unit holds now.");
    each(&units, name, help, MetricKind::Gauge, |load| load.tasks as f64, out);
    let (name, help) = ("situ_compaction_unit_tasks_max", "The most compaction tasks that a unit holds at a time.");
    each(&units, name, help, MetricKind::Gauge, |load| load.tasks_max as f64, out);
}

fn decision_metrics(units: &[(&str, &DecisionReport)], out: Out<'_>) {
    for (unit, report) in units {
        for (mode, count) in [("pipelined", report.pipelined), ("linear", report.linear)] {
            out(Metric {
                name: "situ_compaction_decisions_total",
                help: "Decisions of a unit about the mode of a task, by outcome.",
                kind: MetricKind::Counter,
                labels: &[("unit", unit), ("mode", mode)],
                value: count as f64,
            });
        }
    }
    type Counted = (&'static str, &'static str, fn(&DecisionReport) -> f64);
    const COUNTERS: [Counted; 3] = [
        ("changed", "Decisions whose mode was not that of the one before.", |report| report.changed as f64),
        ("held_back", "Decisions whose mode did not follow f, for any reason.", |report| report.held_back as f64),
        ("off_for_reads", "Times that pipelines were turned off because foreground reads suffered.", |report| {
            report.off_for_reads as f64
        }),
    ];
    for (name, help, value) in COUNTERS {
        let name = format!("situ_compaction_decisions_{name}_total");
        each(units, &name, help, MetricKind::Counter, value, out);
    }
    let (name, help) =
        ("situ_compaction_pipelines_running", "Running pipelined tasks of a unit, including those of a fixed mode.");
    each(units, name, help, MetricKind::Gauge, |report| report.pipelines_running as f64, out);
}

/// Reports the inputs of the last decision of each unit.
fn input_metrics(units: &[(&str, &DecisionReport)], out: Out<'_>) {
    let last = || units.iter().filter_map(|(unit, report)| Some((*unit, report.last.as_deref()?)));
    let mut gauge = |name: &str, help: &str, labels: &[(&str, &str)], value: f64| {
        out(Metric { name, help, kind: MetricKind::Gauge, labels, value });
    };
    for (unit, record) in last() {
        let help = "The sum f of a unit's last decision: each input times its weight.";
        gauge("situ_compaction_decision_f", help, &[("unit", unit)], record.f);
    }
    for (unit, record) in last() {
        let help = "At this f and above, a unit runs tasks without pipelines.";
        gauge("situ_compaction_decision_threshold", help, &[("unit", unit)], record.threshold);
    }
    for (unit, record) in last() {
        for term in &record.terms {
            let labels = [("unit", unit), ("input", term.name.as_str())];
            gauge("situ_compaction_decision_weight", "The weight of an input in f.", &labels, term.weight);
        }
    }
    for (unit, record) in last() {
        for term in record.terms.iter() {
            let labels = [("unit", unit), ("input", term.name.as_str())];
            let help = "An input of a unit's last decision; NaN if it was not measured, and then it counts as 0.";
            gauge("situ_compaction_decision_input", help, &labels, term.value.unwrap_or(f64::NAN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prometheus refuses a page in which a series stands twice.
    #[test]
    fn units_of_one_name_have_series_of_their_own() {
        let names = distinct(["cpu", "node", "node", "node#2", "node"].into_iter());
        assert_eq!(names, ["cpu", "node", "node#2", "node#2#2", "node#3"]);
        let mut samples = HashSet::new();
        let reports = vec![UnitReport::default(); names.len()];
        let units: Vec<(&str, &UnitReport)> = names.iter().map(String::as_str).zip(&reports).collect();
        let mut take = |metric: Metric<'_>| {
            assert!(samples.insert(format!("{} {:?}", metric.name, metric.labels)), "{} is there twice", metric.name);
        };
        unit_metrics(&units, &mut take);
        stage_metrics(&units, &mut take);
        assert_eq!(samples.len(), names.len() * (8 + 5 + 1 + 9 + 3));
    }
}
