//! Cursors over a keyspace: the user's view of the merged internal entries.
//!
//! The merge below yields every version of every key, newest first within a key. Going forward, the first version at or
//! below the snapshot decides: a value is returned, a tombstone hides the key. Going backward, versions come oldest
//! first. So the last one at or below the snapshot decides, and the cursor leaves the key only then.
//!
//! Range tombstones are looked up by key for each candidate. When a tombstone of one source covers an entry of an older
//! source, all older sources jump past the tombstone (backward: to before it). So a scan over a deleted
//! range costs one seek, not one step for each dead entry. Entries of the tombstone's own source may be newer, so the
//! cursor steps over them.
//!
//! The first reader of a long run of invisible entries steps over them and notes a gap (`dead.rs`), which later readers
//! skip. Many versions of one key cost a few steps and a seek.
//!
//! **Positions.** Forward: the merge stands on the returned entry. Backward: the merge stands before all versions of
//! the returned key, whose key and value were copied.
//!
//! **The value log.** An entry may be a handle. The cursor reads the value when it gets there, or when it is asked for
//! the value ([`ReadOptions::values_on_demand`]). A cursor that goes on in one direction reads ahead (`ahead.rs`). Then
//! the merge stands on the last entry that was found, and the present one was copied.

use crate::base::health::Health;
use crate::base::slow::{Operation, SlowKind};
use crate::base::value::Value;
use crate::read::ahead::{Ahead, Entry, Next, Wanted};
use crate::read::dead::{DeadRun, KnownGaps, Search, VERSIONS_BEFORE_SEEK};
use crate::read::get::unexpected_kind;
use crate::read::merge::{MergeCursor, Source};
use crate::read::options::ReadOptions;
use crate::versions::gaps::{Side, behind};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::view::View;
use crate::{Error, Result};
use situ_base::spent::{self, Spent};
use situ_storage::Excerpt;
use situ_table::range_del::{RangeTombstone, TombstoneIndex};
use situ_table::{Cursor as _, KeyKind, KeyRef, Reach, Trailer};
use std::fmt;
use std::sync::Arc;

/// Range tombstones of one source.
pub(crate) struct RankedTombstones {
    pub(crate) rank: usize,
    pub(crate) index: Arc<TombstoneIndex>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The list of slow operations that a cursor's movements go to.
pub(crate) struct Watch {
    pub(crate) health: Arc<Health>,
    pub(crate) keyspace: Arc<KeyspaceCore>,
}

/// The place of the present value.
enum Place {
    /// The entry at which the merge stands.
    Merge,
    /// In the cursor's copy.
    Copy,
    /// In the value log. The entry has its handle in the place of the value.
    Log,
    /// In this value, which was read from the value log.
    Read(Value),
    /// In the entry that is shown while others are found ahead.
    Shown,
}

/// A cursor over the keys and values of a keyspace, in key order, at one moment of its life.
///
/// A cursor suits callers that move back and forth, or want no copies. [`Keyspace::range`](crate::Keyspace::range) and
/// its like return an [`Iterator`]. A cursor starts nowhere: position it first. It does not see keys written after it
/// was opened. It keeps memtables and tables alive that it may need; drop it when done.
///
/// ```
/// # use situ_engine as situ;
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let store = situ::Store::open(directory.path())?;
/// for key in ["apple", "banana", "cherry"] {
///     store.put(key, "fruit")?;
/// }
/// let mut cursor = store.cursor()?;
/// cursor.seek(b"b")?;
/// assert_eq!(cursor.key(), Some(&b"banana"[..]));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), Some(&b"apple"[..]));
/// # store.close()
/// # }
/// ```
pub struct Cursor {
    merge: MergeCursor<Source>,
    tombstones: Vec<RankedTombstones>,
    known: KnownGaps,
    search: Search,
    sequence: u64,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    direction: Direction,
    valid: bool,
    /// The present entry's key and value while going backward; the key to leave behind while going forward.
    key: Vec<u8>,
    value: Vec<u8>,
    place: Place,
    values_on_demand: bool,
    reach: Reach,
    /// Steps in this direction since the cursor was positioned.
    steps: usize,
    /// The bounds of read-ahead that is worth its cost.
    wanted: Wanted,
    /// The entries found ahead; the present entry is the one that it shows.
    ahead: Option<Box<Ahead>>,
    view: Arc<View>,
    watch: Option<Watch>,
}

impl Cursor {
    pub(crate) fn new(
        view: Arc<View>,
        sources: Vec<Source>,
        tombstones: Vec<RankedTombstones>,
        known: KnownGaps,
        sequence: u64,
        options: ReadOptions,
        reach: Reach,
    ) -> Cursor {
        Cursor {
            merge: MergeCursor::new(sources),
            tombstones,
            known,
            search: Search::default(),
            sequence,
            lower: options.lower_bound,
            upper: options.upper_bound,
            direction: Direction::Forward,
            valid: false,
            key: Vec::new(),
            value: Vec::new(),
            place: Place::Merge,
            values_on_demand: options.values_on_demand,
            reach,
            steps: 0,
            wanted: Wanted::MOST,
            ahead: None,
            view,
            watch: None,
        }
    }

    /// Has slow movements noted.
    pub(crate) fn watched_by(self, watch: Option<Watch>) -> Cursor {
        Cursor { watch, ..self }
    }

    /// Sets a bound: the caller will ask for at most this many entries, or bytes, behind the next one.
    pub(crate) fn expect_at_most(&mut self, entries: usize, bytes: usize) {
        self.wanted = Wanted::MOST.at_most(entries, bytes);
    }

    /// Returns true if the cursor stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Returns the present key; `None` if the cursor stands nowhere.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.valid.then(|| match (&self.ahead, self.direction) {
            (Some(ahead), _) => &ahead.shown.key[..],
            (None, Direction::Forward) => self.merge.key().user,
            (None, Direction::Backward) => &self.key,
        })
    }

    /// Returns the present value; `None` if the cursor stands nowhere. Also `None` if values are read [on
    /// demand](ReadOptions::values_on_demand) and this one lies in the value log and was not
    /// [read](Cursor::read_value).
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        match &self.place {
            _ if !self.valid => None,
            Place::Merge => Some(self.merge.value()),
            Place::Copy => Some(&self.value),
            Place::Read(value) => Some(value),
            Place::Shown => self.ahead.as_ref().map(|ahead| &ahead.shown.value[..]),
            Place::Log => None,
        }
    }

    /// Returns the present value, which is read if it lies in the value log; `None` if the cursor stands nowhere.
    ///
    /// # Errors
    /// The value cannot be read, or is damaged. The cursor stays where it is.
    pub fn read_value(&mut self) -> Result<Option<&[u8]>> {
        if self.valid && matches!(self.place, Place::Log) {
            self.read_from_log().inspect_err(|error| self.view.version.note_damage(error))?;
        }
        Ok(self.value())
    }

    fn read_from_log(&mut self) -> Result<()> {
        let segments = &self.view.version.segments;
        let value = match &mut self.ahead {
            Some(ahead) => ahead.read(segments)?,
            None => {
                let (key, pointer) = self.found();
                segments.read(key, pointer, self.reach)?
            }
        };
        self.place = Place::Read(value);
        Ok(())
    }

    /// Returns the entry found last: its key, and the bytes that stand there for its value.
    fn found(&self) -> (&[u8], &[u8]) {
        match self.direction {
            Direction::Forward => (self.merge.key().user, self.merge.value()),
            Direction::Backward => (&self.key, &self.value),
        }
    }

    /// Moves to the first key (of the bounds).
    ///
    /// # Errors
    /// A table could not be read, or is damaged. The cursor stands nowhere then and may be positioned again.
    pub fn seek_to_first(&mut self) -> Result<()> {
        match self.lower.clone() {
            Some(lower) => self.seek(&lower),
            None => self.positioning(Direction::Forward, |iter| {
                let run = iter.enter_forward(Vec::new())?;
                iter.settle_forward(false, run)
            }),
        }
    }

    /// Moves to the last key (of the bounds).
    ///
    /// # Errors
    /// As [`seek_to_first`](Cursor::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.positioning(Direction::Backward, |iter| {
            let run = iter.enter_backward(iter.upper.clone())?;
            iter.settle_backward(run)
        })
    }

    /// Moves to the first key at or behind `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Cursor::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.positioning(Direction::Forward, |iter| {
            let from = match &iter.lower {
                Some(lower) if &lower[..] > key => lower.clone(),
                _ => key.to_vec(),
            };
            let run = iter.enter_forward(from)?;
            iter.settle_forward(false, run)
        })
    }

    /// Moves to the last key at or before `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Cursor::seek_to_first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.upper.as_ref().is_some_and(|upper| &upper[..] <= key) {
            return self.seek_to_last();
        }
        self.positioning(Direction::Backward, |iter| {
            let run = iter.enter_backward(Some(behind(key)))?;
            iter.settle_backward(run)
        })
    }

    /// Moves one key forward. Does nothing if the cursor stands nowhere.
    ///
    /// # Errors
    /// As [`seek_to_first`](Cursor::seek_to_first).
    #[expect(clippy::should_implement_trait, reason = "the field's name for it, and it can fail")]
    pub fn next(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        if self.direction == Direction::Forward {
            return self.moving(Cursor::step);
        }
        let key = self.present_key();
        self.positioning(Direction::Forward, |iter| {
            // The merge stands before all versions of the present key, or was ahead.
            let run = iter.enter_forward(behind(&key))?;
            iter.settle_forward(false, run)
        })
    }

    /// Moves one key backward. Does nothing if the cursor stands nowhere.
    ///
    /// # Errors
    /// As [`seek_to_first`](Cursor::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        if self.direction == Direction::Backward {
            return self.moving(Cursor::step);
        }
        let key = self.present_key();
        self.positioning(Direction::Backward, |iter| {
            let run = iter.enter_backward(Some(key))?;
            iter.settle_backward(run)
        })
    }

    fn present_key(&self) -> Vec<u8> {
        self.key().map_or_else(Vec::new, <[u8]>::to_vec)
    }

    /// Goes to a new place, and drops the entries found ahead.
    fn positioning(
        &mut self,
        direction: Direction,
        position: impl FnOnce(&mut Cursor) -> Result<bool, Error>,
    ) -> Result<()> {
        (self.direction, self.steps) = (direction, 0);
        self.moving(|iter| {
            iter.ahead = None;
            position(iter)
        })
    }

    /// Moves one entry on in the cursor's direction.
    fn step(&mut self) -> Result<bool, Error> {
        self.steps = self.steps.saturating_add(1);
        let Some(mut ahead) = self.ahead.take() else { return self.find_next() };
        match ahead.step()? {
            None => Ok(false),
            Some(Next::FromMerge) => self.find_next(),
            Some(Next::Entry) => {
                self.look_ahead(ahead);
                Ok(true)
            }
        }
    }

    /// Finds the entry behind the one that was found last.
    fn find_next(&mut self) -> Result<bool, Error> {
        if self.direction == Direction::Backward {
            return self.settle_backward(DeadRun::new());
        }
        self.key.clear();
        self.key.extend_from_slice(self.merge.key().user);
        self.merge.next()?;
        self.settle_forward(true, DeadRun::new())
    }

    /// Shows the present entry of `ahead`, and fills its queue if it is low.
    fn look_ahead(&mut self, mut ahead: Box<Ahead>) {
        let wanted = self.wanted.at_most(self.steps, usize::MAX);
        if ahead.is_low(wanted) {
            let view = Arc::clone(&self.view);
            ahead.fill(wanted, &view.version.segments, || Ok(self.find_next()?.then(|| self.found_entry())));
        }
        self.place = if ahead.shown.is_in_log { Place::Log } else { Place::Shown };
        self.ahead = Some(ahead);
    }

    fn found_entry(&self) -> Entry {
        let (key, value) = self.found();
        Entry { key: key.to_vec(), value: value.to_vec(), is_in_log: matches!(self.place, Place::Log) }
    }

    /// Fetches the value of the present entry, which lies in the value log.
    fn fetch(&mut self) -> Result<()> {
        let is_sequential = self.steps > 0 && self.reach == Reach::Disk && !self.wanted.is_nothing();
        if is_sequential && self.ahead.is_none() {
            self.look_ahead(Box::new(Ahead::of(self.found_entry())));
        }
        self.read_from_log()
    }

    fn moving(&mut self, step: impl FnOnce(&mut Cursor) -> Result<bool, Error>) -> Result<()> {
        if self.watch.is_some() { self.moving_watched(step) } else { self.moved(step) }
    }

    /// Apart from a movement that is not watched, which would take 3% more instructions.
    #[inline(never)]
    fn moving_watched(&mut self, step: impl FnOnce(&mut Cursor) -> Result<bool, Error>) -> Result<()> {
        let watched = spent::begin();
        let moved = self.moved(step);
        if watched && let Some(spent) = spent::end() {
            self.note_if_slow(spent);
        }
        moved
    }

    #[cold]
    fn note_if_slow(&self, spent: Spent) {
        let Some(watch) = &self.watch else { return };
        let bytes = || self.value().map_or(0, <[u8]>::len);
        let name = || watch.keyspace.name.clone();
        let describe = || Operation::new(SlowKind::Move, name(), self.key().unwrap_or_default(), bytes());
        watch.health.note_if_slow(Some(spent), None, describe);
    }

    #[inline(always)]
    fn moved(&mut self, step: impl FnOnce(&mut Cursor) -> Result<bool, Error>) -> Result<()> {
        self.valid = false;
        let mut moved = step(self);
        if matches!((&moved, &self.place), (Ok(true), Place::Log)) && !self.values_on_demand {
            moved = self.fetch().map(|()| true);
        }
        match moved {
            Ok(valid) => {
                self.valid = valid;
                Ok(())
            }
            Err(error) => {
                self.ahead = None;
                self.view.version.note_damage(&error);
                Err(error)
            }
        }
    }

    /// Moves the merge to the first entry at or behind `from` that is in no gap.
    fn enter_forward(&mut self, from: Vec<u8>) -> Result<DeadRun> {
        let gap = self.known.past(&self.view, &from, self.sequence);
        if gap.is_none() {
            self.merge.seek(KeyRef::new(&from, Trailer::seek(self.sequence)))?;
        }
        let mut run = DeadRun::new();
        self.search.begin(Side::Front, Some(from));
        if let Some(gap) = gap {
            self.leave_forward(gap.end.clone(), &mut run)?;
        }
        Ok(run)
    }

    /// Moves the merge to the last entry before `end` that is in no gap.
    fn enter_backward(&mut self, end: Option<Vec<u8>>) -> Result<DeadRun> {
        let gap = self.known.before(&self.view, end.as_deref(), self.sequence);
        if gap.is_none() {
            self.before(end.as_deref())?;
        }
        let mut run = DeadRun::new();
        self.search.begin(Side::Back, end);
        if let Some(gap) = gap {
            self.leave_backward(gap.begin.clone(), &mut run)?;
        }
        Ok(run)
    }

    /// Moves the merge to the last entry before `end`.
    fn before(&mut self, end: Option<&[u8]>) -> Result<()> {
        match end {
            // The newest trailer sorts first, so the bound itself is excluded.
            Some(end) => self.merge.seek_before(KeyRef::new(end, Trailer::NEWEST))?,
            None => self.merge.last()?,
        }
        Ok(())
    }

    fn leave_forward(&mut self, end: Option<Vec<u8>>, run: &mut DeadRun) -> Result<()> {
        match end {
            Some(end) => {
                self.merge.seek(KeyRef::new(&end, Trailer::NEWEST))?;
                self.search.has_jumped(run, end);
            }
            None => self.merge.leave(),
        }
        Ok(())
    }

    fn leave_backward(&mut self, begin: Vec<u8>, run: &mut DeadRun) -> Result<()> {
        self.before(Some(&begin))?;
        self.search.has_jumped(run, begin);
        Ok(())
    }

    /// Finds the next visible entry from where the merge stands; with `skip`, of a key behind `self.key`.
    fn settle_forward(&mut self, skip: bool, mut run: DeadRun) -> Result<bool, Error> {
        let found = self.find_forward(skip, &mut run);
        self.known.steps += run.steps;
        if !self.search.ends_at_once() {
            self.end_forward(&run, found.as_ref().ok().copied());
        }
        found
    }

    /// Ends the search for a gap. The argument `is_found` is `None` if the run failed.
    #[cold]
    fn end_forward(&mut self, run: &DeadRun, is_found: Option<bool>) {
        let here_or_end = |is_found| if is_found { Some(self.merge.key().user.to_vec()) } else { self.upper.clone() };
        self.search.end(&self.known, run, is_found.map(here_or_end));
    }

    #[inline]
    fn find_forward(&mut self, mut skip: bool, run: &mut DeadRun) -> Result<bool, Error> {
        while self.merge.valid() {
            let KeyRef { user, trailer } = self.merge.key();
            if self.upper.as_ref().is_some_and(|upper| user >= &upper[..]) {
                return Ok(false);
            }
            if trailer.sequence() > self.sequence {
                if trailer.kind() != Some(KeyKind::Delete) {
                    self.search.meet_newer(run, user);
                }
                self.pass_newer(run)?;
                continue;
            }
            if skip && user == &self.key[..] {
                run.versions += 1;
                if run.versions.is_multiple_of(VERSIONS_BEFORE_SEEK) {
                    run.steps += 1;
                    self.merge.seek(KeyRef::new(&self.key, Trailer::OLDEST))?;
                } else {
                    self.pass_forward(run, true)?;
                }
                continue;
            }
            run.versions = 0;
            if !self.tombstones.is_empty()
                && let Some((source, tombstone)) = self.covered(user, trailer.sequence(), self.merge.rank())
            {
                let rank = self.tombstones[source].rank;
                let cover = (rank < self.merge.rank()).then(|| self.end_of_cover(source, tombstone));
                self.key.clear();
                self.key.extend_from_slice(user);
                skip = true;
                match cover {
                    Some((end, tombstones)) => {
                        run.steps += tombstones;
                        if !run.is_time_to_look() || !self.look_forward(run, skip)? {
                            self.merge.skip_to(rank, &end)?;
                        }
                    }
                    None => self.pass_forward(run, skip)?,
                }
                continue;
            }
            match trailer.kind() {
                Some(KeyKind::Put) => {
                    self.place = Place::Merge;
                    return Ok(true);
                }
                Some(KeyKind::ValueHandle) => {
                    self.place = Place::Log;
                    return Ok(true);
                }
                Some(KeyKind::Delete) => {
                    self.key.clear();
                    self.key.extend_from_slice(user);
                    skip = true;
                    self.pass_forward(run, skip)?;
                }
                kind => return Err(unexpected_kind(user, kind)),
            }
        }
        Ok(false)
    }

    /// Steps over an invisible entry, or jumps over several of them.
    #[inline]
    fn pass_forward(&mut self, run: &mut DeadRun, skip: bool) -> Result<()> {
        run.steps += 1;
        if run.is_time_to_look() && self.look_forward(run, skip)? {
            return Ok(());
        }
        Ok(self.merge.next()?)
    }

    /// Steps over a version that is newer than the reader. If the key has many of them, seeks past them.
    fn pass_newer(&mut self, run: &mut DeadRun) -> Result<()> {
        run.versions += 1;
        let user = self.merge.key().user;
        if run.versions.is_multiple_of(VERSIONS_BEFORE_SEEK) && user == &self.search.newer[..] {
            // The versions that the seek skips may be puts.
            self.search.meet_newer(run, user);
            run.steps += 1;
            let newer = std::mem::take(&mut self.search.newer);
            return Ok(self.merge.seek(KeyRef::new(&newer, Trailer::seek(self.sequence)))?);
        }
        if (run.versions + 1).is_multiple_of(VERSIONS_BEFORE_SEEK) {
            self.search.newer.clear();
            self.search.newer.extend_from_slice(user);
        }
        self.pass_forward(run, false)
    }

    /// Leaves the gap in which the merge stands, or begins to watch for one. Returns true if the merge was moved.
    #[cold]
    fn look_forward(&mut self, run: &mut DeadRun, skip: bool) -> Result<bool> {
        run.has_looked();
        let here = self.merge.key().user;
        if let Some(gap) = self.known.past(&self.view, here, self.sequence) {
            self.search.will_jump(&self.known, run, here);
            self.leave_forward(gap.end.clone(), run)?;
            return Ok(true);
        }
        let begin = if skip && here == &self.key[..] { behind(here) } else { here.to_vec() };
        let begin = self.search.watch(&self.known, &self.view, begin, self.upper.clone());
        let Some(begin) = begin else { return Ok(false) };
        // All sources are searched again: they may have got entries since they were.
        self.merge.seek(KeyRef::new(&begin.unwrap_or_default(), Trailer::NEWEST))?;
        Ok(true)
    }

    /// Finds the previous visible key from where the merge stands.
    fn settle_backward(&mut self, mut run: DeadRun) -> Result<bool, Error> {
        let found = self.find_backward(&mut run);
        self.known.steps += run.steps;
        if !self.search.ends_at_once() {
            self.end_backward(&run, found.as_ref().ok().copied());
        }
        found
    }

    /// As [`end_forward`](Cursor::end_forward).
    #[cold]
    fn end_backward(&mut self, run: &DeadRun, is_found: Option<bool>) {
        let here_or_end = |is_found| if is_found { Some(behind(&self.key)) } else { self.lower.clone() };
        self.search.end(&self.known, run, is_found.map(here_or_end));
    }

    fn find_backward(&mut self, run: &mut DeadRun) -> Result<bool, Error> {
        // The sum of the versions of `self.key` met so far.
        let mut alive = false;
        let mut have_key = false;
        while self.merge.valid() {
            let KeyRef { user, trailer } = self.merge.key();
            if have_key && user != &self.key[..] {
                if alive {
                    break;
                }
                have_key = false;
                if run.is_time_to_look() {
                    self.look_backward(run)?;
                    continue;
                }
            }
            if !have_key {
                if self.lower.as_ref().is_some_and(|lower| user < &lower[..]) {
                    return Ok(false);
                }
                self.key.clear();
                self.key.extend_from_slice(user);
                have_key = true;
                alive = false;
                run.versions = 0;
            }
            run.steps += 1;
            run.versions += 1;
            if run.versions > VERSIONS_BEFORE_SEEK {
                alive = self.decide(run)?;
                continue;
            }
            if trailer.sequence() > self.sequence {
                if trailer.kind() != Some(KeyKind::Delete) {
                    self.search.meet_newer(run, user);
                }
                self.merge.prev()?;
                continue;
            }
            let covered = match self.tombstones.is_empty() {
                true => None,
                false => self.covered(user, trailer.sequence(), self.merge.rank()),
            };
            if let Some((source, tombstone)) = covered {
                alive = false;
                let rank = self.tombstones[source].rank;
                if rank < self.merge.rank() {
                    let begin = tombstone.begin.clone();
                    self.merge.skip_back_to(rank, &begin)?;
                } else {
                    self.merge.prev()?;
                }
                continue;
            }
            match trailer.kind() {
                Some(kind @ (KeyKind::Put | KeyKind::ValueHandle)) => {
                    alive = true;
                    self.copy_value(kind);
                }
                Some(KeyKind::Delete) => alive = false,
                kind => return Err(unexpected_kind(user, kind)),
            }
            self.merge.prev()?;
        }
        let is_found = have_key && alive;
        if is_found {
            run.steps -= run.versions;
        }
        Ok(is_found)
    }

    /// Copies the value of the merge's current entry.
    fn copy_value(&mut self, kind: KeyKind) {
        self.place = if kind == KeyKind::Put { Place::Copy } else { Place::Log };
        self.value.clear();
        self.value.extend_from_slice(self.merge.value());
    }

    /// Seeks to the version of `self.key` that the reader sees, then moves before all versions. Returns true if the key
    /// has a value.
    #[cold]
    fn decide(&mut self, run: &DeadRun) -> Result<bool> {
        let key = std::mem::take(&mut self.key);
        self.merge.seek(KeyRef::new(&key, Trailer::NEWEST))?;
        if self.merge.valid() && self.merge.key().user == key && self.merge.key().trailer.sequence() > self.sequence {
            self.search.meet_newer(run, &key);
            self.merge.seek(KeyRef::new(&key, Trailer::seek(self.sequence)))?;
        }
        let mut alive = false;
        if self.merge.valid() && self.merge.key().user == key {
            let trailer = self.merge.key().trailer;
            let is_covered =
                !self.tombstones.is_empty() && self.covered(&key, trailer.sequence(), self.merge.rank()).is_some();
            match trailer.kind() {
                Some(kind @ (KeyKind::Put | KeyKind::ValueHandle)) => {
                    alive = !is_covered;
                    self.copy_value(kind);
                }
                Some(KeyKind::Delete) => {}
                kind => return Err(unexpected_kind(&key, kind)),
            }
        }
        self.before(Some(&key))?;
        self.key = key;
        Ok(alive)
    }

    /// Leaves the gap in which the merge stands, or begins to watch for one. `self.key` has no visible version.
    #[cold]
    fn look_backward(&mut self, run: &mut DeadRun) -> Result<()> {
        run.has_looked();
        let here = self.merge.key().user;
        if let Some(gap) = self.known.before(&self.view, Some(&behind(here)), self.sequence) {
            self.search.will_jump(&self.known, run, here);
            return self.leave_backward(gap.begin.clone(), run);
        }
        let end = self.search.watch(&self.known, &self.view, self.key.clone(), self.lower.clone());
        // All sources are searched again: they may have got entries since they were.
        if let Some(end) = end { self.before(end.as_deref()) } else { Ok(()) }
    }

    /// Finds the newest source whose range tombstone hides an entry. Returns its index in `tombstones`, and the
    /// tombstone.
    fn covered(&self, user: &[u8], sequence: u64, rank: usize) -> Option<(usize, &RangeTombstone)> {
        self.tombstones.iter().enumerate().take_while(|(_, t)| t.rank <= rank).find_map(|(source, t)| {
            let covering = t.index.covering(user, self.sequence)?;
            (covering.sequence > sequence).then_some((source, covering))
        })
    }

    /// Returns the end of a range tombstone and of those of its source that adjoin it, and the number of these
    /// tombstones.
    fn end_of_cover(&self, source: usize, tombstone: &RangeTombstone) -> (Vec<u8>, u64) {
        let index = &self.tombstones[source].index;
        let (mut end, mut tombstones) = (&tombstone.end, 1);
        while let Some(next) = index.covering(end, self.sequence) {
            (end, tombstones) = (&next.end, tombstones + 1);
        }
        (end.clone(), tombstones)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            Some(key) => write!(f, "Cursor(at {})", Excerpt(key)),
            None => f.write_str("Cursor(nowhere)"),
        }
    }
}
