//! Ownership of keys while a write to them is on its way.
//!
//! A read-modify-write (`incr`, `cas`, `append`, ...) reads, decides, hands a write to the engine and must keep others
//! away until that write is visible; a plain `set` takes part so that acknowledged order is kept. Holding a mutex for
//! that long would hold up a whole event loop, so a stripe is *owned*, not locked:
//!
//! 1. A command asks for the stripe of its key. If it is free, the command owns it and goes on.
//! 2. If not, the connection is queued and its loop goes on with other connections.
//! 3. The completion of the write releases the stripe; ownership passes straight to the first in the queue, whose
//!    loop finds a `Granted` message in its inbox.
//!
//! **Invariants.** A stripe with waiters is owned. Ownership is given back exactly once: by the completion, or by the
//! loop that was granted a stripe for a connection that is gone.
//! **Bounded.** A connection waits for at most one stripe, so the queues hold no more entries than there are
//! connections.
//! **Rejected.** A wait list per key: exact, but a map operation per write; with far more stripes than outstanding
//! writes, sharing a stripe by accident is rare and only costs a short wait.

use situ_base::lock;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::waiting::StripeIndex;
use crate::waiting::inbox::{Inbox, Message};

const STRIPES: usize = 8192;

#[derive(Default)]
struct Stripe {
    owned: bool,
    waiters: VecDeque<Waiter>,
}

struct Waiter {
    loop_index: usize,
    connection: u64,
}

/// All stripes, shared by the event loops.
pub(crate) struct Stripes {
    stripes: Box<[Mutex<Stripe>]>,
    inboxes: Vec<Arc<Inbox>>,
    seed: u64,
}

impl Stripes {
    pub(crate) fn new(inboxes: Vec<Arc<Inbox>>) -> Stripes {
        let stripes = (0..STRIPES).map(|_| Mutex::new(Stripe::default())).collect();
        Stripes { stripes, inboxes, seed: RandomState::new().hash_one("stripes") }
    }

    /// Returns the stripe of `key`. The hash is seeded, so that clients cannot aim at one stripe.
    pub(crate) fn of(&self, key: &[u8]) -> StripeIndex {
        (xxh3_64_with_seed(key, self.seed) % STRIPES as u64) as StripeIndex
    }

    /// Runs `change`, which waits for nothing, while `stripe` has no owner and cannot get one. Returns `None` if it has
    /// an owner.
    pub(crate) fn while_free<T>(&self, stripe: StripeIndex, change: impl FnOnce() -> T) -> Option<T> {
        let stripe = self.lock(stripe);
        (!stripe.owned).then(change)
    }

    /// Takes `stripe` if it is free.
    pub(crate) fn try_own(&self, stripe: StripeIndex) -> bool {
        let mut stripe = self.lock(stripe);
        !std::mem::replace(&mut stripe.owned, true)
    }

    /// Takes `stripe` if it is free; otherwise queues the connection, to be sent [`Message::Granted`].
    pub(crate) fn own_or_wait(&self, stripe: StripeIndex, loop_index: usize, connection: u64) -> bool {
        let mut stripe = self.lock(stripe);
        if !std::mem::replace(&mut stripe.owned, true) {
            return true;
        }
        stripe.waiters.push_back(Waiter { loop_index, connection });
        false
    }

    /// Gives `stripe` to the first that waits, or frees it.
    pub(crate) fn release(&self, index: StripeIndex) {
        let next = {
            let mut stripe = self.lock(index);
            assert!(stripe.owned, "stripe {index} released twice");
            let next = stripe.waiters.pop_front();
            stripe.owned = next.is_some();
            next
        };
        // Posting outside the lock keeps it short; ownership has already passed.
        if let Some(waiter) = next
            && let Some(inbox) = self.inboxes.get(waiter.loop_index)
        {
            inbox.post(Message::Granted { connection: waiter.connection, stripe: index });
        }
    }

    fn lock(&self, index: StripeIndex) -> std::sync::MutexGuard<'_, Stripe> {
        lock(&self.stripes[index as usize % STRIPES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ownership_passes_in_the_order_of_asking() {
        let inbox = Arc::new(Inbox::new().unwrap());
        let stripes = Stripes::new(vec![Arc::clone(&inbox)]);
        assert!(stripes.try_own(5));
        assert!(!stripes.own_or_wait(5, 0, 1));
        assert!(!stripes.own_or_wait(5, 0, 2));
        stripes.release(5);
        assert!(!stripes.try_own(5), "ownership has passed to the first waiter");
        stripes.release(5);
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        let granted: Vec<_> = messages
            .iter()
            .map(|message| match message {
                Message::Granted { connection, stripe: 5 } => *connection,
                _ => panic!("not a grant"),
            })
            .collect();
        assert_eq!(granted, [1, 2]);
        stripes.release(5);
        assert!(stripes.try_own(5));
    }
}
