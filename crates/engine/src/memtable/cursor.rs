//! Walking over a memtable while it grows.
//!
//! Forward, a cursor follows the links of level 0. There are no links back; a step back is a search for the last node
//! before the current one. The first such search remembers its path, one node per level, and the steps behind it start
//! on the lowest level whose node is still before the goal: on average a few nodes each, however large the memtable.
//!
//! A cursor sees every entry whose insert returned before the cursor's movement began, and may see later ones.

use std::sync::Arc;

use situ_storage::Result;
use situ_table::{Cursor, KeyRef};

use super::Memtable;
use super::node::{HEIGHT_MAX, Node, NodeAddress, Target};

/// A [`Cursor`] over the point entries of a memtable. Its movements never fail. It keeps the memtable alive.
pub struct MemtableCursor {
    /// The node at which the cursor stands.
    node: Option<NodeAddress>,
    /// On each level below `path_levels` a node of that level, or the head, that is before `node`.
    path: [NodeAddress; HEIGHT_MAX],
    path_levels: usize,
    memtable: Arc<Memtable>,
}

impl MemtableCursor {
    pub(super) fn new(memtable: Arc<Memtable>) -> MemtableCursor {
        let head = memtable.list.head().address();
        MemtableCursor { node: None, path: [head; HEIGHT_MAX], path_levels: 0, memtable }
    }

    #[inline]
    fn resolve(&self, address: NodeAddress) -> Node<'_> {
        // SAFETY: every address in a cursor is of its memtable's list, which it keeps alive.
        unsafe { address.resolve() }
    }

    /// Returns the node that the cursor stands on.
    #[inline]
    fn node(&self) -> Node<'_> {
        self.resolve(self.node.expect("the cursor stands on an entry"))
    }

    /// Stands on a node, or nowhere, with the path unknown.
    #[inline]
    fn stand(&mut self, node: Option<NodeAddress>) {
        self.node = node;
        self.path_levels = 0;
    }

    /// Returns the path to the node before `node`: fills in the levels that are unknown or do not lie before it.
    fn path_before(&self, node: Node<'_>) -> ([NodeAddress; HEIGHT_MAX], usize) {
        let list = &self.memtable.list;
        let mut path = self.path;
        let target = Target::new(node.key());
        // From the lowest level whose node is before the goal; if there is none, from the head on the highest.
        let known = (0..self.path_levels).find(|level| self.resolve(path[*level]) != node);
        let (from, top, levels) = match known {
            Some(level) => (self.resolve(path[level]), level, self.path_levels),
            None => (list.head(), list.height() - 1, list.height()),
        };
        let mut before = from;
        let mut after = None;
        for level in (0..=top).rev() {
            (before, after) = list.walk(&target, before, level, after);
            path[level] = before.address();
        }
        (path, levels)
    }
}

impl Cursor for MemtableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.node.is_some()
    }

    #[inline]
    fn key(&self) -> KeyRef<'_> {
        self.node().key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.node().value()
    }

    fn first(&mut self) -> Result<()> {
        let first = self.memtable.list.head().next(0).map(Node::address);
        self.stand(first);
        Ok(())
    }

    fn last(&mut self) -> Result<()> {
        let list = &self.memtable.list;
        let last = list.last();
        let last = (last != list.head()).then(|| last.address());
        self.stand(last);
        Ok(())
    }

    fn seek(&mut self, target: KeyRef<'_>) -> Result<()> {
        let found = self.memtable.list.first_at_or_behind(&Target::new(target)).map(Node::address);
        self.stand(found);
        Ok(())
    }

    fn seek_before(&mut self, target: KeyRef<'_>) -> Result<()> {
        let list = &self.memtable.list;
        let target = Target::new(target);
        let (before, after) = list.neighbours(&target);
        let found = match after {
            Some(after) if after.compare(&target).is_eq() => Some(after),
            _ => (before != list.head()).then_some(before),
        };
        let found = found.map(Node::address);
        self.stand(found);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let next = self.node().next(0);
        if let Some(after) = next.and_then(|next| next.next(0)) {
            after.prefetch();
        }
        let next = next.map(Node::address);
        self.stand(next);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let (path, levels) = self.path_before(self.node());
        let before = self.resolve(path[0]);
        let before = (before != self.memtable.list.head()).then(|| before.address());
        self.node = before;
        self.path = path;
        self.path_levels = levels;
        Ok(())
    }
}
