//! One command line to one [`Request`], exactly as memcached 1.6.18 understands it, with the flags of meta commands that
//! came later as memcached 1.6.42 understands them.
//!
//! The functions here are pure and total: any bytes give a request, and a line that memcached answers with an error
//! gives a [`Request::Answer`] that holds that error. Nothing is copied, except keys given in base64. The data block
//! of a storage command is not looked at here.
//!
//! Three rules of the original explain most of the code:
//!
//! 1. Tokens are separated by spaces only, and a NUL ends the line.
//! 2. `noreply` counts when it is the *last* token, and it silences errors of the classic commands too; errors of
//!    meta commands are always sent.
//! 3. A storage command that is wrong in its first tokens leaves its data block to be read as a command; one that is
//!    wrong later on has it swallowed.

use std::borrow::Cow;

use crate::base64;
use crate::number::{parse_i32, parse_u32, parse_u64};

/// Longest key in bytes, as the client wrote it.
pub(crate) const KEY_BYTES_MAX: usize = 250;
/// Largest length that a storage command may announce.
const LENGTH_MAX: i32 = i32::MAX - 2;
const TOKENS_MAX: usize = 23;
const META_TOKENS_MAX: usize = 19;
const OPAQUE_TOKEN_BYTES_MAX: usize = 32;

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";

/// What storing means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreMode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// A storage command without its data block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Store<'a> {
    pub(crate) mode: StoreMode,
    pub(crate) key: Cow<'a, [u8]>,
    pub(crate) flags: u32,
    pub(crate) expires: i32,
    pub(crate) length: usize,
    /// 0 asks for no comparison, except in [`StoreMode::Cas`], where it matches nothing.
    pub(crate) cas: u64,
    pub(crate) noreply: bool,
    /// `Some` for `ms`.
    pub(crate) meta: Option<Meta<'a>>,
}

/// The flags of a meta command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta<'a> {
    /// All tokens after the key (and length) in the order given.
    pub(crate) tokens: Tokens<'a>,
    pub(crate) binary_key: bool,
    pub(crate) quiet: bool,
    pub(crate) value: bool,
    pub(crate) no_update: bool,
    pub(crate) invalidate: bool,
    pub(crate) remove_value: bool,
    /// Some flag asks for the item to be held: `N`, `T`, `R`.
    pub(crate) changes_item: bool,
    pub(crate) vivify: Option<i32>,
    pub(crate) ttl: Option<i32>,
    pub(crate) recache: Option<i32>,
    pub(crate) cas: Option<u64>,
    /// The cas id that the item is to have.
    pub(crate) new_cas: Option<u64>,
    pub(crate) flags: u32,
    pub(crate) mode: Option<u8>,
    pub(crate) delta: u64,
    pub(crate) initial: u64,
}

/// One client command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`. `keys` is the rest of the line; no key in it is too long.
    Get {
        keys: &'a [u8],
        with_cas: bool,
        touch: Option<i32>,
    },
    /// Any storage command; a data block of `length` bytes and an end of line follow.
    Store(Store<'a>),
    Delete {
        key: &'a [u8],
        noreply: bool,
    },
    Arithmetic {
        key: &'a [u8],
        delta: u64,
        increment: bool,
        noreply: bool,
    },
    Touch {
        key: &'a [u8],
        expires: i32,
        noreply: bool,
    },
    MetaGet {
        key: Cow<'a, [u8]>,
        meta: Meta<'a>,
    },
    MetaDelete {
        key: Cow<'a, [u8]>,
        meta: Meta<'a>,
    },
    MetaArithmetic {
        key: Cow<'a, [u8]>,
        increment: bool,
        meta: Meta<'a>,
    },
    MetaDebug {
        key: Cow<'a, [u8]>,
    },
    /// `delay` in seconds or as Unix time; 0 or less is now.
    FlushAll {
        delay: i32,
        noreply: bool,
    },
    Stats {
        topic: &'a [u8],
    },
    StatsReset,
    Quit,
    /// An answer that needs no engine, errors above all. `swallow` bytes of data follow and are dropped.
    Answer {
        text: &'static str,
        noreply: bool,
        swallow: usize,
    },
}

fn answer<'a>(text: &'static str) -> Request<'a> {
    Request::Answer { text, noreply: false, swallow: 0 }
}

/// Up to 23 tokens of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens<'a> {
    list: [&'a [u8]; TOKENS_MAX],
    count: usize,
}

impl<'a> Tokens<'a> {
    fn split(line: &'a [u8]) -> Tokens<'a> {
        let mut tokens = Tokens { list: [&[]; TOKENS_MAX], count: 0 };
        for token in line.split(|byte| *byte == b' ').filter(|token| !token.is_empty()) {
            if tokens.count == TOKENS_MAX {
                break;
            }
            tokens.list[tokens.count] = token;
            tokens.count += 1;
        }
        tokens
    }

    fn skip(mut self, count: usize) -> Tokens<'a> {
        self.list.rotate_left(count.min(TOKENS_MAX));
        self.count = self.count.saturating_sub(count);
        self
    }

    /// The token at `index`, empty past the end.
    fn at(&self, index: usize) -> &'a [u8] {
        self.as_slice().get(index).copied().unwrap_or_default()
    }

    pub(crate) fn as_slice(&self) -> &[&'a [u8]] {
        &self.list[..self.count]
    }

    fn says_noreply(&self) -> bool {
        self.as_slice().last() == Some(&&b"noreply"[..])
    }
}

/// Understands one line, given without its end.
pub(crate) fn parse(line: &[u8]) -> Request<'_> {
    let line = match line.iter().position(|byte| *byte == 0) {
        Some(end) => &line[..end],
        None => line,
    };
    // The commonest command by far does not need its tokens in an array.
    if let Some(keys) = line.strip_prefix(b"get ") {
        return parse_get(keys, false, None);
    }
    let tokens = Tokens::split(line);
    let command = tokens.at(0);
    let count = tokens.count;
    let noreply = tokens.says_noreply();
    let rest = || {
        let start = line.iter().position(|byte| *byte != b' ').unwrap_or(0) + command.len();
        line.get(start..).unwrap_or_default()
    };
    match command {
        b"get" | b"bget" => parse_get(rest(), false, None),
        b"gets" => parse_get(rest(), true, None),
        b"gat" => parse_get_and_touch(&tokens, rest(), false),
        b"gats" => parse_get_and_touch(&tokens, rest(), true),
        b"set" => parse_store(&tokens, StoreMode::Set),
        b"add" => parse_store(&tokens, StoreMode::Add),
        b"replace" => parse_store(&tokens, StoreMode::Replace),
        b"append" => parse_store(&tokens, StoreMode::Append),
        b"prepend" => parse_store(&tokens, StoreMode::Prepend),
        b"cas" => parse_store(&tokens, StoreMode::Cas),
        b"delete" => parse_delete(&tokens),
        b"incr" => parse_arithmetic(&tokens, true),
        b"decr" => parse_arithmetic(&tokens, false),
        b"touch" => parse_touch(&tokens),
        b"mg" => parse_meta_get(&tokens),
        b"ms" => parse_meta_set(&tokens),
        b"md" => parse_meta_delete(&tokens),
        b"ma" => parse_meta_arithmetic(&tokens),
        b"mn" => answer("MN"),
        b"me" => parse_meta_debug(&tokens),
        b"flush_all" if (1..=3).contains(&count) => match tokens.at(1) {
            _ if count == if noreply { 2 } else { 1 } => Request::FlushAll { delay: 0, noreply },
            delay => match parse_i32(delay) {
                Some(delay) => Request::FlushAll { delay, noreply },
                None => Request::Answer { text: "CLIENT_ERROR invalid exptime argument", noreply, swallow: 0 },
            },
        },
        b"stats" => parse_stats(&tokens),
        b"version" => answer("VERSION 1.6.18"),
        b"verbosity" if (2..=3).contains(&count) => {
            let text = if parse_u32(tokens.at(1)).is_some() { "OK" } else { BAD_LINE };
            Request::Answer { text, noreply, swallow: 0 }
        }
        b"cache_memlimit" if (2..=3).contains(&count) => {
            let text = match parse_u32(tokens.at(1)) {
                None => "ERROR",
                Some(..8) => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
                Some(8..=1_000_000_000) => "OK",
                Some(_) => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
            };
            Request::Answer { text, noreply, swallow: 0 }
        }
        b"shutdown" => answer("ERROR: shutdown not enabled"),
        b"quit" => Request::Quit,
        _ => answer("ERROR"),
    }
}

/// The keys of a retrieval command, without leading spaces, in turn.
pub(crate) fn next_key(keys: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = keys.get(from..)?;
    let start = rest.iter().position(|byte| *byte != b' ')?;
    let key = &rest[start..];
    let length = key.iter().position(|byte| *byte == b' ').unwrap_or(key.len());
    Some((&key[..length], from + start + length))
}

fn parse_get(keys: &[u8], with_cas: bool, touch: Option<i32>) -> Request<'_> {
    // A single key that is too long spoils the whole command, before anything is sent.
    let mut any = false;
    let mut from = 0;
    while let Some((key, next)) = next_key(keys, from) {
        if key.len() > KEY_BYTES_MAX {
            return answer(BAD_LINE);
        }
        any = true;
        from = next;
    }
    if any || touch.is_some() { Request::Get { keys, with_cas, touch } } else { answer("ERROR") }
}

fn parse_get_and_touch<'a>(tokens: &Tokens<'a>, rest: &'a [u8], with_cas: bool) -> Request<'a> {
    let Some((expires, from)) = next_key(rest, 0) else { return answer("ERROR") };
    debug_assert_eq!(expires, tokens.at(1));
    match parse_i32(expires) {
        Some(expires) => parse_get(rest.get(from..).unwrap_or_default(), with_cas, Some(expires)),
        None => answer("CLIENT_ERROR invalid exptime argument"),
    }
}

fn parse_store<'a>(tokens: &Tokens<'a>, mode: StoreMode) -> Request<'a> {
    let wanted = if mode == StoreMode::Cas { 6 } else { 5 };
    if tokens.count != wanted && tokens.count != wanted + 1 {
        return answer("ERROR");
    }
    let noreply = tokens.says_noreply();
    let bad = Request::Answer { text: BAD_LINE, noreply, swallow: 0 };
    let key = tokens.at(1);
    let (Some(flags), Some(expires), Some(length @ 0..=LENGTH_MAX)) =
        (parse_u32(tokens.at(2)), parse_i32(tokens.at(3)), parse_i32(tokens.at(4)))
    else {
        return bad;
    };
    let cas = match mode {
        StoreMode::Cas => parse_u64(tokens.at(5)),
        _ => Some(0),
    };
    let Some(cas) = cas.filter(|_| key.len() <= KEY_BYTES_MAX) else { return bad };
    let key = Cow::Borrowed(key);
    Request::Store(Store { mode, key, flags, expires, length: length as usize, cas, noreply, meta: None })
}

fn parse_delete<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if !(2..=4).contains(&tokens.count) {
        return answer("ERROR");
    }
    let noreply = tokens.count > 2 && tokens.says_noreply();
    let zero = tokens.at(2) == b"0";
    let valid = match tokens.count {
        2 => true,
        3 => zero || noreply,
        _ => zero && noreply,
    };
    let key = tokens.at(1);
    let text = match () {
        () if !valid => "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        () if key.len() > KEY_BYTES_MAX => BAD_LINE,
        () => return Request::Delete { key, noreply },
    };
    Request::Answer { text, noreply, swallow: 0 }
}

fn parse_arithmetic<'a>(tokens: &Tokens<'a>, increment: bool) -> Request<'a> {
    if !(3..=4).contains(&tokens.count) {
        return answer("ERROR");
    }
    let noreply = tokens.says_noreply();
    let key = tokens.at(1);
    let text = match parse_u64(tokens.at(2)) {
        _ if key.len() > KEY_BYTES_MAX => BAD_LINE,
        None => "CLIENT_ERROR invalid numeric delta argument",
        Some(delta) => return Request::Arithmetic { key, delta, increment, noreply },
    };
    Request::Answer { text, noreply, swallow: 0 }
}

fn parse_touch<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if !(3..=4).contains(&tokens.count) {
        return answer("ERROR");
    }
    let noreply = tokens.says_noreply();
    let key = tokens.at(1);
    let text = match parse_i32(tokens.at(2)) {
        _ if key.len() > KEY_BYTES_MAX => BAD_LINE,
        None => "CLIENT_ERROR invalid exptime argument",
        Some(expires) => return Request::Touch { key, expires, noreply },
    };
    Request::Answer { text, noreply, swallow: 0 }
}

fn parse_stats<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    match tokens.at(1) {
        b"reset" => Request::StatsReset,
        b"detail" => match tokens.at(2) {
            b"on" | b"off" => answer("OK"),
            b"dump" => answer("END"),
            _ => answer("CLIENT_ERROR usage: stats detail on|off|dump"),
        },
        b"cachedump" => match (parse_u32(tokens.at(2)), parse_u32(tokens.at(3))) {
            _ if tokens.count < 4 => answer("CLIENT_ERROR bad command line"),
            (Some(..64), Some(_)) => answer("END"),
            (Some(_), Some(_)) => answer("CLIENT_ERROR Illegal slab id"),
            _ => answer(BAD_LINE),
        },
        topic => Request::Stats { topic },
    }
}

/// The flags after the first `skip` tokens, or the error.
fn parse_meta_flags<'a>(tokens: &Tokens<'a>, skip: usize) -> Result<Meta<'a>, &'static str> {
    let mut meta = Meta {
        tokens: tokens.skip(skip),
        binary_key: false,
        quiet: false,
        value: false,
        no_update: false,
        invalidate: false,
        remove_value: false,
        changes_item: false,
        vivify: None,
        ttl: None,
        recache: None,
        cas: None,
        new_cas: None,
        flags: 0,
        mode: None,
        delta: 1,
        initial: 0,
    };
    let mut seen = 0u128;
    // The original goes on after a bad argument and reports the last one.
    let mut error = None;
    for token in meta.tokens.as_slice() {
        let Some((&flag, argument)) = token.split_first() else { continue };
        if flag >= 127 || seen & (1 << flag) != 0 {
            return Err("CLIENT_ERROR duplicate flag");
        }
        seen |= 1 << flag;
        let seconds = || parse_i32(argument).ok_or(BAD_TOKEN);
        let outcome = match flag {
            b'b' => {
                meta.binary_key = true;
                match base64::decode(tokens.at(1)) {
                    Some(_) => Ok(()),
                    None => Err("CLIENT_ERROR error decoding key"),
                }
            }
            b'N' => seconds().map(|value| meta.vivify = Some(value)),
            b'T' => seconds().map(|value| meta.ttl = Some(value)),
            b'R' => seconds().map(|value| meta.recache = Some(value)),
            b'C' => parse_u64(argument).ok_or(BAD_TOKEN).map(|value| meta.cas = Some(value)),
            b'E' => parse_u64(argument).ok_or(BAD_TOKEN).map(|value| meta.new_cas = Some(value)),
            b'F' => parse_u32(argument).ok_or(error.unwrap_or(BAD_LINE)).map(|value| meta.flags = value),
            b'M' => match argument {
                [mode] => {
                    meta.mode = Some(*mode);
                    Ok(())
                }
                _ => Err("CLIENT_ERROR incorrect length for M token"),
            },
            b'J' => parse_u64(argument)
                .ok_or("CLIENT_ERROR invalid numeric initial value")
                .map(|value| meta.initial = value),
            b'D' => {
                parse_u64(argument).ok_or("CLIENT_ERROR invalid numeric delta value").map(|value| meta.delta = value)
            }
            b'v' => {
                meta.value = true;
                Ok(())
            }
            b'u' => {
                meta.no_update = true;
                Ok(())
            }
            b'q' => {
                meta.quiet = true;
                Ok(())
            }
            b'I' => {
                meta.invalidate = true;
                Ok(())
            }
            b'x' => {
                meta.remove_value = true;
                Ok(())
            }
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' => Ok(()),
            _ => return Err("CLIENT_ERROR invalid flag"),
        };
        error = outcome.err().or(error);
    }
    meta.changes_item = meta.vivify.is_some() || meta.ttl.is_some() || meta.recache.is_some();
    error.map_or(Ok(meta), Err)
}

fn meta_key<'a>(tokens: &Tokens<'a>, binary: bool) -> Cow<'a, [u8]> {
    let key = tokens.at(1);
    match base64::decode(key) {
        Some(bytes) if binary => Cow::Owned(bytes),
        _ => Cow::Borrowed(key),
    }
}

fn opaque_too_long(tokens: &Tokens<'_>) -> bool {
    tokens.as_slice().iter().any(|token| token.first() == Some(&b'O') && token.len() > OPAQUE_TOKEN_BYTES_MAX)
}

/// What all meta commands check first.
fn meta_refusal<'a>(tokens: &Tokens<'_>, too_many: &'static str) -> Option<Request<'a>> {
    match tokens.count {
        1 => Some(answer("ERROR")),
        _ if tokens.at(1).len() > KEY_BYTES_MAX => Some(answer(BAD_LINE)),
        count if count > META_TOKENS_MAX => Some(answer(too_many)),
        _ => None,
    }
}

fn parse_meta_get<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if let Some(refusal) = meta_refusal(tokens, "CLIENT_ERROR options flags are too long") {
        return refusal;
    }
    match parse_meta_flags(tokens, 2) {
        Err(text) => answer(text),
        Ok(meta) if opaque_too_long(&meta.tokens) => answer(OPAQUE_TOO_LONG),
        Ok(meta) => Request::MetaGet { key: meta_key(tokens, meta.binary_key), meta },
    }
}

fn parse_meta_set<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if tokens.count > 1 && tokens.at(1).len() <= KEY_BYTES_MAX && tokens.count == 2 {
        return answer(BAD_LINE);
    }
    if let Some(refusal) = meta_refusal(tokens, "CLIENT_ERROR options flags too long") {
        return refusal;
    }
    let Some(length @ 0..=LENGTH_MAX) = parse_i32(tokens.at(2)) else { return answer(BAD_LINE) };
    let length = length as usize;
    let refuse = |text| Request::Answer { text, noreply: false, swallow: length + 2 };
    let meta = match parse_meta_flags(tokens, 3) {
        Ok(meta) => meta,
        Err(text) => return refuse(text),
    };
    let mode = match meta.mode {
        None | Some(b'S') => StoreMode::Set,
        Some(b'E') => StoreMode::Add,
        Some(b'A') => StoreMode::Append,
        Some(b'P') => StoreMode::Prepend,
        Some(b'R') => StoreMode::Replace,
        Some(_) => return refuse("CLIENT_ERROR invalid mode for ms M token"),
    };
    if opaque_too_long(&meta.tokens) {
        return refuse(OPAQUE_TOO_LONG);
    }
    let mode = match mode {
        StoreMode::Set | StoreMode::Replace if meta.cas.is_some() => StoreMode::Cas,
        mode => mode,
    };
    Request::Store(Store {
        mode,
        key: meta_key(tokens, meta.binary_key),
        flags: meta.flags,
        expires: meta.ttl.unwrap_or(0),
        length,
        cas: meta.cas.unwrap_or(0),
        noreply: meta.quiet,
        meta: Some(meta),
    })
}

fn parse_meta_delete<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if let Some(refusal) = meta_refusal(tokens, "CLIENT_ERROR options flags too long") {
        return refusal;
    }
    match parse_meta_flags(tokens, 2) {
        Err(_) => answer("CLIENT_ERROR invalid or duplicate flag"),
        Ok(meta) if opaque_too_long(&meta.tokens) => answer(OPAQUE_TOO_LONG),
        Ok(meta) => Request::MetaDelete { key: meta_key(tokens, meta.binary_key), meta },
    }
}

fn parse_meta_arithmetic<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if let Some(refusal) = meta_refusal(tokens, "CLIENT_ERROR options flags too long") {
        return refusal;
    }
    let Ok(meta) = parse_meta_flags(tokens, 2) else { return answer("CLIENT_ERROR invalid or duplicate flag") };
    let increment = match meta.mode {
        None | Some(b'I' | b'+') => true,
        Some(b'D' | b'-') => false,
        _ => return answer("CLIENT_ERROR invalid mode for ma M token"),
    };
    if opaque_too_long(&meta.tokens) {
        return answer(OPAQUE_TOO_LONG);
    }
    Request::MetaArithmetic { key: meta_key(tokens, meta.binary_key), increment, meta }
}

fn parse_meta_debug<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if tokens.count < 2 || tokens.at(1).len() > KEY_BYTES_MAX {
        return answer(BAD_LINE);
    }
    let binary = tokens.at(2) == b"b";
    if binary && base64::decode(tokens.at(1)).is_none() {
        return answer(BAD_LINE);
    }
    Request::MetaDebug { key: meta_key(tokens, binary) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_line_is_a_request(line: Vec<u8>) {
            let _ = parse(&line);
        }

        #[test]
        fn any_arguments_are_a_request(
            command in prop::sample::select(vec!["get", "gat", "set", "cas", "delete", "incr", "touch", "mg", "ms",
                "md", "ma", "me", "flush_all", "stats", "verbosity", "cache_memlimit"]),
            arguments in "[ a-zA-Z0-9\\-+=\\x00\\x80]{0,80}",
        ) {
            let line = format!("{command} {arguments}");
            if let Request::Store(store) = parse(line.as_bytes()) {
                prop_assert!(!store.key.is_empty() && store.key.len() <= KEY_BYTES_MAX);
            }
        }
    }

    #[test]
    fn keys_are_walked_without_their_spaces() {
        let keys = b"  a  bc ";
        let (a, next) = next_key(keys, 0).unwrap();
        let (bc, end) = next_key(keys, next).unwrap();
        assert_eq!((a, bc, next_key(keys, end)), (&b"a"[..], &b"bc"[..], None));
    }

    #[test]
    fn noreply_counts_only_at_the_end() {
        assert!(matches!(parse(b"set noreply 0 0 1"), Request::Store(Store { noreply: false, .. })));
        assert!(matches!(parse(b"set a 0 0 1 noreply"), Request::Store(Store { noreply: true, .. })));
        assert!(matches!(parse(b"delete noreply"), Request::Delete { noreply: false, .. }));
    }
}
