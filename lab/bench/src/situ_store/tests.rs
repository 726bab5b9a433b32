use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;
use crate::memory::MemoryFactory;
use crate::options::BenchOptions;
use crate::workloads::Workload;
use situ::offload::Policy;

fn settings() -> SituSettings {
    SituSettings { memtable_bytes: 256 << 10, cache_bytes: 1 << 20, ..SituSettings::default() }
}

fn key(number: u32) -> Vec<u8> {
    format!("{:08}", number.wrapping_mul(2_654_435_761) % 5000).into_bytes()
}

/// Writes, compacts, reopens, and tells everything that can be read.
fn answers(factory: &dyn StoreFactory, reopen: bool) -> Vec<(Vec<u8>, usize)> {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut store = factory.open(directory.path()).expect("open");
    for number in 0..8000u32 {
        let value = vec![b'v'; 300 + number as usize % 100];
        match number % 10 {
            0 => store.delete(&key(number), false),
            1 => {
                store.batch(&[Change::Put(&key(number), &value), Change::Delete(&key(number + 7))], number % 1000 == 1)
            }
            _ => store.put(&key(number), &value, number % 1000 == 2),
        }
        .expect("write");
    }
    if reopen {
        store.flush().expect("flush");
        store.compact_all().expect("compact");
        store.wait_idle().expect("idle");
        drop(store);
        store = factory.open(directory.path()).expect("reopen");
    }
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for number in 0..5000u32 {
        let present = store.get(format!("{number:08}").as_bytes(), &mut found).expect("get");
        seen.push((vec![u8::from(present)], found.len()));
    }
    for (start, limit) in [("", u64::MAX), ("00002500", 10), ("9", 5), ("1", 0)] {
        let mut each = |key: &[u8], value: &[u8]| {
            seen.push((key.to_vec(), value.len()));
            ControlFlow::Continue(())
        };
        let forward = store.scan(start.as_bytes(), limit, &mut each).expect("scan");
        let backward = store.scan_reverse(Some(start.as_bytes()), limit, &mut each).expect("scan");
        let from_end = store.scan_reverse(None, limit, &mut each).expect("scan");
        seen.push((Vec::new(), (forward * 10_000 + backward * 100 + from_end) as usize));
    }
    let mut calls = 0;
    let count = store.scan(b"", u64::MAX, &mut |_, _| {
        calls += 1;
        ControlFlow::Break(())
    });
    assert_eq!((count.expect("scan"), calls), (1, 1), "breaking ends a scan");
    seen
}

/// An adapter that answered differently would be measured at something else than the others.
#[test]
fn situ_answers_as_a_map_in_memory() {
    let expected = answers(&MemoryFactory::default(), false);
    for reopen in [false, true] {
        let seen = answers(&SituFactory::new(settings().options().expect("options")), reopen);
        assert!(seen == expected, "different answers, reopen: {reopen}");
    }
}

/// Stores lie in this directory.
struct Elsewhere(std::path::PathBuf);

impl StoreHome for Elsewhere {
    fn open(&self, builder: situ::StoreBuilder, _directory: &Path) -> situ::Result<OpenedStore> {
        let counted = AtomicU64::new(0);
        let read_bytes = move || counted.fetch_add(7, Ordering::Relaxed) + 7;
        let figures: Figures = Arc::new(move || vec![("wire_read_bytes".to_owned(), read_bytes())]);
        Ok(OpenedStore { store: builder.open(&self.0)?, figures })
    }

    fn remove(&self, _directory: &Path) -> situ::Result<()> {
        situ::Store::destroy(&self.0)
    }
}

/// A home of somebody else's counts what the store does not see.
#[test]
fn figures_of_the_home_are_among_the_details() {
    let home = tempfile::tempdir().expect("temporary directory");
    let directory = tempfile::tempdir().expect("temporary directory");
    let elsewhere = Arc::new(Elsewhere(home.path().join("store")));
    let factory = SituFactory::new(settings().options().expect("options")).with_home(Some(elsewhere.clone()));
    let read_bytes = |store: &Arc<dyn Store>| store.stats().expect("stats").detail["wire_read_bytes"];
    let store = factory.open(directory.path()).expect("open");
    store.put(b"key", b"value", false).expect("put");
    assert_eq!((read_bytes(&store), read_bytes(&store)), (7.0, 14.0));
    drop(store);
    let store = factory.open(directory.path()).expect("reopen");
    assert_eq!(read_bytes(&store), 7.0, "they begin with the opening");
    let mut value = Vec::new();
    assert!(store.get(b"key", &mut value).expect("get") && value == b"value", "the store lies in the home");
    assert_eq!(std::fs::read_dir(directory.path()).expect("list").count(), 0);
    drop(store);
    factory.remove(directory.path()).expect("remove");
    assert!(!elsewhere.0.exists());
}

#[test]
fn settings_reach_the_store() {
    let mut settings = settings();
    settings.compression = BlockCompression::Zstd;
    settings.block_bytes = 8192;
    settings.table_bytes = 2 << 20;
    settings.level_base_bytes = 10 << 20;
    settings.pinned_level = Some(1);
    settings.compaction.compaction = "copro-plus".parse().expect("policy");
    let told = SituFactory::new(settings.options().expect("options")).settings();
    assert_eq!(told["compaction"], "copro-plus");
    assert_eq!(told["memtable_bytes"], 256 << 10);
    assert_eq!(told["block_bytes"], 8192);
    assert_eq!((&told["table_bytes"], &told["level_base_bytes"]), (&(2 << 20).into(), &(10 << 20).into()));
    assert_eq!((&told["serial_log"], &told["pinned_level"]), (&false.into(), &1.into()));
    assert_eq!(told["compression"], "zstd level 3");
}

/// Settings were text as Rust shows its own types: `Ablation { .. }`, `[Lz4]`.
#[test]
fn settings_have_public_names_and_numbers() {
    let mut options = settings().options().expect("options");
    options.keyspace.compression = vec![situ::Compression::None, situ::Compression::Lz4];
    let told = SituFactory::new(options).settings();
    assert_eq!(told["compression"], "none, lz4");
    assert_eq!((&told["pinned_level"], &told["fast_disk"]), (&Setting::Null, &Setting::Null));
    for (name, setting) in &told {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
        let text = setting.as_str().unwrap_or_default();
        assert!(!text.contains(['{', '[', '(']) && text.parse::<f64>().is_err(), "{name} is {text:?}");
        let others = ["compaction", "compression", "serial_log", "pinned_level", "fast_disk", "value_log_min_bytes"];
        assert_eq!(setting.is_number(), !others.contains(&&**name), "{name}");
    }
}

/// The program took what the store does not take, measured something else, and said nothing.
#[test]
fn settings_out_of_bounds_are_refused() {
    #[derive(clap::Parser, Debug)]
    struct Line {
        #[command(flatten)]
        settings: SituSettings,
    }
    let parse = |line: &str| <Line as clap::Parser>::try_parse_from(line.split(' ')).map(|line| line.settings);
    for name in Policy::NAMES {
        let settings = parse(&format!("bench --compaction {name}")).expect(name);
        assert_eq!(settings.offload().expect("options").policy_in_force(), &Policy::named(name).expect(name));
    }
    assert_eq!(SituSettings::default().options().expect("options").compactor.name(), "automatic");
    let unknown = parse("bench --compaction copro+").expect_err("there is none").to_string();
    assert!(unknown.contains("co-kv, tstore"), "{unknown}");
    let settings = parse("bench --memtable-bytes 1.5M --cache-bytes 0 --block-bytes 16K --memtables-max 64").unwrap();
    assert_eq!((settings.memtable_bytes, settings.cache_bytes, settings.block_bytes), (3 << 19, 0, 16 << 10));
    for line in [
        "--memtable-bytes 0",
        "--memtable-bytes 1K",
        "--memtable-bytes 65G",
        "--memtables-max 1",
        "--memtables-max 65",
        "--block-bytes 0",
        "--block-bytes 1G",
        "--bloom-bits-per-key 101",
        "--background-threads 0",
        "--background-threads 65",
        "--cache-bytes many",
    ] {
        let error = parse(&format!("bench {line}")).expect_err(line).to_string();
        assert!(error.contains("this option takes") || error.contains("write for example 256M"), "{error}");
    }
}

#[test]
fn the_details_tell_what_log_flushes_and_compactions_wrote() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = SituFactory::new(settings().options().expect("options")).open(directory.path()).expect("open");
    let value = [7; 1000];
    let user_bytes = f64::from(1000 * (8 + 1000));
    (0..1000).for_each(|number| store.put(&key(number), &value, false).expect("put"));
    store.compact_all().expect("compact");
    let stats = store.stats().expect("stats");
    assert!(stats.detail["log_pages_written"] >= user_bytes / 4096.0);
    assert!(stats.detail["flush_bytes_written"] >= user_bytes);
    assert!(stats.memory_bytes.is_some_and(|bytes| bytes > 0));
}

struct Channel(mpsc::Sender<(u64, Option<usize>)>);

impl Completions for Channel {
    fn complete(&self, token: u64, outcome: Result<Option<usize>, StoreFailure>) {
        self.0.send((token, outcome.expect("no operation fails here"))).expect("the test listens");
    }
}

/// Buffered and synced puts of several threads in one queue, gets from memory and from tables: each is told once.
#[test]
fn every_submission_is_completed_once() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let store = SituFactory::new(settings().options().expect("options")).open(directory.path()).expect("open");
    let asynchronous = store.asynchronous().expect("an asynchronous side");
    let (sender, receiver) = mpsc::channel();
    let completions: Arc<dyn Completions> = Arc::new(Channel(sender));
    let next = AtomicU64::new(0);
    let (threads, each) = (4, 300);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (next, completions) = (&next, &completions);
            scope.spawn(move || {
                for number in 0..each {
                    let token = next.fetch_add(1, Ordering::Relaxed);
                    let key = format!("{token:08}");
                    // Buffered writes queue behind synced ones that are not done.
                    let sync = number % 8 == thread % 8;
                    asynchronous.submit_put(key.as_bytes(), &[1; 500], sync, token, completions).expect("submit");
                }
            });
        }
    });
    let total = (threads * each) as u64;
    let collect = |count: u64| -> Vec<(u64, Option<usize>)> {
        let wait = Duration::from_secs(60);
        let mut told: Vec<_> = (0..count).map(|_| receiver.recv_timeout(wait).expect("a lost completion")).collect();
        told.sort_unstable();
        told
    };
    assert_eq!(collect(total), (0..total).map(|token| (token, None)).collect::<Vec<_>>());

    store.compact_all().expect("compact");
    for token in 0..=total {
        asynchronous.submit_get(format!("{token:08}").as_bytes(), token, &completions).expect("submit");
    }
    let found = collect(total + 1);
    assert!(found[..total as usize].iter().all(|(_, length)| *length == Some(500)), "{found:?}");
    assert_eq!(found[total as usize], (total, None), "a key that was never written");
    assert!(receiver.try_recv().is_err(), "nothing is told twice");
}

#[test]
fn workloads_run_with_requests_outstanding() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = BenchOptions {
        keys: 2000,
        threads: 2,
        outstanding: 8,
        workloads: vec![Workload::YcsbLoad, Workload::YcsbB, Workload::FillRandom, Workload::ReadRandom],
        directory: directory.path().to_owned(),
        update_mapping: crate::options::UpdateMapping::Whole,
        ..BenchOptions::default()
    };
    let result = crate::run(&options, &SituFactory::new(settings().options().expect("options"))).expect("run");
    assert!(result.phases.iter().all(|phase| phase.operations_per_second > 0.0));
}

/// Bytes on disk are those of both disks, log included, whether the fast one has a file system or not: without one nothing
/// of it can be seen from outside, and a store that lay there whole seemed to take no room at all.
#[test]
fn bytes_on_disk_are_those_of_both_disks() {
    let places = tempfile::tempdir().expect("a directory");
    let directory = places.path().join("directory");
    let raw = places.path().join("raw");
    let file = std::fs::File::create(&raw).expect("create");
    file.set_len(512 << 20).expect("set the length");
    let env = situ_base::Env::system();
    let device = situ_device::open(&raw, situ_device::OpenOptions::default()).expect("open the device");
    let format = situ_rawdisk::FormatOptions { log_bytes: Some(8 << 20), ..Default::default() };
    situ_rawdisk::RawVolume::format(device, env, &format).expect("format");

    let filled = |fast_disk: Option<PathBuf>, home: &str| {
        let home = places.path().join(home);
        std::fs::create_dir(&home).expect("create");
        let store = SituFactory::new(settings().options().expect("options"))
            .with_fast_disk(fast_disk)
            .open(&home)
            .expect("open");
        (0..3000).for_each(|number| store.put(&key(number), &[7; 1000], false).expect("put"));
        store.compact_all().expect("compact");
        // Tables and log files that nothing needs any more are removed behind the compaction, not within it.
        let started = Instant::now();
        let (stats, bytes) = loop {
            let stats = store.stats().expect("stats");
            let bytes = stats.disk_bytes.expect("it knows");
            let parts = stats.detail["table_bytes"] + stats.detail["log_bytes"];
            if (parts..parts + 500_000.0).contains(&(bytes as f64)) {
                break (stats, bytes);
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{bytes} for {parts}");
            std::thread::sleep(Duration::from_millis(5));
        };
        (bytes, stats.detail["fast_disk_file_bytes"] as u64, crate::process::directory_bytes(&home))
    };
    let near = |a: u64, b: u64| a.abs_diff(b) < 200_000;
    let (alone, none, seen) = filled(None, "alone");
    assert!(none == 0 && near(alone, seen), "{alone} {none} {seen}");
    let (in_directory, fast, at_home) = filled(Some(directory.clone()), "beside-directory");
    assert!(near(fast, crate::process::directory_bytes(&directory)), "{fast}");
    assert!(near(in_directory, fast + at_home), "{in_directory} {fast} {at_home}");
    let (on_raw, fast, at_home) = filled(Some(raw), "beside-raw");
    assert!(near(on_raw, fast + at_home) && fast > at_home, "{on_raw} {fast} {at_home}");
    assert!(near(on_raw, in_directory), "{on_raw} {in_directory}");
}

/// The fast disk is part of the store: a workload that wants a fresh one gets both, and the end leaves neither.
#[test]
fn a_store_on_two_disks_is_removed_from_both() {
    let directory = tempfile::tempdir().expect("a directory");
    let fast = tempfile::tempdir().expect("a directory");
    let options = BenchOptions {
        workloads: vec![Workload::FillRandom, Workload::FillSeq, Workload::ReadRandom],
        keys: 2000,
        directory: directory.path().to_owned(),
        ..BenchOptions::default()
    };
    let factory = SituFactory::new(settings().options().expect("options")).with_fast_disk(Some(fast.path().to_owned()));
    assert_eq!(factory.settings()["fast_disk"], *fast.path().display().to_string());
    let result = crate::run(&options, &factory).expect("run");
    assert_eq!(result.phases[2].missed, 0);
    let left = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
    assert_eq!((left(directory.path()), left(fast.path())), (0, 0));
}
