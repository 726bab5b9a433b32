use super::*;
use crate::CallError;
use crate::fields::Bytes;
use proptest::prelude::*;
use situ_compaction::{RunMode, Stage, Stages, TaskError};
use situ_offload::{DecisionRules, ModeRule, Ran, Resources};
use situ_storage::Error;

fn survives<M: Message + PartialEq + std::fmt::Debug>(message: &M) {
    let bytes = message.encode();
    assert_eq!(&M::decode(&bytes).unwrap(), message);
    for cut in 0..bytes.len() {
        if let Ok(shorter) = M::decode(&bytes[..cut]) {
            // Only what ends in bytes without a length can be cut.
            assert!(M::fields().last().is_some_and(|(_, kind)| kind == "rest"), "{message:?}");
            assert_ne!(&shorter, message);
        }
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_ne!(M::decode(&longer).ok().as_ref(), Some(message));
}

#[test]
fn messages_survive_their_bytes_and_are_not_cut_short() {
    survives(&Done {});
    survives(&List { volume: 3, after: Some(FileName::Table(12)) });
    survives(&Listing { files: vec![(FileName::Current, 16), (FileName::Log(3), 4096)], more: true });
    survives(&Append { token: 4, handle: 5, offset: 6, data: Rest(vec![1, 2, 3]) });
    survives(&Read { handle: 9, ranges: vec![(0, 4096), (1 << 40, 7)] });
    survives(&Failure { error: Some(Bytes(CallError::from(Error::NotInMemory).encode())) });
    survives(&LogRoom { total_and_used: Some((8, 7)), physical_used: None });
    let decided = ModeRule::Decided(DecisionRules {
        further_weights: vec![("queue".to_owned(), 0.5)],
        read_p99_factor_max: Some(1.5),
        ..DecisionRules::copro_plus(16 << 10)
    });
    let fixed = ModeRule::Fixed(RunMode::Pipelined { merge_threads: 3 });
    for mode in [decided, fixed, ModeRule::default()] {
        survives(&RunTask { attempt: 1, token: 2, mode, task: Bytes(b"task".to_vec()) });
    }
    let stage = |n: u64| Stage {
        busy: Duration::from_nanos(n),
        starved: Duration::from_nanos(n + 1),
        blocked: Duration::from_nanos(n + 2),
        bytes: n + 3,
    };
    let stages = Stages { read: stage(1), merge: stage(5), write: stage(9) };
    let ran = Ran { mode: RunMode::PIPELINED, stages, decision: None };
    let cancelled = TaskOutcome::failed(&TaskError::Cancelled);
    for outcome in [TaskOutcome::Output(vec![1]), cancelled, TaskOutcome::Panicked("a filter".to_owned())] {
        survives(&TaskDone {
            outcome,
            elapsed: Duration::from_millis(7),
            ran: ran.clone(),
            decision: Bytes::default(),
        });
    }
    let resources = Resources { processors_free_milli: 1, memory_free_bytes: 2, bandwidth_free_bytes_per_s: 3 };
    survives(&LoadAnswer {
        tasks: 1,
        tasks_max: 2,
        input_bytes: 3,
        bytes_per_s: 4,
        resources: Some(resources),
        filters: vec!["even-only".to_owned()],
        encoder: "situ".to_owned(),
    });
    let places = [
        (0, VolumePlace::Here),
        (1, VolumePlace::SharedDirectory("/srv/store".to_owned())),
        (2, VolumePlace::OtherNode("node://b:7070/store".to_owned())),
        (3, VolumePlace::Host),
    ];
    survives(&TellMeasures { message: Bytes(vec![1, 2, 3]) });
    survives(&PlaceVolumes { volumes: places.to_vec() });
    survives(&Tasks { tasks: vec![(1, TaskState::Waiting), (2, TaskState::Running), (3, TaskState::Ended)] });
}

/// Rules had a second encoding here, without bounds: a host could have a node begin as many threads as it liked.
#[test]
fn a_rule_that_no_node_can_follow_is_refused() {
    let rules = || DecisionRules::copro_plus(16 << 10);
    let many = (0..65).map(|number| (format!("measure {number}"), 1.0)).collect();
    let refused = [
        ModeRule::Fixed(RunMode::Pipelined { merge_threads: 257 }),
        ModeRule::Decided(DecisionRules { merge_threads: 257, ..rules() }),
        ModeRule::Decided(DecisionRules { threshold: f64::NAN, ..rules() }),
        ModeRule::Decided(DecisionRules { further_weights: many, ..rules() }),
    ];
    for mode in refused {
        let request = RunTask { attempt: 1, token: 2, mode, task: Bytes(b"task".to_vec()) };
        assert!(RunTask::decode(&request.encode()).unwrap_err().is_corruption(), "{request:?}");
    }
}

#[test]
fn a_tasks_failure_arrives_as_what_it_was() {
    let rot = Error::corruption("000007.table", 4096, "data block", "one", "another");
    let failed = TaskOutcome::failed(&TaskError::Storage(rot));
    let error = failed.into_result("node").unwrap_err();
    assert!(matches!(&error, TaskError::Storage(error) if error.is_corruption()), "{error}");
}

#[test]
fn names_that_no_store_has_are_refused() {
    let mut bytes = Vec::new();
    0_u32.put(&mut bytes);
    "../secret".to_owned().put(&mut bytes);
    let error = Stat::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("Stat") && error.contains("../secret"), "{error}");
}

#[test]
fn nothing_is_allocated_for_a_count_that_the_bytes_do_not_have() {
    let mut bytes = Vec::new();
    9_u64.put(&mut bytes);
    u32::MAX.put(&mut bytes);
    let error = Read::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("4294967295 items"), "{error}");
}

#[test]
fn each_operation_has_a_number_of_its_own() {
    for operation in Operation::ALL {
        assert_eq!(Operation::of(*operation as u16), Some(*operation), "{}", operation.name());
    }
    assert_eq!(Operation::of(0), None);
}

#[test]
fn every_request_that_changes_something_carries_the_leases_token() {
    let reads = ["Open", "Read", "Prefetch", "Close", "Keep", "OpenPages", "ReadPages"];
    for operation in Operation::ALL {
        let described = operation.described();
        let changes = matches!(*operation as u16, 0x27 | 0x30..0x70) && !reads.contains(&operation.name());
        let has_token = described.request_fields.iter().any(|(name, _)| *name == "token");
        assert!(has_token || !changes, "{}", operation.name());
        assert!(!described.answer_fields.iter().any(|(name, _)| *name == "handle"), "{}", described.answer);
    }
}

const PAGE: &str = include_str!("../../../../docs/formats/node-protocol.md");

/// Fields as the page writes them.
fn listed(fields: &[(&str, String)]) -> String {
    fields.iter().map(|(name, kind)| format!("{} {kind}", name.replace('_', " "))).collect::<Vec<_>>().join(", ")
}

fn row_of(operation: Operation) -> String {
    let (number, name, described) = (operation as u16, operation.name(), operation.described());
    let (asked, answered) = (listed(&described.request_fields), listed(&described.answer_fields));
    let row = format!("| 0x{number:02x} | {name} | {asked} | {} | {answered} |", described.answer);
    row.replace("  ", " ")
}

#[test]
fn the_page_lists_each_operation_with_its_fields() {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| 0x")).collect();
    let expected: Vec<String> = Operation::ALL.iter().map(|operation| row_of(*operation)).collect();
    assert_eq!(rows, expected, "\n{}\n", expected.join("\n"));
}

#[test]
fn the_page_says_of_each_operation_why_it_can_be_sent_again() {
    let section = PAGE.split("## Requests that are sent again").nth(1).unwrap().split("\n## ").next().unwrap();
    for operation in Operation::ALL {
        let name = format!("`{}`", operation.name());
        assert!(section.contains(&name), "{name}");
    }
}

#[test]
fn the_page_has_the_codes_of_errors() {
    use crate::error::{IO_KINDS, code};
    for (code, words) in [
        (code::IO, "operation text, file text, reason text, kind u8"),
        (code::NO_SPACE, "operation text, file text"),
        (code::CORRUPTION, "file text, structure text, expected text, found text, offset u64"),
        (code::LOCKED, "file text, reason optional text"),
        (code::NOT_FOUND, "file text"),
        (code::NOT_IN_MEMORY, ""),
        (code::INVALID, "text"),
        (code::UNKNOWN, "text"),
        (code::FENCED, "text"),
        (code::UNSUPPORTED, "text"),
        (code::BUSY, "text"),
        (code::REFUSED, "text"),
    ] {
        let row = format!("| {code} | {words} |").replace("  ", " ");
        assert!(PAGE.contains(&row), "{row}");
    }
    for (code, kind) in IO_KINDS {
        assert!(PAGE.contains(&format!("{code} `{kind:?}`")), "{code} `{kind:?}`");
    }
}

#[test]
fn messages_have_their_golden_bytes() {
    let mut lines = Vec::new();
    for operation in Operation::ALL {
        let described = operation.described();
        for (name, bytes) in [(operation.name(), described.request_sample), (described.answer, described.answer_sample)]
        {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push(format!("{name} {hex}").trim_end().to_owned());
        }
    }
    let mut seen = std::collections::HashSet::new();
    lines.retain(|line| seen.insert(line.clone()));
    let made = lines.join("\n") + "\n";
    assert_eq!(made, include_str!("../../testdata/messages.txt"), "\n{made}");
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        for operation in Operation::ALL {
            operation.decode_both(&payload);
        }
    }
}
