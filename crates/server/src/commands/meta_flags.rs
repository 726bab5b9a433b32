//! The flags in answers to meta commands, as text.

use crate::engine::item::Header;
use crate::protocol::base64;
use crate::protocol::number::push_decimal;
use crate::protocol::parse::Meta;

pub(crate) fn push_token(out: &mut Vec<u8>, token: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(token);
}

pub(crate) fn push_key(out: &mut Vec<u8>, key: &[u8], binary: bool) {
    out.extend_from_slice(b" k");
    if binary {
        base64::push_encoded(out, key);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

pub(crate) fn push_number(out: &mut Vec<u8>, flag: u8, value: u64) {
    out.extend_from_slice(&[b' ', flag]);
    push_decimal(out, value);
}

pub(crate) fn push_ttl(out: &mut Vec<u8>, header: &Header, now_seconds: u64) {
    match header.expires {
        0 => out.extend_from_slice(b" t-1"),
        // A time set into the past by this very command wraps, as in memcached.
        expires => push_number(out, b't', u64::from(expires.wrapping_sub(now_seconds) as u32)),
    }
}

/// The answer of a command that found no item, or refused it: a code, the opaque and the key.
pub(crate) fn push_bare(out: &mut Vec<u8>, code: &[u8], key: &[u8], meta: &Meta<'_>) {
    out.extend_from_slice(code);
    for token in meta.tokens.iter() {
        match token.first() {
            Some(b'O') => push_token(out, token),
            Some(b'k') => push_key(out, key, meta.binary_key),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}
