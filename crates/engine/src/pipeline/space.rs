//! The space of an LSM store's disks: the needs of memtables, and the notification of the listener. The crate
//! `pipeline` watches and judges.
//!
//! A flush is never refused: what it writes is part of what the store needs.

use crate::base::batch::WriteBatch;
use crate::base::listener::StoreEvent;
use crate::pipeline::places::Places;
use crate::versions::store::Versions;
use situ_base::Clock;
use situ_device::{Compresses, Space};
use situ_disks::{Disks, Role};
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
    let Some(set) = &versions.source.disks else {
        let volume = Arc::clone(&versions.volume);
        let is_watched = compresses(&*volume);
        let kind = SpaceKind::Physical;
        let disk = || WatchedDisk { location: volume.location(), kind, ask: Box::new(move || volume.space()) };
        return is_watched.then(disk).into_iter().chain([home]).collect();
    };
    let disks = [Role::Capacity, Role::Fast].into_iter().filter_map(|role| set.with_role(role));
    let watched = disks.filter(|disk| compresses(&disk.volume)).map(|disk| {
        let asked = Arc::clone(disk);
        // A disk that the store has released holds no writer back.
        let ask = move || if asked.is_left() { Space::default() } else { asked.volume.space() };
        WatchedDisk { location: disk.volume.location(), kind: SpaceKind::Physical, ask: Box::new(ask) }
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
    let elsewhere = versions.source.disks.as_ref().map_or(0, |disks| space_elsewhere(versions, disks));
    Needs { in_log: needs.now, elsewhere, ..needs }
}

/// Returns the bytes of the fast disk that count as space of the store, in addition to those of the home. A memtable
/// becomes one table, on one disk. So as much of the smaller space as a memtable takes may stay unused.
fn space_elsewhere(versions: &Versions, disks: &Disks) -> u64 {
    let Some(fast) = disks.with_role(Role::Fast).filter(|disk| !disk.is_left()) else { return 0 };
    let space = fast.volume.space();
    let free = space.logical_free().unwrap_or(0).saturating_sub(space.logical_total / FAST_SHARE_KEPT);
    let at_home = disks.capacity().volume.space().logical_free().unwrap_or(0);
    let memtable = versions.keyspaces().iter().map(|keyspace| keyspace.options.memtable_bytes).max().unwrap_or(0);
    free - free.min(at_home).min(memtable)
}

/// This share of the fast disk is for the log and for flushes.
const FAST_SHARE_KEPT: u64 = 4;
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
