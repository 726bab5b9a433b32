//! Backups of real stores in real directories.

mod common;
mod damage; // damaged and missing contents, and refusals
mod kill; // processes that are killed while they make or restore backups
mod known; // which files of a store are known from an earlier backup
mod model; // random changes, backups and restores against a model
