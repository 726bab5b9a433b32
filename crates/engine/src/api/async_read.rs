//! Asynchronous reads.
//!
//! The store first tries a read on the caller's thread, with data that needs no wait: memtables, cached blocks, and
//! data in the system's page cache. Blocks on a raw disk count too, if it has lately answered as fast as another thread
//! would ([`read_now`](situ_storage::Reader::read_now)). Mostly this gives the answer, and the future is ready. Going
//! to another thread and back would take longer than the read. Otherwise a thread of the store does the rest
//! ([`Readers`](crate::read::future::Readers)), as of the same moment.
//!
//! So the caller's thread does not wait for a slow disk. If thousands of reads wait for a thread already, or no thread
//! can be had, the caller's thread reads itself. The try costs a search of the memtables and filters, which the thread
//! of the store repeats. It also costs a system call for each file that the page cache does not hold.
//!
//! [`Keyspace::get_at_once`] ends after the try: the caller decides whether the read is worth a thread's time, and an
//! answer that can be had at once costs no future.

use crate::api::keyspace::{Keyspace, in_key_order, value_bytes};
use crate::base::options::setters;
use crate::base::slow::{CutKey, Operation, SlowKind};
use crate::base::stats::sampled;
use crate::base::value::Value;
use crate::read::cursor::Cursor;
use crate::read::future::ReadFuture;
use crate::read::get::Lookup;
use crate::read::options::ReadOptions;
use crate::read::options::table_read_options;
use crate::versions::view::View;
use crate::{Error, Result};
use arc_swap::Guard;
use situ_storage::Excerpt;
use situ_table::{Reach, ReadOptions as TableReadOptions};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// The time of a call after which the caller's thread reads no further blocks for it.
const AT_ONCE_FOR: Duration = Duration::from_micros(200);

/// Options of a page of a scan: the entries that it holds, and their number.
///
/// ```
/// # use situ_engine as situ;
/// use situ::{ReadOptions, ScanOptions, Store};
///
/// # fn main() -> situ::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # fn wait<F: Future>(future: F) -> F::Output {
/// #     let mut future = std::pin::pin!(future);
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     loop {
/// #         if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) { return output; }
/// #         std::thread::yield_now();
/// #     }
/// # }
/// let store = Store::open(directory.path())?;
/// for key in ["apple", "banana", "cherry"] {
///     store.put(key, "fruit")?;
/// }
/// // All pages of one moment.
/// let read = ReadOptions::default().at(&store.snapshot()?);
/// let mut next = Some(ScanOptions::default().read(read).entries_max(2));
/// let mut keys = Vec::new();
/// while let Some(options) = next {
///     let page = wait(store.scan_async(&options))?; // in an asynchronous function: `.await?`
///     keys.extend(page.iter().map(|entry| entry.key.to_vec()));
///     next = options.after(&page);
/// }
/// assert_eq!(keys, [&b"apple"[..], b"banana", b"cherry"]);
/// # store.close()
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// Bounds, snapshot and use of the cache.
    pub read: ReadOptions,
    /// True if the scan goes from the last key of the bounds to the first. Default: false.
    pub reverse: bool,
    /// The maximum number of entries of the page, one at least. Default: 1,000.
    pub entries_max: usize,
    /// The size of keys and values at which the page ends, with the entry that reaches it. Default: 1 MiB.
    pub bytes_max: usize,
}

setters!(ScanOptions { read: ReadOptions, reverse: bool, entries_max: usize, bytes_max: usize });

impl Default for ScanOptions {
    fn default() -> ScanOptions {
        ScanOptions { read: ReadOptions::default(), reverse: false, entries_max: 1000, bytes_max: 1 << 20 }
    }
}

impl ScanOptions {
    /// Returns the read options of a page, which has all values.
    fn for_page(&self) -> ReadOptions {
        ReadOptions { values_on_demand: false, ..self.read.clone() }
    }

    /// Returns the options for the page behind `page`, which a scan with these options returned; `None` if it was the
    /// last one.
    #[must_use]
    pub fn after(mut self, page: &ScanPage) -> Option<ScanOptions> {
        let last = page.entries.last().filter(|_| page.more)?;
        match self.reverse {
            false => self.read.lower_bound = Some([&last.key[..], &[0]].concat()),
            true => self.read.upper_bound = Some(last.key.to_vec()),
        }
        Some(self)
    }
}

/// An entry of a [`ScanPage`].
#[derive(Clone)]
pub struct ScanEntry {
    /// Its key.
    pub key: Box<[u8]>,
    /// Its value.
    pub value: Box<[u8]>,
}

impl fmt::Debug for ScanEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanEntry({}: {})", Excerpt(&self.key), Excerpt(&self.value))
    }
}

/// Entries in the order of the scan. It dereferences to them; clones are cheap.
#[derive(Debug, Clone)]
pub struct ScanPage {
    entries: Arc<Vec<ScanEntry>>,
    more: bool,
}

impl ScanPage {
    /// Returns true if the page ended at its bound and there are further entries.
    pub fn has_more(&self) -> bool {
        self.more
    }
}

impl Deref for ScanPage {
    type Target = [ScanEntry];

    fn deref(&self) -> &[ScanEntry] {
        &self.entries
    }
}

/// A page that is being filled. After an error, another iterator over the same moment can go on with it.
#[derive(Default)]
struct Filling {
    entries: Vec<ScanEntry>,
    bytes: usize,
}

impl Filling {
    /// Fills the page to its end. Returns true if there are further entries.
    fn fill(&mut self, iterator: &mut Cursor, options: &ScanOptions) -> Result<bool> {
        let advance = |iterator: &mut Cursor| if options.reverse { iterator.prev() } else { iterator.next() };
        match (self.entries.last(), options.reverse) {
            (None, false) => iterator.seek_to_first()?,
            (None, true) => iterator.seek_to_last()?,
            (Some(last), false) => iterator.seek(&last.key)?,
            (Some(last), true) => iterator.seek_for_prev(&last.key)?,
        }
        // The entry is there as of the same moment, and was taken.
        if !self.entries.is_empty() {
            advance(iterator)?;
        }
        while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
            let is_full = self.entries.len() >= options.entries_max || self.bytes >= options.bytes_max;
            // One entry at least: otherwise the next page would begin where this one did.
            if is_full && !self.entries.is_empty() {
                return Ok(true);
            }
            self.bytes += key.len() + value.len();
            self.entries.push(ScanEntry { key: key.into(), value: value.into() });
            // The next entry is looked at in any case.
            let entries_left = options.entries_max.saturating_sub(self.entries.len() + 1);
            iterator.expect_at_most(entries_left, options.bytes_max.saturating_sub(self.bytes));
            advance(iterator)?;
        }
        Ok(false)
    }

    fn finish(self, more: bool) -> ScanPage {
        ScanPage { entries: Arc::new(self.entries), more }
    }
}

/// The answer of [`Keyspace::get_at_once`].
#[derive(Debug)]
pub enum AtOnce<'a> {
    /// The value of the key, or `None` if the key does not exist.
    Known(Option<Value>),
    /// The value may be on a disk; no disk was asked.
    OnDisk(DiskRead<'a>),
}

/// A read that needs a disk: see [`Keyspace::get_at_once`]. It has not begun, and dropping it costs nothing.
pub struct DiskRead<'a> {
    keyspace: &'a Keyspace,
    key: &'a [u8],
    options: &'a ReadOptions,
    /// The time at which the attempt began, for a read of the sample.
    begun: Option<Duration>,
    view: Arc<View>,
    sequence: u64,
}

impl fmt::Debug for DiskRead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskRead(key: {})", Excerpt(self.key))
    }
}

impl DiskRead<'_> {
    /// Lets a thread of the store read, as of the moment of the attempt.
    ///
    /// # Errors
    /// All come from the future.
    pub fn begin(self) -> ReadFuture {
        let (keyspace, view, sequence, begun) = (self.keyspace.clone(), self.view, self.sequence, self.begun);
        let (key, options) = (self.key.to_vec(), table_read_options(self.options));
        let core = &self.keyspace.core;
        let under_way = core.pipeline.under_way();
        let waits_since = core.health.slow.begun();
        ReadFuture::begun(core.readers.submit(move || {
            let _under_way = under_way;
            let read = || Lookup::new(&key, sequence, options).run(&view);
            let describe =
                |found: &Result<_>| keyspace.described(SlowKind::Get, &key, value_bytes(found.as_ref().ok()));
            let found = keyspace.core.health.watch_here(waits_since, read, describe)?;
            keyspace.finished_read(begun, found.is_some());
            Ok(found)
        }))
    }
}

/// The outcome of an attempt to read on the caller's thread.
enum Attempt<'a> {
    Settled(Result<Option<Value>>),
    OnDisk(DiskRead<'a>),
}

impl Keyspace {
    /// Works like [`get`](Keyspace::get), without blocking: the future is ready at once if the answer needs no wait;
    /// otherwise a thread of the store reads it. All errors come from the future.
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture {
        self.get_with_async(key, &ReadOptions::default())
    }

    /// Works like [`get_with`](Keyspace::get_with), without blocking; see [`get_async`](Keyspace::get_async).
    pub fn get_with_async(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> ReadFuture {
        match self.attempt(key.as_ref(), options) {
            Ok(Attempt::Settled(outcome)) => ReadFuture::ready(outcome),
            Ok(Attempt::OnDisk(read)) => read.begin(),
            Err(error) => ReadFuture::ready(Err(error)),
        }
    }

    /// Returns the value of `key` if it needs no wait, without blocking and without a future. Otherwise returns a
    /// [`DiskRead`], which the caller begins or drops. The call suits a caller with many keys that limits the number of
    /// reads that wait for a disk.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::{AtOnce, ReadOptions, Store};
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = Store::open(directory.path())?;
    /// let fruit = store.keyspace("fruit")?;
    /// fruit.put("apple", "red")?;
    /// match fruit.get_at_once(b"apple", &ReadOptions::default())? {
    ///     AtOnce::Known(value) => assert_eq!(value.as_deref(), Some(&b"red"[..])),
    ///     AtOnce::OnDisk(read) => drop(read.begin()), // or keep the future
    /// }
    /// # drop(fruit);
    /// # store.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Keyspace::get).
    pub fn get_at_once<'a>(&'a self, key: &'a [u8], options: &'a ReadOptions) -> Result<AtOnce<'a>> {
        match self.attempt(key, options)? {
            Attempt::Settled(outcome) => outcome.map(AtOnce::Known),
            Attempt::OnDisk(read) => Ok(AtOnce::OnDisk(read)),
        }
    }

    fn attempt<'a>(&'a self, key: &'a [u8], options: &'a ReadOptions) -> Result<Attempt<'a>> {
        let begun = sampled().then(|| self.core.env.clock.now());
        let (view, sequence) = self.at(options.point.as_ref())?;
        let read = || Lookup::new(key, sequence, at_once(options)).run(&view);
        let describe = |found: &Result<_>| self.described(SlowKind::Get, key, value_bytes(found.as_ref().ok()));
        let (found, _) = self.core.health.watch(None, read, describe);
        match settled(found, options) {
            Some(outcome) => {
                if let Ok(found) = &outcome {
                    self.finished_read(begun, found.is_some());
                }
                Ok(Attempt::Settled(outcome))
            }
            None => {
                let view = Guard::into_inner(view);
                Ok(Attempt::OnDisk(DiskRead { keyspace: self, key, options, begun, view, sequence }))
            }
        }
    }

    /// Counts a read, and its time if it is one of the sample.
    fn finished_read(&self, begun: Option<Duration>, found: bool) {
        self.count_read(found);
        if let Some(begun) = begun {
            self.core.health.stats.note_read(begun, self.core.env.clock.now());
        }
    }

    /// Works like [`multi_get`](Keyspace::multi_get), without blocking: the future is ready at once if no answer needs
    /// a wait; otherwise a thread of the store reads the missing values. All errors come from the future.
    pub fn multi_get_async(&self, keys: &[impl AsRef<[u8]>]) -> ReadFuture<Vec<Option<Value>>> {
        self.multi_get_with_async(keys, &ReadOptions::default())
    }

    /// Works like [`multi_get_with`](Keyspace::multi_get_with), without blocking; see
    /// [`multi_get_async`](Keyspace::multi_get_async).
    pub fn multi_get_with_async(
        &self,
        keys: &[impl AsRef<[u8]>],
        options: &ReadOptions,
    ) -> ReadFuture<Vec<Option<Value>>> {
        ReadFuture::begun(self.begin_multi_get(keys, options))
    }

    fn begin_multi_get(
        &self,
        keys: &[impl AsRef<[u8]>],
        options: &ReadOptions,
    ) -> Result<ReadFuture<Vec<Option<Value>>>> {
        let (view, sequence) = self.at(options.point.as_ref())?;
        let begun = self.core.env.clock.now();
        let mut values = vec![None; keys.len()];
        let mut left: Vec<(usize, Vec<u8>)> = Vec::new();
        for at in in_key_order(keys) {
            let key = keys[at].as_ref();
            // Many reads of a quick disk are a long time together.
            let has_time = left.is_empty() && self.core.env.clock.now().saturating_sub(begun) < AT_ONCE_FOR;
            let reach = if has_time { at_once(options) } else { in_memory(options) };
            let found = Lookup::new(key, sequence, reach).run(&view);
            match settled(found, options) {
                Some(Ok(found)) => {
                    self.count_read(found.is_some());
                    values[at] = found;
                }
                Some(Err(error)) => return Ok(ReadFuture::ready(Err(error))),
                None => left.push((at, key.to_vec())),
            }
        }
        if left.is_empty() {
            return Ok(ReadFuture::ready(Ok(values)));
        }
        let (keyspace, view, options) = (self.clone(), Guard::into_inner(view), table_read_options(options));
        let first = CutKey::from(keys.first().map_or(&[][..], AsRef::as_ref));
        let waits_since = self.core.health.slow.begun();
        let under_way = self.core.pipeline.under_way();
        self.core.readers.submit(move || {
            let _under_way = under_way;
            let read = || {
                for (at, key) in left {
                    values[at] = Lookup::new(&key, sequence, options).run(&view)?;
                    keyspace.count_read(values[at].is_some());
                }
                Ok(values)
            };
            let describe = |values: &Result<Vec<_>>| {
                Operation::new(
                    SlowKind::MultiGet,
                    keyspace.name().to_owned(),
                    first,
                    value_bytes(values.iter().flatten()),
                )
            };
            keyspace.core.health.watch_here(waits_since, read, describe)
        })
    }

    /// Returns a page of entries in key order, without blocking. The future is ready at once if no entry needs a wait;
    /// otherwise a thread of the store goes on from the first entry that does. [`ScanOptions::after`] leads to the next
    /// page. All errors come from the future.
    pub fn scan_async(&self, options: &ScanOptions) -> ReadFuture<ScanPage> {
        ReadFuture::begun(self.begin_scan(options))
    }

    fn begin_scan(&self, options: &ScanOptions) -> Result<ReadFuture<ScanPage>> {
        let (view, sequence) = self.at(options.read.point.as_ref())?;
        let view = Guard::into_inner(view);
        let mut page = Filling::default();
        let filled = self
            .cursor_over(Arc::clone(&view), sequence, options.for_page(), at_once(&options.read))
            .and_then(|mut iterator| page.fill(&mut iterator, options));
        if let Some(outcome) = settled(filled, &options.read) {
            return Ok(ReadFuture::ready(outcome.map(|more| page.finish(more))));
        }
        let (keyspace, options) = (self.clone(), options.clone());
        let waits_since = self.core.health.slow.begun();
        let under_way = self.core.pipeline.under_way();
        self.core.readers.submit(move || {
            let _under_way = under_way;
            let table_options = table_read_options(&options.read);
            let read = || {
                let mut iterator = keyspace.cursor_over(view, sequence, options.for_page(), table_options)?;
                let more = page.fill(&mut iterator, &options)?;
                Ok(page.finish(more))
            };
            let describe = |page: &Result<ScanPage>| {
                let entries = || page.iter().flat_map(|page| page.iter());
                let first = entries().next().map_or(&[][..], |entry| &entry.key);
                let bytes = entries().map(|entry| entry.key.len() + entry.value.len()).sum();
                keyspace.described(SlowKind::ScanPage, first, bytes)
            };
            keyspace.core.health.watch_here(waits_since, read, describe)
        })
    }
}

fn in_memory(options: &ReadOptions) -> TableReadOptions {
    TableReadOptions { reach: Reach::Cache, ..table_read_options(options) }
}

/// Returns the options for the caller's thread, which does not wait for a disk.
fn at_once(options: &ReadOptions) -> TableReadOptions {
    let reach = if options.memory_only { Reach::Cache } else { Reach::AtOnce };
    TableReadOptions { reach, ..table_read_options(options) }
}

/// Returns the outcome of a read that needed no wait; `None` if a disk is to be asked.
fn settled<T>(outcome: Result<T>, options: &ReadOptions) -> Option<Result<T>> {
    match outcome {
        Err(Error::Storage(error)) if error.is_not_in_memory() && !options.memory_only => None,
        outcome => Some(outcome),
    }
}
