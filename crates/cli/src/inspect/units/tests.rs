use super::*;

/// What a server says in a test of its own.
fn told() -> Compactions {
    serde_json::from_str(include_str!("../../../../server/testdata/compactions.json")).unwrap()
}

fn attempt(unit: u64, began_ms: u64, ended_ms: Option<u64>, outcome: &str, busy_ms: [u64; 3]) -> Attempt {
    let mut attempt = told().attempts[0].clone();
    (attempt.unit, attempt.unit_name) = (unit, ["cpu", "node a"][unit as usize].to_owned());
    (attempt.began_us, attempt.ended_us) = (began_ms * 1000, ended_ms.map(|ms| ms * 1000));
    (attempt.outcome, attempt.reason) = (outcome.to_owned(), None);
    attempt.sequence = ended_ms;
    attempt.stages = Default::default();
    attempt.stages.read.busy_us = busy_ms[0] * 1000;
    attempt.stages.merge.busy_us = busy_ms[1] * 1000;
    attempt.stages.write.busy_us = busy_ms[2] * 1000;
    attempt
}

fn drawn(compactions: &Compactions, all: bool) -> Vec<String> {
    let mut lines = Vec::new();
    draw(compactions, 60, all, &mut |line| {
        lines.push(line);
        Ok(())
    })
    .unwrap();
    lines
}

#[test]
fn each_attempt_is_a_bar_of_its_stages_in_the_row_that_is_free() {
    let attempts = [
        attempt(0, 0, Some(980), "done", [1, 2, 1]),
        attempt(0, 490, Some(1470), "late", [0, 0, 0]),
        attempt(0, 1960, None, "running", [0, 0, 0]),
    ];
    let window = Window { begin: 0, end: 4_900_000 };
    let rows = window.rows(&attempts.iter().collect::<Vec<_>>());
    // 50 ms a column.
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(
        rows[0].trim_end(),
        format!("{}{}{}{}{}", "░".repeat(5), "█".repeat(9), "▒".repeat(5), " ".repeat(20), "▸".repeat(59))
    );
    assert_eq!(rows[1].trim(), format!("{}!", "─".repeat(19)));
    assert!(rows.iter().all(|row| row.chars().count() == COLUMNS - MARGIN));
}

#[test]
fn a_unit_with_many_attempts_at_once_has_a_bounded_number_of_rows() {
    let attempts: Vec<Attempt> = (0..20).map(|at| attempt(1, at, None, "running", [0; 3])).collect();
    let rows = Window { begin: 0, end: 1_000_000 }.rows(&attempts.iter().collect::<Vec<_>>());
    assert_eq!(rows.len(), ROWS_MAX + 1);
    assert_eq!(rows[ROWS_MAX], "… 12 attempts more at the same time");
}

#[test]
fn the_picture_says_what_units_did_and_why() {
    let lines = drawn(&told(), false);
    let text = lines.join("\n");
    for part in [
        "3 of 7 attempts done",
        "4 failed, 1 with other bytes than the processor",
        "│  out of service for 2 s: connection lost",
        "│  1 decision: 1 pipelined, 0 linear, 0 changed, 0 held back",
        "processors 0.800 x 0.5, memory missing x 0.25",
        "failed: says \"no\"",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn the_last_attempts_are_listed_and_all_if_asked_for() {
    let mut told = told();
    told.attempts = (0..30).map(|at| attempt(1, 1500 + at, Some(1600 + at), "done", [1; 3])).collect();
    let listed = |lines: &[String]| lines.iter().filter(|line| line.ends_with(" done")).count();
    let lines = drawn(&told, false);
    assert_eq!(listed(&lines), ATTEMPTS_SHOWN);
    assert!(lines.contains(&"… 18 attempts before; --all shows them".to_owned()), "{lines:?}");
    assert_eq!(listed(&drawn(&told, true)), 30);
    told.attempts.clear();
    assert_eq!(drawn(&told, true).last().unwrap(), "No compaction has begun since the store was opened.");
}

/// A unit elsewhere chooses its name and its errors.
#[test]
fn no_control_character_of_a_unit_reaches_the_terminal() {
    let mut told = told();
    for unit in &mut told.units {
        unit.name = "\u{1b}[2Jnode".to_owned();
        unit.last_trouble = Some("a\r\nb\u{9b}".to_owned());
        unit.out_of_service = None;
    }
    for attempt in &mut told.attempts {
        (attempt.unit_name, attempt.outcome) = ("\u{7}".to_owned(), "\u{1b}".to_owned());
        attempt.began_us = u64::MAX;
    }
    let lines = drawn(&told, true);
    assert!(lines.iter().all(|line| !line.chars().any(char::is_control)), "{lines:?}");
}

#[test]
fn times_of_any_size_are_drawn() {
    let mut told = told();
    for attempt in &mut told.attempts {
        (attempt.began_us, attempt.ended_us) = (u64::MAX, Some(0));
        attempt.stages.read.busy_us = u64::MAX;
        attempt.stages.merge.blocked_us = u64::MAX;
    }
    for unit in &mut told.units {
        (unit.busy_us, unit.tasks, unit.stages) = (u64::MAX, u64::MAX, told.attempts[0].stages);
    }
    told.now_us = 0;
    assert!(drawn(&told, true).len() > 5);
    told.now_us = u64::MAX;
    assert!(drawn(&told, true).len() > 5);
}
