//! A file or block device as a [`Device`], by `pread` and `pwrite`.
//!
//! Operations complete inside [`Queue::submit`]: the queue is a list of finished work. It is the backend that works
//! everywhere, and the best one for devices that do their work on the caller's thread anyway; see
//! [`open`](crate::open()).

use crate::block::check_request;
use crate::blocking;
use crate::nature::Nature;
use crate::target::Target;
use crate::{Buffer, Completion, Device, DeviceLock, Geometry, Op, Queue, Space, Ticket};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A fixed-size file, or a block device, opened for direct I/O where the file system allows it.
#[derive(Debug)]
pub struct FileDevice {
    target: Target,
    /// The reason why it is this backend, where that is worth saying.
    because: Option<String>,
}

impl FileDevice {
    /// Opens an existing file or block device; its size is taken as it is now.
    ///
    /// # Errors
    /// Whatever the system answers to `open` and `lseek`; `InvalidInput` for what is neither a file nor a block device.
    pub fn open(path: &Path) -> io::Result<FileDevice> {
        Ok(FileDevice::new(Target::open(path, false)?))
    }

    pub(crate) fn new(target: Target) -> FileDevice {
        FileDevice { target, because: None }
    }

    pub(crate) fn because(target: Target, why: String) -> FileDevice {
        FileDevice { target, because: Some(why) }
    }

    /// Returns true if the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.target.direct
    }
}

impl Device for FileDevice {
    fn describe(&self) -> String {
        match &self.because {
            None => self.target.describe("pread and pwrite"),
            Some(why) => self.target.describe(&format!("pread and pwrite because {why}")),
        }
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        self.target.lock()
    }

    fn geometry(&self) -> Geometry {
        self.target.geometry
    }

    fn reserve(&self) -> io::Result<()> {
        self.target.reserve()
    }

    fn space(&self) -> Space {
        self.target.space()
    }

    fn nature(&self) -> Nature {
        self.target.drive.nature().clone()
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(FileQueue::new(self.target.clone(), depth)))
    }
}

pub(crate) struct FileQueue {
    target: Target,
    depth: usize,
    next: u64,
    finished: VecDeque<Completion>,
}

impl FileQueue {
    pub(crate) fn new(target: Target, depth: u32) -> FileQueue {
        FileQueue { target, depth: depth.max(1) as usize, next: 0, finished: VecDeque::new() }
    }
}

impl Queue for FileQueue {
    fn submit(&mut self, op: Op, mut buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        if self.finished.len() >= self.depth {
            return Err((buffer, io::ErrorKind::WouldBlock.into()));
        }
        if let Err(error) = check_request(op, &buffer, &self.target.geometry, self.target.bytes) {
            return Err((buffer, error));
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let result = blocking::run(&self.target, op, &mut buffer);
        self.finished.push_back(Completion { ticket, op, buffer, result });
        Ok(ticket)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.finished.len();
        done.extend(self.finished.drain(..));
        count
    }

    fn wait(&mut self, done: &mut Vec<Completion>, _timeout: Duration) -> usize {
        self.poll(done)
    }
}

#[cfg(test)]
mod tests;
