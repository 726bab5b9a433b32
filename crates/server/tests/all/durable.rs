//! The server over a Situ store: a stock client is content, and what was acknowledged is there after a restart.

use crate::skipped;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use situ::{Durability, Options, Store, WriteBatch};
use situ_base::StoreClock;
use situ_server::{
    Engine, ITEMS_KEYSPACE, ItemView, ItemWriter, Server, ServerOptions, StoreEngine, open_unserved, stored_clock,
    stored_rule,
};
use situ_sim::SetClock;

/// An engine that keeps items in a directory.
pub(crate) trait Durable: Engine + Sized {
    fn open_in(directory: &Path, durability: Durability) -> Self;

    fn close(&self);
}

impl Durable for StoreEngine {
    fn open_in(directory: &Path, durability: Durability) -> StoreEngine {
        let mut options = Options::default();
        options.durability = durability;
        options.keyspace.memtable_bytes = 1 << 20;
        StoreEngine::open(directory, options).unwrap()
    }

    fn close(&self) {
        StoreEngine::close(self).unwrap();
    }
}

fn serve(directory: &Path, durability: Durability) -> (Arc<StoreEngine>, Server) {
    serve_over(directory, durability)
}

pub(crate) fn serve_over<E: Durable>(directory: &Path, durability: Durability) -> (Arc<E>, Server) {
    let engine = Arc::new(E::open_in(directory, durability));
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        threads: 2,
        ..ServerOptions::default()
    };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    (engine, server)
}

pub(crate) fn stop(engine: &impl Durable, server: Server) {
    server.stop(Duration::from_secs(10));
    engine.close();
}

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.send(text.as_bytes());
        self.line()
    }

    pub(crate) fn value(&mut self, key: &str) -> Option<String> {
        let first = self.ask(&format!("get {key}\r\n"));
        if first == "END\r\n" {
            return None;
        }
        assert!(first.starts_with(&format!("VALUE {key} ")), "{first}");
        let value = self.line();
        assert_eq!(self.line(), "END\r\n");
        Some(value.trim_end().to_owned())
    }
}

fn keys(keyspace: &situ::Keyspace) -> Vec<String> {
    let mut keys = Vec::new();
    let mut iterator = keyspace.cursor().unwrap();
    iterator.seek_to_first().unwrap();
    while let Some(key) = iterator.key() {
        keys.push(String::from_utf8(key.to_vec()).unwrap());
        iterator.next().unwrap();
    }
    keys
}

pub(crate) fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn memccapable_passes_in_both_durabilities() {
    run_memccapable::<StoreEngine>();
}

pub(crate) fn run_memccapable<E: Durable>() {
    if Command::new("memccapable").arg("-V").output().is_err() {
        skipped::skipped("no memccapable on this machine");
        return;
    }
    for durability in [Durability::Buffered, Durability::Synced] {
        let directory = tempfile::tempdir().unwrap();
        let (engine, server) = serve_over::<E>(directory.path(), durability);
        let port = server.addresses()[0].port().to_string();
        let output = Command::new("memccapable").args(["-h", "127.0.0.1", "-p", &port, "-a"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("All tests passed"), "{durability:?}: {text}");
        stop(&*engine, server);
    }
}

#[test]
fn many_pipelined_synced_sets_are_answered_and_outlive_a_restart() {
    set_and_restart::<StoreEngine>();
}

pub(crate) fn set_and_restart<E: Durable>() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<E>(directory.path(), Durability::Synced);
    let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(server.addresses()[0])).collect();
    for (client, connection) in clients.iter_mut().enumerate() {
        let sets: String = (0..200).map(|n| format!("set k{client}-{n} 7 0 5\r\n{:05}\r\n", n + client)).collect();
        connection.send(sets.as_bytes());
    }
    for connection in &mut clients {
        for _ in 0..200 {
            assert_eq!(connection.line(), "STORED\r\n");
        }
    }
    // Changes of one key keep their order, whoever completes them.
    let increments = "set n 0 0 1\r\n0\r\n".to_owned() + &"incr n 1\r\n".repeat(100);
    clients[0].send(increments.as_bytes());
    assert_eq!(clients[0].line(), "STORED\r\n");
    for n in 1..=100 {
        assert_eq!(clients[0].line(), format!("{n}\r\n"));
    }
    stop(&*engine, server);

    let (engine, server) = serve_over::<E>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    for owner in 0..8 {
        for n in (0..200).step_by(17) {
            assert_eq!(client.value(&format!("k{owner}-{n}")), Some(format!("{:05}", n + owner)));
        }
    }
    assert_eq!(client.value("n").as_deref(), Some("100"));
    stop(&*engine, server);
}

#[test]
fn a_compaction_drops_what_expired_or_was_flushed_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.ask("set flushed 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(client.ask("set expired 0 -1 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.ask("set kept 3 0 4\r\ndata\r\n"), "STORED\r\n");
    let store = engine.store();
    let items = store.existing_keyspace(ITEMS_KEYSPACE).unwrap();
    assert_eq!(keys(&items), ["expired", "flushed", "kept"]);
    store.flush().unwrap();
    items.compact(None, None).unwrap();
    assert_eq!(keys(&items), ["kept"]);
    assert_eq!(client.value("kept").as_deref(), Some("data"));
    let stored = items.get(b"kept").unwrap().unwrap();
    let item = ItemView::of(&stored).unwrap();
    assert_eq!((item.flags, item.expires, item.data), (3, 0, &b"data"[..]));
    let rule = stored_rule(store, 0).unwrap().unwrap();
    assert!(rule.barrier_cas > 0 && !rule.is_dead(&stored));
    stop(&*engine, server);
}

#[test]
fn a_compaction_of_a_store_that_is_not_served_drops_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    let stores = "set expired 0 -1 1\r\nx\r\nset kept 0 0 1\r\nx\r\nset late 0 100 1\r\nx\r\n";
    assert_eq!(client.ask(&format!("set flushed 0 0 1\r\nx\r\nflush_all\r\n{stores}")), "STORED\r\n");
    assert_eq!(
        [client.line(), client.line(), client.line(), client.line()].concat(),
        "OK\r\nSTORED\r\nSTORED\r\nSTORED\r\n"
    );
    stop(&*engine, server);
    let store = open_unserved(directory.path(), Options::default()).unwrap();
    let items = store.existing_keyspace(ITEMS_KEYSPACE).unwrap();
    assert_eq!(keys(&items), ["expired", "flushed", "kept", "late"]);
    items.compact(None, None).unwrap();
    assert_eq!(keys(&items), ["kept", "late"]);
    store.close().unwrap();
    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.value("kept").as_deref(), Some("x"));
    stop(&*engine, server);
}

/// A keyspace may be called `items` without being a server's: what looks like a dead item is somebody's value.
#[test]
fn values_that_only_look_like_dead_items_outlive_a_compaction() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let items = store.create_keyspace(ITEMS_KEYSPACE, Default::default()).unwrap();
    let mut value = item(1, b"x");
    value[6] = 1;
    items.put(b"k", &value).unwrap();
    store.close().unwrap();
    let store = open_unserved(directory.path(), Options::default()).unwrap();
    let items = store.existing_keyspace(ITEMS_KEYSPACE).unwrap();
    items.compact(None, None).unwrap();
    assert_eq!(keys(&items), ["k"]);
    assert_eq!(store.keyspace_names(), ["default", ITEMS_KEYSPACE]);
}

#[test]
fn metrics_and_health_tell_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let http = server.http_address().unwrap();
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    engine.store().flush().unwrap();
    assert!(fetch(http, "/healthz").starts_with("HTTP/1.1 200"));
    let page = fetch(http, "/metrics");
    for line in [
        "situ_keyspace_level_tables{keyspace=\"items\",level=\"0\"} 1",
        "situ_keyspace_keys{keyspace=\"items\"} 1",
        "situ_keyspace_memtables_max{keyspace=\"items\"} 4",
        "situ_store_failed 0",
        "# TYPE situ_store_flushes_total counter",
        "situ_store_latency_seconds{operation=\"flush\",quantile=\"0.5\"}",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    let types: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let unique: std::collections::HashSet<_> = types.iter().collect();
    assert_eq!(types.len(), unique.len(), "each metric is described once, its samples in a row");
    // A closed store refuses; the connection stays usable.
    engine.store().close().unwrap();
    assert!(client.ask("set a 0 0 1\r\nx\r\n").starts_with("SERVER_ERROR the store is closed"));
    assert!(client.ask("version\r\n").starts_with("VERSION"));
    server.stop(Duration::from_secs(5));
}

#[test]
fn metrics_tell_both_disks_apart() {
    let directory = tempfile::tempdir().unwrap();
    let (home, fast) = (directory.path().join("home"), directory.path().join("fast"));
    let engine = StoreEngine::open_on(&home, Some(&fast), Options::default()).unwrap();
    engine.store().put(b"key", b"value").unwrap();
    engine.store().flush().unwrap();
    let mut found = Vec::new();
    engine.metrics(&mut |metric| {
        let labels: Vec<String> = metric.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        found.push((metric.name.to_owned(), labels.join(","), metric.value));
    });
    let value = |name: &str, labels: &str| {
        let line = found.iter().find(|(other, with, _)| other == name && with == labels);
        line.unwrap_or_else(|| panic!("{name} {labels} is not in {found:?}")).2
    };
    assert_eq!(value("situ_store_placement_level", ""), 7.0);
    assert_eq!(value("situ_store_fast_disk_troubles", ""), 0.0);
    assert!(value("situ_store_fast_disk_table_bytes", "") > 0.0);
    assert!(value("situ_store_disk_written_bytes_total", "disk=fast") > 0.0);
    assert!(value("situ_store_disk_written_bytes_total", "disk=capacity") > 0.0);
    engine.store().close().unwrap();
}

pub(crate) fn item(cas: u64, data: &[u8]) -> Vec<u8> {
    let mut value = vec![1, 0, 0, 0, 0, 0];
    value.extend_from_slice(&0u64.to_le_bytes());
    value.extend_from_slice(&cas.to_le_bytes());
    value.extend_from_slice(data);
    value
}

/// Items that were written as they are, with the cas ids they brought along, stood outside what a server knows: a flush
/// did not reach those with high ids, and in a store that had been flushed, those with low ids were dead at once.
#[test]
fn items_written_offline_get_cas_ids_that_a_flush_reaches() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.ask("set before 0 0 1\r\nx\r\nset here 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.line(), "STORED\r\n");
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    stop(&*engine, server);

    let store = Store::open(directory.path()).unwrap();
    let mut writer = ItemWriter::open(&store, Arc::new(stored_clock(&store).unwrap())).unwrap();
    let mut batch = WriteBatch::new();
    writer.put(&mut batch, b"low", &item(1, b"l")).unwrap();
    writer.put(&mut batch, b"high", &item(u64::MAX, b"h")).unwrap();
    // A cas id that a client gave is the client's business, and kept.
    let mut given = item(1, &[&7u64.to_le_bytes()[..], b"g"].concat());
    given[1] = 8;
    writer.put(&mut batch, b"given", &given).unwrap();
    assert!(writer.put(&mut batch, b"plain", b"value").unwrap_err().contains("not a memcached item"));
    assert!(writer.put(&mut batch, &[b'k'; 251], &item(1, b"x")).unwrap_err().contains("at most 250 bytes"));
    writer.seal(&mut batch).unwrap();
    store.write(batch).unwrap();
    store.close().unwrap();

    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    let values = |client: &mut Client| ["low", "high", "given", "here"].map(|key| client.value(key));
    assert_eq!(values(&mut client), [Some("l".to_owned()), Some("h".to_owned()), Some("g".to_owned()), None]);
    let cas = |client: &mut Client, key: &str| -> u64 {
        let line = client.ask(&format!("gets {key}\r\n"));
        client.line();
        client.line();
        line.trim().rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(client.ask("set new 0 0 1\r\nn\r\n"), "STORED\r\n");
    let ids = ["low", "high", "new"].map(|key| cas(&mut client, key));
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    assert_eq!(cas(&mut client, "given"), 7);
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(values(&mut client), [None, None, None, None]);
    stop(&*engine, server);
}

#[test]
fn a_delayed_flush_that_came_due_while_nobody_served_spares_what_is_written_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.ask("set old 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(client.ask("flush_all 1000\r\n"), "OK\r\n");
    stop(&*engine, server);

    let store = Store::open(directory.path()).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let stored = store.existing_keyspace(ITEMS_KEYSPACE).unwrap().get(b"old").unwrap().unwrap();
    assert!(!stored_rule(&store, now).unwrap().unwrap().is_dead(&stored));
    assert!(stored_rule(&store, now + 2000).unwrap().unwrap().is_dead(&stored));
    let later = Arc::new(SetClock::default());
    later.pass(2000);
    let mut writer = ItemWriter::open(&store, Arc::new(StoreClock::resume(later, None))).unwrap();
    let mut batch = WriteBatch::new();
    writer.put(&mut batch, b"new", &item(1, b"n")).unwrap();
    writer.seal(&mut batch).unwrap();
    store.write(batch).unwrap();
    store.close().unwrap();

    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!((client.value("old"), client.value("new").as_deref()), (None, Some("n")));
    stop(&*engine, server);
}

#[test]
fn other_keyspaces_are_left_alone_and_entries_that_no_server_wrote_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.put(b"greeting", b"mine").unwrap();
    store.close().unwrap();
    let (engine, server) = serve(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    assert_eq!(client.value("greeting"), None);
    assert_eq!(client.ask("set greeting 0 0 5\r\nhello\r\n"), "STORED\r\n");
    assert_eq!(engine.store().get(b"greeting").unwrap().as_deref(), Some(&b"mine"[..]));
    stop(&*engine, server);

    let other = tempfile::tempdir().unwrap();
    let store = Store::open(other.path()).unwrap();
    let items = store.create_keyspace(ITEMS_KEYSPACE, Default::default()).unwrap();
    items.put(b"k", b"plain").unwrap();
    store.close().unwrap();
    let refused = StoreEngine::open(other.path(), Options::default()).err().unwrap().to_string();
    assert!(refused.contains("not the record of the cas ids") && refused.contains("situ load --stored"), "{refused}");
}
