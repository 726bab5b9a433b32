//! The seam between a store and the volumes that it lies on.
//!
//! 1. An opening has [`MakePlaces`] find the volumes. [`Volumes`] are the volumes of a store, found and locked. The
//!    store reads and writes all of its files through them as if they were one volume. Volume [`HOME`] has the
//!    manifest, and every file that lies nowhere else.
//! 2. The volumes of a store that opens get a [`PlacedStore`], the store as they see it, and give [`Places`].
//! 3. The store asks its places where a new table goes, and tells them which volume has refused one.
//! 4. The flusher gives the places a [tick](Places::tick) when they want one. A compaction thread without other work
//!    lets them [move](Places::move_one) a table.
//!
//! [`Plain`] keeps a store on one volume: every question has one answer. Reads and writes of keys ask nothing.

mod locks;
mod plain;

use crate::base::listener::StoreEvent;
use crate::{Error, Result};
pub use locks::Locks;
pub use plain::Plain;
use situ_base::{Env, Event};
use situ_storage::{
    Corruption, DirectoryVolume, Error as StorageError, FileMeta, FileName, Result as StorageResult, Space, Volume,
    Writer,
};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The number of the volume that has the manifest, and all files that lie nowhere else.
pub const HOME: u32 = 0;

/// Reads of at least this size are not a reader's who looks for something, but a merge's or a copy's.
pub const BULK_READ_BYTES: usize = 256 << 10;

/// A claim on the place of a table that another creator makes, such as another process. The volume counts as
/// used until the claim is dropped.
pub type Reserved = Box<dyn Any + Send + Sync>;

/// The home of a store, as the caller named it.
#[derive(Clone)]
pub struct HomeVolume {
    /// The volume.
    pub volume: Arc<dyn Volume>,
    /// The way in which the caller named it.
    pub named: HomeName,
}

/// The way in which a caller names the home of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeName {
    /// By the path of its directory.
    Directory(PathBuf),
    /// By its location, such as a node's.
    Location,
    /// As a volume that the caller has opened. The caller names all volumes of the store.
    Volume,
}

impl HomeVolume {
    /// Returns the home in a directory.
    pub fn directory(directory: DirectoryVolume) -> HomeVolume {
        let named = HomeName::Directory(directory.directory().to_owned());
        HomeVolume { volume: Arc::new(directory), named }
    }

    /// Returns a home elsewhere, such as on a node.
    pub fn elsewhere(volume: &Arc<dyn Volume>) -> HomeVolume {
        HomeVolume { volume: Arc::clone(volume), named: HomeName::Location }
    }

    /// Returns the home in a volume that the caller has opened.
    pub fn given(volume: Arc<dyn Volume>) -> HomeVolume {
        HomeVolume { volume, named: HomeName::Volume }
    }

    /// Returns true if there is no file of a store at home, except perhaps a lock that was left.
    ///
    /// # Errors
    /// The volume's.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.volume.list()?.iter().all(|file| file.name == FileName::Lock))
    }
}

/// The purpose for which the volumes of a store are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To read. Nothing is locked or written.
    Read,
    /// To write.
    Write {
        /// True if the store may be new.
        create: bool,
    },
    /// To repair.
    Repair,
    /// To say what a repair would do. Nothing is locked or written.
    Survey,
}

/// The volumes of a store, found.
pub struct Found {
    /// The volumes.
    pub volumes: Arc<dyn Volumes>,
    /// Their locks, if the purpose writes.
    pub locks: Locks,
    /// Damage of files that name the volumes, whose contents came from elsewhere.
    pub damages: Vec<Corruption>,
    /// Notes for the report of a repair.
    pub notes: Vec<String>,
    /// True if a repair goes on without files that are known to lie on other volumes.
    pub gives_up_files: bool,
    /// True if the log may have gone on in files that are given up.
    pub gives_up_log: bool,
}

/// Finds the volumes of a store that opens.
pub trait MakePlaces: Any + Send + Sync {
    /// Returns the name by which the store's options show the places.
    fn name(&self) -> String;

    /// Finds the volumes of the store in `home`, and locks them if the purpose writes, `home` first. Writes nothing but
    /// locks.
    ///
    /// # Errors
    /// A volume is missing, is another store's, or is locked. The text names the cure.
    fn find(&self, home: &HomeVolume, env: &Env, purpose: Purpose) -> Result<Found>;

    /// Locks the home of a store that is destroyed, and removes the store's files from all other volumes.
    ///
    /// # Errors
    /// A volume is missing or locked, or a file cannot be removed.
    fn clear(&self, home: &HomeVolume, env: &Env) -> Result<Locks>;
}

/// A table that the manifest needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeededTable {
    /// Its level.
    pub level: usize,
    /// Its number.
    pub number: u64,
    /// The number of its volume.
    pub volume: u32,
    /// Its length.
    pub bytes: u64,
}

/// A file that the manifest needs, and that is missing or has another length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFile {
    /// Its name.
    pub name: FileName,
    /// True if no part of it is there.
    pub is_gone: bool,
    /// The expected state, in words.
    pub expected: String,
    /// The state that was found.
    pub found: String,
    /// True if the file was on a volume other than [`HOME`], or, for a log file, may have been.
    pub may_be_elsewhere: bool,
}

/// The files that a manifest needs, compared with those that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededFiles {
    /// All tables.
    pub tables: Vec<NeededTable>,
    /// The files that are missing.
    pub missing: Vec<MissingFile>,
    /// The number of the first log file that is needed; `None` if none is.
    pub first_log: Option<u64>,
    /// The numbers of the log files there that may hold a write which is in no table.
    pub logs: Vec<u64>,
    /// True if the manifest notes that the store has further volumes, or had some.
    pub notes_further_volumes: bool,
}

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

    /// Returns the length of the longest log file for which a volume has space now.
    fn space_for_log_file(&self) -> u64 {
        u64::MAX
    }

    /// Makes the volumes know of each other, durably. Called when the store is known to open, and before anything is
    /// put on a volume other than [`HOME`].
    ///
    /// # Errors
    /// A volume's.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Notes that volumes are given up which a repair goes on without. Called when the manifest needs no file there.
    ///
    /// # Errors
    /// A volume's.
    fn give_up(&self) -> Result<()> {
        Ok(())
    }

    /// Explains missing files by a volume that was not found. `files` are all files of the store.
    ///
    /// # Errors
    /// Such a volume is the cause, or may be. The text names the cure.
    fn explain_missing(&self, needed: &NeededFiles, files: &[FileMeta]) -> Result<()> {
        let _ = (needed, files);
        Ok(())
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
    /// The bytes that flushes and running compactions may still write, this table included.
    pub bytes_outstanding: u64,
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
/// **Threads.** Any thread calls any method. [`tick`](Places::tick) is called on the flusher,
/// [`move_one`](Places::move_one) on compaction threads.
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

    /// Returns true if the outputs of a compaction of these tables go by the heat of the tables, and not by level
    /// alone.
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

    /// Looks at what the volumes have done, and decides again.
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

    /// Copies a table to another volume, and replaces it by the copy. Returns false if a compaction has the table, it
    /// is gone, or the volume takes no new files.
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

    /// Moves the log if it lies on this volume, and all tables there that can be moved now, to [`HOME`]. Returns true
    /// if a table was moved.
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
