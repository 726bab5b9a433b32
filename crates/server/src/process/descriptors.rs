//! File descriptors: connections and the engine's files share one limit of the process.
//!
//! An engine that cannot open its next log file or table refuses writes, so clients that merely connect must not be
//! able to use up the limit:
//!
//! 1. The soft limit, 1024 on most systems, is raised to the hard one, before the store is opened.
//! 2. Connections are held to what the limit leaves when [`reserve`] descriptors are set aside. One over RDMA takes two
//!    descriptors, and so two of the [places](Places).
//!
//! **Rejected.** Refusing to start when `max_connections` cannot be met, as memcached does: the default would not start
//! under a small hard limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The least that is set aside: the store's log files and tables, listeners, HTTP.
const RESERVE_MIN: u64 = 96;
/// The epoll instance and the eventfd of an event loop, and the ring and the eventfd of its reads.
const EACH_LOOP: u64 = 4;

/// Raises the process's soft limit of open files as far as it goes; what it is then.
///
/// ```
/// assert!(situ_server::raise_limit() > 0);
/// ```
pub fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current.unwrap_or(u64::MAX);
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        // A system that refuses keeps the old limit, under which connections are held to what fits.
        Err(_) => current.unwrap_or(u64::MAX),
    }
}

/// Descriptors that connections must leave: a quarter, as a store needs more the larger it grows.
pub(crate) fn reserve(limit: u64, threads: usize) -> u64 {
    RESERVE_MIN.max(limit / 4) + EACH_LOOP * threads as u64
}

/// Returns the connections that fit under `limit`, at most `wanted`.
///
/// # Errors
/// Not even one fits; the text says what to do.
pub(crate) fn connections_max(limit: u64, wanted: usize, threads: usize) -> Result<usize, String> {
    let reserve = reserve(limit, threads);
    match limit.saturating_sub(reserve) {
        0 => Err(format!(
            "the limit of open files is {limit}, and {reserve} are set aside for the store: raise it (`ulimit -n`, or \
             LimitNOFILE of a systemd unit) to at least {}",
            2 * reserve
        )),
        room => Ok(wanted.min(usize::try_from(room).unwrap_or(usize::MAX))),
    }
}

/// The places that connections take, one for each descriptor.
pub(crate) struct Places {
    max: AtomicUsize,
    taken: AtomicUsize,
}

/// A place that is taken until this is dropped.
pub(crate) struct Place(Arc<Places>);

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Places> {
        Arc::new(Places { max: AtomicUsize::new(max), taken: AtomicUsize::new(0) })
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes the number of places. Those that are taken beyond it stay so.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a place, if one is left.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(self));
        (before < self.max()).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_until_it_is_dropped() {
        let places = Places::new(2);
        let taken = [places.take(), places.take()];
        assert!(taken.iter().all(Option::is_some) && places.take().is_none() && places.taken() == 2);
        drop(taken);
        assert!(places.take().is_some() && places.taken() == 0);
        places.set_max(0);
        assert!(places.take().is_none());
    }

    #[test]
    fn connections_leave_a_quarter_of_the_descriptors_and_never_less_than_the_store_needs() {
        assert_eq!(connections_max(1 << 20, 10_240, 4), Ok(10_240));
        assert_eq!(connections_max(u64::MAX, 10_240, 4), Ok(10_240));
        assert_eq!(connections_max(1024, 10_240, 4), Ok(1024 - 256 - 16));
        assert_eq!(connections_max(128, 10_240, 2), Ok(128 - 96 - 8));
        assert!(connections_max(90, 1, 1).unwrap_err().contains("ulimit -n"));
    }
}
