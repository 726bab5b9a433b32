//! The limit of all memtables together.
//!
//! Each keyspace bounds its own memtables. That is no bound of a store with many keyspaces, so there is one for the
//! sum, too:
//!
//! 1. When active memtables take half of the limit, the largest is sealed, as if it were full, and its flush gives the
//!    memory back. The other half is for what is sealed.
//! 2. A write that would pass the limit waits for the flush. If nothing is sealed, the largest memtable is.
//!
//! A memtable of less than [`WORTH_A_FLUSH_BYTES`] is not sealed. The next one takes as much before its first entry,
//! and a table of a few entries costs more than it gives. So ten thousand keyspaces that are hardly written to may pass
//! the limit.
//!
//! **Cost.** Two loads for a write. All keyspaces are looked at for each memtable that is sealed. When none is worth
//! it, they are not looked at again before active memtables have grown by a part of the limit.
//!
//! **Threads.** All of this happens under the commit lock. What writes take that are under way comes on top.

use crate::base::batch::WriteBatch;
use crate::memtable::Meter;
use crate::pipeline::no_room::{Level0, NoRoom, Unsealed};
use crate::pipeline::places::Places;
use crate::pipeline::switch::MemtableSwitch;
use crate::versions::keyspace::KeyspaceCore;
use situ_pipeline::{Commit, Environment};
use std::sync::Arc;

/// Memory of the smallest memtable that is sealed for the sake of the sum.
pub(crate) const WORTH_A_FLUSH_BYTES: u64 = 64 << 10;

/// A part of the limit, by which active memtables grow between two vain looks at all of them.
const LOOK_EACH: u64 = 32;

/// Returns the memory of memtables that take writes.
fn active_bytes(meter: &Meter) -> u64 {
    meter.bytes().saturating_sub(meter.sealed_bytes())
}

/// Returns true if memtables have memory for a write of `bytes`.
fn has_memory(meter: &Meter, bytes: u64) -> bool {
    // With nothing sealed no flush gives memory back, and there is nothing to wait for.
    meter.bytes().saturating_add(bytes) <= meter.bytes_max() || meter.sealed_bytes() == 0
}

/// The memory of all memtables, and its limit.
pub(crate) struct MemtableBudget {
    pub(crate) meter: Arc<Meter>,
    pub(crate) switch: Arc<MemtableSwitch>,
}

impl MemtableBudget {
    /// Seals memtables so that all of them together stay within their limit.
    #[inline]
    pub(crate) fn find_memory(
        &self,
        commit: &mut Commit<impl Environment<Places = Places>>,
        batch: &WriteBatch,
    ) -> Result<(), Unsealed> {
        let (bytes, bytes_max) = (self.meter.bytes(), self.meter.bytes_max());
        // The rest is asked only if there is that much at all.
        if bytes.saturating_add(batch.bytes() as u64) <= bytes_max / 2 {
            return Ok(());
        }
        self.make_memory(commit, batch)
    }

    #[inline(never)]
    fn make_memory(
        &self,
        commit: &mut Commit<impl Environment<Places = Places>>,
        batch: &WriteBatch,
    ) -> Result<(), Unsealed> {
        let (meter, bytes) = (&*self.meter, batch.bytes() as u64);
        let bytes_max = meter.bytes_max();
        let is_full = meter.bytes().saturating_add(bytes) > bytes_max;
        if active_bytes(meter) > bytes_max / 2 || (is_full && meter.sealed_bytes() == 0) {
            match self.seal_largest(commit, bytes_max) {
                Ok(()) => {}
                // It may go on until the limit is reached.
                Err(Unsealed::NoRoom(NoRoom::MemtablesFull { .. } | NoRoom::Level0Full { .. })) if !is_full => {}
                Err(unsealed) => return Err(unsealed),
            }
        }
        if has_memory(meter, bytes) {
            return Ok(());
        }
        let keyspace = batch.keyspaces().find_map(|id| commit.places.keyspace(id).cloned());
        keyspace.map_or(Ok(()), |keyspace| Err(NoRoom::MemoryFull { keyspace }.into()))
    }

    /// Seals the largest active memtable that may be, if one is worth a flush.
    fn seal_largest(
        &self,
        commit: &mut Commit<impl Environment<Places = Places>>,
        bytes_max: u64,
    ) -> Result<(), Unsealed> {
        let (active, look_at) = (active_bytes(&self.meter), &mut commit.places.look_for_large_at_bytes);
        if active < *look_at {
            // What made the last look vain may be gone.
            *look_at = (*look_at).min(active + bytes_max / LOOK_EACH);
            return Ok(());
        }
        let fit = self.switch.memtables_that_fit();
        let mut largest: Option<((bool, u64), Arc<KeyspaceCore>)> = None;
        for keyspace in commit.places.keyspaces() {
            let view = keyspace.view.load();
            let bytes = view.active.memtable.allocated_bytes() as u64;
            if bytes < WORTH_A_FLUSH_BYTES || view.active.is_empty() {
                continue;
            }
            let may_be = keyspace.has_memtable(&view, keyspace.options.memtables_max.min(fit))
                && keyspace.has_level0(&view)
                && keyspace.doubtful_drop.load().is_none();
            if largest.as_ref().is_none_or(|(size, _)| *size < (may_be, bytes)) {
                largest = Some(((may_be, bytes), Arc::clone(keyspace)));
            }
        }
        let Some((_, keyspace)) = largest else {
            commit.places.look_for_large_at_bytes = active + bytes_max / LOOK_EACH;
            return Ok(());
        };
        commit.places.look_for_large_at_bytes = 0;
        self.switch.seal(commit, &keyspace, Level0::Heeded)?;
        // The next one is due long before this log file is full.
        self.switch.log_files.want_next();
        Ok(())
    }

    /// Returns true if memtables together are not what keeps writers waiting.
    pub(crate) fn has_memory(&self) -> bool {
        has_memory(&self.meter, 0)
    }
}
