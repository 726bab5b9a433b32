//! Pages that only the memory of the node's machine may have.
//!
//! A buffered write is answered when the node's system has the pages. A restart of that machine loses them, and the
//! host goes on. A log must not go on behind lost pages: a recovery ends at the first of them. So the client keeps what
//! it wrote, and writes it again:
//!
//! 1. A write is kept before it is sent, in place of what was kept of its pages.
//! 2. A buffered write is kept until a sync covers it that began after the write's answer. A durable one is let go with
//!    its answer.
//! 3. A write or sync may meet another start of the machine. The first one that does writes all that is kept: file
//!    after file in the order of their opening, and each file's pages ascending. The others wait, and go on then.
//! 4. From [`SYNC_BYTES`] on, the client has the node sync the oldest file, and goes on meanwhile. At
//!    [`KEPT_BYTES_MAX`] a write waits for a sync.
//!
//! **Invariants.** Of a page, the newest image is kept. A machine gets no write before it has all that is kept. A file
//! is forgotten before its name changes, as its room may be another file's then.
//!
//! **Threads.** Any; no lock is held across a request. A thread that renames a file waits for those that write its
//! pages again.
//!
//! **Failure.** Pages that cannot be written again fail the write or the sync that met the restart, and the next one
//! tries again. A sync that the client has begun by itself may fail: the next write or sync of that file has its error.
//! A host and a machine that end together lose what was not synced, as after any power failure.
//!
//! Rejected: to end the log file at a restart, and to make tables of the memtables. Acknowledged writes would be in no
//! log until the tables are there.

use super::open::OpenFile;
use crate::client::{Attempt, Shared};
use crate::error::CallError;
use crate::fields::Rest;
use crate::message::{Call, Done, Message, SyncPages, WritePages};
use situ_base::{Event, lock};
use situ_device::PAGE_BYTES;
use situ_storage::{FileName, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The number of bytes from which on the node is asked to sync.
pub(super) const SYNC_BYTES: usize = 8 << 20;
/// The number of kept bytes from which on a write waits for a sync.
pub(super) const KEPT_BYTES_MAX: usize = 32 << 20;
/// Bytes of a write that are not pages: the fields before them, and then some.
pub(super) const FIELDS_BYTES: usize = 64;

/// The kept pages of all page files of a volume.
pub(super) struct Buffered {
    shared: Arc<Shared>,
    kept: Mutex<Kept>,
    /// Notified when no thread writes pages again any more.
    restored: Arc<dyn Event>,
}

#[derive(Default)]
struct Kept {
    /// The start of the machine that has got all of this; `None` while nothing is kept.
    machine: Option<[u8; 16]>,
    /// By handle: in the order of their opening.
    files: BTreeMap<u64, KeptFile>,
    bytes: usize,
    /// Counts answers.
    answers: u64,
    is_restoring: bool,
    /// A sync without a waiter is under way.
    is_syncing: bool,
}

struct KeptFile {
    file: Arc<OpenFile>,
    pages: BTreeMap<u64, KeptPage>,
    /// The reason why a sync without a waiter failed.
    failed: Option<CallError>,
}

struct KeptPage {
    image: Arc<[u8]>,
    /// Which answer it was; `None` while the write is under way.
    answer: Option<u64>,
}

/// Images of pages that follow each other.
struct Run {
    file: Arc<OpenFile>,
    first: u64,
    images: Vec<Arc<[u8]>>,
}

impl Kept {
    /// Lets go of the pages that `covered` names.
    fn let_go(&mut self, handle: u64, covered: impl Fn(u64, &KeptPage) -> bool) {
        let Some(of_file) = self.files.get_mut(&handle) else { return };
        let before = of_file.pages.len();
        of_file.pages.retain(|page, kept| !covered(*page, kept));
        self.bytes -= (before - of_file.pages.len()) * PAGE_BYTES;
        if of_file.pages.is_empty() && of_file.failed.is_none() {
            self.forget(handle);
        }
    }

    fn forget(&mut self, handle: u64) {
        let pages = self.files.remove(&handle).map_or(0, |of_file| of_file.pages.len());
        self.bytes -= pages * PAGE_BYTES;
        if self.files.is_empty() {
            self.machine = None;
        }
    }

    fn failure_of(&self, handle: u64) -> Option<CallError> {
        self.files.get(&handle)?.failed.clone()
    }

    /// All that is kept, in the order in which it is written again. No run is longer than `pages_max`.
    fn runs(&self, pages_max: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for of_file in self.files.values() {
            for (page, kept) in &of_file.pages {
                let goes_on = |run: &&mut Run| {
                    let count = run.images.len();
                    Arc::ptr_eq(&run.file, &of_file.file) && run.first + count as u64 == *page && count < pages_max
                };
                let image = Arc::clone(&kept.image);
                match runs.last_mut().filter(goes_on) {
                    Some(run) => run.images.push(image),
                    None => runs.push(Run { file: Arc::clone(&of_file.file), first: *page, images: vec![image] }),
                }
            }
        }
        runs
    }
}

/// Writes pages again; the end wakes those that wait.
struct Restoring<'a>(&'a Buffered);

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        lock(&self.0.kept).is_restoring = false;
        self.0.restored.notify();
    }
}

impl Buffered {
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Buffered> {
        let restored = shared.options.env.executor.event();
        Arc::new(Buffered { shared: Arc::clone(shared), kept: Mutex::default(), restored })
    }

    /// Returns the kept pages when no thread writes pages again.
    fn settled(&self) -> MutexGuard<'_, Kept> {
        loop {
            let seen = self.restored.generation();
            let kept = lock(&self.kept);
            if !kept.is_restoring {
                return kept;
            }
            drop(kept);
            self.restored.wait(seen, None);
        }
    }

    /// Keeps pages that are about to be written.
    pub(super) fn keep(&self, file: &Arc<OpenFile>, first: u64, pages: &[u8], durable: bool) -> Result<(), CallError> {
        let mut kept = self.settled();
        if let Some(error) = kept.failure_of(file.handle) {
            return Err(error);
        }
        let end = first + (pages.len() / PAGE_BYTES) as u64;
        let of_file = kept.files.get(&file.handle);
        let is_kept = of_file.is_some_and(|of_file| of_file.pages.range(first..end).next().is_some());
        // A durable write is kept where it takes the place of pages that would be written again.
        if durable && !is_kept {
            return Ok(());
        }
        let fresh = || KeptFile { file: Arc::clone(file), pages: BTreeMap::new(), failed: None };
        let of_file = kept.files.entry(file.handle).or_insert_with(fresh);
        let before = of_file.pages.len();
        let images = pages.chunks(PAGE_BYTES).map(|image| KeptPage { image: image.into(), answer: None });
        of_file.pages.extend((first..end).zip(images));
        let added = of_file.pages.len() - before;
        kept.bytes += added * PAGE_BYTES;
        Ok(())
    }

    /// A write is answered.
    pub(super) fn answered(&self, handle: u64, first: u64, count: usize, durable: bool) {
        let mut kept = lock(&self.kept);
        kept.answers += 1;
        let (answer, written) = (kept.answers, first..first + count as u64);
        if durable {
            return kept.let_go(handle, |page, _| written.contains(&page));
        }
        let of_file = kept.files.get_mut(&handle).into_iter();
        of_file.flat_map(|of_file| of_file.pages.range_mut(written.clone())).for_each(|(_, kept)| {
            kept.answer = Some(answer);
        });
    }

    /// Sees to it that the machine of this attempt has all that is kept. Returns how many answers there were by then.
    pub(super) fn ready(&self, attempt: &Attempt, token: u64) -> Result<u64, CallError> {
        let (runs, answers) = {
            let mut kept = self.settled();
            let machine = kept.machine.or_else(|| (!kept.files.is_empty()).then_some(attempt.machine));
            kept.machine = machine;
            if machine.is_none_or(|machine| machine == attempt.machine) {
                return Ok(kept.answers);
            }
            kept.is_restoring = true;
            let pages_max = ((self.shared.payload_bytes_max() - FIELDS_BYTES) / PAGE_BYTES).max(1);
            (kept.runs(pages_max), kept.answers)
        };
        let restoring = Restoring(self);
        for Run { file, first, images } in runs {
            let write = WritePages { token, handle: file.handle, first, durable: false, data: Rest(images.concat()) };
            file.ask(attempt, &write)?;
        }
        let mut kept = lock(&self.kept);
        kept.machine = (!kept.files.is_empty()).then_some(attempt.machine);
        drop(kept);
        drop(restoring);
        Ok(answers)
    }

    /// Has the node sync a file, and waits for that.
    pub(super) fn sync(&self, file: &OpenFile, token: u64) -> Result<()> {
        let handle = file.handle;
        let done = self.shared.retry(self.shared.options.write_patience, |attempt| {
            if let Some(error) = lock(&self.kept).failure_of(handle) {
                return Err(error);
            }
            let answers = self.ready(attempt, token)?;
            file.ask(attempt, &SyncPages { token, handle }).map(|_| answers)
        });
        let answers = done.map_err(|error| error.about("sync", &file.path))?;
        self.synced(handle, answers);
        Ok(())
    }

    /// Lets go of the pages that were answered before a sync was sent: they are on the disk.
    fn synced(&self, handle: u64, answers: u64) {
        lock(&self.kept).let_go(handle, |_, kept| kept.answer.is_some_and(|answer| answer <= answers));
    }

    /// Waits for a sync if much is kept.
    pub(super) fn wait_for_room(&self, token: u64) -> Result<()> {
        while let Some(file) = self.oldest_if(KEPT_BYTES_MAX) {
            self.sync(&file, token)?;
        }
        Ok(())
    }

    /// Returns the oldest file of which a sync would let something go, if at least `bytes` bytes are kept.
    fn oldest_if(&self, bytes: usize) -> Option<Arc<OpenFile>> {
        let kept = lock(&self.kept);
        let mut files = kept.files.values().filter(|_| kept.bytes >= bytes);
        let oldest = files.find(|of_file| of_file.pages.values().any(|page| page.answer.is_some()));
        oldest.map(|of_file| Arc::clone(&of_file.file))
    }

    /// Has the node sync a file if much is kept, and does not wait.
    pub(super) fn begin_sync(self: &Arc<Self>, token: u64) {
        let Some(file) = self.oldest_if(SYNC_BYTES) else { return };
        let Some(attempt) = self.shared.alive() else { return };
        let (handle, answers) = {
            let mut kept = lock(&self.kept);
            if kept.is_syncing || kept.is_restoring || kept.machine != Some(attempt.machine) {
                return;
            }
            kept.is_syncing = true;
            (file.handle, kept.answers)
        };
        let (buffered, sync) = (Arc::clone(self), SyncPages { token, handle }.encode());
        let patience = Some(self.shared.options.write_patience);
        attempt.peer.call_later(SyncPages::OPERATION as u16, sync, patience, move |answer| {
            let answer = answer.and_then(|answer| Done::decode(&answer).map(drop).map_err(CallError::from));
            buffered.sync_ended(handle, answers, answer);
        });
    }

    fn sync_ended(&self, handle: u64, answers: u64, answer: Result<(), CallError>) {
        match answer {
            Ok(()) => self.synced(handle, answers),
            // After this, the node's system may have dropped the pages: no later sync can be believed.
            Err(error @ CallError::Storage(_)) => {
                lock(&self.kept).files.get_mut(&handle).into_iter().for_each(|of_file| {
                    of_file.failed.get_or_insert_with(|| error.clone());
                });
            }
            // All is kept, and a later sync tries again.
            Err(_) => {}
        }
        lock(&self.kept).is_syncing = false;
    }

    /// Forgets the pages of a closed file: they have no use any more.
    pub(super) fn closed(&self, handle: u64) {
        lock(&self.kept).forget(handle);
    }

    /// The file of this name is about to be renamed or removed.
    pub(super) fn forget_name(&self, name: FileName) {
        let mut kept = self.settled();
        let of_name = kept.files.iter().filter(|(_, of_file)| of_file.file.name() == Some(name));
        for handle in of_name.map(|(handle, _)| *handle).collect::<Vec<u64>>() {
            kept.forget(handle);
        }
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        lock(&self.kept).bytes
    }
}
