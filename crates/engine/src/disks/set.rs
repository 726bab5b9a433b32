//! The two disks of a store as one volume.
//!
//! File numbers are never used twice in a store, so a name says which file is meant wherever it lies, and all that does
//! not care for places (recovery, verification, repair, the log) sees one [`Volume`]. Who cares asks
//! [`create_table`](Disks::create_table) for a place and [`disk_of`](Disks::disk_of) where a file lies.
//!
//! * The capacity disk is the store's *home*: CURRENT, manifests, LOCK, IDENTITY, DISKS and everything temporary.
//! * Log files begin on the fast disk, unless it is [closed](Disks::close_fast) to new files. If it has no room for one,
//!   that file begins at home. Where a spare at home would be used next and there is room again, the file is made on the
//!   fast disk and the spare goes.
//! * Tables lie where their creator wanted them.
//! * CURRENT, the manifest, IDENTITY and DISKS are at home. One that lies on the fast disk is never read: somebody may have taken
//!   that for a store.
//! * What else turns up on the fast disk of a store that is open for writing is nobody's (`set/strangers.rs`).
//!
//! Each disk has a [`Meter`] that counts what goes in and out, from which placement draws its conclusions.
//!
//! **Invariants.** `on_fast` has all names of the fast disk, apart from its own MEMBER and LOCK and from what belongs at home, as of opening and of all
//! changes through this volume since, and no name of the other disk; a reader's, which may be beside a writer, as of the last
//! listing. A listing of a writer adds no names: it may have that of a log file which could not be made and is
//! about to begin at home. No name is on both disks: where a log file could
//! not be begun on the fast disk, it is made sure that nothing of it is left there, durably, before it begins at home. The
//! other way round, the name of a file that could not be begun at home may come back with a crash, empty, until the log, which
//! makes names durable before it tries again, begins the next one; opening passes over a log file without contents that is on both disks (`set/twins.rs`).
//!
//! **Threads.** Everything from any thread; the set's lock is never held across a call to a volume.
//!
//! **Failure.** Errors are the volumes' own, those of log files on the fast disk with a word about which disk it was: the
//! store takes no writes from then on, and people have to know which disk to look at.

use crate::base::error::Unfinished;
use crate::base::sync::lock;
use crate::disks::decision::PlacementDecision;
use crate::disks::locks::Locks;
use crate::disks::members::{Fast, Home};
use crate::disks::meter::{Meter, Metered};
use situ_device::OneForAll;
use situ_device::{Buffer, Env};
use situ_storage::{Error, FileMeta, FileName, Lock, PAGE_BYTES, PageFile, Reader, Result, Space, Volume, Writer};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use strangers::belongs_at_home;

/// The volume number of the capacity disk, as in the manifest.
pub(crate) const CAPACITY: u32 = 0;
/// The volume number of the fast disk.
pub(crate) const FAST: u32 = 1;

/// One of the two.
pub(crate) struct Side {
    pub(crate) volume: Metered,
    /// How often names were changed.
    changes: AtomicU64,
    /// So many changes of names are durable.
    durable: AtomicU64,
    syncs: OneForAll,
}

impl Side {
    fn new(volume: Arc<dyn Volume>, env: &Env) -> Side {
        Side {
            volume: Metered::new(volume, Meter::new(env)),
            // What whoever had the disk before has renamed or removed may not be durable.
            changes: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            syncs: OneForAll::new(env.executor.event()),
        }
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.volume.meter
    }

    fn renamed(&self, result: Result<()>) -> Result<()> {
        // Even after an error: who knows.
        self.changes.fetch_add(1, Ordering::AcqRel);
        result
    }

    fn create_log(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let made = self.volume.create_pages(name, bytes);
        if made.is_err() {
            // A crash may bring it back.
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        made
    }

    /// Makes the changes of names before this call durable. One thread at a time asks the disk.
    fn sync_names(&self) -> Result<()> {
        let wanted = self.changes.load(Ordering::Acquire);
        let is_durable = || self.durable.load(Ordering::Acquire) >= wanted;
        if is_durable() {
            return Ok(());
        }
        self.syncs.run(|| {
            // A sync that another thread had begun before may have covered it.
            if is_durable() {
                return Ok(());
            }
            let covered = self.changes.load(Ordering::Acquire);
            self.volume.sync_names()?;
            self.durable.fetch_max(covered, Ordering::AcqRel);
            Ok(())
        })
    }
}

/// A capacity disk and a fast one.
pub(crate) struct Disks {
    pub(crate) capacity: Side,
    pub(crate) fast: Side,
    on_fast: Mutex<OnFast>,
    /// Log files that began on the capacity disk for want of room on the fast one.
    pub(crate) log_files_spilled: AtomicU64,
    /// Bytes of memory that the fast disk's own cache may take.
    pub(crate) fast_cache_bytes: AtomicU64,
    /// What DISKS says, once it names this fast disk.
    home: Mutex<Option<Home>>,
}

/// What is known of the files on the fast disk.
#[derive(Default)]
struct OnFast {
    names: HashSet<FileName>,
    /// It takes no new files: it is being drained.
    closed: bool,
    /// All changes come through this volume.
    all_mine: bool,
    /// New files that have a name in the set and are not listed yet.
    beginning: usize,
    /// Names of log files on both disks, and the disk where nothing is in the file: that one is passed over.
    twins: Vec<(FileName, u32)>,
}

/// A new file on its way to the fast disk, which is not empty as long as there is one.
struct Beginning<'a>(&'a Disks);

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.0.on_fast().beginning -= 1;
    }
}

/// What belongs to the fast disk as such, and is no file of the store.
fn is_the_disks_own(name: FileName) -> bool {
    matches!(name, FileName::Member | FileName::Lock)
}

impl Disks {
    /// Both disks, having looked at what is on the fast one.
    pub(crate) fn new(capacity: Arc<dyn Volume>, fast: Arc<dyn Volume>, env: &Env) -> Result<Arc<Disks>> {
        let disks = Disks {
            capacity: Side::new(capacity, env),
            fast: Side::new(fast, env),
            on_fast: Mutex::default(),
            log_files_spilled: AtomicU64::new(0),
            fast_cache_bytes: AtomicU64::new(0),
            home: Mutex::default(),
        };
        disks.find_twins()?;
        disks.list_fast()?;
        Ok(Arc::new(disks))
    }

    pub(crate) fn set_home(&self, home: Home) {
        *lock(&self.home) = Some(home);
    }

    /// The decisions of placement that DISKS has.
    pub(crate) fn decisions(&self) -> Vec<PlacementDecision> {
        lock(&self.home).as_ref().map_or_else(Vec::new, |home| home.decisions.clone())
    }

    /// Writes the decisions into DISKS.
    pub(crate) fn note_decisions(&self, decisions: &[PlacementDecision]) -> crate::Result<()> {
        let Some(home) = lock(&self.home).clone() else { return Ok(()) };
        let home = Home { decisions: decisions.to_vec(), ..home };
        home.write(&self.capacity.volume)?;
        self.set_home(home);
        Ok(())
    }

    /// Notes durably that the store has no fast disk any more.
    ///
    /// # Errors
    /// DISKS still says that it has one; or that is in doubt, and nothing may be acknowledged any more that lies there.
    pub(crate) fn let_go_of_fast(&self) -> std::result::Result<(), Unfinished> {
        let Some(home) = lock(&self.home).clone() else { return Ok(()) };
        let without = Home { fast: Fast::None, at: None, ..home.clone() };
        if let Err(error) = without.write(&self.capacity.volume) {
            // It may have taken effect all the same, and the store goes on with the disk. Where it has not, there is nothing to
            // take back, and a full disk would not let it.
            let stands = matches!(Home::read(&self.capacity.volume), Ok(Some(said)) if said.fast == home.fast);
            let in_doubt = !stands && home.write(&self.capacity.volume).is_err();
            return Err(Unfinished { error, in_doubt });
        }
        self.set_home(without);
        Ok(())
    }

    /// Whether the store has no fast disk any more: what becomes of the one that it had is nothing to it.
    fn has_let_go(&self) -> bool {
        lock(&self.home).as_ref().is_some_and(|home| home.fast == Fast::None)
    }

    fn sync_fast_names(&self) -> Result<()> {
        if self.has_let_go() { Ok(()) } else { self.fast.sync_names().map_err(on_fast_disk) }
    }

    fn on_fast(&self) -> MutexGuard<'_, OnFast> {
        lock(&self.on_fast)
    }

    fn side(&self, name: FileName) -> &Side {
        if self.disk_of(name) == FAST { &self.fast } else { &self.capacity }
    }

    /// Where a file lies; what is not known to lie on the fast disk lies on the other.
    pub(crate) fn disk_of(&self, name: FileName) -> u32 {
        if self.on_fast().names.contains(&name) { FAST } else { CAPACITY }
    }

    /// The files of the store on the fast disk.
    pub(crate) fn list_fast(&self) -> Result<Vec<FileMeta>> {
        let mut files = self.fast.volume.list()?;
        let twins = self.on_fast().twins.clone();
        files.retain(|file| !is_the_disks_own(file.name) && !twins.contains(&(file.name, FAST)));
        let mut on_fast = self.on_fast();
        if !on_fast.all_mine {
            // Names are only added: what was begun since the listing is not in it. One that was removed since stays in the
            // set and does no harm, as it does not come again.
            on_fast.names.extend(files.iter().map(|file| file.name).filter(|name| !belongs_at_home(*name)));
        }
        drop(on_fast);
        Ok(files)
    }

    /// Whether nothing of the store is on the fast disk, nor on its way there.
    pub(crate) fn fast_is_empty(&self) -> Result<bool> {
        // In this order: what begins is listed before it has begun.
        Ok(self.on_fast().beginning == 0 && self.list_fast()?.is_empty())
    }

    /// Notes that a file of this name begins on the fast disk; `None` if that takes none. One step under the lock: a disk
    /// that was found closed and empty stays so.
    fn begins_on_fast(&self, name: FileName) -> Option<Beginning<'_>> {
        let mut on_fast = self.on_fast();
        if on_fast.closed {
            return None;
        }
        on_fast.names.insert(name);
        on_fast.beginning += 1;
        Some(Beginning(self))
    }

    /// Begins table `number` on a disk; `None` on the fast one if that is closed.
    pub(crate) fn create_table(&self, disk: u32, number: u64, bound: u64) -> Result<Option<Box<dyn Writer>>> {
        let name = FileName::Table(number);
        if disk != FAST {
            return self.capacity.volume.create(name, bound).map(Some);
        }
        let Some(_beginning) = self.begins_on_fast(name) else { return Ok(None) };
        // After an error it stays in the set: something of it may be there, for its creator to remove.
        self.fast.volume.create(name, bound).map(Some)
    }

    /// Notes that table `number` was made on a disk by somebody else, such as a unit in another process.
    pub(crate) fn adopt(&self, disk: u32, number: u64) {
        if disk == FAST {
            self.on_fast().names.insert(FileName::Table(number));
        }
    }

    /// From now on no new file begins on the fast disk, and no spare there is used again. What has begun goes on.
    pub(crate) fn close_fast(&self, closed: bool) {
        self.on_fast().closed = closed;
    }

    fn takes_logs(&self) -> bool {
        !self.on_fast().closed
    }

    /// The area that the log has to itself on the fast disk, if that has one and takes files.
    pub(crate) fn log_room(&self) -> Option<Space> {
        self.fast.volume.log_room().filter(|_| self.takes_logs())
    }

    /// Tries to open where the file should be, then where a file may be that another process has made since.
    fn find<T>(&self, name: FileName, open: impl Fn(&dyn Volume) -> Result<T>) -> Result<(T, u32)> {
        if self.disk_of(name) == FAST {
            return Ok((open(&self.fast.volume)?, FAST));
        }
        match open(&self.capacity.volume) {
            Err(error @ Error::NotFound { .. }) if name.number().is_some() && !belongs_at_home(name) => {
                match open(&self.fast.volume) {
                    Ok(opened) => Ok((opened, FAST)),
                    Err(_) => Err(error),
                }
            }
            result => Ok((result?, CAPACITY)),
        }
    }

    /// Begins a log file at home. A file of its name that could not be made on the fast disk must not come back there.
    fn begin_log_at_home(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.sync_fast_names()?;
        self.capacity.create_log(name, bytes)
    }

    fn begin_log(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let Some(_beginning) = self.begins_on_fast(name) else { return self.begin_log_at_home(name, bytes) };
        let error = match self.fast.create_log(name, bytes).map_err(on_fast_disk) {
            Ok(file) => return Ok(FastPages::over(file)),
            Err(error) => error,
        };
        let taken_back = self.take_back(name);
        if !error.is_no_space() {
            return Err(error);
        }
        // Two files of one name would be worse than a log that waits for room.
        taken_back.map_err(|_| error)?;
        let file = self.begin_log_at_home(name, bytes)?;
        self.log_files_spilled.fetch_add(1, Ordering::Relaxed);
        Ok(file)
    }

    /// Removes what is there of a log file that could not be made on the fast disk.
    fn take_back(&self, name: FileName) -> Result<()> {
        match self.fast.renamed(self.fast.volume.remove(name)) {
            Ok(()) | Err(Error::NotFound { .. }) => {
                self.on_fast().names.remove(&name);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a log file at home in place of a spare on a disk that takes no new files.
    fn recycle_at_home(&self, spare: FileName, log: FileName) -> Result<()> {
        let bytes = self.fast.volume.open_pages(spare)?.pages() * PAGE_BYTES as u64;
        self.begin_log_at_home(log, bytes)?;
        let removed = self.fast.renamed(self.fast.volume.remove(spare));
        if removed.is_ok() {
            self.on_fast().names.remove(&spare);
        }
        removed.or_else(|error| {
            // The log keeps the spare on its list then, and must find no file of the new name.
            self.capacity.renamed(self.capacity.volume.remove(log))?;
            Err(error)
        })
    }

    /// Makes a log file of a spare at home: on the fast disk, if that has room again, so that the log goes back there.
    fn recycle_from_home(&self, spare: FileName, log: FileName) -> Result<()> {
        if self.recycle_on_fast(spare, log)? {
            return Ok(());
        }
        self.sync_fast_names()?;
        self.capacity.renamed(self.capacity.volume.rename(spare, log))?;
        self.log_files_spilled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// False if the fast disk has no room, or takes no new files.
    fn recycle_on_fast(&self, spare: FileName, log: FileName) -> Result<bool> {
        let bytes = self.capacity.volume.open_pages(spare)?.pages() * PAGE_BYTES as u64;
        if !self.has_room_for_log(bytes) {
            return Ok(false);
        }
        let Some(_beginning) = self.begins_on_fast(log) else { return Ok(false) };
        if let Err(error) = self.fast.create_log(log, bytes).map_err(on_fast_disk) {
            let taken_back = self.take_back(log);
            return if error.is_no_space() { taken_back.map(|()| false) } else { Err(error) };
        }
        self.capacity.renamed(self.capacity.volume.remove(spare)).or_else(|error| {
            // As above.
            self.take_back(log)?;
            Err(error)
        })?;
        Ok(true)
    }

    /// Whether it is worth trying: a failure costs a sync.
    fn has_room_for_log(&self, bytes: u64) -> bool {
        let space = self.fast.volume.space();
        let free = space.logical_total.saturating_sub(space.logical_used);
        self.fast.volume.log_room().is_some() || bytes <= free
    }
}

impl Volume for Disks {
    fn location(&self) -> String {
        self.capacity.volume.location()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.capacity.volume.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        Ok(self.find(name, |volume| volume.open(name))?.0)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.begin_log(name, bytes)
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let (file, disk) = self.find(name, |volume| volume.open_pages(name))?;
        Ok(if disk == FAST { FastPages::over(file) } else { file })
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.capacity.volume.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        if self.disk_of(from) != FAST {
            if matches!((from, to), (FileName::Spare(_), FileName::Log(_))) {
                return self.recycle_from_home(from, to);
            }
            return self.capacity.renamed(self.capacity.volume.rename(from, to));
        }
        if matches!(from, FileName::Spare(_)) && !self.takes_logs() {
            return self.recycle_at_home(from, to);
        }
        self.on_fast().names.insert(to);
        self.fast.renamed(self.fast.volume.rename(from, to)).map_err(on_fast_disk).inspect_err(|_| {
            self.on_fast().names.remove(&to);
        })?;
        self.on_fast().names.remove(&from);
        Ok(())
    }

    fn remove(&self, name: FileName) -> Result<()> {
        // Each disk has its own files that are on their way.
        if name == FileName::REPLACEMENT && self.disk_of(name) == FAST {
            self.on_fast().names.remove(&name);
            return match self.fast.renamed(self.fast.volume.remove(name)) {
                Ok(()) => match self.capacity.renamed(self.capacity.volume.remove(name)) {
                    Err(Error::NotFound { .. }) => Ok(()),
                    result => result,
                },
                Err(Error::NotFound { .. }) => self.capacity.renamed(self.capacity.volume.remove(name)),
                error => error,
            };
        }
        let side = self.side(name);
        let removed = side.renamed(side.volume.remove(name));
        let removed = if std::ptr::eq(side, &self.fast) { removed.map_err(on_fast_disk) } else { removed };
        if matches!(removed, Ok(()) | Err(Error::NotFound { .. })) {
            self.on_fast().names.remove(&name);
        }
        removed
    }

    fn sync_names(&self) -> Result<()> {
        self.sync_fast_names().and(self.capacity.sync_names())
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        let mut files = self.capacity.volume.list()?;
        let mut on_fast = self.list_fast()?;
        on_fast.retain(|file| !belongs_at_home(file.name));
        files.retain(|file| !on_fast.iter().any(|other| other.name == file.name));
        files.extend(on_fast);
        files.sort_by_key(|file| file.name);
        Ok(files)
    }

    /// Of the capacity disk, where everything finds room in the end.
    fn space(&self) -> Space {
        self.capacity.volume.space()
    }

    fn failure(&self) -> Option<Error> {
        let on_fast = if self.has_let_go() { None } else { self.fast.volume.failure() };
        on_fast.map(on_fast_disk).or_else(|| self.capacity.volume.failure())
    }

    fn tidy(&self) -> bool {
        self.fast.volume.tidy() | self.capacity.volume.tidy()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        struct Both {
            _both: Locks,
        }
        impl Lock for Both {}
        let mut both = Locks::default();
        both.take(&self.capacity.volume)?;
        both.take(&self.fast.volume)?;
        Ok(Box::new(Both { _both: both }))
    }
}

/// A log file on the fast disk: its errors say so.
struct FastPages(Arc<dyn PageFile>);

impl FastPages {
    fn over(file: Arc<dyn PageFile>) -> Arc<dyn PageFile> {
        Arc::new(FastPages(file))
    }
}

fn on_fast_disk(error: Error) -> Error {
    match error {
        Error::Io { op, path, source } => Error::Io { op, path: format!("{path} (on the fast disk)"), source },
        other => other,
    }
}

impl PageFile for FastPages {
    fn path(&self) -> &str {
        self.0.path()
    }

    fn pages(&self) -> u64 {
        self.0.pages()
    }

    fn writes_wait(&self) -> bool {
        self.0.writes_wait()
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        self.0.write(first, buffer, count, durable).map_err(on_fast_disk)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync().map_err(on_fast_disk)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, into).map_err(on_fast_disk)
    }
}

mod strangers;
mod twins;

#[cfg(test)]
mod tests;
