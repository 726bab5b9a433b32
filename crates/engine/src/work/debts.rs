//! Debts: space that the store could free although no memtable and no level is full. This module handles all of them.
//!
//! | debt | bound while writers continue | payment when the store is idle |
//! |---|---|---|
//! | log files that idle memtables hold back | `log_bytes_max`, plus files being written | a flush of the memtables |
//! | the files of an empty log | `log_bytes_max` | the log continues in a short file |
//! | tombstones and range deletions in memtables | a full memtable | the memtable becomes a table |
//! | tombstones and range deletions in tables | full levels | compactions move them down and drop them |
//! | values in the value log that a table or memtable hides | full levels | a compaction of level 0 |
//! | dead values in a segment that flushes append to | the length of a segment | the segment is sealed |
//! | entries that a compaction filter removes | full levels | their tables are rewritten |
//! | files that no version has | their last reader | the last reader's release (`versions/obsolete.rs`) |
//!
//! * The memtables are flushed if the log exceeds twice their size plus 8 MiB.
//! * Tombstones in tables are also bounded by a quarter of a table of the deepest level.
//! * Hidden values in the value log are also bounded by `value_inflation_percent_max`, after full levels. When level 0
//!   is compacted, the values count as dead.
//! * A sealed segment can be collected.
//! * The last reader's release deletes the files. A failed deletion is retried.
//!
//! 1. The flusher collects all debts ([`DebtWatch::pay_debts`]). [`rules::due`] chooses the next payment.
//! 2. The flusher seals memtables, ends segments, and shortens the log. A compaction thread picks compactions with
//!    [`Picker::debt`]. They run one at a time, and at a bounded rate.
//! 3. If nothing is due, the flusher sleeps until something may be. If nothing will become due without a write, the
//!    next write wakes the flusher ([`Places::watch`](crate::pipeline::places::Places::watch)). So an idle store
//!    without debts uses no processor time.
//!
//! **A full disk** does not wait for that. While puts are refused for want of space, the store pays as if it were idle,
//! and seals the memtables that hold back log files ([`Debts::is_short`]).
//!
//! A store is **idle** if its newest sequence number has not changed for [`rules::IDLE_AFTER`]. After a write, no
//! further payment begins, and a running compaction continues at the ordinary rate.
//!
//! **Invariants.** Payments end: an empty memtable replaces a sealed one, and tombstones only move down. A table that
//! was rewritten without effect is not chosen again. A payment that fails or changes nothing is retried after a rest.
//!
//! **Rejected**: a timer for each table, like RocksDB's periodic compactions. It rewrites tables that have nothing to
//! drop.

use crate::base::stats::DebtProperties;
use crate::base::sync::lock;
use crate::pipeline::Memory;
use crate::pipeline::no_room::Level0;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::view::View;
use crate::work::pacer::IdleMark;
use crate::work::schedule::{Claimed, Schedule};
use crate::{Error, Result};
use rules::{Debts, LogDebt, MemtableDebt, Payment};
use situ_values::Phase;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tables::TableDebts;

pub(crate) mod rules;
pub(crate) mod tables;

/// Time before a payment that failed or changed nothing is retried.
const REST: Duration = Duration::from_secs(60);

/// The debts of a store, and their payment.
pub(crate) struct DebtWatch {
    memory: Arc<Memory>,
    log_bytes_max: u64,
    pub(crate) tables: TableDebts,
    idle: Arc<IdleMark>,
    state: Mutex<WatchState>,
}

/// State that the store keeps between two checks of its debts.
#[derive(Default)]
struct WatchState {
    /// The newest sequence number at the last check.
    seen: u64,
    since: Duration,
    /// Times at which memtables were sealed for their debts, by keyspace.
    sealed: BTreeMap<u32, Duration>,
    rests_until: Duration,
    /// Time at which compaction threads were woken for a job, if it is still due.
    asked: Option<Duration>,
    /// Time of the next check, unless a write comes first; `None` if none is needed.
    next_look: Option<Duration>,
}

impl DebtWatch {
    /// Creates the debts of a store that is being opened.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        schedule: &Arc<Schedule>,
        idle: &Arc<IdleMark>,
        log_bytes_max: u64,
    ) -> Arc<DebtWatch> {
        let (seen, since) = (memory.versions.snapshots.visible(), memory.env.clock.now());
        let state = Mutex::new(WatchState { seen, since, ..WatchState::default() });
        let tables = TableDebts::new(memory, schedule);
        Arc::new(DebtWatch { memory: Arc::clone(memory), log_bytes_max, tables, idle: Arc::clone(idle), state })
    }

    /// Makes the payment that is due. Returns true if the flusher has more to do now.
    pub(crate) fn pay_debts(&self) -> Result<bool> {
        let debts = self.debts();
        let Some(payment) = rules::due(&debts) else {
            self.sleep_on_debts(&debts);
            return Ok(false);
        };
        let now = self.memory.env.clock.now();
        let paid = match &payment {
            Payment::Compact => {
                self.ask_for_compaction(now);
                return Ok(false);
            }
            Payment::SealForLog(ids) => {
                // Memtables that cannot be sealed now wait for pending flushes.
                lock(&self.state).next_look = Some(now + rules::LOOK_AGAIN);
                return self.seal_for_log(ids);
            }
            Payment::Seal(ids) => {
                let mut state = lock(&self.state);
                state.sealed.extend(ids.iter().map(|id| (*id, now)));
                drop(state);
                self.memory.log_files.prepare_at_rest().and_then(|()| self.seal_keyspaces(ids, Level0::Heeded))
            }
            Payment::EndSegments => {
                self.memory.versions.keyspaces().iter().for_each(|keyspace| keyspace.give_up_value_writers());
                // The collector seals the segments, and it sleeps.
                self.memory.work.notify();
                self.rest_for(rules::LOOK_AGAIN);
                return Ok(false);
            }
            Payment::ShortenLog => self.memory.trim_log().map(|()| true),
        };
        match paid {
            // A payment without effect is not retried at once.
            Ok(has_helped) if has_helped && rules::due(&self.debts()).as_ref() != Some(&payment) => Ok(true),
            Ok(_) => {
                let rest = if debts.is_short { rules::LOOK_AGAIN } else { REST };
                self.rest_for(rest);
                Ok(false)
            }
            Err(error @ (Error::Closed | Error::Failed { .. })) => Err(error),
            Err(error) => {
                self.rest_after(&error);
                self.memory.health.note_job_failure("pay debts", error);
                Ok(false)
            }
        }
    }

    /// Asks a compaction thread to pick a job. It is woken once, and then picks further jobs by itself.
    fn ask_for_compaction(&self, now: Duration) {
        let is_new = {
            let mut state = lock(&self.state);
            self.idle.set(state.seen);
            state.next_look = Some(now + rules::LOOK_AGAIN);
            let before = state.asked.filter(|asked| now < *asked + rules::LOOK_AGAIN);
            state.asked = before.or(Some(now));
            before.is_none()
        };
        if is_new {
            self.memory.work.notify();
        }
    }

    /// Suspends payments after one has failed. Without space the rest is short: a flush or a compaction that was under
    /// way may have had what there is.
    pub(crate) fn rest_after(&self, error: &Error) {
        self.rest_for(if error.is_no_space() { rules::LOOK_AGAIN } else { REST });
    }

    fn rest_for(&self, rest: Duration) {
        let until = self.memory.env.clock.now() + rest;
        let mut state = lock(&self.state);
        state.rests_until = until;
        state.next_look = Some(until);
    }

    /// Returns true if a payment is due.
    pub(crate) fn owes_now(&self) -> bool {
        rules::due(&self.debts()).is_some()
    }

    /// Seals the memtables that hold back log files beyond the log's limit. Returns true if a memtable was sealed.
    pub(crate) fn limit_log(&self) -> Result<bool> {
        // The debts of memory alone never count as idle, so no other payment is due.
        match rules::due(&self.debts_of_memory()) {
            Some(Payment::SealForLog(ids)) => self.seal_for_log(&ids),
            _ => Ok(false),
        }
    }

    /// Seals memtables for the log's limit, which takes precedence over the limit of level 0, because all keyspaces
    /// share the log. Memtables that cannot be sealed now are sealed after the pending flushes.
    fn seal_for_log(&self, ids: &[u32]) -> Result<bool> {
        let keyspaces = self.keyspaces_of(ids);
        if let [keyspace] = &keyspaces[..] {
            return Ok(self.memory.try_seal(keyspace, Level0::Ignored)?.is_none());
        }
        if !self.memory.log_files.prepare(0)? {
            return Ok(false);
        }
        self.memory.seal_together(&keyspaces, Level0::Ignored).map(|sealed| sealed > 0)
    }

    fn seal_keyspaces(&self, ids: &[u32], level0: Level0) -> Result<bool> {
        self.memory.seal_together(&self.keyspaces_of(ids), level0).map(|sealed| sealed > 0)
    }

    fn keyspaces_of(&self, ids: &[u32]) -> Vec<Arc<KeyspaceCore>> {
        let mut keyspaces = self.memory.versions.keyspaces();
        keyspaces.retain(|keyspace| ids.contains(&keyspace.id));
        keyspaces
    }

    /// Returns the time until the next check of debts, if one is needed.
    pub(crate) fn next_look_in(&self) -> Option<Duration> {
        let next = lock(&self.state).next_look?;
        Some(next.saturating_sub(self.memory.env.clock.now()))
    }

    /// Schedules the next check when nothing is due, or arranges for the next write to wake the flusher.
    fn sleep_on_debts(&self, debts: &Debts) {
        let wait = rules::next_look_in(debts);
        let seen = {
            let mut state = lock(&self.state);
            state.asked = None;
            state.next_look = wait.map(|wait| self.memory.env.clock.now() + wait);
            state.seen
        };
        if !debts.may_be_paid() {
            return;
        }
        let is_watched = {
            // No write begins under the lock, and a write since the check shows here.
            let mut commit = lock(&self.memory.commit);
            let is_idle = commit.last_sequence() == seen;
            commit.places.watch(is_idle);
            is_idle
        };
        if !is_watched {
            lock(&self.state).next_look = Some(self.memory.env.clock.now() + rules::IDLE_AFTER);
        }
    }

    /// Returns the debts for reports. It reads sums of levels. Only removable entries are counted by table, once a
    /// second. A table that was never open counts as having none.
    pub(crate) fn properties(&self) -> DebtProperties {
        let log_held_bytes = self.memory.log().map_or(0, |log| log.held_bytes());
        let mut debts = DebtProperties {
            log_bytes_max: self.log_bytes_max,
            log_held_bytes,
            undeleted_files: self.memory.versions.source.undeleted(),
            ..DebtProperties::default()
        };
        let dead = self.tables.dead_by_filters();
        for keyspace in self.memory.versions.keyspaces() {
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

    /// Returns the time since the last write.
    fn idle_for(&self) -> Duration {
        let (now, visible) = (self.memory.env.clock.now(), self.memory.versions.snapshots.visible());
        let mut state = lock(&self.state);
        if state.seen != visible {
            (state.seen, state.since) = (visible, now);
            self.idle.clear();
        }
        now.saturating_sub(state.since)
    }

    /// Collects all debts of the store.
    fn debts(&self) -> Debts {
        let idle_for = self.idle_for();
        let debts = Debts { idle_for, ..self.debts_of_memory() };
        if !debts.may_be_paid() {
            return debts;
        }
        let mut debts = debts;
        // Entries that a memtable hides, or that a filter removes, count only once the memtable is a table.
        let filtered = self.tables.dead_by_filters();
        let is_filtered = |memtable: &&mut MemtableDebt| filtered.contains_key(&memtable.keyspace);
        debts.memtables.iter_mut().filter(is_filtered).for_each(|memtable| memtable.frees_space = true);
        let rests = lock(&self.state).rests_until > self.memory.env.clock.now();
        self.tables.learn_lifetimes();
        Debts { tables: self.tables.debt(), open_segments_are_dead: self.open_segments_are_dead(), rests, ..debts }
    }

    /// Collects the debts of the log and of memtables.
    fn debts_of_memory(&self) -> Debts {
        let Some(log) = self.memory.log() else { return Debts::default() };
        let current = lock(&self.memory.commit).places.log_number;
        let (held_bytes, file_bytes) = (log.held_bytes(), log.metrics().file_bytes);
        // A log area on a disk also bounds the log, at three quarters. Flushes of busy memtables cannot free what an
        // idle one holds back.
        let area = self.memory.log_files.area_bytes(log).filter(|area| held_bytes > area / 4 * 3);
        let is_over = area.is_some() || file_bytes > self.log_bytes_max;
        let limit = area.unwrap_or(u64::MAX).min(self.log_bytes_max);
        let oldest_kept = if is_over { log.oldest_within(limit / 2) } else { 0 };
        let log = LogDebt { is_over, oldest_kept, current, held_bytes, file_bytes };
        let now = self.memory.env.clock.now();
        let sealed = lock(&self.state).sealed.clone();
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
        let memtables = self.memory.versions.keyspaces().iter().map(memtable).collect();
        let has_undeleted = self.memory.versions.source.undeleted() > 0;
        let is_short = self.memory.space.is_short();
        Debts { log: Some(log), memtables, has_undeleted, is_short, ..Debts::default() }
    }

    /// Picks and claims a compaction for a store that is idle, or whose disk is full.
    pub(crate) fn pick(&self) -> Option<Claimed> {
        let may_be_paid = self.idle.is_idle() || self.memory.space.is_short();
        if !may_be_paid || lock(&self.state).rests_until > self.memory.env.clock.now() {
            return None;
        }
        self.tables.pick(self.memory.room_for_compactions())
    }

    fn open_segments_are_dead(&self) -> bool {
        let Some(log) = self.memory.versions.source.values.log_if_open() else { return false };
        let open = log.segments().into_iter().filter(|segment| segment.phase == Phase::Open);
        let (live, dead) = open.fold((0, 0), |(live, dead), s| (live + s.live_bytes(), dead + s.dead_bytes));
        dead > live
    }
}

/// Returns true if the active memtable can free space elsewhere, once it has been flushed and compacted.
fn frees_space(view: &View) -> bool {
    let memtable = &view.active.memtable;
    memtable.deletions() > 0 || memtable.has_range_tombstones() || !view.version.segments.is_empty()
}
