//! Promotion at work: copies the tables that `placement/promotion/run.rs` has chosen.
//!
//! A compaction thread that finds nothing else to do copies one table at a time. A table that does not fit any more
//! when its turn comes is left out: the next round chooses again.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::placement::promotion::rules::is_hot;
use crate::placement::promotion::run::Wanted;
use crate::placement::run::Placement;
use crate::work::Work;
use crate::work::picker::Job;
use crate::work::relocate::NotCopied;
use crate::{Error, Result};
use situ_disks::FAST;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Work {
    /// Copies a table that was chosen; false if there is none, or another thread is at it.
    pub(crate) fn promote_one(self: &Arc<Self>) -> Result<bool> {
        let Some(placement) = &self.placement else { return Ok(false) };
        let wanted = {
            let mut promoting = lock(&placement.promoting);
            if promoting.runs {
                return Ok(false);
            }
            let wanted = promoting.wanted.pop_front();
            promoting.runs = wanted.is_some();
            wanted
        };
        let Some(wanted) = wanted else { return Ok(false) };
        let copied = self.promote(placement, &wanted);
        lock(&placement.promoting).runs = false;
        match copied {
            // It was no duty: the table stays where it is, and a later round may choose it again.
            Err(NotCopied { error: Error::Storage(error), in_writing })
                if self.health.failure().is_none() && !self.health.is_closing() =>
            {
                match wanted.disk {
                    FAST if in_writing => placement.note_fast_failure(wanted.level, &error),
                    FAST => self.health.note_job_failure("copy table to the fast disk", error.into()),
                    _ => self.health.note_job_failure("send table home", error.into()),
                }
                Ok(true)
            }
            copied => copied.map(|()| true).map_err(|not| not.error),
        }
    }

    fn promote(self: &Arc<Self>, placement: &Placement, wanted: &Wanted) -> Result<(), NotCopied> {
        let Wanted { keyspace, level, file, disk } = wanted;
        if placement.is_draining() || (*disk == FAST && !placement.room().takes(file.meta.bytes)) {
            return Ok(());
        }
        let reads = file.heat.per_s();
        let reason = format!("{reads:.1} reads a second of {} bytes", file.meta.bytes);
        if !self.relocate(keyspace, *level, file, *disk, &reason)? {
            return Ok(());
        }
        let counter = if *disk == FAST { &placement.tables_promoted } else { &placement.tables_demoted };
        counter.fetch_add(1, Ordering::Relaxed);
        self.health.tell(|| StoreEvent::TableRelocated {
            keyspace: keyspace.name.clone(),
            table: file.meta.number,
            level: *level,
            to_fast_disk: *disk == FAST,
            reason,
        });
        Ok(())
    }

    /// Returns true if the outputs of a job belong on the fast disk because its inputs are read often.
    pub(crate) fn is_hot_job(&self, job: &Job) -> bool {
        let Some(placement) = &self.placement else { return false };
        let bytes: u64 = job.files().map(|(_, file)| file.meta.bytes).sum();
        let reads: f64 = job.files().map(|(_, file)| file.heat.per_s()).sum();
        // Those that lie there make place for the outputs, but only afterwards: what there is no room for until then
        // goes home, table by table.
        let on_fast = job.files().filter(|(_, file)| file.meta.volume == FAST).map(|(_, file)| file.meta.bytes).sum();
        let fits = placement.room().takes_more(bytes.saturating_sub(on_fast));
        !placement.is_draining() && placement.pointer() > 0 && is_hot(reads, bytes) && fits
    }
}

#[cfg(test)]
mod tests;
