use super::*;

/// A disk behind a processor: requests a second with `depth` writes in flight.
fn rate(depth: usize, gain: f64) -> f64 {
    100_000.0 * (1.0 + gain * (depth - 1) as f64)
}

/// Runs loggers for `time`, whose rate depends on the depth. Returns the depths in use, by their time.
fn run(depth: &mut Depth, time: Duration, rate: impl Fn(usize) -> f64) -> Vec<Duration> {
    let mut used = vec![Duration::ZERO; depth.max + 1];
    let mut now = depth.since;
    let end = now + time;
    while now < end {
        let took = Duration::from_secs_f64(10.0 / rate(depth.now()));
        used[depth.now()] += took;
        now += took;
        depth.landed(now, 10);
    }
    used
}

fn share(used: &[Duration], depth: usize) -> f64 {
    used[depth].as_secs_f64() / used.iter().sum::<Duration>().as_secs_f64()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn writes_in_flight_grow_while_each_pays() {
    let mut depth = Depth::new(8, 1);
    run(&mut depth, SECOND, |depth| rate(depth.min(4), 0.3));
    assert_eq!(depth.chosen, 4);
    let used = run(&mut depth, 10 * SECOND, |depth| rate(depth.min(4), 0.3));
    assert!(share(&used, 4) > 0.9, "{used:?}");
}

#[test]
fn a_disk_that_does_one_at_a_time_gets_one() {
    let mut depth = Depth::new(8, 1);
    let used = run(&mut depth, 10 * SECOND, |depth| rate(depth, -0.05));
    assert_eq!(depth.chosen, 1);
    assert!(share(&used, 1) > 0.9, "trials become rare: {used:?}");
}

#[test]
fn a_load_that_changes_is_followed() {
    let mut depth = Depth::new(8, 1);
    run(&mut depth, SECOND, |depth| rate(depth, 0.2));
    assert!(depth.chosen > 4, "{depth:?}");
    run(&mut depth, 30 * SECOND, |_| rate(1, 0.0));
    assert_eq!(depth.chosen, 1, "what brings nothing is given up");
}

/// A load that grows during a trial would favour the one in the middle, without the window after it.
#[test]
fn growth_of_the_load_is_not_taken_for_a_gain() {
    let mut depth = Depth::new(8, 1);
    let mut now = Duration::ZERO;
    for number in 0..100_000 {
        let speed = 1.0 + f64::from(number) / 1000.0;
        now += Duration::from_secs_f64(10.0 / (rate(1, 0.0) * speed));
        depth.landed(now, 10);
        assert_eq!(depth.chosen, 1, "write {number}");
    }
}

#[test]
fn time_without_requests_counts_for_nothing() {
    let mut depth = Depth::new(2, 1);
    let mut now = Duration::ZERO;
    let mut pauses = 0;
    while now < 20 * SECOND {
        now += Duration::from_secs_f64(10.0 / rate(depth.now(), 0.3));
        depth.landed(now, 10);
        // The more are in flight, the longer the pauses are.
        if pauses < depth.now() {
            (pauses, now) = (pauses + 1, now + SECOND / 100);
            depth.rested(SECOND / 100);
        } else {
            pauses = 0;
        }
    }
    assert_eq!(depth.chosen, 2);
}

#[test]
fn one_is_all_that_a_serial_log_has() {
    let mut depth = Depth::new(1, 1);
    run(&mut depth, SECOND, |depth| rate(depth, 0.5));
    assert_eq!(depth.now(), 1);
}
