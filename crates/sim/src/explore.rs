//! Trying many worlds: every crash point of a workload, many seeds of a test.
//!
//! Rejected: shrinking a failing seed. A run is short, its trace is printed, and one seed replays exactly. That has
//! been enough to understand a failure. A shrinker for schedules is a project of its own.

use crate::{FaultPlan, Rng, SimDevice, SimExecutor, SimVolume, Trace};
use situ_base::Env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The environment variable that makes [`for_each_seed`] run one seed only.
pub const SEED_VARIABLE: &str = "SITU_SIM_SEED";

/// The environment variable with the factor by which [`for_each_seed`] multiplies its number of seeds.
pub const ROUNDS_VARIABLE: &str = "SITU_SIM_ROUNDS";

/// The environment variable that moves the seeds of all rounds but the first, so that each long run tries new ones.
pub const FROM_VARIABLE: &str = "SITU_SIM_FROM";

/// Rounds are so far apart that their seeds do not meet.
const ROUND_SEEDS: u64 = 1 << 20;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Calls `test` with `count` seeds derived from `first`. If the environment variable `SITU_SIM_SEED` is set, it calls
/// it with that one only. If `SITU_SIM_ROUNDS` is set, it calls it with that many times as many seeds.
///
/// # Panics
/// As `test` does, having printed the seed and how to replay it. When one of the variables is not a number.
pub fn for_each_seed(first: u64, count: u64, mut test: impl FnMut(u64)) {
    let seeds: Box<dyn Iterator<Item = u64>> = match variable(SEED_VARIABLE) {
        Some(seed) => Box::new(std::iter::once(seed)),
        None => {
            let from = variable(FROM_VARIABLE).unwrap_or(0);
            let rounds = variable(ROUNDS_VARIABLE).unwrap_or(1);
            let first_of = move |round: u64| match round {
                0 => first,
                _ => first.wrapping_add(from.wrapping_add(round).wrapping_mul(ROUND_SEEDS)),
            };
            Box::new((0..rounds).flat_map(move |round| (0..count).map(move |n| first_of(round).wrapping_add(n))))
        }
    };
    for seed in seeds {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("failed with seed {seed}; replay with {SEED_VARIABLE}={seed}");
            resume_unwind(payload);
        }
    }
}

/// The thoroughness of [`crash_everywhere`].
#[derive(Debug, Clone)]
pub struct CrashPoints {
    /// The maximum number of crash points. If the workload has more, this many of them are drawn.
    pub points_max: u64,
    /// Images of power failures to check per point.
    pub images_per_point: u32,
    /// The other faults while the workload runs.
    pub faults: FaultPlan,
}

impl Default for CrashPoints {
    fn default() -> CrashPoints {
        CrashPoints { points_max: 200, images_per_point: 3, faults: FaultPlan::none() }
    }
}

/// One disk of a machine.
trait Disk: Send + Sync {
    fn changes(&self) -> u64;
    fn crash_at(&self, change: u64);
    fn trace(&self) -> Trace;
    /// Returns the disk in another machine, after the end of the process or, with a seed, after a power failure.
    fn after(&self, power_failure: Option<u64>, env: &Env) -> Self
    where
        Self: Sized;
}

macro_rules! disk {
    ($kind:ty) => {
        impl Disk for $kind {
            fn changes(&self) -> u64 {
                self.changes()
            }

            fn crash_at(&self, change: u64) {
                self.crash_at(change);
            }

            fn trace(&self) -> Trace {
                self.trace()
            }

            fn after(&self, power_failure: Option<u64>, env: &Env) -> Self {
                power_failure.map_or_else(|| self.on(env), |seed| self.crash(seed).on(env))
            }
        }
    };
}

disk!(SimVolume);
disk!(SimDevice);

/// Disks that crash together.
trait Machine: Send + Sync {
    fn disks(&self) -> Vec<&dyn Disk>;
    /// Like [`Disk::after`]; each loses by a seed of its own.
    fn after(&self, power_failure: Option<u64>, env: &Env) -> Self;
}

impl<const N: usize, D: Disk> Machine for [D; N] {
    fn disks(&self) -> Vec<&dyn Disk> {
        self.iter().map(|disk| disk as &dyn Disk).collect()
    }

    fn after(&self, power_failure: Option<u64>, env: &Env) -> Self {
        let mut own = power_failure;
        self.each_ref().map(|disk| {
            let after = disk.after(own, env);
            own = own.map(|seed| seed.wrapping_add(1));
            after
        })
    }
}

impl<const N: usize> Machine for ([SimVolume; N], SimDevice) {
    fn disks(&self) -> Vec<&dyn Disk> {
        self.0.iter().map(|disk| disk as &dyn Disk).chain([&self.1 as &dyn Disk]).collect()
    }

    fn after(&self, power_failure: Option<u64>, env: &Env) -> Self {
        let device = self.1.after(power_failure.map(|seed| seed.wrapping_add(N as u64)), env);
        (self.0.after(power_failure, env), device)
    }
}

impl Machine for (SimVolume, SimDevice) {
    fn disks(&self) -> Vec<&dyn Disk> {
        vec![&self.0, &self.1]
    }

    fn after(&self, power_failure: Option<u64>, env: &Env) -> Self {
        (self.0.after(power_failure, env), self.1.after(power_failure.map(|seed| seed.wrapping_add(1)), env))
    }
}

/// Runs `workload` once undisturbed to count its crash points, then once per point on a fresh machine and volume that
/// crash there; `check` gets each volume that a crash may leave, and the result of the workload (its observations: the
/// writes acknowledged and those tried). The first image of each point is that of process death: everything that the
/// system got is there, but bytes that were not durable still are not ([`SimVolume::crash_keep_all`]). Returns the
/// number of images checked.
///
/// The workload gets errors from the crash on and must return then; threads that it leaves behind are killed. Both
/// closures run as simulated threads, with the seed's schedule: the same seed checks the same images.
///
/// # Panics
/// As `workload` and `check` do; the message has the seed, the crash point and the image.
pub fn crash_everywhere<T: Send + Sync>(
    seed: u64,
    options: &CrashPoints,
    workload: impl Fn(&Env, &SimVolume) -> T + Sync,
    check: impl Fn(&Env, SimVolume, &T) + Sync,
) -> u64 {
    let make = |env: &Env| [SimVolume::new(env, options.faults.clone(), seed)];
    crash_all_everywhere(
        seed,
        options,
        make,
        |env, [disk]| workload(env, disk),
        |env, [disk], told| check(env, disk, told),
    )
}

/// Runs [`crash_everywhere`] for a device: `make` gives it for the machine and the faults of the options, as it is when
/// the workload begins.
///
/// # Panics
/// As [`crash_everywhere`].
pub fn crash_device_everywhere<T: Send + Sync>(
    seed: u64,
    options: &CrashPoints,
    make: impl Fn(&Env, FaultPlan) -> SimDevice + Sync,
    workload: impl Fn(&Env, &SimDevice) -> T + Sync,
    check: impl Fn(&Env, SimDevice, &T) + Sync,
) -> u64 {
    let make = |env: &Env| [make(env, options.faults.clone())];
    crash_all_everywhere(
        seed,
        options,
        make,
        |env, [disk]| workload(env, disk),
        |env, [disk], told| check(env, disk, told),
    )
}

/// Runs [`crash_everywhere`] for a machine with several volumes, each at its location. A crash point is a change of any
/// of them. All crash at once, and the losses of each are independent of the others. All have the options' faults.
///
/// # Panics
/// As [`crash_everywhere`].
pub fn crash_machine_everywhere<const N: usize, T: Send + Sync>(
    seed: u64,
    options: &CrashPoints,
    locations: [&str; N],
    workload: impl Fn(&Env, &[SimVolume; N]) -> T + Sync,
    check: impl Fn(&Env, [SimVolume; N], &T) + Sync,
) -> u64 {
    let make = |env: &Env| {
        let volumes = locations.map(|location| SimVolume::named(env, location, options.faults.clone(), seed));
        volumes.iter().skip(1).for_each(|volume| volume.share_power(&volumes[0]));
        volumes
    };
    crash_all_everywhere(seed, options, make, workload, check)
}

/// Runs [`crash_machine_everywhere`] for a machine with an empty volume and a device, which is as `make` gives it.
///
/// # Panics
/// As [`crash_everywhere`].
pub fn crash_volume_and_device_everywhere<T: Send + Sync>(
    seed: u64,
    options: &CrashPoints,
    make: impl Fn(&Env, FaultPlan) -> SimDevice + Sync,
    workload: impl Fn(&Env, &SimVolume, &SimDevice) -> T + Sync,
    check: impl Fn(&Env, SimVolume, SimDevice, &T) + Sync,
) -> u64 {
    let make = |env: &Env| {
        let (volume, device) = (SimVolume::new(env, options.faults.clone(), seed), make(env, options.faults.clone()));
        device.share_power(&volume);
        (volume, device)
    };
    crash_all_everywhere(
        seed,
        options,
        make,
        |env, (volume, device)| workload(env, volume, device),
        |env, (volume, device), told| check(env, volume, device, told),
    )
}

/// Runs [`crash_machine_everywhere`] for a machine with several volumes, each at its location, and a device, which is
/// as `make` gives it.
///
/// # Panics
/// As [`crash_everywhere`].
pub fn crash_volumes_and_device_everywhere<const N: usize, T: Send + Sync>(
    seed: u64,
    options: &CrashPoints,
    locations: [&str; N],
    make: impl Fn(&Env, FaultPlan) -> SimDevice + Sync,
    workload: impl Fn(&Env, &[SimVolume; N], &SimDevice) -> T + Sync,
    check: impl Fn(&Env, [SimVolume; N], SimDevice, &T) + Sync,
) -> u64 {
    let make = |env: &Env| {
        let volumes = locations.map(|location| SimVolume::named(env, location, options.faults.clone(), seed));
        let device = make(env, options.faults.clone());
        volumes.iter().for_each(|volume| volume.share_power(&device));
        (volumes, device)
    };
    crash_all_everywhere(
        seed,
        options,
        make,
        |env, (volumes, device)| workload(env, volumes, device),
        |env, (volumes, device), told| check(env, volumes, device, told),
    )
}

fn crash_all_everywhere<M: Machine, T: Send + Sync>(
    seed: u64,
    options: &CrashPoints,
    make: impl Fn(&Env) -> M,
    workload: impl Fn(&Env, &M) -> T + Sync,
    check: impl Fn(&Env, M, &T) + Sync,
) -> u64 {
    let start = |crash: Option<(usize, u64)>| {
        let sim = SimExecutor::new(seed);
        let machine = make(&sim.env());
        if let Some((which, change)) = crash {
            machine.disks()[which].crash_at(change);
        }
        let told = sim.run(|| workload(&sim.env(), &machine));
        (machine, told)
    };
    let mut rng = Rng::new(seed);
    let totals: Vec<u64> = start(None).0.disks().iter().map(|disk| disk.changes()).collect();
    // The end of all is a point as well, and the first disk has it.
    let counts = totals.iter().enumerate().map(|(which, total)| (which, total + u64::from(which == 0)));
    let mut points: Vec<(usize, u64)> =
        counts.flat_map(|(which, count)| (0..count).map(move |change| (which, change))).collect();
    if points.len() as u64 > options.points_max {
        rng.shuffle(&mut points);
        points.truncate(usize::try_from(options.points_max).unwrap_or(usize::MAX));
    }
    let mut images = 0;
    for point in points {
        let (machine, told) = start(Some(point));
        for image in 0..=options.images_per_point {
            let image_seed = rng.next_u64();
            let sim = SimExecutor::new(image_seed);
            // The first keeps everything: the process died, and only that.
            let after = machine.after((image > 0).then_some(image_seed), &sim.env());
            let outcome = catch_unwind(AssertUnwindSafe(|| sim.run(|| check(&sim.env(), after, &told))));
            if let Err(payload) = outcome {
                let (which, change) = point;
                eprintln!(
                    "seed {seed}, crash at change {change} of {} of disk {which}, image {image}; before the crash:",
                    totals[which]
                );
                machine.disks().iter().for_each(|disk| eprintln!("{}", disk.trace()));
                resume_unwind(payload);
            }
            images += 1;
        }
    }
    images
}
