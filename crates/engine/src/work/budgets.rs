//! Budgets: the measured debt sets the pace of writers and of compactions.

use crate::pipeline::stall::Debt;
use crate::pipeline::{Memory, Pipeline};
use crate::work::pacer::Pacer;
use crate::work::picker::Picker;
use crate::work::throttle::CompactionThrottle;
use std::sync::Arc;

/// Number of ordinary log files up to which the log never slows writers, however low its limit is.
const LOG_FILES_MIN: u64 = 4;
/// Bytes above the levels' targets that are tolerated.
const PENDING_BYTES_TOLERATED: f64 = (128u64 << 30) as f64;

/// See the module's documentation.
pub(crate) struct Budgets {
    pub(crate) memory: Arc<Memory>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) log_bytes_max: u64,
    pub(crate) pacer: Arc<Pacer>,
    /// The number of threads that compactions may use while writers wait for the log.
    pub(crate) throttle: Arc<CompactionThrottle>,
}

impl Budgets {
    /// Measures the debt and sets the writers' and the compactions' budgets accordingly.
    pub(crate) fn update(&self) {
        let (mut debt, mut all_memory, mut sealed_memory) = (Debt::default(), 0, 0);
        let fit = self.memory.switch.memtables_that_fit();
        for keyspace in self.memory.versions.keyspaces() {
            let view = keyspace.view.load();
            let options = &keyspace.options;
            let memory: u64 = view.slots().map(|slot| slot.bytes()).sum();
            let tolerated = options.memtable_bytes as f64 * options.memtables_max.min(fit) as f64;
            let picker = Picker::new(&view.version, options, &[], 0);
            let tables = view.version.levels[0].files.len() as f64 / options.level0_tables_max as f64;
            let pending = picker.pending_bytes() as f64 / PENDING_BYTES_TOLERATED;
            debt.note_memory(memory, tolerated as u64);
            all_memory += memory;
            sealed_memory += memory - view.active.bytes().min(memory);
            debt.tables = debt.tables.max(tables).max(pending);
        }
        // Half of the limit is for sealed memtables (`total.rs`).
        debt.note_memory(sealed_memory, self.memory.budget.meter.bytes_max() / 2);
        if let Some((area, log)) = self.memory.log().and_then(|log| Some((self.memory.log_files.area_bytes(log)?, log)))
        {
            debt.note_log(all_memory, log.held_bytes(), area);
        } else if let Some(log) = self.memory.log() {
            // Debts slow writers from half of the tolerated amount on, so twice the limit slows them from the limit on.
            let limit = self.log_bytes_max.max(LOG_FILES_MIN * log.file_bytes_for(0));
            debt.note_log(all_memory, log.held_bytes(), limit.saturating_mul(2));
        }
        self.memory.note_room();
        self.memory.set_debt(self.pipeline.budget(), &debt);
        self.pacer.set_debt(debt.tables);
        self.throttle.set_debt(debt.tables.max(debt.memory - 0.5));
    }
}
