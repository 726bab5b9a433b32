//! Counts of the host's use of a controller.

use super::NvmeCommand;
use situ_base::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The host's use of a controller so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NvmeCounts {
    /// Commands that the controller has fetched, by kind.
    pub commands: BTreeMap<NvmeCommand, u64>,
    /// Completions that the controller has posted.
    pub completions: u64,
    /// Writes to doorbell registers.
    pub doorbells: u64,
    /// Reads of registers.
    pub register_reads: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Bytes that the controller has read from the host's memory, rings included.
    pub dma_read_bytes: u64,
    /// Bytes that the controller has written to the host's memory, rings included.
    pub dma_written_bytes: u64,
    /// Bytes that are mapped at the moment.
    pub mapped_bytes: u64,
}

impl NvmeCounts {
    /// Returns how many commands of this kind there were.
    pub fn of(&self, command: NvmeCommand) -> u64 {
        self.commands.get(&command).copied().unwrap_or(0)
    }
}

#[derive(Default)]
pub(super) struct Counters {
    commands: Mutex<BTreeMap<NvmeCommand, u64>>,
    pub(super) completions: AtomicU64,
    pub(super) doorbells: AtomicU64,
    pub(super) register_reads: AtomicU64,
    pub(super) interrupts: AtomicU64,
}

impl Counters {
    pub(super) fn command(&self, command: NvmeCommand) {
        *lock(&self.commands).entry(command).or_default() += 1;
    }

    /// Returns the counts, but for those of memory.
    pub(super) fn counts(&self) -> NvmeCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NvmeCounts {
            commands: lock(&self.commands).clone(),
            completions: load(&self.completions),
            doorbells: load(&self.doorbells),
            register_reads: load(&self.register_reads),
            interrupts: load(&self.interrupts),
            ..NvmeCounts::default()
        }
    }
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
