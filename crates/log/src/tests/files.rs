//! Rotation, recycling, release.

use super::*;
use crate::FILE_BYTES_MIN;
use crate::chunk::BUFFERS_LEFT;
use crate::files::Files;
use crate::shadow::Nowhere;

fn fill(log: &Log, durability: Durability, byte: u8) -> usize {
    let mut count = 0;
    while let Ok(lsn) = log.append(&[&[byte; 1000]]) {
        log.commit(lsn, durability).unwrap();
        count += 1;
    }
    count
}

#[test]
fn a_recycled_file_shows_nothing_of_its_earlier_life() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    for (next, durability) in [(2, Durability::Synced), (3, Durability::Buffered), (5, Durability::Synced)] {
        assert!(fill(&log, durability, next as u8) > 40);
        log.prepare_next(next, 0).unwrap();
        log.rotate().unwrap();
        let lsn = log.append(&[b"first"]).unwrap();
        log.commit(lsn, durability).unwrap();
        log.release(next).unwrap();
        assert_eq!(shadow.log_files(), [next]);
        let (_, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
        assert_eq!(bodies(found), [b"first"], "file {next}");
    }
    // Files 3 and 5 were 1 and 2 before, and 3 is a spare now.
    assert_eq!(shadow.contents().len(), 2);
}

#[test]
fn spares_are_bounded_adopted_and_used() {
    let shadow = Shadow::default();
    let options = LogOptions { spare_files_max: 1, ..small() };
    let log = Log::create(shadow.volume(), Env::system(), options.clone(), 1).unwrap();
    for next in 2..6 {
        log.prepare_next(next, 0).unwrap();
        log.rotate().unwrap();
    }
    let lsn = log.append(&[b"x"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    log.release(5).unwrap();
    let names: Vec<_> = shadow.contents().into_keys().collect();
    assert_eq!(names, [FileName::Log(5), FileName::Spare(1)]);
    // The next life takes the spare, and releases the files of this one.
    drop(log);
    let log = Log::create(shadow.volume(), Env::system(), options, 6).unwrap();
    assert_eq!(shadow.contents().into_keys().collect::<Vec<_>>(), [FileName::Log(5), FileName::Log(6)]);
    log.release(6).unwrap();
    assert_eq!(shadow.contents().into_keys().collect::<Vec<_>>(), [FileName::Log(6), FileName::Spare(5)]);
}

#[test]
fn released_files_count_as_durable_and_need_no_sync() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    fill(&log, Durability::Buffered, 1);
    log.prepare_next(2, 0).unwrap();
    log.rotate().unwrap();
    let lsn = log.append(&[b"x"]).unwrap();
    log.commit(lsn, Durability::Buffered).unwrap();
    assert_eq!(log.durable(), Lsn(0));
    log.release(2).unwrap();
    assert!(log.durable() > Lsn(0) && log.durable() < lsn);
    log.commit(lsn, Durability::Synced).unwrap();
    // One sync, of file 2: file 1 is forgotten.
    assert_eq!(log.metrics().syncs, 1);
}

#[test]
fn only_what_is_released_and_written_is_given_up() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let mut ends = Vec::new();
    for next in 2..5 {
        let lsn = log.append(&[b"x"]).unwrap();
        log.commit(lsn, Durability::Buffered).unwrap();
        ends.push(lsn);
        log.prepare_next(next, 0).unwrap();
        log.rotate().unwrap();
    }
    log.release(4).unwrap();
    assert_eq!(shadow.log_files(), [3, 4], "the end mark of file 3 is not written yet");
    let lsn = log.append(&[b"x"]).unwrap();
    log.commit(lsn, Durability::Buffered).unwrap();
    log.release(2).unwrap();
    assert!(log.durable() > ends[1] && log.durable() < ends[2], "file 3 is still needed");
    log.release(99).unwrap();
    assert_eq!(shadow.log_files(), [4], "the current file stays");
    assert!(log.durable() > ends[2] && log.durable() < lsn);
}

#[test]
fn a_synced_record_makes_the_files_before_it_durable() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let mut count = 0;
    for next in 2..5 {
        count += fill(&log, Durability::Buffered, next as u8);
        log.prepare_next(next, 0).unwrap();
        log.rotate().unwrap();
    }
    let lsn = log.append(&[b"x"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    let mut world = World::default();
    shadow.trace().iter().for_each(|step| world.step(step));
    for seed in 0..20 {
        let image = Shadow::of(world.crash(&mut Rng(seed)));
        let (_, found) = read_all(&image, RecoveryMode::Strict).unwrap();
        assert_eq!(found.len(), count + 1, "seed {seed}");
    }
}

#[test]
fn a_prepared_file_that_does_not_fit_is_given_up() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    log.prepare_next(2, 0).unwrap();
    log.prepare_next(2, 0).unwrap();
    log.prepare_next(3, 100_000).unwrap();
    assert_eq!(shadow.log_files(), [1, 3]);
    // No second file of a number: the name of the first may come back in a crash, on another disk.
    assert!(!log.prepare_next(3, 200_000).unwrap());
    assert!(log.prepare_next(4, 200_000).unwrap());
    assert_eq!(shadow.log_files(), [1, 4]);
    // It is kept where the disk has no room for another.
    shadow.faults(Faults { room_bytes: Some(0), ..Faults::default() });
    assert!(!log.prepare_next(4, 400_000).unwrap());
    assert!(log.prepare_next(5, 400_000).unwrap_err().is_no_space());
    shadow.faults(Faults::default());
    // A call that comes late takes nothing away.
    assert!(!log.prepare_next(3, 0).unwrap());
    assert_eq!(log.rotate().unwrap(), 4);
    assert!(log.room_bytes() >= 100_008);
    let lsn = log.append(&[&vec![3; 100_000]]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    assert!(matches!(log.prepare_next(4, 0), Err(Error::Invalid(_))));
    let (_, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn room_is_what_can_be_appended() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    log.append(&[b"x"]).unwrap();
    log.sync().unwrap();
    let room = log.room_bytes() as usize - 8;
    assert!(matches!(log.append(&[&vec![0; room + 1]]), Err(AppendError::FileFull)));
    log.append(&[&vec![0; room]]).unwrap();
    assert!(matches!(log.append(&[]), Err(AppendError::FileFull)));
    log.close().unwrap();
    let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
    assert_eq!((found.len(), report.tail), (2, Tail::Closed));
}

/// A file that was made for one huge record used to become a spare, and then the next log file, and so on: its room was
/// lost to the store as long as it was open.
#[test]
fn promise_8_a_file_of_a_huge_record_is_not_kept() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let huge = vec![1; 10 << 20];
    log.prepare_next(2, huge.len() as u64).unwrap();
    log.rotate().unwrap();
    let lsn = log.append(&[&huge]).unwrap();
    log.commit(lsn, Durability::Buffered).unwrap();
    for next in 3..6 {
        log.prepare_next(next, 0).unwrap();
        log.rotate().unwrap();
        let lsn = log.append(&[b"x"]).unwrap();
        log.commit(lsn, Durability::Buffered).unwrap();
        log.release(next).unwrap();
        assert!(log.metrics().file_bytes < 1 << 20, "{} bytes", log.metrics().file_bytes);
    }
}

/// A spare of a store with smaller log files used to stay for ever and keep all others from becoming one; one of a
/// store with larger files was taken whatever its length.
/// Whoever opens a store again and again without writing to it can remove what those before have prepared.
#[test]
fn files_that_nobody_needs_any_more_are_named() {
    let shadow = Shadow::of(BTreeMap::new());
    let log = begin(&shadow, 1);
    log.commit(log.append(&[b"one"]).unwrap(), Durability::Synced).unwrap();
    drop(log);
    drop(begin(&shadow, 2));
    drop(begin(&shadow, 3));
    let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
    assert_eq!((report.unused, found.len()), (vec![2, 3], 1));
    let log = begin(&shadow, 4);
    log.commit(log.append(&[b"two"]).unwrap(), Durability::Synced).unwrap();
    let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
    assert_eq!((report.unused, found.len()), (vec![], 2), "a file may be what a later one follows");
    drop(log);
    begin(&shadow, 5).close().unwrap();
    drop(begin(&shadow, 6));
    let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
    assert_eq!((report.unused, found.len()), (vec![5, 6], 2));
    let log = begin(&shadow, 7);
    log.commit(log.append(&[b"three"]).unwrap(), Durability::Synced).unwrap();
    log.close().unwrap();
    let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
    assert_eq!((report.unused, found.len()), (vec![5], 3));
}

#[test]
fn spares_of_another_length_are_not_adopted() {
    for pages in [4, 1000] {
        let shadow = Shadow::default();
        drop(shadow.volume().create_pages(FileName::Spare(1), pages * PAGE_BYTES as u64).unwrap());
        let _log = begin(&shadow, 2);
        assert_eq!(shadow.contents().into_keys().collect::<Vec<_>>(), [FileName::Log(2)], "{pages} pages");
    }
}

/// The file that takes records was once asked whether its writes wait, though the end of the one before is written
/// first.
#[test]
fn a_thread_that_must_not_wait_leaves_a_file_without_a_cache_and_what_is_behind_it() {
    let shadow = Shadow::default();
    let env = Env::system();
    let files = Files::open(shadow.volume(), small().file_bytes, 0, env.executor.event()).unwrap();
    let log = Log::over(files, env, &small(), 1, Arc::new(Nowhere { pages: 12, writes_wait: true })).unwrap();
    log.append(&[b"for the device"]).unwrap();
    assert!(!log.advance_cached().unwrap());
    log.prepare_next(2, 0).unwrap();
    log.rotate().unwrap();
    let lsn = log.append(&[b"for the page cache"]).unwrap();
    assert!(!log.advance_cached().unwrap());
    assert_eq!((log.written(), log.metrics().writes), (Lsn(0), 0));
    assert!(log.advance(Durability::Buffered).unwrap());
    assert!(log.written() > Lsn(0) && log.written() < lsn);
    assert!(log.advance_cached().unwrap());
    assert_eq!(log.written(), lsn);
    assert!(!log.advance_cached().unwrap());
}

/// A disk with hardly any room takes a short file: when a log begins, and when one goes on in a short file to give room
/// back.
#[test]
fn promise_7_a_short_file_is_as_short_as_the_room_for_it() {
    let shadow = Shadow::default();
    shadow.faults(Faults { room_bytes: Some(FILE_BYTES_MIN), ..Faults::default() });
    let log = Log::create(shadow.volume(), Env::system(), LogOptions::default(), 1).unwrap();
    let lsn = log.append(&[b"in the first"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    assert!(log.prepare_next(2, 0).unwrap_err().is_no_space());
    // What was begun under that number may come back in a crash.
    assert!(!log.prepare_short(2, 0, u64::MAX).unwrap());
    assert!(log.prepare_short(3, 0, u64::MAX).unwrap());
    assert_eq!(log.rotate().unwrap(), 3);
    let lsn = log.append(&[b"in the short one"]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    let found = bodies(read_all(&shadow, RecoveryMode::Strict).unwrap().1);
    assert_eq!(found, [&b"in the first"[..], b"in the short one"]);
}

/// A log that began on a nearly full disk kept short files until it was opened again.
#[test]
fn a_log_that_began_with_a_short_file_goes_on_in_longer_ones() {
    let shadow = Shadow::default();
    let mut options = LogOptions::default();
    options.limit_first_file(Some(8 * FILE_BYTES_MIN));
    assert_eq!(options.first_file_bytes, FILE_BYTES_MIN);
    options.limit_first_file(None);
    let log = Log::create(shadow.volume(), Env::system(), options, 1).unwrap();
    let first = log.room_bytes();
    assert!(first < FILE_BYTES_MIN);
    assert!(log.prepare_short(2, 0, u64::MAX).unwrap());
    log.rotate().unwrap();
    assert!(log.room_bytes() > 1 << 20, "{}", log.room_bytes());
}

/// The mark at the end of a file took a buffer by an allocation that ends the process.
#[test]
fn a_rotation_without_memory_for_its_mark_is_refused() {
    let shadow = Shadow::default();
    let log = Log::create(shadow.volume(), Env::system(), LogOptions::default(), 1).unwrap();
    log.prepare_next(2, 0).unwrap();
    BUFFERS_LEFT.set(0);
    assert!(matches!(log.rotate(), Err(AppendError::OutOfMemory { .. })));
    BUFFERS_LEFT.set(usize::MAX);
    assert_eq!(log.rotate().unwrap(), 2);
    log.append(&[b"after"]).unwrap();
    log.sync().unwrap();
    assert_eq!(bodies(read_all(&shadow, RecoveryMode::Strict).unwrap().1), [b"after"]);
}

/// A record of several chunks that finds no memory leaves the log as it was.
#[test]
fn a_record_for_which_there_is_no_memory_is_refused_whole() {
    let shadow = Shadow::default();
    let log = Log::create(shadow.volume(), Env::system(), LogOptions::default(), 1).unwrap();
    log.prepare_next(2, 0).unwrap();
    log.rotate().unwrap();
    let before = log.append(&[b"before"]).unwrap();
    let long = vec![7; 9 << 20];
    for left in 0..3 {
        BUFFERS_LEFT.set(left);
        let error = log.append(&[&long]).unwrap_err();
        assert!(matches!(error, AppendError::OutOfMemory { bytes } if bytes > long.len()), "{left}: {error}");
        assert_eq!(log.appended(), before);
    }
    BUFFERS_LEFT.set(usize::MAX);
    log.append(&[b"after"]).unwrap();
    log.append(&[&long]).unwrap();
    log.sync().unwrap();
    let found = bodies(read_all(&shadow, RecoveryMode::Strict).unwrap().1);
    assert!(found == [&b"before"[..], b"after", &long], "{:?}", found.iter().map(Vec::len).collect::<Vec<_>>());
}
