//! The classic commands against the engine, and `ms`, which is a storage command like the others; what the other meta
//! commands share with them is here, too.

use std::borrow::Cow;
use std::sync::Arc;

use crate::admin::metrics::{Command, Counter};
use crate::admin::prefixes::Event;
use crate::commands::execute::{Executor, Glance, Item, Outcome, Session};
use crate::commands::meta_flags;
use crate::commands::output::{Await, OnFailure, Reply, push_server_error};
use crate::engine::cache::CacheExtras;
use crate::engine::item::{BINARY_KEY, Header, STALE, TOKEN_SENT};
use crate::engine::{COPY_BYTES_MAX, ChangeInParts, Engine, EngineError};
use crate::protocol::interests;
use crate::protocol::number::{parse_u64, push_decimal};
use crate::protocol::parse::{Request, Store, StoreMode, next_key};
use crate::protocol::rights::Rights;
use crate::waiting::Wait;
use crate::waiting::inbox::Message;

impl<E: Engine> Executor<E> {
    pub(crate) fn get(&mut self, session: &mut Session<E::Value>, keys: &[u8], with_cas: bool) -> Outcome {
        while let Some((key, next)) = next_key(keys, session.resume) {
            if session.output.pending_bytes() >= self.quotas.share.output_bytes_max {
                return Outcome::Wait(Wait::Output);
            }
            // The first key is counted with its command.
            let is_first = session.resume == 0;
            if !is_first && self.quotas.commands_left == 0 {
                return Outcome::Wait(Wait::Turn);
            }
            let glance = self.glance(session, key, true, |output, header, data| {
                output.append(|out| {
                    push_value_line(out, key, header, data.len(), with_cas);
                    out.extend_from_slice(data);
                    out.extend_from_slice(b"\r\n");
                });
                true
            });
            let is_shown = matches!(glance, Glance::Shown);
            let loaded = match glance {
                Glance::Shown => Ok(Ok(None)),
                Glance::Loaded(loaded) => Ok(loaded),
                Glance::Ask => self.load_ordered(session, key),
            };
            let item = match loaded {
                Ok(Ok(item)) => item,
                Ok(Err(error)) => {
                    session.resume = 0;
                    self.fail(session, Command::Get, &error, false);
                    return Outcome::Done;
                }
                Err(wait) => {
                    if wait == Wait::Read {
                        self.read_ahead(session, keys, next);
                    }
                    return Outcome::Wait(wait);
                }
            };
            self.counters.add(Counter::Keys, 1);
            self.quotas.use_commands(usize::from(!is_first));
            session.resume = next;
            let is_hit = is_shown || item.is_some();
            self.stats.prefixes.count(key, if is_hit { Event::Hit } else { Event::Miss });
            self.counters.add(if is_hit { Counter::GetHits } else { Counter::GetMisses }, 1);
            if is_hit {
                self.access.fetched(key, self.moment.rule.now_seconds);
            }
            let Some(item) = item else { continue };
            session.output.append(|out| push_value_line(out, key, &item.header, item.data().len(), with_cas));
            session.output.append_value(item.value, item.header.byte_len());
            session.output.append(|out| out.extend_from_slice(b"\r\n"));
        }
        session.resume = 0;
        self.answer(session, Command::Get, |out| out.extend_from_slice(b"END\r\n"));
        Outcome::Done
    }

    pub(crate) fn get_and_touch(
        &mut self,
        session: &mut Session<E::Value>,
        keys: &[u8],
        with_cas: bool,
        expires: i32,
    ) -> Outcome {
        // A write of an earlier key may have failed since.
        if session.output.take_cut_short() {
            return self.end_cut_short(session);
        }
        while let Some((key, next)) = next_key(keys, session.resume) {
            if let Some(wait) = self.check(session) {
                return Outcome::Wait(wait);
            }
            let (stripe, loaded) = match self.own_and_load(session, key) {
                Ok(loaded) => loaded,
                Err(wait) => return Outcome::Wait(wait),
            };
            let item = match loaded {
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
            self.quotas.use_commands(usize::from(session.resume > 0));
            session.resume = next;
            self.stats.prefixes.count(key, if item.is_some() { Event::Hit } else { Event::Miss });
            let Some(item) = item else {
                self.counters.add(Counter::TouchMisses, 1);
                self.stripes.release(stripe);
                continue;
            };
            self.counters.add(Counter::TouchHits, 1);
            self.access.fetched(key, self.moment.rule.now_seconds);
            let mut line = Vec::new();
            push_value_line(&mut line, key, &item.header, item.data().len(), with_cas);
            let header = Header { expires: self.expires_at(expires), ..item.header };
            if header == item.header {
                self.stripes.release(stripe);
                session.output.append(|out| out.extend_from_slice(&line));
                session.output.append_value(item.value, item.header.byte_len());
                session.output.append(|out| out.extend_from_slice(b"\r\n"));
                continue;
            }
            self.put_and_return(session, stripe, None, (key, header), item, line, OnFailure::EndAnswer);
            if session.output.take_cut_short() {
                return self.end_cut_short(session);
            }
        }
        session.resume = 0;
        session.output.append_end(b"END\r\n".to_vec());
        self.answer(session, Command::GetAndTouch, |_| {});
        Outcome::Done
    }

    /// Ends a retrieval whose answer an error has ended.
    fn end_cut_short(&self, session: &mut Session<E::Value>) -> Outcome {
        session.resume = 0;
        self.answer(session, Command::GetAndTouch, |_| {});
        Outcome::Done
    }

    /// Refuses a value over a limit. As in memcached, a `set` leaves no older value behind to be read by mistake: an
    /// item that cannot be read is removed, too, and the client gets the reason why it could not be read, or why it is
    /// still there.
    pub(crate) fn refuse(&mut self, session: &mut Session<E::Value>, store: &Store<'_>, why: Unstorable) -> Outcome {
        // The value goes, and so does the old item, which is a change.
        if !session.rights.contain(Rights::WRITE) {
            self.forbid(session, &Request::Store(store.clone()));
            return Outcome::Done;
        }
        let command = store_command(store);
        let silent = store.noreply && store.meta.is_none();
        let (text, status, counter): (&'static [u8], _, _) = match why {
            Unstorable::TooLarge => {
                (b"SERVER_ERROR object too large for cache\r\n", "too_large", Counter::StoreTooLarge)
            }
            Unstorable::NoMemory => {
                (b"SERVER_ERROR out of memory storing object\r\n", "no_memory", Counter::StoreNoMemory)
            }
        };
        let text = if silent { b"" } else { text };
        if store.mode == StoreMode::Set || store.meta.is_some() {
            let (stripe, loaded) = match self.own_and_load(session, &store.key) {
                Ok(loaded) => loaded,
                Err(wait) => return Outcome::Wait(wait),
            };
            let reply = match loaded {
                Ok(None) => None,
                Err(error) if !silent => {
                    let mut text = Vec::new();
                    push_server_error(&mut text, &error);
                    Some(Reply::Bytes(text))
                }
                Ok(Some(_)) | Err(_) => Some(Reply::Static(text)),
            };
            if let Some(reply) = reply {
                let on_failure = if silent { OnFailure::Silence } else { OnFailure::Report };
                self.remove(session, stripe, command, &store.key, reply, on_failure);
                self.counters.add(counter, 1);
                self.count_store(store);
                self.tell_store(session, store, status, store.length);
                return Outcome::Done;
            }
            self.stripes.release(stripe);
        }
        self.counters.add(counter, 1);
        self.count_store(store);
        self.tell_store(session, store, status, store.length);
        self.answer(session, command, |out| out.extend_from_slice(text));
        Outcome::Done
    }

    pub(crate) fn store(&mut self, session: &mut Session<E::Value>, store: &Store<'_>, data: &[u8]) -> Outcome {
        let key: &[u8] = &store.key;
        let command = store_command(store);
        // Errors of meta commands are never silent.
        let silent = store.noreply && store.meta.is_none();
        if let Some(cache) = self.engine.cache()
            && store.mode == StoreMode::Set
            && session.granted.is_none()
        {
            let set = || self.set_at_once(cache, session, store, data);
            let made = self.stripes.while_free(self.stripes.of(key), set);
            if made.is_some() {
                return Outcome::Done;
            }
        }
        let owned = match store.mode {
            StoreMode::Set => self.own(session, key).map(|stripe| (stripe, Ok(None))),
            _ => self.own_and_load(session, key),
        };
        let (stripe, loaded) = match owned {
            Ok(owned) => owned,
            Err(wait) => return Outcome::Wait(wait),
        };
        self.count_store(store);
        let old = match loaded {
            Ok(old) => old,
            Err(error) => {
                self.stripes.release(stripe);
                self.fail(session, command, &error, silent);
                return Outcome::Done;
            }
        };
        let decision = self.decide(store, old.as_ref(), self.fresh_header(store), data);
        let (header, parts) = match decision {
            Ok(decided) => decided,
            Err(refusal) => {
                self.stripes.release(stripe);
                let status = match refusal {
                    Refusal::None | Refusal::NotStored => "not_stored",
                    Refusal::Exists => "exists",
                    Refusal::NotFound => "not_found",
                };
                self.tell_store(session, store, status, data.len());
                self.answer(session, command, |out| push_store_answer(out, store, refusal, 0, data.len()));
                return Outcome::Done;
            }
        };
        match self.accept(session, store, header, parts) {
            Ok((header, reply)) => {
                let on_failure = if silent { OnFailure::Silence } else { OnFailure::Report };
                self.put(session, stripe, Some(command), key, header, parts, reply, on_failure);
            }
            Err(error) => {
                self.stripes.release(stripe);
                self.fail(session, command, &error, silent);
            }
        }
        Outcome::Done
    }

    /// Stores a value unconditionally, with an engine that makes changes at once. The stripe has no owner meanwhile.
    fn set_at_once(&self, cache: &E::Cache, session: &mut Session<E::Value>, store: &Store<'_>, data: &[u8]) {
        let (key, command) = (&store.key, store_command(store));
        let silent = store.noreply && store.meta.is_none();
        self.count_store(store);
        let (header, reply) = match self.accept(session, store, self.fresh_header(store), [data, b""]) {
            Ok(accepted) => accepted,
            Err(error) => return self.fail(session, command, &error, silent),
        };
        let header = header.encode();
        let change = ChangeInParts::Put { key, parts: [&header, data, b""] };
        self.has_copied(data.len());
        let outcome = cache.write_at_once(change);
        let on_failure = if silent { OnFailure::Silence } else { OnFailure::Report };
        self.made(session, Some(command), outcome, reply, on_failure);
    }

    /// Returns the header of an item that is stored, but for its cas ids.
    fn fresh_header(&self, store: &Store<'_>) -> Header {
        let binary = store.meta.as_ref().is_some_and(|meta| meta.binary_key);
        Header {
            state: if binary { BINARY_KEY } else { 0 },
            flags: store.flags,
            expires: self.expires_at(store.expires),
            id: 0,
            given_cas: None,
        }
    }

    /// Gives an item that is about to be stored its cas ids, and counts it. Its header, and the answer.
    fn accept(
        &self,
        session: &mut Session<E::Value>,
        store: &Store<'_>,
        header: Header,
        parts: [&[u8]; 2],
    ) -> Result<(Header, Reply<E::Value>), EngineError> {
        let id = self.durable.next_cas()?;
        let length = parts[0].len() + parts[1].len();
        // As in memcached, storing takes 0 for no cas id; the other commands take it for one.
        let given_cas = store.meta.as_ref().and_then(|meta| meta.new_cas).filter(|cas| *cas != 0);
        let header = Header { id, given_cas, ..header };
        self.counters.add(Counter::TotalItems, 1);
        self.access.stored(&store.key, self.moment.rule.now_seconds);
        self.tell_store(session, store, "stored", length);
        let reply = match (&store.meta, store.noreply) {
            (_, true) => Reply::Static(b""),
            (None, false) => Reply::Static(b"STORED\r\n"),
            (Some(meta), false) if meta.tokens.is_empty() => Reply::Static(b"HD\r\n"),
            (Some(_), false) => {
                let mut text = Vec::with_capacity(64);
                push_store_answer(&mut text, store, Refusal::None, header.cas(), length);
                Reply::Bytes(text)
            }
        };
        Ok((header, reply))
    }

    /// Tells watchers of a storage command, and the trace.
    fn tell_store(&self, session: &mut Session<E::Value>, store: &Store<'_>, status: &str, bytes: usize) {
        if let Some(noted) = &mut session.noted {
            noted.is_stored = status == "stored";
        }
        if self.stats.watchers.want(interests::MUTATIONS) {
            let (key, how) = (&store.key, (store.mode, store.expires));
            self.stats.watchers.stored(key, status, how, session.descriptor, bytes);
        }
    }

    fn count_store(&self, store: &Store<'_>) {
        if store.meta.is_none() {
            self.stats.prefixes.count(&store.key, Event::Set);
        }
    }

    /// Decides the effect of a storage command on the existing item. Returns the new header (but for its cas ids) and
    /// data, or the refusal.
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
                StoreMode::Replace => Err(Refusal::NotStored),
                StoreMode::Append | StoreMode::Prepend => {
                    let vivify = store.meta.as_ref().and_then(|meta| meta.vivify).ok_or(Refusal::NotStored)?;
                    Ok((Header { expires: self.expires_at(vivify), ..fresh }, plain.1))
                }
            };
        };
        match store.mode {
            StoreMode::Set | StoreMode::Replace => Ok(plain),
            StoreMode::Add => Err(Refusal::NotStored),
            StoreMode::Cas if store.cas != 0 && store.cas == old.header.cas() => {
                self.counters.add(Counter::CasHits, 1);
                Ok(plain)
            }
            StoreMode::Cas => {
                let stale_allowed = store.meta.as_ref().is_some_and(|meta| meta.invalidate);
                if stale_allowed && store.cas != 0 && store.cas < old.header.cas() {
                    // Late but better than nothing: kept as stale, and the client that won the right to recache keeps
                    // the right.
                    self.counters.add(Counter::CasHits, 1);
                    let state = fresh.state | STALE | (old.header.state & TOKEN_SENT);
                    return Ok((Header { state, expires: old.header.expires, ..fresh }, plain.1));
                }
                self.counters.add(Counter::CasBad, 1);
                Err(Refusal::Exists)
            }
            StoreMode::Append | StoreMode::Prepend => {
                if store.cas != 0 && store.cas != old.header.cas() {
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

    pub(crate) fn delete(&mut self, session: &mut Session<E::Value>, key: &[u8], noreply: bool) -> Outcome {
        // Only an answer needs to know whether the item was alive, which may take a read of flash.
        if noreply
            && let Some(cache) = self.engine.cache()
            && session.granted.is_none()
        {
            let delete = || cache.delete_unread(key);
            if let Some(was_there) = self.stripes.while_free(self.stripes.of(key), delete) {
                self.stats.prefixes.count(key, Event::Delete);
                self.counters.add(if was_there { Counter::DeleteHits } else { Counter::DeleteMisses }, 1);
                self.answer(session, Command::Delete, |_| {});
                return Outcome::Done;
            }
        }
        let (stripe, loaded) = match self.own_and_load(session, key) {
            Ok(loaded) => loaded,
            Err(wait) => return Outcome::Wait(wait),
        };
        self.stats.prefixes.count(key, Event::Delete);
        match loaded {
            // Also an item that cannot be read goes: that is how a user gets rid of a damaged one.
            Ok(Some(_)) | Err(_) => {
                self.counters.add(Counter::DeleteHits, 1);
                let (reply, on_failure) = classic_reply(b"DELETED\r\n", noreply);
                self.remove(session, stripe, Command::Delete, key, reply, on_failure);
            }
            Ok(None) => {
                self.stripes.release(stripe);
                self.counters.add(Counter::DeleteMisses, 1);
                self.say(session, Command::Delete, "NOT_FOUND", noreply);
            }
        }
        Outcome::Done
    }

    pub(crate) fn touch(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
        expires: i32,
        noreply: bool,
    ) -> Outcome {
        let (stripe, loaded) = match self.own_and_load(session, key) {
            Ok(loaded) => loaded,
            Err(wait) => return Outcome::Wait(wait),
        };
        match loaded {
            Ok(Some(item)) => {
                self.counters.add(Counter::TouchHits, 1);
                self.access.fetched(key, self.moment.rule.now_seconds);
                let header = Header { expires: self.expires_at(expires), ..item.header };
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

    pub(crate) fn arithmetic(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
        delta: u64,
        increment: bool,
        noreply: bool,
    ) -> Outcome {
        let command = if increment { Command::Incr } else { Command::Decr };
        let (stripe, loaded) = match self.own_and_load(session, key) {
            Ok(loaded) => loaded,
            Err(wait) => return Outcome::Wait(wait),
        };
        match loaded.and_then(|item| self.apply_delta(item, increment, delta)) {
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

    /// Returns the item after `incr` or `decr`. A result with fewer digits is padded with spaces, as memcached does.
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
        let header = Header { id: self.durable.next_cas()?, given_cas: None, ..item.header };
        Ok(Delta::Changed { header, data, digits })
    }

    pub(crate) fn flush_all(&mut self, session: &mut Session<E::Value>, delay: i32, noreply: bool) {
        // Stores that were gathered before it have cas ids below the barrier: they are dead whenever the engine takes
        // them.
        let batch = self.batcher.take_number();
        let (reply, on_failure) = classic_reply(b"OK\r\n", noreply);
        self.end_lap(session);
        let (command, started) = (Some(Command::FlushAll), session.started);
        session.output.append_await(Await { batch, reply, write_bytes: 0, on_failure, command, started, traced: None });
        let at = if delay > 0 { self.expires_at(delay) } else { 0 };
        let at = if at > self.moment.rule.now_seconds { at } else { 0 };
        let (inbox, connection) = (Arc::clone(&self.inbox), session.token);
        self.durable.flush(
            at,
            Box::new(move |result| inbox.post(Message::Completed { batch, connections: vec![connection], result })),
        );
    }
}

/// The reason why a value is not taken at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unstorable {
    TooLarge,
    NoMemory,
}

/// Largest item that `incr` looks at: memcached keeps larger ones in chunks, which are no numbers to it.
const NUMBER_BYTES_MAX: usize = 512 << 10;

pub(crate) const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// The outcome of arithmetic on an item.
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

/// The reason why nothing was stored.
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

/// `length` is that of the item as it is stored, or of the data that is refused.
fn push_store_answer(out: &mut Vec<u8>, store: &Store<'_>, refusal: Refusal, cas: u64, length: usize) {
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
    for token in meta.tokens.iter() {
        match token.first() {
            Some(b'O') => meta_flags::push_token(out, token),
            Some(b'k') => meta_flags::push_key(out, key, meta.binary_key),
            Some(b'c') => meta_flags::push_number(out, b'c', cas),
            Some(b's') => meta_flags::push_number(out, b's', length as u64),
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
        push_decimal(out, header.cas());
    }
    out.extend_from_slice(b"\r\n");
}
