//! Space: a store refuses puts before a disk is full, so that it can finish what it has accepted, and deletions lead
//! out of it.
//!
//! Two kinds of space end:
//!
//! * *Logical* space, of any disk. A flush without space keeps its memtable, and the memtable keeps its log files. A
//!   store that waits for the first `ENOSPC` may have no room left for the flush or the compaction that would free
//!   some.
//! * *Physical* space, of a drive that compresses. It can end while logical space remains. A drive that is out of
//!   physical space fails writes that a file system has accepted, and a failed sync of the log makes a store read-only.
//!
//! # Algorithm
//!
//! 1. A *sample* asks each disk how much space is left. `needed` is what the store may still have to write. It is the
//!    sum of the bytes in memory, the bytes that running compactions have promised to write, and, for physical space,
//!    the log of memory as far as it lies in the page cache. (A log file takes its logical space when it is made.) The
//!    `slack` is for deletions and compactions: a share of the disk, at most [`SLACK_BYTES_MAX`]. Of logical space it
//!    is no more than a share of what the store holds, or [`LOGICAL_SLACK_BYTES_MIN`]. A small store on a large, nearly
//!    full disk goes on.
//! 2. [`judge`] makes a level of it. Below the low-water mark, the store gets a notification so that it can warn. With
//!    less than `needed` and the slack, puts are refused. With less than `needed` and half of the slack, deletions are
//!    refused, too, apart from the few that free much at once ([`SpaceUse::Release`]).
//! 3. A sample also says how many bytes the log may take until the next one ([`allowance`]). Each byte may cost a byte
//!    in the log and another where it goes from there. A writer for which nothing is left takes a sample itself.
//! 4. A thread of the store takes a sample once a second while space is short, and, of physical space, while something
//!    is written and while space is low. So the store goes on by itself when space returns. An idle store with enough
//!    space is not woken.
//! 5. What the store has accepted is never refused: it is part of `needed`.
//! 6. A compaction begins if its output fits in addition to a quarter of the slack ([`SpaceWatch::promise`]). Otherwise
//!    it fails as on a full disk, and is tried again. Its output is as long as its inputs at most. If that does not
//!    fit, an estimate counts that takes tombstones into account. A compaction that exceeds the estimate ends before
//!    the disk does ([`Promise::written`]).
//!
//! **Invariants.** A store on disks that do not say what they have takes no sample, and its writes pay for one load of
//! a flag.
//! **Threads.** Any. Samples are judged one after another. No lock is held while a disk is asked, and while the store
//! is notified.
//! **Failure.** A disk that does not answer says nothing, and holds no writer back. A quota that the disk does not tell
//! of shows itself as `ENOSPC`.
//! **Rejected.** To let writes wait for space: the time of its return is unknown. To watch by time alone: a fast writer
//! fills within a second what was left. To let compactions write until the drive fails them: they would do so again and
//! again, wear it out, and take the space of its other users.

use situ_base::{Clock, lock};
use situ_device::Space;
use situ_log::Log;
use situ_storage::Error as StorageError;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The slack is this share of the drive,
const SLACK_SHARE: u64 = 16;
/// and not more than this. Half of it is for compactions, which are to give space back.
const SLACK_BYTES_MAX: u64 = 1 << 30;
/// The low-water mark of physical space is this share of the drive above all that the store may need for memtables, and
/// the slack.
const LOW_WATER_SHARE: u64 = 10;
/// The slack of logical space is this share of what the store holds there at most,
const STORED_SHARE: u64 = 8;
/// but this much in any case.
const LOGICAL_SLACK_BYTES_MIN: u64 = 4 << 20;
/// The maximum age of a sample, in bytes of log.
const ALLOWANCE_BYTES_MAX: u64 = 64 << 20;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// A compaction has counted this much at most that its drive does not have yet: blocks in queues, and a file's buffer.
const IN_FLIGHT_BYTES_MAX: u64 = 1 << 20;

/// A kind of space that can end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceKind {
    /// Bytes that files take, as the file system or the volume counts them.
    Logical,
    /// Bytes that a drive takes after it has compressed what is written.
    Physical,
}

/// The effect of a write on space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceUse {
    /// It takes space for good.
    Put,
    /// It takes a little now, and frees space later.
    Deletion,
    /// It is short, comes alone, and may free any amount of space.
    Release,
}

/// The space that is left, compared with the needs of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SpaceLevel {
    /// Enough, or unknown.
    Plenty,
    /// Below the low-water mark. Everything goes on.
    Low,
    /// Puts are refused, deletions are taken.
    DeletionsOnly,
    /// All writes are refused, apart from [`SpaceUse::Release`].
    Exhausted,
}

impl SpaceLevel {
    /// Returns the level as metrics show it: 0 is plenty, 3 is exhausted.
    pub fn number(self) -> u64 {
        self as u64
    }
}

const LEVELS: [SpaceLevel; 4] = [SpaceLevel::Plenty, SpaceLevel::Low, SpaceLevel::DeletionsOnly, SpaceLevel::Exhausted];

/// The space of the disk that has the least, as of the last sample. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceProperties {
    /// The location of the disk.
    pub location: String,
    /// The kind of space that is the scarcest.
    pub kind: SpaceKind,
    /// The level that follows from it.
    pub level: SpaceLevel,
    /// Left on the disk.
    pub free_bytes: u64,
    /// The disk has in all.
    pub total_bytes: u64,
    /// The space below which puts are refused.
    pub reserve_bytes: u64,
    shortage: Option<SpaceShortage>,
}

/// The amount that the store may still have to write, in bytes, apart from compactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes in memory, which go from there to their place on disk.
    pub now: u64,
    /// As much again may be in the log without being on the drive yet.
    pub in_log: u64,
    /// All of it with as much in memory as there may be.
    pub at_most: u64,
    /// Held on disk, apart from the log.
    pub stored: u64,
    /// Logical space on other disks, for what has none on the watched one.
    pub elsewhere: u64,
}

/// The level has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceChange {
    /// The location of the disk that has the least.
    pub location: String,
    /// The kind of space that is the scarcest.
    pub kind: SpaceKind,
    /// Left on the disk.
    pub free_bytes: u64,
    /// The disk has in all.
    pub total_bytes: u64,
    /// The level before.
    pub before: SpaceLevel,
    /// The level now.
    pub after: SpaceLevel,
}

impl fmt::Display for SpaceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpaceChange { location, kind, free_bytes, total_bytes, before, after } = self;
        let (disk, space) = match kind {
            SpaceKind::Logical => ("", ""),
            SpaceKind::Physical => ("the drive below ", " of physical space"),
        };
        let what = match after {
            SpaceLevel::Plenty => "all writes go on",
            SpaceLevel::Low if *before > SpaceLevel::Low => "space is low, and all writes go on again",
            SpaceLevel::Low => "space is low; free some before the store has to refuse writes",
            SpaceLevel::DeletionsOnly => "writes that do not only delete are refused",
            SpaceLevel::Exhausted => "all writes are refused",
        };
        write!(f, "{what}: {disk}{location} has {free_bytes} of {total_bytes} bytes{space} left")
    }
}

/// The reason why a write is refused: too little space. Its text says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceShortage {
    /// The location of the disk.
    pub location: String,
    /// The kind of space that is short.
    pub kind: SpaceKind,
    /// Bytes that the disk has left.
    pub free_bytes: u64,
    /// The space below which the store takes no puts.
    pub reserve_bytes: u64,
    /// The additional bytes with which the write will be taken.
    pub missing_bytes: u64,
}

impl fmt::Display for SpaceShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpaceShortage { location, kind, free_bytes, reserve_bytes, missing_bytes: missing } = self;
        match kind {
            SpaceKind::Logical => write!(
                f,
                "the disk is full: {location} has {free_bytes} bytes left, and the store keeps {reserve_bytes} for flushes, deletions and \
                 compactions. It takes this write once {missing} more bytes are free. Delete data, or free space on the disk, and \
                 write again: the store recovers by itself"
            ),
            SpaceKind::Physical => write!(
                f,
                "too little physical space: the drive below {location} compresses and has {free_bytes} bytes left, of which the \
                 store keeps {reserve_bytes} to finish what it has accepted. It takes this write once {missing} more bytes are free. \
                 Logical space may remain. Delete data, or free space on the drive, and write again: the store recovers by \
                 itself"
            ),
        }
    }
}

impl SpaceProperties {
    /// Returns the shortage for which puts are refused, while they are.
    pub fn shortage(&self) -> Option<&SpaceShortage> {
        self.shortage.as_ref()
    }
}

/// The space of one disk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    kind: SpaceKind,
    free: u64,
    total: u64,
    /// The bytes that the store may still have to write, apart from compactions.
    needed: u64,
    /// The maximum of `needed`, with as much in memory as there may be.
    needed_at_most: u64,
    /// The bytes that the store holds.
    stored: u64,
}

impl Sample {
    const NOTHING: Sample =
        Sample { kind: SpaceKind::Logical, free: 0, total: 0, needed: 0, needed_at_most: 0, stored: 0 };

    fn slack(&self) -> u64 {
        let share = (self.total / SLACK_SHARE).min(SLACK_BYTES_MAX);
        match self.kind {
            SpaceKind::Physical => share,
            SpaceKind::Logical => share.min((self.stored / STORED_SHARE).max(LOGICAL_SLACK_BYTES_MIN)),
        }
    }

    /// Returns the space below which puts are refused.
    fn reserve(&self) -> u64 {
        self.needed.saturating_add(self.slack())
    }

    /// Returns the low-water mark. That of physical space does not move with memtables and compactions, which come and
    /// go within seconds. A file system may be nearly full for years: for logical space, the distance to the reserve
    /// counts.
    fn low_water(&self) -> u64 {
        let most = self.needed_at_most.min(self.total / 4);
        match self.kind {
            SpaceKind::Physical => self.slack().saturating_add(most).saturating_add(self.total / LOW_WATER_SHARE),
            SpaceKind::Logical => self.reserve().saturating_add(self.slack()),
        }
    }

    /// Returns the space below which all writes are refused.
    fn last_reserve(&self) -> u64 {
        self.needed.saturating_add(self.slack() / 2)
    }

    /// Returns the margin above a bound beyond which its level is left again.
    fn margin(&self) -> u64 {
        self.slack() / 4
    }

    /// Returns the shortage for a put of `bytes` bytes.
    fn shortage(&self, location: String, bytes: u64) -> SpaceShortage {
        let Sample { kind, free: free_bytes, .. } = *self;
        // A byte may take one in the log, and another where it goes from there.
        let wanted = self.reserve().saturating_add(self.margin()).saturating_add(bytes.saturating_mul(2));
        let (reserve_bytes, missing_bytes) = (self.reserve(), wanted.saturating_sub(free_bytes));
        SpaceShortage { location, kind, free_bytes, reserve_bytes, missing_bytes }
    }

    /// Returns how many bytes of records that release space may be written.
    fn for_releases(&self) -> u64 {
        self.free.saturating_sub(self.needed.saturating_add(self.slack() / 8)) / 2
    }

    /// Returns the bytes that a compaction may write.
    fn for_compactions(&self) -> u64 {
        self.free.saturating_sub(self.needed.saturating_add(self.slack() / 4))
    }
}

/// Returns the level after a sample. A level that was reached is left only when there is a quarter of the slack more
/// than its bound.
fn judge(before: SpaceLevel, sample: &Sample) -> SpaceLevel {
    let more = sample.margin();
    let is_below = |level, bound: u64| {
        let stays = if before >= level { more } else { 0 };
        sample.free < bound.saturating_add(stays)
    };
    let bounds = [
        (SpaceLevel::Exhausted, sample.last_reserve()),
        (SpaceLevel::DeletionsOnly, sample.reserve()),
        (SpaceLevel::Low, sample.low_water()),
    ];
    let reached = bounds.into_iter().find(|(level, bound)| is_below(*level, *bound));
    reached.map_or(SpaceLevel::Plenty, |(level, _)| level)
}

/// Returns how many bytes of records may be written after a sample, as far as space is concerned.
fn allowance(level: SpaceLevel, sample: &Sample) -> u64 {
    let kept = match level {
        SpaceLevel::Exhausted => return 0,
        SpaceLevel::DeletionsOnly => sample.last_reserve(),
        SpaceLevel::Plenty | SpaceLevel::Low => sample.reserve(),
    };
    // Close to the bound, a sample for every few records would not help: the slack bears it.
    let least = sample.slack() / 16;
    (sample.free.saturating_sub(kept) / 2).max(least)
}

/// A disk whose space is watched, and how it is asked.
pub struct WatchedDisk {
    /// The location of the disk, for messages.
    pub location: String,
    /// The kind of space that is watched.
    pub kind: SpaceKind,
    /// Its space now.
    pub ask: Box<dyn Fn() -> Space + Send + Sync>,
}

impl fmt::Debug for WatchedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedDisk").field("location", &self.location).finish_non_exhaustive()
    }
}

/// The results of the last sample.
struct Judged {
    level: SpaceLevel,
    at: Duration,
    tightest: Option<(usize, Sample)>,
}

/// The function that returns the needs of the store.
type Needing = Box<dyn Fn() -> Needs + Send + Sync>;
/// The function that gets changes of the level.
type Telling = Box<dyn Fn(SpaceChange) + Send + Sync>;

/// The watch over the space of a store's disks. See the module's documentation.
pub struct SpaceWatch {
    clock: Arc<dyn Clock>,
    disks: Vec<WatchedDisk>,
    needs: Needing,
    tells: Telling,
    judged: Mutex<Judged>,
    /// Its number, as in [`LEVELS`]; the value in `judged` for those who may not wait.
    level: AtomicU8,
    /// Bytes of all records since the store was opened.
    spent: AtomicU64,
    /// The spent bytes above which a sample is needed.
    limit: AtomicU64,
    /// The spent bytes at which the store's thread is woken for a sample.
    wake_at: AtomicU64,
    watches_physical: bool,
    /// Something was written since the last sample; of physical space only.
    is_used: AtomicBool,
    /// The bytes that running compactions will still write, as they were promised.
    promised: AtomicU64,
    /// The bytes that they may still write if an estimate was too low.
    promised_at_most: AtomicU64,
}

impl fmt::Debug for SpaceWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceWatch").field("disks", &self.disks).field("level", &self.level()).finish_non_exhaustive()
    }
}

impl SpaceWatch {
    /// Watches disks. `needs` says what the store has in memory, and `tells` hears of other levels; both
    /// are called with no lock held.
    pub fn new(
        clock: Arc<dyn Clock>,
        disks: Vec<WatchedDisk>,
        needs: impl Fn() -> Needs + Send + Sync + 'static,
        tells: impl Fn(SpaceChange) + Send + Sync + 'static,
    ) -> SpaceWatch {
        let watches_physical = disks.iter().any(|disk| disk.kind == SpaceKind::Physical);
        SpaceWatch {
            clock,
            disks,
            needs: Box::new(needs),
            tells: Box::new(tells),
            judged: Mutex::new(Judged { level: SpaceLevel::Plenty, at: Duration::ZERO, tightest: None }),
            level: AtomicU8::new(0),
            spent: AtomicU64::new(0),
            // The first write takes a sample.
            limit: AtomicU64::new(0),
            wake_at: AtomicU64::new(0),
            watches_physical,
            is_used: AtomicBool::new(false),
            promised: AtomicU64::new(0),
            promised_at_most: AtomicU64::new(0),
        }
    }

    #[inline]
    fn watches(&self) -> bool {
        !self.disks.is_empty()
    }

    /// Returns the level as of the last sample.
    pub fn level(&self) -> SpaceLevel {
        LEVELS[usize::from(self.level.load(Ordering::Acquire)) % LEVELS.len()]
    }

    /// Returns true if there is less space than the low-water mark, as of the last sample.
    pub fn is_low(&self) -> bool {
        self.level() != SpaceLevel::Plenty
    }

    /// Returns true if a drive that compresses is watched: there, what has its logical space may still find no physical
    /// space.
    #[inline]
    pub fn watches_physical(&self) -> bool {
        self.watches_physical
    }

    /// Returns true if puts are refused, as of the last sample.
    pub fn is_short(&self) -> bool {
        self.level() >= SpaceLevel::DeletionsOnly
    }

    /// Returns `Some(true)` if a write of `bytes` bytes may begin, `Some(false)` if a sample must be taken first, and
    /// `None` if the write is refused.
    #[inline]
    pub fn takes(&self, bytes: u64, space_use: impl FnOnce() -> SpaceUse) -> Option<bool> {
        if !self.watches() {
            return Some(true);
        }
        let is_taken = match self.level() {
            SpaceLevel::Plenty | SpaceLevel::Low => true,
            SpaceLevel::DeletionsOnly => space_use() >= SpaceUse::Deletion,
            SpaceLevel::Exhausted => space_use() == SpaceUse::Release,
        };
        let would_be_spent = || self.spent.load(Ordering::Acquire).saturating_add(bytes);
        is_taken.then(|| would_be_spent() <= self.limit.load(Ordering::Acquire))
    }

    /// Counts a write of `bytes` bytes that begins. Returns true if the store's thread is to be woken, for a sample.
    #[inline]
    pub fn used(&self, bytes: u64) -> bool {
        if !self.watches() {
            return false;
        }
        let before = self.spent.fetch_add(bytes, Ordering::AcqRel);
        let wake_at = self.wake_at.load(Ordering::Acquire);
        let is_first = self.watches_physical && !self.is_used.swap(true, Ordering::AcqRel);
        is_first || before < wake_at && before.saturating_add(bytes) >= wake_at
    }

    /// Returns the shortage that refuses a write of `bytes` bytes.
    pub fn shortage(&self, bytes: u64) -> SpaceShortage {
        let judged = lock(&self.judged);
        let (disk, sample) = judged.tightest.unwrap_or((0, Sample::NOTHING));
        sample.shortage(self.location(disk), bytes)
    }

    fn location(&self, disk: usize) -> String {
        self.disks.get(disk).map(|disk| disk.location.clone()).unwrap_or_default()
    }

    /// Takes a sample for a write of `bytes` bytes.
    ///
    /// # Errors
    /// There is no space for it.
    pub fn make_way(&self, bytes: u64, space_use: SpaceUse) -> Result<(), SpaceShortage> {
        let spent = self.spent.load(Ordering::Acquire);
        let allowance = self.sample();
        let allowance = match (self.level(), space_use) {
            (SpaceLevel::DeletionsOnly, SpaceUse::Put) => 0,
            (SpaceLevel::DeletionsOnly | SpaceLevel::Exhausted, SpaceUse::Release) => {
                lock(&self.judged).tightest.map_or(u64::MAX, |(_, sample)| sample.for_releases())
            }
            _ => allowance,
        };
        if allowance >= bytes.max(1) {
            // Of a long write, also beyond what others may write until the next sample.
            self.limit.fetch_max(spent.saturating_add(bytes), Ordering::AcqRel);
            return Ok(());
        }
        Err(self.shortage(bytes))
    }

    /// Takes a sample at once: the first one, or one after space was given back.
    pub fn look_now(&self) {
        if self.watches() {
            self.sample();
        }
    }

    /// Takes a sample if it is time for one. Called by the store's thread.
    pub fn look(&self) {
        if self.next_sample_in().is_some_and(|left| left.is_zero()) {
            self.sample();
        }
    }

    /// Returns the time until the next sample; `None` if nothing calls for one.
    pub fn next_sample_in(&self) -> Option<Duration> {
        let due = lock(&self.judged).at + SAMPLE_EVERY;
        let is_wanted = match self.watches_physical {
            true => self.is_used.load(Ordering::Acquire) || self.is_low(),
            false => self.is_short(),
        };
        is_wanted.then(|| due.saturating_sub(self.clock.now()))
    }

    /// Asks the disks, tells what has changed, and returns how many bytes of records may be written.
    fn sample(&self) -> u64 {
        // First: what is written from now on is not in the figures.
        self.is_used.store(false, Ordering::Release);
        let spent = self.spent.load(Ordering::Acquire);
        let tightest = tightest(self.samples());
        let (before, after, allowance) = self.judge(tightest, spent);
        if before != after {
            self.tell(before, after, tightest);
        }
        allowance
    }

    /// Returns the disks that answer, as they are now.
    fn samples(&self) -> Vec<(usize, Sample)> {
        let needs = (self.needs)();
        let promised = self.promised.load(Ordering::Acquire);
        let asked = self.disks.iter().enumerate().filter_map(|(number, disk)| {
            let (kind, space) = (disk.kind, (disk.ask)());
            let (free, total, in_log) = match kind {
                SpaceKind::Physical => (space.physical_free()?, space.physical_total?, needs.in_log),
                SpaceKind::Logical => (space.logical_free()?, space.logical_total, 0),
            };
            let needed = needs.now.saturating_add(in_log).saturating_add(promised);
            let Needs { at_most: needed_at_most, stored, .. } = needs;
            let mut sample = Sample { kind, free, total, needed, needed_at_most, stored };
            // Some files have to be here.
            if kind == SpaceKind::Logical && free > sample.slack() / 8 {
                sample.free = free.saturating_add(needs.elsewhere);
            }
            Some((number, sample))
        });
        asked.collect()
    }

    /// Returns the levels before and after, and the allowance. `spent` was read before the disks were asked. Of two
    /// samples at a time, either limit holds.
    fn judge(&self, tightest: Option<(usize, Sample)>, spent: u64) -> (SpaceLevel, SpaceLevel, u64) {
        let mut judged = lock(&self.judged);
        let before = judged.level;
        let after = tightest.map_or(SpaceLevel::Plenty, |(_, sample)| judge(before, &sample));
        let allowed = tightest.map_or(u64::MAX, |(_, sample)| allowance(after, &sample));
        *judged = Judged { level: after, at: self.clock.now(), tightest };
        self.level.store(after as u8, Ordering::Release);
        let until_next = allowed.min(ALLOWANCE_BYTES_MAX);
        let wake_at = if self.watches_physical { spent.saturating_add(until_next / 2) } else { u64::MAX };
        self.wake_at.store(wake_at, Ordering::Release);
        self.limit.store(spent.saturating_add(until_next), Ordering::Release);
        (before, after, allowed)
    }

    fn tell(&self, before: SpaceLevel, after: SpaceLevel, tightest: Option<(usize, Sample)>) {
        let (disk, sample) = tightest.unwrap_or((0, Sample::NOTHING));
        let Sample { kind, free: free_bytes, total: total_bytes, .. } = sample;
        (self.tells)(SpaceChange { location: self.location(disk), kind, free_bytes, total_bytes, before, after });
    }

    /// Lets a compaction begin that will write about `about` bytes, and at most `at_most`.
    ///
    /// # Errors
    /// The bytes would not fit in addition to what the store needs for other things.
    pub fn promise(self: &Arc<Self>, about: u64, at_most: u64) -> Result<Promise, SpaceShortage> {
        let promise = |bytes, at_most| Promise {
            space: Arc::clone(self),
            left: AtomicU64::new(bytes),
            at_most: AtomicU64::new(at_most),
            written: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
        };
        if !self.watches() {
            return Ok(promise(0, 0));
        }
        self.sample();
        let space = self.space_for_compactions();
        let Some(bytes) = [at_most, about].into_iter().find(|bytes| *bytes <= space) else {
            return Err(self.shortage(about / 2));
        };
        self.promised.fetch_add(bytes, Ordering::AcqRel);
        self.promised_at_most.fetch_add(at_most, Ordering::AcqRel);
        Ok(promise(bytes, at_most))
    }

    /// Chooses the length of the next file of `log`, with room for a record of `bytes`, and of `bytes_max` at most if
    /// that is enough. Each byte of the file goes on to take `taken` bytes of the disk, its byte in the log included.
    ///
    /// Where the disk has too little room, the file is shorter than others. Its length then leaves room for the needs
    /// of the store, for the contents of the file, and for the reserve for deletions. Where only the reserve is left,
    /// the file is the shortest one. A spare file is removed if a shorter one is to be made.
    ///
    /// # Errors
    /// [`SpaceShortage`] if there is no room, or the error of a spare that could not be removed.
    pub fn length_of_log_file<E>(&self, log: &Log, bytes: u64, bytes_max: u64, taken: u64) -> Result<LogFileLength, E>
    where
        E: From<StorageError> + From<SpaceShortage>,
    {
        let (ordinary, least) = (log.file_bytes_for(bytes), log.shortest_file_bytes_for(bytes));
        let fits = |room: LogRoom| room.bytes / taken.max(1);
        let mut room = self.room_for_log();
        let has_spare = log.has_file_at_hand(0, bytes, |_| true);
        if bytes_max >= ordinary && (fits(room) >= ordinary || has_spare && room.bytes >= ordinary) {
            return Ok(LogFileLength::Ordinary);
        }
        if has_spare && fits(room) < bytes_max.min(ordinary) {
            log.drop_spares()?;
            room = self.room_for_log();
        }
        match fits(room).min(bytes_max).max(least) {
            longest if longest <= fits(room) => Ok(LogFileLength::AtMost(longest)),
            _ if least <= room.reserve_bytes => Ok(LogFileLength::AtMost(least)),
            _ => {
                // Of the space that there is now. The level stays: this is no judgement of writes.
                let (disk, sample) = tightest(self.samples()).unwrap_or((0, Sample::NOTHING));
                Err(sample.shortage(self.location(disk), least).into())
            }
        }
    }

    /// Returns true if a log file finds room in addition to the store's needs and the reserve for deletions.
    pub fn has_room_for_log(&self) -> bool {
        self.room_for_log().bytes > 0
    }

    /// Returns the logical space that a log file may take now.
    fn room_for_log(&self) -> LogRoom {
        let logical = self.samples().into_iter().find(|(_, sample)| sample.kind == SpaceKind::Logical);
        logical.map_or(LogRoom::UNKNOWN, |(_, sample)| LogRoom {
            bytes: sample.free.saturating_sub(sample.reserve()),
            reserve_bytes: sample.for_releases(),
        })
    }

    /// Returns the space for deletions and compactions, as of the last sample; `None` if no disk says what it has.
    pub fn slack_bytes(&self) -> Option<u64> {
        lock(&self.judged).tightest.map(|(_, sample)| sample.slack())
    }

    /// Returns the bytes that flushes and running compactions may still write.
    pub fn outstanding_bytes(&self) -> u64 {
        (self.needs)().now.saturating_add(self.promised_at_most.load(Ordering::Acquire))
    }

    /// Returns the bytes that compactions may write, as of the last sample.
    pub fn space_for_compactions(&self) -> u64 {
        lock(&self.judged).tightest.map_or(u64::MAX, |(_, sample)| sample.for_compactions())
    }

    /// Returns the properties of the space; `None` for a store on disks that do not report their space.
    pub fn properties(&self) -> Option<SpaceProperties> {
        let judged = lock(&self.judged);
        let (disk, sample) = judged.tightest?;
        Some(SpaceProperties {
            location: self.disks.get(disk)?.location.clone(),
            kind: sample.kind,
            level: judged.level,
            free_bytes: sample.free,
            total_bytes: sample.total,
            reserve_bytes: sample.reserve(),
            shortage: (judged.level >= SpaceLevel::DeletionsOnly).then(|| sample.shortage(self.location(disk), 0)),
        })
    }
}

/// Returns the sample of the disk that has the least beyond its reserve.
fn tightest(samples: Vec<(usize, Sample)>) -> Option<(usize, Sample)> {
    samples.into_iter().min_by_key(|(_, sample)| i128::from(sample.free) - i128::from(sample.reserve()))
}

/// The length of a log file that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFileLength {
    /// As the options of the log say.
    Ordinary,
    /// The maximum length in bytes.
    AtMost(u64),
}

/// The space that a log file may take.
#[derive(Clone, Copy)]
struct LogRoom {
    /// Space for the file, and for where its records go from there.
    bytes: u64,
    /// The space beyond that which deletions may take, out of the reserve for them.
    reserve_bytes: u64,
}

impl LogRoom {
    /// No disk says what it has.
    const UNKNOWN: LogRoom = LogRoom { bytes: u64::MAX, reserve_bytes: u64::MAX };
}

/// The space that a compaction may still write. Given up on drop.
#[derive(Debug)]
pub struct Promise {
    space: Arc<SpaceWatch>,
    left: AtomicU64,
    at_most: AtomicU64,
    written: AtomicU64,
    is_broken: AtomicBool,
}

/// Takes bytes off a part of `total`. Returns the part as it was.
fn take_off(part: &AtomicU64, total: &AtomicU64, bytes: u64) -> u64 {
    let less = |left: u64| Some(left.saturating_sub(bytes));
    let before = part.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or(0);
    let taken = before.min(bytes);
    let promised = total.fetch_sub(taken, Ordering::AcqRel);
    assert!(promised >= taken, "{taken} bytes are kept of {promised} that were promised");
    before
}

impl Promise {
    /// Counts `bytes` bytes as written. Bytes beyond the promise need space that is still there when the drive has all
    /// of them: the last ones may be in buffers ([`IN_FLIGHT_BYTES_MAX`]).
    pub fn written(&self, bytes: u64) {
        if !self.space.watches() {
            return;
        }
        let written = self.written.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        if self.keep(bytes) {
            return;
        }
        self.space.sample();
        if self.space.space_for_compactions() < written.min(IN_FLIGHT_BYTES_MAX) {
            self.is_broken.store(true, Ordering::Release);
        }
    }

    /// Returns true if the compaction has to end, because it writes more than was promised and there is no space for
    /// it.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Takes bytes off what is left. Returns false if fewer were left.
    fn keep(&self, bytes: u64) -> bool {
        take_off(&self.at_most, &self.space.promised_at_most, bytes);
        take_off(&self.left, &self.space.promised, bytes) >= bytes
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(u64::MAX);
    }
}

#[cfg(test)]
mod tests;
