//! A calibration as a table of text.

use super::{Calibration, Growth};
use crate::table::{aligned, bytes};
use situ_settings::SideName;
use std::fmt::Write;

const HEADS: [&str; 7] =
    ["linear", "pipelined", "bandwidth growth", "linear CPU", "pipelined CPU", "CPU growth", "ratio"];

impl Calibration {
    /// Renders the calibration for people.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        let head = |first: &str| std::iter::once(first).chain(HEADS).map(str::to_owned).collect::<Vec<_>>();
        let mut rows = vec![head("values")];
        rows.extend(self.values.iter().map(|row| cells(bytes(row.value_bytes as f64), &row.growth)));
        let machine = &self.machine;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {} cores of {}, {}; runs of {}\n",
            self.date,
            machine.cores,
            machine.cpu,
            machine.disk,
            bytes(self.run_bytes as f64)
        );
        aligned(&mut text, &rows, 1);
        if let Some(large) = self.large_value_bytes.filter(|_| !self.shares.is_empty()) {
            let mut rows = vec![head(&format!("values of {}", bytes(large as f64)))];
            rows.extend(self.shares.iter().map(|row| {
                let first = format!("{}%, else {}", row.large_percent, bytes(row.small_value_bytes as f64));
                cells(first, &row.growth)
            }));
            text.push('\n');
            aligned(&mut text, &rows, 1);
        }
        text.push('\n');
        self.conclusions().iter().for_each(|line| text.push_str(&format!("{line}\n")));
        text
    }

    fn conclusions(&self) -> Vec<String> {
        let rules = &self.decision_rules;
        let side = if self.side == SideName::Host { "the host" } else { "a node" };
        let large = match (self.large_value_bytes, self.large_share) {
            (None, _) if self.values.iter().all(|row| row.growth.ratio >= self.ratio_min) => {
                format!("Pipelines pay for values of all lengths: their ratio is {} or more.", self.ratio_min)
            }
            (None, _) => format!(
                "No length of values turns pipelines off: the largest ones have a ratio of {} or more.",
                self.ratio_min
            ),
            (Some(large), None) => {
                format!(
                    "Pipelines pay for no values: from {} on, their ratio is below {}.",
                    bytes(large as f64),
                    self.ratio_min
                )
            }
            (Some(large), Some(share)) => format!(
                "Values are large from {} on: there the ratio is below {}. At {:.0}% of large values, pipelines go off.",
                bytes(large as f64),
                self.ratio_min,
                share * 100.0
            ),
        };
        let off = (rules.threshold / rules.cpu_weight * 100.0).min(100.0);
        let back = ((rules.threshold - rules.hysteresis) / rules.cpu_weight * 100.0).max(0.0);
        vec![
            large,
            format!(
                "Without large values, pipelines go off at {off:.0}% of processors in use, and come back below {back:.0}%."
            ),
            format!(
                "Rules of {side}: processors weigh {:.3}, large values {:.3}, threshold {}, hysteresis {:.3}.",
                rules.cpu_weight, rules.large_value_weight, rules.threshold, rules.hysteresis
            ),
        ]
    }
}

fn cells(first: String, growth: &Growth) -> Vec<String> {
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let signed = |share: f64| format!("{:+.0}%", share * 100.0);
    vec![
        first,
        format!("{}/s", bytes(growth.linear_bytes_per_s.round())),
        format!("{}/s", bytes(growth.pipelined_bytes_per_s.round())),
        signed(growth.bandwidth_growth),
        percent(growth.linear_processors),
        percent(growth.pipelined_processors),
        signed(growth.processors_growth),
        if growth.ratio.is_finite() { format!("{:.2}", growth.ratio) } else { "-".to_owned() },
    ]
}
