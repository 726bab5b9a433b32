use super::*;

const US: u64 = 1000;

/// A log that takes `us` for each of `count` writes, one after the other, from `at` on. Returns when it ends.
fn write(courtesy: &Courtesy, us: u64, count: u64, at: Duration) -> Duration {
    (1..=count).fold(at, |at, _| {
        let took = Duration::from_nanos(us * US);
        courtesy.sample(took, at + took);
        at + took
    })
}

#[test]
fn a_disturbed_log_has_the_compactions_use_one_thread() {
    let courtesy = Courtesy::default();
    let at = write(&courtesy, 50, 1000, Duration::ZERO);
    assert_eq!(courtesy.threads(4, at), 4, "calm");
    let at = write(&courtesy, 400, 100, at);
    assert_eq!(courtesy.threads(4, at), 1, "eight times as long");
    let first = courtesy.begin(4, at).expect("one thread always may");
    assert!(courtesy.begin(4, at).is_none());
    drop(first);
    assert!(courtesy.begin(4, at).is_some());
    let at = write(&courtesy, 60, 200, at);
    assert_eq!(courtesy.threads(4, at), 4, "calm again");
}

#[test]
fn debt_comes_before_courtesy() {
    let courtesy = Courtesy::default();
    let at = write(&courtesy, 50, 1000, Duration::ZERO);
    let at = write(&courtesy, 5000, 100, at);
    courtesy.set_debt(0.29);
    assert!(courtesy.holds_back(at));
    courtesy.set_debt(0.3);
    assert!(!courtesy.holds_back(at));
}

#[test]
fn a_log_that_nobody_waits_for_needs_none() {
    let courtesy = Courtesy::default();
    assert!(!courtesy.holds_back(Duration::from_secs(1)), "nobody ever did");
    let at = write(&courtesy, 50, 1000, Duration::ZERO);
    let at = write(&courtesy, 5000, 100, at);
    assert!(courtesy.holds_back(at + RECENT));
    assert!(!courtesy.holds_back(at + RECENT + Duration::from_millis(1)));
}

#[test]
fn a_disk_that_is_slow_by_itself_is_not_disturbed() {
    let courtesy = Courtesy::default();
    let mut at = write(&courtesy, 50, 1000, Duration::ZERO);
    // The same disk, from now on for ever slower: it is held for disturbed for a while only.
    at = write(&courtesy, 400, 1000, at);
    assert!(courtesy.holds_back(at));
    at = write(&courtesy, 400, 10_000, at);
    assert!(!courtesy.holds_back(at));
    // And a fast one whose noise is less than anybody would notice.
    let courtesy = Courtesy::default();
    let at = write(&courtesy, 6, 1000, Duration::ZERO);
    let at = write(&courtesy, 60, 100, at);
    assert!(!courtesy.holds_back(at));
}
