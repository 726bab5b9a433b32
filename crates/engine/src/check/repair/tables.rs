//! Tables in a repair: judged, rewritten from their sound parts, merged if their order is unknown.

use crate::base::options::{KeyspaceOptions, LEVELS};
use crate::base::sync::lock;
use crate::check::repair::report::{LossKind, LostRange};
use crate::check::repair::values::{READ_BYTES, ValueRescue};

use crate::base::places::HOME;
use crate::versions::version::{Added, TableFile, TableMeta, TableSource};
use crate::work::task_host::describe;
use crate::{Error, Result};
use situ_base::Env;
use situ_compaction::{
    Encoder, KeyRange, KeySpan, Merge, MergeRules, Named, OutputRules, OutputTable, Source, TablePlace, TaskHost,
    merge_sources,
};
use situ_storage::{Error as StorageError, FileName, Volume, Writer};
use situ_table::range_del::RangeTombstone;
use situ_table::{BlockCache, KeyKind, KeyRef, Properties, Table, TableCursor, TableWriter, Trailer, salvage};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The writer of new tables, and their destination.
pub(super) struct Salvager {
    pub(super) volume: Arc<dyn Volume>,
    pub(super) env: Env,
    pub(super) source: Arc<TableSource>,
    pub(super) next_file: AtomicU64,
    /// The options for new tables; keyspaces' own options are not known to a repair.
    pub(super) options: KeyspaceOptions,
    /// True if nothing is written.
    pub(super) dry_run: bool,
    /// Tables that are finished, under temporary names.
    pub(super) unnamed: Mutex<BTreeSet<u64>>,
}

/// The outcome of the rescue of an unsound table.
pub(super) struct Remains {
    /// The table that takes its place; `None` if nothing is left of it, or in a dry run.
    pub(super) table: Option<TableMeta>,
    /// Entries and range tombstones that can be used.
    pub(super) usable: u64,
    pub(super) lost: Vec<LostRange>,
    pub(super) damages: Vec<StorageError>,
}

/// The place of a damaged table in the store.
pub(super) struct TreePlace<'a> {
    pub(super) keyspace: &'a str,
    pub(super) id: u32,
    pub(super) level: usize,
    /// The keys that it was known to span.
    pub(super) span: Option<&'a KeySpan>,
    /// Bytes of values that come into it from emptied segments.
    pub(super) rescued_bytes: u64,
}

/// Returns the span of user keys that a table has entries for.
fn span_of<T: Borrow<RangeTombstone>>(properties: &Properties, tombstones: &[T]) -> Option<KeySpan> {
    let keys = properties.smallest_key().zip(properties.largest_key());
    let keys = keys.map(|(smallest, largest)| KeySpan::including(smallest.user, largest.user));
    let ranges = tombstones
        .iter()
        .map(Borrow::borrow)
        .map(|t: &RangeTombstone| KeySpan { begin: t.begin.clone(), end: t.end.clone() });
    ranges.chain(keys).reduce(KeySpan::union)
}

/// Returns the table as a version would hold it, by its own account; `None` if it is empty.
pub(super) fn meta_of(number: u64, table: &Table, source: &TableSource) -> Option<TableMeta> {
    let span = span_of(table.properties(), table.range_tombstones())?;
    let summary = situ_table::TableSummary { bytes: table.bytes(), properties: table.properties().clone() };
    let volume = source.volume_of(number);
    Some(describe(&OutputTable { volume, number, summary, span }))
}

impl Salvager {
    /// Begins a table under a name that no later repair takes for a table, until [`name`](Salvager::name) gives it its
    /// own. Otherwise the next repair would take a table of a stopped repair for one that the manifest has lost, or for
    /// a keyspace that never was.
    fn begin(&self, number: u64, bound: u64) -> situ_storage::Result<Box<dyn Writer>> {
        self.volume.create(FileName::Temporary(number), bound)
    }

    /// Notes that a table is finished.
    fn keep(&self, number: u64) {
        lock(&self.unnamed).insert(number);
    }

    /// Gives all finished tables their own names, durably.
    pub(super) fn name(&self) -> situ_storage::Result<()> {
        for number in std::mem::take(&mut *lock(&self.unnamed)) {
            self.volume.rename(FileName::Temporary(number), FileName::Table(number))?;
        }
        self.volume.sync_names()
    }

    /// Returns the table, be it an old one or one of this repair.
    pub(super) fn open(&self, meta: TableMeta) -> situ_storage::Result<Arc<Table>> {
        if !lock(&self.unnamed).contains(&meta.number) {
            return Ok(Arc::clone(&*TableFile::new(meta, &self.source).table()?));
        }
        let reader = self.volume.open(FileName::Temporary(meta.number))?;
        Table::open(reader, meta.number, BlockCache::new(0))
    }

    /// Rewrites the sound parts of table `number`. Values come into it from segments that are emptied.
    pub(super) fn salvage(&self, number: u64, place: &TreePlace<'_>, values: &ValueRescue) -> Result<Remains> {
        let reader = self.volume.open(FileName::Table(number))?;
        let created = self.env.clock.unix().as_secs();
        let mut writing: Option<(u64, TableWriter)> = None;
        let begin = || -> situ_storage::Result<(u64, TableWriter)> {
            let number = self.next_file.fetch_add(1, Ordering::Relaxed);
            let file = self.begin(number, reader.bytes() + place.rescued_bytes)?;
            Ok((
                number,
                TableWriter::new(file, &self.options.table_options(place.id, place.keyspace, place.level), created)?,
            ))
        };
        let mut left_out: BTreeSet<Vec<u8>> = BTreeSet::new();
        let salvaged = salvage(&*reader, &mut |key, value| {
            if values.is_lost(key.user, value) {
                left_out.insert(key.user.to_vec());
                return Ok(());
            }
            if self.dry_run {
                return Ok(());
            }
            if writing.is_none() {
                writing = Some(begin()?);
            }
            let Some((_, writer)) = &mut writing else { return Ok(()) };
            match values.rescued(key, value) {
                Ok(None) => writer.add(key, value),
                Ok(Some(rescued)) => {
                    let trailer = Trailer::new(key.trailer.sequence(), KeyKind::Put);
                    writer.add(KeyRef { user: key.user, trailer }, &rescued)
                }
                Err(Error::Storage(error)) => Err(error),
                Err(error) => Err(StorageError::Invalid(error.to_string())),
            }
        })?;
        let whole = |kind| LostRange::of(place.keyspace, number, kind, place.span);
        let mut lost: Vec<LostRange> = Vec::new();
        for keys in salvaged.lost {
            let LostRange { begin, end, .. } = whole(LossKind::Entries);
            let (begin, end) = (keys.after.unwrap_or(begin), keys.before.map(|key| [&key[..], &[0]].concat()).or(end));
            lost.push(LostRange { begin, end, ..whole(LossKind::Entries) });
        }
        for key in left_out {
            let end = Some([&key[..], &[0]].concat());
            lost.push(LostRange { begin: key, end, ..whole(LossKind::Entries) });
        }
        if salvaged.range_tombstones.is_none() {
            lost.push(whole(LossKind::RangeDeletions));
        }
        let tombstones = salvaged.range_tombstones.unwrap_or_default();
        let usable = salvaged.entries + tombstones.len() as u64;
        if usable > 0 && !self.dry_run && writing.is_none() {
            writing = Some(begin()?);
        }
        let mut table = None;
        if let Some((number, mut writer)) = writing {
            for t in &tombstones {
                writer.add_range_tombstone(&t.begin, t.sequence, &t.end)?;
            }
            let summary = writer.finish()?;
            self.keep(number);
            table = span_of(&summary.properties, &tombstones)
                .map(|span| describe(&OutputTable { volume: HOME, number, summary, span }));
        }
        Ok(Remains { table, usable, lost, damages: salvaged.damages })
    }

    /// Returns the properties that a table has of itself, sound or not; `None` if they cannot be read.
    pub(super) fn properties(&self, number: u64) -> Result<Option<Properties>> {
        let reader = self.volume.open(FileName::Table(number))?;
        Ok(salvage(&*reader, &mut |_, _| Ok(()))?.properties)
    }

    /// Merges tables of one keyspace, whose levels are unknown, into one sorted run for the deepest level. An entry
    /// that is in several tables is taken from the one with the highest number.
    pub(super) fn merge(&self, id: u32, keyspace: &str, mut metas: Vec<TableMeta>) -> Result<Vec<Added>> {
        metas.sort_by_key(|meta| std::cmp::Reverse(meta.number));
        let mut sources = Vec::with_capacity(metas.len());
        let mut tombstones = Vec::new();
        for meta in metas {
            let table = self.open(meta)?;
            let mut cursor = table.sequential_cursor(READ_BYTES);
            cursor.first()?;
            tombstones.extend_from_slice(table.range_tombstones());
            sources.push(Named { cursor, name: table.path().to_owned() });
        }
        let unix = self.env.clock.unix();
        let level = LEVELS - 1;
        let rules = MergeRules {
            range: KeyRange::all(),
            snapshots: Vec::new(),
            below: Vec::new(),
            grandparents: Vec::new(),
            output_level: level as u32,
            output: OutputRules {
                table: self.options.table_options(id, keyspace, level),
                target_file_bytes: self.options.table_bytes,
                max_grandparent_bytes: u64::MAX,
                created_unix_s: unix.as_secs(),
                encoder: Encoder::default(),
            },
            filter: None,
            now_unix: Duration::from_secs(unix.as_secs()),
        };
        let once = Once { merge: Merge::new(sources, 0), last: Vec::new() };
        let output =
            merge_sources(vec![once], &tombstones, 0, &rules, self).map_err(crate::work::task_host::task_error)?;
        output.tables.iter().for_each(|table| self.keep(table.number));
        Ok(output.tables.iter().map(|table| Added { level, meta: describe(table) }).collect())
    }

    /// Removes a table that this repair has written and does not need any more.
    pub(super) fn discard(&self, number: u64) -> Result<()> {
        lock(&self.unnamed).remove(&number);
        self.volume.remove(FileName::Temporary(number)).map_err(Error::from)
    }
}

impl TaskHost for Salvager {
    fn reserve(&self, _level: u32) -> situ_storage::Result<TablePlace> {
        Ok(TablePlace { volume: HOME, number: self.next_file.fetch_add(1, Ordering::Relaxed) })
    }

    fn create(&self, _level: u32, place: TablePlace) -> situ_storage::Result<(TablePlace, Box<dyn Writer>)> {
        Ok((place, self.begin(place.number, self.options.table_bytes)?))
    }

    fn pace(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

/// A merge in which each internal key comes once, from the first source that has it. Compactions that were not
/// finished leave the same entries in several tables.
struct Once {
    merge: Merge<Named<TableCursor>>,
    /// The present key, encoded, once it has been left.
    last: Vec<u8>,
}

impl Source for Once {
    fn valid(&self) -> bool {
        self.merge.valid()
    }

    fn key(&self) -> KeyRef<'_> {
        self.merge.key()
    }

    fn value(&self) -> &[u8] {
        self.merge.value()
    }

    fn next(&mut self) -> situ_storage::Result<()> {
        self.last.clear();
        self.merge.key().encode_into(&mut self.last);
        loop {
            self.merge.advance()?;
            if !self.merge.valid() || KeyRef::decode(&self.last) != Some(self.merge.key()) {
                return Ok(());
            }
        }
    }

    fn file(&self) -> String {
        if self.merge.valid() { self.merge.current().file() } else { String::new() }
    }
}
