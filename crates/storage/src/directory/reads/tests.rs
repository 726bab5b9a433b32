use super::*;
use crate::{DirectoryVolume, FileName, ReadQueue, Reader, Volume};
use situ_base::Event;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

fn event() -> Arc<dyn Event> {
    Env::system().executor.event()
}

/// A pipe as a file: a disk that answers when the test does.
struct Pipe {
    open: Arc<OpenFile>,
    reads: Arc<DirectoryReads>,
}

impl Pipe {
    fn new(reads: &Arc<DirectoryReads>) -> (Pipe, File) {
        let (reader, writer) = std::io::pipe().unwrap();
        let file = Arc::new(File::from(OwnedFd::from(reader)));
        let open = Arc::new(OpenFile { file, path: "pipe".to_owned() });
        (Pipe { open, reads: Arc::clone(reads) }, File::from(OwnedFd::from(writer)))
    }
}

impl Reader for Pipe {
    fn path(&self) -> &str {
        "pipe"
    }

    fn bytes(&self) -> u64 {
        u64::MAX
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> crate::Result<()> {
        unreachable!("only submitted reads")
    }

    fn submit(&self, request: ReadRequest) {
        self.reads.submit(DirectoryRead { open: Arc::clone(&self.open), request }, start);
    }
}

/// Not one of the answers comes before all reads are in flight.
#[test]
fn sixty_four_reads_of_one_thread_are_with_the_kernel_at_once() {
    if let Err(error) = FileReads::new(1) {
        eprintln!("SKIPPED: no io_uring here: {error}");
        return;
    }
    let reads: Arc<DirectoryReads> = Arc::default();
    let mut pipes: Vec<(Pipe, File)> = (0..64).map(|_| Pipe::new(&reads)).collect();
    let mut queue = ReadQueue::new(event(), 64);
    for (tag, (pipe, _)) in pipes.iter().enumerate() {
        queue.submit(pipe, tag as u64, 0, vec![0; 100]).unwrap();
    }
    let mut done = Vec::new();
    assert_eq!(queue.poll(&mut done), 0);
    // The last answer first: a thread that did one read after the other would never come to an end.
    for tag in (0..64).rev() {
        pipes[tag].1.write_all(&[tag as u8; 100]).unwrap();
        assert_eq!(queue.wait(&mut done), 1);
        let read = done.pop().unwrap();
        assert!(read.tag == tag as u64 && read.result.is_ok() && read.buffer == [tag as u8; 100]);
    }
}

/// The thread ends when the last read has its answer, and closes the file then.
#[test]
fn reads_outlive_their_queue_their_file_and_their_volume_and_then_all_is_closed() {
    let reads: Arc<DirectoryReads> = Arc::default();
    let (pipe, mut writer) = Pipe::new(&reads);
    let open = Arc::downgrade(&pipe.open);
    let (mut left, mut kept) = (ReadQueue::new(event(), 3), ReadQueue::new(event(), 1));
    (0..3).for_each(|tag| left.submit(&pipe, tag, 0, vec![0; 10]).unwrap());
    kept.submit(&pipe, 3, 0, vec![0; 10]).unwrap();
    let begun = Instant::now();
    drop((left, pipe, reads));
    assert!(begun.elapsed() < LONG / 2, "nobody waits for a read that nobody wants");
    assert!(open.upgrade().is_some());
    writer.write_all(&[7; 40]).unwrap();
    let mut done = Vec::new();
    assert_eq!(kept.wait(&mut done), 1);
    assert!(done[0].result.is_ok() && done[0].buffer == [7; 10]);
    while open.upgrade().is_some() {
        assert!(begun.elapsed() < LONG, "the file is still open");
        std::thread::yield_now();
    }
    // Nobody has the other end any more.
    assert!(writer.write_all(&[7; 40]).is_err());
}

/// Where the system gives no ring.
#[test]
fn threads_read_a_directory_as_the_ring_does() {
    let directory = tempfile::tempdir().unwrap();
    let volume = DirectoryVolume::open(directory.path()).unwrap();
    let contents: Vec<u8> = (0..100_000u32).map(|at| (at / 7) as u8).collect();
    volume.replace(FileName::Table(1), &contents).unwrap();
    let threads = || Ok(Served::threads(&Env::system()));
    let (answers, ended) = (Arc::new(std::sync::Mutex::new(Vec::new())), event());
    let file = Arc::new(File::open(directory.path().join("000001.table")).unwrap());
    let open = Arc::new(OpenFile { file, path: "000001.table".to_owned() });
    for number in 0..200 {
        let (answers, ended) = (Arc::clone(&answers), Arc::clone(&ended));
        let request = ReadRequest::new(number * 500 + 300, vec![0; 500], move |buffer, result| {
            answers.lock().unwrap().push((number as usize, buffer, result));
            ended.notify();
        });
        volume.reads.submit(DirectoryRead { open: Arc::clone(&open), request }, threads);
    }
    loop {
        let seen = ended.generation();
        if answers.lock().unwrap().len() == 200 {
            break;
        }
        assert!(ended.wait(seen, Some(LONG)));
    }
    for (number, buffer, result) in answers.lock().unwrap().drain(..) {
        match number {
            199 => assert!(result.unwrap_err().to_string().contains("the end of the file at 100000")),
            _ => assert!(result.is_ok() && buffer == contents[number * 500 + 300..][..500], "read {number}"),
        }
    }
}
