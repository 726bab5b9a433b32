//! The traps of `io_uring`, one test each and more. Pipes stand in for devices that are slow, answer in parts, or never
//! answer.

use super::*;
use crate::PAGE_BYTES;
use crate::skipped::skipped;
use crate::target::Target;
use crate::uring::file::FileCommands;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

type FileQueue = RingQueue<FileCommands>;

const LONG: Duration = Duration::from_secs(20);

/// None, said aloud, where the system gives no rings to this process.
fn queue_over(file: File, depth: u32) -> Option<FileQueue> {
    let commands = FileCommands::new(Target::fake(file, 1 << 30), Arc::default());
    match RingQueue::new(commands, depth, Mode::default()) {
        Ok(queue) => Some(queue),
        Err(error) => {
            skipped(format_args!("no io_uring here: {error}"));
            None
        }
    }
}

/// A queue whose reads are answered by what is written to the other end.
fn pipe_queue(depth: u32) -> Option<(FileQueue, File)> {
    let (reader, writer) = std::io::pipe().unwrap();
    Some((
        queue_over(File::from(std::os::fd::OwnedFd::from(reader)), depth)?,
        File::from(std::os::fd::OwnedFd::from(writer)),
    ))
}

fn read(queue: &mut FileQueue) -> Ticket {
    queue.submit(Op::Read { offset: 0 }, Buffer::new(PAGE_BYTES)).unwrap()
}

fn wait_one(queue: &mut FileQueue) -> Completion {
    let mut done = Vec::new();
    assert_eq!(queue.wait(&mut done, LONG), 1);
    done.pop().unwrap()
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn trap_1_a_short_transfer_is_continued_or_reported() {
    let Some((mut queue, mut writer)) = pipe_queue(2) else { return };
    read(&mut queue);
    for (value, bytes) in [(1, 1000), (2, 3000)] {
        writer.write_all(&vec![value; bytes]).unwrap();
        assert_eq!(queue.wait(&mut Vec::new(), Duration::from_millis(20)), 0, "{bytes} more bytes are not the whole");
    }
    writer.write_all(&[3; 96]).unwrap();
    let done = wait_one(&mut queue);
    done.result.unwrap();
    let expected: Vec<u8> = [(1, 1000), (2, 3000), (3, 96)].iter().flat_map(|(value, n)| vec![*value; *n]).collect();
    assert_eq!(done.buffer[..], expected);

    read(&mut queue);
    writer.write_all(&[4; 100]).unwrap();
    drop(writer);
    let error = wait_one(&mut queue).result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("100 of 4096 bytes"), "{error}");
}

#[test]
fn trap_1_a_short_write_is_continued() {
    // A pipe has room for 64 KiB; the rest of the transfer has to wait for the reader.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let Some(mut queue) = queue_over(File::from(std::os::fd::OwnedFd::from(writer)), 1) else { return };
    let mut buffer = Buffer::new(1 << 20);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index / 4096) as u8;
    }
    queue.submit(Op::Write { offset: 0, durable: false }, buffer).unwrap();
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; 1 << 20];
        reader.read_exact(&mut bytes).unwrap();
        bytes
    });
    let done = wait_one(&mut queue);
    done.result.unwrap();
    assert!(reader.join().unwrap() == done.buffer[..]);
}

#[test]
fn trap_2_a_negative_errno_becomes_an_error() {
    let file = tempfile::tempfile().unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
    let Some(mut queue) = queue_over(read_only, 1) else { return };
    queue.submit(Op::Write { offset: 0, durable: false }, Buffer::new(1)).unwrap();
    let error = wait_one(&mut queue).result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
}

#[test]
fn trap_3_a_buffer_in_flight_is_not_freed_with_the_queue() {
    let Some((mut queue, mut writer)) = pipe_queue(1) else { return };
    let buffer = Buffer::new(PAGE_BYTES);
    let address = buffer.address() as usize;
    queue.submit(Op::Read { offset: 0 }, buffer).unwrap();
    let gone = Arc::new(AtomicBool::new(false));
    let dropping = thread::spawn({
        let gone = Arc::clone(&gone);
        move || {
            drop(queue);
            gone.store(true, Ordering::SeqCst);
        }
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!gone.load(Ordering::SeqCst), "the kernel still has the buffer at {address:x}");
    // Whoever asks for memory now must not get what the kernel is about to fill.
    let others: Vec<Buffer> = (0..64).map(|_| Buffer::new(PAGE_BYTES)).collect();
    assert!(others.iter().all(|other| other.address() as usize != address));
    writer.write_all(&[7; PAGE_BYTES]).unwrap();
    dropping.join().unwrap();
    assert!(others.iter().all(|other| other.iter().all(|byte| *byte == 0)));
}

#[test]
fn trap_3_a_device_that_never_answers_costs_memory_not_safety() {
    let Some((mut queue, mut writer)) = pipe_queue(1) else { return };
    queue.patience = Duration::from_millis(20);
    let buffer = Buffer::new(PAGE_BYTES);
    let address = buffer.address();
    queue.submit(Op::Read { offset: 0 }, buffer).unwrap();
    drop(queue);
    // The read is still under way and fills the buffer, which nobody else has been given.
    writer.write_all(&[7; PAGE_BYTES]).unwrap();
    let begin = Instant::now();
    // SAFETY: the buffer was leaked; only the kernel writes to it, and reading a byte of it races with nothing else.
    while unsafe { address.add(PAGE_BYTES - 1).read_volatile() } != 7 {
        assert!(begin.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn trap_4_a_full_submission_queue_hands_the_buffer_back() {
    let Some((mut queue, mut writer)) = pipe_queue(4) else { return };
    for ticket in 0..4 {
        assert_eq!(read(&mut queue), Ticket(ticket));
    }
    for _ in 0..100 {
        let mut buffer = Buffer::new(PAGE_BYTES);
        buffer[0] = 42;
        let (buffer, error) = queue.submit(Op::Read { offset: 0 }, buffer).unwrap_err();
        assert_eq!((error.kind(), buffer[0]), (io::ErrorKind::WouldBlock, 42));
    }
    writer.write_all(&[1; PAGE_BYTES]).unwrap();
    wait_one(&mut queue).result.unwrap();
    assert_eq!(read(&mut queue), Ticket(4));
    writer.write_all(&[1; 4 * PAGE_BYTES]).unwrap();
    drop(writer);
}

#[test]
fn trap_5_waiting_for_a_slow_device_sleeps() {
    let Some((mut queue, mut writer)) = pipe_queue(1) else { return };
    let begin = processor_time();
    read(&mut queue);
    let begun = Instant::now();
    assert_eq!(queue.wait(&mut Vec::new(), Duration::from_millis(300)), 0);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        writer.write_all(&[1; PAGE_BYTES]).unwrap();
        writer
    });
    wait_one(&mut queue).result.unwrap();
    let used = processor_time() - begin;
    assert!(used < Duration::from_millis(8), "{used:?} of processor time in 600 ms of waiting");
    drop(writer.join().unwrap());
}

#[test]
fn trap_5_a_wait_with_nothing_in_flight_returns_at_once() {
    let Some((mut queue, _writer)) = pipe_queue(1) else { return };
    let begin = Instant::now();
    assert_eq!(queue.wait(&mut Vec::new(), LONG), 0);
    assert!(begin.elapsed() < LONG / 2);
}

/// One processor for the waiter and for what it waits for, which needs it for two milliseconds each time: a waiter that
/// went on spinning would take half of it away.
#[test]
fn trap_5_a_spinning_waiter_does_not_starve_what_it_waits_for() {
    const ROUNDS: u32 = 100;
    const WORK: Duration = Duration::from_millis(2);
    let Some((mut queue, mut writer)) = pipe_queue(1) else { return };
    let pin = || {
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        rustix::thread::sched_setaffinity(None, &one).is_ok()
    };
    let (asked, asking) = std::sync::mpsc::channel();
    let waiter = thread::spawn(move || {
        pin();
        let begin = processor_time();
        for _ in 0..ROUNDS {
            read(&mut queue);
            asked.send(()).unwrap();
            wait_one(&mut queue).result.unwrap();
        }
        processor_time() - begin
    });
    let device = thread::spawn(move || {
        pin();
        while asking.recv().is_ok() {
            let begin = processor_time();
            while processor_time() - begin < WORK {}
            writer.write_all(&[1; PAGE_BYTES]).unwrap();
        }
    });
    let used = waiter.join().unwrap();
    device.join().unwrap();
    assert!(used < WORK * ROUNDS / 8, "{used:?} spent beside {:?} of work", WORK * ROUNDS);
}

#[test]
fn trap_6_a_thread_that_leaves_with_operations_in_flight_takes_none_with_it() {
    let Some((mut queue, mut writer)) = pipe_queue(2) else { return };
    let mut queue = thread::spawn(move || {
        read(&mut queue);
        read(&mut queue);
        queue
    })
    .join()
    .unwrap();
    // The kernel cancels what a thread has submitted when it ends; whoever has the queue now sends it again.
    assert_eq!(queue.wait(&mut Vec::new(), Duration::from_millis(50)), 0);
    writer.write_all(&[5; 2 * PAGE_BYTES]).unwrap();
    let mut done = Vec::new();
    while done.len() < 2 {
        assert!(queue.wait(&mut done, LONG) > 0);
    }
    for done in done {
        done.result.unwrap();
        assert!(done.buffer.iter().all(|byte| *byte == 5));
    }
}

#[test]
fn a_kernel_that_only_ever_says_try_again_is_reported() {
    let Some((mut queue, _writer)) = pipe_queue(1) else { return };
    let operation = InFlight::new(Ticket(0), Op::Read { offset: 0 }, Buffer::new(1));
    let key = queue.kept.table.insert(operation).unwrap();
    let again = -rustix::io::Errno::AGAIN.raw_os_error();
    queue.kept.table.get(key).unwrap().retries = RETRIES_MAX;
    queue.results.push((key, again));
    queue.collect();
    let done = queue.finished.pop().unwrap();
    assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// A durable write to a file, alone: held until it is known whether anything comes to overlap with it.
fn durable_write(queue: &mut FileQueue, page: u64) -> Ticket {
    let mut buffer = Buffer::new(PAGE_BYTES);
    buffer.fill(page as u8 + 1);
    queue.submit(Op::Write { offset: page * PAGE_BYTES as u64, durable: true }, buffer).unwrap()
}

#[test]
fn an_operation_that_is_better_called_when_alone_is_done_however_it_goes_on() {
    let file = tempfile::tempfile().unwrap();
    let Some(mut queue) = queue_over(file.try_clone().unwrap(), 4) else { return };
    let mut done = Vec::new();
    // Waited for at once: a call.
    durable_write(&mut queue, 0);
    assert!(queue.held.is_some());
    assert_eq!(queue.wait(&mut done, Duration::ZERO), 1);
    // Followed by others: all in the ring.
    for page in 1..4 {
        durable_write(&mut queue, page);
    }
    assert!(queue.held.is_none());
    while done.len() < 4 {
        assert!(queue.wait(&mut done, LONG) > 0);
    }
    // Polled for: in the ring, too.
    durable_write(&mut queue, 4);
    while queue.poll(&mut done) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(done.iter().all(|done| done.result.is_ok()));
    assert_eq!(done.iter().map(|done| done.ticket).max(), Some(Ticket(4)));
    // Dropped with the queue.
    durable_write(&mut queue, 5);
    drop(queue);
    let mut bytes = Vec::new();
    let mut file = file;
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    let pages: Vec<u8> = bytes.chunks(PAGE_BYTES).map(|page| page[PAGE_BYTES - 1]).collect();
    assert_eq!(pages, [1, 2, 3, 4, 5, 6]);
}

/// What goes past the page cache and comes back again and again is named by its place from then on, in either
/// direction; what goes through the page cache is not.
#[test]
fn a_buffer_that_comes_back_is_transferred_by_its_place() {
    const BYTES: usize = 256 << 10;
    const ROUNDS: usize = 8;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(BYTES as u64).unwrap();
    let direct = Target::open(file.path(), false).unwrap();
    if !direct.direct {
        return skipped(format_args!("{} is used through the page cache", file.path().display()));
    }
    let cached = Target::fake(file.reopen().unwrap(), BYTES as u64);
    for (target, expected) in [(direct, true), (cached, false)] {
        for op in [Op::Write { offset: 0, durable: false }, Op::Read { offset: 0 }] {
            let commands = FileCommands::new(target.clone(), Arc::default());
            let mut queue = match RingQueue::new(commands, 1, Mode::default()) {
                Ok(queue) => queue,
                Err(error) => return skipped(format_args!("no io_uring here: {error}")),
            };
            let mut buffer = Buffer::new(BYTES);
            let mut by_place = Vec::new();
            for _ in 0..ROUNDS {
                queue.submit(op, buffer).unwrap();
                match queue.registry.in_use() {
                    Some(count) => by_place.push(count),
                    None => return skipped("this process may not register buffers"),
                }
                let done = wait_one(&mut queue);
                done.result.unwrap();
                buffer = done.buffer;
                assert_eq!(queue.registry.in_use(), Some(0));
            }
            assert_eq!(by_place[0], 0, "{op:?}: seen for the first time");
            assert_eq!(by_place[ROUNDS - 1], u32::from(expected), "{op:?}, direct: {}: {by_place:?}", target.direct);
        }
    }
}

/// The kernel's numbers of the commands that name a place, and of those that name an address.
#[test]
fn a_transfer_by_place_is_another_command() {
    let commands = FileCommands::new(Target::fake(tempfile::tempfile().unwrap(), 0), Arc::default());
    let (read, write) = (Op::Read { offset: 0 }, Op::Write { offset: 0, durable: false });
    for (op, registered, number) in [(read, None, 22), (write, None, 23), (read, Some(3), 4), (write, Some(3), 5)] {
        let mut operation = InFlight::new(Ticket(0), op, Buffer::new(PAGE_BYTES));
        operation.registered = registered;
        let Plan::Entry(entry) = commands.plan(&mut operation) else { panic!("{op:?} is done without the kernel") };
        let shown = format!("{entry:?}");
        assert!(shown.contains(&format!("op_code: {number},")), "{op:?} at {registered:?}: {shown}");
    }
}

/// The thread that waits is woken by completions and by others, and polled completions are left out.
#[test]
fn a_watch_is_told_of_completions_and_of_wakes() {
    let Some((mut queue, mut writer)) = pipe_queue(4) else { return };
    let watch = queue.watch().unwrap().expect("a ring can be watched");
    assert!(queue.watch().unwrap().is_some(), "asked for again");
    read(&mut queue);
    let mut done = Vec::new();
    let waker = Arc::clone(&watch);
    let other = thread::spawn(move || waker.wake());
    let begun = Instant::now();
    watch.wait(Some(LONG));
    assert_eq!(queue.poll(&mut done), 0);
    let answers = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        writer.write_all(&[9; PAGE_BYTES]).unwrap();
        writer
    });
    while queue.poll(&mut done) == 0 {
        watch.wait(Some(LONG));
    }
    assert!(begun.elapsed() < LONG && done[0].buffer.iter().all(|byte| *byte == 9));
    other.join().unwrap();
    answers.join().unwrap();
}
