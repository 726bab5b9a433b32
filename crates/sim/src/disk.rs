//! The contents of a simulated disk: the bytes that reads see, the bytes that would survive a crash, and everything in
//! between.
//!
//! # Model
//!
//! A file has its current `contents`, its `durable` bytes, and for every 512-byte sector in which the two may differ a
//! [`Dirty`] record. The record has the states the sector went through since it was last made durable. A crash leaves
//! any one of them. The newest state is not copied, it is in `contents`. So writing a file front to back costs one map
//! entry per sector and no second copy. Images of a crash share bytes until one of them writes to the file.
//!
//! Names likewise: `names` is what lookups see, `durable_names` what survives, `pending_names` the changes between
//! the two in order. A change can become durable alone, but never before an earlier one that touches one of the same
//! names. A rename is atomic, and a new file cannot take a name that still belongs to another file.
//!
//! **Invariants.** Writes carry increasing numbers. [`Inode::commit`] up to number `w` leaves every sector durable in
//! the state that write `w` left behind, or a later one. A sector without a record is clean: a crash leaves its durable
//! bytes, even where `contents` differ (after a sync failed and dropped them).
//!
//! **Threads.** None: the volume keeps it under one lock, never across a yield point.

use crate::compression::{Compression, Costs};
use situ_storage::FileName;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// The unit that a crash leaves whole.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Older states of a sector that a crash can choose from; more are thinned out.
const OLDER_STATES_MAX: usize = 8;

/// A file, whatever its name.
#[derive(Clone, Default)]
pub(crate) struct Inode {
    /// The bytes that reads see.
    pub(crate) contents: Arc<Vec<u8>>,
    /// The bytes that are sure to survive.
    pub(crate) durable: Arc<Vec<u8>>,
    /// The dirty sectors, by number.
    pub(crate) dirty: BTreeMap<u64, Dirty>,
    /// Open handles.
    pub(crate) handles: u32,
    /// The costs, on a disk that compresses.
    pub(crate) costs: Option<Costs>,
}

/// The states of a sector since it was last durable.
#[derive(Clone)]
pub(crate) struct Dirty {
    /// The number of the first write whose outcome `contents` show here.
    pub(crate) latest_from: u64,
    /// The states before that, oldest first.
    pub(crate) older: Vec<SectorState>,
}

/// The state in which one write left a sector.
#[derive(Clone)]
pub(crate) struct SectorState {
    /// The number of the first write whose outcome this shows.
    pub(crate) from: u64,
    pub(crate) bytes: Box<[u8; SECTOR_BYTES]>,
}

/// Returns the sectors that a byte range touches.
pub(crate) fn sectors(offset: u64, bytes: usize) -> Range<u64> {
    let sector = SECTOR_BYTES as u64;
    offset / sector..(offset + bytes as u64).div_ceil(sector)
}

/// Returns a sector of `bytes`, zero behind the end.
pub(crate) fn sector_of(bytes: &[u8], number: u64) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    let start = (number as usize * SECTOR_BYTES).min(bytes.len());
    let end = (start + SECTOR_BYTES).min(bytes.len());
    sector[..end - start].copy_from_slice(&bytes[start..end]);
    sector
}

/// Puts a sector into `bytes`, cut off at their end.
pub(crate) fn put_sector(bytes: &mut [u8], number: u64, sector: &[u8]) {
    let start = (number as usize * SECTOR_BYTES).min(bytes.len());
    let end = (start + SECTOR_BYTES).min(bytes.len());
    bytes[start..end].copy_from_slice(&sector[..end - start]);
}

/// Makes a sector durable in the state that write `number` left behind; true if that is the state that reads see.
fn settle(contents: &[u8], durable: &mut [u8], number: u64, sector: u64, states: &mut Dirty) -> bool {
    if states.latest_from <= number {
        put_sector(durable, sector, &sector_of(contents, sector));
        return true;
    }
    let reached = states.older.iter().rposition(|state| state.from <= number);
    if let Some(last) = states.older.drain(..reached.map_or(0, |r| r + 1)).next_back() {
        put_sector(durable, sector, &last.bytes[..]);
    }
    false
}

impl Inode {
    /// Returns a file all of whose bytes are durable.
    pub(crate) fn durable(contents: impl Into<Arc<Vec<u8>>>) -> Inode {
        let contents = contents.into();
        Inode { durable: Arc::clone(&contents), contents, ..Inode::default() }
    }

    /// Writes without durability.
    pub(crate) fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) {
        for sector in sectors(offset, bytes.len()) {
            match self.dirty.get_mut(&sector) {
                None => {
                    self.dirty.insert(sector, Dirty { latest_from: number, older: Vec::new() });
                }
                Some(dirty) => {
                    let bytes = Box::new(sector_of(&self.contents, sector));
                    dirty.older.push(SectorState { from: dirty.latest_from, bytes });
                    dirty.latest_from = number;
                    if dirty.older.len() > OLDER_STATES_MAX {
                        // The next state stands for the dropped one too: durable then means "at least as new".
                        let dropped = dirty.older.remove(OLDER_STATES_MAX / 2);
                        dirty.older[OLDER_STATES_MAX / 2].from = dropped.from;
                    }
                }
            }
        }
        let start = offset as usize;
        let end = start + bytes.len();
        let contents = Arc::make_mut(&mut self.contents);
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[start..end].copy_from_slice(bytes);
        if let Some(costs) = &mut self.costs {
            costs.update(&self.contents, start..end);
        }
    }

    /// Returns the file after a crash that left these bytes of it.
    pub(crate) fn after_crash(&self, contents: Arc<Vec<u8>>) -> Inode {
        let costs = self.costs.as_ref().map(|costs| costs.after_crash(&self.contents, &contents));
        Inode { costs, ..Inode::durable(contents) }
    }

    /// Returns the number of these bytes that fit into the physical space at this place, with `left` bytes left, on a
    /// disk that compresses.
    pub(crate) fn fitting(&self, offset: u64, bytes: &[u8], left: u64) -> usize {
        let fitting = |costs: &Costs| costs.fitting(&self.contents, offset as usize, bytes, left);
        self.costs.as_ref().map_or(bytes.len(), fitting)
    }

    /// Begins to count the cost of its blocks, or recounts it by another rule.
    pub(crate) fn compress(&mut self, compression: &Compression) {
        self.costs = Some(Costs::of(&self.contents, compression.has_cliff));
    }

    /// Makes the outcome of all writes up to `number` durable in these sectors, or all; the file is at least `length`
    /// bytes long after a crash.
    pub(crate) fn commit(&mut self, number: u64, length: usize, range: Option<Range<u64>>) {
        if self.durable.len() < length {
            Arc::make_mut(&mut self.durable).resize(length, 0);
        }
        if self.dirty.is_empty() {
            return;
        }
        let Inode { contents, durable, dirty, .. } = self;
        let durable = Arc::make_mut(durable);
        match range {
            None => dirty.retain(|sector, states| !settle(contents, durable, number, *sector, states)),
            Some(range) => {
                for sector in range {
                    if dirty.get_mut(&sector).is_some_and(|states| settle(contents, durable, number, sector, states)) {
                        dirty.remove(&sector);
                    }
                }
            }
        }
    }

    /// Makes the outcome of all writes up to `number` durable, but not in sectors where another write is in flight.
    pub(crate) fn commit_except(&mut self, number: u64, in_flight: &[Range<u64>]) {
        if self.dirty.is_empty() {
            return;
        }
        let Inode { contents, durable, dirty, .. } = self;
        let durable = Arc::make_mut(durable);
        dirty.retain(|sector, states| {
            let is_written = in_flight.iter().any(|sectors| sectors.contains(sector));
            is_written || !settle(contents, durable, number, *sector, states)
        });
    }

    /// Forgets that these sectors, or all, are dirty: what is durable in them stays, whatever reads see.
    pub(crate) fn drop_dirty(&mut self, range: Option<Range<u64>>) {
        match range {
            None => self.dirty.clear(),
            Some(range) => range.for_each(|sector| drop(self.dirty.remove(&sector))),
        }
    }

    /// Forgets that sectors are dirty, but not where a write is in flight: that one has its own answer.
    pub(crate) fn drop_dirty_except(&mut self, in_flight: &[Range<u64>]) {
        self.dirty.retain(|sector, _| in_flight.iter().any(|sectors| sectors.contains(sector)));
    }

    /// Inverts one bit at rest, below all caches.
    pub(crate) fn flip(&mut self, offset: usize, bit: u8) {
        for bytes in [&mut self.contents, &mut self.durable] {
            if let Some(byte) = Arc::make_mut(bytes).get_mut(offset) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

/// A change of the directory that is visible and not yet durable.
#[derive(Debug, Clone)]
pub(crate) struct NameChange {
    /// Increasing.
    pub(crate) number: u64,
    pub(crate) kind: NameChangeKind,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum NameChangeKind {
    /// The name now means this file, whatever it meant before.
    Link {
        name: FileName,
        inode: u64,
    },
    Unlink {
        name: FileName,
    },
    Move {
        from: FileName,
        to: FileName,
        inode: u64,
    },
}

impl NameChangeKind {
    fn touches(self, names: &BTreeSet<FileName>) -> bool {
        match self {
            NameChangeKind::Link { name, .. } | NameChangeKind::Unlink { name } => names.contains(&name),
            NameChangeKind::Move { from, to, .. } => names.contains(&from) || names.contains(&to),
        }
    }

    pub(crate) fn add_names(self, names: &mut BTreeSet<FileName>) {
        match self {
            NameChangeKind::Link { name, .. } | NameChangeKind::Unlink { name } => {
                names.insert(name);
            }
            NameChangeKind::Move { from, to, .. } => names.extend([from, to]),
        }
    }

    fn apply(self, names: &mut BTreeMap<FileName, u64>) {
        match self {
            NameChangeKind::Link { name, inode } => {
                names.insert(name, inode);
            }
            NameChangeKind::Unlink { name } => {
                names.remove(&name);
            }
            NameChangeKind::Move { from, to, inode } => {
                names.remove(&from);
                names.insert(to, inode);
            }
        }
    }

    fn is_link(self) -> bool {
        matches!(self, NameChangeKind::Link { .. })
    }
}

/// All files of a volume.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) inodes: BTreeMap<u64, Inode>,
    pub(crate) names: BTreeMap<FileName, u64>,
    pub(crate) durable_names: BTreeMap<FileName, u64>,
    pub(crate) pending_names: Vec<NameChange>,
    next_number: u64,
    pub(crate) locked: bool,
    /// The compression, for a disk that compresses.
    pub(crate) compression: Option<Compression>,
    /// The cost of writing the blocks of files that are gone.
    written_before: u64,
}

impl Disk {
    /// Returns a number above all before: for inodes, writes and name changes alike.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Returns the highest number given out.
    pub(crate) fn watermark(&self) -> u64 {
        self.next_number
    }

    pub(crate) fn add(&mut self, mut inode: Inode) -> u64 {
        let number = self.number();
        if let Some(compression) = &self.compression {
            inode.compress(compression);
            inode.costs.iter_mut().for_each(Costs::count_as_written);
        }
        self.inodes.insert(number, inode);
        number
    }

    /// Returns a file that a name or a handle keeps alive.
    pub(crate) fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("a name or a handle keeps the file")
    }

    pub(crate) fn lookup(&self, name: FileName) -> Option<&Inode> {
        self.names.get(&name).and_then(|inode| self.inodes.get(inode))
    }

    /// Changes names visibly; returns the number with which to make the change durable.
    pub(crate) fn change_names(&mut self, kind: NameChangeKind) -> u64 {
        let number = self.number();
        kind.apply(&mut self.names);
        self.pending_names.push(NameChange { number, kind });
        self.collect();
        number
    }

    /// Makes the change with this number durable, and whatever earlier one it rests on.
    pub(crate) fn commit_name(&mut self, number: u64) {
        let Some(last) = self.pending_names.iter().position(|change| change.number == number) else { return };
        let mut names = BTreeSet::new();
        let mut needed = BTreeSet::new();
        for change in self.pending_names[..=last].iter().rev() {
            if change.number == number || change.kind.touches(&names) {
                change.kind.add_names(&mut names);
                needed.insert(change.number);
            }
        }
        let durable_names = &mut self.durable_names;
        self.pending_names.retain(|change| {
            let take = needed.contains(&change.number);
            if take {
                change.kind.apply(durable_names);
            }
            !take
        });
        self.collect();
    }

    /// Makes all renames and removals up to `number` durable. New files become so by their own sync only.
    pub(crate) fn commit_names(&mut self, number: u64) {
        let asked = |change: &&NameChange| change.number <= number && !change.kind.is_link();
        let changes: Vec<u64> = self.pending_names.iter().filter(asked).map(|change| change.number).collect();
        changes.into_iter().for_each(|change| self.commit_name(change));
    }

    /// Returns true if a crash can keep this change, given the names whose earlier changes it did not keep.
    pub(crate) fn can_keep(change: &NameChange, lost: &BTreeSet<FileName>) -> bool {
        !change.kind.touches(lost)
    }

    pub(crate) fn apply_durably(&mut self, kind: NameChangeKind) {
        kind.apply(&mut self.durable_names);
    }

    /// Frees files that neither a name nor a handle reaches, now or after a crash.
    pub(crate) fn collect(&mut self) {
        let mut alive: BTreeSet<u64> = self.names.values().chain(self.durable_names.values()).copied().collect();
        alive.extend(self.pending_names.iter().filter_map(|change| match change.kind {
            NameChangeKind::Link { inode, .. } | NameChangeKind::Move { inode, .. } => Some(inode),
            NameChangeKind::Unlink { .. } => None,
        }));
        self.inodes.retain(|number, inode| {
            let stays = inode.handles > 0 || alive.contains(number);
            if !stays {
                self.written_before += inode.costs.as_ref().map_or(0, Costs::written);
            }
            stays
        });
    }

    pub(crate) fn release(&mut self, inode: u64) {
        if let Some(file) = self.inodes.get_mut(&inode) {
            file.handles = file.handles.saturating_sub(1);
            if file.handles == 0 {
                self.collect();
            }
        }
    }

    /// Returns the files that have a name or are open.
    fn taken(&self) -> impl Iterator<Item = &Inode> {
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        let taken = self.inodes.iter().filter(move |(number, inode)| inode.handles > 0 || named.contains(number));
        taken.map(|(_, inode)| inode)
    }

    /// Returns the bytes taken by files that have a name or are open.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.taken().map(|inode| inode.contents.len() as u64).sum()
    }

    /// Returns the cost of the blocks of these files, on a disk that compresses.
    pub(crate) fn physical_used(&self) -> u64 {
        self.taken().filter_map(|inode| inode.costs.as_ref()).map(Costs::used).sum()
    }

    /// Returns the cost of all blocks that were ever written, on a disk that compresses.
    pub(crate) fn physical_written(&self) -> u64 {
        let costs = self.inodes.values().filter_map(|inode| inode.costs.as_ref());
        self.written_before + costs.map(Costs::written).sum::<u64>()
    }

    /// Returns the physical space that is left; without end on a disk that does not compress.
    pub(crate) fn physical_left(&self) -> u64 {
        self.compression.map_or(u64::MAX, |compression| compression.left(self.physical_used()))
    }

    /// Compresses from now on; what is there counts as in use. Only a rule that counts otherwise restarts the counts.
    pub(crate) fn set_compression(&mut self, compression: Compression) {
        let before = self.compression.replace(compression);
        if before.is_none_or(|before| before.has_cliff != compression.has_cliff) {
            self.inodes.values_mut().for_each(|inode| inode.compress(&compression));
        }
    }
}

#[cfg(test)]
mod tests;
