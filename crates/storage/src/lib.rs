//! Volumes: named files that are written once, front to back, and then only read.
//!
//! A [`Volume`] is a place where a store keeps data: a directory ([`DirectoryVolume`]), a device without a file system
//! (`situ_rawdisk::RawVolume`), a simulated one, a node on another machine. Two kinds of file exist:
//!
//! * *written once*: tables and manifests. [`Volume::create`] gives a [`Writer`], [`Volume::open`] a [`Reader`].
//! * *page files*: log files. [`Volume::create_pages`] reserves room first; then whole pages are written at any
//!   place, by many threads at once, each write durable or not as asked ([`PageFile`]).
//!
//! A [`Reader`] reads at once ([`Reader::read_at`]), or takes reads that complete later ([`Reader::submit`]). With a
//! [`ReadQueue`], one thread has many reads in flight, for any files on any volumes.
//!
//! # What survives a crash
//!
//! | after | survives |
//! |---|---|
//! | [`Writer::sync`] / [`Writer::finish`] | the bytes appended before it, and the file's name |
//! | [`PageFile::write`] with `durable` | those pages |
//! | [`PageFile::sync`] | all pages written before it began |
//! | [`PageFile::discard`] that returned true | zeros or old bytes per sector; zeros after [`PageFile::sync`] |
//! | [`Volume::create_pages`] | the name and the reserved length (contents: zero, or what a recycled file held) |
//! | [`Volume::replace`] | the old or the new contents, whole |
//! | [`Volume::rename`], [`Volume::remove`] | after [`Volume::sync_names`]; before it, either outcome |
//!
//! Whatever is not in the table may be lost, in any order, torn at any 512-byte sector.

#![forbid(unsafe_code)]

mod directory;
mod error;
mod excerpt;
pub mod memory;
mod name;
mod read_request;
mod reads;
mod traces;
mod volume;

pub use directory::{DirectoryVolume, names_in};
pub use error::{Corruption, Error, Result};
pub use excerpt::Excerpt;
pub use name::{FileMeta, FileName};
pub use read_request::{ReadCompletion, ReadRequest};
pub use reads::{FinishedRead, ReadQueue};
/// The parts of a volume whose reads complete later, for those who implement one.
pub mod serve {
    pub use crate::reads::{Pump, QueuedRead, ReadService, Served, Source};
}
pub use traces::{HASH_STORE_IDENTITY, trace_of_hash_store};
pub use volume::{Lock, PageFile, PageQueue, Reader, Volume, Writer};

pub use situ_device::{Buffer, Geometry, Nature, PAGE_BYTES, Space};
