//! Many threads, on a disk that takes random time for everything.

use super::*;
use std::sync::Mutex;

/// Threads append under one lock, as the engine does, and commit outside of it. Returns what was appended, in order.
fn storm(shadow: &Shadow, log: &Arc<Log>, threads: usize, each: usize, synced: usize, seed: u64) -> Vec<Vec<u8>> {
    let appended: Mutex<(Vec<Vec<u8>>, u64)> = Mutex::new((Vec::new(), log.file()));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let appended = &appended;
            scope.spawn(move || {
                let mut rng = Rng(seed * 1000 + thread as u64);
                for _ in 0..each {
                    let (lsn, count) = {
                        let mut guard = appended.lock().unwrap();
                        let (records, file) = &mut *guard;
                        let record = record(records.len(), &mut rng);
                        let lsn = append(log, file, &record);
                        records.push(record);
                        (lsn, records.len())
                    };
                    match rng.chance(synced) {
                        true => {
                            log.commit(lsn, Durability::Synced).unwrap();
                            assert!(log.durable() >= lsn);
                            shadow.note(Step::Durable(count));
                        }
                        false => {
                            log.commit(lsn, Durability::Buffered).unwrap();
                            assert!(log.written() >= lsn);
                            shadow.note(Step::Written(count));
                        }
                    }
                }
            });
        }
    });
    appended.into_inner().unwrap().0
}

#[test]
fn promises_hold_with_many_threads_and_a_crash_anywhere() {
    for (seed, synced) in [(1, 100), (2, 0), (3, 50), (4, 10), (5, 90), (6, 100)] {
        let shadow = Shadow::slow(seed);
        let log = begin(&shadow, 1);
        let appended = storm(&shadow, &log, 8, 12, synced, seed);
        log.close().unwrap();
        let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
        assert_eq!(bodies(found), appended, "seed {seed}");
        assert_eq!(report.tail, Tail::Closed);
        let metrics = log.metrics();
        assert!(metrics.in_flight_peak <= small().in_flight_max as u64 && metrics.in_flight == 0, "{metrics:?}");
        crash::check_all(&World::default(), &shadow.trace(), &appended, seed, 2);
    }
}

#[test]
fn several_durable_writes_are_in_flight() {
    let shadow = Shadow::slow(7);
    let log = begin(&shadow, 1);
    let appended = storm(&shadow, &log, 8, 20, 100, 7);
    assert_eq!(appended.len(), 160);
    let metrics = log.metrics();
    assert!(metrics.in_flight_peak >= 2, "{metrics:?}");
    assert_eq!(metrics.syncs, 0, "writes that are durable need no sync: {metrics:?}");
}

#[test]
fn a_failure_reaches_every_waiter() {
    for seed in 0..10 {
        let shadow = Shadow::slow(seed);
        let log = begin(&shadow, 1);
        shadow.faults(Faults { write: Some(6), ..Faults::default() });
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    // Ends only when the error arrives.
                    while let Ok(lsn) = log.append(&[b"a record"]) {
                        if log.commit(lsn, Durability::Synced).is_err() {
                            assert!(log.failed().is_some());
                        }
                    }
                });
            }
        });
        assert!(matches!(log.append(&[b"x"]), Err(AppendError::Failed(_))), "seed {seed}");
    }
}

#[test]
fn background_turns_serve_those_who_only_look() {
    let shadow = Shadow::slow(3);
    let log = begin(&shadow, 1);
    let lsn = log.append(&[b"asynchronous"]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while log.durable() < lsn {
                    log.advance(Durability::Synced).unwrap();
                }
            });
        }
    });
    assert_eq!(log.metrics().writes, 1);
}
