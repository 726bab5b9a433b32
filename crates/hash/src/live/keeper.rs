//! The keeper: the thread that does what concerns all buckets.
//!
//! * It makes the next log file ready.
//! * *Image room*: when the image journal is full, it flushes the device, and the journal restarts.
//! * *Checkpoint*: when enough log is kept, it asks the workers to apply all that is in the older log files. When at
//!   least half of the files are applied, it closes the gate, makes overflow and buckets durable, begins an epoch, and
//!   releases these files. Large values that have died give their space back at a checkpoint. So one is also due when a
//!   whole segment of them has died, and for less when space is scarce.
//! * *Collection*: after a checkpoint, it collects segments of the value log while some are due (`collect.rs`).
//! * *Rest*: in an idle store, it pays what nothing else calls in. A checkpoint gives up older log files, what has died
//!   of large values, and what was saved for snapshots that have gone. Then it ends a segment that is mostly dead,
//!   collects, and trims.
//! * *Resizing*: when buckets are too full or too empty, it splits or merges a group of them (`resize.rs`).
//!
//! **Invariants.** While the store is open, the keeper closes the gate, and so does a check. The keeper waits for
//! workers only at the gate, where they do not wait for the keeper.
//! **Failure.** The first error fails the store, but for want of space: then the keeper tries again (`shortage.rs`). A
//! writer that needs a log file for which there is no room gets the error.

use crate::Result;
use crate::live::core::{Core, LogBound};
use crate::live::gate::Closed;
use crate::writing::purges::IDLE_AFTER;
use crate::writing::shortage::{Party, RETRY_EVERY};
use situ_pipeline::NoLogFile;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The time after which a payment that failed at rest is tried again.
const PAY_AGAIN: Duration = Duration::from_secs(30);

/// The keeper's memory of a store at rest.
struct AtRest {
    /// The last visible sequence number, and the time since which it is visible.
    visible: u64,
    since: Duration,
    /// With this visible, nothing was owed at rest.
    settled: Option<u64>,
    tries_again: Duration,
}

impl Core {
    /// Runs the keeper.
    pub(crate) fn keep(&self) {
        let mut rests_until = None;
        let (now, visible) = (self.env.clock.now(), self.writes.visible());
        let mut at_rest = AtRest { visible, since: now, settled: None, tries_again: Duration::ZERO };
        loop {
            let seen = self.writes.keeper_work.generation();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            let mut rest = self.rest_of(rests_until);
            if self.writes.failed().is_none() {
                self.writes.shortage.space.look();
                if rest.is_some() {
                    self.prepare_log_ahead();
                } else {
                    self.keeper.pays.store(self.pays_in(&mut at_rest) == Some(Duration::ZERO), Ordering::Release);
                    self.guarded("keeper", || {
                        rest = self.is_short_after(Party::Keeper, || self.keeper_turn())?.then_some(RETRY_EVERY);
                        rests_until = rest.map(|rest| self.env.clock.now() + rest);
                        Ok(())
                    });
                    if self.keeper.pays.swap(false, Ordering::AcqRel) {
                        at_rest.tries_again = self.env.clock.now() + PAY_AGAIN;
                    }
                }
            }
            let sample = self.writes.shortage.space.next_sample_in();
            let pays = if self.writes.failed().is_none() { self.pays_in(&mut at_rest) } else { None };
            self.writes.keeper_work.wait(seen, rest.into_iter().chain(sample).chain(pays).min());
        }
    }

    fn rest_of(&self, rests_until: Option<Duration>) -> Option<Duration> {
        let rest = rests_until?.saturating_sub(self.env.clock.now());
        (!rest.is_zero()).then_some(rest)
    }

    fn keeper_turn(&self) -> Result<()> {
        loop {
            self.writes.shorten_next_log()?;
            self.prepare_log_ahead();
            let mut did = false;
            if self.keeper.image_room.load(Ordering::Acquire) {
                self.make_image_room()?;
                did = true;
            }
            did |= self.advance_checkpoint()?;
            did |= self.resize_if_due()?;
            did = did || self.collect_if_wanted()? || self.pay_for_values()?;
            if !did || self.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    }

    /// Makes the next log file ready before it is needed. If there is no room, the writer that needs the file tries
    /// again and gets the error.
    fn prepare_log_ahead(&self) {
        let log = &self.writes.log;
        if log.next_file().is_none() && !self.writes.is_closed() {
            _ = self.writes.prepare_log(NoLogFile { bytes: 0, file: log.file() });
        }
    }

    /// Restarts the image journal.
    pub(crate) fn make_image_room(&self) -> Result<()> {
        self.with_gate_closed(|| self.restart_images())
    }

    /// Begins a checkpoint, or goes on with it when the workers have done their part. True if one was made.
    fn advance_checkpoint(&self) -> Result<bool> {
        let wanted = self.keeper.checkpoints_wanted.load(Ordering::Acquire);
        let is_wanted = wanted > self.keeper.checkpoints_made.load(Ordering::Acquire);
        let (file, first) = self.writes.newest_log_file();
        let oldest = self.superblock.current().first_log_file;
        let is_due = self.writes.log.held_bytes() >= self.options.log_bytes_max && file > oldest;
        let is_paid = self.keeper.pays.load(Ordering::Acquire) && self.owes_checkpoint();
        let is_scarce = self.space_is_scarce();
        let gives_values = is_paid || self.would_give_space();
        let gives_log = is_scarce && file > oldest;
        if !is_wanted && !is_due && !gives_values && !gives_log {
            return Ok(false);
        }
        // While clients write, the newest file is never quite applied: the next one follows before.
        let drained = self.writes.pending.drained();
        let applied = self.writes.newest_applied_log_file(drained);
        let gives_log = gives_log && applied.file > oldest;
        let gives_much = is_due && (applied.file == file || 2 * applied.older >= applied.files);
        let is_worth = is_wanted || gives_values || gives_log || gives_much;
        // Writes of an earlier process wait as long as they have no space.
        let is_replayed = applied.first <= drained + 1;
        if !is_replayed || !is_worth {
            self.writes.pending.want(first - 1);
            return Ok(false);
        }
        self.checkpoint(applied.file, applied.first - 1)?;
        if is_paid || is_scarce {
            // Writers make new ones. One that cannot be removed stays until the next checkpoint.
            _ = self.writes.log.drop_spares();
        }
        self.keeper.checkpoints_made.fetch_max(wanted, Ordering::AcqRel);
        self.writes.progress.notify();
        Ok(true)
    }

    /// Returns the time until an idle store pays what it owes; `None` if it owes nothing, as far as is known.
    fn pays_in(&self, at_rest: &mut AtRest) -> Option<Duration> {
        let (now, visible) = (self.env.clock.now(), self.writes.visible());
        if at_rest.visible != visible || self.writes.pending.bytes() > 0 {
            (at_rest.visible, at_rest.since) = (visible, now);
        }
        let owes = self.owes_checkpoint();
        if !owes && (at_rest.settled == Some(visible) || self.large.is_empty()) {
            return None;
        }
        let wait = (at_rest.since + IDLE_AFTER).max(at_rest.tries_again).saturating_sub(now);
        if wait.is_zero() && !owes && !self.owes_values() {
            at_rest.settled = Some(visible);
            return None;
        }
        Some(wait)
    }

    /// Returns true if a checkpoint would give something up.
    fn owes_checkpoint(&self) -> bool {
        let log = &self.writes.log;
        let has_spares = log.metrics().file_bytes > 2 * log.file_bytes_for(0);
        let (file, _) = self.writes.newest_log_file();
        let has_no_snapshot = || self.snapshots.list().is_empty();
        file > self.superblock.current().first_log_file
            || has_spares
            || self.snapshots.is_stale()
            || self.large.owes() && has_no_snapshot()
    }

    /// Returns true if segments are to be ended, collected or trimmed.
    fn owes_values(&self) -> bool {
        self.large.open_segment_is_dead()
            || self.large.log.has_trims()
            || self.snapshots.list().is_empty() && self.large.log.victim().is_some()
    }

    /// Does a bounded part of the work that the value log owes, in an idle store. True if there was some.
    fn pay_for_values(&self) -> Result<bool> {
        if !self.keeper.pays.load(Ordering::Acquire) {
            return Ok(false);
        }
        if self.large.open_segment_is_dead() {
            self.large.end_segment(&self.overflow)?;
            return Ok(true);
        }
        let has_trimmed = self.large.log.tidy().map_err(|error| crate::Error::from(error).or_out_of_space())?;
        Ok(has_trimmed || self.collect_if_due()?)
    }

    /// Returns true if a checkpoint would reclaim much space of large values, or some while space is scarce. While
    /// there is a snapshot, it would not.
    fn would_give_space(&self) -> bool {
        let segment_bytes = self.options.value_segment_bytes;
        let least = match () {
            () if self.writes.shortage.is_any() || self.writes.shortage.space.is_short() => 1,
            // Space may be low for years: not for each value.
            () if self.writes.shortage.space.is_low() => segment_bytes / 8,
            () => segment_bytes,
        };
        self.large.dying_bytes() >= least.max(1) && self.snapshots.list().is_empty()
    }

    /// Returns true if puts are refused for want of space, or will be soon.
    fn space_is_scarce(&self) -> bool {
        self.writes.shortage.is_any() || self.writes.shortage.space.is_low()
    }

    /// Makes durable what is applied, and gives up the log before `file`: buckets and overflow have its changes, up to
    /// `sequence`.
    pub(crate) fn checkpoint(&self, file: u64, sequence: u64) -> Result<()> {
        assert!(self.writes.pending.drained() >= sequence, "a log file is needed while its changes are pending");
        let dead = self.with_gate_closed(|| {
            self.snapshots.forget_stale(&self.overflow);
            self.overflow.sync()?;
            self.begin_epoch(self.state(), LogBound::From { file, sequence })?;
            self.snapshots.list().is_empty().then(|| self.large.take_dead(&self.overflow)).transpose()
        })?;
        // First: it gives space back.
        self.writes.release_logs(file)?;
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.large.bury(&self.overflow, dead.unwrap_or_default())?;
        self.large.tidy()?;
        self.collect_if_due().map(drop)
    }

    /// Closes the gate for a caller of the store. The caller gets want of space as an error: the keeper may wait for
    /// space with the gate closed.
    pub(crate) fn close_gate_with_space(&self) -> Result<Closed<'_>> {
        let closed = self.gate.close_unless(|| self.writes.shortage.cause())?;
        // A worker may have become short before it left the gate.
        self.writes.shortage.cause().map_or(Ok(closed), Err)
    }

    /// Has all that is visible applied and made durable in buckets and overflow.
    pub(crate) fn wait_for_checkpoint(&self) -> Result<()> {
        self.wait_applied(self.writes.visible())?;
        let number = self.keeper.checkpoints_wanted.fetch_add(1, Ordering::AcqRel) + 1;
        self.writes.keeper_work.notify();
        self.wait_for(|| self.keeper.checkpoints_made.load(Ordering::Acquire) >= number)
    }

    /// Waits until all changes up to `sequence` are in their buckets.
    pub(crate) fn wait_applied(&self, sequence: u64) -> Result<()> {
        self.writes.pending.want(sequence);
        self.wait_for(|| self.writes.pending.drained() >= sequence)
    }

    /// Waits for a condition that a worker or the keeper brings about.
    fn wait_for(&self, is_there: impl Fn() -> bool) -> Result<()> {
        loop {
            let seen = self.writes.progress.generation();
            if is_there() {
                return Ok(());
            }
            self.check_sound()?;
            if let Some(cause) = self.writes.shortage.cause() {
                return Err(cause);
            }
            if self.stopping.load(Ordering::Acquire) {
                return Err(crate::Error::Closed);
            }
            self.writes.progress.wait(seen, None);
        }
    }
}
