//! One log file: its pages, in runs of the same state.

use super::LOOKS_MAX;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::text;
use serde::Serialize;
use situ_log::PageState;
use situ_storage::{Error, FileName, PAGE_BYTES, Volume};
use std::path::Path;

/// Columns of the map of pages.
const MAP: usize = 80;

/// Pages next to each other that are in the same state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Run {
    state: &'static str,
    first: u32,
    last: u32,
    /// Payload bytes in use.
    used_bytes: u64,
    /// The fault of damaged pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Report {
    file: String,
    pages: u64,
    used_bytes: u64,
    /// True if the log was closed cleanly at the end of this file.
    closed: bool,
    /// Pages known to be durable, as the last sound page says.
    durable_pages: u32,
    pub(super) damaged: bool,
    runs: Vec<Run>,
}

impl Run {
    fn is_damage(&self) -> bool {
        matches!(self.state, "unreadable" | "rotten")
    }
}

impl Report {
    fn damages(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.is_damage())
    }

    /// In a few words.
    pub(super) fn describe(&self) -> String {
        let bad = self.runs.iter().filter_map(|run| Some(format!("page {}: {}", run.first, run.why.as_ref()?))).next();
        let used = format!("{} of records", text::bytes(self.used_bytes));
        bad.map_or(used.clone(), |bad| format!("{used}; {bad}"))
    }
}

pub(super) fn show(volume: &dyn Volume, directory: &Path, number: u64, out: &mut Output) -> Outcome {
    let report = look(volume, number).map_err(|error| match error {
        Error::NotFound { .. } => Failure::new(format!("cannot show log {number}"), "there is no such log file")
            .cure("`situ inspect --json` lists the log files there are"),
        error => Failure::store(format!("cannot show log {number}"), directory, &error.into()),
    })?;
    let Some(report) = report else {
        let changed = situ::Error::Changed { location: directory.display().to_string() };
        return Err(Failure::store(format!("cannot show log {number}"), directory, &changed));
    };
    if out.is_json() {
        out.object(&report)?;
    } else {
        draw(&report, out)?;
    }
    Ok(if report.damaged { Exit::Damage } else { Exit::Done })
}

/// Looks until two looks in a row find the same damage, or one finds none: a page that is being written may look like
/// anything. `None` if it changes all the time.
///
/// # Errors
/// As [`gather`].
fn look(volume: &dyn Volume, number: u64) -> Result<Option<Report>, Error> {
    let mut before: Option<Report> = None;
    for _ in 0..LOOKS_MAX {
        let report = gather(volume, number)?;
        if !report.damaged || before.is_some_and(|before| before.damages().eq(report.damages())) {
            return Ok(Some(report));
        }
        before = Some(report);
    }
    Ok(None)
}

/// Looks at every page.
///
/// # Errors
/// The file cannot be opened, or goes meanwhile.
pub(super) fn gather(volume: &dyn Volume, number: u64) -> Result<Report, Error> {
    let mut report = Report {
        file: FileName::Log(number).to_string(),
        pages: 0,
        used_bytes: 0,
        closed: false,
        durable_pages: 0,
        damaged: false,
        runs: Vec::new(),
    };
    for page in situ_log::inspect(volume, number)? {
        let at = u32::try_from(report.pages).unwrap_or(u32::MAX);
        let (run, at) = match page {
            Err(error @ (Error::NotFound { .. } | Error::OutOfMemory { .. })) => return Err(error),
            // The piece that could not be read ends where the next page is found.
            Err(error) => {
                (Run { state: "unreadable", first: at, last: at, used_bytes: 0, why: Some(error.to_string()) }, at)
            }
            Ok(page) => {
                if let Some(header) = page.state.header() {
                    report.closed = header.closed();
                    report.durable_pages = report.durable_pages.max(header.durable_pages);
                    report.used_bytes += u64::from(header.used);
                }
                (run_of(page.number, &page.state), page.number)
            }
        };
        report.damaged |= run.is_damage();
        report.pages = u64::from(at) + 1;
        match report.runs.last_mut() {
            Some(last) if last.state == run.state && last.why == run.why => {
                last.last = run.last;
                last.used_bytes += run.used_bytes;
            }
            _ => report.runs.push(run),
        }
    }
    Ok(report)
}

fn run_of(number: u32, state: &PageState) -> Run {
    let (name, damage) = match state {
        PageState::NotWritten => ("unwritten", None),
        PageState::Good(_) => ("good", None),
        PageState::Torn(_) => ("torn", None),
        PageState::Rotten(_, damage) => ("rotten", Some(damage)),
        PageState::Damaged(damage) => ("damaged", Some(damage)),
    };
    let why = damage.map(|damage| format!("{}: expected {}, found {}", damage.what, damage.expected, damage.found));
    let used_bytes = state.header().map_or(0, |header| u64::from(header.used));
    Run { state: name, first: number, last: number, used_bytes, why }
}

fn draw(report: &Report, out: &mut Output) -> Result<(), Failure> {
    out.line(format!("Log {}", report.file))?;
    let rows = [
        (
            "size",
            format!(
                "{}, {} of 4 KiB",
                text::bytes(report.pages * PAGE_BYTES as u64),
                text::plural(report.pages, "page")
            ),
        ),
        ("used", text::bytes(report.used_bytes)),
        ("durable", format!("{} at least", text::plural(u64::from(report.durable_pages), "page"))),
        ("closed", if report.closed { "cleanly" } else { "no: in use, followed by another, or cut off" }.to_owned()),
    ];
    for (name, value) in rows {
        out.line(format!("  {name:<10} {value}"))?;
    }
    out.line("")?;
    out.line(format!("  {}", map(report)))?;
    out.line("  █ good  ▒ torn  ✗ damaged  · unwritten")?;
    out.line("")?;
    for run in &report.runs {
        let pages = match run.first == run.last {
            true => format!("page {}", run.first),
            false => format!("pages {} to {}", run.first, run.last),
        };
        let why = run.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        out.line(format!("  {pages:<24} {}{why}", run.state))?;
    }
    Ok(())
}

/// Returns the file in one line; the worst state of a column's pages is shown.
fn map(report: &Report) -> String {
    let columns = MAP.min(usize::try_from(report.pages).unwrap_or(MAP)).max(1);
    let mut worst = vec![0; columns];
    for run in &report.runs {
        let rank = match run.state {
            "unwritten" => 0,
            "good" => 1,
            "torn" => 2,
            _ => 3,
        };
        let column = |page: u32| (u64::from(page) * columns as u64 / report.pages.max(1)) as usize;
        for seen in &mut worst[column(run.first)..=column(run.last).min(columns - 1)] {
            *seen = rank.max(*seen);
        }
    }
    worst.into_iter().map(|rank| ['·', '█', '▒', '✗'][rank]).collect()
}
