//! Runs one workload's requests: threads, pace, clock.
//!
//! 1. Workers are made before the clock starts: pools of values and sums of the zipfian distribution cost time.
//! 2. All threads meet at a barrier; the first through it sets the start that all measure from.
//! 3. Each thread issues its requests, one after another ([`closed loop`](Lane::run_blocking)) or several outstanding
//!    ([`Lane::run_outstanding`]). With a rate, a request is *due* at a fixed moment; it is issued then or as soon
//!    after as possible, and its latency counts from when it was due.
//! 4. A thread ends when its operations are used up, when the time is over, when any thread has failed, or when the run
//!    is asked to end ([`Stop`]). The latter two it notices within [`NAP`], however long it is until its next request.
//!
//! **Threads.** `threads` lanes, one more for a background writer, and the sampler of the caller. They share the
//! [`Control`] only: a stop flag and one counter per lane, each on its own cache line.
//!
//! **Failure.** The first error stops all lanes and is returned. A store that loses a completion is reported after
//! [`COMPLETION_TIMEOUT`], not waited for.

use situ_base::lock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::measure::{GROUP_ENTRIES, Kind, Merged, Recorder};
use crate::options::BenchOptions;
use crate::stop::Stop;
use crate::store::{AsyncStore, Completions, Store, StoreFailure};
use crate::workload::{Action, Request, Tally, Worker, failed};
use crate::workloads::Workload;

/// The longest wait of an asynchronous lane for any completion before it calls the store stuck.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(120);

/// The part of a pause that is spent looking at the clock: sleep wakes up to this much late. It costs CPU time, which
/// is why a run with a rate tells none per operation.
const SPIN: Duration = Duration::from_micros(100);

/// A pause is slept in naps of this length, and between two of them the thread looks whether to go on.
const NAP: Duration = Duration::from_millis(100);

/// A counter that no other counter shares a cache line with.
#[repr(align(128))]
#[derive(Default)]
struct Padded(AtomicU64);

/// The state that the lanes and the sampler share.
pub(crate) struct Control {
    stop: AtomicBool,
    /// Ends the whole run.
    run: Stop,
    running: AtomicUsize,
    done: Vec<Padded>,
    start: OnceLock<Instant>,
}

impl Control {
    pub(crate) fn new(lanes: usize, run: Stop) -> Self {
        Self {
            stop: AtomicBool::new(false),
            run,
            running: AtomicUsize::new(lanes),
            done: (0..lanes).map(|_| Padded::default()).collect(),
            start: OnceLock::new(),
        }
    }

    /// Returns true if a lane has failed, or the run is to end.
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.run.is_asked()
    }

    /// Pauses until `due`, unless there is nothing to go on with.
    fn wait_until(&self, due: Instant) {
        while !self.stops() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if left > SPIN {
                thread::sleep((left - SPIN).min(NAP));
            } else {
                // On a machine without a spare core, the store's own threads come first.
                thread::yield_now();
            }
        }
    }

    /// Returns the operations completed by all foreground lanes so far.
    pub(crate) fn operations(&self) -> u64 {
        self.done.iter().map(|lane| lane.0.load(Ordering::Relaxed)).sum()
    }
}

/// Everything a phase's lanes have recorded.
pub(crate) struct Driven {
    pub(crate) merged: Merged,
    pub(crate) tally: Tally,
}

/// Runs `workers`, one per thread, and `background` at the same time.
pub(crate) fn drive(
    workload: Workload,
    options: &BenchOptions,
    store: &dyn Store,
    control: &Control,
    workers: Vec<Worker<'_>>,
    background: Option<Worker<'_>>,
) -> Result<Driven> {
    let lanes = workers.len();
    let barrier = Barrier::new(lanes + usize::from(background.is_some()));
    let begin = || {
        barrier.wait();
        *control.start.get_or_init(Instant::now)
    };
    thread::scope(|scope| {
        let begin = &begin;
        let foreground: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(index, worker)| {
                scope.spawn(move || {
                    let _leaving = Leaving(control);
                    let start = begin();
                    Lane::new(workload, options, store, control, worker, index, start).run()
                })
            })
            .collect();
        let background = background
            .map(|worker| scope.spawn(move || run_background(workload, options, store, control, worker, begin())));

        let mut driven = Driven { merged: Merged::default(), tally: Tally::default() };
        let mut outcome = Ok(());
        for lane in foreground {
            match lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok((recorder, tally)) => {
                    driven.merged.add(recorder);
                    driven.tally.add(&tally);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        if let Some(lane) = background {
            match lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok((recorder, tally)) => {
                    driven.merged.add_background(recorder);
                    driven.tally.add(&tally);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| driven)
    })
}

/// Tells the background writer when the last foreground lane has ended, however it ended.
struct Leaving<'a>(&'a Control);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Release);
    }
}

/// The moments at which requests are due.
struct Pace {
    next: Instant,
    interval: Duration,
}

impl Pace {
    /// One of `lanes` lanes that together issue `rate` requests per second; lanes take turns.
    fn new(rate: u64, lanes: usize, index: usize, start: Instant) -> Self {
        let interval = Duration::from_secs_f64(lanes as f64 / rate as f64);
        Self { next: start + interval.mul_f64(index as f64 / lanes as f64), interval }
    }

    fn take(&mut self) -> Instant {
        let due = self.next;
        self.next += self.interval;
        due
    }
}

/// One thread of a workload.
struct Lane<'a> {
    workload: Workload,
    options: &'a BenchOptions,
    store: &'a dyn Store,
    control: &'a Control,
    worker: Worker<'a>,
    index: usize,
    operations: u64,
    start: Instant,
    deadline: Option<Instant>,
    pace: Option<Pace>,
    recorder: Recorder,
}

impl<'a> Lane<'a> {
    fn new(
        workload: Workload,
        options: &'a BenchOptions,
        store: &'a dyn Store,
        control: &'a Control,
        worker: Worker<'a>,
        index: usize,
        start: Instant,
    ) -> Self {
        let lanes = control.done.len();
        let limit = options.duration_seconds.map(Duration::from_secs_f64);
        let operations = worker.operations_or(workload.operations(options, index as u32));
        Self {
            workload,
            options,
            store,
            control,
            worker,
            index,
            operations,
            start,
            deadline: limit.map(|limit| start + limit),
            pace: options.rate.map(|rate| Pace::new(rate, lanes, index, start)),
            recorder: Recorder::new(start),
        }
    }

    fn run(mut self) -> Result<(Recorder, Tally)> {
        let outcome = match self.workload {
            Workload::ReadSeq | Workload::ReadReverse => self.run_iterator(),
            _ if self.options.outstanding > 1 => self.run_outstanding(),
            _ => self.run_blocking(),
        };
        if outcome.is_err() {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        outcome.map(|()| (self.recorder, self.worker.tally))
    }

    /// Records and says whether to go on.
    #[inline]
    fn record(&mut self, kind: Kind, begin: Instant, end: Instant, operations: u64) -> bool {
        self.recorder.record(kind, begin, end, operations);
        self.control.done[self.index].0.store(self.recorder.operations(), Ordering::Relaxed);
        self.goes_on(end)
    }

    fn goes_on(&self, now: Instant) -> bool {
        self.deadline.is_none_or(|deadline| now < deadline) && !self.control.stops()
    }

    fn run_blocking(&mut self) -> Result<()> {
        let mut last = self.start;
        while self.recorder.operations() < self.operations {
            let recorded = self.worker.due().map(|due| self.start + due);
            let begin = match recorded.or_else(|| self.pace.as_mut().map(Pace::take)) {
                Some(due) => {
                    self.control.wait_until(due);
                    due
                }
                None => last,
            };
            if self.control.stops() {
                break;
            }
            let request = self.worker.plan();
            let operations = self.worker.perform(self.store, request)?;
            last = Instant::now();
            if !self.record(request.kind, begin, last, operations) {
                break;
            }
        }
        Ok(())
    }

    /// readseq and readreverse: one iterator, and the clock once per group of entries.
    fn run_iterator(&mut self) -> Result<()> {
        let reverse = self.workload == Workload::ReadReverse;
        let store = self.store;
        let mut last = self.start;
        let mut group = 0;
        let mut bytes = 0;
        let operations = self.operations;
        let mut each = |key: &[u8], value: &[u8]| {
            group += 1;
            bytes += (key.len() + value.len()) as u64;
            if group < GROUP_ENTRIES {
                return std::ops::ControlFlow::Continue(());
            }
            let end = Instant::now();
            let goes_on = self.record(Kind::Next, last, end, group);
            (group, last) = (0, end);
            if goes_on { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
        };
        let outcome = if reverse {
            store.scan_reverse(None, operations, &mut each)
        } else {
            store.scan(&[], operations, &mut each)
        };
        let count = outcome.map_err(|source| failed(self.workload, source))?;
        if group > 0 {
            self.record(Kind::Next, last, Instant::now(), group);
        }
        self.worker.tally.found += count;
        self.worker.tally.user_bytes_read += bytes;
        Ok(())
    }

    /// Keeps up to `outstanding` puts and gets in flight.
    fn run_outstanding(&mut self) -> Result<()> {
        let Some(store) = self.store.asynchronous() else {
            return Err(Error::Options(format!(
                "{} has no asynchronous side: outstanding must be 1",
                self.store.name()
            )));
        };
        let queue = Arc::new(CompletionQueue::default());
        let told: Arc<dyn Completions> = Arc::clone(&queue) as Arc<dyn Completions>;
        let depth = self.options.outstanding as usize;
        let mut flights: Vec<Option<Flight>> = (0..depth).map(|_| None).collect();
        let mut free: Vec<usize> = (0..depth).rev().collect();
        let mut finished = Vec::with_capacity(depth);
        let mut issued = 0;
        let mut goes_on = true;
        loop {
            goes_on &= !self.control.stops();
            while goes_on && issued < self.operations {
                let Some(&token) = free.last() else { break };
                let begin = Instant::now();
                let begin = match &mut self.pace {
                    Some(pace) if pace.next > begin => break,
                    Some(pace) => pace.take(),
                    None => begin,
                };
                let request = self.worker.plan();
                free.pop();
                flights[token] = Some(Flight { request, begin });
                issued += 1;
                self.submit(store, request, token as u64, &told)?;
            }
            let in_flight = depth - free.len();
            let done = !goes_on || issued == self.operations;
            if done && in_flight == 0 {
                return Ok(());
            }
            // With a free place, the next request may be due before anything completes.
            let due = self.pace.as_ref().filter(|_| !done && in_flight < depth).map(|pace| pace.next);
            let due = due.map(|due| due.min(Instant::now() + NAP));
            queue
                .take(due, &mut finished)
                .map_err(|waited| Error::Wrong(format!("{}: nothing completed for {waited:?}", self.workload)))?;
            for (token, end, outcome) in finished.drain(..) {
                let flight = usize::try_from(token).ok().and_then(|token| flights.get_mut(token)?.take());
                let Some(flight) = flight else {
                    return Err(Error::Wrong(format!("{}: completed twice", self.workload)));
                };
                free.push(token as usize);
                let found = outcome.map_err(|source| failed(self.workload, source))?;
                match flight.request.action {
                    Action::Get => self.worker.count_read(found),
                    _ => self.worker.acknowledge(flight.request)?,
                }
                goes_on &= self.record(flight.request.kind, flight.begin, end, 1);
            }
        }
    }

    fn submit(
        &mut self,
        store: &dyn AsyncStore,
        request: Request,
        token: u64,
        told: &Arc<dyn Completions>,
    ) -> Result<()> {
        let worker = &mut self.worker;
        let outcome = match request.action {
            Action::Get => store.submit_get(worker.key(), token, told),
            Action::Put => {
                worker.count_written(1);
                store.submit_put(worker.key(), worker.value(), worker.sync(), token, told)
            }
            action => {
                return Err(Error::Options(format!("{action:?} cannot be outstanding")));
            }
        };
        outcome.map_err(|source| failed(self.workload, source))
    }
}

/// A request in flight.
struct Flight {
    request: Request,
    begin: Instant,
}

type Finished = (u64, Instant, std::result::Result<Option<usize>, StoreFailure>);

/// A queue of one lane's completions. Bounded by the requests that the lane has in flight.
#[derive(Default)]
struct CompletionQueue {
    finished: Mutex<Vec<Finished>>,
    arrived: Condvar,
}

impl Completions for CompletionQueue {
    fn complete(&self, token: u64, outcome: std::result::Result<Option<usize>, StoreFailure>) {
        let end = Instant::now();
        let mut finished = lock(&self.finished);
        finished.push((token, end, outcome));
        if finished.len() == 1 {
            self.arrived.notify_one();
        }
    }
}

impl CompletionQueue {
    /// Moves what has arrived into `taken`. Waits for the first, or until `due`; without `due`, an error after
    /// [`COMPLETION_TIMEOUT`].
    fn take(&self, due: Option<Instant>, taken: &mut Vec<Finished>) -> std::result::Result<(), Duration> {
        let timeout = due.map_or(COMPLETION_TIMEOUT, |due| due.saturating_duration_since(Instant::now()));
        let finished = lock(&self.finished);
        let (mut finished, waited) = self
            .arrived
            .wait_timeout_while(finished, timeout, |finished| finished.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *finished, taken);
        if waited.timed_out() && taken.is_empty() && due.is_none() { Err(timeout) } else { Ok(()) }
    }
}

/// The writer behind readwhilewriting: puts until the readers are done.
fn run_background(
    workload: Workload,
    options: &BenchOptions,
    store: &dyn Store,
    control: &Control,
    mut worker: Worker<'_>,
    start: Instant,
) -> Result<(Recorder, Tally)> {
    let mut pace = options.background_rate.map(|rate| Pace::new(rate, 1, 0, start));
    let mut recorder = Recorder::new(start);
    let mut last = start;
    while control.running.load(Ordering::Acquire) > 0 {
        let begin = match &mut pace {
            Some(pace) => {
                let due = pace.take();
                control.wait_until(due);
                due
            }
            None => last,
        };
        if control.stops() {
            break;
        }
        let request = worker.plan_background_put();
        if let Err(error) = worker.perform(store, request) {
            control.stop.store(true, Ordering::Relaxed);
            return Err(match error {
                Error::Store { source, .. } => {
                    Error::Store { during: format!("{workload}, background writer"), source }
                }
                other => other,
            });
        }
        last = Instant::now();
        recorder.record(request.kind, begin, last, 1);
    }
    Ok((recorder, worker.tally))
}

#[cfg(test)]
mod tests;
