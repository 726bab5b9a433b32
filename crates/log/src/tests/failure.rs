//! Disks that refuse.

use super::*;

fn with_one_record() -> (Shadow, Arc<Log>) {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let lsn = log.append(&[b"kept"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    (shadow, log)
}

fn assert_poisoned(shadow: &Shadow, log: &Log, lsn: Lsn) {
    let durable = log.durable();
    for durability in [Durability::Buffered, Durability::Synced] {
        assert!(log.commit(lsn, durability).is_err());
    }
    assert!(log.failed().is_some());
    shadow.faults(Faults::default());
    assert!(log.commit(lsn, Durability::Synced).is_err(), "the disk works again, but the log must not go on");
    assert!(matches!(log.append(&[b"x"]), Err(AppendError::Failed(_))));
    assert!(log.sync().is_err() && log.close().is_err());
    assert!(matches!(log.rotate(), Err(AppendError::Failed(_))));
    assert_eq!(log.durable(), durable);
    log.commit(durable, Durability::Synced).expect("what was durable stays acknowledged");
}

#[test]
fn a_failed_write_is_final() {
    let (shadow, log) = with_one_record();
    shadow.faults(Faults { write: Some(1), ..Faults::default() });
    let lsn = log.append(&[b"lost"]).unwrap();
    assert!(log.commit(lsn, Durability::Buffered).is_err());
    assert_poisoned(&shadow, &log, lsn);
}

#[test]
fn a_failed_sync_is_final() {
    let (shadow, log) = with_one_record();
    let mut lsn = Lsn(0);
    for _ in 0..3 {
        lsn = log.append(&[&[1; 3000]]).unwrap();
        log.commit(lsn, Durability::Buffered).unwrap();
    }
    shadow.faults(Faults { sync: Some(1), ..Faults::default() });
    assert!(log.commit(lsn, Durability::Synced).is_err());
    assert!(log.durable() < lsn);
    assert_poisoned(&shadow, &log, lsn);
}

#[test]
fn a_full_disk_while_preparing_can_be_tried_again() {
    let (shadow, log) = with_one_record();
    shadow.faults(Faults { room_bytes: Some(0), ..Faults::default() });
    let full = log.prepare_next(2, 0).unwrap_err();
    assert!(full.is_no_space());
    assert!(log.failed().is_none());
    assert!(matches!(log.rotate(), Err(AppendError::NotPrepared)));
    let lsn = log.append(&[b"goes on"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    shadow.faults(Faults::default());
    assert!(log.prepare_next(3, 0).unwrap());
    assert_eq!(log.rotate().unwrap(), 3);
    let lsn = log.append(&[b"in the next file"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    let found = bodies(read_all(&shadow, RecoveryMode::Strict).unwrap().1);
    assert_eq!(found, [&b"kept"[..], b"goes on", b"in the next file"]);
}

#[test]
fn a_failed_release_is_tried_again_by_the_next() {
    let (shadow, log) = with_one_record();
    log.prepare_next(2, 0).unwrap();
    log.rotate().unwrap();
    log.sync().unwrap();
    let lsn = log.append(&[b"x"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    shadow.faults(Faults { rename: true, ..Faults::default() });
    assert!(log.release(2).is_err());
    assert_eq!(shadow.log_files(), [1, 2]);
    shadow.faults(Faults::default());
    log.release(2).unwrap();
    assert_eq!(shadow.log_files(), [2]);
}

/// A spare that somebody removed used to fail the preparing of the next file, once for each one that was gone.
#[test]
fn a_spare_that_is_not_there_is_passed_over() {
    for gone in [&[1][..], &[2], &[1, 2]] {
        let (shadow, log) = with_one_record();
        for next in 2..5 {
            log.prepare_next(next, 0).unwrap();
            log.rotate().unwrap();
        }
        let lsn = log.append(&[b"x"]).unwrap();
        log.commit(lsn, Durability::Synced).unwrap();
        log.release(4).unwrap();
        gone.iter().for_each(|spare| shadow.volume().remove(FileName::Spare(*spare)).unwrap());
        let spares =
            |shadow: &Shadow| shadow.contents().into_keys().filter(|f| matches!(f, FileName::Spare(_))).count();
        let before = spares(&shadow);
        assert_eq!(before, 2 - gone.len());
        log.prepare_next(5, 0).unwrap_or_else(|error| panic!("spares {gone:?} are gone: {error}"));
        assert_eq!(log.rotate().unwrap(), 5);
        let lsn = log.append(&[b"in the next file"]).unwrap();
        log.commit(lsn, Durability::Synced).unwrap();
        assert_eq!(spares(&shadow), before.saturating_sub(1), "what is left of the spares is used");
        assert_eq!(bodies(read_all(&shadow, RecoveryMode::Strict).unwrap().1).last().unwrap(), b"in the next file");
    }
}
