//! Damage on disk that a server meets: the client of the damaged key has an error, the operator is told, others notice
//! nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use situ::{Listener, Options, StoreEvent};
use situ_server::{Server, ServerOptions, StoreEngine};

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Listener for Lines {
    fn event(&self, event: &StoreEvent) {
        if let StoreEvent::DamageFound { .. } = event {
            self.0.lock().unwrap().push(event.to_string());
        }
    }
}

fn serve(directory: &Path, lines: &Arc<Lines>) -> (Arc<StoreEngine>, Server) {
    let mut options = Options::default();
    options.listener = Some(Arc::clone(lines) as Arc<_>);
    let engine = Arc::new(StoreEngine::open(directory, options).unwrap());
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        threads: 1,
        ..ServerOptions::default()
    };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    (engine, server)
}

fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

/// The client of the damaged key had an error, and nobody else ever heard of it: no line, `ok` from `/healthz`.
#[test]
fn a_flipped_byte_reaches_the_client_the_listener_healthz_and_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let lines = Arc::new(Lines::default());
    let (engine, server) = serve(directory.path(), &lines);
    let mut client = BufReader::new(TcpStream::connect(server.addresses()[0]).unwrap());
    let mut ask = |text: &str| {
        client.get_mut().write_all(text.as_bytes()).unwrap();
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    };
    for n in 0..500 {
        assert_eq!(ask(&format!("set key{n:04} 0 0 100\r\n{:0100}\r\n", n)), "STORED\r\n");
    }
    engine.store().keyspace("items").unwrap().flush().unwrap();
    server.stop(std::time::Duration::from_secs(5));
    engine.store().close().unwrap();
    drop(engine);
    let tables = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let tables = tables.filter(|path| path.extension().is_some_and(|kind| kind == "table"));
    let table = tables.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[100] ^= 0x20;
    std::fs::write(&table, bytes).unwrap();

    let (engine, server) = serve(directory.path(), &lines);
    let http = server.http_address().unwrap();
    assert!(fetch(http, "/healthz").starts_with("HTTP/1.1 200"), "nobody has read it yet");
    let mut client = BufReader::new(TcpStream::connect(server.addresses()[0]).unwrap());
    let mut ask = |text: &str, count: usize| {
        client.get_mut().write_all(text.as_bytes()).unwrap();
        let mut lines = String::new();
        (0..count).for_each(|_| assert!(client.read_line(&mut lines).unwrap() > 0));
        lines
    };
    for _ in 0..50 {
        let answer = ask("get key0000\r\n", 1);
        assert!(answer.starts_with("SERVER_ERROR ") && answer.contains("is damaged at byte"), "{answer}");
    }
    assert_eq!(ask("get key0499\r\n", 3), format!("VALUE key0499 0 100\r\n{:0100}\r\nEND\r\n", 499));
    let told = lines.0.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains(&*table.to_string_lossy()), "{told:?}");
    let health = fetch(http, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503") && health.contains(&*table.to_string_lossy()), "{health}");
    assert!(health.contains("is damaged at byte") && health.contains("situ repair"), "{health}");
    let page = fetch(http, "/metrics");
    assert_eq!(metric(&page, "situ_store_damaged_files"), 1.0);
    assert!(metric(&page, "situ_store_damage_met_total") >= 50.0);
    assert_eq!(metric(&page, "situ_server_read_failures_total"), 50.0);
    // What is written anew can be read, damaged table or not.
    assert_eq!(ask("set key0000 0 0 1\r\nx\r\n", 1), "STORED\r\n");
    assert_eq!(ask("get key0000\r\n", 3), "VALUE key0000 0 1\r\nx\r\nEND\r\n");
    server.stop(std::time::Duration::from_secs(5));
    engine.store().close().unwrap();
}
