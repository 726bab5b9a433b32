//! The end of the log that is needed: what the manifest notes of it, and how the log leaves files early.

use crate::Result;
use crate::base::sync::lock;
use crate::pipeline::Memory;
use crate::versions::edit::Edit;
use crate::versions::keyspace::KeyspaceCore;
use situ_log::Log;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Memory {
    /// Waits until the flusher has made tables of what was replayed, unless it cannot. To be called before closing: a
    /// store that is opened for a moment, again and again, would otherwise replay the same each time.
    pub(crate) fn wait_for_replayed(&self) {
        let waits = |k: &Arc<KeyspaceCore>| k.view.load().sealed.iter().any(|slot| self.log_files.is_replayed(slot));
        loop {
            let seen = self.progress.generation();
            let is_idle = self.log_files.writable().is_err() || self.queue.check().is_err();
            if is_idle || !self.versions.keyspaces().iter().any(waits) {
                return;
            }
            self.work.notify();
            self.progress.wait(seen, None);
        }
    }

    /// Notes in the manifest that all that the log held is in the new log. Returns false if the disk has no room for
    /// the note: then the old log files stay, until another edit says so.
    pub(crate) fn note_carried(&self) -> Result<bool> {
        match self.note_log_numbers() {
            Err(error) if error.is_no_space() => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Notes in the manifest which log files what is in memory still needs.
    pub(crate) fn note_log_numbers(&self) -> Result<()> {
        let mut editor = self.versions.edit()?;
        let log_numbers = self.versions.log_numbers(lock(&self.commit).places.log_number);
        editor.apply(Edit { log_numbers, ..Edit::default() }, || {})
    }

    /// Returns true if the manifest names an older log file as needed than memory does. A memtable that was empty when
    /// the manifest was written has its first records in a later file.
    pub(crate) fn needs_less_log_than_noted(&self) -> bool {
        let noted = lock(&self.versions.registry).by_id.values().map(|k| k.log_number.load(Ordering::Relaxed)).min();
        let needed =
            self.versions.log_numbers(lock(&self.commit).places.log_number).into_iter().map(|(_, number)| number).min();
        noted < needed
    }

    /// Notes in the manifest that the store is closed in order; to be called when the log has been closed.
    pub(crate) fn note_closed(&self) -> Result<()> {
        let closed = Some(lock(&self.commit).places.log_number);
        match self.versions.edit()?.apply(Edit { closed, ..Edit::default() }, || {}) {
            // Nothing is lost without the note; the next open then looks a little less closely.
            Err(error) if error.is_no_space() => Ok(()),
            result => result,
        }
    }

    /// Lets records go to other volumes than this one from now on.
    pub(crate) fn move_log(&self, from: u32) -> Result<()> {
        let log = self.log_files.writable()?;
        while self.log_files.lies_on(log, from) {
            // A file that was made ready may be on the volume: another number takes its place.
            let ready = self.log_files.prepared();
            if self.log_files.file_lies_on(ready, from) {
                self.log_files.rotated(ready);
            }
            self.log_files.prepare(0)?;
            let mut commit = lock(&self.commit);
            let is_elsewhere = !self.log_files.file_lies_on(log.file(), from);
            // Another thread may have gone on to the file meanwhile; then it is tried again.
            let _ = if is_elsewhere { Ok(()) } else { self.log_files.rotate(&mut commit.places) };
            drop(commit);
            self.log_files.writable()?;
        }
        Ok(())
    }

    /// Gives back the room of log files that are not needed. If no memtable holds anything, the log goes on in a short
    /// file.
    pub(crate) fn trim_log(&self) -> Result<()> {
        let Some(log) = &self.log_files.log else { return Ok(()) };
        // First what needs no room: the disk may be full.
        log.drop_spares()?;
        if self.is_flushed()
            && let Err(error) = self.shorten_log(log)
        {
            // The compaction is done, and the log goes on in the file that it has.
            self.health.note_job_failure("shorten log", error);
        }
        self.log_files.release();
        Ok(log.drop_spares()?)
    }

    /// Goes on in a short log file, if still no memtable holds anything, and lets go of those before it.
    fn shorten_log(&self, log: &Log) -> Result<()> {
        self.log_files.prepare_at_rest()?;
        {
            let mut commit = lock(&self.commit);
            // Asked again: with the lock held, no thread writes.
            if !self.is_flushed() || self.log_files.rotate(&mut commit.places).is_err() {
                return Ok(());
            }
        }
        self.note_log_numbers()?;
        // The last page of the file before would be written with the next records, and must be before it can go.
        log.write_out().inspect_err(|error| self.health.fail(error.clone()))?;
        Ok(())
    }

    /// Returns true if all memtables are empty.
    fn is_flushed(&self) -> bool {
        self.versions.keyspaces().iter().all(|keyspace| {
            let view = keyspace.view.load();
            view.sealed.is_empty() && view.active.is_empty()
        })
    }
}
