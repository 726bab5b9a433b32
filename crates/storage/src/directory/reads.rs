//! Submitted reads of a directory's files: by a ring of the kernel, or by threads where there is none.

use super::{OpenFile, read_exact, read_failed};
use crate::reads::{Pump, QueuedRead, ReadService, Served, Source};
use crate::{ReadCompletion, ReadRequest};
use situ_base::Env;
use situ_device::{FileRead, FileReads};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Reads that the kernel has at once, for all files of the directory.
const DEPTH: u32 = 128;

/// A read of a file of a directory, which it keeps open.
pub(super) struct DirectoryRead {
    pub(super) open: Arc<OpenFile>,
    pub(super) request: ReadRequest,
}

impl QueuedRead for DirectoryRead {
    fn run(self) {
        self.request.run(|offset, into| read_exact(&self.open.file, &self.open.path, offset, into));
    }
}

/// The reads of one directory.
pub(super) type DirectoryReads = ReadService<DirectoryRead>;

/// Starts the service. A directory has no environment of its own: it lies on the real machine, and so do its threads.
pub(super) fn start() -> io::Result<Served<DirectoryRead>> {
    let env = Env::system();
    match FileReads::new(DEPTH) {
        Ok(ring) => Ok(Served::Pump(Pump::start(&env, ring.watch(), RingSource::over(ring))?)),
        // The system gives no rings to this process, as in many containers.
        Err(_) => Ok(Served::threads(&env)),
    }
}

/// A read that the ring has.
struct InRing {
    open: Arc<OpenFile>,
    offset: u64,
    completion: ReadCompletion,
}

/// The ring, and whose its reads are.
struct RingSource {
    ring: FileReads,
    reads: HashMap<u64, InRing>,
    next: u64,
    done: Vec<FileRead>,
}

impl RingSource {
    fn over(ring: FileReads) -> RingSource {
        RingSource { ring, reads: HashMap::new(), next: 0, done: Vec::new() }
    }
}

impl Source for RingSource {
    type Read = DirectoryRead;

    fn places(&self) -> usize {
        self.ring.depth() - self.ring.in_flight()
    }

    fn in_flight(&self) -> usize {
        self.reads.len()
    }

    fn begin(&mut self, read: DirectoryRead) {
        let DirectoryRead { open, request: ReadRequest { offset, buffer, completion } } = read;
        let tag = self.next;
        self.next += 1;
        match self.ring.submit(tag, Arc::clone(&open.file), offset, buffer) {
            Ok(()) => drop(self.reads.insert(tag, InRing { open, offset, completion })),
            // There was a place; without one, the read is done here.
            Err(buffer) => DirectoryRead { open, request: ReadRequest { offset, buffer, completion } }.run(),
        }
    }

    fn collect(&mut self) -> usize {
        let count = self.ring.poll(&mut self.done);
        for FileRead { tag, buffer, result } in self.done.drain(..) {
            let Some(InRing { open, offset, completion }) = self.reads.remove(&tag) else { continue };
            let result = result.map_err(|error| read_failed(&open.file, &open.path, offset, buffer.len(), error));
            completion.complete(buffer, result);
        }
        count
    }
}

#[cfg(test)]
mod tests;
