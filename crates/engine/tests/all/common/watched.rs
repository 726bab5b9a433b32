//! A simulated device that is watched: how many writes of a part of it are in flight, and who has submitted them.

use situ_device::{Buffer, Completion, Device, DeviceLock, Geometry, Op, Queue, Space, Ticket, Watch};
use situ_sim::SimDevice;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// What was seen of the writes of a part of a device.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub writes: u64,
    in_flight: usize,
    /// The most that were in flight at a time.
    pub together: usize,
    /// Who has submitted them.
    pub threads: HashSet<(ThreadId, String)>,
}

/// Watches the bytes `part` of a device.
#[derive(Clone)]
pub struct Watched {
    device: SimDevice,
    part: Range<u64>,
    seen: Arc<Mutex<Seen>>,
    /// True if its queues have watches, so that one thread can have several log writes in flight.
    has_watches: bool,
}

impl Watched {
    pub fn new(device: &SimDevice, part: Range<u64>) -> Watched {
        Watched { device: device.clone(), part, seen: Arc::default(), has_watches: false }
    }

    pub fn with_watches(self) -> Watched {
        Watched { has_watches: true, ..self }
    }

    /// What was seen since the last call.
    pub fn take(&self) -> Seen {
        let mut seen = self.seen.lock().unwrap();
        let in_flight = seen.in_flight;
        std::mem::replace(&mut *seen, Seen { in_flight, together: in_flight, ..Seen::default() })
    }

    fn watches(&self, op: Op) -> bool {
        matches!(op, Op::Write { offset, .. } if self.part.contains(&offset))
    }
}

impl Device for Watched {
    fn describe(&self) -> String {
        self.device.describe()
    }

    fn lock(&self) -> io::Result<Box<dyn DeviceLock>> {
        self.device.lock()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn space(&self) -> Space {
        self.device.space()
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(WatchedQueue { queue: self.device.queue(depth)?, device: self.clone() }))
    }
}

struct WatchedQueue {
    queue: Box<dyn Queue>,
    device: Watched,
}

impl WatchedQueue {
    fn note_landed(&self, done: &[Completion]) {
        let landed = done.iter().filter(|completion| self.device.watches(completion.op)).count();
        self.device.seen.lock().unwrap().in_flight -= landed;
    }
}

impl Queue for WatchedQueue {
    fn submit(&mut self, op: Op, buffer: Buffer) -> Result<Ticket, (Buffer, io::Error)> {
        let ticket = self.queue.submit(op, buffer)?;
        if self.device.watches(op) {
            let mut seen = self.device.seen.lock().unwrap();
            seen.writes += 1;
            seen.in_flight += 1;
            seen.together = seen.together.max(seen.in_flight);
            let thread = std::thread::current();
            seen.threads.insert((thread.id(), thread.name().unwrap_or_default().to_owned()));
        }
        Ok(ticket)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        let count = self.queue.poll(done);
        self.note_landed(&done[before..]);
        count
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) -> usize {
        let before = done.len();
        let count = self.queue.wait(done, timeout);
        self.note_landed(&done[before..]);
        count
    }

    fn watch(&mut self) -> io::Result<Option<Arc<dyn Watch>>> {
        if self.device.has_watches { self.queue.watch() } else { Ok(None) }
    }
}
