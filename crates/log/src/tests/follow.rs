//! A reader of a log file while the log is written.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads what is there from `follower` on, in this and in later files up to `last`.
fn read_on(volume: &dyn Volume, follower: &mut FileFollower, last: u64, found: &mut Vec<Vec<u8>>) {
    loop {
        // Asked before the reading: what is in an older file is final then.
        while let Some((_, record)) = follower.next_record().unwrap() {
            found.push(record.to_vec());
        }
        if follower.number() >= last {
            return;
        }
        *follower = FileFollower::open(volume, follower.number() + 1).unwrap();
    }
}

#[test]
fn every_record_is_read_once_and_in_order_as_soon_as_it_is_written() {
    for seed in 0..30 {
        let mut rng = Rng(seed + 1);
        let shadow = Shadow::default();
        let log = begin(&shadow, 1);
        let volume = shadow.volume();
        let mut follower = FileFollower::open(&*volume, 1).unwrap();
        let (mut next_file, mut appended, mut found) = (1, Vec::new(), Vec::new());
        for number in 0..200 {
            let record = record(number, &mut rng);
            let lsn = append(&log, &mut next_file, &record);
            appended.push(record);
            if rng.chance(70) {
                log.commit(lsn, if rng.chance(50) { Durability::Synced } else { Durability::Buffered }).unwrap();
                if rng.chance(50) {
                    read_on(&*volume, &mut follower, log.file(), &mut found);
                    assert_eq!(found.len(), appended.len(), "seed {seed}");
                }
            } else if rng.chance(30) {
                // Records that are not written may be missing, and no other.
                let here = follower.number();
                read_on(&*volume, &mut follower, here, &mut found);
            }
        }
        log.close().unwrap();
        read_on(&*volume, &mut follower, log.file(), &mut found);
        assert_eq!(found, appended, "seed {seed}");
        assert!(follower.has_ended());
    }
}

#[test]
fn a_reader_beside_writers_sees_whole_records_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
    let options = LogOptions { file_bytes: 4 << 20, ..LogOptions::default() };
    let log = Log::create(Arc::clone(&volume), Env::system(), options, 1).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut follower = FileFollower::open(&*volume, 1).unwrap();
            let mut found = Vec::new();
            loop {
                let was_done = done.load(Ordering::Acquire);
                read_on(&*volume, &mut follower, 1, &mut found);
                if was_done {
                    return found;
                }
            }
        });
        let mut appended = Vec::new();
        let mut rng = Rng(7);
        for number in 0..1500 {
            let record = record(number, &mut rng);
            let Ok(lsn) = log.append(&[&record]) else { break };
            appended.push(record);
            let durability = if number % 50 == 0 { Durability::Synced } else { Durability::Buffered };
            log.commit(lsn, durability).unwrap();
        }
        done.store(true, Ordering::Release);
        assert!(appended.len() > 500);
        assert_eq!(reader.join().unwrap(), appended);
    });
}

#[test]
fn a_damaged_page_ends_the_reading_and_a_recycled_file_has_nothing() {
    let (shadow, records) = rot::sound(true);
    let name = FileName::Log(1);
    let mut contents = shadow.contents();
    let whole = contents[&name].clone();
    for page in 0..2 {
        contents.get_mut(&name).unwrap().clone_from(&whole);
        contents.get_mut(&name).unwrap()[page * PAGE_BYTES + 100] ^= 1;
        let damaged = Shadow::of(contents.clone());
        let mut follower = FileFollower::open(&*damaged.volume(), 1).unwrap();
        let mut found = Vec::new();
        while let Some((_, record)) = follower.next_record().unwrap() {
            found.push(record.to_vec());
        }
        assert!(found.len() < records.len() && found[..] == records[..found.len()] && !follower.has_ended());
    }
    contents.insert(FileName::Log(9), whole);
    let renamed = Shadow::of(contents);
    assert_eq!(FileFollower::open(&*renamed.volume(), 9).unwrap().next_record().unwrap(), None);
}
