//! Claims about the whole log: on a shadow volume that can crash anywhere, and on a directory.

use crate::shadow::{Faults, Rng, Shadow, Step, World, log_files};
use crate::{
    AppendError, Durability, FileFollower, Log, LogOptions, Lsn, PAYLOAD_BYTES, RecordPosition, RecoveryMode,
    RecoveryReport, Tail, recover,
};
use situ_base::Env;
use situ_device::PAGE_BYTES;
use situ_storage::{DirectoryVolume, Error, FileName, Result, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;

mod crash;
mod failure;
mod files;
mod follow;
mod raw;
mod rot;
mod simulated;
mod speed;
mod threads;

fn small() -> LogOptions {
    LogOptions { file_bytes: 12 * PAGE_BYTES as u64, ..LogOptions::default() }
}

fn begin(shadow: &Shadow, first_file: u64) -> Arc<Log> {
    Log::create(shadow.volume(), Env::system(), small(), first_file).unwrap()
}

/// A record that tells which one it is, of a length drawn from several kinds.
fn record(number: usize, rng: &mut Rng) -> Vec<u8> {
    let length = match rng.below(10) {
        0 => 0,
        1..=6 => rng.below(200),
        7 | 8 => rng.below(5000),
        _ => rng.below(3 * PAYLOAD_BYTES),
    };
    let mut record = format!("{number}:").into_bytes();
    record.resize(record.len() + length, number as u8);
    record
}

fn append(log: &Log, next_file: &mut u64, record: &[u8]) -> Lsn {
    loop {
        let (front, back) = record.split_at(record.len() / 2);
        match log.append(&[front, back]) {
            Ok(lsn) => return lsn,
            Err(AppendError::FileFull) => {
                *next_file += 1;
                log.prepare_next(*next_file, record.len() as u64).unwrap();
                assert_eq!(log.rotate().unwrap(), *next_file);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

type Found = Vec<(RecordPosition, Vec<u8>)>;

fn read_all(shadow: &Shadow, mode: RecoveryMode) -> Result<(RecoveryReport, Found)> {
    read_files(&shadow.volume(), &shadow.log_files(), mode)
}

fn read_files(volume: &Arc<dyn Volume>, files: &[u64], mode: RecoveryMode) -> Result<(RecoveryReport, Found)> {
    let mut found = Vec::new();
    let report = recover(volume, files, mode, &mut |position, record| {
        found.push((position, record.to_vec()));
        Ok(())
    })?;
    assert_eq!(report.records, found.len() as u64);
    assert_eq!(report.last, found.last().map(|(position, _)| *position));
    assert!(found.is_sorted_by(|a, b| a.0 < b.0));
    Ok((report, found))
}

fn bodies(found: Found) -> Vec<Vec<u8>> {
    found.into_iter().map(|(_, record)| record).collect()
}

#[test]
fn what_was_appended_is_recovered_in_order() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let shadow = Shadow::default();
        let log = begin(&shadow, 1);
        let (mut records, mut file) = (Vec::new(), 1);
        for number in 0..rng.below(300) {
            records.push(record(number, &mut rng));
            let lsn = append(&log, &mut file, &records[number]);
            match rng.below(4) {
                0 => log.commit(lsn, Durability::Buffered).unwrap(),
                1 => log.commit(lsn, Durability::Synced).unwrap(),
                2 => drop(log.advance(Durability::Buffered).unwrap()),
                _ => {}
            }
            assert!(log.durable() <= log.written() && log.written() <= log.appended());
        }
        let closed = rng.chance(50);
        if closed {
            log.close().unwrap();
        } else {
            log.sync().unwrap();
            assert!(log.durable() >= log.appended());
        }
        let (report, found) = read_all(&shadow, RecoveryMode::Strict).unwrap();
        assert_eq!(bodies(found), records, "seed {seed}");
        assert_eq!(report.tail == Tail::Closed, closed, "seed {seed}: {report:?}");
    }
}

#[test]
fn the_worked_example_is_what_is_written() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 7);
    log.append(&[b"hello"]).unwrap();
    let lsn = log.append(&[b"si", b"tu"]).unwrap();
    assert_eq!(lsn, Lsn(25));
    log.commit(lsn, Durability::Synced).unwrap();
    let page = shadow.contents()[&FileName::Log(7)][..PAGE_BYTES].to_vec();
    // Read from the format page: hexadecimal pairs, and letters for checksums that the page leaves open.
    let text = include_str!("../../../docs/formats/log.md");
    let example = text.split("```").nth(1).unwrap();
    let mut expected = Vec::new();
    for line in example.lines().filter(|line| !line.contains("bytes of nothing")) {
        let pair =
            |word: &&str| word.len() == 2 && (word.chars().all(|c| c.is_ascii_hexdigit()) || "PPHHRR".contains(word));
        expected.extend(line.split_whitespace().take_while(pair).map(|word| u8::from_str_radix(word, 16).ok()));
    }
    assert_eq!(expected.len(), 48 + 25);
    for (offset, expected) in expected.iter().enumerate() {
        assert!(expected.is_none_or(|byte| byte == page[offset]), "byte {offset} of the worked example");
    }
    assert!(page[73..].iter().all(|byte| *byte == 0));
    // The golden bytes of what the example leaves open.
    assert_eq!(page[36..40], crc32c::crc32c(&page[48..73]).to_le_bytes());
    assert_eq!(page[44..48], crc32c::crc32c(&page[..44]).to_le_bytes());
    assert_eq!(page[52..56], crc32c::crc32c(b"\x05\0\0\0hello").to_le_bytes());
}

#[test]
fn a_lone_synced_writer_fills_pages() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    for _ in 0..100 {
        let lsn = log.append(&[&[7; 100]]).unwrap();
        log.commit(lsn, Durability::Synced).unwrap();
    }
    let metrics = log.metrics();
    // 10,800 bytes: three pages, two of them reached while spanning.
    assert_eq!(log.appended().0, 10_800);
    assert_eq!((metrics.writes, metrics.durable_writes, metrics.syncs), (100, 100, 0));
    assert_eq!(metrics.pages_written, 102);
}

#[test]
fn buffered_records_before_a_synced_one_are_durable_with_it() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    let mut last = Lsn(0);
    for _ in 0..100 {
        last = log.append(&[&[7; 100]]).unwrap();
        log.commit(last, Durability::Buffered).unwrap();
    }
    assert_eq!((log.written(), log.durable()), (last, Lsn(0)));
    log.commit(last, Durability::Synced).unwrap();
    assert_eq!(log.durable(), last);
    // Several pages lie behind: one sync, and no write of theirs again.
    assert_eq!((log.metrics().syncs, log.metrics().writes), (1, 100));
    // One buffered record in the page that is written again needs no sync.
    log.append(&[b"a"]).map(|lsn| log.commit(lsn, Durability::Buffered)).unwrap().unwrap();
    log.append(&[b"b"]).map(|lsn| log.commit(lsn, Durability::Synced)).unwrap().unwrap();
    assert_eq!((log.metrics().syncs, log.durable()), (1, log.appended()));
}

#[test]
fn a_full_buffer_refuses_and_takes_again() {
    let shadow = Shadow::default();
    let options = LogOptions { buffer_bytes_max: 2 * PAGE_BYTES, ..LogOptions::default() };
    let log = Log::create(shadow.volume(), Env::system(), options, 1).unwrap();
    // A record may be longer than the buffer.
    log.append(&[&[1; 3 * PAGE_BYTES]]).unwrap();
    assert!(matches!(log.append(&[b"x"]), Err(AppendError::BufferFull)));
    assert!(log.advance(Durability::Buffered).unwrap());
    log.append(&[b"x"]).unwrap();
    assert!(log.advance(Durability::Buffered).unwrap());
    assert!(!log.advance(Durability::Buffered).unwrap());
    assert_eq!(log.written(), log.appended());
}

#[test]
fn a_long_record_is_written_in_few_pieces() {
    let directory = tempfile::tempdir().unwrap();
    let volume: Arc<dyn Volume> = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
    let log = Log::create(Arc::clone(&volume), Env::system(), small(), 1).unwrap();
    let long: Vec<u8> = (0..10_000_000u32).map(|i| (i / 3) as u8).collect();
    assert!(matches!(log.append(&[&long]), Err(AppendError::FileFull)));
    log.prepare_next(2, long.len() as u64).unwrap();
    log.rotate().unwrap();
    let lsn = log.append(&[&long]).unwrap();
    log.commit(lsn, Durability::Synced).unwrap();
    assert!(log.metrics().writes <= 5, "{:?}", log.metrics());
    log.append(&[b"behind"]).map(|lsn| log.commit(lsn, Durability::Synced)).unwrap().unwrap();
    let (_, found) = read_files(&volume, &[1, 2], RecoveryMode::Strict).unwrap();
    assert_eq!(bodies(found), [long, b"behind".to_vec()]);
}

#[test]
fn a_position_of_another_log_is_refused() {
    let shadow = Shadow::default();
    let log = begin(&shadow, 1);
    log.append(&[b"x"]).unwrap();
    assert!(matches!(log.commit(Lsn(1000), Durability::Synced), Err(Error::Invalid(_))));
    assert!(log.failed().is_none());
}
