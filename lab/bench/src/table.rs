//! Figures for people: a run's phases as a table of text.

use std::fmt::Write;

use crate::result::{BenchResult, PhaseResult};
pub use situ_settings::figures::{bytes, count, factor, rate, time};

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Renders the run as a table, with one row per workload and kind of operation.
#[must_use]
pub fn render(result: &BenchResult) -> String {
    let machine = &result.machine;
    let mut text = String::new();
    let mut rows = vec![
        [
            "workload",
            "kind",
            "rate",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "max",
            "stall",
            "CPU/op",
            "write amp",
            "space amp",
            "memory",
        ]
        .map(str::to_owned),
    ];
    for phase in &result.phases {
        rows.extend(phase_rows(phase));
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}: {}, {}", result.label, result.store, result.date);
    let disk = if machine.disk.is_empty() { String::new() } else { format!("; {}", machine.disk) };
    let _ = writeln!(
        text,
        "{} cores of {}, {}, {}{disk}",
        machine.cores,
        machine.cpu,
        bytes(machine.memory_bytes as f64),
        machine.kernel
    );
    aligned(&mut text, &rows, 2);
    text
}

/// Appends rows with columns of even width. The first `left` columns begin at the left, the others end at the right.
pub(crate) fn aligned(text: &mut String, rows: &[impl AsRef<[String]>], left: usize) {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.as_ref().iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = match column < left {
                true => write!(line, "{cell:<width$}  "),
                false => write!(line, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn phase_rows(phase: &PhaseResult) -> Vec<[String; 13]> {
    let ns = |value: u64| time(value as f64);
    let mut rows = Vec::new();
    for (index, latency) in phase.latencies.iter().enumerate() {
        let first = |text: String| if index == 0 { text } else { String::new() };
        rows.push([
            first(phase.workload.clone()),
            latency.kind.name().to_owned(),
            first(rate(phase.operations_per_second)),
            time(latency.mean_ns),
            ns(latency.p50_ns),
            ns(latency.p99_ns),
            ns(latency.p999_ns),
            ns(latency.max_ns),
            first(time(phase.longest_stall_ms as f64 * 1e6)),
            first(or_dash(phase.cpu_us_per_operation().map(|us| time(us * 1000.0)))),
            first(or_dash(phase.write_amplification.map(factor))),
            first(or_dash(phase.space_amplification.map(factor))),
            first(or_dash(phase.anonymous_bytes_peak.map(|peak| bytes(peak as f64)))),
        ]);
    }
    if rows.is_empty() {
        let mut row = std::array::from_fn(|_| String::new());
        row[0] = phase.workload.clone();
        row[1] = time(phase.seconds * 1e9);
        row[2] = phase.idle_core_percent().map_or_else(String::new, |percent| format!("{percent:.3}% of a core"));
        rows.push(row);
    }
    rows
}
