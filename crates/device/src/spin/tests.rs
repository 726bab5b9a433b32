use super::*;

/// Plays `waits` completions of a device that takes `latency`; returns the time spent spinning and the attempts.
fn play(spinner: &mut Spinner, latency: Duration, waits: u32) -> (Duration, u32) {
    let (mut spent, mut attempts) = (Duration::ZERO, 0);
    for _ in 0..waits {
        let budget = spinner.budget();
        if budget.is_zero() {
            continue;
        }
        attempts += 1;
        if latency <= budget {
            spinner.met(latency);
            spent += latency;
        } else {
            spinner.missed();
            spent += budget;
        }
    }
    (spent, attempts)
}

#[test]
fn a_fast_device_is_spun_for_and_little_longer_than_it_takes() {
    let mut spinner = Spinner::new();
    let (_, attempts) = play(&mut spinner, Duration::from_micros(8), 1000);
    assert_eq!(attempts, 1000);
    let budget = spinner.budget();
    assert!(budget >= Duration::from_micros(15) && budget <= Duration::from_micros(18), "{budget:?}");
}

#[test]
fn a_slow_device_costs_next_to_nothing() {
    let mut spinner = Spinner::new();
    let latency = Duration::from_millis(1);
    let (spent, _) = play(&mut spinner, latency, 10_000);
    assert!(spent < latency * 10_000 / 5_000, "{spent:?} of spinning in 10 s of waiting");
}

#[test]
fn a_device_that_becomes_fast_is_spun_for_again() {
    let mut spinner = Spinner::new();
    play(&mut spinner, Duration::from_millis(1), 100_000);
    play(&mut spinner, Duration::from_micros(5), 2_000);
    let (_, attempts) = play(&mut spinner, Duration::from_micros(5), 100);
    assert_eq!(attempts, 100);
}

#[test]
fn one_slow_completion_among_fast_ones_changes_nothing() {
    let mut spinner = Spinner::new();
    play(&mut spinner, Duration::from_micros(5), 100);
    play(&mut spinner, Duration::from_millis(10), 1);
    assert!(!spinner.budget().is_zero());
}

#[test]
fn at_most_half_of_the_cores_spin() {
    let cores = std::thread::available_parallelism().unwrap().get();
    // Other tests may hold some just now; there can only be fewer.
    let permits: Vec<_> = std::iter::from_fn(Permit::take).collect();
    assert!(permits.len() <= cores / 2);
    assert!((0..100).all(|_| Permit::take().is_none()), "a refusal takes nothing and gives nothing back");
    assert!(SPINNING.load(Ordering::Relaxed) <= cores / 2);
}
