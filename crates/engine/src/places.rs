//! The seam between a store and the volumes that it lies on.
//!
//! 1. [`Volumes`] are the volumes of a store, found and locked. The store reads and writes all of its files through
//!    them as if they were one volume. Volume [`HOME`] has the manifest, and every file that lies nowhere else.
//! 2. The volumes of a store that opens get a [`PlacedStore`], the store as they see it, and give [`Places`].
//! 3. The store asks its places where a new table goes, and tells them which volume has refused one.
//! 4. The flusher gives the places a [tick](Places::tick) when they want one. A compaction thread without other work
//!    lets them [move](Places::move_one) a table.
//!
//! [`Plain`] is the store on one volume: every question has one answer. Reads and writes of keys ask nothing.

mod plain;

use crate::base::listener::StoreEvent;
use crate::{Error, Result};
pub use plain::Plain;
use situ_base::{Env, Event};
use situ_storage::{Error as StorageError, FileName, Result as StorageResult, Space, Volume, Writer};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The number of the volume that has the manifest, and all files that lie nowhere else.
pub const HOME: u32 = 0;

/// A claim on the place of a table that another creator makes, such as a unit in another process. The volume counts as
/// used until the claim is dropped.
pub type Reserved = Box<dyn Any + Send + Sync>;

/// The volumes of a store.
///
/// **Threads.** Any thread calls any method.
pub trait Volumes: Any + Send + Sync {
    /// Returns all volumes as one.
    fn volume(&self) -> &Arc<dyn Volume>;

    /// Returns true if there are further volumes, or have been since the store was opened. The store counts the reads
    /// of each table then.
    fn are_several(&self) -> bool {
        false
    }

    /// Returns the numbers of the volumes, [`HOME`] first.
    fn numbers(&self) -> Vec<u32> {
        vec![HOME]
    }

    /// Returns the volume of this number; `None` if the store has none, or has released it.
    fn numbered(&self, number: u32) -> Option<&dyn Volume> {
        (number == HOME).then_some(&**self.volume())
    }

    /// Returns the number of the volume where a file lies.
    fn volume_of(&self, file: FileName) -> u32 {
        let _ = file;
        HOME
    }

    /// Begins table `number` on a volume, of at most about `bytes_max`; `None` if the volume takes no new files.
    ///
    /// # Errors
    /// The volume's; or there is no such volume.
    fn begin_table(&self, volume: u32, number: u64, bytes_max: u64) -> StorageResult<Option<Box<dyn Writer>>> {
        let _ = volume;
        self.volume().create(FileName::Table(number), bytes_max).map(Some)
    }

    /// Reserves the place of table `number` on a volume; `None` if the volume takes no new files.
    fn reserve_table(&self, volume: u32, number: u64) -> Option<Reserved> {
        let _ = (volume, number);
        None
    }

    /// Notes that another creator has made table `number` on a volume.
    fn adopt_table(&self, volume: u32, number: u64) {
        let _ = (volume, number);
    }

    /// Returns the area that the log has to itself on a further volume, if that takes new files.
    fn log_area(&self) -> Option<Space> {
        None
    }

    /// Returns the places for a store that begins to run.
    fn places(&self, store: Arc<dyn PlacedStore>) -> Arc<dyn Places>;
}

/// The volumes that a new table may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The volume of its level, or of its heat.
    ByRules,
    /// [`HOME`], because another volume has refused a table of the same work.
    Home,
    /// Any volume with room, because [`HOME`] has had none for the same work.
    AnyRoom,
}

/// A table that is about to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewTable {
    /// The level.
    pub level: usize,
    /// About the maximum length.
    pub bytes_max: u64,
    /// True if the tables that it replaces are read often; see [`Places::is_hot`].
    pub is_hot: bool,
    /// The volumes to choose from.
    pub choice: Choice,
}

/// The tables that a compaction replaces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inputs {
    /// Their bytes.
    pub bytes: u64,
    /// The part of the bytes on further volumes.
    pub bytes_elsewhere: u64,
    /// Reads a second that reached a disk.
    pub reads_per_s: f64,
}

/// Decides where the files of a running store go.
///
/// **Threads.** Any thread calls any method. [`tick`](Places::tick) is called on the flusher, [`move_one`](Places::move_one) on
/// compaction threads.
pub trait Places: Any + Send + Sync {
    /// Returns the volume for a new table.
    fn for_table(&self, table: &NewTable) -> u32 {
        let _ = table;
        HOME
    }

    /// Returns the volume to which a flush of `bytes` bytes would go now.
    fn next_flush_goes_to(&self, bytes: u64) -> u32 {
        let _ = bytes;
        HOME
    }

    /// Returns true if the outputs of a compaction of these tables go by the heat of the tables, and not by level alone.
    fn is_hot(&self, inputs: &Inputs) -> bool {
        let _ = inputs;
        false
    }

    /// Notes that a volume other than [`HOME`] has refused a table of `level`. The store does the work again at home.
    fn refused(&self, volume: u32, level: usize, error: &StorageError) {
        let _ = (volume, level, error);
    }

    /// Returns the bytes that are free on further volumes, for tables for which [`HOME`] has no room; `None` if none
    /// takes such tables.
    fn free_elsewhere(&self) -> Option<u64> {
        None
    }

    /// Returns the time until the next [`tick`](Places::tick); `None` while there is nothing to decide.
    fn next_tick_in(&self) -> Option<Duration> {
        None
    }

    /// Looks at what the volumes have done, and decides anew.
    fn tick(&self) {}

    /// Moves one table to another volume, if one is to be moved and no other thread is at it. Returns false if there
    /// was nothing to do.
    ///
    /// # Errors
    /// The store closes, or has failed.
    fn move_one(&self) -> Result<bool> {
        Ok(false)
    }
}

/// A keyspace, as placement sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedKeyspace {
    /// Its number.
    pub id: u32,
    /// The length of its memtables.
    pub memtable_bytes: u64,
    /// The number of tables at which level 0 is compacted.
    pub level0_tables: usize,
    /// The bytes of level 0 that lie on further volumes.
    pub level0_bytes_elsewhere: u64,
}

/// A table in force, as placement sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacedTable {
    /// The number of its keyspace.
    pub keyspace: u32,
    /// Its level.
    pub level: usize,
    /// Its number.
    pub number: u64,
    /// The number of its volume.
    pub volume: u32,
    /// Its length.
    pub bytes: u64,
    /// Reads a second that reached the disk, smoothed, as of the last [look](PlacedStore::look_at_reads).
    pub reads_per_s: f64,
}

/// The reason why a table was not moved.
#[derive(Debug)]
pub struct NotMoved {
    /// The failure.
    pub error: Error,
    /// True if writing the copy failed, and not reading the table or something else.
    pub in_writing: bool,
}

impl NotMoved {
    pub(crate) fn in_writing(error: StorageError) -> NotMoved {
        NotMoved { error: error.into(), in_writing: true }
    }
}

impl From<Error> for NotMoved {
    fn from(error: Error) -> NotMoved {
        NotMoved { error, in_writing: false }
    }
}

impl From<StorageError> for NotMoved {
    fn from(error: StorageError) -> NotMoved {
        Error::from(error).into()
    }
}

/// A store, as its places see it.
///
/// **Threads.** Any thread calls any method. A method that moves or removes files, or waits, is not for the thread of a
/// [tick](Places::tick).
pub trait PlacedStore: Send + Sync {
    /// Returns the source of time and threads.
    fn env(&self) -> &Env;

    /// Tells the store's listener.
    fn tell(&self, event: StoreEvent);

    /// Counts and tells the failure of work that is tried again.
    fn note_job_failure(&self, job: &str, error: Error);

    /// Makes the store read-only.
    fn fail(&self, cause: StorageError);

    /// # Errors
    /// The store closes.
    fn check_open(&self) -> Result<()>;

    /// # Errors
    /// The store closes, or has failed.
    fn check_sound(&self) -> Result<()>;

    /// Returns the live keyspaces.
    fn keyspaces(&self) -> Vec<PlacedKeyspace>;

    /// Returns the name of a keyspace, for messages.
    fn keyspace_name(&self, id: u32) -> String;

    /// Returns all tables in force.
    fn tables(&self) -> Vec<PlacedTable>;

    /// Takes what was read of each table since the last look, `elapsed` ago, into its rate of reads.
    fn look_at_reads(&self, elapsed: Duration);

    /// Returns the event that wakes the flusher and the compaction threads.
    fn bell(&self) -> &Arc<dyn Event>;

    /// Runs `change` while no other thread replaces small files at home or changes versions.
    ///
    /// # Errors
    /// The store takes no writes; or `change` fails.
    fn as_editor(&self, change: &mut dyn FnMut() -> Result<()>) -> Result<()>;

    /// Copies a table to another volume, and replaces it by the copy. Returns false if a compaction has the table, it is
    /// gone, or the volume takes no new files.
    ///
    /// # Errors
    /// The copy is removed, the table stays where it was.
    fn move_table(&self, table: &PlacedTable, to: u32, reason: &str) -> Result<bool, NotMoved>;

    // For emptying a volume.

    /// Runs `job` on a caller's thread. Closing waits for it.
    ///
    /// # Errors
    /// The store is open read-only, closes, or has failed; or `job` fails.
    fn as_guest(&self, job: &mut dyn FnMut() -> Result<()>) -> Result<()>;

    /// Returns the event that is notified when memtables have been flushed or compactions installed.
    fn progress(&self) -> &Arc<dyn Event>;

    /// Returns a file number that no other file has.
    fn new_number(&self) -> u64;

    /// Returns the length of an ordinary log file.
    fn log_file_bytes(&self) -> u64;

    /// Waits as long as work that writes `bytes` in the background is to wait.
    fn pace(&self, bytes: u64);

    /// Moves the log to files on other volumes than this one, which takes no new files, and flushes all memtables, so
    /// that no log file on the volume is needed any more.
    ///
    /// # Errors
    /// The store takes no writes; or a file cannot be written.
    fn move_log(&self, from: u32) -> Result<()>;

    /// Moves the log if it lies on this volume, and all tables there that can be moved now, to [`HOME`]. Returns true if
    /// a table was moved.
    ///
    /// # Errors
    /// The store takes no writes; or a file cannot be copied.
    fn vacate(&self, from: u32, reason: &str) -> Result<bool>;

    /// Removes the tables and log files that the store does not need any more.
    ///
    /// # Errors
    /// The first file that cannot be removed.
    fn release_files(&self) -> Result<()>;

    /// Removes spares of the log.
    ///
    /// # Errors
    /// The first spare that cannot be removed.
    fn drop_log_spares(&self) -> Result<()>;
}
