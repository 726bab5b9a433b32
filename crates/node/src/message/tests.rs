use super::*;
use crate::CallError;
use crate::fields::Bytes;
use proptest::prelude::*;
use situ_compaction::{DecisionRules, ModeRule, Ran, Resources, RunMode, Stage, Stages, TaskError};
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
    let ran = Ran { mode: RunMode::PIPELINED, stages };
    let cancelled = TaskOutcome::failed(&TaskError::Cancelled);
    for outcome in [TaskOutcome::Output(vec![1]), cancelled, TaskOutcome::Panicked("a filter".to_owned())] {
        survives(&TaskDone { outcome, elapsed: Duration::from_millis(7), ran, decision: Bytes::default() });
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
    survives(&Tasks { tasks: vec![(1, TaskState::Waiting), (2, TaskState::Running), (3, TaskState::Ended)] });
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

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        for operation in Operation::ALL {
            operation.decode_both(&payload);
        }
    }
}
