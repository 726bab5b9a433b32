//! A file or block device as a [`Device`], by `pread` and `pwrite`.
//!
//! Operations complete inside [`Queue::submit`]: the queue is a list of finished work. It is the backend that works
//! everywhere; asynchronous backends take over where the system offers them.

use crate::{Buffer, Completion, Device, Geometry, Op, PAGE_BYTES, Queue, Space, Ticket};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A fixed-size file, or a block device, opened for direct I/O where the file system allows it.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<File>,
    bytes: u64,
}

impl FileDevice {
    /// Opens an existing file or block device; its size is taken as it is now.
    ///
    /// # Errors
    /// Whatever the system answers to `open` and `lseek`.
    pub fn open(path: &Path) -> io::Result<FileDevice> {
        let direct = OFlags::DIRECT.bits() as i32;
        let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = match open(direct) {
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::OPNOTSUPP)) => open(0)?,
            other => other?,
        };
        let bytes = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        Ok(FileDevice { file: Arc::new(file), bytes: bytes - bytes % PAGE_BYTES as u64 })
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        fcntl_getfl(&*self.file).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: PAGE_BYTES as u32,
            // What every disk promises. A larger unit needs the device's own word for it.
            atomic_write_bytes: 512,
            max_transfer_bytes: 1 << 20,
            volatile_write_cache: true,
        }
    }

    fn space(&self) -> Space {
        let used = self.file.metadata().map(|m| std::os::unix::fs::MetadataExt::blocks(&m) * 512);
        Space { logical_total: self.bytes, logical_used: used.unwrap_or(self.bytes), physical_used: None }
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(FileQueue {
            file: Arc::clone(&self.file),
            bytes: self.bytes,
            depth: depth.max(1) as usize,
            next: 0,
            finished: VecDeque::new(),
        }))
    }
}

struct FileQueue {
    file: Arc<File>,
    bytes: u64,
    depth: usize,
    next: u64,
    finished: VecDeque<Completion>,
}

impl FileQueue {
    fn run(&self, op: Op, buffer: &mut Buffer) -> io::Result<()> {
        match op {
            Op::Read { offset } => self.file.read_exact_at(buffer, offset),
            Op::Write { offset, durable } => {
                self.file.write_all_at(buffer, offset)?;
                if durable { self.file.sync_data() } else { Ok(()) }
            }
            Op::Flush => self.file.sync_data(),
            Op::Discard { offset, bytes } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&*self.file, flags, offset, bytes).map_err(io::Error::from)
            }
            Op::Zero { offset, bytes } => {
                let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                fallocate(&*self.file, flags, offset, bytes).map_err(io::Error::from)
            }
        }
    }

    fn check(&self, op: Op, buffer: &Buffer) -> io::Result<()> {
        let (offset, bytes) = match op {
            Op::Read { offset } | Op::Write { offset, .. } => (offset, buffer.len() as u64),
            Op::Discard { offset, bytes } | Op::Zero { offset, bytes } => (offset, bytes),
            Op::Flush => return Ok(()),
        };
        let page = PAGE_BYTES as u64;
        if offset % page != 0 || bytes % page != 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{op:?} of {bytes} bytes is not in whole blocks of {page} bytes"),
            ));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{op:?} of {bytes} bytes ends behind the device, which has {} bytes", self.bytes),
            ));
        }
        Ok(())
    }
}

impl Queue for FileQueue {
    fn submit(&mut self, op: Op, mut buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        if self.finished.len() >= self.depth {
            return Err((buffer, io::ErrorKind::WouldBlock.into()));
        }
        if let Err(error) = self.check(op, &buffer) {
            return Err((buffer, error));
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        let result = self.run(op, &mut buffer);
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
mod tests {
    use super::*;

    fn device(pages: u64) -> (tempfile::NamedTempFile, FileDevice) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(pages * PAGE_BYTES as u64).unwrap();
        let device = FileDevice::open(file.path()).unwrap();
        (file, device)
    }

    #[test]
    fn reads_back_what_was_written() {
        let (_file, device) = device(4);
        let mut queue = device.queue(2).unwrap();
        let mut done = Vec::new();
        let mut buffer = Buffer::new(PAGE_BYTES);
        buffer.fill(9);
        queue.submit(Op::Write { offset: 4096, durable: true }, buffer).unwrap();
        queue.submit(Op::Read { offset: 4096 }, Buffer::new(PAGE_BYTES)).unwrap();
        assert_eq!(queue.wait(&mut done, Duration::ZERO), 2);
        assert!(done.iter().all(|c| c.result.is_ok()));
        assert!(done[1].buffer.iter().all(|b| *b == 9));
    }

    #[test]
    fn a_full_queue_hands_the_buffer_back() {
        let (_file, device) = device(1);
        let mut queue = device.queue(1).unwrap();
        queue.submit(Op::Flush, Buffer::new(1)).unwrap();
        let (buffer, error) = queue.submit(Op::Flush, Buffer::new(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(buffer.len(), PAGE_BYTES);
    }

    #[test]
    fn bad_addresses_are_refused_with_the_reason() {
        let (_file, device) = device(1);
        let mut queue = device.queue(1).unwrap();
        let behind = queue.submit(Op::Read { offset: 4096 }, Buffer::new(1)).unwrap_err().1;
        assert!(behind.to_string().contains("ends behind the device"), "{behind}");
        let odd = queue.submit(Op::Read { offset: 1 }, Buffer::new(1)).unwrap_err().1;
        assert!(odd.to_string().contains("whole blocks"), "{odd}");
    }
}
