//! Incremental backups of a store, in a directory.
//!
//! ```
//! use situ_backup::Backups;
//! use situ_engine::Store;
//!
//! # fn main() -> situ_engine::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let at = |name: &str| directory.path().join(name);
//! let store = Store::open(at("store"))?;
//! store.put("k", "then")?;
//! let backups = Backups::open_or_make(at("backups"))?;
//! let first = backups.create(&store)?;
//! store.put("k", "now")?;
//! backups.create(&store)?;
//!
//! backups.restore(Some(first.id), at("restored"), &mut |_| {})?;
//! assert_eq!(Store::open(at("restored"))?.get("k")?.as_deref(), Some(&b"then"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! A directory of backups has a *pool* of contents, and one small file for each backup that names the contents of the
//! store's files (`docs/formats/backup.md`). A content never changes, and has its hash as its name. So backups share
//! what is equal, and a restore checks all that it copies.
//!
//! * `create.rs`: a backup is a [checkpoint](situ_engine::Store::checkpoint_into) into a volume of this crate
//!   (`target.rs`), which keeps the contents that the pool has already.
//! * `restore.rs`, `verify.rs`, `prune.rs`: the other operations.
//! * `metadata.rs`: the file of a backup. `content.rs`: the names in the pool. `lineage.rs`: the store's file LINEAGE.
//!
//! **Which files are known.** A store never uses the number of a file twice, but two stores that began as one may: a
//! store that was restored to an older backup gives the numbers to other tables. The tables can be equal in length,
//! index and properties. So a store notes each backup in its file LINEAGE. A checkpoint and a restored store do not
//! have that note, or have an older one. A table or a sealed segment is known by its number only if the store descends
//! from a backup that has it. All else is compared with contents of the same length, or copied.
//!
//! A copy of a sealed segment may be older than the segment. Then it has values that the store has erased since, which
//! does no harm. The reverse cannot happen: the store descends from the backup that has the copy.
//!
//! **Threads and processes.** One caller at a time changes a directory of backups: a second one gets an error. Lists,
//! verifications and restores need no lock.
//!
//! **Failure.** A backup exists when its file has its name, and all contents are durable then. An operation that was
//! interrupted leaves contents without a backup, and unfinished files. The next backup uses these contents, and removes
//! the unfinished files.
//!
//! **Rejected**: hard links to the store's tables. Such a backup is lost with the disk of the store. **Rejected**: a
//! digest of a table's tail, which tells tables apart without a note in the store. Two tables can differ in values
//! alone, and a segment of the value log has no digest at all.

#![forbid(unsafe_code)]

mod content;
mod create;
mod directory;
mod disk;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod lineage;
mod metadata;
mod prune;
mod restore;
mod target;
mod verify;

pub use create::BackupReport;
pub use directory::{Backups, Listing, OnBytes, Progress};
pub use metadata::Backup;
pub use prune::PruneReport;
pub use restore::RestoreReport;
pub use verify::{BackupDamage, Depth, VerifyReport};

#[cfg(test)]
mod tests;
