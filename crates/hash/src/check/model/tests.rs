use super::*;

/// Pairs of 16 and 400 bytes.
const VALUE_BYTES: usize = 400;
const CAPACITY: u32 = 9;

fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$}", 100.0 * share)
}

#[test]
fn the_formula_gives_the_known_figures() {
    let known =
        [(0.4, 2, "0.16"), (0.5, 2, "0.61"), (0.6, 1, "1.6"), (0.7, 1, "3.4"), (0.8, 1, "5.9"), (0.9, 1, "9.3")];
    for (load, digits, figure) in known {
        assert_eq!(percent(overflow_share(Scheme::Linear, load, 0.0, CAPACITY), digits), figure, "load {load}");
    }
    for (load, digits, figure) in [(0.40, 2, "0.93"), (0.45, 1, "1.6"), (0.5, 1, "2.5")] {
        assert_eq!(percent(worst_share(Scheme::Linear, load, CAPACITY), digits), figure, "load {load} at its worst");
    }
    // 0.40 of the usable bytes is more than a load of 0.40: nine entries do not fill a bucket.
    let used = f64::from(CAPACITY) * 420.0 / USABLE_BYTES as f64;
    assert_eq!(percent(worst_share(Scheme::Linear, 0.40 / used, CAPACITY), 2), "1.25");
}

#[test]
fn the_sum_over_a_bucket_is_exact() {
    // Capacity 0: everything overflows. A tiny mean and capacity 1: two entries at once, with probability mean^2 / 2.
    assert!((overflow_of(3.6, 0) - 3.6).abs() < 1e-12);
    assert!((overflow_of(1e-3, 1) / 0.5e-6 - 1.0).abs() < 1e-3);
    assert_eq!(overflow_of(0.0, 9), 0.0);
    assert!((overflow_of(500.0, 9) - 491.0).abs() < 1e-6, "a bucket that is always full");
}

#[test]
fn parts_hold_all_entries_and_all_buckets() {
    for scheme in Scheme::ALL {
        for step in 0..=20 {
            let position = f64::from(step) / 20.0;
            let parts = scheme.parts(position);
            let entries: f64 = parts.iter().map(|part| part.buckets * part.weight).sum();
            assert!((entries - 1.0).abs() < 1e-12, "{scheme:?} at {position}");
            let buckets: f64 = parts.iter().map(|part| part.buckets).sum();
            let expected = if scheme == Scheme::Doubling { f64::from(1 + step / 20) } else { 1.0 + position };
            assert!((buckets - expected).abs() < 1e-12, "{scheme:?} at {position}");
        }
    }
}

#[test]
fn a_band_is_where_the_worst_point_has_the_share() {
    let linear = band(Scheme::Linear, 0.01, CAPACITY);
    assert!((0.40..0.41).contains(&linear), "{linear}");
    assert!((worst_share(Scheme::Linear, linear, CAPACITY) - 0.01).abs() < 1e-6);
    assert!(band(Scheme::Partial, 0.01, CAPACITY) > linear, "partial expansions keep buckets fuller");
}

#[test]
fn real_pairs_have_the_capacity_of_the_formula() {
    assert_eq!(Filled::new(State::new(0), VALUE_BYTES).capacity(), CAPACITY);
}

/// The measured share differs from the formula by no more than five standard deviations.
fn assert_near<A: Addressing>(filled: &Filled<A>, formula: f64, what: &str) {
    let entries = filled.entries() as f64;
    // Entries overflow several at a time: their variance is about twice their mean.
    let deviation = (2.0 * formula / entries).sqrt();
    let found = filled.overflow_share();
    assert!((found - formula).abs() < 5.0 * deviation + 1e-9, "{what}: measured {found}, formula {formula}");
}

/// Grows through a round at this load, and looks at each tenth of it.
fn grow_a_round<A: Addressing>(scheme: Scheme, addressing: A, load: f64) -> Filled<A> {
    let mut filled = Filled::new(addressing, VALUE_BYTES);
    let round = filled.buckets();
    for tenth in 0..10 {
        while filled.buckets() < round + round * tenth / 10 {
            filled.fill(load);
            filled.grow();
        }
        filled.fill(load);
        let position = (filled.buckets() - round) as f64 / round as f64;
        let formula = overflow_share(scheme, load, position, CAPACITY);
        assert_near(&filled, formula, &format!("{} at load {load}, position {position}", scheme.name()));
    }
    while filled.buckets() < 2 * round {
        filled.grow();
    }
    filled
}

#[test]
fn real_buckets_overflow_as_the_formula_says() {
    for load in [0.4, 0.7] {
        let linear = grow_a_round(Scheme::Linear, State::new(10), load).costs();
        assert_eq!((linear.steps, linear.reads, linear.writes), (1024, 1024, 2048));
        let partial = grow_a_round(Scheme::Partial, PartialState::new(512), load).costs();
        assert_eq!((partial.steps, partial.reads, partial.writes), (1024, 2560, 3584));
        assert!(partial.moved > linear.moved && linear.returned > 0);
    }
}

#[test]
fn partial_expansions_move_entries_only_to_the_new_bucket() {
    let mut state = PartialState::new(4);
    for _ in 0..40 {
        let before = state;
        let (gives, new) = state.grow();
        assert_eq!(new, before.buckets());
        assert_eq!(state.buckets(), before.buckets() + 1);
        for number in 0..2000 {
            let (from, to) = (before.bucket_of(hash(number)), state.bucket_of(hash(number)));
            assert!(from == to || (to == new && gives.contains(&from)), "{from} to {to} in {before:?}");
        }
    }
}
