//! One or many results as a page: throughput over time, latency curves, bars with ratios, amplification, CPU, memory.
//!
//! 1. Results are grouped by label; those of one label are repetitions. A label's figure for a workload is the median
//!    of its repetitions, with the smallest and largest shown; its curves are those of the median repetition.
//! 2. Ratios are to one label, the baseline; see [`ratio`].
//! 3. The page is one file of HTML with its drawings, style and script inside: it asks the network for nothing, works
//!    from a disk or an attachment, and follows the reader's light or dark setting.
//!
//! *Rejected:* a charting library inside the page. The smallest weighs more than all our pages together, and a drawing
//! that is made here is seen without a script, in a mail or in print.

mod chart;
mod page;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::options::BenchOptions;
use crate::result::{BenchResult, PhaseResult};
use crate::table;

/// What to render and where to put it.
#[derive(Clone, Debug, Args)]
pub struct ReportOptions {
    /// Result files, from `situ bench --output`. Files with the same label are repetitions of one measurement
    #[arg(required = true, value_name = "FILE")]
    pub results: Vec<PathBuf>,

    /// File that gets the page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,

    /// Label of the results that the others are compared with [default: the label of the first file]
    #[arg(long, value_name = "LABEL")]
    pub baseline: Option<String>,

    /// Heading of the page
    #[arg(long, value_name = "TEXT", default_value = "Benchmark")]
    pub title: String,
}

/// Reads results and writes the page.
///
/// Returns the differences between the compared runs.
///
/// # Errors
/// A file that cannot be read, is not a result, or cannot be written; a baseline that no result has.
pub fn write_report(options: &ReportOptions) -> Result<Vec<Difference>> {
    let results = options.results.iter().map(|path| BenchResult::read_json(path)).collect::<Result<Vec<_>>>()?;
    let comparison = Comparison::new(options.baseline.as_deref(), &results)?;
    let page = page::render(&options.title, &comparison);
    fs::write(&options.output, page).map_err(|source| Error::file(&options.output, source))?;
    Ok(comparison.differences())
}

/// Renders the page for some results, as text.
///
/// # Errors
/// No results, or a baseline that none of them has.
pub fn render(title: &str, baseline: Option<&str>, results: &[BenchResult]) -> Result<String> {
    let comparison = Comparison::new(baseline, results)?;
    Ok(page::render(title, &comparison))
}

/// A difference between compared runs: in a setting, the machine, the commit, or a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// Each label with the value of its runs.
    pub values: Vec<(String, String)>,
}

/// Results in the order of their labels' first appearance, and of their workloads'.
struct Comparison<'a> {
    subjects: Vec<Subject<'a>>,
    baseline: usize,
    workloads: Vec<&'a str>,
}

/// All repetitions with one label.
struct Subject<'a> {
    label: &'a str,
    runs: Vec<&'a BenchResult>,
}

/// A figure's median, smallest and largest over the repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Middle value; the mean of the middle two for an even number.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// The number of values.
    pub count: usize,
}

impl Spread {
    /// Computes the spread of some values; `None` of none, or when one is not a number.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let upper = values[values.len() / 2];
        let lower = values[(values.len() - 1) / 2];
        let (min, max) = (values[0], values[values.len() - 1]);
        Some(Self { median: f64::midpoint(lower, upper), min, max, count: values.len() })
    }
}

/// Returns the ratio of `own` to `base`. With as many values of each, they are taken to be repetitions that ran in
/// turns, and the ratio is the median of the ratios within a repetition. The ratio of two medians would set a good hour
/// of one against a bad hour of the other. Otherwise the ratio is the one of the medians. Returns `None` when there is
/// nothing to divide by.
#[must_use]
pub fn ratio(own: &[f64], base: &[f64]) -> Option<Spread> {
    if base.iter().any(|base| *base <= 0.0) {
        return None;
    }
    if own.len() == base.len() {
        return Spread::of(own.iter().zip(base).map(|(own, base)| own / base));
    }
    Spread::of([Spread::of(own.iter().copied())?.median / Spread::of(base.iter().copied())?.median])
}

/// A figure of one subject: its spread, and its ratio to the baseline, absent for the baseline itself.
#[derive(Clone, Copy)]
struct Compared {
    spread: Spread,
    ratio: Option<Spread>,
}

impl<'a> Comparison<'a> {
    fn new(baseline: Option<&str>, results: &'a [BenchResult]) -> Result<Self> {
        let mut subjects: Vec<Subject<'a>> = Vec::new();
        let mut workloads: Vec<&str> = Vec::new();
        for result in results {
            match subjects.iter_mut().find(|subject| subject.label == result.label) {
                Some(subject) => subject.runs.push(result),
                None => subjects.push(Subject { label: &result.label, runs: vec![result] }),
            }
            for phase in &result.phases {
                if !workloads.contains(&phase.workload.as_str()) && phase.operations > 0 {
                    workloads.push(&phase.workload);
                }
            }
        }
        if subjects.is_empty() {
            return Err(Error::Options("there are no results to report".to_owned()));
        }
        let baseline = match baseline {
            None => 0,
            Some(label) => subjects.iter().position(|subject| subject.label == label).ok_or_else(|| {
                let labels: Vec<&str> = subjects.iter().map(|subject| subject.label).collect();
                Error::Options(format!("no result is labelled {label}; there are: {}", labels.join(", ")))
            })?,
        };
        Ok(Self { subjects, baseline, workloads })
    }

    /// Returns the differences between the subjects, labels excepted, in the field order of a result.
    fn differences(&self) -> Vec<Difference> {
        let facts: Vec<Vec<(String, String)>> = self.subjects.iter().map(Subject::facts).collect();
        let value = |facts: &[(String, String)], name: &str| {
            facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in facts.iter().flatten() {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let mut differences = Vec::new();
        for name in names {
            let values: Vec<Option<String>> = facts.iter().map(|facts| value(facts, name)).collect();
            // Stores of different kinds have different settings; only settings that both have are compared.
            let is_comparable = !name.starts_with(STORE_SETTING) || values.iter().all(Option::is_some);
            if is_comparable && values.iter().any(|value| *value != values[0]) {
                let labels = self.subjects.iter().map(|subject| subject.label.to_owned());
                let values = values.into_iter().map(|value| value.unwrap_or_else(|| "none".to_owned()));
                differences.push(Difference { name: name.to_owned(), values: labels.zip(values).collect() });
            }
        }
        differences
    }

    /// Returns a figure of each subject for a workload.
    fn compare(&self, workload: &str, figure: impl Fn(&PhaseResult) -> Option<f64>) -> Vec<Option<Compared>> {
        let values = |subject: &Subject<'_>| -> Vec<f64> {
            subject.phases(workload).filter_map(&figure).filter(|value| value.is_finite()).collect()
        };
        let base = values(&self.subjects[self.baseline]);
        let of = |(index, subject)| {
            let own = values(subject);
            let ratio = if index == self.baseline { None } else { ratio(&own, &base) };
            Some(Compared { spread: Spread::of(own)?, ratio })
        };
        self.subjects.iter().enumerate().map(of).collect()
    }

    /// Returns the geometric mean, over the workloads both have, of a subject's throughput divided by the baseline's;
    /// with the number of workloads.
    fn mean_ratio(&self, subject: usize) -> Option<(f64, usize)> {
        let ratios: Vec<f64> = self
            .workloads
            .iter()
            .filter_map(|workload| {
                let compared = self.compare(workload, |phase| Some(phase.operations_per_second));
                compared[subject]?.ratio.map(|ratio| ratio.median).filter(|ratio| *ratio > 0.0)
            })
            .collect();
        let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        (!ratios.is_empty()).then(|| ((sum / ratios.len() as f64).exp(), ratios.len()))
    }
}

impl<'a> Subject<'a> {
    fn phases(&self, workload: &str) -> impl Iterator<Item = &'a PhaseResult> {
        self.runs.iter().filter_map(move |run| run.phase(workload))
    }

    /// Returns all that the figures depend on, by name. If repetitions differ in a fact, their values are joined.
    fn facts(&self) -> Vec<(String, String)> {
        let mut facts: Vec<(String, Vec<String>)> = vec![("runs".to_owned(), vec![self.runs.len().to_string()])];
        for (name, value) in self.runs.iter().flat_map(|run| facts_of(run)) {
            match facts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) if values.contains(&value) => {}
                Some((_, values)) => values.push(value),
                None => facts.push((name, vec![value])),
            }
        }
        facts.into_iter().map(|(name, values)| (name, values.join(", "))).collect()
    }

    /// Returns the differences that keep the runs from being repetitions of one measurement: names of options, and of
    /// the store's settings.
    fn differing_settings(&self) -> Vec<String> {
        let told = |run: &BenchResult| {
            let mut told = settings_of(&run.options);
            // Repetitions may leave workloads out, and begin their random streams elsewhere.
            for name in ["workloads", "seed", "existing", "keep"] {
                told.remove(name);
            }
            told.extend(run.store_settings.clone());
            told
        };
        let first = told(self.runs[0]);
        let mut differing = Vec::new();
        for other in self.runs.iter().skip(1).map(|run| told(run)) {
            for name in first.keys().chain(other.keys()) {
                if first.get(name) != other.get(name) && !differing.contains(name) {
                    differing.push(name.clone());
                }
            }
        }
        differing
    }

    /// Returns the repetition whose throughput is the (lower) median.
    fn typical(&self, workload: &str) -> Option<&'a PhaseResult> {
        let mut phases: Vec<&PhaseResult> = self.phases(workload).collect();
        phases.sort_by(|left, right| left.operations_per_second.total_cmp(&right.operations_per_second));
        phases.get(phases.len().checked_sub(1)? / 2).copied()
    }
}

/// Prefix of the names of a store's settings.
const STORE_SETTING: &str = "store's ";

fn facts_of(run: &BenchResult) -> Vec<(String, String)> {
    let machine = &run.machine;
    let mut facts = vec![
        ("store".to_owned(), run.store.clone()),
        ("commit".to_owned(), run.commit.clone().unwrap_or_else(|| "not given".to_owned())),
        ("processor".to_owned(), machine.cpu.clone()),
        ("cores".to_owned(), machine.cores.to_string()),
        ("memory".to_owned(), table::bytes(machine.memory_bytes as f64)),
        ("disk".to_owned(), machine.disk.clone()),
        ("kernel".to_owned(), machine.kernel.clone()),
        ("host".to_owned(), machine.host.clone()),
    ];
    let told = settings_of(&run.options);
    facts.extend(told.iter().map(|(name, value)| (name.replace('_', "-"), plain(value))));
    let of_store = run.store_settings.iter();
    facts.extend(of_store.map(|(name, value)| (format!("{STORE_SETTING}{name}"), plain(value))));
    let operations = |phase: &PhaseResult| (format!("operations of {}", phase.workload), phase.operations.to_string());
    facts.extend(run.phases.iter().map(operations));
    facts
}

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "none".to_owned(),
        serde_json::Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Returns the options of a run without its label, its commit and the directory of its store. These are of no interest
/// elsewhere, and a page is for others to see.
fn settings_of(options: &BenchOptions) -> serde_json::Map<String, serde_json::Value> {
    let Ok(serde_json::Value::Object(mut settings)) = serde_json::to_value(options) else { return Default::default() };
    for name in ["label", "commit", "directory"] {
        settings.remove(name);
    }
    settings
}

#[cfg(test)]
mod tests;
