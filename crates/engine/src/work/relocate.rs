//! Tables copied as they are from one volume to another.
//!
//! A job like a compaction of one table. The table is claimed, and its bytes are copied into a table of a new number on
//! the other volume. One edit puts the copy in its place, and the original is deleted when its last reader lets go.
//! Nothing is decoded: rot stays rot, found by the next reader. The new number is what keeps names unique over all
//! volumes; it costs the table's blocks in the cache.
//!
//! **Failure.** The copy is removed, the table stays where it was.

use crate::Error;
use crate::base::listener::StoreEvent;
use crate::base::places::NotMoved;
use crate::base::sync::lock;
use crate::versions::keyspace::KeyspaceCore;
use crate::versions::open_tables::TableReader;
use crate::versions::running::Span;
use crate::versions::version::{Added, TableFile, TableMeta};
use crate::work::Work;
use crate::work::job::Claimed;
use crate::work::job::DeadValues;
use crate::work::picker::Job;
use situ_storage::{FileName, Reader};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Copied in pieces of this size.
const PIECE_BYTES: usize = 512 << 10;

impl Work {
    /// Copies a table of `level` to another volume; false if a compaction has it, it is gone, or the volume takes no
    /// new files.
    pub(crate) fn relocate(
        self: &Arc<Self>,
        keyspace: &Arc<KeyspaceCore>,
        level: usize,
        file: &Arc<TableFile>,
        volume: u32,
        reason: &str,
    ) -> Result<bool, NotMoved> {
        let Some(job) = self.claim_table(keyspace, level, file, reason) else { return Ok(false) };
        let job = Arc::new(job);
        let claimed = Claimed::new(self, keyspace, &job);
        let number = self.versions.new_number();
        let copied = self.copy_table(file, volume, number).and_then(|is_there| {
            if !is_there {
                return Ok(false);
            }
            let meta = TableMeta { number, volume, ..file.meta.clone() };
            self.install_job(keyspace, &job, vec![Added { level, meta }], &mut DeadValues::default())?;
            Ok(true)
        });
        if copied.is_err() {
            self.versions.source.obsolete.add(number);
        }
        drop(claimed);
        // What a failed compaction holds of the original would keep it on its volume.
        if matches!(copied, Ok(true)) && self.forget_postponed(keyspace, &job) {
            self.health.tell(|| StoreEvent::JobRecovered { job: "compact".to_owned() });
        }
        self.memory.progress.notify();
        self.memory.work.notify();
        match copied {
            // The table is not needed any more.
            Err(NotMoved { error: Error::KeyspaceDropped { .. }, .. }) => Ok(false),
            result => result,
        }
    }

    fn claim_table(
        &self,
        keyspace: &Arc<KeyspaceCore>,
        level: usize,
        file: &Arc<TableFile>,
        reason: &str,
    ) -> Option<Job> {
        let _scheduling = lock(&self.scheduling);
        let version = Arc::clone(&keyspace.view.load().version);
        let is_there = version.levels[level].files.iter().any(|other| Arc::ptr_eq(other, file));
        if !is_there || file.busy.load(Ordering::Acquire) || keyspace.compactions_paused.load(Ordering::Acquire) > 0 {
            return None;
        }
        // No running job writes where an idle table is: it would have claimed it.
        let span = Span { level, keys: file.meta.span.clone() };
        let inputs = vec![(level, vec![Arc::clone(file)])];
        let reason = reason.to_owned();
        let job = Job {
            output_level: level,
            inputs,
            through: None,
            score: 0.0,
            reason,
            is_move: false,
            is_debt: false,
            newer: None,
            span,
        };
        job.claim(true);
        lock(&keyspace.running).push(job.span.clone());
        Some(job)
    }

    /// Copies a table. Returns false if the volume takes no new files.
    fn copy_table(&self, file: &TableFile, volume: u32, number: u64) -> Result<bool, NotMoved> {
        let name = FileName::Table(file.meta.number);
        let reader = TableReader::open(&self.versions.volume, name, &self.versions.source.descriptors)?;
        let begun = self.versions.source.volumes.begin_table(volume, number, file.meta.bytes);
        let Some(mut writer) = begun.map_err(NotMoved::in_writing)? else { return Ok(false) };
        let mut piece = vec![0; PIECE_BYTES.min(file.meta.bytes as usize)];
        let mut at = 0;
        while at < file.meta.bytes {
            if self.health.is_closing() {
                return Err(Error::Closed.into());
            }
            let bytes = (file.meta.bytes - at).min(piece.len() as u64);
            let piece = &mut piece[..bytes as usize];
            reader.read_at(at, piece)?;
            writer.append(piece).map_err(NotMoved::in_writing)?;
            self.pacer.pace(self, bytes);
            at += bytes;
        }
        writer.finish().map_err(NotMoved::in_writing)?;
        self.health.stats.counters.relocation_bytes_written.add(file.meta.bytes);
        Ok(true)
    }
}
