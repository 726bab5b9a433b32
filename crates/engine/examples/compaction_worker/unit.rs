//! The store's side: a unit whose tasks run in a worker process.
//!
//! A thread of the unit writes what waits for the worker. Another one starts the worker and reads what comes from it. When the worker's
//! pipe ends, the worker is killed and waited for. Only then are its attempts told as failed, so that a process that still writes never
//! meets a file of the next attempt. The next task starts another worker. Closing gives the worker a second, and then kills it.

use super::frames::{CANCEL, DONE, FAILED, Frame, PLACE, RESERVE, TASK, WRITTEN};
use rustix::process::Signal;
use situ_compaction::{Result, Task, TaskError, TaskOutput};
use situ_offload::{
    Assignment, Finished, KnownFilters, Limits, Load, Offer, Ran, Refused, Unit, decode_output, encode_task,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A worker whose input has ended gets so long until it is killed.
const ENDS_BY_ITSELF: Duration = Duration::from_secs(1);

/// Starts a worker: its process, which reads frames from its standard input, and the pipe that its answers come from.
type Start = dyn Fn() -> std::io::Result<(Child, Box<dyn Read + Send>)> + Send + Sync;

/// Runs tasks in a process of its own.
pub(crate) struct PipeUnit {
    name: String,
    tasks_max: usize,
    start: Arc<Start>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    held: BTreeMap<u64, (Assignment, Instant)>,
    finished: Vec<Finished>,
    worker: Option<Worker>,
    is_closed: bool,
}

struct Worker {
    process: u32,
    to_worker: Sender<Frame>,
    reader: JoinHandle<()>,
}

impl PipeUnit {
    pub(crate) fn new(
        name: &str,
        tasks_max: usize,
        start: impl Fn() -> std::io::Result<(Child, Box<dyn Read + Send>)> + Send + Sync + 'static,
    ) -> PipeUnit {
        PipeUnit { name: name.to_owned(), tasks_max, start: Arc::new(start), state: Arc::default() }
    }

    /// The process of the worker, while there is one.
    pub(crate) fn process(&self) -> Option<u32> {
        self.lock().worker.as_ref().map(|worker| worker.process)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits() -> Limits {
        // Filters are code of the store's process; the store's first volume is the directory that both see.
        Limits { filters: KnownFilters::Named(Vec::new()), volumes: Some(vec![0]), ..Limits::unlimited() }
    }

    /// Starts a worker, its writer and its reader. The reader starts the process, and lives as long: the system kills a worker with the
    /// thread that started it.
    fn start_worker(&self) -> std::io::Result<Worker> {
        let (to_worker, frames) = channel::<Frame>();
        let (tell, told) = channel();
        let (state, name, start) = (Arc::clone(&self.state), self.name.clone(), Arc::clone(&self.start));
        let reader = Builder::new().name("worker-reader".to_owned()).spawn(move || {
            let Some((child, answers)) = started(&*start, frames, &tell) else { return };
            // Dropped also after a panic: then the attempts are told as failed.
            let ends = Ends { child, state: &state, name: &name };
            read_answers(answers, &state, &name);
            drop(ends);
        })?;
        let process = told.recv().unwrap_or_else(|_| Err(std::io::Error::other("the worker's thread has ended")))?;
        Ok(Worker { process, to_worker, reader })
    }
}

/// Starts the process, and the thread that writes to it; tells what came of it.
fn started(
    start: &Start,
    frames: Receiver<Frame>,
    tell: &Sender<std::io::Result<u32>>,
) -> Option<(Child, Box<dyn Read + Send>)> {
    let begun = start().and_then(|(mut child, answers)| {
        let mut input = child.stdin.take().ok_or_else(|| std::io::Error::other("the worker has no standard input"))?;
        // A frame that cannot be written is one to a worker that has ended, which the reader sees.
        let write = move || drop(frames.iter().try_for_each(|frame| frame.write(&mut input)));
        let writer = Builder::new().name("worker-writer".to_owned()).spawn(write);
        writer.inspect_err(|_| end(&mut child))?;
        Ok((child, answers))
    });
    match begun {
        Ok((child, answers)) => {
            let _ = tell.send(Ok(child.id()));
            Some((child, answers))
        }
        Err(error) => {
            let _ = tell.send(Err(error));
            None
        }
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn read_answers(mut answers: Box<dyn Read + Send>, state: &Mutex<State>, name: &str) {
    while let Ok(frame) = Frame::read(&mut answers) {
        take_answer(state, name, &frame);
    }
}

/// A worker's process, and what is told when it has ended.
struct Ends<'a> {
    child: Child,
    state: &'a Mutex<State>,
    name: &'a str,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let process = self.child.id();
        end(&mut self.child);
        worker_has_ended(self.state, self.name, process);
    }
}

fn take_answer(state: &Mutex<State>, name: &str, frame: &Frame) {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(host) = lock().held.get(&frame.attempt).map(|(assignment, _)| Arc::clone(&assignment.host)) else {
        return;
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    match frame.kind {
        RESERVE => {
            // The worker reaches the store's first volume only.
            let place = host.reserve(number(&frame.bytes) as u32).ok().filter(|place| place.volume == 0);
            let place = place.map(|place| [&place.volume.to_le_bytes()[..], &place.number.to_le_bytes()].concat());
            let answer = Frame::new(PLACE, frame.attempt, place.unwrap_or_default());
            // A unit that is being closed has no worker any more.
            if let Some(worker) = &lock().worker {
                let _ = worker.to_worker.send(answer);
            }
        }
        WRITTEN => host.pace(number(&frame.bytes)),
        DONE => finish(&mut lock(), frame.attempt, decode_output(&frame.bytes).map_err(TaskError::from)),
        FAILED => {
            let reason = String::from_utf8_lossy(&frame.bytes).into_owned();
            finish(&mut lock(), frame.attempt, Err(TaskError::Unit { unit: name.to_owned(), reason }));
        }
        _ => {}
    }
}

fn finish(state: &mut State, attempt: u64, result: Result<TaskOutput>) {
    let Some((assignment, began)) = state.held.remove(&attempt) else { return };
    state.finished.push(Finished { attempt, result, elapsed: began.elapsed(), ran: Ran::default() });
    assignment.done.notify();
}

fn worker_has_ended(state: &Mutex<State>, name: &str, process: u32) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.worker.as_ref().is_some_and(|worker| worker.process == process) {
        state.worker = None;
    }
    for attempt in state.held.keys().copied().collect::<Vec<u64>>() {
        let (unit, reason) = (name.to_owned(), format!("its process {process} has ended"));
        finish(&mut state, attempt, Err(TaskError::Unit { unit, reason }));
    }
}

impl Unit for PipeUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn offer(&self, task: &Task) -> Offer {
        match Self::limits().admit(task) {
            Ok(()) => self.load().offer(task.input_bytes()),
            Err(reason) => Offer::Unsuited(reason),
        }
    }

    fn load(&self) -> Load {
        let state = self.lock();
        let tasks_max = if state.is_closed { 0 } else { self.tasks_max };
        let input_bytes = state.held.values().map(|(assignment, _)| assignment.task.input_bytes()).sum();
        // It says that it is fast, so that it is asked first.
        Load {
            tasks: state.held.len() + state.finished.len(),
            tasks_max,
            input_bytes,
            bytes_per_s: 10 << 30,
            resources: None,
        }
    }

    fn submit(&self, assignment: Assignment) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Refused::Gone("the unit is closed".to_owned()));
        }
        if state.held.len() + state.finished.len() >= self.tasks_max {
            return Err(Refused::Busy);
        }
        if state.worker.is_none() {
            state.worker = Some(self.start_worker().map_err(|error| Refused::Gone(error.to_string()))?);
        }
        let frame = Frame::new(TASK, assignment.attempt, encode_task(&assignment.task));
        state.held.insert(assignment.attempt, (assignment, Instant::now()));
        if let Some(worker) = &state.worker {
            // If the worker has ended, the reader is about to say so.
            let _ = worker.to_worker.send(frame);
        }
        Ok(())
    }

    fn cancel(&self, attempt: u64) {
        let mut state = self.lock();
        if state.held.remove(&attempt).is_some() {
            state.worker.iter().for_each(|worker| drop(worker.to_worker.send(Frame::new(CANCEL, attempt, []))));
        }
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.lock().finished);
    }

    fn close(&self) {
        let worker = {
            let mut state = self.lock();
            state.is_closed = true;
            state.held.clear();
            state.worker.take()
        };
        let Some(Worker { to_worker, reader, process }) = worker else { return };
        // The writer ends, the worker's input with it, and then the worker, if it is able to.
        drop(to_worker);
        let until = Instant::now() + ENDS_BY_ITSELF;
        while !reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !reader.is_finished() {
            // A process that was stopped, or hangs in the system, does not end by itself.
            if let Some(process) = rustix::process::Pid::from_raw(process as i32) {
                let _ = rustix::process::kill_process(process, Signal::KILL);
            }
        }
        let _ = reader.join();
    }
}
