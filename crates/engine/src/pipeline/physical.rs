//! The physical space of an LSM store's disks: what memtables still need, and who is told. The crate `pipeline` watches and judges.
//!
//! A flush is never refused: what it writes is part of what the store needs.

use crate::base::batch::WriteBatch;
use crate::base::health::Health;
use crate::base::listener::StoreEvent;
use crate::versions::store::Versions;
use situ_device::{Clock, Compresses, Space};
use situ_disks::Role;
use situ_pipeline::{Needs, PhysicalChange, WatchedDisk};
pub use situ_pipeline::{PhysicalLevel, PhysicalSpaceProperties};
pub(crate) use situ_pipeline::{PhysicalSpace, Promise};
use situ_storage::Volume;
use situ_table::KeyKind;
use std::sync::Arc;

fn compresses(volume: &dyn Volume) -> bool {
    volume.nature().compresses == Compresses::Yes
}

/// The disks of a store that compress.
fn disks_of(versions: &Arc<Versions>) -> Vec<WatchedDisk> {
    let Some(set) = &versions.source.disks else {
        let volume = Arc::clone(&versions.volume);
        let is_watched = compresses(&*volume);
        let disk = || WatchedDisk { location: volume.location(), ask: Box::new(move || volume.space()) };
        return is_watched.then(disk).into_iter().collect();
    };
    let disks = [Role::Capacity, Role::Fast].into_iter().filter_map(|role| set.with_role(role));
    let watched = disks.filter(|disk| compresses(&disk.volume)).map(|disk| {
        let asked = Arc::clone(disk);
        // A disk that the store has let go of holds nobody back.
        let ask = move || if asked.is_left() { Space::default() } else { asked.volume.space() };
        WatchedDisk { location: disk.volume.location(), ask: Box::new(ask) }
    });
    watched.collect()
}

/// The watch of a store that takes writes, or not.
pub(crate) fn watch(clock: Arc<dyn Clock>, versions: &Arc<Versions>, is_writable: bool) -> Arc<PhysicalSpace> {
    let disks = if is_writable { disks_of(versions) } else { Vec::new() };
    let (held, health) = (Arc::clone(versions), Arc::clone(&versions.health));
    Arc::new(PhysicalSpace::new(clock, disks, move || memtables(&held), move |change| tell(&health, change)))
}

/// What memtables hold, and may hold. It goes into tables sooner or later, and may be in the log without being on the drive yet.
fn memtables(versions: &Versions) -> Needs {
    let keyspaces = versions.keyspaces();
    let sums = keyspaces.iter().map(|keyspace| {
        let held = keyspace.view.load().slots().map(|slot| slot.bytes()).sum::<u64>();
        (held, keyspace.options.memtable_bytes.saturating_mul(keyspace.options.memtables_max as u64))
    });
    let (held, most) = sums
        .fold((0, 0), |(held, most), (one, one_at_most): (u64, u64)| (held + one, one_at_most.saturating_add(most)));
    Needs { now: held.saturating_mul(2), at_most: most.saturating_mul(2) }
}

fn tell(health: &Health, change: PhysicalChange) {
    let PhysicalChange { location, free_bytes, total_bytes, before, after } = change;
    let takes_puts = |level| level < PhysicalLevel::DeletionsOnly;
    health.tell(|| match (takes_puts(before), takes_puts(after), after) {
        (_, false, _) => StoreEvent::PhysicalSpaceShort {
            location,
            free_bytes,
            total_bytes,
            takes_deletions: after == PhysicalLevel::DeletionsOnly,
        },
        (_, true, PhysicalLevel::Plenty) => StoreEvent::PhysicalSpaceRecovered { location, free_bytes, total_bytes },
        (refused, true, _) => {
            StoreEvent::PhysicalSpaceLow { location, free_bytes, total_bytes, takes_puts_again: !refused }
        }
    });
}

/// Whether a batch only deletes.
pub(crate) fn deletes_only(batch: &WriteBatch) -> bool {
    batch.iter().all(|operation| matches!(operation.kind, KeyKind::Delete | KeyKind::RangeDelete))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deletions_delete_only() {
        let mut batch = WriteBatch::new();
        batch.delete("a").unwrap();
        batch.delete_range("b", "c").unwrap();
        assert!(deletes_only(&batch));
        batch.put("d", "").unwrap();
        assert!(!deletes_only(&batch));
    }
}
