//! The messages of other threads to an event loop: a queue and an eventfd that wakes the loop.
//!
//! The loop announces that it is about to sleep, looks into the inbox once more, and sleeps. A sender posts first and
//! then checks whether the loop has announced sleep: only then does it pay for the system call. A completion that
//! arrives while the loop runs, which is every completion of a buffered write, costs a push.

use situ_base::lock;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};

use crate::engine::EngineError;
use crate::process::descriptors::Place;
use crate::protocol::policy::Policy;
use crate::waiting::StripeIndex;
use crate::waiting::held::Greeted;

/// News for an event loop.
pub(crate) enum Message {
    /// A listener took a connection for this loop.
    Accepted { socket: OwnedFd, local: bool, place: Place },
    /// The engine has taken a batch that it made wait.
    Taken { batch: u64 },
    /// There may be room for a batch again.
    Room,
    /// The engine has answered a batch.
    Completed { batch: u64, connections: Vec<u64>, result: Result<(), EngineError> },
    /// Reads have ended; their outcomes are in the loop's mailbox.
    Arrived,
    /// `stripe` now belongs to `connection`.
    Granted { connection: u64, stripe: StripeIndex },
    /// The connection's greeting has ended.
    Greeted { connection: u64, outcome: Greeted },
    /// There is text in the connection's feed.
    Fed { connection: u64 },
    /// The server has another policy.
    Policy(Arc<Policy>),
    /// Finish what was read, then end.
    Stop,
}

/// See the module.
pub(crate) struct Inbox {
    messages: Mutex<Vec<Message>>,
    asleep: AtomicBool,
    wake: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> std::io::Result<Inbox> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Inbox { messages: Mutex::default(), asleep: AtomicBool::new(false), wake })
    }

    /// Leaves a message and wakes the loop if it sleeps.
    pub(crate) fn post(&self, message: Message) {
        lock(&self.messages).push(message);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // The counter can only be full after 2^64 posts without a read; then it is readable anyway.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Moves all messages to `out`.
    pub(crate) fn take(&self, out: &mut Vec<Message>) {
        out.append(&mut lock(&self.messages));
    }

    /// Announces sleep; true if there is nothing to do. On false the loop must not sleep.
    pub(crate) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = lock(&self.messages).is_empty();
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// Records that the loop is awake again.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        let mut counter = [0u8; 8];
        // Nothing to read means that something else woke the loop.
        let _ = rustix::io::read(&self.wake, &mut counter);
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
