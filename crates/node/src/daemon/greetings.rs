//! Connections whose client has not proven itself yet.
//!
//! 1. A connection has a place here from the moment when it was accepted, through TLS and the greeting, until its
//!    client has proven itself. Such connections take no place of those that are let in.
//! 2. A further connection than [`MOST`] ends the oldest one. A client that knows the secret needs a moment; an
//!    attacker who only holds connections open cannot keep it out.
//! 3. The janitor ends those that take long.
//!
//! **Threads.** Any. No connection is ended with the lock held: ending one tells its handler.

use situ_base::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Connections at once whose clients have not proven themselves.
pub(super) const MOST: usize = 64;

/// Ends a connection.
pub(super) type HangUp = Box<dyn Fn() + Send + Sync>;

/// See the module's page.
#[derive(Default)]
pub(super) struct Greetings {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    /// By their numbers, so the oldest one is the first: when it was accepted, and how it is ended.
    greetings: BTreeMap<u64, (Duration, HangUp)>,
}

impl Greetings {
    /// A place for a connection; its number. Without a free place, the oldest connection is ended.
    pub(super) fn begin(&self, now: Duration, hang_up: HangUp) -> u64 {
        let (number, oldest) = {
            let mut open = lock(&self.open);
            let oldest = if open.greetings.len() >= MOST { open.greetings.pop_first() } else { None };
            open.last += 1;
            let number = open.last;
            open.greetings.insert(number, (now, hang_up));
            (number, oldest)
        };
        if let Some((_, (_, hang_up))) = oldest {
            hang_up();
        }
        number
    }

    /// The client has proven itself, or its connection is over. False of a connection that was ended here.
    pub(super) fn end(&self, number: u64) -> bool {
        let ended = lock(&self.open).greetings.remove(&number);
        ended.is_some()
    }

    /// Ends connections that were accepted before `since`.
    pub(super) fn end_before(&self, since: Duration) {
        while let Some(hang_up) = self.take_before(since) {
            hang_up();
        }
    }

    fn take_before(&self, since: Duration) -> Option<HangUp> {
        let mut open = lock(&self.open);
        let oldest = open.greetings.first_entry().filter(|oldest| oldest.get().0 < since)?;
        Some(oldest.remove().1)
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.open).greetings.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_oldest_connection_makes_room_and_those_that_take_long_are_ended_without_the_lock() {
        let greetings = Arc::new(Greetings::default());
        let ended = Arc::new(Mutex::new(Vec::new()));
        for n in 0..=MOST as u64 {
            let (greetings_too, ended) = (Arc::clone(&greetings), Arc::clone(&ended));
            let hang_up = move || lock(&ended).push((n, greetings_too.count()));
            greetings.begin(Duration::from_secs(n), Box::new(hang_up));
        }
        assert_eq!(*lock(&ended), [(0, MOST)]);
        assert!(!greetings.end(1), "it was ended");
        assert!(greetings.end(2), "this one has proven itself");
        greetings.end_before(Duration::from_secs(4));
        assert_eq!(lock(&ended)[1..], [(2, MOST - 2), (3, MOST - 3)]);
        assert_eq!(greetings.count(), MOST - 3);
    }
}
