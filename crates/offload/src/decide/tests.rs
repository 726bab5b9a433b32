use super::*;
use crate::mode::ModeRule;
use crate::policy::Policy;
use situ_compaction::testing::{MemoryHost, numbered, plain_rules, task, with_seeds};
use std::fmt::Write;

fn rules(name: &str) -> DecisionRules {
    let host = |policy: Policy| match policy.host {
        ModeRule::Decided(rules) => rules,
        ModeRule::Fixed(mode) => panic!("{mode:?} decides nothing"),
    };
    let steady = |rules| DecisionRules { hysteresis: 0.1, dwell_min: Duration::from_secs(5), ..rules };
    match name {
        "copro-plus" => host(Policy::named("copro-plus").unwrap()),
        "automatic" => host(Policy::default()),
        "steady" => steady(rules("copro-plus")),
        "further" => {
            DecisionRules { further_weights: vec![("queue".to_owned(), 0.6)], ..DecisionRules::copro_plus(1 << 15) }
        }
        other => panic!("no rules {other}"),
    }
}

fn share(share: f64) -> LargeValues {
    LargeValues { share: Some(share), tables: 1, ..LargeValues::default() }
}

fn tail(words: &[&str]) -> ReadTail {
    let [samples, us] = words else { panic!("samples and microseconds: {words:?}") };
    let p99 = Duration::from_micros(us.parse().unwrap());
    ReadTail { samples: samples.parse().unwrap(), p99_low: p99, p99, p99_high: p99 }
}

/// What the decider says to a line of measures.
fn decided(decider: &Decider, rules: &DecisionRules, line: &str) -> String {
    let (seconds, measures) = line.split_once(": ").unwrap();
    let now = Duration::from_secs_f64(seconds.parse().unwrap());
    let (mut told, mut large) = (Vec::new(), None);
    for measure in measures.split(", ") {
        let (name, value) = measure.split_once(' ').unwrap();
        let words: Vec<&str> = value.split(' ').collect();
        match name {
            "large" => large = Some(words[0].parse().unwrap()),
            "processors" => told.push(Measure::Processors(words[0].parse().unwrap())),
            "memory" => told.push(Measure::Memory(words[0].parse().unwrap())),
            "with" => told.push(Measure::ReadsWithPipelines(tail(&words))),
            "without" => told.push(Measure::ReadsWithoutPipelines(tail(&words))),
            name => told.push(Measure::Named(name.to_owned(), words[0].parse().unwrap())),
        }
    }
    decider.collect(&encode_measures(&told), now).unwrap();
    let record = decider.decide_by(rules, 1, &share(large.unwrap()), now);
    let mode = if record.mode.is_pipelined() { "pipelined" } else { "linear" };
    let changed = if record.is_changed { "*" } else { "" };
    format!("{mode}{changed}: {}", record.why)
}

/// The golden text. A change of it is a change of what stores do.
#[test]
fn sequences_of_measures_give_the_modes_of_the_golden_text() {
    let golden = include_str!("testdata/decisions.txt");
    let (mut made, mut current) = (String::new(), None);
    for line in golden.lines() {
        if let Some(named) = line.strip_prefix("rules ") {
            current = Some((rules(named.split(':').next().unwrap()), Decider::new(None)));
        }
        match &current {
            Some((rules, decider)) if line.starts_with(|first: char| first.is_ascii_digit()) => {
                let input = line.split(" -> ").next().unwrap();
                writeln!(made, "{input} -> {}", decided(decider, rules, input)).unwrap();
            }
            _ => writeln!(made, "{line}").unwrap(),
        }
    }
    assert_eq!(made, golden, "the decider made\n{made}");
}

/// How often the mode changes while the share hovers at the threshold, once a second for ten minutes.
fn changes(rules: &DecisionRules) -> u64 {
    let decider = Decider::new(None);
    with_seeds(1, |rng| {
        for second in 0..600 {
            let hovers = rules.threshold - 0.03 + rng.below(60) as f64 / 1000.0;
            decider.decide_by(rules, second, &share(hovers), Duration::from_secs(second));
        }
    });
    decider.report().changed
}

/// The paper says of CoPro+ that it turns pipelines on again and again within a short time. Hysteresis and dwell end
/// that.
#[test]
fn a_share_that_hovers_at_the_threshold_makes_the_papers_rules_flap_and_no_others() {
    let paper = rules("copro-plus");
    assert!(changes(&paper) > 200, "{}", changes(&paper));
    assert!(changes(&rules("steady")) <= 1);
    // Each of the two alone.
    assert!(changes(&DecisionRules { hysteresis: 0.1, ..paper.clone() }) <= 1);
    let dwells = changes(&DecisionRules { dwell_min: Duration::from_secs(60), ..paper });
    assert!((1..=10).contains(&dwells), "{dwells}");
}

/// A mode stands for the dwell time, whatever the measures do.
#[test]
fn two_changes_are_a_dwell_time_apart() {
    with_seeds(200, |rng| {
        let dwell_min = Duration::from_secs(1 + rng.below(20));
        let rules = DecisionRules { dwell_min, hysteresis: 0.05, ..rules("copro-plus") };
        let decider = Decider::new(None);
        let (mut now, mut last) = (Duration::ZERO, None);
        for task in 0..200 {
            now += Duration::from_millis(rng.below(3000));
            let record = decider.decide_by(&rules, task, &share(rng.below(101) as f64 / 100.0), now);
            if record.is_changed {
                assert!(last.is_none_or(|last| now - last >= dwell_min), "changed at {last:?} and at {now:?}");
                last = Some(now);
            }
        }
    });
}

#[test]
fn the_record_has_every_input_and_names_what_is_missing() {
    let decider = Decider::new(None);
    let further_weights = vec![("queue".to_owned(), 0.5)];
    let rules = DecisionRules { further_weights, ..rules("automatic") };
    let second = Duration::from_secs(1);
    decider.collect(&encode_measures(&[Measure::Memory(0.5)]), second).unwrap();
    let host = MemoryHost::new();
    let task = task(&host, &[numbered(10, 1, 9)], plain_rules());
    let record = decider.decide(&rules, &task, 3 * second);
    let weights = [rules.cpu_weight, rules.memory_weight, rules.large_value_weight, 0.5];
    let term = |at: usize, name: &str, value: Option<f64>, note: &str| {
        assert_eq!(record.terms[at], Term { name: name.to_owned(), weight: weights[at], value, note: note.to_owned() });
    };
    term(0, "processors", None, "not measured");
    term(1, "memory", Some(0.5), "2.0 s old");
    term(2, "large-values", Some(0.0), "of 2 tables");
    term(3, "queue", None, "not measured");
    assert_eq!((record.f, record.threshold), (0.5 * rules.memory_weight, rules.threshold));
    assert_eq!((record.task, record.number, record.at), (task.id, 1, 3 * second));
    assert_eq!(record.reads.unwrap().with_pipelines, None);
    let line = record.to_string();
    assert!(line.starts_with("pipelined: f 0.050 is below 1.000 [processors missing (not measured) x 1"), "{line}");
    let late = decider.decide(&rules, &task, 100 * second);
    assert_eq!((late.terms[1].value, &*late.terms[1].note), (None, "last measured 99.0 s ago"));
}

/// For a task whose tables tell nothing, a message may.
#[test]
fn a_share_of_large_values_may_come_by_message() {
    let decider = Decider::new(None);
    decider.collect(&encode_measures(&[Measure::LargeValues(0.9)]), Duration::ZERO).unwrap();
    let rules = rules("copro-plus");
    assert!(!decider.decide_by(&rules, 1, &LargeValues::default(), Duration::ZERO).mode.is_pipelined());
    assert!(decider.decide_by(&rules, 1, &share(0.1), Duration::ZERO).mode.is_pipelined());
}

#[test]
fn decisions_are_counted() {
    let decider = Decider::new(None);
    let rules = rules("steady");
    for (second, large) in [(0, 0.1), (1, 0.8), (2, 0.65), (3, 0.1), (20, 0.1)] {
        decider.decide_by(&rules, second, &share(large), Duration::from_secs(second));
    }
    let report = decider.report();
    let DecisionReport { made, pipelined, linear, changed, held_back, off_for_reads, pipelines_running, last } = report;
    assert_eq!((made, pipelined, linear, changed, held_back, off_for_reads), (5, 2, 3, 2, 2, 0));
    assert_eq!((pipelines_running, last.unwrap().number), (0, 5));
    let running = decider.pipelines().begin(RunMode::PIPELINED);
    assert!(decider.pipelines().begin(RunMode::Linear).is_none());
    assert_eq!(decider.report().pipelines_running, 1);
    drop(running);
    assert_eq!(decider.report().pipelines_running, 0);
}

/// Two stores, or a store whose policy was changed.
#[test]
fn other_rules_begin_anew() {
    let decider = Decider::new(None);
    let (steady, paper) = (rules("steady"), rules("copro-plus"));
    let mode = |rules, second, large| {
        decider.decide_by(rules, 1, &share(large), Duration::from_secs(second)).mode.is_pipelined()
    };
    assert!(!mode(&steady, 0, 0.9));
    assert!(!mode(&steady, 1, 0.1), "it dwells");
    assert!(mode(&paper, 2, 0.1), "nothing is held back under other rules");
    assert!(mode(&steady, 3, 0.1), "pipelined to begin with");
}

struct Fixed(Vec<Measure>);

impl Sampler for Fixed {
    fn sample(&self, _: Duration) -> Vec<Measure> {
        self.0.clone()
    }
}

#[test]
fn the_sampler_is_asked_before_each_decision() {
    let measures =
        vec![Measure::Processors(0.97), Measure::Memory(0.9), Measure::ProcessorsFree(60), Measure::MemoryFree(7)];
    let decider = Decider::new(Some(Box::new(Fixed(measures))));
    assert_eq!(decider.resources(Duration::ZERO), None);
    let host = MemoryHost::new();
    let task = task(&host, &[numbered(10, 1, 9)], plain_rules());
    let record = decider.decide(&rules("automatic"), &task, Duration::ZERO);
    assert_eq!((record.mode, record.terms[0].value), (RunMode::Linear, Some(0.97)));
    let resources = Resources { processors_free_milli: 60, memory_free_bytes: 7, bandwidth_free_bytes_per_s: 0 };
    assert_eq!(decider.resources(Duration::ZERO), Some(resources));
    assert_eq!(decider.resources(2 * MEASURE_AGE_MAX), None);
}

/// A message that is broken, and further measures without end.
#[test]
fn what_is_collected_is_whole_and_bounded() {
    let decider = Decider::new(None);
    let mut message = encode_measures(&[Measure::Processors(0.9)]);
    message[8] ^= 1;
    assert!(decider.collect(&message, Duration::ZERO).unwrap_err().is_corruption());
    for number in 0..2 * NAMED_MAX {
        let measure = Measure::Named(format!("measure {number}"), 1.0);
        decider.collect(&encode_measures(&[measure]), Duration::ZERO).unwrap();
    }
    let state = lock(&decider.state);
    assert_eq!((lock(&decider.machine.measured).processors, state.collected.named.len()), (None, NAMED_MAX));
}

/// One decider served all hosts of a node. Two stores with different rules then began anew at each turn, without
/// hysteresis or dwell.
#[test]
fn hosts_of_one_machine_keep_their_own_standing() {
    let steady = DecisionRules { dwell_min: Duration::from_secs(60), ..rules("copro-plus") };
    let other = DecisionRules { threshold: steady.threshold / 2.0, ..steady.clone() };
    let (low, high) = (share(0.0), share(10.0));
    let first = Decider::new(None);
    let second = first.beside();
    let alone = Decider::new(None);
    for step in 0..100 {
        let (now, large) = (Duration::from_secs(step), if step % 2 == 0 { &low } else { &high });
        let record = first.decide_by(&steady, step, large, now);
        second.decide_by(&other, step, large, now);
        let expected = alone.decide_by(&steady, step, large, now);
        assert_eq!((record.mode, record.is_changed, record.held), (expected.mode, expected.is_changed, expected.held));
    }
    assert!(alone.report().held_back > 0);
    // Both count for the machine.
    assert_eq!((first.report().made, second.report().made), (200, 200));
}

/// A host's reads are about its own store, and its processors are not the node's.
#[test]
fn what_one_host_measures_decides_for_no_other_host() {
    let rules = DecisionRules {
        read_p99_factor_max: Some(1.5),
        further_weights: vec![("queue".to_owned(), 1.0)],
        ..rules("copro-plus")
    };
    let (first, now) = (Decider::new(None), Duration::from_secs(1));
    let second = first.beside();
    let reads = Measure::ReadsWithPipelines(tail(&["300", "1000"]));
    let of_host = [reads, Measure::Named("queue".to_owned(), 2.0), Measure::LargeValues(0.5)];
    first.collect_of_host(&encode_measures(&of_host), now).unwrap();
    for of_machine in [Measure::Processors(0.9), Measure::MemoryFree(1), Measure::BandwidthFree(1)] {
        let refused = first.collect_of_host(&encode_measures(&[of_machine]), now).unwrap_err();
        assert!(refused.to_string().contains("another machine"), "{refused}");
    }
    let decided = |decider: &Decider| decider.decide_by(&rules, 1, &LargeValues::default(), now);
    let value = |record: &DecisionRecord, name: &str| record.terms.iter().find(|term| term.name == name).unwrap().value;
    let (of_first, of_second) = (decided(&first), decided(&second));
    assert_eq!((value(&of_first, "queue"), value(&of_first, "large-values")), (Some(2.0), Some(0.5)));
    assert_eq!((value(&of_second, "queue"), value(&of_second, "large-values")), (None, None));
    assert!(of_first.reads.as_ref().unwrap().with_pipelines.is_some());
    assert!(of_second.reads.as_ref().unwrap().with_pipelines.is_none());
    // What the machine's own side measures counts for both.
    second.collect(&encode_measures(&[Measure::Processors(0.25)]), now).unwrap();
    assert_eq!(value(&decided(&first), "processors"), Some(0.25));
}
