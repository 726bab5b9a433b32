//! Placement at work: samples of both disks, the pointer in force, and where the next table goes.
//!
//! The rules are in `placement/rules.rs`. Here they are asked once a second by the flusher, as long as something has
//! gone through the disks since. An idle store is not woken for it. The listener gets every change, and the last
//! [`DECISIONS_MAX`] are kept, as part of the store's properties and in DISKS.
//!
//! Apart from the pointer, the room at the moment decides. A table for which the fast disk has none goes to the
//! capacity disk without an error. So does the work of a job whose table could not be written to the fast disk for
//! another reason. The store does it again from the beginning ([`Choice`]). The work of a job for which the capacity
//! disk has no room is done again, too, on any disk with room.
//!
//! **Threads.** The pointer is an atomic; the judge has a lock, not held across I/O.

use crate::decision::PlacementDecision;
use crate::meter::Totals;
use crate::promoting::Promoting;
use crate::promotion_rules::is_hot;
use crate::rules::{Judge, LevelBytes, Load, PlacementRule, Sample, Thresholds};
use crate::set::{CAPACITY, Disk, Disks, FAST, Role};
use situ_base::lock;
use situ_engine::LEVELS;
use situ_engine::Result;
use situ_engine::StoreEvent;
use situ_engine::places::{Choice, Inputs, NewTable, PlacedKeyspace, PlacedStore, PlacedTable, Places};
use situ_storage::{Error as StorageError, Space, Volume};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The fast disk, for the listener.
pub(crate) const THE_FAST_DISK: &str = "the fast disk";
/// The capacity disk, for the listener.
pub(crate) const THE_CAPACITY_DISK: &str = "the capacity disk";
/// Decisions that are kept.
pub(crate) const DECISIONS_MAX: usize = 32;
/// The maximum number of troubles of the fast disk that are reported, each once.
const TROUBLES_MAX: usize = 32;
/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// New tables leave this share of the home free, if the fast disk has room for them,
const HOME_SHARE_KEPT: u64 = 64;
/// but this much at most. Both are twice what a write that releases space has to find at home (crate `pipeline`).
const HOME_BYTES_KEPT_MAX: u64 = 256 << 20;
/// A sample over more time than this says nothing.
const SAMPLE_MAX: Duration = Duration::from_secs(10);

/// The use of the fast disk in a store with two disks. Sizes in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlacementProperties {
    /// The location of the fast disk.
    pub fast_location: String,
    /// Room on it.
    pub fast_space: situ_storage::Space,
    /// The geometry of the device, if the fast disk is one without a file system.
    pub fast_geometry: Option<situ_storage::Geometry>,
    /// New tables of levels below this one go to the fast disk.
    pub pointer: usize,
    /// The fast disk is being drained: nothing new goes there.
    pub is_draining: bool,
    /// The last decisions, oldest first.
    pub decisions: Vec<PlacementDecision>,
    /// The number of decisions of each rule since the store was opened.
    pub decisions_made: [(PlacementRule, u64); PlacementRule::ALL.len()],
    /// Bytes of tables on the fast disk.
    pub fast_table_bytes: u64,
    /// Read from and written to the fast disk since the store was opened.
    pub fast_bytes_read: u64,
    /// See [`fast_bytes_read`](PlacementProperties::fast_bytes_read).
    pub fast_bytes_written: u64,
    /// Read from and written to the capacity disk since the store was opened.
    pub capacity_bytes_read: u64,
    /// See [`capacity_bytes_read`](PlacementProperties::capacity_bytes_read).
    pub capacity_bytes_written: u64,
    /// Time in which at least one operation was in flight on the fast disk, since the store was opened.
    pub fast_busy: Duration,
    /// The same of the capacity disk.
    pub capacity_busy: Duration,
    /// Reads of tables on the fast disk on behalf of readers, which did not find their blocks in the cache.
    pub fast_reads: u64,
    /// The same on the capacity disk.
    pub capacity_reads: u64,
    /// Tables that went to the capacity disk for want of room on the fast one.
    pub tables_spilled: u64,
    /// Log files that did.
    pub log_files_spilled: u64,
    /// Tables that were copied to the fast disk because they are read often.
    pub tables_promoted: u64,
    /// And back, because they are not any more.
    pub tables_demoted: u64,
    /// Jobs done again on the capacity disk because the fast one failed to write a table.
    pub fast_write_failures: u64,
    /// Bytes of memory that a raw fast disk's own cache may take, in addition to
    /// [`Options::cache_bytes`](situ_engine::Options::cache_bytes); 0 for a directory, and for a volume that the caller
    /// opened.
    pub fast_cache_bytes_max: u64,
    /// Faults of the fast disk, present and permanent, each with its cause. The store keeps running without the disk.
    pub fast_troubles: Vec<String>,
}

/// The last sample's moment, and what had gone through the disks by then.
#[derive(Clone, Copy)]
struct Seen {
    at: Duration,
    fast: Totals,
    capacity: Totals,
}

struct Judging {
    judge: Judge,
    seen: Seen,
    decisions: VecDeque<PlacementDecision>,
    /// Since the store was opened.
    made: [(PlacementRule, u64); PlacementRule::ALL.len()],
}

/// The choices of a user for the placement of a store.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TierRules {
    /// Two bandwidths of the fast disk, in bytes a second; see [`rules`](crate::rules).
    pub(crate) bytes_per_s: Option<(u64, u64)>,
    /// The level at which the pointer stays.
    pub(crate) pinned_level: Option<usize>,
}

/// The placement of a store with two disks.
pub(crate) struct Placement {
    pub(crate) store: Arc<dyn PlacedStore>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) fast: Arc<Disk>,
    pointer: AtomicUsize,
    /// The pointer stays where it is, and nothing is promoted.
    pinned: bool,
    judging: Mutex<Judging>,
    /// Room on the fast disk that is kept for the log.
    reserve: u64,
    pub(crate) tables_spilled: AtomicU64,
    pub(crate) write_failures: AtomicU64,
    /// Of these, those since the last sample.
    new_failures: AtomicU64,
    /// Nothing new begins on the fast disk.
    pub(crate) draining: AtomicBool,
    /// The store has no fast disk any more.
    pub(crate) drained: AtomicBool,
    pub(crate) promoting: Mutex<Promoting>,
    pub(crate) tables_promoted: AtomicU64,
    pub(crate) tables_demoted: AtomicU64,
    /// Troubles of the fast disk that the listener has heard of.
    troubles_told: Mutex<Vec<String>>,
}

fn load(before: &Totals, now: &Totals, seconds: f64) -> Load {
    let per_s = |before: u64, now: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
    Load {
        read_bytes_per_s: per_s(before.bytes_read, now.bytes_read),
        written_bytes_per_s: per_s(before.bytes_written, now.bytes_written),
        busy: (now.busy.saturating_sub(before.busy).as_secs_f64() / seconds).min(1.0),
    }
}

fn levels_of(tables: &[PlacedTable]) -> [LevelBytes; LEVELS] {
    let mut levels = [LevelBytes::default(); LEVELS];
    for table in tables {
        levels[table.level].all += table.bytes;
        levels[table.level].on_fast += if table.volume == FAST { table.bytes } else { 0 };
    }
    levels
}

impl Placement {
    pub(crate) fn new(store: Arc<dyn PlacedStore>, disks: &Arc<Disks>, rules: TierRules) -> Option<Placement> {
        let (fast, capacity) = (disks.with_role(Role::Fast)?, disks.capacity());
        let now = store.env().clock.now();
        let separate = fast.volume.log_room().is_some();
        let memtable = store.keyspaces().iter().map(|keyspace| keyspace.memtable_bytes).max().unwrap_or(0);
        // A file in use, the next one, a spare: they come first.
        let reserve = if separate { 0 } else { 3 * (memtable + memtable / 64) };
        [fast, capacity].into_iter().for_each(|disk| disk.meter().set_bell(store.bell()));
        let seen = Seen { at: now, fast: fast.meter().totals(), capacity: capacity.meter().totals() };
        let thresholds = rules.bytes_per_s.map(|(low, high)| Thresholds { low, high: high.max(low) });
        let space = fast.volume.space();
        let first = Sample {
            total: space.logical_total,
            free: space.logical_total.saturating_sub(space.logical_used),
            reserve,
            levels: levels_of(&store.tables()),
            ..Sample::default()
        };
        let mut judge = Judge::new(thresholds, &first);
        let pinned = rules.pinned_level;
        judge.pointer = pinned.map_or(judge.pointer, |level| level.min(LEVELS));
        Some(Placement {
            store,
            pinned: pinned.is_some(),
            disks: Arc::clone(disks),
            fast: Arc::clone(fast),
            pointer: AtomicUsize::new(judge.pointer),
            judging: Mutex::new(Judging {
                judge,
                seen,
                decisions: disks.decisions().into(),
                made: PlacementRule::ALL.map(|rule| (rule, 0)),
            }),
            reserve,
            tables_spilled: AtomicU64::new(0),
            write_failures: AtomicU64::new(0),
            new_failures: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            promoting: Mutex::new(Promoting::new(now)),
            tables_promoted: AtomicU64::new(0),
            tables_demoted: AtomicU64::new(0),
            troubles_told: Mutex::default(),
        })
    }

    pub(crate) fn pointer(&self) -> usize {
        if self.is_draining() { 0 } else { self.pointer.load(Ordering::Acquire) }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    /// Returns the bytes free on the fast disk for tables.
    pub(crate) fn free_bytes(&self) -> u64 {
        let space = self.fast.volume.space();
        space.logical_total.saturating_sub(space.logical_used).saturating_sub(self.reserve)
    }

    /// As [`free_bytes`](Placement::free_bytes), with what is kept for the log: where the home is full, there is no use
    /// in that.
    pub(crate) fn any_room_bytes(&self) -> u64 {
        let space = self.fast.volume.space();
        space.logical_total.saturating_sub(space.logical_used)
    }

    fn has_room_only_on_fast(&self, table: &NewTable) -> bool {
        is_room_only_on_fast(table, self.disks.capacity().volume.space(), self.any_room_bytes())
    }

    fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.free_bytes()
    }

    /// See [`Judge::relieves`].
    pub(crate) fn relieves_fast_disk(&self) -> bool {
        lock(&self.judging).judge.relieves()
    }

    /// Returns true if there is anything to decide.
    fn judges(&self) -> bool {
        !self.pinned && !self.is_drained()
    }

    /// Returns true if something has gone through the disks since the last sample.
    fn is_used(&self) -> bool {
        let seen = lock(&self.judging).seen;
        let moved = |before: &Totals, now: Totals| {
            (before.bytes_read, before.bytes_written) != (now.bytes_read, now.bytes_written)
        };
        moved(&seen.fast, self.fast.meter().totals()) || moved(&seen.capacity, self.disks.capacity().meter().totals())
    }

    pub(crate) fn decisions(&self) -> Vec<PlacementDecision> {
        lock(&self.judging).decisions.iter().cloned().collect()
    }
}

impl Placement {
    /// Returns the disk for a new table of `level` of at most about `bytes`, by its level.
    fn disk_for(&self, level: usize, bytes: u64) -> u32 {
        if level >= self.pointer() {
            return CAPACITY;
        }
        if self.has_room(bytes + self.room_kept_for_flushes(level)) {
            return FAST;
        }
        self.note_spill(level, "there is no room for it on the fast disk beside the next flushes");
        CAPACITY
    }

    /// Returns the bytes of the fast disk that tables of `level` leave free ([`room_for_flushes`]); none, if they are
    /// those of flushes.
    fn room_kept_for_flushes(&self, level: usize) -> u64 {
        if level == 0 {
            return 0;
        }
        let level0 = |keyspace: &PlacedKeyspace| Level0 {
            memtable_bytes: keyspace.memtable_bytes,
            tables: keyspace.level0_tables as u64,
            on_fast: keyspace.level0_bytes_elsewhere,
        };
        room_for_flushes(self.store.keyspaces().iter().map(level0), self.fast.volume.space().logical_total)
    }

    fn note_spill(&self, level: usize, reason: &str) {
        self.tables_spilled.fetch_add(1, Ordering::Relaxed);
        self.store.tell(StoreEvent::TableSpilled { level, reason: reason.to_owned() });
    }

    /// Takes a sample if it is time for one, and moves the pointer if it says so.
    fn judge(&self) {
        if !self.judges() {
            return;
        }
        let clock = &self.store.env().clock;
        let now = clock.now();
        let elapsed = now.saturating_sub(lock(&self.judging).seen.at);
        if elapsed < SAMPLE_EVERY || !self.is_used() {
            return;
        }
        self.tell_troubles();
        let (fast, capacity) = (self.fast.meter().totals(), self.disks.capacity().meter().totals());
        let space = self.fast.volume.space();
        let levels = levels_of(&self.store.tables());
        let failures = self.new_failures.swap(0, Ordering::AcqRel);
        let unix_s = clock.unix().as_secs();
        let change = {
            let mut judging = lock(&self.judging);
            let seen = std::mem::replace(&mut judging.seen, Seen { at: now, fast, capacity });
            if elapsed > SAMPLE_MAX && failures == 0 {
                // The store was idle: what it does now is measured from here.
                return;
            }
            let elapsed = elapsed.as_secs_f64();
            let sample = Sample {
                seconds: elapsed,
                fast: load(&seen.fast, &fast, elapsed),
                capacity: load(&seen.capacity, &capacity, elapsed),
                total: space.logical_total,
                free: space.logical_total.saturating_sub(space.logical_used),
                reserve: self.reserve,
                levels,
                failures,
            };
            let change = judging.judge.judge(&sample);
            if let Some(change) = &change {
                let (before, after, reason) = (change.before, change.after, change.reason.clone());
                judging.decisions.push_back(PlacementDecision::new(unix_s, before, after, reason));
                if judging.decisions.len() > DECISIONS_MAX {
                    judging.decisions.pop_front();
                }
                judging.made.iter_mut().filter(|(rule, _)| *rule == change.rule).for_each(|(_, count)| *count += 1);
            }
            change
        };
        self.choose_promotions();
        let Some(change) = change else { return };
        self.pointer.store(change.after, Ordering::Release);
        // The holder of the manifest is the only one that replaces small files.
        let noted = self.store.as_editor(&mut || Ok(self.disks.note_decisions(&self.decisions())?));
        if let Err(error) = noted {
            self.store.note_job_failure("note placement", error);
        }
        let (before, after, reason) = (change.before, change.after, change.reason);
        self.store.tell(StoreEvent::PlacementChanged { to: THE_FAST_DISK.to_owned(), before, after, reason });
    }

    /// Tells the listener what the fast disk cannot do, if it has not heard it yet.
    fn tell_troubles(&self) {
        for trouble in self.fast.volume.troubles() {
            let is_new = {
                let mut told = lock(&self.troubles_told);
                let is_new = told.len() < TROUBLES_MAX && !told.contains(&trouble);
                if is_new {
                    told.push(trouble.clone());
                }
                is_new
            };
            if is_new {
                self.store.tell(StoreEvent::VolumeDegraded { volume: THE_FAST_DISK.to_owned(), trouble });
            }
        }
    }

    /// Returns the properties; `None` once the fast disk is drained.
    pub(crate) fn properties(&self) -> Option<PlacementProperties> {
        if self.is_drained() {
            return None;
        }
        let volume = &self.fast.volume;
        let (fast, capacity) = (self.fast.meter().totals(), self.disks.capacity().meter().totals());
        let decisions_made = lock(&self.judging).made;
        Some(PlacementProperties {
            fast_location: volume.location(),
            fast_space: volume.space(),
            fast_geometry: volume.geometry(),
            pointer: self.pointer(),
            is_draining: self.is_draining(),
            decisions: self.decisions(),
            decisions_made,
            fast_table_bytes: levels_of(&self.store.tables()).iter().map(|level| level.on_fast).sum(),
            fast_bytes_read: fast.bytes_read,
            fast_bytes_written: fast.bytes_written,
            capacity_bytes_read: capacity.bytes_read,
            capacity_bytes_written: capacity.bytes_written,
            fast_busy: fast.busy,
            capacity_busy: capacity.busy,
            fast_reads: fast.reads,
            capacity_reads: capacity.reads,
            tables_spilled: self.tables_spilled.load(Ordering::Relaxed),
            log_files_spilled: self.disks.log_files_spilled(),
            tables_promoted: self.tables_promoted.load(Ordering::Relaxed),
            tables_demoted: self.tables_demoted.load(Ordering::Relaxed),
            fast_write_failures: self.write_failures.load(Ordering::Relaxed),
            fast_troubles: volume.troubles(),
            fast_cache_bytes_max: self.fast.cache_bytes,
        })
    }
}

impl Places for Placement {
    fn for_table(&self, table: &NewTable) -> u32 {
        let NewTable { level, bytes_max, is_hot, choice, .. } = *table;
        let takes_more = || !self.is_draining();
        let goes_to_fast = match choice {
            Choice::Home => false,
            Choice::AnyRoom => takes_more() && bytes_max < self.any_room_bytes(),
            Choice::ByRules => {
                let stays = takes_more() && bytes_max < self.free_bytes();
                self.disk_for(level, bytes_max) == FAST
                    || (is_hot && stays)
                    || (takes_more() && self.has_room_only_on_fast(table))
            }
        };
        if goes_to_fast { FAST } else { CAPACITY }
    }

    fn next_flush_goes_to(&self, bytes: u64) -> u32 {
        if self.pointer() > 0 && self.has_room(bytes) { FAST } else { CAPACITY }
    }

    /// Those inputs that lie on the fast disk make place for the outputs, but only afterwards: a table for which there
    /// is no room until then goes home.
    fn is_hot(&self, inputs: &Inputs) -> bool {
        let Inputs { bytes, bytes_elsewhere, reads_per_s } = *inputs;
        let fits = self.room().takes_more(bytes.saturating_sub(bytes_elsewhere));
        !self.is_draining() && self.pointer() > 0 && is_hot(reads_per_s, bytes) && fits
    }

    fn refused(&self, _volume: u32, level: usize, error: &StorageError) {
        if error.is_no_space() {
            return self.note_spill(level, &error.to_string());
        }
        self.write_failures.fetch_add(1, Ordering::Relaxed);
        self.new_failures.fetch_add(1, Ordering::Relaxed);
        self.store.tell(StoreEvent::TableSpilled { level, reason: error.to_string() });
    }

    fn free_elsewhere(&self) -> Option<u64> {
        (!self.is_draining() && !self.is_drained()).then(|| self.any_room_bytes())
    }

    fn next_tick_in(&self) -> Option<Duration> {
        if !self.judges() {
            return None;
        }
        if !self.is_used() {
            // The first operation from here on rings; what came before it is seen by the second look.
            [&self.fast, self.disks.capacity()].into_iter().for_each(|disk| disk.meter().sleep());
            if !self.is_used() {
                return None;
            }
        }
        let due = lock(&self.judging).seen.at + SAMPLE_EVERY;
        Some(due.saturating_sub(self.store.env().clock.now()))
    }

    fn tick(&self) {
        self.judge();
    }

    fn move_one(&self) -> Result<bool> {
        self.promote_one()
    }
}

/// Returns true if the home has too little room for a table, and the fast disk, with `fast_free` bytes, has enough.
///
/// The home has to take all that is outstanding: tables that have begun do not show in its space yet. Small files, such
/// as the manifest, have to be at home. Without space for them, nothing leads out of a full home.
fn is_room_only_on_fast(table: &NewTable, home: Space, fast_free: u64) -> bool {
    let kept = (home.logical_total / HOME_SHARE_KEPT).min(HOME_BYTES_KEPT_MAX);
    let wanted = table.bytes_max.max(table.bytes_outstanding).saturating_add(kept);
    home.logical_free().is_some_and(|free| wanted > free) && table.bytes_max < fast_free
}

/// The size that a keyspace's level 0 may reach on the fast disk, and its present size there.
struct Level0 {
    memtable_bytes: u64,
    /// The number of tables at which the level is compacted.
    tables: u64,
    on_fast: u64,
}

/// Returns the bytes that the next flushes find free on a fast disk of `total`: writers wait for flushes and for
/// nothing else. There is room for as many tables as let level 0 be compacted, up to an eighth of the disk.
fn room_for_flushes(keyspaces: impl Iterator<Item = Level0>, total: u64) -> u64 {
    let wanted = |level0: Level0| (level0.memtable_bytes.saturating_mul(level0.tables)).saturating_sub(level0.on_fast);
    keyspaces.map(wanted).fold(0, u64::saturating_add).min(total / 8)
}

#[cfg(test)]
mod tests;
