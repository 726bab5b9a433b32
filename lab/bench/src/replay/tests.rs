use super::*;
use crate::memory::MemoryFactory;
use crate::options::BenchOptions;
use crate::run::run;
use crate::workloads::Workload;
use situ_trace::{Keys, Records, Writer};
use std::fs;
use std::path::PathBuf;

/// Requests of plain keys: time in milliseconds, operation, outcome, key, size of the value.
type Line<'a> = (u64, Operation, Outcome, &'a str, u32);

fn write(path: &Path, lines: &[Line<'_>]) {
    let mut records = Records::default();
    for (ms, operation, outcome, key, value_bytes) in lines {
        records.push(&Request {
            time: Duration::from_millis(*ms),
            latency: Duration::from_micros(10),
            operation: *operation,
            outcome: *outcome,
            value_bytes: *value_bytes,
            key_bytes: key.len() as u16,
            key: key.as_bytes(),
        });
    }
    let mut writer = Writer::begin(Vec::new(), Keys::Plain, 0).unwrap();
    writer.write(records).unwrap();
    fs::write(path, writer.end(0, Duration::from_secs(1)).unwrap()).unwrap();
}

const LINES: [Line<'static>; 8] = [
    (0, Operation::Get, Outcome::Hit, "old", 300),
    (1, Operation::Get, Outcome::Miss, "none", 0),
    (2, Operation::Set, Outcome::Hit, "new", 50),
    (3, Operation::Get, Outcome::Hit, "new", 50),
    (4, Operation::Incr, Outcome::Hit, "number", 7),
    (5, Operation::Add, Outcome::Miss, "old", 10),
    (6, Operation::Delete, Outcome::Hit, "old", 0),
    (200, Operation::Get, Outcome::Miss, "old", 0),
];

fn options(directory: &Path, file: &Path, pace: Pace) -> BenchOptions {
    BenchOptions {
        directory: directory.join("data"),
        workloads: vec![Workload::Replay],
        replay: Some(PathBuf::from(file)),
        pace,
        ..BenchOptions::default()
    }
}

#[test]
fn a_replay_finds_what_was_found_and_writes_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    write(&file, &LINES);
    for (pace, threads) in [(Pace::Full, 1), (Pace::Full, 3), (Pace::Recorded, 2)] {
        let options = BenchOptions { threads, ..options(directory.path(), &file, pace) };
        let result = run(&options, &MemoryFactory::default()).unwrap();
        let phase = &result.phases[0];
        assert_eq!((phase.workload.as_str(), phase.operations), ("replay", 8));
        // Found: old, new, number, and old by the add that stored nothing.
        assert_eq!((phase.found, phase.missed), (4, 2), "{pace:?}");
        // new with 50, number with 7, and the key of the delete.
        assert_eq!((phase.user_bytes_read, phase.user_bytes_written), (300 + 50 + 7 + 300, 53 + 13 + 3));
        let kinds: Vec<_> = phase.latencies.iter().map(|latency| (latency.kind, latency.count)).collect();
        let read = crate::Kind::Read;
        assert!(kinds.contains(&(read, 5)) && kinds.contains(&(crate::Kind::ReadModifyWrite, 1)), "{kinds:?}");
        // The last request is due 200 ms after the first one.
        assert!(pace == Pace::Full || phase.seconds >= 0.2, "{}", phase.seconds);
    }
    let first = BenchOptions { operations: Some(3), ..options(directory.path(), &file, Pace::Full) };
    assert_eq!(run(&first, &MemoryFactory::default()).unwrap().phases[0].operations, 3);
}

#[test]
fn requests_of_a_key_stay_on_a_thread_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let keys: Vec<String> = (0..50).map(|key| format!("key-{key}")).collect();
    let lines: Vec<_> =
        (0..1000).map(|n| (n, Operation::Set, Outcome::Hit, &keys[n as usize * 7 % 50][..], n as u32)).collect();
    write(&file, &lines);
    let replay = Replay::open(&file, Pace::Full, None).unwrap();
    let mut owners = std::collections::HashMap::new();
    let mut taken = 0;
    for (thread, mut share) in replay.share(4).into_iter().enumerate() {
        let (mut key, mut last) = (Vec::new(), None);
        assert!(share.len() > 100, "{thread} has {}", share.len());
        while let Some((effect, number)) = share.take(&mut key) {
            assert!(effect == Effect::Write && last < Some(number));
            last = Some(number);
            taken += 1;
            assert_eq!(*owners.entry(key.clone()).or_insert(thread), thread);
        }
    }
    assert_eq!((taken, owners.len()), (1000, 50));
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let refused = |options: &BenchOptions| run(options, &MemoryFactory::default()).unwrap_err().to_string();
    let good = options(directory.path(), &file, Pace::Full);
    assert!(refused(&good).contains("No such file"), "{}", refused(&good));
    fs::write(&file, b"get a\r\n").unwrap();
    assert!(refused(&good).contains("no trace"), "{}", refused(&good));
    write(&file, &LINES);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert!(refused(&good).contains("trace: the trace is cut"), "{}", refused(&good));
    write(&file, &[]);
    assert!(refused(&good).contains("no requests"), "{}", refused(&good));
    write(&file, &LINES);
    let without = BenchOptions { replay: None, ..good.clone() };
    assert!(refused(&without).contains("--replay"), "{}", refused(&without));
    let unused = BenchOptions { workloads: vec![Workload::FillSeq], ..good.clone() };
    assert!(refused(&unused).contains("replay"), "{}", refused(&unused));
    let paced = BenchOptions { pace: Pace::Recorded, rate: Some(10), ..good.clone() };
    assert!(refused(&paced).contains("--pace full"), "{}", refused(&paced));
    assert!(!good.directory.exists(), "nothing was made for what is refused");
}
