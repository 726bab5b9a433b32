//! The fate of an operation, on a volume or on a device: it is counted, the plan decides, and the power may fail.

use crate::Rng;
use crate::fault::{Fault, FaultPlan, FaultState, Operation};
use situ_storage::FileName;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The power of a simulated machine. Disks that share it crash at the same moment.
#[derive(Debug, Clone, Default)]
pub struct Power(Arc<AtomicBool>);

impl Power {
    pub(crate) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn fail(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The decision for an operation that goes on.
#[derive(Clone, Copy)]
pub(crate) struct Verdict {
    pub(crate) fault: Option<Fault>,
    /// The crash comes in the middle of this operation.
    pub(crate) crashes: bool,
}

/// The part of a disk that decides.
pub(crate) struct Fate {
    pub(crate) faults: FaultState,
    pub(crate) rng: Rng,
    pub(crate) operations: u64,
    pub(crate) changes: u64,
    pub(crate) crash_at: Option<u64>,
    /// Shared with the other disks of the machine.
    pub(crate) power: Power,
}

impl Fate {
    pub(crate) fn new(plan: FaultPlan, seed: u64) -> Fate {
        let (faults, rng) = (FaultState::new(plan), Rng::new(seed));
        Fate { faults, rng, operations: 0, changes: 0, crash_at: None, power: Power::default() }
    }

    /// Returns the fate of one operation, and how long it takes; `None` if the machine has crashed before.
    pub(crate) fn judge(
        &mut self,
        operation: Operation,
        file: Option<FileName>,
        place: &Range<u64>,
    ) -> Option<(Verdict, Duration)> {
        self.operations += 1;
        let change = self.changes;
        self.changes += u64::from(operation.is_change());
        if self.power.has_failed() {
            return None;
        }
        let crashes = operation.is_change() && self.crash_at.is_some_and(|at| change >= at);
        let (fault, delay) = self.faults.judge(operation, file, place, &mut self.rng);
        if crashes {
            self.power.fail();
            return Some((Verdict { fault: None, crashes }, Duration::ZERO));
        }
        Some((Verdict { fault, crashes }, delay))
    }
}
