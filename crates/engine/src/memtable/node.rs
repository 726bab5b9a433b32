//! One entry in memory, and the links that tie it to others.
//!
//! # Layout
//!
//! ```text
//!   lower addresses                                                                  higher addresses
//!   | link h-1 | ... | link 1 | link 0 | trailer | shape | value len | key ... | value ... |
//!                             ^ the node's address: a `Header`, 24 bytes
//! ```
//!
//! A search asks a node two things: does its key come before the target, and which node is next on this level? The
//! key's first eight bytes, its prefix, read as a big-endian number, answer the first question for most keys by one
//! comparison. A shorter key is followed by zeros up to there. For keys up to 24 bytes long the rest of the key still
//! lies in the same 64 bytes. The tower grows downwards from the header, so that the low levels, on which a search
//! misses the cache, have their links next to the prefix too.
//!
//! # Invariants
//!
//! * All but the links is written before the node is published and never again.
//! * A link holds null or a node of the arena in which the link itself lives.
//! * A node's height is at least 1 and at most [`HEIGHT_MAX`]; a link beyond it does not exist, and asking for it
//!   panics.
//!
//! # Threads
//!
//! A node is published by storing its address in a link with Release. A reader of a link reads it with Acquire, and so
//! sees the node whole.

use std::cmp::Ordering as KeyOrder;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use situ_table::{KeyRef, Trailer};

use super::arena::{ALIGNMENT, Arena};
use super::sync::{AtomicPtr, Ordering, Witness, prefetch};

/// The tallest tower. At two nodes per node of the next level it suits 2^20 = a million entries; with sixteen million,
/// a search walks over eight nodes of the top level on average.
pub(super) const HEIGHT_MAX: usize = 20;

/// The longest key, in bytes.
pub(super) const KEY_BYTES_MAX: usize = (1 << 24) - 1;

/// Returns the maximum size of the node of a large entry in the arena.
pub(super) fn bytes_max(key: usize, value: usize) -> usize {
    HEIGHT_MAX * size_of::<Link>() + size_of::<Header>() + key.max(PREFIX_BYTES) + value + ALIGNMENT
}

/// A place that names a node or nothing.
pub(super) struct Link(AtomicPtr<Header>);

/// The fixed part of a node.
#[repr(C)]
struct Header {
    next: Link,
    trailer: Trailer,
    /// Length of the key in bytes << 8 | height.
    shape: u32,
    value_bytes: u32,
    witness: Witness,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Header>() == 24);
const _: () = assert!(align_of::<Header>() <= ALIGNMENT && align_of::<Link>() <= ALIGNMENT);

/// A node that lives as long as its arena, `'a`.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    header: NonNull<Header>,
    arena: PhantomData<&'a Arena>,
}

/// A node's address, for owners that keep the arena alive by other means than a borrow.
#[derive(Clone, Copy)]
pub(super) struct NodeAddress(NonNull<Header>);

// SAFETY: an address alone gives access to nothing; see `NodeAddress::resolve`.
unsafe impl Send for NodeAddress {}

/// The bytes of a key that are compared first, and that every node has room for.
const PREFIX_BYTES: usize = size_of::<u64>();

/// The target of a search: a key and its prefix, computed once.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    prefix: u64,
    key: KeyRef<'k>,
}

impl<'k> Target<'k> {
    /// Prepares a key for comparison with many nodes.
    #[inline]
    pub(super) fn new(key: KeyRef<'k>) -> Target<'k> {
        Target { prefix: prefix_of(key.user), key }
    }
}

/// Returns the first eight bytes of `key` as a big-endian number, missing ones zero: if two prefixes differ, the keys
/// are ordered as they are.
#[inline]
fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            key.iter().fold(0, |prefix, byte| prefix << 8 | u64::from(*byte)).unbounded_shl(64 - 8 * key.len() as u32)
        }
    }
}

/// Compares `key` with `other`, given that their prefixes are equal.
#[inline]
fn compare_behind_prefix(key: &[u8], other: &[u8]) -> KeyOrder {
    // Equal prefixes of keys of which one has at most eight bytes: the shorter key is the beginning of the longer.
    let (Some(key_rest), Some(other_rest)) = (key.get(8..), other.get(8..)) else {
        return key.len().cmp(&other.len());
    };
    // Keys often share their first eight bytes (a tenant, a table, zero padding) and differ in the next eight.
    if let (Some(key_next), Some(other_next)) = (key_rest.first_chunk::<8>(), other_rest.first_chunk::<8>()) {
        let order = u64::from_be_bytes(*key_next).cmp(&u64::from_be_bytes(*other_next));
        if order.is_ne() || (key_rest.len() == 8 && other_rest.len() == 8) {
            return order;
        }
    }
    key_rest.cmp(other_rest)
}

impl Link {
    /// Returns a link to nothing.
    pub(super) fn empty() -> Link {
        Link(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the node that the link names.
    ///
    /// # Safety
    /// The arena of that node must outlive `'a`.
    #[inline]
    pub(super) unsafe fn load<'a>(&self) -> Option<Node<'a>> {
        Some(Node { header: NonNull::new(self.0.load(Ordering::Acquire))?, arena: PhantomData })
    }

    /// Names another node.
    ///
    /// # Safety
    /// A caller that loads from this link must take the node's arena for the one that it has to outlive.
    #[inline]
    pub(super) unsafe fn store(&self, node: Node<'_>) {
        self.0.store(node.header.as_ptr(), Ordering::Release);
    }
}

impl<'a> Node<'a> {
    /// Writes a new node that is linked to no other node and unknown to other threads.
    ///
    /// # Panics
    /// If the key is longer than [`KEY_BYTES_MAX`], the value than `u32` counts, or the height out of its range.
    #[inline]
    pub(super) fn create(arena: &'a Arena, height: usize, key: KeyRef<'_>, value: &[u8]) -> Node<'a> {
        assert!((1..=HEIGHT_MAX).contains(&height));
        assert!(key.user.len() <= KEY_BYTES_MAX, "a key of {} bytes is too long for a memtable", key.user.len());
        let value_bytes = u32::try_from(value.len()).expect("a value is shorter than 4 GiB");
        let tower_bytes = (height - 1) * size_of::<Link>();
        let key_room = key.user.len().max(PREFIX_BYTES);
        let piece = arena.allocate(tower_bytes + size_of::<Header>() + key_room + value.len());
        let header = Header {
            next: Link::empty(),
            trailer: key.trailer,
            shape: (key.user.len() as u32) << 8 | height as u32,
            value_bytes,
            witness: Witness::written(),
        };
        // SAFETY: the piece has room for the tower, the header, the key, which is at least as long as a prefix, and the
        // value, in this order; it is aligned for links, headers and prefixes, all of which have sizes that are
        // multiples of their alignment; and it is ours alone.
        unsafe {
            let place = piece.add(tower_bytes).cast::<Header>();
            for level in 1..height {
                place.cast::<Link>().sub(level).write(Link::empty());
            }
            place.write(header);
            let behind = place.add(1).cast::<u8>();
            if key.user.len() < PREFIX_BYTES {
                behind.cast::<u64>().write(0);
            }
            behind.copy_from_nonoverlapping(NonNull::from(key.user).cast(), key.user.len());
            behind.add(key_room).copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
            Node { header: place, arena: PhantomData }
        }
    }

    /// Returns the fixed part. Each use makes a new reference, so that no reference to the header is ever used to reach
    /// beyond it.
    #[inline(always)]
    fn header(self) -> &'a Header {
        // SAFETY: a node was written whole before its address came into a `Node`, nothing but its links (atomics)
        // changes afterwards, and the arena lives for `'a`.
        unsafe { self.header.as_ref() }
    }

    /// Returns the number of levels that the node is on.
    #[inline(always)]
    pub(super) fn height(self) -> usize {
        (self.header().shape & 0xff) as usize
    }

    /// Returns the key's first eight bytes as a big-endian number, missing ones zero.
    #[inline(always)]
    fn prefix(self) -> u64 {
        // SAFETY: that many bytes at least were written behind the header, aligned as it is, and the pointer covers the
        // whole chunk.
        u64::from_be(unsafe { self.header.add(1).cast::<u64>().read() })
    }

    /// Returns the key and its version.
    #[inline]
    pub(super) fn key(self) -> KeyRef<'a> {
        let header = self.header();
        header.witness.read();
        // SAFETY: that many bytes of key were written behind the header, and the pointer covers the whole chunk.
        let user = unsafe {
            let start = self.header.add(1).cast::<u8>();
            std::slice::from_raw_parts(start.as_ptr(), (header.shape >> 8) as usize)
        };
        KeyRef::new(user, header.trailer)
    }

    /// Returns the node's key if it is a version of the target's.
    #[inline]
    pub(super) fn version_of(self, target: &Target<'_>) -> Option<KeyRef<'a>> {
        let is_near = self.prefix() == target.prefix;
        let key = is_near.then(|| self.key())?;
        compare_behind_prefix(key.user, target.key.user).is_eq().then_some(key)
    }

    /// Returns the value.
    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let header = self.header();
        header.witness.read();
        // SAFETY: that many bytes of value were written behind the key's room, and the pointer covers the whole chunk.
        unsafe {
            let start = self.header.add(1).cast::<u8>().add(((header.shape >> 8) as usize).max(PREFIX_BYTES));
            std::slice::from_raw_parts(start.as_ptr(), header.value_bytes as usize)
        }
    }

    /// Compares the node's key with the target.
    #[inline]
    pub(super) fn compare(self, target: &Target<'_>) -> KeyOrder {
        let header = self.header();
        header.witness.read();
        let prefix = self.prefix();
        if prefix != target.prefix {
            return prefix.cmp(&target.prefix);
        }
        let key = self.key();
        compare_behind_prefix(key.user, target.key.user).then_with(|| target.key.trailer.cmp(&key.trailer))
    }

    /// Returns true if the node's key comes before the target.
    #[inline]
    pub(super) fn is_before(self, target: &Target<'_>) -> bool {
        self.compare(target).is_lt()
    }

    /// Returns the node's link on this level.
    #[inline(always)]
    fn link(self, level: usize) -> &'a Link {
        assert!(level < self.height());
        // SAFETY: the tower has a link for each level below the height, downwards from the header, whose first field is
        // the one of level 0; the pointer covers the whole chunk.
        unsafe { self.header.cast::<Link>().sub(level).as_ref() }
    }

    /// Returns the next node on this level.
    #[inline(always)]
    pub(super) fn next(self, level: usize) -> Option<Node<'a>> {
        // SAFETY: a node's link names a node of its own arena, which lives for `'a`.
        unsafe { self.link(level).load() }
    }

    /// Links a node that no other thread knows yet on this level.
    ///
    /// # Safety
    /// Both nodes are of one arena.
    #[inline]
    pub(super) unsafe fn set_next(self, level: usize, next: Option<Node<'a>>) {
        // Relaxed: published, with the rest of the node, by the `replace_next` that links it.
        self.link(level).0.store(address_of(next), Ordering::Relaxed);
    }

    /// Puts `new` in the place of `old` as the next node on this level, and so publishes it. Returns false, and does
    /// nothing, if the next node is another.
    ///
    /// # Safety
    /// Both nodes are of one arena.
    #[inline]
    pub(super) unsafe fn replace_next(self, level: usize, old: Option<Node<'a>>, new: Node<'a>) -> bool {
        let link = &self.link(level).0;
        // Relaxed on failure: the caller looks again, with Acquire.
        link.compare_exchange(address_of(old), new.header.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Asks for the node's first cache line.
    #[inline(always)]
    pub(super) fn prefetch(self) {
        prefetch(self.header.as_ptr());
    }

    /// Returns the node's address, to be resolved later.
    pub(super) fn address(self) -> NodeAddress {
        NodeAddress(self.header)
    }
}

impl PartialEq for Node<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header
    }
}

impl NodeAddress {
    /// Returns the node.
    ///
    /// # Safety
    /// The arena that the node was created in must live for `'a`.
    #[inline]
    pub(super) unsafe fn resolve<'a>(self) -> Node<'a> {
        Node { header: self.0, arena: PhantomData }
    }
}

#[inline]
fn address_of(node: Option<Node<'_>>) -> *mut Header {
    node.map_or(ptr::null_mut(), |node| node.header.as_ptr())
}

#[cfg(all(test, not(loom)))]
mod tests;
