//! The summary of a comparison: per workload and store, medians and spreads, and ratios to the baseline.
//!
//! The ratios are the page's: see [`situ_bench::report::ratio`]. Every store ran as often as the baseline, in turns
//! with it.
//!
//! Latencies are compared for each kind of operation apart: which kind is the most frequent one in a workload of halves
//! differs from run to run, and writers may be few and still be what matters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use situ_bench::report::{self, Spread};
use situ_bench::{BenchResult, Kind, Latency, Machine, PhaseResult, table};

/// A comparison, in a form for other programs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The machine of the runs.
    machine: Machine,
    /// The start of the first run, UTC.
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
    figures: Figures,
    /// The same for each kind of operation.
    latencies: BTreeMap<Kind, Figures>,
}

type Figures = BTreeMap<String, FigureSummary>;

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

/// The figures of a whole workload that are compared.
const FIGURES: [Figure; 7] = [
    ("operations_per_second", |phase| (phase.operations > 0).then_some(phase.operations_per_second)),
    ("longest_stall_ms", |phase| (phase.operations > 0).then_some(phase.longest_stall_ms as f64)),
    ("cpu_us_per_operation", PhaseResult::cpu_us_per_operation),
    ("write_amplification", |phase| phase.write_amplification),
    ("space_amplification", |phase| phase.space_amplification),
    ("idle_core_percent", PhaseResult::idle_core_percent),
    ("anonymous_bytes_peak", |phase| phase.anonymous_bytes_peak.map(|peak| peak as f64)),
];

type LatencyFigure = (&'static str, fn(&Latency) -> u64);

/// The figures of each kind of operation in a workload.
const LATENCY_FIGURES: [LatencyFigure; 5] = [
    ("p50_ns", |latency| latency.p50_ns),
    ("p99_ns", |latency| latency.p99_ns),
    ("p999_ns", |latency| latency.p999_ns),
    ("p9999_ns", |latency| latency.p9999_ns),
    ("max_ns", |latency| latency.max_ns),
];

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
                let says_something = phase.operations > 0 || phase.idle_core_percent().is_some();
                if !workloads.contains(&phase.workload.as_str()) && says_something {
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

    /// Renders two tables: throughput, stalls, amplification, CPU and memory; and latencies by kind of operation.
    pub(crate) fn render(&self) -> String {
        let width = self.rows().map(|(_, store)| store.store.len()).max().unwrap_or(0).max(10);
        let mut text = format!(
            "{:<18} {:<width$} {:>12} {:>24} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            "workload",
            "store",
            "rate",
            "ratio (min..max)",
            "stall",
            "CPU/op",
            "write amp",
            "space amp",
            "memory",
            "idle CPU"
        );
        for (workload, StoreSummary { store, figures, .. }) in self.rows() {
            let shown = |name, text| shown(figures, name, text);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{workload:<18} {store:<width$} {:>12} {:>24} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
                shown("operations_per_second", table::rate),
                shown_ratio(figures, "operations_per_second"),
                shown("longest_stall_ms", |ms| table::time(ms * 1e6)),
                shown("cpu_us_per_operation", |us| table::time(us * 1000.0)),
                shown("write_amplification", table::factor),
                shown("space_amplification", table::factor),
                shown("anonymous_bytes_peak", table::bytes),
                shown("idle_core_percent", |percent| format!("{percent:.3}%")),
            );
        }
        let _ = writeln!(
            text,
            "\n{:<18} {:<width$} {:<17} {:>10} {:>10} {:>10} {:>24} {:>10} {:>10}",
            "workload", "store", "operation", "p50", "p99", "p99.9", "ratio (min..max)", "p99.99", "max"
        );
        for (workload, StoreSummary { store, latencies, .. }) in self.rows() {
            for (kind, figures) in latencies {
                let shown = |name| shown(figures, name, table::time);
                let _ = writeln!(
                    text,
                    "{workload:<18} {store:<width$} {:<17} {:>10} {:>10} {:>10} {:>24} {:>10} {:>10}",
                    kind.name(),
                    shown("p50_ns"),
                    shown("p99_ns"),
                    shown("p999_ns"),
                    shown_ratio(figures, "p999_ns"),
                    shown("p9999_ns"),
                    shown("max_ns"),
                );
            }
        }
        text
    }

    fn rows(&self) -> impl Iterator<Item = (&str, &StoreSummary)> {
        self.workloads.iter().flat_map(|of| of.stores.iter().map(|store| (of.workload.as_str(), store)))
    }
}

/// Returns a figure's median, or a dash.
fn shown(figures: &Figures, name: &str, text: fn(f64) -> String) -> String {
    figures.get(name).map_or_else(|| "-".to_owned(), |figure| text(figure.median))
}

fn shown_ratio(figures: &Figures, name: &str) -> String {
    let ratio = figures.get(name).and_then(|figure| figure.ratio);
    ratio.map_or_else(|| "-".to_owned(), |[median, min, max]| format!("{median:.2}x ({min:.2}..{max:.2})"))
}

fn summarise(results: &[BenchResult], workload: &str, label: &str, baseline: &str) -> StoreSummary {
    let phases = |label: &str| -> Vec<&PhaseResult> {
        results.iter().filter(|result| result.label == label).filter_map(|result| result.phase(workload)).collect()
    };
    let (own, base) = (phases(label), phases(baseline));
    let compared = |figure: &dyn Fn(&PhaseResult) -> Option<f64>| -> Option<FigureSummary> {
        let values = |phases: &[&PhaseResult]| -> Vec<f64> {
            phases.iter().filter_map(|phase| figure(phase)).filter(|value| value.is_finite()).collect()
        };
        let own = values(&own);
        let spread = Spread::of(own.iter().copied())?;
        let ratio = if label == baseline { None } else { report::ratio(&own, &values(&base)) };
        Some(FigureSummary {
            median: spread.median,
            min: spread.min,
            max: spread.max,
            runs: spread.count,
            ratio: ratio.map(|ratio| [ratio.median, ratio.min, ratio.max]),
        })
    };
    let figures = FIGURES.iter().filter_map(|(name, figure)| Some(((*name).to_owned(), compared(figure)?)));
    let kinds: BTreeSet<Kind> = own.iter().flat_map(|phase| &phase.latencies).map(|latency| latency.kind).collect();
    let latencies = kinds.into_iter().map(|kind| {
        let of_kind = LATENCY_FIGURES.iter().filter_map(|(name, figure)| {
            let figure = |phase: &PhaseResult| {
                let latency = phase.latencies.iter().find(|latency| latency.kind == kind)?;
                Some(figure(latency) as f64)
            };
            Some(((*name).to_owned(), compared(&figure)?))
        });
        (kind, of_kind.collect())
    });
    StoreSummary { store: label.to_owned(), figures: figures.collect(), latencies: latencies.collect() }
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
        assert!(b.latencies.is_empty(), "nothing was measured, nothing is said");
        assert!(summary.render().contains("2.00x (1.80..2.10)"));
    }

    /// Halves of reads and updates, of which now the one and now the other is larger: once, one store's reads were
    /// compared with the other's updates.
    #[test]
    fn kinds_are_compared_with_their_own_kind_whatever_their_counts() {
        let mixed = |label: &str, reads: u64, updates: u64, p999_ns: [u64; 2], stall_ms: u64| {
            let latency = |kind: &str, count: u64, p999_ns: u64| {
                serde_json::json!({
                    "kind": kind, "count": count, "mean_ns": 1.0, "min_ns": 1, "p50_ns": 10, "p90_ns": 20, "p95_ns": 30,
                    "p99_ns": 40, "p999_ns": p999_ns, "p9999_ns": 2 * p999_ns, "max_ns": 3 * p999_ns, "curve": [],
                })
            };
            let mut result = result(label, 100.0);
            result.phases[0].latencies = serde_json::from_value(serde_json::json!([
                latency("read", reads, p999_ns[0]),
                latency("background-write", updates, p999_ns[1]),
            ]))
            .expect("latencies");
            result.phases[0].longest_stall_ms = stall_ms;
            result
        };
        let results = [mixed("a", 501, 499, [100, 4000], 10), mixed("b", 499, 501, [50, 1000], 40)];
        let summary = Summary::of(&results, "a");
        let b = &summary.workloads[0].stores[1];
        let ratio = |kind, name: &str| b.latencies[&kind][name].ratio.map(|[median, ..]| median);
        for name in ["p999_ns", "p9999_ns", "max_ns"] {
            assert_eq!(
                (ratio(Kind::Read, name), ratio(Kind::BackgroundWrite, name)),
                (Some(0.5), Some(0.25)),
                "{name}"
            );
        }
        assert_eq!(b.figures["longest_stall_ms"].ratio, Some([4.0; 3]));
        let table = summary.render();
        assert!(table.contains("0.25x (0.25..0.25)") && table.contains("40.0 ms"), "{table}");
        let json = serde_json::to_string(&summary).expect("kinds are names");
        assert!(json.contains(r#""background-write":{"max_ns""#), "{json}");
    }
}
