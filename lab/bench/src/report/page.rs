//! The page around the drawings: headline, legend, a card per question, tables, machine and settings.

use std::fmt::Write;

use super::chart::{Bar, BarGroup, Line, LineChart, Scale, bars, escape, seconds_ticks, subject_class};
use super::{Compared, Comparison, plain, settings_of};
use crate::measure::Latency;
use crate::result::PhaseResult;
use crate::table::{bytes, count, factor, rate, time};

/// The maximum number of points of a line: its width cannot show more.
const POINTS_MAX: usize = 160;

pub(super) fn render(title: &str, comparison: &Comparison<'_>) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{}</title><style>{}</style></head><body><main>",
        escape(title),
        include_str!("style.css")
    );
    header(title, comparison, &mut html);
    differences(comparison, &mut html);
    overview(comparison, &mut html);
    for workload in &comparison.workloads {
        workload_section(workload, comparison, &mut html);
    }
    settings(comparison, &mut html);
    let _ = writeln!(
        html,
        "</main><div id=\"hint\" hidden=\"hidden\"></div><script>{}</script></body></html>",
        include_str!("script.js")
    );
    html
}

fn header(title: &str, comparison: &Comparison<'_>, html: &mut String) {
    let first = comparison.subjects[comparison.baseline].runs[0];
    let machine = &first.machine;
    let _ = write!(
        html,
        "<header><h1>{}</h1><p class=\"where\">{} · {} cores · {} memory · {} · {} · {}</p>",
        escape(title),
        escape(&machine.cpu),
        machine.cores,
        bytes(machine.memory_bytes as f64),
        escape(&machine.disk),
        escape(&machine.kernel),
        escape(first.date.split('T').next().unwrap_or_default())
    );
    let machines_differ = comparison
        .subjects
        .iter()
        .flat_map(|subject| &subject.runs)
        .any(|run| (&run.machine.cpu, run.machine.cores) != (&machine.cpu, machine.cores));
    if machines_differ {
        html.push_str(
            "<p class=\"warning\">These results come from different machines: the ratios compare more than the stores.</p>",
        );
    }
    for subject in &comparison.subjects {
        let differing = subject.differing_settings();
        if !differing.is_empty() {
            let _ = write!(
                html,
                "<p class=\"warning\">The runs labelled {} are no repetitions, they differ in {}: their medians mix \
                 different measurements. Make a page of each, or give each a --label of its own.</p>",
                escape(subject.label),
                escape(&differing.join(", "))
            );
        }
    }
    html.push_str("<div class=\"subjects\">");
    for (index, subject) in comparison.subjects.iter().enumerate() {
        let runs = match subject.runs.len() {
            1 => "one run".to_owned(),
            runs => format!("median of {runs} runs"),
        };
        let _ = write!(
            html,
            "<div class=\"subject\"><span class=\"swatch {}\"></span><b>{}</b><small>{}, {runs}</small>",
            subject_class(index),
            escape(subject.label),
            escape(&subject.runs[0].store)
        );
        if comparison.subjects.len() > 1 {
            if index == comparison.baseline {
                html.push_str("<strong>1×</strong><small>baseline</small>");
            } else if let Some((ratio, workloads)) = comparison.mean_ratio(index) {
                let plural = if workloads == 1 { "" } else { "s" };
                let _ = write!(
                    html,
                    "<strong>{}</strong><small>throughput, geometric mean of {workloads} workload{plural}</small>",
                    factor(ratio)
                );
            }
        }
        html.push_str("</div>");
    }
    html.push_str("</div>");
    let mut notes = Vec::new();
    if comparison.subjects.len() > 1 {
        let baseline = escape(comparison.subjects[comparison.baseline].label);
        notes.push(format!("In brackets: how many times the figure of {baseline}, the baseline."));
    }
    if comparison.subjects.iter().any(|subject| subject.runs.len() > 1) {
        notes.push("Thin lines reach from the smallest to the largest of the runs.".to_owned());
    }
    if !notes.is_empty() {
        let _ = write!(html, "<p class=\"where\">{}</p>", notes.join(" "));
    }
    html.push_str("</header>");
}

/// Writes the table of differences between the compared runs. Each of them affects the ratios.
fn differences(comparison: &Comparison<'_>, html: &mut String) {
    if comparison.subjects.len() < 2 {
        return;
    }
    html.push_str("<section><h2>Differences between the runs</h2>");
    let differences = comparison.differences();
    if differences.is_empty() {
        html.push_str("<p class=\"where\">In their labels only.</p></section>");
        return;
    }
    html.push_str("<div class=\"card\"><table><thead><tr><th></th>");
    for subject in &comparison.subjects {
        let _ = write!(html, "<th>{}</th>", escape(subject.label));
    }
    html.push_str("</tr></thead><tbody>");
    for difference in differences {
        let _ = write!(html, "<tr><th>{}</th>", escape(&difference.name));
        for (_, value) in &difference.values {
            let _ = write!(html, "<td>{}</td>", escape(value));
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div></section>");
}

/// One comparison as bars.
struct Figure {
    title: &'static str,
    value: fn(&PhaseResult) -> Option<f64>,
    text: fn(f64) -> String,
    /// True if each workload has a scale of its own: its figures differ from the next one's by orders of magnitude.
    own_scale: bool,
}

const FIGURES: [Figure; 6] = [
    Figure {
        title: "Throughput (longer is better)",
        value: |phase| Some(phase.operations_per_second),
        text: rate,
        own_scale: true,
    },
    Figure { title: "CPU time per operation (shorter is better)", value: cpu_ns, text: time, own_scale: true },
    Figure {
        title: "Write amplification: bytes to disk per byte written",
        value: |phase| phase.write_amplification,
        text: factor,
        own_scale: false,
    },
    Figure {
        title: "Space amplification: bytes on disk per live byte",
        value: |phase| phase.space_amplification,
        text: factor,
        own_scale: false,
    },
    Figure {
        title: "Peak anonymous memory",
        value: |phase| phase.anonymous_bytes_peak.map(|peak| peak as f64),
        text: bytes,
        own_scale: false,
    },
    Figure {
        title: "Longest time without a completion",
        value: |phase| Some(phase.longest_stall_ms as f64 * 1e6),
        text: time,
        own_scale: false,
    },
];

fn cpu_ns(phase: &PhaseResult) -> Option<f64> {
    Some(phase.cpu_us_per_operation()? * 1000.0)
}

fn overview(comparison: &Comparison<'_>, html: &mut String) {
    html.push_str("<section class=\"cards\">");
    for Figure { title, value, text, own_scale } in FIGURES {
        let groups: Vec<BarGroup> = comparison
            .workloads
            .iter()
            .map(|workload| BarGroup {
                name: (*workload).to_owned(),
                bars: figure_bars(comparison, &comparison.compare(workload, value), text),
            })
            .filter(|group| group.bars.iter().any(|bar| bar.value > 0.0))
            .collect();
        if !groups.is_empty() {
            let _ = write!(html, "<div class=\"card\">{}</div>", bars(title, &groups, own_scale));
        }
    }
    html.push_str("</section>");
}

fn figure_bars(comparison: &Comparison<'_>, compared: &[Option<Compared>], text: fn(f64) -> String) -> Vec<Bar> {
    let baseline = comparison.subjects[comparison.baseline].label;
    let subjects = comparison.subjects.iter().zip(compared).enumerate();
    subjects
        .filter_map(|(index, (subject, compared))| {
            let Compared { spread, ratio } = (*compared)?;
            let mut beside = text(spread.median);
            let mut hint = format!("{}: {}", subject.label, text(spread.median));
            if spread.count > 1 {
                let _ = write!(hint, "\n{} to {} in {} runs", text(spread.min), text(spread.max), spread.count);
            }
            if let Some(ratio) = ratio {
                let _ = write!(beside, "  ({})", factor(ratio.median));
                let _ = write!(hint, "\n{} of {baseline}", factor(ratio.median));
                if ratio.count > 1 {
                    let _ = write!(hint, ", {} to {} within a repetition", factor(ratio.min), factor(ratio.max));
                }
            }
            Some(Bar {
                subject: index,
                label: subject.label.to_owned(),
                value: spread.median,
                range: (spread.count > 1).then_some((spread.min, spread.max)),
                beside,
                hint,
            })
        })
        .collect()
}

/// Returns the subjects' typical runs of a workload.
fn typical<'a>(workload: &str, comparison: &Comparison<'a>) -> Vec<(usize, &'a str, &'a PhaseResult)> {
    let subjects = comparison.subjects.iter().enumerate();
    subjects.filter_map(|(index, subject)| Some((index, subject.label, subject.typical(workload)?))).collect()
}

fn workload_section(workload: &str, comparison: &Comparison<'_>, html: &mut String) {
    let phases = typical(workload, comparison);
    let Some((_, _, first)) = phases.first() else { return };
    let mut load = format!("{} thread{}", first.threads, if first.threads == 1 { "" } else { "s" });
    if first.outstanding > 1 {
        let _ = write!(load, ", {} requests outstanding each", first.outstanding);
    }
    if let Some(target) = first.target_rate {
        let _ = write!(load, ", {} asked for", rate(target as f64));
    }
    let _ = write!(
        html,
        "<section><h2>{} <small>{load}</small></h2>{}<div class=\"cards\">",
        escape(workload),
        legend(&phases)
    );
    for chart in [throughput_chart(&phases), latency_over_time(&phases), memory_chart(&phases), writes_chart(&phases)] {
        card(&chart, html);
    }
    let mut kinds: Vec<_> = phases.iter().flat_map(|(_, _, phase)| phase.latencies.iter().map(|l| l.kind)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let latencies: Vec<_> = phases
            .iter()
            .filter_map(|(subject, label, phase)| {
                Some((*subject, *label, phase.latencies.iter().find(|latency| latency.kind == kind)?))
            })
            .collect();
        card(&latency_curve(kind.name(), &latencies), html);
    }
    html.push_str("</div>");
    figures_table(&phases, html);
    html.push_str("</section>");
}

fn card(chart: &str, html: &mut String) {
    if !chart.is_empty() {
        let _ = write!(html, "<div class=\"card\">{chart}</div>");
    }
}

fn legend(phases: &[(usize, &str, &PhaseResult)]) -> String {
    if phases.len() < 2 {
        return String::new();
    }
    let mut html = String::from("<p class=\"legend\">");
    for (subject, label, _) in phases {
        let class = subject_class(*subject);
        let _ = write!(html, "<span><span class=\"swatch {class}\"></span>{}</span>", escape(label));
    }
    html.push_str("</p>");
    html
}

/// Returns the number of neighbouring values that make one point, so that at most [`POINTS_MAX`] points are left.
fn thin(length: usize) -> usize {
    length.div_ceil(POINTS_MAX).max(1)
}

/// The vertical axis of a chart over time.
struct Axis {
    scale: Scale,
    format: fn(f64) -> String,
    binary: bool,
}

fn time_chart(title: &str, axis: Axis, lines: Vec<Line>) -> String {
    let last = lines.iter().flat_map(|line| line.points.last()).map(|point| point.0).fold(0.0, f64::max);
    let Axis { scale, format, binary } = axis;
    LineChart {
        title,
        x_title: "seconds",
        x_ticks: seconds_ticks(last),
        y_scale: scale,
        y_format: &|value| tick(&format(value)),
        filled: scale == Scale::Linear && lines.len() == 1,
        lines,
        binary,
    }
    .render()
}

fn throughput_chart(phases: &[(usize, &str, &PhaseResult)]) -> String {
    let line = |(subject, label, phase): &(usize, &str, &PhaseResult)| {
        let series = &phase.series;
        let together = thin(series.operations.len());
        let span = series.interval_ms as f64 / 1000.0;
        let points = series.operations.chunks(together).enumerate().filter_map(|(index, chunk)| {
            let from = (index * together) as f64 * span;
            let whole = chunk.len() as f64 * span;
            // The last interval ends with the workload. A small rest of one is too little to tell a rate from.
            let seconds = whole.min(phase.seconds - from);
            if index > 0 && seconds < whole / 2.0 {
                return None;
            }
            let per_second = chunk.iter().sum::<u64>() as f64 / seconds.max(1e-9);
            Some((from + seconds / 2.0, per_second, format!("{} at {:.1} s", rate(per_second), from)))
        });
        Line { subject: *subject, label: (*label).to_owned(), points: points.collect() }
    };
    let axis = Axis { scale: Scale::Linear, format: rate, binary: false };
    time_chart("Throughput over time", axis, phases.iter().map(line).collect())
}

fn latency_over_time(phases: &[(usize, &str, &PhaseResult)]) -> String {
    let line = |(subject, label, phase): &(usize, &str, &PhaseResult)| {
        let series = &phase.series;
        let together = thin(series.latency_ns_max.len());
        let span = series.interval_ms as f64 / 1000.0;
        let points = series.latency_ns_max.chunks(together).enumerate().filter_map(|(index, chunk)| {
            let longest = chunk.iter().copied().max().filter(|longest| *longest > 0)? as f64;
            let at = (index * together) as f64 * span;
            Some((at, longest, format!("{} at {at:.1} s", time(longest))))
        });
        Line { subject: *subject, label: (*label).to_owned(), points: points.collect() }
    };
    let axis = Axis { scale: Scale::Log, format: time, binary: false };
    time_chart("Longest latency over time", axis, phases.iter().map(line).collect())
}

fn sample_chart(
    title: &str,
    phases: &[(usize, &str, &PhaseResult)],
    figure: &dyn Fn(&crate::result::Sample) -> Option<u64>,
) -> String {
    let line = |(subject, label, phase): &(usize, &str, &PhaseResult)| {
        let points = phase.samples.iter().step_by(thin(phase.samples.len())).filter_map(|sample| {
            let value = figure(sample)? as f64;
            let at = sample.at_ms as f64 / 1000.0;
            Some((at, value, format!("{} at {at:.1} s", bytes(value))))
        });
        Line { subject: *subject, label: (*label).to_owned(), points: points.collect() }
    };
    let axis = Axis { scale: Scale::Linear, format: bytes, binary: true };
    time_chart(title, axis, phases.iter().map(line).collect())
}

fn memory_chart(phases: &[(usize, &str, &PhaseResult)]) -> String {
    sample_chart("Anonymous memory, settling included", phases, &|sample| sample.anonymous_bytes)
}

fn writes_chart(phases: &[(usize, &str, &PhaseResult)]) -> String {
    if phases.iter().all(|(_, _, phase)| phase.user_bytes_written == 0) {
        return String::new();
    }
    sample_chart("Bytes written to disk, settling included", phases, &|sample| sample.disk_bytes_written)
}

/// Shortens a label of an axis by decimals that say nothing: `10 µs`, not `10.0 µs`.
fn tick(text: &str) -> String {
    let end = text.find([' ', '/']).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

/// Draws latency by percentile. The axis counts nines, so that each factor of ten in rarity has the same room.
fn latency_curve(kind: &str, latencies: &[(usize, &str, &Latency)]) -> String {
    let nines = |percentile: f64| -(1.0 - percentile.min(99.9999) / 100.0).log10();
    let line = |(subject, label, latency): &(usize, &str, &Latency)| {
        let points = latency.curve.iter().filter(|(percentile, _)| *percentile < 100.0);
        let points = points.map(|(percentile, ns)| {
            let ns = (*ns).max(1) as f64;
            (nines(*percentile), ns, format!("{} at p{percentile}", time(ns)))
        });
        Line { subject: *subject, label: (*label).to_owned(), points: points.collect() }
    };
    let ticks = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
    LineChart {
        title: &format!("Latency of {kind} by percentile"),
        x_title: "percentile",
        x_ticks: ticks.iter().map(|percentile| (nines(*percentile), format!("{percentile}"))).collect(),
        y_scale: Scale::Log,
        y_format: &|ns| tick(&time(ns)),
        lines: latencies.iter().map(line).collect(),
        binary: false,
        filled: false,
    }
    .render()
}

fn figures_table(phases: &[(usize, &str, &PhaseResult)], html: &mut String) {
    html.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>store</th><th>kind</th><th>operations</th><th>rate</th><th>mean</th>\
         <th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>p99.99</th><th>max</th><th>found</th><th>CPU</th>\
         <th>settled in</th><th>written</th><th>on disk</th></tr></thead><tbody>",
    );
    for (subject, label, phase) in phases {
        for (index, latency) in phase.latencies.iter().enumerate() {
            let first = |text: String| if index == 0 { text } else { String::new() };
            let cpu = phase
                .cpu_user_seconds
                .zip(phase.cpu_system_seconds)
                .map(|(user, system)| format!("{user:.2} s + {system:.2} s"));
            let cells = [
                latency.kind.name().to_owned(),
                count(latency.count as f64),
                first(rate(phase.operations_per_second)),
                time(latency.mean_ns),
                time(latency.p50_ns as f64),
                time(latency.p90_ns as f64),
                time(latency.p99_ns as f64),
                time(latency.p999_ns as f64),
                time(latency.p9999_ns as f64),
                time(latency.max_ns as f64),
                // Of workloads that look for nothing, nothing is to be said.
                first(if phase.found + phase.missed > 0 { count(phase.found as f64) } else { String::new() }),
                first(cpu.unwrap_or_default()),
                first(time(phase.settle_seconds * 1e9)),
                first(phase.disk_bytes_written.map(|written| bytes(written as f64)).unwrap_or_default()),
                // The files of a server are unknown.
                first(if phase.disk_bytes > 0 { bytes(phase.disk_bytes as f64) } else { String::new() }),
            ];
            let name = first(format!("<span class=\"swatch {}\"></span>{}", subject_class(*subject), escape(label)));
            let _ = write!(html, "<tr><td>{name}</td>");
            for cell in cells {
                let _ = write!(html, "<td>{}</td>", escape(&cell));
            }
            html.push_str("</tr>");
        }
    }
    html.push_str("</tbody></table></div>");
}

fn settings(comparison: &Comparison<'_>, html: &mut String) {
    html.push_str("<section><h2>Machine and settings</h2>");
    let base = comparison.subjects[comparison.baseline].runs[0];
    if comparison.subjects.len() > 1 {
        let _ = write!(html, "<p class=\"where\">Bold: other than {}'s.</p>", escape(&base.label));
    }
    html.push_str("<div class=\"cards\">");
    for (index, subject) in comparison.subjects.iter().enumerate() {
        let run = subject.runs[0];
        let mut rows: Vec<(String, String, bool)> = vec![
            ("store".to_owned(), run.store.clone(), false),
            ("date".to_owned(), run.date.clone(), false),
            ("commit".to_owned(), run.commit.clone().unwrap_or_else(|| "not given".to_owned()), false),
            ("host".to_owned(), run.machine.host.clone(), run.machine.host != base.machine.host),
            ("reading the clock".to_owned(), time(run.clock_ns), false),
        ];
        if let Some(baseline) = run.baseline_anonymous_bytes {
            rows.push(("memory of the harness before opening".to_owned(), bytes(baseline as f64), false));
        }
        let told = settings_of(&run.options);
        let base_told = settings_of(&base.options);
        rows.extend(told.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
            let differs = base_told.get(&name) != Some(&value);
            (name.replace('_', "-"), plain(&value), differs)
        }));
        let _ = write!(
            html,
            "<details class=\"card\" open=\"open\"><summary><span class=\"swatch {}\"></span>{}</summary>",
            subject_class(index),
            escape(subject.label)
        );
        two_columns("Run", &rows, html);
        let settings = run.store_settings.iter().map(|(key, value)| {
            // Another kind of store has other settings; what only one of them has differs in nothing.
            let differs = base.store_settings.get(key).is_some_and(|base| base != value);
            (key.clone(), plain(value), differs)
        });
        two_columns("Store", &settings.collect::<Vec<_>>(), html);
        html.push_str("</details>");
    }
    html.push_str("</div></section>");
}

/// Names, values, and whether to point them out.
fn two_columns(heading: &str, rows: &[(String, String, bool)], html: &mut String) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(html, "<h3>{heading}</h3><dl>");
    for (key, value, differs) in rows {
        let class = if *differs { " class=\"differs\"" } else { "" };
        let _ = write!(html, "<dt>{}</dt><dd{class}>{}</dd>", escape(key), escape(value));
    }
    html.push_str("</dl>");
}
