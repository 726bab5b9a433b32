//! Trimming: dead bytes stop taking space before their segment is collected.
//!
//! [`ValueLog::tidy`] is for a background thread of the owner: no other thread waits for it. One call does a bounded
//! part:
//!
//! 1. A segment whose writer has ended without sealing it is sealed (`open.rs`).
//! 2. Sectors with new deaths are looked at, one segment after another. Let `V` be the bytes of a sector that may be
//!    alive, and `W` the dead bytes in it that still wait. If `V` is 0, the sector is discarded. Where the disk cannot
//!    discard, zeros are written instead if trimming is full.
//! 3. If trimming is full, and `(V + W) / V` reaches [`Options::zero_at_percent`](crate::Options), the sector is
//!    *ripe*. For a sector that was never trimmed this is the paper's rule, 4096 / `V`.
//! 4. While the adjusted inflation is above [`Options::zero_above_percent`](crate::Options), ripe sectors are zeroed:
//!    each is read, its dead bytes become zeros, and it is written in place. The oldest segment comes first: what still
//!    lives there will live longest, so its sectors are the last ones that would become free by themselves.
//!
//! **Invariants**
//! - Only sealed segments are trimmed. The trailer is durable then, so no recovery has to go from record to record.
//! - Only bytes that the owner called dead are changed. A write over live bytes writes the bytes that were read there.
//!
//! **A reader at the same time.** Nothing is locked between readers and trimming. A write of a sector replaces live
//! bytes by the same bytes. So a reader of a live record gets the same bytes from the old sector, from the new one, and
//! from any mixture of the two. A mixture is possible, as neither a page cache nor a drive promises more than 512
//! bytes. A discarded sector has no live byte. Readers of dead records do not exist: the owner has said so.
//!
//! **A crash at the same time.** The same argument: a torn write leaves each 512-byte sector old or new, and even one
//! torn inside has the live bytes that both have. Trims need not be durable. Trims that a crash undoes are garbage
//! again, and collection finds it.
//!
//! **Threads**: one thread at a time tidies; a second one returns at once. Writers, readers and owners go on meanwhile.
//! No lock is held across I/O.
//!
//! **Failure**: an error of a read or a write leaves the sectors of that step untrimmed, and they count as garbage. A
//! read that gives wrong bytes without an error is the one danger: they would be written. Checksums of records find it
//! at the next read.
//!
//! **Rejected**: zeroing at once, whatever the space. A sector that is half dead now may be dead as a whole later, and
//! is then free without any write. [Measured](../../../docs/evidence/trimming.md). **Rejected**: a page lock that
//! readers take. They would pay for something that cannot hurt them.

use crate::Result;
use crate::counters::add;
use crate::dead::Ranges;
use crate::format::SECTOR_BYTES;
use crate::log::ValueLog;
use crate::options::Trim;
use crate::segment::{Duties, Segment, State};
use situ_base::lock;
use situ_storage::{Buffer, FileName, PageFile};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of sectors that one call looks at.
const LOOK_SECTORS: usize = 4096;
/// The number of sectors that one call zeroes.
const ZERO_SECTORS: usize = 64;
/// The number of adjacent sectors that are read and written at a time.
const RUN_SECTORS: u32 = 16;

impl ValueLog {
    /// Does a bounded part of what was put off: sealing, discarding, zeroing. True if there is more to do now.
    ///
    /// # Errors
    /// I/O. A step that failed is not tried again until something new dies there. A segment that could not be sealed is
    /// sealed by the next opening; until then it can be read. If the disk was full, the next call tries once more.
    pub fn tidy(&self) -> Result<bool> {
        if self.options.read_only || self.tidying.swap(true, Ordering::Acquire) {
            return Ok(false);
        }
        let _turn = Turn(&self.tidying);
        self.tidy_alone()
    }

    /// Returns true if something has died that [`tidy`](ValueLog::tidy) has not looked at yet.
    pub fn has_trims(&self) -> bool {
        self.options.trim != Trim::Off && !self.options.read_only && !lock(&self.duties).fresh.is_empty()
    }

    fn tidy_alone(&self) -> Result<bool> {
        match self.seal_next() {
            // Trimming may give it space.
            Err(error) if error.is_no_space() => {
                self.trim_some().and_then(|has_worked| has_worked.then_some(true).ok_or(error))
            }
            Ok(false) => self.trim_some(),
            sealed => sealed,
        }
    }

    /// Does step 1 for one segment. The next call tries again if a full disk has refused.
    fn seal_next(&self) -> Result<bool> {
        let Some(segment) = self.next(|duties| duties.abandoned.pop_first()) else { return Ok(false) };
        let sealed = self.seal_abandoned(&segment);
        if sealed.as_ref().is_err_and(|error| error.is_no_space()) {
            self.change(&segment, |_| ());
        }
        sealed.map(|()| true)
    }

    fn trim_some(&self) -> Result<bool> {
        if self.options.trim == Trim::Off {
            return Ok(false);
        }
        if let Some(segment) = self.next(|duties| duties.fresh.pop_first()) {
            return self.look_at(&segment).map(|()| true);
        }
        let is_wanted = || self.inflation().adjusted_percent() > u64::from(self.options.zero_above_percent);
        if lock(&self.duties).ripe.is_empty() || !is_wanted() {
            return Ok(false);
        }
        match self.next(|duties| duties.ripe.pop_first()) {
            Some(segment) => self.zero_some(&segment).map(|()| true),
            None => Ok(false),
        }
    }

    /// Takes the next segment from the duties and returns it, if it is still there. A segment with work left goes back
    /// to the duties.
    fn next(&self, take: impl Fn(&mut Duties) -> Option<u64>) -> Option<Arc<Segment>> {
        loop {
            let number = take(&mut lock(&self.duties))?;
            if let Some(segment) = self.find(number) {
                return Some(segment);
            }
        }
    }

    /// Does steps 2 and 3 for one segment.
    fn look_at(&self, segment: &Segment) -> Result<()> {
        let percent = (self.options.trim == Trim::Full).then_some(self.options.zero_at_percent);
        let dead = self.change(segment, |state| state.take_fresh(percent, LOOK_SECTORS));
        if dead.is_empty() {
            return Ok(());
        }
        let file = self.volume.open_pages(FileName::Values(segment.identity.segment))?;
        let mut gone = Vec::new();
        let outcome = runs(&dead, u32::MAX).into_iter().try_for_each(|run| {
            if self.discard(&*file, &run)? {
                add(&self.meters.discarded, u64::from(run.end - run.start) * SECTOR_BYTES);
                gone.push(bytes_of(&run));
            }
            Ok(())
        });
        // All at once: each call goes over all ranges of the segment.
        self.change(segment, |state| state.trimmed(&Ranges::of(gone)));
        outcome
    }

    /// Discards sectors. Returns true if the sectors take no space any more.
    fn discard(&self, file: &dyn PageFile, run: &Range<u32>) -> Result<bool> {
        let (first, count) = (u64::from(run.start), u64::from(run.end - run.start));
        if !self.cannot_discard.load(Ordering::Relaxed) {
            if file.discard(first, count)? {
                return Ok(true);
            }
            self.cannot_discard.store(true, Ordering::Relaxed);
        }
        if self.options.trim != Trim::Full {
            return Ok(false);
        }
        let zeros = Buffer::new((RUN_SECTORS as usize) * SECTOR_BYTES as usize);
        for part in runs(&run.clone().collect(), RUN_SECTORS) {
            file.write(u64::from(part.start), &zeros, part.len(), false)?;
            add(&self.meters.zeroed, part.len() as u64 * SECTOR_BYTES);
        }
        Ok(true)
    }

    /// Does step 4 for one segment.
    fn zero_some(&self, segment: &Segment) -> Result<()> {
        let ripe = self.change(segment, |state| state.take_ripe(ZERO_SECTORS));
        let file = self.volume.open_pages(FileName::Values(segment.identity.segment))?;
        let mut gone = Vec::new();
        let outcome = runs(&ripe, RUN_SECTORS).into_iter().try_for_each(|run| {
            gone.extend(self.zero(segment, &*file, &run)?.iter());
            Ok(())
        });
        self.change(segment, |state| state.trimmed(&Ranges::of(gone)));
        outcome
    }

    /// Zeroes the dead bytes of sectors. Returns the bytes that are zeros now.
    fn zero(&self, segment: &Segment, file: &dyn PageFile, run: &Range<u32>) -> Result<Ranges> {
        let bytes = run.len() as u64 * SECTOR_BYTES;
        let range = bytes_of(run);
        let dead = {
            let state = lock(&segment.state);
            Ranges::of(state.waiting.overlaps(&range).chain(state.gone.overlaps(&range)))
        };
        let mut buffer = Buffer::new(bytes as usize);
        file.read_at(u64::from(range.start), &mut buffer[..bytes as usize])?;
        add(&self.meters.zeroing_read, bytes);
        for part in dead.iter() {
            buffer[(part.start - range.start) as usize..(part.end - range.start) as usize].fill(0);
        }
        file.write(u64::from(run.start), &buffer, run.len(), false)?;
        add(&self.meters.zeroed, bytes);
        Ok(dead)
    }
}

/// The right to tidy; given back on drop, also after a panic.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Returns the bytes of some sectors.
fn bytes_of(sectors: &Range<u32>) -> Range<u32> {
    let sector = SECTOR_BYTES as u32;
    sectors.start * sector..sectors.end * sector
}

/// Groups adjacent sectors, at most `most` in one group.
fn runs(sectors: &BTreeSet<u32>, most: u32) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for &sector in sectors {
        match runs.last_mut().filter(|run| run.end == sector && run.end - run.start < most) {
            Some(run) => run.end += 1,
            None => runs.push(sector..sector + 1),
        }
    }
    runs
}

impl State {
    /// Looks at sectors with new deaths. Those without a live byte are returned. With `percent`, those that are ripe by
    /// that rule are kept for later.
    fn take_fresh(&mut self, percent: Option<u32>, most: usize) -> BTreeSet<u32> {
        let later = self.fresh.iter().nth(most).copied();
        let now = match later {
            Some(first) => {
                let later = self.fresh.split_off(&first);
                std::mem::replace(&mut self.fresh, later)
            }
            None => std::mem::take(&mut self.fresh),
        };
        let (mut dead, mut ripe) = (BTreeSet::new(), BTreeSet::new());
        for sector in now {
            let (live, waiting) = self.live_and_waiting(sector);
            if live == 0 {
                dead.insert(sector);
            } else if percent.is_some_and(|percent| (live + waiting) * 100 >= live * u64::from(percent)) {
                ripe.insert(sector);
            }
        }
        self.ripe.retain(|sector| !dead.contains(sector));
        self.ripe.append(&mut ripe);
        dead
    }

    /// Takes ripe sectors, which are ripe no more.
    fn take_ripe(&mut self, most: usize) -> BTreeSet<u32> {
        let later = self.ripe.iter().nth(most).copied();
        let later = later.map(|first| self.ripe.split_off(&first)).unwrap_or_default();
        std::mem::replace(&mut self.ripe, later)
    }

    /// Returns the bytes of a sector that may be alive, and dead ones that still wait.
    fn live_and_waiting(&self, sector: u32) -> (u64, u64) {
        let mut range = bytes_of(&(sector..sector + 1));
        range.end = range.end.min(self.data_end.next_multiple_of(crate::format::ALIGN) as u32);
        let (waiting, gone) = (self.waiting.bytes_in(&range), self.gone.bytes_in(&range));
        (u64::from(range.end - range.start) - waiting - gone, waiting)
    }

    /// Notes that these bytes are zeros now.
    fn trimmed(&mut self, dead: &Ranges) {
        let left = self.waiting.without(dead);
        let moved = self.waiting.without(&left);
        self.trimmed_bytes += moved.bytes();
        self.gone = self.gone.union(&moved);
        self.waiting = left;
    }
}
