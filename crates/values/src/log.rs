//! The log: its segments, and reads of records.

use crate::Result;
use crate::counters::{Counters, Meters, add};
use crate::files::Files;
use crate::format::Trailer;
use crate::handle::Handle;
use crate::options::{Numbers, Options};
use crate::record::check;
use crate::segment::{Duties, Phase, Segment, SegmentInfo, State};
use crate::value::Value;
use situ_base::{Env, lock};
use situ_storage::memory::zeroed;
use situ_storage::{Error, FileName, FinishedRead, ReadQueue, Volume};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Values outside of the structures that point at them. The crate's page has the whole picture.
pub struct ValueLog {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) numbers: Numbers,
    pub(crate) segments: Mutex<BTreeMap<u64, Arc<Segment>>>,
    pub(crate) files: Files,
    pub(crate) meters: Meters,
    /// One thread at a time tidies.
    pub(crate) tidying: AtomicBool,
    /// The disk has refused to discard, or the drive would not hear of it: it is not asked again.
    pub(crate) cannot_discard: AtomicBool,
    /// The work that `tidy` may have to do.
    pub(crate) duties: Mutex<Duties>,
    /// The memory that dead ranges take.
    pub(crate) ranges_bytes: AtomicUsize,
}

impl ValueLog {
    /// Reads a value with one I/O and checks it. `key` is the key that the value was appended with.
    ///
    /// # Errors
    /// [`Corruption`](Error::Corruption): something else lies there. [`NotFound`](Error::NotFound): the segment was
    /// removed. [`Invalid`](Error::Invalid): the record was not synced yet. Or I/O.
    pub fn read(&self, handle: &Handle, key: &[u8]) -> Result<Value> {
        let segment = self.readable(handle)?;
        let file = self.files.open(&*self.volume, handle.segment)?;
        let mut record = zeroed(handle.bytes as usize, file.path())?;
        file.read_at(u64::from(handle.offset), &mut record)?;
        let start = check(segment.identity, handle, key, &record, file.path())?;
        Ok(Value::new(record, start))
    }

    /// Reads a value as [`read`](ValueLog::read) does, but only without a wait for the disk. `None` if the read has to
    /// wait, or may have to.
    ///
    /// # Errors
    /// As [`read`](ValueLog::read).
    pub fn read_now(&self, handle: &Handle, key: &[u8]) -> Result<Option<Value>> {
        let segment = self.readable(handle)?;
        let Some(file) = self.files.opened(handle.segment) else { return Ok(None) };
        let mut record = zeroed(handle.bytes as usize, file.path())?;
        if !file.read_now(u64::from(handle.offset), &mut record)? {
            return Ok(None);
        }
        let start = check(segment.identity, handle, key, &record, file.path())?;
        Ok(Some(Value::new(record, start)))
    }

    /// Submits a read to a queue, under the caller's `tag`. [`finish_read`](ValueLog::finish_read) makes a value of
    /// what comes back. False if the queue is busy.
    ///
    /// # Errors
    /// As [`read`](ValueLog::read), as far as it is known before the disk is asked.
    pub fn submit(&self, queue: &mut ReadQueue, tag: u64, handle: &Handle) -> Result<bool> {
        self.readable(handle)?;
        let file = self.files.open(&*self.volume, handle.segment)?;
        let record = zeroed(handle.bytes as usize, file.path())?;
        Ok(queue.submit(&*file, tag, u64::from(handle.offset), record).is_ok())
    }

    /// Checks a read that was [submitted](ValueLog::submit) for `handle`.
    ///
    /// # Errors
    /// As [`read`](ValueLog::read).
    pub fn finish_read(&self, handle: &Handle, key: &[u8], read: FinishedRead) -> Result<Value> {
        read.result?;
        self.checked(handle, key, read.buffer)
    }

    /// Returns the value of a record that was read.
    pub(crate) fn checked(&self, handle: &Handle, key: &[u8], record: Vec<u8>) -> Result<Value> {
        let segment = self.readable(handle)?;
        let start = check(segment.identity, handle, key, &record, &self.path(handle.segment))?;
        Ok(Value::new(record, start))
    }

    /// Returns true if a read of this record could succeed, as far as it is known before the disk is asked.
    pub(crate) fn is_readable(&self, handle: &Handle) -> bool {
        self.readable(handle).is_ok()
    }

    /// Returns all segments, in the order of their numbers.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let segments: Vec<_> = lock(&self.segments).values().cloned().collect();
        segments.iter().map(|segment| lock(&segment.state).info(segment)).collect()
    }

    /// Returns one segment, if the log has it.
    pub fn segment(&self, number: u64) -> Option<SegmentInfo> {
        let segment = self.find(number)?;
        let state = lock(&segment.state);
        Some(state.info(&segment))
    }

    /// Returns the segments in which something was found damaged, each with what it is. All sound records can be read.
    pub fn damaged(&self) -> Vec<(u64, Error)> {
        let segments: Vec<_> = lock(&self.segments).values().cloned().collect();
        let damage = |segment: &Arc<Segment>| Some((segment.identity.segment, lock(&segment.state).damage.clone()?));
        segments.iter().filter_map(damage).collect()
    }

    /// Removes a segment. Neither the owner's durable state nor any reader may have a handle into it. Reads in flight
    /// end well.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid): a writer appends to it. Or I/O: the log has forgotten the segment, and its file is
    /// an orphan.
    pub fn remove(&self, number: u64) -> Result<()> {
        let Some(segment) = self.find(number) else {
            return Err(Error::NotFound { path: self.path(number) });
        };
        if lock(&segment.state).phase == Phase::Open {
            return Err(Error::Invalid(format!("segment {number} cannot be removed: a writer appends to it")));
        }
        lock(&self.segments).remove(&number);
        self.change(&segment, State::forget);
        self.files.forget(number);
        match self.volume.remove(FileName::Values(number)) {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        add(&self.meters.removed, 1);
        self.volume.sync_names()
    }

    /// Returns counts of the log's work since it was opened.
    pub fn counters(&self) -> Counters {
        self.meters.counters()
    }

    /// Returns the settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn find(&self, number: u64) -> Option<Arc<Segment>> {
        lock(&self.segments).get(&number).cloned()
    }

    pub(crate) fn add(&self, segment: &Arc<Segment>) {
        let before = lock(&self.segments).insert(segment.identity.segment, Arc::clone(segment));
        assert!(before.is_none(), "segment {} exists: a number was given out twice", segment.identity.segment);
    }

    /// Notes that a segment has got its trailer.
    pub(crate) fn sealed(&self, segment: &Segment, trailer: &Trailer) {
        let now = self.appended_total();
        self.change(segment, |state| {
            state.seal(trailer);
            state.sealed_at = now;
        });
    }

    /// Returns the log's own time: bytes appended since it was opened.
    pub(crate) fn appended_total(&self) -> u64 {
        self.meters.appended.load(Ordering::Relaxed)
    }

    pub(crate) fn path(&self, number: u64) -> String {
        format!("{}/{}", self.volume.location(), FileName::Values(number))
    }

    /// Returns the salt that tells this segment from an earlier one, should a file of its number lie in recycled room.
    pub(crate) fn salt(&self, number: u64) -> u64 {
        let time = self.env.clock.unix().as_nanos() as u64;
        (time ^ number.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn readable(&self, handle: &Handle) -> Result<Arc<Segment>> {
        let segment = self.find(handle.segment).ok_or_else(|| Error::NotFound { path: self.path(handle.segment) })?;
        let state = lock(&segment.state);
        state.check_readable(handle, || self.path(handle.segment))?;
        drop(state);
        Ok(segment)
    }
}

impl State {
    /// Notes that a record was appended, behind a gap of zeros.
    pub(crate) fn appended(&mut self, handle: &Handle, gap: Range<u64>) {
        self.records += 1;
        self.record_bytes += handle.footprint();
        self.data_end = handle.end();
        if gap.end - gap.start >= crate::format::ALIGN {
            self.add_gap(gap);
        }
    }

    /// Notes that its writer has ended. Bytes that were not synced are no records any more.
    pub(crate) fn abandon(&mut self) {
        self.phase = Phase::Abandoned;
        self.data_end = self.synced_end;
        self.readable_end = self.synced_end;
    }

    pub(crate) fn seal(&mut self, trailer: &Trailer) {
        self.phase = Phase::Sealed;
        self.data_end = trailer.data_end;
        self.readable_end = trailer.data_end;
        self.index_bytes = trailer.index_bytes;
        self.index_check = trailer.index_check;
        self.records = u64::from(trailer.records);
        self.record_bytes = trailer.record_bytes;
        self.whole_bytes = trailer.record_bytes;
    }

    fn check_readable(&self, handle: &Handle, path: impl Fn() -> String) -> Result<()> {
        if !handle.is_possible() {
            return Err(crate::error::invalid_handle(format!("{handle:?}")));
        }
        match &self.damage {
            Some(error) if self.phase == Phase::Lost => return Err(error.clone()),
            Some(error) if handle.end() > self.readable_end => return Err(error.clone()),
            _ => {}
        }
        match self.phase {
            _ if handle.end() <= self.readable_end => Ok(()),
            Phase::Open => Err(Error::Invalid(format!("{handle:?} was not synced yet; sync its writer first"))),
            _ => {
                let expected = format!("a record of {} bytes", handle.bytes);
                let found = format!("the end of the records at {}", self.readable_end);
                Err(Error::corruption(path(), u64::from(handle.offset), "value record", expected, found))
            }
        }
    }
}

impl fmt::Debug for ValueLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueLog({} segments, {:?})", lock(&self.segments).len(), self.options)
    }
}
