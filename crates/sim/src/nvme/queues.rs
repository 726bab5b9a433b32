//! Submission and completion queues: their rings, doorbells and owners.
//!
//! **Threads.** The thread that works on a submission queue takes its [`Engine`] out of the slot and puts it back. So
//! no lock is held while the devices below are called. Another thread that finds the slot empty leaves a note, if it
//! brings new commands, and the first one looks again.

use super::Shared;
use super::counts::count;
use super::engine::Engine;
use super::memory::Stopped;
use situ_base::lock;
use situ_device::Watch;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The queues that there are at a time, and the pages of shadow doorbells. It is replaced as a whole.
#[derive(Clone, Default)]
pub(super) struct Roster {
    pub(super) submission: Vec<Arc<SubmissionQueue>>,
    pub(super) completion: Vec<Arc<CompletionQueue>>,
    /// The addresses of the page with doorbells, and of the page with the values to ring the real ones at.
    pub(super) shadows: Option<(u64, u64)>,
}

impl Roster {
    pub(super) fn submission(&self, id: u16) -> Option<&Arc<SubmissionQueue>> {
        self.submission.iter().find(|queue| queue.id == id)
    }

    pub(super) fn completion(&self, id: u16) -> Option<&Arc<CompletionQueue>> {
        self.completion.iter().find(|queue| queue.id == id)
    }
}

pub(super) struct CompletionQueue {
    pub(super) id: u16,
    pub(super) ring: u64,
    pub(super) entries: u32,
    /// The interrupt, if it is on.
    pub(super) vector: Option<u16>,
    pub(super) is_live: AtomicBool,
    state: Mutex<Places>,
}

struct Places {
    head: u32,
    tail: u32,
    phase: bool,
    /// Completions that found no room.
    backlog: VecDeque<Answer>,
}

/// A completion to be posted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) result: u32,
    pub(super) queue: u16,
    pub(super) head: u32,
    pub(super) id: u16,
    pub(super) status: u16,
}

impl CompletionQueue {
    pub(super) fn new(id: u16, ring: u64, entries: u32, vector: Option<u16>) -> CompletionQueue {
        let state = Mutex::new(Places { head: 0, tail: 0, phase: true, backlog: VecDeque::new() });
        CompletionQueue { id, ring, entries, vector, is_live: AtomicBool::new(true), state }
    }

    /// Posts completions, as far as there is room, and then tells the host.
    pub(super) fn post(&self, shared: &Shared, answers: impl IntoIterator<Item = Answer>) {
        let outcome = {
            let mut places = lock(&self.state);
            places.backlog.extend(answers);
            self.drain(shared, &mut places)
        };
        match outcome {
            Ok(0) => {}
            Ok(_) => self.vector.into_iter().for_each(|vector| shared.interrupt(vector)),
            // Without its ring, a controller can tell the host nothing.
            Err(Stopped) if self.is_live.load(Ordering::Acquire) => shared.fail(),
            Err(Stopped) => {}
        }
    }

    fn drain(&self, shared: &Shared, places: &mut Places) -> Result<u32, Stopped> {
        let mut posted = 0;
        while let Some(answer) = places.backlog.front().copied() {
            let after = (places.tail + 1) % self.entries;
            if after == places.head {
                self.look_at_shadow(shared, places)?;
            }
            if after == places.head {
                break;
            }
            let words = [
                answer.result,
                0,
                answer.head | u32::from(answer.queue) << 16,
                u32::from(answer.id) | u32::from(places.phase) << 16 | u32::from(answer.status) << 17,
            ];
            shared.memory.store(&self.is_live, self.ring + 16 * u64::from(places.tail), &words)?;
            count(&shared.counters.completions);
            (places.tail, places.phase) = (after, places.phase ^ (after == 0));
            places.backlog.pop_front();
            posted += 1;
        }
        Ok(posted)
    }

    fn look_at_shadow(&self, shared: &Shared, places: &mut Places) -> Result<(), Stopped> {
        let Some((doorbells, wanted)) = shared.roster().shadows.filter(|_| self.id != 0) else { return Ok(()) };
        let at = shared.config.doorbell(self.id, true);
        shared.memory.store(&self.is_live, wanted + at, &[places.head])?;
        fence(Ordering::SeqCst);
        let head = shared.memory.load(&self.is_live, doorbells + at)?;
        if self.may_become(places, head) {
            places.head = head;
        }
        Ok(())
    }

    /// Returns true if the host can have taken the entries before this place.
    fn may_become(&self, places: &Places, head: u32) -> bool {
        let ahead = |place: u32| (place + self.entries - places.head) % self.entries;
        head < self.entries && ahead(head) <= ahead(places.tail)
    }

    /// Takes a new head from the doorbell. Returns false if it cannot be one.
    pub(super) fn ring(&self, shared: &Shared, head: u32) -> bool {
        {
            let mut places = lock(&self.state);
            if !self.may_become(&places, head) {
                return false;
            }
            places.head = head;
        }
        self.post(shared, []);
        true
    }

    /// Gives completions that found no room another chance.
    pub(super) fn settle(&self, shared: &Shared) {
        if !lock(&self.state).backlog.is_empty() {
            self.post(shared, []);
        }
    }
}

pub(super) struct SubmissionQueue {
    pub(super) id: u16,
    pub(super) ring: u64,
    pub(super) entries: u32,
    pub(super) completion: Arc<CompletionQueue>,
    pub(super) is_live: AtomicBool,
    /// The places of the next command that the host writes, and of the next one that the controller takes.
    pub(super) tail: AtomicU32,
    pub(super) head: AtomicU32,
    slot: Mutex<Slot>,
}

struct Slot {
    engine: Option<Box<Engine>>,
    /// Commands have come while the engine was away.
    again: bool,
    waits: Waits,
}

/// The next events of a submission queue.
#[derive(Clone, Default)]
pub(super) struct Waits {
    /// The time of the next event of the controller's own.
    pub(super) due: Option<Duration>,
    /// The watches of device queues with operations in flight.
    pub(super) watches: Vec<Arc<dyn Watch>>,
    /// A device queue without a watch has something in flight.
    pub(super) is_unwatched: bool,
}

impl SubmissionQueue {
    pub(super) fn new(id: u16, ring: u64, entries: u32, completion: Arc<CompletionQueue>) -> SubmissionQueue {
        let slot = Slot { engine: Some(Box::default()), again: false, waits: Waits::default() };
        SubmissionQueue {
            id,
            ring,
            entries,
            completion,
            is_live: AtomicBool::new(true),
            tail: AtomicU32::new(0),
            head: AtomicU32::new(0),
            slot: Mutex::new(slot),
        }
    }

    /// Takes the engine, unless another thread has it. With `brings`, that thread then looks for commands again.
    pub(super) fn take(&self, brings: bool) -> Option<Working<'_>> {
        let mut slot = lock(&self.slot);
        let engine = slot.engine.take();
        slot.again |= brings && engine.is_none();
        engine.map(|engine| Working { queue: self, engine: Some(engine) })
    }

    /// Works until there is nothing to do at the moment.
    pub(super) fn work(&self, shared: &Shared, brings: bool) {
        if let Some(working) = self.take(brings) {
            working.finish(shared);
        }
    }

    pub(super) fn waits(&self) -> Waits {
        lock(&self.slot).waits.clone()
    }

    /// Ends the queue: nothing is transferred for it any more when the call and [`settled`] have returned.
    ///
    /// [`settled`]: super::memory::Memory::settled
    pub(super) fn end(&self) -> Option<Box<Engine>> {
        self.is_live.store(false, Ordering::Release);
        lock(&self.slot).engine.take()
    }
}

/// An engine that is out of its slot. It goes back when this is dropped.
pub(super) struct Working<'a> {
    queue: &'a SubmissionQueue,
    engine: Option<Box<Engine>>,
}

impl Working<'_> {
    pub(super) fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("it goes back at the end only")
    }

    /// Works until there is nothing to do at the moment.
    pub(super) fn finish(mut self, shared: &Shared) {
        loop {
            let queue = self.queue;
            self.engine().round(shared, queue);
            let mut slot = lock(&queue.slot);
            if !std::mem::take(&mut slot.again) {
                self.put_back(slot);
                return queue.completion.vector.into_iter().for_each(|vector| shared.poke(vector));
            }
        }
    }

    fn put_back(&mut self, mut slot: MutexGuard<'_, Slot>) {
        let mut engine = self.engine.take();
        if engine.is_some() && self.queue.is_live.load(Ordering::Acquire) {
            slot.waits = engine.as_ref().map(|engine| engine.waits()).unwrap_or_default();
            slot.engine = engine.take();
        }
        drop(slot);
        // Of a queue at its end. Device queues may wait when they are dropped, so no lock is held.
        drop(engine);
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if self.engine.is_some() {
            self.put_back(lock(&self.queue.slot));
        }
    }
}
