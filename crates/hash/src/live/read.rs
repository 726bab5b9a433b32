//! Reads: pending changes, then one bucket, then the overflow if the bucket says so.
//!
//! 1. The newest visible change of the key that is pending decides.
//! 2. The bucket is read. It decides if it has the key, or if it has no mark.
//! 3. The overflow is asked. If it has the key, that decides.
//! 4. Otherwise the bucket is read again, and the state is looked at. The entry may have gone back into the bucket, or
//!    into another one, between steps 2 and 3. If nothing has changed the key does not exist.
//!
//! **Why that is right.** A change leaves the pending table only when bucket and overflow have it. The state is looked
//! at behind the pending table: so whatever was applied at another state is seen there, or the new state is. An entry
//! that goes from the overflow to the bucket is in both for a while. An entry that moves to another bucket is there
//! before the state says so, and leaves the old one behind that.
//!
//! **Threads.** Any. No lock is held while the device works.
//! **Failure.** A bucket that is read while it is written can look damaged. It is read again a few times, and then it
//! is damaged.

use crate::Result;
use crate::format::address::hash_of;
use crate::format::bucket::Header;
use crate::format::entry::{Entry, Value};
use crate::format::rebuild::Change;
use crate::live::core::{Core, Seen};
use situ_storage::memory::copied;
use situ_values::Handle;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The number of reads of a bucket that looks damaged.
const READS_MAX: u32 = 8;

/// A value that was found.
pub(crate) enum Located {
    Here(Vec<u8>),
    /// A value in the value log.
    There(Handle),
}

/// The content of a bucket for a key.
pub(crate) enum InBucket {
    /// The value, or none if the entry has expired.
    Known(Option<Located>),
    /// The bucket does not have it; the overflow may.
    Marked(Header),
    /// Neither has it.
    Absent,
}

impl Core {
    /// Returns the value of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        let hash = hash_of(key, self.seed);
        let now_ms = self.now_ms();
        let mut missed = None;
        loop {
            match self.locate(hash, key, now_ms)? {
                None => return Ok(None),
                Some(Located::Here(value)) => return Ok(Some(value)),
                Some(Located::There(handle)) => match self.large.log.read(&handle, key) {
                    Ok(value) => return Ok(Some(value.into_vec())),
                    // The key may have another value since, and the value that was read from may be gone.
                    Err(_) if missed != Some(handle) => missed = Some(handle),
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }

    /// Returns the place of the value of a key.
    pub(crate) fn locate(&self, hash: u64, key: &[u8], now_ms: u64) -> Result<Option<Located>> {
        if let Some(known) = self.get_pending(hash, key, now_ms)? {
            return Ok(known.map(Located::Here));
        }
        loop {
            let seen = self.seen();
            let bucket = seen.state.bucket_of(hash);
            let found = self.find_in_bucket(bucket, key, now_ms)?;
            if let Some(answer) = self.answer(found, (hash, key), (&seen, bucket), now_ms)? {
                return Ok(answer);
            }
        }
    }

    /// Returns the pending change of a key, if there is one.
    pub(crate) fn get_pending(&self, hash: u64, key: &[u8], now_ms: u64) -> Result<Option<Option<Vec<u8>>>> {
        let Some(found) = self.writes.pending.find(hash, key, self.writes.visible()) else { return Ok(None) };
        Ok(Some(match found.change() {
            Change::Put(entry) if !entry.is_expired(now_ms) => Some(copied(entry.value.bytes(), "a value")?),
            _ => None,
        }))
    }

    /// Does steps 3 and 4; none if the bucket has to be read again.
    pub(crate) fn answer(
        &self,
        found: InBucket,
        (hash, key): (u64, &[u8]),
        (seen, bucket): (&Seen, u64),
        now_ms: u64,
    ) -> Result<Option<Option<Located>>> {
        let header = match found {
            InBucket::Known(value) => return Ok(Some(value)),
            InBucket::Absent => return Ok(self.is_still(seen, bucket, hash).then_some(None)),
            InBucket::Marked(header) => header,
        };
        self.counters.overflow_reads.fetch_add(1, Ordering::Relaxed);
        if let Some(stored) = self.overflow.get(hash, key)? {
            let overflow_key = crate::format::address::overflow_key(hash, key);
            let (_, entry) = Entry::from_overflow(self.overflow.path(), &overflow_key, &stored)?;
            return value_of(&entry, now_ms).map(Some);
        }
        let again = self.find_in_bucket(bucket, key, now_ms)?;
        match again {
            InBucket::Marked(now) if now == header && self.is_still(seen, bucket, hash) => Ok(Some(None)),
            InBucket::Known(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// Returns true if a hash has belonged to a bucket all the time since `seen`. Each split and merge begins an epoch:
    /// a bucket that was merged and split again meanwhile may have been read as it lay empty.
    pub(crate) fn is_still(&self, seen: &Seen, bucket: u64, hash: u64) -> bool {
        let now = self.seen();
        now == *seen || now.epoch == seen.epoch && now.state.bucket_of(hash) == bucket
    }

    /// Reads a bucket and looks for a key.
    pub(crate) fn find_in_bucket(&self, bucket: u64, key: &[u8], now_ms: u64) -> Result<InBucket> {
        self.read_sound(bucket, |block| self.find_in(bucket, block, key, now_ms))
    }

    /// Looks for a key in a bucket that was read.
    pub(crate) fn find_in(&self, bucket: u64, block: &[u8], key: &[u8], now_ms: u64) -> Result<InBucket> {
        let found = self.codec.find(bucket, block, key)?;
        Ok(match found.entry {
            Some(entry) => InBucket::Known(value_of(&entry, now_ms)?),
            None if found.header.now.overflow_entries > 0 => InBucket::Marked(found.header),
            None => InBucket::Absent,
        })
    }

    /// Reads a bucket until it is sound, or has been damaged a few times.
    pub(crate) fn read_sound<T>(&self, bucket: u64, mut takes: impl FnMut(&[u8]) -> Result<T>) -> Result<T> {
        let mut reads = 1;
        loop {
            match self.io.read(bucket, &mut takes)? {
                Err(error) if error.is_corruption() && reads < READS_MAX => {
                    // It is being written, perhaps; that takes as long as the device takes.
                    self.env.clock.sleep(Duration::from_micros(50 << reads));
                    reads += 1;
                }
                outcome => return outcome,
            }
        }
    }
}

/// Returns the place of the value of an entry; none if the entry has expired.
fn value_of(entry: &Entry<'_>, now_ms: u64) -> Result<Option<Located>> {
    if entry.is_expired(now_ms) {
        return Ok(None);
    }
    Ok(Some(match entry.value {
        Value::Inline(bytes) => Located::Here(copied(bytes, "a value")?),
        Value::Pointer(bytes) => Located::There(Handle::decode(bytes)?),
    }))
}
