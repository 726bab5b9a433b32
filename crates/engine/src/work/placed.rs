//! The store, as its places see it.
//!
//! The places belong to [`Work`], and ask back through a weak handle. While the store is being put together there is no
//! work yet, and a question about it is answered as by a store that closes.

use crate::base::listener::StoreEvent;
use crate::base::places::{HOME, NotMoved, PlacedKeyspace, PlacedStore, PlacedTable};
use crate::base::sync::lock;
use crate::pipeline::no_room::Level0;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::store::{Versions, log_file_bytes};
use crate::work::Work;
use crate::{Error, Result};
use situ_base::{Env, Event};
use situ_storage::Error as StorageError;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// See the module's documentation.
pub(crate) struct Placed {
    env: Env,
    versions: Arc<Versions>,
    bell: Arc<dyn Event>,
    progress: Arc<dyn Event>,
    work: OnceLock<Weak<Work>>,
}

impl Placed {
    pub(crate) fn new(
        env: &Env,
        versions: &Arc<Versions>,
        bell: &Arc<dyn Event>,
        progress: &Arc<dyn Event>,
    ) -> Arc<Placed> {
        Arc::new(Placed {
            env: env.clone(),
            versions: Arc::clone(versions),
            bell: Arc::clone(bell),
            progress: Arc::clone(progress),
            work: OnceLock::new(),
        })
    }

    /// Says whose places ask; once.
    pub(crate) fn belongs_to(&self, work: &Arc<Work>) {
        let is_first = self.work.set(Arc::downgrade(work)).is_ok();
        assert!(is_first, "a store has its places once");
    }

    fn work(&self) -> Result<Arc<Work>> {
        self.work.get().and_then(Weak::upgrade).ok_or(Error::Closed)
    }

    fn keyspace(&self, id: u32) -> Option<Arc<KeyspaceCore>> {
        lock(&self.versions.registry).by_id.get(&id).cloned()
    }
}

impl PlacedStore for Placed {
    fn env(&self) -> &Env {
        &self.env
    }

    fn tell(&self, event: StoreEvent) {
        self.versions.health.tell(|| event);
    }

    fn note_job_failure(&self, job: &str, error: Error) {
        self.versions.health.note_job_failure(job, error);
    }

    fn fail(&self, cause: StorageError) {
        self.versions.health.fail(cause);
    }

    fn check_open(&self) -> Result<()> {
        self.versions.health.check_open()
    }

    fn check_sound(&self) -> Result<()> {
        self.versions.health.check_sound()
    }

    fn keyspaces(&self) -> Vec<PlacedKeyspace> {
        let placed = |keyspace: &Arc<KeyspaceCore>| {
            let view = keyspace.view.load();
            let level0 = &view.version.levels[0].files;
            PlacedKeyspace {
                id: keyspace.id,
                memtable_bytes: keyspace.options.memtable_bytes,
                level0_tables: keyspace.options.level0_tables,
                level0_bytes_elsewhere: level0
                    .iter()
                    .filter(|file| file.meta.volume != HOME)
                    .map(|file| file.meta.bytes)
                    .sum(),
            }
        };
        self.versions.keyspaces().iter().map(placed).collect()
    }

    fn keyspace_name(&self, id: u32) -> String {
        self.versions.keyspace_name(id)
    }

    fn tables(&self) -> Vec<PlacedTable> {
        let mut tables = Vec::new();
        for keyspace in self.versions.keyspaces() {
            let view = keyspace.view.load();
            tables.extend(view.version.files().map(|(level, file)| PlacedTable {
                keyspace: keyspace.id,
                level,
                number: file.meta.number,
                volume: file.meta.volume,
                bytes: file.meta.bytes,
                reads_per_s: file.heat.per_s(),
            }));
        }
        tables
    }

    fn look_at_reads(&self, elapsed: Duration) {
        for keyspace in self.versions.keyspaces() {
            keyspace.view.load().version.files().for_each(|(_, file)| file.heat.look(elapsed));
        }
    }

    fn bell(&self) -> &Arc<dyn Event> {
        &self.bell
    }

    fn as_editor(&self, change: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let _editor = self.versions.edit()?;
        change()
    }

    fn move_table(&self, table: &PlacedTable, to: u32, reason: &str) -> Result<bool, NotMoved> {
        let Some(keyspace) = self.keyspace(table.keyspace) else { return Ok(false) };
        let version = Arc::clone(&keyspace.view.load().version);
        let mut files = version.levels[table.level].files.iter();
        let Some(file) = files.find(|file| file.meta.number == table.number) else { return Ok(false) };
        self.work()?.relocations.relocate(&keyspace, table.level, file, to, reason)
    }

    fn as_guest(&self, job: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.work()?.memory.writable()?;
        let _guest = self.versions.health.enter()?;
        job()
    }

    fn progress(&self) -> &Arc<dyn Event> {
        &self.progress
    }

    fn new_number(&self) -> u64 {
        self.versions.new_number()
    }

    fn log_file_bytes(&self) -> u64 {
        log_file_bytes(&lock(&self.versions.registry))
    }

    fn pace(&self, bytes: u64) {
        if let Ok(work) = self.work() {
            work.budgets.pacer.pace(bytes);
        }
    }

    fn move_log(&self, from: u32) -> Result<()> {
        move_log(&*self.work()?, from)
    }

    fn vacate(&self, from: u32, reason: &str) -> Result<bool> {
        let work = self.work()?;
        let log = work.memory.writable()?;
        if work.memory.log_files.lies_on(log, from) {
            move_log(&work, from)?;
        }
        let mut moved = false;
        for table in self.tables().iter().filter(|table| table.volume == from) {
            work.memory.writable()?;
            // A table that rests after a failed compaction would be waited for as long as that goes on failing. If it
            // cannot be copied either, the caller hears why.
            if let Some(keyspace) = self.keyspace(table.keyspace) {
                work.schedule.end_rests(&work.schedule.lock(), &keyspace, true);
            }
            moved |= self.move_table(table, HOME, reason).map_err(|not| not.error)?;
        }
        Ok(moved)
    }

    fn release_files(&self) -> Result<()> {
        self.versions.try_delete_obsolete()?;
        self.work()?.memory.log_files.release_all()
    }

    fn drop_log_spares(&self) -> Result<()> {
        Ok(self.work()?.memory.writable()?.drop_spares()?)
    }
}

/// See [`PlacedStore::move_log`].
fn move_log(work: &Work, from: u32) -> Result<()> {
    let memory = &work.memory;
    memory.move_log(from)?;
    for keyspace in memory.versions.keyspaces() {
        match work.flushes.flush(&keyspace, Level0::Ignored) {
            Err(Error::KeyspaceDropped { .. }) => {}
            flushed => flushed?,
        }
    }
    memory.note_log_numbers()?;
    // The last page of a file before would be written with the next records, and must be before it can go.
    memory.writable()?.write_out().inspect_err(|error| memory.health.fail(error.clone()))?;
    Ok(())
}
