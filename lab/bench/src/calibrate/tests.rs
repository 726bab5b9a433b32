//! A calibration of this machine, too short to say anything of it: what it makes, and what it leaves.

use super::*;
use std::fs;

fn options(directory: PathBuf) -> CalibrateOptions {
    let output = directory.join("rules.json");
    CalibrateOptions {
        directory,
        side: SideName::Host,
        ratio_min: RATIO_MIN,
        run_bytes: RUN_BYTES_MIN,
        seconds: 1,
        output,
    }
}

#[test]
fn all_lengths_are_measured_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let deeper = directory.path().join("deeper");
    let mut options = options(deeper.clone());
    // No pipeline pays so much: all lengths are large, and there is no small one to measure shares with.
    options.ratio_min = 100.0;
    options.side = SideName::Elsewhere;
    let mut calibration = calibrate(&options, None, &Stop::default()).unwrap();
    assert!(!deeper.exists(), "what was made is removed");
    let lengths: Vec<u64> = calibration.values.iter().map(|row| row.value_bytes).collect();
    assert_eq!(lengths, VALUE_BYTES.map(|bytes| bytes as u64));
    for row in &calibration.values {
        assert!(row.growth.linear_bytes_per_s > 0.0 && row.growth.pipelined_bytes_per_s > 0.0, "{row:?}");
        assert!(row.growth.linear_processors > 0.0 && row.growth.linear_processors <= 1.0, "{row:?}");
    }
    let text = calibration.render();
    assert!(text.contains("16.0 KiB") && text.contains("Rules of a node"), "{text}");
    let json = serde_json::to_value(&calibration).unwrap();
    assert_eq!(json["side"], "elsewhere");
    assert_eq!(json["values"][0]["value_bytes"], 100);
    assert_eq!(json["rules"]["threshold"], 1.0);
    // As on a machine where only small values have a low ratio.
    calibration.ratio_min = 0.5;
    calibration.large_value_bytes = None;
    calibration.values.iter_mut().for_each(|row| row.growth.ratio = 0.9);
    assert!(calibration.render().contains("values of all lengths"));
    calibration.values[0].growth.ratio = 0.3;
    assert!(calibration.render().contains("No length of values turns pipelines off"));
}

#[test]
fn shares_are_measured_among_the_smallest_and_the_largest_small_values() {
    let mixed = mixes(Some(16 << 10));
    assert_eq!(mixed.len(), 2 * LARGE_PERCENT.len());
    assert_eq!((mixed[0].small_bytes, mixed[9].small_bytes), (100, 4 << 10));
    assert_eq!(mixes(Some(1 << 10)).len(), LARGE_PERCENT.len());
    assert!(mixes(Some(100)).is_empty() && mixes(None).is_empty());
    let mut random = Random::new(7);
    let large = (0..1000).filter(|_| mixed[2].next(&mut random) == 16 << 10).count();
    assert!((400..600).contains(&large), "{large} of 1000 at {}%", mixed[2].large_percent);
}

/// Something else took the machine during one of three runs.
#[test]
fn costs_are_those_of_the_run_in_the_middle() {
    let mut spent = Spent::default();
    let ms = Duration::from_millis;
    for (time, processors) in [(1000, 500), (9000, 900), (500, 500)] {
        spent.add(100, (ms(time), ms(processors)));
    }
    let linear = spent.cost(2);
    assert_eq!(linear, Cost { bytes_per_s: 100.0, processors: 0.25 });
    let growth = Growth::of((linear, Cost { bytes_per_s: 200.0, processors: 0.5 }));
    assert_eq!((growth.bandwidth_growth, growth.processors_growth, growth.ratio), (1.0, 1.0, 1.0));
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
}

#[test]
fn a_place_that_is_there_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("calibrate")).unwrap();
    fs::write(directory.path().join("calibrate/000001.table"), "mine").unwrap();
    let error = calibrate(&options(directory.path().to_owned()), None, &Stop::default()).unwrap_err();
    assert!(matches!(&error, Error::Directory(why) if why.contains("another --directory")), "{error}");
    assert!(directory.path().join("calibrate/000001.table").exists());
    // As a node's volume, it holds what may be a store.
    let volume = situ_storage::DirectoryVolume::open(directory.path().join("calibrate")).unwrap();
    let error = calibrate(&options(directory.path().to_owned()), Some(Arc::new(volume)), &Stop::default()).unwrap_err();
    assert!(matches!(&error, Error::Directory(why) if why.contains("000001.table")), "{error}");
    assert!(directory.path().join("calibrate/000001.table").exists());
}

#[test]
fn what_was_stopped_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let stop = Stop::default();
    stop.stop();
    let error = calibrate(&options(directory.path().join("deeper")), None, &stop).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
