//! The store's services for a running merge: numbers for its tables, the volume that each goes to, pace, and whether it
//! is given up.
//!
//! A table goes to the volume that the store's places choose. If a volume other than the home refuses it in the middle,
//! the work is done once more, all at home. If the home is full, the work is done once more wherever there is room.
//!
//! A table that another process has written is opened when the host checks it, and stays open until it is installed.
//!
//! **Failure.** The files of a merge that was given up are removed.

use crate::base::listener::StoreEvent;
use crate::base::places::{Choice, HOME, NewTable, Places, Reserved};
use crate::base::sync::lock;
use crate::pipeline::space::{Promise, SpaceWatch};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::segments::Pointers;
use crate::versions::store::Versions;
use crate::versions::version::TableMeta;
use crate::work::pacer::Pacer;
use crate::work::separate::{Separator, may_have_values};
use crate::{Error, Result};
use situ_compaction::{CompactionFilter, OutputTable, TablePlace, TaskError, TaskHost, ValueHandles};
use situ_log::Log;
use situ_storage::{Error as StorageError, FileName, Reader, Result as StorageResult, Writer};
use situ_table::Warming;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

/// Tables are not cut shorter than this to fit into what room there is.
const SHORT_TABLE_BYTES: u64 = 1 << 20;
/// The tables of a compaction that are merged while the volume still writes earlier ones.
const TABLES_AHEAD: u64 = 2;

/// The parts of a store that serve running merges.
pub(crate) struct Hosts {
    pub(crate) versions: Arc<Versions>,
    /// None if the store is open read-only.
    pub(crate) log: Option<Arc<Log>>,
    /// Decides where new tables go.
    pub(crate) places: Arc<dyn Places>,
    /// Knows what flushes and compactions may still write.
    pub(crate) space: Arc<SpaceWatch>,
    pub(crate) pacer: Arc<Pacer>,
}

/// The store's services for a running merge, and the files that the merge has begun.
pub(crate) struct Host {
    of: Arc<Hosts>,
    begun: Mutex<Vec<u64>>,
    /// Reserved places in which this process has not begun a file: another process may have.
    reserved: Mutex<BTreeMap<u64, Reserved>>,
    paced: bool,
    /// True if the work runs only while the store is idle.
    pub(crate) is_debt: bool,
    /// The maximum bytes of a table.
    pub(crate) target_bytes: u64,
    /// The output goes by the heat of the inputs, and not by level alone.
    pub(crate) hot: bool,
    choice: Choice,
    /// The error with which a volume other than the home refused a write.
    refusal: Arc<Mutex<Option<StorageError>>>,
    /// A flush has nothing that was in the cache.
    warming: Option<Arc<Warming>>,
    /// The destination of a flush's large values.
    pub(crate) separator: Option<Separator>,
    /// The keyspace has values in the value log, or may get some.
    has_handles: bool,
    /// The filter of the keyspace, for a flush.
    lifetimes_by: Option<Arc<dyn CompactionFilter>>,
    /// The physical space that a compaction may still take.
    pub(crate) promise: Option<Arc<Promise>>,
}

impl Host {
    pub(crate) fn new(of: &Arc<Hosts>, paced: bool, target_bytes: u64) -> Host {
        Host {
            of: Arc::clone(of),
            begun: Mutex::new(Vec::new()),
            reserved: Mutex::default(),
            paced,
            is_debt: false,
            target_bytes,
            hot: false,
            choice: Choice::ByRules,
            refusal: Arc::default(),
            warming: paced.then(|| Arc::new(Warming::new(Arc::clone(&of.versions.source.cache)))),
            separator: None,
            has_handles: false,
            lifetimes_by: None,
            promise: None,
        }
    }

    /// Returns the host for work on a keyspace that may have values in the value log.
    pub(crate) fn of_keyspace(self, keyspace: &KeyspaceCore) -> Host {
        Host { has_handles: may_have_values(keyspace), ..self }
    }

    /// Returns the host for a flush of a keyspace.
    pub(crate) fn separating(self, keyspace: &Arc<KeyspaceCore>) -> Host {
        let separator = Separator::of(keyspace, &self.of.versions.source.values);
        let lifetimes_by = keyspace.options.compaction_filter.clone();
        Host { separator, lifetimes_by, ..self }.of_keyspace(keyspace)
    }

    fn again(&self, target_bytes: u64) -> Host {
        let separator = self.separator.as_ref().and_then(Separator::again);
        Host {
            separator,
            has_handles: self.has_handles,
            is_debt: self.is_debt,
            lifetimes_by: self.lifetimes_by.clone(),
            promise: self.promise.clone(),
            ..Host::new(&self.of, self.paced, target_bytes)
        }
    }

    /// Returns a host for the same work, once more and all at home.
    pub(crate) fn at_home(&self) -> Host {
        Host { choice: Choice::Home, ..self.again(self.target_bytes) }
    }

    /// Returns a host for the same work, once more and on any volume with room, where `free` bytes are left elsewhere.
    /// The output of a merge is cut into shorter tables for that; a flush makes one.
    pub(crate) fn wherever_is_room(&self, free: u64) -> Host {
        let short = (free / 4).max(SHORT_TABLE_BYTES);
        let target_bytes = if self.paced { self.target_bytes.min(short) } else { self.target_bytes };
        Host { choice: Choice::AnyRoom, ..self.again(target_bytes) }
    }

    /// Returns true if a compaction ends because it writes more than there is physical space for.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.promise.as_ref().is_some_and(|promise| promise.is_broken())
    }

    /// Returns true if a volume other than the home has refused a table that had been begun on it.
    pub(crate) fn was_refused(&self) -> bool {
        lock(&self.refusal).is_some()
    }

    fn number(&self) -> u64 {
        let number = self.of.versions.new_number();
        lock(&self.begun).push(number);
        number
    }

    /// Returns the volume for the next table of `level`.
    fn volume_for(&self, level: usize) -> u32 {
        // What is merged counts as written before the volume has it.
        let ahead = if self.paced { self.target_bytes.saturating_mul(TABLES_AHEAD) } else { 0 };
        let table = NewTable {
            level,
            bytes_max: self.target_bytes,
            bytes_outstanding: self.of.space.outstanding_bytes().saturating_add(ahead),
            is_hot: self.hot,
            choice: self.choice,
        };
        self.of.places.for_table(&table)
    }

    /// Begins a table on a volume other than the home; `None` if the volume refuses.
    fn begin_elsewhere(&self, level: usize, place: TablePlace) -> Option<Box<dyn Writer>> {
        let TablePlace { volume, number } = place;
        match self.of.versions.source.volumes.begin_table(volume, number, self.target_bytes) {
            Ok(None) => None,
            Ok(Some(inner)) => {
                let (places, refusal) = (Arc::clone(&self.of.places), Arc::clone(&self.refusal));
                Some(Box::new(Watched { inner, watch: Watch { places, volume, level, refusal } }))
            }
            Err(error) => {
                self.of.places.refused(volume, level, &error);
                None
            }
        }
    }

    /// Reserves a place on a volume other than the home; false if the volume takes no files.
    fn reserve_elsewhere(&self, volume: u32, number: u64) -> bool {
        let Some(reserved) = self.of.versions.source.volumes.reserve_table(volume, number) else { return false };
        lock(&self.reserved).insert(number, reserved);
        true
    }

    /// Removes the files of a merge that was given up, or those that are not among `kept`, which are in the version by
    /// now.
    pub(crate) fn clean_up(&self, kept: &[OutputTable]) {
        drop(std::mem::take(&mut *lock(&self.reserved)));
        // What was installed is not in the separator any more.
        self.separator.iter().for_each(Separator::give_up);
        let kept: HashSet<u64> = kept.iter().map(|table| table.number).collect();
        let mut begun = lock(&self.begun);
        assert!(
            kept.iter().all(|number| begun.contains(number)),
            "a merge keeps tables that it has not begun: {kept:?}"
        );
        for number in begun.drain(..) {
            // Those that are kept were installed, and are not there any more.
            self.of.versions.source.give_up_looked_at(number);
            if !kept.contains(&number) {
                self.of.versions.source.obsolete.add(number);
                self.of.versions.never_name(number);
            }
        }
        if let Some(warming) = &self.warming {
            warming.forget_tables(|number| kept.contains(&number));
        }
    }
}

impl TaskHost for Host {
    fn reserve(&self, level: u32) -> StorageResult<TablePlace> {
        let number = self.number();
        let volume = self.volume_for(level as usize);
        let is_elsewhere = volume != HOME && self.reserve_elsewhere(volume, number);
        Ok(TablePlace { volume: if is_elsewhere { volume } else { HOME }, number })
    }

    fn create(&self, level: u32, place: TablePlace) -> StorageResult<(TablePlace, Box<dyn Writer>)> {
        let mut place = place;
        if place.volume != HOME {
            // Until the file is there, and is what keeps the volume.
            let reserved = lock(&self.reserved).remove(&place.number);
            if let Some(writer) = self.begin_elsewhere(level as usize, place) {
                return Ok((place, writer));
            }
            drop(reserved);
            // Something of it may be on that volume: the name is not used on another one.
            place = TablePlace { volume: HOME, number: self.number() };
        }
        let name = self.of.versions.name_to_begin(place.number);
        Ok((place, self.of.versions.volume.create(name, self.target_bytes)?))
    }

    fn open(&self, place: TablePlace) -> StorageResult<Arc<dyn Reader>> {
        self.of.versions.volume.open(FileName::Table(place.number))
    }

    fn warming(&self) -> Option<Arc<Warming>> {
        self.warming.clone()
    }

    fn lifetimes_by(&self) -> Option<Arc<dyn CompactionFilter>> {
        self.lifetimes_by.clone()
    }

    fn value_handles(&self) -> Option<Arc<dyn ValueHandles>> {
        self.has_handles.then(|| Arc::new(Pointers) as Arc<dyn ValueHandles>)
    }

    fn separates_from(&self) -> usize {
        self.separator.as_ref().map_or(usize::MAX, Separator::min_bytes)
    }

    fn separate(&self, key: &[u8], value: &[u8], handle: &mut Vec<u8>) -> StorageResult<()> {
        let separator = self.separator.as_ref();
        let separator = separator.ok_or_else(|| StorageError::Invalid("this merge separates no values".to_owned()))?;
        separator.separate(key, value, handle)
    }

    fn find(&self, table: &OutputTable) -> Result<(), String> {
        self.of.versions.source.volumes.adopt_table(table.volume, table.number);
        let found = self.of.versions.source.look_at(table.number);
        let found = found.map_err(|error| format!("table {}: {error}", table.number))?;
        if found != table.summary {
            return Err(format!("table {}: its file is not the one that its writer reported", table.number));
        }
        Ok(())
    }

    fn pace(&self, bytes: u64) {
        self.promise.iter().for_each(|promise| promise.written(bytes));
        if self.is_debt {
            self.of.pacer.pace_idle(bytes);
        } else if self.paced {
            self.of.pacer.pace(bytes);
        }
    }

    fn cancelled(&self) -> bool {
        self.of.versions.health.check_sound().is_err() || self.is_out_of_space()
    }
}

/// A table on its way to a volume other than the home.
struct Watched {
    inner: Box<dyn Writer>,
    watch: Watch,
}

/// Notes why a table could not be written.
struct Watch {
    places: Arc<dyn Places>,
    volume: u32,
    level: usize,
    refusal: Arc<Mutex<Option<StorageError>>>,
}

impl Watch {
    fn note<T>(&self, result: StorageResult<T>) -> StorageResult<T> {
        result.inspect_err(|error| {
            self.places.refused(self.volume, self.level, error);
            *lock(&self.refusal) = Some(error.clone());
        })
    }
}

impl Writer for Watched {
    fn append(&mut self, bytes: &[u8]) -> StorageResult<()> {
        self.watch.note(self.inner.append(bytes))
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> StorageResult<()> {
        self.watch.note(self.inner.sync())
    }

    fn flush(&mut self) -> StorageResult<()> {
        self.watch.note(self.inner.flush())
    }

    fn finish(self: Box<Self>) -> StorageResult<()> {
        let Watched { inner, watch } = *self;
        watch.note(inner.finish())
    }
}

/// Returns the engine's error for a merge's failure.
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

/// Returns the manifest's description of a table that a merge has written.
pub(crate) fn describe(table: &OutputTable) -> TableMeta {
    let properties = &table.summary.properties;
    TableMeta {
        number: table.number,
        volume: table.volume,
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

impl Hosts {
    /// Has `run` write tables. If a volume other than the home refuses one in the middle, `run` starts again at home.
    /// If the home is full, it starts again on any volume with room. Files that a run has written and did not return
    /// are removed.
    pub(crate) fn with_spill<T>(
        &self,
        host: Host,
        run: impl Fn(&Arc<Host>) -> Result<T>,
        tables: impl Fn(&T) -> &[OutputTable],
    ) -> Result<T> {
        let once = |host: Host| {
            let host = Arc::new(host);
            let result = run(&host);
            host.clean_up(result.as_ref().map(&tables).unwrap_or_default());
            (result, host)
        };
        let (result, host) = once(host);
        match result {
            Err(error) => match self.spill(&host, &error) {
                Some(host) => once(host).0,
                None => Err(error),
            },
            result => result,
        }
    }

    /// Returns a host with another choice of volumes for the work that a run with `host` could not write, if there is
    /// one.
    pub(crate) fn spill(&self, host: &Host, error: &Error) -> Option<Host> {
        if self.versions.health.check_sound().is_err() {
            return None;
        }
        if host.was_refused() {
            return is_of_a_disk(error).then(|| host.at_home());
        }
        if !error.is_no_space() {
            return None;
        }
        let mut free = self.places.free_elsewhere()?;
        if host.target_bytes >= free {
            self.give_up_unused_log();
            free = self.places.free_elsewhere()?;
        }
        let reason = error.to_string();
        self.versions.health.tell(|| StoreEvent::HomeFull { reason });
        Some(host.wherever_is_room(free))
    }

    /// Removes the log files without records, on whichever disk they lie.
    fn give_up_unused_log(&self) {
        if let Some(Err(error)) = self.log.as_ref().map(|log| log.drop_next()) {
            self.versions.health.note_job_failure("recycle log", error.into());
        }
    }

    /// Tells of tables that are in the version by now.
    pub(crate) fn tell_created(&self, keyspace: &KeyspaceCore, level: usize, tables: &[OutputTable]) {
        for table in tables {
            self.versions.health.tell(|| StoreEvent::TableCreated {
                keyspace: keyspace.name.clone(),
                table: table.number,
                level,
                bytes: table.summary.bytes,
                entries: table.summary.properties.entries,
            });
        }
    }
}

/// Returns true if a job failed by the answer of a disk.
fn is_of_a_disk(error: &Error) -> bool {
    matches!(
        error,
        Error::Storage(StorageError::Io { .. } | StorageError::NoSpace { .. } | StorageError::NotFound { .. })
    )
}
