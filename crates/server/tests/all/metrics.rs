//! The page of metrics as Prometheus reads it: each metric is described once, and its name, type and unit agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use situ::hash::{HashOptions, HashStoreBuilder};
use situ::{Durability, Options};
use situ_base::Env;
use situ_server::{Engine, HashEngine, Server, StoreEngine};
use situ_sim::{Compression, FaultPlan, SimDevice, SimVolume};

use crate::cache::made_on_flash;
use crate::compactions::{fetch, options};
use crate::durable::Durable;

#[derive(Default)]
struct Described {
    help: Option<String>,
    kind: Option<String>,
    labels: BTreeSet<String>,
    samples: usize,
}

fn page_of<E: Engine>(engine: &Arc<E>) -> String {
    let server = Server::start(&options(), Arc::clone(engine)).unwrap();
    fetch(&server, "GET /metrics HTTP/1.1").1
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
    let page = page_of(&engine);
    engine.store().close().unwrap();
    page
}

/// Returns the metrics of a store on a compressing drive that reports its physical space.
fn page_of_a_drive_that_compresses() -> String {
    let env = Env::system();
    let volume = Arc::new(SimVolume::new(&env, FaultPlan::none(), 1));
    volume.set_compression(Compression::default().total(1 << 30));
    let engine = StoreEngine::open_by(Options::default(), |builder| builder.open_volume(volume)).unwrap();
    engine.store().put(b"key", b"value").unwrap();
    engine.store().flush().unwrap();
    let engine = Arc::new(engine);
    let page = page_of(&engine);
    engine.store().close().unwrap();
    page
}

/// Returns the metrics of a hash store on such a drive.
fn page_of_a_hash_store() -> String {
    let env = Env::system();
    let volume = || Arc::new(SimVolume::new(&env, FaultPlan::none(), 1));
    let device = SimDevice::new(&env, 64 << 20, FaultPlan::none(), 1);
    device.set_compression(Compression::default().total(1 << 30));
    let options = HashOptions { base_bits: 4, bucket_space_bytes: 64 << 20, partitions: 2, ..HashOptions::default() };
    let open = |builder: HashStoreBuilder| builder.open_volumes(volume(), volume(), Arc::new(device.clone()));
    let engine = HashEngine::open_by(HashStoreBuilder::new(options), Durability::Buffered, open).unwrap();
    engine.store().put("key", "value").unwrap();
    let engine = Arc::new(engine);
    let page = page_of(&engine);
    engine.close();
    page
}

fn page_of_a_cache() -> String {
    let directory = tempfile::tempdir().unwrap();
    let engine = Arc::new(made_on_flash(directory.path()));
    let page = page_of(&engine);
    engine.stop().unwrap();
    page
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
            let labels =
                line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
            let names =
                labels.split("\",").filter_map(|label| label.split_once("=\"")).map(|(name, _)| name.to_owned());
            let metric = metrics.entry(name).or_default();
            metric.labels.extend(names.filter(|name| name != "le"));
            metric.samples += 1;
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

/// Metrics that no test can produce: they need a node, or a busy fast disk. Their rows are written by hand.
const BY_HAND: [&str; 2] = ["situ_node_", "situ_store_placement_decision_info"];

/// Two thirds of the metrics were undocumented.
#[test]
fn the_guide_lists_every_metric_of_every_engine() {
    let mut metrics: BTreeMap<String, Described> = BTreeMap::new();
    for page in [page(), page_of_a_drive_that_compresses(), page_of_a_hash_store(), page_of_a_cache()] {
        for (name, metric) in described(&page) {
            let known = metrics.entry(name).or_default();
            known.labels.extend(metric.labels);
            (known.help, known.kind) = (metric.help, metric.kind);
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("docs/guide/metrics.md");
    let page = fs::read_to_string(&path).unwrap();
    let is_row = |line: &str| {
        let name = line.strip_prefix("| `").filter(|name| name.starts_with("situ_"));
        name.is_some_and(|name| BY_HAND.iter().all(|by_hand| !name.starts_with(by_hand)))
    };
    metrics.retain(|name, _| BY_HAND.iter().all(|by_hand| !name.starts_with(by_hand)));
    let (mut expected, mut rows, mut prefix) = (String::new(), 0, None);
    for line in page.lines().filter(|line| !is_row(line)) {
        expected.push_str(line);
        expected.push('\n');
        // A comment before a table has the prefix of its metrics.
        prefix = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).or(prefix);
        let Some(prefix) = prefix.take_if(|_| line.starts_with("|---")) else { continue };
        for (name, Described { help, kind, labels, .. }) in metrics.iter().filter(|(name, _)| name.starts_with(prefix))
        {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let (kind, help) = (kind.as_deref().unwrap(), help.as_deref().unwrap());
            expected.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
            rows += 1;
        }
    }
    if std::env::var_os("SITU_BLESS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert_eq!(rows, metrics.len(), "a metric has no table, or two");
    assert!(page == expected, "{} differs; SITU_BLESS=1 writes its tables:\n{expected}", path.display());

    // The program, not the server, has the metrics of nodes, and shows them only with a node.
    let source = fs::read_to_string(root.join("crates/cli/src/watch.rs")).unwrap();
    let names = |text: &str| -> BTreeSet<String> {
        let is_end = |c: char| !(c.is_ascii_lowercase() || c == '_');
        text.split("situ_node_").skip(1).map(|rest| rest.split(is_end).next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&page), names(&source));
    // No page names a metric that does not exist.
    let listed: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for guide in fs::read_dir(root.join("docs/guide")).unwrap() {
        let guide = guide.unwrap().path();
        // The names of the C library begin alike.
        if guide.ends_with("c.md") {
            continue;
        }
        let text = fs::read_to_string(&guide).unwrap();
        let is_metric = |text: &&str| text.starts_with("situ_") && !text.contains("::") && !text.ends_with(".h");
        for name in text.split('`').filter(is_metric) {
            let name = name.split(['{', ' ']).next().unwrap();
            let is_known = |known: &&str| *known == name || (name.ends_with('_') && known.starts_with(name));
            assert!(listed.iter().any(is_known), "{} names {name}, which is no metric", guide.display());
        }
    }
}

/// A dashboard and alerts that ask for a metric of another name show nothing, and say nothing.
#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/guide/metrics.md")).unwrap();
    let rows: BTreeMap<&str, &str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `situ_"))
        .map(|row| row.split_once("` | ").unwrap())
        .map(|(name, rest)| (name, rest.split_once(" | ").unwrap().0))
        .collect();
    for (file, least) in [("grafana-dashboard.json", 60), ("prometheus-alerts.yml", 15)] {
        let text = fs::read_to_string(root.join("packaging/monitoring").join(file)).unwrap();
        let is_end = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        let asked = text.split("situ_").skip(1).map(|rest| rest.split(is_end).next().unwrap());
        let asked: BTreeSet<&str> = asked.collect();
        assert!(asked.len() >= least, "{file} asks for {} metrics", asked.len());
        for name in asked {
            let (name, is_bucket) = name.strip_suffix("_bucket").map_or((name, false), |name| (name, true));
            let kind = rows.get(name).unwrap_or_else(|| panic!("{file}: there is no metric situ_{name}"));
            assert_eq!(is_bucket, *kind == "histogram", "{file}: situ_{name}");
            let is_rate = ["rate(", "increase("].iter().any(|of| {
                text.split(&format!("situ_{name}")).next().is_some_and(|before| before.trim_end().ends_with(of))
            });
            assert!(!is_rate || *kind != "gauge", "{file}: a rate of the gauge situ_{name}");
        }
    }
    let dashboard: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(root.join("packaging/monitoring/grafana-dashboard.json")).unwrap())
            .unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}
