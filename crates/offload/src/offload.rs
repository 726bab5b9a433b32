//! Units for the compactions of a store.

use crate::cpu::CpuUnit;
use crate::policy::Policy;
use crate::scheduler::{Patience, Scheduler, UnitEvent};
use crate::unit::Unit;
use situ_base::Env;
use situ_compaction::{Compactor, CompactorParts, MakeCompactor};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Is called with what happens to units.
type Listener = Arc<dyn Fn(&UnitEvent) + Send + Sync>;

/// Makes a unit of a store with this environment.
type MakeUnit = Arc<dyn Fn(&Env) -> Arc<dyn Unit> + Send + Sync>;

/// Makes the compactor of a store: this machine's processors, and other units. It is a [`Scheduler`], which reports
/// what the units do.
///
/// What a unit refuses, loses or gets wrong, the processors do. A unit belongs to one store, which closes the unit.
///
/// # Example
/// ```
/// use situ_offload::{Offload, Policy};
///
/// let offload = Offload::new().policy(Policy::named("pcp").unwrap());
/// // For the builder of a store:
/// assert_eq!(situ_compaction::MakeCompactor::name(&offload), "pcp");
/// ```
#[derive(Clone, Default)]
pub struct Offload {
    units: Vec<Arc<dyn Unit>>,
    unit_makers: Vec<MakeUnit>,
    policy: Policy,
    patience: Patience,
    check_every: Option<u32>,
    listener: Option<Listener>,
}

impl Offload {
    /// Begins with no unit but the processors, and the default policy.
    pub fn new() -> Offload {
        Offload::default()
    }

    /// Adds a unit: an accelerator, another process, a drive that computes.
    #[must_use]
    pub fn unit(mut self, unit: Arc<dyn Unit>) -> Offload {
        self.units.push(unit);
        self
    }

    /// Adds a unit that is made for each store: one accelerator may help several stores, one after the other.
    #[must_use]
    pub fn unit_of_each_store(mut self, make: impl Fn(&Env) -> Arc<dyn Unit> + Send + Sync + 'static) -> Offload {
        self.unit_makers.push(Arc::new(make));
        self
    }

    /// Sets the policy: how jobs are divided, and how each side runs its part. The default measures what is fastest,
    /// and without units leaves all to the processors.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Offload {
        self.policy = policy;
        self
    }

    /// Sets how long to wait for units that fail, and how often to try them. Longer where a unit is slow.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Offload {
        self.patience = patience;
        self
    }

    /// Has one of `tasks` tasks run on two units, and compares their files bit by bit; 1 for every task. Without it,
    /// only a unit that is out of service proves itself on such tasks.
    #[must_use]
    pub fn check_every(mut self, tasks: u32) -> Offload {
        self.check_every = Some(tasks);
        self
    }

    /// Calls `listener` with what happens to units, with no lock held. The listener must not wait for a compaction.
    #[must_use]
    pub fn listener(mut self, listener: impl Fn(&UnitEvent) + Send + Sync + 'static) -> Offload {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Returns the policy.
    pub fn policy_in_force(&self) -> &Policy {
        &self.policy
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: Vec<&str> = self.units.iter().map(|unit| unit.name()).collect();
        f.debug_struct("Offload").field("units", &units).field("policy", &self.policy.name()).finish_non_exhaustive()
    }
}

impl MakeCompactor for Offload {
    fn name(&self) -> String {
        let checked = self.check_every.map_or_else(String::new, |every| format!(", checked every {every}"));
        format!("{}{checked}", self.policy.name())
    }

    fn make(&self, parts: CompactorParts) -> Arc<dyn Compactor> {
        let CompactorParts { env, event, threads } = parts;
        let cpu = Arc::new(CpuUnit::new(env.clone(), threads));
        let mut units = self.units.clone();
        units.extend(self.unit_makers.iter().map(|make| make(&env)));
        let scheduler = Scheduler::new(env, event, cpu, units, self.patience);
        let scheduler = scheduler.policy(self.policy.clone()).check_every(self.check_every);
        let scheduler = match self.listener.clone() {
            // A panic of the program's must not end a thread of the store.
            Some(listener) => scheduler.listener(move |event| {
                let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
            }),
            None => scheduler,
        };
        Arc::new(scheduler)
    }
}
