//! Reads of any open files through one ring, many in flight.
//!
//! A [`Queue`](crate::Queue) belongs to one device. A directory has thousands of files that come and go, so here each
//! read brings its file along.
//!
//! 1. [`FileReads::submit`] puts the read into the table and its entry into the ring, without a system call.
//! 2. [`FileReads::poll`] offers all new entries to the kernel with one call, and takes what has completed. A read that
//!    was cut short goes back to the kernel for the rest. So does a read that the kernel could not take at that moment.
//! 3. [`FileReads::watch`] waits.
//!
//! Reads go through the page cache if the files were opened so. On ext4, XFS, Btrfs and their like, the kernel waits
//! for pages without a thread. On other file systems it uses threads of its own.
//!
//! **Invariants.** As many places in the table as entries in the ring. The table has file and buffer of a read until
//! the kernel has answered.
//! **Threads.** One at a time; the queue may be handed over with reads in flight.
//! **Failure.** A read that fails completes with the error. The end of the file within a read is `UnexpectedEof`.
//! **Leaving.** As a queue does: dropping waits for what is in flight. If the kernel does not answer for [`PATIENCE`],
//! ring, files and buffers are leaked.

use super::queue::{PATIENCE, RETRIES_MAX};
use super::ring::{Mode, Ring};
use crate::Watch;
use crate::in_flight::Table;
use crate::watch::EventDescriptor;
use io_uring::opcode;
use io_uring::types::Fd;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest command; the kernel takes no longer one at once.
const COMMAND_BYTES_MAX: usize = 1 << 30;

/// A read that is complete: what was handed in comes back.
#[derive(Debug)]
pub struct FileRead {
    /// The caller's tag of the read.
    pub tag: u64,
    /// The buffer. Undefined contents after an error.
    pub buffer: Vec<u8>,
    /// Success if all of the buffer was filled, or the error.
    pub result: io::Result<()>,
}

struct Reading {
    tag: u64,
    file: Arc<File>,
    offset: u64,
    buffer: Vec<u8>,
    done: usize,
    /// Times that the kernel has asked to try again, since the last progress.
    retries: u32,
}

/// The memory that the kernel refers to.
struct Kept {
    ring: Ring,
    table: Table<Reading>,
}

/// Reads of any open files by `io_uring`, many in flight.
///
/// One thread at a time submits and polls. Another one may end its wait ([`watch`](FileReads::watch)). A read goes on
/// until its buffer is full or an error ends it. Dropped with reads in flight, it waits for them, up to half a minute.
pub struct FileReads {
    /// Dropped by hand: not at all if the kernel did not answer.
    kept: ManuallyDrop<Kept>,
    finished: Vec<FileRead>,
    results: Vec<(u64, i32)>,
    watch: Arc<EventDescriptor>,
    depth: usize,
    patience: Duration,
}

impl FileReads {
    /// Creates a queue for at most `depth` reads in flight.
    ///
    /// # Errors
    /// The system gives no ring to this process.
    pub fn new(depth: u32) -> io::Result<FileReads> {
        let ring = Ring::new(depth.max(1), Mode::default())?;
        let watch = Arc::new(EventDescriptor::new()?);
        ring.submitter().register_eventfd(watch.number())?;
        let depth = depth.max(1).min(ring.operations());
        let kept = ManuallyDrop::new(Kept { ring, table: Table::new(depth) });
        let (finished, results) = (Vec::new(), Vec::with_capacity(depth as usize));
        Ok(FileReads { kept, finished, results, watch, depth: depth as usize, patience: PATIENCE })
    }

    /// Returns the number of reads that may be in flight.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the number of reads that were submitted and not collected.
    pub fn in_flight(&self) -> usize {
        self.kept.table.len() + self.finished.len()
    }

    /// Returns a way to wait for completions that another thread can end.
    pub fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.watch) as Arc<dyn Watch>
    }

    /// Takes a read that fills `buffer` from `offset` of `file`. The kernel gets it with the next
    /// [`poll`](FileReads::poll).
    ///
    /// # Errors
    /// `depth` reads are in flight: the buffer comes back.
    pub fn submit(&mut self, tag: u64, file: Arc<File>, offset: u64, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.in_flight() >= self.depth {
            return Err(buffer);
        }
        if buffer.is_empty() {
            self.finished.push(FileRead { tag, buffer, result: Ok(()) });
            return Ok(());
        }
        let reading = Reading { tag, file, offset, buffer, done: 0, retries: 0 };
        let key = self.kept.table.insert(reading).map_err(|reading| reading.buffer)?;
        self.start(key);
        Ok(())
    }

    /// Offers new reads to the kernel and collects finished ones into `done`; returns how many.
    pub fn poll(&mut self, done: &mut Vec<FileRead>) -> usize {
        self.submit_all();
        let mut results = std::mem::take(&mut self.results);
        self.kept.ring.reap(&mut results);
        for (key, result) in results.drain(..) {
            self.step(key, result);
        }
        self.results = results;
        self.submit_all();
        let count = self.finished.len();
        done.append(&mut self.finished);
        count
    }

    fn submit_all(&mut self) {
        if self.kept.ring.has_unsubmitted() {
            // An entry that fails here stays in the ring; the next call offers it again.
            let _ = self.kept.ring.submit();
        }
    }

    /// Puts an entry for what is left of the read into the ring.
    fn start(&mut self, key: u64) {
        let Kept { ring, table } = &mut *self.kept;
        let Some(reading) = table.get(key) else { return };
        let rest = &mut reading.buffer[reading.done..];
        let bytes = rest.len().min(COMMAND_BYTES_MAX) as u32;
        let (file, offset) = (Fd(reading.file.as_raw_fd()), reading.offset.wrapping_add(reading.done as u64));
        let entry = opcode::Read::new(file, rest.as_mut_ptr(), bytes).offset(offset).build().user_data(key);
        // SAFETY: the entry points into the read's buffer and names its file. Both stay in the table, untouched, until
        // the completion was taken, and the table outlives the ring's use of it (see `drop`).
        if !unsafe { ring.push(&entry) } {
            self.end(key, Err(io::Error::other("a ring has fewer entries than reads; this is a bug in Situ")));
        }
    }

    fn end(&mut self, key: u64, result: io::Result<()>) {
        if let Some(Reading { tag, buffer, .. }) = self.kept.table.remove(key) {
            self.finished.push(FileRead { tag, buffer, result });
        }
    }

    /// Ends a read, or sends it back for the rest.
    fn step(&mut self, key: u64, result: i32) {
        let Some(reading) = self.kept.table.get(key) else {
            debug_assert!(false, "a completion without a read");
            return;
        };
        if result < 0 {
            return self.failed(key, Errno::from_raw_os_error(-result));
        }
        let (done, wanted) = (reading.done + result as usize, reading.buffer.len());
        assert!(done <= wanted, "a read is never longer than its buffer");
        (reading.done, reading.retries) = (done, 0);
        if done == wanted {
            self.end(key, Ok(()));
        } else if result > 0 {
            self.start(key);
        } else {
            let why = format!("the file ended within a read: {done} of {wanted} bytes at offset {}", reading.offset);
            self.end(key, Err(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
    }

    fn failed(&mut self, key: u64, errno: Errno) {
        // A signal, no room at this moment, or the thread that submitted it has ended.
        let is_passing = matches!(errno, Errno::INTR | Errno::AGAIN | Errno::CANCELED);
        match self.kept.table.get(key) {
            Some(reading) if is_passing && reading.retries < RETRIES_MAX => {
                reading.retries += 1;
                self.start(key);
            }
            _ => self.end(key, Err(errno.into())),
        }
    }
}

impl Drop for FileReads {
    fn drop(&mut self) {
        let begin = Instant::now();
        let mut results = Vec::new();
        while self.kept.table.len() > 0 {
            let left = self.patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                // The kernel may still write into the buffers, at any time: they are never given back.
                return;
            }
            self.kept.ring.reap(&mut results);
            for (key, _) in results.drain(..) {
                self.kept.table.remove(key);
            }
            if self.kept.table.len() > 0 && self.kept.ring.wait(left).is_err() {
                // No reason to spin; what cannot be submitted now is tried again.
                std::thread::sleep(left.min(Duration::from_millis(1)));
            }
        }
        // SAFETY: nothing is in flight, and `kept` is not used again.
        unsafe { ManuallyDrop::drop(&mut self.kept) };
    }
}

#[cfg(test)]
mod tests;
