//! A file of the volume while it has a user: the index, a handle, or a removal that is not durable yet.
//!
//! Its pages go back to the room when the last of these lets go of it. So an open file keeps its pages though its name
//! has gone. Pages of a removed file are given away only when no crash can bring the file back.

use super::cache::{Cache, UNIT_BYTES};
use super::room::{Extent, Room};
use situ_base::lock;
use situ_storage::FileName;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The changeable part of a file. Its lock is taken under the volume's, and never the other way round.
#[derive(Debug, Default)]
pub(super) struct Meta {
    /// `None` if it has lost its name.
    pub(super) name: Option<FileName>,
    /// All pages that it has, those behind its length too.
    pub(super) extents: Vec<Extent>,
    pub(super) length: u64,
    /// The bytes, if they are in the catalogue.
    pub(super) inline: Option<Arc<[u8]>>,
    /// True if the catalogue has it.
    pub(super) is_published: bool,
    /// True if a writer may still append to it.
    pub(super) is_growing: bool,
}

pub(super) struct File {
    /// The id, never used twice in a run.
    pub(super) id: u64,
    pub(super) room: Arc<Room>,
    cache: Arc<Cache>,
    meta: Mutex<Meta>,
    /// Lives as long as a file of the same reading of the catalogue.
    _reading: Arc<()>,
}

impl File {
    pub(super) fn new(id: u64, room: Arc<Room>, cache: Arc<Cache>, meta: Meta, reading: Arc<()>) -> File {
        File { id, room, cache, meta: Mutex::new(meta), _reading: reading }
    }

    pub(super) fn meta(&self) -> MutexGuard<'_, Meta> {
        lock(&self.meta)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let meta = self.meta.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.cache.forget(self.id, meta.length.div_ceil(UNIT_BYTES as u64));
        self.room.give_back(&meta.extents);
    }
}
