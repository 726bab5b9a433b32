//! Change feed: the batches that were committed behind a position, in order.
//!
//! 1. [`Store::changes`] finds the log file with the record at the position, and compares the record's checksum. So a
//!    position of another store, or of a state that a crash or a restored copy has taken back, is refused.
//! 2. [`ChangeFeed::next_batch`] syncs the log if there are new writes, and reads the records up to there. A feed
//!    hands out only what is durable, so no crash of the store leaves a reader ahead of it.
//! 3. Sequence numbers have no gap. A gap means that a log file was released, or that a power failure took writes whose
//!    numbers were in use. Then the feed ends with [`Error::ChangesGone`].
//!
//! A record that an opening has [carried over](crate::opening::carry) repeats changes; the feed passes over it.
//!
//! A collection of the value log moves values by records of its own. They change nothing, and the feed leaves them out.
//!
//! **Bounded.** The feed holds one record. Log files stay as [`Options::changes_kept_bytes`] says, whether there is a
//! feed or not. So a feed costs nothing while its owner does not read it.
//!
//! [`Options::changes_kept_bytes`]: crate::Options::changes_kept_bytes

use crate::api::store::Store;
use crate::base::batch::{Operation, Record};
use crate::base::sync::lock;
use crate::{Error, Result};
use situ_log::FileFollower;
use situ_storage::memory::copied;
use situ_storage::{Error as StorageError, FileName};
use situ_table::KeyKind;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The number of looks, one after the other, after which a record that should be there counts as gone. A page that is
/// being written cannot be read for a moment.
const LOOKS_MAX: u32 = 200;

/// A place in the sequence of changes: behind the batch that ends with this number.
///
/// In text, it is the number, and the checksum in hexadecimal behind a colon if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChangePosition {
    /// The sequence number of the last change.
    pub sequence: u64,
    /// The checksum of the record in the log. Without it, a feed takes the caller's word for the position.
    pub checksum: Option<u32>,
}

impl ChangePosition {
    /// The position before all changes.
    pub const BEGINNING: ChangePosition = ChangePosition { sequence: 0, checksum: None };

    /// Returns the position of a copy that is known to hold all changes up to `sequence`, and none behind it, such as a
    /// [checkpoint](crate::CheckpointReport::last_sequence).
    pub fn of_copy(sequence: u64) -> ChangePosition {
        ChangePosition { sequence, checksum: None }
    }
}

impl fmt::Display for ChangePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.sequence)?;
        self.checksum.map_or(Ok(()), |checksum| write!(f, ":{checksum:08x}"))
    }
}

impl FromStr for ChangePosition {
    type Err = String;

    fn from_str(text: &str) -> Result<ChangePosition, String> {
        let (sequence, checksum) = text.split_once(':').map_or((text, None), |(number, rest)| (number, Some(rest)));
        let checksum = checksum.map(|text| u32::from_str_radix(text, 16)).transpose();
        match (sequence.parse(), checksum) {
            (Ok(sequence), Ok(checksum)) => Ok(ChangePosition { sequence, checksum }),
            _ => Err(format!("{text:?} is no position: expected a number, or NUMBER:CHECKSUM as a feed shows it")),
        }
    }
}

/// One change of a key, or of a range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The number of the keyspace. A keyspace that is created again under its name has another number.
    pub keyspace: u32,
    /// The name of the keyspace.
    pub name: Arc<str>,
    /// The key, or the first key of a range.
    pub key: Vec<u8>,
    /// The kind of the change.
    pub kind: ChangeKind,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// The key got this value.
    Put(Vec<u8>),
    /// The key was removed.
    Delete,
    /// All keys before this one, from the change's key on, were removed.
    DeleteRange(Vec<u8>),
}

/// The changes of one batch, which happened together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeBatch {
    /// The sequence number of the first change; the others follow without a gap.
    pub first: u64,
    /// The position behind the batch.
    pub position: ChangePosition,
    /// The changes in order, but for those of keyspaces that are dropped by now. There may be none.
    pub changes: Vec<Change>,
}

/// A reader of the changes of a store; see [`Store::changes`].
pub struct ChangeFeed {
    store: Store,
    position: ChangePosition,
    /// All records up to here were durable at the last look.
    durable: u64,
    /// The file that took records at the last look.
    current: u64,
    follower: Option<FileFollower>,
    /// A record that was read, and was not durable yet.
    held: Option<(u32, Vec<u8>)>,
    /// The number of a change that the next record has, or one before it.
    wanted: u64,
}

impl Store {
    /// Returns a feed of the batches that were committed behind `since`.
    ///
    /// Finished log files are the feed's source, and they stay as [`Options::changes_kept_bytes`] says.
    ///
    /// ```
    /// # use situ_engine as situ;
    /// use situ::{ChangeKind, ChangePosition};
    /// # fn main() -> situ::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let store = situ::Store::open(directory.path())?;
    /// store.put("k", "v")?;
    /// let mut feed = store.changes(ChangePosition::BEGINNING)?;
    /// let batch = feed.next_batch()?.unwrap();
    /// assert_eq!(batch.changes[0].kind, ChangeKind::Put(b"v".to_vec()));
    /// assert!(feed.next_batch()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ChangesGone`] if the log does not have the position, or nothing behind it; the store takes no writes;
    /// the disk's.
    ///
    /// [`Options::changes_kept_bytes`]: crate::Options::changes_kept_bytes
    pub fn changes(&self, since: ChangePosition) -> Result<ChangeFeed> {
        self.check_writable()?;
        let mut feed = ChangeFeed {
            store: self.clone(),
            position: since,
            durable: 0,
            current: 0,
            follower: None,
            held: None,
            wanted: since.sequence + u64::from(since.checksum.is_none()),
        };
        let _guest = self.core().health.enter()?;
        feed.begin()?;
        Ok(feed)
    }
}

impl ChangeFeed {
    /// Returns the position behind the last batch that was handed out.
    pub fn position(&self) -> ChangePosition {
        self.position
    }

    /// Returns the numbers and names of the store's keyspaces. A keyspace that was dropped is missing: no change in the
    /// feed says so.
    pub fn keyspaces(&self) -> Vec<(u32, Arc<str>)> {
        let keyspaces = self.store.core().versions.keyspaces();
        keyspaces.iter().map(|keyspace| (keyspace.id, Arc::from(keyspace.name.as_str()))).collect()
    }

    /// Returns the next batch; `None` if there is none at present. If there are new writes, the call makes them durable
    /// first.
    ///
    /// # Errors
    /// [`Error::ChangesGone`] if the log has released the batch; the store is closed or has failed; the disk's. After
    /// an error, the call can be made again.
    pub fn next_batch(&mut self) -> Result<Option<ChangeBatch>> {
        let store = self.store.clone();
        let _guest = store.core().health.enter()?;
        loop {
            let Some((checksum, bytes)) = self.next_record()? else { return Ok(None) };
            let record = Record::decode(&bytes).map_err(|found| self.broken(found))?;
            let last = last_of(&record);
            if record.first != self.position.sequence + 1 {
                let why = format!("the next change in the log has number {}", record.first);
                self.held = Some((checksum, bytes));
                return Err(self.gone(why));
            }
            let position = ChangePosition { sequence: last, checksum: Some(checksum) };
            // What it stands for was handed out.
            if record.since != record.first {
                self.go_to(position);
                continue;
            }
            let changes = record.operations().filter_map(|operation| self.change(&operation).transpose());
            let changes = match changes.collect::<Result<_>>() {
                Ok(changes) => changes,
                Err(error) => {
                    self.held = Some((checksum, bytes));
                    return Err(error);
                }
            };
            let batch = ChangeBatch { first: record.first, position, changes };
            self.go_to(position);
            return Ok(Some(batch));
        }
    }

    /// Finds the file with the position, and reads up to there.
    fn begin(&mut self) -> Result<()> {
        self.look()?;
        let ChangePosition { sequence, checksum } = self.position;
        if sequence > self.durable {
            return Err(self.gone(format!("the store's last change has number {}", self.durable)));
        }
        let first_of_log = self.store.core().memory.log_files.first();
        let files = self.files()?;
        // The newest file that begins at the position or before it.
        for number in files.iter().copied().rev() {
            let Some(mut file) = self.open(number)? else { break };
            let is_of_log = number >= first_of_log || file.follows(None)?;
            let first = match file.next_record()? {
                Some((_, bytes)) => Some(Record::decode(bytes).map_err(|found| self.broken(found))?.first),
                None => None,
            };
            // A copy without a checksum may begin with the first record there. A file that recovery has discarded may
            // have the same number.
            let is_next = |first| first == sequence + 1 && checksum.is_none() && is_of_log;
            if first.is_some_and(|first| first <= sequence || is_next(first)) {
                self.follower = self.open(number)?;
                return self.pass_over(sequence, checksum);
            }
        }
        if checksum.is_some() {
            return Err(self.gone("the log has released it".to_owned()));
        }
        // The log has no record yet, or begins too late.
        self.follower = match files.into_iter().find(|number| *number >= first_of_log) {
            Some(number) => self.open(number)?,
            None => None,
        };
        self.pass_over(sequence, checksum)
    }

    /// Reads the records up to the position.
    fn pass_over(&mut self, sequence: u64, checksum: Option<u32>) -> Result<()> {
        while let Some((found, bytes)) = self.next_record()? {
            let record = Record::decode(&bytes).map_err(|text| self.broken(text))?;
            let last = last_of(&record);
            if last < sequence {
                continue;
            }
            if record.first <= sequence {
                if last == sequence && checksum.is_none_or(|checksum| checksum == found) {
                    self.go_to(ChangePosition { sequence, checksum: Some(found) });
                    return Ok(());
                }
                return Err(self.gone("the store has another change there".to_owned()));
            }
            // The first record without one at the position.
            let is_next = checksum.is_none() && record.first == sequence + 1;
            let why = format!("the log goes back to number {}", record.first);
            self.held = Some((found, bytes));
            return if is_next { Ok(()) } else { Err(self.gone(why)) };
        }
        Ok(())
    }

    fn go_to(&mut self, position: ChangePosition) {
        self.position = position;
        self.wanted = position.sequence + 1;
    }

    /// Makes what was written durable.
    fn look(&mut self) -> Result<()> {
        let store = &self.store;
        let visible = store.core().versions.snapshots.visible();
        // All records of earlier files are written when the sync is done.
        self.current = store.core().memory.writable()?.file();
        store.sync()?;
        self.durable = visible;
        Ok(())
    }

    /// Returns the next record that is durable; `None` if there is none at present.
    fn next_record(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        for _ in 0..LOOKS_MAX {
            if self.held.is_none() {
                self.held = self.read()?;
            }
            let last = match &self.held {
                Some((_, bytes)) => Some(last_of(&Record::decode(bytes).map_err(|found| self.broken(found))?)),
                None => None,
            };
            if last.is_some_and(|last| last <= self.durable) {
                return Ok(self.held.take());
            }
            let is_missing = last.is_none() && self.wanted <= self.durable;
            if !is_missing && self.store.core().versions.snapshots.visible() <= self.durable {
                return Ok(None);
            }
            self.look()?;
        }
        Err(self.gone(format!("the log has no change of the numbers {} to {}", self.wanted, self.durable)))
    }

    /// Reads the next record, in this file or in a later one that was in use at the last look.
    fn read(&mut self) -> Result<Option<(u32, Vec<u8>)>> {
        loop {
            if let Some(follower) = &mut self.follower {
                if let Some((checksum, bytes)) = follower.next_record()? {
                    return Ok(Some((checksum, copied(bytes, "a record of the log")?)));
                }
                if follower.number() >= self.current {
                    return Ok(None);
                }
            }
            let Some(next) = self.next_file()? else { return Ok(None) };
            self.follower = Some(next);
        }
    }

    /// Returns the file in which the log goes on behind the present one. A file that stops without an end mark has the
    /// torn tail of a crash. Recovery has discarded the later files of its log, so the next is one that begins a log.
    fn next_file(&self) -> Result<Option<FileFollower>> {
        let behind = self.follower.as_ref().map_or(0, FileFollower::number);
        let ended = self.follower.as_ref().filter(|file| file.has_ended()).map(FileFollower::number);
        for number in self.files()?.into_iter().filter(|number| *number > behind) {
            let Some(mut next) = self.open(number)? else { continue };
            if next.follows(ended)? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Opens a log file; `None` if it was released.
    fn open(&self, number: u64) -> Result<Option<FileFollower>> {
        match FileFollower::open(&*self.store.core().versions.volume, number) {
            Err(StorageError::NotFound { .. }) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Returns the log files that were in use up to the last look, ascending.
    fn files(&self) -> Result<Vec<u64>> {
        let files = self.store.core().versions.volume.list()?;
        let number = |name| if let FileName::Log(number) = name { Some(number) } else { None };
        let mut numbers: Vec<u64> = files.iter().filter_map(|file| number(file.name)).collect();
        numbers.retain(|number| *number <= self.current);
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the change that an operation made; `None` if its keyspace is dropped, or if it changed no value.
    fn change(&self, operation: &Operation<'_>) -> Result<Option<Change>> {
        let core = self.store.core();
        let found = lock(&core.versions.registry).by_id.get(&operation.keyspace).map(Arc::clone);
        let Some(keyspace) = found else { return Ok(None) };
        let copied = |bytes: &[u8]| copied(bytes, "a change");
        let kind = match operation.kind {
            KeyKind::Put => ChangeKind::Put(copied(operation.value)?),
            KeyKind::Delete => ChangeKind::Delete,
            KeyKind::RangeDelete => ChangeKind::DeleteRange(copied(operation.value)?),
            // A collection of the value log has moved the key's value.
            KeyKind::ValueHandle => return Ok(None),
        };
        let (id, name) = (keyspace.id, Arc::from(keyspace.name.as_str()));
        Ok(Some(Change { keyspace: id, name, key: copied(operation.key)?, kind }))
    }

    fn gone(&self, why: String) -> Error {
        Error::ChangesGone { sequence: self.position.sequence, why }
    }

    fn broken(&self, found: String) -> Error {
        let number = self.follower.as_ref().map_or(0, FileFollower::number);
        StorageError::corruption(FileName::Log(number), 0, "record", "a write batch", found).into()
    }
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFeed").field("position", &self.position).finish_non_exhaustive()
    }
}

fn last_of(record: &Record<'_>) -> u64 {
    (record.first + record.len() as u64).saturating_sub(1)
}
