//! Buckets in and out: reads, writes, flushes and discards of the bucket space, one or many in flight.
//!
//! A *lane* is a queue of the device with buffers of its own. Readers and workers borrow a lane from a pool for the
//! time of one operation or one batch, so no lock is held while the device works. A lane that is given back has nothing
//! in flight.
//!
//! **Threads.** Any. The pools are picked by the calling thread, so two threads rarely meet at one.
//! **Failure.** An error is returned when everything in flight has come back; the lane can be used again. An error of
//! the system names the number of the bucket.
//! A write that failed has left unknown bytes on the device. Until the bucket is written again, a *shadow* in memory
//! can say what counts: readers get the shadow ([`BucketIo::shadow`]). All shadows are written before buckets are made
//! durable ([`BucketIo::settle`]).
//! **Rejected:** a queue for each thread (threads of callers come and go; no thread would remove their queues).

use crate::format::space::{SPACE_HEADER_BYTES, bucket_offset};
use crate::{Error, Result};
use situ_base::{Clock, lock};
use situ_device::{Buffer, Completion, Device, Geometry, Op, PAGE_BYTES, Queue, Ticket};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Buckets that are read and written together.
pub(crate) const BUCKETS_MAX: usize = 64;
/// Operations that a lane has in flight.
pub(crate) const LANE_DEPTH: usize = 32;
/// Pools of lanes.
const POOLS: usize = 8;
/// Buffers that a lane keeps, for reads of single buckets.
const LANE_BUFFERS_MAX: usize = 2;
/// Buffers that all batches together keep: 4 MiB.
const SPARE_BUFFERS_MAX: usize = 1024;
/// The number of reads of which one is timed.
const SAMPLE: u64 = 16;
/// A device that answers within this time is read on the caller's thread: about what two switches of threads cost.
pub(crate) const QUICK_NS: u64 = 20_000;
/// The time after which a wait for the device is begun again.
const WAIT: Duration = Duration::from_secs(10);

/// The bucket space of one store.
pub(crate) struct BucketIo {
    device: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) path: String,
    pools: [Mutex<Vec<Lane>>; POOLS],
    /// Buffers for batches.
    spare: Mutex<Vec<Buffer>>,
    /// Buckets that have room on the device.
    pub(crate) buckets_max: u64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) discards: AtomicU64,
    /// The time that single reads have lately taken, in nanoseconds; a sample of them.
    pub(crate) read_ns: AtomicU64,
    clock: Arc<dyn Clock>,
    /// The contents that count of buckets whose last write has failed.
    shadows: Mutex<BTreeMap<u64, Buffer>>,
    has_shadows: AtomicBool,
}

/// Some buckets could not be written.
pub(crate) struct WriteFailure {
    pub(crate) error: Error,
    /// Buckets that were not written, or whose bytes on the device are unknown.
    pub(crate) unwritten: Vec<(u64, Buffer)>,
}

impl From<WriteFailure> for Error {
    fn from(failure: WriteFailure) -> Error {
        failure.error
    }
}

/// A queue of the device, and buffers.
pub(crate) struct Lane {
    queue: Box<dyn Queue>,
    done: Vec<Completion>,
    spare: Vec<Buffer>,
    /// Operations in flight, with the place in the caller's list.
    in_flight: Vec<(Ticket, usize)>,
    /// Operations that have failed since the last run began.
    failed: Vec<(usize, Buffer)>,
}

/// Returns the number of buckets that have room in a bucket space of `bytes` bytes.
pub(crate) fn buckets_within(bytes: u64) -> u64 {
    bytes.saturating_sub(SPACE_HEADER_BYTES as u64) / PAGE_BYTES as u64
}

fn new_buffer() -> Buffer {
    Buffer::new(PAGE_BYTES)
}

/// Returns the pool of the calling thread.
fn pool_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static POOL: usize = NEXT.fetch_add(1, Ordering::Relaxed) % POOLS;
    }
    POOL.with(|pool| *pool)
}

impl BucketIo {
    pub(crate) fn new(device: Arc<dyn Device>, clock: Arc<dyn Clock>) -> BucketIo {
        BucketIo {
            geometry: device.geometry(),
            path: device.describe(),
            buckets_max: buckets_within(device.space().logical_total),
            device,
            pools: Default::default(),
            spare: Mutex::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            discards: AtomicU64::new(0),
            read_ns: AtomicU64::new(0),
            clock,
            shadows: Mutex::default(),
            has_shadows: AtomicBool::new(false),
        }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Returns true if a crash can tear or lose the write of a bucket that has been acknowledged.
    pub(crate) fn needs_images(&self) -> bool {
        self.geometry.volatile_write_cache || (self.geometry.atomic_write_bytes as usize) < PAGE_BYTES
    }

    /// Lends a lane for `work`.
    pub(crate) fn with_lane<T>(&self, work: impl FnOnce(&mut Lane) -> Result<T>) -> Result<T> {
        let pool = &self.pools[pool_of_thread()];
        let lane = lock(pool).pop();
        let mut lane = match lane {
            Some(lane) => lane,
            None => Lane::new(&*self.device).map_err(|error| self.error("open a queue of", error))?,
        };
        let result = work(&mut lane);
        assert!(lane.in_flight.is_empty(), "a lane is given back with operations in flight");
        lock(pool).push(lane);
        result
    }

    fn error(&self, what: &'static str, error: io::Error) -> Error {
        situ_storage::Error::io(what, &self.path, error).into()
    }

    /// Reads one bucket and hands its bytes to `takes`.
    pub(crate) fn read<T>(&self, bucket: u64, takes: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.with_lane(|lane| {
            let buffer = lane.buffer();
            let mut takes = Some(takes);
            let mut taken = None;
            let read = (Op::Read { offset: bucket_offset(bucket) }, buffer);
            let count = self.reads.fetch_add(1, Ordering::Relaxed);
            // While the device is slow, single reads are rare: each counts.
            let is_timed = count.is_multiple_of(SAMPLE) || self.read_ns.load(Ordering::Relaxed) >= QUICK_NS;
            let begun = is_timed.then(|| self.clock.now());
            let outcome = lane.run(std::iter::once(read), |_, buffer| {
                let shadow = self.shadow_of(bucket);
                taken = takes.take().map(|takes| takes(shadow.as_deref().unwrap_or(&buffer)));
                Some(buffer)
            });
            if let Some(begun) = begun {
                let took = self.clock.now().saturating_sub(begun).as_nanos() as u64;
                let before = self.read_ns.load(Ordering::Relaxed);
                self.read_ns.store(before - before / 4 + took / 4, Ordering::Relaxed);
            }
            outcome.map_err(|error| self.error("read", error))?;
            Ok(taken.expect("a read that succeeded has handed its bytes out"))
        })
    }

    /// Reads buckets, many in flight, and hands the bytes of each to `takes`, in any order.
    pub(crate) fn read_each(&self, buckets: &[u64], mut takes: impl FnMut(usize, &[u8])) -> Result<()> {
        self.reads.fetch_add(buckets.len() as u64, Ordering::Relaxed);
        let buffers = self.buffers(buckets.len());
        let mut taken = Vec::with_capacity(buckets.len());
        let outcome = self.with_lane(|lane| {
            let reads = buckets.iter().map(|bucket| Op::Read { offset: bucket_offset(*bucket) });
            let outcome = lane.run(reads.zip(buffers), |at, buffer| {
                let shadow = self.shadow_of(buckets[at]);
                takes(at, shadow.as_deref().unwrap_or(&buffer));
                taken.push(buffer);
                None
            });
            outcome.map_err(|error| self.error("read", error))
        });
        self.give_back(taken);
        outcome
    }

    /// Reads buckets, many in flight; the buffers are in the order of `buckets`.
    pub(crate) fn read_many(&self, buckets: &[u64]) -> Result<Vec<Buffer>> {
        self.reads.fetch_add(buckets.len() as u64, Ordering::Relaxed);
        let buffers = self.buffers(buckets.len());
        self.with_lane(|lane| {
            let mut found: Vec<Option<Buffer>> = buckets.iter().map(|_| None).collect();
            let reads = buckets.iter().map(|bucket| Op::Read { offset: bucket_offset(*bucket) });
            let outcome = lane.run(reads.zip(buffers), |at, buffer| {
                found[at] = Some(self.shadow_of(buckets[at]).unwrap_or(buffer));
                None
            });
            outcome.map_err(|error| self.error("read", error))?;
            Ok(found.into_iter().map(|buffer| buffer.expect("each read has come back")).collect())
        })
    }

    /// Writes buckets, many in flight. On return the device has them; durable they are after a
    /// [`flush`](BucketIo::flush). Want of space is an error of its own: to try again loses nothing.
    pub(crate) fn write_many(&self, images: Vec<(u64, Buffer)>) -> Result<(), WriteFailure> {
        self.writes.fetch_add(images.len() as u64, Ordering::Relaxed);
        for (bucket, image) in &images {
            assert!(*bucket < self.buckets_max, "bucket {bucket} is behind the end of the bucket space");
            assert_eq!(image.len(), PAGE_BYTES, "a bucket is one page");
        }
        let numbers: Vec<u64> = images.iter().map(|(bucket, _)| *bucket).collect();
        let mut left = images.into_iter();
        let (mut written, mut unwritten) = (Vec::with_capacity(numbers.len()), Vec::new());
        let outcome = self.with_lane(|lane| {
            let write = |(bucket, image)| (Op::Write { offset: bucket_offset(bucket), durable: false }, image);
            let outcome = lane.run(left.by_ref().map(write), |_, buffer| {
                written.push(buffer);
                None
            });
            unwritten.extend(lane.failed.drain(..).map(|(at, image)| (numbers[at], image)));
            outcome.map_err(|error| self.error("write", error).or_out_of_space())
        });
        self.give_back(written);
        unwritten.extend(left);
        self.drop_shadows(numbers.iter().filter(|number| unwritten.iter().all(|(bucket, _)| bucket != *number)));
        outcome.map_err(|error| WriteFailure { error, unwritten })
    }

    /// Lets `block` count for the bucket, whatever the device has, until the bucket is written.
    pub(crate) fn shadow(&self, bucket: u64, block: &[u8]) {
        let block = Buffer::copy_of(block);
        let mut shadows = lock(&self.shadows);
        shadows.insert(bucket, block);
        self.has_shadows.store(true, Ordering::Release);
    }

    fn shadow_of(&self, bucket: u64) -> Option<Buffer> {
        if !self.has_shadows.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.shadows).get(&bucket).map(|block| Buffer::copy_of(block))
    }

    fn drop_shadows<'a>(&self, buckets: impl Iterator<Item = &'a u64>) {
        if !self.has_shadows.load(Ordering::Acquire) {
            return;
        }
        let mut shadows = lock(&self.shadows);
        buckets.for_each(|bucket| _ = shadows.remove(bucket));
        self.has_shadows.store(!shadows.is_empty(), Ordering::Release);
    }

    /// Writes all shadows to the device. No other thread writes buckets meanwhile.
    pub(crate) fn settle(&self) -> Result<()> {
        if !self.has_shadows.load(Ordering::Acquire) {
            return Ok(());
        }
        let copied = |(bucket, block): (&u64, &Buffer)| (*bucket, Buffer::copy_of(block));
        let images = lock(&self.shadows).iter().map(copied).collect();
        Ok(self.write_many(images)?)
    }

    /// Returns a buffer for a bucket that is to be written. Its bytes may be anything.
    pub(crate) fn buffer(&self) -> Buffer {
        lock(&self.spare).pop().unwrap_or_else(new_buffer)
    }

    /// Returns buffers for a batch.
    fn buffers(&self, count: usize) -> Vec<Buffer> {
        let mut buffers = {
            let mut spare = lock(&self.spare);
            let rest = spare.len().saturating_sub(count);
            spare.split_off(rest)
        };
        buffers.resize_with(count, new_buffer);
        buffers
    }

    /// Gives buffers of batches back.
    pub(crate) fn give_back(&self, buffers: impl IntoIterator<Item = Buffer>) {
        let mut buffers = buffers.into_iter().filter(|buffer| buffer.len() == PAGE_BYTES);
        let mut spare = lock(&self.spare);
        let room = SPARE_BUFFERS_MAX.saturating_sub(spare.len());
        spare.extend(buffers.by_ref().take(room));
        drop(spare);
        buffers.for_each(drop);
    }

    /// Makes all buckets durable that were written before the call.
    pub(crate) fn flush(&self) -> Result<()> {
        if !self.geometry.volatile_write_cache {
            return Ok(());
        }
        self.one(Op::Flush, "flush")
    }

    /// Gives the room of buckets back: of those that fill whole units of the device. The others stay as they are.
    pub(crate) fn discard(&self, buckets: std::ops::Range<u64>) -> Result<()> {
        if buckets.is_empty() {
            return Ok(());
        }
        let unit = u64::from(self.geometry.discard_bytes);
        if unit == 0 {
            return Ok(());
        }
        let offset = bucket_offset(buckets.start).next_multiple_of(unit);
        let end = bucket_offset(buckets.end) / unit * unit;
        if offset >= end {
            return Ok(());
        }
        self.one(Op::Discard { offset, bytes: end - offset }, "discard a part of")?;
        self.discards.fetch_add((end - offset) / PAGE_BYTES as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Has buckets read as zeros, which is what an empty bucket is.
    pub(crate) fn zero(&self, buckets: std::ops::Range<u64>) -> Result<()> {
        let (offset, bytes) = (bucket_offset(buckets.start), (buckets.end - buckets.start) * PAGE_BYTES as u64);
        self.one(Op::Zero { offset, bytes }, "zero a part of")
    }

    fn one(&self, op: Op, verb: &'static str) -> Result<()> {
        self.with_lane(|lane| {
            let buffer = lane.buffer();
            lane.run(std::iter::once((op, buffer)), |_, buffer| Some(buffer)).map_err(|error| self.error(verb, error))
        })
    }

    /// Returns the bytes at the beginning of the space, before the buckets.
    pub(crate) fn read_header(&self, offset: u64, bytes: usize) -> Result<Buffer> {
        let mut found = None;
        self.with_lane(|lane| {
            let read = (Op::Read { offset }, Buffer::new(bytes));
            let outcome = lane.run(std::iter::once(read), |_, buffer| {
                found = Some(buffer);
                None
            });
            outcome.map_err(|error| self.error("read", error))
        })?;
        Ok(found.expect("a read that succeeded has handed its bytes out"))
    }

    /// Writes bytes at the beginning of the space, durably.
    pub(crate) fn write_header(&self, offset: u64, buffer: Buffer) -> Result<()> {
        assert!(offset + buffer.len() as u64 <= SPACE_HEADER_BYTES as u64, "the header ends before the first bucket");
        self.with_lane(|lane| {
            let write = (Op::Write { offset, durable: true }, buffer);
            lane.run(std::iter::once(write), |_, _| None).map_err(|error| self.error("write", error))
        })
    }
}

impl Lane {
    fn new(device: &dyn Device) -> io::Result<Lane> {
        let queue = device.queue(LANE_DEPTH as u32)?;
        Ok(Lane { queue, done: Vec::new(), spare: Vec::new(), in_flight: Vec::new(), failed: Vec::new() })
    }

    fn buffer(&mut self) -> Buffer {
        self.spare.pop().unwrap_or_else(new_buffer)
    }

    fn keep(&mut self, buffer: Buffer) {
        if self.spare.len() < LANE_BUFFERS_MAX && buffer.len() == PAGE_BYTES {
            self.spare.push(buffer);
        }
    }

    /// Runs operations with as many in flight as a lane takes. `each` gets the buffer of each that succeeded, with its
    /// place in the list, and may give the buffer back to the lane.
    fn run(
        &mut self,
        operations: impl Iterator<Item = (Op, Buffer)>,
        mut each: impl FnMut(usize, Buffer) -> Option<Buffer>,
    ) -> io::Result<()> {
        let mut result = Ok(());
        self.failed.clear();
        for (at, (op, buffer)) in operations.enumerate() {
            while self.in_flight.len() >= LANE_DEPTH {
                result = result.and(self.collect(&mut each));
            }
            if result.is_err() {
                self.failed.push((at, buffer));
                break;
            }
            match self.queue.submit(op, buffer) {
                Ok(ticket) => self.in_flight.push((ticket, at)),
                Err((buffer, error)) => {
                    self.failed.push((at, buffer));
                    result = Err(error);
                }
            }
        }
        while !self.in_flight.is_empty() {
            result = result.and(self.collect(&mut each));
        }
        result
    }

    /// Waits for something to come back, and hands it out.
    fn collect(&mut self, each: &mut impl FnMut(usize, Buffer) -> Option<Buffer>) -> io::Result<()> {
        let mut done = std::mem::take(&mut self.done);
        if self.queue.poll(&mut done) == 0 {
            self.queue.wait(&mut done, WAIT);
        }
        let mut result = Ok(());
        for Completion { ticket, buffer, result: outcome, .. } in done.drain(..) {
            let found = self.in_flight.iter().position(|(other, _)| *other == ticket);
            let (_, at) = self.in_flight.swap_remove(found.expect("a device completes what was submitted"));
            match outcome {
                Ok(()) => {
                    if let Some(buffer) = each(at, buffer) {
                        self.keep(buffer);
                    }
                }
                Err(error) => {
                    self.failed.push((at, buffer));
                    result = result.and(Err(error));
                }
            }
        }
        self.done = done;
        result
    }
}
