//! The parts of an open store, and the numbers that they share.
//!
//! ```text
//!  put ──> pipeline: log ──> pending ──worker──> overflow, images, buckets        get ──> pending, bucket, overflow
//!                                       keeper: checkpoints, splits, merges
//! ```
//!
//! * `writes.rs` is what the pipeline finds; `worker.rs` applies what is pending; `keeper.rs` does what concerns all
//!   buckets.
//! * The *gate* is closed while the superblock, the epoch or the count of buckets changes.
//!
//! **Invariants.**
//! 1. The totals say what all buckets hold, as their blocks are, whenever the gate is closed.
//! 2. Each write of the superblock begins an epoch. Before it, all buckets are made durable.
//! 3. A log file is released only when all of its changes are in buckets that are durable, and the overflow is durable.
//!
//! **Threads.** One worker for each partition, one keeper, the threads of the pipeline, and those of the overflow
//! store. Locks: each is held for a few statements, none across I/O, and no two at a time.

use crate::disk::images::ImageJournal;
use crate::disk::io::BucketIo;
use crate::disk::large::LargeValues;
use crate::disk::options::HashOptions;
use crate::disk::overflow::Overflow;
use crate::format::address::State;
use crate::format::bucket::{BucketCodec, Header, Tally};
use crate::format::superblock::{SLOT_BYTES, SLOTS, Superblock, Totals};
use crate::live::gate::Gate;
use crate::live::read_queue::{Request, read_queue};
use crate::live::snapshots::Snapshots;
use crate::writing::shortage::Patience;
use crate::writing::writes::{Pipeline, Writes};
use crate::{Error, Result, StoreId};
use situ_base::{Env, StoreClock, Workers, lock};
use situ_device::Buffer;
use situ_storage::{Error as StorageError, FileName, PAGE_BYTES, PageFile, Volume};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const _: () = assert!(SLOT_BYTES == PAGE_BYTES);

/// The superblock of a store that is being made.
const MAKING: FileName = FileName::Temporary(1);

pub(crate) struct Core {
    pub(crate) env: Env,
    /// The clock by which entries expire.
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) options: HashOptions,
    pub(crate) store: StoreId,
    pub(crate) seed: u64,
    pub(crate) codec: BucketCodec,
    pub(crate) io: BucketIo,
    pub(crate) overflow: Overflow,
    /// None if no crash can tear or lose a bucket that was written.
    pub(crate) images: Option<ImageJournal>,
    pub(crate) writes: Arc<Writes>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) gate: Gate,
    pub(crate) superblock: SuperblockFile,
    base_bits: u8,
    /// The number of buckets: level and split pointer in one number.
    buckets: AtomicU64,
    epoch: AtomicU32,
    totals: Mutex<Sums>,
    pub(crate) keeper: KeeperWishes,
    pub(crate) counters: Counters,
    pub(crate) readers: Workers<Request>,
    pub(crate) snapshots: Snapshots,
    pub(crate) large: LargeValues,
    pub(crate) check: CheckUnderWay,
    /// Workers and keeper are to end.
    pub(crate) stopping: AtomicBool,
}

/// The progress of a check of all buckets, so that the check can tell what has changed behind it.
#[derive(Default)]
pub(crate) struct CheckUnderWay {
    pub(crate) runs: AtomicBool,
    /// Buckets with a lower number were checked. It changes with the gate closed.
    passed: AtomicU64,
    /// The changes of the sums of checked buckets since.
    behind: Mutex<Sums>,
}

impl CheckUnderWay {
    pub(crate) fn has_passed(&self, bucket: u64) -> bool {
        bucket < self.passed.load(Ordering::Acquire)
    }

    /// Notes that the check has come as far as this bucket.
    pub(crate) fn pass_to(&self, bucket: u64) {
        self.passed.store(bucket, Ordering::Release);
    }

    /// Notes that buckets that were checked have changed. The caller is inside the gate, or has it closed.
    pub(crate) fn changed(&self, sums: &Sums) {
        if *sums != Sums::default() {
            lock(&self.behind).add(sums);
        }
    }

    /// Returns the changes of the sums of checked buckets since. The gate is closed.
    pub(crate) fn behind(&self) -> Sums {
        *lock(&self.behind)
    }

    /// Resets the sums for a new check. The gate is closed: no worker has yet to add what belongs to an earlier check.
    pub(crate) fn reset(&self) {
        self.pass_to(0);
        *lock(&self.behind) = Sums::default();
    }
}

/// The epoch and the state when a reader began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) epoch: u32,
    pub(crate) state: State,
}

/// Requests of other threads to the keeper.
#[derive(Default)]
pub(crate) struct KeeperWishes {
    /// The keeper runs. Until then, the opening thread does the keeper's work.
    pub(crate) runs: AtomicBool,
    /// The image journal is full.
    pub(crate) image_room: AtomicBool,
    /// Checkpoints asked for, and made.
    pub(crate) checkpoints_wanted: AtomicU64,
    pub(crate) checkpoints_made: AtomicU64,
    /// The store is idle: what it owes is to be paid.
    pub(crate) pays: AtomicBool,
    /// A segment of the value log was collected, and another one may be due.
    pub(crate) collects: AtomicBool,
    /// Buckets are not to be split or merged.
    pub(crate) resizing_is_off: AtomicBool,
}

/// Counts of the store's work since it was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) splits: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) superblocks: AtomicU64,
    pub(crate) overflow_reads: AtomicU64,
    /// Reads that asked whether the device is quick, and it was not.
    pub(crate) slow_gets: AtomicU64,
    pub(crate) collections: AtomicU64,
}

/// Differences of totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) entries: i64,
    pub(crate) bytes: i64,
    pub(crate) overflow_entries: i64,
    pub(crate) overflow_bytes: i64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Sums) {
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.overflow_entries += other.overflow_entries;
        self.overflow_bytes += other.overflow_bytes;
    }

    /// Adds `tally`: a bucket holds this much more.
    pub(crate) fn plus(&mut self, tally: &Tally) {
        self.add(&Sums::from(tally));
    }

    /// Subtracts `tally`: a bucket holds this much less.
    pub(crate) fn minus(&mut self, tally: &Tally) {
        let Sums { entries, bytes, overflow_entries, overflow_bytes } = Sums::from(tally);
        self.add(&Sums {
            entries: -entries,
            bytes: -bytes,
            overflow_entries: -overflow_entries,
            overflow_bytes: -overflow_bytes,
        });
    }

    /// Returns the sums as counts. A negative sum counts as 0; [`check`](Sums::check) refuses it where it would be
    /// believed.
    pub(crate) fn to_totals(self) -> Totals {
        let count = |sum: i64| u64::try_from(sum).unwrap_or(0);
        Totals {
            entries: count(self.entries),
            bytes: count(self.bytes),
            overflow_entries: count(self.overflow_entries),
            overflow_bytes: count(self.overflow_bytes),
        }
    }

    /// Checks that buckets can hold this.
    ///
    /// # Errors
    /// A sum is negative: the superblock counted less than its buckets held.
    fn check(&self, superblock: &str) -> Result<()> {
        let Sums { entries, bytes, overflow_entries, overflow_bytes } = *self;
        if [entries, bytes, overflow_entries, overflow_bytes].iter().all(|sum| *sum >= 0) {
            return Ok(());
        }
        let expected = "counts of what the buckets hold; is the home directory older than the bucket space?";
        let found =
            format!("{entries} entries with {bytes} bytes, {overflow_entries} in the overflow with {overflow_bytes}");
        Err(situ_storage::Error::corruption(superblock, 0, "totals", expected, found).into())
    }
}

impl From<&Tally> for Sums {
    fn from(tally: &Tally) -> Sums {
        Sums {
            entries: i64::from(tally.entries),
            bytes: i64::from(tally.bytes),
            overflow_entries: i64::from(tally.overflow_entries),
            overflow_bytes: i64::from(tally.overflow_bytes),
        }
    }
}

impl From<&Totals> for Sums {
    fn from(totals: &Totals) -> Sums {
        Sums {
            entries: totals.entries as i64,
            bytes: totals.bytes as i64,
            overflow_entries: totals.overflow_entries as i64,
            overflow_bytes: totals.overflow_bytes as i64,
        }
    }
}

/// The superblock in force, and its file.
pub(crate) struct SuperblockFile {
    file: Arc<dyn PageFile>,
    current: Mutex<Superblock>,
    /// The reason why a slot was not sound when the store was opened. The store rewrote it then.
    damage: Option<Error>,
}

impl SuperblockFile {
    /// Makes the file of a superblock: `current` was read from `file`.
    pub(crate) fn new(file: Arc<dyn PageFile>, current: Superblock) -> SuperblockFile {
        SuperblockFile { file, current: Mutex::new(current), damage: None }
    }

    /// Notes that one slot was damaged when it was read.
    pub(crate) fn damaged(self, damage: Option<Error>) -> SuperblockFile {
        SuperblockFile { damage, ..self }
    }

    /// Returns the damage that opening has found, and mended.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.damage.as_ref()
    }

    /// Reads the slots and returns those that differ from the last write: number and damage of each.
    pub(crate) fn check_slots(&self) -> Result<Vec<Error>> {
        let current = lock(&self.current).clone();
        let mut slots = vec![0; SLOTS * SLOT_BYTES];
        self.file.read_at(0, &mut slots)?;
        let damages =
            slots.chunks_exact(SLOT_BYTES).enumerate().filter_map(|(number, slot)| {
                match Superblock::decode(self.file.path(), number, slot) {
                    Ok(Some(found)) if found.store == current.store && found.generation >= current.generation => None,
                    Ok(found) => {
                        let found = found.map_or("zeros".to_owned(), |found| format!("{}", found.generation));
                        let expected = current.generation.to_string();
                        let offset = (number * SLOT_BYTES) as u64;
                        Some(StorageError::corruption(self.file.path(), offset, "generation", expected, found).into())
                    }
                    Err(damage) => Some(damage),
                }
            });
        Ok(damages.collect())
    }

    /// Makes the file of a new store, which is there whole or not at all.
    pub(crate) fn create(volume: &dyn Volume, first: &Superblock) -> Result<Arc<dyn PageFile>> {
        // Left by a process that ended here.
        match volume.remove(MAKING) {
            Ok(()) => volume.sync_names()?,
            Err(StorageError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let file = volume.create_pages(MAKING, (SLOTS * SLOT_BYTES) as u64)?;
        write_slots(&*file, first)?;
        volume.rename(MAKING, FileName::Superblock)?;
        volume.sync_names()?;
        Ok(file)
    }

    pub(crate) fn current(&self) -> Superblock {
        lock(&self.current).clone()
    }

    /// Sets the device of the bucket space, for the next write.
    pub(crate) fn set_device(&self, device: Option<String>) {
        lock(&self.current).device = device;
    }

    /// Puts `next` in force; its generation is chosen here.
    pub(crate) fn write(&self, mut next: Superblock) -> Result<()> {
        next.generation = lock(&self.current).generation + 1;
        write_slots(&*self.file, &next)?;
        *lock(&self.current) = next;
        Ok(())
    }
}

/// Writes both slots, one after the other, durably.
fn write_slots(file: &dyn PageFile, superblock: &Superblock) -> Result<()> {
    let slot = Buffer::copy_of(&superblock.encode());
    (0..SLOTS as u64).try_for_each(|number| file.write(number, &slot, 1, true))?;
    Ok(())
}

/// Returns the state with this many buckets.
pub(crate) fn state_of(base_bits: u8, buckets: u64) -> State {
    let level = (buckets >> base_bits).checked_ilog2().expect("a store never has fewer buckets than at first") as u8;
    let split = buckets - (1 << (u32::from(base_bits) + u32::from(level)));
    State::from_parts(base_bits, level, split).expect("the keeper makes states that can be")
}

/// The parts of a core, apart from those that it makes itself.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) clock: Arc<StoreClock>,
    pub(crate) options: HashOptions,
    pub(crate) codec: BucketCodec,
    pub(crate) io: BucketIo,
    pub(crate) overflow: Overflow,
    pub(crate) large: LargeValues,
    pub(crate) images: Option<ImageJournal>,
    pub(crate) writes: Arc<Writes>,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) superblock: SuperblockFile,
}

/// The log files that the next superblock names as needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogBound {
    /// The same as before.
    Same,
    /// This one and later ones: buckets and overflow have all changes up to `sequence`.
    From { file: u64, sequence: u64 },
    /// None: the store is closed. The next file gets this number.
    Closed { next_file: u64, sequence: u64 },
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Core {
        let Parts { env, clock, options, codec, io, overflow, large, images, writes, pipeline, superblock } = parts;
        let Superblock { store, seed, state, epoch, totals, .. } = superblock.current();
        Core {
            gate: Gate::new(&env),
            readers: read_queue(&env),
            snapshots: Snapshots::default(),
            env,
            clock,
            options,
            store,
            seed,
            codec,
            io,
            overflow,
            large,
            images,
            writes,
            pipeline,
            superblock,
            base_bits: state.base_bits(),
            buckets: AtomicU64::new(state.buckets()),
            epoch: AtomicU32::new(epoch),
            totals: Mutex::new(Sums::from(&totals)),
            keeper: KeeperWishes::default(),
            counters: Counters::default(),
            check: CheckUnderWay::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Returns the number of buckets now, and the mapping of hashes to them.
    #[inline]
    pub(crate) fn state(&self) -> State {
        state_of(self.base_bits, self.buckets.load(Ordering::SeqCst))
    }

    /// Returns the state and the epoch. The epoch comes first: it is noted before the state.
    pub(crate) fn seen(&self) -> Seen {
        let epoch = self.epoch();
        Seen { epoch, state: self.state() }
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the contents of all buckets: numbers and lengths.
    pub(crate) fn totals(&self) -> Totals {
        lock(&self.totals).to_totals()
    }

    /// Sets the totals after a repair has counted all buckets.
    pub(crate) fn set_totals(&self, sums: Sums) {
        *lock(&self.totals) = sums;
    }

    pub(crate) fn add_to_totals(&self, sums: &Sums) {
        lock(&self.totals).add(sums);
    }

    /// Returns the time by which entries expire, in milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.milliseconds()
    }

    /// Checks that a bucket is no newer than the store.
    ///
    /// # Errors
    /// The bucket is newer: the home directory was put back, and its bucket space was not.
    pub(crate) fn require_age(&self, bucket: u64, header: &Header) -> Result<()> {
        let (epoch, sequence) = (self.epoch(), self.writes.visible());
        match header.is_within(epoch, sequence) {
            true => Ok(()),
            false => Err(self.too_new(bucket, header, epoch, sequence)),
        }
    }

    /// Returns the error that the bucket is newer than epoch or sequence number allow.
    pub(crate) fn too_new(&self, bucket: u64, header: &Header, epoch: u32, sequence: u64) -> Error {
        let expected = format!(
            "at most epoch {epoch} and operation {sequence}; is the home directory older than the bucket space?"
        );
        let found = format!("epoch {} and operation {}", header.epoch, header.sequence);
        let what = format!("age of bucket {bucket}");
        StorageError::corruption(&self.io.path, crate::format::space::bucket_offset(bucket), what, expected, found)
            .into()
    }

    /// Checks that the store takes writes. Otherwise returns the reason.
    pub(crate) fn check_sound(&self) -> Result<()> {
        self.writes.failed().map_or(Ok(()), Err)
    }

    /// Makes all buckets durable, and begins an epoch with a superblock that says how things are. With it, the image
    /// journal restarts. The gate is closed.
    pub(crate) fn begin_epoch(&self, state: State, bound: LogBound) -> Result<()> {
        // After a failure in the middle of a batch, the totals may not be those of the buckets.
        self.check_sound()?;
        lock(&self.totals).check(self.superblock.file.path())?;
        self.io.settle()?;
        self.io.flush()?;
        let before = self.superblock.current();
        let (first_log_file, sequence, is_clean) = match bound {
            LogBound::Same => (before.first_log_file, before.sequence, false),
            LogBound::From { file, sequence } => (file, sequence, false),
            LogBound::Closed { next_file, sequence } => (next_file, sequence, true),
        };
        let next = Superblock {
            is_clean,
            state,
            epoch: before.epoch + 1,
            sequence,
            first_log_file,
            next_file: self.writes.next_log().max(first_log_file),
            first_image_batch: self.images.as_ref().map_or(before.first_image_batch, ImageJournal::next_batch),
            totals: self.totals(),
            ..before
        };
        let epoch = next.epoch;
        self.write_superblock(next)?;
        self.counters.superblocks.fetch_add(1, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Release);
        self.buckets.store(state.buckets(), Ordering::SeqCst);
        self.images_begin_anew();
        Ok(())
    }

    /// Writes the superblock, and repeats that until it succeeds: a slot may have the next state already, and the store
    /// would still change the present one.
    fn write_superblock(&self, next: Superblock) -> Result<()> {
        self.patiently(Patience::UntilSpace, || self.superblock.write(next.clone()).map_err(Error::or_out_of_space))
    }

    /// Restarts the image journal. The superblock says durably that no image is needed. Workers that wait for room go
    /// on.
    fn images_begin_anew(&self) {
        let Some(images) = &self.images else { return };
        images.restart();
        self.keeper.image_room.store(false, Ordering::Release);
        self.writes.progress.notify();
    }

    /// Makes all buckets durable, says so in the superblock, and restarts the image journal. The gate is closed, or
    /// workers do not run yet.
    pub(crate) fn restart_images(&self) -> Result<()> {
        let Some(images) = &self.images else { return Ok(()) };
        self.check_sound()?;
        self.io.settle()?;
        self.io.flush()?;
        self.write_superblock(Superblock { first_image_batch: images.next_batch(), ..self.superblock.current() })?;
        self.images_begin_anew();
        Ok(())
    }
}
