//! The reasons why a write has no room, and a memtable is not sealed.

use crate::Error;
use crate::versions::keyspace::KeyspaceCore;
use situ_pipeline::{NoLogFile, SpaceUse};
use std::sync::Arc;

/// The effect of level 0's limit on tables: it keeps a memtable from being sealed, or is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level0 {
    Heeded,
    Ignored,
}

/// The reason why a write has no room in memory.
pub(crate) enum NoRoom {
    /// All memtables of a keyspace are full.
    MemtablesFull { keyspace: Arc<KeyspaceCore> },
    /// The memtable is full, and so is the level that it would become a table of.
    Level0Full { keyspace: Arc<KeyspaceCore> },
    /// All memtables of the store together have what they may take.
    MemoryFull { keyspace: Arc<KeyspaceCore> },
    /// No log file with room for the record is ready.
    LogFile(NoLogFile),
    /// The disks have no space for a write of `bytes` bytes, or their space is unknown.
    Space { bytes: u64, space_use: SpaceUse },
}

impl From<NoLogFile> for NoRoom {
    fn from(no_file: NoLogFile) -> NoRoom {
        NoRoom::LogFile(no_file)
    }
}

/// The reason why a memtable was not sealed, or the log did not go on in another file.
pub(crate) enum Unsealed {
    /// Not now.
    NoRoom(NoRoom),
    /// Never.
    Refused(Box<Error>),
}

impl From<NoRoom> for Unsealed {
    fn from(no_room: NoRoom) -> Unsealed {
        Unsealed::NoRoom(no_room)
    }
}
