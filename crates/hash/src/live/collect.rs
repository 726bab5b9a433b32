//! Collecting segments of the value log: what is alive in one moves, and buckets get the new handles.
//!
//! 1. After a checkpoint, while there are no snapshots, the value log names a victim, which is sealed. The gate is
//!    closed once. A worker that has appended a value there has put its handle into the bucket by then, or keeps it for
//!    a retry. A kept handle puts collection off.
//! 2. For each record: it is alive if the entry of its key has this very handle. The sums of a segment decide nothing:
//!    every record that may be alive is asked about.
//! 3. The value log copies live records. With the gate closed, each entry that still has the old handle gets the new
//!    one. If a write was faster, the copy is dead.
//! 4. The keeper goes on with the next victim, when it has no other work. One segment for each checkpoint would not
//!    keep up with a log that is overwritten.
//! 5. The segment goes at the next checkpoint: then the buckets with the new handles are durable.
//!
//! **Invariants.** An entry with another handle of the same length takes the same place. So tallies do not change, and
//! no log needs to name the bucket.
//! **Failure.** A segment that cannot be collected stays; the keeper tries again after the next checkpoint. Errors of
//! buckets fail the store.

use crate::disk::io::BUCKETS_MAX;
use crate::format::address::{State, hash_of};
use crate::format::entry::{Entry, Value};
use crate::format::rebuild::{Change, rebuild};
use crate::live::core::Core;
use crate::live::read::Located;
use crate::live::rewrite::{Place, Rewrites, decode_all, own_entries};
use crate::writing::shortage::Patience;
use crate::{Error, Result};
use situ_storage::Error as StorageError;
use situ_values::{Handle, Moved, Owner, Walked};
use std::sync::atomic::Ordering;

/// The store, as the value log asks it.
struct Asked<'a> {
    core: &'a Core,
    /// A failure of buckets: that concerns the store, not the segment.
    failure: Option<Error>,
}

impl Asked<'_> {
    fn pass<T>(&mut self, outcome: Result<T>) -> situ_values::Result<T> {
        outcome.map_err(|error| {
            let text = error.to_string();
            self.failure = Some(error);
            StorageError::Invalid(text)
        })
    }
}

impl Owner for Asked<'_> {
    fn is_live(&mut self, record: &Walked<'_>) -> situ_values::Result<bool> {
        let has = self.core.handle_of(record.key);
        Ok(self.pass(has)? == Some(record.handle))
    }

    fn moved(&mut self, moved: &[Moved]) -> situ_values::Result<()> {
        let core = self.core;
        let outcome = moved.chunks(BUCKETS_MAX).try_for_each(|moved| core.repoint(moved));
        self.pass(outcome)
    }
}

impl Core {
    /// Goes on with what a checkpoint has begun, a segment at a time. True if it did.
    pub(crate) fn collect_if_wanted(&self) -> Result<bool> {
        Ok(self.keeper.collects.load(Ordering::Acquire) && self.collect_if_due()?)
    }

    /// Collects one segment, if one is due. True if it was: then the keeper asks again.
    pub(crate) fn collect_if_due(&self) -> Result<bool> {
        let was_due = self.collect_one()?;
        self.keeper.collects.store(was_due, Ordering::Release);
        Ok(was_due)
    }

    fn collect_one(&self) -> Result<bool> {
        if !self.snapshots.list().is_empty() {
            return Ok(false);
        }
        let Some(victim) = self.large.log.victim() else { return Ok(false) };
        self.with_gate_closed(|| Ok(()))?;
        // A value that is kept for changes that wait for space is in no bucket yet, and alive.
        if !self.large.kept().is_empty() {
            return Ok(false);
        }
        let mut writer = self.large.log.collecting_writer();
        let mut asked = Asked { core: self, failure: None };
        let collected = self.large.log.collect(victim.number, &mut writer, &mut asked);
        let written = writer.finish();
        let listed = self.large.list(&self.overflow, &written.unwrap_or_default());
        if let Some(failure) = asked.failure {
            return Err(failure);
        }
        listed?;
        if collected.is_ok() {
            self.counters.collections.fetch_add(1, Ordering::Relaxed);
            self.large.retire(victim.number);
        }
        Ok(collected.is_ok())
    }

    /// Returns the handle that the entry of `key` has, if it has one.
    fn handle_of(&self, key: &[u8]) -> Result<Option<Handle>> {
        let hash = hash_of(key, self.seed);
        loop {
            let seen = self.seen();
            let bucket = seen.state.bucket_of(hash);
            // An expired entry still has its handle. No moment is early enough for anything to have expired.
            let found = self.find_in_bucket(bucket, key, 0)?;
            if let Some(answer) = self.answer(found, (hash, key), (&seen, bucket), 0)? {
                return Ok(match answer {
                    Some(Located::There(handle)) => Some(handle),
                    Some(Located::Here(_)) | None => None,
                });
            }
        }
    }

    /// Replaces handles in buckets.
    fn repoint(&self, moved: &[Moved]) -> Result<()> {
        self.large.list_targets(&self.overflow, moved)?;
        self.with_gate_closed(|| {
            let state = self.state();
            let mut sorted: Vec<(u64, &Moved)> =
                moved.iter().map(|moved| (state.bucket_of(hash_of(&moved.key, self.seed)), moved)).collect();
            sorted.sort_by_key(|(bucket, _)| *bucket);
            let mut rewrites = Rewrites::default();
            for group in sorted.chunk_by(|(one, _), (other, _)| one == other) {
                self.repoint_bucket(group[0].0, group, &state, &mut rewrites)?;
            }
            if self.images.as_ref().is_some_and(|images| !images.has_room(rewrites.len())) {
                self.restart_images()?;
            }
            let room = self.reserve_images(rewrites.len())?;
            rewrites.commit(self, room, Patience::UntilSpace)
        })
    }

    fn repoint_bucket(
        &self,
        number: u64,
        moved: &[(u64, &Moved)],
        state: &State,
        rewrites: &mut Rewrites,
    ) -> Result<()> {
        let block = self.io.read_many(&[number])?.remove(0);
        let bucket = self.codec.open(number, &block)?;
        let header = bucket.header();
        let stored = self.marked_overflow(number, state, header)?;
        let overflow = decode_all(self, &stored)?;
        let before = own_entries(self, number, state, &bucket, &overflow)?;
        let handles: Vec<_> = moved.iter().map(|(_, moved)| (moved.from, moved.to, moved.to.encode())).collect();
        let mut changes = Vec::new();
        for ((_, moved), (from, to, encoded)) in moved.iter().zip(&handles) {
            let mut entries = before.inline.iter().chain(&before.overflow);
            let entry = entries.find(|entry| entry.key == moved.key);
            match entry.map(pointer_of).transpose()?.flatten() {
                Some(handle) if handle == *from => changes
                    .push(Change::Put(Entry { value: Value::Pointer(encoded), ..*entry.expect("it has a pointer") })),
                _ => self.large.died(&self.overflow, &[*to])?,
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let contents = rebuild(before, changes.into_iter(), 0);
        let epoch = self.epoch();
        let place = Place {
            bucket: number,
            sequence: header.sequence,
            epoch,
            before: Some(header.before_in(epoch)),
            counted: header.now,
        };
        let next = rewrites.add(self, &place, &contents, &Vec::new())?;
        assert_eq!(next.now, header.now, "a handle takes the place of another one");
        Ok(())
    }
}

/// Returns the handle of an entry; none if the value lies in the bucket.
pub(crate) fn pointer_of(entry: &Entry<'_>) -> Result<Option<Handle>> {
    match entry.value {
        Value::Inline(_) => Ok(None),
        Value::Pointer(bytes) => Ok(Some(Handle::decode(bytes)?)),
    }
}
