//! Traces of a hash store in a volume whose superblock is gone.
//!
//! Only a hash store has these files, and it makes them after its superblock. So a volume with one of them and without
//! `SUPERBLOCK` has lost the superblock: it is no new directory, and no ordered store either.

use crate::{FileMeta, FileName, Result, Volume};

/// The beginning of a hash store's `IDENTITY`.
pub const HASH_STORE_IDENTITY: &str = "This directory is a Situ hash store";

/// Returns a file, other than `SUPERBLOCK`, that only a hash store has. `files` is the volume's list.
///
/// # Errors
/// `IDENTITY` cannot be read.
pub fn trace_of_hash_store(volume: &dyn Volume, files: &[FileMeta]) -> Result<Option<FileName>> {
    let bytes_of = |name| files.iter().find(|file| file.name == name).map(|file| file.bytes);
    let mut beginning = [0; HASH_STORE_IDENTITY.len()];
    if bytes_of(FileName::Identity).is_some_and(|bytes| bytes >= beginning.len() as u64) {
        volume.open(FileName::Identity)?.read_at(0, &mut beginning)?;
    }
    if beginning == HASH_STORE_IDENTITY.as_bytes() {
        return Ok(Some(FileName::Identity));
    }
    Ok([FileName::Images, FileName::Clock].into_iter().find(|name| bytes_of(*name).is_some()))
}
