//! Flush: a sealed memtable becomes a table of level 0.
//!
//! 1. Wait until every write that was given the memtable is inside (`Pipeline::wait_published`).
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
use crate::base::sync::{OnDrop, lock};
use crate::pipeline::flush_queue::Releasing;
use crate::pipeline::no_room::Level0;
use crate::pipeline::{Memory, Pipeline};
use crate::versions::editor::{Change, DeadValues};
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::version::Added;
use crate::versions::view::{MemtableSlot, View};
use crate::work::picker::spans_below;
use crate::work::task_host::{Host, Hosts, describe, task_error};
use crate::{Error, Result};
use situ_compaction::{Encoder, KeyRange, MergeRules, Named, OutputRules, OutputTable, merge_sources};
use situ_table::Cursor;
use situ_table::range_del::RangeTombstone;
use situ_values::Written;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The durable contents of a memtable, in no version yet.
struct WrittenTables {
    tables: Vec<OutputTable>,
    /// Values in the value log.
    values: Vec<Written>,
}

impl WrittenTables {
    /// Returns the change that adds them. The memtable had handles for `dead`, and the tables have not.
    fn change(&self, dead: DeadValues) -> Change {
        let added = self.tables.iter().map(|table| Added { level: 0, meta: describe(table) }).collect();
        Change { added, written: self.values.clone(), dead, ..Change::default() }
    }
}

/// The flushes of a store.
pub(crate) struct Flushes {
    hosts: Arc<Hosts>,
    memory: Arc<Memory>,
    pipeline: Arc<Pipeline>,
    /// Something that was written since the store was opened has become a table.
    has_flushed_own: AtomicBool,
}

impl Flushes {
    pub(crate) fn new(hosts: &Arc<Hosts>, memory: &Arc<Memory>, pipeline: &Arc<Pipeline>) -> Flushes {
        let (hosts, memory, pipeline) = (Arc::clone(hosts), Arc::clone(memory), Arc::clone(pipeline));
        Flushes { hosts, memory, pipeline, has_flushed_own: AtomicBool::new(false) }
    }

    /// Returns true if something that was written since the store was opened has become a table.
    pub(crate) fn has_flushed_own(&self) -> bool {
        self.has_flushed_own.load(Ordering::Acquire)
    }

    /// Flushes the oldest sealed memtable of some keyspace; false if there is none.
    pub(crate) fn flush_one(&self) -> Result<bool> {
        let Some((keyspace, slot)) = self.memory.queue.oldest() else { return Ok(false) };
        self.flush_slot(&keyspace, &slot)?;
        Ok(true)
    }

    fn flush_slot(&self, keyspace: &Arc<KeyspaceCore>, slot: &Arc<MemtableSlot>) -> Result<()> {
        let Memory { env, health, versions, stall, .. } = &*self.memory;
        let volume = self.hosts.places.next_flush_goes_to(slot.bytes());
        let started = env.clock.now();
        stall.flush_begins(started, slot.bytes(), volume);
        let _ended = OnDrop(|| stall.flush_ends());
        health.tell(|| StoreEvent::FlushBegun {
            keyspace: keyspace.name.clone(),
            entries: slot.memtable.entries() as u64,
            bytes: slot.bytes(),
        });
        let last = slot.last_sequence();
        assert!(last < u64::MAX, "a memtable is sealed before it is flushed");
        self.pipeline.wait_published(|| versions.snapshots.visible() >= last)?;
        assert!(versions.snapshots.visible() >= last, "a memtable is flushed before it is complete");
        if versions.keyspaces().len() > 1
            && let Some(log) = self.memory.log()
            && let Err(error) = log.sync()
        {
            health.fail(error.clone());
            return Err(error.into());
        }
        let write = |host: &Arc<Host>| {
            let (written, dead) = self.write_tables(keyspace, slot, host)?;
            let releasing = self.memory.queue.begin_release();
            self.install(keyspace, slot, written.change(dead))?;
            host.separator.iter().for_each(|separator| separator.keep());
            Ok((written, releasing))
        };
        let host = Host::new(&self.hosts, false, slot.bytes()).separating(keyspace);
        let (written, releasing) =
            self.hosts.with_spill(host, write, |(written, _): &(WrittenTables, Releasing<'_>)| &written.tables[..])?;
        let WrittenTables { tables, values } = written;
        let duration = env.clock.now().saturating_sub(started);
        let values_bytes = values.iter().map(|values| values.record_bytes).sum::<u64>();
        let bytes = tables.iter().map(|t| t.summary.bytes).sum::<u64>() + values_bytes;
        let went_to = |table: &OutputTable| versions.source.volume_of(table.number);
        stall.flushed(slot.bytes(), duration, tables.first().map_or(volume, went_to));
        health.stats.counters.flushes.add(1);
        health.stats.counters.flush_bytes_written.add(bytes);
        health.stats.flush.record(duration);
        self.hosts.tell_created(keyspace, 0, &tables);
        health.tell(|| StoreEvent::Flushed {
            keyspace: keyspace.name.clone(),
            table: tables.first().map(|t| t.number),
            bytes,
            duration,
        });
        self.memory.log_files.release();
        drop(releasing);
        self.memory.work.notify();
        Ok(())
    }

    /// Writes the memtable's contents as at most one table.
    fn write_tables(
        &self,
        keyspace: &KeyspaceCore,
        slot: &MemtableSlot,
        host: &Host,
    ) -> Result<(WrittenTables, DeadValues)> {
        let mut cursor = slot.memtable.cursor();
        cursor.first()?;
        let tombstones: Vec<Arc<RangeTombstone>> = slot.memtable.range_tombstones().iter().cloned().collect();
        let version = Arc::clone(&keyspace.view.load().version);
        let unix = self.memory.env.clock.unix();
        let rules = MergeRules {
            range: KeyRange::all(),
            snapshots: self.memory.versions.snapshots.sequences(),
            below: spans_below(&version, None),
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
        assert!(output.tables.len() <= 1, "a memtable becomes one table: {:?}", output.tables);
        let entries = output.tables.iter().map(|table| table.summary.properties.entries).sum::<u64>();
        assert!(entries <= slot.memtable.entries() as u64, "a flush makes {entries} entries of fewer");
        let values = host.separator.as_ref().map_or(Ok(Vec::new()), |separator| separator.sync())?;
        let dead = DeadValues { sums: output.dropped_values, places: output.dropped_places };
        Ok((WrittenTables { tables: output.tables, values }, dead))
    }

    fn install(&self, keyspace: &Arc<KeyspaceCore>, slot: &Arc<MemtableSlot>, change: Change) -> Result<()> {
        let mut editor = self.memory.versions.edit()?;
        let log_numbers = {
            let commit = lock(&self.memory.commit);
            editor.log_numbers_without(commit.places.log_number, keyspace, slot)
        };
        let log = self.memory.log().map(|log| log.file());
        assert!(
            log_numbers.iter().all(|(_, number)| Some(*number) <= log),
            "log files ahead of {log:?}: {log_numbers:?}"
        );
        editor.change(keyspace, Change { flushed: Some(Arc::clone(slot)), log_numbers, ..change })?;
        if !self.memory.log_files.is_replayed(slot) {
            self.has_flushed_own.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Writes a replayed memtable as a table of level 0 that is in the keyspace's version, and in no manifest yet.
    pub(crate) fn write_replayed(&self, keyspace: &Arc<KeyspaceCore>, slot: &Arc<MemtableSlot>) -> Result<()> {
        let write = |host: &Arc<Host>| {
            let written = self.write_tables(keyspace, slot, host)?;
            host.separator.iter().for_each(|separator| separator.keep());
            Ok(written)
        };
        let host = Host::new(&self.hosts, false, slot.bytes()).separating(keyspace);
        let (written, dead) = self.hosts.with_spill(host, write, |(written, _)| &written.tables[..])?;
        // No reader has a view of an earlier era.
        let change = written.change(DeadValues { places: Vec::new(), ..dead });
        let version = Arc::new(self.memory.versions.changed(keyspace, &change)?);
        version.segments.note(&change.written, &version.segments.counted(&change.dead.sums));
        keyspace.view.rcu(|view| View { version: Arc::clone(&version), ..(**view).clone() });
        slot.memtable.let_go();
        Ok(())
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
            self.memory.queue.check()?;
            self.memory.work.notify();
            self.memory.progress.wait(seen, None);
        }
    }
}
