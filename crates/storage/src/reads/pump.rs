//! One thread that keeps the queue of a volume full and completes what comes out.
//!
//! 1. Callers put submitted reads into a list. They wake the thread if it rests, and only then.
//! 2. The thread takes as many reads from the list as the queue has places for, and gives all of them to the queue.
//!    Then it completes what has finished.
//! 3. If there was nothing to do, the thread rests until a completion, a new read or the end ([`Watch`]).
//!
//! **Invariants.** The thread says that it rests under the lock under which it found the list empty, so no read is
//! forgotten. No lock is held while the queue is used: some devices work in `submit`.
//! **Failure.** If the thread panics, the reads that it had complete with an error, and later ones are refused.
//! **Leaving.** The last handle's end tells the thread, which ends when all reads have completed. No caller waits for
//! the thread. The thread itself may drop the handle, as a read keeps its file and a file its volume.

use super::{QueuedRead, WAITING_READS_MAX};
use situ_base::{Env, lock};
use situ_device::Watch;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A resting thread looks at a queue with reads in flight so often: what the kernel could not take at some moment is
/// offered again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A queue, and the reads in it. Used by the pump's thread alone.
pub trait Source: Send + 'static {
    /// The type of its reads.
    type Read: QueuedRead;
    /// Returns the number of reads that it takes now.
    fn places(&self) -> usize;
    /// Returns the number of reads that it has not completed.
    fn in_flight(&self) -> usize;
    /// Begins a read for which there is a place.
    fn begin(&mut self, read: Self::Read);
    /// Completes what has finished; returns how many operations that were.
    fn collect(&mut self) -> usize;
}

struct State<R> {
    waiting: VecDeque<R>,
    /// The thread rests, or is about to.
    is_resting: bool,
    is_closed: bool,
}

struct Shared<R> {
    state: Mutex<State<R>>,
    watch: Arc<dyn Watch>,
}

/// The handle of a pump's thread.
pub struct Pump<R> {
    shared: Arc<Shared<R>>,
}

impl<R: QueuedRead> Pump<R> {
    /// Starts the thread, which rests by `watch`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start<S: Source<Read = R>>(env: &Env, watch: Arc<dyn Watch>, source: S) -> io::Result<Pump<R>> {
        let state = State { waiting: VecDeque::new(), is_resting: false, is_closed: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), watch });
        let served = Serving(Arc::clone(&shared));
        env.executor.spawn("situ-reads", Box::new(move || served.serve(source)))?;
        Ok(Pump { shared })
    }

    /// Hands a read over; gives it back if too many wait, or if the thread has panicked.
    pub fn submit(&self, read: R) -> Result<(), R> {
        let mut state = lock(&self.shared.state);
        if state.is_closed || state.waiting.len() >= WAITING_READS_MAX {
            return Err(read);
        }
        state.waiting.push_back(read);
        let wakes = std::mem::take(&mut state.is_resting);
        drop(state);
        if wakes {
            self.shared.watch.wake();
        }
        Ok(())
    }
}

impl<R> Drop for Pump<R> {
    fn drop(&mut self) {
        lock(&self.shared.state).is_closed = true;
        self.shared.watch.wake();
    }
}

/// The thread's end of the list. Its end is the thread's.
struct Serving<R>(Arc<Shared<R>>);

enum Next {
    Work,
    Rest(Option<Duration>),
    End,
}

impl<R: QueuedRead> Serving<R> {
    fn serve<S: Source<Read = R>>(&self, mut source: S) {
        loop {
            let reads = self.take(source.places());
            let begun = reads.len();
            reads.into_iter().for_each(|read| source.begin(read));
            if source.collect() + begun > 0 {
                continue;
            }
            match self.next(&source) {
                Next::Work => {}
                Next::Rest(timeout) => self.0.watch.wait(timeout),
                Next::End => return,
            }
        }
    }

    fn take(&self, places: usize) -> Vec<R> {
        let mut state = lock(&self.0.state);
        state.is_resting = false;
        let count = state.waiting.len().min(places);
        state.waiting.drain(..count).collect()
    }

    fn next<S: Source<Read = R>>(&self, source: &S) -> Next {
        let mut state = lock(&self.0.state);
        let in_flight = source.in_flight();
        match state.waiting.is_empty() {
            false if source.places() > 0 => Next::Work,
            true if state.is_closed && in_flight == 0 => Next::End,
            _ => {
                state.is_resting = true;
                Next::Rest((in_flight > 0).then_some(LOOK_AGAIN))
            }
        }
    }
}

impl<R> Drop for Serving<R> {
    fn drop(&mut self) {
        let left = {
            let mut state = lock(&self.0.state);
            state.is_closed = true;
            std::mem::take(&mut state.waiting)
        };
        // Without the lock: what is dropped here completes.
        drop(left);
    }
}
