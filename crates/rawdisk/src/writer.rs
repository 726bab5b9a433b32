//! A file written once, on its way to the TopFS area.
//!
//! Bytes gather in a piece of 1 MiB. A full piece is submitted, and the next one is filled while up to four are in
//! flight. The reserved room of the file is used up from its front. A file that outgrows it gets more, right behind if
//! that is free. Units of 64 KiB go to the cache as they are submitted. A sync in the middle writes the last page with
//! zeros behind the end, and writes it again later with more bytes. Sectors are whole, so the durable bytes in it stay.
//!
//! **Failure.** After an error the file takes nothing more. The unsynced bytes of a dropped writer are given back. A
//! file that was never synced stays as an empty one, without room, until its owner removes it or the volume is opened
//! again.

use super::cache::UNIT_BYTES;
use super::file::File;
use super::layout::PAGE;
use super::room::{Extent, pages_of};
use super::shared::Shared;
use super::transfer::{QueueSlot, SMALL_PIECE_BYTES, pieces, places};
use situ_device::{Buffer, Op, PAGE_BYTES};
use situ_storage::{Error, FileName, Result, Writer};
use std::sync::Arc;

/// A file that outgrows its room gets at least so much more, if there is as much.
const GROW_BYTES_MIN: u64 = 1 << 20;
const GROW_BYTES_MAX: u64 = 16 << 20;

pub(super) struct RawWriter {
    shared: Arc<Shared>,
    file: Arc<File>,
    name: FileName,
    extents: Vec<Extent>,
    /// Kept while writing, if there was one to spare.
    slot: Option<QueueSlot>,
    piece: Buffer,
    /// The offset of the piece in the file.
    piece_at: u64,
    filled: usize,
    /// Pages of the piece that were submitted as they are now.
    submitted_pages: usize,
    failed: Option<Error>,
    /// The bytes that a commit has entered into the journal.
    published: u64,
}

impl RawWriter {
    pub(super) fn new(shared: Arc<Shared>, file: Arc<File>, name: FileName, extents: Vec<Extent>) -> RawWriter {
        let bytes = shared.transfers.piece_bytes().next_multiple_of(UNIT_BYTES);
        RawWriter {
            shared,
            file,
            name,
            extents,
            slot: None,
            piece: Buffer::new(bytes),
            piece_at: 0,
            filled: 0,
            submitted_pages: 0,
            failed: None,
            published: 0,
        }
    }

    fn guard<T>(&mut self, work: impl FnOnce(&mut RawWriter) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        work(self).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Makes sure that the file has `pages` pages.
    fn grow(&mut self, pages: u64) -> Result<()> {
        let has = pages_of(&self.extents);
        if pages <= has {
            return Ok(());
        }
        let missing = pages - has;
        let wish = (has * PAGE / 4).clamp(GROW_BYTES_MIN, GROW_BYTES_MAX) / PAGE;
        let room = Arc::clone(&self.file.room);
        let more = [missing.max(wish), missing].into_iter().find_map(|pages| {
            if let Some(last) = self.extents.last()
                && room.take_behind(last, pages)
            {
                return Some(vec![Extent { first: last.first + last.pages, pages }]);
            }
            self.shared.allocate(&room, pages)
        });
        let no_space = || Error::NoSpace { op: "write", path: self.shared.path(self.name) };
        for extent in more.ok_or_else(no_space)? {
            match self.extents.last_mut() {
                Some(last) if last.first + last.pages == extent.first => last.pages += extent.pages,
                _ => self.extents.push(extent),
            }
        }
        // The file owns them from now on, whatever becomes of the writer.
        self.file.meta().extents.clone_from(&self.extents);
        Ok(())
    }

    /// Submits what was filled and not submitted. A full piece goes as it is, and a new one begins.
    fn submit(&mut self) -> Result<()> {
        let pages = self.filled.div_ceil(PAGE_BYTES);
        if pages <= self.submitted_pages {
            return Ok(());
        }
        let first = self.piece_at / PAGE;
        self.grow(first + pages as u64)?;
        self.piece[self.filled..pages * PAGE_BYTES].fill(0);
        let is_full = self.filled == self.piece.len();
        if is_full {
            self.fill_cache();
        }
        let from = self.submitted_pages;
        let places = places(&self.extents, first + from as u64, (pages - from) as u64);
        let transfers = &self.shared.transfers;
        let piece_bytes = if transfers.log_is_busy() { SMALL_PIECE_BYTES } else { transfers.piece_bytes() };
        let cut = pieces(&places, piece_bytes.min(transfers.piece_bytes()));
        if self.slot.is_none() {
            self.slot = transfers.keep_slot();
        }
        let write = |piece: &Extent| Op::Write { offset: piece.first * PAGE, durable: false };
        let result = match (&mut self.slot, &cut[..]) {
            (Some(slot), [whole]) if is_full && from == 0 => {
                let next = slot.buffer(self.piece.len());
                let full = std::mem::replace(&mut self.piece, next);
                let mut back = Vec::new();
                let result = slot
                    .submit(write(whole), full, &mut |_, buffer| back.push(buffer))
                    .and_then(|()| slot.poll(&mut |_, buffer| back.push(buffer)));
                back.into_iter().for_each(|buffer| slot.keep(buffer));
                result
            }
            (slot, cut) => {
                let mut at = from * PAGE_BYTES;
                let piece = &self.piece;
                let mut requests = cut.iter().map(|place| {
                    let end = at + place.pages as usize * PAGE_BYTES;
                    let mut buffer = Buffer::new(end - at);
                    buffer.copy_from_slice(&piece[at..end]);
                    at = end;
                    (write(place), buffer)
                });
                match slot {
                    Some(slot) => requests
                        .try_for_each(|(op, buffer)| slot.submit(op, buffer, &mut |_, _| ()))
                        .and_then(|()| slot.poll(&mut |_, _| ())),
                    None => transfers.bulk(requests, &mut |_, _| ()),
                }
            }
        };
        result.map_err(|error| self.shared.fail("write", self.name, error))?;
        if is_full {
            self.piece_at += self.filled as u64;
            (self.filled, self.submitted_pages) = (0, 0);
        } else {
            // The last page may get more bytes.
            self.submitted_pages = pages;
        }
        Ok(())
    }

    /// Puts the units of the piece into the cache, the last one as far as it goes.
    fn fill_cache(&self) {
        if !self.shared.cache.is_on() {
            return;
        }
        for (index, bytes) in self.piece[..self.filled].chunks(UNIT_BYTES).enumerate() {
            let unit = self.piece_at / UNIT_BYTES as u64 + index as u64;
            self.shared.cache.put(self.file.id, unit, Buffer::copy_of(bytes));
        }
    }

    fn drain(&mut self) -> Result<()> {
        let Some(slot) = &mut self.slot else { return Ok(()) };
        slot.drain(&mut |_, _| ()).map_err(|error| self.shared.fail("write", self.name, error))
    }

    /// Hands all to the device, and tells the journal of it once it is durable.
    fn publish(&mut self) -> Result<()> {
        self.submit()?;
        self.drain()?;
        self.shared.flush()?;
        let length = self.written();
        if let Some(number) = self.shared.publish(&self.file, length)? {
            self.published = length;
            self.shared.commit(number)?;
        }
        Ok(())
    }

    /// Gives back the pages behind `pages`; clean ones, if nothing was written there.
    fn shrink(&mut self, pages: u64, clean: bool) {
        let keep = places(&self.extents, 0, pages);
        let surplus = places(&self.extents, pages, u64::MAX);
        let mut meta = self.file.meta();
        meta.extents.clone_from(&keep);
        drop(meta);
        self.extents = keep;
        if clean {
            self.file.room.give_back_clean(&surplus);
        } else {
            self.file.room.give_back(&surplus);
        }
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let take = bytes.len().min(self.piece.len() - self.filled);
            let (front, rest) = bytes.split_at(take);
            self.piece[self.filled..self.filled + take].copy_from_slice(front);
            // A page that was submitted half full is not up to date any more.
            self.submitted_pages = self.submitted_pages.min(self.filled / PAGE_BYTES);
            self.filled += take;
            bytes = rest;
            if self.filled == self.piece.len() {
                self.submit()?;
            }
        }
        Ok(())
    }
}

impl Writer for RawWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.guard(|writer| writer.push(bytes))
    }

    fn written(&self) -> u64 {
        self.piece_at + self.filled as u64
    }

    fn sync(&mut self) -> Result<()> {
        self.guard(RawWriter::publish)
    }

    /// Makes the length durable. Nothing between this process and the disk keeps a length: it has to be in the journal,
    /// and what that names is durable.
    fn flush(&mut self) -> Result<()> {
        self.sync()
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.guard(|writer| {
            writer.publish()?;
            writer.fill_cache();
            writer.shrink(writer.written().div_ceil(PAGE), true);
            writer.file.meta().is_growing = false;
            Ok(())
        })
    }
}

impl Drop for RawWriter {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            // Nothing may be in flight to pages that are given back; whether it arrived does not matter any more.
            let _ = slot.drain(&mut |_, _| ());
            self.shared.transfers.give_back_kept(slot);
        }
        if self.file.meta().is_growing {
            self.shrink(self.published.div_ceil(PAGE), false);
            let mut meta = self.file.meta();
            meta.length = self.published;
            meta.is_growing = false;
        }
    }
}
