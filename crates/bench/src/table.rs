//! Figures for people: numbers with units, and a run's phases as a table of text.

use std::fmt::Write;

use crate::result::{BenchResult, PhaseResult};

/// Formats a number that is not small with three significant digits: `1.23`, `12.3`, `123`.
fn digits(value: f64) -> String {
    let decimals = if value.abs() >= 99.95 {
        0
    } else if value.abs() >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

/// Formats a value in the largest unit that keeps it at or above one.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or("");
    for larger in units {
        if value.abs() < step * 0.9995 {
            break;
        }
        value /= step;
        unit = larger;
    }
    format!("{}{unit}", digits(value))
}

/// Formats a count: `950`, `1.20 k`, `3.40 M`.
#[must_use]
pub fn count(value: f64) -> String {
    if value < 1000.0 && value.fract() == 0.0 {
        return format!("{value}");
    }
    scaled(value, 1000.0, &["", " k", " M", " G", " T"])
}

/// Formats a rate: `1.20 M/s`.
#[must_use]
pub fn rate(per_second: f64) -> String {
    format!("{}/s", count(per_second))
}

/// Formats a size: `19 B`, `4.00 KiB`, `1.50 GiB`.
#[must_use]
pub fn bytes(value: f64) -> String {
    if value < 1024.0 && value.fract() == 0.0 {
        return format!("{value} B");
    }
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// Formats a time: `750 ns`, `1.20 µs`, `3.40 ms`, `5.60 s`.
#[must_use]
pub fn time(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 {
        return "0 s".to_owned();
    }
    scaled(nanoseconds, 1000.0, &[" ns", " µs", " ms", " s"])
}

/// Formats a factor: `1.23×`.
#[must_use]
pub fn factor(value: f64) -> String {
    format!("{}×", digits(value))
}

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
    let _ = writeln!(
        text,
        "{} cores of {}, {}, {}; {}",
        machine.cores,
        machine.cpu,
        bytes(machine.memory_bytes as f64),
        machine.kernel,
        machine.disk
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_carry_the_unit_that_reads_best() {
        assert_eq!(count(950.0), "950");
        assert_eq!(count(1_234_567.0), "1.23 M");
        assert_eq!(bytes(64.0 * 1024.0 * 1024.0), "64.0 MiB");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(19.0), "19 B");
        assert_eq!(time(0.0), "0 s");
        assert_eq!(time(999.9), "1.00 µs");
        assert_eq!(time(250.0), "250 ns");
        assert_eq!(time(3_600e9), "3600 s");
        assert_eq!(factor(12.34), "12.3×");
    }
}
