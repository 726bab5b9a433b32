//! The loads of units.

use crate::scheduler::Scheduler;
use crate::unit::Load;

impl Scheduler {
    /// Returns the load of each unit, the reference unit first.
    pub fn loads(&self) -> Vec<Load> {
        self.units.iter().map(|unit| unit.load()).collect()
    }
}
