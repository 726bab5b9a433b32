//! Large values, and a server with little memory: an item for which there is none is refused, and the server goes on.

use crate::common::{Serving, situ, situ_within};
use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::path::Path;

const VALUE_BYTES: usize = 16 << 20;
const VALUES: u8 = 8;

/// The answers of a connection. `None` if the server is gone.
fn set(serving: &Serving, key: &str, value: &[u8], verb: &str) -> Option<String> {
    let mut connection = serving.connect();
    let stream = connection.get_mut();
    stream.write_all(format!("{verb} {key} 0 0 {}\r\n", value.len()).as_bytes()).ok()?;
    // A server that refuses an item may answer before it has all of it.
    let _ = stream.write_all(value).and_then(|()| stream.write_all(b"\r\n"));
    let mut line = String::new();
    connection.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    Some(line)
}

/// The value of a key: `Ok(None)` for a miss, `Err` with the line of an error.
fn get(serving: &Serving, key: &str) -> Result<Option<Vec<u8>>, String> {
    let mut connection = serving.connect();
    connection.get_mut().write_all(format!("get {key}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    let bytes = connection.read_line(&mut line).unwrap();
    assert!(bytes > 0, "get {key}: the server is gone");
    if line == "END\r\n" {
        return Ok(None);
    }
    let Some(length) = line.strip_prefix("VALUE ").and_then(|rest| rest.trim_end().rsplit(' ').next()) else {
        return Err(line);
    };
    let mut value = vec![0; length.parse().unwrap()];
    connection.read_exact(&mut value).unwrap();
    Ok(Some(value))
}

fn is_no_memory(line: &str) -> bool {
    line.starts_with("SERVER_ERROR") && line.contains("memory")
}

/// Sets, appends to and gets large values within a limit. Returns what is stored, and the refusals.
fn use_with(serving: &Serving, round: u64) -> (HashMap<String, Vec<u8>>, u32) {
    let (mut stored, mut refused) = (HashMap::new(), 0);
    let small = ("small".to_owned(), b"1".to_vec());
    let large = (0..VALUES).map(|number| (format!("large{number}"), vec![b'a' + number; VALUE_BYTES]));
    for (key, value) in large.chain([small]) {
        let line = set(serving, &key, &value, "set").unwrap_or_else(|| panic!("round {round}: {key} ended the server"));
        match line.as_str() {
            "STORED\r\n" => _ = stored.insert(key, value),
            line => {
                assert!(is_no_memory(line), "round {round}: {key}: {line}");
                refused += 1;
            }
        }
    }
    let more = vec![b'+'; VALUE_BYTES];
    let appended = set(serving, "large0", &more, "append").unwrap_or_else(|| panic!("round {round}: append"));
    match (appended.as_str(), stored.get_mut("large0")) {
        ("STORED\r\n", Some(value)) => value.extend_from_slice(&more),
        ("NOT_STORED\r\n", None) => {}
        (line, _) => {
            assert!(is_no_memory(line), "round {round}: append: {line}");
            // A cache may have given up the older item.
            stored.remove("large0");
            refused += 1;
        }
    }
    for (key, value) in &stored {
        match get(serving, key) {
            Ok(found) => {
                let lengths = (found.as_ref().map(Vec::len), value.len());
                assert!(found.as_ref() == Some(value), "round {round}: {key} is not what was stored: {lengths:?}");
            }
            Err(line) => {
                assert!(is_no_memory(&line), "round {round}: {key}: {line}");
                refused += 1;
            }
        }
    }
    (stored, refused)
}

/// Tries limits from the least that a server starts with, until one refuses nothing.
fn try_limits(options: &[&str], is_durable: bool) {
    let starts = |kib| {
        let directory = tempfile::tempdir().unwrap();
        Some((Serving::start_with_memory(directory.path(), kib, options)?, directory))
    };
    let least = (40_000..2_000_000).step_by(20_000).find(|kib| starts(*kib).is_some()).unwrap();
    let mut rounds_refused = 0;
    for round in 1.. {
        let (serving, directory) = starts(least + round * round * 20_000).unwrap();
        let (stored, refused) = use_with(&serving, round);
        drop(serving);
        if is_durable {
            let serving = Serving::start(directory.path(), options);
            for (key, value) in &stored {
                assert!(get(&serving, key).unwrap().as_ref() == Some(value), "round {round}: {key} after a restart");
            }
        }
        if refused == 0 {
            break;
        }
        rounds_refused += 1;
    }
    assert!(rounds_refused > 0, "{options:?}: no round was short of memory");
}

/// Runs the program with `input` and limits from the least that it starts with, until it succeeds. Each run ends with
/// success, or says that there is no memory. Returns the number of runs that said so.
fn refusals(at: &Path, arguments: &[&str], input: &[u8]) -> u32 {
    let ran = |arguments: &[&str], input: &[u8], kib| situ_within(at, kib, arguments, input);
    let starts = |kib: &u64| ran(&["get", "--data", "other", "key"], b"", *kib).is_some_and(|ran| ran.code == 0);
    let least = (10_000..400_000).step_by(2_000).find(starts).unwrap();
    for round in 0..60 {
        let kib = least + 4_000 * (round + 1);
        let ran = ran(arguments, input, kib).unwrap_or_else(|| panic!("a signal ended {arguments:?} with {kib} KiB"));
        if ran.code == 0 {
            return round as u32;
        }
        assert!(ran.code == 1 && ran.stderr.contains("memory"), "{arguments:?} with {kib} KiB: {ran:?}");
        assert!(!ran.stderr.contains("repair"), "{arguments:?} with {kib} KiB: {ran:?}");
    }
    panic!("{arguments:?} needs more and more memory");
}

/// A value that is decoded was allocated by an allocation that ends the process.
#[test]
#[cfg(target_os = "linux")]
fn a_put_without_memory_for_its_value_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "--data", "other", "key", "1"]).done();
    let value = "YWJj".repeat(VALUE_BYTES / 4);
    assert!(refusals(at, &["put", "--data", "D", "--base64", "a2V5"], value.as_bytes()) > 0);
}

/// A look at a sound store without memory called it damaged, and told its user to repair it.
#[test]
#[cfg(target_os = "linux")]
fn an_inspection_without_memory_says_so_and_finds_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "--data", "other", "key", "1"]).done();
    let store = situ::Store::open(at.join("D")).unwrap();
    for number in 0..3 {
        store.put([number], vec![number; VALUE_BYTES]).unwrap();
    }
    store.close().unwrap();
    assert!(refusals(at, &["inspect", "D"], b"") > 0);
}

#[test]
#[cfg(target_os = "linux")]
fn an_ordered_store_without_memory_for_an_item_refuses_it() {
    try_limits(&["D", "--max-value", "60M", "--threads", "1"], true);
}

#[test]
#[cfg(target_os = "linux")]
fn a_value_log_without_memory_for_an_item_refuses_it() {
    try_limits(&["D", "--max-value", "60M", "--threads", "1", "--value-log"], true);
}

#[test]
#[cfg(target_os = "linux")]
fn a_hash_store_without_memory_for_an_item_refuses_it() {
    try_limits(&["D", "--engine", "hash", "--max-value", "60M", "--threads", "1"], true);
}

#[test]
#[cfg(target_os = "linux")]
fn a_cache_without_memory_for_an_item_refuses_it() {
    try_limits(&["--engine", "cache", "--memory", "1G", "--max-value", "60M", "--threads", "1"], false);
}
