//! The worker of a partition: it applies what is pending to buckets.
//!
//! A worker sleeps until its partition has enough to do, a caller wants everything applied, or a few changes have
//! waited for [`IDLE_AFTER`]. Then it sweeps once over its table:
//!
//! 1. The limit is what is visible now. The log is made durable that far. Otherwise a crash could keep a later write,
//!    whose bucket was written, and lose an earlier one.
//! 2. It takes the changes of the next buckets, up to [`BUCKETS_MAX`], and goes through the gate.
//! 3. It reads the buckets, many in flight, and the overflow of those that have a mark. It computes their next contents
//!    (`rebuild.rs`).
//! 4. It writes what has changed, in an order that survives a crash (`rewrite.rs`).
//! 5. The changes leave the pending table. Writers that wait for room are woken when there is much of it, or at the
//!    sweep's end.
//!
//! **Invariants.** A change leaves the table only when bucket and overflow have it. So a reader finds it here or there.
//! **Failure.** The first error fails the store. Changes that were not applied stay in the table and in the log. Want
//! of space fails nothing: the worker goes on with other buckets, and comes back to these (`shortage.rs`).

use crate::disk::images::{Room, pages_for};
use crate::disk::io::BUCKETS_MAX;
use crate::disk::large::HandleBytes;
use crate::disk::overflow::Stored;
use crate::format::address::{State, hash_of};
use crate::format::bucket::{Bucket, Header};
use crate::format::entry::{Entry, Value};
use crate::format::rebuild::{Before, Change, rebuild};
use crate::live::collect::pointer_of;
use crate::live::core::Core;
use crate::live::gate::Inside;
use crate::live::rewrite::{Place, Rewrites, decode_all, own_entries};
use crate::live::snapshots::Moment;
use crate::writing::pending::{BucketChanges, PendingChange};
use crate::writing::shortage::{Party, Patience, RETRY_EVERY};
use crate::{Error, Result};
use situ_base::panic_text;
use situ_values::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Changes that are too few for a sweep are applied after this time. Until then they take room in memory, in the log
/// and in the reserve of physical space.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// The changes of a bucket, with the handles of their large values.
struct Applied<'a> {
    changes: &'a BucketChanges,
    handles: &'a [Option<HandleBytes>],
}

impl<'a> Applied<'a> {
    /// Returns the changes up to a sequence number, as the bucket gets them.
    fn up_to(&self, sequence: u64) -> impl Iterator<Item = Change<'a>> {
        let pairs = self.changes.changes.iter().zip(self.handles);
        pairs.filter(move |(change, _)| change.sequence <= sequence).map(|(change, handle)| {
            match (change.change(), handle) {
                (Change::Put(entry), Some(handle)) => Change::Put(Entry { value: Value::Pointer(handle), ..entry }),
                (change, _) => change,
            }
        })
    }

    /// Returns the handles that the bucket had, and those that are new.
    fn handles_before(&self, before: &Before<'_>) -> Result<BTreeSet<Handle>> {
        let mut handles = BTreeSet::new();
        let shadowed = |entry: &Entry<'_>| before.inline.iter().any(|other| other.key == entry.key);
        let entries = before.inline.iter().chain(before.overflow.iter().filter(|entry| !shadowed(entry)));
        for entry in entries {
            handles.extend(pointer_of(entry)?);
        }
        for handle in self.handles.iter().flatten() {
            handles.insert(Handle::decode(handle)?);
        }
        Ok(handles)
    }
}

/// Returns true if each change of a bucket is the last one of its key, for the bucket itself or for a snapshot.
fn last_changes(changes: &[PendingChange], moments: &[Moment]) -> Vec<bool> {
    let mut later: BTreeMap<&[u8], u64> = BTreeMap::new();
    // Changes of one key come in the order of their sequence numbers.
    let mut is_last: Vec<bool> = Vec::with_capacity(changes.len());
    for change in changes.iter().rev() {
        let next = later.insert(change.change().key(), change.sequence);
        let is_seen = |next| moments.iter().any(|moment| (change.sequence..next).contains(&moment.sequence));
        is_last.push(next.is_none_or(is_seen));
    }
    is_last.reverse();
    is_last
}

impl Core {
    /// Runs the worker of partition `number`.
    pub(crate) fn work(&self, number: usize) {
        let mut rests_until = Duration::ZERO;
        let mut waits_since = None;
        loop {
            let pending = &self.writes.pending;
            let seen = pending.partitions()[number].work.generation();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            let is_sound = self.writes.failed().is_none();
            let is_due = is_sound && pending.is_due(number);
            if !is_due && is_sound && pending.has_some(number) {
                let now = self.env.clock.now();
                let waited = now.saturating_sub(*waits_since.get_or_insert(now));
                if waited < IDLE_AFTER {
                    pending.partitions()[number].work.wait(seen, Some(IDLE_AFTER - waited));
                } else {
                    // Perhaps nothing of it is visible yet.
                    waits_since = None;
                    pending.want(self.writes.visible());
                }
                continue;
            }
            waits_since = None;
            let rest = rests_until.saturating_sub(self.env.clock.now());
            if is_due && rest.is_zero() {
                self.guarded("worker", || {
                    if self.is_short_after(Party::Worker(number), || self.sweep_visible(number))? {
                        rests_until = self.env.clock.now() + RETRY_EVERY;
                    }
                    Ok(())
                });
                continue;
            }
            self.writes.pending.partitions()[number].work.wait(seen, is_due.then_some(rest));
        }
    }

    /// Runs a turn of a thread; an error or a panic in it fails the store.
    pub(crate) fn guarded(&self, job: &str, turn: impl FnOnce() -> Result<()>) {
        if let Err(error) = self.caught(job, turn) {
            self.writes.fail_with(error);
        }
    }

    /// Runs `turn` with the gate closed, if the store is sound. A failure is noted before the gate opens again, so
    /// workers do not go on with what is half done.
    pub(crate) fn with_gate_closed<T>(&self, turn: impl FnOnce() -> Result<T>) -> Result<T> {
        let _closed = self.gate.close();
        self.check_sound()?;
        self.caught("keeper", turn).inspect_err(|error| self.fail_unless_short(error))
    }

    /// Fails the store because of an error. Want of space does not fail it: nothing is half done then.
    fn fail_unless_short(&self, error: &Error) {
        if !matches!(error, Error::OutOfSpace { .. }) {
            self.writes.fail_with(error.clone());
        }
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
        self.large.is_swept(number);
        Ok(applied)
    }

    /// Applies changes as [`sweep`](Core::sweep) does, for the opening of the store. If space is missing for some
    /// buckets, the others are worked on, too: what is deleted there may give space back.
    pub(crate) fn apply_pending(&self, number: usize, limit: u64) -> Result<usize> {
        let mut applied = 0;
        let mut short = Ok(());
        let mut from = Some(0);
        while let Some(at) = from {
            let (inside, room) = self.enter_with_images(pages_for(BUCKETS_MAX))?;
            let state = self.state();
            let (changes, next) = self.writes.pending.take(number, at, limit, BUCKETS_MAX, &state);
            // A failure, too, is noted before the gate is left: the thread that closes it then knows that buckets and
            // totals may differ.
            let outcome = self.caught("worker", || self.apply_to_buckets(&changes, &state, room));
            let outcome = outcome.inspect_err(|error| self.fail_unless_short(error));
            if let Err(error @ Error::OutOfSpace { .. }) = &outcome {
                // Before a check can come by: what is half applied is no damage.
                self.writes.shortage.note(Party::Worker(number), error);
            }
            drop(inside);
            from = next;
            if let Err(error) = outcome {
                self.check_sound()?;
                short = short.and(Err(error));
                continue;
            }
            applied += changes.iter().map(|bucket| bucket.changes.len()).sum::<usize>();
            self.writes.pending.remove(number, &changes);
            if self.writes.pending.has_much_room() {
                self.writes.progress.notify();
            }
        }
        if applied > 0 {
            // Also if much room is not free: while space is missing, what waits may be a delete, which needs little.
            self.writes.progress.notify();
        }
        short.map(|()| applied)
    }

    /// Goes through the gate with room for images.
    fn enter_with_images(&self, pages: u64) -> Result<(Inside<'_>, Room<'_>)> {
        loop {
            let seen = self.writes.progress.generation();
            let inside = self.gate.enter();
            self.check_sound()?;
            let Some(images) = &self.images else { return Ok((inside, Room::none())) };
            if let Some(room) = images.reserve(pages) {
                return Ok((inside, room));
            }
            drop(inside);
            if !self.keeper.runs.load(Ordering::Acquire) {
                self.make_image_room()?;
                continue;
            }
            // The keeper may have ended without making room, for want of space.
            if self.stopping.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            self.keeper.image_room.store(true, Ordering::Release);
            self.writes.keeper_work.notify();
            self.writes.progress.wait(seen, None);
        }
    }

    /// Applies changes to buckets. The caller is inside the gate and has reserved room for the images.
    fn apply_to_buckets(&self, changes: &[BucketChanges], state: &State, room: Room<'_>) -> Result<()> {
        let numbers: Vec<u64> = changes.iter().map(|bucket| bucket.bucket).collect();
        let blocks = self.io.read_many(&numbers)?;
        let handles = self.append_large(changes)?;
        let mut rewrites = Rewrites::default();
        let mut died = Vec::new();
        let mut next = &handles[..];
        for (changes, block) in changes.iter().zip(&blocks) {
            let bucket = self.codec.open(changes.bucket, block)?;
            let (handles, rest) = next.split_at(changes.changes.len());
            next = rest;
            let applied = Applied { changes, handles };
            self.apply_to_bucket(&applied, state, &bucket, &mut rewrites, &mut died)?;
        }
        if let Err(error) = rewrites.commit(self, room, Patience::None) {
            if matches!(error, Error::OutOfSpace { .. }) {
                self.keep_for_retry(changes, &handles, &blocks, &mut rewrites, &died)?;
            }
            return Err(error);
        }
        let died: Vec<Handle> = died.into_iter().map(|(_, handle)| handle).collect();
        self.large.died(&self.overflow, &died)?;
        self.large.forget_kept(changes);
        self.io.give_back(blocks);
        Ok(())
    }

    /// Puts large values into the value log. Returns the handle of each change that has one, bucket by bucket. A value
    /// that a later change of its key replaces is not put there, unless a snapshot has the value.
    fn append_large(&self, changes: &[BucketChanges]) -> Result<Vec<Option<HandleBytes>>> {
        let all = || changes.iter().flat_map(|bucket| &bucket.changes);
        let is_long = |change: &PendingChange| match change.change() {
            Change::Put(entry) => entry.value.bytes().len() > self.options.inline_value_bytes_max,
            Change::Delete(_) => false,
        };
        if !all().any(is_long) {
            return Ok(vec![None; all().count()]);
        }
        let moments = self.snapshots.list();
        let is_last = changes.iter().flat_map(|bucket| last_changes(&bucket.changes, &moments));
        let all: Vec<(&PendingChange, bool)> = all().zip(is_last).collect();
        let large = |(change, is_last): (&PendingChange, bool)| is_last && is_long(change);
        let kept = self.large.kept();
        let values: Vec<(&[u8], &[u8])> = all
            .iter()
            .filter(|(change, _)| !kept.contains_key(&change.sequence))
            .filter_map(|(change, is_last)| match change.change() {
                Change::Put(entry) if large((change, *is_last)) => Some((entry.key, entry.value.bytes())),
                _ => None,
            })
            .collect();
        let mut handles = self.large.append(&self.overflow, &values)?.into_iter();
        let of_change = |(change, is_last): (&PendingChange, bool)| match kept.get(&change.sequence) {
            Some(handle) => Some(*handle),
            None => large((change, is_last)).then(|| handles.next()).flatten(),
        };
        Ok(all.into_iter().map(of_change).collect())
    }

    fn apply_to_bucket(
        &self,
        applied: &Applied<'_>,
        state: &State,
        bucket: &Bucket<'_>,
        rewrites: &mut Rewrites,
        died: &mut Vec<(u64, Handle)>,
    ) -> Result<()> {
        let changes = applied.changes;
        let header = bucket.header();
        self.require_age(changes.bucket, header)?;
        let overflow: Stored = self.marked_overflow(changes.bucket, state, header)?;
        let overflow = decode_all(self, &overflow)?;
        let before = own_entries(self, changes.bucket, state, bucket, &overflow)?;
        self.save_for_snapshots(applied, header, &before, rewrites)?;
        let mut handles = applied.handles_before(&before)?;
        let contents = rebuild(before, applied.up_to(u64::MAX), self.now_ms());
        contents.all().try_for_each(|entry| {
            Ok::<_, Error>(pointer_of(&entry)?.iter().for_each(|kept| _ = handles.remove(kept)))
        })?;
        died.extend(handles.into_iter().map(|handle| (changes.bucket, handle)));
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
        applied: &Applied<'_>,
        header: &Header,
        before: &Before<'_>,
        rewrites: &mut Rewrites,
    ) -> Result<()> {
        let changes = applied.changes;
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
            let contents = rebuild(before.clone(), applied.up_to(moment.sequence), 0);
            let entries = contents.all().map(|entry| (hash_of(entry.key, self.seed), entry));
            rewrites.saves.add(changes.bucket, moment.number, entries);
        }
        Ok(())
    }
}
