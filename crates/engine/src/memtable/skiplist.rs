//! A sorted list that many threads may add to while others read it, and that nothing is ever taken from.
//!
//! # How it works
//!
//! The nodes form one linked list in key order; every second node or so is also on the list of the level above, every
//! second of those on the next, and so on. A search starts at the head on the highest level, walks until the next node
//! is at or behind the target, and goes down one level.
//!
//! An insert
//!
//! 1. writes the node: no other thread knows it yet, so none sees it half done;
//! 2. finds its *splice*: on each level the last node before it and the first one behind;
//! 3. links it level by level, from the lowest up: it points the node at the one behind, then swings the link of the
//!    one before with a compare-and-swap, which publishes it. If another insert came between, it looks for the splice
//!    of this level again, starting at the node before, which still is before.
//!
//! Step 2 is where the time goes, so the last splice is remembered (the [`Finger`]): an insert close behind the last
//! one begins there, and keys that arrive in order cost a few comparisons each. One insert at a time has the finger;
//! one that finds it taken searches from the head instead of waiting.
//!
//! # Invariants
//!
//! * On every level the keys strictly ascend. A level holds a subset of the nodes of the level below.
//! * A node, once linked, stays linked, and its key never changes. So a node that was before a key always will be, and
//!   a search may start at any node before its target.
//! * A node found at level `l` has a link at level `l`.
//! * The finger's node on level `l + 1` is the one on level `l` or before it.
//!
//! # Threads
//!
//! Any thread may insert and search at any time; none ever waits for another. An insert that returned before a search
//! began is found by it: the insert's compare-and-swap on level 0 is a Release, the search's loads are Acquire.
//! Levels above 0 are shortcuts and may lag behind.
//!
//! # Failure
//!
//! Two entries with equal key and trailer would be indistinguishable: the second insert panics.
//!
//! # Rejected
//!
//! A B-tree needs fewer cache misses per search, but concurrent inserts need latches or copies, and entries move, so
//! that readers could not hold plain references into the memtable.

use situ_table::{KeyKind, KeyRef};

use super::arena::Arena;
use super::meter::Share;
use super::node::{HEIGHT_MAX, Link, Node, NodeAddress, Target};
use super::sync::{AtomicBool, AtomicUsize, Ordering, OwnCacheLine};

/// The number of levels on which an insert checks for its place at the finger before it searches from the head. Nodes
/// on higher levels are so rare that a search from the head is as short.
const FINGER_LEVELS: usize = 4;

/// A sorted list that only grows.
pub(super) struct SkipList {
    /// A node without a key that comes before all others and is on every level.
    head: NodeAddress,
    /// The height of the highest node so far, at least 1.
    height: AtomicUsize,
    finger: OwnCacheLine<Finger>,
    arena: Arena,
}

// SAFETY: `head` is the only part that is not `Sync` by itself; it is never changed, and its node is shared only by
// atomics and by memory that never changes.
unsafe impl Sync for SkipList {}

/// The place of the last insert: on each level a node at or before the last one inserted.
struct Finger {
    /// True if an insert is using the finger.
    taken: AtomicBool,
    before: [Link; HEIGHT_MAX],
}

/// The place of a key: on each level the last node before it and the first one that is not.
struct Splice<'a> {
    before: [Node<'a>; HEIGHT_MAX],
    after: [Option<Node<'a>>; HEIGHT_MAX],
}

impl SkipList {
    /// Creates an empty list. `share` counts its memory.
    pub(super) fn new(share: Share) -> SkipList {
        let arena = Arena::new(share);
        let nothing = KeyRef::new(&[], situ_table::Trailer::NEWEST);
        let head = Node::create(&arena, HEIGHT_MAX, nothing, &[]).address();
        let list = SkipList {
            head,
            height: AtomicUsize::new(1),
            finger: OwnCacheLine(Finger {
                taken: AtomicBool::new(false),
                before: std::array::from_fn(|_| Link::empty()),
            }),
            arena,
        };
        for link in &list.finger.0.before {
            // SAFETY: the finger's links are loaded only for as long as the list, and so its arena, is borrowed.
            unsafe { link.store(list.head()) };
        }
        list
    }

    /// Returns the memory that the nodes live in.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Returns the node before all others, which has no key.
    #[inline]
    pub(super) fn head(&self) -> Node<'_> {
        // SAFETY: the head was created in this list's arena, which lives as long as the list.
        unsafe { self.head.resolve() }
    }

    /// Returns the number of levels that have nodes.
    #[inline]
    pub(super) fn height(&self) -> usize {
        // Relaxed: a search that starts too low is only slower.
        self.height.load(Ordering::Relaxed)
    }

    /// Adds an entry whose node is to be `height` levels high. Returns the amount by which the count of keys grows less
    /// than one; see [`surplus`].
    ///
    /// # Panics
    /// If an entry with the same key and trailer is there, or one of the limits of [`Node::create`] is passed.
    pub(super) fn insert(&self, key: KeyRef<'_>, value: &[u8], height: usize) -> usize {
        let node = Node::create(&self.arena, height, key, value);
        let target = Target::new(key);
        if height > self.height() {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
        let mut splice = Splice { before: [self.head(); HEIGHT_MAX], after: [None; HEIGHT_MAX] };
        if self.finger.0.try_take() {
            let levels = self.locate_near_finger(&target, height, &mut splice);
            self.link(node, height, &target, &mut splice);
            self.finger.0.give_back(node, height, &splice, levels);
        } else {
            self.locate(&target, self.head(), self.height(), &mut splice);
            self.link(node, height, &target, &mut splice);
        }
        // The head has no key, and no entry has an empty one.
        let newer = splice.before[0].version_of(&target);
        let older = splice.after[0].and_then(|after| after.version_of(&target));
        surplus(key, newer, older)
    }

    /// Returns the first entry at or behind the target.
    #[inline]
    pub(super) fn first_at_or_behind(&self, target: &Target<'_>) -> Option<Node<'_>> {
        self.neighbours(target).1
    }

    /// Returns the last node before the target, which may be the head, and the first one that is not.
    #[inline]
    pub(super) fn neighbours(&self, target: &Target<'_>) -> (Node<'_>, Option<Node<'_>>) {
        let mut before = self.head();
        let mut after = None;
        for level in (0..self.height()).rev() {
            (before, after) = self.walk(target, before, level, after);
        }
        (before, after)
    }

    /// Returns the last node; the head if there is none.
    pub(super) fn last(&self) -> Node<'_> {
        let mut node = self.head();
        for level in (0..self.height()).rev() {
            while let Some(next) = node.next(level) {
                node = next;
            }
        }
        node
    }

    /// Walks on one level, from a node before the target to the last such node. Returns it and the next one.
    /// `bound`, if any, is known not to be before the target, so that it need not be compared again.
    #[inline(always)]
    pub(super) fn walk<'a>(
        &'a self,
        target: &Target<'_>,
        mut before: Node<'a>,
        level: usize,
        bound: Option<Node<'a>>,
    ) -> (Node<'a>, Option<Node<'a>>) {
        loop {
            let after = before.next(level);
            // The comparison waits for `after` in any case; prefetch meanwhile the node that the way down leads to.
            if level > 0
                && let Some(below) = before.next(level - 1)
            {
                below.prefetch();
            }
            match after {
                Some(node) if after != bound && node.is_before(target) => before = node,
                _ => return (before, after),
            }
        }
    }

    /// Fills in the splice on the levels below `levels`, from a node on level `levels - 1` that is before the target.
    #[inline]
    fn locate<'a>(&'a self, target: &Target<'_>, from: Node<'a>, levels: usize, splice: &mut Splice<'a>) {
        let mut before = from;
        let mut after = None;
        for level in (0..levels).rev() {
            (before, after) = self.walk(target, before, level, after);
            splice.before[level] = before;
            splice.after[level] = after;
        }
    }

    /// Fills in the splice on the levels below `height` at least, and returns the number of filled levels, from the
    /// lowest. The caller has the finger.
    #[inline]
    fn locate_near_finger<'a>(&'a self, target: &Target<'_>, height: usize, splice: &mut Splice<'a>) -> usize {
        let list_height = self.height();
        for level in 0..FINGER_LEVELS.min(list_height) {
            let before = self.finger_on(level);
            if before != self.head() && !before.is_before(target) {
                continue;
            }
            let after = before.next(level);
            if after.is_some_and(|after| after.is_before(target)) {
                continue;
            }
            // The place is between these two on this level, so everything above is before them, too.
            splice.before[level] = before;
            splice.after[level] = after;
            for above in level + 1..height {
                let (before, after) = self.walk(target, self.finger_on(above), above, None);
                splice.before[above] = before;
                splice.after[above] = after;
            }
            self.locate(target, before, level, splice);
            return height.max(level + 1);
        }
        self.locate(target, self.head(), list_height, splice);
        list_height
    }

    /// Returns the finger's node on a level.
    #[inline]
    fn finger_on(&self, level: usize) -> Node<'_> {
        // SAFETY: the finger holds this list's nodes, whose arena lives as long as the list.
        unsafe { self.finger.0.before[level].load() }.expect("the finger begins at the head and never lets go")
    }

    /// Links a new node on each of its levels. The splice is right, or was when it was found.
    #[inline]
    fn link<'a>(&'a self, node: Node<'a>, height: usize, target: &Target<'_>, splice: &mut Splice<'a>) {
        for level in 0..height {
            loop {
                let (before, after) = (splice.before[level], splice.after[level]);
                assert!(
                    level > 0 || after.is_none_or(|after| after.compare(target).is_ne()),
                    "an entry was inserted twice: {:?}",
                    node.key()
                );
                // SAFETY: all these nodes are this list's.
                let linked = unsafe {
                    node.set_next(level, after);
                    before.replace_next(level, after, node)
                };
                if linked {
                    break;
                }
                (splice.before[level], splice.after[level]) = self.walk(target, before, level, None);
            }
        }
    }
}

/// Returns the surplus of the version `key` between a newer and an older one: the amount by which the count of keys
/// grows less than one.
///
/// The versions of a key count together as one if the newest is no tombstone, less one if the oldest is a tombstone:
/// that one hides an entry elsewhere. Inserts of one key at the same time may be counted as if they had not met.
#[inline]
fn surplus(key: KeyRef<'_>, newer: Option<KeyRef<'_>>, older: Option<KeyRef<'_>>) -> usize {
    let is_tombstone = |version: KeyRef<'_>| version.trailer.kind() == Some(KeyKind::Delete);
    let mut keys = 0;
    if newer.is_none() {
        keys += isize::from(!is_tombstone(key)) - isize::from(older.is_some_and(|older| !is_tombstone(older)));
    }
    if older.is_none() {
        keys += isize::from(newer.is_some_and(is_tombstone)) - isize::from(is_tombstone(key));
    }
    debug_assert!((-1..=1).contains(&keys));
    (1 - keys) as usize
}

impl Finger {
    /// Takes the finger, unless another insert has it.
    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: this insert uses the finger that the last insert left here.
        !self.taken.load(Ordering::Relaxed)
            && self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Points at the node that was just inserted, whose splice is known on `levels` levels, and lets go.
    #[inline]
    fn give_back(&self, node: Node<'_>, height: usize, splice: &Splice<'_>, levels: usize) {
        for level in 0..levels {
            let before = if level < height { node } else { splice.before[level] };
            // SAFETY: the finger's links are loaded only for as long as the list, and so its arena, is borrowed.
            unsafe { self.before[level].store(before) };
        }
        self.taken.store(false, Ordering::Release);
    }
}
