use super::*;
use crate::Error;
use service::THREADS_MAX;
use situ_base::{Env, Executor, JobHandle};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// A file whose bytes are the low bytes of their offsets.
struct Numbers;

impl Reader for Numbers {
    fn path(&self) -> &str {
        "numbers"
    }

    fn bytes(&self) -> u64 {
        1000
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if offset + into.len() as u64 > 1000 {
            return Err(Error::corruption("numbers", offset, "file length", into.len(), "the end"));
        }
        into.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
        Ok(())
    }
}

fn queue(depth: usize) -> ReadQueue {
    ReadQueue::new(Env::system().executor.event(), depth)
}

#[test]
fn a_reader_that_knows_no_better_has_read_when_submit_returns() {
    let mut queue = queue(2);
    let mut done = Vec::new();
    assert_eq!((queue.wait(&mut done), queue.poll(&mut done)), (0, 0), "nothing is in flight");
    queue.submit(&Numbers, 7, 300, vec![0; 3]).unwrap();
    queue.submit(&Numbers, 8, 999, vec![0; 2]).unwrap();
    assert_eq!(queue.submit(&Numbers, 9, 0, vec![5; 4]).unwrap_err(), [5; 4], "busy");
    assert_eq!((queue.poll(&mut done), queue.in_flight()), (2, 0));
    assert_eq!((done[0].tag, done[0].offset, &done[0].buffer[..]), (7, 300, &[44, 45, 46][..]));
    assert!(done[0].result.is_ok() && done[1].result.as_ref().unwrap_err().is_corruption());
    queue.submit(&Numbers, 9, 0, vec![5; 4]).unwrap();
    assert_eq!(queue.wait(&mut done), 1);
    assert_eq!(done[2].buffer, [0, 1, 2, 3]);
}

#[test]
fn a_completion_that_is_dropped_completes_with_an_error_and_only_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let request = || {
        let count = Arc::clone(&count);
        ReadRequest::new(0, vec![1], move |buffer, result| {
            count.fetch_add(1, Ordering::SeqCst);
            assert_eq!(result.is_ok(), !buffer.is_empty(), "{result:?}");
        })
    };
    drop(request());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    request().run(|_, _| Ok(()));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let panics = || request().run(|_, _| panic!("in a read"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

/// A read that takes its time, as on a slow disk.
struct Slow {
    takes: Duration,
    request: ReadRequest,
}

impl QueuedRead for Slow {
    fn run(self) {
        self.request.run(|offset, into| {
            std::thread::sleep(self.takes);
            assert!(offset != 13, "an unlucky read");
            Numbers.read_at(offset, into)
        });
    }
}

/// A volume that can only be read by calls.
struct SlowFile {
    env: Env,
    takes: Duration,
    reads: ReadService<Slow>,
}

impl SlowFile {
    fn new(env: Env, takes: Duration) -> SlowFile {
        SlowFile { env, takes, reads: ReadService::default() }
    }
}

impl Reader for SlowFile {
    fn path(&self) -> &str {
        "slow"
    }

    fn bytes(&self) -> u64 {
        1000
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        Numbers.read_at(offset, into)
    }

    fn submit(&self, request: ReadRequest) {
        let read = Slow { takes: self.takes, request };
        self.reads.submit(read, || Ok(Served::threads(&self.env)));
    }
}

/// How long 64 reads of 10 ms take that one thread submits.
fn sixty_four_slow_reads() -> Duration {
    let file = SlowFile::new(Env::system(), Duration::from_millis(10));
    let mut queue = queue(64);
    let begun = Instant::now();
    for tag in 0..64 {
        queue.submit(&file, tag, tag * 14 + 1, vec![0; 4]).unwrap();
    }
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    let took = begun.elapsed();
    done.sort_by_key(|read| read.tag);
    for (tag, read) in done.iter().enumerate() {
        assert!(read.tag == tag as u64 && read.buffer[0] == (tag * 14 + 1) as u8 && read.result.is_ok());
    }
    took
}

/// One after the other, they would take 640 ms at every attempt. On a busy machine an attempt may take its time.
#[test]
fn sixty_four_reads_of_ten_milliseconds_by_threads_take_less_than_two_hundred() {
    let attempts: Vec<Duration> = (0..5).map(|_| sixty_four_slow_reads()).collect();
    assert!(attempts.iter().any(|took| *took < Duration::from_millis(200)), "{attempts:?}");
}

#[test]
fn a_read_that_panics_is_its_own_error_and_its_thread_goes_on() {
    let file = SlowFile::new(Env::system(), Duration::ZERO);
    let mut queue = queue(100);
    (0..100).for_each(|tag| queue.submit(&file, tag, 13 + tag % 2, vec![0; 4]).unwrap());
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    assert_eq!((done.len(), queue.in_flight()), (100, 0));
    for read in done {
        match (read.tag % 2, read.result) {
            (0, Err(error)) => assert!(error.to_string().contains("try again"), "{error}"),
            (1, Ok(())) => assert_eq!(read.buffer, [14, 15, 16, 17]),
            (_, other) => panic!("read {}: {other:?}", read.tag),
        }
    }
}

/// The system's threads, counted, and a bound on them.
struct Counted {
    max: usize,
    started: AtomicUsize,
    running: Arc<AtomicUsize>,
}

impl Executor for Counted {
    fn spawn(&self, name: &str, job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
        if self.started.fetch_add(1, Ordering::SeqCst) >= self.max {
            return Err(io::Error::other("no more threads"));
        }
        let running = Arc::clone(&self.running);
        running.fetch_add(1, Ordering::SeqCst);
        let job = move || {
            job();
            running.fetch_sub(1, Ordering::SeqCst);
        };
        Env::system().executor.spawn(name, Box::new(job))
    }

    fn event(&self) -> Arc<dyn Event> {
        Env::system().executor.event()
    }
}

fn counted(max: usize) -> (Env, Arc<Counted>) {
    let executor = Arc::new(Counted { max, started: AtomicUsize::new(0), running: Arc::default() });
    (Env { executor: Arc::clone(&executor) as Arc<dyn Executor>, ..Env::system() }, executor)
}

#[test]
fn threads_are_bounded_and_end_with_the_last_handle() {
    let (env, executor) = counted(usize::MAX);
    let file = SlowFile::new(env, Duration::from_millis(1));
    let mut queue = queue(200);
    (0..200).for_each(|tag| queue.submit(&file, tag, 0, vec![0; 4]).unwrap());
    // With reads that wait and reads in flight: all are done, and then the threads end.
    drop(file);
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    assert!(done.len() == 200 && done.iter().all(|read| read.result.is_ok()));
    assert!((1..=THREADS_MAX).contains(&executor.started.load(Ordering::SeqCst)));
    let begun = Instant::now();
    while executor.running.load(Ordering::SeqCst) > 0 {
        assert!(begun.elapsed() < LONG, "a thread has not ended");
        std::thread::yield_now();
    }
}

#[test]
fn without_any_thread_the_caller_reads() {
    for max in [0, 1] {
        let (env, _) = counted(max);
        let file = SlowFile::new(env, Duration::ZERO);
        let mut queue = queue(50);
        (0..50).for_each(|tag| queue.submit(&file, tag, 0, vec![0; 4]).unwrap());
        let mut done = Vec::new();
        while queue.wait(&mut done) > 0 {}
        assert!(done.len() == 50 && done.iter().all(|read| read.result.is_ok()));
    }
    let service = ReadService::<Slow>::default();
    let mut queue = queue(1);
    let landed = Arc::clone(&queue.landed);
    queue.in_flight = 1;
    let request = ReadRequest::new(1, vec![0; 2], move |buffer, result| {
        lock(&landed.reads).push(FinishedRead { tag: 1, offset: 1, buffer, result });
    });
    service.submit(Slow { takes: Duration::ZERO, request }, || Err(io::Error::other("no ring today")));
    let mut done = Vec::new();
    assert_eq!((queue.poll(&mut done), service.refused().as_deref()), (1, Some("no ring today")));
    assert_eq!(done[0].buffer, [1, 2]);
}

/// Refuses threads, but not before two are wanted.
struct RefusesTwo(std::sync::Barrier);

impl Executor for RefusesTwo {
    fn spawn(&self, _name: &str, _job: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JobHandle>> {
        self.0.wait();
        Err(io::Error::other("no more threads"))
    }

    fn event(&self) -> Arc<dyn Event> {
        Env::system().executor.event()
    }
}

/// Each of two callers counted on the thread of the other one, and only the last to be refused read, one of the two
/// reads. The other read waited without end.
#[test]
fn callers_that_are_refused_threads_at_the_same_time_read_both() {
    let executor = Arc::new(RefusesTwo(std::sync::Barrier::new(2)));
    let env = Env { executor, ..Env::system() };
    let threads = Served::threads(&env);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (answer, answered) = std::sync::mpsc::channel();
                let request = ReadRequest::new(7, vec![0; 2], move |buffer, _| answer.send(buffer).unwrap());
                let refused = threads.submit(Slow { takes: Duration::ZERO, request }).err();
                refused.into_iter().flatten().for_each(QueuedRead::run);
                assert_eq!(answered.recv_timeout(LONG).expect("the read is done"), [7, 8]);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 2);
}

/// A source whose thread dies of its second read.
struct Mortal(Vec<Slow>);

impl Source for Mortal {
    type Read = Slow;

    fn places(&self) -> usize {
        10
    }

    fn in_flight(&self) -> usize {
        self.0.len()
    }

    fn begin(&mut self, read: Slow) {
        self.0.push(read);
        assert!(self.0.len() < 2, "a bug of the source");
    }

    fn collect(&mut self) -> usize {
        0
    }
}

#[test]
fn a_pump_that_panics_leaves_nobody_waiting() {
    struct Nap;
    impl situ_device::Watch for Nap {
        fn wait(&self, _: Option<Duration>) {
            std::thread::sleep(Duration::from_millis(1));
        }
        fn wake(&self) {}
    }
    let service = ReadService::<Slow>::default();
    let start = || Ok(Served::Pump(Pump::start(&Env::system(), Arc::new(Nap), Mortal(Vec::new()))?));
    let (ended, answers) = (Env::system().executor.event(), Arc::new(Mutex::new(Vec::new())));
    let submit = || {
        let (answers, ended) = (Arc::clone(&answers), Arc::clone(&ended));
        let request = ReadRequest::new(0, vec![0; 2], move |_, result| {
            lock(&answers).push(result.is_ok());
            ended.notify();
        });
        service.submit(Slow { takes: Duration::ZERO, request }, start);
    };
    (0..3).for_each(|_| submit());
    loop {
        let seen = ended.generation();
        if lock(&answers).len() == 3 {
            break;
        }
        assert!(ended.wait(seen, Some(LONG)), "a read was never answered");
    }
    assert_eq!(lock(&answers)[..2], [false; 2]);
    // When the thread has ended, callers read for themselves.
    let begun = Instant::now();
    while lock(&answers).last() != Some(&true) {
        assert!(begun.elapsed() < LONG, "nobody reads any more");
        submit();
    }
}

/// A file of a remote node: requests wait in a table until the thread that receives answers them.
#[derive(Clone, Default)]
struct Remote {
    /// `None` when the connection is lost.
    open: Arc<Mutex<Option<Vec<ReadRequest>>>>,
}

impl Remote {
    fn connected() -> Remote {
        Remote { open: Arc::new(Mutex::new(Some(Vec::new()))) }
    }

    fn take(&self, count: usize) -> Vec<ReadRequest> {
        lock(&self.open).as_mut().map_or_else(Vec::new, |open| open.drain(..count).collect())
    }

    fn lose(&self) {
        // Apart, so that the requests are dropped without the lock.
        let lost = lock(&self.open).take();
        drop(lost);
    }
}

impl Reader for Remote {
    fn path(&self) -> &str {
        "remote"
    }

    fn bytes(&self) -> u64 {
        1000
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        unreachable!("only submitted reads")
    }

    fn submit(&self, request: ReadRequest) {
        let refused = match &mut *lock(&self.open) {
            Some(open) => {
                open.push(request);
                None
            }
            None => Some(request),
        };
        drop(refused);
    }
}

#[test]
fn a_node_a_slow_disk_and_memory_answer_one_queue_which_waits_once() {
    let (node, disk) = (Remote::connected(), SlowFile::new(Env::system(), Duration::from_millis(1)));
    let mut queue = queue(30);
    for tag in 0..10 {
        queue.submit(&node, tag, tag, vec![0; 2]).unwrap();
        queue.submit(&disk, 10 + tag, 100 + tag, vec![0; 2]).unwrap();
        queue.submit(&Numbers, 20 + tag, 200 + tag, vec![0; 2]).unwrap();
    }
    let network = std::thread::spawn({
        let node = node.clone();
        move || {
            node.take(6).into_iter().rev().for_each(|request| request.run(|at, into| Numbers.read_at(at, into)));
            node.lose();
        }
    });
    let mut done = Vec::new();
    while queue.wait(&mut done) > 0 {}
    network.join().unwrap();
    done.sort_by_key(|read| read.tag);
    assert_eq!(done.iter().map(|read| read.tag).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>(), "each once");
    for read in &done {
        let is_lost = (6..10).contains(&read.tag);
        assert_eq!(read.result.is_err(), is_lost, "read {}: {:?}", read.tag, read.result);
        assert!(is_lost || read.buffer == [read.offset as u8, read.offset as u8 + 1]);
    }
    // After the end of the connection.
    queue.submit(&node, 1, 1, vec![0; 2]).unwrap();
    assert_eq!(queue.wait(&mut done), 1);
    assert!(done[30].result.as_ref().unwrap_err().to_string().contains("try again"));
}
