//! Promotion at work: rounds of the rules in `promotion_rules.rs`.
//!
//! A tick looks at all tables' heat and notes which are to be copied. A thread that finds nothing else to do copies
//! them, one at a time. A table that does not fit any more when its turn comes is left out: the next round chooses
//! again.

use crate::placement::{Placement, THE_CAPACITY_DISK, THE_FAST_DISK};
use crate::promoting::Wanted;
use crate::promotion_rules::{Candidate, EVERY_S, FreeRoom, Move, choose};
use crate::set::{CAPACITY, FAST};
use situ_base::lock;
use situ_engine::StoreEvent;
use situ_engine::places::{NotMoved, PlacedTable, Places};
use situ_engine::{Error, Result};
use situ_storage::Volume;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Placement {
    /// Chooses tables to copy, if it is time. Called after each sample.
    pub(crate) fn choose_promotions(&self) {
        let now = self.store.env().clock.now();
        let elapsed = {
            let mut promoting = lock(&self.promoting);
            let elapsed = now.saturating_sub(promoting.looked_at);
            if elapsed < Duration::from_secs(EVERY_S) {
                return;
            }
            promoting.looked_at = now;
            elapsed
        };
        let pointer = self.pointer();
        self.store.look_at_reads(elapsed);
        let tables = self.store.tables();
        let candidate = |table: &PlacedTable| Candidate {
            bytes: table.bytes,
            reads_per_s: table.reads_per_s,
            on_fast: table.volume == FAST,
            belongs_on_fast: table.level < pointer,
        };
        let candidates: Vec<Candidate> = tables.iter().map(candidate).collect();
        let takes_none = self.is_draining() || pointer == 0 || self.relieves_fast_disk();
        let moves = if takes_none { Vec::new() } else { choose(&candidates, self.room()) };
        if moves.is_empty() {
            lock(&self.promoting).wanted.clear();
            return;
        }
        let wanted = moves.into_iter().map(|step| {
            let (at, disk) = match step {
                Move::Up(at) => (at, FAST),
                Move::Down(at) => (at, CAPACITY),
            };
            Wanted { table: tables[at], disk }
        });
        lock(&self.promoting).wanted = wanted.collect();
        self.store.bell().notify();
    }
}

impl Placement {
    /// Returns the free room on the fast disk, without the part that is kept for the log.
    pub(crate) fn room(&self) -> FreeRoom {
        FreeRoom { total: self.fast.volume.space().logical_total, free: self.free_bytes() }
    }

    /// Copies a table that was chosen; false if there is none, or another thread is at it.
    pub(crate) fn promote_one(&self) -> Result<bool> {
        let wanted = {
            let mut promoting = lock(&self.promoting);
            if promoting.runs {
                return Ok(false);
            }
            let wanted = promoting.wanted.pop_front();
            promoting.runs = wanted.is_some();
            wanted
        };
        let Some(wanted) = wanted else { return Ok(false) };
        let copied = self.promote(&wanted);
        lock(&self.promoting).runs = false;
        match copied {
            // It was no duty: the table stays where it is, and a later round may choose it again.
            Err(NotMoved { error: Error::Storage(error), in_writing }) if self.store.check_sound().is_ok() => {
                match wanted.disk {
                    FAST if in_writing => self.refused(FAST, wanted.table.level, &error),
                    FAST => self.store.note_job_failure("copy table to the fast disk", error.into()),
                    _ => self.store.note_job_failure("send table home", error.into()),
                }
                Ok(true)
            }
            copied => copied.map(|()| true).map_err(|not| not.error),
        }
    }

    fn promote(&self, wanted: &Wanted) -> Result<(), NotMoved> {
        let Wanted { table, disk } = wanted;
        if self.is_draining() || (*disk == FAST && !self.room().takes(table.bytes)) {
            return Ok(());
        }
        let reason = format!("{:.1} reads a second of {} bytes", table.reads_per_s, table.bytes);
        if !self.store.move_table(table, *disk, &reason)? {
            return Ok(());
        }
        let counter = if *disk == FAST { &self.tables_promoted } else { &self.tables_demoted };
        counter.fetch_add(1, Ordering::Relaxed);
        self.store.tell(StoreEvent::TableRelocated {
            keyspace: self.store.keyspace_name(table.keyspace),
            table: table.number,
            level: table.level,
            to: if *disk == FAST { THE_FAST_DISK } else { THE_CAPACITY_DISK }.to_owned(),
            reason,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
