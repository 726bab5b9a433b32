//! A fast disk for a store, a guest: which disks belong together, what lies where, and how the disk is taken away.
//!
//! ```
//! use situ_engine::{Options, StoreBuilder};
//! use situ_tiers::{TieredBuilder, TieredStore};
//!
//! # fn main() -> situ_engine::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let (home, fast) = (directory.path().join("home"), directory.path().join("fast"));
//! let store = StoreBuilder::new(Options::default()).fast_disk(&fast).open(&home)?;
//! assert!(store.placement().is_some());
//! store.drain_fast_disk()?;
//! store.close()
//! # }
//! ```
//!
//! [`Tiers`] finds the disks of a store that opens. The store asks [`Volumes`](situ_engine::places::Volumes) and
//! [`Places`](situ_engine::places::Places), and knows no more of it.
//!
//! * `set.rs`: the disks as one [`Volume`](situ_storage::Volume). `meter.rs` counts what goes through each.
//! * `members.rs`: the files that say which disks belong together, DISKS and MEMBER (`docs/formats/members.md`).
//! * `membership.rs`: from the disks that a caller names to those that the store uses.
//! * `placement.rs`: where a table goes, by the rules in `rules.rs`.
//! * `promotion.rs`: tables that are read often are moved, by the rules in `promotion_rules.rs`.
//! * `drain.rs`: how the fast disk is taken away.
//!
//! **Roles.** Every store has one capacity disk. It has the manifest and all that lies nowhere else. Each other disk of
//! a set has a number and a role. A set may have any count of disks. The file DISKS knows one fast disk, and so a store
//! has at most one today.
//!
//! **A store with one disk** makes no set: its volume is the disk itself. Opening asks for DISKS, before it has the
//! lock and again with it, and finds none. It also writes the directory's path as a line (`path_text.rs`).

#![forbid(unsafe_code)]

mod decision;
mod drain;
mod extensions;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod maker;
mod members;
mod membership;
mod meter;
mod path_text;
mod placement;
mod promoting;
mod promotion;
mod promotion_rules;
mod rules;
mod set;
mod tools;

pub use decision::PlacementDecision;
pub use extensions::{TieredBuilder, TieredRepair, TieredStore};
pub use maker::Tiers;
pub use placement::PlacementProperties;
pub use rules::PlacementRule;
pub use set::{CAPACITY, FAST};
pub use tools::{
    destroy, destroy_home, files_of, files_of_home, repair_directory, repair_home, repair_volumes, verify_directory,
    verify_home, verify_volumes,
};
