//! The server over a store whose volume gives some pages at once and the others later.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use situ_base::Env;
use situ_sim::{FaultPlan, SimVolume};

use super::*;
use crate::{Server, ServerOptions};

const ITEMS: usize = 4000;

/// Every other page of the simulated volume is to be had without waiting; the others are read by threads of the store.
fn engine() -> Arc<StoreEngine> {
    let env = Env::system();
    let volume = SimVolume::new(&env, FaultPlan::none(), 1);
    let mut options = Options::default();
    options.cache_bytes = 0;
    options.keyspace.memtable_bytes = 64 << 10;
    let open = |builder: StoreBuilder| builder.env(env).open_volume(Arc::new(volume));
    Arc::new(StoreEngine::open_by(options, open).unwrap())
}

fn serve(engine: &Arc<StoreEngine>) -> Server {
    let any = || "127.0.0.1:0".parse().unwrap();
    let options = ServerOptions { listen: vec![any()], http: Some(any()), threads: 2, ..ServerOptions::default() };
    Server::start(&options, Arc::clone(engine)).unwrap()
}

/// Sends `commands` while it reads as many lines as `answers` has, and compares.
fn ask(server: &Server, commands: &str, answers: &str) {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (&stream).write_all(commands.as_bytes()).unwrap());
        let mut lines = BufReader::new(&stream).lines();
        for answer in answers.lines() {
            assert_eq!(lines.next().unwrap().unwrap(), answer);
        }
    });
}

fn metric(server: &Server, name: &str) -> u64 {
    let mut stream = TcpStream::connect(server.http_address().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).expect(name)
}

#[test]
fn items_on_the_disk_are_read_and_changed_as_items_in_memory() {
    let engine = engine();
    let server = serve(&engine);
    let sets: String = (0..ITEMS).map(|n| format!("set k{n} 0 0 60\r\n{n:060}\r\n")).collect();
    ask(&server, &sets, &"STORED\r\n".repeat(ITEMS));
    engine.store().flush().unwrap();
    // From two loops at the same time: single keys, retrievals of many keys and changes, of which none may be lost.
    let before = metric(&server, "situ_server_disk_reads_total");
    std::thread::scope(|scope| {
        for client in 0..2 {
            let server = &server;
            scope.spawn(move || {
                let value = |n: usize| format!("VALUE k{n} 0 60\r\n{n:060}\r\n");
                let (mut commands, mut answers) = (String::new(), String::new());
                for n in (100..ITEMS - 20).step_by(7) {
                    let keys: String = (n..n + 20).map(|n| format!(" k{n} absent{n}")).collect();
                    commands += &format!("get k{n}\r\nget{keys}\r\nmg absent v\r\nincr k{} 1 noreply\r\n", n % 100);
                    answers +=
                        &format!("{}END\r\n{}END\r\nEN\r\n", value(n), (n..n + 20).map(value).collect::<String>());
                }
                commands += &format!("set done{client} 0 0 1\r\nx\r\n");
                ask(server, &commands, &(answers + "STORED\r\n"));
            });
        }
    });
    let later = metric(&server, "situ_server_disk_reads_total") - before;
    assert!(later > 1000, "{later} reads were answered later");
    let mut numbers: Vec<usize> = (0..100).collect();
    (100..ITEMS - 20).step_by(7).for_each(|n| numbers[n % 100] += 2);
    let gets: String = (0..100).map(|n| format!("get k{n}\r\n")).collect();
    let values = numbers.iter().enumerate().map(|(n, number)| {
        // A number keeps the length of its item.
        let (digits, shown) =
            (number.to_string(), if *number == n { format!("{n:060}") } else { format!("{number:<60}") });
        assert!(digits.len() <= 60);
        format!("VALUE k{n} 0 60\r\n{shown}\r\nEND\r\n")
    });
    ask(&server, &gets, &values.collect::<String>());
    server.stop(Duration::from_secs(20));
    engine.store().close().unwrap();
}

#[test]
fn a_store_that_is_closed_answers_reads_with_its_reason() {
    let engine = engine();
    let server = serve(&engine);
    engine.store().close().unwrap();
    ask(
        &server,
        "get k\r\nincr k 1\r\nmn\r\n",
        "SERVER_ERROR the store is closed\r\nSERVER_ERROR the store is closed\r\nMN\r\n",
    );
    server.stop(Duration::from_secs(20));
}
