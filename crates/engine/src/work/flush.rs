//! Flush: a sealed memtable becomes a table of level 0.
//!
//! 1. Wait until every write that was given the memtable is inside ([`Work::wait_visible`]).
//! 2. If there are several keyspaces, sync the log. A table on disk must not hold a write while an earlier one, of
//!    another keyspace, could still be lost with the log's tail.
//! 3. Write the table by the rules of compactions, so versions that no reader can see never reach the disk. Large
//!    values go to the value log, if the keyspace has one (`separate.rs`), and are synced.
//! 4. One edit adds the table and says which log files stay needed; then the view loses the memtable and gains the
//!    table.
//!
//! **Threads.** One flusher, oldest memtable first: level 0 stays ordered by age.
//!
//! **Failure.** The memtable stays and the flush is tried again. A full disk shows itself to writers when all memtables
//! are full.

use crate::base::listener::StoreEvent;
use crate::base::sync::lock;
use crate::pipeline::log_area::Releasing;
use crate::pipeline::seal::Level0;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::Added;
use crate::versions::view::MemtableSlot;
use crate::work::Work;
use crate::work::task_host::{Host, describe, task_error};
use crate::{Error, Result};
use situ_compaction::{
    DroppedValues, Encoder, KeyRange, MergeRules, Named, OutputRules, OutputTable, ValueLocation, merge_sources,
};
use situ_storage::FileName;
use situ_table::Cursor;
use situ_table::range_del::RangeTombstone;
use situ_values::Written;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The results of a memtable's flush.
pub(crate) struct Flushed {
    pub(crate) tables: Vec<OutputTable>,
    /// Values in the value log.
    pub(crate) written: Vec<Written>,
    /// Values there that the memtable had handles for, and the tables do not.
    pub(crate) dead: Vec<DroppedValues>,
    /// Where these are.
    pub(crate) dead_places: Vec<ValueLocation>,
}

/// A flush that back-pressure reckons with.
struct FlushUnderWay<'a>(&'a Work);

impl<'a> FlushUnderWay<'a> {
    fn begin(work: &'a Work, bytes: u64, volume: u32) -> FlushUnderWay<'a> {
        work.memory.stall.flush_begins(&work.memory, bytes, volume);
        FlushUnderWay(work)
    }
}

impl Drop for FlushUnderWay<'_> {
    fn drop(&mut self) {
        self.0.memory.stall.flush_ends();
    }
}

impl Work {
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

    fn flush_slot(self: &Arc<Self>, keyspace: &Arc<KeyspaceCore>, slot: &Arc<MemtableSlot>) -> Result<()> {
        let volume = self.places.next_flush_goes_to(slot.bytes());
        let _under_way = FlushUnderWay::begin(self, slot.bytes(), volume);
        let started = self.env.clock.now();
        self.health.tell(|| StoreEvent::FlushBegun {
            keyspace: keyspace.name.clone(),
            entries: slot.memtable.entries() as u64,
            bytes: slot.bytes(),
        });
        self.pipeline.wait_published(|| self.versions.snapshots.visible() >= slot.last_sequence())?;
        if self.versions.keyspaces().len() > 1
            && let Some(log) = &self.memory.log
            && let Err(error) = log.sync()
        {
            self.health.fail(error.clone());
            return Err(error.into());
        }
        let write = |host: &Arc<Host>| {
            let flushed = self.write_slot(keyspace, slot, host)?;
            let releasing = Releasing::begin(&self.memory);
            self.install_flush(keyspace, slot, &flushed)?;
            host.separator().iter().for_each(|separator| separator.keep());
            Ok((flushed, releasing))
        };
        let host = Host::new(self, false, slot.bytes()).separating(keyspace);
        let (Flushed { tables, written, .. }, releasing) =
            self.with_spill(host, write, |(flushed, _): &(Flushed, Releasing<'_>)| &flushed.tables[..])?;
        let duration = self.env.clock.now().saturating_sub(started);
        let values_bytes = written.iter().map(|values| values.record_bytes).sum::<u64>();
        let bytes = tables.iter().map(|t| t.summary.bytes).sum::<u64>() + values_bytes;
        let volumes = &self.versions.source.volumes;
        let went_to = |table: &OutputTable| volumes.volume_of(FileName::Table(table.number));
        self.memory.stall.flushed(slot.bytes(), duration, tables.first().map_or(volume, went_to));
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
        self.memory.release_logs();
        drop(releasing);
        self.memory.work.notify();
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

    /// Writes the memtable's contents as at most one table. Also used at recovery.
    pub(crate) fn write_slot(&self, keyspace: &KeyspaceCore, slot: &MemtableSlot, host: &Host) -> Result<Flushed> {
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
                encoder: Encoder::default(),
            },
            filter: None,
            now_unix: Duration::from_secs(unix.as_secs()),
        };
        let source = Named { cursor, name: format!("a memtable of keyspace {:?}", keyspace.name) };
        let output = merge_sources(vec![source], &tombstones, 0, &rules, host).map_err(task_error)?;
        let written = host.separator().map_or(Ok(Vec::new()), |separator| separator.sync())?;
        let (dead, dead_places) = (output.dropped_values, output.dropped_places);
        Ok(Flushed { tables: output.tables, written, dead, dead_places })
    }

    fn install_flush(&self, keyspace: &Arc<KeyspaceCore>, slot: &Arc<MemtableSlot>, flushed: &Flushed) -> Result<()> {
        let Flushed { tables, written, dead, dead_places } = flushed;
        let mut editor = self.versions.edit()?;
        if keyspace.dropped.load(Ordering::Acquire) {
            return Err(Error::KeyspaceDropped { name: keyspace.name.clone() });
        }
        let added: Vec<Added> = tables.iter().map(|table| Added { level: 0, meta: describe(table) }).collect();
        let source = &self.versions.source;
        let version = keyspace.view.load().version.apply(&[], &added, source);
        let version = version.and_then(|version| version.with_segments(written, &[], source));
        let version = version.map_err(|text| self.broken_version(keyspace, text))?;
        // A reader of the memtable has a view with a version of this era, or of one before.
        let version = Arc::new(if dead_places.is_empty() { version } else { version.in_next_era() });
        let dead = version.segments.counted(dead);
        let log_numbers = {
            let commit = lock(&self.memory.commit);
            editor.log_numbers_without(commit.places.log_number, keyspace, slot)
        };
        let added = added.into_iter().map(|a| (keyspace.id, a)).collect();
        let values_written = written.iter().map(|written| (keyspace.id, *written)).collect();
        let values_dead = dead.iter().map(|dead| (keyspace.id, *dead)).collect();
        editor.apply(Edit { added, log_numbers, values_written, values_dead, ..Edit::default() }, || {
            version.segments.note(written, &dead);
            if !dead_places.is_empty() {
                let before = &keyspace.view.load().version.segments;
                before.end_era(&version.segments, dead_places.clone(), &source.values);
            }
            keyspace.view.rcu(|view| {
                let mut view = (**view).clone();
                view.sealed.retain(|other| !Arc::ptr_eq(other, slot));
                view.version = Arc::clone(&version);
                view
            });
            slot.memtable.let_go();
        })?;
        if !self.memory.is_replayed(slot) {
            self.has_flushed_own.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the error of an edit that would break a version. Such an edit must not be written: the store's memory is
    /// no longer to be trusted.
    pub(crate) fn broken_version(&self, keyspace: &KeyspaceCore, text: String) -> Error {
        let what = format!("version of keyspace {:?}", keyspace.name);
        let error = situ_storage::Error::corruption("the version in memory", 0, what, "an edit that fits", text);
        self.health.fail(error.clone());
        error.into()
    }

    /// Makes a blocking flush of one keyspace.
    pub(crate) fn flush(&self, keyspace: &Arc<KeyspaceCore>, level0: Level0) -> Result<()> {
        self.memory.seal(keyspace, level0)?;
        let Some(newest) = keyspace.view.load().sealed.first().cloned() else { return Ok(()) };
        loop {
            let seen = self.memory.progress.generation();
            self.memory.writable()?;
            if keyspace.dropped.load(Ordering::Acquire) {
                return Err(Error::KeyspaceDropped { name: keyspace.name.clone() });
            }
            if !keyspace.view.load().sealed.iter().any(|slot| Arc::ptr_eq(slot, &newest)) {
                return Ok(());
            }
            self.memory.check_flushes()?;
            self.memory.work.notify();
            self.memory.progress.wait(seen, None);
        }
    }
}
