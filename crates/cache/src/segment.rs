//! Segments in memory: where items lie, in the order in which they came.
//!
//! A segment is filled by one writer, then it is sealed, and one day it is emptied and goes. Many items share a
//! segment. A long item has one of its own, whose bytes can be handed out without a copy.
//!
//! **Invariants.** A segment that a slot of the index names is not released. Bytes of a shared segment change only
//! where an item is put over one of the same length, and only by the holder of the shard that the item's slot lies in.
//!
//! **Threads.** Any. A lock for each segment. Its holder takes no other lock, apart from the reclaimer: it reads a
//! victim while it appends to another segment.
//!
//! **Memory.** [`Segments::bytes`] counts the capacity of all segments and of spares. A spare is memory of a segment
//! that has gone, kept for the next one: memory from the system would be cleared page by page. Segments are mapped from
//! the system: the heap of a process keeps pieces that large when they are freed, and fills them with holes.

use crate::index::Line;
use crate::item::NewItem;
use crate::slot::{OFFSETS_END, SEGMENTS_MAX};
use situ_base::lock;
use situ_device::{Buffer, PAGE_BYTES};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// Bytes of spare memory that are kept, in segments.
const SPARES_MAX: usize = 2;

/// The bytes of a segment, and the base of its items' ids.
#[derive(Default)]
pub(crate) struct Content {
    bytes: Bytes,
    pub(crate) base: u64,
}

#[derive(Default)]
enum Bytes {
    #[default]
    None,
    Shared {
        bytes: Buffer,
        used: usize,
    },
    Whole(Arc<Buffer>),
}

impl Content {
    /// Returns the bytes from an offset to the end of the written part.
    pub(crate) fn from(&self, offset: u32) -> &[u8] {
        let bytes = match &self.bytes {
            Bytes::None => &[][..],
            Bytes::Shared { bytes, used } => &bytes[..*used],
            Bytes::Whole(bytes) => bytes,
        };
        bytes.get(offset as usize..).unwrap_or_default()
    }

    /// Returns the bytes, if the segment has one item and never changes.
    pub(crate) fn whole(&self) -> Option<&Arc<Buffer>> {
        match &self.bytes {
            Bytes::Whole(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn capacity(&self) -> usize {
        match &self.bytes {
            Bytes::None => 0,
            Bytes::Shared { bytes, .. } => bytes.len(),
            Bytes::Whole(bytes) => bytes.len(),
        }
    }
}

#[derive(Default)]
struct Segment {
    content: RwLock<Content>,
    /// Bytes of items that the index knows.
    live_bytes: AtomicUsize,
    /// The time at which its last item expires, Unix seconds; `u64::MAX` if one never does.
    expires: AtomicU64,
}

/// All segments in memory. See the module.
pub(crate) struct Segments {
    table: Box<[Line<Segment>]>,
    free: Mutex<Free>,
    bytes: AtomicUsize,
    segment_bytes: usize,
}

struct Free {
    numbers: Vec<u32>,
    spares: Vec<Buffer>,
}

impl Segments {
    /// Makes room for `count` segments, of which those that are shared have `segment_bytes`.
    pub(crate) fn new(count: usize, segment_bytes: usize) -> Segments {
        let count = count.min(SEGMENTS_MAX);
        assert!(segment_bytes <= OFFSETS_END, "segments are longer than offsets reach");
        Segments {
            table: (0..count).map(|_| Line::default()).collect(),
            free: Mutex::new(Free { numbers: (0..count as u32).rev().collect(), spares: Vec::new() }),
            bytes: AtomicUsize::new(0),
            segment_bytes,
        }
    }

    /// Returns the memory of segments and spares, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory of the table, in bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        size_of_val(&*self.table) + self.table.len() * size_of::<u32>()
    }

    /// Returns the length of a shared segment.
    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Counts memory before it is taken, so that two threads that make room at the same time do not take the same room.
    pub(crate) fn claim(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns a new segment for many items, whose memory was claimed. `None` if all numbers are taken or the system
    /// has no memory; then it is claimed no more.
    pub(crate) fn share(&self, base: u64) -> Option<u32> {
        let mut free = lock(&self.free);
        let number = free.numbers.pop();
        let spare = number.and_then(|_| free.spares.pop());
        drop(free);
        if number.is_none() || spare.is_some() {
            self.give_back(self.segment_bytes);
        }
        let number = number?;
        let Some(bytes) = spare.or_else(|| Buffer::try_new(self.segment_bytes)) else {
            self.refuse(number, self.segment_bytes);
            return None;
        };
        self.put(number, Content { bytes: Bytes::Shared { bytes, used: 0 }, base }, 0);
        Some(number)
    }

    /// Returns a new segment for one item, whose memory, in whole pages, was claimed. `None` if all numbers are taken
    /// or the system has no memory; then it is claimed no more.
    pub(crate) fn hold(&self, item: &NewItem<'_>) -> Option<u32> {
        let base = item.meta.id;
        let length = item.stored_bytes(base);
        let claimed = length.next_multiple_of(PAGE_BYTES);
        let Some(number) = lock(&self.free).numbers.pop() else {
            self.give_back(claimed);
            return None;
        };
        let Some(mut bytes) = Buffer::try_unfilled(claimed) else {
            self.refuse(number, claimed);
            return None;
        };
        assert!(bytes.len() == claimed, "a buffer has another length than was asked for");
        item.put_over(base, &mut bytes[..length]);
        bytes[length..].fill(0);
        let content = Content { bytes: Bytes::Whole(Arc::new(bytes)), base };
        self.put(number, content, expiry(item.meta.expires));
        Some(number)
    }

    /// Gives back the number and the claim of a segment that the system has no memory for.
    #[cold]
    fn refuse(&self, number: u32, claimed: usize) {
        lock(&self.free).numbers.push(number);
        self.give_back(claimed);
    }

    fn put(&self, number: u32, content: Content, expires: u64) {
        let segment = self.of(number);
        segment.live_bytes.store(0, Ordering::Relaxed);
        segment.expires.store(expires, Ordering::Relaxed);
        *segment.content.write().unwrap_or_else(PoisonError::into_inner) = content;
    }

    /// Appends an item to a shared segment; its offset and its length there. `None` if there is no room for it.
    pub(crate) fn append(&self, number: u32, item: &NewItem<'_>) -> Option<(u32, usize)> {
        let segment = self.of(number);
        let mut content = segment.content.write().unwrap_or_else(PoisonError::into_inner);
        let base = content.base;
        let Bytes::Shared { bytes, used } = &mut content.bytes else { return None };
        let offset = *used;
        let length = item.stored_bytes(base);
        item.put_over(base, bytes.get_mut(offset..offset + length)?);
        *used += length;
        segment.expires.fetch_max(expiry(item.meta.expires), Ordering::Relaxed);
        Some((offset as u32, length))
    }

    /// Puts an item over the one at `offset`, which has the same stored length. The caller holds its shard.
    pub(crate) fn put_over(&self, number: u32, offset: u32, item: &NewItem<'_>) {
        let segment = self.of(number);
        let mut content = segment.content.write().unwrap_or_else(PoisonError::into_inner);
        let base = content.base;
        let Bytes::Shared { bytes, .. } = &mut content.bytes else {
            unreachable!("an item is put over one in a segment of its own")
        };
        let end = offset as usize + item.stored_bytes(base);
        item.put_over(base, &mut bytes[offset as usize..end]);
        segment.expires.fetch_max(expiry(item.meta.expires), Ordering::Relaxed);
    }

    /// Returns the content of a segment. Nothing is appended meanwhile.
    pub(crate) fn read(&self, number: u32) -> RwLockReadGuard<'_, Content> {
        self.of(number).content.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory that a segment takes.
    pub(crate) fn capacity(&self, number: u32) -> usize {
        self.read(number).capacity()
    }

    /// Notes that items of `bytes` bytes came to the index.
    pub(crate) fn add_live(&self, number: u32, bytes: usize) {
        self.of(number).live_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that items of `bytes` bytes have left the index.
    pub(crate) fn remove_live(&self, number: u32, bytes: usize) {
        let before = self.of(number).live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "more items left segment {number} than it had");
    }

    /// Returns true if all of its items have expired.
    pub(crate) fn has_expired(&self, number: u32, now: u64) -> bool {
        self.of(number).expires.load(Ordering::Relaxed) <= now
    }

    /// Gives a segment back that no slot of the index names.
    pub(crate) fn release(&self, number: u32) {
        let segment = self.of(number);
        assert!(segment.live_bytes.load(Ordering::Relaxed) == 0, "segment {number} is released with items in it");
        let content = std::mem::take(&mut *segment.content.write().unwrap_or_else(PoisonError::into_inner));
        let capacity = content.capacity();
        let mut free = lock(&self.free);
        match content.bytes {
            Bytes::Shared { bytes, .. } if free.spares.len() < SPARES_MAX => free.spares.push(bytes),
            _ => _ = self.bytes.fetch_sub(capacity, Ordering::Relaxed),
        }
        free.numbers.push(number);
    }

    fn of(&self, number: u32) -> &Segment {
        &self.table[number as usize].0
    }
}

fn expiry(expires: u64) -> u64 {
    if expires == 0 { u64::MAX } else { expires }
}
