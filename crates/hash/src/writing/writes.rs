//! The write path of the hash store: what the crate `pipeline` finds when it writes.
//!
//! * There is room as long as pending changes take less than they may. A write that waits has workers apply everything.
//! * Puts are refused while a disk is out of space, or nearly so (`shortage.rs`).
//! * The log goes on in the next file when the present one is full. `logs.rs` keeps account of the files.
//! * The epilogue puts changes into the pending tables; a write is visible when it is published.
//!
//! **Invariants.** The visible sequence number follows what was published last. Changes are in the tables before they
//! are visible.
//! **Failure.** The first failure stays: the store takes no more writes until it is opened again. Reads go on.

use crate::writing::batch::Changes;
use crate::writing::logs::{Applied, LogFiles};
use crate::writing::pending::{Pending, PendingChange};
use crate::writing::purges::Purges;
use crate::writing::shortage::{Hindrance, Shortage};
use crate::{Error, Result};
use situ_base::{Event, lock};
use situ_log::{AppendError, Log};
use situ_pipeline::{Batch, Environment, EnvironmentTypes, LogFileLength, NoLogFile, Note, Refusal, SpaceUse};
use situ_storage::Error as StorageError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub(crate) type Commit = situ_pipeline::Commit<Writes>;
pub(crate) type Obstacle = situ_pipeline::Obstacle<Writes>;
pub(crate) type Request = situ_pipeline::Request<Writes>;
pub(crate) type Pipeline = situ_pipeline::Pipeline<Writes>;

/// Changes that are written together, ready for the log.
#[derive(Default, Clone)]
pub(crate) struct Write(pub(crate) Arc<Changes>);

impl Write {
    /// Returns the number of bytes that the watch over space counts. A value may leave a gap of its own length in a
    /// segment.
    fn space_bytes(&self) -> u64 {
        2 * self.0.bytes() as u64
    }
}

impl Batch for Write {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    fn record<T>(&self, first: u64, takes: impl FnOnce(&[&[u8]]) -> T) -> T {
        self.0.record(first, takes)
    }
}

/// The reason why there is no room for a write.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// Pending changes take as much memory as they may.
    Pending,
    LogFile(NoLogFile),
    /// A sample must show whether the disks have space for a write of `bytes`.
    Space {
        bytes: u64,
        space_use: SpaceUse,
    },
}

impl From<NoLogFile> for NoRoom {
    fn from(no_file: NoLogFile) -> NoRoom {
        NoRoom::LogFile(no_file)
    }
}

/// The environment of the pipeline.
pub(crate) struct Writes {
    commit: Mutex<Commit>,
    pub(crate) log: Arc<Log>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) shortage: Shortage,
    /// Notified when there may be room for a write that had none.
    pub(crate) progress: Arc<dyn Event>,
    /// The keeper sleeps on it.
    pub(crate) keeper_work: Arc<dyn Event>,
    /// The state that writers share with the purging thread.
    pub(crate) purges: Purges,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    closing: AtomicBool,
    failure: OnceLock<Error>,
    visible: AtomicU64,
    /// The number of the next log file.
    next_log: AtomicU64,
}

impl Writes {
    pub(crate) fn new(
        log: Arc<Log>,
        pending: Arc<Pending>,
        shortage: Shortage,
        progress: Arc<dyn Event>,
        keeper_work: Arc<dyn Event>,
        purges: Purges,
        last_sequence: u64,
    ) -> Writes {
        let files = LogFiles::beginning_with(log.file(), last_sequence + 1);
        Writes {
            next_log: AtomicU64::new(log.file() + 1),
            commit: Mutex::new(Commit::new(last_sequence, files)),
            log,
            pending,
            shortage,
            progress,
            keeper_work,
            purges,
            bell: OnceLock::new(),
            closing: AtomicBool::new(false),
            failure: OnceLock::new(),
            visible: AtomicU64::new(last_sequence),
        }
    }

    pub(crate) fn set_bell(&self, bell: impl Fn() + Send + Sync + 'static) {
        assert!(self.bell.set(Box::new(bell)).is_ok(), "a store has one pipeline");
    }

    /// Returns the last sequence number that readers see.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Fails the store: it takes no more writes, because of `error`.
    pub(crate) fn fail_with(&self, error: Error) {
        _ = self.failure.set(Error::Failed { cause: Box::new(error) });
        self.wake_all();
    }

    /// Returns the reason why the store takes no more writes.
    pub(crate) fn failed(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    fn wake_all(&self) {
        self.bell.get().iter().for_each(|bell| bell());
        self.progress.notify();
        self.pending.wake();
        self.keeper_work.notify();
        self.purges.wake.notify();
    }

    /// Returns the last sequence number that was given out; it may not be visible yet.
    pub(crate) fn last_sequence(&self) -> u64 {
        lock(&self.commit).last_sequence()
    }

    /// Returns the number that the next log file gets at least.
    pub(crate) fn next_log(&self) -> u64 {
        self.next_log.load(Ordering::Acquire)
    }

    /// Makes another log file than `file` ready, with room for a record of `bytes`.
    pub(crate) fn prepare_log(&self, NoLogFile { bytes, file }: NoLogFile) -> Result<()> {
        loop {
            if self.log.file() != file {
                return Ok(());
            }
            let number = self.next_log();
            if self.log.is_ready(number, bytes, u64::MAX) {
                return Ok(());
            }
            // A record takes room in the log, and where it goes from there.
            let prepared = match self.shortage.space.length_of_log_file::<Error>(&self.log, bytes, u64::MAX, 2)? {
                LogFileLength::Ordinary => self.log.prepare_next(number, bytes),
                LogFileLength::AtMost(longest) => self.log.prepare_short(number, bytes, longest),
            };
            match prepared {
                Ok(true) => return Ok(()),
                // The number was given up: under another one, then.
                Ok(false) => _ = self.next_log.fetch_max(number + 1, Ordering::AcqRel),
                // Another thread has rotated to it meanwhile.
                Err(_) if self.log.file() >= number => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives up a next log file that is longer than the shortest, while space is short: collections need its room to
    /// free more.
    pub(crate) fn shorten_next_log(&self) -> Result<()> {
        let (log, space) = (&self.log, &self.shortage.space);
        let is_long = |number| !log.is_ready(number, 0, 0);
        if space.is_short() && log.next_file().is_some_and(is_long) && !space.has_room_for_log() {
            log.drop_next()?;
        }
        Ok(())
    }

    /// Returns the oldest log file, and the changes before it that have to be in their buckets before it is the oldest
    /// one needed.
    pub(crate) fn newest_log_file(&self) -> (u64, u64) {
        lock(&self.commit).places.newest()
    }

    /// Returns the newest log file of which all earlier writes are applied, if those up to `drained` are.
    pub(crate) fn newest_applied_log_file(&self, drained: u64) -> Applied {
        lock(&self.commit).places.newest_applied(drained)
    }

    /// Releases log files before `oldest_needed`, which are not needed any more.
    pub(crate) fn release_logs(&self, oldest_needed: u64) -> Result<()> {
        lock(&self.commit).places.forget_before(oldest_needed);
        Ok(self.log.release(oldest_needed)?)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::ReadOnly => Error::Invalid("the store is open for reading only".to_owned()),
            Refusal::Closed => Error::Closed,
            Refusal::TooManyWaiting { waiting_bytes } => Error::TooManyWaiting { waiting_bytes },
            Refusal::LogFailed(error) => Error::Failed { cause: Box::new(error.into()) },
            Refusal::NoRecord(text) => Error::Invalid(text),
            Refusal::OutOfMemory { bytes } => StorageError::out_of_memory(bytes, "a log record").into(),
            other => Error::Invalid(format!("the write was refused: {other:?}")),
        }
    }
}

impl EnvironmentTypes for Writes {
    type Batch = Write;
    type Targets = ();
    type Places = LogFiles;
    type NoRoom = NoRoom;
    type Error = Error;
}

impl Environment for Writes {
    #[inline]
    fn commit(&self) -> &Mutex<Commit> {
        &self.commit
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.is_closed()
    }

    #[inline]
    fn failure(&self) -> Option<Error> {
        self.failed()
    }

    fn fail(&self, cause: StorageError) {
        self.fail_with(cause.into());
    }

    fn find_room(&self, _: &mut Commit, batch: &Write) -> Result<(), Obstacle> {
        let bytes = batch.space_bytes();
        match self.shortage.check(bytes, || batch.0.space_use(), &self.log) {
            Ok(()) => {}
            Err(Hindrance::Unknown) => {
                return Err(Obstacle::NoRoom(NoRoom::Space { bytes, space_use: batch.0.space_use() }));
            }
            Err(Hindrance::Refused(error)) => return Err(Obstacle::refused(error)),
        }
        let bytes = batch.0.pending_bytes();
        // While a thread is short of space, the writes that come this far only delete.
        if self.pending.has_room(bytes) || self.shortage.is_any() && self.pending.has_room_for_deletes(bytes) {
            return Ok(());
        }
        Err(Obstacle::NoRoom(NoRoom::Pending))
    }

    fn next_log_file(&self, commit: &mut Commit, _: &Write) -> Result<(), Obstacle> {
        match self.log.rotate() {
            Ok(number) => {
                self.next_log.fetch_max(number + 1, Ordering::AcqRel);
                let first = commit.next_sequence();
                commit.places.add(number, first);
                commit.leave_work();
                Ok(())
            }
            Err(AppendError::Failed(error)) => Err(Obstacle::refused(Refusal::LogFailed(error))),
            Err(AppendError::OutOfMemory { bytes }) => Err(Obstacle::refused(Refusal::OutOfMemory { bytes })),
            Err(_) => Err(Obstacle::NoRoom(NoLogFile { bytes: 0, file: self.log.file() }.into())),
        }
    }

    fn place(&self, commit: &mut Commit, batch: &Write) {
        if self.shortage.space.used(batch.space_bytes()) {
            commit.leave_work();
        }
        self.pending.reserve(&batch.0);
        batch.0.first_expiry_ms().into_iter().for_each(|at| self.purges.note_expiry(at));
    }

    fn apply(&self, batch: &Write, (): &(), first: u64) {
        for (index, sequence) in (first..).take(batch.0.len()).enumerate() {
            self.pending.insert(PendingChange::new(sequence, &batch.0, index));
        }
    }

    fn publish(&self, request: &Request) {
        let before = self.visible.swap(request.last(), Ordering::AcqRel);
        assert_eq!(before + 1, request.first(), "writes are published without a hole");
    }

    fn make_way(&self, no_room: NoRoom) -> Result<bool> {
        let pending = self.pending.bytes();
        let made = match no_room {
            NoRoom::Pending => {
                // The time until there is room is unknown.
                if let Some(cause) = self.shortage.cause() {
                    return Err(cause);
                }
                // Also what is not visible yet: it takes room, too, and its worker waits for it.
                self.pending.want(self.last_sequence());
                return Ok(false);
            }
            NoRoom::LogFile(no_file) => self.prepare_log(no_file),
            NoRoom::Space { bytes, space_use } => self.shortage.space.make_way(bytes, space_use).map_err(Error::from),
        };
        match made {
            Ok(()) => Ok(true),
            // Pending changes count until they are in their buckets.
            Err(Error::SpaceShort(short))
                if short.missing_bytes <= pending && pending > 0 && !self.shortage.is_any() =>
            {
                self.pending.want(self.last_sequence());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn tell_background(&self) {
        self.keeper_work.notify();
    }

    fn note(&self, _: Note) {}
}
