//! The disk after a crash: one of the many states that the contract of `situ_storage` allows.
//!
//! # Algorithm
//!
//! 1. Draw a mood for the whole crash: lose everything that may be lost, keep everything, or decide piece by piece.
//!    The two extremes are what real disks do most of the time, and a mixture alone would almost never show them.
//! 2. Names: go through the pending changes in order; keep each or not, but none that rests on one not kept.
//! 3. Files: choose a length between the durable and the current one (or a little more: the rest of the page). Fill
//!    never written bytes with zeros or garbage. Then put into each dirty sector one of the states it went through.
//! 4. Everything that is left is durable: the new world begins with it.
//!
//! **Invariants.** Durable bytes outside dirty sectors, durable names and durable lengths are always there.

use crate::Rng;
use crate::disk::{Dirty, Disk, Inode, SECTOR_BYTES, put_sector, sector_of};
use situ_storage::PAGE_BYTES;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Mood {
    LoseAll,
    KeepAll,
    /// Each piece survives with this probability.
    Mixed(f64),
}

impl Mood {
    fn draw(rng: &mut Rng) -> Mood {
        match rng.below(6) {
            0 => Mood::LoseAll,
            1 => Mood::KeepAll,
            2 => Mood::Mixed(0.1),
            3 => Mood::Mixed(0.9),
            _ => Mood::Mixed(0.5),
        }
    }

    fn keeps(self, rng: &mut Rng) -> bool {
        match self {
            Mood::LoseAll => false,
            Mood::KeepAll => true,
            Mood::Mixed(p) => rng.chance(p),
        }
    }
}

/// Returns one legal image of the disk after a power failure.
pub(crate) fn power_failure(disk: &Disk, rng: &mut Rng, tear_sectors: bool) -> Disk {
    let mut image = disk.clone();
    let mood = Mood::draw(rng);
    let mut lost = BTreeSet::new();
    for change in std::mem::take(&mut image.pending_names) {
        if Disk::can_keep(&change, &lost) && mood.keeps(rng) {
            image.apply_durably(change.kind);
        } else {
            change.kind.add_names(&mut lost);
        }
    }
    image.names = image.durable_names.clone();
    image.locked = false;
    for inode in image.inodes.values_mut() {
        // Another mood per file: a disk may have written all of the log and nothing of the manifest.
        let mood = if rng.chance(0.5) { mood } else { Mood::draw(rng) };
        *inode = inode.after_crash(settled(inode, mood, rng, tear_sectors, 1));
    }
    image.collect();
    image
}

/// Returns one legal image of a device after a power failure. Aligned runs of `atomic_sectors` that were written
/// together are never torn.
pub(crate) fn device_power_failure(blocks: &Inode, rng: &mut Rng, tear_sectors: bool, atomic_sectors: u64) -> Inode {
    let mood = Mood::draw(rng);
    blocks.after_crash(settled(blocks, mood, rng, tear_sectors && atomic_sectors <= 1, atomic_sectors.max(1)))
}

/// Returns the image after the death of the process alone: the system keeps all that it was given, durable or not.
pub(crate) fn process_death(disk: &Disk) -> Disk {
    let mut image = disk.clone();
    image.locked = false;
    image.inodes.values_mut().for_each(|inode| inode.handles = 0);
    image.collect();
    image
}

fn settled(inode: &Inode, mood: Mood, rng: &mut Rng, tear_sectors: bool, atomic_sectors: u64) -> Arc<Vec<u8>> {
    let mut bytes = Arc::clone(&inode.durable);
    let length = length_after(inode, mood, rng);
    if length > bytes.len() {
        let start = bytes.len();
        let bytes = Arc::make_mut(&mut bytes);
        bytes.resize(length, 0);
        if rng.chance(0.3) {
            rng.fill(&mut bytes[start..]);
        }
    }
    let mut before: Option<(Written, Option<usize>)> = None;
    for (number, dirty) in &inode.dirty {
        let written = Written::of(*number, dirty, atomic_sectors);
        let choice = match before {
            Some((other, choice)) if atomic_sectors > 1 && other == written => choice,
            _ => mood.keeps(rng).then(|| choose(dirty, mood, rng)),
        };
        before = Some((written, choice));
        let Some(choice) = choice else { continue };
        let kept = state(inode, *number, dirty, choice);
        if tear_sectors && rng.chance(0.2) {
            let mut torn = sector_of(&bytes, *number);
            let at = rng.index(SECTOR_BYTES);
            torn[..at].copy_from_slice(&kept[..at]);
            put_sector(Arc::make_mut(&mut bytes).as_mut_slice(), *number, &torn);
        } else {
            put_sector(Arc::make_mut(&mut bytes).as_mut_slice(), *number, &kept);
        }
    }
    bytes
}

/// Sectors of one atomic unit that went through the same writes share their fate.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Written {
    unit: u64,
    states: usize,
    latest: u64,
}

impl Written {
    fn of(sector: u64, dirty: &Dirty, atomic_sectors: u64) -> Written {
        Written { unit: sector / atomic_sectors, states: dirty.older.len(), latest: dirty.latest_from }
    }
}

/// Chooses one of the states that a sector went through: the last one, if all is kept.
fn choose(dirty: &Dirty, mood: Mood, rng: &mut Rng) -> usize {
    match mood {
        Mood::KeepAll => dirty.older.len(),
        _ => rng.index(dirty.older.len() + 1),
    }
}

fn state(inode: &Inode, number: u64, dirty: &Dirty, choice: usize) -> [u8; SECTOR_BYTES] {
    dirty.older.get(choice).map_or_else(|| sector_of(&inode.contents, number), |state| *state.bytes)
}

fn length_after(inode: &Inode, mood: Mood, rng: &mut Rng) -> usize {
    let (durable, current) = (inode.durable.len(), inode.contents.len());
    if current <= durable {
        return durable;
    }
    match (mood, rng.below(4)) {
        (Mood::LoseAll, _) => durable,
        (Mood::KeepAll, _) | (_, 0) => current,
        (_, 1) => durable,
        (_, 2) => durable + rng.index(current - durable + 1),
        // A file system that allocates whole pages may show the rest of the last one.
        _ => current.next_multiple_of(PAGE_BYTES),
    }
}
