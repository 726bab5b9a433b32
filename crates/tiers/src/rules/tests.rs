//! Traces as text: `testdata/placement/*.txt` hold samples and what placement makes of them.
//!
//! ```text
//! # a remark
//! case: what it shows
//! disk: total=100G reserve=1G low=200M high=400M
//! levels: L0=200M/200M L5=2G/0 L6=20G/0
//! 5x fast=100M/50M/40% capacity=10M/80M/70% free=90G
//! 1x failures=1
//! ----
//! the answer
//! ```
//! Sizes are read/written for a disk's load, with the share of time it is busy, and all/on the fast disk for a level. A
//! line of samples stands for so many seconds and changes what it names; the rest stays. Without thresholds, placement
//! derives them. With `SITU_BLESS=1` in the environment the answers are written anew; read the difference before you
//! keep it.

use super::*;
use std::fmt::Write;
use std::path::Path;

/// A number with K, M, G or T behind it.
fn size(text: &str) -> u64 {
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    match units.iter().find(|(unit, _)| text.ends_with(*unit)) {
        Some((unit, shift)) => (text.trim_end_matches(*unit).parse::<f64>().unwrap() * (1u64 << shift) as f64) as u64,
        None => text.parse().unwrap(),
    }
}

fn load(text: &str) -> Load {
    let parts: Vec<&str> = text.split('/').collect();
    let busy = parts[2].strip_suffix('%').expect("a share of time").parse::<f64>().unwrap() / 100.0;
    Load { read_bytes_per_s: size(parts[0]), written_bytes_per_s: size(parts[1]), busy }
}

/// Takes what a line says into the sample; returns thresholds, if it has them.
fn take(sample: &mut Sample, text: &str) -> Option<Thresholds> {
    let (mut low, mut high) = (None, None);
    sample.failures = 0;
    for (name, value) in text.split_whitespace().map(|part| part.split_once('=').expect("name=value")) {
        match name {
            "total" => {
                sample.total = size(value);
                sample.free = sample.total;
            }
            "reserve" => sample.reserve = size(value),
            "free" => sample.free = size(value),
            "low" => low = Some(size(value)),
            "high" => high = Some(size(value)),
            "fast" => sample.fast = load(value),
            "capacity" => sample.capacity = load(value),
            "failures" => sample.failures = value.parse().unwrap(),
            level => {
                let level: usize = level.strip_prefix('L').expect("a level").parse().unwrap();
                let (all, on_fast) = value.split_once('/').expect("all/on fast");
                sample.levels[level] = LevelBytes { all: size(all), on_fast: size(on_fast) };
            }
        }
    }
    low.zip(high).map(|(low, high)| Thresholds { low, high })
}

fn answer(question: &str) -> String {
    let mut sample = Sample { seconds: 1.0, ..Sample::default() };
    let (mut thresholds, mut judge, mut answer) = (None, None, String::new());
    let mut second = 0u64;
    for line in question.lines().filter(|line| !line.starts_with('#') && !line.starts_with("case:")) {
        if let Some(("disk" | "levels", rest)) = line.split_once(':') {
            thresholds = take(&mut sample, rest).or(thresholds);
            continue;
        }
        let (count, rest) = line.split_once("x ").unwrap_or((line.trim_end_matches('x'), ""));
        let judge = judge.get_or_insert_with(|| {
            let judge = Judge::new(thresholds, &sample);
            writeln!(answer, "begins with {}", judge.pointer).unwrap();
            judge
        });
        take(&mut sample, rest);
        for _ in 0..count.parse::<u64>().expect("so many seconds") {
            second += 1;
            if let Some(change) = judge.judge(&sample) {
                writeln!(answer, "{second}s {change}").unwrap();
            }
        }
    }
    if let Some(judge) = judge {
        writeln!(answer, "ends with {} after {second}s", judge.pointer).unwrap();
    }
    answer
}

fn play(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let answered: Vec<String> = text
        .trim_end()
        .split("\n\n")
        .map(|case| match case.split_once("----\n").or_else(|| case.split_once("----")) {
            Some((question, _)) => format!("{question}----\n{}", answer(question.trim_end())),
            // A remark between cases.
            None => format!("{case}\n"),
        })
        .collect();
    let answered = answered.join("\n");
    let blesses = std::env::var_os("SITU_BLESS").is_some();
    if blesses {
        std::fs::write(path, &answered).unwrap();
    }
    assert!(answered == text || blesses, "{} differs; SITU_BLESS=1 writes it anew:\n{answered}", path.display());
}

#[test]
fn decisions_are_as_in_the_golden_files() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/placement");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().for_each(|path| play(path));
}

/// Samples that could not be worse: changes of direction stay rare, and the pointer in its bounds.
#[test]
fn it_does_not_flap_whatever_is_measured() {
    situ_sim::for_each_seed(1, 40, |seed| {
        let mut rng = situ_sim::Rng::new(seed);
        let mut sample = Sample { seconds: 1.0, total: 100 << 30, free: 90 << 30, ..Sample::default() };
        (0..LEVELS).for_each(|level| sample.levels[level].all = 1 << (20 + level));
        let mut judge = Judge::new(None, &sample);
        let (mut turns, mut last) = (0, None);
        let hours = 10;
        let mut calm = 0;
        let mut high = false;
        for _ in 0..hours * 3600 {
            // Long enough on each side that each would be reason for a change.
            if calm == 0 {
                high = !high;
                calm = rng.below(30);
            } else {
                calm -= 1;
            }
            let busy = if high { 1.0 } else { rng.below(100) as f64 / 200.0 };
            let moved = if high { 900 << 20 } else { rng.below(100 << 20) };
            sample.fast = Load { read_bytes_per_s: moved, written_bytes_per_s: 0, busy };
            if let Some(change) = judge.judge(&sample) {
                assert!(change.after <= LEVELS && change.before != change.after);
                assert!(change.after >= 1, "bandwidth never takes level 0 away");
                let up = change.after > change.before;
                turns += u64::from(last.is_some_and(|last| last != up));
                last = Some(up);
            }
        }
        assert!(turns <= 6 * hours + 10, "{turns} changes of direction in {hours} hours");
    });
}
