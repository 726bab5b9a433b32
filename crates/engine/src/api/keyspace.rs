//! Keyspaces: separately tuned ordered maps that share a store's log, cache and sequence numbers.

use crate::base::batch::{Target, WriteBatch};
use crate::base::options::{Durability, SizeOptions};
use crate::base::places::HOME;
use crate::base::slow::{Operation, SlowKind};
use crate::base::stats::sampled;
use crate::base::store_id::StoreId;
use crate::base::sync::lock;
use crate::base::value::Value;
use crate::core::Core;
use crate::pipeline::future::WriteFuture;
use crate::pipeline::no_room::Level0;
use crate::pipeline::write::write;
use crate::read::cursor::{Cursor, RankedTombstones, Watch};
use crate::read::dead::KnownGaps;
use crate::read::get::Lookup;
use crate::read::merge::{LevelCursor, Source};
use crate::read::options::ReadOptions;
use crate::read::options::table_read_options;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::segments::SegmentFile;
use crate::versions::snapshot::ReadPoint;
use crate::versions::version::Level;
use crate::versions::view::View;
use crate::{Error, Result};
use situ_table::ReadOptions as TableReadOptions;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the sources that an iterator merges, newest first, and the range tombstones in them.
fn iterator_sources(view: &View, options: TableReadOptions) -> Result<(Vec<Source>, Vec<RankedTombstones>)> {
    let mut sources = Vec::new();
    let mut tombstones: Vec<RankedTombstones> = Vec::new();
    for slot in view.slots() {
        if slot.memtable.has_range_tombstones() {
            let index = slot.memtable.range_tombstones();
            tombstones.push(RankedTombstones { rank: sources.len(), index });
        }
        sources.push(Source::Memtable(slot.memtable.cursor()));
    }
    let (level0, deeper) = view.version.levels.split_at(1);
    for file in level0.iter().flat_map(|level| &level.files) {
        if file.meta.range_deletions > 0 {
            tombstones.push(RankedTombstones { rank: sources.len(), index: file.tombstones(&options)? });
        }
        sources.push(Source::Table(Box::new(file.table_for(&options)?.cursor(options))));
    }
    for level in deeper.iter().filter(|level| !level.files.is_empty()) {
        for file in level.files.iter().filter(|f| f.meta.range_deletions > 0) {
            tombstones.push(RankedTombstones { rank: sources.len(), index: file.tombstones(&options)? });
        }
        sources.push(Source::Level(Box::new(LevelCursor::new(level.files.clone(), options))));
    }
    Ok((sources, tombstones))
}

/// Positions of keys, in the keys' order: neighbours share blocks while these are in the processor's cache.
pub(crate) fn in_key_order<K: AsRef<[u8]>>(keys: &[K]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|at| keys[*at].as_ref());
    order
}

/// Returns the bytes of the values that were found.
pub(crate) fn value_bytes<'a>(values: impl IntoIterator<Item = &'a Option<Value>>) -> usize {
    values.into_iter().flatten().map(|value| value.len()).sum()
}

/// A handle to a keyspace. Clones are cheap and refer to the same keyspace.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) core: Arc<Core>,
    pub(crate) inner: Arc<KeyspaceCore>,
}

impl WriteBatch {
    /// Sets `key` to `value` in `keyspace`.
    ///
    /// # Errors
    /// As [`put`](WriteBatch::put); [`Error::Invalid`] if the batch holds changes for keyspaces of another store.
    pub fn put_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.push_put(keyspace.target(), key.as_ref(), value.as_ref())
    }

    /// Removes `key` from `keyspace`; no error if it does not exist.
    ///
    /// # Errors
    /// As [`put_in`](WriteBatch::put_in).
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.push_delete(keyspace.target(), key.as_ref())
    }

    /// Removes all keys in `begin..end` from `keyspace`, as [`delete_range`](WriteBatch::delete_range) does.
    ///
    /// # Errors
    /// As [`put_in`](WriteBatch::put_in), for both keys; `begin` may be empty.
    pub fn delete_range_in(
        &mut self,
        keyspace: &Keyspace,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.push_delete_range(keyspace.target(), begin.as_ref(), end.as_ref())
    }
}

impl Keyspace {
    pub(crate) fn target(&self) -> Target {
        Target::of(self.store_id(), self.id())
    }

    /// Returns the keyspace's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.inner.id
    }

    pub(crate) fn store_id(&self) -> StoreId {
        self.core.id
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.core.health.check_open()?;
        if self.inner.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: self.inner.name.clone() });
        }
        Ok(())
    }

    /// Returns the view to read, and the sequence number to read at. The view is loaded first: every entry that is
    /// visible then is in the view, or came later.
    pub(crate) fn at(&self, point: Option<&ReadPoint>) -> Result<(arc_swap::Guard<Arc<View>>, u64)> {
        self.check()?;
        let view = self.inner.view.load();
        let sequence = match point {
            None if !self.inner.may_get_segments(&view) => self.core.versions.snapshots.visible(),
            None => return Ok(self.with_its_segments(view)),
            Some(point) if point.belongs_to(&self.core.versions.snapshots) => point.sequence(),
            Some(_) => return Err(Error::Invalid("the snapshot was taken of another store".to_owned())),
        };
        Ok((view, sequence))
    }

    /// Returns a view and the visible sequence number, for a keyspace with a value log. A collection writes handles
    /// into a memtable that this view may have, and adds their segments to the next view. So the view has the segments
    /// of all visible entries only if it had the newest list of segments when the number was taken. This holds for a
    /// view without segments, too: a flush of an older memtable may write the first ones.
    fn with_its_segments(&self, mut view: arc_swap::Guard<Arc<View>>) -> (arc_swap::Guard<Arc<View>>, u64) {
        loop {
            let sequence = self.core.versions.snapshots.visible();
            let after = self.inner.view.load();
            if after.version.segments.is(&view.version.segments) {
                return (view, sequence);
            }
            view = after;
        }
    }

    /// Returns a batch of one put.
    fn put_of(&self, key: &[u8], value: &[u8]) -> Result<WriteBatch> {
        self.check()?;
        let mut batch = WriteBatch::new();
        batch.push_put(self.target(), key, value)?;
        Ok(batch)
    }

    /// Returns a batch of one delete.
    fn delete_of(&self, key: &[u8]) -> Result<WriteBatch> {
        self.check()?;
        let mut batch = WriteBatch::new();
        batch.push_delete(self.target(), key)?;
        Ok(batch)
    }

    /// Returns a batch of one range delete, or of nothing if the range is empty.
    fn delete_range_of(&self, begin: &[u8], end: &[u8]) -> Result<WriteBatch> {
        self.check()?;
        let mut batch = WriteBatch::new();
        batch.push_delete_range(self.target(), begin, end)?;
        Ok(batch)
    }

    /// Sets `key` to `value`, with the store's default durability.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key or value out of bounds; [`Error::ReadOnly`], [`Error::Failed`] or [`Error::Closed`]
    /// if the store takes no writes; a full disk.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, self.core.options.durability)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put).
    pub fn put_with(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let batch = self.put_of(key.as_ref(), value.as_ref())?;
        write(&self.core.pipeline, batch, durability)
    }

    /// Removes `key`; no error if it does not exist.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, self.core.options.durability)
    }

    /// Removes `key`; no error if it does not exist.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        let batch = self.delete_of(key.as_ref())?;
        write(&self.core.pipeline, batch, durability)
    }

    /// Removes all keys in `begin..end`, at the cost of one write.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put).
    pub fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range_with(begin, end, self.core.options.durability)
    }

    /// Removes all keys in `begin..end`, at the cost of one write.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put).
    pub fn delete_range_with(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        let batch = self.delete_range_of(begin.as_ref(), end.as_ref())?;
        write(&self.core.pipeline, batch, durability)
    }

    /// Works like [`put`](Keyspace::put), without blocking. The future is ready when the write is visible, and durable
    /// if it is to be. On a store that is not busy a buffered write is done on return: the calling thread hands its
    /// pages to the operating system. If the log lies on a disk without a file system, no page cache can take the
    /// pages. Then a thread of the store writes them, and the future is ready soon after.
    ///
    /// If the store cannot take the write now, because writers are slowed down or all memtables are full, the future
    /// stays pending. It is woken when the store has taken the write. The write takes place whether the future is
    /// polled or dropped. A store that closes answers writes that have not [begun](WriteFuture::has_begun) with
    /// [`Error::Closed`].
    ///
    /// Writes begin in the order of the calls, and become visible in that order. If one caller makes two writes one
    /// after the other, blocking or not, and both succeed, the second one is the newer. The future works with any
    /// runtime.
    ///
    /// # Errors
    /// All come from the future: as [`put`](Keyspace::put), and [`Error::TooManyWaiting`] if writes that wait for the
    /// store take 64 MiB of memory already.
    pub fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> WriteFuture {
        self.put_with_async(key, value, self.core.options.durability)
    }

    /// Works like [`put_with`](Keyspace::put_with), without blocking; see [`put_async`](Keyspace::put_async).
    pub fn put_with_async(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> WriteFuture {
        WriteFuture::begin(&self.core.pipeline, self.put_of(key.as_ref(), value.as_ref()), durability)
    }

    /// Works like [`delete`](Keyspace::delete), without blocking; see [`put_async`](Keyspace::put_async).
    pub fn delete_async(&self, key: impl AsRef<[u8]>) -> WriteFuture {
        self.delete_with_async(key, self.core.options.durability)
    }

    /// Works like [`delete_with`](Keyspace::delete_with), without blocking; see [`put_async`](Keyspace::put_async).
    pub fn delete_with_async(&self, key: impl AsRef<[u8]>, durability: Durability) -> WriteFuture {
        WriteFuture::begin(&self.core.pipeline, self.delete_of(key.as_ref()), durability)
    }

    /// Works like [`delete_range`](Keyspace::delete_range), without blocking; see [`put_async`](Keyspace::put_async).
    /// The future of an empty range, which is no change, is ready.
    pub fn delete_range_async(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> WriteFuture {
        self.delete_range_with_async(begin, end, self.core.options.durability)
    }

    /// Works like [`delete_range_with`](Keyspace::delete_range_with), without blocking; see
    /// [`put_async`](Keyspace::put_async).
    pub fn delete_range_with_async(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        durability: Durability,
    ) -> WriteFuture {
        WriteFuture::begin(&self.core.pipeline, self.delete_range_of(begin.as_ref(), end.as_ref()), durability)
    }

    /// Returns the newest value of `key`.
    ///
    /// # Errors
    /// A table could not be read, or is damaged.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_at(key.as_ref(), None, TableReadOptions::default())
    }

    /// Returns the value of `key`, as of the options' moment.
    ///
    /// # Errors
    /// As [`get`](Keyspace::get).
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        self.get_at(key.as_ref(), options.point.as_ref(), table_read_options(options))
    }

    pub(crate) fn get_at(
        &self,
        key: &[u8],
        point: Option<&ReadPoint>,
        options: TableReadOptions,
    ) -> Result<Option<Value>> {
        let started = sampled().then(|| self.core.env.clock.now());
        let health = &self.core.health;
        let watched = health.begins_watch();
        let found = self.at(point).and_then(|(view, sequence)| Lookup::new(key, sequence, options).run(&view));
        let describe = || self.described(SlowKind::Get, key, value_bytes(found.as_ref().ok()));
        let ended = health.ends_watch(watched, started, describe);
        let found = found?;
        self.count_read(found.is_some());
        if let (Some(started), Some(ended)) = (started, ended) {
            self.core.health.stats.note_read(started, ended);
        }
        Ok(found)
    }

    /// Describes a read that was slow.
    pub(crate) fn described(&self, kind: SlowKind, key: &[u8], bytes: usize) -> Operation {
        Operation::new(kind, self.inner.name.clone(), key, bytes)
    }

    pub(crate) fn count_read(&self, found: bool) {
        let counters = &self.core.health.stats.counters;
        counters.reads.add(1);
        if found {
            counters.reads_found.add(1);
        }
    }

    /// Returns true if `key` exists.
    ///
    /// # Errors
    /// As [`get`](Keyspace::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.contains_at(key.as_ref(), None)
    }

    pub(crate) fn contains_at(&self, key: &[u8], point: Option<&ReadPoint>) -> Result<bool> {
        let look = || {
            let (view, sequence) = self.at(point)?;
            Lookup::new(key, sequence, TableReadOptions::default()).exists(&view)
        };
        let found = self.core.health.watch(None, look, |_| self.described(SlowKind::Get, key, 0)).0?;
        self.count_read(found);
        Ok(found)
    }

    /// Returns the newest values of several keys, all of one moment, in the order of the keys.
    ///
    /// # Errors
    /// As [`get`](Keyspace::get), for the first key that fails.
    pub fn multi_get(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// Returns the values of several keys as of the options' moment, or of now, in the order of the keys.
    ///
    /// # Errors
    /// As [`multi_get`](Keyspace::multi_get).
    pub fn multi_get_with(&self, keys: &[impl AsRef<[u8]>], options: &ReadOptions) -> Result<Vec<Option<Value>>> {
        let read = || {
            let (view, sequence) = self.at(options.point.as_ref())?;
            let mut values = vec![None; keys.len()];
            for at in in_key_order(keys) {
                values[at] = Lookup::new(keys[at].as_ref(), sequence, table_read_options(options)).run(&view)?;
                self.count_read(values[at].is_some());
            }
            Ok(values)
        };
        let first = keys.first().map_or(&[][..], AsRef::as_ref);
        let describe =
            |values: &Result<Vec<_>>| self.described(SlowKind::MultiGet, first, value_bytes(values.iter().flatten()));
        self.core.health.watch(None, read, describe).0
    }

    /// Returns a cursor over all keys. The caller moves the cursor in both directions, and the cursor copies nothing.
    /// Most walks take less code with [`iter`](Keyspace::iter), [`range`](Keyspace::range) and
    /// [`prefix`](Keyspace::prefix).
    ///
    /// # Errors
    /// A table with range tombstones could not be opened.
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_of(ReadOptions::default())
    }

    /// Returns a cursor over the keys within the options' bounds, as of the options' moment or of now.
    ///
    /// # Errors
    /// As [`cursor`](Keyspace::cursor).
    pub fn cursor_with(&self, options: &ReadOptions) -> Result<Cursor> {
        self.cursor_of(options.clone())
    }

    pub(crate) fn cursor_of(&self, options: ReadOptions) -> Result<Cursor> {
        let (view, sequence) = self.at(options.point.as_ref())?;
        let table_options = table_read_options(&options);
        self.cursor_over(arc_swap::Guard::into_inner(view), sequence, options, table_options)
    }

    /// Returns a cursor over a view at a sequence number.
    pub(crate) fn cursor_over(
        &self,
        view: Arc<View>,
        sequence: u64,
        options: ReadOptions,
        table_options: TableReadOptions,
    ) -> Result<Cursor> {
        let (sources, tombstones) = iterator_sources(&view, table_options)
            .inspect_err(|error| self.core.versions.source.damaged.note(error))?;
        self.core.health.stats.counters.iterators.add(1);
        let known = KnownGaps {
            current: Arc::clone(&self.inner.view),
            of_keyspace: Arc::clone(&self.inner.gaps),
            since: options.point.as_ref().map_or(sequence, |_| self.core.versions.snapshots.visible()),
            has_filter: self.inner.options.compaction_filter.is_some(),
            of_snapshot: options.point.as_ref().map(|point| (self.inner.id, point.gaps())),
            steps: 0,
        };
        let health = &self.core.health;
        let watch =
            health.slow.is_on().then(|| Watch { health: Arc::clone(health), keyspace: Arc::clone(&self.inner) });
        let cursor = Cursor::new(view, sources, tombstones, known, sequence, options, table_options.reach);
        Ok(cursor.watched_by(watch))
    }

    /// Writes all memtables to tables, and waits for them. While level 0 has as many tables as [it may
    /// have](crate::KeyspaceOptions::level0_tables_max), the call also waits for compactions.
    ///
    /// # Errors
    /// The store takes no writes, or the flush failed (a full disk); [`Error::Level0Full`].
    pub fn flush(&self) -> Result<()> {
        self.check()?;
        self.core.work.flushes.flush(&self.inner, Level0::Heeded)
    }

    /// Compacts everything between `begin` and `end` (`None`: no bound) into the deepest level, and waits for it. The
    /// compaction gives back the space of deleted and overwritten entries, except those that snapshots see.
    ///
    /// Inputs and outputs of the compaction take space at the same time. On a full disk the call first rewrites single
    /// tables that newer ones hide, which gives back space step by step.
    ///
    /// # Errors
    /// The store takes no writes, or the compaction failed. Where the disk has no room for the whole range a second
    /// time, the space that single tables gave back stays free.
    pub fn compact(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.check()?;
        self.core.work.compact_range(&self.inner, begin, end)
    }

    /// Returns the approximate number of bytes of tables that hold the keys in `begin..end`. Entries in memory are not
    /// counted; see [`approximate_bytes_with`](Keyspace::approximate_bytes_with).
    ///
    /// # Errors
    /// A table could not be opened.
    pub fn approximate_bytes(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<u64> {
        self.approximate_bytes_with(begin, end, &SizeOptions::default())
    }

    /// Returns the approximate number of bytes that the keys in `begin..end` take in tables, in memtables, or both. Old
    /// versions and tombstones count like all other entries.
    ///
    /// # Errors
    /// A table could not be opened.
    pub fn approximate_bytes_with(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        options: &SizeOptions,
    ) -> Result<u64> {
        self.approximate_bytes_of(begin.as_ref(), end.as_ref(), options)
    }

    fn approximate_bytes_of(&self, begin: &[u8], end: &[u8], options: &SizeOptions) -> Result<u64> {
        let (view, _) = self.at(None)?;
        let mut bytes = 0;
        if begin >= end {
            return Ok(bytes);
        }
        if options.include_memtables {
            bytes += view.slots().map(|slot| slot.memtable.approximate_bytes(begin, end)).sum::<u64>();
        }
        let files = view.version.files().filter(|(_, f)| options.include_tables && f.meta.span.overlaps(begin, end));
        for (_, file) in files {
            let meta = &file.meta;
            if begin <= &meta.span.begin[..] && &meta.span.end[..] <= end {
                bytes += meta.bytes;
            } else {
                let share = file.share_bytes(begin, end).map_err(Error::from);
                bytes += share.inspect_err(|error| self.core.versions.source.damaged.note(error))?;
            }
        }
        Ok(bytes)
    }

    /// Returns the current properties of the keyspace.
    pub fn properties(&self) -> KeyspaceProperties {
        let view = self.inner.view.load();
        let levels = &view.version.levels;
        let segments = view.version.segments.files();
        let sum = |of: fn(&Level) -> u64| levels.iter().map(of).sum::<u64>();
        let in_memory = view.slots().map(|s| s.memtable.entries() as u64).sum::<u64>();
        let keys_in_memory = view.slots().map(|s| s.memtable.keys()).sum::<i64>();
        // A tombstone is an entry, and hides one.
        let keys_in_tables = sum(|level| level.entries) as i64 - 2 * sum(|level| level.deletions) as i64;
        KeyspaceProperties {
            name: self.inner.name.clone(),
            memtables: view.slots().count(),
            memtables_max: self.core.memory.switch.memtables_max(&self.inner),
            memtable_bytes: view.memtable_bytes(),
            memtable_entries: in_memory,
            tables: levels.iter().map(|level| level.files.len()).sum(),
            table_bytes: view.version.bytes(),
            value_segments: segments.len(),
            value_bytes: segments.iter().map(|segment| segment.written().record_bytes).sum(),
            value_dead_bytes: segments.iter().map(|segment| segment.dead().bytes).sum(),
            approximate_keys: (keys_in_tables + keys_in_memory).max(0) as u64,
            dead_steps: self.inner.gaps.steps(),
            levels: levels
                .iter()
                .map(|level| {
                    let away = level.files.iter().filter(|file| file.meta.volume != HOME);
                    LevelProperties {
                        tables: level.files.len(),
                        bytes: level.bytes,
                        away_bytes: away.map(|file| file.meta.bytes).sum(),
                    }
                })
                .collect(),
            compactions_running: lock(&self.inner.running).len(),
            compactions_postponed: lock(&self.inner.postponed).len(),
            writers_stopped: self.inner.stopped.load(Ordering::Acquire),
            options: self.inner.options.named(),
        }
    }

    /// Returns the keyspace's segments of the value log, ordered by number.
    pub fn segments(&self) -> Vec<SegmentProperties> {
        let view = self.inner.view.load();
        let of = |segment: &Arc<SegmentFile>| SegmentProperties {
            number: segment.number,
            values: segment.written().records,
            bytes: segment.written().record_bytes,
            dead_bytes: segment.dead().bytes,
        };
        let mut segments: Vec<_> = view.version.segments.files().iter().map(of).collect();
        segments.sort_by_key(|segment| segment.number);
        segments
    }

    /// Returns the tables of the keyspace, shallowest level first.
    pub fn tables(&self) -> Vec<TableProperties> {
        let view = self.inner.view.load();
        view.version
            .files()
            .map(|(level, file)| {
                let meta = &file.meta;
                TableProperties {
                    level,
                    number: meta.number,
                    bytes: meta.bytes,
                    entries: meta.entries,
                    deletions: meta.deletions,
                    range_deletions: meta.range_deletions,
                    raw_bytes: meta.raw_bytes,
                    smallest_sequence: meta.smallest_sequence,
                    largest_sequence: meta.largest_sequence,
                    created_unix_s: meta.created_unix_s,
                    begin: meta.span.begin.clone(),
                    end: meta.span.end.clone(),
                    is_open: file.is_open(),
                    volume: meta.volume,
                }
            })
            .collect()
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyspace({:?})", self.inner.name)
    }
}

/// The properties of a keyspace at one moment. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceProperties {
    /// The name of the keyspace.
    pub name: String,
    /// Memtables, the active one included.
    pub memtables: usize,
    /// The maximum number of memtables now: [`memtables_max`](crate::KeyspaceOptions::memtables_max) of the options, or
    /// fewer. The number is lower if the log has its own area of a disk without a file system, and the area has no room
    /// for the log of all memtables. Writers wait for a flush at this number. A store that is open read-only shows the
    /// number of a writer with the same options.
    pub memtables_max: usize,
    /// Memory of memtables.
    pub memtable_bytes: u64,
    /// Entries in memtables, tombstones included. They are in the log and in no table.
    pub memtable_entries: u64,
    /// The number of tables.
    pub tables: usize,
    /// The bytes of all tables.
    pub table_bytes: u64,
    /// Segments of the value log.
    pub value_segments: usize,
    /// Bytes of the values in them, with keys and headers, dead ones included.
    pub value_bytes: u64,
    /// The part of `value_bytes` to which no table has a handle any more.
    pub value_dead_bytes: u64,
    /// The approximate number of keys. A key counts once in each memtable and in each table that has a version of it. A
    /// tombstone takes one off. So overwritten keys count more than once until compactions have met them. Keys that a
    /// range deletion or a compaction filter is going to remove count until then.
    pub approximate_keys: u64,
    /// Entries that cursors and iterators have stepped over since the store was opened, because they were deleted or
    /// newer than the reader. A read adds a bounded number: the first reader steps over a run of dead entries, and
    /// later ones skip it. A cursor adds its steps when it is dropped.
    pub dead_steps: u64,
    /// The levels, level 0 first.
    pub levels: Vec<LevelProperties>,
    /// Compactions running.
    pub compactions_running: usize,
    /// Compactions that failed, such as by a table that cannot be read, and are tried again from time to time. The last
    /// error of one of them is in [`StoreProperties::background_failure`](crate::StoreProperties).
    pub compactions_postponed: usize,
    /// True if writes wait for room in memory or in level 0.
    pub writers_stopped: bool,
    /// The options in force, by name, in their bounds; see [`KeyspaceOptions`](crate::KeyspaceOptions).
    pub options: Vec<(&'static str, String)>,
}

/// One level of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelProperties {
    /// The number of tables.
    pub tables: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// Bytes of those that lie on another volume than [`HOME`](crate::places::HOME): on the fast disk.
    pub away_bytes: u64,
}

/// A segment of the value log. Sizes are in bytes, and include keys and headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentProperties {
    /// The number of the segment and of its file.
    pub number: u64,
    /// Number of values written to it.
    pub values: u64,
    /// Bytes of these values.
    pub bytes: u64,
    /// Bytes of values to which no table has a handle. Their space may have been trimmed already.
    pub dead_bytes: u64,
}

/// One table of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableProperties {
    /// Its level.
    pub level: usize,
    /// Its file number.
    pub number: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Point tombstones.
    pub deletions: u64,
    /// Range tombstones.
    pub range_deletions: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// The oldest sequence number inside.
    pub smallest_sequence: u64,
    /// The newest sequence number inside.
    pub largest_sequence: u64,
    /// The time at which the table was written, in seconds since 1970.
    pub created_unix_s: u64,
    /// Its first key.
    pub begin: Vec<u8>,
    /// The first key behind it.
    pub end: Vec<u8>,
    /// True if the table has been read from since the store was opened.
    pub is_open: bool,
    /// The number of the volume where the table lies; [`HOME`](crate::places::HOME) in a store on one volume.
    pub volume: u32,
}
