use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;

use crate::engine::WriteBatch;
use crate::memory::MemoryEngine;
#[cfg(feature = "verbs")]
use crate::protocol::policy::Policy;
use situ_base::Clock;

fn start(engine: &Arc<MemoryEngine>) -> Server {
    let options =
        ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..ServerOptions::default() };
    Server::start(&options, Arc::clone(engine)).unwrap()
}

/// Sends commands and returns the answer, up to that of the `mn` that is added.
fn ask(stream: &mut TcpStream, commands: &str) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    stream.write_all(b"mn\r\n").unwrap();
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    loop {
        let before = answer.len();
        assert_ne!(reader.read_line(&mut answer).unwrap(), 0, "the server hung up after {answer:?}");
        if &answer[before..] == "MN\r\n" {
            answer.truncate(before);
            return answer;
        }
    }
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.addresses()[0]).unwrap()
}

#[test]
fn items_expire_at_their_second_in_both_forms() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    let absolute = server.clock.seconds() + 200;
    let commands =
        format!("set a 0 100 1\r\nA\r\nset b 0 {absolute} 1\r\nB\r\nset c 0 0 1\r\nC\r\nset d 0 -1 1\r\nD\r\n");
    assert_eq!(ask(&mut stream, &commands), "STORED\r\n".repeat(4));
    let all = "get a b c d\r\n";
    assert_eq!(ask(&mut stream, all), "VALUE a 0 1\r\nA\r\nVALUE b 0 1\r\nB\r\nVALUE c 0 1\r\nC\r\nEND\r\n");
    engine.time.pass(101);
    assert_eq!(ask(&mut stream, all), "VALUE b 0 1\r\nB\r\nVALUE c 0 1\r\nC\r\nEND\r\n");
    assert_eq!(
        ask(&mut stream, "touch a 10\r\nadd a 0 0 1\r\nx\r\ntouch b 50\r\n"),
        "NOT_FOUND\r\nSTORED\r\nTOUCHED\r\n"
    );
    engine.time.pass(100);
    assert_eq!(ask(&mut stream, "get b\r\n"), "END\r\n");
}

#[test]
fn a_recache_window_gives_the_win_to_one_client_and_survives_a_restart() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "ms a 1 T100\r\nA\r\nmg a R30\r\n"), "HD\r\nHD\r\n");
    engine.time.pass(80);
    assert_eq!(ask(&mut stream, "mg a R30\r\nmg a R30\r\n"), "HD W\r\nHD Z\r\n");
    assert_eq!(ask(&mut stream, "md a I T300\r\n"), "HD\r\n");
    server.stop(Duration::from_secs(5));
    let server = start(&engine);
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "mg a v\r\nmg a\r\n"), "VA 1 X W\r\nA\r\nHD Z X\r\n");
}

#[test]
fn a_delayed_flush_happens_once_at_its_time() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    assert_eq!(
        ask(&mut stream, "set a 0 0 1\r\nA\r\nflush_all 100\r\nget a\r\n"),
        "STORED\r\nOK\r\nVALUE a 0 1\r\nA\r\nEND\r\n"
    );
    engine.time.pass(101);
    assert_eq!(
        ask(&mut stream, "get a\r\nset a 0 0 1\r\nB\r\nget a\r\n"),
        "END\r\nSTORED\r\nVALUE a 0 1\r\nB\r\nEND\r\n"
    );
    engine.time.pass(1000);
    assert_eq!(ask(&mut stream, "get a\r\n"), "VALUE a 0 1\r\nB\r\nEND\r\n");
}

#[test]
fn a_flush_survives_a_restart_and_cas_ids_never_repeat() {
    let engine = MemoryEngine::start(None);
    let mut last_cas = 0;
    for round in 0..3 {
        let server = start(&engine);
        let mut stream = connect(&server);
        assert_eq!(ask(&mut stream, "get old\r\n"), "END\r\n", "round {round}");
        assert_eq!(ask(&mut stream, "set old 0 0 1\r\nA\r\nflush_all\r\n"), "STORED\r\nOK\r\n");
        assert_eq!(ask(&mut stream, "set kept 0 0 1\r\nB\r\n"), "STORED\r\n");
        let answer = ask(&mut stream, "gets kept\r\n");
        let cas: u64 = answer.lines().next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(cas > last_cas, "{cas} after {last_cas}");
        last_cas = cas;
        server.stop(Duration::from_secs(5));
    }
    let server = start(&engine);
    assert_eq!(ask(&mut connect(&server), "get old kept\r\n"), "VALUE kept 0 1\r\nB\r\nEND\r\n");
}

#[test]
fn a_flush_reaches_items_whatever_cas_ids_clients_gave_them() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    let store = |id: &str| format!("ms {id} 1 E{id} c\r\nx\r\n");
    let ids = ["1", "18446744073709551615"];
    for id in ids {
        assert_eq!(ask(&mut stream, &store(id)), format!("HD c{id}\r\n"));
    }
    assert_eq!(ask(&mut stream, "flush_all\r\nget 1 18446744073709551615\r\n"), "OK\r\nEND\r\n");
    // An id from long before the flush does not make an item dead on arrival, nor after a restart.
    for id in ids {
        ask(&mut stream, &store(id));
    }
    let look = "mg 1 c\r\nmg 18446744073709551615 c\r\n";
    assert_eq!(ask(&mut stream, look), "HD c1\r\nHD c18446744073709551615\r\n");
    server.stop(Duration::from_secs(5));
    let server = start(&engine);
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, look), "HD c1\r\nHD c18446744073709551615\r\n");
    // An ordinary change takes an id of the server's own again, above all others.
    let own = ask(&mut stream, "set 1 0 0 1\r\n5\r\nmg 1 c\r\nincr 1 1\r\nms 1 1 E0 c\r\nx\r\n");
    let own: Vec<u64> = own.lines().filter_map(|line| line.strip_prefix("HD c")?.parse().ok()).collect();
    assert!(own.len() == 2 && own[0] > 1 && own[0] < own[1], "{own:?}");
}

#[test]
fn the_compaction_filter_rule_agrees_with_reads() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    ask(&mut stream, "set short 0 100 1\r\nA\r\nset long 0 0 1\r\nA\r\n");
    let now = server.clock.seconds();
    let value = |key: &[u8]| engine.value(key).unwrap();
    assert!(!crate::is_expired(&value(b"short"), now));
    assert!(crate::is_expired(&value(b"short"), now + 101));
    assert!(!crate::is_expired(&value(b"long"), now + 101));
    ask(&mut stream, "flush_all\r\n");
    let rule = server.expiry_rule();
    assert!(rule.is_dead(&value(b"long")));
    ask(&mut stream, "set long 0 0 1\r\nA\r\n");
    assert!(!server.expiry_rule().is_dead(&value(b"long")));
}

#[test]
fn idleness_is_measured_without_the_wall_clock() {
    let engine = MemoryEngine::start(None);
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        idle_timeout_seconds: 2,
        ..ServerOptions::default()
    };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    for (jump, what) in
        [(1_000_000, "a jump forward closes no connection early"), (-2_000_000, "a jump back keeps none")]
    {
        let mut stream = connect(&server);
        let begin = Instant::now();
        assert_eq!(ask(&mut stream, "get a\r\n"), "END\r\n");
        engine.time.set(jump);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{what}");
        assert!(begin.elapsed() > Duration::from_secs(1), "{what}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_failing_engine_is_reported_and_the_protocol_stays_in_step() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "set a 0 0 1\r\n5\r\n"), "STORED\r\n");
    engine.failing.store(true, Ordering::SeqCst);
    let refused = "SERVER_ERROR the disk is full\r\n";
    assert_eq!(ask(&mut stream, "set a 0 0 4\r\nget \r\n"), refused);
    assert_eq!(ask(&mut stream, "set a 0 0 1 noreply\r\nx\r\n"), "");
    assert_eq!(ask(&mut stream, "incr a 1\r\ndelete a\r\ntouch a 5\r\nflush_all 50\r\n"), refused.repeat(4));
    assert_eq!(ask(&mut stream, "ms a 1 q\r\nx\r\nmd a q\r\n"), refused.repeat(2));
    // A touch that fails inside a retrieval ends it: a miss would deny an item that is there.
    assert_eq!(ask(&mut stream, "gat 10 a\r\ngats 10 none a a b\r\n"), refused.repeat(2));
    engine.failing.store(false, Ordering::SeqCst);
    assert_eq!(
        ask(&mut stream, "get a\r\nset a 0 0 1\r\n6\r\nincr a 1\r\n"),
        "VALUE a 0 1\r\n5\r\nEND\r\nSTORED\r\n7\r\n"
    );
}

/// It said that the object was too large, and left the old value to be taken for the new one.
#[test]
fn a_value_too_large_leaves_no_old_one_behind_that_cannot_be_read() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    let length = ServerOptions::default().max_value_bytes + 1;
    let too_large = |command: &str, flags: &str| format!("{command} {length}{flags}\r\n{}\r\n", "x".repeat(length));
    let unreadable = "SERVER_ERROR the disk cannot be read\r\n";
    for (command, flags, answer) in
        [("set a 0 0", "", unreadable), ("ms a", " q", unreadable), ("set a 0 0", " noreply", "")]
    {
        let before = statistics(&mut stream);
        assert_eq!(ask(&mut stream, "set a 0 0 1\r\n5\r\n"), "STORED\r\n");
        engine.failing_reads.store(true, Ordering::SeqCst);
        assert_eq!(ask(&mut stream, &too_large(command, flags)), answer);
        engine.failing_reads.store(false, Ordering::SeqCst);
        assert_eq!(ask(&mut stream, "get a\r\n"), "END\r\n", "{command}");
        let after = statistics(&mut stream);
        let counted = ["read_failures", "store_too_large"].map(|name| after(name) - before(name));
        assert_eq!(counted, [1.0, 1.0], "{command}");
    }
    // What cannot be removed is reported, too: the old value is still there.
    assert_eq!(ask(&mut stream, "set a 0 0 1\r\n5\r\n"), "STORED\r\n");
    engine.failing.store(true, Ordering::SeqCst);
    for reads_fail in [false, true] {
        let before = statistics(&mut stream);
        engine.failing_reads.store(reads_fail, Ordering::SeqCst);
        assert_eq!(ask(&mut stream, &too_large("set a 0 0", "")), "SERVER_ERROR the disk is full\r\n");
        engine.failing_reads.store(false, Ordering::SeqCst);
        let after = statistics(&mut stream);
        assert_eq!(after("write_failures") - before("write_failures"), 1.0);
    }
    assert_eq!(ask(&mut stream, "get a\r\n"), "VALUE a 0 1\r\n5\r\nEND\r\n");
}

/// A damaged item could be overwritten, and not deleted.
#[test]
fn an_item_that_cannot_be_read_can_be_deleted() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    let unreadable = "SERVER_ERROR the disk cannot be read\r\n";
    for (command, answer) in [("delete a\r\n", "DELETED\r\n"), ("md a\r\n", "HD\r\n"), ("md a q\r\n", "")] {
        assert_eq!(ask(&mut stream, "set a 0 0 1\r\n5\r\n"), "STORED\r\n");
        engine.failing_reads.store(true, Ordering::SeqCst);
        // These ask what it is.
        assert_eq!(ask(&mut stream, "get a\r\nmd a C5\r\nmd a I\r\nmd a x\r\ntouch a 5\r\n"), unreadable.repeat(5));
        assert_eq!(ask(&mut stream, command), answer);
        engine.failing_reads.store(false, Ordering::SeqCst);
        assert_eq!(ask(&mut stream, "get a\r\n"), "END\r\n", "{command}");
    }
}

#[test]
fn a_server_starts_on_an_engine_that_takes_no_writes_and_serves_reads() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    assert_eq!(ask(&mut connect(&server), "set a 0 0 1\r\n5\r\n"), "STORED\r\n");
    drop(server);
    engine.failing.store(true, Ordering::SeqCst);
    let server = start(&engine);
    assert!(server.warnings().iter().any(|warning| warning.contains("the disk is full")), "{:?}", server.warnings());
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "get a\r\n"), "VALUE a 0 1\r\n5\r\nEND\r\n");
    assert!(ask(&mut stream, "set b 0 0 1\r\n5\r\n").starts_with("SERVER_ERROR"));
    engine.failing.store(false, Ordering::SeqCst);
    assert_eq!(ask(&mut stream, "delete a\r\n"), "DELETED\r\n");
    // The first attempt reserves cas ids, and may be too early itself.
    ask(&mut stream, "set b 0 0 1\r\n5\r\n");
    assert_eq!(ask(&mut stream, "set b 0 0 1\r\n6\r\nget b\r\n"), "STORED\r\nVALUE b 0 1\r\n6\r\nEND\r\n");
}

#[test]
fn a_value_that_is_not_an_item_is_reported() {
    let engine = MemoryEngine::start(None);
    let mut batch = WriteBatch::default();
    batch.put(b"a", &[b"not an item"]).unwrap();
    engine.write(batch, &(Arc::new(|| ()) as _), Box::new(|result| result.unwrap()));
    let server = start(&engine);
    let mut stream = connect(&server);
    let damaged = "SERVER_ERROR the stored value was not written by this server\r\n";
    assert_eq!(ask(&mut stream, "get a\r\nmg a v\r\n"), damaged.repeat(2));
    // Setting it again heals it.
    assert_eq!(ask(&mut stream, "set a 0 0 1\r\nA\r\nget a\r\n"), "STORED\r\nVALUE a 0 1\r\nA\r\nEND\r\n");
}

#[test]
fn pipelined_sets_reach_the_engine_together() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    ask(&mut stream, "");
    let before = engine.writes.load(Ordering::SeqCst);
    let commands: String = (0..100).map(|index| format!("set key{index} 0 0 1\r\nx\r\n")).collect();
    assert_eq!(ask(&mut stream, &commands), "STORED\r\n".repeat(100));
    let batches = engine.writes.load(Ordering::SeqCst) - before;
    assert!(batches < 30, "{batches} batches for 100 pipelined sets");
}

#[test]
fn arithmetic_is_of_64_bits_wraps_upwards_and_stops_at_zero() {
    let server = start(&MemoryEngine::start(None));
    let mut stream = connect(&server);
    assert_eq!(ask(&mut stream, "set a 0 0 20\r\n18446744073709551615\r\nincr a 2\r\n"), "STORED\r\n1\r\n");
    assert_eq!(ask(&mut stream, "decr a 5\r\nincr a 18446744073709551615\r\n"), "0\r\n18446744073709551615\r\n");
    assert_eq!(ask(&mut stream, "ma b N0 J5 v\r\nma b v D7\r\n"), "VA 1\r\n5\r\nVA 2\r\n12\r\n");
}

#[test]
fn a_busy_port_is_explained() {
    let server = start(&MemoryEngine::start(None));
    let options = ServerOptions { listen: server.addresses().to_vec(), ..ServerOptions::default() };
    let error = Server::start(&options, MemoryEngine::start(None)).unwrap_err().to_string();
    assert!(error.contains("another process serves it"), "{error}");
}

/// A regular file at the path of the Unix socket was reported as another running server.
#[test]
fn a_file_at_the_path_of_the_socket_is_named_as_such() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    std::fs::write(&path, "precious").unwrap();
    let options = ServerOptions { unix_socket: Some(path.clone()), ..ServerOptions::default() };
    let error = Server::start(&options, MemoryEngine::start(None)).unwrap_err().to_string();
    assert!(error.contains("not a socket") && !error.contains("another process"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn http_serves_metrics_and_health_and_refuses_the_rest() {
    let engine = MemoryEngine::start(None);
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        ..ServerOptions::default()
    };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    ask(&mut connect(&server), "set a 0 0 1\r\nA\r\nget a b\r\ngat 100 a a a\r\n");
    let fetch = |request: &str| {
        let mut stream = TcpStream::connect(server.http_address().unwrap()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let metrics = fetch("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    for line in [
        "HTTP/1.1 200 OK",
        "situ_server_commands_total{command=\"set\"} 1",
        "situ_server_commands_total{command=\"gat\"} 1",
        "situ_server_touch_hits_total 3",
        "situ_server_get_hits_total 1",
        "situ_server_get_misses_total 1",
        "situ_server_command_seconds_count{class=\"store\"} 1",
        "memory_engine_batches_total{kind=\"a \\\"quoted\\\" one\"} ",
    ] {
        assert!(
            metrics.lines().any(|found| found == line || line.ends_with(' ') && found.starts_with(line)),
            "no {line:?} in\n{metrics}"
        );
    }
    assert!(fetch("GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
    engine.failing.store(true, Ordering::SeqCst);
    let sick = fetch("GET /healthz HTTP/1.1\r\n\r\n");
    assert!(sick.starts_with("HTTP/1.1 503 ") && sick.ends_with("the disk is full\n"), "{sick}");
    assert!(fetch("GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(fetch("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(fetch("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(fetch(&"x".repeat(8 << 10)).starts_with("HTTP/1.1 431 "));
}

/// Two threads with a deadline of 3 s each answered: eight silent connections held a health check up for 12 s.
#[test]
fn silent_connections_do_not_delay_a_health_check() {
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        ..ServerOptions::default()
    };
    let server = Server::start(&options, MemoryEngine::start(None)).unwrap();
    let connect = || TcpStream::connect(server.http_address().unwrap()).unwrap();
    let mut silent: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    // Some are slow rather than silent.
    for stream in silent.iter_mut().skip(90) {
        stream.write_all(b"GET /metr").unwrap();
    }
    let mut stream = connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // The oldest made room. The newest is still before its deadline, and may finish.
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
    let last = silent.last_mut().unwrap();
    last.write_all(b"ics HTTP/1.1\r\n\r\n").unwrap();
    answer.clear();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

fn statistics(stream: &mut TcpStream) -> impl Fn(&str) -> f64 + use<> {
    let text = ask(stream, "stats\r\n");
    move |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }
}

/// The numbers are those of memcached 1.6.18 for the same commands.
#[test]
fn every_retrieval_is_counted_as_a_hit_or_a_miss() {
    let server = start(&MemoryEngine::start(None));
    let mut stream = connect(&server);
    let commands = [
        ("set a 0 0 1\r\nx\r\n", [0, 0, 0, 0, 0]),
        ("mg a v\r\nmg b v\r\n", [2, 1, 1, 0, 0]),
        ("mg a T10 v\r\n", [0, 0, 0, 1, 0]),
        ("mg b T10 v\r\n", [1, 0, 1, 0, 0]),
        ("get a b\r\n", [2, 1, 1, 0, 0]),
        ("gat 10 a b\r\n", [0, 0, 0, 1, 1]),
        ("mg c N10 v\r\nmg a N10 v\r\n", [2, 2, 0, 0, 0]),
        ("mg d N10 T10\r\ntouch a 10\r\n", [0, 0, 0, 2, 0]),
        ("me a\r\nmd a\r\nmg a q\r\nmg a k q\r\n", [2, 0, 2, 0, 0]),
    ];
    let mut totals = [0; 5];
    for (text, counts) in commands {
        ask(&mut stream, text);
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        let stat = statistics(&mut stream);
        let names = ["cmd_get", "get_hits", "get_misses", "touch_hits", "touch_misses"];
        assert_eq!(names.map(|name| stat(name) as i32), totals, "after {text:?}");
        assert_eq!(stat("cmd_get"), stat("get_hits") + stat("get_misses"));
    }
    let stat = statistics(&mut stream);
    assert_eq!((stat("max_connections"), stat("limit_maxbytes")), (server.connections_max() as f64, 0.0));
    assert!(stat("rusage_user") >= 0.0 && stat("rusage_system") >= 0.0);
    ask(&mut stream, "stats reset\r\n");
    assert_eq!(statistics(&mut stream)("cmd_get"), 0.0);
}

/// The numbers are those of memcached 1.6.18 for the same commands: a late set that is kept as stale is a hit, too.
#[test]
fn conditional_stores_are_counted_by_what_became_of_them() {
    let server = start(&MemoryEngine::start(None));
    let mut stream = connect(&server);
    let commands = "ms a 1\r\nx\r\nms a 1\r\nx\r\nms a 1 C1 I\r\ny\r\ncas a 0 0 1 1\r\nz\r\ncas b 0 0 1 1\r\nz\r\n";
    assert_eq!(ask(&mut stream, commands), "HD\r\nHD\r\nHD\r\nEXISTS\r\nNOT_FOUND\r\n");
    let value = statistics(&mut stream);
    assert_eq!(["cas_hits", "cas_badval", "cas_misses"].map(value), [1.0, 1.0, 1.0]);
}

/// A brief jump forward fired a waiting flush for good, and a jump back brought expired items to life.
#[test]
fn a_wall_clock_that_jumps_both_ways_changes_nothing() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    let commands = "set a 0 100 1\r\nA\r\nset b 0 1000 1\r\nB\r\nflush_all 5000\r\n";
    assert_eq!(ask(&mut stream, commands), "STORED\r\nSTORED\r\nOK\r\n");
    let both = "VALUE a 0 1\r\nA\r\nVALUE b 0 1\r\nB\r\nEND\r\n";
    engine.time.set(1_000_000);
    assert_eq!(ask(&mut stream, "get a b\r\n"), both, "a jump forward");
    engine.time.set(-1_000_000);
    assert_eq!(ask(&mut stream, "get a b\r\n"), both, "and back");
    engine.time.pass(101);
    let expired = "VALUE b 0 1\r\nB\r\nEND\r\n";
    assert_eq!(ask(&mut stream, "get a b\r\n"), expired);
    engine.time.set(-1_000_000);
    assert_eq!(ask(&mut stream, "get a b\r\n"), expired, "a jump back");
    engine.time.set(1_000_000);
    engine.time.pass(5000);
    assert_eq!(ask(&mut stream, "set c 0 0 1\r\nC\r\nget b c\r\n"), "STORED\r\nVALUE c 0 1\r\nC\r\nEND\r\n");
}

/// Clients use Unix time, which may differ from the engine's clock.
#[test]
fn absolute_times_are_those_of_the_wall_clock_and_its_difference_is_shown() {
    let engine = MemoryEngine::start(None);
    let server = start(&engine);
    let mut stream = connect(&server);
    assert_eq!(statistics(&mut stream)("clock_difference"), 0.0);
    for jump in [31_536_000, -31_536_000 - 7200] {
        engine.time.set(jump);
        // A keeper does this within a second.
        assert!(engine.clock().look().is_some());
        let unix = engine.time.unix().as_secs();
        let answer = ask(&mut stream, &format!("set a 0 {} 1\r\nA\r\nmg a t\r\n", unix + 500));
        let seconds: u64 = answer.strip_prefix("STORED\r\nHD t").unwrap().trim().parse().unwrap();
        assert!((498..=501).contains(&seconds), "{seconds}");
        let stat = statistics(&mut stream);
        assert!((stat("time") - unix as f64).abs() <= 2.0 && stat("uptime") < 60.0);
        let expected = if jump > 0 { 31_536_000.0 } else { -7200.0 };
        assert_eq!(stat("clock_difference"), expected);
    }
    assert_eq!(ask(&mut stream, "flush_all 2000000000\r\nget a\r\n"), "OK\r\nVALUE a 0 1\r\nA\r\nEND\r\n");
    server.stop(Duration::from_secs(5));
}

/// A connection `a` over a Unix socket whose `set a`, `get big` and `set k` wait, the last for the stripe of `k`. When
/// the engine lets go, one turn of the loop grants the stripe and sends the first answers, in this order.
struct Granted {
    engine: Arc<MemoryEngine>,
    server: Server,
    a: UnixStream,
    other: TcpStream,
    /// Whoever waits for the engine; open until the test ends.
    _writers: [TcpStream; 2],
    _directory: tempfile::TempDir,
}

impl Granted {
    fn start(big: &str) -> Granted {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let engine = MemoryEngine::start(None);
        let options = ServerOptions {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            unix_socket: Some(path.clone()),
            threads: 1,
            max_output_bytes: 4 << 20,
            ..ServerOptions::default()
        };
        let server = Server::start(&options, Arc::clone(&engine)).unwrap();
        let mut other = connect(&server);
        assert_eq!(ask(&mut other, &format!("set big 0 0 {}\r\n{big}\r\n", big.len())), "STORED\r\n");
        let (mut first, mut owner) = (connect(&server), connect(&server));
        let mut a = UnixStream::connect(path).unwrap();
        a.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The loop has taken the connections before anything depends on the order.
        assert_eq!(ask(&mut owner, ""), "");
        a.write_all(b"mn\r\n").unwrap();
        a.read_exact(&mut [0; 4]).unwrap();
        engine.hold_back();
        first.write_all(b"set x 0 0 1\r\nx\r\n").unwrap();
        while engine.waiting() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The loop serves in the order of arrival: whoever asks is answered after what was sent before has run.
        owner.write_all(b"set k 0 0 1\r\n1\r\n").unwrap();
        assert_eq!(ask(&mut other, ""), "");
        a.write_all(b"set a 0 0 1\r\na\r\nget big\r\nset k 0 0 1\r\n2\r\n").unwrap();
        assert_eq!(ask(&mut other, ""), "");
        Granted { engine, server, a, other, _writers: [first, owner], _directory: directory }
    }
}

/// The stripe came before the socket was found full, and was kept until the client read.
#[test]
fn a_client_that_does_not_read_keeps_no_stripe() {
    // More than the socket takes, and less than the share of answers that lets the next command run.
    let big = "v".repeat(1 << 20);
    let mut granted = Granted::start(&big);
    granted.engine.let_go();
    granted.other.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    granted.other.write_all(b"set k 0 0 1\r\n3\r\n").unwrap();
    let mut answer = [0; 8];
    granted.other.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\n");
    // The command of the slow client asks again, and is run after the other.
    let mut expected = format!("STORED\r\nVALUE big 0 {}\r\n{big}\r\nEND\r\n", big.len()).into_bytes();
    expected.extend_from_slice(b"STORED\r\n");
    let mut answers = vec![0; expected.len()];
    granted.a.read_exact(&mut answers).unwrap();
    assert!(answers == expected);
    assert_eq!(ask(&mut granted.other, "get k\r\n"), "VALUE k 0 1\r\n2\r\nEND\r\n");
    granted.server.stop(Duration::from_secs(10));
}

/// The answer of the command before was the last for a connection that had just been granted its stripe.
#[test]
fn a_server_that_stops_runs_a_command_that_waited_for_a_stripe() {
    let Granted { engine, server, mut a, mut other, .. } = Granted::start("v");
    std::thread::scope(|scope| {
        scope.spawn(|| server.stop(Duration::from_secs(10)));
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "the loop has heard that it is to stop");
        engine.let_go();
        let mut answers = String::new();
        a.read_to_string(&mut answers).unwrap();
        assert_eq!(answers, "STORED\r\nVALUE big 0 1\r\nv\r\nEND\r\nSTORED\r\n");
    });
}

/// A loop made the server's end of a connection over RDMA itself, and its other connections waited.
#[cfg(feature = "verbs")]
#[test]
fn other_connections_go_on_while_remote_memory_is_made() {
    let engine = MemoryEngine::start(None);
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        threads: 1,
        rdma: situ_transport::RdmaDevices::Any,
        ..ServerOptions::default()
    };
    let capacity = Capacity::of(&options).unwrap();
    let Listening { listeners, addresses, .. } = listen(&options).unwrap();
    let durable = Arc::new(Durable::open(Arc::clone(&engine)).unwrap());
    let mut parts = Parts::new(&options, &capacity, &addresses, (engine, durable), Policy::default()).unwrap();
    let mut server = Server::without_threads(&parts).unwrap();
    server.addresses = addresses;
    server.start_loops(&parts, listeners).unwrap();
    // There is no thread that makes memory.
    let errands = parts.errands.take().unwrap();
    let mut moving = connect(&server);
    moving.write_all(b"rdma 1 4096 1024 17 1 0 1\r\n").unwrap();
    let greeting = errands.recv().unwrap();
    // Commands that come too early are run when the memory was refused.
    moving.write_all(b"set early 0 0 1\r\nx\r\n").unwrap();
    let mut other = connect(&server);
    for _ in 0..100 {
        assert_eq!(ask(&mut other, "get early\r\n"), "END\r\n");
    }
    greeting.run();
    let answer = ask(&mut moving, "");
    assert_eq!(answer, "SERVER_ERROR no RDMA device here has the address 127.0.0.1\r\nSTORED\r\n");
    // A client that goes meanwhile leaves nothing.
    moving.write_all(b"rdma 1 4096 1024 17 1 0 1\r\n").unwrap();
    let greeting = errands.recv().unwrap();
    drop(moving);
    greeting.run();
    while parts.loops.places.taken() > 1 {
        ask(&mut other, "");
    }
}
