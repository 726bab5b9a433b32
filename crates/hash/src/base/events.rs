//! Events that a store reports to its program: what a person should know while everything still works.
//!
//! **Threads.** The listener runs on threads of the store and on those of callers, with no lock held. It returns
//! quickly and does not wait for the store. A panic in it is caught.

use crate::Error;
use situ_pipeline::SpaceChange;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Something happened. Its text is a line for a log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HashEvent {
    /// The space of a disk has another level.
    Space(SpaceChange),
    /// A write to a disk found no space. The store takes no more puts, and tries again by itself.
    OutOfSpace {
        /// The first failure.
        cause: Error,
    },
    /// The store has written everything that it could not write before. Puts are taken again.
    SpaceReturned,
    /// The record of the store's clock is damaged. The clock restarts at the wall clock.
    ClockDamaged {
        /// File, offset, what was expected and what was found.
        damage: Error,
    },
    /// One of the two slots of the superblock is damaged. The other one is sound, and the store rewrites the damaged
    /// one.
    SuperblockDamaged {
        /// File, offset, what was expected and what was found.
        damage: Error,
    },
}

impl fmt::Display for HashEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashEvent::Space(change) => change.fmt(f),
            HashEvent::OutOfSpace { cause } => {
                write!(f, "puts are refused, because a disk is out of space: {cause}; deletes and reads go on")
            }
            HashEvent::SpaceReturned => f.write_str("all writes go on: the disk that was out of space has space again"),
            HashEvent::ClockDamaged { damage } => {
                write!(
                    f,
                    "the record of the clock is damaged; the store's expiration clock restarts at the wall clock: {damage}"
                )
            }
            HashEvent::SuperblockDamaged { damage } => write!(
                f,
                "a slot of the superblock is damaged, and the other one is sound: {damage}; the damaged one was written anew"
            ),
        }
    }
}

/// A listener that is called with each event.
pub type OnEvent = Arc<dyn Fn(&HashEvent) + Send + Sync>;

/// The listener, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<OnEvent>);

impl Events {
    pub(crate) fn new(on_event: Option<OnEvent>) -> Events {
        Events(on_event)
    }

    pub(crate) fn tell(&self, event: &HashEvent) {
        if let Some(on_event) = &self.0 {
            // The program's bug must not end a thread of the store.
            _ = catch_unwind(AssertUnwindSafe(|| on_event(event)));
        }
    }
}
