//! Large values: the value log of a store, and what the store knows of its segments.
//!
//! 1. A worker appends the large values of its batch, and makes them durable. Then it writes their handles into
//!    buckets.
//! 2. Each segment is *listed* in a keyspace of the overflow store, durably, before a bucket has a handle into it.
//!    Opening gives the list to the value log; other segments are orphans.
//! 3. A handle that leaves its bucket *died*. The value log gets it at the next checkpoint: then the bucket is durable,
//!    and no crash brings the handle back. While there are snapshots, deaths wait.
//!    A list of the dead in the overflow store keeps them over the end of the process. It is emptied together with the
//!    sums that count them. Memory has a bounded part of the list. A checkpoint takes what is in memory, and another
//!    bounded part.
//! 4. After a checkpoint the value log trims, and the keeper collects a segment with much garbage (`collect.rs`).
//!
//! **Threads.** One writer, which workers borrow in turn. No lock is held while the disk works.
//! **Failure.** A power failure may lose the last deaths. Their bytes count as live until their segment is collected
//! for other garbage. No death counts twice: otherwise a segment with a live value could seem empty.

use crate::Result;
use crate::disk::overflow::Overflow;
use crate::writing::pending::BucketChanges;
use situ_base::{Env, Event, lock};
use situ_engine::{Durability, WriteBatch};
use situ_storage::{FileName, Volume};
use situ_values::{Handle, KnownSegment, Moved, Options, Phase, ValueLog, ValueWriter, Written, numbers_from};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Steps of trimming after a checkpoint.
const TIDY_STEPS: usize = 16;

/// Deaths that wait in memory, and those that a checkpoint takes from the list. Tests have few, so that both are met.
const DEATHS_MAX: usize = if cfg!(test) { 8 } else { 1 << 16 };

/// See the module's documentation.
pub(crate) struct LargeValues {
    pub(crate) log: Arc<ValueLog>,
    writer: Mutex<Option<ValueWriter>>,
    writer_is_free: Arc<dyn Event>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Synced bytes of the records of each segment.
    listed: BTreeMap<u64, u64>,
    /// The same, of segments that are not listed durably yet.
    unlisted: BTreeMap<u64, u64>,
    deaths: Vec<Handle>,
    /// Bytes of what has died since the last checkpoint that took deaths.
    dying_bytes: u64,
    /// The list of the dead has more than `deaths`, which are [`DEATHS_MAX`] at most while the list takes them, and
    /// `uncounted`.
    is_spilled: bool,
    /// Handles that the value log has got, and that the list of segments does not count yet.
    uncounted: Vec<Handle>,
    /// Handles of changes that wait for space, by sequence number: their values are in the value log.
    kept: BTreeMap<u64, HandleBytes>,
    /// Handles that died in batches that are to be applied again, with their partitions.
    died_before: BTreeMap<Handle, usize>,
    /// Segments that have been collected; they go at the next checkpoint without snapshots.
    retired: BTreeSet<u64>,
    /// The same, not yet gone from the list.
    gone: BTreeSet<u64>,
}

/// A handle as entries have it.
pub(crate) type HandleBytes = [u8; Handle::ENCODED_BYTES];

impl LargeValues {
    /// Opens the value log in the home of the store.
    pub(crate) fn open(
        home: Arc<dyn Volume>,
        env: &Env,
        segment_bytes: u64,
        overflow: &Overflow,
    ) -> Result<LargeValues> {
        let known = overflow.segments()?;
        let numbers = home.list()?.into_iter().filter_map(|file| match file.name {
            FileName::Values(number) => Some(number),
            _ => None,
        });
        let last = numbers.chain(known.iter().map(|segment| segment.number)).max().unwrap_or(0);
        let options = Options { segment_bytes, ..Options::for_nature(&home.nature()) };
        let log = ValueLog::open(home, env, options, numbers_from(last + 1), &known)?;
        let listed = known.iter().map(|segment| (segment.number, segment.record_bytes)).collect();
        Ok(LargeValues {
            writer: Mutex::new(Some(log.writer())),
            writer_is_free: env.executor.event(),
            log,
            state: Mutex::new(State { listed, is_spilled: true, ..State::default() }),
        })
    }

    /// Appends values with their keys; durable and listed on return.
    pub(crate) fn append(&self, overflow: &Overflow, values: &[(&[u8], &[u8])]) -> Result<Vec<HandleBytes>> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let mut writer = self.borrow_writer();
        let mut append = || {
            let handles = values.iter().map(|(key, value)| writer.append(0, key, value).map(|handle| handle.encode()));
            let handles = handles.collect::<situ_values::Result<Vec<_>>>()?;
            Ok::<_, situ_storage::Error>((handles, writer.sync()?))
        };
        let appended = append();
        let appended = appended.map_err(|error| {
            let left = writer.left_segment();
            // A writer that has failed stays so.
            writer = self.log.writer();
            self.forget_if_unlisted(left);
            crate::Error::from(error).or_out_of_space()
        });
        // Listed before another worker can find the writer, and the segment: it would write handles at once.
        let listed = appended.and_then(|(handles, written)| self.list(overflow, &written).map(|()| handles));
        *lock(&self.writer) = Some(writer);
        self.writer_is_free.notify();
        listed
    }

    /// Removes a segment that a writer has left behind, if no handle leads into it. A segment that cannot be removed is
    /// an orphan at the next opening.
    fn forget_if_unlisted(&self, left: Option<u64>) {
        if let Some(number) = left.filter(|number| !lock(&self.state).listed.contains_key(number)) {
            lock(&self.state).unlisted.remove(&number);
            _ = self.log.remove(number);
        }
    }

    /// Returns the handles of changes that wait for space.
    pub(crate) fn kept(&self) -> BTreeMap<u64, HandleBytes> {
        lock(&self.state).kept.clone()
    }

    /// Keeps the handles of changes that are to be applied again.
    pub(crate) fn keep(&self, changes: &[BucketChanges], handles: &[Option<HandleBytes>]) {
        let sequences = changes.iter().flat_map(|bucket| &bucket.changes).map(|change| change.sequence);
        let pairs = sequences.zip(handles);
        lock(&self.state).kept.extend(pairs.filter_map(|(sequence, handle)| Some((sequence, (*handle)?))));
    }

    /// Forgets the kept handles of changes that were applied.
    pub(crate) fn forget_kept(&self, changes: &[BucketChanges]) {
        let mut state = lock(&self.state);
        if state.kept.is_empty() {
            return;
        }
        for change in changes.iter().flat_map(|bucket| &bucket.changes) {
            state.kept.remove(&change.sequence);
        }
    }

    /// Notes that no batch of this partition is to be applied again.
    pub(crate) fn is_swept(&self, partition: usize) {
        lock(&self.state).died_before.retain(|_, other| *other != partition);
    }

    fn borrow_writer(&self) -> ValueWriter {
        loop {
            let seen = self.writer_is_free.generation();
            let writer = lock(&self.writer).take();
            if let Some(writer) = writer {
                return writer;
            }
            self.writer_is_free.wait(seen, None);
        }
    }

    /// Notes what was written; segments that are new are listed durably.
    pub(crate) fn list(&self, overflow: &Overflow, written: &[Written]) -> Result<()> {
        let new: Vec<KnownSegment> = {
            let mut state = lock(&self.state);
            let mut note = |written: &Written| {
                if let Some(bytes) = state.listed.get_mut(&written.segment) {
                    *bytes += written.record_bytes;
                    return None;
                }
                *state.unlisted.entry(written.segment).or_default() += written.record_bytes;
                Some(KnownSegment { number: written.segment, ..KnownSegment::default() })
            };
            written.iter().filter_map(&mut note).collect()
        };
        overflow.list_segments(&new, &[])?;
        let mut state = lock(&self.state);
        for segment in new {
            let bytes = state.unlisted.remove(&segment.number).unwrap_or(0);
            *state.listed.entry(segment.number).or_default() += bytes;
        }
        Ok(())
    }

    /// Lists the segments that values have moved to.
    pub(crate) fn list_targets(&self, overflow: &Overflow, moved: &[Moved]) -> Result<()> {
        let segments: BTreeSet<u64> = moved.iter().map(|moved| moved.to.segment).collect();
        // Their bytes are counted when the writer says them.
        let written = |segment| Written { segment, records: 0, record_bytes: 0 };
        self.list(overflow, &segments.into_iter().map(written).collect::<Vec<_>>())
    }

    /// Notes that these handles are in no bucket any more. The caller is inside the gate, or has it closed.
    pub(crate) fn died(&self, overflow: &Overflow, handles: &[Handle]) -> Result<()> {
        if handles.is_empty() {
            return Ok(());
        }
        let new: Vec<Handle> = {
            let state = lock(&self.state);
            handles.iter().filter(|handle| !state.died_before.contains_key(handle)).copied().collect()
        };
        let is_listed = match overflow.list_dead(&new) {
            // The death of the process forgets these deaths then.
            Err(crate::Error::OutOfSpace { .. }) => false,
            listed => listed.map(|()| true)?,
        };
        let mut state = lock(&self.state);
        state.dying_bytes += new.iter().map(Handle::footprint).sum::<u64>();
        if is_listed && state.deaths.len() + new.len() > DEATHS_MAX {
            // While a snapshot lives, no checkpoint takes them from memory.
            state.is_spilled = true;
        } else {
            state.deaths.extend(&new);
        }
        Ok(())
    }

    /// Notes deaths as [`died`](LargeValues::died) does, for a batch that will be applied again: these handles may be
    /// met again then.
    pub(crate) fn died_before_retry(&self, overflow: &Overflow, partition: usize, handles: &[Handle]) -> Result<()> {
        self.died(overflow, handles)?;
        lock(&self.state).died_before.extend(handles.iter().map(|handle| (*handle, partition)));
        Ok(())
    }

    /// Notes that a segment has been collected.
    pub(crate) fn retire(&self, number: u64) {
        lock(&self.state).retired.insert(number);
    }

    /// Returns the deaths that the value log can get when all buckets are durable: those in memory, and a piece of the
    /// list. With the gate closed, and no snapshot. Segments that were collected go with the last piece, as handles
    /// into them may be in the list.
    pub(crate) fn take_dead(&self, overflow: &Overflow) -> Result<(Vec<Handle>, BTreeSet<u64>)> {
        let in_memory: Option<BTreeSet<Handle>> = {
            let state = lock(&self.state);
            state.is_spilled.then(|| state.deaths.iter().chain(&state.uncounted).copied().collect())
        };
        let piece = in_memory.map(|in_memory| overflow.dead_beside(&in_memory)).transpose()?.unwrap_or_default();
        let mut state = lock(&self.state);
        state.is_spilled = piece.len() >= DEATHS_MAX;
        let retired = if state.is_spilled { BTreeSet::new() } else { std::mem::take(&mut state.retired) };
        let mut deaths = std::mem::take(&mut state.deaths);
        state.dying_bytes = 0;
        deaths.extend(piece);
        Ok((deaths, retired))
    }

    /// Returns the approximate number of bytes that a checkpoint would let the value log reclaim.
    pub(crate) fn dying_bytes(&self) -> u64 {
        lock(&self.state).dying_bytes
    }

    /// Returns true if a checkpoint would let segments go, or the value log reclaim something.
    pub(crate) fn owes(&self) -> bool {
        let state = lock(&self.state);
        let is_spilled = state.is_spilled && !state.listed.is_empty();
        state.dying_bytes > 0 || is_spilled || !state.retired.is_empty()
    }

    /// Returns true if there is no segment.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).listed.is_empty()
    }

    /// Returns true if most of what lies in the segment that is written to is dead.
    pub(crate) fn open_segment_is_dead(&self) -> bool {
        let open = self.log.segments().into_iter().filter(|segment| segment.phase == Phase::Open);
        let (live, dead) = open.fold((0, 0), |(live, dead), open| (live + open.live_bytes(), dead + open.dead_bytes));
        dead > live
    }

    /// Ends the segment that is written to, so that it can be collected. The next value begins another one.
    pub(crate) fn end_segment(&self, overflow: &Overflow) -> Result<()> {
        let writer = self.borrow_writer();
        let written = writer.finish();
        let listed = written
            .map_err(|error| crate::Error::from(error).or_out_of_space())
            .and_then(|written| self.list(overflow, &written));
        *lock(&self.writer) = Some(self.log.writer());
        self.writer_is_free.notify();
        listed
    }

    #[cfg(test)]
    pub(crate) fn deaths_in_memory(&self) -> usize {
        lock(&self.state).deaths.len()
    }

    /// Reports deaths to the value log, and lets segments go.
    pub(crate) fn bury(&self, overflow: &Overflow, (deaths, retired): (Vec<Handle>, BTreeSet<u64>)) -> Result<()> {
        let mut by_segment: BTreeMap<u64, Vec<Handle>> = BTreeMap::new();
        for handle in &deaths {
            by_segment.entry(handle.segment).or_default().push(*handle);
        }
        for (segment, handles) in &by_segment {
            self.log.died(*segment, handles)?;
        }
        let (known, gone, uncounted) = {
            let mut state = lock(&self.state);
            // Deaths that could not be counted before, for want of space, come along.
            state.uncounted.extend(deaths);
            state.gone.extend(retired);
            if state.uncounted.is_empty() && state.gone.is_empty() {
                return Ok(());
            }
            let gone: Vec<u64> = state.gone.iter().copied().collect();
            gone.iter().for_each(|number| _ = state.listed.remove(number));
            (self.known(&state), gone, state.uncounted.clone())
        };
        overflow.count_dead(&known, &gone, &uncounted)?;
        {
            let mut state = lock(&self.state);
            state.uncounted.clear();
            state.gone.clear();
        }
        gone.iter().try_for_each(|number| self.log.remove(*number))?;
        Ok(())
    }

    /// Returns the list, with what the value log knows of the dead.
    fn known(&self, state: &State) -> Vec<KnownSegment> {
        let infos: BTreeMap<u64, _> = self.log.segments().into_iter().map(|info| (info.number, info)).collect();
        let known = |(number, record_bytes): (&u64, &u64)| {
            let (dead_bytes, trimmed_bytes) =
                infos.get(number).map_or((0, 0), |info| (info.dead_bytes, info.trimmed_bytes));
            KnownSegment { number: *number, record_bytes: *record_bytes, dead_bytes, trimmed_bytes }
        };
        state.listed.iter().map(known).collect()
    }

    /// Ends the segment that is written to.
    pub(crate) fn close(&self, overflow: &Overflow) -> Result<()> {
        let writer = lock(&self.writer).take();
        let written = writer.map_or(Ok(Vec::new()), ValueWriter::finish)?;
        self.list(overflow, &written)
    }

    /// Trims a bounded part of what is dead.
    pub(crate) fn tidy(&self) -> Result<()> {
        for _ in 0..TIDY_STEPS {
            // Without space, the next checkpoint does the rest.
            if !self.log.tidy().map_err(|error| crate::Error::from(error).or_out_of_space())? {
                break;
            }
        }
        Ok(())
    }
}

/// Bytes of a segment in the list: the sums of its records, of dead ones, and of what was trimmed of these.
const LISTED_BYTES: usize = 24;

impl Overflow {
    /// Returns the segments of the value log that are listed.
    fn segments(&self) -> Result<Vec<KnownSegment>> {
        let Some(list) = self.segment_list()? else { return Ok(Vec::new()) };
        let mut known = Vec::new();
        for pair in list.iter()? {
            let (key, value) = pair?;
            let (Ok(number), Ok(sums)) = (<[u8; 8]>::try_from(&key[..]), <[u8; LISTED_BYTES]>::try_from(&value[..]))
            else {
                let found = format!("{} and {} bytes", key.len(), value.len());
                let expected = format!("8 and {LISTED_BYTES} bytes");
                return Err(situ_storage::Error::corruption(self.path(), 0, "list of segments", expected, found).into());
            };
            let sum = |at: usize| u64::from_le_bytes(sums[at..at + 8].try_into().expect("eight bytes"));
            known.push(KnownSegment {
                number: u64::from_be_bytes(number),
                record_bytes: sum(0),
                dead_bytes: sum(8),
                trimmed_bytes: sum(16),
            });
        }
        Ok(known)
    }

    /// Returns handles that died, are not in the sums yet, and are not in memory: [`DEATHS_MAX`] at most.
    fn dead_beside(&self, in_memory: &BTreeSet<Handle>) -> Result<Vec<Handle>> {
        let mut dead = Vec::new();
        let Some(list) = self.dead_list()? else { return Ok(dead) };
        for pair in list.iter()? {
            let handle = Handle::decode(&pair?.0)?;
            if !in_memory.contains(&handle) {
                dead.push(handle);
            }
            if dead.len() >= DEATHS_MAX {
                break;
            }
        }
        Ok(dead)
    }

    /// Lists the dead; that survives the end of the process.
    fn list_dead(&self, handles: &[Handle]) -> Result<()> {
        if handles.is_empty() {
            return Ok(());
        }
        let list = self.make_dead_list()?;
        let mut batch = WriteBatch::new();
        handles.iter().try_for_each(|handle| batch.put_in(&list, handle.encode(), []))?;
        self.write_batch(batch, Durability::Buffered)
    }

    /// Changes the list of segments, whose sums count `dead` from now on.
    fn count_dead(&self, known: &[KnownSegment], gone: &[u64], dead: &[Handle]) -> Result<()> {
        let mut batch = WriteBatch::new();
        if !dead.is_empty() {
            let list = self.make_dead_list()?;
            dead.iter().try_for_each(|handle| batch.delete_in(&list, handle.encode()))?;
        }
        self.write_segments(batch, known, gone)
    }

    /// Changes the list, durably.
    fn list_segments(&self, known: &[KnownSegment], gone: &[u64]) -> Result<()> {
        self.write_segments(WriteBatch::new(), known, gone)
    }

    fn write_segments(&self, mut batch: WriteBatch, known: &[KnownSegment], gone: &[u64]) -> Result<()> {
        if known.is_empty() && gone.is_empty() && batch.is_empty() {
            return Ok(());
        }
        let list = self.make_segment_list()?;
        for KnownSegment { number, record_bytes, dead_bytes, trimmed_bytes } in known {
            let sums = [record_bytes, dead_bytes, trimmed_bytes].map(|sum| sum.to_le_bytes()).concat();
            batch.put_in(&list, number.to_be_bytes(), sums)?;
        }
        gone.iter().try_for_each(|number| batch.delete_in(&list, number.to_be_bytes()))?;
        self.write_batch(batch, Durability::Synced)
    }
}
