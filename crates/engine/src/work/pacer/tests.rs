use super::*;
use crate::base::options::Options;
use crate::base::places::HomeVolume;
use crate::opening::open::{KeyspaceChoices, open};
use situ_sim::{FaultPlan, SimExecutor, SimVolume};
use std::sync::Arc;

#[test]
fn the_share_grows_with_the_debt() {
    assert_eq!(share(0), SHARE_MIN);
    assert!(share(100) < share(400));
    assert_eq!((share(500), share(1000)), (1.0, 1.0));
}

/// How long `bytes` in pieces take, with this bound and debt.
fn paced(bound: u64, debt: f64, bytes: u64) -> Duration {
    let executor = SimExecutor::new(1);
    executor.run(|| {
        let env = executor.env();
        let volume = SimVolume::new(&env, FaultPlan::none(), 1);
        let options = Options { compaction_bytes_per_s_max: bound, ..Options::default() };
        let core =
            open(&HomeVolume::given(Arc::new(volume)), env, options, &KeyspaceChoices::new(), false).unwrap().core;
        core.work.budgets.pacer.set_debt(debt);
        let started = core.env.clock.now();
        (0..100).for_each(|_| core.work.budgets.pacer.pace(bytes / 100));
        core.env.clock.now() - started
    })
}

#[test]
fn compactions_keep_to_their_bound_and_get_less_while_there_is_little_to_do() {
    let near = |took: Duration, due: f64| (0.95..1.05).contains(&(took.as_secs_f64() / due));
    assert_eq!(paced(0, 0.0, 1 << 30), Duration::ZERO, "without a bound nothing is paced");
    assert!(near(paced(10 << 20, 0.5, 20 << 20), 2.0));
    assert!(near(paced(10 << 20, 1.0, 20 << 20), 2.0));
    assert!(near(paced(10 << 20, 0.0, 20 << 20), 2.0 / SHARE_MIN));
}
