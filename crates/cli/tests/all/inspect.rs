//! `inspect` of sound and of damaged stores; `bench`.

use crate::common::{situ, situ_fed};
use crate::hash::Behind;
use situ_base::{Env, StoreClock};
use situ_server::{ITEMS_KEYSPACE, ItemWriter, META_KEYSPACE, open_unserved_by};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn filled(at: &Path) {
    let lines: String = (0..5000).map(|n| format!("{{\"key\":\"person:{n:05}\",\"value\":\"{n}\"}}\n")).collect();
    situ_fed(at, &["load", "-k", "people"], lines.as_bytes()).done();
    situ(at, &["put", "a", "b"]).done();
    situ(at, &["compact"]).done();
    situ(at, &["put", "a", "c"]).done();
}

fn file(at: &Path, extension: &str) -> (u64, PathBuf) {
    let files = fs::read_dir(at.join("situ-data")).unwrap().map(|entry| entry.unwrap().path());
    let path = files
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .max_by_key(|path| (fs::metadata(path).unwrap().len(), path.clone()));
    let path = path.unwrap();
    (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), path)
}

#[test]
fn a_sound_store_is_drawn_within_a_hundred_columns() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    filled(at);
    let text = situ(at, &["inspect"]).done().text();
    assert!(
        text.contains("2 keyspaces") && text.contains("level 6") && text.contains("all keys begin with person:0"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let report = situ(at, &["inspect", "situ-data", "--json"]).done().json();
    assert_eq!(report["sound"], true);
    assert!(situ(at, &["verify"]).done().text().ends_with("all is sound\n"));
    let verified = situ(at, &["verify", "--json"]).done().json();
    assert_eq!((verified["sound"].as_bool(), verified["entries"].as_u64()), (Some(true), Some(5002)));
    let people = &report["keyspaces"][1];
    assert_eq!((people["name"].as_str(), people["approximate_keys"].as_u64()), (Some("people"), Some(5000)));
    let table = &people["levels"][6]["tables"][0];
    assert_eq!((table["entries"].as_u64(), table["begin"].as_str()), (Some(5000), Some("person:00000")));

    let number = table["number"].to_string();
    let one = situ(at, &["inspect", "--table", &number, "--json"]).done().json();
    assert_eq!((one["entries"].as_u64(), one["largest_key"].as_str()), (Some(5000), Some("person:04999")));
    assert!(one["block_bytes_max"].as_u64() > Some(0) && one["data_blocks"].as_u64() > Some(1));
    assert!(situ(at, &["inspect", "--table", &number]).done().text().contains("first key  person:00000"));
    // One file holds the last record, the other is prepared for more.
    let logs = report["log_files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap());
    let numbers: Vec<&str> = logs.filter_map(|name| name.strip_suffix(".log")).collect();
    let shown = numbers.iter().map(|log| situ(at, &["inspect", "--log", log, "--json"]).done().json());
    let used: Vec<_> = shown.filter(|log| log["used_bytes"].as_u64() > Some(0)).collect();
    assert_eq!(used.len(), 1, "{used:?}");
    assert_eq!((used[0]["damaged"].as_bool(), used[0]["closed"].as_bool()), (Some(false), Some(true)), "{used:?}");
    assert!(numbers.iter().any(|log| situ(at, &["inspect", "--log", log]).done().text().contains("  good")));
    let missing = situ(at, &["inspect", "--table", "999999"]);
    assert!(missing.code == 1 && missing.stderr.contains("there is no such table"), "{}", missing.stderr);
    assert_eq!(situ(at, &["inspect", "--log", "999999"]).code, 1);
    assert_eq!(situ(at, &["inspect", "elsewhere"]).code, 1);
}

#[test]
fn a_damaged_store_is_shown_as_far_as_it_goes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    filled(at);
    let (number, path) = file(at, "table");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let shown = situ(at, &["inspect"]);
    assert_eq!(shown.code, 4);
    assert!(shown.text().contains("✗") && shown.text().contains("default"), "{}", shown.text());
    assert!(shown.stderr.contains("situ verify") && shown.stderr.contains("situ repair"), "{}", shown.stderr);
    let report = situ(at, &["inspect", "--json"]);
    assert_eq!((report.code, report.json()["sound"].as_bool()), (4, Some(false)));
    assert_eq!(situ(at, &["inspect", "--table", &number.to_string()]).code, 4);
    let found = situ(at, &["verify"]);
    assert_eq!(found.code, 4);
    assert!(found.text().contains(&format!("✗ situ-data/{number:06}.table, byte ")), "{}", found.text());
    let found = situ(at, &["verify", "--json"]);
    assert_eq!((found.code, found.json()["sound"].as_bool()), (4, Some(false)));
    assert!(!found.json()["damages"].as_array().unwrap().is_empty());
    let read = situ(at, &["scan", "-k", "people"]);
    assert_eq!(read.code, 4);
    assert!(read.stderr.contains(".table is damaged at byte"), "{}", read.stderr);

    fs::remove_file(at.join("situ-data/CURRENT")).unwrap();
    let shown = situ(at, &["inspect"]);
    assert_eq!(shown.code, 4);
    assert!(shown.text().contains("It cannot be opened") && shown.text().contains("✗ "), "{}", shown.text());
    let report = situ(at, &["inspect", "--json"]).json();
    let unreadable: Vec<_> = report["files"].as_array().unwrap().iter().filter(|f| f["readable"] == false).collect();
    assert_eq!(unreadable.len(), 1, "{report}");
}

#[test]
fn a_repair_saves_what_it_can_and_says_what_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    filled(at);
    let sound = situ(at, &["repair"]).done().text();
    assert_eq!(sound, "The store is sound: there is nothing to repair.\n");
    let (number, path) = file(at, "table");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let dry = situ(at, &["repair", "--dry-run", "--json"]);
    assert_eq!(dry.code, 4);
    let dry = dry.json();
    assert_eq!((dry["dry_run"].as_bool(), dry["tables_salvaged"].as_u64()), (Some(true), Some(1)), "{dry}");
    assert_eq!(situ(at, &["verify"]).code, 4, "a dry run has changed something");
    let words = situ(at, &["repair", "--dry-run"]);
    assert!(words.code == 4 && words.text().contains("Nothing was changed."), "{words:?}");

    let done = situ(at, &["repair", "--json"]).done().json();
    assert_eq!((done["nothing_lost"].as_bool(), &done["lost_ranges"]), (Some(false), &dry["lost_ranges"]));
    assert_eq!(done["set_aside"][0]["was"], format!("{number:06}.table"));
    situ(at, &["verify"]).done();
    let kept = situ(at, &["scan", "-k", "people", "--keys"]).done().text();
    let lost = &done["lost_ranges"][0];
    let (begin, end) = (lost["begin"].as_str().unwrap(), lost["end"].as_str().unwrap());
    for n in 0..5000 {
        let key = format!("person:{n:05}");
        let is_lost = begin <= key.as_str() && key.as_str() < end;
        assert!(is_lost || kept.contains(&key), "{key} is neither there nor told lost ({begin} to {end})");
    }
    assert_eq!(situ(at, &["get", "a"]).done().text(), "c\n");

    // Without a manifest the tables are found by their names.
    fs::remove_file(at.join("situ-data/CURRENT")).unwrap();
    let words = situ(at, &["repair"]).done().text();
    assert!(words.contains("Repaired."), "{words}");
    assert_eq!(situ(at, &["scan", "-k", "people", "--keys"]).done().text(), kept);
}

#[test]
fn a_benchmark_runs_and_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let result = situ(at, &["bench", "--keys", "2000", "--output", "r.json", "--json"]).done().json();
    assert_eq!(result["phases"].as_array().map(Vec::len), Some(2), "{result}");
    assert!(situ(at, &["bench", "--keys", "1000", "--workloads", "fillseq"]).done().text().contains("fillseq"));
    situ(at, &["bench", "report", "r.json", "--output", "r.html"]).done();
    assert!(fs::read_to_string(at.join("r.html")).unwrap().contains("<svg"));
    assert_eq!(situ(at, &["bench", "--keys", "0"]).code, 2);
}

/// "1 table were kept", it said, and "1 files are missing".
#[test]
fn a_repair_counts_one_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    situ(at, &["put", "a", "1"]).done();
    situ(at, &["compact"]).done();
    situ(at, &["put", "b", "2"]).done();
    // The manifest knows the table by another number.
    let (_, path) = file(at, "table");
    fs::rename(&path, path.with_file_name("000900.table")).unwrap();
    let planned = situ(at, &["repair", "--dry-run"]).text();
    assert!(
        planned.contains("1 table would be kept, 0 salvaged in part, 1 lost; 1 record would be replayed"),
        "{planned}"
    );
    assert!(planned.contains("one in which 1 file is missing and 1 is not named"), "{planned}");
    let done = situ(at, &["repair"]).done().text();
    assert!(
        done.contains("1 table was kept, 0 salvaged in part, 1 lost; 1 record was replayed from the log"),
        "{done}"
    );
    assert_eq!(situ(at, &["get", "a"]).done().text(), "1\n");
}

/// A store of 2 GB was shown as tables of 200 KB, because the value log was left out.
/// The expiries of items are times of the store's clock. They were compared with the wall clock, which was a year ahead.
#[test]
fn items_have_expired_by_the_clock_of_their_store() {
    const ITEMS: u64 = 300;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let env = Env { clock: Arc::new(Behind::default()), ..Env::system() };
    let open = || {
        open_unserved_by(situ::Options::default(), |builder| builder.env(env.clone()).open(at.join("situ-data")))
            .unwrap()
    };
    let fill = |name: &str, expires: u64| {
        let store = open();
        let clock = Arc::new(StoreClock::resume(Arc::clone(&env.clock), None));
        let mut writer = ItemWriter::open(&store, Arc::clone(&clock)).unwrap();
        let mut batch = situ::WriteBatch::new();
        let item = [&[1, 0, 0, 0, 0, 0][..], &expires.to_le_bytes(), &1u64.to_le_bytes(), b"data"].concat();
        (0..ITEMS).for_each(|n| writer.put(&mut batch, format!("{name} {n}").as_bytes(), &item).unwrap());
        writer.seal(&mut batch).unwrap();
        batch.put_in(&store.existing_keyspace(META_KEYSPACE).unwrap(), b"clock", clock.record().encode()).unwrap();
        store.write(batch).unwrap();
        store.close().unwrap();
        // The filter begins when the store is opened.
        let store = open();
        store.existing_keyspace(ITEMS_KEYSPACE).unwrap().flush().unwrap();
        store.close().unwrap();
    };
    let expired = || {
        let report = situ(at, &["inspect", "--json"]).done().json();
        let keyspaces = report["keyspaces"].as_array().unwrap();
        let items = keyspaces.iter().find(|keyspace| keyspace["name"] == ITEMS_KEYSPACE).unwrap();
        items["debts"]["expired_entries"].as_u64().unwrap()
    };
    let now = env.clock.unix().as_secs();
    fill("alive", now + 3600);
    assert_eq!(expired(), 0);
    fill("dead", now - 3600);
    assert_eq!(expired(), ITEMS);
    assert!(situ(at, &["inspect"]).done().text().contains("300 expired entries"));
}

#[test]
fn the_value_log_of_each_keyspace_is_shown() {
    const VALUE_BYTES: usize = 16 << 10;
    const VALUES: u32 = 200;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mut options = situ::Options::default().value_segment_bytes(1 << 20);
    // No segment is collected during the test.
    options.value_inflation_percent_max = 10_000;
    let store = situ::StoreBuilder::new(options).open(at.join("situ-data")).unwrap();
    let large = store.keyspace_with("large", situ::KeyspaceOptions::default().with_value_log()).unwrap();
    // Every other value dies, so no segment is entirely dead and removed.
    for step in [1, 2] {
        for n in (0..VALUES).step_by(step) {
            large.put(n.to_be_bytes(), vec![7; VALUE_BYTES]).unwrap();
        }
        large.flush().unwrap();
    }
    large.compact(None, None).unwrap();
    store.put("key", "value").unwrap();
    store.wait_idle().unwrap();
    let expected = large.properties();
    store.close().unwrap();

    let report = situ(at, &["inspect", "--json"]).done().json();
    let keyspaces = report["keyspaces"].as_array().unwrap();
    assert!(keyspaces.iter().any(|keyspace| keyspace["name"] == "default" && keyspace.get("value_log").is_none()));
    let log = &keyspaces.iter().find(|keyspace| keyspace["name"] == "large").unwrap()["value_log"];
    let number = |value: &serde_json::Value, name: &str| value[name].as_u64().unwrap();
    let segments = log["segments"].as_array().unwrap();
    assert_eq!(segments.len(), expected.value_segments, "{log}");
    assert!(segments.len() > 4, "{log}");
    assert_eq!(number(log, "dead_bytes"), expected.value_dead_bytes);
    assert_eq!(number(log, "live_bytes"), expected.value_bytes - expected.value_dead_bytes);
    assert!(number(log, "live_bytes") >= u64::from(VALUES) * VALUE_BYTES as u64, "{log}");
    assert!(number(log, "dead_bytes") >= u64::from(VALUES / 2) * VALUE_BYTES as u64, "{log}");
    assert!(number(log, "file_bytes") >= number(log, "live_bytes") + number(log, "dead_bytes"), "{log}");
    assert_eq!(segments.iter().map(|segment| number(segment, "values")).sum::<u64>(), u64::from(VALUES + VALUES / 2));
    let text = situ(at, &["inspect", "--all"]).done().text();
    assert!(text.contains(&format!("{} segments  values: ", segments.len())), "{text}");
    assert_eq!(text.matches(" values  ").count(), segments.len(), "{text}");

    let (first, _) = file(at, "values");
    fs::remove_file(at.join(format!("situ-data/{first:06}.values"))).unwrap();
    let damaged = situ(at, &["inspect", "--json"]);
    assert_eq!(damaged.code, 4, "{damaged:?}");
    assert!(damaged.text().contains("\"damage\":\"the file is missing\""), "{}", damaged.text());
}

/// Names and keys were cut at column 100 in pipes as well.
#[test]
fn nothing_is_cut_in_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (name, begin, end) = ("n".repeat(90), "a".repeat(300), "b".repeat(300));
    let lines = format!("{{\"key\":\"{begin}\",\"value\":\"1\"}}\n{{\"key\":\"{end}\",\"value\":\"2\"}}\n");
    situ_fed(at, &["load", "-k", &name], lines.as_bytes()).done();
    situ(at, &["compact"]).done();
    let text = situ(at, &["inspect"]).done().text();
    for part in [&name, &begin, &end] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let number = file(at, "table").0.to_string();
    let table = situ(at, &["inspect", "--table", &number]).done().text();
    assert!(table.contains("first key") && (table.contains(&begin) || !table.contains('…')), "{table}");
}
