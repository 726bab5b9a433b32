//! A block device in memory that loses, tears, reorders and rots as real ones do, when its plan or its seed says so.
//!
//! # Algorithm
//!
//! 1. [`Queue::submit`] yields to other threads, counts, asks the fault plan, and makes the effect *visible*, but not
//!    durable. A crash from now on leaves any of its 512-byte sectors in its old or new state.
//! 2. [`Queue::wait`] yields, lets time pass until something is finished, and completes operations in an order that the
//!    seed draws. Then a durable write is durable, and a flush makes durable the operations that had completed before
//!    it was submitted. It does not cover operations in flight at the same time. A [`Watch`] lets time pass likewise.
//!
//! [`SimDevice::crash`] copies the device as a power failure would leave it, [`SimDevice::crash_keep_all`] as the death
//! of the process would. The copy is a new world: queues of the old one go on working there, and only there.
//!
//! **Invariants.** What `situ_device` promises survives every crash image, and nothing else is sure to.
//! **Threads.** One lock around everything, never held across a yield point. `submit` is one, because there are
//! backends that do the whole work in it: a caller that submits under a lock is caught.
//! **Failure.** As planned; the device itself never fails.

use crate::compression::{Compression, Costs};
use crate::damage::{self, crash_error, flip_one, io_error};
use crate::disk::{Inode, SECTOR_BYTES, sectors};
use crate::executor::is_dying;
use crate::fate::{Fate, Power, Verdict};
use crate::fault::{Fault, FaultPlan, FaultState, Operation};
use crate::trace::{Trace, hash_bytes};
use crate::{Rng, crash};
use situ_base::lock;
use situ_base::{Env, Event};
use situ_device::{
    Buffer, Completion, Compresses, Device, DeviceLock, Geometry, Nature, NvmeController, Op, PAGE_BYTES, Queue, Space,
    Ticket, Watch,
};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// A simulated block device. Clones are the same device; it is a [`Device`] itself.
///
/// ```
/// use situ_device::{Buffer, Device, Op};
/// use situ_sim::{FaultPlan, SimDevice, SimExecutor};
///
/// let sim = SimExecutor::new(1);
/// let device = SimDevice::new(&sim.env(), 1 << 20, FaultPlan::none(), 1);
/// let after = sim.run(|| {
///     let mut queue = device.queue(1).unwrap();
///     let mut page = Buffer::new(4096);
///     page.fill(7);
///     queue.submit(Op::Write { offset: 8192, durable: true }, page).unwrap();
///     queue.wait(&mut Vec::new(), std::time::Duration::from_secs(1));
///     device.crash(99)
/// });
/// assert!(after.contents(8192..12288).iter().all(|byte| *byte == 7));
/// ```
#[derive(Clone)]
pub struct SimDevice {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    seed: u64,
    /// The controller by which the driver reaches the device, if it does.
    controller: Mutex<Weak<NvmeController>>,
    geometry: Geometry,
    state: Mutex<State>,
    trace: Trace,
}

struct State {
    blocks: Inode,
    fate: Fate,
    /// The number of the last write.
    watermark: u64,
    /// Writes that are submitted and not complete, with their sectors.
    in_flight: BTreeMap<u64, Range<u64>>,
    locked: bool,
    /// The compression, for a device that compresses.
    compression: Option<Compression>,
}

impl SimDevice {
    /// Creates a device of `bytes` zeros that has a volatile cache, discards pages, and zeroes nothing by discarding.
    pub fn new(env: &Env, bytes: u64, plan: FaultPlan, seed: u64) -> SimDevice {
        let geometry = Geometry {
            block_bytes: PAGE_BYTES as u32,
            atomic_write_bytes: SECTOR_BYTES as u32,
            max_transfer_bytes: 1 << 20,
            volatile_write_cache: true,
            discard_bytes: PAGE_BYTES as u32,
            discard_zeroes: false,
        };
        SimDevice::with_geometry(env, bytes, geometry, plan, seed)
    }

    /// Returns a device of `bytes` zeros, made as `geometry` says.
    pub fn with_geometry(env: &Env, bytes: u64, geometry: Geometry, plan: FaultPlan, seed: u64) -> SimDevice {
        SimDevice::of(env, Inode::durable(vec![0; bytes as usize]), geometry, plan, seed)
    }

    fn of(env: &Env, blocks: Inode, geometry: Geometry, plan: FaultPlan, seed: u64) -> SimDevice {
        let (fate, in_flight) = (Fate::new(plan, seed), BTreeMap::new());
        let state = State { blocks, fate, watermark: 0, in_flight, locked: false, compression: None };
        let (state, trace) = (Mutex::new(state), Trace::default());
        SimDevice {
            shared: Arc::new(Shared { env: env.clone(), seed, controller: Mutex::default(), geometry, state, trace }),
        }
    }

    /// Exchanges the plan; the new rules count from zero. The effects of earlier faults on the data stay.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.shared.lock().fate.faults = FaultState::new(plan);
    }

    /// Compresses from now on; what is there counts as in use, and not as written. To be called again for other limits.
    /// Copies of the device compress alike.
    pub fn set_compression(&self, compression: Compression) {
        let mut state = self.shared.lock();
        let before = state.compression.replace(compression);
        if before.is_none_or(|before| before.has_cliff != compression.has_cliff) {
            state.blocks.compress(&compression);
        }
    }

    /// Makes every operation fail as after a crash, from the change with this number on (see
    /// [`changes`](SimDevice::changes)). That change itself is caught half-way: in the crash image or not, or in part,
    /// as chance has it.
    pub fn crash_at(&self, change: u64) {
        self.shared.lock().fate.crash_at = Some(change);
    }

    /// Returns true if [`crash_at`](SimDevice::crash_at) has struck, here or on a disk of the same machine.
    pub fn has_crashed(&self) -> bool {
        self.power().has_failed()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.shared.seed
    }

    pub(crate) fn controller(&self) -> &Mutex<Weak<NvmeController>> {
        &self.shared.controller
    }

    pub(crate) fn env(&self) -> Env {
        self.shared.env.clone()
    }

    pub(crate) fn power(&self) -> Power {
        self.shared.lock().fate.power.clone()
    }

    /// Puts this device into the machine of another disk: when one crashes, so does the other at that moment. Each then
    /// has losses of its own.
    pub fn share_power(&self, with: impl Into<Power>) {
        let power = with.into();
        self.shared.lock().fate.power = power;
    }

    /// Operations so far, failed ones included.
    pub fn operations(&self) -> u64 {
        self.shared.lock().fate.operations
    }

    /// Operations so far that could change the device ([`Operation::CHANGES`]): its crash points.
    pub fn changes(&self) -> u64 {
        self.shared.lock().fate.changes
    }

    /// Returns the operations on this device.
    pub fn trace(&self) -> Trace {
        self.shared.trace.clone()
    }

    /// Returns the device after a power failure at this moment: one of the images that the contract allows, chosen by
    /// `seed`. The new device has no faults. This one is not touched.
    pub fn crash(&self, seed: u64) -> SimDevice {
        let mut rng = Rng::new(seed);
        let state = self.shared.lock();
        let compression = state.compression;
        let atomic_sectors = u64::from(self.shared.geometry.atomic_write_bytes) / SECTOR_BYTES as u64;
        let tears = state.fate.faults.plan.tear_sectors;
        let blocks = crash::device_power_failure(&state.blocks, &mut rng, tears, atomic_sectors);
        drop(state);
        let shared = &self.shared;
        let device = SimDevice::of(&shared.env, blocks, shared.geometry, FaultPlan::none(), rng.next_u64());
        device.shared.lock().compression = compression;
        device
    }

    /// Returns the device after the death of the process at this moment: everything submitted is there. Bytes that were
    /// not durable still are not, and can be lost by a later [`crash`](SimDevice::crash). The new device has no faults.
    /// This one is not touched.
    pub fn crash_keep_all(&self) -> SimDevice {
        self.on(&self.shared.env)
    }

    /// This device as it is now, in another machine: later operations use that one's clock and scheduler. No faults;
    /// this device is not touched.
    pub fn on(&self, env: &Env) -> SimDevice {
        let mut state = self.shared.lock();
        let (mut blocks, seed, watermark) = (state.blocks.clone(), state.fate.rng.next_u64(), state.watermark);
        let compression = state.compression;
        drop(state);
        if !self.shared.geometry.volatile_write_cache {
            // Nothing lies between the caller and what survives: what the next machine reads is there for good.
            blocks = blocks.after_crash(blocks.contents.clone());
        }
        let device = SimDevice::of(env, blocks, self.shared.geometry, FaultPlan::none(), seed);
        let mut copy = device.shared.lock();
        (copy.watermark, copy.compression) = (watermark, compression);
        drop(copy);
        device
    }

    /// Returns the same bytes on a device that ends after `bytes`, or goes on with zeros.
    pub fn resized(&self, bytes: u64) -> SimDevice {
        let state = self.shared.lock();
        let (mut contents, compression) = (state.blocks.contents.clone(), state.compression);
        drop(state);
        Arc::make_mut(&mut contents).resize(bytes as usize, 0);
        let shared = &self.shared;
        let device = SimDevice::of(&shared.env, Inode::durable(contents), shared.geometry, FaultPlan::none(), bytes);
        compression.into_iter().for_each(|compression| device.set_compression(compression));
        device
    }

    /// Returns the bytes that reads would see without faults. This is not an operation.
    ///
    /// # Panics
    /// The range is not on the device.
    pub fn contents(&self, range: Range<u64>) -> Vec<u8> {
        self.shared.lock().blocks.contents[range.start as usize..range.end as usize].to_vec()
    }

    /// Puts bytes in place, durably. Not an operation: for decoders that are to meet arbitrary bytes.
    ///
    /// # Panics
    /// The range is not on the device.
    pub fn set_contents(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.shared.lock();
        let range = offset as usize..offset as usize + bytes.len();
        Arc::make_mut(&mut state.blocks.contents)[range.clone()].copy_from_slice(bytes);
        Arc::make_mut(&mut state.blocks.durable)[range].copy_from_slice(bytes);
        state.blocks.drop_dirty(Some(sectors(offset, bytes.len())));
        let Inode { contents, costs, .. } = &mut state.blocks;
        costs.iter_mut().for_each(|costs| costs.update(contents, offset as usize..offset as usize + bytes.len()));
    }

    /// Rots a byte: inverts bit `bit % 8` of the byte at `offset`, for reads and for crash images.
    pub fn rot(&self, offset: u64, bit: u8) {
        self.shared.lock().blocks.flip(offset as usize, bit);
    }
}

impl From<&SimDevice> for Power {
    fn from(device: &SimDevice) -> Power {
        device.power()
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        write!(f, "SimDevice({} bytes, {} operations)", state.blocks.contents.len(), state.fate.operations)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn record(&self, operation: Operation, place: &Range<u64>, content: u64, failure: Option<&io::Error>) {
        let failure = failure.map(ToString::to_string);
        self.trace.note(&self.env, operation, None, place, content, failure);
    }
}

fn place_of(op: Op, buffer: &Buffer) -> (Operation, Range<u64>) {
    let of = |offset: u64, bytes: u64| offset..offset.saturating_add(bytes);
    match op {
        Op::Read { offset } => (Operation::Read, of(offset, buffer.len() as u64)),
        Op::Write { offset, .. } => (Operation::WritePages, of(offset, buffer.len() as u64)),
        Op::Flush => (Operation::Sync, 0..0),
        Op::Discard { offset, bytes } => (Operation::Discard, of(offset, bytes)),
        Op::Zero { offset, bytes } => (Operation::Zero, of(offset, bytes)),
    }
}

impl Device for SimDevice {
    fn describe(&self) -> String {
        format!("simulated device of {} bytes", self.shared.lock().blocks.contents.len())
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        let shared = &self.shared;
        shared.env.executor.yield_point();
        if is_dying() {
            return Err(crash_error());
        }
        let mut state = shared.lock();
        let (verdict, _) = state.fate.judge(Operation::Lock, None, &(0..0)).ok_or_else(crash_error)?;
        if let Some(error) = verdict.fault.and_then(io_error) {
            return Err(error);
        }
        if std::mem::replace(&mut state.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        drop(state);
        Ok(Box::new(SimDeviceLock { shared: Arc::clone(shared) }))
    }

    fn geometry(&self) -> Geometry {
        self.shared.geometry
    }

    fn space(&self) -> Space {
        let state = self.shared.lock();
        let bytes = state.blocks.contents.len() as u64;
        Space {
            logical_total: bytes,
            logical_used: bytes,
            physical_total: state.compression.and_then(|compression| compression.physical_total),
            physical_used: state.blocks.costs.as_ref().map(Costs::used),
            physical_written: state.blocks.costs.as_ref().map(Costs::written),
        }
    }

    fn nature(&self) -> Nature {
        let compresses = if self.shared.lock().compression.is_some() { Compresses::Yes } else { Compresses::No };
        Nature::of(compresses, "simulated device")
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        let shared = Arc::clone(&self.shared);
        let depth = depth.max(1) as usize;
        Ok(Box::new(SimQueue { shared, depth, next_ticket: 0, flights: Vec::new(), watch: None }))
    }
}

struct SimDeviceLock {
    shared: Arc<Shared>,
}

impl DeviceLock for SimDeviceLock {}

impl fmt::Debug for SimDeviceLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimDeviceLock")
    }
}

impl Drop for SimDeviceLock {
    fn drop(&mut self) {
        self.shared.lock().locked = false;
    }
}

struct SimQueue {
    shared: Arc<Shared>,
    depth: usize,
    next_ticket: u64,
    flights: Vec<Flight>,
    watch: Option<Arc<SimWatch>>,
}

/// Waits for the first operation of a queue to be finished, by simulated time.
struct SimWatch {
    env: Env,
    /// The time when the first one is finished.
    first: Mutex<Option<Duration>>,
    woken: Arc<dyn Event>,
    /// Wakes that have ended a wait.
    seen: AtomicU64,
}

impl Watch for SimWatch {
    fn wait(&self, timeout: Option<Duration>) {
        let seen = self.seen.load(Ordering::Acquire);
        let first = *lock(&self.first);
        let left = first.map(|at| at.saturating_sub(self.env.clock.now()));
        match left {
            Some(Duration::ZERO) => self.env.executor.yield_point(),
            _ => drop(self.woken.wait(seen, left.into_iter().chain(timeout).min())),
        }
        self.seen.store(self.woken.generation(), Ordering::Release);
    }

    fn wake(&self) {
        self.woken.notify();
    }
}

/// An operation that is submitted and not complete.
struct Flight {
    ticket: Ticket,
    op: Op,
    buffer: Buffer,
    ready_at: Duration,
    fault: Option<Fault>,
    /// The outcome, as far as it is decided.
    result: io::Result<()>,
    /// The number of a write, and the sectors where it went.
    written: Option<(u64, Range<u64>)>,
    /// The writes before a flush, and the writes in flight then.
    watermark: u64,
    beside: Vec<Range<u64>>,
}

impl SimQueue {
    fn check(&self, op: Op, buffer: &Buffer) -> io::Result<()> {
        let geometry = &self.shared.geometry;
        let (_, place) = place_of(op, buffer);
        let block = u64::from(geometry.block_bytes);
        let is_moving = matches!(op, Op::Read { .. } | Op::Write { .. });
        let bytes = place.end - place.start;
        let device_bytes = self.shared.lock().blocks.contents.len() as u64;
        let why = if place.start % block != 0 || bytes % block != 0 {
            "not in whole blocks"
        } else if is_moving && bytes > u64::from(geometry.max_transfer_bytes) {
            "longer than a transfer"
        } else if place.end > device_bytes {
            "ends behind the device"
        } else if matches!(op, Op::Discard { .. }) && geometry.discard_bytes == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{op:?} of {bytes} bytes: {why}")))
    }

    /// Counts the operation, and makes its effect visible.
    fn take_off(&mut self, op: Op, mut buffer: Buffer) -> Flight {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let (operation, place) = place_of(op, &buffer);
        let now = self.shared.env.clock.now();
        let mut guard = self.shared.lock();
        let judged = if is_dying() { None } else { guard.fate.judge(operation, None, &place) };
        let (Verdict { fault, crashes }, delay) = match judged {
            Some(judged) => judged,
            None => {
                let (ready_at, result) = (now, Err(crash_error()));
                let (fault, written) = (None, None);
                return Flight {
                    ticket,
                    op,
                    buffer,
                    ready_at,
                    fault,
                    result,
                    written,
                    watermark: 0,
                    beside: Vec::new(),
                };
            }
        };
        let state = &mut *guard;
        let mut flight = Flight {
            ticket,
            op,
            buffer: Buffer::new(1),
            ready_at: now + delay,
            fault,
            result: if crashes { Err(crash_error()) } else { Ok(()) },
            written: None,
            watermark: state.watermark,
            beside: state.in_flight.values().cloned().collect(),
        };
        let is_write = matches!(op, Op::Write { .. });
        let stores = is_write && matches!(fault, Some(Fault::Io | Fault::NoSpace));
        match fault.and_then(io_error) {
            Some(error) if !stores && fault != Some(Fault::DropDirty) => flight.result = Err(error),
            _ => state.show(op, &mut buffer, &mut flight, self.shared.geometry.discard_zeroes),
        }
        flight.buffer = buffer;
        flight
    }

    /// Does the durable half of an operation, and returns its answer.
    fn land(&self, flight: Flight) -> Completion {
        let Flight { ticket, op, buffer, fault, mut result, written, watermark, beside, .. } = flight;
        let (operation, place) = place_of(op, &buffer);
        {
            let mut guard = self.shared.lock();
            let state = &mut *guard;
            if let Some((number, _)) = &written {
                state.in_flight.remove(number);
            }
            if (state.fate.power.has_failed() || is_dying()) && result.is_ok() {
                result = Err(crash_error());
            }
            if result.is_ok() {
                let now: Vec<Range<u64>> = state.in_flight.values().cloned().collect();
                let flushed = (watermark, &beside[..], &now[..]);
                result = settle(&mut state.blocks, &self.shared.geometry, op, fault, written, flushed);
            }
        }
        let content = if matches!(op, Op::Write { .. }) { hash_bytes(&buffer) } else { 0 };
        self.shared.record(operation, &place, content, result.as_ref().err());
        Completion { ticket, op, buffer, result }
    }

    /// Tells the watch when there is something to collect.
    fn tell_watch(&self) {
        if let Some(watch) = &self.watch {
            *lock(&watch.first) = self.flights.iter().map(|flight| flight.ready_at).min();
        }
    }

    /// Completes everything, for a process that dies.
    fn give_up(&mut self, done: &mut Vec<Completion>) -> usize {
        let flights = std::mem::take(&mut self.flights);
        let count = flights.len();
        done.extend(flights.into_iter().map(|flight| self.land(flight)));
        self.tell_watch();
        count
    }

    /// Completes some of what is ready, in any order.
    fn complete(&mut self, done: &mut Vec<Completion>, at_least: usize) -> usize {
        let now = self.shared.env.clock.now();
        let mut ready: Vec<Ticket> =
            self.flights.iter().filter(|flight| flight.ready_at <= now).map(|flight| flight.ticket).collect();
        let count = {
            let rng = &mut self.shared.lock().fate.rng;
            rng.shuffle(&mut ready);
            (rng.index(ready.len() + 1)).max(at_least.min(ready.len()))
        };
        for ticket in &ready[..count] {
            let at = self.flights.iter().position(|flight| flight.ticket == *ticket).expect("it is ready");
            let flight = self.flights.swap_remove(at);
            done.push(self.land(flight));
        }
        self.tell_watch();
        count
    }
}

impl State {
    /// Makes an operation's effect visible to reads, and to crashes that keep it.
    fn show(&mut self, op: Op, buffer: &mut Buffer, flight: &mut Flight, zeroes: bool) {
        let compression = self.compression.unwrap_or_default();
        let left = compression.left(self.blocks.costs.as_ref().map_or(0, Costs::used));
        let full = compression.error();
        let State { blocks, fate: Fate { rng, .. }, watermark, in_flight, .. } = self;
        let fault = flight.fault;
        let put = |offset: u64, bytes: &[u8], fault| {
            *watermark += 1;
            let number = *watermark;
            let fitting = blocks.fitting(offset, bytes, left);
            if fitting < bytes.len() {
                blocks.write(number, offset, &bytes[..fitting]);
                flight.result = Err(full);
                return;
            }
            match damage::write(blocks, number, offset, bytes, fault, rng) {
                Ok(offset) => {
                    let written = sectors(offset, bytes.len());
                    in_flight.insert(number, written.clone());
                    flight.written = Some((number, written));
                }
                Err(error) => flight.result = Err(error),
            }
        };
        match op {
            Op::Read { offset } => {
                let end = offset as usize + buffer.len();
                buffer.copy_from_slice(&blocks.contents[offset as usize..end]);
                if fault == Some(Fault::FlipBit) {
                    flip_one(buffer, rng);
                }
            }
            Op::Write { offset, .. } => put(offset, buffer, fault),
            Op::Zero { offset, bytes } => put(offset, &vec![0; bytes as usize], None),
            Op::Discard { offset, bytes } => {
                // Undefined from now on: as before, zeros, or something else.
                let mut after = vec![0; bytes as usize];
                match rng.below(3) {
                    _ if zeroes => {}
                    0 => after.copy_from_slice(&blocks.contents[offset as usize..(offset + bytes) as usize]),
                    1 => rng.fill(&mut after),
                    _ => {}
                }
                *watermark += 1;
                blocks.write(*watermark, offset, &after);
                if let Some(costs) = &mut blocks.costs {
                    costs.discard(offset as usize..(offset + bytes) as usize);
                }
            }
            Op::Flush => {}
        }
    }
}

fn settle(
    blocks: &mut Inode,
    geometry: &Geometry,
    op: Op,
    fault: Option<Fault>,
    written: Option<(u64, Range<u64>)>,
    (watermark, beside, now_in_flight): (u64, &[Range<u64>], &[Range<u64>]),
) -> io::Result<()> {
    let durable = match op {
        Op::Write { durable, .. } => durable || !geometry.volatile_write_cache,
        Op::Flush => true,
        _ => !geometry.volatile_write_cache,
    };
    match fault {
        Some(Fault::DropDirty) => {
            match written {
                Some((_, sectors)) => blocks.drop_dirty(Some(sectors)),
                None => blocks.drop_dirty_except(now_in_flight),
            }
            Err(io::Error::from_raw_os_error(5))
        }
        Some(Fault::FalseDurability | Fault::LoseWrite) => Ok(()),
        _ => {
            match written {
                Some((number, sectors)) if durable => blocks.commit(number, 0, Some(sectors)),
                None if op == Op::Flush => blocks.commit_except(watermark, beside),
                _ => {}
            }
            Ok(())
        }
    }
}

impl Queue for SimQueue {
    fn submit(&mut self, op: Op, buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        self.shared.env.executor.yield_point();
        if self.flights.len() >= self.depth {
            return Err((buffer, io::ErrorKind::WouldBlock.into()));
        }
        if let Err(error) = self.check(op, &buffer) {
            return Err((buffer, error));
        }
        let flight = self.take_off(op, buffer);
        let ticket = flight.ticket;
        self.flights.push(flight);
        self.tell_watch();
        Ok(ticket)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        match self.flights.is_empty() {
            true => 0,
            // No time passes for a thread that dies. What stands on the queue, as a controller does, waits by looks.
            false if is_dying() => self.give_up(done),
            false => self.complete(done, 0),
        }
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) -> usize {
        self.shared.env.executor.yield_point();
        let Some(first) = self.flights.iter().map(|flight| flight.ready_at).min() else { return 0 };
        if is_dying() {
            return self.give_up(done);
        }
        let now = self.shared.env.clock.now();
        if first > now {
            self.shared.env.clock.sleep((first - now).min(timeout));
        }
        let count = self.complete(done, 1);
        self.shared.env.executor.yield_point();
        count
    }

    fn watch(&mut self) -> io::Result<Option<Arc<dyn Watch>>> {
        let env = self.shared.env.clone();
        let woken = env.executor.event();
        let watch = SimWatch { env, first: Mutex::new(None), woken, seen: AtomicU64::new(0) };
        let watch = Arc::clone(self.watch.get_or_insert_with(|| Arc::new(watch)));
        self.tell_watch();
        Ok(Some(watch))
    }
}

impl Drop for SimQueue {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for flight in &self.flights {
            if let Some((number, _)) = &flight.written {
                state.in_flight.remove(number);
            }
        }
    }
}

#[cfg(test)]
mod tests;
