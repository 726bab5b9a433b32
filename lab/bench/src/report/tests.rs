use super::*;
use crate::memory::MemoryFactory;
use crate::options::BenchOptions;
use crate::run::run;
use crate::workloads::Workload;

fn measured(label: &str, workloads: &[Workload]) -> BenchResult {
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = BenchOptions {
        keys: 500,
        workloads: workloads.to_vec(),
        directory: directory.path().to_owned(),
        label: Some(label.to_owned()),
        ..BenchOptions::default()
    };
    run(&options, &MemoryFactory::default()).expect("run")
}

/// Every element that opens closes, in order; attributes are quoted; no raw `<` or `&` in text.
fn assert_well_formed(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>\n").expect("a document type");
    while let Some((text, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("a tag ends");
        for entity in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|known| entity.starts_with(known));
            assert!(known, "raw & before {entity:.20}");
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes in <{tag}>");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closing tag");
        } else if !tag.ends_with('/') {
            let name = tag.split_whitespace().next().expect("a name");
            open.push(name);
            if ["script", "style"].contains(&name) {
                let end = format!("</{name}>");
                rest = &rest[rest.find(&end).expect("an end of raw text")..];
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    assert!(!html.contains("NaN") && !html.contains("inf\"") && !html.contains(" -inf"), "a figure without a value");
}

#[test]
fn a_page_of_one_result_stands_alone() {
    let result = measured("memory", &[Workload::FillRandom, Workload::ReadRandom]);
    let html = render("One", None, &[result]).expect("render");
    assert_well_formed(&html);
    assert!(html.contains("<h2>fillrandom") && html.contains("<h2>readrandom"));
    for outside in ["http://", "https://", "url(", "@import", "src=", "<link"] {
        assert!(!html.contains(outside), "the page asks for {outside}");
    }
    assert!(!html.contains("baseline</small>"), "one subject is compared with nothing");
}

#[test]
fn a_page_of_five_results_shows_medians_ratios_and_spread() {
    let workloads = [Workload::YcsbLoad, Workload::YcsbA, Workload::Compact, Workload::YcsbE];
    let mut results: Vec<BenchResult> = (0..3).map(|_| measured("b<&\"'", &workloads)).collect();
    results.push(measured("other", &workloads));
    results.push(measured("other", &[Workload::YcsbLoad]));
    for (result, rate) in results.iter_mut().zip([100.0, 300.0, 200.0, 600.0, 600.0]) {
        for phase in &mut result.phases {
            phase.operations_per_second = rate;
        }
    }
    let html = render("Five <results>", Some("b<&\"'"), &results).expect("render");
    assert_well_formed(&html);
    assert!(html.contains("<strong>3.00×</strong><small>throughput, geometric mean of 3 workloads"));
    assert!(html.contains("100/s to 300/s in 3 runs"));
    assert!(html.contains("Five &lt;results&gt;"));
    let error = render("x", Some("absent"), &results).expect_err("no such label").to_string();
    assert!(error.contains("no result is labelled absent"), "{error}");
    assert!(render("x", None, &[]).is_err());
}

/// The median of different measurements was shown without a word.
#[test]
fn runs_that_are_no_repetitions_are_pointed_out() {
    let workloads = [Workload::FillRandom];
    let (one, mut two, mut other) = (measured("a", &workloads), measured("a", &workloads), measured("b", &workloads));
    let warning = "The runs labelled a are no repetitions, they differ in ";
    two.options.seed = 7;
    let page = |results: &[BenchResult]| render("x", None, results).expect("render");
    assert!(!page(&[one.clone(), two.clone()]).contains(warning));
    two.options.keys = 7;
    two.options.rate = Some(8);
    two.store_settings.insert("cache".to_owned(), 9.into());
    other.options.keys = 10;
    let html = page(&[one, two, other]);
    assert_well_formed(&html);
    assert!(html.contains(&format!("{warning}keys, rate, cache:")), "{html}");
    assert!(html.contains("<dt>keys</dt><dd class=\"differs\">10</dd>"), "{html}");
    assert!(!html.contains("<dt>directory</dt>"));
}

/// A page compared runs of two commits on two machines, and only the small print said so.
#[test]
fn a_page_says_how_the_runs_differ() {
    let workloads = [Workload::FillRandom];
    let (one, mut other) = (measured("a", &workloads), measured("b", &workloads));
    let page = |results: &[BenchResult]| render("x", None, results).expect("render");
    assert!(page(&[one.clone(), other.clone()]).contains("In their labels only."));
    assert!(!page(std::slice::from_ref(&one)).contains("Differences between the runs"));
    other.options.keys = 10;
    other.options.seed = 7;
    other.commit = Some("<new>".to_owned());
    other.machine.kernel = "another one".to_owned();
    other.phases[0].operations = 10;
    other.store_settings.insert("only there".to_owned(), 9.into());
    let mut again = other.clone();
    again.machine.host = format!("{}2", other.machine.host);
    let results = [one, other, again];
    let html = page(&results);
    assert_well_formed(&html);
    let comparison = Comparison::new(None, &results).expect("results");
    let differences = comparison.differences();
    let names: Vec<&str> = differences.iter().map(|difference| difference.name.as_str()).collect();
    assert_eq!(names, ["runs", "commit", "kernel", "host", "keys", "seed", "operations of fillrandom"]);
    assert_eq!(differences[1].values, [("a".to_owned(), "not given".to_owned()), ("b".to_owned(), "<new>".to_owned())]);
    assert!(html.contains("<tr><th>keys</th><td>500</td><td>10</td></tr>"), "{html}");
    assert!(html.contains("<td>&lt;new&gt;</td>"), "{html}");
}

/// The results in the repository had lost a field that tells nothing, and could not be read any more.
#[test]
fn the_results_that_are_kept_can_be_shown() {
    let evidence = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence/rocksdb");
    let mut sets = 0;
    for set in std::fs::read_dir(evidence).expect("the evidence") {
        let files = std::fs::read_dir(set.expect("a set").path()).expect("a set is a directory");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        let results: Vec<_> = paths.iter().map(|path| BenchResult::read_json(path).expect("a result")).collect();
        if results.is_empty() {
            continue;
        }
        let html = render("x", Some("rocksdb"), &results).expect("render");
        assert_well_formed(&html);
        assert!(!html.contains("are no repetitions"), "{paths:?}");
        for part in ["Write amplification", "Peak anonymous memory", "by percentile", "p99.9"] {
            assert!(html.contains(part), "{part} of {paths:?}");
        }
        sets += usize::from(!results.is_empty());
    }
    if sets == 0 {
        eprintln!("SKIPPED: the raw results are packed: scripts/evidence.sh unpack");
    }
}

/// All of them, whatever their layout; and none shows what Rust calls a setting.
#[test]
fn every_result_in_the_repository_can_be_read() {
    let mut directories = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence")];
    let mut read = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("the evidence") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = match path.extension().is_some_and(|extension| extension == "json") {
                true => std::fs::read_to_string(&path).expect("read"),
                false => continue,
            };
            if !text.contains("\"situ-bench ") {
                continue;
            }
            let result = BenchResult::read_json(&path).unwrap_or_else(|error| panic!("{error}"));
            if result.store.starts_with("situ ") {
                assert!(result.store_settings["memtable_bytes"].is_u64(), "{path:?}");
                let html = render("x", None, &[result]).expect("render");
                assert!(!html.contains("Ablation {") && !html.contains("Some(") && !html.contains("[Lz4"), "{path:?}");
            }
            read += 1;
        }
    }
    match read {
        0 => eprintln!("SKIPPED: the raw results are packed: scripts/evidence.sh unpack"),
        _ => assert!(read > 50, "{read}"),
    }
}

#[test]
fn the_spread_is_the_median_and_the_ends() {
    let spread = Spread::of([5.0, 1.0, 3.0, 2.0]).expect("values");
    assert_eq!((spread.median, spread.min, spread.max, spread.count), (2.5, 1.0, 5.0, 4));
    assert_eq!(Spread::of([]), None);
    assert_eq!(Spread::of([f64::NAN]), None);
}

#[test]
fn ratios_are_taken_within_a_repetition_where_there_are_pairs() {
    // The machine halves its speed in the second repetition.
    let paired = ratio(&[200.0, 90.0, 210.0], &[100.0, 50.0, 100.0]).expect("values");
    assert_eq!((paired.median, paired.min, paired.max), (2.0, 1.8, 2.1));
    let unpaired = ratio(&[200.0, 90.0], &[100.0, 50.0, 100.0]).expect("values");
    assert_eq!((unpaired.median, unpaired.count), (1.45, 1));
    assert_eq!(ratio(&[1.0], &[0.0]), None);
    assert_eq!(ratio(&[], &[]), None);
}
