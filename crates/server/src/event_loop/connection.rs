//! One connection: bytes in, commands cut from them, answers out.
//!
//! 1. Input of the socket is cut into lines; a line is parsed and run. A storage command runs when its data block
//!    has arrived; a large block is collected in a [buffer](body) of its own that grows with what really arrives, so
//!    that an announced gigabyte costs little until it is sent.
//! 2. A command that has to wait *parks* the connection: nothing is read or run until the reason is gone. Parking on
//!    unsent output is what bounds the memory of a client that sends and does not read. A connection that waits for a
//!    [read](crate::waiting::fetch) is parked, too. The answers before it are sent, and the rest of its commands stay
//!    in order behind it. A connection that has used up its [share](crate::commands::turn) of a turn is parked until
//!    the turn ends, and one whose client takes no answers now until it does.
//! 3. Between commands a connection holds no buffers.
//! 4. A client that takes no more answers makes the connection *unheard*: what it sent before is still read, to the end
//!    of its input, and run but for commands that only read; the answers are dropped.
//! 5. The first bytes tell a client of [another protocol](crate::protocol::foreign); nothing of it is run. If the
//!    server has [users](crate::protocol::auth), nothing else is run before the client has shown that it is one.
//!
//! **Invariants.** `input[start..]` is read and not yet run. While parked, nothing is read, so `input` holds at most
//! one read beyond an incomplete command, and an incomplete command is bounded by [`LINE_BYTES_MAX`] and [`Body`].
//! A connection holds a granted stripe only from the grant to its next turn, and while it waits for a read. `park`
//! gives the stripe back in all other cases. A client that takes no answers therefore never holds up other writers.

mod body;
mod sharing;

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use body::Body;

use rustix::io::Errno;
use rustix::net::getpeername;
use situ_transport::Link;

use crate::admin::metrics::{Command, Counter};
use crate::commands::classic::Unstorable;
use crate::commands::execute::{Executor, Lap, Outcome, Session};
use crate::commands::output::{Output, Progress};
use crate::engine::Engine;
use crate::event_loop::stream::Stream;
use crate::process::descriptors::Place;
use crate::protocol::auth::{self, User, Users};
use crate::protocol::foreign::{self, Protocol};
use crate::protocol::parse::{Request, find, parse};
use crate::protocol::policy::Policy;
use crate::protocol::rights::Rights;
use crate::protocol::tls::Tls;
use crate::waiting::feed::Taken;
use crate::waiting::fetch::{Arrival, Reads};
use crate::waiting::held::{Greeted, Held};
use crate::waiting::{StripeIndex, Wait};

/// One read from a socket.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// A line without an end is cut off here, unless it is a retrieval.
const SHORT_LINE_BYTES_MAX: usize = 2048;
/// A retrieval of many keys may be as long as this.
const LINE_BYTES_MAX: usize = 1 << 20;
/// A data block above this that has not arrived whole is collected apart.
const INLINE_DATA_BYTES_MAX: usize = 16 << 10;

/// A retrieval that has answered some of its keys. A line of a megabyte is not searched for its end, and its keys not
/// looked over, each time that it goes on. All places are counted from the beginning of the line.
struct Interrupted {
    end: usize,
    keys: Range<usize>,
    with_cas: bool,
    touch: Option<i32>,
}

impl Interrupted {
    fn request<'a>(&self, line: &'a [u8]) -> Request<'a> {
        let keys = line.get(self.keys.clone()).unwrap_or_default();
        Request::Get { keys, with_cas: self.with_cas, touch: self.touch }
    }
}

/// The outcome of the command at the beginning of the input.
enum Step {
    /// The command has run, and used this many bytes.
    Run(usize),
    /// The command is to be run again.
    Stopped(Outcome),
    /// It has not arrived whole.
    Incomplete,
    /// All that has arrived is used up.
    Taken,
}

/// See the module.
pub(crate) struct Connection<E: Engine> {
    pub(crate) stream: Stream,
    pub(crate) session: Session<E::Value>,
    input: Vec<u8>,
    start: usize,
    /// Bytes that must be there before the next command can run, if known.
    needed: usize,
    body: Option<Body>,
    /// The command at the beginning of the input, if it has run in part.
    interrupted: Option<Interrupted>,
    swallow: usize,
    /// A line has arrived.
    begun: bool,
    /// The user that the client has shown to be, if the server has users.
    user: Option<Arc<User>>,
    /// The reason why nothing is read or run for now.
    parked: Option<Wait>,
    /// The socket may have more.
    pub(crate) readable: bool,
    /// No more is read or run; close when everything is sent.
    pub(crate) closing: bool,
    /// The server is stopping: run what was read, then close.
    pub(crate) draining: bool,
    pub(crate) queued: bool,
    /// The client's address; `None` on a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    /// The client is on a Unix socket.
    local: bool,
    /// The outcome of a greeting, for the command that waited for it.
    greeted: Option<Greeted>,
    /// The place of the socket's descriptor.
    _place: Place,
    /// The time at which a byte was last received or sent.
    pub(crate) active: Instant,
}

/// The connection is of no more use.
pub(crate) struct Broken;

impl<E: Engine> Connection<E> {
    pub(crate) fn new(
        (socket, place): (OwnedFd, Place),
        (local, tls): (bool, Option<Tls>),
        (token, rights): (u64, Rights),
        now: Instant,
    ) -> Connection<E> {
        let output = Output::new();
        let descriptor = socket.as_raw_fd();
        let peer = getpeername(&socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        Connection {
            stream: Stream::new(socket, tls),
            _place: place,
            local,
            greeted: None,
            session: Session {
                token,
                output,
                granted: None,
                reads: Reads::new(),
                resume: 0,
                started: now,
                lap: Lap::NEW,
                last_batch: None,
                unheard: false,
                feed: None,
                watches: false,
                noted: None,
                descriptor,
                rights,
            },
            peer,
            input: Vec::new(),
            start: 0,
            needed: 0,
            body: None,
            interrupted: None,
            swallow: 0,
            begun: false,
            user: None,
            parked: None,
            readable: false,
            closing: false,
            draining: false,
            queued: false,
            active: now,
        }
    }

    /// Reads once and runs what can be run. `scratch` is the loop's, empty, with room for a read.
    pub(crate) fn serve(&mut self, executor: &mut Executor<E>, scratch: &mut Vec<u8>) -> Result<(), Broken> {
        let result = self.take_turn(executor, scratch);
        executor.end_lap(&mut self.session);
        let may_hold = self.parked == Some(Wait::Read);
        debug_assert!(may_hold || self.session.granted.is_none(), "a connection holds a stripe after its turn");
        result
    }

    fn take_turn(&mut self, executor: &mut Executor<E>, scratch: &mut Vec<u8>) -> Result<(), Broken> {
        if self.closing {
            // Its client has lost its rights while a command of it waited, which runs no more.
            executor.let_go(&mut self.session);
            return Ok(());
        }
        if self.parked.is_some() {
            return Ok(());
        }
        // A command that has waited for its reads began before it waited.
        if self.session.reads.is_empty() {
            self.session.started = Instant::now();
        } else {
            self.session.lap = Lap::ALONE;
        }
        if self.input.len() > self.start || self.body_is_whole() {
            // Left over from before parking.
            let input = std::mem::take(&mut self.input);
            let start = std::mem::take(&mut self.start);
            let used = start + self.run(executor, &input[start..])?;
            self.keep(input, used);
            if self.parked.is_some() || self.closing {
                return Ok(());
            }
        }
        if self.draining || !self.readable {
            return Ok(());
        }
        if let Some(body) = &mut self.body {
            let Some(room) = body.room(executor.engine.as_ref()) else {
                self.run(executor, &[])?;
                return Ok(());
            };
            let got = self.stream.read(room);
            body.came(got.unwrap_or(0));
            if self.received(got, executor)? && self.body_is_whole() {
                self.run(executor, &[])?;
            }
            return Ok(());
        }
        if self.input.is_empty() {
            scratch.clear();
            let got = self.stream.read_to(scratch);
            if self.received(got, executor)? {
                let used = self.run(executor, scratch)?;
                self.input.extend_from_slice(&scratch[used..]);
            }
        } else {
            if self.start > 0 {
                self.input.drain(..self.start);
                self.start = 0;
            }
            self.input.reserve(READ_BYTES.max(self.needed.saturating_sub(self.input.len())));
            let got = self.stream.read_to(&mut self.input);
            if self.received(got, executor)? {
                let input = std::mem::take(&mut self.input);
                let used = self.run(executor, &input)?;
                self.keep(input, used);
            }
        }
        Ok(())
    }

    /// Returns the outcome of a read: true if there are new bytes.
    fn received(&mut self, got: rustix::io::Result<usize>, executor: &Executor<E>) -> Result<bool, Broken> {
        match got {
            Ok(0) => Err(Broken),
            Ok(bytes) => {
                executor.counters.add(Counter::BytesRead, bytes as u64);
                self.stream.received_after(executor.moment.now.saturating_duration_since(self.active));
                self.active = executor.moment.now;
                Ok(true)
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Ok(false)
            }
            Err(Errno::INTR) => Ok(false),
            Err(_) => {
                if let Some(why) = self.stream.failure() {
                    executor.tls_failed(why, self.peer);
                }
                Err(Broken)
            }
        }
    }

    fn keep(&mut self, input: Vec<u8>, used: usize) {
        if used < input.len() && self.body.is_none() {
            self.input = input;
            self.start = used;
        } else if used < input.len() {
            self.input = input[used..].to_vec();
        }
    }

    fn body_is_whole(&self) -> bool {
        self.body.as_ref().is_some_and(Body::is_whole)
    }

    /// Runs the commands in `input`; the number of bytes used up.
    fn run(&mut self, executor: &mut Executor<E>, input: &[u8]) -> Result<usize, Broken> {
        let mut used = 0;
        loop {
            if self.session.watches {
                return Ok(input.len());
            }
            if self.session.granted.is_none()
                && self.session.reads.is_empty()
                && let Some(reason) = executor.check(&self.session)
            {
                return Ok(self.stop(executor, Outcome::Wait(reason), used, input.len()));
            }
            if self.body_is_whole() && !self.run_body(executor) {
                return Ok(used);
            }
            let rest = input.get(used..).unwrap_or_default();
            if self.swallow > 0 {
                let dropped = self.swallow.min(rest.len());
                self.swallow -= dropped;
                used += dropped;
                if self.swallow > 0 {
                    return Ok(used);
                }
                continue;
            }
            if rest.is_empty() || rest.len() < self.needed {
                return Ok(used);
            }
            self.needed = 0;
            match self.run_first(executor, rest) {
                Step::Run(length) => used += length,
                Step::Stopped(outcome) => return Ok(self.stop(executor, outcome, used, input.len())),
                Step::Incomplete => return Ok(used),
                Step::Taken => return Ok(input.len()),
            }
        }
    }

    /// Runs the command at the beginning of `input`, if all of it is there.
    fn run_first(&mut self, executor: &mut Executor<E>, input: &[u8]) -> Step {
        if !self.begun
            && let Some(protocol) = input.first().copied().and_then(foreign::of_first_byte)
        {
            return self.refuse_foreign(executor, protocol);
        }
        let interrupted = self.interrupted.take();
        let end = match &interrupted {
            Some(interrupted) => Some(interrupted.end),
            None => find(input, b'\n'),
        };
        let Some(end) = end else {
            if !line_too_long(input) {
                return Step::Incomplete;
            }
            executor.counters.add(Counter::ConnectionsBroken, 1);
            self.closing = true;
            return Step::Taken;
        };
        // A line that is only "\r\n" keeps its "\r", as in memcached.
        let line = input.get(..end).unwrap_or_default();
        let line = if end > 1 { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        if !std::mem::replace(&mut self.begun, true) && foreign::is_first_line(line) {
            return self.refuse_foreign(executor, Protocol::Http);
        }
        executor.quotas.use_commands(1);
        let request = match &interrupted {
            Some(interrupted) => interrupted.request(line),
            None => parse(line),
        };
        if request == Request::Foreign {
            return self.refuse_foreign(executor, Protocol::Http);
        }
        let policy = Arc::clone(&executor.policy);
        if self.user.is_none()
            && let Some(users) = &policy.users
        {
            return self.authenticate(executor, users, line, (input, end + 1));
        }
        let mut length = end + 1;
        let outcome = match &request {
            Request::Store(store) if store.length > executor.limits.value_bytes_max => {
                let outcome = executor.refuse(&mut self.session, store, Unstorable::TooLarge);
                if outcome == Outcome::Done {
                    self.swallow = store.length + 2;
                }
                outcome
            }
            Request::Store(store) => {
                let data_end = length + store.length + 2;
                let Some(block) = input.get(length..data_end) else {
                    if store.length <= INLINE_DATA_BYTES_MAX {
                        self.needed = data_end;
                        return Step::Incomplete;
                    }
                    let body = Body::begin(line, store.length + 2, &input[length..], executor.engine.as_ref());
                    let is_refused = body.refused.is_some();
                    self.body = Some(body);
                    if is_refused {
                        self.run_body(executor);
                    }
                    return Step::Taken;
                };
                length = data_end;
                run_store(executor, &mut self.session, &request, block)
            }
            Request::SharedMemory { .. } | Request::RemoteMemory { .. } => {
                let is_last = input.len() == length;
                return self.share(executor, &request, is_last).unwrap_or(Step::Run(length));
            }
            Request::Answer { swallow, .. } => {
                self.swallow = *swallow;
                executor.execute(&mut self.session, &request, &[])
            }
            _ => executor.execute(&mut self.session, &request, &[]),
        };
        if outcome == Outcome::Done {
            return Step::Run(length);
        }
        if let Request::Get { keys, with_cas, touch } = request
            && self.session.resume > 0
        {
            let keys_at = (keys.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
            let keys = keys_at..keys_at + keys.len();
            self.interrupted = Some(Interrupted { end, keys, with_cas, touch });
        }
        Step::Stopped(outcome)
    }

    /// Returns true if the connection reads its input now.
    pub(crate) fn reads(&self) -> bool {
        self.parked.is_none() && !self.closing && !self.draining
    }

    /// The client speaks another protocol: nothing of it is run.
    fn refuse_foreign(&mut self, executor: &Executor<E>, protocol: Protocol) -> Step {
        executor.counters.add(Counter::ConnectionsForeign, 1);
        executor.notices.refused(protocol, self.peer, executor.moment.now);
        self.closing = true;
        Step::Taken
    }

    /// Lets the client in if `line` is a `set` and the data behind it, at `data_at`, a user and the password.
    fn authenticate(
        &mut self,
        executor: &mut Executor<E>,
        users: &Users,
        line: &[u8],
        (input, data_at): (&[u8], usize),
    ) -> Step {
        let Some(data_end) = auth::announced_bytes(line).map(|bytes| data_at.saturating_add(bytes + 2)) else {
            executor.say(&mut self.session, Command::Other, "CLIENT_ERROR unauthenticated", false);
            return Step::Run(data_at);
        };
        let too_long = data_end - data_at > auth::DATA_BYTES_MAX;
        let (user, text) = match input.get(data_at..data_end) {
            _ if too_long => (None, auth::FAILURE),
            Some(block) => users.answer(block),
            None => {
                self.needed = data_end;
                return Step::Incomplete;
            }
        };
        executor.counters.add(Counter::Logins, 1);
        executor.counters.add(Counter::LoginFailures, u64::from(user.is_none()));
        executor.say(&mut self.session, Command::Other, text, false);
        self.session.rights = user.map_or(Rights::NONE, |user| user.rights);
        self.user = user.cloned();
        self.closing |= too_long;
        if too_long { Step::Taken } else { Step::Run(data_end) }
    }

    /// Runs the storage command whose body has arrived; false if the connection is parked now.
    fn run_body(&mut self, executor: &mut Executor<E>) -> bool {
        let Some(body) = self.body.take() else { return true };
        let request = parse(&body.line);
        if let (Some(missing), Request::Store(store)) = (body.refused, &request) {
            return match executor.refuse(&mut self.session, store, Unstorable::NoMemory) {
                Outcome::Done => {
                    self.swallow = missing;
                    true
                }
                outcome => {
                    self.stop(executor, outcome, 0, 0);
                    self.body = Some(body);
                    false
                }
            };
        }
        match run_store(executor, &mut self.session, &request, body.bytes()) {
            Outcome::Done => true,
            outcome => {
                self.stop(executor, outcome, 0, 0);
                self.body = Some(body);
                false
            }
        }
    }

    fn stop(&mut self, executor: &mut Executor<E>, outcome: Outcome, used: usize, all: usize) -> usize {
        match outcome {
            Outcome::Done => used,
            Outcome::Wait(reason) => {
                self.park(executor, reason);
                self.queue(executor, reason);
                used
            }
            Outcome::Quit => {
                self.closing = true;
                all
            }
        }
    }

    /// Enters the connection where those wait that have the same reason.
    fn queue(&self, executor: &mut Executor<E>, reason: Wait) {
        match reason {
            Wait::ReadSlot => executor.read_side.fetches.wait(self.session.token),
            Wait::Turn => executor.counters.add(Counter::ConnectionYields, 1),
            Wait::Admission => executor.batcher.hold(self.session.token),
            // An owner, the loop's mailbox, the client or the greeting ends the others.
            Wait::Stripe(_) | Wait::Read | Wait::Output | Wait::Feed | Wait::Answers | Wait::Greeting => {}
        }
    }

    /// Parks the connection; the only place that does. Unless the command waits for its reads, a granted stripe goes to
    /// the next connection that waits for it, and the command asks again when it runs again. Items that were read are
    /// kept for the next turn only: a client or another writer decides how long everything else takes.
    fn park(&mut self, executor: &Executor<E>, reason: Wait) {
        if reason != Wait::Read {
            executor.let_go(&mut self.session);
        }
        if !matches!(reason, Wait::Read | Wait::Turn) {
            self.session.reads.give_up();
        }
        self.parked = Some(reason);
    }

    /// A read has ended. True if the command that waited for it can run; the caller makes the connection ready.
    pub(crate) fn arrive(&mut self, arrival: Arrival<E::Value>) -> bool {
        let can_run = self.session.reads.arrive(arrival.number, arrival.fetched);
        if can_run {
            assert!(
                self.parked == Some(Wait::Read),
                "a command waits for a read while its connection is {:?}",
                self.parked
            );
            self.parked = None;
        }
        can_run
    }

    /// Lets the connection try again to read; false if it does not wait for that.
    pub(crate) fn admit_read(&mut self) -> bool {
        let waits = self.parked == Some(Wait::ReadSlot);
        if waits {
            self.parked = None;
        }
        waits
    }

    /// Takes `stripe` for the command that waits for it; the caller makes the connection ready. False if no command
    /// waits.
    pub(crate) fn grant(&mut self, stripe: StripeIndex) -> bool {
        let waits = self.parked == Some(Wait::Stripe(stripe));
        if waits {
            self.parked = None;
            self.session.granted = Some(stripe);
        }
        waits
    }

    /// Takes the remote memory that was made and not used.
    pub(crate) fn take_greeted(&mut self) -> Option<(Box<dyn Link>, String, Held)> {
        self.greeted.take().and_then(Result::ok)
    }

    /// Gives the command that waits for a greeting its outcome. The caller makes the connection ready.
    pub(crate) fn greet(&mut self, outcome: Greeted) {
        assert!(self.parked == Some(Wait::Greeting), "a greeting ends while its connection is {:?}", self.parked);
        self.parked = None;
        self.greeted = Some(outcome);
    }

    /// Lets the connection go on if the engine held it back; false if it did not.
    pub(crate) fn admit(&mut self) -> bool {
        let waits = self.parked == Some(Wait::Admission);
        if waits {
            self.parked = None;
        }
        waits
    }

    /// Returns true if nothing is read or run for now.
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Appends what the feed has, if most of the output has been sent. True if there was something.
    fn take_feed(&mut self, executor: &Executor<E>) -> bool {
        let Some(feed) = &self.session.feed else { return false };
        let unheard = self.session.unheard;
        if !unheard && !executor.has_drained(&self.session.output) {
            return false;
        }
        let Taken { text, skipped, has_ended, is_cut } = feed.0.take();
        let is_there = !text.is_empty() || skipped > 0;
        if !unheard {
            self.session.output.append(|out| {
                out.extend_from_slice(&text);
                if skipped > 0 {
                    out.extend_from_slice(format!("skipped={skipped}\n").as_bytes());
                }
            });
        }
        if has_ended || unheard {
            self.session.feed = None;
            self.closing |= self.session.watches || is_cut;
            if self.parked == Some(Wait::Feed) {
                self.parked = None;
            }
        }
        is_there
    }

    /// Returns true if the connection may go on under another policy: its client is still what it has shown to be.
    pub(crate) fn is_under(&self, policy: &Policy, before: &Policy) -> bool {
        match (&policy.users, &before.users, &self.user) {
            (None, None, _) | (Some(_), Some(_), None) => true,
            (Some(users), Some(_), Some(user)) => users.has(user),
            (Some(_), None, _) | (None, Some(_), _) => false,
        }
    }

    /// The server is stopping, or the client has lost its rights: it gets nothing more of a feed.
    pub(crate) fn cut_feed(&mut self) {
        if self.session.feed.take().is_some() {
            self.session.output.discard();
            self.closing = true;
            if self.parked == Some(Wait::Feed) {
                self.parked = None;
            }
        }
    }

    /// Sends all output that can be sent, that of the feed as well, and unparks the connection if that allows it.
    pub(crate) fn send(&mut self, executor: &Executor<E>) -> Progress {
        self.take_feed(executor);
        let progress = self.send_output(executor);
        match progress {
            // The text that was too much before.
            Progress::Empty if self.take_feed(executor) => self.send_output(executor),
            _ => progress,
        }
    }

    fn send_output(&mut self, executor: &Executor<E>) -> Progress {
        let mut sent_bytes = 0;
        self.stream.flush();
        let progress = match self.session.unheard {
            true => self.session.output.discard(),
            false => {
                self.session.output.send(|slices| self.stream.send(slices), &mut sent_bytes).unwrap_or_else(|_| {
                    self.session.unheard = true;
                    // The end of the input may have been announced before; if it was not, it is soon.
                    self.readable = true;
                    self.session.output.discard()
                })
            }
        };
        executor.counters.add(Counter::BytesWritten, sent_bytes);
        if sent_bytes > 0 {
            self.active = executor.moment.now;
        }
        let output = &self.session.output;
        let blocked = progress == Progress::Blocked;
        match self.parked {
            None | Some(Wait::Turn) if blocked => self.park(executor, Wait::Output),
            Some(Wait::Output) if blocked => {}
            Some(Wait::Turn) => self.parked = None,
            Some(Wait::Output) if executor.has_drained(output) => self.parked = None,
            Some(Wait::Answers) if executor.has_been_answered(output) => self.parked = None,
            _ => {}
        }
        if self.input.is_empty() && self.parked.is_none() {
            self.input = Vec::new();
            self.session.output.shrink();
        }
        progress
    }

    /// Returns true if there is something to run or read now.
    pub(crate) fn has_work(&self) -> bool {
        self.parked.is_none() && !self.closing && (self.readable && !self.draining)
    }

    /// Returns true if it neither sends nor takes anything, for no reason on our side.
    pub(crate) fn is_silent(&self) -> bool {
        let waits_for_client = match self.parked {
            None => !self.session.watches || !self.session.output.is_empty(),
            Some(Wait::Output) => true,
            Some(Wait::Feed) => !self.session.output.is_empty(),
            Some(_) => false,
        };
        self.session.output.awaiting() == 0 && waits_for_client
    }

    /// Returns true if the connection has ended and everything is sent. One that is queued has commands left to run.
    pub(crate) fn is_finished(&mut self) -> bool {
        let drained = self.draining && self.parked.is_none() && !self.queued;
        (self.closing || drained) && self.session.output.is_empty() && self.stream.is_flushed()
    }
}

fn run_store<E: Engine>(
    executor: &mut Executor<E>,
    session: &mut Session<E::Value>,
    request: &Request<'_>,
    block: &[u8],
) -> Outcome {
    match (block.strip_suffix(b"\r\n"), request) {
        (Some(data), _) => executor.execute(session, request, data),
        (None, Request::Store(store)) => {
            let noreply = store.noreply && store.meta.is_none();
            let request = Request::Answer { text: "CLIENT_ERROR bad data chunk", noreply, swallow: 0 };
            executor.execute(session, &request, &[])
        }
        (None, _) => executor.execute(session, request, &[]),
    }
}

/// Returns true if bytes without an end of line cannot become a line that is worth waiting for.
fn line_too_long(bytes: &[u8]) -> bool {
    if bytes.len() <= SHORT_LINE_BYTES_MAX {
        return false;
    }
    let spaces = bytes.iter().take_while(|byte| **byte == b' ').count();
    let text = &bytes[spaces..];
    let retrieval = text.starts_with(b"get ") || text.starts_with(b"gets ");
    spaces > 100 || !retrieval || bytes.len() > LINE_BYTES_MAX
}
