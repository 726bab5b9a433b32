//! While the engine takes no more writes, connections of the same event loop that read are answered as ever, those that
//! write are parked, and what waits is bounded.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::line_client::{Client, PATIENCE};
use crate::memory::MemoryEngine;
use situ::{Durability, Listener, Options, StoreEvent};
use situ_server::{Engine, Server, ServerOptions, StoreEngine};

fn one_loop() -> ServerOptions {
    ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..ServerOptions::default() }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// True if a write waits in the store and nothing gets on; some wait for a moment only.
fn is_stuck(engine: &StoreEngine) -> bool {
    let look = || {
        let properties = engine.store().properties();
        (properties.writes_waiting, properties.last_sequence)
    };
    let before = look();
    std::thread::sleep(Duration::from_millis(100));
    before.0 > 0 && before == look()
}

/// Reads `key` many times; the time that half of the reads took at most.
fn median_read(client: &mut Client, key: &str, value: &str) -> Duration {
    let mut times: Vec<Duration> = (0..101)
        .map(|_| {
            let started = Instant::now();
            client.send(&format!("get {key}\r\n"));
            client.expect(&[&format!("VALUE {key} 0 {}", value.len()), value, "END"]);
            started.elapsed()
        })
        .collect();
    times.sort();
    times[50]
}

#[test]
fn reads_go_on_and_writers_are_parked_while_the_engine_lets_a_batch_wait() {
    let engine = MemoryEngine::start(None);
    let server = Server::start(&one_loop(), Arc::clone(&engine)).unwrap();
    let mut reader = Client::connect(&server);
    assert_eq!(reader.ask("set r 0 0 2\r\nhi\r\n"), "STORED");
    engine.hold_back();

    let mut writer = Client::connect(&server);
    writer.send("set own 0 0 1\r\nx\r\n");
    wait_until("a write to wait", || engine.waiting() == 1);
    writer.send("flush_all\r\n");
    // What it sends now stays in the socket's buffers, which are some megabytes, and is run when the write is taken.
    let set = format!("set big 0 0 100000\r\n{}\r\n", "v".repeat(100_000));
    let socket = writer.0.get_ref().try_clone().unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let flood = set.repeat(640);
    let mut sent = 0;
    while let Ok(bytes) = (&socket).write(&flood.as_bytes()[sent..])
        && sent < flood.len()
    {
        sent += bytes;
    }
    assert!(sent < flood.len() / 2, "a parked connection took {sent} bytes");
    assert!(median_read(&mut reader, "r", "hi") < Duration::from_millis(50));
    assert_eq!(engine.waiting(), 1, "the next batch is not given before this one is taken");
    assert!(writer.hears_nothing());
    // Somebody else's change gathers in the next batch, and the flush that the writer asked for has not been run.
    let mut other = Client::connect(&server);
    other.send("set other 0 0 1\r\nx\r\n");
    std::thread::sleep(Duration::from_millis(50));
    assert!(median_read(&mut reader, "r", "hi") < Duration::from_millis(50));

    engine.let_go();
    writer.expect(&["STORED", "OK"]);
    assert_eq!(reader.ask("get r\r\n"), "END");
    assert_eq!(other.line(), "STORED");
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (&socket).write_all(&flood.as_bytes()[sent..]).unwrap());
        for _ in 0..640 {
            writer.expect(&["STORED"]);
        }
    });
    server.stop(PATIENCE);
}

#[test]
fn many_writers_fill_one_batch_and_then_wait_for_their_turn() {
    const WRITERS: usize = 60;
    let engine = MemoryEngine::start(None);
    let server = Server::start(&one_loop(), Arc::clone(&engine)).unwrap();
    let mut reader = Client::connect(&server);
    assert_eq!(reader.ask("set r 0 0 2\r\nhi\r\n"), "STORED");
    engine.hold_back();
    let mut writers: Vec<_> = (0..WRITERS).map(|_| Client::connect(&server)).collect();
    let value = "v".repeat(100_000);
    for (n, writer) in writers.iter_mut().enumerate() {
        // Of a connection that is held, a pipeline keeps its order; what it reads is what it wrote.
        writer.send(&format!(
            "set w{n} 0 0 100000\r\n{value}\r\nappend w{n} 0 0 1\r\n!\r\nget w{n}\r\nflush_all 1000\r\n"
        ));
    }
    wait_until("a write to wait", || engine.waiting() == 1);
    assert!(median_read(&mut reader, "r", "hi") < Duration::from_millis(50));
    assert!(writers.iter_mut().all(Client::hears_nothing));
    assert_eq!(engine.waiting(), 1);

    engine.let_go();
    for (n, writer) in writers.iter_mut().enumerate() {
        let changed = format!("{value}!");
        writer.expect(&["STORED", "STORED", &format!("VALUE w{n} 0 100001"), &changed, "END", "OK"]);
    }
    let largest = engine.batch_bytes_max.load(Ordering::SeqCst);
    assert!(largest > 1 << 20 && largest < (1 << 20) + 110_000, "{largest} bytes in a batch");
    server.stop(PATIENCE);
}

/// That a batch is taken is said by another thread than the one that answers it, and may be heard after the answer. It
/// used to count for the batch that waits then, and the next one was given to the engine beside it.
#[test]
fn what_is_heard_late_of_one_batch_does_not_count_for_the_next() {
    let engine = MemoryEngine::start(None);
    let server = Server::start(&one_loop(), Arc::clone(&engine)).unwrap();
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&server)).collect();
    engine.hold_back();
    clients[0].send("set a 0 0 1\r\nx\r\n");
    wait_until("a write to wait", || engine.waiting() == 1);
    let late = engine.let_go_in_silence();
    assert_eq!(clients[0].line(), "STORED");
    engine.hold_back();
    clients[1].send("set b 0 0 1\r\nx\r\n");
    wait_until("a write to wait", || engine.waiting() == 1);
    late.iter().for_each(|on_taken| on_taken());
    clients[2].send("set c 0 0 1\r\nx\r\n");
    assert!(clients[2].hears_nothing());
    assert_eq!(engine.waiting(), 1, "the next batch is not given before this one is taken");
    engine.let_go();
    assert_eq!((clients[1].line(), clients[2].line()), ("STORED".to_owned(), "STORED".to_owned()));
    server.stop(PATIENCE);
}

/// Who waits for somebody else's write that the engine holds back was taken for idle and closed.
#[test]
fn a_connection_that_waits_for_the_engine_is_not_idle() {
    let engine = MemoryEngine::start(None);
    let options = ServerOptions { idle_timeout_seconds: 1, ..one_loop() };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    engine.hold_back();
    let mut first = Client::connect(&server);
    first.send("set k 0 0 1\r\n1\r\n");
    wait_until("a write to wait", || engine.waiting() == 1);
    let mut second = Client::connect(&server);
    second.send("incr k 1\r\n");
    std::thread::sleep(Duration::from_millis(2500));
    engine.let_go();
    assert_eq!((first.line(), second.line()), ("STORED".to_owned(), "2".to_owned()));
    server.stop(PATIENCE);
}

/// Holds the store's flushing thread back after its first flush.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Opens a gate at the end of a test that fails, too: nothing else would let the store close.
struct Opener<'a>(&'a Gate);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Listener for Gate {
    fn event(&self, event: &StoreEvent) {
        if matches!(event, StoreEvent::Flushed { .. }) {
            let open = self.open.lock().unwrap();
            drop(self.opened.wait_while(open, |open| !*open).unwrap());
        }
    }
}

#[test]
fn reads_go_on_while_all_memtables_of_the_store_are_full() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let directory = tempfile::tempdir().unwrap();
        let gate = Arc::new(Gate::default());
        let mut options = Options::default();
        options.durability = durability;
        options.keyspace.memtable_bytes = 64 << 10;
        options.keyspace.memtables_max = 2;
        options.listener = Some(Arc::clone(&gate) as _);
        let engine = Arc::new(StoreEngine::open(directory.path(), options).unwrap());
        let server = Server::start(&one_loop(), Arc::clone(&engine)).unwrap();
        let mut reader = Client::connect(&server);
        assert_eq!(reader.ask("set r 0 0 2\r\nhi\r\n"), "STORED");

        let mut writer = Client::connect(&server);
        let value = "v".repeat(1000);
        let sets: String = (0..2000).map(|n| format!("set k{n} 0 0 1000\r\n{value}\r\n")).collect();
        let socket = writer.0.get_ref().try_clone().unwrap();
        std::thread::scope(|scope| {
            let _opener = Opener(&gate);
            scope.spawn(|| (&socket).write_all(sets.as_bytes()).unwrap());
            wait_until("the store to hold writes back", || is_stuck(&engine));
            assert!(engine.write_stalled());
            let median = median_read(&mut reader, "r", "hi");
            assert!(median < Duration::from_millis(50), "{durability:?}: {median:?}");
            assert_eq!(engine.store().properties().writes_waiting, 1);
            gate.open();
            for _ in 0..2000 {
                assert_eq!(writer.line(), "STORED");
            }
        });
        for n in [0, 999, 1999] {
            reader.send(&format!("get k{n}\r\n"));
            reader.expect(&[&format!("VALUE k{n} 0 1000"), &value, "END"]);
        }
        server.stop(PATIENCE);
        engine.store().close().unwrap();
    }
}

/// The store refused what waited beyond its bound, and clients that had done nothing wrong were answered with an error.
#[test]
fn large_values_on_many_loops_wait_for_each_other() {
    const VALUE_BYTES: usize = 30 << 20;
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.memtables_max = 2;
    options.listener = Some(Arc::clone(&gate) as _);
    let engine = Arc::new(StoreEngine::open(directory.path(), options).unwrap());
    let options = ServerOptions { threads: 4, max_value_bytes: VALUE_BYTES, ..one_loop() };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    let mut filler = Client::connect(&server);
    let fill = format!("set k 0 0 100000\r\n{}\r\n", "v".repeat(100_000)).repeat(20);
    filler.send(&fill);
    let opener = Opener(&gate);
    wait_until("the store to hold writes back", || is_stuck(&engine));
    // Connections are dealt to the loops in turn.
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    let value = "v".repeat(VALUE_BYTES);
    std::thread::scope(|scope| {
        let opener = opener;
        for (n, client) in clients.iter().enumerate() {
            let (mut socket, value) = (client.0.get_ref().try_clone().unwrap(), &value);
            scope.spawn(move || {
                write!(socket, "set big{n} 0 0 {VALUE_BYTES}\r\n").unwrap();
                socket.write_all(value.as_bytes()).unwrap();
                socket.write_all(b"\r\n").unwrap();
            });
        }
        wait_until("a large value to wait", || engine.store().properties().waiting_bytes > 30 << 20);
        std::thread::sleep(Duration::from_millis(300));
        drop(opener);
        for client in &mut clients {
            assert_eq!(client.line(), "STORED");
        }
        for _ in 0..20 {
            assert_eq!(filler.line(), "STORED");
        }
    });
    drop(clients);
    server.stop(PATIENCE);
    engine.store().close().unwrap();
}

/// A write that waits is answered when the store closes instead.
#[test]
fn writers_that_wait_hear_of_it_when_the_store_closes() {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let mut options = Options::default();
    options.keyspace.memtable_bytes = 64 << 10;
    options.keyspace.memtables_max = 2;
    options.listener = Some(Arc::clone(&gate) as _);
    let engine = Arc::new(StoreEngine::open(directory.path(), options).unwrap());
    let server = Server::start(&one_loop(), Arc::clone(&engine)).unwrap();
    let mut writer = Client::connect(&server);
    writer.send(&format!("set k 0 0 100000\r\n{}\r\n", "v".repeat(100_000)).repeat(20));
    let _opener = Opener(&gate);
    wait_until("the store to hold writes back", || is_stuck(&engine));
    std::thread::scope(|scope| {
        let _opener = Opener(&gate);
        scope.spawn(|| engine.store().close().unwrap());
        let mut answers: Vec<String> = (0..20).map(|_| writer.line()).collect();
        answers.dedup();
        let refused = "SERVER_ERROR the store is closed".to_owned();
        assert!(answers.ends_with(&[refused]) && answers.len() <= 2, "{answers:?}");
    });
    server.stop(PATIENCE);
}
