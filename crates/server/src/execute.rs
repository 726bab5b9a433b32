//! Commands against the engine: the classic ones, and what the meta commands share with them.
//!
//! A command runs to its end on the event loop's thread, except for the two things it may have to wait for: the stripe
//! of its key ([`Outcome::Wait`]; it is then run again from the start, having changed nothing), and its write, for
//! which a place is kept in the connection's output. Writes of all connections that a loop serves in one turn gather
//! in one batch, which [`Executor::submit`] hands to the engine.
//!
//! **Order.** A connection sees its own writes: while any of its answers is outstanding, its reads own the stripe of
//! their key for a moment, which waits for a write to it. Connections without outstanding writes read without it.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::access::AccessTable;
use crate::durable::Durable;
use crate::engine::{Engine, EngineError, WriteBatch};
use crate::inbox::{Inbox, Message};
use crate::item::{BINARY_KEY, ExpiryRule, HEADER_BYTES, Header, STALE, TOKEN_SENT, expires_at};
use crate::metrics::{Command, Counter, Counters};
use crate::number::{parse_u64, push_decimal};
use crate::output::{Await, COPY_BYTES_MAX, OnFailure, Output, Reply, push_server_error};
use crate::parse::{Request, Store, StoreMode, next_key};
use crate::stats::StatsSource;
use crate::stripe::{StripeIndex, Stripes};

/// A batch that has grown to this is submitted before the turn ends.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;
const BATCH_CHANGES_MAX: usize = 1024;
/// Writes of one connection that may be under way, in bytes; a single one may be larger. As buffered writes are
/// answered at the end of a turn, this bounds what one connection makes its loop write in a turn, too: commands of a
/// few bytes can rewrite an item of a megabyte each.
const WRITING_BYTES_MAX: usize = 4 << 20;

/// What a command needs to know of its connection.
pub(crate) struct Session<V> {
    pub(crate) token: u64,
    pub(crate) output: Output<V>,
    /// A stripe that came while the connection waited for it.
    pub(crate) granted: Option<StripeIndex>,
    /// Where in its keys an interrupted retrieval goes on.
    pub(crate) resume: usize,
    /// When the current command began.
    pub(crate) started: Instant,
}

/// How a command's turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered, or a place is kept.
    Done,
    /// Run it again when the stripe has been granted. Nothing has changed, but for [`Session::resume`].
    Wait(StripeIndex),
    /// Run it again when output has drained.
    Full,
    /// Run it again when the engine has answered.
    Busy,
    /// Close the connection when everything is sent.
    Quit,
}

/// An item as read.
pub(crate) struct Item<V> {
    pub(crate) header: Header,
    pub(crate) value: V,
}

/// The live item of a key, if there is one and the engine can tell.
pub(crate) type Loaded<V> = Result<Option<Item<V>>, EngineError>;

impl<V: Deref<Target = [u8]>> Item<V> {
    pub(crate) fn data(&self) -> &[u8] {
        self.value.get(HEADER_BYTES..).unwrap_or_default()
    }
}

/// Limits that commands obey.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) value_bytes_max: usize,
    pub(crate) output_bytes_max: usize,
    pub(crate) outstanding_answers_max: usize,
}

impl Limits {
    /// Why nothing more may be run for a connection now, if so.
    pub(crate) fn check<V: Deref<Target = [u8]>>(&self, output: &Output<V>) -> Option<Outcome> {
        if output.pending_bytes() >= self.output_bytes_max {
            Some(Outcome::Full)
        } else if output.awaiting() >= self.outstanding_answers_max || output.writing_bytes() >= WRITING_BYTES_MAX {
            Some(Outcome::Busy)
        } else {
            None
        }
    }

    /// True if enough has been sent to go on.
    pub(crate) fn has_drained<V: Deref<Target = [u8]>>(&self, output: &Output<V>) -> bool {
        output.pending_bytes() <= self.output_bytes_max / 2
    }

    /// True if enough has been answered by the engine to go on.
    pub(crate) fn has_been_answered<V: Deref<Target = [u8]>>(&self, output: &Output<V>) -> bool {
        output.awaiting() <= self.outstanding_answers_max / 2 && output.writing_bytes() <= WRITING_BYTES_MAX / 2
    }
}

/// Runs the commands of one event loop.
pub(crate) struct Executor<E: Engine> {
    pub(crate) engine: Arc<E>,
    pub(crate) durable: Arc<Durable<E>>,
    pub(crate) stripes: Arc<Stripes>,
    pub(crate) access: Arc<AccessTable>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stats: Arc<StatsSource>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) loop_index: usize,
    pub(crate) limits: Limits,
    pub(crate) rule: ExpiryRule,
    /// When this turn of the loop began, about.
    pub(crate) now: Instant,
    pub(crate) batch: WriteBatch,
    /// Whose change, and the stripe that it holds.
    pub(crate) owners: Vec<(u64, StripeIndex)>,
    /// The number of the batch being gathered.
    pub(crate) batch_number: u64,
}

/// Reports a batch's fate exactly once, even if the engine drops its callback.
struct Completion {
    stripes: Arc<Stripes>,
    inbox: Arc<Inbox>,
    batch: u64,
    owners: Vec<(u64, StripeIndex)>,
}

impl Completion {
    fn finish(&mut self, result: Result<(), EngineError>) {
        let mut connections = Vec::with_capacity(self.owners.len());
        for (connection, stripe) in self.owners.drain(..) {
            self.stripes.release(stripe);
            if connections.last() != Some(&connection) {
                connections.push(connection);
            }
        }
        self.inbox.post(Message::Completed { batch: self.batch, connections, result });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if !self.owners.is_empty() {
            self.finish(Err(EngineError::new("the engine dropped the write")));
        }
    }
}

impl<E: Engine> Executor<E> {
    /// Hands the gathered batch to the engine.
    pub(crate) fn submit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let mut completion = Completion {
            stripes: Arc::clone(&self.stripes),
            inbox: Arc::clone(&self.inbox),
            batch: self.batch_number,
            owners: std::mem::take(&mut self.owners),
        };
        self.batch_number += 1;
        let batch = std::mem::take(&mut self.batch);
        self.engine.write(batch, Box::new(move |result| completion.finish(result)));
    }

    /// Owns the stripe of `key`, or queues for it.
    pub(crate) fn own(&mut self, session: &mut Session<E::Value>, key: &[u8]) -> Result<StripeIndex, Outcome> {
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
            Err(Outcome::Wait(stripe))
        }
    }

    /// The live item of `key`.
    pub(crate) fn load(&self, key: &[u8]) -> Loaded<E::Value> {
        let value = match self.engine.get(key) {
            Ok(Some(value)) => value,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.counters.add(Counter::ReadFailures, 1);
                return Err(error);
            }
        };
        let Some(header) = Header::decode(&value) else {
            self.counters.add(Counter::DamagedItems, 1);
            return Err(EngineError::new("the stored value was not written by this server"));
        };
        let rule = ExpiryRule { barrier_cas: self.durable.barrier(), ..self.rule };
        Ok((!rule.kills(&header)).then_some(Item { header, value }))
    }

    /// The live item of `key` as this connection must see it: after its own writes.
    pub(crate) fn load_ordered(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
    ) -> Result<Loaded<E::Value>, Outcome> {
        if session.output.awaiting() == 0 && session.granted.is_none() {
            return Ok(self.load(key));
        }
        let stripe = self.own(session, key)?;
        let item = self.load(key);
        self.stripes.release(stripe);
        Ok(item)
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
        let before = self.batch.byte_len();
        self.batch.put(key, &[&header.encode(), first, second]);
        self.gathered(session, stripe, command, before, reply, on_failure);
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
        let before = self.batch.byte_len();
        self.batch.put(key, &[&header.encode(), item.data()]);
        self.gathered(session, stripe, command, before, Reply::Value(line, item.value, HEADER_BYTES), on_failure);
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
        let before = self.batch.byte_len();
        self.batch.delete(key);
        self.gathered(session, stripe, Some(command), before, reply, on_failure);
    }

    fn gathered(
        &mut self,
        session: &mut Session<E::Value>,
        stripe: StripeIndex,
        command: Option<Command>,
        batch_bytes_before: usize,
        reply: Reply<E::Value>,
        on_failure: OnFailure,
    ) {
        self.owners.push((session.token, stripe));
        let (batch, started) = (self.batch_number, session.started);
        let write_bytes = self.batch.byte_len() - batch_bytes_before;
        session.output.append_await(Await { batch, reply, write_bytes, on_failure, command, started });
        if self.batch.byte_len() >= BATCH_BYTES_MAX || self.batch.len() >= BATCH_CHANGES_MAX {
            self.submit();
        }
    }

    /// Answers at once.
    pub(crate) fn answer(&self, session: &mut Session<E::Value>, command: Command, fill: impl FnOnce(&mut Vec<u8>)) {
        session.output.append(fill);
        let now = Instant::now();
        self.counters.answered(command, now.saturating_duration_since(session.started));
        // The next command of a pipeline begins where this one ended: one reading of the clock serves both.
        session.started = now;
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

    pub(crate) fn fail(&self, session: &mut Session<E::Value>, command: Command, error: &EngineError, noreply: bool) {
        self.answer(session, command, |out| {
            if !noreply {
                push_server_error(out, error);
            }
        });
    }

    /// Runs one command; `data` is the data block of a storage command, without its end of line.
    pub(crate) fn execute(&mut self, session: &mut Session<E::Value>, request: &Request<'_>, data: &[u8]) -> Outcome {
        let outcome = match request {
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
            Request::FlushAll { delay, noreply } => {
                self.flush_all(session, *delay, *noreply);
                Outcome::Done
            }
            Request::Stats { topic } => {
                let stats = Arc::clone(&self.stats);
                let text = stats.render(topic, self.engine.as_ref(), self.rule.now_seconds);
                self.answer(session, Command::Stats, |out| out.extend_from_slice(text.as_bytes()));
                Outcome::Done
            }
            Request::StatsReset => {
                self.stats.reset();
                self.say(session, Command::Stats, "RESET", false);
                Outcome::Done
            }
            Request::Quit => Outcome::Quit,
            Request::Answer { text, noreply, .. } => {
                self.say(session, Command::Other, text, *noreply);
                Outcome::Done
            }
        };
        // A command that was granted a stripe may find on its second run that it has no use for it.
        if let Some(stripe) = session.granted.take() {
            self.stripes.release(stripe);
        }
        outcome
    }

    fn get(&mut self, session: &mut Session<E::Value>, keys: &[u8], with_cas: bool) -> Outcome {
        while let Some((key, next)) = next_key(keys, session.resume) {
            if session.output.pending_bytes() >= self.limits.output_bytes_max {
                return Outcome::Full;
            }
            let item = match self.load_ordered(session, key) {
                Ok(Ok(item)) => item,
                Ok(Err(error)) => {
                    session.resume = 0;
                    self.fail(session, Command::Get, &error, false);
                    return Outcome::Done;
                }
                Err(wait) => return wait,
            };
            self.counters.add(Counter::Keys, 1);
            session.resume = next;
            let Some(item) = item else {
                self.counters.add(Counter::GetMisses, 1);
                continue;
            };
            self.counters.add(Counter::GetHits, 1);
            self.access.fetched(key, self.rule.now_seconds);
            session.output.append(|out| push_value_line(out, key, &item.header, item.data().len(), with_cas));
            session.output.append_value(item.value, HEADER_BYTES);
            session.output.append(|out| out.extend_from_slice(b"\r\n"));
        }
        session.resume = 0;
        self.answer(session, Command::Get, |out| out.extend_from_slice(b"END\r\n"));
        Outcome::Done
    }

    fn get_and_touch(&mut self, session: &mut Session<E::Value>, keys: &[u8], with_cas: bool, expires: i32) -> Outcome {
        if session.output.take_cut_short() {
            // A write of an earlier key has failed, and its error was the end of the answer.
            session.resume = 0;
            self.answer(session, Command::GetAndTouch, |_| {});
            return Outcome::Done;
        }
        while let Some((key, next)) = next_key(keys, session.resume) {
            if let Some(outcome) = self.limits.check(&session.output) {
                return outcome;
            }
            let stripe = match self.own(session, key) {
                Ok(stripe) => stripe,
                Err(wait) => return wait,
            };
            let item = match self.load(key) {
                Ok(item) => item,
                Err(error) => {
                    self.stripes.release(stripe);
                    session.resume = 0;
                    let mut end = Vec::new();
                    push_server_error(&mut end, &error);
                    session.output.append_end(end);
                    self.answer(session, Command::GetAndTouch, |_| {});
                    return Outcome::Done;
                }
            };
            session.resume = next;
            let Some(item) = item else {
                self.counters.add(Counter::TouchMisses, 1);
                self.stripes.release(stripe);
                continue;
            };
            self.counters.add(Counter::TouchHits, 1);
            self.access.fetched(key, self.rule.now_seconds);
            let mut line = Vec::new();
            push_value_line(&mut line, key, &item.header, item.data().len(), with_cas);
            let header = Header { expires: expires_at(expires, self.rule.now_seconds), ..item.header };
            if header == item.header {
                self.stripes.release(stripe);
                session.output.append(|out| out.extend_from_slice(&line));
                session.output.append_value(item.value, HEADER_BYTES);
                session.output.append(|out| out.extend_from_slice(b"\r\n"));
                continue;
            }
            self.put_and_return(session, stripe, None, (key, header), item, line, OnFailure::EndAnswer);
        }
        session.resume = 0;
        session.output.append_end(b"END\r\n".to_vec());
        self.answer(session, Command::GetAndTouch, |_| {});
        Outcome::Done
    }

    /// Refuses a value over the limit. As in memcached, a `set` leaves no older value behind to be read by mistake.
    pub(crate) fn refuse_too_large(&mut self, session: &mut Session<E::Value>, store: &Store<'_>) -> Outcome {
        const TEXT: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
        let command = store_command(store);
        let silent = store.noreply && store.meta.is_none();
        let text: &'static [u8] = if silent { b"" } else { TEXT };
        if store.mode == StoreMode::Set || store.meta.is_some() {
            let stripe = match self.own(session, &store.key) {
                Ok(stripe) => stripe,
                Err(wait) => return wait,
            };
            if let Ok(Some(_)) = self.load(&store.key) {
                let on_failure = if silent { OnFailure::Silence } else { OnFailure::Report };
                self.remove(session, stripe, command, &store.key, Reply::Static(text), on_failure);
                self.counters.add(Counter::StoreTooLarge, 1);
                return Outcome::Done;
            }
            self.stripes.release(stripe);
        }
        self.counters.add(Counter::StoreTooLarge, 1);
        self.answer(session, command, |out| out.extend_from_slice(text));
        Outcome::Done
    }

    fn store(&mut self, session: &mut Session<E::Value>, store: &Store<'_>, data: &[u8]) -> Outcome {
        let key: &[u8] = &store.key;
        let command = store_command(store);
        // Errors of meta commands are never silent.
        let silent = store.noreply && store.meta.is_none();
        let stripe = match self.own(session, key) {
            Ok(stripe) => stripe,
            Err(wait) => return wait,
        };
        let old = match store.mode {
            StoreMode::Set => Ok(None),
            _ => self.load(key),
        };
        let old = match old {
            Ok(old) => old,
            Err(error) => {
                self.stripes.release(stripe);
                self.fail(session, command, &error, silent);
                return Outcome::Done;
            }
        };
        let binary = store.meta.as_ref().is_some_and(|meta| meta.binary_key);
        let fresh = Header {
            state: if binary { BINARY_KEY } else { 0 },
            flags: store.flags,
            expires: expires_at(store.expires, self.rule.now_seconds),
            cas: 0,
        };
        let decision = self.decide(store, old.as_ref(), fresh, data);
        let (header, parts) = match decision {
            Ok(decided) => decided,
            Err(refusal) => {
                self.stripes.release(stripe);
                self.answer(session, command, |out| push_store_answer(out, store, refusal, 0));
                return Outcome::Done;
            }
        };
        let cas = match self.durable.next_cas() {
            Ok(cas) => cas,
            Err(error) => {
                self.stripes.release(stripe);
                self.fail(session, command, &error, silent);
                return Outcome::Done;
            }
        };
        self.counters.add(Counter::TotalItems, 1);
        self.access.stored(key, self.rule.now_seconds);
        let reply = match (&store.meta, store.noreply) {
            (_, true) => Reply::Static(b""),
            (None, false) => Reply::Static(b"STORED\r\n"),
            (Some(_), false) => {
                let mut text = Vec::with_capacity(64);
                push_store_answer(&mut text, store, Refusal::None, cas);
                Reply::Bytes(text)
            }
        };
        let on_failure = if silent { OnFailure::Silence } else { OnFailure::Report };
        self.put(session, stripe, Some(command), key, Header { cas, ..header }, parts, reply, on_failure);
        Outcome::Done
    }

    /// What storing does to the item that is there: the new header (but for its cas) and data, or why not.
    fn decide<'d>(
        &self,
        store: &Store<'_>,
        old: Option<&'d Item<E::Value>>,
        fresh: Header,
        data: &'d [u8],
    ) -> Result<(Header, [&'d [u8]; 2]), Refusal> {
        let plain = (fresh, [data, &[][..]]);
        let Some(old) = old else {
            return match store.mode {
                StoreMode::Set | StoreMode::Add => Ok(plain),
                StoreMode::Cas => {
                    self.counters.add(Counter::CasMisses, 1);
                    Err(Refusal::NotFound)
                }
                StoreMode::Replace | StoreMode::Append | StoreMode::Prepend => Err(Refusal::NotStored),
            };
        };
        match store.mode {
            StoreMode::Set | StoreMode::Replace => Ok(plain),
            StoreMode::Add => Err(Refusal::NotStored),
            StoreMode::Cas if store.cas != 0 && store.cas == old.header.cas => {
                self.counters.add(Counter::CasHits, 1);
                Ok(plain)
            }
            StoreMode::Cas => {
                let stale_allowed = store.meta.as_ref().is_some_and(|meta| meta.invalidate);
                if stale_allowed && store.cas != 0 && store.cas < old.header.cas {
                    // Late but better than nothing: kept as stale, and whoever won the right to recache keeps it.
                    let state = fresh.state | STALE | (old.header.state & TOKEN_SENT);
                    return Ok((Header { state, expires: old.header.expires, ..fresh }, plain.1));
                }
                self.counters.add(Counter::CasBad, 1);
                Err(Refusal::Exists)
            }
            StoreMode::Append | StoreMode::Prepend => {
                if store.cas != 0 && store.cas != old.header.cas {
                    return Err(Refusal::Exists);
                }
                if old.data().len() + data.len() > self.limits.value_bytes_max {
                    self.counters.add(Counter::StoreTooLarge, 1);
                    return Err(Refusal::NotStored);
                }
                let header = Header { state: old.header.state & BINARY_KEY, ..old.header };
                let parts = if store.mode == StoreMode::Append { [old.data(), data] } else { [data, old.data()] };
                Ok((header, parts))
            }
        }
    }

    fn delete(&mut self, session: &mut Session<E::Value>, key: &[u8], noreply: bool) -> Outcome {
        let stripe = match self.own(session, key) {
            Ok(stripe) => stripe,
            Err(wait) => return wait,
        };
        match self.load(key) {
            Ok(Some(_)) => {
                self.counters.add(Counter::DeleteHits, 1);
                let (reply, on_failure) = classic_reply(b"DELETED\r\n", noreply);
                self.remove(session, stripe, Command::Delete, key, reply, on_failure);
            }
            other => {
                self.stripes.release(stripe);
                match other {
                    Err(error) => self.fail(session, Command::Delete, &error, noreply),
                    _ => {
                        self.counters.add(Counter::DeleteMisses, 1);
                        self.say(session, Command::Delete, "NOT_FOUND", noreply);
                    }
                }
            }
        }
        Outcome::Done
    }

    fn touch(&mut self, session: &mut Session<E::Value>, key: &[u8], expires: i32, noreply: bool) -> Outcome {
        let stripe = match self.own(session, key) {
            Ok(stripe) => stripe,
            Err(wait) => return wait,
        };
        match self.load(key) {
            Ok(Some(item)) => {
                self.counters.add(Counter::TouchHits, 1);
                self.access.fetched(key, self.rule.now_seconds);
                let header = Header { expires: expires_at(expires, self.rule.now_seconds), ..item.header };
                let (reply, on_failure) = classic_reply(b"TOUCHED\r\n", noreply);
                self.put(session, stripe, Some(Command::Touch), key, header, [item.data(), b""], reply, on_failure);
            }
            other => {
                self.stripes.release(stripe);
                match other {
                    Err(error) => self.fail(session, Command::Touch, &error, noreply),
                    _ => {
                        self.counters.add(Counter::TouchMisses, 1);
                        self.say(session, Command::Touch, "NOT_FOUND", noreply);
                    }
                }
            }
        }
        Outcome::Done
    }

    fn arithmetic(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
        delta: u64,
        increment: bool,
        noreply: bool,
    ) -> Outcome {
        let command = if increment { Command::Incr } else { Command::Decr };
        let stripe = match self.own(session, key) {
            Ok(stripe) => stripe,
            Err(wait) => return wait,
        };
        match self.load(key).and_then(|item| self.apply_delta(item, increment, delta)) {
            Ok(Delta::Changed { header, data, digits }) => {
                let (mut reply, on_failure) = classic_reply(b"", noreply);
                if !noreply {
                    let mut text = data[..digits].to_vec();
                    text.extend_from_slice(b"\r\n");
                    reply = Reply::Bytes(text);
                }
                self.put(session, stripe, Some(command), key, header, [&data, b""], reply, on_failure);
            }
            other => {
                self.stripes.release(stripe);
                match other {
                    Err(error) => self.fail(session, command, &error, noreply),
                    Ok(Delta::NotNumeric) => self.say(session, command, NOT_NUMERIC, noreply),
                    _ => self.say(session, command, "NOT_FOUND", noreply),
                }
            }
        }
        Outcome::Done
    }

    /// The item after `incr` or `decr`. A result with fewer digits is padded with spaces, as memcached does.
    pub(crate) fn apply_delta(
        &self,
        item: Option<Item<E::Value>>,
        increment: bool,
        delta: u64,
    ) -> Result<Delta, EngineError> {
        let (hits, misses) = match increment {
            true => (Counter::IncrHits, Counter::IncrMisses),
            false => (Counter::DecrHits, Counter::DecrMisses),
        };
        let Some(item) = item else {
            self.counters.add(misses, 1);
            return Ok(Delta::NotFound);
        };
        let Some(value) = parse_u64(item.data()).filter(|_| item.data().len() <= NUMBER_BYTES_MAX) else {
            return Ok(Delta::NotNumeric);
        };
        self.counters.add(hits, 1);
        let value = if increment { value.wrapping_add(delta) } else { value.saturating_sub(delta) };
        let mut data = Vec::with_capacity(24);
        push_decimal(&mut data, value);
        let digits = data.len();
        data.resize(digits.max(item.data().len()), b' ');
        Ok(Delta::Changed { header: Header { cas: self.durable.next_cas()?, ..item.header }, data, digits })
    }

    fn flush_all(&mut self, session: &mut Session<E::Value>, delay: i32, noreply: bool) {
        // Stores before the flush must be in the engine before it.
        self.submit();
        let batch = self.batch_number;
        self.batch_number += 1;
        let (reply, on_failure) = classic_reply(b"OK\r\n", noreply);
        let (command, started) = (Some(Command::FlushAll), session.started);
        session.output.append_await(Await { batch, reply, write_bytes: 0, on_failure, command, started });
        let at = if delay > 0 { expires_at(delay, self.rule.now_seconds) } else { 0 };
        let at = if at > self.rule.now_seconds { at } else { 0 };
        let (inbox, connection) = (Arc::clone(&self.inbox), session.token);
        self.durable.flush(
            at,
            Box::new(move |result| inbox.post(Message::Completed { batch, connections: vec![connection], result })),
        );
    }
}

/// Largest item that `incr` looks at: memcached keeps larger ones in chunks, which are no numbers to it.
const NUMBER_BYTES_MAX: usize = 512 << 10;

pub(crate) const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// What arithmetic makes of an item.
pub(crate) enum Delta {
    /// `data` starts with the result, of `digits` bytes.
    Changed {
        header: Header,
        data: Vec<u8>,
        digits: usize,
    },
    NotFound,
    NotNumeric,
}

/// Why nothing was stored, if so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    None,
    NotStored,
    Exists,
    NotFound,
}

pub(crate) fn classic_reply<V>(text: &'static [u8], noreply: bool) -> (Reply<V>, OnFailure) {
    if noreply { (Reply::Static(b""), OnFailure::Silence) } else { (Reply::Static(text), OnFailure::Report) }
}

fn store_command(store: &Store<'_>) -> Command {
    match store.mode {
        _ if store.meta.is_some() => Command::MetaSet,
        StoreMode::Set => Command::Set,
        StoreMode::Add => Command::Add,
        StoreMode::Replace => Command::Replace,
        StoreMode::Append => Command::Append,
        StoreMode::Prepend => Command::Prepend,
        StoreMode::Cas => Command::Cas,
    }
}

fn push_store_answer(out: &mut Vec<u8>, store: &Store<'_>, refusal: Refusal, cas: u64) {
    let Some(meta) = &store.meta else {
        if !store.noreply {
            out.extend_from_slice(match refusal {
                Refusal::None => b"STORED\r\n",
                Refusal::NotStored => b"NOT_STORED\r\n",
                Refusal::Exists => b"EXISTS\r\n",
                Refusal::NotFound => b"NOT_FOUND\r\n",
            });
        }
        return;
    };
    out.extend_from_slice(match refusal {
        Refusal::None => b"HD",
        Refusal::NotStored => b"NS",
        Refusal::Exists => b"EX",
        Refusal::NotFound => b"NF",
    });
    let key: &Cow<'_, [u8]> = &store.key;
    for token in meta.tokens.as_slice() {
        match token.first() {
            Some(b'O') => crate::meta::push_token(out, token),
            Some(b'k') => crate::meta::push_key(out, key, meta.binary_key),
            Some(b'c') => crate::meta::push_number(out, b'c', cas),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn push_value_line(out: &mut Vec<u8>, key: &[u8], header: &Header, length: usize, with_cas: bool) {
    out.reserve(key.len() + 64 + if length < COPY_BYTES_MAX { length } else { 0 });
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    push_decimal(out, u64::from(header.flags));
    out.push(b' ');
    push_decimal(out, length as u64);
    if with_cas {
        out.push(b' ');
        push_decimal(out, header.cas);
    }
    out.extend_from_slice(b"\r\n");
}
