//! Flush: a sealed memtable becomes a table of level 0.
//!
//! 1. Wait until every write that was given the memtable is inside ([`Core::wait_visible`]).
//! 2. If there are several keyspaces, sync the log: a table on disk must not hold a write while an earlier one, of
//!    another keyspace, could still be lost with the log's tail.
//! 3. Write the table by the rules of compactions, so versions that nobody can see never reach the disk.
//! 4. One edit adds the table and says which log files stay needed; then the view loses the memtable and gains the table.
//!
//! **Threads.** One flusher, oldest memtable first: level 0 stays ordered by age.
//!
//! **Failure.** The memtable stays and the flush is tried again. A full disk shows itself to writers when all memtables
//! are full.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::core::Core;
use crate::disks::set::{CAPACITY, FAST};
use crate::pipeline::commit::Level0;
use crate::placement::run::Placing;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::{Added, TableMeta, TableSource};
use crate::versions::view::Slot;
use crate::{Error, Result};
use situ_compaction::{KeyRange, MergeRules, Named, OutputRules, OutputTable, TaskError, TaskHost, merge_sources};
use situ_storage::{Error as StorageError, FileName, Result as StorageResult, Writer};
use situ_table::range_del::RangeTombstone;
use situ_table::{Cursor, Warming};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where the tables of a merge go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhereTo {
    /// By their level, and by what is read.
    Placed,
    /// To the capacity disk, whatever their level: the fast one has refused.
    Home,
    /// Wherever there is room, to the fast disk first: the capacity disk is full.
    AnyRoom,
}

/// Tables are not cut shorter than this to fit into what room there is.
const SHORT_TABLE_BYTES: u64 = 1 << 20;

/// What a running merge asks of the store, and the files it has begun.
pub(crate) struct Host {
    core: Arc<Core>,
    begun: Mutex<Vec<u64>>,
    paced: bool,
    target_bytes: u64,
    /// The output belongs on the fast disk, whatever its level.
    hot: bool,
    where_to: WhereTo,
    /// Why the fast disk refused to take what was to be written to it.
    fast_failure: Arc<Mutex<Option<StorageError>>>,
    /// A flush has nothing that was in the cache.
    warming: Option<Arc<Warming>>,
}

impl Host {
    pub(crate) fn new(core: &Arc<Core>, paced: bool, target_bytes: u64) -> Host {
        Host {
            core: Arc::clone(core),
            begun: Mutex::new(Vec::new()),
            paced,
            target_bytes,
            hot: false,
            where_to: WhereTo::Placed,
            fast_failure: Arc::default(),
            warming: paced.then(|| Arc::new(Warming::new(Arc::clone(&core.versions.source.cache)))),
        }
    }

    /// For work on tables that are read often.
    pub(crate) fn hot(self, hot: bool) -> Host {
        Host { hot, ..self }
    }

    /// For the same work, once more and all on the capacity disk.
    pub(crate) fn on_capacity(&self) -> Host {
        Host { where_to: WhereTo::Home, ..Host::new(&self.core, self.paced, self.target_bytes) }
    }

    /// For the same work, once more and wherever there is room. What a merge writes is cut into shorter tables for that; a flush
    /// makes one.
    pub(crate) fn on_any_disk(&self, placing: &Placing) -> Host {
        let short = (placing.any_room_bytes() / 4).max(SHORT_TABLE_BYTES);
        let target_bytes = if self.paced { self.target_bytes.min(short) } else { self.target_bytes };
        Host { where_to: WhereTo::AnyRoom, ..Host::new(&self.core, self.paced, target_bytes) }
    }

    /// What a table of this work is to have at most.
    pub(crate) fn target_bytes(&self) -> u64 {
        self.target_bytes
    }

    /// Why the fast disk could not take a table that had been begun on it.
    pub(crate) fn fast_failure(&self) -> Option<StorageError> {
        lock(&self.fast_failure).clone()
    }

    fn number(&self) -> u64 {
        let number = self.core.versions.new_number();
        lock(&self.begun).push(number);
        number
    }

    /// Begins a table on the fast disk; `None` if that is not to be, or the disk refuses.
    fn begin_on_fast(&self, level: usize) -> Option<(u64, Box<dyn Writer>)> {
        let disks = self.core.versions.source.disks.as_ref().filter(|_| self.where_to != WhereTo::Home)?;
        let placing = self.core.placing.as_ref().filter(|placing| !placing.is_draining());
        let stays = || placing.is_some_and(|placing| self.target_bytes < placing.free_bytes());
        let goes = if self.where_to == WhereTo::AnyRoom {
            placing.is_some_and(|placing| self.target_bytes < placing.any_room_bytes())
        } else {
            self.core.disk_for(level, self.target_bytes) == FAST || (self.hot && stays())
        };
        if !goes {
            return None;
        }
        let number = self.number();
        match disks.create_table(FAST, number, self.target_bytes) {
            Ok(None) => None,
            Ok(Some(inner)) => {
                let watched =
                    Watched { inner, core: Arc::clone(&self.core), level, failure: Arc::clone(&self.fast_failure) };
                Some((number, Box::new(watched)))
            }
            Err(error) => {
                self.core.note_fast_failure(level, &error);
                None
            }
        }
    }

    /// Removes the files of a merge that was given up, or those that are not among `kept`.
    pub(crate) fn clean_up(&self, kept: &[OutputTable]) {
        let kept: HashSet<u64> = kept.iter().map(|table| table.number).collect();
        for number in lock(&self.begun).drain(..) {
            if !kept.contains(&number) {
                self.core.versions.source.graveyard.bury(number);
                self.core.versions.never_name(number);
            }
        }
        if let Some(warming) = &self.warming {
            warming.forget_tables(|number| kept.contains(&number));
        }
    }
}

impl TaskHost for Host {
    fn new_table(&self, level: u32) -> situ_storage::Result<(u64, Box<dyn Writer>)> {
        if let Some(begun) = self.begin_on_fast(level as usize) {
            return Ok(begun);
        }
        let number = self.number();
        Ok((number, self.core.versions.volume.create(self.core.versions.name_to_begin(number), self.target_bytes)?))
    }

    fn warming(&self) -> Option<Arc<Warming>> {
        self.warming.clone()
    }

    fn pace(&self, bytes: u64) {
        if self.paced {
            self.core.pacer.pace(&self.core, bytes);
        }
    }

    fn cancelled(&self) -> bool {
        self.core.health.is_closing() || self.core.health.failure().is_some()
    }
}

/// A table on its way to the fast disk: notes why that failed.
struct Watched {
    inner: Box<dyn Writer>,
    core: Arc<Core>,
    level: usize,
    failure: Arc<Mutex<Option<StorageError>>>,
}

fn watch<T>(
    core: &Core,
    level: usize,
    noted: &Mutex<Option<StorageError>>,
    result: StorageResult<T>,
) -> StorageResult<T> {
    result.inspect_err(|error| {
        core.note_fast_failure(level, error);
        *lock(noted) = Some(error.clone());
    })
}

impl Writer for Watched {
    fn append(&mut self, bytes: &[u8]) -> StorageResult<()> {
        watch(&self.core, self.level, &self.failure, self.inner.append(bytes))
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> StorageResult<()> {
        watch(&self.core, self.level, &self.failure, self.inner.sync())
    }

    fn flush(&mut self) -> StorageResult<()> {
        watch(&self.core, self.level, &self.failure, self.inner.flush())
    }

    fn finish(self: Box<Self>) -> StorageResult<()> {
        let Watched { inner, core, level, failure } = *self;
        watch(&core, level, &failure, inner.finish())
    }
}

/// A merge's failure as the engine tells it.
pub(crate) fn task_error(error: TaskError) -> Error {
    match error {
        TaskError::Cancelled => Error::Closed,
        TaskError::Storage(error) => Error::Storage(error),
        other => Error::Storage(situ_storage::Error::Io {
            op: "compact",
            path: "tables".to_owned(),
            source: Arc::new(std::io::Error::other(other.to_string())),
        }),
    }
}

/// What the manifest is to know of a table that a merge has written.
pub(crate) fn describe(table: &OutputTable, source: &TableSource) -> TableMeta {
    let properties = &table.summary.properties;
    TableMeta {
        number: table.number,
        volume: source.disk_of(table.number),
        bytes: table.summary.bytes,
        smallest_sequence: properties.smallest_sequence,
        largest_sequence: properties.largest_sequence,
        entries: properties.entries,
        deletions: properties.deletions,
        range_deletions: properties.range_deletions,
        raw_bytes: properties.raw_key_bytes + properties.raw_value_bytes,
        created_unix_s: properties.created_unix_s,
        span: table.span.clone(),
    }
}

/// A flush that back-pressure reckons with.
struct FlushUnderWay<'a>(&'a Core);

impl<'a> FlushUnderWay<'a> {
    fn begin(core: &'a Core, bytes: u64, disk: u32) -> FlushUnderWay<'a> {
        core.stall.flush_begins(core, bytes, disk);
        FlushUnderWay(core)
    }
}

impl Drop for FlushUnderWay<'_> {
    fn drop(&mut self) {
        self.0.stall.flush_ends();
    }
}

/// From before a memtable goes until its log files are given back, counted for writers that wait for room for a log file.
pub(crate) struct Releasing<'a>(&'a Core);

impl<'a> Releasing<'a> {
    pub(crate) fn begin(core: &'a Core) -> Releasing<'a> {
        core.flushes_releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(core)
    }
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.flushes_releasing.fetch_sub(1, Ordering::SeqCst);
        // Whoever waits for this one must not wait for another.
        self.0.progress.notify();
    }
}

impl Core {
    /// Flushes the oldest sealed memtable of some keyspace; false if there is none.
    pub(crate) fn flush_one(self: &Arc<Self>) -> Result<bool> {
        let oldest = |k: &Arc<KeyspaceCore>| {
            let slot = k.view.load().sealed.last().cloned()?;
            Some((slot.first_log().unwrap_or(0), Arc::clone(k), slot))
        };
        let Some((_, keyspace, slot)) =
            self.versions.keyspaces().iter().filter_map(oldest).min_by_key(|(log, ..)| *log)
        else {
            return Ok(false);
        };
        self.flush_slot(&keyspace, &slot)?;
        Ok(true)
    }

    fn flush_slot(self: &Arc<Self>, keyspace: &Arc<KeyspaceCore>, slot: &Arc<Slot>) -> Result<()> {
        let disk = self.next_flush_goes_to(slot.bytes());
        let _under_way = FlushUnderWay::begin(self, slot.bytes(), disk);
        let started = self.env.clock.now();
        self.health.tell(|| StoreEvent::FlushBegun {
            keyspace: keyspace.name.clone(),
            entries: slot.memtable.entries() as u64,
            bytes: slot.bytes(),
        });
        self.wait_visible(slot.last_sequence())?;
        if self.versions.keyspaces().len() > 1
            && let Some(log) = &self.log
            && let Err(error) = log.sync()
        {
            self.health.fail(error.clone());
            return Err(error.into());
        }
        let write = |host: &Arc<Host>| {
            let tables = self.write_slot(keyspace, slot, host)?;
            let releasing = Releasing::begin(self);
            self.install_flush(keyspace, slot, &tables)?;
            Ok((tables, releasing))
        };
        let (tables, releasing) = self.with_spill(
            Host::new(self, false, slot.bytes()),
            write,
            |(tables, _): &(Vec<OutputTable>, Releasing<'_>)| &tables[..],
        )?;
        let duration = self.env.clock.now().saturating_sub(started);
        let bytes = tables.iter().map(|t| t.summary.bytes).sum::<u64>();
        let went_to = |table: &OutputTable| {
            let disks = self.versions.source.disks.as_ref();
            disks.map_or(CAPACITY, |disks| disks.disk_of(FileName::Table(table.number)))
        };
        self.stall.flushed(slot.bytes(), duration, tables.first().map_or(disk, went_to));
        self.health.stats.counters.flushes.add(1);
        self.health.stats.counters.flush_bytes_written.add(bytes);
        self.health.stats.flush.record(duration);
        self.tell_created(keyspace, 0, &tables);
        self.health.tell(|| StoreEvent::Flushed {
            keyspace: keyspace.name.clone(),
            table: tables.first().map(|t| t.number),
            bytes,
            duration,
        });
        self.release_logs();
        drop(releasing);
        self.work.notify();
        Ok(())
    }

    pub(crate) fn tell_created(&self, keyspace: &KeyspaceCore, level: usize, tables: &[OutputTable]) {
        for table in tables {
            self.health.tell(|| StoreEvent::TableCreated {
                keyspace: keyspace.name.clone(),
                table: table.number,
                level,
                bytes: table.summary.bytes,
                entries: table.summary.properties.entries,
            });
        }
    }

    /// The memtable's contents as at most one table. Also used at recovery.
    pub(crate) fn write_slot(&self, keyspace: &KeyspaceCore, slot: &Slot, host: &Host) -> Result<Vec<OutputTable>> {
        let mut cursor = slot.memtable.cursor();
        cursor.first()?;
        let tombstones: Vec<Arc<RangeTombstone>> = slot.memtable.range_tombstones().iter().cloned().collect();
        let version = Arc::clone(&keyspace.view.load().version);
        let unix = self.env.clock.unix();
        let rules = MergeRules {
            range: KeyRange::all(),
            snapshots: self.versions.snapshots.sequences(),
            below: crate::work::compact::spans_below(&version, None),
            grandparents: Vec::new(),
            output_level: 0,
            output: OutputRules {
                table: keyspace.options.table_options(keyspace.id, &keyspace.name, 0),
                target_file_bytes: u64::MAX,
                max_grandparent_bytes: u64::MAX,
                created_unix_s: unix.as_secs(),
            },
            filter: None,
            now_unix: Duration::from_secs(unix.as_secs()),
        };
        let source = Named { cursor, name: format!("a memtable of keyspace {:?}", keyspace.name) };
        let output = merge_sources(vec![source], &tombstones, 0, &rules, host).map_err(task_error)?;
        Ok(output.tables)
    }

    fn install_flush(&self, keyspace: &Arc<KeyspaceCore>, slot: &Arc<Slot>, tables: &[OutputTable]) -> Result<()> {
        let mut editor = self.versions.edit()?;
        if keyspace.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: keyspace.name.clone() });
        }
        let added: Vec<Added> =
            tables.iter().map(|table| Added { level: 0, meta: describe(table, &self.versions.source) }).collect();
        let version = keyspace.view.load().version.apply(&[], &added, &self.versions.source);
        let version = Arc::new(version.map_err(|text| self.broken_version(keyspace, text))?);
        let log_numbers = {
            let commit = lock(&self.commit);
            editor.log_numbers_without(commit.log_number, keyspace, slot)
        };
        let added = added.into_iter().map(|a| (keyspace.id, a)).collect();
        editor.apply(Edit { added, log_numbers, ..Edit::default() }, || {
            keyspace.view.rcu(|view| {
                let mut view = (**view).clone();
                view.sealed.retain(|other| !Arc::ptr_eq(other, slot));
                view.version = Arc::clone(&version);
                view
            });
        })?;
        if !self.is_replayed(slot) {
            self.has_flushed_own.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// An edit that would break a version must not be written: the store's memory is no longer to be trusted.
    pub(crate) fn broken_version(&self, keyspace: &KeyspaceCore, text: String) -> Error {
        let what = format!("version of keyspace {:?}", keyspace.name);
        let error = situ_storage::Error::corruption("the version in memory", 0, what, "an edit that fits", text);
        self.health.fail(error.clone());
        error.into()
    }

    /// A blocking flush of one keyspace.
    pub(crate) fn flush(&self, keyspace: &Arc<KeyspaceCore>, level0: Level0) -> Result<()> {
        self.seal(keyspace, level0)?;
        let Some(newest) = keyspace.view.load().sealed.first().cloned() else { return Ok(()) };
        loop {
            let seen = self.progress.generation();
            self.writable()?;
            if keyspace.dropped.load(Ordering::Acquire) {
                return Err(Error::KeyspaceDropped { name: keyspace.name.clone() });
            }
            if !keyspace.view.load().sealed.iter().any(|slot| Arc::ptr_eq(slot, &newest)) {
                return Ok(());
            }
            self.check_flushes()?;
            self.work.notify();
            self.progress.wait(seen, None);
        }
    }
}
