//! The writes to one log file that one thread has in flight.
//!
//! A write becomes pieces of one transfer at most. Pieces for which the device has no place wait in their order. A
//! write ends when all of its pieces have landed.
//!
//! The queue of the device goes from one log file to the next ([`Transfers::log_queue`]): opening one takes longer than
//! a write.
//!
//! **Failure.** The first error of a piece is the write's, which ends when nothing of it is in flight any more.

use super::RawPageFile;
use crate::layout::PAGE;
use crate::log_queue::LogQueue;
use crate::transfer::{Transfers, pieces, places};
use situ_device::{Buffer, Op, PAGE_BYTES, Ticket, Watch};
use situ_storage::{PageQueue, Result};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

/// A write of which pieces wait or are in flight.
struct Write {
    missing: usize,
    durable: bool,
    failed: Option<io::Error>,
}

/// The writes to one log file.
pub(super) struct RawPageQueue {
    file: RawPageFile,
    /// `None` while this is dropped.
    lent: Option<LogQueue>,
    writes: HashMap<u64, Write>,
    next: u64,
    waiting: VecDeque<(u64, Op, Buffer)>,
    in_flight: HashMap<Ticket, u64>,
    /// Writes that have ended and were not handed out.
    ended: Vec<(u64, Result<()>)>,
}

impl RawPageQueue {
    pub(super) fn new(file: RawPageFile, lent: LogQueue) -> RawPageQueue {
        let (writes, waiting, in_flight) = (HashMap::new(), VecDeque::new(), HashMap::new());
        RawPageQueue { file, lent: Some(lent), writes, next: 0, waiting, in_flight, ended: Vec::new() }
    }

    fn transfers(&self) -> &Transfers {
        &self.file.shared.transfers
    }

    fn lent(&mut self) -> &mut LogQueue {
        self.lent.as_mut().expect("the queue goes back when this is dropped")
    }

    /// Gives the device as many pieces as it takes.
    fn submit(&mut self) {
        while !self.lent().is_full()
            && let Some((number, op, buffer)) = self.waiting.pop_front()
        {
            match self.lent().submit(op, buffer) {
                Ok(ticket) => drop(self.in_flight.insert(ticket, number)),
                Err((buffer, error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.waiting.push_front((number, op, buffer));
                }
                Err((_, error)) => self.landed(number, Err(error)),
            }
        }
    }

    /// Notes the outcome of a piece.
    fn landed(&mut self, number: u64, outcome: io::Result<()>) {
        let write = self.writes.get_mut(&number).expect("a write is there until its last piece has landed");
        write.missing -= 1;
        write.failed = write.failed.take().or(outcome.err());
        if write.missing == 0
            && let Some(write) = self.writes.remove(&number)
        {
            self.transfers().end_log_write(write.durable);
            let outcome = write.failed.map_or(Ok(()), |error| Err(self.file.fail(error)));
            self.ended.push((number, outcome));
        }
    }
}

impl PageQueue for RawPageQueue {
    fn begin(&mut self, first: u64, pages: &[u8], durable: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        if let Err(error) = self.file.check_write(first, pages) {
            self.ended.push((number, Err(error)));
            return number;
        }
        let places = places(&self.file.extents, first, (pages.len() / PAGE_BYTES) as u64);
        let places = pieces(&places, self.transfers().piece_bytes());
        self.transfers().begin_log_write(durable);
        self.writes.insert(number, Write { missing: places.len(), durable, failed: None });
        let mut rest = pages;
        for place in places {
            let (front, behind) = rest.split_at(place.pages as usize * PAGE_BYTES);
            rest = behind;
            let op = Op::Write { offset: place.first * PAGE, durable };
            self.waiting.push_back((number, op, Buffer::copy_of(front)));
        }
        self.submit();
        number
    }

    fn wait(&mut self, ended: &mut Vec<(u64, Result<()>)>, is_called: &dyn Fn() -> bool) {
        if self.ended.is_empty() {
            let mut landed = Vec::new();
            self.lent().wait(is_called, |ticket, outcome| landed.push((ticket, outcome)));
            for (ticket, outcome) in landed {
                let number = self.in_flight.remove(&ticket).expect("the device ends what it was given, and once");
                self.landed(number, outcome);
            }
            self.submit();
        }
        ended.append(&mut self.ended);
    }

    fn watch(&self) -> Arc<dyn Watch> {
        self.lent.as_ref().expect("the queue goes back when this is dropped").watch()
    }
}

impl Drop for RawPageQueue {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.transfers().give_back_log_queue(lent);
        }
        self.writes.values().for_each(|write| self.transfers().end_log_write(write.durable));
    }
}
