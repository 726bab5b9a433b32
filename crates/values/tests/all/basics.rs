//! What every owner relies on: what was synced is read back, also asynchronously, also after reopening.

use situ_base::Env;
use situ_storage::{DirectoryVolume, FileName, ReadQueue, Volume};
use situ_values::{Handle, KnownSegment, Layout, Options, Phase, ValueLog, Written, numbers_from};
use std::sync::Arc;

fn small() -> Options {
    Options { segment_bytes: 64 << 10, ..Options::default() }
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 31 + at * 7 + at / 251) as u8).collect()
}

fn known(written: &[Written]) -> Vec<KnownSegment> {
    let mut known: Vec<KnownSegment> = Vec::new();
    for part in written {
        match known.iter_mut().find(|known| known.number == part.segment) {
            Some(known) => known.record_bytes += part.record_bytes,
            None => known.push(KnownSegment {
                number: part.segment,
                record_bytes: part.record_bytes,
                ..KnownSegment::default()
            }),
        }
    }
    known
}

fn open(volume: &Arc<DirectoryVolume>, options: Options, first: u64, known: &[KnownSegment]) -> Arc<ValueLog> {
    let volume = Arc::clone(volume) as Arc<dyn Volume>;
    ValueLog::open(volume, &Env::system(), options, numbers_from(first), known).unwrap()
}

#[test]
fn what_was_synced_is_read_back_also_after_reopening() {
    for layout in [Layout::Packed, Layout::OwnSectors] {
        let directory = tempfile::tempdir().unwrap();
        let volume = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
        let options = Options { layout, ..small() };
        let log = open(&volume, options.clone(), 10, &[]);
        let lengths = [0, 1, 100, 2024, 2048, 5000, 200_000, 4096, 30_000];
        let key = |number: u64| format!("key {number}").into_bytes();
        let mut handles: Vec<Handle> = Vec::new();
        let mut written = Vec::new();
        let mut writer = log.writer();
        for number in 0..200 {
            let value = value(number, lengths[number as usize % lengths.len()]);
            handles.push(writer.append(number, &key(number), &value).unwrap());
            if number % 17 == 0 {
                written.extend(writer.sync().unwrap());
                let last = handles.last().unwrap();
                assert_eq!(*log.read(last, &key(number)).unwrap(), *value);
            }
        }
        let unsynced = *handles.last().unwrap();
        assert!(log.read(&unsynced, &key(199)).is_err());
        written.extend(writer.sync().unwrap());
        let check = |log: &ValueLog| {
            for (number, handle) in (0..).zip(&handles) {
                let expected = value(number, lengths[number as usize % lengths.len()]);
                assert_eq!(handle.value_bytes(key(number).len()), expected.len());
                assert_eq!(log.read(handle, &key(number)).unwrap().into_vec(), expected);
                assert!(log.read(handle, b"another").unwrap_err().is_corruption());
            }
        };
        check(&log);
        // One is finished, the other is not: both are found.
        let mut other = log.writer();
        handles_of(&mut other, &mut written);
        drop(writer);
        let sums: u64 = log.segments().iter().map(|segment| segment.record_bytes).sum();
        drop(log);
        let again = open(&volume, options, 1000, &known(&written));
        assert!(again.damaged().is_empty(), "{:?}", again.damaged());
        assert!(again.segments().iter().all(|segment| segment.phase == Phase::Sealed));
        assert_eq!(again.segments().iter().map(|segment| segment.record_bytes).sum::<u64>(), sums);
        check(&again);
    }
}

fn handles_of(writer: &mut situ_values::ValueWriter, written: &mut Vec<Written>) {
    writer.append(1, b"k", b"v").unwrap();
    written.extend(writer.sync().unwrap());
}

#[test]
fn many_reads_are_in_flight() {
    let directory = tempfile::tempdir().unwrap();
    let volume = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
    let log = open(&volume, small(), 1, &[]);
    let mut writer = log.writer();
    let handles: Vec<Handle> = (0..64).map(|n| writer.append(0, b"k", &value(n, 3000)).unwrap()).collect();
    writer.finish().unwrap();
    let mut queue = ReadQueue::new(Env::system().executor.event(), 64);
    for (tag, handle) in (0..).zip(&handles) {
        assert!(log.submit(&mut queue, tag, handle).unwrap());
    }
    assert!(!log.submit(&mut queue, 64, &handles[0]).unwrap(), "the queue is busy");
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    assert_eq!(done.len(), 64);
    for read in done {
        let tag = read.tag;
        let found = log.finish_read(&handles[tag as usize], b"k", read).unwrap();
        assert_eq!(*found, *value(tag, 3000));
    }
}

#[test]
fn orphans_go_and_strangers_stay() {
    let directory = tempfile::tempdir().unwrap();
    let volume = Arc::new(DirectoryVolume::open(directory.path()).unwrap());
    volume.replace(FileName::Table(3), b"a table").unwrap();
    let log = open(&volume, small(), 1, &[]);
    let mut writer = log.writer();
    writer.append(0, b"k", b"v").unwrap();
    writer.finish().unwrap();
    drop(log);
    let read_only = open(&volume, Options { read_only: true, ..small() }, 2, &[]);
    assert_eq!(volume.list().unwrap().len(), 2, "a reader removes nothing");
    drop(read_only);
    open(&volume, small(), 2, &[]);
    let names: Vec<FileName> = volume.list().unwrap().iter().map(|file| file.name).collect();
    assert_eq!(names, [FileName::Table(3)]);
}
