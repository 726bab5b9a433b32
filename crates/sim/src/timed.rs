//! A block device in memory whose operations take time, and no processor.
//!
//! A number of channels serve one operation each. An operation that finds all channels busy waits for the one that is
//! free first. Its effect is there at once; its completion comes when its time is over, and is found by looking.
//!
//! On a machine, a wait sleeps while there is much time left. It lets other threads run in the last 60 us, because a
//! sleep may be that late. In the simulated world, simulated time passes.

use situ_base::{Env, Event, lock};
use situ_device::{Buffer, Completion, Device, DeviceLock, Geometry, Op, PAGE_BYTES, Queue, Space, Ticket, Watch};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes under one lock.
const STRIPE_BYTES: usize = 64 << 10;

/// The lateness of a short sleep.
const SLEEP_LATE: Duration = Duration::from_micros(60);

/// A block device in memory with a service time. It never fails, and its writes are durable. Clones are the same
/// device.
///
/// ```
/// use situ_device::{Buffer, Device, Op};
/// use situ_sim::{SimExecutor, TimedDevice};
/// use std::time::Duration;
///
/// let sim = SimExecutor::new(1);
/// let device = TimedDevice::new(&sim.env(), 1 << 20, Duration::from_micros(10), 1);
/// let passed = sim.run(|| {
///     let mut queue = device.queue(2).unwrap();
///     let mut done = Vec::new();
///     for offset in [0, 4096] {
///         queue.submit(Op::Read { offset }, Buffer::new(4096)).unwrap();
///     }
///     while done.len() < 2 {
///         queue.wait(&mut done, Duration::from_secs(1));
///     }
///     sim.clock().now()
/// });
/// assert!(passed >= Duration::from_micros(20), "one channel serves one after the other");
/// # use situ_base::Clock;
/// ```
#[derive(Clone)]
pub struct TimedDevice {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    bytes: u64,
    stripes: Vec<Mutex<Box<[u8]>>>,
    service: Duration,
    /// The time at which each channel is free.
    channels: Mutex<Vec<Duration>>,
    is_locked: AtomicBool,
}

impl TimedDevice {
    /// Creates a device of zeros. Each operation takes `service`, and `channels` of them are served at a time.
    ///
    /// # Panics
    /// It has no channel, or is not of whole pages.
    pub fn new(env: &Env, bytes: u64, service: Duration, channels: usize) -> TimedDevice {
        assert!(channels > 0 && bytes.is_multiple_of(PAGE_BYTES as u64), "{bytes} bytes, {channels} channels");
        let stripe = || Mutex::new(vec![0; STRIPE_BYTES].into_boxed_slice());
        let stripes = (0..(bytes as usize).div_ceil(STRIPE_BYTES)).map(|_| stripe()).collect();
        let (channels, is_locked) = (Mutex::new(vec![Duration::ZERO; channels]), AtomicBool::new(false));
        TimedDevice { shared: Arc::new(Shared { env: env.clone(), bytes, stripes, service, channels, is_locked }) }
    }
}

impl fmt::Debug for TimedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimedDevice({} bytes, {:?})", self.shared.bytes, self.shared.service)
    }
}

impl Shared {
    /// Gives an operation a channel. Returns the time of its end.
    fn serve(&self) -> Duration {
        let mut channels = lock(&self.channels);
        let now = self.env.clock.now();
        let channel = channels.iter_mut().min().expect("there is a channel");
        *channel = now.max(*channel) + self.service;
        *channel
    }

    /// Calls `with` for the stripes of a range: the stripe's bytes, and the place in the range.
    fn each(&self, offset: u64, bytes: usize, mut with: impl FnMut(&mut [u8], std::ops::Range<usize>)) {
        let (mut at, mut done) = (offset as usize, 0);
        while done < bytes {
            let start = at % STRIPE_BYTES;
            let step = (STRIPE_BYTES - start).min(bytes - done);
            with(&mut lock(&self.stripes[at / STRIPE_BYTES])[start..start + step], done..done + step);
            (at, done) = (at + step, done + step);
        }
    }

    fn run(&self, op: Op, buffer: &mut Buffer) {
        let bytes = buffer.len();
        match op {
            Op::Read { offset } => self.each(offset, bytes, |stripe, at| buffer[at].copy_from_slice(stripe)),
            Op::Write { offset, .. } => self.each(offset, bytes, |stripe, at| stripe.copy_from_slice(&buffer[at])),
            Op::Discard { offset, bytes } | Op::Zero { offset, bytes } => {
                self.each(offset, bytes as usize, |stripe, _| stripe.fill(0));
            }
            Op::Flush => {}
        }
    }

    fn check(&self, op: Op, buffer: &Buffer, geometry: &Geometry) -> io::Result<()> {
        let (offset, bytes) = match op {
            Op::Read { offset } | Op::Write { offset, .. } => (offset, buffer.len() as u64),
            Op::Discard { offset, bytes } | Op::Zero { offset, bytes } => (offset, bytes),
            Op::Flush => return Ok(()),
        };
        let is_moving = matches!(op, Op::Read { .. } | Op::Write { .. });
        let is_long = is_moving && bytes > u64::from(geometry.max_transfer_bytes);
        let is_whole = (offset | bytes).is_multiple_of(u64::from(geometry.block_bytes));
        if is_whole && !is_long && offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{op:?} of {bytes} bytes does not fit the device")))
    }
}

impl Device for TimedDevice {
    fn describe(&self) -> String {
        format!("{} bytes of memory with {:?} for an operation", self.shared.bytes, self.shared.service)
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        if self.shared.is_locked.swap(true, Ordering::AcqRel) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(TimedLock(Arc::clone(&self.shared))))
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: 512,
            atomic_write_bytes: PAGE_BYTES as u32,
            max_transfer_bytes: 1 << 20,
            volatile_write_cache: false,
            discard_bytes: PAGE_BYTES as u32,
            discard_zeroes: true,
        }
    }

    fn space(&self) -> Space {
        Space { logical_total: self.shared.bytes, logical_used: self.shared.bytes, ..Space::default() }
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        let (shared, geometry, depth) = (Arc::clone(&self.shared), self.geometry(), depth.max(1) as usize);
        Ok(Box::new(TimedQueue { shared, geometry, depth, next_ticket: 0, flights: Vec::new(), watch: None }))
    }
}

struct TimedLock(Arc<Shared>);

impl DeviceLock for TimedLock {}

impl fmt::Debug for TimedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimedLock")
    }
}

impl Drop for TimedLock {
    fn drop(&mut self) {
        self.0.is_locked.store(false, Ordering::Release);
    }
}

struct TimedQueue {
    shared: Arc<Shared>,
    geometry: Geometry,
    depth: usize,
    next_ticket: u64,
    /// Operations with the time of their end.
    flights: Vec<(Duration, Completion)>,
    watch: Option<Arc<TimedWatch>>,
}

impl TimedQueue {
    fn first(&self) -> Option<Duration> {
        self.flights.iter().map(|(due, _)| *due).min()
    }

    fn tell_watch(&self) {
        if let Some(watch) = &self.watch {
            *lock(&watch.first) = self.first();
        }
    }
}

impl Queue for TimedQueue {
    fn submit(&mut self, op: Op, mut buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        self.shared.env.executor.yield_point();
        if self.flights.len() >= self.depth {
            return Err((buffer, io::ErrorKind::WouldBlock.into()));
        }
        if let Err(error) = self.shared.check(op, &buffer, &self.geometry) {
            return Err((buffer, error));
        }
        self.shared.run(op, &mut buffer);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.flights.push((self.shared.serve(), Completion { ticket, op, buffer, result: Ok(()) }));
        self.tell_watch();
        Ok(ticket)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if self.flights.is_empty() {
            return 0;
        }
        let (now, before) = (self.shared.env.clock.now(), done.len());
        done.extend(self.flights.extract_if(.., |(due, _)| *due <= now).map(|(_, completion)| completion));
        if done.len() > before {
            self.tell_watch();
        }
        done.len() - before
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) -> usize {
        let Some(first) = self.first() else { return 0 };
        let env = &self.shared.env;
        let until = first.min(env.clock.now().saturating_add(timeout));
        pause(env, until, |left| {
            env.clock.sleep(left);
            false
        });
        self.poll(done)
    }

    fn watch(&mut self) -> io::Result<Option<Arc<dyn Watch>>> {
        let env = self.shared.env.clone();
        let woken = env.executor.event();
        let watch = TimedWatch { env, first: Mutex::new(None), woken, seen: AtomicU64::new(0) };
        let watch = Arc::clone(self.watch.get_or_insert_with(|| Arc::new(watch)));
        self.tell_watch();
        Ok(Some(watch))
    }
}

/// Lets time pass until then, or until `sleep` says that it was woken. It is asked to sleep for a while, or for no
/// time.
fn pause(env: &Env, until: Duration, mut sleep: impl FnMut(Duration) -> bool) {
    loop {
        let left = until.saturating_sub(env.clock.now());
        if left.is_zero() {
            return env.executor.yield_point();
        }
        let (nap, is_close) = match left.checked_sub(SLEEP_LATE) {
            Some(nap) if !nap.is_zero() => (nap, false),
            _ if !env.executor.is_machine() => (left, false),
            _ => (Duration::ZERO, true),
        };
        if is_close {
            env.executor.yield_once();
        }
        if sleep(nap) {
            return;
        }
    }
}

/// Waits for the first operation of a queue to be finished.
struct TimedWatch {
    env: Env,
    /// The time when the first one is finished.
    first: Mutex<Option<Duration>>,
    woken: Arc<dyn Event>,
    /// Wakes that have ended a wait.
    seen: AtomicU64,
}

impl Watch for TimedWatch {
    fn wait(&self, timeout: Option<Duration>) {
        let seen = self.seen.load(Ordering::Acquire);
        let timeout = timeout.map(|timeout| self.env.clock.now().saturating_add(timeout));
        let first = *lock(&self.first);
        match first.into_iter().chain(timeout).min() {
            None => {
                self.woken.wait(seen, None);
            }
            Some(until) => pause(&self.env, until, |nap| {
                if nap.is_zero() { self.woken.generation() != seen } else { self.woken.wait(seen, Some(nap)) }
            }),
        }
        self.seen.store(self.woken.generation(), Ordering::Release);
    }

    fn wake(&self) {
        self.woken.notify();
    }
}
