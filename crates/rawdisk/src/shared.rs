//! The state that all handles of a volume share: the index of names, rooms, the journal; and the steps that change
//! them.

use super::cache::Cache;
use super::catalogue::{Catalogue, Edit, FILE_BYTES_TYPICAL, FilePlace, Record};
use super::file::{File, Meta};
use super::journal::{Journal, Plan, long_pages};
use super::layout::{PAGE, Superblock};
use super::prepare::{Loaded, load, write_copy};
use super::room::{Extent, Room, pages_of};
use super::transfer::{Transfers, places};
use situ_base::{Event, OneForAll, lock};
use situ_device::Buffer;
use situ_storage::{Error, FileName, Result};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The approximate number of free pages in one discard.
const DISCARD_BATCH_PAGES: u64 = (64 << 20) / PAGE;
/// A long checkpoint gets room for so much more than is needed when it is set apart.
const RESERVE_SLACK_BYTES: u64 = 64 << 10;

pub(super) struct State {
    pub(super) layout: Superblock,
    pub(super) log: Arc<Room>,
    pub(super) top: Arc<Room>,
    /// The current files of names, durable or not.
    pub(super) names: BTreeMap<FileName, Arc<File>>,
    /// The state of the journal after everything emitted.
    pub(super) catalogue: Catalogue,
    pub(super) journal: Journal,
    next_id: u64,
    /// True if files were begun or names changed through this volume: it is the only writer.
    pub(super) is_mine: bool,
    /// The reason why nothing may change from the return of the lock until the next lock. A volume that takes no lock,
    /// because no other process can reach the device, needs none.
    pub(super) given_back: Option<Error>,
    /// A marker that all files of this reading of the catalogue hold.
    reading: Arc<()>,
    /// The markers of earlier readings; those of which files are open still live.
    former: Vec<Weak<()>>,
    /// Copies of the superblock to be written again before anything else changes.
    pub(super) damaged_copies: Vec<u32>,
    /// The reason why free pages are not discarded on the device any more.
    pub(super) discard_failed: Option<String>,
}

pub(super) struct Shared {
    pub(super) transfers: Transfers,
    pub(super) cache: Arc<Cache>,
    state: Mutex<State>,
    committed: Arc<dyn Event>,
    flushes: OneForAll,
    /// Locks of the device that this volume has given out.
    pub(super) locks: AtomicU32,
}

impl State {
    /// # Errors
    /// Records that contradict each other.
    pub(super) fn new(loaded: Loaded, transfers: &Transfers, cache: &Arc<Cache>, next_id: u64) -> Result<State> {
        let Loaded { layout, replayed, damaged_copies } = loaded;
        let catalogue = &replayed.catalogue;
        let rot = |why| {
            let what = "no page that two files have";
            Error::corruption(&transfers.location, layout.half_first(replayed.half) * PAGE, "catalogue", what, why)
        };
        let event = || transfers.env.executor.event();
        let discard_pages = u64::from(transfers.geometry.discard_bytes).div_ceil(PAGE);
        let log = Room::new(layout.log, catalogue.extents_in(&layout.log), 0, event()).map_err(rot)?;
        let used = catalogue.extents_in(&layout.top).chain(replayed.long.iter().copied());
        let top = Room::new(layout.top, used, discard_pages, event()).map_err(rot)?;
        let journal = Journal::new(&replayed);
        let mut state = State {
            layout,
            log: Arc::new(log),
            top: Arc::new(top),
            names: BTreeMap::new(),
            catalogue: replayed.catalogue,
            journal,
            next_id,
            is_mine: false,
            given_back: None,
            reading: Arc::new(()),
            former: Vec::new(),
            damaged_copies,
            discard_failed: None,
        };
        for (name, record) in state.catalogue.files.clone() {
            let inline = match &record.place {
                FilePlace::Inline(contents) => Some(Arc::clone(contents)),
                FilePlace::Extents(_) => None,
            };
            let meta = Meta {
                name: Some(name),
                extents: record.extents().to_vec(),
                length: record.length,
                inline,
                is_published: true,
                is_growing: false,
            };
            let file = state.file(meta, cache);
            state.names.insert(name, file);
        }
        Ok(state)
    }

    fn file(&mut self, meta: Meta, cache: &Arc<Cache>) -> Arc<File> {
        self.next_id += 1;
        let in_log = meta.extents.first().is_some_and(|extent| self.layout.log.contains(extent));
        let room = Arc::clone(if in_log { &self.log } else { &self.top });
        Arc::new(File::new(self.next_id, room, Arc::clone(cache), meta, Arc::clone(&self.reading)))
    }

    /// Returns true if the journal has not changed since this state was read.
    pub(super) fn is_as(&self, loaded: &Loaded) -> bool {
        self.position() == (loaded.layout, loaded.replayed.epoch, loaded.replayed.sequence)
    }

    /// Returns true if `loaded` was read from an earlier journal of the same disk.
    pub(super) fn is_ahead_of(&self, loaded: &Loaded) -> bool {
        let (layout, epoch, sequence) = self.position();
        layout.id == loaded.layout.id && (loaded.replayed.epoch, loaded.replayed.sequence) < (epoch, sequence)
    }

    /// Returns the disk and the last durable frame of its journal, as far as this volume knows.
    fn position(&self) -> (Superblock, u64, u64) {
        (self.layout, self.journal.epoch, self.journal.sequence)
    }

    /// Returns true if a file has a holder, even a file that has lost its name: each file holds its room.
    fn is_in_use(&self) -> bool {
        let known = self.names.values().chain(self.journal.leaving.iter().map(|(_, file)| file));
        let holders = Arc::strong_count(&self.log) + Arc::strong_count(&self.top) - 2;
        holders > known.clone().count() || known.clone().any(|file| Arc::strong_count(file) > 1)
    }

    /// # Errors
    /// The volume takes no changes, or not now.
    fn check_changes(&self) -> Result<()> {
        self.journal.failed.as_ref().or(self.given_back.as_ref()).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Applies an edit and queues it for the journal.
    fn emit(&mut self, edit: Edit) -> Result<u64> {
        self.is_mine = true;
        let number = self.journal.emit(&edit);
        let wrong = |why: String| Error::Invalid(format!("an edit of the catalogue that does not fit it: {why}"));
        // It fits, unless this program is wrong: then the journal must not go on.
        self.catalogue.apply(edit).map_err(|why| {
            let error = wrong(why);
            self.journal.failed = Some(error.clone());
            error
        })?;
        Ok(number)
    }

    fn publish(&mut self, file: &File, length: u64) -> Result<Option<u64>> {
        self.check_changes()?;
        let mut meta = file.meta();
        let Some(name) = meta.name else { return Ok(None) };
        let place = match &meta.inline {
            Some(contents) => FilePlace::Inline(Arc::clone(contents)),
            None => FilePlace::Extents(places(&meta.extents, 0, length.div_ceil(PAGE))),
        };
        let record = Record { length, place };
        meta.length = length;
        if meta.is_published && self.catalogue.files.get(&name) == Some(&record) {
            return Ok(Some(self.journal.emitted));
        }
        meta.is_published = true;
        drop(meta);
        self.emit(Edit::Put(name, record)).map(Some)
    }

    /// Takes the name from a file. Its record in the catalogue is gone with edit `number`.
    fn unlink(&mut self, file: Arc<File>, number: u64) -> Option<Arc<File>> {
        let mut meta = file.meta();
        meta.name = None;
        let was_published = std::mem::replace(&mut meta.is_published, false);
        drop(meta);
        if was_published {
            self.journal.leaving.push((number, file));
            return None;
        }
        Some(file)
    }
}

impl Shared {
    pub(super) fn new(transfers: Transfers, cache: Arc<Cache>, state: State) -> Shared {
        let (committed, flushes) = (transfers.env.executor.event(), OneForAll::new(transfers.env.executor.event()));
        let (state, locks) = (Mutex::new(state), AtomicU32::new(0));
        Shared { transfers, cache, state, committed, flushes, locks }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn path(&self, name: FileName) -> String {
        format!("{name} on {}", self.transfers.location)
    }

    pub(super) fn fail(&self, op: &'static str, name: FileName, error: io::Error) -> Error {
        Error::io(op, self.path(name), error)
    }

    /// # Errors
    /// The volume takes no changes, or not now.
    pub(super) fn check_alive(&self) -> Result<()> {
        self.lock().check_changes()
    }

    /// Takes no change from now on.
    fn give_up(&self, error: &Error) {
        self.lock().journal.failed.get_or_insert_with(|| error.clone());
    }

    /// Makes completed writes durable. If that fails, the outcome of each write is unknown. So there is one flush at a
    /// time, shared by the callers that wait for one. A failed flush is known before another can succeed. The device
    /// may have dropped the bytes of the failed one.
    pub(super) fn flush(&self) -> Result<()> {
        self.check_alive()?;
        if !self.transfers.geometry.volatile_write_cache {
            return Ok(());
        }
        self.flushes.run(|| {
            // A flush on another thread may have failed.
            self.check_alive()?;
            let result = self.transfers.flush().map_err(|error| self.transfers.fail("flush", error));
            result.inspect_err(|error| self.give_up(error))
        })
    }

    /// Begins a file under a name that is free.
    pub(super) fn begin(&self, op: &'static str, name: FileName, in_log: bool) -> Result<Arc<File>> {
        let mut state = self.lock();
        state.check_changes()?;
        if state.names.contains_key(&name) {
            return Err(self.fail(op, name, io::ErrorKind::AlreadyExists.into()));
        }
        let file = self.anonymous(&mut state, in_log);
        let mut meta = file.meta();
        (meta.name, meta.is_growing) = (Some(name), true);
        drop(meta);
        state.names.insert(name, Arc::clone(&file));
        Ok(file)
    }

    /// Returns a file without a name.
    pub(super) fn anonymous(&self, state: &mut State, in_log: bool) -> Arc<File> {
        state.is_mine = true;
        state.next_id += 1;
        let room = Arc::clone(if in_log { &state.log } else { &state.top });
        let reading = Arc::clone(&state.reading);
        Arc::new(File::new(state.next_id, room, Arc::clone(&self.cache), Meta::default(), reading))
    }

    /// Takes back what `begin` did.
    pub(super) fn abandon(&self, file: &Arc<File>) {
        let mut state = self.lock();
        let name = file.meta().name.take();
        let removed = name.and_then(|name| match state.names.get(&name) {
            Some(found) if Arc::ptr_eq(found, file) => state.names.remove(&name),
            _ => None,
        });
        drop(state);
        drop(removed);
    }

    pub(super) fn find(&self, name: FileName) -> Result<Arc<File>> {
        let known = || self.lock().names.get(&name).cloned();
        let mut found = known();
        if found.is_none() && self.is_guest() {
            self.refresh()?;
            found = known();
        }
        found.ok_or_else(|| self.gone(name))
    }

    /// Takes pages: one run of them if that can be had, several if not. `None` if there are fewer, removals on their
    /// way included.
    pub(super) fn allocate(&self, room: &Room, pages: u64) -> Option<Vec<Extent>> {
        let run = || room.take_run(pages).map(|extent| vec![extent]);
        if let Some(extents) = run() {
            return Some(extents);
        }
        if room.reclaim()
            && let Some(extents) = run()
        {
            return Some(extents);
        }
        let (leaving, emitted) = {
            let state = self.lock();
            (!state.journal.leaving.is_empty(), state.journal.emitted)
        };
        if leaving && self.commit(emitted).is_ok() {
            room.reclaim();
        }
        while run_missing(room, pages) && room.wait_for_discard() {}
        run().or_else(|| room.take_pieces(pages))
    }

    /// Makes sure that the catalogue can grow by a file and still be written as a whole.
    pub(super) fn reserve_checkpoint(&self) -> Result<()> {
        for is_last in [false, true] {
            let emitted = {
                let mut state = self.lock();
                let state = &mut *state;
                let unpublished = state.names.len().saturating_sub(state.catalogue.files.len()) as u64;
                let bytes = state.catalogue.encoded_bytes() + (unpublished + 1) * FILE_BYTES_TYPICAL;
                if long_pages(&state.layout, bytes + bytes / 4) == 0 {
                    return Ok(());
                }
                let needed = (bytes + bytes / 4).div_ceil(PAGE);
                let journal = &mut state.journal;
                if pages_of(&journal.reserve) >= needed {
                    return Ok(());
                }
                let pages = needed + (bytes / 2 + RESERVE_SLACK_BYTES) / PAGE;
                let wish = [pages, needed].into_iter().find_map(|pages| {
                    state.top.reclaim();
                    state.top.take_run(pages).map(|extent| vec![extent]).or_else(|| state.top.take_pieces(pages))
                });
                if let Some(extents) = wish {
                    let old = std::mem::replace(&mut journal.reserve, extents);
                    state.top.give_back(&old);
                    return Ok(());
                }
                journal.emitted
            };
            if is_last {
                break;
            }
            self.commit(emitted)?;
        }
        Err(Error::NoSpace { op: "reserve room for the catalogue of", path: self.transfers.location.clone() })
    }

    /// Tells the journal of a file as far as `length`, under whatever name it has. Returns the number of the edit to
    /// wait for, `None` if the file has no name any more.
    pub(super) fn publish(&self, file: &File, length: u64) -> Result<Option<u64>> {
        self.lock().publish(file, length)
    }

    /// Puts a file under a name in place of what has it, and publishes it.
    pub(super) fn put(&self, name: FileName, file: &Arc<File>, length: u64) -> Result<u64> {
        let mut state = self.lock();
        file.meta().name = Some(name);
        // Published first: a volume that takes no changes keeps what it has.
        let number = state.publish(file, length)?.unwrap_or(0);
        let replaced = state.names.insert(name, Arc::clone(file));
        let gone = replaced.and_then(|replaced| state.unlink(replaced, number));
        drop(state);
        drop(gone);
        Ok(number)
    }

    pub(super) fn rename(&self, from: FileName, to: FileName) -> Result<()> {
        let mut state = self.lock();
        state.check_changes()?;
        let found = state.names.get(&from).cloned();
        let file = found.ok_or_else(|| Error::NotFound { path: self.path(from) })?;
        if from == to {
            return Ok(());
        }
        let is_published = file.meta().is_published;
        let replaced = state.names.get(&to).cloned();
        let replaces_published = replaced.as_ref().is_some_and(|old| old.meta().is_published);
        let number = if is_published {
            state.emit(Edit::Rename(from, to))?
        } else if replaces_published {
            state.emit(Edit::Remove(to))?
        } else {
            state.journal.emitted
        };
        state.names.remove(&from);
        file.meta().name = Some(to);
        state.names.insert(to, file);
        let old = replaced.and_then(|old| state.unlink(old, number));
        drop(state);
        drop(old);
        Ok(())
    }

    pub(super) fn remove(&self, name: FileName) -> Result<()> {
        let mut state = self.lock();
        state.check_changes()?;
        let found = state.names.get(&name).cloned();
        let file = found.ok_or_else(|| Error::NotFound { path: self.path(name) })?;
        let is_published = file.meta().is_published;
        let number = if is_published { state.emit(Edit::Remove(name))? } else { 0 };
        state.names.remove(&name);
        let gone = state.unlink(file, number);
        drop(state);
        drop(gone);
        Ok(())
    }

    /// Makes all edits up to number `upto` durable.
    pub(super) fn commit(&self, upto: u64) -> Result<()> {
        loop {
            let seen = self.committed.generation();
            match self.next_plan(upto)? {
                Next::Done => return Ok(()),
                Next::Wait => {
                    self.committed.wait(seen, None);
                }
                Next::Write(plan, copies, layout) => {
                    let result = self.write(&plan, &copies, &layout);
                    let gone = self.settle(*plan, &result);
                    self.committed.notify();
                    drop(gone);
                    result?;
                }
            }
        }
    }

    fn next_plan(&self, upto: u64) -> Result<Next> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.journal.durable >= upto {
            return Ok(Next::Done);
        }
        state.check_changes()?;
        let journal = &mut state.journal;
        if journal.writing {
            return Ok(Next::Wait);
        }
        let mut plan = journal.plan(&state.layout, &state.catalogue);
        if plan.is_none() {
            // A file in very many pieces can make the catalogue outgrow what was set apart for it.
            let needed = long_pages(&state.layout, state.catalogue.encoded_bytes());
            state.top.reclaim();
            if let Some(extents) = state.top.take_pieces(needed) {
                let old = std::mem::replace(&mut journal.reserve, extents);
                state.top.give_back(&old);
                plan = journal.plan(&state.layout, &state.catalogue);
            }
        }
        let no_space = || Error::NoSpace { op: "write the catalogue of", path: self.transfers.location.clone() };
        let plan = plan.ok_or_else(no_space)?;
        journal.writing = true;
        Ok(Next::Write(Box::new(plan), state.damaged_copies.clone(), state.layout))
    }

    fn write(&self, plan: &Plan, damaged_copies: &[u32], layout: &Superblock) -> Result<()> {
        let failed = |error| self.transfers.fail("write the metadata journal of", error);
        for copy in damaged_copies {
            write_copy(&self.transfers, layout, *copy).map_err(failed)?;
        }
        if let Some((extents, body)) = &plan.long {
            let mut padded = body.clone();
            padded.resize(body.len().next_multiple_of(PAGE as usize), 0);
            let pages = padded.len() as u64 / PAGE;
            self.transfers.write_pages(&places(extents, 0, pages), &padded).map_err(failed)?;
            self.flush()?;
        }
        if plan.frame.len() <= self.transfers.piece_bytes() {
            let mut frame = Buffer::new(plan.frame.len());
            frame.copy_from_slice(&plan.frame);
            return self.transfers.write_frame(plan.place.first * PAGE, frame).map_err(failed);
        }
        self.transfers.write_pages(&[plan.place], &plan.frame).map_err(failed)?;
        self.flush()
    }

    /// Notes the outcome of a frame. Returns files that have no user any more, to be dropped without the lock.
    fn settle(&self, plan: Plan, result: &Result<()>) -> Vec<Arc<File>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.journal.writing = false;
        if let Err(error) = result {
            state.journal.failed.get_or_insert_with(|| error.clone());
            return Vec::new();
        }
        state.damaged_copies.clear();
        let free = state.journal.landed(plan);
        state.top.give_back(&free);
        let durable = state.journal.durable;
        let leaving = std::mem::take(&mut state.journal.leaving);
        let (gone, stay): (Vec<_>, Vec<_>) = leaving.into_iter().partition(|(number, _)| *number <= durable);
        state.journal.leaving = stay;
        gone.into_iter().map(|(_, file)| file).collect()
    }

    /// Reads the metadata again and takes what others have left: another process, or another opener in this one. The
    /// caller has just got the right to change the volume, so nothing changes meanwhile but what this one still
    /// finishes.
    pub(super) fn catch_up(&self) -> Result<()> {
        loop {
            let seen = self.committed.generation();
            let before = {
                let state = self.lock();
                (!state.journal.writing).then(|| state.position())
            };
            let Some(before) = before else {
                self.committed.wait(seen, None);
                continue;
            };
            let loaded = load(&self.transfers)?;
            let mut state = self.lock();
            if state.journal.writing || state.position() != before {
                continue;
            }
            let is_same = state.is_as(&loaded);
            // Nor may pages be given away under files that were opened at an earlier reading.
            let in_use = state.former.iter().any(|reading| reading.strong_count() > 0);
            if in_use || (!is_same && state.is_in_use()) {
                let location = &self.transfers.location;
                return Err(Error::Invalid(format!(
                    "somebody else has changed {location} since it was opened, and files of it are in use; open it again"
                )));
            }
            if is_same {
                return Ok(());
            }
            let old = self.replace(&mut state, loaded)?;
            drop(state);
            drop(old);
            return Ok(());
        }
    }

    /// Puts a new reading of the catalogue in place. Returns the old one, to be dropped without the lock.
    pub(super) fn replace(&self, state: &mut State, loaded: Loaded) -> Result<State> {
        let new = State::new(loaded, &self.transfers, &self.cache, state.next_id)?;
        let mut old = std::mem::replace(state, new);
        state.given_back = old.given_back.take();
        state.former = std::mem::take(&mut old.former);
        state.former.retain(|reading| reading.strong_count() > 0);
        state.former.push(Arc::downgrade(&old.reading));
        Ok(old)
    }

    /// Discards some of the free pages that wait for it. True if there are more.
    pub(super) fn discard(&self) -> bool {
        let (top, off) = {
            let state = self.lock();
            (Arc::clone(&state.top), state.discard_failed.is_some() || state.check_changes().is_err())
        };
        if off {
            top.reclaim();
            return false;
        }
        let batch = top.take_for_discard(DISCARD_BATCH_PAGES);
        if batch.is_empty() {
            return false;
        }
        let whole: Vec<Extent> = batch.iter().filter_map(|extent| top.discardable(extent)).collect();
        let result = self.transfers.discard(&whole);
        top.discarded(&batch);
        if let Err(error) = result {
            // The pages are free all the same; the device only does not know it. The report says so.
            self.lock().discard_failed = Some(error.to_string());
        }
        top.awaits_discard()
    }
}

fn run_missing(room: &Room, pages: u64) -> bool {
    room.account().longest_pages < pages
}

enum Next {
    Done,
    Wait,
    Write(Box<Plan>, Vec<u32>, Superblock),
}
