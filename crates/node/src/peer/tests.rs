use super::*;
use crate::frame::{FIRST_PAYLOAD_BYTES, Header};
use crate::greeting::NoRequests;
use crate::testing::{Asked, Pair, Pipe, SOON, begin, call, echo, end, eventually, pair};
use situ_sim::SimMemory;
use std::io::{Read, Write};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

const READ: u16 = Operation::Read as u16;

fn quick() -> PeerOptions {
    PeerOptions { heartbeat: Duration::from_millis(20), ..PeerOptions::default() }
}

fn is_lost(error: &CallError, words: &str) -> bool {
    matches!(error, CallError::Lost { node, why } if node.contains("test") && why.contains(words))
}

#[test]
fn both_ends_ask_and_answer() {
    let Pair { host, device, .. } = pair(&quick(), echo(), echo());
    assert_eq!(call(&host, b"to the node").unwrap(), b"to the node");
    assert_eq!(call(&device, b"to the host").unwrap(), b"to the host");
    let long = vec![7; quick().payload_bytes_max as usize];
    assert_eq!(call(&host, &long).unwrap(), long);
}

#[test]
fn many_requests_in_flight_are_answered_out_of_order() {
    // The handler keeps all replies until the last request is there, and answers backwards.
    const COUNT: usize = 500;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let handler = Arc::clone(&kept);
    let backwards = Asked(move |_: &Peer, _, payload: Vec<u8>, reply| {
        let mut kept = lock(&handler);
        kept.push((payload, reply));
        if kept.len() == COUNT {
            kept.drain(..).rev().for_each(|(payload, reply): (Vec<u8>, Reply)| reply.answer(payload));
        }
    });
    let Pair { host, device: _device, .. } = pair(&quick(), Arc::new(NoRequests), Arc::new(backwards));
    let (sender, answers) = mpsc::channel();
    for number in 0..COUNT as u64 {
        let sender = sender.clone();
        host.peer().call_later(READ, number.to_le_bytes().to_vec(), Some(SOON), move |answer| {
            assert_eq!(answer.unwrap(), number.to_le_bytes());
            sender.send(number).unwrap();
        });
    }
    let order: Vec<u64> = (0..COUNT).map(|_| answers.recv_timeout(SOON).unwrap()).collect();
    assert_eq!(order, (0..COUNT as u64).rev().collect::<Vec<_>>());
}

#[test]
fn a_deadline_ends_the_wait_and_a_late_answer_harms_nobody() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let handler = Arc::clone(&kept);
    let slow = Asked(move |_: &Peer, _, payload: Vec<u8>, reply: Reply| match payload.is_empty() {
        true => lock(&handler).push(reply),
        false => reply.answer(payload),
    });
    let Pair { host, device: _device, .. } = pair(&quick(), Arc::new(NoRequests), Arc::new(slow));
    let after = Duration::from_millis(50);
    let error = host.peer().call(READ, Vec::new(), after).unwrap_err();
    assert!(matches!(error, CallError::TimedOut { after: told, .. } if told == after), "{error}");
    let (sender, told) = mpsc::channel();
    host.peer().call_later(READ, Vec::new(), Some(after), move |answer| sender.send(answer).unwrap());
    assert!(matches!(told.recv_timeout(SOON).unwrap(), Err(CallError::TimedOut { .. })));
    eventually("the node sees that nobody waits", || lock(&kept).iter().all(Reply::is_expired));
    lock(&kept).drain(..).for_each(|reply| reply.answer(b"late".to_vec()));
    assert_eq!(call(&host, b"next").unwrap(), b"next");
}

#[test]
fn a_request_that_is_dropped_or_panics_is_answered_with_an_error() {
    let handler = Asked(|_: &Peer, _, payload: Vec<u8>, reply: Reply| {
        assert!(payload.is_empty(), "a handler's bug");
        drop(reply);
    });
    let Pair { host, device: _device, .. } = pair(&quick(), Arc::new(NoRequests), Arc::new(handler));
    for payload in [&b""[..], b"panic", b""] {
        let error = call(&host, payload).unwrap_err();
        assert!(matches!(&error, CallError::Busy(why) if why.contains("has ended")), "{error}");
    }
}

#[test]
fn a_caller_waits_for_credit_and_the_other_end_never_has_more_than_it_granted() {
    // The handler answers nothing. What it holds is what it granted, and no more.
    let kept = Arc::new(Mutex::new(Vec::new()));
    let handler = Arc::clone(&kept);
    let hoard = Asked(move |_: &Peer, _, payload: Vec<u8>, reply| lock(&handler).push((payload.len(), reply)));
    let options = PeerOptions { payload_bytes_max: 64 << 10, window_bytes: 1 << 20, ..quick() };
    let Pair { host, device: _device, .. } = pair(&options, Arc::new(NoRequests), Arc::new(hoard));
    let peer = host.peer().clone();
    let done = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&done);
    let sender = std::thread::spawn(move || {
        for _ in 0..64 {
            let counter = Arc::clone(&counter);
            peer.call_later(READ, vec![0; 60 << 10], None, move |answer| {
                answer.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    eventually("the window is full", || lock(&kept).len() == 17);
    std::thread::sleep(Duration::from_millis(50));
    let held: usize = lock(&kept).iter().map(|(bytes, _)| bytes).sum();
    assert!(held <= 1 << 20 && !sender.is_finished(), "{held} bytes");
    while done.load(Ordering::Relaxed) < 64 {
        let replies: Vec<(usize, Reply)> = lock(&kept).drain(..).collect();
        replies.into_iter().for_each(|(_, reply)| reply.answer(Vec::new()));
        std::thread::yield_now();
    }
    sender.join().unwrap();
}

#[test]
fn a_caller_without_credit_gives_up_at_its_deadline() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let hoard = Asked(move |_: &Peer, _, _, reply: Reply| lock(&kept).push(reply));
    let options = PeerOptions { payload_bytes_max: 64 << 10, window_bytes: 256 << 10, ..quick() };
    let Pair { host, device: _device, .. } = pair(&options, Arc::new(NoRequests), Arc::new(hoard));
    for _ in 0..3 {
        host.peer().call_later(READ, vec![0; 64 << 10], None, drop);
    }
    let full = host.peer().call(READ, vec![0; 64 << 10], SOON / 10);
    assert!(matches!(full, Err(CallError::TimedOut { .. })));
    let full = host.peer().notify(Operation::Prefetch, vec![0; 64 << 10], Duration::from_millis(30));
    assert!(matches!(full, Err(CallError::TimedOut { .. })));
}

#[test]
fn an_answer_waits_for_a_slow_reader_and_the_queue_stays_bounded() {
    // Workers answer while the host takes no bytes: they wait, and the queue holds no more than its bound and a frame
    // for each.
    let answered = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&answered);
    let worker = Asked(move |_: &Peer, _, _, reply: Reply| {
        let counter = Arc::clone(&counter);
        std::thread::spawn(move || {
            reply.answer(vec![1; 512 << 10]);
            counter.fetch_add(1, Ordering::Relaxed);
        });
    });
    let options = PeerOptions { queue_bytes_max: 1 << 20, ..quick() };
    let Pair { host, device: _device, to_host } = pair(&options, Arc::new(NoRequests), Arc::new(worker));
    eventually("the host has credit", || lock(&host.peer().shared.state).credit > 1 << 20);
    to_host.hold(true);
    let (sender, answers) = mpsc::channel();
    for _ in 0..16 {
        let sender = sender.clone();
        host.peer().call_later(READ, Vec::new(), Some(SOON), move |answer| sender.send(answer).unwrap());
    }
    std::thread::sleep(Duration::from_millis(200));
    // One is half-way in the stream, two fill the queue, and each of few that raced finds room once.
    assert!(answered.load(Ordering::Relaxed) <= 5, "{}", answered.load(Ordering::Relaxed));
    to_host.hold(false);
    for _ in 0..16 {
        assert_eq!(answers.recv_timeout(SOON).unwrap().unwrap().len(), 512 << 10);
    }
}

/// A client that asked for much and took it slowly kept the threads of a node for as long as it liked.
#[test]
fn an_end_that_takes_its_answers_too_slowly_keeps_no_thread() {
    let answered = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&answered);
    let worker = Asked(move |_: &Peer, _, _, reply: Reply| {
        let counter = Arc::clone(&counter);
        std::thread::spawn(move || {
            reply.answer(vec![1; 512 << 10]);
            counter.fetch_add(1, Ordering::Relaxed);
        });
    });
    let answer_wait_max = Duration::from_millis(300);
    let options = PeerOptions { queue_bytes_max: 1 << 20, answer_wait_max, ..quick() };
    let Pair { host, device, to_host } = pair(&options, Arc::new(NoRequests), Arc::new(worker));
    to_host.hold(true);
    for _ in 0..16 {
        host.peer().call_later(READ, Vec::new(), Some(SOON), drop);
    }
    eventually("no thread waits", || answered.load(Ordering::Relaxed) == 16);
    assert!(is_lost(&device.peer().lost().unwrap(), "too slowly"));
    to_host.hold(false);
}

#[test]
fn notices_alone_do_not_use_up_the_credit() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let count = Asked(move |_: &Peer, _, _, reply: Reply| {
        assert!(reply.is_one_way());
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let options = PeerOptions { payload_bytes_max: 64 << 10, window_bytes: 256 << 10, ..quick() };
    let Pair { host, device: _device, .. } = pair(&options, Arc::new(NoRequests), Arc::new(count));
    for _ in 0..100 {
        host.peer().notify(Operation::Prefetch, vec![0; 20 << 10], SOON).unwrap();
    }
    eventually("all have arrived", || seen.load(Ordering::Relaxed) == 100);
}

#[test]
fn a_lost_connection_completes_all_open_requests_with_the_nodes_name() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let handler = Arc::clone(&kept);
    let hoard = Asked(move |_: &Peer, _, _, reply: Reply| lock(&handler).push(reply));
    let Pair { host, device, .. } = pair(&quick(), Arc::new(NoRequests), Arc::new(hoard));
    let (sender, answers) = mpsc::channel();
    for _ in 0..10 {
        let sender = sender.clone();
        host.peer().call_later(READ, Vec::new(), None, move |answer| sender.send(answer).unwrap());
    }
    eventually("the node has them", || lock(&kept).len() == 10);
    drop(device);
    for _ in 0..10 {
        assert!(is_lost(&answers.recv_timeout(SOON).unwrap().unwrap_err(), "closed"));
    }
    assert!(is_lost(&call(&host, b"").unwrap_err(), "closed"));
    // Nobody is told twice, and nothing waits.
    lock(&kept).drain(..).for_each(|reply| reply.answer(Vec::new()));
}

#[test]
fn a_silent_connection_is_given_up_and_an_idle_one_is_not() {
    let options = PeerOptions { silence_max: Duration::from_millis(900), ..quick() };
    let Pair { host, device: _device, to_host } = pair(&options, Arc::new(NoRequests), echo());
    // Twice the silence with heartbeats only.
    std::thread::sleep(Duration::from_millis(1800));
    assert_eq!(call(&host, b"still there").unwrap(), b"still there");
    to_host.hold(true);
    let error = call(&host, b"half open").unwrap_err();
    assert!(is_lost(&error, "nothing has come for 0.9 s"), "{error}");
}

/// A node once gave a connection up because its own disk had kept the thread that reads: it said that nothing had come.
#[test]
fn a_handler_that_keeps_the_reader_thread_makes_nobody_silent() {
    let silence = Duration::from_millis(900);
    let keeps = Asked(move |_: &Peer, _, payload: Vec<u8>, reply: Reply| {
        if payload == b"long" {
            std::thread::sleep(silence * 3);
        }
        reply.answer(payload);
    });
    let options = PeerOptions { silence_max: silence, ..quick() };
    let Pair { host, device, to_host } = pair(&options, Arc::new(NoRequests), Arc::new(keeps));
    std::thread::scope(|scope| {
        let long = scope.spawn(|| call(&host, b"long"));
        eventually("the reader thread is kept", || device.peer().held_up_for() > silence + silence / 2);
        assert!(device.peer().silent_for() < silence);
        assert_eq!(long.join().unwrap().unwrap(), b"long");
    });
    assert_eq!(call(&host, b"short").unwrap(), b"short");
    eventually("it reads again", || device.peer().held_up_for().is_zero());
    drop(to_host);
}

#[test]
fn a_thread_that_completes_requests_cannot_wait_for_one() {
    let Pair { host, device: _device, .. } = pair(&quick(), Arc::new(NoRequests), echo());
    let (sender, answers) = mpsc::channel();
    let peer = host.peer().clone();
    host.peer().call_later(READ, Vec::new(), Some(SOON), move |_| {
        sender.send(peer.call(READ, Vec::new(), SOON)).unwrap();
    });
    assert!(matches!(answers.recv_timeout(SOON).unwrap(), Err(CallError::Busy(_))));
}

#[test]
fn payloads_are_short_until_both_ends_know_each_other() {
    let (to_host, to_device) = (Pipe::default(), Pipe::default());
    let host = begin(Side::Host, end("node test", &to_host, &to_device), &quick(), Arc::new(NoRequests));
    let device = begin(Side::Device, end("host test", &to_device, &to_host), &quick(), echo());
    let long = vec![0; FIRST_PAYLOAD_BYTES as usize + 1];
    assert_eq!(call(&host, &long[1..]).unwrap().len(), FIRST_PAYLOAD_BYTES as usize);
    let error = call(&host, &long).unwrap_err().to_string();
    assert!(error.contains("longer than the 65536 bytes"), "{error}");
    // One that does not keep to it is hung up on.
    host.peer().open_up(1 << 20);
    assert!(is_lost(&call(&host, &long).unwrap_err(), ""));
    assert!(device.peer().lost().unwrap().to_string().contains("at most 65536 were agreed on"));
}

/// What a device says when bytes come in that no host sends.
fn after_bytes(bytes: &[u8]) -> String {
    let (to_host, mut to_device) = (Pipe::default(), Pipe::default());
    let device = begin(Side::Device, end("host test", &to_device, &to_host), &quick(), echo());
    to_device.write_all(bytes).unwrap();
    eventually("the connection is lost", || device.peer().lost().is_some());
    // The other direction ends, too.
    let _ = to_host.clone().read_to_end(&mut Vec::new());
    device.peer().lost().unwrap().to_string()
}

#[test]
fn frames_that_are_damaged_or_not_a_hosts_end_the_connection() {
    let header = |side, payload_bytes| Header {
        side,
        flags: 0,
        operation: READ,
        payload_bytes,
        timeout_ms: 0,
        request: 1,
        grant: 0,
        payload_crc: crc32c::crc32c(b"payload"),
    };
    let right = [&header(Side::Host, 7).encode()[..], b"payload"].concat();
    let mut wrong_payload = right.clone();
    *wrong_payload.last_mut().unwrap() ^= 1;
    assert!(after_bytes(&wrong_payload).contains("payload checksum"));
    let mut wrong_header = right.clone();
    wrong_header[frame::place::OPERATION] ^= 1;
    assert!(after_bytes(&wrong_header).contains("header checksum"));
    assert!(after_bytes(&header(Side::Device, 7).encode()).contains("own type"));
    assert!(after_bytes(&header(Side::Host, FIRST_PAYLOAD_BYTES + 1).encode()).contains("agreed on"));
    assert!(after_bytes(b"GET / HTTP/1.1\r\nHost: 10.0.0.2:7170\r\n\r\n").contains("magic"));
    // More requests than the first credit allows, from one that does not count.
    let greedy = right.repeat(frame::FIRST_CREDIT_BYTES as usize / frame::CHARGE_BYTES_MIN as usize + 1);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let hoard = Asked(move |_: &Peer, _, _, reply: Reply| lock(&kept).push(reply));
    let (to_host, mut to_device) = (Pipe::default(), Pipe::default());
    let device = begin(Side::Device, end("host test", &to_device, &to_host), &quick(), Arc::new(hoard));
    to_device.write_all(&greedy).unwrap();
    eventually("the connection is lost", || device.peer().lost().is_some());
    assert!(device.peer().lost().unwrap().to_string().contains("granted"));
}

#[test]
fn a_payload_takes_no_memory_before_its_length_is_checked_and_none_may_be_there() {
    let (to_host, to_device) = (Pipe::default(), Pipe::default());
    let device = begin(Side::Device, end("host test", &to_device, &to_host), &quick(), echo());
    let read = |payload_bytes| {
        let (side, flags, operation, timeout_ms, request, grant) = (Side::Host, 0, READ, 0, 1, 0);
        let header =
            Header { side, flags, operation, payload_bytes, timeout_ms, request, grant, payload_crc: 0 }.encode();
        threads::read_frame(&device.peer().shared, &mut &header[..]).unwrap_err()
    };
    for payload_bytes in [FIRST_PAYLOAD_BYTES + 1, frame::PAYLOAD_BYTES_LIMIT, u32::MAX] {
        let (why, largest) = SimMemory::largest(|| read(payload_bytes));
        assert!(why.contains("payload") && largest < 1000, "{largest} bytes: {why}");
    }
    let why = SimMemory::refusing(FIRST_PAYLOAD_BYTES as usize, || read(FIRST_PAYLOAD_BYTES));
    assert_eq!(why, "there is no memory for a payload of 65536 bytes");
}

#[test]
fn a_dropped_connection_leaves_no_thread() {
    let Pair { host, device, .. } = pair(&quick(), echo(), echo());
    call(&host, b"in use").unwrap();
    let weak = (Arc::downgrade(&host.peer().shared), Arc::downgrade(&device.peer().shared));
    drop((host, device));
    assert!(weak.0.upgrade().is_none() && weak.1.upgrade().is_none(), "a thread still has it");
}

#[test]
fn a_connection_may_be_dropped_by_a_completion_of_its_own() {
    let Pair { host, device: _device, .. } = pair(&quick(), Arc::new(NoRequests), echo());
    let peer = host.peer().clone();
    let (sender, done) = mpsc::channel();
    peer.call_later(READ, Vec::new(), Some(SOON), move |_| {
        drop(host);
        sender.send(()).unwrap();
    });
    done.recv_timeout(SOON).unwrap();
    assert!(peer.lost().is_some());
}

#[test]
fn bytes_are_counted_by_what_they_are_about() {
    let traffic = Arc::new(Traffic::default());
    let (to_host, to_device) = (Pipe::default(), Pipe::default());
    let stream = end("node test", &to_host, &to_device);
    let env = Env::system();
    let nobody: Arc<dyn Handler> = Arc::new(NoRequests);
    let options = PeerOptions { heartbeat: SOON, silence_max: SOON * 2, ..quick() };
    let host = Connection::begin(&env, Side::Host, stream, options, nobody, Arc::clone(&traffic)).unwrap();
    let _device = begin(Side::Device, end("host test", &to_device, &to_host), &quick(), echo());
    host.peer().call(READ, vec![0; 1000], SOON).unwrap();
    host.peer().call(Operation::Append as u16, vec![0; 500], SOON).unwrap();
    use crate::message::Class;
    assert_eq!((traffic.sent(Class::Read), traffic.received(Class::Read)), (1036, 1036));
    assert_eq!((traffic.sent(Class::Write), traffic.received(Class::Write)), (536, 536));
    assert_eq!(traffic.sent_bytes(), 1572);
}
