//! Waiting for a queue's completions so that another thread can end the wait.
//!
//! [`Queue::wait`](crate::Queue::wait) ends with a completion only. A thread that also takes requests from others has
//! to be woken for a new request. Such a thread asks its queue for a [`Watch`] once and gives clones of it to the
//! others. Then it works in turns: it takes requests, submits them, polls, and waits ([`Watch::wait`]).
//!
//! A ring has the kernel write each completion to an event descriptor; [`Watch::wake`] writes to the same one.
//!
//! **Rejected:** a thread of the queue's own that turns completions into notifications of an
//! [`Event`](situ_base::Event): each completion would cross one thread more. **Rejected:** an entry in the ring that a
//! waker completes. It would take a place among the operations, and the table would have to know of it.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A wait for a queue's completions that another thread can end.
///
/// One thread waits at a time, and it is the one that uses the queue. Any thread wakes it.
pub trait Watch: Send + Sync {
    /// Blocks until the queue has something to collect, until [`wake`](Watch::wake), or until `timeout` has passed.
    /// Returns at once for what came since the last return. May return for nothing.
    fn wait(&self, timeout: Option<Duration>);

    /// Ends the present wait, or the next one.
    fn wake(&self);

    /// Returns a descriptor that becomes readable when a [`wait`](Watch::wait) would end, for a thread that waits for
    /// other things, too. To be watched by edges: without a wait it stays readable. `None`: there is none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// An event descriptor: what is written to it before a wait ends that wait.
#[derive(Debug)]
pub(crate) struct EventDescriptor(OwnedFd);

impl EventDescriptor {
    pub(crate) fn new() -> io::Result<EventDescriptor> {
        Ok(EventDescriptor(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Returns the number for the kernel, which keeps the descriptor open itself.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Waits as a [`Watch`] does; true if there was a wake, false if the wait ended for nothing.
    pub(crate) fn wait_for_wake(&self, timeout: Option<Duration>) -> bool {
        // Too long for the kernel is as good as no timeout.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // No memory for a moment: no reason to spin.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        // Back to zero; an error says that it is.
        read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl Watch for EventDescriptor {
    fn wait(&self, timeout: Option<Duration>) {
        self.wait_for_wake(timeout);
    }

    fn wake(&self) {
        // It fails only at 2^64 - 1 wakes that no waiter has taken: then the wait ends anyway.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_wake_ends_the_wait_that_it_meets_or_the_next_one() {
        let watch = Arc::new(EventDescriptor::new().unwrap());
        let begun = Instant::now();
        (0..3).for_each(|_| watch.wake());
        assert!(watch.wait_for_wake(Some(LONG)));
        let other = Arc::clone(&watch);
        let waker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.wake();
        });
        watch.wait(Some(LONG));
        assert!(begun.elapsed() >= Duration::from_millis(20) && begun.elapsed() < LONG);
        waker.join().unwrap();
    }

    #[test]
    fn each_wake_is_an_edge_of_the_descriptor() {
        use rustix::event::epoll;
        let watch = EventDescriptor::new().unwrap();
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&poll, watch.descriptor().unwrap(), epoll::EventData::new_u64(1), flags).unwrap();
        let events = || {
            let mut events = Vec::with_capacity(4);
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default())).unwrap()
        };
        assert_eq!(events(), 0);
        // Nobody reads in between.
        for _ in 0..3 {
            watch.wake();
            assert_eq!((events(), events()), (1, 0));
        }
    }

    #[test]
    fn a_wait_without_a_wake_takes_its_timeout() {
        let watch = EventDescriptor::new().unwrap();
        let begun = Instant::now();
        assert!(!watch.wait_for_wake(Some(Duration::from_millis(30))));
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }
}
