//! The disks of a store: a set of volumes, each with a role, that is one [`Volume`](situ_storage::Volume).
//!
//! * [`Disks`] is the set. [`Disk`] is one of it: its number, its role, what it has and how much it is used
//!   ([`Meter`]).
//! * [`members`] says which disks belong together: the files DISKS and MEMBER (`docs/formats/members.md`).
//! * [`Locks`] are the locks of the disks, in the order in which they were taken.
//!
//! **Roles.** Every set has one capacity disk. It has the manifest and all that lies nowhere else. Each other disk has
//! a number and a [`Role`], and callers find a disk by the one or the other. A set may have any count of disks. The
//! file DISKS knows one fast disk, and so a store has at most one today.
//!
//! **A store with one disk** makes none of this but [`Locks`]: its volume is the disk itself. Opening asks for DISKS,
//! before it has the lock and again with it, and finds none. It also writes the directory's path as a line
//! ([`path_text`]).
//!
//! This crate knows no tables, no manifest and no log, and it does not decide where anything is put.

#![forbid(unsafe_code)]

mod decision;
mod locks;
pub mod members;
mod meter;
pub mod path_text;
mod set;

pub use decision::PlacementDecision;
pub use locks::Locks;
pub use meter::{BULK_READ_BYTES, Meter, Metered, Totals};
pub use set::{CAPACITY, Disk, Disks, FAST, NewDisk, NotLetGo, Reserved, Role};
