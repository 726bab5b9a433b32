//! Open files of a simulated volume: the writer, the reader and the page file.
//!
//! A handle names its file by inode, so renames, removals and other worlds do not disturb it.

use super::{Shared, Subject};
use crate::disk::sectors;
use crate::fault::{Fault, Operation};
use situ_base::lock;
use situ_storage::{Buffer, FileName, PAGE_BYTES, PageFile, ReadRequest, Reader, Result, Writer};
use std::io;
use std::sync::{Arc, Mutex};

/// Appended bytes collect up to this many in a writer, as in a `DirectoryVolume`'s.
pub(super) const APPEND_BUFFER_BYTES: usize = 256 << 10;

/// An open file: keeps it alive without a name.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: u64,
    /// The name at opening; for errors and for rules.
    pub(super) name: FileName,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().disk.release(self.inode);
    }
}

impl Handle {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let subject = Subject::new(Operation::Read, self.name).range(offset, into.len());
        self.shared.read(self.inode, subject, into)
    }

    /// Makes everything written before the call durable, and the name with the change number `link`, if given.
    fn sync(&self, link: Option<u64>) -> Result<()> {
        let shared = &self.shared;
        let subject = Subject::new(Operation::Sync, self.name);
        shared.operate(subject, |verdict| {
            let mut state = shared.effect(subject, verdict)?;
            let watermark = state.disk.watermark();
            let file = state.disk.inode(self.inode);
            let length = file.contents.len();
            if verdict.fault == Some(Fault::DropDirty) {
                file.drop_dirty(None);
                return Err(shared.fail(subject, io::Error::from_raw_os_error(5)));
            }
            drop(state);
            let mut state = shared.half_way(subject, verdict)?;
            if verdict.fault != Some(Fault::FalseDurability) {
                state.disk.inode(self.inode).commit(watermark, length, None);
                if let Some(link) = link {
                    state.disk.commit_name(link);
                }
            }
            Ok(())
        })
    }
}

pub(super) struct SimReader {
    pub(super) file: Arc<Handle>,
    pub(super) path: String,
    pub(super) bytes: u64,
}

impl Reader for SimReader {
    fn path(&self) -> &str {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, into)
    }

    /// Reads as if every other page were in memory, but not the first one.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<bool> {
        if (offset / PAGE_BYTES as u64).is_multiple_of(2) {
            return Ok(false);
        }
        self.read_at(offset, into).map(|()| true)
    }

    /// Reads on a thread of its own, so that the seed decides when it is read and when it completes. If no thread can
    /// be started, because nothing runs or the process was killed, it is read here.
    fn submit(&self, request: ReadRequest) {
        let request = Arc::new(Mutex::new(Some(request)));
        let (file, taken) = (Arc::clone(&self.file), Arc::clone(&request));
        let read = move || {
            if let Some(request) = take(&taken) {
                request.run(|offset, into| file.read_at(offset, into));
            }
        };
        if self.file.shared.env.executor.spawn("submitted read", Box::new(read)).is_err()
            && let Some(request) = take(&request)
        {
            request.run(|offset, into| self.read_at(offset, into));
        }
    }
}

/// Takes the request in a call of its own, so that the lock is given back before anything is read.
fn take(request: &Mutex<Option<ReadRequest>>) -> Option<ReadRequest> {
    lock(request).take()
}

pub(super) struct SimWriter {
    pub(super) file: Handle,
    /// The number of the change that gave the file its name.
    pub(super) link: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) handed_over: u64,
}

impl SimWriter {
    fn hand_over(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let shared = &self.file.shared;
        let subject = Subject::new(Operation::Append, self.file.name).range(self.handed_over, bytes.len());
        let subject = subject.content(bytes);
        shared.operate(subject, |verdict| {
            let state = shared.effect(subject, verdict)?;
            shared.check_room(&state, subject, bytes.len() as u64)?;
            drop(state);
            shared.store(self.file.inode, subject, verdict, bytes)?;
            shared.half_way(subject, verdict).map(drop)
        })?;
        self.handed_over += bytes.len() as u64;
        Ok(())
    }
}

impl Writer for SimWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > APPEND_BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= APPEND_BUFFER_BYTES {
            return self.hand_over(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.handed_over + self.buffer.len() as u64
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync(Some(self.link))
    }

    fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.hand_over(&buffer);
        buffer.clear();
        self.buffer = buffer;
        result
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

pub(super) struct SimPageFile {
    pub(super) file: Handle,
    pub(super) path: String,
    pub(super) pages: u64,
}

impl PageFile for SimPageFile {
    fn path(&self) -> &str {
        &self.path
    }

    fn pages(&self) -> u64 {
        self.pages
    }

    fn writes_wait(&self) -> bool {
        false
    }

    fn write(&self, first: u64, buffer: &Buffer, count: usize, durable: bool) -> Result<()> {
        let bytes = &buffer[..count * PAGE_BYTES];
        assert!(first + count as u64 <= self.pages, "pages {first}+{count} of {} in {}", self.pages, self.path);
        let shared = &self.file.shared;
        let subject = Subject::new(Operation::WritePages, self.file.name);
        let subject = subject.range(first * PAGE_BYTES as u64, bytes.len()).content(bytes);
        shared.operate(subject, |verdict| {
            let (number, offset) = shared.store(self.file.inode, subject, verdict, bytes)?;
            let written = sectors(offset, bytes.len());
            let mut state = shared.half_way(subject, verdict)?;
            let file = state.disk.inode(self.file.inode);
            match verdict.fault {
                Some(Fault::DropDirty) => {
                    file.drop_dirty(Some(written));
                    return Err(shared.fail(subject, io::Error::from_raw_os_error(5)));
                }
                Some(Fault::FalseDurability | Fault::LoseWrite) => {}
                _ if durable => file.commit(number, 0, Some(written)),
                _ => {}
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        self.file.sync(None)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, into)
    }

    /// Zeros that are visible at once and durable with the next sync. Like any write, a crash keeps or loses each
    /// sector.
    fn discard(&self, first: u64, count: u64) -> Result<bool> {
        assert!(first + count <= self.pages, "pages {first}+{count} of {} in {}", self.pages, self.path);
        let shared = &self.file.shared;
        if shared.lock().fate.faults.plan.no_discard {
            return Ok(false);
        }
        let zeros = vec![0; count as usize * PAGE_BYTES];
        let subject = Subject::new(Operation::Discard, self.file.name).range(first * PAGE_BYTES as u64, zeros.len());
        shared.operate(subject, |verdict| {
            shared.store(self.file.inode, subject, verdict, &zeros)?;
            shared.half_way(subject, verdict).map(|_| true)
        })
    }
}
