//! The page of metrics as Prometheus reads it: each metric is described once, and its name, type and unit agree.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use situ::Options;
use situ_server::{Server, ServerOptions, StoreEngine};

#[derive(Default)]
struct Described {
    help: Option<String>,
    kind: Option<String>,
    samples: usize,
}

/// All there are of a server whose store has two disks.
fn page() -> String {
    let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = StoreEngine::open_on(home.path(), Some(&fast.path().join("fast")), Options::default()).unwrap();
    let engine = Arc::new(engine);
    for value in [b"first", b"other"] {
        engine.store().put(b"key", value).unwrap();
        engine.store().flush().unwrap();
    }
    engine.store().compact(None, None).unwrap();
    let options = ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        threads: 1,
        ..ServerOptions::default()
    };
    let server = Server::start(&options, Arc::clone(&engine)).unwrap();
    let mut stream = TcpStream::connect(server.http_address().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    server.stop(Duration::from_secs(5));
    engine.store().close().unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The metric that a sample's name belongs to: histograms have three names.
fn metric_of<'a>(name: &'a str, described: &BTreeMap<String, Described>) -> &'a str {
    let stems = ["_bucket", "_sum", "_count"].into_iter().filter_map(|end| name.strip_suffix(end));
    let is_histogram =
        |stem: &&str| described.get(*stem).is_some_and(|metric| metric.kind.as_deref() == Some("histogram"));
    stems.into_iter().find(is_histogram).unwrap_or(name)
}

fn described(page: &str) -> BTreeMap<String, Described> {
    let mut metrics: BTreeMap<String, Described> = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            let metric = metrics.entry(name.to_owned()).or_default();
            assert!(metric.help.replace(help.to_owned()).is_none(), "{name} has a second HELP");
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let metric = metrics.entry(name.to_owned()).or_default();
            assert!(metric.kind.replace(kind.to_owned()).is_none(), "{name} has a second TYPE");
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let name = metric_of(name, &metrics).to_owned();
            metrics.entry(name).or_default().samples += 1;
        }
    }
    metrics
}

/// HELP of `situ_store_stall_seconds_total` said nanoseconds.
#[test]
fn every_metric_is_described_and_its_unit_is_that_of_its_name() {
    let metrics = described(&page());
    assert!(metrics.len() > 100, "{}", metrics.len());
    for (name, metric) in &metrics {
        let help = metric.help.as_deref().unwrap_or_else(|| panic!("{name} has no HELP"));
        let kind = metric.kind.as_deref().unwrap_or_else(|| panic!("{name} has no TYPE"));
        assert!(metric.samples > 0, "{name} has no value");
        assert!(help.ends_with('.') && help.len() > 10, "{name}: {help}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        let lower = help.to_lowercase();
        for other in ["nanosecond", "microsecond", "millisecond", "kib", "mib", "minute"] {
            let is_size_of_a_page = name == "situ_store_log_pages_written_total" && other == "kib";
            assert!(is_size_of_a_page || !lower.contains(other), "{name} is not counted in base units: {help}");
        }
        for (unit, word) in [("bytes", "byte"), ("seconds", "second")] {
            let has_unit = name.split('_').any(|part| part == unit);
            assert!(!has_unit || lower.contains(word), "{name} is in {unit}: {help}");
            let counts_unit = lower.starts_with(unit) || lower.contains(&format!("in {unit}"));
            assert!(has_unit || !counts_unit, "{name} does not say that it is in {unit}: {help}");
        }
    }
}
