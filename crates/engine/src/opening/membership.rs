//! The first step of opening: from the volumes that were given to the one that the store lies on, locked.
//!
//! 1. The home's lock; a reader takes none. It is given back last (`locks.rs`).
//! 2. DISKS at home is compared with the fast disk that was given (`members.rs`). A fast disk that is needed and missing
//!    is an error that says what lies on it, which takes a look at the manifest, also where DISKS is gone
//!    (`membership/missing.rs`). One that is where it was and cannot be used is an error that says why, and never counts as
//!    missing: what helps against a loss would make it one.
//! 3. The fast disk's lock; both disks become one volume (`disks/set.rs`). If a repair finds DISKS or MEMBER damaged, more than
//!    the other one has to say that the disk is the store's (`membership/witness.rs`).
//!    A home that is a copy of another one does not get the disk of that one (`membership/copies.rs`).
//! 4. [`Joined::settle`], when the store is known to open and before anything is put on the fast disk: a new fast disk is
//!    made the store's, the place of a known one is noted if it has moved.

use crate::disks::locks::Locks;
use crate::disks::members::{Fast, Home, Id, Member, MemberVerdict, add, judge, last_seen, still_names};
use crate::disks::path_text::{line_of, path_of};
use crate::disks::set::Disks;
use crate::versions::version::TableSource;
use crate::{Error, Result};
use situ_device::{Env, OpenOptions};
use situ_storage::{Corruption, DirectoryVolume, Error as StorageError, FileName, RawOptions, RawVolume, Volume};
use situ_table::BlockCache;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The volumes that a caller names.
#[derive(Clone)]
pub(crate) struct Given {
    /// The store's home.
    pub(crate) capacity: Arc<dyn Volume>,
    pub(crate) fast: Option<FastDisk>,
    /// Where the home is, if it is a directory.
    place: Option<String>,
}

/// A fast disk that was named.
#[derive(Clone)]
pub(crate) struct FastDisk {
    pub(crate) volume: Arc<dyn Volume>,
    /// Where it is found again.
    at: String,
    /// How much memory its own cache may take.
    cache_bytes: u64,
    /// Nobody asked for it: it is where DISKS said, before the lock was taken, that the disk with this id is.
    remembered: Option<Id>,
}

impl From<Arc<dyn Volume>> for FastDisk {
    fn from(volume: Arc<dyn Volume>) -> FastDisk {
        FastDisk { at: volume.location(), volume, cache_bytes: 0, remembered: None }
    }
}

impl FastDisk {
    /// Whether it is wanted now that DISKS cannot change any more. One that nobody asked for may have been drained meanwhile
    /// by whoever had the lock, and to be given to the store again it has to be asked for.
    fn is_wanted(&self, known: &Result<Option<Home>>) -> bool {
        let (Some(disk), Ok(home)) = (self.remembered, known) else { return true };
        let now = home.as_ref().map_or(Fast::None, |home| home.fast);
        matches!(now, Fast::Adding(other) | Fast::Used(other) if other == disk)
    }
}

impl Given {
    pub(crate) fn alone(capacity: Arc<dyn Volume>) -> Given {
        Given::volumes(capacity, None)
    }

    pub(crate) fn volumes(capacity: Arc<dyn Volume>, fast: Option<FastDisk>) -> Given {
        Given { capacity, fast, place: None }
    }

    /// Whether there is no file of a store at home, but perhaps for a lock that was left.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        Ok(self.capacity.list()?.iter().all(|file| file.name == FileName::Lock))
    }
}

/// What the volumes are wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Writing to what may be damaged.
    Repair {
        without_fast_disk: bool,
    },
    /// As [`Repair`](Access::Repair), without changing anything.
    Survey {
        without_fast_disk: bool,
    },
}

impl Access {
    fn writes(self) -> bool {
        matches!(self, Access::Write | Access::Repair { .. })
    }

    fn repairs(self) -> bool {
        matches!(self, Access::Repair { .. } | Access::Survey { .. })
    }

    fn gives_up_fast_disk(self) -> bool {
        matches!(self, Access::Repair { without_fast_disk: true } | Access::Survey { without_fast_disk: true })
    }
}

/// The volume that a store lies on.
pub(crate) struct Joined {
    pub(crate) volume: Arc<dyn Volume>,
    /// If there are two.
    pub(crate) disks: Option<Arc<Disks>>,
    pub(crate) locks: Locks,
    /// What DISKS is to say before anything is written, if it does not.
    pending: Option<Pending>,
    /// A fast disk was there and is given up: what DISKS is to say then.
    pub(crate) given_up: Option<Home>,
    /// The home says that there was a fast disk which is given up: the log may have gone on there.
    pub(crate) gives_up_log: bool,
    /// What is damaged of DISKS and MEMBER, and taken from elsewhere.
    pub(crate) damages: Vec<Corruption>,
}

enum Pending {
    Add { member: Member, at: String, place: Option<String> },
    Write(Home, Option<Member>),
}

impl Joined {
    fn alone(volume: &Arc<dyn Volume>, locks: Locks) -> Joined {
        Joined {
            volume: Arc::clone(volume),
            disks: None,
            locks,
            pending: None,
            given_up: None,
            gives_up_log: false,
            damages: Vec::new(),
        }
    }

    /// Where tables come from.
    pub(crate) fn source(&self, cache_bytes: u64, env: &Env, open_tables_max: usize) -> Arc<TableSource> {
        let cache = BlockCache::new(cache_bytes);
        let source = TableSource::new(Arc::clone(&self.volume), cache, env, open_tables_max);
        Arc::new(source.with_disks(self.disks.clone()))
    }

    /// Notes that there is no fast disk any more, when the manifest needs none.
    pub(crate) fn give_up(&self) -> Result<()> {
        self.given_up.as_ref().map_or(Ok(()), |home| Ok(home.write(&*self.volume)?))
    }

    /// Makes both disks know of each other, durably.
    pub(crate) fn settle(&self) -> Result<()> {
        let Some(disks) = &self.disks else { return Ok(()) };
        self.tie(disks)?;
        disks.all_names_are_known();
        Ok(())
    }

    fn tie(&self, disks: &Disks) -> Result<()> {
        let (home, fast) = (&disks.capacity.volume, &disks.fast.volume);
        disks.remove_twins()?;
        match &self.pending {
            None => Ok(()),
            Some(Pending::Write(known, member)) => {
                if let Some(member) = member {
                    member.write(fast)?;
                }
                known.write(home)?;
                disks.set_home(known.clone());
                Ok(())
            }
            Some(Pending::Add { member, at, place }) => {
                // A small file half written; there is nothing else (`refuse_files`).
                for file in disks.list_fast()? {
                    disks.remove(file.name)?;
                }
                disks.set_home(add(home, fast, *member, at, place.clone())?);
                Ok(())
            }
        }
    }
}

/// What DISKS or MEMBER says; in a repair, one that is damaged counts as `instead`.
fn read_or<T>(
    found: Result<Option<T>>,
    access: Access,
    damages: &mut Vec<Corruption>,
    instead: impl FnOnce() -> Option<T>,
) -> Result<Option<T>> {
    match found {
        Err(Error::Storage(StorageError::Corruption(damage))) if access.repairs() => {
            damages.push(*damage);
            Ok(instead())
        }
        found => found,
    }
}

/// See the module's page.
pub(crate) fn join(given: &Given, env: &Env, access: Access) -> Result<Joined> {
    let capacity = &given.capacity;
    refuse_fast_disk_as_home(&**capacity)?;
    let mut locks = Locks::default();
    if access.writes() {
        locks.take(&**capacity)?;
        // Now it can become one no more.
        refuse_fast_disk_as_home(&**capacity)?;
    }
    let known = Home::read(&**capacity);
    let mut damages = Vec::new();
    if access.gives_up_fast_disk() {
        let known = read_or(known, access, &mut damages, || None)?;
        if let Some(fast) = &given.fast {
            let text = format!("a repair without the fast disk was asked for, and {} was given as one", fast.at);
            return Err(Error::Invalid(text));
        }
        let known = if damages.is_empty() { known } else { known.or_else(|| Some(Home::fresh())) };
        let gives_up_log = known.as_ref().is_some_and(|known| matches!(known.fast, Fast::Used(_)));
        let given_up = known.map(|known| Home { fast: Fast::None, at: None, ..known });
        return Ok(Joined { given_up, gives_up_log, damages, ..Joined::alone(capacity, locks) });
    }
    let wanted = given.fast.as_ref().filter(|fast| fast.is_wanted(&known));
    let Some(FastDisk { volume: fast, at, cache_bytes, .. }) = wanted else {
        if let Err(Error::Storage(StorageError::Corruption(damage))) = &known
            && access.repairs()
        {
            return Err(Error::Disks(format!(
                "{damage}; so it is not known where the store's fast disk is. To keep everything, run `situ repair --fast-disk \
                 PATH` (`RepairOptions::fast_disk`), and nothing is lost. Only if the store has no fast disk, or the disk is lost \
                 for good, run `situ repair --without-fast-disk`. With `--dry-run` the command only shows what would be lost"
            )));
        }
        return match judge(known?, &capacity.location(), None)? {
            MemberVerdict::Missing(home) => Err(missing::named(given, env, &home)),
            _ if access.repairs() => {
                missing::look_for_unnamed(given, env)?;
                Ok(Joined::alone(capacity, locks))
            }
            _ => Ok(Joined::alone(capacity, locks)),
        };
    };
    let said = match &known {
        // What a damaged MEMBER should say is what the home does.
        Ok(Some(Home { store, fast: Fast::Used(disk), .. })) => {
            let instead = Member { store: *store, disk: *disk };
            let said = Member::read(&**fast).and_then(|said| match said {
                // A repair looks whether it is the store's disk all the same.
                None if access.repairs() => Err(StorageError::Corruption(missing::member_file(at).into()).into()),
                said => Ok(said),
            });
            read_or(said, access, &mut damages, || Some(instead))?
        }
        Ok(Some(_)) => Member::read(&**fast)?,
        // Nor does the home say anything: the manifest may still know the disk.
        _ => match Member::read(&**fast) {
            Ok(None) if access.repairs() && files_of_a_store(&**fast)?.is_some() => {
                damages.push(missing::member_file(at));
                Some(Member::fresh())
            }
            said => read_or(said, access, &mut damages, || Some(Member::fresh()))?,
        },
    };
    // DISKS is lost, or the store has no fast disk: a repair looks whether this is the store's.
    let is_unnamed = access.repairs() && said.is_some() && matches!(known, Ok(None));
    let known = if is_unnamed { Err(missing::disks_file(given)) } else { known };
    let instead = || said.map(|said| Home { store: said.store, fast: Fast::Used(said.disk), ..Home::fresh() });
    let rotten_member = !damages.is_empty();
    let known = read_or(known, access, &mut damages, instead)?;
    let verdict = judge(known.clone(), &capacity.location(), Some((said, at)))?;
    if access.writes() {
        if let MemberVerdict::Member(home) = &verdict {
            copies::refuse(given.place.as_deref(), home, at)?;
        }
        locks.take(&**fast)?;
    }
    if let (MemberVerdict::Add { .. }, Access::Write) = (&verdict, access) {
        if let Some(member) = said {
            copies::refuse_addition(given.place.as_deref(), known.as_ref(), member, at)?;
        }
        // Before the two count as one: files of one name on both would look like damage.
        refuse_files(&**fast, at, &capacity.location(), said)?;
    }
    let disks = Disks::new(Arc::clone(capacity), Arc::clone(fast), env);
    if let (Some(damage), MemberVerdict::Member(Home { fast: Fast::Used(disk), .. })) = (damages.last(), &verdict) {
        let (on, name) = if rotten_member { (fast, FileName::Member) } else { (capacity, FileName::Disks) };
        if !still_names(&**on, name, *disk) {
            let known = disks.as_ref().map_err(ToString::to_string);
            known
                .and_then(|disks| witness::manifest_knows(disks, env, !is_unnamed))
                .map_err(|why| unknown(given, at, damage, &why))?;
        }
    }
    let disks = disks?;
    disks.fast_cache_bytes.store(*cache_bytes, Ordering::Relaxed);
    let pending = match verdict {
        MemberVerdict::Member(home) => {
            disks.set_home(home.clone());
            let place = given.place.clone().or_else(|| home.place.clone());
            let moved = home.at.as_ref() != Some(at) || home.place != place;
            let member = said.filter(|_| rotten_member);
            (moved || !damages.is_empty())
                .then_some(Pending::Write(Home { at: Some(at.clone()), place, ..home }, member))
        }
        MemberVerdict::Add { .. } if access != Access::Write => {
            let home = capacity.location();
            let text = if damages.is_empty() {
                format!("{at} is not the fast disk of the store in {home}, which has none")
            } else {
                format!(
                    "{at} is not the fast disk of the store in {home}: there is no store's file on it. Name the disk that the store \
                     has. Only if the store has no fast disk, or the disk is lost for good, run `situ repair --without-fast-disk \
                     {home}`. With `--dry-run` the command only shows what would be lost"
                )
            };
            return Err(Error::Disks(text));
        }
        MemberVerdict::Add { store, disk } => {
            Some(Pending::Add { member: Member { store, disk }, at: at.clone(), place: given.place.clone() })
        }
        MemberVerdict::Alone | MemberVerdict::Missing(_) => None,
    };
    let volume = Arc::clone(&disks) as Arc<dyn Volume>;
    Ok(Joined { volume, disks: Some(disks), locks, pending, given_up: None, gives_up_log: false, damages })
}

/// Why a repair does not take a disk that may be another store's.
fn unknown(given: &Given, at: &str, damage: &Corruption, why: &str) -> Error {
    let home = given.capacity.location();
    Error::Disks(format!(
        "{damage}; and nothing else says that {at} is the fast disk of the store in {home}: {why}. It may be the disk of \
         another store, whose data would be taken for this one's. Nothing was changed. Give the store its own disk. If this is \
         the one, copy its files with numbers into the home (MEMBER stays), where they are found as well; then, or if the disk is lost for \
         good, repair the store without it (`situ repair --without-fast-disk`; with `--dry-run` that says what would be lost)"
    ))
}

/// What is made in place of a store there would take the names of the files of the store whose fast disk it is.
///
/// # Errors
/// A directory that is to be a store's home says that it is the fast disk of a store.
pub(crate) fn refuse_fast_disk_as_home(home: &dyn Volume) -> Result<()> {
    if !home.list()?.iter().any(|file| file.name == FileName::Member) {
        return Ok(());
    }
    let home_shown = home.location();
    let whose = match Member::read(home) {
        Ok(Some(member)) => format!("the store {}", member.store),
        _ => "a store".to_owned(),
    };
    let has = |name| home.list().map(|files| files.iter().any(|file| file.name == name));
    let cure = if has(FileName::Current)? || has(FileName::Disks)? {
        "It has files that only a home has, too (CURRENT, DISKS): if it is the home of a store, into which the files of its fast disk \
         were copied, MEMBER alone does not belong here. Remove that file, and no other"
    } else {
        "Name the directory that has that store's DISKS and CURRENT. Only if that store is gone for good, or does not have this disk any \
         more, is what lies here a left-over"
    };
    Err(Error::Disks(format!(
        "{home_shown} is the fast disk of {whose}, as the file MEMBER there says, and not the home of one. Nothing was changed. {cure}"
    )))
}

/// A disk that is added has nothing on it but what is left of an addition or of a drain that was cut short: MEMBER, and a
/// small file half written. Anything else may be all there is of somebody's data, and stays.
fn refuse_files(fast: &dyn Volume, at: &str, home: &str, said: Option<Member>) -> Result<()> {
    let Some(name) = files_of_a_store(fast)? else { return Ok(()) };
    Err(Error::Disks(if let Some(member) = said {
        format!(
            "{at} is the fast disk of the store {} and has files of it ({name} for one). The home in {home} is of that store, too, and \
             has no fast disk. Nothing was changed. If there is another home of the store, as after a copy, the disk belongs to that \
             one, which does not open without it: give this one a disk of its own. If the store was repaired without this disk, what is \
             on it is known to nobody any more. Only if you are sure of that, and nobody wants it, empty the disk (remove its files, or \
             format it with `--force`) and add it again; what is wanted of it is copied into the home, where it is found as well",
            member.store
        )
    } else {
        format!(
            "{at} holds files of a store ({name} for one), does not say of which, and cannot become the fast disk of the one in \
             {home}; give an empty place. If it is the fast disk of that store, and both files that said so are gone, \
             `situ repair --fast-disk {at} {home}` finds out, and loses nothing"
        )
    }))
}

/// A file on a fast disk that is more than what an addition or a drain has left, if there is one.
fn files_of_a_store(fast: &dyn Volume) -> Result<Option<FileName>> {
    let own = [FileName::Lock, FileName::Member, FileName::REPLACEMENT];
    Ok(fast.list()?.into_iter().map(|file| file.name).find(|name| !own.contains(name)))
}

/// The fast disk at a path: a directory of a fast file system, or a device or file that was prepared as a Situ disk. With
/// `create`, a directory is made where nothing is and one may be.
pub(crate) fn fast_disk(path: &Path, env: &Env, create: bool, read_only: bool) -> Result<FastDisk> {
    let failed = |op, error| Error::from(StorageError::io(op, path.display(), error));
    let raw = match fs::metadata(path) {
        Ok(meta) => !meta.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            may_be_made(path, create)?;
            DirectoryVolume::create(path)?;
            false
        }
        Err(error) => return Err(failed("open", error)),
    };
    // The home remembers the place, from wherever it was named, by the name that it was given: a link to a device still leads there
    // when the system has given that another name.
    let whole = std::path::absolute(path).map_err(|error| failed("open", error))?;
    let at = line_of(&whole);
    let options = RawOptions::default();
    let cache_bytes = if raw { options.cache_bytes } else { 0 };
    let volume: Arc<dyn Volume> = if raw {
        let how = OpenOptions { read_only, ..OpenOptions::default() };
        let device = situ_device::open(&whole, how).map_err(|error| failed("open", error))?;
        Arc::new(RawVolume::open(device, env.clone(), options)?)
    } else {
        Arc::new(DirectoryVolume::open(whole)?)
    };
    Ok(FastDisk { volume, at, cache_bytes, remembered: None })
}

/// Whether a new directory may become a fast disk: next to something that is there, as a name that is spelled wrong, or a
/// file system that is not mounted, would give the log a place where nobody looks for it; and not among the devices, as
/// what is made there lies in memory.
fn may_be_made(path: &Path, create: bool) -> Result<()> {
    let refuse = |why: &str| {
        Err(Error::Disks(format!(
            "there is nothing at {}{why}; a fast disk is a device or file that `situ disk format` has prepared, or a \
             directory",
            path.display()
        )))
    };
    if !create {
        return refuse("");
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    match fs::canonicalize(parent) {
        Ok(parent) if parent.starts_with("/dev") => {
            refuse(", and a directory made there would be lost when the machine stops")
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse(&format!(", and {} is not there either (is it mounted?)", parent.display()))
        }
        Err(error) => Err(StorageError::io("open", parent.display(), error).into()),
    }
}

/// The volumes of the store in a directory. Without a fast disk by name, the one that the store remembers is taken, if
/// there is anything where it was last.
pub(crate) fn given(
    directory: DirectoryVolume,
    fast: Option<&Path>,
    env: &Env,
    create: bool,
    access: Access,
) -> Result<Given> {
    let home = fs::canonicalize(directory.directory()).ok();
    let place = home.as_deref().map(line_of);
    let capacity: Arc<dyn Volume> = Arc::new(directory);
    let Some(path) = fast else {
        let fast = remembered(&*capacity, env, access)?;
        return Ok(Given { capacity, fast, place });
    };
    let fast = fast_disk(path, env, create, !access.writes()).map_err(|error| {
        // What is there may be the store's own disk, of which the beginning is gone.
        let known = Home::read(&*capacity).ok().flatten().filter(|known| matches!(known.fast, Fast::Used(_)));
        match known.filter(|_| fs::metadata(path).is_ok()) {
            Some(known) => named_unusable(&capacity.location(), path, error, &known, access),
            None => error,
        }
    })?;
    if home.is_some() && fs::canonicalize(path).ok() == home {
        let text = format!("{} is the home of the store; its fast disk has to be another place", path.display());
        return Err(Error::Disks(text));
    }
    Ok(Given { capacity, fast: Some(fast), place })
}

/// All files of the store in a directory as one volume, wherever they lie, for those who look at them one by one. Nothing
/// is locked or written.
///
/// # Errors
/// The directory, or the store's fast disk, is not there.
pub fn files_of(directory: impl AsRef<Path>) -> Result<Arc<dyn Volume>> {
    let env = Env::system();
    let given = given(DirectoryVolume::open(directory.as_ref())?, None, &env, false, Access::Read)?;
    Ok(join(&given, &env, Access::Read)?.volume)
}

/// Removes everything from the fast disk of a store that is being destroyed.
pub(crate) fn clear_fast_disk(home: &DirectoryVolume) -> Result<()> {
    let place = fs::canonicalize(home.directory()).ok().as_deref().map(line_of);
    let env = Env::system();
    let Some(known) = Home::read(home)? else { return Ok(()) };
    let fast = match known.fast {
        Fast::None => return Ok(()),
        Fast::Adding(_) => remembered(home, &env, Access::Write)?,
        Fast::Used(disk) => remembered(home, &env, Access::Write)?
            .map(|fast| {
                let ours = match Member::read(&*fast.volume)? {
                    Some(member) => member == Member { store: known.store, disk },
                    // A call that was interrupted has left nothing, not even MEMBER.
                    None => fast.volume.list()?.iter().all(|file| file.name == FileName::Lock),
                };
                Ok::<_, Error>(ours.then_some(fast))
            })
            .transpose()?
            .flatten(),
    };
    let Some(fast) = fast else {
        return match known.fast {
            Fast::Used(_) => Err(Error::Disks(format!(
                "the fast disk of the store in {} is not there.{} Put it there again, or, if it is lost, repair the store \
                 without it first (`situ repair --without-fast-disk`)",
                home.location(),
                last_seen(&known)
            ))),
            _ => Ok(()),
        };
    };
    let FastDisk { volume: fast, at, .. } = fast;
    copies::refuse(place.as_deref(), &known, &at)?;
    let lock = fast.lock()?;
    let mut files = fast.list()?;
    files.sort_by_key(|file| match file.name {
        FileName::Lock => 2,
        // Says whose the others are, as long as there are others.
        FileName::Member => 1,
        _ => 0,
    });
    for file in files {
        if file.name == FileName::Member {
            fast.sync_names()?;
        }
        fast.remove(file.name)?;
    }
    // A disk that says whose it is would be refused to the next store.
    fast.sync_names()?;
    while fast.tidy() {}
    drop(lock);
    // Something of somebody else's may be there, too, and its directory then stays.
    let _ = fs::remove_dir(path_of(&at));
    Ok(())
}

/// The fast disk where it was last; `None` if the store needs none, or nothing is there any more. Whether it is the right
/// one is for [`join`] to find out.
///
/// # Errors
/// Something is there and cannot be used: a right is missing, the device fails, its metadata is damaged.
fn remembered(home: &dyn Volume, env: &Env, access: Access) -> Result<Option<FastDisk>> {
    if access.gives_up_fast_disk() {
        return Ok(None);
    }
    let Home { store, fast, at: Some(at), .. } = (match Home::read(home) {
        Ok(Some(known)) => known,
        // `join` reads it again, and says what is to be done.
        Ok(None) | Err(Error::Storage(StorageError::Corruption(_))) => return Ok(None),
        Err(error) => return Err(error),
    }) else {
        return Ok(None);
    };
    let path = &*path_of(&at);
    let noted = |disk, found| FastDisk { remembered: Some(disk), ..found };
    match fast {
        Fast::None => Ok(None),
        Fast::Adding(_) if access != Access::Write => Ok(None),
        // Nothing of the store lies there: whatever is wrong with it, the store opens without.
        Fast::Adding(disk) => {
            let found = fast_disk(path, env, false, false).ok().filter(|found| {
                let member = Member::read(&*found.volume);
                matches!(member, Ok(Some(member)) if member == Member { store, disk })
            });
            Ok(found.map(|found| noted(disk, found)))
        }
        Fast::Used(disk) => match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => fast_disk(path, env, false, !access.writes())
                .map(|found| Some(noted(disk, found)))
                .map_err(|error| unusable(&home.location(), &at, error, access)),
        },
    }
}

/// Why a store that has a fast disk does not open with the one that was named.
fn named_unusable(home: &str, path: &Path, error: Error, known: &Home, access: Access) -> Error {
    if error.is_corruption() && !access.repairs() {
        return error;
    }
    Error::Disks(format!(
        "what is at {} cannot be used as the fast disk of the store in {home}: {error}. If it is the disk that the store has, do not format \
         it: it may have the newest writes (`situ disk check` reads the metadata of a Situ disk).{}",
        path.display(),
        last_seen(known)
    ))
}

/// Why a store does not open with a fast disk that is there.
fn unusable(home: &str, at: &str, error: Error, access: Access) -> Error {
    if error.is_corruption() && !access.repairs() {
        return error;
    }
    let lost = if access.repairs() {
        " Only if the disk is lost for good, run `situ repair --without-fast-disk`. With `--dry-run` the command only shows \
         what would be lost."
    } else {
        ""
    };
    Error::Disks(format!(
        "the fast disk of the store in {home} was at {at} when the store was opened last, and what is there cannot be used: \
         {error}. Do not format it: it may have the newest writes. Remove the cause (a missing right, a device that fails, \
         another device under this name; `situ disk check` reads the metadata of a Situ disk), or name the disk's place if \
         it has moved (`--fast-disk PATH`).{lost}"
    ))
}

mod copies;
pub(crate) mod missing;
mod witness;

#[cfg(test)]
mod tests;
