//! The work of the compaction units of a store that is being served: the server's figures, drawn as a timeline of text.
//!
//! ```text
//! cpu   40 of 41 attempts done, 1.20 GiB in, 1.10 GiB out, busy 12.5 s, 1 of 2 places taken
//!   ░░░████████████▒▒▒      ░░████████▒!     ▸▸▸▸▸▸    read, merge and write by their shares; ! came to nothing; ▸ runs
//!     ░░░██████▒▒▒▒▒▒▒                                 a second row: at the same time
//! ```
//!
//! 1. The figures come from `/compactions.json`, in several answers if there are many.
//! 2. Each unit has as many rows as it had attempts at the same time, up to a limit.
//! 3. Below it, the last attempts in words, with the decision on each.
//!
//! **Failure**: a server that is silent, or says something else, ends the command with its address. An answer is read
//! up to a limit.

use super::COLUMNS;
use crate::DONE;
use crate::failure::{Failure, Outcome};
use crate::http;
use crate::output::Output;
use crate::text;
use situ_server::compactions::{ANSWER_BYTES_MAX, Attempt, Compactions, DecisionFigures, StageFigures, UnitFigures};
use std::net::SocketAddr;

/// The maximum number of answers: the server keeps fewer attempts than fit into them.
const ANSWERS_MAX: usize = 200;
/// Attempts in words unless all are asked for.
const ATTEMPTS_SHOWN: usize = 12;
/// Rows of a unit's timeline.
const ROWS_MAX: usize = 8;
/// Columns before the timeline.
const MARGIN: usize = 2;

pub(super) fn show(address: SocketAddr, seconds: u64, all: bool, out: &mut Output) -> Outcome {
    let compactions = ask_all(address)?;
    if out.is_json() {
        out.object(&compactions)?;
    } else {
        let room = out.room(2 * COLUMNS);
        draw(&compactions, seconds, all, &mut |line| out.line(text::clip(&line, room)))?;
    }
    DONE
}

/// Asks until there is no more, and puts the answers together.
fn ask_all(address: SocketAddr) -> Result<Compactions, Failure> {
    let mut whole = ask(address, 0)?;
    for _ in 0..ANSWERS_MAX {
        if !whole.more {
            break;
        }
        let next = ask(address, whole.next)?;
        let mut attempts = std::mem::take(&mut whole.attempts);
        attempts.retain(|attempt| attempt.sequence.is_some());
        attempts.extend(next.attempts);
        whole = Compactions { attempts, missed: whole.missed.saturating_add(next.missed), ..next };
    }
    Ok(whole)
}

fn ask(address: SocketAddr, since: u64) -> Result<Compactions, Failure> {
    let target = format!("/compactions.json?since={since}");
    http::ask(address, &target, 2 * ANSWER_BYTES_MAX as u64).map_err(|why| {
        Failure::new(format!("cannot ask the server at {address} for its compactions"), why)
            .cure("--http takes the address that `situ serve` calls metrics, as in 127.0.0.1:11212")
    })
}

type Line<'a> = &'a mut dyn FnMut(String) -> Result<(), Failure>;

fn draw(compactions: &Compactions, seconds: u64, all: bool, line: Line<'_>) -> Result<(), Failure> {
    let window = Window::of(compactions, seconds);
    line(format!(
        "Compactions of {} before {}; ░ read, █ merge, ▒ write, · waits, ▸ runs, ! came to nothing",
        time(window.end - window.begin),
        text::utc(compactions.unix_ms / 1000)
    ))?;
    for (at, unit) in compactions.units.iter().enumerate() {
        line(String::new())?;
        draw_unit(unit, compactions.now_us, line)?;
        let attempts: Vec<&Attempt> = compactions.attempts.iter().filter(|attempt| attempt.unit == at as u64).collect();
        for row in window.rows(&attempts) {
            line(format!("{:MARGIN$}{row}", ""))?;
        }
    }
    draw_attempts(compactions, &window, all, line)
}

fn draw_unit(unit: &UnitFigures, now_us: u64, line: Line<'_>) -> Result<(), Failure> {
    line(format!(
        "{}   {} of {} done, {} in, {} out, busy {}, {} of {} places taken",
        text::on_one_line(&unit.name),
        text::count(unit.succeeded),
        text::plural(unit.attempts, "attempt"),
        text::bytes(unit.input_bytes),
        text::bytes(unit.output_bytes),
        time(unit.busy_us),
        unit.tasks,
        unit.tasks_max
    ))?;
    let troubles = troubles(unit);
    if !troubles.is_empty() {
        line(format!("│  {}", troubles.join(", ")))?;
    }
    if let Some(out) = &unit.out_of_service {
        let ago = text::age(now_us.saturating_sub(out.since_us) / 1_000_000);
        line(text::on_one_line(&format!("│  out of service for {ago}: {}", out.why)))?;
    } else if let Some(trouble) = &unit.last_trouble {
        line(text::on_one_line(&format!("│  last trouble: {trouble}")))?;
    }
    let total: u128 = unit.stages.named().iter().map(|(_, stage)| u128::from(stage.busy_us)).sum();
    if total > 0 {
        let share = |(name, stage): (&str, StageFigures)| {
            let (percent, waits) = (100 * u128::from(stage.busy_us) / total, waits(&stage));
            format!("{name} {percent}% (worked {}, waited {})", time(stage.busy_us), time(waits))
        };
        line(format!("│  {}", unit.stages.named().map(share).join(", ")))?;
    }
    draw_decisions(unit, line)
}

fn troubles(unit: &UnitFigures) -> Vec<String> {
    let counts = [
        (unit.failed, "failed"),
        (unit.late, "late"),
        (unit.suspicious, "suspicious"),
        (unit.mismatches, "with other bytes than the processor"),
        (unit.refused, "refused"),
        (unit.refused_busy, "refused while full"),
        (unit.illegal, "beyond what it can do"),
        (unit.checked, "compared"),
    ];
    counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{} {name}", text::count(*count)))
        .collect()
}

fn draw_decisions(unit: &UnitFigures, line: Line<'_>) -> Result<(), Failure> {
    let Some(decisions) = &unit.decisions else { return Ok(()) };
    line(format!(
        "│  {}: {} pipelined, {} linear, {} changed, {} held back",
        text::plural(decisions.made, "decision"),
        text::count(decisions.pipelined),
        text::count(decisions.linear),
        text::count(decisions.changed),
        text::count(decisions.held_back)
    ))?;
    decisions.last.as_ref().map_or(Ok(()), |last| line(text::on_one_line(&format!("│  last: {}", decision(last)))))
}

/// Formats a decision with its inputs.
fn decision(decision: &DecisionFigures) -> String {
    let inputs: Vec<String> = decision
        .inputs
        .iter()
        .map(|input| match input.value {
            Some(value) => format!("{} {value:.3} x {}", input.name, input.weight),
            None => format!("{} missing x {}", input.name, input.weight),
        })
        .collect();
    format!("{}, {} [{}]", decision.mode, decision.why, inputs.join(", "))
}

/// Words for the last attempts, oldest first.
fn draw_attempts(compactions: &Compactions, window: &Window, all: bool, line: Line<'_>) -> Result<(), Failure> {
    let mut shown: Vec<&Attempt> =
        compactions.attempts.iter().filter(|attempt| window.until(attempt) >= window.begin).collect();
    shown.sort_by_key(|attempt| attempt.began_us);
    let first = if all { 0 } else { shown.len().saturating_sub(ATTEMPTS_SHOWN) };
    let names = shown.iter().map(|attempt| attempt.unit_name.chars().count()).max().unwrap_or(0).max(4);
    line(String::new())?;
    if compactions.attempts.is_empty() {
        return line("No compaction has begun since the store was opened.".to_owned());
    }
    line(format!(
        "{:<12} {:<names$} {:<8} {:>10} {:>9}  {:<9} {:<24} outcome",
        "ago", "unit", "levels", "in", "took", "mode", "read, merge, write"
    ))?;
    if first > 0 {
        line(format!("… {} before; --all shows them", text::plural(first as u64, "attempt")))?;
    }
    shown[first..].iter().try_for_each(|attempt| line(attempt_line(attempt, window, names)))
}

fn attempt_line(attempt: &Attempt, window: &Window, names: usize) -> String {
    let outcome = match &attempt.reason {
        Some(reason) => format!("{}: {reason}", attempt.outcome),
        None => attempt.outcome.clone(),
    };
    let stages = attempt.stages.named().map(|(_, stage)| time(stage.busy_us)).join(", ");
    let is_running = attempt.ended_us.is_none();
    text::on_one_line(&format!(
        "{:<12} {:<names$} {:<8} {:>10} {:>9}  {:<9} {:<24} {outcome}",
        time(window.end.saturating_sub(attempt.began_us)),
        attempt.unit_name,
        format!("{} to {}", attempt.level, attempt.output_level),
        text::bytes(attempt.input_bytes),
        time(window.until(attempt).saturating_sub(attempt.began_us)),
        if is_running { "" } else { attempt.mode.as_str() },
        if is_running { String::new() } else { stages },
    ))
}

/// The time that the columns show, in microseconds of the store's clock.
struct Window {
    begin: u64,
    end: u64,
}

impl Window {
    /// Creates the window of the last `seconds`, or less if the first attempt began later.
    fn of(compactions: &Compactions, seconds: u64) -> Window {
        let end = compactions.now_us;
        let first = compactions.attempts.iter().map(|attempt| attempt.began_us).min().unwrap_or(end);
        let begin = end.saturating_sub(seconds.saturating_mul(1_000_000)).max(first).min(end.saturating_sub(1000));
        Window { begin, end }
    }

    fn until(&self, attempt: &Attempt) -> u64 {
        attempt.ended_us.unwrap_or(self.end).max(attempt.began_us)
    }

    fn column(&self, time: u64) -> usize {
        let columns = (COLUMNS - MARGIN) as u128;
        let at = u128::from(time.clamp(self.begin, self.end) - self.begin) * columns;
        usize::try_from(at / u128::from((self.end - self.begin).max(1))).unwrap_or(0).min(COLUMNS - MARGIN)
    }

    /// Draws the attempts, each in the first row that is free at its beginning.
    fn rows(&self, attempts: &[&Attempt]) -> Vec<String> {
        let mut attempts: Vec<&Attempt> =
            attempts.iter().copied().filter(|attempt| self.until(attempt) >= self.begin).collect();
        attempts.sort_by_key(|attempt| attempt.began_us);
        let mut rows: Vec<(u64, Vec<char>)> = Vec::new();
        let mut left_out = 0;
        for attempt in attempts {
            let free = rows.iter().position(|(ends, _)| *ends <= attempt.began_us);
            let at = free.unwrap_or_else(|| {
                rows.push((0, vec![' '; COLUMNS - MARGIN]));
                rows.len() - 1
            });
            if at >= ROWS_MAX {
                rows.truncate(ROWS_MAX);
                left_out += 1;
                continue;
            }
            rows[at].0 = self.until(attempt);
            self.draw(attempt, &mut rows[at].1);
        }
        let mut rows: Vec<String> = rows.into_iter().map(|(_, row)| row.into_iter().collect()).collect();
        if left_out > 0 {
            rows.push(format!("… {} more at the same time", text::plural(left_out, "attempt")));
        }
        rows
    }

    /// Puts the bar of an attempt into its row.
    fn draw(&self, attempt: &Attempt, row: &mut [char]) {
        let first = self.column(attempt.began_us).min(row.len() - 1);
        let last = self.column(self.until(attempt)).clamp(first + 1, row.len());
        let bar = bar(attempt, last - first);
        row[first..last].copy_from_slice(&bar);
    }
}

/// Returns the time that a stage waited for its neighbours.
fn waits(stage: &StageFigures) -> u64 {
    stage.starved_us.saturating_add(stage.blocked_us)
}

/// Draws the stages of an attempt as `columns` characters, by their shares.
fn bar(attempt: &Attempt, columns: usize) -> Vec<char> {
    let stages = attempt.stages;
    let waits = stages.named().iter().map(|(_, stage)| waits(stage)).fold(0, u64::saturating_add);
    let shares = [('░', stages.read.busy_us), ('█', stages.merge.busy_us), ('▒', stages.write.busy_us), ('·', waits)];
    let total = shares.iter().map(|(_, time)| u128::from(*time)).sum::<u128>();
    let mut bar = Vec::with_capacity(columns);
    let mut sum = 0;
    for (shown, time) in shares {
        sum += u128::from(time);
        let until = (sum * columns as u128 + total / 2).checked_div(total).unwrap_or(0);
        bar.resize(usize::try_from(until).unwrap_or(columns).max(bar.len()), shown);
    }
    bar.resize(columns, if attempt.ended_us.is_none() { '▸' } else { '─' });
    let came_to_nothing = !matches!(attempt.outcome.as_str(), "done" | "running");
    if let Some(last) = bar.last_mut().filter(|_| came_to_nothing) {
        *last = '!';
    }
    bar
}

/// `340 ms`.
fn time(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{} ms", us / 1000),
        1_000_000..60_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => text::age(us / 1_000_000),
    }
}

#[cfg(test)]
mod tests;
