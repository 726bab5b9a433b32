//! Futures: any executor can run them, queues are bounded, and every call ends by its deadline.

use crate::flaky::{Flaky, over_each_transport};
use crate::vocabulary::impatience;
use situ_client::{AsyncClient, Error, Outcome, TransportKind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

over_each_transport! {
    a_future_wakes_its_task_once,
    a_future_of_a_stalling_server_ends_at_its_deadline,
    a_full_queue_refuses_calls,
    a_connection_that_breaks_in_a_batch_leaves_only_the_rest_unknown,
    calls_end_although_the_client_is_dropped,
    many_threads_share_a_client,
}

struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Runs a future as the smallest executor does, without a timer. Returns how often it was woken, too.
fn block_on<T>(future: impl Future<Output = T>) -> (T, usize) {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (result, unpark.1.load(Ordering::SeqCst));
        }
        std::thread::park_timeout(PATIENCE);
    }
}

/// A server that answers every line with `answer`, but the first only after a moment.
fn answering(transport: TransportKind, answer: &'static str) -> Flaky {
    Flaky::start(transport, move |_, guest| {
        std::thread::sleep(Duration::from_millis(50));
        while !guest.line().is_empty() {
            guest.say(answer);
        }
    })
}

fn a_future_wakes_its_task_once(transport: TransportKind) {
    let server = answering(transport, "7\r\n");
    let client = AsyncClient::open(&server.options(PATIENCE)).unwrap();
    let (number, wakes) = block_on(client.increment("key", 1));
    assert_eq!((number.unwrap(), wakes), (Some(7), 1));
    let (both, _) = block_on(async {
        let (a, b) = (client.increment("a", 1), client.decrement("b", 1));
        (a.await.unwrap(), b.await.unwrap())
    });
    assert_eq!(both, (Some(7), Some(7)));
}

/// Nothing but the client's own clock ends this wait.
fn a_future_of_a_stalling_server_ends_at_its_deadline(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| guest.stall());
    let client = AsyncClient::open(&server.options(PATIENCE)).unwrap();
    let begun = Instant::now();
    // The first call keeps the lane busy for long; the others are queued behind it.
    let slow = client.set("slow", "value", ());
    std::thread::sleep(Duration::from_millis(100));
    let short = client.with_timeout(impatience());
    let (write, read) = (short.set("key", "value", ()), short.get("key"));
    let (write, read) = (block_on(write).0.unwrap_err(), block_on(read).0.unwrap_err());
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    for error in [write, read] {
        assert!(matches!(error, Error::Late { .. }), "{error}");
        assert_eq!(error.outcome(), Outcome::NotDone, "it was not sent");
    }
    drop(slow);
    let other = Flaky::start(transport, |_, guest| guest.stall());
    let client = AsyncClient::open(&other.options(impatience())).unwrap();
    assert_eq!(block_on(client.set("key", "value", ())).0.unwrap_err().outcome(), Outcome::Unknown);
    assert_eq!(client.get("key").wait().unwrap_err().outcome(), Outcome::NotDone);
}

fn a_full_queue_refuses_calls(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| guest.stall());
    let mut options = server.options(Duration::from_secs(2));
    options.queue_calls_max = 10;
    options.queue_bytes_max = 1000;
    let client = AsyncClient::open(&options).unwrap();
    let busy = client.get("busy");
    // The lane has taken the first call.
    std::thread::sleep(Duration::from_millis(200));
    let mut waiting: Vec<_> = (0..10).map(|_| client.get("key")).collect();
    let error = client.get("key").wait().unwrap_err();
    assert!(matches!(error, Error::QueueFull { calls: 10, .. }), "{error}");
    waiting.push(busy);
    for reply in waiting {
        assert!(matches!(reply.wait().unwrap_err(), Error::Late { .. }));
    }
    // All expired calls have left the queue. Its bytes are bounded, too, but one call may have more.
    std::thread::sleep(Duration::from_millis(200));
    let busy = client.get("busy");
    std::thread::sleep(Duration::from_millis(200));
    let first = client.set("key", vec![0; 2000], ());
    assert!(matches!(client.get("key").wait().unwrap_err(), Error::QueueFull { calls: 1, .. }));
    drop((busy, first));
}

fn a_connection_that_breaks_in_a_batch_leaves_only_the_rest_unknown(transport: TransportKind) {
    let server = Flaky::start(transport, |n, guest| {
        if n == 0 {
            // The batch behind this command is sent as a whole.
            let _ = guest.line();
            std::thread::sleep(Duration::from_millis(200));
            guest.say("1\r\n");
            for _ in 0..3 {
                let _ = guest.line();
                guest.say("2\r\n");
            }
            let _ = guest.line();
        } else {
            while !guest.line().is_empty() {
                guest.say("3\r\n");
            }
        }
    });
    let client = AsyncClient::open(&server.options(PATIENCE)).unwrap();
    let first = client.increment("key", 1);
    std::thread::sleep(Duration::from_millis(50));
    let rest: Vec<_> = (0..6).map(|_| client.increment("key", 1)).collect();
    assert_eq!(first.wait().unwrap(), Some(1));
    for (n, reply) in rest.into_iter().enumerate() {
        match (n, reply.wait()) {
            (0..3, answer) => assert_eq!(answer.unwrap(), Some(2)),
            (_, answer) => {
                let error = answer.unwrap_err();
                assert!(matches!(error, Error::Broken { outcome: Outcome::Unknown, .. }), "{n}: {error}");
            }
        }
    }
    assert_eq!(client.increment("key", 1).wait().unwrap(), Some(3));
}

fn calls_end_although_the_client_is_dropped(transport: TransportKind) {
    let server = answering(transport, "7\r\n");
    let client = AsyncClient::open(&server.options(PATIENCE)).unwrap();
    let replies: Vec<_> = (0..100).map(|_| client.increment("key", 1)).collect();
    drop(client);
    for reply in replies {
        assert_eq!(block_on(reply).0.unwrap(), Some(7));
    }
}

fn many_threads_share_a_client(transport: TransportKind) {
    let server = answering(transport, "7\r\n");
    let client = AsyncClient::open(&server.options(PATIENCE)).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (client, sender) = (client.clone(), sender.clone());
            scope.spawn(move || {
                let replies: Vec<_> = (0..50).map(|_| client.increment("key", 1)).collect();
                replies.into_iter().for_each(|reply| sender.send(reply.wait().unwrap()).unwrap());
            });
        }
    });
    drop(sender);
    assert_eq!(receiver.iter().filter(|number| *number == Some(7)).count(), 400);
}
