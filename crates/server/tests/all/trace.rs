//! Traces of requests: what each command leaves in one, by every way that it may take.

use crate::compactions::options;
use crate::memory::MemoryEngine;
use situ::{Durability, Options};
use situ_server::{Engine, Server, ServerOptions, StoreEngine, Tracer};
use situ_trace::{Keys, Operation, Outcome, Request, Trace};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Sends commands, with `quit` behind them. Returns the answers.
fn ask(server: &Server, commands: &str) -> String {
    let mut client = TcpStream::connect(server.addresses()[0]).unwrap();
    client.write_all(format!("{commands}quit\r\n").as_bytes()).unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).unwrap();
    answers
}

/// Records what `work` does.
fn record(tracer: &Tracer, keys: Keys, work: impl FnOnce()) -> Trace {
    let (mut file, mut work) = (Vec::new(), Some(work));
    let goes_on = || {
        // The recording is on when it asks for the second time, and everything was answered then.
        if let Some(work) = work.take() {
            work();
        }
        false
    };
    tracer.record(&mut file, keys, Duration::from_secs(600), 1 << 30, goes_on).unwrap();
    Trace::read(file).unwrap()
}

/// Returns operation, outcome, key and size of each request.
fn facts(trace: &Trace) -> Vec<(Operation, Outcome, String, u32)> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    let fact = |it: Request<'_>| (it.operation, it.outcome, text(it.key), it.value_bytes);
    trace.requests().map(fact).collect()
}

fn each_command<E: Engine>(engine: &Arc<E>) {
    use Operation::{Add, Append, Cas, Decr, Delete, Get, GetAndTouch, Incr, Set, Touch};
    use Outcome::{Hit, Miss};
    let options = ServerOptions { tracer: Arc::default(), ..options() };
    let server = Server::start(&options, Arc::clone(engine)).unwrap();
    assert_eq!(ask(&server, "set before 0 0 1\r\nx\r\n"), "STORED\r\n");
    let trace = record(&options.tracer, Keys::Plain, || {
        // One by one: writes of a pipeline are answered together, and so recorded in any order.
        for (command, answer) in [
            ("set a 0 0 3\r\nabc\r\n", "STORED\r\n"),
            ("set n 0 0 1 noreply\r\n5\r\n", ""),
            ("get a none before\r\n", "VALUE a 0 3\r\nabc\r\nVALUE before 0 1\r\nx\r\nEND\r\n"),
            ("gat 0 a\r\n", "VALUE a 0 3\r\nabc\r\nEND\r\n"),
            ("add a 0 0 2\r\nno\r\n", "NOT_STORED\r\n"),
            ("append a 0 0 2\r\nde\r\n", "STORED\r\n"),
            ("cas a 0 0 1 1000000\r\nz\r\n", "EXISTS\r\n"),
            ("incr n 2\r\n", "7\r\n"),
            ("decr none 2\r\n", "NOT_FOUND\r\n"),
            ("touch n 0\r\n", "TOUCHED\r\n"),
            ("delete n\r\n", "DELETED\r\n"),
            ("delete n\r\n", "NOT_FOUND\r\n"),
            ("mg a v\r\n", "VA 5\r\nabcde\r\n"),
            ("ms m 2\r\nhi\r\n", "HD\r\n"),
            ("md m\r\n", "HD\r\n"),
            ("version\r\n", "VERSION"),
        ] {
            let found = ask(&server, command);
            assert!(found == answer || answer == "VERSION" && found.starts_with(answer), "{command}: {found}");
        }
    });
    let expected = [
        (Set, Hit, "a", 3),
        (Set, Hit, "n", 1),
        (Get, Hit, "a", 3),
        (Get, Miss, "none", 0),
        (Get, Hit, "before", 1),
        (GetAndTouch, Hit, "a", 3),
        (Add, Miss, "a", 2),
        (Append, Hit, "a", 2),
        (Cas, Miss, "a", 1),
        (Incr, Hit, "n", 1),
        (Decr, Miss, "none", 0),
        (Touch, Hit, "n", 1),
        (Delete, Hit, "n", 1),
        (Delete, Miss, "n", 0),
        (Get, Hit, "a", 5),
        (Set, Hit, "m", 2),
        (Delete, Hit, "m", 2),
    ];
    assert_eq!(
        facts(&trace),
        expected.map(|(operation, outcome, key, bytes)| (operation, outcome, key.to_owned(), bytes))
    );
    let requests: Vec<_> = trace.requests().collect();
    assert!(requests.is_sorted_by_key(|request| request.time) && requests[0].time < trace.duration());
    assert!(requests.iter().all(|request| request.latency < Duration::from_secs(60)));
    assert!(requests.iter().any(|request| !request.latency.is_zero()), "{requests:?}");
    let silent = record(&options.tracer, Keys::Hashed, || ());
    assert!(silent.is_empty(), "what came before is in no trace");
    ask(&server, "get a\r\n");
    server.stop(Duration::from_secs(5));
}

#[test]
fn each_command_is_in_the_trace_of_a_store() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let directory = tempfile::tempdir().unwrap();
        let engine = Arc::new(StoreEngine::open(directory.path(), Options::default().durability(durability)).unwrap());
        each_command(&engine);
        engine.store().close().unwrap();
    }
}

#[test]
fn each_command_is_in_the_trace_of_an_engine_in_memory() {
    each_command(&MemoryEngine::start(None));
}

/// A write that the engine refuses is a failure, and a read that comes later from the disk is a hit with its size.
#[test]
fn failures_and_reads_of_the_disk_are_in_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Arc::new(StoreEngine::open(directory.path(), Options::default()).unwrap());
    let engine = open();
    let server = Server::start(&options(), Arc::clone(&engine)).unwrap();
    assert_eq!(ask(&server, "set cold 0 0 4\r\ndata\r\n"), "STORED\r\n");
    server.stop(Duration::from_secs(5));
    engine.store().flush().unwrap();
    engine.store().close().unwrap();
    drop(engine);
    let engine = open();
    let options = options();
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    let trace = record(&options.tracer, Keys::Plain, || {
        assert_eq!(ask(&server, "get cold\r\n"), "VALUE cold 0 4\r\ndata\r\nEND\r\n");
        engine.store().close().unwrap();
        assert!(ask(&server, "set late 0 0 1\r\nx\r\n").starts_with("SERVER_ERROR"));
        assert!(ask(&server, "get cold\r\n").starts_with("SERVER_ERROR"));
    });
    let facts = facts(&trace);
    let expected = [
        (Operation::Get, Outcome::Hit, "cold".to_owned(), 4),
        (Operation::Set, Outcome::Failed, "late".to_owned(), 1),
        (Operation::Get, Outcome::Failed, "cold".to_owned(), 0),
    ];
    assert_eq!(facts, expected);
    server.stop(Duration::from_secs(5));
}
