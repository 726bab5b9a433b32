use super::*;
use crate::tests::shelves::{Plan, World};
use situ_base::lock;
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use std::sync::Arc;

/// Runs `test` with a pipeline that nobody serves.
fn with_world(test: impl FnOnce(&World) + Send) {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let volume = SimVolume::new(&executor.env(), FaultPlan::none(), 1);
        test(&World::new(&executor.env(), Arc::new(volume), &Plan::default()).unwrap());
    });
}

#[test]
fn writers_share_the_budget_and_no_wait_is_long() {
    with_world(|world| {
        let (clock, budget) = (&world.env.clock, world.pipeline.budget());
        let rate = 7.0e6;
        assert!(budget.set(clock.now(), Some(rate)), "writers are slowed from now on");
        assert!((budget.limit_bytes_per_s().unwrap() as f64 / rate - 1.0).abs() < 0.01);
        let started = clock.now();
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let pipeline = Arc::clone(&world.pipeline);
                let write = move || {
                    for _ in 0..1000 {
                        let before = pipeline.env.clock.now();
                        pipeline.slow_down(4096);
                        let waited = pipeline.env.clock.now() - before;
                        assert!(waited <= Duration::from_millis(DELAY_MS_MAX + 5), "one write waited {waited:?}");
                    }
                };
                world.env.executor.spawn("writer", Box::new(write)).unwrap()
            })
            .collect();
        writers.iter().for_each(|writer| writer.join().unwrap());
        let took = clock.now() - started;
        let due = 4.0 * 1000.0 * 4096.0 / rate;
        assert!((0.9..1.1).contains(&(took.as_secs_f64() / due)), "{took:?} for what is due in {due} s");
        assert!(*lock(&world.shelves.held_back) > took, "four writers were held back");
        // One writer in 20 ms asks for another budget.
        let asked = world.shelves.budgets_asked.load(Ordering::Relaxed) as u128;
        let most = took.as_millis() / u128::from(REFRESH_MS);
        assert!((most / 2..=most).contains(&asked), "{asked} of {most}");
        // Without debt nobody waits.
        assert!(budget.set(clock.now(), None), "writers are not slowed any more");
        let before = clock.now();
        (0..1000).for_each(|_| world.pipeline.slow_down(1 << 20));
        assert_eq!(clock.now(), before);
        assert_eq!(budget.limit_bytes_per_s(), None);
    });
}

#[test]
fn a_single_huge_write_waits_no_longer_than_others() {
    with_world(|world| {
        world.pipeline.budget().set(world.env.clock.now(), Some(250_000.0));
        let waited = [(); 3].map(|()| {
            let before = world.env.clock.now();
            world.pipeline.slow_down(1 << 30);
            world.env.clock.now() - before
        });
        let longest = Duration::from_millis(DELAY_MS_MAX);
        assert_eq!(waited[0], Duration::ZERO, "the first one is due at once");
        assert!(waited[1..].iter().all(|waited| *waited >= longest && *waited <= longest * 11 / 10), "{waited:?}");
    });
}

#[test]
fn only_the_change_between_slowed_and_not_is_told() {
    let budget = Budget::default();
    assert!(!budget.set(Duration::ZERO, None));
    assert!(budget.set(Duration::ZERO, Some(1e6)));
    assert!(!budget.set(Duration::ZERO, Some(2e6)));
    assert_eq!(budget.limit_bytes_per_s(), Some(2_000_000));
    assert!(budget.set(Duration::ZERO, None));
}
