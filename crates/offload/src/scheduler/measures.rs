//! The units' reports of their decisions.

use super::Scheduler;
use crate::decide::DecisionReport;

impl Scheduler {
    /// Returns what the decisions of each unit came to, by the unit's name, of those that decide; the reference unit
    /// first.
    pub fn decisions(&self) -> Vec<(String, DecisionReport)> {
        let report = |unit: &std::sync::Arc<dyn crate::Unit>| Some((unit.name().to_owned(), unit.decisions()?));
        self.units.iter().filter_map(report).collect()
    }
}
