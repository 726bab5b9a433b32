//! What a comparison came to: per workload and store, medians and spreads, and ratios to the baseline.
//!
//! The ratios are the page's: see [`situ_bench::report::ratio`]. Every store ran as often as the baseline, in turns with it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use situ_bench::report::{self, Spread};
use situ_bench::{BenchResult, Machine, PhaseResult, table};

/// A comparison, in a form for other programs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Where it ran.
    machine: Machine,
    /// When the first run began, UTC.
    date: String,
    /// The store that ratios are to.
    baseline: String,
    /// In the order they were run.
    workloads: Vec<WorkloadSummary>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct WorkloadSummary {
    workload: String,
    stores: Vec<StoreSummary>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StoreSummary {
    store: String,
    /// By the figure's name.
    figures: BTreeMap<String, FigureSummary>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct FigureSummary {
    median: f64,
    min: f64,
    max: f64,
    runs: usize,
    /// To the baseline, within each repetition: median, smallest, largest. Absent for the baseline itself.
    ratio: Option<[f64; 3]>,
}

type Figure = (&'static str, fn(&PhaseResult) -> Option<f64>);

/// The figures that are compared. Latency is that of the workload's most frequent kind of operation.
const FIGURES: [Figure; 8] = [
    ("operations_per_second", |phase| (phase.operations > 0).then_some(phase.operations_per_second)),
    ("p50_ns", |phase| Some(frequent(phase)?.p50_ns as f64)),
    ("p99_ns", |phase| Some(frequent(phase)?.p99_ns as f64)),
    ("p999_ns", |phase| Some(frequent(phase)?.p999_ns as f64)),
    ("cpu_us_per_operation", PhaseResult::cpu_us_per_operation),
    ("write_amplification", |phase| phase.write_amplification),
    ("space_amplification", |phase| phase.space_amplification),
    ("anonymous_bytes_peak", |phase| phase.anonymous_bytes_peak.map(|peak| peak as f64)),
];

fn frequent(phase: &PhaseResult) -> Option<&situ_bench::Latency> {
    phase.latencies.iter().max_by_key(|latency| latency.count)
}

impl Summary {
    /// Of results in the order they were run. There is at least one.
    pub(crate) fn of(results: &[BenchResult], baseline: &str) -> Self {
        let mut labels: Vec<&str> = Vec::new();
        let mut workloads: Vec<&str> = Vec::new();
        for result in results {
            if !labels.contains(&result.label.as_str()) {
                labels.push(&result.label);
            }
            for phase in &result.phases {
                if !workloads.contains(&phase.workload.as_str()) && phase.operations > 0 {
                    workloads.push(&phase.workload);
                }
            }
        }
        let workloads = workloads.into_iter().map(|workload| WorkloadSummary {
            workload: workload.to_owned(),
            stores: labels.iter().map(|label| summarise(results, workload, label, baseline)).collect(),
        });
        Self {
            machine: results.first().map(|result| result.machine.clone()).unwrap_or_default(),
            date: results.first().map(|result| result.date.clone()).unwrap_or_default(),
            baseline: baseline.to_owned(),
            workloads: workloads.collect(),
        }
    }

    /// As a table of throughput, tail, amplification, CPU and memory.
    pub(crate) fn render(&self) -> String {
        let mut text = format!(
            "{:<18} {:<10} {:>12} {:>24} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            "workload", "store", "rate", "ratio (min..max)", "p99", "CPU/op", "write amp", "space amp", "memory"
        );
        for WorkloadSummary { workload, stores } in &self.workloads {
            for StoreSummary { store, figures } in stores {
                let median = |name: &str| figures.get(name).map(|figure| figure.median);
                let shown = |name, text: fn(f64) -> String| median(name).map_or_else(|| "-".to_owned(), text);
                let ratio = figures.get("operations_per_second").and_then(|figure| figure.ratio);
                let ratio = ratio
                    .map_or_else(|| "-".to_owned(), |[median, min, max]| format!("{median:.2}x ({min:.2}..{max:.2})"));
                // Writing to a String cannot fail.
                let _ = writeln!(
                    text,
                    "{workload:<18} {store:<10} {:>12} {ratio:>24} {:>10} {:>10} {:>10} {:>10} {:>10}",
                    shown("operations_per_second", table::rate),
                    shown("p99_ns", table::time),
                    shown("cpu_us_per_operation", |us| table::time(us * 1000.0)),
                    shown("write_amplification", table::factor),
                    shown("space_amplification", table::factor),
                    shown("anonymous_bytes_peak", table::bytes),
                );
            }
        }
        text
    }
}

fn summarise(results: &[BenchResult], workload: &str, label: &str, baseline: &str) -> StoreSummary {
    let values = |label: &str, figure: fn(&PhaseResult) -> Option<f64>| -> Vec<f64> {
        let phases = results.iter().filter(|result| result.label == label).filter_map(|result| result.phase(workload));
        phases.filter_map(figure).filter(|value| value.is_finite()).collect()
    };
    let mut figures = BTreeMap::new();
    for (name, figure) in FIGURES {
        let own = values(label, figure);
        let Some(spread) = Spread::of(own.iter().copied()) else { continue };
        let ratio = if label == baseline { None } else { report::ratio(&own, &values(baseline, figure)) };
        figures.insert(
            name.to_owned(),
            FigureSummary {
                median: spread.median,
                min: spread.min,
                max: spread.max,
                runs: spread.count,
                ratio: ratio.map(|ratio| [ratio.median, ratio.min, ratio.max]),
            },
        );
    }
    StoreSummary { store: label.to_owned(), figures }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(label: &str, rate: f64) -> BenchResult {
        let phase = serde_json::json!({
            "workload": "fillseq", "operations": 10, "operations_per_second": rate, "write_amplification": rate / 100.0,
        });
        BenchResult {
            format: situ_bench::RESULT_FORMAT.to_owned(),
            label: label.to_owned(),
            store: label.to_owned(),
            store_settings: BTreeMap::new(),
            date: String::new(),
            commit: None,
            machine: Machine::default(),
            options: situ_bench::BenchOptions::default(),
            clock_ns: 0.0,
            baseline_anonymous_bytes: None,
            phases: vec![serde_json::from_value(phase).expect("a phase")],
        }
    }

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        // The machine halves its speed in the second repetition and recovers in the third.
        let rates = [("a", 100.0), ("b", 200.0), ("a", 50.0), ("b", 90.0), ("a", 100.0), ("b", 210.0)];
        let results: Vec<BenchResult> = rates.iter().map(|(label, rate)| result(label, *rate)).collect();
        let summary = Summary::of(&results, "a");
        let [a, b] = &summary.workloads[0].stores[..] else { panic!("two stores") };
        let figure = &b.figures["operations_per_second"];
        assert_eq!((figure.median, figure.min, figure.max, figure.runs), (200.0, 90.0, 210.0, 3));
        assert_eq!(figure.ratio, Some([2.0, 1.8, 2.1]));
        assert_eq!(a.figures["operations_per_second"].ratio, None);
        assert!(!b.figures.contains_key("p99_ns"), "nothing was measured, nothing is said");
        assert!(summary.render().contains("2.00x (1.80..2.10)"));
    }
}
