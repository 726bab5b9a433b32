//! Situ: advice for databases on drives that compress.
//!
//! The only advice today is the fill factor of PostgreSQL's tables. A new version of a row that fits into the page of
//! the old one leaves the indexes as they are (a *HOT* update). A fill factor below 100 leaves room for that, and pages
//! with room in them take more space. On a drive that compresses, the room costs next to nothing as long as it holds
//! zeros.
//!
//! # Steps
//! 1. The caller fetches a [`Table`] for each table, with what the server has counted, and says whether the drive
//!    compresses.
//! 2. [`page`] computes from the widths of the columns how many rows a page holds at a fill factor, and how much stays
//!    free.
//! 3. [`hot`] computes from the counts how many new versions a page needs room for, and so the HOT share at a fill
//!    factor.
//! 4. [`space`] computes what a fill factor costs, in logical and in physical bytes.
//! 5. [`advise`] weighs the two, and says a fill factor or why the present one stays, with [`statement`]s.
//!
//! **Invariants.** The advice is a pure function of its arguments. Nothing here connects, reads files or changes
//! anything. A figure that the statistics do not tell is `None`, and the advice says what it lacks.
//! **Failure.** There is none: where the statistics do not suffice, the present fill factor stays, with the reason.
//! **Rejected.** A fixed fill factor for all tables, such as the 75 of the study that this follows: rows of a hundred
//! bytes need 95, rows of two kilobytes need 60, and tables without updates need 100.

#![forbid(unsafe_code)]

mod advice;
pub mod hot;
pub mod page;
pub mod space;
pub mod statement;
mod table;
mod words;

pub use advice::{Advice, COMPRESSION_TAKEN, Forecast, Keep, Note, Recommendation, WORTH_MIN, advise, forecast};
pub use situ_device::Compresses;
pub use table::{Alignment, Column, Counts, Index, Kind, Table};

#[cfg(test)]
mod tests;
