use super::*;

const US: u64 = 1000;

/// A log that takes `us` for each of `count` writes, one after the other, from `at` on. Returns when it ends.
fn write(throttle: &CompactionThrottle, us: u64, count: u64, at: Duration) -> Duration {
    (1..=count).fold(at, |at, _| {
        let took = Duration::from_nanos(us * US);
        throttle.sample(took, at + took);
        at + took
    })
}

#[test]
fn a_disturbed_log_has_the_compactions_use_one_thread() {
    let throttle = CompactionThrottle::default();
    let at = write(&throttle, 50, 1000, Duration::ZERO);
    assert_eq!(throttle.threads(4, at), 4, "calm");
    let at = write(&throttle, 400, 100, at);
    assert_eq!(throttle.threads(4, at), 1, "eight times as long");
    let first = throttle.begin(4, 0, at).expect("one thread always may");
    assert!(throttle.begin(4, 0, at).is_none());
    drop(first);
    assert!(throttle.begin(4, 0, at).is_some());
    let at = write(&throttle, 60, 200, at);
    assert_eq!(throttle.threads(4, at), 4, "calm again");
}

#[test]
fn debt_comes_before_courtesy() {
    let throttle = CompactionThrottle::default();
    let at = write(&throttle, 50, 1000, Duration::ZERO);
    let at = write(&throttle, 5000, 100, at);
    throttle.set_debt(0.29);
    assert!(throttle.holds_back(at));
    throttle.set_debt(0.3);
    assert!(!throttle.holds_back(at));
}

#[test]
fn a_log_that_nobody_waits_for_needs_none() {
    let throttle = CompactionThrottle::default();
    assert!(!throttle.holds_back(Duration::from_secs(1)), "nobody ever did");
    let at = write(&throttle, 50, 1000, Duration::ZERO);
    let at = write(&throttle, 5000, 100, at);
    assert!(throttle.holds_back(at + RECENT));
    assert!(!throttle.holds_back(at + RECENT + Duration::from_millis(1)));
}

#[test]
fn a_disk_that_is_slow_by_itself_is_not_disturbed() {
    let throttle = CompactionThrottle::default();
    let mut at = write(&throttle, 50, 1000, Duration::ZERO);
    // The same disk, from now on for ever slower: it is held for disturbed for a while only.
    at = write(&throttle, 400, 1000, at);
    assert!(throttle.holds_back(at));
    at = write(&throttle, 400, 10_000, at);
    assert!(!throttle.holds_back(at));
    // And a fast one whose noise is less than anybody would notice.
    let throttle = CompactionThrottle::default();
    let at = write(&throttle, 6, 1000, Duration::ZERO);
    let at = write(&throttle, 60, 100, at);
    assert!(!throttle.holds_back(at));
}
