//! What units are told of measures, and what they tell of their decisions.

use super::Scheduler;
use crate::decide::{DecisionReport, Pipelines};

impl Scheduler {
    /// Gives a metric message to each unit, for its own decisions. Does not block.
    pub fn tell_measures(&self, message: &[u8]) {
        self.units.iter().for_each(|unit| unit.measured(message));
    }

    /// What the decisions of each unit came to, by the unit's name, of those that decide; the reference unit first.
    pub fn decisions(&self) -> Vec<(String, DecisionReport)> {
        let report = |unit: &std::sync::Arc<dyn crate::Unit>| Some((unit.name().to_owned(), unit.decisions()?));
        self.units.iter().filter_map(report).collect()
    }

    /// The counts of pipelined runs, of the units that have any. The same for the scheduler's life: a caller may keep them.
    pub fn pipelines(&self) -> Vec<Pipelines> {
        self.units.iter().filter_map(|unit| unit.pipelines()).collect()
    }
}
