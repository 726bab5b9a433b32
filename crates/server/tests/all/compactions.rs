//! The picture of compactions over HTTP: the page, its headers, its figures, and requests that ask oddly.

use crate::memory::MemoryEngine;
use serde_json::Value;
use situ::Options;
use situ_server::compactions::ANSWER_BYTES_MAX;
use situ_server::{Engine, Server, ServerOptions, StoreEngine};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        http: Some("127.0.0.1:0".parse().unwrap()),
        threads: 1,
        ..ServerOptions::default()
    }
}

/// Head and body of the answer to a request line.
pub(crate) fn fetch(server: &Server, line: &str) -> (String, String) {
    let address: SocketAddr = server.http_address().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(format!("{line}\r\nHost: \"><script>alert(1)</script>\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn json(server: &Server, target: &str) -> Value {
    let (head, body) = fetch(server, &format!("GET {target} HTTP/1.1"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), "{head}");
    assert!(body.len() <= ANSWER_BYTES_MAX, "{}", body.len());
    serde_json::from_str(&body).unwrap()
}

/// Compacts a store that holds two overlapping tables.
fn compact(engine: &StoreEngine) {
    for value in ["first", "second"] {
        for key in 0..200 {
            engine.store().put(format!("key {key}"), value).unwrap();
        }
        engine.store().flush().unwrap();
    }
    engine.store().compact(None, None).unwrap();
}

#[test]
fn what_compactions_did_is_told_once_and_goes_on_where_the_reader_was() {
    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(StoreEngine::open(directory.path(), Options::default()).unwrap());
    compact(&engine);
    let server = Server::start(&options(), Arc::clone(&engine)).unwrap();
    let first = json(&server, "/compactions.json");
    let attempts = first["attempts"].as_array().unwrap();
    let done = attempts.iter().find(|attempt| attempt["outcome"] == "done").unwrap_or_else(|| panic!("{first}"));
    assert_eq!((&done["unit"], &done["unit_name"], &done["keyspace"]), (&0.into(), &"cpu".into(), &"default".into()));
    assert!(done["input_bytes"].as_u64() > Some(0) && done["output_bytes"].as_u64() > Some(0), "{done}");
    let (began, ended) = (done["began_us"].as_u64().unwrap(), done["ended_us"].as_u64().unwrap());
    assert!(began <= ended && ended <= first["now_us"].as_u64().unwrap(), "{first}");
    let unit = &first["units"][0];
    assert_eq!((&unit["name"], &unit["succeeded"]), (&"cpu".into(), &attempts.len().into()));
    assert!(unit["tasks_max"].as_u64() > Some(0), "{unit}");
    assert_eq!((&first["more"], &first["missed"]), (&false.into(), &0.into()));

    let next = first["next"].as_u64().unwrap();
    let target = format!("/compactions.json?since={next}");
    assert_eq!(json(&server, &target)["attempts"], Value::Array(Vec::new()), "what was told is not told again");
    compact(&engine);
    let news = json(&server, &target);
    assert!(news["next"].as_u64() > Some(next) && !news["attempts"].as_array().unwrap().is_empty(), "{news}");
    assert_eq!(news["opened_unix_ms"], first["opened_unix_ms"]);
    let far = json(&server, "/compactions.json?since=18446744073709551615");
    assert_eq!((&far["next"], &far["missed"]), (&u64::MAX.into(), &0.into()), "nothing is that new");
    server.stop(Duration::from_secs(5));
    engine.store().close().unwrap();
}

#[test]
fn the_page_comes_with_headers_that_let_it_run_nothing_but_its_own() {
    let server = Server::start(&options(), MemoryEngine::start(None)).unwrap();
    let (head, body) = fetch(&server, "GET / HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    for header in [
        "\r\nContent-Security-Policy: default-src 'none'; script-src 'sha256-",
        "frame-ancestors 'none'\r\n",
        "\r\nX-Content-Type-Options: nosniff\r\n",
        "\r\nReferrer-Policy: no-referrer",
        "\r\nCache-Control: no-store\r\n",
    ] {
        assert!(head.contains(header), "{header} is not in {head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    assert!(body.starts_with("<!DOCTYPE html>") && body.ends_with("</html>\n"));
    let (_, asked_oddly) = fetch(&server, "GET /?<script>alert(2)</script>=%3Cb%3E HTTP/1.1");
    assert_eq!(asked_oddly, body, "nothing of a request is in the answer");
}

#[test]
fn requests_with_odd_targets_are_refused_and_not_repeated() {
    let server = Server::start(&options(), MemoryEngine::start(None)).unwrap();
    let cases = [
        ("GET /compactions.json HTTP/1.1", "404", "The engine tells nothing of compactions."),
        ("GET /compactions.json?since= HTTP/1.1", "400", "since takes a number."),
        ("GET /compactions.json?since=-1 HTTP/1.1", "400", "since takes a number."),
        ("GET /compactions.json?since=+1 HTTP/1.1", "400", "since takes a number."),
        ("GET /compactions.json?since=%31 HTTP/1.1", "400", "since takes a number."),
        ("GET /compactions.json?since=18446744073709551616 HTTP/1.1", "400", "since takes a number."),
        ("GET /compactions.json?a=b&since=<script>&since=1 HTTP/1.1", "400", "since takes a number."),
        ("GET /compactions.json?sincere=x HTTP/1.1", "404", "The engine tells nothing of compactions."),
        ("GET /live.json?since=x HTTP/1.1", "400", "since takes a number."),
        ("GET /compactions/ HTTP/1.1", "404", "Here are"),
        ("GET /compactions.json/../../etc/passwd HTTP/1.1", "404", "Here are"),
        ("GET http://elsewhere/compactions HTTP/1.1", "404", "Here are"),
        ("POST /compactions HTTP/1.1", "405", "Only GET and HEAD are served."),
        ("HEAD/ /compactions HTTP/1.1", "405", "Only GET and HEAD are served."),
        ("GET /compactions HTTP/2", "400", "This is not an HTTP/1 request."),
    ];
    for (line, status, text) in cases {
        let (head, body) = fetch(&server, line);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {head}");
        assert!(head.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{line}: {head}");
        assert!(body.starts_with(text) && !body.contains("script"), "{line}: {body}");
    }
}

/// An engine that tells of compactions has them in its metrics, too.
#[test]
fn the_metrics_of_units_agree_with_the_picture() {
    let directory = tempfile::tempdir().unwrap();
    let engine = StoreEngine::open(directory.path(), Options::default()).unwrap();
    compact(&engine);
    let mut samples = Vec::new();
    engine.metrics(&mut |metric| {
        let labels: Vec<String> = metric.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        samples.push((format!("{}{{{}}}", metric.name, labels.join(",")), metric.value));
    });
    let value = |name: &str| {
        let mut found = samples.iter().filter(|(sample, _)| sample == name);
        let (Some((_, value)), None) = (found.next(), found.next()) else { panic!("{name} is not there once") };
        *value
    };
    let unit = &engine.compactions(0).unwrap().units[0];
    assert!(unit.succeeded > 0);
    for (name, expected) in [
        ("situ_compaction_unit_attempts_total{unit=cpu}", unit.attempts as f64),
        ("situ_compaction_unit_tasks_total{unit=cpu,outcome=succeeded}", unit.succeeded as f64),
        ("situ_compaction_unit_tasks_total{unit=cpu,outcome=failed}", 0.0),
        ("situ_compaction_unit_out_of_service{unit=cpu}", 0.0),
        ("situ_compaction_unit_input_bytes_total{unit=cpu}", unit.input_bytes as f64),
        ("situ_compaction_unit_output_bytes_total{unit=cpu}", unit.output_bytes as f64),
        ("situ_compaction_unit_tasks_max{unit=cpu}", unit.tasks_max as f64),
        ("situ_compaction_unit_stage_bytes_total{unit=cpu,stage=read}", unit.stages.read.bytes as f64),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    assert!((value("situ_compaction_unit_busy_seconds_total{unit=cpu}") - unit.busy_us as f64 / 1e6).abs() < 1e-5);
    let decided = unit.decisions.as_ref().unwrap();
    let made = value("situ_compaction_decisions_total{unit=cpu,mode=pipelined}")
        + value("situ_compaction_decisions_total{unit=cpu,mode=linear}");
    assert_eq!(made, decided.made as f64);
    let last = decided.last.as_ref().expect("the default policy decides");
    assert_eq!(value("situ_compaction_decision_f{unit=cpu}"), last.f);
    for input in &last.inputs {
        let name = &input.name;
        assert_eq!(value(&format!("situ_compaction_decision_weight{{unit=cpu,input={name}}}")), input.weight);
        let measured = value(&format!("situ_compaction_decision_input{{unit=cpu,input={name}}}"));
        assert_eq!(Some(measured).filter(|value| !value.is_nan()), input.value, "{name}");
    }
    engine.store().close().unwrap();
}
