//! The values of a cache, as the server knows them.

use crate::engine::cache::Reserved;
use crate::engine::item::{EncodedHeader, Header};
use crate::engine::{COPY_BYTES_MAX, EngineError, StoredValue};
use crate::engines::allowance::Allowance;
use situ::cache::{Item, Meta};
use situ_device::{Buffer, PAGE_BYTES};
use std::ops::Range;
use std::sync::Arc;

pub(super) fn header_of(meta: &Meta) -> Header {
    let Meta { state, flags, expires, id, given_cas } = *meta;
    Header { state, flags, expires, id, given_cas }
}

/// A value as the server knows it. A short one is a copy, so that the cache can use the item's room.
#[derive(Debug)]
pub struct CacheValue(Bytes);

#[derive(Debug)]
enum Bytes {
    /// The header, and the data behind it.
    Short(Vec<u8>),
    // In a box, as values are moved several times on their way and most are short.
    Long(Box<LongValue>),
}

/// A value that is kept until the client has taken it. Its memory is counted until then, the cache's own buffer as
/// much as a copy: the item may leave the cache meanwhile. A copy is mapped from the system, as the heap would keep its
/// memory.
#[derive(Debug)]
struct LongValue {
    header: EncodedHeader,
    buffer: Arc<Buffer>,
    /// The place of the data.
    at: Range<usize>,
    _held: Reserved,
}

impl StoredValue for CacheValue {
    fn head(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(bytes) => bytes,
            Bytes::Long(long) => &long.header,
        }
    }

    fn data(&self, header_bytes: usize) -> &[u8] {
        match &self.0 {
            Bytes::Short(bytes) => bytes.get(header_bytes..).unwrap_or_default(),
            Bytes::Long(long) => &long.buffer[long.at.clone()],
        }
    }
}

/// Makes a value, which is long if the item is, and counts its memory. The caller then lets the cache
/// [make room](Cache::shrink) for a long one, when no lock is held. `whole` is the buffer of an item that never
/// changes: the value shares it.
///
/// # Errors
/// The engine's limit or the system has no memory for a long value.
pub(super) fn make(
    item: &Item<'_>,
    whole: Option<&Arc<Buffer>>,
    allowance: &Allowance,
) -> Result<CacheValue, EngineError> {
    let header = header_of(&item.meta).encode();
    let length = item.value.len();
    if length < COPY_BYTES_MAX {
        return Ok(CacheValue(Bytes::Short([&header, item.value].concat())));
    }
    let mut held = Reserved::default();
    // Memory comes in pages.
    let bytes = whole.map_or(length.next_multiple_of(PAGE_BYTES), |whole| whole.len());
    if !allowance.hold(&mut held, bytes) {
        return Err(no_memory());
    }
    let (buffer, start) = match whole {
        Some(whole) => (Arc::clone(whole), item.value.as_ptr() as usize - whole.as_ptr() as usize),
        None => {
            let mut copy = Buffer::try_unfilled(length).ok_or_else(no_memory)?;
            copy[..length].copy_from_slice(item.value);
            (Arc::new(copy), 0)
        }
    };
    Ok(CacheValue(Bytes::Long(Box::new(LongValue { header, buffer, at: start..start + length, _held: held }))))
}

#[cold]
fn no_memory() -> EngineError {
    EngineError::new("out of memory writing get response")
}

impl CacheValue {
    pub(super) fn is_long(&self) -> bool {
        matches!(self.0, Bytes::Long(_))
    }
}
