//! The meta commands `mg`, `md`, `ma` and `me`; `ms` is a storage command like the others.
//!
//! Response flags come in the order of the request's flags, and the flags that change the item act in that order too:
//! `mg a t T30` reports the remaining time before the change, `mg a T30 t` after it.
//!
//! *Stale* and *won* live in the item: `md ... I` marks it stale. The first reader gets `W`, and that is written down,
//! which turns this one read into a write. Later readers get `Z`, until the item is set again. A user without the right
//! to write gets `Z`, too, and the next one may win.
//!
//! **Versions.** Flags of memcached 1.6.18 act as there. The following flags came later and act as in 1.6.42. `E` gives
//! the item a cas id (in `mg` only one that `N` creates). `C` of `mg` leaves out the value of an item with that cas id.
//! `s` of `ms` returns the size that was stored. `N` of `ms` lets `MA` and `MP` create the item. `x` of `md` leaves the
//! item there, empty, with the flags and the expiration time of the command (`F`, `T`, or none). Without `E` or `I`,
//! the item then keeps its old cas id.

use crate::admin::dump::size_as_memcached;
use crate::admin::metrics::{Command, Counter};
use crate::commands::classic::{Delta, NOT_NUMERIC};
use crate::commands::execute::{Executor, Glance, Item, Outcome, Session};
use crate::commands::meta_flags::{push_bare, push_key, push_number, push_token, push_ttl};
use crate::commands::output::{OnFailure, Reply};
use crate::engine::item::{BINARY_KEY, Header, STALE, TOKEN_SENT};
use crate::engine::{Engine, EngineError};
use crate::protocol::base64;
use crate::protocol::number::push_decimal;
use crate::protocol::parse::Meta;
use crate::protocol::rights::Rights;

/// Returns the answer to an item that is deleted.
fn deleted<V>(key: &[u8], meta: &Meta<'_>) -> Reply<V> {
    if meta.quiet {
        return Reply::Static(b"");
    }
    let mut text = Vec::with_capacity(32);
    push_bare(&mut text, b"HD", key, meta);
    Reply::Bytes(text)
}

/// Returns the header of an item that `mg` or `ma` creates.
fn fresh_header(meta: &Meta<'_>, id: u64) -> Header {
    let state = if meta.binary_key { BINARY_KEY } else { 0 };
    Header { state, flags: 0, expires: 0, id, given_cas: meta.new_cas }
}

/// Returns the header as a client sees it. To a client that may not set the item, another one has won already.
fn seen(header: &Header, rights: Rights) -> Header {
    let state = match header.state & STALE != 0 && !rights.contain(Rights::WRITE) {
        true => header.state | TOKEN_SENT,
        false => header.state,
    };
    Header { state, ..*header }
}

/// Returns true if an `mg` that hit an item with `header` returns its value: a client that gives the cas id has it.
fn wants_value(meta: &Meta<'_>, header: &Header) -> bool {
    meta.value && meta.cas != Some(header.cas())
}

impl<E: Engine> Executor<E> {
    pub(crate) fn meta_get(&mut self, session: &mut Session<E::Value>, key: &[u8], meta: &Meta<'_>) -> Outcome {
        // With a stripe, and with what was read under it, the command has been here before.
        let must_own = meta.changes_item || session.granted.is_some() && !session.reads.is_empty();
        if !must_own {
            let rights = session.rights;
            let must_win = |header: &Header| seen(header, rights).state & (STALE | TOKEN_SENT) == STALE;
            let glance = self.glance(session, key, meta.value, |output, header, data| {
                let is_shown = !must_win(header);
                if is_shown {
                    let mut header = seen(header, rights);
                    output.append(|out| {
                        self.push_meta_hit(out, key, meta, &mut header, data.len(), false);
                        if wants_value(meta, &header) {
                            out.extend_from_slice(data);
                            out.extend_from_slice(b"\r\n");
                        }
                    });
                }
                is_shown
            });
            let loaded = match glance {
                Glance::Shown => {
                    self.count_meta_hit(key, meta);
                    self.answer(session, Command::MetaGet, |_| {});
                    return Outcome::Done;
                }
                Glance::Loaded(loaded) => Ok(loaded),
                Glance::Ask => self.load_ordered(session, key),
            };
            let item = match loaded {
                Ok(Ok(item)) => item,
                Ok(Err(error)) => {
                    self.fail(session, Command::MetaGet, &error, false);
                    return Outcome::Done;
                }
                Err(wait) => return Outcome::Wait(wait),
            };
            if !item.as_ref().is_some_and(|item| must_win(&item.header)) {
                self.meta_get_answer(session, key, meta, item);
                return Outcome::Done;
            }
        }
        let (stripe, loaded) = match self.own_and_load(session, key) {
            Ok(loaded) => loaded,
            Err(wait) => return Outcome::Wait(wait),
        };
        let old = match loaded {
            Ok(old) => old,
            Err(error) => {
                self.stripes.release(stripe);
                self.fail(session, Command::MetaGet, &error, false);
                return Outcome::Done;
            }
        };
        let created = old.is_none() && meta.vivify.is_some();
        let mut header = match (&old, created) {
            (Some(item), _) => item.header,
            (None, false) => {
                self.stripes.release(stripe);
                self.meta_get_answer(session, key, meta, None);
                return Outcome::Done;
            }
            (None, true) => match self.durable.next_cas() {
                Ok(id) => {
                    self.access.stored(key, self.moment.rule.now_seconds);
                    self.counters.add(Counter::TotalItems, 1);
                    fresh_header(meta, id)
                }
                Err(error) => {
                    self.stripes.release(stripe);
                    self.fail(session, Command::MetaGet, &error, false);
                    return Outcome::Done;
                }
            },
        };
        let length = old.as_ref().map(Item::data).unwrap_or_default().len();
        let mut line = Vec::with_capacity(64 + key.len());
        self.push_meta_hit(&mut line, key, meta, &mut header, length, created);
        self.count_meta_hit(key, meta);
        match old {
            Some(item) if item.header == header => {
                self.stripes.release(stripe);
                session.output.append(|out| out.extend_from_slice(&line));
                self.finish_meta_hit(session, meta, item);
            }
            Some(item) if wants_value(meta, &header) => {
                let (command, report) = (Some(Command::MetaGet), OnFailure::Report);
                self.put_and_return(session, stripe, command, (key, header), item, line, report);
            }
            old => {
                if wants_value(meta, &header) {
                    // Created just now: its data is empty.
                    line.extend_from_slice(b"\r\n");
                }
                let data = old.as_ref().map(Item::data).unwrap_or_default();
                let (reply, report) = (Reply::Bytes(line), OnFailure::Report);
                self.put(session, stripe, Some(Command::MetaGet), key, header, [data, b""], reply, report);
            }
        }
        Outcome::Done
    }

    /// Ends the answer of an `mg` that hit, after its line.
    fn finish_meta_hit(&self, session: &mut Session<E::Value>, meta: &Meta<'_>, item: Item<E::Value>) {
        let value = wants_value(meta, &item.header);
        if value {
            session.output.append_value(item.value, item.header.byte_len());
        }
        self.answer(session, Command::MetaGet, |out| {
            if value {
                out.extend_from_slice(b"\r\n");
            }
        });
    }

    fn count_meta_hit(&self, key: &[u8], meta: &Meta<'_>) {
        self.counters.add(Counter::Keys, 1);
        self.counters.add(if meta.ttl.is_some() { Counter::TouchHits } else { Counter::GetHits }, 1);
        if !meta.no_update {
            self.access.fetched(key, self.moment.rule.now_seconds);
        }
    }

    /// Returns the answer of an `mg` that changes nothing.
    fn meta_get_answer(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
        meta: &Meta<'_>,
        item: Option<Item<E::Value>>,
    ) {
        let Some(item) = item else {
            // As memcached counts: a miss is a miss of a get, whatever a hit would have been.
            self.counters.add(Counter::Keys, 1);
            self.counters.add(Counter::GetMisses, 1);
            self.answer(session, Command::MetaGet, |out| {
                if !meta.quiet {
                    push_bare(out, b"EN", key, meta);
                }
            });
            return;
        };
        let mut header = seen(&item.header, session.rights);
        session.output.append(|out| self.push_meta_hit(out, key, meta, &mut header, item.data().len(), false));
        self.count_meta_hit(key, meta);
        self.finish_meta_hit(session, meta, item);
    }

    /// The answer line of an `mg` that hit; changes `header` as the flags ask.
    fn push_meta_hit(
        &self,
        out: &mut Vec<u8>,
        key: &[u8],
        meta: &Meta<'_>,
        header: &mut Header,
        length: usize,
        created: bool,
    ) {
        let now = self.moment.rule.now_seconds;
        let mut won = false;
        if wants_value(meta, header) {
            out.extend_from_slice(b"VA ");
            push_decimal(out, length as u64);
        } else {
            out.extend_from_slice(b"HD");
        }
        for token in meta.tokens.iter() {
            match token.first() {
                Some(b'T') => header.expires = self.expires_at(meta.ttl.unwrap_or(0)),
                Some(b'N') if created => {
                    header.expires = self.expires_at(meta.vivify.unwrap_or(0));
                    won = true;
                }
                Some(b'R') => {
                    let recache = self.expires_at(meta.recache.unwrap_or(0));
                    won |=
                        !created && header.state & TOKEN_SENT == 0 && header.expires != 0 && header.expires < recache;
                }
                Some(b's') => push_number(out, b's', length as u64),
                Some(b't') => push_ttl(out, header, now),
                Some(b'c') => push_number(out, b'c', header.cas()),
                Some(b'f') => push_number(out, b'f', u64::from(header.flags)),
                Some(b'l') => push_number(out, b'l', now.saturating_sub(self.access.get(key).last)),
                Some(b'h') => push_number(out, b'h', u64::from(self.access.get(key).fetched)),
                Some(b'O') => push_token(out, token),
                Some(b'k') => push_key(out, key, header.state & BINARY_KEY != 0),
                _ => {}
            }
        }
        let sent = header.state & TOKEN_SENT != 0;
        if sent {
            out.extend_from_slice(b" Z");
        }
        if header.state & STALE != 0 {
            out.extend_from_slice(b" X");
            won |= !sent;
        }
        if won {
            out.extend_from_slice(b" W");
            header.state |= TOKEN_SENT;
        }
        out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn meta_delete(&mut self, session: &mut Session<E::Value>, key: &[u8], meta: &Meta<'_>) -> Outcome {
        const COMMAND: Command = Command::MetaDelete;
        let (stripe, loaded) = match self.own_and_load(session, key) {
            Ok(loaded) => loaded,
            Err(wait) => return Outcome::Wait(wait),
        };
        let leaves_nothing = !meta.invalidate && !meta.remove_value;
        let code: &[u8] = match loaded {
            // Also an item that cannot be read goes, unless the answer depends on what it is.
            Err(_) if meta.cas.is_none() && leaves_nothing => {
                self.counters.add(Counter::DeleteHits, 1);
                let reply = deleted(key, meta);
                self.remove(session, stripe, COMMAND, key, reply, OnFailure::Report);
                return Outcome::Done;
            }
            Err(error) => {
                self.stripes.release(stripe);
                self.fail(session, COMMAND, &error, false);
                return Outcome::Done;
            }
            Ok(None) => b"NF",
            Ok(Some(item)) if meta.cas.is_some_and(|cas| cas != item.header.cas()) => b"EX",
            Ok(Some(item)) => {
                let reply = deleted(key, meta);
                let header = match self.header_after_delete(meta, &item.header) {
                    Ok(header) => header,
                    Err(error) => {
                        self.stripes.release(stripe);
                        self.fail(session, COMMAND, &error, false);
                        return Outcome::Done;
                    }
                };
                if !meta.invalidate {
                    self.counters.add(Counter::DeleteHits, 1);
                }
                let (data, report) = (if meta.remove_value { b"" } else { item.data() }, OnFailure::Report);
                match header {
                    None => self.remove(session, stripe, COMMAND, key, reply, report),
                    Some(header) => {
                        self.put(session, stripe, Some(COMMAND), key, header, [data, b""], reply, report);
                    }
                }
                return Outcome::Done;
            }
        };
        self.stripes.release(stripe);
        self.counters.add(Counter::DeleteMisses, 1);
        self.answer(session, COMMAND, |out| push_bare(out, code, key, meta));
        Outcome::Done
    }

    /// Returns the header of the item that `md` leaves, or `None` if it leaves none.
    fn header_after_delete(&self, meta: &Meta<'_>, old: &Header) -> Result<Option<Header>, EngineError> {
        let ttl = meta.ttl.map(|ttl| self.expires_at(ttl));
        let mut header = *old;
        if meta.remove_value {
            header = Header {
                state: old.state & BINARY_KEY,
                flags: meta.flags,
                expires: ttl.unwrap_or(0),
                given_cas: meta.new_cas.or(old.given_cas),
                ..header
            };
        }
        if meta.invalidate {
            header.state = header.state & !TOKEN_SENT | STALE;
            header.expires = ttl.unwrap_or(header.expires);
            header.given_cas = meta.new_cas;
            header.id = self.durable.next_cas()?;
        }
        Ok((meta.remove_value || meta.invalidate).then_some(header))
    }

    pub(crate) fn meta_arithmetic(
        &mut self,
        session: &mut Session<E::Value>,
        key: &[u8],
        increment: bool,
        meta: &Meta<'_>,
    ) -> Outcome {
        const COMMAND: Command = Command::MetaArithmetic;
        let (stripe, loaded) = match self.own_and_load(session, key) {
            Ok(loaded) => loaded,
            Err(wait) => return Outcome::Wait(wait),
        };
        let mut created = false;
        let delta = loaded.and_then(|item| {
            let wanted = meta.cas.filter(|cas| *cas != 0);
            // A value that is no number is reported before a cas id that does not match.
            if let (Some(item), Some(wanted)) = (&item, wanted)
                && item.header.cas() != wanted
                && !item.data().is_empty()
            {
                return Ok(None);
            }
            let mut delta = self.apply_delta(item, increment, meta.delta)?;
            if let (Delta::NotFound, Some(_)) = (&delta, meta.vivify) {
                let mut data = Vec::with_capacity(20);
                push_decimal(&mut data, meta.initial);
                let header = fresh_header(meta, self.durable.next_cas()?);
                created = true;
                delta = Delta::Changed { header, digits: data.len(), data };
            }
            Ok(Some(delta))
        });
        match delta {
            Ok(Some(Delta::Changed { mut header, data, digits })) => {
                if created {
                    self.access.stored(key, self.moment.rule.now_seconds);
                }
                header.given_cas = meta.new_cas;
                let text = self.arithmetic_answer(key, meta, &mut header, &data[..digits], created);
                let reply = if meta.quiet && !created { Reply::Static(b"") } else { Reply::Bytes(text) };
                self.put(session, stripe, Some(COMMAND), key, header, [&data, b""], reply, OnFailure::Report);
            }
            other => {
                self.stripes.release(stripe);
                match other {
                    Err(error) => self.fail(session, COMMAND, &error, false),
                    Ok(Some(Delta::NotNumeric)) => self.say(session, COMMAND, NOT_NUMERIC, false),
                    Ok(None) => self.answer(session, COMMAND, |out| push_bare(out, b"EX", key, meta)),
                    Ok(Some(_)) => self.answer(session, COMMAND, |out| push_bare(out, b"NF", key, meta)),
                }
            }
        }
        Outcome::Done
    }

    fn arithmetic_answer(
        &self,
        key: &[u8],
        meta: &Meta<'_>,
        header: &mut Header,
        number: &[u8],
        created: bool,
    ) -> Vec<u8> {
        let now = self.moment.rule.now_seconds;
        let mut text = Vec::with_capacity(64);
        if meta.value {
            text.extend_from_slice(b"VA ");
            push_decimal(&mut text, number.len() as u64);
        } else {
            text.extend_from_slice(b"HD");
        }
        for token in meta.tokens.iter() {
            match token.first() {
                Some(b'c') => push_number(&mut text, b'c', header.cas()),
                Some(b't') => push_ttl(&mut text, header, now),
                Some(b'T') => header.expires = self.expires_at(meta.ttl.unwrap_or(0)),
                Some(b'N') if created => header.expires = self.expires_at(meta.vivify.unwrap_or(0)),
                Some(b'O') => push_token(&mut text, token),
                Some(b'k') => push_key(&mut text, key, meta.binary_key),
                _ => {}
            }
        }
        text.extend_from_slice(b"\r\n");
        if meta.value {
            text.extend_from_slice(number);
            text.extend_from_slice(b"\r\n");
        }
        text
    }

    pub(crate) fn meta_debug(&mut self, session: &mut Session<E::Value>, key: &[u8]) -> Outcome {
        let item = match self.load_ordered(session, key) {
            Ok(Ok(item)) => item,
            Ok(Err(error)) => {
                self.fail(session, Command::MetaDebug, &error, false);
                return Outcome::Done;
            }
            Err(wait) => return Outcome::Wait(wait),
        };
        let Some(item) = item else {
            self.say(session, Command::MetaDebug, "EN", false);
            return Outcome::Done;
        };
        let (now, access) = (self.moment.rule.now_seconds, self.access.get(key));
        let size = size_as_memcached(key, item.header.flags, item.data().len());
        let expires = match item.header.expires {
            0 => -1,
            expires => now.wrapping_sub(expires) as i64,
        };
        let text = format!(
            " exp={expires} la={} cas={} fetch={} cls=1 size={size}\r\n",
            now.saturating_sub(access.last),
            item.header.cas(),
            if access.fetched { "yes" } else { "no" },
        );
        self.answer(session, Command::MetaDebug, |out| {
            out.extend_from_slice(b"ME ");
            if item.header.state & BINARY_KEY != 0 {
                base64::push_encoded(out, key);
            } else {
                out.extend_from_slice(key);
            }
            out.extend_from_slice(text.as_bytes());
        });
        Outcome::Done
    }
}
