use super::gather::{attempt, bounded, decision, units};
use super::*;
use situ::offload::{
    DecisionRecord, DecisionReport, Held, Load, OutOfService, Ran, TaskClass, TaskOutcome, TaskRecord, Term, UnitReport,
};
use situ_compaction::{Priority, RunMode, Stage, Stages};
use std::sync::Arc;
use std::time::Duration;

fn stage(busy: u64, starved: u64, blocked: u64) -> Stage {
    let ms = Duration::from_millis;
    Stage { busy: ms(busy), starved: ms(starved), blocked: ms(blocked), bytes: busy * 1000 }
}

fn decided(text: &str) -> Arc<DecisionRecord> {
    let term = |name: &str, weight, value| Term { name: name.to_owned(), weight, value, note: text.to_owned() };
    Arc::new(DecisionRecord {
        number: 9,
        at: Duration::from_secs(3),
        task: 4,
        terms: vec![term("processors", 0.5, Some(0.8)), term("memory", 0.25, None), term("disk", f64::INFINITY, None)],
        f: 0.4,
        threshold: 0.7,
        hysteresis: 0.1,
        dwell_min: Duration::from_secs(5),
        reads: None,
        mode: RunMode::Pipelined { merge_threads: 2 },
        is_changed: false,
        held: Some(Held::Dwell),
        why: format!("f 0.400 is below 0.700 {text}"),
    })
}

fn record(sequence: Option<u64>, outcome: TaskOutcome, text: &str) -> TaskRecord {
    TaskRecord {
        sequence,
        job: 3,
        task: 4,
        keyspace: 1,
        level: 0,
        output_level: 1,
        priority: Priority::new(2, 1.5),
        class: TaskClass::default(),
        unit: 1,
        unit_name: Arc::from(format!("node {text}")),
        attempt: 5,
        is_checked: true,
        began: Duration::from_millis(1500),
        ended: sequence.map(|_| Duration::from_millis(2000)),
        elapsed: Duration::from_millis(480),
        ran: Ran {
            mode: RunMode::Pipelined { merge_threads: 2 },
            stages: Stages { read: stage(100, 0, 380), merge: stage(400, 80, 0), write: stage(200, 280, 0) },
            decision: Some(decided(text)),
        },
        input_bytes: 1000,
        output_bytes: 900,
        outcome,
    }
}

fn report(text: &str) -> UnitReport {
    UnitReport {
        name: format!("node {text}"),
        attempts: 7,
        succeeded: 3,
        failed: 4,
        mismatches: 1,
        out_of_service: Some(OutOfService { since: Duration::from_secs(1), why: format!("connection lost {text}") }),
        busy: Duration::from_millis(480),
        last_trouble: Some(format!("connection lost {text}")),
        ..UnitReport::default()
    }
}

fn answer(text: &str, ended: u64) -> Compactions {
    let made = DecisionReport { made: 1, pipelined: 1, last: Some(decided(text)), ..DecisionReport::default() };
    let mut records: Vec<TaskRecord> =
        (0..ended).map(|sequence| record(Some(sequence), TaskOutcome::Failed(text.into()), text)).collect();
    records.push(record(None, TaskOutcome::Running, text));
    let told = bounded(records.iter().map(|record| attempt(record, text.to_owned())).collect(), 0);
    let load = Load { tasks: 1, tasks_max: 2, ..Load::default() };
    Compactions {
        opened_unix_ms: 1_700_000_000_000,
        unix_ms: 1_700_000_003_000,
        now_us: 3_000_000,
        next: told.next,
        more: told.more,
        missed: told.missed,
        units: units(&[UnitReport::default(), report(text)], &[load, load], vec![(report(text).name, made)]),
        attempts: told.attempts,
    }
}

/// Scripts read it: names and units of measure are a promise. `SITU_GOLDEN=1` writes the file anew.
#[test]
fn the_answer_has_the_shape_that_the_file_shows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/compactions.json");
    let told = serde_json::to_string_pretty(&answer("says \"no\"", 1)).unwrap() + "\n";
    if std::env::var_os("SITU_GOLDEN").is_some() {
        std::fs::write(path, &told).unwrap();
    }
    assert_eq!(told, std::fs::read_to_string(path).unwrap());
    let read: Compactions = serde_json::from_str(&told).unwrap();
    assert_eq!(read, answer("says \"no\"", 1), "what was written can be read");
}

#[test]
fn an_answer_is_bounded_whatever_units_say() {
    // Four bytes in UTF-8, and one that JSON would write with six.
    let text = "\u{1f4be}\u{1}".repeat(400);
    let mut told = answer(&text, 1000);
    assert!(told.more && told.attempts.len() > 10, "{} attempts", told.attempts.len());
    let unit = told.units[1].clone();
    let made = DecisionReport { last: Some(decided(&text)), ..DecisionReport::default() };
    let many: Vec<UnitReport> = (0..1000).map(|_| report(&text)).collect();
    told.units = units(&many, &[], many.iter().map(|unit| (unit.name.clone(), made.clone())).collect());
    assert_eq!(told.units[31].decisions.as_ref().unwrap().last, unit.decisions.unwrap().last);
    let json = serde_json::to_string(&told).unwrap();
    assert!(json.len() <= ANSWER_BYTES_MAX, "{}", json.len());
    assert!(json.len() > ANSWER_BYTES_MAX / 4, "{}: the test has become too easy", json.len());
    assert!(!json.contains("\\u0001"), "control characters are spaces");
}

#[test]
fn questions_go_on_where_the_answer_ended() {
    let attempts = |from: u64, to: u64| -> Vec<Attempt> {
        let ended = (from..to).map(|sequence| record(Some(sequence), TaskOutcome::Done, ""));
        ended.chain([record(None, TaskOutcome::Running, "")]).map(|record| attempt(&record, String::new())).collect()
    };
    let (mut since, mut seen) = (0, Vec::new());
    loop {
        let told = bounded(attempts(since, 2000), since);
        assert_eq!(told.missed, 0);
        assert_eq!(told.attempts.last().unwrap().sequence, None, "what runs is always told");
        seen.extend(told.attempts.iter().filter_map(|attempt| attempt.sequence));
        since = told.next;
        if !told.more {
            break;
        }
    }
    assert_eq!(seen, (0..2000).collect::<Vec<_>>());
    let told = bounded(attempts(700, 710), 200);
    assert_eq!((told.missed, told.next, told.more), (500, 710, false));
    let told = bounded(attempts(710, 710), 710);
    assert_eq!((told.missed, told.next, told.attempts.len()), (0, 710, 1));
    let told = bounded(Vec::new(), u64::MAX);
    assert_eq!((told.missed, told.next, told.more), (0, u64::MAX, false));
}

#[test]
fn a_decision_without_numbers_is_json_all_the_same() {
    let told = decision(&DecisionRecord { f: f64::NAN, ..(*decided("")).clone() });
    let json = serde_json::to_string(&told).unwrap();
    assert!(!json.contains("\"f\":null"), "{json}");
    assert_eq!(serde_json::from_str::<DecisionFigures>(&json).unwrap(), told);
}
