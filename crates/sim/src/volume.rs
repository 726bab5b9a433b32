//! A volume in memory that loses, tears and rots as real ones do, when its plan or its seed says so.
//!
//! # Algorithm
//!
//! Every operation goes the same way:
//!
//! 1. Yield to other threads. If the calling thread's process is dead, fail without effect.
//! 2. Count, and ask the fault plan for a verdict: an error, a silent fault, a delay, or the crash.
//! 3. Make the effect *visible*, but not durable; yield: a crash image taken now shows the operation in flight.
//! 4. Make durable what the operation promises. Record it in the trace; yield.
//!
//! A submitted read does the same on a thread of its own: the seed draws the order in which reads complete.
//!
//! [`SimVolume::crash`] copies the disk as a power failure would leave it, [`SimVolume::crash_keep_all`] as the death
//! of the process would. The copy is a new world: handles of the old one go on working there, and only there.
//!
//! **Invariants.** Exactly what the table in `situ_storage`'s documentation promises survives every crash image.
//! **Threads.** One lock around everything, never held across a yield point. Without a `SimExecutor`, on
//! `Env::system()`, real threads may use the volume at once; then a seed does not replay.
//! **Failure.** As planned; the volume itself never fails.

use crate::compression::Compression;
use crate::disk::{Disk, Inode, NameChangeKind};
use crate::executor::is_dying;
use crate::fate::{Fate, Power, Verdict};
use crate::fault::{Fault, FaultPlan, FaultState, Operation};
use crate::trace::{Trace, hash_bytes};
use crate::{Rng, crash, damage};
use damage::{crash_error, flip_one, io_error};
use handles::{Handle, SimPageFile, SimReader, SimWriter};
use situ_base::Env;
use situ_base::lock;
use situ_device::Compresses;
use situ_storage::{
    Error, FileMeta, FileName, Lock, Nature, PAGE_BYTES, PageFile, Reader, Result, Space, Volume, Writer,
};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// The size that a volume without a limit says it has.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// A simulated volume. Clones are the same volume; it is a [`Volume`] itself.
///
/// ```
/// use situ_sim::{FaultPlan, SimExecutor, SimVolume};
/// use situ_storage::{FileName, Volume};
///
/// let sim = SimExecutor::new(1);
/// let volume = SimVolume::new(&sim.env(), FaultPlan::none(), 1);
/// let after = sim.run(|| {
///     let mut writer = volume.create(FileName::Table(1), 0).unwrap();
///     writer.append(b"safe").unwrap();
///     writer.sync().unwrap();
///     writer.append(b"perhaps").unwrap();
///     writer.flush().unwrap();
///     volume.crash(99)
/// });
/// assert!(after.contents(FileName::Table(1)).unwrap().starts_with(b"safe"));
/// ```
#[derive(Clone)]
pub struct SimVolume {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    location: String,
    state: Mutex<State>,
    trace: Trace,
}

struct State {
    disk: Disk,
    fate: Fate,
}

/// The subject of an operation, for errors and traces.
#[derive(Clone, Copy)]
struct Subject {
    operation: Operation,
    file: Option<FileName>,
    offset: u64,
    bytes: u64,
    content: u64,
}

impl Subject {
    fn new(operation: Operation, file: impl Into<Option<FileName>>) -> Subject {
        Subject { operation, file: file.into(), offset: 0, bytes: 0, content: 0 }
    }

    fn range(self, offset: u64, bytes: usize) -> Subject {
        Subject { offset, bytes: bytes as u64, ..self }
    }

    fn content(self, bytes: &[u8]) -> Subject {
        Subject { content: hash_bytes(bytes), ..self }
    }
}

impl SimVolume {
    /// Creates an empty volume. `env` gives yield points and the time for delays; `seed` decides about probable faults.
    pub fn new(env: &Env, plan: FaultPlan, seed: u64) -> SimVolume {
        SimVolume::with_disk(env.clone(), "sim".to_owned(), Disk::default(), plan, seed)
    }

    /// Like [`new`](SimVolume::new), with a location of its own: for machines with several volumes.
    pub fn named(env: &Env, location: &str, plan: FaultPlan, seed: u64) -> SimVolume {
        SimVolume::with_disk(env.clone(), location.to_owned(), Disk::default(), plan, seed)
    }

    fn with_disk(env: Env, location: String, disk: Disk, plan: FaultPlan, seed: u64) -> SimVolume {
        let state = State { disk, fate: Fate::new(plan, seed) };
        SimVolume { shared: Arc::new(Shared { env, location, state: Mutex::new(state), trace: Trace::default() }) }
    }

    /// Exchanges the plan; the new rules count from zero. The effects of earlier faults on the data stay.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.shared.lock().fate.faults = FaultState::new(plan);
    }

    /// Compresses from now on; what is there counts as in use, and not as written. To be called again for other limits.
    /// Copies of the volume compress alike.
    pub fn set_compression(&self, compression: Compression) {
        self.shared.lock().disk.set_compression(compression);
    }

    /// Makes every operation fail as after a crash, from the change with this number on (see
    /// [`changes`](SimVolume::changes)). That change itself is caught half-way: visible in the crash image or not, as
    /// chance has it.
    pub fn crash_at(&self, change: u64) {
        self.shared.lock().fate.crash_at = Some(change);
    }

    /// Returns true if [`crash_at`](SimVolume::crash_at) has struck, here or on a disk of the same machine.
    pub fn has_crashed(&self) -> bool {
        self.power().has_failed()
    }

    pub(crate) fn power(&self) -> Power {
        self.shared.lock().fate.power.clone()
    }

    /// Puts this volume into the machine of another disk: when one crashes, so does the other at that moment. Each then
    /// has losses of its own.
    pub fn share_power(&self, with: impl Into<Power>) {
        let power = with.into();
        self.shared.lock().fate.power = power;
    }

    /// Operations so far, failed ones included.
    pub fn operations(&self) -> u64 {
        self.shared.lock().fate.operations
    }

    /// Operations so far that could change the disk ([`Operation::CHANGES`]). Crashes between two of them are alike, so
    /// a workload with `n` changes has `n` crash points.
    pub fn changes(&self) -> u64 {
        self.shared.lock().fate.changes
    }

    /// Returns the operations on this volume.
    pub fn trace(&self) -> Trace {
        self.shared.trace.clone()
    }

    /// Returns the disk after a power failure at this moment: one of the images that the contract allows, chosen by
    /// `seed`. The new volume has no faults. This one is not touched.
    pub fn crash(&self, seed: u64) -> SimVolume {
        let mut rng = Rng::new(seed);
        let state = self.shared.lock();
        let disk = crash::power_failure(&state.disk, &mut rng, state.fate.faults.plan.tear_sectors);
        drop(state);
        let shared = &self.shared;
        SimVolume::with_disk(shared.env.clone(), shared.location.clone(), disk, FaultPlan::none(), rng.next_u64())
    }

    /// Returns the disk after the death of the process at this moment: everything handed to the system is there,
    /// without the bytes that a [`Writer`] had still in memory. Bytes that were not durable still are not, and can be
    /// lost by a later [`crash`](SimVolume::crash). The new volume has no faults. This one is not touched.
    pub fn crash_keep_all(&self) -> SimVolume {
        self.on(&self.shared.env)
    }

    /// This volume as it is now, moved to another machine: later operations use that one's clock and scheduler. No
    /// faults; this volume is not touched.
    pub fn on(&self, env: &Env) -> SimVolume {
        let mut state = self.shared.lock();
        let disk = crash::process_death(&state.disk);
        let seed = state.fate.rng.next_u64();
        drop(state);
        SimVolume::with_disk(env.clone(), self.shared.location.clone(), disk, FaultPlan::none(), seed)
    }

    /// Returns the contents of a file, as reads would see them without faults; `None` if there is no such file. This is
    /// not an operation.
    pub fn contents(&self, name: FileName) -> Option<Vec<u8>> {
        self.shared.lock().disk.lookup(name).map(|inode| inode.contents.to_vec())
    }

    /// Puts a file of these bytes in place, durably. Not an operation: for decoders that are to meet arbitrary bytes.
    pub fn set_contents(&self, name: FileName, contents: &[u8]) {
        let disk = &mut self.shared.lock().disk;
        let inode = disk.add(Inode::durable(contents.to_vec()));
        let change = disk.change_names(NameChangeKind::Link { name, inode });
        disk.commit_name(change);
    }

    /// Rots a byte: inverts bit `bit % 8` of the byte at `offset`, for reads and for crash images. Returns false,
    /// having done nothing, if the file has no such byte.
    pub fn rot(&self, name: FileName, offset: u64, bit: u8) -> bool {
        let disk = &mut self.shared.lock().disk;
        let Some(number) = disk.names.get(&name).copied() else { return false };
        let inode = disk.inode(number);
        let exists = offset < inode.contents.len() as u64;
        if exists {
            inode.flip(offset as usize, bit);
        }
        exists
    }
}

impl From<&SimVolume> for Power {
    fn from(volume: &SimVolume) -> Power {
        volume.power()
    }
}

impl fmt::Debug for SimVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        write!(f, "SimVolume({} files, {} operations)", state.disk.names.len(), state.fate.operations)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn path(&self, file: Option<FileName>) -> String {
        file.map_or_else(|| self.location.clone(), |name| format!("{}/{name}", self.location))
    }

    fn fail(&self, subject: Subject, error: io::Error) -> Error {
        Error::io(subject.operation.verb(), self.path(subject.file), error)
    }

    /// Runs steps 1 to 4 around `body`.
    fn operate<T>(&self, subject: Subject, body: impl FnOnce(Verdict) -> Result<T>) -> Result<T> {
        self.env.executor.yield_point();
        if is_dying() {
            return Err(self.fail(subject, crash_error()));
        }
        let result = self.judge(subject).and_then(body);
        self.record(subject, result.as_ref().err());
        self.env.executor.yield_point();
        result
    }

    fn judge(&self, subject: Subject) -> Result<Verdict> {
        let place = subject.offset..subject.offset.saturating_add(subject.bytes);
        let judged = self.lock().fate.judge(subject.operation, subject.file, &place);
        let (verdict, delay) = judged.ok_or_else(|| self.fail(subject, crash_error()))?;
        if !delay.is_zero() {
            self.env.clock.sleep(delay);
        }
        let stores = matches!(subject.operation, Operation::Append | Operation::WritePages);
        match verdict.fault {
            // A failing write may leave something behind, and a failing sync drops something: their bodies do it.
            Some(Fault::Io | Fault::NoSpace) if stores => Ok(verdict),
            // So may a page file that could not be made: its name, for a moment.
            Some(Fault::Io | Fault::NoSpace) if subject.operation == Operation::CreatePages => Ok(verdict),
            Some(Fault::DropDirty) => Ok(verdict),
            Some(fault) => io_error(fault).map_or(Ok(verdict), |error| Err(self.fail(subject, error))),
            None => Ok(verdict),
        }
    }

    /// Returns the state, for an operation's effect; an error if the machine crashed before it.
    fn effect(&self, subject: Subject, verdict: Verdict) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.fate.power.has_failed() && !verdict.crashes {
            return Err(self.fail(subject, crash_error()));
        }
        Ok(state)
    }

    /// Locks the state between the visible and the durable half of an operation.
    fn half_way(&self, subject: Subject, verdict: Verdict) -> Result<MutexGuard<'_, State>> {
        if verdict.crashes {
            return Err(self.fail(subject, crash_error()));
        }
        self.env.executor.yield_point();
        if is_dying() {
            return Err(self.fail(subject, crash_error()));
        }
        self.effect(subject, verdict)
    }

    fn record(&self, subject: Subject, failure: Option<&Error>) {
        let Subject { operation, file, offset, bytes, content } = subject;
        let failure = failure.map(ToString::to_string);
        self.trace.note(&self.env, operation, file, &(offset..offset.saturating_add(bytes)), content, failure);
    }

    fn check_room(&self, state: &State, subject: Subject, more: u64) -> Result<()> {
        match state.fate.faults.plan.capacity_bytes {
            Some(capacity) if state.disk.used_bytes().saturating_add(more) > capacity => {
                Err(self.fail(subject, io::Error::from_raw_os_error(28)))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a new file of these bytes finds physical space.
    fn check_physical(&self, state: &State, subject: Subject, contents: &[u8]) -> Result<()> {
        let Some(compression) = state.disk.compression else { return Ok(()) };
        let mut empty = Inode::default();
        empty.compress(&compression);
        match empty.fitting(0, contents, state.disk.physical_left()) {
            fitting if fitting < contents.len() => Err(self.fail(subject, compression.error())),
            _ => Ok(()),
        }
    }

    fn find(&self, state: &State, subject: Subject, name: FileName) -> Result<u64> {
        let found = state.disk.names.get(&name).copied();
        found.ok_or_else(|| self.fail(subject, io::ErrorKind::NotFound.into()))
    }

    fn check_free(&self, state: &State, subject: Subject, name: FileName) -> Result<()> {
        match state.disk.names.contains_key(&name) {
            true => Err(self.fail(subject, io::ErrorKind::AlreadyExists.into())),
            false => Ok(()),
        }
    }

    /// Does steps 3 and 4 of reading.
    fn read(&self, inode: u64, subject: Subject, into: &mut [u8]) -> Result<()> {
        self.operate(subject, |verdict| {
            let mut guard = self.effect(subject, verdict)?;
            let state = &mut *guard;
            let contents = &state.disk.inode(inode).contents;
            let start = usize::try_from(subject.offset).unwrap_or(usize::MAX);
            let Some(bytes) = start.checked_add(into.len()).and_then(|end| contents.get(start..end)) else {
                let want = format!("{} bytes", into.len());
                let found = format!("the end of the file at {}", contents.len());
                return Err(Error::corruption(self.path(subject.file), subject.offset, "file length", want, found));
            };
            into.copy_from_slice(bytes);
            if verdict.fault == Some(Fault::FlipBit) {
                flip_one(into, &mut state.fate.rng);
            }
            Ok(())
        })
    }

    /// Does step 3 of writing: puts the bytes, or what the verdict makes of them, where reads see them. Returns the
    /// number of the write and where it went, or the error that it ends with.
    fn store(&self, inode: u64, subject: Subject, verdict: Verdict, bytes: &[u8]) -> Result<(u64, u64)> {
        let mut guard = self.effect(subject, verdict)?;
        let State { disk, fate } = &mut *guard;
        let number = disk.number();
        if let Some(compression) = disk.compression {
            let left = disk.physical_left();
            let file = disk.inode(inode);
            let fitting = file.fitting(subject.offset, bytes, left);
            if fitting < bytes.len() {
                file.write(number, subject.offset, &bytes[..fitting]);
                return Err(self.fail(subject, compression.error()));
            }
        }
        let offset = damage::write(disk.inode(inode), number, subject.offset, bytes, verdict.fault, &mut fate.rng)
            .map_err(|error| self.fail(subject, error))?;
        Ok((number, offset))
    }
}

impl Volume for SimVolume {
    fn location(&self) -> String {
        self.shared.location.clone()
    }

    fn create(&self, name: FileName, _bound: u64) -> Result<Box<dyn Writer>> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::Create, name);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            shared.check_free(&state, subject, name)?;
            let inode = state.disk.add(Inode { handles: 1, ..Inode::default() });
            let link = state.disk.change_names(NameChangeKind::Link { name, inode });
            drop(state);
            let file = Handle { shared: Arc::clone(shared), inode, name };
            drop(shared.half_way(subject, verdict)?);
            Ok(Box::new(SimWriter { file, link, buffer: Vec::new(), handed_over: 0 }) as Box<dyn Writer>)
        })
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        let (file, bytes) = self.open_file(name)?;
        let path = self.shared.path(Some(name));
        Ok(Arc::new(SimReader { file: Arc::new(file), path, bytes }))
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        let shared = &self.shared;
        let bytes = bytes.next_multiple_of(PAGE_BYTES as u64);
        let subject = Subject::new(Operation::CreatePages, name).range(0, bytes as usize);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            shared.check_free(&state, subject, name)?;
            let refusal = verdict.fault.and_then(io_error).map(|error| shared.fail(subject, error));
            if let Err(error) = refusal.map_or_else(|| shared.check_room(&state, subject, bytes), Err) {
                // The name comes first, then the room. Neither the name nor its removal is durable.
                let inode = state.disk.add(Inode::default());
                state.disk.change_names(NameChangeKind::Link { name, inode });
                state.disk.change_names(NameChangeKind::Unlink { name });
                return Err(error);
            }
            let zeros = vec![0; bytes as usize];
            // Not durable yet: a crash half-way may leave a shorter file, or none.
            let inode = state.disk.add(Inode { contents: zeros.into(), handles: 1, ..Inode::default() });
            let link = state.disk.change_names(NameChangeKind::Link { name, inode });
            drop(state);
            let file = Handle { shared: Arc::clone(shared), inode, name };
            let mut state = shared.half_way(subject, verdict)?;
            state.disk.inode(inode).commit(link, bytes as usize, None);
            state.disk.commit_name(link);
            drop(state);
            let path = shared.path(Some(name));
            Ok(Arc::new(SimPageFile { file, path, pages: bytes / PAGE_BYTES as u64 }) as Arc<dyn PageFile>)
        })
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        let (file, bytes) = self.open_file(name)?;
        let path = self.shared.path(Some(name));
        Ok(Arc::new(SimPageFile { file, path, pages: bytes / PAGE_BYTES as u64 }))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::Replace, name).range(0, contents.len()).content(contents);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            shared.check_room(&state, subject, contents.len() as u64)?;
            shared.check_physical(&state, subject, contents)?;
            let inode = state.disk.add(Inode::durable(contents.to_vec()));
            let link = state.disk.change_names(NameChangeKind::Link { name, inode });
            drop(state);
            shared.half_way(subject, verdict)?.disk.commit_name(link);
            Ok(())
        })
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::Rename, from);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            let inode = shared.find(&state, subject, from)?;
            if from != to {
                state.disk.change_names(NameChangeKind::Move { from, to, inode });
            }
            drop(state);
            shared.half_way(subject, verdict).map(drop)
        })
    }

    fn remove(&self, name: FileName) -> Result<()> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::Remove, name);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            shared.find(&state, subject, name)?;
            state.disk.change_names(NameChangeKind::Unlink { name });
            drop(state);
            shared.half_way(subject, verdict).map(drop)
        })
    }

    fn sync_names(&self) -> Result<()> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::SyncNames, None);
        shared.operate(subject, |verdict| {
            let watermark = shared.effect(subject, verdict)?.disk.watermark();
            shared.half_way(subject, verdict)?.disk.commit_names(watermark);
            Ok(())
        })
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::List, None);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            let disk = &mut state.disk;
            let names: Vec<(FileName, u64)> = disk.names.iter().map(|(name, inode)| (*name, *inode)).collect();
            let meta = |(name, inode)| FileMeta { name, bytes: disk.inode(inode).contents.len() as u64 };
            Ok(names.into_iter().map(meta).collect())
        })
    }

    fn space(&self) -> Space {
        let state = self.shared.lock();
        Space {
            logical_total: state.fate.faults.plan.capacity_bytes.unwrap_or(UNLIMITED_BYTES),
            logical_used: state.disk.used_bytes(),
            physical_total: state.disk.compression.and_then(|compression| compression.physical_total),
            physical_used: state.disk.compression.map(|_| state.disk.physical_used()),
            physical_written: state.disk.compression.map(|_| state.disk.physical_written()),
        }
    }

    fn nature(&self) -> Nature {
        let compresses = if self.shared.lock().disk.compression.is_some() { Compresses::Yes } else { Compresses::No };
        Nature::of(compresses, "simulated disk")
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::Lock, FileName::Lock);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            if state.disk.locked {
                return Err(Error::Locked { path: shared.path(Some(FileName::Lock)), why: None });
            }
            state.disk.locked = true;
            if !state.disk.names.contains_key(&FileName::Lock) {
                let inode = state.disk.add(Inode::default());
                state.disk.change_names(NameChangeKind::Link { name: FileName::Lock, inode });
            }
            drop(state);
            Ok(Box::new(SimLock { shared: Arc::clone(shared) }) as Box<dyn Lock>)
        })
    }
}

impl SimVolume {
    fn open_file(&self, name: FileName) -> Result<(Handle, u64)> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::Open, name);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            let inode = shared.find(&state, subject, name)?;
            let file = state.disk.inode(inode);
            file.handles += 1;
            let bytes = file.contents.len() as u64;
            drop(state);
            Ok((Handle { shared: Arc::clone(shared), inode, name }, bytes))
        })
    }
}

struct SimLock {
    shared: Arc<Shared>,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.shared.lock().disk.locked = false;
    }
}

mod handles;

#[cfg(test)]
mod tests;
