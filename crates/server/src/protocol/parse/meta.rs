//! The lines of meta commands: `mg`, `ms`, `md`, `ma`, `me`. Their flags are one set, and each command accepts all of
//! them, whether they mean something to it or not.

use std::borrow::Cow;

use super::{BAD_LINE, KEY_BYTES_MAX, LENGTH_MAX, Request, Store, StoreMode, TokenList, Tokens, answer};
use crate::protocol::base64;
use crate::protocol::number::{parse_i32, parse_u32, parse_u64};

const META_TOKENS_MAX: usize = 19;
const OPAQUE_TOKEN_BYTES_MAX: usize = 32;
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";

/// The flags of a meta command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta<'a> {
    /// All tokens after the key (and length) in the order given.
    pub(crate) tokens: TokenList<'a>,
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

/// Parses the flags after the first `skip` tokens.
fn parse_meta_flags<'a>(tokens: &Tokens<'a>, skip: usize) -> Result<Meta<'a>, &'static str> {
    let mut meta = Meta {
        tokens: tokens.behind(skip),
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
    for token in meta.tokens.iter() {
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
    // One that cannot be decoded was refused before.
    let decoded = if binary { base64::decode(key) } else { None };
    decoded.map_or(Cow::Borrowed(key), Cow::Owned)
}

fn opaque_too_long(tokens: TokenList<'_>) -> bool {
    tokens.iter().any(|token| token.first() == Some(&b'O') && token.len() > OPAQUE_TOKEN_BYTES_MAX)
}

/// Runs the checks that all meta commands make first.
fn meta_refusal<'a>(tokens: &Tokens<'_>, too_many: &'static str) -> Option<Request<'a>> {
    match tokens.count {
        1 => Some(answer("ERROR")),
        _ if tokens.at(1).len() > KEY_BYTES_MAX => Some(answer(BAD_LINE)),
        count if count > META_TOKENS_MAX => Some(answer(too_many)),
        _ => None,
    }
}

pub(super) fn parse_meta_get<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if let Some(refusal) = meta_refusal(tokens, "CLIENT_ERROR options flags are too long") {
        return refusal;
    }
    match parse_meta_flags(tokens, 2) {
        Err(text) => answer(text),
        Ok(meta) if opaque_too_long(meta.tokens) => answer(OPAQUE_TOO_LONG),
        Ok(meta) => Request::MetaGet { key: meta_key(tokens, meta.binary_key), meta },
    }
}

pub(super) fn parse_meta_set<'a>(tokens: &Tokens<'a>) -> Request<'a> {
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
    if opaque_too_long(meta.tokens) {
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

pub(super) fn parse_meta_delete<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if let Some(refusal) = meta_refusal(tokens, "CLIENT_ERROR options flags too long") {
        return refusal;
    }
    match parse_meta_flags(tokens, 2) {
        Err(_) => answer("CLIENT_ERROR invalid or duplicate flag"),
        Ok(meta) if opaque_too_long(meta.tokens) => answer(OPAQUE_TOO_LONG),
        Ok(meta) => Request::MetaDelete { key: meta_key(tokens, meta.binary_key), meta },
    }
}

pub(super) fn parse_meta_arithmetic<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if let Some(refusal) = meta_refusal(tokens, "CLIENT_ERROR options flags too long") {
        return refusal;
    }
    let Ok(meta) = parse_meta_flags(tokens, 2) else { return answer("CLIENT_ERROR invalid or duplicate flag") };
    let increment = match meta.mode {
        None | Some(b'I' | b'+') => true,
        Some(b'D' | b'-') => false,
        _ => return answer("CLIENT_ERROR invalid mode for ma M token"),
    };
    if opaque_too_long(meta.tokens) {
        return answer(OPAQUE_TOO_LONG);
    }
    Request::MetaArithmetic { key: meta_key(tokens, meta.binary_key), increment, meta }
}

pub(super) fn parse_meta_debug<'a>(tokens: &Tokens<'a>) -> Request<'a> {
    if tokens.count < 2 || tokens.at(1).len() > KEY_BYTES_MAX {
        return answer(BAD_LINE);
    }
    let binary = tokens.at(2) == b"b";
    if binary && base64::decode(tokens.at(1)).is_none() {
        return answer(BAD_LINE);
    }
    Request::MetaDebug { key: meta_key(tokens, binary) }
}
