//! Decisions as text: `testdata/split/*.txt`, and a simulated machine on which the automatic split has to find what is
//! best.
//!
//! ```text
//! case: what it shows
//! split: host-only | static 50 | by-time | by-resources | automatic
//! unit: cpu 100                            its speed as it says, in MB a second; the host first
//! unit: node 50 free=2000,4096,100         thousandths of processors, MB of memory, MB a second
//! unit: gone 50 unusable
//! measured: 1 80                           the unit of this number did a job at so many MB a second
//! arm: split 120                           a job of this arm landed, at so many MB a second
//! job: 64 min=4                            a job of so many MB, and the least part; several jobs follow each other
//! job: 64 min=4 uncut                      one that cannot be cut: the last unit got all of it
//! ----
//! cpu 50.0%, node 50.0%
//! ```

use super::*;
use situ_compaction::testing::golden;

const MB: u64 = 1_000_000;

fn numbers(text: &str) -> Vec<u64> {
    text.split(',').map(|number| number.parse().unwrap()).collect()
}

#[derive(Default)]
struct Case {
    split: Split,
    names: Vec<String>,
    units: Vec<UnitView>,
    splitter: Splitter,
    answer: String,
}

impl Case {
    fn line(&mut self, name: &str, value: &str) {
        let words: Vec<&str> = value.split_whitespace().collect();
        match name {
            "case" => {}
            "split" => self.split = split(&words),
            "unit" => self.unit(&words),
            "measured" => {
                let (unit, bytes) = (words[0].parse().unwrap(), words[1].parse::<u64>().unwrap() * MB);
                let side = SideMeasure { unit, bytes, elapsed: Duration::from_secs(1) };
                self.note(None, 0, vec![side]);
            }
            "arm" => self.note(Some(arm(words[0])), words[1].parse::<u64>().unwrap() * MB, Vec::new()),
            "job" => self.job(&words),
            other => panic!("{other}"),
        }
    }

    fn unit(&mut self, words: &[&str]) {
        let mut unit =
            UnitView { is_usable: true, bytes_per_s: words[1].parse::<u64>().unwrap() * MB, resources: None };
        for word in &words[2..] {
            match word.split_once('=') {
                None => unit.is_usable = false,
                Some((_, free)) => {
                    let [processors, memory, bandwidth] = numbers(free)[..] else { panic!("{free}") };
                    unit.resources = Some(Resources {
                        processors_free_milli: processors as u32,
                        memory_free_bytes: memory * MB,
                        bandwidth_free_bytes_per_s: bandwidth * MB,
                    });
                }
            }
        }
        self.names.push(words[0].to_owned());
        self.units.push(unit);
    }

    fn note(&mut self, arm: Option<Arm>, bytes: u64, sides: Vec<SideMeasure>) {
        let (class, elapsed) = (TaskClass::default(), Duration::from_secs(1));
        self.splitter.note(&JobMeasure { class, arm, bytes, elapsed, sides });
    }

    fn job(&mut self, words: &[&str]) {
        let least = words.get(1).map_or(0, |word| word.strip_prefix("min=").unwrap().parse().unwrap());
        let bytes = words[0].parse::<u64>().unwrap() * MB;
        let to_split = ToSplit {
            split: self.split,
            class: TaskClass::default(),
            bytes,
            part_bytes_min: least * MB,
            units: &self.units,
        };
        let shares = self.splitter.divide(&to_split);
        if let Shares::Of(shares) = &shares {
            let mut given: Vec<f64> = shares.iter().map(|share| share * bytes as f64).collect();
            // One block that cannot be cut: all of it goes to one unit.
            if words.contains(&"uncut") {
                let all = given.iter().sum();
                given.iter_mut().for_each(|given| *given = 0.0);
                *given.last_mut().unwrap() = all;
            }
            self.splitter.note_given(&to_split, &given);
        }
        let line = match &shares {
            Shares::Anywhere => "whichever would be done first".to_owned(),
            Shares::Of(shares) => self.shown(shares),
            Shares::ByArm(arm, shares) => format!("{arm:?}: {}", self.shown(shares)),
        };
        self.answer.push_str(&line);
        self.answer.push('\n');
    }

    fn shown(&self, shares: &[f64]) -> String {
        assert!(
            (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && shares.iter().all(|share| *share >= 0.0),
            "{shares:?}"
        );
        let given = self.names.iter().zip(shares).filter(|(_, share)| **share > 0.0);
        given.map(|(name, share)| format!("{name} {:.1}%", share * 100.0)).collect::<Vec<_>>().join(", ")
    }
}

fn split(words: &[&str]) -> Split {
    match words[0] {
        "host-only" => Split::HostOnly,
        "static" => Split::Static { elsewhere_percent: words[1].parse().unwrap() },
        "by-time" => Split::ByTime,
        "by-resources" => Split::ByResources,
        "automatic" => Split::Automatic,
        other => panic!("{other}"),
    }
}

fn arm(word: &str) -> Arm {
    match word {
        "split" => Arm::ByTime,
        "elsewhere" => Arm::Elsewhere,
        "host" => Arm::Host,
        other => panic!("{other}"),
    }
}

#[test]
fn splits_are_those_of_the_golden_files() {
    golden("split", |question| {
        let mut case = Case::default();
        for line in question.lines() {
            let (name, value) = line.split_once(':').unwrap();
            case.line(name, value.trim());
        }
        case.answer
    });
}

/// A task of no bytes would make a unit infinitely slow, and then it would never be measured again.
#[test]
fn small_jobs_say_little_of_a_units_speed() {
    let mut splitter = Splitter::default();
    let class = TaskClass::default();
    let mut note = |bytes: u64, bytes_per_s: u64| {
        let elapsed = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64).max(Duration::from_millis(1));
        let sides = vec![SideMeasure { unit: 1, bytes, elapsed }];
        splitter.note(&JobMeasure { class, arm: None, bytes, elapsed, sides });
    };
    note(100 * MB, 100 * MB);
    for _ in 0..10 {
        note(0, MB);
        note(4 << 10, MB);
    }
    let speed = splitter.speeds[&(1, class)].0.unwrap();
    assert!((80e6..100.1e6).contains(&speed), "{speed}");
}

/// Two sides with given speeds. Together they get through no more than what they share.
struct Machine {
    host_mb_per_s: f64,
    elsewhere_mb_per_s: f64,
    shared_mb_per_s: f64,
}

impl Machine {
    /// How long each side works on its share, and how long the job takes.
    fn run(&self, mb: f64, shares: &[f64]) -> ([f64; 2], f64) {
        let speeds = [self.host_mb_per_s, self.elsewhere_mb_per_s];
        // Where both work and want more than there is, each gets less.
        let wanted: f64 = speeds.iter().zip(shares).filter(|(_, share)| **share > 0.0).map(|(speed, _)| speed).sum();
        let slower = (self.shared_mb_per_s / wanted).min(1.0);
        let time = |side: usize| mb * shares[side] / (speeds[side] * slower);
        let times = [time(0), time(1)];
        (times, times[0].max(times[1]))
    }

    fn best(&self, mb: f64) -> f64 {
        let halves = (0..=1000).map(|share| f64::from(share) / 1000.0);
        halves.map(|share| self.run(mb, &[1.0 - share, share]).1).fold(f64::INFINITY, f64::min)
    }
}

/// Time of all jobs with the automatic split, and of the best way, in seconds. Jobs differ in length and in luck.
fn simulate(machine: impl Fn(u64) -> Machine, jobs: u64, seed: u64) -> (f64, f64) {
    simulate_with(machine, jobs, seed, |_| 1.0)
}

/// The same, and something else holds each job up by a factor.
fn simulate_with(
    machine: impl Fn(u64) -> Machine,
    jobs: u64,
    seed: u64,
    held_up: impl Fn(&mut situ_compaction::testing::Rng) -> f64,
) -> (f64, f64) {
    let mut rng = situ_compaction::testing::Rng::new(seed);
    let mut splitter = Splitter::default();
    let units = [UnitView { is_usable: true, ..UnitView::default() }; 2];
    let (class, mut automatic, mut best) = (TaskClass::default(), 0.0, 0.0);
    for job in 0..jobs {
        let mb = 40 + rng.below(200);
        let machine = machine(job);
        let to_split = ToSplit { split: Split::Automatic, class, bytes: mb * MB, part_bytes_min: MB, units: &units };
        let Shares::ByArm(arm, shares) = splitter.divide(&to_split) else { panic!("the job is large enough") };
        let luck = (0.95 + rng.below(100) as f64 / 1000.0) * held_up(&mut rng);
        let (sides, took) = machine.run(mb as f64, &shares);
        let side = |unit: usize| SideMeasure {
            unit,
            bytes: (mb as f64 * shares[unit]) as u64 * MB,
            elapsed: Duration::from_secs_f64(sides[unit] * luck),
        };
        let sides = (0..2).filter(|unit| shares[*unit] > 0.0).map(side).collect();
        let elapsed = Duration::from_secs_f64(took * luck);
        splitter.note(&JobMeasure { class, arm: Some(arm), bytes: mb * MB, elapsed, sides });
        automatic += took * luck;
        best += machine.best(mb as f64) * luck;
    }
    (automatic, best)
}

/// What the first look at three arms costs is in the 3%, too.
#[test]
fn the_automatic_split_is_within_3_percent_of_the_best() {
    let machines = [
        ("the node is faster", 100.0, 300.0, 1e9),
        ("the host is faster", 300.0, 100.0, 1e9),
        ("both alike", 200.0, 200.0, 1e9),
        ("the node is nearly useless", 200.0, 2.0, 1e9),
        ("one disk bounds both", 200.0, 150.0, 200.0),
        ("one disk bounds both, and the node is faster", 150.0, 250.0, 250.0),
        ("one disk bounds both a little", 200.0, 150.0, 300.0),
    ];
    for (name, host_mb_per_s, elsewhere_mb_per_s, shared_mb_per_s) in machines {
        for seed in 0..5 {
            let machine = |_| Machine { host_mb_per_s, elsewhere_mb_per_s, shared_mb_per_s };
            let (automatic, best) = simulate(machine, 5000, seed);
            let behind = automatic / best - 1.0;
            assert!(behind < 0.03, "{name}: {:.1}% behind the best way", behind * 100.0);
        }
    }
}

/// A node becomes slow, and is well again later: the split follows both.
#[test]
fn the_automatic_split_follows_a_change() {
    let machine = |job: u64| Machine {
        host_mb_per_s: 100.0,
        elsewhere_mb_per_s: if (3000..6000).contains(&job) { 5.0 } else { 300.0 },
        shared_mb_per_s: 1e9,
    };
    for seed in 0..5 {
        let (automatic, best) = simulate(machine, 12_000, seed);
        // Sixty times as slow, and back: that takes some jobs to be noticed.
        assert!(automatic / best < 1.25, "{:.3}", automatic / best);
        let (well, best_when_well) = simulate(|job| machine(job % 3000), 3000, seed);
        assert!(well / best_when_well < 1.03, "{:.3}", well / best_when_well);
    }
}

/// Reads of clients, say, hold one job in eight up. An arm with bad luck is looked at again, and is not lost for
/// hundreds of jobs.
#[test]
fn the_automatic_split_is_not_led_astray_by_single_jobs() {
    let (mut all, mut all_best) = (0.0, 0.0);
    for seed in 0..50 {
        let machine = |_| Machine { host_mb_per_s: 50.0, elsewhere_mb_per_s: 130.0, shared_mb_per_s: 1e9 };
        let held_up = |rng: &mut situ_compaction::testing::Rng| if rng.below(8) == 0 { 3.0 } else { 1.0 };
        let (automatic, best) = simulate_with(machine, 400, seed, held_up);
        assert!(automatic / best < 1.25, "seed {seed}: {:.3}", automatic / best);
        (all, all_best) = (all + automatic, all_best + best);
    }
    assert!(all / all_best < 1.10, "{:.3}", all / all_best);
}

/// However slow an arm is, looking at it costs a hundredth of the time, and the first look.
#[test]
fn looking_at_other_arms_is_bounded() {
    let mut arms = Arms::default();
    let seconds = |arm: Arm| match arm {
        Arm::ByTime => 1.0,
        Arm::Elsewhere => 3.0,
        Arm::Host => 20.0,
    };
    let (mut all, mut more, mut looks) = (0.0, 0.0, 0);
    for job in 0..20_000 {
        let arm = arms.choose(MB, true, None);
        arms.note(arm, MB, Duration::from_secs_f64(seconds(arm)));
        if job >= 3 {
            (all, more) = (all + seconds(arm), more + seconds(arm) - 1.0);
            looks += u32::from(arm != Arm::ByTime);
        } else {
            assert_eq!(arm, Arm::ALL[job], "each arm is measured once at first");
        }
    }
    assert!(more / all <= EXPLORE_SHARE * 1.01, "{more} of {all}");
    assert!(looks > 20, "an arm that is not looked at again is lost for ever: {looks}");
}
