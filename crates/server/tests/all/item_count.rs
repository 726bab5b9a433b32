//! `curr_items` over every engine: what was overwritten counts once, and what was flushed does not count.

use crate::cache::made_on_flash;
use crate::durable::{Client, Durable, fetch, serve_over, stop};
use situ::Durability;
use situ_server::{CacheEngine, HashEngine, Server, ServerOptions, StoreEngine};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn items(client: &mut Client) -> u64 {
    client.send(b"stats\r\n");
    let mut found = None;
    loop {
        let line = client.line();
        if let Some(number) = line.strip_prefix("STAT curr_items ") {
            found = Some(number.trim_end().parse().unwrap());
        }
        if line == "END\r\n" {
            return found.expect("stats without curr_items");
        }
    }
}

/// Waits until there are so many, or up to `factor` times as many: an engine may count a write a little later.
fn eventually(client: &mut Client, wanted: u64, factor: u64, when: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = items(client);
        if (wanted..=wanted * factor).contains(&found) {
            return;
        }
        assert!(Instant::now() < until, "{found} items instead of {wanted}, {when}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn set(client: &mut Client, keys: impl Iterator<Item = u32>) {
    let mut sent = 0;
    let mut commands = String::new();
    for key in keys {
        commands.push_str(&format!("set key{key} 0 0 5\r\nvalue\r\n"));
        sent += 1;
    }
    client.send(commands.as_bytes());
    (0..sent).for_each(|_| assert_eq!(client.line(), "STORED\r\n"));
}

/// One key that was set 501,000 times was 501,000 items, and `flush_all` left them all.
/// The count is exact, or `factor` times too large at most.
fn count(server: Server, factor: u64, after_sets: impl Fn()) {
    let mut client = Client::connect(server.addresses()[0]);
    eventually(&mut client, 0, 1, "in an empty engine");
    for _ in 0..20 {
        set(&mut client, (0..1000).map(|n| n % 10));
    }
    after_sets();
    eventually(&mut client, 10, factor, "after 20,000 sets of 10 keys");
    assert_eq!(client.ask("delete key3\r\n"), "DELETED\r\n");
    eventually(&mut client, 9, factor, "after a deletion");
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(items(&mut client), 0, "at once after flush_all");
    set(&mut client, 0..2);
    eventually(&mut client, 2, 1, "after two sets of flushed keys");
    set(&mut client, 100..105);
    eventually(&mut client, 7, 1, "after five sets of new keys");
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(items(&mut client), 0, "after the second flush_all");
    let page = fetch(server.http_address().unwrap(), "/metrics");
    assert!(page.contains("\nsitu_engine_items 0\n"), "{page}");
    server.stop(Duration::from_secs(5));
}

fn count_over<E: Durable>(factor: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<E>(directory.path(), Durability::Buffered);
    count(server, factor, || ());
    engine.close();
}

/// Each memtable and each table counts a key that it has: there are two or three here.
#[test]
fn items_of_an_ordered_store() {
    count_over::<StoreEngine>(4);
}

#[test]
fn items_of_a_hash_store() {
    count_over::<HashEngine>(1);
}

#[test]
fn items_of_a_cache() {
    count_over::<CacheEngine>(1);
}

/// An item that went to flash, and came back to memory, is one item.
#[test]
fn items_of_a_cache_on_flash() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(made_on_flash(directory.path()));
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        threads: 1,
        max_value_bytes: 1 << 20,
        ..ServerOptions::default()
    };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    let address = server.addresses()[0];
    count(server, 1, || {
        engine.spill();
        let mut client = Client::connect(address);
        for key in (0..5).cycle().take(100) {
            assert_eq!(client.value(&format!("key{key}")).as_deref(), Some("value"));
        }
        let flash = engine.properties().flash.unwrap();
        assert!(flash.demoted >= 10 && flash.promoted > 0, "{flash:?}");
    });
}

/// After a restart the store knows of the flush, and drops what is dead when it is idle.
#[test]
fn flushed_items_of_an_ordered_store_go_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<StoreEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    set(&mut client, 0..1000);
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    stop(&*engine, server);
    let (engine, server) = serve_over::<StoreEngine>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(server.addresses()[0]);
    eventually(&mut client, 0, 1, "a while after a restart");
    stop(&*engine, server);
}
