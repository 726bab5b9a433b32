//! The HTTP port itself: the live page with its figures, the links to the others, and requests for headers alone.

use crate::cache::made_on_flash;
use crate::compactions::{fetch, options};
use crate::memory::MemoryEngine;
use situ::hash::{HashOptions, HashStoreBuilder};
use situ::{Durability, Options};
use situ_server::live::Live;
use situ_server::{Engine, HashEngine, Server, StoreEngine};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// `curl -I` and monitors that ask with HEAD got 405.
#[test]
fn head_answers_as_get_without_a_body() {
    let server = Server::start(&options(), MemoryEngine::start(None)).unwrap();
    for path in ["/", "/metrics", "/healthz", "/live.json", "/compactions", "/compactions.json", "/nothing"] {
        let (head_of_get, body) = fetch(&server, &format!("GET {path} HTTP/1.1"));
        let (head, nothing) = fetch(&server, &format!("HEAD {path} HTTP/1.1"));
        assert!(!body.is_empty() && nothing.is_empty(), "{path}: {nothing}");
        // The number of digits in the figures may differ from one answer to the next.
        let lines = |head: &str| -> Vec<String> {
            let has_figures = ["/metrics", "/live.json"].contains(&path);
            let lines = head.lines().filter(|line| !has_figures || !line.starts_with("Content-Length: "));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(lines(&head), lines(&head_of_get), "{path}");
        assert!(head.contains("\r\nContent-Length: "), "{head}");
    }
}

/// A browser at the root of the port got 404.
#[test]
fn the_live_page_leads_to_all_other_pages() {
    let server = Server::start(&options(), MemoryEngine::start(None)).unwrap();
    let (_, body) = fetch(&server, "GET / HTTP/1.1");
    let (_, refused) = fetch(&server, "GET /nothing HTTP/1.1");
    let linked: BTreeSet<&str> = body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    // The icon is a part of the page.
    let linked: Vec<&str> = linked.into_iter().filter(|target| !target.starts_with("data:")).collect();
    assert_eq!(linked, ["compactions.json", "healthz", "live.json", "metrics"]);
    for path in linked {
        assert!(refused.contains(&format!("/{path}")), "{path} is not in {refused}");
        let (head, _) = fetch(&server, &format!("GET /{path} HTTP/1.1"));
        // An engine in memory has no compactions.
        assert!(head.starts_with("HTTP/1.1 200 ") || path == "compactions.json", "{path}: {head}");
    }
    let (head, _) = fetch(&server, "GET /compactions HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 308 ") && head.contains("\r\nLocation: ./#compactions"), "{head}");
    assert!(body.contains("<section id=\"compactions\""));
}

/// Starts a server over an engine, runs commands, and returns its figures. They are those of `/metrics`.
fn live<E: Engine>(engine: &Arc<E>) -> Live {
    let server = Server::start(&options(), Arc::clone(engine)).unwrap();
    let mut client = TcpStream::connect(server.addresses()[0]).unwrap();
    client.write_all(b"set a 0 0 1\r\nx\r\nget a\r\nget b\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nEND\r\n");
    let (head, body) = fetch(&server, "GET /live.json?since=0 HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), "{head}");
    let live: Live = serde_json::from_str(&body).unwrap();
    let value = |name: &str| live.value(name).unwrap_or_else(|| panic!("{name} is not in {body}"));
    assert_eq!((value("situ_server_get_hits_total"), value("situ_server_get_misses_total")), (1.0, 1.0));
    assert_eq!((value("situ_server_items_stored_total"), live.trouble.as_deref()), (1.0, None));
    let count = |class: &str| live.latencies[class].buckets.iter().sum::<u64>();
    assert_eq!((count("read"), count("store"), count("delete")), (2, 1, 0));
    assert!(live.latencies["read"].seconds > 0.0 && live.uptime_us > 0 && live.unix_ms > 1_700_000_000_000, "{body}");
    let (_, page) = fetch(&server, "GET /metrics HTTP/1.1");
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names: Vec<&str> = types.filter(|(_, kind)| *kind != "histogram").map(|(name, _)| name).collect();
    // The first request of a reader is no client's, so nothing new has happened.
    assert_eq!(names.iter().copied().collect::<BTreeSet<_>>(), live.metrics.keys().map(String::as_str).collect());
    live
}

#[test]
fn the_figures_of_the_live_page_are_those_of_each_engine() {
    let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = StoreEngine::open_on(home.path(), Some(&fast.path().join("fast")), Options::default()).unwrap();
    engine.store().put("key", "value").unwrap();
    engine.store().flush().unwrap();
    let engine = Arc::new(engine);
    let ordered = live(&engine);
    let of_level = |name: &str, level: &str| {
        let samples = ordered.metrics[name].iter();
        samples.filter(|sample| sample.labels["level"] == level).filter_map(|sample| sample.value).sum::<f64>()
    };
    let [fast, all] = ["fast_disk_bytes", "bytes"].map(|of| of_level(&format!("situ_keyspace_level_{of}"), "0"));
    assert!(fast > 0.0 && fast == all, "new tables go to the fast disk: {fast} of {all} bytes are there");
    assert_eq!(ordered.compactions.unwrap().units[0].name, "cpu");
    engine.store().close().unwrap();

    let directory = tempfile::tempdir().unwrap();
    let options = HashOptions { base_bits: 4, bucket_space_bytes: 64 << 20, ..HashOptions::default() };
    let engine = HashEngine::open(directory.path(), HashStoreBuilder::new(options), Durability::Buffered).unwrap();
    let engine = Arc::new(engine);
    let hash = live(&engine);
    assert!(hash.value("situ_hash_buckets").unwrap() > 0.0 && hash.compactions.is_none());
    engine.store().close().unwrap();

    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(made_on_flash(directory.path()));
    let cache = live(&engine);
    assert!(cache.value("situ_cache_flash_max_bytes").unwrap() > 0.0 && cache.compactions.is_none());
    engine.stop().unwrap();
}

/// With a limit of zero, each write of the log is a slow operation.
#[test]
fn slow_operations_are_on_the_live_page_without_their_keys() {
    let directory = tempfile::tempdir().unwrap();
    let limited = Options::default().slow_operation(Duration::ZERO);
    let engine = Arc::new(StoreEngine::open(directory.path(), limited).unwrap());
    let server = Server::start(&options(), Arc::clone(&engine)).unwrap();
    let mut client = TcpStream::connect(server.addresses()[0]).unwrap();
    for _ in 0..30 {
        client.write_all(b"set secret-key 0 0 1\r\nx\r\n").unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
    }
    let (_, body) = fetch(&server, "GET /live.json HTTP/1.1");
    let live: Live = serde_json::from_str(&body).unwrap();
    let slow = live.slow_operations.as_ref().unwrap();
    assert_eq!(slow.len(), 20, "the last ones");
    let last = slow.last().unwrap();
    assert_eq!((&last.kind[..], &last.keyspace[..], last.key_bytes), ("write", "items", 10));
    assert!(last.parts.iter().any(|part| part.name == "log") && last.unix_ms > 1_700_000_000_000, "{last:?}");
    let counted = live.value("situ_store_slow_operations_total").unwrap();
    assert!(counted >= 30.0 && engine.store().slow_operations().len() >= 30, "{counted}");
    assert!(engine.store().slow_operations().iter().any(|slow| slow.key == b"secret-key"));
    assert!(!body.contains("secret"), "the HTTP port has no users");
    server.stop(Duration::from_secs(5));
    engine.store().close().unwrap();
}
