//! Physical space: on a drive that compresses, it can end while logical space remains.
//!
//! A drive that is out of physical space fails writes that a file system has accepted. A failed sync of the log makes a store
//! read-only. So the store refuses writes *before* that, while the drive has enough for what the store has accepted already.
//!
//! # Algorithm
//!
//! 1. A *sample* asks each disk that compresses how much physical space is left. `needed` is what the store may still have to write:
//!    what it has in memory, the log of it as far as it lies in the page cache, and what running compactions have promised to
//!    write. `slack` is a share of the drive ([`slack`]).
//! 2. [`judge`] makes a level of it. Below the low-water mark, the store is told to warn. With less than `needed` and the slack, puts
//!    are refused. With less than `needed` and half of the slack, deletions are refused, too.
//! 3. A sample also says how many bytes the log may take until the next one ([`allowance`]): each byte may cost a byte in the log
//!    and another where it goes from there. A writer for which nothing is left takes a sample itself.
//! 4. A thread of the store takes a sample once a second while something is written, and while space is low. So the store goes on by
//!    itself when space returns. An idle store with enough space is not woken.
//! 5. What the store has accepted is never refused: it is part of `needed`.
//! 6. A compaction begins if its output fits beside a quarter of the slack ([`PhysicalSpace::promise`]); otherwise it fails as on a
//!    full disk, and is tried again. Its output is as long as its inputs at most. If that does not fit, an estimate counts that
//!    takes tombstones into account. A compaction that exceeds the estimate ends before the drive does ([`Promise::written`]).
//!
//! **Invariants.** A store on disks that do not compress takes no sample, and its writes pay for one load of a flag.
//! **Threads.** Any. Samples are judged one after another. Nothing is held while a disk is asked, and while the store is told.
//! **Failure.** A disk that does not answer says nothing, and holds nobody back.
//! **Rejected.** To let writes wait for space: nobody knows when it will come. To watch by time alone: a fast writer fills within a
//! second what was left. To let compactions write until the drive fails them: they would do so again and again, and wear it out.

use situ_device::{Clock, Space, lock};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The slack is this share of the drive,
const SLACK_SHARE: u64 = 16;
/// and not more than this. Half of it is for compactions, which are to give space back.
const SLACK_BYTES_MAX: u64 = 1 << 30;
/// The low-water mark is this share of the drive above all that the store may need for memtables, and the slack.
const LOW_WATER_SHARE: u64 = 10;
/// A sample is older than so many bytes of log at most.
const ALLOWANCE_BYTES_MAX: u64 = 64 << 20;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// How much physical space is left, seen from what the store needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PhysicalLevel {
    /// Enough, or nobody knows.
    Plenty,
    /// Below the low-water mark. Everything goes on.
    Low,
    /// Puts are refused, deletions are taken.
    DeletionsOnly,
    /// All writes are refused.
    Exhausted,
}

impl PhysicalLevel {
    /// As metrics show it: 0 is plenty, 3 is exhausted.
    pub fn number(self) -> u64 {
        self as u64
    }
}

const LEVELS: [PhysicalLevel; 4] =
    [PhysicalLevel::Plenty, PhysicalLevel::Low, PhysicalLevel::DeletionsOnly, PhysicalLevel::Exhausted];

/// The physical space of the disk that has the least, as of the last sample. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhysicalSpaceProperties {
    /// Where the disk is.
    pub location: String,
    /// What follows from it.
    pub level: PhysicalLevel,
    /// Left on the drive.
    pub free_bytes: u64,
    /// The drive has in all.
    pub total_bytes: u64,
    /// With less than this, puts are refused.
    pub reserve_bytes: u64,
}

/// What the store may still have to write, in bytes, apart from compactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// As it is now.
    pub now: u64,
    /// With as much in memory as there may be.
    pub at_most: u64,
}

/// The level has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalChange {
    /// Where the disk is that has the least.
    pub location: String,
    /// Left on the drive.
    pub free_bytes: u64,
    /// The drive has in all.
    pub total_bytes: u64,
    /// The level before.
    pub before: PhysicalLevel,
    /// The level now.
    pub after: PhysicalLevel,
}

/// Why a write is refused: too little physical space. Its text says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalShortage {
    /// Where the disk is.
    pub location: String,
    /// Physical bytes that the drive has left.
    pub free_bytes: u64,
    /// With less than this, the store takes no puts.
    pub reserve_bytes: u64,
}

impl fmt::Display for PhysicalShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PhysicalShortage { location, free_bytes, reserve_bytes } = self;
        write!(
            f,
            "too little physical space: the drive below {location} compresses and has {free_bytes} bytes left, of which the \
             store keeps {reserve_bytes} to finish what it has accepted. Logical space may remain. Delete data, or free space \
             on the drive, and write again: the store recovers by itself"
        )
    }
}

impl PhysicalSpaceProperties {
    /// Why writes are refused, while they are.
    pub fn refusal(&self) -> Option<String> {
        let PhysicalSpaceProperties { location, free_bytes, reserve_bytes, level, .. } = self;
        (*level >= PhysicalLevel::DeletionsOnly).then(|| {
            format!(
                "writes are refused: the drive below {location} has {free_bytes} bytes of physical space left, of which the store \
                 keeps {reserve_bytes}"
            )
        })
    }
}

/// One disk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    free: u64,
    total: u64,
    /// What the store may still have to write,
    needed: u64,
    /// and at most, apart from compactions.
    needed_at_most: u64,
}

fn slack(total: u64) -> u64 {
    (total / SLACK_SHARE).min(SLACK_BYTES_MAX)
}

impl Sample {
    /// With less, puts are refused.
    fn reserve(&self) -> u64 {
        self.needed.saturating_add(slack(self.total))
    }

    /// It does not move with memtables and compactions, which come and go within seconds.
    fn low_water(&self) -> u64 {
        let most = self.needed_at_most.min(self.total / 4);
        slack(self.total).saturating_add(most).saturating_add(self.total / LOW_WATER_SHARE)
    }

    /// With less, all writes are refused.
    fn last_reserve(&self) -> u64 {
        self.needed.saturating_add(slack(self.total) / 2)
    }

    /// What a compaction may write.
    fn for_compactions(&self) -> u64 {
        self.free.saturating_sub(self.needed.saturating_add(slack(self.total) / 4))
    }
}

/// The level after a sample. A level that was reached is left only when there is a quarter of the slack more than its bound.
fn judge(before: PhysicalLevel, sample: &Sample) -> PhysicalLevel {
    let more = slack(sample.total) / 4;
    let is_below = |level, bound: u64| {
        let stays = if before >= level { more } else { 0 };
        sample.free < bound.saturating_add(stays)
    };
    let bounds = [
        (PhysicalLevel::Exhausted, sample.last_reserve()),
        (PhysicalLevel::DeletionsOnly, sample.reserve()),
        (PhysicalLevel::Low, sample.low_water()),
    ];
    let reached = bounds.into_iter().find(|(level, bound)| is_below(*level, *bound));
    reached.map_or(PhysicalLevel::Plenty, |(level, _)| level)
}

/// How many bytes of records may be written after a sample, as far as space is concerned.
fn allowance(level: PhysicalLevel, sample: &Sample) -> u64 {
    let kept = match level {
        PhysicalLevel::Exhausted => return 0,
        PhysicalLevel::DeletionsOnly => sample.last_reserve(),
        PhysicalLevel::Plenty | PhysicalLevel::Low => sample.reserve(),
    };
    // Close to the bound, a sample for every few records would help nobody: the slack bears it.
    let least = slack(sample.total) / 16;
    (sample.free.saturating_sub(kept) / 2).max(least)
}

/// A disk that compresses, and how it is asked.
pub struct WatchedDisk {
    /// Where it is, for messages.
    pub location: String,
    /// Its space now.
    pub ask: Box<dyn Fn() -> Space + Send + Sync>,
}

impl fmt::Debug for WatchedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedDisk").field("location", &self.location).finish_non_exhaustive()
    }
}

/// What the last sample has brought.
struct Judged {
    level: PhysicalLevel,
    at: Duration,
    tightest: Option<(usize, Sample)>,
}

/// What the store has in memory.
type Needing = Box<dyn Fn() -> Needs + Send + Sync>;
/// Hears of other levels.
type Telling = Box<dyn Fn(PhysicalChange) + Send + Sync>;

/// The physical space of a store's disks. See the module's documentation.
pub struct PhysicalSpace {
    clock: Arc<dyn Clock>,
    disks: Vec<WatchedDisk>,
    needs: Needing,
    tells: Telling,
    judged: Mutex<Judged>,
    /// Its number, as in [`LEVELS`]; the value in `judged` for those who may not wait.
    level: AtomicU8,
    /// Bytes of all records since the store was opened.
    spent: AtomicU64,
    /// With more than so many, a sample is needed.
    limit: AtomicU64,
    /// At so many, the store's thread is woken for one.
    wake_at: AtomicU64,
    /// Something was written since the last sample.
    is_used: AtomicBool,
    /// What running compactions may still write.
    promised: AtomicU64,
}

impl fmt::Debug for PhysicalSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhysicalSpace")
            .field("disks", &self.disks)
            .field("level", &self.level())
            .finish_non_exhaustive()
    }
}

impl PhysicalSpace {
    /// Watches disks, which are those that compress. `needs` says what the store has in memory, and `tells` hears of other levels; both
    /// are called with no lock held.
    pub fn new(
        clock: Arc<dyn Clock>,
        disks: Vec<WatchedDisk>,
        needs: impl Fn() -> Needs + Send + Sync + 'static,
        tells: impl Fn(PhysicalChange) + Send + Sync + 'static,
    ) -> PhysicalSpace {
        PhysicalSpace {
            clock,
            disks,
            needs: Box::new(needs),
            tells: Box::new(tells),
            judged: Mutex::new(Judged { level: PhysicalLevel::Plenty, at: Duration::ZERO, tightest: None }),
            level: AtomicU8::new(0),
            spent: AtomicU64::new(0),
            // The first write takes a sample.
            limit: AtomicU64::new(0),
            wake_at: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            promised: AtomicU64::new(0),
        }
    }

    #[inline]
    fn watches(&self) -> bool {
        !self.disks.is_empty()
    }

    /// The level as of the last sample.
    pub fn level(&self) -> PhysicalLevel {
        LEVELS[usize::from(self.level.load(Ordering::Acquire)) % LEVELS.len()]
    }

    /// Whether there is less space than the low-water mark, as of the last sample.
    pub fn is_low(&self) -> bool {
        self.level() != PhysicalLevel::Plenty
    }

    /// Whether a write of so many bytes may begin: `Some(true)`. `Some(false)`: not before a sample was taken. `None`: it is refused.
    #[inline]
    pub fn takes(&self, bytes: u64, deletes_only: impl FnOnce() -> bool) -> Option<bool> {
        if !self.watches() {
            return Some(true);
        }
        let is_taken = match self.level() {
            PhysicalLevel::Plenty | PhysicalLevel::Low => true,
            PhysicalLevel::DeletionsOnly => deletes_only(),
            PhysicalLevel::Exhausted => false,
        };
        let would_be_spent = || self.spent.load(Ordering::Acquire).saturating_add(bytes);
        is_taken.then(|| would_be_spent() <= self.limit.load(Ordering::Acquire))
    }

    /// A write of so many bytes begins. True if the store's thread is to be woken, for a sample.
    #[inline]
    pub fn used(&self, bytes: u64) -> bool {
        if !self.watches() {
            return false;
        }
        let before = self.spent.fetch_add(bytes, Ordering::AcqRel);
        let wake_at = self.wake_at.load(Ordering::Acquire);
        let is_first = !self.is_used.swap(true, Ordering::AcqRel);
        is_first || before < wake_at && before.saturating_add(bytes) >= wake_at
    }

    /// What is said of too little space.
    pub fn shortage(&self) -> PhysicalShortage {
        let judged = lock(&self.judged);
        let nothing = Sample { free: 0, total: 0, needed: 0, needed_at_most: 0 };
        let (disk, sample) = judged.tightest.unwrap_or((0, nothing));
        PhysicalShortage { location: self.location(disk), free_bytes: sample.free, reserve_bytes: sample.reserve() }
    }

    fn location(&self, disk: usize) -> String {
        self.disks.get(disk).map(|disk| disk.location.clone()).unwrap_or_default()
    }

    /// Takes a sample for a write of so many bytes.
    ///
    /// # Errors
    /// There is no space for it.
    pub fn make_way(&self, bytes: u64) -> Result<(), PhysicalShortage> {
        let spent = self.spent.load(Ordering::Acquire);
        if self.sample() >= bytes {
            // Of a long write, also beyond what others may write until the next sample.
            self.limit.fetch_max(spent.saturating_add(bytes), Ordering::AcqRel);
            return Ok(());
        }
        Err(self.shortage())
    }

    /// Takes a sample if it is time for one. Called by the store's thread.
    pub fn look(&self) {
        if self.next_sample_in().is_some_and(|left| left.is_zero()) {
            self.sample();
        }
    }

    /// How long until the next sample; `None` if nothing calls for one.
    pub fn next_sample_in(&self) -> Option<Duration> {
        let is_wanted = self.watches() && (self.is_used.load(Ordering::Acquire) || self.is_low());
        let due = lock(&self.judged).at + SAMPLE_EVERY;
        is_wanted.then(|| due.saturating_sub(self.clock.now()))
    }

    /// Asks the disks, tells what has changed, and returns how many bytes of records may be written.
    fn sample(&self) -> u64 {
        // First: what is written from now on is not in the figures.
        self.is_used.store(false, Ordering::Release);
        let spent = self.spent.load(Ordering::Acquire);
        let needs = (self.needs)();
        let needed = needs.now.saturating_add(self.promised.load(Ordering::Acquire));
        let needed_at_most = needs.at_most;
        let asked = self.disks.iter().enumerate().filter_map(|(number, disk)| {
            let space = (disk.ask)();
            let (free, total) = (space.physical_free()?, space.physical_total?);
            Some((number, Sample { free, total, needed, needed_at_most }))
        });
        let tightest = asked.min_by_key(|(_, sample)| sample.free.saturating_sub(sample.reserve()));
        let (before, after, allowance) = self.judge(tightest, spent);
        if before != after {
            self.tell(before, after, tightest);
        }
        allowance
    }

    /// The levels before and after, and the allowance. `spent` was read before the disks were asked. Of two samples at a time, either
    /// limit holds.
    fn judge(&self, tightest: Option<(usize, Sample)>, spent: u64) -> (PhysicalLevel, PhysicalLevel, u64) {
        let mut judged = lock(&self.judged);
        let before = judged.level;
        let after = tightest.map_or(PhysicalLevel::Plenty, |(_, sample)| judge(before, &sample));
        let allowed = tightest.map_or(u64::MAX, |(_, sample)| allowance(after, &sample));
        *judged = Judged { level: after, at: self.clock.now(), tightest };
        self.level.store(after as u8, Ordering::Release);
        let until_next = allowed.min(ALLOWANCE_BYTES_MAX);
        self.wake_at.store(spent.saturating_add(until_next / 2), Ordering::Release);
        self.limit.store(spent.saturating_add(until_next), Ordering::Release);
        (before, after, allowed)
    }

    fn tell(&self, before: PhysicalLevel, after: PhysicalLevel, tightest: Option<(usize, Sample)>) {
        let location = tightest.map(|(disk, _)| self.location(disk)).unwrap_or_default();
        let (free_bytes, total_bytes) = tightest.map_or((0, 0), |(_, sample)| (sample.free, sample.total));
        (self.tells)(PhysicalChange { location, free_bytes, total_bytes, before, after });
    }

    /// Lets a compaction begin that will write about so many bytes, and at most so many.
    ///
    /// # Errors
    /// They would not fit beside what the store needs for other things.
    pub fn promise(self: &Arc<Self>, about: u64, at_most: u64) -> Result<Promise, PhysicalShortage> {
        let promise =
            |bytes| Promise { space: Arc::clone(self), left: AtomicU64::new(bytes), is_broken: AtomicBool::new(false) };
        if !self.watches() {
            return Ok(promise(0));
        }
        self.sample();
        let space = self.space_for_compactions();
        let Some(bytes) = [at_most, about].into_iter().find(|bytes| *bytes <= space) else {
            return Err(self.shortage());
        };
        self.promised.fetch_add(bytes, Ordering::AcqRel);
        Ok(promise(bytes))
    }

    /// As of the last sample.
    fn space_for_compactions(&self) -> u64 {
        lock(&self.judged).tightest.map_or(u64::MAX, |(_, sample)| sample.for_compactions())
    }

    /// `None` of a store on disks that do not tell.
    pub fn properties(&self) -> Option<PhysicalSpaceProperties> {
        let judged = lock(&self.judged);
        let (disk, sample) = judged.tightest?;
        Some(PhysicalSpaceProperties {
            location: self.disks.get(disk)?.location.clone(),
            level: judged.level,
            free_bytes: sample.free,
            total_bytes: sample.total,
            reserve_bytes: sample.reserve(),
        })
    }
}

/// What a compaction may still write. Given up on drop.
#[derive(Debug)]
pub struct Promise {
    space: Arc<PhysicalSpace>,
    left: AtomicU64,
    is_broken: AtomicBool,
}

impl Promise {
    /// So many bytes were written: the drive has them. What is more than was promised needs space that is still there.
    pub fn written(&self, bytes: u64) {
        if !self.space.watches() || self.keep(bytes) {
            return;
        }
        self.space.sample();
        if self.space.space_for_compactions() == 0 {
            self.is_broken.store(true, Ordering::Release);
        }
    }

    /// Whether the compaction has to end, because it writes more than was promised and there is no space for it.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Takes bytes off what is left; false if there were not so many.
    fn keep(&self, bytes: u64) -> bool {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or(0);
        self.space.promised.fetch_sub(before.min(bytes), Ordering::AcqRel);
        before >= bytes
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(u64::MAX);
    }
}

#[cfg(test)]
mod tests;
