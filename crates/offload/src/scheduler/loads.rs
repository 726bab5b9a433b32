//! How busy units are.

use crate::scheduler::Scheduler;
use crate::unit::Load;

impl Scheduler {
    /// How busy each unit is, the reference unit first.
    pub fn loads(&self) -> Vec<Load> {
        self.units.iter().map(|unit| unit.load()).collect()
    }
}
