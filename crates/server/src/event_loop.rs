//! One event loop: a thread, an epoll instance and the connections given to it.
//!
//! A turn of the loop:
//!
//! 1. Collect reads that have ended, where the engine lets the loop read. Take the messages of the inbox: new
//!    connections, finished writes and reads, granted stripes.
//! 2. Serve every connection that has something to do: one read each, and its [share](crate::commands::turn) of
//!    commands, so that none starves another. One with more to run goes to the end of the queue.
//! 3. Hand the writes that gathered to the engine in one batch; buffered ones complete within the call, unless the
//!    engine holds them back. Hand the reads to the disk.
//! 4. Send, once per connection that has something to send.
//! 5. Sleep in epoll if nothing is left to do.
//!
//! Sockets are registered once, edge-triggered, for both directions; `readable` remembers that a socket may have more,
//! and a parked connection is simply not read. The first loop also owns the listeners and deals new connections out
//! in turn.
//!
//! A connection over TCP may speak [TLS](crate::protocol::tls). One whose handshake takes too long is closed.
//!
//! A connection in [shared or remote memory](stream) is looked at in each turn while its client is busy, and up to
//! 50 µs more. So a loop with such clients does not sleep between their requests. Then the client's bell wakes the
//! loop, or an event of the RDMA device.
//!
//! **Failure.** Any error on a socket ends that connection only, and not before everything that its client sent is
//! read and run: a client may say `noreply` and close at once. Out of descriptors, one kept spare serves to
//! take connections, say so and close them; without it, the listeners rest for a moment.

mod connection;
pub(crate) mod loops;
mod stream;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, send, sockopt};
use situ_transport::Turns;

use crate::admin::metrics::Counter;
use crate::admin::watch::Closed;
use crate::commands::execute::Executor;
use crate::commands::output::Progress;
use crate::commands::turn::Share;
use crate::engine::Engine;
use crate::event_loop::connection::{Connection, READ_BYTES};
use crate::event_loop::loops::Loops;
use crate::process::descriptors::Place;
use crate::protocol::interests;
use crate::protocol::policy::Policy;
use crate::protocol::rights::Rights;
use crate::protocol::tls::TlsConfig;
use crate::waiting::inbox::{Inbox, Message};

/// Epoll data of the inbox's eventfd; connection tokens are generations and slots, which never reach this.
const WAKE: u64 = u64::MAX;
/// Epoll data of the reads that the loop gets on with itself.
const READS: u64 = u64::MAX - 1;
/// Epoll data of listener `i` is `LISTENER + i`.
const LISTENER: u64 = u64::MAX - 1024;
const EVENTS_MAX: usize = 256;
/// Connections taken per turn, so that a storm of them does not hold up the others.
const ACCEPTS_MAX: usize = 64;
/// The interval at which the loop checks its own reads again: the system may lack the memory to take one, and takes it
/// later.
const READS_AGAIN: Duration = Duration::from_millis(100);
/// Rest of the listeners when descriptors have run out.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Looks at the rings between two looks at everything else.
const LOOKS: u32 = 32;
/// The longest handshake of TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// The interval of the search for idle connections.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A listening socket.
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// A Unix socket.
    pub(crate) local: bool,
}

/// See the module.
pub(crate) struct EventLoop<E: Engine> {
    loops: Arc<Loops>,
    executor: Executor<E>,
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    listeners: Vec<Listener>,
    /// Given up for a moment when descriptors run out. `None` without listeners, or while none is to be had.
    spare: Option<OwnedFd>,
    next_loop: usize,
    accept_again: Option<Instant>,
    connections: Vec<Option<Box<Connection<E>>>>,
    generations: Vec<u32>,
    free: Vec<usize>,
    open: usize,
    ready: VecDeque<u64>,
    /// Connections to send to at the end of the turn; may repeat.
    dirty: Vec<u64>,
    /// Connections in memory whose rings the loop looks at.
    watched: Vec<u64>,
    turns: Turns,
    scratch: Vec<u8>,
    stopping: bool,
    /// The time of the last search for idle connections.
    swept: Instant,
    /// Connections that began with TLS a short time ago, and the ends of their handshakes at the latest.
    handshakes: VecDeque<(Instant, u64)>,
}

impl<E: Engine> EventLoop<E> {
    pub(crate) fn new(
        loops: Arc<Loops>,
        executor: Executor<E>,
        listeners: Vec<Listener>,
    ) -> std::io::Result<EventLoop<E>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inbox = Arc::clone(&executor.inbox);
        epoll::add(&epoll, inbox.wake_fd(), EventData::new_u64(WAKE), EventFlags::IN)?;
        if let Some(reader) = &executor.read_side.reader {
            // Edge-triggered: the descriptor is never read.
            epoll::add(&epoll, reader.descriptor(), EventData::new_u64(READS), EventFlags::IN | EventFlags::ET)?;
        }
        let spare = if listeners.is_empty() { None } else { Some(spare_descriptor()?) };
        let event_loop = EventLoop {
            loops,
            executor,
            epoll,
            inbox,
            listeners,
            spare,
            next_loop: 0,
            accept_again: None,
            connections: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            open: 0,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            watched: Vec::new(),
            turns: Turns::default(),
            scratch: Vec::with_capacity(READ_BYTES),
            stopping: false,
            swept: Instant::now(),
            handshakes: VecDeque::new(),
        };
        event_loop.listen()?;
        Ok(event_loop)
    }

    fn listen(&self) -> std::io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            epoll::add(&self.epoll, &listener.socket, EventData::new_u64(LISTENER + index as u64), EventFlags::IN)?;
        }
        Ok(())
    }

    /// Runs until a message to stop has come and the work is done, or until the deadline for stopping.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut messages = Vec::new();
        loop {
            self.refresh_time();
            self.executor.read_side.advance();
            self.take_messages(&mut messages);
            self.admit_reads();
            self.executor.quotas.share =
                Share::of(self.ready.len(), self.loops.places.taken(), self.executor.limits.output_bytes_option);
            for _ in 0..self.ready.len() {
                let Some(token) = self.ready.pop_front() else { break };
                self.serve(token);
            }
            self.executor.submit();
            let has_reads_left = self.executor.read_side.advance();
            self.take_messages(&mut messages);
            for token in std::mem::take(&mut self.dirty) {
                self.send(token);
            }
            if self.stopping && (self.open == 0 || self.loops.stop_deadline_passed()) {
                break;
            }
            let nothing_to_run =
                self.ready.is_empty() && !has_reads_left && !self.executor.read_side.fetches.can_admit();
            let idle = nothing_to_run && !self.look_at_rings() && self.inbox.may_sleep();
            let timeout = if idle { self.sleep_time() } else { Some(Duration::ZERO) };
            let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                // Cannot happen with a valid epoll descriptor; resting keeps it from becoming a busy loop.
                Err(_) => std::thread::sleep(ACCEPT_REST),
            }
            if idle {
                self.inbox.awake();
            }
            self.refresh_time();
            for event in events.drain(..) {
                self.handle(event.data.u64(), event.flags);
            }
            self.periodic();
        }
        self.close_all();
    }

    fn refresh_time(&mut self) {
        self.executor.moment.now = Instant::now();
        let clock = &self.loops.clock;
        self.executor.moment.rule = self.executor.durable.rule(clock.seconds());
        self.executor.moment.unix_ahead = clock.difference_seconds();
    }

    fn sleep_time(&self) -> Option<Duration> {
        if self.stopping || self.accept_again.is_some() {
            return Some(Duration::from_millis(20));
        }
        if self.executor.read_side.is_busy() {
            return Some(READS_AGAIN);
        }
        // Without a limit for idleness, and without handshakes, an idle loop sleeps for ever.
        let sweeps = self.executor.policy.idle_timeout.is_some() && self.open > 0;
        (sweeps || !self.handshakes.is_empty()).then_some(SWEEP_EVERY)
    }

    fn periodic(&mut self) {
        if self.accept_again.is_some_and(|again| Instant::now() >= again) {
            self.accept_again = None;
            if !self.stopping && self.listen().is_err() {
                self.rest_listeners();
            }
        }
        self.end_slow_handshakes();
        if let Some(limit) = self.executor.policy.idle_timeout
            && self.executor.moment.now.saturating_duration_since(self.swept) >= SWEEP_EVERY
        {
            self.swept = self.executor.moment.now;
            self.close_idle(limit);
        }
    }

    /// Closes connections whose handshake of TLS takes too long. All have the same time, so the first one is due first.
    fn end_slow_handshakes(&mut self) {
        let now = self.executor.moment.now;
        while let Some((end, token)) = self.handshakes.front().copied() {
            let under_way = self.connection(token).filter(|connection| connection.stream.is_handshaking());
            let peer = under_way.map(|connection| connection.peer);
            if peer.is_some() && end > now {
                return;
            }
            self.handshakes.pop_front();
            if let Some(peer) = peer {
                let why = format!("its handshake took longer than {} s", HANDSHAKE_MAX.as_secs());
                self.executor.tls_failed(&why, peer);
                self.close(token, Closed::Idle);
            }
        }
    }

    /// Goes on under another policy. Clients that are not its users any more are closed.
    fn obey(&mut self, policy: Arc<Policy>) {
        let before = std::mem::replace(&mut self.executor.policy, Arc::clone(&policy));
        let all = self.connections.iter_mut().flatten();
        let gone = all.filter(|connection| !connection.is_under(&policy, &before)).map(|connection| {
            connection.cut_feed();
            connection.closing = true;
            connection.readable = false;
            connection.session.token
        });
        self.dirty.extend(gone);
    }

    fn close_idle(&mut self, limit: Duration) {
        let now = self.executor.moment.now;
        // Bytes that have arrived while the loop did not run are still to be read: their connection is queued, and not
        // idle.
        let is_idle = |connection: &Connection<E>| {
            now.saturating_duration_since(connection.active) > limit && connection.is_silent() && !connection.queued
        };
        let connections = self.connections.iter().flatten();
        let idle: Vec<u64> =
            connections.filter(|connection| is_idle(connection)).map(|connection| connection.session.token).collect();
        for token in idle {
            // The system reports a socket as writable again when a good part of its buffer is free, which takes a slow
            // reader a while. A send that fits shows that the client reads.
            self.send(token);
            if self.connection(token).is_some_and(|connection| is_idle(connection)) {
                self.executor.counters.add(Counter::ConnectionsIdleClosed, 1);
                self.close(token, Closed::Idle);
            }
        }
    }

    fn handle(&mut self, data: u64, flags: EventFlags) {
        match data {
            // Each turn looks for messages, and for reads that have ended.
            WAKE | READS => {}
            LISTENER.. => self.accept((data - LISTENER) as usize),
            token => {
                let Some(connection) = self.connection(token) else { return };
                // A peer that hung up may have sent commands before. Reading finds them, and then the end; where the
                // connection is parked, `readable` remembers that there is something to find.
                let hung_up = flags.intersects(EventFlags::ERR | EventFlags::HUP);
                if hung_up || flags.intersects(EventFlags::IN | EventFlags::RDHUP) {
                    // A bell may be about room for answers.
                    let is_shared = connection.stream.take_bells();
                    connection.readable = true;
                    if connection.has_work() {
                        self.make_ready(token);
                    }
                    if is_shared {
                        self.dirty.push(token);
                    }
                }
                // A send finds that the client no longer listens, and unparks the work that waits for the client to
                // read.
                if hung_up || flags.contains(EventFlags::OUT) {
                    self.dirty.push(token);
                }
            }
        }
    }

    fn connection(&mut self, token: u64) -> Option<&mut Connection<E>> {
        let slot = (token & 0xffff_ffff) as usize;
        let generation = (token >> 32) as u32;
        if self.generations.get(slot) != Some(&generation) {
            return None;
        }
        self.connections.get_mut(slot)?.as_deref_mut()
    }

    fn make_ready(&mut self, token: u64) {
        if let Some(connection) = self.connection(token)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.ready.push_back(token);
        }
    }

    fn take_messages(&mut self, messages: &mut Vec<Message>) {
        self.inbox.take(messages);
        let (counters, tracer) = (Arc::clone(&self.executor.counters), Arc::clone(&self.executor.tracer));
        for message in messages.drain(..) {
            match message {
                Message::Accepted { socket, local, place } => self.adopt(socket, local, place),
                Message::Taken { batch } => self.taken(batch),
                Message::Room => {
                    self.executor.batcher.may_enter();
                    self.release_held();
                }
                Message::Completed { batch, connections, result } => {
                    // Also of one that the engine dropped while it waited.
                    self.taken(batch);
                    let now = Instant::now();
                    for token in connections {
                        if let Some(connection) = self.connection(token) {
                            connection.session.output.resolve(batch, &result, (&counters, &tracer), now);
                            self.dirty.push(token);
                        }
                    }
                }
                Message::Arrived => {
                    for arrival in self.executor.read_side.fetches.arrivals() {
                        let token = arrival.connection;
                        // A connection that is gone needs no answer.
                        if self.connection(token).is_some_and(|connection| connection.arrive(arrival)) {
                            self.make_ready(token);
                        }
                    }
                }
                Message::Granted { connection: token, stripe } => {
                    if self.connection(token).is_some_and(|connection| connection.grant(stripe)) {
                        self.make_ready(token);
                    } else {
                        self.executor.stripes.release(stripe);
                    }
                }
                Message::Greeted { connection: token, outcome } => {
                    if let Some(connection) = self.connection(token) {
                        connection.greet(outcome);
                        self.make_ready(token);
                    } else if let Ok((rings, _, held)) = outcome {
                        self.executor.greeter.end(rings, held);
                    }
                }
                Message::Fed { connection } => self.dirty.push(connection),
                Message::Policy(policy) => self.obey(policy),
                Message::Stop => self.stop(),
            }
        }
    }

    /// Reads have ended: connections that waited for that may begin theirs.
    fn admit_reads(&mut self) {
        if !self.executor.read_side.fetches.can_admit() {
            return;
        }
        for token in self.executor.read_side.fetches.admit() {
            if self.connection(token).is_some_and(|connection| connection.admit_read()) {
                self.make_ready(token);
            }
        }
    }

    /// Handles a batch that the engine has taken: if it is the one that waits, others may go on.
    fn taken(&mut self, batch: u64) {
        if self.executor.batcher.taken(batch) {
            self.release_held();
        }
    }

    /// Resumes the connections that were held back, because the next batch may go.
    fn release_held(&mut self) {
        for token in self.executor.go_on() {
            if let Some(connection) = self.connection(token)
                && connection.admit()
            {
                self.make_ready(token);
            }
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.listeners.clear();
        let tokens: Vec<u64> = self.connections.iter().flatten().map(|connection| connection.session.token).collect();
        for token in tokens {
            if let Some(connection) = self.connection(token) {
                connection.draining = true;
                connection.cut_feed();
                self.make_ready(token);
            }
        }
    }

    fn serve(&mut self, token: u64) {
        let slot = (token & 0xffff_ffff) as usize;
        // The connection is taken out while it runs, as it needs the executor, too.
        if self.connection(token).is_none() {
            return;
        }
        let Some(mut connection) = self.connections.get_mut(slot).and_then(Option::take) else { return };
        connection.queued = false;
        self.executor.quotas.begin();
        let result = connection.serve(&mut self.executor, &mut self.scratch);
        self.connections[slot] = Some(connection);
        match result {
            Ok(()) => self.dirty.push(token),
            Err(_) => self.hang_up(token),
        }
    }

    /// Handles a peer that has stopped sending: answers that are under way are still sent, if the peer takes them.
    fn hang_up(&mut self, token: u64) {
        if let Some(connection) = self.connection(token) {
            connection.closing = true;
            connection.readable = false;
            self.dirty.push(token);
        }
    }

    fn send(&mut self, token: u64) {
        let slot = (token & 0xffff_ffff) as usize;
        if self.connection(token).is_none() {
            return;
        }
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else { return };
        if let Some(descriptor) = connection.stream.new_descriptor() {
            let flags = EventFlags::IN | EventFlags::ET;
            if epoll::add(&self.epoll, descriptor, EventData::new_u64(token), flags).is_err() {
                connection.stream.give_up();
            }
        }
        let was_parked = connection.is_parked();
        let progress = connection.send(&self.executor);
        if connection.stream.watch() {
            self.watched.push(token);
        }
        // Commands that were read before the connection was parked are still to be run, also while the server stops.
        let unparked = was_parked && !connection.is_parked();
        match progress {
            Progress::Empty if connection.is_finished() && !unparked => self.close(token, Closed::Normal),
            _ => {
                if connection.has_work() || unparked {
                    self.make_ready(token);
                }
            }
        }
    }

    /// Looks at the rings of connections in memory. Connections that were silent for a moment are left to their
    /// wake-ups. Returns true if there is something to do, or the loop is to look again soon.
    fn look_at_rings(&mut self) -> bool {
        if self.watched.is_empty() {
            return false;
        }
        let (mut is_busy, mut watched) = (false, std::mem::take(&mut self.watched));
        for _ in 0..self.turns.looks(LOOKS) {
            let now = self.executor.moment.now;
            watched.retain(|token| {
                let Some(connection) = self.connection(*token) else { return false };
                let reads = connection.reads();
                let is_silent = connection.stream.is_silent(now.saturating_duration_since(connection.active));
                let has_work = connection.stream.is_ready(reads) || (is_silent && !connection.stream.may_sleep(reads));
                if has_work {
                    is_busy = true;
                    connection.readable = true;
                    if connection.has_work() {
                        self.make_ready(*token);
                    }
                    self.dirty.push(*token);
                }
                has_work || !is_silent
            });
            if is_busy || watched.is_empty() {
                break;
            }
            std::hint::spin_loop();
        }
        if !is_busy && !watched.is_empty() {
            self.turns.pass(Instant::now());
            is_busy = true;
        }
        self.watched = watched;
        is_busy
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = self.listeners.get(index) else { return };
            let local = listener.local;
            match accept_with(&listener.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.deal(socket, local),
                Err(Errno::AGAIN) => return,
                Err(Errno::MFILE | Errno::NFILE) => {
                    if !self.refuse_with_spare(index) {
                        self.rest_listeners();
                        return;
                    }
                }
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    self.rest_listeners();
                    return;
                }
                // The connection was gone before it was taken.
                Err(_) => {}
            }
        }
    }

    /// Takes a connection in place of the spare descriptor, and refuses it; false if that does not work now.
    fn refuse_with_spare(&mut self, index: usize) -> bool {
        if self.spare.take().is_none() {
            self.spare = spare_descriptor().ok();
            return false;
        }
        let Some(listener) = self.listeners.get(index) else { return false };
        let taken = accept_with(&listener.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        if let Ok(socket) = &taken {
            self.refuse(socket, listener.local);
        }
        let refused = taken.map(drop).is_ok();
        self.spare = spare_descriptor().ok();
        refused && self.spare.is_some()
    }

    fn refuse(&self, socket: &OwnedFd, local: bool) {
        self.executor.counters.add(Counter::ConnectionsRejected, 1);
        if !local && self.executor.policy.tls.is_some() {
            return;
        }
        // As memcached says it; whether the client still listens does not matter.
        let _ = send(socket, b"ERROR Too many open connections\r\n", rustix::net::SendFlags::NOSIGNAL);
    }

    fn rest_listeners(&mut self) {
        for listener in &self.listeners {
            // One that is not registered now is what is wanted.
            let _ = epoll::delete(&self.epoll, &listener.socket);
        }
        self.accept_again = Some(Instant::now() + ACCEPT_REST);
    }

    fn deal(&mut self, socket: OwnedFd, local: bool) {
        let Some(place) = self.loops.places.take() else {
            self.refuse(&socket, local);
            return;
        };
        let inboxes = &self.loops.inboxes;
        self.next_loop = (self.next_loop + 1) % inboxes.len();
        if self.next_loop == self.executor.loop_index {
            self.adopt(socket, local, place);
        } else {
            inboxes[self.next_loop].post(Message::Accepted { socket, local, place });
        }
    }

    fn adopt(&mut self, socket: OwnedFd, local: bool, place: Place) {
        self.executor.counters.add(Counter::ConnectionsOpened, 1);
        if self.stopping {
            self.executor.counters.add(Counter::ConnectionsClosed, 1);
            return;
        }
        let policy = &self.executor.policy;
        let rights = if policy.users.is_none() { Rights::READ_AND_WRITE } else { Rights::NONE };
        let tls = policy.tls.as_ref().filter(|_| !local).map(TlsConfig::begin);
        let Ok(tls) = tls.transpose() else {
            // The system has no random numbers, and the client cannot be answered.
            self.executor.counters.add(Counter::ConnectionsClosed, 1);
            return;
        };
        if !local {
            // Only costs latency where it fails.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            let _ = sockopt::set_socket_keepalive(&socket, true);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.generations.push(0);
            self.connections.len() - 1
        });
        let token = u64::from(self.generations[slot]) << 32 | slot as u64;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let added = epoll::add(&self.epoll, &socket, EventData::new_u64(token), flags);
        if tls.is_some() {
            self.executor.counters.add(Counter::ConnectionsTls, 1);
            self.handshakes.push_back((self.executor.moment.now + HANDSHAKE_MAX, token));
        }
        let connection = Connection::new((socket, place), (local, tls), (token, rights), self.executor.moment.now);
        self.tell(&connection, None);
        self.connections[slot] = Some(Box::new(connection));
        self.open += 1;
        if added.is_err() {
            self.close(token, Closed::Normal);
        }
    }

    /// Tells watchers that a connection has begun, or has ended for a reason.
    fn tell(&self, connection: &Connection<E>, closed: Option<Closed>) {
        let watchers = &self.executor.stats.watchers;
        if watchers.want(interests::CONNECTIONS) {
            watchers.connection(connection.peer, closed, connection.session.descriptor);
        }
    }

    fn close(&mut self, token: u64, why: Closed) {
        let slot = (token & 0xffff_ffff) as usize;
        if self.connection(token).is_none() {
            return;
        }
        if let Some(mut connection) = self.connections.get_mut(slot).and_then(Option::take) {
            if let Some(stripe) = connection.session.granted {
                self.executor.stripes.release(stripe);
            }
            self.tell(&connection, Some(why));
            connection.stream.end();
            let watches = connection.session.watches;
            let greeted = connection.take_greeted().map(|(rings, _, held)| (rings, held));
            let remote = connection.stream.take_remote().into_iter().chain(greeted);
            drop(connection);
            remote.for_each(|(rings, held)| self.executor.greeter.end(rings, held));
            if watches {
                self.executor.stats.watchers.forget_gone();
            }
        }
        // Tokens of listeners and the wake-up must stay out of reach.
        self.generations[slot] = (self.generations[slot] + 1) & 0x7fff_ffff;
        self.free.push(slot);
        self.open -= 1;
        self.executor.counters.add(Counter::ConnectionsClosed, 1);
    }

    fn close_all(&mut self) {
        let tokens: Vec<u64> = self.connections.iter().flatten().map(|connection| connection.session.token).collect();
        for token in tokens {
            self.close(token, Closed::Shutdown);
        }
        // Stripes that were granted meanwhile go on to loops that still work.
        let mut messages = Vec::new();
        self.take_messages(&mut messages);
    }
}

/// Returns a descriptor that stands for nothing.
fn spare_descriptor() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}
