use super::*;

fn at(start: Instant, us: u64) -> Instant {
    start + Duration::from_micros(us)
}

#[test]
fn percentiles_of_a_known_set_are_right_to_three_digits() {
    let start = Instant::now();
    let mut recorder = Recorder::new(start);
    // Latencies 1 us ..= 10 000 us, once each.
    for us in 1..=10_000 {
        recorder.record(Kind::Read, at(start, 20_000 - us), at(start, 20_000), 1);
    }
    let mut merged = Merged::default();
    merged.add(recorder);
    let latencies = merged.latencies();
    let [latency] = &latencies[..] else { panic!("one kind, not {}", latencies.len()) };
    assert_eq!((latency.kind, latency.count), (Kind::Read, 10_000));
    let near = |value: u64, us: f64| assert!((value as f64 / (us * 1e3) - 1.0).abs() < 2e-3, "{value} {us}");
    near(latency.min_ns, 1.0);
    near(latency.p50_ns, 5_000.0);
    near(latency.p90_ns, 9_000.0);
    near(latency.p99_ns, 9_900.0);
    near(latency.p999_ns, 9_990.0);
    near(latency.p9999_ns, 9_999.0);
    near(latency.max_ns, 10_000.0);
    near(latency.mean_ns as u64, 5_000.5);
    assert!(latency.curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
}

#[test]
fn the_series_adds_up_to_the_operations_and_coarsens_without_loss() {
    let start = Instant::now();
    let mut merged = Merged::default();
    for thread in 0..3 {
        let mut recorder = Recorder::new(start);
        for step in 0..1000 {
            let end = at(start, step * 5_000 + thread);
            recorder.record(Kind::Write, end, end, 2);
        }
        merged.add(recorder);
    }
    for points_max in [1, 7, 50, 1000] {
        let (interval_ms, slots) = merged.series(points_max);
        assert!(slots.len() <= points_max);
        assert_eq!(interval_ms * slots.len() as u64 / SLOT_MS, 50u64.next_multiple_of(interval_ms / SLOT_MS));
        assert_eq!(slots.iter().map(|slot| slot.operations).sum::<u64>(), 6000);
    }
    assert_eq!(merged.operations, 6000);
}

#[test]
fn a_stall_is_a_silence_of_all_threads() {
    let start = Instant::now();
    let mut merged = Merged::default();
    // One thread is silent from 100 ms to 400 ms; the other fills all of that but 200 ms to 350 ms.
    let spans: [&[(u64, u64)]; 2] = [&[(0, 100), (400, 500)], &[(90, 200), (350, 420)]];
    for spans in spans {
        let mut recorder = Recorder::new(start);
        for ms in spans.iter().flat_map(|(from, to)| *from..*to) {
            recorder.record(Kind::Read, at(start, ms * 1000), at(start, ms * 1000 + 10), 1);
        }
        merged.add(recorder);
    }
    assert_eq!(merged.longest_stall_ms(), 150);
}

#[test]
fn background_operations_have_latencies_but_no_part_in_the_throughput() {
    let start = Instant::now();
    let mut merged = Merged::default();
    for (kind, background) in [(Kind::Read, false), (Kind::BackgroundWrite, true)] {
        let mut recorder = Recorder::new(start);
        recorder.record(kind, start, at(start, 10), 1);
        if background {
            merged.add_background(recorder);
        } else {
            merged.add(recorder);
        }
    }
    assert_eq!(merged.operations, 1);
    assert_eq!(merged.latencies().len(), 2);
}

/// A tail that one kind alone has is in the tail of all.
#[test]
fn percentiles_of_all_requests_are_not_those_of_one_kind() {
    let start = Instant::now();
    let mut merged = Merged::default();
    assert_eq!(merged.quantile_ns(0.99), None);
    let mut recorder = Recorder::new(start);
    (0..95).for_each(|_| recorder.record(Kind::Read, start, at(start, 10), 1));
    (0..5).for_each(|_| recorder.record(Kind::Update, start, at(start, 1000), 1));
    merged.add(recorder);
    let mut background = Recorder::new(start);
    (0..1000).for_each(|_| background.record(Kind::BackgroundWrite, start, at(start, 9000), 1));
    merged.add_background(background);
    let us = |quantile| merged.quantile_ns(quantile).expect("requests") / 1000;
    assert_eq!((us(0.5), us(0.95)), (10, 10));
    assert!((1000..=1001).contains(&us(0.99)), "{}", us(0.99));
}

#[test]
fn every_kind_has_its_place() {
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, index);
    }
}
