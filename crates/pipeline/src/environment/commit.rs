//! The state under the commit lock: sequence numbers, the queue of requests, and the places of the environment.
//!
//! **Invariants.** The queue holds what has a sequence number and is not published, in the order of the numbers.
//! Requests leave it at the front. Each that is published follows the last one that was. Behind a request that failed
//! nothing is published.

use super::conditions::Checks;
use super::request::{Caller, Request, Write};
use super::{Environment, WALKED_MAX};
use situ_log::{Durability, Lsn};
use std::collections::VecDeque;
use std::sync::Arc;

/// See the module's documentation.
pub struct Commit<E: Environment> {
    /// The environment's state under this lock.
    pub places: E::Places,
    /// The published requests that the checks of committing transactions need.
    pub checks: Checks<E>,
    next_sequence: u64,
    /// The last sequence number that was published.
    published: u64,
    pub(crate) pending: VecDeque<Arc<Request<E>>>,
    /// Set when a request failed: those behind it must not be published.
    pub(crate) broken: Option<E::Error>,
    /// True if there is new work for the background, which is notified once the lock is released.
    has_work: bool,
}

impl<E: Environment> Commit<E> {
    /// Goes on behind `last_sequence`, up to which everything is visible.
    pub fn new(last_sequence: u64, places: E::Places) -> Commit<E> {
        Commit {
            places,
            checks: Checks::default(),
            next_sequence: last_sequence + 1,
            published: last_sequence,
            pending: VecDeque::new(),
            broken: None,
            has_work: false,
        }
    }

    /// Returns the last sequence number that was given out.
    pub fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    /// Returns the first sequence number that was not given out.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Notes that there is new work for the background. If a prologue calls this, the pipeline notifies the background
    /// once the lock is released ([`Environment::tell_background`]).
    pub fn leave_work(&mut self) {
        self.has_work = true;
    }

    /// Returns true if there is new work for the background; asked once.
    pub(crate) fn take_work(&mut self) -> bool {
        std::mem::take(&mut self.has_work)
    }

    /// Returns the requests behind `sequence` that are still known, newest first.
    pub fn requests_behind(&self, sequence: u64) -> impl Iterator<Item = &Arc<Request<E>>> {
        self.pending.iter().rev().chain(self.checks.lately()).take_while(move |request| request.first() > sequence)
    }

    /// Asserts the invariants of the module's page.
    fn check(&self) {
        let (published, next) = (self.published, self.next_sequence);
        let first = self.pending.front().map_or(next, |request| request.first());
        let follows = first == published + 1 || self.broken.is_some() && first > published;
        debug_assert!(follows, "the queue begins at {first}, published is {published}");
        let end = self.pending.back().map_or(next, |request| request.last() + 1);
        debug_assert_eq!(end, next, "the queue ends with the last sequence number that was given out");
        let kept = self.checks.lately().next().map_or(0, |newest| newest.last());
        debug_assert!(kept <= published, "{kept} is kept as published, published is {published}");
        if cfg!(any(test, feature = "costly-checks")) && self.pending.len() <= WALKED_MAX {
            let follow = |a: &Request<E>, b: &Request<E>| a.last() + 1 == b.first() && a.lsn() < b.lsn();
            assert!(self.pending.iter().is_sorted_by(|a, b| follow(a, b)), "log, queue and sequence order differ");
        }
    }

    /// Gives out sequence numbers, and lets the write join the queue.
    pub(crate) fn enqueue(
        &mut self,
        write: Write<E>,
        placed: (E::Targets, Lsn),
        caller: Caller,
        durability: Durability,
    ) -> Arc<Request<E>> {
        let request = Request::new(write, self.next_sequence, placed, caller, durability);
        debug_assert!(request.last() >= request.first(), "a write without changes shares its number with the next");
        let is_logged_behind = self.pending.back().is_none_or(|before| before.lsn() < request.lsn());
        debug_assert!(is_logged_behind, "write {} lies in the log before the one before it", request.first());
        self.next_sequence = request.last() + 1;
        self.pending.push_back(Arc::clone(&request));
        self.check();
        request
    }

    /// Notes that a request is about to be published: it follows the last one that was.
    pub(crate) fn advance(&mut self, request: &Request<E>) {
        let (first, last) = (request.first(), request.last());
        assert!(
            first == self.published + 1 && last >= first,
            "writes {first} to {last} are published behind {}",
            self.published
        );
        self.published = last;
        self.check();
    }
}
