//! Purges: what is dead leaves its bucket although no write touches that bucket.
//!
//! An entry is dead when it has expired, or when the program says so ([`HashStore::remove_dead`]). A write of a bucket
//! drops what has expired there. A purge does the same for all other buckets:
//!
//! 1. It reads the buckets one after the other, with their overflow, and notes the keys of dead entries. Their order is
//!    that of the overflow, by hashes with their bits reversed. So a bucket that is split or merged meanwhile is not
//!    left out: its halves are neighbours.
//! 2. It deletes these keys in one batch. Of a bucket with expired entries, it deletes one that does not exist any
//!    more, so that a worker rewrites the bucket. The batch has a condition: no write has changed its keys since the
//!    keys were looked up (`conditions.rs`).
//! 3. The worker writes the bucket without what has expired. Large values die with their entries (`large.rs`).
//!
//! **When.** A purge for the program begins at once. For what expires, the store takes a *look* when something may have
//! expired, and once in [`REST`] at most. A store of up to [`SMALL_BUCKETS`] buckets is purged then. Of a larger one,
//! [`SAMPLE`] buckets are read, and a purge begins if an eighth of what they hold is dead. So what is dead takes less
//! than about an eighth of the store, also while writers never pause. A store in which nothing expires is not looked
//! at, but once when it was opened: the buckets do not say in advance.
//!
//! **Rate.** [`IDLE_BYTES_PER_S_MAX`] in an idle store, [`BUSY_BYTES_PER_S_MAX`] in one that is written to.
//! **Threads.** One, `hash-purge`. It sleeps while nothing can expire.
//! **Failure.** A damaged bucket is left to its readers. After any other failure the thread rests, and begins
//! again. Purges wait while there are snapshots: each bucket that changes would be saved for them.
//! **Rejected.** Writing buckets directly: the log would not name them, and the totals would be wrong after a crash. A
//! list of entries by their expiry: it is an index, and this store has none.

use crate::api::conditions::Checked;
use crate::api::store::HashStore;
use crate::format::address::{State, hash_of, overflow_range};
use crate::format::entry::Entry;
use crate::live::collect::pointer_of;
use crate::live::core::Core;
use crate::live::read::Located;
use crate::writing::batch::HashBatch;
use crate::writing::purges::{Asked, IDLE_AFTER, IsDead, NEVER};
use crate::{Error, Result};
use situ_base::lock;
use situ_log::Durability;
use situ_values::Handle;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks, and before what has failed is tried again.
const REST: Duration = Duration::from_secs(30);
/// Bytes that a purge reads and writes in a second.
const IDLE_BYTES_PER_S_MAX: u64 = 64 << 20;
const BUSY_BYTES_PER_S_MAX: u64 = 8 << 20;
/// Buckets that are purged in one step.
const STEP: u64 = if cfg!(test) { 4 } else { 64 };
/// The maximum number of buckets of a store that is purged without a sample. The number is small in tests, so that they
/// cover both cases.
const SMALL_BUCKETS: u64 = if cfg!(test) { 16 } else { 2048 };
/// Buckets of a sample.
const SAMPLE: u64 = if cfg!(test) { 8 } else { 256 };
/// A purge is worth it if it frees what entries take divided by this.
const WORTH: u64 = 8;
const BUCKET_BYTES: u64 = crate::format::geometry::BUCKET_BYTES as u64;

impl HashStore {
    /// Removes the entries that `is_dead` calls dead, soon and at a bounded rate, and writes `then` when it is done.
    /// An entry that was written under a key meanwhile stays, unless it is dead, too. Another call replaces this one,
    /// whose `then` is not written. So does the end of the store.
    pub fn remove_dead(&self, is_dead: IsDead, then: HashBatch) {
        let purges = &self.inner.core.writes.purges;
        *lock(&purges.asked) = Some(Asked { is_dead, then });
        purges.wake.notify();
    }
}

/// A dead entry.
struct Dead {
    bucket: u64,
    hash: u64,
    key: Vec<u8>,
    /// None if the entry has expired. Otherwise the program calls it dead; then the handle of its value, if the value
    /// is large.
    by_program: Option<Option<Handle>>,
}

/// The dead entries of some buckets, and sums of all entries there.
#[derive(Default)]
struct Found {
    /// One expired entry of each bucket, and all entries that the program calls dead.
    dead: Vec<Dead>,
    dead_entries: u64,
    dead_bytes: u64,
    bytes: u64,
    /// Expiries that are still to come, with what goes then.
    expiries: Vec<(u64, u64)>,
    /// The bytes that were read.
    read_bytes: u64,
}

impl Found {
    /// Returns the time at which dead entries will be worth a purge, if nothing is written.
    fn worth_at_ms(&mut self) -> u64 {
        self.expiries.sort_unstable();
        let mut dead = self.dead_bytes;
        let worth = self.expiries.iter().find(|(_, bytes)| {
            dead += bytes;
            self.is_worth_it(dead)
        });
        worth.map_or(NEVER, |(at, _)| *at)
    }

    fn is_worth_it(&self, dead_bytes: u64) -> bool {
        dead_bytes > 0 && dead_bytes.saturating_mul(WORTH) >= self.bytes
    }
}

/// Returns the buckets of a sample, of a store with at least [`SAMPLE`] buckets. Keys are spread by their hashes, but a
/// purge that was broken off has been to a part of the buckets: to those whose numbers, with their bits reversed, are
/// low. So the sample is spread evenly over the numbers, and over their low bits.
fn sample_of(buckets: u64) -> impl Iterator<Item = u64> {
    let stride = buckets / SAMPLE;
    let low_bits = (1 << stride.ilog2()) - 1;
    (0..SAMPLE).map(move |sampled| sampled * stride + (sampled.wrapping_sub(sampled * stride) & low_bits))
}

/// The memory of the purging thread.
struct Purger {
    /// The last visible sequence number, apart from the purges' own writes, and the time since which it is visible.
    visible: u64,
    since: Duration,
    /// The time before which no look begins.
    rests_until: Duration,
}

impl Purger {
    /// Returns the time until the store is idle, if nothing is written.
    fn idle_in(&mut self, core: &Core) -> Duration {
        let (now, visible) = (core.env.clock.now(), core.writes.visible());
        if self.visible != visible {
            (self.visible, self.since) = (visible, now);
        }
        (self.since + IDLE_AFTER).saturating_sub(now)
    }
}

impl Core {
    /// Runs the purging thread.
    pub(crate) fn purge_all_along(&self) {
        let now = self.env.clock.now();
        let rests_until = now + IDLE_AFTER;
        let mut purger = Purger { visible: self.writes.visible(), since: now, rests_until };
        loop {
            let seen = self.writes.purges.wake.generation();
            if self.stopping.load(Ordering::Acquire) || self.writes.is_closed() {
                return;
            }
            let wait = if self.writes.failed().is_some() {
                None
            } else {
                match self.purge_if_due(&mut purger) {
                    Ok(wait) => wait,
                    // Writers find an error that fails the store. Want of space passes.
                    Err(_) => {
                        purger.rests_until = self.env.clock.now() + REST;
                        Some(REST)
                    }
                }
            };
            if wait != Some(Duration::ZERO) {
                self.writes.purges.wake.wait(seen, wait);
            }
        }
    }

    /// Purges if that is due. Returns the time until the next purge may be due, if nothing is written.
    fn purge_if_due(&self, purger: &mut Purger) -> Result<Option<Duration>> {
        let purges = &self.writes.purges;
        let has_snapshots = !self.snapshots.list().is_empty();
        let is_asked = lock(&purges.asked).is_some();
        let next_ms = purges.next_expiry_ms.load(Ordering::Acquire);
        if !is_asked && next_ms == NEVER {
            return Ok(None);
        }
        if has_snapshots {
            // The end of the last one wakes the thread.
            return Ok(None);
        }
        if is_asked {
            let Some(asked) = lock(&purges.asked).take() else { return Ok(Some(Duration::ZERO)) };
            let Asked { is_dead, then } = asked;
            let purged = self.purge(purger, Some(&is_dead));
            return match purged {
                Ok(ControlFlow::Continue(())) => {
                    let write = self.ready(then)?;
                    self.pipeline.write(situ_pipeline::Write::new(write, None), Durability::Buffered)?;
                    Ok(Some(Duration::ZERO))
                }
                // To be tried again, unless the program has asked for another one meanwhile.
                outcome => {
                    lock(&purges.asked).get_or_insert(Asked { is_dead, then });
                    outcome.map(|_| Some(Duration::ZERO))
                }
            };
        }
        let rest = purger.rests_until.saturating_sub(self.env.clock.now());
        let until_expiry = Duration::from_millis(next_ms.saturating_sub(self.now_ms()));
        let wait = rest.max(until_expiry);
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        self.look(purger)?;
        purger.rests_until = self.env.clock.now() + REST;
        Ok(Some(Duration::ZERO))
    }

    /// Looks for what has expired, and purges if that is worth it.
    fn look(&self, purger: &mut Purger) -> Result<()> {
        let looked = self.sample_and_purge(purger);
        if !matches!(looked, Ok(ControlFlow::Continue(()))) {
            // The expiry of the remaining entries is unknown.
            self.writes.purges.next_expiry_ms.store(0, Ordering::Release);
        }
        looked.map(drop)
    }

    fn sample_and_purge(&self, purger: &mut Purger) -> Result<ControlFlow<()>> {
        let purges = &self.writes.purges;
        let buckets = self.state().buckets();
        if buckets > SMALL_BUCKETS {
            purges.next_expiry_ms.store(NEVER, Ordering::Release);
            let mut found = Found::default();
            for bucket in sample_of(buckets) {
                self.find_dead(bucket, None, &mut found)?;
            }
            self.pace(purger, found.read_bytes);
            purges.dead_entries.store(found.dead_entries.saturating_mul(buckets) / SAMPLE, Ordering::Relaxed);
            if !found.is_worth_it(found.dead_bytes) {
                purges.next_expiry_ms.fetch_min(found.worth_at_ms(), Ordering::AcqRel);
                return Ok(ControlFlow::Continue(()));
            }
        }
        self.purge(purger, None)
    }

    /// Purges all buckets. Breaks off if the store is closed, or a snapshot is taken.
    fn purge(&self, purger: &mut Purger, is_dead: Option<&IsDead>) -> Result<ControlFlow<()>> {
        let purges = &self.writes.purges;
        purges.next_expiry_ms.store(NEVER, Ordering::Release);
        // A write that was noted before is in its bucket when the bucket is read.
        let last = self.writes.last_sequence();
        self.pipeline.wait_published(|| self.writes.visible() >= last)?;
        self.wait_applied(last)?;
        let mut left = Found::default();
        let mut next = Some(0u64);
        while next.is_some() {
            if self.stopping.load(Ordering::Acquire) || self.writes.is_closed() || !self.snapshots.list().is_empty() {
                return Ok(ControlFlow::Break(()));
            }
            let mut found = Found::default();
            for _ in 0..STEP {
                let Some(at) = next else { break };
                let (seen, hash) = (self.seen(), at.reverse_bits());
                let bucket = seen.state.bucket_of(hash);
                self.find_dead(bucket, is_dead, &mut found)?;
                // Otherwise, entries may have left it before it was read.
                if self.is_still(&seen, bucket, hash) {
                    next = overflow_range(bucket, &seen.state).end.map(u64::from_be_bytes);
                }
            }
            let written = self.remove(purger, &found.dead, is_dead)?;
            left.expiries.extend(found.expiries.iter().map(|(at, _)| *at).min().map(|at| (at, 0)));
            self.pace(purger, found.read_bytes + 2 * BUCKET_BYTES * written);
        }
        let next = left.expiries.iter().map(|(at, _)| *at).min().unwrap_or(NEVER);
        purges.next_expiry_ms.fetch_min(next, Ordering::AcqRel);
        purges.dead_entries.store(0, Ordering::Relaxed);
        Ok(ControlFlow::Continue(()))
    }

    /// Sleeps for the time that these bytes are worth.
    fn pace(&self, purger: &mut Purger, bytes: u64) {
        let rate = if purger.idle_in(self).is_zero() { IDLE_BYTES_PER_S_MAX } else { BUSY_BYTES_PER_S_MAX };
        let until = self.env.clock.now() + Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate);
        loop {
            let seen = self.writes.purges.wake.generation();
            let left = until.saturating_sub(self.env.clock.now());
            if left.is_zero() || self.stopping.load(Ordering::Acquire) || self.writes.is_closed() {
                return;
            }
            self.writes.purges.wake.wait(seen, Some(left));
        }
    }

    /// Adds what a bucket holds to `found`.
    fn find_dead(&self, number: u64, is_dead: Option<&IsDead>, found: &mut Found) -> Result<()> {
        let state = self.state();
        let now_ms = self.now_ms();
        let block = self.read_sound(number, |block| {
            let bucket = self.codec.open(number, block)?;
            Ok((bucket.header().now.overflow_entries > 0, block.to_vec()))
        });
        let (is_marked, block) = match block {
            Err(error) if error.is_corruption() => return Ok(()),
            read => read?,
        };
        found.read_bytes += BUCKET_BYTES;
        let bucket = self.codec.open(number, &block)?;
        for entry in bucket.entries() {
            self.judge((number, &state), &entry, is_dead, now_ms, found)?;
        }
        if is_marked {
            for stored in self.overflow.of_bucket(number, &state)? {
                let (_, entry) = self.overflow.decode(&stored)?;
                if bucket.find(entry.key).is_none() {
                    found.read_bytes += entry.encoded_bytes() as u64;
                    self.judge((number, &state), &entry, is_dead, now_ms, found)?;
                }
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        (bucket, state): (u64, &State),
        entry: &Entry<'_>,
        is_dead: Option<&IsDead>,
        now_ms: u64,
        found: &mut Found,
    ) -> Result<()> {
        let hash = hash_of(entry.key, self.seed);
        if state.bucket_of(hash) != bucket {
            return Ok(());
        }
        let handle = pointer_of(entry)?;
        let bytes = entry.encoded_bytes() as u64 + handle.as_ref().map_or(0, Handle::footprint);
        found.bytes += bytes;
        let by_program = if entry.is_expired(now_ms) {
            // The first one has its bucket written, without all of them.
            let is_first = found.dead.last().is_none_or(|dead| dead.bucket != bucket || dead.by_program.is_some());
            is_first.then_some(None)
        } else {
            found.expiries.extend(entry.expires_ms.map(|at| (at, bytes)));
            let is_dead = is_dead.map(|is_dead| self.is_dead(entry, handle.as_ref(), is_dead, found)).transpose()?;
            if is_dead != Some(true) {
                return Ok(());
            }
            Some(Some(handle))
        };
        found.dead_entries += 1;
        found.dead_bytes += bytes;
        let key = || entry.key.to_vec();
        found.dead.extend(by_program.map(|by_program| Dead { bucket, hash, key: key(), by_program }));
        Ok(())
    }

    /// Asks the program about an entry.
    fn is_dead(&self, entry: &Entry<'_>, handle: Option<&Handle>, is_dead: &IsDead, found: &mut Found) -> Result<bool> {
        let Some(handle) = handle else { return Ok(is_dead(entry.key, entry.value.bytes())) };
        found.read_bytes += handle.footprint();
        match self.large.log.read(handle, entry.key) {
            Ok(value) => Ok(is_dead(entry.key, &value.into_vec())),
            // The key has another value by now, or the value is damaged, which its readers get as an error.
            Err(error) if error.is_corruption() || matches!(error, situ_storage::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the keys of dead entries. Returns how many buckets that concerns, about.
    fn remove(&self, purger: &mut Purger, dead: &[Dead], is_dead: Option<&IsDead>) -> Result<u64> {
        loop {
            let outcome = self.checked(
                || {
                    let mut batch = HashBatch::new();
                    batch.set_uses_reserve();
                    let mut keys = Vec::new();
                    for entry in dead {
                        if self.is_still_dead(entry, is_dead)? {
                            batch.delete(&entry.key)?;
                            keys.push((entry.hash, entry.key.clone().into()));
                        }
                    }
                    Ok(Checked { write: self.ready(batch)?, keys })
                },
                Durability::Buffered,
            );
            match outcome {
                Err(Error::Conflict) => {}
                Err(error) => return Err(error),
                Ok(deleted) => {
                    // The store is as idle as before.
                    if purger.visible + deleted == self.writes.visible() {
                        purger.visible += deleted;
                    }
                    return Ok(deleted);
                }
            }
        }
    }

    /// Returns true if the newest entry of a key is dead, or there is none.
    fn is_still_dead(&self, dead: &Dead, is_dead: Option<&IsDead>) -> Result<bool> {
        let Some(located) = self.locate(dead.hash, &dead.key, self.now_ms())? else { return Ok(true) };
        Ok(match (located, &dead.by_program, is_dead) {
            (Located::There(handle), Some(Some(known)), _) => handle == *known,
            (Located::Here(value), Some(_), Some(is_dead)) => is_dead(&dead.key, &value),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample of 2^n buckets was the first part of the order in which a purge goes.
    #[test]
    fn a_sample_is_spread_over_the_store_and_over_the_order_of_purges() {
        for buckets in (0..400).map(|n| SAMPLE * 8 + n).chain([1 << 16, (1 << 20) + 1, (1 << 30) - 1]) {
            let sample: Vec<u64> = sample_of(buckets).collect();
            let parts: Vec<u64> = sample.iter().map(|bucket| bucket / (buckets / SAMPLE)).collect();
            assert_eq!(parts, (0..SAMPLE).collect::<Vec<_>>(), "{buckets} buckets: {sample:?}");
            let mut order: Vec<u64> =
                sample.iter().map(|bucket| bucket.reverse_bits() / (u64::MAX / SAMPLE + 1)).collect();
            order.sort_unstable();
            assert_eq!(order, (0..SAMPLE).collect::<Vec<_>>(), "{buckets} buckets: {sample:?}");
        }
    }
}
