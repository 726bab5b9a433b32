use super::*;
use crate::memory::MemoryFactory;

fn options(directory: &std::path::Path, workloads: &[Workload]) -> BenchOptions {
    BenchOptions {
        keys: 3000,
        threads: 2,
        workloads: workloads.to_vec(),
        directory: directory.to_owned(),
        ..BenchOptions::default()
    }
}

#[test]
fn every_workload_runs_and_says_what_it_did() {
    use Workload as W;
    let directory = tempfile::tempdir().expect("temporary directory");
    let all = [
        W::FillSeq,
        W::FillSync,
        W::FillRandom,
        W::Overwrite,
        W::Flush,
        W::Compact,
        W::Wait,
        W::ReadRandom,
        W::ReadMissing,
        W::ReadSeq,
        W::ReadReverse,
        W::SeekRandom,
        W::ReadWhileWriting,
        W::Mixed,
        W::Reopen,
        W::DeleteRandom,
        W::YcsbLoad,
        W::YcsbA,
        W::YcsbB,
        W::YcsbC,
        W::YcsbD,
        W::YcsbE,
        W::YcsbF,
        W::YcsbMixed,
    ];
    let options = options(directory.path(), &all);
    let result = run(&options, &MemoryFactory::default()).expect("run");
    assert_eq!(result.phases.len(), all.len());
    for (phase, workload) in result.phases.iter().zip(all) {
        assert_eq!(phase.workload, workload.to_string());
        if workload.is_maintenance() {
            continue;
        }
        let samples: u64 = phase.series.operations.iter().sum();
        assert_eq!(samples, phase.operations, "{workload}");
        assert!(phase.operations_per_second > 0.0, "{workload}");
        assert!(!phase.latencies.is_empty() && !phase.samples.is_empty(), "{workload}");
    }
    let phase = |workload: W| result.phase(&workload.to_string()).expect("phase");
    assert_eq!(phase(W::FillSeq).operations, 6000);
    assert_eq!(phase(W::FillSeq).live_user_bytes, Some(3000 * 116));
    assert_eq!(phase(W::FillSync).operations, 6);
    assert_eq!(phase(W::ReadMissing).found, 0);
    assert_eq!(phase(W::ReadMissing).missed, 6000);
    // Uniform draws with repetition leave about e^-2 of the keys out after two keys' worth, e^-4 after four.
    let missed = phase(W::ReadRandom).missed as f64 / 6000.0;
    assert!((0.005..0.04).contains(&missed), "{missed}");
    assert_eq!(phase(W::ReadSeq).found, phase(W::ReadReverse).found);
    assert_eq!(phase(W::YcsbLoad).operations, 3000);
    assert_eq!(phase(W::YcsbC).found, 3000);
    assert!(!directory.path().join("store").exists(), "the store is removed at the end");
}

/// What is under way when the last request is done is the workload's, too, and is told apart.
#[test]
fn work_behind_the_requests_is_told_before_and_after_the_store_has_settled() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut options = options(directory.path(), &[Workload::FillRandom, Workload::ReadRandom]);
    options.keys = 20_000;
    let settings = crate::SituSettings {
        memtable_bytes: 128 << 10,
        table_bytes: 64 << 10,
        level_base_bytes: 256 << 10,
        ..crate::SituSettings::default()
    };
    let result = run(&options, &crate::SituFactory::new(settings.options().expect("options"))).expect("run");
    let fill = result.phase("fillrandom").expect("phase");
    let (before, all) = (fill.work_before_settling.as_ref().expect("work"), fill.work.as_ref().expect("work"));
    assert!(before.flush_bytes_written <= all.flush_bytes_written && before.compactions <= all.compactions);
    assert!(before.log_bytes_written > 0 && all.flush_bytes_written > 0 && all.compaction_bytes_written > 0, "{all:?}");
    let cpu = &all.units[0];
    assert!(cpu.succeeded > 0 && cpu.input_bytes > 0 && cpu.busy_seconds > 0.0, "{cpu:?}");
    let written = all.flush_bytes_written + all.compaction_bytes_written;
    assert_eq!(fill.table_write_amplification, Some(written as f64 / fill.user_bytes_written as f64));
    assert!(fill.began_unix_ms > 1_700_000_000_000 && fill.began_unix_ms <= fill.requests_ended_unix_ms);
    assert!(fill.requests_ended_unix_ms <= fill.settled_unix_ms);
    let (first, last) = (fill.samples.first().expect("sample"), fill.samples.last().expect("sample"));
    assert_eq!((first.units.len(), last.units.len()), (all.units.len(), all.units.len()));
    // The last look is taken when the store has settled.
    assert_eq!((last.units[0].input_bytes, last.units[0].busy_seconds), (cpu.input_bytes, cpu.busy_seconds));
    let read = result.phase("readrandom").expect("phase").work.as_ref().expect("work");
    assert_eq!((read.flush_bytes_written, read.compaction_bytes_written), (0, 0), "the store had settled");
}

#[test]
fn a_result_survives_json() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = options(directory.path(), &[Workload::FillRandom, Workload::ReadRandom]);
    let result = run(&options, &MemoryFactory::default()).expect("run");
    let path = directory.path().join("result.json");
    result.write_json(&path).expect("write");
    let read = BenchResult::read_json(&path).expect("read");
    let value = |result: &BenchResult| serde_json::to_value(result).expect("JSON");
    assert!(same(&value(&read), &value(&result)), "{read:?}\nis not\n{result:?}");
    fs::write(&path, "{\"format\": 1}").expect("write");
    let error = BenchResult::read_json(&path).expect_err("not a result").to_string();
    assert!(error.contains("result.json: not a benchmark result"), "{error}");
    // Figures of another layout could be taken for something else.
    BenchResult { format: "situ-bench 3".to_owned(), ..result }.write_json(&path).expect("write");
    let error = BenchResult::read_json(&path).expect_err("another layout").to_string();
    let reads = "its layout is \"situ-bench 3\", and this program reads \"situ-bench 2\" and \"situ-bench 1\"";
    assert!(error.contains(reads), "{error}");
}

/// In the first layout, settings were text, and some of them Rust's names. Results of both layouts stand on one page.
#[test]
fn settings_of_the_first_layout_are_read_as_those_of_the_second() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let options = options(directory.path(), &[Workload::FillSeq]);
    let result = run(&options, &crate::SituFactory::new(crate::SituSettings::default().options().expect("options")))
        .expect("run");
    let path = directory.path().join("old.json");
    let mut old = serde_json::to_value(&result).expect("JSON");
    old["format"] = "situ-bench 1".into();
    let settings = old["store_settings"].as_object_mut().expect("settings");
    settings.remove("serial_log");
    settings.remove("pinned_level");
    let later = ["value_log_min_bytes", "value_inflation_percent_max"];
    later.iter().for_each(|name| _ = settings.remove(*name));
    for value in settings.values_mut() {
        *value = value.as_str().map_or_else(|| value.to_string(), str::to_owned).into();
    }
    settings.insert("ablation".to_owned(), "Ablation { serial_log: false, pinned_level: None }".into());
    settings.insert("compression".to_owned(), "[None]".into());
    settings.insert("fast_disk".to_owned(), "none".into());
    fs::write(&path, old.to_string()).expect("write");
    let read = BenchResult::read_json(&path).expect("read");
    let mut expected = result.store_settings.clone();
    for name in later {
        assert!(expected.remove(name).is_some(), "{name} is a setting that the first layout did not have");
    }
    assert_eq!(read.store_settings, expected);

    old["store_settings"]["ablation"] = "Ablation { serial_log: true, pinned_level: Some(1) }".into();
    old["store_settings"]["compression"] = "[Lz4, Zstd { level: 3 }]".into();
    fs::write(&path, old.to_string()).expect("write");
    let read = BenchResult::read_json(&path).expect("read").store_settings;
    assert_eq!((&read["serial_log"], &read["pinned_level"]), (&true.into(), &1.into()));
    assert_eq!(read["compression"], "lz4, zstd level 3");
}

/// An interrupted run left its store, which was in the way of the next one.
#[test]
fn a_run_that_is_stopped_leaves_nothing() {
    let parent = tempfile::tempdir().expect("temporary directory");
    let directory = parent.path().join("some/where");
    let factory = crate::SituFactory::new(crate::SituSettings::default().options().expect("options"));
    let slow = |change: &dyn Fn(&mut BenchOptions)| {
        let mut options = options(&directory, &[Workload::FillSeq]);
        options.operations = Some(1_000_000_000);
        change(&mut options);
        options
    };
    let cases = [
        slow(&|_| {}),
        slow(&|options| options.outstanding = 8),
        // The next request is due in hours.
        slow(&|options| (options.rate, options.threads) = (Some(1), 4000)),
        slow(&|options| (options.rate, options.threads, options.outstanding) = (Some(1), 400, 2)),
        slow(&|options| options.workloads = vec![Workload::FillSeq, Workload::Idle]),
    ];
    for (number, mut options) in cases.into_iter().enumerate() {
        if options.workloads.contains(&Workload::Idle) {
            (options.operations, options.duration_seconds) = (Some(1), Some(3600.0));
        }
        let stop = Stop::default();
        let outcome = thread::scope(|scope| {
            let run = scope.spawn(|| run_until(&options, &factory, &stop));
            thread::sleep(Duration::from_millis(300));
            stop.stop();
            run.join().expect("no panic")
        });
        assert!(matches!(outcome, Err(Error::Stopped)), "case {number}: {outcome:?}");
        assert_eq!(fs::read_dir(parent.path()).expect("list").count(), 0, "case {number}");
    }
}

#[test]
fn a_run_takes_away_the_directories_that_it_made_and_no_others() {
    let parent = tempfile::tempdir().expect("temporary directory");
    let directory = parent.path().join("some/where");
    let options = options(&directory, &[Workload::FillSeq]);
    run(&options, &MemoryFactory::default()).expect("run");
    assert_eq!(fs::read_dir(parent.path()).expect("list").count(), 0);
    fs::create_dir_all(&directory).expect("create");
    run(&options, &MemoryFactory::default()).expect("run");
    assert_eq!(fs::read_dir(&directory).expect("it was there before").count(), 0);
    fs::remove_dir_all(parent.path().join("some")).expect("remove");

    // A store that could not be opened left an empty directory, which was in the way of the next run.
    let missing = Some(parent.path().join("no/fast/disk"));
    let factory = crate::SituFactory::new(situ::Options::default()).with_fast_disk(missing);
    for _ in 0..2 {
        let error = run(&options, &factory).expect_err("no fast disk").to_string();
        assert!(error.contains("the store failed in open"), "{error}");
        assert_eq!(fs::read_dir(parent.path()).expect("list").count(), 0);
    }
}

#[test]
fn the_same_seed_writes_the_same_store() {
    let content = |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut options = options(directory.path(), &[Workload::FillRandom, Workload::Mixed]);
        options.seed = seed;
        options.threads = 1;
        let result = run(&options, &MemoryFactory::default()).expect("run");
        let last = &result.phases[1];
        (last.found, last.missed, last.live_user_bytes)
    };
    assert_eq!(content(1), content(1));
    assert_ne!(content(1), content(2));
}

#[test]
fn a_kept_store_can_be_used_again_and_a_foreign_directory_is_not_touched() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let factory = MemoryFactory::default();
    let mut kept = options(directory.path(), &[Workload::YcsbLoad]);
    kept.keep = true;
    run(&kept, &factory).expect("load");
    let refused = run(&kept, &factory).expect_err("the store is there").to_string();
    assert!(refused.contains("--existing"), "{refused}");

    let mut again = options(directory.path(), &[Workload::YcsbC]);
    again.existing = true;
    let result = run(&again, &factory).expect("reads");
    assert_eq!(result.phases[0].missed, 0);
    assert!(directory.path().join("store").exists(), "an existing store is never removed");
}

#[test]
fn a_run_with_a_rate_tells_no_cpu_time_per_operation() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let mut paced = options(directory.path(), &[Workload::FillRandom]);
    paced.rate = Some(1_000_000);
    let phase = &run(&paced, &MemoryFactory::default()).expect("run").phases[0];
    assert!(phase.cpu_user_seconds.is_some() && phase.cpu_us_per_operation().is_none());
    assert_eq!(phase.target_rate, Some(1_000_000));
}

#[test]
fn ycsb_without_records_is_refused() {
    let directory = tempfile::tempdir().expect("temporary directory");
    for workloads in [&[Workload::YcsbA][..], &[Workload::YcsbLoad, Workload::FillSeq, Workload::YcsbA]] {
        let options = options(directory.path(), workloads);
        let error = run(&options, &MemoryFactory::default()).expect_err("no records").to_string();
        assert!(error.contains("ycsb-load"), "{error}");
    }
}

/// Equality, with the last digit of a fraction left to the parser.
fn same(left: &serde_json::Value, right: &serde_json::Value) -> bool {
    use serde_json::Value;
    match (left, right) {
        (Value::Number(left), Value::Number(right)) if left.is_f64() || right.is_f64() => {
            let (left, right) = (left.as_f64().unwrap_or(f64::NAN), right.as_f64().unwrap_or(f64::NAN));
            (left - right).abs() <= right.abs() * 1e-12
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        _ => left == right,
    }
}

/// Doing nothing is measured, too: for as long as was said, and as a share of a core.
#[test]
fn an_idle_store_is_watched_for_as_long_as_was_said() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let options =
        BenchOptions { duration_seconds: Some(0.3), ..options(directory.path(), &[Workload::FillSeq, Workload::Idle]) };
    let result = run(&options, &MemoryFactory::default()).expect("run");
    let [filled, idle] = &result.phases[..] else { panic!("two phases") };
    assert!(idle.seconds >= 0.3 && idle.operations == 0, "{idle:?}");
    // The processor time is that of the whole process, in which other tests run: no bound on it would hold.
    let spent = idle.cpu_user_seconds.zip(idle.cpu_system_seconds).map(|(user, system)| user + system);
    let percent = idle.idle_core_percent().zip(spent).expect("processor time is told here");
    assert!((percent.0 - 100.0 * percent.1 / idle.seconds).abs() < 1e-6, "{idle:?}");
    assert_eq!(filled.idle_core_percent(), None);
    assert!(crate::table::render(&result).contains("% of a core"));
}
