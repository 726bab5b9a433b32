//! The result of a run, as it is kept: JSON with everything needed to judge it and to run it again.
//!
//! Fields may be added; a reader ignores what it does not know and takes the default for what is missing. Units are in
//! the names. `None` means that the machine or the store did not say, never zero.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::measure::Latency;
use crate::options::BenchOptions;
use crate::process::Machine;
use crate::store::{Setting, Settings, StoreStats};
use crate::work::{UnitSample, Work};
use crate::workloads::Workload;

/// Names the layout of a result file.
pub const RESULT_FORMAT: &str = "situ-bench 2";
/// The layout before: the settings of stores were text, and some of them Rust's names for things. It can still be read.
const RESULT_FORMAT_1: &str = "situ-bench 1";

/// A run: one store, one set of options, its workloads in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`RESULT_FORMAT`].
    pub format: String,
    /// Name in tables and charts; results with the same label are repetitions.
    pub label: String,
    /// The store's name and version.
    pub store: String,
    /// The settings it was opened with.
    pub store_settings: Settings,
    /// The start of the run, UTC.
    pub date: String,
    /// Commit of the code under test, if it was given.
    pub commit: Option<String>,
    /// The machine of the run.
    pub machine: Machine,
    /// The options of the run.
    pub options: BenchOptions,
    /// Cost of reading the clock once, in nanoseconds: part of every latency.
    pub clock_ns: f64,
    /// Anonymous memory of the process before the store was opened: the harness's own share of the memory figures.
    pub baseline_anonymous_bytes: Option<u64>,
    /// The workloads, in order.
    pub phases: Vec<PhaseResult>,
}

/// The result of one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseResult {
    /// The workload's name.
    pub workload: String,
    /// Threads that issued requests.
    pub threads: u32,
    /// Requests each kept in flight.
    pub outstanding: u32,
    /// Requests per second that were asked for.
    pub target_rate: Option<u64>,
    /// The time from the start to the last completion.
    pub seconds: f64,
    /// Operations completed.
    pub operations: u64,
    /// Operations per second.
    pub operations_per_second: f64,
    /// Gets that found a value, and entries that scans returned.
    pub found: u64,
    /// Gets that found none.
    pub missed: u64,
    /// Key and value bytes written by requests.
    pub user_bytes_written: u64,
    /// Bytes returned to requests.
    pub user_bytes_read: u64,
    /// Latencies per kind of operation.
    pub latencies: Vec<Latency>,
    /// The 99th percentile of latency, of requests of all kinds together.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile of latency, of requests of all kinds together.
    pub p999_ns: Option<u64>,
    /// Longest time in which no request completed.
    pub longest_stall_ms: u64,
    /// Time the store then took to finish its background work.
    pub settle_seconds: f64,
    /// CPU time of the process in user mode, while requests were issued.
    pub cpu_user_seconds: Option<f64>,
    /// CPU time of the process in the kernel, while requests were issued.
    pub cpu_system_seconds: Option<f64>,
    /// CPU time of both kinds while the store settled.
    pub settle_cpu_seconds: Option<f64>,
    /// Highest resident memory, page cache mapped into the process included.
    pub resident_bytes_peak: Option<u64>,
    /// Highest anonymous memory of the samples: what the process itself allocated.
    pub anonymous_bytes_peak: Option<u64>,
    /// Bytes read from the disk by this process, settling included (`/proc/self/io`).
    pub disk_bytes_read: Option<u64>,
    /// Bytes this process gave to be written to the disk, settling included (`/proc/self/io`).
    pub disk_bytes_written: Option<u64>,
    /// Of these, bytes whose file was removed before the kernel had written them. Not subtracted: what the kernel has
    /// not written yet depends on how short the run is, and a store that writes directly is never spared anything.
    pub disk_bytes_cancelled: Option<u64>,
    /// `disk_bytes_written / user_bytes_written`.
    pub write_amplification: Option<f64>,
    /// The same by the store's own counter.
    pub store_write_amplification: Option<f64>,
    /// Bytes of tables that flushes and compactions wrote by the store's own counters, settling included, for each byte
    /// of `user_bytes_written`. The log is not in it; that is in `work`.
    pub table_write_amplification: Option<f64>,
    /// The start of the workload, in milliseconds since 1970: for programs that watch from outside.
    pub began_unix_ms: u64,
    /// The time at which the last request was done.
    pub requests_ended_unix_ms: u64,
    /// The time at which the store had settled.
    pub settled_unix_ms: u64,
    /// The work of the store behind the requests until the last one was done.
    pub work_before_settling: Option<Work>,
    /// The same, settling included.
    pub work: Option<Work>,
    /// Bytes the store's files hold afterwards.
    pub disk_bytes: u64,
    /// Key and value bytes of the entries that exist.
    pub live_user_bytes: Option<u64>,
    /// `disk_bytes / live_user_bytes`.
    pub space_amplification: Option<f64>,
    /// The counters of the store afterwards.
    pub stats: StoreStats,
    /// Throughput and the longest latency over time.
    pub series: Series,
    /// Memory, CPU and writes over time, settling included.
    pub samples: Vec<Sample>,
}

impl PhaseResult {
    /// Returns the CPU time per operation in microseconds, requests only. `None` with a rate: looking out for the
    /// moment at which a request is due uses CPU time as well.
    #[must_use]
    pub fn cpu_us_per_operation(&self) -> Option<f64> {
        let seconds = self.cpu_user_seconds? + self.cpu_system_seconds?;
        (self.operations > 0 && self.target_rate.is_none()).then(|| seconds * 1e6 / self.operations as f64)
    }

    /// Returns the share of a core that the process used while it was idle, in percent. `None` for workloads with
    /// requests and for maintenance that works.
    #[must_use]
    pub fn idle_core_percent(&self) -> Option<f64> {
        let seconds = self.cpu_user_seconds? + self.cpu_system_seconds?;
        let is_idle = self.workload == Workload::Idle.to_string() && self.seconds > 0.0;
        is_idle.then(|| 100.0 * seconds / self.seconds)
    }
}

/// Completions per interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Length of an interval. The last one may be cut short.
    pub interval_ms: u64,
    /// Operations completed in each.
    pub operations: Vec<u64>,
    /// Longest latency that ended in each.
    pub latency_ns_max: Vec<u64>,
}

/// The process and the store's units at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// The time since the workload began.
    pub at_ms: u64,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Anonymous memory.
    pub anonymous_bytes: Option<u64>,
    /// CPU time since the workload began.
    pub cpu_seconds: Option<f64>,
    /// Bytes written to the disk since the workload began.
    pub disk_bytes_written: Option<u64>,
    /// The compacted bytes of each unit since the store was opened, in the order of [`Work::units`].
    pub units: Vec<UnitSample>,
}

impl BenchResult {
    /// Returns the phase of a workload: the last one, where it was run more than once.
    #[must_use]
    pub fn phase(&self, workload: &str) -> Option<&PhaseResult> {
        self.phases.iter().rev().find(|phase| phase.workload == workload)
    }

    /// Writes the result as JSON.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        let mut text =
            serde_json::to_string_pretty(self).map_err(|source| Error::Format { path: path.to_owned(), source })?;
        text.push('\n');
        fs::write(path, text).map_err(|source| Error::file(path, source))
    }

    /// Reads a result that [`write_json`](Self::write_json) wrote, or an earlier version of it.
    ///
    /// # Errors
    /// The file cannot be read, or has another layout.
    pub fn read_json(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
        let other = |source| Error::Format { path: path.to_owned(), source };
        let mut result: Self = serde_json::from_str(&text).map_err(other)?;
        match result.format.as_str() {
            RESULT_FORMAT => {}
            RESULT_FORMAT_1 => result.bring_up(),
            format => {
                let why = format!(
                    "its layout is {format:?}, and this program reads {RESULT_FORMAT:?} and {RESULT_FORMAT_1:?}"
                );
                return Err(other(serde::de::Error::custom(why)));
            }
        }
        Ok(result)
    }

    /// From [`RESULT_FORMAT_1`] to [`RESULT_FORMAT`], so that a setting is the same in results of both.
    fn bring_up(&mut self) {
        self.format = RESULT_FORMAT.to_owned();
        let old = std::mem::take(&mut self.store_settings);
        let is_situ = self.store.starts_with("situ ");
        for (name, value) in old {
            match (name.as_str(), value.as_str()) {
                ("ablation", Some(text)) if is_situ => self.store_settings.extend(ablation(text)),
                ("compression", Some(text)) if is_situ => {
                    self.store_settings.insert(name, compression(text).into());
                }
                ("fast_disk", Some("none")) if is_situ => {
                    self.store_settings.insert(name, Setting::Null);
                }
                (_, Some(text)) => {
                    let value = setting(text);
                    self.store_settings.insert(name, value);
                }
                (_, None) => {
                    self.store_settings.insert(name, value);
                }
            }
        }
    }
}

/// Parses the text of a setting.
fn setting(text: &str) -> Setting {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        text => text.parse::<u64>().map_or_else(|_| text.into(), Setting::from),
    }
}

/// `Ablation { serial_log: false, pinned_level: Some(1) }`, as Rust shows it, as settings of those names.
fn ablation(text: &str) -> Settings {
    let fields = text.trim_start_matches("Ablation {").trim_end_matches('}').split(',');
    fields
        .filter_map(|field| {
            let (name, value) = field.split_once(':')?;
            let value = match value.trim() {
                "None" => Setting::Null,
                value => setting(value.trim_start_matches("Some(").trim_end_matches(')')),
            };
            Some((name.trim().to_owned(), value))
        })
        .collect()
}

/// `[Lz4, Zstd { level: 3 }]`, as Rust shows it, as `lz4, zstd level 3`.
fn compression(text: &str) -> String {
    let plain = text.replace(['[', ']', '{', '}', ':'], "").to_lowercase();
    let levels = plain.split(',').map(|level| level.split_whitespace().collect::<Vec<_>>().join(" "));
    levels.collect::<Vec<_>>().join(", ")
}
