//! From a store's reports and records to an answer of bounded size.

use super::{
    Attempt, Compactions, DecisionFigures, DecisionsFigures, InputFigures, OutOfServiceFigures, StageFigures,
    StagesFigures, UnitFigures,
};
use situ::Store;
use situ::offload::{DecisionRecord, DecisionReport, Held, Load, Scheduler, TaskRecord, UnitReport};
use situ_compaction::{Priority, RunMode, Stage, Stages};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most bytes of an answer as JSON.
pub const ANSWER_BYTES_MAX: usize = 640 << 10;
/// Units in an answer. A store has a few.
const UNITS_MAX: usize = 32;
/// Bytes for attempts; units and the frame have the rest.
const ATTEMPTS_BYTES_MAX: usize = 256 << 10;
/// Of these, bytes for those that run.
const RUNNING_BYTES_MAX: usize = 96 << 10;
/// Characters of a reason.
const REASON_CHARS_MAX: usize = 300;
/// Characters of a name or a note.
const NAME_CHARS_MAX: usize = 64;
/// Addends of a decision.
const INPUTS_MAX: usize = 8;

/// Gathers the news since the attempt `since` of a store that was opened at `opened`.
pub fn gather(store: &Store, opened: SystemTime, since: u64) -> Compactions {
    let scheduler = Scheduler::of(store.compactor());
    let records = scheduler.map_or_else(Vec::new, |scheduler| scheduler.records(since));
    // After the records: none of them began later than now.
    let now = store.clock();
    let mut keyspaces = BTreeMap::new();
    let mut keyspace = |number: u32| {
        let named = || store.keyspace_name_of(number).unwrap_or_else(|| number.to_string());
        keyspaces.entry(number).or_insert_with(named).clone()
    };
    let told = records.iter().map(|record| attempt(record, keyspace(record.keyspace)));
    let told = bounded(told.collect(), since);
    Compactions {
        opened_unix_ms: unix_ms(opened),
        unix_ms: unix_ms(SystemTime::now()),
        now_us: micros(now),
        next: told.next,
        more: told.more,
        missed: told.missed,
        units: scheduler.map_or_else(Vec::new, |it| units(&it.reports(), &it.loads(), it.decisions())),
        attempts: told.attempts,
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) struct Told {
    pub(super) next: u64,
    pub(super) more: bool,
    pub(super) missed: u64,
    pub(super) attempts: Vec<Attempt>,
}

/// Selects as many attempts as fit: those that run first, then the oldest ones that have ended.
pub(super) fn bounded(attempts: Vec<Attempt>, since: u64) -> Told {
    let (ended, running): (Vec<Attempt>, Vec<Attempt>) =
        attempts.into_iter().partition(|attempt| attempt.sequence.is_some());
    let mut room = RUNNING_BYTES_MAX;
    let running: Vec<Attempt> = running.into_iter().take_while(|attempt| takes(attempt, &mut room)).collect();
    let mut room = ATTEMPTS_BYTES_MAX - (RUNNING_BYTES_MAX - room);
    let all = ended.len();
    let first = ended.first().and_then(|attempt| attempt.sequence);
    let mut attempts: Vec<Attempt> = ended.into_iter().take_while(|attempt| takes(attempt, &mut room)).collect();
    let next = attempts.last().and_then(|attempt| attempt.sequence).map_or(since, |last| last.saturating_add(1));
    let more = attempts.len() < all;
    attempts.extend(running);
    Told { next, more, missed: first.map_or(0, |first| first.saturating_sub(since)), attempts }
}

/// Takes the room of an attempt. Returns false if it does not fit.
fn takes(attempt: &Attempt, room: &mut usize) -> bool {
    // It has no part that cannot be written as JSON; one that had would not fit.
    let bytes = serde_json::to_string(attempt).map_or(usize::MAX, |json| json.len().saturating_add(1));
    let fits = bytes <= *room;
    *room = room.saturating_sub(bytes);
    fits
}

pub(super) fn attempt(record: &TaskRecord, keyspace: String) -> Attempt {
    let merge_threads = match record.ran.mode {
        RunMode::Linear => 1,
        RunMode::Pipelined { merge_threads } => merge_threads,
    };
    Attempt {
        sequence: record.sequence,
        attempt: record.attempt,
        job: record.job,
        task: record.task,
        keyspace: short(&keyspace, NAME_CHARS_MAX),
        level: record.level,
        output_level: record.output_level,
        priority: priority(record.priority),
        class: record.class.to_string(),
        unit: record.unit as u64,
        unit_name: short(&record.unit_name, NAME_CHARS_MAX),
        is_checked: record.is_checked,
        began_us: micros(record.began),
        ended_us: record.ended.map(micros),
        elapsed_us: micros(record.elapsed),
        mode: mode(record.ran.mode),
        merge_threads,
        stages: stages(&record.ran.stages),
        input_bytes: record.input_bytes,
        output_bytes: record.output_bytes,
        outcome: record.outcome.name().to_owned(),
        reason: record.outcome.reason().map(|reason| short(reason, REASON_CHARS_MAX)),
        decision: record.ran.decision.as_deref().map(decision),
    }
}

pub(super) fn units(
    reports: &[UnitReport],
    loads: &[Load],
    decisions: Vec<(String, DecisionReport)>,
) -> Vec<UnitFigures> {
    let mut decisions = decisions.into_iter().peekable();
    let figures = reports.iter().enumerate().map(|(at, report)| {
        // Both are in the order of units, and not all units decide.
        let decided = decisions.next_if(|(name, _)| *name == report.name).map(|(_, report)| report);
        unit(report, loads.get(at).copied().unwrap_or_default(), decided.as_ref())
    });
    figures.take(UNITS_MAX).collect()
}

fn unit(report: &UnitReport, load: Load, decided: Option<&DecisionReport>) -> UnitFigures {
    UnitFigures {
        name: short(&report.name, NAME_CHARS_MAX),
        attempts: report.attempts,
        succeeded: report.succeeded,
        refused_busy: report.refused_busy,
        refused: report.refused,
        illegal: report.illegal,
        failed: report.failed,
        late: report.late,
        suspicious: report.suspicious,
        checked: report.checked,
        mismatches: report.mismatches,
        out_of_service: report
            .out_of_service
            .as_ref()
            .map(|out| OutOfServiceFigures { since_us: micros(out.since), why: short(&out.why, REASON_CHARS_MAX) }),
        input_bytes: report.input_bytes,
        output_bytes: report.output_bytes,
        busy_us: micros(report.busy),
        stages: stages(&report.stages),
        tasks: load.tasks as u64,
        tasks_max: load.tasks_max as u64,
        last_trouble: report.last_trouble.as_deref().map(|trouble| short(trouble, REASON_CHARS_MAX)),
        decisions: decided.map(decisions),
    }
}

fn decisions(report: &DecisionReport) -> DecisionsFigures {
    DecisionsFigures {
        made: report.made,
        pipelined: report.pipelined,
        linear: report.linear,
        changed: report.changed,
        held_back: report.held_back,
        off_for_reads: report.off_for_reads,
        last: report.last.as_deref().map(decision),
    }
}

pub(super) fn decision(record: &DecisionRecord) -> DecisionFigures {
    let input = |term: &situ::offload::Term| InputFigures {
        name: short(&term.name, NAME_CHARS_MAX),
        weight: finite(term.weight),
        value: term.value.map(finite),
        note: short(&term.note, NAME_CHARS_MAX),
    };
    DecisionFigures {
        mode: mode(record.mode),
        why: short(&record.why, REASON_CHARS_MAX),
        f: finite(record.f),
        threshold: finite(record.threshold),
        held: record.held.map(|held| held_by(held).to_owned()),
        is_changed: record.is_changed,
        inputs: record.terms.iter().take(INPUTS_MAX).map(input).collect(),
    }
}

fn held_by(held: Held) -> &'static str {
    match held {
        Held::Hysteresis => "hysteresis",
        Held::Dwell => "dwell",
        Held::Reads => "reads",
    }
}

fn mode(mode: RunMode) -> String {
    if mode.is_pipelined() { "pipelined" } else { "linear" }.to_owned()
}

fn priority(priority: Priority) -> String {
    let score = f64::from(priority.score_milli) / 1000.0;
    if priority.is_level0 { "level 0 goes first".to_owned() } else { format!("score {score:.2}") }
}

fn stages(stages: &Stages) -> StagesFigures {
    StagesFigures { read: stage(&stages.read), merge: stage(&stages.merge), write: stage(&stages.write) }
}

fn stage(stage: &Stage) -> StageFigures {
    StageFigures {
        busy_us: micros(stage.busy),
        starved_us: micros(stage.starved),
        blocked_us: micros(stage.blocked),
        bytes: stage.bytes,
    }
}

/// JSON has no infinity, and what a unit elsewhere says may be one.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::MAX.copysign(value) }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns at most `chars_max` characters of `text`, without control characters.
fn short(text: &str, chars_max: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = plain.take(chars_max).collect();
    if text.chars().nth(chars_max).is_some() {
        short.pop();
        short.push('…');
    }
    short
}
