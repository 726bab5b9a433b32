//! Memory's state under the commit lock: the destinations of the next write's records and operations.

use crate::versions::keyspace::KeyspaceCore;
use std::sync::Arc;

/// The used bytes of the first log file, which is short, at which the next one is made ready.
const FIRST_FILE_BYTES: u64 = 512 << 10;

/// See the module's documentation.
pub(crate) struct Places {
    /// By keyspace id.
    keyspaces: Vec<Option<Arc<KeyspaceCore>>>,
    /// The log file that takes records now.
    pub(crate) log_number: u64,
    /// Bytes that may go into the present log file before the next one should be made ready. By then the flush of the
    /// memtable before has mostly ended, and its log file can be used again. It is early enough to be done in time.
    until_prepare_bytes: u64,
    /// The next write wakes the thread that looks at debts.
    is_watched: bool,
    /// While active memtables together take less than this, it is no use to look again for one that is worth a flush.
    pub(crate) look_for_large_at_bytes: u64,
}

impl Places {
    pub(crate) fn new<'a>(log_number: u64, keyspaces: impl Iterator<Item = &'a Arc<KeyspaceCore>>) -> Places {
        let mut places = Places {
            keyspaces: Vec::new(),
            log_number,
            until_prepare_bytes: FIRST_FILE_BYTES,
            is_watched: false,
            look_for_large_at_bytes: 0,
        };
        keyspaces.for_each(|keyspace| places.add_keyspace(keyspace));
        places
    }

    pub(crate) fn add_keyspace(&mut self, keyspace: &Arc<KeyspaceCore>) {
        let index = keyspace.id as usize;
        if self.keyspaces.len() <= index {
            self.keyspaces.resize(index + 1, None);
        }
        self.keyspaces[index] = Some(Arc::clone(keyspace));
    }

    pub(crate) fn remove_keyspace(&mut self, id: u32) {
        if let Some(entry) = self.keyspaces.get_mut(id as usize) {
            *entry = None;
        }
    }

    /// Returns all keyspaces that take writes.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &Arc<KeyspaceCore>> {
        self.keyspaces.iter().flatten()
    }

    pub(crate) fn keyspace(&self, id: u32) -> Option<&Arc<KeyspaceCore>> {
        self.keyspaces.get(id as usize)?.as_ref()
    }

    /// Directs records to log file `number` from now on, which has room for `room_bytes` bytes.
    pub(crate) fn go_on_in(&mut self, number: u64, room_bytes: u64) {
        self.log_number = number;
        // A file may be shorter than most: the next one must be ready before it is full.
        self.until_prepare_bytes = (room_bytes * 3 / 8).max(1);
    }

    /// Has the next write wake the background, or not.
    pub(crate) fn watch(&mut self, is_watched: bool) {
        self.is_watched = is_watched;
    }

    /// Returns true if this write is to wake the background; asked once.
    #[inline]
    pub(crate) fn take_watch(&mut self) -> bool {
        std::mem::take(&mut self.is_watched)
    }

    /// Counts `bytes` bytes that went into the present log file. Returns true, once for each file, if the next one is
    /// to be made ready.
    pub(crate) fn used(&mut self, bytes: u64) -> bool {
        let had = self.until_prepare_bytes;
        self.until_prepare_bytes = had.saturating_sub(bytes);
        had > 0 && self.until_prepare_bytes == 0
    }
}
