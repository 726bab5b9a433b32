//! Promotion at work: rounds of the rules in `promotion/rules.rs`.
//!
//! The flusher looks at all tables' heat and notes which are to be copied. A compaction thread that finds nothing else
//! to do copies them, one at a time. A table that does not fit any more when its turn comes is left out: the next round
//! chooses again.

use crate::base::sync::lock;
use crate::placement::promotion::rules::{Candidate, EVERY_S, FreeRoom, Move, choose};
use crate::placement::run::Placement;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::TableFile;
use situ_disks::{CAPACITY, FAST};
use situ_storage::Volume;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A table to copy.
pub(crate) struct Wanted {
    pub(crate) keyspace: Arc<KeyspaceCore>,
    pub(crate) level: usize,
    pub(crate) file: Arc<TableFile>,
    pub(crate) disk: u32,
}

/// The tables to copy, and the time of their choice.
pub(crate) struct Promoting {
    looked_at: Duration,
    pub(crate) wanted: VecDeque<Wanted>,
    /// A thread is at it.
    pub(crate) runs: bool,
}

impl Promoting {
    /// Starts with nothing chosen. Reads count from `now` on.
    pub(crate) fn new(now: Duration) -> Promoting {
        Promoting { looked_at: now, wanted: VecDeque::new(), runs: false }
    }
}

impl Placement {
    /// Chooses tables to copy, if it is time. Called by the flusher after each sample.
    pub(crate) fn choose_promotions(&self) {
        let now = self.env.clock.now();
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
            let (keyspace, level, file) = &places[at];
            Wanted { keyspace: Arc::clone(keyspace), level: *level, file: Arc::clone(file), disk }
        });
        lock(&self.promoting).wanted = wanted.collect();
        self.work.notify();
    }
}

impl Placement {
    /// Returns the free room on the fast disk, without the part that is kept for the log.
    pub(crate) fn room(&self) -> FreeRoom {
        FreeRoom { total: self.fast.volume.space().logical_total, free: self.free_bytes() }
    }
}

/// Gives new tables the heat of the old ones that they replace. Each old table gives an equal part of its own heat to
/// those new ones whose keys meet its keys.
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
