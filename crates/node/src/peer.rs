//! One connection: either end calls the other, with many requests in flight, each answered when its answer is there.
//!
//! ```text
//!   call, call_later, notify ─> credit, table of open requests ─> frames to go ─> caller, or writer thread ═> stream
//!   completions, Handler::request <────────────────────────────── reader thread <═══════════════ stream
//! ```
//!
//! 1. A caller takes credit for its request, enters it into the table of open requests, and queues the frame. The
//!    credit is what the other end lets this end send in requests. Without credit, or with a full queue, the caller
//!    waits, until its deadline.
//! 2. The caller writes the frame if no other thread writes and the stream takes the bytes without a wait
//!    (`peer/sink.rs`). Otherwise the writer thread does. The writer thread also sends a heartbeat when it has sent
//!    nothing for a while. It completes requests whose deadline is over. It gives the connection up when nothing has
//!    come for too long. The time in which a handler keeps the reader thread does not count.
//! 3. The reader thread reads frames. An answer completes its request. A request goes to the [`Handler`], with a
//!    [`Reply`].
//! 4. A [`Reply`] queues the answer, and gives the request's credit back in its header.
//!
//! Frames are *urgent* or *bulk*. Bulk is what is appended to files, what belongs to its order, and long answers. A
//! request that a caller waits for, and its short answer, pass the bulk. Otherwise a read would wait for the 4 MiB that
//! a writer has in the queue, and the answer to that writer for the 4 MiB that were read: each direction of the link
//! would be idle half of the time.
//!
//! **Invariants.** A request completes exactly once: with its answer, at its deadline, or with the end of the
//! connection. The other end never has more requests here than it was granted; one more ends the connection. A request
//! that is dropped unanswered is answered with an error.
//!
//! **Bounds.** Requests in flight, by their credit: at least 1 KiB each. Frames to go:
//! [`PeerOptions::queue_bytes_max`], and one frame. Answers have no credit: their bytes are asked for, and threads that
//! answer wait for room in the queue. A thread that has waited for [`PeerOptions::answer_wait_max`] loses the
//! connection: an end that takes its answers slowly must not keep the other end's threads.
//!
//! **Threads.** Two for each connection, from [`Env::executor`]. Handlers and completions run on the reader thread.
//! They must not wait: a [`Peer::call`] there fails with [`CallError::Busy`]. A node runs a short buffered write there
//! all the same, which a disk may hold up (`daemon/file_service.rs`). Until the write ends, this end reads nothing, and
//! does not count the other end as silent.
//!
//! **Failure.** Whatever is wrong with the stream or with a frame loses the connection: all open requests complete with
//! [`CallError::Lost`], and so does every later one. Nothing is tried again here. That a frame was written does not say
//! that it arrived.
//!
//! **Rejected:** credit for answers, too. Who calls knows how long the answer may be, and two kinds of credit can wait
//! for each other.
//! **Rejected:** handing each frame to the writer thread: a request then wakes six threads one after another, and its
//! caller waits for all.
//! **Rejected:** answers to heartbeats. Both ends send them, so silence tells each of them the same.

mod sink;
mod state;
mod stream;
mod threads;
mod traffic;

pub use stream::Stream;
pub(crate) use stream::TryWrite;
pub use traffic::Traffic;

use crate::error::CallError;
use crate::frame::{self, Side, flag};
use crate::message::{Call, Message, Operation};
use sink::Sink;
use situ_base::{Env, Event, JobHandle, lock};
use situ_storage::Error;
use state::{Open, Outgoing, State};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

/// The settings of a connection.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// The time without a frame to send after which a heartbeat goes out. 1 s.
    pub heartbeat: Duration,
    /// The time without a byte from the other end after which the connection is lost. 10 s.
    pub silence_max: Duration,
    /// The bytes in requests that the other end may have here. 8 MiB.
    pub window_bytes: u32,
    /// The longest payload that this end takes. 2 MiB.
    pub payload_bytes_max: u32,
    /// Frames that wait to be written, in bytes. 8 MiB.
    pub queue_bytes_max: usize,
    /// The maximum time for which a thread with an answer waits for room among these frames. Beyond it, the other end
    /// takes its answers too slowly, and the connection is lost. 30 s.
    pub answer_wait_max: Duration,
}

impl Default for PeerOptions {
    fn default() -> PeerOptions {
        PeerOptions {
            heartbeat: Duration::from_secs(1),
            silence_max: Duration::from_secs(10),
            window_bytes: 8 << 20,
            payload_bytes_max: 2 << 20,
            queue_bytes_max: 8 << 20,
            answer_wait_max: Duration::from_secs(30),
        }
    }
}

impl PeerOptions {
    /// With a window in which four of the longest requests fit: the other end hears of credit when a quarter of it is
    /// owed.
    fn checked(mut self) -> PeerOptions {
        self.payload_bytes_max = self.payload_bytes_max.clamp(frame::FIRST_PAYLOAD_BYTES, frame::PAYLOAD_BYTES_LIMIT);
        self.window_bytes = self.window_bytes.max(4 * frame::charge(self.payload_bytes_max as usize));
        self
    }
}

/// The handler of the other end's requests.
pub trait Handler: Send + Sync {
    /// Takes a request of the other end. Called on the reader thread: it does not wait. What takes time goes to another
    /// thread, with the reply. Requests about one writer come in the order in which the other end's threads sent them;
    /// others may have passed them.
    fn request(&self, peer: &Peer, operation: u16, payload: Vec<u8>, reply: Reply);

    /// Takes note that a whole frame has come, of any kind: a heartbeat, too. Called on the reader thread before the
    /// frame is looked at; it takes no time.
    fn heard(&self, peer: &Peer) {
        let _ = peer;
    }

    /// Takes note that the connection is lost. Called once, with no lock held.
    fn lost(&self, peer: &Peer, why: &CallError) {
        let _ = (peer, why);
    }
}

/// One end of a connection. Clones are the same end. It lives as long as its [`Connection`].
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

/// Owns a connection: dropped, it ends the connection and its threads.
pub struct Connection {
    peer: Peer,
    threads: Vec<Box<dyn JobHandle>>,
}

struct Shared {
    env: Env,
    side: Side,
    /// The name of the other end, for messages: "node 10.0.0.2:7070".
    name: String,
    options: PeerOptions,
    handler: Arc<dyn Handler>,
    traffic: Arc<Traffic>,
    hang_up: Box<dyn Fn() + Send + Sync>,
    binding: Vec<u8>,
    state: Mutex<State>,
    /// Taken before the state, never with the state held.
    sink: Mutex<Sink>,
    /// There is something for the writer thread.
    work: Arc<dyn Event>,
    /// There is credit, or room in the queue, or the connection is lost.
    room: Arc<dyn Event>,
    /// The time at which the last byte came, in nanoseconds of the clock.
    heard_ns: AtomicU64,
    /// Since when the reader thread is with a handler or a completion, in nanoseconds of the clock; 0 while it reads.
    held_up_ns: AtomicU64,
    reader: OnceLock<ThreadId>,
    writer: OnceLock<ThreadId>,
    /// Threads that have ended.
    ended: AtomicUsize,
}

type Answer = Result<Vec<u8>, CallError>;

impl Connection {
    /// Begins to read and write frames. Until [`open_up`](Peer::open_up), payloads are short and credit is small.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn begin(
        env: &Env,
        side: Side,
        stream: Stream,
        options: PeerOptions,
        handler: Arc<dyn Handler>,
        traffic: Arc<Traffic>,
    ) -> Result<Connection, CallError> {
        let Stream { name, reader, writer, try_write, hang_up, binding } = stream;
        let options = options.checked();
        let shared = Arc::new(Shared {
            env: env.clone(),
            side,
            name,
            options,
            handler,
            traffic,
            hang_up,
            binding,
            state: Mutex::new(State::new(env.clock.now())),
            sink: Mutex::new(Sink::new(writer, try_write)),
            work: env.executor.event(),
            room: env.executor.event(),
            heard_ns: AtomicU64::new(nanos(env.clock.now())),
            held_up_ns: AtomicU64::new(0),
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            ended: AtomicUsize::new(0),
        });
        let mut connection = Connection { peer: Peer { shared: Arc::clone(&shared) }, threads: Vec::new() };
        let refused = |e| CallError::Storage(Error::io("start thread", "node-read", e));
        let reading = Arc::clone(&shared);
        let spawn = |name, job| env.executor.spawn(name, job).map_err(refused);
        connection.threads.push(spawn("node-read", Box::new(move || threads::read(reading, reader)))?);
        connection.threads.push(spawn("node-write", Box::new(move || threads::write(shared)))?);
        Ok(connection)
    }

    /// Returns this end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns true if it is lost and its threads have ended: then it is dropped without a wait.
    pub fn has_ended(&self) -> bool {
        self.peer.lost().is_some() && self.peer.shared.ended.load(Ordering::Acquire) >= self.threads.len()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.peer.hang_up("this end has closed it");
        // A completion may drop the last owner on a thread of the connection itself.
        if self.peer.shared.is_own_thread() {
            return;
        }
        for thread in &self.threads {
            // A panic of a handler is caught where it happens; the connection is over anyway.
            let _ = thread.join();
        }
    }
}

impl Peer {
    /// Returns the name of the other end.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns true if both are the same end of the same connection.
    pub fn is(&self, other: &Peer) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the value that only the two ends of the TLS connection know; empty without TLS.
    pub fn binding(&self) -> &[u8] {
        &self.shared.binding
    }

    /// Returns the longest payload that both ends take.
    pub fn payload_bytes_max(&self) -> usize {
        lock(&self.shared.state).payload_bytes_max as usize
    }

    /// Returns the reason why the connection is lost, if it is.
    pub fn lost(&self) -> Option<CallError> {
        lock(&self.shared.state).lost.clone()
    }

    /// Returns the time for which a handler or a completion has kept the reader thread by now. Meanwhile nothing is
    /// read, whatever the other end sends.
    pub fn held_up_for(&self) -> Duration {
        match self.shared.held_up_ns.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => self.shared.now().saturating_sub(Duration::from_nanos(since)),
        }
    }

    /// Returns the time since the last byte came. The time in which this end does not read does not count.
    pub fn silent_for(&self) -> Duration {
        self.shared.silent_for()
    }

    /// Opens the connection when both ends know each other: payloads may be as long as both take, and the other end
    /// gets its credit. The node calls it before it answers [`Prove`](crate::message::Prove), the host before it sends
    /// that.
    pub fn open_up(&self, other_payload_bytes_max: u32) {
        let options = &self.shared.options;
        let mut state = lock(&self.shared.state);
        if std::mem::replace(&mut state.is_open, true) {
            return;
        }
        // The smaller of both: a request for more would have an answer that this end does not take.
        let both = other_payload_bytes_max.min(options.payload_bytes_max);
        state.payload_bytes_max = both.max(frame::FIRST_PAYLOAD_BYTES);
        state.owed += u64::from(options.window_bytes.saturating_sub(frame::FIRST_CREDIT_BYTES));
        drop(state);
        self.shared.work.notify();
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    /// The other end's, or there was no answer within `timeout`, or the connection is lost.
    pub fn call(&self, operation: u16, payload: Vec<u8>, timeout: Duration) -> Answer {
        if self.shared.is_own_thread() {
            return Err(busy("a thread that completes requests cannot wait for one"));
        }
        let event = self.shared.env.executor.event();
        let landed = Arc::new(Mutex::new(None));
        let (slot, done) = (Arc::clone(&landed), Arc::clone(&event));
        let began = self.shared.now();
        let id = self.start(operation, payload, Some(timeout), move |answer| {
            *lock(&slot) = Some(answer);
            done.notify();
        });
        loop {
            let seen = event.generation();
            if let Some(answer) = lock(&landed).take() {
                return answer;
            }
            let left = timeout.saturating_sub(self.shared.now().saturating_sub(began));
            if !event.wait(seen, Some(left)) {
                // The writer thread completes it at its deadline, but may be held up by the stream.
                id.iter().for_each(|id| self.shared.expire(*id, timeout));
            }
        }
    }

    /// Asks with a message, and waits for the answer.
    ///
    /// # Errors
    /// As [`call`](Peer::call); or the answer is not one to this request.
    pub fn ask<C: Call>(&self, request: &C, timeout: Duration) -> Result<C::Answer, CallError> {
        let answer = self.call(C::OPERATION as u16, request.encode(), timeout)?;
        C::Answer::decode(&answer).map_err(CallError::Storage)
    }

    /// Sends a request. `answer` runs once, on a thread of the connection or on this one, and must not wait. This call
    /// waits for credit, and not for the answer; on the reader thread it does not wait, and fails with
    /// [`CallError::Busy`] instead. A deadline that passes while the stream takes no bytes may be reported later, when
    /// the connection is given up.
    pub fn call_later(
        &self,
        operation: u16,
        payload: Vec<u8>,
        timeout: Option<Duration>,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) {
        self.start(operation, payload, timeout, answer);
    }

    /// Sends a message that has no answer. Waits as [`call_later`](Peer::call_later) does, `timeout` at most.
    ///
    /// # Errors
    /// The connection is lost, or there was no credit in time.
    pub fn notify(&self, operation: Operation, payload: Vec<u8>, timeout: Duration) -> Result<(), CallError> {
        let deadline = self.shared.now() + timeout;
        self.shared.admit(payload.len(), Some((deadline, timeout)), |state| {
            state.queue(Outgoing::new(operation as u16, flag::ONE_WAY, 0, 0, payload));
        })
    }

    /// Ends the connection: all open requests complete with an error.
    pub fn hang_up(&self, why: &str) {
        self.shared.lose(why);
    }

    /// The number of the request; `None` if it has completed with an error already.
    fn start(
        &self,
        operation: u16,
        payload: Vec<u8>,
        timeout: Option<Duration>,
        answer: impl FnOnce(Answer) + Send + 'static,
    ) -> Option<u64> {
        let deadline = timeout.map(|timeout| (self.shared.now() + timeout, timeout));
        let timeout_ms = timeout.map_or(0, |timeout| u32::try_from(timeout.as_millis()).unwrap_or(0).max(1));
        let mut id = 0;
        let mut open = Some(Open { deadline, answer: Box::new(answer) });
        let admitted = self.shared.admit(payload.len(), deadline, |state| {
            let Some(open) = open.take() else { return };
            id = state.register(open);
            state.queue(Outgoing::new(operation, 0, timeout_ms, id, payload));
        });
        match (admitted, open) {
            (Err(error), Some(open)) => {
                (open.answer)(Err(error));
                None
            }
            _ => Some(id),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.shared.name)
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.env.clock.now()
    }

    fn is_reader(&self) -> bool {
        self.reader.get() == Some(&std::thread::current().id())
    }

    fn is_own_thread(&self) -> bool {
        self.is_reader() || self.writer.get() == Some(&std::thread::current().id())
    }

    fn silent_for(&self) -> Duration {
        let until = match self.held_up_ns.load(Ordering::Acquire) {
            0 => self.now(),
            since => Duration::from_nanos(since),
        };
        until.saturating_sub(Duration::from_nanos(self.heard_ns.load(Ordering::Relaxed)))
    }

    fn lost_error(&self, why: &str) -> CallError {
        CallError::Lost { node: self.name.clone(), why: why.to_owned() }
    }

    /// Takes credit for a request of `payload_bytes` and enters it with `enter`, under one lock.
    fn admit(
        &self,
        payload_bytes: usize,
        deadline: Option<(Duration, Duration)>,
        enter: impl FnOnce(&mut State),
    ) -> Result<(), CallError> {
        let charge = u64::from(frame::charge(payload_bytes));
        loop {
            let seen = self.room.generation();
            let mut state = lock(&self.state);
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            if payload_bytes > state.payload_bytes_max as usize {
                return Err(too_long(payload_bytes, state.payload_bytes_max));
            }
            if state.credit >= charge && state.queued_bytes < self.options.queue_bytes_max {
                state.credit -= charge;
                enter(&mut state);
                // The writer thread completes what is not answered in time, and must wake early enough.
                let is_early = state.next_deadline().is_some_and(|next| next < state.writer_wakes_at);
                drop(state);
                self.send_now(is_early);
                return Ok(());
            }
            drop(state);
            self.wait_for_room(seen, deadline)?;
        }
    }

    fn wait_for_room(&self, seen: u64, deadline: Option<(Duration, Duration)>) -> Result<(), CallError> {
        if self.is_own_thread() {
            return Err(busy("the other end has too many requests, and this thread cannot wait"));
        }
        let left = deadline.map(|(deadline, _)| deadline.saturating_sub(self.now()));
        match (left, deadline) {
            (Some(Duration::ZERO), Some((_, after))) => Err(CallError::TimedOut { node: self.name.clone(), after }),
            _ => {
                self.room.wait(seen, left);
                Ok(())
            }
        }
    }

    /// Completes a request whose time is over, unless it is complete.
    fn expire(&self, id: u64, after: Duration) {
        let open = lock(&self.state).take_open(id);
        if let Some(open) = open {
            complete(open, Err(CallError::TimedOut { node: self.name.clone(), after }));
        }
    }

    /// The end of the connection. The first reason stays.
    fn lose(self: &Arc<Self>, why: &str) {
        let error = self.lost_error(why);
        let Some(open) = lock(&self.state).end(&error) else { return };
        (self.hang_up)();
        self.work.notify();
        self.room.notify();
        open.into_iter().for_each(|open| complete(open, Err(error.clone())));
        let peer = Peer { shared: Arc::clone(self) };
        // The handler's bug must not keep the connection from ending.
        let _ = catch_unwind(AssertUnwindSafe(|| self.handler.lost(&peer, &error)));
    }
}

/// Runs a completion; its panic ends no thread of the connection.
fn complete(open: Open, answer: Answer) {
    let _ = catch_unwind(AssertUnwindSafe(|| (open.answer)(answer)));
}

fn busy(why: &str) -> CallError {
    CallError::Busy(why.to_owned())
}

fn too_long(bytes: usize, most: u32) -> CallError {
    CallError::Storage(Error::Invalid(format!(
        "a message of {bytes} bytes is longer than the {most} bytes that the other end takes"
    )))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The right and the duty to answer a request, once. Dropped, it answers with an error.
#[must_use = "dropping it tells the caller that the request was given up"]
pub struct Reply {
    shared: Arc<Shared>,
    operation: u16,
    /// The request's number; 0 of a one-way frame, which has no waiter.
    request: u64,
    charge: u32,
    deadline: Option<Duration>,
    is_done: bool,
}

impl Reply {
    /// Returns true if the caller waits for no answer.
    pub fn is_one_way(&self) -> bool {
        self.request == 0
    }

    /// Returns true if the caller has given up waiting: work that has not begun need not begin.
    pub fn is_expired(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.shared.now() >= deadline)
    }

    /// Returns the end at which the request came.
    pub fn peer(&self) -> Peer {
        Peer { shared: Arc::clone(&self.shared) }
    }

    /// Sends the answer. Waits for room in the queue of frames, unless on the reader thread.
    pub fn answer(mut self, payload: Vec<u8>) {
        let most = self.peer().payload_bytes_max();
        match payload.len() <= most {
            true => self.send(flag::ANSWER, payload),
            false => self.send(flag::ANSWER | flag::ERROR, too_long(payload.len(), most as u32).encode()),
        }
    }

    /// Answers with a message.
    pub fn tell(self, message: &impl Message) {
        self.answer(message.encode());
    }

    /// Answers with an error.
    pub fn fail(mut self, error: &CallError) {
        self.send(flag::ANSWER | flag::ERROR, error.encode());
    }

    /// Answers with what came of it.
    pub fn finish<M: Message>(self, result: Result<M, CallError>) {
        match result {
            Ok(message) => self.tell(&message),
            Err(error) => self.fail(&error),
        }
    }

    fn send(&mut self, flags: u8, payload: Vec<u8>) {
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        let answer = (self.request != 0).then(|| Outgoing::new(self.operation, flags, 0, self.request, payload));
        self.shared.answer(self.charge, answer);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let why = "whatever was to answer the request has ended; try again";
        self.send(flag::ANSWER | flag::ERROR, CallError::Busy(why.to_owned()).encode());
    }
}

#[cfg(test)]
mod tests;
