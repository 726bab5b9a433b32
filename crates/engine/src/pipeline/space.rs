//! The space of an LSM store's disks: the needs of memtables, and the notification of the listener. The crate
//! `pipeline` watches and judges.
//!
//! A flush is never refused: what it writes is part of what the store needs.

use crate::base::batch::WriteBatch;
use crate::base::listener::StoreEvent;
use crate::base::places::HOME;
use crate::pipeline::places::Places;
use crate::versions::store::Versions;
use situ_base::Clock;
use situ_device::{Compresses, Space};
use situ_pipeline::{Needs, SpaceUse, WatchedDisk};
pub(crate) use situ_pipeline::{Promise, SpaceWatch};
pub use situ_pipeline::{SpaceChange, SpaceKind, SpaceLevel, SpaceProperties, SpaceShortage};
use situ_storage::Volume;
use situ_table::KeyKind;
use std::sync::Arc;

fn compresses(volume: &dyn Volume) -> bool {
    volume.nature().compresses == Compresses::Yes
}

/// Returns the disk that everything finds space on in the end, and the drives that compress.
fn disks_of(versions: &Arc<Versions>) -> Vec<WatchedDisk> {
    let volume = Arc::clone(&versions.volume);
    let home =
        WatchedDisk { location: volume.location(), kind: SpaceKind::Logical, ask: Box::new(move || volume.space()) };
    let volumes = &versions.source.volumes;
    let watched = volumes.numbers().into_iter().filter_map(|number| {
        let volume = volumes.numbered(number).filter(|volume| compresses(*volume))?;
        let asked = Arc::clone(volumes);
        // A volume that the store has released holds no writer back.
        let ask = move || asked.numbered(number).map_or_else(Space::default, Volume::space);
        Some(WatchedDisk { location: volume.location(), kind: SpaceKind::Physical, ask: Box::new(ask) })
    });
    watched.chain([home]).collect()
}

/// Returns the watch of a store that takes writes, or not.
pub(crate) fn watch(clock: Arc<dyn Clock>, versions: &Arc<Versions>, is_writable: bool) -> Arc<SpaceWatch> {
    let disks = if is_writable { disks_of(versions) } else { Vec::new() };
    let (held, health) = (Arc::clone(versions), Arc::clone(&versions.health));
    Arc::new(SpaceWatch::new(
        clock,
        disks,
        move || needs(&held),
        move |change| health.tell(|| StoreEvent::Space(change)),
    ))
}

/// Returns the bytes that memtables hold, and may hold. They go into tables sooner or later, and may be in the log
/// without being on the drive yet.
fn needs(versions: &Versions) -> Needs {
    let mut needs = Needs::default();
    for keyspace in versions.keyspaces() {
        let view = keyspace.view.load();
        let most = keyspace.options.memtable_bytes.saturating_mul(keyspace.options.memtables_max as u64);
        needs.now += view.slots().map(|slot| slot.bytes()).sum::<u64>();
        needs.at_most = needs.at_most.saturating_add(most.saturating_mul(2));
        needs.stored += view.version.levels.iter().map(|level| level.bytes).sum::<u64>();
        needs.stored += view.version.segments.files().iter().map(|file| file.written().record_bytes).sum::<u64>();
    }
    Needs { in_log: needs.now, elsewhere: space_elsewhere(versions), ..needs }
}

/// Returns the bytes of further volumes that count as space of the store, in addition to those of the home. A memtable
/// becomes one table, on one volume. So as much of the smaller space as a memtable takes may stay unused.
fn space_elsewhere(versions: &Versions) -> u64 {
    let volumes = &versions.source.volumes;
    let free = |number| volumes.numbered(number).map(|volume| volume.space());
    let at_home = free(HOME).and_then(|space| space.logical_free()).unwrap_or(0);
    let memtable = versions.keyspaces().iter().map(|keyspace| keyspace.options.memtable_bytes).max().unwrap_or(0);
    let further = volumes.numbers().into_iter().filter(|number| *number != HOME).filter_map(free);
    let counts = further.map(|space| {
        let free = space.logical_free().unwrap_or(0).saturating_sub(space.logical_total / SHARE_KEPT);
        free - free.min(at_home).min(memtable)
    });
    counts.sum()
}

/// This share of a further volume is for the log and for flushes.
const SHARE_KEPT: u64 = 4;
/// The longest batch that releases space.
const RELEASE_BYTES_MAX: usize = 4 << 10;

/// Returns the effect of a batch on space. Range deletions release space, and so do writes to keyspaces that [use the
/// reserve](crate::KeyspaceOptions::uses_reserve).
pub(crate) fn use_of(places: &Places, batch: &WriteBatch) -> SpaceUse {
    let uses_reserve = |id| places.keyspace(id).is_some_and(|keyspace| keyspace.options.uses_reserve);
    let of = |keyspace, kind| match kind {
        KeyKind::RangeDelete => SpaceUse::Release,
        _ if uses_reserve(keyspace) => SpaceUse::Release,
        KeyKind::Delete => SpaceUse::Deletion,
        _ => SpaceUse::Put,
    };
    let least = batch.iter().map(|operation| of(operation.keyspace, operation.kind)).min().unwrap_or(SpaceUse::Release);
    if batch.bytes() > RELEASE_BYTES_MAX { least.min(SpaceUse::Deletion) } else { least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_to_space_what_its_worst_operation_is() {
        let places = Places::new(1, std::iter::empty());
        let mut batch = WriteBatch::new();
        batch.delete_range("b", "c").unwrap();
        assert_eq!(use_of(&places, &batch), SpaceUse::Release);
        batch.delete("a").unwrap();
        assert_eq!(use_of(&places, &batch), SpaceUse::Deletion);
        batch.put("d", "").unwrap();
        assert_eq!(use_of(&places, &batch), SpaceUse::Put);
        let mut long = WriteBatch::new();
        long.delete_range("b", vec![b'c'; RELEASE_BYTES_MAX]).unwrap();
        assert_eq!(use_of(&places, &long), SpaceUse::Deletion);
    }
}
