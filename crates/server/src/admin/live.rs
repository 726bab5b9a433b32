//! The live picture of a server: what `GET /live.json` answers, and the page that draws it.
//!
//! ```text
//! counters, Engine::metrics ──┐
//! Engine::health ─────────────┼──> Live ──JSON──> GET /live.json ──> the page, `situ top`
//! Engine::compactions(since) ─┘                   page.rs ──> GET /
//! ```
//!
//! 1. A request collects the metrics that `/metrics` has, under the same names, and the news of compactions.
//! 2. A reader asks about once a second. It makes rates and percentiles of the differences between two answers.
//!
//! **Cost.** The server samples nothing by itself. Without a reader, the picture costs nothing.
//!
//! Rejected: a history in the server, so that a page shows the past at once. It would sample while no page is open.

mod page;

pub(crate) use page::{HEADERS as PAGE_HEADERS, PAGE};

use crate::admin::metrics::{Totals, report_engine};
use crate::engine::compactions::Compactions;
use crate::engine::durable::Durable;
use crate::engine::slow::SlowFigures;
use crate::engine::{Engine, Health, Metric};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The slow operations that an answer has.
const SLOW_MAX: usize = 20;

/// All that a server shows of itself at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// The version of the server.
    pub version: String,
    /// Milliseconds of Unix time at the answer.
    pub unix_ms: u64,
    /// Microseconds since the server started. Less than before after a restart: counters have restarted, too.
    pub uptime_us: u64,
    /// The reason why `/healthz` answers 503; absent while the engine is well.
    pub trouble: Option<String>,
    /// The samples of `/metrics` by the name of their metric, but for the histogram.
    pub metrics: BTreeMap<String, Vec<Sample>>,
    /// The histogram of `/metrics`, by class of commands.
    pub latencies: BTreeMap<String, Latencies>,
    /// The compactions that ended after the attempt `since` of the request; absent if the engine has none.
    pub compactions: Option<Compactions>,
    /// The last slow operations, 20 at most, oldest first; absent if the engine does not look for them.
    #[serde(default)]
    pub slow_operations: Option<Vec<SlowFigures>>,
}

/// A value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Values of labels by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The value; absent if it is no finite number.
    pub value: Option<f64>,
}

/// The latencies of one class of commands since the server started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Counts of commands. Bucket `i` has those that took less than `2^i` µs and are in no bucket before it. The last
    /// one has the rest.
    pub buckets: Vec<u64>,
    /// The time of all commands together.
    pub seconds: f64,
}

impl Live {
    /// Collects the picture, with the compactions that ended after the attempt `since`.
    pub(crate) fn collect<E: Engine>(totals: &Totals<'_>, durable: &Durable<E>, uptime: Duration, since: u64) -> Live {
        let engine = durable.engine();
        let mut metrics: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        let mut take = |metric: Metric<'_>| {
            let labels = metric.labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let sample = Sample { labels, value: Some(metric.value).filter(|value| value.is_finite()) };
            metrics.entry(metric.name.to_owned()).or_default().push(sample);
        };
        totals.report(uptime, &mut take);
        report_engine(durable, &mut take);
        let latencies = totals.latencies().into_iter().map(|(class, buckets, total)| {
            (class.to_owned(), Latencies { buckets: buckets.to_vec(), seconds: total.as_secs_f64() })
        });
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Live {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
            uptime_us: u64::try_from(uptime.as_micros()).unwrap_or(u64::MAX),
            trouble: match engine.health() {
                Health::Ready => None,
                Health::Degraded(reason) => Some(reason),
            },
            latencies: latencies.collect(),
            compactions: engine.compactions(since),
            slow_operations: engine
                .slow_operations()
                .map(|mut slow| slow.split_off(slow.len().saturating_sub(SLOW_MAX))),
            metrics,
        }
    }

    /// Returns the value of a metric without labels.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.metrics.get(name)?.iter().find(|sample| sample.labels.is_empty())?.value
    }

    /// Returns the sum of all samples of a metric; 0 if there are none.
    pub fn sum(&self, name: &str) -> f64 {
        let values = self.metrics.get(name).into_iter().flatten().filter_map(|sample| sample.value);
        // The sum of no numbers is -0.
        values.fold(0.0, |sum, value| sum + value)
    }
}

#[cfg(test)]
mod tests;
