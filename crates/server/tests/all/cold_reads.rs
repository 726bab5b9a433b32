//! A read that needs the disk parks its own connection only, keeps the order of its commands, and changes no answer.

use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::line_client::{Client, PATIENCE};
use crate::memory::MemoryEngine;
use situ_server::{Server, ServerOptions};

fn loops(threads: usize) -> ServerOptions {
    ServerOptions { listen: vec!["127.0.0.1:0".parse().unwrap()], threads, ..ServerOptions::default() }
}

fn is_cold(key: &[u8]) -> bool {
    key.starts_with(b"cold")
}

/// A server with `threads` loops over a disk that answers within the call, until its reads are held.
fn serve(threads: usize) -> (Arc<MemoryEngine>, Server) {
    let engine = MemoryEngine::start_on_disk(None, None, is_cold);
    let server = Server::start(&loops(threads), Arc::clone(&engine)).unwrap();
    (engine, server)
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn waits_for_reads(engine: &MemoryEngine, reads: usize) {
    wait_until(&format!("{reads} reads"), || engine.reads_waiting() == reads);
}

#[test]
fn a_pipeline_keeps_its_order_around_a_cold_read_and_other_connections_go_on() {
    let (engine, server) = serve(1);
    let mut client = Client::connect(&server);
    for key in ["hot", "cold"] {
        assert_eq!(client.ask(&format!("set {key} 0 0 1\r\n{}\r\n", &key[..1])), "STORED");
    }
    engine.hold_reads();
    client.send("get hot\r\nget cold\r\nset hot 0 0 1\r\nH\r\nget hot\r\nmn\r\n");
    waits_for_reads(&engine, 1);
    client.expect(&["VALUE hot 0 1", "h", "END"]);
    assert!(client.hears_nothing());
    let mut other = Client::connect(&server);
    other.send("get hot\r\n");
    other.expect(&["VALUE hot 0 1", "h", "END"]);
    // What comes now waits in the socket.
    client.send("get hot cold\r\n");
    assert!(client.hears_nothing());
    assert_eq!(engine.reads_waiting(), 1);

    engine.let_reads_go();
    client.expect(&["VALUE cold 0 1", "c", "END", "STORED", "VALUE hot 0 1", "H", "END", "MN"]);
    client.expect(&["VALUE hot 0 1", "H", "VALUE cold 0 1", "c", "END"]);
    server.stop(PATIENCE);
}

/// A read behind the connection's own write sees it, though the engine answers the write late and the read later.
#[test]
fn a_cold_read_sees_the_writes_before_it() {
    const ROUNDS: usize = 50;
    let late = Some(Duration::from_micros(500));
    let engine = MemoryEngine::start_on_disk(late, late, is_cold);
    let server = Server::start(&loops(1), Arc::clone(&engine)).unwrap();
    let mut client = Client::connect(&server);
    for round in 10..10 + ROUNDS {
        client.send(&format!("set cold 0 0 2\r\n{round}\r\nget cold\r\nappend cold 0 0 1\r\n!\r\nmg cold v\r\n"));
        client.send("delete cold\r\nget cold none\r\n");
        let (value, appended) = (round.to_string(), format!("{round}!"));
        client.expect(&["STORED", "VALUE cold 0 2", &value, "END", "STORED", "VA 3", &appended, "DELETED", "END"]);
    }
    server.stop(PATIENCE);
}

/// Two loops, four connections, one key that is cold at each read.
#[test]
fn no_increment_of_a_cold_key_is_lost() {
    const CLIENTS: usize = 4;
    const EACH: usize = 100;
    let engine = MemoryEngine::start_on_disk(None, Some(Duration::from_micros(300)), is_cold);
    let server = Server::start(&loops(2), Arc::clone(&engine)).unwrap();
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("set cold 0 0 1\r\n0\r\nset coldtext 0 0 1\r\n.\r\n"), "STORED");
    assert_eq!(client.line(), "STORED");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::connect(server);
                client.send(&"incr cold 1\r\nma cold\r\nappend coldtext 0 0 1\r\nx\r\n".repeat(EACH));
                let mut last = 0;
                for _ in 0..EACH {
                    let number: u64 = client.line().parse().unwrap();
                    assert!(number > last, "{number} after {last}");
                    last = number;
                    client.expect(&["HD", "STORED"]);
                }
            });
        }
    });
    client.send("get cold coldtext\r\n");
    let (number, text) = ((2 * CLIENTS * EACH).to_string(), format!(".{}", "x".repeat(CLIENTS * EACH)));
    let length = format!("VALUE coldtext 0 {}", text.len());
    client.expect(&[&format!("VALUE cold 0 {}", number.len()), &number, &length, &text, "END"]);
    server.stop(PATIENCE);
}

/// While a connection changes a cold key, another change of the key waits, and the disk is asked for one of them only.
#[test]
fn changes_of_one_cold_key_wait_for_each_other() {
    let (engine, server) = serve(1);
    let mut clients = [0, 1, 2].map(|_| Client::connect(&server));
    assert_eq!(clients[0].ask("set cold 0 0 1\r\n5\r\n"), "STORED");
    engine.hold_reads();
    clients[0].send("incr cold 1\r\n");
    waits_for_reads(&engine, 1);
    clients[1].send("decr cold 2\r\n");
    clients[2].send("set cold 0 0 1\r\n9\r\n");
    assert!(clients.iter_mut().all(Client::hears_nothing));
    assert_eq!(engine.reads_waiting(), 1);
    engine.let_reads_go();
    assert_eq!([0, 1, 2].map(|n: usize| clients[n].line()), ["6", "4", "STORED"]);
    server.stop(PATIENCE);
}

#[test]
fn the_keys_of_a_retrieval_are_read_together() {
    let (engine, server) = serve(1);
    let mut client = Client::connect(&server);
    for n in 0..20 {
        assert_eq!(client.ask(&format!("set cold{n} 0 0 2\r\n{n:02}\r\n")), "STORED");
    }
    assert_eq!(client.ask("set hot 0 0 2\r\n--\r\n"), "STORED");
    engine.hold_reads();
    let keys: String = (0..20).map(|n| format!(" cold{n} hot none")).collect();
    client.send(&format!("get{keys}\r\nget cold0\r\n"));
    // The first eight keys: cold, hot, none, cold, hot, none, cold, hot.
    waits_for_reads(&engine, 3);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(engine.reads_waiting(), 3);
    assert!(client.hears_nothing());
    let hits = Client::connect(&server).statistic("get_hits");
    engine.let_reads_go();
    for n in 0..20 {
        client.expect(&[&format!("VALUE cold{n} 0 2"), &format!("{n:02}"), "VALUE hot 0 2", "--"]);
    }
    client.expect(&["END", "VALUE cold0 0 2", "00", "END"]);
    assert_eq!(client.statistic("get_hits") - hits, 41);
    assert_eq!(client.statistic("get_misses"), 20);
    server.stop(PATIENCE);
}

#[test]
fn a_connection_that_is_closed_while_it_waits_is_gone_when_its_read_ends() {
    let (engine, server) = serve(1);
    let mut other = Client::connect(&server);
    assert_eq!(other.ask("set cold 0 0 1\r\n5\r\n"), "STORED");
    engine.hold_reads();
    let mut reader = Client::connect(&server);
    reader.send("get cold\r\nget cold\r\n");
    let mut changer = Client::connect(&server);
    changer.send("incr cold 1\r\n");
    waits_for_reads(&engine, 2);
    // The reader is gone for good; the changer has only said that it sends no more.
    drop(reader);
    changer.0.get_ref().shutdown(Shutdown::Write).unwrap();
    other.send("incr cold 2\r\n");
    assert!(other.hears_nothing());
    engine.let_reads_go();
    assert_eq!(changer.rest(), "6\r\n");
    assert_eq!(other.line(), "8");
    wait_until("the connections to end", || other.statistic("curr_connections") == 1);
    server.stop(PATIENCE);
}

#[test]
fn reads_beyond_the_bound_wait_and_hot_keys_do_not() {
    /// Of 2048 reads, a loop has its part.
    const LOOPS: usize = 128;
    const EACH: usize = 2048 / LOOPS;
    let (engine, server) = serve(LOOPS);
    let mut first = Client::connect(&server);
    assert_eq!(first.ask("set hot 0 0 1\r\nh\r\nset cold 0 0 1\r\n1\r\n"), "STORED");
    assert_eq!(first.line(), "STORED");
    engine.hold_reads();
    // Connections are dealt to the loops in turn: these are all on one loop, the first one, too.
    let mut clients = Vec::new();
    for _ in 0..EACH + 4 {
        let others: Vec<Client> = (1..LOOPS).map(|_| Client::connect(&server)).collect();
        clients.push(Client::connect(&server));
        drop(others);
    }
    for (n, client) in clients.iter_mut().enumerate() {
        // Two that change the key, so that a command that owns its stripe meets the bound, too.
        let change = if n % 10 == 9 { format!("incr cold{n} 1\r\n") } else { String::new() };
        client.send(&format!("{change}get cold\r\n"));
    }
    waits_for_reads(&engine, EACH);
    assert!(clients.iter_mut().all(Client::hears_nothing));
    assert_eq!(engine.reads_waiting(), EACH);
    first.send("get hot\r\n");
    first.expect(&["VALUE hot 0 1", "h", "END"]);
    engine.let_reads_go();
    for (n, client) in clients.iter_mut().enumerate() {
        if n % 10 == 9 {
            client.expect(&["NOT_FOUND"]);
        }
        client.expect(&["VALUE cold 0 1", "1", "END"]);
    }
    server.stop(PATIENCE);
}

#[test]
fn a_failed_read_and_a_forgotten_one_are_the_answers_of_their_commands() {
    let (engine, server) = serve(1);
    let mut client = Client::connect(&server);
    assert_eq!(client.ask("set cold 0 0 1\r\n5\r\n"), "STORED");
    engine.failing_reads.store(true, std::sync::atomic::Ordering::SeqCst);
    let failed = "SERVER_ERROR the disk cannot be read";
    client.send("get cold\r\nincr cold 1\r\nmg cold v\r\ngat 10 cold\r\n");
    client.expect(&[failed; 4]);
    engine.failing_reads.store(false, std::sync::atomic::Ordering::SeqCst);
    engine.hold_reads();
    client.send("get cold hot\r\nincr cold 1\r\n");
    for _ in 0..2 {
        waits_for_reads(&engine, 1);
        engine.forget_reads();
        client.expect(&["SERVER_ERROR the engine dropped the read"]);
    }
    engine.let_reads_go();
    // Nothing holds the key any more.
    assert_eq!(client.ask("incr cold 1\r\n"), "6");
    assert_eq!(client.statistic("read_failures"), 6);
    server.stop(PATIENCE);
}

#[test]
fn a_connection_that_waits_for_a_read_is_not_idle() {
    let engine = MemoryEngine::start_on_disk(None, None, is_cold);
    let options = ServerOptions { idle_timeout_seconds: 1, ..loops(1) };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    let mut client = Client::connect(&server);
    engine.hold_reads();
    client.send("get cold\r\n");
    waits_for_reads(&engine, 1);
    std::thread::sleep(Duration::from_millis(2500));
    engine.let_reads_go();
    assert_eq!(client.line(), "END");
    server.stop(PATIENCE);
}

#[test]
fn stopping_waits_for_reads_until_its_deadline() {
    let (engine, server) = serve(1);
    let mut client = Client::connect(&server);
    engine.hold_reads();
    client.send("get cold\r\nset k 0 0 1\r\nx\r\nget k\r\n");
    waits_for_reads(&engine, 1);
    let stopping = std::thread::spawn(move || server.stop(PATIENCE));
    assert!(client.hears_nothing() && !stopping.is_finished());
    engine.let_reads_go();
    assert_eq!(client.rest(), "END\r\nSTORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    stopping.join().unwrap();

    let server = Server::start(&loops(1), Arc::clone(&engine)).unwrap();
    let mut clients = [0, 1].map(|_| Client::connect(&server));
    engine.hold_reads();
    clients[0].send("get cold\r\n");
    clients[1].send("incr cold 1\r\n");
    waits_for_reads(&engine, 2);
    let begun = Instant::now();
    server.stop(Duration::from_millis(200));
    assert!(begun.elapsed() < PATIENCE / 2, "the deadline cuts it off");
    // The reads end when nobody is there any more.
    engine.let_reads_go();
    waits_for_reads(&engine, 0);
    for client in clients {
        assert_eq!(client.rest(), "");
    }
}

/// A client that takes no answers keeps its own connection parked, and neither a stripe nor what was read for it.
#[test]
fn a_client_that_takes_no_answers_holds_no_key_after_its_read() {
    let (engine, server) = serve(1);
    let mut other = Client::connect(&server);
    let value = "v".repeat(200_000);
    assert_eq!(other.ask(&format!("set cold 0 0 {}\r\n{value}\r\n", value.len())), "STORED");
    let mut silent = Client::connect(&server);
    let commands = "get cold\r\ngat 0 cold\r\ntouch cold 0\r\n".repeat(200);
    let sender = silent.0.get_ref().try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || (&sender).write_all(commands.as_bytes()).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..20 {
            assert_eq!(other.ask("touch cold 0\r\n"), "TOUCHED");
        }
        for _ in 0..200 {
            for _ in 0..2 {
                silent.expect(&["VALUE cold 0 200000", &value, "END"]);
            }
            silent.expect(&["TOUCHED"]);
        }
    });
    drop(silent);
    wait_until("the connection to end", || other.statistic("curr_connections") == 1);
    assert_eq!(engine.reads_waiting(), 0);
    server.stop(PATIENCE);
}
