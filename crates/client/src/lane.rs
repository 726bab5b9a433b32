//! The queues of asynchronous calls, and the threads that serve them.
//!
//! Each server has a *lane*: a bounded queue and a thread.
//!
//! 1. The thread takes a batch of calls from its queue and leases a connection.
//! 2. It sends the commands of the batch, one after another without waiting, and ends each call when its answer comes.
//! 3. Calls that arrive meanwhile are the next batch.
//!
//! A second batch is not sent before the first one is over. So a server that does not answer has the commands of one
//! batch, and the calls behind them end at their deadlines with the certainty that they were not sent.
//!
//! **Deadlines.** One more thread, the *clock*, ends calls whose deadline has passed, wherever they are. It sleeps
//! until the earliest deadline that it knows. If all calls of a batch are over, their connection is closed.
//!
//! **End.** When the client is dropped, the threads end after the last call.

use crate::cluster::Cluster;
use crate::connection::{Fault, Progress};
use crate::error::{Error, Outcome};
use crate::given::Finish;
use crate::reply::Reply;
use crate::request::Request;
use crate::server::{Limit, Server};
use crate::slot::Slot;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Calls in a batch.
const BATCH_CALLS_MAX: usize = 256;

/// Cluster, lanes and clock: what the threads and the client share.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) cluster: Cluster,
    lanes: Vec<Lane>,
    calls_max: usize,
    bytes_max: usize,
    clock: Mutex<Clock>,
    clock_changed: Condvar,
}

#[derive(Debug, Default)]
struct Lane {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// The calls of the batch that is with the server.
    in_flight: Vec<Arc<Slot>>,
    is_closing: bool,
}

#[derive(Debug, Default)]
struct Clock {
    /// The earliest deadline that a call may have.
    next: Option<Instant>,
    is_closing: bool,
}

#[derive(Debug)]
struct Job {
    request: Request<'static>,
    slot: Arc<Slot>,
    /// The place of the key on the ring, and the number of its servers that were skipped. A command for a certain
    /// server has none.
    place: Option<(u32, usize)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lanes {
    /// Starts the threads.
    pub(crate) fn start(cluster: Cluster, calls_max: usize, bytes_max: usize) -> io::Result<Arc<Lanes>> {
        let lanes = cluster.servers.iter().map(|_| Lane::default()).collect();
        let (clock, clock_changed) = (Mutex::default(), Condvar::new());
        let lanes = Arc::new(Lanes { cluster, lanes, calls_max, bytes_max, clock, clock_changed });
        let spawn = |name: &str, run: fn(&Lanes, usize), server: usize| {
            let lanes = Arc::clone(&lanes);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&lanes, server)).map(drop)
        };
        let started = spawn("situ-clock", |lanes, _| lanes.run_clock(), 0)
            .and_then(|()| (0..lanes.lanes.len()).try_for_each(|server| spawn("situ-lane", Lanes::run_lane, server)));
        match started {
            Ok(()) => Ok(lanes),
            Err(error) => {
                lanes.close();
                Err(error)
            }
        }
    }

    /// Lets the threads end after the last call.
    pub(crate) fn close(&self) {
        for lane in &self.lanes {
            locked(&lane.queue).is_closing = true;
            lane.changed.notify_all();
        }
        locked(&self.clock).is_closing = true;
        self.clock_changed.notify_all();
    }

    /// Queues a command for the server of its key.
    pub(crate) fn submit<T>(&self, key: &[u8], request: Request<'static>, limit: Limit, finish: Finish<T>) -> Reply<T> {
        let place = self.cluster.place(key);
        let up = |(_, server): &(usize, usize)| !self.cluster.servers[*server].is_down();
        let mut route = self.cluster.route_from(place).enumerate();
        let first = route.next().unwrap_or((0, 0));
        // If all are down, the first one has the error.
        let (skipped, server) = [first].into_iter().chain(route).find(up).unwrap_or(first);
        self.submit_to(server, request, Some((place, skipped)), limit, finish)
    }

    /// Queues a command for a server.
    pub(crate) fn submit_to<T>(
        &self,
        server: usize,
        request: Request<'static>,
        place: Option<(u32, usize)>,
        limit: Limit,
        finish: Finish<T>,
    ) -> Reply<T> {
        let name = &self.cluster.servers[server].name;
        let slot = Arc::new(Slot::new(limit, request.only_reads, Arc::clone(name)));
        let job = Job { request, slot: Arc::clone(&slot), place };
        let queued = self.lanes[server].push(job, self.calls_max, self.bytes_max);
        let call = queued.map(|()| slot).map_err(|calls| Error::QueueFull { server: Arc::clone(name), calls });
        if call.is_ok() {
            self.watch(limit.deadline);
        }
        Reply::new(call, finish)
    }

    /// Makes sure that the clock wakes at a deadline.
    fn watch(&self, deadline: Instant) {
        let mut clock = locked(&self.clock);
        if clock.next.is_none_or(|next| deadline < next) {
            clock.next = Some(deadline);
            self.clock_changed.notify_all();
        }
    }

    fn run_clock(&self) {
        loop {
            let mut clock = locked(&self.clock);
            loop {
                let now = Instant::now();
                let left = match clock.next {
                    Some(next) => next.saturating_duration_since(now),
                    None if clock.is_closing => return,
                    None => {
                        clock = self.clock_changed.wait(clock).unwrap_or_else(PoisonError::into_inner);
                        continue;
                    }
                };
                if left.is_zero() {
                    break;
                }
                clock = self.clock_changed.wait_timeout(clock, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            // A deadline that comes in during the look at the queues is noted again.
            clock.next = None;
            drop(clock);
            if let Some(next) = self.lanes.iter().filter_map(Lane::expire).min() {
                self.watch(next);
            }
        }
    }

    fn run_lane(&self, server: usize) {
        let lane = &self.lanes[server];
        while let Some(mut batch) = lane.next_batch() {
            let mut is_fresh = false;
            while !batch.is_empty() {
                batch = self.serve(&self.cluster.servers[server], batch, is_fresh);
                is_fresh = true;
            }
            locked(&lane.queue).in_flight.clear();
        }
    }

    /// Runs a batch. Returns the calls that should be repeated on a fresh connection.
    fn serve(&self, server: &Server, batch: Vec<Job>, is_fresh: bool) -> Vec<Job> {
        let Some(limit) = batch.iter().map(|job| job.slot.limit).max_by_key(|limit| limit.deadline) else {
            return Vec::new();
        };
        let mut lease = match server.lease(limit, is_fresh) {
            Ok(lease) => lease,
            Err(error) => {
                batch.into_iter().for_each(|job| self.skip(job, &error));
                return Vec::new();
            }
        };
        let (mut requests, mut calls) = (Vec::new(), Vec::new());
        for Job { request, slot, place } in batch {
            if slot.begin(&server.name) {
                requests.push(request);
                calls.push((slot, place));
            }
        }
        let mut progress = Progress::default();
        let mut ended = 0;
        let fault = loop {
            // Every call from here on is over when this time has passed.
            let Some(until) = calls[ended..].iter().map(|(slot, _)| slot.limit.deadline).max() else {
                break None;
            };
            let advanced = lease.advance(&mut requests, &mut progress, until);
            while ended < progress.answered {
                if let Some(given) = requests[ended].answer.take_given() {
                    calls[ended].0.end(Ok(given));
                }
                ended += 1;
            }
            match advanced {
                Err(fault) => break Some(fault),
                Ok(()) if Instant::now() >= until => calls[ended..].iter().for_each(|(slot, _)| slot.expire()),
                Ok(()) => {}
            }
            if calls[ended..].iter().all(|(slot, _)| slot.is_over()) {
                break None;
            }
        };
        if progress.is_over(requests.len()) && fault.is_none() {
            lease.give_back();
            return Vec::new();
        }
        let may_repeat = lease.is_used && !is_fresh && matches!(fault, Some(Fault::Io(_)));
        drop(lease);
        let has_begun = |n: usize, request: &Request<'_>| !request.only_reads && progress.has_begun(n);
        let error = server.failed(fault, false, limit);
        let mut again = Vec::new();
        for (n, (mut request, (slot, place))) in requests.into_iter().zip(calls).enumerate().skip(ended) {
            if has_begun(n, &request) {
                slot.end(Err(error.clone().with_outcome(Outcome::Unknown)));
            } else if may_repeat {
                request.answer.restart();
                again.push(Job { request, slot, place });
            } else {
                slot.end(Err(error.clone()));
            }
        }
        again
    }

    /// Gives a call whose server cannot be reached to the next one, or ends it.
    fn skip(&self, job: Job, error: &Error) {
        let next = job.place.filter(|_| self.cluster.leads_on(error)).and_then(|(place, skipped)| {
            self.cluster.route_from(place).nth(skipped + 1).map(|server| (server, (place, skipped + 1)))
        });
        match next {
            Some((server, place)) => {
                let slot = Arc::clone(&job.slot);
                let job = Job { place: Some(place), ..job };
                // The call was let in once. All such calls are no more than a batch.
                match self.lanes[server].push(job, usize::MAX, usize::MAX) {
                    Ok(()) => self.watch(slot.limit.deadline),
                    // The threads are about to end.
                    Err(_) => slot.end(Err(error.clone())),
                }
            }
            None => job.slot.end(Err(error.clone())),
        }
    }
}

impl Lane {
    /// Queues a call, or returns the number of calls in the queue if there is no room, or no thread any more.
    fn push(&self, job: Job, calls_max: usize, bytes_max: usize) -> Result<(), usize> {
        let bytes = job.request.bytes();
        let mut queue = locked(&self.queue);
        let is_full = queue.jobs.len() >= calls_max || queue.bytes.saturating_add(bytes) > bytes_max;
        if queue.is_closing || (is_full && !queue.jobs.is_empty()) {
            return Err(queue.jobs.len());
        }
        queue.bytes += bytes;
        queue.jobs.push_back(job);
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for calls. Returns `None` when there will be none any more.
    fn next_batch(&self) -> Option<Vec<Job>> {
        let is_idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.is_closing;
        let queue = locked(&self.queue);
        let mut queue = self.changed.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
        let count = queue.jobs.len().min(BATCH_CALLS_MAX);
        let batch: Vec<Job> = queue.jobs.drain(..count).collect();
        queue.bytes -= batch.iter().map(|job| job.request.bytes()).sum::<usize>();
        queue.in_flight = batch.iter().map(|job| Arc::clone(&job.slot)).collect();
        (count > 0).then_some(batch)
    }

    /// Ends the calls whose deadline has passed, and returns the earliest deadline of the others.
    fn expire(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut queue = locked(&self.queue);
        let Queue { jobs, bytes, in_flight, .. } = &mut *queue;
        let mut expired: Vec<Arc<Slot>> = Vec::new();
        jobs.retain(|job| {
            let is_late = job.slot.limit.deadline <= now;
            if is_late {
                *bytes -= job.request.bytes();
                expired.push(Arc::clone(&job.slot));
            }
            !is_late
        });
        expired.extend(in_flight.iter().filter(|slot| slot.limit.deadline <= now).cloned());
        let waiting = jobs.iter().map(|job| &job.slot).chain(in_flight.iter().filter(|slot| !slot.is_over()));
        let next = waiting.map(|slot| slot.limit.deadline).filter(|deadline| *deadline > now).min();
        drop(queue);
        // A waker may do anything.
        expired.iter().for_each(|slot| slot.expire());
        next
    }
}
