//! Debts: what the store owes although no memtable and no level is full. One place looks at all of them.
//!
//! | debt | bound while writers go on | paid when the store is idle |
//! |---|---|---|
//! | log files that idle memtables hold back | `log_bytes_max`, and what is being written | the log holds twice what memtables do, and 8 MiB |
//! | the files of a log that holds nothing | `log_bytes_max` | the log goes on in a short file |
//! | tombstones and range deletions in memtables | a full memtable | the memtable becomes a table |
//! | tombstones and range deletions in tables | full levels; a quarter of a table of the deepest level | they sink and go |
//! | values in the value log that a table or memtable hides | full levels, then `value_inflation_percent_max` | level 0 is compacted, so they count as dead |
//! | dead values in a segment that flushes append to | the length of a segment | the segment is sealed, so it can be collected |
//! | entries that a compaction filter removes | full levels | their tables are rewritten |
//! | files that no version has | their last reader | they are deleted when the last reader lets go (`versions/obsolete.rs`), and tried again if that fails |
//!
//! 1. The flusher looks at all debts ([`Work::pay_debts`]). [`rules::due`] says which payment comes next.
//! 2. The flusher seals, ends segments, and shortens the log. Compactions are picked by [`Picker::debt`] on a compaction thread, one at a
//!    time, on one thread, and at a bounded rate.
//! 3. If nothing is due, the flusher sleeps until something may be. If nothing ever will be, it has the next write wake it
//!    ([`Places::watch`](crate::pipeline::places::Places::watch)). So an idle store that owes nothing uses no processor time.
//!
//! **Idle** is a store whose newest sequence number has been the same for [`rules::IDLE_AFTER`]. A write ends that: no further payment
//! begins, and a compaction under way goes on unpaced.
//!
//! **Invariants.** Payments end: sealed memtables are empty, tombstones only sink, and a table that was rewritten in vain is not chosen
//! again. A payment that fails or changes nothing is tried again after a rest.
//!
//! **Rejected**: a timer for each table, as RocksDB's periodic compactions. It rewrites tables that have nothing to drop.

use crate::base::stats::DebtProperties;
use crate::base::sync::lock;
use crate::pipeline::seal::Level0;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::TableFile;
use crate::versions::view::View;
use crate::work::Work;
use crate::work::compact::claimed;
use crate::work::picker::{Dead, Job, Picker};
use crate::work::task_host::task_error;
use crate::{Error, Result};
use rules::{Debts, LogDebt, MemtableDebt, Payment, TableDebt};
use situ_compaction::FrozenFilter;
use situ_table::DeadBefore;
use situ_values::Phase;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) mod rules;

/// Compactions of debts write at most so many bytes a second, while the store is idle.
pub(crate) const IDLE_BYTES_PER_S_MAX: u64 = 64 << 20;
/// A payment that has failed, or changed nothing, is not tried again for so long.
const REST: Duration = Duration::from_secs(60);
/// Tables that do not tell when their entries die are rewritten when they are older than so many seconds.
const UNCOUNTED_S_MAX: u64 = 24 * 60 * 60;
/// No sequence number.
const NONE: u64 = u64::MAX;

/// What the store remembers between two looks at its debts.
pub(crate) struct DebtWatch {
    state: Mutex<WatchState>,
    /// The store is idle while this is its newest sequence number.
    idle_at: AtomicU64,
}

#[derive(Default)]
struct WatchState {
    /// The newest sequence number at the last look, and when it was first seen.
    seen: u64,
    since: Duration,
    /// When memtables were sealed for their debts, by keyspace.
    sealed: BTreeMap<u32, Duration>,
    rests_until: Duration,
    /// When compaction threads were told of a job, if there is still one.
    asked: Option<Duration>,
    /// When to look next, if nothing is written before; `None` if that is not needed.
    next_look: Option<Duration>,
}

impl DebtWatch {
    /// Nothing was written yet, as of `now`.
    pub(crate) fn new(now: Duration, seen: u64) -> DebtWatch {
        let state = WatchState { seen, since: now, ..WatchState::default() };
        DebtWatch { state: Mutex::new(state), idle_at: AtomicU64::new(NONE) }
    }
}

impl Work {
    /// Pays what is due. True if the flusher has more to do now.
    pub(crate) fn pay_debts(self: &Arc<Self>) -> Result<bool> {
        let debts = self.debts();
        let Some(payment) = rules::due(&debts) else {
            self.sleep_on_debts(&debts);
            return Ok(false);
        };
        let now = self.env.clock.now();
        let paid = match &payment {
            Payment::Compact => {
                self.ask_for_compaction(now);
                return Ok(false);
            }
            Payment::SealForLog(ids) => {
                // What cannot be sealed now waits for flushes that are due.
                lock(&self.debt_watch.state).next_look = Some(now + rules::LOOK_AGAIN);
                return self.seal_for_log(ids);
            }
            Payment::Seal(ids) => {
                let mut state = lock(&self.debt_watch.state);
                state.sealed.extend(ids.iter().map(|id| (*id, now)));
                drop(state);
                self.memory.prepare_short_log(0, u64::MAX).and_then(|()| self.seal_keyspaces(ids, Level0::Heeded))
            }
            Payment::EndSegments => {
                self.versions.keyspaces().iter().for_each(|keyspace| keyspace.give_up_value_writers());
                Ok(true)
            }
            Payment::ShortenLog => self.trim_log().map(|()| true),
        };
        match paid {
            // What has not helped is not tried at once again.
            Ok(has_helped) if has_helped && rules::due(&self.debts()).as_ref() != Some(&payment) => Ok(true),
            Ok(_) => {
                self.rest_from_debts();
                Ok(false)
            }
            Err(error @ (Error::Closed | Error::Failed { .. })) => Err(error),
            Err(error) => {
                self.health.note_job_failure("pay debts", error);
                self.rest_from_debts();
                Ok(false)
            }
        }
    }

    /// A compaction thread is to pick a job, and tells of its end. It is woken once: it picks again by itself.
    fn ask_for_compaction(&self, now: Duration) {
        let is_new = {
            let mut state = lock(&self.debt_watch.state);
            self.debt_watch.idle_at.store(state.seen, Ordering::Release);
            state.next_look = Some(now + rules::LOOK_AGAIN);
            let before = state.asked.filter(|asked| now < *asked + rules::LOOK_AGAIN);
            state.asked = before.or(Some(now));
            before.is_none()
        };
        if is_new {
            self.memory.work.notify();
        }
    }

    /// No payment is tried for a while.
    pub(crate) fn rest_from_debts(&self) {
        let until = self.env.clock.now() + REST;
        let mut state = lock(&self.debt_watch.state);
        state.rests_until = until;
        state.next_look = Some(until);
    }

    /// Whether a payment is due.
    pub(crate) fn owes_now(&self) -> bool {
        rules::due(&self.debts()).is_some()
    }

    /// Seals what holds back log files that are beyond the log's limit. True if there was something.
    pub(crate) fn limit_log(&self) -> Result<bool> {
        // Memory alone is never found to be idle.
        match rules::due(&self.debts_of_memory()) {
            Some(Payment::SealForLog(ids)) => self.seal_for_log(&ids),
            _ => Ok(false),
        }
    }

    /// The limit of the log comes before that of level 0: the log is everybody's. Memtables that cannot be sealed are sealed after the
    /// flushes that are due.
    fn seal_for_log(&self, ids: &[u32]) -> Result<bool> {
        let keyspaces = self.keyspaces_of(ids);
        if let [keyspace] = &keyspaces[..] {
            return Ok(self.memory.try_seal(keyspace, Level0::Ignored)?.is_none());
        }
        if !self.memory.prepare_log(0)? {
            return Ok(false);
        }
        self.memory.seal_together(&keyspaces, Level0::Ignored).map(|sealed| sealed > 0)
    }

    fn seal_keyspaces(&self, ids: &[u32], level0: Level0) -> Result<bool> {
        self.memory.seal_together(&self.keyspaces_of(ids), level0).map(|sealed| sealed > 0)
    }

    fn keyspaces_of(&self, ids: &[u32]) -> Vec<Arc<KeyspaceCore>> {
        let mut keyspaces = self.versions.keyspaces();
        keyspaces.retain(|keyspace| ids.contains(&keyspace.id));
        keyspaces
    }

    /// How long the flusher may sleep as far as debts go.
    pub(crate) fn next_debt_look_in(&self) -> Option<Duration> {
        let next = lock(&self.debt_watch.state).next_look?;
        Some(next.saturating_sub(self.env.clock.now()))
    }

    /// Nothing is due: says when to look again, or has the next write wake the flusher.
    fn sleep_on_debts(&self, debts: &Debts) {
        let wait = rules::next_look_in(debts);
        let seen = {
            let mut state = lock(&self.debt_watch.state);
            state.asked = None;
            state.next_look = wait.map(|wait| self.env.clock.now() + wait);
            state.seen
        };
        if debts.idle_for < rules::IDLE_AFTER {
            return;
        }
        let is_watched = {
            // With the lock, no write begins: one that has begun since the look is seen here.
            let mut commit = lock(&self.memory.commit);
            let is_idle = commit.last_sequence() == seen;
            commit.places.watch(is_idle);
            is_idle
        };
        if !is_watched {
            lock(&self.debt_watch.state).next_look = Some(self.env.clock.now() + rules::IDLE_AFTER);
        }
    }

    /// What is owed, for people. Costs no walk over tables, but once a second where a filter tells when entries die. A table that was never open
    /// counts as one without entries to remove.
    pub(crate) fn debt_properties(&self) -> DebtProperties {
        let log_held_bytes = self.memory.log.as_ref().map_or(0, |log| log.held_bytes());
        let mut debts = DebtProperties {
            log_bytes_max: self.options.log_bytes_max,
            log_held_bytes,
            undeleted_files: self.versions.source.undeleted(),
            ..DebtProperties::default()
        };
        let dead = self.dead_by_filters();
        for keyspace in self.versions.keyspaces() {
            let view = keyspace.view.load_full();
            for slot in view.slots() {
                debts.tombstones += slot.memtable.deletions() as u64;
                debts.range_deletions += slot.memtable.range_tombstones().len() as u64;
            }
            for level in &view.version.levels {
                debts.tombstones += level.deletions;
                debts.range_deletions += level.range_deletions;
            }
            let removable = dead.get(&keyspace.id).map(|before| view.version.removable_entries(before));
            debts.removable_entries += removable.unwrap_or(0);
            let dead_values = view.version.segments.files().iter().map(|segment| segment.dead().bytes);
            debts.value_dead_bytes += dead_values.sum::<u64>();
        }
        debts
    }

    /// How long nothing was written.
    fn idle_for(&self) -> Duration {
        let (now, visible) = (self.env.clock.now(), self.versions.snapshots.visible());
        let mut state = lock(&self.debt_watch.state);
        if state.seen != visible {
            (state.seen, state.since) = (visible, now);
            self.debt_watch.idle_at.store(NONE, Ordering::Release);
        }
        now.saturating_sub(state.since)
    }

    /// Whether nothing was written since a compaction was found to be due.
    pub(crate) fn is_idle(&self) -> bool {
        self.debt_watch.idle_at.load(Ordering::Acquire) == self.versions.snapshots.visible()
    }

    /// What the store owes.
    fn debts(&self) -> Debts {
        let idle_for = self.idle_for();
        let debts = Debts { idle_for, ..self.debts_of_memory() };
        if idle_for < rules::IDLE_AFTER {
            return debts;
        }
        let mut debts = debts;
        // What a memtable hides, or a filter removes, shows itself in a table.
        let filtered = self.dead_by_filters();
        let is_filtered = |memtable: &&mut MemtableDebt| filtered.contains_key(&memtable.keyspace);
        debts.memtables.iter_mut().filter(is_filtered).for_each(|memtable| memtable.frees_space = true);
        let rests = lock(&self.debt_watch.state).rests_until > self.env.clock.now();
        // Without the scheduling lock: tables may have to be opened.
        self.with_filters(|keyspace, _| {
            let version = Arc::clone(&keyspace.view.load().version);
            version.files().for_each(|(_, file)| file.learn_lifetimes());
        });
        Debts { tables: self.debt_of_tables(), open_segments_are_dead: self.open_segments_are_dead(), rests, ..debts }
    }

    /// What log and memtables owe.
    fn debts_of_memory(&self) -> Debts {
        let Some(log) = &self.memory.log else { return Debts::default() };
        let current = lock(&self.memory.commit).places.log_number;
        let (held_bytes, file_bytes) = (log.held_bytes(), log.metrics().file_bytes);
        // An area of its own bounds it, too, well before it is full: what an idle memtable holds back, no flush of others frees.
        let area = self.memory.log_area_bytes(log).filter(|area| held_bytes > area / 4 * 3);
        let is_over = area.is_some() || file_bytes > self.options.log_bytes_max;
        let limit = area.unwrap_or(u64::MAX).min(self.options.log_bytes_max);
        let oldest_kept = if is_over { log.oldest_within(limit / 2) } else { 0 };
        let log = LogDebt { is_over, oldest_kept, current, held_bytes, file_bytes };
        let now = self.env.clock.now();
        let sealed = lock(&self.debt_watch.state).sealed.clone();
        let memtable = |keyspace: &Arc<KeyspaceCore>| {
            let view = keyspace.view.load();
            let sealed_ago = sealed.get(&keyspace.id).map(|at| now.saturating_sub(*at));
            let bytes = view.slots().map(|slot| slot.bytes()).sum();
            MemtableDebt {
                keyspace: keyspace.id,
                bytes,
                first_log: view.active.first_log(),
                frees_space: frees_space(&view),
                flush_is_due: !view.sealed.is_empty(),
                sealed_ago,
            }
        };
        let memtables = self.versions.keyspaces().iter().map(memtable).collect();
        let has_undeleted = self.versions.source.undeleted() > 0;
        Debts { log: Some(log), memtables, has_undeleted, ..Debts::default() }
    }

    fn debt_of_tables(&self) -> TableDebt {
        let dead = self.dead_by_filters();
        let next_death = self.next_death(&dead);
        let _scheduling = lock(&self.scheduling);
        match self.debt_job(&dead, &self.versions.snapshots.sequences()) {
            Some(_) => TableDebt::Due,
            // Nothing tells of a snapshot that is released.
            None if self.debt_job(&dead, &[]).is_some() => TableDebt::DueIn(rules::LOOK_AGAIN),
            None => next_death.map_or(TableDebt::None, |wait| TableDebt::DueIn(wait.max(rules::LOOK_AGAIN))),
        }
    }

    /// Calls `each` with the keyspaces that have a filter which says what is dead.
    fn with_filters(&self, mut each: impl FnMut(&Arc<KeyspaceCore>, DeadBefore)) {
        for keyspace in self.versions.keyspaces() {
            let Some(filter) = &keyspace.options.compaction_filter else { continue };
            match FrozenFilter::dead_before(filter, self.env.clock.unix()) {
                Ok(dead) => dead.into_iter().for_each(|dead| each(&keyspace, dead)),
                Err(error) => self.health.note_job_failure("ask compaction filter", task_error(error)),
            }
        }
    }

    /// What filters remove now, by keyspace.
    fn dead_by_filters(&self) -> BTreeMap<u32, DeadBefore> {
        let mut dead = BTreeMap::new();
        self.with_filters(|keyspace, before| dead.extend([(keyspace.id, before)]));
        dead
    }

    /// How long until filters remove more, if nothing is written.
    fn next_death(&self, dead: &BTreeMap<u32, DeadBefore>) -> Option<Duration> {
        let next = |keyspace: Arc<KeyspaceCore>| {
            let now = dead.get(&keyspace.id)?.unix_s;
            let version = Arc::clone(&keyspace.view.load().version);
            let next = version.files().filter_map(|(_, file)| file.lifetimes()?.next_death(now)).min()?;
            Some(Duration::from_secs(next - now))
        };
        self.versions.keyspaces().into_iter().filter_map(next).min()
    }

    /// The compaction that frees the most for what it writes, if one is worth it and no other one runs; with the scheduling lock held.
    fn debt_job(&self, dead: &BTreeMap<u32, DeadBefore>, snapshots: &[u64]) -> Option<(Arc<KeyspaceCore>, Job)> {
        let oldest = snapshots.first().copied().unwrap_or_else(|| self.versions.snapshots.visible());
        let keyspaces = self.versions.keyspaces();
        let is_free = |keyspace: &Arc<KeyspaceCore>| {
            lock(&keyspace.running).is_empty() && keyspace.compactions_paused.load(Ordering::Acquire) == 0
        };
        if !keyspaces.iter().all(is_free) {
            return None;
        }
        let job = |keyspace: Arc<KeyspaceCore>| {
            let version = Arc::clone(&keyspace.view.load().version);
            let picker = Picker::new(&version, &keyspace.options, &[], oldest);
            let removed = |file: &TableFile| {
                // A filter is not asked about what a snapshot sees.
                let is_seen = snapshots.last().is_some_and(|newest| *newest >= file.meta.smallest_sequence);
                let before = dead.get(&keyspace.id).filter(|_| !is_seen);
                let Some((before, lifetimes)) = before.zip(file.lifetimes()) else { return 0.0 };
                // Older programs have not counted. It is rewritten once, and says more then.
                let is_old = before.unix_s > file.meta.created_unix_s.saturating_add(UNCOUNTED_S_MAX);
                if lifetimes.is_empty() && is_old { file.meta.entries as f64 } else { lifetimes.dead(before) }
            };
            let dead = Dead { value_bytes: version.segments.mean_record_bytes(), removed: &removed };
            let job = picker.debt(&dead)?;
            Some((keyspace, job))
        };
        keyspaces.into_iter().filter_map(job).max_by(|(_, a), (_, b)| a.score.total_cmp(&b.score))
    }

    /// The compaction to begin in an idle store, claimed.
    pub(crate) fn pick_debt(&self) -> Option<(Arc<KeyspaceCore>, Job)> {
        if !self.is_idle() || lock(&self.debt_watch.state).rests_until > self.env.clock.now() {
            return None;
        }
        let dead = self.dead_by_filters();
        let _scheduling = lock(&self.scheduling);
        let (keyspace, job) = self.debt_job(&dead, &self.versions.snapshots.sequences())?;
        Some(claimed(keyspace, job))
    }

    fn open_segments_are_dead(&self) -> bool {
        let Some(log) = self.versions.source.values.log_if_open() else { return false };
        let open = log.segments().into_iter().filter(|segment| segment.phase == Phase::Open);
        let (live, dead) = open.fold((0, 0), |(live, dead), s| (live + s.live_bytes(), dead + s.dead_bytes));
        dead > live
    }
}

/// Whether the memtable frees space elsewhere once it is a table, and the table has been compacted.
fn frees_space(view: &View) -> bool {
    let memtable = &view.active.memtable;
    memtable.deletions() > 0 || memtable.has_range_tombstones() || !view.version.segments.is_empty()
}
