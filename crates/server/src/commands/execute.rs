//! The execution of commands against the engine: keys owned and items loaded, changes gathered, answers given. The
//! commands themselves are in [`classic`](crate::commands::classic) and [`meta`](crate::commands::meta).
//!
//! A command runs to its end on the event loop's thread, except for the three things that it may have to wait for:
//!
//! * the stripe of its key ([`Wait::Stripe`]),
//! * a [read](crate::waiting::fetch) that needs the disk ([`Wait::Read`]),
//! * its write, for which a place is kept in the connection's output.
//!
//! After the first two it is run again from the start, having changed nothing. Writes of all connections that a loop
//! serves in one turn gather in one batch, which [`Batcher::submit`] hands to the engine. An engine that never waits
//! makes a change when the command runs ([`CacheExtras::write_at_once`]): then there is no batch, and the answer needs
//! no place.
//!
//! **Back-pressure.** The [batcher](crate::commands::batcher) bounds what waits in the engine. Commands that only read
//! never wait for it.
//!
//! **Read, then write.** A command that decides by the old item owns the stripe before it reads and until its write is
//! answered. It keeps the stripe while the read is under way. Nothing changes the key in between.
//!
//! **Order.** A connection sees its own writes: while any of its answers is outstanding, its reads own the stripe of
//! their key for a moment, which waits for a write to it. The moment ends when the read has begun: a read sees what was
//! written before it began. Connections without outstanding writes read without it.

use std::collections::TryReserveError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::admin::access::AccessTable;
use crate::admin::dump::Dumps;
use crate::admin::metrics::{Command, Counter, Counters};
use crate::admin::notices::Notices;
use crate::admin::stats::StatsSource;
use crate::admin::trace::Tracer;
use crate::commands::batcher::Batcher;
use crate::commands::output::{Await, OnFailure, Output, Reply, push_server_error};
use crate::commands::read_side::{Asked, ReadSide};
use crate::commands::trace::{self, Noted};
use crate::commands::turn::{Quotas, SURVEY_COMMANDS};
use crate::engine::cache::{CacheExtras, Shown};
use crate::engine::durable::Durable;
use crate::engine::item::{ExpiryRule, Header, expires_at};
use crate::engine::{ChangeInParts, Engine, EngineError, StoredValue};
use crate::protocol::interests;
use crate::protocol::parse::{Request, next_key};
use crate::protocol::policy::Policy;
use crate::protocol::rights::{Rights, is_noreply, needed};
use crate::waiting::feed::{Feed, FeedReader};
use crate::waiting::fetch::{Fetched, Reads};
use crate::waiting::greeting::Greeter;
use crate::waiting::inbox::Inbox;
use crate::waiting::stripe::Stripes;
use crate::waiting::{StripeIndex, Wait};
use situ_transport::RdmaDevices;

/// The state of a connection that its commands use.
pub(crate) struct Session<V> {
    pub(crate) token: u64,
    pub(crate) output: Output<V>,
    /// A stripe that came while the connection waited for it, or that the command owns while it waits for a read.
    pub(crate) granted: Option<StripeIndex>,
    /// The disk reads of the current command.
    pub(crate) reads: Reads<V>,
    /// The position in its keys where an interrupted retrieval continues.
    pub(crate) resume: usize,
    /// The start of the current command, or of the first one of the lap.
    pub(crate) started: Instant,
    pub(crate) lap: Lap,
    /// The batch that its last change is in.
    pub(crate) last_batch: Option<u64>,
    /// The answers are dropped instead of sent, because they have no reader.
    pub(crate) unheard: bool,
    /// Text that comes from other threads. Unless the connection watches, nothing is run before its end.
    pub(crate) feed: Option<FeedReader>,
    /// The connection receives events, and runs no more commands.
    pub(crate) watches: bool,
    /// The number of its socket, as events name it.
    pub(crate) descriptor: i32,
    /// The commands that the client may run.
    pub(crate) rights: Rights,
    /// Notes about the current command, if a trace is recorded.
    pub(crate) noted: Option<Box<Noted>>,
}

impl<V> Session<V> {
    /// Notes that the command is answered with an error.
    fn note_failure(&mut self) {
        if let Some(noted) = &mut self.noted {
            noted.has_failed = true;
        }
    }
}

/// Commands of one kind that were answered in a row since the clock was last read: a reading costs as much as a tenth
/// of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lap {
    command: Command,
    commands: u32,
    commands_max: u32,
}

/// The maximum number of commands whose time is measured together.
const LAP_MAX: u32 = 16;

impl Lap {
    pub(crate) const NEW: Lap = Lap { command: Command::Other, commands: 0, commands_max: LAP_MAX };
    /// The next command has waited: its time is measured alone.
    pub(crate) const ALONE: Lap = Lap { commands_max: 1, ..Lap::NEW };
}

/// The outcome of a glance at an item.
pub(crate) enum Glance<V> {
    /// It was shown.
    Shown,
    /// It is long, or absent, or the engine has failed.
    Loaded(Loaded<V>),
    /// It is to be loaded.
    Ask,
}

/// The end of a command's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command is answered, or a place is kept for its answer.
    Done,
    /// The command has to wait, and runs again then. Nothing has changed, but for [`Session::resume`].
    Wait(Wait),
    /// The connection is to be closed when everything is sent.
    Quit,
}

/// An item as read.
pub(crate) struct Item<V> {
    pub(crate) header: Header,
    pub(crate) value: V,
}

/// The live item of a key, if there is one and the engine can tell.
pub(crate) type Loaded<V> = Result<Option<Item<V>>, EngineError>;

impl<V: StoredValue> Item<V> {
    pub(crate) fn data(&self) -> &[u8] {
        self.value.data(self.header.byte_len())
    }
}

/// Limits that commands obey.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) value_bytes_max: usize,
    /// The option: [`Share`](crate::commands::turn::Share) holds what a connection gets of it.
    pub(crate) output_bytes_option: usize,
    pub(crate) outstanding_answers_max: usize,
    pub(crate) flush_allowed: bool,
    /// The largest ring of a connection in shared or remote memory; 0 if there are none.
    pub(crate) shared_ring_bytes_max: u64,
    /// The devices for connections in remote memory.
    pub(crate) rdma: RdmaDevices,
}

/// The time of one turn of a loop, as its commands see it.
pub(crate) struct Moment {
    /// The approximate start of the turn.
    pub(crate) now: Instant,
    /// The rule by which items are dead.
    pub(crate) rule: ExpiryRule,
    /// Unix time minus the engine's clock, in seconds.
    pub(crate) unix_ahead: i64,
}

/// Runs the commands of one event loop.
pub(crate) struct Executor<E: Engine> {
    pub(crate) engine: Arc<E>,
    pub(crate) durable: Arc<Durable<E>>,
    pub(crate) stripes: Arc<Stripes>,
    pub(crate) access: Arc<AccessTable>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stats: Arc<StatsSource>,
    pub(crate) dumps: Arc<Dumps>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) loop_index: usize,
    pub(crate) limits: Limits,
    /// The users that may run commands, and more that may change.
    pub(crate) policy: Arc<Policy>,
    /// Lines for the server's log.
    pub(crate) notices: Arc<Notices>,
    pub(crate) tracer: Arc<Tracer>,
    /// The time of this turn.
    pub(crate) moment: Moment,
    /// The part of this turn that the connection which is served now has left.
    pub(crate) quotas: Quotas,
    /// The changes of this turn, and the batch that the engine has not taken.
    pub(crate) batcher: Batcher,
    /// The reads of this loop that are under way.
    pub(crate) read_side: ReadSide<E::Value>,
    /// Makes connections in remote memory.
    pub(crate) greeter: Greeter,
}

impl<E: Engine> Executor<E> {
    /// Converts a client's expiration time to the stored one.
    pub(crate) fn expires_at(&self, client_seconds: i32) -> u64 {
        expires_at(client_seconds, self.moment.rule.now_seconds, self.moment.unix_ahead)
    }

    /// Hands the gathered batch to the engine, unless another one waits there or there is no room.
    pub(crate) fn submit(&mut self) {
        self.batcher.submit(&*self.engine);
    }

    /// Continues after a change in what held the batch back. Returns the connections that were held back meanwhile.
    pub(crate) fn go_on(&mut self) -> Vec<u64> {
        self.submit();
        self.batcher.take_held()
    }

    /// Records `bytes` bytes of values of an engine that never waits: they are copied here, or when they are sent.
    /// Other engines' writes wait, and are counted then.
    pub(crate) fn has_copied(&self, bytes: usize) {
        if self.engine.cache().is_some() {
            self.quotas.copied(bytes);
        }
    }

    /// Returns the reason why no more commands may run for a connection now, if there is one.
    pub(crate) fn check(&self, session: &Session<E::Value>) -> Option<Wait> {
        if session.feed.is_some() {
            return Some(Wait::Feed);
        }
        if self.batcher.holds_back(session.last_batch) {
            return Some(Wait::Admission);
        }
        if self.quotas.are_used_up() {
            return Some(Wait::Turn);
        }
        let output = &session.output;
        if output.pending_bytes() >= self.quotas.share.output_bytes_max {
            Some(Wait::Output)
        } else if output.awaiting() >= self.limits.outstanding_answers_max
            || output.writing_bytes() >= self.quotas.share.writing_bytes_max
        {
            Some(Wait::Answers)
        } else {
            None
        }
    }

    /// Returns true if enough has been sent to go on.
    pub(crate) fn has_drained(&self, output: &Output<E::Value>) -> bool {
        output.pending_bytes() <= self.quotas.share.output_bytes_max / 2
    }

    /// Returns true if enough has been answered by the engine to go on.
    pub(crate) fn has_been_answered(&self, output: &Output<E::Value>) -> bool {
        output.awaiting() <= self.limits.outstanding_answers_max / 2
            && output.writing_bytes() <= self.quotas.share.writing_bytes_max / 2
    }

    /// Owns the stripe of `key`, or queues for it; not while there is no room for a change.
    pub(crate) fn own(&mut self, session: &mut Session<E::Value>, key: &[u8]) -> Result<StripeIndex, Wait> {
        if self.batcher.takes_no_change() {
            self.let_go(session);
            return Err(Wait::Admission);
        }
        let stripe = self.stripes.of(key);
        if session.granted == Some(stripe) {
            session.granted = None;
            return Ok(stripe);
        }
        if self.stripes.try_own(stripe) {
            return Ok(stripe);
        }
        // The owner may be in the batch that has not been handed over yet.
        self.submit();
        if self.stripes.own_or_wait(stripe, self.loop_index, session.token) {
            Ok(stripe)
        } else {
            Err(Wait::Stripe(stripe))
        }
    }

    /// Asks the engine for `key`. The engine answers at once, reads for this command, or cannot begin to read.
    fn ask(&mut self, session: &mut Session<E::Value>, key: &[u8]) -> Result<Fetched<E::Value>, Wait> {
        match self.read_side.ask(&*self.engine, session.token, key) {
            Asked::Fetched(fetched) => Ok(fetched),
            Asked::Reading(number) => {
                self.counters.add(Counter::DiskReads, 1);
                session.reads.expect(number, key);
                Err(Wait::Read)
            }
            Asked::Full => Err(Wait::ReadSlot),
        }
    }

    /// Releases the stripe that the connection was granted and the command has no use for. Items that were read while
    /// the stripe was held are dropped: others may change them now.
    pub(crate) fn let_go(&self, session: &mut Session<E::Value>) {
        if let Some(stripe) = session.granted.take() {
            self.stripes.release(stripe);
            session.reads.give_up();
        }
    }

    /// Returns the live item of `key`, as of some moment since the command began.
    fn load(&mut self, session: &mut Session<E::Value>, key: &[u8]) -> Result<Loaded<E::Value>, Wait> {
        let fetched = match session.reads.take(key) {
            Some(fetched) => fetched,
            None => self.ask(session, key)?,
        };
        let loaded = self.judge(fetched);
        let found = loaded.as_ref().ok().and_then(|item| item.as_ref()).map(|item| item.data().len());
        self.tell_fetched(session, key, found);
        Ok(loaded)
    }

    /// Tells watchers that a command has looked for an item, and the trace. `found` is the size of the item, if there
    /// is one.
    fn tell_fetched(&self, session: &mut Session<E::Value>, key: &[u8], found: Option<usize>) {
        if let Some(noted) = &mut session.noted {
            noted.fetched(key, found);
        }
        if self.stats.watchers.want(interests::FETCHERS) {
            self.stats.watchers.fetched(key, found, session.descriptor);
        }
    }

    /// Shows the live item of `key` where it lies, if that needs neither a stripe nor a copy. `show` appends the
    /// answer, and copies the data to it if `copies` says so; false if it cannot, and the item is to be loaded.
    pub(crate) fn glance(
        &self,
        session: &mut Session<E::Value>,
        key: &[u8],
        copies: bool,
        show: impl FnOnce(&mut Output<E::Value>, &Header, &[u8]) -> bool,
    ) -> Glance<E::Value> {
        if !session.reads.is_empty() || !Self::reads_freely(session) {
            return Glance::Ask;
        }
        let Some(cache) = self.engine.cache() else { return Glance::Ask };
        let rule = ExpiryRule { barrier_cas: self.durable.barrier(), ..self.moment.rule };
        let mut dead = None;
        let mut shown = None;
        let output = &mut session.output;
        let outcome = cache.show(key, copies, |item| match rule.kills(&item.header) {
            true => dead = Some(item.header),
            false => shown = show(output, &item.header, item.data).then_some(item.data.len()),
        });
        let loaded = match outcome {
            Ok(Shown::Item) => match (dead, shown) {
                (Some(header), _) => {
                    self.count_dead(&header, &rule);
                    Ok(None)
                }
                (None, Some(length)) => {
                    self.tell_fetched(session, key, Some(length));
                    return Glance::Shown;
                }
                (None, None) => return Glance::Ask,
            },
            Ok(Shown::Value(value)) => self.judge(Ok(Some(value))),
            Ok(Shown::Miss) => Ok(None),
            Ok(Shown::Ask) => return Glance::Ask,
            Err(error) => self.judge(Err(error)),
        };
        let found = loaded.as_ref().ok().and_then(|item| item.as_ref()).map(|item| item.data().len());
        self.tell_fetched(session, key, found);
        Glance::Loaded(loaded)
    }

    /// Counts an item that was found dead.
    fn count_dead(&self, header: &Header, rule: &ExpiryRule) {
        let was_flushed = header.id < rule.barrier_cas;
        self.counters.add(if was_flushed { Counter::ItemsFlushed } else { Counter::ItemsExpired }, 1);
    }

    /// Returns the item that was fetched, if it is alive.
    fn judge(&self, fetched: Fetched<E::Value>) -> Loaded<E::Value> {
        let value = match fetched {
            Ok(Some(value)) => value,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.counters.add(Counter::ReadFailures, 1);
                return Err(error);
            }
        };
        let Some(header) = Header::decode(value.head()) else {
            self.counters.add(Counter::DamagedItems, 1);
            return Err(EngineError::new("the stored value was not written by this server"));
        };
        let rule = ExpiryRule { barrier_cas: self.durable.barrier(), ..self.moment.rule };
        if rule.kills(&header) {
            self.count_dead(&header, &rule);
            return Ok(None);
        }
        let item = Item { header, value };
        self.has_copied(item.data().len());
        Ok(Some(item))
    }

    /// Owns the stripe of `key` and loads the live item. The command keeps the stripe while the read is under way.
    pub(crate) fn own_and_load(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
    ) -> Result<(StripeIndex, Loaded<E::Value>), Wait> {
        let stripe = self.own(session, key)?;
        match self.load(session, key) {
            Ok(loaded) => Ok((stripe, loaded)),
            Err(Wait::Read) => {
                session.granted = Some(stripe);
                Err(Wait::Read)
            }
            Err(wait) => {
                self.stripes.release(stripe);
                Err(wait)
            }
        }
    }

    /// Returns the live item of `key` as this connection must see it: after its own writes.
    pub(crate) fn load_ordered(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
    ) -> Result<Loaded<E::Value>, Wait> {
        // Items that were read for this command were read after the connection's own writes.
        if !session.reads.is_empty() || Self::reads_freely(session) {
            return self.load(session, key);
        }
        let stripe = self.own(session, key)?;
        let item = self.load(session, key);
        self.stripes.release(stripe);
        item
    }

    /// Returns true if a read of this connection needs no stripe to come after the connection's own writes.
    fn reads_freely(session: &Session<E::Value>) -> bool {
        session.output.awaiting() == 0 && session.granted.is_none()
    }

    /// Begins to read the keys of a retrieval from `position` on, behind the one that it waits for.
    pub(crate) fn read_ahead(&mut self, session: &mut Session<E::Value>, keys: &[u8], mut position: usize) {
        if !Self::reads_freely(session) {
            return;
        }
        while session.reads.may_read_ahead()
            && self.read_side.fetches.may_read_ahead()
            && let Some((key, next)) = next_key(keys, position)
        {
            position = next;
            match self.ask(session, key) {
                Ok(fetched) => session.reads.keep(key, fetched),
                Err(Wait::Read) => {}
                Err(_) => return,
            }
        }
    }

    /// Gathers a put and keeps the place of its answer.
    #[expect(clippy::too_many_arguments, reason = "a change and its answer belong together")]
    pub(crate) fn put(
        &mut self,
        session: &mut Session<E::Value>,
        stripe: StripeIndex,
        command: Option<Command>,
        key: &[u8],
        header: Header,
        [first, second]: [&[u8]; 2],
        reply: Reply<E::Value>,
        on_failure: OnFailure,
    ) {
        let header = header.encode();
        let change = ChangeInParts::Put { key, parts: [&header, first, second] };
        let Some(reply) = self.made_at_once(session, stripe, command, change, reply, on_failure) else { return };
        let change_bytes = self.batcher.batch.put(key, &[&header, first, second]);
        self.gathered(session, stripe, command, change_bytes, reply, on_failure);
    }

    /// Gathers a put of `item` with another header, and keeps the place of an answer of `line` and the item's data.
    #[expect(clippy::too_many_arguments, reason = "a change and its answer belong together")]
    pub(crate) fn put_and_return(
        &mut self,
        session: &mut Session<E::Value>,
        stripe: StripeIndex,
        command: Option<Command>,
        (key, header): (&[u8], Header),
        item: Item<E::Value>,
        line: Vec<u8>,
        on_failure: OnFailure,
    ) {
        let header = header.encode();
        let change_bytes = self.batcher.batch.put(key, &[&header, item.data()]);
        let reply = Reply::Value(line, item.value, item.header.byte_len());
        self.gathered(session, stripe, command, change_bytes, reply, on_failure);
    }

    pub(crate) fn remove(
        &mut self,
        session: &mut Session<E::Value>,
        stripe: StripeIndex,
        command: Command,
        key: &[u8],
        reply: Reply<E::Value>,
        on_failure: OnFailure,
    ) {
        let change = ChangeInParts::Delete { key };
        let Some(reply) = self.made_at_once(session, stripe, Some(command), change, reply, on_failure) else { return };
        let change_bytes = self.batcher.batch.delete(key);
        self.gathered(session, stripe, Some(command), Ok(change_bytes), reply, on_failure);
    }

    /// Makes a change and answers, if the engine makes changes at once. Otherwise the reply comes back.
    fn made_at_once(
        &mut self,
        session: &mut Session<E::Value>,
        stripe: StripeIndex,
        command: Option<Command>,
        change: ChangeInParts<'_>,
        reply: Reply<E::Value>,
        on_failure: OnFailure,
    ) -> Option<Reply<E::Value>> {
        let bytes =
            if let ChangeInParts::Put { parts, .. } = &change { parts.iter().map(|part| part.len()).sum() } else { 0 };
        let Some(cache) = self.engine.cache() else { return Some(reply) };
        let outcome = cache.write_at_once(change);
        self.has_copied(bytes);
        self.stripes.release(stripe);
        self.made(session, command, outcome, reply, on_failure);
        None
    }

    /// Answers a change that the engine has made, or has refused.
    pub(crate) fn made(
        &self,
        session: &mut Session<E::Value>,
        command: Option<Command>,
        outcome: Result<(), EngineError>,
        reply: Reply<E::Value>,
        on_failure: OnFailure,
    ) {
        match outcome {
            Ok(()) => session.output.append_reply(reply),
            Err(error) => {
                self.counters.add(Counter::WriteFailures, 1);
                session.note_failure();
                match on_failure {
                    OnFailure::Silence => {}
                    OnFailure::Report => session.output.append(|out| push_server_error(out, &error)),
                    OnFailure::EndAnswer => session.output.cut_short(&error),
                }
            }
        }
        if let Some(command) = command {
            self.answer(session, command, |_| {});
        }
    }

    /// Keeps the place of the answer to a change that was gathered. Refuses a change for which there is no memory.
    fn gathered(
        &mut self,
        session: &mut Session<E::Value>,
        stripe: StripeIndex,
        command: Option<Command>,
        change_bytes: Result<usize, TryReserveError>,
        reply: Reply<E::Value>,
        on_failure: OnFailure,
    ) {
        let Ok(write_bytes) = change_bytes else {
            self.stripes.release(stripe);
            let error = EngineError::new("out of memory storing object");
            return self.made(session, command, Err(error), reply, on_failure);
        };
        self.end_lap(session);
        let batch = self.batcher.own(session.token, stripe);
        session.last_batch = Some(batch);
        let started = session.started;
        session.output.append_await(Await { batch, reply, write_bytes, on_failure, command, started, traced: None });
        if self.batcher.is_full() {
            self.submit();
        }
    }

    /// Answers at once.
    pub(crate) fn answer(&self, session: &mut Session<E::Value>, command: Command, fill: impl FnOnce(&mut Vec<u8>)) {
        session.output.append(fill);
        self.counters.count(command);
        if session.lap.command != command {
            self.end_lap(session);
            session.lap.command = command;
        }
        session.lap.commands += 1;
        if session.lap.commands >= session.lap.commands_max {
            self.end_lap(session);
        }
    }

    /// Reads the clock: the commands that were answered since took that long together. The next command of a pipeline
    /// begins where the last one ended.
    pub(crate) fn end_lap(&self, session: &mut Session<E::Value>) {
        let Lap { command, commands, .. } = session.lap;
        if commands > 0 {
            let now = Instant::now();
            self.counters.took(command, commands, now.saturating_duration_since(session.started));
            session.started = now;
            session.lap = Lap::NEW;
        }
    }

    /// Answers a line of text at once, or nothing.
    pub(crate) fn say(&self, session: &mut Session<E::Value>, command: Command, text: &str, noreply: bool) {
        self.answer(session, command, |out| {
            if !noreply {
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        });
    }

    /// Counts and logs an error of TLS, for which a connection ends.
    pub(crate) fn tls_failed(&self, why: &str, peer: Option<SocketAddr>) {
        self.counters.add(Counter::TlsFailures, 1);
        self.notices.tls_failed(why, peer, self.moment.now);
    }

    /// Answers a request for which the client lacks a right.
    pub(crate) fn forbid(&self, session: &mut Session<E::Value>, request: &Request<'_>) {
        self.counters.add(Counter::CommandsForbidden, 1);
        let text = session.rights.refusal(needed(request));
        self.say(session, Command::Other, text, is_noreply(request));
    }

    pub(crate) fn fail(&self, session: &mut Session<E::Value>, command: Command, error: &EngineError, noreply: bool) {
        session.note_failure();
        self.answer(session, command, |out| {
            if !noreply {
                push_server_error(out, error);
            }
        });
    }

    /// Begins to list all items for a connection.
    fn dump(&self, session: &mut Session<E::Value>) {
        let engine = Arc::clone(&self.engine);
        let survey = move || engine.survey();
        let rule = self.durable.rule(self.moment.rule.now_seconds);
        let feed = Feed::new(Arc::clone(&self.inbox), session.token);
        if self.dumps.begin(survey, (rule, self.moment.unix_ahead), Arc::clone(&self.access), Arc::clone(&feed)) {
            session.feed = Some(FeedReader(feed));
            self.answer(session, Command::Other, |_| {});
        } else {
            self.say(session, Command::Other, "BUSY currently processing crawler request", false);
        }
    }

    /// Makes a connection a watcher of `interests`.
    fn watch(&self, session: &mut Session<E::Value>, interests: u8) {
        let feed = Feed::new(Arc::clone(&self.inbox), session.token);
        let reader = FeedReader(Arc::clone(&feed));
        if !self.stats.watchers.add(interests, feed) {
            return self.say(session, Command::Other, "WATCHER_TOO_MANY log watcher limit reached", false);
        }
        self.say(session, Command::Other, "OK", false);
        (session.feed, session.watches) = (Some(reader), true);
    }

    /// Begins notes about a command for the trace, unless the command has run in part. The time of the command is
    /// measured apart from those before it.
    #[cold]
    fn begin_notes(&self, session: &mut Session<E::Value>) {
        if session.noted.is_none() {
            self.end_lap(session);
            session.noted = Some(Box::new(Noted::new(session.started)));
        }
    }

    /// Runs one command; `data` is the data block of a storage command, without its end of line.
    pub(crate) fn execute(&mut self, session: &mut Session<E::Value>, request: &Request<'_>, data: &[u8]) -> Outcome {
        if self.tracer.is_on() {
            self.begin_notes(session);
        }
        let awaiting = session.output.awaiting();
        let outcome = match request {
            _ if !session.rights.contain(needed(request)) => {
                self.forbid(session, request);
                session.resume = 0;
                Outcome::Done
            }
            Request::Get { touch: None, .. } | Request::MetaDebug { .. } | Request::Stats { .. } if session.unheard => {
                session.resume = 0;
                Outcome::Done
            }
            Request::Get { keys, with_cas, touch } => match touch {
                None => self.get(session, keys, *with_cas),
                Some(expires) => self.get_and_touch(session, keys, *with_cas, *expires),
            },
            Request::Store(store) => self.store(session, store, data),
            Request::Delete { key, noreply } => self.delete(session, key, *noreply),
            Request::Arithmetic { key, delta, increment, noreply } => {
                self.arithmetic(session, key, *delta, *increment, *noreply)
            }
            Request::Touch { key, expires, noreply } => self.touch(session, key, *expires, *noreply),
            Request::MetaGet { key, meta } => self.meta_get(session, key, meta),
            Request::MetaDelete { key, meta } => self.meta_delete(session, key, meta),
            Request::MetaArithmetic { key, increment, meta } => self.meta_arithmetic(session, key, *increment, meta),
            Request::MetaDebug { key } => self.meta_debug(session, key),
            Request::FlushAll { noreply, .. } if !self.limits.flush_allowed => {
                self.say(session, Command::FlushAll, "CLIENT_ERROR flush_all not allowed", *noreply);
                Outcome::Done
            }
            Request::FlushAll { delay, noreply } => {
                self.flush_all(session, *delay, *noreply);
                Outcome::Done
            }
            Request::Stats { topic } => {
                self.quotas.use_commands(SURVEY_COMMANDS);
                let stats = Arc::clone(&self.stats);
                let text = stats.render(topic, &self.durable, self.moment.rule.now_seconds);
                self.answer(session, Command::Stats, |out| out.extend_from_slice(text.as_bytes()));
                Outcome::Done
            }
            Request::StatsReset => {
                self.stats.reset();
                self.say(session, Command::Stats, "RESET", false);
                Outcome::Done
            }
            Request::StatsDetail { on } => {
                self.stats.prefixes.switch(*on);
                self.say(session, Command::Stats, "OK", false);
                Outcome::Done
            }
            Request::StatsDetailDump => {
                self.quotas.use_commands(SURVEY_COMMANDS);
                let text = self.stats.prefixes.dump();
                self.answer(session, Command::Stats, |out| out.extend_from_slice(&text));
                Outcome::Done
            }
            Request::Dump => {
                self.dump(session);
                Outcome::Done
            }
            Request::Watch { interests } => {
                self.watch(session, *interests);
                Outcome::Done
            }
            Request::Verbosity { level, noreply } => {
                self.stats.verbosity.store(*level, Ordering::Relaxed);
                self.say(session, Command::Other, "OK", *noreply);
                Outcome::Done
            }
            // Of the latter three nothing is to be run here.
            Request::Quit | Request::Foreign | Request::SharedMemory { .. } | Request::RemoteMemory { .. } => {
                Outcome::Quit
            }
            Request::Answer { text, noreply, .. } => {
                self.say(session, Command::Other, text, *noreply);
                Outcome::Done
            }
        };
        if outcome != Outcome::Wait(Wait::Read) {
            self.let_go(session);
        }
        if matches!(outcome, Outcome::Done | Outcome::Quit) {
            session.reads.finish();
            if let Some(noted) = session.noted.take() {
                let write_is_under_way = session.output.awaiting() > awaiting;
                trace::record(&self.tracer, &mut session.output, request, data, *noted, write_is_under_way);
            }
        }
        outcome
    }
}
