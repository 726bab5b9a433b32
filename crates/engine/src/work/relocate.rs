//! Tables copied as they are from one volume to another.
//!
//! A job like a compaction of one table. The table is claimed, and its bytes are copied into a table of a new number on
//! the other volume. One edit puts the copy in its place, and the original is deleted when its last reader lets go.
//! Nothing is decoded: rot stays rot, found by the next reader. The new number is what keeps names unique over all
//! volumes; it costs the table's blocks in the cache.
//!
//! **Failure.** The copy is removed, the table stays where it was.

use crate::Error;
use crate::base::places::NotMoved;
use crate::pipeline::Memory;
use crate::versions::editor::DeadValues;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::open_tables::TableReader;
use crate::versions::running::Span;
use crate::versions::version::{Added, TableFile, TableMeta};
use crate::work::pacer::Pacer;
use crate::work::picker::Job;
use crate::work::schedule::{Claimed, Schedule};
use situ_storage::{FileName, Reader};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Copied in pieces of this size.
const PIECE_BYTES: usize = 512 << 10;

/// The moves of a store's tables between volumes. See the module's documentation.
pub(crate) struct Relocations {
    memory: Arc<Memory>,
    schedule: Arc<Schedule>,
    pacer: Arc<Pacer>,
}

impl Relocations {
    pub(crate) fn new(memory: &Arc<Memory>, schedule: &Arc<Schedule>, pacer: &Arc<Pacer>) -> Relocations {
        Relocations { memory: Arc::clone(memory), schedule: Arc::clone(schedule), pacer: Arc::clone(pacer) }
    }

    /// Copies a table of `level` to another volume; false if a compaction has it, it is gone, or the volume takes no
    /// new files.
    pub(crate) fn relocate(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        level: usize,
        file: &Arc<TableFile>,
        volume: u32,
        reason: &str,
    ) -> Result<bool, NotMoved> {
        let Some(claimed) = self.claim(keyspace, level, file, reason) else { return Ok(false) };
        let job = Arc::clone(&claimed.job);
        let number = self.memory.versions.new_number();
        let copied = self.copy_table(file, volume, number).and_then(|is_there| {
            if is_there {
                let meta = TableMeta { number, volume, ..file.meta.clone() };
                claimed.install(vec![Added { level, meta }], DeadValues::default())?;
            }
            Ok(is_there)
        });
        if copied.is_err() {
            self.memory.versions.source.obsolete.add(number);
        }
        drop(claimed);
        // What a failed compaction holds of the original would keep it on its volume.
        if matches!(copied, Ok(true)) {
            self.schedule.forget_postponed(keyspace, &job);
        }
        self.memory.progress.notify();
        self.memory.work.notify();
        match copied {
            // The table is not needed any more.
            Err(NotMoved { error: Error::KeyspaceDropped { .. }, .. }) => Ok(false),
            result => result,
        }
    }

    fn claim(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        level: usize,
        file: &Arc<TableFile>,
        reason: &str,
    ) -> Option<Claimed> {
        let scheduling = self.schedule.lock();
        let version = Arc::clone(&keyspace.view.load().version);
        let is_there = version.levels[level].files.iter().any(|other| Arc::ptr_eq(other, file));
        if !is_there || file.busy.load(Ordering::Acquire) || keyspace.compactions_paused.load(Ordering::Acquire) > 0 {
            return None;
        }
        // No running job writes where an idle table is: it would have claimed it. A job that has just installed the
        // table may not have given up its keys.
        let span = Span { level, keys: file.meta.span.clone() };
        let job = Job::of(vec![(level, vec![Arc::clone(file)])], span, reason.to_owned());
        Some(self.schedule.claim_tables(&scheduling, keyspace, job))
    }

    /// Copies a table. Returns false if the volume takes no new files.
    fn copy_table(&self, file: &TableFile, volume: u32, number: u64) -> Result<bool, NotMoved> {
        let name = FileName::Table(file.meta.number);
        let Memory { health, versions, .. } = &*self.memory;
        let reader = TableReader::open(&versions.volume, name, &versions.source.descriptors)?;
        let begun = versions.source.volumes.begin_table(volume, number, file.meta.bytes);
        let Some(mut writer) = begun.map_err(NotMoved::in_writing)? else { return Ok(false) };
        let mut piece = vec![0; PIECE_BYTES.min(file.meta.bytes as usize)];
        let mut at = 0;
        while at < file.meta.bytes {
            if health.is_closing() {
                return Err(Error::Closed.into());
            }
            let bytes = (file.meta.bytes - at).min(piece.len() as u64);
            let piece = &mut piece[..bytes as usize];
            reader.read_at(at, piece)?;
            writer.append(piece).map_err(NotMoved::in_writing)?;
            self.pacer.pace(bytes);
            at += bytes;
        }
        assert_eq!(writer.written(), file.meta.bytes, "a copy is as long as table {}", file.meta.number);
        writer.finish().map_err(NotMoved::in_writing)?;
        health.stats.counters.relocation_bytes_written.add(file.meta.bytes);
        Ok(true)
    }
}
