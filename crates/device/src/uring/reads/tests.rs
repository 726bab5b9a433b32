//! Pipes stand in for disks that are slow, answer in parts, or never answer.

use super::*;
use crate::skipped::skipped;
use std::io::Write;
use std::os::fd::OwnedFd;

const LONG: Duration = Duration::from_secs(20);
const READS: u64 = 64;

/// None, said aloud, where the system gives no rings to this process.
fn reads(depth: u32) -> Option<FileReads> {
    FileReads::new(depth).inspect_err(|error| skipped(format_args!("no io_uring here: {error}"))).ok()
}

fn pipe() -> (Arc<File>, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Arc::new(File::from(OwnedFd::from(reader))), File::from(OwnedFd::from(writer)))
}

fn wait_for(reads: &mut FileReads, count: usize) -> Vec<FileRead> {
    let (watch, begun, mut done) = (reads.watch(), Instant::now(), Vec::new());
    while done.len() < count {
        reads.poll(&mut done);
        if done.len() < count {
            watch.wait(Some(LONG));
        }
        assert!(begun.elapsed() < LONG, "{} of {count}", done.len());
    }
    done
}

#[test]
fn reads_of_many_files_are_in_flight_at_once_and_end_in_the_order_of_the_answers() {
    let Some(mut reads) = reads(READS as u32) else { return };
    let mut pipes: Vec<_> = (0..READS).map(|_| pipe()).collect();
    for (tag, (file, _)) in pipes.iter().enumerate() {
        reads.submit(tag as u64, Arc::clone(file), 0, vec![0; 100]).unwrap();
    }
    assert_eq!(reads.submit(99, Arc::clone(&pipes[0].0), 0, vec![7; 3]).unwrap_err(), [7; 3], "busy");
    let mut done = Vec::new();
    assert_eq!((reads.poll(&mut done), reads.in_flight()), (0, READS as usize));
    for tag in (0..READS).rev() {
        pipes[tag as usize].1.write_all(&[tag as u8; 100]).unwrap();
        let answer = wait_for(&mut reads, 1).remove(0);
        answer.result.unwrap();
        assert_eq!((answer.tag, answer.buffer), (tag, vec![tag as u8; 100]));
    }
    assert_eq!(reads.in_flight(), 0);
}

#[test]
fn a_short_read_goes_on_and_the_end_of_the_file_is_an_error() {
    let Some(mut reads) = reads(2) else { return };
    let (file, mut writer) = pipe();
    reads.submit(1, Arc::clone(&file), 0, vec![0; 1000]).unwrap();
    let mut done = Vec::new();
    for (value, bytes) in [(1, 300), (2, 600)] {
        reads.poll(&mut done);
        writer.write_all(&vec![value; bytes]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert_eq!(reads.poll(&mut done), 0, "{bytes} more bytes are not the whole");
    }
    writer.write_all(&[3; 100]).unwrap();
    let answer = wait_for(&mut reads, 1).remove(0);
    answer.result.unwrap();
    let expected: Vec<u8> = [(1, 300), (2, 600), (3, 100)].iter().flat_map(|(value, n)| vec![*value; *n]).collect();
    assert_eq!(answer.buffer, expected);

    reads.submit(2, file, 0, vec![0; 1000]).unwrap();
    writer.write_all(&[4; 10]).unwrap();
    drop(writer);
    let error = wait_for(&mut reads, 1).remove(0).result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("10 of 1000 bytes"), "{error}");
}

#[test]
fn an_error_is_that_of_its_own_read_and_nothing_to_read_is_read_at_once() {
    let Some(mut reads) = reads(4) else { return };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[5; 8192]).unwrap();
    let readable = Arc::new(file.reopen().unwrap());
    let write_only = Arc::new(std::fs::OpenOptions::new().write(true).open(file.path()).unwrap());
    for (tag, from, offset, bytes) in
        [(1, &readable, 0, 8192), (2, &write_only, 0, 10), (3, &readable, 8000, 400), (4, &readable, 0, 0)]
    {
        reads.submit(tag, Arc::clone(from), offset, vec![0; bytes]).unwrap();
    }
    let mut done = wait_for(&mut reads, 4);
    done.sort_by_key(|read| read.tag);
    assert!(done[0].result.is_ok() && done[0].buffer == [5; 8192]);
    assert_eq!(done[1].result.as_ref().unwrap_err().raw_os_error(), Some(Errno::BADF.raw_os_error()));
    assert_eq!(done[2].result.as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(done[3].result.is_ok());
}

#[test]
fn another_thread_ends_the_wait() {
    let Some(mut reads) = reads(1) else { return };
    let (file, mut writer) = pipe();
    reads.submit(1, file, 0, vec![0; 1]).unwrap();
    let (watch, begun) = (reads.watch(), Instant::now());
    let mut done = Vec::new();
    assert_eq!(reads.poll(&mut done), 0);
    let waker = reads.watch();
    let other = std::thread::spawn(move || waker.wake());
    watch.wait(Some(LONG));
    assert!(begun.elapsed() < LONG && reads.poll(&mut done) == 0);
    other.join().unwrap();
    writer.write_all(&[1]).unwrap();
    wait_for(&mut reads, 1);
}

/// Dropped with reads in flight: it waits for the answer, and the files are closed.
#[test]
fn dropping_waits_for_what_is_in_flight() {
    let Some(mut reads) = reads(4) else { return };
    let (file, mut writer) = pipe();
    for tag in 0..4 {
        reads.submit(tag, Arc::clone(&file), 0, vec![0; 10]).unwrap();
    }
    reads.poll(&mut Vec::new());
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        writer.write_all(&[1; 40]).unwrap();
    });
    let begun = Instant::now();
    drop(reads);
    assert!(begun.elapsed() >= Duration::from_millis(25) && begun.elapsed() < LONG);
    assert_eq!(Arc::strong_count(&file), 1);
    other.join().unwrap();
}

/// The kernel still has the address of the buffer: the buffer is leaked, and never given to somebody else.
#[test]
fn a_disk_that_does_not_answer_keeps_the_buffers() {
    let Some(mut reads) = reads(1) else { return };
    let (file, _writer) = pipe();
    reads.patience = Duration::from_millis(20);
    reads.submit(0, Arc::clone(&file), 0, vec![0; 10]).unwrap();
    reads.poll(&mut Vec::new());
    drop(reads);
    assert_eq!(Arc::strong_count(&file), 2, "the read has its file, and so its buffer");
}
