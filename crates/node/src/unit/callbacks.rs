//! The node's requests to the hosts of its tasks: places, leave to go on, and files that lie with this process.
//!
//! * [`Reserve`] and requests about files are done by two threads. Requests about one writer are done in their order.
//! * [`Pace`] is done by a thread of its own, which the host may hold back for as long as it likes.
//!
//! **Invariants.** An attempt that is not held gets no place, makes no file and appends nothing. A table is made in a
//! place that was given to its attempt only, and by the host itself. The node reads inputs of held attempts only: an
//! input is closed when the last attempt that has it ends. So a node whose `Close` was lost with a connection keeps no
//! table of the host open. Locks: the files' before the unit's.

use super::Shared;
use crate::error::CallError;
use crate::fields::Rest;
use crate::message::{
    Append, Close, Create, Done, Message, Open, Opened, Operation, Pace, PaceAnswer, Read, ReadBytes, Reserve,
    ReservedPlace, VolumePlace, WriterDrop, WriterFinish, WriterFlush, WriterSync,
};
use crate::peer::Reply;
use situ_base::{Env, Job, Workers, lock};
use situ_compaction::TablePlace;
use situ_storage::memory::zeroed;
use situ_storage::{Error, FileName, Reader, Writer};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

/// Requests of a node that wait for a thread here.
pub(super) const QUEUE_MAX: usize = 1024;
/// Files that a node has open here.
const OPEN_MAX: usize = 4096;

type Answer<T> = Result<T, CallError>;

pub(super) struct Callbacks {
    work: Workers<Job>,
    pace: Workers<Job>,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    /// Places that were given out: which attempt has each, for which level.
    places: BTreeMap<(u32, u64), (u64, u32)>,
    inputs: BTreeMap<u64, OpenInput>,
    writers: BTreeMap<u64, Arc<Strand>>,
}

/// An input that the node reads.
struct OpenInput {
    place: TablePlace,
    reader: Arc<dyn Reader>,
}

/// A strand that waits for a thread. If it gets none, its requests are dropped, which answers them.
struct StrandTurn(Option<Arc<Strand>>);

impl Drop for StrandTurn {
    fn drop(&mut self) {
        let Some(strand) = self.0.take() else { return };
        let refused = {
            let mut state = lock(&strand.state);
            state.is_busy = false;
            std::mem::take(&mut state.waiting)
        };
        drop(refused);
    }
}

/// A table that the node writes here, and what it has asked about it.
struct Strand {
    attempt: u64,
    state: Mutex<Strands>,
}

#[derive(Default)]
struct Strands {
    /// `None` after an error, and when it is finished.
    writer: Option<Box<dyn Writer>>,
    is_finished: bool,
    waiting: VecDeque<(Operation, Vec<u8>, Reply)>,
    is_busy: bool,
}

impl Callbacks {
    pub(super) fn new(env: &Env) -> Callbacks {
        let work = Workers::new(env, "node-callback", 2, QUEUE_MAX);
        let pace = Workers::new(env, "node-pace", 1, QUEUE_MAX);
        Callbacks { work, pace, files: Mutex::default() }
    }

    pub(super) fn close(&self) {
        self.work.close();
        self.pace.close();
        let files = std::mem::take(&mut *lock(&self.files));
        drop(files);
    }

    #[cfg(test)]
    pub(super) fn inputs_open(&self) -> usize {
        lock(&self.files).inputs.len()
    }
}

impl Files {
    /// Takes out what is of no use without an attempt: its writers, and the inputs that no attempt has any more.
    fn take_ended(&mut self, attempt: u64, inputs: &HashSet<TablePlace>) -> (Vec<Arc<Strand>>, Vec<OpenInput>) {
        self.places.retain(|_, (of, _)| *of != attempt);
        let writers = std::mem::take(&mut self.writers).into_iter();
        let (ended, others): (BTreeMap<_, _>, _) = writers.partition(|(_, strand)| strand.attempt == attempt);
        self.writers = others;
        let open = std::mem::take(&mut self.inputs).into_iter();
        let (needed, unread): (_, BTreeMap<_, _>) = open.partition(|(_, input)| inputs.contains(&input.place));
        self.inputs = needed;
        (ended.into_values().collect(), unread.into_values().collect())
    }
}

/// Takes a request of the node. Does not wait.
pub(super) fn request(shared: &Arc<Shared>, operation: u16, payload: Vec<u8>, reply: Reply) {
    let Some(operation) = Operation::of(operation) else {
        return reply.fail(&CallError::Unsupported(format!("the host knows no operation {operation:#x}")));
    };
    let this = Arc::clone(shared);
    match operation {
        Operation::Pace => submit(&shared.callbacks.pace, reply, move |reply| reply.finish(this.pace(&payload))),
        Operation::Append | Operation::WriterSync | Operation::WriterFlush | Operation::WriterFinish => {
            shared.enqueue(operation, payload, reply);
        }
        _ => submit(&shared.callbacks.work, reply, move |reply| this.answer(operation, &payload, reply)),
    }
}

/// Has a thread answer, or says that there are too many requests.
fn submit(workers: &Workers<Job>, reply: Reply, work: impl FnOnce(Reply) + Send + 'static) {
    // A job that comes back is dropped, and the reply with it, which answers.
    drop(workers.run(Box::new(move || work(reply))));
}

fn unknown(attempt: u64) -> CallError {
    CallError::Unknown(format!("nobody waits for attempt {attempt} any more"))
}

impl Shared {
    /// An attempt is held no more: what it has open is closed.
    pub(super) fn forget(&self, attempt: u64) {
        let mut files = lock(&self.callbacks.files);
        let inputs = lock(&self.state).inputs();
        let ended = files.take_ended(attempt, &inputs);
        drop(files);
        // A writer may wait for the disk when it is dropped.
        drop(ended);
    }

    fn answer(&self, operation: Operation, payload: &[u8], reply: Reply) {
        match operation {
            Operation::Reserve => reply.finish(self.reserve(payload)),
            Operation::Open => reply.finish(self.open(payload)),
            Operation::Read => reply.finish(self.read(payload)),
            Operation::Close => reply.finish(self.close_file(payload)),
            Operation::Create => reply.finish(self.create(payload)),
            Operation::WriterDrop => reply.finish(self.drop_writer(payload)),
            other => reply.fail(&CallError::Unsupported(format!("a host does not answer {}", other.name()))),
        }
    }

    fn reserve(&self, payload: &[u8]) -> Answer<ReservedPlace> {
        let Reserve { attempt, level } = Reserve::decode(payload)?;
        let assignment = self.assignment(attempt).ok_or_else(|| unknown(attempt))?;
        let TablePlace { volume, number } = assignment.host.reserve(level)?;
        let Some((_, place)) = self.options.volumes.iter().find(|(known, _)| *known == volume) else {
            lock(&self.state).levels_elsewhere.insert(level, (volume, self.env.clock.now()));
            return Err(
                Error::Invalid(format!("the table belongs on volume {volume}, which the node does not reach")).into()
            );
        };
        if *place == VolumePlace::Host {
            let mut files = lock(&self.callbacks.files);
            // The attempt may have ended meanwhile. Then no thread would take the place out again.
            if self.assignment(attempt).is_none() {
                return Err(unknown(attempt));
            }
            files.places.insert((volume, number), (attempt, level));
        }
        Ok(ReservedPlace { volume, number })
    }

    fn pace(&self, payload: &[u8]) -> Answer<PaceAnswer> {
        let Pace { attempt, bytes } = Pace::decode(payload)?;
        let Some(assignment) = self.assignment(attempt) else { return Ok(PaceAnswer { cancelled: true }) };
        assignment.host.pace(bytes);
        Ok(PaceAnswer { cancelled: assignment.host.cancelled() })
    }

    fn open(&self, payload: &[u8]) -> Answer<Opened> {
        let Open { volume, handle, name } = Open::decode(payload)?;
        let served = lock(&self.state).served.iter().find(|(number, _)| *number == volume).cloned();
        let (FileName::Table(number), Some((_, served))) = (name, served) else {
            return Err(Error::Invalid(format!("{name} of volume {volume} is no file that this host serves")).into());
        };
        let place = TablePlace { volume, number };
        self.check_input(place)?;
        let reader = served.open(name)?;
        let opened = Opened { bytes: reader.bytes(), writes_wait: false, path: reader.path().to_owned() };
        let mut files = lock(&self.callbacks.files);
        if files.inputs.len() >= OPEN_MAX {
            return Err(CallError::Busy(format!("the node has {OPEN_MAX} files of the host open")));
        }
        // The attempt may have ended meanwhile. Then no thread would close the file again.
        self.check_input(place)?;
        let before = files.inputs.insert(handle, OpenInput { place, reader });
        drop(files);
        drop(before);
        Ok(opened)
    }

    /// Checks that an attempt is held which reads the table.
    fn check_input(&self, place: TablePlace) -> Answer<()> {
        match lock(&self.state).is_input(place) {
            true => Ok(()),
            false => Err(CallError::Unknown(format!("nobody waits for a task that reads table {}", place.number))),
        }
    }

    fn read(&self, payload: &[u8]) -> Answer<ReadBytes> {
        let Read { handle, ranges } = Read::decode(payload)?;
        let reader = lock(&self.callbacks.files).inputs.get(&handle).map(|input| Arc::clone(&input.reader));
        let reader = reader.ok_or_else(|| CallError::Unknown(format!("no file is open under the number {handle}")))?;
        let bytes: u64 = ranges.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        let most = lock(&self.state).peer.as_ref().map_or(0, |peer| peer.payload_bytes_max() as u64);
        if bytes > most {
            return Err(Error::Invalid(format!("{bytes} bytes in one answer, and at most {most} fit")).into());
        }
        let mut data = zeroed(bytes as usize, "an answer to a read")?;
        let mut rest = &mut data[..];
        for (offset, bytes) in ranges {
            let (range, behind) = rest.split_at_mut(bytes as usize);
            reader.read_at(offset, range)?;
            rest = behind;
        }
        Ok(ReadBytes { data: Rest(data) })
    }

    fn close_file(&self, payload: &[u8]) -> Answer<Done> {
        let Close { handle } = Close::decode(payload)?;
        let closed = lock(&self.callbacks.files).inputs.remove(&handle);
        drop(closed);
        Ok(Done {})
    }

    fn create(&self, payload: &[u8]) -> Answer<Opened> {
        let Create { volume, handle, name, .. } = Create::decode(payload)?;
        let refused = || Error::Invalid(format!("{name} of volume {volume} was not given to the node as a place"));
        let FileName::Table(number) = name else { return Err(refused().into()) };
        let place = TablePlace { volume, number };
        let begun = Opened { bytes: 0, writes_wait: false, path: name.to_string() };
        let (attempt, level) = {
            let files = lock(&self.callbacks.files);
            if files.writers.contains_key(&handle) {
                return Ok(begun);
            }
            *files.places.get(&(volume, number)).ok_or_else(refused)?
        };
        let assignment = self.assignment(attempt).ok_or_else(|| unknown(attempt))?;
        let (made, writer) = assignment.host.create(level, place)?;
        if made != place {
            // The node's output would name a place where nothing is.
            return Err(Error::NoSpace { op: "create", path: name.to_string() }.into());
        }
        let state = Strands { writer: Some(writer), ..Strands::default() };
        let strand = Strand { attempt, state: Mutex::new(state) };
        lock(&self.callbacks.files).writers.insert(handle, Arc::new(strand));
        // It may have ended meanwhile.
        if self.assignment(attempt).is_none() {
            self.forget(attempt);
        }
        Ok(begun)
    }

    fn drop_writer(&self, payload: &[u8]) -> Answer<Done> {
        let WriterDrop { handle, .. } = WriterDrop::decode(payload)?;
        let dropped = lock(&self.callbacks.files).writers.remove(&handle);
        drop(dropped);
        Ok(Done {})
    }

    /// Puts a request about a writer behind the earlier ones.
    fn enqueue(self: &Arc<Self>, operation: Operation, payload: Vec<u8>, reply: Reply) {
        // All of them begin with the token and the number.
        let handle = payload.get(8..16).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok()).map(u64::from_le_bytes);
        let strand = handle.and_then(|handle| lock(&self.callbacks.files).writers.get(&handle).cloned());
        let Some(strand) = strand else {
            return reply.fail(&CallError::Unknown("the host does not know the writer".to_owned()));
        };
        {
            let mut state = lock(&strand.state);
            state.waiting.push_back((operation, payload, reply));
            if std::mem::replace(&mut state.is_busy, true) {
                return;
            }
        }
        let (shared, mut turn) = (Arc::clone(self), StrandTurn(Some(strand)));
        let job = move || turn.0.take().iter().for_each(|strand| shared.drain(strand));
        drop(self.callbacks.work.run(Box::new(job)));
    }

    /// Does what was asked about a writer, in its order.
    fn drain(&self, strand: &Strand) {
        loop {
            let (next, writer) = {
                let mut state = lock(&strand.state);
                let Some(next) = state.waiting.pop_front() else {
                    state.is_busy = false;
                    return;
                };
                (next, state.writer.take())
            };
            let (operation, payload, reply) = next;
            let is_finished = lock(&strand.state).is_finished;
            let is_wanted = self.assignment(strand.attempt).is_some_and(|assignment| !assignment.host.cancelled());
            let done = match (writer, is_wanted) {
                (_, false) => Err(unknown(strand.attempt)),
                // Asked for again: the answer was lost.
                (None, true) if is_finished && operation == Operation::WriterFinish => Ok(None),
                (None, true) => Err(Error::Invalid("the table was given up after an error".to_owned()).into()),
                (Some(writer), true) => write(writer, operation, &payload),
            };
            match done {
                Ok(writer) => {
                    let mut state = lock(&strand.state);
                    state.is_finished |= writer.is_none();
                    state.writer = writer;
                    drop(state);
                    reply.tell(&Done {});
                }
                Err(error) => reply.fail(&error),
            }
        }
    }
}

/// Does one thing with a writer, which comes back unless it is finished.
fn write(mut writer: Box<dyn Writer>, operation: Operation, payload: &[u8]) -> Answer<Option<Box<dyn Writer>>> {
    let check = |writer: &dyn Writer, at: u64| match writer.written() == at {
        true => Ok(()),
        false => Err(Error::Invalid(format!("the table has {} bytes, and the node says {at}", writer.written()))),
    };
    match operation {
        Operation::Append => {
            let Append { offset, data: Rest(data), .. } = Append::decode(payload)?;
            check(&*writer, offset)?;
            writer.append(&data)?;
        }
        Operation::WriterSync => {
            check(&*writer, WriterSync::decode(payload)?.written)?;
            writer.sync()?;
        }
        Operation::WriterFlush => {
            check(&*writer, WriterFlush::decode(payload)?.written)?;
            writer.flush()?;
        }
        _ => {
            check(&*writer, WriterFinish::decode(payload)?.written)?;
            writer.finish()?;
            return Ok(None);
        }
    }
    Ok(Some(writer))
}
