//! The requests of a task on a node to its host, over the host's newest connection.
//!
//! * **Places** are asked for ahead, as long as the task is likely to need more: the next table finds its place there.
//!   Places that are not used are in no output; the host clears them.
//! * **Pace** goes out for each MiB, and the run goes on meanwhile, until 2 MiB are unanswered. While the host is away,
//!   nothing holds the run back.
//!
//! A run that needs a place waits for the host to come back, for the session's time at most.

use crate::error::CallError;
use crate::host_connection::HostConnection;
use crate::message::{Call, Message, Pace, PaceAnswer, Reserve, ReservedPlace};
use crate::task_files::{GivenUp, TaskFiles};
use situ_base::lock;
use situ_compaction::{TablePlace, Task, TaskHost};
use situ_storage::{Error, Result, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// The output is reported to the host in pieces of about this size.
const PACE_BYTES: u64 = 1 << 20;
/// The maximum number of bytes of output that are unanswered.
const PACE_AHEAD_BYTES: u64 = 2 << 20;
/// Within this time the host answers, or is asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// The volumes of a host, and the files of each.
#[derive(Default)]
pub(super) struct HostVolumes(Mutex<BTreeMap<u32, Arc<dyn TaskFiles>>>);

impl HostVolumes {
    pub(super) fn replace(&self, volumes: BTreeMap<u32, Arc<dyn TaskFiles>>) {
        let before = std::mem::replace(&mut *lock(&self.0), volumes);
        // A connection to another node takes a moment to end.
        drop(before);
    }

    /// Returns the files of a volume.
    pub(super) fn files(&self, volume: u32) -> Result<Arc<dyn TaskFiles>> {
        let found = lock(&self.0).get(&volume).cloned();
        found.ok_or_else(|| Error::Invalid(format!("the host has not told the node where its volume {volume} lies")))
    }
}

/// A host, as one attempt sees it.
pub(super) struct RemoteHost {
    /// The session's. They go with the session.
    volumes: Weak<HostVolumes>,
    token: u64,
    /// The expected number of tables, about.
    tables_expected: AtomicU64,
    /// The expected length of each table, about.
    table_bytes: AtomicU64,
    calls: Arc<Calls>,
    made: Mutex<Vec<Table>>,
}

/// A table that was made, and where.
#[derive(Clone)]
struct Table {
    files: Arc<dyn TaskFiles>,
    number: u64,
}

/// The tables of an attempt.
pub(super) struct Tables {
    token: u64,
    tables: Vec<Table>,
}

impl Tables {
    /// Removes the tables: no host can install them. The host finds those that cannot be removed when it opens its
    /// store.
    pub(super) fn remove(self) {
        for Table { files, number } in self.tables {
            let _ = files.remove(self.token, number);
        }
    }
}

/// The calls that are under way with the host. Answers come on threads of connections.
struct Calls {
    connection: Arc<HostConnection>,
    attempt: u64,
    given_up: GivenUp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    places: VecDeque<TablePlace>,
    /// Places that were asked for and have not come.
    asked: u64,
    taken: u64,
    refused: Option<Error>,
    /// Bytes of output that were not reported to the host.
    untold_bytes: u64,
    /// Bytes of output that were reported to the host, which has not answered.
    told_bytes: u64,
}

impl RemoteHost {
    pub(super) fn new(
        connection: &Arc<HostConnection>,
        volumes: &Arc<HostVolumes>,
        attempt: u64,
        token: u64,
    ) -> RemoteHost {
        let (given_up, state) = (GivenUp::default(), Mutex::default());
        let calls = Arc::new(Calls { connection: Arc::clone(connection), attempt, given_up, state });
        RemoteHost {
            volumes: Arc::downgrade(volumes),
            token,
            tables_expected: AtomicU64::new(1),
            table_bytes: AtomicU64::new(0),
            calls,
            made: Mutex::default(),
        }
    }

    /// Guesses from the task how many tables there will be.
    pub(super) fn expect(&self, task: &Task) {
        let (input_bytes, target_bytes) = (task.input_bytes(), task.rules.output.target_file_bytes.max(1));
        self.tables_expected.store(input_bytes.div_ceil(target_bytes).max(1), Ordering::Relaxed);
        self.table_bytes.store(input_bytes.min(target_bytes), Ordering::Relaxed);
    }

    /// Gives the attempt up.
    pub(super) fn give_up(&self) {
        self.calls.given_up.set();
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.calls.given_up.is_set() || self.calls.connection.is_over()
    }

    /// For what the attempt waits for.
    pub(super) fn given_up(&self) -> &GivenUp {
        &self.calls.given_up
    }

    /// Tells the rest of the output. Does not wait for the answer.
    pub(super) fn finish(&self) {
        let untold = std::mem::take(&mut lock(&self.calls.state).untold_bytes);
        if untold > 0 {
            self.calls.tell(untold);
        }
    }

    /// The tables that were made so far.
    pub(super) fn tables(&self) -> Tables {
        Tables { token: self.token, tables: lock(&self.made).clone() }
    }

    /// Removes the tables of an attempt that has no output.
    pub(super) fn remove_tables(&self) {
        Tables { token: self.token, tables: std::mem::take(&mut *lock(&self.made)) }.remove();
    }

    fn check(&self) -> Result<()> {
        if self.is_given_up() { Err(given_up()) } else { Ok(()) }
    }
}

fn given_up() -> Error {
    Error::Invalid("the host has given the task up".to_owned())
}

impl Calls {
    /// Asks for a place, if the host is there.
    fn ask(self: &Arc<Self>, level: u32) {
        let Some(peer) = self.connection.peer() else { return };
        lock(&self.state).asked += 1;
        let (calls, request) = (Arc::clone(self), Reserve { attempt: self.attempt, level }.encode());
        peer.call_later(Reserve::OPERATION as u16, request, Some(ANSWERS_WITHIN), move |answer| {
            calls.place_came(answer.and_then(|answer| Ok(ReservedPlace::decode(&answer)?)));
        });
    }

    fn place_came(&self, answer: std::result::Result<ReservedPlace, CallError>) {
        let mut state = lock(&self.state);
        state.asked -= 1;
        match answer {
            Ok(ReservedPlace { volume, number }) => state.places.push_back(TablePlace { volume, number }),
            // It is asked for again, over another connection.
            Err(error) if error.is_lost() => {}
            Err(error) => state.refused = Some(error.into()),
        }
        drop(state);
        self.connection.changed.notify();
    }

    /// Reports output to the host. While the host is away, it reports nothing.
    fn tell(self: &Arc<Self>, bytes: u64) {
        let Some(peer) = self.connection.peer() else { return };
        lock(&self.state).told_bytes += bytes;
        let (calls, request) = (Arc::clone(self), Pace { attempt: self.attempt, bytes }.encode());
        peer.call_later(Pace::OPERATION as u16, request, None, move |answer| {
            let answer = answer.and_then(|answer| Ok(PaceAnswer::decode(&answer)?));
            lock(&calls.state).told_bytes -= bytes;
            if answer.is_ok_and(|answer| answer.cancelled) {
                calls.given_up.set();
            }
            calls.connection.changed.notify();
        });
    }
}

impl TaskHost for RemoteHost {
    fn reserve(&self, level: u32) -> Result<TablePlace> {
        loop {
            let seen = self.calls.connection.changed.generation();
            self.check()?;
            let (place, asks) = {
                let mut state = lock(&self.calls.state);
                if let Some(refused) = &state.refused {
                    return Err(refused.clone());
                }
                let place = state.places.pop_front();
                state.taken += u64::from(place.is_some());
                let left = self.tables_expected.load(Ordering::Relaxed).saturating_sub(state.taken);
                // The one that is waited for, or the next one.
                let wants = if place.is_none() { 1 } else { left.min(1) };
                (place, state.asked + (state.places.len() as u64) < wants)
            };
            if asks {
                self.calls.ask(level);
            }
            match place {
                Some(place) => return Ok(place),
                None => self.calls.connection.wait(seen),
            }
        }
    }

    fn create(&self, _level: u32, place: TablePlace) -> Result<(TablePlace, Box<dyn Writer>)> {
        self.check()?;
        let files = self.volumes.upgrade().ok_or_else(given_up)?.files(place.volume)?;
        let bound = self.table_bytes.load(Ordering::Relaxed);
        let inner = files.create(self.token, place.number, bound, &self.calls.given_up)?;
        lock(&self.made).push(Table { files, number: place.number });
        Ok((place, Box::new(TaskWriter { inner, calls: Arc::clone(&self.calls) })))
    }

    fn pace(&self, bytes: u64) {
        let untold = {
            let mut state = lock(&self.calls.state);
            state.untold_bytes += bytes;
            if state.untold_bytes < PACE_BYTES {
                return;
            }
            std::mem::take(&mut state.untold_bytes)
        };
        self.calls.tell(untold);
        loop {
            let seen = self.calls.connection.changed.generation();
            let is_ahead = lock(&self.calls.state).told_bytes > PACE_AHEAD_BYTES;
            if !is_ahead || self.is_given_up() {
                return;
            }
            self.calls.connection.wait(seen);
        }
    }

    fn cancelled(&self) -> bool {
        self.is_given_up()
    }
}

/// An output table. One of an attempt that was given up does not grow.
struct TaskWriter {
    inner: Box<dyn Writer>,
    calls: Arc<Calls>,
}

impl TaskWriter {
    fn check(&self) -> Result<()> {
        if self.calls.given_up.is_set() { Err(given_up()) } else { Ok(()) }
    }
}

impl Writer for TaskWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.inner.append(bytes)
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn sync(&mut self) -> Result<()> {
        self.check()?;
        self.inner.sync()
    }

    fn flush(&mut self) -> Result<()> {
        self.check()?;
        self.inner.flush()
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.check()?;
        self.inner.finish()
    }
}
