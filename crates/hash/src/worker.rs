//! The worker of a partition: it applies what is pending to buckets.
//!
//! A worker sleeps until its partition has enough to do, or somebody wants everything applied. Then it sweeps once over its table:
//!
//! 1. The limit is what is visible now. The log is made durable that far. Otherwise a crash could keep a later write, whose bucket
//!    was written, and lose an earlier one.
//! 2. It takes the changes of the next buckets, up to [`BUCKETS_MAX`], and goes through the gate.
//! 3. It reads the buckets, many in flight, and the overflow of those that have a mark. It computes their next contents (`rebuild.rs`).
//! 4. It writes what has changed, in an order that survives a crash (`rewrite.rs`).
//! 5. The changes leave the pending table. Writers that wait for room are woken.
//!
//! **Invariants.** A change leaves the table only when bucket and overflow have it. So a reader finds it here or there.
//! **Failure.** The first error fails the store. What was not applied stays in the table and in the log.

use crate::address::{State, hash_of};
use crate::bucket::{Bucket, Header};
use crate::core::Core;
use crate::gate::Inside;
use crate::images::pages_for;
use crate::overflow::Stored;
use crate::pending::{BucketChanges, PendingChange};
use crate::rebuild::{Before, rebuild};
use crate::rewrite::{Place, Rewrites, decode_all, own_entries};
use crate::{Error, Result};
use situ_device::panic_text;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Buckets that are read and written together.
pub(crate) const BUCKETS_MAX: usize = 64;

impl Core {
    /// The body of the worker of partition `number`.
    pub(crate) fn work(&self, number: usize) {
        loop {
            let seen = self.writes.pending.partitions()[number].work.generation();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            if self.writes.failed().is_none() && self.writes.pending.is_due(number) {
                self.guarded("worker", || self.sweep_visible(number));
                continue;
            }
            self.writes.pending.partitions()[number].work.wait(seen, None);
        }
    }

    /// Runs a turn of a thread; an error or a panic in it fails the store.
    pub(crate) fn guarded(&self, job: &str, turn: impl FnOnce() -> Result<()>) {
        if let Err(error) = self.caught(job, turn) {
            self.writes.fail_with(error);
        }
    }

    /// Runs `turn` with the gate closed, if the store is sound. A failure is noted before the gate opens again, so workers do not go on
    /// with what is half done.
    pub(crate) fn with_gate_closed<T>(&self, turn: impl FnOnce() -> Result<T>) -> Result<T> {
        let _closed = self.gate.close();
        self.check_sound()?;
        self.caught("keeper", turn).inspect_err(|error| self.writes.fail_with(error.clone()))
    }

    /// Runs a turn of a thread; a panic in it becomes an error.
    fn caught<T>(&self, job: &str, turn: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(turn)).unwrap_or_else(|panic| {
            Err(Error::Invalid(format!("a bug: the {job} thread panicked: {}", panic_text(&*panic))))
        })
    }

    fn sweep_visible(&self, number: usize) -> Result<()> {
        let wanted = self.writes.pending.wanted();
        self.pipeline.wait_published(|| self.writes.visible() >= wanted)?;
        let limit = self.writes.visible();
        self.writes.log.sync()?;
        let applied = self.sweep(number, limit)?;
        self.writes.progress.notify();
        self.writes.keeper_work.notify();
        if applied == 0 && self.writes.pending.is_due(number) {
            // All that is there is still on its way through the log.
            self.pipeline.wait_published(|| self.writes.visible() > limit || self.stopping.load(Ordering::Acquire))?;
        }
        Ok(())
    }

    /// Applies all changes of a partition up to `limit`, which the log has durably. Returns how many.
    fn sweep(&self, number: usize, limit: u64) -> Result<usize> {
        let applied = self.apply_pending(number, limit)?;
        self.writes.pending.set_drained(number, limit);
        Ok(applied)
    }

    /// As [`sweep`](Core::sweep), for whoever opens the store.
    pub(crate) fn apply_pending(&self, number: usize, limit: u64) -> Result<usize> {
        let mut applied = 0;
        let mut from = Some(0);
        while let Some(at) = from {
            let (inside, pages) = self.enter_with_images(pages_for(BUCKETS_MAX))?;
            let state = self.state();
            let (changes, next) = self.writes.pending.take(number, at, limit, BUCKETS_MAX, &state);
            // Also a failure is noted before the gate is left: whoever closes it then knows that buckets and totals may differ.
            let outcome = self.caught("worker", || self.apply_to_buckets(&changes, &state, pages));
            outcome.inspect_err(|error| self.writes.fail_with(error.clone()))?;
            drop(inside);
            applied += changes.iter().map(|bucket| bucket.changes.len()).sum::<usize>();
            self.writes.pending.remove(number, &changes);
            self.writes.progress.notify();
            from = next;
        }
        Ok(applied)
    }

    /// Goes through the gate with room for images.
    fn enter_with_images(&self, pages: u64) -> Result<(Inside<'_>, u64)> {
        loop {
            let seen = self.writes.progress.generation();
            let inside = self.gate.enter();
            self.check_sound()?;
            match &self.images {
                None => return Ok((inside, 0)),
                Some(images) if images.reserve(pages) => return Ok((inside, pages)),
                Some(_) => drop(inside),
            }
            if !self.keeper.runs.load(Ordering::Acquire) {
                self.make_image_room()?;
                continue;
            }
            self.keeper.image_room.store(true, Ordering::Release);
            self.writes.keeper_work.notify();
            self.writes.progress.wait(seen, None);
        }
    }

    /// Applies changes to buckets. The caller is inside the gate and has reserved pages for the images.
    fn apply_to_buckets(&self, changes: &[BucketChanges], state: &State, reserved_pages: u64) -> Result<()> {
        let numbers: Vec<u64> = changes.iter().map(|bucket| bucket.bucket).collect();
        let blocks = self.io.read_many(&numbers)?;
        let mut rewrites = Rewrites::default();
        for (changes, block) in changes.iter().zip(&blocks) {
            let bucket = self.codec.open(changes.bucket, block)?;
            self.apply_to_bucket(changes, state, &bucket, &mut rewrites)?;
        }
        rewrites.commit(self, reserved_pages)?;
        self.io.give_back(blocks);
        Ok(())
    }

    fn apply_to_bucket(
        &self,
        changes: &BucketChanges,
        state: &State,
        bucket: &Bucket<'_>,
        rewrites: &mut Rewrites,
    ) -> Result<()> {
        let header = bucket.header();
        let overflow: Stored = self.marked_overflow(changes.bucket, state, header)?;
        let overflow = decode_all(self, &overflow)?;
        let before = own_entries(self, changes.bucket, state, bucket, &overflow)?;
        self.save_for_snapshots(changes, header, &before, rewrites)?;
        let contents = rebuild(before, changes.changes.iter().map(|change| change.change()), self.now_ms());
        if !contents.is_changed {
            return Ok(());
        }
        let dead = self.dead_overflow(changes.bucket, state, header, &contents)?;
        let epoch = self.epoch();
        let place = Place {
            bucket: changes.bucket,
            sequence: header.sequence.max(changes.last_sequence()),
            epoch,
            before: Some(header.before_in(epoch)),
            counted: header.now,
        };
        rewrites.add(self, &place, &contents, &dead).map(drop)
    }

    /// Saves the entries of a bucket as they are after the changes up to each snapshot beyond which a change goes.
    fn save_for_snapshots(
        &self,
        changes: &BucketChanges,
        header: &Header,
        before: &Before<'_>,
        rewrites: &mut Rewrites,
    ) -> Result<()> {
        let moments = self.snapshots.list();
        for (at, moment) in moments.iter().enumerate() {
            let next = moments.get(at + 1).map_or(u64::MAX, |later| later.sequence);
            let goes_beyond = |change: &PendingChange| (moment.sequence + 1..=next).contains(&change.sequence);
            if header.sequence > moment.sequence
                || !changes.changes.iter().any(goes_beyond)
                || self.overflow.is_saved(changes.bucket, moment.number)?
            {
                continue;
            }
            let up_to = changes.changes.iter().filter(|change| change.sequence <= moment.sequence);
            let contents = rebuild(before.clone(), up_to.map(PendingChange::change), 0);
            let entries = contents.all().map(|entry| (hash_of(entry.key, self.seed), entry));
            rewrites.saves.add(changes.bucket, moment.number, entries);
        }
        Ok(())
    }
}
