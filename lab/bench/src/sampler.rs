//! Watches the process while a workload runs: memory, CPU and writes over time, and a line of progress.
//!
//! A sample costs about 50 us of one core every 100 ms. When there are [`SAMPLES_MAX`] of them, every second one is
//! dropped and the interval doubles. So a run of any length gives a chart and not a file of megabytes.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::Usage;
use crate::result::Sample;
use crate::table::{count, rate};
use crate::work::UnitSample;

/// Samples kept of a phase.
const SAMPLES_MAX: usize = 600;

/// Samples until `done`, then returns what was seen. `operations` is asked for the line of progress, which appears on
/// stderr when that is a terminal; `units`, for what the store's units have compacted.
pub(crate) fn sample(
    name: &str,
    before: &Usage,
    done: &AtomicBool,
    operations: &dyn Fn() -> u64,
    units: &dyn Fn() -> Vec<UnitSample>,
) -> Vec<Sample> {
    let start = Instant::now();
    let mut interval = Duration::from_millis(100);
    let mut samples = Vec::with_capacity(SAMPLES_MAX);
    let mut progress = Progress::new(name);
    loop {
        let finished = done.load(Ordering::Acquire);
        samples.push(sample_now(before, start, units()));
        if finished {
            progress.clear();
            return samples;
        }
        progress.show(start.elapsed(), operations());
        if samples.len() == SAMPLES_MAX {
            let mut index = 0;
            samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            interval *= 2;
        }
        // The caller unparks when the phase is over.
        thread::park_timeout(interval);
    }
}

fn sample_now(before: &Usage, start: Instant, units: Vec<UnitSample>) -> Sample {
    let now = Usage::now();
    Sample {
        at_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        resident_bytes: now.resident_bytes,
        anonymous_bytes: now.anonymous_bytes,
        cpu_seconds: cpu_since(before, &now),
        disk_bytes_written: since(before.disk_bytes_written, now.disk_bytes_written),
        units,
    }
}

/// Returns the CPU time of both kinds between two looks.
pub(crate) fn cpu_since(before: &Usage, now: &Usage) -> Option<f64> {
    let total = |usage: &Usage| Some(usage.cpu_user_seconds? + usage.cpu_system_seconds?);
    Some(total(now)? - total(before)?)
}

/// Returns the growth of a counter between two looks.
pub(crate) fn since(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(before?))
}

/// One line on a terminal, rewritten in place.
struct Progress<'a> {
    name: &'a str,
    shown: bool,
    enabled: bool,
    last: (Duration, u64),
}

impl<'a> Progress<'a> {
    fn new(name: &'a str) -> Self {
        let enabled = std::io::stderr().is_terminal();
        Self { name, shown: false, enabled, last: (Duration::ZERO, 0) }
    }

    fn show(&mut self, elapsed: Duration, operations: u64) {
        let step = elapsed.saturating_sub(self.last.0);
        if !self.enabled || step < Duration::from_millis(500) {
            return;
        }
        let now = (operations.saturating_sub(self.last.1)) as f64 / step.as_secs_f64();
        self.last = (elapsed, operations);
        self.shown = true;
        // A progress line that cannot be written is no reason to end a run.
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{}  {:.0} s  {} operations  {}",
            self.name,
            elapsed.as_secs_f64(),
            count(operations as f64),
            rate(now)
        );
    }

    fn clear(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
