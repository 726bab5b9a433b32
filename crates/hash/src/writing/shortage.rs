//! Want of space: what the store does when a disk takes no more.
//!
//! Two watches:
//!
//! * *Before* it happens: the crate `pipeline` judges the space of the home, and the physical space of drives that
//!   compress ([`watch`]).
//! * *When* it happens: a worker or the keeper finds that a write ends with `ENOSPC`. It is then *short* of space.
//!
//! 1. Changes that were not written stay in the pending table and in the log, where they are durable.
//! 2. While a worker or the keeper is short, puts are refused. Deletes are taken as long as there is room for them in
//!    memory and in the log.
//! 3. A thread that is short tries again every [`RETRY_EVERY`]. When the whole of its work has succeeded, the thread is
//!    short no longer.
//!
//! **A batch of buckets that fails in the middle** (`retry.rs`). Some of its buckets were written, the state of others
//! is unknown. The old blocks of these count, and hide what the device has (`io.rs`). The totals count the buckets that
//! were written. All changes of the batch stay pending, and are applied again: the last change of a key decides, as
//! after a crash. Values that the batch has put into the value log are not put there again: their handles are kept by
//! sequence number.
//!
//! **A step that cannot be left half done** ([`Patience::UntilSpace`]), in a split or a merge. The keeper repeats it in
//! place, with the gate closed, until there is space or the store closes. Closing then leaves what a crash leaves.
//!
//! **Invariants.** An [`Error::OutOfSpace`] is made only where nothing is lost by trying again. Any other error fails
//! the store.
//! **Bounds.** Pending changes take at most twice the memory that they may take otherwise, so that deletes find room
//! behind puts that wait. The log takes at most twice what it may have before a checkpoint, and a few files.

use crate::Error;
use crate::base::events::{Events, HashEvent};
use crate::writing::pending::Pending;
use situ_base::{Clock, lock};
use situ_device::{Compresses, Device};
use situ_log::Log;
use situ_pipeline::{Needs, SpaceKind, SpaceUse, SpaceWatch, WatchedDisk};
use situ_storage::Volume;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The time for which a thread that is short of space waits before it tries again.
pub(crate) const RETRY_EVERY: Duration = Duration::from_millis(500);

/// A party that is short of space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    /// The worker of a partition.
    Worker(usize),
    Keeper,
    /// A step of the keeper that is repeated in place.
    Step,
}

/// The reaction to want of space in the middle of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The caller gets the error.
    None,
    /// The step is repeated until it succeeds.
    UntilSpace,
}

/// The reason why a write may not begin now.
pub(crate) enum Hindrance {
    /// The space of the disks is unknown: a sample is to be taken.
    Unknown,
    Refused(Error),
}

/// Both watches of a store. See the module's documentation.
pub(crate) struct Shortage {
    pub(crate) space: Arc<SpaceWatch>,
    short: Mutex<BTreeMap<Party, Error>>,
    is_any: AtomicBool,
    log_bytes_max: u64,
    events: Events,
}

impl Shortage {
    /// Makes the watch. Deletes are refused, too, when the log has `log_bytes_max` bytes and a thread is short of
    /// space.
    pub(crate) fn new(space: SpaceWatch, log_bytes_max: u64, events: Events) -> Shortage {
        let (short, is_any) = (Mutex::default(), AtomicBool::new(false));
        Shortage { space: Arc::new(space), short, is_any, log_bytes_max, events }
    }

    /// Returns true if a thread is short of space.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Returns the reason why puts are refused, if a thread is short of space.
    pub(crate) fn cause(&self) -> Option<Error> {
        lock(&self.short).values().next().cloned()
    }

    /// Returns an error if space does not allow a write of `bytes` now.
    #[inline]
    pub(crate) fn check(&self, bytes: u64, space_use: impl Fn() -> SpaceUse, log: &Log) -> Result<(), Hindrance> {
        match self.space.takes(bytes, &space_use) {
            Some(true) => {}
            // The log file has its space already, and a deletion takes no other.
            _ if space_use() != SpaceUse::Put && !self.space.watches_physical() && bytes <= log.room_bytes() => {}
            _ => return Err(Hindrance::Unknown),
        }
        if self.is_any() && (space_use() == SpaceUse::Put || log.held_bytes() >= self.log_bytes_max) {
            return self.cause().map_or(Ok(()), |cause| Err(Hindrance::Refused(cause)));
        }
        Ok(())
    }

    /// Notes that `party` is short of space because of `cause`.
    pub(crate) fn note(&self, party: Party, cause: &Error) {
        let is_first = {
            let mut short = lock(&self.short);
            let is_first = short.is_empty();
            short.insert(party, cause.clone());
            self.is_any.store(true, Ordering::Release);
            is_first
        };
        if is_first {
            self.events.tell(&HashEvent::OutOfSpace { cause: cause.clone() });
        }
    }

    /// Notes that `party` has done all of its work.
    pub(crate) fn over(&self, party: Party) {
        let is_last = {
            let mut short = lock(&self.short);
            let is_last = short.remove(&party).is_some() && short.is_empty();
            self.is_any.store(!short.is_empty(), Ordering::Release);
            is_last
        };
        if is_last {
            self.events.tell(&HashEvent::SpaceReturned);
        }
    }
}

/// Returns the watch over the space of a store's disks. `fixed_bytes` is what it may need of physical space in addition
/// to its pending changes. `stored` returns the bytes that the home holds.
pub(crate) fn watch(
    clock: Arc<dyn Clock>,
    home: &Arc<dyn Volume>,
    device: &Arc<dyn Device>,
    pending: &Arc<Pending>,
    fixed_bytes: u64,
    stored: impl Fn() -> u64 + Send + Sync + 'static,
    events: Events,
) -> SpaceWatch {
    let mut disks = Vec::new();
    if device.nature().compresses == Compresses::Yes {
        let asked = Arc::clone(device);
        disks.push(WatchedDisk {
            location: device.describe(),
            kind: SpaceKind::Physical,
            ask: Box::new(move || asked.space()),
        });
    }
    if home.nature().compresses == Compresses::Yes {
        let asked = Arc::clone(home);
        disks.push(WatchedDisk {
            location: home.location(),
            kind: SpaceKind::Physical,
            ask: Box::new(move || asked.space()),
        });
    }
    let asked = Arc::clone(home);
    disks.push(WatchedDisk {
        location: home.location(),
        kind: SpaceKind::Logical,
        ask: Box::new(move || asked.space()),
    });
    let pending = Arc::clone(pending);
    let needs = move || Needs {
        // A change goes to its bucket, or to the value log.
        now: pending.bytes(),
        // Of physical space, its place in the log may not be on the drive yet, either.
        in_log: pending.bytes().saturating_add(fixed_bytes),
        at_most: pending.bytes_max().saturating_mul(2).saturating_add(fixed_bytes),
        stored: stored(),
        elsewhere: 0,
    };
    SpaceWatch::new(clock, disks, needs, move |change| events.tell(&HashEvent::Space(change)))
}
