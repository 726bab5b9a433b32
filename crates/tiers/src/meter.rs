//! The use of a disk: bytes in and out, and the share of time in which something was in flight.
//!
//! A [`Metered`] volume hands everything on and counts. Reading a clock twice and taking two short locks for each
//! operation costs about a tenth of a microsecond. A store with one disk does without.
//!
//! A thread that measures can sleep while nothing happens: the first operation then rings a bell.
//!
//! **Threads.** Everything from any thread. The lock is held for a few instructions.

use situ_base::{Clock, Env, Event, lock};
use situ_device::{Buffer, Watch};
use situ_engine::places::BULK_READ_BYTES;
use situ_storage::{
    Error, FileMeta, FileName, Geometry, Lock, Nature, PageFile, PageQueue, Reader, Result, Space, Volume, Writer,
};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bytes and reads that have gone through a volume since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes that were read.
    pub(crate) bytes_read: u64,
    /// Bytes that were written.
    pub(crate) bytes_written: u64,
    /// Reads of tables on behalf of readers: those that are not in large pieces.
    pub(crate) reads: u64,
    /// Time in which at least one operation was in flight.
    pub(crate) busy: Duration,
}

#[derive(Default)]
struct Busy {
    in_flight: u64,
    since: Duration,
    total: Duration,
}

/// Counts for one volume.
pub(crate) struct Meter {
    clock: Arc<dyn Clock>,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    reads: AtomicU64,
    busy: Mutex<Busy>,
    /// The measuring thread sleeps, and wants to be woken when there is something to measure.
    asleep: AtomicBool,
    bell: Mutex<Option<Arc<dyn Event>>>,
}

impl Meter {
    /// Returns a meter that has counted nothing, by the clock of `env`.
    pub(crate) fn new(env: &Env) -> Arc<Meter> {
        Arc::new(Meter {
            clock: Arc::clone(&env.clock),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            busy: Mutex::default(),
            asleep: AtomicBool::new(false),
            bell: Mutex::default(),
        })
    }

    /// Rings this bell at the next operation after each [`sleep`](Meter::sleep).
    pub(crate) fn set_bell(&self, bell: &Arc<dyn Event>) {
        *lock(&self.bell) = Some(Arc::clone(bell));
    }

    /// Notes that the measuring thread is about to wait for the bell.
    pub(crate) fn sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Returns the totals so far.
    pub(crate) fn totals(&self) -> Totals {
        let now = self.clock.now();
        let busy = lock(&self.busy);
        let running = if busy.in_flight > 0 { now.saturating_sub(busy.since) } else { Duration::ZERO };
        Totals {
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            busy: busy.total + running,
        }
    }

    fn during<T>(&self, operation: impl FnOnce() -> T) -> T {
        self.begin();
        let ends = Ends(self);
        let result = operation();
        drop(ends);
        result
    }

    /// Notes that an operation begins, whose end is that of an [`Ends`].
    fn begin(&self) {
        let begun = self.clock.now();
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::SeqCst) {
            let bell = lock(&self.bell).clone();
            bell.into_iter().for_each(|bell| bell.notify());
        }
        let mut busy = lock(&self.busy);
        if busy.in_flight == 0 {
            busy.since = begun;
        }
        busy.in_flight += 1;
    }
}

/// Ends an operation, also one that panics or whose simulated thread is killed.
struct Ends<M: Deref<Target = Meter>>(M);

impl<M: Deref<Target = Meter>> Drop for Ends<M> {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        let mut busy = lock(&self.0.busy);
        busy.in_flight -= 1;
        if busy.in_flight == 0 {
            busy.total = busy.total + now.saturating_sub(busy.since);
        }
    }
}

/// A volume whose use is measured.
pub(crate) struct Metered {
    inner: Arc<dyn Volume>,
    pub(crate) meter: Arc<Meter>,
}

impl Metered {
    /// Returns a volume whose operations on `inner` are counted by `meter`.
    pub(crate) fn new(inner: Arc<dyn Volume>, meter: Arc<Meter>) -> Metered {
        Metered { inner, meter }
    }

    fn pages(&self, file: Result<Arc<dyn PageFile>>) -> Result<Arc<dyn PageFile>> {
        Ok(Arc::new(MeteredPages { inner: file?, meter: Arc::clone(&self.meter) }))
    }
}

impl Volume for Metered {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn create(&self, name: FileName, bound: u64) -> Result<Box<dyn Writer>> {
        Ok(Box::new(MeteredWriter { inner: self.inner.create(name, bound)?, meter: Arc::clone(&self.meter) }))
    }

    fn resume(&self, name: FileName, bytes: u64) -> Result<Box<dyn Writer>> {
        Ok(Box::new(MeteredWriter { inner: self.inner.resume(name, bytes)?, meter: Arc::clone(&self.meter) }))
    }

    fn open(&self, name: FileName) -> Result<Arc<dyn Reader>> {
        Ok(Arc::new(MeteredReader { inner: self.inner.open(name)?, meter: Arc::clone(&self.meter) }))
    }

    fn create_pages(&self, name: FileName, bytes: u64) -> Result<Arc<dyn PageFile>> {
        self.pages(self.inner.create_pages(name, bytes))
    }

    fn open_pages(&self, name: FileName) -> Result<Arc<dyn PageFile>> {
        self.pages(self.inner.open_pages(name))
    }

    fn replace(&self, name: FileName, contents: &[u8]) -> Result<()> {
        self.inner.replace(name, contents)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<()> {
        self.inner.remove(name)
    }

    fn sync_names(&self) -> Result<()> {
        self.inner.sync_names()
    }

    fn list(&self) -> Result<Vec<FileMeta>> {
        self.inner.list()
    }

    fn space(&self) -> Space {
        self.inner.space()
    }

    fn nature(&self) -> Nature {
        self.inner.nature()
    }

    fn log_room(&self) -> Option<Space> {
        self.inner.log_room()
    }

    fn geometry(&self) -> Option<Geometry> {
        self.inner.geometry()
    }

    fn troubles(&self) -> Vec<String> {
        self.inner.troubles()
    }

    fn failure(&self) -> Option<Error> {
        self.inner.failure()
    }

    fn check_names_if_due(&self) -> Result<()> {
        self.inner.check_names_if_due()
    }

    fn tidy(&self) -> bool {
        self.inner.tidy()
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.inner.lock()
    }
}

struct MeteredWriter {
    inner: Box<dyn Writer>,
    meter: Arc<Meter>,
}

impl Writer for MeteredWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.meter.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.meter.during(|| self.inner.append(bytes))
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> Result<()> {
        self.meter.during(|| self.inner.sync())
    }

    fn flush(&mut self) -> Result<()> {
        self.meter.during(|| self.inner.flush())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let MeteredWriter { inner, meter } = *self;
        meter.during(|| inner.finish())
    }
}

struct MeteredReader {
    inner: Arc<dyn Reader>,
    meter: Arc<Meter>,
}

impl Reader for MeteredReader {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn file(&self) -> Option<&File> {
        self.inner.file()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let meter = &self.meter;
        meter.bytes_read.fetch_add(into.len() as u64, Ordering::Relaxed);
        meter.reads.fetch_add(u64::from(into.len() < BULK_READ_BYTES), Ordering::Relaxed);
        meter.during(|| self.inner.read_at(offset, into))
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        let meter = &self.meter;
        let is_there = meter.during(|| self.inner.read_now(offset, into))?;
        if is_there {
            meter.bytes_read.fetch_add(into.len() as u64, Ordering::Relaxed);
            meter.reads.fetch_add(u64::from(into.len() < BULK_READ_BYTES), Ordering::Relaxed);
        }
        Ok(is_there)
    }

    fn prefetch(&self, offset: u64, bytes: u64) {
        self.inner.prefetch(offset, bytes);
    }
}

struct MeteredPages {
    inner: Arc<dyn PageFile>,
    meter: Arc<Meter>,
}

impl PageFile for MeteredPages {
    fn path(&self) -> &str {
        self.inner.path()
    }

    fn pages(&self) -> u64 {
        self.inner.pages()
    }

    fn writes_wait(&self) -> bool {
        self.inner.writes_wait()
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        self.meter.bytes_written.fetch_add((count * situ_storage::PAGE_BYTES) as u64, Ordering::Relaxed);
        self.meter.during(|| self.inner.write(first, buffer, count, durable))
    }

    fn sync(&self) -> Result<()> {
        self.meter.during(|| self.inner.sync())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.meter.bytes_read.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.meter.during(|| self.inner.read_at(offset, into))
    }

    fn discard(&self, first: u64, count: u64) -> Result<bool> {
        self.meter.during(|| self.inner.discard(first, count))
    }

    fn queue(&self) -> Option<Box<dyn PageQueue>> {
        let inner = self.inner.queue()?;
        Some(Box::new(MeteredQueue { inner, meter: Arc::clone(&self.meter), in_flight: HashMap::new() }))
    }
}

/// Writes in flight.
struct MeteredQueue {
    inner: Box<dyn PageQueue>,
    meter: Arc<Meter>,
    in_flight: HashMap<u64, Ends<Arc<Meter>>>,
}

impl PageQueue for MeteredQueue {
    fn begin(&mut self, first: u64, pages: &[u8], durable: bool) -> u64 {
        self.meter.bytes_written.fetch_add(pages.len() as u64, Ordering::Relaxed);
        self.meter.begin();
        let ends = Ends(Arc::clone(&self.meter));
        let number = self.inner.begin(first, pages, durable);
        self.in_flight.insert(number, ends);
        number
    }

    fn wait(&mut self, ended: &mut Vec<(u64, Result<()>)>, is_called: &dyn Fn() -> bool) {
        let before = ended.len();
        self.inner.wait(ended, is_called);
        ended[before..].iter().for_each(|(number, _)| drop(self.in_flight.remove(number)));
    }

    fn watch(&self) -> Arc<dyn Watch> {
        self.inner.watch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use situ_sim::{FaultPlan, SimExecutor, SimVolume};

    #[test]
    fn bytes_and_busy_time_are_counted() {
        let executor = SimExecutor::new(1);
        executor.run(|| {
            let env = executor.env();
            let ms = Duration::from_millis;
            let volume = SimVolume::new(&env, FaultPlan::none().latency(ms(1)..ms(1)), 1);
            let metered = Metered::new(Arc::new(volume), Meter::new(&env));
            let mut writer = metered.create(FileName::Table(1), 0).unwrap();
            writer.append(&[7; 1000]).unwrap();
            writer.finish().unwrap();
            env.clock.sleep(ms(500));
            let reader = metered.open(FileName::Table(1)).unwrap();
            let before = metered.meter.totals();
            assert_eq!((before.bytes_written, before.bytes_read, before.reads), (1000, 0, 0));
            assert!(before.busy > Duration::ZERO && before.busy < ms(100), "{before:?}");
            reader.read_at(0, &mut [0; 100]).unwrap();
            reader.read_at(100, &mut [0; 300]).unwrap();
            let after = metered.meter.totals();
            assert_eq!((after.bytes_read, after.reads), (400, 2));
            let busy = after.busy - before.busy;
            assert!(busy >= ms(2) && busy < ms(3), "{busy:?}");
        });
    }
}
