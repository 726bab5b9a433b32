//! An NVMe controller in software, for drivers: registers, queues in the host's memory, interrupts, bad behaviour.
//!
//! ```text
//!   Function ──── registers.rs   enabling, doorbells, shutdown
//!      │          watch.rs       waits for interrupts
//!      │          memory.rs      mappings, and each access to them
//!   queues.rs ─── engine.rs      commands: fetched, run, answered
//!      │            ├─ admin.rs, identify.rs
//!      │            └─ blocks.rs, walk.rs ── plan.rs: what goes wrong
//!   dyn Device    the medium of each namespace: crashes, faults, time
//! ```
//!
//! The controller has no thread. It works when the host calls it: at a doorbell, at a look for completions, in a wait
//! for an interrupt. So it runs in the simulated world as well as on a machine.
//!
//! **Threads.** Any number of threads call in at once. Locks are held around plain data, and never while a device below
//! is called or an event notified. Doorbells, looks and reads of the status register are yield points.
//!
//! **Failure.** As planned ([`NvmePlan`]). Faults of the medium come from the devices below, as statuses. What a host
//! does against the specification is answered as it says, and noted ([`NvmeModel::violations`]).
//!
//! **Departures.** A write of a part of a page is refused with an internal error, because a [`Device`] writes whole
//! pages. A command of a namespace runs on one device queue of its submission queue, so a device that does the work in
//! `submit` answers in order.

mod admin;
mod blocks;
mod command;
mod config;
mod counts;
mod driven;
mod engine;
mod identify;
mod memory;
mod plan;
mod queues;
mod registers;
mod status;
#[cfg(test)]
mod tests;
mod walk;
mod watch;

pub use command::NvmeCommand;
pub use config::NvmeConfig;
pub use counts::NvmeCounts;
pub use memory::DmaFault;
pub use plan::{NotReady, NvmeFault, NvmePlan, NvmeRule};

use crate::Rng;
use admin::Features;
use blocks::Namespace;
use counts::{Counters, count};
use memory::Memory;
use plan::PlanState;
use queues::{Answer, Roster};
use registers::Registers;
use situ_base::{Env, lock};
use situ_device::{Device, Dma, Function, Watch};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use watch::InterruptWatch;

/// A simulated NVMe controller over devices. Clones are the same controller; it is a [`Function`] itself.
///
/// ```
/// use situ_device::Function;
/// use situ_sim::{FaultPlan, NvmeConfig, NvmeModel, NvmePlan, SimDevice, SimExecutor};
/// use std::sync::Arc;
///
/// let sim = SimExecutor::new(1);
/// let device = SimDevice::new(&sim.env(), 1 << 20, FaultPlan::none(), 1);
/// let model = NvmeModel::new(&sim.env(), NvmeConfig::default(), vec![Arc::new(device)], NvmePlan::none(), 1);
/// assert_eq!(model.read(8), 0x1_04_00, "the version");
/// model.remove();
/// assert_eq!(model.read(8), u32::MAX);
/// ```
#[derive(Clone)]
pub struct NvmeModel {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    config: NvmeConfig,
    namespaces: Vec<Namespace>,
    memory: Memory,
    registers: Mutex<Registers>,
    features: Mutex<Features>,
    roster: RwLock<Arc<Roster>>,
    plan: Mutex<PlanState>,
    /// The volatile write cache is in use.
    cache_is_on: AtomicBool,
    is_fatal: AtomicBool,
    is_removed: AtomicBool,
    /// Interrupts that are masked, and those of them that are due.
    masks: AtomicU32,
    held_interrupts: AtomicU32,
    watches: Mutex<BTreeMap<u16, Arc<InterruptWatch>>>,
    counters: Counters,
    violations: Mutex<Vec<String>>,
}

impl NvmeModel {
    /// Creates a controller that is off. Its namespaces 1 to n are the devices, and `seed` decides where a drive may do
    /// one thing or another.
    ///
    /// # Panics
    /// No controller is made as the configuration says; a device is not of whole pages.
    pub fn new(env: &Env, config: NvmeConfig, devices: Vec<Arc<dyn Device>>, plan: NvmePlan, seed: u64) -> NvmeModel {
        config.check();
        let shared = Shared {
            env: env.clone(),
            namespaces: devices.into_iter().map(Namespace::new).collect(),
            memory: Memory::new(config.hides_dma_faults),
            config,
            registers: Mutex::default(),
            features: Mutex::default(),
            roster: RwLock::default(),
            plan: Mutex::new(PlanState::new(plan, Rng::new(seed))),
            cache_is_on: AtomicBool::new(true),
            is_fatal: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            masks: AtomicU32::new(0),
            held_interrupts: AtomicU32::new(0),
            watches: Mutex::default(),
            counters: Counters::default(),
            violations: Mutex::default(),
        };
        NvmeModel { shared: Arc::new(shared) }
    }

    /// Exchanges the plan; the new rules count from zero.
    pub fn set_plan(&self, plan: NvmePlan) {
        lock(&self.shared.plan).set(plan);
    }

    /// Pulls the drive out: registers read as all ones, nothing is answered, and no memory is reached.
    pub fn remove(&self) {
        self.shared.remove();
    }

    /// Makes the controller report a fatal status. It works no more until it is reset.
    pub fn fail(&self) {
        self.shared.fail();
    }

    /// Returns the counts of the host's use.
    pub fn counts(&self) -> NvmeCounts {
        let memory = &self.shared.memory;
        NvmeCounts {
            dma_read_bytes: memory.read_bytes.load(Ordering::Relaxed),
            dma_written_bytes: memory.written_bytes.load(Ordering::Relaxed),
            mapped_bytes: memory.mapped_bytes(),
            ..self.shared.counters.counts()
        }
    }

    /// Returns the accesses to memory that were stopped, in their order.
    pub fn faults(&self) -> Vec<DmaFault> {
        self.shared.memory.faults()
    }

    /// Returns what the host did against the specification, in its order.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.shared.violations).clone()
    }
}

impl fmt::Debug for NvmeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NvmeModel({}, {} namespaces)", self.shared.config.name, self.shared.namespaces.len())
    }
}

impl Shared {
    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Returns true if the controller works no more.
    fn is_halted(&self) -> bool {
        self.is_removed() || self.is_fatal.load(Ordering::Acquire)
    }

    fn remove(&self) {
        self.is_removed.store(true, Ordering::Release);
        registers::end(self);
    }

    fn fail(&self) {
        self.is_fatal.store(true, Ordering::Release);
    }

    fn violation(&self, what: String) {
        const VIOLATIONS_MAX: usize = 1000;
        let mut violations = lock(&self.violations);
        if violations.len() < VIOLATIONS_MAX {
            violations.push(what);
        }
    }

    fn has_cache(&self) -> bool {
        self.namespaces.iter().any(|namespace| namespace.geometry.volatile_write_cache)
    }

    fn can_discard(&self) -> bool {
        self.namespaces.iter().any(|namespace| namespace.geometry.discard_bytes > 0)
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace_roster(&self, roster: Roster) -> Arc<Roster> {
        std::mem::replace(&mut self.roster.write().unwrap_or_else(PoisonError::into_inner), Arc::new(roster))
    }

    /// Changes the queues, unless `change` refuses.
    fn change_roster<T>(&self, change: impl FnOnce(&mut Roster) -> Result<T, u16>) -> Result<T, u16> {
        let mut roster = self.roster.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = Roster::clone(&roster);
        let result = change(&mut changed)?;
        *roster = Arc::new(changed);
        Ok(result)
    }

    /// Answers an admin command that the controller has kept.
    fn answer_admin(&self, id: u16, status: u16, result: u32) {
        if let Some(queue) = self.roster().submission(0) {
            let head = queue.head.load(Ordering::Acquire);
            queue.completion.post(self, [Answer { result, queue: 0, head, id, status }]);
        }
    }

    fn interrupt(&self, vector: u16) {
        let bit = 1_u32.checked_shl(u32::from(vector)).unwrap_or(0);
        if self.masks.load(Ordering::Acquire) & bit != 0 {
            self.held_interrupts.fetch_or(bit, Ordering::AcqRel);
            return;
        }
        count(&self.counters.interrupts);
        let watch = lock(&self.watches).get(&vector).cloned();
        watch.into_iter().for_each(|watch| watch.wake());
    }

    /// Tells a thread that waits for this interrupt that its queues' next events have changed.
    fn poke(&self, vector: u16) {
        let watch = lock(&self.watches).get(&vector).cloned();
        watch.into_iter().for_each(|watch| watch.poke());
    }

    fn settle(&self) {
        let roster = self.roster();
        roster.submission.iter().for_each(|queue| queue.work(self, false));
        roster.completion.iter().for_each(|queue| queue.settle(self));
    }
}

impl Function for NvmeModel {
    fn name(&self) -> String {
        self.shared.config.name.clone()
    }

    fn env(&self) -> &Env {
        &self.shared.env
    }

    fn read(&self, offset: u32) -> u32 {
        registers::read(&self.shared, offset)
    }

    fn write(&self, offset: u32, value: u32) {
        registers::write(&self.shared, offset, value);
    }

    fn addresses(&self) -> Range<u64> {
        self.shared.config.addresses.clone()
    }

    #[allow(unsafe_code, reason = "the trait's; what the caller promises is used in `memory`")]
    unsafe fn map(&self, address: u64, memory: Dma) -> io::Result<()> {
        let (page, addresses) = (walk::PAGE, &self.shared.config.addresses);
        let end = address.saturating_add(memory.bytes() as u64);
        let is_whole = address.is_multiple_of(page) && end.is_multiple_of(page) && memory.bytes() > 0;
        if !is_whole || address < addresses.start || end > addresses.end {
            let why = format!("{} bytes at {address:#x} cannot be mapped", memory.bytes());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.shared.memory.map(address, memory)
    }

    fn unmap(&self, address: u64, bytes: usize) {
        if !self.shared.memory.unmap(address, bytes) {
            self.shared.violation(format!("{bytes} bytes at {address:#x} are unmapped, and were not mapped"));
        }
    }

    fn vectors(&self) -> u16 {
        self.shared.config.vectors
    }

    fn watch(&self, vector: u16) -> io::Result<Arc<dyn Watch>> {
        if vector >= self.shared.config.vectors {
            let why = format!("{} has {} interrupts, not {vector}", self.name(), self.vectors());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut watches = lock(&self.shared.watches);
        let watch = watches.entry(vector).or_insert_with(|| Arc::new(InterruptWatch::new(&self.shared, vector)));
        Ok(Arc::clone(watch) as _)
    }

    fn reset(&self) -> io::Result<()> {
        let shared = &self.shared;
        {
            let plan = &mut lock(&shared.plan).plan;
            if shared.is_removed() || plan.reset_fails {
                return Err(io::Error::other(format!("{} cannot be reset", shared.config.name)));
            }
            if plan.not_ready == NotReady::UntilReset {
                plan.not_ready = NotReady::No;
            }
        }
        registers::clear(shared);
        Ok(())
    }

    fn stop(&self) {
        self.shared.memory.stop();
    }

    fn settle(&self) {
        self.shared.env.executor.yield_point();
        if !self.shared.is_halted() {
            self.shared.settle();
        }
    }
}
