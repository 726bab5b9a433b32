//! The owners of the pages of an area.
//!
//! # Algorithm
//!
//! Free runs of pages are kept by place, where neighbours grow together, and by length. A request takes the shortest
//! run that is long enough. If none is, the caller first makes room that is on its way ([`Room::reclaim`]), and only
//! then takes the longest runs until it has enough.
//!
//! Pages that come back go to `given_back` first if the device takes discards. They wait there until a thread has time
//! to discard them, or until a file needs them.
//!
//! **Invariants.** A page is free, given back, being discarded, or in use; [`Room::account`] says how many of each.
//! **Threads.** One lock, held for a few map operations.

use situ_base::Event;
use situ_base::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// A run of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) pages: u64,
}

impl Extent {
    /// Returns the page behind it, if there can be one.
    pub(super) fn end(&self) -> Option<u64> {
        self.first.checked_add(self.pages)
    }

    /// Returns true if all of `other` lies in it.
    pub(super) fn contains(&self, other: &Extent) -> bool {
        other.first >= self.first && matches!((other.end(), self.end()), (Some(inner), Some(outer)) if inner <= outer)
    }
}

pub(super) fn pages_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.pages).sum()
}

/// Free runs.
#[derive(Debug, Default)]
struct FreeRuns {
    by_place: BTreeMap<u64, u64>,
    /// Length, then place.
    by_length: BTreeSet<(u64, u64)>,
    pages: u64,
}

impl FreeRuns {
    fn insert(&mut self, extent: Extent) {
        if extent.pages == 0 {
            return;
        }
        let Extent { mut first, mut pages } = extent;
        let before = self.by_place.range(..first).next_back().map(|(place, length)| (*place, *length));
        let after = self.by_place.range(first..).next().map(|(place, length)| (*place, *length));
        assert!(
            before.is_none_or(|(place, length)| place + length <= first)
                && after.is_none_or(|(place, _)| first + pages <= place),
            "pages {first}+{pages} are given back and were free"
        );
        self.pages += pages;
        if let Some((place, length)) = before.filter(|(place, length)| place + length == first) {
            self.take_out(place, length);
            (first, pages) = (place, length + pages);
        }
        if let Some((place, length)) = after.filter(|(place, _)| extent.first + extent.pages == *place) {
            self.take_out(place, length);
            pages += length;
        }
        self.by_place.insert(first, pages);
        self.by_length.insert((pages, first));
    }

    fn take_out(&mut self, place: u64, length: u64) {
        self.by_place.remove(&place);
        self.by_length.remove(&(length, place));
    }

    /// Takes the first pages of a run.
    fn take_front(&mut self, place: u64, length: u64, pages: u64) -> Extent {
        self.take_out(place, length);
        self.pages -= pages;
        if length > pages {
            self.by_place.insert(place + pages, length - pages);
            self.by_length.insert((length - pages, place + pages));
        }
        Extent { first: place, pages }
    }

    fn take_run(&mut self, pages: u64) -> Option<Extent> {
        let (length, place) = self.by_length.range((pages, 0)..).next().copied()?;
        Some(self.take_front(place, length, pages))
    }

    fn take_pieces(&mut self, pages: u64) -> Option<Vec<Extent>> {
        if self.pages < pages {
            return None;
        }
        let mut pieces = Vec::new();
        let mut left = pages;
        while left > 0 {
            let (length, place) = self.by_length.last().copied()?;
            let piece = self.take_front(place, length, length.min(left));
            left -= piece.pages;
            pieces.push(piece);
        }
        pieces.sort_unstable();
        Some(pieces)
    }

    /// Takes pages right at `place`.
    fn take_at(&mut self, place: u64, pages: u64) -> bool {
        match self.by_place.get(&place).copied() {
            Some(length) if length >= pages => {
                self.take_front(place, length, pages);
                true
            }
            _ => false,
        }
    }
}

#[derive(Default)]
struct AreaState {
    free: FreeRuns,
    given_back: Vec<Extent>,
    given_back_pages: u64,
    discarding_pages: u64,
}

/// The use of the pages of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Account {
    /// Free now, waiting for a discard, or being discarded.
    pub(super) free_pages: u64,
    /// The longest run of free pages.
    pub(super) longest_pages: u64,
    /// The number of free runs.
    pub(super) runs: usize,
}

/// The pages of one area.
pub(super) struct Room {
    pub(super) area: Extent,
    /// The shortest discard that the device understands, in pages; 0 if none.
    discard_pages: u64,
    state: Mutex<AreaState>,
    discarded: Arc<dyn Event>,
}

impl Room {
    /// Creates the room of all of `area` but the `used` pages.
    ///
    /// # Errors
    /// Two of the used extents share pages, or one is not within the area: the text says which.
    pub(super) fn new(
        area: Extent,
        used: impl IntoIterator<Item = Extent>,
        discard_pages: u64,
        discarded: Arc<dyn Event>,
    ) -> Result<Room, String> {
        let mut used: Vec<Extent> = used.into_iter().collect();
        used.sort_unstable();
        let mut free = FreeRuns::default();
        let mut from = area.first;
        for extent in &used {
            let Extent { first, pages } = *extent;
            if !area.contains(extent) || pages == 0 {
                return Err(format!("pages {first}+{pages} outside the area of pages {}+{}", area.first, area.pages));
            }
            if first < from {
                return Err(format!("pages {first}+{pages} used twice"));
            }
            free.insert(Extent { first: from, pages: first - from });
            from = first + pages;
        }
        free.insert(Extent { first: from, pages: area.first + area.pages - from });
        let state = Mutex::new(AreaState { free, ..AreaState::default() });
        Ok(Room { area, discard_pages, state, discarded })
    }

    fn lock(&self) -> MutexGuard<'_, AreaState> {
        lock(&self.state)
    }

    /// Takes a run of `pages` pages, if there is one.
    pub(super) fn take_run(&self, pages: u64) -> Option<Extent> {
        self.lock().free.take_run(pages)
    }

    /// Takes `pages` pages in as few runs as there are, if that many are free.
    pub(super) fn take_pieces(&self, pages: u64) -> Option<Vec<Extent>> {
        self.lock().free.take_pieces(pages)
    }

    /// Takes the pages right behind `extent`, if they are free.
    pub(super) fn take_behind(&self, extent: &Extent, pages: u64) -> bool {
        self.lock().free.take_at(extent.first + extent.pages, pages)
    }

    /// Takes back pages that have not been written since the device discarded them.
    pub(super) fn give_back_clean(&self, extents: &[Extent]) {
        let mut state = self.lock();
        extents.iter().for_each(|extent| state.free.insert(*extent));
    }

    /// Takes back pages that no durable record names.
    pub(super) fn give_back(&self, extents: &[Extent]) {
        if self.discard_pages == 0 {
            return self.give_back_clean(extents);
        }
        let mut state = self.lock();
        state.given_back_pages += pages_of(extents);
        state.given_back.extend(extents.iter().filter(|extent| extent.pages > 0));
    }

    /// Makes given back pages free without a discard. True if there were any.
    pub(super) fn reclaim(&self) -> bool {
        let mut state = self.lock();
        let extents = std::mem::take(&mut state.given_back);
        state.given_back_pages = 0;
        extents.iter().for_each(|extent| state.free.insert(*extent));
        !extents.is_empty()
    }

    /// Takes some of what was given back to be discarded, about `pages_max` pages. [`Room::discarded`] must follow.
    pub(super) fn take_for_discard(&self, pages_max: u64) -> Vec<Extent> {
        let mut state = self.lock();
        let mut extents = Vec::new();
        let mut pages = 0;
        while pages < pages_max
            && let Some(mut extent) = state.given_back.pop()
        {
            let rest = extent.pages.saturating_sub(pages_max - pages);
            extent.pages -= rest;
            if rest > 0 {
                state.given_back.push(Extent { first: extent.first + extent.pages, pages: rest });
            }
            pages += extent.pages;
            extents.push(extent);
        }
        state.given_back_pages -= pages;
        state.discarding_pages += pages;
        drop(state);
        extents.sort_unstable();
        extents.dedup_by(|next, last| {
            let joined = last.first + last.pages == next.first;
            if joined {
                last.pages += next.pages;
            }
            joined
        });
        extents
    }

    /// Returns true if any given back pages wait for a discard.
    pub(super) fn awaits_discard(&self) -> bool {
        self.lock().given_back_pages > 0
    }

    /// Returns the part of an extent that a discard can name.
    pub(super) fn discardable(&self, extent: &Extent) -> Option<Extent> {
        let first = extent.first.next_multiple_of(self.discard_pages.max(1));
        let end = extent.first + extent.pages;
        let end = end - end % self.discard_pages.max(1);
        (first < end).then(|| Extent { first, pages: end - first })
    }

    /// Makes what [`Room::take_for_discard`] gave free.
    pub(super) fn discarded(&self, extents: &[Extent]) {
        let mut state = self.lock();
        state.discarding_pages -= pages_of(extents);
        extents.iter().for_each(|extent| state.free.insert(*extent));
        drop(state);
        self.discarded.notify();
    }

    /// Waits until a discard that is under way has ended. False if there is none.
    pub(super) fn wait_for_discard(&self) -> bool {
        let seen = self.discarded.generation();
        if self.lock().discarding_pages == 0 {
            return false;
        }
        self.discarded.wait(seen, None);
        true
    }

    pub(super) fn account(&self) -> Account {
        let state = self.lock();
        Account {
            free_pages: state.free.pages + state.given_back_pages + state.discarding_pages,
            longest_pages: state.free.by_length.last().map_or(0, |(length, _)| *length),
            runs: state.free.by_place.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_base::Env;

    fn room(used: &[Extent], discard_pages: u64) -> Result<Room, String> {
        let event = Env::system().executor.event();
        Room::new(Extent { first: 100, pages: 100 }, used.iter().copied(), discard_pages, event)
    }

    fn extent(first: u64, pages: u64) -> Extent {
        Extent { first, pages }
    }

    #[test]
    fn runs_grow_together_and_the_shortest_that_fits_is_taken() {
        let room = room(&[extent(110, 10), extent(150, 10)], 0).unwrap();
        assert_eq!(room.account(), Account { free_pages: 80, longest_pages: 40, runs: 3 });
        assert_eq!(room.take_run(8), Some(extent(100, 8)));
        assert_eq!(room.take_run(8), Some(extent(120, 8)));
        assert_eq!(room.take_run(41), None);
        assert!(room.take_behind(&extent(120, 8), 2));
        assert!(!room.take_behind(&extent(150, 10), 41));
        room.give_back_clean(&[extent(110, 10), extent(150, 10), extent(120, 10), extent(100, 8)]);
        assert_eq!(room.account(), Account { free_pages: 100, longest_pages: 100, runs: 1 });
    }

    #[test]
    fn pieces_are_taken_from_the_longest_runs() {
        let room = room(&[extent(110, 10), extent(150, 10)], 0).unwrap();
        assert_eq!(room.take_pieces(75), Some(vec![extent(100, 5), extent(120, 30), extent(160, 40)]));
        assert_eq!(room.take_pieces(6), None);
        assert_eq!(room.account().free_pages, 5);
    }

    #[test]
    fn used_pages_are_checked() {
        assert_eq!(room(&[extent(110, 10), extent(119, 2)], 0).err().unwrap(), "pages 119+2 used twice");
        assert!(room(&[extent(90, 20)], 0).is_err() && room(&[extent(190, 11)], 0).is_err());
        assert!(room(&[extent(u64::MAX, 2)], 0).is_err() && room(&[extent(110, 0)], 0).is_err());
    }

    #[test]
    fn what_comes_back_waits_until_the_device_is_told_or_somebody_needs_it() {
        let room = room(&[], 8).unwrap();
        let all = room.take_run(100).unwrap();
        room.give_back(&[extent(101, 9), extent(110, 20)]);
        assert_eq!((room.take_run(1), room.account().free_pages), (None, 29));
        let part = room.take_for_discard(12);
        assert_eq!((part, room.awaits_discard()), (vec![extent(110, 12)], true));
        room.discarded(&[extent(110, 12)]);
        assert_eq!(room.take_run(12), Some(extent(110, 12)));
        room.give_back(&[extent(110, 12)]);
        let batch = room.take_for_discard(100);
        assert_eq!((batch.as_slice(), room.awaits_discard()), (&[extent(101, 29)][..], false));
        assert_eq!(room.discardable(&batch[0]), Some(extent(104, 24)));
        assert_eq!(room.discardable(&extent(105, 8)), None);
        assert_eq!(room.take_run(1), None);
        room.discarded(&batch);
        assert_eq!(room.take_run(29), Some(extent(101, 29)));
        room.give_back(&[all.first, 130].map(|first| extent(first, 1)));
        assert!(room.reclaim() && !room.reclaim() && !room.wait_for_discard());
        assert_eq!(room.account().free_pages, 2);
    }
}
