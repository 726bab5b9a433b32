//! The values of a cache, as the server knows them.

use crate::engine::cache::Reserved;
use crate::engine::item::{HEADER_BYTES_MAX, Header};
use crate::engine::{COPY_BYTES_MAX, EngineError};
use crate::engines::allowance::Allowance;
use situ::cache::{Item, Meta};
use situ_device::{Buffer, PAGE_BYTES};
use std::ops::{Deref, Range};
use std::sync::Arc;

pub(super) fn header_of(meta: &Meta) -> Header {
    let Meta { state, flags, expires, id, given_cas } = *meta;
    Header { state, flags, expires, id, given_cas }
}

/// A value as the server knows it: a header, and the data. A copy, so that the cache can use the item's room.
#[derive(Debug)]
pub struct CacheValue(Bytes);

#[derive(Debug)]
enum Bytes {
    Short(Vec<u8>),
    // In a box, as values are moved several times on their way and most are short.
    Long(Box<LongValue>),
}

/// Mapped from the system, so that it is given back when it has been sent: the heap would keep it.
#[derive(Debug)]
struct LongValue {
    buffer: Buffer,
    length: usize,
    _held: Reserved,
}

impl Deref for CacheValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(bytes) => bytes,
            Bytes::Long(long) => &long.buffer[..long.length],
        }
    }
}

/// A value that is made of an item.
pub(super) enum Making {
    Made(CacheValue),
    /// The item is long and never changes: it can be copied when no lock is held.
    ToCopy {
        whole: Arc<Buffer>,
        at: Range<usize>,
        meta: Meta,
        reserved: Reserved,
    },
}

impl Making {
    /// Makes the value. No lock is held when the cache [makes room](Cache::shrink) for a long one.
    ///
    /// # Errors
    /// The system has no memory for a long value.
    pub(super) fn finish(self) -> Result<CacheValue, EngineError> {
        match self {
            Making::Made(value) => Ok(value),
            Making::ToCopy { whole, at, meta, reserved } => CacheValue::long(&meta, &whole[at], reserved),
        }
    }
}

/// Begins to make a value, which is long if the item is, and counts its memory.
pub(super) fn make(item: &Item<'_>, whole: Option<&Arc<Buffer>>, allowance: &Allowance) -> Result<Making, EngineError> {
    if item.value.len() < COPY_BYTES_MAX {
        return Ok(Making::Made(CacheValue::short(item)));
    }
    let mut reserved = Reserved::default();
    // Memory comes in pages.
    let bytes = (HEADER_BYTES_MAX + item.value.len()).next_multiple_of(PAGE_BYTES);
    if !allowance.hold(&mut reserved, bytes) {
        return Err(no_memory());
    }
    Ok(match whole {
        Some(whole) => {
            let start = item.value.as_ptr() as usize - whole.as_ptr() as usize;
            let at = start..start + item.value.len();
            Making::ToCopy { whole: Arc::clone(whole), at, meta: item.meta, reserved }
        }
        None => Making::Made(CacheValue::long(&item.meta, item.value, reserved)?),
    })
}

#[cold]
fn no_memory() -> EngineError {
    EngineError::new("out of memory writing get response")
}

impl CacheValue {
    /// Makes a value that is soon copied to the client's output.
    fn short(item: &Item<'_>) -> CacheValue {
        let header = header_of(&item.meta).encode();
        let mut value = Vec::with_capacity(header.len() + item.value.len());
        value.extend_from_slice(&header);
        value.extend_from_slice(item.value);
        CacheValue(Bytes::Short(value))
    }

    /// Makes a value that is kept until the client has taken it.
    fn long(meta: &Meta, data: &[u8], reserved: Reserved) -> Result<CacheValue, EngineError> {
        let header = header_of(meta).encode();
        let length = header.len() + data.len();
        let mut buffer = Buffer::try_new(length).ok_or_else(no_memory)?;
        buffer[..header.len()].copy_from_slice(&header);
        buffer[header.len()..length].copy_from_slice(data);
        Ok(CacheValue(Bytes::Long(Box::new(LongValue { buffer, length, _held: reserved }))))
    }

    pub(super) fn is_long(&self) -> bool {
        matches!(self.0, Bytes::Long(_))
    }
}
