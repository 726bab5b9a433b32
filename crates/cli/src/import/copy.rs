//! A column family into its keyspace.
//!
//! Entries come in key order, so that memtables become tables that follow each other, which compactions move instead of
//! rewriting. While a batch is written, the next ones are read.

use super::plan::{Marks, Task};
use super::source::{Chunk, Source};
use crate::failure::Failure;
use crate::store::Writable;
use crate::text::shorten;
use indicatif::ProgressBar;
use situ::{BATCH_BYTES_MAX, Durability, WriteBatch};

/// The longest chunk that leaves room for a mark in its batch. A longer chunk is written before its mark, and written
/// again if the import ends between the two.
const CHUNK_BYTES_WITH_MARK: usize = BATCH_BYTES_MAX / 4;

/// Does the task, or what is left of it.
///
/// # Errors
/// The database cannot be read, an entry is none for Situ, or the store does not take it.
pub(super) fn copy(
    source: &Source,
    writable: &Writable,
    marks: &Marks,
    task: &mut Task,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    if task.mark.done {
        return Ok(());
    }
    let failed = |error: situ::Error| writable.failure("cannot write a batch", &error);
    let write = |batch| writable.store.write_with(batch, Durability::Buffered).map_err(failed);
    let (family, after) = (task.family.clone(), task.mark.last_key()?);
    source.read(&family, after.as_deref(), |chunk| {
        let mut batch = batch_of(chunk, task)?;
        let Some(last_key) = chunk.last_key() else { return Ok(()) };
        task.mark.advance(last_key, chunk.len());
        if chunk.byte_len() > CHUNK_BYTES_WITH_MARK {
            write(std::mem::take(&mut batch))?;
        }
        marks.put(&mut batch, task).map_err(failed)?;
        write(batch)?;
        bar.inc(chunk.len());
        Ok(())
    })?;
    task.mark.done = true;
    let mut batch = WriteBatch::new();
    marks.put(&mut batch, task).map_err(failed)?;
    write(batch)
}

fn batch_of(chunk: &Chunk, task: &Task) -> Result<WriteBatch, Failure> {
    let mut batch = WriteBatch::new();
    for (key, value) in chunk.entries() {
        batch.put_in(&task.keyspace, key, value).map_err(|error| {
            let what = format!("cannot import the key {} of column family {:?}", shorten(key, 64), task.family);
            Failure::new(what, error).cure("what was imported before it stays; shorten it or take it away in the database, and import again with --merge")
        })?;
    }
    Ok(batch)
}
