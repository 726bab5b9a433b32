//! The disks of a store as one volume.
//!
//! File numbers are never used twice in a store, so a name says which file is meant wherever it lies. Recovery,
//! verification, repair and the log do not care for places, and see one [`Volume`]. A caller that cares asks
//! [`create_table`](Disks::create_table) for a place and [`disk_of`](Disks::disk_of) where a file lies.
//!
//! * The capacity disk has CURRENT, manifests, LOCK, IDENTITY, DISKS and everything temporary.
//! * Log files begin on the fast disk, unless it is [closed](Disk::close) to new files. If it has no space for one,
//!   that file begins on the capacity disk. If a spare on the capacity disk would be used next and there is space
//!   again, the file is made on the fast disk. Then the spare goes. A set without a fast disk has its log on the
//!   capacity disk.
//! * Tables lie where their creator wanted them.
//! * CURRENT, the manifest, IDENTITY and DISKS are on the capacity disk. One that lies on another disk is never read: a
//!   user may have taken that disk for a store.
//! * Other files that turn up on a disk of a store that is open for writing are strangers (`set/strangers.rs`).
//!
//! Each disk has a [`Meter`](crate::Meter) that counts what goes in and out, from which placement draws its
//! conclusions.
//!
//! **Invariants.** `disks[0]` is the capacity disk, and no other disk has that role. Numbers are different. What is not
//! known to lie on another disk lies on the capacity disk (`set/disk.rs`). No name is on two disks:
//! - A log file that could not be begun on the fast disk is durably gone there before it begins on the capacity disk.
//! - The other way round, the name of a file that could not be begun on the capacity disk may come back with a crash,
//!   empty. The log makes names durable before it tries again, and begins the next one. Opening passes over a log file
//!   without contents that is on two disks (`set/twins.rs`).
//!
//! **Threads.** Everything from any thread; no lock is held across a call to a volume.
//!
//! **Failure.** Errors are the volumes' own. Those of log files on another disk than the capacity
//! disk say which disk it was. The store takes no writes from then on, and people have to know which disk to look at.

use crate::decision::PlacementDecision;
use crate::members::{Fast, Home};
use disk::belongs_on_capacity_disk;
use situ_base::{Env, lock};
use situ_device::{Buffer, Watch};
use situ_engine::places::Locks;
use situ_storage::{
    Error, FileMeta, FileName, Lock, Nature, PAGE_BYTES, PageFile, PageQueue, Reader, Result, Space, Volume, Writer,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use disk::{CAPACITY, FAST};
pub(crate) use disk::{Disk, NewDisk, Reserved, Role};

/// The disks of a store.
pub(crate) struct Disks {
    /// The capacity disk, and then the others.
    disks: Vec<Arc<Disk>>,
    log_files_spilled: AtomicU64,
    /// The contents of DISKS, once it names the fast disk.
    home: Mutex<Option<Home>>,
}

/// The store could not let go of its fast disk.
#[derive(Debug)]
pub(crate) struct NotLetGo {
    /// The error that kept the store from it.
    pub(crate) error: Error,
    /// The contents of DISKS after a crash are unknown; otherwise it says that the store has the disk.
    pub(crate) in_doubt: bool,
}

impl Disks {
    /// Returns the capacity disk and the others as one set, after a look at the files on the others.
    ///
    /// # Errors
    /// A disk cannot be listed; or a log file is on two disks and has contents on both.
    pub(crate) fn new(capacity: Arc<dyn Volume>, others: Vec<NewDisk>, env: &Env) -> Result<Arc<Disks>> {
        let first = NewDisk { number: CAPACITY, role: Role::Capacity, volume: capacity, cache_bytes: 0 };
        let disks: Vec<_> = std::iter::once(first).chain(others).map(|new| Arc::new(Disk::new(new, env))).collect();
        for (at, disk) in disks.iter().enumerate() {
            assert_eq!(disk.role == Role::Capacity, at == 0, "a set has one capacity disk");
            assert!(
                disks[..at].iter().all(|other| other.number != disk.number),
                "two disks have number {}",
                disk.number
            );
        }
        let disks = Disks { disks, log_files_spilled: AtomicU64::new(0), home: Mutex::default() };
        disks.find_twins()?;
        disks.others().try_for_each(|disk| disk.list().map(drop))?;
        Ok(Arc::new(disks))
    }

    // Which disk.

    /// Returns the disk that has all that lies nowhere else.
    pub(crate) fn capacity(&self) -> &Arc<Disk> {
        &self.disks[0]
    }

    fn others(&self) -> impl Iterator<Item = &Arc<Disk>> {
        self.disks[1..].iter()
    }

    /// Returns the first disk with this role.
    pub(crate) fn with_role(&self, role: Role) -> Option<&Arc<Disk>> {
        self.disks.iter().find(|disk| disk.role == role)
    }

    /// Returns the disk with this number.
    ///
    /// # Errors
    /// The set has none.
    pub(crate) fn numbered(&self, number: u32) -> Result<&Arc<Disk>> {
        let found = self.disks.iter().find(|disk| disk.number == number);
        found.ok_or_else(|| Error::Invalid(format!("there is no disk {number} in the store in {}", self.location())))
    }

    fn disk_with(&self, name: FileName) -> &Arc<Disk> {
        self.others().find(|disk| disk.has(name)).unwrap_or(self.capacity())
    }

    /// Returns the number of the disk where a file lies. A file that is not known to lie on another disk lies on the
    /// capacity disk.
    pub(crate) fn disk_of(&self, name: FileName) -> u32 {
        self.disk_with(name).number
    }

    // What DISKS says.

    /// Notes what DISKS says.
    pub(crate) fn set_home(&self, home: Home) {
        *lock(&self.home) = Some(home);
    }

    /// Returns the decisions of placement that DISKS has.
    pub(crate) fn decisions(&self) -> Vec<PlacementDecision> {
        lock(&self.home).as_ref().map_or_else(Vec::new, |home| home.decisions.clone())
    }

    /// Writes the decisions into DISKS.
    ///
    /// # Errors
    /// After an error either contents may stand, the old or these.
    pub(crate) fn note_decisions(&self, decisions: &[PlacementDecision]) -> Result<()> {
        let Some(home) = lock(&self.home).clone() else { return Ok(()) };
        let home = Home { decisions: decisions.to_vec(), ..home };
        home.write(&self.capacity().volume)?;
        self.set_home(home);
        Ok(())
    }

    /// Notes durably that the store has no fast disk any more.
    ///
    /// # Errors
    /// DISKS still says that it has one; or that is in doubt, and nothing may be acknowledged any more that lies there.
    pub(crate) fn let_go_of_fast(&self) -> std::result::Result<(), NotLetGo> {
        let Some(home) = lock(&self.home).clone() else { return Ok(()) };
        let capacity = &self.capacity().volume;
        let without = Home { fast: Fast::None, at: None, ..home.clone() };
        if let Err(error) = without.write(capacity) {
            // It may have taken effect all the same, and the store goes on with the disk. Where it has not, there is
            // nothing to take back, and a full disk would not let it.
            let stands = matches!(Home::read(capacity), Ok(Some(said)) if said.fast == home.fast);
            let in_doubt = !stands && home.write(capacity).is_err();
            return Err(NotLetGo { error, in_doubt });
        }
        self.set_home(without);
        self.others().filter(|disk| disk.role == Role::Fast).for_each(|disk| disk.leave());
        Ok(())
    }

    /// Notes that from now on files come to a disk only through this set.
    pub(crate) fn all_names_are_known(&self) {
        self.others().for_each(|disk| disk.all_names_are_known());
    }

    // Where files begin.

    /// Begins table `number` on a disk; `None` if the disk is closed.
    ///
    /// # Errors
    /// The volume's; or there is no such disk.
    pub(crate) fn create_table(&self, disk: u32, number: u64, bound: u64) -> Result<Option<Box<dyn Writer>>> {
        let (disk, name) = (self.numbered(disk)?, FileName::Table(number));
        match disk.role {
            Role::Capacity => disk.volume.create(name, bound).map(Some),
            _ => disk.create_table(name, bound),
        }
    }

    /// Reserves the place of table `number` on a disk, where another creator will make the table; `None` if the disk
    /// takes no files. A disk that is being drained waits until the place is released: a table that comes later would
    /// be lost.
    pub(crate) fn reserve_table(&self, disk: u32, number: u64) -> Option<Reserved> {
        self.numbered(disk).ok()?.reserve(FileName::Table(number))
    }

    /// Notes that table `number` was made on a disk by another creator, such as a unit in another process.
    pub(crate) fn adopt(&self, disk: u32, number: u64) {
        if let Ok(disk) = self.numbered(disk)
            && disk.role != Role::Capacity
        {
            disk.note(FileName::Table(number));
        }
    }

    /// Returns the number of log files that began on the capacity disk for want of space on the fast one.
    pub(crate) fn log_files_spilled(&self) -> u64 {
        self.log_files_spilled.load(Ordering::Relaxed)
    }

    /// Returns the area that the log has to itself on the fast disk, if that has one and takes files.
    pub(crate) fn log_room(&self) -> Option<Space> {
        self.with_role(Role::Fast)?.log_area()
    }

    /// Returns the length of the longest log file for which a disk has space now. On the capacity disk, half of the
    /// space is left for the contents of the file.
    pub(crate) fn space_for_log_file(&self) -> u64 {
        let capacity = self.capacity().volume.space().logical_free().map_or(u64::MAX, |free| free / 2);
        let Some(fast) = self.with_role(Role::Fast).filter(|fast| !fast.is_closed()) else { return capacity };
        let area = |room: Space| room.logical_total.saturating_sub(room.logical_used);
        fast.volume.log_room().map_or_else(|| fast.free_bytes(), area).max(capacity)
    }

    /// Syncs the names of the other disks. All are asked, also after an error.
    fn sync_names_of_others(&self) -> Result<()> {
        self.others().map(|disk| disk.sync_names()).fold(Ok(()), Result::and)
    }

    /// Begins a log file on the capacity disk. A file of its name that could not be made on the fast disk must not come
    /// back there.
    fn begin_log_on_capacity_disk(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.sync_names_of_others()?;
        self.capacity().create_log(name, bytes)
    }

    fn begin_log(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let begins = self.with_role(Role::Fast).and_then(|fast| Some((fast, fast.begins(name)?)));
        let Some((fast, _beginning)) = begins else { return self.begin_log_on_capacity_disk(name, bytes) };
        let error = match fast.create_log(name, bytes) {
            Ok(file) => return Ok(self.pages_of(fast, file)),
            Err(error) => error,
        };
        let taken_back = fast.take_back(name);
        if !error.is_no_space() {
            return Err(error);
        }
        // Two files of one name would be worse than a log that waits for space.
        taken_back.map_err(|_| error)?;
        let file = self.begin_log_on_capacity_disk(name, bytes)?;
        self.log_files_spilled.fetch_add(1, Ordering::Relaxed);
        Ok(file)
    }

    /// Makes a log file on the capacity disk in place of a spare on `disk`, which takes no new files.
    fn recycle_on_capacity_disk(&self, disk: &Disk, spare: FileName, log: FileName) -> Result<()> {
        let bytes = disk.volume.open_pages(spare)?.pages() * PAGE_BYTES as u64;
        self.begin_log_on_capacity_disk(log, bytes)?;
        let removed = disk.remove(spare);
        if removed.is_ok() {
            disk.forget(spare);
        }
        removed.or_else(|error| {
            // The log keeps the spare on its list then, and must find no file of the new name.
            self.capacity().remove(log)?;
            Err(error)
        })
    }

    /// Makes a log file of a spare on the capacity disk. If the fast disk has space again, the file is made there, so
    /// that the log goes back.
    fn recycle_from_capacity_disk(&self, spare: FileName, log: FileName) -> Result<()> {
        let Some(fast) = self.with_role(Role::Fast) else { return self.capacity().rename(spare, log) };
        if self.recycle_on(fast, spare, log)? {
            return Ok(());
        }
        self.sync_names_of_others()?;
        self.capacity().rename(spare, log)?;
        self.log_files_spilled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the log file on the fast disk. Returns false if the fast disk has no space, or takes no new files.
    fn recycle_on(&self, fast: &Disk, spare: FileName, log: FileName) -> Result<bool> {
        let bytes = self.capacity().volume.open_pages(spare)?.pages() * PAGE_BYTES as u64;
        if !fast.has_space_for_log(bytes) {
            return Ok(false);
        }
        let Some(_beginning) = fast.begins(log) else { return Ok(false) };
        if let Err(error) = fast.create_log(log, bytes) {
            let taken_back = fast.take_back(log);
            return if error.is_no_space() { taken_back.map(|()| false) } else { Err(error) };
        }
        self.capacity().remove(spare).or_else(|error| {
            // As above.
            fast.take_back(log)?;
            Err(error)
        })?;
        Ok(true)
    }

    // Where files are found, and go.

    /// Tries to open where the file should be, then where a file may be that another process has made since.
    fn find<T>(&self, name: FileName, open: impl Fn(&dyn Volume) -> Result<T>) -> Result<(T, &Disk)> {
        let disk = self.disk_with(name);
        match open(&disk.volume) {
            Err(error @ Error::NotFound { .. })
                if disk.role == Role::Capacity && name.number().is_some() && !belongs_on_capacity_disk(name) =>
            {
                let opened = self.others().find_map(|other| Some((open(&other.volume).ok()?, &**other)));
                opened.ok_or(error)
            }
            opened => Ok((opened?, disk)),
        }
    }

    fn pages_of(&self, disk: &Disk, file: Arc<dyn PageFile>) -> Arc<dyn PageFile> {
        match disk.role {
            Role::Capacity => file,
            role => Arc::new(Pages { file, role, capacity: Arc::clone(self.capacity()) }),
        }
    }

    fn rename_on(&self, disk: &Disk, from: FileName, to: FileName) -> Result<()> {
        if matches!(from, FileName::Spare(_)) && disk.is_closed() {
            return self.recycle_on_capacity_disk(disk, from, to);
        }
        disk.note(to);
        disk.rename(from, to).inspect_err(|_| disk.forget(to))?;
        disk.forget(from);
        Ok(())
    }

    /// Each disk has its own file that is on its way: goes from `disk`, and from the capacity disk.
    fn remove_replacement(&self, disk: &Disk) -> Result<()> {
        let name = FileName::REPLACEMENT;
        disk.forget(name);
        match disk.remove(name) {
            Ok(()) => match self.capacity().remove(name) {
                Err(Error::NotFound { .. }) => Ok(()),
                result => result,
            },
            Err(Error::NotFound { .. }) => self.capacity().remove(name),
            error => error,
        }
    }
}

impl Volume for Disks {
    fn location(&self) -> String {
        self.capacity().volume.location()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        self.capacity().volume.create(name, bound)
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        Ok(self.find(name, |volume| volume.open(name))?.0)
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        match name {
            // Large values would fill the fast disk, which holds the log.
            FileName::Values(_) => self.capacity().volume.create_pages(name, bytes),
            _ => self.begin_log(name, bytes),
        }
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let (file, disk) = self.find(name, |volume| volume.open_pages(name))?;
        Ok(self.pages_of(disk, file))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.capacity().volume.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let disk = self.disk_with(from);
        match (from, to) {
            _ if disk.role != Role::Capacity => self.rename_on(disk, from, to),
            (FileName::Spare(_), FileName::Log(_)) => self.recycle_from_capacity_disk(from, to),
            _ => disk.rename(from, to),
        }
    }

    fn remove(&self, name: FileName) -> Result<()> {
        let disk = self.disk_with(name);
        if name == FileName::REPLACEMENT && disk.role != Role::Capacity {
            return self.remove_replacement(disk);
        }
        let removed = disk.remove(name).map_err(|error| disk.role.told(error));
        if matches!(removed, Ok(()) | Err(Error::NotFound { .. })) {
            self.others().for_each(|disk| disk.forget(name));
        }
        removed
    }

    fn sync_names(&self) -> Result<()> {
        let others = self.sync_names_of_others();
        others.and(self.capacity().sync_names())
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        let mut files = self.capacity().volume.list()?;
        for disk in self.others() {
            let mut on_it = disk.list()?;
            on_it.retain(|file| !belongs_on_capacity_disk(file.name));
            files.retain(|file| !on_it.iter().any(|other| other.name == file.name));
            files.extend(on_it);
        }
        files.sort_by_key(|file| file.name);
        Ok(files)
    }

    /// Returns the space of the capacity disk, where everything finds space in the end.
    fn space(&self) -> Space {
        self.capacity().volume.space()
    }

    fn nature(&self) -> Nature {
        self.capacity().volume.nature()
    }

    fn failure(&self) -> Option<Error> {
        let mut others = self.others().filter(|disk| !disk.is_left());
        let failure = others.find_map(|disk| Some(disk.role.told(disk.volume.failure()?)));
        failure.or_else(|| self.capacity().volume.failure())
    }

    fn tidy(&self) -> bool {
        let others = self.others().fold(false, |more, disk| disk.volume.tidy() | more);
        others | self.capacity().volume.tidy()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        struct All {
            _all: Locks,
        }
        impl Lock for All {}
        let mut all = Locks::default();
        self.disks.iter().try_for_each(|disk| all.take(&disk.volume))?;
        Ok(Box::new(All { _all: all }))
    }
}

/// A log file on a disk other than the capacity disk: its errors say so. Without the names on the capacity disk, the
/// next opening would not find what is written here. So writes also check those.
#[derive(Clone)]
struct Pages {
    file: Arc<dyn PageFile>,
    role: Role,
    capacity: Arc<Disk>,
}

impl Pages {
    fn told(&self, written: Result<()>) -> Result<()> {
        written.map_err(|error| self.role.told(error))?;
        self.capacity.volume.check_names_if_due()
    }
}

impl PageFile for Pages {
    fn path(&self) -> &str {
        self.file.path()
    }

    fn pages(&self) -> u64 {
        self.file.pages()
    }

    fn writes_wait(&self) -> bool {
        self.file.writes_wait()
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        self.told(self.file.write(first, buffer, count, durable))
    }

    fn sync(&self) -> Result<()> {
        self.told(self.file.sync())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, into).map_err(|error| self.role.told(error))
    }

    fn discard(&self, first: u64, count: u64) -> Result<bool> {
        self.file.discard(first, count).map_err(|error| self.role.told(error))
    }

    fn queue(&self) -> Option<Box<dyn PageQueue>> {
        let queue = self.file.queue()?;
        Some(Box::new(PagesInFlight { queue, pages: self.clone() }))
    }
}

/// Writes in flight to such a file.
struct PagesInFlight {
    queue: Box<dyn PageQueue>,
    pages: Pages,
}

impl PageQueue for PagesInFlight {
    fn begin(&mut self, first: u64, pages: &[u8], durable: bool) -> u64 {
        self.queue.begin(first, pages, durable)
    }

    fn wait(&mut self, ended: &mut Vec<(u64, Result<()>)>, is_called: &dyn Fn() -> bool) {
        let before = ended.len();
        self.queue.wait(ended, is_called);
        for (_, outcome) in &mut ended[before..] {
            *outcome = self.pages.told(std::mem::replace(outcome, Ok(())));
        }
    }

    fn watch(&self) -> Arc<dyn Watch> {
        self.queue.watch()
    }
}

mod disk;
mod strangers;
mod twins;

#[cfg(test)]
mod tests;
