//! Servers that hang up, stall, or say what is no answer: every call ends by its deadline, with an error that says what
//! may have happened.

use crate::vocabulary::{impatience, is_emulated};
use crate::wire::{Wire, address, listen};
use situ_client::{Client, Error, Options, Outcome, TransportKind};
use situ_transport::REQUEST_WORD;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Enough for a call that must not fail, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection of a client, seen from a server.
pub(crate) struct Guest(BufReader<Box<dyn Wire>>);

impl Guest {
    pub(crate) fn new(wire: Box<dyn Wire>) -> Guest {
        Guest(BufReader::new(wire))
    }

    /// Returns the next line, empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.0.read_line(&mut line);
        line
    }

    pub(crate) fn bytes(&mut self, count: usize) {
        let _ = self.0.read_exact(&mut vec![0; count]);
    }

    pub(crate) fn say(&mut self, text: &str) {
        let _ = self.0.get_mut().write_all(text.as_bytes());
    }

    /// Says nothing until the client hangs up.
    pub(crate) fn stall(&mut self) {
        let _ = std::io::copy(&mut self.0, &mut std::io::sink());
    }
}

/// A server that serves its n-th connection by a function.
pub(crate) struct Flaky {
    pub(crate) address: String,
    accepted: Arc<AtomicUsize>,
    /// The place of a Unix socket.
    _directory: TempDir,
}

impl Flaky {
    /// Starts a server that offers one transport.
    pub(crate) fn start(transport: TransportKind, serve: impl Fn(usize, &mut Guest) + Send + Sync + 'static) -> Flaky {
        let directory = tempfile::tempdir().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let address = address(transport, directory.path()).expect("the tests over a transport run where it is");
        let address = listen(&address, transport, Arc::clone(&accepted), serve);
        Flaky { address, accepted, _directory: directory }
    }

    pub(crate) fn options(&self, timeout: Duration) -> Options {
        let mut options = Options::new([self.address.clone()]);
        options.timeout = timeout;
        options
    }

    fn client(&self, timeout: Duration) -> Client {
        Client::open(&self.options(timeout)).unwrap()
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Runs each test over each transport. Those of RDMA need a device.
macro_rules! over_each_transport {
    ($($test:ident,)*) => {
        mod tcp {
            $(#[test] fn $test() { super::$test(situ_client::TransportKind::Tcp); })*
        }
        mod unix_socket {
            $(#[test] fn $test() { super::$test(situ_client::TransportKind::UnixSocket); })*
        }
        mod shared_memory {
            $(#[test] fn $test() { super::$test(situ_client::TransportKind::SharedMemory); })*
        }
        #[cfg(feature = "verbs")]
        mod rdma {
            $(#[test] fn $test() {
                if crate::wire::rdma_address().is_some() {
                    super::$test(situ_client::TransportKind::Rdma);
                }
            })*
        }
    };
}
pub(crate) use over_each_transport;

over_each_transport! {
    a_call_that_waits_uses_no_processor,
    a_server_that_hangs_up_leaves_the_outcome_of_a_write_unknown,
    a_server_that_hangs_up_leaves_no_doubt_about_a_read,
    half_an_answer_and_the_end_is_a_broken_connection,
    a_stalling_server_is_given_up_at_the_deadline,
    a_server_that_does_not_read_is_given_up_at_the_deadline,
    an_answer_without_an_end_is_given_up_at_the_deadline,
    an_answer_in_single_bytes_is_an_answer,
    garbage_is_an_error_of_one_call,
    a_connection_closed_while_idle_is_replaced_before_a_write,
    a_read_is_repeated_on_a_fresh_connection_once,
    an_error_answer_does_not_cost_the_connection,
    a_refused_command_with_a_value_costs_the_connection,
    calls_beyond_the_bound_of_connections_wait_until_their_deadline,
}

/// Runs a call that must end soon after `impatience()`.
fn late<T: std::fmt::Debug>(call: impl FnOnce() -> Result<T, Error>) -> Error {
    let begun = Instant::now();
    let error = call().unwrap_err();
    let taken = begun.elapsed();
    assert!(matches!(error, Error::Late { .. }), "{error}");
    assert!(taken >= impatience() && taken < PATIENCE / 2, "{taken:?}");
    error
}

fn a_server_that_hangs_up_leaves_the_outcome_of_a_write_unknown(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| drop(guest.line()));
    let client = server.client(PATIENCE);
    let error = client.set("key", "value", ()).unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert!(error.to_string().contains("may have run"), "{error}");
    for error in [client.delete("key").unwrap_err(), client.increment("key", 1).unwrap_err()] {
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    }
}

fn a_server_that_hangs_up_leaves_no_doubt_about_a_read(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| drop(guest.line()));
    let error = server.client(PATIENCE).get("key").unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::NotDone);
}

fn half_an_answer_and_the_end_is_a_broken_connection(transport: TransportKind) {
    for half in
        ["STO", "STORED\r", "VALUE key 0 5\r\nval", "VALUE key 0 5\r\nvalue\r\n", "VALUE key 0 5\r\nvalue\r\nEN"]
    {
        let server = Flaky::start(transport, move |_, guest| {
            let _ = guest.line();
            guest.say(half);
        });
        let client = server.client(PATIENCE);
        let error = match half.starts_with('S') {
            true => client.set("key", "", ()).unwrap_err(),
            false => client.get("key").map(drop).unwrap_err(),
        };
        assert!(matches!(error, Error::Broken { .. }), "{half:?}: {error}");
    }
}

fn a_stalling_server_is_given_up_at_the_deadline(transport: TransportKind) {
    for half in ["", "S", "VALUE key 0 1000000\r\nbeginning", "VALUE key 0 1\r\nx"] {
        let server = Flaky::start(transport, move |_, guest| {
            guest.say(half);
            guest.stall();
        });
        // Early bytes are no answer; these come after the command.
        let server = if half.is_empty() { server } else { after_command(transport, half) };
        let client = server.client(impatience());
        match half.starts_with('S') {
            true => assert_eq!(late(|| client.set("key", "value", ())).outcome(), Outcome::Unknown),
            false => assert_eq!(late(|| client.get("key")).outcome(), Outcome::NotDone),
        }
    }
}

fn after_command(transport: TransportKind, text: &'static str) -> Flaky {
    Flaky::start(transport, move |_, guest| {
        let _ = guest.line();
        guest.say(text);
        guest.stall();
    })
}

fn a_server_that_does_not_read_is_given_up_at_the_deadline(transport: TransportKind) {
    let server = Flaky::start(transport, |_, _| std::thread::sleep(PATIENCE));
    let value = vec![0; 64 << 20];
    let client = server.client(impatience());
    assert_eq!(late(|| client.set("key", &value, ())).outcome(), Outcome::Unknown);
}

/// A server that always has something to say, fast or slowly, is given up at the deadline, too.
fn an_answer_without_an_end_is_given_up_at_the_deadline(transport: TransportKind) {
    for (size, pause) in [(1, Duration::from_millis(2)), (1 << 20, Duration::ZERO)] {
        let server = Flaky::start(transport, move |_, guest| {
            let _ = guest.line();
            guest.say("VALUE key 0 1073741824\r\n");
            let begun = Instant::now();
            let more = "x".repeat(size);
            while begun.elapsed() < Duration::from_secs(2) {
                guest.say(&more);
                std::thread::sleep(pause);
            }
        });
        let client = server.client(impatience());
        late(|| client.get("key"));
    }
    let server = Flaky::start(transport, |_, guest| {
        let _ = guest.line();
        (0..70_000).for_each(|_| guest.say("STAT name value\r\n"));
    });
    let error = server.client(PATIENCE).stats("").unwrap().remove(0).1.unwrap_err();
    assert!(matches!(error, Error::Garbled { .. }), "{error}");
}

fn an_answer_in_single_bytes_is_an_answer(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| {
        while !guest.line().is_empty() {
            for byte in "VALUE key 3 5\r\nvalue\r\nEND\r\n".chars() {
                guest.say(&byte.to_string());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let client = server.client(PATIENCE);
    for _ in 0..3 {
        let item = client.get("key").unwrap().unwrap();
        assert_eq!((item.value.as_slice(), item.flags), (&b"value"[..], 3));
    }
    assert_eq!(server.accepted(), 1);
}

/// The first connection has garbage. The client closes it, and the next call has a new one.
fn garbage_is_an_error_of_one_call(transport: TransportKind) {
    for garbage in [
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
        "\0\0\0\0\0\0\0\0\0\0\n",
        "STORED\r\n",
        "VALUE other 0 1\r\nx\r\nEND\r\n",
        "VALUE key 0 1\r\nxEND\r\n",
        "VALUE key 0 99999999999999999999\r\n",
        "END\r\nEND\r\n",
    ] {
        let server = Flaky::start(transport, move |n, guest| {
            while !guest.line().is_empty() {
                guest.say(if n == 0 { garbage } else { "END\r\n" });
            }
        });
        let client = server.client(PATIENCE);
        let first = client.get("key");
        // An answer too many may come after the call. Then it is seen before the next one.
        let is_garbled = matches!(first, Err(Error::Garbled { .. }));
        assert!(is_garbled || (garbage.starts_with("END") && matches!(first, Ok(None))), "{garbage:?}: {first:?}");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(client.get("key").unwrap(), None, "{garbage:?}");
        assert_eq!(server.accepted(), 2, "{garbage:?}");
    }
}

/// A server may close idle connections. A write notices before it is sent, so its outcome is not unknown.
fn a_connection_closed_while_idle_is_replaced_before_a_write(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| {
        let _ = guest.line();
        guest.bytes(7);
        guest.say("STORED\r\n");
    });
    let client = server.client(PATIENCE);
    for n in 1..4 {
        client.set("key", "value", ()).unwrap();
        assert_eq!(server.accepted(), n);
        // The end of the connection reaches the client.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The server closes the connection when the second command comes: too late to notice before.
fn a_read_is_repeated_on_a_fresh_connection_once(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| {
        let _ = guest.line();
        guest.say("END\r\n");
        let _ = guest.line();
    });
    let client = server.client(PATIENCE);
    assert_eq!(client.get("key").unwrap(), None);
    assert_eq!(client.get("key").unwrap(), None);
    assert_eq!(server.accepted(), 2);
    assert_eq!(client.get_many(&["a", "b"]).unwrap(), [None, None]);
    assert_eq!(server.accepted(), 3);
    let error = client.set("key", "", ()).unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
}

fn an_error_answer_does_not_cost_the_connection(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| {
        while !guest.line().is_empty() {
            guest.say("SERVER_ERROR out of memory writing get response\r\n");
        }
    });
    let client = server.client(PATIENCE);
    for _ in 0..3 {
        let Err(Error::Refused { answer, .. }) = client.get("key") else { panic!("refused") };
        assert!(answer.ends_with("writing get response"));
    }
    assert_eq!(server.accepted(), 1);
}

/// A server that does not know a storage command reads the value as a command.
fn a_refused_command_with_a_value_costs_the_connection(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| {
        while !guest.line().is_empty() {
            guest.say("ERROR\r\n");
        }
    });
    let client = server.client(PATIENCE);
    for n in 1..3 {
        let Err(Error::Refused { answer, .. }) = client.append("key", "flush_all") else { panic!("refused") };
        assert_eq!(answer, "ERROR");
        assert_eq!(server.accepted(), n);
    }
}

fn calls_beyond_the_bound_of_connections_wait_until_their_deadline(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| guest.stall());
    let mut options = server.options(PATIENCE);
    options.connections_max = 2;
    let client = Client::open(&options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let slow = client.with_timeout(Duration::from_secs(2));
            scope.spawn(move || slow.set("key", "value", ()).unwrap_err());
        }
        while server.accepted() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let third = client.with_timeout(impatience());
        let error = late(|| third.set("key", "value", ()));
        assert_eq!(error.outcome(), Outcome::NotDone, "nothing was sent");
    });
    assert_eq!(server.accepted(), 2);
}

/// A wait in shared memory looks at the memory for a moment, and then sleeps.
fn a_call_that_waits_uses_no_processor(transport: TransportKind) {
    let server = Flaky::start(transport, |_, guest| guest.stall());
    let client = server.client(Duration::from_secs(1));
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = used();
    client.get("key").unwrap_err();
    let most = Duration::from_millis(if is_emulated() { 500 } else { 100 });
    assert!(used() - before < most, "{:?} of a second", used() - before);
}

/// A proxy may hang up on a command that it does not know.
#[test]
fn a_server_that_hangs_up_on_the_wish_for_shared_memory_is_served_over_the_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut guest = Guest::new(Box::new(stream.unwrap()));
            std::thread::spawn(move || {
                loop {
                    let line = guest.line();
                    if line.is_empty() || line.starts_with(REQUEST_WORD) {
                        return;
                    }
                    guest.bytes("value\r\n".len());
                    guest.say("STORED\r\n");
                }
            });
        }
    });
    let mut options = Options::new([path.to_str().unwrap()]);
    options.timeout = PATIENCE;
    let client = Client::open(&options).unwrap();
    client.set("key", "value", ()).unwrap();
    assert_eq!(client.transports()[0].1, Some(TransportKind::UnixSocket));
}

/// Each attempt at RDMA registers memory and takes a round trip. A client tried it with each connection.
#[cfg(feature = "verbs")]
#[test]
fn a_server_that_refuses_rdma_is_not_asked_again_for_a_while() {
    let Some(host) = crate::wire::rdma_address() else { return };
    let (accepted, asked) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&asked);
    let address = listen(&format!("{host}:0"), TransportKind::Tcp, Arc::clone(&accepted), move |_, guest| {
        let mut line = guest.line();
        if line.starts_with("rdma ") {
            counted.fetch_add(1, Ordering::SeqCst);
            guest.say("SERVER_ERROR all memory for RDMA is taken\r\n");
            line = guest.line();
        }
        if line.starts_with("get ") {
            guest.say("END\r\n");
        }
    });
    let mut options = Options::new([address]);
    options.timeout = PATIENCE;
    let client = Client::open(&options).unwrap();
    while accepted.load(Ordering::SeqCst) < 5 {
        assert!(client.get("key").unwrap().is_none());
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(client.transports()[0].1, Some(TransportKind::Tcp));
}
