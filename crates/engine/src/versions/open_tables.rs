//! Open tables: how many there may be, and which are closed for the sake of others.
//!
//! An open table takes memory (its top index, its filter) and a descriptor. Both are bounded by
//! [`Options::open_tables_max`](crate::Options::open_tables_max), each in its own way:
//!
//! * **Descriptors** exactly. A [`TableReader`] is a table's file for those who read from it, and has a descriptor or
//!   has not. Who reads where there is none opens the file; at the bound, after another one that was not read of late
//!   has lost its descriptor. A read in progress keeps its own. So an iterator or a compaction can go over any number
//!   of tables.
//! * **Memory** but for what is in use. A [`Shelf`] keeps tables open for the next reader, and beyond the bound takes
//!   out those that were not used of late. A user of such a table keeps it until done. A cursor has one table of each
//!   level and those of level 0 (which is bounded), and so has a running merge.
//!
//! While a store has at most half as many tables as may be open, they stay open without any of this. A look at such a
//! table costs an atomic load. The shelf takes those that are opened later.
//!
//! **Recent use** is known by the second chance. Slots lie in a ring, each with a mark that a use sets. The hand that
//! goes round clears marks, and takes the first slot without one.
//!
//! **Invariants.** There are never more descriptors than permits, and a permit is given back after its descriptor is
//! closed. A file that is not in the volume any more is not opened again. It is removed after the last holder of its
//! [`TableFile`](crate::versions::version::TableFile) has gone.
//!
//! **Threads.** A use takes no lock. Opening and closing takes the ring's, which is held across nothing that blocks or
//! notifies. A reader that finds all descriptors in the hands of reads in progress waits for one of them. A read in
//! progress waits for no other.
//!
//! **Rejected:** least recently used to the letter. It would need a lock, or a shared counter, at each use.

use crate::base::sync::lock;
use arc_swap::{ArcSwapOption, Guard};
use situ_base::Event;
use situ_storage::{Error, FileName, Reader, Result, Volume};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The number of empty slots, left by tables that were closed otherwise, from which they are cleared away, if they are
/// also twice as many as others.
const EMPTY_SLOTS_MIN: usize = 64;

/// A place for something that can be taken away from its users.
pub(crate) struct TableSlot<T> {
    value: ArcSwapOption<T>,
    used: AtomicBool,
}

impl<T> Default for TableSlot<T> {
    fn default() -> TableSlot<T> {
        TableSlot { value: ArcSwapOption::empty(), used: AtomicBool::new(false) }
    }
}

impl<T> TableSlot<T> {
    /// Returns the contents of the slot, which stay usable as long as the guard is kept.
    #[inline]
    pub(crate) fn get(&self) -> Guard<Option<Arc<T>>> {
        let value = self.value.load();
        // Written once for each round of the hand: all that use it would fight for the cache line.
        if value.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        value
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.value.load().is_none()
    }

    /// Puts `value` in if the slot is empty; otherwise, returns what is in it.
    fn fill(&self, value: &Arc<T>) -> Option<Arc<T>> {
        Guard::into_inner(self.value.compare_and_swap(&None::<Arc<T>>, Some(Arc::clone(value))))
    }

    fn take(&self) -> Option<Arc<T>> {
        self.value.swap(None)
    }
}

/// Slots in the order in which the hand meets them.
struct Ring<T> {
    slots: VecDeque<Arc<TableSlot<T>>>,
    /// The number of slots that are not empty.
    full: usize,
}

impl<T> Ring<T> {
    fn new() -> Ring<T> {
        Ring { slots: VecDeque::new(), full: 0 }
    }

    /// Notes a slot that has been filled.
    fn add(&mut self, slot: &Arc<TableSlot<T>>) {
        if self.slots.len() >= EMPTY_SLOTS_MIN + 2 * self.full {
            self.slots.retain(|slot| !slot.is_empty());
        }
        self.slots.push_back(Arc::clone(slot));
        self.full += 1;
    }

    /// Fills a slot, unless it is full; then, returns what is in it. Neither value is dropped here, as the lock is
    /// held.
    fn fill(&mut self, slot: &Arc<TableSlot<T>>, value: &Arc<T>) -> Option<Arc<T>> {
        let theirs = slot.fill(value);
        if theirs.is_none() {
            self.add(slot);
        }
        theirs
    }

    /// Takes the first value out that was not used since the hand was there before; `None` if there is none at all. To
    /// be dropped without the lock.
    fn evict(&mut self) -> Option<Arc<T>> {
        let count = self.slots.len();
        for step in 0..2 * count {
            let slot = self.slots.pop_front()?;
            // Once round for the marks. Who is used again that soon goes all the same, if all are.
            if step < count && slot.used.swap(false, Ordering::Relaxed) && !slot.is_empty() {
                self.slots.push_back(slot);
            } else if let Some(value) = slot.take() {
                self.full -= 1;
                return Some(value);
            }
        }
        None
    }

    /// Empties a slot whose owner goes.
    fn remove(&mut self, slot: &TableSlot<T>) -> Option<Arc<T>> {
        let value = slot.take()?;
        self.full -= 1;
        Some(value)
    }
}

/// Things kept for the next user, up to a bound.
pub(crate) struct Shelf<T> {
    ring: Mutex<Ring<T>>,
}

impl<T> Shelf<T> {
    pub(crate) fn new() -> Shelf<T> {
        Shelf { ring: Mutex::new(Ring::new()) }
    }

    /// Keeps `value` in `slot`, unless there is another one already, which is then returned. At most `max` are kept.
    pub(crate) fn keep(&self, slot: &Arc<TableSlot<T>>, value: Arc<T>, max: usize) -> Arc<T> {
        // Dropped without the lock.
        let mut evicted = Vec::new();
        let theirs = {
            let mut ring = lock(&self.ring);
            // Before the new one is in, which would not have been used yet.
            while slot.is_empty() && ring.full >= max.max(1) {
                evicted.extend(ring.evict());
            }
            ring.fill(slot, &value)
        };
        theirs.unwrap_or(value)
    }

    /// Gives up what is kept in `slot`.
    pub(crate) fn remove(&self, slot: &TableSlot<T>) -> Option<Arc<T>> {
        lock(&self.ring).remove(slot)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.ring).full
    }
}

/// The descriptors of tables.
pub(crate) struct Descriptors {
    max: usize,
    state: Mutex<ShelfState>,
    /// Notified when a permit is given back, or a descriptor could be taken away, while a reader waits for one.
    returned: Arc<dyn Event>,
}

struct ShelfState {
    ring: Ring<Descriptor>,
    permits: usize,
    waiting: usize,
}

/// An open file. The permit comes last: it is given back when the file is closed.
struct Descriptor {
    file: Arc<dyn Reader>,
    _permit: Permit,
}

/// The right to have one file open.
struct Permit {
    descriptors: Arc<Descriptors>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let somebody_waits = {
            let mut state = lock(&self.descriptors.state);
            state.permits -= 1;
            state.waiting > 0
        };
        if somebody_waits {
            self.descriptors.returned.notify();
        }
    }
}

impl Descriptors {
    pub(crate) fn new(max: usize, returned: Arc<dyn Event>) -> Arc<Descriptors> {
        let state = ShelfState { ring: Ring::new(), permits: 0, waiting: 0 };
        Arc::new(Descriptors { max: max.max(1), state: Mutex::new(state), returned })
    }

    /// Returns the number of files that are open, or about to be.
    pub(crate) fn open(&self) -> usize {
        lock(&self.state).permits
    }

    fn permit(self: &Arc<Self>) -> Permit {
        let mut waits = false;
        loop {
            let seen = self.returned.generation();
            let evicted = {
                let mut state = lock(&self.state);
                state.waiting -= usize::from(std::mem::take(&mut waits));
                if state.permits < self.max {
                    state.permits += 1;
                    return Permit { descriptors: Arc::clone(self) };
                }
                let evicted = state.ring.evict();
                if evicted.is_none() {
                    waits = true;
                    state.waiting += 1;
                }
                evicted
            };
            // Closes it, unless it is being read: then that read does.
            drop(evicted);
            if waits {
                self.returned.wait(seen, None);
            }
        }
    }
}

/// A table's file, which has a descriptor when it is read.
pub(crate) struct TableReader {
    volume: Arc<dyn Volume>,
    name: FileName,
    path: String,
    bytes: u64,
    descriptors: Arc<Descriptors>,
    slot: Arc<TableSlot<Descriptor>>,
}

impl TableReader {
    pub(crate) fn open(volume: &Arc<dyn Volume>, name: FileName, descriptors: &Arc<Descriptors>) -> Result<Arc<Self>> {
        let permit = descriptors.permit();
        let file = volume.open(name)?;
        let reader = Arc::new(TableReader {
            volume: Arc::clone(volume),
            name,
            path: file.path().to_owned(),
            bytes: file.bytes(),
            descriptors: Arc::clone(descriptors),
            slot: Arc::default(),
        });
        reader.keep(Descriptor { file, _permit: permit });
        Ok(reader)
    }

    fn keep(&self, descriptor: Descriptor) -> Arc<Descriptor> {
        let descriptor = Arc::new(descriptor);
        let (theirs, somebody_waits) = {
            let mut state = lock(&self.descriptors.state);
            (state.ring.fill(&self.slot, &descriptor), state.waiting > 0)
        };
        // From now on it can be taken away.
        if somebody_waits {
            self.descriptors.returned.notify();
        }
        theirs.unwrap_or(descriptor)
    }

    #[cold]
    fn open_again(&self) -> Result<Arc<Descriptor>> {
        let permit = self.descriptors.permit();
        let file = self.volume.open(self.name)?;
        if file.bytes() != self.bytes {
            let expected = format!("{} bytes, as when it was opened before", self.bytes);
            return Err(Error::corruption(&self.path, 0, "file length", expected, file.bytes()));
        }
        Ok(self.keep(Descriptor { file, _permit: permit }))
    }

    fn with_file<R>(&self, use_it: impl FnOnce(&dyn Reader) -> Result<R>) -> Result<R> {
        let held = self.slot.get();
        if let Some(descriptor) = &*held {
            return use_it(&*descriptor.file);
        }
        let descriptor = self.open_again()?;
        use_it(&*descriptor.file)
    }
}

impl Reader for TableReader {
    fn path(&self) -> &str {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.with_file(|file| file.read_at(offset, into))
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        // Opening the file again would be waiting.
        match &*self.slot.get() {
            Some(descriptor) => descriptor.file.read_now(offset, into),
            None => Ok(false),
        }
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        // Not worth a descriptor that another reader uses.
        if let Some(descriptor) = &*self.slot.get() {
            descriptor.file.prefetch(offset, bytes);
        }
    }
}

impl Drop for TableReader {
    fn drop(&mut self) {
        let descriptor = lock(&self.descriptors.state).ring.remove(&self.slot);
        drop(descriptor);
    }
}

#[cfg(test)]
mod tests;
