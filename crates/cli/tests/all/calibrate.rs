//! Rules of a machine: measured, written, read by the server and the benchmark.

use crate::common::{Serving, situ};
use serde_json::Value;
use std::fs;
use std::path::Path;

const SHORT: [&str; 6] = ["bench", "calibrate", "--seconds", "1", "--run-bytes", "256K"];

fn rules(at: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(at.join("compaction-rules.json")).unwrap()).unwrap()
}

#[test]
fn rules_are_measured_on_both_sides_and_used() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let shown = situ(at, &SHORT).done().text();
    assert!(shown.contains("bandwidth growth") && shown.contains("wrote compaction-rules.json"), "{shown}");
    let host = rules(at)["host"].clone();
    assert!(host["processors_weight"].as_f64().unwrap() >= 1.0, "{host}");
    assert!(rules(at)["elsewhere"].is_null());
    let measured = situ(at, &[&SHORT[..], &["--side", "elsewhere", "--json"]].concat()).done().json();
    assert_eq!((&rules(at)["host"], &rules(at)["elsewhere"]), (&host, &measured["rules"]), "the other side stays");
    assert!(!at.join("situ-bench-data").exists());
    let with_rules =
        ["--compaction", "copro-plus", "--compaction-rules", "compaction-rules.json", "--tables-per-job", "2"];
    let bench = ["bench", "--json", "--keys", "1k", "--workloads", "fillrandom"];
    let result = situ(at, &[&bench[..], &with_rules].concat()).done().json();
    assert_eq!(result["store_settings"]["compaction"], "custom", "{}", result["store_settings"]);
    let mut serving = Serving::start(at, &with_rules);
    assert_eq!(serving.ask("set a 0 0 1\r\nx\r\nquit\r\n"), "STORED\r\n");
    serving.signal(rustix::process::Signal::INT);
    assert_eq!(serving.wait(), Some(0));
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_measured_or_opened() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("other.json"), "{\"format\": 1, \"treshold\": 2}").unwrap();
    let refused = |arguments: &[&str], part: &str| {
        let refused = situ(at, arguments);
        assert_eq!(refused.code, 2, "{arguments:?}: {refused:?}");
        let said = format!("{refused:?}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    };
    refused(&["serve", "--compaction", "co-pro"], "copro-plus");
    refused(&["serve", "--compaction-rules", "other.json"], "treshold");
    refused(&["serve", "--compaction-rules", "missing.json"], "missing.json");
    refused(&["serve", "--tables-per-job", "0"], "1..=64");
    refused(&["bench", "calibrate", "--output", "other.json"], "treshold");
    refused(&["bench", "calibrate", "--ratio-min", "0"], "more than 0");
    refused(&["bench", "calibrate", "--capacity", "here"], "node://");
    fs::write(at.join("none.json"), "{\"format\": 1}").unwrap();
    refused(&["serve", "--compaction-rules", "none.json"], "no side that decides");
    refused(&["bench", "--keys", "10", "--compaction-rules", "none.json"], "no side that decides");
    assert_eq!(fs::read_dir(at).unwrap().count(), 2, "nothing was made");
}
