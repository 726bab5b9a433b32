//! Segments of the value log, as the versions of a keyspace know them.
//!
//! A large value lies in a *segment* (`situ-values`); the table has a *handle* in its place. Each segment belongs to
//! one keyspace.
//!
//! 1. A flush writes large values to segments and syncs them. The edit that adds its table adds the segments, too.
//! 2. A compaction copies handles. The sums of what it drops are in its edit: the segment's dead values.
//! 3. A collection moves what is alive of a segment elsewhere. An edit removes the segment when no reader can ask for
//!    its values.
//!
//! **Invariants.** A view has every segment to which a handle of its memtables and tables leads that a reader of the
//! view can see. Older versions of an entry may lead to a segment that is gone: a newer version hides them from every
//! reader.
//!
//! **Life of a segment.** As that of a table's file: a [`SegmentFile`] lives as long as some version holds it. When an
//! edit has removed it, its last holder puts its number on the list of segments to delete.
//!
//! **What died, exactly.** The merge lists the places of the values that it drops, in a flush or a compaction. A reader
//! of the version before, or of any older one, could still ask for them. A reader of the memtable has a view with such
//! a version. So the edit ends an *era* ([`Era`]). The value log may erase the values when no version of that era, or
//! of an older one, is left. A crash forgets the list. So does a view that is held for long, when all lists together
//! exceed their limit: the oldest ones go. The sums stay, and a collection gives the space back. An opening that makes
//! tables of its log keeps the sums alone.
//!
//! **Threads.** Any. The sums of a segment change with the right to change versions only.

use crate::base::error::Error;
use crate::base::sync::lock;
use crate::base::value::Value;
use situ_base::Event;
use situ_base::spent::{Part, lap};
use situ_compaction::{DroppedValues, ValueHandles, ValueLocation};
use situ_storage::{Error as StorageError, Excerpt, FileName, Result as StorageResult};
use situ_table::Reach;
use situ_values::{Handle, KnownSegment, Numbers, ReadAhead, ValueLog, Written};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The entry of a table for a value in the value log: the value's handle, then the first bytes of the value, for a
/// filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer<'a> {
    pub(crate) handle: Handle,
    pub(crate) prefix: &'a [u8],
}

impl<'a> Pointer<'a> {
    pub(crate) fn append(handle: &Handle, prefix: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(&handle.encode());
        to.extend_from_slice(prefix);
    }

    /// Decodes a pointer; `None` if these bytes are no pointer.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Pointer<'a>> {
        let (handle, prefix) = bytes.split_at_checked(Handle::ENCODED_BYTES)?;
        Some(Pointer { handle: Handle::decode(handle).ok()?, prefix })
    }
}

/// Reads pointers for merges.
pub(crate) struct Pointers;

impl ValueHandles for Pointers {
    fn locate(&self, handle: &[u8]) -> Option<ValueLocation> {
        let handle = Pointer::decode(handle)?.handle;
        let (offset, length) = (u64::from(handle.offset), u64::from(handle.bytes));
        Some(ValueLocation { segment: handle.segment, offset, length, bytes: handle.footprint() })
    }

    fn prefix<'a>(&self, handle: &'a [u8], bytes: usize) -> Option<&'a [u8]> {
        let prefix = Pointer::decode(handle)?.prefix;
        prefix.get(..bytes)
    }
}

/// The number of lists up to which a search for lists that have gone is not worth it.
const HELD_LISTS_MIN: usize = 64;

/// The value log of a store, and its segments and values that are not needed any more.
#[derive(Default)]
pub(crate) struct ValueSource {
    log: OnceLock<Arc<ValueLog>>,
    opening: Mutex<Option<OpenLog>>,
    /// Gives numbers to new segments.
    numbers: Mutex<Option<Numbers>>,
    /// Segments with values of a flush that no edit names yet.
    being_written: Mutex<BTreeSet<u64>>,
    gone: Mutex<Gone>,
    held: Mutex<Held>,
    /// The writer, in a store that is open to read while another process writes it.
    beside: OnceLock<BesideWriter>,
}

/// A reader keeps no value from being erased that the writer has dropped since.
pub(crate) struct BesideWriter {
    /// The store's home.
    pub(crate) location: String,
    /// Returns true if there have been edits since the reader opened the store. An edit comes before its values are
    /// erased.
    pub(crate) has_changed: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The places that one edit has dropped.
type Places = Mutex<Vec<ValueLocation>>;

/// Places that a reader may still read, by eras that have ended.
#[derive(Default)]
struct Held {
    /// Oldest first; some of them have gone already.
    lists: VecDeque<Weak<Places>>,
    /// All lists together.
    bytes: usize,
    /// The number of lists at which those that have gone are removed.
    clean_at: usize,
}

impl Held {
    fn push(&mut self, places: Vec<ValueLocation>, bytes_max: usize) -> Arc<Places> {
        self.bytes += size_of_val(&places[..]);
        let list = Arc::new(Mutex::new(places));
        self.lists.push_back(Arc::downgrade(&list));
        while self.bytes > bytes_max
            && let Some(oldest) = self.lists.pop_front()
        {
            let forgotten = oldest.upgrade().map(|oldest| self.take(&oldest));
            drop(forgotten);
        }
        if self.lists.len() >= self.clean_at {
            self.lists.retain(|list| list.strong_count() > 0);
            self.clean_at = 2 * self.lists.len() + HELD_LISTS_MIN;
        }
        list
    }

    fn take(&mut self, places: &Places) -> Vec<ValueLocation> {
        let places = std::mem::take(&mut *lock(places));
        self.bytes -= size_of_val(&places[..]);
        places
    }
}

/// Opens the value log.
pub(crate) type OpenLog = Arc<dyn Fn() -> StorageResult<Arc<ValueLog>> + Send + Sync>;

#[derive(Default)]
struct Gone {
    segments: Vec<u64>,
    /// The number of further segments that are being deleted.
    deleting: usize,
    values: Vec<Vec<ValueLocation>>,
    /// Wakes the thread that deletes.
    bell: Option<Arc<dyn Event>>,
}

impl ValueSource {
    /// Sets the function that opens the log when it is first needed.
    pub(crate) fn open_by(&self, open: OpenLog) {
        *lock(&self.opening) = Some(open);
    }

    /// Notes that another process may write.
    pub(crate) fn read_beside(&self, writer: BesideWriter) {
        let _ = self.beside.set(writer);
    }

    /// Returns the error that the reader of a value gets.
    #[cold]
    fn explain(&self, error: StorageError) -> Error {
        let is_suspicious = matches!(error, StorageError::Corruption(_) | StorageError::NotFound { .. });
        match self.beside.get().filter(|writer| is_suspicious && (writer.has_changed)()) {
            Some(writer) => Error::Changed { location: writer.location.clone() },
            None => error.into(),
        }
    }

    /// Sets the function that gives numbers to new segments from now on.
    pub(crate) fn number_by(&self, numbers: Numbers) {
        *lock(&self.numbers) = Some(numbers);
    }

    /// Returns the number of a new segment.
    pub(crate) fn new_number(&self) -> u64 {
        let numbers = lock(&self.numbers).clone();
        let numbers = numbers.expect("a store numbers its files before it writes values");
        numbers()
    }

    /// Returns the log, which is opened if it is not open yet.
    ///
    /// # Errors
    /// The volume's; or this is no open store.
    pub(crate) fn log(&self) -> StorageResult<&Arc<ValueLog>> {
        match self.log.get() {
            Some(log) => Ok(log),
            None => self.open(),
        }
    }

    /// Returns the log, if it is open.
    pub(crate) fn log_if_open(&self) -> Option<&Arc<ValueLog>> {
        self.log.get()
    }

    /// Opens the log. The thread that opens a store does this if there are segments. Otherwise the flusher does it,
    /// which writes the first one.
    #[cold]
    fn open(&self) -> StorageResult<&Arc<ValueLog>> {
        let open = lock(&self.opening).clone();
        let open = open.ok_or_else(|| StorageError::Invalid("this store has no value log".to_owned()))?;
        let log = open()?;
        Ok(self.log.get_or_init(|| log))
    }

    /// Notes that a flush writes values to the segment.
    pub(crate) fn begin_writing(&self, segment: u64) {
        lock(&self.being_written).insert(segment);
    }

    /// Notes that the flush has ended: an edit names its values, or nothing does.
    pub(crate) fn end_writing(&self, segments: &BTreeSet<u64>) {
        lock(&self.being_written).retain(|segment| !segments.contains(segment));
    }

    /// Returns true if the segment may have values that no version leads to yet, and soon one will.
    pub(crate) fn is_being_written(&self, segment: u64) -> bool {
        lock(&self.being_written).contains(&segment)
    }

    /// Makes the last holder of a segment or of dead values ring `bell` when it lets go, from now on.
    pub(crate) fn ring(&self, bell: Arc<dyn Event>) {
        lock(&self.gone).bell = Some(bell);
    }

    /// Puts a segment on the list of those to delete, without ringing.
    pub(crate) fn add(&self, number: u64) {
        lock(&self.gone).segments.push(number);
    }

    /// Returns the maximum bytes for places of dead values that may still have readers: as many as the value log allows
    /// for dead ranges.
    fn held_bytes_max(&self) -> usize {
        let known = self.log_if_open().map(|log| log.options().dead_ranges_bytes_max);
        known.unwrap_or(situ_values::Options::default().dead_ranges_bytes_max)
    }

    fn receive(&self, change: impl FnOnce(&mut Gone)) {
        let bell = {
            let mut gone = lock(&self.gone);
            change(&mut gone);
            gone.bell.clone()
        };
        bell.iter().for_each(|bell| bell.notify());
    }

    /// Takes the segments to be deleted.
    pub(crate) fn take_segments(&self) -> Deleting<'_> {
        let mut gone = lock(&self.gone);
        let segments = std::mem::take(&mut gone.segments);
        gone.deleting += segments.len();
        Deleting { source: self, segments }
    }

    /// Returns the number of segments that no version has and that are not deleted yet.
    pub(crate) fn undeleted(&self) -> usize {
        let gone = lock(&self.gone);
        gone.segments.len() + gone.deleting
    }

    /// Returns true if a thread is deleting segments.
    pub(crate) fn is_deleting(&self) -> bool {
        lock(&self.gone).deleting > 0
    }

    /// Takes the places that have no readers any more.
    pub(crate) fn take_dead(&self) -> Vec<Vec<ValueLocation>> {
        std::mem::take(&mut lock(&self.gone).values)
    }
}

/// Segments that a thread deletes.
pub(crate) struct Deleting<'a> {
    source: &'a ValueSource,
    pub(crate) segments: Vec<u64>,
}

impl Drop for Deleting<'_> {
    fn drop(&mut self) {
        lock(&self.source.gone).deleting -= self.segments.len();
    }
}

/// The versions between two edits that have dropped values. It lives as long as one of its versions, or an era before
/// it.
#[derive(Default)]
pub(crate) struct Era {
    /// Set when the era ends.
    ended: OnceLock<Ended>,
}

struct Ended {
    next: Arc<Era>,
    /// The places that the edit which ended the era has dropped.
    places: Arc<Places>,
    source: Arc<ValueSource>,
}

/// Not recursive: while one version is held for long, many eras follow it.
impl Drop for Era {
    fn drop(&mut self) {
        let mut ended = self.ended.take();
        while let Some(Ended { next, places, source }) = ended {
            let places = lock(&source.held).take(&places);
            source.receive(|gone| gone.values.push(places));
            ended = Arc::into_inner(next).and_then(|mut era| era.ended.take());
        }
    }
}

impl fmt::Debug for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Era(ended: {})", self.ended.get().is_some())
    }
}

/// Counts of values, and of their bytes with keys and headers.
#[derive(Debug, Default)]
struct Sums {
    values: AtomicU64,
    bytes: AtomicU64,
}

impl Sums {
    fn add(&self, values: u64, bytes: u64) {
        self.values.fetch_add(values, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.values.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// A segment of a keyspace.
pub(crate) struct SegmentFile {
    pub(crate) number: u64,
    source: Arc<ValueSource>,
    /// As the manifest has them.
    written: Sums,
    dead: Sums,
    obsolete: AtomicBool,
}

impl SegmentFile {
    fn new(number: u64, source: &Arc<ValueSource>) -> Arc<SegmentFile> {
        Arc::new(SegmentFile {
            number,
            source: Arc::clone(source),
            written: Sums::default(),
            dead: Sums::default(),
            obsolete: AtomicBool::new(false),
        })
    }

    /// Returns the values that tables have got handles for.
    pub(crate) fn written(&self) -> Written {
        let (records, record_bytes) = self.written.get();
        Written { segment: self.number, records, record_bytes }
    }

    /// Returns the values that no table has any more.
    pub(crate) fn dead(&self) -> DroppedValues {
        let (handles, bytes) = self.dead.get();
        DroppedValues { segment: self.number, handles, bytes }
    }

    /// Returns the bytes that tables still have.
    #[cfg(test)]
    pub(crate) fn live_bytes(&self) -> u64 {
        self.written().record_bytes.saturating_sub(self.dead().bytes)
    }

    /// Returns the segment as the value log gets it when it is opened.
    fn known(&self) -> KnownSegment {
        KnownSegment {
            number: self.number,
            record_bytes: self.written().record_bytes,
            dead_bytes: self.dead().bytes,
            ..KnownSegment::default()
        }
    }

    /// Marks the segment for deletion when the last holder lets go.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.source.receive(|gone| gone.segments.push(self.number));
        }
    }
}

impl fmt::Debug for SegmentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, dead {:?}", self.written(), self.dead())
    }
}

/// The segments of a keyspace at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    /// By number; `None` if there are none.
    files: Option<Arc<Vec<Arc<SegmentFile>>>>,
    /// `None` if there was never a segment.
    era: Option<Arc<Era>>,
}

impl Segments {
    pub(crate) fn files(&self) -> &[Arc<SegmentFile>] {
        self.files.as_ref().map_or(&[], |files| files)
    }

    /// Returns the average size of a value in these segments; 0 if there are none.
    pub(crate) fn mean_record_bytes(&self) -> u64 {
        let sums = self.files().iter().map(|file| file.written());
        let (records, bytes) = sums.fold((0, 0), |sum, w| (sum.0 + w.records, sum.1 + w.record_bytes));
        bytes / u64::max(records, 1)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_none()
    }

    /// Returns true if both are the same list, not only equal ones.
    pub(crate) fn is(&self, other: &Segments) -> bool {
        match (&self.files, &other.files) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    pub(crate) fn find(&self, number: u64) -> Option<&Arc<SegmentFile>> {
        let files = self.files();
        files.binary_search_by_key(&number, |file| file.number).ok().map(|at| &files[at])
    }

    /// Returns the list after an edit. A segment is there from the first values on that are written to it. Its sums are
    /// noted separately, when the edit is true: [`note_written`](Segments::note_written).
    ///
    /// # Errors
    /// In words, if the edit removes a segment that is not there.
    pub(crate) fn apply(
        &self,
        written: &[Written],
        removed: &[u64],
        source: &Arc<ValueSource>,
    ) -> Result<Segments, String> {
        let is_new = |written: &&Written| self.find(written.segment).is_none();
        let new: BTreeSet<u64> = written.iter().filter(is_new).map(|written| written.segment).collect();
        if new.is_empty() && removed.is_empty() {
            return Ok(self.clone());
        }
        let mut files = self.files().to_vec();
        for number in removed {
            let at = files.binary_search_by_key(number, |file| file.number);
            files.remove(at.map_err(|_| format!("segment {number} is not there and cannot be removed"))?);
        }
        files.extend(new.into_iter().map(|number| SegmentFile::new(number, source)));
        files.sort_by_key(|file| file.number);
        let era = self.era.clone().unwrap_or_default();
        Ok(Segments { files: (!files.is_empty()).then(|| Arc::new(files)), era: Some(era) })
    }

    /// Returns the same in a new era, for an edit that drops values.
    pub(crate) fn in_next_era(self) -> Segments {
        Segments { era: self.era.is_some().then(Arc::default), ..self }
    }

    /// Ends this list's era, as the edit that ends it is true. `next` is the list after it, `places` are the dropped
    /// values of the edit.
    pub(crate) fn end_era(&self, next: &Segments, places: Vec<ValueLocation>, source: &Arc<ValueSource>) {
        if let (Some(era), Some(next)) = (&self.era, &next.era) {
            let places = lock(&source.held).push(places, source.held_bytes_max());
            let ended = Ended { next: Arc::clone(next), places, source: Arc::clone(source) };
            assert!(era.ended.set(ended).is_ok(), "an era of versions ends once");
        }
    }

    /// Counts values that are there from now on.
    pub(crate) fn note_written(&self, written: &[Written]) {
        for Written { segment, records, record_bytes } in written {
            if let Some(file) = self.find(*segment) {
                file.written.add(*records, *record_bytes);
            }
        }
    }

    /// Returns the values that count: those of segments that are still there.
    pub(crate) fn counted(&self, dropped: &[DroppedValues]) -> Vec<DroppedValues> {
        dropped.iter().filter(|values| self.find(values.segment).is_some()).copied().collect()
    }

    /// Notes that these values are dead from now on.
    ///
    /// # Errors
    /// In words, if they lie in a segment that is not there.
    pub(crate) fn note_dead(&self, dropped: &[DroppedValues]) -> Result<(), String> {
        for DroppedValues { segment, handles, bytes } in dropped {
            let file = self.find(*segment);
            let file = file.ok_or_else(|| format!("dead values lie in segment {segment}, which is not there"))?;
            file.dead.add(*handles, *bytes);
            file.source.log_if_open().iter().for_each(|log| log.add_dead(*segment, *bytes));
        }
        Ok(())
    }

    /// Notes the written and dead values of an edit that is true. They count in sums of segments that are
    /// [there](Segments::counted).
    pub(crate) fn note(&self, written: &[Written], dead: &[DroppedValues]) {
        self.note_written(written);
        self.note_dead(dead).expect("dead values that count lie in segments that are there");
    }

    /// Returns the segments as the value log gets them when it is opened.
    pub(crate) fn known(&self) -> impl Iterator<Item = KnownSegment> {
        self.files().iter().map(|file| file.known())
    }

    /// Returns the value of `key` that a table has `pointer` for.
    ///
    /// # Errors
    /// The disk's; the value is damaged; [`NotInMemory`](StorageError::NotInMemory) if `reach` is too short.
    pub(crate) fn read(&self, key: &[u8], pointer: &[u8], reach: Reach) -> Result<Value, Error> {
        let (handle, source) = self.locate(key, pointer)?;
        let log = source.log()?;
        let value = lap(Part::ValueRead, || match reach {
            Reach::Disk => log.read(&handle, key).map(Some),
            Reach::AtOnce => log.read_now(&handle, key),
            Reach::Cache => Ok(None),
        });
        let value = value.map_err(|error| source.explain(error))?;
        Ok(Value::in_log(value.ok_or(StorageError::NotInMemory)?))
    }

    /// As [`read`](Segments::read) from the disk, where the read may be on its way already.
    ///
    /// # Errors
    /// As [`read`](Segments::read).
    pub(crate) fn read_begun(&self, key: &[u8], pointer: &[u8], begun: Option<&mut ReadAhead>) -> Result<Value, Error> {
        let (handle, source) = self.locate(key, pointer)?;
        let log = source.log()?;
        let value = lap(Part::ValueRead, || match begun {
            Some(begun) => begun.take(&handle, key),
            None => log.read(&handle, key),
        });
        Ok(Value::in_log(value.map_err(|error| source.explain(error))?))
    }

    /// Returns a read-ahead for values that will be asked for soon. Returns `None` if there are no segments.
    pub(crate) fn read_ahead(&self) -> Option<ReadAhead> {
        self.files().first()?.source.log_if_open().map(ReadAhead::new)
    }

    fn locate(&self, key: &[u8], pointer: &[u8]) -> Result<(Handle, &ValueSource), Error> {
        let Some(pointer) = Pointer::decode(pointer) else { return Err(no_pointer(key, pointer).into()) };
        let Some(file) = self.find(pointer.handle.segment) else { return Err(no_segment(key, &pointer.handle).into()) };
        Ok((pointer.handle, &file.source))
    }
}

fn no_pointer(key: &[u8], found: &[u8]) -> StorageError {
    let what = format!("value handle of key {}", Excerpt(key));
    StorageError::corruption("the store", 0, what, "a value handle", Excerpt(found))
}

fn no_segment(key: &[u8], handle: &Handle) -> StorageError {
    let expected = format!("the value of key {}", Excerpt(key));
    let offset = u64::from(handle.offset);
    StorageError::corruption(FileName::Values(handle.segment), offset, "segment", expected, "no such segment")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(segment: u64) -> Written {
        Written { segment, records: 3, record_bytes: 300 }
    }

    #[test]
    fn edits_add_and_remove_segments_and_wrong_ones_are_refused() {
        let source = Arc::new(ValueSource::default());
        let none = Segments::default();
        let both = none.apply(&[written(9), written(4), written(9)], &[], &source).unwrap();
        assert_eq!(both.files().iter().map(|file| file.number).collect::<Vec<_>>(), [4, 9]);
        assert!(both.apply(&[written(4)], &[], &source).unwrap().is(&both), "it has grown");
        assert!(both.apply(&[], &[5], &source).unwrap_err().contains("not there"));
        let one = both.apply(&[], &[4], &source).unwrap();
        assert!(one.find(4).is_none() && one.find(9).is_some() && !one.is(&both) && one.is(&one.clone()));
        assert!(one.apply(&[], &[9], &source).unwrap().is_empty());
    }

    #[test]
    fn a_removed_segment_is_deleted_by_its_last_holder() {
        let source = Arc::new(ValueSource::default());
        let one = Segments::default().apply(&[written(4)], &[], &source).unwrap();
        one.find(4).unwrap().retire();
        let two = one.clone();
        drop(one);
        assert_eq!(source.take_segments().segments, []);
        drop(two);
        let deleting = source.take_segments();
        assert_eq!(deleting.segments, [4]);
        assert!(source.is_deleting());
        drop(deleting);
        assert!(!source.is_deleting());
    }

    #[test]
    fn values_count_where_their_segment_is_there() {
        let source = Arc::new(ValueSource::default());
        let one = Segments::default().apply(&[written(4)], &[], &source).unwrap();
        one.note_written(&[written(4), written(4)]);
        let dead = |segment| DroppedValues { segment, handles: 1, bytes: 100 };
        assert_eq!(one.counted(&[dead(3), dead(4)]), [dead(4)]);
        one.note_dead(&[dead(4), dead(4)]).unwrap();
        assert!(one.note_dead(&[dead(3)]).unwrap_err().contains("not there"));
        let file = &one.files()[0];
        assert_eq!((file.written().records, file.dead().handles, file.live_bytes()), (6, 2, 400));
    }

    /// A version of two eras ago may lead to what the newest edit has dropped.
    #[test]
    fn what_died_is_told_when_no_version_of_its_era_or_before_is_left() {
        let source = Arc::new(ValueSource::default());
        let place = |offset| ValueLocation { segment: 4, offset, length: 98, bytes: 104 };
        let mut versions = vec![Segments::default().apply(&[written(4)], &[], &source).unwrap()];
        for offset in [4096, 8192, 12288] {
            let last = versions.last().unwrap();
            let next = last.clone().in_next_era();
            last.end_era(&next, vec![place(offset)], &source);
            versions.push(next);
        }
        drop(versions.remove(1));
        assert_eq!(source.take_dead(), Vec::<Vec<ValueLocation>>::new(), "an older one is left");
        drop(versions.remove(0));
        assert_eq!(source.take_dead(), [[place(4096)], [place(8192)]]);
        drop(versions);
        assert_eq!(source.take_dead(), [[place(12288)]]);
    }

    #[test]
    fn a_hundred_thousand_eras_end_without_recursion() {
        let source = Arc::new(ValueSource::default());
        let first = Segments::default().apply(&[written(4)], &[], &source).unwrap();
        let mut last = first.clone();
        for _ in 0..100_000 {
            let next = last.clone().in_next_era();
            last.end_era(&next, Vec::new(), &source);
            last = next;
        }
        drop(first);
        assert_eq!(source.take_dead().len(), 100_000);
    }

    /// A view is held for long: the oldest lists go, and what is left is told when the view goes.
    #[test]
    fn lists_of_what_died_take_no_more_than_their_limit() {
        let place = |offset| ValueLocation { segment: 4, offset, length: 98, bytes: 104 };
        let bytes = size_of::<ValueLocation>();
        let mut held = Held::default();
        let lists: Vec<_> = (0..10).map(|n| held.push(vec![place(n), place(n)], 7 * bytes)).collect();
        assert_eq!(held.bytes, 6 * bytes);
        assert!(lists[..7].iter().all(|list| lock(list).is_empty()), "the oldest ones");
        assert_eq!(held.take(&lists[9]), [place(9), place(9)]);
        drop(lists);
        for n in 0..1000 {
            drop(held.push(Vec::new(), 7 * bytes));
            assert!(held.lists.len() <= 2 * HELD_LISTS_MIN, "{n}: {}", held.lists.len());
        }
    }

    /// `docs/formats/table.md`.
    #[test]
    fn a_pointer_is_a_handle_and_the_first_bytes_of_the_value() {
        let handle = Handle { segment: 7, offset: 4096, bytes: 2045 };
        let mut bytes = Vec::new();
        Pointer::append(&handle, b"first", &mut bytes);
        assert_eq!(Pointer::decode(&bytes), Some(Pointer { handle, prefix: b"first" }));
        assert_eq!(
            Pointers.locate(&bytes),
            Some(ValueLocation { segment: 7, offset: 4096, length: 2045, bytes: 2048 })
        );
        assert_eq!((Pointers.prefix(&bytes, 3), Pointers.prefix(&bytes, 6)), (Some(&b"fir"[..]), None));
        assert_eq!(Pointer::decode(&bytes[1..]), None);
        assert_eq!(Pointer::decode(&bytes[..8]), None);
    }
}
