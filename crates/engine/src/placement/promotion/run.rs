//! Promotion at work: rounds of the rules in `promotion/rules.rs`.
//!
//! The flusher looks at all tables' heat and notes which are to be copied; a compaction thread that finds nothing else to do
//! copies them, one at a time. What does not fit any more when its turn comes is left out: the next round chooses anew.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::core::Core;
use crate::disks::set::{CAPACITY, FAST};
use crate::placement::promotion::rules::{Candidate, EVERY_S, Move, Room, choose, is_hot};
use crate::placement::run::Placing;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::TableFile;
use crate::work::picker::Job;
use crate::work::relocate::NotCopied;
use crate::{Error, Result};
use situ_storage::Volume;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A table to copy.
pub(crate) struct Wanted {
    keyspace: Arc<KeyspaceCore>,
    level: usize,
    file: Arc<TableFile>,
    disk: u32,
}

/// What is to be copied, and when it was chosen.
#[derive(Default)]
pub(crate) struct Promoting {
    looked_at: Duration,
    wanted: VecDeque<Wanted>,
    /// A thread is at it.
    runs: bool,
}

impl Core {
    /// Chooses tables to copy, if it is time. Called by the flusher after each sample.
    pub(crate) fn choose_promotions(&self, placing: &Placing) {
        let now = self.env.clock.now();
        let elapsed = {
            let mut promoting = lock(&placing.promoting);
            let elapsed = now.saturating_sub(promoting.looked_at);
            if elapsed < Duration::from_secs(EVERY_S) {
                return;
            }
            promoting.looked_at = now;
            elapsed
        };
        let pointer = placing.pointer();
        let (mut candidates, mut places) = (Vec::new(), Vec::new());
        for keyspace in self.versions.keyspaces() {
            let version = Arc::clone(&keyspace.view.load().version);
            for (level, file) in version.files() {
                file.heat.look(elapsed);
                candidates.push(Candidate {
                    bytes: file.meta.bytes,
                    reads_per_s: file.heat.per_s(),
                    on_fast: file.meta.volume == FAST,
                    belongs_on_fast: level < pointer,
                });
                places.push((Arc::clone(&keyspace), level, Arc::clone(file)));
            }
        }
        let takes_none = placing.is_draining() || pointer == 0 || placing.relieves_fast_disk();
        let moves = if takes_none { Vec::new() } else { choose(&candidates, placing.room()) };
        if moves.is_empty() {
            lock(&placing.promoting).wanted.clear();
            return;
        }
        let wanted = moves.into_iter().map(|step| {
            let (at, disk) = match step {
                Move::Up(at) => (at, FAST),
                Move::Down(at) => (at, CAPACITY),
            };
            let (keyspace, level, file) = &places[at];
            Wanted { keyspace: Arc::clone(keyspace), level: *level, file: Arc::clone(file), disk }
        });
        lock(&placing.promoting).wanted = wanted.collect();
        self.work.notify();
    }

    /// Copies a table that was chosen; false if there is none, or another thread is at it.
    pub(crate) fn promote_one(&self) -> Result<bool> {
        let Some(placing) = &self.placing else { return Ok(false) };
        let wanted = {
            let mut promoting = lock(&placing.promoting);
            if promoting.runs {
                return Ok(false);
            }
            let wanted = promoting.wanted.pop_front();
            promoting.runs = wanted.is_some();
            wanted
        };
        let Some(wanted) = wanted else { return Ok(false) };
        let copied = self.promote(placing, &wanted);
        lock(&placing.promoting).runs = false;
        match copied {
            // It was no duty: the table stays where it is, and a later round may choose it again.
            Err(NotCopied { error: Error::Storage(error), in_writing })
                if self.health.failure().is_none() && !self.health.is_closing() =>
            {
                match wanted.disk {
                    FAST if in_writing => self.note_fast_failure(wanted.level, &error),
                    FAST => self.health.note_job_failure("copy table to the fast disk", error.into()),
                    _ => self.health.note_job_failure("send table home", error.into()),
                }
                Ok(true)
            }
            copied => copied.map(|()| true).map_err(|not| not.error),
        }
    }

    fn promote(&self, placing: &Placing, wanted: &Wanted) -> Result<(), NotCopied> {
        let Wanted { keyspace, level, file, disk } = wanted;
        if placing.is_draining() || (*disk == FAST && !placing.room().takes(file.meta.bytes)) {
            return Ok(());
        }
        let reads = file.heat.per_s();
        let reason = format!("{reads:.1} reads a second of {} bytes", file.meta.bytes);
        if !self.relocate(keyspace, *level, file, *disk, &reason)? {
            return Ok(());
        }
        let counter = if *disk == FAST { &placing.tables_promoted } else { &placing.tables_demoted };
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

    /// Whether the outputs of a job belong on the fast disk for what is read of its inputs.
    pub(crate) fn is_hot_job(&self, job: &Job) -> bool {
        let Some(placing) = &self.placing else { return false };
        let bytes: u64 = job.files().map(|(_, file)| file.meta.bytes).sum();
        let reads: f64 = job.files().map(|(_, file)| file.heat.per_s()).sum();
        // Those that lie there make place for the outputs, but only afterwards: what there is no room for until then goes
        // home, table by table.
        let on_fast = job.files().filter(|(_, file)| file.meta.volume == FAST).map(|(_, file)| file.meta.bytes).sum();
        let fits = placing.room().takes_more(bytes.saturating_sub(on_fast));
        !placing.is_draining() && placing.pointer() > 0 && is_hot(reads, bytes) && fits
    }
}

impl Placing {
    /// Room on the fast disk, without what is kept for the log.
    pub(crate) fn room(&self) -> Room {
        Room { total: self.disks.fast.volume.space().logical_total, free: self.free_bytes() }
    }
}

/// Tables that take the place of others begin with the heat of those: each of these gives an equal part of its own to
/// those whose keys meet its keys.
pub(crate) fn inherit_heat<'a>(old: impl Iterator<Item = &'a Arc<TableFile>>, new: &[&Arc<TableFile>]) {
    let mut heat = vec![0.0; new.len()];
    for file in old.filter(|file| file.heat.per_s() > 0.0) {
        let span = &file.meta.span;
        let meets = |at: &usize| new[*at].meta.span.overlaps(&span.begin, &span.end);
        let heirs: Vec<usize> = (0..new.len()).filter(meets).collect();
        heirs.iter().for_each(|at| heat[*at] += file.heat.per_s() / heirs.len() as f64);
    }
    new.iter().zip(heat).for_each(|(file, heat)| file.heat.set_per_s(heat));
}

#[cfg(test)]
mod tests;
