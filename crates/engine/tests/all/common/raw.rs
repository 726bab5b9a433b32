//! A simulated machine with a home and a device without a file system as the fast disk.

use super::small_options;
use situ_base::Env;
use situ_engine::{Error, Options, Store, StoreBuilder};
use situ_rawdisk::{FormatOptions, RawOptions, RawVolume};
use situ_sim::{FaultPlan, Rng, SimDevice, SimExecutor, SimVolume};
use situ_storage::Result;
use situ_tiers::TieredBuilder;
use std::sync::Arc;

pub const PAGE: u64 = 4096;
/// Pages of one half of the journal.
const HALF_PAGES: u64 = 8;

/// The bytes of the device where both halves of the journal lie.
pub const JOURNAL: std::ops::Range<u64> = PAGE..(1 + 2 * HALF_PAGES) * PAGE;

/// A Situ disk of so many pages, with the faults of the plan from now on.
pub fn formatted(env: &Env, plan: FaultPlan, pages: u64, log_pages: u64) -> SimDevice {
    let sim = SimExecutor::new(1);
    let device = SimDevice::new(&sim.env(), pages * PAGE, FaultPlan::none(), 1);
    let (log_bytes, journal_half_bytes) = (Some(log_pages * PAGE), Some(HALF_PAGES * PAGE));
    let options = FormatOptions { log_bytes, journal_half_bytes, ..FormatOptions::default() };
    sim.run(|| RawVolume::format(device.reached(), sim.env(), &options)).unwrap();
    let device = device.on(env);
    device.set_faults(plan);
    device
}

pub fn volume(env: &Env, device: &SimDevice) -> Result<RawVolume> {
    RawVolume::open(device.reached(), env.clone(), RawOptions { cache_bytes: 1 << 20 })
}

/// Opens the store, with options drawn from the seed; a store or a disk that is not one of a pair yet becomes so.
pub fn open(env: &Env, home: &SimVolume, device: &SimDevice, seed: u64) -> std::result::Result<Store, Error> {
    open_with(env, home, device, small_options(&mut Rng::new(seed)))
}

pub fn open_with(
    env: &Env,
    home: &SimVolume,
    device: &SimDevice,
    options: Options,
) -> std::result::Result<Store, Error> {
    let fast = volume(env, device)?;
    StoreBuilder::new(options).env(env.clone()).open_volumes(Arc::new(home.clone()), Some(Arc::new(fast)))
}

/// A machine with two disks. Everything in it is the simulated world of one seed.
pub struct World {
    pub env: Env,
    pub home: SimVolume,
    pub device: SimDevice,
}

impl World {
    /// Runs `body` on a home without faults and a formatted device of so many pages.
    pub fn run<T: Send>(seed: u64, pages: u64, log_pages: u64, body: impl FnOnce(&World) -> T + Send) -> T {
        World::run_with(seed, FaultPlan::none(), pages, log_pages, body)
    }

    /// The same, with the faults of `plan` on the device.
    pub fn run_with<T: Send>(
        seed: u64,
        plan: FaultPlan,
        pages: u64,
        log_pages: u64,
        body: impl FnOnce(&World) -> T + Send,
    ) -> T {
        let sim = SimExecutor::new(seed);
        let env = sim.env();
        let home = SimVolume::new(&env, FaultPlan::none(), seed);
        let device = formatted(&env, plan, pages, log_pages);
        let world = World { env, home, device };
        sim.run(|| body(&world))
    }

    pub fn open(&self, options: Options) -> std::result::Result<Store, Error> {
        open_with(&self.env, &self.home, &self.device, options)
    }

    /// Opens the store with options drawn from the seed.
    pub fn open_small(&self, seed: u64) -> std::result::Result<Store, Error> {
        self.open(small_options(&mut Rng::new(seed)))
    }

    /// What a power failure at this moment leaves.
    pub fn crash(&self, seed: u64) -> World {
        World { env: self.env.clone(), home: self.home.crash(seed), device: self.device.crash(seed + 1) }
    }

    /// What the end of the process at this moment leaves.
    pub fn killed(&self) -> World {
        World { env: self.env.clone(), home: self.home.crash_keep_all(), device: self.device.crash_keep_all() }
    }
}

/// All metadata of the device is in order.
pub fn is_sound(env: &Env, device: &SimDevice) {
    let found = RawVolume::check(device.reached(), env.clone()).unwrap();
    assert!(found.problems.is_empty(), "{found:?}");
}
