use super::*;

/// A device whose completions come after `latency`; a sleeper is back `wakeup` later.
struct World {
    latency: Duration,
    wakeup: Duration,
}

#[derive(Default)]
struct Outcome {
    spun: Duration,
    attempts: u32,
    waited: Duration,
}

fn play(spinner: &mut Spinner, world: &World, waits: u32) -> Outcome {
    let mut outcome = Outcome::default();
    for _ in 0..waits {
        let budget = spinner.budget();
        if budget > Duration::ZERO {
            outcome.attempts += 1;
            outcome.spun += budget.min(world.latency);
            if world.latency <= budget {
                spinner.met(world.latency);
                outcome.waited += world.latency;
                continue;
            }
            spinner.missed();
        }
        let took = world.latency + world.wakeup;
        spinner.slept(took);
        outcome.waited += took;
    }
    outcome
}

fn world(latency_us: u64, wakeup_us: u64) -> World {
    World { latency: Duration::from_micros(latency_us), wakeup: Duration::from_micros(wakeup_us) }
}

#[test]
fn a_fast_device_is_spun_for_and_little_longer_than_it_takes() {
    let mut spinner = Spinner::new();
    let outcome = play(&mut spinner, &world(8, 10), 10_000);
    assert!(outcome.attempts >= 9_980, "{}", outcome.attempts);
    let budget = spinner.budget();
    assert!(budget >= Duration::from_micros(15) && budget <= Duration::from_micros(18), "{budget:?}");
}

#[test]
fn a_slow_device_costs_next_to_nothing() {
    for latency_us in [150, 1000, 10_000] {
        let outcome = play(&mut Spinner::new(), &world(latency_us, 10), 100_000);
        assert!(outcome.spun * 1000 < outcome.waited, "{latency_us} us: {:?} of {:?}", outcome.spun, outcome.waited);
    }
}

#[test]
fn a_device_of_middling_speed_is_spun_for_only_where_sleepers_come_back_late() {
    let mut spinner = Spinner::new();
    let idle_machine = play(&mut spinner, &world(150, 10), 10_000);
    assert!(idle_machine.attempts < 100, "{}", idle_machine.attempts);
    play(&mut spinner, &world(150, 4000), 10_000);
    let busy_machine = play(&mut spinner, &world(150, 4000), 10_000);
    assert!(busy_machine.attempts > 9_900, "{}", busy_machine.attempts);
    assert!(busy_machine.waited < Duration::from_micros(160) * 10_000);
    // Once sleepers are back in time, that is found out by those that sleep to see.
    play(&mut spinner, &world(150, 10), 50_000);
    let idle_again = play(&mut spinner, &world(150, 10), 10_000);
    assert!(idle_again.attempts < 100, "{}", idle_again.attempts);
}

#[test]
fn a_device_that_becomes_fast_is_spun_for_again() {
    let mut spinner = Spinner::new();
    play(&mut spinner, &world(1000, 10), 100_000);
    play(&mut spinner, &world(5, 10), 2_000);
    assert!(play(&mut spinner, &world(5, 10), 100).attempts >= 99);
}

#[test]
fn one_slow_completion_among_fast_ones_changes_nothing() {
    let mut spinner = Spinner::new();
    play(&mut spinner, &world(5, 10), 100);
    play(&mut spinner, &world(10_000, 10), 1);
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
