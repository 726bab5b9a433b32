//! Opening a hash store, recovering one after a crash, and making one.
//!
//! 1. Lock the home directory and the bucket space. Read the superblock and the mark of the bucket space. A wrong
//!    device, or that of another store, is refused before anything is written.
//! 2. Write the buckets again whose images a crash may need ([`images::redo`]). Flush.
//! 3. Write the buckets again that a split or a merge has left half done ([`Core::tidy_group`]).
//! 4. Read the log once, for the buckets that it names. The totals are those of the superblock, and what these buckets
//!    have gained since the epoch began.
//! 5. Read the log again, and apply all of it, in order. Changes that were applied before the crash are applied again:
//!    the last change of a key decides.
//! 6. Begin an epoch with a new log. Old log files go.
//!
//! **Without space** for step 5, the store opens all the same, short of space (`shortage.rs`): readers see all writes,
//! and deletes can give space back. Changes that could not be applied are pending, in as much memory as the log has
//! bytes. The old log files stay until they are applied.
//!
//! After a clean close there is nothing to do in steps 2 to 5. So damage that no read meets does not keep such a store
//! closed.
//!
//! **Making a store**: the superblock comes first, whole, with generation 1, then empty buckets, then the mark. So a
//! superblock of generation 1 together with a bucket space without a mark is a store that was being made.
//! **Failure.** Until step 6 a crash leaves what was there, or buckets that are further on; the next opening does the
//! same again.

pub(crate) mod repair;

use crate::base::events::{Events, HashEvent};
use crate::disk::images::{self, ImageJournal};
use crate::disk::io::{BUCKETS_MAX, BucketIo};
use crate::disk::large::LargeValues;
use crate::disk::options::{HashOptions, IMAGE_BYTES_MIN};
use crate::disk::overflow::{Overflow, Whose};
use crate::format::address::{State, hash_of};
use crate::format::bucket::BucketCodec;
use crate::format::clock_file;
use crate::format::record::{Operations, Record};
use crate::format::space::{SPACE_HEADER_BYTES, SpaceMark};
use crate::format::superblock::{Newest, SLOT_BYTES, SLOTS, Superblock, Totals};
use crate::live::core::{Core, LogBound, Parts, Sums, SuperblockFile};
use crate::opening::repair::HashRepair;
use crate::writing::batch::Changes;
use crate::writing::pending::{Pending, PendingChange};
use crate::writing::purges::Purges;
use crate::writing::shortage::{Party, Shortage, watch};
use crate::writing::writes::{Pipeline, Writes};
use crate::{Error, Result, StoreId};
use situ_base::{ClockKeeper, ClockRecord, Env, StoreClock, random};
use situ_device::{Buffer, Device, DeviceLock};
use situ_log::{Log, LogOptions, RecoveryMode, recover};
use situ_pipeline::{LOGGERS_MAX, Limits};
use situ_storage::{Error as StorageError, FileName, HASH_STORE_IDENTITY, Lock, PageFile, Volume, trace_of_hash_store};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Pages of the log that wait to be written, at most.
const LOG_BUFFER_BYTES_MAX: usize = 4 << 20;

/// Returns the text that a person finds in the directory.
fn identity() -> String {
    format!("{HASH_STORE_IDENTITY}. Do not change its files by hand.\n")
}

/// The volumes and the device of a store.
pub(crate) struct Given {
    pub(crate) home: Arc<dyn Volume>,
    pub(crate) overflow: Arc<dyn Volume>,
    pub(crate) device: Arc<dyn Device>,
    /// The device as the superblock is to remember it; none: a file in the home.
    pub(crate) device_path: Option<String>,
    /// Identity and seed of a store that is made; drawn if there is none.
    pub(crate) identity: Option<(StoreId, u64)>,
}

/// The rights to write; given back when they are dropped.
pub(crate) struct Locks {
    /// The volume that `_home` locks.
    pub(crate) home: Arc<dyn Volume>,
    _home: Box<dyn Lock>,
    _device: Box<dyn DeviceLock>,
}

/// The result of opening. Threads do not run yet.
pub(crate) struct Opened {
    pub(crate) core: Arc<Core>,
    pub(crate) locks: Locks,
    pub(crate) clock: ClockKeeper,
}

/// Opens the store, or makes one. With a report, what is damaged is repaired (`repair.rs`).
pub(crate) fn open(
    given: Given,
    env: &Env,
    options: HashOptions,
    events: Events,
    repair: Option<&mut HashRepair>,
) -> Result<Opened> {
    let options = options.bounded();
    let home = &*given.home;
    if !options.create_if_missing && read_superblock(home)?.is_none() {
        return Err(Error::Existence(format!("there is no hash store in {}", home.location())));
    }
    let io = BucketIo::new(Arc::clone(&given.device), Arc::clone(&env.clock));
    if read_superblock(home)?.is_none() {
        // Before there is a lock file.
        check_blank(&io, &options)?;
    }
    let home_lock = home.lock()?;
    let device_lock = lock_device(&io)?;
    let superblock = match read_superblock(home)? {
        Some((file, newest)) => open_made(home, &io, file, newest, &events)?,
        None => make(home, &io, &options, given.identity)?,
    };
    let volume = Arc::clone(&given.home);
    let locks = Locks { home: Arc::clone(&given.home), _home: home_lock, _device: device_lock };
    let core = ground(given, env, options, io, superblock, events, repair)?;
    let clock = keep_clock(volume, env, &core)?;
    Ok(Opened { core: Arc::new(core), locks, clock })
}

/// Keeps the record of the store's clock in `home`.
fn keep_clock(home: Arc<dyn Volume>, env: &Env, core: &Core) -> Result<ClockKeeper> {
    let store = core.store;
    let keep = move |record: &ClockRecord| clock_file::write(&*home, store, record).is_ok();
    ClockKeeper::start(env, &core.clock, keep)
        .map_err(|error| StorageError::io("start a thread of", &core.io.path, error).into())
}

/// Returns the superblock of a store that was made, or nearly. A wrong device is refused before anything is written.
fn open_made(
    home: &dyn Volume,
    io: &BucketIo,
    file: Arc<dyn PageFile>,
    newest: Newest,
    events: &Events,
) -> Result<SuperblockFile> {
    require_room(io, &newest.superblock)?;
    let is_marked = is_marked(io, &newest.superblock)?;
    settle_superblock(home)?;
    let Newest { superblock, damage } = newest;
    damage.iter().for_each(|damage| events.tell(&HashEvent::SuperblockDamaged { damage: damage.clone() }));
    let file = match is_marked {
        true => SuperblockFile::new(file, superblock),
        false => finish_making(home, io, file, superblock)?,
    };
    Ok(file.damaged(damage))
}

fn lock_device(io: &BucketIo) -> Result<Box<dyn DeviceLock>> {
    io.device().lock().map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => StorageError::Locked { path: io.path.clone(), why: None }.into(),
        _ => StorageError::io("lock", &io.path, error).into(),
    })
}

/// The file of a superblock, and the contents.
type FoundSuperblock = (Arc<dyn PageFile>, Newest);

/// Returns the superblock's file and what it says; none if there is no store, or one that had hardly been begun.
///
/// # Errors
/// [`Error::Superblock`] if the store has lost its superblock.
fn read_superblock(home: &dyn Volume) -> Result<Option<FoundSuperblock>> {
    let file = match home.open_pages(FileName::Superblock) {
        Ok(file) => file,
        Err(StorageError::NotFound { .. }) => return none_unless_lost(home, "is missing"),
        Err(error) => return Err(error.into()),
    };
    let (found, whole) = (file.pages() * SLOT_BYTES as u64, (SLOTS * SLOT_BYTES) as u64);
    if found < whole {
        return Err(lost_superblock(home, format_args!("has {found} bytes instead of {whole}")));
    }
    let mut slots = vec![0; SLOTS * SLOT_BYTES];
    file.read_at(0, &mut slots)?;
    match Superblock::newest(file.path(), &slots) {
        Ok(None) => none_unless_lost(home, "holds only zeros"),
        Ok(Some(newest)) => Ok(Some((file, newest))),
        Err(error) if error.is_corruption() => {
            Err(lost_superblock(home, format_args!("has no sound copy left ({error})")))
        }
        Err(error) => Err(error),
    }
}

/// Returns the superblock of the store in `home`, which may be open in another process.
///
/// # Errors
/// There is no store, or a newer program has written it; [`Error::Superblock`] if it has lost its superblock.
pub fn superblock_of(home: &dyn Volume) -> Result<Newest> {
    let none =
        || Error::Existence(format!("there is no hash store in {}, or one that was being made", home.location()));
    read_superblock(home)?.map(|(_, newest)| newest).ok_or_else(none)
}

/// There is no superblock. That is an error if there was one once.
fn none_unless_lost(home: &dyn Volume, what: &str) -> Result<Option<FoundSuperblock>> {
    match trace_of_hash_store(home, &home.list()?)? {
        None => Ok(None),
        Some(trace) => Err(Error::Superblock(format!(
            "{} is a hash store (see {trace}) whose SUPERBLOCK {what}. Restore SUPERBLOCK from a backup; do not repair",
            home.location()
        ))),
    }
}

fn lost_superblock(home: &dyn Volume, what: impl std::fmt::Display) -> Error {
    let path = format!("{}/{}", home.location(), FileName::Superblock);
    Error::Superblock(format!("{path} {what}. Restore it from a backup; a repair needs it, too"))
}

/// Returns the device that the store in `home` remembers, if there is a store and its buckets do not lie in the home.
pub(crate) fn remembered_device(home: &dyn Volume) -> Result<Option<String>> {
    Ok(read_superblock(home)?.and_then(|(_, newest)| newest.superblock.device))
}

/// Returns the superblock in `home`, if a store was made there. A store that is being made has none yet: its overflow
/// and its buckets may be new.
pub(crate) fn made(home: &dyn Volume) -> Result<Option<Superblock>> {
    Ok(read_superblock(home)?.map(|(_, newest)| newest.superblock).filter(Superblock::is_of_made_store))
}

/// Checks that the device holds all buckets of the store. A device that is too short has lost some.
fn require_room(io: &BucketIo, superblock: &Superblock) -> Result<()> {
    require_buckets(&io.path, io.buckets_max, superblock)
}

/// Checks that a bucket space with room for `room` buckets holds those of the store.
pub(crate) fn require_buckets(path: &str, room: u64, superblock: &Superblock) -> Result<()> {
    let least = superblock.state.buckets();
    if room >= least {
        return Ok(());
    }
    let (expected, found) =
        (format!("at least {least} buckets"), format!("room for {room}: it was cut, or it is another"));
    Err(Error::OtherGeometry { path: path.to_owned(), expected, found })
}

/// Makes both slots durably say what the newest says, before the store acts on it. A crash may have left the other slot
/// as it was, and what is read may so far be in the page cache only.
fn settle_superblock(home: &dyn Volume) -> Result<()> {
    let Some((file, newest)) = read_superblock(home)? else { return Ok(()) };
    file.sync()?;
    home.sync_names()?;
    let slot = Buffer::copy_of(&newest.superblock.encode());
    for number in 0..SLOTS {
        let mut found = vec![0; SLOT_BYTES];
        file.read_at((number * SLOT_BYTES) as u64, &mut found)?;
        if found[..] != slot[..] {
            file.write(number as u64, &slot, 1, true)?;
        }
    }
    Ok(())
}

/// Returns true if the bucket space has the mark of this store. False if the store was being made, and the mark is
/// missing.
fn is_marked(io: &BucketIo, superblock: &Superblock) -> Result<bool> {
    let area = io.read_header(0, SPACE_HEADER_BYTES)?;
    if superblock.generation == 1 && is_part_of_mark(&area, superblock.store) {
        return Ok(false);
    }
    SpaceMark::check(&io.path, &area, superblock.store)?;
    Ok(true)
}

/// Returns true if the area is what a crash can leave of the mark of `store`, but not all of it.
fn is_part_of_mark(area: &[u8], store: StoreId) -> bool {
    let mark = SpaceMark::new(store).encode();
    area != mark && area.iter().zip(&mark).all(|(found, whole)| *found == 0 || found == whole)
}

/// Refuses a directory with files of an ordered store: it gets no hash store.
pub(crate) fn refuse_other_stores(home: &dyn Volume) -> Result<()> {
    let is_other = |name| matches!(name, FileName::Current | FileName::Manifest(_) | FileName::Table(_));
    match home.list()?.iter().find(|file| is_other(file.name)) {
        Some(file) => Err(Error::Existence(format!(
            "{} holds files of an ordered store ({}), and this is a hash store's engine; nothing was written",
            home.location(),
            file.name
        ))),
        None => Ok(()),
    }
}

/// Makes a store in a bucket space that is blank.
fn make(
    home: &dyn Volume,
    io: &BucketIo,
    options: &HashOptions,
    identity: Option<(StoreId, u64)>,
) -> Result<SuperblockFile> {
    check_blank(io, options)?;
    let state = State::new(options.base_bits);
    let (store, seed) = identity.map_or_else(draw_identity, Ok)?;
    make_as(home, io, store, seed, state)
}

/// Refuses a device that cannot get a new store, with nothing left behind in a home that does not exist yet.
pub(crate) fn refuse_device(device: &Arc<dyn Device>, env: &Env, options: &HashOptions) -> Result<()> {
    let io = BucketIo::new(Arc::clone(device), Arc::clone(&env.clock));
    drop(lock_device(&io)?);
    check_blank(&io, &options.clone().bounded())
}

/// Checks that the bucket space is blank, and long enough for a new store.
fn check_blank(io: &BucketIo, options: &HashOptions) -> Result<()> {
    if io.device().space().logical_total < SPACE_HEADER_BYTES as u64 {
        return Err(too_small(io, options));
    }
    let area = io.read_header(0, SPACE_HEADER_BYTES)?;
    if !SpaceMark::is_blank(&area) {
        let found = match SpaceMark::decode(&io.path, &area) {
            Ok(mark) => format!("the bucket space of store {}", mark.store),
            Err(Error::NotABucketSpace { found, .. }) => found,
            Err(error) => error.to_string(),
        };
        return Err(Error::NotABucketSpace { path: io.path.clone(), found });
    }
    if io.buckets_max < State::new(options.base_bits).buckets() {
        return Err(too_small(io, options));
    }
    Ok(())
}

fn too_small(io: &BucketIo, options: &HashOptions) -> Error {
    let least = State::new(options.base_bits).buckets();
    Error::Invalid(format!("{} has room for {} buckets, and a store has at least {least}", io.path, io.buckets_max))
}

fn make_as(home: &dyn Volume, io: &BucketIo, store: StoreId, seed: u64, state: State) -> Result<SuperblockFile> {
    let superblock = Superblock {
        generation: 1,
        store,
        seed,
        is_clean: true,
        state,
        epoch: 1,
        sequence: 0,
        first_log_file: 1,
        next_file: 1,
        first_image_batch: 1,
        totals: Default::default(),
        device: None,
    };
    let file = SuperblockFile::create(home, &superblock)?;
    finish_making(home, io, file, superblock)
}

/// Does the second half of making a store.
fn finish_making(
    home: &dyn Volume,
    io: &BucketIo,
    file: Arc<dyn PageFile>,
    superblock: Superblock,
) -> Result<SuperblockFile> {
    home.replace(FileName::Identity, identity().as_bytes())?;
    io.zero(0..superblock.state.buckets())?;
    io.flush()?;
    io.write_header(0, Buffer::copy_of(&SpaceMark::new(superblock.store).encode()))?;
    Ok(SuperblockFile::new(file, superblock))
}

/// Returns an identity that no other store has, and a seed that cannot be guessed.
fn draw_identity() -> Result<(StoreId, u64)> {
    let drawn = random().and_then(|store| Ok((StoreId(store), u64::from_le_bytes(random()?))));
    drawn.map_err(|error| StorageError::io("read", "the system's random numbers", error).into())
}

/// Returns the parts of the store, and its state as the last process left it.
fn ground(
    given: Given,
    env: &Env,
    options: HashOptions,
    io: BucketIo,
    superblock: SuperblockFile,
    events: Events,
    mut repair: Option<&mut HashRepair>,
) -> Result<Core> {
    superblock.set_device(given.device_path);
    let current = superblock.current();
    let codec = BucketCodec::new(&io.path, current.store);
    let home = &given.home;
    let whose = Whose { store: current.store, exists: current.is_of_made_store() };
    let overflow = Overflow::open(given.overflow, env, &options, whose)?;
    let record = clock_file::read(&**home, current.store, &events)?;
    let clock = Arc::new(StoreClock::resume(Arc::clone(&env.clock), record));
    let large = LargeValues::open(Arc::clone(home), env, options.value_segment_bytes, &overflow)?;
    let next_batch = images::redo(&**home, current.store, current.first_image_batch, &codec, &io)?;
    io.flush()?;
    if next_batch > current.first_image_batch {
        superblock.write(Superblock { first_image_batch: next_batch, ..superblock.current() })?;
    }
    let images = match io.needs_images() {
        false => None,
        true => {
            let bytes = options.image_bytes_max.max(IMAGE_BYTES_MIN).next_multiple_of(4096);
            Some(ImageJournal::open(&**home, current.store, bytes, next_batch)?)
        }
    };
    let logs = OldLogs::find(home, &current, repair.as_deref_mut())?;
    let named = logs.read_names(home, current.seed)?;
    if let Some(report) = repair.as_deref_mut() {
        named.damages.iter().for_each(|damage| report.lose_log_record(damage));
    }
    let last_sequence = named.last_sequence.max(current.sequence);
    let log = logs.begin_new(home, env, &options)?;
    let progress = env.executor.event();
    // The store's own base counts: one bucket has one worker.
    let partitions = options.partitions.min(1 << current.state.base_bits());
    let pending = Arc::new(Pending::new(env, partitions, options.pending_bytes_max, last_sequence));
    // Four memtables of the overflow at most, and the images of a lap.
    let fixed_bytes = options.overflow_memory_bytes.saturating_mul(4) + images.as_ref().map_or(0, ImageJournal::bytes);
    let values = Arc::clone(&large.log);
    let stored = move || values.inflation().live_bytes;
    let space = watch(Arc::clone(&env.clock), home, &given.device, &pending, fixed_bytes, stored, events.clone());
    // The file in use and the next one are there whatever they hold.
    let log_bytes_max = options.log_bytes_max.saturating_mul(2).saturating_add(2 * options.log_file_bytes);
    let shortage = Shortage::new(space, log_bytes_max, events);
    let keeper_work = env.executor.event();
    let writes = Writes::new(
        Arc::clone(&log),
        pending,
        shortage,
        Arc::clone(&progress),
        keeper_work,
        Purges::new(env),
        last_sequence,
    );
    let writes = Arc::new(writes);
    let limits = Limits { loggers: LOGGERS_MAX, outstanding: 1024 };
    let pipeline = Arc::new(Pipeline::new(env, Arc::clone(&writes), Some(log), progress, limits));
    writes.set_bell(pipeline.bell());
    let env = env.clone();
    let core =
        Core::new(Parts { env, clock, options, codec, io, overflow, large, images, writes, pipeline, superblock });
    if let Some(report) = repair.as_deref_mut() {
        core.mend_buckets(&**home, report)?;
    }
    if !current.is_clean || repair.is_some() {
        core.tidy_group()?;
    }
    core.count_gains(named.hashes)?;
    if let Some(report) = repair {
        let (expected, found) = (core.count_anew()?, core.totals());
        let entries = |totals: &Totals| totals.entries + totals.overflow_entries;
        report.lost_entries = entries(&expected).saturating_sub(entries(&found));
        if expected != found && report.lost_bucket_count == 0 {
            report.damage(expected.difference(&found));
        }
    }
    let is_applied = logs.replay(home, &core)?;
    core.overflow.sync()?;
    if !is_applied {
        // The epoch goes on: the log still names all buckets that were written in it.
        core.writes.pending.replayed(current.sequence, last_sequence);
        // The old log files are to go as soon as they can.
        core.keeper.checkpoints_wanted.fetch_add(1, Ordering::AcqRel);
        return Ok(core);
    }
    let file = core.writes.log.file();
    core.begin_epoch(core.state(), LogBound::From { file, sequence: last_sequence })?;
    core.writes.release_logs(file)?;
    Ok(core)
}

/// The log files of earlier processes that are needed.
struct OldLogs {
    needed: Vec<u64>,
    /// A log file of the new log gets this number or a higher one.
    next: u64,
    mode: RecoveryMode,
}

/// The buckets that a log names.
#[derive(Default)]
struct Named {
    hashes: Vec<u64>,
    last_sequence: u64,
    /// The damaged records that a repair leaves out.
    damages: Vec<Error>,
}

impl OldLogs {
    fn find(home: &Arc<dyn Volume>, superblock: &Superblock, repair: Option<&mut HashRepair>) -> Result<OldLogs> {
        let mode = if repair.is_some() { RecoveryMode::Repair } else { RecoveryMode::Strict };
        let mut needed = Vec::new();
        let first = superblock.first_log_file;
        let mut first_bytes = None;
        let mut next = superblock.next_file.max(superblock.first_log_file);
        for file in home.list()? {
            if let FileName::Log(number) | FileName::Spare(number) = file.name {
                next = next.max(number + 1);
            }
            if let FileName::Log(number) = file.name
                && number >= first
            {
                needed.push(number);
                first_bytes = first_bytes.or((number == first).then_some(file.bytes));
            }
        }
        needed.sort_unstable();
        // A store that is open has its oldest log file: it was made, in its whole length, before the superblock that
        // names it. Recovery finds cuts behind its first pages.
        if !superblock.is_clean && first_bytes.is_none_or(|bytes| bytes < situ_log::FILE_BYTES_MIN) {
            let path = format!("{}/{}", home.location(), FileName::Log(first));
            let found = match first_bytes {
                Some(bytes) => format!("{bytes} bytes"),
                None => needed.first().map_or("no log file".to_owned(), |number| FileName::Log(*number).to_string()),
            };
            let expected = format!("the oldest log file that is needed, of {} bytes or more", situ_log::FILE_BYTES_MIN);
            let error = StorageError::corruption(&path, 0, "log file", expected, found);
            let Some(report) = repair else { return Err(error.into()) };
            report.lose_log_record(error);
        }
        Ok(OldLogs { needed, next, mode })
    }

    /// Hands out the records, in order. A repair leaves damaged ones out: these come back.
    fn read(&self, home: &Arc<dyn Volume>, takes: &mut dyn FnMut(Record<'_>) -> Result<()>) -> Result<Vec<Error>> {
        let mut failure = None;
        let mut damages = Vec::new();
        let report = recover(home, &self.needed, self.mode, &mut |at, bytes| {
            let path = format!("{}/{}", home.location(), FileName::Log(at.file));
            let offset = u64::from(at.page) * 4096;
            let taken = match Record::decode(&path, offset, bytes) {
                Err(error) if self.mode == RecoveryMode::Repair => {
                    damages.push(error);
                    Ok(())
                }
                decoded => decoded.and_then(&mut *takes),
            };
            taken.map_err(|error| {
                failure = Some(error.clone());
                StorageError::Invalid(error.to_string())
            })
        });
        match (report, failure) {
            (Ok(report), _) => {
                damages.extend(report.lost.into_iter().map(|loss| loss.error.into()));
                Ok(damages)
            }
            (Err(_), Some(error)) => Err(error),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn read_names(&self, home: &Arc<dyn Volume>, seed: u64) -> Result<Named> {
        let mut named = Named::default();
        let damages = self.read(home, &mut |record| {
            for (sequence, operation) in record.operations() {
                named.last_sequence = sequence;
                named.hashes.push(hash_of(operation.key, seed));
            }
            Ok(())
        })?;
        Ok(Named { damages, ..named })
    }

    fn begin_new(&self, home: &Arc<dyn Volume>, env: &Env, options: &HashOptions) -> Result<Arc<Log>> {
        let short = LogOptions::default().short_file_bytes.min(options.log_file_bytes);
        let mut log = LogOptions {
            file_bytes: options.log_file_bytes,
            first_file_bytes: short,
            short_file_bytes: short,
            buffer_bytes_max: LOG_BUFFER_BYTES_MAX,
            ..LogOptions::default()
        };
        log.limit_first_file(home.space().logical_free());
        Ok(Log::create(Arc::clone(home), env.clone(), log, self.next)?)
    }

    /// Applies all that the log holds. False if space is missing for some of it: that is pending.
    fn replay(&self, home: &Arc<dyn Volume>, core: &Core) -> Result<bool> {
        let mut has_space = true;
        self.read(home, &mut |record| {
            let mut operations = Operations::new();
            record.operations().try_for_each(|(_, operation)| operations.push(&operation))?;
            core.take_replayed(record.first, operations, &mut has_space)
        })?;
        // Once more, also if it has failed: later changes may be deletes.
        core.apply_replayed()
    }
}

impl Core {
    /// Adds to the totals what the buckets that the log names have gained since the epoch began.
    fn count_gains(&self, hashes: Vec<u64>) -> Result<()> {
        let state = self.state();
        let mut buckets: Vec<u64> = hashes.into_iter().map(|hash| state.bucket_of(hash)).collect();
        buckets.sort_unstable();
        buckets.dedup();
        let mut sums = Sums::default();
        for numbers in buckets.chunks(BUCKETS_MAX) {
            let blocks = self.io.read_many(numbers)?;
            for (number, block) in numbers.iter().zip(&blocks) {
                let header = *self.codec.open(*number, block)?.header();
                if header.epoch == self.epoch() {
                    sums.plus(&header.now);
                    sums.minus(&header.before);
                }
            }
            self.io.give_back(blocks);
        }
        self.add_to_totals(&sums);
        Ok(())
    }

    /// Takes the operations of a record; applies what waits if it takes as much memory as it may, and if there was
    /// space for that so far.
    fn take_replayed(&self, first: u64, operations: Operations, has_space: &mut bool) -> Result<()> {
        let pending = &self.writes.pending;
        let changes = Arc::new(Changes::new(operations, self.seed));
        if *has_space && !pending.has_room(changes.pending_bytes()) {
            *has_space = self.apply_replayed()?;
        }
        pending.reserve(&changes);
        for (index, sequence) in (first..).take(changes.len()).enumerate() {
            pending.insert(PendingChange::new(sequence, &changes, index));
        }
        Ok(())
    }

    /// Applies the replayed changes. Returns false if space is missing for some of them.
    fn apply_replayed(&self) -> Result<bool> {
        let mut has_space = true;
        for partition in 0..self.writes.pending.partitions().len() {
            let is_short = || self.apply_pending(partition, u64::MAX).map(drop);
            has_space &= !self.is_short_after(Party::Worker(partition), is_short)?;
        }
        Ok(has_space)
    }
}
