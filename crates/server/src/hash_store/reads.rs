//! Reads that need the device: a few threads, each of which reads one key at a time.
//!
//! **Order.** A read begins after every write that was done when it was asked for, so it sees these writes.
//! **Bound.** The server bounds the reads under way, and with them the queue.
//! **Failure.** Reads that are still queued when the engine goes are dropped, which their callers take for a failure.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use situ::device::lock;
use situ::hash::HashStore;
use situ::storage::Error as StorageError;

use crate::engine::{EngineError, OnRead};

/// Reads that the device has at a time.
const THREADS: usize = 8;

/// See the module.
pub(super) struct Reads {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    reads: VecDeque<(Vec<u8>, OnRead<Vec<u8>>)>,
    ended: bool,
}

impl Reads {
    pub(super) fn start(store: &HashStore) -> situ::hash::Result<Reads> {
        let mut reads = Reads { queue: Arc::default(), threads: Vec::new() };
        for _ in 0..THREADS {
            let (queue, store) = (Arc::clone(&reads.queue), store.clone());
            let builder = std::thread::Builder::new().name("hash-read".to_owned());
            let thread = builder.spawn(move || queue.serve(&store));
            reads.threads.push(thread.map_err(|error| StorageError::io("start a thread for", "reads", error))?);
        }
        Ok(reads)
    }

    pub(super) fn begin(&self, key: &[u8], on_read: OnRead<Vec<u8>>) {
        lock(&self.queue.waiting).reads.push_back((key.to_vec(), on_read));
        self.queue.changed.notify_one();
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        lock(&self.queue.waiting).ended = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was told when it happened.
            _ = thread.join();
        }
    }
}

impl Queue {
    fn serve(&self, store: &HashStore) {
        while let Some((key, on_read)) = self.next() {
            on_read(store.get(key).map_err(EngineError::new));
        }
    }

    fn next(&self) -> Option<(Vec<u8>, OnRead<Vec<u8>>)> {
        let is_idle = |waiting: &mut Waiting| !waiting.ended && waiting.reads.is_empty();
        let waiting = self.changed.wait_while(lock(&self.waiting), is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.ended { None } else { waiting.reads.pop_front() }
    }
}
