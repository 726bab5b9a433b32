//! Versions: the immutable list of tables that make up a keyspace at one moment.
//!
//! Level 0 holds tables in the order in which they were flushed, newest first; their key ranges overlap. Every
//! deeper level is one sorted run of tables with disjoint key ranges. For every key, a shallower level holds newer
//! entries than a deeper one.
//!
//! **Invariants** (checked by [`Version::check`]): file numbers are unique; level 0 is ordered by descending sequence
//! number; tables of deeper levels are sorted and disjoint; no table's span is empty.
//!
//! **Life of a file.** A [`TableFile`] lives as long as some version, iterator or job holds it. When an edit has
//! removed the file, it is marked obsolete. The last holder puts its number on the list of files to delete, and rings
//! for the thread that deletes them. So an idle store does not keep files that have no readers any more.

use crate::Error;
use crate::base::damage::DamagedFiles;
use crate::base::options::LEVELS;
use crate::base::places::Volumes;
use crate::base::sync::lock;
use crate::versions::heat::{Heat, Heated};
use crate::versions::open_tables::{Descriptors, Shelf, TableReader, TableSlot};
use crate::versions::segments::{Segments, ValueSource};
use arc_swap::Guard;
use situ_base::spent::{Part, lap};
use situ_base::{Env, Event};
use situ_compaction::{InputTable, KeySpan};
use situ_storage::{Error as StorageError, FileName, Reader, Volume};
use situ_table::range_del::TombstoneIndex;
use situ_table::{
    BlockCache, DeadBefore, Lifetimes, Properties, Reach, ReadOptions as TableReadOptions, Table, TableSummary,
};
use situ_values::Written;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// The manifest's description of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub(crate) number: u64,
    pub(crate) volume: u32,
    pub(crate) bytes: u64,
    pub(crate) smallest_sequence: u64,
    pub(crate) largest_sequence: u64,
    pub(crate) entries: u64,
    pub(crate) deletions: u64,
    pub(crate) range_deletions: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) created_unix_s: u64,
    /// The user keys it says something about, its range tombstones included.
    pub(crate) span: KeySpan,
}

impl TableMeta {
    /// Returns true if all keys of the table are before `key`.
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        &self.span.end[..] <= key
    }

    /// Returns the differences between a table's own properties and the manifest's: the name, the manifest's value, the
    /// table's value. A table that differs is another one.
    pub(crate) fn differences(&self, properties: &Properties) -> Vec<(&'static str, String, String)> {
        [
            ("entries", self.entries, properties.entries),
            ("point tombstones", self.deletions, properties.deletions),
            ("range tombstones", self.range_deletions, properties.range_deletions),
            ("raw bytes", self.raw_bytes, properties.raw_key_bytes + properties.raw_value_bytes),
            ("smallest sequence number", self.smallest_sequence, properties.smallest_sequence),
            ("largest sequence number", self.largest_sequence, properties.largest_sequence),
            ("creation time", self.created_unix_s, properties.created_unix_s),
        ]
        .into_iter()
        .filter(|(_, expected, found)| expected != found)
        .map(|(what, expected, found)| (what, expected.to_string(), found.to_string()))
        .collect()
    }
}

/// Files that are not needed any more, waiting to be deleted by a thread that may block.
#[derive(Default)]
pub(crate) struct ObsoleteTables {
    dead: Mutex<Dead>,
}

#[derive(Default)]
struct Dead {
    numbers: Vec<u64>,
    /// The number of further files that are being deleted.
    deleting: usize,
    /// Of these files, those that were open. Their blocks may be in the cache, and what they pin and their descriptors
    /// are not given back before they go.
    tables: Vec<Arc<Table>>,
    /// Wakes the thread that deletes them.
    bell: Option<Arc<dyn Event>>,
    /// It has been rung since the thread was here.
    rung: bool,
}

impl ObsoleteTables {
    fn dead(&self) -> MutexGuard<'_, Dead> {
        lock(&self.dead)
    }

    /// Makes the last holder of a file ring `bell` when it lets go, from now on.
    pub(crate) fn ring(&self, bell: Arc<dyn Event>) {
        self.dead().bell = Some(bell);
    }

    /// Puts a file on the list without ringing: the thread that deletes files is notified by other means, or tries
    /// again later.
    pub(crate) fn add(&self, number: u64) {
        self.dead().numbers.push(number);
    }

    /// Receives a file from its last holder, on any thread.
    fn receive(&self, number: u64, table: Option<Arc<Table>>) {
        let bell = {
            let mut dead = self.dead();
            dead.numbers.push(number);
            dead.tables.extend(table);
            if std::mem::replace(&mut dead.rung, true) { None } else { dead.bell.clone() }
        };
        if let Some(bell) = bell {
            bell.notify();
        }
    }

    /// Takes the files to be deleted. Takes the blocks of those that were open out of the cache, and closes them.
    pub(crate) fn take(&self) -> DeletingTables<'_> {
        let (numbers, tables) = {
            let mut dead = self.dead();
            dead.rung = false;
            dead.deleting += dead.numbers.len();
            (std::mem::take(&mut dead.numbers), std::mem::take(&mut dead.tables))
        };
        let deleting = DeletingTables { source: self, numbers };
        tables.iter().for_each(|table| table.forget());
        deleting
    }
}

/// Files of tables that a thread deletes.
pub(crate) struct DeletingTables<'a> {
    source: &'a ObsoleteTables,
    pub(crate) numbers: Vec<u64>,
}

impl Drop for DeletingTables<'_> {
    fn drop(&mut self) {
        self.source.dead().deleting -= self.numbers.len();
    }
}

/// The context that a table file needs in order to open itself, shared by all of a store.
pub(crate) struct TableSource {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) obsolete: ObsoleteTables,
    pub(crate) damaged: Arc<DamagedFiles>,
    /// The source of large values.
    pub(crate) values: Arc<ValueSource>,
    /// The volumes that `volume` consists of.
    pub(crate) volumes: Arc<dyn Volumes>,
    /// The volumes are several.
    pub(crate) are_several: bool,
    /// The maximum number of open tables; see `open_tables.rs`.
    open_max: usize,
    pub(crate) descriptors: Arc<Descriptors>,
    shelf: Shelf<Table>,
    /// Tables that another process has written, by number: open from their check until they are installed.
    looked_at: Mutex<HashMap<u64, LookedAt>>,
    /// The number of [`TableFile`]s, and of those that stay open.
    files: AtomicUsize,
    residents: AtomicUsize,
    /// The number of tables that have told when their entries die, ever.
    lifetimes_learned: AtomicU64,
}

impl TableSource {
    /// At most `open_max` tables are open at a time.
    pub(crate) fn new(volumes: &Arc<dyn Volumes>, cache: Arc<BlockCache>, env: &Env, open_max: usize) -> TableSource {
        TableSource {
            volume: Arc::clone(volumes.volume()),
            volumes: Arc::clone(volumes),
            are_several: volumes.are_several(),
            cache,
            obsolete: ObsoleteTables::default(),
            damaged: Arc::default(),
            values: Arc::default(),
            open_max,
            descriptors: Descriptors::new(open_max, env.executor.event()),
            shelf: Shelf::new(),
            looked_at: Mutex::default(),
            files: AtomicUsize::new(0),
            residents: AtomicUsize::new(0),
            lifetimes_learned: AtomicU64::new(0),
        }
    }

    /// Returns a source of tables on one volume.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn plain(volume: Arc<dyn Volume>, cache: Arc<BlockCache>, env: &Env, open_max: usize) -> TableSource {
        TableSource::new(&crate::base::places::Plain::on(&volume), cache, env, open_max)
    }

    /// Returns the volume of table `number`, as the manifest numbers volumes.
    pub(crate) fn volume_of(&self, number: u64) -> u32 {
        self.volumes.volume_of(FileName::Table(number))
    }

    /// Returns the number of files that no version has and that are not deleted yet.
    pub(crate) fn undeleted(&self) -> usize {
        let dead = self.obsolete.dead();
        dead.numbers.len() + dead.deleting + self.values.undeleted()
    }

    /// Returns true if a thread is deleting files.
    pub(crate) fn is_deleting(&self) -> bool {
        self.obsolete.dead().deleting > 0 || self.values.is_deleting()
    }

    /// Returns the file of a table; reads of it are counted in `heat` if there are several volumes.
    fn reader_of(&self, number: u64, heat: &Arc<Heat>) -> Result<Arc<dyn Reader>, StorageError> {
        let reader = TableReader::open(&self.volume, FileName::Table(number), &self.descriptors)?;
        let reader = reader as Arc<dyn Reader>;
        Ok(if self.are_several { Heated::over(reader, heat) } else { reader })
    }

    /// Opens a table that another process has written, and returns its summary. It stays open until it is installed,
    /// or [given up](TableSource::give_up_looked_at).
    pub(crate) fn look_at(&self, number: u64) -> Result<TableSummary, StorageError> {
        let heat = Arc::default();
        let reader = self.reader_of(number, &heat)?;
        let bytes = reader.bytes();
        let table = Table::open(reader, number, Arc::clone(&self.cache))?;
        let summary = TableSummary { bytes, properties: table.properties().clone() };
        lock(&self.looked_at).insert(number, LookedAt { table, heat });
        Ok(summary)
    }

    /// Closes a table that was looked at and is not installed.
    pub(crate) fn give_up_looked_at(&self, number: u64) {
        let given_up = lock(&self.looked_at).remove(&number);
        given_up.into_iter().for_each(|LookedAt { table, .. }| table.forget());
    }

    /// Returns the numbers of tables that are kept open, and of descriptors that tables have.
    pub(crate) fn open(&self) -> (usize, usize) {
        (self.residents.load(Ordering::Relaxed) + self.shelf.len(), self.descriptors.open())
    }
}

/// A table that was looked at before it is installed.
struct LookedAt {
    table: Arc<Table>,
    /// Of its reads.
    heat: Arc<Heat>,
}

/// A table of the store: its description, and the opened file while it has readers and until it has to make room for
/// others.
pub(crate) struct TableFile {
    pub(crate) meta: TableMeta,
    source: Arc<TableSource>,
    /// Set if it was opened while there were few tables: it stays open then.
    resident: OnceLock<Arc<Table>>,
    /// On the shelf, otherwise.
    slot: Arc<TableSlot<Table>>,
    /// Reads of it, if there are several volumes.
    pub(crate) heat: Arc<Heat>,
    obsolete: AtomicBool,
    /// Claimed by a running compaction.
    pub(crate) busy: AtomicBool,
    /// The lifetimes of its entries, once the table was open.
    lifetimes: OnceLock<Lifetimes>,
    /// True if a compaction that was to drop entries of the table dropped none. The table is not chosen for that again.
    pub(crate) drops_nothing: AtomicBool,
    /// It has nothing that versions of newer tables up to this sequence number hide.
    pub(crate) seen_to: AtomicU64,
}

impl TableFile {
    pub(crate) fn new(meta: TableMeta, source: &Arc<TableSource>) -> Arc<TableFile> {
        source.files.fetch_add(1, Ordering::Relaxed);
        let looked_at = lock(&source.looked_at).remove(&meta.number);
        let (table, heat) = looked_at.map(|LookedAt { table, heat }| (table, heat)).unzip();
        let file = TableFile {
            meta,
            source: Arc::clone(source),
            resident: OnceLock::new(),
            slot: Arc::default(),
            heat: heat.unwrap_or_default(),
            obsolete: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            lifetimes: OnceLock::new(),
            drops_nothing: AtomicBool::new(false),
            seen_to: AtomicU64::new(0),
        };
        table.into_iter().for_each(|table| drop(file.keep(table)));
        Arc::new(file)
    }

    /// Returns the table, open as long as what is returned is kept. Reads footer, index and filter if it is not open.
    /// Otherwise it costs an atomic load while there are few tables, and two atomic exchanges on the thread's own
    /// memory when there are more.
    #[inline]
    pub(crate) fn table(&self) -> Result<TableRef<'_>, StorageError> {
        match self.table_if_open() {
            Some(table) => Ok(table),
            None => self.open(),
        }
    }

    /// Returns the table if it is open.
    #[inline]
    pub(crate) fn table_if_open(&self) -> Option<TableRef<'_>> {
        if let Some(table) = self.resident.get() {
            return Some(TableRef::Resident(table));
        }
        let held = self.slot.get();
        held.is_some().then_some(TableRef::Held(held))
    }

    /// As [`table`](TableFile::table), for a read that may be one of memory only: then a table that is not open is not
    /// opened now.
    #[inline]
    pub(crate) fn table_for(&self, options: &TableReadOptions) -> Result<TableRef<'_>, StorageError> {
        match self.table_if_open() {
            Some(table) => Ok(table),
            None if options.reach != Reach::Disk => Err(StorageError::NotInMemory),
            None => lap(Part::TableOpen, || self.open()),
        }
    }

    #[cold]
    fn open(&self) -> Result<TableRef<'_>, StorageError> {
        let source = &self.source;
        let reader = source.reader_of(self.meta.number, &self.heat)?;
        if reader.bytes() != self.meta.bytes {
            let expected = format!("{} bytes, as the manifest says", self.meta.bytes);
            return Err(StorageError::corruption(reader.path(), 0, "file length", expected, reader.bytes()));
        }
        // File numbers are never used twice while a store is open, so a reader of an old file cannot meet blocks of a
        // new one; and the writer of the table may have put blocks into the cache before it was opened.
        let table = Table::open(reader, self.meta.number, Arc::clone(&source.cache))?;
        // A sound table may still be another one, put here by a lying disk or by a restore.
        if let Some((what, expected, found)) = self.meta.differences(table.properties()).into_iter().next() {
            let expected = format!("{expected}, as the manifest says");
            return Err(StorageError::corruption(table.path(), 0, what, expected, found));
        }
        Ok(self.keep(table))
    }

    /// Keeps a table that was opened.
    fn keep(&self, table: Arc<Table>) -> TableRef<'_> {
        let source = &self.source;
        self.note_lifetimes(&table);
        // Two threads may open the same file; the second one's table is dropped. If one of them finds few tables and
        // the other one many, both are kept, until the one on the shelf has to make room.
        if source.files.load(Ordering::Relaxed) <= source.open_max / 2 {
            let resident = self.resident.get_or_init(|| {
                source.residents.fetch_add(1, Ordering::Relaxed);
                table
            });
            return TableRef::Resident(resident);
        }
        let room = source.open_max.saturating_sub(source.residents.load(Ordering::Relaxed));
        TableRef::Opened(source.shelf.keep(&self.slot, table, room))
    }

    /// Learns the lifetimes of its entries. Opens the table if it was never open. If that fails, they stay unknown, and
    /// readers of the table report the error.
    pub(crate) fn learn_lifetimes(&self) {
        if self.lifetimes.get().is_none()
            && let Ok(table) = self.table()
        {
            self.note_lifetimes(&table);
        }
    }

    fn note_lifetimes(&self, table: &Table) {
        if self.lifetimes.get().is_none() && self.lifetimes.set(table.properties().lifetimes.clone()).is_ok() {
            self.source.lifetimes_learned.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the lifetimes of its entries, if the table was ever open.
    pub(crate) fn lifetimes(&self) -> Option<&Lifetimes> {
        self.lifetimes.get()
    }

    /// Returns about how many bytes of the table hold the keys in `begin..end`, by its index.
    pub(crate) fn share_bytes(&self, begin: &[u8], end: &[u8]) -> Result<u64, StorageError> {
        let table = self.table()?;
        Ok(table.approximate_offset(end)?.saturating_sub(table.approximate_offset(begin)?))
    }

    /// Returns the table's range tombstones, ready for lookup.
    pub(crate) fn tombstones(&self, options: &TableReadOptions) -> Result<Arc<TombstoneIndex>, StorageError> {
        Ok(Arc::clone(self.table_for(options)?.tombstone_index()))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.resident.get().is_some() || !self.slot.is_empty()
    }

    /// Marks the file for deletion when the last holder lets go.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        let source = &self.source;
        source.files.fetch_sub(1, Ordering::Relaxed);
        let resident = self.resident.take();
        source.residents.fetch_sub(usize::from(resident.is_some()), Ordering::Relaxed);
        let table = source.shelf.remove(&self.slot).or(resident);
        if self.obsolete.load(Ordering::Acquire) {
            source.obsolete.receive(self.meta.number, table);
        }
    }
}

/// Gives new tables the heat of the old ones that they replace. Each old table gives an equal part of its own heat to
/// those new ones whose keys meet its keys.
pub(crate) fn inherit_heat<'a>(old: impl Iterator<Item = &'a Arc<TableFile>>, new: &[&Arc<TableFile>]) {
    let mut heat = vec![0.0; new.len()];
    for file in old.filter(|file| file.heat.per_s() > 0.0) {
        let span = &file.meta.span;
        let meets = |at: &usize| new[*at].meta.span.overlaps(&span.begin, &span.end);
        let heirs: Vec<usize> = (0..new.len()).filter(meets).collect();
        heirs.iter().for_each(|at| heat[*at] += file.heat.per_s() / heirs.len() as f64);
    }
    new.iter().zip(heat).for_each(|(file, heat)| file.heat.set_per_s(heat));
}

/// An open table in use.
pub(crate) enum TableRef<'a> {
    Resident(&'a Arc<Table>),
    /// Is never empty.
    Held(Guard<Option<Arc<Table>>>),
    Opened(Arc<Table>),
}

impl Deref for TableRef<'_> {
    type Target = Arc<Table>;

    #[inline]
    fn deref(&self) -> &Arc<Table> {
        match self {
            TableRef::Resident(table) => table,
            TableRef::Held(table) => table.as_ref().expect("checked when it was made"),
            TableRef::Opened(table) => table,
        }
    }
}

impl InputTable for TableFile {
    fn open(self: Arc<Self>) -> Result<Arc<Table>, StorageError> {
        Ok(Arc::clone(&*self.table()?))
    }
}

impl fmt::Debug for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.meta.fmt(f)
    }
}

/// The tables of one level.
#[derive(Debug, Clone, Default)]
pub(crate) struct Level {
    pub(crate) files: Vec<Arc<TableFile>>,
    pub(crate) bytes: u64,
    /// Entries, tombstones of single keys included.
    pub(crate) entries: u64,
    /// Tombstones of single keys, and of ranges.
    pub(crate) deletions: u64,
    pub(crate) range_deletions: u64,
}

impl Level {
    fn new(files: Vec<Arc<TableFile>>) -> Level {
        let sum = |of: fn(&TableMeta) -> u64| files.iter().map(|file| of(&file.meta)).sum();
        let (bytes, deletions) = (sum(|meta| meta.bytes), sum(|meta| meta.deletions));
        let (entries, range_deletions) = (sum(|meta| meta.entries), sum(|meta| meta.range_deletions));
        Level { files, bytes, entries, deletions, range_deletions }
    }

    /// Returns the table of a sorted level that may hold `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&Arc<TableFile>> {
        let at = self.files.partition_point(|f| f.meta.ends_before(key));
        self.files.get(at).filter(|f| &f.meta.span.begin[..] <= key)
    }

    /// Returns the tables of a sorted level whose keys meet `span`.
    pub(crate) fn overlapping(&self, span: &KeySpan) -> &[Arc<TableFile>] {
        let from = self.files.partition_point(|f| f.meta.ends_before(&span.begin));
        let count = self.files[from..].partition_point(|f| f.meta.span.begin < span.end);
        &self.files[from..from + count]
    }
}

/// The tables of a keyspace at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) levels: [Level; LEVELS],
    /// The segments that hold large values.
    pub(crate) segments: Segments,
    removable: Removable,
}

/// The number of entries that a filter removes from the tables of a version, as of the last count.
#[derive(Debug, Default)]
struct Removable(Mutex<Option<Counted>>);

#[derive(Debug, Clone, Copy)]
struct Counted {
    /// The mark of the count. It covers the tables that had told when their entries die (`learned`).
    before: DeadBefore,
    learned: u64,
    entries: u64,
}

impl Clone for Removable {
    /// Returns an empty count: the copy is to become another version.
    fn clone(&self) -> Removable {
        Removable::default()
    }
}

/// A table to add, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) level: usize,
    pub(crate) meta: TableMeta,
}

impl Added {
    /// Asserts that a flush has made the table, of a memtable with sequence numbers up to `last`.
    pub(crate) fn assert_flushed(&self, last: u64) {
        let meta = &self.meta;
        assert!(self.level == 0, "a flushed table goes to level {}", self.level);
        assert!(meta.largest_sequence <= last, "a flushed table has more than its memtable, up to {last}: {meta:?}");
        assert!(meta.smallest_sequence <= meta.largest_sequence, "sequence numbers are upside down: {meta:?}");
        assert!(meta.span.begin < meta.span.end, "a key range is upside down: {meta:?}");
        assert!(meta.bytes > 0 && meta.deletions <= meta.entries, "counts cannot be: {meta:?}");
    }
}

/// A table to remove, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Removed {
    pub(crate) level: usize,
    pub(crate) number: u64,
}

impl Version {
    /// Notes an error of reading these tables with their store, if damaged data is its cause.
    #[cold]
    pub(crate) fn note_damage(&self, error: &Error) {
        if let Some((_, file)) = self.files().next() {
            file.source.damaged.note(error);
        }
    }

    pub(crate) fn empty() -> Version {
        Version { levels: Default::default(), segments: Segments::default(), removable: Removable::default() }
    }

    /// Returns the version after an edit. Files that are moved (removed from one level, added to another) keep their
    /// state.
    ///
    /// # Errors
    /// In words, if the edit removes what is not there or breaks an invariant; the version stands then.
    pub(crate) fn apply(
        &self,
        removed: &[Removed],
        added: &[Added],
        source: &Arc<TableSource>,
    ) -> Result<Version, String> {
        let mut moved: Vec<Arc<TableFile>> = Vec::new();
        let mut levels: [Vec<Arc<TableFile>>; LEVELS] = std::array::from_fn(|i| self.levels[i].files.clone());
        for Removed { level, number } in removed {
            let files = levels.get_mut(*level).ok_or_else(|| format!("there is no level {level}"))?;
            let at = files.iter().position(|f| f.meta.number == *number);
            let at = at.ok_or_else(|| format!("table {number} is not in level {level} and cannot be removed"))?;
            moved.push(files.remove(at));
        }
        for Added { level, meta } in added {
            let files = levels.get_mut(*level).ok_or_else(|| format!("there is no level {level}"))?;
            let file = match moved.iter().position(|f| f.meta.number == meta.number) {
                Some(at) => moved.swap_remove(at),
                None => TableFile::new(meta.clone(), source),
            };
            files.push(file);
        }
        for (number, files) in levels.iter_mut().enumerate() {
            match number {
                0 => files.sort_by_key(|f| std::cmp::Reverse((f.meta.largest_sequence, f.meta.number))),
                _ => files.sort_by(|a, b| a.meta.span.cmp(&b.meta.span)),
            }
        }
        let (segments, removable) = (self.segments.clone(), Removable::default());
        let version = Version { levels: levels.map(Level::new), segments, removable };
        version.check()?;
        Ok(version)
    }

    /// Returns the version with these segments as well, and without those.
    ///
    /// # Errors
    /// As [`apply`](Version::apply).
    pub(crate) fn with_segments(
        self,
        written: &[Written],
        removed: &[u64],
        source: &TableSource,
    ) -> Result<Version, String> {
        let segments = self.segments.apply(written, removed, &source.values)?;
        Ok(Version { segments, ..self })
    }

    /// Returns the same in a new [era](crate::versions::segments::Era) of its segments.
    pub(crate) fn in_next_era(self) -> Version {
        Version { segments: self.segments.in_next_era(), ..self }
    }

    /// Checks the invariants of the module page. The error says in words what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut numbers: Vec<u64> = self.files().map(|(_, f)| f.meta.number).collect();
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|w| w[0] == w[1]) {
            return Err(format!("table {} is listed twice", twice[0]));
        }
        for (level, file) in self.files() {
            let meta = &file.meta;
            if meta.span.begin >= meta.span.end {
                return Err(format!("table {} of level {level} has its key range upside down", meta.number));
            }
        }
        for (level, Level { files, .. }) in self.levels.iter().enumerate().skip(1) {
            if let Some(w) = files.windows(2).find(|w| !w[0].meta.ends_before(&w[1].meta.span.begin)) {
                let (a, b) = (w[0].meta.number, w[1].meta.number);
                return Err(format!("tables {a} and {b} of level {level} overlap"));
            }
        }
        Ok(())
    }

    /// Returns all tables with their levels, shallowest first.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels.iter().enumerate().flat_map(|(n, level)| level.files.iter().map(move |f| (n, f)))
    }

    /// Returns the bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// Returns about how many entries of the tables are dead, as far as tables were
    /// [asked](TableFile::learn_lifetimes). The tables are counted once for each mark, and marks are seconds.
    pub(crate) fn removable_entries(&self, before: &DeadBefore) -> u64 {
        let Some((_, first)) = self.files().next() else { return 0 };
        let learned = first.source.lifetimes_learned.load(Ordering::Acquire);
        let mut counted = lock(&self.removable.0);
        if let Some(counted) = counted.filter(|counted| counted.before == *before && counted.learned == learned) {
            return counted.entries;
        }
        let dead = self.files().filter_map(|(_, file)| file.lifetimes()).map(|lifetimes| lifetimes.dead(before) as u64);
        let entries = dead.sum();
        *counted = Some(Counted { before: *before, learned, entries });
        entries
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use situ_storage::DirectoryVolume;

    pub(crate) fn source() -> (tempfile::TempDir, Arc<TableSource>) {
        let directory = tempfile::tempdir().unwrap();
        let volume = DirectoryVolume::open(directory.path()).unwrap();
        (directory, Arc::new(TableSource::plain(Arc::new(volume), BlockCache::new(1 << 20), &Env::system(), 100)))
    }

    pub(crate) fn meta(number: u64, smallest: &str, largest: &str) -> TableMeta {
        TableMeta {
            number,
            volume: 0,
            bytes: 100,
            smallest_sequence: number,
            largest_sequence: number,
            entries: 1,
            deletions: 0,
            range_deletions: 0,
            raw_bytes: 90,
            created_unix_s: 0,
            span: KeySpan::including(smallest.as_bytes(), largest.as_bytes()),
        }
    }

    fn added(level: usize, number: u64, smallest: &str, largest: &str) -> Added {
        Added { level, meta: meta(number, smallest, largest) }
    }

    #[test]
    fn an_edit_sorts_levels_and_finds_tables() {
        let (_directory, source) = source();
        let edit = [added(1, 3, "m", "p"), added(1, 2, "a", "c"), added(0, 9, "a", "z"), added(0, 10, "b", "x")];
        let version = Version::empty().apply(&[], &edit, &source).unwrap();
        let numbers = |level: usize| version.levels[level].files.iter().map(|f| f.meta.number).collect::<Vec<_>>();
        assert_eq!(numbers(0), [10, 9]);
        assert_eq!(numbers(1), [2, 3]);
        let find = |key: &str| version.levels[1].find(key.as_bytes()).map(|f| f.meta.number);
        assert_eq!([find("a"), find("c"), find("d"), find("n"), find("q")], [Some(2), Some(2), None, Some(3), None]);
        let overlap = |begin: &str, end: &str| {
            version.levels[1].overlapping(&KeySpan { begin: begin.into(), end: end.into() }).len()
        };
        assert_eq!([overlap("c", "m\0"), overlap("c", "m"), overlap("d", "l")], [2, 1, 0]);
    }

    #[test]
    fn bad_edits_are_refused() {
        let (_directory, source) = source();
        let version = Version::empty().apply(&[], &[added(1, 2, "a", "c")], &source).unwrap();
        let bad = |removed: &[Removed], edit: &[Added]| version.apply(removed, edit, &source).unwrap_err();
        assert!(bad(&[Removed { level: 2, number: 2 }], &[]).contains("not in level 2"));
        assert!(bad(&[], &[added(1, 3, "c", "d")]).contains("overlap"));
        assert!(bad(&[], &[added(3, 2, "x", "y")]).contains("twice"));
        assert!(bad(&[], &[added(9, 4, "x", "y")]).contains("no level 9"));
        assert!(bad(&[], &[added(2, 4, "y", "x")]).contains("upside down"));
    }

    #[test]
    fn a_removed_file_is_buried_by_its_last_holder_and_a_moved_one_is_not() {
        let (_directory, source) = source();
        let one = Version::empty().apply(&[], &[added(1, 2, "a", "c")], &source).unwrap();
        let two = one.apply(&[Removed { level: 1, number: 2 }], &[added(2, 2, "a", "c")], &source).unwrap();
        assert!(Arc::ptr_eq(&one.levels[1].files[0], &two.levels[2].files[0]));
        two.levels[2].files[0].retire();
        drop(two);
        assert_eq!(source.obsolete.take().numbers, []);
        drop(one);
        assert!(!source.is_deleting());
        let deleting = source.obsolete.take();
        assert_eq!(deleting.numbers, [2]);
        assert!(source.is_deleting());
        drop(deleting);
        assert!(!source.is_deleting());
    }
}
