//! Deadlocks: transactions that wait for each other in a circle.
//!
//! Edges of the wait-for graph are not kept: they follow from the rows' holders and queues. The table keeps the waiting
//! transactions, each with its waiter. A circle can only come to be when a transaction begins to wait: a grant puts a
//! holder where a waiter was that the others waited for already. So the search runs then, from the new waiter, under
//! one lock. The last transaction to join a circle finds it complete, and gets the error. The others go on when it
//! gives back its locks.
//!
//! **Cost**: the search visits each waiting transaction once, and each edge. A waiter behind an exclusive one in a
//! queue has an edge to that one only. A transaction that need not wait pays nothing.
//!
//! **Not exact in one direction.** Rows are looked at one after the other. A wait that times out during the search may
//! be part of the circle that is found; it was one a moment before.

use crate::rows::locks::{Edge, LockTable, Owner, Waiter};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

impl LockTable {
    /// Returns the circle that `start` is part of, if there is one, beginning with it.
    pub(crate) fn find_circle(&self, waiting: &HashMap<Owner, Arc<Waiter>>, start: &Arc<Waiter>) -> Option<Vec<Edge>> {
        // The edge by which each transaction was reached.
        let mut reached: HashMap<Owner, Edge> = HashMap::new();
        let mut next = vec![Arc::clone(start)];
        while let Some(waiter) = next.pop() {
            for waits_for in self.in_the_way_of(&waiter) {
                let edge = Edge { owner: waiter.owner, row: waiter.row.clone(), waits_for };
                if waits_for == start.owner {
                    return Some(trace_back(&reached, edge, start.owner));
                }
                if let Entry::Vacant(vacant) = reached.entry(waits_for) {
                    vacant.insert(edge);
                    next.extend(waiting.get(&waits_for).cloned());
                }
            }
        }
        None
    }
}

fn trace_back(reached: &HashMap<Owner, Edge>, last: Edge, start: Owner) -> Vec<Edge> {
    let mut circle = vec![last];
    while let Some(edge) = circle.last().filter(|edge| edge.owner != start).and_then(|edge| reached.get(&edge.owner)) {
        circle.push(edge.clone());
    }
    circle.reverse();
    circle
}
