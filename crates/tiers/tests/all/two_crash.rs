//! Promises 1 to 4 on two simulated disks that crash together at every change of either, each losing its own unsynced
//! data, or of which one fails for good before the power does.

use crate::common::prefix::{check, workload};
use crate::common::small_options;
use situ_base::Env;
use situ_engine::{Error, Store, StoreBuilder};
use situ_sim::{
    CrashPoints, Fault, FaultPlan, Rng, Rule, SimExecutor, SimVolume, crash_machine_everywhere, for_each_seed,
};
use situ_tiers::TieredBuilder;
use std::sync::Arc;

const PLACES: [&str; 2] = ["home", "fast"];

fn open(env: &Env, [home, fast]: &[SimVolume; 2], seed: u64) -> Result<Store, Error> {
    let builder = StoreBuilder::new(small_options(&mut Rng::new(seed))).env(env.clone());
    builder.open_volumes(Arc::new(home.clone()), Some(Arc::new(fast.clone())))
}

#[test]
fn promise_1_3_4_two_disks_that_lose_power_together_leave_a_whole_prefix_with_all_that_was_synced() {
    for_each_seed(1, 10, |seed| {
        let points = CrashPoints { points_max: 60, images_per_point: 3, faults: FaultPlan::none() };
        let images = crash_machine_everywhere(
            seed,
            &points,
            PLACES,
            |env, disks| workload(env, &|seed| open(env, disks, seed), seed, 60),
            |env, disks, told| check(&|seed| open(env, &disks, seed), told, told.synced, seed),
        );
        assert!(images > 100, "only {images} images");
    });
}

/// The fast disk has so little room that log files and tables of all levels spill.
#[test]
fn promise_1_3_4_a_power_failure_while_the_fast_disk_is_full() {
    for_each_seed(100, 8, |seed| {
        let points = CrashPoints { points_max: 40, images_per_point: 3, faults: FaultPlan::none() };
        let room = (100 << 10) + Rng::new(seed).below(300 << 10);
        crash_machine_everywhere(
            seed,
            &points,
            PLACES,
            |env, disks| {
                disks[1].set_faults(FaultPlan::none().capacity(room));
                workload(env, &|seed| open(env, disks, seed), seed, 60)
            },
            |env, disks, told| check(&|seed| open(env, &disks, seed), told, told.synced, seed),
        );
    });
}

/// The end of the process, at any change of either disk, takes nothing that was acknowledged, synced or not.
#[test]
fn promise_1_process_death_takes_nothing_acknowledged_from_two_disks() {
    for_each_seed(300, 8, |seed| {
        let start = |crash_at: Option<(usize, u64)>| {
            let sim = SimExecutor::new(seed);
            let disks = PLACES.map(|place| SimVolume::named(&sim.env(), place, FaultPlan::none(), seed));
            disks[1].share_power(&disks[0]);
            crash_at.into_iter().for_each(|(which, at)| disks[which].crash_at(at));
            let told = sim.run(|| workload(&sim.env(), &|seed| open(&sim.env(), &disks, seed), seed, 50));
            (disks, told)
        };
        let changes = start(None).0.map(|disk| disk.changes());
        let mut rng = Rng::new(seed);
        for n in 0..40 {
            let which = n % 2;
            let (disks, told) = start(Some((which, rng.below(changes[which]))));
            let sim = SimExecutor::new(seed + 1);
            let after = disks.map(|disk| disk.crash_keep_all().on(&sim.env()));
            sim.run(|| check(&|seed| open(&sim.env(), &after, seed), &told, told.acknowledged, seed));
        }
    });
}

/// One disk is gone from some moment on, whatever it is asked for; then the power fails, and the disk is there again.
#[test]
fn promise_1_3_7_a_disk_that_disappears_takes_nothing_that_was_synced() {
    for_each_seed(200, 60, |seed| {
        let mut rng = Rng::new(seed);
        let (which, fault) = (rng.index(2), if rng.chance(0.5) { Fault::Io } else { Fault::NotFound });
        let from = rng.below(400);
        let executor = SimExecutor::new(seed);
        let disks = PLACES.map(|place| SimVolume::named(&executor.env(), place, FaultPlan::none(), seed));
        disks[which].set_faults(FaultPlan::none().with(Rule::new(fault).from(from)));
        let told = executor.run(|| workload(&executor.env(), &|seed| open(&executor.env(), &disks, seed), seed, 60));
        let executor = SimExecutor::new(seed + 1);
        let after = disks.map(|disk| disk.crash(rng.next_u64()).on(&executor.env()));
        executor.run(|| check(&|seed| open(&executor.env(), &after, seed), &told, told.synced, seed));
    });
}
