//! One command line to one [`Request`], exactly as memcached 1.6.18 understands it, with the flags of meta commands
//! that came later as memcached 1.6.42 understands them.
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

mod meta;

use std::borrow::Cow;

use crate::protocol::foreign;
use crate::protocol::interests;
use crate::protocol::number::{parse_i32, parse_u32, parse_u64};

pub(crate) use meta::Meta;

/// Longest key in bytes, as the client wrote it.
pub(crate) const KEY_BYTES_MAX: usize = 250;
/// Largest length that a storage command may announce.
const LENGTH_MAX: i32 = i32::MAX - 2;
const TOKENS_MAX: usize = 23;

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";

/// The kinds of storage commands.
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
    /// `stats detail on` and `off`.
    StatsDetail {
        on: bool,
    },
    StatsDetailDump,
    /// Changes what `stats settings` shows, and nothing else.
    Verbosity {
        level: u32,
        noreply: bool,
    },
    /// `lru_crawler metadump`.
    Dump,
    /// `watch`, with the bits of the client's interests.
    Watch {
        interests: u8,
    },
    /// `shm`: the rest of the connection goes through shared memory, with rings of about this size.
    SharedMemory {
        version: u64,
        ring_bytes: u64,
    },
    /// `rdma`: the rest of the connection goes through remote memory. The client's offer is what follows the word.
    RemoteMemory {
        offer: &'a [u8],
    },
    Quit,
    /// An answer that needs no engine, errors above all. `swallow` bytes of data follow and are dropped.
    Answer {
        text: &'static str,
        noreply: bool,
        swallow: usize,
    },
    /// No command, but a line of another protocol: see [`foreign`](crate::protocol::foreign).
    Foreign,
}

fn answer<'a>(text: &'static str) -> Request<'a> {
    Request::Answer { text, noreply: false, swallow: 0 }
}

/// Up to 23 tokens of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens<'a> {
    line: &'a [u8],
    list: [&'a [u8]; TOKENS_MAX],
    count: usize,
}

impl<'a> Tokens<'a> {
    fn split(line: &'a [u8]) -> Tokens<'a> {
        let mut tokens = Tokens { line, list: [&[]; TOKENS_MAX], count: 0 };
        for token in line.split(|byte| *byte == b' ').filter(|token| !token.is_empty()) {
            if tokens.count == TOKENS_MAX {
                break;
            }
            tokens.list[tokens.count] = token;
            tokens.count += 1;
        }
        tokens
    }

    /// Returns the tokens behind the first `count`.
    fn behind(&self, count: usize) -> TokenList<'a> {
        let line = self.line;
        let place = |token: &[u8]| (token.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
        let text = match self.as_slice().get(count..) {
            Some([first, ..]) => line.get(place(first)..).unwrap_or_default(),
            _ => &[],
        };
        // The text behind the last token that counts is left out.
        let last = self.as_slice().last().map_or(0, |last| place(last) + last.len());
        let end = last.saturating_sub(place(text)).min(text.len());
        TokenList { text: &text[..end] }
    }

    /// Returns the token at `index`, empty past the end.
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

/// Tokens of a line, as a part of it: a request is moved several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenList<'a> {
    text: &'a [u8],
}

impl<'a> TokenList<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.text;
        std::iter::from_fn(move || {
            let start = rest.iter().position(|byte| *byte != b' ')?;
            let from = &rest[start..];
            let length = from.iter().position(|byte| *byte == b' ').unwrap_or(from.len());
            let (token, behind) = from.split_at(length);
            rest = behind;
            Some(token)
        })
    }

    pub(crate) fn is_empty(self) -> bool {
        self.text.is_empty()
    }
}

/// Understands one line, given without its end.
pub(crate) fn parse(line: &[u8]) -> Request<'_> {
    let line = match find(line, 0) {
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
        b"mg" => meta::parse_meta_get(&tokens),
        b"ms" => meta::parse_meta_set(&tokens),
        b"md" => meta::parse_meta_delete(&tokens),
        b"ma" => meta::parse_meta_arithmetic(&tokens),
        b"mn" => answer("MN"),
        b"me" => meta::parse_meta_debug(&tokens),
        b"flush_all" if (1..=3).contains(&count) => match tokens.at(1) {
            _ if count == if noreply { 2 } else { 1 } => Request::FlushAll { delay: 0, noreply },
            delay => match parse_i32(delay) {
                Some(delay) => Request::FlushAll { delay, noreply },
                None => Request::Answer { text: "CLIENT_ERROR invalid exptime argument", noreply, swallow: 0 },
            },
        },
        b"stats" => parse_stats(&tokens),
        b"lru_crawler" => parse_crawler(&tokens),
        b"watch" => parse_watch(&tokens),
        b"version" => answer("VERSION 1.6.18"),
        b"verbosity" if (2..=3).contains(&count) => match parse_u32(tokens.at(1)) {
            Some(level) => Request::Verbosity { level, noreply },
            None => Request::Answer { text: BAD_LINE, noreply, swallow: 0 },
        },
        b"cache_memlimit" if (2..=3).contains(&count) => {
            let text = match parse_u32(tokens.at(1)) {
                None => "ERROR",
                Some(..8) => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
                Some(8..=1_000_000_000) => "MEMLIMIT_ADJUST_FAILED memory is set when the server starts",
                Some(_) => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
            };
            Request::Answer { text, noreply, swallow: 0 }
        }
        b"shutdown" => answer("ERROR: shutdown not enabled"),
        b"shm" => match (count, parse_u64(tokens.at(1)), parse_u64(tokens.at(2))) {
            (3, Some(version), Some(ring_bytes)) => Request::SharedMemory { version, ring_bytes },
            _ => Request::Answer { text: BAD_LINE, noreply: false, swallow: 0 },
        },
        b"rdma" => Request::RemoteMemory { offer: rest() },
        b"quit" => Request::Quit,
        _ if foreign::is_line(line) => Request::Foreign,
        _ => answer("ERROR"),
    }
}

/// Returns the first place of `wanted`.
pub(crate) fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    memchr::memchr(wanted, bytes)
}

/// Returns the keys of a retrieval command, without leading spaces, in turn.
pub(crate) fn next_key(keys: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = keys.get(from..)?;
    let start = rest.iter().position(|byte| *byte != b' ')?;
    let key = &rest[start..];
    let length = key.iter().position(|byte| *byte == b' ').unwrap_or(key.len());
    Some((&key[..length], from + start + length))
}

fn parse_get(keys: &[u8], with_cas: bool, touch: Option<i32>) -> Request<'_> {
    // A single key that is too long spoils the whole command, before anything is sent. Where there is a space in the
    // first bytes that would be too long for a key, no key begins before the last such space and ends behind them.
    let mut from = 0;
    while let Some(window) = keys.get(from..from + KEY_BYTES_MAX + 1) {
        match window.iter().rposition(|byte| *byte == b' ') {
            Some(space) => from += space + 1,
            None => return answer(BAD_LINE),
        }
    }
    let any = keys.iter().any(|byte| *byte != b' ');
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

/// Parses a crawler command. Situ has no crawler, and needs none: the cache drops expired items by itself. Commands
/// that would tune or start one are accepted and change nothing.
fn parse_crawler<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    const SLEEP_US_MAX: u32 = 1_000_000;
    // All items are in one class, 1. memcached has up to 63.
    let classes = || {
        tokens.at(2).split(|byte| *byte == b',').map(|class| parse_u32(class).filter(|class| (1..64).contains(class)))
    };
    match (tokens.at(1), tokens.count) {
        (b"metadump" | b"crawl", 3)
            if !matches!(tokens.at(2), b"all" | b"hash") && classes().any(|class| class.is_none()) =>
        {
            answer("BADCLASS invalid class id")
        }
        (b"metadump", 3) if matches!(tokens.at(2), b"all" | b"hash") || classes().any(|class| class == Some(1)) => {
            Request::Dump
        }
        (b"metadump", 3) => answer("END"),
        (b"crawl", 3) | (b"enable" | b"disable", 2) => answer("OK"),
        (b"sleep" | b"tocrawl", 3) => match parse_u32(tokens.at(2)) {
            None => answer(BAD_LINE),
            Some(value) if tokens.at(1) == b"sleep" && value > SLEEP_US_MAX => {
                answer("CLIENT_ERROR sleep must be one second or less")
            }
            Some(_) => answer("OK"),
        },
        _ => answer("ERROR"),
    }
}

fn parse_watch<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    let mut interests = 0;
    for name in tokens.as_slice().iter().skip(1) {
        interests |= match *name {
            b"fetchers" => interests::FETCHERS,
            b"mutations" => interests::MUTATIONS,
            b"evictions" => interests::EVICTIONS,
            b"connevents" => interests::CONNECTIONS,
            // memcached knows these; nothing of the kind happens here.
            b"rawcmds" | b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" => 0,
            _ => return answer("ERROR"),
        };
    }
    Request::Watch { interests: if tokens.count == 1 { interests::FETCHERS } else { interests } }
}

fn parse_stats<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    match tokens.at(1) {
        b"reset" => Request::StatsReset,
        b"detail" => match tokens.at(2) {
            b"on" => Request::StatsDetail { on: true },
            b"off" => Request::StatsDetail { on: false },
            b"dump" => Request::StatsDetailDump,
            _ => answer("CLIENT_ERROR usage: stats detail on|off|dump"),
        },
        // As memcached with `-X`; an empty list would say that there are no items.
        b"cachedump" => answer("CLIENT_ERROR stats cachedump not allowed"),
        topic => Request::Stats { topic },
    }
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

    /// A length that were taken for what it says would be data that never ends, or a place before the data.
    #[test]
    fn the_largest_and_negative_lengths_are_refused_by_every_storage_command() {
        let lengths =
            ["2147483646", "2147483647", "2147483648", "4294967295", "18446744073709551615", "-1", "-2147483648"];
        for (begin, end) in ["set", "add", "replace", "append", "prepend"]
            .map(|command| (format!("{command} k 0 0 "), ""))
            .into_iter()
            .chain([("cas k 0 0 ".to_owned(), " 1"), ("ms k ".to_owned(), "")])
        {
            for length in lengths {
                let line = format!("{begin}{length}{end}");
                assert_eq!(
                    parse(line.as_bytes()),
                    Request::Answer { text: BAD_LINE, noreply: false, swallow: 0 },
                    "{line}"
                );
            }
            let line = format!("{begin}2147483645{end}");
            let Request::Store(store) = parse(line.as_bytes()) else { panic!("{line}") };
            assert_eq!(store.length, 2_147_483_645);
        }
    }

    #[test]
    fn a_retrieval_has_no_key_that_is_too_long_wherever_it_is() {
        for (lengths, good) in [(&[250, 250][..], true), (&[251], false), (&[1, 250, 251], false), (&[3; 400], true)] {
            for spaces in [" ", "  "] {
                let keys: String = lengths.iter().map(|length| format!("{}{spaces}", "k".repeat(*length))).collect();
                let line = format!("get {keys}");
                assert_eq!(matches!(parse(line.as_bytes()), Request::Get { .. }), good, "{line}");
                let line = line.trim_end();
                assert_eq!(matches!(parse(line.as_bytes()), Request::Get { .. }), good, "{line}");
            }
        }
        assert_eq!(parse(format!("get {}", " ".repeat(1000)).as_bytes()), answer("ERROR"));
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
