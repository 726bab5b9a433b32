//! `lru_crawler metadump` and `watch`, on every engine.

use crate::durable::{Durable, serve_over};
use crate::line_client::Client;
use crate::memcached::Memcached;
use crate::skipped;
use situ::Durability;
use situ_server::{CacheEngine, HashEngine, Server, StoreEngine};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The lines of a dump by key, without what depends on the moment.
fn dump(client: &mut Client) -> BTreeMap<String, String> {
    client.send("lru_crawler metadump all\r\n");
    let mut items = BTreeMap::new();
    loop {
        let line = client.line();
        if line == "END" {
            return items;
        }
        if line.starts_with("BUSY ") {
            // memcached's crawler is at work.
            std::thread::sleep(Duration::from_millis(10));
            client.send("lru_crawler metadump all\r\n");
            continue;
        }
        let mut words = line.split(' ');
        let key = words.next().and_then(|word| word.strip_prefix("key=")).unwrap_or_else(|| panic!("{line:?}"));
        let rest: Vec<&str> = words.filter(|word| !word.starts_with("la=")).collect();
        let known = ["exp=", "cas=", "fetch=", "cls=", "size="];
        assert!(
            rest.len() == known.len() && rest.iter().zip(known).all(|(word, name)| word.starts_with(name)),
            "{line}"
        );
        assert_eq!(items.insert(key.to_owned(), rest.join(" ")), None, "{key} comes twice");
    }
}

fn all_items_are_listed<E: Durable>() {
    let directory = tempfile::tempdir().unwrap();
    let (engine, server) = serve_over::<E>(directory.path(), Durability::Buffered);
    let mut client = Client::connect(&server);
    for number in 0..3000 {
        client.send(&format!("ms key-{number} 5 T{} q\r\n12345\r\n", if number % 2 == 0 { 0 } else { 1000 }));
    }
    assert_eq!(client.ask("mn\r\n"), "MN");
    client.send("set gone 0 -1 1\r\nx\r\nms YWIg 3 b F7\r\nabc\r\nget key-7\r\n");
    client.expect(&["STORED", "HD", "VALUE key-7 0 5", "12345", "END"]);
    let items = dump(&mut client);
    assert_eq!(items.len(), 3001);
    assert!(items["key-7"].contains("fetch=yes") && items["key-9"].contains("fetch=no"), "{}", items["key-7"]);
    assert!(items["key-8"].starts_with("exp=-1 ") && !items["key-9"].starts_with("exp=-1 "));
    assert!(items["ab%20"].ends_with("cls=1 size=69"), "{}", items["ab%20"]);
    // What is behind it in the pipeline is answered behind it.
    client.send("get key-1\r\nlru_crawler metadump 1\r\nget key-2\r\nlru_crawler metadump 2\r\n");
    client.expect(&["VALUE key-1 0 5", "12345", "END"]);
    (0..3001).for_each(|_| assert!(client.line().starts_with("key=")));
    client.expect(&["END", "VALUE key-2 0 5", "12345", "END", "END"]);
    client.send("flush_all\r\nlru_crawler metadump all\r\n");
    client.expect(&["OK", "END"]);
    crate::durable::stop(&*engine, server);
}

#[test]
fn all_items_of_a_cache_are_listed() {
    all_items_are_listed::<CacheEngine>();
}

#[test]
fn all_items_of_a_store_are_listed() {
    all_items_are_listed::<StoreEngine>();
}

#[test]
fn all_items_of_a_hash_store_are_listed() {
    all_items_are_listed::<HashEngine>();
}

#[test]
fn items_on_flash_are_listed_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(crate::cache::made_on_flash(directory.path()));
    let server = crate::cache::serve(&engine);
    let mut client = Client::connect(&server);
    for number in 0..4000 {
        let length = if number % 500 == 0 { 400_000 } else { 1000 + number };
        client.send(&format!("ms key-{number} {length} q\r\n{}\r\n", "v".repeat(length)));
        if number == 3000 {
            assert_eq!(client.ask("mn\r\n"), "MN");
            engine.spill();
        }
    }
    assert_eq!(client.ask("mn\r\n"), "MN");
    let properties = engine.properties();
    assert_eq!((properties.items, properties.evicted), (4000, 0), "{properties:?}");
    assert!(properties.flash.is_some_and(|flash| (3001..4000).contains(&flash.demoted)), "{properties:?}");
    let items = dump(&mut client);
    assert_eq!(items.len(), 4000);
    assert!(items["key-1500"].ends_with(&format!("size={}", 56 + 8 + 1 + 400_000 + 2)), "{}", items["key-1500"]);
    server.stop(Duration::from_secs(5));
}

/// A client that does not read its dump holds up nobody, and little memory; another client is told to wait. The dump ends with its connection.
#[test]
fn a_dump_that_is_not_read_waits_and_ends_with_its_connection() {
    let (engine, server) = serve_over::<CacheEngine>("".as_ref(), Durability::Buffered);
    let mut client = Client::connect(&server);
    for number in 0..100_000 {
        client.send(&format!("ms {number:0100} 1 q\r\n1\r\n"));
    }
    assert_eq!(client.ask("mn\r\n"), "MN");
    let mut slow = TcpStream::connect(server.addresses()[0]).unwrap();
    slow.write_all(b"lru_crawler metadump all\r\n").unwrap();
    let mut first = [0; 1];
    slow.read_exact(&mut first).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.ask("lru_crawler metadump all\r\n"), "BUSY currently processing crawler request");
    assert_eq!(client.ask("set a 0 0 1\r\n1\r\n"), "STORED");
    drop(slow);
    // The server sees the end of the connection, then the dump does.
    let ended = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let first = client.ask("lru_crawler metadump all\r\n");
        first.starts_with("key=")
    });
    assert!(ended, "the dump goes on without its connection");
    while client.line() != "END" {}
    // One that is under way, or a watcher that does not read, does not keep the server from stopping.
    let mut watcher = Client::connect(&server);
    assert_eq!(watcher.ask("watch\r\n"), "OK");
    (0..100_000).for_each(|_| client.send("mg a\r\n"));
    (0..100_000).for_each(|_| assert_eq!(client.line(), "HD"));
    let mut slow = TcpStream::connect(server.addresses()[0]).unwrap();
    slow.write_all(b"lru_crawler metadump all\r\n").unwrap();
    slow.read_exact(&mut first).unwrap();
    let begun = std::time::Instant::now();
    server.stop(Duration::from_secs(60));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(engine);
}

#[test]
fn watchers_are_told_what_they_asked_for() {
    let (engine, server) = serve_over::<CacheEngine>("".as_ref(), Durability::Buffered);
    let mut watcher = Client::connect(&server);
    assert_eq!(watcher.ask("watch fetchers mutations connevents\r\n"), "OK");
    let mut evictions = Client::connect(&server);
    assert_eq!(evictions.ask("watch evictions\r\n"), "OK");
    let mut client = Client::connect(&server);
    let told = |watcher: &mut Client| {
        let line = watcher.line();
        let rest = line.splitn(3, ' ').nth(2).unwrap_or_else(|| panic!("{line:?}")).to_owned();
        rest.split(' ').filter(|word| !word.starts_with("cfd=")).collect::<Vec<_>>().join(" ")
    };
    for _ in 0..2 {
        let line = told(&mut watcher);
        assert!(line.starts_with("type=conn_new rip=127.0.0.1 rport=") && line.ends_with(" transport=tcp"), "{line}");
    }
    client.send("set a 0 100 3\r\nabc\r\nget a b\r\nadd a 0 0 1\r\nx\r\nmg a\r\n");
    client.expect(&["STORED", "VALUE a 0 3", "abc", "END", "NOT_STORED", "HD"]);
    let expected = [
        "type=item_store key=a status=stored cmd=set ttl=100 clsid=1 size=3",
        "type=item_get key=a status=found clsid=1 size=3",
        "type=item_get key=b status=not_found clsid=0 size=0",
        "type=item_get key=a status=found clsid=1 size=3",
        "type=item_store key=a status=not_stored cmd=add ttl=0 clsid=1 size=1",
        "type=item_get key=a status=found clsid=1 size=3",
    ];
    expected.iter().for_each(|line| assert_eq!(told(&mut watcher), *line));
    // What a watcher sends is not run.
    watcher.send("set a 0 0 1\r\nx\r\n");
    let value = "v".repeat(100_000);
    let mut stored = 0;
    while engine.properties().evicted == 0 {
        assert_eq!(client.ask(&format!("set evicted-{stored} 0 0 100000\r\n{value}\r\n")), "STORED");
        stored += 1;
    }
    assert_eq!(told(&mut evictions), "type=eviction key=evicted-0 fetch=no ttl=-1 la=0 clsid=1 size=100000");
    assert!(client.statistic("log_watchers") == 2 && client.statistic("log_watcher_sent") > 8);
    client.send("quit\r\n");
    let last = (0..stored + 10).map(|_| told(&mut watcher)).find(|line| line.starts_with("type=conn_close"));
    assert!(last.is_some_and(|line| line.ends_with(" transport=tcp reason=normal")));
    server.stop(Duration::from_secs(5));
    assert!(watcher.rest().lines().all(|line| line.contains("type=conn_close")));
    assert!(evictions.rest().lines().all(|line| line.contains("type=eviction")));
}

/// A watcher that does not read misses lines, and is told how many. It holds up nobody.
#[test]
fn a_watcher_that_does_not_read_misses_lines() {
    let (_engine, server) = serve_over::<CacheEngine>("".as_ref(), Durability::Buffered);
    let mut watcher = Client::connect(&server);
    assert_eq!(watcher.ask("watch\r\n"), "OK");
    let mut client = Client::connect(&server);
    let gets = format!("get {}\r\n", (0..100).map(|number| format!("{number:0200} ")).collect::<String>());
    let mut asked = 0u64;
    while client.statistic("log_watcher_skipped") == 0 {
        (0..200).for_each(|_| client.send(&gets));
        (0..200).for_each(|_| assert_eq!(client.line(), "END"));
        asked += 20_000;
    }
    let (mut told, mut skipped) = (0, 0);
    while told + skipped < asked {
        let line = watcher.line();
        match line.strip_prefix("skipped=") {
            Some(number) => skipped += number.parse::<u64>().unwrap(),
            None => {
                assert!(line.contains(" type=item_get key=0"), "{line}");
                told += 1;
            }
        }
    }
    assert_eq!((told + skipped, client.statistic("log_watcher_skipped")), (asked, skipped));
    drop(watcher);
    let gone = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        client.statistic("log_watchers") == 0
    });
    assert!(gone, "the server still has the watcher");
}

/// What both say of the same items and the same commands.
#[test]
fn dumps_and_watchers_are_memcacheds() {
    let Some(memcached) = Memcached::start().filter(|memcached| memcached.version == [1, 6, 18]) else {
        return skipped::skipped("no memcached 1.6.18 on this machine");
    };
    let (_engine, server) = serve_over::<CacheEngine>("".as_ref(), Durability::Buffered);
    let connect = |server: Option<&Server>| {
        let address = server.map_or(memcached.address, |server| server.addresses()[0]);
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(std::io::BufReader::new(stream))
    };
    let [theirs, ours] = [None, Some(&server)].map(|server| {
        let (mut client, mut watcher) = (connect(server), connect(server));
        assert_eq!(watcher.ask("watch mutations\r\n"), "OK");
        client.send("set a 0 0 3\r\nabc\r\nset b%x 5 0 30\r\n123456789012345678901234567890\r\nget a\r\n");
        client.send("ms YWJjIA== 2 b\r\nhi\r\nadd a 0 0 1\r\nx\r\nappend a 0 0 1\r\nd\r\ncas nope 0 5 1 7\r\nx\r\n");
        client.expect(&["STORED", "STORED", "VALUE a 0 3", "abc", "END", "HD", "NOT_STORED", "STORED", "NOT_FOUND"]);
        let told: Vec<String> = (0..6)
            .map(|_| {
                let line = watcher.line();
                let words =
                    line.split(' ').skip(2).filter(|word| !word.starts_with("cfd=") && !word.starts_with("clsid="));
                words.collect::<Vec<_>>().join(" ")
            })
            .collect();
        let mut answers = Vec::new();
        for line in [
            "lru_crawler",
            "lru_crawler metadump",
            "lru_crawler metadump x",
            "lru_crawler metadump 99",
            "lru_crawler crawl 0",
            "lru_crawler tocrawl 1",
            "lru_crawler tocrawl x",
            "lru_crawler sleep x",
            "lru_crawler sleep 1000001",
            "lru_crawler sleep 1",
            "lru_crawler metadump all noreply",
            "lru_crawler nonsense 1",
            "watch nonsense",
            "watch fetchers nonsense",
        ] {
            answers.push((line, client.ask(&format!("{line}\r\n"))));
        }
        let mut items = dump(&mut client);
        // Cas ids count commands there, and in ours they are only unique.
        for line in items.values_mut() {
            *line = line.split(' ').filter(|word| !word.starts_with("cas=")).collect::<Vec<_>>().join(" ");
        }
        (told, answers, items)
    });
    assert_eq!(ours, theirs);
}
